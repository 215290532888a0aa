/* Collective communication with the interface of NCCL 2.28.9.
 *
 * A program written for NCCL compiles against this header unchanged, and a
 * program already built for NCCL or RCCL finds the same symbols in
 * libnccl.so.2, librccl.so.1 and librcclx.so, which are one library.
 *
 *   1. One process calls ncclGetUniqueId and hands the 128 bytes to all others.
 *   2. Every rank calls ncclCommInitRank with the same id and its own number.
 *   3. Every rank calls the same collectives in the same order.
 *   4. Every rank calls ncclCommFinalize (optional) and ncclCommDestroy.
 *
 * Words used below. n is the number of ranks of the communicator. A count is
 * in elements of the datatype, never in bytes. A buffer needs no more than the
 * alignment of its element, and may be NULL when no element of it is touched.
 * In place means that send and receive memory are the same, laid out as the
 * function says; any other overlap is undefined.
 *
 * Streams. Operations are queued on a stream and the call returns. On the host
 * device the stream NULL means "done when the call, or the outermost
 * ncclGroupEnd, returns"; rcclxStreamCreate (rcclx.h) makes a queue.
 *
 * Results. ncclInvalidArgument and ncclInvalidUsage concern the failing call
 * only, and the communicator stays usable. Other errors stay with the
 * communicator: every later call on it answers the same, ncclCommGetAsyncError
 * tells it, and ncclCommAbort is the way out. ncclGetLastError has the sentence.
 *
 * Threads. One thread at a time may use a communicator, except that
 * ncclCommAbort and ncclCommGetAsyncError may be called from any thread at any
 * moment. Different communicators are independent. */
#ifndef NCCL_H_
#define NCCL_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/* Streams and 16-bit floats come from the GPU vendor's headers where those are
 * found. Without them, or with RCCLX_NO_CUDA_HEADERS defined, a stream is an
 * opaque pointer of the same size. */
#if !defined(RCCLX_NO_CUDA_HEADERS) && defined(__has_include)
#if defined(__HIP_PLATFORM_AMD__)
#if __has_include(<hip/hip_runtime_api.h>)
#include <hip/hip_runtime_api.h>
#define RCCLX_HAVE_HIP_HEADERS 1
#if defined(__cplusplus) && __has_include(<hip/hip_fp16.h>)
#include <hip/hip_fp16.h>
#endif
#endif
#elif __has_include(<cuda_runtime.h>)
#include <cuda_runtime.h>
#define RCCLX_HAVE_CUDA_HEADERS 1
#if __has_include(<cuda_fp16.h>)
#include <cuda_fp16.h>
#endif
#if __has_include(<cuda_bf16.h>)
#include <cuda_bf16.h>
#endif
#if defined(__cplusplus) && __has_include(<cuda_fp8.h>)
#include <cuda_fp8.h>
#endif
#endif
#endif
#if defined(RCCLX_HAVE_HIP_HEADERS)
#if !defined(cudaStream_t)
typedef hipStream_t cudaStream_t;
#endif
#elif !defined(RCCLX_HAVE_CUDA_HEADERS)
typedef struct CUstream_st *cudaStream_t;
#endif

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_SUFFIX ""

#define NCCL_VERSION_CODE 22809
#define NCCL_VERSION(X, Y, Z)                                                 \
    (((X) <= 2 && (Y) <= 8) ? (X) * 1000 + (Y) * 100 + (Z) : (X) * 10000 + (Y) * 100 + (Z))

/* What RCCL has beyond NCCL, for programs that ask. */
#define RCCL_BFLOAT16 1
#define RCCL_FLOAT8 1
#define RCCL_GATHER_SCATTER 1
#define RCCL_ALLTOALLV 1
#define RCCL_ALLREDUCE_WITH_BIAS 1

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Types ------------------------------------------------------------- */

/* A communicator: a handle, checked at every call. One that was destroyed or
 * never existed gives ncclInvalidArgument. */
typedef struct ncclComm *ncclComm_t;
#define NCCL_COMM_NULL NULL

