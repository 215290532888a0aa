/* Functions of NCCL's interface that this version does not have yet. They exist
 * so that programs built against newer headers start; each says so when it is
 * called. A row a function; to build one, take its row away. */
#include "api/argcheck.h"
#include "rcclx.h"
#include "rcclx_teams.h"

/*    function, its parameters */
#define NOT_BUILT(X)                                                          \
    X(ncclCommRevoke, (ncclComm_t a, int b))                                  \
    X(ncclCommShrink, (ncclComm_t a, int *b, int c, ncclComm_t *d, ncclConfig_t *e, int f)) \
    X(ncclCommGetUniqueId, (ncclComm_t a, ncclUniqueId *b))                   \
    X(ncclCommGrow, (ncclComm_t a, int b, const ncclUniqueId *c, int d, ncclComm_t *e, ncclConfig_t *f)) \
    X(ncclCommSuspend, (ncclComm_t a, int b))                                 \
    X(ncclCommResume, (ncclComm_t a))                                         \
    X(ncclWinGetUserPtr, (ncclComm_t a, ncclWindow_t b, void **c))            \
    X(ncclPutSignal, (const void *a, size_t b, ncclDataType_t c, int d, ncclWindow_t e, size_t f, int g, int h, \
                      unsigned i, ncclComm_t j, cudaStream_t k))              \
    X(ncclSignal, (int a, int b, int c, unsigned d, ncclComm_t e, cudaStream_t f)) \
    X(ncclWaitSignal, (int a, ncclWaitSignalDesc_t *b, ncclComm_t c, cudaStream_t d)) \
    X(ncclDevCommCreate, (ncclComm_t a, const ncclDevCommRequirements_t *b, ncclDevComm_t *c)) \
    X(ncclDevCommDestroy, (ncclComm_t a, const ncclDevComm_t *b))             \
    X(ncclGetLsaMultimemDevicePointer, (ncclWindow_t a, size_t b, void **c))  \
    X(ncclGetMultimemDevicePointer, (ncclWindow_t a, size_t b, ncclMultimemHandle_t c, void **d)) \
    X(ncclGetLsaDevicePointer, (ncclWindow_t a, size_t b, int c, void **d))   \
    X(ncclGetPeerDevicePointer, (ncclWindow_t a, size_t b, int c, void **d))  \
    X(ncclGetMultimemDeviceLeInfo, (ncclWindow_t a, size_t b, ncclCftLeId_t *c, size_t *d)) \
    X(ncclGetCftDeviceLeInfo, (ncclWindow_t a, size_t b, int c, ncclTeam_t d, ncclCftLeId_t *e, size_t *f)) \
    X(ncclGetPeerDeviceLeInfo, (ncclWindow_t a, size_t b, int c, ncclCftLeId_t *d, size_t *e)) \
    X(ncclLsaBarrierCreateRequirement,                                        \
      (ncclTeam_t a, int b, ncclLsaBarrierHandle_t *c, ncclDevResourceRequirements_t *d)) \
    X(ncclGinBarrierCreateRequirement,                                        \
      (ncclComm_t a, ncclTeam_t b, int c, ncclGinBarrierHandle_t *d, ncclDevResourceRequirements_t *e)) \
    X(ncclGinOutboxCreateRequirement, (int a, int b, ncclGinOutboxHandle_t *c, ncclDevResourceRequirements_t *d)) \
    X(ncclGinInboxA2ACreateRequirement,                                       \
      (ncclTeam_t a, int b, int c, ncclGinInboxA2AHandle_t *d, ncclDevResourceRequirements_t *e)) \
    X(ncclLLA2ACreateRequirement, (int a, int b, ncclLLA2AHandle_t *c, ncclDevResourceRequirements_t *d))

/* A row ignores what it is given. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

static ncclResult_t not_built(const char *call)
{
    return rcclx_api_result(RCCLX_FAIL(RCCLX_UNSUPPORTED, "%s is not built yet in this version (RCCLX " RCCLX_VERSION
                                       ", NCCL interface %d.%d.%d); the program must do without it",
                                       call, NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH));
}

#define X(name, params)                                                       \
    RCCLX_API(ncclResult_t, name, params)                                     \
    {                                                                         \
        return not_built(#name);                                              \
    }
NOT_BUILT(X)
#undef X
