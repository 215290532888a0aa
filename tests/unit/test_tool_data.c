/* The measuring tool's inputs and expected results, against a plain reference
 * that decodes every element to a double, and the promise they rest on: every
 * partial result, in whatever order, is a number of the type. */
#include "check.h"

#include "../../tools/perf_data.c"
#include "../../tools/perf_float.c"
#include "../../tools/perf_near.c"

#include "codec/codec.h"

enum { COUNT = 3000, MOST_RANKS = 64 };

static unsigned char inputs[MOST_RANKS][COUNT * 8], result[COUNT * 8];
static perf_rule     rule;

/* The value of a floating-point element, from the definition of its type. */
static double decode(int type, const void *at)
{
    const int mantissa = type == ncclFloat16 ? 10 : type == ncclBfloat16 ? 7 : type == ncclFloat8e4m3 ? 3 : 2;
    const int least    = type == ncclBfloat16 ? -126 : type == ncclFloat8e4m3 ? -6 : -14;
    const int width    = type == ncclFloat16 || type == ncclBfloat16 ? 16 : 8;
    uint16_t  bits     = 0;
    float     f;
    double    d;

    if (type == ncclFloat32)
        return memcpy(&f, at, 4), (double)f;
    if (type == ncclFloat64)
        return memcpy(&d, at, 8), d;
    memcpy(&bits, at, (size_t)width / 8);
    const int    field = bits >> mantissa & ((1 << (width - 1 - mantissa)) - 1);
    const int    part  = bits & ((1 << mantissa) - 1);
    const double size  = field ? ldexp((1 << mantissa) + part, field - 1 + least - mantissa)
                               : ldexp(part, least - mantissa);
    return bits >> (width - 1) ? -size : size;
}

/* x rounded to the type is x itself. */
static bool exact(int type, double x)
{
    unsigned char at[8] = {0};
    const float   f     = (float)x;
    uint16_t      bits;

    if (type == ncclFloat64)
        return true;
    if (type == ncclFloat32)
        return (double)f == x;
    bits = perf_float_bits(type, x);
    memcpy(at, &bits, 2);
    return decode(type, at) == x;
}

static void store(int type, double x, void *to)
{
    const float    f    = (float)x;
    const uint16_t bits = type == ncclFloat32 || type == ncclFloat64 ? 0 : perf_float_bits(type, x);

    if (type == ncclFloat64)
        memcpy(to, &x, 8);
    else if (type == ncclFloat32)
        memcpy(to, &f, 4);
    else
        memcpy(to, &bits, rule.nbytes);
}

static double combine(double a, double b)
{
    switch (rule.redop) {
    case PERF_PROD: return a * b;
    case PERF_MAX: return a > b ? a : b;
    case PERF_MIN: return a < b ? a : b;
    default: return a + b;
    }
}

/* Reduce element i in the rank order (k + r) mod n; false if a partial result is inexact. */
static bool reduce_float(int n, int i, int first, double *x)
{
    const size_t at = (size_t)i * rule.nbytes;
    bool         ok = true;

    for (int r = 0; r < n; r++) {
        const int    rank = (first + r) % n;
        const double v    = decode(rule.type, inputs[rank] + at) * (double)(rule.redop == PERF_PREMUL ? 1 + rank % 2 : 1);

        *x = r ? combine(*x, v) : v;
        ok &= exact(rule.type, v) && exact(rule.type, *x);
    }
    if (rule.redop == PERF_AVG)
        *x /= n;
    return ok;
}

static void fill_all(int n, size_t index)
{
    for (int r = 0; r < n; r++)
        perf_fill(&rule, r, index, inputs[r], COUNT);
}

static void check_floats(int type, int n, int redop)
{
    int inexact = 0;

    perf_rule_init(&rule, type, redop, n, PERF_EXACT);
    rule.seed = (uint32_t)n;
    fill_all(n, 500);
    for (int i = 0; i < COUNT; i++) {
        double x = 0, y = 0;

        inexact += !reduce_float(n, i, 0, &x);
        inexact += !reduce_float(n, i, n / 2, &y);
        CHECK(x == y, "element %d depends on the order", i);
        store(type, x, result + (size_t)i * rule.nbytes);
    }
    CHECK(inexact == 0, "%d partial results of %s %s, %d ranks, are inexact", inexact, perf_type_name(type),
          perf_redop_name(redop), n);
    const size_t wrong = perf_check_reduced(&rule, 500, result, COUNT);
    CHECK(wrong == 0, "%s %s, %d ranks: %zu elements judged wrong", perf_type_name(type), perf_redop_name(redop), n, wrong);
}

