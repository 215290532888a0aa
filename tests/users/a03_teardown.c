/* A03: abort is local, bounded, and asks nothing of the order in which
 * communicators are aborted; destroy after a peer has vanished is bounded; a
 * handle that is no longer alive is recognised.
 *
 * Four processes, communicators X and Y over all of them. Rank 2 vanishes, or
 * lives and never comes; the others have an operation pending on both. */
#include "check.h"

#include "world.h"

TIME_LIMIT(180)

enum { N = 4, ABSENT = 2 };

#define SOON 1.5 /* the rule is a second; the rest is for a busy machine */

typedef enum { TWO_STREAMS, ONE_STREAM, ONE_GROUP, TWO_THREADS, NHOW } how; /* how the operations are pending */
typedef enum { X_THEN_Y, Y_THEN_X, GROUPED, DESTROY, NORDER } order;

static const char *const how_names[] = { "two streams", "one stream", "one group in a thread", "two threads" };
static const char *const order_names[] = { "abort X, Y", "abort Y, X", "aborts in a group", "destroy X, Y" };

typedef struct {
    world *w;
    how    how;
    order  order;
    bool   lives; /* rank 2 stays, but never comes */
} plan;

typedef struct {
    ncclComm_t   c[2];
    cudaStream_t stream[2];
    pthread_t    thread[2];
    int          nthreads;
    atomic_int   entered;
    float        in[2], out[2];
} pending;

static void *run_group(void *arg)
{
    pending *p = arg;

    ncclGroupStart();
    for (int i = 0; i < 2; i++)
        ncclAllReduce(&p->in[i], &p->out[i], 1, ncclFloat, ncclSum, p->c[i], NULL);
    atomic_fetch_add(&p->entered, 1);
    const ncclResult_t r = ncclGroupEnd();
    CHECK(r != ncclSuccess, "a group with a rank that never came is a success");
    return NULL;
}

static void *run_one(void *arg)
{
    pending  *p = arg;
    const int i = atomic_fetch_add(&p->entered, 1);

    CHECK(ncclAllReduce(&p->in[i], &p->out[i], 1, ncclFloat, ncclSum, p->c[i], NULL) != ncclSuccess,
          "an all-reduce with a rank that never came is a success");
    return NULL;
}

static void begin(pending *p, how h)
{
    if (h == ONE_GROUP || h == TWO_THREADS) {
        p->nthreads = h == ONE_GROUP ? 1 : 2;
        for (int i = 0; i < p->nthreads; i++)
            pthread_create(&p->thread[i], NULL, h == ONE_GROUP ? run_group : run_one, p);
        CHECK(WAIT_FOR(atomic_load(&p->entered) == p->nthreads, 10), "threads do not start");
        usleep(20000); /* into the calls */
        return;
    }
    for (int i = 0; i < 2; i++)
        if (i == 0 || h == TWO_STREAMS)
            CHECK(rcclxStreamCreate(&p->stream[i]) == ncclSuccess, "%s", ncclGetLastError(NULL));
        else
            p->stream[1] = p->stream[0];
    for (int i = 0; i < 2; i++)
        CHECK(ncclAllReduce(&p->in[i], &p->out[i], 1, ncclFloat, ncclSum, p->c[i], p->stream[i]) == ncclSuccess, "%s",
              ncclGetLastError(NULL));
}

static void end(pending *p, how h)
{
    for (int i = 0; i < p->nthreads; i++) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 10;
        if (!CHECK(pthread_timedjoin_np(p->thread[i], NULL, &until) == 0, "a call never returned"))
            _exit(3);
    }
    for (int i = 0; i < 2 && p->stream[i]; i++) {
        if (i == 0 || h == TWO_STREAMS)
            CHECK(IN_TIME(SOON, rcclxStreamDestroy(p->stream[i])) != ncclSuccess, "the stream's operation is a success");
    }
}

