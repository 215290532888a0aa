/* Collectives in low precision on GPUs, real or emulated, bit for bit (conform/coded.h).
 *
 * A team runs groups of calls one after another, on two streams. What is asked for low precision is
 * the environment, the communicator before each call, or the call; what has none, or is told not to,
 * runs in full precision among the others. What a call is comes from decks, as of cards:
 *
 *   collective x type x operator   |   count x in place x buffers   |   team x who asks x codec
 *
 * The order of the cards is the seed's (RCCLX_TEST_SEED, printed); RCCLX_TEST_LONG=k plays ten times
 * k as many. */
#include "gpu/gpu_ranks.h"

#include "conform/coded.h"

TIME_LIMIT(600)

/* ---- what varies */

enum { PROCS = GPU_PROCESSES, THREADS = GPU_THREADS, ONE = GPU_ONE_THREAD };
static const struct { int n, ndevices, place; } teams_of[] = {
    { 1, 0, ONE },
    { 2, 0, PROCS },   { 3, 0, PROCS },   { 5, 0, PROCS },   { 8, 0, PROCS },
    { 2, 0, THREADS }, { 4, 0, THREADS }, { 7, 0, THREADS },
    { 2, 0, ONE },     { 3, 0, ONE },     { 4, 0, ONE },     { 6, 0, ONE },     { 8, 0, ONE },
    { 2, 1, THREADS }, { 5, 2, THREADS }, { 3, 1, ONE },     { 8, 2, ONE },
    { 16, 8, ONE },    { 12, 4, THREADS },
};
static const char *const ways[] = { "RCCLX_ALGO=", "NCCL_PROTO=LL", "NCCL_P2P_DISABLE=1", "RCCLX_ALGO=direct",
                                    "RCCLX_ALGO=staged" };
static const char *const lanes[] = { "RCCLX_GPU_LANES=0", "RCCLX_GPU_LANES=1", "RCCLX_GPU_LANES=3", "RCCLX_GPU_LANES=8" };
static const char *const starts[] = { "RCCLX_SEQ_START=0", "RCCLX_SEQ_START=2147483640", "RCCLX_SEQ_START=4294967290" };
static const size_t counts_of[] = { 0, 1, 2, 3, 31, 32, 33, 127, 128, 129, 257, 1000, 4097, 65537 };
static const int    weights[] = { 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 1 }; /* how many cards of a size */

typedef enum { BY_ENVIRONMENT, BY_COMM, BY_CALL, NWAYS_TO_ASK } asking;
static const char *const asking_names[NWAYS_TO_ASK] = { "the environment", "the communicator", "the call" };

typedef enum { PLAIN, OF_NCCL, MIXED, BUFFERS } buffers;
static const char *const buffer_names[BUFFERS] = { "plain", "ncclMemAlloc", "mixed by rank" };
enum { KINDS_OF_MEMORY = 2, NTEAMS = sizeof teams_of / sizeof *teams_of, MANY = 9 /* ranks: with one lane, and small */ };

typedef struct {
    coded_call c;
    int        asks; /* by the communicator, the call: 1 + a codec; 0: nothing is said */
    bool       in_place;
    buffers    buffer;
    int        offset, stream;
} call;

enum { GROUPS = 20, CALLS = 4, STREAMS = 2, REGION = 2304 << 10, LARGEST = 1 << 20, SMALL = 48 << 10 };

typedef struct {
    int  ncalls;
    call calls[CALLS];
} group;

typedef struct {
    int    team, way, lanes, start, codec;
    asking by;
    group  groups[GROUPS];
} sample;

/* ---- decks */

static gpu_deck what, others, shape, teams;

static gpu_team team_of(int i)
{
    return (gpu_team){ .n = teams_of[i].n, .ndevices = teams_of[i].ndevices, .place = (gpu_place)teams_of[i].place };
}

