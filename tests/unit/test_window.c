/* Windows and registered buffers on emulated GPUs, whose memory the host may read,
 * so that a rank sees what a peer has mapped. Ranks are processes, threads, and both. */
#include "check.h"

#include "base/mem.h"
#include "base/log.h"
#include "base/option.h"
#include "base/process.h"
#include "device/gpu_emu.h"
#include "transport/window_state.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 }; /* they map memory as they like */
#else
enum { SANITIZED = 0 };
#endif

enum { RANKS = 4, WINDOW = 1 << 20, NOTES = 64 };

/* Made before the ranks, shared by all. */
typedef struct {
    int        fd, nranks, threads; /* threads: a process */
    bool       host, moves;         /* windows are in host memory: from the start, later */
    uint64_t   token[2];
    double     timeout;
    _Atomic uint32_t aborted;
    atomic_int here, round, keyed;
    _Atomic uint64_t key[RANKS], note[NOTES];
    char       why[RANKS][512];
    int (*main)(int rank, int n, void *arg);
} place;

typedef struct {
    place        *p;
    int           rank, n;
    rcclx_segment segment;
    rcclx_peer    peer[RANKS];
    uint64_t      key[RANKS];
    int           device[RANKS];
    const rcclx_gpu *gpu;
    rcclx_windows *w;
} member;

static place *place_open(int nranks, int threads, int (*rank_main)(int, int, void *))
{
    place *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        abort();
    setenv("NCCL_DEBUG", "NONE", 1); /* some errors are on purpose */
    *p = (place){ .nranks = nranks, .threads = threads, .timeout = 20 * check_scale(), .main = rank_main };
    rcclx_random(p->token, sizeof p->token);
    CHECK(rcclx_segment_create(nranks, nranks, p->token, &p->fd) == RCCLX_OK, "%s", rcclx_last_error());
    return p;
}

static void place_close(place *p)
{
    close(p->fd);
    munmap(p, sizeof *p);
}

static void meet(place *p)
{
    const int round = atomic_load(&p->round);

    if (atomic_fetch_add(&p->here, 1) == p->nranks - 1) {
        atomic_store(&p->here, 0);
        atomic_fetch_add(&p->round, 1);
    }
    while (atomic_load(&p->round) == round)
        usleep(50);
}

static void member_init(member *m, place *p, int rank)
{
    char why[128];

    *m = (member){ .p = p, .rank = rank, .n = p->nranks, .gpu = rcclx_gpu_emu(why, sizeof why) };
    CHECK(rcclx_segment_map(&m->segment, p->fd, p->token) == RCCLX_OK, "%s", rcclx_last_error());
    rcclx_segment_area(&m->segment, rank)->ident.pid = rcclx_process()->pid;
    atomic_store(&p->key[rank], rcclx_process()->key);
    while (atomic_load(&p->key[p->nranks - 1]) == 0 || atomic_load(&p->key[0]) == 0)
        usleep(50);
    for (int r = 0; r < m->n; r++) {
        while (!(m->key[r] = atomic_load(&p->key[r])))
            usleep(50);
        m->device[r] = r % m->gpu->count;
        m->peer[r] = (rcclx_peer){ .rank = r, .pid = rcclx_segment_area(&m->segment, r)->ident.pid, .life = -1,
                                   .local = m->key[r] == m->key[rank] };
        if (!m->peer[r].local)
            m->peer[r].life = rcclx_life_open(m->peer[r].pid);
    }
}

static rcclx_status member_open(member *m)
{
    const rcclx_windows_args a = {
        .gpu = m->gpu, .device = m->device[m->rank], .rank = m->rank, .nranks = m->n, .segment = &m->segment, .peer = m->peer,
        .key = m->key, .peer_device = m->device, .token = { m->p->token[0], m->p->token[1] }, .nbytes = WINDOW,
        .timeout = m->p->timeout, .aborted = &m->p->aborted, .host = m->p->host,
    };

    return rcclx_windows_open(&m->w, &a);
}

static rcclx_status member_move(member *m)
{
    const rcclx_windows_args a = { .peer = m->peer, .timeout = m->p->timeout, .aborted = &m->p->aborted };

    return rcclx_windows_to_host(m->w, &a);
}

static void member_fini(member *m)
{
    rcclx_windows_close(m->w);
    for (int r = 0; r < m->n; r++)
        rcclx_life_close(m->peer[r].life);
    rcclx_segment_unmap(&m->segment);
}

/* ---- ranks: processes of one or several threads */

typedef struct {
    place *p;
    int    first;
} group;

static int thread_main(int rank, int n, void *arg)
{
    const group *g = arg;

    (void)n;
    return g->p->main(g->first + rank, g->p->nranks, g->p);
}

