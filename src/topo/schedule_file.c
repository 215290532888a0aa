/* Rings and trees of one node in NCCL's form, and back:
 *
 *   <graphs version="1">
 *     <graph id="0" pattern="4" nchannels="7" speedintra="48" ...>      4: ring, 3: tree
 *       <channel> <net dev="0"/> <gpu dev="2"/> <gpu dev="0"/> ... <net dev="0"/> </channel>
 *
 * GPUs are named by dev (or by rank), ports by dev; rings and trees of a node alone have
 * no ports. In a tree a GPU hangs below the one before it, as in NCCL's files, unless it
 * says below="dev"; the first is the head. What is between nodes is not in the file: nodes
 * follow each other in rings, and stand in double binary trees.
 *
 * What was read is looked at as if it had been found: bounds are worked out, links loaded. */
#include "topo/yard.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERN_TREE = 3, PATTERN_RING = 4 };

static int pattern_of(rcclx_schedule_kind k)
{
    return k == RCCLX_RINGS ? PATTERN_RING : PATTERN_TREE;
}

/* --- writing ----------------------------------------------------------------------------- */

static int rank_of(const rcclx_share *node, int i)
{
    return node->ranks ? node->ranks[i] : i;
}

/* Which of the node's GPUs a rank is; -1: another node's. */
static int gpu_of(const rcclx_share *node, int rank)
{
    for (int i = 0; i < node->ngpus; i++)
        if (rank_of(node, i) == rank)
            return i;
    return -1;
}

static int dev_of(const rcclx_share *node, int i)
{
    return node->topo->vertices[node->topo->gpus[node->gpus[i]]].dev;
}

static void put_port(rcclx_xml *x, int channel, const rcclx_schedule *s, int c, const rcclx_share *node)
{
    const int port = s->ports[c * s->nnodes];

    if (port >= 0)
        rcclx_xml_setf(x, rcclx_xml_add(x, channel, "net"), "dev", "%d", node->topo->vertices[node->topo->nets[port]].dev);
}

static void put_gpu(rcclx_xml *x, int channel, const rcclx_share *node, int i, int below)
{
    const int gpu = rcclx_xml_add(x, channel, "gpu");

    rcclx_xml_setf(x, gpu, "dev", "%d", dev_of(node, i));
    if (below >= 0)
        rcclx_xml_setf(x, gpu, "below", "%d", dev_of(node, below));
}

static void put_ring(rcclx_xml *x, int channel, const rcclx_schedule *s, int c, const rcclx_share *node)
{
    for (int i = 0; i < s->nranks; i++) {
        const int gpu = gpu_of(node, s->rows[c * s->nranks + i]);
        if (gpu >= 0)
            put_gpu(x, channel, node, gpu, -1);
    }
}

/* Head first, then whoever hangs below somebody who was put. */
static void put_tree(rcclx_xml *x, int channel, const rcclx_schedule *s, int c, const rcclx_share *node)
{
    int list[RCCLX_TOPO_GPUS], n = 0;

    for (int i = 0; i < node->ngpus; i++) {
        const int up = s->rows[c * s->nranks + rank_of(node, i)];
        if (up < 0 || gpu_of(node, up) < 0)
            list[n++] = i;
    }
    for (int k = 0; k < n; k++) {
        const int up = s->rows[c * s->nranks + rank_of(node, list[k])];
        put_gpu(x, channel, node, list[k], up < 0 ? -1 : gpu_of(node, up));
        for (int i = 0; i < node->ngpus; i++)
            if (s->rows[c * s->nranks + rank_of(node, i)] == rank_of(node, list[k]))
                list[n++] = i;
    }
}

static void put_graph(rcclx_xml *x, int id, const rcclx_schedule *s, const rcclx_share *node)
{
    const int graph = rcclx_xml_add(x, 0, "graph");

    rcclx_xml_setf(x, graph, "id", "%d", id);
    rcclx_xml_setf(x, graph, "pattern", "%d", pattern_of(s->kind));
    rcclx_xml_set(x, graph, "crossnic", "0");
    rcclx_xml_setf(x, graph, "nchannels", "%d", s->nchannels);
    rcclx_xml_setf(x, graph, "speedintra", "%.9f", s->rate);
    rcclx_xml_setf(x, graph, "speedinter", "%.9f", s->rate);
    rcclx_xml_set(x, graph, "latencyinter", "0");
    rcclx_xml_set(x, graph, "typeintra", "SYS");
    rcclx_xml_set(x, graph, "typeinter", "SYS");
    rcclx_xml_set(x, graph, "samechannels", "0");
    for (int c = 0; c < s->nchannels; c++) {
        const int channel = rcclx_xml_add(x, graph, "channel");
        put_port(x, channel, s, c, node);
        if (s->kind == RCCLX_RINGS)
            put_ring(x, channel, s, c, node);
        else
            put_tree(x, channel, s, c, node);
        put_port(x, channel, s, c, node);
    }
}

