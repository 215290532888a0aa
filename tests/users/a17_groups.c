/* A17: groups of sends and receives. Between a pair the k-th send meets the k-th
 * receive; a message to oneself works in any position; nothing starts before the
 * outermost end; an error inside is returned there, and the next group works; a
 * head-to-head exchange without a group ends with the advice to use one. */
#include "check.h"

#include "world.h"

TIME_LIMIT(180)

enum { NMESSAGES = 3, MOST = 4 };

static bool good(ncclResult_t r, const char *call, int rank)
{
    return CHECK(r == ncclSuccess, "rank %d: %s: %d, %s", rank, call, (int)r, ncclGetLastError(NULL));
}
#define GOOD(call) good(call, #call, rank)

static void on_processes(int n, check_rank_fn fn)
{
    world *w = world_open();
    CHECK(run_ranks_as_processes(n, fn, w) == 0, "ranks failed");
    world_close(w);
}

/* ---- three messages of different sizes each way per pair, selves among them */

static size_t size_of(int from, int to, int k)
{
    static const size_t sizes[NMESSAGES] = { 3, 70000, 900 };

    return sizes[(k + from) % NMESSAGES] + (unsigned)(10 * from + to);
}

static float content(int from, int to, int k, size_t i)
{
    return (float)(10000 * k + 1000 * from + 100 * to + (int)(i % 89));
}

typedef struct {
    float *out[MOST][NMESSAGES], *in[MOST][NMESSAGES];
} mail;

static void write_mail(mail *m, int rank, int n)
{
    for (int r = 0; r < n; r++)
        for (int k = 0; k < NMESSAGES; k++) {
            const size_t count = size_of(rank, r, k);
            m->out[r][k] = guarded_new(count * sizeof(float), k == 1);
            m->in[r][k] = guarded_new(size_of(r, rank, k) * sizeof(float), k == 1);
            for (size_t i = 0; i < count; i++)
                m->out[r][k][i] = content(rank, r, k, i);
        }
}

static void read_mail(mail *m, int rank, int n)
{
    for (int r = 0; r < n; r++)
        for (int k = 0; k < NMESSAGES; k++) {
            for (size_t i = 0; i < size_of(r, rank, k); i++)
                if (!CHECK(m->in[r][k][i] == content(r, rank, k, i), "rank %d, message %d from %d, element %zu: %g", rank, k, r, i,
                           (double)m->in[r][k][i]))
                    break;
            guarded_intact(m->in[r][k]);
            guarded_free(m->in[r][k]);
            guarded_free(m->out[r][k]);
        }
}

static void exchange(ncclComm_t c, const mail *m, int rank, int r, bool sends_first)
{
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < NMESSAGES; k++)
            if ((pass == 0) == sends_first)
                GOOD(ncclSend(m->out[r][k], size_of(rank, r, k), ncclFloat, r, c, NULL));
            else
                GOOD(ncclRecv(m->in[r][k], size_of(r, rank, k), ncclFloat, r, c, NULL));
}

/* self: where in the order of peers the messages to oneself stand. */
static void exchange_all(ncclComm_t c, const mail *m, int rank, int n, int self, bool sends_first)
{
    for (int i = 0, others = 0; i < n; i++) {
        if (i == self) {
            exchange(c, m, rank, rank, sends_first);
            continue;
        }
        exchange(c, m, rank, (rank + ++others) % n, sends_first);
    }
}

static int mail_main(int rank, int n, void *arg)
{
    ncclComm_t c = world_comm(arg, 0, rank, n);
    mail       m;

    for (int self = 0; c && self < n; self++)
        for (int variant = 0; variant < 3; variant++) {
            write_mail(&m, rank, n);
            GOOD(ncclGroupStart());
            exchange_all(c, &m, rank, n, self, variant == 2 ? rank % 2 : variant == 0);
            GOOD(ncclGroupEnd());
            read_mail(&m, rank, n);
        }
    /* the same in three groups, one within the other */
    write_mail(&m, rank, n);
    GOOD(ncclGroupStart());
    GOOD(ncclGroupStart());
    GOOD(ncclGroupStart());
    exchange_all(c, &m, rank, n, 0, true);
    GOOD(ncclGroupEnd());
    GOOD(ncclGroupEnd());
    for (size_t i = 0; i < 3; i++) /* nothing has begun */
        CHECK(((unsigned char *)m.in[(rank + 1) % n][0])[i] == GUARD_BYTE, "a group began before its outermost end");
    GOOD(ncclGroupEnd());
    read_mail(&m, rank, n);
    GOOD(ncclCommDestroy(c));
    return !c;
}