/* Memory registered by all ranks together; NULL is a valid answer and means
 * that the memory is used like any other. */
typedef struct ncclWindow_vidmem *ncclWindow_t;

/* 128 bytes that all ranks of a new communicator share. Passed by value. */
#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
    ncclSuccess            = 0,
    ncclUnhandledCudaError = 1, /* a GPU driver call failed */
    ncclSystemError        = 2, /* a system call failed, or memory ran out */
    ncclInternalError      = 3, /* a fault of this library */
    ncclInvalidArgument    = 4, /* a value makes no sense */
    ncclInvalidUsage       = 5, /* the call is wrong here and now */
    ncclRemoteError        = 6, /* a peer is gone, or the network failed */
    ncclInProgress         = 7, /* a non-blocking communicator is still busy */
    ncclTimeout            = 8, /* since 2.30 */
    ncclNumResults         = 9
} ncclResult_t;

/* "Not set" in configurations. */
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_UNDEF_FLOAT -1.0f

/* A color of ncclCommSplit: this rank takes part and gets no communicator. */
#define NCCL_SPLIT_NOCOLOR -1

#define NCCL_API_MAGIC 0xcafebeef

/* Flags of ncclCommWindowRegister, and the alignment it asks for in bytes. */
#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_WIN_STRICT_ORDERING 0x02
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

/* Bits of ncclConfig_t.CTAPolicy. */
#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02

/* Flags of ncclCommShrink: ABORT stops the parent's operations first. */
#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01

#define NCCL_REVOKE_DEFAULT 0x00
#define NCCL_SUSPEND_MEM 0x01

/* Settings of one communicator. Start from NCCL_CONFIG_INITIALIZER, set what
 * you need. Environment variables win over these. Structures of every earlier
 * and later version are understood; what this version does not know is
 * ignored. */
