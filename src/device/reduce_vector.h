/* Vectors of W bytes for reduce_body.h: types, loads and stores, and the few
 * operations for which an instruction set has something better than what the
 * compiler makes of plain C on vectors. Compiled by the body alone, so there is
 * no include guard. Four sections, one an instruction set; the functions they
 * must define are those of the last one, which is plain C.
 *
 *   load_part, store_part   only the first n bytes (0 < n <= W)
 *   stream, fence           non-temporal store, and what must follow the last
 *   nan_fix32, nan_fix64    every NaN becomes the canonical one
 *   lesser32, lesser64      the lesser float; -0 < +0; NaN if either is NaN
 *   most8 .. most64         the greater signed integer
 *   cut64                   toward zero to an integer; below 2^51
 *   f16_low, high, join     (HAVE_F16) half a raw vector of f16 to f32, back
 *   clamp32                 (HAVE_F16) to -most..most; NaN stays */
#if defined(RCCLX_ISA_AVX512)
#define W         64
#define ISA_NAME  "avx512"
#define ISA_TABLE rcclx_kernels_avx512
#elif defined(RCCLX_ISA_AVX2)
#define W         32
#define ISA_NAME  "avx2"
#define ISA_TABLE rcclx_kernels_avx2
#elif defined(RCCLX_ISA_NEON)
#define W         16
#define ISA_NAME  "neon"
#define ISA_TABLE rcclx_kernels_neon
#else
#define W         16
#define ISA_NAME  "baseline"
#define ISA_TABLE rcclx_kernels_baseline
#endif

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(RCCLX_ISA_NEON)
#include <arm_neon.h>
#endif

#define LINE   64
#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 8")
#endif
#define SPLAT(V, x) (((V){0}) + (__typeof__(((V){0})[0]))(x))

typedef int8_t   vi8 __attribute__((vector_size(W)));
typedef int16_t  vi16 __attribute__((vector_size(W)));
typedef int32_t  vi32 __attribute__((vector_size(W)));
typedef int64_t  vi64 __attribute__((vector_size(W)));
typedef uint8_t  vu8 __attribute__((vector_size(W)));
typedef uint16_t vu16 __attribute__((vector_size(W)));
typedef uint32_t vu32 __attribute__((vector_size(W)));
typedef uint64_t vu64 __attribute__((vector_size(W)));
typedef float    vf32 __attribute__((vector_size(W)));
typedef double   vf64 __attribute__((vector_size(W)));
typedef vu64     vec; /* raw bytes */
typedef vec      vec_anywhere __attribute__((aligned(1), may_alias));

INLINE vec load(const unsigned char *p)
{
    return *(const vec_anywhere *)p;
}

INLINE void store(unsigned char *p, vec v)
{
    *(vec_anywhere *)p = v;
}

/* Lanes of m are all ones (take x) or all zeros (take y). */
INLINE vec pick(vec m, vec x, vec y)
{
    return (m & x) | (~m & y);
}

