/* The n-th allocation fails, for every n, until all of a life passes: there is
 * always a clear error, nothing hangs or crashes, and nothing is held afterwards.
 * Most of the time goes into waiting for a bootstrap to give up, so several
 * processes share the numbers. */
#include "fault_life.h"

TIME_LIMIT(300)

enum { MOST = 20000, WORKERS = 8 };

static bool clear_error(const life_result *r, int64_t n)
{
    return CHECK(r->failed != ncclInProgress && strlen(r->text) > 10, "allocation %lld: %s: error %d, \"%s\"", (long long)n, r->step,
                 (int)r->failed, r->text);
}

static int every_allocation(int rank, int nranks, void *arg)
{
    int failures = 0, passes = 0;

    (void)arg;
    life_settings(0.2);
    setenv("RCCLX_ALGO", "allreduce:ring", 1); /* comparing prices allocates a lot; the others do it */
    for (int i = 0; i < 2; i++) /* what the process keeps for good is made first */
        if (!CHECK(life_run().done, "without failures: %s", ncclGetLastError(NULL)))
            return 1;
    usleep(200000);
    const life_holding before = life_hold();
    /* threads allocate in an order of their own: only several passes in a row are the end */
    for (int64_t n = rank; passes < 2; n += nranks) {
        if (!CHECK(n < MOST, "%d allocations were not enough", MOST))
            return 1;
        rcclx_mem_fail_after(n);
        const life_result r = life_run();
        rcclx_mem_fail_after(-1);
        if (!r.done && !clear_error(&r, n))
            return 1;
        if (!life_settled(&before)) {
            check_say("# allocation %lld: %s: %s\n", (long long)n, r.done ? "all" : r.step, r.text);
            return 1;
        }
        passes = r.done ? passes + 1 : 0;
        failures += !r.done;
    }
    CHECK(failures > 5, "only %d allocations failed: is the hook connected?", failures);
    return 0;
}

TEST(every_allocation_of_a_life)
{
    CHECK(run_ranks_as_processes(WORKERS, every_allocation, NULL) == 0, "failed");
}

/* ---- one process runs out of memory, the other must hear of it */

typedef struct {
    ncclUniqueId id;
    atomic_int   round, ready, done[2];
    atomic_int   passes;
} meeting;

static void one_round(int rank, meeting *m)
{
    static int32_t x[2][30000];
    ncclComm_t     c = NULL;
    ncclResult_t   r = ncclCommInitRank(&c, 2, m->id, rank);

    if (r == ncclSuccess)
        r = ncclAllReduce(x[0], x[1], 30000, ncclInt32, ncclSum, c, NULL);
    if (r == ncclSuccess)
        r = ncclBroadcast(x[0], x[1], 30000, ncclInt32, 1, c, NULL);
    const char *text = ncclGetLastError(NULL);
    CHECK(r == ncclSuccess || (r != ncclInProgress && strlen(text) > 10), "rank %d: %d: %s", rank, r, text);
    rcclx_mem_fail_after(-1);
    if (c)
        CHECK((r ? ncclCommAbort : ncclCommDestroy)(c) == ncclSuccess, "rank %d: %s", rank, ncclGetLastError(NULL));
    atomic_store(&m->done[rank], r == ncclSuccess ? 1 : 2);
}

static int two_processes(int rank, int nranks, void *arg)
{
    meeting *m = arg;

    (void)nranks;
    life_settings(0.5);
    for (int n = -1; n < 100 && atomic_load(&m->passes) < 3; n++) {
        if (rank == 0) {
            ncclGetUniqueId(&m->id);
            atomic_store(&m->done[0], 0);
            atomic_store(&m->done[1], 0);
            atomic_store(&m->ready, n + 2);
        }
        if (!CHECK(WAIT_FOR(atomic_load(&m->ready) == n + 2, 30), "rank %d: round %d does not begin", rank, n))
            return 1;
        if (rank == 1)
            rcclx_mem_fail_after(n);
        one_round(rank, m);
        if (!CHECK(WAIT_FOR(atomic_load(&m->done[!rank]), 30), "rank %d: the other one hangs in round %d", rank, n))
            return 1;
        if (rank == 0)
            atomic_store(&m->passes, m->done[0] == 1 && m->done[1] == 1 && n >= 0 ? m->passes + 1 : 0);
        atomic_fetch_add(&m->round, 1);
        WAIT_FOR(atomic_load(&m->round) == 2 * (n + 2), 30);
    }
    CHECK(atomic_load(&m->passes) >= 3, "never passed");
    return 0;
}

TEST(the_other_process_hears_of_it)
{
    meeting *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(run_ranks_as_processes(2, two_processes, m) == 0, "failed");
    munmap(m, sizeof *m);
}
