#ifndef RCCLX_DEVICE_KERNELS_FLAGGED_H
#define RCCLX_DEVICE_KERNELS_FLAGGED_H

/* COPY and REDUCE with the flag inside the data: pushed into the reader's memory,
 * waited for element by element, no barrier between the ranks.
 *
 *   LL      unit of 16 bytes   | data | flag | data | flag' |        8 bytes of data
 *   LL128   line of 128 bytes  | 112 bytes of data | flag flag' flag flag' |   a wave writes whole lines
 *
 * flag is the turn, flag' the turn mixed with the signature: data of another call is
 * never taken for this one's. There are two sets of slots, used in turns; why
 * that is enough is the checker's to prove (plan/check.c), and where it is not,
 * `credit` waits until the reader has begun the turn before. A thread (a wave) handles
 * the same units in every step of a work, so steps need no barrier between them; but for
 * copies that have nothing to do with each other, which the host has marked as a group: the
 * block's waves share them out, so that they wait all at once.
 * Sums of more sources than fit the registers are rare.h's.
 *
 * Part of run.h. */

enum { GP_LINE_LANES = GP_LINE / 16, GP_LINE_DATA = GP_LINE - 16 };

/* The two flags, and which set of slots: known once the turn is. */
GP_DEV void gp_flagged_turn(gp_ctx *c)
{
    c->f0 = GP_FLAG(c->turn);
    c->f1 = c->f0 ^ (uint32_t)(c->w->sig ^ c->w->sig >> 32);
    c->set = (c->turn & 1) * c->p->slot_bytes;
}

/* Operand k of a step. */
GP_DEV uint64_t gp_operand(const gp_ctx *c, const gp_flagged *s, uint32_t k)
{
    if (k < GP_NEAR)
        return s->near[k];
    return ((const uint64_t *)(const void *)((const unsigned char *)c->w + s->far))[k - GP_NEAR];
}

/* Where an operand's block begins in this turn. */
GP_DEV char *gp_spot_at(const gp_ctx *c, uint64_t spot)
{
    return (char *)(uintptr_t)(GP_SPOT_AT(spot) + (GP_SPOT_SLOT(spot) ? c->set : 0));
}

/* Before pushing: the peers written to have begun the turn before. */
GP_DEV int gp_credit(gp_ctx *c, const gp_flagged *s)
{
    const uint32_t k = gp_tid();
    uint64_t x;

    if (k < s->ndst) {
        const uint64_t spot = gp_operand(c, s, s->nsrc + k);
        if (GP_SPOT_SLOT(spot) && GP_SPOT_RANK(spot) != c->f->rank)
            (void)gp_header_wait(c, GP_SPOT_RANK(spot), c->turn - 1, 0, &x);
    }
    gp_sync();
    return !gp_shared_peek(&c->sh->failed);
}

/* Before a step: the first barrier of a kernel comes before the first wait. */
GP_DEV int gp_flagged_begin(gp_ctx *c, const gp_flagged *s)
{
    if (s->waits) {
        gp_sync();
        if (gp_shared_peek(&c->sh->failed))
            return 0;
    }
    return !(c->w->credit & GP_CREDIT_SLOTS) || gp_credit(c, s);
}

/* --- LL ---------------------------------------------------------------------------- */

/* n <= 8 bytes from memory of any alignment, low bytes first. */
GP_SLOW uint64_t gp_load8_odd(const char *p, uint64_t n)
{
    uint64_t x = 0;

    if (n >= 8 && !((uintptr_t)p & 3))
        return gp_ld4(p) | (uint64_t)gp_ld4(p + 4) << 32;
    GP_NO_UNROLL
    for (uint32_t i = 0; i < 8 && i < n; i++)
        x |= (uint64_t)gp_ld1(p + i) << (8 * i);
    return x;
}

