/* Hundreds of operations in flight, on ranks that are out of step: random kinds, sizes, roots, streams and
 * groups, posted without waiting, with pauses of up to 10 ms on each rank by itself.
 *
 *   buffer of a rank   | constants | words that operations read and write, in and out of place ... |
 *   model              the same of all ranks, on every rank's host: each operation is done there, too
 *
 * Operations read what others have written, so that one that runs too early, too late or twice spoils
 * what is compared at the end: all words of all ranks. Sums of constants are floats that add up exactly,
 * everything else is integers that wrap. */
#include "gpu/gpu_ranks.h"

TIME_LIMIT(600)

enum { WORDS = 40000, CONSTANTS = 8000, FLIGHT = 200, MOST_ACTS = 2000, MOST_GROUP = 6 };
enum { SHIFT = RCCLX_COLL_COUNT, NKINDS }; /* everybody sends to its neighbour some ranks away */
typedef enum { SUM, PROD, MAX, MIN, FLOAT_SUM, NOPS } operation;

typedef struct {
    int       kind, root, away;
    operation op;
    size_t    count, in, out; /* words; where they begin on rank 0 */
    bool      in_place;
    int       group;          /* acts of a group have its number */
} act;

/* What happens on one communicator. */
typedef struct {
    int              n;
    ncclComm_t       comm[CONFORM_RANKS];        /* of the place's ranks */
    rcclx_gpu_stream stream[CONFORM_RANKS][2];
    char            *buffer[CONFORM_RANKS];
    uint32_t        *model[CONFORM_RANKS];       /* of all ranks */
    uint16_t        *writer[CONFORM_RANKS];      /* which act wrote a word last */
    uint32_t        *fresh[CONFORM_RANKS];
    uint64_t         dice;                       /* the same on all ranks */
    int              nacts;
} play;

/* ---- an act: which words it reads and writes */

static size_t in_words(const act *a, int n, int rank)
{
    const size_t all = a->count * (size_t)n;

    switch (a->kind) {
    case RCCLX_REDUCE_SCATTER: case RCCLX_ALL_TO_ALL: case RCCLX_ALL_TO_ALLV: return all;
    case RCCLX_SCATTER: return rank == a->root ? all : 0;
    case RCCLX_BROADCAST: return rank == a->root ? a->count : 0;
    default: return a->count;
    }
}

static size_t out_words(const act *a, int n, int rank)
{
    const size_t all = a->count * (size_t)n;

    switch (a->kind) {
    case RCCLX_ALL_GATHER: case RCCLX_ALL_TO_ALL: case RCCLX_ALL_TO_ALLV: return all;
    case RCCLX_GATHER: return rank == a->root ? all : 0;
    case RCCLX_REDUCE_TO: return rank == a->root ? a->count : 0;
    default: return a->count;
    }
}

static bool is_gather(int kind) { return kind == RCCLX_ALL_GATHER || kind == RCCLX_GATHER; }
static bool is_scatter(int kind) { return kind == RCCLX_REDUCE_SCATTER || kind == RCCLX_SCATTER; }

static size_t in_at(const act *a, int rank)
{
    return a->in_place && is_gather(a->kind) ? a->out + a->count * (size_t)rank : a->in;
}

static size_t out_at(const act *a, int rank)
{
    return a->in_place && is_scatter(a->kind) ? a->in + a->count * (size_t)rank : a->out;
}

/* Words for rank `to` from rank `from` in an all-to-all-v. */
static size_t part_of(const act *a, int from, int to)
{
    return a->count * (size_t)((from + 2 * to + a->away) % 4) / 3;
}

/* All that some rank may read, or write, if it is n ranks' size. */
static void reach(const act *a, int n, size_t from[2], size_t to[2])
{
    const size_t most_in = in_words(a, n, a->root), most_out = out_words(a, n, a->root);

    from[0] = a->in, to[0] = a->in + most_in;
    from[1] = a->out, to[1] = a->out + most_out;
    if (a->in_place) {
        from[0] = from[1] = a->in;
        to[0] = to[1] = a->in + (most_in > most_out ? most_in : most_out);
    }
}

