/* Emulated GPUs: kernels of lanes and blocks that wait for each other, streams, events,
 * graphs, and memory that processes share. */
#include "check.h"
#include "device/gpu_emu.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"

#include <sys/socket.h>

#define OK(call) CHECK((call) == RCCLX_OK, "%s", rcclx_last_error())
#define MUST(call) REQUIRE((call) == RCCLX_OK, "%s", rcclx_last_error())
#define REFUSED(status, call, words)                                                                                \
    do {                                                                                                            \
        const rcclx_status got_ = (call);                                                                           \
        CHECK(got_ == (status), "%s came to %s", #call, rcclx_status_name(got_));                                    \
        CHECK(strstr(rcclx_last_error(), words), "no \"%s\" in: %s", words, rcclx_last_error());                     \
    } while (0)

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SLOW = 1 };
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
enum { SLOW = 1 };
#else
enum { SLOW = 0 };
#endif
#else
enum { SLOW = 0 };
#endif

static const rcclx_gpu *gpu(void)
{
    char why[200] = "";
    const rcclx_gpu *g = rcclx_gpu_emu(why, sizeof(why));

    if (!g) {
        check_say("# %s\n", why);
        abort();
    }
    return g;
}

static rcclx_status launch(void (*run)(const void *), unsigned blocks, unsigned threads, rcclx_gpu_stream s, const void *args,
                           size_t nargs)
{
    rcclx_gpu_fn f;

    rcclx_emu_function(run, &f);
    return gpu()->launch(f, blocks, threads, s, args, nargs);
}

static void use(int device)
{
    rcclx_gpu_scope s;

    OK(gpu()->enter(&s, device));
}

/* Streams destroyed with work in them go a little later. */
static size_t held_at_rest(void)
{
    size_t held;

    do {
        held = rcclx_mem_held();
        usleep(20000);
    } while (held != rcclx_mem_held());
    return held;
}

/* ---- other processes: before this one has threads */

typedef struct { uint32_t *mine, *theirs; uint32_t rounds; uint64_t *failed; } spin_args;

static uint32_t peek(const uint32_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

/* Lane 0 of a block says its round, waits for the same block of the peer, and lets the others on. */
static void ping(const void *p)
{
    const spin_args *a = p;
    const uint32_t   b = gp_emu_bid() * 32;
    const uint64_t   until = gp_emu_ticks() + UINT64_C(50000000000);

    for (uint32_t r = 1; r <= a->rounds; r++) {
        if (gp_emu_tid() == 0) {
            __atomic_store_n(&a->theirs[b], r, __ATOMIC_RELEASE);
            while (peek(&a->mine[b]) < r && gp_emu_ticks() < until)
                gp_emu_nap();
            if (peek(&a->mine[b]) < r)
                __atomic_fetch_add(a->failed, 1, __ATOMIC_RELAXED);
        }
        gp_emu_sync();
    }
}

static int settings_rank(int rank, int n, void *arg)
{
    void *p;

    (void)rank;
    (void)n;
    (void)arg;
    setenv("RCCLX_EMU_DEVICES", "4", 1);
    setenv("RCCLX_EMU_MEMORY", "65536", 1);
    setenv("RCCLX_EMU_UNREACHABLE", "0-1,2-3", 1);
    rcclx_option_reload();
    const rcclx_gpu *g = gpu();
    CHECK(g->count == 4, "%d devices", g->count);
    CHECK(!g->reaches(0, 1) && !g->reaches(1, 0) && !g->reaches(3, 2) && g->reaches(0, 2) && g->reaches(1, 1), "pairs");
    REFUSED(RCCLX_SYSTEM, g->enable_peer(1), "RCCLX_EMU_UNREACHABLE");
    OK(g->enable_peer(2));
    REFUSED(RCCLX_NOMEM, g->alloc(&p, 65537, false), "65536");
    OK(g->alloc(&p, 65536, false));
    use(1);
    REFUSED(RCCLX_UNSUPPORTED, g->share(p), "RCCLX_EMU_UNREACHABLE");
    use(2);
    OK(g->share(p));
    return 0;
}

TEST(settings)
{
    CHECK(run_ranks_as_processes(1, settings_rank, NULL) == 0, "the rank failed");
}

static void send_fd(int to, int fd)
{
    union { struct cmsghdr h; char space[CMSG_SPACE(sizeof(int))]; } control = { 0 };
    char          byte = 0;
    struct iovec  io = { &byte, 1 };
    struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };

    control.h = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
    memcpy(CMSG_DATA(&control.h), &fd, sizeof(fd));
    CHECK(sendmsg(to, &m, 0) == 1, "sendmsg: %s", strerror(errno));
}

static int receive_fd(int from)
{
    union { struct cmsghdr h; char space[CMSG_SPACE(sizeof(int))]; } control = { 0 };
    char          byte;
    int           fd = -1;
    struct iovec  io = { &byte, 1 };
    struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };

    if (recvmsg(from, &m, 0) == 1 && CMSG_FIRSTHDR(&m))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
    return fd;
}

