/* Every collective on GPUs, real or emulated, against the host's arithmetic in rank order, bit for bit.
 *
 * A team (ranks, where they live, which protocol or algorithm is asked for) runs calls one after
 * another. What a call is comes from decks, as of cards, so that a run sees every value of
 *
 *   collective x type x operator   |   count x in place x buffers   |   ranks x place x way
 *
 * and pairs across them by chance. The order of the cards is the seed's (RCCLX_TEST_SEED, printed);
 * RCCLX_TEST_LONG=k plays ten times k as many. On real GPUs, where a process takes longer to start,
 * it is a part of the teams. An algorithm that does not keep the
 * rank order gets values that add up exactly, or any, and then all ranks must have the same bits. */
#include "gpu/gpu_ranks.h"

TIME_LIMIT(900)

/* ---- what varies */

enum { PROCS = GPU_PROCESSES, THREADS = GPU_THREADS, ONE = GPU_ONE_THREAD };
static const struct { int n, ndevices, place; } teams_of[] = {
    { 1, 0, PROCS },
    { 2, 0, PROCS },   { 3, 0, PROCS },   { 4, 0, PROCS },   { 5, 0, PROCS },   { 8, 0, PROCS },
    { 2, 0, THREADS }, { 3, 0, THREADS }, { 4, 0, THREADS }, { 5, 0, THREADS }, { 8, 0, THREADS },
    { 2, 0, ONE },     { 3, 0, ONE },     { 4, 0, ONE },     { 5, 0, ONE },     { 8, 0, ONE },
    { 2, 1, THREADS }, { 3, 2, THREADS }, { 8, 2, THREADS },
    { 2, 1, ONE },     { 3, 1, ONE },     { 4, 2, ONE },     { 5, 2, ONE },     { 8, 1, ONE },     { 8, 2, ONE },
};
static const struct { const char *env; bool unordered; } ways[] = {
    { "RCCLX_ALGO=", false },           { "NCCL_PROTO=LL", false },     { "NCCL_PROTO=LL128", false },
    { "NCCL_PROTO=Simple", false },     { "RCCLX_ALGO=ll_two", false }, { "RCCLX_ALGO=ll128_two", false },
    { "RCCLX_ALGO=direct", false },     { "RCCLX_ALGO=staged", false }, { "RCCLX_ALGO=direct_push", false },
    { "NCCL_P2P_DISABLE=1", false },    { "RCCLX_ALGO=ring", true },    { "RCCLX_ALGO=tree", true },
    { "RCCLX_ALGO=doubling", true },
};
static const char *const lanes[] = { "RCCLX_GPU_LANES=0", "RCCLX_GPU_LANES=1", "RCCLX_GPU_LANES=3", "RCCLX_GPU_LANES=8" };
static const char *const starts[] = { "RCCLX_SEQ_START=0", "RCCLX_SEQ_START=2147483640", "RCCLX_SEQ_START=4294967290" };
static const size_t counts_of[] = { 0, 1, 2, 3, 7, 17, 64, 129, 1000, 4097, 65537 };
static const int    weights[] = { 2, 4, 4, 4, 4, 4, 4, 4, 4, 3, 1 }; /* how many cards of a size */

typedef enum { PLAIN, OF_NCCL, REGISTERED, MIXED, IN_PLAIN, BUFFERS } buffers;
static const char *const buffer_names[BUFFERS] = { "plain", "ncclMemAlloc", "registered", "mixed by rank",
                                                   "in plain, out ncclMemAlloc" };
enum { KINDS_OF_MEMORY = 3, NTEAMS = sizeof teams_of / sizeof *teams_of, NWAYS = sizeof ways / sizeof *ways };

typedef struct {
    rcclx_kind  kind;
    rcclx_type  type;
    rcclx_redop op; /* COPY for what reduces nothing */
    size_t      count;
    bool        in_place;
    buffers     buffer;
    int         root, offset;
    uint64_t    seed;
} call;

enum { CALLS = 36, REAL_TEAMS = 30, REGION = 2304 << 10, LARGEST = 1 << 20 };

