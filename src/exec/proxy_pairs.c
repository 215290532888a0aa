/* Messages of GPUs on several machines: all of a chain, and the collectives that are nothing else.
 *
 *   AlltoAll, AlltoAllv   a Send and a Recv with every rank        Gather, Scatter   one with the root
 *
 *   to ranks of this machine   chain of `near`      on a stream of its own, beside
 *   to others                  gp_proxy and a job   on the program's stream
 *
 * Both run at the same time, for all messages of a group may wait for each other. Where
 * a group has more than a launch takes, it is cut in the order that all ranks have in
 * common: the first message of every pair, then the second; among those by how far the
 * receiver is behind the sender. Of the messages not done, the first in that order then
 * has nothing before it on either side. */
#include "exec/precision.h"
#include "exec/proxy_team.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

bool rcclx_proxy_is_pairs(rcclx_kind k)
{
    return k >= RCCLX_COLL_COUNT || k == RCCLX_ALL_TO_ALLV || k == RCCLX_ALL_TO_ALL || k == RCCLX_GATHER || k == RCCLX_SCATTER;
}

/* --- collecting --------------------------------------------------------------------------- */

static rcclx_status keep(rcclx_proxy *p, const rcclx_op *op, rcclx_kind kind, int peer, const void *at, size_t count)
{
    if (p->npairs == p->cap_pairs) {
        const int cap = p->cap_pairs ? 2 * p->cap_pairs : 128;
        rcclx_op *more = rcclx_mem_realloc(p->pairs, (size_t)cap * sizeof(*more));
        if (!more)
            return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: no memory for %d messages in a group", p->whole->rank, cap);
        p->pairs = more;
        p->cap_pairs = cap;
    }
    p->pairs[p->npairs++] = (rcclx_op){
        .kind = kind, .team = p->whole, .in = kind == RCCLX_SEND ? at : NULL, .out = kind == RCCLX_RECV ? (void *)(uintptr_t)at : NULL,
        .count = count, .type = op->type, .op = RCCLX_COPY, .root = peer,
        .codec = (uint8_t)(op->kind == RCCLX_ALL_TO_ALLV ? rcclx_message_codec(op, count) : op->codec),
    };
    return RCCLX_OK;
}

static rcclx_status with_all(rcclx_proxy *p, const rcclx_op *op, bool sends, bool receives)
{
    const size_t size = rcclx_type_size(op->type), each = op->count * size;
    const bool v = op->kind == RCCLX_ALL_TO_ALLV;

    for (int r = 0; r < p->whole->nranks; r++) {
        const size_t to = v ? op->sdispls[r] * size : (size_t)r * each, from = v ? op->rdispls[r] * size : (size_t)r * each;
        if (sends)
            RCCLX_TRY(keep(p, op, RCCLX_SEND, r, (const char *)op->in + to, v ? op->scounts[r] : op->count));
        if (receives)
            RCCLX_TRY(keep(p, op, RCCLX_RECV, r, (const char *)op->out + from, v ? op->rcounts[r] : op->count));
    }
    return RCCLX_OK;
}

static rcclx_status collect(rcclx_proxy *p, const rcclx_op *op)
{
    const bool root = op->root == p->whole->rank;

    switch (op->kind) {
    case RCCLX_SEND:
        return keep(p, op, RCCLX_SEND, op->root, op->in, op->count);
    case RCCLX_RECV:
        return keep(p, op, RCCLX_RECV, op->root, op->out, op->count);
    case RCCLX_GATHER:
        RCCLX_TRY(keep(p, op, RCCLX_SEND, op->root, op->in, op->count));
        return root ? with_all(p, op, false, true) : RCCLX_OK;
    case RCCLX_SCATTER:
        RCCLX_TRY(root ? with_all(p, op, true, false) : RCCLX_OK);
        return keep(p, op, RCCLX_RECV, op->root, op->out, op->count);
    default:
        return with_all(p, op, true, true);
    }
}

