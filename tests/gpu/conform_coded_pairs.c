/* Messages in low precision on GPUs, real or emulated, bit for bit: what the codec makes of a message
 * must arrive, and nothing beside it be written.
 *
 *   group   letters from any rank to any, itself too, each with a type, a codec or none, a length and
 *           a place of its own; or an all-to-all-v, where the length of a letter decides
 *
 * All ranks draw the same letters (RCCLX_TEST_SEED, printed); RCCLX_TEST_LONG=k plays k times as many. */
#include "gpu/gpu_ranks.h"

#include "conform/coded.h"

TIME_LIMIT(600)

enum { LETTERS = 256, REGION = 8 << 20, GROUPS = 10, GAP = 64, HUGE_REGION = 40 << 20 };

typedef struct {
    coded_call c;        /* kind SEND, root: who sends */
    int        to;
    size_t     in, out;  /* bytes into its sender's and its receiver's buffer */
} letter;

typedef struct {
    size_t         region, least;                                 /* bytes from which an all-to-all-v is coded */
    rcclx_codec_id codec;                                         /* of the all-to-all-v */
    bool           all;                                           /* it is one */
    int            n;
    letter         letters[LETTERS];
    size_t         written[CONFORM_RANKS], read[CONFORM_RANKS];   /* bytes given out of in and out */
} mail;

/* On hardware messages stay in full precision (src/exec/precision.c). */
static bool on_hardware(void)
{
    const bool real = gpu_here()->kind != RCCLX_GPU_EMU;

    if (real)
        check_say("# messages have no low precision on hardware yet\n");
    return real;
}

/* ---- letters */

static int roll(int below)
{
    return gpu_roll(&gpu_seed_state, below);
}

static void mail_start(mail *m, size_t region)
{
    memset(m, 0, sizeof *m);
    m->region = region;
}

/* False: there is no room. skew: elements off an aligned place, at either end. */
static bool write_letter(mail *m, int from, int to, rcclx_type type, rcclx_codec_id codec, size_t count, int skew)
{
    const size_t size = rcclx_type_size(type), nbytes = count * size;
    const size_t in = (m->written[from] + GAP - 1) / GAP * GAP + (size_t)(skew & 3) * size;
    const size_t out = (m->read[to] + GAP - 1) / GAP * GAP + (size_t)(skew >> 2 & 3) * size;

    if (m->n == LETTERS || in + nbytes > m->region || out + nbytes > m->region)
        return false;
    letter *l = &m->letters[m->n++];
    *l = (letter){ .c = { .kind = RCCLX_SEND, .type = type, .op = RCCLX_COPY, .codec = codec, .root = from, .count = count },
                   .to = to, .in = in, .out = out };
    l->c.seed = conform_mix(gpu_seed_state + (uint64_t)m->n);
    m->written[from] = in + nbytes;
    m->read[to] = out + nbytes;
    return true;
}

static size_t draw_count(void)
{
    static const size_t counts[] = { 0, 1, 2, 31, 32, 33, 127, 128, 511, 512, 513, 1000, 1024, 4097, 8192, 16384, 65537 };

    return roll(4) ? counts[roll(sizeof counts / sizeof *counts)] : (size_t)roll(60000);
}

static rcclx_type draw_type(void)
{
    return (rcclx_type[]){ RCCLX_F32, RCCLX_BF16, RCCLX_F16 }[roll(3)];
}

static void draw_letters(mail *m, int n)
{
    const int most = 1 + roll(roll(3) ? 12 : 90);

    mail_start(m, REGION);
    for (int i = 0; i < most; i++) {
        const bool coded = roll(4);
        const int  from = roll(n), to = roll(8) ? (from + 1 + roll(n)) % n : from;
        write_letter(m, from, to, coded ? draw_type() : roll(2) ? RCCLX_F32 : RCCLX_I32,
                     coded ? (rcclx_codec_id)(1 + roll(2)) : RCCLX_CODEC_NONE, draw_count(), roll(3) ? 0 : roll(16));
    }
}

