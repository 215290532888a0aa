/* A plug-in as a network: an end, its ways, and what is common to them. See plugin_way.h
 * for a way and plugin_find.c for which plug-in.
 *
 *   open      context, devices       letter    two listens for a rank; their handles
 *   connect   notes the peer's       send      a flight; at once, if its way is open
 *   poll      a round of all ways:   connect and accept | take what has come, send what waits
 *   arm       a timer: plug-ins have no handle to sleep on. It is short after something has
 *             moved and grows to 2 ms
 *
 * A rank that goes says so in its last notes (BYE), since a connection that ends says nothing of
 * why; who hears it answers alike, and then nothing is under way on either end. To a rank to whom nothing has been sent for a second a note is sent (PING), so that a
 * network that notices a dead peer only by sending does so. */
#include "base/clock.h"
#include "base/library.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "transport/plugin/net_abi.h"
#include "transport/plugin/plugin_way.h"

#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 64, NAP_NS = 50000, LONGEST_NAP_NS = 2000000, MOURN_NS = 200000000, PING_NS = 1000000000 };

_Static_assert(2 * RCCLX_ABI_HANDLE == RCCLX_NET_LETTER, "a letter holds two handles");

struct rcclx_plugin_block {
    rcclx_plugin_block *next;
    rcclx_plugin_flight flights[BLOCK];
};

/* --- flights --------------------------------------------------------------------------- */

rcclx_plugin_flight *rcclx_plugin_take(rcclx_plugin_end *e)
{
    if (!e->unused) {
        rcclx_plugin_block *b = RCCLX_NEW(rcclx_plugin_block);
        if (!b)
            return NULL;
        b->next = e->blocks;
        e->blocks = b;
        for (int i = 0; i < BLOCK; i++)
            rcclx_plugin_give(e, &b->flights[i]);
    }
    rcclx_plugin_flight *f = e->unused;
    e->unused = f->next;
    f->next = NULL;
    f->staged = false;
    f->posted = f->done = f->nbytes = 0;
    f->mr = f->data = NULL;
    return f;
}

void rcclx_plugin_give(rcclx_plugin_end *e, rcclx_plugin_flight *f)
{
    f->next = e->unused;
    e->unused = f;
}

void rcclx_plugin_push(rcclx_plugin_queue *q, rcclx_plugin_flight *f)
{
    f->next = NULL;
    if (q->first)
        q->last->next = f;
    else
        q->first = f;
    q->last = f;
}

rcclx_plugin_flight *rcclx_plugin_pop(rcclx_plugin_queue *q)
{
    rcclx_plugin_flight *f = q->first;

    q->first = f->next;
    return f;
}

/* --- what goes wrong ------------------------------------------------------------------------ */

void rcclx_way_lose(rcclx_plugin_way *w, const char *why)
{
    if (w->lost)
        return;
    w->lost = true;
    w->e->owner.lost(w->e->owner.owner, w->rank, why);
}

void rcclx_way_fail(rcclx_plugin_way *w, bool receiving, const char *what, int result)
{
    char words[160];

    rcclx_library_words(words, sizeof(words));
    if (!w->died) {
        w->died = w->e->now;
        snprintf(w->why, sizeof(w->why), "plug-in %s: %s: %s%s%s", w->e->p->name, what, rcclx_library_result(result),
                 *words ? ": " : "", words);
    }
    *(receiving ? &w->deaf : &w->mute) = true;
}

void rcclx_lane_fail(rcclx_plugin_way *w, rcclx_plugin_lane *l, int result)
{
    const bool receiving = l == &w->in[RCCLX_LANE_NOTES] || l == &w->in[RCCLX_LANE_DATA];

    l->broken = true;
    rcclx_way_fail(w, receiving, receiving ? "receiving failed" : "sending failed", result);
}

/* A way has failed: what had been sent before may still be on its way here, above all that its rank has ended. */
static void mourn(rcclx_plugin_way *w)
{
    const bool due = rcclx_way_due(w);

    if ((due || !w->byes) && ((w->deaf && !due) || w->e->now - w->died > MOURN_NS))
        rcclx_way_lose(w, w->why);
}

/* --- an end -------------------------------------------------------------------------------- */

static bool listed(const char *name, const char *list)
{
    for (size_t n; *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        if (n && strlen(name) == n && !strncmp(name, list, n))
            return true;
    }
    return false;
}

static bool usable(const rcclx_plugin_device *d)
{
    return d->offload == 0 && d->pointers & RCCLX_ABI_HOST && d->max_bytes >= RCCLX_NOTE_DATA + sizeof(rcclx_frame) + 64;
}

