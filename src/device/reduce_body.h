/* The reduction kernels, written once and compiled for each instruction set by
 * the reduce_<isa>.c that includes this with RCCLX_ISA_<ISA> defined (so there
 * is no include guard).
 *
 * Everything below works on raw vectors of W bytes. A kernel is three small
 * functions: PREP widens a raw vector into accumulators, FOLD combines two,
 * DONE rounds back to a raw vector. A 16-bit type becomes two f32 vectors and
 * an 8-bit type four, split by shifts so that no byte crosses its 32-bit lane:
 *
 *   raw     | b3 b2 b1 b0 | b7 b6 b5 b4 | ...     widened: v[0] = b0, b4, ...
 *   (bf16)  |  h1    h0   |  h3    h2   | ...              v[1] = b1, b5, ...
 *
 * The loop is the same for all and knows only bytes:
 *
 *   0      head                                       tail   nbytes
 *   |------|--------|--------|--------|--------|--------|--|
 *     edge   strips of UNROLL vectors: k loads, fold,   edge
 *            one rounding, m stores
 *
 * The head ends where the first destination meets a cache line, so stores are
 * aligned (non-temporal ones must be). Edges run the same three functions on
 * vectors loaded in part: an element's result depends on nothing else.
 *
 * What an instruction set does in its own way stands in reduce_vector.h. */
#include "device/reduce_kernels.h"
#include "device/reduce_vector.h"

/* ---- small floats, on u32 lanes: convert.h on vectors ---- */

INLINE vu32 small_widen(vu32 code, int mant, int bias)
{
    const vu32 moved = (code << (23 - mant)) + ((uint32_t)(127 - bias) << 23);
    const vf32 one   = (vf32)SPLAT(vu32, (uint32_t)(128 - bias) << 23);
    const vu32 sub   = (vu32)((vf32)(moved + (1u << 23)) - one);

    return (vu32)pick((vec)((vi32)code < (1 << mant)), (vec)sub, (vec)moved);
}

INLINE vu32 small_round(vu32 bits, int mant, int bias, int most)
{
    const int      drop  = 23 - mant;
    const uint32_t magic = (uint32_t)(127 + 1 - bias + drop) << 23;
    const vu32     sub   = (vu32)((vf32)bits + (vf32)SPLAT(vu32, magic)) - magic;
    const vu32     half  = bits + ((1u << (drop - 1)) - 1) + (bits >> drop & 1);
    const vi32     code  = (vi32)((half - ((uint32_t)(127 - bias) << 23)) >> drop);
    const vu32     top   = (vu32)pick((vec)(code > most), (vec)SPLAT(vi32, most), (vec)code);

    return (vu32)pick((vec)((vi32)bits < (int)((uint32_t)(128 - bias) << 23)), (vec)sub, (vec)top);
}

INLINE vf32 widen_f16(vu32 h)
{
    const vu32 code = h & 0x7fff, bits = small_widen(code, 10, 15);
    const vu32 full = (vu32)((vi32)code >= 0x7c00) & 0x7f800000;

    return (vf32)(bits | full | (h & 0x8000) << 16);
}

INLINE vu32 round_f16(vf32 x)
{
    const vu32 u = (vu32)x, bits = u & 0x7fffffff;
    const vu32 h = (u >> 16 & 0x8000) | small_round(bits, 10, 15, 0x7c00);

    return (vu32)pick((vec)((vi32)bits > 0x7f800000), (vec)SPLAT(vu32, 0x7e00), (vec)h);
}

INLINE vf32 widen_e4m3(vu32 b)
{
    const vu32 code = b & 0x7f, bits = small_widen(code, 3, 7) | (b & 0x80) << 24;

    return (vf32)pick((vec)((vi32)code == 0x7f), (vec)SPLAT(vu32, 0x7fc00000), (vec)bits);
}

INLINE vu32 round_e4m3(vf32 x)
{
    const vu32 u = (vu32)x, bits = u & 0x7fffffff;
    const vu32 b = (u >> 24 & 0x80) | small_round(bits, 3, 7, 0x7e);

    return (vu32)pick((vec)((vi32)bits > 0x7f800000), (vec)SPLAT(vu32, 0x7f), (vec)b);
}

