/* Inputs and expected results, a block of 1,024 elements at a time.
 *
 *   (seed, rank, block) -> 32-bit start -> hash(start + j * odd)   j = 0..1023
 *
 * The inner loops have no dependence between elements, so the compiler can
 * vectorise them. A reduction is computed on whole numbers ("codes") that stand
 * for the inputs, in int32 for the floating-point types and in uint64 for the
 * integers, and only its end is turned into the type's bits. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif
#include "perf_data.h"

#include "nccl.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

/* Compiled twice, and the better one taken when the program starts: the hash
 * is made of 32-bit products, which the oldest x86-64 cannot do four at a time. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) &&              \
    !defined(__SANITIZE_ADDRESS__)
#define TWICE __attribute__((target_clones("avx2", "default"), flatten))
#else
#define TWICE
#endif

enum { BLOCK = PERF_BLOCK, COMMON = -1, PROD_FEW = 6 };

static const struct {
    const char *name;
    uint8_t     nbytes;
    int8_t      sign;   /* integers: 1 signed, 0 unsigned; -1: floating point */
    int32_t     budget; /* floating point: every whole number up to it is exact */
} types[ncclNumTypes] = {
    [ncclInt8]       = {"int8", 1, 1, 0},          [ncclUint8]      = {"uint8", 1, 0, 0},
    [ncclInt32]      = {"int32", 4, 1, 0},         [ncclUint32]     = {"uint32", 4, 0, 0},
    [ncclInt64]      = {"int64", 8, 1, 0},         [ncclUint64]     = {"uint64", 8, 0, 0},
    [ncclFloat16]    = {"half", 2, -1, 2048},      [ncclFloat32]    = {"float", 4, -1, 1 << 24},
    [ncclFloat64]    = {"double", 8, -1, 1 << 30}, [ncclBfloat16]   = {"bfloat16", 2, -1, 256},
    [ncclFloat8e4m3] = {"f8e4m3", 1, -1, 16},      [ncclFloat8e5m2] = {"f8e5m2", 1, -1, 8},
};

static const char *const redops[] = {"sum", "prod", "max", "min", "avg", "mulsum", "none"};

size_t perf_type_size(int type)
{
    return types[type].nbytes;
}

const char *perf_type_name(int type)
{
    return types[type].name;
}

const char *perf_redop_name(int redop)
{
    return redops[redop];
}

int perf_type_find(const char *name)
{
    static const struct {
        const char *name;
        int         type;
    } also[] = {{"float16", ncclFloat16}, {"fp16", ncclFloat16}, {"f16", ncclFloat16},
                {"float32", ncclFloat32}, {"fp32", ncclFloat32}, {"f32", ncclFloat32},
                {"float64", ncclFloat64}, {"fp64", ncclFloat64}, {"f64", ncclFloat64},
                {"bf16", ncclBfloat16},   {"char", ncclInt8},    {"int", ncclInt32},
                {"fp8_e4m3", ncclFloat8e4m3}, {"fp8_e5m2", ncclFloat8e5m2}};

    for (int t = 0; t < ncclNumTypes; t++)
        if (!strcasecmp(name, types[t].name))
            return t;
    for (size_t i = 0; i < sizeof(also) / sizeof(also[0]); i++)
        if (!strcasecmp(name, also[i].name))
            return also[i].type;
    return -1;
}

int perf_redop_find(const char *name)
{
    for (int i = 0; i < PERF_REDOPS; i++)
        if (!strcasecmp(name, redops[i]))
            return i;
    return !strcasecmp(name, "premul") ? PERF_PREMUL : -1;
}

static bool is_float(const perf_rule *r)
{
    return types[r->type].sign < 0;
}

