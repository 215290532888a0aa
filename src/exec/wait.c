/* Waiting. A rank that waits
 *
 *   spins    while its peers are likely to answer within the time a sleep would cost,
 *   yields   so that ranks sharing a core make progress at scheduler speed,
 *   sleeps   on the team's bell (a futex), with a bound, so that a bell missed costs
 *            a moment and never the operation.
 *
 * Now and then it looks up: was the team aborted, has a peer failed or died, is
 * the deadline past? A wait ends by success or by a cause that can be named. */
#include "exec/mirror.h"
#include "exec/task.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/option.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_EVERY = 1024, YIELD_NS = 4000000, DEATH_NS = 20000000, MAX_SLEEP_NS = 20000000 };

static void sleep_on(rcclx_segment_head *h, uint64_t waited)
{
    const uint64_t bound = waited / 4 < MAX_SLEEP_NS ? waited / 4 + 200000 : MAX_SLEEP_NS;
    const struct timespec t = { 0, (long)bound };
    const uint32_t bell = atomic_load(&h->bell);

    atomic_fetch_add(&h->sleepers, 1);
    syscall(SYS_futex, &h->bell, FUTEX_WAIT, bell, &t, NULL, 0);
    atomic_fetch_sub(&h->sleepers, 1);
}

void rcclx_team_ring(rcclx_team *t)
{
    rcclx_segment_head *h = t->segment.head;

    if (atomic_load_explicit(&h->sleepers, memory_order_relaxed) == 0)
        return;
    atomic_fetch_add(&h->bell, 1);
    syscall(SYS_futex, &h->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool rcclx_patience_round(rcclx_patience *p, rcclx_team *t)
{
    const uint32_t n = p->rounds++;

    if (t->mirror)
        rcclx_mirror_poll(t);

    if (!t->crowded && n < LOOK_EVERY) {
        rcclx_cpu_relax();
        return false;
    }
    if (t->crowded && n < 64) {
        sched_yield();
        return false;
    }
    if (!t->crowded && n % 64) {
        rcclx_cpu_relax();
        return false;
    }
    const uint64_t now = rcclx_clock_ns();
    if (!p->began)
        p->began = p->checked = now;
    const uint64_t waited = now - p->began;
    if (!t->crowded && waited < (uint64_t)t->spin_ns)
        return n % LOOK_EVERY == 0;
    if (waited < (uint64_t)t->spin_ns + YIELD_NS)
        sched_yield();
    else
        sleep_on(t->segment.head, waited);
    if (now - p->checked < 1000000)
        return false;
    p->checked = now;
    return true;
}

/* --- what ends a wait ------------------------------------------------------ */

static void peer_doing(const rcclx_team *t, int r, char *text, size_t n)
{
    const rcclx_area *a = t->area[r];
    const uint64_t now = atomic_load_explicit(&a->ident.now, memory_order_relaxed);
    const uint64_t done = atomic_load_explicit(&a->done.value, memory_order_relaxed);

    if (now)
        snprintf(text, n, "it is in %s%s, its collective number %llu", rcclx_kind_name((rcclx_kind)((now >> 32) - 1)),
                 now >> 31 & 1 ? " (group)" : "", (unsigned long long)(done + 1));
    else
        snprintf(text, n, "it has finished %llu collectives and is in none", (unsigned long long)done);
}

static rcclx_status lost(rcclx_task *t, int r, const char *how)
{
    rcclx_team *team = t->op.team;
    char what[160], text[RCCLX_ERROR_TEXT];

    rcclx_task_words(t, what, sizeof(what));
    snprintf(text, sizeof(text), "rank %d of %d: %s: rank %d (pid %d) %s; abort this communicator and make a new one "
             "without it", team->rank, team->nranks, what, r, team->peer[r].pid, how);
    return rcclx_team_break(team, RCCLX_PEER_LOST, text);
}

rcclx_status rcclx_task_fail(rcclx_task *t, rcclx_status s)
{
    rcclx_team *team = t->op.team;
    char what[160], text[RCCLX_ERROR_TEXT];
    const rcclx_status broken = rcclx_team_broken(team);

    if (broken != RCCLX_OK)
        return broken;
    rcclx_task_words(t, what, sizeof(what));
    snprintf(text, sizeof(text), "rank %d of %d: %s: %.700s", team->rank, team->nranks, what, rcclx_last_error());
    return rcclx_team_break(team, s, text);
}

static int waits_for(const rcclx_task *t)
{
    return t->op.kind < RCCLX_COLL_COUNT ? rcclx_coll_waits_for(t) : t->op.root;
}

/* Whoever is gone may have answered just before: look once more. One that has
 * closed its communicator matters only to those who still wait for it. */
static rcclx_status gone(rcclx_task *t, int r, bool closed, const char *how)
{
    const rcclx_status s = t->op.kind < RCCLX_COLL_COUNT ? rcclx_coll_poll(t) : rcclx_pair_poll(t);

    return s != RCCLX_AGAIN || (closed && waits_for(t) != r) ? s : lost(t, r, how);
}

/* A peer that failed or closed its communicator says so in its area. */
static rcclx_status peer_failed(rcclx_task *t)
{
    rcclx_team *team = t->op.team;
    rcclx_status s = RCCLX_AGAIN;

    if (!atomic_load_explicit(&team->segment.head->failed, memory_order_acquire))
        return RCCLX_AGAIN;
    for (int r = 0; s == RCCLX_AGAIN && r < team->nranks; r++) {
        const rcclx_ident *id = &team->area[r]->ident;
        const uint32_t state = r == team->rank ? 0 : atomic_load_explicit(&id->state, memory_order_acquire);
        if (state == RCCLX_RANK_CLOSED && waits_for(t) == r)
            s = gone(t, r, true, "has destroyed its communicator");
        if (state != RCCLX_RANK_FAILED)
            continue;
        char what[160];
        rcclx_task_words(t, what, sizeof(what));
        return rcclx_team_follow(team, r, what);
    }
    return s;
}

static rcclx_status peer_died(rcclx_task *t)
{
    rcclx_team *team = t->op.team;
    rcclx_status s = RCCLX_AGAIN;

    char how[240];

    for (int r = 0; s == RCCLX_AGAIN && r < team->nranks; r++) {
        if (!rcclx_team_lost(team, r, how, sizeof(how)))
            continue;
        const bool closed = atomic_load(&team->area[r]->ident.state) == RCCLX_RANK_CLOSED;
        if (!closed || waits_for(t) == r)
            s = gone(t, r, closed, how);
    }
    return s;
}

/* Two sends face each other outside groups: neither can ever be received. */
static rcclx_status head_to_head(rcclx_task *t)
{
    rcclx_team *team = t->op.team;
    const int r = t->op.root;

    if (t->op.kind != RCCLX_SEND || t->grouped || r == team->rank)
        return RCCLX_AGAIN;
    const uint64_t theirs = atomic_load_explicit(&team->area[r]->ident.now, memory_order_relaxed);
    if (theirs != RCCLX_NOW(RCCLX_SEND, team->rank, 0) || ++t->stuck < 100)
        return RCCLX_AGAIN;
    char text[RCCLX_ERROR_TEXT];
    snprintf(text, sizeof(text), "rank %d of %d: Send to rank %d: that rank is in a Send to this one, and neither is in a "
             "group, so that neither can receive; put both in one group: ncclGroupStart, ncclSend, ncclRecv, ncclGroupEnd",
             team->rank, team->nranks, r);
    return rcclx_team_break(team, RCCLX_USAGE, text);
}

static rcclx_status deadline(rcclx_task *t, int culprit, double waited)
{
    rcclx_team *team = t->op.team;
    const bool late = team->timeout > 0 && waited > team->timeout;
    char what[160], doing[160] = "", text[RCCLX_ERROR_TEXT];

    if (!late && (t->warned || team->warn_after <= 0 || waited < team->warn_after))
        return RCCLX_AGAIN;
    rcclx_task_words(t, what, sizeof(what));
    if (culprit >= 0)
        peer_doing(team, culprit, doing, sizeof(doing));
    snprintf(text, sizeof(text), "rank %d of %d: %s waits since %.1f s for rank %d (pid %d): %s", team->rank, team->nranks,
             what, waited, culprit, culprit >= 0 ? team->peer[culprit].pid : 0, doing);
    if (!late) {
        t->warned = true;
        rcclx_alert(__FILE__, __LINE__, "%s", text);
        return RCCLX_AGAIN;
    }
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "; RCCLX_TIMEOUT is %g s", team->timeout);
    return rcclx_team_break(team, RCCLX_TIMEOUT, text);
}

rcclx_status rcclx_task_check(rcclx_task *t, uint64_t waited_ns)
{
    rcclx_team *team = t->op.team;
    rcclx_status s = rcclx_team_broken(team);

    if (s != RCCLX_OK)
        return s;
    if ((s = peer_failed(t)) != RCCLX_AGAIN || (s = head_to_head(t)) != RCCLX_AGAIN)
        return s;
    if (t->op.kind < RCCLX_COLL_COUNT && team->mirror && (s = rcclx_coll_passed(t)) != RCCLX_AGAIN)
        return s;
    if (waited_ns >= DEATH_NS && (s = peer_died(t)) != RCCLX_AGAIN)
        return s;
    return deadline(t, waits_for(t), (double)waited_ns * 1e-9);
}

/* --- turns ------------------------------------------------------------------ */

uint64_t rcclx_turn_take(rcclx_team *t)
{
    return atomic_fetch_add_explicit(&t->tickets, 1, memory_order_relaxed);
}

void rcclx_turn_wait(rcclx_team *t, uint64_t ticket)
{
    for (uint32_t n = 0; atomic_load_explicit(&t->serving, memory_order_acquire) != ticket; n++) {
        if (atomic_load_explicit(&t->aborted, memory_order_relaxed))
            return; /* nothing of this team runs any more, so there is no order to keep */
        if (n < 1000) {
            rcclx_cpu_relax();
        } else if (n < 2000) {
            sched_yield();
        } else {
            const struct timespec nap = { 0, 200000 };
            nanosleep(&nap, NULL);
        }
    }
}

void rcclx_turn_pass(rcclx_team *t)
{
    const uint64_t next = atomic_load_explicit(&t->serving, memory_order_relaxed) + 1;

    /* only who has the turn writes, unless an abort has sent all of them on */
    if (atomic_load_explicit(&t->aborted, memory_order_relaxed))
        atomic_fetch_add(&t->serving, 1);
    else
        atomic_store_explicit(&t->serving, next, memory_order_release);
}
