/* Communicators of GPUs, real or emulated, whose ranks are on several machines: what the conformance
 * sample does not try. Machines are this one under other names; ranks are processes. */
#include "gpu/gpu_ranks.h"

TIME_LIMIT(400)

enum { COUNT = 1 << 18 };

static float value(int rank, size_t i)
{
    return (float)((rank + 1) * 3 + (int)(i % 53));
}

static float sum(int n, size_t i)
{
    return (float)(3 * n * (n + 1) / 2 + n * (int)(i % 53));
}

/* A rank's buffers: COUNT floats each, IN with its values. */
typedef struct {
    float *host;
    char  *in, *out;
} buffers;

static void fill(const gpu_worker *w, buffers *b, int rank)
{
    for (size_t i = 0; i < COUNT; i++)
        b->host[i] = value(rank, i);
    gpu_put(w, 0, b->in, b->host, COUNT * sizeof(float));
}

static bool open_buffers(const gpu_worker *w, buffers *b)
{
    b->host = malloc(COUNT * sizeof(float));
    if (!b->host || !gpu_alloc(w, 0, &b->in, COUNT * sizeof(float)) || !gpu_alloc(w, 0, &b->out, COUNT * sizeof(float)))
        return false;
    fill(w, b, w->rank[0]);
    return true;
}

static void close_buffers(const gpu_worker *w, buffers *b)
{
    gpu_free(w, 0, b->in);
    gpu_free(w, 0, b->out);
    free(b->host);
}

static ncclResult_t reduce(const gpu_worker *w, const buffers *b, size_t count)
{
    return ncclAllReduce(b->in, b->out, count, ncclFloat, ncclSum, w->comm[0], (cudaStream_t)w->stream[0]);
}

static bool is_sum(const gpu_worker *w, const buffers *b, int n, size_t count)
{
    gpu_get(w, 0, b->host, b->out, count * sizeof(float));
    for (size_t i = 0; i < count; i++)
        if (!CHECK(b->host[i] == sum(n, i), "rank %d: [%zu] is %g", w->rank[0], i, (double)b->host[i]))
            return false;
    return true;
}

static void on_machines(int n, int machines, bool mixed, void (*work)(gpu_worker *w), const char *const *env)
{
    gpu_team t = { .n = n, .machines = machines, .mixed = mixed, .work = work };

    for (int i = 0; env && env[i]; i++)
        snprintf(t.env[i], sizeof t.env[i], "%s", env[i]);
    if (!gpu_fits(&t)) {
        check_skip("%d ranks do not fit on %d devices", n, gpu_here()->count);
        return;
    }
    CHECK(gpu_run(&t) == 0, "ranks failed");
    gpu_end(&t);
}

/* ---- groups */

enum { EACH = 1500 };

/* Every rank sends to every other, itself too, several messages of unlike lengths, in an order of its own. */
static void all_messages(gpu_worker *w)
{
    static const size_t lengths[] = { 0, 1, 77, EACH };
    const ncclComm_t    c = w->comm[0];
    const cudaStream_t  s = (cudaStream_t)w->stream[0];
    const int           n = w->n, me = w->rank[0];
    buffers             b;

    if (!CHECK(open_buffers(w, &b), "no memory"))
        return;
    OK_OR_TELL(ncclGroupStart());
    for (int far = 0; far < n; far++)
        for (int k = 0; k < 4; k++) {
            const int to = (me + far) % n, from = (me + n - far) % n;
            OK_OR_TELL(ncclSend((float *)b.in + to + k, lengths[k], ncclFloat, to, c, s));
            OK_OR_TELL(ncclRecv((float *)b.out + (from * 4 + k) * EACH, lengths[k], ncclFloat, from, c, s));
        }
    OK_OR_TELL(ncclGroupEnd());
    gpu_get(w, 0, b.host, b.out, COUNT * sizeof(float));
    for (int from = 0; from < n; from++)
        for (int k = 0; k < 4; k++)
            for (size_t i = 0; i < lengths[k]; i++) {
                const float got = b.host[(size_t)(from * 4 + k) * EACH + i], want = value(from, i + (size_t)(me + k));
                if (!CHECK(got == want, "rank %d: message %d from %d: [%zu] is %g", me, k, from, i, (double)got))
                    return;
            }
    close_buffers(w, &b);
}

