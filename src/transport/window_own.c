/* The owner's side of registered buffers.
 *
 *   ranges   |--- a ---|   |- c -|        what the user registered, sorted; may overlap
 *            |- b -|
 *   shared   [ allocation 0      ]        what peers map: the whole allocation, once
 *
 *   free -> live   letter SHARE to every rank, this one too; each answers
 *   live -> dropping -> free   the last buffer in it is gone: letter DROP; each answers
 *
 * An index is used again only when nobody has the old allocation under it; the
 * generation tells an answer about this one from one about the last. A peer whose
 * socket is full is told later: a bit a peer says what it knows. The handle is made
 * anew then, so that waiting letters hold no file descriptors. */
#include "transport/window_state.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>
#include <unistd.h>

#define GENERATIONS ((1u << 30) - 1)

/* --- what peers have answered --------------------------------------------------- */

/* MAPPED or REFUSED by all or one, NONE: not all have answered. Kept once it is known. */
static rcclx_answer verdict(rcclx_windows *w, rcclx_shared *s)
{
    const size_t index = (size_t)(s - w->shared);
    rcclx_answer all = RCCLX_ANSWER_MAPPED;

    if (s->verdict != RCCLX_ANSWER_NONE)
        return s->verdict;
    for (int r = 0; r < w->nranks; r++) {
        const uint32_t a = atomic_load_explicit(&w->area[r]->answer[w->rank][index], memory_order_acquire);
        if (w->gone >> r & 1)
            all = RCCLX_ANSWER_REFUSED;
        else if (a >> 2 != s->generation)
            return RCCLX_ANSWER_NONE;
        else if ((a & 3) != RCCLX_ANSWER_MAPPED)
            all = RCCLX_ANSWER_REFUSED;
    }
    return s->verdict = all;
}

static bool all_dropped(const rcclx_windows *w, const rcclx_shared *s)
{
    const size_t index = (size_t)(s - w->shared);
    const uint32_t asked = s->told & ~w->gone;

    for (int r = 0; r < w->nranks; r++) {
        const uint32_t a = atomic_load_explicit(&w->area[r]->answer[w->rank][index], memory_order_acquire);
        if (asked >> r & 1 && a != (s->generation << 2 | RCCLX_ANSWER_DROPPED))
            return false;
    }
    return true;
}

/* --- letters --------------------------------------------------------------------- */

static uint32_t to_tell(const rcclx_windows *w, const rcclx_shared *s)
{
    const uint32_t there = ((1u << w->nranks) - 1) & ~w->gone;

    if (s->state == RCCLX_SHARED_LIVE)
        return there & ~s->told;
    return s->state == RCCLX_SHARED_DROPPING ? there & s->told & ~s->untold : 0;
}

static void tell(rcclx_windows *w, rcclx_shared *s, const rcclx_gpu_handle *h)
{
    const bool live = s->state == RCCLX_SHARED_LIVE;
    const uint32_t whom = to_tell(w, s);
    rcclx_letter l = {
        .kind = live ? RCCLX_LETTER_SHARE : RCCLX_LETTER_DROP, .index = (uint32_t)(s - w->shared), .generation = s->generation,
        .way = s->way, .base = s->base, .nbytes = s->nbytes,
    };

    memcpy(l.ipc, h->ipc, sizeof(l.ipc));
    for (int r = 0; r < w->nranks; r++) {
        if (!(whom >> r & 1))
            continue;
        const rcclx_status sent = rcclx_window_post(w, r, &l, rcclx_window_local(w, r) ? -1 : h->fd);
        if (sent == RCCLX_OK)
            *(live ? &s->told : &s->untold) |= 1u << r;
        else if (sent != RCCLX_AGAIN)
            w->gone |= 1u << r;
    }
}

static bool needs_handle(const rcclx_windows *w, const rcclx_shared *s)
{
    const uint32_t whom = s->state == RCCLX_SHARED_LIVE && s->way != RCCLX_WAY_NONE ? to_tell(w, s) : 0;

    for (int r = 0; r < w->nranks; r++)
        if (whom >> r & 1 && !rcclx_window_local(w, r))
            return true;
    return false;
}

