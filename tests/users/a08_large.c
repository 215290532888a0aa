/* A08: above 2^31 elements and bytes, and counters that wrap after days.
 *
 * Offsets turned negative and counters were cut to 32 bits elsewhere. The large
 * buffers here are addresses for the most part: everything outside a few windows
 * is one and the same piece of memory, full of zeros, mapped again and again.
 *
 *   offset   0      1M              2^31             2^32       end
 *            |window|  zeros  zeros |window|  zeros  |window| .. |window|
 *
 * A byte that lands in the wrong place is missing in a window, or is no zero
 * among the zeros. With RCCLX_TEST_LONG the zeros are memory of their own. */
#include "check.h"
#include "together.h"

TIME_LIMIT(900)

#define GIB ((size_t)1 << 30)
enum { ZEROS = 16 << 20, PAGE = 4096, EDGE = 1 << 20, AROUND = 64 << 10 };

typedef struct { size_t begin, end; } window;

/* The windows of an operation whose result has so many bytes; begin is page aligned. */
static int windows_of(size_t nbytes, window w[5])
{
    const size_t middles[] = { 2 * GIB, 4 * GIB, 6 * GIB };
    int          k = 0;

    w[k++] = (window){ 0, EDGE };
    for (int i = 0; i < 3; i++)
        if (middles[i] + AROUND < nbytes - EDGE)
            w[k++] = (window){ middles[i] - AROUND, middles[i] + AROUND };
    w[k++] = (window){ nbytes - EDGE, nbytes };
    return k;
}

static int8_t value(int rank, size_t at)
{
    return (int8_t)((at * 2654435761u >> 7) % 31 + (size_t)rank + 1);
}

static bool zeros_always; /* where memory of their own would be too much */

/* Bytes first .. first + nbytes of something larger. */
typedef struct {
    int8_t *p;
    size_t  first, nbytes, mapped;
    int8_t *zeros; /* the piece that is mapped again and again */
    window  w[8];
    int     nw;
} buffer;

static size_t down(size_t x) { return x & ~(size_t)(PAGE - 1); }
static size_t up(size_t x) { return down(x + PAGE - 1); }

static void *map_own(void *at, size_t nbytes)
{
    return mmap(at, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0), -1, 0);
}