/* Does one of them write what the other one uses? */
static bool collide(const act *a, const act *b, int n)
{
    size_t af[2], at[2], bf[2], bt[2];

    reach(a, n, af, at);
    reach(b, n, bf, bt);
    for (int i = 0; i < 2; i++)
        if ((af[1] < bt[i] && bf[i] < at[1]) || (bf[1] < at[i] && af[i] < bt[1]))
            return true;
    return false;
}

static size_t place_for(uint64_t *dice, size_t first, size_t words)
{
    const size_t at = first + (size_t)gpu_roll(dice, (int)(WORDS - first - words));

    return gpu_roll(dice, 4) ? at & ~(size_t)3 : at; /* mostly aligned for vectors; `first` is */
}

static void draw_act(play *p, act *a)
{
    static const size_t counts[] = { 0, 1, 3, 16, 33, 100, 256, 700, 1500 };
    const int           n = p->n;

    *a = (act){ .kind = gpu_roll(&p->dice, NKINDS), .root = gpu_roll(&p->dice, n), .away = gpu_roll(&p->dice, 4),
                .op = (operation)gpu_roll(&p->dice, NOPS), .count = counts[gpu_roll(&p->dice, 9)] };
    if (a->op == FLOAT_SUM && !(a->kind < RCCLX_COLL_COUNT && rcclx_kind_reduces((rcclx_kind)a->kind)))
        a->op = SUM;
    if (a->kind == RCCLX_REDUCE_SCATTER && a->op == FLOAT_SUM && a->count * (size_t)n > CONSTANTS)
        a->count = 700;
    const size_t in = in_words(a, n, a->root), out = out_words(a, n, a->root);
    a->in_place = a->kind != RCCLX_ALL_TO_ALLV && a->kind != SHIFT && a->op != FLOAT_SUM && !gpu_roll(&p->dice, 4);
    if (a->in_place) {
        a->in = a->out = place_for(&p->dice, CONSTANTS, in > out ? in : out);
        return;
    }
    do {
        a->in = a->op == FLOAT_SUM ? (size_t)gpu_roll(&p->dice, (int)(CONSTANTS - in + 1)) : place_for(&p->dice, 0, in);
        a->out = place_for(&p->dice, CONSTANTS, out);
    } while (a->in < a->out + out && a->out < a->in + in);
}

/* ---- the model */

static uint32_t combine(operation op, uint32_t a, uint32_t b)
{
    float x, y;

    switch (op) {
    case SUM: return a + b;
    case PROD: return a * b;
    case MAX: return a > b ? a : b;
    case MIN: return a < b ? a : b;
    default:
        memcpy(&x, &a, 4), memcpy(&y, &b, 4);
        x += y;
        memcpy(&a, &x, 4);
        return a;
    }
}

static uint32_t reduced(const play *p, const act *a, size_t j)
{
    uint32_t x = p->model[0][in_at(a, 0) + j];

    for (int r = 1; r < p->n; r++)
        x = combine(a->op, x, p->model[r][in_at(a, r) + j]);
    return x;
}

static uint32_t result(const play *p, const act *a, int rank, size_t j)
{
    const size_t c = a->count, mine = c * (size_t)rank;
    const int    from = c ? (int)(j / c) : 0;

    switch (a->kind) {
    case RCCLX_ALL_REDUCE: case RCCLX_REDUCE_TO: return reduced(p, a, j);
    case RCCLX_REDUCE_SCATTER: return reduced(p, a, mine + j);
    case RCCLX_BROADCAST: return p->model[a->root][in_at(a, a->root) + j];
    case RCCLX_SCATTER: return p->model[a->root][in_at(a, a->root) + mine + j];
    case RCCLX_ALL_GATHER: case RCCLX_GATHER: return p->model[from][in_at(a, from) + j % c];
    case SHIFT: return p->model[(rank + p->n - a->away % p->n) % p->n][a->in + j];
    default:
        if (a->kind == RCCLX_ALL_TO_ALLV && j % c >= part_of(a, from, rank))
            return p->model[rank][a->out + j]; /* stays */
        return p->model[from][in_at(a, from) + mine + j % c];
    }
}