typedef struct { int sockets[2]; } pair_args;

/* Each rank maps the other's window, and their kernels spin on each other. */
static int pair_rank(int rank, int n, void *arg)
{
    const rcclx_gpu  *g = gpu();
    const pair_args  *p = arg;
    const int         fds = check_count_fds();
    rcclx_gpu_handle  h;
    rcclx_gpu_pointer at;
    void *mine, *base, *failed;

    (void)n;
    use(rank);
    OK(g->alloc_host(&failed, 8));
    OK(g->alloc(&mine, 4096 + 128, true));
    OK(g->export((char *)mine + 4096, &h));
    CHECK(h.offset == 4096 && h.nbytes == 4096 + 128 && h.fd >= 0, "offset %llu", (unsigned long long)h.offset);
    send_fd(p->sockets[rank], h.fd);
    close(h.fd);
    h.fd = receive_fd(p->sockets[rank]);
    OK(g->import(&h, &base));
    close(h.fd);
    OK(g->pointer((char *)base + 5, &at));
    CHECK(at.place == RCCLX_AT_DEVICE && at.device == rank && at.base == (uint64_t)(uintptr_t)base, "place %d", at.place);
    REFUSED(RCCLX_UNSUPPORTED, g->export(base, &h), "peer");
    REFUSED(RCCLX_UNSUPPORTED, g->export(failed, &h), "pinned");
    REFUSED(RCCLX_UNSUPPORTED, g->export(&h, &h), "host memory");

    const spin_args a = { (uint32_t *)((char *)mine + 4096), (uint32_t *)((char *)base + 4096), 50, failed };
    OK(launch(ping, 1, 64, NULL, &a, sizeof(a)));
    OK(g->stream_sync(NULL));
    CHECK(*(uint64_t *)failed == 0, "%llu waits were in vain", *(unsigned long long *)failed);
    CHECK(*a.mine == 50, "%u", *a.mine);
    OK(g->unimport(base));
    OK(g->free(mine));
    OK(g->free_host(failed));
    CHECK(check_count_fds() == fds, "%d descriptors, before %d", check_count_fds(), fds);
    return 0;
}

TEST(two_processes_share_memory)
{
    pair_args p;

    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p.sockets) == 0, "%s", strerror(errno));
    CHECK(run_ranks_as_processes(2, pair_rank, &p) == 0, "ranks failed");
    close(p.sockets[0]);
    close(p.sockets[1]);
}

/* What ends the program is tried in a child. */
static void half_a_barrier(const void *p)
{
    (void)p;
    if (gp_emu_tid() < 3)
        gp_emu_ballot(1);
    else
        gp_emu_sync();
}

/* The last lane has the highest stack, and below it lies that of one that has returned. */
__attribute__((noinline)) static void write_much(void)
{
    volatile char big[80 << 10];

    for (size_t i = 0; i < sizeof(big); i++)
        big[i] = 1;
}

static void deep(const void *p)
{
    (void)p;
    if (gp_emu_tid() == 31)
        write_much();
}

static int dies(int rank, int n, void *arg)
{
    (void)n;
    (void)arg;
    signal(SIGABRT, SIG_DFL);
    if (rank == 0)
        launch(half_a_barrier, 1, 32, NULL, NULL, 0);
    else
        launch(deep, 1, 32, NULL, NULL, 0);
    return gpu()->stream_sync(NULL) == RCCLX_OK;
}

TEST(a_block_that_cannot_go_on_says_so)
{
    check_ranks r;

    check_ranks_start(&r, SLOW ? 1 : 2, dies, NULL);
    CHECK(check_ranks_wait(&r, 20) == 0, "it waits for ever");
    for (int i = 0; i < r.n; i++)
        CHECK(r.status[i] == -SIGABRT, "%s: ended with %d", i ? "stack overflow" : "half a barrier", r.status[i]);
}

/* ---- lanes of a block */

typedef struct { uint32_t *out; uint32_t rounds; } lanes_args;
typedef struct { uint32_t word[RCCLX_EMU_THREADS]; } lanes_shared;

/* Every round each lane stores a word and, after the barrier, adds its neighbours'. */
static void add_neighbours(const void *p)
{
    const lanes_args *a = p;
    const uint32_t    tid = gp_emu_tid(), n = 64;
    lanes_shared     *s = gp_emu_shared(sizeof(*s));
    uint32_t          sum = 0;

    for (uint32_t r = 0; r < a->rounds; r++) {
        s->word[tid] = tid * 3 + r + gp_emu_bid();
        gp_emu_sync();
        sum += s->word[(tid + 1) % n] + s->word[(tid + n - 1) % n];
        gp_emu_sync();
    }
    a->out[gp_emu_bid() * n + tid] = sum;
}

