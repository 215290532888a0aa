/* The kernels of codecs, written once and compiled for each instruction set by the codec_<isa>.c
 * that includes this with RCCLX_ISA_<ISA> and TABLE defined (so there is no include guard).
 *
 * Blocks are encoded in groups of as many as a vector has lanes:
 *
 *   block 0   x x x x x x x x ..  --greatest |x| of each lane-->  m m m m   \
 *   block 1   x x x x x x x x ..  ------------------------------> m m m m    } --turned--> M M M M
 *   ..                                                                      /                |
 *   codes     c c c c c c c c ..  <--x * 1/s, rounded--  a scale s a block  <----------------+
 *
 * M is found by comparing bits as integers, where Inf and NaN are greatest: one look at it tells
 * whether any block of the group wants care. Then the group is done once more by the same functions
 * with `care` set, which without need changes nothing. Decoding looks at a block at a time.
 *
 * A short block is done in a copy filled up with zeros. */
#include "codec/codec_kernels.h"
#include "codec/codec_vector.h"
#include "device/convert.h"

#include "codec/fp8_body.h"
#include "codec/int8_body.h"

enum { BLOCK = RCCLX_CODEC_BLOCK };

typedef struct { vf32 v[PARTS]; } block;

#define EACH_PART UNROLLED for (int k = 0; k < PARTS; k++)

/* ---- a block of elements, in order ---- */

enum { f32_SIZE = 4, bf16_SIZE = 2, f16_SIZE = 2, sum_SIZE = 4 };

INLINE block f32_load(const unsigned char *p)
{
    block x;

    EACH_PART x.v[k] = (vf32)load(p + k * W);
    return x;
}

INLINE void f32_store(unsigned char *p, block x)
{
    EACH_PART store(p + k * W, (vec)nan_fix32(x.v[k]));
}

INLINE void sum_store(unsigned char *p, block x)
{
    EACH_PART store(p + k * W, (vec)((vf32)load(p + k * W) + x.v[k]));
}

INLINE block bf16_load(const unsigned char *p)
{
    block x;

    EACH_PART x.v[k] = (vf32)(halves_get(p + k * W / 2) << 16);
    return x;
}