static void tell_later(rcclx_windows *w, rcclx_shared *s)
{
    rcclx_gpu_handle h = { .fd = -1 };

    if (needs_handle(w, s) && w->gpu->export((void *)(uintptr_t)s->base, &h) != RCCLX_OK)
        s->way = RCCLX_WAY_NONE; /* freed meanwhile: whoever was not told will refuse */
    tell(w, s, &h);
    if (h.fd >= 0)
        close(h.fd);
}

/* Peers look at `waiting` after they have made room, so it is set before the try. */
static void expect_room(rcclx_windows *w)
{
    atomic_store(&w->area[w->rank]->waiting, 1);
}

static void note_unsent(rcclx_windows *w, bool unsent)
{
    w->unsent = unsent;
    if (!unsent)
        atomic_store(&w->area[w->rank]->waiting, 0);
}

void rcclx_window_flush(rcclx_windows *w)
{
    bool unsent = false;

    if (!w->unsent)
        return;
    expect_room(w);
    for (int i = 0; i < w->nshared; i++) {
        if (to_tell(w, &w->shared[i]))
            tell_later(w, &w->shared[i]);
        unsent |= to_tell(w, &w->shared[i]) != 0;
    }
    note_unsent(w, unsent);
}

/* --- ranges ----------------------------------------------------------------------- */

static void renew_reach(rcclx_windows *w, int from)
{
    for (int i = from; i < w->nranges; i++) {
        rcclx_range *r = &w->ranges[i];
        r->reach = i > 0 && w->ranges[i - 1].reach > r->end ? w->ranges[i - 1].reach : r->end;
    }
    w->last = 0;
}

