/* A schedule is a row of stages that the pieces of a message go through one after the
 * other, so that different pieces are in different stages at a time:
 *
 *   inside   [p0][p1][p2]                      latency: how long one piece is in a stage
 *   between      [ p0 ][ p1 ][ p2 ]            busy:    how long it keeps the stage's fullest link
 *   inside               [p0]  [p1]  [p2]
 *
 *   time = all latencies of a piece + (pieces - 1) x the longest busy
 *
 * where stages on the same links are busy one after the other.
 *
 * The message is cut in as many pieces as are best, as whoever plans would. A stage's
 * times follow from the same steps as the price of a plan (plan/price.c): step_ns to begin
 * one, its bytes at the rate of the link, signal_ns until the peer sees it; between nodes
 * post_ns and the latency of the way. How many flows share a link is counted by the fabric.
 *
 * Rings: in a ring of links e, message k of a rank waits for its own message before and
 * for its neighbour's. So the time of a step grows to whichever is longer,
 *
 *   max over e of (begin_e + bytes / rate_e)              the slowest link is always busy
 *   mean over e of (begin_e + bytes / rate_e + latency_e)  or the data go round
 *
 * All GPUs of a node, and all nodes, are alike, so that nothing grows with their number
 * but the trees' edges, which are counted. */
#include "topo/simulate.h"

#include "base/mem.h"
#include "topo/fabric.h"
#include "topo/yard.h"

#include <math.h>

enum { STAGES = 4, MOST_PIECES = 4096 };

/* Either of the GPUs' own links or of the network: what of them one piece keeps, beginning messages and on the wire. */
typedef struct {
    double     latency, begin, wire;
    bool       network;
    rcclx_held held; /* by the wire */
} stage;

/* --- clusters --------------------------------------------------------------------------- */

void rcclx_cluster_default(rcclx_cluster *c, int nodes, int ppn)
{
    *c = (rcclx_cluster){
        .nodes = nodes,
        .ppn = ppn,
        .rails = ppn,
        .step_ns = 200,
        .signal_ns = 1000,
        .link_rate = 48,
        .gpu_rate = 48.0 * (ppn > 1 ? ppn - 1 : 1),
        .post_ns = 500,
        .port_ns = 2000,
        .port_rate = 48,
        .switch_ns = 300,
        .tiers = nodes > 1024 ? 3 : 2,
        .leaf_nodes = 32,
        .pod_leaves = 32,
        .oversubscription = 1,
        .rail_leaves = true,
    };
}

void rcclx_cluster_from_topo(rcclx_cluster *c, const rcclx_share *node, const rcclx_schedule *rails)
{
    const rcclx_topo *t = node->topo;
    double all = 0, least = 1e300;

    for (int i = 1; i < node->ngpus; i++) {
        const rcclx_path *p = rcclx_topo_path(t, node->gpus[0], node->gpus[i]);
        least = p->rate < least ? p->rate : least;
        all += p->rate;
    }
    if (node->ngpus > 1) {
        const rcclx_path *p = rcclx_topo_path(t, node->gpus[0], node->gpus[1]);
        const bool shared = p->nhops > 1; /* through a switch or bridges all ways begin with the same link */
        c->link_rate = least;
        c->gpu_rate = shared ? least : all;
    }
    if (rails->nchannels) {
        c->rails = rails->nchannels;
        c->port_rate = rails->rate;
    }
}

bool rcclx_cluster_check(const rcclx_cluster *c, char *why, size_t nwhy)
{
    const double positive[] = { c->link_rate, c->gpu_rate, c->port_rate, c->oversubscription };

    if (c->nodes < 1 || c->nodes > RCCLX_CLUSTER_NODES || c->ppn < 1 || c->ppn > RCCLX_CLUSTER_PPN)
        return snprintf(why, nwhy, "1 to %d nodes of 1 to %d ranks are possible", RCCLX_CLUSTER_NODES, RCCLX_CLUSTER_PPN) <
               0;
    if (c->rails < 1 || c->rails > 1024)
        return snprintf(why, nwhy, "a node has 1 to 1024 rails, not %d", c->rails) < 0;
    if (c->tiers < 1 || c->tiers > 3 || c->leaf_nodes < 1 || c->pod_leaves < 1)
        return snprintf(why, nwhy, "1 to 3 tiers are possible, with a node or more a leaf and a leaf or more a pod") < 0;
    for (size_t i = 0; i < sizeof(positive) / sizeof(positive[0]); i++)
        if (!(positive[i] > 0) || isinf(positive[i]))
            return snprintf(why, nwhy, "rates and oversubscription must be more than 0") < 0;
    return true;
}

