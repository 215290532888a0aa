#ifndef RCCLX_DEVICE_KERNELS_PAIR_H
#define RCCLX_DEVICE_KERNELS_PAIR_H

/* Messages between two ranks: all sends and receives of a group in one launch.
 *
 *   launch   | sending blocks | receiving blocks |     the parts of all messages, dealt out in
 *                                                      the same order on all ranks
 *   slot     message m of a pair lies in slot m % GP_PAIR_SLOTS of the receiver's window, and
 *            may when message m - GP_PAIR_SLOTS is done
 *
 *   small    sender: LL units into the slot     receiver: waits unit by unit, then says done
 *   large    both tell each other where their buffers are; then the first that can be had:
 *     push   the sender writes into the receiver's buffer, and says `full` a lane
 *     pull   the receiver reads the sender's, and says done
 *     fifo   chunk by chunk through the two halves of a lane's staging: full, empty
 *   coded  large and by fifo, whatever its length and buffers: each wave of the block has a slot in
 *            a half for a run of codes (coded.h), which the sender's encodes and the receiver's decodes
 *
 * A message is cut into lanes, by its length alone; a part of it is one lane, or all of
 * them where there is only something to wait for. A block works on its parts one after
 * the other. That cannot lock up: of the messages not done take the first in the common
 * order; whatever its blocks did before is done, on both sides.
 *
 * The signature is mixed into the units' flags, and is in what both sides tell; who sees
 * another one reports it. Numbers live in device memory, and the kernel
 * moves them on, so that launches may be repeated by graphs. A block that waits for long
 * says for whom, for the host's watch. */

#include "device/kernels/run.h"

typedef struct {
    uint64_t at;                 /* the peer's buffer, as this device sees it; 0: out of reach */
    uint32_t failed, since_ms;
    uint32_t past;               /* the peer is past this message */
    uint32_t last;               /* this block leaves last */
    gp_coded step;               /* low precision: the message as a step, for the long way */
} gp_pair_shared;

/* By value, as gp_waiter. */
typedef struct {
    const gp_pair_head *h;
    const gp_pair      *m;
    gp_pair_shared     *sh;
    gp_pair_state      *here;    /* about the peer, in my window */
    uint32_t            number;
} gp_pair_waiter;

typedef struct {
    gp_pair_waiter who;
    gp_pair_state *there;        /* about me, in the peer's window */
    char          *slot;
    uint64_t       done;         /* the slot's mark when we began */
    uint64_t       data;         /* the first that this thread sends, of a small message */
    uint32_t       ring, part, nthreads, spins;
} gp_pair_ctx;

GP_DEV gp_state *gp_pair_own(const gp_pair_head *h)
{
    return (gp_state *)(uintptr_t)h->frame.state;
}

/* Messages of a message's pair and direction before this launch. */
GP_DEV uint64_t *gp_pair_progress(const gp_pair_head *h, const gp_pair *m)
{
    gp_state *st = gp_pair_own(h);

    return m->sends ? &st->pair[m->peer].sent : &st->pair[m->peer].received;
}

/* --- waiting ------------------------------------------------------------------------- */

GP_SLOW void gp_pair_give_up(gp_pair_waiter who, uint32_t trouble, uint64_t peer_sig, uint32_t waited_ms)
{
    gp_control *out = (gp_control *)(uintptr_t)who.h->frame.control;

    if (gp_add_device(&gp_pair_own(who.h)->failed, 1) == 0) {
        out->peer = who.m->peer;
        out->turn = who.number;
        out->kind = who.m->kind;
        out->lane = gp_bid();
        out->sig = who.m->sig;
        out->peer_sig = peer_sig;
        out->waited_ns = waited_ms * UINT64_C(1000000);
        gp_fence_system();
        gp_word_poke(&out->trouble, trouble);
    }
    gp_shared_poke(&who.sh->failed, 1);
}

enum { GP_PAIR_LONG_MS = 50 };

