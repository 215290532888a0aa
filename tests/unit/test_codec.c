#include "numerics_reference.h"

#include "codec/codec.h"

#include <fenv.h>

/* docs/wire-format.md once more, in doubles and by search, held against every codec, type and
 * instruction set: the same bytes on the wire, the same bits out of it, wherever a run lies and
 * however long it is. Then what users would notice: where Inf and NaN arrive, that nothing else
 * becomes one, and how large errors are. Last, rcclx_codec_move against a plain loop. */

enum { MOST = 4100, GUARD = 64, BLOCK = RCCLX_CODEC_BLOCK, ROOM = MOST * 4 + 2 * GUARD + 64, WIRE = 2 * MOST };

static const rcclx_type types[] = {RCCLX_F32, RCCLX_BF16, RCCLX_F16};
#define EACH(i, a) (size_t i = 0; i < sizeof a / sizeof a[0]; i++)
#define EACH_CODEC(c) (int c = RCCLX_CODEC_NONE + 1; c < RCCLX_CODEC_COUNT; c++)

/* ---- the reference: a block ---- */

typedef struct {
    double  most, scale_max;
    uint8_t inf, minus_inf, nan;
} format;

static const format formats[RCCLX_CODEC_COUNT] = {
    [RCCLX_CODEC_FP8]  = {416, 0x1.3ap119, 0x7e, 0xfe, 0x7f},
    [RCCLX_CODEC_INT8] = {126, 0x1.04p121, 0x7f, 0x81, 0x80},
};

static double code_value(int c, int code)
{
    return c == RCCLX_CODEC_INT8 ? (double)(int8_t)code : small_value(&small_e4m3, (uint64_t)code);
}

static uint8_t code_nearest(int c, double x, float inverse)
{
    const double exact = x * (double)inverse;
    int          best  = 0;

    if (c == RCCLX_CODEC_FP8)
        return (uint8_t)small_nearest(&small_e4m3, fmax(-416, fmin(416, (float)exact)));
    for (int code = -126; code <= 126; code++) {
        const double mine = fabs(code - exact), its = fabs(best - exact);

        if (mine < its || (mine == its && code % 2 == 0))
            best = code;
    }
    return (uint8_t)best;
}

static int counts_as_inf(rcclx_type t, double x)
{
    return isinf(x) || (t == RCCLX_F16 && fabs(x) >= 65520);
}

/* The least bf16 that is no less. */
static double up_to_bf16(double x)
{
    int e;

    if (x < 0x1p-126)
        return 0x1p-126;
    frexp(x, &e);
    return ldexp(ceil(ldexp(x, 8 - e)), e - 8);
}

static uint16_t block_expect(int c, rcclx_type t, const double *x, size_t n, uint8_t *codes)
{
    const format *f = &formats[c];
    double        m = 0, s;
    int           care = 0;

    for (size_t i = 0; i < n; i++)
        if (isnan(x[i]) || counts_as_inf(t, x[i]))
            care = 1;
        else
            m = fmax(m, fabs(x[i]));
    care |= m >= (t == RCCLX_F16 ? 0x1p15 : 0x1p111);
    s = up_to_bf16((float)(m * (double)(float)(1 / f->most)));
    if (care)
        s = fmin(s, f->scale_max);
    for (size_t i = 0; i < n; i++)
        codes[i] = isnan(x[i])               ? f->nan
                   : counts_as_inf(t, x[i]) ? (x[i] > 0 ? f->inf : f->minus_inf)
                                            : code_nearest(c, x[i], (float)(1 / s));
    return (uint16_t)(small_nearest(&small_bf16, s) | (care ? 0x8000 : 0));
}

/* What a code of a run is worth, as f32. */
static double code_expect(int c, rcclx_type t, uint8_t code, uint16_t scale)
{
    const format *f    = &formats[c];
    const double  most = t == RCCLX_F16 ? 65504 : t == RCCLX_BF16 ? 0x1.fep127 : FLT_MAX;
    const double  v    = code_value(c, code) * small_value(&small_bf16, scale & 0x7fff);

    if (!(scale & 0x8000))
        return v;
    if (code == f->nan)
        return (double)NAN;
    if (code == f->inf || code == f->minus_inf)
        return code == f->inf ? INFINITY : -INFINITY;
    return fmax(-most, fmin(most, v));
}

/* ---- the reference: a run ---- */

