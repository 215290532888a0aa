#include "numerics_reference.h"

#include <fenv.h>
#include <sys/mman.h>
#include <unistd.h>

/* Every type, operator, number of sources and destinations, count, alignment,
 * store kind and instruction set against the reference, with guard bytes round
 * each destination; in place; and the cases users reported (A08, A11, A14). */

enum { SOURCES = 64, DESTS = 8, COUNT = 4099, GUARD = 128, STRIDE = COUNT * 8 + 2 * GUARD + 64 };

static const int nsrcs[]  = {1, 2, 3, 5, 8, 9, 16, 64};
static const int ndsts[]  = {1, 2, 3, 8};
static const int counts[] = {0, 1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 130, 1000, COUNT};
#define EACH(i, a) (size_t i = 0; i < sizeof a / sizeof a[0]; i++)

static _Alignas(64) unsigned char source[SOURCES][STRIDE], dest[DESTS][STRIDE], want[STRIDE];
static uint64_t scalars[SOURCES];

/* Any bits half of the time; else values whose sums stay in range. */
static uint64_t random_value(rcclx_type t)
{
    static const double scale[] = {1.0, 0.001, 100.0};
    const double        x       = ((double)(random_bits() >> 40) / (1 << 23) - 1.0) * scale[random_bits() % 3];
    const float         single  = (float)x;
    uint64_t            u       = 0;

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

static void fill(rcclx_type t)
{
    const size_t w = rcclx_type_size(t);

    for (int s = 0; s < SOURCES; s++) {
        scalars[s] = random_value(t);
        for (int i = 0; i < COUNT; i++) {
            const uint64_t u = random_value(t);

            memcpy(source[s] + GUARD + (size_t)i * w, &u, w);
        }
    }
}

static void expect(rcclx_type t, rcclx_redop op, int nsrc, int divisor)
{
    const size_t w = rcclx_type_size(t);
    uint64_t     s[SOURCES];

    for (size_t i = 0; i < COUNT; i++) {
        uint64_t u;

        for (int k = 0; k < nsrc; k++)
            s[k] = bits_get(source[k] + GUARD + i * w, w);
        u = reference(t, op, nsrc, s, divisor, scalars);
        memcpy(want + i * w, &u, w);
    }
}

/* Sources start at an element of their own when `skew`, destinations too. */
static int run_once(rcclx_type t, rcclx_redop op, int nsrc, int ndst, size_t count, int skew, int streaming, int divisor)
{
    const size_t w = rcclx_type_size(t), n = count * w;
    const void  *src[SOURCES];
    void        *dst[DESTS];
    const size_t first = skew ? (size_t)skew % (COUNT - count + 1) : 0;

    for (int s = 0; s < nsrc; s++)
        src[s] = source[s] + GUARD + first * w;
    for (int d = 0; d < ndst; d++) {
        const size_t off = GUARD + (size_t)(skew * (d + 1) % 8) * w;

        dst[d] = dest[d] + off;
        memset(dest[d] + off - GUARD, 0xa5, n + 2 * GUARD);
    }
    rcclx_reduce(&(rcclx_reduce_args){.type = t, .op = op, .nsrc = nsrc, .ndst = ndst, .src = src, .dst = dst,
                                      .count = count, .divisor = divisor, .scalar = scalars, .streaming = streaming});
    for (int d = 0; d < ndst; d++) {
        const unsigned char *p = dst[d];

        if (memcmp(p, want + first * w, n) != 0)
            return 0;
        for (int g = 1; g <= GUARD; g++)
            if (p[-g] != 0xa5 || p[n + (size_t)g - 1] != 0xa5)
                return 0;
    }
    return 1;
}

static int run_shapes(rcclx_type t, rcclx_redop op, int nsrc, int divisor, char *detail)
{
    for EACH (i, isa_names) {
        if (rcclx_isa_use(isa_names[i]) != 0)
            continue;
        for EACH (d, ndsts)
            for EACH (c, counts)
                for (int kind = 0; kind < 6; kind++)
                    if (!run_once(t, op, nsrc, ndsts[d], (size_t)counts[c], kind / 2 * 3, kind % 2, divisor)) {
                        sprintf(detail, "%s, %d sources, %d destinations, count %d, skew %d, streaming %d", isa_names[i],
                                nsrc, ndsts[d], counts[c], kind / 2 * 3, kind % 2);
                        return 0;
                    }
    }
    return 1;
}

static void test_all(rcclx_type t, rcclx_redop op)
{
    char name[64], detail[160] = "";
    int  good = 1;

    sprintf(name, "%s %s", rcclx_type_name(t), rcclx_redop_name(op));
    for EACH (n, nsrcs) {
        static const int divisors[] = {0, 1, 3, 64, 7};
        const int        divisor    = op == RCCLX_AVG ? divisors[n % 5] : 0;
        const int        nsrc       = nsrcs[n];

        expect(t, op, nsrc, divisor);
        good = good && run_shapes(t, op, nsrc, divisor, detail);
    }
    tap(good, name, detail);
}

/* A destination that is one of the sources, each in turn. */
static void test_in_place(void)
{
    static unsigned char keep[STRIDE];
    const void          *src[SOURCES];
    int                  good = 1;

    for (int t = 0; t < RCCLX_TYPE_COUNT; t++) {
        const size_t n = COUNT * rcclx_type_size((rcclx_type)t);

        fill((rcclx_type)t);
        for (int op = 0; op < RCCLX_COPY; op++)
            for (int k = 0; k < 9; k += k < 3 ? 1 : 5) {
                const int nsrc = k < 2 ? 2 : 9;
                void     *dst[2] = {source[k] + GUARD, dest[0] + GUARD};

                for (int s = 0; s < nsrc; s++)
                    src[s] = source[s] + GUARD;
                expect((rcclx_type)t, (rcclx_redop)op, nsrc, 3);
                memcpy(keep, source[k], sizeof keep);
                rcclx_reduce(&(rcclx_reduce_args){.type = (rcclx_type)t, .op = (rcclx_redop)op, .nsrc = nsrc, .ndst = 2,
                                                  .src = src, .dst = dst, .count = COUNT, .divisor = 3, .scalar = scalars,
                                                  .streaming = op % 2});
                good = good && memcmp(dst[0], want, n) == 0 && memcmp(dst[1], want, n) == 0;
                memcpy(source[k], keep, sizeof keep);
            }
    }
    tap(good, "in place, every operator and type", "");
}

static void test_copy(void)
{
    static const int sizes[] = {0, 1, 3, 63, 64, 65, 1000, 4099, 30000};
    int              good = 1;

    fill(RCCLX_U64);
    for EACH (i, isa_names)
        for EACH (s, sizes)
            for (int kind = 0; rcclx_isa_use(isa_names[i]) == 0 && kind < 8; kind++) {
                unsigned char *p = dest[0] + GUARD + kind / 2;
                const size_t   n = (size_t)sizes[s];

                memset(dest[0], 0xa5, STRIDE);
                rcclx_copy(p, source[0] + 7, n, kind % 2);
                good = good && memcmp(p, source[0] + 7, n) == 0 && p[-1] == 0xa5 && p[n] == 0xa5;
            }
    for (int ndst = 1; ndst <= DESTS; ndst++)
        for (int streaming = 0; streaming < 2; streaming++) {
            const void *src[1] = {source[0] + GUARD};
            void       *dst[DESTS];

            for (int d = 0; d < ndst; d++)
                memset(dst[d] = dest[d] + d, 0, 9999);
            rcclx_reduce(&(rcclx_reduce_args){.type = RCCLX_U8, .op = RCCLX_COPY, .nsrc = 1, .ndst = ndst, .src = src,
                                              .dst = dst, .count = 9998, .streaming = streaming});
            for (int d = 0; d < ndst; d++)
                good = good && memcmp(dst[d], src[0], 9998) == 0 && dest[d][d + 9998] == 0;
        }
    tap(good, "copy", "");
}

/* One operation on `count` equal elements a source; all results must be `expected`. */
static int same(rcclx_type t, rcclx_redop op, int nsrc, const int64_t *values, int divisor, size_t count, int64_t expected)
{
    const size_t w = rcclx_type_size(t);
    const void  *src[SOURCES];
    void        *dst[1] = {dest[0] + GUARD};

    for (int s = 0; s < nsrc; s++) {
        src[s] = source[s];
        for (size_t i = 0; i < count; i++)
            memcpy(source[s] + i * w, &values[s], w);
    }
    rcclx_reduce(&(rcclx_reduce_args){.type = t, .op = op, .nsrc = nsrc, .ndst = 1, .src = src, .dst = dst,
                                      .count = count, .divisor = divisor});
    for (size_t i = 0; i < count; i++)
        if (memcmp(dest[0] + GUARD + i * w, &expected, w) != 0)
            return 0;
    return 1;
}

#define SAME(t, op, divisor, expected, ...) \
    same(t, op, (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]){__VA_ARGS__}, divisor, count, expected)

