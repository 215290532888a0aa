/* A10: in-place layouts.
 *
 *   all-reduce, broadcast, reduce, all-to-all   send == recv
 *   all-gather, gather (root)                   send == recv + rank * count
 *   reduce-scatter, scatter (root)              recv == send + rank * count
 *
 *   neighbouring shards of a few bytes share cache lines:
 *   [r0 r0 r0|r1 r1 r1|r2 r2 r2|guard]
 *
 * These are right, what they do not write stays as it was, and any other overlap
 * is refused with both ranges named. */
#include "check.h"
#include "together.h"

TIME_LIMIT(300)

enum { MOST = 30011, GUARD = 64, MAX_N = 5, ROOM = MAX_N * MOST + 2 * GUARD };

typedef struct {
    ncclComm_t comm;
    int        rank, n;
    uint16_t  *buf;  /* begins GUARD before b */
    uint16_t  *b;    /* what the operation works on */
    uint16_t   want[ROOM];
    size_t     round;
} world;

static uint16_t value(const world *w, int rank, size_t i)
{
    return (uint16_t)(i * 7 + (size_t)rank * 131 + w->round * 3 + 1);
}

/* Fill `used` elements and the guards; nothing is expected to change so far. */
static void begin(world *w, size_t used)
{
    for (size_t i = 0; i < used + 2 * GUARD; i++)
        w->buf[i] = w->want[i] = i < GUARD || i >= used + GUARD ? 0xabcd : value(w, w->rank, i - GUARD);
}

static bool as_wanted(const world *w, size_t used, const char *what, size_t count, int root)
{
    for (size_t i = 0; i < used + 2 * GUARD; i++)
        if (!CHECK(w->buf[i] == w->want[i], "%s of %zu, round %zu, rank %d of %d, root %d: element %zd is %#x, not %#x", what, count,
                   w->round, w->rank, w->n, root, (ssize_t)i - GUARD, w->buf[i], w->want[i]))
            return false;
    return true;
}

/* Sixteen bits wrap like any integer; there is no such type, so a half is moved as
 * two bytes where nothing is added, and bytes are added where something is. */
static uint16_t added(const world *w, size_t i)
{
    unsigned low = 0, high = 0;

    for (int r = 0; r < w->n; r++) {
        low += value(w, r, i) & 255u;
        high += value(w, r, i) >> 8;
    }
    return (uint16_t)((low & 255u) | (high & 255u) << 8);
}

static int moves(world *w, size_t count, int root)
{
    const int    rank = w->rank, n = w->n;
    const size_t all = count * (size_t)n, mine = (size_t)rank * count;
    uint16_t    *want = w->want + GUARD;

    begin(w, all);
    for (size_t i = 0; i < all; i++)
        want[i] = value(w, (int)(i / count), i);
    OK(ncclAllGather(w->b + mine, w->b, count, ncclHalf, w->comm, NULL));
    if (!as_wanted(w, all, "AllGather", count, -1))
        return 1;

    begin(w, all);
    for (size_t i = 0; i < all; i++)
        want[i] = value(w, (int)(i / count), mine + i % count);
    OK(ncclAlltoAll(w->b, w->b, count, ncclHalf, w->comm, NULL));
    if (!as_wanted(w, all, "AlltoAll", count, -1))
        return 1;

    begin(w, all);
    for (size_t i = 0; rank == root && i < all; i++)
        want[i] = value(w, (int)(i / count), i);
    OK(ncclGather(w->b + mine, rank == root ? w->b : NULL, count, ncclHalf, root, w->comm, NULL));
    if (!as_wanted(w, all, "Gather", count, root))
        return 1;

    begin(w, all);
    for (size_t i = 0; i < count; i++)
        want[mine + i] = value(w, root, mine + i);
    OK(ncclScatter(rank == root ? w->b : NULL, w->b + mine, count, ncclHalf, root, w->comm, NULL));
    if (!as_wanted(w, all, "Scatter", count, root))
        return 1;

    begin(w, count);
    for (size_t i = 0; i < count; i++)
        want[i] = value(w, root, i);
    OK(ncclBroadcast(w->b, w->b, count, ncclHalf, root, w->comm, NULL));
    return !as_wanted(w, count, "Broadcast", count, root);
}

