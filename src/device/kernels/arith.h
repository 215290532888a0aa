#ifndef RCCLX_DEVICE_KERNELS_ARITH_H
#define RCCLX_DEVICE_KERNELS_ARITH_H

/* The reduction of kernels: what rcclx_reduce (device/reduce.h) does on the host, bit for
 * bit, on vectors of 16 bytes. docs/numerics.md is the contract.
 *
 *   gp_acc a;
 *   gp_acc_first(&a, GP_BF16, GP_SUM, v0, 0, 0);
 *   gp_acc_next(&a, GP_BF16, GP_SUM, v1, 0, 0);      as many as there are, in order
 *   out = gp_acc_last(&a, GP_BF16, GP_SUM, 0);
 *
 * Type and operator are numbers as in device/types.h, and have to be constants once all is
 * inlined: then only the branches and members of gp_acc that they need are left, in registers.
 *
 *   scalar, raw   PREMUL: a raw source is multiplied by the scalar (bits of the type)
 *   divisor       AVG: divides by it at the end; 0: leaves the sum (rounded, wrapped), for a
 *                 step whose result another one goes on with
 *
 * One source alone is copied by the caller, where the operator has nothing to do (SUM, PROD,
 * MAX, MIN, AVG by 0 or 1, PREMUL that is not raw): NaNs keep their payload there.
 *
 * How elements lie in gp_acc, element 0 first, `n` of them in a vector:
 *
 *   MAX, MIN     u[n]; q[2] for 64 bits    keys: integers that sort as the values do
 *   small float, f32                f[n]   widened
 *   f64                             d[2]
 *   int8, uint8                     u[16]  extended to 32 bits
 *   int32, uint32         u[4]; AVG q[4]   extended to 64 bits
 *   int64, uint64         q[2]; AVG q[4]   low halves, then high halves of 128 bits */

#include "device/kernels/gp.h"

enum { GP_I8, GP_U8, GP_I32, GP_U32, GP_I64, GP_U64, GP_F16, GP_F32, GP_F64, GP_BF16, GP_E4M3, GP_E5M2 };
enum { GP_SUM, GP_PROD, GP_MAX, GP_MIN, GP_AVG, GP_PREMUL };

typedef struct {
    float    f[16];
    double   d[2];
    uint32_t u[16];
    uint64_t q[4];
} gp_acc;

GP_DEV int gp_type_bytes(int type)
{
    return type <= GP_U8 || type >= GP_E4M3 ? 1 : type == GP_F16 || type == GP_BF16 ? 2 :
           type == GP_I64 || type == GP_U64 || type == GP_F64 ? 8 : 4;
}

GP_DEV int gp_type_is_float(int type) { return type >= GP_F16; }
GP_DEV int gp_type_is_signed(int type) { return type == GP_I8 || type == GP_I32 || type == GP_I64; }
GP_DEV int gp_op_is_order(int op) { return op == GP_MAX || op == GP_MIN; }

/* ---- elements of a vector */

GP_DEV uint64_t gp_get64(gp_v4 v, int i) { return gp_get(v, 2 * i) | (uint64_t)gp_get(v, 2 * i + 1) << 32; }

GP_DEV void gp_set64(gp_v4 *v, int i, uint64_t x)
{
    gp_set(v, 2 * i, (uint32_t)x);
    gp_set(v, 2 * i + 1, (uint32_t)(x >> 32));
}

/* Element i of a type up to 32 bits, at the top of a word, zeros below. */
GP_DEV uint32_t gp_get_top(int bytes, gp_v4 v, int i)
{
    if (bytes == 4)
        return gp_get(v, i);
    if (bytes == 2)
        return i % 2 ? gp_get(v, i / 2) & 0xffff0000u : gp_get(v, i / 2) << 16;
    return gp_get(v, i / 4) << (24 - 8 * (i % 4)) & 0xff000000u;
}

GP_DEV uint32_t gp_join8(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    return (a & 0xff) | (b & 0xff) << 8 | (c & 0xff) << 16 | d << 24;
}

/* ---- MAX and MIN
 *
 * Everything becomes the signed maximum: sign and magnitude are made two's complement (-0 is
 * then below +0), unsigned ones move by half their range, MIN turns the order round, and NaN is
 * the greatest, which no number reaches. A small type stands at the top of its word. */

