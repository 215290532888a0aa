/* Buffers on GPUs: what ncclMemAlloc gives, what is registered with whom, and what a
 * program may pass.
 *
 *   ncclMemAlloc --> held: a list a process          first use with a team
 *                      [base, bytes, device] ... ----------------------------> registered there
 *   ncclMemFree  --> every team lets go of it, then the device's memory goes
 *
 * Registering waits a moment for the peers, who answer from their watch threads, so that
 * what is captured next finds the buffer in everybody's reach. It may not be: then the
 * operation is staged, on all ranks alike. */
#include "exec/gpu_team.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process.h"

#include <string.h>
#include <time.h>

enum { SETTLE_NS = 100000000 };

typedef struct {
    const rcclx_gpu *gpu;
    uintptr_t        base;
    size_t           nbytes;
    int              device;
} held;

typedef struct {
    pthread_mutex_t lock;    /* guards the lists; before any team's regs_lock */
    _Atomic int     nheld;
    held           *all;
    int             cap;
    rcclx_team    **teams;
    int             nteams, cap_teams;
} memory;

static memory *of_process(bool make)
{
    rcclx_process_state *p = rcclx_process();
    memory *m = __atomic_load_n((memory **)&p->gpu_memory, __ATOMIC_ACQUIRE);

    if (m || !make)
        return m;
    pthread_mutex_lock(&p->lock);
    m = p->gpu_memory;
    if (!m && (m = RCCLX_NEW(memory))) {
        pthread_mutex_init(&m->lock, NULL);
        __atomic_store_n((memory **)&p->gpu_memory, m, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&p->lock);
    return m;
}

/* Room for one more; the caller holds the lock. */
static void *grow(void *array, int n, int *cap, size_t size)
{
    if (n < *cap)
        return array;
    const int more = *cap ? 2 * *cap : 16;
    void *bigger = rcclx_mem_realloc(array, (size_t)more * size);
    if (bigger)
        *cap = more;
    return bigger;
}

/* --- ncclMemAlloc, ncclMemFree ----------------------------------------------------- */

static rcclx_status keep(const rcclx_gpu *gpu, void *p, size_t nbytes, int device)
{
    memory *m = of_process(true);

    if (!m)
        return RCCLX_FAIL(RCCLX_NOMEM, "ncclMemAlloc: no memory to remember %zu bytes of device %d", nbytes, device);
    pthread_mutex_lock(&m->lock);
    held *all = grow(m->all, m->nheld, &m->cap, sizeof(*all));
    if (all) {
        m->all = all;
        all[m->nheld] = (held){ gpu, (uintptr_t)p, nbytes, device };
        atomic_fetch_add(&m->nheld, 1);
    }
    pthread_mutex_unlock(&m->lock);
    return all ? RCCLX_OK : RCCLX_FAIL(RCCLX_NOMEM, "ncclMemAlloc: no memory to remember %zu bytes of device %d", nbytes, device);
}

static rcclx_status alloc_on(const rcclx_gpu *gpu, int device, void **p, size_t nbytes)
{
    rcclx_gpu_scope scope;

    RCCLX_TRY(gpu->enter(&scope, device));
    const int before = gpu->relax();
    rcclx_status s = gpu->alloc(p, nbytes, false);
    if (s == RCCLX_OK && (s = keep(gpu, *p, nbytes, device)) != RCCLX_OK) {
        gpu->free(*p);
        *p = NULL;
    }
    gpu->unrelax(before);
    gpu->leave(&scope);
    return s;
}

rcclx_status rcclx_gpu_memory_alloc(const rcclx_gpu *gpu, void **p, size_t nbytes)
{
    int device;

    *p = NULL;
    if (!nbytes)
        return RCCLX_OK;
    RCCLX_TRY(gpu->current(&device));
    return alloc_on(gpu, device, p, nbytes);
}

/* The team's registration of it, taken out; -1: none. */
static int take_joined(rcclx_gpu_team *g, uintptr_t base)
{
    int reg = -1;

    pthread_mutex_lock(&g->regs_lock);
    for (int i = 0; i < g->njoined; i++)
        if (g->joined[i].base == base) {
            reg = g->joined[i].reg;
            g->joined[i] = g->joined[--g->njoined];
            break;
        }
    pthread_mutex_unlock(&g->regs_lock);
    return reg;
}

rcclx_status rcclx_gpu_memory_free(void *p, bool *mine)
{
    memory *m = of_process(false);
    rcclx_gpu_scope scope;
    held h = { 0 };

    *mine = false;
    if (!m || !p || !atomic_load(&m->nheld))
        return RCCLX_OK;
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < m->nheld; i++)
        if (m->all[i].base == (uintptr_t)p) {
            h = m->all[i];
            m->all[i] = m->all[m->nheld - 1];
            atomic_fetch_sub(&m->nheld, 1);
            *mine = true;
            break;
        }
    for (int i = 0; *mine && i < m->nteams; i++) {
        const int reg = take_joined(m->teams[i]->gpu, h.base);
        if (reg >= 0)
            rcclx_windows_deregister(m->teams[i]->gpu->windows, reg);
    }
    pthread_mutex_unlock(&m->lock);
    if (!*mine)
        return RCCLX_OK;
    RCCLX_TRY(h.gpu->enter(&scope, h.device));
    const int before = h.gpu->relax();
    const rcclx_status s = h.gpu->free(p);
    h.gpu->unrelax(before);
    h.gpu->leave(&scope);
    return s;
}

