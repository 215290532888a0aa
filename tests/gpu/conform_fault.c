/* Communicators on GPUs, real or emulated, when something goes wrong: ranks whose calls differ, one that
 * never calls, one whose process is killed, pointers that no kernel may touch. Everybody is told in time,
 * by a text that names who did what; an abort is quick; and the devices work afterwards, which is shown by
 * a new communicator of the same ranks, or of those that are left. */
#include "gpu/gpu_ranks.h"

TIME_LIMIT(600)

enum { WORDS = 6000, SECONDS = 8 };

/* ---- what all do afterwards */

/* The communicator's own answer, when it is no longer success. */
static ncclResult_t told(ncclComm_t c, double seconds)
{
    ncclResult_t r = ncclSuccess;

    (void)WAIT_FOR(ncclCommGetAsyncError(c, &r) != ncclSuccess || (r != ncclSuccess && r != ncclInProgress), seconds);
    return r;
}

static void abort_all(gpu_worker *w)
{
    for (int i = 0; i < w->nmine; i++) {
        const double began = check_now();
        OK_OR_TELL(ncclCommAbort(w->comm[i]));
        CHECK(check_now() - began < check_scale(), "rank %d: the abort took %.2f s", w->rank[i], check_now() - began);
        w->comm[i] = NULL;
        gpu_sync(w, i, w->stream[i]);
    }
}

enum { ALL_POSTED, ALL_ABORTED, HAVE_ID }; /* meetings */

/* A new communicator of the ranks that there are now. */
static void works_again(gpu_worker *w, char **x)
{
    gpu_meet(w, ALL_ABORTED);
    if (w->rank[0] == 0)
        OK_OR_TELL(ncclGetUniqueId(&w->team->shared->id));
    if (!gpu_meet(w, HAVE_ID) || !gpu_init(w, w->comm, w->team->shared->id))
        return;
    for (int i = 0; i < w->nmine; i++) {
        uint32_t host[100];
        for (int k = 0; k < 100; k++)
            host[k] = (uint32_t)(w->rank[i] + k);
        gpu_put(w, i, x[i], host, sizeof host);
    }
    gpu_open(w);
    for (int i = 0; i < w->nmine; i++)
        OK_OR_TELL(ncclAllReduce(x[i], x[i], 100, ncclUint32, ncclSum, w->comm[i], (cudaStream_t)w->stream[i]));
    gpu_close(w);
    for (int i = 0; i < w->nmine; i++) {
        uint32_t host[100];
        gpu_get(w, i, host, x[i], sizeof host);
        for (uint32_t k = 0; k < 100; k++)
            if (!CHECK(host[k] == (uint32_t)w->n * k + (uint32_t)(w->n * (w->n - 1) / 2), "afterwards: rank %d, element %u is %u",
                       w->rank[i], k, host[k]))
                break;
    }
}

static bool get_buffers(gpu_worker *w, char **x)
{
    bool ok = true;

    for (int i = 0; i < w->nmine; i++)
        ok = ok && gpu_alloc(w, i, &x[i], (size_t)WORDS * 4 * (size_t)w->n);
    return ok;
}

static void free_buffers(gpu_worker *w, char **x)
{
    for (int i = 0; i < w->nmine; i++)
        gpu_free(w, i, x[i]);
}

/* ---- calls that differ */

typedef struct { const char *name, *mine, *theirs; } difference; /* words that the text must hold */

static const difference differences[] = {
    { "count", "AllReduce of 1000 float sum", "AllReduce of 1001 float sum" },
    { "large count", "AllReduce of 5000 float sum", "AllReduce of 1 float sum" },
    { "type", "AllReduce of 1000 float sum", "AllReduce of 1000 int32 sum" },
    { "operator", "AllReduce of 1000 float sum", "AllReduce of 1000 float max" },
    { "kind", "AllReduce of 1000 float sum", "AllGather of 1000 float" },
    { "root", "Reduce of 1000 float sum root 0", "Reduce of 1000 float sum root 1" },
    { "root of a broadcast", "Broadcast of 1000 float root 0", "Broadcast of 1000 float root 1" },
    { "count of a scatter", "Scatter of 10 float root 0", "Scatter of 20 float root 0" },
    { "nothing", "AllReduce of 0 float sum", "AllReduce of 1 float sum" },
};

