/* Rings: m of them at the same rate, over links that they share no further than these
 * carry.
 *
 *   one node     GPU 0 -> 3 -> 1 -> 2 -> 0                 a cycle through all GPUs
 *   several      port c -> GPU 2 -> 0 -> 1 -> 3 -> port c  a path through all GPUs, entered and
 *                                                          left by the port of the ring's rail
 *
 * Every ring crosses every set of links that parts two ends, each way. So all rings
 * together carry at most the minimum cut B of a node, the network being an end if there
 * are several nodes. For m = 1, 2, 3, ... m rings of B / m are looked for; when all m are
 * found, nothing is better, and the search is over. Four GPUs that are all joined by one
 * link each show why m has to grow: three rings of a whole link do not exist, six of half
 * a link do.
 *
 * Looking for a ring is a depth-first search with chance in it: a generator that starts
 * the same everywhere. When a ring fails, all begin again, some tens of times, and prefer
 * something else: what goes from end to end where the bound is reached (ring_bound.c), near
 * GPUs, GPUs with few ways left, links with much left, anything. So rings of near links
 * alone are found where they are best, and such that mix them with far ones where that
 * leaves less behind. Nodes that are alike are searched once. */
#include "topo/yard.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST = 32 /* rings */,
    PARTS = 3 /* of a link */,
    RESTARTS = 60,
    STEPS = 4000 /* of one ring */,
    TOTAL = 240000 /* of a search in one kind of node */
};

typedef struct {
    rcclx_yard *y;
    bool     network;
    double   rate;
    int      port;                     /* end, -1 */
    int      at[RCCLX_TOPO_GPUS];      /* [place]: index among the yard's GPUs */
    bool     used[RCCLX_TOPO_GPUS];
    uint64_t random;
    int      taste;                    /* which choices come first: see cost_of */
    int      steps, total;             /* left */
    double  *wish;                     /* [end][end]: what of the yard's wishes is left; NULL: there are none */
} hunt;

/* One kind of node: its rings, found so far and best. */
typedef struct {
    int found;
    int order[RCCLX_CHANNELS][RCCLX_TOPO_GPUS];
} catch;

static uint32_t draw(hunt *h)
{
    h->random = h->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(h->random >> 33);
}

/* The way between two ends, taken by a ring or given back. */
static void take(hunt *h, int from, int to, double rate)
{
    rcclx_yard_take(h->y, from, to, rate);
    if (h->wish)
        h->wish[from * (h->y->t->ngpus + h->y->t->nnets) + to] -= rate;
}

/* --- one ring ------------------------------------------------------------------------- */

/* Ways left into GPU g from GPUs that are still to come. */
static int ways_into(const hunt *h, int g)
{
    int n = 0;

    for (int i = 0; i < h->y->ngpus && n < 255; i++)
        n += i != g && !h->used[i] && rcclx_yard_fits(h->y, h->y->gpus[i], h->y->gpus[g], h->rate);
    return n;
}

typedef struct {
    int gpu;
    uint32_t cost;
} choice;

static int by_cost(const void *a, const void *b)
{
    const choice *x = a, *y = b;

    return x->cost != y->cost ? (x->cost < y->cost ? -1 : 1) : x->gpu - y->gpu;
}

/* In how many hundredths of a ring's rate the bound's rings would still like to go there; 0 to 9999. */
static uint32_t wished(const hunt *h, int end, int g)
{
    const double left = h->wish[end * (h->y->t->ngpus + h->y->t->nnets) + h->y->gpus[g]] / h->rate * 100;

    return left <= 0 ? 0 : left < 9999 ? (uint32_t)left : 9999;
}

/* As the bound's rings would go, or near ones first, or where the fewest ways are left, or by the way with most left, or any. */
static uint32_t cost_of(hunt *h, int end, int g)
{
    const uint32_t kind = rcclx_topo_path(h->y->t, end, h->y->gpus[g])->kind, chance = draw(h) & 0xffff;

    if (h->wish && h->taste % 2)
        return (9999 - wished(h, end, g)) << 16 | chance;
    switch (h->taste / (h->wish ? 2 : 1) % 4) {
    case 0: return kind << 24 | (uint32_t)ways_into(h, g) << 16 | chance;
    case 1: return (uint32_t)ways_into(h, g) << 16 | chance;
    case 2: return (255 - rcclx_yard_times(h->y, end, h->y->gpus[g], h->rate)) << 16 | chance;
    default: return chance;
    }
}

/* Where the ring may go from `end`, best first. */
static int list_choices(hunt *h, int end, choice *list)
{
    int n = 0;

    for (int g = 0; g < h->y->ngpus; g++)
        if (!h->used[g] && rcclx_yard_fits(h->y, end, h->y->gpus[g], h->rate))
            list[n++] = (choice){ g, cost_of(h, end, g) };
    qsort(list, (size_t)n, sizeof(*list), by_cost);
    return n;
}

