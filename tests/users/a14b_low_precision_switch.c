/* A14, how low precision is asked for: by the environment, for a communicator,
 * for a call; and what ranks hear that ask for different things.
 *
 * Whatever is asked for must be the same on all ranks: the environment is settled
 * by rank 0 at init, the other two are seen as a difference of calls. */
#include "check.h"
#include "together.h"

TIME_LIMIT(120)

enum { N = 2, COUNT = 3000 };

static char folder[] = "/tmp/rcclx-test-a14b-XXXXXX";
static char said[N][65536];

static void path_of(char *path, size_t size, int rank)
{
    snprintf(path, size, "%s/err.%d", folder, rank);
}

static void redirect_errors(int rank)
{
    char      path[128];
    path_of(path, sizeof path, rank);
    const int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dup2(fd, STDERR_FILENO);
    close(fd);
}

static int run(check_rank_fn fn, void *arg)
{
    static bool made;
    char        path[128];

    if (!made && !CHECK(mkdtemp(folder), "%s", strerror(errno)))
        return 1;
    made = true;
    together_prepare();
    const int bad = run_ranks_as_processes(N, fn, arg);
    for (int r = 0; r < N; r++) {
        path_of(path, sizeof path, r);
        const int     fd = open(path, O_RDONLY | O_CLOEXEC);
        const ssize_t n = fd >= 0 ? read(fd, said[r], sizeof said[r] - 1) : -1;
        said[r][n > 0 ? n : 0] = 0;
        close(fd);
        unlink(path);
    }
    return bad;
}

__attribute__((destructor)) static void remove_folder(void)
{
    rmdir(folder);
}

/* --- the environment ---------------------------------------------------------- */

typedef struct {
    const char *set[N][2], *codec;
    size_t      min;
    const char *from;
} wish;

static int environment_main(int rank, int n, void *arg)
{
    const wish *w = arg;
    const char *codec = "";
    size_t      min = 1, need;
    char        text[8192], want[64];

    for (int i = 0; i < 2 && w->set[rank][i]; i++)
        putenv((char *)(uintptr_t)w->set[rank][i]);
    redirect_errors(rank);
    ncclComm_t comm = together(0, rank, n);
    if (!comm)
        return 1;
    OK(rcclxCommGetLowPrecision(comm, &codec, &min));
    CHECK(!strcmp(codec, w->codec) && min == w->min, "rank %d: %s from %zu on", rank, codec, min);
    OK(rcclxCommGetLowPrecision(comm, NULL, NULL));
    OK(rcclxDump("comm", comm, 0, text, sizeof text, &need));
    snprintf(want, sizeof want, "low precision: %s", w->codec);
    CHECK(strstr(text, want) && strstr(text, w->from), "%s", text);
    OK(rcclxDump("comm", comm, 1, text, sizeof text, &need));
    snprintf(want, sizeof want, "\"codec\": \"%s\"", w->codec);
    CHECK(strstr(text, "\"low_precision\"") && strstr(text, want) && strstr(text, w->from), "%s", text);
    OK(ncclCommDestroy(comm));
    return 0;
}

TEST(a14b_rank_0_decides_and_who_differs_is_told_both_values)
{
    static wish wishes[] = {
        { { { "RCCLX_LOW_PRECISION=int8" }, { "RCCLX_LOW_PRECISION=fp8" } }, "int8", 0, "RCCLX_LOW_PRECISION" },
        { { { "RCCLX_LOW_PRECISION=off" }, { "RCCLX_LOW_PRECISION=fp8" } }, "off", 0, "RCCLX_LOW_PRECISION" },
        { { { "RCCLX_LOW_PRECISION_MIN_BYTES=3M", "RCCLX_LOW_PRECISION=fp8" },
            { "RCCLX_LOW_PRECISION_MIN_BYTES=4M", "RCCLX_LOW_PRECISION=fp8" } }, "fp8", 3 << 20, "RCCLX_LOW_PRECISION" },
        { { { "RCCL_LOW_PRECISION_ENABLE=1" }, { "RCCL_LOW_PRECISION_ENABLE=0" } }, "fp8", 0, "RCCL_LOW_PRECISION_ENABLE" },
        { { { "RCCL_LOW_PRECISION_ENABLE_ALLTOALL=0" }, { "RCCL_LOW_PRECISION_ENABLE_ALLTOALL=1" } }, "off", 0, "nobody asked" },
    };

    for (size_t i = 0; i < sizeof wishes / sizeof wishes[0]; i++)
        CASE("%s against %s", wishes[i].set[0][0], wishes[i].set[1][0]) {
            CHECK(run(environment_main, &wishes[i]) == 0, "ranks failed");
            CHECK(!*said[0], "rank 0 said: %s", said[0]);
            CHECK(strstr(said[1], "rank 1 of 2") && strstr(said[1], wishes[i].set[0][0]) && strstr(said[1], wishes[i].set[1][0]) &&
                  strstr(said[1], "rank 0's is used"), "rank 1 said: %s", said[1]);
        }
}