INLINE vf32 widen_e5m2(vu32 b)
{
    return widen_f16(b << 8);
}

INLINE vu32 round_e5m2(vf32 x)
{
    const vu32 u = (vu32)x, bits = u & 0x7fffffff, sign = u >> 24 & 0x80;
    const vu32 b = sign | (small_round(bits, 2, 15, 0x7b) + ((vu32)((vi32)bits == 0x7f800000) & 1));

    return (vu32)pick((vec)((vi32)bits > 0x7f800000), (vec)SPLAT(vu32, 0x7f), (vec)b);
}

INLINE vu32 round_bf16(vf32 x)
{
    const vu32 u = (vu32)nan_fix32(x);

    return u + 0x7fff + (u >> 16 & 1);
}

/* ---- raw vectors to accumulators and back ---- */

typedef struct { vf32 v[1]; } f1;
typedef struct { vf32 v[2]; } f2;
typedef struct { vf32 v[4]; } f4;
typedef struct { vf64 v[1]; } d1;
typedef struct { vf64 v[2]; } d2;
typedef struct { vu32 v[4]; } u4;

INLINE f1  f32_open(vec raw) { return (f1){{(vf32)raw}}; }
INLINE vec f32_close(f1 a) { return (vec)nan_fix32(a.v[0]); }
INLINE d1  f64_open(vec raw) { return (d1){{(vf64)raw}}; }
INLINE vec f64_close(d1 a) { return (vec)nan_fix64(a.v[0]); }

INLINE f2 bf16_open(vec raw)
{
    return (f2){{(vf32)((vu32)raw << 16), (vf32)((vu32)raw & 0xffff0000)}};
}

INLINE vec bf16_close(f2 a)
{
    return (vec)(round_bf16(a.v[0]) >> 16 | (round_bf16(a.v[1]) & 0xffff0000));
}

#ifdef HAVE_F16
INLINE f2 f16_open(vec raw)
{
    return (f2){{f16_low(raw), f16_high(raw)}};
}

INLINE vec f16_close(f2 a)
{
    return f16_join(nan_fix32(a.v[0]), nan_fix32(a.v[1]));
}

/* An f8 byte at the top of 16 bits is an f16: e5m2 exactly; e4m3 after a shift
 * by one and up to a factor of 256. So b0, b2, .. and b1, b3, .. take two f16
 * vectors, and f8 bytes come back in that order too. */
INLINE f4 f16_pair_open(vec even, vec odd, float factor)
{
    return (f4){{f16_low(even) * factor, f16_high(even) * factor, f16_low(odd) * factor, f16_high(odd) * factor}};
}

INLINE f4 e5m2_open(vec raw)
{
    const vu16 r = (vu16)raw;

    return f16_pair_open((vec)(r << 8), (vec)(r & 0xff00), 1);
}

INLINE vec e4m3_as_f16(vu16 high)
{
    const vu16 code = high & 0x7f00;

    return (vec)((high & 0x8000) | code >> 1 | ((vu16)(code == 0x7f00) & 0x7fff));
}

INLINE f4 e4m3_open(vec raw)
{
    const vu16 r = (vu16)raw;

    return f16_pair_open(e4m3_as_f16(r << 8), e4m3_as_f16(r & 0xff00), 256);
}

/* Back: a value is rounded in f32 to the places f8 has, by adding and taking off
 * 1.5 times a power of two; then f16 holds it exactly, with the f8 code in its
 * top bits. The sign is put back for what became zero. */
INLINE vf32 f8_trim(vf32 x, int mant, int bias)
{
    const vu32 least = SPLAT(vu32, (uint32_t)(128 - bias) << 23);
    const vu32 place = (vu32)most32((vec)((vu32)x & 0x7f800000), (vec)least);
    const vf32 magic = (vf32)(place + ((uint32_t)(23 - mant) << 23 | 0x400000));

    return (vf32)((vu32)((x + magic) - magic) | ((vu32)x & 0x80000000));
}

