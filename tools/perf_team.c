/* How the workers of a measurement meet without using what they measure.
 *
 * Processes that this program forked share a mapping:
 *
 *   | arrived | round | verdict |   slot 0 | slot 1 | ... one a worker
 *
 * A gather writes one's slot, passes the barrier, reads all, and passes it again
 * so that nobody overwrites what another still reads. Processes of a launcher
 * have nothing but the library: there the threads of each process meet in the
 * same structure, and its first thread meets the other processes in an
 * all-gather on a communicator of its own, through device memory if that is
 * where the communicator lives.
 *
 * Waiting spins for as long as all workers can have a core, then yields; only a
 * wait beyond a tenth of a second sleeps, for the clock starts after a barrier. */
#include "perf.h"

#include "tool.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
    _Alignas(64) atomic_uint arrived;
    _Alignas(64) atomic_uint round;
    atomic_int verdict;
    _Alignas(64) char slots[][PERF_SLOT];
} meeting;

struct perf_team {
    int               nprocs, proc, threads, spins;
    const nccl_table *lib; /* NULL: all workers are in the mapping */
    ncclComm_t        comm;
    meeting          *m;
    size_t            m_bytes;
    char             *all; /* with lib: slots of all processes */
    const rcclx_gpu  *gpu; /* the communicator is one of device memory */
    int               device;
    rcclx_gpu_stream  stream;
    void             *there; /* on the device: slots of this process, then of all */
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Workers that meet in the mapping. */
static int here(const perf_team *t)
{
    return t->lib ? t->threads : t->nprocs * t->threads;
}

static perf_team *make(const nccl_table *lib, int nprocs, int threads)
{
    const int  cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    perf_team *t     = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    *t         = (perf_team){.nprocs = nprocs, .threads = threads, .lib = lib};
    t->spins   = nprocs * threads <= cores ? 20000 : 0;
    t->m_bytes = sizeof(meeting) + (size_t)nprocs * (size_t)threads * PERF_SLOT;
    t->m       = mmap(NULL, t->m_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (t->m == MAP_FAILED) {
        free(t);
        return NULL;
    }
    return t;
}

perf_team *perf_team_shared(int nprocs, int threads)
{
    return make(NULL, nprocs, threads);
}

static size_t slots_bytes(const perf_team *t)
{
    return (size_t)t->threads * PERF_SLOT;
}

static bool make_there(perf_team *t)
{
    const size_t    nbytes = slots_bytes(t) * ((size_t)t->nprocs + 1);
    rcclx_gpu_scope scope;
    bool            made;

    if (t->gpu->enter(&scope, t->device) != RCCLX_OK)
        return false;
    made = t->gpu->stream_create(&t->stream) == RCCLX_OK && t->gpu->alloc(&t->there, nbytes, false) == RCCLX_OK;
    t->gpu->leave(&scope);
    return made;
}

static void free_there(perf_team *t)
{
    rcclx_gpu_scope scope;

    if (t->gpu->enter(&scope, t->device) != RCCLX_OK)
        return;
    if (t->there)
        t->gpu->free(t->there);
    if (t->stream)
        t->gpu->stream_destroy(t->stream);
    t->gpu->leave(&scope);
}

perf_team *perf_team_comm(const nccl_table *lib, ncclComm_t comm, int nprocs, int proc, int threads,
                          const rcclx_gpu *gpu, int device)
{
    perf_team *t = make(lib, nprocs, threads);

    if (!t)
        return NULL;
    t->comm   = comm;
    t->proc   = proc;
    t->gpu    = gpu;
    t->device = device;
    t->all    = calloc((size_t)nprocs * (size_t)threads, PERF_SLOT);
    if (!t->all || (gpu && !make_there(t))) {
        perf_team_destroy(t);
        return NULL;
    }
    return t;
}

void perf_team_join(perf_team *t, int proc)
{
    t->proc = proc;
}

void perf_team_destroy(perf_team *t)
{
    if (!t)
        return;
    if (t->gpu)
        free_there(t);
    munmap(t->m, t->m_bytes);
    free(t->all);
    free(t);
}

int perf_team_workers(const perf_team *t)
{
    return t->nprocs * t->threads;
}

int perf_team_proc(const perf_team *t)
{
    return t->proc;
}

void perf_team_verdict_set(perf_team *t, int code)
{
    atomic_store(&t->m->verdict, code);
}

int perf_team_verdict(const perf_team *t)
{
    return atomic_load(&t->m->verdict);
}

static void wait_round(const perf_team *t, unsigned round)
{
    struct timespec start, now;

    for (int i = 0; i < t->spins; i++) {
        if (atomic_load_explicit(&t->m->round, memory_order_acquire) != round)
            return;
        relax();
    }
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (atomic_load_explicit(&t->m->round, memory_order_acquire) == round) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 > 100)
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        else
            sched_yield();
    }
}

static void meet(perf_team *t)
{
    const unsigned round = atomic_load_explicit(&t->m->round, memory_order_acquire);

    if (atomic_fetch_add_explicit(&t->m->arrived, 1, memory_order_acq_rel) + 1 < (unsigned)here(t)) {
        wait_round(t, round);
        return;
    }
    atomic_store_explicit(&t->m->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&t->m->round, round + 1, memory_order_release);
}

static ncclResult_t gather_there(perf_team *t, const void *slots, size_t nbytes)
{
    const rcclx_gpu *g    = t->gpu;
    char            *from = t->there, *to = from + slots_bytes(t);
    rcclx_gpu_scope  scope;
    ncclResult_t     r = ncclUnhandledCudaError;

    if (g->enter(&scope, t->device) != RCCLX_OK)
        return r;
    if (g->copy(from, slots, nbytes, t->stream) == RCCLX_OK)
        r = t->lib->ncclAllGather(from, to, nbytes, ncclInt8, t->comm, t->stream);
    if (r == ncclSuccess && (g->copy(t->all, to, nbytes * (size_t)t->nprocs, t->stream) != RCCLX_OK ||
                             g->stream_sync(t->stream) != RCCLX_OK))
        r = ncclUnhandledCudaError;
    g->leave(&scope);
    return r;
}

/* This process' slots to all processes. */
static void meet_others(perf_team *t, const void *slots, size_t nbytes)
{
    const ncclResult_t r = t->gpu ? gather_there(t, slots, nbytes)
                                  : t->lib->ncclAllGather(slots, t->all, nbytes, ncclInt8, t->comm, NULL);

    if (r == ncclSuccess)
        return;
    tool_fail("perf", "process %d: meeting the other processes: %s", t->proc, t->lib->ncclGetErrorString(r));
    fflush(NULL);
    _exit(TOOL_FAILED);
}

void perf_team_barrier(perf_team *t, int worker)
{
    meet(t);
    if (!t->lib)
        return;
    if (worker % t->threads == 0)
        meet_others(t, t->m->slots, 1);
    meet(t);
}

void perf_team_gather(perf_team *t, int worker, const void *mine, size_t nbytes, void *all)
{
    const int   first = t->lib ? t->proc * t->threads : 0;
    const char *from  = t->lib ? t->all : t->m->slots[0];

    memcpy(t->m->slots[worker - first], mine, nbytes);
    meet(t);
    if (t->lib) {
        if (worker == first)
            meet_others(t, t->m->slots, slots_bytes(t));
        meet(t);
    }
    for (int w = 0; w < perf_team_workers(t); w++)
        memcpy((char *)all + (size_t)w * nbytes, from + (size_t)w * PERF_SLOT, nbytes);
    meet(t);
}