TEST(messages_inside_and_between_in_one_group)
{
    CASE("5 ranks, 2 machines") on_machines(5, 2, false, all_messages, NULL);
    CASE("8 ranks, 2 machines: more than a launch takes") on_machines(8, 2, false, all_messages, NULL);
    CASE("8 ranks, 4 machines in turn") on_machines(8, 4, true, all_messages, NULL);
    CASE("2 ranks, 2 machines") on_machines(2, 2, false, all_messages, NULL);
}

/* Rank 0 groups what goes to its own machine with what comes from another; its neighbour takes its part only when that has
 * been everywhere: neither may wait for the other. */
static void roundabout(gpu_worker *w)
{
    const ncclComm_t   c = w->comm[0];
    const cudaStream_t s = (cudaStream_t)w->stream[0];
    const int          me = w->rank[0];
    buffers            b;

    if (!CHECK(open_buffers(w, &b), "no memory"))
        return;
    if (me == 0) {
        OK_OR_TELL(ncclGroupStart());
        OK_OR_TELL(ncclSend(b.in, COUNT, ncclFloat, 1, c, s));
        OK_OR_TELL(ncclSend(b.in, COUNT, ncclFloat, 2, c, s));
        OK_OR_TELL(ncclGroupEnd());
    } else if (me == 1) {
        OK_OR_TELL(ncclRecv(b.out, COUNT, ncclFloat, 2, c, s));
        OK_OR_TELL(ncclRecv(b.out, COUNT, ncclFloat, 0, c, s));
    } else if (me == 2) {
        OK_OR_TELL(ncclRecv(b.out, COUNT, ncclFloat, 0, c, s));
        OK_OR_TELL(ncclSend(b.out, COUNT, ncclFloat, 1, c, s));
    }
    gpu_get(w, 0, b.host, b.out, COUNT * sizeof(float));
    for (size_t i = 0; (me == 1 || me == 2) && i < COUNT; i++)
        if (!CHECK(b.host[i] == value(0, i), "rank %d: [%zu] is %g", me, i, (double)b.host[i]))
            break;
    close_buffers(w, &b);
}

TEST(messages_of_a_group_do_not_wait_for_each_other)
{
    on_machines(4, 2, false, roundabout, NULL);
}

static void group_of_collectives(gpu_worker *w)
{
    const ncclComm_t   c = w->comm[0];
    const cudaStream_t s = (cudaStream_t)w->stream[0];
    const size_t       each = COUNT / (size_t)w->n;
    buffers            b;

    if (!CHECK(open_buffers(w, &b), "no memory"))
        return;
    for (int k = 0; k < 3; k++) {
        OK_OR_TELL(ncclGroupStart());
        OK_OR_TELL(ncclReduceScatter(b.in, b.out, each, ncclFloat, ncclSum, c, s));
        OK_OR_TELL(ncclAllGather(b.out, b.in, each, ncclFloat, c, s));
        OK_OR_TELL(ncclBroadcast(b.in, b.out, COUNT, ncclFloat, w->n - 1, c, s));
        OK_OR_TELL(ncclGroupEnd());
        is_sum(w, &b, w->n, each * (size_t)w->n);
        fill(w, &b, w->rank[0]);
    }
    close_buffers(w, &b);
}

TEST(collectives_of_a_group)
{
    CASE("machines alike") on_machines(4, 2, false, group_of_collectives, NULL);
    CASE("not alike") on_machines(3, 2, false, group_of_collectives, NULL);
}

/* ---- graphs, streams */