GP_DEV uint32_t gp_key_flip(int type, int op)
{
    const int is_unsigned = !gp_type_is_float(type) && !gp_type_is_signed(type);

    return (op == GP_MIN ? ~0u : 0) ^ (is_unsigned ? 0x80000000u : 0);
}

/* The greatest code that is a number or Inf, and the canonical NaN; both at the top. */
GP_DEV uint32_t gp_key_inf(int type)
{
    return type == GP_F16 ? 0x7c000000u : type == GP_E4M3 ? 0x7e000000u : type == GP_E5M2 ? 0x7c000000u : 0x7f800000u;
}

GP_DEV uint32_t gp_key_nan(int type)
{
    return type == GP_F16 ? 0x7e000000u : type == GP_E4M3 || type == GP_E5M2 ? 0x7f000000u : 0x7fc00000u;
}

GP_DEV uint32_t gp_key_turn(uint32_t b) { return b ^ ((0u - (b >> 31)) & 0x7fffffffu); }
GP_DEV uint64_t gp_key_turn64(uint64_t b) { return b ^ ((UINT64_C(0) - (b >> 63)) & 0x7fffffffffffffffu); }

GP_DEV uint32_t gp_key(int type, int op, uint32_t b)
{
    if (!gp_type_is_float(type))
        return b ^ gp_key_flip(type, op);
    return (b & 0x7fffffffu) > gp_key_inf(type) ? 0x7fffffffu : gp_key_turn(b) ^ gp_key_flip(type, op);
}

GP_DEV uint32_t gp_unkey(int type, int op, uint32_t key)
{
    if (!gp_type_is_float(type))
        return key ^ gp_key_flip(type, op);
    return key == 0x7fffffffu ? gp_key_nan(type) : gp_key_turn(key ^ gp_key_flip(type, op));
}

/* The two halves of a flip are alike but for the sign. */
GP_DEV uint64_t gp_key_flip64(int type, int op)
{
    return (uint64_t)gp_key_flip(type, op) << 32 | (op == GP_MIN ? 0xffffffffu : 0);
}

GP_DEV uint64_t gp_key64(int type, int op, uint64_t b)
{
    if (!gp_type_is_float(type))
        return b ^ gp_key_flip64(type, op);
    return (b & 0x7fffffffffffffffu) > 0x7ff0000000000000u ? 0x7fffffffffffffffu : gp_key_turn64(b) ^ gp_key_flip64(type, op);
}

GP_DEV uint64_t gp_unkey64(int type, int op, uint64_t key)
{
    if (!gp_type_is_float(type))
        return key ^ gp_key_flip64(type, op);
    return key == 0x7fffffffffffffffu ? 0x7ff8000000000000u : gp_key_turn64(key ^ gp_key_flip64(type, op));
}

GP_DEV void gp_order_open(gp_acc *a, int type, int op, gp_v4 v)
{
    const int bytes = gp_type_bytes(type);

    GP_UNROLL
    for (int i = 0; i < 16; i++)
        if (bytes < 8 && i < 16 / bytes)
            a->u[i] = gp_key(type, op, gp_get_top(bytes, v, i));
    GP_UNROLL
    for (int i = 0; i < 2; i++)
        if (bytes == 8)
            a->q[i] = gp_key64(type, op, gp_get64(v, i));
}

GP_DEV void gp_order_fold(gp_acc *a, int type, const gp_acc *b)
{
    const int bytes = gp_type_bytes(type);

    GP_UNROLL
    for (int i = 0; i < 16; i++)
        if (bytes < 8 && i < 16 / bytes)
            a->u[i] = (int32_t)a->u[i] > (int32_t)b->u[i] ? a->u[i] : b->u[i];
    GP_UNROLL
    for (int i = 0; i < 2; i++)
        if (bytes == 8)
            a->q[i] = (int64_t)a->q[i] > (int64_t)b->q[i] ? a->q[i] : b->q[i];
}

