#ifndef RCCLX_DEVICE_KERNELS_RARE_H
#define RCCLX_DEVICE_KERNELS_RARE_H

/* One loop for all that has none of its own: any type and operator, any number of
 * sources, any alignment, last bytes, every protocol. An item is what a thread does in
 * a round, at most 16 bytes; the same thread does the same items as in the other loops
 * (flagged.h, move.h). Sources are taken one after the other.
 *
 * Part of run.h. */

typedef struct {
    gp_line_at l;      /* LL128; data and left hold for all protocols */
    uint64_t   unit;   /* LL */
    int        over;
} gp_item;

GP_DEV gp_item gp_item_of(const gp_ctx *c, uint32_t proto, const gp_span *span, uint64_t round)
{
    gp_item it;

    it.unit = 0;
    if (proto == GP_LL128) {
        const uint64_t group = gp_wave_index(c) + round * c->nlanes * (c->nthreads / GP_WAVE);
        it.l = gp_line_of(group, span->end);
        it.over = group >= gp_groups(span->end);
        return it;
    }
    if (proto == GP_LL) {
        it.unit = (uint64_t)c->lane * c->nthreads + gp_tid() + round * c->nlanes * c->nthreads;
        it.l.data = it.unit * GP_LL_DATA;
    } else {
        const uint64_t row = round % GP_ROWS;
        it.l.data = span->first + round / GP_ROWS * span->stride + (row * c->nthreads + gp_tid()) * 16;
    }
    it.l.slot = 0;
    it.l.is_flag = 0;
    it.l.left = (int64_t)(span->end - it.l.data);
    it.over = proto == GP_LL ? it.l.left <= 0 : span->first + round / GP_ROWS * span->stride >= span->end;
    return it;
}

/* Source k of an item; in the flagged protocols when it is here. 0: give up. */
GP_DEV int gp_item_take(gp_ctx *c, const gp_step *s, uint32_t proto, uint32_t k, uint32_t block, const gp_item *it, gp_v4 *v)
{
    const gp_ref *ref = c->refs + s->first + k;
    uint64_t x = 0;

    if (proto == GP_SIMPLE) {
        *v = gp_load16(gp_src(c, k) + it->l.data, it->l.left);
        return 1;
    }
    const gp_spot spot = gp_spot_of(c, ref, block);
    for (;;) {
        if (proto == GP_LL) {
            if (gp_ll_take(c, &spot, it->unit, (uint64_t)it->l.left, &x))
                break;
            if (gp_waits(c, ref->rank))
                return 0;
        } else {
            if (!gp_ballot(!gp_line_take(c, &spot, &it->l, v)))
                return 1;
            if (gp_ballot(gp_waits(c, ref->rank)))
                return 0;
        }
    }
    *v = gp_v4_make((uint32_t)x, (uint32_t)(x >> 32), 0, 0);
    return 1;
}

GP_DEV void gp_item_put(gp_ctx *c, const gp_step *s, uint32_t proto, uint32_t block, const gp_item *it, gp_v4 v)
{
    if (proto == GP_LL128)
        gp_lines_put(c, s, block, &it->l, v);
    else if (proto == GP_LL)
        gp_ll_put(c, s, block, it->unit, (uint64_t)it->l.left, gp_get(v, 0) | (uint64_t)gp_get(v, 1) << 32);
    GP_NO_UNROLL
    for (uint32_t m = 0; proto == GP_SIMPLE && m < s->ndst; m++)
        gp_store16(gp_dst(c, m) + it->l.data, v, it->l.left);
}

/* What the kernel `any` has code for: AVG, undivided, is SUM. */
#define GP_RARE_OPS(X, t) X(t, GP_OP_AVG) X(t, GP_OP_PROD) X(t, GP_OP_MAX) X(t, GP_OP_MIN) X(t, GP_OP_PREMUL)
#define GP_RARE_LIST(X)                                                                                          \
    GP_RARE_OPS(X, 0) GP_RARE_OPS(X, 1) GP_RARE_OPS(X, 2) GP_RARE_OPS(X, 3) GP_RARE_OPS(X, 4) GP_RARE_OPS(X, 5)  \
    GP_RARE_OPS(X, 6) GP_RARE_OPS(X, 7) GP_RARE_OPS(X, 8) GP_RARE_OPS(X, 9) GP_RARE_OPS(X, 10) GP_RARE_OPS(X, 11)

GP_DEV void gp_rare_add(gp_acc *a, int first, const int type, const int op, gp_v4 v, uint64_t scalar, int raw)
{
    if (first)
        gp_acc_first(a, type, op, v, scalar, raw);
    else
        gp_acc_next(a, type, op, v, scalar, raw);
}

/* type GP_ANY: `code` says which. */
GP_DEV void gp_rare_combine(gp_acc *a, int first, const int type, const int op, int code, gp_v4 v, uint64_t scalar, int raw)
{
    if (type != GP_ANY) {
        gp_rare_add(a, first, type, op, v, scalar, raw);
        return;
    }
    switch (code) {
#define X(t, o) case t * 8 + o: gp_rare_add(a, first, t, o, v, scalar, raw); break;
        GP_RARE_LIST(X)
#undef X
    default: break;
    }
}

GP_DEV gp_v4 gp_rare_result(const gp_acc *a, const int type, const int op, int code, int divisor)
{
    if (type != GP_ANY)
        return gp_acc_last(a, type, op, divisor);
    switch (code) {
#define X(t, o) case t * 8 + o: return gp_acc_last(a, t, o, divisor);
        GP_RARE_LIST(X)
#undef X
    default: return gp_v4_make(0, 0, 0, 0);
    }
}

/* A block of a step; 0: give up. */
GP_DEV int gp_rare_block(gp_ctx *c, const gp_step *s, uint32_t block, const gp_span *span, const int flagged, const int type,
                         const int op)
{
    const uint32_t proto = flagged ? s->proto : GP_SIMPLE;
    const gp_ref *refs = c->refs + s->first;
    const int code = c->w->type * 8 + (c->w->op == GP_OP_SUM ? GP_OP_AVG : c->w->op);
    const int divisor = s->final && c->w->op == GP_OP_AVG ? c->f->nranks : 0;
    gp_item it;

    GP_NO_UNROLL
    for (uint64_t round = 0; it = gp_item_of(c, proto, span, round), !it.over; round++) {
        gp_acc acc;
        gp_v4 v;
        if (proto == GP_SIMPLE && (it.l.left <= 0 || (span->tails && it.l.left >= 16)))
            continue;
        GP_NO_UNROLL
        for (uint32_t k = 0; k < s->nsrc; k++) {
            if (!gp_item_take(c, s, proto, k, block, &it, &v))
                return 0;
            const uint64_t scalar = c->w->op == GP_OP_PREMUL && refs[k].raw ? c->sh->scalar[refs[k].rank] : 0;
            if (op != GP_OP_COPY || type == GP_ANY)
                gp_rare_combine(&acc, k == 0, type, op, code, v, scalar, refs[k].raw);
        }
        if (op != GP_OP_COPY || type == GP_ANY)
            v = gp_rare_result(&acc, type, op, code, divisor);
        gp_item_put(c, s, proto, block, &it, v);
    }
    return 1;
}

#endif
