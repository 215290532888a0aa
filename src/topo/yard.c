/* Nodes that are alike are found out once, so that 64 copies of a machine cost as much
 * as one:
 *
 *   node      0    1    2    3        yards   0: 8 GPUs of topology A
 *   GPUs      8    8    3    8                1: 3 GPUs of topology A
 *   yard      0    0    1    0
 */
#include "topo/yard.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

static bool alike(const rcclx_share *a, const rcclx_share *b)
{
    return a->topo == b->topo && a->ngpus == b->ngpus && !memcmp(a->gpus, b->gpus, (size_t)a->ngpus * sizeof(int));
}

static rcclx_status check_share(const rcclx_share *n, int node)
{
    bool there[RCCLX_TOPO_GPUS] = { false };

    if (n->ngpus < 1)
        return RCCLX_FAIL(RCCLX_USAGE, "node %d takes part with no GPU", node);
    for (int i = 0; i < n->ngpus; i++) {
        if (n->gpus[i] < 0 || n->gpus[i] >= n->topo->ngpus)
            return RCCLX_FAIL(RCCLX_USAGE, "node %d: there is no GPU %d: its description holds %d", node, n->gpus[i],
                              n->topo->ngpus);
        if (there[n->gpus[i]])
            return RCCLX_FAIL(RCCLX_USAGE, "node %d: GPU %d is named twice", node, n->gpus[i]);
        there[n->gpus[i]] = true;
    }
    return RCCLX_OK;
}

/* Ranks are 0 to n - 1, each once. */
static rcclx_status check_ranks(const rcclx_field *f)
{
    bool *there = rcclx_mem_alloc((size_t)f->nranks);
    rcclx_status s = there ? RCCLX_OK : RCCLX_FAIL(RCCLX_NOMEM, "no memory for a schedule");

    for (int node = 0; s == RCCLX_OK && node < f->nnodes; node++)
        for (int i = 0; s == RCCLX_OK && i < f->nodes[node].ngpus; i++) {
            const int r = rcclx_field_rank(f, node, i);
            if (r < 0 || r >= f->nranks || there[r])
                s = RCCLX_FAIL(RCCLX_USAGE, "node %d: rank %d is %s", node, r,
                               r < 0 || r >= f->nranks ? "not one of them" : "there twice");
            else
                there[r] = true;
        }
    rcclx_mem_free(there);
    return s;
}

/* Ports that a chosen GPU reaches both ways. */
static void choose_ports(rcclx_yard *y)
{
    for (int net = 0; net < y->t->nnets; net++) {
        const int port = rcclx_topo_net(y->t, net);
        bool reached = false;
        for (int i = 0; i < y->ngpus && !reached; i++)
            reached = rcclx_topo_path(y->t, y->gpus[i], port)->rate > 0 && rcclx_topo_path(y->t, port, y->gpus[i])->rate > 0;
        if (reached)
            y->ports[y->nports++] = port;
    }
}

static void use(rcclx_yard *y, int from, int to)
{
    const rcclx_path *p = rcclx_topo_path(y->t, from, to);

    for (int i = 0; i < p->nhops; i++)
        y->used[y->t->hops[p->first + i]] = true;
}

/* What is stored to a peer goes by one way, and what lies beside it carries nothing: PCI, where XGMI joins all. */
static void mark_used(rcclx_yard *y, bool network)
{
    for (int i = 0; i < y->ngpus; i++) {
        for (int k = 0; k < y->ngpus; k++)
            use(y, y->gpus[i], y->gpus[k]);
        for (int p = 0; network && p < y->nports; p++) {
            use(y, y->gpus[i], y->ports[p]);
            use(y, y->ports[p], y->gpus[i]);
        }
    }
}

static rcclx_status add_yard(rcclx_field *f, const rcclx_share *n, bool network)
{
    rcclx_yard *yards = rcclx_mem_realloc(f->yards, (size_t)(f->nyards + 1) * sizeof(*yards));

    if (!yards)
        return RCCLX_FAIL(RCCLX_NOMEM, "no memory for a schedule");
    f->yards = yards;
    rcclx_yard *y = &yards[f->nyards++];
    *y = (rcclx_yard){ .t = n->topo };
    y->ngpus = n->ngpus;
    memcpy(y->gpus, n->gpus, (size_t)n->ngpus * sizeof(int));
    choose_ports(y);
    y->left = rcclx_mem_alloc((size_t)(y->t->nlinks + 1) * sizeof(double));
    y->used = rcclx_mem_alloc((size_t)(y->t->nlinks + 1) * sizeof(bool));
    if (!y->left || !y->used)
        return RCCLX_FAIL(RCCLX_NOMEM, "no memory for a schedule");
    mark_used(y, network);
    rcclx_yard_reset(y);
    return RCCLX_OK;
}

