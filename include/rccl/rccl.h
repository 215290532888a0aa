/* The name under which RCCL's programs look for the same interface: see
 * nccl.h. */
#ifndef RCCL_RCCL_H_
#define RCCL_RCCL_H_

#include "../nccl.h"

/* The names RCCL used for fp8 before NCCL had them. */
#define ncclFp8E4M3 ncclFloat8e4m3
#define ncclFp8E5M2 ncclFloat8e5m2

#ifdef __cplusplus
extern "C" {
#endif

/* Which algorithm and protocol an operation would take, for reports. coll is 0
 * broadcast, 1 reduce, 2 all-gather, 3 reduce-scatter, 4 all-reduce; count is
 * as that function counts. The three numbers before algo are ignored. */
ncclResult_t rcclGetAlgoInfo(ncclComm_t comm, int coll, uint64_t count, ncclDataType_t dataType, int collNetSupport,
                             int nvlsSupport, int numPipeOps, int *algo, int *protocol, int *maxChannels);

/* Their names: constant texts. ncclInvalidArgument for a number that
 * rcclGetAlgoInfo does not give. */
ncclResult_t rcclGetAlgoName(int algo, const char **algoName);
ncclResult_t rcclGetProtocolName(int protocol, const char **protocolName);

#ifdef __cplusplus
}
#endif

#endif
