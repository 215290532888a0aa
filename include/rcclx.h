/* What this library has beyond NCCL's interface: the device of a communicator,
 * queues on the host, rank and size from the launcher, and a look inside.
 * Results and errors are as in nccl.h. */
#ifndef RCCLX_H_
#define RCCLX_H_

#include "nccl.h"

#define RCCLX_VERSION "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/* The library's own version, RCCLX_VERSION when it was built. */
const char *rcclxVersion(void);

/* ---- Devices -----------------------------------------------------------
 *
 * ncclCommInitRankConfig on a named device: "host", "cuda", "hip", or "auto"
 * (the device RCCLX_DEVICE names, else the best one this machine has). NULL is
 * "auto". ncclInvalidArgument for a name that is none of these,
 * ncclInvalidUsage for a device that this machine or build lacks. */
ncclResult_t rcclxCommInitRankDevice(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, const char *device,
                                     ncclConfig_t *config);

/* ---- Queues on the host ------------------------------------------------
 *
 * A stream of the host device: operations given to it are carried out one
 * after the other by a worker, while the caller goes on. */
ncclResult_t rcclxStreamCreate(cudaStream_t *stream);

/* Wait until all that was queued is done; the first error of it is returned.
 * The stream NULL is always done. */
ncclResult_t rcclxStreamSynchronize(cudaStream_t stream);

/* ncclSuccess when all is done, ncclInProgress when not, else the error. */
ncclResult_t rcclxStreamQuery(cudaStream_t stream);

/* Wait for what is queued, then free. NULL is fine. */
ncclResult_t rcclxStreamDestroy(cudaStream_t stream);

/* One operation of a queue: *position, asked after the call that queued it, is how many
 * operations (a group is one) the stream was given so far, and rcclxStreamWait waits until
 * that many are done, at most so many seconds; negative: without limit, 0: a look.
 * ncclInProgress when they are not, ncclSuccess when they are and none failed, else the
 * first failure among them, however often it is asked. */
ncclResult_t rcclxStreamPosition(cudaStream_t stream, uint64_t *position);
ncclResult_t rcclxStreamWait(cudaStream_t stream, uint64_t position, double seconds);

/* ---- Deadlines ----------------------------------------------------------
 *
 * From now on an operation of this communicator that waits for a peer so many seconds is an
 * error (ncclRemoteError) that names it; 0: never. It begins as RCCLX_TIMEOUT says. What
 * is in the midst of waiting on the host goes by it, too; a GPU's graphs keep what held when
 * they were captured. Each rank has its own. */
ncclResult_t rcclxCommSetTimeout(ncclComm_t comm, double seconds);

/* ---- Ranks from the launcher -------------------------------------------
 *
 * What torchrun (also `rcclx run`), Slurm, Open MPI, MPICH (Hydra) or PMIx say
 * about this process. */
typedef struct {
    int         rank, size;           /* in the job */
    int         localRank, localSize; /* on this machine; -1 if the launcher does not say */
    const char *launcher;             /* "torchrun", "slurm", "openmpi", "mpich", "pmix"; "none" */
} rcclxEnv_t;

/* Without a launcher: rank 0 of 1, launcher "none". ncclInvalidUsage when the
 * variables are there but make no sense. */
ncclResult_t rcclxEnvRank(rcclxEnv_t *env);

/* A communicator of all processes of the job, everything from the environment.
 * Rank 0 is met at NCCL_COMM_ID=host:port; without it at MASTER_ADDR and the
 * port after MASTER_PORT; without those, by srun on several machines, on the step's
 * first node, and on one machine by the launcher's name of the job. RCCLX_RUN_ID (any words) keeps jobs apart. config may be NULL. */
ncclResult_t rcclxCommInitEnv(ncclComm_t *comm, ncclConfig_t *config);

/* ---- Low precision ------------------------------------------------------
 *
 * float, bfloat16 and half data may cross the wire as codes of 8 bits, a scale every 32
 * elements: "fp8" or "int8". Buffers keep their types; sums are taken in float. AllReduce,
 * ReduceScatter (sum, avg), AllGather, Broadcast, AlltoAll, AlltoAllv, Send and Recv have
 * it (the last three not yet between GPUs); what cannot be coded runs in full precision. RCCLX_LOW_PRECISION switches it on for a
 * program, the functions below for a communicator, an option for a call.
 *
 * From now on: data of operations of at least minBytes use codec, "off", "fp8" or "int8". 0
 * leaves the size to the library (on the host: never). All ranks call it alike, between the
 * same operations; one that differs is told so by the next operation it matters to
 * (ncclInvalidUsage or an async error, as for any difference). What is queued already stays
 * as it is. Children of a split begin with what the environment says. */
ncclResult_t rcclxCommSetLowPrecision(ncclComm_t comm, const char *codec, size_t minBytes);

/* What holds: *codec is a constant, *minBytes as it was set. Either may be NULL. */
ncclResult_t rcclxCommGetLowPrecision(ncclComm_t comm, const char **codec, size_t *minBytes);

/* For a call: elements of the list ncclCollConfig_t.ext of ncclAllReduceConfig and its
 * likes, key.vendorId RCCLX_VENDOR_ID. The call then uses the codec whatever its size, or,
 * where that cannot be, returns ncclInvalidArgument. All ranks pass the same.
 *
 *     ncclConfigExt_t  low = { NULL, { RCCLX_VENDOR_ID, RCCLX_OPTION_LOW_PRECISION }, { .s = "int8" } };
 *     ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
 *     config.ext = &low;
 */
#define RCCLX_VENDOR_ID 0x72636c78 /* "rclx" */

#define RCCLX_OPTION_LOW_PRECISION       1 /* val.s: "off", "fp8", "int8" */
#define RCCLX_OPTION_LOW_PRECISION_CODEC 2 /* val.i: one of these */

#define RCCLX_LOW_PRECISION_OFF  0
#define RCCLX_LOW_PRECISION_FP8  1
#define RCCLX_LOW_PRECISION_INT8 2

/* ---- Looking inside ----------------------------------------------------
 *
 * Write a description of `what` into buf, at most n bytes with the final zero:
 * "options" (the settings in force), "process", "comm" (needs comm); json 0 is
 * text. *needed, if not NULL, is the size that holds all of it, so that a call
 * with n = 0 asks for it. ncclInvalidArgument for an unknown name. */
ncclResult_t rcclxDump(const char *what, ncclComm_t comm, int json, char *buf, size_t n, size_t *needed);

#ifdef __cplusplus
}
#endif

#endif
