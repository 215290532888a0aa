/* A27: back-to-back and replayed operations: stale flags, missing barriers, live
 * queues at teardown.
 *
 * Elsewhere a start without ordering gave torn reads, a missing end let a peer's
 * buffer be reused too early, and replays passed waits at once. Here every
 * operation is a full one, and a buffer may be rewritten as soon as its operation
 * is complete. The same two buffers serve all rounds; what is in them changes each
 * time; ranks are late at random, and a neighbour keeps the cores busy. */
#include "check.h"
#include "together.h"

TIME_LIMIT(3000)

enum { MOST = 100000 };

typedef struct {
    int  rounds;
    bool plain;    /* memory of malloc */
    bool in_place;
    bool neighbour;
} options;

static float value(int rank, int round, size_t i)
{
    return (float)((rank + 1) * (round % 1021 + 1) + (int)(i & 1023));
}

static float total(int n, int round, size_t i)
{
    return (float)(n * (n + 1) / 2 * (round % 1021 + 1) + n * (int)(i & 1023));
}

/* Small ones mostly; sizes alternate, so that algorithms alternate. */
static size_t count_of(int round)
{
    static const size_t counts[] = { 1, 8, 16, 100, 1, 2000, 3, 4096, 128, 1, 20000, 7, 128, 64, 9, 129 };

    return round % 257 == 256 ? MOST : counts[round % 16];
}

static int wrong(const float *out, size_t count, int rank, int n, int round)
{
    for (size_t i = 0; i < count; i++)
        if (!CHECK(out[i] == total(n, round, i), "round %d of %zu elements, rank %d of %d: element %zu is %g, not %g", round, count, rank, n,
                   i, (double)out[i], (double)total(n, round, i)))
            return 1;
    return 0;
}

static int rank_main(int rank, int n, void *arg)
{
    const options *o = arg;
    float         *in, *out;
    uint64_t       seed = (uint64_t)rank * 31 + 1;
    ncclComm_t     comm = together(0, rank, n);

    if (!comm)
        return 1;
    if (o->plain) {
        in = malloc(MOST * sizeof *in);
        out = o->in_place ? in : malloc(MOST * sizeof *out);
    } else {
        OK(ncclMemAlloc((void **)&in, MOST * sizeof *in));
        out = in;
        if (!o->in_place)
            OK(ncclMemAlloc((void **)&out, MOST * sizeof *out));
    }
    for (int round = 0; round < o->rounds; round++) {
        const size_t count = count_of(round);
        for (size_t i = 0; i < count; i++)
            in[i] = value(rank, round, i);
        if (together_random(&seed) % 100 == 0)
            usleep((unsigned)(seed >> 20) % 300);
        OK(ncclAllReduce(in, out, count, ncclFloat, ncclSum, comm, NULL));
        if (wrong(out, count, rank, n, round))
            return 1;
        /* it is complete: what is in the buffers is mine to spoil */
        if (round % 5 == 0)
            memset(in, 0x7f, count * sizeof *in);
    }
    OK(ncclCommDestroy(comm));
    for (int i = 0; i < (o->in_place ? 1 : 2); i++) {
        float *p = i ? out : in;
        if (o->plain)
            free(p);
        else
            OK(ncclMemFree(p));
    }
    return 0;
}

static pid_t start_neighbour(void)
{
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (volatile unsigned long i = 0;; i++)
            ;
    }
    return pid;
}

static void run(int n, check_rank_fn fn, options o)
{
    const pid_t busy = o.neighbour ? start_neighbour() : 0;
    check_ranks r;

    together_prepare();
    check_ranks_start(&r, n, fn, &o);
    check_ranks_wait(&r, together_long() ? 2400 : 100);
    for (int i = 0; i < n; i++)
        CHECK(r.status[i] == 0, "rank %d of %d: %d", i, n, r.status[i]);
    if (busy > 0) {
        kill(busy, SIGKILL);
        waitpid(busy, NULL, 0);
    }
}

TEST(a27_many_in_a_row_on_the_same_two_buffers)
{
    static const int ranks[] = { 2, 3, 4, 8 }, rounds[] = { 20000, 5000, 3000, 1500 };

    for (size_t k = 0; k < sizeof ranks / sizeof ranks[0]; k++)
        CASE("%d ranks", ranks[k])
            run(ranks[k], rank_main, (options){ .rounds = together_long() && k == 0 ? 1000000 : rounds[k], .plain = k & 1 });
}

