/* A14: low-precision sums: where the rounding happens.
 *
 *   bf16, one rank brings 256 and seven bring 1: exact 263, rounded once 264.
 *   256 + 1 in bf16 is 256 again, so whoever rounds on the way ends below 264.
 *
 * Left alone, and with RCCLX_ORDERED, the library adds in f32 and rounds once at
 * every size. Ring, tree and doubling, asked for by name, round at every hop; all
 * ranks must then still hold the same bits, no further from the exact sum than
 * the hops explain. */
#include "check.h"
#include "together.h"

#include "small_floats.h"

TIME_LIMIT(300)

enum { MOST = 1 << 20 };

static const size_t counts[] = { 1, 2, 100, 1000, 4096, 5000, 40000, 300001, MOST };
enum { NCOUNTS = sizeof counts / sizeof counts[0] };

typedef struct {
    bool once;       /* rounded once, or at every hop */
    int  ncounts;
} options;

/* Do all ranks hold the same bits? */
static bool same_bits(int rank, int n, const void *out, size_t nbytes)
{
    bool same = true;

    atomic_store(&together_shared->sum[rank], together_hash(out, nbytes));
    together_wait(n);
    for (int r = 0; r < n; r++)
        same &= CHECK(atomic_load(&together_shared->sum[r]) == atomic_load(&together_shared->sum[0]), "ranks 0 and %d hold different bits", r);
    together_wait(n);
    return same;
}

static int big_and_ones(int rank, int n, void *arg)
{
    static uint16_t in[MOST], out[MOST];
    const options  *o = arg;
    const double    exact = 256 + n - 1;
    const unsigned  once = small_round(&small_bf16, exact);
    ncclComm_t      comm = together(0, rank, n);

    if (!comm)
        return 1;
    for (int k = 0; k < o->ncounts; k++)
        for (int big = 0; big < n; big++) {
            const size_t count = counts[k];
            /* beyond the caches two places are enough */
            if (count > 100000 && big != 0 && big != n - 1)
                continue;
            const uint16_t bits = (uint16_t)small_round(&small_bf16, rank == big ? 256 : 1);
            for (size_t i = 0; i < count; i++)
                in[i] = bits, out[i] = 0;
            OK(ncclAllReduce(in, out, count, ncclBfloat16, ncclSum, comm, NULL));
            for (size_t i = 0; i < count; i++) {
                const double x = small_value(&small_bf16, out[i]);
                const bool   good = o->once ? out[i] == once : fabs(x - exact) <= n - 1; /* half a step of 2 a hop */
                if (!CHECK(good, "256 on rank %d of %d, count %zu, element %zu: %g (%#x)", big, n, count, i, x, out[i]))
                    return 1;
            }
            if (!same_bits(rank, n, out, count * sizeof *out))
                return 1;
        }
    OK(ncclCommDestroy(comm));
    return 0;
}

static void run(int n, check_rank_fn fn, options o)
{
    together_prepare();
    CHECK(run_ranks_as_processes(n, fn, &o) == 0, "%d ranks failed", n);
}

TEST(a14_one_large_and_seven_small_add_up_to_264)
{
    const int most = together_long() ? NCOUNTS : NCOUNTS - 1;

    CASE("left alone")
        run(8, big_and_ones, (options){ true, most });
    setenv("RCCLX_ORDERED", "1", 1);
    CASE("RCCLX_ORDERED")
        run(8, big_and_ones, (options){ true, most });
    setenv("RCCLX_CMA", "0", 1);
    CASE("RCCLX_ORDERED, without process_vm_readv")
        run(8, big_and_ones, (options){ true, NCOUNTS - 2 });
    unsetenv("RCCLX_ORDERED");
    CASE("left alone, without process_vm_readv")
        run(8, big_and_ones, (options){ true, NCOUNTS - 2 });
    unsetenv("RCCLX_CMA");
}

