/* What is made of the variables of srun's tasks, of what runs inside them, and of a
 * batch script; and where such tasks meet. tests/net/test_slurm.sh asks a real Slurm. */
#include "check.h"

#include "api/envrank.h"
#include "base/log.h"

/* In an environment that has nothing else. */
static void set_all(const char *const vars[][2])
{
    clearenv();
    for (int i = 0; vars[i][0]; i++)
        setenv(vars[i][0], vars[i][1], 1);
}

/* What srun set in tasks of a step (Slurm 22.05, two nodes). */
#define STEP { "SLURM_STEP_ID", "0" }, { "SLURM_JOB_ID", "7" }, { "SLURM_NTASKS", "7" }, { "SLURM_PROCID", "5" }, { "SLURM_NODEID", "1" }, \
             { "SLURM_LOCALID", "1" }, { "SLURM_STEP_TASKS_PER_NODE", "4,3" }, { "SLURM_STEP_NODELIST", "n[08-09]" }, \
             { "SLURM_STEP_NUM_NODES", "2" }

TEST(sruns_tasks_and_what_only_looks_like_them)
{
    static const struct {
        const char *vars[16][2], *launcher;
        int         rank, size, local_rank, local_size;
    } cases[] = {
        { { STEP }, "slurm", 5, 7, 1, 3 },
        { { STEP, { "PMI_RANK", "5" }, { "PMI_SIZE", "7" } }, "slurm", 5, 7, 1, 3 },                                /* --mpi=pmi2 */
        { { STEP, { "PMIX_RANK", "5" }, { "PMIX_NAMESPACE", "slurm.pmix.7.0" } }, "slurm", 5, 7, 1, 3 },            /* --mpi=pmix */
        { { STEP, { "PMI_RANK", "3" }, { "PMI_SIZE", "14" } }, "mpich", 3, 14, -1, -1 },                            /* hydra in srun */
        { { STEP, { "PMI_RANK", "5" }, { "PMI_SIZE", "7" }, { "MPI_LOCALRANKID", "2" }, { "MPI_LOCALNRANKS", "5" } }, "mpich", 5, 7, 2, 5 },
        { { STEP, { "RANK", "0" }, { "WORLD_SIZE", "2" } }, "torchrun", 0, 2, -1, -1 },
        /* a batch script, before it calls srun */
        { { { "SLURM_JOB_ID", "7" }, { "SLURM_NTASKS", "4" }, { "SLURM_PROCID", "0" }, { "SLURM_LOCALID", "0" } }, "none", 0, 1, 0, 1 },
    };
    static const char *const lone[][2] = { { "PMIX_RANK", "2" }, { "PMIX_NAMESPACE", "prterun-1" }, { NULL, NULL } };
    rcclxEnv_t env;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_all(cases[i].vars);
        CHECK(rcclxEnvRank(&env) == ncclSuccess, "case %zu: %s", i, ncclGetLastError(NULL));
        CHECK(!strcmp(env.launcher, cases[i].launcher) && env.rank == cases[i].rank && env.size == cases[i].size &&
              env.localRank == cases[i].local_rank && env.localSize == cases[i].local_size, "case %zu: %s %d of %d, %d of %d", i,
              env.launcher, env.rank, env.size, env.localRank, env.localSize);
    }
    set_all(lone);
    CHECK(rcclxEnvRank(&env) == ncclInvalidUsage && strstr(ncclGetLastError(NULL), "PMIX_RANK=2"), "%s", ncclGetLastError(NULL));
}

static void look_at_place(const char *const vars[][2], const char *address, const char *words)
{
    char       at[300], w[300];
    rcclxEnv_t env;

    set_all(vars);
    REQUIRE(rcclx_envrank_get(&env) == RCCLX_OK && rcclx_envrank_place(&env, at, sizeof at, w, sizeof w) == RCCLX_OK, "%s",
            rcclx_last_error());
    CHECK(!strcmp(at, address) && !strcmp(w, words), "at '%s', '%s'; right: '%s', '%s'", at, w, address, words);
}

TEST(tasks_of_several_nodes_meet_on_the_first)
{
    static const char *const step[][2] = { STEP, { NULL, NULL } };
    static const char *const other[][2] = { STEP, { "SLURM_STEP_ID", "1" }, { NULL, NULL } };
    static const char *const one_node[][2] = { STEP, { "SLURM_STEP_NUM_NODES", "1" }, { NULL, NULL } };
    static const char *const dealt[][2] = { STEP, { "SLURM_PROCID", "0" }, { "SLURM_LOCALID", "0" }, { NULL, NULL } };
    static const char *const no_list[][2] = { STEP, { "SLURM_STEP_NODELIST", "n[" }, { NULL, NULL } };
    static const char *const port[][2] = { STEP, { "MASTER_PORT", "4000" }, { NULL, NULL } };
    static const char *const name[][2] = { STEP, { "MASTER_ADDR", "fd00::1" }, { NULL, NULL } };
    static const char *const both[][2] = { STEP, { "MASTER_PORT", "4000" }, { "MASTER_ADDR", "fd00::1" }, { NULL, NULL } };
    char                     at[300], words[300];
    rcclxEnv_t               env;

    look_at_place(step, "n08:15707", "slurm 7 0");
    look_at_place(other, "n08:15708", "slurm 7 1");
    look_at_place(one_node, "", "slurm 7 0");
    look_at_place(port, "n08:4001", "n08:4001");
    look_at_place(both, "[fd00::1]:4001", "[fd00::1]:4001");
    look_at_place(name, "[fd00::1]:15707", "slurm 7 0");
    set_all(dealt); /* rank 0 on the second node */
    CHECK(rcclx_envrank_get(&env) == RCCLX_OK && rcclx_envrank_place(&env, at, sizeof at, words, sizeof words) == RCCLX_USAGE &&
          strstr(rcclx_last_error(), "not n08"), "%s", rcclx_last_error());
    set_all(no_list);
    CHECK(rcclx_envrank_get(&env) == RCCLX_OK && rcclx_envrank_place(&env, at, sizeof at, words, sizeof words) == RCCLX_USAGE &&
          strstr(rcclx_last_error(), "'n['"), "%s", rcclx_last_error());
}
