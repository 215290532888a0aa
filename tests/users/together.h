#ifndef RCCLX_TESTS_TOGETHER_H
#define RCCLX_TESTS_TOGETHER_H

/* For tests whose ranks make communicators of their own; after check.h:
 *
 *   static int rank_main(int rank, int n, void *arg)
 *   {
 *       ncclComm_t comm = together(0, rank, n);     // meeting number 0
 *       OK(ncclAllReduce(...));
 *       ...
 *       return 0;
 *   }
 *
 *   together_prepare();                             // in the parent, before the ranks
 *   CHECK(run_ranks_as_processes(n, rank_main, NULL) == 0, "ranks failed");
 *
 * The parent calls nothing of the library, so that every rank reads the
 * environment as it finds it. OK leaves the rank with 1 when a call fails. */
#include "nccl.h"
#include "rcclx.h"

enum { TOGETHER_MEETINGS = 64 };

typedef struct {
    struct {
        ncclUniqueId id;
        atomic_int   made;
    } at[TOGETHER_MEETINGS];
    atomic_int       here, round; /* of together_wait */
    _Atomic uint64_t sum[256];    /* for tests to compare ranks by */
} together_place;

static together_place *together_shared;

#define OK(call)                                                                                            \
    do {                                                                                                    \
        if (!CHECK((call) == ncclSuccess, "rank %d of %d: %s", rank, n, ncclGetLastError(NULL)))            \
            return 1;                                                                                       \
    } while (0)

static inline void together_prepare(void)
{
    if (together_shared)
        munmap(together_shared, sizeof *together_shared);
    together_shared = mmap(NULL, sizeof *together_shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (together_shared == MAP_FAILED)
        abort();
}

/* The id of a meeting: rank 0 makes it, the others wait for it. */
static inline bool together_id(int meeting, int rank, ncclUniqueId *id)
{
    atomic_int *made = &together_shared->at[meeting].made;

    if (rank == 0) {
        const ncclResult_t r = ncclGetUniqueId(&together_shared->at[meeting].id);
        atomic_store(made, r == ncclSuccess ? 1 : -1);
        CHECK(r == ncclSuccess, "ncclGetUniqueId: %s", ncclGetLastError(NULL));
    }
    while (!atomic_load(made))
        usleep(200);
    *id = together_shared->at[meeting].id;
    return atomic_load(made) == 1;
}

/* NULL, and a failed check, when there is no communicator. */
static inline ncclComm_t together(int meeting, int rank, int n)
{
    ncclUniqueId id;
    ncclComm_t   comm = NULL;

    if (!together_id(meeting, rank, &id))
        return NULL;
    CHECK(ncclCommInitRank(&comm, n, id, rank) == ncclSuccess, "rank %d of %d: init: %s", rank, n, ncclGetLastError(NULL));
    return comm;
}

/* All n ranks are here. For tests' own order, not for timing. */
static inline void together_wait(int n)
{
    const int round = atomic_load(&together_shared->round);

    if (atomic_fetch_add(&together_shared->here, 1) == n - 1) {
        atomic_store(&together_shared->here, 0);
        atomic_fetch_add(&together_shared->round, 1);
    }
    while (atomic_load(&together_shared->round) == round)
        usleep(50);
}

static inline bool together_long(void)
{
    return getenv("RCCLX_TEST_LONG") != NULL;
}

/* A plain generator, the same on every rank for the same seed. */
static inline uint64_t together_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline uint64_t together_hash(const void *p, size_t nbytes)
{
    const unsigned char *b = p;
    uint64_t             h = 0xcbf29ce484222325u;

    for (size_t i = 0; i < nbytes; i++)
        h = (h ^ b[i]) * 0x100000001b3u;
    return h;
}

#endif
