/* Every collective against a plain reference, bit for bit.
 *
 * A case is a point of a product. Its axes are tables, the library's own where it
 * has one:
 *
 *   of a communicator   algorithm forced or free, ranks, placement, kernel copies
 *                       on or off, rank order demanded, bytes of a chunk
 *   of a call           collective, type, operator, size, in place, buffers, root
 *
 * The product is far too large for every day. By default the cases are a sample
 * in which every pair of values of two axes occurs at least once, found greedily
 * and the same at every run; RCCLX_TEST_LONG=k runs every k-th call of all calls on
 * every communicator of the product (1: all of it, which takes days).
 *
 * Float sums whose order is open use values that add up exactly in any order;
 * where rank order is demanded, any bits. Where an all-reduce in open order is
 * given any bits, all ranks must still end with the same. */
#include "conform.h"

TIME_LIMIT(900)

enum { ALGO, RANKS, PLACE, CMA, ORDER, CHUNK, KIND, TYPE, OP, SIZE, INPLACE, BUFFER, ROOT, NAXES, OF_TEAM = KIND };
enum { MOST_VALUES = 24, CALLS = 100, MOST_TEAMS = 120 };
enum { SANITIZED_PLACES = 4 }; /* sanitizers see machines in the other programs of this folder, which are shorter */

static const int  ranks_of[] = { 1, 2, 3, 5, 8, 11, 16 };
static const struct { const char *name; int nprocs, nthreads, nnodes; } places[] = {
    { "threads", 1, 16, 1 }, { "processes", 16, 1, 1 }, { "one thread", 1, 1, 1 }, { "2 processes of 2 threads", 2, 2, 1 },
    { "2 machines of processes", 16, 1, 2 }, { "3 machines of 2 threads", 3, 2, 3 },
};
static const int  chunks[] = { 4096, 32768, 262144 };
/* Around every size at which something changes. */
static const struct { int elements, bytes, chunks; } sizes[] = {
    { 0, 0, 0 },   { 1, 0, 0 },   { 3, 0, 0 },    { 0, 8, 0 },    { 0, 9, 0 },    { 0, 32, 0 },   { 0, 33, 0 },
    { 0, 128, 0 }, { 0, 129, 0 }, { 0, 511, 0 },  { 0, 512, 0 },  { 0, 513, 0 },  { 0, 4095, 0 }, { 0, 8192, 0 },
    { 0, 8193, 0 }, { 0, -1, 1 }, { 0, 0, 1 },    { 0, 65, 1 },   { 7, 0, 3 },
};
static const char *const buffers[] = { "arena", "plain", "mixed by rank", "in plain, out arena", "one element off" };

typedef struct { unsigned char at[NAXES]; } point;

static int nalgos; /* rows of the table; the value beyond them forces nothing */

static int width(int axis)
{
    switch (axis) {
    case ALGO: return nalgos + 1;
    case RANKS: return (int)(sizeof ranks_of / sizeof *ranks_of);
    case PLACE: return check_scale() > 1 ? SANITIZED_PLACES : (int)(sizeof places / sizeof *places);
    case CHUNK: return (int)(sizeof chunks / sizeof *chunks);
    case KIND: return RCCLX_COLL_COUNT;
    case TYPE: return RCCLX_TYPE_COUNT;
    case OP: return RCCLX_COPY;
    case SIZE: return (int)(sizeof sizes / sizeof *sizes);
    case BUFFER: return (int)(sizeof buffers / sizeof *buffers);
    case ROOT: return 3;
    default: return 2;
    }
}

static bool reduces(const point *p)
{
    return rcclx_kind_reduces((rcclx_kind)p->at[KIND]);
}

/* ---- one call, on every rank of a place */

typedef struct {
    point team;
    point calls[CALLS];
    int   ncalls;
    long  every; /* whole product: every so many calls; 0: the listed ones */
} sample;

typedef struct {
    char       *region[2]; /* plain, arena */
    char       *in, *out;
    size_t      in_bytes, out_bytes;
    ncclRedOp_t op;
} rank_buffers;

enum { REGION = 4 << 20, LARGEST = 1 << 20 };

