/* A19: what a communicator costs, and that it gives all of it back: file handles,
 * threads, maps and bytes are the same after many rounds of create, use and
 * destroy as after a few, also when init fails half-way. The budget:
 *
 *   a rank of eight, made and not yet used         8 MiB
 *   after every operation at every size           64 MiB
 *   init of eight local ranks                     50 ms on an idle machine
 *
 * Counts are scaled to the time of a test run; RCCLX_TEST_LONG=1 asks for all. */
#include "check.h"

#include "base/option.h"
#include "world.h"

#include <malloc.h>
#include <sys/resource.h>

TIME_LIMIT(600)

enum { MIB = 1 << 20, MOST = 8 };

/* A machine shared with others is slow at times: what is asserted is ten times the rule. */
enum { INIT_MS = 50, INIT_SLACK = 10 };

typedef struct {
    int  fds, threads, maps;
    long rss, space; /* KiB: resident, address space */
} held;

/* Sanitizers keep freed memory for a while: bytes mean nothing there. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { BYTES_COUNT = false };
#else
enum { BYTES_COUNT = true };
#endif

/* One heap for all threads, so that address space does not depend on who met whom. */
__attribute__((constructor)) static void one_heap(void)
{
    mallopt(M_ARENA_MAX, 1);
}

static long rollup(const char *name)
{
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    char  line[256];
    long  kib = -1;

    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, name, strlen(name)))
            kib = strtol(line + strlen(name), NULL, 10);
    if (f)
        fclose(f);
    return kib;
}

