/* A26: several communicators, several threads.
 *
 * Elsewhere two or three communicators at once hang, launch order becomes random
 * between threads, and a communicator shared by threads gives wrong data. Here
 * communicators in different threads make progress independently, in any relative
 * order on different ranks, and threads that share one are served one by one. */
#include "check.h"
#include "together.h"

TIME_LIMIT(300)

enum { COMMS = 4, MOST = 3000 };

static int rounds(void)
{
    return together_long() ? 10000 : 1000;
}

static void nap(uint64_t *seed, unsigned most_us)
{
    const uint64_t r = together_random(seed);

    if (r % 8 == 0)
        usleep((unsigned)(r >> 8) % most_us);
}

static int32_t value(int rank, int which, int round, size_t i)
{
    return (int32_t)(rank * 100000 + which * 7000 + round * 3 + (int)(i % 50));
}

typedef struct {
    int          rank, n, which;
    size_t       count; /* of hammer */
    ncclComm_t   comm;
    cudaStream_t stream;
    int          failed;
    pthread_t    thread;
    atomic_int  *stop;
} worker;

/* One round on one communicator: kinds and sizes alternate, every element is looked at. */
static int one_round(const worker *w, int round, int32_t *in, int32_t *out)
{
    static const size_t counts[] = { 1, 50, 400, 2000, MOST };
    const int           rank = w->rank, n = w->n;
    const size_t        count = counts[(round * 7 + w->which) % 5];

    for (size_t i = 0; i < count; i++)
        in[i] = value(rank, w->which, round, i), out[i] = -1;
    if (round % 3 == 2) {
        const int root = round % n;
        OK(ncclBroadcast(in, out, count, ncclInt32, root, w->comm, w->stream));
        OK(rcclxStreamSynchronize(w->stream));
        for (size_t i = 0; i < count; i++)
            if (!CHECK(out[i] == value(root, w->which, round, i), "communicator %d, round %d: element %zu of %zu", w->which, round, i, count))
                return 1;
        return 0;
    }
    OK(ncclAllReduce(in, out, count, ncclInt32, ncclSum, w->comm, w->stream));
    OK(rcclxStreamSynchronize(w->stream));
    for (size_t i = 0; i < count; i++) {
        int32_t want = 0;
        for (int r = 0; r < n; r++)
            want += value(r, w->which, round, i);
        if (!CHECK(out[i] == want, "communicator %d, round %d: element %zu of %zu is %d, not %d", w->which, round, i, count, out[i], want))
            return 1;
    }
    return 0;
}

static void *work(void *arg)
{
    worker  *w = arg;
    int32_t *in = malloc(MOST * sizeof *in), *out = malloc(MOST * sizeof *out);
    uint64_t seed = (uint64_t)w->rank * 77 + (uint64_t)w->which;

    for (int round = 0; !w->failed && round < rounds(); round++) {
        nap(&seed, 400);
        w->failed = one_round(w, round, in, out);
    }
    free(in);
    free(out);
    return NULL;
}

static bool start(pthread_t *t, void *(*fn)(void *), void *arg)
{
    const int e = pthread_create(t, NULL, fn, arg);

    return CHECK(e == 0, "thread: %s", strerror(e));
}

static int four_and_four(int rank, int n, void *arg)
{
    worker    w[COMMS];
    const int streams = *(int *)arg;
    int       failed = 0;

    for (int i = 0; i < COMMS; i++) {
        w[i] = (worker){ .rank = rank, .n = n, .which = i, .comm = together(i, rank, n) };
        if (!w[i].comm)
            return 1;
        if (streams)
            OK(rcclxStreamCreate(&w[i].stream));
    }
    for (int i = 0; i < COMMS; i++)
        if (!start(&w[i].thread, work, &w[i]))
            return 1;
    for (int i = 0; i < COMMS; i++) {
        pthread_join(w[i].thread, NULL);
        failed |= w[i].failed;
        if (streams)
            OK(rcclxStreamDestroy(w[i].stream));
        OK(ncclCommDestroy(w[i].comm));
    }
    return failed;
}

TEST(a26_four_communicators_in_four_threads)
{
    for (int n = 2; n <= 4; n += 2)
        for (int streams = 0; streams < 2; streams++)
            CASE("%d ranks, %s", n, streams ? "streams" : "no streams") {
                together_prepare();
                CHECK(run_ranks_as_processes(n, four_and_four, &streams) == 0, "ranks failed");
            }
}

/* The same in one process: ranks are threads, each with four threads of its own. */
static int as_threads(int rank, int n, void *arg)
{
    (void)rank;
    (void)n;
    return run_ranks_as_threads(2, four_and_four, arg) != 0;
}