TEST(a27_the_same_in_place_beside_a_busy_neighbour)
{
    for (int n = 2; n <= 4; n++)
        CASE("%d ranks", n)
            run(n, rank_main, (options){ .rounds = together_long() ? 50000 : 1500, .plain = n & 1, .in_place = true, .neighbour = true });
    setenv("RCCLX_CMA", "0", 1);
    CASE("3 ranks without process_vm_readv")
        run(3, rank_main, (options){ .rounds = 1500, .plain = true, .in_place = true, .neighbour = true });
    unsetenv("RCCLX_CMA");
}

/* Scratch that is cut small is used again many times within one operation. */
TEST(a27_many_pieces_whatever_runs)
{
    static const char *const algos[] = { "staged", "ring", "tree", "doubling" };

    setenv("RCCLX_CHUNK_BYTES", "8K", 1);
    for (size_t i = 0; i < sizeof algos / sizeof algos[0]; i++) {
        setenv("RCCLX_ALGO", algos[i], 1);
        for (int n = 2; n <= 4; n++)
            CASE("%s, %d ranks", algos[i], n)
                run(n, rank_main, (options){ .rounds = together_long() ? 50000 : 1100, .plain = true, .in_place = n == 3, .neighbour = n == 4 });
    }
    unsetenv("RCCLX_ALGO");
    unsetenv("RCCLX_CHUNK_BYTES");
}

/* Rooted operations prove less to the others than an all-reduce does: slots and
 * scratch must still not be reused too early. In a hundred small ones in a row a
 * root runs ahead of the others, or they of it, as far as it is let. */
static size_t one_way_count(int round)
{
    static const size_t counts[] = { 1, 9, 2000, 16, 129, 1, 700, 3 };

    return round / 200 % 4 == 3 ? count_of(round) : counts[round % 8];
}

static int one_way(int rank, int n, void *arg)
{
    const options *o = arg;
    static float   in[MOST], out[MOST];
    uint64_t       seed = (uint64_t)rank + 3;
    ncclComm_t     comm = together(0, rank, n);

    if (!comm)
        return 1;
    for (int round = 0; round < o->rounds; round++) {
        const size_t count = one_way_count(round);
        const int    root = round / 200 % n;
        for (size_t i = 0; i < count; i++)
            in[i] = value(rank, round, i);
        const bool away = round / 100 & 1; /* from the root */
        if ((rank != root) == away && together_random(&seed) % 20 == 0)
            usleep((unsigned)(seed >> 20) % 200);
        if (away) {
            OK(ncclBroadcast(in, out, count, ncclFloat, root, comm, NULL));
            for (size_t i = 0; i < count; i++)
                if (!CHECK(out[i] == value(root, round, i), "broadcast %d, element %zu of %zu", round, i, count))
                    return 1;
        } else {
            OK(ncclReduce(in, out, count, ncclFloat, ncclSum, root, comm, NULL));
            if (rank == root && wrong(out, count, rank, n, round))
                return 1;
        }
        memset(in, 0x7f, count * sizeof *in);
    }
    OK(ncclCommDestroy(comm));
    return 0;
}

TEST(a27_broadcasts_and_reduces_whose_root_runs_ahead)
{
    for (int n = 2; n <= 5; n++)
        CASE("%d ranks", n)
            run(n, one_way, (options){ .rounds = together_long() ? 100000 : 4000 });
}

/* Messages: the buffer that was sent is the sender's again, and the one received is read at once. */
static int messages(int rank, int n, void *arg)
{
    const options *o = arg;
    static float   in[MOST], out[MOST];
    uint64_t       seed = (uint64_t)rank + 11;
    const int      next = (rank + 1) % n, prev = (rank + n - 1) % n;
    ncclComm_t     comm = together(0, rank, n);

    if (!comm)
        return 1;
    for (int round = 0; round < o->rounds; round++) {
        const size_t count = count_of(round);
        for (size_t i = 0; i < count; i++)
            in[i] = value(rank, round, i);
        if (together_random(&seed) % 50 == 0)
            usleep((unsigned)(seed >> 20) % 300);
        if (round % 3) {
            OK(ncclGroupStart());
            OK(ncclSend(in, count, ncclFloat, next, comm, NULL));
            OK(ncclRecv(out, count, ncclFloat, prev, comm, NULL));
            OK(ncclGroupEnd());
        } else if (rank) { /* one after the other */
            OK(ncclRecv(out, count, ncclFloat, prev, comm, NULL));
            OK(ncclSend(in, count, ncclFloat, next, comm, NULL));
        } else {
            OK(ncclSend(in, count, ncclFloat, next, comm, NULL));
            memset(in, 0x7f, count * sizeof *in);
            OK(ncclRecv(out, count, ncclFloat, prev, comm, NULL));
        }
        memset(in, 0x7f, count * sizeof *in);
        for (size_t i = 0; i < count; i++)
            if (!CHECK(out[i] == value(prev, round, i), "message %d of %zu, rank %d of %d: element %zu is %g", round, count, rank, n, i, (double)out[i]))
                return 1;
    }
    OK(ncclCommDestroy(comm));
    return 0;
}