TEST(lanes_meet_at_a_barrier)
{
    const rcclx_gpu *g = gpu();
    void *out;

    use(0);
    MUST(g->alloc(&out, 4 * 64 * 4, false));
    const lanes_args a = { out, 20 };
    OK(launch(add_neighbours, 4, 64, NULL, &a, sizeof(a)));
    OK(g->stream_sync(NULL));
    for (uint32_t b = 0; b < 4; b++)
        for (uint32_t t = 0; t < 64; t++) {
            const uint32_t both = 3 * ((t + 1) % 64 + (t + 63) % 64), want = 20 * (both + 2 * b) + 2 * 190;
            CHECK(a.out[b * 64 + t] == want, "block %u lane %u: %u, not %u", b, t, a.out[b * 64 + t], want);
        }
    OK(g->free(out));
}

typedef struct { uint64_t *out; } ballot_args;

/* Wave w of block b: lanes whose number has bit r set say yes in round r; the last
 * lanes of a wave leave early. */
static void ballots(const void *p)
{
    const ballot_args *a = p;
    const uint32_t     tid = gp_emu_tid();

    for (uint32_t r = 0; r < 5; r++) {
        const uint64_t votes = gp_emu_ballot((int)(tid >> r & 1));
        a->out[(gp_emu_bid() * 64 + tid) * 6 + r] = votes;
        gp_emu_wave_sync();
    }
    if (tid % 32 >= 30)
        return;
    a->out[(gp_emu_bid() * 64 + tid) * 6 + 5] = gp_emu_ballot(1);
    gp_emu_sync();
}

TEST(waves_vote)
{
    const rcclx_gpu *g = gpu();
    const uint64_t   want[6] = { 0xaaaaaaaa, 0xcccccccc, 0xf0f0f0f0, 0xff00ff00, 0xffff0000, 0x3fffffff };
    void *out;

    MUST(g->alloc(&out, 4 * 64 * 6 * 8, false));
    const ballot_args a = { out };
    OK(launch(ballots, 4, 64, NULL, &a, sizeof(a)));
    OK(g->stream_sync(NULL));
    for (uint32_t i = 0; i < 4 * 64; i++)
        for (uint32_t r = 0; r < 6; r++) {
            const uint64_t w = r == 5 && i % 32 >= 30 ? 0 : want[r];
            CHECK(a.out[i * 6 + r] == w, "lane %u ballot %u: %llx", i, r, (unsigned long long)a.out[i * 6 + r]);
        }
    OK(g->free(out));
}

/* Lanes publish to lanes of their wave without a barrier of the block. */
static void wave_shift(const void *p)
{
    const lanes_args *a = p;
    const uint32_t    tid = gp_emu_tid();
    lanes_shared     *s = gp_emu_shared(sizeof(*s));

    s->word[tid] = tid;
    gp_emu_wave_sync();
    a->out[gp_emu_bid() * 40 + tid] = s->word[tid ^ 1];
}

TEST(a_wave_that_is_not_full)
{
    const rcclx_gpu *g = gpu();
    void *out;

    MUST(g->alloc(&out, 2 * 40 * 4, false));
    const lanes_args a = { out, 0 };
    OK(launch(wave_shift, 2, 40, NULL, &a, sizeof(a)));
    OK(g->stream_sync(NULL));
    for (uint32_t i = 0; i < 80; i++)
        CHECK(a.out[i] == (i % 40 ^ 1), "lane %u: %u", i, a.out[i]);
    OK(g->free(out));
}

/* ---- blocks and ranks that spin on each other */

TEST(two_streams_spin_on_each_other)
{
    const rcclx_gpu *g = gpu();
    rcclx_gpu_stream s[2];
    void *flags[2], *failed;

    MUST(g->alloc_host(&failed, 8));
    for (int i = 0; i < 2; i++) {
        MUST(g->stream_create(&s[i]));
        MUST(g->alloc(&flags[i], 4 * 128, true));
    }
    for (int i = 0; i < 2; i++) {
        const spin_args a = { flags[i], flags[1 - i], 100, failed };
        OK(launch(ping, 4, 32, s[i], &a, sizeof(a)));
    }
    for (int i = 0; i < 2; i++) {
        OK(g->stream_sync(s[i]));
        CHECK(*(uint32_t *)flags[i] == 100, "round %u", *(uint32_t *)flags[i]);
        OK(g->stream_destroy(s[i]));
        OK(g->free(flags[i]));
    }
    CHECK(*(uint64_t *)failed == 0, "%llu waits were in vain", *(unsigned long long *)failed);
    OK(g->free_host(failed));
}

enum { RING = 8, LOOKERS = SLOW ? 8 : 32 };

typedef struct { uint32_t *flags; uint32_t rank, rounds; uint64_t *failed; } ring_args;

