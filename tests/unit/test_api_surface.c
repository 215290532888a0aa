/* What the three shared libraries offer: every function of the list under both
 * its names, in each of them; the weak names give way to a tool's own; texts,
 * version and settings answer as programs expect. */
#include "check.h"
#include "nccl.h"
#include "rcclx.h"
#include "rcclx_teams.h"

#include <dlfcn.h>

/* NCCL 2.28.9, RCCL's additions, and what NCCL added up to 2.31. */
static const char *const functions[] = {
    "GetVersion", "GetErrorString", "GetLastError", "ResetDebugInit", "MemAlloc", "MemFree", "GetUniqueId",
    "CommInitRank", "CommInitRankConfig", "CommInitRankScalable", "CommInitAll", "CommFinalize", "CommDestroy",
    "CommAbort", "CommRevoke", "CommSplit", "CommShrink", "CommGetAsyncError", "CommCount", "CommCuDevice",
    "CommUserRank", "CommRegister", "CommDeregister", "CommWindowRegister", "CommWindowDeregister",
    "RedOpCreatePreMulSum", "RedOpDestroy", "AllReduce", "Reduce", "Broadcast", "Bcast", "AllGather", "ReduceScatter",
    "AlltoAll", "Gather", "Scatter", "Send", "Recv", "GroupStart", "GroupEnd", "GroupSimulateEnd",
    /* the host half of the device interface */
    "DevCommCreate", "DevCommDestroy", "TeamWorld", "TeamLsa", "TeamRail", "TeamRankToWorld", "TeamRankToLsa",
    "LsaBarrierCreateRequirement", "GinBarrierCreateRequirement", "LLA2ACalcSlots", "LLA2ACreateRequirement",
    /* RCCL */
    "AllToAll", "AlltoAllv", "AllToAllv", "AllReduceWithBias",
    /* 2.29 */
    "CommGetUniqueId", "CommGrow", "PutSignal", "Signal", "WaitSignal", "WinGetUserPtr", "CommQueryProperties",
    "GetLsaDevicePointer", "GetLsaMultimemDevicePointer", "GetMultimemDevicePointer", "GetPeerDevicePointer",
    "CommSuspend", "CommResume", "CommMemStats", "GinInboxA2ACreateRequirement", "GinOutboxCreateRequirement",
    /* 2.30 */
    "ParamBind", "ParamGetI8", "ParamGetI16", "ParamGetI32", "ParamGetI64", "ParamGetU8", "ParamGetU16", "ParamGetU32",
    "ParamGetU64", "ParamGetStr", "ParamGet", "ParamGetParameter", "ParamGetAllParameterKeys", "ParamDumpAll",
    /* 2.31 */
    "AllReduceConfig", "BroadcastConfig", "ReduceConfig", "AllGatherConfig", "ReduceScatterConfig", "AlltoAllConfig",
    "GatherConfig", "ScatterConfig", "TeamCft", "TeamCftMultimem", "GetCftDeviceLeInfo", "GetMultimemDeviceLeInfo",
    "GetPeerDeviceLeInfo",
};
static const char *const single[] = {
    "mscclLoadAlgo", "mscclRunAlgo", "mscclUnloadAlgo", "rcclGetAlgoInfo", "rcclGetAlgoName", "rcclGetProtocolName",
    "rcclxVersion", "rcclxCommInitRankDevice", "rcclxStreamCreate", "rcclxStreamSynchronize", "rcclxStreamQuery",
    "rcclxStreamDestroy", "rcclxEnvRank", "rcclxCommInitEnv", "rcclxDump",
};

TEST(each_library_has_every_function_under_both_names)
{
    static const char *const files[] = { "libnccl.so.2", "librccl.so.1", "librcclx.so" };

    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        CASE("%s", files[f]) {
            char  path[4096], name[128];
            void *lib;
            snprintf(path, sizeof path, "%s/lib/%s", check_build_dir(), files[f]);
            lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            if (!lib && access(path, R_OK)) {
                check_skip("no %s", path);
                continue;
            }
            if (!CHECK(lib, "%s", dlerror()))
                continue;
            for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
                snprintf(name, sizeof name, "pnccl%s", functions[i]);
                void *strong = dlsym(lib, name), *weak = dlsym(lib, name + 1);
                CHECK(strong && weak, "%s: %s", functions[i], !strong ? name : name + 1);
                CHECK(strong == weak, "%s: two functions", functions[i]);
            }
            for (size_t i = 0; i < sizeof single / sizeof single[0]; i++)
                CHECK(dlsym(lib, single[i]), "%s is missing", single[i]);
            dlclose(lib);
        }
    }
}