static uint16_t scale_get(const uint8_t *wire, size_t count, size_t i)
{
    return (uint16_t)bits_get(wire + rcclx_codec_scales_at(count) + i / BLOCK * 2, 2);
}

static void run_expect(int c, rcclx_type t, const double *x, size_t count, uint8_t *wire)
{
    for (size_t at = 0; at < count; at += BLOCK) {
        const uint16_t s = block_expect(c, t, x + at, count - at < BLOCK ? count - at : BLOCK, wire + at);

        memcpy(wire + rcclx_codec_scales_at(count) + at / BLOCK * 2, &s, 2);
    }
}

static int same_wire(const uint8_t *a, const uint8_t *b, size_t count)
{
    const size_t at = rcclx_codec_scales_at(count);

    return memcmp(a, b, count) == 0 && memcmp(a + at, b + at, (count + BLOCK - 1) / BLOCK * 2) == 0;
}

static void put_value(rcclx_type t, double x, unsigned char *p)
{
    const uint64_t u = round32(t, (float)x);

    memcpy(p, &u, rcclx_type_size(t));
}

static double get_value(rcclx_type t, const unsigned char *p)
{
    return value32(t, bits_get(p, rcclx_type_size(t)));
}

/* ---- data ---- */

static double random_unit(void) /* -1 to 1 */
{
    return (double)(int64_t)random_bits() * 0x1p-63;
}

static double random_normal(void)
{
    double sum = 0;

    for (int i = 0; i < 12; i++)
        sum += random_unit();
    return sum / 2;
}

enum { NORMAL, WIDE, SMALL, TIES, LARGE, SPECIAL, BITS, PATTERNS };

/* Values near where the scale rounds up or codes tie, where ranges end, and any bits at all. */
static double random_value(rcclx_type t, int pattern, size_t i)
{
    static double  block;
    const uint64_t dice = random_bits();
    const double   most = t == RCCLX_F16 ? 65504 : t == RCCLX_BF16 ? 0x1.fep127 : FLT_MAX;

    if (i % BLOCK == 0)
        block = ldexp(1 + random_unit() / 2, (int)(dice % (t == RCCLX_F16 ? 30 : 240)) - (t == RCCLX_F16 ? 20 : 130));
    switch (pattern) {
    case NORMAL: return random_normal();
    case WIDE: return random_unit() * block;
    case SMALL: return dice % 3 ? ldexp(random_unit(), t == RCCLX_F16 ? -14 : -126) : dice % 2 ? -0.0 : 0.0;
    case TIES: return dice % 16 == 0 ? 126 : (double)((int64_t)(dice % 505) - 252) / 2 * (1 + (double)(dice % 3 - 1.0) * 0x1p-22);
    case LARGE: return dice % 8 ? random_unit() * most : copysign(most, random_unit());
    case SPECIAL: return dice % 61 ? random_unit() : dice % 3 == 0 ? (double)NAN : copysign(INFINITY, random_unit());
    default: return value32(t, dice >> (64 - 8 * rcclx_type_size(t)));
    }
}

static unsigned char source[ROOM], dest[ROOM];
static double        value[MOST];
static _Alignas(64) uint8_t wire[WIRE + GUARD], want[WIRE];

static void fill(rcclx_type t, int pattern, unsigned char *p, size_t n)
{
    const size_t w = rcclx_type_size(t);

    for (size_t i = 0; i < n; i++) {
        put_value(t, random_value(t, pattern, i), p + i * w);
        value[i] = get_value(t, p + i * w);
    }
}

/* ---- encode and decode ---- */

static int check_encode(int c, rcclx_type t, const unsigned char *p, size_t n)
{
    memset(wire, 0xa5, sizeof wire);
    rcclx_codecs[c]->encode(t, p, n, wire);
    for (size_t g = rcclx_codec_bytes(n); g < rcclx_codec_bytes(n) + GUARD; g++)
        if (wire[g] != 0xa5)
            return 0;
    return same_wire(wire, want, n);
}

static int check_decode(int c, rcclx_type t, size_t n, size_t skew)
{
    const size_t   w = rcclx_type_size(t);
    unsigned char *p = dest + GUARD + skew * w;

    memset(dest, 0xa5, sizeof dest);
    rcclx_codecs[c]->decode(t, want, n, p);
    for (int g = 1; g <= GUARD; g++)
        if (p[-g] != 0xa5 || p[n * w + (size_t)g - 1] != 0xa5)
            return 0;
    for (size_t i = 0; i < n; i++)
        if (bits_get(p + i * w, w) != round32(t, (float)code_expect(c, t, want[i], scale_get(want, n, i))))
            return 0;
    return 1;
}

