/* Operations of GPUs on several machines, from the call to launches.
 *
 *   L ranks a machine, N machines, ranks numbered through them: j is my place on mine
 *
 *   AllReduce       near ReduceScatter   rail AllReduce of part j       near AllGather
 *   ReduceScatter   near, a machine's    rail ReduceScatter of what     -
 *                   blocks at a time     I have of each machine
 *   AllGather       -                    rail AllGather into places j   near, a machine's blocks at a time
 *   Broadcast       near Scatter (root's machine)   rail Broadcast      near AllGather
 *   Reduce          near ReduceScatter   rail Reduce                    near Gather (root's machine)
 *
 * The part that does not divide by L, small messages, sums that may be rounded once only
 * and machines that are not alike go through `whole`: slots, a collective of host memory
 * over all ranks, slots. All else is messages (proxy_pairs.c). Which way an operation goes
 * follows from what all ranks know. */
#include "exec/proxy_team.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { FLAT_BYTES = 64 << 10, PIECE_BYTES = 256 << 10, LINE = 512, RESERVE = 1 << 20 };

/* --- launches ------------------------------------------------------------------------------ */

static rcclx_status launch(rcclx_proxy *p, rcclx_proxy_job *j, gp_proxy_args *a, void *stream)
{
    rcclx_gpu_team *g = p->near->gpu;

    if (!p->beside)
        RCCLX_TRY(rcclx_gpu_follow(g, stream));
    j->kept = g->capture != 0;
    const bool kept = j->kept;
    const rcclx_status added = rcclx_proxy_add(p, j, &a->job);
    if (added != RCCLX_OK) {
        rcclx_mem_free(j);
        return added;
    }
    g->paired = true; /* turns do not tell of it */
    RCCLX_TRY(g->gpu->launch(p->kernel, a->nblocks, a->nthreads, stream, a, sizeof(*a)));
    pthread_mutex_lock(&p->lock);
    p->posted += !kept;
    if (kept)
        p->graphs = true;
    pthread_cond_broadcast(&p->change);
    pthread_mutex_unlock(&p->lock);
    return rcclx_gpu_leave_behind(g, stream);
}

rcclx_status rcclx_proxy_launch(rcclx_proxy *p, rcclx_proxy_job *j, gp_proxy_args *a, void *stream)
{
    rcclx_gpu_team *g = p->near->gpu;

    a->control = (uint64_t)(uintptr_t)p->control;
    a->door = (uint64_t)(uintptr_t)p->door;
    a->counts = (uint64_t)(uintptr_t)p->counts;
    a->slots = (uint64_t)(uintptr_t)p->slots;
    a->nblocks = a->nqueues < 1 ? 1 : a->nqueues < GP_PROXY_BLOCKS ? a->nqueues : GP_PROXY_BLOCKS;
    a->nthreads = (uint32_t)g->picker.threads;
    pthread_mutex_lock(&g->lock);
    const rcclx_status s = launch(p, j, a, stream);
    pthread_mutex_unlock(&g->lock);
    return s;
}

rcclx_status rcclx_proxy_near(rcclx_proxy *p, const rcclx_op *op)
{
    if (p->nchain == p->cap_chain) {
        const int cap = p->cap_chain ? 2 * p->cap_chain : 32;
        rcclx_task *more = rcclx_mem_realloc(p->chain, (size_t)cap * sizeof(*more));
        if (!more)
            return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: no memory for a group of %d operations", p->whole->rank, cap);
        p->chain = more;
        p->cap_chain = cap;
    }
    p->chain[p->nchain] = (rcclx_task){ .op = *op };
    p->chain[p->nchain++].op.team = p->near;
    return RCCLX_OK;
}

rcclx_status rcclx_proxy_near_post(rcclx_proxy *p, void *stream)
{
    const int n = p->nchain;

    p->nchain = 0;
    for (int i = 0; i < n; i++)
        p->chain[i].next = i + 1 < n ? &p->chain[i + 1] : NULL;
    return n ? rcclx_gpu_post(p->near, p->chain, stream) : RCCLX_OK;
}

static rcclx_status near_now(rcclx_proxy *p, const rcclx_op *op, void *stream)
{
    RCCLX_TRY(rcclx_proxy_near(p, op));
    return rcclx_proxy_near_post(p, stream);
}

/* --- a collective of host memory -------------------------------------------------------------- */

/* Blocks of a buffer on the device: the first at `at`, each `stride` bytes behind the one before. */
typedef struct {
    const void *at;
    size_t      stride;
    int         n;
} blocks;