typedef struct {
    int  team, way, lanes, start;
    call calls[CALLS];
} sample;

/* ---- decks */

static gpu_deck what, shape, teams;

static gpu_team team_of(int i)
{
    return (gpu_team){ .n = teams_of[i].n, .ndevices = teams_of[i].ndevices, .place = (gpu_place)teams_of[i].place };
}

static void make_decks(void)
{
    for (int k = 0; k < RCCLX_COLL_COUNT; k++)
        for (int t = 0; t < RCCLX_TYPE_COUNT; t++)
            for (int op = 0; op <= RCCLX_COPY; op++)
                if ((op == RCCLX_COPY) != rcclx_kind_reduces((rcclx_kind)k))
                    gpu_add_card(&what, (k * RCCLX_TYPE_COUNT + t) * 16 + op);
    for (size_t c = 0; c < sizeof counts_of / sizeof *counts_of; c++)
        for (int i = 0; i < 2 * BUFFERS; i++)
            for (int often = 0; often < weights[c]; often++)
                gpu_add_card(&shape, (int)c * 16 + i);
    for (int i = 0; i < NTEAMS * NWAYS; i++) {
        const gpu_team t = team_of(i / NWAYS);
        if (gpu_fits(&t))
            gpu_add_card(&teams, i);
    }
}

static void draw_call(call *c, int n)
{
    const int w = gpu_draw(&what), s = gpu_draw(&shape);
    uint64_t *dice = &gpu_seed_state;

    c->kind = (rcclx_kind)(w / 16 / RCCLX_TYPE_COUNT);
    c->type = (rcclx_type)(w / 16 % RCCLX_TYPE_COUNT);
    c->op = (rcclx_redop)(w % 16);
    c->count = counts_of[s / 16];
    c->in_place = s % 16 % 2 && c->kind != RCCLX_ALL_TO_ALLV; /* the API wants two buffers there */
    c->buffer = (buffers)(s % 16 / 2);
    c->root = gpu_roll(dice, n);
    c->offset = (int[]){ 0, 0, 1, 3 }[gpu_roll(dice, 4)];
    c->seed = conform_mix(*dice);
    const size_t fits = LARGEST / rcclx_type_size(c->type) / (size_t)n;
    c->count = c->count < fits ? c->count : fits;
}

/* ---- one call, on every rank of a place */

typedef struct {
    char       *host[KINDS_OF_MEMORY], *device[KINDS_OF_MEMORY]; /* regions of REGION bytes, alike */
    char       *in, *out;         /* in the host's */
    int         in_mem, out_mem;
    size_t      in_bytes, out_bytes;
    void       *handle;
    ncclRedOp_t op;
} rank_buffers;

/* Elements from rank `from` to rank `to` in an all-to-all-v. */
static size_t part_of(const call *c, int from, int to)
{
    return c->count * (size_t)((from + 2 * to + (int)(c->seed & 3)) % 4) / 3;
}

/* Elements of a rank's buffers; 0: it has none. */
static void lengths(const call *c, int n, int rank, size_t *in, size_t *out)
{
    const size_t all = c->count * (size_t)n;
    const rcclx_kind k = c->kind;

    *in = *out = c->count;
    if (k == RCCLX_ALL_GATHER || k == RCCLX_ALL_TO_ALL || k == RCCLX_ALL_TO_ALLV)
        *out = all;
    if (k == RCCLX_REDUCE_SCATTER || k == RCCLX_ALL_TO_ALL || k == RCCLX_ALL_TO_ALLV)
        *in = all;
    if (k == RCCLX_GATHER)
        *out = rank == c->root ? all : 0;
    if (k == RCCLX_SCATTER)
        *in = rank == c->root ? all : 0;
    if (k == RCCLX_REDUCE_TO && rank != c->root)
        *out = 0;
    if (k == RCCLX_BROADCAST && rank != c->root)
        *in = 0;
}