/* The first range that begins behind p. */
static int behind(const rcclx_windows *w, uint64_t p)
{
    int low = 0, high = w->nranges;

    while (low < high) {
        const int mid = (low + high) / 2;
        if (w->ranges[mid].begin <= p)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static rcclx_status insert(rcclx_windows *w, const rcclx_range *r)
{
    if (w->nranges == w->room) {
        const int room = w->room ? 2 * w->room : 64;
        rcclx_range *grown = rcclx_mem_realloc(w->ranges, (size_t)room * sizeof(*grown));
        if (!grown)
            return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: register: no memory to keep buffer number %d", w->rank, w->nranges + 1);
        w->ranges = grown;
        w->room = room;
    }
    const int at = behind(w, r->begin);
    memmove(&w->ranges[at + 1], &w->ranges[at], (size_t)(w->nranges - at) * sizeof(*r));
    w->ranges[at] = *r;
    w->nranges++;
    renew_reach(w, at);
    return RCCLX_OK;
}

static rcclx_range *find(const rcclx_windows *w, int reg)
{
    for (int i = 0; i < w->nranges; i++)
        if (w->ranges[i].reg == reg)
            return &w->ranges[i];
    return NULL;
}

/* --- register --------------------------------------------------------------------- */

static bool same_allocation(const rcclx_shared *s, const rcclx_gpu_pointer *p)
{
    return s->state == RCCLX_SHARED_LIVE && !s->stale && s->alloc == p->base && s->serial == p->serial;
}

/* The live one that has [begin, end); those of freed memory are found on the way. */
static rcclx_shared *known(rcclx_windows *w, const rcclx_gpu_pointer *p, uint64_t begin, uint64_t end)
{
    rcclx_shared *found = NULL;

    for (int i = 0; i < w->nshared; i++) {
        rcclx_shared *s = &w->shared[i];
        if (s->state != RCCLX_SHARED_LIVE || s->base >= p->base + p->nbytes || p->base >= s->base + s->nbytes)
            continue;
        if (!same_allocation(s, p))
            s->stale = true;
        else if (s->base <= begin && end - s->base <= s->nbytes)
            found = s;
    }
    return found;
}

static rcclx_shared *unused(rcclx_windows *w)
{
    for (int i = 0; i < GP_REGS; i++) {
        rcclx_shared *s = &w->shared[i];
        if (s->state == RCCLX_SHARED_LIVE || (s->state == RCCLX_SHARED_DROPPING && !all_dropped(w, s)))
            continue;
        w->nshared = i < w->nshared ? w->nshared : i + 1;
        return s;
    }
    return NULL;
}

static rcclx_status share(rcclx_windows *w, const rcclx_gpu_pointer *p, uint64_t base, const rcclx_gpu_handle *h, rcclx_way way,
                          rcclx_shared **out)
{
    rcclx_shared *s = *out = unused(w);

    if (!s)
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "rank %d: register: %d allocations are registered, or were and some peer still has "
                          "them mapped; deregister some first", w->rank, GP_REGS);
    *s = (rcclx_shared){
        .state = RCCLX_SHARED_LIVE, .generation = s->generation % GENERATIONS + 1, .way = way,
        .base = base, .nbytes = h->nbytes, .alloc = p->base, .serial = p->serial,
    };
    expect_room(w);
    tell(w, s, h);
    note_unsent(w, w->unsent || to_tell(w, s));
    return RCCLX_OK;
}

/* What a peer would map: the whole allocation, or as much of it as one handle covers. */
static rcclx_status export_it(const rcclx_windows *w, const void *ptr, size_t nbytes, const rcclx_gpu_pointer *p,
                              rcclx_gpu_handle *h, rcclx_way *way)
{
    bool others = false;

    for (int r = 0; r < w->nranks; r++)
        others |= !rcclx_window_local(w, r);
    *h = (rcclx_gpu_handle){ .fd = -1, .nbytes = p->nbytes, .offset = (uint64_t)(uintptr_t)ptr - p->base };
    *way = RCCLX_WAY_NONE;
    if (!others && w->nranks == 1)
        return RCCLX_OK;
    const rcclx_status s = w->gpu->export(ptr, h);
    if (s != RCCLX_OK && others)
        return s;
    if (s == RCCLX_OK)
        *way = h->fd >= 0 ? RCCLX_WAY_FD : RCCLX_WAY_IPC;
    else
        *h = (rcclx_gpu_handle){ .fd = -1, .nbytes = p->nbytes, .offset = (uint64_t)(uintptr_t)ptr - p->base };
    if (h->offset <= h->nbytes && nbytes <= h->nbytes - h->offset)
        return RCCLX_OK;
    if (h->fd >= 0)
        close(h->fd);
    return RCCLX_FAIL(RCCLX_UNSUPPORTED, "rank %d: register: %zu bytes at %p reach beyond what one handle covers (%llu bytes); "
                      "register memory of ncclMemAlloc, or each part by itself", w->rank, nbytes, ptr,
                      (unsigned long long)h->nbytes);
}

static rcclx_status look(const rcclx_windows *w, const void *ptr, size_t nbytes, rcclx_gpu_pointer *p)
{
    if (!ptr || !nbytes)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: register: %zu bytes at %p are no buffer", w->rank, nbytes, ptr);
    RCCLX_TRY(w->gpu->pointer(ptr, p));
    if (p->place == RCCLX_AT_HOST || p->place == RCCLX_AT_PINNED)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: register: %p is host memory, but this communicator is on device %d; register "
                          "device memory, best of ncclMemAlloc", w->rank, ptr, w->device);
    if (p->place == RCCLX_AT_MANAGED)
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "rank %d: register: %p is managed memory, which moves and cannot be mapped by "
                          "peers; register memory of ncclMemAlloc", w->rank, ptr);
    if (p->device != w->device)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: register: %p lies on device %d, but this communicator is on device %d; is "
                          "the right device current when it is allocated?", w->rank, ptr, p->device, w->device);
    if (!p->nbytes)
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "rank %d: register: %s does not say which allocation %p lies in; register memory of "
                          "ncclMemAlloc", w->rank, w->gpu->about, ptr);
    const uint64_t left = p->base + p->nbytes - (uint64_t)(uintptr_t)ptr;
    if (nbytes > left)
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "rank %d: register: %zu bytes at %p, but its allocation ends after %llu; register "
                          "each allocation by itself", w->rank, nbytes, ptr, (unsigned long long)left);
    return RCCLX_OK;
}

/* The same range of the same allocation again? */
static rcclx_range *again(const rcclx_windows *w, uint64_t begin, uint64_t end, const rcclx_shared *s)
{
    for (int i = behind(w, begin) - 1; s && i >= 0 && w->ranges[i].begin == begin; i--)
        if (w->ranges[i].end == end && &w->shared[w->ranges[i].shared] == s)
            return &w->ranges[i];
    return NULL;
}

static void let_go(rcclx_windows *w, rcclx_shared *s)
{
    const rcclx_gpu_handle none = { .fd = -1 };

    if (s->uses > 0)
        return;
    s->state = RCCLX_SHARED_DROPPING;
    expect_room(w);
    tell(w, s, &none);
    note_unsent(w, w->unsent || to_tell(w, s));
}