/* A tool's own ncclGetErrorString: the program links because ours is weak. */
static int ncalls;
const char *ncclGetErrorString(ncclResult_t result)
{
    ncalls++;
    return pncclGetErrorString(result);
}

TEST(a_tool_may_replace_a_function_and_call_on)
{
    ncalls = 0;
    CHECK(strcmp(ncclGetErrorString(ncclSuccess), "no error") == 0, "%s", pncclGetErrorString(ncclSuccess));
    CHECK(ncalls == 1, "%d calls seen", ncalls);
}

TEST(result_texts_are_to_the_letter)
{
    static const char *const texts[] = {
        "no error",
        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "internal error - please report this issue to the NCCL developers",
        "invalid argument (run with NCCL_DEBUG=WARN for details)",
        "invalid usage (run with NCCL_DEBUG=WARN for details)",
        "remote process exited or there was a network error",
        "NCCL operation in progress",
        "timeout",
        "unknown result code",
    };
    for (int i = 0; i < 10; i++)
        CHECK(strcmp(ncclGetErrorString((ncclResult_t)i), texts[i]) == 0, "%d: %s", i, ncclGetErrorString((ncclResult_t)i));
    CHECK(strcmp(ncclGetErrorString((ncclResult_t)-1), texts[9]) == 0, "-1");
}

TEST(version_is_that_of_the_header)
{
    int version = 0;
    CHECK(ncclGetVersion(&version) == ncclSuccess && version == 22809, "%d", version);
    CHECK(ncclGetVersion(NULL) == ncclInvalidArgument, "NULL passed");
    CHECK(strcmp(rcclxVersion(), RCCLX_VERSION) == 0, "%s", rcclxVersion());
}

TEST(what_is_not_built_says_so)
{
    ncclWindow_t none = NULL;
    void        *p;

    CHECK(ncclCommRevoke(NULL, 0) == ncclInvalidUsage, "passed");
    CHECK(strstr(ncclGetLastError(NULL), "ncclCommRevoke is not built yet in this version"), "%s", ncclGetLastError(NULL));
    CHECK(ncclPutSignal(NULL, 0, ncclInt8, 0, none, 0, 0, 0, 0, NULL, NULL) == ncclInvalidUsage, "passed");
    CHECK(strstr(ncclGetLastError(NULL), "ncclPutSignal"), "%s", ncclGetLastError(NULL));
    CHECK(ncclGetMultimemDevicePointer(none, 0, (ncclMultimemHandle_t){ NULL }, &p) == ncclInvalidUsage, "passed");
    CHECK(strstr(ncclGetLastError(NULL), "ncclGetMultimemDevicePointer"), "%s", ncclGetLastError(NULL));
}

TEST(settings_can_be_read_by_name)
{
    ncclParamHandle_t h = NULL;
    const char       *text, **keys;
    int               n = 0, found = 0, len = 0;
    int64_t           wide;
    int8_t            narrow;
    char              small[3];

    CHECK(ncclParamBind(&h, "NCCL_MAX_CTAS") == ncclSuccess && h, "%s", ncclGetLastError(NULL));
    CHECK(ncclParamGetI64(h, &wide) == ncclSuccess && wide == 64, "%lld", (long long)wide);
    CHECK(ncclParamGetI8(h, &narrow) == ncclSuccess && narrow == 64, "%d", narrow);
    CHECK(ncclParamGetStr(h, &text) == ncclSuccess && strcmp(text, "64") == 0, "%s", text);
    CHECK(ncclParamGet(h, small, sizeof small, &len) == ncclSuccess && strcmp(small, "64") == 0 && len == 3, "%d", len);
    CHECK(ncclParamGet(h, small, 2, &len) == ncclInvalidArgument && len == 3, "cut: %d", len);

    CHECK(ncclParamBind(&h, "RCCLX_ARENA_BYTES") == ncclSuccess, "%s", ncclGetLastError(NULL));
    CHECK(ncclParamGetI8(h, &narrow) == ncclInvalidArgument, "256G went into a byte");
    CHECK(strstr(ncclGetLastError(NULL), "RCCLX_ARENA_BYTES"), "%s", ncclGetLastError(NULL));

    CHECK(ncclParamBind(&h, "NCCL_NO_SUCH") == ncclInvalidArgument, "passed");
    CHECK(strstr(ncclGetLastError(NULL), "NCCL_NO_SUCH"), "%s", ncclGetLastError(NULL));
    CHECK(ncclParamGetI64((ncclParamHandle_t)(void *)&n, &wide) == ncclInvalidArgument, "a foreign handle passed");
    CHECK(ncclParamGetParameter("NCCL_DEBUG_SUBSYS", &text, &len) == ncclSuccess && len == (int)strlen(text), "%d", len);

    CHECK(ncclParamGetAllParameterKeys(&keys, &n) == ncclSuccess && n > 10, "%d keys", n);
    for (int i = 0; i < n; i++)
        found += strcmp(keys[i], "NCCL_DEBUG") == 0;
    CHECK(found == 1, "NCCL_DEBUG is there %d times", found);
}

