/* Who am I, says the launcher. One row a launcher, tried from the top: the
 * first whose rank and size are both set decides. torchrun comes first, since
 * it is also started by Slurm and MPI, and then its view is the one meant; so
 * is that of MPI's launchers, which srun starts once a node:
 *
 *     srun -- torchrun -- ranks        RANK            SLURM_PROCID is torchrun's
 *     srun -- hydra -- ranks           PMI_RANK        SLURM_PROCID is hydra's
 *     srun --mpi=pmi2 -- ranks         PMI_RANK   =    SLURM_PROCID
 *
 * A batch script is rank 0 of all tasks by its variables, and no task: it lacks
 * the number of a step. */
#include "api/envrank.h"

#include "api/nodelist.h"

#include "base/log.h"
#include "base/option.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct launcher {
    const char *name, *rank, *size, *local_rank, *local_size;
} launchers[] = {
    { "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE" },
    { "openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_SIZE" },
    { "mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS" },
    { "slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE" },
    { "pmix", "PMIX_RANK", "PMIX_SIZE", "PMIX_LOCAL_RANK", "PMIX_LOCAL_SIZE" },
};
enum { NLAUNCHERS = sizeof launchers / sizeof launchers[0] };

static const char *value_of(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

static bool read_number(const char *text, int *out)
{
    char *end;

    errno = 0;
    const long v = strtol(text, &end, 10);
    if (end == text || *end || errno || v < 0 || v > INT_MAX)
        return false;
    *out = (int)v;
    return true;
}

/* Absent: -1. Slurm writes "4(x2),3" when nodes differ: not one number, so -1. */
static int read_local(const char *name)
{
    const char *v = value_of(name);
    int         n;
    return v && read_number(v, &n) ? n : -1;
}

static rcclx_status read_row(const struct launcher *l, rcclxEnv_t *env)
{
    const char *rank = value_of(l->rank), *size = value_of(l->size);

    if (!read_number(rank, &env->rank) || !read_number(size, &env->size) || env->size < 1 || env->rank >= env->size)
        return RCCLX_FAIL(RCCLX_USAGE, "rcclxEnvRank: %s says %s=%s and %s=%s, which is no rank of a job; unset them or "
                          "start the job through its launcher", l->name, l->rank, rank, l->size, size);
    env->launcher  = l->name;
    env->localRank = read_local(l->local_rank);
    env->localSize = read_local(l->local_size);
    if (env->localRank >= 0 && env->localSize >= 0 && env->localRank >= env->localSize)
        env->localSize = -1;
    return RCCLX_OK;
}

/* --- Slurm --------------------------------------------------------------------- */

/* Started by srun itself: a task of a step. */
static bool in_step(void)
{
    return value_of("SLURM_STEP_ID") && value_of("SLURM_PROCID") && value_of("SLURM_NTASKS");
}

static bool is_srun_rank(const rcclxEnv_t *env)
{
    int rank, size;

    return in_step() && read_number(value_of("SLURM_PROCID"), &rank) && read_number(value_of("SLURM_NTASKS"), &size) &&
           rank == env->rank && size == env->size;
}

/* What the step's variable says, or else the job's. */
static const char *of_step(const char *step, const char *job)
{
    const char *v = value_of(step);

    return v ? v : value_of(job);
}

/* Tasks of this node: srun lists them for all, and tells which node this is. */
static void read_srun_local(rcclxEnv_t *env)
{
    const char *counts = of_step("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
    const int   node   = read_local("SLURM_NODEID");

    env->launcher  = "slurm";
    env->localRank = read_local("SLURM_LOCALID");
    env->localSize = counts && node >= 0 ? rcclx_counts_at(counts, node) : read_local("SLURM_NTASKS_PER_NODE");
    if (env->localRank >= 0 && env->localSize >= 0 && env->localRank >= env->localSize)
        env->localSize = -1;
}

static rcclx_status read_launcher(const struct launcher *l, rcclxEnv_t *env)
{
    RCCLX_TRY(read_row(l, env));
    if ((env->localRank < 0 || !strcmp(l->name, "slurm")) && is_srun_rank(env))
        read_srun_local(env);
    return RCCLX_OK;
}

rcclx_status rcclx_envrank_get(rcclxEnv_t *env)
{
    const char *lone = value_of("PMIX_RANK");

    for (int i = 0; i < NLAUNCHERS; i++)
        if (value_of(launchers[i].rank) && value_of(launchers[i].size) && (strcmp(launchers[i].name, "slurm") || in_step()))
            return read_launcher(&launchers[i], env);
    if (lone && value_of("PMIX_NAMESPACE"))
        return RCCLX_FAIL(RCCLX_USAGE, "rcclxEnvRank: PMIX_RANK=%s says that this is a rank of a job, but nothing says of how many; "
                          "set RANK and WORLD_SIZE", lone);
    *env = (rcclxEnv_t){ .rank = 0, .size = 1, .localRank = 0, .localSize = 1, .launcher = "none" };
    return RCCLX_OK;
}

/* --- where to meet --------------------------------------------------------------- */

/* A port of the step's own, below those that systems give out by themselves. */
static int srun_port(void)
{
    const char   *job = value_of("SLURM_JOB_ID"), *step = value_of("SLURM_STEP_ID");
    const unsigned j = (unsigned)strtoul(job ? job : "0", NULL, 10), s = (unsigned)strtoul(step ? step : "0", NULL, 10);

    return (int)(15000 + (j * 101 + s) % 15000);
}

/* Of a step on several nodes: its first node, where rank 0 is unless somebody dealt the ranks otherwise. */
static rcclx_status srun_address(const rcclxEnv_t *env, char *host, size_t n)
{
    const char *list = of_step("SLURM_STEP_NODELIST", "SLURM_NODELIST");
    const char *nodes = of_step("SLURM_STEP_NUM_NODES", "SLURM_NNODES");
    int         count, node = read_local("SLURM_NODEID");

    *host = 0;
    if (!list || !is_srun_rank(env) || (nodes && read_number(nodes, &count) && count == 1))
        return RCCLX_OK;
    if (!rcclx_nodelist_name(list, 0, host, n))
        return RCCLX_FAIL(RCCLX_USAGE, "rank %d: rcclxCommInitEnv: Slurm's list of nodes '%.200s' has no first node; set MASTER_ADDR to "
                          "rank 0's", env->rank, list);
    if (env->rank == 0 && node > 0)
        return RCCLX_FAIL(RCCLX_USAGE, "rank 0: rcclxCommInitEnv: this is not %s, the step's first node, where the others look for rank "
                          "0; set MASTER_ADDR to this node's name", host);
    return RCCLX_OK;
}

/* Where rank 0 is met: MASTER_PORT itself belongs to the framework's store. */
static rcclx_status address_of(const rcclxEnv_t *env, char *buf, size_t n)
{
    const char *host = value_of("MASTER_ADDR"), *port = value_of("MASTER_PORT");
    char        first[256];
    int         number;

    *buf = 0;
    if (!host) {
        RCCLX_TRY(srun_address(env, first, sizeof(first)));
        host = *first ? first : NULL;
    }
    if (!host || (!port && !is_srun_rank(env)))
        return RCCLX_OK;
    if (!port)
        number = srun_port() - 1;
    else if (!read_number(port, &number) || number < 1 || number > 65534)
        return RCCLX_FAIL(RCCLX_USAGE, "rank %d: rcclxCommInitEnv: MASTER_PORT=%s is outside 1..65534; set it, or "
                          "NCCL_COMM_ID=host:port", env->rank, port);
    const bool v6  = strchr(host, ':') && *host != '[';
    const int  len = snprintf(buf, n, v6 ? "[%s]:%d" : "%s:%d", host, number + 1);
    if (len < 0 || (size_t)len >= n)
        return RCCLX_FAIL(RCCLX_USAGE, "rank %d: rcclxCommInitEnv: MASTER_ADDR has more than %zu characters", env->rank,
                          n);
    return RCCLX_OK;
}

/* What the launcher gives to the ranks of one job and to no other job of the
 * machine; its own process, the ranks' parent, where it names nothing. */
static void words_of_job(const rcclxEnv_t *env, char *words, size_t n)
{
    static const char *const names[] = { "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *job = value_of(names[i]), *step = value_of("SLURM_STEP_ID");
        if (job) {
            snprintf(words, n, "%s %s %s", env->launcher, job, step ? step : "");
            return;
        }
    }
    snprintf(words, n, "%s parent %d", env->launcher, (int)getppid());
}

rcclx_status rcclx_envrank_place(const rcclxEnv_t *env, char *address, size_t naddress, char *words, size_t nwords)
{
    const char *at = rcclx_option_str(RCCLX_OPT_COMM_ID), *run = rcclx_option_str(RCCLX_OPT_RUN_ID);

    if (*at)
        snprintf(address, naddress, "%s", at);
    else
        RCCLX_TRY(address_of(env, address, naddress));
    *words = 0;
    if (!*at && *run)
        snprintf(words, nwords, "run %s", run);
    else if (*at || value_of("MASTER_PORT"))
        snprintf(words, nwords, "%s", address);
    if (!*words)
        words_of_job(env, words, nwords);
    return RCCLX_OK;
}
