/* Communicators on emulated GPUs whose ranks are processes: one that dies, two on one
 * device, one that is on the host. Nothing of the library runs before the ranks are forked. */
#include "check.h"

#include "gpu/emu_ranks.h"

TIME_LIMIT(300)

enum { COUNT = 5000 };

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

typedef struct {
    atomic_int   made, posted;
    ncclUniqueId id;
    bool         same_device, dies, on_host;
    char         text[2][1024];
} shared;

static rcclx_gpu_scope current;

static ncclResult_t join(shared *s, int rank, int n, ncclComm_t *c)
{
    emu_settings(s->on_host && rank == 1 ? "RCCLX_DEVICE=host" : NULL, NULL);
    if (rank == 0) {
        EMU_OK(ncclGetUniqueId(&s->id));
        atomic_store(&s->made, 1);
    }
    CHECK(WAIT_FOR(atomic_load(&s->made), 10), "no id");
    EMU_DO(emu_gpu()->enter(&current, s->same_device ? 0 : rank));
    return ncclCommInitRank(c, n, s->id, rank);
}

static int dies(int rank, int n, void *arg)
{
    shared *s = arg;
    const rcclx_gpu *g = emu_gpu();
    rcclx_gpu_stream stream;
    ncclComm_t c;
    void *p;

    if (!EMU_OK(join(s, rank, n, &c)))
        return 1;
    EMU_DO(g->stream_create(&stream));
    EMU_DO(g->alloc(&p, COUNT * sizeof(float), false));
    EMU_OK(ncclAllReduce(p, p, COUNT, ncclFloat, ncclSum, c, (cudaStream_t)stream));
    EMU_DO(g->stream_sync(stream));
    if (rank == 1) { /* once the others wait in the next collective, so that none hears of it before its call */
        CHECK(WAIT_FOR(atomic_load(&s->posted) == n - 1, 10), "the others have not called");
        raise(SIGKILL);
    }
    EMU_OK(ncclAllReduce(p, p, COUNT, ncclFloat, ncclSum, c, (cudaStream_t)stream));
    atomic_fetch_add(&s->posted, 1);
    const double began = check_now();
    CHECK(async(c, 10) == ncclRemoteError, "rank %d waits on", rank);
    CHECK(check_now() - began < 2 * check_scale(), "it took %.1f s", check_now() - began);
    EMU_DO(g->stream_sync(stream));
    CHECK(ncclAllReduce(p, p, COUNT, ncclFloat, ncclSum, c, (cudaStream_t)stream) == ncclRemoteError, "rank %d goes on", rank);
    says(ncclGetLastError(NULL), "rank 1", "ended");
    EMU_OK(ncclCommAbort(c));
    return 0;
}

static shared *share(void)
{
    return mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

TEST(a_process_that_dies_is_named)
{
    shared *s = share();
    check_ranks ranks;

    check_ranks_start(&ranks, 3, dies, s);
    check_ranks_wait(&ranks, 60);
    for (int r = 0; r < 3; r++)
        CHECK(ranks.status[r] == (r == 1 ? -SIGKILL : 0), "rank %d: %d", r, ranks.status[r]);
    munmap(s, sizeof *s);
}

static int refused(int rank, int n, void *arg)
{
    shared *s = arg;
    ncclComm_t c = NULL;
    const ncclResult_t r = join(s, rank, n, &c);

    CHECK(r != ncclSuccess && !c, "rank %d: %d", rank, (int)r);
    snprintf(s->text[rank], sizeof s->text[rank], "%s", ncclGetLastError(NULL));
    return 0;
}

TEST(two_processes_on_one_device_are_refused)
{
    shared *s = share();

    s->same_device = true;
    CHECK(run_ranks_as_processes(2, refused, s) == 0, "ranks failed");
    says(s->text[0], "Duplicate GPU detected : rank 0 and rank 1 both on", "device");
    says(s->text[1], "Duplicate GPU detected : rank 0 and rank 1 both on", "device");
    munmap(s, sizeof *s);
}

TEST(ranks_on_host_and_gpu_do_not_mix)
{
    shared *s = share();

    s->on_host = true;
    CHECK(run_ranks_as_processes(2, refused, s) == 0, "ranks failed");
    says(s->text[0], "rank 0 is on emu and rank 1 on host memory", "RCCLX_DEVICE");
    says(s->text[1], "rank 0", "failed");
    munmap(s, sizeof *s);
}
