#ifndef RCCLX_DEVICE_CONVERT_H
#define RCCLX_DEVICE_CONVERT_H

#include <stdint.h>
#include <string.h>

/* One value of a small float type to f32 and back, on bits:
 *
 *   float    x = rcclx_f16_to_f32(bits);
 *   uint16_t h = rcclx_f32_to_f16(x);      nearest, ties to even
 *
 *   type    sign exponent mantissa  bias  largest  Inf   NaN made here
 *   f16      1      5        10      15    65504   yes     0x7e00
 *   bf16     1      8         7     127   3.39e38  yes     0x7fc0
 *   e4m3     1      4         3       7      448    no     0x7f        OCP "fn"
 *   e5m2     1      5         2      15    57344   yes     0x7f        OCP
 *
 * f16 and bf16 overflow to Inf as IEEE 754 does. The fp8 types saturate to the
 * largest finite value; Inf gives Inf in e5m2 and 448 in e4m3, which has none.
 * Every NaN becomes the one NaN of the table. Subnormals are kept, whatever
 * the flush-to-zero mode is. The vector kernels (reduce_body.h) do the same
 * arithmetic on many values. This is the subset of C that CUDA and HIP compile
 * too; RCCLX_DEVICE_FN is __host__ __device__ there. */
#ifndef RCCLX_DEVICE_FN
#define RCCLX_DEVICE_FN static inline
#endif

RCCLX_DEVICE_FN uint32_t rcclx_f32_bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    return u;
}

RCCLX_DEVICE_FN float rcclx_f32_from_bits(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

/* A small float with `mant` mantissa bits and that bias, sign taken off, to
 * f32 bits. For exponent 0 the exponent is first taken for 1 and the implicit
 * one subtracted again: exact, and without touching an f32 subnormal. */
RCCLX_DEVICE_FN uint32_t rcclx_small_widen(uint32_t code, int mant, int bias)
{
    const uint32_t moved = (code << (23 - mant)) + ((uint32_t)(127 - bias) << 23);
    const float    one   = rcclx_f32_from_bits((uint32_t)(128 - bias) << 23);

    return code >> mant ? moved : rcclx_f32_bits(rcclx_f32_from_bits(moved + (1u << 23)) - one);
}

/* The way back, for f32 bits without sign that are not NaN: the code, at most
 * `most`. A result below the smallest normal is rounded by adding a power of two
 * whose last place is the smallest subnormal. */
RCCLX_DEVICE_FN uint32_t rcclx_small_round(uint32_t bits, int mant, int bias, uint32_t most)
{
    const int      drop  = 23 - mant;
    const uint32_t magic = (uint32_t)(127 + 1 - bias + drop) << 23;
    uint32_t       code;

    if (bits < (uint32_t)(128 - bias) << 23)
        return rcclx_f32_bits(rcclx_f32_from_bits(bits) + rcclx_f32_from_bits(magic)) - magic;
    code = (bits + ((1u << (drop - 1)) - 1) + ((bits >> drop) & 1) - ((uint32_t)(127 - bias) << 23)) >> drop;
    return code < most ? code : most;
}

RCCLX_DEVICE_FN float rcclx_f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, code = h & 0x7fffu;
    const uint32_t bits = rcclx_small_widen(code, 10, 15);

    return rcclx_f32_from_bits(sign | (code >= 0x7c00u ? bits | 0x7f800000u : bits));
}

RCCLX_DEVICE_FN uint16_t rcclx_f32_to_f16(float x)
{
    const uint32_t u = rcclx_f32_bits(x), bits = u & 0x7fffffffu;

    if (bits > 0x7f800000u)
        return 0x7e00;
    return (uint16_t)((u >> 16 & 0x8000u) | rcclx_small_round(bits, 10, 15, 0x7c00));
}

RCCLX_DEVICE_FN float rcclx_bf16_to_f32(uint16_t h)
{
    return rcclx_f32_from_bits((uint32_t)h << 16);
}

RCCLX_DEVICE_FN uint16_t rcclx_f32_to_bf16(float x)
{
    const uint32_t u = rcclx_f32_bits(x);

    if ((u & 0x7fffffffu) > 0x7f800000u)
        return 0x7fc0;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

RCCLX_DEVICE_FN float rcclx_e4m3_to_f32(uint8_t b)
{
    const uint32_t sign = (uint32_t)(b & 0x80u) << 24, code = b & 0x7fu;

    return rcclx_f32_from_bits(code == 0x7f ? 0x7fc00000u : sign | rcclx_small_widen(code, 3, 7));
}

RCCLX_DEVICE_FN uint8_t rcclx_f32_to_e4m3(float x)
{
    const uint32_t u = rcclx_f32_bits(x), bits = u & 0x7fffffffu;

    if (bits > 0x7f800000u)
        return 0x7f;
    return (uint8_t)((u >> 24 & 0x80u) | rcclx_small_round(bits, 3, 7, 0x7e));
}

RCCLX_DEVICE_FN float rcclx_e5m2_to_f32(uint8_t b)
{
    return rcclx_f16_to_f32((uint16_t)(b << 8));
}

RCCLX_DEVICE_FN uint8_t rcclx_f32_to_e5m2(float x)
{
    const uint32_t u = rcclx_f32_bits(x), bits = u & 0x7fffffffu;

    if (bits > 0x7f800000u)
        return 0x7f;
    return (uint8_t)((u >> 24 & 0x80u) | (bits == 0x7f800000u ? 0x7cu : rcclx_small_round(bits, 2, 15, 0x7b)));
}

#endif
