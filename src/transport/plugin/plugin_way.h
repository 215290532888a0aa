#ifndef RCCLX_TRANSPORT_PLUGIN_WAY_H
#define RCCLX_TRANSPORT_PLUGIN_WAY_H

/* Private to transport/plugin: the way to a far rank, four connections of a plug-in.
 *
 *   me                                     the far rank
 *   out[NOTES]  -- note: head, frame, up to NOTE_DATA bytes of data ->  in[NOTES]
 *   out[DATA]   -- longer data, in parts ------------------------->  in[DATA]
 *   in[NOTES], in[DATA] <------------ the same ----------------------  out[..]
 *
 * Messages of a connection arrive in the order of their receives. A note's receive is
 * there beforehand, into memory of the connection; that of a part is posted when its note
 * has come, into the very place where the data belong. */
#include "transport/plugin/plugin_inside.h"

enum {
    RCCLX_NOTE_DATA   = 8192,    /* bytes of data that go with their note */
    RCCLX_LANE_DEPTH  = 8,       /* requests under way of a connection: as many as every version allows, on both ends */
    RCCLX_PART_BYTES  = 1 << 20, /* largest part; registered memory is cut by it */
};

typedef enum { RCCLX_NOTE_EAGER = 1, RCCLX_NOTE_LARGE, RCCLX_NOTE_BYE, RCCLX_NOTE_PING } rcclx_note_kind;

typedef struct {
    uint32_t kind, nframe; /* nframe: bytes of the frame that follow */
    uint64_t nbytes, part; /* of the data; LARGE: of a part of them */
    unsigned char bytes[sizeof(rcclx_frame) + RCCLX_NOTE_DATA];
} rcclx_note;

/* A frame that is being sent or received. */
typedef struct rcclx_plugin_flight {
    struct rcclx_plugin_flight *next;
    rcclx_note_kind kind;
    bool            staged;            /* its note lies in the connection's memory */
    rcclx_frame     frame;
    char           *data;
    size_t          nbytes, part, posted, done;
    void           *mr;                /* of its own, where the data lie outside of the areas */
} rcclx_plugin_flight;

typedef struct {
    rcclx_plugin_flight *first, *last;
} rcclx_plugin_queue;

typedef struct {
    void *request;
    int   n;
    rcclx_plugin_flight *flight[RCCLX_PLUGIN_GROUP];
    size_t nbytes[RCCLX_PLUGIN_GROUP];
} rcclx_plugin_request;

/* A connection, one direction. */
typedef struct {
    void       *listen, *comm;
    rcclx_note *notes;                 /* a slot a request */
    void       *notes_mr;
    char       *base;                  /* the area whose data it carries */
    size_t      nbytes;
    void      **mrs;                   /* of two parts' length from each multiple of RCCLX_PART_BYTES on; NULL: not yet */
    uint32_t    head, tail, nparts;    /* requests finished, posted; parts posted */
    bool        broken;                /* a call has failed: its requests are not the plug-in's any more, and none is made */
    rcclx_plugin_request under[RCCLX_LANE_DEPTH];
} rcclx_plugin_lane;

enum { RCCLX_LANE_NOTES, RCCLX_LANE_DATA };

struct rcclx_plugin_end;

typedef struct {
    struct rcclx_plugin_end *e;
    int      rank;
    bool     wanted, open, lost;       /* connect was called; all four are connected; the owner knows that it is gone */
    bool     leaving, deaf, mute;      /* this end has said goodbye; nothing comes any more; nothing can be sent */
    int      byes;                     /* goodbyes that have come; see rcclx_way_leave */
    uint64_t died, told;               /* when deaf or mute began; when something was last sent */
    char     why[320];
    unsigned char handle[2][128];      /* the peer's; the plug-in writes to them, too */
    rcclx_plugin_lane  out[2], in[2];
    rcclx_plugin_queue notes, data, coming;
} rcclx_plugin_way;

typedef struct rcclx_plugin_block rcclx_plugin_block;

typedef struct rcclx_plugin_end {
    rcclx_plugin    *p;
    const rcclx_plugin_version *v;
    const void      *table;
    void            *context;
    bool             opened;           /* there is a context */
    rcclx_net_owner  owner;
    int              devices[RCCLX_PLUGIN_DEVICES], ndevices; /* those used, numbers in p->device */
    int              group;            /* receives of a call */
    size_t           part;
    int              timer;
    uint64_t         nap_ns, deadline, now;
    double           timeout;
    rcclx_plugin_way *ways;            /* one a rank */
    rcclx_plugin_flight *unused;
    rcclx_plugin_block  *blocks;
} rcclx_plugin_end;

/* Flights: taken from the end's store, which grows; NULL: no memory. */
rcclx_plugin_flight *rcclx_plugin_take(rcclx_plugin_end *e);
void                 rcclx_plugin_give(rcclx_plugin_end *e, rcclx_plugin_flight *f);

void rcclx_plugin_push(rcclx_plugin_queue *q, rcclx_plugin_flight *f);
rcclx_plugin_flight *rcclx_plugin_pop(rcclx_plugin_queue *q);

/* The device for a pair's connections, the same number of times each. */
int  rcclx_plugin_device_of(const rcclx_plugin_end *e, int rank);

/* Set-up: go on connecting; what all four need; the end of it. */
bool rcclx_way_meet(rcclx_plugin_way *w);
void rcclx_way_close(rcclx_plugin_way *w);

/* Going on: send what waits, take what has come; true: something moved. */
bool rcclx_way_send(rcclx_plugin_way *w);
bool rcclx_way_receive(rcclx_plugin_way *w);
bool rcclx_way_idle(const rcclx_plugin_way *w);
/* Say goodbye, RCCLX_LANE_DEPTH times: one for each receive that the other end has posted or will have, so that nothing is
 * under way when connections are closed, which not every plug-in survives. The other end answers likewise.
 * drop: what waits to be sent is of no use any more. */
void rcclx_way_leave(rcclx_plugin_way *w, bool drop);
bool rcclx_way_left(const rcclx_plugin_way *w); /* both have, and all of it has come */
bool rcclx_way_due(const rcclx_plugin_way *w); /* data are still to come, of which a note has come */

/* The registration that covers f's next nbytes; false: it failed, which has been noted. */
bool rcclx_lane_memory(rcclx_plugin_way *w, rcclx_plugin_lane *l, rcclx_plugin_flight *f, size_t nbytes, void **mr);
void rcclx_lane_forget(rcclx_plugin_way *w, rcclx_plugin_lane *l, rcclx_plugin_flight *f); /* its own one */

/* A call has failed. fail: note it, what may still come is awaited. lose: the owner hears of it now. */
void rcclx_way_fail(rcclx_plugin_way *w, bool receiving, const char *what, int result);
void rcclx_lane_fail(rcclx_plugin_way *w, rcclx_plugin_lane *l, int result); /* the same of a send or receive */
void rcclx_way_lose(rcclx_plugin_way *w, const char *why);

#endif