static int sums(world *w, size_t count, int root)
{
    const int    rank = w->rank, n = w->n;
    const size_t all = count * (size_t)n, mine = (size_t)rank * count;
    uint16_t    *want = w->want + GUARD;

    begin(w, count);
    for (size_t i = 0; i < count; i++)
        want[i] = added(w, i);
    OK(ncclAllReduce(w->b, w->b, 2 * count, ncclUint8, ncclSum, w->comm, NULL));
    if (!as_wanted(w, count, "AllReduce", count, -1))
        return 1;

    /* the other shards of the send buffer stay as they are */
    begin(w, all);
    for (size_t i = 0; i < count; i++)
        want[mine + i] = added(w, mine + i);
    OK(ncclReduceScatter(w->b, w->b + mine, 2 * count, ncclUint8, ncclSum, w->comm, NULL));
    if (!as_wanted(w, all, "ReduceScatter", count, -1))
        return 1;

    /* equal pointers everywhere; only the root's buffer changes */
    begin(w, count);
    for (size_t i = 0; rank == root && i < count; i++)
        want[i] = added(w, i);
    OK(ncclReduce(w->b, w->b, 2 * count, ncclUint8, ncclSum, root, w->comm, NULL));
    return !as_wanted(w, count, "Reduce", count, root);
}

typedef struct {
    bool   plain; /* memory of malloc */
    size_t rounds;
} options;

static int rank_main(int rank, int n, void *arg)
{
    static const size_t shares[] = { 1, 3, 5, 7 }, larger[] = { 129, 2049, 4097, MOST };
    static world        w;
    const options      *o = arg;

    w.comm = together(0, rank, n);
    w.rank = rank;
    w.n = n;
    if (!w.comm)
        return 1;
    if (o->plain)
        w.buf = malloc(ROOM * sizeof *w.buf);
    else
        OK(ncclMemAlloc((void **)&w.buf, ROOM * sizeof *w.buf));
    w.b = w.buf + GUARD;
    for (w.round = 0; w.round < o->rounds; w.round++)
        if (moves(&w, shares[w.round % 4], w.round & 4 ? n - 1 : 0) || sums(&w, shares[w.round % 4], w.round & 4 ? n - 1 : 0))
            return 1;
    for (w.round = 0; w.round < o->rounds / 25; w.round++)
        if (moves(&w, larger[w.round % 4], w.round & 4 ? n - 1 : 0) || sums(&w, larger[w.round % 4], w.round & 4 ? n - 1 : 0))
            return 1;
    OK(ncclCommDestroy(w.comm));
    if (o->plain)
        free(w.buf);
    else
        OK(ncclMemFree(w.buf));
    return 0;
}

static void run_all(const char *how, size_t rounds)
{
    for (int n = 3; n <= 5; n += 2)
        for (int plain = 0; plain < 2; plain++)
            CASE("%s, %d ranks, %s memory", how, n, plain ? "plain" : "shared") {
                options o = { plain, rounds };
                together_prepare();
                CHECK(run_ranks_as_processes(n, rank_main, &o) == 0, "ranks failed");
            }
}

TEST(a10_in_place_is_right_and_nothing_else_changes)
{
    run_all("as chosen", 1000);
}

TEST(a10_the_same_with_every_algorithm)
{
    static const char *const algos[] = { "direct", "staged", "ring", "tree", "doubling" };

    for (size_t i = 0; i < sizeof algos / sizeof algos[0]; i++) {
        setenv("RCCLX_ALGO", algos[i], 1);
        run_all(algos[i], together_long() ? 1000 : 100);
    }
    unsetenv("RCCLX_ALGO");
    setenv("RCCLX_CMA", "0", 1);
    run_all("without process_vm_readv", together_long() ? 1000 : 100);
    unsetenv("RCCLX_CMA");
}

static int of_one_thread(int rank, int n, void *arg)
{
    enum { N = 3, COUNT = 5 };
    ncclComm_t comm[N];
    int32_t    b[N][N * COUNT];

    (void)arg;
    OK(ncclCommInitAll(comm, N, NULL));
    for (int round = 0; round < 1000; round++) {
        for (int r = 0; r < N; r++)
            for (int i = 0; i < N * COUNT; i++)
                b[r][i] = r * 100 + i + round;
        OK(ncclGroupStart());
        for (int r = 0; r < N; r++)
            OK(ncclReduceScatter(b[r], b[r] + r * COUNT, COUNT, ncclInt32, ncclSum, comm[r], NULL));
        OK(ncclGroupEnd());
        for (int r = 0; r < N; r++)
            for (int i = 0; i < N * COUNT; i++) {
                const int32_t want = i / COUNT == r ? 300 + 3 * (i + round) : r * 100 + i + round;
                if (!CHECK(b[r][i] == want, "round %d, rank %d, element %d: %d, not %d", round, r, i, b[r][i], want))
                    return 1;
            }
    }
    for (int r = 0; r < N; r++)
        OK(ncclCommDestroy(comm[r]));
    return 0;
}