static void apply(play *p, const act *a, int number)
{
    for (int r = 0; r < p->n; r++)
        for (size_t j = 0; j < out_words(a, p->n, r); j++)
            p->fresh[r][j] = result(p, a, r, j);
    for (int r = 0; r < p->n; r++)
        for (size_t j = 0; j < out_words(a, p->n, r); j++) {
            p->model[r][out_at(a, r) + j] = p->fresh[r][j];
            p->writer[r][out_at(a, r) + j] = (uint16_t)number;
        }
}

/* ---- the real thing */

static ncclResult_t post_shift(const play *p, const act *a, const gpu_worker *w, int i, cudaStream_t s, const void *in,
                               void *out)
{
    const int rank = w->rank[i], away = a->away % p->n;

    ncclGroupStart();
    ncclSend(in, a->count, ncclUint32, (rank + away) % p->n, p->comm[i], s);
    ncclRecv(out, a->count, ncclUint32, (rank + p->n - away) % p->n, p->comm[i], s);
    return ncclGroupEnd();
}

static ncclResult_t post_uneven(const play *p, const act *a, const gpu_worker *w, int i, cudaStream_t s, const void *in,
                                void *out)
{
    size_t send[CONFORM_RANKS], recv[CONFORM_RANKS], at[CONFORM_RANKS];

    for (int r = 0; r < p->n; r++) {
        at[r] = a->count * (size_t)r;
        send[r] = part_of(a, w->rank[i], r);
        recv[r] = part_of(a, r, w->rank[i]);
    }
    return ncclAlltoAllv(in, send, at, out, recv, at, ncclUint32, p->comm[i], s);
}

static ncclResult_t post(const play *p, const act *a, const gpu_worker *w, int i, rcclx_gpu_stream stream)
{
    static const ncclRedOp_t ops[NOPS] = { ncclSum, ncclProd, ncclMax, ncclMin, ncclSum };
    const ncclDataType_t     t = a->op == FLOAT_SUM ? ncclFloat : ncclUint32;
    const ncclRedOp_t        op = ops[a->op];
    const ncclComm_t         c = p->comm[i];
    const cudaStream_t       s = (cudaStream_t)stream;
    const int                rank = w->rank[i];
    uint32_t                *words = (uint32_t *)(void *)p->buffer[i];
    const void              *in = in_words(a, p->n, rank) ? words + in_at(a, rank) : NULL;
    void                    *out = out_words(a, p->n, rank) ? words + out_at(a, rank) : NULL;

    switch (a->kind) {
    case RCCLX_ALL_REDUCE: return ncclAllReduce(in, out, a->count, t, op, c, s);
    case RCCLX_REDUCE_TO: return ncclReduce(in, out, a->count, t, op, a->root, c, s);
    case RCCLX_BROADCAST: return ncclBroadcast(in, out, a->count, t, a->root, c, s);
    case RCCLX_ALL_GATHER: return ncclAllGather(in, out, a->count, t, c, s);
    case RCCLX_REDUCE_SCATTER: return ncclReduceScatter(in, out, a->count, t, op, c, s);
    case RCCLX_ALL_TO_ALL: return ncclAlltoAll(in, out, a->count, t, c, s);
    case RCCLX_GATHER: return ncclGather(in, out, a->count, t, a->root, c, s);
    case RCCLX_SCATTER: return ncclScatter(in, out, a->count, t, a->root, c, s);
    case RCCLX_ALL_TO_ALLV: return post_uneven(p, a, w, i, s, in, out);
    default: return post_shift(p, a, w, i, s, in, out);
    }
}