/* Is there a reason to stop waiting? */
GP_SLOW int gp_pair_look(gp_pair_waiter who)
{
    const gp_frame *f = &who.h->frame;
    gp_control *out = (gp_control *)(uintptr_t)f->control;
    const uint32_t now = (uint32_t)(gp_ticks() / 1000000) | 1, flag = GP_FLAG(who.number), ring = who.number % GP_PAIR_SLOTS;
    uint32_t since = gp_shared_peek(&who.sh->since_ms), v[4];

    if (gp_shared_peek(&who.sh->failed))
        return 1;
    if (!since)
        gp_shared_poke(&who.sh->since_ms, since = now);
    if (gp_word_peek(&gp_pair_own(who.h)->failed)) {
        gp_shared_poke(&who.sh->failed, 1);
        return 1;
    }
    gp_ll_load(who.m->sends ? who.here->receives[ring][0] : who.here->sends[ring][0], v);
    const uint64_t sig = v[0] | (uint64_t)v[2] << 32;
    if (v[1] == flag && v[3] == flag && sig != who.m->sig)
        gp_pair_give_up(who, GP_DIFFERS, sig, now - since);
    else if (gp_word_peek(&out->abort))
        gp_pair_give_up(who, GP_ABORTED, 0, now - since);
    else if (f->timeout_ns && now - since > f->timeout_ns / 1000000)
        gp_pair_give_up(who, GP_TIMED_OUT, 0, now - since);
    else {
        if (now - since > GP_PAIR_LONG_MS)
            gp_flag_relaxed(&out->waits, GP_PAIR_WAIT(who.number, who.m->kind, who.m->peer));
        return 0;
    }
    return 1;
}

GP_DEV int gp_pair_waits(gp_pair_ctx *c)
{
    gp_nap();
    if (++c->spins % GP_LOOK_EVERY)
        return 0;
    return gp_pair_look(c->who);
}

/* Until a mark is there. What was written before it may be read. */
GP_DEV int gp_pair_await(gp_pair_ctx *c, const uint64_t *mark, uint64_t value)
{
    while ((int64_t)(gp_flag_acquire(mark) - value) < 0)
        if (gp_pair_waits(c))
            return 0;
    gp_shared_poke(&c->who.sh->since_ms, 0); /* it goes on: the deadline is one for a standstill */
    return 1;
}

/* The same by one thread for all. 0: give up. */
GP_DEV int gp_pair_meet(gp_pair_ctx *c, const uint64_t *mark, uint64_t value)
{
    if (gp_tid() == 0)
        (void)gp_pair_await(c, mark, value);
    gp_sync();
    return !gp_shared_peek(&c->who.sh->failed);
}

/* Is the slot free? */
GP_DEV int gp_pair_credit(gp_pair_ctx *c)
{
    const uint64_t need = GP_PAIR_MARK(c->who.number - GP_PAIR_SLOTS, 0);

    if ((int64_t)(c->done - need) >= 0)
        return 1;
    c->done = need;
    return gp_pair_await(c, &c->who.here->done[c->ring], need);
}

/* --- what both sides tell ---------------------------------------------------------------- */

/* By threads 0 and 1 of those who call. */
GP_DEV void gp_pair_tell(const gp_pair_ctx *c, uint32_t i)
{
    const gp_pair *m = c->who.m;
    const uint64_t x = i ? m->token : m->sig;
    const uint32_t flag = GP_FLAG(c->who.number);

    if (i < 2)
        gp_ll_store(m->sends ? c->there->sends[c->ring][i] : c->there->receives[c->ring][i], (uint32_t)x, (uint32_t)(x >> 32),
                    flag, flag);
}

GP_DEV uint64_t gp_pair_resolve(const gp_pair_ctx *c, uint64_t token)
{
    const gp_frame *f = &c->who.h->frame;
    const uint64_t *map = (const uint64_t *)(uintptr_t)f->map;
    const uint64_t base = gp_flag_peek(&map[c->who.m->peer * GP_REGS + (token >> 48) - 1]); /* the watch writes it */

    return base ? base + (token & ((UINT64_C(1) << 48) - 1)) : 0;
}