const char *rcclx_held_text(rcclx_held h)
{
    static const char *const texts[RCCLX_HELD_COUNT] = {
        [RCCLX_HELD_BY_LATENCY] = "latency",
        [RCCLX_HELD_BY_GPUS] = "links between GPUs",
        [RCCLX_HELD_BY_PORTS] = "network ports",
        [RCCLX_HELD_BY_LEAVES] = "ways up from the leaves",
        [RCCLX_HELD_BY_PODS] = "ways up from the pods",
        [RCCLX_HELD_BY_MESSAGES] = "number of messages",
    };

    return texts[h];
}

/* --- stages -------------------------------------------------------------------------------- */

/* Every GPU sends nbytes to each of the p - 1 others at once: one way to each, all through its own links. */
static stage direct(const rcclx_cluster *c, double nbytes)
{
    const double others = c->ppn - 1, begin = others * c->step_ns;
    const double wire = fmax(nbytes / c->link_rate, others * nbytes / c->gpu_rate);

    if (c->ppn == 1)
        return (stage){ .latency = 0 };
    return (stage){ .latency = begin + wire + c->signal_ns, .begin = begin, .wire = wire, .held = RCCLX_HELD_BY_GPUS };
}

/* How far it is between neighbours in the order of nodes, on the average: few of them are in different leaves or pods. */
static double neighbour_ns(const rcclx_cluster *c)
{
    double sum = 0;

    for (int i = 0; i < c->nodes; i++)
        sum += rcclx_fabric_latency(c, i, (i + 1) % c->nodes);
    return sum / c->nodes;
}

/* A ring over all nodes on each rail: `steps` messages of nbytes a port. */
static stage node_ring(const rcclx_cluster *c, double nbytes, double steps)
{
    const rcclx_loads loads = rcclx_fabric_ring(c);
    rcclx_held held;
    const double wire = nbytes * rcclx_fabric_gap(c, &loads, &held), begin = c->post_ns,
                 around = begin + wire + neighbour_ns(c);

    return (stage){ .latency = steps * fmax(around, fmax(begin, wire)),
                    .begin = steps * begin,
                    .wire = steps * wire,
                    .network = true,
                    .held = held };
}

/* The longest way from a leaf of a tree to its root, where a message takes `each` and waits for those of its siblings. */
static double climb_tree(const rcclx_cluster *c, int tree, double each, const int *children)
{
    double longest = 0;

    for (int node = 0; node < c->nodes; node++) {
        double way = 0;
        for (int at = node, up; (up = rcclx_tree_parent(at, c->nodes, tree)) >= 0; at = up)
            way += each * (children ? children[up] : 2) + rcclx_fabric_latency(c, at, up);
        longest = fmax(longest, way);
    }
    return longest;
}

static double climb(const rcclx_cluster *c, double each)
{
    double longest = 0;

    for (int tree = 0; tree < 2; tree++) {
        int *children = rcclx_mem_alloc((size_t)c->nodes * sizeof(int)); /* without memory: two each */
        for (int node = 0; children && node < c->nodes; node++) {
            const int up = rcclx_tree_parent(node, c->nodes, tree);
            if (up >= 0)
                children[up]++;
        }
        longest = fmax(longest, climb_tree(c, tree, each, children));
        rcclx_mem_free(children);
    }
    return longest;
}

/* Both trees with half of nbytes each, up (and down: `ways` 2). A node has up to 3 edges in one tree, 1 in the other. */
static stage node_trees(const rcclx_cluster *c, double nbytes, int ways)
{
    const rcclx_loads loads = rcclx_fabric_trees(c);
    rcclx_held held;
    const double wire = nbytes / 2 * rcclx_fabric_gap(c, &loads, &held), begin = loads.port * c->post_ns;

    return (stage){ .latency = ways * climb(c, c->post_ns + nbytes / 2 / c->port_rate),
                    .begin = ways * begin,
                    .wire = ways * wire,
                    .network = true,
                    .held = held };
}

/* Every port sends nbytes to each of the other nodes', `ways` times; flows to other rails go by other leaves. */
static stage node_pairs(const rcclx_cluster *c, double nbytes, double messages, int ways, bool across_rails)
{
    const rcclx_loads loads = rcclx_fabric_pairs(c, across_rails);
    rcclx_held held;
    const double wire = nbytes * rcclx_fabric_gap(c, &loads, &held), begin = messages * c->post_ns;
    const double far = rcclx_fabric_latency(c, 0, c->nodes - 1);

    return (stage){ .latency = ways * (fmax(begin, wire) + c->post_ns + far),
                    .begin = ways * begin,
                    .wire = ways * wire,
                    .network = true,
                    .held = held };
}

