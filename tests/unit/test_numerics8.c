#include "numerics_reference.h"

/* All 65,536 pairs of operands of every 8-bit type under every operator (A13),
 * and every pattern of the 16-bit floats against random partners (A14): at
 * index 0, at an odd index, as the last of counts 1 to 33, on every instruction
 * set. The answer must be the reference's wherever the element stands. */

enum { PAIRS = 65536, AHEAD = 32 };

static _Alignas(64) unsigned char left[2 * (PAIRS + 64)], right[2 * (PAIRS + 64)], got[2 * (PAIRS + 64)], want[2 * (PAIRS + 64)];

static void reduce_pair(rcclx_type t, rcclx_redop op, size_t first, size_t count, int divisor, const uint64_t *scalar)
{
    const size_t w = rcclx_type_size(t);

    rcclx_reduce(&(rcclx_reduce_args){.type = t, .op = op, .nsrc = 2, .ndst = 1, .count = count, .divisor = divisor,
                                      .src = (const void *[]){left + first * w, right + first * w},
                                      .dst = (void *[]){got + first * w}, .scalar = scalar});
}

static void expect(rcclx_type t, rcclx_redop op, int divisor, const uint64_t *scalar)
{
    const size_t w = rcclx_type_size(t);

    for (size_t i = 0; i < PAIRS; i++) {
        const uint64_t s[2] = {bits_get(left + i * w, w), bits_get(right + i * w, w)};
        const uint64_t u    = reference(t, op, 2, s, divisor, scalar);

        memcpy(want + i * w, &u, w);
    }
}

/* The whole, at once and from an odd start, and every element as the only one. */
static int check_all(rcclx_type t, rcclx_redop op, int divisor, const uint64_t *scalar)
{
    const size_t n = PAIRS * rcclx_type_size(t);
    int          good;

    memset(got, 0, sizeof got);
    reduce_pair(t, op, 0, PAIRS, divisor, scalar);
    good = memcmp(got, want, n) == 0;
    memset(got, 0, sizeof got);
    reduce_pair(t, op, 0, 1, divisor, scalar);
    reduce_pair(t, op, 1, PAIRS - 1, divisor, scalar);
    good = good && memcmp(got, want, n) == 0;
    memset(got, 0, sizeof got);
    for (size_t i = 0; i < PAIRS; i++)
        reduce_pair(t, op, i, 1, divisor, scalar);
    return good && memcmp(got, want, n) == 0;
}

/* Spans of counts 1 to 33 laid end to end: each element is somewhere the last. */
static int check_last(rcclx_type t, rcclx_redop op, int divisor, const uint64_t *scalar)
{
    const size_t n = PAIRS * rcclx_type_size(t);

    for (size_t count = 1; count <= AHEAD + 1; count++) {
        memset(got, 0, sizeof got);
        for (size_t i = 0; i < PAIRS; i += count)
            reduce_pair(t, op, i, i + count < PAIRS ? count : PAIRS - i, divisor, scalar);
        if (memcmp(got, want, n) != 0)
            return 0;
    }
    return 1;
}

static void check(rcclx_type t, rcclx_redop op, int divisor, const uint64_t *scalar)
{
    char        name[80];
    const char *detail = "";

    expect(t, op, divisor, scalar);
    for (int i = 0; i < ISA_NAMES; i++)
        if (rcclx_isa_use(isa_names[i]) == 0 &&
            (!check_all(t, op, divisor, scalar) || !check_last(t, op, divisor, scalar)))
            detail = isa_names[i];
    sprintf(name, "A13 %s %s, all pairs%s", rcclx_type_name(t), rcclx_redop_name(op),
            divisor == 2 ? ", divided by 2" : divisor ? ", divided by 3" : "");
    tap(detail[0] == 0, name, detail);
}

static void test_pairs(rcclx_type t)
{
    const uint64_t scalars[2] = {t == RCCLX_F8E4M3 ? 0x3c : 0x3e, 0xc5}; /* 1.5 and a negative one for floats */

    for (int i = 0; i < PAIRS; i++)
        left[i] = (unsigned char)(i >> 8), right[i] = (unsigned char)i;
    for (int op = 0; op < RCCLX_AVG; op++)
        check(t, (rcclx_redop)op, 0, NULL);
    check(t, RCCLX_AVG, 2, NULL);
    check(t, RCCLX_AVG, 3, NULL);
    check(t, RCCLX_PREMUL, 0, scalars);
}

