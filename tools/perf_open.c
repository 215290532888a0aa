/* What a worker needs before it can measure: communicators made from an id that
 * worker 0 hands out, streams, buffers, registrations, operators; and the way
 * back. Buffers come from our own allocator when there is one, and serve both
 * libraries: to the other one they are ordinary memory. */
#include "perf_worker.h"

#include "tool.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLACK = 4096 }; /* behind a buffer: guard bytes, and the offset of -u */

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void give_up(const char *text)
{
    tool_fail("perf", "%s", text);
    _exit(TOOL_FAILED);
}

static ncclUniqueId share_id(const perf_worker *w, int side)
{
    ncclUniqueId  id  = {{0}};
    ncclUniqueId *all = calloc((size_t)perf_team_workers(w->team), sizeof(id));

    if (!all)
        give_up("out of memory");
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
    const double       start = now_us();

    if (n > 1)
        perf_must(w, side, &w->ranks[0], "ncclGroupStart", lib->ncclGroupStart());
    for (int i = 0; i < n; i++)
        perf_must(w, side, &w->ranks[i], "ncclCommInitRank", init_rank(w, side, &w->ranks[i], id));
    if (n > 1)
        perf_must(w, side, &w->ranks[0], "ncclGroupEnd", lib->ncclGroupEnd());
    return now_us() - start;
}

static void open_streams(perf_worker *w, int side)
{
    const nccl_table *lib = &w->libs[side];

    for (int i = 0; i < w->config->per_thread && !w->config->null_stream && lib->rcclxStreamCreate; i++)
        perf_must(w, side, &w->ranks[i], "rcclxStreamCreate", lib->rcclxStreamCreate(&w->ranks[i].stream[side]));
}

static void open_buffers(perf_worker *w, perf_rank *r)
{
    const nccl_table *lib    = &w->libs[0];
    const size_t      nbytes = w->config->max + SLACK;

    for (int b = 0; b < 2; b++) {
        void *p = NULL;

        if (!w->config->plain && lib->ncclMemAlloc && lib->ncclMemFree)
            perf_must(w, 0, r, "ncclMemAlloc", lib->ncclMemAlloc(&p, nbytes));
        else if (posix_memalign(&p, 4096, nbytes))
            give_up("out of memory for the buffers: make -e smaller");
        memset(p, 0, nbytes);
        r->memory[b] = p;
    }
}

static void register_buffers(perf_worker *w, int side, perf_rank *r)
{
    const nccl_table *lib    = &w->libs[side];
    const size_t      nbytes = w->config->max + SLACK;

    if ((w->config->registration == 1 && !lib->ncclCommRegister) ||
        (w->config->registration == 2 && !lib->ncclCommWindowRegister))
        give_up("-R: the library cannot register memory");
    for (int b = 0; b < 2 && w->config->registration == 1; b++)
        perf_must(w, side, r, "ncclCommRegister",
                  lib->ncclCommRegister(r->comm[side], r->memory[b], nbytes, &r->handle[side][b]));
    for (int b = 0; b < 2 && w->config->registration == 2; b++)
        perf_must(w, side, r, "ncclCommWindowRegister",
                  lib->ncclCommWindowRegister(r->comm[side], r->memory[b], nbytes, &r->window[side][b],
                                              NCCL_WIN_COLL_SYMMETRIC));
}

/* Registering a window is a collective call: several ranks of one thread need a group. */
static void register_all(perf_worker *w, int side)
{
    const bool grouped = w->config->registration == 2 && w->config->per_thread > 1;

    if (grouped)
        perf_must(w, side, &w->ranks[0], "ncclGroupStart", w->libs[side].ncclGroupStart());
    for (int i = 0; i < w->config->per_thread; i++)
        register_buffers(w, side, &w->ranks[i]);
    if (grouped)
        perf_must(w, side, &w->ranks[0], "ncclGroupEnd", w->libs[side].ncclGroupEnd());
}

double perf_open(perf_worker *w)
{
    double init_us = 0;

    for (int side = 0; side < w->nsides; side++) {
        const double us = open_comms(w, side);

        init_us = side ? init_us : us;
        open_streams(w, side);
    }
    for (int i = 0; i < w->config->per_thread; i++)
        open_buffers(w, &w->ranks[i]);
    for (int side = 0; side < w->nsides; side++)
        register_all(w, side);
    return init_us;
}

static void close_rank(perf_worker *w, int side, perf_rank *r)
{
    const nccl_table *lib = &w->libs[side];

    for (int b = 0; b < 2; b++) {
        if (r->handle[side][b] && lib->ncclCommDeregister)
            perf_must(w, side, r, "ncclCommDeregister", lib->ncclCommDeregister(r->comm[side], r->handle[side][b]));
        if (r->window[side][b] && lib->ncclCommWindowDeregister)
            perf_must(w, side, r, "ncclCommWindowDeregister",
                      lib->ncclCommWindowDeregister(r->comm[side], r->window[side][b]));
    }
    if (r->stream[side])
        perf_must(w, side, r, "rcclxStreamDestroy", lib->rcclxStreamDestroy(r->stream[side]));
}

void perf_close(perf_worker *w)
{
    const nccl_table *own = &w->libs[0];

    perf_team_barrier(w->team, w->index);
    for (int side = 0; side < w->nsides; side++) {
        for (int i = 0; i < w->config->per_thread; i++)
            close_rank(w, side, &w->ranks[i]);
        for (int i = 0; i < w->config->per_thread; i++)
            perf_must(w, side, &w->ranks[i], "ncclCommDestroy",
                      w->libs[side].ncclCommDestroy(w->ranks[i].comm[side]));
    }
    for (int i = 0; i < w->config->per_thread; i++)
        for (int b = 0; b < 2; b++) {
            if (!w->config->plain && own->ncclMemAlloc && own->ncclMemFree)
                perf_must(w, 0, &w->ranks[i], "ncclMemFree", own->ncclMemFree(w->ranks[i].memory[b]));
            else
                free(w->ranks[i].memory[b]);
        }
}

void perf_premul_open(perf_worker *w)
{
    for (int side = 0; side < w->nsides; side++)
        for (int i = 0; i < w->config->per_thread; i++) {
            perf_rank *r      = &w->ranks[i];
            uint64_t   scalar = perf_scalar(&w->rule, r->rank);

            if (!w->libs[side].ncclRedOpCreatePreMulSum || !w->libs[side].ncclRedOpDestroy)
                give_up("-o mulsum: the library has no ncclRedOpCreatePreMulSum");
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