static void make_decks(void)
{
    static const rcclx_type types[] = { RCCLX_F32, RCCLX_BF16, RCCLX_F16, RCCLX_I32, RCCLX_F64 };

    for (int k = 0; k < RCCLX_COLL_COUNT; k++)
        for (int t = 0; t < 5; t++)
            for (int op = 0; op <= RCCLX_COPY; op++)
                if ((op == RCCLX_COPY) != rcclx_kind_reduces((rcclx_kind)k) && k != RCCLX_ALL_TO_ALLV) {
                    const coded_call c = { .kind = (rcclx_kind)k, .type = types[t], .op = (rcclx_redop)op };
                    gpu_add_card(coded_may(&c) ? &what : &others, (k * 16 + (int)types[t]) * 16 + op);
                }
    for (size_t c = 0; c < sizeof counts_of / sizeof *counts_of; c++)
        for (int i = 0; i < 2 * BUFFERS; i++)
            for (int often = 0; often < weights[c]; often++)
                gpu_add_card(&shape, (int)c * 16 + i);
    for (int i = 0; i < NTEAMS * NWAYS_TO_ASK * 2; i++) {
        const gpu_team t = team_of(i / (NWAYS_TO_ASK * 2));
        if (gpu_fits(&t))
            gpu_add_card(&teams, i);
    }
}

/* What a call says and what the team's settings make of it. */
static void draw_codec(call *a, const sample *s)
{
    const bool can = coded_may(&a->c);

    a->asks = s->by == BY_ENVIRONMENT ? 0 : 1 + gpu_roll(&gpu_seed_state, 4) % RCCLX_CODEC_COUNT;
    if (s->by == BY_CALL && !can)
        a->asks = gpu_roll(&gpu_seed_state, 2); /* nothing, or "off" */
    a->c.codec = (rcclx_codec_id)(s->by == BY_ENVIRONMENT ? s->codec : a->asks ? a->asks - 1 : RCCLX_CODEC_NONE);
    if (!can || a->c.n == 1)
        a->c.codec = RCCLX_CODEC_NONE;
}

static size_t area_of(const group *g)
{
    return (size_t)REGION / (size_t)g->ncalls & ~(size_t)1023;
}

static void draw_call(call *a, const sample *s, const group *g)
{
    uint64_t *dice = &gpu_seed_state;
    const int w = gpu_draw(gpu_roll(dice, 6) ? &what : &others), x = gpu_draw(&shape), n = teams_of[s->team].n;

    a->c = (coded_call){ .kind = (rcclx_kind)(w / 256), .type = (rcclx_type)(w / 16 % 16), .op = (rcclx_redop)(w % 16), .n = n,
                         .root = gpu_roll(dice, n), .count = counts_of[x / 16], .algo = "relay_staged" };
    a->c.seed = conform_mix(*dice);
    a->in_place = x % 16 % 2;
    a->buffer = (buffers)(x % 16 / 2);
    a->offset = (int[]){ 0, 0, 1, 3 }[gpu_roll(dice, 4)];
    a->stream = gpu_roll(dice, STREAMS);
    draw_codec(a, s);
    const size_t room = area_of(g) / 2 - 4 * CONFORM_GUARD, most = n >= MANY ? SMALL : LARGEST;
    const size_t fits = (room < most ? room : most) / rcclx_type_size(a->c.type) / (size_t)n;
    a->c.count = a->c.count < fits ? a->c.count : fits;
    if (!a->c.codec && a->c.count > 4097)
        a->c.count = 4097; /* the reference is slow */
}

/* ---- one call, on every rank of a place */

typedef struct {
    char            *host[KINDS_OF_MEMORY], *device[KINDS_OF_MEMORY]; /* regions of REGION bytes, alike */
    rcclx_gpu_stream stream[STREAMS];
    coded_buffers    b[CALLS];                                        /* in the host's */
    int              mem[CALLS];
} rank_buffers;

static void lay_out(rank_buffers *rb, const group *g, int k, int rank)
{
    const call  *a = &g->calls[k];
    const size_t off = CONFORM_GUARD + (size_t)a->offset * rcclx_type_size(a->c.type), area = area_of(g);

    rb->mem[k] = a->buffer == MIXED ? rank % KINDS_OF_MEMORY : (int)a->buffer;
    char *at = rb->host[rb->mem[k]] + area * (size_t)k;
    coded_lay_out(&rb->b[k], &a->c, rank, a->in_place, at + off, at + area / 2 + (a->c.seed >> 8 & 1 ? off : CONFORM_GUARD));
}

static char *there(const rank_buffers *rb, const char *p, int k)
{
    return rb->device[rb->mem[k]] + (p - rb->host[rb->mem[k]]);
}