/* Where the smaller buffer lies in the larger one when both are one: elements. */
static size_t inside(const call *c, int rank)
{
    const rcclx_kind k = c->kind;
    const bool       parts = k == RCCLX_ALL_GATHER || k == RCCLX_REDUCE_SCATTER || k == RCCLX_GATHER || k == RCCLX_SCATTER;

    return parts ? c->count * (size_t)rank : 0;
}

static void lay_out(rank_buffers *b, const call *c, int n, int rank)
{
    static const int in_of[BUFFERS] = { 0, 1, 2, 0, 0 }, out_of[BUFFERS] = { 0, 1, 2, 0, 1 };
    const size_t     size = rcclx_type_size(c->type), off = CONFORM_GUARD + (size_t)c->offset * size;
    size_t           in, out;

    lengths(c, n, rank, &in, &out);
    b->in_bytes = in * size;
    b->out_bytes = out * size;
    b->in_mem = c->buffer == MIXED ? rank % KINDS_OF_MEMORY : in_of[c->buffer];
    b->out_mem = c->buffer == MIXED ? rank % KINDS_OF_MEMORY : out_of[c->buffer];
    b->in = b->host[b->in_mem] + off;
    b->out = b->host[b->out_mem] + REGION / 2 + (c->seed >> 8 & 1 ? off : CONFORM_GUARD);
    if (!c->in_place || !in || !out)
        return;
    b->in_mem = b->out_mem;
    if (in <= out)
        b->in = b->out + inside(c, rank) * size;
    else
        b->in = b->host[b->in_mem] + off, b->out = b->in + inside(c, rank) * size;
}

static bool overlapping(const rank_buffers *b)
{
    return b->in < b->out + b->out_bytes && b->out < b->in + b->in_bytes;
}

static void prepare(const rank_buffers *b, const conform_data *d, int rank)
{
    memset(b->out, CONFORM_FENCE, b->out_bytes);
    conform_fence(b->out, b->out_bytes);
    if (!overlapping(b) || b->in_bytes > b->out_bytes)
        conform_fence(b->in, b->in_bytes);
    conform_fill(d, d->value[rank], b->in, 0, b->in_bytes / rcclx_type_size(d->type));
}

static char *there(const rank_buffers *b, const char *p, int mem)
{
    return b->device[mem] + (p - b->host[mem]);
}

/* Both buffers with the bytes around them. */
static bool carry(const gpu_worker *w, int i, const rank_buffers *b, bool back)
{
    const struct { char *at; size_t nbytes; int mem; } part[2] = {
        { b->in - CONFORM_GUARD, b->in_bytes + 2 * CONFORM_GUARD, b->in_mem },
        { b->out - CONFORM_GUARD, b->out_bytes + 2 * CONFORM_GUARD, b->out_mem },
    };
    bool ok = true;

    for (int k = 0; ok && k < 2; k++) {
        char *device = there(b, part[k].at, part[k].mem);
        ok = gpu_copy(w, i, back ? part[k].at : device, back ? device : part[k].at, part[k].nbytes);
    }
    return gpu_sync(w, i, w->stream[i]) && ok;
}

static ncclResult_t post_uneven(const call *c, const gpu_worker *w, int i, const void *in, void *out)
{
    size_t send[CONFORM_RANKS], recv[CONFORM_RANKS], at[CONFORM_RANKS];

    for (int r = 0; r < w->n; r++) {
        at[r] = c->count * (size_t)r;
        send[r] = part_of(c, w->rank[i], r);
        recv[r] = part_of(c, r, w->rank[i]);
    }
    return ncclAlltoAllv(in, send, at, out, recv, at, (ncclDataType_t)c->type, w->comm[i], (cudaStream_t)w->stream[i]);
}

