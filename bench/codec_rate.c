#include "base/clock.h"
#include "codec/codec.h"
#include "device/reduce.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How fast the codecs are on one core: GB of elements (not of codes) a second.
 *
 *   codec_rate [isa]
 *
 * A row is a codec and what it does, a column a type and a buffer size: 256 KiB and its run lie in
 * the second cache, 64 MiB in memory. "add" is a step of a ring: a run and plain elements are added
 * and encoded, and also stored. The first rows are a plain copy and a plain sum. All rows are
 * measured in turns and the median of the turns is taken. */
enum { TURNS = 9, SIZES = 2, TYPES = 3, WHATS = 3, ROWS = 2 + WHATS * (RCCLX_CODEC_COUNT - 1) };

static const size_t     sizes[SIZES] = {256 << 10, 64 << 20};
static const rcclx_type types[TYPES] = {RCCLX_F32, RCCLX_BF16, RCCLX_F16};

static unsigned char *plain, *other, *coded, *more;


static void once(int r, rcclx_type t, size_t nbytes)
{
    const size_t             count = nbytes / rcclx_type_size(t);
    const rcclx_codec *const c     = r < 2 ? NULL : rcclx_codecs[1 + (r - 2) / WHATS];

    if (r == 0)
        memcpy(other, plain, nbytes);
    else if (r == 1)
        rcclx_reduce(&(rcclx_reduce_args){.type = t, .op = RCCLX_SUM, .nsrc = 2, .ndst = 1, .count = count,
                                          .src = (const void *[]){plain, other}, .dst = (void *[]){more}});
    else if ((r - 2) % WHATS == 0)
        c->encode(t, plain, count, coded);
    else if ((r - 2) % WHATS == 1)
        c->decode(t, coded, count, other);
    else
        rcclx_codec_move(&(rcclx_codec_args){.codec = (rcclx_codec_id)(1 + (r - 2) / WHATS), .type = t, .nsrc = 2, .ndst = 2,
                                             .src = (const void *[]){coded, plain}, .dst = (void *[]){more, other},
                                             .src_coded = (bool[]){true, false}, .dst_coded = (bool[]){true, false},
                                             .count = count});
}

/* Bytes of elements a nanosecond. */
static double measure(int r, rcclx_type t, size_t nbytes)
{
    const int loops = (int)((32u << 20) / nbytes) + 1;
    uint64_t  start;

    once(r, t, nbytes);
    start = rcclx_clock_ns();
    for (int i = 0; i < loops; i++)
        once(r, t, nbytes);
    return (double)nbytes * loops / (double)(rcclx_clock_ns() - start);
}

static void fill(rcclx_type t, size_t nbytes)
{
    uint32_t x = 1;

    for (size_t i = 0; i < nbytes / rcclx_type_size(t); i++) {
        const float    value = (float)((int32_t)(x = x * 1664525u + 1013904223u) * 0x1p-31);
        const uint32_t half  = (x >> 16 & 0x83ff) | 0x3800; /* a bf16, or an f16, of about one */

        if (t == RCCLX_F32)
            memcpy(plain + 4 * i, &value, 4);
        else
            memcpy(plain + 2 * i, &half, 2);
    }
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print_row(int r, double rate[TYPES][SIZES][TURNS])
{
    static const char *const what[WHATS] = {"encode", "decode", "add"};
    char                     name[32]    = "copy";

    if (r >= 2)
        snprintf(name, sizeof name, "%s %s", rcclx_codecs[1 + (r - 2) / WHATS]->name, what[(r - 2) % WHATS]);
    printf("%-14s", r == 1 ? "sum 2 -> 1" : name);
    for (int s = 0; s < SIZES; s++)
        for (int t = 0; t < TYPES; t++) {
            qsort(rate[t][s], TURNS, sizeof(double), by_value);
            printf(" %12.1f", rate[t][s][TURNS / 2]);
        }
    printf("\n");
}

int main(int argc, char **argv)
{
    static double rate[ROWS][TYPES][SIZES][TURNS];

    if (argc > 1 && rcclx_isa_use(argv[1]) != 0) {
        fprintf(stderr, "this machine has no %s\n", argv[1]);
        return 1;
    }
    for (int b = 0; b < 4; b++) {
        unsigned char **const p = (unsigned char **[]){&plain, &other, &coded, &more}[b];

        if (!(*p = aligned_alloc(4096, sizes[SIZES - 1])))
            return 1;
        memset(*p, 0, sizes[SIZES - 1]);
    }
    for (int t = 0; t < TYPES; t++) {
        fill(types[t], sizes[SIZES - 1]);
        for (int turn = 0; turn < TURNS; turn++)
            for (int s = 0; s < SIZES; s++)
                for (int r = 0; r < ROWS; r++)
                    rate[r][t][s][turn] = measure(r, types[t], sizes[s]);
    }
    printf("%-14s", rcclx_isa_name());
    for (int s = 0; s < SIZES; s++)
        for (int t = 0; t < TYPES; t++)
            printf(" %4s %7s", (const char *[]){"f32", "bf16", "f16"}[t], s == 0 ? "256 KiB" : "64 MiB");
    printf("\n");
    for (int r = 0; r < ROWS; r++)
        print_row(r, rate[r]);
    return 0;
}
