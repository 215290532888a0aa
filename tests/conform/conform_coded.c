/* Collectives and messages in low precision on the host, bit for bit (coded.h): every kind, type and
 * operator that has it among some that have not, on ranks in processes and threads, with and without
 * streams, alone and in groups, in place, in pieces small and large.
 *
 * A team plays all kinds of calls in turn; the rest is drawn by RCCLX_TEST_SEED. RCCLX_TEST_LONG=k plays
 * ten times k as many teams. */
#include "conform/coded.h"

TIME_LIMIT(600)

static const struct { const char *name; int nprocs, nthreads, nnodes; } places[] = {
    { "threads", 1, 16, 1 }, { "processes", 16, 1, 1 }, { "one thread", 1, 1, 1 }, { "2 processes of 2 threads", 2, 2, 1 },
    { "2 machines of processes", 8, 1, 2 },
};
static const int    chunks[] = { 4096, 32768, 262144 };
static const size_t counts_of[] = { 0, 1, 2, 3, 31, 32, 33, 127, 128, 129, 257, 511, 512, 513, 1000, 4097, 20000, 65537, 300001 };
enum { NPLACES = sizeof places / sizeof *places, NCHUNKS = sizeof chunks / sizeof *chunks,
       NCOUNTS = sizeof counts_of / sizeof *counts_of };

typedef enum { BY_ENVIRONMENT, BY_COMM, BY_CALL, NWAYS_TO_ASK } asking;
static const char *const asking_names[NWAYS_TO_ASK] = { "the environment", "the communicator", "the call" };

enum { STREAMS = 3 /* the first is none */, GROUP = 3, MOST = 128, REGION = 6 << 20, LARGEST = 5 << 19 };

typedef struct {
    coded_call c;
    int        asks; /* by the communicator, the call: 1 + a codec; 0: nothing is said */
    int        stream, offset, turn, memory;
    bool       in_place;
} call;

typedef struct {
    int    n, place, chunk, cma, codec, ncalls;
    asking by;
    call   calls[MOST];
    int    group[MOST]; /* how many from here on are a group; 0: in one already */
} sample;

static uint64_t dice;

static int roll(int below)
{
    dice = conform_mix(dice + 0x9e3779b97f4a7c15u);
    return (int)((dice >> 20) % (uint64_t)below);
}

/* ---- the calls of a team */

/* false: such a call cannot ask. */
static bool draw_codec(call *a, const sample *s)
{
    const bool can = coded_may(&a->c), mute = a->c.kind == RCCLX_ALL_TO_ALLV || a->c.kind == RCCLX_SEND;

    if (s->by == BY_CALL && can && mute)
        return false;
    a->asks = s->by == BY_ENVIRONMENT ? 0 : 1 + roll(4) % RCCLX_CODEC_COUNT;
    if (s->by == BY_CALL && !can)
        a->asks = mute ? 0 : roll(2); /* nothing, or "off" */
    a->c.codec = (rcclx_codec_id)(s->by == BY_ENVIRONMENT ? s->codec : a->asks ? a->asks - 1 : RCCLX_CODEC_NONE);
    if (!can || s->n == 1)
        a->c.codec = RCCLX_CODEC_NONE;
    return true;
}

static void draw_call(sample *s, rcclx_kind kind, rcclx_type type, rcclx_redop op)
{
    call        *a = &s->calls[s->ncalls];
    const size_t fits = LARGEST / rcclx_type_size(type) / (size_t)(kind == RCCLX_ALL_REDUCE || kind == RCCLX_SEND ? 1 : s->n);

    *a = (call){ .stream = roll(STREAMS), .offset = (int[]){ 0, 0, 1, 3 }[roll(4)], .turn = roll(s->n), .memory = roll(2) };
    a->c = (coded_call){ .kind = kind, .type = type, .op = op, .n = s->n, .root = roll(s->n), .count = counts_of[roll(NCOUNTS)],
                         .algo = "staged" };
    a->c.seed = conform_mix(dice);
    a->in_place = roll(2) && kind != RCCLX_ALL_TO_ALLV && kind != RCCLX_SEND;
    if (!draw_codec(a, s))
        return;
    a->c.count = a->c.count < fits ? a->c.count : fits;
    if (!a->c.codec && a->c.count > 4097)
        a->c.count = 4097; /* the reference is slow */
    s->ncalls += s->ncalls < MOST - 1;
}

