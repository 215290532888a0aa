#include "codec_error.h"

#include <stdio.h>

/* How far sums over ranks are from the exact ones, by what is on the wire; CSV on standard output.
 *
 *   codec_error [GRADIENTS]
 *
 * GRADIENTS are those of 64 images, from `train_digits -n 1 --gradients FILE`; n ranks take 64 / n of them each, as
 * in training. `make accuracy` makes table, plot and the page's section of it (bench/accuracy.py). The same
 * numbers come every time. */
enum { COUNT = 1 << 16, IMAGES = 64, GRADIENT = 4811, LEAST_SIZE = -40, MOST_SIZE = 36 };

static const int         ranks[] = {2, 4, 8, 16, 32, 64};
static const char *const forms[ERROR_FORMS] = {"f32", "bf16", "fp8", "int8", "e4m3"};
static const char *const datas[ERROR_DATA]  = {"normal", "outliers", "student", "channels"};

static void print_seen(error_case *c, const char *data, double amplitude)
{
    for (int f = 0; f < ERROR_FORMS; f++) {
        error_sum(c, (error_form)f);
        const error_seen e = error_measure(c);
        printf("%s,%g,%s,%d,%.3e,%.3f,%.9f,%.6f\n", data, amplitude, forms[f], c->n, e.rms, e.worst, e.cosine, e.lost);
    }
}

/* Of n ranks, rank r has the images r, r + n, ... */
static void share_images(error_case *c, const float *gradient)
{
    memset(c->x, 0, (size_t)c->n * c->count * sizeof *c->x);
    for (int i = 0; i < IMAGES; i++)
        for (size_t k = 0; k < c->count; k++)
            c->x[(size_t)(i % c->n) * c->count + k] += gradient[(size_t)i * GRADIENT + k];
}

static bool over_ranks(const float *gradient)
{
    static const double amplitudes[] = {1, 1e-3, 100};
    error_case          c;

    for (size_t n = 0; n < sizeof ranks / sizeof ranks[0]; n++) {
        if (!error_open(&c, ranks[n], COUNT))
            return false;
        for (int d = 0; d < ERROR_DATA; d++)
            for (int a = 0; a < (d == ERROR_NORMAL ? 3 : 1); a++) {
                error_fill(&c, (error_data)d, amplitudes[a]);
                print_seen(&c, datas[d], amplitudes[a]);
            }
        error_close(&c);
        if (!gradient)
            continue;
        if (!error_open(&c, ranks[n], GRADIENT))
            return false;
        share_images(&c, gradient);
        print_seen(&c, "gradients", 1);
        error_close(&c);
    }
    return true;
}

static bool over_amplitudes(void)
{
    error_case c;

    if (!error_open(&c, 8, 1 << 13))
        return false;
    for (int e = LEAST_SIZE; e <= MOST_SIZE; e++) {
        error_fill(&c, ERROR_NORMAL, pow(10, e));
        print_seen(&c, "sweep", pow(10, e));
    }
    error_close(&c);
    return true;
}

int main(int argc, char **argv)
{
    static float gradient[IMAGES * GRADIENT + 1];
    FILE        *file = argc > 1 ? fopen(argv[1], "rb") : NULL;

    if (argc > 1 && (!file || fread(gradient, sizeof(float), IMAGES * GRADIENT + 1, file) != IMAGES * GRADIENT)) {
        fprintf(stderr, "codec_error: %s does not hold 64 gradients\n", argv[1]);
        return 1;
    }
    if (file)
        fclose(file);
    printf("data,amplitude,wire,ranks,rms,worst,cosine,lost\n");
    if (over_ranks(file ? gradient : NULL) && over_amplitudes())
        return 0;
    fprintf(stderr, "codec_error: no memory\n");
    return 1;
}
