#ifndef RCCLX_API_EXPORT_H
#define RCCLX_API_EXPORT_H

#include "base/log.h"
#include "base/status.h"

/* The library itself never needs a vendor's headers. */
#ifndef RCCLX_NO_CUDA_HEADERS
#define RCCLX_NO_CUDA_HEADERS
#endif
#include "nccl.h"

/* One line defines a public function under both its names:
 *
 *   RCCLX_API(ncclResult_t, ncclGetVersion, (int *version))
 *   {
 *       ...
 *   }
 *
 * The body is pncclGetVersion; ncclGetVersion is a weak alias of it, which a
 * profiling tool may replace. */
#define RCCLX_EXPORT __attribute__((visibility("default")))
#define RCCLX_API(result, name, params)                                       \
    RCCLX_EXPORT result p##name params;                                       \
    RCCLX_EXPORT result name params __attribute__((weak, alias("p" #name)));  \
    RCCLX_EXPORT result p##name params

/* What the caller sees of a status. */
static inline ncclResult_t rcclx_result(rcclx_status s)
{
    return s == RCCLX_OK ? ncclSuccess : (ncclResult_t)rcclx_status_nccl(s);
}

#endif
