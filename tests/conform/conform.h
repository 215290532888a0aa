#ifndef RCCLX_TESTS_CONFORM_H
#define RCCLX_TESTS_CONFORM_H

/* What the conformance programs share: teams of ranks placed over processes and
 * threads, data whose result is known, and buffers with guards around them.
 *
 *   conform_team t = { .n = 5, .nprocs = 2, .nthreads = 2, .work = work, .env = { "RCCLX_CMA=0" } };
 *   CHECK(conform_run(&t) == 0, "ranks failed");
 *
 * Rank r lives in place r % (nprocs * nthreads). A place is a thread; one with
 * several ranks drives them in groups:
 *
 *   nprocs 1, nthreads n   ranks are threads         nprocs n, nthreads 1   processes
 *   nprocs 1, nthreads 1   one thread has them all   nprocs 2, nthreads 2   both
 *
 * With nnodes, the processes are dealt to so many machines, which are this one under names
 * of their own; ranks of different ones go over the network.
 *
 * `work` runs once a place, between init and destroy. Settings are put into the
 * environment of the team's processes, which are fresh: the program itself never
 * calls the library. */
#include "check.h"
#include "nccl.h"
#include "rcclx.h"

#include "algo/algo.h"


#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "unit/numerics_reference.h"
#pragma GCC diagnostic pop

enum { CONFORM_RANKS = 16, CONFORM_ENV = 8, CONFORM_HASHES = 1024 };

typedef struct conform_team   conform_team;
typedef struct conform_worker conform_worker;

/* What all processes of a team see. */
typedef struct {
    atomic_int      have_id;
    ncclUniqueId    id;
    _Atomic int64_t word[CONFORM_RANKS];
    uint64_t        hash[CONFORM_HASHES][CONFORM_RANKS];
} conform_shared;

struct conform_team {
    int             n, nprocs, nthreads;
    char            env[CONFORM_ENV][48]; /* "NAME=VALUE" */
    void          (*work)(conform_worker *w);
    void           *arg;
    int             nnodes; /* 0, 1: this machine */
    int             proc;   /* which one this is; set by run */
    conform_shared *shared;
};

struct conform_worker {
    conform_team *team;
    void         *arg;
    int           n, nmine;
    int           rank[CONFORM_RANKS];
    ncclComm_t    comm[CONFORM_RANKS];
};

