#ifndef RCCLX_DEVICE_KERNELS_RUN_H
#define RCCLX_DEVICE_KERNELS_RUN_H

/* The step interpreter of a GPU: a block is a lane, and carries out the steps of
 * each work (work.h), all its threads together. In low precision a wave is: while one
 * waits, for its stores or for a peer, the block's others have something to do.
 *
 *   begin     lane 0 pushes this rank's header to all peers: signature, where my buffers are
 *   meet      plans that look into peers' buffers, or through staging, first read all
 *             headers; all ranks see the same ones and choose the same plan
 *   steps     COPY and REDUCE: move.h (simple), flagged.h (LL, LL128)
 *             SIGNAL: my lane's counter at every peer; WAIT: theirs here
 *   end       the last lane to leave advances the turn
 *
 * Waiting is spinning: now and then `look` asks whether there is a reason to stop
 * (aborted, another lane gave up, deadline, a peer that called something else), says
 * it in `control`, and the lane leaves. A failed communicator's later kernels leave
 * at once. Nothing here depends on which GPU it is; gp.h does. */

#include "device/kernels/arith.h"
#include "device/kernels/gp.h"
#include "device/kernels/work.h"

/* What the threads of a block share. */
typedef struct {
    uint64_t in[GP_RANKS], out[GP_RANKS]; /* of every rank, as this device sees them; 0: out of reach */
    uint64_t scalar[GP_RANKS];
    uint64_t src[GP_RANKS], dst[2 * GP_RANKS]; /* operands of the step */
    uint32_t failed, staged, since_ms, pad;
} gp_shared;

/* In low precision, of each wave. */
typedef struct { gp_shared wave[GP_THREADS / GP_WAVE]; } gp_waves;

/* Where a thread is. All but `spins` is the same in all threads of the block. */
typedef struct {
    const gp_frame *f;
    const gp_work  *w;
    const gp_plan  *p;
    const gp_step  *steps;
    const gp_ref   *refs;
    gp_shared      *sh;
    uint32_t        turn, lane, nlanes, nthreads, tid; /* threads of a lane, and which one this is */
    uint32_t        stage;       /* bytes of staging of a lane */
    int             wave;        /* constant: a lane is a wave, not a block */
    uint32_t        f0, f1, set; /* flagged: of this turn */
    uint32_t        spins;
} gp_ctx;

/* What a kernel's reductions are: a type's number, or one of these. */
enum { GP_ANY = -1 /* as the work says */, GP_COPIES = -2 /* there are none */ };

/* All threads of the lane. */
GP_DEV void gp_lane_sync(const gp_ctx *c)
{
    if (c->wave)
        gp_wave_sync();
    else
        gp_sync();
}

GP_DEV void gp_lane_publish(const gp_ctx *c)
{
    if (c->wave)
        gp_wave_publish();
    else
        gp_sync_publish();
}

GP_DEV gp_state *gp_state_of(const gp_ctx *c)
{
    return (gp_state *)(uintptr_t)c->f->state;
}

GP_DEV char *gp_window(const gp_ctx *c, uint32_t rank)
{
    return (char *)(uintptr_t)c->f->window[rank];
}

/* --- giving up ------------------------------------------------------------------ */

/* Who waits, for the functions that are called so seldom that they are not inlined:
 * by value, or the context would have to live in memory. */
typedef struct {
    const gp_frame *f;
    const gp_work  *w;
    gp_shared      *sh;
    uint32_t        turn, lane;
} gp_waiter;

GP_DEV char *gp_header_of(const gp_frame *f, uint32_t owner, uint32_t rank, uint32_t turn)
{
    return (char *)(uintptr_t)f->window[owner] + f->at.headers +
           ((turn % GP_RING) * GP_RANKS + rank) * 2 * (uint32_t)sizeof(gp_header);
}

