/* The watch of a team on GPUs: a thread that sleeps until something happens.
 *
 *   poll   windows (a peer registered a buffer) | peers' processes | bell | 100 ms
 *     |
 *     +--> serve windows; has a peer died, or failed?   -> break, kernels leave
 *     +--> what have kernels reported?                  -> break, with who and what
 *     +--> which turn are they in, and how long?        -> one line in the log
 *     +--> which messages do they say they wait for?    -> the same
 *
 * Kernels look at the abort word while they wait, so whoever sets it has them gone
 * within microseconds. Here the host writes down for the peers which turns its kernels
 * are in, so that a text can say whom all wait for. */
#include "exec/gpu_team.h"

#include "exec/precision.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { TICK_MS = 100, CLOSED_NS = 200000000, QUIET_NS = 600000000, WINDOWS = 0, BELL = 1, PEERS = 2 };

static uint32_t peek(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* Is turn a before turn b? They wrap. */
static bool before(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

/* --- what was called ------------------------------------------------------------------ */

/* A rank's call of a turn in words. hash: what its header said, or 0; launches of graphs
 * count turns on that the host does not see, so that it is looked for by both. */
static void words(const rcclx_area *a, uint32_t turn, uint64_t hash, const char *otherwise, char *text, size_t n)
{
    const rcclx_gpu_call *best = NULL;

    for (int i = 0; i < RCCLX_NCALLS; i++) {
        const rcclx_gpu_call *c = &a->device.call[i];
        const bool same_turn = atomic_load_explicit(&c->turn, memory_order_acquire) == turn;
        const uint64_t theirs = atomic_load_explicit(&c->hash, memory_order_relaxed);
        if (!theirs || (hash ? theirs != hash : !same_turn))
            continue;
        if (!best || same_turn)
            best = c;
    }
    if (best)
        rcclx_call_words(atomic_load(&best->sig), atomic_load(&best->count), text, n);
    else
        snprintf(text, n, "%s", otherwise);
}

static void peer_doing(const rcclx_team *t, int r, uint32_t turn, char *text, size_t n)
{
    const rcclx_gpu_ident *d = &t->area[r]->device;
    const uint32_t posted = atomic_load(&d->posted), started = atomic_load(&d->started), finished = atomic_load(&d->finished);

    if (before(posted, turn))
        snprintf(text, n, "it has called %u collectives, this is number %u", posted, turn);
    else if (before(started, turn))
        snprintf(text, n, "it has called it, but its GPU has come to number %u only", started);
    else if (started != finished)
        snprintf(text, n, "its GPU is in number %u", started);
    else
        snprintf(text, n, "its GPU has finished number %u", finished);
}

/* --- what kernels report --------------------------------------------------------------- */

static rcclx_status differs(rcclx_team *t, const gp_control *c)
{
    const int r = (int)c->peer;
    char mine[160], theirs[160], text[RCCLX_ERROR_TEXT];

    words(t->area[t->rank], c->turn, c->sig, "one thing", mine, sizeof(mine));
    words(t->area[r], c->turn, c->peer_sig, "another", theirs, sizeof(theirs));
    snprintf(text, sizeof(text), "collective number %u: rank %d calls %s, but rank %d calls %s; all ranks must make the same calls "
             "in the same order with the same count, type, operator, root and precision", c->turn, t->rank, mine, r, theirs);
    return rcclx_team_break(t, RCCLX_MISMATCH, text);
}

static rcclx_status timed_out(rcclx_team *t, const gp_control *c)
{
    const int r = (int)c->peer;
    char what[160], doing[160], text[RCCLX_ERROR_TEXT];

    words(t->area[t->rank], c->turn, c->sig, rcclx_kind_name((rcclx_kind)c->kind), what, sizeof(what));
    peer_doing(t, r, c->turn, doing, sizeof(doing));
    snprintf(text, sizeof(text), "rank %d of %d: %s (collective number %u) on %s device %d waits since %.1f s for rank %d (pid %d): "
             "%s; RCCLX_TIMEOUT is %g s", t->rank, t->nranks, what, c->turn, t->driver->name, t->device,
             (double)c->waited_ns * 1e-9, r, t->peer[r].pid, doing, t->timeout);
    return rcclx_team_break(t, RCCLX_TIMEOUT, text);
}

/* "8 float in int8": what a message's signature says. */
static void message_words(uint64_t sig, char *text, size_t n)
{
    const int codec = GP_PAIR_SIG_CODEC(sig);

    snprintf(text, n, "%llu %s%s%s", (unsigned long long)GP_PAIR_SIG_COUNT(sig),
             rcclx_type_name((rcclx_type)GP_PAIR_SIG_TYPE(sig)), codec ? " in " : "", codec ? rcclx_precision_name(codec) : "");
}

/* "Send of 8 float to rank 1 (message number 3 of this pair)": what a kernel for messages reports. */
static void pair_words(const gp_control *c, char *text, size_t n)
{
    char what[64];

    message_words(c->sig, what, sizeof(what));
    snprintf(text, n, "%s of %s %s rank %u (message number %u of this pair)", rcclx_kind_name((rcclx_kind)c->kind), what,
             c->kind == RCCLX_SEND ? "to" : "from", c->peer, c->turn);
}

static rcclx_status pair_trouble(rcclx_team *t, const gp_control *c, bool late)
{
    char mine[160], theirs[64], text[RCCLX_ERROR_TEXT];

    pair_words(c, mine, sizeof(mine));
    message_words(c->peer_sig, theirs, sizeof(theirs));
    if (late)
        snprintf(text, sizeof(text), "rank %d of %d: %s on %s device %d waits since %.1f s for rank %u (pid %d) to "
                 "%s; RCCLX_TIMEOUT is %g s", t->rank, t->nranks, mine, t->driver->name, t->device,
                 (double)c->waited_ns * 1e-9, c->peer,
                 t->peer[c->peer].pid, c->kind == RCCLX_SEND ? "receive" : "send", t->timeout);
    else if (!c->peer_sig)
        snprintf(text, sizeof(text), "rank %d of %d: %s: rank %u's buffer is not within reach any more; is it deregistered or "
                 "freed while it is in use?", t->rank, t->nranks, mine, c->peer);
    else
        snprintf(text, sizeof(text), "rank %d of %d: %s, but rank %u %s %s; count, type and precision must be equal on both "
                 "sides, and messages of a pair match in order", t->rank, t->nranks, mine, c->peer,
                 c->kind == RCCLX_SEND ? "expects" : "sends", theirs);
    return rcclx_team_break(t, late ? RCCLX_TIMEOUT : RCCLX_MISMATCH, text);
}

/* What a rank has called in the turn that place i is of. 0: nothing, or it is being written. */
static uint64_t called(const rcclx_area *a, int i, uint32_t *turn)
{
    const rcclx_gpu_call *c = &a->device.call[i];
    const uint64_t hash = atomic_load_explicit(&c->hash, memory_order_acquire);

    *turn = atomic_load_explicit(&c->turn, memory_order_acquire);
    return atomic_load_explicit(&c->hash, memory_order_relaxed) == hash ? hash : 0;
}

/* Kernels that wait for a peer see what it calls; who has nothing to wait for (the root of a broadcast) is
 * found out here, from what ranks have written down: an error late is better than none. */
static void compare_calls(rcclx_team *t)
{
    for (int i = 0; i < RCCLX_NCALLS; i++) {
        uint32_t turn, theirs;
        const uint64_t hash = called(t->area[t->rank], i, &turn);
        for (int r = 0; hash && r < t->nranks; r++) {
            const uint64_t other = called(t->area[r], i, &theirs);
            if (!other || other == hash || theirs != turn)
                continue;
            const gp_control c = { .peer = (uint32_t)r, .turn = turn, .sig = hash, .peer_sig = other };
            differs(t, &c);
            return;
        }
    }
}

rcclx_status rcclx_gpu_team_poll(rcclx_team *t)
{
    const gp_control *c = t->gpu ? t->gpu->control : NULL;
    const uint32_t trouble = c ? peek(&c->trouble) : GP_FINE;

    if (trouble != GP_DIFFERS && trouble != GP_TIMED_OUT)
        return RCCLX_OK; /* kernels that left on an abort have no news */
    if (c->peer >= (uint32_t)t->nranks)
        return rcclx_team_break(t, RCCLX_INTERNAL, "a kernel's report makes no sense");
    if (c->kind == RCCLX_SEND || c->kind == RCCLX_RECV)
        return pair_trouble(t, c, trouble == GP_TIMED_OUT);
    return trouble == GP_DIFFERS ? differs(t, c) : timed_out(t, c);
}

/* --- long waits -------------------------------------------------------------------------- */

/* Who has not come as far: by call, then by kernel. -1: all have. */
static int culprit(const rcclx_team *t, uint32_t turn)
{
    for (int pass = 0; pass < 2; pass++)
        for (int r = 0; r < t->nranks; r++) {
            const rcclx_gpu_ident *d = &t->area[r]->device;
            if (r != t->rank && before(atomic_load(pass ? &d->started : &d->posted), turn))
                return r;
        }
    return -1;
}

/* A rank that closed its communicator, or ended after that, will not come. */
static void check_closed(rcclx_team *t, uint32_t turn)
{
    char what[160], text[RCCLX_ERROR_TEXT];

    for (int r = 0; r < t->nranks; r++) {
        if (r == t->rank || atomic_load(&t->area[r]->ident.state) != RCCLX_RANK_CLOSED ||
            !before(atomic_load(&t->area[r]->device.posted), turn) || t->gpu->graphs)
            continue;
        words(t->area[t->rank], turn, 0, "a collective", what, sizeof(what));
        snprintf(text, sizeof(text), "rank %d of %d: %s (collective number %u): rank %d (pid %d) has destroyed its communicator; "
                 "abort this communicator and make a new one without it", t->rank, t->nranks, what, turn, r, t->peer[r].pid);
        rcclx_team_break(t, RCCLX_PEER_LOST, text);
        return;
    }
}

static void warn(rcclx_team *t, uint32_t turn, double waited)
{
    const int r = culprit(t, turn);
    char what[160], doing[160] = "all ranks' GPUs are in it", who[64] = "";

    words(t->area[t->rank], turn, 0, "a collective", what, sizeof(what));
    if (r >= 0) {
        snprintf(who, sizeof(who), " for rank %d (pid %d)", r, t->peer[r].pid);
        peer_doing(t, r, turn, doing, sizeof(doing));
    }
    RCCLX_ALERT("rank %d of %d: %s (collective number %u) on %s device %d waits since %.1f s%s: %s", t->rank, t->nranks, what,
                turn, t->driver->name, t->device, waited, who, doing);
}

static void look_at_turns(rcclx_team *t)
{
    rcclx_gpu_watch *w = &t->gpu->watch;
    rcclx_gpu_ident *me = &t->area[t->rank]->device;
    const uint64_t now = rcclx_clock_ns();
    uint32_t started, finished;

    if (!t->gpu->graphs && atomic_load(&me->posted) == atomic_load(&me->finished))
        return; /* nothing has been handed out since */
    if (!rcclx_gpu_turns(t->gpu, 1, &started, &finished))
        return;
    atomic_store_explicit(&me->started, started, memory_order_relaxed);
    atomic_store_explicit(&me->finished, finished, memory_order_relaxed);
    if (started == finished) {
        w->since = 0;
        return;
    }
    if (!w->since || w->turn != started) {
        w->turn = started;
        w->since = now;
        w->warned = false;
    }
    if (now - w->since > CLOSED_NS)
        check_closed(t, started);
    const double waited = (double)(now - w->since) * 1e-9;
    if (!w->warned && t->warn_after > 0 && waited > t->warn_after) {
        w->warned = true;
        warn(t, started, waited);
    }
}

/* A wait for a message goes on, or is new. */
static void follow(rcclx_team *t, rcclx_gpu_wait *w, uint64_t word, uint64_t now)
{
    const int r = (int)(word & (GP_RANKS - 1));
    const bool sends = (word >> 8 & 0xff) == RCCLX_SEND;
    char text[RCCLX_ERROR_TEXT];

    if (!w->since || w->word != word || now - w->heard > QUIET_NS)
        *w = (rcclx_gpu_wait){ .word = word, .since = now };
    w->heard = now;
    if (!w->closed && atomic_load(&t->area[r]->ident.state) == RCCLX_RANK_CLOSED)
        w->closed = now;
    const double waited = (double)(now - w->since) * 1e-9;
    snprintf(text, sizeof(text), "rank %d of %d: %s rank %d (message number %u of this pair) on %s device %d waits since %.1f s",
             t->rank, t->nranks, sends ? "Send to" : "Recv from", r, (uint32_t)(word >> 32), t->driver->name, t->device, waited);
    const size_t at = strlen(text);
    if (w->closed && now - w->closed > CLOSED_NS) {
        snprintf(text + at, sizeof(text) - at, ", and that rank (pid %d) has destroyed its communicator; abort this communicator "
                 "and make a new one without it", t->peer[r].pid);
        rcclx_team_break(t, RCCLX_PEER_LOST, text);
    } else if (!w->warned && t->warn_after > 0 && waited > t->warn_after) {
        w->warned = true;
        RCCLX_ALERT("%s for that rank (pid %d) to %s", text, t->peer[r].pid, sends ? "receive" : "send");
    }
}

static void look_at_messages(rcclx_team *t)
{
    const uint64_t word = __atomic_exchange_n(&t->gpu->control->waits, 0, __ATOMIC_ACQ_REL);

    if (word && (int)(word & 0xff) < t->nranks)
        follow(t, &t->gpu->watch.waits[(word >> 8 & 0xff) == RCCLX_SEND][word & 0xff], word, rcclx_clock_ns());
}

/* --- the thread ----------------------------------------------------------------------------- */

static void look(rcclx_team *t)
{
    char why[RCCLX_ERROR_TEXT];

    if (atomic_load(&t->broken) || atomic_load(&t->aborted)) {
        rcclx_gpu_team_abort(t);
        return;
    }
    const rcclx_status s = rcclx_windows_serve(t->gpu->windows);
    if (s != RCCLX_OK) {
        snprintf(why, sizeof(why), "rank %d of %d: %.700s", t->rank, t->nranks, rcclx_last_error());
        rcclx_team_break(t, s, why);
    } else if (rcclx_team_poll(t) == RCCLX_OK) {
        look_at_turns(t);
        look_at_messages(t);
        if (t->nranks > 1)
            compare_calls(t);
    }
}

static void *watch(void *arg)
{
    rcclx_team *t = arg;
    rcclx_gpu_watch *w = &t->gpu->watch;
    struct pollfd fds[PEERS + GP_RANKS];
    uint64_t rings;

    rcclx_thread_name("rcclx watch");
    rcclx_log_device(t->device);
    fds[WINDOWS] = (struct pollfd){ .fd = rcclx_windows_fd(t->gpu->windows), .events = POLLIN };
    fds[BELL] = (struct pollfd){ .fd = w->bell, .events = POLLIN };
    for (int r = 0; r < t->nranks; r++)
        fds[PEERS + r] = (struct pollfd){ .fd = t->peer[r].life, .events = POLLIN };
    while (!atomic_load_explicit(&w->stop, memory_order_acquire)) {
        if (poll(fds, (nfds_t)(PEERS + t->nranks), TICK_MS) < 0 && errno != EINTR)
            break;
        if (fds[BELL].revents && read(w->bell, &rings, sizeof(rings)) < 0)
            fds[BELL].fd = -1;
        for (int r = 0; r < t->nranks; r++)
            if (fds[PEERS + r].revents)
                fds[PEERS + r].fd = -1; /* it has ended, and stays so */
        look(t);
    }
    return NULL;
}

rcclx_status rcclx_gpu_watch_start(rcclx_team *t)
{
    rcclx_gpu_watch *w = &t->gpu->watch;

    w->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->bell < 0)
        return RCCLX_FAIL_ERRNO("rank %d: init: an eventfd for the watch of device %d", t->rank, t->device);
    const int e = pthread_create(&w->thread, NULL, watch, t);
    if (e)
        return RCCLX_FAIL(RCCLX_SYSTEM, "rank %d: init: the watch thread of device %d cannot be started: %s", t->rank, t->device,
                          strerror(e));
    w->running = true;
    return RCCLX_OK;
}

void rcclx_gpu_watch_stop(rcclx_team *t)
{
    rcclx_gpu_watch *w = &t->gpu->watch;
    const uint64_t one = 1;

    if (w->running) {
        atomic_store_explicit(&w->stop, 1, memory_order_release);
        if (write(w->bell, &one, sizeof(one)) < 0)
            RCCLX_TRACE_LOG(INIT, "the watch's bell does not ring; it looks up by itself");
        pthread_join(w->thread, NULL);
    }
    if (w->bell >= 0)
        close(w->bell);
}
