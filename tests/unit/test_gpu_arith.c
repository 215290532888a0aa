#include "numerics_reference.h"

#include "device/kernels/arith.h"

/* The arithmetic of kernels (kernels/arith.h), compiled for the host, gives what
 * rcclx_reduce gives: every type, operator and number of sources; all pairs of 8-bit
 * values; every f16 and bf16 pattern; rows of special values; divisors and scalars.
 * Small floats go by convert.h here and by instructions on a GPU. */

_Static_assert((int)GP_I8 == RCCLX_I8 && (int)GP_U8 == RCCLX_U8 && (int)GP_I32 == RCCLX_I32 && (int)GP_U32 == RCCLX_U32 &&
               (int)GP_I64 == RCCLX_I64 && (int)GP_U64 == RCCLX_U64 && (int)GP_F16 == RCCLX_F16 && (int)GP_F32 == RCCLX_F32 &&
               (int)GP_F64 == RCCLX_F64 && (int)GP_BF16 == RCCLX_BF16 && (int)GP_E4M3 == RCCLX_F8E4M3 &&
               (int)GP_E5M2 == RCCLX_F8E5M2 && RCCLX_TYPE_COUNT == 12, "types are numbered alike");
_Static_assert((int)GP_SUM == RCCLX_SUM && (int)GP_PROD == RCCLX_PROD && (int)GP_MAX == RCCLX_MAX && (int)GP_MIN == RCCLX_MIN &&
               (int)GP_AVG == RCCLX_AVG && (int)GP_PREMUL == RCCLX_PREMUL, "operators are numbered alike");

enum { SOURCES = 16, BYTES = 2 * 65536, OPS = 6 };

static _Alignas(64) unsigned char source[SOURCES][BYTES], got[BYTES], want[BYTES];
static uint64_t scalars[SOURCES];
static const int divisors[] = {0, 1, 2, 3, 5, 7, 8, 1000003, 0x7fffffff};
#define EACH(i, a) (size_t i = 0; i < sizeof a / sizeof a[0]; i++)

/* As a kernel does it; bit s of raw: source s is multiplied by its scalar. */
static void reduce_as_kernel(int type, int op, int nsrc, size_t nbytes, int divisor, unsigned raw)
{
    for (size_t at = 0; at < nbytes; at += 16) {
        gp_acc a;

        gp_acc_first(&a, type, op, gp_ld16(source[0] + at), scalars[0], raw & 1);
        for (int s = 1; s < nsrc; s++)
            gp_acc_next(&a, type, op, gp_ld16(source[s] + at), scalars[s], raw >> s & 1);
        gp_st16(got + at, gp_acc_last(&a, type, op, divisor));
    }
}

static void reduce_as_host(rcclx_type type, rcclx_redop op, int nsrc, size_t nbytes, int divisor, const uint64_t *scalar)
{
    const void *src[SOURCES];

    for (int s = 0; s < nsrc; s++)
        src[s] = source[s];
    rcclx_reduce(&(rcclx_reduce_args){.type = type, .op = op, .nsrc = nsrc, .ndst = 1, .src = src, .dst = (void *[]){want},
                                      .count = nbytes / rcclx_type_size(type), .divisor = divisor, .scalar = scalar});
}

/* 0 or 1 wrong: the first difference is told. */
static int compare(rcclx_type t, rcclx_redop op, int nsrc, size_t nbytes, int divisor)
{
    const size_t w = rcclx_type_size(t);

    for (size_t i = 0; i < nbytes; i += w)
        if (memcmp(got + i, want + i, w) != 0) {
            printf("# %s %s, %d sources, divisor %d, element %zu:", rcclx_type_name(t), rcclx_redop_name(op), nsrc, divisor, i / w);
            for (int s = 0; s < nsrc; s++)
                printf(" %llx", (unsigned long long)bits_get(source[s] + i, w));
            printf(" gives %llx, not %llx\n", (unsigned long long)bits_get(got + i, w), (unsigned long long)bits_get(want + i, w));
            return 1;
        }
    return 0;
}