TEST(small_floats_round_to_nearest_even)
{
    CHECK(perf_float_bits(ncclFloat16, 1) == 0x3c00, "one");
    CHECK(perf_float_bits(ncclFloat16, 2049) == 0x6800, "a tie goes to even");
    CHECK(perf_float_bits(ncclFloat16, ldexp(1, -24)) == 1, "the least subnormal");
    CHECK(perf_float_bits(ncclBfloat16, -1) == 0xbf80, "minus one");
    CHECK(perf_float_bits(ncclFloat8e4m3, 17) == perf_float_bits(ncclFloat8e4m3, 16), "seventeen is no f8e4m3");
    CHECK(perf_float_bits(ncclFloat8e4m3, 448) == 0x7e, "the largest f8e4m3");
    CHECK(perf_float_bits(ncclFloat8e5m2, 0.25) == 0x34, "a quarter in f8e5m2");
}

TEST(every_partial_result_of_a_float_reduction_is_exact)
{
    static const int ranks[] = {1, 2, 3, 5, 8, 13, 64};

    for (int type = ncclFloat16; type < ncclNumTypes; type++)
        for (int redop = 0; redop < PERF_REDOPS; redop++)
            for (size_t k = 0; k < sizeof(ranks) / sizeof(ranks[0]); k++)
                check_floats(type, ranks[k], redop);
}

static uint64_t word(int type, const void *at)
{
    uint64_t x = 0;

    memcpy(&x, at, perf_type_size(type));
    return extend(&rule, x) < 0 && types[type].sign ? (uint64_t)extend(&rule, x) : x;
}

static uint64_t combine_word(uint64_t a, uint64_t b, bool sign)
{
    const bool below = sign ? (int64_t)a < (int64_t)b : a < b;

    switch (rule.redop) {
    case PERF_PROD: return a * b;
    case PERF_MAX: return below ? b : a;
    case PERF_MIN: return below ? a : b;
    default: return a + b;
    }
}

static void check_integers(int type, int n, int redop)
{
    const bool sign = types[type].sign == 1;
    size_t     fractions = 0;

    perf_rule_init(&rule, type, redop, n, PERF_EXACT);
    rule.seed = 7;
    fill_all(n, 1000);
    for (int i = 0; i < COUNT; i++) {
        const size_t at = (size_t)i * rule.nbytes;
        uint64_t     x  = 0;

        for (int r = 0; r < n; r++) {
            const uint64_t v = word(type, inputs[r] + at) * (redop == PERF_PREMUL ? perf_scalar(&rule, r) : 1);

            x = r ? combine_word(x, v, sign) : v;
        }
        if (redop == PERF_AVG) {
            fractions += sign ? (int64_t)x % n != 0 : x % (uint64_t)n != 0;
            x = sign ? (uint64_t)((int64_t)x / n) : x / (uint64_t)n;
        }
        memcpy(result + at, &x, rule.nbytes);
    }
    CHECK(fractions == 0, "%zu averages of %s, %d ranks, are not whole", fractions, perf_type_name(type), n);
    const size_t wrong = perf_check_reduced(&rule, 1000, result, COUNT);
    CHECK(wrong == 0, "%s %s, %d ranks: %zu elements judged wrong", perf_type_name(type), perf_redop_name(redop), n, wrong);
}

TEST(integer_reductions_are_as_expected)
{
    static const int ranks[] = {1, 2, 3, 8, 64};

    for (int type = ncclInt8; type <= ncclUint64; type++)
        for (int redop = 0; redop < PERF_REDOPS; redop++)
            for (size_t k = 0; k < sizeof(ranks) / sizeof(ranks[0]); k++)
                check_integers(type, ranks[k], redop);
}

/* Leaving any one rank out of a sum must show, in every type. */
TEST(a_lost_contribution_shows)
{
    for (int type = 0; type < ncclNumTypes; type++)
        for (int lost = 0; lost < 8; lost++) {
            size_t nonzero = 0;

            perf_rule_init(&rule, type, PERF_SUM, 8, PERF_EXACT);
            perf_fill(&rule, lost, 0, inputs[0], COUNT);
            for (size_t b = 0; b < COUNT * rule.nbytes; b++)
                nonzero += inputs[0][b] != 0;
            CHECK(nonzero > COUNT / 4, "%s: rank %d adds almost nothing", perf_type_name(type), lost);
        }
}

TEST(moved_data_is_recognised_at_any_offset)
{
    for (int type = 0; type < ncclNumTypes; type++) {
        perf_rule_init(&rule, type, PERF_MOVE, 4, PERF_EXACT);
        perf_fill(&rule, 2, 1021, inputs[0], COUNT);
        CHECK(perf_check_moved(&rule, 2, 1021, inputs[0], COUNT) == 0, "%s", perf_type_name(type));
        CHECK(perf_check_moved(&rule, 2, 1021 + 100, inputs[0] + 100 * rule.nbytes, 50) == 0, "a part of it");
        CHECK(perf_check_moved(&rule, 1, 1021, inputs[0], COUNT) > COUNT / 2, "another rank's data passes");
        CHECK(perf_check_moved(&rule, 2, 1022, inputs[0], COUNT) > COUNT / 2, "data moved by one passes");
        inputs[0][17 * rule.nbytes] ^= 1;
        CHECK(perf_check_moved(&rule, 2, 1021, inputs[0], COUNT) == 1, "one wrong bit is one wrong element");
        rule.seed++;
        CHECK(perf_check_moved(&rule, 2, 1021, inputs[0], COUNT) > COUNT / 2, "stale data passes");
    }
}