/* An all-to-all whose result replaces what it sends. */
static bool in_place(const rcclx_op *op)
{
    return op->kind == RCCLX_ALL_TO_ALL && op->in == op->out && op->count;
}

static size_t bytes_of(const rcclx_proxy *p, const rcclx_op *op)
{
    return op->count * rcclx_type_size(op->type) * (size_t)p->whole->nranks;
}

/* Such a one sends from a copy. */
static rcclx_status collect_all(rcclx_proxy *p, const rcclx_task *chain, void *stream)
{
    size_t room = 0, at = 0;

    for (const rcclx_task *k = chain; k; k = k->next)
        room += in_place(&k->op) ? bytes_of(p, &k->op) : 0;
    RCCLX_TRY(rcclx_proxy_scratch(p, room));
    for (const rcclx_task *k = chain; k; k = k->next) {
        rcclx_op op = k->op;
        if (!rcclx_proxy_is_pairs(op.kind))
            continue;
        if (in_place(&op)) {
            op.in = p->scratch + at;
            RCCLX_TRY(rcclx_proxy_copy(p, p->scratch + at, op.out, bytes_of(p, &op), stream));
            at += bytes_of(p, &op);
        }
        RCCLX_TRY(collect(p, &op));
    }
    return RCCLX_OK;
}

/* --- to ranks of this machine ----------------------------------------------------------------- */

static bool is_near(const rcclx_proxy *p, int rank)
{
    return p->whole->node[rank] == p->whole->node[p->whole->rank];
}

/* Its number there. */
static int near_rank(const rcclx_proxy *p, int rank)
{
    int k = 0;

    for (int r = 0; r < rank; r++)
        k += is_near(p, r);
    return k;
}

static rcclx_status take_near(rcclx_proxy *p)
{
    for (int i = 0; i < p->npairs; i++) {
        rcclx_op op = p->pairs[i];
        if (!is_near(p, op.root))
            continue;
        op.root = near_rank(p, op.root);
        op.codec = 0; /* low precision is for the network */
        RCCLX_TRY(rcclx_proxy_near(p, &op));
    }
    return RCCLX_OK;
}

/* --- to others ---------------------------------------------------------------------------------- */

typedef struct {
    rcclx_proxy     *p;
    rcclx_proxy_job *job;
    gp_proxy_args    args;
    int              nstrands;
    int              last[2][RCCLX_MAX_RANKS]; /* of this launch, of each pair; + 1 */
    void            *stream;
} batch;

static rcclx_status open_job(batch *b)
{
    b->job = rcclx_mem_alloc(sizeof(*b->job) + GP_PROXY_QUEUES * sizeof(b->job->message[0]));
    if (!b->job)
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: no memory for messages over machines", b->p->whole->rank);
    memset(b->job, 0, sizeof(*b->job));
    memset(b->last, 0, sizeof(b->last));
    b->args.nqueues = 0;
    b->args.slot_bytes = RCCLX_PROXY_PAIR_SLOT;
    return RCCLX_OK;
}

static rcclx_status flush(batch *b)
{
    rcclx_proxy_job *j = b->job;

    b->job = NULL;
    return j ? rcclx_proxy_launch(b->p, j, &b->args, b->stream) : RCCLX_OK;
}

static void fill_queues(batch *b, const rcclx_op *op, const rcclx_proxy_message *m)
{
    const size_t size = rcclx_type_size(op->type), piece = m->piece * size;
    const bool sends = op->kind == RCCLX_SEND;

    for (int k = 0; k < m->nstrands; k++)
        b->args.queue[b->args.nqueues++] = (gp_proxy_queue){
            .at = (uint64_t)(uintptr_t)(sends ? op->in : op->out), .first = (size_t)k * piece, .step = (size_t)m->nstrands * piece,
            .end = op->count * size, .nblocks = 1, .piece = (uint32_t)piece, .index = (uint16_t)(m->queue + k), .out = sends,
        };
}

