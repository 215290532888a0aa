/* The peers' side: map what letters announce.
 *
 *   SHARE + descriptor    import, map[from][index] = address, answer MAPPED
 *   DROP                  map[from][index] = 0, unimport,     answer DROPPED
 *
 * The answer follows the entry, so that a token, which the owner gives out when
 * all have answered, finds its entry on every device. What cannot be mapped is
 * answered too: the owner then gives out no token, and nobody waits. */
#include "transport/window_state.h"

#include "base/log.h"
#include "base/mem.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 256 /* letters taken in a call */ };

/* Memory of a rank of this process. What has a descriptor, or no handle at all, lies
 * in the address space alone and needs leave for each device; the rest needs peer access. */
static rcclx_status borrow(rcclx_windows *w, const rcclx_letter *l, void *ptr)
{
    const int peer = w->peer_device[l->from];

    if (peer == w->device)
        return RCCLX_OK;
    if (!w->gpu->reaches(w->device, peer))
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "device %d cannot load and store memory of device %d", w->device, peer);
    RCCLX_TRY(w->gpu->enable_peer(peer));
    return l->kind == RCCLX_LETTER_SHARE && l->way == RCCLX_WAY_IPC ? RCCLX_OK : w->gpu->share(ptr);
}

static rcclx_status import(rcclx_windows *w, const rcclx_letter *l, int fd, void **base)
{
    rcclx_gpu_handle h = { .fd = fd, .nbytes = l->nbytes, .offset = l->offset };

    if (l->way == RCCLX_WAY_NONE)
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "the driver gives no handle by which another process could map it");
    if (l->way == RCCLX_WAY_FD && fd < 0)
        return RCCLX_FAIL(RCCLX_SYSTEM, "its file descriptor got lost; raise the limit of open files (ulimit -n)");
    if (l->way == RCCLX_WAY_IPC)
        h.fd = -1;
    memcpy(h.ipc, l->ipc, sizeof(h.ipc));
    return w->gpu->import(&h, base);
}

/* --- windows -------------------------------------------------------------------- */

/* Another process may number the devices in another way. True if its device is none
 * of ours: then the import shows. */
static bool reaches(const rcclx_windows *w, const char *pci)
{
    rcclx_gpu_info info;

    for (int d = 0; pci[0] && d < w->gpu->count; d++)
        if (w->gpu->info(d, &info) == RCCLX_OK && !strncmp(info.pci, pci, sizeof(info.pci)))
            return d == w->device || w->gpu->reaches(w->device, d);
    return true;
}

static rcclx_status map_window(rcclx_windows *w, const rcclx_letter *l, int fd)
{
    const int from = (int)l->from;
    void *ptr = (void *)(uintptr_t)l->base;

    if (w->host)
        return fd >= 0 ? rcclx_window_host_map(w, fd, &w->imported[from], &w->at[from])
                       : RCCLX_FAIL(RCCLX_SYSTEM, "its file descriptor got lost; raise the limit of open files (ulimit -n)");
    if (!rcclx_window_local(w, from)) {
        if (l->offset > l->nbytes || w->nbytes > l->nbytes - l->offset)
            return RCCLX_FAIL(RCCLX_INTERNAL, "it has %llu bytes, not %llu", (unsigned long long)l->nbytes,
                              (unsigned long long)w->nbytes);
        if (!reaches(w, l->pci))
            return RCCLX_FAIL(RCCLX_UNSUPPORTED, "device %d cannot load and store memory of the device at %.24s", w->device,
                              l->pci);
        RCCLX_TRY(import(w, l, fd, &w->imported[from]));
        w->at[from] = (char *)w->imported[from] + l->offset;
        return RCCLX_OK;
    }
    if (!rcclx_window_hold(w, from))
        return RCCLX_FAIL(RCCLX_PEER_LOST, "its rank has closed it");
    const rcclx_status s = borrow(w, l, ptr);
    if (s == RCCLX_OK)
        w->at[from] = ptr;
    else
        rcclx_window_let_go(w, from, ptr);
    return s;
}

static void take_window(rcclx_windows *w, const rcclx_letter *l, int fd)
{
    rcclx_window_area *me = w->area[w->rank];
    const int from = (int)l->from;

    if (rcclx_window_answer(w, w->rank, from) != RCCLX_ANSWER_NONE)
        return;
    const bool mapped = map_window(w, l, fd) == RCCLX_OK;
    if (!mapped && !me->why[0])
        snprintf(me->why, sizeof(me->why), "rank %d of %d: device %d cannot map the memory of rank %d: %.300s; are the devices "
                 "connected (P2P), and do containers share IPC and PID namespaces?", w->rank, w->nranks, w->device, from,
                 rcclx_last_error());
    rcclx_window_say(w, from, mapped ? RCCLX_ANSWER_MAPPED : RCCLX_ANSWER_REFUSED);
}

/* --- buffers -------------------------------------------------------------------- */

