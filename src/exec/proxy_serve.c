/* What the proxy does for a job: pieces out of slots, through a team in host memory, into slots.
 *
 *   collective   piece by piece, in order:   slot out --> operation of the team --> slot in
 *   messages     every pair and direction for itself:   slot out --> Send    Recv --> slot in
 *
 * The kernel's count says that a slot is full (out) or has been emptied (in), the host's
 * the opposite. A message of more than one piece begins with what both sides expect, for
 * pieces of unlike messages could match by chance. */
#include "exec/mirror.h"
#include "exec/proxy_team.h"
#include "exec/runner.h"

#include "base/clock.h"
#include "base/log.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

enum { BUSY_NS = 2000000, NAP_NS = 50000, LOOK_NS = 1000000 };

/* --- slots ------------------------------------------------------------------------------- */

/* Piece k of a queue within this job. */
typedef struct {
    int      queue;
    uint64_t base, k; /* the counts before the job */
} place;

static uint64_t count(const rcclx_proxy *p, int queue, int host)
{
    return atomic_load_explicit(rcclx_proxy_count(p, queue, host), memory_order_acquire);
}

static bool is_full(const rcclx_proxy *p, place at)
{
    return (int64_t)(count(p, at.queue, 0) - (at.base + at.k + 1)) >= 0;
}

static bool is_empty(const rcclx_proxy *p, place at)
{
    return (int64_t)(count(p, at.queue, 0) - (at.base + at.k - 1)) >= 0;
}

static char *slot(const rcclx_proxy *p, place at, size_t nbytes)
{
    return p->slots + ((size_t)at.queue * 2 + (size_t)((at.base + at.k) & 1)) * nbytes;
}

static void done_with(rcclx_proxy *p, place at)
{
    atomic_store_explicit(rcclx_proxy_count(p, at.queue, 1), at.base + at.k + 1, memory_order_release);
    atomic_fetch_add_explicit(&p->pieces, 1, memory_order_relaxed);
}

/* --- waiting ------------------------------------------------------------------------------- */

static rcclx_status look_up(rcclx_proxy *p)
{
    RCCLX_TRY(rcclx_team_broken(p->whole));
    pthread_mutex_lock(&p->lock);
    const bool stop = p->stop;
    pthread_mutex_unlock(&p->lock);
    return stop ? RCCLX_ABORTED : RCCLX_OK;
}

/* One round in which nothing moved; *since: of the first, 0 before it. */
static rcclx_status pause_for(rcclx_proxy *p, uint64_t *since)
{
    const uint64_t now = rcclx_clock_ns();
    const struct timespec nap = { 0, NAP_NS };

    if (p->whole->mirror)
        rcclx_mirror_poll(p->whole);
    *since = *since ? *since : now;
    if (now - *since < BUSY_NS)
        sched_yield();
    else
        nanosleep(&nap, NULL);
    return look_up(p);
}

/* The device's part; it needs no deadline, for the kernel runs and waits for nothing but slots. */
static rcclx_status await_device(rcclx_proxy *p, place at, bool (*come)(const rcclx_proxy *p, place at))
{
    rcclx_status s = RCCLX_OK;

    for (uint64_t since = 0; s == RCCLX_OK && !come(p, at);)
        s = pause_for(p, &since);
    return s;
}

/* --- a collective ----------------------------------------------------------------------------- */

static rcclx_status run_piece(const rcclx_proxy_coll *c, size_t elements, const char *in, char *out)
{
    rcclx_task task = { .op = c->op };
    rcclx_team *t = c->op.team;

    task.op.count = elements;
    task.op.in = in;
    task.op.out = out;
    rcclx_turn_wait(t, rcclx_turn_take(t));
    const rcclx_status s = rcclx_task_run(&task);
    rcclx_turn_pass(t);
    return s;
}

static rcclx_status serve_collective(rcclx_proxy *p, const rcclx_proxy_coll *c)
{
    uint64_t base[2][RCCLX_PROXY_STRANDS];
    size_t at = 0;

    for (int k = 0; k < c->nstrands; k++)
        for (int in = 0; in < 2; in++)
            base[in][k] = count(p, k + in * RCCLX_PROXY_STRANDS, 1);
    for (size_t g = 0; at < c->each; g++, at += c->piece) {
        const int k = (int)(g % (size_t)c->nstrands);
        const size_t elements = c->each - at < c->piece ? c->each - at : c->piece;
        const place from = { k, base[0][k], g / (size_t)c->nstrands };
        const place to = { k + RCCLX_PROXY_STRANDS, base[1][k], g / (size_t)c->nstrands };
        if (c->nout)
            RCCLX_TRY(await_device(p, from, is_full));
        if (c->nin)
            RCCLX_TRY(await_device(p, to, is_empty));
        char *in = c->nout ? slot(p, from, RCCLX_PROXY_COLL_SLOT) : NULL;
        RCCLX_TRY(run_piece(c, elements, in, c->nin ? slot(p, to, RCCLX_PROXY_COLL_SLOT) : in));
        if (c->nout)
            done_with(p, from);
        if (c->nin)
            done_with(p, to);
    }
    return RCCLX_OK;
}

/* --- messages --------------------------------------------------------------------------------- */

typedef struct {
    rcclx_proxy     *p;
    rcclx_proxy_job *job;
    uint64_t         base[GP_PROXY_QUEUES];
    bool             moved;
} round_of;

static bool sends(const rcclx_proxy_message *m)
{
    return m->op.kind == RCCLX_SEND;
}

static bool is_over(const rcclx_proxy_message *m)
{
    return !m->busy && m->told && m->g >= m->npieces;
}

