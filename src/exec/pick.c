/* Which plan runs, remembered.
 *
 *   (kind, size class, facts, small)  -> algorithm   a byte a combination
 *   (algorithm, kind, root)           -> plan        built when first needed
 *
 * Choosing prices every algorithm by walking its plans; that is done once a
 * size class (a power of two, rounded up), so that all ranks, which agree on
 * class, facts and machine, choose alike. */
#include "exec/mirror.h"
#include "exec/runner.h"

#include "base/log.h"
#include "base/mem.h"
#include "plan/ranks.h"

enum { MAX_ALGOS = 16, CLASSES = 65, FACTS = 32 };

/* A plan, and where its signals go beyond this machine. */
typedef struct {
    rcclx_plan   plan; /* first: users hand it back */
    rcclx_routes routes;
    rcclx_talk   talk;
    size_t      *filled;
} entry;

struct rcclx_pick {
    rcclx_team *team;
    int         nalgos, slot, staged;
    bool        told;                                        /* a forced algorithm did not fit: logged */
    uint8_t     choice[RCCLX_COLL_COUNT][CLASSES][FACTS][2]; /* algorithm + 1; 0: not chosen yet */
    entry      *plans[2][MAX_ALGOS][RCCLX_COLL_COUNT];       /* [coded]; nranks (roots) each */
};

rcclx_status rcclx_pick_create(rcclx_pick **out, rcclx_team *t)
{
    rcclx_pick *p = *out = RCCLX_NEW(rcclx_pick);

    if (!p)
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: no memory for the table of plans", t->rank);
    p->team = t;
    for (p->nalgos = 0; rcclx_algos[p->nalgos] && p->nalgos < MAX_ALGOS; p->nalgos++)
        if (rcclx_algos[p->nalgos] == &rcclx_algo_slot)
            p->slot = p->nalgos;
        else if (rcclx_algos[p->nalgos] == &rcclx_algo_staged)
            p->staged = p->nalgos;
    return RCCLX_OK;
}

static void forget(entry *e)
{
    rcclx_plan_fini(&e->plan);
    rcclx_routes_fini(&e->routes);
    rcclx_mem_free(e->filled);
    e->filled = NULL;
}

void rcclx_pick_destroy(rcclx_pick *p)
{
    if (!p)
        return;
    for (int a = 0; a < 2 * MAX_ALGOS; a++)
        for (int k = 0; k < RCCLX_COLL_COUNT; k++) {
            entry *roots = p->plans[a / MAX_ALGOS][a % MAX_ALGOS][k];
            for (int r = 0; roots && r < p->team->nranks; r++)
                forget(&roots[r]);
            rcclx_mem_free(roots);
        }
    rcclx_mem_free(p);
}

static rcclx_status find_routes(const rcclx_team *t, const rcclx_algo *a, entry *e)
{
    bool far[RCCLX_MAX_RANKS];
    rcclx_plan *all;

    if (!t->mirror)
        return RCCLX_OK;
    if (t->nranks <= RCCLX_TALKERS) {
        RCCLX_TRY(rcclx_ranks_build(a, &e->plan.shape, &all));
        rcclx_talk_find(&e->talk, all, t->nranks, t->node);
        rcclx_ranks_free(all, t->nranks);
    }
    for (int r = 0; r < t->nranks; r++)
        far[r] = rcclx_is_far(t, r);
    RCCLX_TRY(rcclx_routes_build(&e->routes, a, &e->plan, far));
    e->filled = rcclx_mem_alloc((size_t)RCCLX_NLANES * (e->plan.nslots + 1u) * sizeof(*e->filled));
    return e->filled ? RCCLX_OK : RCCLX_NOMEM;
}

const rcclx_routes *rcclx_pick_routes(const rcclx_plan *p, size_t **filled)
{
    entry *e = (entry *)(uintptr_t)p;

    *filled = e->filled;
    return &e->routes;
}

const rcclx_talk *rcclx_pick_talk(const rcclx_plan *p)
{
    return &((const entry *)(uintptr_t)p)->talk;
}

