#include "numerics_reference.h"

#include "codec/codec.h"
#include "device/kernels/run.h"

/* What kernels do with a block in low precision (kernels/coded.h), compiled for the host, gives what
 * the host's codecs give: all codes by many scales, blocks of all kinds of values, both codecs, three
 * types. A block without care is done twice: four codes at once, as whole tiles are, and code by code.
 * Then how gfx942 gets OCP's e4m3 from its own FNUZ (kernels/gp.h), with its instructions written out
 * here: all codes, and every float that may be one, its neighbours and ties among them. */

enum { BLOCK = RCCLX_CODEC_BLOCK, BLOCKS = 20000 };

static const rcclx_type types[] = {RCCLX_F32, RCCLX_BF16, RCCLX_F16};
#define EACH(i, a) (size_t i = 0; i < sizeof a / sizeof a[0]; i++)
#define EACH_CODEC(c) (int c = RCCLX_CODEC_NONE + 1; c < RCCLX_CODEC_COUNT; c++)

static int wrong;

/* The first few differences are told. */
static void differs(const char *what, int c, rcclx_type t, uint64_t from, uint32_t scale, uint64_t got, uint64_t want)
{
    if (got == want)
        return;
    if (wrong++ < 5)
        printf("# %s, %s %s: %#llx by scale %#x gives %#llx, not %#llx\n", what, c ? rcclx_codecs[c]->name : "",
               rcclx_type_name(t), (unsigned long long)from, scale, (unsigned long long)got, (unsigned long long)want);
}

static void report(const char *what)
{
    tap(wrong == 0, what, "");
    wrong = 0;
}

/* ---- as a kernel does it ---- */

/* The code stands at one of four places, among others. */
static float open_code(int c, uint32_t code, float scale)
{
    const int      at = (int)(code >> 3 & 3), bits = 8 * at;
    const uint32_t others = (uint32_t)random_bits() & ~(0xffu << bits);
    float          f[4];

    gp_open_codes(c == RCCLX_CODEC_INT8, others | code << bits, scale, f);
    return f[at];
}

static float widened(rcclx_type t, uint64_t bits)
{
    gp_acc a;

    gp_f32_open(&a, (int)t, GP_OP_SUM, gp_v4_make((uint32_t)bits, 0, 0, 0), 0, 0);
    return a.f[0];
}

static uint64_t narrowed(rcclx_type t, float x)
{
    const gp_acc a = {.f = {x}};
    const gp_v4  v = gp_f32_close(&a, (int)t, GP_OP_SUM, 0);

    return gp_get(v, 0) & (t == RCCLX_F32 ? 0xffffffffu : 0xffffu);
}

/* A block's scale as it is on the wire. */
static uint32_t make_scale(int c, rcclx_type t, const float x[BLOCK])
{
    uint32_t most = 0, care = 0;

    for (int i = 0; i < BLOCK; i++) {
        const uint32_t size = gp_f32_bits(x[i]) & 0x7fffffffu;

        care |= size >= gp_coded_near((int)t);
        if (size < gp_coded_inf((int)t) && size > most)
            most = size;
    }
    const uint32_t fit = gp_coded_fit(c, most), s = care && fit > gp_coded_limit(c) ? gp_coded_limit(c) : fit;
    return s >> 16 | care << 15;
}

/* The same the short way; 0: it wants care. */
static uint32_t make_scale_short(int c, rcclx_type t, const float x[BLOCK])
{
    uint32_t most = 0;

    for (int i = 0; i < BLOCK; i += 4)
        most = gp_max32(most, gp_magnitude(x + i));
    return most >= gp_coded_near((int)t) ? 0 : gp_coded_fit(c, most) >> 16;
}

/* ---- codes to values ---- */