/* Elements of a piece: what a slot takes of every block, less where that keeps all strands busy. */
static size_t piece_of(size_t each, size_t size, int nblocks)
{
    const size_t most = RCCLX_PROXY_COLL_SLOT / (size_t)nblocks / LINE * LINE;
    const size_t least = PIECE_BYTES / (size_t)nblocks / LINE * LINE;
    size_t fair = (each * size / RCCLX_PROXY_STRANDS + LINE - 1) / LINE * LINE;

    fair = fair < least ? least : fair;
    fair = fair < LINE ? LINE : fair;
    return (fair < most ? fair : most) / size;
}

static void fill_queue(gp_proxy_args *a, const rcclx_proxy_coll *c, const blocks *b, int strand, bool out)
{
    const size_t size = rcclx_type_size(c->op.type);

    if (b->n)
        a->queue[a->nqueues++] = (gp_proxy_queue){
            .at = (uint64_t)(uintptr_t)b->at, .stride = b->stride, .first = (size_t)strand * c->piece * size,
            .step = (size_t)c->nstrands * c->piece * size, .end = c->each * size, .nblocks = (uint32_t)b->n,
            .piece = (uint32_t)(c->piece * size), .index = (uint16_t)(strand + (out ? 0 : RCCLX_PROXY_STRANDS)), .out = out,
        };
}

/* `each` elements of every block, from here through `team` to there. */
static rcclx_status through(rcclx_proxy *p, const rcclx_op *op, rcclx_team *team, int root, size_t each, blocks out, blocks in, void *stream)
{
    gp_proxy_args a = { .slot_bytes = RCCLX_PROXY_COLL_SLOT };
    rcclx_proxy_job *j;

    if (!each)
        return RCCLX_OK;
    if (!(j = rcclx_mem_alloc(sizeof(*j))))
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: no memory for an operation over machines", p->whole->rank);
    memset(j, 0, sizeof(*j));
    rcclx_proxy_coll *c = &j->coll;
    c->op = *op;
    c->op.team = team;
    c->op.root = root;
    c->op.stream = NULL;
    c->op.bias = NULL;
    if (team == p->rail && c->op.op == RCCLX_PREMUL)
        c->op.op = RCCLX_SUM; /* multiplied inside the machine */
    c->each = each;
    c->nout = out.n;
    c->nin = in.n;
    /* ranks may have blocks one way only, and must cut alike */
    c->piece = piece_of(each, rcclx_type_size(op->type), rcclx_kind_rooted(op->kind) || op->kind == RCCLX_ALL_REDUCE ? 1 : team->nranks);
    const size_t npieces = (each + c->piece - 1) / c->piece;
    c->nstrands = npieces < RCCLX_PROXY_STRANDS ? (int)npieces : RCCLX_PROXY_STRANDS;
    for (int k = 0; k < c->nstrands; k++) {
        fill_queue(&a, c, &out, k, true);
        fill_queue(&a, c, &in, k, false);
    }
    return rcclx_proxy_launch(p, j, &a, stream);
}

rcclx_status rcclx_proxy_copy(rcclx_proxy *p, void *to, const void *from, size_t nbytes, void *stream)
{
    rcclx_gpu_team *g = p->near->gpu;

    pthread_mutex_lock(&g->lock);
    rcclx_status s = rcclx_gpu_follow(g, stream);
    if (s == RCCLX_OK)
        s = g->gpu->copy(to, from, nbytes, stream);
    if (s == RCCLX_OK)
        s = rcclx_gpu_leave_behind(g, stream);
    pthread_mutex_unlock(&g->lock);
    return s;
}

/* All of it over all ranks. */
static rcclx_status flat(rcclx_proxy *p, const rcclx_op *op, size_t from, size_t count, void *stream)
{
    const size_t size = rcclx_type_size(op->type), stride = op->count * size;
    const bool root = p->whole->rank == op->root;
    const int n = p->whole->nranks;
    blocks out = { (const char *)op->in + from * size, stride, 1 }, in = { (char *)op->out + from * size, stride, 1 };

    if (op->kind == RCCLX_REDUCE_SCATTER)
        out.n = n;
    if (op->kind == RCCLX_ALL_GATHER)
        in.n = n;
    if (op->kind == RCCLX_REDUCE_TO)
        in.n = root;
    if (op->kind == RCCLX_BROADCAST) {
        out.n = root;
        in.n = !root;
        if (root && op->in != op->out && count)
            RCCLX_TRY(rcclx_proxy_copy(p, (void *)(uintptr_t)in.at, out.at, count * size, stream));
    }
    return through(p, op, p->whole, op->root, count, out, in, stream);
}

/* --- two levels ----------------------------------------------------------------------------------- */

