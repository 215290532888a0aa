/* The accuracy of all-reduces in low precision, as docs/numerics.md promises it: no element is off by more
 * than the bounds, which follow from the inputs alone; relative RMS errors stay below the bars for any number
 * of ranks; and what is measured so, in one process, is bit for bit what the library gives its ranks. */
#include "check.h"
#include "users/together.h"

#include "../../bench/codec_error.h"

typedef struct {
    error_form     form;
    rcclx_codec_id codec;
    double         most, bar, bar_rough; /* the largest code; the bar of normal data, of data in which few values are large */
} coded;

static const coded all[] = {{ERROR_FP8, RCCLX_CODEC_FP8, 416, 0.040, 0.040}, {ERROR_INT8, RCCLX_CODEC_INT8, 126, 0.010, 0.016}};
enum { CODED = sizeof all / sizeof all[0], BLOCK = RCCLX_CODEC_BLOCK };

static const char *name_of(const coded *f)
{
    return rcclx_codecs[f->codec]->name;
}

/* ---- bounds */

/* The most that a block's scale can be, and a quantisation of x with it be off: half a step. 1/scale is rounded, too. */
static double scale_most(const coded *f, double greatest)
{
    return fmax(greatest / f->most * (1 + 0x1p-7) * (1 + 0x1p-22), 0x1p-126);
}

static double step_most(const coded *f, double x, double greatest)
{
    const double s = scale_most(f, greatest);

    return f->form == ERROR_INT8 ? s * (0.5 + 0x1p-17) : fmax(fabs(x) / 16, s * 0x1p-10 * (1 + 0x1p-20));
}

static double greatest_of(const float *x, size_t n)
{
    double m = 0;

    for (size_t i = 0; i < n; i++)
        m = fmax(m, fabs((double)x[i]));
    return m;
}

/* How far the sums of a block at `from` may be off: others' contributions, n - 1 additions, the sum's own step. */
static void bound_block(const coded *f, const error_case *c, int owner, size_t from, size_t n, double *bound)
{
    double greatest = 0, size[BLOCK] = {0};

    memset(bound, 0, n * sizeof *bound);
    for (int r = 0; r < c->n; r++) {
        const float *const x = c->x + (size_t)r * c->count + from;
        const double       m = greatest_of(x, n);
        for (size_t i = 0; i < n; i++) {
            const double step = r == owner ? 0 : step_most(f, (double)x[i], m);
            bound[i] += step;
            size[i] += fabs((double)x[i]) + step;
        }
    }
    for (size_t i = 0; i < n; i++) {
        bound[i] += (c->n - 1) * 0x1p-24 * size[i];
        greatest = fmax(greatest, fabs(c->exact[from + i]) + bound[i]);
    }
    for (size_t i = 0; i < n; i++)
        bound[i] += step_most(f, fabs(c->exact[from + i]) + bound[i], greatest);
}

/* The greatest error, its bound being 1; above 1 once any element is beyond. */
static double nearest_to_bound(const coded *f, const error_case *c)
{
    double nearest = 0, bound[BLOCK];
    size_t begin, length;

    for (int owner = 0; owner < c->n; owner++) {
        rcclx_split(c->count, sizeof(float), c->n, owner, &begin, &length);
        for (size_t at = 0; at < length; at += BLOCK) {
            const size_t from = begin + at, n = length - at < BLOCK ? length - at : BLOCK;
            bound_block(f, c, owner, from, n, bound);
            for (size_t i = 0; i < n; i++) {
                const double off = fabs((double)c->y[from + i] - c->exact[from + i]);
                nearest = fmax(nearest, off / bound[i]);
                if (!CHECK(off <= bound[i], "%s, %d ranks, element %zu: %g instead of %g, off by %g, bound %g", name_of(f), c->n,
                           from + i, (double)c->y[from + i], c->exact[from + i], off, bound[i]))
                    return 2;
            }
        }
    }
    return nearest;
}