INLINE void bf16_store(unsigned char *p, block x)
{
    EACH_PART
    {
        const vu32 u = (vu32)nan_fix32(x.v[k]);

        halves_put(p + k * W / 2, (u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
}

#ifdef HAVE_F16
INLINE block f16_load(const unsigned char *p)
{
    block x;

    UNROLLED for (int k = 0; k < PARTS; k += 2)
    {
        const vec raw = load(p + k * W / 2);

        x.v[k]     = f16_low(raw);
        x.v[k + 1] = f16_high(raw);
    }
    return x;
}

INLINE void f16_store(unsigned char *p, block x)
{
    UNROLLED for (int k = 0; k < PARTS; k += 2)
        store(p + k * W / 2, f16_join(nan_fix32(x.v[k]), nan_fix32(x.v[k + 1])));
}
#else
INLINE block f16_load(const unsigned char *p)
{
    block x;

    for (int i = 0; i < BLOCK; i++) {
        uint16_t h;

        memcpy(&h, p + 2 * i, sizeof h);
        x.v[i / LANES][i % LANES] = rcclx_f16_to_f32(h);
    }
    return x;
}

INLINE void f16_store(unsigned char *p, block x)
{
    for (int i = 0; i < BLOCK; i++) {
        const uint16_t h = rcclx_f32_to_f16(x.v[i / LANES][i % LANES]);

        memcpy(p + 2 * i, &h, sizeof h);
    }
}
#endif

/* ---- what care means ---- */

INLINE vi32 size_of(vf32 x, const rcclx_limits *l, bool care)
{
    const vi32 size = (vi32)x & 0x7fffffff;

    return care ? (vi32)pick((vec)(size >= SPLAT(vi32, l->inf)), (vec){0}, (vec)size) : size;
}

INLINE vi32 mark_codes(vi32 code, vf32 x, const rcclx_limits *l, int inf, int minus_inf, int nan)
{
    const vi32 u = (vi32)x, size = u & 0x7fffffff;
    const vec  infinite = pick((vec)(u < 0), (vec)SPLAT(vi32, minus_inf), (vec)SPLAT(vi32, inf));
    const vec  special  = pick((vec)(size > 0x7f800000), (vec)SPLAT(vi32, nan), infinite);

    return (vi32)pick((vec)(size >= SPLAT(vi32, l->inf)), special, (vec)code);
}

INLINE vf32 mark_values(vf32 x, vi32 code, vi32 is_inf, vi32 is_nan, const rcclx_limits *l)
{
    const vi32 size = (vi32)x & 0x7fffffff, sign = code & (int32_t)0x80000000;
    const vi32 most = SPLAT(vi32, l->most), over = (size > most) & (size <= 0x7f800000);
    const vec  kept = pick((vec)over, (vec)(most | ((vi32)x & (int32_t)0x80000000)), (vec)x);

    return (vf32)pick((vec)is_nan, (vec)SPLAT(vi32, 0x7fc00000), pick((vec)is_inf, (vec)(sign | 0x7f800000), kept));
}

/* The scale of a block whose greatest is m, up to the next bf16. Where that would make the largest
 * value Inf, the scale stays below, by so little that codes still do not pass theirs. */
INLINE vu32 scale_bits(vi32 m, float most, int32_t scale_max)
{
    const vu32 up = ((vu32)((vf32)m * SPLAT_F32(1.0f / most)) + 0xffff) & 0xffff0000;

    return (vu32)least_of(most_of((vi32)up, SPLAT(vi32, 0x00800000)), SPLAT(vi32, scale_max));
}

/* ---- kernels ---- */

#define ENCODE(C, T)                                                          \
    INLINE void C##_##T##_codes(const unsigned char *src, unsigned char *codes, vf32 inverse, const rcclx_limits *l, bool care) \
    {                                                                         \
        const block x = T##_load(src);                                        \
        vi32        c[PARTS];                                                 \
                                                                              \
        EACH_PART                                                             \
        {                                                                     \
            c[k] = C##_code(x.v[k], inverse);                                 \
            if (care)                                                         \
                c[k] = mark_codes(c[k], x.v[k], l, C##_INF, C##_MINUS_INF, C##_NAN); \
        }                                                                     \
        bytes_put(codes, c);                                                  \
    }                                                                         \
    /* At most LANES blocks. Without care: false, nothing written, if that is wanted. */ \
    INLINE bool C##_##T##_group(const unsigned char *src, int n, rcclx_wire to, const rcclx_limits *l, bool care) \
    {                                                                         \
        vi32 m[LANES] = {{0}}, whole[LANES] = {{0}}, wants;                   \
        union { vu32 v; uint32_t u[LANES]; } s, inverse, mark;                \
                                                                              \
        for (int b = 0; b < n; b++) {                                         \
            const block x = T##_load(src + b * BLOCK * T##_SIZE);             \
                                                                              \
            EACH_PART m[b] = most_of(m[b], size_of(x.v[k], l, care));         \
            if (care)                                                         \
                EACH_PART whole[b] = most_of(whole[b], size_of(x.v[k], l, false)); \
        }                                                                     \
        m[0] = blocks_most(m);                                                \
        wants = (care ? blocks_most(whole) : m[0]) >= SPLAT(vi32, l->near);   \
        if (!care && any((vec)wants))                                         \
            return false;                                                     \
        s.v       = scale_bits(m[0], C##_MOST, C##_SCALE_MAX);                \
        inverse.v = (vu32)(SPLAT_F32(1.0f) / (vf32)s.v);                      \
        mark.v    = s.v >> 16 | ((vu32)wants & 0x8000);                       \
        for (int b = 0; b < n; b++) {                                         \
            const uint16_t scale = (uint16_t)mark.u[b];                       \
                                                                              \
            C##_##T##_codes(src + b * BLOCK * T##_SIZE, to.codes + b * BLOCK, (vf32)SPLAT(vu32, inverse.u[b]), l, care); \
            memcpy(to.scales + 2 * b, &scale, sizeof scale);                  \
        }                                                                     \
        return true;                                                          \
    }                                                                         \
    static __attribute__((noinline)) void C##_##T##_with_care(const void *src, int n, rcclx_wire to, const rcclx_limits *l) \
    {                                                                         \
        (void)C##_##T##_group(src, n, to, l, true);                           \
    }                                                                         \
    INLINE void C##_##T##_some(const unsigned char *src, int n, rcclx_wire to, const rcclx_limits *l) \
    {                                                                         \
        if (!C##_##T##_group(src, n, to, l, false))                           \
            C##_##T##_with_care(src, n, to, l);                               \
    }                                                                         \
    static void C##_##T##_encode(const void *src, size_t n, rcclx_wire to, const rcclx_limits *l) \
    {                                                                         \
        const unsigned char *p = src;                                         \
        unsigned char        full[BLOCK * T##_SIZE] = {0}, codes[BLOCK];      \
                                                                              \
        for (; n >= LANES * BLOCK; n -= LANES * BLOCK, p += LANES * BLOCK * T##_SIZE) { \
            C##_##T##_some(p, LANES, to, l);                                  \
            to.codes += LANES * BLOCK, to.scales += LANES * 2;                \
        }                                                                     \
        for (; n >= BLOCK; n -= BLOCK, p += BLOCK * T##_SIZE) {               \
            C##_##T##_some(p, 1, to, l);                                      \
            to.codes += BLOCK, to.scales += 2;                                \
        }                                                                     \
        if (n > 0) {                                                          \
            memcpy(full, p, n * T##_SIZE);                                    \
            C##_##T##_some(full, 1, (rcclx_wire){codes, to.scales}, l);       \
            memcpy(to.codes, codes, n);                                       \
        }                                                                     \
    }

#define DECODE(C, T)                                                          \
    INLINE void C##_##T##_values(const unsigned char *codes, uint32_t scale, unsigned char *dst, const rcclx_limits *l, \
                                 bool care)                                   \
    {                                                                         \
        const vf32 s = (vf32)SPLAT(vu32, (scale & 0x7fff) << 16);             \
        vi32       c[PARTS];                                                  \
        block      x;                                                         \
                                                                              \
        bytes_get(codes, c);                                                  \
        EACH_PART                                                             \
        {                                                                     \
            x.v[k] = C##_value(c[k]) * s;                                     \
            if (care)                                                         \
                x.v[k] = mark_values(x.v[k], c[k], C##_is_inf(c[k]), C##_is_nan(c[k]), l); \
        }                                                                     \
        T##_store(dst, x);                                                    \
    }                                                                         \
    static __attribute__((noinline)) void C##_##T##_careful(const unsigned char *codes, uint32_t scale, unsigned char *dst, \
                                                            const rcclx_limits *l) \
    {                                                                         \
        C##_##T##_values(codes, scale, dst, l, true);                         \
    }                                                                         \
    INLINE void C##_##T##_block(const unsigned char *codes, const unsigned char *scale, unsigned char *dst, \
                                const rcclx_limits *l)                        \
    {                                                                         \
        uint16_t s;                                                           \
                                                                              \
        memcpy(&s, scale, sizeof s);                                          \
        if (s & 0x8000)                                                       \
            C##_##T##_careful(codes, s, dst, l);                              \
        else                                                                  \
            C##_##T##_values(codes, s, dst, l, false);                        \
    }                                                                         \
    static void C##_##T##_decode(rcclx_wire from, size_t n, void *dst, const rcclx_limits *l) \
    {                                                                         \
        unsigned char *p = dst, full[BLOCK * T##_SIZE], codes[BLOCK] = {0};   \
                                                                              \
        for (; n >= BLOCK; n -= BLOCK, p += BLOCK * T##_SIZE) {               \
            C##_##T##_block(from.codes, from.scales, p, l);                   \
            from.codes += BLOCK, from.scales += 2;                            \
        }                                                                     \
        if (n > 0) {                                                          \
            memcpy(codes, from.codes, n);                                     \
            memcpy(full, p, n * T##_SIZE); /* for SUM */                      \
            C##_##T##_block(codes, from.scales, full, l);                     \
            memcpy(p, full, n * T##_SIZE);                                    \
        }                                                                     \
    }

#define MOVE(T, U)                                                            \
    static void T##_to_##U(const void *src, size_t n, void *dst)              \
    {                                                                         \
        const unsigned char *p = src;                                         \
        unsigned char       *q = dst, from[BLOCK * T##_SIZE] = {0}, to[BLOCK * U##_SIZE]; \
                                                                              \
        for (; n >= BLOCK; n -= BLOCK, p += BLOCK * T##_SIZE, q += BLOCK * U##_SIZE) \
            U##_store(q, T##_load(p));                                        \
        if (n > 0) {                                                          \
            memcpy(from, p, n * T##_SIZE);                                    \
            memcpy(to, q, n * U##_SIZE); /* for SUM */                        \
            U##_store(to, T##_load(from));                                    \
            memcpy(q, to, n * U##_SIZE);                                      \
        }                                                                     \
    }

#define X(id, name, about)                                                    \
    ENCODE(name, f32) ENCODE(name, bf16) ENCODE(name, f16)                    \
    DECODE(name, f32) DECODE(name, bf16) DECODE(name, f16) DECODE(name, sum)
RCCLX_CODEC_LIST(X)
#undef X
MOVE(f32, f32)
MOVE(bf16, f32)
MOVE(f16, f32)
MOVE(f32, sum)
MOVE(bf16, sum)
MOVE(f16, sum)
MOVE(f32, bf16)
MOVE(f32, f16)

const rcclx_codec_kernels TABLE = {
    .name   = ISA_NAME,
    .encode = {
#define X(id, name, about) [RCCLX_CODEC_##id] = {name##_f32_encode, name##_bf16_encode, name##_f16_encode},
        RCCLX_CODEC_LIST(X)
#undef X
    },
    .decode = {
#define X(id, name, about) [RCCLX_CODEC_##id] = {name##_f32_decode, name##_bf16_decode, name##_f16_decode, name##_sum_decode},
        RCCLX_CODEC_LIST(X)
#undef X
    },
    .move = {
        [RCCLX_ELEMENT_F32]  = {f32_to_f32, f32_to_bf16, f32_to_f16, f32_to_sum},
        [RCCLX_ELEMENT_BF16] = {bf16_to_f32, [RCCLX_ELEMENT_SUM] = bf16_to_sum},
        [RCCLX_ELEMENT_F16]  = {f16_to_f32, [RCCLX_ELEMENT_SUM] = f16_to_sum},
    },
};
