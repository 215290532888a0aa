/* How a call on GPUs is timed, and checked.
 *
 *   warm up     calls of every side
 *   check       new inputs, outputs poisoned | call | copied back and compared
 *   measure     --repeats times, the sides in turns:
 *
 *       barrier | run-in | event | calls, or launches of a graph of calls | event
 *
 * The run-in, not timed, is what the ranks meet in: they leave it at the same
 * moment, and by then the host has handed over what is timed. Of a measurement
 * the slowest rank counts (-a), and of the measurements the median. */
#include "perf_worker.h"

#include "tool.h"

#include <stdlib.h>
#include <string.h>

enum {
    WHOLE = 64 << 20,     /* what is longer is checked in pieces: head, tail, and */
    PIECE = 1 << 20, PIECES = 14,
    LARGE = 16 << 20, FEW = 4, /* bytes from which calls are this few */
};

static const uint32_t poison_word = 0xffffffffu;

static rcclx_gpu_stream stream_of(const perf_rank *r)
{
    return r->stream[0];
}

static void move(perf_worker *w, const perf_rank *r, void *to, const void *from, size_t nbytes)
{
    perf_must_gpu(r, "copying", w->gpu->copy(to, from, nbytes, stream_of(r)));
}

static void sync_rank(perf_worker *w, const perf_rank *r)
{
    perf_must_gpu(r, "copying", w->gpu->stream_sync(stream_of(r)));
}

/* --- data --------------------------------------------------------------------- */

/* The input of a rank, made once for all sides. */
static void fill_rank(perf_worker *w, int place, int i)
{
    const perf_rank *r    = &w->ranks[i];
    const size_t     most = PERF_CHUNK / w->rule.nbytes;
    size_t           n;

    perf_use(w, r);
    for (size_t at = 0; at < w->extent.send; at += n) {
        n = w->extent.send - at < most ? w->extent.send - at : most;
        perf_fill(&w->rule, r->rank, at, w->stage, n);
        for (int side = 0; side < w->nsides; side++)
            move(w, r, (void *)(uintptr_t)(w->calls[side][place][i].send + at * w->rule.nbytes), w->stage,
                 n * w->rule.nbytes);
        sync_rank(w, r);
    }
}

/* Everything that may be written to, and the guard behind it. */
static void poison_rank(perf_worker *w, int place, int i)
{
    const perf_rank *r     = &w->ranks[i];
    const size_t     both = w->extent.send > w->extent.recv ? w->extent.send : w->extent.recv;
    const size_t     count = (size_t)w->config->unalign + (place ? both : w->extent.recv);

    perf_use(w, r);
    for (int side = 0; side < w->nsides; side++)
        perf_must_gpu(r, "poisoning the output",
                      w->gpu->fill(r->memory[side][1], poison_word, (count * w->rule.nbytes + PERF_GUARD + 3) / 4,
                                   stream_of(r)));
}

static void fill(perf_worker *w, int place, bool poison)
{
    for (int i = 0; i < w->config->per_thread; i++) {
        if (poison)
            poison_rank(w, place, i);
        fill_rank(w, place, i);
    }
}

/* --- checking ------------------------------------------------------------------ */

static size_t pick(uint64_t x, size_t range)
{
    x ^= x >> 31;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return (size_t)((x ^ x >> 32) % range);
}

/* The k-th piece of a buffer of count elements that is looked at; false: no more. */
static bool piece_of(const perf_worker *w, size_t count, int rank, int k, perf_piece *p)
{
    const bool   whole = count * w->rule.nbytes <= WHOLE;
    const size_t most  = (whole ? PERF_CHUNK : PIECE) / w->rule.nbytes;

    if (whole)
        p->from = (size_t)k * most;
    else if (k < 2)
        p->from = k ? count - most : 0;
    else if (k < 2 + PIECES)
        p->from = pick((uint64_t)w->rule.seed << 32 ^ (uint64_t)rank << 8 ^ (uint64_t)k, count - most);
    else
        return false;
    p->to  = count - p->from < most ? count : p->from + most;
    p->got = w->stage;
    return p->from < count;
}