/* Both buffers of call k with the bytes around them. */
static bool carry(const gpu_worker *w, int i, const rank_buffers *rb, int k, bool back)
{
    const coded_buffers *b = &rb->b[k];
    const struct { char *at; size_t nbytes; } part[2] = {
        { b->in - CONFORM_GUARD, b->in_bytes + 2 * CONFORM_GUARD },
        { b->out - CONFORM_GUARD, b->out_bytes + 2 * CONFORM_GUARD },
    };
    bool ok = true;

    for (int p = 0; ok && p < 2; p++) {
        char *device = there(rb, part[p].at, k);
        ok = gpu_copy(w, i, back ? part[p].at : device, back ? device : part[p].at, part[p].nbytes);
    }
    return gpu_sync(w, i, w->stream[i]) && ok;
}

static bool issue(const gpu_worker *w, int i, const rank_buffers *rb, int k, const call *a, asking by)
{
    const coded_buffers *b = &rb->b[k];

    if (by == BY_COMM && !coded_set(w->comm[i], a->asks))
        return false;
    return OK_OR_TELL(coded_post(&a->c, w->rank[i], there(rb, b->in, k), there(rb, b->out, k), b->op, by == BY_CALL ? a->asks : 0,
                                 w->comm[i], rb->stream[a->stream]));
}

/* ---- what must have come out */

static void tell(const call *a, const gpu_worker *w, const group *g)
{
    const sample *s = w->arg;
    char          text[300];

    coded_tell(&a->c, text, sizeof text);
    check_say("# %s: call %d of %d in a group; %s%s, %d elements off, stream %d; %s asks; %s, %s, %s; %d devices, %s\n", text,
              (int)(a - g->calls), g->ncalls, buffer_names[a->buffer], a->in_place ? ", in place" : "", a->offset, a->stream,
              asking_names[s->by], ways[s->way], lanes[s->lanes], starts[s->start],
              w->team->ndevices ? w->team->ndevices : w->n, gpu_place_names[w->team->place]);
}

static bool verify(gpu_worker *w, rank_buffers *rb, const group *g, int k, int index)
{
    const call *a = &g->calls[k];
    char       *want = malloc(REGION);
    bool        ok = CHECK(want, "no memory");

    for (int i = 0; ok && i < w->nmine; i++) {
        const coded_buffers *b = &rb[i].b[k];
        if (i == 0 || coded_differs(&a->c))
            coded_expect(&a->c, w->rank[i], want);
        ok = carry(w, i, &rb[i], k, true) && coded_verify(b, &a->c, w->rank[i], want);
        w->team->shared->hash[index][w->rank[i]] = conform_hash(b->out, b->out_bytes);
        coded_op_end(b->op, w->comm[i]);
    }
    free(want);
    if (!ok)
        tell(a, w, g);
    return ok;
}

/* ---- a team */

static bool play(gpu_worker *w, rank_buffers *rb, const group *g, int index)
{
    const sample *s = w->arg;
    const bool    grouped = w->nmine > 1 || g->ncalls > 1;
    bool          ok = true;

    for (int i = 0; i < w->nmine; i++)
        for (int k = 0; ok && k < g->ncalls; k++) {
            lay_out(&rb[i], g, k, w->rank[i]);
            coded_prepare(&rb[i].b[k], &g->calls[k].c, w->rank[i]);
            ok = carry(w, i, &rb[i], k, false);
            rb[i].b[k].op = coded_op(&g->calls[k].c, w->rank[i], w->comm[i]);
        }
    ok = ok && (!grouped || OK_OR_TELL(ncclGroupStart()));
    for (int k = 0; ok && k < g->ncalls; k++)
        for (int i = 0; i < w->nmine; i++)
            ok = issue(w, i, &rb[i], k, &g->calls[k], s->by) && ok;
    ok = (!grouped || OK_OR_TELL(ncclGroupEnd())) && ok;
    for (int i = 0; i < w->nmine; i++)
        for (int x = 0; x < STREAMS; x++)
            ok = gpu_sync(w, i, rb[i].stream[x]) && ok;
    for (int k = 0; ok && k < g->ncalls; k++)
        ok = verify(w, rb, g, k, index * CALLS + k);
    return ok;
}