static ncclResult_t post(const rank_buffers *b, const call *c, const gpu_worker *w, int i)
{
    const ncclDataType_t t = (ncclDataType_t)c->type;
    const ncclComm_t     m = w->comm[i];
    const cudaStream_t   s = (cudaStream_t)w->stream[i];
    const bool           null = (c->seed >> 9 ^ (uint64_t)w->rank[i]) & 1; /* what is not used may be NULL */
    const void          *in = b->in_bytes || !null ? there(b, b->in, b->in_mem) : NULL;
    void                *out = b->out_bytes || !null ? there(b, b->out, b->out_mem) : NULL;

    switch (c->kind) {
    case RCCLX_ALL_REDUCE: return ncclAllReduce(in, out, c->count, t, b->op, m, s);
    case RCCLX_REDUCE_TO: return ncclReduce(in, out, c->count, t, b->op, c->root, m, s);
    case RCCLX_BROADCAST: return ncclBroadcast(in, out, c->count, t, c->root, m, s);
    case RCCLX_ALL_GATHER: return ncclAllGather(in, out, c->count, t, m, s);
    case RCCLX_REDUCE_SCATTER: return ncclReduceScatter(in, out, c->count, t, b->op, m, s);
    case RCCLX_ALL_TO_ALL: return ncclAlltoAll(in, out, c->count, t, m, s);
    case RCCLX_GATHER: return ncclGather(in, out, c->count, t, c->root, m, s);
    case RCCLX_SCATTER: return ncclScatter(in, out, c->count, t, c->root, m, s);
    default: return post_uneven(c, w, i, in, out);
    }
}

/* ---- what must have come out */

static void tell(const call *c, const gpu_worker *w, char *text, size_t nbytes)
{
    const sample *s = w->arg;

    snprintf(text, nbytes, "%s of %zu %s %s, %s%s, %d elements off, root %d; %s, %s, %s, %d ranks on %d devices, %s",
             rcclx_kind_name(c->kind), c->count, rcclx_type_name(c->type), rcclx_redop_name(c->op), buffer_names[c->buffer],
             c->in_place ? ", in place" : "", c->offset, c->root, ways[s->way].env, lanes[s->lanes], starts[s->start], w->n,
             w->team->ndevices ? w->team->ndevices : w->n, gpu_place_names[w->team->place]);
}

static bool expect(const call *c, const gpu_worker *w, int rank, const conform_data *d, const uint64_t *table, const char *out,
                   size_t first, size_t count, const char *name)
{
    const size_t size = rcclx_type_size(d->type), at = conform_wrong(d, table, out, first, count);
    char         text[400];

    if (at == count)
        return true;
    tell(c, w, text, sizeof text);
    return CHECK(at == count, "%s: rank %d: %s[%zu] is %#llx instead of %#llx", text, rank, name, at,
                 (unsigned long long)bits_get(out + at * size, size), (unsigned long long)table[(first + at) % CONFORM_PERIOD]);
}

static bool verify_parts(const rank_buffers *b, const call *c, const gpu_worker *w, int rank, const conform_data *d)
{
    const size_t size = rcclx_type_size(d->type);
    bool         ok = true;

    for (int r = 0; ok && r < w->n; r++) {
        const size_t got = c->kind == RCCLX_ALL_TO_ALLV ? part_of(c, r, rank) : c->count;
        const bool   all = c->kind == RCCLX_ALL_TO_ALL || c->kind == RCCLX_ALL_TO_ALLV;
        const char  *part = b->out + c->count * (size_t)r * size;
        ok = expect(c, w, rank, d, d->value[r], part, all ? c->count * (size_t)rank : 0, got, "a part of out") &&
             CHECK(conform_untouched(part + got * size, (c->count - got) * size),
                   "rank %d: bytes behind the part of rank %d were written", rank, r);
    }
    return ok;
}

static bool verify_out(const rank_buffers *b, const call *c, const gpu_worker *w, int rank, const conform_data *d)
{
    const size_t mine = c->count * (size_t)rank;

    if (!b->out_bytes)
        return true;
    switch (c->kind) {
    case RCCLX_ALL_REDUCE:
    case RCCLX_REDUCE_TO: return expect(c, w, rank, d, d->reduced, b->out, 0, c->count, "out");
    case RCCLX_REDUCE_SCATTER: return expect(c, w, rank, d, d->reduced, b->out, mine, c->count, "out");
    case RCCLX_BROADCAST: return expect(c, w, rank, d, d->value[c->root], b->out, 0, c->count, "out");
    case RCCLX_SCATTER: return expect(c, w, rank, d, d->value[c->root], b->out, mine, c->count, "out");
    default: return verify_parts(b, c, w, rank, d);
    }
}