typedef struct ncclConfig_v22800 {
    size_t       size;    /* the first three are set by the initializer */
    unsigned int magic;
    unsigned int version;
    int          blocking;            /* 1: calls return when done; 0: they may return ncclInProgress */
    int          cgaClusterSize;      /* 0..8, GPU thread block clusters */
    int          minCTAs;             /* at least 1; GPU blocks or host workers */
    int          maxCTAs;             /* at least minCTAs */
    const char  *netName;             /* network by name; copied */
    int          splitShare;          /* 1: children of ncclCommSplit share resources */
    int          trafficClass;        /* network quality of service */
    const char  *commName;            /* shown in logs; copied */
    int          collnetEnable;       /* 0 or 1 */
    int          CTAPolicy;           /* NCCL_CTA_POLICY_* */
    int          shrinkShare;         /* as splitShare, for ncclCommShrink */
    int          nvlsCTAs;            /* at least 1 */
    int          nChannelsPerNetPeer; /* 1..64 */
    int          nvlinkCentricSched;  /* 0 or 1 */
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER                                               \
    {                                                                         \
        sizeof(ncclConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE,              \
        NCCL_CONFIG_UNDEF_INT, /* blocking */                                 \
        NCCL_CONFIG_UNDEF_INT, /* cgaClusterSize */                           \
        NCCL_CONFIG_UNDEF_INT, /* minCTAs */                                  \
        NCCL_CONFIG_UNDEF_INT, /* maxCTAs */                                  \
        NCCL_CONFIG_UNDEF_PTR, /* netName */                                  \
        NCCL_CONFIG_UNDEF_INT, /* splitShare */                               \
        NCCL_CONFIG_UNDEF_INT, /* trafficClass */                             \
        NCCL_CONFIG_UNDEF_PTR, /* commName */                                 \
        NCCL_CONFIG_UNDEF_INT, /* collnetEnable */                            \
        NCCL_CONFIG_UNDEF_INT, /* CTAPolicy */                                \
        NCCL_CONFIG_UNDEF_INT, /* shrinkShare */                              \
        NCCL_CONFIG_UNDEF_INT, /* nvlsCTAs */                                 \
        NCCL_CONFIG_UNDEF_INT, /* nChannelsPerNetPeer */                      \
        NCCL_CONFIG_UNDEF_INT, /* nvlinkCentricSched */                       \
    }

/* What ncclGroupSimulateEnd found: microseconds. */
typedef struct ncclSimInfo_v22200 {
    size_t       size;
    unsigned int magic;
    unsigned int version;
    float        estimatedTime;
} ncclSimInfo_t;

#define NCCL_SIM_INFO_INITIALIZER                                             \
    {                                                                         \
        sizeof(ncclSimInfo_t), 0x74685283, NCCL_VERSION_CODE, NCCL_UNDEF_FLOAT \
    }

/* Operators. Values from ncclNumOps up are made by ncclRedOpCreatePreMulSum.
 * What each does to each type, and how it rounds: docs/numerics.md. */
typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;
typedef enum {
    ncclSum      = 0,
    ncclProd     = 1,
    ncclMax      = 2,
    ncclMin      = 3,
    ncclAvg      = 4,
    ncclNumOps   = 5,
    ncclMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(ncclRedOp_dummy_t))
} ncclRedOp_t;

typedef enum {
    ncclInt8       = 0,
    ncclChar       = 0,
    ncclUint8      = 1,
    ncclInt32      = 2,
    ncclInt        = 2,
    ncclUint32     = 3,
    ncclInt64      = 4,
    ncclUint64     = 5,
    ncclFloat16    = 6,
    ncclHalf       = 6,
    ncclFloat32    = 7,
    ncclFloat      = 7,
    ncclFloat64    = 8,
    ncclDouble     = 8,
    ncclBfloat16   = 9,
    ncclFloat8e4m3 = 10,
    ncclFloat8e5m2 = 11,
    ncclNumTypes   = 12
} ncclDataType_t;

/* Where the scalar of ncclRedOpCreatePreMulSum lives: in device memory, read
 * when an operation runs, or in host memory, read before the call returns. On
 * the host device both are read before the call returns. */
typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

/* ---- The library ------------------------------------------------------- */

/* The interface's version, NCCL_VERSION_CODE of the library. */
ncclResult_t ncclGetVersion(int *version);

/* The fixed text of a result. Never NULL, never freed. */
const char *ncclGetErrorString(ncclResult_t result);

/* The sentence behind the newest error of this process: rank, function,
 * argument, value and what to do. comm may be NULL. "" before the first error.
 * Valid until this thread asks again. */
const char *ncclGetLastError(ncclComm_t comm);

/* Kept for old programs; does nothing. */
void ncclResetDebugInit(void);

/* ---- Memory ------------------------------------------------------------ */

/* size bytes that peers can reach directly: the fastest buffers for every
 * operation. Page aligned and zeroed; zero bytes give NULL. */
ncclResult_t ncclMemAlloc(void **ptr, size_t size);

/* Free what ncclMemAlloc gave; NULL is fine. Operations on it must be done. */
ncclResult_t ncclMemFree(void *ptr);

/* ---- Communicators ----------------------------------------------------- */

/* A fresh id, made by one process and handed to all ranks by your own means.
 * It serves one communicator. NCCL_COMM_ID=host:port fixes the address. */
ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId);

/* Create rank `rank` of `nranks`. All ranks call it together; it returns when
 * all arrived, or when RCCLX_INIT_TIMEOUT seconds passed, with the list of who
 * did not. Several ranks of one thread go between ncclGroupStart and
 * ncclGroupEnd. ncclInvalidArgument: nranks < 1, rank outside 0..nranks-1. */
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank);

/* The same with settings. config NULL means the defaults. */
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config);

/* The same with nId ids, 1 <= nId <= nranks, in the same order on every rank,
 * which spreads the work of meeting over several processes. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds,
                                      ncclConfig_t *config);

/* ndev ranks in this thread: comm[i] on device devlist[i], or i when devlist
 * is NULL. On the host device the numbers are names only. Use them inside
 * groups. */
ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist);

/* Wait until everything queued is done on this rank and tell the peers. After
 * it only ncclCommDestroy, ncclCommAbort and ncclCommGetAsyncError are allowed. */
