/* Communicators on emulated GPUs when something is wrong: arguments, calls that differ, a
 * rank that does not come, that dies, that leaves; aborts; devices that do not fit. */
#include "check.h"

#include "gpu/emu_ranks.h"

TIME_LIMIT(300)

enum { COUNT = 5000 };

static ncclResult_t reduce(const emu_ranks *e, int r, size_t count)
{
    return ncclAllReduce(e->in[r], e->out[r], count, ncclFloat, ncclSum, e->comm[r], (cudaStream_t)e->stream[r]);
}

static bool says(const char *text, const char *a, const char *b)
{
    return CHECK(strstr(text, a) && strstr(text, b), "'%s' and '%s' are not in: %s", a, b, text);
}

/* The communicator's own answer, when it is no longer success. */
static ncclResult_t async(ncclComm_t c, double seconds)
{
    ncclResult_t r = ncclSuccess;

    (void)WAIT_FOR(ncclCommGetAsyncError(c, &r) != ncclSuccess || (r != ncclSuccess && r != ncclInProgress), seconds);
    return r;
}

static void abort_all(emu_ranks *e)
{
    for (int r = 0; r < e->n; r++) {
        const double began = check_now();
        EMU_OK(ncclCommAbort(e->comm[r]));
        CHECK(check_now() - began < check_scale(), "abort took %.2f s", check_now() - began);
        e->comm[r] = NULL;
    }
}

/* What ran into trouble leaves devices that work. */
static void works_again(void)
{
    emu_settings(NULL);
    emu_ranks *e = emu_open(2, COUNT * sizeof(float));
    EMU_OK(ncclGroupStart());
    for (int r = 0; r < 2; r++)
        EMU_OK(reduce(e, r, COUNT));
    EMU_OK(ncclGroupEnd());
    for (int r = 0; r < 2; r++)
        emu_wait(e, r);
    emu_close(e);
}

TEST(buffers_that_the_gpu_cannot_use_are_refused)
{
    static float host[COUNT];

    emu_settings(NULL);
    emu_ranks *e = emu_open(2, COUNT * sizeof(float));
    CHECK(ncclAllReduce(host, e->out[0], COUNT, ncclFloat, ncclSum, e->comm[0], NULL) == ncclInvalidArgument, "host memory was taken");
    says(ncclGetLastError(NULL), "sendbuff", "is host memory");
    CHECK(ncclAllReduce(e->in[0], e->out[1], COUNT, ncclFloat, ncclSum, e->comm[0], NULL) == ncclInvalidArgument, "another device's");
    says(ncclGetLastError(NULL), "recvbuff", "emu device 1");
    CHECK(ncclAllReduce(e->in[0], e->out[0], 100 * COUNT, ncclFloat, ncclSum, e->comm[0], NULL) == ncclInvalidArgument, "too long");
    says(ncclGetLastError(NULL), "reach beyond", "20000 bytes");
    CHECK(ncclAllReduce(e->in[0] + 2, e->out[0], 1, ncclFloat, ncclSum, e->comm[0], NULL) == ncclInvalidArgument, "unaligned");
    void *handle;
    CHECK(ncclCommRegister(e->comm[0], host, sizeof host, &handle) == ncclInvalidArgument, "host memory was registered");
    EMU_OK(ncclGroupStart());
    for (int r = 0; r < 2; r++)
        EMU_OK(reduce(e, r, COUNT));
    EMU_OK(ncclGroupEnd());
    emu_close(e);
}

TEST(calls_that_differ_are_told_on_both_ranks)
{
    emu_settings(NULL);
    emu_ranks *e = emu_open(2, COUNT * sizeof(float));
    EMU_OK(reduce(e, 0, 1000));
    EMU_OK(reduce(e, 1, 1001));
    for (int r = 0; r < 2; r++) {
        CHECK(async(e->comm[r], 5) == ncclInvalidUsage, "rank %d noticed nothing", r);
        CHECK(reduce(e, r, 1000) != ncclSuccess, "rank %d goes on", r);
    }
    says(ncclGetLastError(NULL), "AllReduce of 1000 float sum", "AllReduce of 1001 float sum");
    says(ncclGetLastError(NULL), "collective number 1", "same count, type, operator, root and precision");
    for (int r = 0; r < 2; r++)
        emu_wait(e, r);
    abort_all(e);
    emu_close(e);
    works_again();
}

TEST(a_rank_that_does_not_come_is_named_at_the_deadline)
{
    static const char *const ways[] = { "NCCL_PROTO=LL", "NCCL_PROTO=LL128", "NCCL_PROTO=Simple" };

    for (int w = 0; w < 3; w++) {
        char limit[64], told[64];
        snprintf(limit, sizeof limit, "RCCLX_TIMEOUT=%g", 0.3 * check_scale());
        snprintf(told, sizeof told, "RCCLX_TIMEOUT is %g s", 0.3 * check_scale());
        emu_settings(limit, ways[w], NULL);
        emu_ranks *e = emu_open(2, COUNT * sizeof(float));
        EMU_OK(reduce(e, 0, COUNT));
        CHECK(async(e->comm[0], 10) == ncclRemoteError, "%s: rank 0 waits on", ways[w]);
        CHECK(reduce(e, 0, COUNT) != ncclSuccess, "rank 0 goes on");
        says(ncclGetLastError(NULL), "AllReduce of 5000 float sum", told);
        says(ncclGetLastError(NULL), "for rank 1", "it has called 0 collectives");
        CHECK(async(e->comm[1], 5) != ncclSuccess, "rank 1 was not told");
        emu_wait(e, 0);
        emu_close(e);
    }
    works_again();
}