GP_DEV gp_v4 gp_order_close(const gp_acc *a, int type, int op)
{
    const int bytes = gp_type_bytes(type);
    gp_v4     v = gp_v4_make(0, 0, 0, 0);
    uint32_t  b[4];

    GP_UNROLL
    for (int w = 0; w < 4; w++) {
        GP_UNROLL
        for (int i = 0; i < 4; i++)
            b[i] = bytes < 8 && i < 4 / bytes ? gp_unkey(type, op, a->u[w * 4 / bytes + i]) : 0;
        if (bytes == 1)
            gp_set(&v, w, gp_join8(b[0] >> 24, b[1] >> 24, b[2] >> 24, b[3] >> 24));
        else if (bytes < 8)
            gp_set(&v, w, bytes == 2 ? b[0] >> 16 | b[1] : b[0]);
        else if (w % 2 == 0)
            gp_set64(&v, w / 2, gp_unkey64(type, op, a->q[w / 2]));
    }
    return v;
}

/* ---- floats that are computed in f32 */

GP_DEV float gp_scalar_f32(int type, uint64_t bits)
{
    return type == GP_F16 ? gp_f16_f32((uint16_t)bits) : type == GP_BF16 ? gp_bf16_f32((uint16_t)bits) :
           type == GP_E4M3 ? gp_e4m3_f32((uint8_t)bits) : type == GP_E5M2 ? gp_e5m2_f32((uint8_t)bits) :
           gp_bits_f32((uint32_t)bits);
}

GP_DEV void gp_f32_open(gp_acc *a, int type, int op, gp_v4 v, uint64_t scalar, int raw)
{
    const int   n = 16 / gp_type_bytes(type);

    GP_UNROLL
    for (int w = 0; w < 4; w++) {
        const uint32_t word = gp_get(v, w);

        if (type == GP_F16)
            gp_open_f16(word, a->f + 2 * w);
        else if (type == GP_BF16)
            gp_open_bf16(word, a->f + 2 * w);
        else if (type == GP_E4M3)
            gp_open_e4m3(word, a->f + 4 * w);
        else if (type == GP_E5M2)
            gp_open_e5m2(word, a->f + 4 * w);
        else
            a->f[w] = gp_bits_f32(word);
    }
    if (op == GP_PREMUL && raw) {
        const float by = gp_scalar_f32(type, scalar);

        GP_UNROLL
        for (int i = 0; i < 16; i++)
            if (i < n)
                a->f[i] = gp_mul_f32(a->f[i], by);
    }
}

/* A product of finite fp8 values stays finite, so that a later factor of zero gives zero. */
GP_DEV float gp_mul_finite(float a, float b)
{
    const float    r  = gp_mul_f32(a, b);
    const uint32_t ur = gp_f32_bits(r), inf = 0x7f800000u;
    const int over = (ur & 0x7fffffffu) == inf && (gp_f32_bits(a) & 0x7fffffffu) != inf && (gp_f32_bits(b) & 0x7fffffffu) != inf;

    return over ? gp_bits_f32((ur & 0x80000000u) | 0x7f7fffffu) : r;
}

GP_DEV void gp_f32_fold(gp_acc *a, int type, int op, const gp_acc *b)
{
    const int bytes = gp_type_bytes(type);

    GP_UNROLL
    for (int i = 0; i < 16; i++)
        if (i < 16 / bytes)
            a->f[i] = op != GP_PROD ? gp_add_f32(a->f[i], b->f[i]) :
                      bytes == 1 ? gp_mul_finite(a->f[i], b->f[i]) : gp_mul_f32(a->f[i], b->f[i]);
}

/* By a power of two the product with the inverse is the same, and much cheaper. */
GP_DEV void gp_f32_divide(float *f, int n, int divisor)
{
    const float by = (float)divisor, inverse = gp_div_f32(1, by);

    if ((divisor & (divisor - 1)) == 0) {
        GP_UNROLL
        for (int i = 0; i < 16; i++)
            if (i < n)
                f[i] = gp_mul_f32(f[i], inverse);
    } else {
        GP_UNROLL
        for (int i = 0; i < 16; i++)
            if (i < n)
                f[i] = gp_div_f32(f[i], by);
    }
}