static void take_down(const plan *p, ncclComm_t x, ncclComm_t y)
{
    switch (p->order) {
    case X_THEN_Y:
    case Y_THEN_X:
        CHECK(IN_TIME(SOON, ncclCommAbort(p->order == X_THEN_Y ? x : y)) == ncclSuccess, "%s", ncclGetLastError(NULL));
        CHECK(IN_TIME(SOON, ncclCommAbort(p->order == X_THEN_Y ? y : x)) == ncclSuccess, "%s", ncclGetLastError(NULL));
        break;
    case GROUPED:
        ncclGroupStart();
        CHECK(IN_TIME(SOON, ncclCommAbort(x)) == ncclSuccess, "%s", ncclGetLastError(NULL));
        CHECK(IN_TIME(SOON, ncclCommAbort(y)) == ncclSuccess, "%s", ncclGetLastError(NULL));
        CHECK(IN_TIME(SOON, ncclGroupEnd()) == ncclSuccess, "%s", ncclGetLastError(NULL));
        break;
    default:
        CHECK(IN_TIME(SOON, ncclCommDestroy(x)) == ncclSuccess, "%s", ncclGetLastError(NULL));
        CHECK(IN_TIME(SOON, ncclCommDestroy(y)) == ncclSuccess, "%s", ncclGetLastError(NULL));
    }
}

static int rank_main(int rank, int n, void *arg)
{
    const plan *p = arg;
    pending     pend = { .c = { world_comm(p->w, 0, rank, n), world_comm(p->w, 1, rank, n) } };

    if (!pend.c[0] || !pend.c[1])
        return 1;
    world_works(pend.c[0], rank, n);
    world_works(pend.c[1], rank, n);
    world_meet(p->w, n);
    if (rank == ABSENT && p->lives) {
        CHECK(WAIT_FOR(atomic_load(&p->w->note[0]) == n - 1, 30), "the others did not finish");
        CHECK(IN_TIME(SOON, ncclCommAbort(pend.c[1])) == ncclSuccess && IN_TIME(SOON, ncclCommDestroy(pend.c[0])) == ncclSuccess,
              "%s", ncclGetLastError(NULL));
        return 0;
    }
    if (rank == ABSENT)
        _exit(0);
    begin(&pend, p->how);
    take_down(p, pend.c[0], pend.c[1]);
    end(&pend, p->how);
    for (double was = atomic_load(&p->w->note[0]); !atomic_compare_exchange_weak(&p->w->note[0], &was, was + 1);)
        ;
    /* nothing of the old ones is in the way of a new one */
    const int now = rank > ABSENT ? rank - 1 : rank;
    ncclComm_t c = world_comm(p->w, 2, now, n - 1);
    world_works(c, now, n - 1);
    CHECK(ncclCommDestroy(c) == ncclSuccess, "%s", ncclGetLastError(NULL));
    return 0;
}

static void run(how h, order o, bool lives)
{
    CASE("%s, %s: rank 2 %s", how_names[h], order_names[o], lives ? "never comes" : "is gone") {
        plan p = { world_open(), h, o, lives };
        CHECK(run_ranks_as_processes(N, rank_main, &p) == 0, "ranks failed");
        world_close(p.w);
    }
}

TEST(two_communicators_after_a_rank_has_gone)
{
    for (how h = 0; h < NHOW; h++)
        for (order o = 0; o < NORDER; o++)
            run(h, o, false);
}

/* Destroy waits for what was queued, so only abort can end these. */
TEST(two_communicators_when_a_rank_never_comes)
{
    for (how h = 0; h < NHOW; h++)
        for (order o = 0; o < DESTROY; o++)
            run(h, o, true);
}

/* ---- abort from a second thread */

typedef enum { COLLECTIVE, LARGE, RECEIVE, SEND, IN_A_GROUP, INIT, NCALLS } stuck_call;

static const char *const stuck_names[] = { "AllReduce", "a large AllReduce", "Recv", "Send", "a group", "a non-blocking init" };

typedef struct {
    world     *w;
    stuck_call call;
    ncclComm_t c;
    atomic_int entered, left;
} stuck;

