/* All-to-all-v by random tables, messages by random matrices, and groups in which
 * several communicators do different things. Every place draws the same numbers
 * from the same seed, so each knows what all others send. */
#include "conform.h"

enum { ROUNDS = 8, AREA = 2 << 20, MESSAGES = 3 };

typedef struct {
    int     n;
    uint64_t seed;
} draw;

static uint64_t of(const draw *d, int what, int i, int k)
{
    return conform_mix(d->seed * 1000003 + (uint64_t)(what * 4096 + i * 64 + k)) >> 8;
}

/* Byte number i of message `index` from rank s to rank r. */
static unsigned char byte_of(uint64_t seed, int s, int r, int index, size_t i)
{
    return (unsigned char)conform_mix(seed + (uint64_t)(s * 40009 + r * 307 + index * 17) + (i % 257) * 65537);
}

static void fill(char *p, uint64_t seed, int s, int r, int index, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++)
        p[i] = (char)byte_of(seed, s, r, index, i);
}

static bool holds(const char *p, uint64_t seed, int s, int r, int index, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++)
        if ((unsigned char)p[i] != byte_of(seed, s, r, index, i))
            return CHECK(false, "rank %d from rank %d, message %d of %zu bytes: wrong at %zu", r, s, index, nbytes, i);
    return true;
}

/* Two areas for each of a place's ranks: from ncclMemAlloc on some, plain on others. */
typedef struct {
    char *in[CONFORM_RANKS], *out[CONFORM_RANKS];
} areas;

static void areas_open(areas *a, const conform_worker *w, size_t nbytes)
{
    for (int i = 0; i < w->nmine; i++) {
        const bool plain = w->rank[i] % 3 == 1;
        if (plain) {
            a->in[i] = malloc(nbytes);
            a->out[i] = malloc(nbytes);
        } else {
            OK_OR_TELL(ncclMemAlloc((void **)&a->in[i], nbytes));
            OK_OR_TELL(ncclMemAlloc((void **)&a->out[i], nbytes));
        }
        if (!CHECK(a->in[i] && a->out[i], "out of memory"))
            exit(1);
    }
}

static void areas_close(areas *a, const conform_worker *w)
{
    for (int i = 0; i < w->nmine; i++) {
        if (w->rank[i] % 3 == 1) {
            free(a->in[i]);
            free(a->out[i]);
        } else {
            OK_OR_TELL(ncclMemFree(a->in[i]));
            OK_OR_TELL(ncclMemFree(a->out[i]));
        }
    }
}

/* ---- all-to-all-v */

/* What rank s sends to rank r: mostly nothing, all alike, or one rank gets nearly everything. */
static size_t table_count(const draw *d, int s, int r)
{
    const uint64_t h = of(d, 1, s, r);

    switch (d->seed % 4) {
    case 0: return h % 4 ? 0 : h >> 8 & 1023;
    case 1: return 1 + (h & 7);
    case 2: return r == (int)(of(d, 2, 0, 0) % (uint64_t)d->n) ? 20000 + (h & 4095) : h & 3;
    default: return (h >> 4) % 9000;
    }
}

/* Offsets in a rank's buffer: its parts in a turned order with gaps between. */
static void table_displs(const draw *d, int rank, int side, const size_t *counts, size_t *displs)
{
    size_t    at = of(d, 3 + side, rank, 0) % 5;
    const int turn = (int)(of(d, 3 + side, rank, 1) % (uint64_t)d->n);

    for (int k = 0; k < d->n; k++) {
        const int r = (k + turn) % d->n;
        displs[r] = at;
        at += counts[r] + of(d, 5 + side, rank, r) % 3;
    }
}

typedef struct {
    size_t sc[CONFORM_RANKS], sd[CONFORM_RANKS], rc[CONFORM_RANKS], rd[CONFORM_RANKS];
} tables;

static void tables_of(const draw *d, int rank, tables *t)
{
    for (int r = 0; r < d->n; r++) {
        t->sc[r] = table_count(d, rank, r);
        t->rc[r] = table_count(d, r, rank);
    }
    table_displs(d, rank, 0, t->sc, t->sd);
    table_displs(d, rank, 1, t->rc, t->rd);
}

