/* How a call on host memory is timed, and checked; on GPUs see perf_device.c.
 *
 *   hot      barrier | call call call ... call |            time / iterations
 *   dirty    (rewrite input, barrier | call |) again        median
 *   --vs     (barrier | ours |, barrier | theirs |) again   medians; the order
 *            changes every time, and with --dirty inputs are rewritten before each
 *
 * In a hot loop a direct algorithm finds its peers' inputs in the caches, which
 * a program that has just computed them does not: dirty is what a training step
 * sees. The clock of each worker is its own, and the caller combines them. */
#include "perf_worker.h"

#include "tool.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GUARD_BYTE = 0xa5, CLEAR_BYTE = 0x5a };

double perf_now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

void perf_must(const perf_worker *w, int side, const perf_rank *r, const char *call, ncclResult_t result)
{
    const nccl_table *lib  = &w->libs[side];
    const char       *last = "";

    if (result == ncclSuccess)
        return;
    if (lib->ncclGetLastError)
        last = lib->ncclGetLastError(NULL);
    tool_fail("perf", "rank %d: %s: %s (%d)%s%s  [%s]", r->rank, call, lib->ncclGetErrorString(result), (int)result,
              last && *last ? ": " : "", last ? last : "", lib->path);
    _exit(TOOL_FAILED);
}

void perf_must_gpu(const perf_rank *r, const char *what, rcclx_status status)
{
    if (status == RCCLX_OK)
        return;
    tool_fail("perf", "rank %d on device %d: %s: %s: %s", r->rank, r->device, what, rcclx_status_text(status),
              rcclx_last_error());
    _exit(TOOL_FAILED);
}

void perf_give_up(const char *text)
{
    tool_fail("perf", "%s", text);
    _exit(TOOL_FAILED);
}

/* --- calls ------------------------------------------------------------------ */

static void group(perf_worker *w, int side, ncclResult_t (*edge)(void), const char *name)
{
    if (w->config->per_thread > 1 || w->config->agg > 1)
        perf_must(w, side, &w->ranks[0], name, edge());
}

/* As many calls of each rank as are aggregated, in one group. */
void perf_issue(perf_worker *w, int side, int place, int calls)
{
    const nccl_table *lib = &w->libs[side];

    group(w, side, lib->ncclGroupStart, "ncclGroupStart");
    for (int m = 0; m < calls; m++)
        for (int i = 0; i < w->config->per_thread; i++) {
            perf_use(w, &w->ranks[i]);
            perf_must(w, side, &w->ranks[i], w->config->op->call, w->config->op->issue(&w->calls[side][place][i]));
        }
    group(w, side, lib->ncclGroupEnd, "ncclGroupEnd");
}

void perf_finish(perf_worker *w, int side)
{
    for (int i = 0; w->gpu && i < w->config->per_thread; i++) {
        perf_use(w, &w->ranks[i]);
        perf_must_gpu(&w->ranks[i], w->config->op->call, w->gpu->stream_sync(w->ranks[i].stream[side]));
    }
    for (int i = 0; !w->gpu && i < w->config->per_thread; i++)
        if (w->ranks[i].stream[side])
            perf_must(w, side, &w->ranks[i], w->config->op->call,
                      w->libs[side].rcclxStreamSynchronize(w->ranks[i].stream[side]));
}

/* Something may have gone wrong behind a call's back. */
void perf_check_async(const perf_worker *w, int side)
{
    for (int i = 0; w->libs[side].ncclCommGetAsyncError && i < w->config->per_thread; i++) {
        ncclResult_t r = ncclSuccess;

        perf_must(w, side, &w->ranks[i], "ncclCommGetAsyncError",
                  w->libs[side].ncclCommGetAsyncError(w->ranks[i].comm[side], &r));
        perf_must(w, side, &w->ranks[i], w->config->op->call, r);
    }
}

static void fill_inputs(const perf_worker *w, int place)
{
    for (int i = 0; i < w->config->per_thread; i++)
        perf_fill(&w->rule, w->ranks[i].rank, 0, (void *)(uintptr_t)w->calls[0][place][i].send, w->extent.send);
}

/* --- timing ----------------------------------------------------------------- */

