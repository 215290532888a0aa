/* Direct access: every rank reads and writes the others' buffers in place.
 * Steps do not grow with the number of ranks.
 *
 *   all-reduce, 3 ranks, blocks a b c            reduce-scatter: without the writes to others
 *     IN 0   a0 b0 c0    rank 0: a0+a1+a2 -> a of OUT 0, 1, 2
 *     IN 1   a1 b1 c1    rank 1: b0+b1+b2 -> b of OUT 0, 1, 2
 *     IN 2   a2 b2 c2    rank 2: c0+c1+c2 -> c of OUT 0, 1, 2
 *
 *   broadcast: rank r copies block r of the root's IN to everybody's OUT, so that the
 *   root and the receivers share the work.
 *
 * Two synchronisations: all headers are in (IN may be read, OUT written), and
 * all ranks are done with my buffers. In place is safe, since a block is read
 * and written by one rank only; all-to-all is not, and asks for buffers apart.
 *
 * Over links between GPUs stores are faster than loads, since nobody waits for an answer.
 * There `direct_push` moves the same blocks from the other end: who has them writes them. */
#include "algo/algo.h"

/* Copy or reduce steps write OUT of every rank, own first, then rotated so that
 * no rank is written by all at once. */
static void to_all(rcclx_plan *p, int block)
{
    const int n = p->shape.nranks, me = p->shape.rank;

    for (int i = 0; i < n; i++)
        rcclx_dst(p, RCCLX_OUT, (me + i) % n, block);
}

static void sum_of_all(rcclx_plan *p, int block)
{
    rcclx_reduce_step(p, RCCLX_PROTO_SIMPLE, 1, true);
    for (int r = 0; r < p->shape.nranks; r++)
        rcclx_src(p, RCCLX_IN, r, block, true);
}

static void copy(rcclx_plan *p, int from, int block, int to, int to_block)
{
    rcclx_copy_step(p, RCCLX_PROTO_SIMPLE, 1);
    rcclx_src(p, RCCLX_IN, from, block, true);
    rcclx_dst(p, RCCLX_OUT, to, to_block);
}

static void pull_all(rcclx_plan *p, int block)
{
    const int n = p->shape.nranks, me = p->shape.rank;

    for (int i = 0; i < n; i++)
        copy(p, (me + i) % n, block, me, (me + i) % n);
}

static void work(rcclx_plan *p, const rcclx_shape *s)
{
    const int me = s->rank;

    switch (s->kind) {
    case RCCLX_ALL_REDUCE:     sum_of_all(p, me); to_all(p, me); break;
    case RCCLX_REDUCE_TO:      sum_of_all(p, me); rcclx_dst(p, RCCLX_OUT, s->root, me); break;
    case RCCLX_REDUCE_SCATTER: sum_of_all(p, me); rcclx_dst(p, RCCLX_OUT, me, 0); break;
    case RCCLX_BROADCAST:
        rcclx_copy_step(p, RCCLX_PROTO_SIMPLE, 1);
        rcclx_src(p, RCCLX_IN, s->root, me, true);
        to_all(p, me);
        break;
    case RCCLX_ALL_GATHER:     pull_all(p, 0); break;
    case RCCLX_ALL_TO_ALL:
    case RCCLX_ALL_TO_ALLV:    pull_all(p, me); break;
    case RCCLX_GATHER:         copy(p, me, 0, s->root, me); break;
    case RCCLX_SCATTER:        copy(p, s->root, me, me, 0); break;
    default: p->status = RCCLX_UNSUPPORTED;
    }
}