static void verify_table(const draw *d, int rank, const tables *t, char *out, size_t size)
{
    for (int r = 0; r < d->n; r++) {
        holds(out + t->rd[r] * size, d->seed, r, rank, 0, t->rc[r] * size);
        memset(out + t->rd[r] * size, CONFORM_FENCE, t->rc[r] * size);
    }
    CHECK(conform_untouched(out, AREA), "rank %d: bytes between the parts were written", rank);
}

static void work_tables(conform_worker *w)
{
    areas   a;
    tables *t = malloc(sizeof *t * (size_t)w->nmine);

    areas_open(&a, w, AREA);
    for (int round = 0; round < ROUNDS; round++) {
        const draw           d = { w->n, (uint64_t)round + (uint64_t)w->n * 100 };
        const ncclDataType_t type = (ncclDataType_t)(of(&d, 7, 0, 0) % ncclNumTypes);
        const size_t         size = rcclx_type_size((rcclx_type)type);
        for (int i = 0; i < w->nmine; i++) {
            tables_of(&d, w->rank[i], &t[i]);
            memset(a.out[i], CONFORM_FENCE, AREA);
            for (int r = 0; r < w->n; r++)
                fill(a.in[i] + t[i].sd[r] * size, d.seed, w->rank[i], r, 0, t[i].sc[r] * size);
        }
        conform_open(w);
        for (int i = 0; i < w->nmine; i++) {
            tables mine = t[i]; /* the call copies them, in a group too */
            OK_OR_TELL(ncclAlltoAllv(a.in[i], mine.sc, mine.sd, a.out[i], mine.rc, mine.rd, type, w->comm[i], NULL));
            memset(&mine, CONFORM_FENCE, sizeof mine);
        }
        conform_close(w);
        for (int i = 0; i < w->nmine; i++)
            verify_table(&d, w->rank[i], &t[i], a.out[i], size);
    }
    areas_close(&a, w);
    free(t);
}

/* ---- messages */

static size_t message_bytes(const draw *d, int s, int r, int index)
{
    static const size_t sizes[] = { 0, 1, 31, 4095, 4096, 4097, 70000, 131072, 131073, 40000 };
    const uint64_t      h = of(d, 10 + index, s, r);

    return h % 3 == 0 ? sizes[(h >> 4) % (sizeof sizes / sizeof *sizes)] : (h >> 4) % 3000;
}

static int message_count(const draw *d, int s, int r)
{
    return (int)(of(d, 9, s, r) % (MESSAGES + 1));
}

enum { SLOT = 131328 };

/* All messages of a matrix in one group, receives and sends in an order of each rank's own. */
static void post_matrix(const draw *d, int rank, char *in, char *out, ncclComm_t c)
{
    for (int k = 0; k < d->n; k++) {
        const int peer = (k + (int)(of(d, 20, rank, 0) % (uint64_t)d->n)) % d->n;
        for (int half = 0; half < 2; half++) {
            const bool sends = half == (int)(of(d, 21, rank, peer) & 1);
            const int  s = sends ? rank : peer, r = sends ? peer : rank;
            for (int m = 0; m < message_count(d, s, r); m++) {
                char *p = (sends ? in : out) + (size_t)(peer * MESSAGES + m) * SLOT;
                OK_OR_TELL(sends ? ncclSend(p, message_bytes(d, s, r, m), ncclInt8, peer, c, NULL)
                                 : ncclRecv(p, message_bytes(d, s, r, m), ncclInt8, peer, c, NULL));
            }
        }
    }
}

static void work_matrices(conform_worker *w)
{
    const size_t nbytes = (size_t)w->n * MESSAGES * SLOT;
    areas        a;

    areas_open(&a, w, nbytes);
    for (int round = 0; round < ROUNDS; round++) {
        const draw d = { w->n, (uint64_t)round + 7777 };
        for (int i = 0; i < w->nmine; i++)
            for (int r = 0; r < w->n; r++)
                for (int m = 0; m < MESSAGES; m++) {
                    fill(a.in[i] + (size_t)(r * MESSAGES + m) * SLOT, d.seed, w->rank[i], r, m, message_bytes(&d, w->rank[i], r, m));
                    memset(a.out[i] + (size_t)(r * MESSAGES + m) * SLOT, CONFORM_FENCE, SLOT);
                }
        OK_OR_TELL(ncclGroupStart());
        for (int i = 0; i < w->nmine; i++)
            post_matrix(&d, w->rank[i], a.in[i], a.out[i], w->comm[i]);
        OK_OR_TELL(ncclGroupEnd());
        for (int i = 0; i < w->nmine; i++)
            for (int s = 0; s < w->n; s++)
                for (int m = 0; m < MESSAGES; m++) {
                    const char  *p = a.out[i] + (size_t)(s * MESSAGES + m) * SLOT;
                    const size_t len = m < message_count(&d, s, w->rank[i]) ? message_bytes(&d, s, w->rank[i], m) : 0;
                    holds(p, d.seed, s, w->rank[i], m, len);
                    CHECK(conform_untouched(p + len, SLOT - len), "rank %d from %d: written beyond message %d", w->rank[i], s, m);
                }
    }
    areas_close(&a, w);
}

