/* Train a small network on handwritten digits, on several ranks.
 *
 *     train_digits [-n RANKS] [-c] [-d FILE]     starts its ranks itself (4)
 *     rcclx run -n 4 train_digits                joins as one of them
 *
 *     -c                      the curve as CSV
 *     -d FILE                 another copy of data/digits.txt
 *     --low-precision CODEC   gradients are summed in int8 or fp8
 *     --seeds N               train N times, with other weights and another order
 *     --gradients FILE        the gradient of each image of the last epoch's first
 *                             batch goes there: 64 times 4811 floats (bench/codec_error.c)
 *
 * Data parallel training, as in large: every rank holds the whole network and
 * works on its share of each batch; the gradients of all are summed, and each
 * rank takes the same step.
 *
 *     batch of 64 images      r0 r1 r2 r3 r0 r1 r2 r3 ...
 *     forward, backward       each rank: gradient of its images / 64
 *     ncclAllReduce (sum)     everybody has the gradient of the batch
 *     momentum and step       the same numbers in, the same weights out
 *
 * What holds, and is checked here:
 *   - the weights of all ranks are the same to the last bit, after every epoch;
 *   - the curve is that of one rank, which rank 0 trains alone at the end. Both
 *     add the same 64 gradients, in another order, so they differ by rounding
 *     in float32: at most TOLERANCE in the loss of any epoch;
 *   - in low precision the curve is another one. The accuracy, a mean over seeds,
 *     is that of one rank in full precision, 0.3 points more or less with 10 seeds;
 *   - at least 95 % of the images never trained on are recognised. */
#include <getopt.h>
#include <math.h>
#include <rcclx.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIXELS = 64, HIDDEN = 64, DIGITS = 10, IMAGES = 1797, BATCH = 64, EPOCHS = 20 };

/* One flat array of parameters, so that one all-reduce takes all gradients;
 * behind them the loss, which travels along. */
enum {
    W1   = 0,
    B1   = W1 + HIDDEN * PIXELS,
    W2   = B1 + HIDDEN,
    B2   = W2 + DIGITS * HIDDEN,
    LOSS = B2 + DIGITS,
    SIZE = LOSS + 1
};

static const float  RATE = 0.1f, MOMENTUM = 0.9f;
static const double TOLERANCE = 1e-5, ENOUGH = 0.95;
static const double APART = 0.0095; /* of the accuracy, in low precision; of N seeds' mean 1 / sqrt(N) of it */

struct wish {
    int         size, csv, seeds;
    const char *path, *codec, *gradients; /* codec: NULL for full precision */
};

struct image {
    float pixel[PIXELS];
    int   digit;
};

struct data {
    struct image train[IMAGES], test[IMAGES];
    int          ntrain, ntest;
};

/* A rank in training. comm is NULL when it trains alone. */
struct rank {
    ncclComm_t  comm;
    int         number, size;
    const char *codec;
    float      *weight, *gradient, *speed; /* SIZE each; the first two from ncclMemAlloc */
};

struct curve {
    double loss[EPOCHS], accuracy[EPOCHS];
};

static void must(ncclResult_t result)
{
    if (result == ncclSuccess)
        return;
    fprintf(stderr, "train_digits: %s: %s\n", ncclGetErrorString(result), ncclGetLastError(NULL));
    exit(1);
}

static void fail(const char *why)
{
    fprintf(stderr, "train_digits: %s\n", why);
    exit(1);
}

/* ---- data --------------------------------------------------------------- */

/* data/digits.txt stands beside this file. */
static const char *default_path(void)
{
    static char path[4096];
    const char *slash = strrchr(__FILE__, '/');
    const int   stem  = slash ? (int)(slash - __FILE__) + 1 : 0;

    snprintf(path, sizeof path, "%.*sdata/digits.txt", stem, __FILE__);
    return path;
}

static struct data *read_data(const char *path)
{
    static const char digits[] = "0123456789abcdefg";
    struct data      *data     = calloc(1, sizeof *data);
    FILE             *file     = fopen(path, "r");
    char              pixels[PIXELS + 1];
    int               digit;