static void *stuck_main(void *arg)
{
    stuck       *s = arg;
    const size_t count = s->call == LARGE || s->call == SEND ? 1 << 20 : 1;
    float       *in = calloc(count, sizeof *in), *out = calloc(count, sizeof *out);
    ncclResult_t r = ncclSuccess;

    atomic_store(&s->entered, 1);
    switch (s->call) {
    case RECEIVE:
        r = ncclRecv(out, count, ncclFloat, ABSENT, s->c, NULL);
        break;
    case SEND:
        r = ncclSend(in, count, ncclFloat, ABSENT, s->c, NULL);
        break;
    case IN_A_GROUP:
        ncclGroupStart();
        ncclAllReduce(in, out, count, ncclFloat, ncclSum, s->c, NULL);
        ncclRecv(out, count, ncclFloat, ABSENT, s->c, NULL);
        r = ncclGroupEnd();
        break;
    default:
        r = ncclAllReduce(in, out, count, ncclFloat, ncclSum, s->c, NULL);
    }
    atomic_store(&s->left, 1);
    CHECK(r != ncclSuccess && r != ncclInProgress, "%s: an aborted call gave %d", stuck_names[s->call], (int)r);
    free(in);
    free(out);
    return NULL;
}

static int abort_rank(int rank, int n, void *arg)
{
    stuck    *s = arg;
    pthread_t t;

    if (s->call == INIT) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        if (rank == ABSENT)
            return 0;
        const ncclUniqueId id = world_id(s->w, 0, rank);
        const ncclResult_t r = ncclCommInitRankConfig(&s->c, n, id, rank, &config);
        if (!CHECK(r == ncclInProgress && s->c, "init: %d, %s", (int)r, ncclGetLastError(NULL)))
            return 1;
        usleep(100000);
        CHECK(IN_TIME(SOON, ncclCommAbort(s->c)) == ncclSuccess, "%s", ncclGetLastError(NULL));
        return 0;
    }
    s->c = world_comm(s->w, 0, rank, n);
    if (!s->c)
        return 1;
    world_meet(s->w, n);
    if (rank != 0) { /* who is idle helps nobody out of a call */
        CHECK(WAIT_FOR(atomic_load(&s->w->note[0]) == 1, 30), "rank 0 did not finish");
        const ncclResult_t r = world_async(s->c, 3); /* rank 0 lives on: it must have said so itself */
        CHECK(r == ncclRemoteError && strstr(ncclGetLastError(s->c), "aborted"), "rank %d: %d, %s", rank, (int)r,
              ncclGetLastError(s->c));
        if (atomic_fetch_add(&s->w->arrived, 1) == n - 2)
            atomic_store(&s->w->note[1], 1);
        return ncclCommAbort(s->c) != ncclSuccess;
    }
    pthread_create(&t, NULL, stuck_main, s);
    CHECK(WAIT_FOR(atomic_load(&s->entered), 10), "the thread does not start");
    usleep(60000); /* into the call */
    CHECK(!atomic_load(&s->left), "the call was over before the abort");
    CHECK(IN_TIME(SOON, ncclCommAbort(s->c)) == ncclSuccess, "%s", ncclGetLastError(NULL));
    const bool left = CHECK(WAIT_FOR(atomic_load(&s->left), 1), "the call goes on after the abort");
    atomic_store(&s->w->note[0], 1);
    CHECK(WAIT_FOR(atomic_load(&s->w->note[1]) == 1, 10), "the others were not told");
    if (!left)
        _exit(3);
    pthread_join(t, NULL);
    return 0;
}

TEST(abort_from_another_thread)
{
    for (stuck_call call = 0; call < NCALLS; call++)
        CASE("abort ends %s of another thread", stuck_names[call]) {
            stuck s = { .w = world_open(), .call = call };
            CHECK(run_ranks_as_processes(N, abort_rank, &s) == 0, "ranks failed");
            world_close(s.w);
        }
}

/* ---- one-sided: who has finished may go, whatever the others do */