static void graphs(gpu_worker *w)
{
    const int        next = (w->rank[0] + 1) % w->n, last = (w->rank[0] + w->n - 1) % w->n;
    rcclx_gpu_graph  graph;
    rcclx_gpu_scope  scope;
    buffers          b;

    if (!CHECK(open_buffers(w, &b), "no memory"))
        return;
    OK_OR_TELL(reduce(w, &b, COUNT));
    is_sum(w, &b, w->n, COUNT);
    DRIVER_OK(w->gpu->enter(&scope, w->device[0]));
    DRIVER_OK(w->gpu->capture_begin(w->stream[0]));
    OK_OR_TELL(reduce(w, &b, COUNT));
    OK_OR_TELL(ncclGroupStart());
    OK_OR_TELL(ncclSend(b.out, COUNT, ncclFloat, next, w->comm[0], (cudaStream_t)w->stream[0]));
    OK_OR_TELL(ncclRecv(b.in, COUNT, ncclFloat, last, w->comm[0], (cudaStream_t)w->stream[0]));
    OK_OR_TELL(ncclGroupEnd());
    DRIVER_OK(w->gpu->capture_end(w->stream[0], &graph));
    w->gpu->leave(&scope);
    for (int k = 0; k < 6; k++) {
        fill(w, &b, w->rank[0]);
        DRIVER_OK(w->gpu->enter(&scope, w->device[0]));
        DRIVER_OK(w->gpu->graph_launch(graph, w->stream[0]));
        w->gpu->leave(&scope);
        if (k % 2)
            usleep(20000); /* the proxy has gone to rest */
        is_sum(w, &b, w->n, COUNT);
        gpu_get(w, 0, b.host, b.in, COUNT * sizeof(float));
        CHECK(b.host[5] == sum(w->n, 5), "what was received is %g", (double)b.host[5]);
        fill(w, &b, w->rank[0]);
        OK_OR_TELL(reduce(w, &b, 1000));
        is_sum(w, &b, w->n, 1000);
    }
    DRIVER_OK(w->gpu->enter(&scope, w->device[0]));
    DRIVER_OK(w->gpu->graph_destroy(graph));
    w->gpu->leave(&scope);
    close_buffers(w, &b);
}

TEST(graphs_are_replayed)
{
    CASE("machines alike") on_machines(4, 2, false, graphs, NULL);
    CASE("not alike") on_machines(3, 2, false, graphs, NULL);
}

/* An operation waits for the one before it on another stream. */
static void streams(gpu_worker *w)
{
    rcclx_gpu_stream other = gpu_stream(w, 0);
    buffers          b;

    if (!CHECK(open_buffers(w, &b), "no memory"))
        return;
    for (int k = 0; k < 8; k++) {
        const cudaStream_t s = (cudaStream_t)(k % 2 ? other : w->stream[0]);
        OK_OR_TELL(ncclAllReduce(b.in, b.out, COUNT / 8, ncclFloat, ncclMax, w->comm[0], s));
        OK_OR_TELL(ncclBroadcast(b.out, b.out, COUNT / 8, ncclFloat, k % w->n, w->comm[0],
                                 (cudaStream_t)(k % 3 ? other : w->stream[0])));
    }
    gpu_sync(w, 0, other);
    gpu_get(w, 0, b.host, b.out, COUNT * sizeof(float));
    for (size_t i = 0; i < COUNT / 8; i++)
        if (!CHECK(b.host[i] == value(w->n - 1, i), "rank %d: [%zu] is %g", w->rank[0], i, (double)b.host[i]))
            break;
    gpu_stream_end(w, 0, other);
    close_buffers(w, &b);
}

TEST(streams_change_and_the_order_stays)
{
    on_machines(4, 2, false, streams, NULL);
}

/* ---- parts, settings */

static void splits(gpu_worker *w)
{
    const int  me = w->rank[0], color = me % 2;
    const bool is_near = strcmp(getenv("RCCLX_TEST_WHICH"), "near") == 0;
    ncclComm_t whole = w->comm[0], part = NULL;
    buffers    b;
    int        n = 0;

    if (!CHECK(open_buffers(w, &b), "no memory"))
        return;
    OK_OR_TELL(ncclCommSplit(whole, is_near ? me / 2 : color, me, &part, NULL));
    OK_OR_TELL(ncclCommCount(part, &n));
    CHECK(n == 2, "%d ranks", n);
    OK_OR_TELL(ncclAllReduce(b.in, b.out, COUNT, ncclFloat, ncclMax, part, (cudaStream_t)w->stream[0]));
    gpu_get(w, 0, b.host, b.out, COUNT * sizeof(float));
    const int most = is_near ? me / 2 * 2 + 1 : color + 2;
    CHECK(b.host[9] == value(most, 9), "rank %d: %g", me, (double)b.host[9]);
    OK_OR_TELL(ncclCommDestroy(part));
    OK_OR_TELL(reduce(w, &b, COUNT));
    is_sum(w, &b, w->n, COUNT);
    close_buffers(w, &b);
}

