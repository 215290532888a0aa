#ifndef RCCLX_TESTS_SMALL_FLOATS_H
#define RCCLX_TESTS_SMALL_FLOATS_H

/* Floats of 8 and 16 bits by arithmetic alone, as docs/numerics.md describes them:
 *
 *   double   x = small_value(&small_f16, 0x3c00);  // 1
 *   unsigned u = small_round(&small_e4m3, 466);    // 0x7e: saturates to 448 */
#include <math.h>
#include <stdint.h>

typedef struct {
    int      nbits, mant, bias;
    unsigned most;     /* code of the largest finite value */
    unsigned overflow; /* what is beyond becomes: Inf's code, or `most` */
    unsigned inf, nan; /* inf 0: has none */
} small_float;

static const small_float small_f16 = { 16, 10, 15, 0x7bff, 0x7c00, 0x7c00, 0x7e00 };
static const small_float small_bf16 = { 16, 7, 127, 0x7f7f, 0x7f80, 0x7f80, 0x7fc0 };
static const small_float small_e4m3 = { 8, 3, 7, 0x7e, 0x7e, 0, 0x7f };
static const small_float small_e5m2 = { 8, 2, 15, 0x7b, 0x7b, 0x7c, 0x7f };

static inline double small_value(const small_float *f, unsigned bits)
{
    const unsigned top = 1u << (f->nbits - 1), code = bits & (top - 1);
    const int      e = (int)(code >> f->mant), m = (int)(code & ((1u << f->mant) - 1));
    double         x = e ? ldexp(m + (1 << f->mant), e - f->bias - f->mant) : ldexp(m, 1 - f->bias - f->mant);

    if (code > f->most)
        x = code == f->inf ? (double)INFINITY : (double)NAN;
    return bits & top ? -x : x;
}

/* To nearest, ties to even. */
static inline unsigned small_round(const small_float *f, double x)
{
    const unsigned sign = signbit(x) ? 1u << (f->nbits - 1) : 0;
    const double   a = fabs(x);

    if (isnan(x))
        return f->nan;
    if (isinf(x))
        return sign | (f->inf ? f->inf : f->most);
    if (a == 0)
        return sign;
    const int    least = 1 - f->bias, e = ilogb(a) > least ? ilogb(a) : least;
    const double code = nearbyint(ldexp(a, f->mant - e)) + ldexp(e + f->bias - 1, f->mant);
    return sign | (code > f->most ? f->overflow : (unsigned)code);
}

#endif
