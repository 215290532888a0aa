/* One exchange in which data are pushed into the reader's memory, each element with its
 * flag: for small messages on GPUs.
 *
 *   rank 0   IN --+--> slot 0 of rank 1   (a flag beside the data says "turn 7")
 *                 +--> slot 0 of rank 2
 *            slot 1, slot 2 (pushed by 1 and 2), IN  --sum in rank order-->  OUT
 *
 * Nothing is signalled and nobody looks at a peer's memory: a rank stores over the links,
 * and waits for what lands in its own memory. In LL a flag goes with every 8 bytes, in
 * LL128 one with every line.
 *
 * One shot sends every rank the whole message. Two shots, for messages that are not quite
 * as small, send 2 (n-1)/n of it: rank r gets block r of everybody, sums, and pushes the
 * sum to everybody into slots n..2n-1.
 *
 * A slot is filled again two operations later. Who fills it must know that its owner has
 * begun the operation in between; in kinds where all hear from all that is so by then. The
 * others owe credit: see plan/plan.h. */
#include "algo/parts.h"

#include "algo/algo.h"

typedef struct {
    rcclx_plan *p;
    rcclx_proto proto;
    int         n, me;
} writer;

/* --- words -------------------------------------------------------------------- */

static void open_push(const writer *w, int block)
{
    rcclx_copy_step(w->p, w->proto, 1);
    rcclx_src(w->p, RCCLX_IN, w->me, block, true);
}

/* A block of IN into one rank's slot that stands for me. */
static void push(const writer *w, int block, int to, int slot)
{
    open_push(w, block);
    rcclx_dst(w->p, RCCLX_SCRATCH, to, slot);
}

/* Destinations: the given slot of everybody else, rotated so that no rank is written by all at once. */
static void to_others(const writer *w, int slot)
{
    for (int i = 1; i < w->n; i++)
        rcclx_dst(w->p, RCCLX_SCRATCH, (w->me + i) % w->n, slot);
}

/* Block r of IN to rank r, for every other rank. */
static void push_each(const writer *w)
{
    for (int i = 1; i < w->n; i++)
        push(w, (w->me + i) % w->n, (w->me + i) % w->n, w->me);
}

static void push_all(const writer *w)
{
    open_push(w, 0);
    to_others(w, w->me);
}

/* My block of IN, and what the others have pushed of theirs, summed into OUT. */
static void sum(const writer *w, int block, int to_block)
{
    rcclx_reduce_step(w->p, w->proto, 1, true);
    for (int r = 0; r < w->n; r++)
        rcclx_src(w->p, r == w->me ? RCCLX_IN : RCCLX_SCRATCH, w->me, r == w->me ? block : r, true);
    rcclx_dst(w->p, RCCLX_OUT, w->me, to_block);
}

static void take(const writer *w, int slot, int to_block)
{
    rcclx_copy_step(w->p, w->proto, 1);
    rcclx_src(w->p, RCCLX_SCRATCH, w->me, slot, !rcclx_kind_reduces(w->p->shape.kind));
    rcclx_dst(w->p, RCCLX_OUT, w->me, to_block);
}

static void take_all(const writer *w, int first_slot)
{
    for (int i = 1; i < w->n; i++)
        take(w, first_slot + (w->me + i) % w->n, (w->me + i) % w->n);
}

/* My own block goes nowhere near a slot. */
static void keep(const writer *w, int block, int to_block)
{
    rcclx_part_copy(w->p, RCCLX_IN, w->me, block, RCCLX_OUT, to_block, 1);
}

/* --- plans --------------------------------------------------------------------- */

static void to_one(const writer *w, int root)
{
    const bool gather = w->p->shape.kind == RCCLX_GATHER;

    if (w->me != root) {
        push(w, 0, root, w->me);
    } else if (gather) {
        keep(w, 0, w->me);
        take_all(w, 0);
    } else {
        sum(w, 0, 0);
    }
}

static void from_one(const writer *w, int root)
{
    if (w->me != root) {
        take(w, 0, 0);
    } else if (w->p->shape.kind == RCCLX_BROADCAST) {
        open_push(w, 0);
        to_others(w, 0);
        keep(w, 0, 0);
    } else {
        for (int i = 1; i < w->n; i++)
            push(w, (w->me + i) % w->n, (w->me + i) % w->n, 0);
        keep(w, w->me, 0);
    }
}

