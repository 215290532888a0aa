/* Which algorithm. Every row of the table is asked once: may it run, is it wished
 * for, what does it cost. The same answers decide and explain. */
#include "algo/algo.h"

#include "algo/list.h"
#include "algo/tune.h"
#include "base/json.h"

#include <math.h>
#include <string.h>

enum { MOST = 32 };

#define KIND(k) (1u << (k))

/* Where peers' buffers are used in place: collectives that never write a peer's
 * OUT, and those that never read a peer's IN. */
static const unsigned only_reads = KIND(RCCLX_ALL_GATHER) | KIND(RCCLX_REDUCE_SCATTER) | KIND(RCCLX_ALL_TO_ALL) |
                                   KIND(RCCLX_ALL_TO_ALLV) | KIND(RCCLX_SCATTER);
static const unsigned only_writes = KIND(RCCLX_GATHER);

/* May it touch peers' buffers in this collective? direct_push reads only where a broadcast is shared. */
static bool reads_peers(const rcclx_algo *a, const rcclx_shape *s)
{
    if (s->nranks == 1 || !(a->flags & RCCLX_NEEDS_READ))
        return false;
    return a == &rcclx_algo_direct_push ? s->kind == RCCLX_BROADCAST && s->nranks > 2 : !(KIND(s->kind) & only_writes);
}

static bool writes_peers(const rcclx_algo *a, const rcclx_shape *s)
{
    if (s->nranks == 1 || !(a->flags & RCCLX_NEEDS_WRITE))
        return false;
    return a == &rcclx_algo_direct_push || !(KIND(s->kind) & only_reads);
}

static const char *why_not(const rcclx_algo *a, const rcclx_shape *s, unsigned facts, bool small)
{
    const unsigned kind = KIND(s->kind), flags = a->flags;

    if (!(a->kinds & kind))
        return "does not do this collective";
    if (flags & RCCLX_DEVICE_ONLY && !(facts & RCCLX_FACT_GPU))
        return "for GPUs";
    if (a->can && !a->can(s))
        return "not for this number of ranks";
    if (flags & RCCLX_NEEDS_SMALL && !small)
        return "the message does not fit a slot";
    if (reads_peers(a, s) && !(facts & (RCCLX_FACT_IN_MAPPED | RCCLX_FACT_CMA)))
        return "peers' input cannot be read in place";
    if (writes_peers(a, s) && !(facts & (RCCLX_FACT_OUT_MAPPED | RCCLX_FACT_CMA)))
        return "peers' output cannot be written in place";
    if (flags & RCCLX_NEEDS_APART && kind & (KIND(RCCLX_ALL_TO_ALL) | KIND(RCCLX_ALL_TO_ALLV)) &&
        !(facts & RCCLX_FACT_APART))
        return "input and output overlap";
    if (facts & RCCLX_FACT_ONE_ROUND && rcclx_kind_reduces(s->kind) && !(flags & RCCLX_HAS_ORDER))
        return "partial results in this type lose too much";
    return NULL;
}

bool rcclx_algo_fits(const rcclx_algo *a, const rcclx_shape *s, unsigned facts, bool small)
{
    return why_not(a, s, facts, small) == NULL;
}

/* --- the decision -------------------------------------------------------- */

typedef struct {
    const char *refused; /* why it cannot run; NULL: it can */
    bool        wished;
    double      ns;
} candidate;

typedef struct {
    candidate rows[MOST];
    int       nrows, chosen;
    bool      forced, forced_failed, measured, nomem;
} decision;

static int cheapest(const decision *d, bool wished)
{
    int best = -1;

    for (int i = 0; i < d->nrows; i++) {
        const candidate *c = &d->rows[i];
        if (!c->refused && (!wished || c->wished) && (best < 0 || c->ns < d->rows[best].ns))
            best = i;
    }
    return best;
}

static int row_of(const decision *d, const rcclx_algo *a)
{
    for (int i = 0; a && i < d->nrows; i++)
        if (rcclx_algos[i] == a)
            return i;
    return -1;
}

/* The chosen row: forced, else measured, else cheapest. `all` prices rows that
 * cannot be chosen too. */