static const rcclx_plan *plan_of(rcclx_pick *p, int a, rcclx_kind kind, int root, bool coded)
{
    entry **roots = &p->plans[coded][a][kind];

    if (!*roots)
        *roots = rcclx_mem_alloc((size_t)p->team->nranks * sizeof(**roots));
    if (!*roots)
        return NULL;
    entry *e = &(*roots)[rcclx_kind_rooted(kind) ? root : 0];
    if (!e->plan.nsteps) {
        const rcclx_shape s = { kind, p->team->nranks, p->team->rank, root, coded, rcclx_team_nodes(p->team) };
        rcclx_algos[a]->build(&e->plan, &s);
        if (e->plan.status != RCCLX_OK || find_routes(p->team, rcclx_algos[a], e) != RCCLX_OK) {
            forget(e);
            return NULL;
        }
    }
    return &e->plan;
}

/* What the tuner plug-in says of this size; NULL: nothing. NCCL_ALGO and RCCLX_ALGO say more. */
static const rcclx_algo *tuned(const rcclx_team *t, rcclx_kind kind, size_t nbytes)
{
    const int class = nbytes > 1 ? 64 - __builtin_clzll(nbytes - 1) : 0, row = class < RCCLX_TUNED ? t->tuned[kind][class] : 0;
    int n = 0;

    while (rcclx_algos[n])
        n++;
    return row && row <= n && !*t->algo ? rcclx_algos[row - 1] : NULL;
}

static int choose(rcclx_pick *p, rcclx_kind kind, int root, size_t nbytes, unsigned facts, bool small)
{
    const rcclx_team *t = p->team;
    const rcclx_shape s = { kind, t->nranks, t->rank, root, 0, rcclx_team_nodes(t) };
    bool unfit = false;
    /* ranks of one machine reach each other, so sums keep the rank order unless the user asks for another algorithm */
    const bool ordered = t->ordered || (!*t->algo && !t->mirror);
    const rcclx_algo *wish = tuned(t, kind, nbytes), *a = NULL;

    if (wish) /* likewise if a tuner asks for it */
        a = rcclx_algo_choose(&s, nbytes, facts, small, t->ordered, wish->name, &t->machine, &unfit);
    if (!wish || unfit)
        a = rcclx_algo_choose(&s, nbytes, facts, small, ordered, t->algo, &t->machine, &unfit);

    if (!a)
        return -1;
    if (unfit && !p->told) {
        p->told = true;
        RCCLX_INFO_LOG(TUNING, "rank %d: %s of %zu bytes: the algorithm asked for (%s) does not fit, %s runs", t->rank,
                       rcclx_kind_name(kind), nbytes, t->algo, a->name);
    }
    RCCLX_INFO_LOG(TUNING, "%s up to %zu bytes: algorithm %s (facts %#x)%s", rcclx_kind_name(kind), nbytes, a->name, facts,
                   a == wish ? ", by the tuner" : "");
    for (int i = 0; i < p->nalgos; i++)
        if (rcclx_algos[i] == a)
            return i;
    return p->slot;
}

const rcclx_plan *rcclx_pick_plan(rcclx_pick *p, rcclx_kind kind, int root, size_t nbytes, unsigned facts, bool small)
{
    const int class = nbytes > 1 ? 64 - __builtin_clzll(nbytes - 1) : 0;
    uint8_t *c = &p->choice[kind][class][facts & (FACTS - 1)][small];

    if (!*c)
        *c = (uint8_t)(choose(p, kind, root, class < 63 ? (size_t)1 << class : nbytes, facts, small) + 1);
    if (!*c)
        return NULL;
    return plan_of(p, *c - 1, kind, root, false);
}

const rcclx_plan *rcclx_pick_slot(rcclx_pick *p, rcclx_kind kind, int root)
{
    return plan_of(p, p->slot, kind, root, false);
}

const rcclx_plan *rcclx_pick_coded(rcclx_pick *p, rcclx_kind kind, int root)
{
    return plan_of(p, p->staged, kind, root, true);
}