void perf_rule_init(perf_rule *r, int type, int redop, int nranks, int codec)
{
    const int32_t budget = types[type].budget;

    memset(r, 0, sizeof(*r));
    r->type   = type;
    r->redop  = redop;
    r->nranks = nranks;
    r->nbytes = types[type].nbytes;
    r->codec  = codec;
    if (!is_float(r) || (redop == PERF_MOVE && !codec))
        return;
    const int32_t share = redop == PERF_PREMUL ? budget / 2 : budget;

    r->budget = budget;
    r->few    = redop == PERF_PROD ? PROD_FEW : share;
    r->limit  = redop == PERF_MAX || redop == PERF_MIN ? budget : share / nranks > 0 ? share / nranks : 1;
    if (r->nbytes > 2)
        return;
    for (int32_t i = 0; redop != PERF_PROD && i <= 2 * budget; i++) {
        const float x = (float)(i - budget);

        r->in[i]  = perf_float_bits(type, (double)x);
        r->out[i] = redop == PERF_AVG ? perf_float_bits(type, (double)(x / (float)nranks)) : r->in[i];
    }
    for (int32_t i = 0; redop == PERF_PROD && i < 4 * PROD_FEW + 2; i++)
        r->in[i] = r->out[i] = perf_float_bits(type, ldexp(i & 1 ? -1 : 1, i / 2 - PROD_FEW));
}

/* --- random numbers -------------------------------------------------------- */

static inline uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x45d9f3bu;
    x ^= x >> 15;
    x *= 0x2c1b3c6du;
    return x ^ x >> 13;
}

static uint32_t start_of(uint32_t seed, int rank, uint64_t block)
{
    uint64_t x = (uint64_t)seed << 32 ^ (uint64_t)(rank + 2) * 0x9e3779b97f4a7c15u ^ block * 0xd1342543de82ef95u;

    x ^= x >> 32;
    x *= 0xbf58476d1ce4e5b9u;
    return (uint32_t)(x ^ x >> 29);
}

static void random32(const perf_rule *r, int rank, size_t index, uint32_t *x, int n)
{
    const uint32_t start = start_of(r->seed, rank, index / BLOCK) + (uint32_t)(index % BLOCK) * 0x9e3779b1u;

    for (int j = 0; j < n; j++)
        x[j] = mix(start + (uint32_t)j * 0x9e3779b1u);
}

/* --- floating point: codes ------------------------------------------------- */

/* Does rank give this element more than a neutral value? */
static inline int32_t takes_part(const perf_rule *r, int rank, size_t index)
{
    return (int32_t)((index + (size_t)rank) % (size_t)r->nranks) < r->few;
}

/* A product is a sign and an exponent: the code exponent * 65536 + sign adds up
 * to that of the product, since signs of fewer than 65,536 ranks do not carry. */
static void code_of(const perf_rule *r, int rank, size_t index, int32_t *x, int n)
{
    const uint64_t range = 2 * (uint64_t)r->limit + 1;
    uint32_t       h[BLOCK];

    random32(r, rank, index, h, n);
    if (r->redop == PERF_PROD) {
        for (int j = 0; j < n; j++)
            x[j] = (int32_t)((h[j] >> 8) * 3u >> 24) * 65536 - 65536 + (int32_t)(h[j] & 1);
        for (int j = 0; r->few < r->nranks && j < n; j++)
            x[j] = takes_part(r, rank, index + (size_t)j) ? x[j] : x[j] & 1;
        return;
    }
    for (int j = 0; j < n; j++)
        x[j] = (int32_t)(h[j] * range >> 32) - r->limit;
    if (r->few < r->nranks && r->redop != PERF_MAX && r->redop != PERF_MIN)
        for (int j = 0; j < n; j++)
            x[j] = takes_part(r, rank, index + (size_t)j) ? x[j] : 0;
}

static void combine_codes(const perf_rule *r, int32_t *acc, const int32_t *x, int32_t scale, int n)
{
    if (r->redop == PERF_MAX)
        for (int j = 0; j < n; j++)
            acc[j] = acc[j] > x[j] ? acc[j] : x[j];
    else if (r->redop == PERF_MIN)
        for (int j = 0; j < n; j++)
            acc[j] = acc[j] < x[j] ? acc[j] : x[j];
    else
        for (int j = 0; j < n; j++)
            acc[j] += x[j] * scale;
}