TEST(three_messages_each_way_and_selves)
{
    on_processes(2, mail_main);
    on_processes(4, mail_main);
}

TEST(three_messages_each_way_without_process_vm_readv)
{
    setenv("RCCLX_CMA", "0", 1);
    on_processes(2, mail_main);
    on_processes(4, mail_main);
    unsetenv("RCCLX_CMA");
}

/* ---- order without groups: a sender ahead of its receiver */

static int order_main(int rank, int n, void *arg)
{
    ncclComm_t c = world_comm(arg, 0, rank, n);
    float     *in = malloc(40000 * sizeof *in);

    for (int k = 0; c && in && k < 200; k++) {
        const size_t count = k % 10 == 9 ? 40000 : 1 + (unsigned)k % 7;
        for (size_t i = 0; i < count; i++)
            in[i] = rank == 0 ? content(0, 1, k % 30, i) + (float)k : -1;
        if (rank == 0)
            GOOD(ncclSend(in, count, ncclFloat, 1, c, NULL));
        else
            GOOD(ncclRecv(in, count, ncclFloat, 0, c, NULL));
        for (size_t i = 0; i < count; i++)
            if (!CHECK(in[i] == content(0, 1, k % 30, i) + (float)k, "message %d, element %zu: %g", k, i, (double)in[i]))
                return 1;
    }
    GOOD(ncclCommDestroy(c));
    free(in);
    return !c;
}

TEST(in_order_without_groups)
{
    on_processes(2, order_main);
}

/* ---- a message to oneself without its other half */

static int self_main(int rank, int n, void *arg)
{
    ncclComm_t   c = world_comm(arg, 0, rank, n);
    float        a[4] = { 1, 2, 3, 4 }, b[4] = { 0 };
    ncclResult_t r;

    if (!c)
        return 1;
    GOOD(ncclGroupStart());
    GOOD(ncclSend(a, 4, ncclFloat, rank, c, NULL));
    r = IN_TIME(3.0, ncclGroupEnd());
    CHECK(r == ncclInvalidUsage && strstr(ncclGetLastError(NULL), "itself"), "send alone: %d, %s", (int)r, ncclGetLastError(NULL));
    GOOD(ncclGroupStart());
    GOOD(ncclRecv(b, 4, ncclFloat, rank, c, NULL));
    r = IN_TIME(3.0, ncclGroupEnd());
    CHECK(r == ncclInvalidUsage && strstr(ncclGetLastError(NULL), "itself"), "recv alone: %d, %s", (int)r, ncclGetLastError(NULL));
    r = IN_TIME(3.0, ncclSend(a, 4, ncclFloat, rank, c, NULL));
    CHECK(r == ncclInvalidUsage && strstr(ncclGetLastError(NULL), "group"), "outside: %d, %s", (int)r, ncclGetLastError(NULL));
    /* none of it is left over */
    GOOD(ncclGroupStart());
    GOOD(ncclRecv(b, 4, ncclFloat, rank, c, NULL));
    GOOD(ncclSend(a, 4, ncclFloat, rank, c, NULL));
    GOOD(ncclGroupEnd());
    CHECK(b[3] == 4, "%g", (double)b[3]);
    /* and one of a different size is noticed */
    GOOD(ncclGroupStart());
    GOOD(ncclSend(a, 4, ncclFloat, rank, c, NULL));
    GOOD(ncclRecv(b, 3, ncclFloat, rank, c, NULL));
    r = IN_TIME(3.0, ncclGroupEnd());
    CHECK(r == ncclInvalidUsage, "4 sent, 3 received: %d, %s", (int)r, ncclGetLastError(NULL));
    world_meet(arg, n);
    CHECK(ncclCommAbort(c) == ncclSuccess, "%s", ncclGetLastError(NULL));
    return 0;
}

TEST(a_message_to_oneself_needs_its_other_half)
{
    on_processes(1, self_main);
    on_processes(2, self_main);
}

/* ---- a collective, messages and a second communicator in one group */