GP_SLOW void gp_store8_odd(char *p, uint64_t x, uint64_t n)
{
    if (n >= 8 && !((uintptr_t)p & 3)) {
        gp_st4(p, (uint32_t)x);
        gp_st4(p + 4, (uint32_t)(x >> 32));
        return;
    }
    GP_NO_UNROLL
    for (uint32_t i = 0; i < 8 && i < n; i++)
        gp_st1(p + i, (uint32_t)(x >> (8 * i)) & 0xff);
}

GP_DEV uint64_t gp_load8(const char *p, uint64_t n)
{
    return n >= 8 && !((uintptr_t)p & 7) ? gp_ld8(p) : gp_load8_odd(p, n);
}

GP_DEV void gp_store8(char *p, uint64_t x, uint64_t n)
{
    if (n >= 8 && !((uintptr_t)p & 7))
        gp_st8(p, x);
    else
        gp_store8_odd(p, x, n);
}

/* Unit i, of those a thread does in turn. Messages that go by flags are short: 32 bits count them. */
GP_DEV void gp_ll_put(const gp_ctx *c, const gp_flagged *s, uint32_t i, uint64_t x)
{
    GP_NO_UNROLL
    for (uint32_t m = 0; m < s->ndst; m++) {
        const uint64_t dst = gp_operand(c, s, s->nsrc + m);
        char *at = gp_spot_at(c, dst);
        if (GP_SPOT_SLOT(dst))
            gp_ll_store(at + i * GP_LL_UNIT, (uint32_t)x, (uint32_t)(x >> 32), c->f0, c->f1);
        else
            gp_store8(at + i * GP_LL_DATA, x, s->nbytes - i * GP_LL_DATA);
    }
}

/* A look at a unit of a slot. 1: it is here. */
GP_DEV int gp_ll_look(const gp_ctx *c, uint64_t spot, uint32_t i, uint64_t *x)
{
    uint32_t v[4];

    gp_ll_load((const char *)(uintptr_t)(GP_SPOT_AT(spot) + c->set) + i * GP_LL_UNIT, v);
    *x = v[0] | (uint64_t)v[2] << 32;
    return v[1] == c->f0 && v[3] == c->f1;
}

GP_DEV uint64_t gp_ll_local(const gp_ctx *c, const gp_flagged *s, uint64_t spot, uint32_t i)
{
    return gp_load8(gp_spot_at(c, spot) + i * GP_LL_DATA, s->nbytes - i * GP_LL_DATA);
}

GP_DEV uint32_t gp_ll_units(const gp_flagged *s)
{
    return (uint32_t)((s->nbytes + GP_LL_DATA - 1) / GP_LL_DATA);
}

GP_DEV int gp_ll_copy(gp_ctx *c, const gp_flagged *s)
{
    const uint64_t src = gp_operand(c, s, 0);
    const uint32_t step = c->nlanes * c->nthreads, n = gp_ll_units(s);

    GP_NO_UNROLL
    for (uint32_t i = c->lane * c->nthreads + c->tid; i < n; i += step) {
        uint64_t x;
        if (!GP_SPOT_SLOT(src))
            x = gp_ll_local(c, s, src, i);
        else
            while (!gp_ll_look(c, src, i, &x))
                if (gp_waits(c, GP_SPOT_RANK(src)))
                    return 0;
        gp_ll_put(c, s, i, x);
    }
    return 1;
}

/* A sum, with all sources in registers at a time: K, a constant, at least nsrc. All that
 * are not mine are asked for together, as often as one is missing. */
