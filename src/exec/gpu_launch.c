/* From operations to launches.
 *
 *   op op op  --pick-->  [work][work] | [work]     works of one launch have as many lanes
 *                          launch       launch     and fit its arguments
 *
 * A call fills one struct of arguments from what was made ready before, and launches.
 * Nothing is allocated, nothing waited for. Numbers of turns are the kernels' own; the
 * host counts along, to be able to say later what was what. */
#include "exec/gpu_team.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

_Static_assert(offsetof(gp_small, blob) == offsetof(gp_large, blob), "one struct serves for both sizes");
_Static_assert(sizeof(gp_small) == GP_SMALL_BYTES && sizeof(gp_large) == GP_LARGE_BYTES, "arguments are as long as they say");

typedef struct {
    gp_large     args;
    size_t       used;
    int          nworks, nlanes, nthreads;
    int          proto;  /* of all its plans */
    uint8_t      codec, type; /* likewise; low precision */
    rcclx_kernel kernel;
    void        *stream;
} batch;

/* --- what a work says -------------------------------------------------------------- */

uint64_t rcclx_gpu_hash(const rcclx_op *op)
{
    uint64_t h = ((uint64_t)rcclx_signature(op) + 1) * 0x9e3779b97f4a7c15u;

    h = (h ^ h >> 32 ^ op->count) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 29) * 0x94d049bb133111ebu;
    return h ^ h >> 32;
}

rcclx_kernel rcclx_gpu_kernel_of(rcclx_type type, rcclx_redop op)
{
    if (op == RCCLX_COPY)
        return RCCLX_KERNEL_copy;
    if (op != RCCLX_SUM)
        return RCCLX_KERNEL_any;
    return type == RCCLX_F32    ? RCCLX_KERNEL_sum_f32
           : type == RCCLX_BF16 ? RCCLX_KERNEL_sum_bf16
           : type == RCCLX_F16  ? RCCLX_KERNEL_sum_f16
                                : RCCLX_KERNEL_any;
}

static rcclx_kernel kernel_of(const rcclx_op *op, const rcclx_ready *r)
{
    return r->rare ? RCCLX_KERNEL_any : rcclx_gpu_kernel_of(op->type, rcclx_kind_reduces(op->kind) ? op->op : RCCLX_COPY);
}

static rcclx_kernel both(rcclx_kernel a, rcclx_kernel b)
{
    return a == b || b == RCCLX_KERNEL_copy ? a : a == RCCLX_KERNEL_copy ? b : RCCLX_KERNEL_any;
}

static bool overlap(const rcclx_op *op, size_t in_bytes, size_t out_bytes)
{
    const uintptr_t in = (uintptr_t)op->in, out = (uintptr_t)op->out;

    return in && out && in < out + out_bytes && out < in + in_bytes;
}

static void say_where(rcclx_team *t, const rcclx_ready *r, const rcclx_op *op, gp_work *w)
{
    const size_t in = rcclx_op_in_bytes(op, t->nranks, t->rank), out = rcclx_op_out_bytes(op, t->nranks, t->rank);
    const bool direct = t->gpu->picker.reach && (!r->apart || !overlap(op, in, out));

    w->in = (uint64_t)(uintptr_t)op->in;
    w->out = (uint64_t)(uintptr_t)op->out;
    w->in_token = !r->reads || !in ? GP_TOKEN_NONE : direct ? rcclx_gpu_token(t, op->in, in) : 0;
    w->out_token = !r->writes || !out ? GP_TOKEN_NONE : direct ? rcclx_gpu_token(t, op->out, out) : 0;
}

static int one_more(int owed, bool owes)
{
    return owes ? owed + (owed < GP_RING) : 0;
}

/* What an operation has to wait for because of those before it; and its own debt. What comes before a graph's first
 * operation is not known. */
static uint8_t credit(rcclx_gpu_team *g, const rcclx_plan *plan, bool owes)
{
    rcclx_gpu_debt *d = &g->debt;
    int owed = d->eager > d->graphs ? d->eager : d->graphs;

    if (g->capture) {
        owed = g->capture == d->chain ? d->captured : GP_RING;
        d->chain = g->capture;
        d->captured = one_more(owed, owes);
        d->graphs = d->captured ? GP_RING : d->graphs;
    } else {
        d->eager = one_more(owed, owes);
    }
    return (uint8_t)((plan->pushes && owed ? GP_CREDIT_SLOTS : 0) | (owed >= GP_RING - 1 ? GP_CREDIT_HEADERS : 0));
}