/* A token goes around RING ranks for each block; all lanes of a wave look at it. */
static void ring(const void *p)
{
    const ring_args *a = p;
    const uint32_t   at = gp_emu_bid() * 32, before = (a->rank + RING - 1) % RING;
    const uint64_t   until = gp_emu_ticks() + UINT64_C(50000000000);
    uint32_t        *mine = a->flags + a->rank * RING * 32 + at;
    const uint32_t  *theirs = a->flags + before * RING * 32 + at;

    for (uint32_t r = 1; r <= a->rounds; r++) {
        const uint32_t want = a->rank ? r : r - 1;
        bool late = false;
        while (!late && gp_emu_ballot(peek(theirs) >= want) != UINT32_MAX >> (32 - LOOKERS)) {
            gp_emu_nap();
            late = gp_emu_ballot(gp_emu_ticks() > until) != 0;
        }
        if (gp_emu_tid() == 0) {
            __atomic_fetch_add(a->failed, late, __ATOMIC_RELAXED);
            __atomic_store_n(mine, r, __ATOMIC_RELEASE);
        }
    }
}

TEST(eight_ranks_of_eight_blocks_on_few_cores)
{
    const rcclx_gpu *g = gpu();
    const uint32_t   rounds = SLOW ? 3 : 20;
    rcclx_gpu_stream s[RING];
    void *flags, *failed;

    use(0);
    MUST(g->alloc(&flags, RING * RING * 128, true));
    MUST(g->alloc_host(&failed, 8));
    const double begun = check_now();
    for (uint32_t r = 0; r < RING; r++) {
        const ring_args a = { flags, r, rounds, failed };
        use((int)r % g->count);
        MUST(g->stream_create(&s[r]));
        OK(launch(ring, RING, LOOKERS, s[r], &a, sizeof(a)));
    }
    for (uint32_t r = 0; r < RING; r++) {
        OK(g->stream_sync(s[r]));
        OK(g->stream_destroy(s[r]));
    }
    const double took = check_now() - begun;
    check_say("# %u rounds of %d hops took %.3f s\n", rounds, RING, took);
    CHECK(took < 20 * check_scale(), "%.3f s", took);
    CHECK(*(uint64_t *)failed == 0, "%llu waits were in vain", *(unsigned long long *)failed);
    use(0);
    OK(g->free(flags));
    OK(g->free_host(failed));
}

typedef struct { uint32_t *sum; } count_args;

static void count(const void *p)
{
    const count_args *a = p;

    gp_emu_sync();
    __atomic_fetch_add(a->sum, 1, __ATOMIC_RELAXED);
    gp_emu_sync();
}

TEST(sixty_four_blocks_of_512_lanes)
{
    const rcclx_gpu *g = gpu();
    const unsigned   blocks = SLOW ? 1 : 64;
    void *sum;

    MUST(g->alloc(&sum, 4, false));
    const count_args a = { sum };
    for (int i = 0; i < 2; i++)
        OK(launch(count, blocks, 512, NULL, &a, sizeof(a)));
    OK(g->stream_sync(NULL));
    CHECK(*a.sum == 2 * 512 * blocks, "%u", *a.sum);
    REFUSED(RCCLX_SYSTEM, launch(count, 1, RCCLX_EMU_THREADS + 1, NULL, &a, sizeof(a)), "1025 threads");
    OK(g->free(sum));
}

typedef struct { uint64_t *out; } values_args;

static uint64_t mix(uint64_t x)
{
    return (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9) + 1;
}

/* More values than there are registers, those that calls keep included, outlive the switches. */
static void many_values(const void *p)
{
    const values_args *v = p;
    const uint32_t tid = gp_emu_tid();
    uint64_t a = tid, b = tid * 3u, c = tid * 5u, d = tid * 7u, e = tid * 9u, f = tid * 11u, g = tid * 13u;
    double   x = tid;

    for (int r = 0; r < 10; r++) {
        gp_emu_nap();
        a = mix(a), b = mix(b), c = mix(c), d = mix(d);
        gp_emu_sync();
        e = mix(e), f = mix(f), g = mix(g), x += 0.5;
    }
    v->out[tid] = a ^ b ^ c ^ d ^ e ^ f ^ g ^ (uint64_t)x;
}

static uint64_t without_switches(uint32_t tid)
{
    uint64_t all = tid + 5;

    for (uint32_t k = 1; k <= 13; k += 2) {
        uint64_t v = tid * k;
        for (int r = 0; r < 10; r++)
            v = mix(v);
        all ^= v;
    }
    return all;
}

TEST(a_lane_keeps_its_values)
{
    const rcclx_gpu *g = gpu();
    void *out;

    MUST(g->alloc(&out, 64 * 8, false));
    const values_args a = { out };
    OK(launch(many_values, 1, 64, NULL, &a, sizeof(a)));
    OK(g->stream_sync(NULL));
    for (uint32_t t = 0; t < 64; t++)
        CHECK(a.out[t] == without_switches(t), "lane %u: %llx", t, (unsigned long long)a.out[t]);
    OK(g->free(out));
}