static rcclx_status sort_nodes(rcclx_field *f, bool network)
{
    for (int node = 0; node < f->nnodes; node++) {
        int y = 0, like = 0;

        RCCLX_TRY(check_share(&f->nodes[node], node));
        f->first[node] = f->nranks;
        f->nranks += f->nodes[node].ngpus;
        if (f->nranks > RCCLX_SEARCH_RANKS)
            return RCCLX_FAIL(RCCLX_UNSUPPORTED, "more than %d ranks", RCCLX_SEARCH_RANKS);
        while (like < node && !alike(&f->nodes[node], &f->nodes[like]))
            like++;
        if (like == node)
            RCCLX_TRY(add_yard(f, &f->nodes[node], network));
        y = like < node ? f->yard_of[like] : f->nyards - 1;
        f->yard_of[node] = y;
        f->yards[y].nodes++;
        f->ports = !node || f->yards[y].nports < f->ports ? f->yards[y].nports : f->ports;
        if (f->nnodes > 1 && !f->yards[y].nports)
            return RCCLX_FAIL(RCCLX_USAGE, "node %d has no network port that its GPUs reach: %s names none", node,
                              *f->nodes[node].topo->xml.source ? f->nodes[node].topo->xml.source : "its description");
    }
    return check_ranks(f);
}

rcclx_status rcclx_field_open(rcclx_field *f, const rcclx_share *nodes, int nnodes, bool network)
{
    *f = (rcclx_field){ .nodes = nodes, .nnodes = nnodes };
    if (nnodes < 1 || nnodes > RCCLX_NODES)
        return RCCLX_FAIL(RCCLX_USAGE, "%d nodes: 1 to %d are possible", nnodes, RCCLX_NODES);
    f->first = rcclx_mem_alloc((size_t)nnodes * sizeof(int));
    f->yard_of = rcclx_mem_alloc((size_t)nnodes * sizeof(int));
    const rcclx_status s =
        f->first && f->yard_of ? sort_nodes(f, network) : RCCLX_FAIL(RCCLX_NOMEM, "no memory for a schedule");
    if (s != RCCLX_OK)
        rcclx_field_close(f);
    return s;
}

void rcclx_field_close(rcclx_field *f)
{
    for (int y = 0; f->yards && y < f->nyards; y++) {
        rcclx_mem_free(f->yards[y].left);
        rcclx_mem_free(f->yards[y].used);
        rcclx_mem_free(f->yards[y].wish);
    }
    rcclx_mem_free(f->yards);
    rcclx_mem_free(f->first);
    rcclx_mem_free(f->yard_of);
    *f = (rcclx_field){ .nodes = NULL };
}

int rcclx_field_rank(const rcclx_field *f, int node, int i)
{
    return f->nodes[node].ranks ? f->nodes[node].ranks[i] : f->first[node] + i;
}

static bool goes_over(const rcclx_yard *y, int from, int to, int link)
{
    const rcclx_path *p = rcclx_topo_path(y->t, from, to);
    bool over = false;

    for (int i = 0; i < p->nhops; i++)
        over |= y->t->hops[p->first + i] == link;
    return over;
}

/* The narrowest link that all GPUs' ways to the port (or from it) have in common. */
static double neck(const rcclx_yard *y, int port, bool out)
{
    const rcclx_path *first = rcclx_topo_path(y->t, out ? y->gpus[0] : port, out ? port : y->gpus[0]);
    double rate = 1e300;

    for (int i = 0; i < first->nhops; i++) {
        const int link = y->t->hops[first->first + i];
        bool all = true;
        for (int g = 1; g < y->ngpus && all; g++)
            all = goes_over(y, out ? y->gpus[g] : port, out ? port : y->gpus[g], link);
        if (all && y->t->links[link].rate < rate)
            rate = y->t->links[link].rate;
    }
    return rate;
}

double rcclx_field_rail_rate(const rcclx_field *f, int p)
{
    double worst = 1e300;

    for (int k = 0; k < f->nyards; k++)
        for (int out = 0; out < 2; out++) {
            const double rate = neck(&f->yards[k], f->yards[k].ports[p], out);
            worst = rate < worst ? rate : worst;
        }
    return worst;
}

/* --- what is left of the links -------------------------------------------------------- */

void rcclx_yard_reset(rcclx_yard *y)
{
    y->torn = false;
    for (int i = 0; i < y->t->nlinks; i++)
        y->left[i] = y->t->links[i].rate;
}

bool rcclx_yard_fits(const rcclx_yard *y, int from, int to, double rate)
{
    const rcclx_path *p = rcclx_topo_path(y->t, from, to);

    for (int i = 0; i < p->nhops; i++)
        if (y->left[y->t->hops[p->first + i]] < rate * (1 - 1e-9))
            return false;
    return p->rate > 0;
}

unsigned rcclx_yard_times(const rcclx_yard *y, int from, int to, double rate)
{
    const rcclx_path *p = rcclx_topo_path(y->t, from, to);
    double least = p->rate > 0 ? 255 * rate : 0;

    for (int i = 0; i < p->nhops; i++)
        least = y->left[y->t->hops[p->first + i]] < least ? y->left[y->t->hops[p->first + i]] : least;
    return least > 0 ? (unsigned)(least / rate * (1 + 1e-9)) : 0;
}

void rcclx_yard_take(rcclx_yard *y, int from, int to, double rate)
{
    const rcclx_path *p = rcclx_topo_path(y->t, from, to);

    for (int i = 0; i < p->nhops; i++)
        y->left[y->t->hops[p->first + i]] -= rate;
    y->torn |= !(p->rate > 0);
}

double rcclx_yard_scale(const rcclx_yard *y)
{
    double scale = y->torn ? 0 : 1e300;

    for (int i = 0; i < y->t->nlinks; i++) {
        const double rate = y->t->links[i].rate, used = rate - y->left[i];
        if (used > rate * 1e-12 && rate / used < scale)
            scale = rate / used;
    }
    return scale;
}
