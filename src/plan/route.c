/* Two passes over the far ranks' plans: the first counts, the second writes down. What a
 * rank needs of me is gathered by phase, and then dealt to my signals:
 *
 *   rank q   WAIT me 1 | slot 0 | WAIT me 2 | slot 3, slot 4
 *   need     [1]: slot 0          [2]: slots 3, 4
 *   me       SIGNAL 1 -> (q: 0)   SIGNAL 2 -> (q: 3, 4) */
#include "plan/route.h"

#include "base/mem.h"

#include <string.h>

/* What rank q needs of me: of each phase whether, and bits of slots. */
typedef struct {
    bool     *waits;
    uint64_t *slots; /* [phase][words] */
    size_t    words;
    int       nphases;
} need;

static bool reads_of(const rcclx_step *s, const rcclx_ref *ref, int me)
{
    return ref->buf == RCCLX_SCRATCH && s->proto == RCCLX_PROTO_SIMPLE && ref->rank == me;
}

static void note_step(need *w, const rcclx_plan *p, const rcclx_step *s, int me, int *phase)
{
    if (s->op == RCCLX_STEP_WAIT && (s->peer == me || s->peer == RCCLX_ALL) && s->phase && s->phase <= w->nphases) {
        w->waits[s->phase] = true;
        if (s->lag == RCCLX_LAG_NONE && s->phase > *phase)
            *phase = s->phase;
    }
    if (s->op != RCCLX_STEP_COPY && s->op != RCCLX_STEP_REDUCE)
        return;
    for (int k = 0; k < s->nsrc; k++) {
        const rcclx_ref *ref = &p->refs[s->first + (uint32_t)k];
        for (int b = 0; reads_of(s, ref, me) && b < s->nblk; b++) {
            const size_t slot = (size_t)ref->block + (size_t)b;
            w->slots[(size_t)*phase * w->words + slot / 64] |= (uint64_t)1 << slot % 64;
        }
    }
}

/* Only what I see, and their scratch. */
static bool keeps_to_scratch(const rcclx_plan *p, const bool *far)
{
    for (uint32_t i = 0; i < p->nsteps; i++) {
        const rcclx_step *s = &p->steps[i];
        for (int k = 0; k < s->nsrc + s->ndst; k++) {
            const rcclx_ref *ref = &p->refs[s->first + (uint32_t)k];
            if (far[ref->rank] && ref->rank != p->shape.rank && (ref->buf != RCCLX_SCRATCH || k >= s->nsrc))
                return false;
        }
    }
    return true;
}

static rcclx_status learn(need *w, const rcclx_algo *a, const rcclx_plan *mine, int q)
{
    rcclx_shape theirs = mine->shape;
    rcclx_plan p = { .nsteps = 0 };
    int phase = 0;

    theirs.rank = q;
    a->build(&p, &theirs);
    memset(w->waits, 0, (size_t)(w->nphases + 1) * sizeof(*w->waits));
    memset(w->slots, 0, (size_t)(w->nphases + 1) * w->words * sizeof(*w->slots));
    for (uint32_t i = 0; p.status == RCCLX_OK && i < p.nsteps; i++)
        note_step(w, &p, &p.steps[i], mine->shape.rank, &phase);
    const rcclx_status s = p.status;
    rcclx_plan_fini(&p);
    return s;
}

static bool more(void **list, uint32_t n, size_t each)
{
    if (n & (n - 1) || (n && n < 16)) /* full at 16, 32, 64 ... */
        return true;
    void *p = rcclx_mem_realloc(*list, (n ? 2 * (size_t)n : 16) * each);
    if (p)
        *list = p;
    return p != NULL;
}

static rcclx_status deal(rcclx_routes *r, const need *w, const rcclx_step *s, int q)
{
    if (s->op != RCCLX_STEP_SIGNAL || !w->waits[s->phase])
        return RCCLX_OK;
    if (!more((void **)&r->deliveries, r->ndeliveries, sizeof(*r->deliveries)))
        return RCCLX_NOMEM;
    rcclx_delivery *d = &r->deliveries[r->ndeliveries++];
    *d = (rcclx_delivery){ .rank = (uint16_t)q, .first = r->nslots };
    for (size_t slot = 0; slot < 64 * w->words; slot++) {
        if (!(w->slots[s->phase * w->words + slot / 64] >> slot % 64 & 1))
            continue;
        if (!more((void **)&r->slots, r->nslots, sizeof(*r->slots)))
            return RCCLX_NOMEM;
        r->slots[r->nslots++] = (uint16_t)slot;
        d->nslots++;
    }
    return RCCLX_OK;
}

/* Deliveries come rank by rank; steps want them step by step. */
static rcclx_status sort(rcclx_routes *r, const uint32_t *step, uint32_t nsteps)
{
    rcclx_delivery *sorted = rcclx_mem_alloc((r->ndeliveries + 1) * sizeof(*sorted));
    uint32_t n = 0;

    if (!sorted)
        return RCCLX_NOMEM;
    for (uint32_t i = 0; i < nsteps; i++) {
        r->at[i] = n;
        for (uint32_t k = 0; k < r->ndeliveries; k++)
            if (step[k] == i)
                sorted[n++] = r->deliveries[k];
    }
    r->at[nsteps] = n;
    rcclx_mem_free(r->deliveries);
    r->deliveries = sorted;
    return RCCLX_OK;
}

static rcclx_status gather(rcclx_routes *r, need *w, const rcclx_algo *a, const rcclx_plan *mine, const bool *far)
{
    uint32_t *step = NULL;
    rcclx_status s = RCCLX_OK;

    for (int q = 0; s == RCCLX_OK && q < mine->shape.nranks; q++) {
        if (!far[q] || q == mine->shape.rank)
            continue;
        s = learn(w, a, mine, q);
        for (uint32_t i = 0; s == RCCLX_OK && i < mine->nsteps; i++) {
            const uint32_t before = r->ndeliveries;
            if (!more((void **)&step, before, sizeof(*step)))
                s = RCCLX_NOMEM;
            else if ((s = deal(r, w, &mine->steps[i], q)) == RCCLX_OK && r->ndeliveries > before)
                step[before] = i;
        }
    }
    if (s == RCCLX_OK)
        s = sort(r, step, mine->nsteps);
    rcclx_mem_free(step);
    return s;
}

rcclx_status rcclx_routes_build(rcclx_routes *r, const rcclx_algo *a, const rcclx_plan *mine, const bool *far)
{
    need w = { .words = (mine->nslots + 64u) / 64, .nphases = mine->nphases };
    rcclx_status s = RCCLX_NOMEM;

    memset(r, 0, sizeof(*r));
    if (!keeps_to_scratch(mine, far))
        return RCCLX_UNSUPPORTED;
    w.waits = rcclx_mem_alloc((size_t)(w.nphases + 1) * sizeof(*w.waits));
    w.slots = rcclx_mem_alloc((size_t)(w.nphases + 1) * w.words * sizeof(*w.slots));
    r->at = rcclx_mem_alloc((mine->nsteps + 1) * sizeof(*r->at));
    if (w.waits && w.slots && r->at)
        s = gather(r, &w, a, mine, far);
    rcclx_mem_free(w.waits);
    rcclx_mem_free(w.slots);
    if (s != RCCLX_OK)
        rcclx_routes_fini(r);
    return s;
}

void rcclx_routes_fini(rcclx_routes *r)
{
    rcclx_mem_free(r->at);
    rcclx_mem_free(r->deliveries);
    rcclx_mem_free(r->slots);
    memset(r, 0, sizeof(*r));
}