static void work(const writer *w, const rcclx_shape *s)
{
    switch (s->kind) {
    case RCCLX_ALL_REDUCE:     push_all(w); sum(w, 0, 0); break;
    case RCCLX_REDUCE_SCATTER: push_each(w); sum(w, w->me, 0); break;
    case RCCLX_ALL_GATHER:     push_all(w); keep(w, 0, w->me); take_all(w, 0); break;
    case RCCLX_ALL_TO_ALL:     push_each(w); keep(w, w->me, w->me); take_all(w, 0); break;
    case RCCLX_REDUCE_TO:
    case RCCLX_GATHER:         to_one(w, s->root); break;
    case RCCLX_BROADCAST:
    case RCCLX_SCATTER:        from_one(w, s->root); break;
    default: w->p->status = RCCLX_UNSUPPORTED;
    }
}

static void build(rcclx_plan *p, const rcclx_shape *s, const char *name, rcclx_proto proto)
{
    const bool split = s->kind == RCCLX_ALL_REDUCE || s->kind == RCCLX_REDUCE_TO || s->kind == RCCLX_BROADCAST;
    const bool one_slot = s->kind == RCCLX_BROADCAST || s->kind == RCCLX_SCATTER;
    const writer w = { p, proto, s->nranks, s->rank };

    rcclx_plan_init(p, s, name, split ? RCCLX_CUT_SPLIT : RCCLX_CUT_EVEN, split ? 1 : s->nranks);
    rcclx_pushes(p, proto, one_slot ? 1 : s->nranks, rcclx_kind_rooted(s->kind));
    if (s->nranks == 1)
        rcclx_part_alone(p);
    else
        work(&w, s);
}

static void build_two(rcclx_plan *p, const rcclx_shape *s, const char *name, rcclx_proto proto)
{
    const writer w = { p, proto, s->nranks, s->rank };

    rcclx_plan_init(p, s, name, RCCLX_CUT_SPLIT, s->nranks);
    rcclx_pushes(p, proto, 2 * s->nranks, false);
    if (s->nranks == 1) {
        rcclx_part_alone(p);
        return;
    }
    push_each(&w);
    sum(&w, w.me, w.me);
    to_others(&w, w.n + w.me);
    take_all(&w, w.n);
}

/* --- rows ------------------------------------------------------------------------ */

static void build_ll(rcclx_plan *p, const rcclx_shape *s)        { build(p, s, "ll", RCCLX_PROTO_LL); }
static void build_ll128(rcclx_plan *p, const rcclx_shape *s)     { build(p, s, "ll128", RCCLX_PROTO_LL128); }
static void build_ll_two(rcclx_plan *p, const rcclx_shape *s)    { build_two(p, s, "ll_two", RCCLX_PROTO_LL); }
static void build_ll128_two(rcclx_plan *p, const rcclx_shape *s) { build_two(p, s, "ll128_two", RCCLX_PROTO_LL128); }

enum {
    KINDS = 1u << RCCLX_ALL_REDUCE | 1u << RCCLX_REDUCE_TO | 1u << RCCLX_BROADCAST | 1u << RCCLX_ALL_GATHER |
            1u << RCCLX_REDUCE_SCATTER | 1u << RCCLX_ALL_TO_ALL | 1u << RCCLX_GATHER | 1u << RCCLX_SCATTER,
    FLAGS = RCCLX_PUSHES | RCCLX_DEVICE_ONLY | RCCLX_HAS_ORDER,
};

const rcclx_algo rcclx_algo_ll = {
    .name  = "ll",
    .about = "GPUs: data and flag in 16 bytes, pushed to the readers; least latency",
    .kinds = KINDS, .flags = FLAGS, .build = build_ll,
};

const rcclx_algo rcclx_algo_ll128 = {
    .name  = "ll128",
    .about = "GPUs: the same with a flag a line; more of the link's rate",
    .kinds = KINDS, .flags = FLAGS, .build = build_ll128,
};

const rcclx_algo rcclx_algo_ll_two = {
    .name  = "ll_two",
    .about = "GPUs: reduce a block a rank, push the sums; two exchanges in ll",
    .kinds = 1u << RCCLX_ALL_REDUCE, .flags = FLAGS, .build = build_ll_two,
};

const rcclx_algo rcclx_algo_ll128_two = {
    .name  = "ll128_two",
    .about = "GPUs: reduce a block a rank, push the sums; two exchanges in ll128",
    .kinds = 1u << RCCLX_ALL_REDUCE, .flags = FLAGS, .build = build_ll128_two,
};
