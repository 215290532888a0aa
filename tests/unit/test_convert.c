#include "numerics_reference.h"

#include "device/convert.h"

/* Scalar conversions: every pattern of every small type widened and brought
 * back, and rounding held against a search for the nearest value: on random
 * f32, on all midpoints between neighbours, and one f32 to either side. */

typedef struct {
    const char  *name;
    small_float *f;
    float (*widen)(unsigned bits);
    unsigned (*round)(float x);
} format;

#define FORMAT(T, WIDTH)                                                      \
    static float    widen_##T(unsigned bits) { return rcclx_##T##_to_f32((WIDTH)bits); } \
    static unsigned round_##T(float x) { return rcclx_f32_to_##T(x); }
FORMAT(f16, uint16_t)
FORMAT(bf16, uint16_t)
FORMAT(e4m3, uint8_t)
FORMAT(e5m2, uint8_t)

static const format formats[] = {
    {"f16", &small_f16, widen_f16, round_f16},
    {"bf16", &small_bf16, widen_bf16, round_bf16},
    {"e4m3", &small_e4m3, widen_e4m3, round_e4m3},
    {"e5m2", &small_e5m2, widen_e5m2, round_e5m2},
};

static void report(const format *f, const char *what, int good)
{
    char name[80];

    sprintf(name, "%s: %s", f->name, what);
    tap(good, name, "");
}

static int same_value(double a, double b)
{
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

static void test_widen(const format *f)
{
    int good = 1, back = 1;

    for (unsigned u = 0; u < 1u << f->f->nbits; u++) {
        const double v = small_value(f->f, u);

        good = good && same_value(f->widen(u), v);
        back = back && f->round(f->widen(u)) == (isnan(v) ? (unsigned)f->f->nan : u);
    }
    report(f, "every pattern has its value", good);
    report(f, "every pattern comes back, NaN as the canonical one", back);
}

static int agrees(const format *f, float x)
{
    return f->round(x) == small_nearest(f->f, x);
}

static void test_round(const format *f)
{
    int ties = 1, random = 1;

    for (int code = 0; code <= f->f->most; code++)
        for (int sign = -1; sign <= 1; sign += 2) {
            const float middle = (float)(sign * (f->f->value[code] / 2 + f->f->value[code + 1] / 2));

            ties = ties && agrees(f, middle) && agrees(f, nextafterf(middle, 0)) && agrees(f, nextafterf(middle, sign * INFINITY));
        }
    for (int i = 0; i < 2000000; i++)
        random = random && agrees(f, float_of(random_bits()));
    report(f, "ties go to even, their neighbours to the nearer", ties);
    report(f, "random f32 go to the nearest", random);
}

static void test_overflow(void)
{
    const float inf = INFINITY;

    tap(rcclx_f32_to_f16(65519.99f) == 0x7bff && rcclx_f32_to_f16(65520.0f) == 0x7c00 && rcclx_f32_to_f16(-inf) == 0xfc00,
        "f16 overflows to Inf from 65520 on", "");
    tap(rcclx_f32_to_bf16(FLT_MAX) == 0x7f80 && rcclx_f32_to_bf16(-inf) == 0xff80, "bf16 overflows to Inf", "");
    tap(rcclx_f32_to_e4m3(449) == 0x7e && rcclx_f32_to_e4m3(1e30f) == 0x7e && rcclx_f32_to_e4m3(-inf) == 0xfe,
        "e4m3 saturates at 448, Inf too", "");
    tap(rcclx_f32_to_e5m2(65536) == 0x7b && rcclx_f32_to_e5m2(-1e30f) == 0xfb && rcclx_f32_to_e5m2(inf) == 0x7c,
        "e5m2 saturates at 57344, Inf stays", "");
}

int main(void)
{
    reference_init();
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        test_widen(&formats[i]);
        test_round(&formats[i]);
    }
    test_overflow();
    return tap_done();
}