/* Say why, unless somebody has; make everybody leave. */
GP_SLOW void gp_give_up(gp_waiter who, uint32_t trouble, uint32_t peer, uint64_t peer_sig, uint32_t waited_ms)
{
    gp_control *out = (gp_control *)(uintptr_t)who.f->control;
    gp_state *st = (gp_state *)(uintptr_t)who.f->state;

    if (gp_add_device(&st->failed, 1) == 0) {
        out->peer = peer;
        out->turn = who.turn;
        out->kind = who.w->kind;
        out->lane = who.lane;
        out->sig = who.w->sig;
        out->peer_sig = peer_sig;
        out->waited_ns = waited_ms * UINT64_C(1000000);
        gp_fence_system();
        gp_word_poke(&out->trouble, trouble);
    }
    gp_shared_poke(&who.sh->failed, 1);
}

/* Is there a reason to stop waiting for this peer? */
GP_SLOW int gp_look(gp_waiter who, uint32_t peer)
{
    const gp_control *in = (const gp_control *)(uintptr_t)who.f->control;
    const uint32_t now = (uint32_t)(gp_ticks() / 1000000) | 1, flag = GP_FLAG(who.turn);
    uint32_t since = gp_shared_peek(&who.sh->since_ms), v[4];

    if (gp_shared_peek(&who.sh->failed))
        return 1;
    if (!since)
        gp_shared_poke(&who.sh->since_ms, since = now);
    if (gp_word_peek(&((gp_state *)(uintptr_t)who.f->state)->failed)) {
        gp_shared_poke(&who.sh->failed, 1);
        return 1;
    }
    gp_ll_load(gp_header_of(who.f, who.f->rank, peer, who.turn), v);
    const uint64_t sig = v[0] | (uint64_t)v[2] << 32;
    if (v[1] == flag && v[3] == flag && sig != who.w->sig && peer != who.f->rank)
        gp_give_up(who, GP_DIFFERS, peer, sig, now - since);
    else if (gp_word_peek(&in->abort))
        gp_give_up(who, GP_ABORTED, peer, 0, now - since);
    else if (who.f->timeout_ns && now - since > who.f->timeout_ns / 1000000)
        gp_give_up(who, GP_TIMED_OUT, peer, 0, now - since);
    else
        return 0;
    return 1;
}

GP_DEV gp_waiter gp_who(const gp_ctx *c)
{
    const gp_waiter who = { c->f, c->w, c->sh, c->turn, c->lane };

    return who;
}

/* One round of waiting for a peer; true: stop. */
GP_DEV int gp_waits(gp_ctx *c, uint32_t peer)
{
    gp_nap();
    if (++c->spins % GP_LOOK_EVERY)
        return 0;
    return gp_look(gp_who(c), peer);
}

/* --- headers --------------------------------------------------------------------- */

/* A unit of a peer's header for a turn, or of a later one, which says that it is past it. */
GP_DEV int gp_header_wait(gp_ctx *c, uint32_t peer, uint32_t turn, uint32_t unit, uint64_t *x)
{
    const char *at = gp_header_of(c->f, c->f->rank, peer, turn) + 16 * unit;
    uint32_t v[4];

    for (;;) {
        gp_ll_load(at, v);
        if ((int32_t)(v[1] - GP_FLAG(turn)) >= 0 && v[3] == v[1])
            break;
        if (gp_waits(c, peer))
            return 0;
    }
    *x = v[0] | (uint64_t)v[2] << 32;
    return 1;
}

/* By the last threads, so that the first ones' data are not behind it. A rank of which nobody waits to hear
 * (rooted operations) may be far behind: before its oldest header is overwritten it must have left that turn. */
GP_DEV void gp_announce(gp_ctx *c)
{
    const uint64_t said[4] = { c->w->sig, c->w->in_token, c->w->out_token, c->w->scalar };
    const uint32_t flag = GP_FLAG(c->turn);

    if (c->tid == c->nthreads - 1)
        gp_word_poke(&gp_state_of(c)->started, c->turn);
    GP_NO_UNROLL
    for (uint32_t i = c->nthreads - 1 - c->tid; i < 4u * c->f->nranks; i += c->nthreads) {
        const uint32_t r = i / 4, unit = i % 4;
        const uint64_t x = unit < 2 ? (unit ? said[1] : said[0]) : unit == 2 ? said[2] : said[3];
        uint64_t old;
        if (c->w->credit & GP_CREDIT_HEADERS && r != c->f->rank && !gp_header_wait(c, r, c->turn - (GP_RING - 1), 0, &old))
            return;
        if (r != c->f->rank)
            gp_ll_store(gp_header_of(c->f, r, c->f->rank, c->turn) + 16 * unit, (uint32_t)x, (uint32_t)(x >> 32), flag, flag);
    }
}

