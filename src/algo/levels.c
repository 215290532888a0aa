/* Two levels: inside machines, and between them. Every byte crosses the network once a
 * machine that needs it, all ranks of a machine carry a part, and pieces in two lanes let
 * the inside of one run while the other is between.
 *
 *   all-reduce, 2 machines of 2 ranks; shard k is carried by the k-th rank of each machine,
 *   and its part j is summed by that of machine j. Rank 0 (machine 0) of 0 1 | 2 3:
 *
 *     IN 1st shard of rank 1 ------> slots of 1, read by 0    signal 1   STAGED
 *     own + slots of 1 ------------> partial sums of shard 0  signal 2   PARTIAL
 *     part 0: own partial + 2's ===> sum, OUT                 signal 3   SUMMED     === network
 *     part 1: 2's sum =============> slot, OUT                signal 4   HERE
 *     other shards: rank 1's slots > OUT
 *   That all of them begin with STAGED, and PARTIAL, says that they are done with the piece before.
 *
 * The other collectives are parts of this: reduce-scatter is the first half with ranks as
 * shards, all-gather the second; broadcast goes to one rank of every machine and on from
 * there, reduce sums inside and then at the root.
 *
 * Where machines have unlike numbers of ranks, the k-th of m is the (k mod m)-th. */
#include "algo/parts.h"

#include "algo/algo.h"

enum { STAGED = 1, PARTIAL = 2, SUMMED = 3, HERE = 4, TAKEN = 5 };
enum { MOST = 256 };

/* Who is where. rank_at[machine][i]: its i-th rank. */
typedef struct {
    int n, me, nodes, mine, index; /* mine: my machine; index: my place on it */
    int count[MOST], first[MOST];  /* of a machine; in `order` */
    int order[MOST];               /* ranks by machine */
    int place[MOST];               /* of a rank on its machine */
    int shards;                    /* ranks of the largest machine */
} map;

static bool draw_map(map *m, const rcclx_shape *s)
{
    *m = (map){ .n = s->nranks, .me = s->rank };
    if (!s->node || s->nranks > MOST)
        return false;
    for (int r = 0; r < s->nranks; r++)
        m->nodes = s->node[r] >= m->nodes ? s->node[r] + 1 : m->nodes;
    for (int g = 0, at = 0; g < m->nodes; g++) {
        m->first[g] = at;
        for (int r = 0; r < s->nranks; r++)
            if (s->node[r] == g) {
                m->place[r] = m->count[g]++;
                m->order[at++] = r;
            }
        m->shards = m->count[g] > m->shards ? m->count[g] : m->shards;
    }
    m->mine = s->node[s->rank];
    m->index = m->place[s->rank];
    return true;
}

/* The rank of machine g that carries shard k. */
static int carrier(const map *m, int g, int k)
{
    return m->order[m->first[g] + k % m->count[g]];
}

static int local(const map *m, int i)
{
    return m->order[m->first[m->mine] + i];
}

static int nlocal(const map *m)
{
    return m->count[m->mine];
}

static void wait_locals(rcclx_plan *p, const map *m, int phase, int lag)
{
    for (int i = 1; i < nlocal(m); i++)
        rcclx_wait(p, local(m, (m->index + i) % nlocal(m)), phase, lag);
}

/* For a block of this shard: the carriers on the other machines. */
static void wait_carriers(rcclx_plan *p, const map *m, int k, int phase, int lag)
{
    for (int g = 1; g < m->nodes; g++)
        rcclx_wait(p, carrier(m, (m->mine + g) % m->nodes, k), phase, lag);
}

static void to_slot(rcclx_plan *p, int block, int slot, int nblk)
{
    rcclx_copy_step(p, RCCLX_PROTO_SIMPLE, nblk);
    rcclx_src(p, RCCLX_IN, p->shape.rank, block, true);
    rcclx_dst(p, RCCLX_SCRATCH, p->shape.rank, slot);
}

