/* A second look at a schedule. What it says of itself is compared with what it holds:
 * shape first, then the links, which are loaded anew, channel by channel. It shares with
 * the search the ways between devices, and nothing else. */
#include "topo/search.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdarg.h>
#include <string.h>

typedef struct {
    const rcclx_schedule *s;
    const rcclx_share    *nodes;
    int     nnodes;
    int    *node_of, *gpu_of; /* [rank]: its node, and its number among the topology's GPUs */
    int    *mark;             /* [rank] */
    double *load[2];          /* [link of one node]: up or round, and down */
    int     most_links;
    char   *why;
    size_t  nwhy;
} look;

__attribute__((format(printf, 2, 3))) static bool say(const look *k, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(k->why, k->nwhy, format, args);
    va_end(args);
    return false;
}

static const int *row(const look *k, int c)
{
    return &k->s->rows[(size_t)c * (size_t)k->s->nranks];
}

/* --- shape ---------------------------------------------------------------------------- */

static bool is_permutation(const look *k, const int *row, int c)
{
    const int n = k->s->nranks;

    memset(k->mark, 0, (size_t)n * sizeof(int));
    for (int i = 0; i < n; i++) {
        if (row[i] < 0 || row[i] >= n)
            return say(k, "channel %d, place %d: there is no rank %d", c, i, row[i]);
        if (k->mark[row[i]]++)
            return say(k, "channel %d: rank %d is there twice", c, row[i]);
    }
    return true;
}

/* All of a node one after the other: it is entered and left once. */
static bool is_ring(const look *k, int c)
{
    int changes = 0;

    if (!is_permutation(k, row(k, c), c))
        return false;
    for (int i = 0; i < k->s->nranks; i++)
        changes += k->node_of[row(k, c)[i]] != k->node_of[row(k, c)[(i + 1) % k->s->nranks]];
    return changes <= (k->nnodes > 1 ? k->nnodes : 0) || say(k, "ring %d enters a node more than once", c);
}

static bool is_tree(const look *k, int c, int *depth)
{
    const int n = k->s->nranks;
    int roots = 0;

    for (int r = 0; r < n; r++) {
        int up = 0;
        if (row(k, c)[r] < -1 || row(k, c)[r] >= n)
            return say(k, "tree %d: rank %d hangs below %d, which is no rank", c, r, row(k, c)[r]);
        roots += row(k, c)[r] < 0;
        for (int at = r; (at = row(k, c)[at]) >= 0 && up <= n;)
            up++;
        if (up > n)
            return say(k, "tree %d: rank %d hangs below itself", c, r);
        *depth = up > *depth ? up : *depth;
    }
    return roots == 1 || say(k, "tree %d has %d roots", c, roots);
}

static bool is_rail(const look *k, int c)
{
    for (int r = 0; r < k->s->nranks; r++) {
        const int by = row(k, c)[r];
        if (by < 0 || by >= k->s->nranks || k->node_of[by] != k->node_of[r])
            return say(k, "rail %d: rank %d reaches it through rank %d, which is not of its node", c, r, by);
        if (row(k, c)[by] != by)
            return say(k, "rail %d: rank %d, the relay of rank %d, has a relay itself", c, by, r);
    }
    return true;
}

static bool are_swaps(const look *k)
{
    const int n = k->s->nranks;

    if (k->s->nchannels != n - 1)
        return say(k, "%d rounds for %d ranks", k->s->nchannels, n);
    for (int c = 0; c < n - 1; c++)
        if (!is_permutation(k, row(k, c), c))
            return false;
    for (int r = 0; r < n; r++) {
        memset(k->mark, 0, (size_t)n * sizeof(int));
        for (int c = 0; c < n - 1; c++)
            if (row(k, c)[r] == r || k->mark[row(k, c)[r]]++)
                return say(k, "round %d: rank %d sends to rank %d %s", c, r, row(k, c)[r],
                           row(k, c)[r] == r ? ", itself" : "again");
    }
    return true;
}

/* Nodes by themselves in a binary tree of levels l have 2^(l+1) - 1 or more; a root above, and the longest node. */
static int depth_allowed(const look *k)
{
    int levels = 1, most = 0;

    for (int n = k->nnodes; n > 1; n = (n + 1) / 2)
        levels++;
    for (int node = 0; node < k->nnodes; node++)
        most = k->nodes[node].ngpus > most ? k->nodes[node].ngpus : most;
    return levels * (k->nnodes > 1) + (k->nnodes > 1 ? levels : 1) * (most - 1);
}