/* mine: rank 0's way, otherwise all others'. */
static ncclResult_t call_differently(const gpu_worker *w, int i, int which, bool mine, char *x)
{
    const ncclComm_t   c = w->comm[i];
    const cudaStream_t s = (cudaStream_t)w->stream[i];

    switch (which) {
    case 0: return ncclAllReduce(x, x, mine ? 1000 : 1001, ncclFloat, ncclSum, c, s);
    case 1: return ncclAllReduce(x, x, mine ? 5000 : 1, ncclFloat, ncclSum, c, s);
    case 2: return ncclAllReduce(x, x, 1000, mine ? ncclFloat : ncclInt32, ncclSum, c, s);
    case 3: return ncclAllReduce(x, x, 1000, ncclFloat, mine ? ncclSum : ncclMax, c, s);
    case 4: return mine ? ncclAllReduce(x, x, 1000, ncclFloat, ncclSum, c, s)
                        : ncclAllGather(x + 4000 * w->rank[i], x, 1000, ncclFloat, c, s);
    case 5: return ncclReduce(x, x, 1000, ncclFloat, ncclSum, !mine, c, s);
    case 6: return ncclBroadcast(x, x, 1000, ncclFloat, !mine, c, s);
    case 7: return ncclScatter(x, x + 2000, mine ? 10 : 20, ncclFloat, 0, c, s);
    default: return ncclAllReduce(x, x, mine ? 0 : 1, ncclFloat, ncclSum, c, s);
    }
}

static void differ(gpu_worker *w)
{
    char *x[CONFORM_RANKS] = { 0 };
    int   which = *(int *)w->arg;
    bool  ok = get_buffers(w, x);

    for (int i = 0; ok && i < w->nmine; i++)
        ok = OK_OR_TELL(call_differently(w, i, which, w->rank[i] == 0, x[i]));
    for (int i = 0; ok && i < w->nmine; i++) {
        const ncclResult_t r = told(w->comm[i], SECONDS);
        CHECK(r == ncclInvalidUsage, "%s: rank %d: %s", differences[which].name, w->rank[i], ncclGetErrorString(r));
        CHECK(ncclAllReduce(x[i], x[i], 1, ncclFloat, ncclSum, w->comm[i], (cudaStream_t)w->stream[i]) != ncclSuccess,
              "rank %d goes on", w->rank[i]);
        const char *text = ncclGetLastError(w->comm[i]);
        CHECK(strstr(text, differences[which].mine) && strstr(text, differences[which].theirs) && strstr(text, "rank 0 calls"),
              "%s: rank %d: '%s' and '%s' are not both in: %s", differences[which].name, w->rank[i], differences[which].mine,
              differences[which].theirs, text);
        gpu_sync(w, i, w->stream[i]);
    }
    gpu_meet(w, ALL_POSTED);
    abort_all(w);
    works_again(w, x);
    free_buffers(w, x);
}

static const struct { int n, ndevices; gpu_place place; } teams[] = {
    { 2, 0, GPU_PROCESSES }, { 3, 0, GPU_PROCESSES }, { 3, 1, GPU_THREADS }, { 2, 2, GPU_ONE_THREAD }, { 4, 2, GPU_THREADS },
};
static const char *const envs[] = { "RCCLX_ALGO=", "NCCL_PROTO=LL", "NCCL_PROTO=LL128", "NCCL_PROTO=Simple",
                                    "RCCLX_ALGO=staged" };

TEST(calls_that_differ)
{
    const int ndifferences = sizeof differences / sizeof *differences, nteams = sizeof teams / sizeof *teams;

    for (int which = 0; which < ndifferences; which++)
        for (int e = 0; e < 5; e++) {
            const int k = (which + e) % nteams;
            gpu_team  t = { .n = teams[k].n, .ndevices = teams[k].ndevices, .place = teams[k].place, .work = differ,
                            .arg = &which };
            snprintf(t.env[0], sizeof t.env[0], "%s", envs[e]);
            if (!gpu_fits(&t))
                continue;
            CASE("%s, %s, %d ranks, %s", differences[which].name, envs[e], t.n, gpu_place_names[t.place]) {
                CHECK(gpu_run(&t) == 0, "ranks failed");
                gpu_end(&t);
            }
        }
}

/* ---- a rank that never calls */

static void *abort_soon(void *arg)
{
    usleep(200000);
    const double began = check_now();
    OK_OR_TELL(ncclCommAbort((ncclComm_t)arg));
    CHECK(check_now() - began < check_scale(), "the abort took %.2f s", check_now() - began);
    return NULL;
}