/* What is in the sources, under one operator: all divisors, scalars or none. */
static int count_wrong(rcclx_type t, rcclx_redop op, int nsrc, size_t nbytes)
{
    int wrong = 0;

    for EACH(d, divisors) {
        if (d > 0 && op != RCCLX_AVG)
            break;
        reduce_as_kernel((int)t, (int)op, nsrc, nbytes, divisors[d], ~0u);
        reduce_as_host(t, op, nsrc, nbytes, divisors[d], scalars);
        wrong += compare(t, op, nsrc, nbytes, divisors[d]);
    }
    if (op == RCCLX_PREMUL) {
        reduce_as_kernel((int)t, (int)op, nsrc, nbytes, 0, 0);
        reduce_as_host(t, op, nsrc, nbytes, 0, NULL);
        wrong += compare(t, op, nsrc, nbytes, 0);
    }
    return wrong;
}

static void value_store(rcclx_type t, int s, size_t i, uint64_t bits)
{
    memcpy(source[s] + i * rcclx_type_size(t), &bits, rcclx_type_size(t));
}

/* Any bits half of the time; else floats whose sums stay in range. */
static uint64_t random_value(rcclx_type t)
{
    const double x      = (double)(int64_t)random_bits() * 0x1p-60;
    const float  single = (float)x;
    uint64_t     u      = 0;

    if (t < RCCLX_F16 || random_bits() % 2)
        return random_bits();
    if (t == RCCLX_F32)
        memcpy(&u, &single, 4);
    else if (t == RCCLX_F64)
        memcpy(&u, &x, 8);
    else
        u = small_nearest(small_of(t), x);
    return u;
}

static void report(rcclx_type t, const char *what, int wrong)
{
    char name[80];

    sprintf(name, "%s: %s", rcclx_type_name(t), what);
    tap(wrong == 0, name, "");
}

static void test_random(rcclx_type t)
{
    static const int nsrcs[] = {2, 3, 4, 5, 16};
    const size_t     nbytes  = 8192;
    int              wrong   = 0;

    for (int s = 0; s < SOURCES; s++) {
        scalars[s] = random_value(t);
        for (size_t i = 0; i < nbytes / rcclx_type_size(t); i++)
            value_store(t, s, i, random_value(t));
    }
    for (int op = 0; op < OPS; op++)
        for EACH(n, nsrcs)
            wrong += count_wrong(t, (rcclx_redop)op, nsrcs[n], nbytes);
    report(t, "random values, 2 to 16 sources", wrong);
}

/* A source that is a partial sum already is added as it is: as if its scalar were one. */
static void test_mixed_scalars(rcclx_type t)
{
    static const uint64_t one[] = {[RCCLX_F16] = 0x3c00, [RCCLX_BF16] = 0x3f80, [RCCLX_F8E4M3] = 0x38, [RCCLX_F8E5M2] = 0x3c,
                                   [RCCLX_F32] = 0x3f800000, [RCCLX_F64] = UINT64_C(0x3ff0000000000000)};
    const uint64_t some[5] = {scalars[0], t < RCCLX_F16 ? 1 : one[t], scalars[2], t < RCCLX_F16 ? 1 : one[t], scalars[4]};

    reduce_as_kernel((int)t, GP_PREMUL, 5, 8192, 0, 0x15);
    reduce_as_host(t, RCCLX_PREMUL, 5, 8192, 0, some);
    report(t, "scalars for some sources", compare(t, RCCLX_PREMUL, 5, 8192, 0));
}

static void test_pairs8(rcclx_type t)
{
    static const uint64_t by[][2] = {{0x02, 0x03}, {0x7f, 0xff}, {0x38, 0xc5}, {0x00, 0x80}, {0x01, 0x7c}};
    int                   wrong   = 0;

    for (unsigned i = 0; i < 65536; i++)
        value_store(t, 0, i, i & 0xff), value_store(t, 1, i, i >> 8);
    for EACH(k, by) {
        scalars[0] = by[k][0], scalars[1] = by[k][1];
        for (int op = k ? RCCLX_PREMUL : 0; op < OPS; op++)
            wrong += count_wrong(t, (rcclx_redop)op, 2, 65536);
    }
    report(t, "all pairs", wrong);
}

