/* Communicators by every way to one: without blocking, by splitting in all
 * variants, finalized; and what hangs on one communicator alone: premultipliers,
 * a bias, sequence numbers that pass 2^32. */
#include "conform.h"

/* The sum of the ranks shows that a communicator has the members it should. */
static bool adds_up(const conform_worker *w, const ncclComm_t *c, const int *want, const char *what)
{
    int32_t in[CONFORM_RANKS], out[CONFORM_RANKS];
    bool    good = true;

    conform_open(w);
    for (int i = 0; i < w->nmine; i++) {
        in[i] = 1 << w->rank[i];
        if (c[i])
            good &= OK_OR_TELL(ncclAllReduce(&in[i], &out[i], 1, ncclInt32, ncclSum, c[i], NULL));
    }
    good &= conform_close(w);
    for (int i = 0; i < w->nmine; i++)
        if (c[i])
            good &= CHECK(out[i] == want[i], "%s: rank %d: members %#x instead of %#x", what, w->rank[i], (unsigned)out[i],
                          (unsigned)want[i]);
    return good;
}

static void destroy(const conform_worker *w, ncclComm_t *c)
{
    for (int i = 0; i < w->nmine; i++)
        if (c[i])
            OK_OR_TELL(ncclCommDestroy(c[i]));
}

/* ---- split */

enum { EVEN_ODD, REVERSED, SAME_KEY, ONE_LEFT_OUT, EACH_ALONE, EXTREME_KEYS, SPLITS };

static void wish(int variant, int rank, int n, int *color, int *key)
{
    *color = variant == EVEN_ODD ? rank % 2 : variant == EACH_ALONE ? 1000 - rank : INT_MAX;
    *key = variant == REVERSED ? -rank : variant == SAME_KEY ? 7 : variant == EXTREME_KEYS ? (rank % 2 ? INT_MIN : INT_MAX) : rank;
    if (variant == ONE_LEFT_OUT && rank == n / 2)
        *color = NCCL_SPLIT_NOCOLOR;
}

/* Who is with `rank`, how many they are, and its place among them. */
static int members(int variant, int rank, int n, int *count, int *place)
{
    int color, key, mine, my_key, mask = 0;

    *count = *place = 0;
    wish(variant, rank, n, &mine, &my_key);
    for (int r = 0; r < n && mine != NCCL_SPLIT_NOCOLOR; r++) {
        wish(variant, r, n, &color, &key);
        if (color != mine)
            continue;
        mask |= 1 << r;
        ++*count;
        *place += key < my_key || (key == my_key && r < rank);
    }
    return mask;
}

static void split_all(const conform_worker *w, const ncclComm_t *from, int variant, ncclComm_t *into)
{
    conform_open(w);
    for (int i = 0; i < w->nmine; i++) {
        int color, key;
        wish(variant, w->rank[i], w->n, &color, &key);
        into[i] = (ncclComm_t)(void *)into; /* must be overwritten, NULL without a color */
        OK_OR_TELL(ncclCommSplit(from[i], color, key, &into[i], NULL));
    }
    conform_close(w);
}

static void work_split(conform_worker *w)
{
    for (int variant = 0; variant < SPLITS; variant++) {
        ncclComm_t c[CONFORM_RANKS], again[CONFORM_RANKS];
        int        want[CONFORM_RANKS];
        char       what[32];

        snprintf(what, sizeof what, "split %d", variant);
        split_all(w, w->comm, variant, c);
        for (int i = 0; i < w->nmine; i++) {
            int count, place, got;
            want[i] = members(variant, w->rank[i], w->n, &count, &place);
            CHECK((c[i] == NULL) == (want[i] == 0), "%s: rank %d: %p", what, w->rank[i], (void *)c[i]);
            if (!c[i])
                continue;
            CHECK(ncclCommCount(c[i], &got) == ncclSuccess && got == count, "%s: rank %d: %d of %d members", what, w->rank[i], got, count);
            CHECK(ncclCommUserRank(c[i], &got) == ncclSuccess && got == place, "%s: rank %d: at %d instead of %d", what, w->rank[i], got, place);
        }
        adds_up(w, c, want, what);
        /* a copy of the child is as good, also when the child has gone before it */
        bool all = true;
        for (int i = 0; i < w->nmine; i++)
            all &= c[i] != NULL;
        if (all && variant != ONE_LEFT_OUT) {
            conform_open(w);
            for (int i = 0; i < w->nmine; i++)
                OK_OR_TELL(ncclCommSplit(c[i], 5, 0, &again[i], NULL));
            conform_close(w);
            destroy(w, c);
            adds_up(w, again, want, "split of a split");
            destroy(w, again);
        } else {
            destroy(w, c);
        }
    }
    int want[CONFORM_RANKS];
    for (int i = 0; i < w->nmine; i++)
        want[i] = (1 << w->n) - 1;
    adds_up(w, w->comm, want, "the parent, afterwards");
}

