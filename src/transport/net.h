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

enum { RCCLX_FRAME_MARKS = 3, RCCLX_FRAME_INSIDE = 64, RCCLX_NET_ADDRESS = 1024, RCCLX_NET_LETTER = 256 };

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

typedef struct rcclx_network rcclx_network;

typedef struct {
    void *owner;
    const rcclx_network *net; /* whose end it is */
    uint64_t id;              /* the communicator's */
    int   rank, nranks;
    char  devices[512]; /* names of interfaces, between commas, that may be used; "": any */
    void *(*memory)(void *owner, int rank, size_t *nbytes); /* the area data come from (mine) or go to; may be registered */
    void *(*place)(void *owner, const rcclx_frame *f, size_t nbytes); /* NULL: it makes no sense, drop it */
    void  (*landed)(void *owner, const rcclx_frame *f);
    void  (*lost)(void *owner, int rank, const char *why);            /* once a rank */
} rcclx_net_owner;

struct rcclx_network {
    const char *name, *about;
    const void *how;     /* the row's own */
    size_t      nletter; /* bytes that an end has to tell each peer apart, at most RCCLX_NET_LETTER; 0: its address is enough */
    /* UNSUPPORTED with a text: it is not to be had on this machine. */
    rcclx_status (*open)(const rcclx_net_owner *o, void **end);
    /* At most RCCLX_NET_ADDRESS bytes by which a peer finds this end. */
    rcclx_status (*address)(void *end, void *bytes, size_t *nbytes);
    /* nletter bytes for this peer. Before connect, for all. */
    rcclx_status (*letter)(void *end, int rank, void *bytes);
    /* bytes: the peer's address, or its letter to this rank. Need not wait: what is sent meanwhile is kept. */
    rcclx_status (*connect)(void *end, int rank, const void *bytes, size_t nbytes);
    /* The frame is copied; the data stay as they are until the receiver has got them. */
    void         (*send)(void *end, int rank, const rcclx_frame *f, const void *data, size_t nbytes);
    bool         (*poll)(void *end);  /* go on; true: something moved */
    bool         (*idle)(void *end);  /* everything sent has left */
    int          (*arm)(void *end);   /* a file handle that becomes readable when poll has work; -1: it has now */
    void         (*close)(void *end, double seconds); /* let what was sent arrive, for at most so long; takes half-made ones */
};

extern const rcclx_network *const rcclx_networks[]; /* best first; ends with NULL */

/* The one that NCCL_NET names, any case, of plug-ins (plugin/plugin.h) or of these; "": the first plug-in that works, else UCX
 * where there are cards with verbs, else Socket. id: the communicator's. USAGE: no such, and the text lists them. */
rcclx_status rcclx_network_find(const char *name, uint64_t id, const rcclx_network **net);

#endif
