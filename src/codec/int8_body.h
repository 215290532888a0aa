/* Integers, compiled by codec_body.h alone, so there is no include guard: a code is the number of
 * scales nearest to the value, -126 to 126, as a byte in two's complement. */
#define int8_MOST      126.0f
#define int8_SCALE_MAX 0x7c020000 /* times 126 just finite */
#define int8_INF       0x7f
#define int8_MINUS_INF 0x81
#define int8_NAN       0x80

INLINE vi32 int8_code(vf32 x, vf32 inverse)
{
    return round_product(x, inverse);
}

INLINE vf32 int8_value(vi32 code)
{
    return __builtin_convertvector(code, vf32);
}

INLINE vi32 int8_is_inf(vi32 code)
{
    return (code == 127) | (code == -127);
}

INLINE vi32 int8_is_nan(vi32 code)
{
    return code == -128;
}