/* ---- a play's life */

static bool begin(play *p, gpu_worker *w, const ncclComm_t *comm, uint64_t seed)
{
    bool ok = true;

    *p = (play){ .n = w->n, .dice = conform_mix(seed) };
    for (int r = 0; r < w->n; r++) {
        uint64_t dice = conform_mix(seed + 1000 + (uint64_t)r);
        p->model[r] = calloc(WORDS, sizeof(uint32_t));
        p->fresh[r] = calloc(WORDS, sizeof(uint32_t));
        p->writer[r] = calloc(WORDS, sizeof(uint16_t));
        for (size_t i = 0; i < WORDS; i++) {
            const float f = (float)gpu_roll(&dice, 1000);
            if (i < CONSTANTS)
                memcpy(&p->model[r][i], &f, 4);
            else
                p->model[r][i] = (uint32_t)dice;
        }
    }
    for (int i = 0; ok && i < w->nmine; i++) {
        p->comm[i] = comm[i];
        p->stream[i][0] = gpu_stream(w, i);
        p->stream[i][1] = gpu_stream(w, i);
        ok = (seed & 1 ? gpu_alloc : gpu_alloc_nccl)(w, i, &p->buffer[i], WORDS * 4) &&
             gpu_put(w, i, p->buffer[i], p->model[w->rank[i]], WORDS * 4);
    }
    return ok;
}

static bool settle(const play *p, const gpu_worker *w)
{
    bool ok = true;

    for (int i = 0; i < w->nmine; i++)
        for (int k = 0; k < 2; k++)
            ok = gpu_sync(w, i, p->stream[i][k]) && ok;
    return ok;
}

static bool compare(const play *p, const gpu_worker *w, const char *what)
{
    uint32_t *got = malloc(WORDS * sizeof *got);
    bool      ok = settle(p, w);

    for (int i = 0; ok && i < w->nmine; i++) {
        const int r = w->rank[i];
        size_t    k = 0;
        ok = gpu_get(w, i, got, p->buffer[i], WORDS * 4);
        while (ok && k < WORDS && got[k] == p->model[r][k])
            k++;
        ok = ok && CHECK(k == WORDS, "%s: rank %d, word %zu is %#x, not %#x, which act %d of %d wrote last", what, r, k, got[k],
                         p->model[r][k], p->writer[r][k], p->nacts);
    }
    free(got);
    return ok;
}

static void end(play *p, const gpu_worker *w, uint64_t seed)
{
    settle(p, w);
    for (int i = 0; i < w->nmine; i++) {
        if (seed & 1)
            gpu_free(w, i, p->buffer[i]);
        else
            OK_OR_TELL(ncclMemFree(p->buffer[i]));
        for (int k = 0; k < 2; k++)
            gpu_stream_end(w, i, p->stream[i][k]);
    }
    for (int r = 0; r < w->n; r++)
        free(p->model[r]), free(p->fresh[r]), free(p->writer[r]);
}

/* ---- many in flight */

/* One to six acts, posted together. */
static bool burst(play *p, gpu_worker *w, uint64_t *own)
{
    const int size = gpu_roll(&p->dice, 3) ? 1 : 2 + gpu_roll(&p->dice, MOST_GROUP - 1);
    const int which = gpu_roll(&p->dice, 2) ? 0 : gpu_roll(own, 2); /* the stream is each rank's own affair */
    act       a[MOST_GROUP];
    int       n = 0;
    bool      ok = true;

    for (int tries = 0; n < size && tries < 50; tries++) {
        bool apart = true;
        draw_act(p, &a[n]);
        for (int k = 0; k < n; k++)
            apart = apart && !collide(&a[k], &a[n], p->n);
        n += apart;
    }
    if (gpu_roll(own, 16) == 0)
        usleep((useconds_t)gpu_roll(own, 10000));
    if (n > 1 || w->nmine > 1)
        ok = OK_OR_TELL(ncclGroupStart());
    for (int k = 0; k < n; k++)
        for (int i = 0; i < w->nmine; i++)
            ok = OK_OR_TELL(post(p, &a[k], w, i, p->stream[i][which])) && ok;
    if (n > 1 || w->nmine > 1)
        ok = OK_OR_TELL(ncclGroupEnd()) && ok;
    for (int k = 0; k < n; k++)
        apply(p, &a[k], p->nacts++);
    return ok;
}