static bool make(buffer *b, size_t first, size_t nbytes, const window *w, int nw, int fill_rank)
{
    const int fd = memfd_create("a08", MFD_CLOEXEC);

    *b = (buffer){ .p = map_own(NULL, up(nbytes)), .first = first, .nbytes = nbytes, .mapped = up(nbytes) };
    if (fd < 0 || ftruncate(fd, ZEROS) || b->p == MAP_FAILED)
        return false;
    b->zeros = mmap(NULL, ZEROS, PROT_READ, MAP_SHARED, fd, 0);
    for (size_t at = 0; (zeros_always || !together_long()) && at < b->mapped; at += ZEROS) {
        const size_t n = b->mapped - at < ZEROS ? b->mapped - at : ZEROS;
        if (mmap(b->p + at, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
            return false;
    }
    close(fd);
    for (int i = 0; i < nw; i++) {
        const size_t begin = w[i].begin > first ? w[i].begin - first : 0;
        if (w[i].end <= first || begin >= nbytes)
            continue;
        const size_t end = w[i].end - first < nbytes ? w[i].end - first : nbytes;
        b->w[b->nw++] = (window){ begin, end };
        if (map_own(b->p + down(begin), up(end) - down(begin)) == MAP_FAILED)
            return false;
    }
    for (int i = 0; fill_rank >= 0 && i < b->nw; i++)
        for (size_t k = b->w[i].begin; k < b->w[i].end; k++)
            b->p[k] = value(fill_rank, first + k);
    return b->zeros != MAP_FAILED;
}

/* Every byte of a window is the sum of nranks ranks' values, from rank `from`; the rest is zero. */
static bool holds(const buffer *b, int from, int nranks, const char *what)
{
    for (int i = 0; i < b->nw; i++)
        for (size_t k = b->w[i].begin; k < b->w[i].end; k++) {
            int want = 0;
            for (int r = from; r < from + nranks; r++)
                want += value(r, b->first + k);
            if (!CHECK(b->p[k] == (int8_t)want, "%s: byte %zu (%#zx) is %d, not %d", what, b->first + k, b->first + k, b->p[k], want))
                return false;
        }
    for (size_t k = 0; k < ZEROS; k++)
        if (!CHECK(!b->zeros[k], "%s: a byte outside the windows is %d (at %#zx modulo %#x)", what, b->zeros[k], k, ZEROS))
            return false;
    return true;
}

static void drop(buffer *b)
{
    munmap(b->p, b->mapped);
    munmap(b->zeros, ZEROS);
}

/* The part first .. first + nbytes of an operation of `all` bytes. */
static bool make_part(buffer *b, size_t first, size_t nbytes, size_t all, int fill_rank)
{
    window    w[5];
    const int nw = windows_of(all, w);

    return CHECK(make(b, first, nbytes, w, nw, fill_rank), "no memory: %s", strerror(errno));
}

static int all_reduce(ncclComm_t comm, int rank, int n)
{
    const size_t count = 2 * GIB + 17;
    buffer       b;

    if (!make_part(&b, 0, count, count, rank))
        return 1;
    OK(ncclAllReduce(b.p, b.p, count, ncclInt8, ncclSum, comm, NULL));
    const bool good = holds(&b, 0, n, "AllReduce in place");
    drop(&b);
    return !good;
}

static int all_gather(ncclComm_t comm, int rank, int n)
{
    const size_t each = GIB + 3, all = (size_t)n * each;
    buffer       in, out;

    if (!make_part(&in, (size_t)rank * each, each, all, 1))
        return 1;
    if (!make_part(&out, 0, all, all, -1))
        return 1;
    OK(ncclAllGather(in.p, out.p, each, ncclInt8, comm, NULL));
    const bool good = holds(&out, 1, 1, "AllGather");
    drop(&in);
    drop(&out);
    return !good;
}

static int reduce_scatter(ncclComm_t comm, int rank, int n)
{
    const size_t each = 2 * GIB + 9, all = (size_t)n * each; /* each fits 32 bits, all does not */
    buffer       in, out;

    if (!make_part(&in, 0, all, all, rank))
        return 1;
    if (!make_part(&out, (size_t)rank * each, each, all, -1))
        return 1;
    OK(ncclReduceScatter(in.p, out.p, each, ncclInt8, ncclSum, comm, NULL));
    const bool good = holds(&out, 0, n, "ReduceScatter");
    drop(&in);
    drop(&out);
    return !good;
}

static int send_and_recv(ncclComm_t comm, int rank, int n)
{
    const size_t count = 4 * GIB + 5;
    buffer       b;

    if (!make_part(&b, 0, count, count, rank == 0 ? 0 : -1))
        return 1;
    if (rank == 0)
        OK(ncclSend(b.p, count, ncclInt8, 1, comm, NULL));
    else
        OK(ncclRecv(b.p, count, ncclInt8, 0, comm, NULL));
    const bool good = holds(&b, 0, 1, rank ? "Recv" : "Send");
    drop(&b);
    return !good;
}

static int broadcast(ncclComm_t comm, int rank, int n)
{
    const size_t count = 4 * GIB + 5;
    buffer       b;

    if (!make_part(&b, 0, count, count, rank == 1 ? 1 : -1))
        return 1;
    OK(ncclBroadcast(b.p, b.p, count, ncclInt8, 1, comm, NULL));
    const bool good = holds(&b, 1, 1, "Broadcast");
    drop(&b);
    return !good;
}

/* Both the blocks and where they begin are beyond 2^32. */
static int gather(ncclComm_t comm, int rank, int n)
{
    const size_t each = 4 * GIB + 5, all = (size_t)n * each;
    buffer       in, out;

    zeros_always = true; /* 8 GiB of results */
    if (!make_part(&in, (size_t)rank * each, each, all, 1) || (rank == 0 && !make_part(&out, 0, all, all, -1)))
        return 1;
    OK(ncclGather(in.p, rank ? NULL : out.p, each, ncclInt8, 0, comm, NULL));
    const bool good = rank || holds(&out, 1, 1, "Gather");
    drop(&in);
    if (!rank)
        drop(&out);
    return !good;
}

/* My result: of every rank s its part for me; its windows there are mine, moved. */
static int all_to_all(ncclComm_t comm, int rank, int n)
{
    const size_t each = 2 * GIB + 11, all = (size_t)n * each, mine = (size_t)rank * each;
    buffer       in, out;
    window       w[8];
    int          nw = 0;

    zeros_always = true; /* 8 GiB of results */
    if (!make_part(&in, 0, all, all, rank))
        return 1;
    for (int s = 0; s < n; s++)
        for (int i = 0; i < in.nw; i++) {
            const size_t begin = in.w[i].begin > mine ? in.w[i].begin : mine;
            const size_t end = in.w[i].end < mine + each ? in.w[i].end : mine + each;
            if (begin < end)
                w[nw++] = (window){ begin - mine + (size_t)s * each, end - mine + (size_t)s * each };
        }
    if (!CHECK(make(&out, 0, all, w, nw, -1), "no memory: %s", strerror(errno)))
        return 1;
    OK(ncclAlltoAll(in.p, out.p, each, ncclInt8, comm, NULL));
    bool good = true;
    for (int i = 0; good && i < nw; i++)
        for (size_t k = w[i].begin; good && k < w[i].end; k++) {
            const int8_t want = value((int)(k / each), mine + k % each);
            good = CHECK(out.p[k] == want, "AlltoAll: byte %zu (%#zx) is %d, not %d", k, k, out.p[k], want);
        }
    out.nw = 0; /* what is outside the windows */
    good &= holds(&out, 0, 0, "AlltoAll");
    drop(&in);
    drop(&out);
    return !good;
}

static const struct row {
    const char *name;
    int       (*run)(ncclComm_t comm, int rank, int n);
    bool        kernel, staged; /* not only with RCCLX_TEST_LONG */
} rows[] = {
    { "AllReduce of 2^31+17 in place", all_reduce, true, false },
    { "AllGather of 2^30+3 a rank", all_gather, true, false },
    { "ReduceScatter of 2^31+9 a rank", reduce_scatter, true, false },
    { "Send and Recv of 2^32+5", send_and_recv, true, false },
    { "Gather of 2^32+5 a rank", gather, false, true },
    { "Broadcast of 2^32+5", broadcast, false, false },
    { "AlltoAll of 2^31+11 a pair", all_to_all, false, false },
};

static int rank_main(int rank, int n, void *arg)
{
    ncclComm_t comm = together(0, rank, n);

    if (!comm || ((const struct row *)arg)->run(comm, rank, n))
        return 1;
    OK(ncclCommDestroy(comm));
    return 0;
}

static void run_row(const struct row *row, const char *how)
{
    CASE("%s, %s", row->name, how) {
        together_prepare();
        CHECK(run_ranks_as_processes(2, rank_main, (void *)(uintptr_t)row) == 0, "ranks failed");
    }
}

TEST(a08_more_than_2_to_the_31_through_the_kernel)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].kernel || together_long())
            run_row(&rows[i], "process_vm_readv");
}

