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
        it.unit = (uint64_t)c->lane * c->nthreads + c->tid + round * c->nlanes * c->nthreads;
        it.l.data = it.unit * GP_LL_DATA;
    } else {
        const uint64_t row = round % GP_ROWS;
        it.l.data = span->first + round / GP_ROWS * span->stride + (row * c->nthreads + c->tid) * 16;
    }
    it.l.slot = 0;
    it.l.is_flag = 0;
    it.l.left = (int64_t)(span->end - it.l.data);
    it.over = proto == GP_LL ? it.l.left <= 0 : span->first + round / GP_ROWS * span->stride >= span->end;
    return it;
}

/* A flagged source of an item, when it is here. 0: give up. */
GP_DEV int gp_item_wait(gp_ctx *c, const gp_flagged *s, const int proto, uint64_t spot, const gp_item *it, gp_v4 *v)
{
    uint64_t x = 0;

    if (proto == GP_LL128) {
        while (gp_ballot(!gp_line_take(c, spot, &it->l, v)))
            if (gp_ballot(gp_waits(c, GP_SPOT_RANK(spot))))
                return 0;
        return 1;
    }
    if (!GP_SPOT_SLOT(spot))
        x = gp_ll_local(c, s, spot, (uint32_t)it->unit);
    else
        while (!gp_ll_look(c, spot, (uint32_t)it->unit, &x))
            if (gp_waits(c, GP_SPOT_RANK(spot)))
                return 0;
    *v = gp_v4_make((uint32_t)x, (uint32_t)(x >> 32), 0, 0);
    return 1;
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

GP_DEV int gp_rare_code(const gp_ctx *c)
{
    return c->w->type * 8 + (c->w->op == GP_OP_SUM ? GP_OP_AVG : c->w->op);
}

/* What is raw is multiplied by the scalar of the rank whose it is. */
GP_DEV uint64_t gp_rare_scalar(const gp_ctx *c, uint32_t raw)
{
    return c->w->op == GP_OP_PREMUL && raw ? c->sh->scalar[raw - 1] : 0;
}

/* A block of a step in the simple protocol. op COPY: only copies, whatever the work says. */
GP_DEV void gp_rare_simple(gp_ctx *c, const gp_step *s, const gp_span *span, const int type, const int op)
{
    const gp_ref *refs = c->refs + s->first;
    const int divisor = s->final && c->w->op == GP_OP_AVG ? c->f->nranks : 0, sums = op != GP_OP_COPY || type == GP_ANY;
    gp_item it;

    GP_NO_UNROLL
    for (uint64_t round = 0; it = gp_item_of(c, GP_SIMPLE, span, round), !it.over; round++) {
        gp_acc acc;
        gp_v4 v = gp_v4_make(0, 0, 0, 0);
        if (it.l.left <= 0 || (span->tails && it.l.left >= 16))
            continue;
        GP_NO_UNROLL
        for (uint32_t k = 0; k < s->nsrc; k++) {
            v = gp_load16_part(gp_src(c, k) + it.l.data, it.l.left);
            if (sums)
                gp_rare_combine(&acc, k == 0, type, op, gp_rare_code(c), v, gp_rare_scalar(c, refs[k].raw),
                                refs[k].raw);
        }
        if (sums)
            v = gp_rare_result(&acc, type, op, gp_rare_code(c), divisor);
        GP_NO_UNROLL
        for (uint32_t m = 0; m < s->ndst; m++)
            gp_store16_part(gp_dst(c, m) + it.l.data, v, it.l.left);
    }
}

/* A sum in a flagged protocol, any type and operator; all its sources are raw. 0: give up. */
GP_DEV int gp_rare_flagged(gp_ctx *c, const gp_flagged *s, const int proto)
{
    const int divisor = s->final & 1 && c->w->op == GP_OP_AVG ? c->f->nranks : 0;
    const gp_span span = { 0, 0, s->nbytes, 0 };
    gp_item it;

    GP_NO_UNROLL
    for (uint64_t round = 0; it = gp_item_of(c, proto, &span, round), !it.over; round++) {
        gp_acc acc;
        gp_v4 v;
        GP_NO_UNROLL
        for (uint32_t k = 0; k < s->nsrc; k++) {
            const uint64_t src = gp_operand(c, s, k);
            if (!gp_item_wait(c, s, proto, src, &it, &v))
                return 0;
            gp_rare_combine(&acc, k == 0, GP_ANY, GP_OP_COPY, gp_rare_code(c), v, gp_rare_scalar(c, 1 + GP_SPOT_RANK(src)), 1);
        }
        v = gp_rare_result(&acc, GP_ANY, GP_OP_COPY, gp_rare_code(c), divisor);
        if (proto == GP_LL128)
            gp_lines_put(c, s, &it.l, v);
        else
            gp_ll_put(c, s, (uint32_t)it.unit, gp_get(v, 0) | (uint64_t)gp_get(v, 1) << 32);
    }
    return 1;
}

#endif
