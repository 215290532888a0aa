/* Trees. Between nodes a double binary tree: node 0 is the root, the others stand in a
 * binary tree, and again in its mirror image, so that who has children in one tree is a
 * leaf in the other (two of an odd number apart):
 *
 *   tree 0   0 - 4             tree 1   7 - 3
 *              /   \                      /   \
 *             2     6                    5     1
 *            / \   / \                  / \   / \
 *           1   3 5   7                6   4 2   0
 *
 * In each node one GPU, the head, stands in that tree, near the port of the channel's
 * rail; the others hang below it. Three ways of hanging are tried, and the one that
 * carries most is taken:
 *
 *   star    head <- all others             a link each, where all are joined
 *   binary  head <- 2 <- 2 each ...
 *   chain   head <- next <- next ...       along a ring of the node
 *
 * A channel carries what the fullest link allows. Data go up (reduce) or down
 * (broadcast); either alone is what rates and bounds are about, as with rings. */
#include "topo/yard.h"

#include "base/log.h"
#include "base/mem.h"

typedef enum { STAR, BINARY, CHAIN, WAYS } way;

typedef struct {
    rcclx_schedule *s;
    rcclx_field    *f;
    rcclx_schedule  rings; /* of the same nodes, for chains; no channels if there are none */
} planting;

/* --- between nodes ---------------------------------------------------------------------- */

/* Node i of 1..n-1 in the tree whose inner nodes are those with low zero bits; 0 stands above all. */
static int binary_parent(int i, int n)
{
    int bit = 1;

    if (i == 0)
        return -1;
    while (!(i & bit))
        bit <<= 1;
    int up = (i ^ bit) | bit << 1;
    return up >= n ? i ^ bit : up;
}

int rcclx_tree_parent(int node, int n, int tree)
{
    if (tree == 0)
        return binary_parent(node, n);
    /* the same tree with the nodes moved by one (n odd) or in mirror image (n even) */
    const int as = n % 2 ? (node - 1 + n) % n : n - 1 - node, up = binary_parent(as, n);
    return up < 0 ? -1 : n % 2 ? (up + 1) % n : n - 1 - up;
}

/* --- inside a node ------------------------------------------------------------------------- */

/* The yard's GPU (index) that is nearest to the port; of several as near, the k-th. */
static int nearest(const rcclx_yard *y, int port, int k)
{
    int best = RCCLX_PATH_DIS, n = 0;

    for (int i = 0; i < y->ngpus; i++) {
        const int kind = rcclx_topo_path(y->t, y->gpus[i], port)->kind;
        n = kind < best ? 1 : n + (kind == best);
        best = kind < best ? kind : best;
    }
    for (int i = 0, nth = n ? k % n : 0; i < y->ngpus; i++)
        if (rcclx_topo_path(y->t, y->gpus[i], port)->kind == best && nth-- == 0)
            return i;
    return 0;
}

/* The node's ranks in the order of a ring, from the head's place on. */
static void line_up(const planting *p, int node, int channel, int head, int *order)
{
    const rcclx_field *f = p->f;
    const int n = f->nodes[node].ngpus, at_head = rcclx_field_rank(f, node, head);
    int at = 0;

    for (int i = 0; i < n; i++)
        order[i] = rcclx_field_rank(f, node, (head + i) % n);
    if (!p->rings.nchannels)
        return;
    const int *ring = p->rings.rows + channel % p->rings.nchannels * p->rings.nranks + f->first[node];
    while (ring[at] != at_head)
        at++;
    for (int i = 0; i < n; i++)
        order[i] = ring[(at + i) % n];
}

static int place_above(way w, int place)
{
    return w == STAR ? 0 : w == BINARY ? (place - 1) / 2 : place - 1;
}

/* Below the head, `ring` says in which order. */
static void plant(planting *p, way w, int channel, int ring, int node, int head)
{
    int order[RCCLX_TOPO_GPUS];
    int *row = &p->s->rows[channel * p->s->nranks];

    line_up(p, node, ring, head, order);
    for (int i = 1; i < p->f->nodes[node].ngpus; i++)
        row[order[i]] = order[place_above(w, i)];
}

/* --- all of it -------------------------------------------------------------------------------- */

/* Stars and binary trees: channels come in pairs, one a tree; pairs go round the rails, and round the GPUs that are as near. */
static int choose_head(const planting *p, int c, int node, int *port)
{
    const rcclx_yard *y = &p->f->yards[p->f->yard_of[node]];

    if (p->s->nnodes == 1)
        return c % y->ngpus;
    *port = y->ports[c / 2 % p->f->ports];
    return nearest(y, *port, c / 2 / p->f->ports);
}