ncclResult_t ncclCommFinalize(ncclComm_t comm);

/* Free the communicator, finalizing it first if that was not done. NULL is
 * fine. */
ncclResult_t ncclCommDestroy(ncclComm_t comm);

/* Stop whatever runs, on this rank only, and free the communicator, within a
 * second, in any state, from any thread. NULL is fine. Peers that wait for
 * this rank get an error. */
ncclResult_t ncclCommAbort(ncclComm_t comm);

/* Make the communicator refuse new operations; flags must be 0. */
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags);

/* Divide: ranks of one color (>= 0) form a communicator, ordered by key, then
 * by old rank. All ranks of comm call it. With NCCL_SPLIT_NOCOLOR a rank gets
 * *newcomm = NULL. config NULL inherits. On a non-blocking communicator
 * *newcomm is written before ncclCommGetAsyncError(comm) says ncclSuccess. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config);

/* Continue without some ranks: the survivors call it, the excluded do not. */
ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,
                            ncclConfig_t *config, int shrinkFlags);

/* *asyncError: ncclSuccess, ncclInProgress (non-blocking), or the first error.
 * Cheap; meant to be polled, from any thread. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError);

/* How many ranks, which device, and which rank this is. */
ncclResult_t ncclCommCount(const ncclComm_t comm, int *count);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank);

/* Announce that size bytes at buff will be used often with comm. A hint: it
 * changes no result. *handle goes to ncclCommDeregister. */
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle);

/* The collective form: all ranks register together. *win = NULL with
 * ncclSuccess means that windows bring nothing here; everything still works.
 * Deregistering NULL is fine. */
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);

/* ---- Operators of your own --------------------------------------------- */

/* An operator that multiplies this rank's input by *scalar (one element of
 * datatype), then sums. It belongs to comm and works with that datatype only;
 * ranks may use different scalars. */
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm);

/* Give it back. Operations already queued with it are not disturbed. */
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

/* ---- Collectives -------------------------------------------------------
 *
 * Errors of all: ncclInvalidArgument for an unknown datatype or operator, a
 * root outside 0..n-1, a needed buffer that is NULL, a count whose bytes do
 * not fit into memory, a communicator that does not exist. Ranks that disagree
 * about the call get ncclInvalidUsage, never wrong data with success. */

/* recvbuff[i] = op over ranks of sendbuff[i], on all ranks; count elements
 * each. In place: sendbuff == recvbuff. All ranks receive the same bits. */
ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream);

/* As ncclAllReduce, but only the root receives; elsewhere recvbuff is unused. */
ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream);

/* recvbuff = the root's sendbuff, count elements; sendbuff is unused on the
 * others. In place: sendbuff == recvbuff on the root. */
ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream);

/* The old form of ncclBroadcast: buff is both. */
ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream);

/* recvbuff = all sendbuffs in rank order: sendcount in, n * sendcount out.
 * In place: sendbuff == recvbuff + rank * sendcount. */
ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream);

/* Reduce n * recvcount elements, rank r keeps part r: recvcount out.
 * In place: recvbuff == sendbuff + rank * recvcount. */
ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);

/* Part j of my sendbuff becomes part rank of rank j's recvbuff. count is per
 * pair: both buffers hold n * count. In place: sendbuff == recvbuff. */
ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                          cudaStream_t stream);

/* The root's recvbuff = all sendbuffs in rank order, count each.
 * In place on the root: sendbuff == recvbuff + root * count. */
ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream);

/* Rank r's recvbuff = part r of the root's sendbuff, count each.
 * In place on the root: recvbuff == sendbuff + root * count. */
ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, cudaStream_t stream);

/* ---- Point to point ----------------------------------------------------
 *
 * The peer calls the other one with the same count and datatype. Between two
 * ranks messages match in order. Sends and receives that need one another go
 * into one group; a rank may send to itself inside a group. */
ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream);