static bool closes(const hunt *h, int last)
{
    const int from = h->y->gpus[h->at[last]], to = h->network ? h->port : h->y->gpus[h->at[0]];

    return rcclx_yard_fits(h->y, from, to, h->rate);
}

/* Depth first from place `n` on; recursion is as deep as there are GPUs. Links taken stay taken when it succeeds. */
static bool extend(hunt *h, int n)
{
    const rcclx_yard *y = h->y;
    choice list[RCCLX_TOPO_GPUS];

    if (n == y->ngpus) {
        if (!h->network && n == 1)
            return true;
        if (!closes(h, n - 1))
            return false;
        take(h, y->gpus[h->at[n - 1]], h->network ? h->port : y->gpus[h->at[0]], h->rate);
        return true;
    }
    if (--h->steps < 0 || --h->total < 0)
        return false;
    const int end = n ? y->gpus[h->at[n - 1]] : h->port;
    const int nchoices = list_choices(h, end, list);
    for (int i = 0; i < nchoices; i++) {
        h->at[n] = list[i].gpu;
        h->used[list[i].gpu] = true;
        take(h, end, y->gpus[list[i].gpu], h->rate);
        if (extend(h, n + 1))
            return true;
        take(h, end, y->gpus[list[i].gpu], -h->rate);
        h->used[list[i].gpu] = false;
        if (h->steps < 0 || h->total < 0)
            return false;
    }
    return false;
}

/* A ring through all GPUs of the node. In one node it may begin anywhere: at GPU 0. */
static bool find_ring(hunt *h)
{
    memset(h->used, 0, sizeof(h->used));
    h->steps = STEPS;
    if (h->network)
        return extend(h, 0);
    h->at[0] = 0;
    h->used[0] = true;
    return extend(h, 1);
}

/* --- m rings in one kind of node --------------------------------------------------------- */

/* As many as can be had, at most m, the c-th by the c-th rail. */
static int find_set(hunt *h, int m, const int *rails, catch *out)
{
    int n = 0;

    const size_t nends = (size_t)(h->y->t->ngpus + h->y->t->nnets);

    rcclx_yard_reset(h->y);
    if (h->wish)
        memcpy(h->wish, h->y->wish, nends * nends * sizeof(double));
    for (; n < m; n++) {
        h->port = h->network ? h->y->ports[rails[n] % h->y->nports] : -1;
        if (!find_ring(h))
            break;
        memcpy(out->order[n], h->at, (size_t)h->y->ngpus * sizeof(int));
    }
    out->found = n;
    return n;
}

static void find_best_set(hunt *h, int m, const int *rails, catch *best)
{
    const size_t nends = (size_t)(h->y->t->ngpus + h->y->t->nnets);
    catch *now = RCCLX_NEW(catch);

    h->wish = h->y->wish ? rcclx_mem_alloc(nends * nends * sizeof(double)) : NULL;
    best->found = 0;
    h->total = TOTAL / 8;
    for (int i = 0; now && i < RESTARTS && best->found < m && h->total > 0; i++) {
        h->taste = i;
        if (find_set(h, m, rails, now) > best->found)
            *best = *now;
        if (!now->found)
            break; /* not even one: the next try would begin as this one did */
    }
    rcclx_mem_free(h->wish);
    rcclx_mem_free(now);
}

/* --- rails: which channel uses which port ---------------------------------------------------- */

/* Ports are dealt to channels as long as they carry one more, the freest first; the same for all nodes. */
static int deal_rails(const rcclx_field *f, double rate, int m, int *rails)
{
    double left[RCCLX_TOPO_NETS];
    int n = 0;

    for (int p = 0; p < f->ports; p++)
        left[p] = rcclx_field_rail_rate(f, p);
    for (; n < m; n++) {
        int best = 0;
        for (int p = 1; p < f->ports; p++)
            best = left[p] > left[best] * (1 + 1e-9) ? p : best;
        if (left[best] < rate * (1 - 1e-9))
            break;
        left[best] -= rate;
        rails[n] = best;
    }
    return n;
}

/* --- all nodes -------------------------------------------------------------------------------- */

/* m rings of this rate everywhere, or as many as there are. */
static int try_rate(rcclx_field *f, int m, double rate, int *rails, catch *caught)
{
    if (f->nnodes > 1)
        m = deal_rails(f, rate, m, rails);
    for (int y = 0; m > 0 && y < f->nyards; y++) {
        hunt h = { .y = &f->yards[y], .network = f->nnodes > 1, .rate = rate, .random = UINT64_C(0x9e3779b97f4a7c15) };
        find_best_set(&h, m, rails, &caught[y]);
        m = caught[y].found;
    }
    return m;
}