TEST(parts_of_it)
{
    CASE("of one machine") on_machines(4, 2, false, splits, (const char *const[]){ "RCCLX_TEST_WHICH=near", NULL });
    CASE("across") on_machines(4, 2, false, splits, (const char *const[]){ "RCCLX_TEST_WHICH=far", NULL });
}

static void low_precision(gpu_worker *w)
{
    buffers b;
    double  error = 0, norm = 0;

    if (!CHECK(open_buffers(w, &b), "no memory"))
        return;
    OK_OR_TELL(reduce(w, &b, COUNT));
    gpu_get(w, 0, b.host, b.out, COUNT * sizeof(float));
    for (size_t i = 0; i < COUNT; i++) {
        error += pow((double)b.host[i] - (double)sum(w->n, i), 2);
        norm += pow((double)sum(w->n, i), 2);
    }
    CHECK(error > 0, "it went in full precision");
    CHECK(sqrt(error / norm) < 0.02, "relative error %g", sqrt(error / norm));
    close_buffers(w, &b);
}

TEST(low_precision_on_the_network)
{
    on_machines(4, 2, false, low_precision,
                (const char *const[]){ "RCCLX_LOW_PRECISION=int8", "RCCLX_LOW_PRECISION_MIN_BYTES=1024", NULL });
}

/* ---- what goes wrong */

/* Until the communicator says so; its text is the last error. */
static ncclResult_t trouble(const gpu_worker *w, double seconds)
{
    ncclResult_t r = ncclSuccess;

    (void)WAIT_FOR(ncclCommGetAsyncError(w->comm[0], &r) != ncclSuccess || (r != ncclSuccess && r != ncclInProgress), seconds);
    return r;
}

/* It ends, and the stream is free. */
static void abort_it(gpu_worker *w)
{
    const double began = check_now();

    OK_OR_TELL(ncclCommAbort(w->comm[0]));
    CHECK(check_now() - began < 3 * check_scale(), "abort took %.2f s", check_now() - began);
    w->comm[0] = NULL;
    gpu_sync(w, 0, w->stream[0]);
}

static void one_dies(gpu_worker *w)
{
    buffers b;

    if (!CHECK(open_buffers(w, &b), "no memory"))
        return;
    OK_OR_TELL(reduce(w, &b, COUNT));
    gpu_sync(w, 0, w->stream[0]);
    gpu_meet(w, 0);
    if (w->rank[0] == 3)
        _exit(0); /* without a word */
    OK_OR_TELL(reduce(w, &b, COUNT));
    CHECK(trouble(w, 10) != ncclSuccess, "rank %d noticed nothing", w->rank[0]);
    CHECK(reduce(w, &b, COUNT) != ncclSuccess, "rank %d goes on", w->rank[0]);
    const char *text = ncclGetLastError(NULL);
    /* its neighbours see it as a part of theirs, with the whole's numbers beside */
    CHECK(strstr(text, "rank 3") || strstr(text, "ranks 2 3,") || strstr(text, "ranks 1 3,"), "rank %d: %s", w->rank[0], text);
    gpu_sync(w, 0, w->stream[0]);
    abort_it(w);
    close_buffers(w, &b);
}

TEST(a_rank_that_dies)
{
    on_machines(4, 2, false, one_dies, NULL);
}

static void one_aborts(gpu_worker *w)
{
    buffers b;

    if (!CHECK(open_buffers(w, &b), "no memory"))
        return;
    OK_OR_TELL(reduce(w, &b, COUNT));
    gpu_sync(w, 0, w->stream[0]);
    gpu_meet(w, 0);
    if (w->rank[0] != 1)
        OK_OR_TELL(reduce(w, &b, COUNT));
    if (w->rank[0] == 0)
        usleep(50000);
    if (w->rank[0] > 1)
        CHECK(trouble(w, 10) != ncclSuccess, "rank %d noticed nothing", w->rank[0]);
    abort_it(w);
    close_buffers(w, &b);
}