/* The others wait at the barrier already when the last lane returns. */
static void leave_late(const void *p)
{
    const count_args *a = p;

    for (int r = 0; gp_emu_tid() == 63 && r < 5; r++)
        gp_emu_nap();
    if (gp_emu_tid() == 63)
        return;
    gp_emu_sync();
    __atomic_fetch_add(a->sum, 1, __ATOMIC_RELAXED);
}

TEST(who_has_returned_counts_as_arrived)
{
    const rcclx_gpu *g = gpu();
    void *sum;

    MUST(g->alloc(&sum, 4, false));
    const count_args a = { sum };
    OK(launch(leave_late, 2, 64, NULL, &a, sizeof(a)));
    OK(g->stream_sync(NULL));
    CHECK(*a.sum == 2 * 63, "%u", *a.sum);
    OK(g->free(sum));
}

/* ---- streams and events */

typedef struct { const uint32_t *gate; } gate_args;

static void wait_for_gate(const void *p)
{
    const gate_args *a = p;

    while (!peek(a->gate))
        gp_emu_nap();
}

TEST(work_of_a_stream_keeps_its_order)
{
    const rcclx_gpu *g = gpu();
    rcclx_gpu_stream s, t;
    rcclx_gpu_event  e;
    uint32_t         host[256] = { 0 }, *dev;
    void *mem, *gate;
    double us = -1;

    MUST(g->alloc(&mem, sizeof(host), false));
    MUST(g->alloc_host(&gate, 4));
    MUST(g->stream_create(&s));
    MUST(g->stream_create(&t));
    MUST(g->event_create(&e, true));
    dev = mem;
    const gate_args a = { gate };

    OK(g->event_query(e)); /* never recorded */
    OK(launch(wait_for_gate, 1, 1, s, &a, sizeof(a)));
    OK(g->fill(mem, 0x01020304, 256, s));
    OK(g->event_record(e, s));
    OK(g->stream_wait(t, e));
    OK(g->copy(host, mem, sizeof(host), t));
    OK(g->fill(mem, 7, 256, t));
    OK(g->copy(host, dev, 4, t));
    CHECK(g->event_query(e) == RCCLX_AGAIN, "before the gate");
    CHECK(g->stream_query(s) == RCCLX_AGAIN && g->stream_query(t) == RCCLX_AGAIN, "before the gate");
    __atomic_store_n((uint32_t *)gate, 1, __ATOMIC_RELEASE);
    OK(g->event_sync(e));
    OK(g->stream_sync(s));
    OK(g->stream_sync(t));
    OK(g->stream_query(t));
    CHECK(host[0] == 7 && host[1] == 0x01020304 && host[255] == 0x01020304, "%x %x %x", host[0], host[1], host[255]);
    CHECK(dev[255] == 7, "%x", dev[255]);
    OK(g->event_elapsed(e, e, &us));
    CHECK(us == 0, "%g", us);

    OK(g->event_destroy(e));
    OK(g->stream_destroy(s));
    OK(g->stream_destroy(t));
    OK(g->free(mem));
    OK(g->free_host(gate));
    REFUSED(RCCLX_SYSTEM, g->stream_sync(s), "destroyed");
}

TEST(a_stream_with_work_may_be_destroyed)
{
    const rcclx_gpu *g = gpu();
    const size_t     held = held_at_rest();
    rcclx_gpu_stream s;
    void *mem, *gate;

    MUST(g->alloc(&mem, 4, false));
    MUST(g->alloc_host(&gate, 4));
    MUST(g->stream_create(&s));
    const gate_args a = { gate };
    OK(launch(wait_for_gate, 1, 1, s, &a, sizeof(a)));
    OK(g->fill(mem, 5, 1, s));
    OK(g->stream_destroy(s));
    CHECK(*(uint32_t *)mem == 0, "before the gate");
    __atomic_store_n((uint32_t *)gate, 1, __ATOMIC_RELEASE);
    OK(g->device_sync());
    CHECK(*(uint32_t *)mem == 5, "after the gate: %u", *(uint32_t *)mem);
    OK(g->free(mem));
    OK(g->free_host(gate));
    CHECK(WAIT_FOR(rcclx_mem_held() == held, 5), "%zu blocks more than before", rcclx_mem_held() - held);
}

TEST(a_launch_wants_the_streams_device)
{
    const rcclx_gpu *g = gpu();
    rcclx_gpu_stream s;
    rcclx_gpu_event  e;
    rcclx_gpu_scope  scope;
    int device = -1;

    use(0);
    MUST(g->event_create(&e, false));
    MUST(g->enter(&scope, 1));
    MUST(g->stream_create(&s));
    g->leave(&scope);
    OK(g->current(&device));
    CHECK(device == 0, "%d", device);
    OK(g->stream_device(s, &device));
    CHECK(device == 1, "%d", device);
    REFUSED(RCCLX_SYSTEM, launch(count, 1, 1, s, NULL, 0), "device 1");
    REFUSED(RCCLX_SYSTEM, g->event_record(e, s), "device 1");
    OK(g->event_destroy(e));
    OK(g->stream_destroy(s));
    REFUSED(RCCLX_SYSTEM, g->enter(&scope, g->count), "no device");
}