/* All patterns of a 16-bit float, each with a random partner, a few times. */
static void test_patterns(rcclx_type t)
{
    char name[80];

    for (int op = 0; op < RCCLX_COPY; op++) {
        const uint64_t scalars[2] = {0x3a12, 0xbd34};
        int            good = 1;

        for (int round = 0; round < 4; round++) {
            for (int i = 0; i < PAIRS; i++) {
                const uint16_t a = (uint16_t)i, b = (uint16_t)random_bits();

                memcpy(round % 2 ? right + 2 * i : left + 2 * i, &a, 2);
                memcpy(round % 2 ? left + 2 * i : right + 2 * i, &b, 2);
            }
            expect(t, (rcclx_redop)op, 3, scalars);
            for (int k = 0; k < ISA_NAMES; k++)
                if (rcclx_isa_use(isa_names[k]) == 0)
                    good = good && check_all(t, (rcclx_redop)op, 3, scalars);
        }
        sprintf(name, "A14 %s %s, all patterns", rcclx_type_name(t), rcclx_redop_name((rcclx_redop)op));
        tap(good, name, "");
    }
}

/* The largest value eight times, and products that overflow f32 on the way. */
static void test_saturation(void)
{
    static const struct {
        const char *name;
        rcclx_type  type;
        rcclx_redop op;
        unsigned    value, last, expected;
    } cases[] = {
        {"A13 e4m3: eight times 448 is 448", RCCLX_F8E4M3, RCCLX_SUM, 0x7e, 0x7e, 0x7e},
        {"A13 e5m2: eight times 57344 is 57344", RCCLX_F8E5M2, RCCLX_SUM, 0x7b, 0x7b, 0x7b},
        {"A13 e5m2: eight times -57344 is -57344", RCCLX_F8E5M2, RCCLX_SUM, 0xfb, 0xfb, 0xfb},
        {"A13 e5m2: Inf stays Inf", RCCLX_F8E5M2, RCCLX_SUM, 0x7b, 0x7c, 0x7c},
        {"A13 e4m3: 448^63 is 448", RCCLX_F8E4M3, RCCLX_PROD, 0x7e, 0x7e, 0x7e},
        {"A13 e4m3: 448^63 times 0 is 0", RCCLX_F8E4M3, RCCLX_PROD, 0x7e, 0x00, 0x00},
        {"A13 e5m2: 57344^63 is 57344", RCCLX_F8E5M2, RCCLX_PROD, 0x7b, 0x7b, 0x7b},
        {"A13 e5m2: 57344^63 times 0 is 0", RCCLX_F8E5M2, RCCLX_PROD, 0x7b, 0x00, 0x00},
    };

    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const int   nsrc = cases[c].op == RCCLX_SUM ? 8 : 64;
        const void *src[64];
        int         good = 1;

        memset(left, (int)cases[c].value, 200), memset(right, (int)cases[c].last, 200);
        for (int s = 0; s < nsrc; s++)
            src[s] = s == nsrc - 1 ? right : left;
        for (int k = 0; k < ISA_NAMES; k++) {
            if (rcclx_isa_use(isa_names[k]) != 0)
                continue;
            rcclx_reduce(&(rcclx_reduce_args){.type = cases[c].type, .op = cases[c].op, .nsrc = nsrc, .ndst = 1, .src = src,
                                              .dst = (void *[]){got}, .count = 200});
            for (int i = 0; i < 200; i++)
                good = good && got[i] == cases[c].expected;
        }
        tap(good, cases[c].name, "");
    }
}

int main(void)
{
    reference_init();
    test_pairs(RCCLX_I8);
    test_pairs(RCCLX_U8);
    test_pairs(RCCLX_F8E4M3);
    test_pairs(RCCLX_F8E5M2);
    test_patterns(RCCLX_F16);
    test_patterns(RCCLX_BF16);
    test_saturation();
    return tap_done();
}
