/* A29, among ranks: settings that are ignored, backfire or take away everything
 * else.
 *
 * Whatever is asked for, every collective is right; who does not get what was
 * asked is told so in one line with its value; settings that must agree are
 * compared over the ranks, and rank 0's hold everywhere. The table of settings
 * itself is tested in a29_settings.c. */
#include "check.h"
#include "together.h"

#include "base/option.h"

TIME_LIMIT(300)

enum { N = 2, COUNT = 30000, ENTRIES = 6 };

/* NAME=VALUE a rank; NULL: not set. */
typedef struct {
    const char *env[N][ENTRIES];
} settings;

/* The table itself: asking the library would read the environment in the parent. */
static const struct { const char *name, *flags; } rows_of_options[] = {
#define X(id, name, type, preset, min, max, flags, help) { name, #flags },
    RCCLX_OPTION_LIST(X)
#undef X
};
enum { NOPTIONS = sizeof rows_of_options / sizeof rows_of_options[0] };

static char folder[] = "/tmp/rcclx-test-a29-XXXXXX";
static char said[N][65536]; /* what the ranks wrote to standard error */
static char seen[N][65536]; /* their options, and after "----" their communicator */

static void path_of(char *path, size_t n, const char *what, int rank)
{
    snprintf(path, n, "%s/%s.%d", folder, what, rank);
}

static void apply(const settings *s, int rank)
{
    for (int i = 0; i < ENTRIES && s->env[rank][i]; i++) {
        char        name[128];
        const char *eq = strchr(s->env[rank][i], '=');
        snprintf(name, sizeof name, "%.*s", (int)(eq - s->env[rank][i]), s->env[rank][i]);
        setenv(name, eq + 1, 1);
    }
    setenv("HOME", folder, 1);
}

static int wrong(const char *what, const int32_t *out, size_t count, int32_t (*want)(size_t i, size_t count), int rank)
{
    for (size_t i = 0; i < count; i++)
        if (!CHECK(out[i] == want(i, count), "%s of %zu, rank %d: element %zu is %d, not %d", what, count, rank, i, out[i], want(i, count)))
            return 1;
    return 0;
}

static int32_t value(int rank, size_t i) { return (int32_t)(rank * 1000 + (int)(i % 777)); }
static int32_t sum(size_t i, size_t count) { (void)count; return value(0, i) + value(1, i); }
static int32_t root1(size_t i, size_t count) { (void)count; return value(1, i); }
static int32_t gathered(size_t i, size_t count) { return value((int)(2 * i / count), i % (count / 2)); }

/* All collectives, small, middle and large. */
static int everything(ncclComm_t comm, int rank, int n)
{
    static int32_t      in[COUNT], out[COUNT];
    static const size_t counts[] = { 2, 600, 6000, COUNT };

    for (size_t i = 0; i < COUNT; i++)
        in[i] = value(rank, i);
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        const size_t c = counts[k], h = c / 2, two[N] = { h, h }, at[N] = { 0, h };
        OK(ncclAllReduce(in, out, c, ncclInt32, ncclSum, comm, NULL));
        if (wrong("AllReduce", out, c, sum, rank))
            return 1;
        OK(ncclReduce(in, out, c, ncclInt32, ncclSum, 1, comm, NULL));
        if (rank == 1 && wrong("Reduce", out, c, sum, rank))
            return 1;
        OK(ncclBroadcast(in, out, c, ncclInt32, 1, comm, NULL));
        if (wrong("Broadcast", out, c, root1, rank))
            return 1;
        OK(ncclAllGather(in, out, h, ncclInt32, comm, NULL));
        if (wrong("AllGather", out, c, gathered, rank))
            return 1;
        OK(ncclReduceScatter(in, out, h, ncclInt32, ncclSum, comm, NULL));
        for (size_t i = 0; i < h; i++)
            if (!CHECK(out[i] == sum((size_t)rank * h + i, c), "ReduceScatter of %zu, element %zu", c, i))
                return 1;
        OK(ncclAlltoAll(in, out, h, ncclInt32, comm, NULL));
        OK(ncclAlltoAllv(in, two, at, out, two, at, ncclInt32, comm, NULL));
        for (size_t i = 0; i < c; i++)
            if (!CHECK(out[i] == value((int)(i / h), (size_t)rank * h + i % h), "AlltoAll of %zu, element %zu", c, i))
                return 1;
        OK(ncclGather(in, rank ? NULL : out, h, ncclInt32, 0, comm, NULL));
        if (rank == 0 && wrong("Gather", out, c, gathered, rank))
            return 1;
        OK(ncclScatter(rank ? NULL : in, out, h, ncclInt32, 0, comm, NULL));
        for (size_t i = 0; i < h; i++)
            if (!CHECK(out[i] == value(0, (size_t)rank * h + i), "Scatter of %zu, element %zu", c, i))
                return 1;
        OK(ncclGroupStart());
        OK(ncclSend(in, c, ncclInt32, 1 - rank, comm, NULL));
        OK(ncclRecv(out, c, ncclInt32, 1 - rank, comm, NULL));
        OK(ncclGroupEnd());
        for (size_t i = 0; i < c; i++)
            if (!CHECK(out[i] == value(1 - rank, i), "Recv of %zu, element %zu", c, i))
                return 1;
    }
    return 0;
}

