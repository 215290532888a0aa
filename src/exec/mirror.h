#ifndef RCCLX_EXEC_MIRROR_H
#define RCCLX_EXEC_MIRROR_H

/* What ranks of other machines know of this one: a copy of its area, kept up to date.
 *
 *   rank 0's machine                               rank 1's machine
 *   area 0  <- rank 0 writes                       area 0: the mirror, read by rank 1
 *   area 1: the mirror       ---- frames ----      area 1  <- rank 1 writes
 *
 * Every word of an area has one writer (docs/decisions/0001), so that whoever writes also
 * sends, and readers look where they always look: plans, messages and errors do not know
 * that a peer is far. A frame brings bytes and the counters that speak for them; counters
 * move in the order of the frames, when all bytes of earlier frames are there.
 *
 * What is written is sent once it is said to be readable: with the header, with a signal,
 * with a message. Bytes stay as they are until their reader says he is done (credit), so
 * that the network may take them from where they lie. */
#include "exec/exec.h"
#include "transport/net.h"

typedef struct rcclx_mirror rcclx_mirror;

/* Ranks that are not of this machine: node[r] differs from node[t->rank]. Makes their
 * mirrors (t->area) and opens the network, before any peer may connect. */
rcclx_status rcclx_mirror_open(rcclx_team *t, const rcclx_network *net, const char *devices, const uint8_t *node);
rcclx_status rcclx_mirror_address(rcclx_team *t, void *bytes, size_t *nbytes);
rcclx_status rcclx_mirror_letter(rcclx_team *t, int rank, void *bytes); /* of a network that writes some */
rcclx_status rcclx_mirror_connect(rcclx_team *t, int rank, const void *bytes, size_t nbytes);
rcclx_status rcclx_mirror_start(rcclx_team *t);  /* all are connected: a thread looks after the network from now on */
void         rcclx_mirror_close(rcclx_team *t);  /* what was sent arrives, within bounds; takes half-made ones */

static inline bool rcclx_is_far(const rcclx_team *t, int rank)
{
    return t->mirror && t->node[rank] != t->node[t->rank];
}

/* A counter of my area, and its value, to be sent. */
rcclx_mark rcclx_mark_of(const rcclx_team *t, const _Atomic uint64_t *counter, uint64_t value);

/* Send bytes of my area (NULL: none) and counters to a far rank, or RCCLX_ALL of them. */
void rcclx_mirror_push(rcclx_team *t, int to, const void *data, size_t nbytes, const rcclx_mark *marks, int nmarks);
/* The same to all far ranks but those of the first 64 whose bit is not set, with a few further bytes of my area, at most
 * RCCLX_FRAME_INSIDE. */
void rcclx_mirror_push_both(rcclx_team *t, uint64_t among, const void *data, size_t nbytes, const void *inside, size_t ninside,
                            const rcclx_mark *marks, int nmarks);
/* The same for a counter alone. */
void rcclx_mirror_count(rcclx_team *t, int to, const _Atomic uint64_t *counter, uint64_t value);
/* My ident, state last. */
void rcclx_mirror_tell(rcclx_team *t);
/* Rank 0's decisions. */
void rcclx_mirror_decide(rcclx_team *t, const rcclx_agreed *a);

/* Take what has arrived, if nobody else is at it. */
void rcclx_mirror_poll(rcclx_team *t);

/* Before anything arrives: an area's counters as they are at the beginning. */
void rcclx_area_start(rcclx_area *a, int nranks, uint64_t seq);

/* Is a far peer gone? Its words are those of the network. */
bool rcclx_mirror_lost(const rcclx_team *t, int rank, const char **why);

#endif