/* Hear the peer; by threads 0 and 1. Then sh->at is where its buffer is. */
GP_DEV void gp_pair_hear(gp_pair_ctx *c)
{
    const gp_pair_waiter *w = &c->who;
    const uint32_t i = gp_tid();
    uint32_t v[4];

    for (;;) {
        gp_ll_load(w->m->sends ? w->here->receives[c->ring][i] : w->here->sends[c->ring][i], v);
        if ((int32_t)(v[1] - GP_FLAG(w->number)) >= 0 && v[3] == v[1])
            break;
        if (gp_pair_waits(c))
            return;
    }
    const uint64_t x = v[0] | (uint64_t)v[2] << 32;
    if (v[1] != GP_FLAG(w->number)) {
        gp_shared_poke(&w->sh->past, 1);
    } else if (i == 0) {
        if (x != w->m->sig)
            gp_pair_give_up(*w, GP_DIFFERS, x, 0);
    } else if (x) {
        w->sh->at = gp_pair_resolve(c, x);
        if (!w->sh->at)
            gp_pair_give_up(*w, GP_DIFFERS, 0, 0);
    }
}

/* Tell (one part a message does) and hear. A receiver whose slot had another message in this launch hears first: the sender
 * has waited until that one was done; another block of ours may be at it. 0: give up. */
GP_DEV int gp_pair_exchange(gp_pair_ctx *c)
{
    gp_pair_shared *sh = c->who.sh;
    const int later = !c->who.m->sends && c->who.m->index >= GP_PAIR_SLOTS;

    gp_sync_publish();
    if (gp_tid() == 0) {
        sh->at = 0;
        sh->past = 0;
    }
    gp_sync_publish();
    if (gp_tid() < 2 && (!c->who.m->sends || gp_pair_credit(c))) {
        if (c->part == 0 && !later)
            gp_pair_tell(c, gp_tid());
        if (c->who.m->sends || !c->who.m->token || later)
            gp_pair_hear(c);
        if (c->part == 0 && later)
            gp_pair_tell(c, gp_tid());
    }
    gp_sync_publish();
    return !gp_shared_peek(&sh->failed);
}

/* This part of a message I receive is done. 0: give up. */
GP_DEV int gp_pair_received(const gp_pair_ctx *c)
{
    const gp_pair_waiter *w = &c->who;
    uint64_t *done = &c->there->done[c->ring];
    uint32_t *left = &gp_pair_own(w->h)->pair[w->m->peer].left[c->ring];

    gp_sync_publish();
    if (gp_tid() == 0 && !gp_shared_peek(&w->sh->failed)) {
        gp_shared_poke(&w->sh->since_ms, 0);
        if (w->m->parts == 1) {
            gp_flag_relaxed(done, GP_PAIR_MARK(w->number, 0));
        } else if (gp_add_device(left, 1) == w->m->parts - 1u) {
            gp_word_poke(left, 0);
            gp_flag_release(done, GP_PAIR_MARK(w->number, 0));
        }
    }
    return !gp_shared_peek(&w->sh->failed);
}

/* --- small -------------------------------------------------------------------------------- */

GP_DEV uint32_t gp_pair_flag2(const gp_pair_ctx *c)
{
    return GP_FLAG(c->who.number) ^ (uint32_t)(c->who.m->sig ^ c->who.m->sig >> 32);
}

/* Units of a thread. */
GP_DEV uint64_t gp_pair_first(const gp_pair_ctx *c)
{
    return (uint64_t)c->part * c->nthreads + gp_tid();
}

GP_DEV uint64_t gp_pair_step(const gp_pair_ctx *c)
{
    return (uint64_t)c->who.m->parts * c->nthreads;
}

GP_DEV uint64_t gp_pair_data(const gp_pair_ctx *c, uint64_t i)
{
    const gp_pair *m = c->who.m;
    const uint64_t at = i * GP_LL_DATA;

    return at < m->nbytes ? gp_load8((const char *)(uintptr_t)m->at + at, m->nbytes - at) : 0;
}

GP_DEV int gp_pair_send_small(gp_pair_ctx *c)
{
    const gp_pair *m = c->who.m;
    const uint32_t flag = GP_FLAG(c->who.number), flag2 = gp_pair_flag2(c);
    uint64_t x = c->data;

    GP_NO_UNROLL
    for (uint64_t i = gp_pair_first(c); i * GP_LL_DATA < m->nbytes; x = gp_pair_data(c, i)) {
        if (!gp_pair_credit(c))
            return 0;
        gp_ll_store(c->slot + i * GP_LL_UNIT, (uint32_t)x, (uint32_t)(x >> 32), flag, flag2);
        i += gp_pair_step(c);
    }
    if (c->part == 0 && gp_tid() >= c->nthreads - 2) { /* not before the first ones' data */
        if (!gp_pair_credit(c))
            return 0;
        gp_pair_tell(c, c->nthreads - 1 - gp_tid());
    }
    return 1;
}

