/* Limits of the process: too few files, too little address space. A clear error
 * that names the limit, or success; then, with the limit raised, all is well. */
#include "fault_life.h"

#include <sys/resource.h>

TIME_LIMIT(300)

static bool under(int resource, rlim_t value, life_result *r)
{
    struct rlimit before, l;

    getrlimit(resource, &before);
    l = before;
    l.rlim_cur = value;
    setrlimit(resource, &l);
    *r = life_run();
    setrlimit(resource, &before);
    return r->done;
}

static int too_few_files(int rank, int n, void *arg)
{
    life_result r;
    int         limit, failures = 0;

    (void)rank, (void)n, (void)arg;
    life_settings(0.2);
    if (!CHECK(life_run().done, "without a limit: %s", ncclGetLastError(NULL)))
        return 1;
    usleep(200000);
    const life_holding before = life_hold();
    for (limit = before.fds; limit < before.fds + 100; limit++) {
        if (under(RLIMIT_NOFILE, (rlim_t)limit, &r))
            break;
        failures++;
        CHECK(strlen(r.text) > 10, "%d files: %s: \"%s\"", limit, r.step, r.text);
        if (!life_settled(&before)) {
            check_say("# %d files: %s: %s\n", limit, r.step, r.text);
            return 1;
        }
    }
    CHECK(r.done && failures > 2, "%d files, %d failures: %s", limit, failures, r.text);
    CHECK(life_run().done, "afterwards: %s", ncclGetLastError(NULL));
    return 0;
}

TEST(too_few_files)
{
    CHECK(run_ranks_as_processes(1, too_few_files, NULL) == 0, "failed");
}

/* Handles that come over the socket find no room. */
typedef struct {
    ncclUniqueId id;
    atomic_int   have_id;
} meeting;

static int few_in_one(int rank, int n, void *arg)
{
    meeting      *m = arg;
    ncclComm_t    c = NULL;
    struct rlimit l = { 0 };

    life_settings(3);
    getrlimit(RLIMIT_NOFILE, &l);
    l.rlim_cur = (rlim_t)check_count_fds() + 4;
    if (rank == 0) {
        CHECK(ncclGetUniqueId(&m->id) == ncclSuccess, "%s", ncclGetLastError(NULL));
        atomic_store(&m->have_id, 1);
    }
    if (!WAIT_FOR(atomic_load(&m->have_id), 20))
        return 1;
    if (rank == 1)
        setrlimit(RLIMIT_NOFILE, &l);
    const ncclResult_t r = ncclCommInitRank(&c, n, m->id, rank);
    CHECK(r != ncclSuccess, "rank %d: init succeeded with %d files to spare on rank 1", rank, 4);
    if (rank == 1)
        CHECK(strstr(ncclGetLastError(NULL), "ile"), "\"%s\"", ncclGetLastError(NULL));
    return 0;
}

TEST(too_few_files_for_the_peers_handles)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(run_ranks_as_processes(4, few_in_one, p) == 0, "failed");
    munmap(p, 4096);
}

static size_t address_space(void)
{
    unsigned long pages = 0;
    FILE         *f = fopen("/proc/self/statm", "r");

    if (f && fscanf(f, "%lu", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static int too_little_memory(int rank, int n, void *arg)
{
    const rlim_t step = 3 << 20;
    const size_t used = address_space();
    life_result  r;
    int          failures = 0, more;

    (void)rank, (void)n, (void)arg;
    life_settings(0.2);
    for (more = 1; more < 200; more++) {
        if (under(RLIMIT_AS, used + step * (rlim_t)more, &r))
            break;
        failures++;
        CHECK(strlen(r.text) > 10, "%d steps: %s: \"%s\"", more, r.step, r.text);
    }
    CHECK(r.done && failures > 0, "%d steps, %d failures: %s", more, failures, r.text);
    CHECK(life_run().done, "afterwards: %s", ncclGetLastError(NULL));
    return 0;
}

/* The reservation for ncclMemAlloc is large: without it buffers are plain memory. */
TEST(too_little_address_space)
{
    if (LIFE_SANITIZED)
        SKIP("sanitizers need the address space");
    CHECK(run_ranks_as_processes(1, too_little_memory, NULL) == 0, "failed");
}
