/* A tuner, found and asked. See tuner.h.
 *
 *             LL      LL128   Simple       each cell an algorithm of ours, at its modelled price in
 *   Tree      slot    -       tree         microseconds, as NCCL hands its own; -1: there is none, or
 *   Ring      slot    -       ring         it cannot run. The tuner changes it; the cheapest cell is
 *   ...                                    its choice. A table that it leaves as it was says nothing.
 *
 * The library and its table are kept for the process; a context lives while a communicator
 * asks. */
#include "algo/tuner.h"

#include "algo/tuner_lift.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "base/process.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* What NCCL's words mean here (docs/howto/plugin.md has the same table). */
static const rcclx_algo *const cells[RCCLX_TUNER_ALGOS][RCCLX_TUNER_PROTOS] = {
    [RCCLX_TUNER_TREE]           = { [RCCLX_TUNER_LL] = &rcclx_algo_slot, [RCCLX_TUNER_SIMPLE] = &rcclx_algo_tree },
    [RCCLX_TUNER_RING]           = { [RCCLX_TUNER_LL] = &rcclx_algo_slot, [RCCLX_TUNER_SIMPLE] = &rcclx_algo_ring },
    [RCCLX_TUNER_COLLNET_DIRECT] = { [RCCLX_TUNER_SIMPLE] = &rcclx_algo_staged },
    [RCCLX_TUNER_NVLS]           = { [RCCLX_TUNER_SIMPLE] = &rcclx_algo_direct },
    [RCCLX_TUNER_NVLS_TREE]      = { [RCCLX_TUNER_SIMPLE] = &rcclx_algo_levels },
    [RCCLX_TUNER_PAT]            = { [RCCLX_TUNER_SIMPLE] = &rcclx_algo_doubling },
};

static const struct { rcclx_kind kind; int func; bool gathers; } asked[] = {
    { RCCLX_ALL_REDUCE, RCCLX_TUNER_ALL_REDUCE, false }, { RCCLX_REDUCE_TO, RCCLX_TUNER_REDUCE, false },
    { RCCLX_BROADCAST, RCCLX_TUNER_BROADCAST, false },   { RCCLX_ALL_GATHER, RCCLX_TUNER_ALL_GATHER, true },
    { RCCLX_REDUCE_SCATTER, RCCLX_TUNER_REDUCE_SCATTER, true },
};

typedef struct {
    const rcclx_tuner_version *v; /* NULL: none */
    const void                *table;
    char                       file[256], why[400];
} tuner;

/* --- found ------------------------------------------------------------------------------- */

static bool look_in(tuner *t, const char *prefix, const char *file, size_t n)
{
    snprintf(t->file, sizeof(t->file), "%.*s", (int)n, file);
    void *library = rcclx_library_open(prefix, t->file, t->why, sizeof(t->why));

    for (const rcclx_tuner_version *v = rcclx_tuner_versions; library && v->version && !t->table; v++)
        if ((t->table = dlsym(library, v->symbol)))
            t->v = v;
    if (library && !t->v)
        snprintf(t->why, sizeof(t->why), "it exports none of ncclTunerPlugin_v2 to ncclTunerPlugin_v6");
    if (!*t->file)
        snprintf(t->file, sizeof(t->file), "%s.so", prefix);
    return t->v != NULL;
}

/* The first library of a list with a tuner. */
static bool look_through(tuner *t, const char *prefix, const char *list)
{
    for (size_t n; strcasecmp(list, "none") && *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        if (n && look_in(t, prefix, list, n))
            return true;
    }
    return false;
}

static void find(tuner *t)
{
    const char *list = rcclx_option_str(RCCLX_OPT_TUNER_PLUGIN);
    const bool asked_for = *list && strcasecmp(list, "none");

    if (*list ? look_through(t, "libnccl-tuner", list)
              : look_in(t, "libnccl-tuner", "", 0) || look_through(t, "libnccl-net", rcclx_option_str(RCCLX_OPT_NET_PLUGIN)))
        RCCLX_INFO_LOG(TUNING, "TUNER/Plugin: Loaded %s (%s, v%d)", t->v->name(t->table), t->file, t->v->version);
    else if (asked_for)
        RCCLX_WARN_LOG("TUNER/Plugin: %s is not used: %s", list, t->why);
}

static const tuner *of_process(void)
{
    rcclx_process_state *p = rcclx_process();

    pthread_mutex_lock(&p->lock);
    tuner *t = p->tuner;
    if (!t && (t = p->tuner = RCCLX_NEW(tuner)))
        find(t);
    pthread_mutex_unlock(&p->lock);
    return t;
}

