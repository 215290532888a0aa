/* What codec_body.h needs besides device/reduce_vector.h: the few operations that each instruction
 * set does in its own way. Compiled by the body alone, so there is no include guard. The functions
 * a section must define are those of the last one, which is plain C.
 *
 *   any             is a bit set
 *   blocks_most     lane b: the greatest lane of m[b]; no lane is negative
 *   round_product   the integer nearest to the exact product, ties to even; small
 *   bytes_get, put  32 bytes, with sign, to PARTS vectors; the low bytes back
 *   halves_get, put LANES 16-bit numbers to one vector and back */
#include "device/reduce_vector.h"

enum { LANES = W / 4, PARTS = 32 / LANES };

INLINE vf32 splat_f32(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    return (vf32)SPLAT(vu32, u); /* as floats zero would have to be added */
}
#define SPLAT_F32(x) splat_f32(x)

INLINE vi32 most_of(vi32 a, vi32 b)
{
    return (vi32)most32((vec)a, (vec)b);
}

INLINE vi32 least_of(vi32 a, vi32 b)
{
    return ~most_of(~a, ~b);
}

#if defined(RCCLX_ISA_AVX512)
INLINE bool any(vec m)
{
    return _mm512_test_epi64_mask((__m512i)m, (__m512i)m) != 0;
}

/* Four vectors to one: each fourth of it holds, for each, the greatest of that fourth. */
INLINE __m512i four_most(const vi32 *m)
{
    const __m512i a = (__m512i)m[0], b = (__m512i)m[1], c = (__m512i)m[2], d = (__m512i)m[3];
    const __m512i x = _mm512_max_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const __m512i y = _mm512_max_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));

    return _mm512_max_epi32(_mm512_unpacklo_epi64(x, y), _mm512_unpackhi_epi64(x, y));
}

INLINE vi32 blocks_most(const vi32 *m)
{
    const __m512i a = four_most(m), b = four_most(m + 4), c = four_most(m + 8), d = four_most(m + 12);
    const __m512i x = _mm512_max_epi32(_mm512_shuffle_i32x4(a, b, 0x44), _mm512_shuffle_i32x4(a, b, 0xee));
    const __m512i y = _mm512_max_epi32(_mm512_shuffle_i32x4(c, d, 0x44), _mm512_shuffle_i32x4(c, d, 0xee));

    return (vi32)_mm512_max_epi32(_mm512_shuffle_i32x4(x, y, 0x88), _mm512_shuffle_i32x4(x, y, 0xdd));
}

INLINE vi32 round_product(vf32 x, vf32 y)
{
    return (vi32)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)SPLAT_F32(0x1.8p23f)) - 0x4b400000;
}

INLINE void bytes_get(const unsigned char *p, vi32 *c)
{
    UNROLLED for (int k = 0; k < PARTS; k++)
        c[k] = (vi32)_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(p + k * LANES)));
}

INLINE void bytes_put(unsigned char *p, const vi32 *c)
{
    UNROLLED for (int k = 0; k < PARTS; k++)
        _mm_storeu_si128((void *)(p + k * LANES), _mm512_cvtepi32_epi8((__m512i)c[k]));
}

INLINE vu32 halves_get(const unsigned char *p)
{
    return (vu32)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));
}

INLINE void halves_put(unsigned char *p, vu32 h)
{
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16((__m512i)h));
}

#elif defined(RCCLX_ISA_AVX2)
INLINE bool any(vec m)
{
    return !_mm256_testz_si256((__m256i)m, (__m256i)m);
}

/* As for AVX-512. */
INLINE __m256i four_most(const vi32 *m)
{
    const __m256i a = (__m256i)m[0], b = (__m256i)m[1], c = (__m256i)m[2], d = (__m256i)m[3];
    const __m256i x = _mm256_max_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    const __m256i y = _mm256_max_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));

    return _mm256_max_epi32(_mm256_unpacklo_epi64(x, y), _mm256_unpackhi_epi64(x, y));
}