TEST(a08_more_than_2_to_the_31_through_scratch)
{
    static const char *const algos[] = { "ring", "tree", "doubling" };

    setenv("RCCLX_CMA", "0", 1);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].staged || together_long())
            run_row(&rows[i], "staged");
    for (size_t i = 0; together_long() && i < sizeof algos / sizeof algos[0]; i++) {
        setenv("RCCLX_ALGO", algos[i], 1);
        run_row(&rows[0], algos[i]);
    }
    unsetenv("RCCLX_ALGO");
    unsetenv("RCCLX_CMA");
}

/* Small pieces of a large block: more than an operation's counter has room for. The
 * operations after it must not take its last pieces for theirs. */
static int pieces_main(int rank, int n, void *arg)
{
    enum { SMALL = 20000, AFTER = 20 };
    static int32_t in[SMALL], out[SMALL];
    const size_t   each = 8 * GIB + 64 * 1024;
    ncclComm_t     comm = together(0, rank, n);
    buffer         b;

    (void)arg;
    zeros_always = true;
    if (!comm || !make_part(&b, 0, (size_t)n * each, (size_t)n * each, -1))
        return 1;
    OK(ncclGather(b.p, rank ? NULL : b.p, each, ncclInt8, 0, comm, NULL));
    for (int k = 0; k < AFTER; k++) {
        for (int i = 0; i < SMALL; i++)
            in[i] = rank + i + k;
        OK(ncclAllReduce(in, out, SMALL, ncclInt32, ncclSum, comm, NULL));
        for (int i = 0; i < SMALL; i++)
            if (!CHECK(out[i] == 1 + 2 * (i + k), "operation %d after the gather: element %d is %d", k, i, out[i]))
                return 1;
    }
    drop(&b);
    OK(ncclCommDestroy(comm));
    return 0;
}