static void draw_calls(sample *s)
{
    static const rcclx_type types[] = { RCCLX_F32, RCCLX_BF16, RCCLX_F16, RCCLX_I32, RCCLX_F64 };

    s->ncalls = 0;
    for (int k = 0; k <= RCCLX_SEND; k++)
        for (int t = 0; t < 5; t++)
            for (int op = 0; op <= RCCLX_COPY; op++) {
                const coded_call c = { .kind = (rcclx_kind)k, .type = types[t], .op = (rcclx_redop)op };
                if ((op == RCCLX_COPY) != rcclx_kind_reduces(c.kind) && (coded_may(&c) || !roll(4)))
                    draw_call(s, c.kind, c.type, c.op);
            }
    for (int k = s->ncalls - 1; k > 0; k--) {
        const int  other = roll(k + 1);
        const call x = s->calls[k];
        s->calls[k] = s->calls[other];
        s->calls[other] = x;
    }
    memset(s->group, 0, sizeof s->group);
    for (int k = 0; k < s->ncalls; k += s->group[k]) {
        const int many = roll(2) ? 1 : 1 + roll(GROUP), left = s->ncalls - k;
        s->group[k] = many < left ? many : left;
    }
}

/* ---- a call on every rank of a place */

typedef struct {
    char         *region[2]; /* plain, of ncclMemAlloc; GROUP parts of REGION bytes each */
    coded_buffers b[GROUP];
    cudaStream_t  stream[STREAMS];
} rank_buffers;

/* A message goes `turn` ranks on; what a rank gets is a call of its own. */
static coded_call seen_by(const call *a, int rank)
{
    coded_call c = a->c;

    if (c.kind == RCCLX_SEND)
        c.root = (rank + c.n - a->turn) % c.n;
    return c;
}

static bool issue(const conform_worker *w, int i, const call *a, const rank_buffers *rb, int slot, asking by)
{
    const coded_buffers *b = &rb->b[slot];
    const coded_call     c = seen_by(a, w->rank[i]);
    const ncclDataType_t t = (ncclDataType_t)c.type;
    const cudaStream_t   s = rb->stream[a->stream];

    if (by == BY_COMM && !coded_set(w->comm[i], a->asks))
        return false;
    if (c.kind != RCCLX_SEND)
        return OK_OR_TELL(coded_post(&c, w->rank[i], b->in, b->out, b->op, by == BY_CALL ? a->asks : 0, w->comm[i], s));
    return OK_OR_TELL(ncclSend(b->in, c.count, t, (w->rank[i] + a->turn) % w->n, w->comm[i], s)) &&
           OK_OR_TELL(ncclRecv(b->out, c.count, t, c.root, w->comm[i], s));
}

static void prepare(const conform_worker *w, int i, const call *a, rank_buffers *rb, int slot)
{
    char        *at = rb->region[a->memory ^ (w->rank[i] & 1)] + (size_t)slot * REGION;
    const size_t off = CONFORM_GUARD + (size_t)a->offset * rcclx_type_size(a->c.type);

    coded_lay_out(&rb->b[slot], &a->c, w->rank[i], a->in_place, at + off,
                  at + REGION / 2 + (a->c.seed & 64 ? off : CONFORM_GUARD));
    coded_prepare(&rb->b[slot], &a->c, w->rank[i]);
    rb->b[slot].op = coded_op(&a->c, w->rank[i], w->comm[i]);
}

static bool verify(const conform_worker *w, const sample *s, const call *a, const rank_buffers *rb, int slot, int index)
{
    char *want = malloc(REGION);
    bool  ok = CHECK(want, "no memory");

    for (int i = 0; ok && i < w->nmine; i++) {
        const coded_call c = seen_by(a, w->rank[i]);
        if (i == 0 || coded_differs(&c))
            coded_expect(&c, w->rank[i], want);
        ok = coded_verify(&rb[i].b[slot], &c, w->rank[i], want);
        w->team->shared->hash[index][w->rank[i]] = conform_hash(rb[i].b[slot].out, rb[i].b[slot].out_bytes);
        coded_op_end(rb[i].b[slot].op, w->comm[i]);
    }
    if (!ok)
        check_say("# call %d%s, %d elements off, stream %d; %s asks, chunks of %d, CMA %d, %s\n", index,
                  a->in_place ? ", in place" : "", a->offset, a->stream, asking_names[s->by], chunks[s->chunk], s->cma,
                  places[s->place].name);
    free(want);
    return ok;
}