    if (!data || !file) {
        perror(path);
        exit(1);
    }
    for (int i = 0; i < IMAGES; i++) {
        struct image *image = i % 5 == 4 ? &data->test[data->ntest++] : &data->train[data->ntrain++];

        if (fscanf(file, "%64s %d", pixels, &digit) != 2 || strspn(pixels, digits) != PIXELS || digit < 0 || digit > 9)
            fail("the data file is damaged");
        for (int k = 0; k < PIXELS; k++)
            image->pixel[k] = (float)(strchr(digits, pixels[k]) - digits) / 16;
        image->digit = digit;
    }
    fclose(file);
    return data;
}

/* A generator of our own: the same numbers everywhere. */
static uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static void shuffle(int *order, int count, uint64_t *state)
{
    for (int i = count - 1; i > 0; i--) {
        const int k    = (int)(draw(state) % (uint32_t)(i + 1));
        const int kept = order[i];

        order[i] = order[k];
        order[k] = kept;
    }
}

/* ---- the network: 64 pixels, 64 hidden, 10 digits ------------------------ */

static void set_up(float *weight, int seed)
{
    const struct {
        int   first, count;
        float width;
    } layer[] = { { W1, HIDDEN * PIXELS, 0.3f }, { W2, DIGITS * HIDDEN, 0.3f } };
    uint64_t state = 1 + 2 * (uint64_t)seed;

    memset(weight, 0, SIZE * sizeof *weight);
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < layer[l].count; i++)
            weight[layer[l].first + i] = ((float)draw(&state) / 0x40000000 - 1) * layer[l].width;
}

static void forward(const float *weight, const struct image *image, float *hidden, float *chance)
{
    float highest = -INFINITY, sum = 0;

    for (int h = 0; h < HIDDEN; h++) {
        float x = weight[B1 + h];

        for (int k = 0; k < PIXELS; k++)
            x += weight[W1 + h * PIXELS + k] * image->pixel[k];
        hidden[h] = x > 0 ? x : 0;
    }
    for (int d = 0; d < DIGITS; d++) {
        chance[d] = weight[B2 + d];
        for (int h = 0; h < HIDDEN; h++)
            chance[d] += weight[W2 + d * HIDDEN + h] * hidden[h];
        highest = fmaxf(highest, chance[d]);
    }
    for (int d = 0; d < DIGITS; d++)
        sum += chance[d] = expf(chance[d] - highest);
    for (int d = 0; d < DIGITS; d++)
        chance[d] /= sum;
}

/* Add the gradient, and the loss, of one image, divided by the batch's size. */
static void add_gradient(const float *weight, const struct image *image, float *gradient)
{
    float hidden[HIDDEN], chance[DIGITS], back[HIDDEN] = { 0 };

    forward(weight, image, hidden, chance);
    gradient[LOSS] -= logf(fmaxf(chance[image->digit], 1e-30f)) / BATCH;
    for (int d = 0; d < DIGITS; d++) {
        const float slope = (chance[d] - (d == image->digit)) / BATCH;

        gradient[B2 + d] += slope;
        for (int h = 0; h < HIDDEN; h++) {
            gradient[W2 + d * HIDDEN + h] += slope * hidden[h];
            back[h] += slope * weight[W2 + d * HIDDEN + h];
        }
    }
    for (int h = 0; h < HIDDEN; h++) {
        if (hidden[h] <= 0)
            continue;
        gradient[B1 + h] += back[h];
        for (int k = 0; k < PIXELS; k++)
            gradient[W1 + h * PIXELS + k] += back[h] * image->pixel[k];
    }
}

/* ---- training ------------------------------------------------------------ */

/* Every rank looks at its share of the test images; the hits are summed. */
static double accuracy(const struct rank *rank, const struct data *data)
{
    int32_t hits = 0;

    for (int i = rank->number; i < data->ntest; i += rank->size) {
        float hidden[HIDDEN], chance[DIGITS];
        int   best = 0;

        forward(rank->weight, &data->test[i], hidden, chance);
        for (int d = 1; d < DIGITS; d++)
            if (chance[d] > chance[best])
                best = d;
        hits += best == data->test[i].digit;
    }
    if (rank->comm)
        must(ncclAllReduce(&hits, &hits, 1, ncclInt32, ncclSum, rank->comm, NULL));
    return (double)hits / data->ntest;
}