TEST(a08_more_pieces_than_a_counter_holds)
{
    if (!together_long())
        SKIP("moves 16 GiB; set RCCLX_TEST_LONG");
    setenv("RCCLX_CMA", "0", 1);
    setenv("RCCLX_ALGO", "staged", 1);
    setenv("RCCLX_CHUNK_BYTES", "4K", 1);
    together_prepare();
    check_ranks r;
    check_ranks_start(&r, 2, pieces_main, NULL);
    check_ranks_wait(&r, 300);
    for (int i = 0; i < 2; i++)
        CHECK(r.status[i] == 0, "rank %d: %d", i, r.status[i]);
    unsetenv("RCCLX_CMA");
    unsetenv("RCCLX_ALGO");
    unsetenv("RCCLX_CHUNK_BYTES");
}

static int impossible(int rank, int n, void *arg)
{
    ncclComm_t comm = together(0, rank, n);
    char       b[16];

    (void)arg;
    if (!comm)
        return 1;
    const ncclResult_t results[] = {
        ncclAllReduce(b, b, SIZE_MAX, ncclInt8, ncclSum, comm, NULL),
        ncclAllReduce(b, b, SIZE_MAX / 4 + 2, ncclFloat, ncclSum, comm, NULL), /* times the width: 4 bytes */
        ncclReduceScatter(b, b, SIZE_MAX / 2 + 2, ncclInt8, ncclSum, comm, NULL), /* times the ranks: 2 bytes */
        ncclAllGather(b, b, SIZE_MAX / 2 + 2, ncclInt8, comm, NULL),
        ncclSend(b, SIZE_MAX / 8 + 2, ncclFloat64, 1, comm, NULL),
    };
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++)
        CHECK(results[i] == ncclInvalidArgument, "call %zu gave %d", i, (int)results[i]);
    OK(ncclCommDestroy(comm));
    return 0;
}

TEST(a08_counts_that_no_memory_holds)
{
    together_prepare();
    CHECK(run_ranks_as_processes(2, impossible, NULL) == 0, "ranks failed");
}

/* --- wraps ---------------------------------------------------------------- */

enum { ROUNDS = 64, LARGEST = 50000 };

static int32_t number(int rank, int round, size_t i)
{
    return (int32_t)((size_t)rank * 1000 + (size_t)round * 17 + i % 1000);
}

typedef struct {
    ncclComm_t comm;
    int        rank, n, round;
    size_t     count;
    int32_t   *in, *out;
} turn;

/* What out[i] must be when the operation is done; false: it is not looked at. */
typedef bool (*expectation)(const turn *t, size_t i, int32_t *want);

static bool want_sum(const turn *t, size_t i, int32_t *want)
{
    *want = 0;
    for (int r = 0; r < t->n; r++)
        *want += number(r, t->round, i);
    return true;
}

static bool want_sum_at_root(const turn *t, size_t i, int32_t *want)
{
    return want_sum(t, i, want) && t->rank == t->round % t->n;
}

static bool want_roots(const turn *t, size_t i, int32_t *want)
{
    *want = number(t->round % t->n, t->round, i);
    return true;
}

static bool want_all(const turn *t, size_t i, int32_t *want)
{
    *want = number((int)(i / t->count), t->round, i % t->count);
    return true;
}

static bool want_all_at_root(const turn *t, size_t i, int32_t *want)
{
    return want_all(t, i, want) && t->rank == t->round % t->n;
}

static bool want_part_sum(const turn *t, size_t i, int32_t *want)
{
    return want_sum(t, (size_t)t->rank * t->count + i, want);
}

static bool want_transposed(const turn *t, size_t i, int32_t *want)
{
    *want = number((int)(i / t->count), t->round, (size_t)t->rank * t->count + i % t->count);
    return true;
}

static bool want_part(const turn *t, size_t i, int32_t *want)
{
    *want = number(t->round % t->n, t->round, (size_t)t->rank * t->count + i);
    return true;
}

static bool want_left(const turn *t, size_t i, int32_t *want)
{
    *want = number((t->rank + t->n - 1) % t->n, t->round, i);
    return true;
}

enum { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, ALL_TO_ALLV, GATHER, SCATTER, PAIRS, NKINDS };

static const struct {
    bool        times_n; /* out has n * count */
    expectation want;
} kinds[NKINDS] = {
    [ALL_REDUCE] = { false, want_sum },          [REDUCE] = { false, want_sum_at_root },
    [BROADCAST] = { false, want_roots },         [ALL_GATHER] = { true, want_all },
    [REDUCE_SCATTER] = { false, want_part_sum }, [ALL_TO_ALL] = { true, want_transposed },
    [ALL_TO_ALLV] = { true, want_transposed },   [GATHER] = { true, want_all_at_root },
    [SCATTER] = { false, want_part },            [PAIRS] = { false, want_left },
};