static bool play(const conform_worker *w, const sample *s, rank_buffers *rb, int first)
{
    const int  many = s->group[first];
    const bool grouped = w->nmine > 1 || many > 1 || s->calls[first].c.kind == RCCLX_SEND;
    bool       ok = true;

    for (int i = 0; i < w->nmine; i++)
        for (int k = 0; k < many; k++)
            prepare(w, i, &s->calls[first + k], &rb[i], k);
    ok = !grouped || OK_OR_TELL(ncclGroupStart());
    for (int k = 0; ok && k < many; k++)
        for (int i = 0; i < w->nmine; i++)
            ok = issue(w, i, &s->calls[first + k], &rb[i], k, s->by) && ok;
    ok = (!grouped || OK_OR_TELL(ncclGroupEnd())) && ok;
    for (int i = 0; i < w->nmine; i++)
        for (int x = 0; x < STREAMS; x++)
            ok = OK_OR_TELL(rcclxStreamSynchronize(rb[i].stream[x])) && ok;
    for (int k = 0; ok && k < many; k++)
        ok = verify(w, s, &s->calls[first + k], rb, k, first + k);
    return ok;
}

static void work(conform_worker *w)
{
    const sample *s = w->arg;
    rank_buffers  rb[CONFORM_RANKS] = { 0 };
    bool          ok = true;

    for (int i = 0; i < w->nmine; i++) {
        rb[i].region[0] = malloc((size_t)GROUP * REGION);
        ok = CHECK(rb[i].region[0], "no memory") && ok;
        ok = OK_OR_TELL(ncclMemAlloc((void **)&rb[i].region[1], (size_t)GROUP * REGION)) && ok;
        for (int x = 1; x < STREAMS; x++)
            ok = OK_OR_TELL(rcclxStreamCreate(&rb[i].stream[x])) && ok;
    }
    for (int k = 0; ok && k < s->ncalls; k += s->group[k])
        ok = play(w, s, rb, k);
    for (int i = 0; i < w->nmine; i++) {
        for (int x = 1; x < STREAMS; x++)
            OK_OR_TELL(rcclxStreamDestroy(rb[i].stream[x]));
        free(rb[i].region[0]);
        OK_OR_TELL(ncclMemFree(rb[i].region[1]));
    }
}

static void same_bits(const conform_team *t, const sample *s)
{
    for (int k = 0; k < s->ncalls; k++)
        for (int r = 1; !coded_differs(&s->calls[k].c) && r < t->n; r++)
            CHECK(t->shared->hash[k][r] == t->shared->hash[k][0], "call %d: rank %d has other bits than rank 0", k, r);
}

static void run_sample(sample *s)
{
    const int    most = places[s->place].nthreads;
    conform_team t = { .n = s->n, .nprocs = places[s->place].nprocs, .nthreads = most < s->n ? most : s->n,
                       .nnodes = places[s->place].nnodes, .work = work, .arg = s };

    snprintf(t.env[0], sizeof t.env[0], "RCCLX_CMA=%s", s->cma ? "auto" : "0");
    snprintf(t.env[1], sizeof t.env[1], "RCCLX_CHUNK_BYTES=%d", chunks[s->chunk]);
    if (t.nnodes > 1) /* what is compared bit by bit is the sum in rank order */
        snprintf(t.env[4], sizeof t.env[4], "RCCLX_ORDERED=1");
    if (s->by == BY_ENVIRONMENT) {
        snprintf(t.env[2], sizeof t.env[2], "RCCLX_LOW_PRECISION=%s", rcclx_codecs[s->codec]->name);
        snprintf(t.env[3], sizeof t.env[3], "RCCLX_LOW_PRECISION_MIN_BYTES=1");
    }
    draw_calls(s);
    CASE("%s asks%s%s, %d ranks, %s, CMA %d, chunk %d: %d calls", asking_names[s->by], *t.env[2] ? " for " : "",
         *t.env[2] ? rcclx_codecs[s->codec]->name : "", t.n, places[s->place].name, s->cma, chunks[s->chunk], s->ncalls) {
        if (CHECK(conform_run(&t) == 0, "ranks failed"))
            same_bits(&t, s);
        conform_end(&t);
    }
}

/* Every number of ranks in every place; who asks, for which codec, with what chunks goes round. */
TEST(a_sample_of_all_calls)
{
    static sample s;
    const char   *longer = getenv("RCCLX_TEST_LONG"), *seed = getenv("RCCLX_TEST_SEED");
    const int     times = longer ? 10 * (atoi(longer) > 0 ? atoi(longer) : 1) : 1;

    reference_init();
    dice = seed ? strtoull(seed, NULL, 0) : 1;
    for (int i = 0; i < 8 * NPLACES * times; i++) {
        s.n = 1 + i % 8;
        s.place = i / 8 % NPLACES;
        s.by = (asking)(i % NWAYS_TO_ASK);
        s.codec = 1 + roll(RCCLX_CODEC_COUNT - 1);
        s.chunk = roll(NCHUNKS);
        s.cma = roll(2);
        run_sample(&s);
    }
}