/* Messages longer than a pair's pipe, between buffers that nobody can reach: with
 * others of the same pair right behind, and in both directions at once. */
static void work_long(conform_worker *w)
{
    static const size_t sizes[] = { 700001, 3, 400000, 262144, 1, 900000 };
    enum { COUNT = sizeof sizes / sizeof *sizes, ROOM = 1 << 20 };
    const int next = (w->rank[0] + 1) % w->n, prev = (w->rank[0] + w->n - 1) % w->n;
    char     *in = malloc(COUNT * ROOM), *out = malloc(COUNT * ROOM);

    for (int m = 0; m < COUNT; m++)
        fill(in + m * ROOM, 99, w->rank[0], next, m, sizes[m]);
    for (int round = 0; round < 3; round++) {
        memset(out, CONFORM_FENCE, COUNT * ROOM);
        if (round == w->rank[0])
            usleep(30000); /* the sender finds the pipe full */
        OK_OR_TELL(ncclGroupStart());
        for (int m = 0; m < COUNT; m++) {
            OK_OR_TELL(ncclRecv(out + m * ROOM, sizes[m], ncclUint8, prev, w->comm[0], NULL));
            OK_OR_TELL(ncclSend(in + m * ROOM, sizes[m], ncclUint8, next, w->comm[0], NULL));
        }
        OK_OR_TELL(ncclGroupEnd());
        for (int m = 0; m < COUNT; m++) {
            holds(out + m * ROOM, 99, prev, w->rank[0], m, sizes[m]);
            CHECK(conform_untouched(out + m * ROOM + sizes[m], ROOM - sizes[m]), "written beyond message %d", m);
        }
    }
    free(in);
    free(out);
}

/* ---- one group, several communicators, different operations */

enum { COMMS = 3, ITEMS = 300 };

static void post_mixed(int which, int rank, int n, int32_t *in, int32_t *out, ncclComm_t c)
{
    switch (which) {
    case 0: OK_OR_TELL(ncclAllReduce(in, out, ITEMS, ncclInt32, ncclSum, c, NULL)); break;
    case 1:
        OK_OR_TELL(ncclSend(in, ITEMS, ncclInt32, (rank + 1) % n, c, NULL));
        OK_OR_TELL(ncclRecv(out, ITEMS, ncclInt32, (rank + n - 1) % n, c, NULL));
        break;
    default: /* two on one communicator, the second reads what the first wrote */
        OK_OR_TELL(ncclBroadcast(in, out, ITEMS, ncclInt32, n - 1, c, NULL));
        OK_OR_TELL(ncclAllReduce(out, out, ITEMS, ncclInt32, ncclSum, c, NULL));
    }
}

static int32_t mixed_result(int which, int rank, int n, int round, int k)
{
    int32_t sum = 0;

    for (int r = 0; r < n; r++)
        sum += r * 1000 + round + k;
    return which == 0   ? sum
           : which == 1 ? (rank + n - 1) % n * 1000 + round + k
                        : n * ((n - 1) * 1000 + round + k);
}

