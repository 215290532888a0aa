/* Bounds. Whatever ranks do, what leaves a set of ends passes the links around it. The
 * tightest such set is found as a minimum cut, by maximum flow (shortest augmenting
 * paths).
 *
 *        source                      cut: between two ends, both ways, for all pairs
 *      /   |   \  shares             with the first end: every set of ends that parts
 *    GPU  GPU  network               two of them parts one from the first
 *      \   |   /
 *       links ... -> sink (an end)   spread: from all ends at once to each of them
 *
 * For spread, x is the largest rate at which every end gets everything: for each set S
 * that holds a share w and lacks an end, x w <= capacity out of S. It comes down from
 * above: with x too large, the minimum cut at the worst end is such a set, and gives
 * the next x. When no cut is short of x any more, x is the largest. */
#include "topo/yard.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

typedef struct {
    int    to, back; /* edge the other way */
    int    next;     /* of the same vertex; -1 */
    double room;
} edge;

typedef struct {
    const rcclx_yard *y;
    bool    network, backward;
    int     n, nedges, source, sink, net; /* vertices: the topology's, the network, two more */
    edge   *edges;
    int    *head, *came, *queue;
    double *full; /* [edge]: room at first */
} graph;

static void join(graph *g, int from, int to, double there, double back)
{
    const int e = g->nedges;

    g->edges[e] = (edge){ .to = to, .back = e + 1, .next = g->head[from], .room = there };
    g->head[from] = e;
    g->edges[e + 1] = (edge){ .to = from, .back = e, .next = g->head[to], .room = back };
    g->head[to] = e + 1;
    g->full[e] = there;
    g->full[e + 1] = back;
    g->nedges += 2;
}

static void lay(graph *g)
{
    const rcclx_topo *t = g->y->t;

    for (int i = 0; i < t->nlinks; i++) {
        const rcclx_topo_link *l = &t->links[i];
        const double there = g->y->used[i] ? l->rate : 0, back = g->y->used[l->back] ? t->links[l->back].rate : 0;
        if (l->from < l->to && there + back > 0)
            join(g, l->from, l->to, g->backward ? back : there, g->backward ? there : back);
    }
    for (int i = 0; g->network && i < g->y->nports; i++)
        join(g, t->nets[g->y->ports[i] - t->ngpus], g->net, 1e12, 1e12);
}

static rcclx_status open_graph(graph *g, const rcclx_yard *y, bool network, bool backward)
{
    const size_t nedges = (size_t)(y->t->nlinks + 2 * (y->nports + y->ngpus + 2));

    *g = (graph){ .y = y, .network = network, .backward = backward, .net = y->t->nvertices, .source = y->t->nvertices + 1,
                  .sink = y->t->nvertices + 2, .n = y->t->nvertices + 3 };
    g->edges = rcclx_mem_alloc(nedges * sizeof(edge));
    g->full = rcclx_mem_alloc(nedges * sizeof(double));
    g->head = rcclx_mem_alloc((size_t)g->n * sizeof(int));
    g->came = rcclx_mem_alloc((size_t)g->n * sizeof(int));
    g->queue = rcclx_mem_alloc((size_t)g->n * sizeof(int));
    if (!g->edges || !g->full || !g->head || !g->came || !g->queue)
        return RCCLX_FAIL(RCCLX_NOMEM, "no memory for a bound");
    for (int v = 0; v < g->n; v++)
        g->head[v] = -1;
    lay(g);
    return RCCLX_OK;
}

static void close_graph(graph *g)
{
    rcclx_mem_free(g->edges);
    rcclx_mem_free(g->full);
    rcclx_mem_free(g->head);
    rcclx_mem_free(g->came);
    rcclx_mem_free(g->queue);
}

/* Breadth first over edges with room; came[v] is the edge by which v was reached, -1 not. True: the sink was. */
static bool reach(graph *g, int from, int sink)
{
    int n = 0;

    for (int v = 0; v < g->n; v++)
        g->came[v] = -1;
    g->came[from] = -2;
    g->queue[n++] = from;
    for (int i = 0; i < n; i++)
        for (int e = g->head[g->queue[i]]; e >= 0; e = g->edges[e].next)
            if (g->edges[e].room > 1e-7 && g->came[g->edges[e].to] == -1) {
                g->came[g->edges[e].to] = e;
                g->queue[n++] = g->edges[e].to;
            }
    return g->came[sink] != -1;
}