TEST(a14_all_ranks_hold_the_same_bits_whatever_runs)
{
    static const char *const algos[] = { "ring", "tree", "doubling" };

    for (size_t i = 0; i < sizeof algos / sizeof algos[0]; i++) {
        setenv("RCCLX_ALGO", algos[i], 1);
        CASE("%s", algos[i])
            run(8, big_and_ones, (options){ false, NCOUNTS - 2 });
        setenv("RCCLX_ORDERED", "1", 1);
        CASE("%s does not sum in rank order, RCCLX_ORDERED sets it aside", algos[i])
            run(8, big_and_ones, (options){ true, NCOUNTS - 3 });
        unsetenv("RCCLX_ORDERED");
    }
    unsetenv("RCCLX_ALGO");
}

/* 65504 + 65504 - 65504 leaves fp16 on the way and comes back. */
static int there_and_back(int rank, int n, void *arg)
{
    enum { COUNT = 40001 };
    static uint16_t in[COUNT], out[COUNT];
    const options  *o = arg;
    ncclComm_t      comm = together(0, rank, n);

    if (!comm)
        return 1;
    for (int minus = 0; minus < n; minus++)
        for (int k = 0; k < o->ncounts && counts[k] < COUNT; k++) {
            for (size_t i = 0; i < counts[k]; i++)
                in[i] = rank == minus ? 0xfbff : 0x7bff;
            OK(ncclAllReduce(in, out, counts[k], ncclHalf, ncclSum, comm, NULL));
            for (size_t i = 0; i < counts[k]; i++)
                if (!CHECK(out[i] == 0x7bff, "minus on rank %d, count %zu: element %zu is %#x", minus, counts[k], i, out[i]))
                    return 1;
        }
    OK(ncclCommDestroy(comm));
    return 0;
}

TEST(a14_a_sum_may_leave_fp16_and_come_back)
{
    run(3, there_and_back, (options){ true, NCOUNTS });
}

/* Every pattern of 16 bits against random partners. */
static int all_patterns(int rank, int n, void *arg)
{
    static const struct {
        ncclDataType_t     type;
        const small_float *is;
    } types[] = { { ncclHalf, &small_f16 }, { ncclBfloat16, &small_bf16 } };
    static uint16_t in[65537], partner[65536], out[65537];
    uint64_t        seed = 14;
    ncclComm_t      comm = together(0, rank, n);

    (void)arg;
    if (!comm)
        return 1;
    for (int round = 0; round < (together_long() ? 200 : 20); round++) {
        const small_float *f = types[round % 2].is;
        uint16_t          *mine = in + round / 2 % 2, *got = out + round / 4 % 2;
        for (unsigned i = 0; i < 65536; i++) {
            /* half of the partners are near by in size, where rounding is decided */
            const uint64_t r = together_random(&seed);
            partner[i] = (uint16_t)(r & 1 ? r >> 8 : i ^ (r >> 8 & 0x83ff));
            mine[i] = rank == round % 2 ? (uint16_t)i : partner[i];
        }
        OK(ncclAllReduce(mine, got, 65536, types[round % 2].type, ncclSum, comm, NULL));
        for (unsigned i = 0; i < 65536; i++) {
            const double   a = small_value(f, i), b = small_value(f, partner[i]);
            volatile float once = (float)(a + b); /* fp16: as if exact, 24 bits are enough for one more rounding */
            const unsigned want = small_round(f, f == &small_f16 ? a + b : (double)once);
            if (!CHECK(got[i] == want, "%s: %#x + %#x is %#x, not %#x", f == &small_f16 ? "fp16" : "bf16", i, partner[i], got[i], want))
                return 1;
        }
    }
    OK(ncclCommDestroy(comm));
    return 0;
}

TEST(a14_every_pattern_with_random_partners_is_rounded_right)
{
    run(2, all_patterns, (options){ true, 0 });
}

TEST(a14_the_reference_itself)
{
    CHECK(small_round(&small_f16, 65519.9) == 0x7bff && small_round(&small_f16, 65520) == 0x7c00, "fp16 overflow");
    CHECK(small_round(&small_f16, ldexp(1, -24)) == 1 && small_round(&small_f16, ldexp(1, -25)) == 0, "fp16 subnormals");
    CHECK(small_round(&small_bf16, 263) == small_round(&small_bf16, 264), "bf16 ties");
    for (unsigned i = 0; i < 65536; i++)
        if (!isnan(small_value(&small_f16, i)))
            CHECK(small_round(&small_f16, small_value(&small_f16, i)) == i, "%#x", i);
}