static long address_space(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long  pages = -1;

    if (f && fscanf(f, "%ld", &pages) != 1)
        pages = -1;
    if (f)
        fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static held look(void)
{
    return (held){ check_count_fds(), check_count_threads(), check_count_maps(), rollup("Rss:"), address_space() };
}

/* What has just ended is seen for a moment: look until nothing changes. */
static held settled(void)
{
    held now = look();

    for (int same_looks = 0, looks = 0; same_looks < 5 && looks < 300; looks++) {
        usleep(10000);
        const held next = look();
        same_looks = next.fds == now.fds && next.threads == now.threads && next.maps == now.maps ? same_looks + 1 : 0;
        now = next;
    }
    return now;
}

/* Threads that have just ended may be seen for a moment, and so may what they hold. */
static void same(held before, const char *what, long growth)
{
    held now = look();

    (void)WAIT_FOR((now = look(), now.fds == before.fds && now.threads == before.threads && now.maps <= before.maps), 3);
    CHECK(now.fds == before.fds, "%s: %d file handles, %d before", what, now.fds, before.fds);
    CHECK(now.threads == before.threads, "%s: %d threads, %d before", what, now.threads, before.threads);
    CHECK(now.maps <= before.maps + 2, "%s: %d maps, %d before", what, now.maps, before.maps);
    CHECK(!BYTES_COUNT || now.rss - before.rss < growth, "%s: %ld KiB resident, %ld before", what, now.rss, before.rss);
    CHECK(!BYTES_COUNT || now.space - before.space < 64 << 10, "%s: %ld KiB of addresses, %ld before", what, now.space, before.space);
    check_say("# %s: %d handles, %d threads, %d maps, %ld KiB (%+ld)\n", what, now.fds, now.threads, now.maps, now.rss,
              now.rss - before.rss);
}

/* ---- create, use, destroy */

typedef struct {
    world *w;
    int    nrounds, warm;
    bool   measure_here; /* in the ranks; else around them all */
} plan;

/* Meetings go by turns of the slots; the last in line clears the one behind. */
static ncclComm_t turn(world *w, int round, int rank, int n)
{
    const int    slot = round % WORLD_SLOTS;
    ncclComm_t   c = NULL;
    ncclUniqueId id;

    id = world_id(w, slot, rank);
    const ncclResult_t r = ncclCommInitRank(&c, n, id, rank);
    if (rank == 0)
        atomic_store(&w->slot[(round + WORLD_SLOTS / 2) % WORLD_SLOTS].here, 0);
    return CHECK(r == ncclSuccess, "round %d, rank %d: %s", round, rank, ncclGetLastError(NULL)) ? c : NULL;
}

static bool use(ncclComm_t c, int rank, int n, int round)
{
    float in[700], out[700], got = -1;

    bool good = world_reduce(c, rank, n, round, in, out, 3) == ncclSuccess && world_reduce(c, rank, n, round, in, out, 700) == ncclSuccess;
    good = good && ncclGroupStart() == ncclSuccess && ncclSend(&in[0], 1, ncclFloat, (rank + 1) % n, c, NULL) == ncclSuccess &&
           ncclRecv(&got, 1, ncclFloat, (rank + n - 1) % n, c, NULL) == ncclSuccess && ncclGroupEnd() == ncclSuccess;
    return CHECK(good && got == world_value((rank + n - 1) % n, round), "round %d, rank %d: %s", round, rank, ncclGetLastError(NULL));
}

static int rounds_main(int rank, int n, void *arg)
{
    const plan *p = arg;
    held        before = { 0 };

    for (int round = 0; round < p->nrounds; round++) {
        if (p->measure_here && round == p->warm) {
            world_meet(p->w, n);
            before = settled();
        }
        ncclComm_t c = turn(p->w, round, rank, n);
        if (!c || !use(c, rank, n, round))
            return 1;
        if (round % 8 == 7)
            world_meet(p->w, n); /* an abort would end what others are still in */
        if (!CHECK((round % 8 == 7 ? ncclCommAbort(c) : ncclCommDestroy(c)) == ncclSuccess, "%s", ncclGetLastError(NULL)))
            return 1;
    }
    if (p->measure_here) {
        char what[64];
        world_meet(p->w, n);
        snprintf(what, sizeof what, "rank %d after %d rounds", rank, p->nrounds);
        same(before, what, 2048);
    }
    return 0;
}

static void rounds_of_threads(int n, int nrounds)
{
    plan p = { world_open(), 100, 0, false };
    char what[64];

    REQUIRE(run_ranks_as_threads(n, rounds_main, &p) == 0, "threads failed");
    usleep(100000);
    const held before = settled();
    for (int done = 0; done < nrounds; done += 250) {
        memset(p.w, 0, sizeof *p.w);
        p.nrounds = 250;
        REQUIRE(run_ranks_as_threads(n, rounds_main, &p) == 0, "threads failed");
    }
    snprintf(what, sizeof what, "%d threads after %d rounds more", n, nrounds);
    same(before, what, 2048);
    CHECK(ncclCommDestroy(NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
    world_close(p.w);
}

TEST(rounds_as_threads)
{
    rounds_of_threads(2, world_long() ? 10000 : 2000);
    rounds_of_threads(8, world_long() ? 2000 : 250);
}

TEST(rounds_as_processes)
{
    plan p = { world_open(), world_long() ? 2000 : 300, 100, true };
    CHECK(run_ranks_as_processes(2, rounds_main, &p) == 0, "ranks failed");
    world_close(p.w);
    p = (plan){ world_open(), world_long() ? 1000 : 60, 20, true };
    CHECK(run_ranks_as_processes(8, rounds_main, &p) == 0, "ranks failed");
    world_close(p.w);
}

/* ---- init that fails half-way */

typedef enum { TOO_FEW_COME, RANKS_TWICE, SIZES_DIFFER, ABORTED, WRONG_ID, NFAILURES } failure;

static const char *const failure_names[] = { "a rank does not come", "a rank comes twice", "sizes differ", "aborted meanwhile",
                                             "an id that nobody serves" };

typedef struct {
    failure      failure;
    ncclUniqueId id;
} attempt;

static int attempt_main(int rank, int n, void *arg)
{
    attempt     *a = arg;
    ncclComm_t   c = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t r;

    switch (a->failure) {
    case TOO_FEW_COME:
        r = ncclCommInitRank(&c, n + 1, a->id, rank);
        break;
    case RANKS_TWICE:
        r = ncclCommInitRank(&c, n + 1, a->id, rank / 2);
        break;
    case SIZES_DIFFER:
        r = ncclCommInitRank(&c, n + 1 + rank % 2, a->id, rank);
        break;
    case ABORTED:
        config.blocking = 0;
        r = ncclCommInitRankConfig(&c, n + 1, a->id, rank, &config);
        CHECK(r == ncclInProgress, "%d", (int)r);
        usleep(2000);
        CHECK(ncclCommAbort(c) == ncclSuccess, "%s", ncclGetLastError(NULL));
        return 0;
    default:
        memset(a->id.internal, 0x5a, 64);
        r = ncclCommInitRank(&c, n, a->id, rank);
    }
    CHECK(r != ncclSuccess && !c, "%s: init is a success", failure_names[a->failure]);
    CHECK(*ncclGetLastError(NULL), "%s: no text", failure_names[a->failure]);
    return 0;
}

TEST(rounds_where_init_fails)
{
    setenv("RCCLX_INIT_TIMEOUT", "0.1", 1);
    rcclx_option_reload();
    for (int warm = 1; warm >= 0; warm--) {
        (void)WAIT_FOR(check_count_threads() == 1, 5); /* who waits for ranks that never come is a thread */
        const held before = settled();
        for (int round = 0; round < (warm ? 20 : world_long() ? 200 : 100); round++) {
            attempt a = { .failure = (failure)(round % NFAILURES) };
            REQUIRE(ncclGetUniqueId(&a.id) == ncclSuccess, "%s", ncclGetLastError(NULL));
            REQUIRE(run_ranks_as_threads(3, attempt_main, &a) == 0, "%s: threads failed", failure_names[a.failure]);
        }
        if (!warm)
            same(before, "rounds where init fails", 2048);
    }
    unsetenv("RCCLX_INIT_TIMEOUT");
    rcclx_option_reload();
}

/* ---- very many operations */

static int many_main(int rank, int n, void *arg)
{
    world       *w = arg;
    ncclComm_t   c = world_comm(w, 0, rank, n);
    const long   ncalls = world_long() ? 1000000 : 300000;
    cudaStream_t s = NULL;
    held         before = { 0 };
    float        in[4], out[4];

    if (!c || rcclxStreamCreate(&s) != ncclSuccess)
        return 1;
    for (long call = 0; call < ncalls; call++) {
        if (call == ncalls / 20)
            before = settled();
        if (world_reduce(c, rank, n, call, in, out, 1 + (size_t)call % 4) != ncclSuccess)
            return 1;
        if (call % 100 == 0)
            ncclAllReduce(in, out, 4, ncclFloat, ncclSum, c, s);
        if (call % 100 == 0 && rcclxStreamSynchronize(s) != ncclSuccess)
            return 1;
    }
    same(before, rank ? "rank 1 after very many operations" : "rank 0 after very many operations", 1024);
    rcclxStreamDestroy(s);
    CHECK(ncclCommDestroy(c) == ncclSuccess, "%s", ncclGetLastError(NULL));
    return 0;
}

TEST(very_many_operations)
{
    world *w = world_open();
    CHECK(run_ranks_as_processes(2, many_main, w) == 0, "ranks failed");
    world_close(w);
}

TEST(streams_memory_and_operators_come_and_go)
{
    ncclComm_t c;
    held       before = { 0 };

    REQUIRE(ncclCommInitAll(&c, 1, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
    for (int i = 0; i < 2000; i++) {
        cudaStream_t s;
        ncclRedOp_t  op;
        float        x = 2, y = 0;
        void        *p, *q, *reg;
        if (i == 100)
            before = settled();
        REQUIRE(rcclxStreamCreate(&s) == ncclSuccess && ncclMemAlloc(&p, 100000) == ncclSuccess && ncclMemAlloc(&q, 10) == ncclSuccess,
                "%s", ncclGetLastError(NULL));
        REQUIRE(ncclRedOpCreatePreMulSum(&op, &x, ncclFloat, ncclScalarHostImmediate, c) == ncclSuccess &&
                ncclCommRegister(c, p, 100000, &reg) == ncclSuccess, "%s", ncclGetLastError(NULL));
        REQUIRE(ncclAllReduce(&x, &y, 1, ncclFloat, op, c, s) == ncclSuccess, "%s", ncclGetLastError(NULL));
        REQUIRE(rcclxStreamSynchronize(s) == ncclSuccess && y == 4, "%s, %g", ncclGetLastError(NULL), (double)y);
        REQUIRE(ncclCommDeregister(c, reg) == ncclSuccess && ncclRedOpDestroy(op, c) == ncclSuccess, "%s", ncclGetLastError(NULL));
        REQUIRE(rcclxStreamDestroy(s) == ncclSuccess && ncclMemFree(p) == ncclSuccess && ncclMemFree(q) == ncclSuccess, "%s",
                ncclGetLastError(NULL));
    }
    same(before, "streams, memory, operators", 1024);
    CHECK(ncclCommDestroy(c) == ncclSuccess, "%s", ncclGetLastError(NULL));
}

/* ---- what one costs */

static double slowest(const world *w, int first, int n)
{
    double most = 0;

    for (int r = 0; r < n; r++)
        if (atomic_load(&w->note[first + r]) > most)
            most = atomic_load(&w->note[first + r]);
    return most;
}

static double sum_of(const world *w, int first, int n)
{
    double sum = 0;

    for (int r = 0; r < n; r++)
        sum += atomic_load(&w->note[first + r]);
    return sum;
}

/* Shared pages count once, divided among those who map them (Pss). Buffers do not count. */
static void sweep(ncclComm_t c, int rank, int n)
{
    static float in[MOST << 17], out[MOST << 17]; /* 512 KiB a rank */

    memset(in, 0, sizeof in);
    memset(out, 0, sizeof out);
    atomic_signal_fence(memory_order_seq_cst);
    for (size_t count = 1; count <= 1 << 17; count *= 2) {
        bool good = true;
        for (int root = 0; root < n; root++) {
            good &= ncclBroadcast(in, out, count, ncclFloat, root, c, NULL) == ncclSuccess;
            good &= ncclReduce(in, out, count, ncclFloat, ncclSum, root, c, NULL) == ncclSuccess;
            good &= ncclGather(in, out, count, ncclFloat, root, c, NULL) == ncclSuccess;
            good &= ncclScatter(in, out, count, ncclFloat, root, c, NULL) == ncclSuccess;
        }
        good &= ncclAllReduce(in, out, count, ncclFloat, ncclSum, c, NULL) == ncclSuccess;
        good &= ncclAllGather(in, out, count, ncclFloat, c, NULL) == ncclSuccess;
        good &= ncclReduceScatter(in, out, count, ncclFloat, ncclSum, c, NULL) == ncclSuccess;
        good &= ncclAlltoAll(in, out, count, ncclFloat, c, NULL) == ncclSuccess;
        ncclGroupStart();
        for (int r = 0; r < n; r++) {
            ncclSend(in + (size_t)r * count, count, ncclFloat, r, c, NULL);
            ncclRecv(out + (size_t)r * count, count, ncclFloat, r, c, NULL);
        }
        good &= ncclGroupEnd() == ncclSuccess;
        if (!CHECK(good, "rank %d, %zu elements: %s", rank, count, ncclGetLastError(c)))
            return;
    }
}

enum { FRESH = 0, SWEPT = 8, STATED = 16, REPORTED = 24 };

static int cost_main(int rank, int n, void *arg)
{
    world      *w = arg;
    ncclComm_t  c;
    uint64_t    bytes = 0;
    static char touch[2][MOST << 19];

    c = world_comm(w, 0, rank, n); /* what a process needs once: code, arena, options */
    if (!c)
        return 1;
    memset(touch, 1, sizeof touch);
    sweep(c, rank, n);
    CHECK(ncclCommDestroy(c) == ncclSuccess, "%s", ncclGetLastError(NULL));
    world_meet(w, n);
    const long before = rollup("Pss:");
    c = world_comm(w, 1, rank, n);
    world_meet(w, n);
    atomic_store(&w->note[FRESH + rank], (double)(rollup("Pss:") - before) / 1024);
    CHECK(ncclCommMemStats(c, ncclStatGpuMemTotal, &bytes) == ncclSuccess, "%s", ncclGetLastError(NULL));
    atomic_store(&w->note[STATED + rank], (double)bytes / MIB);
    world_meet(w, n);
    sweep(c, rank, n);
    world_meet(w, n);
    atomic_store(&w->note[SWEPT + rank], (double)(rollup("Pss:") - before) / 1024);
    CHECK(ncclCommMemStats(c, ncclStatGpuMemTotal, &bytes) == ncclSuccess, "%s", ncclGetLastError(NULL));
    atomic_store(&w->note[REPORTED + rank], (double)bytes / MIB);
    world_meet(w, n);
    CHECK(ncclCommDestroy(c) == ncclSuccess, "%s", ncclGetLastError(NULL));
    world_meet(w, n);
    const long after = rollup("Pss:");
    CHECK(after - before < 2048, "rank %d: %ld KiB more after destroy", rank, after - before);
    return 0;
}

static void cost(const char *cma)
{
    world *w = world_open();

    setenv("RCCLX_CMA", cma, 1);
    CHECK(run_ranks_as_processes(MOST, cost_main, w) == 0, "ranks failed");
    unsetenv("RCCLX_CMA");
    const double fresh = sum_of(w, FRESH, MOST) / MOST, swept = sum_of(w, SWEPT, MOST) / MOST;
    check_say("# 8 ranks, RCCLX_CMA=%s: %.2f MiB a rank when made, %.2f after a sweep; stated %.2f and %.2f\n", cma, fresh, swept,
              atomic_load(&w->note[STATED]), atomic_load(&w->note[REPORTED]));
    CHECK(fresh <= 8, "%.2f MiB a rank before any use", fresh);
    CHECK(swept <= 64, "%.2f MiB a rank after a sweep", swept);
    CHECK(slowest(w, STATED, MOST) <= 8 && slowest(w, REPORTED, MOST) <= 64, "stated: %.2f, %.2f MiB", slowest(w, STATED, MOST),
          slowest(w, REPORTED, MOST));
    CHECK(atomic_load(&w->note[REPORTED]) > 0.3 * swept, "%.2f MiB are held, %.2f stated", swept, atomic_load(&w->note[REPORTED]));
    world_close(w);
}

TEST(memory_of_eight_ranks)
{
    cost("auto");
    cost("0"); /* through scratch and pipes alone */
}

enum { NALIVE = 64, NTIMES = 10 };

/* Notes: 0..: the time of one init, 1 + rank; MiB for each of many. */
static int init_main(int rank, int n, void *arg)
{
    world      *w = arg;
    ncclComm_t *alive = calloc(NALIVE, sizeof *alive);
    double      best = 1e9, all = 0;

    if (!alive)
        return 1;
    for (int i = 0; i < NTIMES; i++) {
        const ncclUniqueId id = world_id(w, i, rank);
        ncclComm_t         c = NULL;
        world_meet(w, n);
        const double       began = check_now();
        const ncclResult_t r = ncclCommInitRank(&c, n, id, rank);
        const double       took = check_now() - began;
        if (!CHECK(r == ncclSuccess, "%s", ncclGetLastError(NULL)))
            return 1;
        best = took < best ? took : best;
        all += took;
        world_works(c, rank, n);
        CHECK(ncclCommDestroy(c) == ncclSuccess, "%s", ncclGetLastError(NULL));
    }
    atomic_store(&w->note[rank], best * 1e3);
    atomic_store(&w->note[8 + rank], all / NTIMES * 1e3);
    world_meet(w, n);
    const long before = rollup("Pss:");
    const int  fds = check_count_fds();
    for (int i = 0; i < NALIVE; i++)
        if (!(alive[i] = world_comm(w, NTIMES + i, rank, n)))
            return 1;
    world_meet(w, n);
    atomic_store(&w->note[16 + rank], (double)(rollup("Pss:") - before) / 1024 / NALIVE);
    atomic_store(&w->note[24 + rank], (double)(check_count_fds() - fds) / NALIVE);
    world_meet(w, n);
    for (int i = 0; i < NALIVE; i++) {
        world_works(alive[i], rank, n);
        CHECK(ncclCommDestroy(alive[i]) == ncclSuccess, "%s", ncclGetLastError(NULL));
    }
    free(alive);
    return 0;
}

static void init_costs(int n)
{
    world *w = world_open();

    CHECK(run_ranks_as_processes(n, init_main, w) == 0, "ranks failed");
    check_say("# %d ranks: init in %.1f ms at best, %.1f on average; with %d alive %.2f MiB and %.1f handles each and rank\n", n,
              slowest(w, 0, n), slowest(w, 8, n), NALIVE, sum_of(w, 16, n) / n, slowest(w, 24, n));
    CHECK(slowest(w, 0, n) < INIT_MS * INIT_SLACK * check_scale(), "init takes %.1f ms", slowest(w, 0, n));
    CHECK(sum_of(w, 16, n) / n <= 8, "%.2f MiB a communicator and rank", sum_of(w, 16, n) / n);
    CHECK(slowest(w, 24, n) <= 2 * n, "%.1f file handles a communicator", slowest(w, 24, n));
    world_close(w);
}

TEST(many_communicators_alive)
{
    init_costs(2);
    init_costs(8);
}

/* ---- no file handles left */

enum { LIMIT = 64 };

/* Take all handles but so many; -1 ends the list. */
static void fill(int *taken, int nfree)
{
    int n = 0;

    while ((taken[n] = dup(0)) >= 0)
        n++;
    while (n > 0 && nfree-- > 0)
        close(taken[--n]);
    taken[n] = -1;
}

/* Rank 1 has 0, 1, 2 ... handles left: it is told of the limit until they are
 * enough, and rank 0 does not wait for it. */
static int limit_main(int rank, int n, void *arg)
{
    world              *w = arg;
    const struct rlimit l = { LIMIT, LIMIT };
    ncclComm_t          first = world_comm(w, 0, rank, n), c;
    int                 taken[LIMIT + 1], nfree = 0;
    ncclResult_t        r;

    setrlimit(RLIMIT_NOFILE, &l);
    do {
        const ncclUniqueId id = world_id(w, 1 + nfree, rank);
        c = NULL;
        if (rank == 1)
            fill(taken, nfree);
        r = IN_TIME(6.0, ncclCommInitRank(&c, n, id, rank)); /* one that cannot connect is waited for until the deadline */
        for (int i = 0; rank == 1 && taken[i] >= 0; i++)
            close(taken[i]);
        if (r != ncclSuccess) {
            CHECK(!c && (rank ? r == ncclSystemError : r == ncclRemoteError), "rank %d, %d handles: %d", rank, nfree, (int)r);
            CHECK(!rank || strstr(ncclGetLastError(NULL), "64"), "%d handles: %s", nfree, ncclGetLastError(NULL));
            check_say("# rank %d, %d handles: %s\n", rank, nfree, ncclGetLastError(NULL));
        } else {
            world_works(c, rank, n);
            CHECK(ncclCommDestroy(c) == ncclSuccess, "%s", ncclGetLastError(NULL));
        }
        world_works(first, rank, n); /* unharmed */
        world_meet(w, n);
    } while (r != ncclSuccess && ++nfree < 40);
    CHECK(nfree > 0 && r == ncclSuccess, "rank %d: %d handles were enough, result %d", rank, nfree, (int)r);
    CHECK(ncclCommDestroy(first) == ncclSuccess, "%s", ncclGetLastError(NULL));
    return 0;
}

TEST(out_of_file_handles)
{
    world *w = world_open();
    setenv("RCCLX_INIT_TIMEOUT", "3", 1);
    rcclx_option_reload();
    CHECK(run_ranks_as_processes(2, limit_main, w) == 0, "ranks failed");
    unsetenv("RCCLX_INIT_TIMEOUT");
    rcclx_option_reload();
    world_close(w);
}