/* ---- finalize */

static void work_finalize(conform_worker *w)
{
    cudaStream_t s;
    int32_t      x[CONFORM_RANKS];

    OK_OR_TELL(rcclxStreamCreate(&s));
    conform_open(w);
    for (int i = 0; i < w->nmine; i++) {
        x[i] = 1;
        OK_OR_TELL(ncclAllReduce(&x[i], &x[i], 1, ncclInt32, ncclSum, w->comm[i], s));
    }
    conform_close(w);
    for (int i = 0; i < w->nmine; i++) {
        ncclResult_t async;
        OK_OR_TELL(ncclCommFinalize(w->comm[i]));
        CHECK(x[i] == w->n, "rank %d: finalize came back before its operation was done: %d", w->rank[i], x[i]);
        CHECK(ncclCommGetAsyncError(w->comm[i], &async) == ncclSuccess && async == ncclSuccess, "%d", async);
        CHECK(ncclAllReduce(&x[i], &x[i], 1, ncclInt32, ncclSum, w->comm[i], NULL) == ncclInvalidUsage, "rank %d: after finalize", w->rank[i]);
    }
    OK_OR_TELL(rcclxStreamDestroy(s));
}

/* ---- premultipliers and a bias */

static void work_premul(conform_worker *w)
{
    enum { N = 1000, OPS = 3 };
    ncclRedOp_t op[CONFORM_RANKS][OPS];
    float(*x)[OPS][N] = calloc((size_t)w->nmine, sizeof *x);

    for (int i = 0; i < w->nmine; i++)
        for (int k = 0; k < OPS; k++) {
            float f = (float)(w->rank[i] + 1) * (float)(k + 1);
            OK_OR_TELL(ncclRedOpCreatePreMulSum(&op[i][k], &f, ncclFloat32, k % 2 ? ncclScalarDevice : ncclScalarHostImmediate, w->comm[i]));
            f = -1e30f; /* it was read when the operator was made */
            for (int e = 0; e < N; e++)
                x[i][k][e] = (float)(e % 16);
        }
    for (int k = 0; k < OPS; k++) {
        conform_open(w);
        for (int i = 0; i < w->nmine; i++)
            OK_OR_TELL(ncclAllReduce(x[i][k], x[i][k], k == 1 ? N : 3, ncclFloat32, op[i][k], w->comm[i], NULL));
        conform_close(w);
    }
    for (int i = 0; i < w->nmine; i++)
        for (int k = 0; k < OPS; k++) {
            const float f = (float)(w->n * (w->n + 1) / 2) * (float)(k + 1);
            for (int e = 0; e < (k == 1 ? N : 3); e++)
                if (!CHECK(x[i][k][e] == f * (float)(e % 16), "rank %d op %d [%d]: %g", w->rank[i], k, e, (double)x[i][k][e]))
                    break;
            OK_OR_TELL(ncclRedOpDestroy(op[i][k], w->comm[i]));
        }
    free(x);
}

static void work_bias(conform_worker *w)
{
    enum { N = 5000 };
    static const size_t counts[] = { 0, 1, 13, N };
    int32_t(*x)[3][N] = calloc((size_t)w->nmine, sizeof *x); /* in, out, bias: another on every rank */

    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (int i = 0; i < w->nmine; i++)
            for (int e = 0; e < N; e++)
                x[i][0][e] = e + w->rank[i], x[i][1][e] = -1, x[i][2][e] = 1000 * w->rank[i] + e % 7;
        conform_open(w);
        for (int i = 0; i < w->nmine; i++)
            OK_OR_TELL(ncclAllReduceWithBias(x[i][0], x[i][1], counts[c], ncclInt32, ncclSum, w->comm[i], NULL, x[i][2]));
        conform_close(w);
        for (int i = 0; i < w->nmine; i++)
            for (int e = 0; e < N; e++) {
                const int want = e < (int)counts[c] ? w->n * e + w->n * (w->n - 1) / 2 + 1000 * w->rank[i] + e % 7 : -1;
                if (!CHECK(x[i][1][e] == want, "rank %d, count %zu [%d]: %d instead of %d", w->rank[i], counts[c], e, x[i][1][e], want))
                    break;
            }
    }
    free(x);
}

