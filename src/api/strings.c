/* Texts and version. Programs print and match the result texts, so they are
 * NCCL's to the letter. */
#include "api/export.h"
#include "rcclx.h"

static const char *const texts[ncclNumResults] = {
    [ncclSuccess]            = "no error",
    [ncclUnhandledCudaError] = "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
    [ncclSystemError]        = "unhandled system error (run with NCCL_DEBUG=INFO for details)",
    [ncclInternalError]      = "internal error - please report this issue to the NCCL developers",
    [ncclInvalidArgument]    = "invalid argument (run with NCCL_DEBUG=WARN for details)",
    [ncclInvalidUsage]       = "invalid usage (run with NCCL_DEBUG=WARN for details)",
    [ncclRemoteError]        = "remote process exited or there was a network error",
    [ncclInProgress]         = "NCCL operation in progress",
    [ncclTimeout]            = "timeout",
};

RCCLX_API(const char *, ncclGetErrorString, (ncclResult_t result))
{
    return (unsigned)result < ncclNumResults ? texts[result] : "unknown result code";
}

RCCLX_API(const char *, ncclGetLastError, (ncclComm_t comm))
{
    (void)comm; /* one newest error a process, as in NCCL */
    return rcclx_last_error();
}

RCCLX_API(ncclResult_t, ncclGetVersion, (int *version))
{
    if (!version)
        return rcclx_result(RCCLX_FAIL(RCCLX_ARGUMENT, "ncclGetVersion: version is NULL; pass the address of an int"));
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

RCCLX_API(void, ncclResetDebugInit, (void))
{
}

RCCLX_EXPORT const char *rcclxVersion(void)
{
    return RCCLX_VERSION;
}