/* ---- graphs */

typedef struct { uint32_t *word; uint32_t add; } add_args;

static void add(const void *p)
{
    const add_args *a = p;

    *a->word = *a->word * 3 + a->add;
}

TEST(a_graph_runs_again_and_again)
{
    const rcclx_gpu *g = gpu();
    const size_t     held = held_at_rest();
    rcclx_gpu_stream s;
    rcclx_gpu_graph  x;
    uint64_t         id = 9, id2 = 0;
    uint32_t         host = 0, want = 0;
    void            *word;

    MUST(g->alloc(&word, 4, false));
    MUST(g->stream_create(&s));
    OK(g->capture_id(s, &id));
    CHECK(id == 0, "%llu", (unsigned long long)id);
    MUST(g->capture_begin(s));
    OK(g->capture_id(s, &id));
    CHECK(id != 0, "no capture");
    add_args a = { word, 5 };
    OK(launch(add, 1, 1, s, &a, sizeof(a)));
    a.add = 11; /* the arguments above were copied */
    OK(launch(add, 1, 1, s, &a, sizeof(a)));
    OK(g->copy(&host, word, 4, s));
    MUST(g->capture_end(s, &x));
    CHECK(*(uint32_t *)word == 0, "it ran already");
    for (int i = 0; i < 100; i++) {
        OK(g->graph_launch(x, s));
        want = (want * 3 + 5) * 3 + 11;
        if (i % 10 == 3) {
            OK(launch(add, 1, 1, s, &a, sizeof(a)));
            want = want * 3 + 11;
        }
    }
    OK(g->graph_destroy(x)); /* what is queued still runs */
    OK(g->stream_sync(s));
    CHECK(host == want, "%u, not %u", host, want);
    MUST(g->capture_begin(s));
    OK(g->capture_id(s, &id2));
    CHECK(id2 > id, "the id %llu came again", (unsigned long long)id2);
    MUST(g->capture_end(s, &x));
    OK(g->graph_launch(x, s)); /* an empty one */
    OK(g->stream_sync(s));
    OK(g->graph_destroy(x));
    OK(g->stream_destroy(s));
    OK(g->free(word));
    CHECK(WAIT_FOR(rcclx_mem_held() == held, 5), "%zu blocks more than before", rcclx_mem_held() - held);
}

/* Two devices captured by one thread: their kernels wait for each other at every replay. */
TEST(branches_of_a_graph_run_at_the_same_time)
{
    const rcclx_gpu *g = gpu();
    const size_t     held = held_at_rest();
    rcclx_gpu_stream s[2];
    rcclx_gpu_event  fork, join;
    rcclx_gpu_graph  x;
    uint64_t         ids[2];
    void            *flags[2], *failed;

    MUST(g->alloc_host(&failed, 8));
    for (int i = 1; i >= 0; i--) {
        use(i);
        MUST(g->stream_create(&s[i]));
        MUST(g->alloc(&flags[i], 128, true));
        MUST(g->event_create(i ? &join : &fork, false));
    }
    MUST(g->capture_begin(s[0]));
    OK(g->event_record(fork, s[0]));
    OK(g->stream_wait(s[1], fork));
    for (int i = 0; i < 2; i++) {
        use(i);
        OK(g->capture_id(s[i], &ids[i]));
        OK(g->fill(flags[i], 0, 1, s[i]));
    }
    OK(g->event_record(join, s[1])); /* both flags are zero before either kernel begins */
    OK(g->stream_wait(s[0], join));
    use(0);
    OK(g->event_record(fork, s[0]));
    OK(g->stream_wait(s[1], fork));
    CHECK(ids[0] == ids[1] && ids[0], "captures %llu and %llu", (unsigned long long)ids[0], (unsigned long long)ids[1]);
    for (int i = 0; i < 2; i++) {
        const spin_args a = { flags[i], flags[1 - i], 10, failed };
        use(i);
        OK(launch(ping, 1, 4, s[i], &a, sizeof(a)));
    }
    OK(g->event_record(join, s[1]));
    OK(g->stream_wait(s[0], join));
    MUST(g->capture_end(s[0], &x));
    use(0);
    for (int i = 0; i < 20; i++)
        OK(g->graph_launch(x, i % 2 ? s[0] : NULL)); /* one after the other all the same */
    OK(g->stream_sync(s[0]));
    OK(g->stream_sync(NULL));
    CHECK(*(uint64_t *)failed == 0, "%llu waits were in vain", *(unsigned long long *)failed);
    CHECK(*(uint32_t *)flags[0] == 10 && *(uint32_t *)flags[1] == 10, "rounds");
    REFUSED(RCCLX_SYSTEM, g->event_sync(join), "capture");
    REFUSED(RCCLX_SYSTEM, g->stream_wait(s[0], join), "ended");
    OK(g->graph_destroy(x));
    for (int i = 0; i < 2; i++) {
        OK(g->stream_destroy(s[i]));
        OK(g->free(flags[i]));
    }
    OK(g->event_destroy(fork));
    OK(g->event_destroy(join));
    OK(g->free_host(failed));
    CHECK(WAIT_FOR(rcclx_mem_held() == held, 5), "%zu blocks more than before", rcclx_mem_held() - held);
}