static uint64_t seed_of_run;

static void flight(gpu_worker *w)
{
    static _Thread_local play p[2];
    const int     nplays = *(int *)w->arg, nacts = 250 * gpu_longer(20);
    uint64_t      own = seed_of_run + 77 * (uint64_t)w->rank[0];
    ncclComm_t    second[CONFORM_RANKS] = { 0 };
    bool          ok = true;
    int           flying = 0;

    gpu_open(w);
    for (int i = 0; nplays == 2 && i < w->nmine; i++)
        ok = OK_OR_TELL(ncclCommSplit(w->comm[i], 0, w->rank[i], &second[i], NULL)) && ok;
    ok = gpu_close(w) && ok;
    for (int k = 0; ok && k < nplays; k++)
        ok = begin(&p[k], w, k ? second : w->comm, seed_of_run + (uint64_t)k);
    while (ok && p[0].nacts < nacts) {
        play *next = &p[nplays == 2 && gpu_roll(&p[0].dice, 2)];
        ok = burst(next, w, &own);
        flying++;
        if (flying % FLIGHT == 0)
            for (int k = 0; ok && k < nplays; k++)
                ok = settle(&p[k], w); /* a driver's queues are finite */
    }
    for (int k = 0; ok && k < nplays; k++)
        ok = compare(&p[k], w, "in flight");
    for (int k = 0; k < nplays; k++)
        if (p[k].n)
            end(&p[k], w, seed_of_run + (uint64_t)k);
    for (int i = 0; i < w->nmine; i++)
        if (second[i])
            OK_OR_TELL(ncclCommDestroy(second[i]));
}

/* One of three teams, another one with each `env` (RCCLX_TEST_LONG: all). */
static void run_teams(void (*work)(gpu_worker *), void *arg, const char *env)
{
    static int turn;
    static const struct { int n, ndevices; gpu_place place; } teams[] = {
        { 2, 0, GPU_PROCESSES }, { 5, 0, GPU_PROCESSES }, { 8, 0, GPU_PROCESSES }, { 3, 0, GPU_THREADS }, { 8, 0, GPU_THREADS },
        { 2, 0, GPU_ONE_THREAD }, { 3, 2, GPU_THREADS }, { 4, 2, GPU_ONE_THREAD }, { 8, 2, GPU_ONE_THREAD },
    };

    turn++;
    for (size_t i = 0; i < sizeof teams / sizeof *teams; i++) {
        if (gpu_longer(2) == 1 && (i + (size_t)turn) % 3)
            continue;
        gpu_team t = { .n = teams[i].n, .ndevices = teams[i].ndevices, .place = teams[i].place, .work = work, .arg = arg };
        seed_of_run = conform_mix(seed_of_run + 1) | 1;
        snprintf(t.env[0], sizeof t.env[0], "%s", env);
        snprintf(t.env[1], sizeof t.env[1], "RCCLX_SEQ_START=%s", i / 3 == 0 ? "4294967200" : i / 3 == 1 ? "2147483600" : "0");
        if (!gpu_fits(&t))
            continue;
        CASE("%s, %s, %d ranks on %d devices, %s", env, t.env[1], t.n, t.ndevices ? t.ndevices : t.n, gpu_place_names[t.place]) {
            CHECK(gpu_run(&t) == 0, "ranks failed");
            gpu_end(&t);
        }
    }
}

static const char *const envs[] = { "RCCLX_ALGO=", "NCCL_PROTO=LL", "NCCL_PROTO=LL128", "NCCL_PROTO=Simple", "RCCLX_ALGO=staged",
                                    "RCCLX_GPU_LANES=5" };

