#ifndef RCCLX_TESTS_GPU_RANKS_H
#define RCCLX_TESTS_GPU_RANKS_H

/* For tests of communicators on GPUs, real or emulated: the same programs on both.
 *
 *   const gpu_kinds *here = gpu_here();            CUDA's if there are any, else HIP's, else emulated
 *   gpu_team t = { .n = 5, .place = GPU_THREADS, .work = work, .env = { "NCCL_PROTO=LL" } };
 *   if (gpu_fits(&t))
 *       CHECK(gpu_run(&t) == 0, "ranks failed");
 *   gpu_end(&t);
 *
 *   GPU_PROCESSES    ranks are processes, a device each        GPU_THREADS    threads, a device each
 *   GPU_ONE_THREAD   one thread has them all, a device each    .ndevices = 2  not in processes: ranks share two
 *   .machines = 2    processes on two machines, which are this one under other names
 *
 * RCCLX_TEST_DEVICE=cuda|hip|emu forces a kind; with RCCLX_TEST_RANKS=n only teams of n ranks fit.
 * `work` runs once a place, between init and destroy, in a fresh process: the program itself never
 * calls the library or a driver, which would not outlive a fork. Settings of the caller's environment
 * are not seen, those in .env are; a call that hangs ends by RCCLX_TIMEOUT. */
#include "conform/conform.h"

#include "base/log.h"
#include "device/gpu.h"

typedef enum { GPU_PROCESSES, GPU_THREADS, GPU_ONE_THREAD, GPU_PLACES } gpu_place;
static const char *const gpu_place_names[GPU_PLACES] = { "processes", "threads", "one thread" };

typedef struct {
    rcclx_gpu_kind kind;
    int            count;
    char           name[16];
} gpu_kinds;

enum { GPU_ENV = 8, GPU_DEADLINE = 25 };

typedef struct gpu_team gpu_team;

/* A place: some ranks of a team. */
typedef struct {
    gpu_team        *team;
    void            *arg;
    const rcclx_gpu *gpu;
    int              n, nmine;
    int              rank[CONFORM_RANKS], device[CONFORM_RANKS];
    ncclComm_t       comm[CONFORM_RANKS];
    rcclx_gpu_stream stream[CONFORM_RANKS];
} gpu_worker;

struct gpu_team {
    int             n, ndevices; /* ndevices: that they share; 0: a device each */
    gpu_place       place;
    int             machines;    /* that ranks are dealt to, in order; processes only; 0: one */
    bool            mixed;       /* in turn */
    char            env[GPU_ENV][64];
    void          (*work)(gpu_worker *w);
    void           *arg;
    int             proc;        /* which one this is; set by run */
    conform_shared *shared;
};