static void begin_and_spoil(const rcclx_gpu *g, rcclx_gpu_stream s, rcclx_status (*spoil)(const rcclx_gpu *, rcclx_gpu_stream),
                            const char *words)
{
    rcclx_gpu_graph x;

    MUST(g->capture_begin(s));
    REFUSED(RCCLX_SYSTEM, spoil(g, s), words);
    REFUSED(RCCLX_SYSTEM, g->capture_end(s, &x), words);
    CHECK(x == NULL, "a graph came out");
}

static rcclx_status sync_it(const rcclx_gpu *g, rcclx_gpu_stream s)
{
    return g->stream_sync(s);
}

static rcclx_status alloc_some(const rcclx_gpu *g, rcclx_gpu_stream s)
{
    void *p;

    (void)s;
    return g->alloc(&p, 64, false);
}

TEST(a_capture_is_lost_by_unsafe_calls)
{
    const rcclx_gpu *g = gpu();
    rcclx_gpu_stream s, t;
    rcclx_gpu_event  e, outside;
    rcclx_gpu_graph  x;
    void            *p;

    MUST(g->stream_create(&s));
    MUST(g->stream_create(&t));
    MUST(g->event_create(&e, false));
    MUST(g->event_create(&outside, false));
    OK(g->event_record(outside, t));
    begin_and_spoil(g, s, sync_it, "stream_sync");
    begin_and_spoil(g, s, alloc_some, "alloc");

    CASE("relaxed, it is not") {
        MUST(g->capture_begin(s));
        const int before = g->relax();
        OK(g->alloc(&p, 64, false));
        OK(g->stream_sync(t));
        g->unrelax(before);
        MUST(g->capture_end(s, &x));
        OK(g->graph_destroy(x));
        OK(g->free(p));
    }
    CASE("a stream that was not joined back") {
        MUST(g->capture_begin(s));
        OK(g->event_record(e, s));
        OK(g->stream_wait(t, e));
        REFUSED(RCCLX_SYSTEM, g->capture_end(s, &x), "not joined back");
    }
    CASE("an event from outside") {
        MUST(g->capture_begin(s));
        REFUSED(RCCLX_SYSTEM, g->stream_wait(s, outside), "outside");
        REFUSED(RCCLX_SYSTEM, g->capture_end(s, &x), "stream_wait");
    }
    OK(g->event_record(e, s)); /* outside of a capture it is an ordinary event again */
    OK(g->event_sync(e));
    OK(g->event_destroy(e));
    OK(g->event_destroy(outside));
    OK(g->stream_destroy(s));
    OK(g->stream_destroy(t));
}

/* ---- memory */

TEST(pointers_are_known)
{
    const rcclx_gpu  *g = gpu();
    rcclx_gpu_pointer p, q;
    int   local = 0;
    void *dev, *host, *again;

    use(2);
    MUST(g->alloc(&dev, 1000, false));
    MUST(g->alloc_host(&host, 1000));
    OK(g->pointer((char *)dev + 999, &p));
    CHECK(p.place == RCCLX_AT_DEVICE && p.device == 2 && p.base == (uint64_t)(uintptr_t)dev && p.nbytes == 1000 &&
          p.device_ptr == p.base + 999 && p.serial, "place %d device %d", p.place, p.device);
    OK(g->pointer((char *)dev + 1000, &q));
    CHECK(q.place == RCCLX_AT_HOST, "behind the end: %d", q.place);
    OK(g->pointer(host, &q));
    CHECK(q.place == RCCLX_AT_PINNED && q.device == -1 && q.device_ptr == (uint64_t)(uintptr_t)host, "place %d", q.place);
    OK(g->pointer(&local, &q));
    CHECK(q.place == RCCLX_AT_HOST && q.device == -1 && !q.serial, "place %d", q.place);
    REFUSED(RCCLX_SYSTEM, g->free_host(dev), "pinned");
    _Alignas(4096) static char page[4096];
    REFUSED(RCCLX_SYSTEM, g->register_host(page + 1, 4095), "whole pages");
    OK(g->register_host(page, sizeof(page)));
    OK(g->pointer(page + 9, &q));
    CHECK(q.place == RCCLX_AT_PINNED && q.device == -1 && q.device_ptr == (uint64_t)(uintptr_t)page + 9, "place %d", q.place);
    OK(g->unregister_host(page));
    OK(g->pointer(page, &q));
    CHECK(q.place == RCCLX_AT_HOST, "place %d", q.place);
    REFUSED(RCCLX_SYSTEM, g->unregister_host(page), "registered host memory");
    OK(g->free(dev));
    REFUSED(RCCLX_SYSTEM, g->free(dev), "freed before");
    MUST(g->alloc(&again, 1000, false));
    OK(g->pointer(again, &q));
    CHECK(q.serial > p.serial, "serial %llu again", (unsigned long long)q.serial);
    OK(g->free(again));
    OK(g->free_host(host));
    use(0);
}

