/* The collectives, and send and receive: each names its kind and its buffers,
 * the rest is the same for all (argcheck.h). */
#include "api/argcheck.h"

enum { NO_OP = -1 };

static inline void *stream_of(cudaStream_t s)
{
    return (void *)s;
}

RCCLX_API(ncclResult_t, ncclAllReduce, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream))
{
    return rcclx_api_post("ncclAllReduce", comm, (int)op,
                          &(rcclx_op){ .kind = RCCLX_ALL_REDUCE, .in = sendbuff, .out = recvbuff, .count = count,
                                       .type = (rcclx_type)datatype, .stream = stream_of(stream) });
}

RCCLX_API(ncclResult_t, ncclReduce, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                     ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream))
{
    return rcclx_api_post("ncclReduce", comm, (int)op,
                          &(rcclx_op){ .kind = RCCLX_REDUCE_TO, .in = sendbuff, .out = recvbuff, .count = count,
                                       .type = (rcclx_type)datatype, .root = root, .stream = stream_of(stream) });
}

RCCLX_API(ncclResult_t, ncclBroadcast, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                        int root, ncclComm_t comm, cudaStream_t stream))
{
    return rcclx_api_post("ncclBroadcast", comm, NO_OP,
                          &(rcclx_op){ .kind = RCCLX_BROADCAST, .in = sendbuff, .out = recvbuff, .count = count,
                                       .type = (rcclx_type)datatype, .root = root, .stream = stream_of(stream) });
}

RCCLX_API(ncclResult_t, ncclBcast, (void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                                    cudaStream_t stream))
{
    return rcclx_api_post("ncclBcast", comm, NO_OP,
                          &(rcclx_op){ .kind = RCCLX_BROADCAST, .in = buff, .out = buff, .count = count,
                                       .type = (rcclx_type)datatype, .root = root, .stream = stream_of(stream) });
}

RCCLX_API(ncclResult_t, ncclAllGather, (const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                                        ncclComm_t comm, cudaStream_t stream))
{
    return rcclx_api_post("ncclAllGather", comm, NO_OP,
                          &(rcclx_op){ .kind = RCCLX_ALL_GATHER, .in = sendbuff, .out = recvbuff, .count = sendcount,
                                       .type = (rcclx_type)datatype, .stream = stream_of(stream) });
}

RCCLX_API(ncclResult_t, ncclReduceScatter, (const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream))
{
    return rcclx_api_post("ncclReduceScatter", comm, (int)op,
                          &(rcclx_op){ .kind = RCCLX_REDUCE_SCATTER, .in = sendbuff, .out = recvbuff, .count = recvcount,
                                       .type = (rcclx_type)datatype, .stream = stream_of(stream) });
}

RCCLX_API(ncclResult_t, ncclAlltoAll, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                       ncclComm_t comm, cudaStream_t stream))
{
    return rcclx_api_post("ncclAlltoAll", comm, NO_OP,
                          &(rcclx_op){ .kind = RCCLX_ALL_TO_ALL, .in = sendbuff, .out = recvbuff, .count = count,
                                       .type = (rcclx_type)datatype, .stream = stream_of(stream) });
}

RCCLX_API(ncclResult_t, ncclGather, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                                     ncclComm_t comm, cudaStream_t stream))
{
    return rcclx_api_post("ncclGather", comm, NO_OP,
                          &(rcclx_op){ .kind = RCCLX_GATHER, .in = sendbuff, .out = recvbuff, .count = count,
                                       .type = (rcclx_type)datatype, .root = root, .stream = stream_of(stream) });
}

RCCLX_API(ncclResult_t, ncclScatter, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                                      ncclComm_t comm, cudaStream_t stream))
{
    return rcclx_api_post("ncclScatter", comm, NO_OP,
                          &(rcclx_op){ .kind = RCCLX_SCATTER, .in = sendbuff, .out = recvbuff, .count = count,
                                       .type = (rcclx_type)datatype, .root = root, .stream = stream_of(stream) });
}

/* --- point to point ------------------------------------------------------- */

RCCLX_API(ncclResult_t, ncclSend, (const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                                   cudaStream_t stream))
{
    return rcclx_api_post("ncclSend", comm, NO_OP,
                          &(rcclx_op){ .kind = RCCLX_SEND, .in = sendbuff, .count = count, .type = (rcclx_type)datatype,
                                       .root = peer, .stream = stream_of(stream) });
}

RCCLX_API(ncclResult_t, ncclRecv, (void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                                   cudaStream_t stream))
{
    return rcclx_api_post("ncclRecv", comm, NO_OP,
                          &(rcclx_op){ .kind = RCCLX_RECV, .out = recvbuff, .count = count, .type = (rcclx_type)datatype,
                                       .root = peer, .stream = stream_of(stream) });
}