/* Everybody gets the sum: as bytes with a scale for 32 of them, if a codec was named, however short it is. */
static void sum_gradients(const struct rank *rank)
{
    ncclConfigExt_t  low    = { .key = { RCCLX_VENDOR_ID, RCCLX_OPTION_LOW_PRECISION }, .val = { .s = rank->codec } };
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;

    config.ext = rank->codec ? &low : NULL;
    must(ncclAllReduceConfig(rank->gradient, rank->gradient, SIZE, ncclFloat32, ncclSum, rank->comm, NULL, &config));
}

/* One batch; returns its loss. */
static double step(struct rank *rank, const struct data *data, const int *batch)
{
    memset(rank->gradient, 0, SIZE * sizeof(float));
    for (int i = rank->number; i < BATCH; i += rank->size)
        add_gradient(rank->weight, &data->train[batch[i]], rank->gradient);
    if (rank->comm)
        sum_gradients(rank);
    for (int i = 0; i < LOSS; i++) {
        rank->speed[i] = MOMENTUM * rank->speed[i] - RATE * rank->gradient[i];
        rank->weight[i] += rank->speed[i];
    }
    return rank->gradient[LOSS];
}

static uint64_t fingerprint(const float *weight)
{
    const unsigned char *byte = (const unsigned char *)weight;
    uint64_t             hash = 14695981039346656037u;

    for (size_t i = 0; i < LOSS * sizeof *weight; i++)
        hash = (hash ^ byte[i]) * 1099511628211u;
    return hash;
}

/* All ranks must hold the same bits. */
static void compare_weights(const struct rank *rank, int epoch)
{
    const uint64_t mine = fingerprint(rank->weight);
    uint64_t      *all  = calloc((size_t)rank->size, sizeof *all);

    if (!all)
        fail("no memory");
    must(ncclAllGather(&mine, all, 1, ncclUint64, rank->comm, NULL));
    for (int r = 0; r < rank->size; r++)
        if (all[r] != mine) {
            fprintf(stderr, "train_digits: epoch %d: ranks %d and %d hold different weights\n", epoch, rank->number, r);
            exit(1);
        }
    free(all);
}

/* What each image of a batch alone would bring: of those in a rank's share, the sum is the rank's gradient. */
static void write_gradients(const char *path, const struct rank *rank, const struct data *data, const int *batch)
{
    FILE *file = fopen(path, "wb");
    int   bad  = !file;

    for (int i = 0; i < BATCH && !bad; i++) {
        memset(rank->gradient, 0, SIZE * sizeof(float));
        add_gradient(rank->weight, &data->train[batch[i]], rank->gradient);
        bad = fwrite(rank->gradient, sizeof(float), SIZE, file) != SIZE;
    }
    if (bad || fclose(file)) {
        perror(path);
        exit(1);
    }
}

/* gradients: where those of the last epoch's first batch go, or NULL. */
static struct curve train(struct rank *rank, const struct data *data, int seed, const char *gradients)
{
    struct curve curve = { 0 };
    uint64_t     state = 2 + 2 * (uint64_t)seed;
    int          order[IMAGES];

    if (rank->number == 0)
        set_up(rank->weight, seed);
    if (rank->comm)
        must(ncclBroadcast(rank->weight, rank->weight, SIZE, ncclFloat32, 0, rank->comm, NULL));
    memset(rank->speed, 0, SIZE * sizeof(float));
    for (int i = 0; i < data->ntrain; i++)
        order[i] = i;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        const int nbatches = data->ntrain / BATCH;

        shuffle(order, data->ntrain, &state);
        if (gradients && epoch == EPOCHS - 1 && rank->number == 0)
            write_gradients(gradients, rank, data, order);
        for (int b = 0; b < nbatches; b++)
            curve.loss[epoch] += step(rank, data, order + b * BATCH) / nbatches;
        curve.accuracy[epoch] = accuracy(rank, data);
        if (rank->comm)
            compare_weights(rank, epoch);
    }
    return curve;
}

