#ifndef RCCLX_NCCL_TABLE_H
#define RCCLX_NCCL_TABLE_H

#include "rcclx.h"

#include <limits.h>
#include <stdbool.h>

/* A library with NCCL's interface, opened at run time: ours and any other in
 * the same way, so that a comparison compares like with like.
 *
 *   X(function, required) */
#define NCCL_TABLE_LIST(X)                                                    \
    X(ncclGetVersion, 1) X(ncclGetErrorString, 1) X(ncclGetUniqueId, 1)       \
    X(ncclCommInitRank, 1) X(ncclCommDestroy, 1) X(ncclGroupStart, 1)         \
    X(ncclGroupEnd, 1) X(ncclAllReduce, 1) X(ncclReduce, 1)                   \
    X(ncclBroadcast, 1) X(ncclAllGather, 1) X(ncclReduceScatter, 1)           \
    X(ncclSend, 1) X(ncclRecv, 1)                                             \
    X(ncclGetLastError, 0) X(ncclCommInitRankConfig, 0)                       \
    X(ncclCommGetAsyncError, 0) X(ncclCommFinalize, 0) X(ncclMemAlloc, 0)     \
    X(ncclMemFree, 0) X(ncclCommRegister, 0) X(ncclCommDeregister, 0)         \
    X(ncclCommWindowRegister, 0) X(ncclCommWindowDeregister, 0)               \
    X(ncclRedOpCreatePreMulSum, 0) X(ncclRedOpDestroy, 0) X(ncclAlltoAll, 0)  \
    X(ncclAlltoAllv, 0) X(ncclGather, 0) X(ncclScatter, 0)                    \
    X(rcclxVersion, 0) X(rcclxStreamCreate, 0) X(rcclxStreamSynchronize, 0)   \
    X(rcclxStreamDestroy, 0) X(rcclxCommInitEnv, 0)          \
    X(rcclxCommSetLowPrecision, 0) X(rcclxCommGetLowPrecision, 0)

typedef struct {
    void *handle;
    char  path[PATH_MAX]; /* the real path of the file that answered */
    int   version;        /* ncclGetVersion */
    char  about[64];      /* "2.28.9", with our own version if it is ours */
#define X(name, required) __typeof__(name) *name; /* NULL: the library has none */
    NCCL_TABLE_LIST(X)
#undef X
} nccl_table;

/* Open a library by path, or by the linker's rules if there is no '/' in it.
 * Its symbols stay its own. 0, or TOOL_FAILED after a message. */
int nccl_table_open(nccl_table *t, const char *path);

/* The library linked into this program itself. Emulated GPUs live inside one copy
 * of the code, so a program can hand its streams and buffers to no other one. */
void nccl_table_linked(nccl_table *t);

/* Where our own library is: beside the program, ../lib/libnccl.so.2. */
void nccl_table_own(char *path, size_t nbytes);

#endif