static void store(rcclx_schedule *s, const rcclx_field *f, int m, double rate, const int *rails, const catch *caught)
{
    s->nchannels = m;
    s->rate = rate;
    s->total = rate * m;
    for (int c = 0; c < m; c++)
        for (int node = 0, place = 0; node < f->nnodes; node++) {
            const rcclx_yard *y = &f->yards[f->yard_of[node]];
            for (int i = 0; i < y->ngpus; i++)
                s->rows[c * s->nranks + place++] = rcclx_field_rank(f, node, caught[f->yard_of[node]].order[c][i]);
            s->ports[c * f->nnodes + node] = f->nnodes > 1 ? y->ports[rails[c] % y->nports] - y->t->ngpus : -1;
        }
}

/* The bound of the worst node, and that of any all-gather, as rings measure it: times (n - 1) / n. */
rcclx_status rcclx_bound_rings(rcclx_schedule *s, const rcclx_field *f)
{
    double shares[RCCLX_TOPO_GPUS], cut, spread, back;

    s->bound = s->limit = 1e300;
    for (int y = 0; y < f->nyards; y++) {
        for (int i = 0; i < f->yards[y].ngpus; i++)
            shares[i] = 1.0 / f->nranks;
        RCCLX_TRY(rcclx_flow_cut(&f->yards[y], f->nnodes > 1, &cut));
        RCCLX_TRY(rcclx_bound_degrees(&f->yards[y], f->nnodes > 1, &cut));
        RCCLX_TRY(rcclx_flow_spread(&f->yards[y], f->nnodes > 1, shares, false, &spread));
        RCCLX_TRY(rcclx_flow_spread(&f->yards[y], f->nnodes > 1, shares, true, &back));
        spread = (spread < back ? spread : back) * (f->nranks - 1) / f->nranks;
        s->bound = cut < s->bound ? cut : s->bound;
        s->limit = spread < s->limit ? spread : s->limit;
    }
    return RCCLX_OK;
}

static void try_and_keep(rcclx_schedule *s, rcclx_field *f, int m, double rate, catch *caught)
{
    int rails[RCCLX_CHANNELS] = { 0 };
    const int found = try_rate(f, m, rate, rails, caught);

    if (found * rate > s->total * 1.001)
        store(s, f, found, rate, rails, caught);
}

/* A rate of its own, not seen among the links before. */
static bool is_new(const rcclx_field *f, int yard, int link)
{
    const double rate = f->yards[yard].t->links[link].rate;

    for (int y = 0; y <= yard; y++)
        for (int i = 0; i < (y < yard ? f->yards[y].t->nlinks : link); i++)
            if (f->yards[y].used[i] && f->yards[y].t->links[i].rate >= rate && f->yards[y].t->links[i].rate <= rate)
                return false;
    return f->yards[yard].used[link];
}

/* m rings that reach the bound; where there are none, rings that fill links of one rate. */
static void search(rcclx_schedule *s, rcclx_field *f, catch *caught)
{
    for (int m = 1; m <= MOST && !rcclx_schedule_proved(s); m++)
        try_and_keep(s, f, m, s->bound / m, caught);
    for (int y = 0; y < f->nyards; y++)
        for (int i = 0; i < f->yards[y].t->nlinks; i++)
            for (int part = 1; part <= PARTS && is_new(f, y, i) && !rcclx_schedule_proved(s); part++) {
                const double rate = f->yards[y].t->links[i].rate / part, most = s->bound / rate;
                if (most >= 1 && most <= MOST + 1)
                    try_and_keep(s, f, (int)(most * (1 + 1e-9)), rate, caught);
            }
}

/* A single rank in a single node: nothing to cross. */
static void alone(rcclx_schedule *s, const rcclx_field *f)
{
    s->nchannels = 1;
    s->rows[0] = rcclx_field_rank(f, 0, 0);
    s->ports[0] = -1;
    s->rate = s->total = s->bound = s->limit = RCCLX_TOPO_HERE;
}

rcclx_status rcclx_fill_rings(rcclx_schedule *s, rcclx_field *f)
{
    catch *caught = rcclx_mem_alloc((size_t)f->nyards * sizeof(catch));

    if (!caught)
        return RCCLX_FAIL(RCCLX_NOMEM, "no memory for a schedule");
    const rcclx_status status = rcclx_bound_rings(s, f);
    if (status == RCCLX_OK)
        search(s, f, caught);
    rcclx_mem_free(caught);
    return status;
}

rcclx_status rcclx_find_rings(rcclx_schedule *s, rcclx_field *f)
{
    RCCLX_TRY(rcclx_schedule_make(s, RCCLX_RINGS, f->nranks, f->nnodes, RCCLX_CHANNELS));
    if (f->nranks == 1) {
        alone(s, f);
        return RCCLX_OK;
    }
    RCCLX_TRY(rcclx_fill_rings(s, f));
    return s->nchannels ? RCCLX_OK
                        : RCCLX_FAIL(RCCLX_USAGE,
                                     "no ring goes through all %d GPUs: some of them are not joined by any link", f->nranks);
}