/* ---- numbers that pass 2^31, 2^32, 2^63 */

static void work_wrap(conform_worker *w)
{
    enum { N = 3000, OPS = 40 };
    static const size_t counts[] = { 1, 100, N };
    int32_t(*x)[2][N] = calloc((size_t)w->nmine, sizeof *x);

    for (int k = 0; k < OPS; k++) {
        const size_t count = counts[k % 3];
        const int    next = (w->rank[0] + 1) % w->n, prev = (w->rank[0] + w->n - 1) % w->n;
        for (int i = 0; i < w->nmine; i++)
            for (int e = 0; e < N; e++)
                x[i][0][e] = w->rank[i] * 7 + e + k;
        OK_OR_TELL(ncclGroupStart());
        for (int i = 0; i < w->nmine; i++) {
            if (k % 4 == 3 && w->nmine == 1) {
                OK_OR_TELL(ncclSend(x[i][0], count, ncclInt32, next, w->comm[i], NULL));
                OK_OR_TELL(ncclRecv(x[i][1], count, ncclInt32, prev, w->comm[i], NULL));
            } else if (k % 4 == 2) {
                OK_OR_TELL(ncclBroadcast(x[i][0], x[i][1], count, ncclInt32, k % w->n, w->comm[i], NULL));
            } else {
                OK_OR_TELL(ncclAllReduce(x[i][0], x[i][1], count, ncclInt32, ncclMax, w->comm[i], NULL));
            }
        }
        OK_OR_TELL(ncclGroupEnd());
        for (int i = 0; i < w->nmine; i++) {
            const int from = k % 4 == 3 && w->nmine == 1 ? prev : k % 4 == 2 ? k % w->n : w->n - 1;
            for (size_t e = 0; e < count; e++)
                if (!CHECK(x[i][1][e] == from * 7 + (int)e + k, "operation %d, rank %d [%zu]: %d", k, w->rank[i], e, x[i][1][e]))
                    break;
        }
    }
    free(x);
}

static void run_on(int nnodes, const char *name, int n, int nprocs, int nthreads, void (*work)(conform_worker *w), const char *env,
                   const char *more)
{
    conform_team t = { .n = n, .nprocs = nprocs, .nthreads = nthreads, .nnodes = nnodes, .work = work };

    snprintf(t.env[0], sizeof t.env[0], "%s", *env ? env : "RCCLX_CMA=auto");
    snprintf(t.env[1], sizeof t.env[1], "%s", more);
    CASE("%s, %d ranks, %d processes, %d threads each, %d machines %s %s", name, n, nprocs, nthreads, nnodes, env, more) {
        CHECK(conform_run(&t) == 0, "ranks failed");
        conform_end(&t);
    }
}

static void run(const char *name, int n, int nprocs, int nthreads, void (*work)(conform_worker *w), const char *env, const char *more)
{
    run_on(1, name, n, nprocs, nthreads, work, env, more);
}

static void everywhere(const char *name, void (*work)(conform_worker *w))
{
    run(name, 1, 1, 1, work, "", "");
    run(name, 4, 4, 1, work, "", "");
    run(name, 5, 1, 5, work, "", "");
    run(name, 8, 1, 1, work, "", "");
    run(name, 7, 2, 2, work, "", "");
    run_on(2, name, 5, 5, 1, work, "", "");
    run_on(3, name, 6, 3, 2, work, "", "");
}

TEST(splitting)
{
    everywhere("split", work_split);
}

TEST(finalizing)
{
    everywhere("finalize", work_finalize);
}

TEST(a_premultiplier_a_rank)
{
    everywhere("premultiplied", work_premul);
}

TEST(a_bias_a_rank)
{
    everywhere("bias", work_bias);
}

TEST(sequence_numbers_that_wrap)
{
    static const char *const starts[] = { "2147483640", "4294967285", "8589934580", "9223372036854775790" };

    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        char env[48];
        snprintf(env, sizeof env, "RCCLX_SEQ_START=%s", starts[i]);
        run("wrap", 3, 3, 1, work_wrap, env, "");
        run("wrap", 4, 1, 4, work_wrap, env, "RCCLX_ALGO=staged");
        run("wrap", 5, 1, 1, work_wrap, env, "RCCLX_ALGO=ring");
        run("wrap", 3, 3, 1, work_wrap, env, "RCCLX_ALGO=tree");
        run_on(2, "wrap", 3, 3, 1, work_wrap, env, "");
    }
}