/* Never more than PROD_FEW binades away from 1. */
static double product_of(int32_t code)
{
    const int32_t units = 1 << ((code >> 16) + PROD_FEW);

    return (double)(code & 1 ? -units : units) / (1 << PROD_FEW);
}

/* Codes as the type's bits; result: an average is divided. */
static void encode(const perf_rule *r, const int32_t *x, bool result, void *to, int n)
{
    const uint16_t *lut     = result ? r->out : r->in;
    const int32_t   divisor = result && r->redop == PERF_AVG ? r->nranks : 1;
    const bool      prod    = r->redop == PERF_PROD;
    uint8_t        *u8 = to;
    uint16_t       *u16 = to;
    float          *f32 = to;
    double         *f64 = to;
    int32_t         at[BLOCK];

    for (int j = 0; j < n; j++)
        at[j] = prod ? ((x[j] >> 16) + PROD_FEW) * 2 + (x[j] & 1) : x[j] + r->budget;
    if (r->nbytes == 1)
        for (int j = 0; j < n; j++)
            u8[j] = (uint8_t)lut[at[j]];
    else if (r->nbytes == 2)
        for (int j = 0; j < n; j++)
            u16[j] = lut[at[j]];
    else if (prod)
        for (int j = 0; j < n; j++) {
            if (r->nbytes == 4)
                f32[j] = (float)product_of(x[j]);
            else
                f64[j] = product_of(x[j]);
        }
    else if (r->nbytes == 4)
        for (int j = 0; j < n; j++)
            f32[j] = (float)x[j] / (float)divisor;
    else
        for (int j = 0; j < n; j++)
            f64[j] = (double)x[j] / (double)divisor;
}

/* --- integers, and data that is only moved --------------------------------- */

static void random64(const perf_rule *r, int rank, size_t index, uint64_t *x, int n)
{
    uint32_t low[BLOCK], high[BLOCK];

    random32(r, rank, index, low, n);
    if (r->nbytes < 8)
        memset(high, 0, sizeof(high));
    else
        random32(r, rank + (1 << 20), index, high, n);
    for (int j = 0; j < n; j++)
        x[j] = (uint64_t)high[j] << 32 | low[j];
}

/* An average must be whole: all ranks give the same number, and ranks 2k and
 * 2k + 1 move it by the same amount up and down. No sum leaves the type. */
static void average_word(const perf_rule *r, int rank, size_t index, uint64_t *x, int n)
{
    const int      bits  = (int)r->nbytes * 8 - types[r->type].sign;
    const uint64_t most  = (~0ull >> (64 - bits)) / (uint64_t)r->nranks;
    const uint64_t total = most > 1u << 30 ? 1u << 30 : most;
    const bool     last  = rank == r->nranks - 1 && rank % 2 == 0;
    uint32_t       h[BLOCK], k[BLOCK];

    random32(r, COMMON, index, h, n);
    random32(r, rank / 2 + (1 << 20), index, k, n);
    for (int j = 0; j < n; j++) {
        const uint64_t base = h[j] * (total - total / 2 + 1) >> 32;
        const uint64_t room = base < total - base ? base : total - base;
        const uint64_t move = last ? 0 : k[j] * (room + 1) >> 32;
        const uint64_t v    = rank == COMMON ? base : rank % 2 ? base - move : base + move;

        x[j] = types[r->type].sign && (h[j] & 1) ? 0 - v : v;
    }
}

static void word_of(const perf_rule *r, int rank, size_t index, uint64_t *x, int n)
{
    if (r->redop == PERF_AVG && !is_float(r))
        average_word(r, rank, index, x, n);
    else
        random64(r, rank, index, x, n);
}

/* The value of a word in the type, so that it can be compared. */
static int64_t extend(const perf_rule *r, uint64_t x)
{
    const int unused = 64 - 8 * (int)r->nbytes;

    return types[r->type].sign ? (int64_t)(x << unused) >> unused : (int64_t)(x << unused >> unused);
}