GP_DEV int gp_pair_receive_small(gp_pair_ctx *c)
{
    const gp_pair *m = c->who.m;
    char *to = (char *)(uintptr_t)m->at;
    const uint32_t flag = GP_FLAG(c->who.number), flag2 = gp_pair_flag2(c);
    uint32_t v[4];

    GP_NO_UNROLL
    for (uint64_t i = gp_pair_first(c); i * GP_LL_DATA < m->nbytes; i += gp_pair_step(c)) {
        for (;;) {
            gp_ll_load(c->slot + i * GP_LL_UNIT, v);
            if (v[1] == flag && v[3] == flag2)
                break;
            if (gp_pair_waits(c))
                return 0;
        }
        gp_store8(to + i * GP_LL_DATA, v[0] | (uint64_t)v[2] << 32, m->nbytes - i * GP_LL_DATA);
    }
    if (!m->nbytes && gp_tid() == 0)
        gp_pair_hear(c);
    return gp_pair_received(c);
}

/* --- large -------------------------------------------------------------------------------- */

enum { GP_PAIR_ROWS = 8 };

GP_DEV void gp_pair_copy(char *to, const char *from, uint64_t n, uint32_t nthreads)
{
    const uint64_t row = (uint64_t)nthreads * 16;
    const int aligned = !(((uintptr_t)to | (uintptr_t)from) & 15);
    const uint64_t whole = aligned ? n & ~(uint64_t)15 : 0;

    GP_NO_UNROLL
    for (uint64_t at = gp_tid() * 16; at < whole; at += GP_PAIR_ROWS * row) {
        gp_v4 v[GP_PAIR_ROWS];
        GP_UNROLL
        for (int u = 0; u < GP_PAIR_ROWS; u++)
            if (at + u * row < whole)
                v[u] = gp_ld16_nt(from + at + u * row);
        GP_UNROLL
        for (int u = 0; u < GP_PAIR_ROWS; u++)
            if (at + u * row < whole)
                gp_st16(to + at + u * row, v[u]);
    }
    GP_NO_UNROLL
    for (uint64_t at = whole + gp_tid() * 16; at < n; at += row)
        gp_store16(to + at, gp_load16(from + at, (int64_t)(n - at)), (int64_t)(n - at));
}

/* The bytes of a lane. */
typedef struct { uint64_t begin, nbytes; } gp_pair_span;

GP_DEV gp_pair_span gp_pair_span_of(const gp_pair *m, uint32_t lane)
{
    gp_pair_span s;

    s.begin = lane * m->slice < m->nbytes ? lane * m->slice : m->nbytes;
    s.nbytes = m->nbytes - s.begin < m->slice ? m->nbytes - s.begin : m->slice;
    return s;
}

/* The marks of a lane: what this side waits for before a chunk, and what it says after it. */
typedef struct { const uint64_t *mark; uint64_t *theirs; } gp_pair_marks;

GP_DEV gp_pair_marks gp_pair_marks_of(const gp_pair_ctx *c)
{
    gp_pair_marks x;

    x.mark = (c->who.m->sends ? c->who.here->empty[c->ring] : c->who.here->full[c->ring]) + c->part;
    x.theirs = (c->who.m->sends ? c->there->full[c->ring] : c->there->empty[c->ring]) + c->part;
    return x;
}

/* Half of the staging for chunk k. 0: give up. */
GP_DEV int gp_pair_take(gp_pair_ctx *c, gp_pair_marks x, uint32_t k)
{
    const uint32_t sends = c->who.m->sends;

    return (sends && k < 2) || gp_pair_meet(c, x.mark, GP_PAIR_MARK(c->who.number, sends ? k - 1 : k + 1));
}

