/* A06: count 0 succeeds in every call, reads and writes nothing, takes NULL, and
 * keeps the ranks in step: what comes next is right. */
#include "check.h"

#include "world.h"

TIME_LIMIT(120)

enum { N = 4, EMPTY = 2, LARGE = 200000 };

static bool good(ncclResult_t r, const char *call, int rank)
{
    return CHECK(r == ncclSuccess, "rank %d: %s: %d, %s", rank, call, (int)r, ncclGetLastError(NULL));
}
#define GOOD(call) good(call, #call, rank)

/* Every collective with nothing in it; buffers are whatever the caller says. */
static void all_kinds(ncclComm_t c, int rank, int n, void *in, void *out, cudaStream_t s)
{
    static const size_t zeros[N] = { 0 };
    const int           root = n - 1;

    GOOD(ncclAllReduce(in, out, 0, ncclFloat, ncclSum, c, s));
    GOOD(ncclAllReduce(in, out, 0, ncclFloat16, ncclAvg, c, s));
    GOOD(ncclReduce(in, out, 0, ncclFloat, ncclMax, root, c, s));
    GOOD(ncclBroadcast(in, out, 0, ncclInt8, root, c, s));
    GOOD(ncclBcast(out, 0, ncclFloat, root, c, s));
    GOOD(ncclAllGather(in, out, 0, ncclFloat, c, s));
    GOOD(ncclReduceScatter(in, out, 0, ncclFloat, ncclSum, c, s));
    GOOD(ncclAlltoAll(in, out, 0, ncclFloat, c, s));
    GOOD(ncclAlltoAllv(in, zeros, zeros, out, zeros, zeros, ncclFloat, c, s));
    GOOD(ncclGather(in, out, 0, ncclFloat, root, c, s));
    GOOD(ncclScatter(in, out, 0, ncclFloat, root, c, s));
    GOOD(ncclAllReduceWithBias(in, out, 0, ncclFloat, ncclSum, c, s, NULL));
}

/* A ring of empty messages, with oneself in it when alone; always in a group. */
static void empty_messages(ncclComm_t c, int rank, int n, void *in, void *out, cudaStream_t s)
{
    GOOD(ncclGroupStart());
    GOOD(ncclSend(in, 0, ncclFloat, (rank + 1) % n, c, s));
    GOOD(ncclRecv(out, 0, ncclFloat, (rank + n - 1) % n, c, s));
    GOOD(ncclSend(in, 0, ncclFloat, rank, c, s));
    GOOD(ncclRecv(out, 0, ncclFloat, rank, c, s));
    GOOD(ncclGroupEnd());
}

static void right_after(ncclComm_t c, int rank, int n)
{
    static _Thread_local float in[LARGE], out[LARGE];

    CHECK(world_reduce(c, rank, n, 3, in, out, 5) == ncclSuccess, "rank %d: %s", rank, ncclGetLastError(NULL));
    CHECK(world_reduce(c, rank, n, 4, in, out, LARGE) == ncclSuccess, "rank %d: %s", rank, ncclGetLastError(NULL));
}