#define OK_OR_TELL(call)                                                           \
    __extension__({                                                                \
        ncclResult_t r_ = (call);                                                  \
        CHECK(r_ == ncclSuccess, "%s: %s", #call, ncclGetLastError(NULL));         \
        r_ == ncclSuccess;                                                         \
    })

/* A place with one rank calls it alone, one with several in a group. */
static inline void conform_open(const conform_worker *w)
{
    if (w->nmine > 1)
        OK_OR_TELL(ncclGroupStart());
}

static inline bool conform_close(const conform_worker *w)
{
    return w->nmine == 1 || OK_OR_TELL(ncclGroupEnd());
}

static inline int conform_place(int place, int nplaces, void *arg)
{
    conform_team  *t = arg;
    conform_worker w = { .team = t, .arg = t->arg, .n = t->n };
    const int      slot = place * t->nprocs + t->proc;

    for (int r = slot; r < t->n; r += t->nprocs * nplaces)
        w.rank[w.nmine++] = r;
    if (!w.nmine)
        return 0;
    conform_open(&w);
    for (int i = 0; i < w.nmine; i++)
        OK_OR_TELL(ncclCommInitRank(&w.comm[i], t->n, t->shared->id, w.rank[i]));
    if (!conform_close(&w) || !w.comm[0])
        return 1;
    t->work(&w);
    for (int i = 0; i < w.nmine; i++)
        if (w.comm[i])
            OK_OR_TELL(ncclCommDestroy(w.comm[i]));
    return 0;
}

static inline int conform_process(int proc, int nprocs, void *arg)
{
    conform_team *t = arg;

    t->proc = proc;
    for (int i = 0; i < CONFORM_ENV; i++)
        if (*t->env[i])
            putenv(t->env[i]);
    if (t->nnodes > 1) {
        char name[32];
        snprintf(name, sizeof name, "machine %d", proc * t->nnodes / nprocs);
        setenv("NCCL_HOSTID", name, 1);
    }
    if (proc == 0) {
        if (!OK_OR_TELL(ncclGetUniqueId(&t->shared->id)))
            return 1;
        atomic_store(&t->shared->have_id, 1);
    }
    if (!WAIT_FOR(atomic_load(&t->shared->have_id), 20))
        return 1;
    return run_ranks_as_threads(t->nthreads, conform_place, t) != 0;
}

static inline int conform_run(conform_team *t)
{
    t->shared = mmap(NULL, sizeof *t->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (t->shared == MAP_FAILED)
        return t->n;
    if (t->nprocs > t->n)
        t->nprocs = t->n;
    return run_ranks_as_processes(t->nprocs, conform_process, t);
}

static inline void conform_end(conform_team *t)
{
    munmap(t->shared, sizeof *t->shared);
}

/* ---- data
 *
 * Element i of rank r is value(r, i % PERIOD): what comes out is then known after
 * PERIOD elements, and a prime never divides a block or a piece. */
enum { CONFORM_PERIOD = 251 };

/* EXACT: every partial result in any order is exact in its type. WILD: any bits,
 * Inf, NaN and subnormals too, for where the order is promised or does not matter. */
typedef struct {
    rcclx_type  type;
    rcclx_redop op;
    int         n;
    bool        wild;
    uint64_t    seed;
    uint64_t    scalar[CONFORM_RANKS];
    uint64_t    value[CONFORM_RANKS][CONFORM_PERIOD];
    uint64_t    reduced[CONFORM_PERIOD];
} conform_data;

static inline uint64_t conform_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline uint64_t conform_encode(rcclx_type t, double x)
{
    return t == RCCLX_F64 ? round64(x) : round32(t, (float)x);
}

static inline uint64_t conform_wild(rcclx_type t, uint64_t h)
{
    const uint64_t mask = ~UINT64_C(0) >> (64 - 8 * rcclx_type_size(t));

    if (t < RCCLX_F16 || h >> 62 == 0)
        return h & mask;
    /* otherwise near one, where sums round and do not overflow */
    return conform_encode(t, ldexp((double)(int32_t)h, -30 - (int)(h >> 40 & 3)));
}

/* So large that 16 of them times a scalar of 2 add up exactly; fp8: few ranks at a time. */
static inline uint64_t conform_exact(rcclx_type t, rcclx_redop op, int n, int rank, int i, uint64_t h)
{
    static const int most[RCCLX_TYPE_COUNT] = { [RCCLX_F16] = 64, [RCCLX_F32] = 1 << 19, [RCCLX_F64] = 1 << 30,
                                                [RCCLX_BF16] = 8, [RCCLX_F8E4M3] = 2, [RCCLX_F8E5M2] = 1 };
    const int        few = rcclx_type_size(t) == 1 || op == RCCLX_PROD ? (n + 3) / 4 : 1;
    const bool       here = (rank + i) % few == 0;

    if (op == RCCLX_PROD)
        return conform_encode(t, (h & 1 ? -1.0 : 1.0) * (here && h & 2 ? 2.0 : 1.0));
    const int m = most[t];
    return conform_encode(t, here ? (double)(int)(h % (2u * (unsigned)m + 1)) - m : 0.0);
}

static inline void conform_data_init(conform_data *d)
{
    static const double scalars[4] = { 1, -1, 2, -2 };
    const bool          bits = d->wild || d->type < RCCLX_F16 || d->op == RCCLX_COPY;

    for (int r = 0; r < d->n; r++) {
        const uint64_t hr = conform_mix(d->seed + (uint64_t)r * 0x9e3779b97f4a7c15u);
        d->scalar[r] = bits ? conform_wild(d->type, hr) : conform_encode(d->type, scalars[hr >> 20 & 3]);
        for (int i = 0; i < CONFORM_PERIOD; i++) {
            const uint64_t h = conform_mix(hr + (uint64_t)i * 0xd1342543de82ef95u);
            d->value[r][i] = bits ? conform_wild(d->type, h) : conform_exact(d->type, d->op, d->n, r, i, h);
        }
    }
    for (int i = 0; d->op != RCCLX_COPY && i < CONFORM_PERIOD; i++) {
        uint64_t s[CONFORM_RANKS];
        for (int r = 0; r < d->n; r++)
            s[r] = d->value[r][i];
        d->reduced[i] = reference(d->type, d->op, d->n, s, d->n, d->op == RCCLX_PREMUL ? d->scalar : NULL);
    }
}

/* Write, or look at, count elements that begin at element `first` of a table. */
static inline void conform_fill(const conform_data *d, const uint64_t *table, void *buf, size_t first, size_t count)
{
    const size_t size = rcclx_type_size(d->type);
    char        *p = buf;

    for (size_t i = 0; i < count; i++)
        memcpy(p + i * size, &table[(first + i) % CONFORM_PERIOD], size);
}

/* The first element that is not as in the table; count if there is none. */
static inline size_t conform_wrong(const conform_data *d, const uint64_t *table, const void *buf, size_t first, size_t count)
{
    const size_t size = rcclx_type_size(d->type);
    const char  *p = buf;

    for (size_t i = 0; i < count; i++)
        if (memcmp(p + i * size, &table[(first + i) % CONFORM_PERIOD], size))
            return i;
    return count;
}

/* ---- buffers with guards: [guard][data][guard] */
enum { CONFORM_GUARD = 128, CONFORM_FENCE = 0xa5 };

static inline void conform_fence(char *data, size_t nbytes)
{
    memset(data - CONFORM_GUARD, CONFORM_FENCE, CONFORM_GUARD);
    memset(data + nbytes, CONFORM_FENCE, CONFORM_GUARD);
}

static inline bool conform_untouched(const char *p, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++)
        if ((unsigned char)p[i] != CONFORM_FENCE)
            return false;
    return true;
}

static inline bool conform_fenced(const char *data, size_t nbytes)
{
    return conform_untouched(data - CONFORM_GUARD, CONFORM_GUARD) && conform_untouched(data + nbytes, CONFORM_GUARD);
}

static inline uint64_t conform_hash(const void *p, size_t nbytes)
{
    const unsigned char *b = p;
    uint64_t             h = 0xcbf29ce484222325u;

    for (size_t i = 0; i < nbytes; i++)
        h = (h ^ b[i]) * 0x100000001b3u;
    return h;
}

#endif