static void decide(decision *d, const rcclx_shape *s, size_t nbytes, unsigned facts, bool small, bool ordered,
                   const char *forced, const rcclx_machine *m, bool all)
{
    const rcclx_algo_wish wish = rcclx_algo_list_wish(forced ? forced : "", s->kind);
    int able = 0;

    memset(d, 0, sizeof(*d));
    for (; rcclx_algos[d->nrows] && d->nrows < MOST; d->nrows++) {
        candidate *c = &d->rows[d->nrows];
        const rcclx_algo *a = rcclx_algos[d->nrows];
        c->refused = why_not(a, s, facts, small);
        if (!c->refused && ordered && rcclx_kind_reduces(s->kind) && !(a->flags & RCCLX_HAS_ORDER))
            c->refused = "does not sum in rank order";
        c->wished = wish.allowed >> d->nrows & 1;
        able += !c->refused && c->wished;
    }
    d->forced = wish.forces && able > 0;
    d->forced_failed = wish.forces && able == 0;
    const int tuned = d->forced || m->untuned ? -1 : row_of(d, rcclx_tune_find(rcclx_tune_table(), s, nbytes));
    d->measured = tuned >= 0 && !d->rows[tuned].refused;
    for (int i = 0; i < d->nrows; i++) {
        candidate *c = &d->rows[i];
        const bool matters = !c->refused && (c->wished || !d->forced) && !d->measured && !(d->forced && able == 1);
        c->ns = matters || (all && !c->refused) ? rcclx_plan_price(rcclx_algos[i], s, nbytes, facts, m) : 0;
    }
    for (int i = 0; i < d->nrows; i++)
        d->nomem |= isnan(d->rows[i].ns);
    d->chosen = d->measured ? tuned : cheapest(d, d->forced);
}

const rcclx_algo *rcclx_algo_choose(const rcclx_shape *s, size_t nbytes, unsigned facts, bool small, bool ordered,
                                    const char *forced, const rcclx_machine *m, bool *forced_failed)
{
    decision d;

    decide(&d, s, nbytes, facts, small, ordered, forced, m, false);
    if (forced_failed)
        *forced_failed = d.forced_failed;
    if (d.nomem)
        return NULL; /* the other ranks know all prices: a choice among fewer may differ from theirs */
    return d.chosen >= 0 ? rcclx_algos[d.chosen] : &rcclx_algo_staged;
}

/* --- the telling ----------------------------------------------------------- */

static const char *reason(const decision *d)
{
    return d->forced ? "forced" : d->measured ? "measured" : "cheapest";
}

static void explain_text(FILE *out, const decision *d, const rcclx_shape *s, size_t nbytes)
{
    fprintf(out, "%s of %d ranks, %zu bytes: %s (%s)\n", rcclx_kind_name(s->kind), s->nranks, nbytes,
            d->chosen >= 0 ? rcclx_algos[d->chosen]->name : "none", reason(d));
    if (d->forced_failed)
        fprintf(out, "  the forced list names nothing that can run here, so it was set aside\n");
    for (int i = 0; i < d->nrows; i++) {
        const candidate *c = &d->rows[i];
        fprintf(out, "%c %-11s", i == d->chosen ? '*' : ' ', rcclx_algos[i]->name);
        if (c->refused)
            fprintf(out, "%12s  %s\n", "-", c->refused);
        else
            fprintf(out, "%9.2f us  %s%s\n", c->ns / 1e3, rcclx_algos[i]->about,
                    d->forced && !c->wished ? " (left out by the forced list)" : "");
    }
}

static void explain_json(FILE *out, const decision *d, const rcclx_shape *s, size_t nbytes)
{
    rcclx_json j;

    rcclx_json_init(&j, out);
    rcclx_json_object_open(&j, NULL);
    rcclx_json_string(&j, "collective", rcclx_kind_word(s->kind));
    rcclx_json_int(&j, "ranks", s->nranks);
    rcclx_json_int(&j, "bytes", (int64_t)nbytes);
    rcclx_json_string(&j, "chosen", d->chosen >= 0 ? rcclx_algos[d->chosen]->name : NULL);
    rcclx_json_string(&j, "reason", reason(d));
    rcclx_json_bool(&j, "forced_failed", d->forced_failed);
    rcclx_json_array_open(&j, "algorithms");
    for (int i = 0; i < d->nrows; i++) {
        const candidate *c = &d->rows[i];
        rcclx_json_object_open(&j, NULL);
        rcclx_json_string(&j, "name", rcclx_algos[i]->name);
        if (c->refused)
            rcclx_json_null(&j, "price_ns");
        else
            rcclx_json_real(&j, "price_ns", c->ns);
        rcclx_json_string(&j, "refused", c->refused);
        rcclx_json_bool(&j, "wished", c->wished);
        rcclx_json_object_close(&j);
    }
    rcclx_json_array_close(&j);
    rcclx_json_object_close(&j);
}

void rcclx_algo_explain(FILE *out, const rcclx_shape *s, size_t nbytes, unsigned facts, bool small, bool ordered,
                        const char *forced, const rcclx_machine *m, bool json)
{
    decision d;

    decide(&d, s, nbytes, facts, small, ordered, forced, m, true);
    if (json)
        explain_json(out, &d, s, nbytes);
    else
        explain_text(out, &d, s, nbytes);
}