/* The last rank does not call. The others hang in their streams; other threads abort. */
static void never(gpu_worker *w)
{
    char     *x[CONFORM_RANKS] = { 0 };
    pthread_t thread[CONFORM_RANKS];
    bool      ok = get_buffers(w, x);

    for (int i = 0; ok && i < w->nmine; i++)
        for (int k = 0; ok && w->rank[i] != w->n - 1 && k < 20; k++)
            ok = OK_OR_TELL(ncclAllReduce(x[i], x[i], k % 2 ? 5000 : 10, ncclFloat, ncclSum, w->comm[i],
                                          (cudaStream_t)w->stream[i]));
    for (int i = 0; i < w->nmine; i++)
        if (pthread_create(&thread[i], NULL, abort_soon, w->comm[i]))
            check_give_up();
    const double began = check_now();
    for (int i = 0; ok && i < w->nmine; i++)
        gpu_sync(w, i, w->stream[i]);
    CHECK(check_now() - began < 1.5 * check_scale(), "kernels were there for %.2f s", check_now() - began);
    for (int i = 0; i < w->nmine; i++) {
        pthread_join(thread[i], NULL);
        w->comm[i] = NULL;
    }
    works_again(w, x);
    free_buffers(w, x);
}

TEST(a_rank_that_never_calls_and_abort)
{
    for (size_t k = 0; k < sizeof teams / sizeof *teams; k++)
        for (int e = 0; e < 5; e++) {
            gpu_team t = { .n = teams[k].n, .ndevices = teams[k].ndevices, .place = teams[k].place, .work = never,
                           .env = { "", "RCCLX_TIMEOUT=0" } };
            snprintf(t.env[0], sizeof t.env[0], "%s", envs[e]);
            if (!gpu_fits(&t))
                continue;
            CASE("%s, %d ranks, %s", envs[e], t.n, gpu_place_names[t.place]) {
                CHECK(gpu_run(&t) == 0, "ranks failed");
                gpu_end(&t);
            }
        }
}

/* ---- a process that is killed */

enum { VICTIM = 1 };

static bool capture(gpu_worker *w, char *x, rcclx_gpu_graph *graph)
{
    rcclx_gpu_scope s;

    DRIVER_OK(w->gpu->enter(&s, w->device[0]));
    DRIVER_OK(w->gpu->capture_begin(w->stream[0]));
    OK_OR_TELL(ncclAllReduce(x, x, 500, ncclFloat, ncclSum, w->comm[0], (cudaStream_t)w->stream[0]));
    const bool ok = DRIVER_OK(w->gpu->capture_end(w->stream[0], graph));
    w->gpu->leave(&s);
    return ok;
}

/* false: it is refused, for a death is known at once. */
static bool go_on(gpu_worker *w, char *x, rcclx_gpu_graph graph)
{
    rcclx_gpu_scope s;

    if (!graph)
        return ncclAllReduce(x, x, 500, ncclFloat, ncclSum, w->comm[0], (cudaStream_t)w->stream[0]) == ncclSuccess;
    DRIVER_OK(w->gpu->enter(&s, w->device[0]));
    const bool ok = DRIVER_OK(w->gpu->graph_launch(graph, w->stream[0]));
    w->gpu->leave(&s);
    return ok;
}

static void dies(gpu_worker *w)
{
    const bool      in_graph = *(bool *)w->arg;
    char           *x[CONFORM_RANKS] = { 0 };
    rcclx_gpu_graph graph = NULL;
    bool            ok = get_buffers(w, x) && (!in_graph || capture(w, x[0], &graph));

    for (int k = 0; ok && k < 3; k++)
        ok = CHECK(go_on(w, x[0], graph), "%s", ncclGetLastError(NULL));
    ok = ok && gpu_sync(w, 0, w->stream[0]);
    gpu_meet(w, ALL_POSTED);
    if (w->rank[0] == VICTIM)
        raise(SIGKILL);
    const double began = check_now();
    for (int k = 0; ok && k < 5 && go_on(w, x[0], graph); k++)
        ;
    CHECK(told(w->comm[0], SECONDS) == ncclRemoteError, "rank %d waits on", w->rank[0]);
    CHECK(check_now() - began < 1.2 * check_scale(), "it took %.2f s", check_now() - began);
    CHECK(ncclAllReduce(x[0], x[0], 1, ncclFloat, ncclSum, w->comm[0], (cudaStream_t)w->stream[0]) != ncclSuccess, "it goes on");
    const char *text = ncclGetLastError(w->comm[0]);
    CHECK(strstr(text, "rank 1") && strstr(text, "ended"), "no word of rank 1 in: %s", text);
    if (graph) /* nobody but its owner knows how often it has still to run */
        gpu_sync(w, 0, w->stream[0]);
    abort_all(w);
    if (graph)
        DRIVER_OK(w->gpu->graph_destroy(graph));
    /* those that are left go on together */
    w->rank[0] -= w->rank[0] > VICTIM;
    w->n--;
    works_again(w, x);
    free_buffers(w, x);
}