TEST(every_element_is_within_its_bound)
{
    static const int    ranks[]      = {2, 3, 8, 64};
    static const double amplitudes[] = {1, 1e-37, 1e-30, 100, 1e30};

    for (size_t n = 0; n < sizeof ranks / sizeof ranks[0]; n++) {
        double     nearest[CODED] = {0};
        error_case c;
        REQUIRE(error_open(&c, ranks[n], 8009), "no memory");
        for (int i = 0; i < ERROR_DATA * (int)(sizeof amplitudes / sizeof amplitudes[0]); i++) {
            error_fill(&c, (error_data)(i % ERROR_DATA), amplitudes[i / ERROR_DATA]);
            for (int k = 0; k < CODED; k++) {
                error_sum(&c, all[k].form);
                nearest[k] = fmax(nearest[k], nearest_to_bound(&all[k], &c));
            }
        }
        error_close(&c);
        for (int k = 0; k < CODED; k++) {
            check_say("# %s, %d ranks: the greatest error is %.2f of its bound\n", name_of(&all[k]), ranks[n], nearest[k]);
            CHECK(ranks[n] > 2 || nearest[k] > 0.9, "a bound that nothing comes near: %.2f", nearest[k]);
        }
    }
}

/* ---- bars */

static void hold_bar(const coded *f, error_case *c, error_data data, double *rms)
{
    const double bar = data == ERROR_NORMAL ? f->bar : f->bar_rough;

    error_sum(c, f->form);
    const error_seen e = error_measure(c);
    CHECK(e.rms <= bar && e.lost == 0 && e.cosine > 1 - bar * bar, "%s, data %d, %d ranks: RMS %.4f, cosine %.6f, lost %g",
          name_of(f), (int)data, c->n, e.rms, e.cosine, e.lost);
    if (c->n == 2)
        *rms = e.rms;
    CHECK(data != ERROR_NORMAL || e.rms < 1.2 * *rms, "%s: %.4f with %d ranks, %.4f with two", name_of(f), e.rms, c->n, *rms);
}

TEST(errors_stay_below_the_bars_whatever_the_ranks)
{
    double two[ERROR_DATA][CODED] = {{0}};

    for (int n = 2; n <= ERROR_RANKS; n += n < 8 ? 1 : n) {
        error_case c;
        REQUIRE(error_open(&c, n, 1 << 14), "no memory");
        for (int d = 0; d < ERROR_DATA; d++) {
            error_fill(&c, (error_data)d, 1);
            for (int k = 0; k < CODED; k++)
                hold_bar(&all[k], &c, (error_data)d, &two[d][k]);
        }
        error_close(&c);
    }
}

TEST(errors_do_not_depend_on_the_amplitude)
{
    error_case c;

    REQUIRE(error_open(&c, 8, 1 << 12), "no memory");
    for (int e = -30; e <= 30; e++) {
        error_fill(&c, ERROR_NORMAL, pow(10, e));
        for (int k = 0; k < CODED; k++) {
            error_sum(&c, all[k].form);
            const error_seen seen = error_measure(&c);
            CHECK(seen.rms <= all[k].bar && seen.lost == 0, "%s, 1e%d: %.4f", name_of(&all[k]), e, seen.rms);
        }
    }
    error_close(&c);
}

/* ---- the library itself */

typedef struct {
    const coded *f;
    error_case   c;
} call;

static int rank_main(int rank, int n, void *arg)
{
    call *const      a      = arg;
    ncclConfigExt_t  low    = {.key = {RCCLX_VENDOR_ID, RCCLX_OPTION_LOW_PRECISION_CODEC}, .val = {.i = (int)a->f->codec}};
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    float *const     mine   = a->c.x + (size_t)rank * a->c.count;
    ncclComm_t       comm   = together(0, rank, n);

    if (!comm)
        return 1;
    config.ext = &low;
    OK(ncclAllReduceConfig(mine, mine, a->c.count, ncclFloat, ncclSum, comm, NULL, &config));
    OK(ncclCommDestroy(comm));
    return !CHECK(!memcmp(mine, a->c.y, a->c.count * sizeof *mine), "rank %d of %d: not the bits of the sum by hand", rank, n);
}

TEST(ranks_of_the_library_get_these_bits)
{
    static const int ranks[] = {2, 5, 16};

    for (int k = 0; k < CODED; k++)
        for (size_t n = 0; n < sizeof ranks / sizeof ranks[0]; n++) {
            call a = {.f = &all[k]};
            REQUIRE(error_open(&a.c, ranks[n], 100003), "no memory");
            error_fill(&a.c, ERROR_STUDENT, 1);
            error_sum(&a.c, all[k].form);
            together_prepare();
            CHECK(run_ranks_as_threads(ranks[n], rank_main, &a) == 0, "%s, %d ranks failed", name_of(&all[k]), ranks[n]);
            error_close(&a.c);
        }
}