/* ---- Groups ------------------------------------------------------------
 *
 * Calls between Start and End are collected by this thread and begin at the
 * outermost End. Groups nest. An error inside is also returned by the
 * outermost End, which then starts nothing; the next group begins afresh. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

/* Close the group without running it; estimatedTime is what it would take,
 * all of it in full precision. simInfo may be NULL. */
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo);

/* ---- RCCL's additions -------------------------------------------------- */

/* The old name of ncclAlltoAll. */
ncclResult_t ncclAllToAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                          cudaStream_t stream);

/* All-to-all with a count and a displacement (elements) for each of the n
 * peers: sendcounts[j] elements at sendbuff + sdispls[j] go to rank j,
 * recvcounts[j] from rank j come to recvbuff + rdispls[j]. sendcounts[j] here
 * equals recvcounts[rank] there. The arrays are read before the call returns. */
ncclResult_t ncclAlltoAllv(const void *sendbuff, const size_t sendcounts[], const size_t sdispls[], void *recvbuff,
                           const size_t recvcounts[], const size_t rdispls[], ncclDataType_t datatype, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclAllToAllv(const void *sendbuff, const size_t sendcounts[], const size_t sdispls[], void *recvbuff,
                           const size_t recvcounts[], const size_t rdispls[], ncclDataType_t datatype, ncclComm_t comm,
                           cudaStream_t stream);

/* ncclAllReduce, then recvbuff[i] = op(recvbuff[i], acc[i]) with this rank's
 * acc, count elements. Sum only. */
ncclResult_t ncclAllReduceWithBias(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const void *acc);

/* Custom algorithms of old RCCL: accepted and without effect, as there. */
typedef int  mscclAlgoHandle_t;
ncclResult_t mscclLoadAlgo(const char *mscclAlgoFilePath, mscclAlgoHandle_t *mscclAlgoHandle, int rank);
ncclResult_t mscclRunAlgo(const void *sendBuff, const size_t sendCounts[], const size_t sDisPls[], void *recvBuff,
                          const size_t recvCounts[], const size_t rDisPls[], size_t count, ncclDataType_t dataType,
                          int root, int peer, ncclRedOp_t op, mscclAlgoHandle_t mscclAlgoHandle, ncclComm_t comm,
                          cudaStream_t stream);
ncclResult_t mscclUnloadAlgo(mscclAlgoHandle_t mscclAlgoHandle);

/* ---- Functions of later NCCL versions ----------------------------------
 *
 * Declared so that newer programs compile and link. Those that are not built
 * yet return ncclInvalidUsage and say so in ncclGetLastError. Define
 * RCCLX_NO_LATER_API to leave them out. The host functions of the device
 * interface (ncclDevCommCreate, ncclTeamWorld, ...) are exported too; their
 * types come with nccl_device.h. */
#ifndef RCCLX_NO_LATER_API

/* 2.29: grow a communicator; one-sided operations. */
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *uniqueId);
ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm,
                          ncclConfig_t *config);
ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **outUserPtr);

typedef struct {
    int opCnt;  /* signals to wait for */
    int peer;   /* from whom */
    int sigIdx; /* which signal */
    int ctx;    /* of which context */
} ncclWaitSignalDesc_t;

ncclResult_t ncclPutSignal(const void *localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin,
                           size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclWaitSignal(int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm, cudaStream_t stream);

/* 2.29.7: give GPU memory back for a while; what a communicator holds, bytes. */
typedef enum {
    ncclStatGpuMemSuspend   = 0, /* can be suspended */
    ncclStatGpuMemSuspended = 1, /* 1: suspended now */
    ncclStatGpuMemPersist   = 2, /* stays */
    ncclStatGpuMemTotal     = 3
} ncclCommMemStat_t;

ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t ncclCommResume(ncclComm_t comm);
ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value);

/* 2.30: read the library's settings by name ("NCCL_DEBUG"). */
typedef struct ncclParamHandle *ncclParamHandle_t;

