/* One exchange through the operation's slot, for small messages.
 *
 *   rank 0   IN --copy--> |header|data|  slot 0 --+--> rank 1 reads it and adds its own
 *   rank 1   IN --copy--> |header|data|  slot 1 --+--> rank 0 likewise
 *
 * Header and data become visible together, so that one store seen by the peers
 * is all the synchronisation there is. Every rank reads every slot and combines
 * in rank order. Nobody waits for the readers: slots come back after many
 * operations, guarded by a credit the executor checks. */
#include "algo/algo.h"

static void put(rcclx_plan *p, int nblk)
{
    rcclx_copy_step(p, RCCLX_PROTO_LL, nblk);
    rcclx_src(p, RCCLX_IN, p->shape.rank, 0, true);
    rcclx_dst(p, RCCLX_SCRATCH, p->shape.rank, 0);
}

/* OUT of this rank gets the sum over all ranks of the given block. */
static void reduce_all(rcclx_plan *p, int block)
{
    const int me = p->shape.rank;

    rcclx_reduce_step(p, RCCLX_PROTO_LL, 1, true);
    for (int r = 0; r < p->shape.nranks; r++)
        rcclx_src(p, r == me ? RCCLX_IN : RCCLX_SCRATCH, r, block, true);
    rcclx_dst(p, RCCLX_OUT, me, 0);
}

static void fetch(rcclx_plan *p, int from, int block, int to_block)
{
    const bool own = from == p->shape.rank;

    rcclx_copy_step(p, own ? RCCLX_PROTO_SIMPLE : RCCLX_PROTO_LL, 1);
    rcclx_src(p, own ? RCCLX_IN : RCCLX_SCRATCH, from, block, true);
    rcclx_dst(p, RCCLX_OUT, p->shape.rank, to_block);
}

static void fetch_all(rcclx_plan *p, int block)
{
    const int n = p->shape.nranks, me = p->shape.rank;

    for (int i = 0; i < n; i++)
        fetch(p, (me + i) % n, block, (me + i) % n);
}

static void build(rcclx_plan *p, const rcclx_shape *s)
{
    const int n = s->nranks, me = s->rank;
    const bool root = me == s->root;
    const rcclx_cut cut = s->kind == RCCLX_ALL_REDUCE || s->kind == RCCLX_REDUCE_TO || s->kind == RCCLX_BROADCAST
                        ? RCCLX_CUT_SPLIT : RCCLX_CUT_EVEN;

    rcclx_plan_init(p, s, "slot", cut, cut == RCCLX_CUT_SPLIT ? 1 : n);
    switch (s->kind) {
    case RCCLX_ALL_REDUCE:     put(p, 1); reduce_all(p, 0); break;
    case RCCLX_REDUCE_SCATTER: put(p, n); reduce_all(p, me); break;
    case RCCLX_ALL_GATHER:     put(p, 1); fetch_all(p, 0); break;
    case RCCLX_ALL_TO_ALL:     put(p, n); fetch_all(p, me); break;
    case RCCLX_REDUCE_TO:      if (root) reduce_all(p, 0); else put(p, 1); break;
    case RCCLX_GATHER:         if (root) fetch_all(p, 0); else put(p, 1); break;
    case RCCLX_BROADCAST:      if (root) put(p, 1); fetch(p, s->root, 0, 0); break;
    case RCCLX_SCATTER:        if (root) put(p, n); fetch(p, s->root, me, 0); break;
    default: p->status = RCCLX_UNSUPPORTED;
    }
}

const rcclx_algo rcclx_algo_slot = {
    .name  = "slot",
    .about = "one exchange, data and flag together; least latency for small messages",
    .kinds = 1u << RCCLX_ALL_REDUCE | 1u << RCCLX_REDUCE_TO | 1u << RCCLX_BROADCAST | 1u << RCCLX_ALL_GATHER |
             1u << RCCLX_REDUCE_SCATTER | 1u << RCCLX_ALL_TO_ALL | 1u << RCCLX_GATHER | 1u << RCCLX_SCATTER,
    .flags = RCCLX_NEEDS_SMALL | RCCLX_HAS_ORDER,
    .build = build,
};