/* May a block have this code and scale? What wants no care has no special codes and stays far from overflow. */
static int may_be(int c, rcclx_type t, uint32_t code, uint32_t scale)
{
    const float    s = gp_bits_f32(scale << 16);
    const uint32_t size = c == RCCLX_CODEC_INT8 ? (code & 0x80 ? 256 - code : code) : code & 0x7f;

    return size < (c == RCCLX_CODEC_INT8 ? 127u : 0x7eu) && gp_coded_top(c) * s < gp_bits_f32(gp_coded_near((int)t)) * 1.02f;
}

static void test_codes(int c, rcclx_type t, uint32_t scale)
{
    for (uint32_t care = 0; care <= 0x8000; care += 0x8000)
        for (uint32_t code = 0; code < 256; code++) {
            _Alignas(16) unsigned char wire[144] = {(unsigned char)code};
            const uint16_t s = (uint16_t)(scale | care);
            uint64_t want = 0;

            if (!care && !may_be(c, t, code, scale))
                continue;
            memcpy(wire + rcclx_codec_scales_at(1), &s, 2);
            rcclx_codecs[c]->decode(t, wire, 1, &want);
            const float by = gp_bits_f32(scale << 16);

            differs("a code", c, t, code, s, narrowed(t, gp_care_value(c, (int)t, code, by, care)), want);
            if (!care)
                differs("a code in a word", c, t, code, s, narrowed(t, open_code(c, code, by)), want);
        }
}

/* Four codes of a word are opened, and joined, each in its place. */
static void test_places(void)
{
    for (uint32_t k = 0; k < 1024; k++) {
        const uint32_t word = (uint32_t)random_bits(), joined[4] = {word, word >> 8 | 0x5500, word >> 16 | 0xff00, word >> 24};
        float f[4], g[4];

        gp_open_codes(1, word, 1.0f, f);
        gp_open_small_e4m3(word & ~0x01010101u, g);
        for (int i = 0; i < 4; i++) {
            const uint32_t code = word >> 8 * i & 0xff;

            differs("a place of int8", RCCLX_CODEC_INT8, RCCLX_F32, word, 0, gp_f32_bits(f[i]),
                    round32(RCCLX_F32, (float)(int8_t)code));
            differs("a place of fp8", RCCLX_CODEC_FP8, RCCLX_F32, word, 0, gp_f32_bits(g[i]),
                    round32(RCCLX_F32, (float)small_value(&small_e4m3, code & ~1u)));
        }
        differs("a word of e4m3", RCCLX_CODEC_FP8, RCCLX_F32, word, 0, gp_pack_small_e4m3(g), word & ~0x01010101u);
        differs("four low bytes", RCCLX_CODEC_INT8, RCCLX_F32, word, 0, gp_join_low(joined), word);
    }
}

/* ---- values to codes ---- */

static uint64_t near_bits(rcclx_type t)
{
    const float most = gp_coded_most((int)t), x = most * (1.0f - (float)(random_bits() % 1000) * 0x1p-11f);

    return round32(t, random_bits() & 1 ? x : -x);
}

static uint64_t value_of(rcclx_type t, unsigned kind, int scale)
{
    const uint64_t sign = UINT64_C(1) << (8 * rcclx_type_size(t) - 1), all = sign * 2 - 1;

    switch (kind) {
    case 0: return random_bits() & sign;
    case 1: return random_bits() & all;
    case 2: return near_bits(t);
    case 3: return random_bits() & (sign | 0xff);                      /* subnormal */
    case 4: return random_bits() % 16 ? round32(t, (float)(int32_t)random_bits() * 0x1p-30f) : random_bits() | (all ^ sign ^ 1);
    default: return round32(t, ldexpf((float)(int32_t)random_bits(), scale - 31 - (int)(random_bits() % 8)));
    }
}

