/* A fat tree, and how full a pattern of flows makes it.
 *
 *   tiers 3       core
 *               /      \                 pod's ways up: what its leaves' ways up carry
 *           pod          pod                            / oversubscription
 *          /   \        /   \
 *       leaf   leaf   leaf  leaf         leaf's ways up: leaf_nodes ports / oversubscription
 *      n0 n1  n2 n3  n4 n5  n6 n7
 *
 * Ways up of a switch are taken together: flows spread over them evenly. With leaves for
 * each rail all rails look alike, and one is counted. With common leaves one rail has its
 * share of their ways, so that the same count holds. */
#include "topo/fabric.h"

#include "base/mem.h"
#include "topo/yard.h"

#include <math.h>

static int leaf_of(const rcclx_cluster *c, int node)
{
    return c->tiers < 2 ? 0 : node / c->leaf_nodes;
}

static int pod_of(const rcclx_cluster *c, int node)
{
    return c->tiers < 3 ? 0 : leaf_of(c, node) / c->pod_leaves;
}

int rcclx_fabric_switches(const rcclx_cluster *c, int a, int b)
{
    return leaf_of(c, a) == leaf_of(c, b) ? 1 : pod_of(c, a) == pod_of(c, b) ? 3 : 5;
}

double rcclx_fabric_latency(const rcclx_cluster *c, int a, int b)
{
    return c->port_ns + c->switch_ns * rcclx_fabric_switches(c, a, b);
}

double rcclx_fabric_gap(const rcclx_cluster *c, const rcclx_loads *l, rcclx_held *held)
{
    const double leaf = c->leaf_nodes * c->port_rate / c->oversubscription, pod = leaf * c->pod_leaves / c->oversubscription;
    double gap = l->port / c->port_rate;

    *held = RCCLX_HELD_BY_PORTS;
    if (c->tiers > 1 && l->leaf / leaf > gap) {
        gap = l->leaf / leaf;
        *held = RCCLX_HELD_BY_LEAVES;
    }
    if (c->tiers > 2 && l->pod / pod > gap) {
        gap = l->pod / pod;
        *held = RCCLX_HELD_BY_PODS;
    }
    return gap;
}

rcclx_loads rcclx_fabric_ring(const rcclx_cluster *c)
{
    /* a leaf, and a pod, is left by the last of its nodes alone */
    return (rcclx_loads){ .port = 1, .leaf = c->nodes > c->leaf_nodes, .pod = c->nodes > c->leaf_nodes * c->pod_leaves };
}

/* --- trees: counted edge by edge ----------------------------------------------------------- */

typedef struct {
    int *in, *out;             /* [node] */
    int *leaf[2], *pod[2];     /* [switch]: up, down */
} counts;

static int fullest(const int *of, int n)
{
    int most = 0;

    for (int i = 0; i < n; i++)
        most = of[i] > most ? of[i] : most;
    return most;
}

static void count_edge(const rcclx_cluster *c, counts *k, int from, int to)
{
    k->out[from]++;
    k->in[to]++;
    if (leaf_of(c, from) != leaf_of(c, to)) {
        k->leaf[0][leaf_of(c, from)]++;
        k->leaf[1][leaf_of(c, to)]++;
    }
    if (pod_of(c, from) != pod_of(c, to)) {
        k->pod[0][pod_of(c, from)]++;
        k->pod[1][pod_of(c, to)]++;
    }
}

static rcclx_loads count_trees(const rcclx_cluster *c, counts *k)
{
    rcclx_loads l = { .port = 0 };

    for (int tree = 0; tree < 2; tree++)
        for (int node = 0; node < c->nodes; node++) {
            const int up = rcclx_tree_parent(node, c->nodes, tree);
            if (up >= 0)
                count_edge(c, k, node, up);
        }
    l.port = fmax(fullest(k->in, c->nodes), fullest(k->out, c->nodes));
    l.leaf = fmax(fullest(k->leaf[0], c->nodes), fullest(k->leaf[1], c->nodes));
    l.pod = fmax(fullest(k->pod[0], c->nodes), fullest(k->pod[1], c->nodes));
    return l;
}

rcclx_loads rcclx_fabric_trees(const rcclx_cluster *c)
{
    const size_t n = (size_t)c->nodes;
    int *all = rcclx_mem_alloc(6 * n * sizeof(int));
    counts k = { .in = all, .out = all + n, .leaf = { all + 2 * n, all + 3 * n }, .pod = { all + 4 * n, all + 5 * n } };
    /* without memory to count: as if every edge left its pod */
    const rcclx_loads l =
        all ? count_trees(c, &k)
            : (rcclx_loads){ .port = 3, .leaf = 2.0 * c->leaf_nodes, .pod = 2.0 * c->leaf_nodes * c->pod_leaves };

    rcclx_mem_free(all);
    return l;
}

rcclx_loads rcclx_fabric_pairs(const rcclx_cluster *c, bool across_rails)
{
    const double n = c->nodes, m = fmin(c->tiers > 1 ? c->leaf_nodes : n, n),
                 pod = fmin(c->tiers > 2 ? m * c->pod_leaves : n, n);
    /* what goes to another rail leaves its leaf in any case, if that is the rail's own */
    const double stays = across_rails && c->rail_leaves && c->tiers > 1 ? 1.0 / c->rails : 1;

    return (rcclx_loads){ .port = n - 1, .leaf = m * (n - 1 - (m - 1) * stays), .pod = pod * (n - pod) };
}