GP_DEV int gp_ll_sum(gp_ctx *c, const gp_flagged *s, const int K, const int type, const int op)
{
    const uint32_t step = c->nlanes * c->nthreads, own = s->own, n = gp_ll_units(s);

    GP_NO_UNROLL
    for (uint32_t i = c->lane * c->nthreads + c->tid; i < n; i += step) {
        const uint64_t local = own < s->nsrc ? gp_ll_local(c, s, gp_operand(c, s, own), i) : 0;
        uint64_t x[8];
        gp_acc acc;
        for (;;) {
            uint32_t late = GP_RANKS;
            GP_UNROLL
            for (int k = 0; k < K; k++)
                if (k < s->nsrc && (uint32_t)k != own && !gp_ll_look(c, gp_operand(c, s, (uint32_t)k), i, &x[k]))
                    late = (uint32_t)k;
            if (late == GP_RANKS)
                break;
            if (gp_waits(c, GP_SPOT_RANK(gp_operand(c, s, late))))
                return 0;
        }
        GP_UNROLL
        for (int k = 0; k < K; k++) {
            const uint64_t y = (uint32_t)k == own ? local : x[k];
            if (k == 0)
                gp_acc_first(&acc, type, op, gp_v4_make((uint32_t)y, (uint32_t)(y >> 32), 0, 0), 0, 0);
            else if (k < s->nsrc)
                gp_acc_next(&acc, type, op, gp_v4_make((uint32_t)y, (uint32_t)(y >> 32), 0, 0), 0, 0);
        }
        const gp_v4 y = gp_acc_last(&acc, type, op, 0);
        gp_ll_put(c, s, i, gp_get(y, 0) | (uint64_t)gp_get(y, 1) << 32);
    }
    return 1;
}

/* --- LL128 -------------------------------------------------------------------------- */

/* n <= 16 bytes (negative: none) from memory of any alignment; zeros behind. `part` is for whoever has to
 * look at every vector, the others call it. */
GP_DEV gp_v4 gp_load16_part(const char *p, int64_t n)
{
    const uint64_t a = n > 0 ? gp_load8(p, (uint64_t)n) : 0, b = n > 8 ? gp_load8(p + 8, (uint64_t)n - 8) : 0;

    return gp_v4_make((uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32));
}

GP_DEV void gp_store16_part(char *p, gp_v4 v, int64_t n)
{
    if (n > 0)
        gp_store8(p, gp_get(v, 0) | (uint64_t)gp_get(v, 1) << 32, (uint64_t)n);
    if (n > 8)
        gp_store8(p + 8, gp_get(v, 2) | (uint64_t)gp_get(v, 3) << 32, (uint64_t)n - 8);
}

GP_SLOW gp_v4 gp_load16_odd(const char *p, int64_t n) { return gp_load16_part(p, n); }
GP_SLOW void gp_store16_odd(char *p, gp_v4 v, int64_t n) { gp_store16_part(p, v, n); }

GP_DEV gp_v4 gp_load16(const char *p, int64_t n)
{
    return n >= 16 && !((uintptr_t)p & 15) ? gp_ld16(p) : gp_load16_odd(p, n);
}

GP_DEV void gp_store16(char *p, gp_v4 v, int64_t n)
{
    if (n >= 16 && !((uintptr_t)p & 15))
        gp_st16(p, v);
    else
        gp_store16_odd(p, v, n);
}

/* Where a lane of a wave is in a group of lines. */
typedef struct {
    uint64_t slot, data; /* bytes from the slot's and from the block's beginning */
    int64_t  left;       /* bytes of data from there on; 0 for the flag lane */
    int      is_flag;
} gp_line_at;

/* A wave does whole groups of lines; slots have room for the last group. */
enum { GP_LINES = GP_WAVE / GP_LINE_LANES };

GP_DEV gp_line_at gp_line_of(uint64_t group, uint64_t nbytes)
{
    const uint32_t line = (uint32_t)group * GP_LINES + gp_lane() / GP_LINE_LANES, part = gp_lane() % GP_LINE_LANES;
    gp_line_at l;

    l.slot = line * GP_LINE + 16 * part;
    l.data = line * GP_LINE_DATA + 16 * part;
    l.is_flag = part == GP_LINE_LANES - 1;
    l.left = l.is_flag ? 0 : (int64_t)(nbytes - l.data);
    return l;
}

GP_DEV uint64_t gp_groups(uint64_t nbytes)
{
    return ((uint32_t)nbytes + GP_LINES * GP_LINE_DATA - 1) / (GP_LINES * GP_LINE_DATA);
}

GP_DEV uint32_t gp_wave_index(const gp_ctx *c)
{
    return c->lane * (c->nthreads / GP_WAVE) + c->tid / GP_WAVE;
}