static size_t count_of(const point *p, int n)
{
    const size_t size = rcclx_type_size((rcclx_type)p->at[TYPE]), s = p->at[SIZE];
    const size_t bytes = (size_t)((int64_t)sizes[s].bytes + (int64_t)sizes[s].chunks * chunks[p->at[CHUNK]]);
    size_t       count = (size_t)sizes[s].elements + (bytes + size - 1) / size;

    if (p->at[ROOT] == 2 && bytes) /* the same size for the whole buffer, not for each rank's part */
        count = (count + (size_t)n - 1) / (size_t)n;
    return count * size * (size_t)n <= LARGEST ? count : LARGEST / size / (size_t)n;
}

static int root_of(const point *p, int n)
{
    return p->at[ROOT] == 0 ? 0 : p->at[ROOT] == 1 ? n - 1 : n / 2;
}

/* Elements of a rank's buffers; 0: it has none. */
static void lengths(rcclx_kind k, size_t count, int n, int rank, int root, size_t *in, size_t *out)
{
    const size_t all = count * (size_t)n;

    *in = *out = count;
    if (k == RCCLX_ALL_GATHER || k == RCCLX_ALL_TO_ALL || k == RCCLX_ALL_TO_ALLV)
        *out = all;
    if (k == RCCLX_REDUCE_SCATTER || k == RCCLX_ALL_TO_ALL || k == RCCLX_ALL_TO_ALLV)
        *in = all;
    if (k == RCCLX_GATHER)
        *out = rank == root ? all : 0;
    if (k == RCCLX_SCATTER)
        *in = rank == root ? all : 0;
    if (k == RCCLX_REDUCE_TO && rank != root)
        *out = 0;
    if (k == RCCLX_BROADCAST && rank != root)
        *in = 0;
}

/* Where the smaller buffer lies in the larger one when both are one: elements. */
static size_t inside(rcclx_kind k, size_t count, int rank)
{
    return k == RCCLX_ALL_GATHER || k == RCCLX_REDUCE_SCATTER || k == RCCLX_GATHER || k == RCCLX_SCATTER ? count * (size_t)rank : 0;
}

static bool in_place(const point *p)
{
    return p->at[INPLACE] && p->at[KIND] != RCCLX_ALL_TO_ALLV; /* the API wants two buffers there */
}

static void lay_out(rank_buffers *b, const point *p, int n, int rank)
{
    const size_t size = rcclx_type_size((rcclx_type)p->at[TYPE]), count = count_of(p, n);
    const int    how = p->at[BUFFER], root = root_of(p, n);
    const size_t off = CONFORM_GUARD + (how == 4 ? size : 0);
    const rcclx_kind k = (rcclx_kind)p->at[KIND];
    size_t       in, out;

    lengths(k, count, n, rank, root, &in, &out);
    b->in_bytes = in * size;
    b->out_bytes = out * size;
    b->in = b->region[how == 0 || how == 4 || (how == 2 && rank % 2)] + off;
    b->out = b->region[how == 0 || how == 4 || how == 3 || (how == 2 && rank % 2)] + REGION / 2 + off;
    if (!in_place(p) || !in || !out)
        return;
    if (in <= out)
        b->in = b->out + inside(k, count, rank) * size;
    else
        b->out = b->in + inside(k, count, rank) * size;
}

static void prepare(const rank_buffers *b, const conform_data *d, int rank)
{
    const size_t size = rcclx_type_size(d->type);

    memset(b->out, CONFORM_FENCE, b->out_bytes ? b->out_bytes : 64);
    conform_fence(b->out, b->out_bytes);
    if (b->in < b->out - CONFORM_GUARD || b->in > b->out + b->out_bytes)
        conform_fence(b->in, b->in_bytes);
    conform_fill(d, d->value[rank], b->in, 0, b->in_bytes / size);
    if (b->in_bytes > b->out_bytes && b->in <= b->out && b->out < b->in + b->in_bytes)
        conform_fence(b->in, b->in_bytes);
}

