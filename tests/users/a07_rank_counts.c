/* A07: rank counts that are not a power of two, and uneven hosts.
 *
 * Averages went wrong at 15 ranks, kernels were right for 8 only, and init hung
 * where hosts held different numbers of ranks. Hence: for every number of ranks,
 * every collective, every root, counts around the number of ranks, and every
 * algorithm by force; what an algorithm cannot do falls back, told in the log. */
#include "check.h"
#include "together.h"

TIME_LIMIT(400)

enum { MOST = 65536 + 17, ROOM = MOST + 64, GUARD = 0x5a5a5a5a };

/* One operation of one rank: buffers with room after them that must stay. */
typedef struct {
    ncclComm_t comm;
    int        rank, n;
    int32_t   *in, *out;
    size_t     written; /* elements of out that may have changed */
} world;

static int32_t value(int rank, size_t i)
{
    return (int32_t)((i % 101 + 1) * (size_t)(rank + 1)) - 150;
}

static void fill(world *w, size_t nin, size_t nout)
{
    for (size_t i = 0; i < nin; i++)
        w->in[i] = value(w->rank, i);
    for (size_t i = 0; i < nout + 16; i++)
        w->out[i] = GUARD;
    w->written = nout;
}

/* What element i of a reduction is. */
static int32_t reduced(const world *w, ncclRedOp_t op, size_t i)
{
    int64_t sum = 0, max = INT64_MIN;

    for (int r = 0; r < w->n; r++) {
        const int64_t v = value(r, i);
        sum += v;
        max = v > max ? v : max;
    }
    return (int32_t)(op == ncclMax ? max : op == ncclAvg ? sum / w->n : sum);
}

static bool right(const world *w, size_t at, int32_t want, const char *what, size_t count, int root)
{
    return CHECK(w->out[at] == want, "%s of %zu, rank %d of %d, root %d: element %zu is %d, not %d", what, count, w->rank, w->n,
                 root, at, w->out[at], want);
}

static bool guarded(const world *w, const char *what, size_t count, int root)
{
    for (size_t i = w->written; i < w->written + 16; i++)
        if (!right(w, i, GUARD, what, count, root))
            return false;
    return true;
}

static int reductions(world *w, size_t count, ncclRedOp_t op)
{
    const int    rank = w->rank, n = w->n;
    const size_t each = count / (size_t)n;

    fill(w, count, count);
    OK(ncclAllReduce(w->in, w->out, count, ncclInt32, op, w->comm, NULL));
    for (size_t i = 0; i < count; i++)
        if (!right(w, i, reduced(w, op, i), "AllReduce", count, -1))
            return 1;
    if (!guarded(w, "AllReduce", count, -1))
        return 1;
    fill(w, each * (size_t)n, each);
    OK(ncclReduceScatter(w->in, w->out, each, ncclInt32, op, w->comm, NULL));
    for (size_t i = 0; i < each; i++)
        if (!right(w, i, reduced(w, op, each * (size_t)rank + i), "ReduceScatter", each, -1))
            return 1;
    if (!guarded(w, "ReduceScatter", each, -1))
        return 1;
    for (int root = 0; root < n; root++) {
        fill(w, count, rank == root ? count : 0);
        OK(ncclReduce(w->in, w->out, count, ncclInt32, op, root, w->comm, NULL));
        for (size_t i = 0; rank == root && i < count; i++)
            if (!right(w, i, reduced(w, op, i), "Reduce", count, root))
                return 1;
        if (!guarded(w, "Reduce", count, root))
            return 1;
    }
    return 0;
}

static int rooted(world *w, size_t count, int root)
{
    const int    rank = w->rank, n = w->n;
    const size_t each = count / (size_t)n, all = each * (size_t)n;

    fill(w, count, count);
    OK(ncclBroadcast(rank == root ? w->in : NULL, w->out, count, ncclInt32, root, w->comm, NULL));
    for (size_t i = 0; i < count; i++)
        if (!right(w, i, value(root, i), "Broadcast", count, root))
            return 1;
    if (!guarded(w, "Broadcast", count, root))
        return 1;
    fill(w, each, rank == root ? all : 0);
    OK(ncclGather(w->in, rank == root ? w->out : NULL, each, ncclInt32, root, w->comm, NULL));
    for (size_t i = 0; rank == root && i < all; i++)
        if (!right(w, i, value((int)(i / each), i % each), "Gather", each, root))
            return 1;
    if (!guarded(w, "Gather", each, root))
        return 1;
    fill(w, all, each);
    OK(ncclScatter(rank == root ? w->in : NULL, w->out, each, ncclInt32, root, w->comm, NULL));
    for (size_t i = 0; i < each; i++)
        if (!right(w, i, value(root, each * (size_t)rank + i), "Scatter", each, root))
            return 1;
    return !guarded(w, "Scatter", each, root);
}