TEST(memory_runs_out)
{
    const rcclx_gpu *g = gpu();
    size_t left, total, after;
    void  *a, *b;

    OK(g->memory(&left, &total));
    CHECK(left <= total && left > 4096, "%zu of %zu", left, total);
    MUST(g->alloc(&a, left - 100, false));
    OK(g->memory(&after, &total));
    CHECK(after == 100, "%zu left", after);
    REFUSED(RCCLX_NOMEM, g->alloc(&b, 101, false), "device 0");
    MUST(g->alloc(&b, 100, false));
    OK(g->free(a));
    OK(g->free(b));
    OK(g->memory(&after, &total));
    CHECK(after == left, "%zu left, not %zu", after, left);
}

/* Everything once; what fails is passed over, and what was made is given back. */
static int do_all(const rcclx_gpu *g)
{
    rcclx_gpu_stream s = NULL, t = NULL;
    rcclx_gpu_event  e = NULL;
    rcclx_gpu_graph  x = NULL;
    uint32_t word = 0;
    void    *p = NULL, *host = NULL;
    int      bad = g->alloc(&p, 8, false) != RCCLX_OK;

    bad += g->alloc_host(&host, 4) != RCCLX_OK;
    bad += g->event_create(&e, false) != RCCLX_OK;
    bad += g->stream_create(&s) != RCCLX_OK;
    bad += g->stream_create(&t) != RCCLX_OK;
    if (!bad) {
        const add_args a = { p, 1 };
        bad += g->capture_begin(s) != RCCLX_OK;
        bad += launch(add, 1, 1, s, &a, sizeof(a)) != RCCLX_OK;
        bad += g->event_record(e, s) != RCCLX_OK;
        bad += g->stream_wait(t, e) != RCCLX_OK;
        bad += g->fill((uint32_t *)p + 1, 1, 1, t) != RCCLX_OK; /* a word of its own: a capture that fails runs at once */
        bad += g->event_record(e, t) != RCCLX_OK;
        bad += g->stream_wait(s, e) != RCCLX_OK;
        bad += g->capture_end(s, &x) != RCCLX_OK;
        if (x)
            bad += g->graph_launch(x, s) != RCCLX_OK;
        bad += g->copy(&word, p, 4, s) != RCCLX_OK;
        bad += g->stream_sync(s) != RCCLX_OK;
        bad += g->stream_sync(t) != RCCLX_OK;
    }
    bad += g->device_sync() != RCCLX_OK;
    g->graph_destroy(x);
    g->event_destroy(e);
    if (s)
        g->stream_destroy(s);
    if (t)
        g->stream_destroy(t);
    g->free(p);
    g->free_host(host);
    return bad;
}

TEST(each_allocation_fails_once)
{
    const rcclx_gpu *g = gpu();
    const size_t     held = held_at_rest();
    const int        fds = check_count_fds();
    int n = 0, bad = 1;

    use(0);
    for (; bad && n < 200; n++) {
        rcclx_mem_fail_after(n);
        bad = do_all(g);
        rcclx_mem_fail_after(-1);
        CHECK(WAIT_FOR(rcclx_mem_held() == held, 5), "without allocation %d: %zu blocks more", n, rcclx_mem_held() - held);
        CHECK(check_count_fds() == fds, "without allocation %d: %d descriptors, not %d", n, check_count_fds(), fds);
    }
    CHECK(n > 20 && !bad, "%d allocations", n);
}

TEST(about_the_devices)
{
    const rcclx_gpu *g = gpu();
    rcclx_gpu_info   i;
    rcclx_gpu_module m;
    rcclx_gpu_fn     f;
    int blocks = 0;

    CHECK(g->kind == RCCLX_GPU_EMU && g->count >= 1, "%d devices", g->count);
    OK(g->info(g->count - 1, &i));
    CHECK(!strcmp(i.arch, "host") && i.wave == 32 && i.fd_handles && i.sms >= 64, "%s", i.arch);
    OK(g->load(&m, 0));
    REFUSED(RCCLX_SYSTEM, g->function(&f, m, "no_such_kernel"), "no_such_kernel");
    for (const rcclx_emu_kernel *k = rcclx_emu_kernels; k->name; k++)
        OK(g->function(&f, m, k->name));
    CHECK(rcclx_emu_kernels[0].name, "no kernels");
    rcclx_emu_function(count, &f);
    OK(g->occupancy(f, 512, &blocks));
    CHECK(blocks == 1, "%d", blocks);
    OK(g->unload(m));
}