static ncclResult_t call(const turn *t, int kind)
{
    const int    root = t->round % t->n;
    const size_t c = t->count, counts[3] = { c, c, c }, displs[3] = { 0, c, 2 * c };

    switch (kind) {
    case ALL_REDUCE: return ncclAllReduce(t->in, t->out, c, ncclInt32, ncclSum, t->comm, NULL);
    case REDUCE: return ncclReduce(t->in, t->out, c, ncclInt32, ncclSum, root, t->comm, NULL);
    case BROADCAST: return ncclBroadcast(t->in, t->out, c, ncclInt32, root, t->comm, NULL);
    case ALL_GATHER: return ncclAllGather(t->in, t->out, c, ncclInt32, t->comm, NULL);
    case REDUCE_SCATTER: return ncclReduceScatter(t->in, t->out, c, ncclInt32, ncclSum, t->comm, NULL);
    case ALL_TO_ALL: return ncclAlltoAll(t->in, t->out, c, ncclInt32, t->comm, NULL);
    case ALL_TO_ALLV: return ncclAlltoAllv(t->in, counts, displs, t->out, counts, displs, ncclInt32, t->comm, NULL);
    case GATHER: return ncclGather(t->in, t->out, c, ncclInt32, root, t->comm, NULL);
    case SCATTER: return ncclScatter(t->in, t->out, c, ncclInt32, root, t->comm, NULL);
    }
    ncclGroupStart();
    ncclSend(t->in, c, ncclInt32, (t->rank + 1) % t->n, t->comm, NULL);
    ncclRecv(t->out, c, ncclInt32, (t->rank + t->n - 1) % t->n, t->comm, NULL);
    return ncclGroupEnd();
}

static int wrap_main(int rank, int n, void *arg)
{
    static int32_t in[3 * LARGEST], out[3 * LARGEST];
    const size_t   counts[] = { 2, 700, LARGEST };
    turn           t = { .comm = together(0, rank, n), .rank = rank, .n = n, .in = in, .out = out };

    (void)arg;
    if (!t.comm)
        return 1;
    for (int kind = 0; kind < NKINDS; kind++)
        for (t.round = 0; t.round < ROUNDS; t.round++) {
            /* mostly small ones, so that the wrap meets every size */
            t.count = counts[t.round % 8 == 7 ? 2 : t.round % 2];
            const size_t nout = kinds[kind].times_n ? t.count * (size_t)n : t.count;
            for (size_t i = 0; i < t.count * (size_t)n; i++)
                in[i] = number(rank, t.round, i), out[i] = -1;
            OK(call(&t, kind));
            for (size_t i = 0; i < nout; i++) {
                int32_t want;
                if (kinds[kind].want(&t, i, &want) && !CHECK(out[i] == want, "kind %d, round %d, count %zu, rank %d: element %zu is %d, not %d",
                                                            kind, t.round, t.count, rank, i, out[i], want))
                    return 1;
            }
        }
    OK(ncclCommDestroy(t.comm));
    return 0;
}

/* The kinds come one after the other, so the start moves along: every kind wraps. */
TEST(a08_sequence_numbers_wrap)
{
    static const struct { const char *name; uint64_t at; } wraps[] = {
        { "2^31", UINT64_C(1) << 31 }, { "2^32", UINT64_C(1) << 32 }, { "2^63", UINT64_C(1) << 63 },
    };

    for (size_t i = 0; i < sizeof wraps / sizeof wraps[0]; i++)
        for (int kind = 0; kind < NKINDS; kind++)
            CASE("%s within kind %d", wraps[i].name, kind) {
                char text[32];
                /* messages of pairs have numbers of their own, which begin here too */
                const uint64_t before = kind == PAIRS ? 0 : (uint64_t)kind * ROUNDS;
                snprintf(text, sizeof text, "%llu", (unsigned long long)(wraps[i].at - 8 - before));
                setenv("RCCLX_SEQ_START", text, 1);
                setenv("RCCLX_CMA", kind & 1 ? "0" : "auto", 1);
                together_prepare();
                CHECK(run_ranks_as_processes(3, wrap_main, NULL) == 0, "ranks failed");
            }
    unsetenv("RCCLX_SEQ_START");
    unsetenv("RCCLX_CMA");
}