/* --- low precision: the codecs' own results are near, what is lost or of other ranks is not ------------------ */

static unsigned char wire[COUNT * 2];

static rcclx_type ours(int type)
{
    return type == ncclFloat32 ? RCCLX_F32 : type == ncclFloat16 ? RCCLX_F16 : RCCLX_BF16;
}

static void through(int codec, int type, void *data)
{
    rcclx_codecs[codec]->encode(ours(type), data, COUNT, wire);
    rcclx_codecs[codec]->decode(ours(type), wire, COUNT, data);
}

/* Each contribution coded, but for those of `lost`, which count as nothing; the sum coded. */
static void sum_coded(int codec, int type, int n, int lost)
{
    for (int r = 0; r < n; r++)
        through(codec, type, inputs[r]);
    for (int i = 0; i < COUNT; i++) {
        double x = 0;
        for (int r = 0; r < n; r++)
            x += r == lost ? 0 : decode(type, inputs[r] + (size_t)i * rule.nbytes);
        store(type, rule.redop == PERF_AVG ? x / n : x, result + (size_t)i * rule.nbytes);
    }
    through(codec, type, result);
}

static const int coded_types[] = {ncclFloat32, ncclFloat16, ncclBfloat16};

TEST(small_floats_have_their_values)
{
    for (uint32_t b = 0; b < 65536; b++)
        for (int i = 1; i < 3; i++) {
            const uint16_t bits = (uint16_t)b;
            const double   x = perf_float_value(coded_types[i], bits), y = decode(coded_types[i], &bits);
            CHECK(x == y || !isfinite(x), "%s %04x: %g, not %g", perf_type_name(coded_types[i]), b, x, y);
        }
}

static void check_coded(int codec, int type, int redop, int n)
{
    perf_rule_init(&rule, type, redop, n, codec);
    rule.seed = (uint32_t)(n + type);
    fill_all(n, 500);
    sum_coded(codec, type, n, -1);
    CHECK(perf_check_reduced(&rule, 500, result, COUNT) == 0, "%zu are said to be too far off",
          perf_check_reduced(&rule, 500, result, COUNT));
    fill_all(n, 500);
    sum_coded(codec, type, n, n / 2);
    CHECK(perf_check_reduced(&rule, 500, result, COUNT) > COUNT / 3, "a lost rank shows in %zu only",
          perf_check_reduced(&rule, 500, result, COUNT));
    memset(result, 0xff, sizeof(result)); /* NaN */
    CHECK(perf_check_reduced(&rule, 500, result, COUNT) == COUNT, "NaN passes");
}

TEST(coded_sums_are_near)
{
    static const int both[] = {PERF_SUM, PERF_AVG}, ranks[] = {2, 3, 8};

    for (int codec = PERF_FP8; codec <= PERF_INT8; codec++)
        for (int t = 0; t < 3; t++)
            for (int o = 0; o < 2; o++)
                for (int k = 0; k < 3; k++)
                    CASE("%s %s %s, %d ranks", rcclx_codecs[codec]->name, perf_type_name(coded_types[t]), perf_redop_name(both[o]),
                         ranks[k])
                        check_coded(codec, coded_types[t], both[o], ranks[k]);
}

TEST(coded_data_is_recognised_where_it_was_moved)
{
    for (int codec = PERF_FP8; codec <= PERF_INT8; codec++)
        for (int t = 0; t < 3; t++)
            CASE("%s %s", rcclx_codecs[codec]->name, perf_type_name(coded_types[t])) {
                perf_rule_init(&rule, coded_types[t], PERF_MOVE, 4, codec);
                perf_fill(&rule, 2, 1021, inputs[0], COUNT);
                CHECK(perf_check_moved(&rule, 2, 1021, inputs[0], COUNT) == 0, "input");
                through(codec, coded_types[t], inputs[0]);
                CHECK(perf_check_moved(&rule, 2, 1021, inputs[0], COUNT) > 0, "nothing was lost on the way");
                CHECK(perf_check_near(&rule, 2, 1021, inputs[0], COUNT) == 0, "%zu are said to be too far off",
                      perf_check_near(&rule, 2, 1021, inputs[0], COUNT));
                CHECK(perf_check_near(&rule, 1, 1021, inputs[0], COUNT) > COUNT / 2, "another rank's data passes");
                CHECK(perf_check_near(&rule, 2, 1022, inputs[0], COUNT) > COUNT / 2, "data moved by one passes");
            }
}