/* Elements of the operation's type, and the same as floats, filled up with zeros. */
static void fill(rcclx_type t, int n, unsigned char *in, float x[BLOCK])
{
    const size_t   size = rcclx_type_size(t);
    const unsigned kind = (unsigned)(random_bits() % 8);
    const int      by = t == RCCLX_F16 ? (int)(random_bits() % 30) - 14 : (int)(random_bits() % 250) - 124;

    for (int i = 0; i < BLOCK; i++) {
        const uint64_t bits = i < n ? value_of(t, random_bits() % 32 ? kind : 4, by) : 0;

        memcpy(in + (size_t)i * size, &bits, size);
        x[i] = widened(t, bits);
    }
}

/* Four elements at once; `values`: what comes back, too. */
static void test_four(int c, rcclx_type t, const float x[4], uint32_t scale, const unsigned char *codes,
                      const unsigned char *back)
{
    const float    s = gp_bits_f32(scale << 16);
    const uint32_t want = (uint32_t)bits_get(codes, 4);

    for (int values = 0; values < 2; values++) {
        float f[4] = {x[0], x[1], x[2], x[3]};

        differs("four values", c, t, gp_f32_bits(x[0]), scale,
                gp_make_codes(c == RCCLX_CODEC_INT8, values, f, gp_inverse(s), s), want);
        for (int i = 0; i < 4 && values; i++)
            differs("one of four and back", c, t, gp_f32_bits(x[i]), scale, narrowed(t, f[i]),
                    bits_get(back + (size_t)i * rcclx_type_size(t), rcclx_type_size(t)));
    }
}

static void test_block(int c, rcclx_type t, int n)
{
    _Alignas(16) unsigned char wire[176] = {0}, in[BLOCK * 4], back[BLOCK * 4] = {0};
    const size_t size = rcclx_type_size(t);
    float        x[BLOCK];

    fill(t, n, in, x);
    rcclx_codecs[c]->encode(t, in, (size_t)n, wire);
    rcclx_codecs[c]->decode(t, wire, (size_t)n, back);
    const uint32_t scale = (uint32_t)bits_get(wire + rcclx_codec_scales_at((size_t)n), 2), care = scale & 0x8000;
    differs("a scale", c, t, bits_get(in, size), scale, make_scale(c, t, x), scale);
    differs("a scale the short way", c, t, bits_get(in, size), scale, make_scale_short(c, t, x), care ? 0 : scale);
    const float s = gp_bits_f32((scale & 0x7fff) << 16), inverse = gp_inverse(s);
    for (int i = 0; i < n; i++) {
        differs("a value", c, t, gp_f32_bits(x[i]), scale, gp_care_code(c, (int)t, x[i], inverse, care), wire[i]);
        differs("and back", c, t, wire[i], scale, narrowed(t, gp_care_value(c, (int)t, wire[i], s, care)),
                bits_get(back + (size_t)i * size, size));
    }
    for (int i = 0; i + 4 <= n && !care; i += 4)
        test_four(c, t, x + i, scale, wire + i, back + (size_t)i * size);
}

/* ---- gfx942: FNUZ, as its instructions have it ---- */

/* Bias 8, so half of what OCP's code stands for; 240 the largest, 0x80 NaN, no -0. */
static float fnuz_value(uint32_t code)
{
    const int e = (int)(code >> 3 & 15), m = (int)(code & 7);

    if (code == 0x80)
        return NAN;
    return (code & 0x80 ? -1.0f : 1.0f) * (e ? ldexpf((float)(8 + m), e - 11) : ldexpf((float)m, -10));
}

/* To the nearest, ties to even: by search. */
static uint32_t fnuz_code(float x)
{
    const double a = fabs((double)x);
    uint32_t     best = 0;

    if (isnan(x))
        return 0x80;
    for (uint32_t code = 1; code < 0x80; code++) {
        const double mine = fabs((double)fnuz_value(code) - a), its = fabs((double)fnuz_value(best) - a);

        if (mine < its || (mine == its && !(code & 1)))
            best = code;
    }
    return best && x < 0 ? best | 0x80 : best;
}

static uint32_t fnuz_pack(const float f[4])
{
    float    half[4];
    uint32_t word = 0;

    gp_fnuz_halve(f, half);
    for (int i = 0; i < 4; i++)
        word |= fnuz_code(half[i]) << 8 * i;
    return gp_fnuz_codes(word, f);
}

