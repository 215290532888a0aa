/* All-to-all in rounds: in round k rank r sends to the rank that is k places on, and
 * hears from the one k places back. With as many GPUs in every node, places are counted
 * node by node and GPU by GPU, so that in a round whole nodes talk to whole nodes and
 * every GPU keeps to one rail:
 *
 *   round (d, j)     GPU i of node A  ->  GPU i + j of node A + d
 *
 * Inside the node data go the direct way. Out of it every GPU sends through the port that
 * is its own, the nearest, dealt so that ports get GPUs evenly, and hears through it, too.
 *
 * The rate is that of each pair when all pairs send at once: what the fullest link leaves
 * them. No schedule has more than the links around any set of GPUs carry, divided by the
 * pairs that it parts. */
#include "topo/yard.h"

#include "base/log.h"
#include "base/mem.h"

enum { ALL_SETS = 8, MOST_RANKS = 4096 };

/* The port each GPU of a node sends through, by number among the yard's ports: near ones first, and evenly. */
static void deal_ports(const rcclx_yard *y, int *port_of)
{
    int users[RCCLX_TOPO_NETS] = { 0 };

    for (int i = 0; i < y->ngpus; i++) {
        int best = 0;
        for (int p = 1; p < y->nports; p++) {
            const rcclx_path *there = rcclx_topo_path(y->t, y->gpus[i], y->ports[p]),
                             *now = rcclx_topo_path(y->t, y->gpus[i], y->ports[best]);
            const double load = (users[p] + 1) / there->rate, load_now = (users[best] + 1) / now->rate;
            if (load < load_now * (1 - 1e-9) || (load <= load_now * (1 + 1e-9) && there->kind < now->kind))
                best = p;
        }
        users[best] += y->nports > 0;
        port_of[i] = best;
    }
}

/* All pairs at rate 1: from each GPU to each other one of the node, and to and from the ranks elsewhere. */
static double carried(rcclx_yard *y, const int *port_of, int elsewhere)
{
    rcclx_yard_reset(y);
    for (int i = 0; i < y->ngpus; i++) {
        for (int k = 0; k < y->ngpus; k++)
            if (k != i)
                rcclx_yard_take(y, y->gpus[i], y->gpus[k], 1);
        if (!elsewhere)
            continue;
        rcclx_yard_take(y, y->gpus[i], y->ports[port_of[i]], elsewhere);
        rcclx_yard_take(y, y->ports[port_of[i]], y->gpus[i], elsewhere);
    }
    return rcclx_yard_scale(y);
}

/* --- bound ------------------------------------------------------------------------------ */

/* This set of the node's GPUs against everybody else. */
static rcclx_status part(const rcclx_yard *y, int nranks, bool network, const bool *inside, double *bound)
{
    int n = 0;

    for (int i = 0; i < y->ngpus; i++)
        n += inside[i];
    for (int backward = 0; backward < 2 && n > 0 && n < nranks; backward++) {
        double most;
        RCCLX_TRY(rcclx_flow_between(y, network, inside, backward, &most));
        most /= (double)n * (nranks - n);
        *bound = most < *bound ? most : *bound;
    }
    return RCCLX_OK;
}

/* Of few GPUs all sets are looked at; of many each alone, those of each CPU, and all. */
static rcclx_status bound_of(const rcclx_yard *y, int nranks, bool network, double *bound)
{
    bool inside[RCCLX_TOPO_GPUS];

    if (y->ngpus <= ALL_SETS) {
        for (int set = 1; set < 1 << y->ngpus; set++) {
            for (int i = 0; i < y->ngpus; i++)
                inside[i] = set >> i & 1;
            RCCLX_TRY(part(y, nranks, network, inside, bound));
        }
        return RCCLX_OK;
    }
    for (int one = 0; one <= y->ngpus; one++) {
        for (int i = 0; i < y->ngpus; i++)
            inside[i] = i == one || one == y->ngpus;
        RCCLX_TRY(part(y, nranks, network, inside, bound));
    }
    for (int one = 0; one < y->ngpus; one++) {
        for (int i = 0; i < y->ngpus; i++) {
            const rcclx_path_kind kind = rcclx_topo_path(y->t, y->gpus[one], y->gpus[i])->kind;
            inside[i] = kind <= RCCLX_PATH_PHB;
        }
        RCCLX_TRY(part(y, nranks, network, inside, bound));
    }
    return RCCLX_OK;
}

/* --- all of it ----------------------------------------------------------------------------- */

/* The rank at a place: node by node, GPU by GPU. */
static int rank_at(const rcclx_field *f, int place)
{
    int node = 0;

    while (node + 1 < f->nnodes && f->first[node + 1] <= place)
        node++;
    return rcclx_field_rank(f, node, place - f->first[node]);
}

static rcclx_status fill_rounds(rcclx_schedule *s, const rcclx_field *f)
{
    const int n = f->nranks, p = f->nodes[0].ngpus;
    bool even = true;
    int *ranks = rcclx_mem_alloc((size_t)n * sizeof(int));

    if (!ranks)
        return RCCLX_FAIL(RCCLX_NOMEM, "no memory for a schedule");
    for (int i = 0; i < n; i++)
        ranks[i] = rank_at(f, i);
    for (int node = 0; node < f->nnodes; node++)
        even &= f->nodes[node].ngpus == p;
    for (int k = 1; k < n; k++)
        for (int i = 0; i < n; i++) {
            const int to = even ? (i / p + k / p) % f->nnodes * p + (i % p + k % p) % p : (i + k) % n;
            s->rows[(size_t)(k - 1) * (size_t)n + (size_t)ranks[i]] = ranks[to];
        }
    rcclx_mem_free(ranks);
    return RCCLX_OK;
}

rcclx_status rcclx_find_swaps(rcclx_schedule *s, rcclx_field *f)
{
    const bool network = f->nnodes > 1;
    int port_of[RCCLX_TOPO_GPUS];

    if (f->nranks > MOST_RANKS)
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "rounds of an all-to-all are listed for up to %d ranks, and these are %d",
                          MOST_RANKS, f->nranks);
    RCCLX_TRY(rcclx_schedule_make(s, RCCLX_SWAPS, f->nranks, f->nnodes, f->nranks - 1));
    s->nchannels = f->nranks - 1;
    s->rate = s->bound = f->nranks > 1 ? 1e300 : RCCLX_TOPO_HERE;
    for (int y = 0; y < f->nyards && f->nranks > 1; y++) {
        deal_ports(&f->yards[y], port_of);
        const double rate = carried(&f->yards[y], port_of, f->nranks - f->yards[y].ngpus);
        s->rate = rate < s->rate ? rate : s->rate;
        RCCLX_TRY(bound_of(&f->yards[y], f->nranks, network, &s->bound));
        for (int node = 0; network && node < f->nnodes; node++)
            for (int i = 0; f->yard_of[node] == y && i < f->yards[y].ngpus; i++)
                s->ports[rcclx_field_rank(f, node, i)] = f->yards[y].ports[port_of[i]] - f->yards[y].t->ngpus;
    }
    for (int r = 0; !network && r < f->nranks; r++)
        s->ports[r] = -1;
    s->total = s->rate * (f->nranks > 1 ? f->nranks - 1 : 1);
    s->bound *= f->nranks > 1 ? f->nranks - 1 : 1;
    s->limit = s->bound;
    return fill_rounds(s, f);
}
