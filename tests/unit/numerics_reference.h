#ifndef RCCLX_TESTS_NUMERICS_REFERENCE_H
#define RCCLX_TESTS_NUMERICS_REFERENCE_H

#include "device/reduce.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* docs/numerics.md once more, as slow and as plain as possible, to hold the
 * library against. Small floats are decoded by ldexp from their fields and
 * rounded by searching the two neighbours among all values of the type; nothing
 * is shared with src/device.
 *
 *   uint64_t bits = reference(type, op, nsrc, sources, divisor, scalars);
 *
 * Call reference_init first. One test program includes this once. */
typedef struct {
    int      mant, bias;
    int      most;    /* code of the largest finite value */
    int      inf;     /* what overflow gives: Inf's code, or `most` to saturate */
    int      nan;
    int      nbits;
    double   value[32769]; /* of codes 0..most+1, the last as if the range went on */
} small_float;

static small_float small_f16, small_bf16, small_e4m3, small_e5m2;

static small_float *small_of(rcclx_type t)
{
    switch (t) {
    case RCCLX_F16: return &small_f16;
    case RCCLX_BF16: return &small_bf16;
    case RCCLX_F8E4M3: return &small_e4m3;
    case RCCLX_F8E5M2: return &small_e5m2;
    default: return NULL;
    }
}

static void small_init(small_float *f, int nbits, int mant, int bias, int most, int inf, int nan)
{
    f->nbits = nbits, f->mant = mant, f->bias = bias, f->most = most, f->inf = inf, f->nan = nan;
    for (int code = 0; code <= most + 1; code++) {
        const int e = code >> mant, m = code & ((1 << mant) - 1);

        f->value[code] = e == 0 ? ldexp(m, 1 - bias - mant) : ldexp(m + (1 << mant), e - bias - mant);
    }
}

static void reference_init(void)
{
    small_init(&small_f16, 16, 10, 15, 0x7bff, 0x7c00, 0x7e00);
    small_init(&small_bf16, 16, 7, 127, 0x7f7f, 0x7f80, 0x7fc0);
    small_init(&small_e4m3, 8, 3, 7, 0x7e, 0x7e, 0x7f);
    small_init(&small_e5m2, 8, 2, 15, 0x7b, 0x7b, 0x7f);
}

static double small_value(const small_float *f, uint64_t bits)
{
    const int    code = (int)(bits & ((1u << (f->nbits - 1)) - 1));
    const double sign = bits >> (f->nbits - 1) & 1 ? -1.0 : 1.0;

    if (code <= f->most)
        return sign * f->value[code];
    return code == f->most + 1 && f->mant != 3 ? sign * INFINITY : (double)NAN;
}

static uint64_t small_nearest(const small_float *f, double x)
{
    const uint64_t sign = signbit(x) ? UINT64_C(1) << (f->nbits - 1) : 0;
    const double   a = fabs(x);
    int            low = 0, high = f->most + 1;
    double         below, above;

    if (isnan(x))
        return (uint64_t)f->nan;
    if (isinf(x))
        return sign | (uint64_t)(f->mant == 3 ? f->most : f->most + 1);
    while (high - low > 1) {
        const int middle = (low + high) / 2;

        if (f->value[middle] <= a)
            low = middle;
        else
            high = middle;
    }
    below = a - f->value[low], above = f->value[high] - a;
    if (above < below || (above == below && high % 2 == 0))
        low = high;
    return sign | (uint64_t)(low > f->most ? f->inf : low);
}

static float float_of(uint64_t bits)
{
    const uint32_t u = (uint32_t)bits;
    float          x;

    memcpy(&x, &u, 4);
    return x;
}

static double double_of(uint64_t bits)
{
    double x;

    memcpy(&x, &bits, 8);
    return x;
}

static float value32(rcclx_type t, uint64_t bits)
{
    return t == RCCLX_F32 ? float_of(bits) : (float)small_value(small_of(t), bits);
}

static uint64_t round32(rcclx_type t, float x)
{
    uint32_t u;

    if (t != RCCLX_F32)
        return small_nearest(small_of(t), x);
    memcpy(&u, &x, 4);
    return isnan(x) ? 0x7fc00000 : u;
}

static uint64_t round64(double x)
{
    uint64_t u;

    memcpy(&u, &x, 8);
    return isnan(x) ? UINT64_C(0x7ff8000000000000) : u;
}

/* Is a to be kept when looking for the larger (or, least, the smaller)? */
static int is_better(double a, double b, int least)
{
    if (isnan(a) || isnan(b))
        return isnan(a);
    if (a == b)
        return least ? signbit(a) != 0 : !signbit(a);
    return least ? a < b : a > b;
}

