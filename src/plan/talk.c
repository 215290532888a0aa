/* Read off all ranks' plans, step by step. See talk.h. */
#include "plan/talk.h"

#include "plan/ranks.h"

#include <string.h>

static uint64_t bit(int r)
{
    return (uint64_t)1 << r;
}

/* Far ranks of r. */
static uint64_t far_of(const uint8_t *node, int n, int r)
{
    uint64_t far = 0;

    for (int q = 0; q < n; q++)
        far |= node[q] != node[r] ? bit(q) : 0;
    return far;
}

static void both(uint64_t *words, int r, uint64_t with)
{
    words[r] |= with;
    for (int q = 0; q < RCCLX_TALKERS; q++)
        if (with >> q & 1)
            words[q] |= bit(r);
}

/* Ranks whose LL slot a step reads, or whose other memory it touches. */
static uint64_t touches(const rcclx_plan *p, const rcclx_step *s, bool slots)
{
    uint64_t ranks = 0;

    for (int k = 0; k < s->nsrc + s->ndst; k++) {
        const rcclx_ref *ref = &p->refs[s->first + (uint32_t)k];
        if (rcclx_ranks_is_slot(s, ref) == slots)
            ranks |= bit(ref->rank);
    }
    return ranks;
}

/* 1: writes scratch, 2: its LL slot. */
static int writes(const rcclx_plan *p, const rcclx_step *s)
{
    int what = 0;

    for (int k = s->nsrc; k < s->nsrc + s->ndst; k++) {
        const rcclx_ref *ref = &p->refs[s->first + (uint32_t)k];
        if (ref->buf == RCCLX_SCRATCH)
            what |= rcclx_ranks_is_slot(s, ref) ? 2 : 1;
    }
    return what;
}

static void look_at(rcclx_talk *t, const rcclx_plan *p, int r, uint64_t far, uint64_t *early)
{
    bool wrote = false;

    for (uint32_t i = 0; i < p->nsteps; i++) {
        const rcclx_step *s = &p->steps[i];
        const bool moves = s->op == RCCLX_STEP_COPY || s->op == RCCLX_STEP_REDUCE;
        const uint64_t waits = s->op != RCCLX_STEP_WAIT ? 0 : s->peer == RCCLX_ALL ? far : bit(s->peer) & far;
        const uint64_t reads = moves ? touches(p, s, false) & far : s->op == RCCLX_STEP_WAIT && s->phase ? waits : 0;
        const uint64_t hears = moves ? touches(p, s, true) & far : s->op == RCCLX_STEP_WAIT && !s->phase && !p->pieced ? waits : 0;
        both(t->reads, r, reads);
        for (int q = 0; q < RCCLX_TALKERS; q++)
            if (hears >> q & 1)
                t->tells[q] |= bit(r);
        if (!wrote)
            *early |= hears;
        wrote |= moves && writes(p, s) & 1;
        t->writes |= moves && writes(p, s) & 1;
    }
}

void rcclx_talk_find(rcclx_talk *t, const rcclx_plan *plans, int nranks, const uint8_t *node)
{
    uint64_t early[RCCLX_TALKERS] = { 0 };

    memset(t, 0, sizeof(*t));
    for (int r = 0; r < nranks; r++)
        look_at(t, &plans[r], r, far_of(node, nranks, r), &early[r]);
    for (int r = 0; r < nranks; r++) {
        t->tells[r] |= t->reads[r];
        if (plans->pieced)
            t->heard[r] = t->reads[r];
        for (int q = 0; q < nranks; q++)
            if (early[r] >> q & early[q] >> r & 1)
                t->heard[r] |= bit(q);
    }
}

bool rcclx_talk_meets(const rcclx_talk *t, int nranks, uint64_t *since)
{
    bool meets = false;

    for (int r = 0; r < nranks; r++)
        meets |= t && t->writes && since[r] & ~t->heard[r];
    for (int r = 0; r < nranks; r++)
        since[r] = t ? (meets ? 0 : since[r] & ~t->heard[r]) | t->reads[r] : ~(uint64_t)0;
    return meets;
}