INLINE vu16 f16_mark_nan(vec raw)
{
    const vu16 h = (vu16)raw;

    return (vu16)pick((vec)((vi16)(h & 0x7fff) > 0x7c00), (vec)SPLAT(vu16, 0x7fff), (vec)h);
}

INLINE vf32 e4m3_trim(vf32 x)
{
    return f8_trim(clamp32(x, 448.0f), 3, 7) * 0x1p-8f;
}

/* Inf is kept. */
INLINE vf32 e5m2_trim(vf32 x)
{
    const vi32 inf = (vi32)((vu32)x & 0x7fffffff) == 0x7f800000;

    return (vf32)pick((vec)inf, (vec)x, (vec)f8_trim(clamp32(x, 57344.0f), 2, 15));
}

INLINE vec e4m3_close(f4 a)
{
    const vu16 even = f16_mark_nan(f16_join(e4m3_trim(a.v[0]), e4m3_trim(a.v[1])));
    const vu16 odd  = f16_mark_nan(f16_join(e4m3_trim(a.v[2]), e4m3_trim(a.v[3])));

    return (vec)((even >> 8 & 0x80) | (even >> 7 & 0x7f) | (odd & 0x8000) | (odd << 1 & 0x7f00));
}

INLINE vec e5m2_close(f4 a)
{
    const vu16 even = f16_mark_nan(f16_join(e5m2_trim(a.v[0]), e5m2_trim(a.v[1])));
    const vu16 odd  = f16_mark_nan(f16_join(e5m2_trim(a.v[2]), e5m2_trim(a.v[3])));

    return (vec)(even >> 8 | (odd & 0xff00));
}
#else
INLINE f2 f16_open(vec raw)
{
    return (f2){{widen_f16((vu32)raw & 0xffff), widen_f16((vu32)raw >> 16)}};
}

INLINE vec f16_close(f2 a)
{
    return (vec)(round_f16(a.v[0]) | round_f16(a.v[1]) << 16);
}

INLINE f4 e4m3_open(vec raw)
{
    const vu32 r = (vu32)raw;

    return (f4){{widen_e4m3(r & 0xff), widen_e4m3(r >> 8 & 0xff), widen_e4m3(r >> 16 & 0xff), widen_e4m3(r >> 24)}};
}

INLINE f4 e5m2_open(vec raw)
{
    const vu32 r = (vu32)raw;

    return (f4){{widen_e5m2(r & 0xff), widen_e5m2(r >> 8 & 0xff), widen_e5m2(r >> 16 & 0xff), widen_e5m2(r >> 24)}};
}

INLINE vec f8_join(vu32 b0, vu32 b1, vu32 b2, vu32 b3)
{
    return (vec)(b0 | b1 << 8 | b2 << 16 | b3 << 24);
}

INLINE vec e4m3_close(f4 a)
{
    return f8_join(round_e4m3(a.v[0]), round_e4m3(a.v[1]), round_e4m3(a.v[2]), round_e4m3(a.v[3]));
}

INLINE vec e5m2_close(f4 a)
{
    return f8_join(round_e5m2(a.v[0]), round_e5m2(a.v[1]), round_e5m2(a.v[2]), round_e5m2(a.v[3]));
}
#endif

/* ---- float operators on accumulators of one, two, four vectors ---- */

