/* The collectives with a configuration a call (2.31): the structure is checked,
 * the hints are for later, and the plain collective does the work. */
#include "api/argcheck.h"

static rcclx_status check_hints(const char *call, const ncclCollConfig_t *c)
{
    if (!c || (c->magic == NCCL_API_MAGIC && c->size >= offsetof(ncclCollConfig_t, ext)))
        return RCCLX_OK;
    return RCCLX_FAIL(RCCLX_ARGUMENT, "%s: config has magic 0x%x and size %zu; start it from NCCL_COLLCONFIG_INITIALIZER",
                      call, c->magic, c->size);
}

/*    name, its parameters but the last, the call without it */
#define WITH_HINTS(X)                                                         \
    X(ncclAllReduce,                                                          \
      (const void *s, void *r, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c, cudaStream_t q, \
       const ncclCollConfig_t *config), (s, r, n, t, op, c, q))               \
    X(ncclReduce,                                                             \
      (const void *s, void *r, size_t n, ncclDataType_t t, ncclRedOp_t op, int root, ncclComm_t c, cudaStream_t q, \
       const ncclCollConfig_t *config), (s, r, n, t, op, root, c, q))         \
    X(ncclBroadcast,                                                          \
      (const void *s, void *r, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t q, \
       const ncclCollConfig_t *config), (s, r, n, t, root, c, q))             \
    X(ncclAllGather,                                                          \
      (const void *s, void *r, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t q, \
       const ncclCollConfig_t *config), (s, r, n, t, c, q))                   \
    X(ncclReduceScatter,                                                      \
      (const void *s, void *r, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c, cudaStream_t q, \
       const ncclCollConfig_t *config), (s, r, n, t, op, c, q))               \
    X(ncclAlltoAll,                                                           \
      (const void *s, void *r, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t q, \
       const ncclCollConfig_t *config), (s, r, n, t, c, q))                   \
    X(ncclGather,                                                             \
      (const void *s, void *r, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t q, \
       const ncclCollConfig_t *config), (s, r, n, t, root, c, q))             \
    X(ncclScatter,                                                            \
      (const void *s, void *r, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t q, \
       const ncclCollConfig_t *config), (s, r, n, t, root, c, q))

#define X(name, params, args)                                                 \
    RCCLX_API(ncclResult_t, name##Config, params)                             \
    {                                                                         \
        const rcclx_status bad = check_hints(#name "Config", config);         \
        return bad == RCCLX_OK ? p##name args : rcclx_api_result(bad);        \
    }
WITH_HINTS(X)
#undef X