/* Sum of nblk blocks over my machine: my own, and what the others have staged in the slots of the same number. */
static void sum_inside(rcclx_plan *p, const map *m, int block, int nblk, bool final)
{
    rcclx_reduce_step(p, RCCLX_PROTO_SIMPLE, nblk, final);
    for (int i = 0; i < nlocal(m); i++) {
        const int r = local(m, i);
        rcclx_src(p, r == m->me ? RCCLX_IN : RCCLX_SCRATCH, r, block, true);
    }
}

/* --- all-reduce ----------------------------------------------------------------------
 * Block k * nodes + j is part j of shard k; its slot has the same number for contributions
 * (on those who do not carry k) and partial sums (on those who do), and lies `finals`
 * further on for the sum. */

static void stage_shards(rcclx_plan *p, const map *m)
{
    for (int k = 0; k < m->shards; k++)
        if (carrier(m, m->mine, k) != m->me)
            to_slot(p, k * m->nodes, k * m->nodes, m->nodes);
    rcclx_signal(p, STAGED);
}

static void sum_shards(rcclx_plan *p, const map *m)
{
    wait_locals(p, m, STAGED, RCCLX_LAG_NONE);
    for (int k = m->index; k < m->shards; k += nlocal(m)) {
        sum_inside(p, m, k * m->nodes, m->nodes, false);
        rcclx_dst(p, RCCLX_SCRATCH, m->me, k * m->nodes);
    }
    rcclx_signal(p, PARTIAL);
}

/* Over machines, in their order, so that all hold the same bits. */
static void sum_between(rcclx_plan *p, const map *m, int k, int block)
{
    rcclx_reduce_step(p, RCCLX_PROTO_SIMPLE, 1, true);
    for (int g = 0; g < m->nodes; g++)
        rcclx_src(p, RCCLX_SCRATCH, carrier(m, g, k), block, false);
    rcclx_dst(p, RCCLX_OUT, m->me, block);
}

static void all_reduce(rcclx_plan *p, const map *m)
{
    const int finals = m->shards * m->nodes;

    stage_shards(p, m);
    sum_shards(p, m);
    for (int k = m->index; k < m->shards; k += nlocal(m)) {
        const int block = k * m->nodes + m->mine;
        wait_carriers(p, m, k, PARTIAL, RCCLX_LAG_NONE);
        sum_between(p, m, k, block);
        rcclx_dst(p, RCCLX_SCRATCH, m->me, finals + block);
    }
    rcclx_signal(p, SUMMED);
    for (int k = m->index; k < m->shards; k += nlocal(m))
        for (int g = 1; g < m->nodes; g++) {
            const int node = (m->mine + g) % m->nodes, block = k * m->nodes + node;
            rcclx_wait(p, carrier(m, node, k), SUMMED, RCCLX_LAG_NONE);
            rcclx_part_copy(p, RCCLX_SCRATCH, carrier(m, node, k), finals + block, RCCLX_OUT, block, 1);
            rcclx_dst(p, RCCLX_SCRATCH, m->me, finals + block);
        }
    rcclx_signal(p, HERE);
    for (int i = 1; i < nlocal(m); i++) {
        const int place = (m->index + i) % nlocal(m), r = local(m, place);
        rcclx_wait(p, r, HERE, RCCLX_LAG_NONE);
        for (int k = place; k < m->shards; k += nlocal(m))
            rcclx_part_copy(p, RCCLX_SCRATCH, r, finals + k * m->nodes, RCCLX_OUT, k * m->nodes, m->nodes);
    }
}

/* --- reduce ------------------------------------------------------------------------------
 * One block a shard; the root reads every machine's partial sum. */

