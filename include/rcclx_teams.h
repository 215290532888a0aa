/* The host half of NCCL's device interface (2.28 to 2.31): what programs with
 * kernels of their own call from the CPU. This version has no kernels, so it
 * answers about ranks and teams and refuses the rest with ncclInvalidUsage.
 * NVIDIA's nccl_device.h declares the same functions; include one of the two. */
#ifndef RCCLX_TEAMS_H_
#define RCCLX_TEAMS_H_

#include "nccl.h"

#if !defined(_NCCL_DEVICE_CORE_H_)

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A regular selection of ranks: this process is number rank of nRanks, and
 * neighbours in the team are stride apart in the communicator. */
typedef struct ncclTeam {
    int nRanks, rank, stride;
} ncclTeam_t;

typedef struct ncclMultimemHandle {
    void *mcBasePtr;
} ncclMultimemHandle_t;

typedef struct ncclDevComm                 ncclDevComm_t;
typedef struct ncclDevCommRequirements     ncclDevCommRequirements_t;
typedef struct ncclDevResourceRequirements ncclDevResourceRequirements_t;
typedef struct ncclLsaBarrierHandle        ncclLsaBarrierHandle_t;
typedef struct ncclGinBarrierHandle        ncclGinBarrierHandle_t;
typedef struct ncclGinOutboxHandle         ncclGinOutboxHandle_t;
typedef struct ncclGinInboxA2AHandle       ncclGinInboxA2AHandle_t;
typedef struct ncclLLA2AHandle             ncclLLA2AHandle_t;
typedef struct ncclCftLeId                 ncclCftLeId_t;

/* What a communicator can do. Set size to the structure's size, magic to
 * NCCL_API_MAGIC and version to NCCL_VERSION_CODE; nothing beyond size is
 * written. */
typedef struct ncclCommProperties {
    size_t       size;
    unsigned int magic, version;
    int          rank, nRanks, cudaDev, nvmlDev;
    bool         deviceApiSupport, multimemSupport;
    int          ginType;
    int          nLsaTeams;
    bool         hostRmaSupport;
    int          railedGinType;
    uint64_t     commHash; /* since 2.31, and what follows */
    int          ginMinStride, ginConnectionType;
    bool         ginSupport[64];
    size_t       devCommRuntimeVersionSize;
} ncclCommProperties_t;

ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t *props);

/* All ranks; those whose memory a kernel could reach (here: this rank alone);
 * one of each such team. {0, 0, 0} for a communicator that does not exist. */
ncclTeam_t ncclTeamWorld(ncclComm_t comm);
ncclTeam_t ncclTeamLsa(ncclComm_t comm);
ncclTeam_t ncclTeamRail(ncclComm_t comm);
ncclTeam_t ncclTeamCft(ncclComm_t comm, int mode);
ncclTeam_t ncclTeamCftMultimem(ncclComm_t comm);

/* Rank `rank` of team, as a rank of the communicator or of its reachable team;
 * -1 for a communicator that does not exist. */
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank);
int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank);

/* Slots that an all-to-all of maxElts elements of maxEltSize bytes takes. */
int ncclLLA2ACalcSlots(int maxElts, int maxEltSize);

/* Not built yet. */
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements_t *reqs, ncclDevComm_t *outDevComm);
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const ncclDevComm_t *devComm);
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void **outPtr);
ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem,
                                          void **outPtr);
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsaRank, void **outPtr);
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void **outPtr);
ncclResult_t ncclGetMultimemDeviceLeInfo(ncclWindow_t window, size_t offset, ncclCftLeId_t *leId, size_t *leOffset);
ncclResult_t ncclGetCftDeviceLeInfo(ncclWindow_t window, size_t offset, int peerCft, ncclTeam_t cftTeam,
                                    ncclCftLeId_t *leId, size_t *leOffset);
ncclResult_t ncclGetPeerDeviceLeInfo(ncclWindow_t window, size_t offset, int peerWorld, ncclCftLeId_t *leId,
                                     size_t *leOffset);
ncclResult_t ncclLsaBarrierCreateRequirement(ncclTeam_t team, int nBarriers, ncclLsaBarrierHandle_t *outHandle,
                                             ncclDevResourceRequirements_t *outReq);
ncclResult_t ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team, int nBarriers,
                                             ncclGinBarrierHandle_t *outHandle, ncclDevResourceRequirements_t *outReq);
ncclResult_t ncclGinOutboxCreateRequirement(int nBlocks, int size_log2, ncclGinOutboxHandle_t *outHandle,
                                            ncclDevResourceRequirements_t *outReq);
ncclResult_t ncclGinInboxA2ACreateRequirement(ncclTeam_t peers, int nBlocks, int size_log2,
                                              ncclGinInboxA2AHandle_t *outHandle, ncclDevResourceRequirements_t *outReq);
ncclResult_t ncclLLA2ACreateRequirement(int nBlocks, int nSlots, ncclLLA2AHandle_t *outHandle,
                                        ncclDevResourceRequirements_t *outReq);

#ifdef __cplusplus
}
#endif

#endif
#endif