static float product32(rcclx_type t, float a, float b)
{
    const double         exact = (double)a * (double)b;
    const volatile float r     = (float)exact;

    if (small_of(t) && small_of(t)->nbits == 8 && isinf(r) && !isinf(a) && !isinf(b))
        return copysignf(FLT_MAX, r);
    return r;
}

static uint64_t reference32(rcclx_type t, rcclx_redop op, int n, const uint64_t *s, int divisor, const uint64_t *scalar)
{
    volatile float acc = 0;

    for (int i = 0; i < n; i++) {
        volatile float x = value32(t, s[i]);

        if (op == RCCLX_PREMUL && scalar)
            x = x * value32(t, scalar[i]);
        if (i == 0)
            acc = x;
        else if (op == RCCLX_PROD)
            acc = product32(t, acc, x);
        else if (op == RCCLX_MAX || op == RCCLX_MIN)
            acc = is_better(acc, x, op == RCCLX_MIN) ? acc : x;
        else
            acc = acc + x;
    }
    if (op == RCCLX_AVG && divisor > 0)
        acc = acc / (float)divisor;
    return round32(t, acc);
}

static uint64_t reference64(rcclx_redop op, int n, const uint64_t *s, int divisor, const uint64_t *scalar)
{
    volatile double acc = 0;

    for (int i = 0; i < n; i++) {
        volatile double x = double_of(s[i]);

        if (op == RCCLX_PREMUL && scalar)
            x = x * double_of(scalar[i]);
        if (i == 0)
            acc = x;
        else if (op == RCCLX_PROD)
            acc = acc * x;
        else if (op == RCCLX_MAX || op == RCCLX_MIN)
            acc = is_better(acc, x, op == RCCLX_MIN) ? acc : x;
        else
            acc = acc + x;
    }
    if (op == RCCLX_AVG && divisor > 0)
        acc = acc / divisor;
    return round64(acc);
}

__extension__ typedef __int128 wide;

static wide integer_of(rcclx_type t, uint64_t bits)
{
    switch (t) {
    case RCCLX_I8: return (int8_t)bits;
    case RCCLX_U8: return (uint8_t)bits;
    case RCCLX_I32: return (int32_t)bits;
    case RCCLX_U32: return (uint32_t)bits;
    case RCCLX_I64: return (int64_t)bits;
    default: return bits;
    }
}

static uint64_t reference_integer(rcclx_type t, rcclx_redop op, int n, const uint64_t *s, int divisor, const uint64_t *scalar)
{
    const size_t   nbits = 8 * rcclx_type_size(t);
    const uint64_t mask  = ~UINT64_C(0) >> (64 - nbits);
    wide           acc   = 0;

    for (int i = 0; i < n; i++) {
        wide x = integer_of(t, s[i]);

        if (op == RCCLX_PREMUL && scalar)
            x = integer_of(t, ((uint64_t)x * scalar[i]) & mask);
        if (i == 0)
            acc = x;
        else if (op == RCCLX_PROD)
            acc = integer_of(t, ((uint64_t)acc * (uint64_t)x) & mask);
        else if (op == RCCLX_MAX)
            acc = x > acc ? x : acc;
        else if (op == RCCLX_MIN)
            acc = x < acc ? x : acc;
        else
            acc += x;
    }
    if (op == RCCLX_AVG && divisor > 0)
        acc /= divisor;
    return (uint64_t)acc & mask;
}

static inline uint64_t reference(rcclx_type t, rcclx_redop op, int n, const uint64_t *s, int divisor, const uint64_t *scalar)
{
    /* One source with nothing to do is copied, NaN and all. */
    if (n == 1 && (op != RCCLX_PREMUL || !scalar) && (op != RCCLX_AVG || divisor <= 1))
        return s[0];
    if (t == RCCLX_F64)
        return reference64(op, n, s, divisor, scalar);
    if (t < RCCLX_F16)
        return reference_integer(t, op, n, s, divisor, scalar);
    return reference32(t, op, n, s, divisor, scalar);
}

/* ---- what the test programs share besides ---- */

static int tap_count, tap_failed;

static void tap(int good, const char *name, const char *detail)
{
    printf("%sok %d - %s%s%s\n", good ? "" : "not ", ++tap_count, name, detail[0] ? ": " : "", detail);
    tap_failed += !good;
}

static int tap_done(void)
{
    printf("1..%d\n", tap_count);
    return tap_failed != 0;
}

static uint64_t random_state = 88172645463325252u;

static uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state * 2685821657736338717u;
}

static const char *const isa_names[] = {"avx512", "avx2", "neon", "baseline"};
enum { ISA_NAMES = sizeof isa_names / sizeof isa_names[0] };

static inline uint64_t bits_get(const void *p, size_t width)
{
    uint64_t u = 0;

    memcpy(&u, p, width); /* little endian, as every machine we run on */
    return u;
}

#endif
