/* Sends and receives on GPUs, and all-to-all-v, which is one of each a peer: the
 * messages of a group are put together and go to one kernel.
 *
 *   group   Send 1   AlltoAllv        Recv 1
 *   pairs   send 1 | send 0..n-1  recv 0..n-1 | recv 1
 *
 * What a rank sends to itself is a copy; the k-th send meets the k-th receive. */
#include "exec/gpu_team.h"

#include "base/log.h"
#include "base/mem.h"

static rcclx_status keep(rcclx_gpu_team *g, const rcclx_op *op)
{
    if (g->npairs == g->cap_pairs) {
        const int cap = g->cap_pairs ? 2 * g->cap_pairs : 64;
        rcclx_op *more = rcclx_mem_realloc(g->pairs, (size_t)cap * sizeof(*more));
        if (!more)
            return RCCLX_FAIL(RCCLX_NOMEM, "device %d: no memory for %d messages in a group", g->device, cap);
        g->pairs = more;
        g->cap_pairs = cap;
    }
    g->pairs[g->npairs++] = *op;
    return RCCLX_OK;
}

/* An all-to-all-v in its parts. */
static rcclx_status take_apart(rcclx_team *t, const rcclx_op *op)
{
    const size_t size = rcclx_type_size(op->type);

    for (int i = 0; i < t->nranks; i++) {
        const int peer = (t->rank + i) % t->nranks;
        const rcclx_op send = { .kind = RCCLX_SEND, .team = t, .in = (const char *)op->in + op->sdispls[peer] * size,
                                .count = op->scounts[peer], .type = op->type, .op = RCCLX_COPY, .root = peer };
        RCCLX_TRY(keep(t->gpu, &send));
    }
    for (int i = 0; i < t->nranks; i++) {
        const int peer = (t->rank - i + t->nranks) % t->nranks;
        const rcclx_op recv = { .kind = RCCLX_RECV, .team = t, .out = (char *)op->out + op->rdispls[peer] * size,
                                .count = op->rcounts[peer], .type = op->type, .op = RCCLX_COPY, .root = peer };
        RCCLX_TRY(keep(t->gpu, &recv));
    }
    return RCCLX_OK;
}

rcclx_status rcclx_gpu_pairs_collect(rcclx_team *t, const rcclx_task *chain)
{
    t->gpu->npairs = 0;
    for (const rcclx_task *k = chain; k; k = k->next) {
        if (k->op.kind == RCCLX_ALL_TO_ALLV)
            RCCLX_TRY(take_apart(t, &k->op));
        else if (k->op.kind >= RCCLX_COLL_COUNT)
            RCCLX_TRY(keep(t->gpu, &k->op));
        else
            continue;
        atomic_fetch_add_explicit(&t->ops[k->op.kind], 1, memory_order_relaxed);
    }
    return RCCLX_OK;
}

/* The receive that a message to oneself belongs to: as many of its kind stand before it. */
static const rcclx_op *other_half(const rcclx_op *ops, int n, int index)
{
    int before = 0;

    for (int i = 0; i < index; i++)
        before += ops[i].kind == RCCLX_SEND && ops[i].root == ops[index].root;
    for (int i = 0; i < n; i++)
        if (ops[i].kind == RCCLX_RECV && ops[i].root == ops[index].root && before-- == 0)
            return &ops[i];
    return NULL;
}

static rcclx_status to_oneself(rcclx_team *t, const rcclx_op *ops, int n, int index, void *stream)
{
    const rcclx_op *send = &ops[index], *recv = other_half(ops, n, index);

    if (!recv || recv->count != send->count || recv->type != send->type)
        return RCCLX_FAIL(RCCLX_MISMATCH, "rank %d: %zu %s are sent to this rank itself, and %zu %s expected; count and type must "
                          "be equal on both sides", t->rank, send->count, rcclx_type_name(send->type), recv ? recv->count : 0,
                          recv ? rcclx_type_name(recv->type) : "messages");
    const size_t nbytes = send->count * rcclx_type_size(send->type);
    return nbytes && send->in != recv->out ? t->gpu->gpu->copy(recv->out, send->in, nbytes, stream) : RCCLX_OK;
}

rcclx_status rcclx_gpu_pairs(rcclx_team *t, const rcclx_op *ops, int n, void *stream)
{
    for (int i = 0; i < n; i++) {
        if (ops[i].root == t->rank) {
            if (ops[i].kind == RCCLX_SEND)
                RCCLX_TRY(to_oneself(t, ops, n, i, stream));
            continue;
        }
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "rank %d: %s %s rank %d: messages between GPUs are not built yet in this version; "
                          "use a collective, or RCCLX_DEVICE=host", t->rank, rcclx_kind_name(ops[i].kind),
                          ops[i].kind == RCCLX_SEND ? "to" : "from", ops[i].root);
    }
    return RCCLX_OK;
}