/* Letter n * from + to; some are long enough to be coded, some are not. */
static void draw_all(mail *m, int n)
{
    const rcclx_type type = draw_type();

    mail_start(m, REGION);
    m->all = true;
    m->codec = (rcclx_codec_id)(1 + roll(2));
    m->least = 1 + (size_t)roll(8000);
    for (int i = 0; i < n * n; i++) {
        const size_t count = roll(5) ? (size_t)roll(4000) : 0, nbytes = count * rcclx_type_size(type);
        write_letter(m, i / n, i % n, type, nbytes >= m->least ? m->codec : RCCLX_CODEC_NONE, count, roll(2) ? 0 : roll(16));
    }
}

/* So long that a lane has several chunks; there and back. */
static void draw_long(mail *m, int n)
{
    const size_t count = n > 4 ? 900000 : 3000000;

    mail_start(m, HUGE_REGION);
    for (int i = 0; i < 6; i++)
        write_letter(m, i % 2, 1 - i % 2, draw_type(), i % 3 ? (rcclx_codec_id)(1 + roll(2)) : RCCLX_CODEC_NONE,
                     i < 4 ? count + (size_t)roll(1500) : 20000, i == 3 ? 5 : 0);
}

/* ---- a rank's buffers */

typedef struct { char *in, *out, *host; } desk;

static bool desk_open(const gpu_worker *w, int i, desk *d, size_t region)
{
    bool (*const alloc)(const gpu_worker *, int, char **, size_t) = w->rank[i] % 2 ? gpu_alloc_nccl : gpu_alloc;

    d->host = malloc(region);
    return CHECK(d->host, "no memory") && alloc(w, i, &d->in, region) && alloc(w, i, &d->out, region);
}

static void desk_close(const gpu_worker *w, int i, desk *d)
{
    gpu_sync(w, i, w->stream[i]);
    for (int k = 0; k < 2; k++)
        if (w->rank[i] % 2)
            OK_OR_TELL(ncclMemFree(k ? d->in : d->out));
        else
            gpu_free(w, i, k ? d->in : d->out);
    free(d->host);
}

/* What rank has to send; its `out` is blank. */
static bool desk_fill(const gpu_worker *w, int i, desk *d, const mail *m)
{
    bool ok;

    memset(d->host, CONFORM_FENCE, m->region);
    ok = gpu_put(w, i, d->out, d->host, m->region);
    for (int k = 0; k < m->n; k++)
        if (m->letters[k].c.root == w->rank[i])
            coded_values(&m->letters[k].c, w->rank[i], 0, m->letters[k].c.count, d->host + m->letters[k].in);
    return gpu_put(w, i, d->in, d->host, m->region) && ok;
}

static void tell(const gpu_worker *w, int i, const mail *m, int k)
{
    const letter *l = &m->letters[k];
    ncclResult_t  r = ncclSuccess;

    ncclCommGetAsyncError(w->comm[i], &r);
    check_say("# letter %d of %d from %d to %d, %zu and %zu bytes into buffers; %s\n", k, m->n, l->c.root, l->to, l->in, l->out,
              r == ncclSuccess ? "no error" : ncclGetLastError(w->comm[i]));
}

/* Every byte of `out`. */
static bool desk_holds(const gpu_worker *w, int i, desk *d, const mail *m)
{
    char *want = malloc(m->region);
    bool  ok = CHECK(want, "no memory") && gpu_get(w, i, d->host, d->out, m->region);

    if (ok)
        memset(want, CONFORM_FENCE, m->region);
    for (int k = 0; ok && k < m->n; k++) {
        const letter *l = &m->letters[k];
        if (l->to != w->rank[i])
            continue;
        coded_move(&l->c, l->c.root, 0, l->c.count, l->to == l->c.root, want + l->out);
        ok = coded_holds(&l->c, w->rank[i], d->host + l->out, want + l->out, l->c.count, "letter");
        if (!ok)
            tell(w, i, m, k);
    }
    ok = ok && CHECK(!memcmp(want, d->host, m->region), "rank %d: bytes beside letters were written", w->rank[i]);
    free(want);
    return ok;
}

/* ---- calls */

static bool set(ncclComm_t comm, rcclx_codec_id codec, size_t least)
{
    return OK_OR_TELL(rcclxCommSetLowPrecision(comm, codec ? rcclx_codecs[codec]->name : "off", least));
}