static place place_of(const round_of *r, const rcclx_proxy_message *m)
{
    const int queue = m->queue + (int)(m->g % (size_t)m->nstrands);

    return (place){ queue, r->base[queue], m->g / (size_t)m->nstrands };
}

static void start(rcclx_proxy_message *m, size_t elements, rcclx_type type, void *at)
{
    m->task = (rcclx_task){ .op = m->op, .grouped = true };
    m->task.op.count = elements;
    m->task.op.type = type;
    m->task.op.in = sends(m) ? at : NULL;
    m->task.op.out = sends(m) ? NULL : at;
    m->task.op.codec = type == m->op.type ? m->op.codec : 0;
    rcclx_pair_number(&m->task);
    m->busy = true;
}

/* Begin what comes next of a message, if its slot lets it. */
static void begin(round_of *r, rcclx_proxy_message *m)
{
    if (!m->told) {
        if (sends(m))
            m->say[0] = m->op.count, m->say[1] = (uint64_t)m->op.type | (uint64_t)m->op.codec << 8;
        start(m, 2, RCCLX_U64, m->say);
        m->task.op.codec = 0;
        return;
    }
    const size_t at = m->g * m->piece, left = m->op.count - at;
    if (m->queue < 0) {
        start(m, 0, m->op.type, NULL);
        return;
    }
    const place where = place_of(r, m);
    if (sends(m) ? is_full(r->p, where) : is_empty(r->p, where)) {
        start(m, left < m->piece ? left : m->piece, m->op.type, slot(r->p, where, RCCLX_PROXY_PAIR_SLOT));
    }
}

static rcclx_status compare(const round_of *r, const rcclx_proxy_message *m)
{
    rcclx_team *t = r->p->whole;
    const uint64_t type = (uint64_t)m->op.type | (uint64_t)m->op.codec << 8;
    char text[RCCLX_ERROR_TEXT];

    if (sends(m) || (m->say[0] == m->op.count && m->say[1] == type))
        return RCCLX_OK;
    snprintf(text, sizeof(text), "rank %d of %d: Recv from rank %d expects %zu %s, but rank %d sends %llu %s; count, type and precision "
             "must be equal on both sides, and messages of a pair match in order", t->rank, t->nranks, m->op.root, m->op.count,
             rcclx_type_name(m->op.type), m->op.root, (unsigned long long)m->say[0], rcclx_type_name((rcclx_type)(m->say[1] & 0xff)));
    return rcclx_team_break(t, RCCLX_MISMATCH, text);
}

/* Its task is done. */
static rcclx_status advance(round_of *r, rcclx_proxy_message *m)
{
    m->busy = false;
    r->moved = true;
    if (!m->told) {
        m->told = true;
        return compare(r, m);
    }
    if (m->queue >= 0)
        done_with(r->p, place_of(r, m));
    m->g++;
    return RCCLX_OK;
}

static rcclx_status step(round_of *r, rcclx_proxy_message *m)
{
    if (!m->busy)
        begin(r, m);
    if (!m->busy)
        return RCCLX_OK;
    const uint64_t before = m->task.moved;
    const uint8_t state = m->task.state;
    const rcclx_status s = rcclx_pair_poll(&m->task);
    r->moved |= before != m->task.moved || state != m->task.state;
    if (s == RCCLX_AGAIN)
        return RCCLX_OK;
    return s == RCCLX_OK ? advance(r, m) : s;
}

/* Every message that may goes a step. *left: some are not over. */
static rcclx_status one_round(round_of *r, bool *left)
{
    rcclx_proxy_job *j = r->job;

    r->moved = *left = false;
    for (int i = 0; i < j->nmessages; i++) {
        rcclx_proxy_message *m = &j->message[i];
        if (is_over(m))
            continue;
        *left = true;
        if (m->before < 0 || is_over(&j->message[m->before]))
            RCCLX_TRY(step(r, m));
    }
    return RCCLX_OK;
}

/* Has something ended the wait of a task? */
static rcclx_status check(const round_of *r, uint64_t waited)
{
    for (int i = 0; i < r->job->nmessages; i++) {
        rcclx_proxy_message *m = &r->job->message[i];
        const rcclx_status s = m->busy ? rcclx_task_check(&m->task, waited) : RCCLX_AGAIN;
        if (s == RCCLX_OK) /* the look has finished it */
            RCCLX_TRY(advance((round_of *)(uintptr_t)r, m));
        else if (s != RCCLX_AGAIN)
            return s;
    }
    return RCCLX_OK;
}

static rcclx_status serve_messages(rcclx_proxy *p, rcclx_proxy_job *j)
{
    round_of r = { .p = p, .job = j };
    uint64_t since = 0, looked = 0;
    bool left = true;

    for (int q = 0; q < GP_PROXY_QUEUES; q++)
        r.base[q] = count(p, q, 1);
    for (int i = 0; i < j->nmessages; i++) {
        rcclx_proxy_message *m = &j->message[i];
        m->g = 0;
        m->busy = false;
        m->told = m->npieces <= 1;
    }
    while (left) {
        RCCLX_TRY(one_round(&r, &left));
        if (r.moved || !left) {
            since = looked = 0;
            continue;
        }
        RCCLX_TRY(pause_for(p, &since));
        const uint64_t now = rcclx_clock_ns();
        if (now - (looked ? looked : since) < LOOK_NS)
            continue;
        looked = now;
        RCCLX_TRY(check(&r, now - since));
    }
    return RCCLX_OK;
}

rcclx_status rcclx_proxy_serve(rcclx_proxy *p, rcclx_proxy_job *j)
{
    if (!j->nmessages)
        return serve_collective(p, &j->coll);
    rcclx_turn_wait(p->whole, rcclx_turn_take(p->whole));
    const rcclx_status s = serve_messages(p, j);
    rcclx_turn_pass(p->whole);
    return s;
}