/* Those that RCCLX_NET_DEVICE names; else those called as the interfaces that may be used; else all. */
static rcclx_status choose_devices(rcclx_plugin_end *e)
{
    const char *const asked = rcclx_option_str(RCCLX_OPT_NET_DEVICE), *const lists[] = { asked, e->owner.devices, NULL };
    char known[400] = "";
    size_t at = 0;

    for (int k = *asked ? 0 : 1; k < (*asked ? 1 : 3) && !e->ndevices; k++)
        for (int i = 0; i < e->p->ndevices; i++)
            if (usable(&e->p->device[i]) && (!lists[k] || listed(e->p->device[i].name, lists[k])))
                e->devices[e->ndevices++] = i;
    for (int i = 0; i < e->p->ndevices && at < sizeof(known); i++)
        at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s%s", i ? ", " : "", e->p->device[i].name,
                               usable(&e->p->device[i]) ? "" : " (not for host memory)");
    if (!e->ndevices)
        return RCCLX_FAIL(RCCLX_USAGE, "rank %d: plug-in %s: no device can be used%s%s; there are: %s", e->owner.rank, e->p->name,
                          *asked ? ", RCCLX_NET_DEVICE is " : "", asked, known);
    return RCCLX_OK;
}

static void settle_bounds(rcclx_plugin_end *e)
{
    e->group = RCCLX_PLUGIN_GROUP;
    e->part = RCCLX_PART_BYTES;
    for (int i = 0; i < e->ndevices; i++) {
        const rcclx_plugin_device *d = &e->p->device[e->devices[i]];
        e->group = d->max_recvs < e->group ? d->max_recvs : e->group;
        e->part = d->max_bytes < e->part ? d->max_bytes : e->part;
        RCCLX_INFO_LOG(NET, "NET/Plugin: Using %s of %s (v%d), %d receives a call", d->name, e->p->name, e->v->version, d->max_recvs);
    }
    e->group = e->group < 1 ? 1 : e->group;
}

static rcclx_status open_end(const rcclx_net_owner *o, void **out)
{
    rcclx_plugin_end *e = *out = RCCLX_NEW(rcclx_plugin_end);

    if (!e || !(e->ways = rcclx_mem_alloc((size_t)o->nranks * sizeof(*e->ways))))
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: no memory for the network's end", o->rank);
    e->owner = *o;
    e->p = (rcclx_plugin *)(uintptr_t)o->net->how;
    e->v = e->p->v;
    e->table = e->p->table;
    e->timeout = 0.9 * rcclx_option_real(RCCLX_OPT_INIT_TIMEOUT); /* so that init can tell of it */
    e->nap_ns = NAP_NS;
    e->now = rcclx_clock_ns();
    for (int r = 0; r < o->nranks; r++)
        e->ways[r] = (rcclx_plugin_way){ .e = e, .rank = r };
    if ((e->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) < 0)
        return RCCLX_FAIL_ERRNO("rank %d: a timer for the network", o->rank);
    RCCLX_TRY(choose_devices(e));
    settle_bounds(e);
    const int r = rcclx_plugin_context_open(e->p, o->id, &e->context);
    char words[160];
    rcclx_library_words(words, sizeof(words));
    e->opened = r == 0;
    return r ? RCCLX_FAIL(RCCLX_SYSTEM, "rank %d: plug-in %s: its init failed: %s%s%s", o->rank, e->p->name, rcclx_library_result(r),
                          *words ? ": " : "", words) : RCCLX_OK;
}

static rcclx_status address(void *p, void *bytes, size_t *nbytes)
{
    (void)p, (void)bytes;
    *nbytes = 0; /* all that is to be said is in the letters */
    return RCCLX_OK;
}

int rcclx_plugin_device_of(const rcclx_plugin_end *e, int rank)
{
    return e->devices[(e->owner.rank + rank) % e->ndevices];
}

/* A listen serves one connection only, and does not say whose; so everybody gets his own. */
static rcclx_status letter(void *p, int rank, void *bytes)
{
    rcclx_plugin_end *e = p;

    memset(bytes, 0, RCCLX_NET_LETTER);
    for (int k = 0; k < 2; k++) {
        const int r = e->v->listen(e->table, e->context, rcclx_plugin_device_of(e, rank), (char *)bytes + k * RCCLX_ABI_HANDLE,
                                   &e->ways[rank].in[k].listen);
        char words[160];
        rcclx_library_words(words, sizeof(words));
        if (r || !e->ways[rank].in[k].listen)
            return RCCLX_FAIL(RCCLX_SYSTEM, "rank %d: plug-in %s: listening on %s failed: %s%s%s", e->owner.rank, e->p->name,
                              e->p->device[rcclx_plugin_device_of(e, rank)].name, rcclx_library_result(r), *words ? ": " : "", words);
    }
    return RCCLX_OK;
}

static rcclx_status connect_to(void *p, int rank, const void *bytes, size_t nbytes)
{
    rcclx_plugin_end *e = p;
    rcclx_plugin_way *w = &e->ways[rank];

    if (nbytes != sizeof(w->handle))
        return RCCLX_FAIL(RCCLX_INTERNAL, "rank %d: a letter of rank %d has %zu bytes", e->owner.rank, rank, nbytes);
    memcpy(w->handle, bytes, sizeof(w->handle));
    w->wanted = true;
    if (!e->deadline)
        e->deadline = rcclx_clock_ns() + (uint64_t)(e->timeout * 1e9);
    return RCCLX_OK;
}