/* What rank s sends to rank r in the uneven exchange. */
static size_t part(size_t each, int s, int r)
{
    return each ? (each * (size_t)(s + 2 * r + 1)) % (each + 1) : 0;
}

static int uneven(world *w, size_t each)
{
    const int rank = w->rank, n = w->n;
    size_t    scounts[64], sdispls[64], rcounts[64], rdispls[64], nin = 0, nout = 0;

    for (int r = 0; r < n; r++) {
        scounts[r] = part(each, rank, r), rcounts[r] = part(each, r, rank);
        sdispls[r] = nin, rdispls[r] = nout;
        nin += scounts[r], nout += rcounts[r];
    }
    fill(w, nin, nout);
    OK(ncclAlltoAllv(w->in, scounts, sdispls, w->out, rcounts, rdispls, ncclInt32, w->comm, NULL));
    for (int s = 0; s < n; s++) {
        size_t skip = 0;
        for (int r = 0; r < rank; r++)
            skip += part(each, s, r);
        for (size_t i = 0; i < rcounts[s]; i++)
            if (!right(w, rdispls[s] + i, value(s, skip + i), "AlltoAllv", each, -1))
                return 1;
    }
    return !guarded(w, "AlltoAllv", each, -1);
}

static int exchanges(world *w, size_t count)
{
    const int    rank = w->rank, n = w->n, next = (rank + 1) % n, prev = (rank + n - 1) % n;
    const size_t each = count / (size_t)n, all = each * (size_t)n;

    fill(w, each, all);
    OK(ncclAllGather(w->in, w->out, each, ncclInt32, w->comm, NULL));
    for (size_t i = 0; i < all; i++)
        if (!right(w, i, value((int)(i / each), i % each), "AllGather", each, -1))
            return 1;
    if (!guarded(w, "AllGather", each, -1))
        return 1;
    fill(w, all, all);
    OK(ncclAlltoAll(w->in, w->out, each, ncclInt32, w->comm, NULL));
    for (size_t i = 0; i < all; i++)
        if (!right(w, i, value((int)(i / each), each * (size_t)rank + i % each), "AlltoAll", each, -1))
            return 1;
    if (!guarded(w, "AlltoAll", each, -1) || uneven(w, each))
        return 1;
    fill(w, count, count);
    OK(ncclGroupStart());
    OK(ncclSend(w->in, count, ncclInt32, next, w->comm, NULL));
    OK(ncclRecv(w->out, count, ncclInt32, prev, w->comm, NULL));
    OK(ncclGroupEnd());
    for (size_t i = 0; i < count; i++)
        if (!right(w, i, value(prev, i), "Send and Recv", count, -1))
            return 1;
    return !guarded(w, "Send and Recv", count, -1);
}

static int everything(world *w, size_t count)
{
    static const ncclRedOp_t ops[] = { ncclSum, ncclAvg, ncclMax };

    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (reductions(w, count, ops[i]))
            return 1;
    for (int root = 0; root < w->n; root++)
        if (rooted(w, count, root))
            return 1;
    return exchanges(w, count);
}

typedef struct {
    const char *const *hosts; /* a name a rank, or NULL */
    bool               plain; /* buffers of malloc */
    size_t             most;  /* largest count */
} round_args;

static int rank_main(int rank, int n, void *arg)
{
    const round_args *a = arg;
    const size_t      m = (size_t)n, counts[] = { 1, m > 1 ? m - 1 : 1, m, m + 1, 2 * m + 1, 119 * m, 2053, 20011, MOST };

    if (a->hosts)
        setenv("NCCL_HOSTID", a->hosts[rank], 1);
    world w = { .comm = together(0, rank, n), .rank = rank, .n = n };
    if (!w.comm)
        return 1;
    if (a->plain) {
        w.in = malloc(ROOM * sizeof *w.in);
        w.out = malloc(ROOM * sizeof *w.out);
    } else {
        OK(ncclMemAlloc((void **)&w.in, ROOM * sizeof *w.in));
        OK(ncclMemAlloc((void **)&w.out, ROOM * sizeof *w.out));
    }
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i] <= a->most && everything(&w, counts[i]))
            return 1;
    OK(ncclCommDestroy(w.comm));
    if (a->plain) {
        free(w.in);
        free(w.out);
    } else {
        OK(ncclMemFree(w.in));
        OK(ncclMemFree(w.out));
    }
    return 0;
}

static void run_round(int n, round_args a)
{
    together_prepare();
    CHECK(run_ranks_as_processes(n, rank_main, &a) == 0, "%d ranks failed", n);
}

TEST(a07_every_rank_count_every_collective_every_root)
{
    for (int n = 1; n <= 8; n++)
        for (int plain = 0; plain < 2; plain++)
            CASE("%d ranks, %s memory", n, plain ? "plain" : "shared")
                run_round(n, (round_args){ .plain = plain, .most = n < 4 || together_long() ? MOST : 20011 });
    CASE("15 ranks")
        run_round(15, (round_args){ .plain = true, .most = together_long() ? MOST : 119 * 15 });
}

