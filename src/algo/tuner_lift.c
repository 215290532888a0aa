/* Tuners of every version, asked alike: each changes a table of costs. Version 2 names a
 * cell, which then costs nothing. */
#include "algo/tuner_lift.h"

enum { UNSET = -1 };

/* The name is the first entry of all of them. */
static const char *name(const void *table)
{
    const char *text = ((const rcclx_tuner_v2 *)table)->name;

    return text ? text : "";
}

static int init_2(const void *table, const rcclx_tuner_job *job, void **context)
{
    const rcclx_tuner_v2 *t = table; /* as 3 and 4 */

    return t->init((size_t)job->nranks, (size_t)job->nnodes, rcclx_library_log, context);
}

static int init_5(const void *table, const rcclx_tuner_job *job, void **context)
{
    const rcclx_tuner_v5 *t = table;
    rcclx_tuner_constants none = { .base = { { 0 } } }; /* of NCCL's model, which is not ours */
    rcclx_tuner_domains d = { .ndomains = job->nnodes, .min_ranks = job->nranks };

    for (int k = 0; k < job->nnodes; k++) {
        int n = 0;
        for (int r = 0; r < job->nranks; r++)
            n += !job->node || job->node[r] == k;
        d.min_ranks = n < d.min_ranks ? n : d.min_ranks;
        d.max_ranks = n > d.max_ranks ? n : d.max_ranks;
    }
    return t->init(context, job->id, (size_t)job->nranks, (size_t)job->nnodes, rcclx_library_log, &d, &none);
}

static int ask_2(const void *table, void *context, int func, size_t nbytes, rcclx_tuner_costs cost)
{
    int algo = UNSET, proto = UNSET, nchannels = 0;
    const int r = ((const rcclx_tuner_v2 *)table)->ask(context, func, nbytes, 0, 0, 1, &algo, &proto, &nchannels);

    if (r || (algo == UNSET && proto == UNSET))
        return r;
    if (algo < 0 || algo >= RCCLX_TUNER_ALGOS || proto < 0 || proto >= RCCLX_TUNER_PROTOS)
        return -1;
    if (cost[algo][proto] != (float)RCCLX_TUNER_IGNORE)
        cost[algo][proto] = 0;
    return 0;
}

static int ask_3(const void *table, void *context, int func, size_t nbytes, rcclx_tuner_costs cost)
{
    int nchannels = 0;

    return ((const rcclx_tuner_v3 *)table)->ask(context, func, nbytes, 1, (float **)(void *)cost, RCCLX_TUNER_ALGOS, RCCLX_TUNER_PROTOS,
                                                &nchannels);
}

static int ask_4(const void *table, void *context, int func, size_t nbytes, rcclx_tuner_costs cost)
{
    int nchannels = 0;

    return ((const rcclx_tuner_v4 *)table)->ask(context, func, nbytes, 1, (float **)(void *)cost, RCCLX_TUNER_ALGOS, RCCLX_TUNER_PROTOS,
                                                0, &nchannels);
}

static int ask_5(const void *table, void *context, int func, size_t nbytes, rcclx_tuner_costs cost)
{
    int nchannels = 0;

    return ((const rcclx_tuner_v5 *)table)->ask(context, func, nbytes, 1, (float **)(void *)cost, RCCLX_TUNER_ALGOS, RCCLX_TUNER_PROTOS,
                                                0, &nchannels);
}

static int end_2(const void *table, void *context)
{
    const rcclx_tuner_v2 *t = table; /* the entry is the same in all of them */

    return t->end ? t->end(context) : 0;
}

const rcclx_tuner_version rcclx_tuner_versions[] = {
    { 6, "ncclTunerPlugin_v6", name, init_5, ask_5, end_2 },
    { 5, "ncclTunerPlugin_v5", name, init_5, ask_5, end_2 },
    { 4, "ncclTunerPlugin_v4", name, init_2, ask_4, end_2 },
    { 3, "ncclTunerPlugin_v3", name, init_2, ask_3, end_2 },
    { 2, "ncclTunerPlugin_v2", name, init_2, ask_2, end_2 },
    { .version = 0 },
};
