/* A04: ranks that disagree about a call never get wrong data with success. Every
 * rank is told, with both numbers; what lies around the buffers is untouched; a
 * new communicator works.
 *
 * The ranks that meet the difference fail in the call. Those that were through
 * before (a send whose data fit in the sender's slot, a root) are told by the
 * communicator's answer soon afterwards, and at their next call. */
#include "check.h"

#include "world.h"

TIME_LIMIT(180)

typedef enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, ALL_TO_ALL, GATHER, SCATTER } what;

static const char *const names[] = { "AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AlltoAll", "Gather", "Scatter" };

typedef struct {
    what           what;
    size_t         count;
    ncclDataType_t type;
    ncclRedOp_t    op;
    int            root;
} call;

typedef struct {
    world      *w;
    call        mine, odd; /* odd: what the last rank calls */
    const char *text[2];   /* words that every rank's text must have */
    bool        arena, stream, group;
    bool        half;    /* odd is what the second half of the ranks calls */
} plan;

static size_t size_of(ncclDataType_t t)
{
    return t == ncclFloat64 || t == ncclInt64 ? 8 : t == ncclFloat16 ? 2 : t == ncclInt8 ? 1 : 4;
}

/* Buffers are as long as this rank's own call needs. */
static size_t in_bytes(const call *c, int n)
{
    const bool times_n = c->what == REDUCE_SCATTER || c->what == ALL_TO_ALL || c->what == SCATTER;

    return c->count * size_of(c->type) * (times_n ? (size_t)n : 1);
}

static size_t out_bytes(const call *c, int n)
{
    const bool times_n = c->what == ALL_GATHER || c->what == ALL_TO_ALL || c->what == GATHER;

    return c->count * size_of(c->type) * (times_n ? (size_t)n : 1);
}

static ncclResult_t make(const call *c, const void *in, void *out, ncclComm_t comm, cudaStream_t s)
{
    switch (c->what) {
    case ALL_REDUCE:
        return ncclAllReduce(in, out, c->count, c->type, c->op, comm, s);
    case ALL_GATHER:
        return ncclAllGather(in, out, c->count, c->type, comm, s);
    case REDUCE_SCATTER:
        return ncclReduceScatter(in, out, c->count, c->type, c->op, comm, s);
    case BROADCAST:
        return ncclBroadcast(in, out, c->count, c->type, c->root, comm, s);
    case REDUCE:
        return ncclReduce(in, out, c->count, c->type, c->op, c->root, comm, s);
    case ALL_TO_ALL:
        return ncclAlltoAll(in, out, c->count, c->type, comm, s);
    case GATHER:
        return ncclGather(in, out, c->count, c->type, c->root, comm, s);
    default:
        return ncclScatter(in, out, c->count, c->type, c->root, comm, s);
    }
}

/* What the rank gets to know, from the call or soon after it. */
static void look_at(int rank, ncclComm_t c, ncclResult_t r, const char *const *text, size_t ntext)
{
    float x = 1, y;

    if (r == ncclSuccess)
        r = IN_TIME(3.0, world_async(c, 5));
    CHECK(r == ncclInvalidUsage, "rank %d: result %d, %s", rank, (int)r, ncclGetLastError(c));
    CHECK(ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, c, NULL) == ncclInvalidUsage, "rank %d: the next call is not refused", rank);
    for (size_t i = 0; i < ntext; i++)
        CHECK(strstr(ncclGetLastError(c), text[i]), "rank %d: no '%s' in: %s", rank, text[i], ncclGetLastError(c));
}