static int index_of(const rcclx_field *f, int node, int rank)
{
    int i = 0;

    while (rcclx_field_rank(f, node, i) != rank)
        i++;
    return i;
}

/* Chains: a ring that begins and ends at the network is a chain in every node, and there is one a tree; in a node alone
 * each is cut open at another GPU. */
static int choose_chain(const planting *p, int c, int ring, int node, int *port)
{
    const rcclx_yard *y = &p->f->yards[p->f->yard_of[node]];
    const int *row = p->rings.rows + ring * p->rings.nranks;

    if (p->s->nnodes == 1)
        return index_of(p->f, node, row[c % y->ngpus]);
    *port = rcclx_topo_net(y->t, p->rings.ports[ring * p->s->nnodes + node]);
    return index_of(p->f, node, row[p->f->first[node]]);
}

static int count_channels(const planting *p, way w)
{
    const int n = w == CHAIN         ? p->rings.nchannels * (p->f->nnodes > 1 ? 2 : 1)
                  : p->f->nnodes > 1 ? 2 * p->f->ports
                                     : p->f->nranks;

    return n > RCCLX_CHANNELS ? RCCLX_CHANNELS : n;
}

static void grow_all(planting *p, way w)
{
    rcclx_schedule *s = p->s;
    int heads[RCCLX_NODES];

    s->nchannels = count_channels(p, w);
    for (int c = 0; c < s->nchannels; c++) {
        const int ring = s->nnodes > 1 ? c / 2 : c;
        for (int node = 0; node < s->nnodes; node++) {
            const rcclx_yard *y = &p->f->yards[p->f->yard_of[node]];
            int port = -1;
            const int head = w == CHAIN ? choose_chain(p, c, ring, node, &port) : choose_head(p, c, node, &port);
            s->ports[c * s->nnodes + node] = port < 0 ? -1 : port - y->t->ngpus;
            plant(p, w, c, ring, node, head);
            heads[node] = rcclx_field_rank(p->f, node, head);
        }
        for (int node = 0; node < s->nnodes; node++) {
            const int up = rcclx_tree_parent(node, s->nnodes, c % 2);
            s->rows[c * s->nranks + heads[node]] = up < 0 ? -1 : heads[up];
        }
    }
}

/* Where each rank is: node and index in its yard. */
typedef struct {
    int node, gpu;
} place;

static void find_places(const rcclx_field *f, place *places)
{
    for (int node = 0; node < f->nnodes; node++)
        for (int i = 0; i < f->nodes[node].ngpus; i++)
            places[rcclx_field_rank(f, node, i)] = (place){ node, i };
}

/* Nodes that hang below this one in a tree. */
static int count_children(const rcclx_schedule *s, int node, int tree)
{
    int n = 0;

    for (int other = 0; s->nnodes > 1 && other < s->nnodes; other++)
        n += rcclx_tree_parent(other, s->nnodes, tree) == node;
    return n;
}

/* What one channel of rate 1 puts on the links of a node: up to parents, else down to children. `outer`: of nodes below it. */
static void load_channel(const rcclx_schedule *s, const rcclx_field *f, const place *places, int node, int c, int outer, bool up)
{
    rcclx_yard *y = &f->yards[f->yard_of[node]];
    const int port = s->nnodes > 1 ? rcclx_topo_net(y->t, s->ports[c * s->nnodes + node]) : -1;
    int head = 0;

    for (int i = 0; i < y->ngpus; i++) {
        const int above = s->rows[c * s->nranks + rcclx_field_rank(f, node, i)], gpu = y->gpus[i];
        if (above >= 0 && places[above].node == node) {
            const int other = y->gpus[places[above].gpu];
            rcclx_yard_take(y, up ? gpu : other, up ? other : gpu, 1);
            continue;
        }
        head = gpu;
        if (above >= 0)
            rcclx_yard_take(y, up ? gpu : port, up ? port : gpu, 1);
    }
    if (outer)
        rcclx_yard_take(y, up ? port : head, up ? head : port, outer);
}

static void load_node(const rcclx_schedule *s, const rcclx_field *f, const place *places, int node, bool up)
{
    const int outer[2] = { count_children(s, node, 0), count_children(s, node, 1) };

    rcclx_yard_reset(&f->yards[f->yard_of[node]]);
    for (int c = 0; c < s->nchannels; c++)
        load_channel(s, f, places, node, c, outer[c % 2], up);
}