/* ---- what came out -------------------------------------------------------- */

static void print_curve(const struct curve *curve, int csv)
{
    puts(csv ? "epoch,loss,test_accuracy" : "epoch    loss  test accuracy");
    for (int e = 0; e < EPOCHS; e++) {
        if (csv) {
            printf("%d,%.7f,%.5f\n", e + 1, curve->loss[e], curve->accuracy[e]);
            continue;
        }
        printf("%5d  %.4f        %4.1f %%  ", e + 1, curve->loss[e], 100 * curve->accuracy[e]);
        for (int i = 0; i < (int)(24 * curve->loss[e]); i++)
            putchar('#');
        putchar('\n');
    }
}

/* The curve of one rank, in full precision, and how far the mean accuracy of other seeds, too, is from it. */
static int report_low(FILE *out, const struct rank *rank, struct rank *alone, const struct data *data, int seeds, double mean)
{
    const double allowed = APART / sqrt(seeds);
    double       full    = 0;

    for (int seed = 0; seed < seeds; seed++)
        full += train(alone, data, seed, NULL).accuracy[EPOCHS - 1] / seeds;
    fprintf(out, "in %s: %.2f points from the %.2f %% of full precision (allowed: %.2f)\n", rank->codec,
            100 * fabs(mean - full), 100 * full, 100 * allowed);
    if (fabs(mean - full) > allowed)
        fprintf(stderr, "train_digits: the accuracy is not that of full precision\n");
    return fabs(mean - full) > allowed;
}

static int report_full(FILE *out, struct rank *alone, const struct data *data, const struct curve *curve)
{
    const struct curve wanted = train(alone, data, 0, NULL);
    double             apart  = 0;

    for (int e = 0; e < EPOCHS; e++)
        apart = fmax(apart, fabs(curve->loss[e] - wanted.loss[e]));
    fprintf(out, "loss curve: at most %.1e from that of one rank alone (allowed: %.0e)\n", apart, TOLERANCE);
    if (apart > TOLERANCE)
        fprintf(stderr, "train_digits: the curve is not that of one rank\n");
    return apart > TOLERANCE;
}

/* Rank 0 reports; 0 when all is as promised. With -c the sentences go to
 * standard error, so that the table stands alone. */
static int report(const struct rank *rank, const struct data *data, const struct wish *wish, const struct curve *curve,
                  double mean)
{
    FILE          *out    = wish->csv ? stderr : stdout;
    struct rank    alone  = { .size = 1, .weight = rank->weight, .gradient = rank->gradient, .speed = rank->speed };
    const uint64_t weight = fingerprint(rank->weight);
    int            bad;

    print_curve(curve, wish->csv);
    fflush(stdout);
    fprintf(out, "ranks: %d, parameters: %d, trained on %d images, tested on %d others\n", rank->size, LOSS,
            data->ntrain, data->ntest);
    fprintf(out, "test accuracy: %.2f %%\n", 100 * mean);
    if (wish->seeds > 1)
        fprintf(out, "(mean of %d seeds; the curve is that of the first)\n", wish->seeds);
    fprintf(out, "weights: identical on all ranks, fingerprint %016llx\n", (unsigned long long)weight);
    bad = rank->codec ? report_low(out, rank, &alone, data, wish->seeds, mean) : report_full(out, &alone, data, curve);
    if (mean < ENOUGH)
        fprintf(stderr, "train_digits: fewer than 95 %% recognised\n");
    return bad || mean < ENOUGH;
}

static int live(ncclComm_t comm, const struct data *data, const struct wish *wish)
{
    struct rank  rank = { .comm = comm, .codec = wish->codec, .speed = calloc(SIZE, sizeof(float)) };
    struct curve first = { 0 }, curve;
    double       mean = 0;
    int          bad = 0;

    if (!rank.speed)
        fail("no memory");
    must(ncclCommUserRank(comm, &rank.number));
    must(ncclCommCount(comm, &rank.size));
    must(ncclMemAlloc((void **)&rank.weight, SIZE * sizeof(float)));
    must(ncclMemAlloc((void **)&rank.gradient, SIZE * sizeof(float)));
    for (int seed = 0; seed < wish->seeds; seed++) {
        curve = train(&rank, data, seed, seed == 0 ? wish->gradients : NULL);
        if (seed == 0)
            first = curve;
        mean += curve.accuracy[EPOCHS - 1] / wish->seeds;
    }
    if (rank.number == 0)
        bad = report(&rank, data, wish, &first, mean);
    must(ncclCommDestroy(comm));
    must(ncclMemFree(rank.gradient));
    must(ncclMemFree(rank.weight));
    free(rank.speed);
    return bad;
}