static int rank_main(int rank, int n, void *arg)
{
    const plan  *p = arg;
    const call  *c = rank >= (p->half ? n / 2 : n - 1) ? &p->odd : &p->mine;
    ncclComm_t   comm = world_comm(p->w, 0, rank, n);
    char        *in = guarded_new(in_bytes(c, n), p->arena), *out = guarded_new(out_bytes(c, n), p->arena);
    cudaStream_t s = NULL;

    if (!comm)
        return 1;
    memset(in, 0, in_bytes(c, n));
    memset(out, 0x77, out_bytes(c, n));
    if (p->stream)
        CHECK(rcclxStreamCreate(&s) == ncclSuccess, "%s", ncclGetLastError(NULL));
    if (p->group)
        ncclGroupStart();
    ncclResult_t r = IN_TIME(3.0, make(c, in, out, comm, s));
    if (p->group)
        r = IN_TIME(3.0, ncclGroupEnd());
    if (s && r == ncclSuccess)
        r = IN_TIME(3.0, rcclxStreamSynchronize(s));
    CHECK(r != ncclSuccess || c->what == BROADCAST || c->what == REDUCE || c->what == GATHER || c->what == SCATTER,
          "rank %d: %s is a success", rank, names[c->what]); /* everyone meets everyone in the others */
    look_at(rank, comm, r, p->text, 2);
    guarded_intact(in);
    guarded_intact(out);
    CHECK(IN_TIME(1.5, ncclCommAbort(comm)) == ncclSuccess, "%s", ncclGetLastError(NULL));
    if (s)
        rcclxStreamDestroy(s);
    guarded_free(in);
    guarded_free(out);

    comm = world_comm(p->w, 1, rank, n);
    world_works(comm, rank, n);
    CHECK(ncclCommDestroy(comm) == ncclSuccess, "%s", ncclGetLastError(NULL));
    return 0;
}

static void differ(int n, plan p)
{
    p.w = world_open();
    CHECK(run_ranks_as_processes(n, rank_main, &p) == 0, "%s of %zu against %s of %zu, %d ranks%s", names[p.mine.what], p.mine.count,
          names[p.odd.what], p.odd.count, n, p.arena ? ", ncclMemAlloc" : "");
    world_close(p.w);
}

static void counts(what k, int n, size_t a, size_t b, bool arena, bool stream, bool group)
{
    char text[2][24];

    snprintf(text[0], sizeof text[0], " %zu ", a);
    snprintf(text[1], sizeof text[1], " %zu ", b);
    differ(n, (plan){ .mine = { k, a, ncclFloat, ncclSum, 0 }, .odd = { k, b, ncclFloat, ncclSum, 0 }, .text = { text[0], text[1] },
                      .arena = arena, .stream = stream, .group = group });
}

static void all_counts(what k)
{
    static const size_t pairs[][2] = { { 1000, 1008 }, { 409600, 409598 }, { 1, 1 << 20 } };

    for (int n = 2; n <= 4; n += 2)
        for (int i = 0; i < 3; i++)
            CASE("%s of %zu against %zu, %d ranks", names[k], pairs[i][0], pairs[i][1], n) {
                counts(k, n, pairs[i][0], pairs[i][1], false, false, false);
                counts(k, n, pairs[i][1], pairs[i][0], true, false, false);
            }
}

TEST(all_reduce)
{
    all_counts(ALL_REDUCE);
}

TEST(all_gather)
{
    all_counts(ALL_GATHER);
}

TEST(reduce_scatter)
{
    all_counts(REDUCE_SCATTER);
}

TEST(other_collectives)
{
    for (what k = BROADCAST; k <= SCATTER; k++) {
        counts(k, 4, 3, 5, false, false, false); /* in one cache line */
        counts(k, 4, 1000, 1008, true, false, false);
        counts(k, 2, 70000, 70002, false, false, false);
    }
}

TEST(on_streams_and_in_groups)
{
    counts(ALL_REDUCE, 4, 3, 5, false, true, false);
    counts(ALL_REDUCE, 4, 409600, 409598, false, true, true);
    counts(ALL_GATHER, 2, 1000, 1008, false, false, true);
}

/* Where each half is a machine of its own, roots hear nothing of the other half, and wait for none of it. */
TEST(halves)
{
    const call from0 = { BROADCAST, 7, ncclFloat, ncclSum, 0 }, from1 = { BROADCAST, 7, ncclFloat, ncclSum, 1 },
               from3 = { BROADCAST, 7, ncclFloat, ncclSum, 3 };

    differ(4, (plan){ .mine = from1, .odd = from0, .text = { "root 1", "root 0" }, .half = true });
    differ(4, (plan){ .mine = from1, .odd = from3, .text = { "root 1", "root 3" }, .half = true });
    differ(4, (plan){ .mine = { ALL_REDUCE, 8, ncclFloat, ncclSum, 0 }, .odd = { ALL_REDUCE, 9, ncclFloat, ncclSum, 0 },
                      .text = { " 8 ", " 9 " }, .half = true });
}