/* --- ranks whose calls differ ----------------------------------------------------- */

static ncclResult_t call(ncclComm_t comm, float *in, float *out, const char *codec, size_t count)
{
    ncclConfigExt_t  low = { .key = { RCCLX_VENDOR_ID, RCCLX_OPTION_LOW_PRECISION }, .val = { .s = codec } };
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;

    config.ext = codec ? &low : NULL;
    return ncclAllReduceConfig(in, out, count, ncclFloat, ncclSum, comm, NULL, &config);
}

typedef struct {
    const char *codec[N];
    bool        comm;  /* asked of the communicator, not of the call */
    size_t      min[N], count;
    const char *words[N];
} difference;

static int difference_main(int rank, int n, void *arg)
{
    static float      in[COUNT], out[COUNT];
    const difference *d = arg;
    ncclComm_t        comm = together(0, rank, n);

    if (!comm)
        return 1;
    OK(ncclAllReduce(in, out, d->count, ncclFloat, ncclSum, comm, NULL));
    if (d->comm)
        OK(rcclxCommSetLowPrecision(comm, d->codec[rank], d->min[rank]));
    ncclResult_t r = call(comm, in, out, d->comm ? NULL : d->codec[rank], d->count);
    /* who has read the other's header knows; the other finds it broken */
    for (int i = 0; r == ncclSuccess && i < 1000; i++, usleep(1000))
        r = ncclAllReduce(in, out, d->count, ncclFloat, ncclSum, comm, NULL);
    const char *text = ncclGetLastError(comm);
    CHECK(r != ncclSuccess && strstr(text, d->words[0]) && strstr(text, d->words[1]), "rank %d: %d: %s", rank, (int)r, text);
    OK(ncclCommAbort(comm));
    return 0;
}