static void build(rcclx_plan *p, const rcclx_shape *s)
{
    const bool split = s->kind == RCCLX_ALL_REDUCE || s->kind == RCCLX_REDUCE_TO || s->kind == RCCLX_BROADCAST;
    const bool only_root_waits = s->kind == RCCLX_GATHER || s->kind == RCCLX_SCATTER;

    rcclx_plan_init(p, s, "direct",
                    split ? RCCLX_CUT_SPLIT : s->kind == RCCLX_ALL_TO_ALLV ? RCCLX_CUT_TABLE : RCCLX_CUT_EVEN, s->nranks);
    rcclx_wait(p, RCCLX_ALL, 0, 0);
    work(p, s);
    rcclx_signal(p, 1);
    if (!only_root_waits || s->rank == s->root)
        rcclx_wait(p, RCCLX_ALL, 1, 0);
}

const rcclx_algo rcclx_algo_direct = {
    .name  = "direct",
    .about = "reads and writes the peers' buffers in place; two synchronisations, no copy",
    .kinds = (1u << RCCLX_COLL_COUNT) - 1,
    .flags = RCCLX_NEEDS_READ | RCCLX_NEEDS_WRITE | RCCLX_NEEDS_APART | RCCLX_HAS_ORDER,
    .build = build,
};

/* --- from the other end ----------------------------------------------------------- */

/* Block r of my IN to rank r, own first. */
static void push_each(rcclx_plan *p, int to_block)
{
    const int n = p->shape.nranks, me = p->shape.rank;

    for (int i = 0; i < n; i++)
        copy(p, me, (me + i) % n, (me + i) % n, to_block);
}

/* One or two ranks have nothing to share: the root writes all of it. */
static bool root_alone(const rcclx_shape *s)
{
    return s->kind == RCCLX_SCATTER || (s->kind == RCCLX_BROADCAST && s->nranks <= 2);
}

static void push_work(rcclx_plan *p, const rcclx_shape *s)
{
    const int me = s->rank;

    if (root_alone(s) && me != s->root)
        return;
    switch (s->kind) {
    case RCCLX_ALL_GATHER: rcclx_copy_step(p, RCCLX_PROTO_SIMPLE, 1); rcclx_src(p, RCCLX_IN, me, 0, true); to_all(p, me); break;
    case RCCLX_ALL_TO_ALL: push_each(p, me); break;
    case RCCLX_SCATTER:    push_each(p, 0); break;
    case RCCLX_GATHER:     copy(p, me, 0, s->root, me); break;
    case RCCLX_BROADCAST:
        rcclx_copy_step(p, RCCLX_PROTO_SIMPLE, 1);
        rcclx_src(p, RCCLX_IN, s->root, p->nblocks == 1 ? 0 : me, true);
        to_all(p, p->nblocks == 1 ? 0 : me);
        break;
    default: p->status = RCCLX_UNSUPPORTED;
    }
}

static void build_push(rcclx_plan *p, const rcclx_shape *s)
{
    const bool split = s->kind == RCCLX_BROADCAST, root = s->rank == s->root;

    rcclx_plan_init(p, s, "direct_push", split ? RCCLX_CUT_SPLIT : RCCLX_CUT_EVEN, root_alone(s) && split ? 1 : s->nranks);
    rcclx_wait(p, RCCLX_ALL, 0, 0);
    push_work(p, s);
    rcclx_signal(p, 1);
    if (root_alone(s) && !root)
        rcclx_wait(p, s->root, 1, 0);
    else if (!root_alone(s) && (s->kind != RCCLX_GATHER || root))
        rcclx_wait(p, RCCLX_ALL, 1, 0);
}

const rcclx_algo rcclx_algo_direct_push = {
    .name  = "direct_push",
    .about = "GPUs: who has the data writes them into the peers' buffers",
    .kinds = 1u << RCCLX_ALL_GATHER | 1u << RCCLX_ALL_TO_ALL | 1u << RCCLX_BROADCAST | 1u << RCCLX_GATHER | 1u << RCCLX_SCATTER,
    .flags = RCCLX_DEVICE_ONLY | RCCLX_NEEDS_READ | RCCLX_NEEDS_WRITE | RCCLX_NEEDS_APART | RCCLX_HAS_ORDER,
    .build = build_push,
};
