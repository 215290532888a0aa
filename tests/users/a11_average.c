/* A11: average on integers, and averages that are silently sums.
 *
 * The average is the exact sum divided by the number of ranks, toward zero, for
 * signed and unsigned alike: docs/numerics.md. The reference adds in 128 bits. */
#include "check.h"
#include "together.h"

#include <limits.h>

TIME_LIMIT(300)

__extension__ typedef __int128 wide;

enum { NTYPES = 6, MOST = 70000, NPATTERNS = 6 };

static const struct {
    ncclDataType_t type;
    const char    *name;
    int            nbytes;
    bool           is_signed;
} types[NTYPES] = {
    { ncclInt8, "int8", 1, true },   { ncclUint8, "uint8", 1, false },   { ncclInt32, "int32", 4, true },
    { ncclUint32, "uint32", 4, false }, { ncclInt64, "int64", 8, true }, { ncclUint64, "uint64", 8, false },
};

static wide lowest(int t)
{
    return types[t].is_signed ? -((wide)1 << (8 * types[t].nbytes - 1)) : 0;
}

static wide highest(int t)
{
    return ((wide)1 << (8 * types[t].nbytes - types[t].is_signed)) - 1;
}

static void put(int t, void *p, size_t i, wide v)
{
    memcpy((char *)p + i * (size_t)types[t].nbytes, &v, (size_t)types[t].nbytes); /* little endian */
}

static wide get(int t, const void *p, size_t i)
{
    const int nbits = 8 * types[t].nbytes;
    uint64_t  u = 0;

    memcpy(&u, (const char *)p + i * (size_t)types[t].nbytes, (size_t)types[t].nbytes);
    return types[t].is_signed ? (wide)((int64_t)(u << (64 - nbits)) >> (64 - nbits)) : (wide)u;
}

/* What a rank brings at index i: the pairs users were given wrong answers for, then the whole range. */
static wide value(int t, int pattern, int rank, size_t i)
{
    const bool s = types[t].is_signed;

    switch (pattern) {
    case 0: return s ? (rank % 2 ? -9 : -10) : (rank % 2 ? 9 : 10);
    case 1: return s ? -(rank == 0) : (rank == 0);
    case 2: return s ? 100 : (rank % 2 ? 100 : 200);
    case 3: return lowest(t);
    case 4: return highest(t);
    }
    uint64_t seed = (uint64_t)rank * 1000003 + i;
    uint64_t u = together_random(&seed);
    wide     v = 0;
    memcpy(&v, &u, (size_t)types[t].nbytes);
    return s && v > highest(t) ? v - ((wide)1 << (8 * types[t].nbytes)) : v;
}

static wide average(int t, int pattern, int n, size_t i)
{
    wide sum = 0;

    for (int r = 0; r < n; r++)
        sum += value(t, pattern, r, i);
    return sum / n; /* C drops the fraction */
}

static bool right(int t, int pattern, int rank, int n, const void *out, size_t nout, size_t first, const char *what)
{
    for (size_t i = 0; i < nout; i++) {
        const wide got = get(t, out, i), want = average(t, pattern, n, first + i);
        if (!CHECK(got == want, "%s of %zu %s, pattern %d, rank %d of %d: element %zu is %lld, not %lld", what, nout, types[t].name,
                   pattern, rank, n, i, (long long)got, (long long)want))
            return false;
    }
    return true;
}

static int round_of(ncclComm_t comm, int rank, int n, int t, int pattern, size_t count, char *in, char *out)
{
    const ncclDataType_t type = types[t].type;
    const size_t         each = count / (size_t)n ? count / (size_t)n : 1, nin = each * (size_t)n > count ? each * (size_t)n : count;
    const int            root = (pattern + t) % n;

    for (size_t i = 0; i < nin; i++)
        put(t, in, i, value(t, pattern, rank, i));
    OK(ncclAllReduce(in, out, count, type, ncclAvg, comm, NULL));
    if (!right(t, pattern, rank, n, out, count, 0, "AllReduce"))
        return 1;
    atomic_store(&together_shared->sum[rank], together_hash(out, count * (size_t)types[t].nbytes));
    OK(ncclReduce(in, out, count, type, ncclAvg, root, comm, NULL));
    if (rank == root && !right(t, pattern, rank, n, out, count, 0, "Reduce"))
        return 1;
    OK(ncclReduceScatter(in, out, each, type, ncclAvg, comm, NULL));
    if (!right(t, pattern, rank, n, out, each, each * (size_t)rank, "ReduceScatter"))
        return 1;
    /* the ranks' bits, though each was compared with the same numbers already */
    together_wait(n);
    for (int r = 0; r < n; r++)
        if (!CHECK(atomic_load(&together_shared->sum[r]) == atomic_load(&together_shared->sum[rank]), "ranks %d and %d differ", r, rank))
            return 1;
    together_wait(n);
    return 0;
}