TEST(abort_ends_kernels_and_leaves_the_device)
{
    emu_settings(NULL);
    emu_ranks *e = emu_open(3, COUNT * sizeof(float));
    EMU_OK(reduce(e, 0, COUNT));
    EMU_OK(reduce(e, 2, 10));
    usleep(20000);
    const double began = check_now();
    EMU_OK(ncclCommAbort(e->comm[0]));
    CHECK(check_now() - began < check_scale(), "abort took %.2f s", check_now() - began);
    e->comm[0] = NULL;
    emu_wait(e, 0);
    CHECK(async(e->comm[1], 5) != ncclSuccess && async(e->comm[2], 5) != ncclSuccess, "the peers were not told");
    emu_wait(e, 2);
    abort_all(&(emu_ranks){ .n = 2, .comm = { e->comm[1], e->comm[2] } });
    e->comm[1] = e->comm[2] = NULL;
    emu_close(e);
    works_again();
}

/* Launches of a graph that are still queued need the communicator's memory to learn that they are to leave. */
TEST(abort_with_graphs_in_the_queue_leaves_the_device)
{
    enum { LAUNCHES = 2000 };
    rcclx_gpu_graph graph;
    rcclx_gpu_scope s;

    emu_settings(NULL);
    emu_ranks *e = emu_open(2, COUNT * sizeof(float));
    EMU_DO(e->gpu->enter(&s, e->device[0]));
    EMU_DO(e->gpu->capture_begin(e->stream[0]));
    EMU_OK(reduce(e, 0, COUNT));
    EMU_DO(e->gpu->capture_end(e->stream[0], &graph));
    for (int i = 0; i < LAUNCHES; i++)
        EMU_DO(e->gpu->graph_launch(graph, e->stream[0]));
    usleep(20000);
    const double began = check_now();
    EMU_OK(ncclCommAbort(e->comm[0]));
    CHECK(check_now() - began < check_scale(), "abort took %.2f s", check_now() - began);
    e->comm[0] = NULL;
    emu_wait(e, 0);
    EMU_DO(e->gpu->graph_destroy(graph));
    e->gpu->leave(&s);
    EMU_OK(ncclCommAbort(e->comm[1]));
    e->comm[1] = NULL;
    emu_close(e);
    works_again();
}

TEST(destroy_waits_for_what_was_handed_out)
{
    float host[COUNT];

    emu_settings(NULL);
    emu_ranks *e = emu_open(2, sizeof host);
    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < COUNT; i++)
            host[i] = (float)(r + i);
        emu_copy(e, r, e->in[r], host, sizeof host);
    }
    for (int i = 0; i < 20; i++) {
        EMU_OK(ncclGroupStart());
        for (int r = 0; r < 2; r++)
            EMU_OK(reduce(e, r, COUNT));
        EMU_OK(ncclGroupEnd());
    }
    for (int r = 0; r < 2; r++) {
        EMU_OK(ncclCommDestroy(e->comm[r]));
        e->comm[r] = NULL;
    }
    for (int r = 0; r < 2; r++) {
        emu_copy(e, r, host, e->out[r], sizeof host);
        for (int i = 0; i < COUNT; i++)
            if (!CHECK(host[i] == (float)(1 + 2 * i), "rank %d, element %d: %g", r, i, (double)host[i]))
                break;
    }
    emu_close(e);
}

TEST(a_rank_that_closed_is_not_waited_for)
{
    emu_settings(NULL);
    emu_ranks *e = emu_open(2, COUNT * sizeof(float));
    EMU_OK(ncclCommDestroy(e->comm[1]));
    e->comm[1] = NULL;
    EMU_OK(reduce(e, 0, COUNT));
    CHECK(async(e->comm[0], 10) == ncclRemoteError, "rank 0 waits on");
    CHECK(reduce(e, 0, COUNT) != ncclSuccess, "rank 0 goes on");
    says(ncclGetLastError(NULL), "rank 1", "has destroyed its communicator");
    emu_wait(e, 0);
    emu_close(e);
}

TEST(devices_are_checked_when_a_communicator_is_made)
{
    ncclComm_t c[64];
    int list[20] = { 0 };

    emu_settings(NULL);
    CHECK(ncclCommInitAll(c, 9, NULL) == ncclInvalidArgument, "nine of eight devices");
    says(ncclGetLastError(NULL), "rank 8 would be on emu device 8", "there are 8");
    CHECK(ncclCommInitAll(c, 17, list) == ncclInvalidUsage, "17 ranks");
    says(ncclGetLastError(NULL), "at most 16 ranks on GPUs", "RCCLX_DEVICE=host");
    EMU_OK(ncclCommInitAll(c, 2, (int[]){ 3, 3 }));
    int device = -1;
    EMU_OK(ncclCommCuDevice(c[1], &device));
    CHECK(device == 3, "device %d", device);
    for (int r = 0; r < 2; r++)
        EMU_OK(ncclCommDestroy(c[r]));
}
