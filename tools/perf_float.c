/* Numbers in the floating-point types of 16 and 8 bits, written out from the
 * definition and independent of the library under test.
 *
 *   bits = sign | exponent field | mantissa m bits
 *
 * A finite x with 2^e <= |x| < 2^(e+1), e not below the least normal exponent,
 * is rounded to a multiple of 2^(e-m); counting those multiples from the least
 * normal binade on gives exponent field and mantissa in one number, and a carry
 * of the rounding goes where it should. */
#include "perf_data.h"

#include "nccl.h"

#include <math.h>

uint16_t perf_float_bits(int type, double x)
{
    const int mantissa = type == ncclFloat16 ? 10 : type == ncclBfloat16 ? 7 : type == ncclFloat8e4m3 ? 3 : 2;
    const int least    = type == ncclBfloat16 ? -126 : type == ncclFloat8e4m3 ? -6 : -14;
    const int top      = type == ncclFloat16 || type == ncclBfloat16 ? 15 : 7;
    int       e;
    unsigned  units;

    frexp(x, &e);
    e = x == 0 || e - 1 < least ? least : e - 1;
    units = (unsigned)rint(ldexp(fabs(x), mantissa - e)) + ((unsigned)(e - least) << mantissa);
    return (uint16_t)(units | (signbit(x) ? 1u << top : 0u));
}

double perf_float_value(int type, uint16_t bits)
{
    const int mantissa = type == ncclFloat16 ? 10 : 7, least = type == ncclFloat16 ? -14 : -126;
    const int field    = (bits & 0x7fff) >> mantissa, below = bits & ((1 << mantissa) - 1);
    double    x        = ldexp(field ? below + (1 << mantissa) : below, least - mantissa + (field ? field - 1 : 0));

    if (field == 0x7fff >> mantissa)
        x = below ? (double)NAN : (double)INFINITY;
    return bits & 0x8000 ? -x : x;
}
