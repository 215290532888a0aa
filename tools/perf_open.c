/* What a worker needs before it can measure: communicators made from an id that
 * worker 0 hands out, streams, operators; and the way back.
 *
 * A library takes the thread's device for the communicator's, so it is made
 * current before: once where a thread has one rank, back and forth where it has
 * several. */
#include "perf_worker.h"

#include "tool.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void perf_use(perf_worker *w, const perf_rank *r)
{
    if (!w->gpu || w->current == r->device)
        return;
    if (w->current >= 0)
        w->gpu->leave(&w->scope);
    perf_must_gpu(r, "making the device current", w->gpu->enter(&w->scope, r->device));
    w->current = r->device;
}

static ncclUniqueId share_id(perf_worker *w, int side)
{
    ncclUniqueId  id  = {{0}};
    ncclUniqueId *all = calloc((size_t)perf_team_workers(w->team), sizeof(id));

    if (!all)
        perf_give_up("out of memory");
    perf_use(w, &w->ranks[0]);
    if (w->index == 0)
        perf_must(w, side, &w->ranks[0], "ncclGetUniqueId", w->libs[side].ncclGetUniqueId(&id));
    perf_team_gather(w->team, w->index, &id, sizeof(id), all);
    id = all[0];
    free(all);
    return id;
}

static ncclResult_t init_rank(const perf_worker *w, int side, perf_rank *r, ncclUniqueId id)
{
    const nccl_table *lib    = &w->libs[side];
    ncclConfig_t      config = NCCL_CONFIG_INITIALIZER;

    if (!w->config->cta || !lib->ncclCommInitRankConfig)
        return lib->ncclCommInitRank(&r->comm[side], w->nranks, id, r->rank);
    config.CTAPolicy = w->config->cta;
    return lib->ncclCommInitRankConfig(&r->comm[side], w->nranks, id, r->rank, &config);
}

static double open_comms(perf_worker *w, int side)
{
    const nccl_table  *lib   = &w->libs[side];
    const ncclUniqueId id    = share_id(w, side);
    const int          n     = w->config->per_thread;
    const double       start = perf_now_us();

    if (n > 1)
        perf_must(w, side, &w->ranks[0], "ncclGroupStart", lib->ncclGroupStart());
    for (int i = 0; i < n; i++) {
        perf_use(w, &w->ranks[i]);
        perf_must(w, side, &w->ranks[i], "ncclCommInitRank", init_rank(w, side, &w->ranks[i], id));
    }
    if (n > 1)
        perf_must(w, side, &w->ranks[0], "ncclGroupEnd", lib->ncclGroupEnd());
    return perf_now_us() - start;
}

static void open_gpu(perf_worker *w)
{
    for (int i = 0; i < w->config->per_thread; i++) {
        perf_rank       *r = &w->ranks[i];
        rcclx_gpu_stream s = NULL;

        perf_use(w, r);
        if (!w->config->null_stream)
            perf_must_gpu(r, "a stream", w->gpu->stream_create(&s));
        for (int side = 0; side < w->nsides; side++)
            r->stream[side] = s;
        perf_must_gpu(r, "an event", w->gpu->event_create(&r->from, true));
        perf_must_gpu(r, "an event", w->gpu->event_create(&r->to, true));
    }
    perf_must_gpu(&w->ranks[0], "pinned memory", w->gpu->alloc_host(&w->stage, PERF_CHUNK));
}

static void close_gpu(perf_worker *w)
{
    for (int i = 0; i < w->config->per_thread; i++) {
        perf_rank *r = &w->ranks[i];

        perf_use(w, r);
        perf_must_gpu(r, "an event", w->gpu->event_destroy(r->from));
        perf_must_gpu(r, "an event", w->gpu->event_destroy(r->to));
        if (r->stream[0])
            perf_must_gpu(r, "a stream", w->gpu->stream_destroy(r->stream[0]));
    }
    perf_must_gpu(&w->ranks[0], "pinned memory", w->gpu->free_host(w->stage));
    if (w->current >= 0)
        w->gpu->leave(&w->scope);
    w->current = -1;
}