static void redirect_errors(int rank)
{
    char      path[128];
    path_of(path, sizeof path, "err", rank);
    const int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dup2(fd, STDERR_FILENO);
    close(fd);
}

static void write_seen(int rank, ncclComm_t comm)
{
    static char text[65536];
    char        path[128];
    size_t      need;

    path_of(path, sizeof path, "seen", rank);
    FILE *f = fopen(path, "w");
    if (!f)
        return;
    rcclxDump("options", NULL, 0, text, sizeof text, &need);
    fprintf(f, "%s\n----\n", text);
    if (comm && rcclxDump("comm", comm, 0, text, sizeof text, &need) == ncclSuccess)
        fprintf(f, "%s", text);
    fclose(f);
}

static int rank_main(int rank, int n, void *arg)
{
    apply(arg, rank);
    redirect_errors(rank);
    ncclComm_t comm = together(0, rank, n);
    if (!comm || everything(comm, rank, n))
        return 1;
    write_seen(rank, comm);
    OK(ncclCommDestroy(comm));
    return 0;
}

static void read_file(const char *what, int rank, char *text, size_t size)
{
    char path[128];

    path_of(path, sizeof path, what, rank);
    const int     fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, text, size - 1) : -1;
    text[n > 0 ? n : 0] = 0;
    if (fd >= 0)
        close(fd);
    unlink(path);
}

/* Runs two ranks with these settings; what they said and saw is then in said and seen. */
static int run(const settings *s, check_rank_fn fn)
{
    static bool made;

    if (!made && !CHECK(mkdtemp(folder), "%s", strerror(errno)))
        return 1;
    made = true;
    together_prepare();
    const int bad = run_ranks_as_processes(N, fn, (void *)(uintptr_t)s);
    for (int r = 0; r < N; r++) {
        read_file("err", r, said[r], sizeof said[r]);
        read_file("seen", r, seen[r], sizeof seen[r]);
    }
    return bad;
}

static int times(const char *text, const char *word)
{
    int n = 0;

    for (const char *p = text; (p = strstr(p, word)); p += strlen(word))
        n++;
    return n;
}

#define BOTH(...) (&(const settings){ { { __VA_ARGS__ }, { __VA_ARGS__ } } })

TEST(a29_a_misspelt_name_is_told_once_a_process)
{
    REQUIRE(run(BOTH("RCCLX_CHUNK_BYTSE=4096", "NCCL_DEBGU=INFO"), rank_main) == 0, "ranks failed");
    for (int r = 0; r < N; r++)
        CHECK(times(said[r], "did you mean RCCLX_CHUNK_BYTES?") == 1 && times(said[r], "did you mean NCCL_DEBUG?") == 1, "%s", said[r]);
}

