/* Who am I, says the launcher. One row a launcher, tried from the top: the
 * first whose rank and size are both set decides. torchrun comes first, since
 * it is also started by Slurm and MPI, and then its view is the one meant. */
#include "api/envrank.h"

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

rcclx_status rcclx_envrank_get(rcclxEnv_t *env)
{
    for (int i = 0; i < NLAUNCHERS; i++)
        if (value_of(launchers[i].rank) && value_of(launchers[i].size))
            return read_row(&launchers[i], env);
    *env = (rcclxEnv_t){ .rank = 0, .size = 1, .localRank = 0, .localSize = 1, .launcher = "none" };
    return RCCLX_OK;
}

/* Where rank 0 is met: MASTER_PORT itself belongs to the framework's store. */
static rcclx_status address_of(const rcclxEnv_t *env, char *buf, size_t n)
{
    const char *host = value_of("MASTER_ADDR"), *port = value_of("MASTER_PORT");
    int         number;

    *buf = 0;
    if (!host || !port)
        return RCCLX_OK;
    if (!read_number(port, &number) || number < 1 || number > 65534)
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
    if (*at || !*run)
        snprintf(words, nwords, "%s", address);
    else
        snprintf(words, nwords, "run %s", run);
    if (!*words)
        words_of_job(env, words, nwords);
    return RCCLX_OK;
}