/* A ring over all ranks, node after node, a channel a rail; `steps` messages of nbytes of all channels together. */
static stage rank_ring(const rcclx_cluster *c, double nbytes, double steps)
{
    const rcclx_loads loads = rcclx_fabric_ring(c);
    rcclx_held held;
    const double inside = nbytes / c->gpu_rate, between = nbytes / c->rails * rcclx_fabric_gap(c, &loads, &held);
    const double n = (double)c->nodes * c->ppn, edges_between = c->nodes > 1 ? c->nodes : 0,
                 edges_inside = n - edges_between;
    const double slow_inside = edges_inside > 0 ? c->step_ns + inside : 0,
                 slow_between = edges_between > 0 ? c->post_ns + between : 0;
    const double around = (edges_inside * (c->step_ns + inside + c->signal_ns) +
                           (edges_between > 0 ? edges_between * (c->post_ns + between + neighbour_ns(c)) : 0)) / n;
    const double slowest = fmax(slow_inside, slow_between), step = fmax(slowest, around);

    return (stage){ .latency = steps * step,
                    .wire = steps * slowest,
                    .network = slow_between > slow_inside,
                    .held = around > slowest             ? RCCLX_HELD_BY_LATENCY
                            : slow_between > slow_inside ? held
                                                         : RCCLX_HELD_BY_GPUS };
}

/* --- schedules: what a piece of nbytes goes through --------------------------------------------- */

/* All-reduce goes each way twice; reduce-scatter and all-gather once. In terms of the whole: what all ranks together hold. */
static int ways_of(rcclx_kind kind)
{
    return kind == RCCLX_ALL_REDUCE ? 2 : 1;
}

static double whole(const rcclx_cluster *c, rcclx_kind kind, double nbytes)
{
    return kind == RCCLX_ALL_REDUCE ? nbytes : nbytes * c->nodes * c->ppn;
}

static int flat_ring(const rcclx_cluster *c, rcclx_kind kind, double nbytes, void *out)
{
    const double n = (double)c->nodes * c->ppn;

    *(stage *)out = rank_ring(c, whole(c, kind, nbytes) / n, ways_of(kind) * (n - 1));
    return n > 1;
}

/* A chain through each node, its heads in double binary trees: what NCCL calls Tree. Only for all-reduce. */
static int flat_trees(const rcclx_cluster *c, rcclx_kind kind, double nbytes, void *out)
{
    stage *s = out;
    const double hop = c->step_ns + nbytes / c->gpu_rate;

    (void)kind;
    if (c->nodes * c->ppn == 1)
        return 0;
    s[0] = (stage){ .latency = 2 * (c->ppn - 1) * (hop + c->signal_ns),
                    .wire = c->ppn > 1 ? 2 * hop : 0,
                    .held = RCCLX_HELD_BY_GPUS };
    s[1] = c->nodes > 1 ? node_trees(c, nbytes / c->rails, 2) : (stage){ .latency = 0 };
    return 2;
}

/* Inside, between, inside. `part` is what a port has of the piece. */
static int around_nodes(const rcclx_cluster *c, rcclx_kind kind, double nbytes, stage between, stage *s)
{
    int n = 0;

    /* every GPU has a p-th of what the node holds; reduce-scatter ends, all-gather begins with that */
    const double inside = whole(c, kind, nbytes) / c->ppn;
    if (kind != RCCLX_ALL_GATHER && c->ppn > 1)
        s[n++] = direct(c, inside);
    s[n++] = between;
    if (kind != RCCLX_REDUCE_SCATTER && c->ppn > 1)
        s[n++] = direct(c, inside);
    return n;
}

static int nodes_ring(const rcclx_cluster *c, rcclx_kind kind, double nbytes, void *out)
{
    const double part = whole(c, kind, nbytes) / c->rails;

    return c->nodes > 1 ? around_nodes(c, kind, nbytes, node_ring(c, part / c->nodes, ways_of(kind) * (c->nodes - 1.0)), out)
                        : 0;
}

static int nodes_trees(const rcclx_cluster *c, rcclx_kind kind, double nbytes, void *out)
{
    return c->nodes > 1 ? around_nodes(c, kind, nbytes, node_trees(c, nbytes / c->rails, 2), out) : 0;
}

static int nodes_direct(const rcclx_cluster *c, rcclx_kind kind, double nbytes, void *out)
{
    const double part = whole(c, kind, nbytes) / c->rails;

    return c->nodes > 1
               ? around_nodes(c, kind, nbytes, node_pairs(c, part / c->nodes, c->nodes - 1.0, ways_of(kind), false), out)
               : 0;
}

static int one_node(const rcclx_cluster *c, rcclx_kind kind, double nbytes, void *out)
{
    stage *s = out;

    if (c->nodes > 1 || c->ppn == 1)
        return 0;
    for (int i = 0; i < ways_of(kind); i++)
        s[i] = direct(c, whole(c, kind, nbytes) / c->ppn);
    return ways_of(kind);
}

