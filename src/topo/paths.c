/* Ways between ends: from each end outward, a ring of neighbours at a time, through
 * bridges, CPUs and switches, never through another GPU:
 *
 *   step 1    GPU 0 --- PCI 08, GPU 1 (XGMI), GPU 2 (XGMI)
 *   step 2             PCI 08 --- CPU 0, NIC 0f
 *   step 3                       CPU 0 --- CPU 1, ...      NIC 0f --- mlx5_0
 *
 * So the shortest way is found, and of several as short the widest. What kind of
 * way it is follows from its links alone. */
#include "topo/topo.h"

#include "base/log.h"
#include "base/mem.h"
#include "topo/model.h"

#include <string.h>

enum { HOPS = 64 };

typedef struct {
    rcclx_topo *t;
    int        *came, *steps; /* [vertex]: the link it was reached by, and after how many; -1: not yet */
    double     *rate;
    int         cap_hops;
} search;

static const char *const names[] = {
#define X(name, about) #name,
    RCCLX_PATH_LIST(X)
#undef X
};

static const char *const abouts[] = {
#define X(name, about) about,
    RCCLX_PATH_LIST(X)
#undef X
};

const char *rcclx_path_name(rcclx_path_kind k)
{
    return (unsigned)k < RCCLX_PATH_COUNT ? names[k] : "?";
}

const char *rcclx_path_about(rcclx_path_kind k)
{
    return (unsigned)k < RCCLX_PATH_COUNT ? abouts[k] : "?";
}

static int end_vertex(const rcclx_topo *t, int end)
{
    return end < t->ngpus ? t->gpus[end] : t->nets[end - t->ngpus];
}

static bool leads_on(const rcclx_topo *t, int v)
{
    return t->vertices[v].kind != RCCLX_TOPO_GPU && t->vertices[v].kind != RCCLX_TOPO_NET;
}

/* --- outward from one end --------------------------------------------------------------- */

static bool spread_once(search *s, int step)
{
    const rcclx_topo *t = s->t;
    bool more = false;

    for (int i = 0; i < t->nlinks; i++) {
        const rcclx_topo_link *l = &t->links[i];
        if (s->steps[l->from] != step || (step && !leads_on(t, l->from)))
            continue;
        const double rate = step && s->rate[l->from] < l->rate ? s->rate[l->from] : l->rate;
        if (s->steps[l->to] >= 0 && (s->steps[l->to] <= step || s->rate[l->to] >= rate))
            continue;
        s->steps[l->to] = step + 1;
        s->rate[l->to] = rate;
        s->came[l->to] = i;
        more = true;
    }
    return more;
}

static void spread(search *s, int from)
{
    for (int v = 0; v < s->t->nvertices; v++)
        s->steps[v] = -1;
    s->steps[from] = 0;
    s->came[from] = -1;
    for (int step = 0; step < HOPS && spread_once(s, step); step++)
        ;
}

/* --- what kind of way ------------------------------------------------------------------------ */

static rcclx_path_kind kind_of(const rcclx_topo *t, const int *hops, int n)
{
    int of[RCCLX_LINK_PORT + 1] = { 0 }, bridges = 0, cpus = 0;

    for (int i = 0; i < n; i++) {
        const rcclx_topo_link *l = &t->links[hops[i]];
        of[l->kind]++;
        bridges += i > 0 && t->vertices[l->from].kind == RCCLX_TOPO_PCI;
        cpus += i > 0 && t->vertices[l->from].kind == RCCLX_TOPO_CPU;
    }
    if (of[RCCLX_LINK_SOCKET])
        return RCCLX_PATH_SYS;
    if (of[RCCLX_LINK_C2C])
        return of[RCCLX_LINK_PCI] ? RCCLX_PATH_P2C : RCCLX_PATH_C2C;
    if (cpus)
        return RCCLX_PATH_PHB;
    if (of[RCCLX_LINK_XGMI] + of[RCCLX_LINK_NVLINK])
        return RCCLX_PATH_NVL;
    return bridges > 1 ? RCCLX_PATH_PXB : RCCLX_PATH_PIX;
}

static rcclx_status record(search *s, rcclx_path *p, int from, int to)
{
    rcclx_topo *t = s->t;
    const int n = s->steps[to];

    *p = (rcclx_path){ .kind = from == to ? RCCLX_PATH_LOC : RCCLX_PATH_DIS, .rate = from == to ? RCCLX_TOPO_HERE : 0 };
    if (n < 1)
        return RCCLX_OK;
    if (t->nhops + n > s->cap_hops) {
        const int more = s->cap_hops ? s->cap_hops * 2 : 4096;
        int *hops = rcclx_mem_realloc(t->hops, (size_t)more * sizeof(int));
        if (!hops)
            return RCCLX_FAIL(RCCLX_NOMEM, "no memory for the ways between devices");
        t->hops = hops;
        s->cap_hops = more;
    }
    for (int i = n - 1, v = to; i >= 0; i--) {
        t->hops[t->nhops + i] = s->came[v];
        v = t->links[s->came[v]].from;
    }
    const uint8_t kind = (uint8_t)kind_of(t, t->hops + t->nhops, n);
    *p = (rcclx_path){ .kind = kind, .nhops = (uint8_t)n, .first = t->nhops, .rate = s->rate[to] };
    t->nhops += n;
    return RCCLX_OK;
}

