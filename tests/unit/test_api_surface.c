/* What the three shared libraries offer: every function of the list under both
 * its names, in each of them; the weak names give way to a tool's own; texts,
 * version and settings answer as programs expect. */
#include "check.h"

#include "base/option.h"
#include "nccl.h"
#include "rccl/rccl.h"
#include "rcclx.h"
#include "rcclx_teams.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

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
    "rcclxStreamDestroy", "rcclxStreamPosition", "rcclxStreamWait", "rcclxCommSetTimeout", "rcclxEnvRank", "rcclxCommInitEnv", "rcclxDump",
    "rcclxCommSetLowPrecision", "rcclxCommGetLowPrecision",
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
    "MPI_LOCALNRANKS", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", "PMIX_RANK",
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
        setenv("SLURM_STEP_ID", "0", 1);
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
    setenv("SLURM_STEP_ID", "0", 1);
    CHECK(rcclxEnvRank(&env) == ncclSuccess && env.size == 1, "torchrun inside Slurm: %d", env.size);
    forget_launchers();
    CHECK(rcclxEnvRank(NULL) == ncclInvalidArgument, "NULL passed");
}

/* A port that was free a moment ago. */
static int free_port(void)
{
    struct sockaddr_in a   = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t          len = sizeof a;
    const int          fd  = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool         got = fd >= 0 && bind(fd, (struct sockaddr *)&a, len) == 0 && getsockname(fd, (struct sockaddr *)&a, &len) == 0;

    close(fd);
    return got ? ntohs(a.sin_port) : -1;
}

static void set_number(const char *name, int v)
{
    char text[16];
    snprintf(text, sizeof text, "%d", v);
    setenv(name, text, 1);
}

static int env_rank_main(int rank, int n, void *arg)
{
    ncclComm_t c   = NULL;
    int        sum = rank + 1;

    set_number("RANK", rank);
    set_number("WORLD_SIZE", n);
    set_number("LOCAL_RANK", rank);
    if (arg) {
        set_number("MASTER_PORT", *(const int *)arg - 1);
        setenv("MASTER_ADDR", "127.0.0.1", 1);
    }
    if (!CHECK(rcclxCommInitEnv(&c, NULL) == ncclSuccess, "rank %d: %s", rank, ncclGetLastError(NULL)))
        return 1;
    const bool good = ncclAllReduce(&sum, &sum, 1, ncclInt, ncclSum, c, NULL) == ncclSuccess && sum == n * (n + 1) / 2;
    CHECK(good, "rank %d has %d: %s", rank, sum, ncclGetLastError(NULL));
    return !good || ncclCommDestroy(c) != ncclSuccess;
}

TEST(a_job_meets_by_its_environment_alone)
{
    ncclComm_t c    = NULL;
    int        port = free_port();

    forget_launchers();
    REQUIRE(port > 1, "no port");
    CHECK(run_ranks_as_processes(3, env_rank_main, &port) == 0, "ranks failed that meet at an address");
    CHECK(run_ranks_as_processes(3, env_rank_main, NULL) == 0, "ranks failed that meet by the launcher's name of the job");
    CHECK(rcclxCommInitEnv(&c, NULL) == ncclSuccess && ncclCommDestroy(c) == ncclSuccess, "alone: %s", ncclGetLastError(NULL));
}

TEST(a_rank_that_nobody_joins_gives_up_and_says_who_is_missing)
{
    ncclComm_t c = NULL;

    forget_launchers();
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("RCCLX_INIT_TIMEOUT", "0.5", 1);
    rcclx_option_reload();
    deadline(30);
    CHECK(rcclxCommInitEnv(&c, NULL) == ncclRemoteError, "%s", ncclGetLastError(NULL));
    deadline(0);
    CHECK(strstr(ncclGetLastError(NULL), "rank 1") || strstr(ncclGetLastError(NULL), "ranks 1"), "%s", ncclGetLastError(NULL));

    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", "65535", 1);
    CHECK(rcclxCommInitEnv(&c, NULL) == ncclInvalidUsage, "passed");
    CHECK(strstr(ncclGetLastError(NULL), "MASTER_PORT=65535"), "%s", ncclGetLastError(NULL));
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
    unsetenv("RCCLX_INIT_TIMEOUT");
    rcclx_option_reload();
    forget_launchers();
}

/* --- a communicator, asked in every way ------------------------------------- */

static ncclComm_t one, pair[2];