bool rcclx_tuner_tell(char *text, size_t n)
{
    const tuner *t = of_process();

    if (t && t->v)
        snprintf(text, n, "%s (%s, v%d)", t->v->name(t->table), t->file, t->v->version);
    else
        snprintf(text, n, "%s%s%s", t && rcclx_option_is_set(RCCLX_OPT_TUNER_PLUGIN) ? t->file : "",
                 t && *t->file && rcclx_option_is_set(RCCLX_OPT_TUNER_PLUGIN) ? " is not used: " : "",
                 t && rcclx_option_is_set(RCCLX_OPT_TUNER_PLUGIN) ? t->why : "");
    return t && t->v;
}

/* --- asked ---------------------------------------------------------------------------------- */

static void price(const rcclx_tuner_job *job, rcclx_kind kind, size_t nbytes, rcclx_tuner_costs cost)
{
    const rcclx_shape s = { kind, job->nranks, 0, 0, 0, job->node };
    const unsigned facts = RCCLX_FACT_APART | (job->nnodes > 1 ? 0 : RCCLX_FACT_IN_MAPPED | RCCLX_FACT_OUT_MAPPED);

    for (int a = 0; a < RCCLX_TUNER_ALGOS; a++)
        for (int p = 0; p < RCCLX_TUNER_PROTOS; p++) {
            const rcclx_algo *mine = cells[a][p];
            const bool fits = mine && rcclx_algo_fits(mine, &s, facts, nbytes <= job->slot_max);
            const double ns = fits ? rcclx_plan_price(mine, &s, nbytes, facts, &job->machine) : NAN;
            cost[a][p] = isnan(ns) ? (float)RCCLX_TUNER_IGNORE : (float)(ns / 1e3);
        }
}

/* The cheapest cell that had a price; false: the tuner's numbers are none, or it wants what there is not. */
static bool cheapest(rcclx_tuner_costs before, rcclx_tuner_costs after, const rcclx_algo **best)
{
    float least = INFINITY;

    *best = NULL;
    for (int a = 0; a < RCCLX_TUNER_ALGOS; a++)
        for (int p = 0; p < RCCLX_TUNER_PROTOS; p++) {
            const float c = after[a][p];
            if (isnan(c) || (c < 0 && c != (float)RCCLX_TUNER_IGNORE))
                return false;
            if (before[a][p] >= 0 && c >= 0 && c < least) {
                least = c;
                *best = cells[a][p];
            }
        }
    return *best != NULL;
}

static uint8_t row_of(const rcclx_algo *a)
{
    for (int i = 0; rcclx_algos[i]; i++)
        if (rcclx_algos[i] == a)
            return (uint8_t)(i + 1);
    return 0;
}

/* 0: it does not say; *result: what it returned, -1 for nonsense. */
static uint8_t ask(const tuner *t, void *context, const rcclx_tuner_job *job, int which, size_t nbytes, int *result)
{
    rcclx_tuner_costs before, after;
    const rcclx_algo *best = NULL;

    price(job, asked[which].kind, nbytes, before);
    memcpy(after, before, sizeof(after));
    const size_t total = asked[which].gathers ? nbytes * (size_t)job->nranks : nbytes; /* NCCL counts all of it */
    *result = t->v->ask(t->table, context, asked[which].func, total, after);
    if (*result || !memcmp(before, after, sizeof(after)))
        return 0;
    *result = cheapest(before, after, &best) ? 0 : -1;
    return *result ? 0 : row_of(best);
}

static void complain(const tuner *t, const char *what, int result)
{
    char words[160];

    rcclx_library_words(words, sizeof(words));
    RCCLX_WARN_LOG("TUNER/Plugin: %s (%s): %s: %s%s%s; what it does not say is chosen as without it", t->v->name(t->table), t->file, what,
                   result < 0 ? "a cost that is no number, or nothing that could run" : rcclx_library_result(result),
                   *words ? ": " : "", words);
}

void rcclx_tuner_ask(const rcclx_tuner_job *job, uint8_t *choice, int nclasses)
{
    const tuner *t = of_process();
    void *context = NULL;
    int result, first = 0, said = 0;

    if (!t || !t->v || job->nranks < 2)
        return;
    if ((result = t->v->init(t->table, job, &context))) {
        complain(t, "its init failed", result);
        return;
    }
    for (int k = 0; k < (int)(sizeof(asked) / sizeof(*asked)); k++)
        for (int c = 0; c < nclasses; c++) {
            uint8_t *to = &choice[asked[k].kind * nclasses + c];
            *to = ask(t, context, job, k, (size_t)1 << c, &result);
            first = first ? first : result;
            said += *to != 0;
        }
    if (first)
        complain(t, "some of its answers are left out", first);
    t->v->end(t->table, context);
    RCCLX_INFO_LOG(TUNING, "TUNER/Plugin: %s chooses for %d of %d collectives and sizes", t->v->name(t->table), said,
                   nclasses * (int)(sizeof(asked) / sizeof(*asked)));
}