/* IN, wherever OUT does not lie over it, and the bytes around both. */
static bool verify_rest(const rank_buffers *b, const call *c, const gpu_worker *w, int rank, const conform_data *d)
{
    const size_t size = rcclx_type_size(d->type);
    const bool   over = overlapping(b), larger = b->in_bytes > b->out_bytes;
    char         text[400];
    bool         ok = true;

    if (!over) {
        ok = expect(c, w, rank, d, d->value[rank], b->in, 0, b->in_bytes / size, "in, which must not change,");
    } else if (larger) {
        const size_t before = (size_t)(b->out - b->in) / size, after = before + b->out_bytes / size;
        ok = expect(c, w, rank, d, d->value[rank], b->in, 0, before, "in before out") &&
             expect(c, w, rank, d, d->value[rank], b->in + after * size, after, b->in_bytes / size - after, "in after out");
    }
    const bool held = (over && larger) || conform_fenced(b->out, b->out_bytes);
    const bool kept = (over && !larger) || conform_fenced(b->in, b->in_bytes);
    if (held && kept)
        return ok;
    tell(c, w, text, sizeof text);
    return CHECK(held && kept, "%s: rank %d: bytes beside %s were written", text, rank, held ? "in" : "out");
}

/* ---- data: the library's own arithmetic on the host says what comes out */

/* Is the result known to the last bit, whatever the values are? */
static bool any_values(const call *c, bool unordered)
{
    return !unordered || c->type < RCCLX_F16 || c->op == RCCLX_MAX || c->op == RCCLX_MIN || c->op == RCCLX_COPY;
}

static void reduce_on_host(conform_data *d)
{
    const size_t size = rcclx_type_size(d->type);
    char         src[CONFORM_RANKS][CONFORM_PERIOD * 8], dst[CONFORM_PERIOD * 8];
    const void  *from[CONFORM_RANKS];
    void        *to = dst;

    for (int r = 0; r < d->n; r++) {
        conform_fill(d, d->value[r], src[r], 0, CONFORM_PERIOD);
        from[r] = src[r];
    }
    const rcclx_reduce_args a = { .type = d->type, .op = d->op, .nsrc = d->n, .ndst = 1, .src = from, .dst = &to,
                                  .count = CONFORM_PERIOD, .divisor = d->n, .scalar = d->op == RCCLX_PREMUL ? d->scalar : NULL };
    rcclx_reduce(&a);
    for (int i = 0; i < CONFORM_PERIOD; i++) {
        const uint64_t bits = bits_get(dst + (size_t)i * size, size);
        CHECK(bits == d->reduced[i], "the host's arithmetic differs from its reference");
        d->reduced[i] = bits;
    }
}

static void make_data(conform_data *d, const call *c, int n, bool unordered)
{
    *d = (conform_data){ .type = c->type, .op = c->op, .n = n, .seed = c->seed };
    d->wild = any_values(c, unordered) || c->kind == RCCLX_ALL_REDUCE; /* else the values add up exactly */
    conform_data_init(d);
    if (c->op != RCCLX_COPY)
        reduce_on_host(d);
}

/* ---- a team */

