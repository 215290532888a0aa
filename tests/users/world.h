#ifndef RCCLX_TESTS_WORLD_H
#define RCCLX_TESTS_WORLD_H

/* For tests whose ranks are processes, after check.h:
 *
 *   world *w = world_open();              // before the fork; shared by all
 *   ... in a rank:
 *   ncclComm_t c = world_comm(w, 0, rank, n);   // the meeting in slot 0
 *   world_meet(w, n);                            // all ranks are here
 *   world_close(w);                       // after the ranks
 *
 * and for buffers that nobody may write outside of:
 *
 *   float *f = guarded_new(nbytes, arena);  ...  guarded_intact(f);  guarded_free(f);   */
#include "nccl.h"
#include "rcclx.h"

#include <limits.h>
#include <stdint.h>

enum { WORLD_SLOTS = 4096, WORLD_NOTES = 64 };

typedef struct {
    struct {
        atomic_int   here;
        ncclUniqueId id;
    } slot[WORLD_SLOTS];
    atomic_int    arrived, round;
    _Atomic double note[WORLD_NOTES]; /* what ranks tell each other or the test */
} world;

static inline world *world_open(void)
{
    world *w = mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (w == MAP_FAILED) {
        perror("world");
        exit(99);
    }
    setenv("NCCL_DEBUG", "NONE", 0); /* these tests make errors on purpose */
    setenv("RCCLX_INIT_TIMEOUT", "30", 0);
    return w;
}

static inline void world_close(world *w)
{
    munmap(w, sizeof *w);
}

/* The id of a slot: rank 0 makes it, the others wait for it. */
static inline ncclUniqueId world_id(world *w, int slot, int rank)
{
    if (rank == 0) {
        CHECK(ncclGetUniqueId(&w->slot[slot].id) == ncclSuccess, "no id: %s", ncclGetLastError(NULL));
        atomic_store(&w->slot[slot].here, 1);
    }
    CHECK(WAIT_FOR(atomic_load(&w->slot[slot].here), 10), "rank 0 made no id for slot %d", slot);
    return w->slot[slot].id;
}

static inline ncclComm_t world_comm(world *w, int slot, int rank, int n)
{
    const ncclUniqueId id = world_id(w, slot, rank);
    ncclComm_t         c = NULL;
    const ncclResult_t r = ncclCommInitRank(&c, n, id, rank);

    CHECK(r == ncclSuccess && c, "rank %d of %d, meeting %d: %d, %s", rank, n, slot, (int)r, ncclGetLastError(NULL));
    return c;
}

/* Wait for n callers; false when they do not come in 30 seconds. */
static inline bool world_meet(world *w, int n)
{
    const int round = atomic_load(&w->round);

    if (atomic_fetch_add(&w->arrived, 1) == n - 1) {
        atomic_store(&w->arrived, 0);
        atomic_fetch_add(&w->round, 1);
    }
    return CHECK(WAIT_FOR(atomic_load(&w->round) != round, 30), "not all %d ranks came", n);
}

/* The communicator's own answer, once it is no longer ncclSuccess, or after so many seconds. */
static inline ncclResult_t world_async(ncclComm_t c, double seconds)
{
    ncclResult_t r = ncclSuccess;

    (void)WAIT_FOR(ncclCommGetAsyncError(c, &r) != ncclSuccess || (r != ncclSuccess && r != ncclInProgress), seconds);
    return r;
}

/* One number per call, so that a wrong sum shows which call it came from. */
static inline float world_value(int rank, long call)
{
    return (float)(rank + 1 + call % 1000);
}

static inline float world_sum(int n, long call)
{
    return (float)(n * (n + 1) / 2 + n * (call % 1000));
}

/* A call's AllReduce of count floats; the result is checked. */
static inline ncclResult_t world_reduce(ncclComm_t c, int rank, int n, long call, float *in, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        in[i] = world_value(rank, call) + (float)(i & 63);
    const ncclResult_t r = ncclAllReduce(in, out, count, ncclFloat, ncclSum, c, NULL);
    for (size_t i = 0; r == ncclSuccess && i < count; i++) {
        const float want = world_sum(n, call) + (float)(n * (int)(i & 63));
        if (!CHECK(out[i] == want, "rank %d, call %ld, element %zu of %zu: %g, not %g", rank, call, i, count, (double)out[i],
                   (double)want))
            break;
    }
    return r;
}

static inline void world_works(ncclComm_t c, int rank, int n)
{
    float in[16], out[16];

    if (CHECK(c != NULL, "no communicator"))
        CHECK(world_reduce(c, rank, n, 7, in, out, 16) == ncclSuccess, "rank %d: %s", rank, ncclGetLastError(NULL));
}

/* ---- guarded buffers */

enum { GUARD = 4096, GUARD_BYTE = 0xa5 };

/* A page before keeps the length, a page on either side the pattern. */
static inline void *guarded_new(size_t nbytes, bool arena)
{
    unsigned char *p = NULL;
    const size_t   whole = 3 * GUARD + nbytes;

    if (arena ? ncclMemAlloc((void **)&p, whole) != ncclSuccess : !(p = aligned_alloc(64, (whole + 63) / 64 * 64))) {
        CHECK(false, "no memory for %zu bytes", whole);
        exit(98);
    }
    memset(p, GUARD_BYTE, whole);
    memcpy(p, &nbytes, sizeof nbytes);
    memcpy(p + sizeof nbytes, &arena, sizeof arena);
    return p + 2 * GUARD;
}

static inline bool guarded_intact(const void *buffer)
{
    const unsigned char *p = (const unsigned char *)buffer - 2 * GUARD;
    size_t               nbytes, i = 0;

    memcpy(&nbytes, p, sizeof nbytes);
    while (i < GUARD && p[GUARD + i] == GUARD_BYTE && p[2 * GUARD + nbytes + i] == GUARD_BYTE)
        i++;
    return CHECK(i == GUARD, "bytes outside a buffer of %zu bytes were written, %zu bytes %s it", nbytes,
                 i < GUARD && p[GUARD + i] != GUARD_BYTE ? GUARD - i : i,
                 i < GUARD && p[GUARD + i] != GUARD_BYTE ? "before" : "behind");
}

static inline void guarded_free(void *buffer)
{
    unsigned char *p = (unsigned char *)buffer - 2 * GUARD;
    bool           arena;

    memcpy(&arena, p + sizeof(size_t), sizeof arena);
    if (arena)
        ncclMemFree(p);
    else
        free(p);
}

/* ---- the full counts, for those who have the time */

static inline bool world_long(void)
{
    const char *s = getenv("RCCLX_TEST_LONG");

    return s && *s && *s != '0';
}

/* A call that must come back soon; the time it took is printed when it did not. */
#define IN_TIME(seconds, call)                                                                   \
    __extension__({                                                                              \
        const double world_began_ = check_now();                                                 \
        __typeof__(call) world_got_ = (call);                                                    \
        const double world_took_ = check_now() - world_began_;                                   \
        CHECK(world_took_ < (seconds) * check_scale(), #call " took %.2f s", world_took_);       \
        world_got_;                                                                              \
    })

#endif