TEST(a26_ranks_as_threads)
{
    int streams = 0;

    together_prepare();
    CHECK(run_ranks_as_processes(1, as_threads, &streams) == 0, "ranks failed");
}

/* Rank 0 queues on X first, rank 1 on Y: only queues of their own let both go on. */
static int opposite(int rank, int n, void *arg)
{
    enum { COUNT = 20000 };
    static int32_t in[2][COUNT], out[2][COUNT];
    ncclComm_t     comm[2] = { together(0, rank, n), together(1, rank, n) };
    cudaStream_t   stream[2];
    uint64_t       seed = (uint64_t)rank + 5;

    (void)arg;
    if (!comm[0] || !comm[1])
        return 1;
    for (int k = 0; k < 2; k++)
        OK(rcclxStreamCreate(&stream[k]));
    for (int round = 0; round < rounds(); round++) {
        const size_t count = round % 2 ? COUNT : 10;
        for (int k = 0; k < 2; k++)
            for (size_t i = 0; i < count; i++)
                in[k][i] = value(rank, k, round, i), out[k][i] = -1;
        for (int j = 0; j < 2; j++) {
            const int k = (j + rank) % 2;
            OK(ncclAllReduce(in[k], out[k], count, ncclInt32, ncclSum, comm[k], stream[k]));
            nap(&seed, 300);
        }
        for (int j = 0; j < 2; j++)
            OK(rcclxStreamSynchronize(stream[(j + 1 + rank) % 2]));
        for (int k = 0; k < 2; k++)
            for (size_t i = 0; i < count; i++)
                if (!CHECK(out[k][i] == value(0, k, round, i) + value(1, k, round, i), "round %d, communicator %d, element %zu", round, k, i))
                    return 1;
    }
    for (int k = 0; k < 2; k++) {
        OK(rcclxStreamDestroy(stream[k]));
        OK(ncclCommDestroy(comm[k]));
    }
    return 0;
}

TEST(a26_two_communicators_in_opposite_order_on_two_streams)
{
    together_prepare();
    CHECK(run_ranks_as_processes(2, opposite, NULL) == 0, "ranks failed");
}

/* Two threads on one communicator. Which thread of one rank meets which of the
 * other is open, but a result is one of either, whole. */
static void *hammer(void *arg)
{
    worker *w = arg;
    int32_t in[MOST], out[MOST];

    for (int round = 0; !w->failed && round < rounds(); round++) {
        /* the sizes must agree whoever meets whom: a communicator's calls all have one */
        const size_t count = w->count;
        const int    mine = (w->rank ? 10 : 1) * (w->which + 1);
        for (size_t i = 0; i < count; i++)
            in[i] = mine, out[i] = -1;
        const ncclResult_t r = ncclAllReduce(in, out, count, ncclInt32, ncclSum, w->comm, w->stream);
        if (r == ncclInvalidUsage)
            continue;
        w->failed |= !CHECK(r == ncclSuccess, "rank %d, thread %d: %s", w->rank, w->which, ncclGetLastError(NULL));
        for (size_t i = 0; i < count && !w->failed; i++) {
            const int  other = out[i] - mine;
            const bool fits = w->n == 1 ? other == 0 : w->rank ? other == 1 || other == 2 : other == 10 || other == 20;
            w->failed |= !CHECK(fits && out[i] == out[0], "rank %d, thread %d, round %d: element %zu is %d", w->rank, w->which, round, i, out[i]);
        }
    }
    return NULL;
}

static int shared_by_threads(int rank, int n, void *arg)
{
    worker w[2];

    w[0] = w[1] = (worker){ .rank = rank, .n = n, .count = *(size_t *)arg, .comm = together(0, rank, n) };
    if (!w[0].comm)
        return 1;
    w[1].which = 1;
    for (int i = 0; i < 2; i++)
        if (!start(&w[i].thread, hammer, &w[i]))
            return 1;
    for (int i = 0; i < 2; i++)
        pthread_join(w[i].thread, NULL);
    OK(ncclCommDestroy(w[0].comm));
    return w[0].failed | w[1].failed;
}

TEST(a26_two_threads_hammer_one_communicator)
{
    for (int n = 1; n <= 2; n++)
        for (size_t count = 1; count <= MOST; count = count * 50 + 1)
            CASE("%zu elements, ranks: %d", count, n) {
                together_prepare();
                CHECK(run_ranks_as_processes(n, shared_by_threads, &count) == 0, "ranks failed");
            }
}