TEST(types_operators_roots_kinds)
{
    const call sum = { ALL_REDUCE, 1000, ncclFloat, ncclSum, 0 };

    differ(2, (plan){ .mine = sum, .odd = { ALL_REDUCE, 1000, ncclFloat64, ncclSum, 0 }, .text = { "float", "double" } });
    differ(2, (plan){ .mine = sum, .odd = { ALL_REDUCE, 1000, ncclFloat, ncclMax, 0 }, .text = { "sum", "max" } });
    differ(4, (plan){ .mine = { BROADCAST, 7, ncclFloat, ncclSum, 0 }, .odd = { BROADCAST, 7, ncclFloat, ncclSum, 3 },
                      .text = { "root 0", "root 3" } });
    differ(4, (plan){ .mine = sum, .odd = { ALL_GATHER, 1000, ncclFloat, ncclSum, 0 }, .text = { "AllReduce", "AllGather" } });
    /* equal in bytes, different in elements */
    differ(2, (plan){ .mine = { ALL_GATHER, 4096, ncclFloat, ncclSum, 0 }, .odd = { ALL_GATHER, 2048, ncclFloat64, ncclSum, 0 },
                      .text = { "4096", "2048" } });
    differ(4, (plan){ .mine = { BROADCAST, 8, ncclInt8, ncclSum, 0 }, .odd = { BROADCAST, 2, ncclFloat, ncclSum, 0 },
                      .text = { "8", "2" } });
}

/* ---- send and receive */

typedef struct {
    world         *w;
    size_t         sent, received;
    ncclDataType_t send_type, recv_type;
    bool           arena, group;
} message;

static int pair_main(int rank, int n, void *arg)
{
    const message *m = arg;
    ncclComm_t     c = world_comm(m->w, 0, rank, n);
    const size_t   nbytes = rank ? m->received * size_of(m->recv_type) : m->sent * size_of(m->send_type);
    char          *buf = guarded_new(nbytes, m->arena);
    ncclResult_t   r = ncclSuccess;
    char           text[2][24];

    if (!c)
        return 1;
    memset(buf, rank ? 0x77 : 0, nbytes);
    if (m->group)
        ncclGroupStart();
    if (rank == 0)
        r = IN_TIME(3.0, ncclSend(buf, m->sent, m->send_type, 1, c, NULL));
    else if (rank == 1)
        r = IN_TIME(3.0, ncclRecv(buf, m->received, m->recv_type, 0, c, NULL));
    if (m->group)
        r = IN_TIME(3.0, ncclGroupEnd());
    if (rank == 1)
        CHECK(r != ncclSuccess, "a receive of %zu took a message of %zu", m->received, m->sent);
    snprintf(text[0], sizeof text[0], " %zu ", m->sent);
    snprintf(text[1], sizeof text[1], " %zu ", m->received);
    look_at(rank, c, r, (const char *const[]){ text[0], text[1] }, 2);
    guarded_intact(buf);
    CHECK(IN_TIME(1.5, ncclCommAbort(c)) == ncclSuccess, "%s", ncclGetLastError(NULL));
    guarded_free(buf);
    c = world_comm(m->w, 1, rank, n);
    world_works(c, rank, n);
    CHECK(ncclCommDestroy(c) == ncclSuccess, "%s", ncclGetLastError(NULL));
    return 0;
}

TEST(send_and_receive)
{
    static const message pairs[] = {
        { NULL, 8, 4, ncclFloat, ncclFloat, false, false },
        { NULL, 4, 8, ncclFloat, ncclFloat, false, true },
        { NULL, 100000, 99998, ncclFloat, ncclFloat, false, false }, /* fetched by the receiver */
        { NULL, 99998, 100000, ncclFloat, ncclFloat, true, false },
        { NULL, 8, 100000, ncclFloat, ncclFloat, false, true },
        { NULL, 8, 4, ncclFloat, ncclFloat64, false, false }, /* equal in bytes */
        { NULL, 8, 8, ncclFloat, ncclInt32, false, false }, /* in count, too */
        { NULL, 70000, 70000, ncclFloat, ncclFloat64, false, true },
        { NULL, 60000, 30000, ncclInt32, ncclInt64, true, true },
        { NULL, 0, 4, ncclFloat, ncclFloat, false, false },
    };

    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        for (int n = 2; n <= 4; n += 2)
            CASE("Send %zu, Recv %zu, %d ranks", pairs[i].sent, pairs[i].received, n) {
                message m = pairs[i];
                m.w = world_open();
                CHECK(run_ranks_as_processes(n, pair_main, &m) == 0, "ranks failed");
                world_close(m.w);
            }
}