static int mixed_main(int rank, int n, void *arg)
{
    ncclComm_t c = world_comm(arg, 0, rank, n), d = world_comm(arg, 1, (rank + 1) % n, n);
    const int  next = (rank + 1) % n, before = (rank + n - 1) % n;
    static float in[50000], sum[50000], other[50000], got[2][50000];

    for (int round = 0; c && d && round < 30; round++) {
        const size_t count = round % 3 == 0 ? 5 : round % 3 == 1 ? 3000 : 50000;
        for (size_t i = 0; i < count; i++)
            in[i] = world_value(rank, round);
        memset(got, 0, sizeof got);
        /* the order of calls differs by rank where it may */
        GOOD(ncclGroupStart());
        if (rank % 2)
            GOOD(ncclAllReduce(in, other, count, ncclFloat, ncclMax, d, NULL));
        GOOD(ncclSend(in, count, ncclFloat, next, c, NULL));
        GOOD(ncclAllReduce(in, sum, count, ncclFloat, ncclSum, c, NULL));
        GOOD(ncclRecv(got[0], count, ncclFloat, before, c, NULL));
        if (rank % 2 == 0)
            GOOD(ncclAllReduce(in, other, count, ncclFloat, ncclMax, d, NULL));
        GOOD(ncclRecv(got[1], count, ncclFloat, (before + 1) % n, d, NULL)); /* ranks of d are one higher */
        GOOD(ncclSend(in, count, ncclFloat, (next + 1) % n, d, NULL));
        GOOD(ncclGroupEnd());
        for (size_t i = 0; i < count; i++)
            if (!CHECK(sum[i] == world_sum(n, round) && other[i] == world_value(n - 1, round) &&
                       got[0][i] == world_value(before, round) && got[1][i] == got[0][i],
                       "rank %d, round %d, element %zu: %g %g %g %g", rank, round, i, (double)sum[i], (double)other[i],
                       (double)got[0][i], (double)got[1][i]))
                return 1;
    }
    GOOD(ncclCommDestroy(d));
    GOOD(ncclCommDestroy(c));
    return !c || !d;
}

TEST(a_collective_messages_and_a_second_communicator)
{
    on_processes(2, mixed_main);
    on_processes(4, mixed_main);
}

/* ---- empty, unbalanced, wrong within */

TEST(empty_and_unbalanced)
{
    const int rank = 0;

    GOOD(ncclGroupStart());
    GOOD(ncclGroupEnd());
    GOOD(ncclGroupStart());
    GOOD(ncclGroupStart());
    GOOD(ncclGroupEnd());
    GOOD(ncclGroupEnd());
    for (int i = 0; i < 3; i++) {
        const ncclResult_t r = ncclGroupEnd();
        CHECK(r == ncclInvalidUsage && strstr(ncclGetLastError(NULL), "ncclGroupStart"), "%d, %s", (int)r, ncclGetLastError(NULL));
    }
    GOOD(ncclGroupStart());
    GOOD(ncclGroupEnd());
}

static int wrong_main(int rank, int n, void *arg)
{
    ncclComm_t   c = world_comm(arg, 0, rank, n);
    const int    next = (rank + 1) % n, before = (rank + n - 1) % n;
    float        in[100], out[100];
    ncclResult_t r;

    for (int round = 0; c && round < 20; round++) {
        /* every rank makes the same mistake, deep within */
        for (int i = 0; i < 100; i++)
            in[i] = world_value(rank, round), out[i] = -1;
        GOOD(ncclGroupStart());
        GOOD(ncclSend(in, 100, ncclFloat, next, c, NULL));
        GOOD(ncclGroupStart());
        r = round % 2 ? ncclRecv(out, 100, ncclFloat, n + 5, c, NULL) : ncclAllReduce(in, NULL, 100, ncclFloat, ncclSum, c, NULL);
        CHECK(r == ncclInvalidArgument, "rank %d: the call itself: %d", rank, (int)r);
        GOOD(ncclRecv(out, 100, ncclFloat, before, c, NULL));
        (void)ncclGroupEnd(); /* the inner one may already say so */
        r = IN_TIME(3.0, ncclGroupEnd());
        CHECK(r == ncclInvalidArgument && strstr(ncclGetLastError(NULL), round % 2 ? "peer" : "recvbuff"), "rank %d: %d, %s", rank,
              (int)r, ncclGetLastError(NULL));
        CHECK(out[0] == -1 && out[99] == -1, "rank %d: a group that failed has moved data", rank);
        CHECK(ncclGroupEnd() == ncclInvalidUsage, "rank %d: the depth is not back to zero", rank);
        /* then a clean one */
        GOOD(ncclGroupStart());
        GOOD(ncclSend(in, 100, ncclFloat, next, c, NULL));
        GOOD(ncclRecv(out, 100, ncclFloat, before, c, NULL));
        GOOD(ncclGroupEnd());
        CHECK(out[0] == world_value(before, round) && out[99] == out[0], "rank %d: %g", rank, (double)out[0]);
        world_works(c, rank, n);
    }
    /* a group that was only priced leaves nothing over */
    ncclSimInfo_t sim = NCCL_SIM_INFO_INITIALIZER;
    GOOD(ncclGroupStart());
    GOOD(ncclAllReduce(in, out, 100, ncclFloat, ncclSum, c, NULL));
    GOOD(ncclSend(in, 100, ncclFloat, next, c, NULL));
    GOOD(ncclGroupSimulateEnd(&sim));
    world_works(c, rank, n);
    GOOD(ncclGroupStart());
    GOOD(ncclSend(in, 7, ncclFloat, next, c, NULL));
    GOOD(ncclRecv(out, 7, ncclFloat, before, c, NULL));
    GOOD(ncclGroupEnd());
    GOOD(ncclCommDestroy(c));
    return !c;
}