TEST(a10_several_ranks_of_one_thread)
{
    CHECK(run_ranks_as_processes(1, of_one_thread, NULL) == 0, "it failed");
}

/* --- what is refused -------------------------------------------------------- */

static bool refused(ncclResult_t got, const char *call, const void *in, size_t nin, const void *out, size_t nout)
{
    const char *text = ncclGetLastError(NULL);
    char        ranges[2][64];

    snprintf(ranges[0], sizeof ranges[0], "%p..%p", in, (const void *)((const char *)in + nin));
    snprintf(ranges[1], sizeof ranges[1], "%p..%p", out, (const void *)((const char *)out + nout));
    return CHECK(got == ncclInvalidArgument, "%s: %d", call, (int)got) &&
           CHECK(strstr(text, call) && strstr(text, ranges[0]) && strstr(text, ranges[1]), "%s: not both of %s and %s in: %s", call,
                 ranges[0], ranges[1], text);
}

enum { C = 8 };

static int overlaps(int rank, int n, void *arg)
{
    static float f[64 * C];
    const size_t m = (size_t)n, r = (size_t)rank, one = C * sizeof(float), all = m * one;
    float       *b = f + 32 * C;
    ncclComm_t   comm = together(0, rank, n);
    float        sum = 0;

    (void)arg;
    if (!comm)
        return 1;
    for (int shift = -C + 1; shift < C; shift++) {
        float *o = b + shift;
        if (shift) {
            refused(ncclAllReduce(b, o, C, ncclFloat, ncclSum, comm, NULL), "ncclAllReduce", b, one, o, one);
            refused(ncclAlltoAll(b, o, C, ncclFloat, comm, NULL), "ncclAlltoAll", b, all, o, all);
            /* in place, but for the shift */
            refused(ncclAllGather(b + r * C + shift, b, C, ncclFloat, comm, NULL), "ncclAllGather", b + r * C + shift, one, b, all);
            refused(ncclReduceScatter(b, b + r * C + shift, C, ncclFloat, ncclSum, comm, NULL), "ncclReduceScatter", b, all, b + r * C + shift, one);
            if (rank == n - 1) { /* where both buffers are */
                refused(ncclReduce(b, o, C, ncclFloat, ncclSum, n - 1, comm, NULL), "ncclReduce", b, one, o, one);
                refused(ncclBroadcast(b, o, C, ncclFloat, n - 1, comm, NULL), "ncclBroadcast", b, one, o, one);
                refused(ncclGather(b + r * C + shift, b, C, ncclFloat, n - 1, comm, NULL), "ncclGather", b + r * C + shift, one, b, all);
                refused(ncclScatter(b, b + r * C + shift, C, ncclFloat, n - 1, comm, NULL), "ncclScatter", b, all, b + r * C + shift, one);
            }
        }
        /* a shard of somebody else */
        for (size_t other = 0; shift == 0 && other < m; other++) {
            if (other == r)
                continue;
            refused(ncclAllGather(b + other * C, b, C, ncclFloat, comm, NULL), "ncclAllGather", b + other * C, one, b, all);
            refused(ncclReduceScatter(b, b + other * C, C, ncclFloat, ncclSum, comm, NULL), "ncclReduceScatter", b, all, b + other * C, one);
        }
    }
    /* side by side is no overlap, and the communicator still works */
    for (int i = 0; i < C; i++)
        b[i] = (float)(rank + 1), b[i + C] = -1;
    OK(ncclAllReduce(b, b + C, C, ncclFloat, ncclSum, comm, NULL));
    for (int i = 0; i < C; i++)
        sum += b[i + C];
    CHECK(sum == (float)(C * n * (n + 1) / 2), "%f", (double)sum);
    OK(ncclAllReduce(b + C, b, C, ncclFloat, ncclMax, comm, NULL));
    OK(ncclCommDestroy(comm));
    return 0;
}

TEST(a10_any_other_overlap_is_refused_and_both_ranges_are_named)
{
    for (int n = 3; n <= 5; n += 2) {
        together_prepare();
        CHECK(run_ranks_as_processes(n, overlaps, NULL) == 0, "ranks failed");
    }
}