rcclx_status rcclx_proxy_scratch(rcclx_proxy *p, size_t nbytes)
{
    rcclx_gpu_team *g = p->near->gpu;
    size_t room = p->nscratch ? p->nscratch : RESERVE;
    void *m;

    if (nbytes <= p->nscratch)
        return RCCLX_OK;
    while (room < nbytes)
        room *= 2;
    const int before = g->gpu->relax();
    const rcclx_status s = g->gpu->alloc(&m, room, false);
    g->gpu->unrelax(before);
    RCCLX_TRY(s);
    if (p->scratch) /* sizes double: there is room for all */
        p->outgrown[p->noutgrown++] = p->scratch;
    p->scratch = m;
    p->nscratch = room;
    return RCCLX_OK;
}

static rcclx_op inside(const rcclx_op *op, rcclx_kind kind, const void *in, void *out, size_t count, int root)
{
    rcclx_op o = *op;

    o.kind = kind;
    o.in = in;
    o.out = out;
    o.count = count;
    o.root = root;
    o.bias = NULL;
    o.codec = 0;
    o.op = rcclx_kind_reduces(kind) ? op->op : RCCLX_COPY;
    return o;
}

static rcclx_status all_reduce(rcclx_proxy *p, const rcclx_op *op, size_t part, void *stream)
{
    const size_t size = rcclx_type_size(op->type);
    char *mine = (char *)op->out + (size_t)p->near->rank * part * size;
    const rcclx_op sum = inside(op, RCCLX_REDUCE_SCATTER, op->in, mine, part, 0);
    const rcclx_op spread = inside(op, RCCLX_ALL_GATHER, mine, op->out, part, 0);
    const blocks there = { mine, 0, 1 };

    RCCLX_TRY(near_now(p, &sum, stream));
    RCCLX_TRY(through(p, op, p->rail, 0, part, there, there, stream));
    return near_now(p, &spread, stream);
}

static rcclx_status reduce_scatter(rcclx_proxy *p, const rcclx_op *op, void *stream)
{
    const size_t nbytes = op->count * rcclx_type_size(op->type);
    const int nl = p->near->nranks, nn = p->rail->nranks;

    RCCLX_TRY(rcclx_proxy_scratch(p, nbytes * (size_t)nn));
    for (int k = 0; k < nn; k++) {
        const char *in = (const char *)op->in + (size_t)(k * nl) * nbytes;
        const rcclx_op sum = inside(op, RCCLX_REDUCE_SCATTER, in, p->scratch + (size_t)k * nbytes, op->count, 0);
        RCCLX_TRY(rcclx_proxy_near(p, &sum));
    }
    RCCLX_TRY(rcclx_proxy_near_post(p, stream));
    return through(p, op, p->rail, 0, op->count, (blocks){ p->scratch, nbytes, nn }, (blocks){ op->out, 0, 1 }, stream);
}

static rcclx_status all_gather(rcclx_proxy *p, const rcclx_op *op, void *stream)
{
    const size_t nbytes = op->count * rcclx_type_size(op->type);
    const int nl = p->near->nranks, nn = p->rail->nranks, j = p->near->rank;
    const blocks places = { (char *)op->out + (size_t)j * nbytes, (size_t)nl * nbytes, nn };

    RCCLX_TRY(through(p, op, p->rail, 0, op->count, (blocks){ op->in, 0, 1 }, places, stream));
    for (int k = 0; k < nn; k++) {
        char *out = (char *)op->out + (size_t)(k * nl) * nbytes;
        const rcclx_op spread = inside(op, RCCLX_ALL_GATHER, out + (size_t)j * nbytes, out, op->count, 0);
        RCCLX_TRY(rcclx_proxy_near(p, &spread));
    }
    return rcclx_proxy_near_post(p, stream);
}

static rcclx_status broadcast(rcclx_proxy *p, const rcclx_op *op, size_t part, void *stream)
{
    const size_t size = rcclx_type_size(op->type);
    const int nl = p->near->nranks, home = op->root / nl;
    char *mine = (char *)op->out + (size_t)p->near->rank * part * size;
    const bool here = p->rail->rank == home;
    const rcclx_op deal = inside(op, RCCLX_SCATTER, op->in, mine, part, op->root % nl);
    const rcclx_op spread = inside(op, RCCLX_ALL_GATHER, mine, op->out, part, 0);

    if (here)
        RCCLX_TRY(near_now(p, &deal, stream));
    RCCLX_TRY(through(p, op, p->rail, home, part, (blocks){ mine, 0, here }, (blocks){ mine, 0, !here }, stream));
    return near_now(p, &spread, stream);
}