static rcclx_status fill(rcclx_team *t, const rcclx_ready *r, const rcclx_op *op, int nlanes, gp_work *w)
{
    rcclx_gpu_team *g = t->gpu;
    const size_t size = rcclx_type_size(op->type), nbytes = op->count * size;
    const rcclx_plan *plan = &r->plan[0].shape;

    memcpy(w, r->work, rcclx_plan_is_aimed(plan) ? sizeof(*w) : r->nbytes);
    w->type = (uint8_t)op->type;
    w->op = (uint8_t)op->op;
    w->sig = rcclx_gpu_hash(op);
    w->scalar = op->scalar;
    w->credit = credit(g, plan, rcclx_plan_owes_credit(plan, op->count, size));
    say_where(t, r, op, w);
    if (plan->proto != RCCLX_PROTO_SIMPLE) {
        const size_t in = rcclx_op_in_bytes(op, t->nranks, t->rank), out = rcclx_op_out_bytes(op, t->nranks, t->rank);
        rcclx_ready_aim(r, &g->frame, nbytes, nlanes, !overlap(op, in, out), w);
        return RCCLX_OK;
    }
    for (int k = 0; k < r->nplans; k++)
        if (!rcclx_ready_number(r, k, rcclx_gpu_lanes_of(&g->picker, r, nlanes), nbytes, size, &w->plan[k]))
            return RCCLX_FAIL(RCCLX_USAGE, "rank %d: %s: %zu bytes are too many pieces to be staged; split the message, or "
                              "register its buffers (ncclCommRegister)", t->rank, rcclx_kind_name(op->kind), nbytes);
    if (op->codec)
        rcclx_ready_aim_coded(r, &g->frame, w);
    return RCCLX_OK;
}

/* For the text of whoever asks what this rank has called. */
static void note(rcclx_team *t, const rcclx_op *op, uint32_t turn)
{
    rcclx_gpu_call *call = &t->area[t->rank]->device.call[turn % RCCLX_NCALLS];

    atomic_store_explicit(&call->hash, 0, memory_order_relaxed); /* whoever reads it meanwhile sees that */
    atomic_store_explicit(&call->turn, turn, memory_order_release);
    atomic_store_explicit(&call->count, op->count, memory_order_relaxed);
    atomic_store_explicit(&call->sig, rcclx_signature(op), memory_order_relaxed);
    atomic_store_explicit(&call->hash, rcclx_gpu_hash(op), memory_order_release);
}

/* --- launches ------------------------------------------------------------------------- */

static rcclx_status flush(rcclx_team *t, batch *b)
{
    rcclx_gpu_team *g = t->gpu;

    if (!b->nworks)
        return RCCLX_OK;
    b->args.frame = g->frame;
    b->args.frame.nworks = (uint8_t)b->nworks;
    b->args.frame.nlanes = (uint16_t)b->nlanes;
    b->args.frame.nthreads = (uint16_t)b->nthreads;
    b->args.frame.part = (uint32_t)(GP_WHOLE / (unsigned)b->nlanes);
    b->args.frame.part0 = (uint32_t)(GP_WHOLE - b->args.frame.part * ((unsigned)b->nlanes - 1));
    rcclx_gpu_fn fn = b->codec ? g->coded_kernel[b->codec][b->type] : g->kernel[b->kernel][b->proto];
    const rcclx_status s = g->gpu->launch(fn, (unsigned)b->nlanes, (unsigned)b->nthreads, b->stream, &b->args,
                                          b->proto == RCCLX_PROTO_SIMPLE ? sizeof(gp_large) : sizeof(gp_small));
    if (s == RCCLX_OK) {
        g->turn += (uint32_t)b->nworks;
        atomic_store_explicit(&t->area[t->rank]->device.posted, g->turn, memory_order_relaxed);
    }
    b->used = 0;
    b->nworks = 0;
    b->kernel = RCCLX_KERNEL_copy;
    return s;
}

