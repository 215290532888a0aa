#include "codec/codec_block.h"

#include "device/convert.h"

#include <math.h>

/* OCP e4m3: a code is the value in scales, at most 416. 448 and -448 are Inf, 0x7f is NaN, where
 * the block wants care. */

static uint8_t fp8_code(float x, float inverse, bool care)
{
    float t;

    if (isnan(x))
        return 0x7f;
    if (isinf(x))
        return x > 0 ? 0x7e : 0xfe;
    t = x * inverse;
    if (care)
        t = t > 416 ? 416 : t < -416 ? -416 : t;
    return rcclx_f32_to_e4m3(t);
}

static float fp8_value(uint8_t code, bool care)
{
    if (care && (code & 0x7f) == 0x7f)
        return NAN;
    if (care && (code & 0x7f) == 0x7e)
        return code == 0x7e ? INFINITY : -INFINITY;
    return rcclx_e4m3_to_f32(code);
}

static void fp8_encode(rcclx_type type, const void *src, size_t count, void *wire)
{
    rcclx_run_encode(&rcclx_fp8, type, src, count, wire);
}

static void fp8_decode(rcclx_type type, const void *wire, size_t count, void *dst)
{
    rcclx_run_decode(&rcclx_fp8, type, wire, count, dst);
}

const rcclx_codec_format rcclx_fp8 = {
    .row       = {"fp8", "8-bit floats (OCP e4m3), blocks of 32", fp8_encode, fp8_decode},
    .per_most  = 1.0f / 416,
    .scale_max = 0x1.3ap119f,
    .code      = fp8_code,
    .value     = fp8_value,
};