rcclx_status rcclx_schedule_write(const rcclx_schedule *const *schedules, int n, const rcclx_share *node, const char *path)
{
    rcclx_xml x = { .elements = NULL };

    rcclx_xml_add(&x, -1, "graphs");
    rcclx_xml_set(&x, 0, "version", "1");
    for (int i = 0; i < n; i++)
        if (schedules[i]->kind == RCCLX_RINGS || schedules[i]->kind == RCCLX_TREES)
            put_graph(&x, i, schedules[i], node);
    const rcclx_status s = x.status == RCCLX_OK ? rcclx_xml_save(&x, path) : x.status;
    rcclx_xml_fini(&x);
    return s;
}

/* --- reading ------------------------------------------------------------------------------- */

typedef struct {
    const rcclx_xml  *x;
    rcclx_schedule   *s;
    const rcclx_field *f;
} reader;

__attribute__((format(printf, 3, 4))) static rcclx_status wrong(const reader *r, int element, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return RCCLX_FAIL(RCCLX_USAGE, "%s, line %d, <%s>: %s", r->x->source, r->x->elements[element].line,
                      r->x->elements[element].name, text);
}

static rcclx_status number(const reader *r, int element, const char *key, long long least, long long most, long long *value)
{
    bool bad = false;

    if (rcclx_xml_int(r->x, element, key, least, most, value, &bad))
        return RCCLX_OK;
    return wrong(r, element, bad ? "%s is no number from %lld to %lld" : "it has no %s (%lld to %lld)", key, least, most);
}

/* Which of the node's GPUs an element means. */
static rcclx_status which_gpu(const reader *r, int element, const char *key, int node, int *gpu)
{
    const rcclx_share *share = &r->f->nodes[node];
    const bool by_rank = !rcclx_xml_get(r->x, element, key) && rcclx_xml_get(r->x, element, "rank");
    long long id;

    RCCLX_TRY(number(r, element, by_rank ? "rank" : key, 0, INT32_MAX, &id));
    for (int i = 0; i < share->ngpus; i++)
        if ((by_rank ? rcclx_field_rank(r->f, node, i) : dev_of(share, i)) == id) {
            *gpu = i;
            return RCCLX_OK;
        }
    return wrong(r, element, "no GPU of node %d that takes part has %s %lld: is the file of another machine?", node,
                 by_rank ? "rank" : key, id);
}

static rcclx_status read_port(const reader *r, int element, int c, int node)
{
    const rcclx_topo *t = r->f->nodes[node].topo;
    long long dev;

    RCCLX_TRY(number(r, element, "dev", 0, 65535, &dev));
    for (int i = 0; i < t->nnets; i++)
        if (t->vertices[t->nets[i]].dev == dev) {
            r->s->ports[c * r->f->nnodes + node] = i;
            return RCCLX_OK;
        }
    return wrong(r, element, "node %d has no network port with dev %lld: is the file of another machine?", node, dev);
}

/* A channel in one node: the order of its GPUs, the head's place first, and whom they hang below. */
static rcclx_status read_channel(const reader *r, int channel, int c, int node, int *order, int *below)
{
    bool there[RCCLX_TOPO_GPUS] = { false };
    int n = 0;

    r->s->ports[c * r->f->nnodes + node] = -1;
    for (int e = r->x->elements[channel].first; e >= 0; e = r->x->elements[e].next) {
        int gpu, up = -1;
        if (rcclx_xml_is(r->x, e, "net") && r->f->nnodes > 1)
            RCCLX_TRY(read_port(r, e, c, node));
        if (!rcclx_xml_is(r->x, e, "gpu"))
            continue;
        RCCLX_TRY(which_gpu(r, e, "dev", node, &gpu));
        if (there[gpu])
            return wrong(r, e, "the GPU is in channel %d twice", c);
        if (rcclx_xml_get(r->x, e, "below"))
            RCCLX_TRY(which_gpu(r, e, "below", node, &up));
        there[gpu] = true;
        below[n] = up >= 0 ? up : n ? order[n - 1] : -1;
        order[n++] = gpu;
    }
    if (n != r->f->nodes[node].ngpus)
        return wrong(r, channel, "channel %d goes through %d GPUs, and %d of node %d take part", c, n,
                     r->f->nodes[node].ngpus, node);
    if (r->f->nnodes > 1 && r->s->ports[c * r->f->nnodes + node] < 0)
        return wrong(r, channel, "channel %d names no <net>, and there are %d nodes", c, r->f->nnodes);
    return RCCLX_OK;
}