#define FLOAT_OPS(ACC, N, VF, REAL, BITS)                                     \
    INLINE ACC ACC##_add(ACC a, ACC b)                                        \
    {                                                                         \
        UNROLLED for (int k = 0; k < N; k++) a.v[k] += b.v[k];                \
        return a;                                                             \
    }                                                                         \
    INLINE ACC ACC##_mul(ACC a, ACC b)                                        \
    {                                                                         \
        UNROLLED for (int k = 0; k < N; k++) a.v[k] *= b.v[k];                \
        return a;                                                             \
    }                                                                         \
    INLINE ACC ACC##_scale(ACC a, const rcclx_job *j, int s)                  \
    {                                                                         \
        const VF by = (VF)SPLAT(BITS, j->scalar[s]);                          \
        UNROLLED for (int k = 0; k < N; k++) a.v[k] *= by;                    \
        return a;                                                             \
    }                                                                         \
    INLINE ACC ACC##_divide(ACC a, const rcclx_job *j)                        \
    {                                                                         \
        const REAL by = (REAL)j->divisor;                                     \
                                                                              \
        if (j->inverse)                                                       \
            UNROLLED for (int k = 0; k < N; k++) a.v[k] *= by;                \
        else                                                                  \
            UNROLLED for (int k = 0; k < N; k++) a.v[k] /= by;                \
        return a;                                                             \
    }
FLOAT_OPS(f1, 1, vf32, float, vu32)
FLOAT_OPS(f2, 2, vf32, float, vu32)
FLOAT_OPS(f4, 4, vf32, float, vu32)
FLOAT_OPS(d1, 1, vf64, double, vu64)
FLOAT_OPS(d2, 2, vf64, double, vu64)

/* A product of finite f8 values stays finite: f32 overflow stops at the largest
 * f32, so that a later factor of zero gives zero, not NaN. */
INLINE vf32 mul_saturate(vf32 a, vf32 b)
{
    const vf32 r   = a * b;
    const vi32 inf = SPLAT(vi32, 0x7f800000), mask = SPLAT(vi32, 0x7fffffff);
    const vi32 over = (((vi32)r & mask) == inf) & (((vi32)a & mask) != inf) & (((vi32)b & mask) != inf);

    return (vf32)pick((vec)over, (vec)(((vi32)r & ~mask) | 0x7f7fffff), (vec)r);
}

INLINE f4 f4_mul_saturate(f4 a, f4 b)
{
    UNROLLED for (int k = 0; k < 4; k++) a.v[k] = mul_saturate(a.v[k], b.v[k]);
    return a;
}

/* ---- integers ---- */