static double time_one(perf_worker *w, int side, int place)
{
    double start, issued, end;

    if (w->config->dirty)
        fill_inputs(w, place);
    perf_team_barrier(w->team, w->index);
    start = perf_now_us();
    perf_issue(w, side, place, w->config->agg);
    issued = perf_now_us();
    perf_finish(w, side);
    end = perf_now_us();
    return ((w->config->cputime ? issued : end) - start) / w->config->agg;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double perf_median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof(*x), compare);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static double time_hot(perf_worker *w, int side, int place)
{
    double start, cpu = 0, total;

    perf_team_barrier(w->team, w->index);
    start = perf_now_us();
    for (int i = 0; i < w->config->iters; i++) {
        const double before = w->config->cputime ? perf_now_us() : 0;

        perf_issue(w, side, place, w->config->agg);
        if (w->config->cputime)
            cpu += perf_now_us() - before;
        if (w->config->blocking)
            perf_finish(w, side);
        if (w->config->blocking > 1)
            perf_team_barrier(w->team, w->index);
    }
    perf_finish(w, side);
    total = perf_now_us() - start;
    return (w->config->cputime ? cpu : total) / w->config->iters / w->config->agg;
}

static void measure(perf_worker *w, int place, double us[PERF_SIDES])
{
    const int iters = w->config->iters;

    fill_inputs(w, place);
    perf_team_barrier(w->team, w->index);
    for (int side = 0; side < w->nsides; side++) {
        for (int i = 0; i < w->config->warmup; i++)
            perf_issue(w, side, place, w->config->agg);
        perf_finish(w, side);
    }
    if (!w->config->dirty && w->nsides == 1) {
        us[0] = iters ? time_hot(w, 0, place) : 0;
    } else {
        for (int i = 0; i < iters; i++)
            for (int k = 0; k < w->nsides; k++) {
                const int side = (i + k) % w->nsides;

                w->samples[side][i] = time_one(w, side, place);
            }
        for (int side = 0; side < w->nsides; side++)
            us[side] = iters ? perf_median(w->samples[side], iters) : 0;
    }
    for (int side = 0; side < w->nsides; side++)
        perf_check_async(w, side);
    perf_team_barrier(w->team, w->index);
}

/* --- checking ---------------------------------------------------------------- */

/* Where the bytes behind the received elements begin, and are they whole? */
unsigned char *perf_guard(const perf_worker *w, int place, const perf_call *c)
{
    const size_t behind = place ? w->extent.send > w->extent.recv ? w->extent.send : w->extent.recv : w->extent.recv;
    const size_t before = place ? w->config->op->recv_at(w->extent.base, c->rank) : 0;

    return (unsigned char *)c->recv + (behind - before) * c->nbytes;
}

static void prepare(const perf_worker *w, int side, int place)
{
    for (int i = 0; i < w->config->per_thread; i++) {
        const perf_call *c = &w->calls[side][place][i];

        memset(c->recv, CLEAR_BYTE, w->extent.recv * c->nbytes);
        memset(perf_guard(w, place, c), GUARD_BYTE, PERF_GUARD);
        perf_fill(&w->rule, c->rank, 0, (void *)(uintptr_t)c->send, w->extent.send);
    }
}

static long verify(const perf_worker *w, int side, int place)
{
    long wrong = 0;

    for (int i = 0; i < w->config->per_thread; i++) {
        const perf_call     *c     = &w->calls[side][place][i];
        const unsigned char *guard = perf_guard(w, place, c);

        wrong += (long)w->config->op->check(&w->rule, c, &(perf_piece){.got = c->recv, .to = w->extent.recv});
        for (int b = 0; b < PERF_GUARD; b++)
            wrong += guard[b] != GUARD_BYTE;
        if (!place) /* the input must be as it was */
            wrong += (long)perf_check_moved(&w->rule, c->rank, 0, c->send, w->extent.send);
    }
    return wrong;
}

static void check(perf_worker *w, int place, long wrong[PERF_SIDES])
{
    for (int side = 0; side < w->nsides; side++) {
        wrong[side] = w->config->check ? 0 : -1;
        w->rule.codec = perf_codec_of(w, side);
        for (int i = 0; i < w->config->check; i++) {
            w->rule.seed++;
            prepare(w, side, place);
            perf_team_barrier(w->team, w->index);
            perf_issue(w, side, place, 1); /* in place, a second one would reduce the first one's result */
            perf_finish(w, side);
            perf_team_barrier(w->team, w->index);
            wrong[side] += verify(w, side, place);
        }
    }
}

void perf_host_place(perf_worker *w, int place, perf_outcome *o)
{
    measure(w, place, o->us);
    check(w, place, o->wrong);
}
