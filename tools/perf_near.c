/* Results of low precision: not the same bits, but near enough. How near follows
 * from the codec (blocks of 32 elements, each with a scale) and the exact result:
 *
 *   int8   a code is off by half a scale, the block's largest value / 252.
 *   fp8    a code is off by 1/16 of its value, and by half of the smallest step,
 *          the block's largest value / 2^18.
 *
 * A result of a sum was coded twice, each contribution and the sum; data that was
 * moved, once. "Largest" is what the inputs can be at most, since blocks are the
 * library's affair. 2% are for scales, which are rounded themselves; the type's
 * own rounding comes on top. */
#include "perf_data.h"

#include "nccl.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static double value_of(const perf_rule *r, const char *at)
{
    uint16_t bits;
    float    x;

    if (r->nbytes == 4) {
        memcpy(&x, at, sizeof(x));
        return (double)x;
    }
    memcpy(&bits, at, sizeof(bits));
    return perf_float_value(r->type, bits);
}

/* want: the exact result; parts: sum of what came together in it, without signs; most: the largest that can be. */
static double allowed(const perf_rule *r, bool reduced, double want, double parts, double most)
{
    static const double last[] = {[ncclFloat16] = 0x1p-11, [ncclFloat32] = 0x1p-22, [ncclBfloat16] = 0x1p-8};
    const int           coded  = reduced ? 2 : 1;
    double              off    = coded * most / 252;

    if (r->codec == PERF_FP8)
        off = (fabs(want) + (reduced ? parts + parts / 16 : 0)) / 16 + coded * r->nranks * most * 0x1p-18;
    return 1.02 * off + fabs(want) * last[r->type];
}

size_t perf_check_near(const perf_rule *r, int rank, size_t index, const void *got, size_t count)
{
    const bool  reduced = rank < 0;
    const int   parts_n = r->few < r->nranks ? r->few : r->nranks; /* ranks that give an element more than nothing */
    const int   divisor = reduced && r->redop == PERF_AVG ? r->nranks : 1;
    const double most   = (double)r->limit * (reduced ? parts_n : 1) / divisor;
    const char *p       = got;
    size_t      wrong   = 0;
    double      want[PERF_BLOCK], parts[PERF_BLOCK];

    while (count) {
        const size_t left = PERF_BLOCK - index % PERF_BLOCK;
        const int    n    = (int)(count < left ? count : left);

        perf_exact(r, rank, index, want, parts, n);
        for (int j = 0; j < n; j++) {
            const double off = fabs(value_of(r, p + (size_t)j * r->nbytes) - want[j]);

            wrong += !(off <= allowed(r, reduced, want[j], parts[j], most)); /* NaN is wrong */
        }
        index += (size_t)n;
        count -= (size_t)n;
        p += (size_t)n * r->nbytes;
    }
    return wrong;
}