GP_DEV uint64_t gp_resolve(const gp_ctx *c, uint32_t rank, uint64_t token)
{
    const uint64_t *map = (const uint64_t *)(uintptr_t)c->f->map;

    if (token == 0 || token == GP_TOKEN_NONE)
        return token;
    const uint64_t base = gp_flag_peek(&map[rank * GP_REGS + (token >> 48) - 1]); /* may be as new as the header */
    return base ? base + (token & ((UINT64_C(1) << 48) - 1)) : 0;
}

/* Read everybody's header. Afterwards sh->in, out, scalar hold for all ranks, and
 * sh->staged says whether a buffer is out of reach. 0: give up. */
GP_DEV int gp_meet(gp_ctx *c)
{
    gp_shared *sh = c->sh;

    if (c->tid == 0)
        sh->staged = 0;
    gp_lane_sync(c);
    if (gp_shared_peek(&sh->failed))
        return 0;
    GP_NO_UNROLL
    for (uint32_t i = c->tid; i < 4u * c->f->nranks; i += c->nthreads) {
        const uint32_t r = i / 4, unit = i % 4;
        uint64_t x = unit == 0 ? c->w->sig : unit == 1 ? c->w->in_token : unit == 2 ? c->w->out_token : c->w->scalar;
        if (r != c->f->rank && !gp_header_wait(c, r, c->turn, unit, &x))
            break;
        if (unit == 0 && x != c->w->sig)
            gp_give_up(gp_who(c), GP_DIFFERS, r, x, 0);
        if (unit == 3)
            sh->scalar[r] = x;
        if (unit != 1 && unit != 2)
            continue;
        const uint64_t own = unit == 1 ? c->w->in : c->w->out;
        const uint64_t at = r == c->f->rank && x && x != GP_TOKEN_NONE ? own : gp_resolve(c, r, x); /* none: own may be NULL */
        if (unit == 1)
            sh->in[r] = at;
        else
            sh->out[r] = at;
        if (!x || !at)
            gp_shared_poke(&sh->staged, 1);
    }
    gp_lane_sync(c);
    return !gp_shared_peek(&sh->failed);
}

/* --- steps that only synchronise --------------------------------------------------- */

/* A credit says that slots were read: whoever stores what was read has read it, and need not wait for the stores. */
GP_DEV void gp_signal(const gp_ctx *c, uint32_t phase, uint32_t piece, int credit)
{
    const uint32_t r = c->tid;
    uint64_t *at = (uint64_t *)(void *)(gp_window(c, r < c->f->nranks ? r : 0) + c->f->at.counters + c->lane * 128) + c->f->rank;

    gp_lane_publish(c);
    if (r >= c->f->nranks || r == c->f->rank)
        return;
    if (credit)
        gp_flag_relaxed(at, GP_MARK(c->turn, piece, phase));
    else
        gp_flag_release(at, GP_MARK(c->turn, piece, phase));
}

/* piece: this one; before: the lane's previous one, or none; last: there is none behind it. */
typedef struct { uint32_t piece, before; int first, last; } gp_turn;

GP_DEV void gp_signal_step(const gp_ctx *c, uint32_t phase, uint32_t lag, gp_turn t)
{
    gp_signal(c, phase, t.piece, lag && !t.last);
}