static int check_both(int c, rcclx_type t, int pattern, size_t n, char *detail)
{
    const size_t   skew = n % 16;
    unsigned char *p    = source + GUARD + skew * rcclx_type_size(t);

    fill(t, pattern, p, n);
    run_expect(c, t, value, n, want);
    for EACH (i, isa_names) {
        const char *fault = NULL;

        if (rcclx_isa_use(isa_names[i]) != 0)
            continue;
        if (!check_encode(c, t, p, n))
            fault = "encode";
        else if (!check_decode(c, t, n, skew))
            fault = "decode";
        if (fault) {
            sprintf(detail, "%s, %s, pattern %d, count %zu", fault, isa_names[i], pattern, n);
            return 0;
        }
    }
    return 1;
}

static void test_bytes(int c, rcclx_type t)
{
    static const size_t longer[] = {511, 512, 513, 544, 1000, 1025, MOST - 3, MOST};
    char                name[80], detail[160] = "";
    int                 good = 1;

    sprintf(name, "%s of %s: the bytes of the reference, there and back", rcclx_codecs[c]->name, rcclx_type_name(t));
    for (int pattern = 0; pattern < PATTERNS; pattern++) {
        for (size_t n = 0; n <= 257; n++)
            good = good && check_both(c, t, pattern, n, detail);
        for EACH (k, longer)
            good = good && check_both(c, t, pattern, longer[k], detail);
    }
    tap(good, name, detail);
}

/* Every code with many scales is worth code times scale; and what it is worth becomes that code
 * again, where the block's greatest element makes the same scale. */
static int check_codes(int c, rcclx_type t, double s)
{
    const uint16_t scale = (uint16_t)small_nearest(&small_bf16, s);
    const format  *f     = &formats[c];
    const size_t   w     = rcclx_type_size(t);
    float          x[256];

    for (int code = 0; code < 256; code++)
        want[code] = (uint8_t)code;
    for (int b = 0; b < 256 / BLOCK; b++)
        memcpy(want + rcclx_codec_scales_at(256) + 2 * b, &scale, 2);
    rcclx_codecs[c]->decode(t, want, 256, dest);
    for (int code = 0; code < 256; code++) {
        const double v = code_value(c, code) * s;

        x[code] = (float)v;
        if (code != f->nan && code != 0xff && bits_get(dest + (size_t)code * w, w) != round32(t, (float)v))
            return 0;
    }
    for (int code = 0; code < 256; code++) {
        float pair[2] = {(float)(f->most * s * (1 - 0x1p-10)), x[code]};

        if (!(fabs(code_value(c, code)) < f->most))
            continue;
        rcclx_codecs[c]->encode(RCCLX_F32, pair, 2, wire);
        if (code_value(c, wire[0]) != f->most || wire[1] != code || scale_get(wire, 2, 0) != scale)
            return 0;
    }
    return 1;
}

static void test_codes(int c)
{
    char name[80];
    int  good = 1;

    sprintf(name, "%s: all codes, in and out", rcclx_codecs[c]->name);
    for EACH (i, isa_names)
        for EACH (t, types)
            for (int e = -126; rcclx_isa_use(isa_names[i]) == 0 && ldexp(formats[c].most, e + 1) < 0x1p111; e += 7)
                good = good && check_codes(c, types[t], ldexp(1 + (double)(e & 127) / 128, e));
    tap(good, name, "");
}

/* ---- what users would notice ---- */

/* One special value among finite ones: it arrives, the others stay finite and near. */
static int check_special(int c, rcclx_type t, size_t at, double special)
{
    const size_t w = rcclx_type_size(t), n = 70;

    fill(t, NORMAL, source, n);
    put_value(t, special, source + at * w);
    rcclx_codecs[c]->encode(t, source, n, wire);
    rcclx_codecs[c]->decode(t, wire, n, dest);
    for (size_t i = 0; i < n; i++) {
        const double x = get_value(t, source + i * w), y = get_value(t, dest + i * w);

        if (i == at ? !(y == special || (isnan(y) && isnan(special))) : !(fabs(x - y) < 0.2))
            return 0;
    }
    return 1;
}