static bool post_letter(const gpu_worker *w, int i, const desk *d, const letter *l)
{
    const ncclDataType_t t = (ncclDataType_t)l->c.type;
    const cudaStream_t   s = (cudaStream_t)w->stream[i];
    bool                 ok = set(w->comm[i], l->c.codec, 1);

    if (l->c.root == w->rank[i])
        ok = OK_OR_TELL(ncclSend(d->in + l->in, l->c.count, t, l->to, w->comm[i], s)) && ok;
    if (l->to == w->rank[i])
        ok = OK_OR_TELL(ncclRecv(d->out + l->out, l->c.count, t, l->c.root, w->comm[i], s)) && ok;
    return ok;
}

static bool post_all(const gpu_worker *w, int i, const desk *d, const mail *m)
{
    const size_t size = rcclx_type_size(m->letters[0].c.type);
    size_t       sent[CONFORM_RANKS], from[CONFORM_RANKS], got[CONFORM_RANKS], to[CONFORM_RANKS];

    for (int k = 0; k < w->n; k++) {
        const letter *s = &m->letters[w->rank[i] * w->n + k], *r = &m->letters[k * w->n + w->rank[i]];
        sent[k] = s->c.count, from[k] = s->in / size;
        got[k] = r->c.count, to[k] = r->out / size;
    }
    return set(w->comm[i], m->codec, m->least) &&
           OK_OR_TELL(ncclAlltoAllv(d->in, sent, from, d->out, got, to, (ncclDataType_t)m->letters[0].c.type, w->comm[i],
                                    (cudaStream_t)w->stream[i]));
}

static bool post_mail(const gpu_worker *w, int i, const desk *d, const mail *m)
{
    bool ok = true;

    if (m->all)
        return post_all(w, i, d, m);
    for (int k = 0; k < m->n; k++)
        ok = post_letter(w, i, d, &m->letters[k]) && ok;
    return ok;
}

/* All that the place's ranks have to do of it, in one group. */
static bool deliver(const gpu_worker *w, const desk *d, const mail *m)
{
    bool ok = OK_OR_TELL(ncclGroupStart());

    for (int i = 0; i < w->nmine; i++)
        ok = post_mail(w, i, &d[i], m) && ok;
    return OK_OR_TELL(ncclGroupEnd()) && ok;
}

static bool play(const gpu_worker *w, desk *d, const mail *m)
{
    bool ok = true;

    for (int i = 0; i < w->nmine; i++)
        ok = desk_fill(w, i, &d[i], m) && ok;
    ok = ok && deliver(w, d, m);
    for (int i = 0; i < w->nmine; i++)
        ok = ok && desk_holds(w, i, &d[i], m);
    return ok;
}

/* ---- samples */

static mail groups[GROUPS];

static void work(gpu_worker *w)
{
    const size_t region = groups[0].region;
    desk         d[CONFORM_RANKS] = { 0 };
    bool         ok = true;

    for (int i = 0; i < w->nmine; i++)
        ok = desk_open(w, i, &d[i], region) && ok;
    for (int g = 0; ok && g < GROUPS && groups[g].region; g++)
        ok = play(w, d, &groups[g]);
    for (int i = 0; i < w->nmine; i++)
        desk_close(w, i, &d[i]);
}

static const struct { int n, ndevices, place; const char *way; } teams_of[] = {
    { 2, 0, GPU_PROCESSES, "RCCLX_GPU_LANES=0" },    { 2, 0, GPU_ONE_THREAD, "RCCLX_GPU_LANES=1" },
    { 2, 0, GPU_THREADS, "NCCL_P2P_DISABLE=1" },     { 2, 1, GPU_THREADS, "RCCLX_GPU_LANES=3" },
    { 3, 0, GPU_ONE_THREAD, "RCCLX_GPU_THREADS=128" }, { 3, 0, GPU_PROCESSES, "RCCLX_SEQ_START=4294967290" },
    { 4, 0, GPU_THREADS, "NCCL_MAX_CTAS=1" },        { 5, 0, GPU_ONE_THREAD, "RCCLX_GPU_THREADS=256" },
    { 8, 0, GPU_PROCESSES, "RCCLX_GPU_LANES=2" },    { 16, 8, GPU_ONE_THREAD, "RCCLX_GPU_LANES=2" },
};
enum { NTEAMS = sizeof teams_of / sizeof *teams_of };