GP_DEV int gp_wait_step(gp_ctx *c, uint32_t peer, uint32_t phase, uint32_t lag, gp_turn t)
{
    const uint32_t r = c->tid;
    const int previous = lag == GP_LAG_PREVIOUS;

    if (phase == 0 /* headers are here */ || (previous && t.first) || (lag == GP_LAG_END && !t.last))
        return 1;
    const uint64_t mark = GP_MARK(c->turn, previous ? t.before : t.piece, phase);
    if (r < c->f->nranks && r != c->f->rank && (peer == GP_ALL || peer == r)) {
        const uint64_t *at = (const uint64_t *)(gp_window(c, c->f->rank) + c->f->at.counters + c->lane * 128) + r;
        while ((int64_t)(gp_flag_acquire(at) - mark) < 0)
            if (gp_waits(c, r))
                break;
    }
    gp_lane_sync(c);
    return !gp_shared_peek(&c->sh->failed);
}

/* --- blocks ------------------------------------------------------------------------ */

GP_DEV uint64_t gp_block_begin(const gp_ctx *c, uint32_t b)
{
    const gp_plan *p = c->p;
    const uint32_t whole = b / p->parts, k = b % p->parts;
    const uint64_t at = 64 * (k * p->units + (k < p->rest ? k : p->rest));

    return whole * p->whole_bytes + (at < p->whole_bytes ? at : p->whole_bytes);
}

GP_DEV uint64_t gp_block_bytes(const gp_ctx *c, uint32_t b)
{
    return gp_block_begin(c, b + 1) - gp_block_begin(c, b);
}

/* Bytes of a step's i-th block: as long as the block of IN or OUT that it names. */
GP_DEV uint64_t gp_step_bytes(const gp_ctx *c, const gp_step *s, uint32_t i)
{
    const gp_ref *refs = c->refs + s->first;

    GP_NO_UNROLL
    for (uint32_t k = 0; c->p->parts > 1 && k < (uint32_t)s->nsrc + s->ndst; k++)
        if (refs[k].buf != GP_SCRATCH)
            return gp_block_bytes(c, refs[k].block + i);
    return c->p->block_bytes;
}

#include "device/kernels/flagged.h"
#include "device/kernels/move.h"
#include "device/kernels/rare.h"
#include "device/kernels/coded.h"

/* --- a work -------------------------------------------------------------------------- */

/* A step of a flagged plan. 0: give up. */
GP_DEV int gp_flagged_step(gp_ctx *c, const gp_flagged *s, const int proto, const int type, const int op)
{
    if (!gp_flagged_begin(c, s))
        return 0;
    if (s->op == GP_COPY)
        return proto == GP_LL ? gp_ll_copy(c, s) : gp_ll128_copy(c, s);
    if (type == GP_ANY)
        return gp_rare_flagged(c, s, proto);
    if (type == GP_COPIES)
        return 1;
    if (s->nsrc <= 2)
        return proto == GP_LL ? gp_ll_sum(c, s, 2, type, op) : gp_ll128_sum(c, s, 2, type, op);
    return proto == GP_LL ? gp_ll_sum(c, s, 8, type, op) : gp_ll128_sum(c, s, 8, type, op);
}

/* Steps i .. i + many - 1, each by some of the block's waves. 0: give up. */
GP_DEV int gp_flagged_group(gp_ctx *c, const gp_flagged *steps, uint32_t many, const int proto)
{
    const uint32_t nthreads = c->nthreads, tid = c->tid, each = nthreads / many / GP_WAVE * GP_WAVE, which = tid / each;
    int fine = 1;

    gp_sync();
    if (gp_shared_peek(&c->sh->failed))
        return 0;
    c->nthreads = each;
    c->tid = tid - which * each;
    if (which < many)
        fine = proto == GP_LL ? gp_ll_copy(c, &steps[which]) : gp_ll128_copy(c, &steps[which]);
    c->nthreads = nthreads;
    c->tid = tid;
    return fine;
}