static void reduce_to(rcclx_plan *p, const map *m, int root)
{
    for (int k = 0; k < m->shards; k++)
        if (carrier(m, m->mine, k) != m->me)
            to_slot(p, k, k, 1);
    rcclx_signal(p, STAGED);
    wait_locals(p, m, STAGED, RCCLX_LAG_NONE);
    if (root != m->me)
        rcclx_wait(p, root, TAKEN, RCCLX_LAG_PREVIOUS);
    for (int k = m->index; k < m->shards; k += nlocal(m)) {
        sum_inside(p, m, k, 1, false);
        rcclx_dst(p, RCCLX_SCRATCH, m->me, k);
    }
    rcclx_signal(p, PARTIAL);
    if (root == m->me) {
        rcclx_wait(p, RCCLX_ALL, PARTIAL, RCCLX_LAG_NONE);
        for (int k = 0; k < m->shards; k++)
            sum_between(p, m, k, k);
    } else {
        wait_locals(p, m, PARTIAL, RCCLX_LAG_NONE); /* they have read what I staged */
    }
    rcclx_signal(p, TAKEN);
}

/* --- reduce-scatter -------------------------------------------------------------------
 * Block r is rank r's; on other machines the carrier of its place sums it. */

static void reduce_scatter(rcclx_plan *p, const map *m, const uint8_t *node)
{
    wait_locals(p, m, TAKEN, RCCLX_LAG_PREVIOUS);
    for (int r = 0; r < m->n; r++)
        if (carrier(m, m->mine, m->place[r]) != m->me)
            to_slot(p, r, r, 1);
    rcclx_signal(p, STAGED);
    wait_locals(p, m, STAGED, RCCLX_LAG_NONE);
    for (int r = 0; r < m->n; r++) {
        if (node[r] == m->mine || carrier(m, m->mine, m->place[r]) != m->me)
            continue;
        rcclx_wait(p, r, TAKEN, RCCLX_LAG_PREVIOUS);
        sum_inside(p, m, r, 1, false);
        rcclx_dst(p, RCCLX_SCRATCH, m->me, r);
    }
    rcclx_signal(p, PARTIAL);
    wait_carriers(p, m, m->index, PARTIAL, RCCLX_LAG_NONE);
    rcclx_reduce_step(p, RCCLX_PROTO_SIMPLE, 1, true);
    for (int g = 0; g < m->nodes; g++)
        for (int i = 0; i < (g == m->mine ? nlocal(m) : 1); i++) {
            const int r = g == m->mine ? local(m, i) : carrier(m, g, m->index);
            rcclx_src(p, r == m->me ? RCCLX_IN : RCCLX_SCRATCH, r, m->me, g == m->mine);
        }
    rcclx_dst(p, RCCLX_OUT, m->me, 0);
    rcclx_signal(p, TAKEN);
}

/* --- all-gather, broadcast --------------------------------------------------------------
 * A block crosses once to every other machine, to the carrier of its rank's place, which
 * hands it on from slot 1 + r. */

static void hand_on(rcclx_plan *p, const map *m, int from, int slot, int block)
{
    rcclx_wait(p, from, STAGED, RCCLX_LAG_NONE);
    rcclx_part_copy(p, RCCLX_SCRATCH, from, 0, RCCLX_OUT, block, 1);
    rcclx_dst(p, RCCLX_SCRATCH, m->me, slot);
}

static void all_gather(rcclx_plan *p, const map *m, const uint8_t *node)
{
    rcclx_part_slots(p, 1 + m->n);
    wait_locals(p, m, TAKEN, RCCLX_LAG_PREVIOUS);
    wait_carriers(p, m, m->index, TAKEN, RCCLX_LAG_PREVIOUS);
    to_slot(p, 0, 0, 1);
    rcclx_signal(p, STAGED);
    rcclx_part_copy(p, RCCLX_IN, m->me, 0, RCCLX_OUT, m->me, 1);
    for (int r = 0; r < m->n; r++)
        if (node[r] != m->mine && carrier(m, m->mine, m->place[r]) == m->me)
            hand_on(p, m, r, 1 + r, r);
    rcclx_signal(p, HERE);
    for (int i = 1; i < nlocal(m); i++) {
        const int place = (m->index + i) % nlocal(m), from = local(m, place);
        rcclx_wait(p, from, HERE, RCCLX_LAG_NONE);
        rcclx_part_copy(p, RCCLX_SCRATCH, from, 0, RCCLX_OUT, from, 1);
        for (int r = 0; r < m->n; r++)
            if (node[r] != m->mine && carrier(m, m->mine, m->place[r]) == from)
                rcclx_part_copy(p, RCCLX_SCRATCH, from, 1 + r, RCCLX_OUT, r, 1);
    }
    rcclx_signal(p, TAKEN);
}