static rcclx_status reduce(rcclx_proxy *p, const rcclx_op *op, size_t part, void *stream)
{
    const size_t size = rcclx_type_size(op->type);
    const int nl = p->near->nranks, home = op->root / nl;
    const bool here = p->rail->rank == home;

    RCCLX_TRY(rcclx_proxy_scratch(p, part * size));
    const rcclx_op sum = inside(op, RCCLX_REDUCE_SCATTER, op->in, p->scratch, part, 0);
    const rcclx_op bring = inside(op, RCCLX_GATHER, p->scratch, op->out, part, op->root % nl);
    RCCLX_TRY(near_now(p, &sum, stream));
    RCCLX_TRY(through(p, op, p->rail, home, part, (blocks){ p->scratch, 0, 1 }, (blocks){ p->scratch, 0, here }, stream));
    return here ? near_now(p, &bring, stream) : RCCLX_OK;
}

/* May a sum be rounded once a level? Averages of integers, and types of 8 bits, lose too much. */
static bool levels_are_fine(const rcclx_team *t, const rcclx_op *op)
{
    if (!rcclx_kind_reduces(op->kind))
        return true;
    return !t->ordered && !(op->op == RCCLX_AVG && op->type <= RCCLX_U64) && !(op->type > RCCLX_U64 && rcclx_type_size(op->type) == 1);
}

static rcclx_status collective(rcclx_proxy *p, const rcclx_op *op, void *stream)
{
    const size_t size = rcclx_type_size(op->type), n = (size_t)p->whole->nranks, nl = (size_t)p->near->nranks;
    const bool split = op->kind == RCCLX_ALL_REDUCE || op->kind == RCCLX_BROADCAST || op->kind == RCCLX_REDUCE_TO;
    const size_t nbytes = op->count * size * (split ? 1 : n), part = op->count / nl, done = part * nl;

    if (!p->rail || nl == 1 || nbytes <= FLAT_BYTES || !levels_are_fine(p->whole, op))
        return flat(p, op, 0, op->count, stream);
    switch (op->kind) {
    case RCCLX_REDUCE_SCATTER: return reduce_scatter(p, op, stream);
    case RCCLX_ALL_GATHER:     return all_gather(p, op, stream);
    case RCCLX_BROADCAST:      RCCLX_TRY(broadcast(p, op, part, stream)); break;
    case RCCLX_REDUCE_TO:      RCCLX_TRY(reduce(p, op, part, stream)); break;
    default:                   RCCLX_TRY(all_reduce(p, op, part, stream)); break;
    }
    return flat(p, op, done, op->count - done, stream);
}

/* --- the whole -------------------------------------------------------------------------------------- */

static rcclx_status post(rcclx_team *t, const rcclx_task *chain, void *stream)
{
    rcclx_proxy *p = t->proxy;

    p->nchain = 0;
    RCCLX_TRY(rcclx_proxy_pairs(p, chain, stream));
    for (const rcclx_task *k = chain; k; k = k->next) {
        atomic_fetch_add_explicit(&t->ops[k->op.kind], 1, memory_order_relaxed);
        if (rcclx_proxy_is_pairs(k->op.kind))
            continue;
        RCCLX_TRY(collective(p, &k->op, stream));
        if (k->op.bias)
            RCCLX_TRY(rcclx_gpu_add_bias(p->near, &k->op, stream));
    }
    return RCCLX_OK;
}

rcclx_status rcclx_proxy_post(rcclx_team *t, const rcclx_task *chain, void *stream)
{
    rcclx_proxy *p = t->proxy;
    rcclx_gpu_scope scope;
    char text[RCCLX_ERROR_TEXT], why[RCCLX_ERROR_TEXT];

    RCCLX_TRY(rcclx_team_broken(t));
    RCCLX_TRY(t->driver->enter(&scope, t->device));
    pthread_mutex_lock(&p->post_lock);
    const rcclx_status s = post(t, chain, stream);
    pthread_mutex_unlock(&p->post_lock);
    t->driver->leave(&scope);
    if (s == RCCLX_OK)
        return s;
    snprintf(why, sizeof(why), "%s", rcclx_last_error());
    if (rcclx_team_broken(p->near) != RCCLX_OK) {
        rcclx_proxy_raise(p->near, s, p->near->cause);
        return rcclx_team_broken(t);
    }
    rcclx_last_error_set(why);
    /* this rank will not take part in what the others wait for */
    snprintf(text, sizeof(text), "rank %d of %d: %s%s: %.600s", t->rank, t->nranks, rcclx_kind_name(chain->op.kind),
             chain->next ? " and what was grouped with it" : "", rcclx_last_error());
    return rcclx_team_break(t, s, text);
}