/* GB/s that every channel may have, all at once. */
static double carried(const rcclx_schedule *s, const rcclx_field *f, const place *places)
{
    double rate = 1e300;

    for (int node = 0; node < f->nnodes; node++)
        for (int up = 0; up < 2; up++) {
            load_node(s, f, places, node, up);
            const double scale = rcclx_yard_scale(&f->yards[f->yard_of[node]]);
            rate = scale < rate ? scale : rate;
        }
    return rate;
}

int rcclx_tree_depth(const rcclx_schedule *s)
{
    int depth = 0;

    for (int c = 0; s->kind == RCCLX_TREES && c < s->nchannels; c++)
        for (int r = 0; r < s->nranks; r++) {
            int up = 0;
            for (int at = r; (at = s->rows[c * s->nranks + at]) >= 0 && up < s->nranks;)
                up++;
            depth = up > depth ? up : depth;
        }
    return depth;
}

/* Trees with these roots: what comes from outside a set of ends passes the links around it. */
rcclx_status rcclx_bound_trees(rcclx_schedule *s, const rcclx_field *f)
{
    s->bound = 1e300;
    for (int node = 0; node < f->nnodes; node++) {
        double shares[RCCLX_TOPO_GPUS] = { 0 }, up, down;
        const rcclx_yard *y = &f->yards[f->yard_of[node]];
        for (int c = 0; c < s->nchannels; c++)
            for (int i = 0; i < y->ngpus; i++)
                shares[i] += s->rows[c * s->nranks + rcclx_field_rank(f, node, i)] < 0 ? 1.0 / s->nchannels : 0;
        RCCLX_TRY(rcclx_flow_spread(y, f->nnodes > 1, shares, false, &down));
        RCCLX_TRY(rcclx_flow_spread(y, f->nnodes > 1, shares, true, &up));
        s->bound = down < s->bound ? down : s->bound;
        s->bound = up < s->bound ? up : s->bound;
    }
    s->limit = s->bound;
    return RCCLX_OK;
}

static rcclx_status choose_way(planting *p, const place *places)
{
    rcclx_schedule *s = p->s;
    way best = STAR;
    double totals[WAYS] = { 0 };

    for (int w = 0; w < WAYS; w++) {
        grow_all(p, (way)w);
        totals[w] = s->nchannels ? carried(s, p->f, places) * s->nchannels : 0;
        best = totals[w] > totals[best] * 1.001 ? (way)w : best; /* of ways as good the first: it is flatter */
    }
    grow_all(p, best);
    s->total = totals[best];
    s->rate = s->total / s->nchannels;
    s->depth = rcclx_tree_depth(s);
    return rcclx_bound_trees(s, p->f);
}

/* GPUs that no ring goes through may hang in a tree all the same; if none does, that is told here. */
static rcclx_status plant_all(planting *p, place *places)
{
    find_places(p->f, places);
    RCCLX_TRY(rcclx_schedule_make(&p->rings, RCCLX_RINGS, p->f->nranks, p->f->nnodes, RCCLX_CHANNELS));
    RCCLX_TRY(rcclx_fill_rings(&p->rings, p->f));
    RCCLX_TRY(choose_way(p, places));
    if (!(p->s->rate > 0))
        return RCCLX_FAIL(RCCLX_USAGE, "no tree joins all %d GPUs: some of them are not joined by any link", p->f->nranks);
    return RCCLX_OK;
}

/* A single rank: a root. */
static void alone(rcclx_schedule *s, const rcclx_field *f)
{
    s->nchannels = 1;
    s->rows[rcclx_field_rank(f, 0, 0)] = -1;
    s->ports[0] = -1;
    s->rate = s->total = s->bound = s->limit = RCCLX_TOPO_HERE;
}

rcclx_status rcclx_find_trees(rcclx_schedule *s, rcclx_field *f)
{
    RCCLX_TRY(rcclx_schedule_make(s, RCCLX_TREES, f->nranks, f->nnodes, RCCLX_CHANNELS));
    if (f->nranks == 1) {
        alone(s, f);
        return RCCLX_OK;
    }
    place *places = rcclx_mem_alloc((size_t)f->nranks * sizeof(place));
    planting p = { .s = s, .f = f };
    const rcclx_status status = places ? plant_all(&p, places) : RCCLX_FAIL(RCCLX_NOMEM, "no memory for a schedule");
    rcclx_schedule_fini(&p.rings);
    rcclx_mem_free(places);
    return status;
}