TEST(hundreds_in_flight)
{
    int one = 1;

    seed_of_run = gpu_seed();
    for (size_t e = 0; e < sizeof envs / sizeof *envs; e++)
        run_teams(flight, &one, envs[e]);
}

TEST(two_communicators_at_once)
{
    int two = 2;

    seed_of_run = gpu_seed() + 5000;
    for (size_t e = 0; e < sizeof envs / sizeof *envs; e++)
        run_teams(flight, &two, envs[e]);
}

/* ---- a rank that nobody waits for falls behind; what its peers announce must not run over what it has still to read
 *
 *   all-reduce with scalars (all read all headers) | reduce to 1, 1, 2, 3: the others only send | all-reduce */

enum { BEHIND = 200 };

static bool fall_behind(gpu_worker *w, char **x, const ncclRedOp_t *twice, int late)
{
    static const int roots[] = { 1, 1, 2, 3 };
    bool             ok = true;

    if (w->rank[0] == late)
        usleep(1000); /* the others sleep as they wait for it, and do not all wake at once */
    for (int step = 0; ok && step < 6; step++) {
        gpu_open(w);
        for (int i = 0; i < w->nmine; i++) {
            const cudaStream_t s = (cudaStream_t)w->stream[i];
            float             *in = (float *)(void *)x[i], *out = in + 16 + step;
            const ncclRedOp_t  op = step == 0 || step == 4 ? twice[i] : ncclSum;
            ok = OK_OR_TELL(step == 0 || step == 5 ? ncclAllReduce(in, out, 1, ncclFloat, op, w->comm[i], s)
                                                   : ncclReduce(in, out, 1, ncclFloat, op, roots[step - 1], w->comm[i], s)) && ok;
        }
        ok = gpu_close(w) && ok;
    }
    return ok;
}

static void behind(gpu_worker *w)
{
    char       *x[CONFORM_RANKS] = { 0 };
    ncclRedOp_t twice[CONFORM_RANKS];
    float       host[32] = { 0 }, two = 2;
    bool        ok = true;

    for (int i = 0; ok && i < w->nmine; i++) {
        host[0] = (float)(w->rank[i] + 1);
        ok = gpu_alloc(w, i, &x[i], sizeof host) && gpu_put(w, i, x[i], host, sizeof host) &&
             OK_OR_TELL(ncclRedOpCreatePreMulSum(&twice[i], &two, ncclFloat, ncclScalarHostImmediate, w->comm[i]));
    }
    for (int k = 0; ok && k < BEHIND * gpu_longer(20); k++) {
        ok = fall_behind(w, x, twice, k % w->n);
        for (int i = 0; k % 50 == 49 && i < w->nmine; i++)
            ok = gpu_sync(w, i, w->stream[i]) && ok;
    }
    for (int i = 0; i < w->nmine; i++) {
        const float sum = (float)(w->n * (w->n + 1) / 2);
        ncclResult_t r;
        gpu_get(w, i, host, x[i], sizeof host);
        CHECK(host[16] == 2 * sum && host[21] == sum, "rank %d: %g and %g", w->rank[i], (double)host[16], (double)host[21]);
        CHECK(ncclCommGetAsyncError(w->comm[i], &r) == ncclSuccess && r == ncclSuccess, "rank %d: %s", w->rank[i],
              ncclGetLastError(w->comm[i]));
        gpu_free(w, i, x[i]);
    }
}

TEST(a_rank_far_behind)
{
    static const gpu_place places[] = { GPU_PROCESSES, GPU_THREADS, GPU_THREADS };

    for (int e = 0; e < 2; e++)
        for (int k = 0; k < 3; k++) {
            gpu_team t = { .n = 8, .ndevices = k == 2 ? 2 : 0, .place = places[k], .work = behind };
            snprintf(t.env[0], sizeof t.env[0], "NCCL_PROTO=%s", e ? "LL128" : "LL");
            if (!gpu_fits(&t))
                continue;
            CASE("%s, 8 ranks on %d devices, %s", t.env[0], t.ndevices ? 2 : 8, gpu_place_names[t.place]) {
                CHECK(gpu_run(&t) == 0, "ranks failed");
                gpu_end(&t);
            }
        }
}

