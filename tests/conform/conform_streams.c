/* Host streams: one strong order a communicator over all its streams, progress of
 * several communicators side by side, and one thread that drives all ranks. */
#include "conform.h"

enum { ITEMS = 700, LINKS = 40, COMMS = 3 };

static void streams_open(cudaStream_t *s, int n)
{
    for (int i = 0; i < n; i++)
        OK_OR_TELL(rcclxStreamCreate(&s[i]));
}

static void streams_close(cudaStream_t *s, int n)
{
    for (int i = 0; i < n; i++) {
        OK_OR_TELL(rcclxStreamSynchronize(s[i]));
        OK_OR_TELL(rcclxStreamDestroy(s[i]));
    }
}

/* Each link of a chain reads what the one before wrote, on the other stream:
 * a (+rank) -> b -> a -> ... ; x links multiply by n each time. */
static void work_chain(conform_worker *w)
{
    cudaStream_t s[CONFORM_RANKS][2];
    uint64_t(*buf)[2][ITEMS] = calloc((size_t)w->nmine, sizeof *buf);
    uint64_t sum = 0, want;

    for (int i = 0; i < w->nmine; i++) {
        streams_open(s[i], 2);
        for (int k = 0; k < ITEMS; k++)
            buf[i][0][k] = (uint64_t)(w->rank[i] + k);
    }
    for (int link = 0; link < LINKS; link++)
        for (int i = 0; i < w->nmine; i++) /* no group: a stream lets the caller go on */
            OK_OR_TELL(ncclAllReduce(buf[i][link % 2], buf[i][(link + 1) % 2], ITEMS, ncclUint64, ncclSum, w->comm[i],
                                     s[i][link % 3 == 1]));
    for (int i = 0; i < w->nmine; i++)
        streams_close(s[i], 2);
    for (int k = 0; k < ITEMS; k++) {
        sum = 0;
        for (int r = 0; r < w->n; r++)
            sum += (uint64_t)(r + k);
        want = sum;
        for (int link = 1; link < LINKS; link++)
            want *= (uint64_t)w->n;
        for (int i = 0; i < w->nmine; i++)
            if (!CHECK(buf[i][LINKS % 2][k] == want, "rank %d [%d]: %llu instead of %llu", w->rank[i], k,
                       (unsigned long long)buf[i][LINKS % 2][k], (unsigned long long)want))
                k = ITEMS;
    }
    free(buf);
}

/* Communicator k on stream k. Ranks post the communicators' operations in orders of
 * their own; only streams that go on independently can finish this. */
static void work_several(conform_worker *w)
{
    ncclComm_t   c[COMMS][CONFORM_RANKS];
    cudaStream_t s[CONFORM_RANKS][COMMS];
    int32_t(*buf)[COMMS][LINKS][2] = calloc((size_t)w->nmine, sizeof *buf);

    for (int k = 0; k < COMMS; k++) {
        conform_open(w);
        for (int i = 0; i < w->nmine; i++)
            OK_OR_TELL(ncclCommSplit(w->comm[i], 0, w->rank[i], &c[k][i], NULL));
        conform_close(w);
    }
    for (int i = 0; i < w->nmine; i++)
        streams_open(s[i], COMMS);
    for (int i = 0; i < w->nmine; i++)
        for (int x = 0; x < COMMS; x++) {
            const int k = (x + w->rank[i]) % COMMS;
            for (int link = 0; link < LINKS; link++) {
                buf[i][k][link][0] = w->rank[i] + link * (k + 1);
                OK_OR_TELL(ncclAllReduce(&buf[i][k][link][0], &buf[i][k][link][1], 1, ncclInt32, ncclSum, c[k][i], s[i][k]));
            }
        }
    for (int i = 0; i < w->nmine; i++)
        streams_close(s[i], COMMS);
    for (int i = 0; i < w->nmine; i++)
        for (int k = 0; k < COMMS; k++)
            for (int link = 0; link < LINKS; link++) {
                const int want = w->n * (w->n - 1) / 2 + w->n * link * (k + 1);
                CHECK(buf[i][k][link][1] == want, "rank %d, communicator %d, operation %d: %d instead of %d", w->rank[i], k, link,
                      buf[i][k][link][1], want);
            }
    for (int k = 0; k < COMMS; k++)
        for (int i = 0; i < w->nmine; i++)
            OK_OR_TELL(ncclCommDestroy(c[k][i]));
    free(buf);
}

/* One group with two operations of a communicator on two streams, the second reading
 * what the first wrote: they keep the order in which they were called. */