enum { SMALL = 4, BIG = 300000 };

typedef struct {
    world *w;
    bool   lives; /* rank 0 destroys its communicator and stays */
} leave;

static int early_rank(int rank, int n, void *arg)
{
    const leave *l = arg;
    world       *w = l->w;
    const size_t count = BIG;
    ncclComm_t   c = world_comm(w, 0, rank, n);
    float       *buf = malloc(count * sizeof *buf);

    if (!c || !buf)
        return 1;
    for (size_t i = 0; i < count; i++)
        buf[i] = rank == 0 ? (float)(i % 1000) : -1;
    usleep(rank ? 200000 : 0); /* the root is done, and gone, before the others come (when it is small) */
    CHECK(ncclBroadcast(buf, buf, SMALL, ncclFloat, 0, c, NULL) == ncclSuccess, "rank %d: %s", rank, ncclGetLastError(c));
    CHECK(ncclBroadcast(buf + SMALL, buf + SMALL, BIG - SMALL, ncclFloat, 0, c, NULL) == ncclSuccess, "rank %d: %s", rank,
          ncclGetLastError(c));
    if (rank == 0)
        CHECK(ncclSend(buf, SMALL, ncclFloat, 1, c, NULL) == ncclSuccess, "%s", ncclGetLastError(c));
    if (rank == 0)
        memset(buf, 0, count * sizeof *buf); /* done: the buffer is the caller's again */
    if (rank == 0)
        CHECK(IN_TIME(SOON, ncclCommDestroy(c)) == ncclSuccess, "%s", ncclGetLastError(NULL));
    if (rank == 0) {
        if (l->lives)
            CHECK(WAIT_FOR(atomic_load(&w->note[0]) == n - 1, 30), "the others did not finish");
        free(buf);
        return 0;
    }
    for (size_t i = 0; i < count; i++)
        if (!CHECK(buf[i] == (float)(i % 1000), "rank %d: element %zu is %g", rank, i, (double)buf[i]))
            break;
    usleep(100000);
    float got[SMALL] = { -1, -1, -1, -1 };
    if (rank == 1)
        CHECK(ncclRecv(got, SMALL, ncclFloat, 0, c, NULL) == ncclSuccess && got[3] == 3, "what the rank sent before it went: %s, %g",
              ncclGetLastError(c), (double)got[3]);
    /* a message between those who are left; then one that needs the rank that went */
    if (rank == 1)
        CHECK(ncclSend(buf, SMALL, ncclFloat, 2, c, NULL) == ncclSuccess, "%s", ncclGetLastError(c));
    if (rank == 2)
        CHECK(ncclRecv(got, SMALL, ncclFloat, 1, c, NULL) == ncclSuccess && got[3] == 3, "%s", ncclGetLastError(c));
    world_meet(w, n - 1);
    const ncclResult_t r = IN_TIME(3.0, ncclAllReduce(buf, buf, SMALL, ncclFloat, ncclSum, c, NULL));
    CHECK(r == ncclRemoteError && strstr(ncclGetLastError(c), "rank 0"), "rank %d: %d, %s", rank, (int)r, ncclGetLastError(c));
    CHECK(IN_TIME(SOON, ncclCommDestroy(c)) == ncclSuccess, "%s", ncclGetLastError(NULL));
    for (double was = atomic_load(&w->note[0]); !atomic_compare_exchange_weak(&w->note[0], &was, was + 1);)
        ;
    free(buf);
    return 0;
}

TEST(a_rank_that_is_done_may_go)
{
    for (int i = 0; i < 4; i++) {
        leave l = { world_open(), i % 2 };
        CHECK(run_ranks_as_processes(N, early_rank, &l) == 0, "ranks failed");
        world_close(l.w);
    }
}

/* ---- handles that are no longer alive */

