/* The direct algorithms through scratch, piece by piece, for buffers that the
 * peers cannot reach. Works for every collective, count and layout.
 *
 *   all-reduce, one piece, rank 1 of 3 (slots 0..2 take blocks, slot 3 the sum)
 *     IN a b c --copy--> slots [a1 . c1 .]      signal 1
 *     wait all 1; slot 1 of rank 0 + own b + slot 1 of rank 2
 *               --reduce--> slot 3 and OUT b    signal 2
 *     wait all 2; slot 3 of rank 0 -> OUT a, slot 3 of rank 2 -> OUT c
 *
 * A slot is written again only when its readers have said so: by a later signal
 * of theirs in the same piece, or by a wait for the lane's previous piece (lag).
 * Waiting for all headers first guards against the previous operation.
 *
 * In low precision, what all ranks get is rounded on all: the own block is written to OUT by
 * the step that fills the slot. */
#include "algo/parts.h"

#include "algo/algo.h"

enum { FILLED = 1, TAKEN = 2 };

static void stage(rcclx_plan *p, int block, int slot)
{
    rcclx_copy_step(p, RCCLX_PROTO_SIMPLE, 1);
    rcclx_src(p, RCCLX_IN, p->shape.rank, block, true);
    rcclx_dst(p, RCCLX_SCRATCH, p->shape.rank, slot);
}

static void stage_all(rcclx_plan *p)
{
    const int n = p->shape.nranks, me = p->shape.rank;

    for (int i = 1; i < n; i++)
        stage(p, (me + i) % n, (me + i) % n);
    rcclx_signal(p, FILLED);
}

static void own(rcclx_plan *p, int block, int to_block)
{
    rcclx_copy_step(p, RCCLX_PROTO_SIMPLE, 1);
    rcclx_src(p, RCCLX_IN, p->shape.rank, block, true);
    rcclx_dst(p, RCCLX_OUT, p->shape.rank, to_block);
}

/* My one block, for all others and, at `to_block` of OUT, for me. */
static void stage_for_all(rcclx_plan *p, int to_block)
{
    stage(p, 0, 0);
    if (p->shape.coded)
        rcclx_dst(p, RCCLX_OUT, p->shape.rank, to_block);
    rcclx_signal(p, FILLED);
    if (!p->shape.coded)
        own(p, 0, to_block);
}

static void fetch(rcclx_plan *p, int from, int slot, int block)
{
    rcclx_copy_step(p, RCCLX_PROTO_SIMPLE, 1);
    rcclx_src(p, RCCLX_SCRATCH, from, slot, false);
    rcclx_dst(p, RCCLX_OUT, p->shape.rank, block);
}

/* Sum of block `me` over all ranks, from everybody's slot `me`. */
static void sum_of_slots(rcclx_plan *p)
{
    const int me = p->shape.rank;

    rcclx_wait(p, RCCLX_ALL, FILLED, 0);
    rcclx_reduce_step(p, RCCLX_PROTO_SIMPLE, 1, true);
    for (int r = 0; r < p->shape.nranks; r++)
        rcclx_src(p, r == me ? RCCLX_IN : RCCLX_SCRATCH, r, me, true);
}

static void all_reduce(rcclx_plan *p, int n, int me)
{
    stage_all(p);
    sum_of_slots(p);
    rcclx_dst(p, RCCLX_SCRATCH, me, n);
    rcclx_dst(p, RCCLX_OUT, me, me);
    rcclx_signal(p, TAKEN);
    for (int i = 1; i < n; i++) {
        rcclx_wait(p, (me + i) % n, TAKEN, 0);
        fetch(p, (me + i) % n, n, (me + i) % n);
    }
}

static void reduce_to(rcclx_plan *p, int n, int me, int root)
{
    rcclx_wait(p, RCCLX_ALL, TAKEN, 1);
    stage_all(p);
    sum_of_slots(p);
    rcclx_dst(p, me == root ? RCCLX_OUT : RCCLX_SCRATCH, me, me == root ? me : n);
    rcclx_signal(p, TAKEN);
    if (me != root)
        return;
    for (int i = 1; i < n; i++) {
        rcclx_wait(p, (me + i) % n, TAKEN, 0);
        fetch(p, (me + i) % n, n, (me + i) % n);
    }
}