/* ---- without blocking */

static ncclResult_t settle(ncclComm_t c)
{
    ncclResult_t r = ncclInProgress;

    if (!WAIT_FOR(ncclCommGetAsyncError(c, &r) == ncclSuccess && r != ncclInProgress, 20))
        CHECK(false, "still in progress after 20 s: %s", ncclGetLastError(NULL));
    return r;
}

static bool in_progress_or_done(ncclResult_t r)
{
    return CHECK(r == ncclSuccess || r == ncclInProgress, "%d: %s", r, ncclGetLastError(NULL));
}

typedef struct {
    ncclUniqueId id;
    atomic_int   have_id;
} meeting;

static int rank_without_blocking(int rank, int n, void *arg)
{
    meeting     *m = arg;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t   c = NULL, child = (ncclComm_t)(void *)m, wrong;
    int          x = 1 << rank, count = 0;

    config.blocking = 0;
    if (rank == 0) {
        OK_OR_TELL(ncclGetUniqueId(&m->id));
        atomic_store(&m->have_id, 1);
    }
    if (!WAIT_FOR(atomic_load(&m->have_id), 20))
        return 1;
    if (rank == n - 1)
        usleep(100000); /* the others must say in progress meanwhile */
    const double before = check_now();
    in_progress_or_done(ncclCommInitRankConfig(&c, n, m->id, rank, &config));
    CHECK(check_now() - before < 5 * check_scale() && c, "rank %d: init took %.1f s", rank, check_now() - before);
    if (rank == 0 && n > 1)
        CHECK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, c, NULL) == ncclInvalidUsage, "an operation before init is over");
    if (!CHECK(settle(c) == ncclSuccess, "init: %s", ncclGetLastError(c)))
        return 1;
    OK_OR_TELL(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, c, NULL));
    CHECK(x == (1 << n) - 1, "rank %d: %#x", rank, (unsigned)x);

    /* the child's handle is there as soon as the parent reports success */
    in_progress_or_done(ncclCommSplit(c, rank % 2, -rank, &child, NULL));
    if (!CHECK(settle(c) == ncclSuccess, "split: %s", ncclGetLastError(c)) ||
        !CHECK(child && child != (ncclComm_t)(void *)m, "rank %d: no child: %p", rank, (void *)child) ||
        !CHECK(settle(child) == ncclSuccess, "child: %s", ncclGetLastError(child)))
        return 1;
    x = 1;
    OK_OR_TELL(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, child, NULL));
    OK_OR_TELL(ncclCommCount(child, &count));
    CHECK(x == count && count == (n + 1 - rank % 2) / 2, "rank %d: %d of %d", rank, x, count);

    wrong = child;
    in_progress_or_done(ncclCommSplit(c, rank ? NCCL_SPLIT_NOCOLOR : 3, 0, &wrong, NULL));
    CHECK(settle(c) == ncclSuccess, "split: %s", ncclGetLastError(c));
    CHECK((wrong == NULL) == (rank != 0), "rank %d: %p", rank, (void *)wrong);
    if (wrong) {
        CHECK(settle(wrong) == ncclSuccess, "alone: %s", ncclGetLastError(wrong));
        OK_OR_TELL(ncclCommDestroy(wrong));
    }
    in_progress_or_done(ncclCommFinalize(child));
    settle(child);
    OK_OR_TELL(ncclCommDestroy(child));
    in_progress_or_done(ncclCommFinalize(c));
    settle(c);
    OK_OR_TELL(ncclCommDestroy(c));
    return 0;
}

static int threads_without_blocking(int rank, int n, void *arg)
{
    (void)rank, (void)n;
    return run_ranks_as_threads(4, rank_without_blocking, arg) != 0;
}

TEST(without_blocking)
{
    for (int n = 1; n <= 5; n += 2) {
        meeting *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CASE("%d processes", n)
            CHECK(run_ranks_as_processes(n, rank_without_blocking, m) == 0, "ranks failed");
        munmap(m, sizeof *m);
    }
    meeting *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CASE("4 threads")
        CHECK(run_ranks_as_processes(1, threads_without_blocking, m) == 0, "ranks failed");
    munmap(m, sizeof *m);
}