#define INTEGER_OPS(BITS)                                                     \
    INLINE vec add##BITS##_fold(vec a, vec b) { return (vec)((vu##BITS)a + (vu##BITS)b); } \
    INLINE vec mul##BITS##_fold(vec a, vec b) { return (vec)((vu##BITS)a * (vu##BITS)b); } \
    INLINE vec pre##BITS##_prep(vec raw, const rcclx_job *j, int s)           \
    {                                                                         \
        return (vec)((vu##BITS)raw * SPLAT(vu##BITS, j->scalar[s]));          \
    }                                                                         \
    INLINE vec top##BITS##_prep(vec raw, const rcclx_job *j, int s)           \
    {                                                                         \
        (void)s;                                                              \
        return (vec)((vu##BITS)raw ^ SPLAT(vu##BITS, j->flip));               \
    }                                                                         \
    INLINE vec top##BITS##_done(vec a, const rcclx_job *j) { return top##BITS##_prep(a, j, 0); }
INTEGER_OPS(8)
INTEGER_OPS(32)
INTEGER_OPS(64)

/* The quotient of two integers below 2^24 in f32 (2^53 in f64) is never rounded
 * up to the next integer, so division in floats truncates right. */
INLINE u4 avg8_prep(vec raw, const rcclx_job *j, int s)
{
    const vu32 r = (vu32)((vu8)raw ^ SPLAT(vu8, j->flip));

    (void)s;
    return (u4){{r & 0xff, r >> 8 & 0xff, r >> 16 & 0xff, r >> 24}};
}

INLINE u4 avg8_fold(u4 a, u4 b)
{
    UNROLLED for (int k = 0; k < 4; k++) a.v[k] += b.v[k];
    return a;
}

INLINE vec avg8_done(u4 a, const rcclx_job *j)
{
    vu32 out = {0};

    UNROLLED for (int k = 0; k < 4; k++)
    {
        const vf32 sum = __builtin_convertvector((vi32)a.v[k], vf32) - (float)j->bias;
        const vi32 q   = __builtin_convertvector(sum / (float)j->divisor, vi32);

        out |= ((vu32)q & 0xff) << 8 * k;
    }
    return (vec)out;
}

/* A 32-bit integer u below 2^52 in the last places of 2^52 is 2^52 + u. */
INLINE d2 avg32_prep(vec raw, const rcclx_job *j, int s)
{
    const vu64 r = (vu64)((vu32)raw ^ SPLAT(vu32, j->flip)), big = SPLAT(vu64, 0x4330000000000000);

    (void)s;
    return (d2){{(vf64)((r & 0xffffffff) | big) - 0x1p52, (vf64)(r >> 32 | big) - 0x1p52}};
}

INLINE d2 avg32_fold(d2 a, d2 b)
{
    return d2_add(a, b);
}

INLINE vec avg32_done(d2 a, const rcclx_job *j)
{
    const vu64 q0 = (vu64)(cut64((a.v[0] - j->bias) / j->divisor) + 0x1.8p52);
    const vu64 q1 = (vu64)(cut64((a.v[1] - j->bias) / j->divisor) + 0x1.8p52);

    return (vec)((q0 & 0xffffffff) | q1 << 32);
}

/* ---- min and max of floats ---- */

/* 8 and 16 bit: sign and magnitude become an integer that sorts as the value
 * does, -0 below +0; NaN becomes the greatest, which no number reaches. */
#define KEY_OPS(BITS, MOST)                                                   \
    INLINE vi##BITS key##BITS##_turn(vi##BITS b) { return b ^ ((vi##BITS)(b < 0) & MOST); } \
    INLINE vec key##BITS##_prep(vec raw, const rcclx_job *j, int s)           \
    {                                                                         \
        const vi##BITS b = (vi##BITS)raw, nan = (b & MOST) > SPLAT(vi##BITS, j->inf); \
        const vi##BITS key = key##BITS##_turn(b) ^ SPLAT(vi##BITS, j->flip);  \
                                                                              \
        (void)s;                                                              \
        return pick((vec)nan, (vec)SPLAT(vi##BITS, MOST), (vec)key);          \
    }                                                                         \
    INLINE vec key##BITS##_done(vec a, const rcclx_job *j)                    \
    {                                                                         \
        const vi##BITS key = (vi##BITS)a, nan = key == MOST;                  \
        const vi##BITS b = key##BITS##_turn(key ^ SPLAT(vi##BITS, j->flip));  \
                                                                              \
        return pick((vec)nan, (vec)SPLAT(vi##BITS, j->nan), (vec)b);          \
    }
KEY_OPS(8, 0x7f)
KEY_OPS(16, 0x7fff)

/* 32 and 64 bit: the lesser of two floats as lesser32 and lesser64 have it. A
 * maximum is the minimum with signs turned. */
#define LEAST_OPS(BITS)                                                       \
    INLINE vec least##BITS##_prep(vec raw, const rcclx_job *j, int s)         \
    {                                                                         \
        (void)s;                                                              \
        return (vec)((vu##BITS)raw ^ SPLAT(vu##BITS, j->flip));               \
    }                                                                         \
    INLINE vec least##BITS##_done(vec a, const rcclx_job *j)                  \
    {                                                                         \
        return (vec)nan_fix##BITS((vf##BITS)least##BITS##_prep(a, j, 0));     \
    }
LEAST_OPS(32)
LEAST_OPS(64)

/* ---- the loop ---- */

INLINE vec raw_prep(vec raw, const rcclx_job *j, int s)
{
    (void)j, (void)s;
    return raw;
}

INLINE vec raw_done(vec a, const rcclx_job *j)
{
    (void)j;
    return a;
}

INLINE vec raw_fold(vec a, vec b)
{
    (void)a;
    return b;
}

/* Bytes before the first destination's next cache line. Short jobs start where
 * they are. */
INLINE size_t head_bytes(const rcclx_job *j)
{
    const size_t off = (size_t)(uintptr_t)j->dst[0] % LINE;

    return off == 0 || (j->nbytes < 16 * LINE && !j->streaming) ? 0 : LINE - off;
}

/* Bit d: destination d is aligned after the head, so it can be streamed. */
INLINE uint64_t streams(const rcclx_job *j, size_t head)
{
    uint64_t bits = 0;

    for (int d = 0; j->streaming && d < j->ndst && d < 64; d++)
        if (((uintptr_t)j->dst[d] + head) % LINE == 0)
            bits |= UINT64_C(1) << d;
    return bits;
}

/* Loads stay in the order of addresses. Left to schedule them, gcc starts a strip
 * in its middle, and the prefetcher loses the stream. */
#define KEEP_ORDER() __asm__ volatile("" : : : "memory")

#define KERNEL(NAME, ACC, UNROLL, PREP, FOLD, DONE)                           \
    static __attribute__((noinline)) void NAME##_edge(const rcclx_job *j, size_t at, size_t end) \
    {                                                                         \
        for (; at < end; at += W) {                                           \
            const size_t n = end - at < W ? end - at : W;                     \
            ACC          a = PREP(load_part(j->src[0] + at, n), j, 0);        \
            vec          out;                                                 \
                                                                              \
            for (int s = 1; s < j->nsrc; s++)                                 \
                a = FOLD(a, PREP(load_part(j->src[s] + at, n), j, s));        \
            out = DONE(a, j);                                                 \
            for (int d = 0; d < j->ndst; d++)                                 \
                store_part(j->dst[d] + at, out, n);                           \
        }                                                                     \
    }                                                                         \
    /* Two sources, one or two destinations: what direct collectives of two   \
     * ranks and every ring do. */                                            \
    INLINE size_t NAME##_two(const rcclx_job *j, size_t at, uint64_t nt)      \
    {                                                                         \
        const unsigned char *const p = j->src[0], *const q = j->src[1];       \
        unsigned char *const x = j->dst[0], *const y = j->ndst == 2 ? j->dst[1] : NULL; \
        const rcclx_job job = *j;                                             \
        const size_t end = job.nbytes;                                        \
                                                                              \
        for (; end - at >= UNROLL * W; at += UNROLL * W) {                    \
            ACC a[UNROLL];                                                    \
            vec out[UNROLL];                                                  \
                                                                              \
            UNROLLED for (int u = 0; u < UNROLL; u++)                         \
            {                                                                 \
                KEEP_ORDER();                                                 \
                a[u] = FOLD(PREP(load(p + at + u * W), &job, 0), PREP(load(q + at + u * W), &job, 1)); \
            }                                                                 \
            UNROLLED for (int u = 0; u < UNROLL; u++)                         \
                out[u] = DONE(a[u], &job);                                    \
            put(x + at, out, UNROLL, nt & 1);                                 \
            if (y)                                                            \
                put(y + at, out, UNROLL, nt & 2);                             \
        }                                                                     \
        return at;                                                            \
    }                                                                         \
    INLINE size_t NAME##_any(const rcclx_job *j, size_t at, uint64_t nt)      \
    {                                                                         \
        for (; j->nbytes - at >= UNROLL * W; at += UNROLL * W) {              \
            ACC a[UNROLL];                                                    \
            vec out[UNROLL];                                                  \
                                                                              \
            UNROLLED for (int u = 0; u < UNROLL; u++)                         \
                a[u] = PREP(load(j->src[0] + at + u * W), j, 0);              \
            for (int s = 1; s < j->nsrc; s++) {                               \
                const unsigned char *const p = j->src[s] + at;                \
                                                                              \
                UNROLLED for (int u = 0; u < UNROLL; u++)                     \
                {                                                             \
                    KEEP_ORDER();                                             \
                    a[u] = FOLD(a[u], PREP(load(p + u * W), j, s));           \
                }                                                             \
            }                                                                 \
            UNROLLED for (int u = 0; u < UNROLL; u++)                         \
                out[u] = DONE(a[u], j);                                       \
            for (int d = 0; d < j->ndst; d++)                                 \
                put(j->dst[d] + at, out, UNROLL, d < 64 && nt >> d & 1);      \
        }                                                                     \
        return at;                                                            \
    }                                                                         \
    static void NAME(const rcclx_job *j)                                      \
    {                                                                         \
        const size_t   head = j->nbytes < UNROLL * W + LINE ? 0 : head_bytes(j); \
        const uint64_t nt   = streams(j, head);                               \
        size_t         at   = head;                                           \
                                                                              \
        if (head > 0)                                                         \
            NAME##_edge(j, 0, head);                                          \
        if (j->nsrc == 2 && j->ndst <= 2)                                     \
            at = NAME##_two(j, at, nt);                                       \
        else                                                                  \
            at = NAME##_any(j, at, nt);                                       \
        if (at < j->nbytes)                                                   \
            NAME##_edge(j, at, j->nbytes);                                    \
        if (nt)                                                               \
            fence();                                                          \
    }

#define FLOAT_KERNELS(T, ACC, UNROLL, MUL)                                    \
    INLINE ACC T##_prep(vec raw, const rcclx_job *j, int s)                   \
    {                                                                         \
        (void)j, (void)s;                                                     \
        return T##_open(raw);                                                 \
    }                                                                         \
    INLINE ACC T##_scaled(vec raw, const rcclx_job *j, int s) { return ACC##_scale(T##_open(raw), j, s); } \
    INLINE vec T##_average(ACC a, const rcclx_job *j) { return T##_close(ACC##_divide(a, j)); } \
    INLINE vec T##_done(ACC a, const rcclx_job *j)                            \
    {                                                                         \
        (void)j;                                                              \
        return T##_close(a);                                                  \
    }                                                                         \
    KERNEL(sum_##T, ACC, UNROLL, T##_prep, ACC##_add, T##_done)               \
    KERNEL(avg_##T, ACC, UNROLL, T##_prep, ACC##_add, T##_average)            \
    KERNEL(prod_##T, ACC, UNROLL, T##_prep, MUL, T##_done)                    \
    KERNEL(pre_##T, ACC, UNROLL, T##_scaled, ACC##_add, T##_done)

#define INTEGER_KERNELS(BITS)                                                 \
    KERNEL(add##BITS, vec, 4, raw_prep, add##BITS##_fold, raw_done)           \
    KERNEL(mul##BITS, vec, 4, raw_prep, mul##BITS##_fold, raw_done)           \
    KERNEL(pre##BITS, vec, 4, pre##BITS##_prep, add##BITS##_fold, raw_done)   \
    KERNEL(top##BITS, vec, 4, top##BITS##_prep, most##BITS, top##BITS##_done)

KERNEL(copy, vec, 4, raw_prep, raw_fold, raw_done)
INTEGER_KERNELS(8)
INTEGER_KERNELS(32)
INTEGER_KERNELS(64)
KERNEL(avg8, u4, 2, avg8_prep, avg8_fold, avg8_done)
KERNEL(avg32, d2, 2, avg32_prep, avg32_fold, avg32_done)
FLOAT_KERNELS(f32, f1, 4, f1_mul)
FLOAT_KERNELS(f64, d1, 4, d1_mul)
FLOAT_KERNELS(f16, f2, 2, f2_mul)
FLOAT_KERNELS(bf16, f2, 2, f2_mul)
FLOAT_KERNELS(e4m3, f4, 2, f4_mul_saturate)
FLOAT_KERNELS(e5m2, f4, 2, f4_mul_saturate)
KERNEL(key8, vec, 4, key8_prep, most8, key8_done)
KERNEL(key16, vec, 4, key16_prep, most16, key16_done)
KERNEL(least32, vec, 4, least32_prep, lesser32, least32_done)
KERNEL(least64, vec, 4, least64_prep, lesser64, least64_done)

const rcclx_kernels ISA_TABLE = {
    .name = ISA_NAME,
    .run  = {
#define X(kernel) [RCCLX_KERNEL_##kernel] = kernel,
        RCCLX_KERNEL_LIST(X)
#undef X
    },
};