/* ---- graphs: the communicator's first operations are captured; replays and eager calls follow each other */

enum { GRAPH_ACTS = 6, REPLAYS = 200 };

static bool capture(play *p, gpu_worker *w, const act *a, rcclx_gpu_graph *graph)
{
    bool ok = true;

    for (int i = 0; ok && i < w->nmine; i++) {
        rcclx_gpu_scope s;
        DRIVER_OK(w->gpu->enter(&s, w->device[i]));
        ok = DRIVER_OK(w->gpu->capture_begin(p->stream[i][0]));
        for (int k = 0; ok && k < GRAPH_ACTS; k++)
            ok = OK_OR_TELL(post(p, &a[k], w, i, p->stream[i][0]));
        ok = DRIVER_OK(w->gpu->capture_end(p->stream[i][0], &graph[i])) && ok;
        w->gpu->leave(&s);
    }
    return ok;
}

static bool replay(play *p, gpu_worker *w, const act *a, rcclx_gpu_graph *graph)
{
    bool ok = true;

    for (int i = 0; i < w->nmine; i++) {
        rcclx_gpu_scope s;
        DRIVER_OK(w->gpu->enter(&s, w->device[i]));
        ok = DRIVER_OK(w->gpu->graph_launch(graph[i], p->stream[i][0])) && ok;
        w->gpu->leave(&s);
    }
    for (int k = 0; k < GRAPH_ACTS; k++)
        apply(p, &a[k], k);
    return ok;
}

static bool eager(play *p, gpu_worker *w)
{
    act  a;
    bool ok = true;

    draw_act(p, &a);
    gpu_open(w);
    for (int i = 0; i < w->nmine; i++)
        ok = OK_OR_TELL(post(p, &a, w, i, p->stream[i][0])) && ok;
    apply(p, &a, 1000 + p->nacts++);
    return gpu_close(w) && ok;
}

static void graphs(gpu_worker *w)
{
    static _Thread_local play p;
    rcclx_gpu_graph graph[CONFORM_RANKS] = { 0 };
    act             a[GRAPH_ACTS];
    uint64_t        own = seed_of_run + 77 * (uint64_t)w->rank[0];
    bool            ok = begin(&p, w, w->comm, seed_of_run);

    for (int k = 0; k < GRAPH_ACTS; k++)
        draw_act(&p, &a[k]);
    ok = ok && capture(&p, w, a, graph);
    for (int i = 0; ok && i < REPLAYS; i++) {
        ok = replay(&p, w, a, graph);
        if (gpu_roll(&p.dice, 3) == 0)
            ok = eager(&p, w) && ok;
        if (gpu_roll(&own, 20) == 0)
            usleep((useconds_t)gpu_roll(&own, 10000));
        if (i % 50 == 49)
            ok = settle(&p, w) && ok;
    }
    ok = ok && compare(&p, w, "graphs");
    for (int i = 0; i < w->nmine; i++) {
        OK_OR_TELL(ncclCommDestroy(w->comm[i])); /* while the graph is still there */
        w->comm[i] = NULL;
        if (graph[i])
            DRIVER_OK(w->gpu->graph_destroy(graph[i]));
    }
    end(&p, w, seed_of_run);
}

TEST(graphs_are_replayed_among_eager_calls)
{
    seed_of_run = gpu_seed() + 9000;
    run_teams(graphs, NULL, "RCCLX_ALGO=");
    run_teams(graphs, NULL, "NCCL_PROTO=LL");
    run_teams(graphs, NULL, "NCCL_PROTO=Simple");
}
