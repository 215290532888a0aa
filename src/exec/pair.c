/* Send and Recv: one FIFO from each rank to each other, in the sender's area.
 *
 *   sender   [k-2][k-1][ k ][   ] ...   slots hold a message's header, and its data
 *                        |              when that is small (EAGER)
 *   receiver  taken: k   v              otherwise the receiver FETCHes it from the
 *             matches its k-th receive  sender's buffer, or, where nobody can reach
 *                                       that, or in low precision, both work a
 *                                       two-part PIPE
 *
 * Matching is by order alone: the k-th send of a pair meets its k-th receive. An
 * eager send is done when it is in its slot; the others when the receiver has
 * counted the message as taken. */
#include "exec/mirror.h"
#include "exec/precision.h"
#include "exec/runner.h"

#include "base/log.h"
#include "device/reduce.h"

#include <stdio.h>
#include <string.h>

enum { NEW, HEAD, BODY };
enum { EAGER, FETCH, PIPE };

static rcclx_fifo *fifo(const rcclx_team *t, int from, int to)
{
    return &t->area[from]->fifo[to];
}

static uint32_t signature(const rcclx_op *op)
{
    return (uint32_t)op->type | (uint32_t)op->codec << 8;
}

/* Elements that half of the pipe takes at a time. */
static size_t piped_count(const rcclx_op *op)
{
    return op->codec ? rcclx_codec_fits(RCCLX_PIPE_BYTES) : RCCLX_PIPE_BYTES / rcclx_type_size(op->type);
}

void rcclx_pair_number(rcclx_task *task)
{
    rcclx_team *t = task->op.team;
    const int peer = task->op.root;

    task->index = task->op.kind == RCCLX_SEND ? t->sent[peer]++ : t->received[peer]++;
}

static rcclx_status finished(rcclx_task *task)
{
    rcclx_team *t = task->op.team;

    if (task->state == BODY && task->op.kind == RCCLX_RECV)
        t->receiving[task->op.root]++;
    if (!task->grouped)
        rcclx_team_now(t, 0);
    return RCCLX_OK;
}

/* --- the sender --------------------------------------------------------------- */

static void post(rcclx_task *task, rcclx_message *m)
{
    rcclx_team *t = task->op.team;
    const rcclx_op *op = &task->op;

    m->sig = signature(op);
    m->count = op->count;
    m->nbytes = op->count * rcclx_type_size(op->type);
    m->where = (uint64_t)(uintptr_t)op->in;
    m->in_arena = 0;
    const rcclx_peer *to = &t->peer[op->root];
    if (op->codec || (rcclx_is_far(t, op->root) && m->nbytes > RCCLX_FIFO_BYTES)) {
        m->mode = PIPE;
    } else if (m->nbytes <= RCCLX_FIFO_BYTES && op->root != t->rank) {
        m->mode = EAGER;
        rcclx_copy(m->data, op->in, m->nbytes, 0);
    } else if (to->local) {
        m->mode = FETCH;
    } else if (t->arenas && rcclx_arena_find(op->in, m->nbytes, &m->where) == RCCLX_MEM_ARENA) {
        m->mode = FETCH;
        m->in_arena = 1;
    } else {
        m->where = (uint64_t)(uintptr_t)op->in;
        m->mode = t->cma ? FETCH : PIPE;
    }
    gp_publish(&m->seq, task->index + 1);
    rcclx_team_ring(t);
    if (rcclx_is_far(t, op->root)) {
        const rcclx_mark here = rcclx_mark_of(t, &m->seq, task->index + 1);
        const size_t head = offsetof(rcclx_message, data) - offsetof(rcclx_message, sig);
        rcclx_mirror_push(t, op->root, &m->sig, head + (m->mode == EAGER ? m->nbytes : 0), &here, 1);
    }
}

/* Fill the half of the pipe that is free. */
static void pump(rcclx_task *task, rcclx_fifo *f)
{
    const rcclx_op *op = &task->op;
    rcclx_team *t = op->team;
    const int to = op->root;
    const size_t size = rcclx_type_size(op->type), most = piped_count(op);
    rcclx_counter *drained = &fifo(t, to, t->rank)->drained;

    while (task->moved < op->count) {
        const size_t part = op->count - task->moved < most ? op->count - task->moved : most;
        const char *from = (const char *)op->in + task->moved * size;
        if (!gp_reached(&drained->value, t->piped[to] + 1 - 2))
            return;
        if (op->codec)
            rcclx_codecs[op->codec]->encode(op->type, from, part, f->pipe[t->piped[to] & 1]);
        else
            rcclx_copy(f->pipe[t->piped[to] & 1], from, part * size, 0);
        task->moved += part;
        gp_publish(&f->piped.value, ++t->piped[to]);
        rcclx_team_ring(t);
        if (rcclx_is_far(t, to)) {
            const rcclx_mark filled = rcclx_mark_of(t, &f->piped.value, t->piped[to]);
            rcclx_mirror_push(t, to, f->pipe[(t->piped[to] - 1) & 1], op->codec ? rcclx_codec_bytes(part) : part * size, &filled, 1);
        }
    }
}