static rcclx_status fill_channel(const reader *r, int channel, int c)
{
    int order[RCCLX_TOPO_GPUS], below[RCCLX_TOPO_GPUS], *row = &r->s->rows[c * r->s->nranks];
    int *heads = rcclx_mem_alloc((size_t)r->f->nnodes * sizeof(int));
    rcclx_status status = heads ? RCCLX_OK : RCCLX_FAIL(RCCLX_NOMEM, "no memory for a schedule");

    for (int node = 0; status == RCCLX_OK && node < r->f->nnodes; node++) {
        status = read_channel(r, channel, c, node, order, below);
        for (int i = 0; status == RCCLX_OK && i < r->f->nodes[node].ngpus; i++) {
            const int rank = rcclx_field_rank(r->f, node, order[i]);
            heads[node] = i ? heads[node] : rank;
            if (r->s->kind == RCCLX_RINGS)
                row[r->f->first[node] + i] = rank;
            else
                row[rank] = below[i] < 0 ? -1 : rcclx_field_rank(r->f, node, below[i]);
        }
    }
    for (int node = 0; status == RCCLX_OK && r->s->kind == RCCLX_TREES && node < r->f->nnodes; node++) {
        const int up = rcclx_tree_parent(node, r->f->nnodes, c % 2);
        row[heads[node]] = up < 0 ? -1 : heads[up];
    }
    rcclx_mem_free(heads);
    return status;
}

/* The graph of our pattern. */
static rcclx_status find_graph(const reader *r, int *graph)
{
    if (!rcclx_xml_is(r->x, 0, "graphs"))
        return wrong(r, 0,
                     rcclx_xml_is(r->x, 0, "system")
                         ? "this is the description of a machine (NCCL_TOPO_FILE), not of its rings"
                         : "a file of rings and trees begins with <graphs>");
    for (int e = r->x->elements[0].first; e >= 0; e = r->x->elements[e].next) {
        long long pattern;
        if (!rcclx_xml_is(r->x, e, "graph"))
            continue;
        RCCLX_TRY(number(r, e, "pattern", 1, 100, &pattern));
        if (r->s->kind == RCCLX_RINGS ? pattern == PATTERN_RING : pattern >= 1 && pattern <= PATTERN_TREE) {
            *graph = e;
            return RCCLX_OK;
        }
    }
    return wrong(r, 0, "it holds no <graph> of %s", rcclx_schedule_name(r->s->kind));
}

static rcclx_status fill(const reader *r)
{
    bool bad = false;
    int graph = 0, c = 0;

    RCCLX_TRY(find_graph(r, &graph));
    if (!rcclx_xml_real(r->x, graph, r->f->nnodes > 1 ? "speedinter" : "speedintra", &r->s->rate, &bad) || !(r->s->rate > 0))
        return wrong(r, graph, "speedintra and speedinter must be GB/s of a channel");
    for (int e = r->x->elements[graph].first; e >= 0; e = r->x->elements[e].next) {
        if (!rcclx_xml_is(r->x, e, "channel"))
            continue;
        if (c == RCCLX_CHANNELS)
            return wrong(r, e, "more than %d channels", RCCLX_CHANNELS);
        RCCLX_TRY(fill_channel(r, e, c++));
    }
    if (!c)
        return wrong(r, graph, "it holds no <channel>");
    r->s->nchannels = c;
    r->s->total = r->s->rate * c;
    return RCCLX_OK;
}

/* What the file said stands as long as links carry it. */
static rcclx_status weigh(const reader *r)
{
    char why[256] = "";

    r->s->depth = rcclx_tree_depth(r->s);
    if (r->f->nranks == 1)
        r->s->bound = r->s->limit = r->s->total;
    else
        RCCLX_TRY(r->s->kind == RCCLX_RINGS ? rcclx_bound_rings(r->s, r->f) : rcclx_bound_trees(r->s, r->f));
    if (rcclx_schedule_check(r->s, r->f->nodes, r->f->nnodes, why, sizeof(why)) != RCCLX_OK)
        return RCCLX_FAIL(RCCLX_USAGE, "%s: its %s do not fit this machine: %s", r->x->source,
                          rcclx_schedule_name(r->s->kind), why);
    return RCCLX_OK;
}

rcclx_status rcclx_schedule_read(rcclx_schedule *s, rcclx_schedule_kind kind, const rcclx_share *nodes, int nnodes,
                                 const char *path)
{
    rcclx_field f;
    rcclx_xml x;

    *s = (rcclx_schedule){ .kind = kind };
    RCCLX_TRY(rcclx_xml_read(&x, path));
    const reader r = { .x = &x, .s = s, .f = &f };
    rcclx_status status = rcclx_field_open(&f, nodes, nnodes, nnodes > 1);
    if (status == RCCLX_OK) {
        status = rcclx_schedule_make(s, kind, f.nranks, nnodes, RCCLX_CHANNELS);
        status = status == RCCLX_OK ? fill(&r) : status;
        status = status == RCCLX_OK ? weigh(&r) : status;
        rcclx_field_close(&f);
    }
    rcclx_xml_fini(&x);
    if (status != RCCLX_OK)
        rcclx_schedule_fini(s);
    return status;
}