ncclResult_t ncclParamBind(ncclParamHandle_t *out, const char *key);
ncclResult_t ncclParamGetI8(ncclParamHandle_t h, int8_t *out);
ncclResult_t ncclParamGetI16(ncclParamHandle_t h, int16_t *out);
ncclResult_t ncclParamGetI32(ncclParamHandle_t h, int32_t *out);
ncclResult_t ncclParamGetI64(ncclParamHandle_t h, int64_t *out);
ncclResult_t ncclParamGetU8(ncclParamHandle_t h, uint8_t *out);
ncclResult_t ncclParamGetU16(ncclParamHandle_t h, uint16_t *out);
ncclResult_t ncclParamGetU32(ncclParamHandle_t h, uint32_t *out);
ncclResult_t ncclParamGetU64(ncclParamHandle_t h, uint64_t *out);
ncclResult_t ncclParamGetStr(ncclParamHandle_t h, const char **out);
ncclResult_t ncclParamGet(ncclParamHandle_t h, void *out, int maxLen, int *len);
ncclResult_t ncclParamGetParameter(const char *key, const char **value, int *valueLen);
ncclResult_t ncclParamGetAllParameterKeys(const char ***table, int *tableLen);
void         ncclParamDumpAll(void);

/* 2.31: hints for one call. Ours are in rcclx.h; options of other vendors are ignored. */
typedef struct ncclConfigExt {
    struct ncclConfigExt *next;
    struct {
        int vendorId;
        int optionId;
    } key;
    union {
        int         i;
        const char *s;
        void       *raw;
    } val;
} ncclConfigExt_t;

typedef struct ncclCollConfig_v23100 {
    size_t           size;
    unsigned int     magic;
    unsigned int     version;
    ncclConfigExt_t *ext;
    int              minCTAs;
    int              maxCTAs;
    int              nvlsCTAs;
    int              cgaClusterSize;
    const char      *algSelection;
    int              forceAlgSelection;
    int              CTAPolicy;
    uint64_t         userProfilerTag;
} ncclCollConfig_t;

