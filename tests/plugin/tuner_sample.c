/* A tuner plug-in of NCCL's. One source for every version; VERSION (2 to 6) says which table it exports.
 *
 *   RCCLX_TEST_TUNER=ALGO,PROTO    what it wants for all-reduces of 64 KiB and more, in NCCL's numbers
 *   RCCLX_TEST_TUNER_FAIL=what     init, ask (it returns an error), nonsense (an algorithm or a cost that is none)
 *
 * It is strict: it refuses contexts that are not its own, and tables of another shape. */
#include "algo/tuner_abi.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS, SYSTEM_ERROR = 2, INTERNAL_ERROR, INVALID_ARGUMENT, MAGIC = 0x54554e45, FROM = 64 << 10 };

typedef struct { int magic; size_t nranks, nnodes; rcclx_tuner_log log; } context;

static bool fails(const char *what)
{
    const char *s = getenv("RCCLX_TEST_TUNER_FAIL");

    return s && !strcmp(s, what);
}

static int begin(size_t nranks, size_t nnodes, rcclx_tuner_log log, void **ctx)
{
    context *c = calloc(1, sizeof(*c));

    if (!c || fails("init")) {
        log(2, 0x40, __FILE__, __LINE__, "sample: not in the mood");
        free(c);
        return SYSTEM_ERROR;
    }
    *c = (context){ MAGIC, nranks, nnodes, log };
    log(3, 0x40, __FILE__, __LINE__, "sample: version %d tunes %zu ranks on %zu nodes", VERSION, nranks, nnodes);
    *ctx = c;
    return SUCCESS;
}

static int end(void *ctx)
{
    context *c = ctx;

    if (c->magic != MAGIC)
        return INVALID_ARGUMENT;
    c->magic = 0;
    free(c);
    return SUCCESS;
}

/* What is wanted; false: nothing. */
static bool wish(const context *c, int func, size_t nbytes, int *algo, int *proto)
{
    const char *s = getenv("RCCLX_TEST_TUNER");

    (void)c;
    return s && func == RCCLX_TUNER_ALL_REDUCE && nbytes >= FROM && sscanf(s, "%d,%d", algo, proto) == 2;
}

#if VERSION == 2
static int ask(void *ctx, int func, size_t nbytes, int collnet, int nvls, int nops, int *algo, int *proto, int *nchannels)
{
    const context *c = ctx;

    if (c->magic != MAGIC || collnet || nvls || nops != 1)
        return INVALID_ARGUMENT;
    if (fails("ask"))
        return INTERNAL_ERROR;
    if (wish(c, func, nbytes, algo, proto))
        *nchannels = 2;
    if (fails("nonsense"))
        *algo = 99;
    return SUCCESS;
}
#else
static int change(const context *c, int func, size_t nbytes, void *cost, int nalgos, int nprotos, int *nchannels)
{
    float(*const table)[RCCLX_TUNER_PROTOS] = cost;
    int algo, proto;

    if (c->magic != MAGIC || nalgos != RCCLX_TUNER_ALGOS || nprotos != RCCLX_TUNER_PROTOS || table[RCCLX_TUNER_COLLNET_CHAIN][0] >= 0)
        return INVALID_ARGUMENT;
    if (fails("ask"))
        return INTERNAL_ERROR;
    if (wish(c, func, nbytes, &algo, &proto)) {
        table[algo][proto] = 0;
        *nchannels = 2;
    }
    if (fails("nonsense"))
        table[RCCLX_TUNER_RING][RCCLX_TUNER_SIMPLE] = NAN;
    return SUCCESS;
}

#if VERSION == 3
static int ask(void *ctx, int func, size_t nbytes, int nops, float **cost, int nalgos, int nprotos, int *nchannels)
{
    return nops == 1 ? change(ctx, func, nbytes, cost, nalgos, nprotos, nchannels) : INVALID_ARGUMENT;
}
#else
static int ask(void *ctx, int func, size_t nbytes, int nops, float **cost, int nalgos, int nprotos, int registered, int *nchannels)
{
    return nops == 1 && !registered ? change(ctx, func, nbytes, cost, nalgos, nprotos, nchannels) : INVALID_ARGUMENT;
}
#endif
#endif

#if VERSION < 5
static int init(size_t nranks, size_t nnodes, rcclx_tuner_log log, void **ctx)
{
    return begin(nranks, nnodes, log, ctx);
}
#else
static int init(void **ctx, uint64_t id, size_t nranks, size_t nnodes, rcclx_tuner_log log, rcclx_tuner_domains *domains,
                rcclx_tuner_constants *constants)
{
    if (!id || !constants || domains->ndomains != (int)nnodes || domains->max_ranks > (int)nranks || domains->min_ranks < 1)
        return INVALID_ARGUMENT;
    return begin(nranks, nnodes, log, ctx);
}
#endif

#define JOIN(a, b) a##b
#define NAMED(a, b) JOIN(a, b)
#if VERSION == 6
typedef struct { rcclx_tuner_v5 first; int (*chunk)(void *ctx, int func, size_t nbytes, int algo, int proto, int nchannels, size_t *size); } table;
#else
typedef NAMED(rcclx_tuner_v, VERSION) table;
#endif
__attribute__((visibility("default"))) extern const table NAMED(ncclTunerPlugin_v, VERSION);
#if VERSION == 6
const table ncclTunerPlugin_v6 = { .first = { .name = "Sample", .init = init, .ask = ask, .end = end } };
#else
const table NAMED(ncclTunerPlugin_v, VERSION) = { .name = "Sample", .init = init, .ask = ask, .end = end };
#endif
