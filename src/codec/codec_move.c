#include "codec/codec_kernels.h"

#include "device/float_mode.h"
#include "device/reduce.h"

#include <string.h>

/* A step, tile by tile, so that what is added, divided and encoded stays in the nearest cache:
 *
 *   src[0] src[1] ..  --widened or decoded, added-->  tile of f32  --divided, encoded-->  a coded dst
 *                                                                                            |  \ copied
 *                                                       plain dst  <--decoded----------------+   other coded dst
 *
 * One source that is not divided takes the short way: plain, it is encoded where it lies; coded, its
 * bytes are those of the coded destinations. A step without any encoded operand is rcclx_reduce's. */

enum { TILE = 1024 };

typedef struct {
    const rcclx_codec_args    *a;
    const rcclx_codec_kernels *k;
    const rcclx_limits        *limits;
    size_t                     at, n;
} tile;

static bool is_any(const bool *flags, int n)
{
    return memchr(flags, 1, (size_t)n) != NULL;
}

static rcclx_wire tile_coded(const tile *t, const void *run)
{
    return rcclx_codec_part(run, t->a->count, t->at);
}

static void *tile_plain(const tile *t, const void *buffer)
{
    return (unsigned char *)(uintptr_t)buffer + t->at * rcclx_type_size(t->a->type);
}

static void tile_sum(const tile *t, float *sum)
{
    const rcclx_codec_args *const a = t->a;

    for (int s = 0; s < a->nsrc; s++) {
        const int to = s == 0 ? RCCLX_ELEMENT_F32 : RCCLX_ELEMENT_SUM;

        if (a->src_coded[s])
            t->k->decode[a->codec][to](tile_coded(t, a->src[s]), t->n, sum, t->limits);
        else
            t->k->move[rcclx_codec_element(a->type)][to](tile_plain(t, a->src[s]), t->n, sum);
    }
    if (a->divisor > 1)
        rcclx_reduce(&(rcclx_reduce_args){.type = RCCLX_F32, .op = RCCLX_AVG, .nsrc = 1, .ndst = 1,
                                          .src = (const void *[]){sum}, .dst = (void *[]){sum}, .count = t->n,
                                          .divisor = a->divisor});
}

/* The first coded destination, encoded from elements of a kind. */
static rcclx_wire tile_encode(const tile *t, int element, const void *x)
{
    const rcclx_codec_args *const a = t->a;
    int                           d = 0;

    while (!a->dst_coded[d])
        d++;
    t->k->encode[a->codec][element](x, t->n, tile_coded(t, a->dst[d]), t->limits);
    return tile_coded(t, a->dst[d]);
}

static void tile_spread(const tile *t, rcclx_wire from)
{
    const rcclx_codec_args *const a = t->a;

    for (int d = 0; d < a->ndst; d++) {
        if (!a->dst_coded[d]) {
            t->k->decode[a->codec][rcclx_codec_element(a->type)](from, t->n, tile_plain(t, a->dst[d]), t->limits);
            continue;
        }
        const rcclx_wire to = tile_coded(t, a->dst[d]);

        if (to.codes != from.codes) {
            memcpy(to.codes, from.codes, t->n);
            memcpy(to.scales, from.scales, (t->n + RCCLX_CODEC_BLOCK - 1) / RCCLX_CODEC_BLOCK * 2);
        }
    }
}

static void tile_move(const tile *t)
{
    const rcclx_codec_args *const a       = t->a;
    const int                     element = rcclx_codec_element(a->type);
    float                         sum[TILE];

    if (a->nsrc == 1 && a->divisor <= 1) {
        tile_spread(t, a->src_coded[0] ? tile_coded(t, a->src[0]) : tile_encode(t, element, tile_plain(t, a->src[0])));
        return;
    }
    tile_sum(t, sum);
    if (is_any(a->dst_coded, a->ndst)) {
        tile_spread(t, tile_encode(t, RCCLX_ELEMENT_F32, sum));
        return;
    }
    for (int d = 0; d < a->ndst; d++)
        t->k->move[RCCLX_ELEMENT_F32][element](sum, t->n, tile_plain(t, a->dst[d]));
}

void rcclx_codec_move(const rcclx_codec_args *a)
{
    tile t = {.a = a, .k = rcclx_codec_isa(), .limits = rcclx_codec_limits(a->type)};

    if (!is_any(a->src_coded, a->nsrc) && !is_any(a->dst_coded, a->ndst)) {
        rcclx_reduce(&(rcclx_reduce_args){.type = a->type, .op = RCCLX_AVG, .nsrc = a->nsrc, .ndst = a->ndst, .src = a->src,
                                          .dst = a->dst, .count = a->count, .divisor = a->divisor});
        return;
    }
    const rcclx_float_mode mode = rcclx_float_mode_enter();

    for (; t.at < a->count; t.at += t.n) {
        t.n = a->count - t.at < TILE ? a->count - t.at : TILE;
        tile_move(&t);
    }
    rcclx_float_mode_leave(mode);
}