TEST(a_wrong_call_within_then_a_clean_group)
{
    on_processes(2, wrong_main);
    on_processes(4, wrong_main);
}

/* ---- head to head */

enum { BIG = 1 << 20 };

typedef struct {
    world *w;
    bool   stream, alone; /* alone: each call is a group of its own */
    size_t count;
} meeting;

static int head_main(int rank, int n, void *arg)
{
    const meeting *m = arg;
    ncclComm_t     c = world_comm(m->w, 0, rank, n);
    float         *in = malloc(m->count * sizeof *in), *out = malloc(m->count * sizeof *out);
    cudaStream_t   s = NULL;

    if (!c || !in || !out)
        return 1;
    for (size_t i = 0; i < m->count; i++)
        in[i] = world_value(rank, 5), out[i] = -1;
    if (m->stream)
        GOOD(rcclxStreamCreate(&s));
    const double began = check_now();
    if (m->alone)
        ncclGroupStart();
    ncclResult_t r = ncclSend(in, m->count, ncclFloat, 1 - rank, c, s);
    if (m->alone)
        r = ncclGroupEnd();
    if (r == ncclSuccess)
        r = ncclRecv(out, m->count, ncclFloat, 1 - rank, c, s);
    if (r == ncclSuccess && s)
        r = rcclxStreamSynchronize(s);
    CHECK(check_now() - began < 10 * check_scale(), "rank %d: it took %.1f s", rank, check_now() - began);
    if (r == ncclSuccess)
        CHECK(out[0] == world_value(1 - rank, 5) && out[m->count - 1] == out[0], "rank %d: success, but %g", rank, (double)out[0]);
    else
        CHECK(r == ncclInvalidUsage || r == ncclRemoteError, "rank %d: %d", rank, (int)r);
    if (r != ncclSuccess)
        CHECK(strstr(ncclGetLastError(c), "in one group"), "rank %d: %s", rank, ncclGetLastError(c));
    CHECK(m->count == BIG || r == ncclSuccess, "rank %d: small messages need no group: %s", rank, ncclGetLastError(c));
    CHECK(IN_TIME(1.5, ncclCommAbort(c)) == ncclSuccess, "%s", ncclGetLastError(NULL));
    if (s)
        rcclxStreamDestroy(s);
    free(in);
    free(out);
    return 0;
}

TEST(head_to_head_without_a_group)
{
    for (int variant = 0; variant < 4; variant++) {
        meeting m = { world_open(), variant == 2, variant == 3, variant == 0 ? 10 : BIG };
        CASE("%s messages head to head%s", m.count == BIG ? "large" : "small",
             m.stream ? ", on a stream" : m.alone ? ", each in a group of its own" : "")
            CHECK(run_ranks_as_processes(2, head_main, &m) == 0, "ranks failed");
        world_close(m.w);
    }
}

/* ---- very many */

enum { TINY = 10000 };

static int tiny_main(int rank, int n, void *arg)
{
    ncclComm_t    c = world_comm(arg, 0, rank, n);
    static int    in[TINY], out[TINY];
    const int     next = (rank + 1) % n, before = (rank + n - 1) % n;
    const double  began = check_now();

    for (int i = 0; i < TINY; i++)
        in[i] = rank * TINY + i;
    GOOD(ncclGroupStart());
    for (int i = 0; c && i < TINY; i++)
        if (!GOOD(ncclSend(&in[i], 1, ncclInt32, next, c, NULL)) || !GOOD(ncclRecv(&out[i], 1, ncclInt32, before, c, NULL)))
            break;
    GOOD(ncclGroupEnd());
    for (int i = 0; i < TINY; i++)
        if (!CHECK(out[i] == before * TINY + i, "rank %d, message %d: %d", rank, i, out[i]))
            break;
    if (rank == 0)
        check_say("# %d sends and receives in one group, %d ranks: %.0f ms\n", TINY, n, (check_now() - began) * 1e3);
    world_works(c, rank, n);
    GOOD(ncclCommDestroy(c));
    return !c;
}

TEST(ten_thousand_tiny_messages_in_one_group)
{
    on_processes(2, tiny_main);
    on_processes(4, tiny_main);
}