static void work_groups(conform_worker *w)
{
    ncclComm_t c[COMMS][CONFORM_RANKS] = { { NULL } };
    int32_t(*in)[ITEMS] = calloc((size_t)w->nmine, sizeof *in);
    int32_t(*out)[COMMS][ITEMS] = calloc((size_t)w->nmine, sizeof *out);

    for (int k = 1; k < COMMS; k++) {
        conform_open(w);
        for (int i = 0; i < w->nmine; i++)
            OK_OR_TELL(ncclCommSplit(w->comm[i], 0, w->rank[i], &c[k][i], NULL));
        conform_close(w);
    }
    for (int round = 0; round < 3 * ROUNDS; round++) {
        for (int i = 0; i < w->nmine; i++)
            for (int k = 0; k < ITEMS; k++)
                in[i][k] = w->rank[i] * 1000 + round + k;
        OK_OR_TELL(ncclGroupStart());
        for (int i = 0; i < w->nmine; i++)
            for (int k = 0; k < COMMS; k++) { /* each rank has its own order of communicators */
                const int which = (k + w->rank[i]) % COMMS;
                post_mixed(which, w->rank[i], w->n, in[i], out[i][which], which ? c[which][i] : w->comm[i]);
            }
        OK_OR_TELL(ncclGroupEnd());
        for (int i = 0; i < w->nmine; i++)
            for (int which = 0; which < COMMS; which++)
                for (int k = 0; k < ITEMS; k++) {
                    const int32_t want = mixed_result(which, w->rank[i], w->n, round, k);
                    if (!CHECK(out[i][which][k] == want, "round %d, operation %d, rank %d, [%d]: %d instead of %d", round, which,
                               w->rank[i], k, out[i][which][k], want))
                        break;
                }
    }
    for (int k = 1; k < COMMS; k++)
        for (int i = 0; i < w->nmine; i++)
            OK_OR_TELL(ncclCommDestroy(c[k][i]));
    free(in);
    free(out);
}

/* ---- where they run */

static const struct { const char *name; int n, nprocs, nthreads, nnodes; } teams[] = {
    { "1 rank", 1, 1, 1, 1 },      { "2 processes", 2, 2, 1, 1 },  { "5 threads", 5, 1, 5, 1 },
    { "8 processes", 8, 8, 1, 1 }, { "11 ranks of one thread", 11, 1, 1, 1 }, { "7 ranks, 2 processes of 2 threads", 7, 2, 2, 1 },
    { "4 processes on 2 machines", 4, 4, 1, 2 }, { "6 ranks, 3 machines of 2 threads", 6, 3, 2, 3 },
};

static void everywhere(void (*work)(conform_worker *w), const char *algo)
{
    for (size_t i = 0; i < sizeof teams / sizeof *teams; i++)
        for (int cma = 0; cma < (teams[i].nprocs > 1 ? 2 : 1); cma++) {
            conform_team t = { .n = teams[i].n, .nprocs = teams[i].nprocs, .nthreads = teams[i].nthreads,
                               .nnodes = teams[i].nnodes, .work = work };
            snprintf(t.env[0], sizeof t.env[0], "RCCLX_CMA=%s", cma ? "auto" : "0");
            snprintf(t.env[1], sizeof t.env[1], "RCCLX_ALGO=%s", algo);
            snprintf(t.env[2], sizeof t.env[2], "RCCLX_CHUNK_BYTES=16384");
            CASE("%s%s%s%s", teams[i].name, cma ? ", kernel copies" : "", *algo ? ", " : "", algo) {
                CHECK(conform_run(&t) == 0, "ranks failed");
                conform_end(&t);
            }
        }
}

TEST(all_to_all_v_by_random_tables)
{
    everywhere(work_tables, "");
    for (const rcclx_algo *const *a = rcclx_algos; *a; a++)
        if ((*a)->kinds >> RCCLX_ALL_TO_ALLV & 1)
            everywhere(work_tables, (*a)->name);
}

TEST(messages_by_random_matrices)
{
    everywhere(work_matrices, "");
}

TEST(long_messages)
{
    for (int way = 0; way < 3; way++) {
        static const char *const ways[] = { "through the pipe", "kernel copies", "3 machines" };
        conform_team t = { .n = 3, .nprocs = 3, .nthreads = 1, .nnodes = way == 2 ? 3 : 1, .work = work_long };
        snprintf(t.env[0], sizeof t.env[0], "RCCLX_CMA=%s", way == 1 ? "auto" : "0");
        CASE("3 processes, %s", ways[way]) {
            CHECK(conform_run(&t) == 0, "ranks failed");
            conform_end(&t);
        }
    }
}

TEST(groups_of_several_communicators)
{
    everywhere(work_groups, "");
}