static bool start(void)
{
    if (!one && ncclCommInitAll(&one, 1, NULL) == ncclSuccess)
        CHECK(ncclCommInitAll(pair, 2, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
    return CHECK(one && pair[1], "no communicators: %s", ncclGetLastError(NULL));
}

TEST(a_communicator_tells_who_it_is)
{
    int          n = -1, rank = -1, device = -1;
    ncclResult_t async = ncclInternalError;
    ncclTeam_t   team;
    uint64_t     bytes = 0;

    REQUIRE(start(), "start");
    CHECK(ncclCommCount(pair[1], &n) == ncclSuccess && n == 2, "%d", n);
    CHECK(ncclCommUserRank(pair[1], &rank) == ncclSuccess && rank == 1, "%d", rank);
    CHECK(ncclCommCuDevice(pair[1], &device) == ncclSuccess && device == 1, "%d", device);
    CHECK(ncclCommGetAsyncError(pair[1], &async) == ncclSuccess && async == ncclSuccess, "%d", async);
    CHECK(ncclCommMemStats(pair[1], ncclStatGpuMemTotal, &bytes) == ncclSuccess && bytes > 0, "%lu", (unsigned long)bytes);
    CHECK(ncclCommMemStats(pair[1], (ncclCommMemStat_t)9, &bytes) == ncclInvalidArgument, "passed");
    team = ncclTeamWorld(pair[1]);
    CHECK(team.nRanks == 2 && team.rank == 1 && team.stride == 1, "%d %d %d", team.nRanks, team.rank, team.stride);
    CHECK(ncclTeamRankToWorld(pair[1], team, 0) == 0, "%d", ncclTeamRankToWorld(pair[1], team, 0));
    team = ncclTeamLsa(pair[1]);
    CHECK(team.nRanks == 1 && ncclTeamRankToWorld(pair[1], team, 0) == 1, "%d", team.nRanks);
    CHECK(ncclTeamWorld(NULL).nRanks == 0, "a team of nobody");
}

TEST(properties_are_written_as_far_as_the_structure_reaches)
{
    ncclCommProperties_t p = { .size = offsetof(ncclCommProperties_t, commHash), .magic = NCCL_API_MAGIC };

    REQUIRE(start(), "start");
    p.commHash = 77;
    p.rank     = -1;
    CHECK(ncclCommQueryProperties(pair[1], &p) == ncclSuccess && p.rank == 1 && p.nRanks == 2, "%d of %d", p.rank, p.nRanks);
    CHECK(p.commHash == 77 && !p.deviceApiSupport, "%lx", (unsigned long)p.commHash);
    p.size = sizeof p;
    CHECK(ncclCommQueryProperties(pair[1], &p) == ncclSuccess && p.commHash != 77, "%lx", (unsigned long)p.commHash);
    p.magic = 0;
    CHECK(ncclCommQueryProperties(pair[1], &p) == ncclInvalidArgument, "passed");
}

TEST(registration_answers_as_programs_expect)
{
    static _Alignas(4096) char buf[8192];
    ncclWindow_t               win = (ncclWindow_t)(void *)buf;
    void                      *h   = NULL;

    REQUIRE(start(), "start");
    CHECK(ncclCommWindowRegister(one, buf, sizeof buf, &win, NCCL_WIN_COLL_SYMMETRIC) == ncclSuccess && !win, "%p", (void *)win);
    CHECK(ncclCommWindowDeregister(one, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
    CHECK(ncclCommWindowRegister(one, buf, sizeof buf, &win, 64) == ncclInvalidArgument, "flags passed");
    CHECK(ncclCommRegister(one, buf, sizeof buf, &h) == ncclSuccess && h, "%s", ncclGetLastError(NULL));
    CHECK(ncclCommDeregister(pair[0], h) == ncclInvalidArgument, "another communicator took it");
    CHECK(ncclCommDeregister(one, h) == ncclSuccess, "%s", ncclGetLastError(NULL));
    CHECK(ncclCommDeregister(one, h) == ncclInvalidArgument, "twice");
}

TEST(additions_compute_what_they_say)
{
    const float       in[2][4] = { { 1, 2, 3, 4 }, { 10, 20, 30, 40 } }, bias[4] = { 0.5f, 0, 0, -100 };
    float             out[2][4];
    ncclCollConfig_t  hints = NCCL_COLLCONFIG_INITIALIZER;
    const size_t      counts[2][2] = { { 1, 3 }, { 0, 2 } }, displs[2] = { 0, 1 };
    const size_t      from[2][2]   = { { 1, 0 }, { 3, 2 } }, at[2][2] = { { 0, 1 }, { 0, 3 } };
    float             got[2][5]    = { { -1, -1, -1, -1, -1 }, { -1, -1, -1, -1, -1 } };

    REQUIRE(start(), "start");
    ncclGroupStart();
    for (int r = 0; r < 2; r++)
        CHECK(ncclAllReduceWithBias(in[r], out[r], 4, ncclFloat, ncclSum, pair[r], NULL, bias) == ncclSuccess, "%s", ncclGetLastError(NULL));
    CHECK(ncclGroupEnd() == ncclSuccess, "%s", ncclGetLastError(NULL));
    CHECK(out[0][0] == 11.5f && out[1][3] == -56, "%f %f", (double)out[0][0], (double)out[1][3]);

    ncclGroupStart();
    for (int r = 0; r < 2; r++)
        CHECK(ncclAllReduceConfig(in[r], out[r], 4, ncclFloat, ncclMax, pair[r], NULL, &hints) == ncclSuccess, "%s", ncclGetLastError(NULL));
    CHECK(ncclGroupEnd() == ncclSuccess && out[0][2] == 30 && out[1][2] == 30, "%f: %s", (double)out[0][2], ncclGetLastError(NULL));

    ncclGroupStart();
    for (int r = 0; r < 2; r++)
        CHECK(ncclAlltoAllv(in[r], counts[r], displs, got[r], from[r], at[r], ncclFloat, pair[r], NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
    CHECK(ncclGroupEnd() == ncclSuccess, "%s", ncclGetLastError(NULL));
    CHECK(got[0][0] == 1 && got[0][1] == -1, "%f %f", (double)got[0][0], (double)got[0][1]);
    CHECK(got[1][0] == 2 && got[1][2] == 4 && got[1][3] == 20 && got[1][4] == 30, "%f %f", (double)got[1][0], (double)got[1][3]);
}

TEST(algorithms_have_names)
{
    int         algo = -1, proto = -1, channels = 0;
    const char *name = NULL, *how = NULL;

    REQUIRE(start(), "start");
    for (int coll = 0; coll < 5; coll++) {
        CHECK(rcclGetAlgoInfo(pair[0], coll, 1 << 20, ncclFloat, 0, 0, 1, &algo, &proto, &channels) == ncclSuccess, "%s", ncclGetLastError(NULL));
        CHECK(rcclGetAlgoName(algo, &name) == ncclSuccess && *name, "%d", algo);
        CHECK(rcclGetProtocolName(proto, &how) == ncclSuccess && strcmp(how, "Simple") == 0, "%d", proto);
        CHECK(channels > 0, "%d", channels);
    }
    CHECK(rcclGetAlgoInfo(pair[0], 5, 8, ncclFloat, 0, 0, 1, &algo, &proto, &channels) == ncclInvalidArgument, "passed");
    CHECK(rcclGetAlgoName(99, &name) == ncclInvalidArgument && rcclGetProtocolName(-1, &how) == ncclInvalidArgument, "passed");
}

TEST(a_dump_tells_its_size_and_fits_it)
{
    static const char *const nouns[] = { "options", "process", "comm" };

    REQUIRE(start(), "start");
    for (int i = 0; i < 3; i++)
        for (int json = 0; json < 2; json++) {
            char   text[65536];
            size_t need = 0, again = 0;
            CHECK(rcclxDump(nouns[i], one, json, NULL, 0, &need) == ncclSuccess && need > 10, "%s: %zu", nouns[i], need);
            if (!CHECK(need <= sizeof text, "%s: %zu bytes", nouns[i], need))
                continue;
            CHECK(rcclxDump(nouns[i], one, json, text, need, &again) == ncclSuccess && again == need, "%zu, then %zu", need, again);
            CHECK(strlen(text) == need - 1, "%s: %zu of %zu", nouns[i], strlen(text), need);
            CHECK(!json || text[0] == '{' || text[0] == '[', "%s is no JSON: %.20s", nouns[i], text);
        }
}

/* --- the line users grep: a process of its own, whose settings are for the log ---- */

__attribute__((constructor)) static void be_the_child(void)
{
    ncclComm_t c;
    int        x = 5, y = 0;

    if (!getenv("RCCLX_TEST_CHILD"))
        return;
    if (ncclCommInitAll(&c, 1, NULL) || ncclAllReduce(&x, &y, 1, ncclInt, ncclMax, c, NULL) ||
        ncclBroadcast(&x, &y, 1, ncclInt, 0, c, NULL))
        _exit(3);
    printf("sent %p %p comm %p\n", (void *)&x, (void *)&y, (void *)c);
    fflush(stdout);
    _exit(0);
}

TEST(a_collective_is_logged_as_nccl_logs_it)
{
    char  command[4200], self[4096] = "", line[1024], reduce[1024] = "", broadcast[1024] = "", want[256] = "";
    void *x = NULL, *y = NULL, *c = NULL;

    REQUIRE(readlink("/proc/self/exe", self, sizeof self - 1) > 0, "no /proc");
    snprintf(command, sizeof command, "RCCLX_TEST_CHILD=1 NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL '%s'", self);
    FILE *p = popen(command, "r");
    REQUIRE(p, "popen");
    while (fgets(line, sizeof line, p)) {
        if (strstr(line, " NCCL INFO AllReduce: "))
            strcpy(reduce, line);
        if (strstr(line, " NCCL INFO Broadcast: "))
            strcpy(broadcast, line);
        sscanf(line, "sent %p %p comm %p", &x, &y, &c);
    }
    CHECK(pclose(p) == 0, "the child failed");
    snprintf(want, sizeof want, "AllReduce: opCount 0 sendbuff %p recvbuff %p count 1 datatype 2 op 2 root 0 comm %p [nranks=1] stream (nil)", x, y, c);
    CHECK(x && strstr(reduce, want), "%s is not in: %s", want, reduce);
    CHECK(strstr(broadcast, "count 1 datatype 2 op 0 root 0"), "%s", broadcast);
}