static rcclx_status send_poll(rcclx_task *task)
{
    rcclx_team *t = task->op.team;
    const int to = task->op.root;
    rcclx_fifo *f = fifo(t, t->rank, to);
    rcclx_counter *taken = &fifo(t, to, t->rank)->taken;
    rcclx_message *m = &f->slots[task->index % RCCLX_FIFO_SLOTS];

    if (task->state == HEAD) {
        if (t->sending[to] != task->index || !gp_reached(&taken->value, task->index + 1 - RCCLX_FIFO_SLOTS))
            return RCCLX_AGAIN;
        post(task, m);
        task->state = BODY;
        if (m->mode != PIPE)
            t->sending[to]++;
        if (m->mode == EAGER)
            return finished(task);
    }
    if (t->sending[to] == task->index) {
        /* the pipe carries one message at a time: the next may start when this is in */
        pump(task, f);
        if (task->moved < task->op.count)
            return RCCLX_AGAIN;
        t->sending[to]++;
    }
    return gp_reached(&taken->value, task->index + 1) ? finished(task) : RCCLX_AGAIN;
}

/* A counter of mine that one peer looks at. */
static void count_up(rcclx_team *t, int peer, _Atomic uint64_t *counter, uint64_t value)
{
    gp_publish(counter, value);
    rcclx_team_ring(t);
    if (rcclx_is_far(t, peer))
        rcclx_mirror_count(t, peer, counter, value);
}

/* --- the receiver --------------------------------------------------------------- */

static rcclx_status differs(rcclx_task *task, const rcclx_message *m)
{
    rcclx_team *t = task->op.team;
    char text[RCCLX_ERROR_TEXT];

    snprintf(text, sizeof(text), "rank %d: Recv number %llu from rank %d expects %zu %s%s%s, but rank %d sends %llu %s%s%s; count, "
             "type and precision must be equal on both sides, and messages of a pair match in order", t->rank,
             (unsigned long long)task->index, task->op.root, task->op.count, rcclx_type_name(task->op.type),
             task->op.codec ? " in " : "", task->op.codec ? rcclx_precision_name(task->op.codec) : "", task->op.root, (unsigned long long)m->count,
             rcclx_type_name((rcclx_type)(m->sig & 0xff)), m->sig >> 8 ? " in " : "", m->sig >> 8 ? rcclx_precision_name((int)(m->sig >> 8)) : "");
    return rcclx_team_break(t, RCCLX_MISMATCH, text);
}

static rcclx_status fetch(rcclx_task *task, const rcclx_message *m, size_t nbytes)
{
    const rcclx_peer *from = &task->op.team->peer[task->op.root];
    const int streaming = nbytes * 2 >= task->op.team->machine.cache_bytes;
    const void *at = nbytes ? rcclx_peer_map(from, m->where, m->in_arena, nbytes) : NULL;

    if (at && at != task->op.out)
        rcclx_copy(task->op.out, at, nbytes, streaming);
    return at || !nbytes ? RCCLX_OK : rcclx_peer_get(from, task->op.out, m->where, nbytes);
}

static rcclx_status drain(rcclx_task *task, rcclx_fifo *f)
{
    const rcclx_op *op = &task->op;
    rcclx_team *t = op->team;
    const int from = op->root;
    const size_t size = rcclx_type_size(op->type), most = piped_count(op);

    while (task->moved < op->count) {
        const size_t part = op->count - task->moved < most ? op->count - task->moved : most;
        char *to = (char *)op->out + task->moved * size;
        if (!gp_reached(&f->piped.value, t->drained[from] + 1))
            return RCCLX_AGAIN;
        if (op->codec)
            rcclx_codecs[op->codec]->decode(op->type, f->pipe[t->drained[from] & 1], part, to);
        else
            rcclx_copy(to, f->pipe[t->drained[from] & 1], part * size, 0);
        task->moved += part;
        count_up(t, from, &fifo(t, t->rank, from)->drained.value, ++t->drained[from]);
    }
    return RCCLX_OK;
}

static rcclx_status take(rcclx_task *task, rcclx_fifo *f, const rcclx_message *m)
{
    const size_t nbytes = task->op.count * rcclx_type_size(task->op.type); /* the sender's too: count and type are equal */

    switch (m->mode) {
    case EAGER:
        rcclx_copy(task->op.out, m->data, nbytes, 0);
        return RCCLX_OK;
    case FETCH:
        return fetch(task, m, nbytes);
    default:
        return drain(task, f);
    }
}

static rcclx_status recv_poll(rcclx_task *task)
{
    rcclx_team *t = task->op.team;
    const int from = task->op.root;
    rcclx_fifo *f = fifo(t, from, t->rank);
    rcclx_message *m = &f->slots[task->index % RCCLX_FIFO_SLOTS];

    if (t->receiving[from] != task->index || !gp_reached(&m->seq, task->index + 1))
        return RCCLX_AGAIN;
    if (task->state == HEAD && (m->count != task->op.count || m->sig != signature(&task->op)))
        return differs(task, m);
    task->state = BODY;
    RCCLX_TRY(take(task, f, m));
    count_up(t, from, &fifo(t, t->rank, from)->taken.value, task->index + 1);
    return finished(task);
}

rcclx_status rcclx_pair_poll(rcclx_task *task)
{
    rcclx_team *t = task->op.team;

    if (task->state == NEW) {
        task->state = HEAD;
        if (!task->grouped)
            rcclx_team_now(t, RCCLX_NOW(task->op.kind, task->op.root, 0));
    }
    const rcclx_status s = task->op.kind == RCCLX_SEND ? send_poll(task) : recv_poll(task);
    return s == RCCLX_OK || s == RCCLX_AGAIN ? s : rcclx_task_fail(task, s);
}