static bool ports_exist(const look *k)
{
    const rcclx_schedule *s = k->s;
    const int n = s->kind == RCCLX_SWAPS ? s->nranks : s->nchannels * k->nnodes;

    for (int i = 0; i < n; i++) {
        const int node = s->kind == RCCLX_SWAPS ? k->node_of[i] : i % k->nnodes;
        const bool needed = k->nnodes > 1 || s->kind == RCCLX_RAILS;
        if (s->ports[i] >= k->nodes[node].topo->nnets || s->ports[i] < (needed ? 0 : -1))
            return say(k, "node %d: there is no port %d", node, s->ports[i]);
    }
    return true;
}

static bool has_shape(const look *k)
{
    int depth = 0;

    if (!ports_exist(k))
        return false;
    if (k->s->kind == RCCLX_SWAPS)
        return are_swaps(k);
    for (int c = 0; c < k->s->nchannels; c++)
        if (k->s->kind == RCCLX_RINGS ? !is_ring(k, c) : k->s->kind == RCCLX_TREES ? !is_tree(k, c, &depth) : !is_rail(k, c))
            return false;
    if (k->s->kind == RCCLX_TREES && (depth != k->s->depth || depth > depth_allowed(k)))
        return say(k, "trees of depth %d: %d is told, %d allowed", depth, k->s->depth, depth_allowed(k));
    return true;
}

/* --- loads ------------------------------------------------------------------------------- */

/* From one end of the node to another, in a direction (0, 1). */
static bool load_way(const look *k, int node, int from, int to, int direction, double rate)
{
    const rcclx_topo *t = k->nodes[node].topo;
    const rcclx_path *p = rcclx_topo_path(t, from, to);

    if (from != to && !(p->rate > 0))
        return say(k, "node %d: no way leads from end %d to end %d", node, from, to);
    for (int i = 0; i < p->nhops; i++)
        k->load[direction][t->hops[p->first + i]] += rate;
    return true;
}

/* What this node has of a message from rank to rank. */
static bool load_message(const look *k, int node, int c, int from, int to, int direction, double rate)
{
    const rcclx_schedule *s = k->s;
    const bool here = k->node_of[from] == node, there = k->node_of[to] == node;
    const int net = k->nodes[node].topo->ngpus;

    if (here && there)
        return load_way(k, node, k->gpu_of[from], k->gpu_of[to], direction, rate);
    if (here)
        return load_way(k, node, k->gpu_of[from], net + s->ports[s->kind == RCCLX_SWAPS ? from : c * k->nnodes + node],
                        direction, rate);
    if (there)
        return load_way(k, node, net + s->ports[s->kind == RCCLX_SWAPS ? to : c * k->nnodes + node], k->gpu_of[to],
                        direction, rate);
    return true;
}

static bool load_rail(const look *k, int node, int c, int r)
{
    const int by = row(k, c)[r], port = k->nodes[node].topo->ngpus + k->s->ports[c * k->nnodes + node];
    int mine = 0;

    if (k->node_of[r] != node)
        return true;
    mine = k->nodes[node].ngpus;
    return load_way(k, node, k->gpu_of[r], k->gpu_of[by], 0, k->s->rate / mine) &&
           load_way(k, node, k->gpu_of[by], port, 0, k->s->rate / mine) &&
           load_way(k, node, k->gpu_of[by], k->gpu_of[r], 1, k->s->rate / mine) &&
           load_way(k, node, port, k->gpu_of[by], 1, k->s->rate / mine);
}

static bool load_node(const look *k, int node)
{
    const rcclx_schedule *s = k->s;
    const int n = s->nranks;

    for (int c = 0; c < s->nchannels; c++)
        for (int i = 0; i < n; i++) {
            const int r = row(k, c)[i];
            bool fine = true;
            if (s->kind == RCCLX_RINGS)
                fine = n == 1 || load_message(k, node, c, r, row(k, c)[(i + 1) % n], 0, s->rate);
            else if (s->kind == RCCLX_TREES)
                fine = r < 0 || (load_message(k, node, c, i, r, 0, s->rate) && load_message(k, node, c, r, i, 1, s->rate));
            else if (s->kind == RCCLX_RAILS)
                fine = load_rail(k, node, c, i);
            else
                fine = load_message(k, node, c, i, r, 0, s->rate);
            if (!fine)
                return false;
        }
    return true;
}