static bool play(gpu_worker *w, rank_buffers *b, const call *c, int index, conform_data *d)
{
    const sample *s = w->arg;
    const bool    unordered = ways[s->way].unordered || w->team->machines;
    bool          ok = true;

    make_data(d, c, w->n, unordered);
    for (int i = 0; i < w->nmine; i++) {
        lay_out(&b[i], c, w->n, w->rank[i]);
        prepare(&b[i], d, w->rank[i]);
        ok = carry(w, i, &b[i], false) && ok;
        b[i].op = c->op < RCCLX_PREMUL ? (ncclRedOp_t)c->op : ncclSum;
        if (c->op == RCCLX_PREMUL)
            ok = OK_OR_TELL(ncclRedOpCreatePreMulSum(&b[i].op, &d->scalar[w->rank[i]], (ncclDataType_t)c->type,
                                                     ncclScalarHostImmediate, w->comm[i])) && ok;
    }
    gpu_open(w);
    for (int i = 0; i < w->nmine; i++)
        ok = OK_OR_TELL(post(&b[i], c, w, i)) && ok;
    ok = gpu_close(w) && ok;
    for (int i = 0; ok && i < w->nmine; i++) {
        ok = carry(w, i, &b[i], true);
        if (any_values(c, unordered) || !d->wild)
            ok = verify_out(&b[i], c, w, w->rank[i], d) && ok;
        w->team->shared->hash[index][w->rank[i]] = conform_hash(b[i].out, b[i].out_bytes);
        ok = verify_rest(&b[i], c, w, w->rank[i], d) && ok;
        if (b[i].op >= ncclNumOps)
            OK_OR_TELL(ncclRedOpDestroy(b[i].op, w->comm[i]));
    }
    return ok;
}

static bool get_memory(gpu_worker *w, rank_buffers *b)
{
    bool ok = true;

    for (int i = 0; i < w->nmine; i++) {
        for (int m = 0; m < KINDS_OF_MEMORY; m++) {
            b[i].host[m] = malloc(REGION);
            ok = ok && b[i].host[m] && (m == OF_NCCL ? gpu_alloc_nccl : gpu_alloc)(w, i, &b[i].device[m], REGION);
        }
        ok = ok && OK_OR_TELL(ncclCommRegister(w->comm[i], b[i].device[REGISTERED], REGION, &b[i].handle));
    }
    return CHECK(ok, "no memory");
}

static void give_memory(gpu_worker *w, rank_buffers *b)
{
    for (int i = 0; i < w->nmine; i++)
        gpu_sync(w, i, w->stream[i]); /* after a failure some may be on their way */
    for (int i = 0; i < w->nmine; i++) {
        if (b[i].handle)
            OK_OR_TELL(ncclCommDeregister(w->comm[i], b[i].handle));
        for (int m = 0; m < KINDS_OF_MEMORY; m++) {
            free(b[i].host[m]);
            if (m == OF_NCCL)
                OK_OR_TELL(ncclMemFree(b[i].device[m]));
            else
                gpu_free(w, i, b[i].device[m]);
        }
    }
}

/* Are messages between GPUs here yet? They are told, not hidden, when they are not. */
static bool has_messages(gpu_worker *w, rank_buffers *b)
{
    const call  c = { .kind = RCCLX_ALL_TO_ALLV, .type = RCCLX_F32, .op = RCCLX_COPY, .count = 3 };
    bool        ok = true;

    gpu_open(w);
    for (int i = 0; i < w->nmine; i++) {
        lay_out(&b[i], &c, w->n, w->rank[i]);
        ok = post(&b[i], &c, w, i) == ncclSuccess && ok;
    }
    if (w->nmine > 1)
        ok = ncclGroupEnd() == ncclSuccess && ok;
    if (!ok && w->rank[0] == 0)
        check_say("# all-to-all-v is left out: %s\n", ncclGetLastError(NULL));
    CHECK(ok || strstr(ncclGetLastError(NULL), "not built yet"), "%s", ncclGetLastError(NULL));
    for (int i = 0; i < w->nmine; i++)
        ok = gpu_sync(w, i, w->stream[i]) && ok;
    return ok;
}

static void work(gpu_worker *w)
{
    const sample *s = w->arg;
    rank_buffers  b[CONFORM_RANKS] = { 0 };
    conform_data *d = malloc(sizeof *d);
    bool          ok = get_memory(w, b) && d;
    const bool    messages = ok && has_messages(w, b);

    for (int k = 0; ok && k < CALLS; k++)
        if (messages || s->calls[k].kind != RCCLX_ALL_TO_ALLV)
            ok = play(w, b, &s->calls[k], k, d);
    give_memory(w, b);
    free(d);
}

