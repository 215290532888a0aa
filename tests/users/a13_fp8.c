/* A13: fp8 sums: finite inputs never become NaN or Inf, and position does not
 * matter.
 *
 * The rule (docs/numerics.md): accumulated in f32, rounded once, saturated; Inf
 * only from Inf, NaN only from NaN, Inf - Inf and Inf times 0. All 65,536 pairs of
 * bytes are tried, at index 0, at odd indices, at odd addresses, and as the last
 * element of counts 1 to 33. */
#include "check.h"
#include "together.h"

#include "small_floats.h"

TIME_LIMIT(900)

enum { PAIRS = 65536, NOPS = 6, PREMUL = 5, MAX_COUNT = 33 };

static const struct {
    ncclDataType_t     type;
    const small_float *is;
    const char        *name;
} types[2] = { { ncclFloat8e4m3, &small_e4m3, "e4m3" }, { ncclFloat8e5m2, &small_e5m2, "e5m2" } };

static const char *const op_names[NOPS] = { "sum", "prod", "max", "min", "avg", "premul" };

/* The scalar of each rank in the pre-multiplied sum: 3 and 1.5. */
static double scalar(int rank)
{
    return rank ? 1.5 : 3;
}

static double better(double a, double b, bool least)
{
    if (isnan(a) || isnan(b))
        return (double)NAN;
    if (a == b)
        return !signbit(a) == least ? b : a; /* -0 is below +0 */
    return (a < b) == least ? a : b;
}

static unsigned combined(const small_float *f, int op, unsigned x, unsigned y)
{
    const double   a = small_value(f, x), b = small_value(f, y);
    volatile float s = 0, p, q;

    switch (op) {
    case ncclSum: s = (float)a + (float)b; break;
    case ncclProd: s = (float)a * (float)b; break;
    case ncclMax: s = (float)better(a, b, false); break;
    case ncclMin: s = (float)better(a, b, true); break;
    case ncclAvg: s = (float)a + (float)b; s = s / 2.0f; break;
    default:
        p = (float)a * (float)scalar(0);
        q = (float)b * (float)scalar(1);
        s = p + q;
    }
    return small_round(f, (double)s);
}

static uint8_t want[NOPS][PAIRS];

static void make_table(const small_float *f)
{
    for (int op = 0; op < NOPS; op++)
        for (unsigned i = 0; i < PAIRS; i++)
            want[op][i] = (uint8_t)combined(f, op, i >> 8, i & 255);
}

/* The pair that stands at index i of a call that begins with pair p. */
static unsigned pair_at(unsigned p, size_t i)
{
    return (unsigned)((p + i * 30011) % PAIRS);
}

static uint8_t mine(int rank, unsigned pair)
{
    return (uint8_t)(rank ? pair & 255 : pair >> 8);
}

static unsigned stride = 1; /* every pair, or every so many */

typedef struct {
    ncclComm_t  comm;
    int         rank, n, which;
    ncclRedOp_t op[NOPS];
    uint8_t     in[PAIRS + 8], out[PAIRS + 8];
} world;

static int one_call(world *w, int op, unsigned first, size_t count, size_t shift)
{
    const int rank = w->rank, n = w->n;
    uint8_t  *in = w->in + shift, *out = w->out + (shift ^ 1);

    for (size_t i = 0; i < count; i++)
        in[i] = mine(rank, pair_at(first, i)), out[i] = 0x55;
    out[count] = 0x55;
    OK(ncclAllReduce(in, out, count, types[w->which].type, w->op[op], w->comm, NULL));
    for (size_t i = 0; i < count; i++) {
        const unsigned p = pair_at(first, i);
        if (!CHECK(out[i] == want[op][p], "%s %s of %#x and %#x is %#x, not %#x: rank %d, element %zu of %zu, address + %zu",
                   types[w->which].name, op_names[op], p >> 8, p & 255, out[i], want[op][p], rank, i, count, shift))
            return 1;
    }
    return !CHECK(out[count] == 0x55, "%s %s wrote behind element %zu", types[w->which].name, op_names[op], count - 1);
}

static int rank_main(int rank, int n, void *arg)
{
    static world w;

    w = (world){ .comm = together(0, rank, n), .rank = rank, .n = n, .which = *(int *)arg };
    if (!w.comm)
        return 1;
    const small_float *f = types[w.which].is;
    uint8_t            mul = (uint8_t)small_round(f, scalar(rank));
    make_table(f);
    for (int op = 0; op < PREMUL; op++)
        w.op[op] = (ncclRedOp_t)op;
    OK(ncclRedOpCreatePreMulSum(&w.op[PREMUL], &mul, types[w.which].type, ncclScalarHostImmediate, w.comm));
    /* all pairs in one buffer, at even and odd addresses, and parts of it */
    for (int op = 0; op < NOPS; op++)
        for (size_t shift = 0; shift < 2; shift++)
            for (size_t count = PAIRS; count > 256; count = count * 2 / 3)
                if (one_call(&w, op, (unsigned)count, count, shift))
                    return 1;
    /* every pair first, and last, of small counts */
    for (unsigned p = 0; p < PAIRS; p += stride) {
        const size_t c = p % MAX_COUNT + 1;
        for (size_t count = together_long() ? 1 : c; count <= (together_long() ? MAX_COUNT : c); count++)
            if (one_call(&w, ncclSum, pair_at(p, PAIRS - (count - 1)), count, p >> 4 & 1))
                return 1;
        if (one_call(&w, (int)(p % NOPS), p, c, p >> 3 & 1))
            return 1;
    }
    OK(ncclRedOpDestroy(w.op[PREMUL], w.comm));
    OK(ncclCommDestroy(w.comm));
    return 0;
}

