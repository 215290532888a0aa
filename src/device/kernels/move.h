#ifndef RCCLX_DEVICE_KERNELS_MOVE_H
#define RCCLX_DEVICE_KERNELS_MOVE_H

/* COPY and REDUCE in the simple protocol: buffers that may be read and written now.
 *
 *   whole blocks   | tile | tile | tile | tile | ...   tile t is lane t % nlanes's
 *   pieces         a lane has its piece for itself
 *   tile           U rows of 16 bytes a thread
 *
 * Which lane does which bytes depends on the block's length alone, alike on all ranks,
 * so a lane need only wait for the same lane of its peers. Vectors of 16 bytes when
 * all operands are so aligned; the rest (unaligned operands, the last bytes) is
 * rare.h's.
 *
 * Part of run.h. */

GP_DEV char *gp_simple_at(const gp_ctx *c, const gp_ref *ref, uint32_t block, uint64_t offset)
{
    if (ref->buf == GP_SCRATCH)
        return gp_window(c, ref->rank) + c->f->at.stage + c->lane * c->stage + block * c->p->slot_bytes;
    const uint64_t base = ref->rank != c->f->rank ? (ref->buf == GP_IN ? c->sh->in : c->sh->out)[ref->rank]
                          : ref->buf == GP_IN     ? c->w->in
                                                  : c->w->out;
    return (char *)(uintptr_t)base + gp_block_begin(c, block) + offset;
}

/* Put the operands' addresses where all threads find them. */
GP_DEV void gp_move_aim(const gp_ctx *c, const gp_step *s, uint32_t block, uint64_t offset)
{
    const gp_ref *refs = c->refs + s->first;

    gp_lane_sync(c);
    GP_NO_UNROLL
    for (uint32_t k = c->tid; k < (uint32_t)s->nsrc + s->ndst; k += c->nthreads) {
        const uint64_t at = (uint64_t)(uintptr_t)gp_simple_at(c, &refs[k], refs[k].block + block, offset);
        if (k < s->nsrc)
            c->sh->src[k] = at;
        else
            c->sh->dst[k - s->nsrc] = at;
    }
    gp_lane_sync(c);
}

GP_DEV int gp_all_aligned(const gp_ctx *c, const gp_step *s)
{
    uint64_t bits = 0;

    GP_NO_UNROLL
    for (uint32_t k = 0; k < s->nsrc; k++)
        bits |= c->sh->src[k];
    GP_NO_UNROLL
    for (uint32_t m = 0; m < s->ndst; m++)
        bits |= c->sh->dst[m];
    return !(bits & 15);
}

/* The bytes a lane does of a block: tiles first, first + stride, ... below end. */
typedef struct {
    uint64_t first, stride, end;
    int      tails; /* only vectors that are not whole */
} gp_span;

enum { GP_ROWS = 4 }; /* of a tile, whatever the number of sources */

GP_DEV gp_span gp_lane_span(const gp_ctx *c, uint64_t nbytes)
{
    const uint64_t tile = (uint64_t)GP_ROWS * c->nthreads * 16;
    gp_span span;

    span.first = c->p->pieced ? 0 : c->lane * tile;
    span.stride = c->p->pieced ? tile : c->nlanes * tile;
    span.end = nbytes;
    span.tails = 0;
    return span;
}

GP_DEV const char *gp_src(const gp_ctx *c, uint32_t k)
{
    return (const char *)(uintptr_t)c->sh->src[k];
}

GP_DEV char *gp_dst(const gp_ctx *c, uint32_t m)
{
    return (char *)(uintptr_t)c->sh->dst[m];
}