static void test_special(int c)
{
    char name[80];
    int  good = 1;

    sprintf(name, "%s: Inf and NaN arrive where they were, and nowhere else", rcclx_codecs[c]->name);
    for EACH (i, isa_names)
        for EACH (t, types)
            for (size_t at = 0; rcclx_isa_use(isa_names[i]) == 0 && at < 70; at++)
                good = good && check_special(c, types[t], at, INFINITY) && check_special(c, types[t], at, -INFINITY) &&
                       check_special(c, types[t], at, (double)NAN);
    tap(good, name, "");
}

/* The largest values of a type, of both signs and with any neighbours, stay finite and near. */
static void test_large(int c)
{
    char   name[80];
    int    good = 1;
    double x[2 * BLOCK];

    sprintf(name, "%s: what is near the largest value stays finite", rcclx_codecs[c]->name);
    for EACH (i, isa_names)
        for EACH (k, types)
            for (int round = 0; rcclx_isa_use(isa_names[i]) == 0 && round < 2000; round++) {
                const rcclx_type t    = types[k];
                const size_t     w    = rcclx_type_size(t);
                const double     most = t == RCCLX_F16 ? 65504 : t == RCCLX_BF16 ? 0x1.fep127 : FLT_MAX;
                const double     step = round % 2 ? 0x1p-6 : 0x1p-20;

                for (int e = 0; e < 2 * BLOCK; e++) {
                    put_value(t, most * copysign(1 - step * fabs(random_unit()), random_unit()), source + (size_t)e * w);
                    x[e] = get_value(t, source + (size_t)e * w);
                }
                rcclx_codecs[c]->encode(t, source, 2 * BLOCK, wire);
                rcclx_codecs[c]->decode(t, wire, 2 * BLOCK, dest);
                for (int e = 0; e < 2 * BLOCK; e++) {
                    const double y = get_value(t, dest + (size_t)e * w);

                    good = good && isfinite(y) && fabs(y - x[e]) <= fabs(x[e]) * 0.065;
                }
            }
    tap(good, name, "");
}

/* Error of one or two quantisations: of what each of two ranks sends, and of the sum. */
static double relative_error(int c, int twice, int outliers)
{
    enum { N = 4096, ROUNDS = 20 };
    static float x[2][N], y[2][N], sum[N];
    double       wrong = 0, all = 0;

    for (int round = 0; round < ROUNDS; round++) {
        for (int r = 0; r <= twice; r++) {
            for (int i = 0; i < N; i++)
                x[r][i] = (float)(random_normal() * (outliers && random_bits() % 1000 == 0 ? 30 : 1));
            rcclx_codecs[c]->encode(RCCLX_F32, x[r], N, wire);
            rcclx_codecs[c]->decode(RCCLX_F32, wire, N, y[r]);
        }
        for (int i = 0; twice && i < N; i++)
            sum[i] = y[0][i] + y[1][i];
        if (twice) {
            rcclx_codecs[c]->encode(RCCLX_F32, sum, N, wire);
            rcclx_codecs[c]->decode(RCCLX_F32, wire, N, y[0]);
        }
        for (int i = 0; i < N; i++) {
            const double exact = (double)x[0][i] + (twice ? (double)x[1][i] : 0);

            wrong += (y[0][i] - exact) * (y[0][i] - exact);
            all += exact * exact;
        }
    }
    return sqrt(wrong / all);
}

static void test_errors(int c, double bar, double bar_outliers)
{
    for (int kind = 0; kind < 4; kind++) {
        const double error = relative_error(c, kind % 2, kind / 2);
        char         name[120], detail[80];

        sprintf(name, "%s: error of %s quantisation%s", rcclx_codecs[c]->name, kind % 2 ? "two" : "one",
                kind / 2 ? "s, outliers of 30" : "s");
        sprintf(detail, "%.4f", error);
        tap(error <= (kind / 2 ? bar_outliers : bar), name, detail);
    }
}

/* A caller that rounds upward, or flushes subnormals, gets the same bytes and finds its mode as it was. */
static void test_float_mode(int c)
{
    char name[80], detail[160] = "";
    int  good = 1;

    sprintf(name, "%s: the caller's floating point mode changes nothing", rcclx_codecs[c]->name);
    for EACH (i, isa_names)
        for (int pattern = 0; rcclx_isa_use(isa_names[i]) == 0 && pattern < PATTERNS; pattern++) {
            fill(RCCLX_F32, pattern, source, 777);
            run_expect(c, RCCLX_F32, value, 777, want);
            fesetround(FE_UPWARD);
#if defined(__x86_64__)
            __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#endif
            good = good && check_encode(c, RCCLX_F32, source, 777) && fegetround() == FE_UPWARD;
#if defined(__x86_64__)
            good = good && (__builtin_ia32_stmxcsr() & 0x8040) == 0x8040;
            __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() & ~0x8040u);
#endif
            fesetround(FE_TONEAREST);
        }
    tap(good, name, detail);
}

