#ifndef RCCLX_COMM_BOOTSTRAP_H
#define RCCLX_COMM_BOOTSTRAP_H

/* Private to comm/: ranks meet at a root and get the shared memory. */
#include "comm/comm.h"

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
    uint64_t      token[2];
    rcclx_arrival peer[RCCLX_MAX_RANKS];
    int           arena_fd[RCCLX_MAX_RANKS]; /* here; -1: own process, none, or the same as an earlier one */
} rcclx_meeting;

/* Go to the root of id as `me`, wait until all nranks are there (at most timeout seconds; *aborted
 * ends it). The handles in *m are the caller's to close (rcclx_meeting_fini). */
rcclx_status rcclx_meet(const rcclx_unique_id *id, int nranks, const rcclx_arrival *me, double timeout,
                        const _Atomic uint32_t *aborted, rcclx_meeting *m);
void         rcclx_meeting_fini(rcclx_meeting *m);

#endif