static void run_team(int k)
{
    gpu_team t = { .n = teams_of[k].n, .ndevices = teams_of[k].ndevices, .place = (gpu_place)teams_of[k].place, .work = work };

    snprintf(t.env[0], sizeof t.env[0], "%s", teams_of[k].way);
    CASE("%d ranks on %d devices, %s, %s", t.n, t.ndevices ? t.ndevices : t.n, gpu_place_names[t.place], teams_of[k].way) {
        CHECK(gpu_run(&t) == 0, "ranks failed");
        gpu_end(&t);
    }
}

static bool fits(int k)
{
    const gpu_team t = { .n = teams_of[k].n, .ndevices = teams_of[k].ndevices, .place = (gpu_place)teams_of[k].place };

    return gpu_fits(&t);
}

TEST(letters_of_all_kinds_in_groups)
{
    if (on_hardware())
        return;
    reference_init();
    gpu_seed();
    for (int often = gpu_longer(1); often > 0; often--)
        for (int k = 0; k < NTEAMS; k++) {
            for (int g = 0; g < GROUPS; g++)
                (g % 3 == 2 ? draw_all : draw_letters)(&groups[g], teams_of[k].n);
            if (fits(k))
                run_team(k);
        }
}

TEST(letters_longer_than_all_staging)
{
    if (on_hardware())
        return;
    reference_init();
    gpu_seed();
    memset(groups, 0, sizeof groups);
    for (int k = 0; k < NTEAMS; k += GPU_PART) {
        draw_long(&groups[0], teams_of[k].n);
        if (fits(k))
            run_team(k);
    }
}

/* ---- graphs */

enum { REPLAYS = 6 };

static bool capture(const gpu_worker *w, int i, const desk *d, const mail *m, rcclx_gpu_graph *graph)
{
    rcclx_gpu_scope s;

    DRIVER_OK(w->gpu->enter(&s, w->device[i]));
    const bool ok = DRIVER_OK(w->gpu->capture_begin(w->stream[i])) && OK_OR_TELL(ncclGroupStart()) &&
                    post_mail(w, i, d, m) && OK_OR_TELL(ncclGroupEnd()) && DRIVER_OK(w->gpu->capture_end(w->stream[i], graph));
    w->gpu->leave(&s);
    return ok;
}

/* Other words in the letters that were captured. */
static bool replay(const gpu_worker *w, desk *d, mail *m, const rcclx_gpu_graph *graph, uint64_t seed)
{
    rcclx_gpu_scope s;
    bool            ok = true;

    for (int k = 0; k < m->n; k++)
        m->letters[k].c.seed = conform_mix(seed + (uint64_t)k);
    for (int i = 0; i < w->nmine; i++)
        ok = desk_fill(w, i, &d[i], m) && ok;
    for (int i = 0; ok && i < w->nmine; i++) {
        DRIVER_OK(w->gpu->enter(&s, w->device[i]));
        ok = DRIVER_OK(w->gpu->graph_launch(graph[i], w->stream[i]));
        w->gpu->leave(&s);
    }
    for (int i = 0; ok && i < w->nmine; i++)
        ok = desk_holds(w, i, &d[i], m);
    return ok;
}

static void graphs(gpu_worker *w)
{
    mail           *m = malloc(sizeof *m); /* each thread changes its own */
    desk            d[CONFORM_RANKS] = { 0 };
    rcclx_gpu_graph graph[CONFORM_RANKS] = { 0 };
    bool            ok = CHECK(m, "no memory");

    if (ok)
        memcpy(m, &groups[0], sizeof *m);
    for (int i = 0; i < w->nmine; i++)
        ok = desk_open(w, i, &d[i], REGION) && ok;
    for (int i = 0; ok && i < w->nmine; i++)
        ok = capture(w, i, &d[i], m, &graph[i]);
    for (int round = 0; ok && round < REPLAYS; round++)
        ok = replay(w, d, m, graph, 99 + 1000 * (uint64_t)round) && (round % 2 || play(w, d, &groups[1 + round / 2]));
    for (int i = 0; i < w->nmine; i++) {
        desk_close(w, i, &d[i]);
        if (graph[i])
            DRIVER_OK(w->gpu->graph_destroy(graph[i]));
    }
    free(m);
}