/* The block that docs/wire-format.md shows. */
static void test_example(void)
{
    static const float   x[5]    = {1.0f, -0.5f, 0.25f, -0.0f, 0.003f};
    static const uint8_t int8[8] = {0x7d, 0xc1, 0x1f, 0x00, 0x00, 0x03, 0x3c};
    static const uint8_t fp8[8]  = {0x7d, 0xf5, 0x6d, 0x80, 0x3a, 0x1e, 0x3b};
    char                 detail[160] = "";
    int                  good = rcclx_codec_bytes(5) == 144;

    for EACH_CODEC (c) {
        const uint8_t *const bytes = c == RCCLX_CODEC_INT8 ? int8 : fp8;

        rcclx_codecs[c]->encode(RCCLX_F32, x, 5, wire);
        for (int i = 0; i < 7; i++)
            sprintf(detail + strlen(detail), " %02x", wire[i < 5 ? i : 128 + i - 5]);
        good = good && memcmp(wire, bytes, 5) == 0 && memcmp(wire + 128, bytes + 5, 2) == 0;
    }
    tap(good, "the example of docs/wire-format.md", detail);
}

static void test_names(void)
{
    int good = rcclx_codec_find("fp8") == RCCLX_CODEC_FP8 && rcclx_codec_find("INT8") == RCCLX_CODEC_INT8;

    good = good && rcclx_codec_find("off") == 0 && rcclx_codec_find("None") == 0 && rcclx_codec_find("0") == 0;
    good = good && rcclx_codec_find("") == 0 && rcclx_codec_find("int4") == -1 && rcclx_codec_find("fp") == -1;
    for (size_t nbytes = 0; nbytes < 10000; nbytes += 7) {
        const size_t n = rcclx_codec_fits(nbytes);

        good = good && n % 512 == 0 && (n == 0 || rcclx_codec_bytes(n) <= nbytes);
    }
    tap(good, "names and sizes", "");
}

/* ---- steps ---- */

enum { SOURCES = 64, DESTS = 65, STEP = 2100 };

static struct {
    rcclx_codec_args args;
    const void      *src[SOURCES];
    void            *dst[DESTS];
    bool             src_coded[SOURCES], dst_coded[DESTS];
    _Alignas(16) unsigned char from[SOURCES][STEP * 4 + 64], to[DESTS][STEP * 4 + 64];
} step;

static void step_draw(int c, rcclx_type t, int nsrc, int ndst, size_t count, int pattern)
{
    static double x[STEP];
    const uint64_t dice = random_bits();

    step.args = (rcclx_codec_args){(rcclx_codec_id)c, t, nsrc, ndst, step.src, step.dst, step.src_coded, step.dst_coded, count,
                                   (int[]){0, 1, 3, 4, 7, 0, 0, 0}[dice % 8]};
    for (int s = 0; s < nsrc; s++) {
        step.src_coded[s] = random_bits() >> 20 & dice >> 3 & 1;
        step.src[s]       = step.from[s] + (step.src_coded[s] ? 0 : dice >> 8 & 3) * rcclx_type_size(t);
        for (size_t i = 0; i < count; i++)
            x[i] = value32(t, round32(t, (float)random_value(t, pattern, i)));
        if (step.src_coded[s])
            run_expect(c, t, x, count, step.from[s]);
        for (size_t i = 0; !step.src_coded[s] && i < count; i++)
            put_value(t, x[i], (unsigned char *)(uintptr_t)step.src[s] + i * rcclx_type_size(t));
    }
    for (int d = 0; d < ndst; d++) {
        step.dst_coded[d] = random_bits() >> 20 & dice >> 4 & 1;
        step.dst[d]       = step.to[d] + (step.dst_coded[d] ? 0 : dice >> 10 & 3) * rcclx_type_size(t);
        memset(step.to[d], 0xa5, sizeof step.to[d]);
    }
    if (dice >> 12 & 1 && !step.src_coded[nsrc / 2] && !step.dst_coded[0])
        step.dst[0] = (void *)(uintptr_t)step.src[nsrc / 2]; /* in place */
}