static bool less(const perf_rule *r, uint64_t a, uint64_t b)
{
    return types[r->type].sign ? extend(r, a) < extend(r, b)
                               : (uint64_t)extend(r, a) < (uint64_t)extend(r, b);
}

static void combine_words(const perf_rule *r, uint64_t *acc, const uint64_t *x, uint64_t scale, int n)
{
    switch (r->redop) {
    case PERF_PROD:
        for (int j = 0; j < n; j++)
            acc[j] *= x[j];
        break;
    case PERF_MAX:
        for (int j = 0; j < n; j++)
            acc[j] = less(r, acc[j], x[j]) ? x[j] : acc[j];
        break;
    case PERF_MIN:
        for (int j = 0; j < n; j++)
            acc[j] = less(r, x[j], acc[j]) ? x[j] : acc[j];
        break;
    default:
        for (int j = 0; j < n; j++)
            acc[j] += x[j] * scale;
    }
}

static void store_words(const perf_rule *r, const uint64_t *x, void *to, int n)
{
    uint8_t  *u8  = to;
    uint16_t *u16 = to;
    uint32_t *u32 = to;

    if (r->nbytes == 8)
        memcpy(to, x, (size_t)n * 8);
    for (int j = 0; r->nbytes == 1 && j < n; j++)
        u8[j] = (uint8_t)x[j];
    for (int j = 0; r->nbytes == 2 && j < n; j++)
        u16[j] = (uint16_t)x[j];
    for (int j = 0; r->nbytes == 4 && j < n; j++)
        u32[j] = (uint32_t)x[j];
}

/* --- blocks ----------------------------------------------------------------- */

static uint64_t scale_of(const perf_rule *r, int rank)
{
    if (r->redop != PERF_PREMUL)
        return 1;
    return is_float(r) ? 1u + (unsigned)rank % 2 : 2u + (unsigned)rank % 3;
}

uint64_t perf_scalar(const perf_rule *r, int rank)
{
    const uint64_t whole = scale_of(r, rank);
    const float    f32   = (float)whole;
    const double   f64   = (double)whole;
    uint64_t       bits  = 0;

    if (!is_float(r))
        bits = whole;
    else if (r->nbytes <= 2)
        bits = perf_float_bits(r->type, f64);
    else
        memcpy(&bits, r->nbytes == 4 ? (const void *)&f32 : (const void *)&f64, r->nbytes);
    return bits;
}

TWICE static void make_input(const perf_rule *r, int rank, size_t index, void *to, int n)
{
    int32_t  code[BLOCK];
    uint64_t word[BLOCK];

    if (r->budget) {
        code_of(r, rank, index, code, n);
        encode(r, code, false, to, n);
    } else if (r->nbytes == 4 && r->redop != PERF_AVG) {
        random32(r, rank, index, to, n); /* the same bits, the short way */
    } else {
        word_of(r, rank, index, word, n);
        store_words(r, word, to, n);
    }
}

TWICE static void make_codes(const perf_rule *r, size_t index, void *to, int n)
{
    int32_t acc[BLOCK] = {0}, x[BLOCK];

    for (int rank = 0; rank < r->nranks; rank++) {
        code_of(r, rank, index, x, n);
        if (rank == 0 && (r->redop == PERF_MAX || r->redop == PERF_MIN))
            memcpy(acc, x, sizeof(acc));
        combine_codes(r, acc, x, (int32_t)scale_of(r, rank), n);
    }
    encode(r, acc, true, to, n);
}

TWICE static void make_words(const perf_rule *r, size_t index, void *to, int n)
{
    uint64_t acc[BLOCK], x[BLOCK];

    if (r->redop == PERF_AVG) {
        average_word(r, COMMON, index, acc, n);
        store_words(r, acc, to, n);
        return;
    }
    word_of(r, 0, index, acc, n);
    for (int j = 0; r->redop == PERF_PREMUL && j < n; j++)
        acc[j] *= scale_of(r, 0);
    for (int rank = 1; rank < r->nranks; rank++) {
        word_of(r, rank, index, x, n);
        combine_words(r, acc, x, scale_of(r, rank), n);
    }
    store_words(r, acc, to, n);
}