TEST(a13_all_pairs_everywhere)
{
    static const char *const isas[] = { "auto", "baseline", "avx2" }; /* what is missing falls back, with a warning */

    for (size_t k = 0; k < sizeof isas / sizeof isas[0]; k++) {
        setenv("RCCLX_ISA", isas[k], 1);
        stride = k == 0 || together_long() ? 1 : 7;
        for (int which = 0; which < 2; which++)
            CASE("%s, %s", types[which].name, isas[k]) {
                together_prepare();
                check_ranks r;
                check_ranks_start(&r, 2, rank_main, &which);
                check_ranks_wait(&r, 400);
                for (int i = 0; i < 2; i++)
                    CHECK(r.status[i] == 0, "rank %d: %d", i, r.status[i]);
            }
    }
    unsetenv("RCCLX_ISA");
}

TEST(a13_the_table_itself)
{
    /* the answers users were given wrong ones for */
    static const struct { int which, op; unsigned a, b, want; } known[] = {
        { 0, ncclSum, 0x7e, 0x59, 0x7e },  /* 448 + 18 */
        { 1, ncclSum, 0x7b, 0x6c, 0x7b },  /* 57344 + 4096 */
        { 0, ncclProd, 0x7e, 0x7e, 0x7e }, { 0, ncclSum, 0xfe, 0xfe, 0xfe }, { 1, ncclSum, 0x7c, 0xfc, 0x7f },
        { 1, ncclSum, 0x7c, 0xfb, 0x7c },  { 1, ncclProd, 0x7c, 0x00, 0x7f }, { 0, ncclAvg, 0x7e, 0x7e, 0x7e },
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        CHECK(combined(types[known[i].which].is, known[i].op, known[i].a, known[i].b) == known[i].want, "row %zu", i);
    for (int which = 0; which < 2; which++) {
        const small_float *f = types[which].is;
        make_table(f);
        for (unsigned i = 0; i < PAIRS; i++) {
            const bool finite = isfinite(small_value(f, i >> 8)) && isfinite(small_value(f, i & 255));
            for (int op = 0; finite && op < NOPS; op++)
                CHECK(isfinite(small_value(f, want[op][i])), "%s %s of %#x gives %#x", types[which].name, op_names[op], i, want[op][i]);
        }
    }
}

/* Eight ranks. What each brings, and what comes out, as codes of {e4m3, e5m2}. */
typedef struct {
    const char *about;
    unsigned    first, rest, want; /* rank 0's; the others'; 'M' most, 'm' minus most, 'I' Inf, ... */
    int         op;
} eight;

static unsigned code(const small_float *f, unsigned c)
{
    return c == 'M' ? f->most : c == 'm' ? f->most | 0x80 : c == 'I' ? f->inf : c == 'i' ? f->inf | 0x80 : c == 'N' ? f->nan : c;
}

static int eight_main(int rank, int n, void *arg)
{
    enum { COUNT = 70001 };
    static const eight rows[] = {
        { "eight times the maximum", 'M', 'M', 'M', ncclSum },   { "eight times the minimum", 'm', 'm', 'm', ncclSum },
        { "average of the maximum", 'M', 'M', 'M', ncclAvg },    { "product of the maximum", 'M', 'M', 'M', ncclProd },
        { "maximum against minus seven times", 'M', 'm', 'm', ncclSum },
        { "one Inf", 'I', 'M', 'I', ncclSum },                   { "Inf against minus Inf", 'I', 'i', 'N', ncclSum },
        { "one NaN", 'N', 'M', 'N', ncclSum },                   { "one NaN in max", 'N', 'M', 'N', ncclMax },
    };
    static const size_t counts[] = { 1, 33, 1000, 8192, 9001, COUNT };
    static uint8_t      in[COUNT], out[COUNT];
    const int           which = *(int *)arg;
    const small_float  *f = types[which].is;
    ncclComm_t          comm = together(0, rank, n);

    if (!comm)
        return 1;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const eight *e = &rows[i];
        if (!f->inf && (e->first == 'I' || e->want == 'I'))
            continue;
        for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
            memset(in, (int)code(f, rank ? e->rest : e->first), counts[k]);
            OK(ncclAllReduce(in, out, counts[k], types[which].type, (ncclRedOp_t)e->op, comm, NULL));
            for (size_t j = 0; j < counts[k]; j++)
                if (!CHECK(out[j] == code(f, e->want), "%s, %s: element %zu of %zu is %#x, not %#x", types[which].name, e->about, j,
                           counts[k], out[j], code(f, e->want)))
                    return 1;
        }
    }
    OK(ncclCommDestroy(comm));
    return 0;
}

TEST(a13_eight_ranks_at_the_ends_of_the_range)
{
    for (int which = 0; which < 2; which++)
        for (int cma = 1; cma >= 0; cma--)
            CASE("%s, %s", types[which].name, cma ? "as chosen" : "without process_vm_readv") {
                if (!cma)
                    setenv("RCCLX_CMA", "0", 1);
                together_prepare();
                CHECK(run_ranks_as_processes(8, eight_main, &which) == 0, "ranks failed");
                unsetenv("RCCLX_CMA");
            }
}
