#ifndef RCCLX_TRANSPORT_WINDOW_STATE_H
#define RCCLX_TRANSPORT_WINDOW_STATE_H

/* Between the files of window.h:
 *
 *   window.c         open and close
 *   window_host.c    windows in host memory
 *   window_mail.c    letters: the datagram socket
 *   window_own.c     the owner's side of registered buffers: register, token
 *   window_serve.c   the peers' side: map what letters announce */
#include "device/kernels/work.h"
#include "transport/window.h"

#include <pthread.h>

_Static_assert((int)RCCLX_GPU_RANKS == GP_RANKS && (int)RCCLX_GPU_SHARED == GP_REGS, "areas are as large as the kernels' map");

typedef enum { RCCLX_ANSWER_NONE, RCCLX_ANSWER_MAPPED, RCCLX_ANSWER_REFUSED, RCCLX_ANSWER_DROPPED } rcclx_answer;

#define RCCLX_LETTER_MAGIC UINT64_C(0x5243434c58574e44)

/* WINDOW: map my window. SHARE: map this allocation as number `index`; its answer
 * carries the generation. DROP: unmap it. ROOM: your letters would fit again. */
typedef enum { RCCLX_LETTER_WINDOW, RCCLX_LETTER_SHARE, RCCLX_LETTER_DROP, RCCLX_LETTER_ROOM } rcclx_letter_kind;

/* How another process gets at it. NONE: it cannot. */
typedef enum { RCCLX_WAY_NONE, RCCLX_WAY_FD, RCCLX_WAY_IPC } rcclx_way;

typedef struct {
    uint64_t magic, token[2];
    uint32_t from, kind, index, generation, way, pad;
    uint64_t base;            /* of the allocation in the sender's process */
    uint64_t nbytes, offset;  /* of the allocation; of the window in it */
    unsigned char ipc[RCCLX_GPU_IPC_BYTES];
    char     pci[24];         /* WINDOW: the device it lies on */
} rcclx_letter;

typedef enum { RCCLX_SHARED_FREE, RCCLX_SHARED_LIVE, RCCLX_SHARED_DROPPING } rcclx_shared_state;

/* An allocation of this rank that peers have mapped, or are asked to: a registration
 * in the words of kernels/work.h. Several registered buffers may lie in it. */
typedef struct {
    rcclx_shared_state state;
    rcclx_answer verdict;     /* of all: MAPPED, or REFUSED by one; NONE: not all have answered */
    rcclx_way way;
    bool     stale;           /* its memory was freed without deregister, and is another's now */
    uint32_t generation;      /* of the index; 30 bits */
    uint32_t told, untold;    /* ranks that a SHARE, and a DROP, went to; a bit each */
    int      uses;            /* buffers in it */
    uint64_t base, nbytes;    /* what a handle covers */
    uint64_t alloc, serial;   /* as gpu->pointer calls it */
} rcclx_shared;

/* A registered buffer. Sorted by begin; reach: the largest end up to here. */
typedef struct {
    uint64_t begin, end, reach;
    int      reg, uses, shared;
} rcclx_range;

typedef struct {
    void    *base;       /* as imported; NULL: same process, or refused */
    uint32_t generation; /* 0: none */
} rcclx_import;

struct rcclx_windows {
    const rcclx_gpu *gpu;
    int      device, rank, nranks;
    uint64_t token[2], nbytes, key[GP_RANKS];
    int      peer_device[GP_RANKS];
    rcclx_window_area *area[GP_RANKS];
    int      fd;
    void    *window, *map;          /* window: host: where the host has it */
    bool     host;                  /* windows are in host memory: mapped by every rank for itself */
    rcclx_gpu_stream stream;        /* for map's entries: open and serve only */
    void    *imported[GP_RANKS];    /* windows: base as imported; NULL: same process, device memory */
    char    *at[GP_RANKS];
    bool     whole;
    char     why[512];

    pthread_mutex_t lock;           /* guards the owner's side, here to `gone` */
    rcclx_shared shared[GP_REGS];
    int      nshared;               /* highest index in use + 1 */
    rcclx_range *ranges;
    int      nranges, room, last, next;
    bool     unsent;
    uint32_t gone;                  /* peers that have closed their socket, a bit each */

    rcclx_import *imports[GP_RANKS]; /* [GP_REGS], made when needed; serve only */
};

/* Device current, and driver calls allowed during anybody's capture. */
typedef struct {
    rcclx_gpu_scope scope;
    int relaxed;
} rcclx_window_visit;

rcclx_status rcclx_window_enter(const rcclx_windows *w, rcclx_window_visit *v);
void         rcclx_window_leave(const rcclx_windows *w, const rcclx_window_visit *v);

/* A file of w->nbytes, and its mapping for the host and for the device; unmap takes NULL. */
rcclx_status rcclx_window_host_make(const rcclx_windows *w, int *fd);
rcclx_status rcclx_window_host_map(const rcclx_windows *w, int fd, void **base, char **at);
void         rcclx_window_host_unmap(const rcclx_windows *w, void *base);

/* Mail. post: AGAIN when the peer's socket is full (or not there, before it says
 * HERE), PEER_LOST when it is gone. receive: AGAIN: no letter; *fd -1: none with it. */
rcclx_status rcclx_window_listen(rcclx_windows *w);
rcclx_status rcclx_window_post(const rcclx_windows *w, int peer, rcclx_letter *l, int fd);
rcclx_status rcclx_window_receive(const rcclx_windows *w, rcclx_letter *l, int *fd);

/* Act on a letter; device current. */
void rcclx_window_take(rcclx_windows *w, const rcclx_letter *l, int fd);

/* Post what did not fit before; device current, lock held. */
void rcclx_window_flush(rcclx_windows *w);

/* This process's hold on the owner's window, if it is one of this process; let_go
 * frees it with the last one. */
bool rcclx_window_hold(rcclx_windows *w, int owner);
void rcclx_window_let_go(rcclx_windows *w, int owner, void *window);

/* What a rank has said about another's window; that they are in host memory now makes it another question. */
static inline rcclx_answer rcclx_window_answer(const rcclx_windows *w, int rank, int of)
{
    const uint32_t a = atomic_load_explicit(&w->area[rank]->window[of], memory_order_acquire);

    return a >> 2 == (uint32_t)w->host ? (rcclx_answer)(a & 3) : RCCLX_ANSWER_NONE;
}

static inline void rcclx_window_say(const rcclx_windows *w, int of, rcclx_answer a)
{
    atomic_store_explicit(&w->area[w->rank]->window[of], (uint32_t)w->host << 2 | (uint32_t)a, memory_order_release);
}

static inline bool rcclx_window_local(const rcclx_windows *w, int rank)
{
    return w->key[rank] == w->key[w->rank];
}

#endif