static void reduce_scatter(rcclx_plan *p, int me)
{
    rcclx_wait(p, RCCLX_ALL, TAKEN, 1);
    stage_all(p);
    sum_of_slots(p);
    rcclx_dst(p, RCCLX_OUT, me, 0);
    rcclx_signal(p, TAKEN);
}

static void all_gather(rcclx_plan *p, int n, int me)
{
    rcclx_wait(p, RCCLX_ALL, TAKEN, 1);
    stage_for_all(p, me);
    for (int i = 1; i < n; i++) {
        rcclx_wait(p, (me + i) % n, FILLED, 0);
        fetch(p, (me + i) % n, 0, (me + i) % n);
    }
    rcclx_signal(p, TAKEN);
}

static void all_to_all(rcclx_plan *p, int n, int me)
{
    rcclx_wait(p, RCCLX_ALL, TAKEN, 1);
    stage_all(p);
    own(p, me, me);
    for (int i = 1; i < n; i++) {
        rcclx_wait(p, (me + i) % n, FILLED, 0);
        fetch(p, (me + i) % n, me, (me + i) % n);
    }
    rcclx_signal(p, TAKEN);
}

/* The root fills, the others take: broadcast (one slot for all) and scatter (a slot each). */
static void from_root(rcclx_plan *p, int n, int me, int root, bool scatter)
{
    rcclx_part_slots(p, scatter ? n : 1); /* on every rank, whichever slots it names */
    if (me != root) {
        rcclx_wait(p, root, FILLED, 0);
        fetch(p, root, scatter ? me : 0, 0);
        rcclx_signal(p, TAKEN);
        return;
    }
    rcclx_wait(p, RCCLX_ALL, TAKEN, 1);
    if (scatter) {
        stage_all(p);
        own(p, me, 0);
    } else if (n > 1) {
        stage_for_all(p, 0);
    } else {
        own(p, 0, 0);
    }
    if (n > 1)
        rcclx_signal(p, TAKEN);
}

static void gather(rcclx_plan *p, int n, int me, int root)
{
    if (me != root) {
        rcclx_wait(p, root, TAKEN, 1);
        stage(p, 0, 0);
        rcclx_signal(p, FILLED);
        return;
    }
    own(p, 0, me);
    for (int i = 1; i < n; i++) {
        rcclx_wait(p, (me + i) % n, FILLED, 0);
        fetch(p, (me + i) % n, 0, (me + i) % n);
    }
    rcclx_signal(p, TAKEN);
}

static void build(rcclx_plan *p, const rcclx_shape *s)
{
    const int n = s->nranks, me = s->rank;
    const bool sums = s->kind == RCCLX_ALL_REDUCE || s->kind == RCCLX_REDUCE_TO;
    const bool split = sums || s->kind == RCCLX_BROADCAST;

    rcclx_plan_init(p, s, "staged",
                    split ? RCCLX_CUT_SPLIT : s->kind == RCCLX_ALL_TO_ALLV ? RCCLX_CUT_TABLE : RCCLX_CUT_EVEN,
                    s->kind == RCCLX_BROADCAST ? 1 : n);
    rcclx_wait(p, RCCLX_ALL, 0, 0);
    switch (s->kind) {
    case RCCLX_ALL_REDUCE:     all_reduce(p, n, me); break;
    case RCCLX_REDUCE_TO:      reduce_to(p, n, me, s->root); break;
    case RCCLX_REDUCE_SCATTER: reduce_scatter(p, me); break;
    case RCCLX_ALL_GATHER:     all_gather(p, n, me); break;
    case RCCLX_ALL_TO_ALL:
    case RCCLX_ALL_TO_ALLV:    all_to_all(p, n, me); break;
    case RCCLX_BROADCAST:      from_root(p, n, me, s->root, false); break;
    case RCCLX_SCATTER:        from_root(p, n, me, s->root, true); break;
    case RCCLX_GATHER:         gather(p, n, me, s->root); break;
    default: p->status = RCCLX_UNSUPPORTED;
    }
    p->pieced = true;
}

const rcclx_algo rcclx_algo_staged = {
    .name  = "staged",
    .about = "the direct algorithms through scratch, piece by piece; for any buffer",
    .kinds = (1u << RCCLX_COLL_COUNT) - 1,
    .flags = RCCLX_HAS_ORDER | RCCLX_TAKES_CODED,
    .build = build,
};