static rcclx_import *import_of(rcclx_windows *w, uint32_t from, uint32_t index)
{
    if (!w->imports[from])
        w->imports[from] = rcclx_mem_alloc(GP_REGS * sizeof(rcclx_import));
    return w->imports[from] ? &w->imports[from][index] : NULL;
}

static rcclx_status enter_in_map(rcclx_windows *w, const rcclx_letter *l, uint64_t address)
{
    uint64_t *at = (uint64_t *)w->map + (size_t)l->from * GP_REGS + l->index;

    RCCLX_TRY(w->gpu->copy(at, &address, sizeof(address), w->stream));
    return w->gpu->stream_sync(w->stream);
}

static void answer(rcclx_windows *w, const rcclx_letter *l, rcclx_answer a)
{
    atomic_store_explicit(&w->area[w->rank]->answer[l->from][l->index], l->generation << 2 | (uint32_t)a, memory_order_release);
}

static rcclx_status map_shared(rcclx_windows *w, const rcclx_letter *l, int fd, rcclx_import *at)
{
    void *base = (void *)(uintptr_t)l->base;

    if ((int)l->from == w->rank)
        return enter_in_map(w, l, l->base);
    if (rcclx_window_local(w, (int)l->from))
        RCCLX_TRY(borrow(w, l, base));
    else
        RCCLX_TRY(import(w, l, fd, &base));
    const rcclx_status s = enter_in_map(w, l, (uint64_t)(uintptr_t)base);
    if (!rcclx_window_local(w, (int)l->from)) {
        if (s == RCCLX_OK)
            at->base = base;
        else
            w->gpu->unimport(base);
    }
    return s;
}

static void take_share(rcclx_windows *w, const rcclx_letter *l, int fd)
{
    rcclx_import *at = import_of(w, l->from, l->index);
    const bool reach = w->at[l->from] != NULL;
    const bool mapped = reach && at && !at->base && map_shared(w, l, fd, at) == RCCLX_OK;

    if (at)
        at->generation = l->generation;
    if (!mapped)
        RCCLX_INFO_LOG(REG, "rank %d: device %d cannot map %llu bytes registered by rank %u, which then go through staging: %s",
                       w->rank, w->device, (unsigned long long)l->nbytes, l->from, reach ? rcclx_last_error() : w->why);
    answer(w, l, mapped ? RCCLX_ANSWER_MAPPED : RCCLX_ANSWER_REFUSED);
}

static void take_drop(rcclx_windows *w, const rcclx_letter *l)
{
    rcclx_import *at = import_of(w, l->from, l->index);

    if (at && at->generation == l->generation) {
        enter_in_map(w, l, 0); /* if that fails, the device is lost and no kernel will read it */
        if (at->base)
            w->gpu->unimport(at->base);
        *at = (rcclx_import){ 0 };
    }
    answer(w, l, RCCLX_ANSWER_DROPPED);
}

void rcclx_window_take(rcclx_windows *w, const rcclx_letter *l, int fd)
{
    switch ((rcclx_letter_kind)l->kind) {
    case RCCLX_LETTER_WINDOW: take_window(w, l, fd); break;
    case RCCLX_LETTER_SHARE:  take_share(w, l, fd); break;
    case RCCLX_LETTER_DROP:   take_drop(w, l); break;
    case RCCLX_LETTER_ROOM:   break;
    }
}

/* --- serve ---------------------------------------------------------------------- */

/* Whoever found my socket full may post again. A letter that says no more than this
 * is not answered by one, or two ranks would keep each other busy. */
static void say_room(rcclx_windows *w)
{
    for (int r = 0; r < w->nranks; r++) {
        rcclx_letter l = { .kind = RCCLX_LETTER_ROOM };
        if (r != w->rank && atomic_load(&w->area[r]->waiting))
            rcclx_window_post(w, r, &l, -1); /* if it does not fit, that rank is about to serve anyway */
    }
}

static void take_letters(rcclx_windows *w)
{
    rcclx_letter l;
    int fd, taken = 0;

    for (int n = 0; n < BATCH && rcclx_window_receive(w, &l, &fd) == RCCLX_OK; n++) {
        rcclx_window_take(w, &l, fd);
        taken += l.kind != RCCLX_LETTER_ROOM;
        if (fd >= 0)
            close(fd);
    }
    if (taken)
        say_room(w);
}

rcclx_status rcclx_windows_serve(rcclx_windows *w)
{
    struct pollfd mail = { .fd = w->fd, .events = POLLIN };
    rcclx_window_visit v;

    if (poll(&mail, 1, 0) != 1 && !atomic_load(&w->area[w->rank]->waiting))
        return RCCLX_OK;
    RCCLX_TRY(rcclx_window_enter(w, &v));
    take_letters(w);
    pthread_mutex_lock(&w->lock);
    rcclx_window_flush(w);
    pthread_mutex_unlock(&w->lock);
    rcclx_window_leave(w, &v);
    return RCCLX_OK;
}