TEST(a27_messages_on_the_same_two_buffers)
{
    for (int n = 2; n <= 4; n++)
        CASE("%d ranks", n)
            run(n, messages, (options){ .rounds = together_long() ? 100000 : 3000 });
    setenv("RCCLX_CMA", "0", 1);
    CASE("3 ranks without process_vm_readv")
        run(3, messages, (options){ .rounds = together_long() ? 100000 : 3000 });
    unsetenv("RCCLX_CMA");
}

/* A recorded batch, given to a queue again and again with new inputs, mixed with
 * calls that are done at once and with a second queue. */
static int replayed(int rank, int n, void *arg)
{
    enum { BATCH = 50, COUNT = 300 };
    static float   in[BATCH][COUNT], out[BATCH][COUNT], eager[16], eager_out[16];
    static const int batches[] = { 1, 3, BATCH };
    const options *o = arg;
    cudaStream_t   stream[2];
    ncclComm_t     comm = together(0, rank, n), other = together(1, rank, n);

    if (!comm || !other)
        return 1;
    for (int k = 0; k < 2; k++)
        OK(rcclxStreamCreate(&stream[k]));
    for (int round = 0; round < o->rounds; round++) {
        const int nops = batches[round % 3];
        for (int b = 0; b < nops; b++)
            for (size_t i = 0; i < COUNT; i++)
                in[b][i] = value(rank, round + b, i), out[b][i] = -1;
        if (round % 2)
            OK(ncclGroupStart());
        for (int b = 0; b < nops; b++)
            OK(ncclAllReduce(in[b], out[b], b % 2 ? COUNT : 20, ncclFloat, ncclSum, b % 3 == 2 ? other : comm, stream[b % 3 == 2]));
        if (round % 2)
            OK(ncclGroupEnd());
        if (round % 7 == 0) { /* behind what is queued on the same communicator */
            for (int i = 0; i < 16; i++)
                eager[i] = value(rank, round, (size_t)i);
            OK(ncclAllReduce(eager, eager_out, 16, ncclFloat, ncclSum, comm, NULL));
            if (wrong(eager_out, 16, rank, n, round) || wrong(out[0], 20, rank, n, round))
                return 1;
        }
        for (int k = 0; k < 2; k++)
            OK(rcclxStreamSynchronize(stream[k]));
        for (int b = 0; b < nops; b++)
            if (wrong(out[b], b % 2 ? COUNT : 20, rank, n, round + b))
                return 1;
    }
    for (int k = 0; k < 2; k++)
        OK(rcclxStreamDestroy(stream[k]));
    OK(ncclCommDestroy(other));
    OK(ncclCommDestroy(comm));
    return 0;
}

TEST(a27_batches_replayed_on_queues)
{
    for (int n = 2; n <= 4; n++)
        CASE("%d ranks", n)
            run(n, replayed, (options){ .rounds = together_long() ? 10000 : n == 2 ? 1000 : 200 });
}

/* One communicator on two queues: its operations keep the order of the calls, though
 * each queue has a worker of its own. */
static int two_queues(int rank, int n, void *arg)
{
    enum { OPS = 40, COUNT = 700 };
    static float   in[OPS][COUNT], out[OPS][COUNT];
    const options *o = arg;
    cudaStream_t   stream[2];
    ncclComm_t     comm = together(0, rank, n);

    if (!comm)
        return 1;
    for (int k = 0; k < 2; k++)
        OK(rcclxStreamCreate(&stream[k]));
    for (int round = 0; round < o->rounds; round++) {
        for (int b = 0; b < OPS; b++) {
            /* every call its own count, so that ranks that mix them up notice */
            const size_t count = (size_t)(b * 17 + 1);
            for (size_t i = 0; i < count; i++)
                in[b][i] = value(rank, round + b, i), out[b][i] = -1;
            OK(ncclAllReduce(in[b], out[b], count, ncclFloat, ncclSum, comm, stream[(b ^ b >> 2) & 1]));
        }
        for (int k = 0; k < 2; k++)
            OK(rcclxStreamSynchronize(stream[k]));
        for (int b = 0; b < OPS; b++)
            if (wrong(out[b], (size_t)(b * 17 + 1), rank, n, round + b))
                return 1;
    }
    for (int k = 0; k < 2; k++)
        OK(rcclxStreamDestroy(stream[k]));
    OK(ncclCommDestroy(comm));
    return 0;
}

TEST(a27_one_communicator_on_two_queues)
{
    for (int n = 1; n <= 3; n++)
        CASE("%d ranks", n)
            run(n, two_queues, (options){ .rounds = together_long() ? 5000 : 200 });
}