void perf_exact(const perf_rule *r, int rank, size_t index, double *want, double *parts, int n)
{
    const int first = rank < 0 ? 0 : rank, last = rank < 0 ? r->nranks - 1 : rank;
    const int divisor = rank < 0 && r->redop == PERF_AVG ? r->nranks : 1;
    int32_t   x[BLOCK], sum[BLOCK] = {0}, size[BLOCK] = {0};

    for (int k = first; k <= last; k++) {
        code_of(r, k, index, x, n);
        for (int j = 0; j < n; j++) {
            sum[j] += x[j];
            size[j] += x[j] < 0 ? -x[j] : x[j];
        }
    }
    for (int j = 0; j < n; j++) {
        want[j]  = (double)sum[j] / divisor;
        parts[j] = (double)size[j] / divisor;
    }
}

static int part(size_t index, size_t count)
{
    const size_t left = BLOCK - index % BLOCK;

    return (int)(count < left ? count : left);
}

void perf_fill(const perf_rule *r, int rank, size_t index, void *to, size_t count)
{
    char *p = to;

    while (count) {
        const int n = part(index, count);

        make_input(r, rank, index, p, n);
        index += (size_t)n;
        count -= (size_t)n;
        p += (size_t)n * r->nbytes;
    }
}

/* --- checking ---------------------------------------------------------------- */

/* Roundings between two numbers of a sign-and-magnitude type. */
static uint64_t apart(const perf_rule *r, uint64_t a, uint64_t b)
{
    const uint64_t sign = 1ull << (8 * r->nbytes - 1);
    const int64_t  x    = a & sign ? -(int64_t)(a & ~sign) : (int64_t)a;
    const int64_t  y    = b & sign ? -(int64_t)(b & ~sign) : (int64_t)b;

    return x > y ? (uint64_t)(x - y) : (uint64_t)(y - x);
}

static size_t count_wrong(const perf_rule *r, const char *want, const char *got, int n)
{
    const bool     inexact = is_float(r) && r->redop == PERF_AVG && (r->nranks & (r->nranks - 1));
    const uint64_t allowed = !inexact ? 0 : r->nbytes > 2 ? 2 : 1;
    size_t         wrong   = 0;

    if (!memcmp(want, got, (size_t)n * r->nbytes))
        return 0;
    for (int j = 0; j < n; j++) {
        uint64_t a = 0, b = 0;

        memcpy(&a, want + (size_t)j * r->nbytes, r->nbytes);
        memcpy(&b, got + (size_t)j * r->nbytes, r->nbytes);
        wrong += a != b && !(inexact && apart(r, a, b) <= allowed);
    }
    return wrong;
}

size_t perf_check_moved(const perf_rule *r, int rank, size_t index, const void *got, size_t count)
{
    const char *p     = got;
    size_t      wrong = 0;
    uint64_t    want[BLOCK];

    while (count) {
        const int n = part(index, count);

        make_input(r, rank, index, want, n);
        wrong += count_wrong(r, (const char *)want, p, n);
        index += (size_t)n;
        count -= (size_t)n;
        p += (size_t)n * r->nbytes;
    }
    return wrong;
}

size_t perf_check_reduced(const perf_rule *r, size_t index, const void *got, size_t count)
{
    const char *p     = got;
    size_t      wrong = 0;
    uint64_t    want[BLOCK];

    if (r->codec)
        return perf_check_near(r, -1, index, got, count);
    while (count) {
        const int n = part(index, count);

        if (is_float(r))
            make_codes(r, index, want, n);
        else
            make_words(r, index, want, n);
        wrong += count_wrong(r, (const char *)want, p, n);
        index += (size_t)n;
        count -= (size_t)n;
        p += (size_t)n * r->nbytes;
    }
    return wrong;
}