GP_DEV int gp_flagged_steps(gp_ctx *c, const int proto, const int type, const int op)
{
    const gp_flagged *steps = (const gp_flagged *)(const void *)(c->w + 1);
    const uint32_t most = c->w->credit & GP_CREDIT_SLOTS ? 1 : c->nthreads / GP_WAVE;

    gp_flagged_turn(c);
    GP_NO_UNROLL
    for (uint32_t i = 0; i < c->p->nsteps;) {
        const uint32_t wish = steps[i].final >> 1, many = wish < most ? wish : most;
        if (!(many > 1 ? gp_flagged_group(c, &steps[i], many, proto) : gp_flagged_step(c, &steps[i], proto, type, op)))
            return 0;
        i += many > 1 ? many : 1;
    }
    return 1;
}

/* All of a block, or so many of a lane's tiles at a time. */
enum { GP_ALL_TILES = 1 << 30, GP_SOME_TILES = 4 };

/* A part of block b of a step. */
GP_DEV void gp_simple_block(gp_ctx *c, const gp_step *s, uint32_t piece, uint32_t b, gp_part part, const int type, const int op)
{
    gp_span span = gp_part_of(gp_move_begin(c, s, piece, b), part);
    const int fast = gp_all_aligned(c, s) && (s->op == GP_COPY || (type >= 0 && s->nsrc > 1 && s->nsrc <= 8));

    if (fast && s->op == GP_COPY)
        gp_move_copy(c, s, span);
    else if (fast && type >= 0)
        gp_move_reduce(c, s, span, type, op);
    if (fast)
        span = gp_move_rest(c, span);
    if (s->op == GP_COPY)
        gp_rare_simple(c, s, &span, 0, GP_OP_COPY);
    else if (type != GP_COPIES)
        gp_rare_simple(c, s, &span, type, op);
}

/* Copies that may go in any order: some of each in turn, so that what crosses a link and what does not go on at the
 * same time; every lane begins with another one. Returns how many steps that were. */
GP_DEV uint32_t gp_free_steps(gp_ctx *c)
{
    const gp_step *s = c->steps + c->p->free;
    uint64_t most = 0;

    GP_NO_UNROLL
    for (uint32_t k = 0; k < c->p->nfree; k++)
        most = most > gp_step_bytes(c, &s[k], 0) ? most : gp_step_bytes(c, &s[k], 0);
    GP_NO_UNROLL
    for (gp_part part = { 0, GP_SOME_TILES }; gp_part_begin(c, part) < most || !part.from; part.from += part.tiles)
        GP_NO_UNROLL
        for (uint32_t k = 0; k < c->p->nfree; k++)
            gp_simple_block(c, &s[(k + c->lane) % c->p->nfree], 0, 0, part, GP_COPIES, GP_OP_COPY);
    return c->p->nfree;
}

/* 0: give up. */
GP_DEV int gp_simple_step(gp_ctx *c, const gp_step *s, uint32_t piece, const int type, const int op)
{
    const gp_part all = { 0, GP_ALL_TILES };
    const gp_turn t = { piece, piece - c->nlanes, piece < c->nlanes, piece + c->nlanes >= c->p->npieces };

    if (s->op == GP_WAIT)
        return gp_wait_step(c, s->peer, s->phase, s->lag, t);
    if (s->op == GP_SIGNAL)
        gp_signal_step(c, s->phase, s->lag, t);
    GP_NO_UNROLL
    for (uint32_t b = 0; s->op <= GP_REDUCE && b < s->nblk; b++)
        gp_simple_block(c, s, piece, b, all, type, op);
    return 1;
}

GP_DEV int gp_simple_steps(gp_ctx *c, const int type, const int op)
{
    const uint32_t first = c->p->pieced ? c->lane : 0, npieces = c->p->pieced ? c->p->npieces : 1;

    GP_NO_UNROLL
    for (uint32_t piece = first; piece < npieces; piece += c->nlanes)
        GP_NO_UNROLL
        for (uint32_t i = 0; i < c->p->nsteps; i++) {
            if (type == GP_COPIES && c->p->nfree > 1 && i == c->p->free)
                i += gp_free_steps(c);
            if (!gp_simple_step(c, &c->steps[i], piece, type, op))
                return 0;
        }
    return 1;
}