#define GREATER(BITS)                                                         \
    INLINE vec most##BITS(vec a, vec b)                                       \
    {                                                                         \
        return pick((vec)((vi##BITS)a > (vi##BITS)b), a, b);                  \
    }

#if !defined(RCCLX_ISA_AVX512)
/* In pieces of falling power of two: no more calls, no byte past the end. */
#define PIECES(n, MOVE) \
    MOVE(16) MOVE(8) MOVE(4) MOVE(2) MOVE(1)

INLINE vec load_part(const unsigned char *p, size_t n)
{
    union { vec v; unsigned char b[W]; } u = {{0}};
    size_t at = 0;

    if (n == W)
        return load(p);
#if defined(RCCLX_ISA_AVX2)
    if (n % 4 == 0) {
        const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), lanes = _mm256_set1_epi32((int)n / 4);

        return (vec)_mm256_maskload_epi32((const int *)(const void *)p, _mm256_cmpgt_epi32(lanes, lane));
    }
#endif
#define MOVE(k) if (k < W && n & k) { memcpy(u.b + at, p + at, k); at += k; }
    PIECES(n, MOVE)
#undef MOVE
    return u.v;
}

INLINE void store_part(unsigned char *p, vec v, size_t n)
{
    union { vec v; unsigned char b[W]; } u = {v};
    size_t at = 0;

    if (n == W) {
        store(p, v);
        return;
    }
#define MOVE(k) if (k < W && n & k) { memcpy(p + at, u.b + at, k); at += k; }
    PIECES(n, MOVE)
#undef MOVE
}
#endif

#if defined(__x86_64__)
INLINE void fence(void)
{
    _mm_sfence();
}
#endif

#if defined(RCCLX_ISA_AVX512)
#define HAVE_F16
INLINE vec load_part(const unsigned char *p, size_t n)
{
    return (vec)_mm512_maskz_loadu_epi8(~UINT64_C(0) >> (64 - n), p);
}

INLINE void store_part(unsigned char *p, vec v, size_t n)
{
    _mm512_mask_storeu_epi8(p, ~UINT64_C(0) >> (64 - n), (__m512i)v);
}

INLINE void stream(unsigned char *p, vec v)
{
    _mm512_stream_si512((void *)p, (__m512i)v);
}

INLINE vf32 nan_fix32(vf32 x)
{
    const __m512 a = (__m512)x;

    return (vf32)_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), a,
                                      _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
}

INLINE vf64 nan_fix64(vf64 x)
{
    const __m512d a = (__m512d)x;

    return (vf64)_mm512_mask_blend_pd(_mm512_cmp_pd_mask(a, a, _CMP_UNORD_Q), a,
                                      _mm512_castsi512_pd(_mm512_set1_epi64(0x7ff8000000000000)));
}

/* minps gives its second operand for NaN and for two zeros: both orders ORed
 * keep a NaN and a minus sign. */
INLINE vec lesser32(vec a, vec b)
{
    return (vec)_mm512_min_ps((__m512)a, (__m512)b) | (vec)_mm512_min_ps((__m512)b, (__m512)a);
}

INLINE vec lesser64(vec a, vec b)
{
    return (vec)_mm512_min_pd((__m512d)a, (__m512d)b) | (vec)_mm512_min_pd((__m512d)b, (__m512d)a);
}

INLINE vf32 clamp32(vf32 x, float most)
{
    const __m512 low = _mm512_set1_ps(-most), high = _mm512_set1_ps(most);

    return (vf32)_mm512_max_ps(low, _mm512_min_ps(high, (__m512)x));
}

#define MOST(BITS)                                                            \
    INLINE vec most##BITS(vec a, vec b)                                       \
    {                                                                         \
        return (vec)_mm512_max_epi##BITS((__m512i)a, (__m512i)b);             \
    }
MOST(8)
MOST(16)
MOST(32)
MOST(64)

INLINE vf64 cut64(vf64 x)
{
    return (vf64)_mm512_roundscale_pd((__m512d)x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}

INLINE vf32 f16_low(vec raw)
{
    return (vf32)_mm512_cvtph_ps(_mm512_castsi512_si256((__m512i)raw));
}

INLINE vf32 f16_high(vec raw)
{
    return (vf32)_mm512_cvtph_ps(_mm512_extracti64x4_epi64((__m512i)raw, 1));
}

INLINE vec f16_join(vf32 low, vf32 high)
{
    const __m256i l = _mm512_cvtps_ph((__m512)low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256i h = _mm512_cvtps_ph((__m512)high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);

    return (vec)_mm512_inserti64x4(_mm512_castsi256_si512(l), h, 1);
}

#elif defined(RCCLX_ISA_AVX2)
#define HAVE_F16
INLINE void stream(unsigned char *p, vec v)
{
    _mm256_stream_si256((void *)p, (__m256i)v);
}

INLINE vf32 nan_fix32(vf32 x)
{
    const __m256 a = (__m256)x;

    return (vf32)_mm256_blendv_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)),
                                  _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}

INLINE vf64 nan_fix64(vf64 x)
{
    const __m256d a = (__m256d)x;

    return (vf64)_mm256_blendv_pd(a, _mm256_castsi256_pd(_mm256_set1_epi64x(0x7ff8000000000000)),
                                  _mm256_cmp_pd(a, a, _CMP_UNORD_Q));
}

/* As for AVX-512. */
INLINE vec lesser32(vec a, vec b)
{
    return (vec)_mm256_min_ps((__m256)a, (__m256)b) | (vec)_mm256_min_ps((__m256)b, (__m256)a);
}

INLINE vec lesser64(vec a, vec b)
{
    return (vec)_mm256_min_pd((__m256d)a, (__m256d)b) | (vec)_mm256_min_pd((__m256d)b, (__m256d)a);
}

INLINE vf32 clamp32(vf32 x, float most)
{
    const __m256 low = _mm256_set1_ps(-most), high = _mm256_set1_ps(most);

    return (vf32)_mm256_max_ps(low, _mm256_min_ps(high, (__m256)x));
}

#define MOST(BITS)                                                            \
    INLINE vec most##BITS(vec a, vec b)                                       \
    {                                                                         \
        return (vec)_mm256_max_epi##BITS((__m256i)a, (__m256i)b);             \
    }
MOST(8)
MOST(16)
MOST(32)
GREATER(64)

INLINE vf64 cut64(vf64 x)
{
    return (vf64)_mm256_round_pd((__m256d)x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}

INLINE vf32 f16_low(vec raw)
{
    return (vf32)_mm256_cvtph_ps(_mm256_castsi256_si128((__m256i)raw));
}

INLINE vf32 f16_high(vec raw)
{
    return (vf32)_mm256_cvtph_ps(_mm256_extracti128_si256((__m256i)raw, 1));
}

INLINE vec f16_join(vf32 low, vf32 high)
{
    const __m128i l = _mm256_cvtps_ph((__m256)low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m128i h = _mm256_cvtps_ph((__m256)high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);

    return (vec)_mm256_inserti128_si256(_mm256_castsi128_si256(l), h, 1);
}

#elif defined(RCCLX_ISA_NEON)
#define HAVE_F16
INLINE void fence(void)
{
}

INLINE void stream(unsigned char *p, vec v)
{
    store(p, v);
}

INLINE vf32 nan_fix32(vf32 x)
{
    const float32x4_t a = (float32x4_t)x;

    return (vf32)vbslq_f32(vceqq_f32(a, a), a, vreinterpretq_f32_u32(vdupq_n_u32(0x7fc00000)));
}

INLINE vf64 nan_fix64(vf64 x)
{
    const float64x2_t a = (float64x2_t)x;

    return (vf64)vbslq_f64(vceqq_f64(a, a), a, vreinterpretq_f64_u64(vdupq_n_u64(0x7ff8000000000000)));
}

INLINE vec lesser32(vec a, vec b)
{
    return (vec)vminq_f32((float32x4_t)a, (float32x4_t)b);
}

INLINE vec lesser64(vec a, vec b)
{
    return (vec)vminq_f64((float64x2_t)a, (float64x2_t)b);
}

INLINE vf32 clamp32(vf32 x, float most)
{
    return (vf32)vmaxq_f32(vdupq_n_f32(-most), vminq_f32(vdupq_n_f32(most), (float32x4_t)x));
}

INLINE vec most8(vec a, vec b)
{
    return (vec)vmaxq_s8((int8x16_t)a, (int8x16_t)b);
}

INLINE vec most16(vec a, vec b)
{
    return (vec)vmaxq_s16((int16x8_t)a, (int16x8_t)b);
}

INLINE vec most32(vec a, vec b)
{
    return (vec)vmaxq_s32((int32x4_t)a, (int32x4_t)b);
}
GREATER(64)

INLINE vf64 cut64(vf64 x)
{
    return (vf64)vrndq_f64((float64x2_t)x);
}

INLINE vf32 f16_low(vec raw)
{
    return (vf32)vcvt_f32_f16(vget_low_f16((float16x8_t)raw));
}

INLINE vf32 f16_high(vec raw)
{
    return (vf32)vcvt_f32_f16(vget_high_f16((float16x8_t)raw));
}

INLINE vec f16_join(vf32 low, vf32 high)
{
    return (vec)vcombine_f16(vcvt_f16_f32((float32x4_t)low), vcvt_f16_f32((float32x4_t)high));
}

#else /* plain C on vectors */
#if defined(__x86_64__)
INLINE void stream(unsigned char *p, vec v)
{
    _mm_stream_si128((void *)p, (__m128i)v);
}
#else
INLINE void fence(void)
{
}

INLINE void stream(unsigned char *p, vec v)
{
    store(p, v);
}
#endif

INLINE vf32 nan_fix32(vf32 x)
{
    return (vf32)pick((vec)(x != x), (vec)SPLAT(vu32, 0x7fc00000), (vec)x);
}

INLINE vf64 nan_fix64(vf64 x)
{
    return (vf64)pick((vec)(x != x), SPLAT(vu64, 0x7ff8000000000000), (vec)x);
}

/* Each order takes its second operand for NaN and for two zeros; ORed they keep
 * a NaN and a minus sign. */
INLINE vec lesser32(vec a, vec b)
{
    const vf32 x = (vf32)a, y = (vf32)b;

    return pick((vec)(x < y), a, b) | pick((vec)(y < x), b, a);
}

INLINE vec lesser64(vec a, vec b)
{
    const vf64 x = (vf64)a, y = (vf64)b;

    return pick((vec)(x < y), a, b) | pick((vec)(y < x), b, a);
}
GREATER(8)
GREATER(16)
GREATER(32)
GREATER(64)

/* Rounded to nearest in the last places of 1.5 * 2^52, then back by one where
 * that went away from zero. */
INLINE vf64 cut64(vf64 x)
{
    const vu64 sign = (vu64)x & UINT64_C(0x8000000000000000), size = ~UINT64_C(0) >> 1 & (vu64)x;
    const vf64 near = (x + 0x1.8p52) - 0x1.8p52;
    const vu64 over = (vu64)((vf64)((vu64)near & ~UINT64_C(0) >> 1) > (vf64)size);

    return near - (vf64)(over & (sign | (vu64)SPLAT(vf64, 1.0)));
}
#endif

INLINE void put(unsigned char *p, const vec *v, int n, uint64_t streaming)
{
    if (streaming)
        UNROLLED for (int u = 0; u < n; u++) stream(p + u * W, v[u]);
    else
        UNROLLED for (int u = 0; u < n; u++) store(p + u * W, v[u]);
}