static void post(const rank_buffers *b, const point *p, int n, ncclComm_t c)
{
    const ncclDataType_t t = (ncclDataType_t)p->at[TYPE];
    const size_t         count = count_of(p, n);
    const int            root = root_of(p, n);
    size_t               counts[CONFORM_RANKS], displs[CONFORM_RANKS];
    void                *in = b->in_bytes ? b->in : NULL, *out = b->out; /* unused ones must stay as they are */

    switch ((rcclx_kind)p->at[KIND]) {
    case RCCLX_ALL_REDUCE: OK_OR_TELL(ncclAllReduce(in, out, count, t, b->op, c, NULL)); break;
    case RCCLX_REDUCE_TO: OK_OR_TELL(ncclReduce(in, out, count, t, b->op, root, c, NULL)); break;
    case RCCLX_BROADCAST: OK_OR_TELL(ncclBroadcast(in, out, count, t, root, c, NULL)); break;
    case RCCLX_ALL_GATHER: OK_OR_TELL(ncclAllGather(in, out, count, t, c, NULL)); break;
    case RCCLX_REDUCE_SCATTER: OK_OR_TELL(ncclReduceScatter(in, out, count, t, b->op, c, NULL)); break;
    case RCCLX_ALL_TO_ALL: OK_OR_TELL(ncclAlltoAll(in, out, count, t, c, NULL)); break;
    case RCCLX_ALL_TO_ALLV:
        for (int r = 0; r < n; r++)
            counts[r] = count, displs[r] = count * (size_t)r;
        OK_OR_TELL(ncclAlltoAllv(in, counts, displs, out, counts, displs, t, c, NULL));
        break;
    case RCCLX_GATHER: OK_OR_TELL(ncclGather(in, out, count, t, root, c, NULL)); break;
    case RCCLX_SCATTER: OK_OR_TELL(ncclScatter(in, out, count, t, root, c, NULL)); break;
    default: break;
    }
}

/* ---- what must have come out */

static void tell(const point *p, int n, char *text, size_t nbytes)
{
    const rcclx_kind k = (rcclx_kind)p->at[KIND];

    snprintf(text, nbytes, "%s of %zu %s %s, %s%s, root %d; algorithm %s, %d ranks, %s, CMA %d, ordered %d, chunk %d",
             rcclx_kind_name(k), count_of(p, n), rcclx_type_name((rcclx_type)p->at[TYPE]),
             reduces(p) ? rcclx_redop_name((rcclx_redop)p->at[OP]) : "-", buffers[p->at[BUFFER]],
             in_place(p) ? ", in place" : "", root_of(p, n), p->at[ALGO] < nalgos ? rcclx_algos[p->at[ALGO]]->name : "free", n,
             places[p->at[PLACE]].name, p->at[CMA], p->at[ORDER], chunks[p->at[CHUNK]]);
}

static void expect(const point *p, int n, int rank, const conform_data *d, const uint64_t *table, const char *out, size_t first,
                   size_t count, const char *what)
{
    const size_t size = rcclx_type_size(d->type), at = conform_wrong(d, table, out, first, count);
    char         text[300];

    if (at == count)
        return;
    tell(p, n, text, sizeof text);
    CHECK(at == count, "%s: rank %d: %s[%zu] is %#llx instead of %#llx", text, rank, what, at,
          (unsigned long long)bits_get(out + at * size, size), (unsigned long long)table[(first + at) % CONFORM_PERIOD]);
}

static bool overlapping(const rank_buffers *b)
{
    return b->in < b->out + b->out_bytes && b->out < b->in + b->in_bytes;
}

static void verify_out(const rank_buffers *b, const point *p, int n, int rank, const conform_data *d)
{
    const size_t     size = rcclx_type_size(d->type), count = count_of(p, n), part = count * size;
    const int        root = root_of(p, n);
    const rcclx_kind k = (rcclx_kind)p->at[KIND];
    const size_t     mine = count * (size_t)rank;

    if (!b->out_bytes)
        return;
    switch (k) {
    case RCCLX_ALL_REDUCE:
    case RCCLX_REDUCE_TO: expect(p, n, rank, d, d->reduced, b->out, 0, count, "out"); break;
    case RCCLX_REDUCE_SCATTER: expect(p, n, rank, d, d->reduced, b->out, mine, count, "out"); break;
    case RCCLX_BROADCAST: expect(p, n, rank, d, d->value[root], b->out, 0, count, "out"); break;
    case RCCLX_SCATTER: expect(p, n, rank, d, d->value[root], b->out, mine, count, "out"); break;
    default:
        for (int r = 0; r < n; r++)
            expect(p, n, rank, d, d->value[r], b->out + part * (size_t)r,
                   k == RCCLX_ALL_TO_ALL || k == RCCLX_ALL_TO_ALLV ? mine : 0, count, "a part of out");
    }
}

