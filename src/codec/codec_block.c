#include "codec/codec_block.h"

#include "device/convert.h"

#include <float.h>
#include <math.h>
#include <string.h>

static bool is_inf(rcclx_type t, float x)
{
    return isinf(x) || (t == RCCLX_F16 && fabsf(x) >= 65520.0f);
}

static uint16_t block_encode(const rcclx_codec_format *f, rcclx_type t, const float *x, size_t n, uint8_t *codes)
{
    float m = 0, s, inverse;
    bool  care = false;

    for (size_t i = 0; i < n; i++)
        if (isnan(x[i]) || is_inf(t, x[i]))
            care = true;
        else
            m = fabsf(x[i]) > m ? fabsf(x[i]) : m;
    care |= m >= (t == RCCLX_F16 ? 0x1p15f : 0x1p127f);
    s = rcclx_f32_from_bits((rcclx_f32_bits(m * f->per_most) + 0xffff) & 0xffff0000);
    s = s < 0x1p-126f ? 0x1p-126f : s;
    s = care && s > f->scale_max ? f->scale_max : s;
    inverse = 1.0f / s;
    for (size_t i = 0; i < n; i++)
        codes[i] = f->code(is_inf(t, x[i]) ? copysignf(INFINITY, x[i]) : x[i], inverse, care);
    return (uint16_t)(rcclx_f32_bits(s) >> 16 | (care ? 0x8000u : 0));
}

void rcclx_blocks_encode(const rcclx_codec_format *f, rcclx_type t, const float *x, size_t n, void *wire, size_t count, size_t first)
{
    uint8_t *const codes = (uint8_t *)wire + first, *scales = (uint8_t *)wire + rcclx_codec_scales_at(count) + first / 16;

    for (size_t at = 0; at < n; at += RCCLX_CODEC_BLOCK, scales += 2) {
        const size_t   part = n - at < RCCLX_CODEC_BLOCK ? n - at : RCCLX_CODEC_BLOCK;
        const uint16_t s    = block_encode(f, t, x + at, part, codes + at);

        memcpy(scales, &s, sizeof s);
    }
}

void rcclx_blocks_decode(const rcclx_codec_format *f, rcclx_type t, const void *wire, size_t count, size_t first, size_t n, float *x)
{
    const uint8_t *const codes = (const uint8_t *)wire + first, *const scales = (const uint8_t *)wire + rcclx_codec_scales_at(count);
    const float          most  = t == RCCLX_F16 ? 65504.0f : t == RCCLX_BF16 ? 0x1.fep127f : FLT_MAX;

    for (size_t i = 0; i < n; i++) {
        uint16_t s;

        memcpy(&s, scales + (first + i) / RCCLX_CODEC_BLOCK * 2, sizeof s);
        x[i] = f->value(codes[i], s >> 15) * rcclx_bf16_to_f32(s & 0x7fff);
        if (s >> 15 && isfinite(x[i]))
            x[i] = x[i] > most ? most : x[i] < -most ? -most : x[i];
    }
}

void rcclx_elements_widen(rcclx_type t, const void *src, size_t n, float *x)
{
    if (t == RCCLX_F32)
        memcpy(x, src, n * sizeof *x);
    else
        for (size_t i = 0; i < n; i++) {
            uint16_t h;

            memcpy(&h, (const char *)src + 2 * i, sizeof h);
            x[i] = t == RCCLX_F16 ? rcclx_f16_to_f32(h) : rcclx_bf16_to_f32(h);
        }
}

void rcclx_elements_narrow(rcclx_type t, const float *x, size_t n, void *dst)
{
    for (size_t i = 0; i < n; i++) {
        const float    whole = isnan(x[i]) ? rcclx_f32_from_bits(0x7fc00000) : x[i];
        const uint16_t h     = t == RCCLX_F16 ? rcclx_f32_to_f16(x[i]) : rcclx_f32_to_bf16(x[i]);

        if (t == RCCLX_F32)
            memcpy((char *)dst + 4 * i, &whole, sizeof whole);
        else
            memcpy((char *)dst + 2 * i, &h, sizeof h);
    }
}

enum { TILE = 1024 };

void rcclx_run_encode(const rcclx_codec_format *f, rcclx_type t, const void *src, size_t count, void *wire)
{
    float x[TILE];

    for (size_t at = 0; at < count; at += TILE) {
        const size_t n = count - at < TILE ? count - at : TILE;

        rcclx_elements_widen(t, (const char *)src + at * rcclx_type_size(t), n, x);
        rcclx_blocks_encode(f, t, x, n, wire, count, at);
    }
}

void rcclx_run_decode(const rcclx_codec_format *f, rcclx_type t, const void *wire, size_t count, void *dst)
{
    float x[TILE];

    for (size_t at = 0; at < count; at += TILE) {
        const size_t n = count - at < TILE ? count - at : TILE;

        rcclx_blocks_decode(f, t, wire, count, at, n, x);
        rcclx_elements_narrow(t, x, n, (char *)dst + at * rcclx_type_size(t));
    }
}
