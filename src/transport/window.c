/* Windows: open and close.
 *
 *   rank 0                                   rank 1
 *   alloc, export, bind, state = HERE        the same
 *   letter WINDOW + descriptor ------------> import; area[1].window[0] = MAPPED
 *   area[0].window[1] = MAPPED <------------ letter WINDOW + descriptor
 *
 * Open is over when every rank has answered about every window: n x n words in
 * the areas, which nobody writes again. So all ranks see the same matrix, and
 * agree on whether everybody reaches everybody. If not, the same is done once more with
 * windows in host memory (window_host.c). Descriptors keep the memory alive
 * after its owner has ended; between ranks of one process, where the pointer is
 * all there is, a word of holders does. */
#include "transport/window_state.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

rcclx_status rcclx_window_enter(const rcclx_windows *w, rcclx_window_visit *v)
{
    RCCLX_TRY(w->gpu->enter(&v->scope, w->device));
    v->relaxed = w->gpu->relax();
    return RCCLX_OK;
}

void rcclx_window_leave(const rcclx_windows *w, const rcclx_window_visit *v)
{
    w->gpu->unrelax(v->relaxed);
    w->gpu->leave(&v->scope);
}

/* --- a window of this process ------------------------------------------------ */

bool rcclx_window_hold(rcclx_windows *w, int owner)
{
    _Atomic uint32_t *holders = &w->area[owner]->holders;
    uint32_t now = atomic_load(holders);

    while (now >> owner & 1)
        if (atomic_compare_exchange_weak(holders, &now, now | 1u << w->rank))
            return true;
    return false; /* its owner has closed it already */
}

void rcclx_window_let_go(rcclx_windows *w, int owner, void *window)
{
    const uint32_t me = 1u << w->rank;
    rcclx_gpu_scope scope;

    if (!window || atomic_fetch_and(&w->area[owner]->holders, ~me) != me)
        return;
    if (w->gpu->enter(&scope, owner == w->rank ? w->device : w->peer_device[owner]) == RCCLX_OK) {
        w->gpu->free(window);
        w->gpu->leave(&scope);
    }
}

/* --- open --------------------------------------------------------------------- */

/* *fd: to be closed, or -1. */
static rcclx_status make_window(rcclx_windows *w, int *fd)
{
    *fd = -1;
    if (w->host) {
        RCCLX_TRY(rcclx_window_host_make(w, fd));
        RCCLX_TRY(rcclx_window_host_map(w, *fd, &w->window, &w->at[w->rank]));
    } else {
        RCCLX_TRY(w->gpu->alloc(&w->window, w->nbytes, true));
        atomic_store(&w->area[w->rank]->holders, 1u << w->rank);
        w->at[w->rank] = w->window;
    }
    rcclx_window_say(w, w->rank, RCCLX_ANSWER_MAPPED);
    return RCCLX_OK;
}

static rcclx_status make(rcclx_windows *w)
{
    RCCLX_TRY(w->gpu->alloc(&w->map, sizeof(uint64_t) * GP_RANKS * GP_REGS, false));
    RCCLX_TRY(w->gpu->stream_create(&w->stream));
    return rcclx_window_listen(w);
}

/* The letter about my window. *fd: of host memory; to be closed, or -1. */
static void announce(rcclx_windows *w, rcclx_letter *l, int *fd)
{
    rcclx_gpu_handle h = { .fd = -1 };
    rcclx_gpu_info info;
    bool others = false;

    *l = (rcclx_letter){ .kind = RCCLX_LETTER_WINDOW, .base = (uint64_t)(uintptr_t)w->window, .nbytes = w->nbytes };
    if (w->host) {
        l->way = RCCLX_WAY_FD;
        return;
    }
    if (w->gpu->info(w->device, &info) == RCCLX_OK)
        memcpy(l->pci, info.pci, sizeof(l->pci));
    for (int r = 0; r < w->nranks; r++)
        others |= !rcclx_window_local(w, r);
    if (!others || w->gpu->export(w->window, &h) != RCCLX_OK)
        return; /* the peers say that it has no handle */
    *fd = h.fd;
    l->way = h.fd >= 0 ? RCCLX_WAY_FD : RCCLX_WAY_IPC;
    l->base -= h.offset;
    l->nbytes = h.nbytes;
    l->offset = h.offset;
    memcpy(l->ipc, h.ipc, sizeof(l->ipc));
}

static rcclx_status tell(rcclx_windows *w, rcclx_letter *l, int fd, uint32_t *told)
{
    for (int r = 0; r < w->nranks; r++) {
        if (*told >> r & 1 || atomic_load_explicit(&w->area[r]->state, memory_order_acquire) == RCCLX_WINDOW_ABSENT)
            continue;
        const rcclx_status s = r == w->rank ? RCCLX_OK : rcclx_window_post(w, r, l, rcclx_window_local(w, r) && !w->host ? -1 : fd);
        if (s == RCCLX_OK)
            *told |= 1u << r;
        else if (s != RCCLX_AGAIN && s != RCCLX_PEER_LOST)
            return s;
    }
    return RCCLX_OK;
}