/* IN, wherever OUT does not lie over it, and the bytes around both. */
static void verify_rest(const rank_buffers *b, const point *p, int n, int rank, const conform_data *d)
{
    const size_t size = rcclx_type_size(d->type);
    const bool   over = overlapping(b), larger = b->in_bytes > b->out_bytes;
    char         text[300];

    if (!over) {
        expect(p, n, rank, d, d->value[rank], b->in, 0, b->in_bytes / size, "in, which must not change,");
    } else if (larger) {
        const size_t before = (size_t)(b->out - b->in) / size, after = before + b->out_bytes / size;
        expect(p, n, rank, d, d->value[rank], b->in, 0, before, "in before out");
        expect(p, n, rank, d, d->value[rank], b->in + after * size, after, b->in_bytes / size - after, "in after out");
    }
    const bool held = (over && larger) || conform_fenced(b->out, b->out_bytes);
    const bool kept = (over && !larger) || conform_fenced(b->in, b->in_bytes);
    if (held && kept)
        return;
    tell(p, n, text, sizeof text);
    CHECK(held && kept, "%s: rank %d: bytes beside %s were written", text, rank, held ? "in" : "out");
}

/* Sums keep the rank order when that is demanded, and on one machine when no algorithm is. */
static bool ordered(const point *p)
{
    return p->at[ORDER] || (p->at[ALGO] == nalgos && places[p->at[PLACE]].nnodes == 1);
}

/* Is the result known to the last bit? */
static bool exact(const point *p, bool wild)
{
    return !wild || ordered(p) || p->at[TYPE] < RCCLX_F16 || p->at[OP] == RCCLX_MAX || p->at[OP] == RCCLX_MIN || !reduces(p);
}

static void make_op(rank_buffers *b, const point *p, conform_worker *w, int i, const conform_data *d)
{
    uint64_t scalar = d->scalar[w->rank[i]];

    b->op = reduces(p) ? (ncclRedOp_t)p->at[OP] : ncclSum;
    if (reduces(p) && p->at[OP] == RCCLX_PREMUL)
        OK_OR_TELL(ncclRedOpCreatePreMulSum(&b->op, &scalar, (ncclDataType_t)d->type, ncclScalarHostImmediate, w->comm[i]));
}

static void call(conform_worker *w, rank_buffers *b, const point *p, int index, conform_data *d)
{
    const uint64_t seed = conform_mix((uint64_t)index * 77 + p->at[KIND] * 1001u + p->at[SIZE]);

    *d = (conform_data){ .type = (rcclx_type)p->at[TYPE], .op = reduces(p) ? (rcclx_redop)p->at[OP] : RCCLX_COPY, .n = w->n, .seed = seed };
    d->wild = seed & 1 || ordered(p);
    if (d->wild && !exact(p, true) && p->at[KIND] != RCCLX_ALL_REDUCE)
        d->wild = false;
    conform_data_init(d);
    for (int i = 0; i < w->nmine; i++) {
        lay_out(&b[i], p, w->n, w->rank[i]);
        prepare(&b[i], d, w->rank[i]);
        make_op(&b[i], p, w, i, d);
    }
    conform_open(w);
    for (int i = 0; i < w->nmine; i++)
        post(&b[i], p, w->n, w->comm[i]);
    conform_close(w);
    for (int i = 0; i < w->nmine; i++) {
        if (exact(p, d->wild))
            verify_out(&b[i], p, w->n, w->rank[i], d);
        if (p->at[KIND] == RCCLX_ALL_REDUCE && index < CONFORM_HASHES)
            w->team->shared->hash[index][w->rank[i]] = conform_hash(b[i].out, b[i].out_bytes);
        verify_rest(&b[i], p, w->n, w->rank[i], d);
        if (b[i].op >= ncclNumOps)
            OK_OR_TELL(ncclRedOpDestroy(b[i].op, w->comm[i]));
    }
}