/* Every rank to every rank by itself: at once inside, and through its own port, where p / rails GPUs share one. */
static int pairs_flat(const rcclx_cluster *c, rcclx_kind kind, double nbytes, void *out)
{
    stage *s = out;
    const double sharing = (double)c->ppn / c->rails;

    (void)kind;
    if (c->nodes * c->ppn == 1)
        return 0;
    const stage inside = direct(c, nbytes);
    if (c->nodes == 1) {
        s[0] = inside;
        return 1;
    }
    s[0] = node_pairs(c, nbytes * c->ppn * sharing, (c->nodes - 1.0) * c->ppn * sharing, 1, true);
    if (inside.latency > s[0].latency)
        s[0] = inside; /* both go on at the same time */
    return 1;
}

/* First to the GPU of the node that is on the receiver's rail, then one message a node: p times longer, p times fewer. */
static int pairs_nodes(const rcclx_cluster *c, rcclx_kind kind, double nbytes, void *out)
{
    stage *s = out;
    const double sharing = (double)c->ppn / c->rails;

    (void)kind;
    if (c->nodes == 1 || c->ppn == 1)
        return 0;
    s[0] = direct(c, nbytes * c->nodes);
    s[1] = node_pairs(c, nbytes * c->ppn * sharing, (c->nodes - 1.0) * sharing, 1, false);
    return 2;
}

#define SUMS (1u << RCCLX_ALL_REDUCE | 1u << RCCLX_REDUCE_SCATTER | 1u << RCCLX_ALL_GATHER)

static const rcclx_forecaster rows[] = {
    { "direct", "one node: everybody with everybody", SUMS, one_node },
    { "ring", "a ring over all ranks, a channel a rail", SUMS, flat_ring },
    { "tree", "a chain in each node, double binary trees between", 1u << RCCLX_ALL_REDUCE, flat_trees },
    { "direct+ring", "direct inside, a ring a rail between nodes", SUMS, nodes_ring },
    { "direct+tree", "direct inside, double binary trees between nodes", 1u << RCCLX_ALL_REDUCE, nodes_trees },
    { "direct+direct", "direct inside, and between nodes on each rail", SUMS, nodes_direct },
    { "pairs", "every rank to every rank by itself", 1u << RCCLX_ALL_TO_ALL, pairs_flat },
    { "pairs by node", "gathered inside by rail, then a message a node", 1u << RCCLX_ALL_TO_ALL, pairs_nodes },
};
const rcclx_forecaster *const rcclx_forecasts[] = { &rows[0], &rows[1], &rows[2], &rows[3], &rows[4],
                                                    &rows[5], &rows[6], &rows[7], NULL };

/* --- all of it -------------------------------------------------------------------------------------- */

/* Stages that use the same links, or begin messages on the same side, take turns: their times add up. */
static double pipeline(const stage *s, int n, int pieces, rcclx_held *held)
{
    double latency = 0, begin[2] = { 0 }, wire[2] = { 0 }, longest = 0;
    rcclx_held by[2] = { RCCLX_HELD_BY_GPUS, RCCLX_HELD_BY_PORTS };

    for (int i = 0; i < n; i++) {
        latency += s[i].latency;
        begin[s[i].network] += s[i].begin;
        wire[s[i].network] += s[i].wire;
        by[s[i].network] = s[i].wire > 0 ? s[i].held : by[s[i].network];
    }
    *held = RCCLX_HELD_BY_LATENCY;
    for (int side = 0; side < 2; side++) {
        const double busy = fmax(begin[side], wire[side]);
        if (busy > longest) {
            longest = busy;
            *held = begin[side] > wire[side] ? RCCLX_HELD_BY_MESSAGES : by[side];
        }
    }
    const double all = latency + longest * (pieces - 1);
    if (longest * pieces < all / 2)
        *held = RCCLX_HELD_BY_LATENCY;
    return all;
}

bool rcclx_simulate(const rcclx_forecaster *s, rcclx_kind kind, const rcclx_cluster *c, double nbytes, rcclx_forecast *f)
{
    *f = (rcclx_forecast){ .ns = HUGE_VAL };
    if (!(s->kinds >> kind & 1))
        return false;
    for (int pieces = 1; pieces <= MOST_PIECES && nbytes / pieces >= 1; pieces *= 2) {
        stage stages[STAGES];
        rcclx_held held;
        const int n = s->stages(c, kind, nbytes / pieces, stages);
        if (!n)
            return false;
        const double ns = pipeline(stages, n, pieces, &held);
        if (ns < f->ns)
            *f = (rcclx_forecast){ .ns = ns, .pieces = pieces, .held = held };
        else if (ns > 4 * f->ns)
            break;
    }
    return true;
}