/* Messages of two threads of a rank, each pair in its own group: numbers keep their order. */
static void *exchange(void *arg)
{
    worker *w = arg;
    int32_t in[2000], out[2000];

    for (int round = 0; !w->failed && round < rounds(); round++) {
        for (int i = 0; i < 2000; i++)
            in[i] = w->rank * 4 + w->which, out[i] = -1;
        ncclGroupStart();
        ncclSend(in, 2000, ncclInt32, w->n - 1 - w->rank, w->comm, w->stream);
        ncclRecv(out, 2000, ncclInt32, w->n - 1 - w->rank, w->comm, w->stream);
        const ncclResult_t r = ncclGroupEnd();
        w->failed |= !CHECK(r == ncclSuccess, "rank %d: %s", w->rank, ncclGetLastError(NULL));
        for (int i = 0; i < 2000 && !w->failed; i++)
            w->failed |= !CHECK(out[i] == out[0] && out[i] / 4 == w->n - 1 - w->rank, "element %d is %d", i, out[i]);
    }
    return NULL;
}

static int messages_by_threads(int rank, int n, void *arg)
{
    worker w[2];

    (void)arg;
    w[0] = w[1] = (worker){ .rank = rank, .n = n, .comm = together(0, rank, n) };
    if (!w[0].comm)
        return 1;
    w[1].which = 1;
    for (int i = 0; i < 2; i++)
        if (!start(&w[i].thread, exchange, &w[i]))
            return 1;
    for (int i = 0; i < 2; i++)
        pthread_join(w[i].thread, NULL);
    OK(ncclCommDestroy(w[0].comm));
    return w[0].failed | w[1].failed;
}

TEST(a26_two_threads_send_on_one_communicator)
{
    for (int n = 1; n <= 2; n++)
        CASE("ranks: %d", n) {
            together_prepare();
            CHECK(run_ranks_as_processes(n, messages_by_threads, NULL) == 0, "ranks failed");
        }
}

/* --- life beside work ------------------------------------------------------- */

static void *busy(void *arg)
{
    worker *w = arg;
    int32_t in[MOST], out[MOST];

    /* rank 0 says in its data when the work ends, so that both stop after the same round */
    for (int round = 0, last = 0; !w->failed && !last; round++) {
        const int stop = w->rank == 0 && atomic_load(w->stop);
        for (size_t i = 0; i < MOST; i++)
            in[i] = value(w->rank, 0, round, i);
        in[0] = stop;
        w->failed |= !CHECK(ncclAllReduce(in, out, MOST, ncclInt32, ncclSum, w->comm, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
        for (size_t i = 1; i < MOST && !w->failed; i++)
            w->failed |= !CHECK(out[i] == value(0, 0, round, i) + value(1, 0, round, i), "busy round %d, element %zu", round, i);
        last = out[0];
    }
    return NULL;
}

static int lives(int rank, int n)
{
    for (int i = 1; i < (together_long() ? TOGETHER_MEETINGS : 25); i++) {
        ncclComm_t c = together(i, rank, n);
        int32_t    one = rank, all = -1;
        if (!c)
            return 1;
        OK(ncclAllReduce(&one, &all, 1, ncclInt32, ncclMax, c, NULL));
        CHECK(all == n - 1, "communicator %d: %d", i, all);
        OK(ncclCommDestroy(c));
    }
    return 0;
}

static int registrations(ncclComm_t comm, int rank, int n)
{
    enum { BYTES = 1 << 20 };
    void *plain = malloc(BYTES), *shared, *handle[2];

    for (int i = 0; i < rounds(); i++) {
        OK(ncclMemAlloc(&shared, BYTES));
        OK(ncclCommRegister(comm, plain, BYTES, &handle[0]));
        OK(ncclCommRegister(comm, shared, BYTES, &handle[1]));
        OK(ncclCommDeregister(comm, handle[0]));
        OK(ncclCommDeregister(comm, handle[1]));
        OK(ncclMemFree(shared));
    }
    free(plain);
    return 0;
}

static int beside_work(int rank, int n, void *arg)
{
    atomic_int stop = 0;
    worker     w = { .rank = rank, .n = n, .comm = together(0, rank, n), .stop = &stop };
    const int  what = *(int *)arg;

    if (!w.comm || !start(&w.thread, busy, &w))
        return 1;
    const int bad = what ? registrations(w.comm, rank, n) : lives(rank, n);
    atomic_store(&stop, 1);
    pthread_join(w.thread, NULL);
    OK(ncclCommDestroy(w.comm));
    return bad | w.failed;
}

TEST(a26_communicators_come_and_go_and_buffers_are_registered_beside_work)
{
    for (int what = 0; what < 2; what++)
        CASE("%s", what ? "registrations" : "communicators") {
            together_prepare();
            CHECK(run_ranks_as_processes(2, beside_work, &what) == 0, "ranks failed");
        }
}
