/* OCP e4m3, compiled by codec_body.h alone, so there is no include guard: a code is the value in
 * scales, at most 416, so that 448 (0x7e) is free for Inf.
 *
 *   f32   s eeeeeeee mmm.mmmmmmmmmmmmmmmmmmmm     e - 120 in four bits and the first three m, rounded;
 *   code                         s eeee mmm       below 2^-6 (code 8) a multiple of 2^-9 */
#define fp8_MOST      416.0f
#define fp8_SCALE_MAX 0x7b1d0000 /* times 416 just finite */
#define fp8_INF       0x7e
#define fp8_MINUS_INF 0xfe
#define fp8_NAN       0x7f

/* Small ones are rounded by adding 2^14, whose last place is 2^-9. */
INLINE vi32 fp8_code(vf32 x, vf32 inverse)
{
    const vu32 u     = (vu32)(x * inverse);
    const vu32 t     = u & 0x7fffffff;
    const vu32 small = (vu32)((vf32)t + SPLAT_F32(0x1p14f)) - 0x46800000;
    const vu32 code  = (t + (t >> 20 & 1) + 0x7ffff - (120 << 23)) >> 20;

    return (vi32)((vu32)pick((vec)((vi32)t < 0x3c800000), (vec)small, (vec)code) | (u >> 24 & 0x80));
}

/* A small one is first taken for one of exponent 1, and the implicit 2^-6 taken off again. */
INLINE vf32 fp8_value(vi32 code)
{
    const vi32 size  = code & 0x7f;
    const vi32 bits  = (size << 20) + (120 << 23);
    const vi32 small = (vi32)((vf32)(bits + (1 << 23)) - SPLAT_F32(0x1p-6f));
    const vi32 sign  = (vi32)((vu32)code << 24 & 0x80000000);

    return (vf32)((vi32)pick((vec)(size < 8), (vec)small, (vec)bits) | sign);
}

INLINE vi32 fp8_is_inf(vi32 code)
{
    return (code & 0x7f) == 0x7e;
}

INLINE vi32 fp8_is_nan(vi32 code)
{
    return (code & 0x7f) == 0x7f;
}