#define DRIVER_OK(call)                                                            \
    __extension__({                                                                \
        rcclx_status s_ = (call);                                                  \
        CHECK(s_ == RCCLX_OK, "%s: %s", #call, rcclx_last_error());                \
        s_ == RCCLX_OK;                                                            \
    })

/* ---- which GPUs */

static inline void gpu_probe(gpu_kinds *found)
{
    static const rcclx_gpu_kind order[] = { RCCLX_GPU_CUDA, RCCLX_GPU_HIP, RCCLX_GPU_EMU };
    const char *forced = getenv("RCCLX_TEST_DEVICE");
    char        why[200];

    for (int i = 0; i < 3; i++) {
        const rcclx_gpu *g = rcclx_gpu_open(order[i], why, sizeof why);
        if (!g || g->count < 1 || (forced && *forced && strcmp(forced, g->name)))
            continue;
        found->kind = g->kind;
        found->count = g->count;
        snprintf(found->name, sizeof found->name, "%s", g->name);
        return;
    }
}

/* Looked up in a process that then ends. */
static inline const gpu_kinds *gpu_here(void)
{
    static gpu_kinds here;
    gpu_kinds       *shared;

    if (here.count)
        return &here;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        exit(99);
    const pid_t pid = fork();
    if (pid == 0) {
        gpu_probe(shared);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    here = *shared;
    munmap(shared, sizeof *shared);
    if (!here.count) {
        const char *forced = getenv("RCCLX_TEST_DEVICE");
        check_say("# no GPUs of RCCLX_TEST_DEVICE=%s\n", forced ? forced : "");
        exit(99);
    }
    check_say("# on %d devices of %s\n", here.count, here.name);
    return &here;
}

/* Are there devices enough, and is it as many ranks as are asked for? */
static inline bool gpu_fits(const gpu_team *t)
{
    const gpu_kinds *here = gpu_here();
    const char      *only = getenv("RCCLX_TEST_RANKS");

    if (only && atoi(only) != t->n)
        return false;
    return (t->ndevices ? t->ndevices : t->n) <= here->count && !(t->ndevices && t->place == GPU_PROCESSES);
}

/* ---- memory; `i` counts a place's ranks */

static inline bool gpu_alloc(const gpu_worker *w, int i, char **p, size_t nbytes)
{
    rcclx_gpu_scope s;
    void           *made = NULL;

    DRIVER_OK(w->gpu->enter(&s, w->device[i]));
    const bool ok = DRIVER_OK(w->gpu->alloc(&made, nbytes, false));
    w->gpu->leave(&s);
    *p = made;
    return ok;
}

static inline bool gpu_alloc_nccl(const gpu_worker *w, int i, char **p, size_t nbytes)
{
    rcclx_gpu_scope s;
    void           *made = NULL;

    DRIVER_OK(w->gpu->enter(&s, w->device[i]));
    const bool ok = OK_OR_TELL(ncclMemAlloc(&made, nbytes));
    w->gpu->leave(&s);
    *p = made;
    return ok;
}

static inline void gpu_free(const gpu_worker *w, int i, char *p)
{
    rcclx_gpu_scope s;

    DRIVER_OK(w->gpu->enter(&s, w->device[i]));
    if (p)
        DRIVER_OK(w->gpu->free(p));
    w->gpu->leave(&s);
}

/* Copy, by the rank's stream; nothing is waited for. */
static inline bool gpu_copy(const gpu_worker *w, int i, void *to, const void *from, size_t nbytes)
{
    rcclx_gpu_scope s;

    DRIVER_OK(w->gpu->enter(&s, w->device[i]));
    const bool ok = !nbytes || DRIVER_OK(w->gpu->copy(to, from, nbytes, w->stream[i]));
    w->gpu->leave(&s);
    return ok;
}

static inline bool gpu_sync(const gpu_worker *w, int i, rcclx_gpu_stream stream)
{
    rcclx_gpu_scope s;

    DRIVER_OK(w->gpu->enter(&s, w->device[i]));
    const bool ok = DRIVER_OK(w->gpu->stream_sync(stream));
    w->gpu->leave(&s);
    return ok;
}

static inline bool gpu_put(const gpu_worker *w, int i, void *to, const void *from, size_t nbytes)
{
    return gpu_copy(w, i, to, from, nbytes) && gpu_sync(w, i, w->stream[i]);
}

/* Bring what the rank's stream has computed. */
static inline bool gpu_get(const gpu_worker *w, int i, void *to, const void *from, size_t nbytes)
{
    return gpu_put(w, i, to, from, nbytes);
}

static inline rcclx_gpu_stream gpu_stream(const gpu_worker *w, int i)
{
    rcclx_gpu_scope  s;
    rcclx_gpu_stream made = NULL;

    DRIVER_OK(w->gpu->enter(&s, w->device[i]));
    DRIVER_OK(w->gpu->stream_create(&made));
    w->gpu->leave(&s);
    return made;
}

static inline void gpu_stream_end(const gpu_worker *w, int i, rcclx_gpu_stream stream)
{
    rcclx_gpu_scope s;

    DRIVER_OK(w->gpu->enter(&s, w->device[i]));
    DRIVER_OK(w->gpu->stream_destroy(stream));
    w->gpu->leave(&s);
}

/* ---- running */

/* A place with one rank calls it alone, one with several in a group. */
static inline void gpu_open(const gpu_worker *w)
{
    if (w->nmine > 1)
        OK_OR_TELL(ncclGroupStart());
}

static inline bool gpu_close(const gpu_worker *w)
{
    return w->nmine == 1 || OK_OR_TELL(ncclGroupEnd());
}

/* All ranks of a communicator, over id. */
static inline bool gpu_init(const gpu_worker *w, ncclComm_t *comm, ncclUniqueId id)
{
    rcclx_gpu_scope s;

    gpu_open(w);
    for (int i = 0; i < w->nmine; i++) {
        DRIVER_OK(w->gpu->enter(&s, w->device[i]));
        OK_OR_TELL(ncclCommInitRank(&comm[i], w->n, id, w->rank[i]));
        w->gpu->leave(&s);
    }
    return gpu_close(w) && comm[0];
}

static inline int gpu_work(int place, int nplaces, void *arg)
{
    gpu_team  *t = arg;
    gpu_worker w = { .team = t, .arg = t->arg, .n = t->n };
    char       why[200];

    w.gpu = rcclx_gpu_open(gpu_here()->kind, why, sizeof why);
    if (!CHECK(w.gpu, "%s", why))
        return 1;
    for (int r = t->place == GPU_PROCESSES ? t->proc : place; r < t->n; r += t->place == GPU_PROCESSES ? t->n : nplaces) {
        w.device[w.nmine] = t->ndevices ? r % t->ndevices : r;
        w.rank[w.nmine++] = r;
    }
    for (int i = 0; i < w.nmine; i++)
        w.stream[i] = gpu_stream(&w, i);
    if (!gpu_init(&w, w.comm, t->shared->id))
        return 1;
    t->work(&w);
    for (int i = 0; i < w.nmine; i++) {
        if (w.comm[i])
            OK_OR_TELL(ncclCommDestroy(w.comm[i]));
        if (w.stream[i])
            gpu_stream_end(&w, i, w.stream[i]);
    }
    return 0;
}

/* Settings of the library that the caller has, but for what is for tests and for the log. */
static inline void gpu_forget_settings(void)
{
    for (char **e = environ; *e; e++) {
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
        if ((strncmp(name, "NCCL_", 5) && strncmp(name, "RCCL_", 5) && strncmp(name, "RCCLX_", 6)) ||
            !strncmp(name, "RCCLX_TEST_", 11) || !strncmp(name, "NCCL_DEBUG", 10) || !strcmp(name, "RCCLX_BUILD"))
            continue;
        unsetenv(name);
        e = environ - 1; /* what comes after has moved */
    }
}

static inline void gpu_environment(const gpu_team *t)
{
    char limit[32];

    snprintf(limit, sizeof limit, "%g", GPU_DEADLINE * check_scale());
    gpu_forget_settings();
    setenv("NCCL_DEBUG", "NONE", 0);
    setenv("RCCLX_DEVICE", gpu_here()->name, 1);
    setenv("RCCLX_TIMEOUT", limit, 1);
    setenv("RCCLX_INIT_TIMEOUT", limit, 1);
    /* ranks that share a device wait for each other: each stream of theirs needs a queue of its own */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    setenv("GPU_MAX_HW_QUEUES", "24", 1);
#ifdef __SANITIZE_THREAD__
    setenv("NCCL_MAX_CTAS", "4", 1); /* it knows 8128 threads, and every lane of an emulated GPU is one */
#endif
    for (int i = 0; i < GPU_ENV && *t->env[i]; i++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(t->env[i], "="), t->env[i]);
        setenv(name, t->env[i] + strcspn(t->env[i], "=") + 1, 1);
    }
}

static inline int gpu_process(int proc, int nprocs, void *arg)
{
    gpu_team *t = arg;

    (void)nprocs;
    t->proc = proc;
    gpu_environment(t);
    if (t->machines) {
        char name[32];
        snprintf(name, sizeof name, "machine %d", t->mixed ? proc % t->machines : proc * t->machines / t->n);
        setenv("NCCL_HOSTID", name, 1);
        setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    }
    if (proc == 0) {
        if (!OK_OR_TELL(ncclGetUniqueId(&t->shared->id)))
            return 1;
        atomic_store(&t->shared->have_id, 1);
    }
    if (!WAIT_FOR(atomic_load(&t->shared->have_id), 20))
        return 1;
    return t->place == GPU_THREADS ? run_ranks_as_threads(t->n, gpu_work, t) != 0 : gpu_work(0, 1, t);
}

static inline bool gpu_begin(gpu_team *t)
{
    (void)gpu_here();
    t->shared = mmap(NULL, sizeof *t->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return CHECK(t->shared != MAP_FAILED, "no memory");
}

static inline int gpu_run(gpu_team *t)
{
    if (!gpu_begin(t))
        return t->n;
    return run_ranks_as_processes(t->place == GPU_PROCESSES ? t->n : 1, gpu_process, t);
}

static inline void gpu_end(gpu_team *t)
{
    if (t->shared && t->shared != MAP_FAILED)
        munmap(t->shared, sizeof *t->shared);
    t->shared = NULL;
}

/* A case for each place that has room for n ranks. */
static inline void gpu_everywhere(const char *name, int n, void (*work)(gpu_worker *w), void *arg)
{
    for (int place = 0; place < GPU_PLACES; place++) {
        gpu_team t = { .n = n, .place = (gpu_place)place, .work = work, .arg = arg };
        if (!gpu_fits(&t))
            continue;
        CASE("%s, %d ranks, %s", name, n, gpu_place_names[place]) {
            CHECK(gpu_run(&t) == 0, "ranks failed");
            gpu_end(&t);
        }
    }
}

/* All w->n ranks are at meeting number `at` (each number once). false: some never came. */
static inline bool gpu_meet(const gpu_worker *w, int at)
{
    _Atomic int64_t *count = &w->team->shared->word[at];

    atomic_fetch_add(count, w->nmine);
    return CHECK(WAIT_FOR(atomic_load(count) >= w->n, GPU_DEADLINE), "ranks did not come to meeting %d", at);
}

/* ---- a sample that is the same at every run, unless RCCLX_TEST_SEED says otherwise (0: the clock's) */

static uint64_t gpu_seed_state;

static inline uint64_t gpu_seed(void)
{
    const char *s = getenv("RCCLX_TEST_SEED");
    uint64_t    seed = s ? strtoull(s, NULL, 0) : 1;

    if (!seed) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        seed = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    }
    check_say("# RCCLX_TEST_SEED=%llu\n", (unsigned long long)seed);
    gpu_seed_state = conform_mix(seed);
    return seed;
}

static inline int gpu_roll(uint64_t *state, int below)
{
    *state = conform_mix(*state + 0x9e3779b97f4a7c15u);
    return (int)((*state >> 20) % (uint64_t)below);
}

/* Cards drawn until none is left, then all anew; what does not fit is left out. */
typedef struct { int n, left, card[1024]; } gpu_deck;

static inline int gpu_draw(gpu_deck *d)
{
    if (!d->left) {
        for (int i = d->n - 1; i > 0; i--) {
            const int k = gpu_roll(&gpu_seed_state, i + 1), x = d->card[i];
            d->card[i] = d->card[k], d->card[k] = x;
        }
        d->left = d->n;
    }
    return d->card[--d->left];
}

static inline void gpu_add_card(gpu_deck *d, int card)
{
    if (d->n < (int)(sizeof d->card / sizeof *d->card))
        d->card[d->n++] = card;
}

/* Under a sanitizer a sample is a part of what it is otherwise. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { GPU_PART = 8 };
#else
enum { GPU_PART = 1 };
#endif

/* RCCLX_TEST_LONG=k: k times as much, and more; else 1. */
static inline int gpu_longer(int factor)
{
    const char *s = getenv("RCCLX_TEST_LONG");

    return s ? factor * (atoi(s) > 0 ? atoi(s) : 1) : 1;
}

#endif