static int process_main(int rank, int n, void *arg)
{
    place *p = arg;
    char   why[64];

    (void)n;
    if (p->threads == 1)
        return p->main(rank, p->nranks, p);
    rcclx_gpu_emu(why, sizeof why); /* its state stays */
    rcclx_life_close(rcclx_life_open(getpid()));
    const int fds = check_count_fds();
    group     g = { p, rank * p->threads };
    const int bad = run_ranks_as_threads(p->threads, thread_main, &g);
    CHECK(WAIT_FOR(check_count_fds() == fds, 5), "%d file descriptors before, %d after", fds, check_count_fds());
    return bad;
}

static void run(place *p)
{
    CHECK(run_ranks_as_processes(p->nranks / p->threads, process_main, p) == 0, "ranks failed");
    place_close(p);
}

static const struct {
    int ranks, threads;
} shapes[] = { { 1, 1 }, { 2, 1 }, { 4, 1 }, { 4, 4 }, { 4, 2 } };

#define SHAPES(i)                                                                                       \
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)                                       \
        CASE("%d processes of %d ranks", shapes[i].ranks / shapes[i].threads, shapes[i].threads)

/* Serve until cond holds. */
#define SERVE_UNTIL(m, cond)                                                                            \
    CHECK(WAIT_FOR((rcclx_windows_serve((m)->w), (cond)), 20), "rank %d: %s never came", (m)->rank, #cond)

/* Serve until all are here. */
static void meet_serving(member *m)
{
    place    *p = m->p;
    const int round = atomic_load(&p->round);

    if (atomic_fetch_add(&p->here, 1) == p->nranks - 1) {
        atomic_store(&p->here, 0);
        atomic_fetch_add(&p->round, 1);
    }
    SERVE_UNTIL(m, atomic_load(&p->round) != round);
}

static bool map_is_empty(const member *m)
{
    const uint64_t *map = rcclx_windows_map(m->w);
    int             i = 0;

    while (i < GP_RANKS * GP_REGS && !map[i])
        i++;
    return i == GP_RANKS * GP_REGS;
}

static void *alloc(const member *m, size_t nbytes)
{
    rcclx_gpu_scope s;
    void           *ptr = NULL;

    m->gpu->enter(&s, m->device[m->rank]);
    CHECK(m->gpu->alloc(&ptr, nbytes, false) == RCCLX_OK, "%s", rcclx_last_error());
    m->gpu->leave(&s);
    return ptr;
}

/* ---- windows */

/* Atomic, since a meeting with another process is nothing that a sanitizer sees. */
typedef _Atomic uint64_t word;

static word *window_of(const member *m, int r)
{
    return (word *)(void *)rcclx_windows_at(m->w, r);
}

/* As a test wants them; false: not at all. */
static bool windows_open(member *m)
{
    if (!CHECK(member_open(m) == RCCLX_OK, "rank %d: %s", m->rank, rcclx_last_error()))
        return false;
    if (m->p->moves) {
        CHECK(!rcclx_windows_whole(m->w) && *rcclx_windows_why(m->w), "whole");
        meet(m->p);
        if (!CHECK(member_move(m) == RCCLX_OK, "rank %d: %s", m->rank, rcclx_last_error()))
            return false;
    }
    CHECK(rcclx_windows_in_host(m->w) == (m->p->host || m->p->moves), "host memory");
    return true;
}

static int windows_main(int rank, int n, void *arg)
{
    member    m;
    const int fds = check_count_fds(), maps = check_count_maps();

    member_init(&m, arg, rank);
    if (!windows_open(&m))
        return 1;
    CHECK(rcclx_windows_whole(m.w) && !*rcclx_windows_why(m.w), "why: %s", rcclx_windows_why(m.w));
    word *mine = window_of(&m, rank);
    for (size_t i = 0; i < WINDOW / sizeof *mine; i++)
        if (!CHECK(mine[i] == 0, "word %zu is %#llx", i, (unsigned long long)mine[i]))
            break;
    CHECK(map_is_empty(&m), "entries in a fresh map");
    meet(m.p);
    for (int r = 0; r < n; r++) { /* a word of mine at everybody's, near both ends */
        CHECK(rcclx_windows_reach(m.w, r), "rank %d does not reach %d", rank, r);
        word *theirs = window_of(&m, r);
        theirs[rank] = 100 + (uint64_t)rank;
        theirs[WINDOW / sizeof *theirs - 1 - (size_t)rank] = 200 + (uint64_t)(rank * n + r);
    }
    meet(m.p);
    for (int r = 0; r < n; r++) {
        CHECK(mine[r] == 100 + (uint64_t)r, "rank %d: word of %d", rank, r);
        CHECK(mine[WINDOW / sizeof *mine - 1 - (size_t)r] == 200 + (uint64_t)(r * n + rank), "rank %d: last word of %d", rank, r);
    }
    if (rank == 0) { /* what is mapped stays, though its owner has closed */
        member_fini(&m);
        meet(m.p);
    } else {
        meet(m.p);
        CHECK(window_of(&m, 0)[rank] == 100 + (uint64_t)rank, "rank 0's window is gone");
        member_fini(&m);
    }
    meet(m.p);
    if (m.p->threads == 1) {
        CHECK(check_count_fds() == fds, "%d file descriptors before, %d after", fds, check_count_fds());
        CHECK(SANITIZED || WAIT_FOR(check_count_maps() <= maps + 8, 5), "%d maps before, %d after", maps, check_count_maps());
    }
    return 0;
}

TEST(windows_are_seen_by_all)
{
    SHAPES(i)
        run(place_open(shapes[i].ranks, shapes[i].threads, windows_main));
}

static place *in_host(int nranks, int threads, bool moves)
{
    place *p = place_open(nranks, threads, windows_main);

    p->host = !moves;
    p->moves = moves;
    return p;
}

TEST(windows_in_host_memory_are_seen_by_all)
{
    SHAPES(i)
        run(in_host(shapes[i].ranks, shapes[i].threads, false));
}

TEST(windows_move_to_host_memory_where_devices_do_not_reach_each_other)
{
    setenv("RCCLX_EMU_UNREACHABLE", "0-1,2-3", 1);
    rcclx_option_reload();
    SHAPES(i)
        if (shapes[i].ranks > 1)
            run(in_host(shapes[i].ranks, shapes[i].threads, true));
    unsetenv("RCCLX_EMU_UNREACHABLE");
    rcclx_option_reload();
}

static int unshared_main(int rank, int n, void *arg)
{
    member m;
    int    reg = -1;

    (void)n;
    member_init(&m, arg, rank);
    if (!windows_open(&m))
        return 1;
    void *buf = alloc(&m, 4096);
    CHECK(rcclx_windows_register(m.w, buf, 4096, &reg) == RCCLX_UNSUPPORTED && strstr(rcclx_last_error(), "host memory only"), "%s",
          rcclx_last_error());
    CHECK(!rcclx_windows_token(m.w, buf, 4096), "a token");
    meet(m.p);
    member_fini(&m);
    m.gpu->free(buf);
    return 0;
}

TEST(no_buffer_is_shared_through_host_memory)
{
    place *p = in_host(2, 1, false);

    p->main = unshared_main;
    run(p);
}

/* ---- buffers */

/* What rank r's token stands for here. */
static const uint64_t *resolve(const member *m, int r, uint64_t token)
{
    const uint64_t *map = rcclx_windows_map(m->w);
    const uint64_t  base = map[(uint64_t)r * GP_REGS + (token >> 48) - 1];

    return base ? (const uint64_t *)(uintptr_t)(base + (token & ((UINT64_C(1) << 48) - 1))) : NULL;
}

static int buffers_main(int rank, int n, void *arg)
{
    member m;
    int    reg = -1, again = -1, part = -1, last = -1;

    member_init(&m, arg, rank);
    if (!CHECK(member_open(&m) == RCCLX_OK, "rank %d: %s", rank, rcclx_last_error()))
        return 1;
    uint64_t *buf = alloc(&m, 1 << 16);
    for (int i = 0; i < 1 << 13; i++)
        buf[i] = (uint64_t)(rank * 100000 + i);
    CHECK(rcclx_windows_token(m.w, buf, 8) == 0, "a token before it is registered");
    CHECK(rcclx_windows_register(m.w, buf + 64, 1024, &reg) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(rcclx_windows_token(m.w, buf + 64, 8) == 0, "a token before anybody serves");
    CHECK(!rcclx_windows_settled(m.w, reg), "settled before anybody serves");
    struct pollfd f = { .fd = rcclx_windows_fd(m.w), .events = POLLIN };
    meet(m.p);
    CHECK(poll(&f, 1, 1000) == 1, "rank %d: nothing to serve", rank);
    SERVE_UNTIL(&m, rcclx_windows_settled(m.w, reg));
    const uint64_t token = rcclx_windows_token(m.w, buf + 65, 8);
    CHECK(token != 0, "no token");
    CHECK(rcclx_windows_token(m.w, buf + 64, 1024) + 8 == token, "tokens are not offsets");
    CHECK(!rcclx_windows_token(m.w, buf + 64, 1025) && !rcclx_windows_token(m.w, buf + 63, 8), "a token out of range");
    atomic_store(&m.p->note[rank], token);
    meet_serving(&m);
    for (int r = 0; r < n; r++) {
        const uint64_t *theirs = resolve(&m, r, atomic_load(&m.p->note[r]));
        CHECK(theirs && *theirs == (uint64_t)(r * 100000 + 65), "rank %d sees nothing of rank %d", rank, r);
    }
    CHECK(rcclx_windows_register(m.w, buf + 64, 1024, &again) == RCCLX_OK && again == reg, "%d, not %d", again, reg);
    CHECK(rcclx_windows_register(m.w, buf, 4096, &part) == RCCLX_OK && part != reg, "the same number for another range");
    CHECK(rcclx_windows_token(m.w, buf, 4096) >> 48 == token >> 48, "the allocation is mapped twice");
    CHECK(rcclx_windows_register(m.w, buf + 1024, 64, &last) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(rcclx_windows_token(m.w, buf + 1024, 64) != 0, "no token for the last of three");
    CHECK(rcclx_windows_token(m.w, buf + 256, 8) == token + (256 - 65) * 8, "not found in the range that begins before another");
    CHECK(!rcclx_windows_token(m.w, buf + 512, 8) && !rcclx_windows_token(m.w, buf + 1023, 16), "a token between ranges");
    CHECK(rcclx_windows_deregister(m.w, last) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(rcclx_windows_deregister(m.w, reg) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(rcclx_windows_token(m.w, buf + 65, 8) == token, "gone after one of two");
    CHECK(rcclx_windows_deregister(m.w, part) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(!rcclx_windows_token(m.w, buf, 8), "a token after deregister");
    meet_serving(&m);
    CHECK(rcclx_windows_deregister(m.w, reg) == RCCLX_OK && !rcclx_windows_token(m.w, buf + 65, 8), "a token after deregister");
    CHECK(rcclx_windows_deregister(m.w, reg) == RCCLX_ARGUMENT, "deregistered twice");
    for (int r = 0; r < n; r++)
        SERVE_UNTIL(&m, !resolve(&m, r, atomic_load(&m.p->note[r])));
    meet_serving(&m);
    member_fini(&m);
    m.gpu->free(buf);
    return 0;
}

TEST(a_token_comes_when_all_have_mapped)
{
    SHAPES(i)
        run(place_open(shapes[i].ranks, shapes[i].threads, buffers_main));
}

/* ---- many, with memory that comes and goes */

enum { BUFFERS = 2000, AT_A_TIME = 24 };

static int many_main(int rank, int n, void *arg)
{
    member    m;
    uint64_t *buf[AT_A_TIME] = { NULL };
    int       reg[AT_A_TIME], fds = 0, maps = 0, blocks = 0;

    (void)n;
    member_init(&m, arg, rank);
    if (!CHECK(member_open(&m) == RCCLX_OK, "rank %d: %s", rank, rcclx_last_error()))
        return 1;
    for (int i = 0; i < BUFFERS + AT_A_TIME; i++) {
        const int at = i % AT_A_TIME;
        if (buf[at]) {
            SERVE_UNTIL(&m, rcclx_windows_settled(m.w, reg[at]));
            CHECK(rcclx_windows_token(m.w, buf[at], 4096) != 0, "rank %d, buffer %d: no token", rank, i);
            CHECK(rcclx_windows_deregister(m.w, reg[at]) == RCCLX_OK, "%s", rcclx_last_error());
            m.gpu->free(buf[at]);
            buf[at] = NULL;
        }
        if (i == 5 * AT_A_TIME) { /* rests of the first rounds: sockets' and threads' */
            fds = check_count_fds();
            maps = check_count_maps();
            blocks = (int)rcclx_mem_held();
        }
        if (i >= BUFFERS)
            continue;
        buf[at] = alloc(&m, 4096 + 4096 * (size_t)(i % 3));
        if (!CHECK(rcclx_windows_register(m.w, buf[at], 4096, &reg[at]) == RCCLX_OK, "buffer %d: %s", i, rcclx_last_error()))
            return 1;
    }
    meet_serving(&m);
    SERVE_UNTIL(&m, map_is_empty(&m)); /* what did not fit comes a little later */
    meet_serving(&m);
    if (m.p->threads == 1) {
        CHECK(check_count_fds() <= fds, "%d file descriptors early, %d late", fds, check_count_fds());
        CHECK(SANITIZED || check_count_maps() <= maps + 16, "%d maps early, %d late", maps, check_count_maps());
        CHECK((int)rcclx_mem_held() <= blocks, "%d blocks early, %d late", blocks, (int)rcclx_mem_held());
    }
    member_fini(&m);
    return 0;
}

TEST(two_thousand_buffers_leave_nothing)
{
    run(place_open(2, 1, many_main));
    run(place_open(4, 2, many_main));
}

/* ---- nobody serves for a while */

enum { PENDING = 200 };

/* The peers serve when they are told to, until rank 0 has what it wants. */
static void peers_serve(member *m)
{
    struct pollfd f = { .fd = rcclx_windows_fd(m->w), .events = POLLIN };

    while (!atomic_load(&m->p->note[0])) {
        poll(&f, 1, 200);
        CHECK(rcclx_windows_serve(m->w) == RCCLX_OK, "%s", rcclx_last_error());
    }
}

static void many_at_once(member *m, void **buf)
{
    struct pollfd f = { .fd = rcclx_windows_fd(m->w), .events = POLLIN };
    int           reg[PENDING], naps = 0;
    const int     fds = check_count_fds();
    const double  began = check_now();

    for (int i = 0; i < PENDING; i++) {
        buf[i] = alloc(m, 4096);
        CHECK(rcclx_windows_register(m->w, buf[i], 4096, &reg[i]) == RCCLX_OK, "%s", rcclx_last_error());
    }
    CHECK(rcclx_windows_deregister(m->w, reg[PENDING - 1]) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(check_now() - began < 5 * check_scale(), "register waited");
    CHECK(check_count_fds() == fds + PENDING, "letters that wait hold %d file descriptors", check_count_fds() - fds - PENDING);
    meet(m->p);
    for (int i = 0; i < PENDING - 1; i++)
        while (!rcclx_windows_settled(m->w, reg[i]) && naps < 3) { /* woken when there is room, not left to find out */
            naps += poll(&f, 1, (int)(2000 * check_scale())) == 0;
            CHECK(rcclx_windows_serve(m->w) == RCCLX_OK, "%s", rcclx_last_error());
        }
    CHECK(naps < 3, "nobody says that there is room");
    for (int i = 0; i < PENDING - 1 && naps < 3; i++)
        CHECK(rcclx_windows_token(m->w, buf[i], 4096) != 0, "no token for %d", i);
    atomic_store(&m->p->note[0], 1);
}

static int pending_main(int rank, int n, void *arg)
{
    member m;
    void  *buf[PENDING] = { NULL };

    (void)n;
    member_init(&m, arg, rank);
    const int fds = check_count_fds();
    if (!CHECK(member_open(&m) == RCCLX_OK, "rank %d: %s", rank, rcclx_last_error()))
        return 1;
    if (rank == 0) {
        many_at_once(&m, buf);
    } else {
        meet(m.p);
        peers_serve(&m);
    }
    meet_serving(&m);
    rcclx_windows_close(m.w); /* all of it still registered and mapped */
    m.w = NULL;
    for (int i = 0; i < PENDING; i++)
        m.gpu->free(buf[i]);
    CHECK(check_count_fds() == fds, "rank %d: %d file descriptors before, %d after", rank, fds, check_count_fds());
    member_fini(&m);
    return 0;
}

TEST(what_does_not_fit_in_a_socket_is_sent_later)
{
    run(place_open(2, 1, pending_main));
    run(place_open(4, 1, pending_main));
}

/* ---- out of reach */

static int apart_main(int rank, int n, void *arg)
{
    member m;
    int    reg;

    member_init(&m, arg, rank);
    if (!CHECK(member_open(&m) == RCCLX_OK, "rank %d: %s", rank, rcclx_last_error()))
        return 1;
    for (int r = 0; r < n; r++) {
        const bool apart = (r == 0 && rank == 1) || (r == 1 && rank == 0);
        CHECK(rcclx_windows_reach(m.w, r) == !apart, "rank %d, %d", rank, r);
        CHECK(!rcclx_windows_at(m.w, r) == apart, "rank %d, %d", rank, r);
    }
    CHECK(!rcclx_windows_whole(m.w), "whole");
    CHECK(strstr(rcclx_windows_why(m.w), "rank 0 of") && strstr(rcclx_windows_why(m.w), "memory of rank 1"), "%s",
          rcclx_windows_why(m.w));
    void *buf = alloc(&m, 4096);
    CHECK(rcclx_windows_register(m.w, buf, 4096, &reg) == RCCLX_OK, "%s", rcclx_last_error());
    SERVE_UNTIL(&m, rcclx_windows_settled(m.w, reg));
    CHECK(!rcclx_windows_token(m.w, buf, 4096) == (rank < 2), "rank %d: token", rank);
    meet_serving(&m);
    member_fini(&m);
    m.gpu->free(buf);
    return 0;
}

TEST(out_of_reach_is_told_to_all)
{
    setenv("RCCLX_EMU_UNREACHABLE", "0-1", 1);
    rcclx_option_reload();
    CASE("processes")
        run(place_open(4, 1, apart_main));
    CASE("threads")
        run(place_open(4, 4, apart_main));
    unsetenv("RCCLX_EMU_UNREACHABLE");
    rcclx_option_reload();
}

/* ---- ranks that do not come */

static int ends_main(int rank, int n, void *arg)
{
    member m;

    (void)n;
    member_init(&m, arg, rank);
    meet(m.p);
    if (rank == 2)
        _exit(0);
    CHECK(member_open(&m) == RCCLX_PEER_LOST, "rank %d: it opened", rank);
    const char *said = rcclx_last_error();
    CHECK(strstr(said, "rank 2 (pid ") || strstr(said, "could not share"), "rank %d: %s", rank, said);
    CHECK(m.w == NULL, "a rest");
    member_fini(&m);
    return 0;
}

static int late_main(int rank, int n, void *arg)
{
    member       m;
    const double began = check_now();

    member_init(&m, arg, rank);
    if (rank != n - 1) {
        const rcclx_status s = member_open(&m);
        CHECK(s == RCCLX_TIMEOUT || s == RCCLX_PEER_LOST, "rank %d: %s", rank, rcclx_status_name(s));
        CHECK(strstr(rcclx_last_error(), "rank 3 (pid "), "rank %d: %s", rank, rcclx_last_error());
        CHECK(check_now() - began < 10 * check_scale(), "rank %d: after %g s", rank, check_now() - began);
    }
    meet(m.p);
    member_fini(&m);
    return 0;
}

static int aborted_main(int rank, int n, void *arg)
{
    member m;

    (void)n;
    member_init(&m, arg, rank);
    if (rank == 0) {
        usleep(100000);
        atomic_store(&m.p->aborted, 1);
    } else {
        CHECK(member_open(&m) != RCCLX_OK, "it opened");
    }
    meet(m.p);
    member_fini(&m);
    return 0;
}

TEST(who_does_not_come_is_named)
{
    CASE("a rank ends")
        run(place_open(4, 1, ends_main));
    CASE("a rank is late") {
        place *p = place_open(4, 1, late_main);
        p->timeout = 1 * check_scale();
        run(p);
    }
    CASE("a rank of this process is late") {
        place *p = place_open(4, 4, late_main);
        p->timeout = 1 * check_scale();
        run(p);
    }
    CASE("abort")
        run(place_open(2, 1, aborted_main));
}

/* ---- strangers */

/* All sockets with our prefix: whoever may read /proc/net/unix may write to them. */
static int write_to_all(const void *data, size_t nbytes, int fd)
{
    FILE *f = fopen("/proc/net/unix", "r");
    char  line[512];
    int   n = 0, from = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    while (f && fgets(line, sizeof line, f)) {
        char *name = strstr(line, "@rcclx-");
        if (!name || !strchr(name + 7, '-'))
            continue;
        struct sockaddr_un a = { .sun_family = AF_UNIX };
        name[strcspn(name, "\n")] = 0;
        memcpy(a.sun_path + 1, name + 1, strlen(name + 1));
        union {
            struct cmsghdr h;
            char           room[CMSG_SPACE(2 * sizeof(int))];
        } c = { .h = { .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(2 * sizeof(int)) } };
        memcpy(CMSG_DATA(&c.h), (int[]){ fd, fd }, 2 * sizeof(int));
        struct iovec  part = { (void *)(uintptr_t)data, nbytes };
        struct msghdr m = { .msg_name = &a, .msg_namelen = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name)),
                            .msg_iov = &part, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c };
        n += sendmsg(from, &m, MSG_DONTWAIT) == (ssize_t)nbytes;
    }
    if (f)
        fclose(f);
    close(from);
    return n;
}

/* As a rank would write it, by somebody who has seen the name only. */
static int forge(const member *m, rcclx_letter_kind kind)
{
    rcclx_letter l = { .magic = RCCLX_LETTER_MAGIC, .token = { m->p->token[0], m->p->token[1] ^ 1 }, .from = 1, .kind = kind,
                       .generation = 1, .way = RCCLX_WAY_FD, .nbytes = 4096 };

    return write_to_all(&l, sizeof l, m->p->fd);
}

static bool name_tells_token(const place *p)
{
    FILE *f = fopen("/proc/net/unix", "r");
    char  line[512], token[2][20];
    bool  tells = false;

    for (int i = 0; i < 2; i++)
        snprintf(token[i], sizeof token[i], "%016llx", (unsigned long long)p->token[i]);
    while (f && fgets(line, sizeof line, f))
        tells |= strstr(line, token[0]) || strstr(line, token[1]);
    if (f)
        fclose(f);
    return tells;
}

static void annoy(const member *m)
{
    unsigned char junk[512];
    int           sent = 0;

    CHECK(!name_tells_token(m->p), "the socket's name tells the token");
    for (rcclx_letter_kind k = RCCLX_LETTER_WINDOW; k <= RCCLX_LETTER_ROOM; k++)
        sent += forge(m, k);
    for (size_t i = 0; i < sizeof junk; i++)
        junk[i] = (unsigned char)(i * 7);
    for (size_t size = 1; size <= sizeof junk; size += size < 8 ? 1 : 31)
        sent += write_to_all(junk, size, m->p->fd);
    CHECK(sent >= 4 * m->n, "strangers wrote %d letters", sent);
}

static int strangers_main(int rank, int n, void *arg)
{
    member m;
    int    reg;

    (void)n;
    member_init(&m, arg, rank);
    if (!CHECK(member_open(&m) == RCCLX_OK, "rank %d: %s", rank, rcclx_last_error()))
        return 1;
    meet(m.p);
    const int fds = check_count_fds();
    if (rank == 0)
        annoy(&m);
    meet(m.p);
    for (int i = 0; i < 20; i++)
        CHECK(rcclx_windows_serve(m.w) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(check_count_fds() == fds, "strangers' files: %d", check_count_fds() - fds);
    CHECK(map_is_empty(&m), "strangers' entries");
    meet(m.p);
    void *buf = alloc(&m, 4096);
    CHECK(rcclx_windows_register(m.w, buf, 4096, &reg) == RCCLX_OK, "%s", rcclx_last_error());
    SERVE_UNTIL(&m, rcclx_windows_token(m.w, buf, 4096) != 0);
    meet_serving(&m);
    member_fini(&m);
    m.gpu->free(buf);
    return 0;
}

TEST(strangers_letters_do_nothing)
{
    run(place_open(2, 1, strangers_main));
}

/* ---- refusals, and memory freed too early */

static int refuse_main(int rank, int n, void *arg)
{
    member m;
    int    reg, second;
    void  *pinned = NULL, *elsewhere = NULL;
    char   host[64];

    (void)n;
    member_init(&m, arg, rank);
    if (!CHECK(member_open(&m) == RCCLX_OK, "rank %d: %s", rank, rcclx_last_error()))
        return 1;
    char *buf = alloc(&m, 65536);
    CHECK(rcclx_windows_register(m.w, host, sizeof host, &reg) == RCCLX_ARGUMENT, "host memory");
    CHECK(strstr(rcclx_last_error(), "host memory"), "%s", rcclx_last_error());
    CHECK(m.gpu->alloc_host(&pinned, 4096) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(rcclx_windows_register(m.w, pinned, 64, &reg) == RCCLX_ARGUMENT, "pinned memory");
    rcclx_gpu_scope s;
    m.gpu->enter(&s, 5);
    CHECK(m.gpu->alloc(&elsewhere, 4096, false) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(rcclx_windows_register(m.w, elsewhere, 4096, &reg) == RCCLX_ARGUMENT, "memory of device 5");
    CHECK(strstr(rcclx_last_error(), "device 5"), "%s", rcclx_last_error());
    m.gpu->free(elsewhere);
    m.gpu->leave(&s);
    CHECK(rcclx_windows_register(m.w, buf + 65536 - 64, 65, &reg) == RCCLX_UNSUPPORTED, "beyond the end");
    CHECK(rcclx_windows_register(m.w, buf, 0, &reg) == RCCLX_ARGUMENT, "no bytes");
    CHECK(rcclx_windows_register(m.w, NULL, 8, &reg) == RCCLX_ARGUMENT, "NULL");
    CHECK(rcclx_windows_deregister(m.w, 12345) == RCCLX_ARGUMENT, "no such registration");
    CHECK(rcclx_windows_register(m.w, buf, 65536, &reg) == RCCLX_OK, "%s", rcclx_last_error());
    SERVE_UNTIL(&m, rcclx_windows_token(m.w, buf, 8) != 0);
    const uint64_t old = rcclx_windows_token(m.w, buf, 8);
    meet_serving(&m);
    m.gpu->free(buf); /* without deregister; the next allocation lies there */
    char *next = alloc(&m, 65536);
    if (next == buf) {
        next[0] = (char)(rank + 1);
        CHECK(rcclx_windows_register(m.w, next, 65536, &second) == RCCLX_OK && second != reg, "%s", rcclx_last_error());
        CHECK(rcclx_windows_token(m.w, next, 8) == 0, "the old memory's token");
        SERVE_UNTIL(&m, rcclx_windows_token(m.w, next, 8) != 0);
        CHECK(rcclx_windows_token(m.w, next, 8) != old, "the old memory's token");
    } else {
        check_say("# the freed address was not used again\n");
    }
    meet_serving(&m);
    member_fini(&m);
    m.gpu->free(next);
    m.gpu->free_host(pinned);
    return 0;
}

TEST(what_cannot_be_registered_is_refused)
{
    run(place_open(2, 1, refuse_main));
}

/* A stream is being captured meanwhile: the emulator fails what a driver would refuse then. */
static int capture_main(int rank, int n, void *arg)
{
    member           m;
    int              reg;
    rcclx_gpu_stream s;
    rcclx_gpu_graph  g = NULL;
    rcclx_gpu_scope  scope;

    (void)n;
    member_init(&m, arg, rank);
    if (!CHECK(member_open(&m) == RCCLX_OK, "rank %d: %s", rank, rcclx_last_error()))
        return 1;
    void *buf = alloc(&m, 4096);
    m.gpu->enter(&scope, m.device[rank]);
    CHECK(m.gpu->stream_create(&s) == RCCLX_OK && m.gpu->capture_begin(s) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(rcclx_windows_register(m.w, buf, 4096, &reg) == RCCLX_OK, "%s", rcclx_last_error());
    SERVE_UNTIL(&m, rcclx_windows_token(m.w, buf, 8) != 0);
    meet_serving(&m);
    CHECK(rcclx_windows_deregister(m.w, reg) == RCCLX_OK, "%s", rcclx_last_error());
    meet_serving(&m);
    meet_serving(&m);
    CHECK(m.gpu->capture_end(s, &g) == RCCLX_OK, "%s", rcclx_last_error());
    if (g)
        m.gpu->graph_destroy(g);
    m.gpu->stream_destroy(s);
    m.gpu->leave(&scope);
    member_fini(&m);
    m.gpu->free(buf);
    return 0;
}

TEST(a_capture_is_not_disturbed)
{
    run(place_open(2, 1, capture_main));
}

/* ---- threads of a rank at the same time */

typedef struct {
    member    *m;
    char      *buf;
    atomic_int stop;
} busy;

static void *serves(void *arg)
{
    busy         *b = arg;
    struct pollfd f = { .fd = rcclx_windows_fd(b->m->w), .events = POLLIN };

    while (!atomic_load(&b->stop)) {
        poll(&f, 1, 2);
        CHECK(rcclx_windows_serve(b->m->w) == RCCLX_OK, "%s", rcclx_last_error());
    }
    return NULL;
}

static void *registers(void *arg)
{
    busy *b = arg;
    int   reg;

    for (int i = 0; i < 150; i++) {
        char *at = b->buf + 4096 * (size_t)(i % 4);
        if (!CHECK(rcclx_windows_register(b->m->w, at, 4096, &reg) == RCCLX_OK, "%s", rcclx_last_error()))
            break;
        CHECK(WAIT_FOR(rcclx_windows_settled(b->m->w, reg), 20), "never settled");
        CHECK(rcclx_windows_token(b->m->w, at, 4096) != 0, "no token");
        rcclx_windows_deregister(b->m->w, reg);
    }
    return NULL;
}

static int busy_main(int rank, int n, void *arg)
{
    member    m;
    pthread_t t[3];

    (void)n;
    member_init(&m, arg, rank);
    if (!CHECK(member_open(&m) == RCCLX_OK, "rank %d: %s", rank, rcclx_last_error()))
        return 1;
    busy b = { .m = &m, .buf = alloc(&m, 65536) }, other = { .m = &m, .buf = alloc(&m, 65536) };
    pthread_create(&t[0], NULL, serves, &b);
    pthread_create(&t[1], NULL, registers, &b);
    pthread_create(&t[2], NULL, registers, &other);
    for (int i = 0; i < 5000; i++)
        rcclx_windows_token(m.w, b.buf, 8);
    pthread_join(t[1], NULL);
    pthread_join(t[2], NULL);
    meet(m.p);
    atomic_store(&b.stop, 1);
    pthread_join(t[0], NULL);
    member_fini(&m);
    m.gpu->free(b.buf);
    m.gpu->free(other.buf);
    return 0;
}

TEST(threads_of_a_rank_at_the_same_time)
{
    CASE("processes")
        run(place_open(2, 1, busy_main));
    CASE("threads")
        run(place_open(4, 4, busy_main));
}