/* `done` chunks are full, or empty. silent: the receiver has nothing to say. */
GP_DEV void gp_pair_pass(const gp_pair_ctx *c, gp_pair_marks x, uint32_t done, int silent)
{
    gp_sync_publish();
    if (gp_tid() == 0 && c->who.m->sends)
        gp_flag_release(x.theirs, GP_PAIR_MARK(c->who.number, done));
    else if (gp_tid() == 0 && !silent)
        gp_flag_relaxed(x.theirs, GP_PAIR_MARK(c->who.number, done)); /* nobody looks at what was stored */
}

/* A lane: at once between the buffers (other: the peer's), or chunk by chunk through its staging. One
 * place that moves data, for both sides: there is no room in registers for several. 0: give up. */
GP_DEV int gp_pair_move(gp_pair_ctx *c, uint64_t other)
{
    const gp_pair *m = c->who.m;
    const gp_pair_span s = gp_pair_span_of(m, c->part);
    const gp_pair_marks marks = gp_pair_marks_of(c);
    const uint64_t most = other ? s.nbytes : m->chunk;
    char *stage = c->slot + c->who.h->at.ll_bytes + (uint64_t)c->part * 2 * m->chunk;
    uint64_t at = 0;
    uint32_t k = 0;

    do {
        const uint64_t n = s.nbytes - at < most ? s.nbytes - at : most;
        char *own = (char *)(uintptr_t)m->at + s.begin + at;
        char *away = other ? (char *)(uintptr_t)other + s.begin : stage + (k & 1) * m->chunk;
        if (!other && !gp_pair_take(c, marks, k))
            return 0;
        gp_pair_copy(m->sends ? away : own, m->sends ? own : away, n, c->nthreads);
        at += n;
        gp_pair_pass(c, marks, ++k, other != 0);
    } while (at < s.nbytes);
    return 1;
}

/* --- low precision ------------------------------------------------------------------------------ */

enum { GP_PAIR_TILE = GP_WAVE * GP_PAIR_EACH }; /* elements of a wave's tile */
/* The words of GP_CODED_KERNEL_LIST. */
enum { GP_CODEC_fp8 = GP_CODEC_FP8, GP_CODEC_int8 = GP_CODEC_INT8 };
enum { GP_TYPE_f32 = GP_F32, GP_TYPE_bf16 = GP_BF16, GP_TYPE_f16 = GP_F16 };

/* A lane as a step of coded.h: encode what is there, or decode a run. */
GP_DEV gp_coded gp_pair_step_of(const gp_pair_ctx *c)
{
    const gp_pair *m = c->who.m;
    const gp_pair_span s = gp_pair_span_of(m, c->part);
    const uint64_t half = (uint64_t)m->chunk * (c->nthreads / GP_WAVE), own = m->at + s.begin;
    gp_coded x;

    x.op = GP_COPY, x.phase = x.lag = x.peer = x.before = 0;
    x.runs = !m->sends, x.fills = m->sends, x.quick = !(own & 15);
    x.far = x.divisor = 0;
    x.nbytes = s.nbytes;
    x.own = m->sends ? own : 0, x.out = m->sends ? 0 : own;
    x.run = x.fill = (uint64_t)(uintptr_t)c->slot + c->who.h->at.ll_bytes + c->part * 2 * half;
    return x;
}

/* A wave's run in the slot `slot` bytes behind the lane's first: bytes at .. at + most of the lane. The one place that
 * knows coded.h. */
GP_DEV void gp_pair_code(const gp_coded *s, uint64_t slot, uint64_t at, uint32_t most, const int codec, const int type)
{
    const uint32_t lane = gp_lane_kept();
    const gp_work *none = (const gp_work *)(const void *)s; /* it has the operands that a step has no room for */
    const gp_coded_piece p = gp_coded_open(none, s, type, slot, at, most);
    const uint32_t whole = s->quick ? p.count / GP_PAIR_TILE * GP_PAIR_TILE : 0;
    uint32_t first = 0;

    GP_NO_UNROLL
    while (first < whole) {
        uint32_t tile = first, left = s->fills ? gp_short_tiles(&p, codec, type, 1, 0, 1, 0, lane, whole, &first)
                                               : gp_short_tiles(&p, codec, type, 0, 1, 0, 1, lane, whole, &first);
        GP_NO_UNROLL
        for (; left; left >>= 1, tile += GP_PAIR_TILE)
            if (left & 1)
                gp_long_tile(none, s, slot, at, most, lane, tile, codec, type);
    }
    GP_NO_UNROLL
    for (; first < p.count; first += GP_PAIR_TILE)
        gp_long_tile(none, s, slot, at, most, lane, first, codec, type);
}