GP_DEV gp_v4 gp_f32_close(const gp_acc *a, int type, int op, int divisor)
{
    const int n = 16 / gp_type_bytes(type);
    gp_v4     v = gp_v4_make(0, 0, 0, 0);
    float     f[16];

    GP_UNROLL
    for (int i = 0; i < 16; i++)
        f[i] = i < n ? a->f[i] : 0;
    if (op == GP_AVG && divisor > 0)
        gp_f32_divide(f, n, divisor);
    GP_UNROLL
    for (int w = 0; w < 4; w++) {
        if (type == GP_F16)
            gp_set(&v, w, gp_pack_f16(f[2 * w], f[2 * w + 1]));
        else if (type == GP_BF16)
            gp_set(&v, w, gp_pack_bf16(f[2 * w], f[2 * w + 1]));
        else if (type == GP_E4M3)
            gp_set(&v, w, gp_pack_e4m3(f + 4 * w));
        else if (type == GP_E5M2)
            gp_set(&v, w, gp_pack_e5m2(f + 4 * w));
        else
            gp_set(&v, w, gp_f32_bits(op == GP_AVG ? gp_canon_f32(f[w]) : gp_canon_sum_f32(f[w])));
    }
    return v;
}

/* ---- f64 */

GP_DEV void gp_f64_open(gp_acc *a, int op, gp_v4 v, uint64_t scalar, int raw)
{
    GP_UNROLL
    for (int i = 0; i < 2; i++) {
        a->d[i] = gp_bits_f64(gp_get64(v, i));
        if (op == GP_PREMUL && raw)
            a->d[i] = gp_mul_f64(a->d[i], gp_bits_f64(scalar));
    }
}

GP_DEV void gp_f64_fold(gp_acc *a, int op, const gp_acc *b)
{
    GP_UNROLL
    for (int i = 0; i < 2; i++)
        a->d[i] = op == GP_PROD ? gp_mul_f64(a->d[i], b->d[i]) : gp_add_f64(a->d[i], b->d[i]);
}

GP_DEV gp_v4 gp_f64_close(const gp_acc *a, int op, int divisor)
{
    gp_v4 v = gp_v4_make(0, 0, 0, 0);

    GP_UNROLL
    for (int i = 0; i < 2; i++) {
        const double x = op == GP_AVG && divisor > 0 ? gp_div_f64(a->d[i], (double)divisor) : a->d[i];

        gp_set64(&v, i, gp_f64_bits(gp_canon_f64(x)));
    }
    return v;
}

/* ---- integers */

GP_DEV uint32_t gp_extend8(int type, uint32_t word, int k)
{
    return type == GP_I8 ? (uint32_t)((int32_t)(word << (24 - 8 * k)) >> 24) : word >> 8 * k & 0xff;
}

GP_DEV uint64_t gp_extend32(int type, uint32_t x) { return type == GP_I32 ? (uint64_t)(int64_t)(int32_t)x : x; }

GP_DEV void gp_int_open(gp_acc *a, int type, int op, gp_v4 v, uint64_t scalar, int raw)
{
    const int      bytes = gp_type_bytes(type);
    const uint64_t by = op == GP_PREMUL && raw ? scalar : 1;

    GP_UNROLL
    for (int i = 0; i < 16; i++) {
        if (bytes == 1)
            a->u[i] = gp_extend8(type, gp_get(v, i / 4), i % 4) * (uint32_t)by;
        else if (bytes == 4 && i < 4 && op == GP_AVG)
            a->q[i] = gp_extend32(type, gp_get(v, i));
        else if (bytes == 4 && i < 4)
            a->u[i] = gp_get(v, i) * (uint32_t)by;
        else if (bytes == 8 && i < 2)
            a->q[i] = gp_get64(v, i) * by;
        else if (bytes == 8 && i < 4)
            a->q[i] = type == GP_I64 ? UINT64_C(0) - (gp_get64(v, i - 2) >> 63) : 0;
    }
}

GP_DEV void gp_int_fold(gp_acc *a, int type, int op, const gp_acc *b)
{
    const int bytes = gp_type_bytes(type), is_wide = bytes == 8 || op == GP_AVG;

    GP_UNROLL
    for (int i = 0; i < 16; i++)
        if (bytes == 1 || (!is_wide && i < 4))
            a->u[i] = op == GP_PROD ? a->u[i] * b->u[i] : a->u[i] + b->u[i];
    GP_UNROLL
    for (int i = 0; i < 4; i++)
        if (bytes == 8 ? i < 2 : bytes == 4 && is_wide)
            a->q[i] = op == GP_PROD ? a->q[i] * b->q[i] : a->q[i] + b->q[i];
    GP_UNROLL
    for (int i = 0; i < 2; i++)
        if (bytes == 8 && op == GP_AVG) /* and the carry of the low half */
            a->q[2 + i] += b->q[2 + i] + (a->q[i] < b->q[i] ? 1 : 0);
}