TEST(a14b_calls_that_differ_in_precision_are_told_apart)
{
    static difference rows[] = {
        { { "int8", NULL }, false, { 0 }, 8, { "rank 0 calls AllReduce of 8 float sum in int8", "rank 1 calls AllReduce of 8 float sum" } },
        { { "int8", "fp8" }, false, { 0 }, 8,
          { "rank 0 calls AllReduce of 8 float sum in int8", "rank 1 calls AllReduce of 8 float sum in fp8" } },
        { { "off", "fp8" }, false, { 0 }, COUNT,
          { "rank 0 calls AllReduce of 3000 float sum", "rank 1 calls AllReduce of 3000 float sum in fp8" } },
        { { "fp8", "int8" }, true, { 1, 1 }, COUNT,
          { "rank 0 calls AllReduce of 3000 float sum in fp8", "rank 1 calls AllReduce of 3000 float sum in int8" } },
        { { "fp8", "fp8" }, true, { 12000, 12001 }, COUNT,
          { "rank 0 calls AllReduce of 3000 float sum in fp8", "rank 1 calls AllReduce of 3000 float sum" } },
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CASE("%s against %s, %s", rows[i].codec[0], rows[i].codec[1] ? rows[i].codec[1] : "nothing", rows[i].comm ? "set" : "called") {
            together_prepare();
            CHECK(run_ranks_as_processes(N, difference_main, &rows[i]) == 0, "ranks failed");
        }
}

/* --- arguments ---------------------------------------------------------------------- */

static ncclComm_t alone[1], pair[N];

#define SAYS(result, call, ...)                                                                             \
    do {                                                                                                    \
        static const char *const says[] = { __VA_ARGS__ };                                                  \
        const ncclResult_t got_ = (call);                                                                   \
        CHECK(got_ == (result), "%s: %d: %s", #call, (int)got_, ncclGetLastError(NULL));                    \
        for (size_t k_ = 0; k_ < sizeof says / sizeof says[0]; k_++)                                        \
            CHECK(strstr(ncclGetLastError(NULL), says[k_]), "'%s' is not in: %s", says[k_], ncclGetLastError(NULL)); \
    } while (0)

TEST(a14b_a_communicator_takes_known_codecs_only)
{
    const char *codec = NULL;
    size_t      min = 7;

    REQUIRE(ncclCommInitAll(alone, 1, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
    CHECK(rcclxCommGetLowPrecision(alone[0], &codec, &min) == ncclSuccess && !strcmp(codec, "off") && min == 0, "%s %zu", codec, min);
    CHECK(rcclxCommSetLowPrecision(alone[0], "INT8", 4096) == ncclSuccess, "%s", ncclGetLastError(NULL));
    SAYS(ncclInvalidArgument, rcclxCommSetLowPrecision(alone[0], "int4", 1), "rcclxCommSetLowPrecision: codec is 'int4'", "off, fp8, int8");
    SAYS(ncclInvalidArgument, rcclxCommSetLowPrecision(alone[0], NULL, 1), "codec is NULL", "off, fp8, int8");
    SAYS(ncclInvalidArgument, rcclxCommSetLowPrecision(NULL, "off", 1), "rcclxCommSetLowPrecision");
    SAYS(ncclInvalidArgument, rcclxCommGetLowPrecision(NULL, &codec, &min), "rcclxCommGetLowPrecision");
    CHECK(rcclxCommGetLowPrecision(alone[0], &codec, &min) == ncclSuccess && !strcmp(codec, "int8") && min == 4096, "%s %zu", codec, min);
    CHECK(ncclCommDestroy(alone[0]) == ncclSuccess, "%s", ncclGetLastError(NULL));
}

/* All calls with a configuration; nothing to send, so that only what is asked for is looked at. */
enum { NCALLS = 8 };
static const char *const call_names[NCALLS] = { "ncclAllReduceConfig", "ncclReduceConfig", "ncclBroadcastConfig", "ncclAllGatherConfig",
                                                "ncclReduceScatterConfig", "ncclAlltoAllConfig", "ncclGatherConfig", "ncclScatterConfig" };

static ncclResult_t issue(int which, ncclComm_t c, ncclDataType_t t, const ncclCollConfig_t *config)
{
    switch (which) {
    case 0: return ncclAllReduceConfig(NULL, NULL, 0, t, ncclSum, c, NULL, config);
    case 1: return ncclReduceConfig(NULL, NULL, 0, t, ncclSum, 0, c, NULL, config);
    case 2: return ncclBroadcastConfig(NULL, NULL, 0, t, 0, c, NULL, config);
    case 3: return ncclAllGatherConfig(NULL, NULL, 0, t, c, NULL, config);
    case 4: return ncclReduceScatterConfig(NULL, NULL, 0, t, ncclSum, c, NULL, config);
    case 5: return ncclAlltoAllConfig(NULL, NULL, 0, t, c, NULL, config);
    case 6: return ncclGatherConfig(NULL, NULL, 0, t, 0, c, NULL, config);
    default: return ncclScatterConfig(NULL, NULL, 0, t, 0, c, NULL, config);
    }
}

TEST(a14b_every_call_with_a_configuration_reads_the_list)
{
    ncclConfigExt_t  low = { .key = { RCCLX_VENDOR_ID, RCCLX_OPTION_LOW_PRECISION } }, other = { .next = &low, .key = { 77, 1 } };
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;

    REQUIRE(ncclCommInitAll(pair, N, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
    config.ext = &other;
    for (int i = 0; i < NCALLS; i++)
        CASE("%s", call_names[i]) {
            low.key.optionId = RCCLX_OPTION_LOW_PRECISION;
            low.val.s = "fp9";
            SAYS(ncclInvalidArgument, issue(i, pair[1], ncclFloat, &config), "RCCLX_OPTION_LOW_PRECISION is 'fp9'", "off, fp8, int8");
            CHECK(strstr(ncclGetLastError(NULL), call_names[i]), "%s does not name the call", ncclGetLastError(NULL));
            low.val.s = NULL;
            SAYS(ncclInvalidArgument, issue(i, pair[1], ncclFloat, &config), "RCCLX_OPTION_LOW_PRECISION is NULL");
            low.val.s = "int8"; /* of a type that has none */
            SAYS(ncclInvalidArgument, issue(i, pair[1], ncclInt, &config), "rank 1: ", " in int8: ", "RCCLX_OPTION_LOW_PRECISION");
            low.key.optionId = RCCLX_OPTION_LOW_PRECISION_CODEC;
            low.val.i = RCCLX_LOW_PRECISION_FP8;
            SAYS(ncclInvalidArgument, issue(i, pair[1], ncclInt, &config), " in fp8: ");
            low.val.i = 3;
            SAYS(ncclInvalidArgument, issue(i, pair[1], ncclFloat, &config), "RCCLX_OPTION_LOW_PRECISION_CODEC is 3", "0..2");
            low.val.i = -1;
            SAYS(ncclInvalidArgument, issue(i, pair[1], ncclFloat, &config), "RCCLX_OPTION_LOW_PRECISION_CODEC is -1");
            low.key.optionId = 99;
            SAYS(ncclInvalidArgument, issue(i, pair[1], ncclFloat, &config), "optionId 99");
        }
    for (int r = 0; r < N; r++)
        CHECK(ncclCommDestroy(pair[r]) == ncclSuccess, "%s", ncclGetLastError(NULL));
}

TEST(a14b_an_error_of_a_grouped_call_ends_the_group)
{
    ncclConfigExt_t  low = { .key = { RCCLX_VENDOR_ID, RCCLX_OPTION_LOW_PRECISION }, .val = { .s = "fp8" } };
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    float            x[N] = { 1, 2 };

    config.ext = &low;
    REQUIRE(ncclCommInitAll(pair, N, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
    CHECK(ncclGroupStart() == ncclSuccess, "group");
    for (int r = 0; r < N; r++)
        SAYS(ncclInvalidArgument, ncclAllReduceConfig(&x[r], &x[r], 1, ncclFloat, ncclMax, pair[r], NULL, &config), "only sum and avg");
    SAYS(ncclInvalidArgument, ncclGroupEnd(), "rank 0: AllReduce of 1 float max in fp8: only sum and avg");
    for (int r = 0; r < N; r++)
        CHECK(ncclCommDestroy(pair[r]) == ncclSuccess, "%s", ncclGetLastError(NULL));
}

/* Lists that whoever made them did not mean. */
TEST(a14b_a_list_has_an_end)
{
    static ncclConfigExt_t many[300];
    ncclConfigExt_t        ring[2] = { { .next = &ring[1], .key = { 77, 1 } }, { .next = &ring[0], .key = { 78, 1 } } };
    ncclCollConfig_t       config = NCCL_COLLCONFIG_INITIALIZER;

    REQUIRE(ncclCommInitAll(alone, 1, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
    CHECK(issue(0, alone[0], ncclFloat, &config) == ncclSuccess && issue(0, alone[0], ncclFloat, NULL) == ncclSuccess, "%s",
          ncclGetLastError(NULL));
    config.ext = ring;
    SAYS(ncclInvalidArgument, issue(0, alone[0], ncclFloat, &config), "ncclAllReduceConfig: config->ext has more than 256 elements");
    ring[1].next = &ring[1];
    SAYS(ncclInvalidArgument, issue(0, alone[0], ncclFloat, &config), "ring?");
    ring[1].next = NULL;
    CHECK(issue(0, alone[0], ncclFloat, &config) == ncclSuccess, "options of others: %s", ncclGetLastError(NULL));
    for (int i = 0; i < 299; i++)
        many[i] = (ncclConfigExt_t){ .next = i == 255 ? NULL : &many[i + 1], .key = { 77, i } };
    config.ext = many;
    CHECK(issue(0, alone[0], ncclFloat, &config) == ncclSuccess, "256: %s", ncclGetLastError(NULL));
    many[255].next = &many[256];
    SAYS(ncclInvalidArgument, issue(0, alone[0], ncclFloat, &config), "more than 256");
    config.ext = (ncclConfigExt_t *)8; /* not looked at: the structure ends before it */
    config.size = offsetof(ncclCollConfig_t, ext);
    CHECK(issue(0, alone[0], ncclFloat, &config) == ncclSuccess, "%s", ncclGetLastError(NULL));
    config.size = 1 << 20;
    SAYS(ncclInvalidArgument, issue(0, alone[0], ncclFloat, &config), "size 1048576", "NCCL_COLLCONFIG_INITIALIZER");
    config.size = 8;
    SAYS(ncclInvalidArgument, issue(0, alone[0], ncclFloat, &config), "size 8");
    CHECK(ncclCommDestroy(alone[0]) == ncclSuccess, "%s", ncclGetLastError(NULL));
}