static bool get_memory(gpu_worker *w, rank_buffers *b)
{
    bool ok = true;

    for (int i = 0; i < w->nmine; i++) {
        b[i].stream[0] = w->stream[i];
        b[i].stream[1] = gpu_stream(w, i);
        for (int m = 0; m < KINDS_OF_MEMORY; m++) {
            b[i].host[m] = malloc(REGION);
            ok = ok && b[i].host[m] && (m == OF_NCCL ? gpu_alloc_nccl : gpu_alloc)(w, i, &b[i].device[m], REGION);
        }
    }
    return CHECK(ok, "no memory");
}

static void give_memory(gpu_worker *w, rank_buffers *b)
{
    for (int i = 0; i < w->nmine; i++)
        for (int x = 0; x < STREAMS; x++)
            gpu_sync(w, i, b[i].stream[x]); /* after a failure some may be on their way */
    for (int i = 0; i < w->nmine; i++) {
        gpu_stream_end(w, i, b[i].stream[1]);
        for (int m = 0; m < KINDS_OF_MEMORY; m++) {
            free(b[i].host[m]);
            if (m == OF_NCCL)
                OK_OR_TELL(ncclMemFree(b[i].device[m]));
            else
                gpu_free(w, i, b[i].device[m]);
        }
    }
}

static void work(gpu_worker *w)
{
    const sample *s = w->arg;
    rank_buffers  b[CONFORM_RANKS] = { 0 };
    bool          ok = get_memory(w, b);

    for (int g = 0; ok && g < GROUPS; g++)
        ok = play(w, b, &s->groups[g], g);
    give_memory(w, b);
}

static void same_bits(const gpu_team *t, const sample *s)
{
    for (int i = 0; i < GROUPS * CALLS; i++) {
        const group *g = &s->groups[i / CALLS];
        if (i % CALLS >= g->ncalls || coded_differs(&g->calls[i % CALLS].c))
            continue;
        for (int r = 1; r < t->n; r++)
            CHECK(t->shared->hash[i][r] == t->shared->hash[i][0], "group %d, call %d: rank %d has other bits than rank 0",
                  i / CALLS, i % CALLS, r);
    }
}

static void run_sample(sample *s)
{
    gpu_team t = team_of(s->team);

    t.work = work;
    t.arg = s;

    snprintf(t.env[0], sizeof t.env[0], "%s", ways[s->way]);
    snprintf(t.env[1], sizeof t.env[1], "%s", t.n >= MANY ? lanes[1] : lanes[s->lanes]);
    snprintf(t.env[2], sizeof t.env[2], "%s", starts[s->start]);
    if (s->by == BY_ENVIRONMENT) {
        snprintf(t.env[3], sizeof t.env[3], "RCCLX_LOW_PRECISION=%s", rcclx_codecs[s->codec]->name);
        snprintf(t.env[4], sizeof t.env[4], "RCCLX_LOW_PRECISION_MIN_BYTES=1");
    }
    for (int g = 0; g < GROUPS; g++) {
        s->groups[g].ncalls = g % 3 == 2 ? 2 + gpu_roll(&gpu_seed_state, CALLS - 1) : 1;
        for (int k = 0; k < s->groups[g].ncalls; k++)
            draw_call(&s->groups[g].calls[k], s, &s->groups[g]);
    }
    CASE("%s asks%s%s, %s, %s, %s, %d ranks on %d devices, %s", asking_names[s->by], *t.env[3] ? " for " : "",
         *t.env[3] ? rcclx_codecs[s->codec]->name : "", t.env[0], t.env[1], t.env[2], t.n, t.ndevices ? t.ndevices : t.n,
         gpu_place_names[t.place]) {
        if (CHECK(gpu_run(&t) == 0, "ranks failed"))
            same_bits(&t, s);
        gpu_end(&t);
    }
}

