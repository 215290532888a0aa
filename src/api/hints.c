/* The collectives with a configuration a call (2.31): the structure is checked,
 * NCCL's own hints are for later, ours (rcclx.h) go into the operation, and what
 * other vendors have in the list is passed over.
 *
 *   config --ext--> element --> element --> NULL
 *
 * Whoever made the list may have closed it to a ring, so the walk has an end. */
#include "api/argcheck.h"
#include "api/low_precision.h"

#include "codec/codec.h"
#include "rcclx.h"

enum { SIZE_MOST = 4096, ELEMENTS_MOST = 256, NO_OP = -1 };

static rcclx_status check_config(const char *call, const ncclCollConfig_t *c)
{
    if (c->magic == NCCL_API_MAGIC && c->size >= offsetof(ncclCollConfig_t, ext) && c->size <= SIZE_MOST)
        return RCCLX_OK;
    return RCCLX_FAIL(RCCLX_ARGUMENT, "%s: config has magic 0x%x and size %zu; start it from NCCL_COLLCONFIG_INITIALIZER",
                      call, c->magic, c->size);
}

/* An operation's precision says 1 + codec. */
static rcclx_status read_option(const char *call, const ncclConfigExt_t *e, uint8_t *precision)
{
    int codec = e->val.i;

    if (e->key.optionId == RCCLX_OPTION_LOW_PRECISION)
        RCCLX_TRY(rcclx_args_codec(call, "RCCLX_OPTION_LOW_PRECISION", e->val.s, &codec));
    else if (e->key.optionId != RCCLX_OPTION_LOW_PRECISION_CODEC)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "%s: config->ext has RCCLX_VENDOR_ID with optionId %d, which this version does not "
                          "know; rcclx.h lists them", call, e->key.optionId);
    if (codec < 0 || codec >= RCCLX_CODEC_COUNT)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "%s: RCCLX_OPTION_LOW_PRECISION_CODEC is %d, allowed are 0..%d; rcclx.h lists them",
                          call, codec, RCCLX_CODEC_COUNT - 1);
    *precision = (uint8_t)(1 + codec);
    return RCCLX_OK;
}

static rcclx_status read_hints(const char *call, const ncclCollConfig_t *c, uint8_t *precision)
{
    int n = 0;

    if (!c)
        return RCCLX_OK;
    RCCLX_TRY(check_config(call, c));
    if (c->size < offsetof(ncclCollConfig_t, minCTAs))
        return RCCLX_OK;
    for (const ncclConfigExt_t *e = c->ext; e; e = e->next) {
        if (++n > ELEMENTS_MOST)
            return RCCLX_FAIL(RCCLX_ARGUMENT, "%s: config->ext has more than %d elements; is it a ring?", call, ELEMENTS_MOST);
        if (e->key.vendorId == RCCLX_VENDOR_ID)
            RCCLX_TRY(read_option(call, e, precision));
    }
    return RCCLX_OK;
}

static ncclResult_t post(const char *call, ncclComm_t comm, int redop, const ncclCollConfig_t *config, rcclx_op *op)
{
    const rcclx_status s = read_hints(call, config, &op->precision);

    return s == RCCLX_OK ? rcclx_api_post(call, comm, redop, op) : rcclx_api_result(s);
}

/*    name, its parameters, the operator, what the operation is */
#define WITH_HINTS(X)                                                         \
    X(ncclAllReduce,                                                          \
      (const void *s, void *r, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c, cudaStream_t q, \
       const ncclCollConfig_t *config), (int)op, .kind = RCCLX_ALL_REDUCE, .in = s, .out = r) \
    X(ncclReduce,                                                             \
      (const void *s, void *r, size_t n, ncclDataType_t t, ncclRedOp_t op, int root, ncclComm_t c, cudaStream_t q, \
       const ncclCollConfig_t *config), (int)op, .kind = RCCLX_REDUCE_TO, .in = s, .out = r, .root = root) \
    X(ncclBroadcast,                                                          \
      (const void *s, void *r, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t q, \
       const ncclCollConfig_t *config), NO_OP, .kind = RCCLX_BROADCAST, .in = s, .out = r, .root = root) \
    X(ncclAllGather,                                                          \
      (const void *s, void *r, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t q, \
       const ncclCollConfig_t *config), NO_OP, .kind = RCCLX_ALL_GATHER, .in = s, .out = r) \
    X(ncclReduceScatter,                                                      \
      (const void *s, void *r, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c, cudaStream_t q, \
       const ncclCollConfig_t *config), (int)op, .kind = RCCLX_REDUCE_SCATTER, .in = s, .out = r) \
    X(ncclAlltoAll,                                                           \
      (const void *s, void *r, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t q, \
       const ncclCollConfig_t *config), NO_OP, .kind = RCCLX_ALL_TO_ALL, .in = s, .out = r) \
    X(ncclGather,                                                             \
      (const void *s, void *r, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t q, \
       const ncclCollConfig_t *config), NO_OP, .kind = RCCLX_GATHER, .in = s, .out = r, .root = root) \
    X(ncclScatter,                                                            \
      (const void *s, void *r, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t q, \
       const ncclCollConfig_t *config), NO_OP, .kind = RCCLX_SCATTER, .in = s, .out = r, .root = root)

#define X(name, params, redop, ...)                                           \
    RCCLX_API(ncclResult_t, name##Config, params)                             \
    {                                                                         \
        rcclx_op o = { .count = n, .type = (rcclx_type)t, .stream = (void *)q, __VA_ARGS__ }; \
        return post(#name "Config", c, redop, config, &o);                    \
    }
WITH_HINTS(X)
#undef X
