/* A team's beginning, end, and what ends it early.
 *
 * The first cause that breaks a team is kept and told: locally to every later
 * call, to the peers through this rank's area (state FAILED and the text) and
 * the segment's `failed` word, which a waiting rank looks at. Abort only sets a
 * word; whoever runs an operation sees it. */
#include "exec/mirror.h"
#include "exec/runner.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/option.h"

#include <string.h>
#include <time.h>

enum { ABORT_NS = 500000000 }; /* operations in progress look up far more often */

/* Once, whoever comes first: a watch may break a team while it is being taken down. */
static bool say(rcclx_team *t, rcclx_rank_state state, rcclx_status s, const char *text, int origin)
{
    rcclx_ident *me = &t->area[t->rank]->ident;

    pthread_mutex_lock(&t->cause_lock);
    const bool first = atomic_load(&me->state) <= RCCLX_RANK_READY;
    if (first) {
        me->status = (int32_t)s;
        me->origin = origin;
        strncpy(me->text, text, sizeof(me->text) - 1);
        atomic_store_explicit(&me->state, (uint32_t)state, memory_order_release);
    }
    pthread_mutex_unlock(&t->cause_lock);
    return first;
}

static void tell(rcclx_team *t, rcclx_rank_state state, rcclx_status s, const char *text, int origin)
{
    if (!say(t, state, s, text, origin))
        return;
    atomic_fetch_add(&t->segment.head->failed, 1);
    rcclx_team_ring(t);
    if (t->mirror)
        rcclx_mirror_tell(t);
}

/* joined: another team's failure has become this one's. */
static rcclx_status keep(rcclx_team *t, rcclx_status s, const char *text, int origin, bool joined)
{
    bool first = false;

    pthread_mutex_lock(&t->cause_lock);
    if (!atomic_load(&t->broken)) {
        first = true;
        strncpy(t->cause, text, sizeof(t->cause) - 1);
        atomic_store_explicit(&t->broken, (uint32_t)s, memory_order_release);
    }
    s = (rcclx_status)atomic_load(&t->broken);
    pthread_mutex_unlock(&t->cause_lock);
    rcclx_last_error_set(t->cause);
    if (t->gpu)
        rcclx_gpu_team_abort(t);
    if (!first)
        return s;
    if (!joined)
        rcclx_alert(__FILE__, __LINE__, "%s", t->cause);
    tell(t, RCCLX_RANK_FAILED, s, t->cause, origin);
    if (t->proxy)
        rcclx_proxy_spread(t, s, t->cause);
    else if (!joined)
        rcclx_proxy_raise(t, s, t->cause);
    return s;
}

rcclx_status rcclx_team_break(rcclx_team *t, rcclx_status s, const char *text)
{
    return keep(t, s, text, t->rank, false);
}

void rcclx_team_join_break(rcclx_team *t, rcclx_status s, const char *text)
{
    keep(t, s, text, t->rank, true);
}

/* With the text of whoever failed first, or it would grow with every rank that
 * passes it on, until the one name that matters is cut off. */
rcclx_status rcclx_team_follow(rcclx_team *t, int r, const char *what)
{
    const int first = t->area[r]->ident.origin;
    char text[RCCLX_ERROR_TEXT];

    if (first >= 0 && first < t->nranks && first != t->rank &&
        atomic_load_explicit(&t->area[first]->ident.state, memory_order_acquire) == RCCLX_RANK_FAILED)
        r = first;
    const rcclx_ident *id = &t->area[r]->ident;
    snprintf(text, sizeof(text), "rank %d of %d: %s%srank %d failed: %.700s", t->rank, t->nranks, what, *what ? ": " : "", r,
             id->text);
    return keep(t, id->status == RCCLX_MISMATCH ? RCCLX_MISMATCH : RCCLX_PEER_LOST, text, r, false);
}

rcclx_status rcclx_team_broken(rcclx_team *t)
{
    const uint32_t s = atomic_load_explicit(&t->broken, memory_order_acquire);

    if (__builtin_expect(!s && !atomic_load_explicit(&t->aborted, memory_order_relaxed), 1))
        return RCCLX_OK;
    if (s) {
        rcclx_last_error_set(t->cause);
        return (rcclx_status)s;
    }
    rcclx_last_error_set("the communicator was aborted (ncclCommAbort); make a new one");
    return RCCLX_ABORTED;
}

void rcclx_team_abort(rcclx_team *t)
{
    char text[64];

    atomic_store(&t->aborted, 1);
    if (t->gpu)
        rcclx_gpu_team_abort(t);
    snprintf(text, sizeof(text), "rank %d aborted its communicator", t->rank);
    if (t->segment.head)
        tell(t, RCCLX_RANK_FAILED, RCCLX_ABORTED, text, t->rank);
    if (t->proxy)
        rcclx_proxy_spread(t, RCCLX_ABORTED, text);
}

/* Ranks that have come equally far but called different things. */
static bool strayed(const rcclx_team *t, int r)
{
    const uint64_t mine = atomic_load_explicit(&t->area[t->rank]->ident.path, memory_order_acquire);
    const uint64_t theirs = atomic_load_explicit(&t->area[r]->ident.path, memory_order_acquire);

    return (uint32_t)mine == (uint32_t)theirs && mine != theirs;
}