TEST(a_sample_of_all_calls)
{
    static sample s;
    const bool    real = gpu_here()->kind != RCCLX_GPU_EMU;
    const int     nteams = (real ? 30 : NTEAMS * NWAYS_TO_ASK * 2 / GPU_PART) * gpu_longer(10);

    reference_init();
    gpu_seed();
    make_decks();
    REQUIRE(teams.n, "no team of RCCLX_TEST_RANKS=%s fits on %d devices", getenv("RCCLX_TEST_RANKS"), gpu_here()->count);
    for (int i = 0; i < nteams; i++) {
        const int drawn = gpu_draw(&teams);
        s.team = drawn / (NWAYS_TO_ASK * 2);
        s.by = (asking)(drawn / 2 % NWAYS_TO_ASK);
        s.codec = 1 + drawn % 2;
        s.way = gpu_roll(&gpu_seed_state, sizeof ways / sizeof *ways);
        s.lanes = gpu_roll(&gpu_seed_state, sizeof lanes / sizeof *lanes);
        s.start = gpu_roll(&gpu_seed_state, sizeof starts / sizeof *starts);
        run_sample(&s);
    }
}

/* ---- more than a sample has: chains, graphs, ranks that do not agree */

enum { SAID = 1, FP8 = SAID + RCCLX_CODEC_FP8, INT8 = SAID + RCCLX_CODEC_INT8, OFF = SAID + RCCLX_CODEC_NONE };

/* A rank's three buffers of `bytes` and a second stream. */
typedef struct {
    char            *at[3], *host;
    rcclx_gpu_stream other;
} trio;

static bool trio_open(const gpu_worker *w, int i, trio *t, size_t bytes)
{
    t->host = malloc(bytes);
    t->other = gpu_stream(w, i);
    return CHECK(t->host, "no memory") && gpu_alloc(w, i, &t->at[0], bytes) && gpu_alloc(w, i, &t->at[1], bytes) &&
           gpu_alloc(w, i, &t->at[2], bytes);
}

static void trio_close(const gpu_worker *w, int i, trio *t)
{
    gpu_sync(w, i, w->stream[i]);
    gpu_sync(w, i, t->other);
    for (int k = 0; k < 3; k++)
        gpu_free(w, i, t->at[k]);
    gpu_stream_end(w, i, t->other);
    free(t->host);
}

static bool trio_fill(const gpu_worker *w, int i, const trio *t, const coded_call *c)
{
    size_t in, out;

    coded_lengths(c, w->rank[i], &in, &out);
    coded_values(c, w->rank[i], 0, in, t->host);
    return gpu_put(w, i, t->at[0], t->host, in * rcclx_type_size(c->type));
}

/* Is buffer k what the call must give? */
static bool trio_holds(const gpu_worker *w, int i, const trio *t, int k, const coded_call *c, char *want)
{
    size_t in, out;

    coded_lengths(c, w->rank[i], &in, &out);
    coded_expect(c, w->rank[i], want);
    return gpu_get(w, i, t->host, t->at[k], out * rcclx_type_size(c->type)) &&
           coded_holds(c, w->rank[i], t->host, want, out, "out");
}

/* Posted alike by all ranks of a place, from buffer `from` to buffer `to`. */
static bool all_post(const gpu_worker *w, const trio *t, const coded_call *c, int ask, int from, int to, bool other)
{
    bool ok = true;

    gpu_open(w);
    for (int i = 0; i < w->nmine; i++)
        ok = OK_OR_TELL(coded_post(c, w->rank[i], t[i].at[from], t[i].at[to], coded_op(c, w->rank[i], w->comm[i]), ask,
                                   w->comm[i], other ? t[i].other : w->stream[i])) && ok;
    return gpu_close(w) && ok;
}

enum { CHAIN = 5000, ROUNDS = 6 };

