/* Messages between emulated GPUs: every way they can take, groups of any shape, graphs, near
 * the wrap of numbers; and what goes wrong. A test writes letters; what should have come of
 * them is worked out here, and every byte is compared, those between the letters too. */
#include "check.h"

#include "gpu/emu_ranks.h"

#include "base/mem.h"

TIME_LIMIT(900)

enum { BLANK = 0xee, MOST_LETTERS = 2048 };

typedef struct { int from, to; size_t nbytes, in, out; } letter;

typedef struct {
    emu_ranks     *e;
    unsigned char *in[EMU_MOST], *want[EMU_MOST], *got;
    size_t         written[EMU_MOST], read[EMU_MOST]; /* bytes given out of in and out */
    void          *handle[2 * EMU_MOST];
    letter         letters[MOST_LETTERS];
    int            n;
} post;

static uint64_t seed = 4711;

static uint64_t dice(uint64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

/* All inputs anew, no letters. */
static void start(post *p)
{
    for (int r = 0; r < p->e->n; r++) {
        for (size_t i = 0; i < p->e->nbytes; i++)
            p->in[r][i] = (unsigned char)dice(256);
        memset(p->want[r], BLANK, p->e->nbytes);
        emu_copy(p->e, r, p->e->in[r], p->in[r], p->e->nbytes);
        emu_copy(p->e, r, p->e->out[r], p->want[r], p->e->nbytes);
        p->written[r] = p->read[r] = 0;
    }
    p->n = 0;
}

static post *open_post(int n, size_t nbytes)
{
    static post p;

    p = (post){ .e = emu_open(n, nbytes), .got = rcclx_mem_alloc(nbytes) };
    for (int r = 0; r < n; r++) {
        p.in[r] = rcclx_mem_alloc(nbytes);
        p.want[r] = rcclx_mem_alloc(nbytes);
    }
    start(&p);
    return &p;
}

static void in_place(post *p, bool in, bool out)
{
    for (int r = 0; r < p->e->n; r++) {
        if (in)
            EMU_OK(ncclCommRegister(p->e->comm[r], p->e->in[r], p->e->nbytes, &p->handle[2 * r]));
        if (out)
            EMU_OK(ncclCommRegister(p->e->comm[r], p->e->out[r], p->e->nbytes, &p->handle[2 * r + 1]));
    }
}

static void close_post(post *p)
{
    for (int r = 0; r < p->e->n; r++) {
        for (int i = 0; i < 2; i++)
            if (p->handle[2 * r + i])
                EMU_OK(ncclCommDeregister(p->e->comm[r], p->handle[2 * r + i]));
        rcclx_mem_free(p->in[r]);
        rcclx_mem_free(p->want[r]);
    }
    emu_close(p->e);
    rcclx_mem_free(p->got);
}

/* A letter, `skew` bytes behind the last ones at both ends. */
static void write_letter(post *p, int from, int to, size_t nbytes, size_t skew_in, size_t skew_out)
{
    const letter l = { from, to, nbytes, p->written[from] + skew_in, p->read[to] + skew_out };

    REQUIRE(p->n < MOST_LETTERS && l.in + nbytes <= p->e->nbytes && l.out + nbytes <= p->e->nbytes, "too short a buffer");
    p->letters[p->n++] = l;
    p->written[from] = l.in + nbytes;
    p->read[to] = l.out + nbytes;
    memcpy(p->want[to] + l.out, p->in[from] + l.in, nbytes);
}

static void send_letter(const post *p, const letter *l)
{
    const cudaStream_t s = (cudaStream_t)p->e->stream[l->from];

    EMU_OK(ncclSend(p->e->in[l->from] + l->in, l->nbytes, ncclInt8, l->to, p->e->comm[l->from], s));
}

static void receive_letter(const post *p, const letter *l)
{
    const cudaStream_t s = (cudaStream_t)p->e->stream[l->to];

    EMU_OK(ncclRecv(p->e->out[l->to] + l->out, l->nbytes, ncclInt8, l->from, p->e->comm[l->to], s));
}

/* Letters first .. n in one group. */
static void deliver(const post *p, int first)
{
    EMU_OK(ncclGroupStart());
    for (int i = first; i < p->n; i++) {
        send_letter(p, &p->letters[i]);
        receive_letter(p, &p->letters[i]);
    }
    EMU_OK(ncclGroupEnd());
}

static bool compare(const post *p, const char *what)
{
    for (int r = 0; r < p->e->n; r++) {
        emu_copy(p->e, r, p->got, p->e->out[r], p->e->nbytes);
        for (size_t i = 0; i < p->e->nbytes; i++)
            if (!CHECK(p->got[i] == p->want[r][i], "%s, %d ranks: rank %d, byte %zu is %02x, not %02x", what, p->e->n, r, i,
                       p->got[i], p->want[r][i]))
                return false;
    }
    return true;
}

/* --- what arrives ---------------------------------------------------------------------- */

static const char *const ways[] = { "NCCL_PROTO=", "NCCL_PROTO=Simple", "NCCL_P2P_DISABLE=1", "NCCL_MAX_CTAS=1",
                                    "RCCLX_GPU_LANES=3" };
enum { NWAYS = sizeof ways / sizeof ways[0] };

static void every_size(const char *way, bool in, bool out)
{
    static const size_t sizes[] = { 0, 1, 7, 8, 9, 1000, 4096, 65536, 65537, 131072, 131088, 1000003, 1 << 20 };
    enum { NSIZES = sizeof sizes / sizeof sizes[0] };

    emu_settings(way, "RCCLX_TIMEOUT=60", NULL);
    post *p = open_post(2, 6 << 20);
    in_place(p, in, out);
    for (size_t skew = 0; skew < 2; skew++) {
        start(p);
        for (int i = 0; i < NSIZES; i++) { /* there, then another one back; no groups */
            const size_t align = (16 - p->written[0] % 16) % 16 + 16, to = (16 - p->read[1] % 16) % 16 + 16;
            write_letter(p, 0, 1, sizes[i], skew ? i + 1u : align, skew ? 3 : to);
            send_letter(p, &p->letters[p->n - 1]);
            receive_letter(p, &p->letters[p->n - 1]);
            write_letter(p, 1, 0, sizes[i], skew ? 5 : align, skew ? 2 : to);
            receive_letter(p, &p->letters[p->n - 1]);
            send_letter(p, &p->letters[p->n - 1]);
        }
        if (!compare(p, way))
            break;
    }
    close_post(p);
}

TEST(every_size_in_every_way)
{
    for (int w = 0; w < NWAYS; w++)
        for (int places = 0; places < 4; places++)
            CASE("%s, %s", ways[w], places == 0 ? "through staging" : places == 1 ? "pulled" : places == 2 ? "pushed" : "either")
                every_size(ways[w], places & 1, places & 2);
}

static size_t some_size(void)
{
    return dice(4) ? dice(3000) : dice(4) ? dice(60000) : dice(300000);
}

TEST(rings_and_all_pairs)
{
    for (int n = 2; n <= 5; n++)
        CASE("%d ranks", n) {
            emu_settings("RCCLX_GPU_LANES=4", "RCCLX_TIMEOUT=60", NULL);
            post *p = open_post(n, 8 << 20);
            in_place(p, n & 1, n & 2);
            for (int round = 0; round < 4; round++) {
                start(p);
                for (int r = 0; r < n; r++)
                    write_letter(p, r, (r + 1) % n, 200000 + (size_t)round, 0, 0);
                deliver(p, 0);
                for (int i = 0; i < n * n; i++) /* to themselves, too */
                    write_letter(p, i / n, i % n, some_size(), dice(20), dice(20));
                deliver(p, n);
                if (!compare(p, "a ring, then all pairs"))
                    break;
            }
            close_post(p);
        }
}

TEST(more_messages_than_a_launch_takes)
{
    for (int n = 2; n <= 3; n++)
        CASE("%d ranks", n) {
            emu_settings("RCCLX_GPU_LANES=4", "RCCLX_TIMEOUT=60", NULL);
            post *p = open_post(n, 4 << 20);
            for (int i = 0; i < 400; i++) {
                const int from = (int)dice((uint64_t)n), to = (from + 1 + (int)dice((uint64_t)n - 1)) % n;
                write_letter(p, from, to, dice(20) ? dice(2000) : dice(200000), dice(3), dice(3));
            }
            deliver(p, 0);
            compare(p, "400 letters in a group");
            close_post(p);
        }
}

/* A block each, so that all are worked on at once, whatever slot they share. */
TEST(more_large_messages_of_a_pair_than_slots)
{
    for (int places = 0; places < 4; places++)
        CASE("%s, %s", places & 1 ? "registered" : "not registered", places & 2 ? "registered" : "not registered") {
            emu_settings("RCCLX_TIMEOUT=20", NULL);
            post *p = open_post(2, 4 << 20);
            in_place(p, places & 1, places & 2);
            for (int round = 0; round < 10; round++) {
                start(p);
                for (int i = 0; i < 14; i++)
                    write_letter(p, 0, 1, i % 5 == 4 ? 500 : 270000 - (size_t)(i % 4) * 70000, 16, 0);
                deliver(p, 0);
                if (!compare(p, "14 letters"))
                    break;
            }
            close_post(p);
        }
}

/* Nothing is waited for in between; the ranks' groups are cut at other places than each other's. */
TEST(groups_in_flight)
{
    enum { N = 3, ROUNDS = 40 };

    emu_settings("RCCLX_GPU_LANES=4", "RCCLX_TIMEOUT=60", NULL);
    post *p = open_post(N, 8 << 20);
    in_place(p, false, true);
    for (int round = 0; round < ROUNDS; round++) {
        const int first = p->n;
        for (int i = 0; i < 3; i++)
            write_letter(p, i, (i + 1 + round % 2) % N, some_size(), 1, 1);
        if (round % 3) {
            deliver(p, first);
            continue;
        }
        EMU_OK(ncclGroupStart()); /* rank 0's: one group of what the others do one by one */
        for (int i = first; i < p->n; i++) {
            if (p->letters[i].from == 0)
                send_letter(p, &p->letters[i]);
            if (p->letters[i].to == 0)
                receive_letter(p, &p->letters[i]);
        }
        EMU_OK(ncclGroupEnd());
        for (int r = 1; r < N; r++) {
            EMU_OK(ncclGroupStart());
            for (int i = first; i < p->n; i++) {
                if (p->letters[i].from == r)
                    send_letter(p, &p->letters[i]);
                if (p->letters[i].to == r)
                    receive_letter(p, &p->letters[i]);
            }
            EMU_OK(ncclGroupEnd());
        }
    }
    compare(p, "groups in flight");
    close_post(p);
}

TEST(numbers_wrap)
{
    static const char *const starts[] = { "RCCLX_SEQ_START=1073741820", "RCCLX_SEQ_START=2147483640",
                                          "RCCLX_SEQ_START=4294967290" };

    for (size_t s = 0; s < sizeof starts / sizeof starts[0]; s++)
        CASE("%s", starts[s]) {
            emu_settings(starts[s], "RCCLX_GPU_LANES=2", "RCCLX_TIMEOUT=20", NULL);
            post *p = open_post(2, 4 << 20);
            in_place(p, s & 1, false);
            for (int i = 0; i < 20; i++) {
                write_letter(p, i % 2, (i + 1) % 2, i % 5 ? 100 : 100000, 0, 0);
                write_letter(p, i % 2, (i + 1) % 2, i % 3 ? 100 : 100000, 1, 0);
                deliver(p, p->n - 2);
            }
            compare(p, starts[s]);
            close_post(p);
        }
}

/* A peer that comes late touches no buffer before this side has come to the message in its stream, nor
 * after it has gone on. */
static void late(bool sender, bool in, bool out)
{
    enum { NBYTES = 500000, BUSY = 32 << 20, WORD = 0x01010101 };
    char *scratch;
    rcclx_gpu_scope s;

    emu_settings("RCCLX_GPU_LANES=4", "RCCLX_TIMEOUT=60", NULL);
    post *p = open_post(2, NBYTES);
    emu_ranks *e = p->e;
    in_place(p, in, out);
    write_letter(p, 0, 1, NBYTES, 0, 0);
    emu_alloc(e, sender ? 0 : 1, &scratch, BUSY);
    for (int r = 0; r < 2; r++) {
        EMU_DO(e->gpu->enter(&s, e->device[r]));
        if (r == !sender) {
            for (int i = 0; i < 8; i++)
                EMU_DO(e->gpu->copy(scratch, scratch + BUSY / 2, BUSY / 2, e->stream[r]));
            EMU_DO(e->gpu->copy(scratch, r ? e->out[r] : e->in[r], NBYTES, e->stream[r]));
        }
        if (r == 0)
            send_letter(p, &p->letters[0]);
        else
            receive_letter(p, &p->letters[0]);
        EMU_DO(e->gpu->fill(e->in[r], WORD, NBYTES / 4, e->stream[r]));
        e->gpu->leave(&s);
    }
    compare(p, sender ? "a late sender" : "a late receiver");
    emu_copy(e, !sender, p->got, scratch, NBYTES);
    for (size_t i = 0; i < NBYTES; i++)
        if (!CHECK(p->got[i] == (sender ? p->in[0][i] : BLANK), "byte %zu was touched before the message", i))
            break;
    emu_free(e, sender ? 0 : 1, scratch);
    close_post(p);
}

TEST(a_late_peer_keeps_off_buffers)
{
    for (int i = 0; i < 8; i++)
        late(i & 4, i & 1, i & 2);
}

/* Captured once, replayed between eager groups; each replay moves what is in `in` then. */
TEST(graphs_replay_among_eager_groups)
{
    enum { N = 3, REPLAYS = 50 };
    rcclx_gpu_graph graph[N];
    rcclx_gpu_scope s;

    emu_settings("RCCLX_GPU_LANES=2", "RCCLX_TIMEOUT=60", NULL);
    post *p = open_post(N, 1 << 20);
    in_place(p, false, true);
    for (int r = 0; r < N; r++) {
        write_letter(p, r, (r + 1) % N, 150000, 0, 0);
        write_letter(p, r, (r + 1) % N, 700, 1, 1);
        write_letter(p, r, (r + 2) % N, 33, 1, 1);
    }
    const int captured = p->n;
    for (int r = 0; r < N; r++) {
        EMU_DO(p->e->gpu->enter(&s, p->e->device[r]));
        EMU_DO(p->e->gpu->capture_begin(p->e->stream[r]));
        EMU_OK(ncclGroupStart());
        for (int i = 0; i < captured; i++) {
            if (p->letters[i].from == r)
                send_letter(p, &p->letters[i]);
            if (p->letters[i].to == r)
                receive_letter(p, &p->letters[i]);
        }
        EMU_OK(ncclGroupEnd());
        EMU_DO(p->e->gpu->capture_end(p->e->stream[r], &graph[r]));
        p->e->gpu->leave(&s);
    }
    for (int replay = 0; replay < REPLAYS; replay++) {
        if (replay % 4 == 2) {
            write_letter(p, 0, replay % 8 == 2 ? 1 : 2, replay % 8 == 2 ? 20000 : 100, 3, 3);
            deliver(p, p->n - 1);
        }
        if (replay == REPLAYS - 1)
            for (int r = 0; r < N; r++) /* only the last one can have moved this */
                for (int i = 0; i < captured; i++)
                    if (p->letters[i].from == r) {
                        p->in[r][p->letters[i].in] ^= 0x5a;
                        emu_copy(p->e, r, p->e->in[r], p->in[r], p->e->nbytes);
                        p->want[p->letters[i].to][p->letters[i].out] ^= 0x5a;
                    }
        for (int r = 0; r < N; r++) {
            EMU_DO(p->e->gpu->enter(&s, p->e->device[r]));
            EMU_DO(p->e->gpu->graph_launch(graph[r], p->e->stream[r]));
            p->e->gpu->leave(&s);
        }
    }
    compare(p, "replays and eager groups");
    for (int r = 0; r < N; r++)
        EMU_DO(p->e->gpu->graph_destroy(graph[r]));
    close_post(p);
}

/* Letters of an all-to-all-v: from each rank's `in`, one behind the other, to each rank's `out`. */
static void all_to_all_v(post *p, bool zeros)
{
    const int n = p->e->n;
    size_t counts[EMU_MOST][EMU_MOST], from[EMU_MOST], to[EMU_MOST], back[EMU_MOST], there[EMU_MOST];

    for (int r = 0; r < n; r++)
        for (int k = 0; k < n; k++)
            counts[r][k] = zeros && dice(3) ? 0 : some_size();
    start(p);
    for (int r = 0; r < n; r++)
        for (int k = 0; k < n; k++)
            write_letter(p, k, r, counts[k][r], 0, 2);
    EMU_OK(ncclGroupStart());
    for (int r = 0; r < n; r++) {
        for (int k = 0; k < n; k++) {
            from[k] = p->letters[k * n + r].in;
            to[k] = p->letters[r * n + k].out;
            there[k] = counts[r][k];
            back[k] = counts[k][r];
        }
        EMU_OK(ncclAlltoAllv(p->e->in[r], there, from, p->e->out[r], back, to, ncclUint8, p->e->comm[r],
                             (cudaStream_t)p->e->stream[r]));
    }
    EMU_OK(ncclGroupEnd());
    compare(p, "AlltoAllv");
}

TEST(all_to_all_v_of_any_counts)
{
    static const int sizes[] = { 2, 3, 5, 8, 16 };

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        CASE("%d ranks", sizes[i]) {
            emu_settings("RCCLX_GPU_LANES=2", "RCCLX_TIMEOUT=60", NULL);
            post *p = open_post(sizes[i], 4 << 20);
            in_place(p, i & 1, i & 2);
            for (int round = 0; round < (sizes[i] > 8 ? 2 : 4); round++)
                all_to_all_v(p, round % 2);
            close_post(p);
        }
}

/* --- what goes wrong --------------------------------------------------------------------- */

static bool says(const char *text, const char *a, const char *b)
{
    return CHECK(strstr(text, a) && strstr(text, b), "'%s' and '%s' are not in: %s", a, b, text);
}

static ncclResult_t async(ncclComm_t c, double seconds)
{
    ncclResult_t r = ncclSuccess;

    (void)WAIT_FOR(ncclCommGetAsyncError(c, &r) != ncclSuccess || (r != ncclSuccess && r != ncclInProgress), seconds);
    return r;
}

/* What a broken communicator answers. */
static const char *why(const emu_ranks *e, int r)
{
    CHECK(ncclSend(e->in[r], 1, ncclInt8, !r, e->comm[r], (cudaStream_t)e->stream[r]) != ncclSuccess, "rank %d goes on", r);
    return ncclGetLastError(NULL);
}

static void drop(emu_ranks *e)
{
    for (int r = 0; r < e->n; r++) {
        emu_wait(e, r);
        if (e->comm[r])
            EMU_OK(ncclCommAbort(e->comm[r]));
        e->comm[r] = NULL;
    }
    emu_close(e);
}

TEST(messages_that_differ_are_told_on_both_ranks)
{
    static const struct { size_t sent, expected; ncclDataType_t type; const char *a, *b; } rows[] = {
        { 1000, 1001, ncclInt8, "1000 int8", "1001 int8" },        { 0, 8, ncclInt8, "0 int8", "8 int8" },
        { 8, 0, ncclInt8, "8 int8", "0 int8" },                    { 400, 400, ncclUint8, "400 int8", "400 uint8" },
        { 300000, 300001, ncclInt8, "300000 int8", "300001 int8" }, { 300000, 5, ncclInt8, "300000 int8", "5 int8" },
        { 5, 300000, ncclInt8, "5 int8", "300000 int8" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int way = 0; way < 3; way++) {
            emu_settings("RCCLX_GPU_LANES=4", "RCCLX_TIMEOUT=60", NULL);
            post *p = open_post(2, 300001);
            in_place(p, way == 1, way == 2);
            emu_ranks *e = p->e;
            EMU_OK(ncclSend(e->in[0], rows[i].sent, ncclInt8, 1, e->comm[0], (cudaStream_t)e->stream[0]));
            EMU_OK(ncclRecv(e->out[1], rows[i].expected, rows[i].type, 0, e->comm[1], (cudaStream_t)e->stream[1]));
            for (int r = 0; r < 2; r++) {
                CHECK(async(e->comm[r], 25) == ncclInvalidUsage, "row %zu, way %d: rank %d noticed nothing", i, way, r);
                says(why(e, r), rows[i].a, rows[i].b);
                says(why(e, r), "message number 1", "must be equal on both sides");
            }
            memset(p->handle, 0, sizeof p->handle);
            for (int r = 0; r < 2; r++) {
                emu_wait(e, r);
                EMU_OK(ncclCommAbort(e->comm[r]));
                e->comm[r] = NULL;
            }
            close_post(p);
        }
}

TEST(a_peer_that_does_not_come_is_named_at_the_deadline)
{
    static const size_t sizes[] = { 8, 500000 };
    char limit[64];

    snprintf(limit, sizeof limit, "RCCLX_TIMEOUT=%g", 0.3 * check_scale());
    for (int i = 0; i < 2; i++)
        for (int sends = 0; sends < 2; sends++) {
            if (sends && i == 0)
                continue; /* it is in its slot, and done */
            emu_settings(limit, "RCCLX_GPU_LANES=4", NULL);
            emu_ranks *e = emu_open(2, 500000);
            if (sends)
                EMU_OK(ncclSend(e->in[0], sizes[i], ncclInt8, 1, e->comm[0], (cudaStream_t)e->stream[0]));
            else
                EMU_OK(ncclRecv(e->out[0], sizes[i], ncclInt8, 1, e->comm[0], (cudaStream_t)e->stream[0]));
            CHECK(async(e->comm[0], 25) == ncclRemoteError, "rank 0 waits on");
            says(why(e, 0), sends ? "Send of 500000 int8 to rank 1" : "int8 from rank 1 (message number 1", "for rank 1 (pid");
            says(why(e, 0), sends ? "to receive" : "to send", "RCCLX_TIMEOUT is");
            CHECK(async(e->comm[1], 5) != ncclSuccess, "rank 1 was not told");
            drop(e);
        }
}

TEST(a_small_message_need_not_be_waited_for)
{
    unsigned char host[4][64], got[64];

    emu_settings("RCCLX_TIMEOUT=20", NULL);
    emu_ranks *e = emu_open(2, sizeof host);
    for (int i = 0; i < 4; i++)
        memset(host[i], i + 1, sizeof host[i]);
    emu_copy(e, 0, e->in[0], host, sizeof host);
    for (int i = 0; i < 4; i++)
        EMU_OK(ncclSend(e->in[0] + 64 * i, 64, ncclInt8, 1, e->comm[0], (cudaStream_t)e->stream[0]));
    emu_wait(e, 0); /* all four are on their way without a receive */
    for (int i = 0; i < 4; i++) {
        EMU_OK(ncclRecv(e->out[1], 64, ncclInt8, 0, e->comm[1], (cudaStream_t)e->stream[1]));
        emu_copy(e, 1, got, e->out[1], sizeof got);
        CHECK(!memcmp(got, host[i], sizeof got), "message %d holds %d", i, got[0]);
    }
    emu_close(e);
}

TEST(a_rank_that_closed_is_not_waited_for)
{
    for (int sends = 0; sends < 2; sends++) {
        emu_settings("RCCLX_GPU_LANES=4", NULL);
        emu_ranks *e = emu_open(2, 500000);
        EMU_OK(ncclCommDestroy(e->comm[1]));
        e->comm[1] = NULL;
        if (sends)
            EMU_OK(ncclSend(e->in[0], 500000, ncclInt8, 1, e->comm[0], (cudaStream_t)e->stream[0]));
        else
            EMU_OK(ncclRecv(e->out[0], 500000, ncclInt8, 1, e->comm[0], (cudaStream_t)e->stream[0]));
        CHECK(async(e->comm[0], 25) == ncclRemoteError, "rank 0 waits on");
        says(why(e, 0), sends ? "Send to rank 1" : "Recv from rank 1", "has destroyed its communicator");
        drop(e);
    }
}

TEST(abort_ends_a_wait_for_a_message)
{
    emu_settings("RCCLX_GPU_LANES=4", NULL);
    emu_ranks *e = emu_open(2, 500000);
    EMU_OK(ncclRecv(e->out[0], 500000, ncclInt8, 1, e->comm[0], (cudaStream_t)e->stream[0]));
    usleep(20000);
    const double began = check_now();
    EMU_OK(ncclCommAbort(e->comm[0]));
    CHECK(check_now() - began < check_scale(), "abort took %.2f s", check_now() - began);
    e->comm[0] = NULL;
    drop(e);
}