TEST(abort)
{
    CASE("machines alike") on_machines(4, 2, false, one_aborts, NULL);
    CASE("not alike") on_machines(3, 2, false, one_aborts, NULL);
}

static void calls_differ(gpu_worker *w)
{
    const bool messages = strcmp(getenv("RCCLX_TEST_WHICH"), "messages") == 0;
    const int  me = w->rank[0];
    buffers    b;

    if (!CHECK(open_buffers(w, &b), "no memory"))
        return;
    const size_t count = (size_t)(me ? 1000 : 1001) * (strcmp(getenv("RCCLX_TEST_WHICH"), "small") == 0 ? 1 : 200);
    if (!messages)
        OK_OR_TELL(reduce(w, &b, count));
    else if (me == 0)
        OK_OR_TELL(ncclSend(b.in, COUNT, ncclFloat, 1, w->comm[0], (cudaStream_t)w->stream[0]));
    else
        OK_OR_TELL(ncclRecv(b.out, COUNT - 1, ncclFloat, 0, w->comm[0], (cudaStream_t)w->stream[0]));
    const ncclResult_t r = trouble(w, 10); /* those of the other machine may hear first that a rank has gone */
    CHECK(me < 2 ? r == ncclInvalidUsage : r != ncclSuccess, "rank %d: %s", me, ncclGetLastError(NULL));
    CHECK(reduce(w, &b, 1) != ncclSuccess, "rank %d goes on", me);
    abort_it(w);
    close_buffers(w, &b);
}

TEST(calls_that_differ)
{
    CASE("small") on_machines(2, 2, false, calls_differ, (const char *const[]){ "RCCLX_TEST_WHICH=small", NULL });
    CASE("large") on_machines(2, 2, false, calls_differ, (const char *const[]){ "RCCLX_TEST_WHICH=large", NULL });
    CASE("large, 4 ranks") on_machines(4, 2, false, calls_differ, (const char *const[]){ "RCCLX_TEST_WHICH=large", NULL });
    CASE("messages") on_machines(2, 2, false, calls_differ, (const char *const[]){ "RCCLX_TEST_WHICH=messages", NULL });
}

static void one_is_late(gpu_worker *w)
{
    buffers b;

    if (!CHECK(open_buffers(w, &b), "no memory"))
        return;
    if (w->rank[0] != 2)
        OK_OR_TELL(reduce(w, &b, COUNT));
    CHECK(trouble(w, 15) != ncclSuccess, "rank %d waits on", w->rank[0]);
    if (w->rank[0] != 2)
        CHECK(strstr(ncclGetLastError(NULL), "rank"), "%s", ncclGetLastError(NULL));
    abort_it(w);
    close_buffers(w, &b);
}

TEST(a_rank_that_does_not_come)
{
    char limit[64];

    snprintf(limit, sizeof limit, "RCCLX_TIMEOUT=%g", 0.5 * check_scale());
    on_machines(4, 2, false, one_is_late, (const char *const[]){ limit, NULL });
}

static void churn(gpu_worker *w)
{
    ncclComm_t   c;
    ncclUniqueId id;
    buffers      b;

    if (!CHECK(open_buffers(w, &b), "no memory"))
        return;
    for (int k = 0; k < 4; k++) {
        if (w->rank[0] == 0) {
            OK_OR_TELL(ncclGetUniqueId(&id));
            memcpy(&w->team->shared->id, &id, sizeof id);
        }
        gpu_meet(w, 2 * k);
        if (!gpu_init(w, &c, w->team->shared->id))
            break;
        gpu_meet(w, 2 * k + 1);
        OK_OR_TELL(ncclAllReduce(b.in, b.out, COUNT, ncclFloat, ncclSum, c, (cudaStream_t)w->stream[0]));
        if (k % 2) /* what was handed out is waited for */
            is_sum(w, &b, w->n, COUNT);
        OK_OR_TELL(ncclCommDestroy(c));
        is_sum(w, &b, w->n, COUNT);
    }
    close_buffers(w, &b);
}

TEST(made_and_destroyed)
{
    on_machines(4, 2, false, churn, NULL);
}