GP_DEV void gp_choose_plan(gp_ctx *c, uint32_t which)
{
    const unsigned char *base = (const unsigned char *)c->w;

    c->p = &c->w->plan[which];
    c->steps = (const gp_step *)(base + c->p->steps);
    c->refs = (const gp_ref *)(base + c->p->refs);
}

/* All lanes of this rank have finished the turn before: only in a launch of several works. */
GP_DEV int gp_wait_turn(gp_ctx *c)
{
    if (gp_tid() == 0)
        while (GP_TURN(gp_flag_acquire(&gp_state_of(c)->progress)) != c->turn - 1)
            if (gp_waits(c, c->f->rank))
                break;
    gp_sync();
    return !gp_shared_peek(&c->sh->failed);
}

GP_DEV void gp_end_turn(const gp_ctx *c)
{
    gp_sync_publish();
    if (gp_tid())
        return;
    if (c->f->nworks > 1) /* other lanes go on by it; else the end of the kernel orders all */
        gp_fence_system();
    gp_add_relaxed(&gp_state_of(c)->progress, gp_bid() ? c->f->part : c->f->part0);
}

GP_DEV int gp_do_work(gp_ctx *c, const int proto, const int codec, const int type, const int op)
{
    if (c->w->credit)
        gp_lane_sync(c); /* who waits looks at what thread 0 has set */
    if (c->lane == 0 && !c->f->alone)
        gp_announce(c);
    gp_choose_plan(c, 0);
    if ((proto == GP_SIMPLE && !c->f->alone) || (type == GP_ANY && c->w->op == GP_OP_PREMUL)) {
        if (!gp_meet(c))
            return 0;
        if (proto == GP_SIMPLE && c->w->nplans > 1 && gp_shared_peek(&c->sh->staged))
            gp_choose_plan(c, 1);
    }
    if (codec)
        return gp_coded_steps(c, codec, type);
    return proto == GP_SIMPLE ? gp_simple_steps(c, type, op) : gp_flagged_steps(c, proto, type, op);
}

/* Lanes: a block, or a wave of it; `sh` is then an array. */
GP_DEV gp_ctx gp_begin(const gp_frame *f, gp_shared *sh, const int wave)
{
    const uint32_t nwaves = f->nthreads / GP_WAVE;
    gp_ctx c = { .f = f, .sh = sh, .lane = gp_bid(), .nlanes = f->nlanes, .nthreads = f->nthreads, .tid = gp_tid(),
                 .stage = f->at.stage_bytes, .wave = wave };

    if (!wave)
        return c;
    c.sh = sh + gp_tid() / GP_WAVE;
    c.lane = gp_bid() * nwaves + gp_tid() / GP_WAVE;
    c.nlanes = f->nlanes * nwaves;
    c.nthreads = GP_WAVE;
    c.tid = gp_lane_kept();
    c.stage = GP_STAGE(f->at.stage_bytes, c.nlanes);
    return c;
}

/* The kernel. Constants: the protocol of its plans; codec, type and op of its reductions. */
GP_DEV void gp_run(const gp_frame *f, const unsigned char *blob, gp_shared *sh, const int proto, const int codec, const int type,
                   const int op)
{
    gp_ctx ctx = gp_begin(f, sh, codec != GP_CODEC_NONE);
    gp_state *st = (gp_state *)(uintptr_t)f->state;
    uint32_t at = 0;

    ctx.turn = GP_TURN(gp_flag_peek(&st->progress));
    if (ctx.tid == 0) { /* the others look after the first barrier */
        ctx.sh->failed = gp_word_peek(&st->failed);
        ctx.sh->since_ms = 0;
    }
    GP_NO_UNROLL
    for (uint32_t i = 0; i < f->nworks; i++) {
        gp_ctx *c = &ctx;
        c->w = (const gp_work *)(blob + at);
        c->turn++;
        if ((i && !gp_wait_turn(c)) || !gp_do_work(c, proto, codec, type, op))
            return;
        gp_end_turn(c);
        at += c->w->nbytes;
    }
}

#endif