static rcclx_status find_all(search *s)
{
    rcclx_topo *t = s->t;
    const int nends = t->ngpus + t->nnets;

    for (int a = 0; a < nends; a++) {
        spread(s, end_vertex(t, a));
        for (int b = 0; b < nends; b++)
            RCCLX_TRY(record(s, &t->paths[a * nends + b], end_vertex(t, a), end_vertex(t, b)));
    }
    return RCCLX_OK;
}

rcclx_status rcclx_topo_find_paths(rcclx_topo *t)
{
    const size_t nends = (size_t)(t->ngpus + t->nnets), n = (size_t)t->nvertices;

    rcclx_mem_free(t->paths);
    rcclx_mem_free(t->hops);
    t->hops = NULL;
    t->nhops = 0;
    t->paths = rcclx_mem_alloc((nends * nends + 1) * sizeof(*t->paths));
    search s = { .t = t, .came = rcclx_mem_alloc(n * sizeof(int)), .steps = rcclx_mem_alloc(n * sizeof(int)),
                 .rate = rcclx_mem_alloc(n * sizeof(double)) };
    const rcclx_status status = t->paths && s.came && s.steps && s.rate
                                    ? find_all(&s) : RCCLX_FAIL(RCCLX_NOMEM, "no memory for the ways between devices");
    rcclx_mem_free(s.came);
    rcclx_mem_free(s.steps);
    rcclx_mem_free(s.rate);
    return status;
}

/* --- asking ------------------------------------------------------------------------------------- */

const rcclx_path *rcclx_topo_path(const rcclx_topo *t, int from, int to)
{
    return &t->paths[from * (t->ngpus + t->nnets) + to];
}

/* By way of a third GPU: links between GPUs to it, and from there the same again or a short way to the port. */
rcclx_reach rcclx_topo_reach(const rcclx_topo *t, int from, int to)
{
    const rcclx_path *direct = rcclx_topo_path(t, from, to);
    rcclx_reach r = { .kind = direct->kind, .nhops = direct->nhops, .via = -1, .rate = direct->rate };
    const bool net = to >= t->ngpus;

    if (from >= t->ngpus || direct->kind <= (net ? RCCLX_PATH_PXB : RCCLX_PATH_NVL))
        return r;
    for (int g = 0; g < t->ngpus; g++) {
        const rcclx_path *first = rcclx_topo_path(t, from, g), *second = rcclx_topo_path(t, g, to);
        const double rate = first->rate < second->rate ? first->rate : second->rate;
        if (first->kind != RCCLX_PATH_NVL || second->kind == RCCLX_PATH_LOC ||
            second->kind > (net ? RCCLX_PATH_PXB : RCCLX_PATH_NVL))
            continue;
        if (r.via >= 0 ? rate > r.rate : net || rate > direct->rate)
            r = (rcclx_reach){ .kind = net ? RCCLX_PATH_PXN : RCCLX_PATH_NVB,
                               .nhops = (uint8_t)(first->nhops + second->nhops),
                               .via = g,
                               .rate = rate };
    }
    return r;
}

const char *rcclx_topo_kind_name(const rcclx_topo *t, int from, int to)
{
    const rcclx_reach r = rcclx_topo_reach(t, from, to);

    if (r.kind == RCCLX_PATH_NVL && t->links[t->hops[rcclx_topo_path(t, from, to)->first]].kind == RCCLX_LINK_XGMI)
        return "XGMI";
    return rcclx_path_name((rcclx_path_kind)r.kind);
}

/* --- what is not known, measured ------------------------------------------------------------------- */

static int gpu_number(const rcclx_topo *t, int vertex)
{
    for (int i = 0; i < t->ngpus; i++)
        if (t->gpus[i] == vertex)
            return i;
    return -1;
}

rcclx_status rcclx_topo_measure_links(rcclx_topo *t, rcclx_topo_measure *measure, void *context)
{
    bool any = false;

    for (int i = 0; i < t->nlinks; i++) {
        rcclx_topo_link *l = &t->links[i];
        const int from = gpu_number(t, l->from), to = gpu_number(t, l->to);
        if (l->source != RCCLX_RATE_ASSUMED || from < 0 || to < 0)
            continue;
        const double rate = measure(context, t, from, to);
        if (!(rate > 0))
            continue;
        l->rate = rate;
        l->source = RCCLX_RATE_MEASURED;
        any = true;
    }
    return any ? rcclx_topo_find_paths(t) : RCCLX_OK;
}