/* A page that may be neither read nor written: whoever touches it dies. */
static void *forbidden(void)
{
    void *p = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

static int nothing_main(int rank, int n, void *arg)
{
    world       *w = arg;
    ncclComm_t   c = world_comm(w, 0, rank, n);
    void        *no = forbidden();
    cudaStream_t s = NULL;

    if (!c || !no)
        return 1;
    all_kinds(c, rank, n, NULL, NULL, NULL);
    empty_messages(c, rank, n, NULL, NULL, NULL);
    right_after(c, rank, n);
    all_kinds(c, rank, n, no, no, NULL);
    empty_messages(c, rank, n, no, no, NULL);
    right_after(c, rank, n);
    GOOD(rcclxStreamCreate(&s));
    all_kinds(c, rank, n, no, NULL, s);
    empty_messages(c, rank, n, NULL, no, s);
    GOOD(rcclxStreamSynchronize(s));
    GOOD(rcclxStreamDestroy(s));
    right_after(c, rank, n);
    /* many in a row, more than fit the ring of headers, with ranks far apart */
    usleep(rank * 20000);
    for (int i = 0; i < 300; i++)
        if (!GOOD(ncclBroadcast(no, no, 0, ncclFloat, i % n, c, NULL)) || !GOOD(ncclAlltoAll(no, no, 0, ncclFloat, c, NULL)))
            break;
    right_after(c, rank, n);
    /* all in one group */
    GOOD(ncclGroupStart());
    all_kinds(c, rank, n, NULL, no, NULL);
    GOOD(ncclSend(NULL, 0, ncclFloat, (rank + 1) % n, c, NULL));
    GOOD(ncclRecv(NULL, 0, ncclFloat, (rank + n - 1) % n, c, NULL));
    GOOD(ncclGroupEnd());
    right_after(c, rank, n);
    GOOD(ncclCommDestroy(c));
    return 0;
}

TEST(every_call_alone)
{
    world *w = world_open();
    CHECK(run_ranks_as_processes(1, nothing_main, w) == 0, "failed");
    world_close(w);
}

TEST(every_call_on_four_processes)
{
    world *w = world_open();
    CHECK(run_ranks_as_processes(N, nothing_main, w) == 0, "ranks failed");
    world_close(w);
}

/* ---- matrices of messages with empty rows, columns and cells */

typedef size_t (*matrix)(int from, int to);

static size_t row_and_column(int from, int to)
{
    return from == EMPTY || to == EMPTY ? 0 : 100u + 10u * (unsigned)from + (unsigned)to;
}

static size_t some_pairs(int from, int to)
{
    return (from + 2 * to) % 3 ? 0 : 5000u + 10u * (unsigned)from + (unsigned)to;
}

static size_t small_and_large(int from, int to)
{
    return from == to ? 0 : (from + to) % 2 ? LARGE - (unsigned)from : 0;
}

static size_t nothing_at_all(int from, int to)
{
    (void)from;
    (void)to;
    return 0;
}

static float content(int from, int to, size_t i)
{
    return (float)(1000 * from + 100 * to + (int)(i % 97));
}

static void send_all(ncclComm_t c, int rank, int n, matrix m, float *in[N], float *out[N])
{
    for (int r = 0; r < n; r++) {
        const size_t to = m(rank, r), from = m(r, rank);
        in[r] = to ? guarded_new(to * sizeof(float), false) : NULL;
        out[r] = from ? guarded_new(from * sizeof(float), false) : NULL;
        for (size_t i = 0; i < to; i++)
            in[r][i] = content(rank, r, i);
    }
    GOOD(ncclGroupStart());
    for (int r = 0; r < n; r++)
        GOOD(ncclSend(in[r], m(rank, r), ncclFloat, r, c, NULL));
    for (int r = 0; r < n; r++)
        GOOD(ncclRecv(out[r], m(r, rank), ncclFloat, r, c, NULL));
    GOOD(ncclGroupEnd());
}

static void check_all(int rank, int n, matrix m, float *in[N], float *out[N])
{
    for (int r = 0; r < n; r++) {
        for (size_t i = 0; i < m(r, rank); i++)
            if (!CHECK(out[r][i] == content(r, rank, i), "rank %d from %d, element %zu: %g", rank, r, i, (double)out[r][i]))
                break;
        if (out[r] && guarded_intact(out[r]))
            guarded_free(out[r]);
        if (in[r])
            guarded_free(in[r]);
    }
}

/* The same matrix by AlltoAllv, from one buffer to one buffer. */
static void all_to_allv(ncclComm_t c, int rank, int n, matrix m)
{
    size_t sc[N], sd[N], rc[N], rd[N], out_total = 0, in_total = 0;

    for (int r = 0; r < n; r++) {
        sc[r] = m(rank, r);
        sd[r] = in_total;
        in_total += sc[r];
        rc[r] = m(r, rank);
        rd[r] = out_total;
        out_total += rc[r];
    }
    float *in = in_total ? guarded_new(in_total * sizeof(float), false) : NULL;
    float *out = out_total ? guarded_new(out_total * sizeof(float), false) : NULL;
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < sc[r]; i++)
            in[sd[r] + i] = content(rank, r, i);
    GOOD(ncclAlltoAllv(in, sc, sd, out, rc, rd, ncclFloat, c, NULL));
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < rc[r]; i++)
            if (!CHECK(out[rd[r] + i] == content(r, rank, i), "rank %d from %d, element %zu: %g", rank, r, i, (double)out[rd[r] + i]))
                break;
    if (in)
        guarded_free(in);
    if (out && guarded_intact(out))
        guarded_free(out);
}

