#include "backend.h"

#include <rcclx.h>
#include <stdio.h>
#include <stdlib.h>

static ncclComm_t comm;

static void must(ncclResult_t result)
{
    if (result == ncclSuccess)
        return;
    fprintf(stderr, "coll_bench: %s: %s\n", ncclGetErrorString(result), ncclGetLastError(comm));
    exit(1);
}

void backend_start(int *rank, int *nranks)
{
    must(rcclxCommInitEnv(&comm, NULL));
    must(ncclCommUserRank(comm, rank));
    must(ncclCommCount(comm, nranks));
}

void backend_stop(void)
{
    must(ncclCommDestroy(comm));
}

const char *backend_version(void)
{
    return rcclxVersion();
}

void *backend_memory(size_t nbytes)
{
    void *p = NULL;

    must(ncclMemAlloc(&p, nbytes));
    return p;
}

void backend_call(enum kind kind, const float *send, float *recv, size_t count)
{
    switch (kind) {
    case ALL_REDUCE:
        must(ncclAllReduce(send, recv, count, ncclFloat32, ncclSum, comm, NULL));
        break;
    case REDUCE_SCATTER:
        must(ncclReduceScatter(send, recv, count, ncclFloat32, ncclSum, comm, NULL));
        break;
    case ALL_GATHER:
        must(ncclAllGather(send, recv, count, ncclFloat32, comm, NULL));
        break;
    case ALLTOALL:
        must(ncclAlltoAll(send, recv, count, ncclFloat32, comm, NULL));
        break;
    case BROADCAST:
        must(ncclBroadcast(recv, recv, count, ncclFloat32, 0, comm, NULL));
        break;
    case KINDS:
        break;
    }
}