/* The sum in f32, or the bits of the only source. */
static void step_expect(double *sum, uint64_t *bits)
{
    const rcclx_codec_args *a = &step.args;
    const size_t            w = rcclx_type_size(a->type);
    int                     coded = 0;

    for (size_t i = 0; i < a->count; i++) {
        volatile float acc = 0;

        for (int s = 0; s < a->nsrc; s++) {
            const uint8_t *p = a->src[s];
            const double   x = a->src_coded[s] ? code_expect(a->codec, a->type, p[i], scale_get(p, a->count, i))
                                               : get_value(a->type, p + i * w);

            acc = s == 0 ? (float)x : acc + (float)x;
        }
        if (a->divisor > 0)
            acc = acc / (float)a->divisor;
        sum[i]  = acc;
        bits[i] = a->nsrc == 1 && a->divisor <= 1 && !a->src_coded[0] ? bits_get((const uint8_t *)a->src[0] + i * w, w)
                                                                      : round32(a->type, acc);
    }
    for (int d = 0; d < a->ndst; d++)
        coded |= a->dst_coded[d];
    if (coded && a->nsrc == 1 && a->src_coded[0] && a->divisor <= 1)
        memcpy(want, a->src[0], rcclx_codec_bytes(a->count));
    else if (coded)
        run_expect(a->codec, a->type, sum, a->count, want);
    for (size_t i = 0; coded && i < a->count; i++)
        bits[i] = round32(a->type, (float)code_expect(a->codec, a->type, want[i], scale_get(want, a->count, i)));
}

static int step_holds(const uint64_t *bits)
{
    const rcclx_codec_args *a = &step.args;
    const size_t            w = rcclx_type_size(a->type);

    for (int d = 0; d < a->ndst; d++) {
        const uint8_t *p   = a->dst[d];
        const size_t   end = a->dst_coded[d] ? rcclx_codec_bytes(a->count) : a->count * w;

        if (a->dst_coded[d] && !same_wire(p, want, a->count))
            return 0;
        for (size_t i = 0; !a->dst_coded[d] && i < a->count; i++)
            if (bits_get(p + i * w, w) != bits[i])
                return 0;
        for (size_t g = end; p >= step.to[0] && g < end + 16; g++)
            if (p[g] != 0xa5)
                return 0;
    }
    return 1;
}

static void test_move(int c, rcclx_type t)
{
    static const int    nsrcs[] = {1, 1, 2, 2, 3, 8, SOURCES}, ndsts[] = {1, 2, 3, DESTS};
    static const size_t counts[] = {0, 1, 31, 33, 100, 1024, 1025, STEP};
    static double       sum[STEP];
    static uint64_t     bits[STEP];
    char                name[80], detail[160] = "";
    int                 good = 1;

    sprintf(name, "%s of %s: steps against a plain loop", rcclx_codecs[c]->name, rcclx_type_name(t));
    for (int round = 0; round < 1500; round++) {
        const int    nsrc = nsrcs[random_bits() % 64 ? random_bits() % 6 : 6];
        const int    ndst = ndsts[random_bits() % 64 ? random_bits() % 3 : 3];
        const char  *isa  = isa_names[random_bits() % ISA_NAMES];
        const size_t n    = counts[random_bits() % 8];

        if (rcclx_isa_use(isa) != 0)
            continue;
        step_draw(c, t, nsrc, ndst, n, (int)(random_bits() % PATTERNS));
        step_expect(sum, bits);
        rcclx_codec_move(&step.args);
        if (good && !step_holds(bits)) {
            sprintf(detail, "%s, round %d: %d sources (first coded: %d), %d destinations (%d), count %zu, divisor %d", isa, round,
                    nsrc, step.src_coded[0], ndst, step.dst_coded[0], n, step.args.divisor);
            good = 0;
        }
    }
    tap(good, name, detail);
}

int main(void)
{
    reference_init();
    test_names();
    test_example();
    for EACH_CODEC (c) {
        test_codes(c);
        test_special(c);
        test_large(c);
        test_float_mode(c);
        for EACH (t, types)
            test_bytes(c, types[t]);
        for EACH (t, types)
            test_move(c, types[t]);
    }
    test_errors(RCCLX_CODEC_FP8, 0.040, 0.040);
    test_errors(RCCLX_CODEC_INT8, 0.010, 0.016);
    return tap_done();
}