static void test_a11(void)
{
    static const int sizes[] = {1, 17, COUNT};
    int              good = 1;

    for EACH (i, isa_names)
        for (size_t c = 0; rcclx_isa_use(isa_names[i]) == 0 && c < 3; c++) {
            const size_t count = (size_t)sizes[c];

            for (int k = 0; k < 3; k++) {
                const rcclx_type t = (rcclx_type[]){RCCLX_I8, RCCLX_I32, RCCLX_I64}[k];
                const int64_t    low = (int64_t)(UINT64_C(1) << 63) >> (64 - 8 * rcclx_type_size(t)), high = ~low;

                good = good && SAME(t, RCCLX_AVG, 2, -9, -10, -9);
                good = good && SAME(t, RCCLX_AVG, 3, 0, -1, 0, 0);
                good = good && SAME(t, RCCLX_AVG, 2, 100, 100, 100);
                good = good && SAME(t, RCCLX_AVG, 4, low, low, low, low, low);
                good = good && SAME(t, RCCLX_AVG, 4, high, high, high, high, high);
                good = good && SAME(t, RCCLX_AVG, 4, 0, low, low, high, high);
                good = good && SAME(t, RCCLX_SUM, 0, low, high, 1);
                good = good && SAME(t, RCCLX_AVG, 0, low, high, 1);
            }
            good = good && SAME(RCCLX_U8, RCCLX_AVG, 2, 150, 200, 100);
            good = good && SAME(RCCLX_U8, RCCLX_AVG, 3, 255, 255, 255, 255);
            good = good && SAME(RCCLX_U32, RCCLX_AVG, 3, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff);
            good = good && SAME(RCCLX_U64, RCCLX_AVG, 3, -1, -1, -1, -1);
            good = good && SAME(RCCLX_U64, RCCLX_AVG, 2, INT64_MIN, -1, 1);
        }
    tap(good, "A11 integer averages", "");
}

