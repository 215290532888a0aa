/* Rings and chains: every rank reads its left neighbour's scratch only.
 *
 *   all-reduce, 4 ranks, rank 1; slots in [ ], <- is "read from rank 0"
 *     step 0   b1            -> [0]           stage, signal 1
 *     step 1   <-[0] + a1    -> [1]           signal 2
 *     step 2   <-[1] + d1    -> [2]           signal 3
 *     step 3   <-[2] + c1    -> [3], OUT c    the sum is complete; signal 4
 *     step 4   <-[3]         -> [0], OUT b    now sums travel; signal 5
 *     step 5   <-[0]         -> [1], OUT a    signal 6
 *     step 6   <-[1]         -> OUT d         signal 7
 *
 * n slots are enough: the wait before step k passed through all other ranks, the
 * right neighbour among them, so it has read what slot k mod n held before.
 * Between pieces the right neighbour's last signal gives the slots back.
 *
 * Broadcast and reduce are chains that begin or end at the root. They are fast
 * for the pieces behind the first, so pieces are made short. */
#include "algo/parts.h"

#include "algo/algo.h"

enum { CHAIN_SLOTS = 4 };

typedef struct {
    int n, me, next, prev;
} ring;

static int mod(int a, int n)
{
    return (a % n + n) % n;
}

/* Step k of a reduction around the ring: the neighbour's partial sum plus my block. */
static void add(rcclx_plan *p, const ring *g, int from_slot, bool raw, int block, bool final)
{
    rcclx_reduce_step(p, RCCLX_PROTO_SIMPLE, 1, final);
    rcclx_src(p, RCCLX_SCRATCH, g->prev, from_slot, raw);
    rcclx_src(p, RCCLX_IN, g->me, block, true);
}

/* Steps 0..n-1 of a reduction: rank r starts with block r - shift and ends with
 * the sum of block r - shift + 1. The last step is left open for its destinations. */
static void sum_around(rcclx_plan *p, const ring *g, int shift)
{
    rcclx_part_copy(p, RCCLX_IN, g->me, mod(g->me - shift, g->n), RCCLX_SCRATCH, 0, 1);
    rcclx_signal(p, 1);
    for (int k = 1; k < g->n; k++) {
        rcclx_wait(p, g->prev, k, 0);
        add(p, g, k - 1, k == 1, mod(g->me - shift - k, g->n), k == g->n - 1);
        if (k == g->n - 1)
            return;
        rcclx_dst(p, RCCLX_SCRATCH, g->me, k);
        rcclx_signal(p, k + 1);
    }
}

static void all_reduce(rcclx_plan *p, const ring *g)
{
    const int n = g->n;

    rcclx_wait(p, g->next, 2 * n - 1, 1);
    sum_around(p, g, 0);
    rcclx_dst(p, RCCLX_SCRATCH, g->me, n - 1);
    rcclx_dst(p, RCCLX_OUT, g->me, mod(g->me + 1, n));
    rcclx_signal(p, n);
    for (int k = n; k < 2 * n - 1; k++) {
        rcclx_wait(p, g->prev, k, 0);
        rcclx_part_copy(p, RCCLX_SCRATCH, g->prev, (k - 1) % n, RCCLX_OUT, mod(g->me - (k - n), n), 1);
        if (k < 2 * n - 2)
            rcclx_dst(p, RCCLX_SCRATCH, g->me, k % n);
        rcclx_signal(p, k + 1);
    }
}

static void reduce_scatter(rcclx_plan *p, const ring *g)
{
    rcclx_wait(p, g->next, g->n, 1);
    sum_around(p, g, 1);
    rcclx_dst(p, RCCLX_OUT, g->me, 0);
    rcclx_signal(p, g->n);
}

static void all_gather(rcclx_plan *p, const ring *g)
{
    rcclx_wait(p, g->next, g->n, 1);
    rcclx_part_copy(p, RCCLX_IN, g->me, 0, RCCLX_SCRATCH, 0, 1);
    rcclx_dst(p, RCCLX_OUT, g->me, g->me);
    rcclx_signal(p, 1);
    for (int k = 1; k < g->n; k++) {
        rcclx_wait(p, g->prev, k, 0);
        rcclx_part_copy(p, RCCLX_SCRATCH, g->prev, k - 1, RCCLX_OUT, mod(g->me - k, g->n), 1);
        if (k < g->n - 1)
            rcclx_dst(p, RCCLX_SCRATCH, g->me, k);
        rcclx_signal(p, k + 1);
    }
}

static void broadcast(rcclx_plan *p, const ring *g, int root)
{
    const bool first = g->me == root, last = g->next == root;

    if (!last)
        rcclx_wait(p, g->next, 1, 1);
    if (!first)
        rcclx_wait(p, g->prev, 1, 0);
    rcclx_part_copy(p, first ? RCCLX_IN : RCCLX_SCRATCH, first ? g->me : g->prev, 0, RCCLX_OUT, 0, 1);
    if (!last)
        rcclx_dst(p, RCCLX_SCRATCH, g->me, 0);
    rcclx_signal(p, 1);
}

static void reduce_to(rcclx_plan *p, const ring *g, int root)
{
    const bool first = g->prev == root, last = g->me == root;

    if (!last)
        rcclx_wait(p, g->next, 1, 1);
    if (first) {
        rcclx_part_copy(p, RCCLX_IN, g->me, 0, RCCLX_SCRATCH, 0, 1);
    } else {
        rcclx_wait(p, g->prev, 1, 0);
        add(p, g, 0, mod(g->me - root, g->n) == 2 % g->n, 0, last);
        rcclx_dst(p, last ? RCCLX_OUT : RCCLX_SCRATCH, g->me, 0);
    }
    rcclx_signal(p, 1);
}

static void build(rcclx_plan *p, const rcclx_shape *s)
{
    const int n = s->nranks, me = s->rank;
    const ring g = { n, me, mod(me + 1, n), mod(me - 1, n) };
    const bool chain = s->kind == RCCLX_BROADCAST || s->kind == RCCLX_REDUCE_TO;
    const bool split = chain || s->kind == RCCLX_ALL_REDUCE;

    rcclx_plan_init(p, s, "ring", split ? RCCLX_CUT_SPLIT : RCCLX_CUT_EVEN, chain ? 1 : n);
    p->pieced = true;
    rcclx_part_slots(p, chain ? CHAIN_SLOTS : 1);
    rcclx_wait(p, RCCLX_ALL, 0, 0);
    if (n == 1) {
        rcclx_part_alone(p);
        return;
    }
    switch (s->kind) {
    case RCCLX_ALL_REDUCE:     all_reduce(p, &g); break;
    case RCCLX_REDUCE_SCATTER: reduce_scatter(p, &g); break;
    case RCCLX_ALL_GATHER:     all_gather(p, &g); break;
    case RCCLX_BROADCAST:      broadcast(p, &g, s->root); break;
    case RCCLX_REDUCE_TO:      reduce_to(p, &g, s->root); break;
    default: p->status = RCCLX_UNSUPPORTED;
    }
}

const rcclx_algo rcclx_algo_ring = {
    .name  = "ring",
    .nccl  = "Ring",
    .about = "neighbours only, least bytes a rank; chains for broadcast and reduce",
    .kinds = 1u << RCCLX_ALL_REDUCE | 1u << RCCLX_REDUCE_SCATTER | 1u << RCCLX_ALL_GATHER | 1u << RCCLX_BROADCAST |
             1u << RCCLX_REDUCE_TO,
    .build = build,
};