static void fetch(perf_worker *w, const perf_rank *r, const char *from, const perf_piece *p)
{
    move(w, r, w->stage, from + p->from * w->rule.nbytes, (p->to - p->from) * w->rule.nbytes);
    sync_rank(w, r);
}

static long verify_rank(perf_worker *w, int side, int place, int i)
{
    const perf_rank *r = &w->ranks[i];
    const perf_call *c = &w->calls[side][place][i];
    perf_piece       p;
    long             wrong = 0;

    perf_use(w, r);
    w->rule.codec = perf_codec_of(w, side);
    for (int k = 0; piece_of(w, w->extent.recv, r->rank, k, &p); k++) {
        fetch(w, r, c->recv, &p);
        wrong += (long)w->config->op->check(&w->rule, c, &p);
    }
    for (int k = 0; !place && piece_of(w, w->extent.send, r->rank, k, &p); k++) { /* the input must be as it was */
        fetch(w, r, c->send, &p);
        wrong += (long)perf_check_moved(&w->rule, r->rank, p.from, p.got, p.to - p.from);
    }
    move(w, r, w->stage, perf_guard(w, place, c), PERF_GUARD);
    sync_rank(w, r);
    for (int b = 0; b < PERF_GUARD; b++)
        wrong += ((const unsigned char *)w->stage)[b] != (poison_word & 0xff);
    return wrong;
}

/* --- graphs -------------------------------------------------------------------- */

static void capture(perf_worker *w, int side, int place, int calls, int each)
{
    for (int i = 0; i < w->config->per_thread; i++) {
        perf_use(w, &w->ranks[i]);
        perf_must_gpu(&w->ranks[i], "beginning a capture", w->gpu->capture_begin(stream_of(&w->ranks[i])));
    }
    for (int n = 0; n < calls; n++)
        perf_issue(w, side, place, each);
    for (int i = 0; i < w->config->per_thread; i++) {
        perf_use(w, &w->ranks[i]);
        perf_must_gpu(&w->ranks[i], "ending a capture",
                      w->gpu->capture_end(stream_of(&w->ranks[i]), &w->ranks[i].graph[side]));
    }
}

static void replay(perf_worker *w, int side)
{
    for (int i = 0; i < w->config->per_thread; i++) {
        perf_use(w, &w->ranks[i]);
        perf_must_gpu(&w->ranks[i], "launching a graph",
                      w->gpu->graph_launch(w->ranks[i].graph[side], stream_of(&w->ranks[i])));
    }
}

static void drop_graphs(perf_worker *w, int side)
{
    for (int i = 0; i < w->config->per_thread; i++) {
        perf_use(w, &w->ranks[i]);
        perf_must_gpu(&w->ranks[i], "a graph", w->gpu->graph_destroy(w->ranks[i].graph[side]));
        w->ranks[i].graph[side] = NULL;
    }
}

/* One call, the way that is going to be timed. */
static void run_once(perf_worker *w, int side, int place)
{
    if (!w->config->graph) {
        perf_issue(w, side, place, 1);
        perf_finish(w, side);
        return;
    }
    capture(w, side, place, 1, 1);
    replay(w, side);
    perf_finish(w, side);
    perf_team_barrier(w->team, w->index); /* a library may free a graph's things with all ranks */
    drop_graphs(w, side);
}

static void check(perf_worker *w, int place, long wrong[PERF_SIDES])
{
    for (int side = 0; side < w->nsides; side++)
        wrong[side] = w->config->check ? 0 : -1;
    for (int n = 0; n < w->config->check; n++) {
        w->rule.seed++;
        fill(w, place, true);
        for (int side = 0; side < w->nsides; side++) {
            perf_team_barrier(w->team, w->index);
            run_once(w, side, place);
            perf_team_barrier(w->team, w->index);
            for (int i = 0; i < w->config->per_thread; i++)
                wrong[side] += verify_rank(w, side, place, i);
        }
    }
}