TEST(graphs_replay_letters_with_their_codec)
{
    if (on_hardware())
        return;
    reference_init();
    gpu_seed();
    for (int g = 0; g < GROUPS; g++)
        (g == 2 ? draw_all : draw_letters)(&groups[g], 3);
    gpu_everywhere("graphs", 3, graphs, NULL);
    draw_all(&groups[0], 2);
    for (int g = 1; g < GROUPS; g++)
        draw_letters(&groups[g], 2);
    gpu_everywhere("graphs", 2, graphs, NULL);
}

/* ---- ranks that do not agree */

static const struct { size_t count; rcclx_codec_id sent, expected; const char *a, *b; } disputes[] = {
    { 8, RCCLX_CODEC_NONE, RCCLX_CODEC_INT8, "of 8 float ", "8 float in int8" },
    { 8, RCCLX_CODEC_FP8, RCCLX_CODEC_NONE, "sends 8 float in fp8", "of 8 float from" },
    { 300000, RCCLX_CODEC_INT8, RCCLX_CODEC_FP8, "300000 float in int8", "300000 float in fp8" },
    { 300000, RCCLX_CODEC_INT8, RCCLX_CODEC_NONE, "300000 float in int8", "300000 float" },
    { 300000, RCCLX_CODEC_NONE, RCCLX_CODEC_FP8, "300000 float", "300000 float in fp8" },
};

static void dispute(gpu_worker *w)
{
    const int    k = *(const int *)w->arg;
    const size_t count = disputes[k].count;
    desk         d[CONFORM_RANKS] = { 0 };

    for (int i = 0; i < w->nmine; i++)
        (void)desk_open(w, i, &d[i], count * 4);
    OK_OR_TELL(ncclGroupStart());
    for (int i = 0; i < w->nmine; i++) {
        const bool sends = w->rank[i] == 0;
        set(w->comm[i], sends ? disputes[k].sent : disputes[k].expected, 1);
        if (sends)
            OK_OR_TELL(ncclSend(d[i].in, count, ncclFloat, 1, w->comm[i], (cudaStream_t)w->stream[i]));
        else
            OK_OR_TELL(ncclRecv(d[i].out, count, ncclFloat, 0, w->comm[i], (cudaStream_t)w->stream[i]));
    }
    ncclGroupEnd(); /* it may know already */
    for (int i = 0; i < w->nmine; i++) {
        ncclResult_t r = ncclSuccess;
        CHECK(WAIT_FOR(ncclCommGetAsyncError(w->comm[i], &r) != ncclSuccess || (r != ncclSuccess && r != ncclInProgress), 10),
              "row %d: rank %d noticed nothing", k, w->rank[i]);
        CHECK(ncclSend(d[i].in, 1, ncclInt8, !w->rank[i], w->comm[i], (cudaStream_t)w->stream[i]) != ncclSuccess, "it goes on");
        const char *text = ncclGetLastError(w->comm[i]);
        CHECK(strstr(text, disputes[k].a) && strstr(text, disputes[k].b) && strstr(text, "count, type and precision"),
              "row %d: rank %d: %s", k, w->rank[i], text);
    }
    (void)gpu_meet(w, 0); /* who has read it may go */
    for (int i = 0; i < w->nmine; i++) {
        desk_close(w, i, &d[i]);
        OK_OR_TELL(ncclCommAbort(w->comm[i]));
        w->comm[i] = NULL;
    }
}

TEST(ranks_that_differ_in_precision_are_told)
{
    if (on_hardware())
        return;
    static int row;

    for (row = 0; row < (int)(sizeof disputes / sizeof *disputes); row++)
        gpu_everywhere("a dispute", 2, dispute, &row);
}