/* The low 64 bits of a 128-bit integer divided by d > 0, toward zero; its high half is of
 * the size of the number of sources. By hand, 32 bits of quotient at a time. */
GP_DEV uint64_t gp_divide128(uint64_t low, uint64_t high, int is_signed, uint32_t d)
{
    const int is_negative = is_signed && (int64_t)high < 0;
    uint64_t  q, rest;

    if (is_negative)
        low = 0 - low, high = ~high + (low == 0 ? 1 : 0);
    if (high == 0) {
        q = low / d;
    } else {
        rest = (uint64_t)((uint32_t)high % d) << 32 | low >> 32;
        q    = (rest / d) << 32;
        q   |= (rest % d << 32 | (uint32_t)low) / d;
    }
    return is_negative ? 0 - q : q;
}

/* A sum of 32-bit integers is exact in f64, and so is the cut quotient: one of integers below
 * 2^53 is never rounded up to the next. */
GP_DEV void gp_int_divide(gp_acc *a, int type, int divisor)
{
    const int bytes = gp_type_bytes(type);

    GP_UNROLL
    for (int i = 0; i < 16; i++) {
        if (bytes == 1)
            a->u[i] = (uint32_t)((int32_t)a->u[i] / divisor);
        else if (bytes == 4 && i < 4)
            a->q[i] = (uint64_t)(int64_t)gp_div_f64((double)(int64_t)a->q[i], (double)divisor);
        else if (bytes == 8 && i < 2)
            a->q[i] = gp_divide128(a->q[i], a->q[2 + i], type == GP_I64, (uint32_t)divisor);
    }
}

GP_DEV gp_v4 gp_int_close(const gp_acc *a, int type, int op, int divisor)
{
    const int bytes = gp_type_bytes(type);
    gp_v4     v = gp_v4_make(0, 0, 0, 0);
    gp_acc    r = *a;

    if (op == GP_AVG && divisor > 0)
        gp_int_divide(&r, type, divisor);
    GP_UNROLL
    for (int w = 0; w < 4; w++) {
        if (bytes == 1)
            gp_set(&v, w, gp_join8(r.u[4 * w], r.u[4 * w + 1], r.u[4 * w + 2], r.u[4 * w + 3]));
        else if (bytes == 4)
            gp_set(&v, w, op == GP_AVG ? (uint32_t)r.q[w] : r.u[w]);
        else if (w % 2 == 0)
            gp_set64(&v, w / 2, r.q[w / 2]);
    }
    return v;
}

/* ---- the three that kernels call */

GP_DEV void gp_acc_first(gp_acc *a, int type, int op, gp_v4 v, uint64_t scalar, int raw)
{
    if (gp_op_is_order(op))
        gp_order_open(a, type, op, v);
    else if (type == GP_F64)
        gp_f64_open(a, op, v, scalar, raw);
    else if (gp_type_is_float(type))
        gp_f32_open(a, type, op, v, scalar, raw);
    else
        gp_int_open(a, type, op, v, scalar, raw);
}

GP_DEV void gp_acc_next(gp_acc *a, int type, int op, gp_v4 v, uint64_t scalar, int raw)
{
    gp_acc b;

    gp_acc_first(&b, type, op, v, scalar, raw);
    if (gp_op_is_order(op))
        gp_order_fold(a, type, &b);
    else if (type == GP_F64)
        gp_f64_fold(a, op, &b);
    else if (gp_type_is_float(type))
        gp_f32_fold(a, type, op, &b);
    else
        gp_int_fold(a, type, op, &b);
}

GP_DEV gp_v4 gp_acc_last(const gp_acc *a, int type, int op, int divisor)
{
    if (gp_op_is_order(op))
        return gp_order_close(a, type, op);
    if (type == GP_F64)
        return gp_f64_close(a, op, divisor);
    if (gp_type_is_float(type))
        return gp_f32_close(a, type, op, divisor);
    return gp_int_close(a, type, op, divisor);
}

#endif