static void open_streams(perf_worker *w, int side)
{
    const nccl_table *lib = &w->libs[side];

    for (int i = 0; i < w->config->per_thread && !w->config->null_stream && lib->rcclxStreamCreate; i++)
        perf_must(w, side, &w->ranks[i], "rcclxStreamCreate", lib->rcclxStreamCreate(&w->ranks[i].stream[side]));
}

/* What was asked for, then what the library says, whoever asked. */
static void open_precision(perf_worker *w)
{
    const nccl_table *lib  = &w->libs[0];
    const char       *name = "off";

    if (w->config->low >= 0 && !lib->rcclxCommSetLowPrecision)
        perf_give_up("--low-precision: the library has no rcclxCommSetLowPrecision");
    for (int i = 0; w->config->low >= 0 && i < w->config->per_thread; i++)
        perf_must(w, 0, &w->ranks[i], "rcclxCommSetLowPrecision",
                  lib->rcclxCommSetLowPrecision(w->ranks[i].comm[0], perf_codec_name(w->config->low), w->config->low_min));
    if (lib->rcclxCommGetLowPrecision)
        perf_must(w, 0, &w->ranks[0], "rcclxCommGetLowPrecision",
                  lib->rcclxCommGetLowPrecision(w->ranks[0].comm[0], &name, &w->codec_min));
    w->codec = tool_word_index("off|fp8|int8", name);
    if (w->codec < 0)
        perf_give_up("the library has a codec whose errors are not known here");
}

double perf_open(perf_worker *w)
{
    double init_us = 0;

    for (int side = 0; side < w->nsides; side++) {
        const double us = open_comms(w, side);

        init_us = side ? init_us : us;
        if (!w->gpu)
            open_streams(w, side);
    }
    open_precision(w);
    if (w->gpu)
        open_gpu(w);
    perf_memory_open(w);
    return init_us;
}

void perf_close(perf_worker *w)
{
    perf_team_barrier(w->team, w->index);
    for (int side = 0; side < w->nsides; side++) {
        perf_memory_deregister(w, side);
        for (int i = 0; !w->gpu && i < w->config->per_thread; i++)
            if (w->ranks[i].stream[side])
                perf_must(w, side, &w->ranks[i], "rcclxStreamDestroy",
                          w->libs[side].rcclxStreamDestroy(w->ranks[i].stream[side]));
        for (int i = 0; i < w->config->per_thread; i++) {
            perf_use(w, &w->ranks[i]);
            perf_must(w, side, &w->ranks[i], "ncclCommDestroy",
                      w->libs[side].ncclCommDestroy(w->ranks[i].comm[side]));
        }
    }
    perf_memory_close(w);
    if (w->gpu)
        close_gpu(w);
}

void perf_premul_open(perf_worker *w)
{
    for (int side = 0; side < w->nsides; side++)
        for (int i = 0; i < w->config->per_thread; i++) {
            perf_rank *r      = &w->ranks[i];
            uint64_t   scalar = perf_scalar(&w->rule, r->rank);

            if (!w->libs[side].ncclRedOpCreatePreMulSum || !w->libs[side].ncclRedOpDestroy)
                perf_give_up("-o mulsum: the library has no ncclRedOpCreatePreMulSum");
            perf_must(w, side, r, "ncclRedOpCreatePreMulSum",
                      w->libs[side].ncclRedOpCreatePreMulSum(&r->premul[side], &scalar, (ncclDataType_t)w->rule.type,
                                                             ncclScalarHostImmediate, r->comm[side]));
        }
}

void perf_premul_close(perf_worker *w)
{
    for (int side = 0; side < w->nsides; side++)
        for (int i = 0; i < w->config->per_thread; i++)
            perf_must(w, side, &w->ranks[i], "ncclRedOpDestroy",
                      w->libs[side].ncclRedOpDestroy(w->ranks[i].premul[side], w->ranks[i].comm[side]));
}