static void same_bits(const gpu_team *t, const sample *s)
{
    for (int k = 0; k < CALLS; k++) {
        const rcclx_kind kind = s->calls[k].kind;
        if (kind != RCCLX_ALL_REDUCE && kind != RCCLX_ALL_GATHER && kind != RCCLX_BROADCAST)
            continue;
        for (int r = 1; r < t->n; r++)
            CHECK(t->shared->hash[k][r] == t->shared->hash[k][0], "call %d, %s of %zu %s %s: rank %d has other bits than rank 0",
                  k, rcclx_kind_name(kind), s->calls[k].count, rcclx_type_name(s->calls[k].type),
                  rcclx_redop_name(s->calls[k].op), r);
    }
}

static void run_sample(sample *s, gpu_team t)
{
    char machines[40] = "";

    t.work = work;
    t.arg = s;

    snprintf(t.env[0], sizeof t.env[0], "%s", ways[s->way].env);
    snprintf(t.env[1], sizeof t.env[1], "%s", lanes[s->lanes]);
    snprintf(t.env[2], sizeof t.env[2], "%s", starts[s->start]);
    for (int k = 0; k < CALLS; k++)
        draw_call(&s->calls[k], t.n);
    if (t.machines)
        snprintf(machines, sizeof machines, " on %d machines%s", t.machines, t.mixed ? " in turn" : "");
    CASE("%s, %s, %s, %d ranks on %d devices, %s%s", t.env[0], t.env[1], t.env[2], t.n, t.ndevices ? t.ndevices : t.n,
         gpu_place_names[t.place], machines) {
        if (CHECK(gpu_run(&t) == 0, "ranks failed"))
            same_bits(&t, s);
        gpu_end(&t);
    }
}

TEST(a_sample_of_all_calls)
{
    static sample s;
    const bool    real = gpu_here()->kind != RCCLX_GPU_EMU;
    const int     nteams = (real ? REAL_TEAMS : NTEAMS * NWAYS / GPU_PART) * gpu_longer(10);

    reference_init();
    gpu_seed();
    make_decks();
    REQUIRE(teams.n, "no team of RCCLX_TEST_RANKS=%s fits on %d devices", getenv("RCCLX_TEST_RANKS"), gpu_here()->count);
    for (int i = 0; i < nteams; i++) {
        const int drawn = gpu_draw(&teams);
        s.team = drawn / NWAYS;
        s.way = drawn % NWAYS;
        s.lanes = gpu_roll(&gpu_seed_state, sizeof lanes / sizeof *lanes);
        s.start = gpu_roll(&gpu_seed_state, sizeof starts / sizeof *starts);
        run_sample(&s, team_of(s.team));
    }
}

/* Machines that are alike, whose ranks sum inside first; not alike; ranks dealt in turn. */
TEST(a_sample_over_machines)
{
    static const gpu_team places[] = {
        { .n = 4, .machines = 2 }, { .n = 2, .machines = 2 }, { .n = 8, .machines = 2 }, { .n = 6, .machines = 3 },
        { .n = 5, .machines = 2 }, { .n = 4, .machines = 2, .mixed = true }, { .n = 8, .machines = 4 }, { .n = 3, .machines = 3 },
    };
    static sample s;
    enum { NPLACES = sizeof places / sizeof *places };
    int           nfit = 0;

    reference_init();
    gpu_seed();
    make_decks();
    for (int i = 0; i < NPLACES * gpu_longer(6); i++) {
        s.team = i % NPLACES;
        s.way = i < NPLACES ? 0 : gpu_roll(&gpu_seed_state, NWAYS);
        s.lanes = gpu_roll(&gpu_seed_state, sizeof lanes / sizeof *lanes);
        s.start = gpu_roll(&gpu_seed_state, sizeof starts / sizeof *starts);
        if (!gpu_fits(&places[s.team]))
            continue;
        nfit++;
        run_sample(&s, places[s.team]);
    }
    if (!nfit)
        check_skip("no team of several machines fits on %d devices", gpu_here()->count);
}