/* The flow; afterwards came[v] != -1 for the vertices on the source's side of the cut. */
static double flow(graph *g, int from, int sink)
{
    double sum = 0;

    for (int e = 0; e < g->nedges; e++)
        g->edges[e].room = g->full[e];
    while (reach(g, from, sink)) {
        double most = 1e300;
        for (int v = sink; v != from; v = g->edges[g->edges[g->came[v]].back].to)
            most = g->edges[g->came[v]].room < most ? g->edges[g->came[v]].room : most;
        for (int v = sink; v != from; v = g->edges[g->edges[g->came[v]].back].to) {
            g->edges[g->came[v]].room -= most;
            g->edges[g->edges[g->came[v]].back].room += most;
        }
        sum += most;
    }
    return sum;
}

static int end_at(const graph *g, int i)
{
    return i < g->y->ngpus ? g->y->t->gpus[g->y->gpus[i]] : g->net;
}

rcclx_status rcclx_flow_cut(const rcclx_yard *y, bool network, double *bound)
{
    graph g;
    rcclx_status s = open_graph(&g, y, network, false);

    *bound = 1e300;
    for (int i = 1; s == RCCLX_OK && i < y->ngpus + network; i++) {
        const double there = flow(&g, end_at(&g, 0), end_at(&g, i)), back = flow(&g, end_at(&g, i), end_at(&g, 0));
        *bound = there < *bound ? there : *bound;
        *bound = back < *bound ? back : *bound;
    }
    close_graph(&g);
    return s;
}

rcclx_status rcclx_flow_between(const rcclx_yard *y, bool network, const bool *inside, bool backward, double *bound)
{
    graph g;
    rcclx_status s = open_graph(&g, y, network, backward);

    for (int i = 0; s == RCCLX_OK && i < y->ngpus + network; i++)
        if (i < y->ngpus && inside[i])
            join(&g, g.source, end_at(&g, i), 1e12, 0);
        else
            join(&g, end_at(&g, i), g.sink, 1e12, 0);
    *bound = s == RCCLX_OK ? flow(&g, g.source, g.sink) : 0;
    close_graph(&g);
    return s;
}

/* Capacity out of the source's side of the cut, and the share that lies there. */
static double cut_ratio(const graph *g, const double *shares, int nends)
{
    double out = 0, inside = 0;

    for (int e = 0; e < g->nedges; e++) {
        const int from = g->edges[g->edges[e].back].to, to = g->edges[e].to;
        if (from != g->source && to != g->source && g->came[from] != -1 && g->came[to] == -1)
            out += g->full[e];
    }
    for (int i = 0; i < nends; i++)
        inside += g->came[end_at(g, i)] != -1 ? shares[i] : 0;
    return inside > 1e-12 ? out / inside : 1e300;
}

/* One round with x as it is: the lowest ratio of the cuts that were short of it. */
static double lower(graph *g, const double *shares, int nends, double x)
{
    double best = x;
    const int laid = g->nedges - 2 * nends;

    for (int i = 0; i < nends; i++)
        g->full[laid + 2 * i] = x * shares[i];
    for (int i = 0; i < nends; i++) {
        if (flow(g, g->source, end_at(g, i)) >= x * (1 - 1e-9))
            continue;
        const double ratio = cut_ratio(g, shares, nends);
        best = ratio < best ? ratio : best;
    }
    return best;
}

rcclx_status rcclx_flow_spread(const rcclx_yard *y, bool network, const double *shares, bool backward, double *bound)
{
    double all[RCCLX_TOPO_GPUS + 1], sum = 0, x = 1e9;
    const int nends = y->ngpus + network;
    graph g;
    rcclx_status s = open_graph(&g, y, network, backward);

    for (int i = 0; i < y->ngpus; i++)
        sum += all[i] = shares[i];
    all[y->ngpus] = sum < 1 ? 1 - sum : 0;
    for (int i = 0; s == RCCLX_OK && i < nends; i++)
        join(&g, g.source, end_at(&g, i), 0, 0);
    for (int round = 0; s == RCCLX_OK && round < 100; round++) {
        const double next = lower(&g, all, nends, x);
        if (next >= x * (1 - 1e-9))
            break;
        x = next;
    }
    *bound = x;
    close_graph(&g);
    return s;
}