/* The second call reads what the first has just written, on another stream; the third writes where the second reads. */
static void chain(gpu_worker *w)
{
    trio  t[CONFORM_RANKS] = { 0 };
    char *first = malloc(CHAIN * 4), *want = malloc(CHAIN * 4 * CONFORM_RANKS);
    bool  ok = CHECK(first && want, "no memory");

    for (int i = 0; i < w->nmine; i++)
        ok = trio_open(w, i, &t[i], CHAIN * 4 * CONFORM_RANKS) && ok;
    for (int round = 0; ok && round < ROUNDS; round++) {
        const rcclx_type type = (rcclx_type[]){ RCCLX_F32, RCCLX_BF16, RCCLX_F16 }[round % 3];
        const coded_call a = { .kind = RCCLX_ALL_REDUCE, .type = type, .op = RCCLX_SUM, .codec = RCCLX_CODEC_FP8, .n = w->n,
                               .count = CHAIN, .seed = conform_mix((uint64_t)round), .algo = "relay_staged" };
        const coded_call b = { .kind = RCCLX_ALL_GATHER, .type = type, .op = RCCLX_COPY, .codec = RCCLX_CODEC_INT8, .n = w->n,
                               .count = CHAIN, .algo = "relay_staged", .given = first };
        coded_call again = a;
        again.codec = RCCLX_CODEC_INT8;
        for (int i = 0; i < w->nmine; i++)
            ok = trio_fill(w, i, &t[i], &a) && ok;
        ok = ok && all_post(w, t, &a, FP8, 0, 1, round & 1) && all_post(w, t, &b, INT8, 1, 2, !(round & 1)) &&
             all_post(w, t, &again, INT8, 0, 1, round & 1);
        coded_expect(&a, 0, first);
        for (int i = 0; ok && i < w->nmine; i++)
            ok = gpu_sync(w, i, t[i].other) && trio_holds(w, i, &t[i], 2, &b, want) && trio_holds(w, i, &t[i], 1, &again, want);
    }
    for (int i = 0; i < w->nmine; i++)
        trio_close(w, i, &t[i]);
    free(first);
    free(want);
}

/* Captured once with codecs and without, replayed with other data among calls that are not captured. */
enum { COUNT = 1003 };

static bool capture(const gpu_worker *w, int i, const trio *t, const coded_call c[3], rcclx_gpu_graph *graph)
{
    rcclx_gpu_scope s;

    DRIVER_OK(w->gpu->enter(&s, w->device[i]));
    const bool ok =
        DRIVER_OK(w->gpu->capture_begin(w->stream[i])) &&
        OK_OR_TELL(coded_post(&c[0], w->rank[i], t->at[0], t->at[1], ncclAvg, INT8, w->comm[i], w->stream[i])) &&
        OK_OR_TELL(coded_post(&c[1], w->rank[i], t->at[0], t->at[1] + COUNT * 4, ncclSum, OFF, w->comm[i], w->stream[i])) &&
        OK_OR_TELL(coded_post(&c[2], w->rank[i], t->at[0], t->at[2], ncclSum, FP8, w->comm[i], w->stream[i])) &&
        DRIVER_OK(w->gpu->capture_end(w->stream[i], graph));
    w->gpu->leave(&s);
    return ok;
}

static bool replay(const gpu_worker *w, const trio *t, const coded_call c[3], const rcclx_gpu_graph *graph, char *want)
{
    rcclx_gpu_scope s;
    bool            ok = true;

    for (int i = 0; i < w->nmine; i++)
        ok = trio_fill(w, i, &t[i], &c[2]) && ok;
    for (int i = 0; ok && i < w->nmine; i++) {
        DRIVER_OK(w->gpu->enter(&s, w->device[i]));
        ok = DRIVER_OK(w->gpu->graph_launch(graph[i], w->stream[i]));
        w->gpu->leave(&s);
    }
    for (int i = 0; ok && i < w->nmine; i++) {
        ok = trio_holds(w, i, &t[i], 1, &c[0], want) && trio_holds(w, i, &t[i], 2, &c[2], want) &&
             gpu_get(w, i, t[i].host, t[i].at[1] + COUNT * 4, COUNT * 4);
        coded_expect(&c[1], w->rank[i], want);
        ok = ok && coded_holds(&c[1], w->rank[i], t[i].host, want, COUNT, "out");
    }
    return ok;
}

