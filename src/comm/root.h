#ifndef RCCLX_COMM_ROOT_H
#define RCCLX_COMM_ROOT_H

/* Private to comm/: the two ends of the bootstrap's protocol. */
#include "comm/bootstrap.h"
#include "comm/socket.h"

#include <stddef.h>

#define RCCLX_ID_MAGIC    0x5243434c58494431u
#define RCCLX_HELLO_MAGIC 0x5243434c58484c31u

/* The unique id. Everything in it is plain bytes, so that it may travel any way. */
typedef struct {
    uint64_t magic;
    uint64_t token[2];   /* who knows it belongs to us */
    uint64_t host;       /* the root's machine; 0: not known yet */
    int32_t  late;       /* the root may start after the others ask: keep trying; or one of RCCLX_ID_... */
    int32_t  has_tcp;
    uint16_t family, port; /* network order */
    uint32_t scope;
    uint8_t  addr[16];
} rcclx_id_fields;

_Static_assert(sizeof(rcclx_id_fields) <= RCCLX_UNIQUE_ID_BYTES, "an id is 128 bytes");

enum {
    RCCLX_ID_HERE = 2, /* late, and on this machine */
    RCCLX_ID_WIDE = 3, /* late, and its name is a loopback address here, which others do not find: listen at all */
};

typedef struct {
    uint64_t      magic, token[2];
    int32_t       version, nranks;
    int32_t       team, unused;         /* ranks of the communicator, of which those that meet here may be a part */
    rcclx_arrival me;
} rcclx_hello;

typedef struct {
    uint64_t      magic;
    int32_t       status;                 /* rcclx_status */
    int32_t       nranks, root_pid, segment_fd; /* -1: on several machines, which have their own */
    char          text[RCCLX_ERROR_TEXT]; /* when status is not OK; then nobody follows */
    struct {
        rcclx_arrival who;
        int32_t       handle, unused;     /* which of the handles alongside is its arena; -1: none. The first is the segment */
    } peer[RCCLX_MAX_RANKS];              /* as many as ranks are sent */
} rcclx_welcome;

static inline size_t rcclx_welcome_bytes(const rcclx_welcome *w)
{
    const size_t n = w->status == RCCLX_OK && w->nranks > 0 && w->nranks <= RCCLX_MAX_RANKS ? (size_t)w->nranks : 0;

    return offsetof(rcclx_welcome, peer) + n * sizeof(w->peer[0]);
}

/* All cards, or why there are none. */
typedef struct {
    uint64_t   magic;
    int32_t    status, nranks;
    char       text[RCCLX_ERROR_TEXT];
    rcclx_card card[RCCLX_MAX_RANKS];     /* as many as ranks are sent */
} rcclx_deck;

static inline size_t rcclx_deck_bytes(int nranks)
{
    return offsetof(rcclx_deck, card) + (size_t)nranks * sizeof(rcclx_card);
}

void rcclx_id_socket_name(const uint64_t token[2], char *name, size_t n);
void rcclx_id_address(const rcclx_id_fields *f, rcclx_address *a);

/* Start the root in a thread of its own; it takes the listening sockets (-1: none). It ends when
 * all are served, or at the deadline. */
rcclx_status rcclx_root_start(const uint64_t token[2], int tcp, int local, double timeout);

/* Take letters of nletter bytes from each rank to each, over the sockets fds, and hand them out in this order. */
void rcclx_letters_carry(const int *fds, const int *order, int nranks, size_t nletter, uint64_t deadline);

#endif