INLINE vi32 blocks_most(const vi32 *m)
{
    const __m256i a = four_most(m), b = four_most(m + 4);

    return (vi32)_mm256_max_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

INLINE vi32 round_product(vf32 x, vf32 y)
{
    return (vi32)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)SPLAT_F32(0x1.8p23f)) - 0x4b400000;
}

INLINE void bytes_get(const unsigned char *p, vi32 *c)
{
    UNROLLED for (int k = 0; k < PARTS; k++)
        c[k] = (vi32)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(p + k * LANES)));
}

/* Packing works in each half for itself: the fours of bytes are put in order at the end. */
INLINE void bytes_put(unsigned char *p, const vi32 *c)
{
    const __m256i low  = _mm256_packus_epi32((__m256i)(c[0] & 0xff), (__m256i)(c[1] & 0xff));
    const __m256i high = _mm256_packus_epi32((__m256i)(c[2] & 0xff), (__m256i)(c[3] & 0xff));

    _mm256_storeu_si256((void *)p, _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high),
                                                               _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}

INLINE vu32 halves_get(const unsigned char *p)
{
    return (vu32)_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
}

INLINE void halves_put(unsigned char *p, vu32 h)
{
    const __m128i low = _mm256_castsi256_si128((__m256i)h), high = _mm256_extracti128_si256((__m256i)h, 1);

    _mm_storeu_si128((void *)p, _mm_packus_epi32(low, high));
}

#else
typedef int8_t   some_bytes __attribute__((vector_size(LANES)));
typedef uint16_t some_halves __attribute__((vector_size(2 * LANES)));

INLINE void bytes_get(const unsigned char *p, vi32 *c)
{
    UNROLLED for (int k = 0; k < PARTS; k++) {
        some_bytes b;

        memcpy(&b, p + k * LANES, sizeof b);
        c[k] = __builtin_convertvector(b, vi32);
    }
}

INLINE void bytes_put(unsigned char *p, const vi32 *c)
{
    UNROLLED for (int k = 0; k < PARTS; k++) {
        const some_bytes b = __builtin_convertvector(c[k], some_bytes);

        memcpy(p + k * LANES, &b, sizeof b);
    }
}

INLINE vu32 halves_get(const unsigned char *p)
{
    some_halves h;

    memcpy(&h, p, sizeof h);
    return __builtin_convertvector(h, vu32);
}

INLINE void halves_put(unsigned char *p, vu32 u)
{
    const some_halves h = __builtin_convertvector(u, some_halves);

    memcpy(p, &h, sizeof h);
}

INLINE bool any(vec m)
{
    return (m[0] | m[1]) != 0;
}

#if defined(RCCLX_ISA_NEON)
INLINE vi32 blocks_most(const vi32 *m)
{
    return (vi32){vmaxvq_s32((int32x4_t)m[0]), vmaxvq_s32((int32x4_t)m[1]),
                  vmaxvq_s32((int32x4_t)m[2]), vmaxvq_s32((int32x4_t)m[3])};
}

INLINE vi32 round_product(vf32 x, vf32 y)
{
    return (vi32)vfmaq_f32((float32x4_t)SPLAT_F32(0x1.8p23f), (float32x4_t)x, (float32x4_t)y) - 0x4b400000;
}
#else
INLINE int lanes_most(vi32 m)
{
    const int a = m[0] > m[1] ? m[0] : m[1], b = m[2] > m[3] ? m[2] : m[3];

    return a > b ? a : b;
}

INLINE vi32 blocks_most(const vi32 *m)
{
    return (vi32){lanes_most(m[0]), lanes_most(m[1]), lanes_most(m[2]), lanes_most(m[3])};
}

/* Exact in f64, then rounded in its last places. */
typedef double  vf64x2 __attribute__((vector_size(2 * W)));
typedef int64_t vi64x2 __attribute__((vector_size(2 * W)));

INLINE vi32 round_product(vf32 x, vf32 y)
{
    const vf64x2 exact = __builtin_convertvector(x, vf64x2) * __builtin_convertvector(y, vf64x2);

    return __builtin_convertvector((vi64x2)(exact + 0x1.8p52), vi32);
}
#endif
#endif