static rcclx_status add(rcclx_windows *w, const void *ptr, size_t nbytes, const rcclx_gpu_pointer *p, int *reg)
{
    const uint64_t begin = (uint64_t)(uintptr_t)ptr, end = begin + nbytes;
    rcclx_shared *s = known(w, p, begin, end);
    rcclx_range *r = again(w, begin, end, s);

    if (r) {
        r->uses++;
        *reg = r->reg;
        return RCCLX_OK;
    }
    if (!s) {
        rcclx_gpu_handle h;
        rcclx_way way;
        RCCLX_TRY(export_it(w, ptr, nbytes, p, &h, &way));
        const rcclx_status shared = share(w, p, begin - h.offset, &h, way, &s);
        if (h.fd >= 0)
            close(h.fd);
        RCCLX_TRY(shared);
    }
    const rcclx_range fresh = { .begin = begin, .end = end, .reg = w->next, .uses = 1, .shared = (int)(s - w->shared) };
    const rcclx_status kept = insert(w, &fresh);
    if (kept == RCCLX_OK) {
        s->uses++;
        *reg = w->next;
        w->next = w->next < INT32_MAX ? w->next + 1 : 0;
    }
    let_go(w, s);
    return kept;
}

rcclx_status rcclx_windows_register(rcclx_windows *w, const void *ptr, size_t nbytes, int *reg)
{
    rcclx_gpu_pointer p;
    rcclx_window_visit v;

    if (w->host)
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "rank %d: register: the devices of this communicator reach each other through host "
                          "memory only", w->rank);
    RCCLX_TRY(rcclx_window_enter(w, &v));
    rcclx_status s = look(w, ptr, nbytes, &p);
    if (s == RCCLX_OK) {
        pthread_mutex_lock(&w->lock);
        rcclx_window_flush(w);
        s = add(w, ptr, nbytes, &p, reg);
        pthread_mutex_unlock(&w->lock);
    }
    rcclx_window_leave(w, &v);
    return s;
}

rcclx_status rcclx_windows_deregister(rcclx_windows *w, int reg)
{
    pthread_mutex_lock(&w->lock);
    rcclx_range *r = find(w, reg);
    if (r && --r->uses == 0) {
        rcclx_shared *s = &w->shared[r->shared];
        const int at = (int)(r - w->ranges);
        memmove(r, r + 1, (size_t)(--w->nranges - at) * sizeof(*r));
        renew_reach(w, at);
        s->uses--;
        let_go(w, s);
    }
    pthread_mutex_unlock(&w->lock);
    if (!r)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: deregister: there is no registration %d; was it deregistered before?",
                          w->rank, reg);
    return RCCLX_OK;
}

/* --- token ------------------------------------------------------------------------ */

static bool usable(rcclx_windows *w, int i, uint64_t begin, uint64_t end)
{
    const rcclx_range *r = &w->ranges[i];

    return r->begin <= begin && end <= r->end && !w->shared[r->shared].stale &&
           verdict(w, &w->shared[r->shared]) == RCCLX_ANSWER_MAPPED;
}

uint64_t rcclx_windows_token(rcclx_windows *w, const void *ptr, size_t nbytes)
{
    const uint64_t begin = (uint64_t)(uintptr_t)ptr, end = begin + nbytes;
    uint64_t token = 0;

    pthread_mutex_lock(&w->lock);
    int i = w->last;
    if (i >= w->nranges || !usable(w, i, begin, end)) {
        i = behind(w, begin) - 1;
        while (i >= 0 && w->ranges[i].reach >= end && !usable(w, i, begin, end))
            i--;
        if (i >= 0 && w->ranges[i].reach < end)
            i = -1;
    }
    if (i >= 0) {
        w->last = i;
        token = GP_TOKEN(w->ranges[i].shared, begin - w->shared[w->ranges[i].shared].base);
    }
    pthread_mutex_unlock(&w->lock);
    return token;
}

bool rcclx_windows_settled(rcclx_windows *w, int reg)
{
    pthread_mutex_lock(&w->lock);
    const rcclx_range *r = find(w, reg);
    const bool settled = !r || verdict(w, &w->shared[r->shared]) != RCCLX_ANSWER_NONE;
    pthread_mutex_unlock(&w->lock);
    return settled;
}