/* --- registration --------------------------------------------------------------------- */

static void await_peers(const rcclx_gpu_team *g, int reg)
{
    const uint64_t began = rcclx_clock_ns();
    const struct timespec nap = { 0, 20000 };

    while (!rcclx_windows_settled(g->windows, reg) && rcclx_clock_ns() - began < SETTLE_NS)
        nanosleep(&nap, NULL);
}

/* UNSUPPORTED is no failure of the program's: reg -1. */
static rcclx_status announce(rcclx_team *t, const void *p, size_t nbytes, int *reg)
{
    *reg = -1;
    if (t->gpu->in_host)
        return RCCLX_OK;
    const rcclx_status s = rcclx_windows_register(t->gpu->windows, p, nbytes, reg);
    if (s == RCCLX_OK) {
        await_peers(t->gpu, *reg);
        return s;
    }
    *reg = -1;
    if (s != RCCLX_UNSUPPORTED)
        return s;
    RCCLX_INFO_LOG(REG, "rank %d: %p, %zu bytes: %s; operations on it are staged", t->rank, p, nbytes, rcclx_last_error());
    return RCCLX_OK;
}

rcclx_status rcclx_gpu_register(rcclx_team *t, const void *p, size_t nbytes, int *reg)
{
    RCCLX_TRY(rcclx_gpu_buffer_check(t, "ncclCommRegister", "buff", p, nbytes));
    RCCLX_TRY(announce(t, p, nbytes, reg));
    atomic_fetch_add(&t->gpu->registered, *reg >= 0);
    return RCCLX_OK;
}

rcclx_status rcclx_gpu_deregister(rcclx_team *t, int reg)
{
    if (reg < 0)
        return RCCLX_OK;
    RCCLX_TRY(rcclx_windows_deregister(t->gpu->windows, reg));
    atomic_fetch_sub(&t->gpu->registered, 1);
    return RCCLX_OK;
}

/* Is p in memory of ncclMemAlloc that this team has not seen yet? */
static bool is_new(rcclx_team *t, const memory *m, uintptr_t p, size_t nbytes, held *h)
{
    rcclx_gpu_team *g = t->gpu;
    bool found = false;

    for (int i = 0; !found && i < m->nheld; i++) {
        *h = m->all[i];
        found = h->gpu == g->gpu && h->device == g->device && p >= h->base && nbytes <= h->nbytes &&
                p - h->base <= h->nbytes - nbytes;
    }
    if (!found)
        return false;
    pthread_mutex_lock(&g->regs_lock);
    for (int i = 0; found && i < g->njoined; i++)
        found = g->joined[i].base != h->base;
    rcclx_gpu_joined *more = found ? grow(g->joined, g->njoined, &g->cap_joined, sizeof(*more)) : NULL;
    if (more) {
        g->joined = more;
        more[g->njoined++] = (rcclx_gpu_joined){ h->base, -1 };
    }
    pthread_mutex_unlock(&g->regs_lock);
    return more != NULL;
}

static void set_joined(rcclx_gpu_team *g, uintptr_t base, int reg)
{
    pthread_mutex_lock(&g->regs_lock);
    for (int i = 0; i < g->njoined; i++)
        if (g->joined[i].base == base)
            g->joined[i].reg = reg;
    pthread_mutex_unlock(&g->regs_lock);
}

