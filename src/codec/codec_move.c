#include "codec/codec_block.h"

#include "device/reduce.h"

#include <string.h>

/* Tile by tile, so that a sum stays in the nearest cache:
 *
 *   src[0] src[1] ..   --widened or decoded, added-->  tile of f32  --divided-->  encoded to each coded dst
 *                                                                                      | decoded again
 *                                                                       plain dst <----+
 *
 * What has no encoded operand is rcclx_reduce's; one encoded source goes to encoded destinations
 * as it is. */

enum { TILE = 1024 };

static bool any(const bool *flags, int n)
{
    for (int k = 0; k < n; k++)
        if (flags[k])
            return true;
    return false;
}

static void tile_read(const rcclx_codec_args *a, int s, size_t at, size_t n, float *x)
{
    if (a->src_coded[s])
        rcclx_blocks_decode(rcclx_codec_formats[a->codec], a->type, a->src[s], a->count, at, n, x);
    else
        rcclx_elements_widen(a->type, (const char *)a->src[s] + at * rcclx_type_size(a->type), n, x);
}

static void tile_sum(const rcclx_codec_args *a, size_t at, size_t n, float *sum)
{
    float x[TILE];

    tile_read(a, 0, at, n, sum);
    for (int s = 1; s < a->nsrc; s++) {
        tile_read(a, s, at, n, x);
        for (size_t i = 0; i < n; i++)
            sum[i] += x[i];
    }
    if (a->divisor > 0)
        for (size_t i = 0; i < n; i++)
            sum[i] /= (float)a->divisor;
}

static void tile_write(const rcclx_codec_args *a, size_t at, size_t n, float *sum)
{
    const rcclx_codec_format *const f = rcclx_codec_formats[a->codec];
    const void                     *coded = NULL;

    for (int d = 0; d < a->ndst; d++)
        if (a->dst_coded[d])
            rcclx_blocks_encode(f, a->type, sum, n, a->dst[d], a->count, at), coded = a->dst[d];
    if (coded)
        rcclx_blocks_decode(f, a->type, coded, a->count, at, n, sum);
    for (int d = 0; d < a->ndst; d++)
        if (!a->dst_coded[d])
            rcclx_elements_narrow(a->type, sum, n, (char *)a->dst[d] + at * rcclx_type_size(a->type));
}

static void run_copy(const rcclx_codec_args *a)
{
    const rcclx_codec *const c = rcclx_codecs[a->codec];
    const size_t             scales = rcclx_codec_scales_at(a->count), nscales = (a->count + RCCLX_CODEC_BLOCK - 1) / RCCLX_CODEC_BLOCK;

    for (int d = 0; d < a->ndst; d++) {
        if (!a->dst_coded[d]) {
            c->decode(a->type, a->src[0], a->count, a->dst[d]);
        } else if (a->dst[d] != a->src[0]) {
            memcpy(a->dst[d], a->src[0], a->count);
            memcpy((char *)a->dst[d] + scales, (const char *)a->src[0] + scales, 2 * nscales);
        }
    }
}

void rcclx_codec_move(const rcclx_codec_args *a)
{
    float sum[TILE];

    if (!any(a->src_coded, a->nsrc) && !any(a->dst_coded, a->ndst)) {
        rcclx_reduce(&(rcclx_reduce_args){.type = a->type, .op = RCCLX_AVG, .nsrc = a->nsrc, .ndst = a->ndst, .src = a->src,
                                          .dst = a->dst, .count = a->count, .divisor = a->divisor});
        return;
    }
    if (a->nsrc == 1 && a->src_coded[0] && a->divisor <= 1) {
        run_copy(a);
        return;
    }
    for (size_t at = 0; at < a->count; at += TILE) {
        const size_t n = a->count - at < TILE ? a->count - at : TILE;

        tile_sum(a, at, n, sum);
        tile_write(a, at, n, sum);
    }
}