/* Whoever has what it came for may leave at once; it is not lost to the others, who
 * may have been asleep when it left. */
static int leave_at_once(int rank, int n, void *arg)
{
    static float in[2000], out[2000];

    (void)arg;
    for (int round = 0; round < TOGETHER_MEETINGS; round++) {
        const size_t count = round % 8 < 4 ? 2000 : 5;
        const int    late = round % 4 < 2 ? rank % 2 : rank == round % n;
        ncclComm_t   comm = together(round, rank, n);
        if (!comm)
            return 1;
        for (size_t i = 0; i < count; i++)
            in[i] = value(rank, round, i), out[i] = -1;
        if (late)
            usleep(12000);
        if (round % 4 < 2) { /* even ranks send, odd ones come late, take it and leave */
            if (rank % 2)
                OK(ncclRecv(out, count, ncclFloat, rank - 1, comm, NULL));
            else if (rank + 1 < n)
                OK(ncclSend(in, count, ncclFloat, rank + 1, comm, NULL));
        } else {
            OK(ncclAllReduce(in, out, count, ncclFloat, ncclSum, comm, NULL));
        }
        OK(ncclCommDestroy(comm));
        for (size_t i = 0; round % 4 < 2 && rank % 2 && i < count; i++)
            if (!CHECK(out[i] == value(rank - 1, round, i), "round %d, element %zu", round, i))
                return 1;
        if (round % 4 >= 2 && wrong(out, count, rank, n, round))
            return 1;
    }
    return 0;
}

TEST(a27_the_last_operation_and_away)
{
    for (int n = 2; n <= 8; n += 3)
        CASE("%d ranks", n)
            run(n, leave_at_once, (options){ 0 });
}

/* Destroy while the queue is full, the queue afterwards, and the other way round. */
static int teardown(int rank, int n, void *arg)
{
    enum { OPS = 64, COUNT = 5000 };
    static float in[OPS][COUNT], out[OPS][COUNT];

    (void)arg;
    for (int round = 0; round < 12; round++) {
        ncclComm_t   comm = together(round, rank, n);
        cudaStream_t stream;
        if (!comm)
            return 1;
        OK(rcclxStreamCreate(&stream));
        for (int k = 0; k < OPS; k++) {
            for (size_t i = 0; i < COUNT; i++)
                in[k][i] = value(rank, round + k, i), out[k][i] = -1;
            OK(ncclAllReduce(in[k], out[k], COUNT, ncclFloat, ncclSum, comm, stream));
        }
        if (rank == round % n)
            usleep(20000);
        const double began = check_now();
        if (round % 3 == 0) {
            OK(ncclCommDestroy(comm));
            OK(rcclxStreamDestroy(stream));
        } else if (round % 3 == 1) {
            OK(rcclxStreamDestroy(stream));
            OK(ncclCommDestroy(comm));
        } else {
            OK(ncclCommFinalize(comm));
            OK(ncclCommDestroy(comm));
            OK(rcclxStreamSynchronize(stream));
            OK(rcclxStreamDestroy(stream));
        }
        CHECK(check_now() - began < 20 * check_scale(), "teardown took %.1f s", check_now() - began);
        for (int k = 0; k < OPS; k++)
            if (wrong(out[k], COUNT, rank, n, round + k))
                return 1;
    }
    return 0;
}

TEST(a27_destroy_with_a_full_queue)
{
    for (int n = 2; n <= 4; n++)
        CASE("%d ranks", n)
            run(n, teardown, (options){ 0 });
}

/* Abort with a full queue whose peer never comes: bounded, and the queue says so. */
static int abandoned(int rank, int n, void *arg)
{
    static float in[1000], out[1000];
    ncclComm_t   comm = together(0, rank, n);
    cudaStream_t stream;

    (void)arg;
    if (!comm)
        return 1;
    OK(rcclxStreamCreate(&stream));
    if (rank == 0) {
        for (int k = 0; k < 10; k++)
            OK(ncclAllReduce(in, out, 1000, ncclFloat, ncclSum, comm, stream));
        usleep(50000);
        const double began = check_now();
        OK(ncclCommAbort(comm));
        CHECK(rcclxStreamSynchronize(stream) != ncclSuccess, "the queue says that all went well");
        CHECK(check_now() - began < 5 * check_scale(), "abort took %.1f s", check_now() - began);
        together_wait(n);
    } else {
        together_wait(n);
        OK(ncclCommAbort(comm));
    }
    OK(rcclxStreamDestroy(stream));
    return 0;
}

TEST(a27_abort_with_a_full_queue)
{
    run(2, abandoned, (options){ 0 });
}