#define NCCL_COLLCONFIG_INITIALIZER                                           \
    {                                                                         \
        sizeof(ncclCollConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE,          \
        NCCL_CONFIG_UNDEF_PTR, /* ext */                                      \
        NCCL_CONFIG_UNDEF_INT, /* minCTAs */                                  \
        NCCL_CONFIG_UNDEF_INT, /* maxCTAs */                                  \
        NCCL_CONFIG_UNDEF_INT, /* nvlsCTAs */                                 \
        NCCL_CONFIG_UNDEF_INT, /* cgaClusterSize */                           \
        NCCL_CONFIG_UNDEF_PTR, /* algSelection */                             \
        1,                     /* forceAlgSelection */                        \
        NCCL_CONFIG_UNDEF_INT, /* CTAPolicy */                                \
        0,                     /* userProfilerTag */                          \
    }

/* The collectives above with hints; NULL means none. This version checks the
 * structure and follows the hints of rcclx.h; those of NCCL's own not yet. */
ncclResult_t ncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t ncclBroadcastConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t ncclReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                              ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t *config);
ncclResult_t ncclAllGatherConfig(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t ncclReduceScatterConfig(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                                     ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                     const ncclCollConfig_t *config);
ncclResult_t ncclAlltoAllConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t ncclGatherConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                              ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
ncclResult_t ncclScatterConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
#endif

/* ---- Profiling names ---------------------------------------------------
 *
 * Every ncclX is a weak symbol for pncclX: a tool that defines its own ncclX
 * sees the calls and passes them on to pncclX. */
#define RCCLX_PROFILED(name) extern __typeof__(name) p##name
RCCLX_PROFILED(ncclGetVersion);
RCCLX_PROFILED(ncclGetErrorString);
RCCLX_PROFILED(ncclGetLastError);
RCCLX_PROFILED(ncclResetDebugInit);
RCCLX_PROFILED(ncclMemAlloc);
RCCLX_PROFILED(ncclMemFree);
RCCLX_PROFILED(ncclGetUniqueId);
RCCLX_PROFILED(ncclCommInitRank);
RCCLX_PROFILED(ncclCommInitRankConfig);
RCCLX_PROFILED(ncclCommInitRankScalable);
RCCLX_PROFILED(ncclCommInitAll);
RCCLX_PROFILED(ncclCommFinalize);
RCCLX_PROFILED(ncclCommDestroy);
RCCLX_PROFILED(ncclCommAbort);
RCCLX_PROFILED(ncclCommRevoke);
RCCLX_PROFILED(ncclCommSplit);
RCCLX_PROFILED(ncclCommShrink);
RCCLX_PROFILED(ncclCommGetAsyncError);
RCCLX_PROFILED(ncclCommCount);
RCCLX_PROFILED(ncclCommCuDevice);
RCCLX_PROFILED(ncclCommUserRank);
RCCLX_PROFILED(ncclCommRegister);
RCCLX_PROFILED(ncclCommDeregister);
RCCLX_PROFILED(ncclCommWindowRegister);
RCCLX_PROFILED(ncclCommWindowDeregister);
RCCLX_PROFILED(ncclRedOpCreatePreMulSum);
RCCLX_PROFILED(ncclRedOpDestroy);
RCCLX_PROFILED(ncclAllReduce);
RCCLX_PROFILED(ncclReduce);
RCCLX_PROFILED(ncclBroadcast);
RCCLX_PROFILED(ncclBcast);
RCCLX_PROFILED(ncclAllGather);
RCCLX_PROFILED(ncclReduceScatter);
RCCLX_PROFILED(ncclAlltoAll);
RCCLX_PROFILED(ncclGather);
RCCLX_PROFILED(ncclScatter);
RCCLX_PROFILED(ncclSend);
RCCLX_PROFILED(ncclRecv);
RCCLX_PROFILED(ncclGroupStart);
RCCLX_PROFILED(ncclGroupEnd);
RCCLX_PROFILED(ncclGroupSimulateEnd);
RCCLX_PROFILED(ncclAllToAll);
RCCLX_PROFILED(ncclAlltoAllv);
RCCLX_PROFILED(ncclAllToAllv);
RCCLX_PROFILED(ncclAllReduceWithBias);
#ifndef RCCLX_NO_LATER_API
RCCLX_PROFILED(ncclCommGetUniqueId);
RCCLX_PROFILED(ncclCommGrow);
RCCLX_PROFILED(ncclWinGetUserPtr);
RCCLX_PROFILED(ncclPutSignal);
RCCLX_PROFILED(ncclSignal);
RCCLX_PROFILED(ncclWaitSignal);
RCCLX_PROFILED(ncclCommSuspend);
RCCLX_PROFILED(ncclCommResume);
RCCLX_PROFILED(ncclCommMemStats);
RCCLX_PROFILED(ncclParamBind);
RCCLX_PROFILED(ncclParamGetI8);
RCCLX_PROFILED(ncclParamGetI16);
RCCLX_PROFILED(ncclParamGetI32);
RCCLX_PROFILED(ncclParamGetI64);
RCCLX_PROFILED(ncclParamGetU8);
RCCLX_PROFILED(ncclParamGetU16);
RCCLX_PROFILED(ncclParamGetU32);
RCCLX_PROFILED(ncclParamGetU64);
RCCLX_PROFILED(ncclParamGetStr);
RCCLX_PROFILED(ncclParamGet);
RCCLX_PROFILED(ncclParamGetParameter);
RCCLX_PROFILED(ncclParamGetAllParameterKeys);
RCCLX_PROFILED(ncclParamDumpAll);
RCCLX_PROFILED(ncclAllReduceConfig);
RCCLX_PROFILED(ncclBroadcastConfig);
RCCLX_PROFILED(ncclReduceConfig);
RCCLX_PROFILED(ncclAllGatherConfig);
RCCLX_PROFILED(ncclReduceScatterConfig);
RCCLX_PROFILED(ncclAlltoAllConfig);
RCCLX_PROFILED(ncclGatherConfig);
RCCLX_PROFILED(ncclScatterConfig);
#endif
#undef RCCLX_PROFILED

#ifdef __cplusplus
}
#endif

#endif