static void read_mail(rcclx_windows *w)
{
    rcclx_letter l;
    int fd;

    while (rcclx_window_receive(w, &l, &fd) == RCCLX_OK) {
        rcclx_window_take(w, &l, fd);
        if (fd >= 0)
            close(fd);
    }
}

/* OK: every rank has answered about every window. AGAIN: *late has not, about `of`. */
static rcclx_status all_answered(const rcclx_windows *w, int *late, int *of)
{
    for (int r = 0; r < w->nranks; r++)
        for (int k = 0; k < w->nranks; k++)
            if (rcclx_window_answer(w, r, k) == RCCLX_ANSWER_NONE) {
                *late = r;
                *of = k;
                return RCCLX_AGAIN;
            }
    return RCCLX_OK;
}

/* `late` has not answered about the window of `of`; but who is not there at all is to blame first. */
static rcclx_status too_late(const rcclx_windows *w, const rcclx_peer *peer, int late, int of, double timeout)
{
    for (int r = 0; r < w->nranks; r++)
        if (atomic_load(&w->area[r]->state) == RCCLX_WINDOW_ABSENT)
            return RCCLX_FAIL(RCCLX_TIMEOUT, "rank %d of %d: init: rank %d (pid %d) has not opened its device after %.0f s; is "
                              "it stopped, or was it started without a GPU?", w->rank, w->nranks, r, peer[r].pid, timeout);
    if (late == w->rank)
        return RCCLX_FAIL(RCCLX_TIMEOUT, "rank %d of %d: init: rank %d (pid %d) has sent no handle of its device's memory after "
                          "%.0f s; is it stopped, or in another network namespace (container)?", w->rank, w->nranks, of,
                          peer[of].pid, timeout);
    return RCCLX_FAIL(RCCLX_TIMEOUT, "rank %d of %d: init: rank %d (pid %d) has not mapped the device memory of rank %d after "
                      "%.0f s; is one of them stopped, or in another network namespace (container)?", w->rank, w->nranks, late,
                      peer[late].pid, of, timeout);
}

/* What ends the wait for a rank that is late. */
static rcclx_status look_up(const rcclx_windows *w, const rcclx_windows_args *a, uint64_t began, int late, int of)
{
    if (a->aborted && atomic_load(a->aborted))
        return RCCLX_ABORTED;
    for (int r = 0; r < w->nranks; r++) {
        if (r == w->rank)
            continue;
        if (atomic_load_explicit(&w->area[r]->state, memory_order_acquire) == RCCLX_WINDOW_FAILED)
            return RCCLX_FAIL(RCCLX_PEER_LOST, "rank %d of %d: init: rank %d (pid %d) could not share its device's memory: "
                              "%.400s", w->rank, w->nranks, r, a->peer[r].pid, w->area[r]->failure);
        if (!rcclx_life_dead(a->peer[r].life) || all_answered(w, &late, &of) == RCCLX_OK)
            continue;
        return RCCLX_FAIL(RCCLX_PEER_LOST, "rank %d of %d: init: rank %d (pid %d) has ended while device %d and its own were to "
                          "share memory; see what it printed", w->rank, w->nranks, r, a->peer[r].pid, w->device);
    }
    if (a->timeout > 0 && (double)(rcclx_clock_ns() - began) * 1e-9 > a->timeout)
        return too_late(w, a->peer, late, of, a->timeout);
    return RCCLX_OK;
}

static rcclx_status exchange(rcclx_windows *w, const rcclx_windows_args *a, rcclx_letter *l, int fd)
{
    const uint64_t began = rcclx_clock_ns();
    uint32_t told = 0;
    int late, of;

    for (int n = 0; all_answered(w, &late, &of) != RCCLX_OK; n++) {
        RCCLX_TRY(tell(w, l, fd, &told));
        read_mail(w);
        RCCLX_TRY(look_up(w, a, began, late, of));
        if (n < 200) {
            sched_yield();
        } else {
            const struct timespec nap = { 0, 200000 };
            nanosleep(&nap, NULL);
        }
    }
    return RCCLX_OK;
}

/* The same on every rank: the first refusal there is. */
static void conclude(rcclx_windows *w)
{
    w->whole = true;
    for (int r = 0; r < w->nranks; r++)
        for (int k = 0; w->whole && k < w->nranks; k++)
            if (rcclx_window_answer(w, r, k) != RCCLX_ANSWER_MAPPED) {
                w->whole = false;
                memcpy(w->why, w->area[r]->why, sizeof(w->why));
                w->why[sizeof(w->why) - 1] = 0;
            }
    if (!w->whole)
        RCCLX_INFO_LOG(P2P, "%s", w->why);
}

static rcclx_status share_window(rcclx_windows *w, const rcclx_windows_args *a)
{
    rcclx_letter l;
    int fd;

    rcclx_status s = make_window(w, &fd);
    if (s == RCCLX_OK) {
        announce(w, &l, &fd);
        atomic_store_explicit(&w->area[w->rank]->state, RCCLX_WINDOW_HERE, memory_order_release);
        s = exchange(w, a, &l, fd);
    }
    if (fd >= 0)
        close(fd);
    if (s == RCCLX_OK)
        conclude(w);
    return s;
}