static void test_a14(void)
{
    int good = 1;

    for EACH (i, isa_names)
        for (int at = 0; rcclx_isa_use(isa_names[i]) == 0 && at < 8; at++) {
            int64_t v[8];

            for (int k = 0; k < 8; k++)
                v[k] = k == at ? 0x4380 : 0x3f80; /* 256 and ones in bf16 */
            good = good && same(RCCLX_BF16, RCCLX_SUM, 8, v, 0, COUNT, 0x4384);
        }
    tap(good, "A14 bf16: 256 and seven ones are 264 everywhere", "");
    for EACH (i, isa_names) {
        const size_t count = COUNT;

        if (rcclx_isa_use(isa_names[i]) == 0)
            good = good && SAME(RCCLX_F16, RCCLX_SUM, 0, 0x7bff, 0x7bff, 0x7bff, 0xfbff);
    }
    tap(good, "A14 f16: 65504 + 65504 - 65504 is finite", "");
}

/* Left to right: 2^24 + 1 - 2^24 loses the one, 2^24 - 2^24 + 1 keeps it. */
static void test_order(void)
{
    const int64_t big = 0x4b800000, minus = 0xcb800000, one = 0x3f800000;
    const size_t  count = 100;
    int           good = 1;

    for EACH (i, isa_names)
        if (rcclx_isa_use(isa_names[i]) == 0) {
            good = good && SAME(RCCLX_F32, RCCLX_SUM, 0, 0, big, one, minus);
            good = good && SAME(RCCLX_F32, RCCLX_SUM, 0, one, big, minus, one);
            good = good && SAME(RCCLX_F32, RCCLX_SUM, 0, one, big, one, minus, one);
        }
    tap(good, "sources are added left to right", "");
}

/* More sources and destinations than anything inside counts in bits. */
static void test_many(void)
{
    enum { MANY_SOURCES = 100, MANY_DESTS = 70, N = 900 };
    static int32_t ones[N], out[MANY_DESTS][N + 8];
    const void    *src[MANY_SOURCES];
    void          *dst[MANY_DESTS];
    int            good = 1;

    for (int i = 0; i < N; i++)
        ones[i] = i;
    for (int s = 0; s < MANY_SOURCES; s++)
        src[s] = ones;
    for (int d = 0; d < MANY_DESTS; d++)
        dst[d] = out[d] + d % 3;
    for (int streaming = 0; streaming < 2; streaming++) {
        memset(out, 0, sizeof out);
        rcclx_reduce(&(rcclx_reduce_args){.type = RCCLX_I32, .op = RCCLX_SUM, .nsrc = MANY_SOURCES, .ndst = MANY_DESTS,
                                          .src = src, .dst = dst, .count = N, .streaming = streaming});
        for (int d = 0; d < MANY_DESTS; d++)
            for (int i = 0; i < N; i++)
                good = good && out[d][i + d % 3] == MANY_SOURCES * i;
    }
    tap(good, "100 sources, 70 destinations", "");
}