TEST(a_process_that_is_killed)
{
    for (int graph = 0; graph < 2; graph++)
        for (int e = 0; e < 5; e++)
            for (int n = 2; n <= 5; n += 3) {
                bool        is_graph = graph;
                gpu_team    t = { .n = n, .place = GPU_PROCESSES, .work = dies, .arg = &is_graph,
                                  .env = { "", "RCCLX_TIMEOUT=0" } };
                check_ranks ranks;
                snprintf(t.env[0], sizeof t.env[0], "%s", envs[e]);
                if (!gpu_fits(&t) || !gpu_begin(&t))
                    continue;
                CASE("%s, %d ranks%s", envs[e], n, graph ? ", in a graph" : "") {
                    check_ranks_start(&ranks, n, gpu_process, &t);
                    check_ranks_wait(&ranks, CHECK_RANK_SECONDS);
                    for (int r = 0; r < n; r++)
                        CHECK(ranks.status[r] == (r == VICTIM ? -SIGKILL : 0), "rank %d: %d", r, ranks.status[r]);
                }
                gpu_end(&t);
            }
}

/* ---- pointers that no kernel may touch */

static void refused(ncclResult_t r, const char *name, const char *word)
{
    const char *text = ncclGetLastError(NULL);

    CHECK(r == ncclInvalidArgument, "%s was taken: %s", name, ncclGetErrorString(r));
    CHECK(strstr(text, word) && strstr(text, "rank 0"), "%s: '%s' is not in: %s", name, word, text);
}

static void points_astray(gpu_worker *w)
{
    const ncclComm_t   c = w->comm[0];
    const cudaStream_t s = (cudaStream_t)w->stream[0];
    const size_t       most = (size_t)WORDS * (size_t)w->n;
    static uint32_t    host[WORDS];
    char              *x[CONFORM_RANKS] = { 0 }, *freed;
    bool               ok = get_buffers(w, x) && gpu_alloc(w, 0, &freed, 1 << 22);

    if (!ok)
        return;
    gpu_free(w, 0, freed);
    refused(ncclAllReduce(host, x[0], 10, ncclUint32, ncclSum, c, s), "host memory", "sendbuff");
    refused(ncclAllReduce(x[0], host, 10, ncclUint32, ncclSum, c, s), "host memory", "recvbuff");
    refused(ncclBroadcast(x[0], &ok, 1, ncclInt8, 1, c, s), "the stack", "recvbuff");
    refused(ncclAllReduce(freed, x[0], 10, ncclUint32, ncclSum, c, s), "freed memory", "freed");
    refused(ncclAllReduce(x[0], x[0], most + (64 << 20), ncclUint32, ncclSum, c, s), "a short buffer", "reach beyond");
    refused(ncclAllGather(x[0], x[0], most + (32 << 20), ncclUint32, c, s), "a short output", "reach beyond");
    refused(ncclAllReduce(NULL, x[0], 10, ncclUint32, ncclSum, c, s), "NULL", "NULL");
    if (w->device[1] != w->device[0]) {
        refused(ncclAllReduce(x[1], x[0], 10, ncclUint32, ncclSum, c, s), "another device's memory", "device 1");
        refused(ncclAllReduce(x[0], x[1], 10, ncclUint32, ncclSum, c, s), "another device's memory", "device 1");
    }
    for (int i = 0; i < w->nmine; i++) { /* the communicator is none the worse */
        OK_OR_TELL(ncclCommDestroy(w->comm[i]));
        w->comm[i] = NULL;
    }
    works_again(w, x);
    free_buffers(w, x);
}

TEST(pointers_that_no_kernel_may_touch)
{
    for (int ndevices = 1; ndevices <= 2; ndevices++) {
        gpu_team t = { .n = 2, .ndevices = ndevices, .place = GPU_ONE_THREAD, .work = points_astray };
        if (!gpu_fits(&t))
            continue;
        CASE("2 ranks on %d devices", ndevices) {
            CHECK(gpu_run(&t) == 0, "ranks failed");
            gpu_end(&t);
        }
    }
}