/* Sixteen of the largest leave f32's range; a zero among them still makes zero, but not of Inf. */
static void test_long_products(rcclx_type t)
{
    const uint64_t most = t == RCCLX_F8E4M3 ? 0x7e : 0x7b;

    for (int s = 0; s < SOURCES; s++)
        for (size_t i = 0; i < 4096; i++)
            value_store(t, s, i, random_bits() % 32 == 0 ? random_bits() : (most - random_bits() % 2) | (random_bits() & 0x80));
    for (size_t i = 0; i < 4096; i += 2)
        value_store(t, SOURCES - 1, i, 0);
    report(t, "products of sixteen", count_wrong(t, RCCLX_PROD, SOURCES, 4096));
}

static void test_patterns16(rcclx_type t)
{
    int wrong = 0;

    for (unsigned i = 0; i < 65536; i++)
        value_store(t, 0, i, i), value_store(t, 1, i, random_value(t)), value_store(t, 2, i, random_value(t));
    for (int op = 0; op < OPS; op++)
        wrong += count_wrong(t, (rcclx_redop)op, 2, BYTES) + count_wrong(t, (rcclx_redop)op, 3, BYTES);
    report(t, "every pattern with random partners", wrong);
}

/* Where numbers change kind: zero, the largest subnormal, one, the largest, what follows it (Inf,
 * or NaN), and the greatest codes; each with its neighbours, in both signs. */
static int special_values(rcclx_type t, uint64_t v[64])
{
    static const struct { int mant, bias; } f[RCCLX_TYPE_COUNT] = {
        [RCCLX_F16] = {10, 15}, [RCCLX_BF16] = {7, 127}, [RCCLX_F32] = {23, 127}, [RCCLX_F64] = {52, 1023},
        [RCCLX_F8E4M3] = {3, 7}, [RCCLX_F8E5M2] = {2, 15}};
    const uint64_t sign   = UINT64_C(1) << (8 * rcclx_type_size(t) - 1);
    const uint64_t unit   = t < RCCLX_F16 ? 1 : UINT64_C(1) << f[t].mant;
    const uint64_t edge[] = {0, unit, unit * (unsigned)f[t].bias, sign - unit, sign - unit / 2, sign - 2};
    int            n      = 0;

    for EACH(i, edge)
        for (int by = -1; by <= 1; by++)
            for (int negative = 0; negative <= 1; negative++)
                v[n++] = ((edge[i] + (uint64_t)by) & (sign - 1)) | (negative ? sign : 0);
    return n;
}

static void test_special(rcclx_type t)
{
    uint64_t  v[64];
    const int n     = special_values(t, v);
    size_t    at    = 0;
    int       wrong = 0;

    scalars[0] = v[0], scalars[1] = v[n / 2], scalars[2] = v[n - 1];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            for (int k = 0; k < n; k += 3, at++) {
                if ((at + 1) * rcclx_type_size(t) > BYTES)
                    at = 0;
                value_store(t, 0, at, v[i]), value_store(t, 1, at, v[j]), value_store(t, 2, at, v[k]);
                if ((at + 1) * rcclx_type_size(t) != BYTES && !(i == n - 1 && j == n - 1 && k + 3 >= n))
                    continue;
                for (int op = 0; op < OPS; op++)
                    wrong += count_wrong(t, (rcclx_redop)op, 2, BYTES) + count_wrong(t, (rcclx_redop)op, 3, BYTES);
            }
    report(t, "special values", wrong);
}

int main(void)
{
    reference_init();
    for (int t = 0; t < RCCLX_TYPE_COUNT; t++) {
        test_random((rcclx_type)t);
        test_mixed_scalars((rcclx_type)t);
        test_special((rcclx_type)t);
        if (rcclx_type_size((rcclx_type)t) == 1)
            test_pairs8((rcclx_type)t);
        if (t == RCCLX_F8E4M3 || t == RCCLX_F8E5M2)
            test_long_products((rcclx_type)t);
        if (rcclx_type_size((rcclx_type)t) == 2)
            test_patterns16((rcclx_type)t);
    }
    return tap_done();
}
