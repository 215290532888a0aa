/* Buffers, and what the libraries are told of them.
 *
 *   host     one send and one receive buffer a rank, from our own allocator when
 *            there is one; they serve all sides: to another library they are
 *            ordinary memory
 *   GPU      two a side, of the kind that serves that library best: its own
 *            ncclMemAlloc where it is to register them, else the driver's memory
 *
 * Registering a window is a collective call: several ranks of one thread need a
 * group. */
#include "perf_worker.h"

#include "tool.h"

#include <stdlib.h>
#include <string.h>

static const char *const registrations[] = {"not registered", "ncclCommRegister", "symmetric windows"};

const char *perf_registration_name(int registration)
{
    return registrations[registration];
}

/* NCCL 2.28 never comes back from a large broadcast on windows. */
int perf_registration(const perf_config *c, const nccl_table *lib, int side)
{
    const bool hangs = c->kind != PERF_HOST && !lib->rcclxVersion && !strcmp(c->op->word, "broadcast");

    return hangs && c->registration[side] == PERF_WINDOW ? PERF_REGISTERED : c->registration[side];
}

static int registration_of(const perf_worker *w, int side)
{
    return perf_registration(w->config, &w->libs[side], side);
}

/* Does the side's memory come from its library? */
static bool from_library(const perf_config *c, const nccl_table *lib, int side)
{
    return !c->plain && lib->ncclMemAlloc && lib->ncclMemFree &&
           (c->kind == PERF_HOST || c->registration[side] != PERF_UNREGISTERED);
}

const char *perf_buffers(const perf_report *r, int side)
{
    return from_library(r->config, &r->libs[side], side) ? "ncclMemAlloc"
           : r->config->kind == PERF_HOST                ? "malloc"
                                                         : "the driver's memory";
}

static void *make_host(perf_worker *w, perf_rank *r, size_t nbytes)
{
    void *p = NULL;

    if (from_library(w->config, &w->libs[0], 0))
        perf_must(w, 0, r, "ncclMemAlloc", w->libs[0].ncclMemAlloc(&p, nbytes));
    else if (posix_memalign(&p, 4096, nbytes))
        perf_give_up("out of memory for the buffers: make -e smaller");
    memset(p, 0, nbytes);
    return p;
}

static void *make_device(perf_worker *w, int side, perf_rank *r, size_t nbytes)
{
    const char *why = NULL;
    void       *p   = NULL;

    perf_use(w, r);
    if (from_library(w->config, &w->libs[side], side)) {
        perf_must(w, side, r, "ncclMemAlloc", w->libs[side].ncclMemAlloc(&p, nbytes));
    } else if (!(p = perf_gpu_alloc(w->gpu, nbytes, &why))) {
        tool_fail("perf", "rank %d on device %d: no %zu bytes of memory: %s; make -e smaller", r->rank, r->device,
                  nbytes, why);
        exit(TOOL_FAILED);
    }
    perf_must_gpu(r, "clearing a buffer", w->gpu->fill(p, 0, nbytes / 4, r->stream[side]));
    perf_must_gpu(r, "clearing a buffer", w->gpu->stream_sync(r->stream[side]));
    return p;
}

static size_t buffer_bytes(const perf_worker *w)
{
    return (w->config->max + 3) / 4 * 4 + PERF_SLACK;
}

static void make_buffers(perf_worker *w, perf_rank *r)
{
    for (int side = 0; side < w->nsides; side++)
        for (int b = 0; b < 2; b++)
            r->memory[side][b] = w->gpu ? make_device(w, side, r, buffer_bytes(w))
                                 : side ? r->memory[0][b]
                                        : make_host(w, r, buffer_bytes(w));
}

static void register_buffers(perf_worker *w, int side, perf_rank *r)
{
    const nccl_table *lib  = &w->libs[side];
    const int         how  = registration_of(w, side);

    if ((how == PERF_REGISTERED && !lib->ncclCommRegister) || (how == PERF_WINDOW && !lib->ncclCommWindowRegister))
        perf_give_up("-R: the library cannot register memory; use -R 0");
    perf_use(w, r);
    for (int b = 0; b < 2 && how == PERF_REGISTERED; b++)
        perf_must(w, side, r, "ncclCommRegister",
                  lib->ncclCommRegister(r->comm[side], r->memory[side][b], buffer_bytes(w), &r->handle[side][b]));
    for (int b = 0; b < 2 && how == PERF_WINDOW; b++)
        perf_must(w, side, r, "ncclCommWindowRegister",
                  lib->ncclCommWindowRegister(r->comm[side], r->memory[side][b], buffer_bytes(w),
                                              &r->window[side][b], NCCL_WIN_COLL_SYMMETRIC));
}

static void register_all(perf_worker *w, int side)
{
    const bool grouped = registration_of(w, side) == PERF_WINDOW && w->config->per_thread > 1;

    if (grouped)
        perf_must(w, side, &w->ranks[0], "ncclGroupStart", w->libs[side].ncclGroupStart());
    for (int i = 0; i < w->config->per_thread; i++)
        register_buffers(w, side, &w->ranks[i]);
    if (grouped)
        perf_must(w, side, &w->ranks[0], "ncclGroupEnd", w->libs[side].ncclGroupEnd());
}

void perf_memory_open(perf_worker *w)
{
    for (int i = 0; i < w->config->per_thread; i++)
        make_buffers(w, &w->ranks[i]);
    for (int side = 0; side < w->nsides; side++)
        register_all(w, side);
}

void perf_memory_deregister(perf_worker *w, int side)
{
    const nccl_table *lib = &w->libs[side];

    for (int i = 0; i < w->config->per_thread; i++)
        for (int b = 0; b < 2; b++) {
            perf_rank *r = &w->ranks[i];

            perf_use(w, r);
            if (r->handle[side][b] && lib->ncclCommDeregister)
                perf_must(w, side, r, "ncclCommDeregister", lib->ncclCommDeregister(r->comm[side], r->handle[side][b]));
            if (r->window[side][b] && lib->ncclCommWindowDeregister)
                perf_must(w, side, r, "ncclCommWindowDeregister",
                          lib->ncclCommWindowDeregister(r->comm[side], r->window[side][b]));
        }
}

void perf_memory_close(perf_worker *w)
{
    for (int i = 0; i < w->config->per_thread; i++)
        for (int side = 0; side < (w->gpu ? w->nsides : 1); side++)
            for (int b = 0; b < 2; b++) {
                perf_rank *r = &w->ranks[i];

                perf_use(w, r);
                if (from_library(w->config, &w->libs[side], side))
                    perf_must(w, side, r, "ncclMemFree", w->libs[side].ncclMemFree(r->memory[side][b]));
                else if (w->gpu)
                    perf_gpu_free(w->gpu, r->memory[side][b]);
                else
                    free(r->memory[side][b]);
            }
}
