#ifndef RCCLX_COMM_BOOTSTRAP_H
#define RCCLX_COMM_BOOTSTRAP_H

/* Private to comm/: ranks meet at a root and get the shared memory. */
#include "comm/comm.h"
#include "transport/net.h"

/* What a rank says on arrival, and what all are told of it. */
typedef struct {
    int32_t  rank, pid;
    uint64_t host, key;    /* machine and process */
    uint64_t arena_bytes;
    int32_t  arena_fd;     /* its number in the rank's process; -1: none */
    int32_t  probe_ready;
    uint64_t probe, token; /* address of a number in its memory, and the number: to try the ways to it */
} rcclx_arrival;

typedef struct {
    int           nranks, segment_fd;
    uint64_t      token[2], id;              /* token: of the shared memory; id: the communicator's, shown in logs */
    rcclx_arrival peer[RCCLX_MAX_RANKS];
    int           arena_fd[RCCLX_MAX_RANKS]; /* here; -1: own process, none, another machine, or the same as an earlier one */
    int           nnodes, node[RCCLX_MAX_RANKS]; /* machines, in the order of their first ranks */
    int           root;                      /* with several: the socket over which cards are swapped; -1 */
} rcclx_meeting;

/* Go to the root of id as `me`, wait until all nranks are there (at most timeout seconds; *aborted
 * ends it). Those of one machine get their shared memory. The handles in *m are the caller's to
 * close (rcclx_meeting_fini). */
rcclx_status rcclx_meet(const rcclx_unique_id *id, int nranks, const rcclx_arrival *me, double timeout,
                        const _Atomic uint32_t *aborted, rcclx_meeting *m);
void         rcclx_meeting_fini(rcclx_meeting *m);

/* How far ranks find a rank, or why they cannot. */
typedef struct {
    int32_t  rank, status;              /* rcclx_status */
    int32_t  device;                    /* 0: host memory; 1 + rcclx_gpu_kind */
    uint32_t naddress, nletter;         /* nletter: bytes that it has for each peer */
    uint8_t  address[RCCLX_NET_ADDRESS];
    char     network[32], text[512];    /* text: when status is not OK */
} rcclx_card;

/* Everybody's cards, by rank. Waits for all; fails on all ranks if one fails. */
rcclx_status rcclx_meeting_swap(rcclx_meeting *m, int rank, const rcclx_card *mine, rcclx_card *all, double timeout,
                                const _Atomic uint32_t *aborted);

/* After the cards, if these say nletter: the i-th nletter bytes of `mine` are for rank i, of `theirs` from rank i. */
rcclx_status rcclx_meeting_letters(rcclx_meeting *m, int rank, size_t nletter, const void *mine, void *theirs, double timeout,
                                   const _Atomic uint32_t *aborted);

#endif
