#ifndef RCCLX_BENCH_CODEC_ERROR_H
#define RCCLX_BENCH_CODEC_ERROR_H

/* An all-reduce of floats, sum, as n ranks make it in some form of data on the wire, in one process;
 * and how far from the exact sum it is. bench/codec_error.c prints that, tests/unit/test_codec_error.c
 * holds it against bounds.
 *
 *   error_case c;
 *   if (!error_open(&c, 8, 1 << 16))              8 ranks, 65536 elements each
 *       return 1;
 *   error_fill(&c, ERROR_NORMAL, 1.0);            or c.x, element i of rank r at r * count + i
 *   error_sum(&c, ERROR_INT8);                    c.y is what every rank's output holds
 *   error_seen e = error_measure(&c);
 *   error_close(&c);
 *
 * In fp8 and int8 this is the plan "staged", by the library's own functions. The elements are cut into
 * a part for each rank, its owner's to add:
 *
 *   others' part --encode--> run --+
 *   owner's part ------------------+--decode, add in f32 in rank order, encode--> run --decode--> y
 *
 * bf16 and e4m3 (a plain cast, no scales; what is beyond 448 becomes NaN) take the same way, rounded
 * where the others are encoded. In f32 nothing is. */
#include "codec/codec.h"
#include "device/convert.h"
#include "plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum { ERROR_F32, ERROR_BF16, ERROR_FP8, ERROR_INT8, ERROR_E4M3, ERROR_FORMS } error_form;
typedef enum { ERROR_NORMAL, ERROR_OUTLIERS, ERROR_STUDENT, ERROR_CHANNELS, ERROR_DATA } error_data;

enum { ERROR_RANKS = 64, ERROR_CHANNEL_COUNT = 64 };

typedef struct {
    int      n;
    size_t   count;
    float   *x, *y;     /* n * count; count */
    double  *exact;     /* the sums, in f64 */
    float   *unit;      /* the largest scale that an element met; 0: none */
    uint8_t *run[ERROR_RANKS + 1];
} error_case;

typedef struct {
    double rms;    /* relative: of the errors, by that of the exact sums; of what is no NaN */
    double worst;  /* error of an element by its unit; 0 where there are no scales */
    double cosine; /* 1 - this is what is left */
    double lost;   /* share of elements that became NaN */
} error_seen;

static inline void error_close(error_case *c)
{
    free(c->x);
    free(c->y);
    free(c->exact);
    free(c->unit);
    for (int r = 0; r <= c->n; r++)
        free(c->run[r]);
}

static inline bool error_open(error_case *c, int n, size_t count)
{
    bool good;

    *c = (error_case){.n = n, .count = count};
    c->x     = malloc((size_t)n * count * sizeof *c->x);
    c->y     = malloc(count * sizeof *c->y);
    c->exact = malloc(count * sizeof *c->exact);
    c->unit  = malloc(count * sizeof *c->unit);
    good     = c->x && c->y && c->exact && c->unit;
    for (int r = 0; r <= n; r++)
        good = (c->run[r] = aligned_alloc(64, (rcclx_codec_bytes(count) + 63) / 64 * 64)) && good;
    if (!good)
        error_close(c);
    return good;
}

/* ---- data ---- */

static inline double error_unit(uint64_t *state) /* above 0, at most 1 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53 + 0x1p-53;
}

static inline double error_normal(uint64_t *state)
{
    const double size = sqrt(-2 * log(error_unit(state)));

    return size * cos(6.283185307179586 * error_unit(state));
}

/* Channels differ by up to 256, 2^-4 to 2^4, and neighbours are far apart: 29 runs through all 64. */
static inline double error_value(error_data data, size_t i, uint64_t *state)
{
    const double z = error_normal(state);

    if (data == ERROR_OUTLIERS)
        return error_unit(state) <= 0.001 ? 30 * z : z;
    if (data == ERROR_STUDENT) {
        const double a = error_normal(state), b = error_normal(state), d = error_normal(state);
        return z / sqrt((a * a + b * b + d * d) / 3);
    }
    return data == ERROR_CHANNELS ? z * exp2((double)(i * 29 % ERROR_CHANNEL_COUNT) * 8 / (ERROR_CHANNEL_COUNT - 1) - 4) : z;
}