static int matrix_main(int rank, int n, void *arg)
{
    static const matrix matrices[] = { row_and_column, some_pairs, small_and_large, nothing_at_all };
    world              *w = arg;
    ncclComm_t          c = world_comm(w, 0, rank, n);

    for (int i = 0; c && i < 12; i++) {
        float *in[N], *out[N];
        send_all(c, rank, n, matrices[i % 4], in, out);
        check_all(rank, n, matrices[i % 4], in, out);
        all_to_allv(c, rank, n, matrices[i % 4]);
        right_after(c, rank, n);
    }
    GOOD(ncclCommDestroy(c));
    return !c;
}

TEST(matrices_with_empty_rows_columns_and_cells)
{
    for (int cma = 1; cma >= 0; cma--)
        CASE("matrices, RCCLX_CMA=%d", cma) {
            world *w = world_open();
            setenv("RCCLX_CMA", cma ? "auto" : "0", 1);
            CHECK(run_ranks_as_processes(N, matrix_main, w) == 0, "ranks failed");
            unsetenv("RCCLX_CMA");
            world_close(w);
        }
}

/* ---- empty and large operations in one group */

static int mixed_main(int rank, int n, void *arg)
{
    world       *w = arg;
    ncclComm_t   c = world_comm(w, 0, rank, n);
    static float in[LARGE], sum[LARGE], got[LARGE], small[8];
    const int    next = (rank + 1) % n, before = (rank + n - 1) % n;

    for (int round = 0; c && round < 20; round++) {
        for (size_t i = 0; i < LARGE; i++)
            in[i] = world_value(rank, round) + (float)(i & 15);
        memset(got, 0, sizeof got);
        GOOD(ncclGroupStart());
        GOOD(ncclAllReduce(NULL, NULL, 0, ncclFloat, ncclSum, c, NULL));
        GOOD(ncclSend(NULL, 0, ncclFloat, next, c, NULL));
        GOOD(ncclAllReduce(in, sum, LARGE, ncclFloat, ncclSum, c, NULL));
        GOOD(ncclSend(in, LARGE, ncclFloat, next, c, NULL));
        GOOD(ncclRecv(NULL, 0, ncclFloat, before, c, NULL));
        GOOD(ncclBroadcast(NULL, NULL, 0, ncclFloat, 1, c, NULL));
        GOOD(ncclRecv(got, LARGE, ncclFloat, before, c, NULL));
        GOOD(ncclAllGather(in, small, 2, ncclFloat, c, NULL));
        GOOD(ncclGroupEnd());
        for (size_t i = 0; i < LARGE; i++)
            if (!CHECK(sum[i] == world_sum(n, round) + (float)(n * (int)(i & 15)) &&
                       got[i] == world_value(before, round) + (float)(i & 15), "rank %d, round %d, element %zu", rank, round, i))
                break;
        CHECK(small[2 * n - 2] == world_value(n - 1, round), "rank %d, round %d: %g", rank, round, (double)small[2 * n - 2]);
    }
    GOOD(ncclCommDestroy(c));
    return !c;
}

TEST(empty_and_large_in_one_group)
{
    world *w = world_open();
    CHECK(run_ranks_as_processes(N, mixed_main, w) == 0, "ranks failed");
    world_close(w);
}

/* ---- threads; last, since ranks forked later would inherit what they leave */

TEST(every_call_on_four_threads)
{
    world *w = world_open();
    CHECK(run_ranks_as_threads(N, nothing_main, w) == 0, "ranks failed");
    world_close(w);
}