static void broadcast(rcclx_plan *p, const map *m, const uint8_t *node, int root)
{
    const bool at_root = node[root] == m->mine;
    const int source = at_root ? root : carrier(m, m->mine, m->place[root]); /* of my machine */

    rcclx_part_slots(p, 2);
    if (m->me != source) {
        rcclx_wait(p, source, HERE, RCCLX_LAG_NONE);
        rcclx_part_copy(p, RCCLX_SCRATCH, source, at_root ? 0 : 1, RCCLX_OUT, 0, 1);
        rcclx_signal(p, TAKEN);
        return;
    }
    wait_locals(p, m, TAKEN, RCCLX_LAG_PREVIOUS);
    if (m->me == root) {
        wait_carriers(p, m, m->place[root], TAKEN, RCCLX_LAG_PREVIOUS);
        to_slot(p, 0, 0, 1);
        rcclx_signal(p, STAGED);
        rcclx_part_copy(p, RCCLX_IN, m->me, 0, RCCLX_OUT, 0, 1);
    } else {
        hand_on(p, m, root, 1, 0);
    }
    rcclx_signal(p, HERE);
    rcclx_signal(p, TAKEN);
}

static bool can(const rcclx_shape *s)
{
    rcclx_shape any = *s;
    map m;

    any.rank = 0; /* asked for all ranks together */
    return draw_map(&m, &any) && m.nodes > 1 && !s->coded;
}

static void build(rcclx_plan *p, const rcclx_shape *s)
{
    map m;

    if (!draw_map(&m, s)) {
        p->status = RCCLX_UNSUPPORTED;
        return;
    }
    const int blocks[RCCLX_COLL_COUNT] = { [RCCLX_ALL_REDUCE] = m.shards * m.nodes, [RCCLX_REDUCE_TO] = m.shards,
                                           [RCCLX_BROADCAST] = 1, [RCCLX_ALL_GATHER] = m.n, [RCCLX_REDUCE_SCATTER] = m.n };
    const bool even = s->kind == RCCLX_ALL_GATHER || s->kind == RCCLX_REDUCE_SCATTER;
    rcclx_plan_init(p, s, "levels", even ? RCCLX_CUT_EVEN : RCCLX_CUT_SPLIT, blocks[s->kind]);
    rcclx_wait(p, RCCLX_ALL, 0, 0);
    switch (s->kind) {
    case RCCLX_ALL_REDUCE:     all_reduce(p, &m); break;
    case RCCLX_REDUCE_TO:      reduce_to(p, &m, s->root); break;
    case RCCLX_REDUCE_SCATTER: reduce_scatter(p, &m, s->node); break;
    case RCCLX_ALL_GATHER:     all_gather(p, &m, s->node); break;
    case RCCLX_BROADCAST:      broadcast(p, &m, s->node, s->root); break;
    default: p->status = RCCLX_UNSUPPORTED;
    }
    p->pieced = true;
}

const rcclx_algo rcclx_algo_levels = {
    .name  = "levels",
    .about = "inside machines and between them: every byte crosses the network once a machine",
    .kinds = 1u << RCCLX_ALL_REDUCE | 1u << RCCLX_REDUCE_TO | 1u << RCCLX_REDUCE_SCATTER | 1u << RCCLX_ALL_GATHER |
             1u << RCCLX_BROADCAST,
    .can   = can,
    .build = build,
};