static void work_group(conform_worker *w)
{
    cudaStream_t s[2];
    int32_t(*x)[3] = calloc((size_t)w->nmine, sizeof *x);

    streams_open(s, 2);
    for (int link = 0; link < LINKS; link++) {
        OK_OR_TELL(ncclGroupStart());
        for (int i = 0; i < w->nmine; i++) {
            x[i][0] = link;
            const cudaStream_t first = link % 4 == 1 ? NULL : s[(i + link) % 2], second = link % 3 ? s[(i + link + 1) % 2] : NULL;
            OK_OR_TELL(ncclAllReduce(&x[i][0], &x[i][1], 1, ncclInt32, ncclSum, w->comm[i], first));
            OK_OR_TELL(ncclAllReduce(&x[i][1], &x[i][2], 1, ncclInt32, ncclSum, w->comm[i], second));
        }
        OK_OR_TELL(ncclGroupEnd());
        OK_OR_TELL(rcclxStreamSynchronize(s[0]));
        OK_OR_TELL(rcclxStreamSynchronize(s[1]));
        for (int i = 0; i < w->nmine; i++)
            CHECK(x[i][2] == link * w->n * w->n, "rank %d, group %d: %d", w->rank[i], link, x[i][2]);
    }
    streams_close(s, 2);
    free(x);
}

/* Messages and collectives of one communicator, half of them with a stream, half of them without. */
static void work_both(conform_worker *w)
{
    cudaStream_t s[CONFORM_RANKS];
    int32_t(*buf)[LINKS][3] = calloc((size_t)w->nmine, sizeof *buf);
    const int next = (w->rank[0] + 1) % w->n, prev = (w->rank[0] + w->n - 1) % w->n;

    streams_open(s, w->nmine);
    for (int link = 0; link < LINKS; link++) {
        int32_t           *b = buf[0][link];
        const cudaStream_t on = link % 4 < 2 ? s[0] : NULL;
        b[0] = w->rank[0] * 100 + link;
        OK_OR_TELL(ncclGroupStart());
        OK_OR_TELL(ncclSend(&b[0], 1, ncclInt32, next, w->comm[0], on));
        OK_OR_TELL(ncclRecv(&b[1], 1, ncclInt32, prev, w->comm[0], on));
        OK_OR_TELL(ncclGroupEnd());
        OK_OR_TELL(ncclAllReduce(&b[1], &b[2], 1, ncclInt32, ncclMax, w->comm[0], link % 2 ? s[0] : NULL));
    }
    streams_close(s, w->nmine);
    for (int link = 0; link < LINKS; link++) {
        CHECK(buf[0][link][1] == prev * 100 + link, "rank %d, message %d: %d", w->rank[0], link, buf[0][link][1]);
        CHECK(buf[0][link][2] == (w->n - 1) * 100 + link, "rank %d, maximum %d: %d", w->rank[0], link, buf[0][link][2]);
    }
    free(buf);
}

static void run(const char *name, int n, int nprocs, int nthreads, void (*work)(conform_worker *w))
{
    conform_team t = { .n = n, .nprocs = nprocs, .nthreads = nthreads, .work = work };

    CASE("%s, %d ranks, %d processes, %d threads each", name, n, nprocs, nthreads) {
        CHECK(conform_run(&t) == 0, "ranks failed");
        conform_end(&t);
    }
}

TEST(two_streams_of_one_communicator_keep_order)
{
    run("chain", 1, 1, 1, work_chain);
    run("chain", 4, 4, 1, work_chain);
    run("chain", 3, 1, 3, work_chain);
    run("chain", 6, 2, 2, work_chain);
}

TEST(one_thread_drives_all_ranks_each_on_its_streams)
{
    run("chain", 8, 1, 1, work_chain);
}

TEST(several_communicators_on_streams_go_on_side_by_side)
{
    run("several", 3, 3, 1, work_several);
    run("several", 4, 1, 4, work_several);
    run("several", 5, 1, 1, work_several);
}

TEST(a_group_on_two_streams_keeps_order)
{
    run("group", 3, 3, 1, work_group);
    run("group", 4, 1, 4, work_group);
    run("group", 5, 1, 1, work_group);
}

TEST(with_and_without_stream_in_turn)
{
    run("both", 1, 1, 1, work_both);
    run("both", 3, 3, 1, work_both);
    run("both", 5, 1, 5, work_both);
}

/* ---- what a stream answers */

static void *late_half(void *comm)
{
    int32_t x = 2;

    usleep(100000);
    OK_OR_TELL(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, (ncclComm_t)comm, NULL));
    CHECK(x == 3, "%d", x);
    return NULL;
}