static bool carries(const look *k, int node)
{
    const rcclx_topo *t = k->nodes[node].topo;

    for (int d = 0; d < 2; d++)
        memset(k->load[d], 0, (size_t)k->most_links * sizeof(double));
    if (!load_node(k, node))
        return false;
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < t->nlinks; i++)
            if (k->load[d][i] > t->links[i].rate * (1 + 1e-6))
                return say(k, "node %d: the link from %s to %s carries %g GB/s, and %g are put on it", node,
                           t->vertices[t->links[i].from].name ? t->vertices[t->links[i].from].name : "?",
                           t->vertices[t->links[i].to].name ? t->vertices[t->links[i].to].name : "?", t->links[i].rate,
                           k->load[d][i]);
    return true;
}

static bool told_rightly(const look *k)
{
    const rcclx_schedule *s = k->s;
    const double total = s->rate * (s->nchannels ? s->nchannels : 1);

    if (s->nchannels > 0 && !(s->rate > 0))
        return say(k, "the rate is %g", s->rate);
    if (total > s->total * (1 + 1e-6) || total < s->total * (1 - 1e-6))
        return say(k, "%d channels of %g GB/s are not %g", s->nchannels, s->rate, s->total);
    return s->total <= s->bound * (1 + 1e-6) || say(k, "the total of %g GB/s is above its bound, %g", s->total, s->bound);
}

/* Nodes like one before it (same topology, GPUs, and ports in all channels) carry the same in rings; others are all loaded. */
static bool seen_before(const look *k, int node)
{
    const rcclx_share *n = &k->nodes[node], *first = &k->nodes[0];

    return k->s->kind == RCCLX_SWAPS && node && n->topo == first->topo && n->ngpus == first->ngpus &&
           !memcmp(n->gpus, first->gpus, (size_t)n->ngpus * sizeof(int));
}

static bool stands(const look *k)
{
    if (!told_rightly(k) || !has_shape(k))
        return false;
    for (int node = 0; node < k->nnodes; node++)
        if (!seen_before(k, node) && !carries(k, node))
            return false;
    return true;
}

/* --- all of it ------------------------------------------------------------------------------ */

static bool find_ranks(look *k)
{
    int place = 0;

    memset(k->mark, 0, (size_t)k->s->nranks * sizeof(int));
    for (int node = 0; node < k->nnodes; node++)
        for (int i = 0; i < k->nodes[node].ngpus; i++, place++) {
            const int r = k->nodes[node].ranks ? k->nodes[node].ranks[i] : place;
            if (place >= k->s->nranks || r < 0 || r >= k->s->nranks || k->mark[r]++)
                return say(k, "the schedule is for %d ranks, and these nodes are others", k->s->nranks);
            k->node_of[r] = node;
            k->gpu_of[r] = k->nodes[node].gpus[i];
        }
    return place == k->s->nranks || say(k, "the schedule is for %d ranks, the nodes hold %d", k->s->nranks, place);
}

rcclx_status rcclx_schedule_check(const rcclx_schedule *s, const rcclx_share *nodes, int nnodes, char *why, size_t nwhy)
{
    const size_t n = (size_t)s->nranks + 1;
    look k = { .s = s, .nodes = nodes, .nnodes = nnodes, .why = why, .nwhy = nwhy };

    if (nwhy)
        why[0] = 0;
    for (int node = 0; node < nnodes; node++)
        k.most_links = nodes[node].topo->nlinks > k.most_links ? nodes[node].topo->nlinks : k.most_links;
    k.node_of = rcclx_mem_alloc(n * sizeof(int));
    k.gpu_of = rcclx_mem_alloc(n * sizeof(int));
    k.mark = rcclx_mem_alloc(n * sizeof(int));
    for (int d = 0; d < 2; d++)
        k.load[d] = rcclx_mem_alloc(((size_t)k.most_links + 1) * sizeof(double));
    const bool memory = k.node_of && k.gpu_of && k.mark && k.load[0] && k.load[1];
    const bool fine = memory ? nnodes == s->nnodes && find_ranks(&k) && stands(&k) : say(&k, "no memory to look at it");
    if (!fine && nwhy && !*why)
        say(&k, "the schedule is for %d nodes, not %d", s->nnodes, nnodes);
    rcclx_mem_free(k.node_of);
    rcclx_mem_free(k.gpu_of);
    rcclx_mem_free(k.mark);
    rcclx_mem_free(k.load[0]);
    rcclx_mem_free(k.load[1]);
    return fine ? RCCLX_OK : memory ? RCCLX_USAGE : RCCLX_NOMEM;
}