static void test_names(void)
{
    const char *const first = rcclx_isa_name();
    int               good  = rcclx_isa_use("none such") == -1 && strcmp(rcclx_isa_name(), first) == 0;

    good = good && rcclx_isa_use("baseline") == 0 && strcmp(rcclx_isa_name(), "baseline") == 0 && rcclx_isa_use(first) == 0;
    good = good && rcclx_type_size(RCCLX_BF16) == 2 && rcclx_type_size(RCCLX_U64) == 8 && rcclx_type_size((rcclx_type)99) == 0;
    good = good && strcmp(rcclx_type_name(RCCLX_F8E5M2), "f8e5m2") == 0 && strcmp(rcclx_redop_name(RCCLX_PREMUL), "premul") == 0;
    good = good && strcmp(rcclx_redop_name((rcclx_redop)99), "unknown") == 0;
    tap(good, "names and sizes", "");
}

/* A caller that rounds upward, or flushes subnormals, gets the same bits and
 * finds its mode as it was. */
static void test_float_mode(void)
{
    static const rcclx_type types[] = {RCCLX_F32, RCCLX_F64, RCCLX_F16, RCCLX_BF16, RCCLX_F8E4M3, RCCLX_I32};
    int                     good = 1;

    for EACH (t, types)
        for EACH (i, isa_names) {
            if (rcclx_isa_use(isa_names[i]) != 0)
                continue;
            fill(types[t]);
            expect(types[t], RCCLX_AVG, 3, 7);
            fesetround(FE_UPWARD);
#if defined(__x86_64__)
            __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#endif
            good = good && run_once(types[t], RCCLX_AVG, 3, 2, COUNT, 0, 0, 7) && fegetround() == FE_UPWARD;
#if defined(__x86_64__)
            good = good && (__builtin_ia32_stmxcsr() & 0x8040) == 0x8040;
            __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() & ~0x8040u);
#endif
            fesetround(FE_TONEAREST);
        }
    tap(good, "the caller's floating point mode changes nothing", "");
}

/* More than 2^32 bytes of address space, backed by one MiB again and again. */
static unsigned char *map_long(int fd, size_t nbytes)
{
    enum { CHUNK = 1 << 20 };
    unsigned char *const base = mmap(NULL, nbytes + CHUNK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (base == MAP_FAILED || ftruncate(fd, CHUNK) != 0)
        return NULL;
    for (size_t at = 0; at < nbytes; at += CHUNK)
        if (mmap(base + at, CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
            return NULL;
    return base;
}

static void test_a08(void)
{
#if defined(__SANITIZE_THREAD__)
    /* its shadow of 8 GiB of addresses would be real memory */
    printf("ok %d - A08 more than 2^32 elements # SKIP under the thread sanitizer\n", ++tap_count);
    return;
#endif
    const size_t   n = (UINT64_C(1) << 32) + 5, chunk = 1 << 20;
    const int      from = memfd_create("source", 0), to = memfd_create("destination", 0);
    unsigned char *s = map_long(from, n), *d = map_long(to, n);
    int            good = s != NULL && d != NULL;

    for (size_t i = 0; good && i < chunk; i++)
        s[i] = (unsigned char)random_bits();
    if (good)
        rcclx_reduce(&(rcclx_reduce_args){.type = RCCLX_U8, .op = RCCLX_SUM, .nsrc = 2, .ndst = 1,
                                          .src = (const void *[]){s, s}, .dst = (void *[]){d}, .count = n});
    for (size_t i = 0; good && i < chunk; i++)
        good = d[i] == (unsigned char)(2 * s[i]);
    munmap(s, n + chunk), munmap(d, n + chunk);
    close(from), close(to);
    tap(good, "A08 more than 2^32 elements", "");
}

int main(void)
{
    reference_init();
    for (int t = 0; t < RCCLX_TYPE_COUNT; t++) {
        fill((rcclx_type)t);
        for (int op = 0; op < RCCLX_COPY; op++)
            test_all((rcclx_type)t, (rcclx_redop)op);
    }
    test_in_place();
    test_copy();
    test_a11();
    test_a14();
    test_order();
    test_many();
    test_names();
    test_float_mode();
    test_a08();
    return tap_done();
}