static inline void error_fill(error_case *c, error_data data, double amplitude)
{
    uint64_t state = 1 + (uint64_t)data;

    for (size_t i = 0; i < (size_t)c->n * c->count; i++)
        c->x[i] = (float)(amplitude * error_value(data, i % c->count, &state));
}

/* ---- sums ---- */

static inline float error_round(error_form form, float x)
{
    if (form == ERROR_BF16)
        return rcclx_bf16_to_f32(rcclx_f32_to_bf16(x));
    if (form == ERROR_E4M3)
        return fabsf(x) > 464 ? NAN : rcclx_e4m3_to_f32(rcclx_f32_to_e4m3(x)); /* 464 is still nearer to 448 than to 480 */
    return x;
}

static inline void error_sum_plain(error_case *c, error_form form, int owner, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) {
        float sum = 0;

        for (int r = 0; r < c->n; r++)
            sum += r == owner ? c->x[(size_t)r * c->count + i] : error_round(form, c->x[(size_t)r * c->count + i]);
        c->y[i] = error_round(form, sum);
    }
}

static inline float error_scale(const uint8_t *run, size_t length, size_t i)
{
    const uint8_t *const p = run + rcclx_codec_scales_at(length) + i / RCCLX_CODEC_BLOCK * 2;

    return rcclx_bf16_to_f32((uint16_t)(p[0] | (p[1] & 0x7f) << 8));
}

static inline void error_sum_coded(error_case *c, rcclx_codec_id codec, int owner, size_t begin, size_t length)
{
    const void *src[ERROR_RANKS];
    bool        coded[ERROR_RANKS];

    for (int r = 0; r < c->n; r++) {
        const float *const mine = c->x + (size_t)r * c->count + begin;

        coded[r] = r != owner;
        src[r]   = coded[r] ? (const void *)c->run[r] : mine;
        if (coded[r])
            rcclx_codec_move(&(rcclx_codec_args){.codec = codec, .type = RCCLX_F32, .nsrc = 1, .ndst = 1, .count = length,
                                                 .src = (const void *[]){mine}, .dst = (void *[]){c->run[r]},
                                                 .src_coded = (bool[]){false}, .dst_coded = (bool[]){true}});
    }
    rcclx_codec_move(&(rcclx_codec_args){.codec = codec, .type = RCCLX_F32, .nsrc = c->n, .ndst = 2, .count = length,
                                         .src = src, .dst = (void *[]){c->run[c->n], c->y + begin},
                                         .src_coded = coded, .dst_coded = (bool[]){true, false}});
    for (size_t i = 0; i < length; i++)
        for (int r = 0; r <= c->n; r++)
            if (r != owner)
                c->unit[begin + i] = fmaxf(c->unit[begin + i], error_scale(c->run[r], length, i));
}

/* y, and exact. */
static inline void error_sum(error_case *c, error_form form)
{
    size_t begin, length;

    memset(c->unit, 0, c->count * sizeof *c->unit);
    for (int owner = 0; owner < c->n; owner++) {
        rcclx_split(c->count, sizeof(float), c->n, owner, &begin, &length);
        if (form == ERROR_FP8 || form == ERROR_INT8)
            error_sum_coded(c, form == ERROR_FP8 ? RCCLX_CODEC_FP8 : RCCLX_CODEC_INT8, owner, begin, length);
        else
            error_sum_plain(c, form, owner, begin, begin + length);
    }
    for (size_t i = 0; i < c->count; i++) {
        c->exact[i] = 0;
        for (int r = 0; r < c->n; r++)
            c->exact[i] += (double)c->x[(size_t)r * c->count + i];
    }
}

static inline error_seen error_measure(const error_case *c)
{
    error_seen e     = {0};
    double     wrong = 0, own = 0, all = 0, both = 0;

    for (size_t i = 0; i < c->count; i++) {
        const double y = c->y[i], x = c->exact[i], off = fabs(y - x);

        if (isnan(y)) {
            e.lost += 1.0 / (double)c->count;
            continue;
        }
        wrong += off * off;
        own += y * y;
        all += x * x;
        both += x * y;
        if (c->unit[i] > 0)
            e.worst = fmax(e.worst, off / (double)c->unit[i]);
    }
    e.rms    = sqrt(wrong / all);
    e.cosine = both / sqrt(own * all);
    return e;
}

#endif