static void use_dead(ncclComm_t c, const char *what)
{
    ncclResult_t async;
    float        x = 1, y;
    int          n;

#define DEAD(call)                                                                                           \
    do {                                                                                                     \
        const ncclResult_t r_ = IN_TIME(SOON, call);                                                         \
        CHECK(r_ == ncclInvalidArgument, "%s: " #call " gave %d", what, (int)r_);                            \
        CHECK(strstr(ncclGetLastError(NULL), "destroyed"), "%s: " #call ": %s", what, ncclGetLastError(NULL)); \
    } while (0)
    DEAD(ncclCommDestroy(c));
    DEAD(ncclCommAbort(c));
    DEAD(ncclCommFinalize(c));
    DEAD(ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, c, NULL));
    DEAD(ncclSend(&x, 1, ncclFloat, 0, c, NULL));
    DEAD(ncclCommCount(c, &n));
    DEAD(ncclCommGetAsyncError(c, &async));
    DEAD(ncclCommSplit(c, 0, 0, &c, NULL));
}

TEST(destroyed_twice)
{
    ncclComm_t c[2], next[2];

    REQUIRE(ncclCommInitAll(c, 2, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
    CHECK(ncclCommDestroy(c[0]) == ncclSuccess, "%s", ncclGetLastError(NULL));
    CHECK(ncclCommAbort(c[1]) == ncclSuccess, "%s", ncclGetLastError(NULL));
    use_dead(c[0], "destroyed");
    use_dead(c[1], "aborted");
    /* new ones take the same places, and the old handles still fit nothing */
    REQUIRE(ncclCommInitAll(next, 2, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
    use_dead(c[0], "destroyed, place taken");
    use_dead(c[1], "aborted, place taken");
    for (int i = 0; i < 2; i++)
        CHECK(ncclCommDestroy(next[i]) == ncclSuccess, "%s", ncclGetLastError(NULL));
}

static void *destroy_main(void *arg)
{
    return (void *)(intptr_t)ncclCommDestroy(*(ncclComm_t *)arg);
}

TEST(destroyed_by_two_threads_at_once)
{
    for (int round = 0; round < 200; round++) {
        ncclComm_t c;
        pthread_t  t[4];
        int        ngood = 0;
        REQUIRE(ncclCommInitAll(&c, 1, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
        for (int i = 0; i < 4; i++)
            pthread_create(&t[i], NULL, destroy_main, &c);
        for (int i = 0; i < 4; i++) {
            void *r;
            pthread_join(t[i], &r);
            CHECK(r == (void *)ncclSuccess || r == (void *)ncclInvalidArgument, "result %d", (int)(intptr_t)r);
            ngood += r == (void *)ncclSuccess;
        }
        REQUIRE(ngood == 1, "round %d: %d of 4 threads destroyed the communicator", round, ngood);
    }
}

TEST(destroyed_within_a_group)
{
    ncclComm_t   c, other;
    float        x = 1, y = 0;
    ncclResult_t r;

    REQUIRE(ncclCommInitAll(&c, 1, NULL) == ncclSuccess && ncclCommInitAll(&other, 1, NULL) == ncclSuccess, "%s",
            ncclGetLastError(NULL));
    for (int abort = 0; abort < 2; abort++) {
        ncclGroupStart();
        CHECK(ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, c, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
        r = abort ? ncclCommAbort(c) : ncclCommDestroy(c);
        CHECK(r == ncclSuccess, "taking down within a group: %d, %s", (int)r, ncclGetLastError(NULL));
        /* what was queued is done or refused, and nothing is touched that is gone */
        r = ncclGroupEnd();
        CHECK(abort ? r != ncclSuccess : r == ncclSuccess && y == 1, "group end: %d, %s; %g", (int)r, ncclGetLastError(NULL),
              (double)y);
        REQUIRE(ncclCommInitAll(&c, 1, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
    }
    CHECK(ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, other, NULL) == ncclSuccess && y == 1, "%s", ncclGetLastError(NULL));
    CHECK(ncclCommDestroy(c) == ncclSuccess && ncclCommDestroy(other) == ncclSuccess, "%s", ncclGetLastError(NULL));
}