TEST(a29_bad_values_leave_working_ranks_and_a_line_with_asked_used_and_allowed)
{
    static const struct { const char *set, *used; } rows[] = {
        { "RCCLX_CHUNK_BYTES=a lot", "RCCLX_CHUNK_BYTES=256K" },   { "RCCLX_CHUNK_BYTES=-7", "RCCLX_CHUNK_BYTES=4K" },
        { "RCCLX_CHUNK_BYTES=99T", "RCCLX_CHUNK_BYTES=1G" },       { "RCCLX_LL_BYTES=1G", "RCCLX_LL_BYTES=8K" },
        { "RCCLX_LL_BYTES=-1", "RCCLX_LL_BYTES=0" },               { "RCCLX_SPIN_US=soon", "RCCLX_SPIN_US=-1" },
        { "RCCLX_CMA=maybe", "RCCLX_CMA=auto" },                   { "RCCLX_ORDERED=perhaps", "RCCLX_ORDERED=0" },
        { "RCCLX_TIMEOUT=-3", "RCCLX_TIMEOUT=0" },                 { "RCCLX_SEQ_START=-3", "RCCLX_SEQ_START=0" },
        { "RCCLX_ISA=mmx", "RCCLX_ISA=auto" },                     { "RCCLX_BOOTSTRAP=pigeon", "RCCLX_BOOTSTRAP=auto" },
        { "RCCLX_ARENA_BYTES=1", "RCCLX_ARENA_BYTES=1M" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CASE("%s", rows[i].set) {
            char line[128];
            CHECK(run(BOTH(rows[i].set), rank_main) == 0, "ranks failed");
            snprintf(line, sizeof line, "\n%s  (", rows[i].used);
            for (int r = 0; r < N; r++)
                CHECK(times(said[r], "NCCL WARN") == 1 && strstr(said[r], rows[i].set) && strstr(said[r], "allowed: ") && strstr(seen[r], line),
                      "not '%s', or not told: %s", rows[i].used, said[r]);
        }
}

TEST(a29_an_algorithm_for_one_collective_takes_no_other_away)
{
    static const char *const sets[] = {
        "NCCL_ALGO=Tree", "NCCL_ALGO=Ring", "NCCL_ALGO=NVLS", "NCCL_ALGO=CollnetDirect,NVLSTree", "NCCL_ALGO=PAT", "NCCL_ALGO=^Ring",
        "NCCL_ALGO=^Ring,Tree", "NCCL_ALGO=allreduce:tree", "NCCL_ALGO=broadcast:ring;allreduce:tree", "RCCLX_ALGO=slot",
        "RCCLX_ALGO=doubling", "RCCLX_ALGO=allgather:doubling;reducescatter:ring", "RCCLX_ALGO=direct", "NCCL_PROTO=LL", "NCCL_PROTO=LL128",
        "NCCL_PROTO=^LL",
    };

    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        CASE("%s", sets[i]) {
            CHECK(run(BOTH(sets[i]), rank_main) == 0, "ranks failed");
            for (int r = 0; r < N; r++)
                CHECK(!*said[r], "%s", said[r]);
        }
}

static int refused_main(int rank, int n, void *arg)
{
    ncclUniqueId id;
    ncclComm_t   comm = NULL;

    apply(arg, rank);
    redirect_errors(rank);
    if (!together_id(0, rank, &id))
        return 1;
    const ncclResult_t r = ncclCommInitRank(&comm, n, id, rank);
    CHECK(r == ncclInvalidUsage && strstr(ncclGetLastError(NULL), "rnig"), "%d: %s", (int)r, ncclGetLastError(NULL));
    return 0;
}

TEST(a29_an_algorithm_that_does_not_exist_is_refused_by_name)
{
    CHECK(run(BOTH("NCCL_ALGO=rnig"), refused_main) == 0, "ranks failed");
    CHECK(run(BOTH("RCCLX_ALGO=tree,rnig"), refused_main) == 0, "ranks failed");
}

TEST(a29_ranks_that_disagree_are_told_and_rank_0_decides)
{
    static const char *const rows[][2] = {
        { "RCCLX_ALGO=ring", "RCCLX_ALGO=tree" },        { "NCCL_ALGO=Ring", "NCCL_ALGO=Tree" },
        { "RCCLX_CHUNK_BYTES=64K", "RCCLX_CHUNK_BYTES=8K" }, { "RCCLX_LL_BYTES=64", "RCCLX_LL_BYTES=4K" },
        { "RCCLX_LL_BYTES=4K", "RCCLX_LL_BYTES=0" },     { "RCCLX_CMA=0", "RCCLX_CMA=1" },
        { "RCCLX_CMA=1", "RCCLX_CMA=0" },                { "RCCLX_ORDERED=1", "RCCLX_ORDERED=0" },
        { "RCCLX_ORDERED=0", "RCCLX_ORDERED=1" },        { "NCCL_PROTO=Simple", "NCCL_PROTO=LL" },
        { "NCCL_MIN_CTAS=1", "NCCL_MIN_CTAS=2" },        { "NCCL_P2P_DISABLE=0", "NCCL_P2P_DISABLE=1" },
        { "NCCL_SHM_DISABLE=0", "NCCL_SHM_DISABLE=1" },  { "NCCL_NVLS_ENABLE=0", "NCCL_NVLS_ENABLE=1" },
        { "RCCLX_STREAM_BYTES=1M", "RCCLX_STREAM_BYTES=1G" },
        { "RCCLX_LL_BYTES_GPU=64K", "RCCLX_LL_BYTES_GPU=1K" }, { "RCCLX_LL128_BYTES=1M", "RCCLX_LL128_BYTES=4K" },
        { "RCCLX_LL128=auto", "RCCLX_LL128=0" },
        { "RCCLX_GPU_LANES=8", "RCCLX_GPU_LANES=4" },    { "RCCLX_GPU_THREADS=256", "RCCLX_GPU_THREADS=128" },
        { "NCCL_MAX_CTAS=7", "NCCL_MAX_CTAS=8" },        { "NCCL_NET=Socket", "NCCL_NET=IB" },
        { "RCCLX_LOW_PRECISION=fp8", "RCCLX_LOW_PRECISION=int8" },
        { "RCCLX_LOW_PRECISION_MIN_BYTES=1M", "RCCLX_LOW_PRECISION_MIN_BYTES=2M" },
        { "RCCL_LOW_PRECISION_ENABLE=1", "RCCL_LOW_PRECISION_ENABLE=0" },
        { "RCCL_LOW_PRECISION_ENABLE_ALLREDUCE=0", "RCCL_LOW_PRECISION_ENABLE_ALLREDUCE=1" },
        { "RCCL_LOW_PRECISION_ENABLE_ALLGATHER=1", "RCCL_LOW_PRECISION_ENABLE_ALLGATHER=0" },
        { "RCCL_LOW_PRECISION_ENABLE_REDUCESCATTER=0", "RCCL_LOW_PRECISION_ENABLE_REDUCESCATTER=1" },
        { "RCCL_LOW_PRECISION_ENABLE_ALLTOALL=1", "RCCL_LOW_PRECISION_ENABLE_ALLTOALL=0" },
    };
    /* what has a case of its own */
    static const char *const apart[] = { "RCCLX_SEQ_START", "RCCLX_TUNE_FILE" };

    for (int o = 0; o < NOPTIONS; o++) {
        const char  *name = rows_of_options[o].name;
        const size_t n = strlen(name);
        bool         tried = strcmp(rows_of_options[o].flags, "AGREE") != 0;
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            tried |= !strncmp(rows[i][0], name, n) && rows[i][0][n] == '=';
        for (size_t i = 0; i < sizeof apart / sizeof apart[0]; i++)
            tried |= !strcmp(apart[i], name);
        CHECK(tried, "%s must agree and is not tried", name);
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CASE("%s against %s", rows[i][0], rows[i][1]) {
            const settings s = { { { rows[i][0] }, { rows[i][1] } } };
            CHECK(run(&s, rank_main) == 0, "ranks failed");
            CHECK(!*said[0], "%s", said[0]);
            CHECK(times(said[1], "NCCL WARN") == 1 && strstr(said[1], rows[i][0]) && strstr(said[1], rows[i][1]) && strstr(said[1], "rank 0's is used"),
                  "rank 1 said: %s", said[1]);
        }
    const settings s = { { { "RCCLX_ALGO=ring" }, { "RCCLX_ALGO=tree" } } };
    CHECK(run(&s, rank_main) == 0, "ranks failed");
    for (int r = 0; r < N; r++)
        CHECK(strstr(seen[r], "algorithms forced: ring"), "rank %d: %s", r, strstr(seen[r], "----"));
}

/* A start of their own would leave the ranks waiting for numbers that never come. */
static int starts_differ(int rank, int n, void *arg)
{
    ncclUniqueId id;
    ncclComm_t   comm = NULL;

    apply(arg, rank);
    redirect_errors(rank);
    if (!together_id(0, rank, &id))
        return 1;
    const ncclResult_t r = ncclCommInitRank(&comm, n, id, rank);
    const char        *text = ncclGetLastError(NULL);
    CHECK(r == ncclInvalidUsage && !comm, "rank %d: %d: %s", rank, (int)r, text);
    CHECK(strstr(text, "RCCLX_SEQ_START") && strstr(text, "100") && strstr(text, "200"), "rank %d: %s", rank, text);
    return 0;
}

TEST(a29_sequence_numbers_that_start_apart_are_refused)
{
    const settings s = { { { "RCCLX_SEQ_START=100" }, { "RCCLX_SEQ_START=200" } } };

    CHECK(run(&s, starts_differ) == 0, "ranks failed");
}

TEST(a29_tuning_tables_that_differ_are_set_aside)
{
    static const char text[] = "all_reduce 2 0 - ring\nall_gather * 0 - doubling\n";
    char              path[128], set[160];

    REQUIRE(run(BOTH(NULL), rank_main) == 0, "ranks failed"); /* makes the folder */
    path_of(path, sizeof path, "tune", 0);
    const int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    REQUIRE(fd >= 0 && write(fd, text, sizeof text - 1) == (ssize_t)sizeof text - 1, "%s", strerror(errno));
    close(fd);
    snprintf(set, sizeof set, "RCCLX_TUNE_FILE=%s", path);
    const settings s = { { { set }, { NULL } } }, both = { { { set }, { set } } };
    CHECK(run(&s, rank_main) == 0, "ranks failed");
    CHECK(strstr(said[0], "RCCLX_TUNE_FILE") || strstr(said[1], "RCCLX_TUNE_FILE"), "nobody was told");
    CHECK(run(&both, rank_main) == 0, "ranks failed");
    CHECK(!*said[0] && !*said[1], "%s%s", said[0], said[1]);
    unlink(path);
}

TEST(a29_empty_settings_are_no_settings)
{
    CHECK(run(BOTH("RCCLX_CHUNK_BYTES=", "NCCL_ALGO=", "NCCL_DEBUG=", "NCCL_SOCKET_IFNAME=", "NCCL_COMM_ID="), rank_main) == 0, "ranks failed");
    for (int r = 0; r < N; r++)
        CHECK(!*said[r] && !strstr(seen[r], "(environment)"), "%s", said[r]);
}

/* --- precedence: file < environment; configuration < environment ----------- */

TEST(a29_the_environment_wins_over_the_file)
{
    char path[128], set[160];

    REQUIRE(run(BOTH(NULL), rank_main) == 0, "ranks failed");
    snprintf(path, sizeof path, "%s/conf", folder);
    FILE *f = fopen(path, "w");
    REQUIRE(f, "%s", strerror(errno));
    fprintf(f, "RCCLX_ALGO=ring\nRCCLX_CHUNK_BYTES=8192\n");
    fclose(f);
    snprintf(set, sizeof set, "NCCL_CONF_FILE=%s", path);
    CHECK(run(BOTH(set), rank_main) == 0, "ranks failed");
    CHECK(strstr(seen[1], "algorithms forced: ring") && strstr(seen[1], "\nRCCLX_CHUNK_BYTES=8K  ("), "the file is not in force: %s", seen[1]);
    CHECK(run(BOTH(set, "RCCLX_ALGO=tree"), rank_main) == 0, "ranks failed");
    CHECK(strstr(seen[1], "algorithms forced: tree") && strstr(seen[1], "\nRCCLX_CHUNK_BYTES=8K  ("), "the environment does not win: %s", seen[1]);
    unlink(path);
}

typedef struct {
    settings s;
    int      blocking; /* of the configuration */
    bool     returns;  /* init is done when it returns */
} precedence;

static int config_main(int rank, int n, void *arg)
{
    const precedence *p = arg;
    ncclConfig_t      config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId      id;
    ncclComm_t        comm = NULL;
    ncclResult_t      state = ncclInProgress;

    apply(&p->s, rank);
    if (!together_id(0, rank, &id))
        return 1;
    config.blocking = p->blocking;
    const ncclResult_t r = ncclCommInitRankConfig(&comm, n, id, rank, &config);
    CHECK(r == (p->returns ? ncclSuccess : ncclInProgress), "rank %d: init gave %d: %s", rank, (int)r, ncclGetLastError(NULL));
    CHECK(WAIT_FOR(ncclCommGetAsyncError(comm, &state) != ncclSuccess || state != ncclInProgress, 20) && state == ncclSuccess, "%d", (int)state);
    const int bad = everything(comm, rank, n);
    ncclCommDestroy(comm);
    return bad;
}

TEST(a29_the_environment_wins_over_the_configuration)
{
    static const struct { const char *set; int blocking; bool returns; } rows[] = {
        { NULL, 1, true }, { NULL, 0, false }, { "NCCL_COMM_BLOCKING=1", 0, true }, { "NCCL_COMM_BLOCKING=0", 1, false },
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CASE("%s, blocking = %d", rows[i].set ? rows[i].set : "nothing set", rows[i].blocking) {
            precedence p = { .s = { { { rows[i].set }, { rows[i].set } } }, .blocking = rows[i].blocking, .returns = rows[i].returns };
            together_prepare();
            CHECK(run_ranks_as_processes(N, config_main, &p) == 0, "ranks failed");
        }
}

TEST(a29_one_switch_prints_everything_in_force)
{
    REQUIRE(run(BOTH("RCCLX_CHUNK_BYTES=8K"), rank_main) == 0, "ranks failed");
    for (int o = 0; o < NOPTIONS; o++) {
        char line[128];
        snprintf(line, sizeof line, "%s=", rows_of_options[o].name);
        CHECK(strstr(seen[0], line), "%s is not shown", line);
    }
    CHECK(strstr(seen[0], "RCCLX_CHUNK_BYTES=8K  (environment)"), "where it comes from is not shown");
    rmdir(folder);
}
