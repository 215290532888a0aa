#ifndef RCCLX_TESTS_FAULT_LIFE_H
#define RCCLX_TESTS_FAULT_LIFE_H

/* A whole life in one thread, for tests that make something in it fail:
 *
 *   life_result r = life_run();      // r.done, or r.failed in r.step with r.text
 *   life_settled(&before)            // holds what it held before: blocks, files, maps, threads
 *
 * Whatever fails, everything that was made is taken down again. Ranks are RANKS of
 * this process, driven in groups, so nobody but this thread has to be told. */
#include "check.h"
#include "nccl.h"
#include "rcclx.h"

#include "base/mem.h"

enum { LIFE_RANKS = 3, LIFE_ITEMS = 20000 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { LIFE_SANITIZED = 1 };
#else
enum { LIFE_SANITIZED = 0 };
#endif

/* Quiet, and a bootstrap that soon gives up. */
static inline void life_settings(double init_timeout)
{
    char text[32];

    snprintf(text, sizeof text, "%g", init_timeout * check_scale());
    setenv("RCCLX_INIT_TIMEOUT", text, 1);
    setenv("NCCL_DEBUG", "NONE", 1);
}

typedef struct {
    bool         done;
    ncclResult_t failed;
    const char  *step;
    char         text[512];
} life_result;

typedef struct {
    ncclComm_t   comm[LIFE_RANKS], child[LIFE_RANKS];
    cudaStream_t stream;
    ncclRedOp_t  op[LIFE_RANKS];
    int          nops;
    int32_t     *memory[LIFE_RANKS];
    int32_t     *plain;
} life;

/* Leave at the first failure, with its text. */
#define LIFE(call)                                                                 \
    do {                                                                           \
        const ncclResult_t r_ = (call);                                            \
        if (r_ != ncclSuccess) {                                                   \
            *out = (life_result){ .failed = r_, .step = #call };                   \
            snprintf(out->text, sizeof out->text, "%s", ncclGetLastError(NULL));   \
            return false;                                                          \
        }                                                                          \
    } while (0)

static inline bool life_make(life *l, life_result *out)
{
    LIFE(ncclCommInitAll(l->comm, LIFE_RANKS, NULL));
    LIFE(ncclGroupStart());
    for (int r = 0; r < LIFE_RANKS; r++)
        if (ncclCommSplit(l->comm[r], r == 1 ? 4 : 0, -r, &l->child[r], NULL) != ncclSuccess)
            break; /* the group's end says why */
    LIFE(ncclGroupEnd());
    LIFE(rcclxStreamCreate(&l->stream));
    for (int r = 0; r < LIFE_RANKS; r++) {
        float f = 2;
        LIFE(ncclMemAlloc((void **)&l->memory[r], 2 * LIFE_ITEMS * sizeof(int32_t)));
        LIFE(ncclRedOpCreatePreMulSum(&l->op[r], &f, ncclFloat32, ncclScalarHostImmediate, l->comm[r]));
        l->nops++;
    }
    return true;
}

static inline void life_post(life *l, int what, int r, cudaStream_t s)
{
    static const size_t counts[LIFE_RANKS] = { 5, 5, 5 }, displs[LIFE_RANKS] = { 0, 5, 10 };
    int32_t            *in = l->memory[r], *out = in + LIFE_ITEMS;
    const int           next = (r + 1) % LIFE_RANKS, prev = (r + LIFE_RANKS - 1) % LIFE_RANKS;

    /* results are looked at by the group's end */
    switch (what) {
    case 0: ncclAllReduce(in, out, LIFE_ITEMS, ncclInt32, ncclSum, l->comm[r], s); break;
    case 1: ncclAllReduce(in, out, 100, ncclFloat32, l->op[r], l->comm[r], s); break;
    case 2:
        ncclSend(in, 1000, ncclInt32, next, l->comm[r], s);
        ncclRecv(out, 1000, ncclInt32, prev, l->comm[r], s);
        break;
    case 3: ncclAlltoAllv(in, counts, displs, out, counts, displs, ncclInt32, l->comm[r], s); break;
    case 4: ncclAllGather(l->plain + r, l->plain, 1, ncclInt32, l->comm[r], s); break;
    default: ncclAllReduce(&in[r], &in[r], 1, ncclInt32, ncclMax, l->child[r], s); break;
    }
}

static inline bool life_work(life *l, life_result *out)
{
    for (int what = 0; what < 6; what++)
        for (int on = 0; on < 2; on++) {
            LIFE(ncclGroupStart());
            for (int r = 0; r < LIFE_RANKS; r++) {
                for (int i = 0; i < LIFE_ITEMS; i++)
                    l->memory[r][i] = i + r;
                life_post(l, what, r, on ? l->stream : NULL);
            }
            LIFE(ncclGroupEnd());
            LIFE(rcclxStreamSynchronize(l->stream));
            for (int r = 0; r < LIFE_RANKS && what == 0; r++)
                for (int i = 0; i < LIFE_ITEMS; i++)
                    if (!CHECK(l->memory[r][LIFE_ITEMS + i] == 3 * i + 3, "rank %d [%d]: %d", r, i, l->memory[r][LIFE_ITEMS + i]))
                        break;
        }
    return true;
}

/* All goes away by destroy when all went well, by abort otherwise; neither may fail. */
static inline void life_end(life *l, bool well)
{
    for (int r = 0; r < l->nops; r++)
        ncclRedOpDestroy(l->op[r], l->comm[r]);
    for (int r = 0; r < LIFE_RANKS; r++) {
        CHECK((well ? ncclCommDestroy : ncclCommAbort)(l->child[r]) == ncclSuccess, "child %d: %s", r, ncclGetLastError(NULL));
        CHECK((well ? ncclCommDestroy : ncclCommAbort)(l->comm[r]) == ncclSuccess, "rank %d: %s", r, ncclGetLastError(NULL));
    }
    if (l->stream)
        CHECK(rcclxStreamDestroy(l->stream) == ncclSuccess, "%s", ncclGetLastError(NULL));
    for (int r = 0; r < LIFE_RANKS; r++)
        CHECK(ncclMemFree(l->memory[r]) == ncclSuccess, "%s", ncclGetLastError(NULL));
    free(l->plain);
}

static inline life_result life_run(void)
{
    life        l = { .plain = calloc(LIFE_RANKS, sizeof(int32_t)) };
    life_result out = { 0 };

    out.done = life_make(&l, &out) && life_work(&l, &out);
    life_end(&l, out.done);
    return out;
}

/* ---- what is held */

typedef struct {
    size_t blocks;
    int    fds, maps, threads;
} life_holding;

static inline life_holding life_hold(void)
{
    return (life_holding){ rcclx_mem_held(), check_count_fds(), check_count_maps(), check_count_threads() };
}

/* Threads of the library end by themselves; what they hold goes then. Stacks of
 * ended threads stay mapped for the next ones, so maps may grow a little (and
 * sanitizers make their own). */
static inline bool life_settled(const life_holding *before)
{
    life_holding now;
    const bool   good = WAIT_FOR((now = life_hold(), now.blocks <= before->blocks && now.fds <= before->fds &&
                                  (LIFE_SANITIZED || now.maps <= before->maps + 16) && now.threads <= before->threads), 10);

    return CHECK(good, "held before and after: blocks %zu, %zu; files %d, %d; maps %d, %d; threads %d, %d", before->blocks, now.blocks,
                 before->fds, now.fds, before->maps, now.maps, before->threads, now.threads);
}

#endif
