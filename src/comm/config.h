#ifndef RCCLX_COMM_CONFIG_H
#define RCCLX_COMM_CONFIG_H

#include <limits.h>

/* The settings of one communicator after parsing: whatever structure version
 * the user passed, with the environment's overrides applied. Strings are owned
 * copies inside. A number that nobody set and that has no fixed default holds
 * RCCLX_CONFIG_UNSET. The parser is api/config_parse.h. */
#define RCCLX_CONFIG_UNSET INT_MIN

typedef struct {
    int  blocking;            /* 1 unless set: calls return when done */
    int  cgaClusterSize;      /* 0..8 */
    int  minCTAs;             /* 1..maxCTAs */
    int  maxCTAs;             /* up to 64 */
    int  splitShare;          /* children of a split share resources */
    int  trafficClass;        /* or unset */
    int  collnetEnable;       /* 0, 1 */
    int  CTAPolicy;           /* NCCL_CTA_POLICY_* */
    int  shrinkShare;         /* 0, 1 */
    int  nvlsCTAs;            /* or unset */
    int  nChannelsPerNetPeer; /* or unset */
    int  nvlinkCentricSched;  /* 0, 1 */
    int  graphUsageMode;      /* 0 no graphs, 1 one at a time, 2 mixed */
    int  numRmaCtx;
    int  maxP2pPeers;         /* or unset */
    int  graphStreamOrdering; /* 0, 1 */
    int  launchOrderImplicit; /* 0, 1 */
    int  numRmaSig;
    int  rmaEagerInit;        /* 0, 1 */
    int  hostCftMode;         /* 1..3, or unset */
    char netName[64];         /* "": any */
    char commName[128];       /* "": none */
} rcclx_comm_config;

#endif