static int query_in_child(int rank, int n, void *arg)
{
    ncclComm_t   c[2];
    cudaStream_t s;
    pthread_t    t;
    int32_t      x = 1;

    (void)rank, (void)n, (void)arg;
    if (!OK_OR_TELL(ncclCommInitAll(c, 2, NULL)) || !OK_OR_TELL(rcclxStreamCreate(&s)))
        return 1;
    CHECK(rcclxStreamQuery(s) == ncclSuccess, "an empty stream");
    pthread_create(&t, NULL, late_half, c[1]);
    OK_OR_TELL(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, c[0], s));
    CHECK(rcclxStreamQuery(s) == ncclInProgress, "the other rank comes in 100 ms");
    OK_OR_TELL(rcclxStreamSynchronize(s));
    CHECK(rcclxStreamQuery(s) == ncclSuccess && x == 3, "%d", x);
    pthread_join(t, NULL);

    /* a difference between the ranks is told by the stream, once */
    OK_OR_TELL(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, c[0], s));
    ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, c[1], NULL);
    const ncclResult_t r = rcclxStreamSynchronize(s);
    CHECK(r != ncclSuccess && r != ncclInProgress, "%d", r);
    OK_OR_TELL(rcclxStreamSynchronize(s));
    OK_OR_TELL(rcclxStreamDestroy(s));
    OK_OR_TELL(ncclCommAbort(c[0]));
    OK_OR_TELL(ncclCommAbort(c[1]));
    return 0;
}

TEST(a_stream_says_when_it_is_done_and_what_failed)
{
    CHECK(run_ranks_as_processes(1, query_in_child, NULL) == 0, "failed");
}

/* ---- one operation of a stream, and deadlines */

static int position_in_child(int rank, int n, void *arg)
{
    ncclComm_t   c[2];
    cudaStream_t s;
    pthread_t    t;
    int32_t      x = 1, y = 1, z = 1;
    uint64_t     first = 9, second = 9;

    (void)rank, (void)n, (void)arg;
    if (!OK_OR_TELL(ncclCommInitAll(c, 2, NULL)) || !OK_OR_TELL(rcclxStreamCreate(&s)))
        return 1;
    OK_OR_TELL(rcclxStreamPosition(s, &first));
    CHECK(first == 0 && rcclxStreamWait(s, 0, 0) == ncclSuccess, "an empty stream is at %llu", (unsigned long long)first);
    CHECK(rcclxStreamWait(s, 1, 0) == ncclInvalidArgument && rcclxStreamWait(s, 0, (double)NAN) == ncclInvalidArgument, "refused");

    /* the first is done while the second waits for its other half */
    OK_OR_TELL(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, c[0], s));
    OK_OR_TELL(rcclxStreamPosition(s, &first));
    OK_OR_TELL(ncclAllReduce(&y, &y, 1, ncclInt32, ncclSum, c[0], s));
    OK_OR_TELL(rcclxStreamPosition(s, &second));
    CHECK(first == 1 && second == 2, "%llu and %llu", (unsigned long long)first, (unsigned long long)second);
    CHECK(rcclxStreamWait(s, first, 0) == ncclInProgress, "the other rank has not begun");
    CHECK(rcclxStreamWait(s, first, 0.01) == ncclInProgress, "nor is it there after 10 ms");
    pthread_create(&t, NULL, late_half, c[1]);
    OK_OR_TELL(rcclxStreamWait(s, first, -1));
    CHECK(x == 3 && rcclxStreamWait(s, second, 0) == ncclInProgress, "%d", x);
    pthread_join(t, NULL);

    /* the limit that is set now holds for what is waiting; the failure is that of the second, and stays */
    CHECK(rcclxCommSetTimeout(c[0], -1) == ncclInvalidArgument, "a negative limit");
    OK_OR_TELL(rcclxCommSetTimeout(c[0], 0.05));
    CHECK(rcclxStreamWait(s, second, 60) == ncclRemoteError, "nobody answers");
    CHECK(strstr(ncclGetLastError(NULL), "waits since") && strstr(ncclGetLastError(NULL), "0.05 s"), "%s", ncclGetLastError(NULL));
    CHECK(rcclxStreamSynchronize(s) == ncclRemoteError && rcclxStreamSynchronize(s) == ncclSuccess, "told once");
    CHECK(rcclxStreamWait(s, first, 0) == ncclSuccess && rcclxStreamWait(s, second, 0) == ncclRemoteError, "each its own");
    CHECK(ncclAllReduce(&z, &z, 1, ncclInt32, ncclSum, c[0], NULL) == ncclRemoteError, "the communicator is broken");
    OK_OR_TELL(rcclxStreamDestroy(s));
    OK_OR_TELL(ncclCommAbort(c[0]));
    OK_OR_TELL(ncclCommAbort(c[1]));
    return 0;
}

TEST(one_operation_of_a_stream_is_waited_for_with_a_deadline)
{
    CHECK(run_ranks_as_processes(1, position_in_child, NULL) == 0, "failed");
}