uint64_t rcclx_gpu_token(rcclx_team *t, const void *p, size_t nbytes)
{
    const uint64_t token = rcclx_windows_token(t->gpu->windows, p, nbytes);
    memory *m = token ? NULL : of_process(false);
    held h;
    int reg;

    if (token || !m || !atomic_load_explicit(&m->nheld, memory_order_relaxed))
        return token;
    pthread_mutex_lock(&m->lock);
    const bool fresh = is_new(t, m, (uintptr_t)p, nbytes, &h);
    pthread_mutex_unlock(&m->lock);
    if (!fresh || announce(t, (const void *)h.base, h.nbytes, &reg) != RCCLX_OK)
        return 0;
    set_joined(t->gpu, h.base, reg);
    return rcclx_windows_token(t->gpu->windows, p, nbytes);
}

rcclx_status rcclx_gpu_memory_join(rcclx_team *t)
{
    memory *m = of_process(true);
    rcclx_team **teams = NULL;

    if (m) {
        pthread_mutex_lock(&m->lock);
        teams = grow(m->teams, m->nteams, &m->cap_teams, sizeof(*teams));
        if (teams) {
            m->teams = teams;
            teams[m->nteams++] = t;
        }
        pthread_mutex_unlock(&m->lock);
    }
    return teams ? RCCLX_OK : RCCLX_FAIL(RCCLX_NOMEM, "rank %d: init: no memory for the list of communicators on GPUs", t->rank);
}

void rcclx_gpu_memory_leave(rcclx_team *t)
{
    memory *m = of_process(false);

    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < m->nteams; i++)
        if (m->teams[i] == t)
            m->teams[i--] = m->teams[--m->nteams];
    pthread_mutex_unlock(&m->lock);
}

rcclx_status rcclx_gpu_read(rcclx_team *t, void *to, const void *from, size_t nbytes)
{
    const rcclx_gpu_team *g = t->gpu;
    rcclx_gpu_scope scope;

    RCCLX_TRY(g->gpu->enter(&scope, g->device));
    const int before = g->gpu->relax();
    rcclx_status s = g->gpu->copy(to, from, nbytes, g->stream);
    if (s == RCCLX_OK)
        s = g->gpu->stream_sync(g->stream);
    g->gpu->unrelax(before);
    g->gpu->leave(&scope);
    return s;
}

/* --- arguments ------------------------------------------------------------------------- */

/* Allocators that grow a buffer map it piece by piece (PyTorch's expandable segments). */
static bool within(const rcclx_gpu *gpu, int device, rcclx_gpu_pointer at, uint64_t p, size_t nbytes)
{
    if (at.base > p || p - at.base > at.nbytes)
        return false;
    while (p + nbytes > at.base + at.nbytes) {
        const uint64_t next = at.base + at.nbytes;
        if (!at.goes_on || gpu->pointer((const void *)(uintptr_t)next, &at) != RCCLX_OK || at.place != RCCLX_AT_DEVICE ||
            at.device != device || at.base != next || !at.nbytes)
            return false;
    }
    return true;
}

rcclx_status rcclx_gpu_buffer_check(const rcclx_team *t, const char *call, const char *what, const void *p, size_t nbytes)
{
    const rcclx_gpu *gpu = t->driver;
    rcclx_gpu_pointer at;

    RCCLX_TRY(gpu->pointer(p, &at));
    if (at.place == RCCLX_AT_HOST)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: %s %p is host memory, or memory that was freed, and this communicator is "
                          "on %s device %d; copy it to the device, or RCCLX_DEVICE=host", t->rank, call, what, p, gpu->name,
                          t->device);
    if (at.place == RCCLX_AT_DEVICE && at.device != t->device)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: %s %p is memory of %s device %d and this rank is on device %d; allocate "
                          "it with this rank's device as the current one", t->rank, call, what, p, gpu->name, at.device, t->device);
    if (at.base && at.nbytes && !within(gpu, t->device, at, (uint64_t)(uintptr_t)p, nbytes))
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: the %zu bytes at %s %p reach beyond its allocation of %zu bytes at "
                          "0x%llx; is the count too large?", t->rank, call, nbytes, what, p, at.nbytes, (unsigned long long)at.base);
    return RCCLX_OK;
}