TEST(a07_every_algorithm_by_force_for_counts_it_was_not_made_for)
{
    static const char *const algos[] = { "slot", "direct", "staged", "ring", "tree", "doubling" };
    static const int         ranks[] = { 1, 2, 3, 5, 6, 7 };

    for (size_t i = 0; i < sizeof algos / sizeof algos[0]; i++) {
        setenv("RCCLX_ALGO", algos[i], 1);
        CASE("%s", algos[i])
            for (size_t k = 0; k < sizeof ranks / sizeof ranks[0]; k++)
                if (together_long() || k == i % 3 + 1 || k == i % 3 + 3)
                    run_round(ranks[k], (round_args){ .plain = k & 1, .most = 20011 });
    }
    unsetenv("RCCLX_ALGO");
}

TEST(a07_a_fallback_is_told_in_the_log)
{
    static char text[1 << 20];
    char        path[] = "/tmp/rcclx-test-a07-XXXXXX";
    const int   fd = mkstemp(path);

    REQUIRE(fd >= 0, "%s", strerror(errno));
    setenv("RCCLX_ALGO", "doubling", 1);
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_DEBUG_SUBSYS", "TUNING", 1);
    char file[64];
    snprintf(file, sizeof file, "%s.%%p", path);
    setenv("NCCL_DEBUG_FILE", file, 1);
    together_prepare();
    check_ranks r;
    round_args  a = { .most = 119 * 3 };
    check_ranks_start(&r, 3, rank_main, &a);
    check_ranks_wait(&r, CHECK_RANK_SECONDS);
    for (int i = 0; i < 3; i++) {
        CHECK(r.status[i] == 0, "rank %d: %d", i, r.status[i]);
        snprintf(file, sizeof file, "%s.%d", path, (int)r.pid[i]);
        const int     log = open(file, O_RDONLY | O_CLOEXEC);
        const ssize_t got = log >= 0 ? read(log, text, sizeof text - 1) : -1;
        text[got > 0 ? got : 0] = 0;
        CHECK(strstr(text, "doubling") && strstr(text, "does not fit"), "rank %d's log says nothing: %s", i, text);
        if (log >= 0)
            close(log);
        unlink(file);
    }
    unsetenv("RCCLX_ALGO");
    unsetenv("NCCL_DEBUG");
    unsetenv("NCCL_DEBUG_SUBSYS");
    unsetenv("NCCL_DEBUG_FILE");
    close(fd);
    unlink(path);
}

TEST(a07_uneven_hosts)
{
    static const char *const hosts[][8] = {
        { "a", "a", "a", "b", "b", "b", "b", "b" },
        { "a", "b", "b", "b", "b", "b", "b", "b" },
        { "a", "a", "b", "b", "c", "c", "c" },
    };
    static const int ranks[] = { 8, 8, 7 };

    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++)
        CASE("%d ranks, split %zu", ranks[i], i)
            run_round(ranks[i], (round_args){ .hosts = hosts[i], .most = 119 * 8 });
}

/* Two communicators of different size in the same processes, used in turn. */
static int two_sizes(int rank, int n, void *arg)
{
    static int32_t in[2][ROOM], out[2][ROOM];
    world          w[2] = { { .rank = rank, .n = n, .in = in[0], .out = out[0] }, { .rank = rank, .n = 2, .in = in[1], .out = out[1] } };

    (void)arg;
    w[0].comm = together(0, rank, n);
    w[1].comm = rank < 2 ? together(1, rank, 2) : NULL;
    if (!w[0].comm || (rank < 2 && !w[1].comm))
        return 1;
    for (size_t count = 1; count < 20000; count = 5 * count + 2) {
        if (everything(&w[0], count) || (rank < 2 && everything(&w[1], count)))
            return 1;
        /* and both in one group */
        OK(ncclGroupStart());
        for (int k = 0; k < (rank < 2 ? 2 : 1); k++) {
            fill(&w[k], count, count);
            OK(ncclAllReduce(w[k].in, w[k].out, count, ncclInt32, ncclAvg, w[k].comm, NULL));
        }
        OK(ncclGroupEnd());
        for (int k = 0; k < (rank < 2 ? 2 : 1); k++)
            for (size_t i = 0; i < count; i++)
                if (!right(&w[k], i, reduced(&w[k], ncclAvg, i), "AllReduce in a group", count, -1))
                    return 1;
    }
    OK(ncclCommDestroy(w[0].comm));
    if (rank < 2)
        OK(ncclCommDestroy(w[1].comm));
    return 0;
}

TEST(a07_communicators_of_two_and_three_ranks_in_the_same_processes)
{
    together_prepare();
    CHECK(run_ranks_as_processes(3, two_sizes, NULL) == 0, "ranks failed");
}