static void graphs(gpu_worker *w)
{
    const coded_call what_of = { .type = RCCLX_F32, .op = RCCLX_COPY, .n = w->n, .count = COUNT, .algo = "relay_staged" };
    coded_call      c[3] = { what_of, what_of, what_of };
    trio            t[CONFORM_RANKS] = { 0 };
    rcclx_gpu_graph graph[CONFORM_RANKS] = { 0 };
    char           *want = malloc(COUNT * 4 * CONFORM_RANKS);
    bool            ok = CHECK(want, "no memory");

    c[0].kind = RCCLX_ALL_REDUCE, c[0].op = RCCLX_AVG, c[0].codec = RCCLX_CODEC_INT8;
    c[1].kind = RCCLX_BROADCAST;
    c[2].kind = RCCLX_ALL_TO_ALL, c[2].codec = RCCLX_CODEC_FP8;
    for (int i = 0; i < w->nmine; i++)
        ok = trio_open(w, i, &t[i], COUNT * 4 * CONFORM_RANKS) && ok;
    for (int i = 0; ok && i < w->nmine; i++)
        ok = capture(w, i, &t[i], c, &graph[i]);
    for (int round = 0; ok && round < ROUNDS; round++) {
        coded_call eager = c[2];
        c[0].seed = c[1].seed = c[2].seed = eager.seed = conform_mix(77 + (uint64_t)round);
        eager.codec = RCCLX_CODEC_INT8;
        eager.kind = RCCLX_ALL_GATHER;
        ok = replay(w, t, c, graph, want) && (round % 3 || all_post(w, t, &eager, INT8, 0, 2, true));
        for (int i = 0; ok && round % 3 == 0 && i < w->nmine; i++)
            ok = gpu_sync(w, i, t[i].other) && trio_holds(w, i, &t[i], 2, &eager, want);
    }
    for (int i = 0; i < w->nmine; i++) {
        trio_close(w, i, &t[i]);
        if (graph[i])
            DRIVER_OK(w->gpu->graph_destroy(graph[i]));
    }
    free(want);
}

/* One rank asks for what the others do not: all are told, nobody waits. */
static void one_differs(gpu_worker *w)
{
    const bool       by_comm = *(const bool *)w->arg;
    const coded_call c = { .kind = RCCLX_ALL_REDUCE, .type = RCCLX_F32, .op = RCCLX_SUM, .n = w->n, .count = CHAIN };
    trio             t[CONFORM_RANKS] = { 0 };
    char             odd[64];

    snprintf(odd, sizeof odd, "rank %d calls AllReduce of %d float sum in int8", w->n - 1, CHAIN);
    for (int i = 0; i < w->nmine; i++)
        (void)(trio_open(w, i, &t[i], CHAIN * 4) && trio_fill(w, i, &t[i], &c));
    if (w->nmine > 1)
        OK_OR_TELL(ncclGroupStart());
    for (int i = 0; i < w->nmine; i++) {
        const bool differs = w->rank[i] == w->n - 1;
        if (differs && by_comm)
            OK_OR_TELL(rcclxCommSetLowPrecision(w->comm[i], "int8", 1));
        coded_post(&c, w->rank[i], t[i].at[0], t[i].at[1], ncclSum, differs && !by_comm ? INT8 : 0, w->comm[i], w->stream[i]);
    }
    if (w->nmine > 1)
        ncclGroupEnd(); /* it may know already */
    for (int i = 0; i < w->nmine; i++) {
        ncclResult_t r = ncclSuccess;
        CHECK(WAIT_FOR(ncclCommGetAsyncError(w->comm[i], &r) != ncclSuccess || (r != ncclSuccess && r != ncclInProgress), 10),
              "rank %d noticed nothing", w->rank[i]);
        r = coded_post(&c, w->rank[i], t[i].at[0], t[i].at[1], ncclSum, 0, w->comm[i], w->stream[i]);
        const char *text = ncclGetLastError(w->comm[i]);
        CHECK(r != ncclSuccess && strstr(text, odd) && (strstr(text, "of 5000 float sum,") || strstr(text, "of 5000 float sum;")),
              "rank %d: %d: %s", w->rank[i], (int)r, text);
    }
    (void)gpu_meet(w, 0); /* who has read it may go */
    for (int i = 0; i < w->nmine; i++) {
        trio_close(w, i, &t[i]);
        OK_OR_TELL(ncclCommAbort(w->comm[i]));
        w->comm[i] = NULL;
    }
}

TEST(streams_change_and_the_order_stays)
{
    reference_init();
    gpu_everywhere("two streams", 2, chain, NULL);
    gpu_everywhere("two streams", 5, chain, NULL);
}

TEST(graphs_keep_the_codec_they_were_captured_with)
{
    reference_init();
    gpu_everywhere("graphs", 3, graphs, NULL);
}

TEST(a_rank_that_differs_is_named_on_all)
{
    static const bool by_comm[2] = { false, true };

    for (int k = 0; k < 2; k++)
        gpu_everywhere(k ? "the communicator's" : "the call's", 3, one_differs, (void *)(uintptr_t)&by_comm[k]);
}
