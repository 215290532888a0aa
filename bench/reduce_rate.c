#include "base/clock.h"
#include "device/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How fast the reduction kernels are, as a fraction of memcpy.
 *
 *   reduce_rate [isa]
 *
 * A row is a type, an operator and a shape; a column a buffer size. Each cell is
 * the bytes moved a second (read and written), over those that memcpy of a
 * buffer of that size moves; the first row has memcpy in GB/s. All rows are
 * measured in turns and the median of the turns is taken, since a shared machine
 * drifts. A row with many buffers leaves each cache level sooner than memcpy. */
enum { SOURCES = 8, DESTS = 2, TURNS = 9, SIZES = 4 };

static const size_t sizes[SIZES] = {16 << 10, 256 << 10, 4 << 20, 64 << 20};

typedef struct {
    const char *name;
    rcclx_type  type;
    rcclx_redop op;
    int         nsrc, ndst, streaming;
} row;

static const row rows[] = {
    {"memcpy", RCCLX_U8, RCCLX_COPY, 0, 1, 0},
    {"rcclx_copy", RCCLX_U8, RCCLX_COPY, 1, 1, 0},
    {"rcclx_copy, streaming", RCCLX_U8, RCCLX_COPY, 1, 1, 1},
    {"copy, 2 destinations", RCCLX_U8, RCCLX_COPY, 1, 2, 0},
    {"f32 sum 2 -> 1", RCCLX_F32, RCCLX_SUM, 2, 1, 0},
    {"f32 sum 2 -> 1, streaming", RCCLX_F32, RCCLX_SUM, 2, 1, 1},
    {"f32 sum 2 -> 2", RCCLX_F32, RCCLX_SUM, 2, 2, 0},
    {"f32 sum 2 -> 2, streaming", RCCLX_F32, RCCLX_SUM, 2, 2, 1},
    {"f32 sum 4 -> 1", RCCLX_F32, RCCLX_SUM, 4, 1, 0},
    {"f32 sum 8 -> 1", RCCLX_F32, RCCLX_SUM, 8, 1, 0},
    {"f32 avg 2 -> 1", RCCLX_F32, RCCLX_AVG, 2, 1, 0},
    {"f32 max 2 -> 1", RCCLX_F32, RCCLX_MAX, 2, 1, 0},
    {"f64 sum 2 -> 1", RCCLX_F64, RCCLX_SUM, 2, 1, 0},
    {"bf16 sum 2 -> 1", RCCLX_BF16, RCCLX_SUM, 2, 1, 0},
    {"bf16 sum 8 -> 1", RCCLX_BF16, RCCLX_SUM, 8, 1, 0},
    {"bf16 max 2 -> 1", RCCLX_BF16, RCCLX_MAX, 2, 1, 0},
    {"f16 sum 2 -> 1", RCCLX_F16, RCCLX_SUM, 2, 1, 0},
    {"f16 avg 2 -> 1", RCCLX_F16, RCCLX_AVG, 2, 1, 0},
    {"e4m3 sum 2 -> 1", RCCLX_F8E4M3, RCCLX_SUM, 2, 1, 0},
    {"e5m2 sum 2 -> 1", RCCLX_F8E5M2, RCCLX_SUM, 2, 1, 0},
    {"int32 sum 2 -> 1", RCCLX_I32, RCCLX_SUM, 2, 1, 0},
    {"int32 avg 2 -> 1", RCCLX_I32, RCCLX_AVG, 2, 1, 0},
    {"int32 max 2 -> 1", RCCLX_I32, RCCLX_MAX, 2, 1, 0},
    {"int64 avg 2 -> 1", RCCLX_I64, RCCLX_AVG, 2, 1, 0},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static unsigned char *buffers[SOURCES + DESTS];

static void once(const row *r, size_t nbytes)
{
    const void *src[SOURCES];
    void       *dst[DESTS];

    if (r->nsrc == 0) {
        memcpy(buffers[SOURCES], buffers[0], nbytes);
        return;
    }
    for (int s = 0; s < r->nsrc; s++)
        src[s] = buffers[s];
    for (int d = 0; d < r->ndst; d++)
        dst[d] = buffers[SOURCES + d];
    rcclx_reduce(&(rcclx_reduce_args){.type = r->type, .op = r->op, .nsrc = r->nsrc, .ndst = r->ndst, .src = src, .dst = dst,
                                      .count = nbytes / rcclx_type_size(r->type), .divisor = 3, .streaming = r->streaming});
}

/* Bytes a nanosecond. */
static double measure(const row *r, size_t nbytes)
{
    const int parts = (r->nsrc ? r->nsrc : 1) + r->ndst;
    const int loops = (int)((48u << 20) / (nbytes * (size_t)parts)) + 1;
    uint64_t  start;

    once(r, nbytes);
    start = rcclx_clock_ns();
    for (int i = 0; i < loops; i++)
        once(r, nbytes);
    return (double)nbytes * parts * loops / (double)(rcclx_clock_ns() - start);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static double rate[ROWS][SIZES][TURNS];

    if (argc > 1 && rcclx_isa_use(argv[1]) != 0) {
        fprintf(stderr, "this machine has no %s\n", argv[1]);
        return 1;
    }
    for (int b = 0; b < SOURCES + DESTS; b++) {
        buffers[b] = aligned_alloc(4096, sizes[SIZES - 1]);
        if (!buffers[b])
            return 1;
        memset(buffers[b], 0x38 + b, sizes[SIZES - 1]);
    }
    for (int t = 0; t < TURNS; t++)
        for (int s = 0; s < SIZES; s++)
            for (int r = 0; r < ROWS; r++)
                rate[r][s][t] = measure(&rows[r], sizes[s]);
    printf("%-28s %9s %9s %9s %9s\n", rcclx_isa_name(), "16 KiB", "256 KiB", "4 MiB", "64 MiB");
    for (int r = 0; r < ROWS; r++) {
        printf("%-28s", rows[r].name);
        for (int s = 0; s < SIZES; s++) {
            qsort(rate[r][s], TURNS, sizeof(double), by_value);
            printf(r ? " %9.2f" : " %4.0f GB/s", rate[r][s][TURNS / 2] / (r ? rate[0][s][TURNS / 2] : 1));
        }
        printf("\n");
    }
    for (int b = 0; b < SOURCES + DESTS; b++)
        free(buffers[b]);
    return 0;
}