/* ---- ranks of our own ------------------------------------------------------ */

/* Rank 0 makes the id and puts a copy for each of the others into the pipe. */
static ncclComm_t join(int number, int size, const int *pipe_ends)
{
    ncclUniqueId id;
    ncclComm_t   comm;

    if (number == 0) {
        must(ncclGetUniqueId(&id));
        for (int i = 1; i < size; i++)
            if (write(pipe_ends[1], &id, sizeof id) != (ssize_t)sizeof id)
                fail("cannot hand over the id");
    } else {
        close(pipe_ends[1]);
        if (read(pipe_ends[0], &id, sizeof id) != (ssize_t)sizeof id)
            fail("rank 0 gave no id");
    }
    must(ncclCommInitRank(&comm, size, id, number));
    return comm;
}

/* The first that fails takes the others with it. */
static int start_ranks(const struct data *data, const struct wish *wish)
{
    const int size = wish->size;
    pid_t     pid[BATCH];
    int       pipe_ends[2], started, bad = 0, state;

    if (pipe(pipe_ends)) {
        perror("train_digits: pipe");
        return 1;
    }
    for (started = 0; started < size; started++) {
        pid[started] = fork();
        if (pid[started] == 0)
            exit(live(join(started, size, pipe_ends), data, wish));
        if (pid[started] < 0) {
            perror("train_digits: fork");
            bad = 1;
            break;
        }
    }
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    for (int left = started; left > 0; left--) {
        const pid_t gone = wait(&state);

        bad |= gone < 0 || state != 0;
        for (int r = 0; r < started; r++) {
            if (pid[r] == gone)
                pid[r] = 0;
            else if (bad && pid[r])
                kill(pid[r], SIGTERM);
        }
    }
    return bad;
}

static int number_of(const char *text, int most, const char *why)
{
    char      *end;
    const long number = strtol(text, &end, 10);

    if (*end || number < 1 || number > most)
        fail(why);
    return (int)number;
}

static struct wish read_options(int argc, char **argv)
{
    static const struct option names[] = { { "low-precision", required_argument, NULL, 'p' },
                                           { "seeds", required_argument, NULL, 's' },
                                           { "gradients", required_argument, NULL, 'g' },
                                           { NULL, 0, NULL, 0 } };
    struct wish wish = { .size = 4, .seeds = 1, .path = default_path() };

    for (int c; (c = getopt_long(argc, argv, "n:cd:", names, NULL)) != -1;) {
        if (c == 'n')
            wish.size = number_of(optarg, BATCH, "-n takes 1 to 64 ranks");
        else if (c == 'c')
            wish.csv = 1;
        else if (c == 'd')
            wish.path = optarg;
        else if (c == 'p')
            wish.codec = optarg;
        else if (c == 's')
            wish.seeds = number_of(optarg, 1000, "--seeds takes 1 to 1000");
        else if (c == 'g')
            wish.gradients = optarg;
        else
            exit(2);
    }
    if (optind < argc)
        fail("usage: train_digits [-n RANKS] [-c] [-d FILE] [--low-precision int8|fp8] [--seeds N] [--gradients FILE]");
    return wish;
}

int main(int argc, char **argv)
{
    const struct wish wish = read_options(argc, argv);
    rcclxEnv_t        env;
    ncclComm_t        comm;

    setenv("RCCLX_DEVICE", "host", 1); /* the network lives in host memory */
    must(rcclxEnvRank(&env));
    if (!strcmp(env.launcher, "none"))
        return start_ranks(read_data(wish.path), &wish);
    must(rcclxCommInitEnv(&comm, NULL));
    return live(comm, read_data(wish.path), &wish);
}