static rcclx_status add(rcclx_team *t, batch *b, const rcclx_op *op)
{
    rcclx_gpu_team *g = t->gpu;
    const rcclx_gpu_wish wish = {
        .kind = op->kind, .root = rcclx_kind_rooted(op->kind) ? op->root : 0, .nbytes = op->count * rcclx_type_size(op->type),
        .wide = op->op == RCCLX_AVG && op->type <= RCCLX_U64, .coded = op->codec != RCCLX_CODEC_NONE,
    };
    const rcclx_ready *r;
    int nlanes;

    RCCLX_TRY(rcclx_gpu_pick(&g->picker, &wish, &r, &nlanes));
    const int proto = r->plan[0].shape.proto;
    const size_t room = proto == RCCLX_PROTO_SIMPLE ? sizeof(((gp_large *)0)->blob) : sizeof(((gp_small *)0)->blob);
    const int nthreads = rcclx_gpu_threads(&g->picker, r);
    if (b->nworks && (nlanes != b->nlanes || nthreads != b->nthreads || proto != b->proto || b->used + r->nbytes > room || b->nworks == UINT8_MAX ||
                      op->codec != b->codec || (op->codec && op->type != b->type)))
        RCCLX_TRY(flush(t, b));
    b->proto = proto;
    b->nthreads = nthreads;
    b->codec = op->codec;
    b->type = (uint8_t)op->type;
    RCCLX_TRY(fill(t, r, op, nlanes, (gp_work *)(void *)(b->args.blob + b->used)));
    b->kernel = both(b->kernel, kernel_of(op, r));
    b->nlanes = nlanes;
    b->used += r->nbytes;
    b->nworks++;
    note(t, op, g->turn + (uint32_t)b->nworks);
    return RCCLX_OK;
}

/* A rank alone: its result is its input, but for what multiplies or adds. */
static rcclx_status alone(rcclx_team *t, batch *b, const rcclx_op *op)
{
    const size_t nbytes = op->count * rcclx_type_size(op->type);

    if (op->op == RCCLX_PREMUL)
        return op->count ? add(t, b, op) : RCCLX_OK;
    return nbytes && op->in != op->out ? t->gpu->gpu->copy(op->out, op->in, nbytes, b->stream) : RCCLX_OK;
}

static void count(rcclx_team *t, const rcclx_op *op)
{
    atomic_fetch_add_explicit(&t->ops[op->kind], 1, memory_order_relaxed);
}

static rcclx_status post_collectives(rcclx_team *t, const rcclx_task *chain, void *stream)
{
    batch b;

    b.used = 0;
    b.nworks = 0;
    b.nlanes = 1;
    b.kernel = RCCLX_KERNEL_copy;
    b.stream = stream;
    for (const rcclx_task *k = chain; k; k = k->next) {
        if (k->op.kind == RCCLX_ALL_TO_ALLV || k->op.kind >= RCCLX_COLL_COUNT)
            continue;
        count(t, &k->op);
        RCCLX_TRY(t->nranks == 1 ? alone(t, &b, &k->op) : add(t, &b, &k->op));
        if (k->op.bias) {
            RCCLX_TRY(flush(t, &b));
            RCCLX_TRY(rcclx_gpu_add_bias(t, &k->op, stream));
        }
    }
    return flush(t, &b);
}

static rcclx_status post(rcclx_team *t, const rcclx_task *chain, void *stream)
{
    rcclx_gpu_team *g = t->gpu;

    RCCLX_TRY(rcclx_gpu_follow(g, stream));
    /* messages first, on all ranks alike, so that no collective stands before the message that leads to it */
    RCCLX_TRY(rcclx_gpu_pairs_collect(t, chain));
    g->paired |= g->npairs > 0;
    if (g->npairs)
        RCCLX_TRY(rcclx_gpu_pairs(t, g->pairs, g->npairs, stream));
    RCCLX_TRY(post_collectives(t, chain, stream));
    return rcclx_gpu_leave_behind(g, stream);
}

rcclx_status rcclx_gpu_post(rcclx_team *t, const rcclx_task *chain, void *stream)
{
    rcclx_gpu_team *g = t->gpu;
    rcclx_gpu_scope scope;
    char text[RCCLX_ERROR_TEXT];

    RCCLX_TRY(rcclx_team_broken(t));
    RCCLX_TRY(g->gpu->enter(&scope, g->device));
    pthread_mutex_lock(&g->lock);
    const uint32_t before = g->turn;
    rcclx_status s = post(t, chain, stream);
    const bool half = s != RCCLX_OK && (g->turn != before || chain->next);
    pthread_mutex_unlock(&g->lock);
    g->gpu->leave(&scope);
    if (!half && (s == RCCLX_OK || s == RCCLX_UNSUPPORTED || s == RCCLX_USAGE))
        return s;
    /* this rank will not take part in what the others wait for */
    snprintf(text, sizeof(text), "rank %d of %d: %s%s on %s device %d: %.600s", t->rank, t->nranks,
             rcclx_kind_name(chain->op.kind), chain->next ? " and what was grouped with it" : "", g->gpu->name, g->device,
             rcclx_last_error());
    return rcclx_team_break(t, s, text);
}