/* --- rank and size from the launcher --------------------------------------- */

static const char *const launcher_names[] = {
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", "PMIX_RANK",
    "PMIX_SIZE", "PMIX_LOCAL_RANK", "PMIX_LOCAL_SIZE",
};

static void forget_launchers(void)
{
    for (size_t i = 0; i < sizeof launcher_names / sizeof launcher_names[0]; i++)
        unsetenv(launcher_names[i]);
}

TEST(every_launcher_is_understood)
{
    static const struct {
        const char *name, *vars[4];
    } rows[] = {
        { "torchrun", { "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE" } },
        { "openmpi",
          { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE" } },
        { "mpich", { "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS" } },
        { "slurm", { "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE" } },
        { "pmix", { "PMIX_RANK", "PMIX_SIZE", "PMIX_LOCAL_RANK", "PMIX_LOCAL_SIZE" } },
    };
    static const char *const values[] = { "5", "8", "1", "4" };
    rcclxEnv_t               env;

    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        forget_launchers();
        for (int i = 0; i < 4; i++)
            setenv(rows[r].vars[i], values[i], 1);
        CHECK(rcclxEnvRank(&env) == ncclSuccess, "%s: %s", rows[r].name, ncclGetLastError(NULL));
        CHECK(env.rank == 5 && env.size == 8 && env.localRank == 1 && env.localSize == 4, "%s: %d of %d, %d of %d",
              rows[r].name, env.rank, env.size, env.localRank, env.localSize);
        CHECK(strcmp(env.launcher, rows[r].name) == 0, "%s is taken for %s", rows[r].name, env.launcher);
        unsetenv(rows[r].vars[2]);
        unsetenv(rows[r].vars[3]);
        CHECK(rcclxEnvRank(&env) == ncclSuccess && env.localRank == -1 && env.localSize == -1, "%s: %d of %d",
              rows[r].name, env.localRank, env.localSize);
    }
    forget_launchers();
    CHECK(rcclxEnvRank(&env) == ncclSuccess && env.rank == 0 && env.size == 1 && strcmp(env.launcher, "none") == 0,
          "without: %d of %d by %s", env.rank, env.size, env.launcher);
}

TEST(launchers_that_make_no_sense_are_refused)
{
    static const char *const bad[][2] = { { "8", "8" }, { "-1", "4" }, { "one", "4" }, { "0", "0" }, { "1", "4x" },
                                          { "0", "99999999999" } };
    rcclxEnv_t               env;

    forget_launchers();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        setenv("RANK", bad[i][0], 1);
        setenv("WORLD_SIZE", bad[i][1], 1);
        CHECK(rcclxEnvRank(&env) == ncclInvalidUsage, "%s of %s passed", bad[i][0], bad[i][1]);
        CHECK(strstr(ncclGetLastError(NULL), "RANK=") && strstr(ncclGetLastError(NULL), bad[i][1]), "%s",
              ncclGetLastError(NULL));
    }
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    setenv("SLURM_PROCID", "3", 1);
    setenv("SLURM_NTASKS", "4", 1);
    CHECK(rcclxEnvRank(&env) == ncclSuccess && env.size == 1, "torchrun inside Slurm: %d", env.size);
    forget_launchers();
    CHECK(rcclxEnvRank(NULL) == ncclInvalidArgument, "NULL passed");
}