bool rcclx_team_lost(const rcclx_team *t, int r, char *how, size_t nhow)
{
    const char *why;

    if (rcclx_mirror_lost(t, r, &why)) {
        snprintf(how, nhow, "has ended or is out of reach (%s)", why);
        return true;
    }
    snprintf(how, nhow, "has ended");
    return rcclx_life_dead(t->peer[r].life);
}

/* The same looks a waiting operation takes, without one. */
rcclx_status rcclx_team_poll(rcclx_team *t)
{
    rcclx_status s = rcclx_team_broken(t);
    char text[RCCLX_ERROR_TEXT], how[240];

    if (s == RCCLX_OK && t->gpu)
        s = rcclx_gpu_team_poll(t);
    if (s == RCCLX_OK && t->proxy)
        s = rcclx_proxy_poll(t);
    for (int r = 0; s == RCCLX_OK && r < t->nranks; r++) {
        const rcclx_ident *id = &t->area[r]->ident;
        const uint32_t state = atomic_load_explicit(&id->state, memory_order_acquire);
        if (r == t->rank || state == RCCLX_RANK_CLOSED)
            continue;
        if (strayed(t, r)) {
            const uint64_t done = atomic_load(&t->area[t->rank]->done.value);
            const uint32_t at = (uint32_t)atomic_load(&t->area[t->rank]->ident.path);
            return rcclx_mismatch(t, r, done + (uint64_t)(int64_t)(int32_t)(at - (uint32_t)done));
        }
        if (state == RCCLX_RANK_FAILED)
            return rcclx_team_follow(t, r, "");
        if (!rcclx_team_lost(t, r, how, sizeof(how)) || atomic_load(&id->state) == RCCLX_RANK_CLOSED)
            continue;
        snprintf(text, sizeof(text), "rank %d of %d: rank %d (pid %d) %s; abort this communicator and make a new one "
                 "without it", t->rank, t->nranks, r, t->peer[r].pid, how);
        s = rcclx_team_break(t, RCCLX_PEER_LOST, text);
    }
    return s;
}

/* Counters count from where the team does. Tests start near a wrap. */
void rcclx_area_start(rcclx_area *a, int nranks, uint64_t seq)
{
    atomic_store(&a->done.value, seq);
    for (int l = 0; l < RCCLX_NLANES; l++)
        atomic_store(&a->lane[l].value, RCCLX_MARK(seq, 0, 0));
    for (int i = 0; i < RCCLX_NSLOTS; i++)
        atomic_store(&a->header[i].seq, seq);
    for (int r = 0; seq && r < nranks; r++) {
        atomic_store(&a->fifo[r].taken.value, seq);
        for (int i = 0; i < RCCLX_FIFO_SLOTS; i++)
            atomic_store(&a->fifo[r].slots[i].seq, seq);
    }
}

rcclx_team *rcclx_team_gpu(rcclx_team *t)
{
    return t->proxy ? rcclx_proxy_near_team(t) : t->gpu ? t : NULL;
}

void rcclx_team_set_timeout(rcclx_team *t, double seconds)
{
    atomic_store(&t->timeout, seconds);
    if (t->gpu)
        rcclx_gpu_team_set_timeout(t, seconds);
    if (t->proxy)
        rcclx_proxy_set_timeout(t, seconds);
}

rcclx_status rcclx_team_start(rcclx_team *t)
{
    pthread_mutex_init(&t->cause_lock, NULL);
    pthread_mutex_init(&t->above_lock, NULL);
    atomic_init(&t->timeout, rcclx_option_real(RCCLX_OPT_TIMEOUT));
    t->warn_after = rcclx_option_real(RCCLX_OPT_WARN_AFTER);
    t->seq = t->credit = (uint64_t)rcclx_option_int(RCCLX_OPT_SEQ_START);
    rcclx_area_start(t->area[t->rank], t->nranks, t->seq);
    for (int r = 0; r < t->nranks; r++)
        t->sent[r] = t->received[r] = t->sending[r] = t->receiving[r] = t->seq;
    return rcclx_runner_create(t);
}

/* What is queued of an aborted team may stand behind another team's operation, in
 * a stream or a group. It will not run, and it holds the team: nobody needs to
 * wait for it. */
void rcclx_team_drain(rcclx_team *t)
{
    const uint64_t last = atomic_load(&t->tickets), began = rcclx_clock_ns();

    while ((int64_t)(atomic_load_explicit(&t->serving, memory_order_acquire) - last) < 0) {
        const struct timespec nap = { 0, 100000 };
        if (atomic_load(&t->aborted) && rcclx_clock_ns() - began > ABORT_NS)
            return;
        nanosleep(&nap, NULL);
    }
    if (t->gpu)
        rcclx_gpu_team_drain(t);
    if (t->proxy)
        rcclx_proxy_drain(t);
}

void rcclx_team_stop(rcclx_team *t)
{
    /* a rank that was never READY has said why */
    if (t->segment.head && t->runner && !atomic_load(&t->broken) && !atomic_load(&t->aborted) &&
        atomic_load(&t->area[t->rank]->ident.state) == RCCLX_RANK_READY)
        tell(t, RCCLX_RANK_CLOSED, RCCLX_OK, "", t->rank);
    rcclx_proxy_destroy(t);
    rcclx_gpu_team_destroy(t);
    rcclx_runner_destroy(t);
}