/* Call number `index` of all the calls there are on one communicator. */
static bool call_of_index(long index, const point *team, point *p)
{
    *p = *team;
    for (int a = OF_TEAM; a < NAXES; a++) {
        p->at[a] = (unsigned char)(index % width(a));
        index /= width(a);
    }
    const bool spare = (!reduces(p) && p->at[OP]) || (p->at[KIND] == RCCLX_ALL_TO_ALLV && p->at[INPLACE]);
    return !index && !spare;
}

static void work(conform_worker *w)
{
    const sample *s = w->arg;
    rank_buffers  b[CONFORM_RANKS] = { 0 };
    conform_data *d = malloc(sizeof *d);
    long          all = 1;

    for (int i = 0; i < w->nmine; i++) {
        b[i].region[0] = malloc(REGION);
        if (!CHECK(b[i].region[0] && d, "out of memory") || !OK_OR_TELL(ncclMemAlloc((void **)&b[i].region[1], REGION)))
            exit(1);
    }
    for (int k = 0; k < s->ncalls; k++)
        call(w, b, &s->calls[k], k, d);
    for (int a = OF_TEAM; a < NAXES; a++)
        all *= width(a);
    for (long k = 0; s->every && k < all; k += s->every) {
        point p;
        if (call_of_index(k, &s->team, &p))
            call(w, b, &p, CONFORM_HASHES, d);
    }
    for (int i = 0; i < w->nmine; i++) {
        free(b[i].region[0]);
        OK_OR_TELL(ncclMemFree(b[i].region[1]));
    }
    free(d);
}

static void same_bits(const conform_team *t, const sample *s)
{
    for (int k = 0; k < s->ncalls; k++)
        for (int r = 1; s->calls[k].at[KIND] == RCCLX_ALL_REDUCE && r < t->n; r++) {
            char text[300];
            if (t->shared->hash[k][r] == t->shared->hash[k][0])
                continue;
            tell(&s->calls[k], t->n, text, sizeof text);
            CHECK(t->shared->hash[k][r] == t->shared->hash[k][0], "%s: rank %d has other bits than rank 0", text, r);
            break;
        }
}

static void run_sample(sample *s)
{
    const point *p = &s->team;
    conform_team t = { .n = ranks_of[p->at[RANKS]], .nprocs = places[p->at[PLACE]].nprocs, .nthreads = places[p->at[PLACE]].nthreads,
                       .nnodes = places[p->at[PLACE]].nnodes, .work = work, .arg = s };

    if (t.nthreads > t.n)
        t.nthreads = t.n;
    snprintf(t.env[0], sizeof t.env[0], "RCCLX_CMA=%s", p->at[CMA] ? "auto" : "0");
    snprintf(t.env[1], sizeof t.env[1], "RCCLX_ORDERED=%d", p->at[ORDER]);
    snprintf(t.env[2], sizeof t.env[2], "RCCLX_CHUNK_BYTES=%d", chunks[p->at[CHUNK]]);
    snprintf(t.env[3], sizeof t.env[3], "RCCLX_ALGO=%s", p->at[ALGO] < nalgos ? rcclx_algos[p->at[ALGO]]->name : "");
    CASE("%s, %d ranks, %s, CMA %d, ordered %d, chunk %d: %d calls", p->at[ALGO] < nalgos ? rcclx_algos[p->at[ALGO]]->name : "free",
         t.n, places[p->at[PLACE]].name, p->at[CMA], p->at[ORDER], chunks[p->at[CHUNK]], s->ncalls) {
        CHECK(conform_run(&t) == 0, "ranks failed");
        same_bits(&t, s);
        conform_end(&t);
    }
}

/* ---- the sample: every pair of values of two axes at least once */

static bool     covered[NAXES][MOST_VALUES][NAXES][MOST_VALUES];
static uint64_t dice = 20250117;

static int roll(int n)
{
    dice = conform_mix(dice + 0x9e3779b97f4a7c15u);
    return (int)(dice >> 20) & INT_MAX ? (int)((dice >> 20) % (uint64_t)n) : 0;
}