/* --- timing -------------------------------------------------------------------- */

static void record(perf_worker *w, bool end)
{
    for (int i = 0; i < w->config->per_thread; i++) {
        const perf_rank *r = &w->ranks[i];

        perf_use(w, r);
        perf_must_gpu(r, "recording an event", w->gpu->event_record(end ? r->to : r->from, stream_of(r)));
    }
}

static double elapsed(perf_worker *w)
{
    double most = 0, us;

    for (int i = 0; i < w->config->per_thread; i++) {
        const perf_rank *r = &w->ranks[i];

        perf_use(w, r);
        perf_must_gpu(r, "reading the events", w->gpu->event_elapsed(r->from, r->to, &us));
        most = us > most ? us : most;
    }
    return most;
}

static void issue_eagerly(perf_worker *w, int side, int place, int calls)
{
    for (int n = 0; n < calls; n++) {
        perf_issue(w, side, place, w->config->agg);
        if (w->config->blocking)
            perf_finish(w, side);
        if (w->config->blocking > 1)
            perf_team_barrier(w->team, w->index);
    }
}

static double sample(perf_worker *w, int side, int place, int calls)
{
    const int launches = w->config->graph ? w->config->graph : 1;
    double    start, issued, us;

    perf_team_barrier(w->team, w->index);
    if (w->config->graph)
        replay(w, side);
    else
        perf_issue(w, side, place, w->config->agg);
    record(w, false);
    start = perf_now_us();
    for (int n = 0; n < w->config->graph; n++)
        replay(w, side);
    if (!w->config->graph)
        issue_eagerly(w, side, place, calls);
    issued = perf_now_us();
    record(w, true);
    perf_finish(w, side);
    us = w->config->cputime ? issued - start : elapsed(w);
    return us / calls / launches / w->config->agg;
}

static void measure(perf_worker *w, int place, perf_outcome *o)
{
    const int    repeats = w->config->repeats;
    const bool   large   = w->extent.shown * w->rule.nbytes > LARGE;
    const int    calls   = large && w->config->iters > FEW ? FEW : w->config->iters;
    const size_t stride  = PERF_SIDES;

    for (int side = 0; w->config->graph && side < w->nsides; side++) {
        capture(w, side, place, calls, w->config->agg);
        replay(w, side);
        perf_finish(w, side);
    }
    for (int n = 0; n < repeats; n++) {
        double mine[PERF_SIDES] = {0};

        for (int k = 0; k < w->nsides; k++)
            mine[(n + k) % w->nsides] = sample(w, (n + k) % w->nsides, place, calls);
        perf_team_gather(w->team, w->index, mine, sizeof(mine), w->times);
        for (int side = 0; side < w->nsides; side++)
            w->samples[side][n] = perf_combine(w, &w->times[side], stride);
    }
    for (int side = 0; side < w->nsides; side++) {
        o->us[side]    = perf_median(w->samples[side], repeats);
        o->least[side] = w->samples[side][0]; /* sorted now */
        if (w->config->graph)
            drop_graphs(w, side);
    }
}

void perf_device_place(perf_worker *w, int place, perf_outcome *o)
{
    if (!w->config->check)
        fill(w, place, false);
    for (int side = 0; side < w->nsides; side++) {
        perf_team_barrier(w->team, w->index);
        for (int i = 0; i < w->config->warmup; i++)
            perf_issue(w, side, place, w->config->agg);
        perf_finish(w, side);
    }
    check(w, place, o->wrong);
    if (w->config->iters)
        measure(w, place, o);
    for (int side = 0; side < w->nsides; side++)
        perf_check_async(w, side);
    perf_team_barrier(w->team, w->index);
}