/* A lane, chunk by chunk; each wave has its part of a chunk, and a slot for it in either half. 0: give up. */
GP_DEV int gp_pair_move_coded(gp_pair_ctx *c, const int codec, const int type)
{
    const gp_pair *m = c->who.m;
    const gp_coded *s = &c->who.sh->step;
    const uint32_t nwaves = c->nthreads / GP_WAVE, wave = gp_tid() / GP_WAVE;
    const uint32_t most = GP_PAIR_FITS(m->chunk, GP_PAIR_TILE) * (uint32_t)gp_type_bytes(type);
    const gp_pair_marks marks = gp_pair_marks_of(c);
    uint64_t at = 0;
    uint32_t k = 0;

    if (gp_tid() == 0)
        c->who.sh->step = gp_pair_step_of(c);
    gp_sync();
    do {
        if (!gp_pair_take(c, marks, k))
            return 0;
        gp_pair_code(s, (uint64_t)((k & 1) * nwaves + wave) * m->chunk, at + (uint64_t)wave * most, most, codec, type);
        at += (uint64_t)most * nwaves;
        gp_pair_pass(c, marks, ++k, 0);
    } while (at < s->nbytes);
    return 1;
}

/* Whichever it is. 0: give up. */
GP_DEV int gp_pair_by_codec(gp_pair_ctx *c)
{
    const int codec = c->who.m->codec, type = GP_PAIR_SIG_TYPE(c->who.m->sig);

#define X(codec_id, type_id)                                               \
    if (codec == GP_CODEC_##codec_id && type == GP_TYPE_##type_id)         \
        return gp_pair_move_coded(c, GP_CODEC_##codec_id, GP_TYPE_##type_id);
    GP_CODED_KERNEL_LIST(X)
#undef X
    return 0;
}

GP_DEV int gp_pair_large(gp_pair_ctx *c, const int coded)
{
    const gp_pair *m = c->who.m;
    const gp_pair_state *here = c->who.here;

    if (!gp_pair_exchange(c))
        return 0;
    const uint64_t other = c->who.sh->at;
    if (coded && m->codec)
        return gp_pair_by_codec(c) && (m->sends || gp_pair_received(c));
    if (m->sends && gp_shared_peek(&c->who.sh->past))
        return 1; /* the peer has pulled */
    if (m->sends && !other && m->token)
        return c->part || gp_pair_meet(c, &here->done[c->ring], GP_PAIR_MARK(c->who.number, 0));
    if (!m->sends && m->token) { /* one part, for all lanes */
        if (gp_tid() < m->lanes)
            (void)gp_pair_await(c, &here->full[c->ring][gp_tid()], GP_PAIR_MARK(c->who.number, 1));
    } else if (!gp_pair_move(c, other)) {
        return 0;
    }
    return m->sends || gp_pair_received(c);
}

/* --- a launch -------------------------------------------------------------------------------- */

GP_DEV gp_pair_state *gp_pair_state_of(const gp_pair_head *h, uint32_t owner, uint32_t about)
{
    return (gp_pair_state *)(uintptr_t)(h->frame.window[owner] + h->at.states) + about;
}

/* Slots in the receiver's window. */
GP_DEV char *gp_pair_slot(const gp_pair_head *h, uint32_t from, uint32_t to, uint32_t ring)
{
    return (char *)(uintptr_t)h->frame.window[to] + h->at.slots + (uint64_t)(from - (from > to)) * h->at.set_bytes +
           (uint64_t)ring * h->at.slot_bytes;
}

/* A message that is the only one: each part adds its share, and nobody need be the last. Not before all
 * threads of the block know the number. */
GP_DEV void gp_pair_share(const gp_pair_ctx *c)
{
    const gp_pair *m = c->who.m;
    const uint64_t each = GP_WHOLE / m->parts;

    if (m->sends && m->small)
        gp_sync_publish(); /* the others have met */
    if (gp_tid() == 0)
        gp_add_relaxed(gp_pair_progress(c->who.h, m), c->part ? each : GP_WHOLE - (m->parts - 1u) * each);
}

/* A part of a message. 0: give up. */
GP_DEV int gp_pair_part(const gp_pair_head *h, const gp_pair *m, gp_pair_shared *sh, uint32_t part, const int coded)
{
    const uint32_t rank = h->frame.rank;
    gp_pair_state *here = gp_pair_state_of(h, rank, m->peer);
    uint64_t done[GP_PAIR_SLOTS];
    gp_pair_ctx c;

    c.who.h = h, c.who.m = m, c.who.sh = sh, c.who.here = here;
    c.there = gp_pair_state_of(h, m->peer, rank);
    c.part = part, c.nthreads = h->frame.nthreads, c.spins = 0;
    /* asked for together, before it is known which */
    const uint32_t failed = gp_word_peek(&gp_pair_own(h)->failed);
    const uint32_t before = GP_TURN(gp_flag_peek(gp_pair_progress(h, m)));
    GP_UNROLL
    for (int i = 0; i < GP_PAIR_SLOTS; i++)
        done[i] = m->sends ? gp_flag_peek(&here->done[i]) : 0;
    c.data = m->sends && m->small ? gp_pair_data(&c, gp_pair_first(&c)) : 0;
    if (failed)
        return 0;
    c.who.number = before + m->index + 1;
    c.ring = c.who.number % GP_PAIR_SLOTS;
    c.done = c.ring & 2 ? (c.ring & 1 ? done[3] : done[2]) : c.ring & 1 ? done[1] : done[0];
    c.slot = m->sends ? gp_pair_slot(h, rank, m->peer, c.ring) : gp_pair_slot(h, m->peer, rank, c.ring);
    if (!(!m->small ? gp_pair_large(&c, coded) : m->sends ? gp_pair_send_small(&c) : gp_pair_receive_small(&c)))
        return 0;
    if (h->single)
        gp_pair_share(&c);
    return 1;
}

/* The last block moves the numbers on, where a pair has several. */
GP_DEV void gp_pair_end(const gp_pair_head *h, const gp_pair *msg, gp_pair_shared *sh)
{
    const uint32_t nblocks = h->send_blocks + h->recv_blocks;
    uint32_t *arrived = &gp_pair_own(h)->pairs_arrived;

    gp_sync_publish();
    if (gp_tid() == 0) {
        sh->last = nblocks == 1 || gp_add_device(arrived, 1) == nblocks - 1;
        if (sh->last)
            gp_word_poke(arrived, 0);
    }
    gp_sync_publish();
    if (!sh->last)
        return;
    GP_NO_UNROLL
    for (uint32_t k = gp_tid(); k < h->nmsgs; k += h->frame.nthreads) {
        uint64_t *progress = gp_pair_progress(h, &msg[k]);
        if (msg[k].final)
            gp_flag_relaxed(progress, gp_flag_peek(progress) + GP_PROGRESS(msg[k].index + 1u));
    }
}

/* coded: constant: messages may be in low precision. */
GP_DEV void gp_pairs_run(const gp_pair_head *h, const gp_pair *msg, gp_pair_shared *sh, const int coded)
{
    const uint32_t sends = gp_bid() < h->send_blocks, stride = sends ? h->send_blocks : h->recv_blocks;
    uint32_t next = sends ? gp_bid() : gp_bid() - h->send_blocks;

    if (gp_tid() == 0) {
        sh->failed = 0;
        sh->since_ms = 0;
    }
    gp_sync();
    GP_NO_UNROLL
    for (uint32_t k = 0; k < h->nmsgs; k++) {
        const gp_pair *m = &msg[k];
        if (m->sends != sends)
            continue;
        GP_NO_UNROLL
        for (; next < (uint32_t)m->first + m->parts; next += stride)
            if (!gp_pair_part(h, m, sh, next - m->first, coded))
                return;
    }
    if (!h->single)
        gp_pair_end(h, msg, sh);
}

#endif