static rcclx_status start(rcclx_windows *w, const rcclx_windows_args *a)
{
    rcclx_window_visit v;

    RCCLX_TRY(rcclx_window_enter(w, &v));
    rcclx_status s = make(w);
    if (s == RCCLX_OK)
        s = share_window(w, a);
    rcclx_window_leave(w, &v);
    return s;
}

/* What the others are told. */
static void say_failed(rcclx_windows *w, rcclx_status s)
{
    rcclx_window_area *me = w->area[w->rank];

    snprintf(me->failure, sizeof(me->failure), "%s", s == RCCLX_ABORTED ? "it was aborted" : rcclx_last_error());
    atomic_store_explicit(&me->state, RCCLX_WINDOW_FAILED, memory_order_release);
}

static void know(rcclx_windows *w, const rcclx_windows_args *a)
{
    w->gpu = a->gpu;
    w->device = a->device;
    w->rank = a->rank;
    w->nranks = a->nranks;
    w->nbytes = a->nbytes;
    w->host = a->host;
    memcpy(w->token, a->token, sizeof(w->token));
    w->fd = -1;
    pthread_mutex_init(&w->lock, NULL);
    for (int r = 0; r < a->nranks; r++) {
        w->area[r] = &rcclx_segment_area(a->segment, r)->gpu;
        w->key[r] = a->key[r];
        w->peer_device[r] = a->peer_device[r];
    }
}

rcclx_status rcclx_windows_open(rcclx_windows **out, const rcclx_windows_args *a)
{
    *out = NULL;
    if (a->nranks > GP_RANKS)
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "rank %d of %d: init: at most %d ranks share device memory; use fewer ranks a "
                          "communicator, or RCCLX_DEVICE=host", a->rank, a->nranks, GP_RANKS);
    rcclx_windows *w = RCCLX_NEW(rcclx_windows);
    if (!w)
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d of %d: init: no memory to describe what devices share", a->rank, a->nranks);
    know(w, a);
    const rcclx_status s = start(w, a);
    if (s != RCCLX_OK) {
        say_failed(w, s);
        rcclx_windows_close(w);
        return s;
    }
    *out = w;
    return RCCLX_OK;
}

/* --- close -------------------------------------------------------------------- */

/* All windows, own included; device current. */
static void unmap_windows(rcclx_windows *w)
{
    for (int r = 0; r < w->nranks; r++) {
        void *base = r == w->rank && w->host ? w->window : w->imported[r];
        if (w->host)
            rcclx_window_host_unmap(w, base);
        else if (base)
            w->gpu->unimport(base);
        else if (rcclx_window_local(w, r))
            rcclx_window_let_go(w, r, w->at[r]);
        w->imported[r] = NULL;
        w->at[r] = NULL;
    }
    w->window = NULL;
}

static void unmap_all(rcclx_windows *w)
{
    unmap_windows(w);
    for (int r = 0; r < w->nranks; r++) {
        for (int i = 0; w->imports[r] && i < GP_REGS; i++)
            if (w->imports[r][i].base)
                w->gpu->unimport(w->imports[r][i].base);
        rcclx_mem_free(w->imports[r]);
    }
    if (w->stream)
        w->gpu->stream_destroy(w->stream);
    if (w->map)
        w->gpu->free(w->map);
}

void rcclx_windows_close(rcclx_windows *w)
{
    rcclx_window_visit v;

    if (!w)
        return;
    if (w->fd >= 0)
        close(w->fd);
    if (rcclx_window_enter(w, &v) == RCCLX_OK) {
        unmap_all(w);
        rcclx_window_leave(w, &v);
    }
    pthread_mutex_destroy(&w->lock);
    rcclx_mem_free(w->ranges);
    rcclx_mem_free(w);
}

/* --- host memory instead --------------------------------------------------------- */

rcclx_status rcclx_windows_to_host(rcclx_windows *w, const rcclx_windows_args *a)
{
    rcclx_window_visit v;

    RCCLX_TRY(rcclx_window_enter(w, &v));
    unmap_windows(w);
    w->host = true;
    w->why[0] = w->area[w->rank]->why[0] = 0;
    const rcclx_status s = share_window(w, a);
    rcclx_window_leave(w, &v);
    if (s != RCCLX_OK)
        say_failed(w, s);
    return s;
}

bool rcclx_windows_in_host(const rcclx_windows *w)
{
    return w->host;
}

/* --- what there is ----------------------------------------------------------------- */

char *rcclx_windows_at(const rcclx_windows *w, int rank)
{
    return w->at[rank];
}

void *rcclx_windows_map(const rcclx_windows *w)
{
    return w->map;
}

bool rcclx_windows_reach(const rcclx_windows *w, int rank)
{
    return w->at[rank] != NULL;
}

bool rcclx_windows_whole(const rcclx_windows *w)
{
    return w->whole;
}

const char *rcclx_windows_why(const rcclx_windows *w)
{
    return w->why;
}

int rcclx_windows_fd(const rcclx_windows *w)
{
    return w->fd;
}