static void fnuz_open(uint32_t word, float f[4])
{
    for (int i = 0; i < 4; i++)
        f[i] = fnuz_value(gp_fnuz_sizes(word) >> 8 * i & 0xff);
    gp_fnuz_numbers(word, f);
}

static void test_fnuz_codes(void)
{
    for (uint32_t code = 0; code < 256; code++) {
        const uint32_t word = code | (255 - code) << 8 | (code ^ 0x55) << 16 | (code ^ 0x80) << 24;
        float f[4];

        fnuz_open(word, f);
        for (int i = 0; i < 4; i++)
            if ((word >> 8 * i & 0x7f) != 0x7f) /* NaN there: a block without care has none */
                differs("FNUZ opens", 0, RCCLX_F32, word >> 8 * i & 0xff, 0, gp_f32_bits(f[i]),
                        gp_f32_bits((float)small_value(&small_e4m3, word >> 8 * i & 0xff)));
    }
}

static void fnuz_try(float x)
{
    const float    f[4] = {x, -x, x, -x};
    const uint32_t code = (uint32_t)small_nearest(&small_e4m3, (double)x);

    differs("FNUZ packs", 0, RCCLX_F32, gp_f32_bits(x), 0, fnuz_pack(f), (code | (code ^ 0x80) << 8) * 0x10001u);
    differs("OCP packs", 0, RCCLX_F32, gp_f32_bits(x), 0, gp_pack_small_e4m3(f), (code | (code ^ 0x80) << 8) * 0x10001u);
}

static void test_fnuz_numbers(void)
{
    for (int code = 0; code < 0x7e; code++) { /* every code, every tie, and what is next to them */
        const float at = (float)small_value(&small_e4m3, (uint64_t)code);
        const float edge[2] = {at, (at + (float)small_value(&small_e4m3, (uint64_t)code + 1)) / 2};

        for (int k = 0; k < 2; k++) {
            fnuz_try(edge[k]);
            fnuz_try(nextafterf(edge[k], 448));
            fnuz_try(edge[k] > 0 ? nextafterf(edge[k], 0) : edge[k]);
        }
    }
    for (uint32_t bits = 0; bits < gp_f32_bits(447.99f); bits += 9973) /* subnormal floats too */
        fnuz_try(gp_bits_f32(bits));
}

int main(void)
{
    static const uint32_t scales[] = {0x0080, 0x0081, 0x00ff, 0x0100, 0x3f80, 0x3f81, 0x3fff, 0x429d, 0x429e, 0x4382,
                                      0x4383, 0x729d, 0x729e, 0x7382, 0x7383, 0x7b1c, 0x7b1d, 0x7c01, 0x7c02};
    char name[80];

    reference_init();
    for EACH_CODEC(c)
        for EACH(t, types) {
            for EACH(s, scales)
                if (scales[s] << 16 <= gp_coded_limit(c))
                    test_codes(c, types[t], scales[s]);
            for (int k = 0; k < 300; k++)
                test_codes(c, types[t], 0x80 + (uint32_t)(random_bits() % (types[t] == RCCLX_F16 ? 0x4400 : 0x7a00)));
            snprintf(name, sizeof name, "%s %s: every code", rcclx_codecs[c]->name, rcclx_type_name(types[t]));
            report(name);
            for (int k = 0; k < BLOCKS; k++)
                test_block(c, types[t], k % 4 ? BLOCK : 1 + (int)(random_bits() % BLOCK));
            snprintf(name, sizeof name, "%s %s: blocks of all kinds", rcclx_codecs[c]->name, rcclx_type_name(types[t]));
            report(name);
        }
    test_places();
    report("four in a word");
    test_fnuz_codes();
    report("every code by way of FNUZ");
    test_fnuz_numbers();
    report("numbers by way of FNUZ");
    return tap_done();
}