/* Does the axis mean anything at this point? */
static bool matters(const point *p, int axis)
{
    if (axis == OP)
        return reduces(p);
    return axis != INPLACE || p->at[KIND] != RCCLX_ALL_TO_ALLV;
}

/* New pairs the point brings, of axes [from, to) with all before them; marked if asked. */
static int gain(const point *p, int from, int to, bool mark)
{
    int fresh = 0;

    for (int a = from; a < to; a++)
        for (int b = 0; matters(p, a) && b < a; b++) {
            bool *c = &covered[a][p->at[a]][b][p->at[b]];
            if (!matters(p, b))
                continue;
            fresh += !*c;
            *c |= mark;
        }
    return fresh;
}

/* Put a pair that is missing into p: of an axis in [from, to) and one before it, below high; those below `kept` stay. */
static bool plant(point *p, int kept, int from, int to, int high)
{
    const int turn = roll(to - from);

    for (int i = 0; i < to - from; i++) {
        const int a = from + (i + turn) % (to - from);
        for (int b = 0; b < a && b < high; b++)
            for (int x = 0; x < width(a); x++)
                for (int y = 0; y < width(b); y++) {
                    point q = *p;
                    if (b < kept && y != p->at[b])
                        continue;
                    q.at[a] = (unsigned char)x, q.at[b] = (unsigned char)y;
                    if (b == OP || a == OP)
                        if (!reduces(&q) && a != KIND && b != KIND)
                            q.at[KIND] = RCCLX_ALL_REDUCE;
                    if (covered[a][x][b][y] || !matters(&q, a) || !matters(&q, b))
                        continue;
                    *p = q;
                    return true;
                }
    }
    return false;
}

static point best_of(const point *base, int from, int to, int tries)
{
    point best = *base;
    int   most = -1;

    for (int i = 0; i < tries; i++) {
        point p = *base;
        for (int a = from; a < to; a++)
            p.at[a] = (unsigned char)roll(width(a));
        if (i % 2)
            plant(&p, from, from, to, NAXES); /* a call is of its team */
        const int g = gain(&p, from, to, false);
        if (g > most)
            most = g, best = p;
    }
    return best;
}

static bool anything_left(void)
{
    point p = { { 0 } };

    return plant(&p, 0, 1, NAXES, NAXES);
}

/* With a pair of its own axes that is missing; else with a value that misses some call's. */
static point next_team(void)
{
    point none = { { 0 } }, p = best_of(&none, 0, OF_TEAM, 40);

    if (gain(&p, 0, OF_TEAM, true) == 0)
        plant(&p, 0, OF_TEAM, NAXES, OF_TEAM);
    return p;
}

TEST(a_sample_with_every_pair)
{
    static sample s;
    int           nteams = 0;

    if (getenv("RCCLX_TEST_LONG"))
        SKIP("the whole product runs");
    reference_init();
    while (rcclx_algos[nalgos])
        nalgos++;
    for (; nteams < MOST_TEAMS && anything_left(); nteams++) {
        memset(&s, 0, sizeof s);
        s.team = next_team();
        while (s.ncalls < CALLS) {
            const point p = best_of(&s.team, OF_TEAM, NAXES, 24);
            gain(&p, OF_TEAM, NAXES, true);
            s.calls[s.ncalls++] = p;
        }
        run_sample(&s);
    }
    CHECK(!anything_left(), "%d communicators did not suffice for every pair", nteams);
}

TEST(the_whole_product)
{
    const char *every = getenv("RCCLX_TEST_LONG");
    static sample s;
    long          all = 1;

    if (!every)
        SKIP("RCCLX_TEST_LONG is not set");
    reference_init();
    nalgos = 0;
    while (rcclx_algos[nalgos])
        nalgos++;
    for (int a = 0; a < OF_TEAM; a++)
        all *= width(a);
    for (long k = 0; k < all; k++) {
        long rest = k;
        memset(&s, 0, sizeof s);
        for (int a = 0; a < OF_TEAM; a++, rest /= width(a - 1))
            s.team.at[a] = (unsigned char)(rest % width(a));
        s.every = atol(every) > 0 ? atol(every) : 1;
        run_sample(&s);
    }
}