static rcclx_status add(batch *b, const rcclx_op *op)
{
    if (b->job && (b->args.nqueues + (unsigned)b->nstrands > GP_PROXY_QUEUES || b->job->nmessages == GP_PROXY_QUEUES))
        RCCLX_TRY(flush(b));
    if (!b->job)
        RCCLX_TRY(open_job(b));
    int *last = &b->last[op->kind == RCCLX_SEND][op->root];
    rcclx_proxy_message *m = &b->job->message[b->job->nmessages++];
    memset(m, 0, sizeof(*m));
    m->op = *op;
    m->op.in = m->op.out = NULL;
    m->op.stream = NULL;
    m->before = *last - 1;
    *last = b->job->nmessages;
    m->piece = RCCLX_PROXY_PAIR_SLOT / rcclx_type_size(op->type);
    m->npieces = op->count ? (op->count + m->piece - 1) / m->piece : 1;
    m->nstrands = m->npieces < (size_t)b->nstrands ? (int)m->npieces : b->nstrands;
    m->queue = op->count ? (int)b->args.nqueues : -1;
    if (op->count)
        fill_queues(b, op, m);
    return RCCLX_OK;
}

/* The next message of a kind and peer from *at on; NULL: there is none. */
static const rcclx_op *next(const rcclx_proxy *p, int *at, rcclx_kind kind, int peer)
{
    for (; *at < p->npairs; ++*at)
        if (p->pairs[*at].kind == kind && p->pairs[*at].root == peer)
            return &p->pairs[(*at)++];
    return NULL;
}

static rcclx_status post_far(rcclx_proxy *p, int nfar, void *stream)
{
    const int n = p->whole->nranks, me = p->whole->rank;
    int at[2][RCCLX_MAX_RANKS] = { 0 };
    batch b = { .p = p, .stream = stream, .nstrands = nfar <= RCCLX_PROXY_STRANDS ? RCCLX_PROXY_STRANDS : 1 };

    for (int left = nfar; left > 0;)
        for (int far = 1; far < n; far++) {
            const int to = (me + far) % n, from = (me - far + n) % n;
            const rcclx_op *send = is_near(p, to) ? NULL : next(p, &at[1][to], RCCLX_SEND, to);
            const rcclx_op *recv = is_near(p, from) ? NULL : next(p, &at[0][from], RCCLX_RECV, from);
            if (send)
                RCCLX_TRY(add(&b, send));
            if (recv)
                RCCLX_TRY(add(&b, recv));
            left -= (send != NULL) + (recv != NULL);
        }
    return flush(&b);
}

/* --- both -------------------------------------------------------------------------------------- */

/* Beside what goes to others: from where the program's stream is, and it waits for the end. */
static rcclx_status post_both(rcclx_proxy *p, int nfar, void *stream)
{
    rcclx_gpu_team *g = p->near->gpu;

    RCCLX_TRY(g->gpu->event_record(p->fork, stream));
    RCCLX_TRY(g->gpu->stream_wait(p->side, p->fork));
    RCCLX_TRY(rcclx_proxy_near_post(p, p->side));
    RCCLX_TRY(g->gpu->event_record(p->join, p->side));
    p->beside = true;
    const rcclx_status s = post_far(p, nfar, stream);
    p->beside = false;
    RCCLX_TRY(s);
    RCCLX_TRY(g->gpu->stream_wait(stream, p->join));
    pthread_mutex_lock(&g->lock);
    const rcclx_status left = rcclx_gpu_leave_behind(g, stream);
    pthread_mutex_unlock(&g->lock);
    return left;
}

rcclx_status rcclx_proxy_pairs(rcclx_proxy *p, const rcclx_task *chain, void *stream)
{
    int nfar = 0;

    p->npairs = 0;
    RCCLX_TRY(collect_all(p, chain, stream));
    for (int i = 0; i < p->npairs; i++)
        nfar += !is_near(p, p->pairs[i].root);
    RCCLX_TRY(take_near(p));
    if (nfar && p->nchain)
        return post_both(p, nfar, stream);
    return nfar ? post_far(p, nfar, stream) : rcclx_proxy_near_post(p, stream);
}