static void post(rcclx_plugin_way *w, rcclx_note_kind kind, const rcclx_frame *frame, const void *data, size_t nbytes)
{
    if (w->lost || w->mute || w->leaving)
        return;
    rcclx_plugin_flight *f = rcclx_plugin_take(w->e);
    if (!f) {
        rcclx_way_lose(w, "no memory to send anything more");
        return;
    }
    f->kind = kind;
    f->frame.ninside = 0;
    if (frame)
        memcpy(&f->frame, frame, rcclx_frame_bytes(frame));
    f->data = (char *)(uintptr_t)data;
    f->nbytes = nbytes;
    f->part = w->e->part;
    rcclx_plugin_push(&w->notes, f);
    w->told = w->e->now;
}

static void send_frame(void *p, int rank, const rcclx_frame *frame, const void *data, size_t nbytes)
{
    rcclx_plugin_end *e = p;
    rcclx_plugin_way *w = &e->ways[rank];

    post(w, nbytes <= RCCLX_NOTE_DATA ? RCCLX_NOTE_EAGER : RCCLX_NOTE_LARGE, frame, data, nbytes);
    if (w->open && !w->mute)
        rcclx_way_send(w);
}

static bool go_on_with(rcclx_plugin_way *w)
{
    bool moved;

    if (!w->wanted || w->lost)
        return false;
    if (!w->open)
        return rcclx_way_meet(w);
    moved = rcclx_way_receive(w);
    if (w->byes)
        rcclx_way_leave(w, true);
    if (!w->lost && !w->mute)
        moved |= rcclx_way_send(w);
    if (w->died)
        mourn(w);
    else if (w->e->now - w->told > PING_NS)
        post(w, RCCLX_NOTE_PING, NULL, NULL, 0);
    return moved;
}

static bool go_on(void *p)
{
    rcclx_plugin_end *e = p;
    bool moved = false;

    e->now = rcclx_clock_ns();
    for (int r = 0; r < e->owner.nranks; r++)
        moved |= go_on_with(&e->ways[r]);
    if (moved)
        e->nap_ns = NAP_NS;
    return moved;
}

static bool idle(void *p)
{
    const rcclx_plugin_end *e = p;

    for (int r = 0; r < e->owner.nranks; r++)
        if (!rcclx_way_idle(&e->ways[r]))
            return false;
    return true;
}

static int arm(void *p)
{
    rcclx_plugin_end *e = p;
    const struct itimerspec t = { .it_value.tv_nsec = (long)e->nap_ns };

    e->nap_ns = 2 * e->nap_ns < LONGEST_NAP_NS ? 2 * e->nap_ns : LONGEST_NAP_NS;
    return timerfd_settime(e->timer, 0, &t, NULL) ? -1 : e->timer;
}

static bool all_left(const rcclx_plugin_end *e)
{
    for (int r = 0; r < e->owner.nranks; r++)
        if (!rcclx_way_left(&e->ways[r]))
            return false;
    return true;
}

/* What was sent arrives; the others answer within a quarter of the time, or are left to themselves. */
static void leave_all(rcclx_plugin_end *e, double seconds)
{
    const uint64_t all = (uint64_t)(seconds * 1e9), deadline = rcclx_clock_ns() + all;
    const struct timespec nap = { 0, NAP_NS };
    uint64_t idle_since = 0;

    for (int r = 0; r < e->owner.nranks; r++)
        rcclx_way_leave(&e->ways[r], false);
    while (!all_left(e) && e->now < deadline && (!idle_since || e->now - idle_since < all / 4)) {
        if (!go_on(e))
            nanosleep(&nap, NULL);
        if (!idle_since && idle(e))
            idle_since = e->now;
    }
}

static void close_end(void *p, double seconds)
{
    rcclx_plugin_end *e = p;

    if (!e)
        return;
    if (e->ways)
        leave_all(e, seconds);
    for (int r = 0; e->ways && r < e->owner.nranks; r++)
        rcclx_way_close(&e->ways[r]);
    if (e->opened)
        rcclx_plugin_context_close(e->p, e->context);
    if (e->ways && e->timer >= 0)
        close(e->timer);
    for (rcclx_plugin_block *b; (b = e->blocks);) {
        e->blocks = b->next;
        rcclx_mem_free(b);
    }
    rcclx_mem_free(e->ways);
    rcclx_mem_free(e);
}

const rcclx_network rcclx_plugin_row = {
    .about = "a network plug-in of NCCL's", .nletter = RCCLX_NET_LETTER, .open = open_end, .address = address, .letter = letter,
    .connect = connect_to, .send = send_frame, .poll = go_on, .idle = idle, .arm = arm, .close = close_end,
};