GP_DEV void gp_lines_put(const gp_ctx *c, const gp_flagged *s, const gp_line_at *l, gp_v4 x)
{
    const gp_v4 flags = gp_v4_make(c->f0, c->f1, c->f0, c->f1);

    GP_NO_UNROLL
    for (uint32_t m = 0; m < s->ndst; m++) {
        const uint64_t dst = gp_operand(c, s, s->nsrc + m);
        char *at = gp_spot_at(c, dst);
        if (GP_SPOT_SLOT(dst))
            gp_line_store(at + l->slot, l->is_flag ? flags : x, l->is_flag);
        else
            gp_store16(at + l->data, x, l->left);
    }
}

GP_DEV int gp_line_right(const gp_ctx *c, gp_v4 v)
{
    return gp_get(v, 0) == c->f0 && gp_get(v, 1) == c->f1 && gp_get(v, 2) == c->f0 && gp_get(v, 3) == c->f1;
}

/* A lane's part of a source. 1: for all it can see the line is here (the flag lane sees it). */
GP_DEV int gp_line_take(const gp_ctx *c, uint64_t spot, const gp_line_at *l, gp_v4 *v)
{
    if (!GP_SPOT_SLOT(spot)) {
        *v = gp_load16(gp_spot_at(c, spot) + l->data, l->left);
        return 1;
    }
    *v = gp_line_load(gp_spot_at(c, spot) + l->slot, l->is_flag);
    return !l->is_flag || gp_line_right(c, *v);
}

GP_DEV int gp_ll128_copy(gp_ctx *c, const gp_flagged *s)
{
    const uint64_t src = gp_operand(c, s, 0), ngroups = gp_groups(s->nbytes);
    const uint32_t nwaves = c->nlanes * (c->nthreads / GP_WAVE);

    GP_NO_UNROLL
    for (uint64_t group = gp_wave_index(c); group < ngroups; group += nwaves) {
        const gp_line_at l = gp_line_of(group, s->nbytes);
        gp_v4 v;
        while (gp_ballot(!gp_line_take(c, src, &l, &v)))
            if (gp_ballot(gp_waits(c, GP_SPOT_RANK(src))))
                return 0;
        gp_lines_put(c, s, &l, v);
    }
    return 1;
}

GP_DEV int gp_ll128_sum(gp_ctx *c, const gp_flagged *s, const int K, const int type, const int op)
{
    const uint64_t ngroups = gp_groups(s->nbytes);
    const uint32_t nwaves = c->nlanes * (c->nthreads / GP_WAVE), own = s->own;

    GP_NO_UNROLL
    for (uint64_t group = gp_wave_index(c); group < ngroups; group += nwaves) {
        const gp_line_at l = gp_line_of(group, s->nbytes);
        gp_v4 v[8], local = gp_v4_make(0, 0, 0, 0);
        gp_acc acc;
        if (own < s->nsrc)
            local = gp_load16(gp_spot_at(c, gp_operand(c, s, own)) + l.data, l.left);
        for (;;) {
            uint32_t late = GP_RANKS;
            GP_UNROLL
            for (int k = 0; k < K; k++)
                if (k < s->nsrc && (uint32_t)k != own && !gp_line_take(c, gp_operand(c, s, (uint32_t)k) | UINT64_C(1) << 63, &l, &v[k]))
                    late = (uint32_t)k;
            if (!gp_ballot(late != GP_RANKS))
                break;
            if (gp_ballot(late != GP_RANKS && gp_waits(c, GP_SPOT_RANK(gp_operand(c, s, late)))))
                return 0;
        }
        GP_UNROLL
        for (int k = 0; k < K; k++) {
            const gp_v4 y = (uint32_t)k == own ? local : v[k];
            if (k == 0)
                gp_acc_first(&acc, type, op, y, 0, 0);
            else if (k < s->nsrc)
                gp_acc_next(&acc, type, op, y, 0, 0);
        }
        gp_lines_put(c, s, &l, gp_acc_last(&acc, type, op, 0));
    }
    return 1;
}

#endif
