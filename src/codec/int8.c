#include "codec/codec_block.h"

#include <math.h>

/* Integers: a code is the number of scales nearest to the value, -126 to 126. 127 and -127 are
 * Inf, -128 is NaN, where the block wants care. */

static uint8_t int8_code(float x, float inverse, bool care)
{
    double q;

    if (isnan(x))
        return 0x80;
    if (isinf(x))
        return x > 0 ? 0x7f : 0x81;
    q = rint((double)x * (double)inverse); /* exact before it is rounded */
    if (care)
        q = q > 126 ? 126 : q < -126 ? -126 : q;
    return (uint8_t)(int8_t)q;
}

static float int8_value(uint8_t code, bool care)
{
    if (care && code == 0x80)
        return NAN;
    if (care && (code == 0x7f || code == 0x81))
        return code == 0x7f ? INFINITY : -INFINITY;
    return (float)(int8_t)code;
}

static void int8_encode(rcclx_type type, const void *src, size_t count, void *wire)
{
    rcclx_run_encode(&rcclx_int8, type, src, count, wire);
}

static void int8_decode(rcclx_type type, const void *wire, size_t count, void *dst)
{
    rcclx_run_decode(&rcclx_int8, type, wire, count, dst);
}

const rcclx_codec_format rcclx_int8 = {
    .row       = {"int8", "8-bit integers, blocks of 32", int8_encode, int8_decode},
    .per_most  = 1.0f / 126,
    .scale_max = 0x1.04p121f,
    .code      = int8_code,
    .value     = int8_value,
};