/* Whole vectors, all aligned: U rows at once, K sources. */
GP_DEV void gp_move_fast(const gp_ctx *c, const gp_step *s, gp_span span, const int K, const int U, const int type, const int op)
{
    const uint64_t row = (uint64_t)c->nthreads * 16, whole = span.end & ~(uint64_t)15;
    const gp_ref *refs = c->refs + s->first;

    GP_NO_UNROLL
    for (uint64_t tile = span.first; tile < whole; tile += span.stride)
        GP_NO_UNROLL
        for (int part = 0; part < GP_ROWS; part += U) {
            const uint64_t at = tile + part * row + c->tid * 16;
            gp_v4 v[4][8];
            GP_UNROLL
            for (int u = 0; u < U; u++)
                GP_UNROLL
                for (int k = 0; k < K; k++)
                    if (k < s->nsrc && at + u * row < whole)
                        v[u][k] = gp_ld16_nt(gp_src(c, k) + at + u * row);
            GP_UNROLL
            for (int u = 0; u < U; u++) {
                if (at + u * row >= whole)
                    continue;
                gp_v4 x = v[u][0];
                if (K > 1) {
                    gp_acc acc;
                    gp_acc_first(&acc, type, op, x, 0, refs[0].raw);
                    GP_UNROLL
                    for (int k = 1; k < K; k++)
                        if (k < s->nsrc)
                            gp_acc_next(&acc, type, op, v[u][k], 0, refs[k].raw);
                    x = gp_acc_last(&acc, type, op, 0);
                }
                GP_NO_UNROLL
                for (uint32_t m = 0; m < s->ndst; m++)
                    gp_st16(gp_dst(c, m) + at + u * row, x);
            }
        }
}

/* Part of a lane's tiles. */
typedef struct { uint32_t from, tiles; } gp_part;

GP_DEV uint64_t gp_part_begin(const gp_ctx *c, gp_part part)
{
    return (uint64_t)part.from * c->nlanes * GP_ROWS * c->nthreads * 16;
}

GP_DEV gp_span gp_part_of(gp_span span, gp_part part)
{
    const uint64_t end = ((uint64_t)part.from + part.tiles) * span.stride;

    span.first += part.from * span.stride;
    span.end = span.end < end ? span.end : end;
    return span;
}

/* What gp_move_fast leaves: the last vector, if it is not whole. */
GP_DEV gp_span gp_move_rest(const gp_ctx *c, gp_span span)
{
    const uint64_t tile = (uint64_t)GP_ROWS * c->nthreads * 16, last = span.end & ~(uint64_t)15, at = last - last % tile;

    if (last == span.end || (!c->p->pieced && at / tile % c->nlanes != c->lane))
        span.end = 0;
    span.first = at;
    span.tails = 1;
    return span;
}

GP_DEV void gp_move_copy(const gp_ctx *c, const gp_step *s, gp_span span)
{
    if (c->sh->src[0] == c->sh->dst[0] && s->ndst == 1)
        return; /* in place it lies there already */
    gp_move_fast(c, s, span, 1, 4, 0, GP_OP_COPY);
}

GP_DEV void gp_move_reduce(const gp_ctx *c, const gp_step *s, gp_span span, const int type, const int op)
{
    if (s->nsrc <= 2)
        gp_move_fast(c, s, span, 2, 4, type, op);
    else if (s->nsrc <= 4)
        gp_move_fast(c, s, span, 4, 2, type, op);
    else
        gp_move_fast(c, s, span, 8, 1, type, op);
}

/* A lane's part of a block of a step; in `piece` of it, if the plan is in pieces. */
GP_DEV gp_span gp_move_begin(const gp_ctx *c, const gp_step *s, uint32_t piece, uint32_t block)
{
    uint64_t nbytes = gp_step_bytes(c, s, block), offset = 0;

    if (c->p->pieced) {
        offset = (uint64_t)piece * c->p->piece_bytes;
        nbytes = offset < nbytes ? nbytes - offset : 0;
        nbytes = nbytes < c->p->piece_bytes ? nbytes : c->p->piece_bytes;
    }
    gp_move_aim(c, s, block, offset);
    return gp_lane_span(c, nbytes);
}

#endif