static int rank_main(int rank, int n, void *arg)
{
    static char  in[8 * (MOST + 8)], out[8 * (MOST + 8)];
    const size_t counts[] = { 1, 17, 1000, MOST };
    const bool   brief = *(bool *)arg;
    ncclComm_t   comm = together(0, rank, n);

    if (!comm)
        return 1;
    for (int t = 0; t < NTYPES; t++)
        for (int pattern = 0; pattern < NPATTERNS; pattern++)
            for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
                /* the largest count with the whole range, where time is short */
                if (counts[i] == MOST && pattern != NPATTERNS - 1 && (brief || !together_long()))
                    continue;
                if (brief && counts[i] == MOST && n > 3)
                    continue;
                if (round_of(comm, rank, n, t, pattern, counts[i], in, out))
                    return 1;
            }
    OK(ncclCommDestroy(comm));
    return 0;
}

static void run_all(const char *how, bool brief)
{
    static const int ranks[] = { 2, 3, 7, 8 };

    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++)
        CASE("%s, %d ranks", how, ranks[i]) {
            together_prepare();
            CHECK(run_ranks_as_processes(ranks[i], rank_main, &brief) == 0, "ranks failed");
        }
}

TEST(a11_integer_averages)
{
    run_all("as chosen", false);
}

TEST(a11_integer_averages_whatever_algorithm_is_asked_for)
{
    static const char *const algos[] = { "slot", "direct", "staged", "ring", "tree", "doubling" };

    for (size_t i = 0; i < sizeof algos / sizeof algos[0]; i++) {
        setenv("RCCLX_ALGO", algos[i], 1);
        run_all(algos[i], true);
    }
    unsetenv("RCCLX_ALGO");
    setenv("RCCLX_CMA", "0", 1);
    run_all("without process_vm_readv", true);
    unsetenv("RCCLX_CMA");
}

/* The answers that users were given wrong ones for, written down. */
static int known(int rank, int n, void *arg)
{
    static const int8_t  pairs[][2] = { { -10, -9 }, { 100, 100 }, { -128, -128 }, { 127, 127 }, { -1, 0 } };
    static const int8_t  want[] = { -9, 100, -128, 127, 0 };
    static const uint8_t upairs[][2] = { { 200, 100 }, { 255, 255 }, { 255, 0 } }, uwant[] = { 150, 255, 127 };
    ncclComm_t           comm = together(0, rank, n);
    int8_t               out;
    uint8_t              uout;

    (void)arg;
    if (!comm)
        return 1;
    for (size_t i = 0; i < sizeof want; i++) {
        OK(ncclAllReduce(&pairs[i][rank], &out, 1, ncclInt8, ncclAvg, comm, NULL));
        CHECK(out == want[i], "(%d, %d) gave %d", pairs[i][0], pairs[i][1], out);
    }
    for (size_t i = 0; i < sizeof uwant; i++) {
        OK(ncclAllReduce(&upairs[i][rank], &uout, 1, ncclUint8, ncclAvg, comm, NULL));
        CHECK(uout == uwant[i], "(%u, %u) gave %u", upairs[i][0], upairs[i][1], uout);
    }
    OK(ncclCommDestroy(comm));
    return 0;
}

TEST(a11_known_answers)
{
    together_prepare();
    CHECK(run_ranks_as_processes(2, known, NULL) == 0, "ranks failed");
}

/* Floats: the f32 sum divided in f32, never the sum itself; and the same on all ranks. */
static int floats(int rank, int n, void *arg)
{
    enum { COUNT = 5000 };
    static float in[COUNT], out[COUNT];
    ncclComm_t   comm = together(0, rank, n);

    (void)arg;
    if (!comm)
        return 1;
    for (size_t count = 1; count <= COUNT; count = count * 9 + 1) {
        for (size_t i = 0; i < count; i++)
            in[i] = (float)((int)(i % 64) * (rank + 1)); /* sums are exact in every order */
        OK(ncclAllReduce(in, out, count, ncclFloat, ncclAvg, comm, NULL));
        for (size_t i = 0; i < count; i++) {
            const float want = (float)((int)(i % 64) * n * (n + 1) / 2) / (float)n;
            if (!CHECK(out[i] == want, "element %zu of %zu is %g, not %g", i, count, (double)out[i], (double)want))
                return 1;
        }
    }
    OK(ncclCommDestroy(comm));
    return 0;
}

TEST(a11_float_averages_are_no_sums)
{
    for (int n = 2; n <= 8; n++) {
        together_prepare();
        CHECK(run_ranks_as_processes(n, floats, NULL) == 0, "%d ranks failed", n);
    }
}
