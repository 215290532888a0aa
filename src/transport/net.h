#ifndef RCCLX_TRANSPORT_NET_H
#define RCCLX_TRANSPORT_NET_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How ranks of different machines reach each other: by frames. A frame carries bytes
 * of its sender's area to where the receiver keeps its copy of that area, and says
 * which counters have moved. A network delivers every frame once, whole, in any order.
 *
 *   sender                                     receiver
 *   send(frame, data) ---- the wire ---->      place(frame): where the data belong
 *                                              landed(frame): they are there
 *
 * An end is one rank's of one communicator. Its functions are called by one thread at
 * a time, but for what arm has returned. What they call back they call from poll (or,
 * if something fails at once, from send). */

/* A counter of the sender's area and its new value. */
typedef struct {
    uint64_t value;
    uint32_t offset, width; /* in the area; 4 or 8 bytes */
} rcclx_mark;

enum { RCCLX_FRAME_MARKS = 3, RCCLX_FRAME_INSIDE = 64, RCCLX_NET_ADDRESS = 1024 };

typedef struct {
    uint64_t   seq;     /* of this pair, from 1 on */
    uint64_t   offset;  /* of the data, in the area */
    uint32_t   from;    /* the sender's rank */
    uint16_t   nmarks;
    uint16_t   what;    /* 0: of the area; 1: rank 0's decisions */
    rcclx_mark mark[RCCLX_FRAME_MARKS];
    uint32_t   inside_offset, ninside; /* further bytes of the area, in the frame itself; what is not used is not sent */
    unsigned char inside[RCCLX_FRAME_INSIDE];
} rcclx_frame;

static inline size_t rcclx_frame_bytes(const rcclx_frame *f)
{
    return offsetof(rcclx_frame, inside) + f->ninside;
}

typedef struct {
    void *owner;
    int   rank, nranks;
    char  devices[512]; /* names of interfaces, between commas, that may be used; "": any */
    void *(*place)(void *owner, const rcclx_frame *f, size_t nbytes); /* NULL: it makes no sense, drop it */
    void  (*landed)(void *owner, const rcclx_frame *f);
    void  (*lost)(void *owner, int rank, const char *why);            /* once a rank */
} rcclx_net_owner;

typedef struct {
    const char *name, *about;
    /* UNSUPPORTED with a text: it is not to be had on this machine. */
    rcclx_status (*open)(const rcclx_net_owner *o, void **end);
    /* At most RCCLX_NET_ADDRESS bytes by which a peer finds this end. */
    rcclx_status (*address)(void *end, void *bytes, size_t *nbytes);
    rcclx_status (*connect)(void *end, int rank, const void *bytes, size_t nbytes);
    /* The frame is copied; the data stay as they are until the receiver has got them. */
    void         (*send)(void *end, int rank, const rcclx_frame *f, const void *data, size_t nbytes);
    bool         (*poll)(void *end);  /* go on; true: something moved */
    bool         (*idle)(void *end);  /* everything sent has left */
    int          (*arm)(void *end);   /* a file handle that becomes readable when poll has work; -1: it has now */
    void         (*close)(void *end, double seconds); /* let what was sent arrive, for at most so long; takes half-made ones */
} rcclx_network;

extern const rcclx_network *const rcclx_networks[]; /* best first; ends with NULL */

/* The one that NCCL_NET names, any case; "": the first. USAGE: no such, and the text lists them. */
rcclx_status rcclx_network_find(const char *name, const rcclx_network **net);

#endif
