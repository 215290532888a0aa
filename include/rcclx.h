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
 * port after MASTER_PORT; without those (mpirun, srun on one machine) by the
 * launcher's name of the job. RCCLX_RUN_ID (any words) keeps jobs apart. config may be NULL. */
ncclResult_t rcclxCommInitEnv(ncclComm_t *comm, ncclConfig_t *config);

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
