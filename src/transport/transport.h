#ifndef RCCLX_TRANSPORT_TRANSPORT_H
#define RCCLX_TRANSPORT_TRANSPORT_H

#include "base/status.h"
#include "plan/plan.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How the ranks of one machine reach each other's memory.
 *
 *   segment   one memfd a communicator, mapped by all its ranks: headers, slots,
 *             scratch, counters. Made by whoever gathers the ranks, handed over
 *             Unix sockets; no name anywhere, so nothing is left behind.
 *   arena     one sparse memfd a process, from which ncclMemAlloc serves; every
 *             peer process maps it whole when a communicator is made. A buffer of
 *             it is known to a peer by its offset alone.
 *   transport a way to reach a user's buffer of a peer: by pointer, through the
 *             mapped arena, or by the kernel (process_vm_readv). A row each. */

/* --- arena --------------------------------------------------------------- */

typedef struct {
    uint64_t key;    /* the process's; see base/process.h */
    size_t   nbytes; /* size of the reservation */
    int      fd;     /* -1 when the system gives none: buffers are then plain memory */
} rcclx_arena_info;

/* The process's arena, made on first use. `*info` may be sent to peers with the fd. */
rcclx_status rcclx_arena_get(rcclx_arena_info *info);

/* Memory of the arena, page aligned, zeroed, faulted in up to 256 MiB. nbytes 0: NULL. */
rcclx_status rcclx_arena_alloc(void **ptr, size_t nbytes);

/* ARGUMENT if ptr was not handed out by alloc or is free already. NULL is fine. */
rcclx_status rcclx_arena_free(void *ptr);

typedef enum { RCCLX_MEM_PLAIN, RCCLX_MEM_ARENA, RCCLX_MEM_FREED } rcclx_mem_place;

/* Where [ptr, ptr+nbytes) lies; *offset is set for ARENA. FREED: in the arena's
 * range, but not in one live allocation. */
rcclx_mem_place rcclx_arena_find(const void *ptr, size_t nbytes, uint64_t *offset);

size_t rcclx_arena_held(void); /* bytes handed out now */

typedef struct rcclx_mapping rcclx_mapping;

/* Map a peer process's arena; mappings are shared by all communicators of the
 * process and counted. The fd stays the caller's. */
rcclx_status rcclx_mapping_acquire(rcclx_mapping **m, uint64_t key, size_t nbytes, int fd);
void         rcclx_mapping_release(rcclx_mapping *m);

/* The address of a peer's buffer, its pages faulted in on first sight. NULL if out of range. */
void *rcclx_mapping_at(rcclx_mapping *m, uint64_t offset, size_t nbytes);

/* --- segment ------------------------------------------------------------- */

enum {
    RCCLX_MAX_RANKS  = 512,       /* of a communicator */
    RCCLX_MAX_PROCESSES = 127,    /* of a communicator on one machine */
    RCCLX_MAX_NODES  = 255,       /* machines */
    RCCLX_NLANES     = 2,
    RCCLX_NSLOTS     = 64,        /* operations a rank may be ahead of its slowest reader */
    RCCLX_SLOT_BYTES = 8192,      /* largest message that goes through a slot */
    RCCLX_INLINE     = 32,        /* bytes that fit beside the header in its cache line */
    RCCLX_LANE_BYTES = 1 << 20,   /* scratch a lane; the plan cuts it in slots */
    RCCLX_FIFO_SLOTS = 16,        /* messages in flight from one rank to another */
    RCCLX_FIFO_BYTES = 4096,      /* data a message carries with it; larger ones are fetched */
    RCCLX_PIPE_BYTES = 128 << 10, /* one of the two halves of a pair's pipe, for buffers nobody can reach */
    RCCLX_ERROR_TEXT = 1024,
    RCCLX_TUNED      = 41,        /* sizes that a tuner plug-in is asked about: 1 B to 1 TiB */
    RCCLX_NCALLS     = 64,        /* calls of a rank on a GPU that stay on record */
    RCCLX_GPU_RANKS  = 16,        /* with a GPU each, that share memory */
    RCCLX_SEGMENT_VERSION = 7,    /* of all that ranks share */
    RCCLX_GPU_SHARED = 1024,      /* allocations of a rank that peers have mapped */
};

/* A counter with one writer, alone in its cache line. */
typedef struct {
    _Alignas(64) _Atomic uint64_t value;
} rcclx_counter;

/* What a rank says when it starts an operation. seq is stored last (release). */
typedef struct {
    _Alignas(64) _Atomic uint64_t seq;
    uint32_t sig;      /* kind, type, operator, root, codec: equal on all ranks or the call is wrong */
    uint16_t flags;    /* RCCLX_HDR_*: where my buffers are */
    uint16_t history;  /* of all my calls up to this one, hashed: equal, or an earlier one differed */
    uint64_t count;
    uint64_t scalar;   /* PREMUL */
    union {
        struct {
            uint64_t in, out;           /* arena offset or address */
            uint64_t in_bytes, out_bytes;
        };
        unsigned char data[RCCLX_INLINE];
    };
} rcclx_header;

enum {
    RCCLX_HDR_IN_ARENA  = 1 << 0, /* `in` is an offset into my process's arena (or nobody reads IN) */
    RCCLX_HDR_OUT_ARENA = 1 << 1,
    RCCLX_HDR_OVERLAP   = 1 << 2, /* my IN and OUT share bytes */
    RCCLX_HDR_DATA      = 1 << 3, /* my data lies in the slot */
};

/* A message from one rank to another, one direction. */
typedef struct {
    _Alignas(64) _Atomic uint64_t seq; /* k+1 when the k-th message is here */
    uint32_t sig, mode;                /* mode: EAGER, FETCH, PIPE */
    uint64_t count, nbytes;
    uint64_t where;                    /* FETCH: arena offset or address */
    uint64_t in_arena;
    unsigned char pad[16];
    unsigned char data[RCCLX_FIFO_BYTES];
} rcclx_message;

/* What a rank says to one other; written by the rank whose area it is in. */
typedef struct {
    rcclx_counter piped;   /* halves of the pipe filled since the start */
    rcclx_counter taken;   /* messages taken from it */
    rcclx_counter drained; /* halves taken from its pipe to me */
    _Alignas(64) uint64_t table[2][2]; /* all-to-all-v: offset and bytes for it */
    rcclx_message slots[RCCLX_FIFO_SLOTS];
    _Alignas(4096) unsigned char pipe[2][RCCLX_PIPE_BYTES];
} rcclx_fifo;

/* UNFIT: its set-up failed. CLOSED and FAILED: it was ready before. */
typedef enum { RCCLX_RANK_ABSENT, RCCLX_RANK_UNFIT, RCCLX_RANK_READY, RCCLX_RANK_CLOSED, RCCLX_RANK_FAILED } rcclx_rank_state;

enum {
    RCCLX_REACH_CMA   = 1 << 0, /* the kernel reads their memory for me */
    RCCLX_REACH_ARENA = 1 << 1, /* I have mapped all their arenas */
};

/* What a rank says about itself to its peers and to whoever asks what it does. */
typedef struct {
    _Alignas(64) _Atomic uint32_t state;
    int32_t  pid;
    uint64_t key;              /* the process's */
    _Atomic uint32_t reach;    /* RCCLX_REACH_*: what this rank can do with every other process */
    uint64_t cores[16];        /* the cores it may run on, a bit each */
    uint64_t options, tuning;  /* hashes of the options that must agree, and of the tuning table */
    uint64_t start;            /* number of operations before the first: RCCLX_SEQ_START */
    int32_t  status;           /* why FAILED: a rcclx_status, and its text */
    int32_t  origin;           /* the rank that failed first; others pass it on */
    char     text[RCCLX_ERROR_TEXT];
    _Alignas(64) _Atomic uint64_t path; /* history << 32 | operation: what this rank has called so far */
    _Atomic uint64_t now; /* what it is in, RCCLX_NOW of exec/task.h; 0: nothing */
} rcclx_ident;

typedef enum { RCCLX_WINDOW_ABSENT, RCCLX_WINDOW_HERE, RCCLX_WINDOW_FAILED } rcclx_window_state;

/* What a rank says about device memory; window.h is the only user, so that the
 * pages of a communicator without GPUs never come into being. */
typedef struct {
    _Alignas(4096) _Atomic uint32_t state;    /* rcclx_window_state */
    _Atomic uint32_t holders;                 /* ranks of my process that use my window, a bit each: the last one frees it */
    _Atomic uint32_t waiting;                 /* I have letters that did not fit in somebody's socket */
    _Atomic uint32_t window[RCCLX_GPU_RANKS]; /* have I mapped this rank's window? An answer of window_state.h */
    char     why[512], failure[512];          /* why not; why FAILED */
    _Alignas(64) _Atomic uint32_t answer[RCCLX_GPU_RANKS][RCCLX_GPU_SHARED]; /* likewise of its buffers: generation << 2 | answer */
} rcclx_window_area;

/* A call a rank has handed to its GPU, for the texts of whoever asks. */
typedef struct {
    _Atomic uint64_t hash, count;
    _Atomic uint32_t turn, sig; /* sig: kind, type, operator, root, codec */
} rcclx_gpu_call;

/* What a rank says about its device. `here` is stored last; the second half later, and again and again. */
typedef struct {
    _Alignas(64) _Atomic uint32_t here;
    int32_t kind, device;      /* rcclx_gpu_kind + 1, 0: host memory; the device's number in its process */
    int32_t sms, most, least;  /* multiprocessors; blocks that its configuration allows, and asks for */
    char    pci[24];
    _Atomic uint32_t step;     /* of the test at init: how far; stored last */
    _Atomic uint32_t deaf, torn; /* a bit a peer: nothing comes from it; its lines come in parts */
    _Alignas(64) _Atomic uint32_t posted, started, finished; /* turns: the host's, and its kernels' when last looked at */
    rcclx_gpu_call call[RCCLX_NCALLS];
} rcclx_gpu_ident;

typedef struct {
    rcclx_ident   ident;
    rcclx_gpu_ident device;
    rcclx_counter done;                       /* last operation finished */
    rcclx_counter lane[RCCLX_NLANES];         /* operation << 32 | piece << 10 | phase */
    rcclx_header  header[RCCLX_NSLOTS];
    _Alignas(4096) unsigned char slot[RCCLX_NSLOTS][RCCLX_SLOT_BYTES];
    _Alignas(4096) unsigned char scratch[RCCLX_NLANES][RCCLX_LANE_BYTES];
    rcclx_window_area gpu;
    rcclx_fifo    fifo[];                     /* with each rank */
} rcclx_area;

/* What rank 0 decides for all. */
typedef struct {
    int32_t  cma, arenas, ordered; /* cma: 0 never, 1 wherever the kernel allows; arenas: 0 stage instead */
    uint64_t slot_max, chunk, cache_bytes;
    int32_t  gpu_threads, gpu_lanes, protos; /* of a block, 0: by device; most blocks, 0: by size; bit a rcclx_proto */
    int32_t  line;                           /* LL128: 0 never, 1 always, 2 where lines were seen to arrive whole */
    uint64_t gpu_ll, gpu_ll128;              /* bytes up to which these protocols run; 0: by ranks */
    int32_t  codec, codec_from;              /* low precision: a rcclx_codec_id, and who asked */
    uint32_t codec_kinds;                    /* for these, a bit a rcclx_kind */
    uint64_t codec_min;                      /* from so many bytes on; 0: by kind, ranks and device */
    uint8_t  tuned[RCCLX_COLL_COUNT][RCCLX_TUNED]; /* what a tuner plug-in chooses (algo/tuner.h) */
    rcclx_machine machine;                   /* rates, as on its processor */
    char     algo[256];
    char     options[2048];   /* its settings that must agree, as text */
} rcclx_agreed;

/* First page of the segment. */
typedef struct {
    uint64_t magic;
    uint32_t nareas, nranks, version;
    uint64_t token[2];
    uint64_t area_bytes;
    _Alignas(64) _Atomic uint32_t failed;   /* number of ranks whose state is FAILED or CLOSED early */
    _Atomic uint32_t sleepers, bell;        /* futex: who sleeps wakes when anyone rings */
    _Alignas(64) rcclx_agreed agreed;       /* rank 0's, if it is on this machine (rcclx_team_agreed) */
} rcclx_segment_head;

typedef struct {
    rcclx_segment_head *head;
    size_t              nbytes, area_bytes;
    int                 nareas;
} rcclx_segment;

/* Areas of nareas ranks, those of one machine, of a communicator of nranks. */
rcclx_status rcclx_segment_create(int nareas, int nranks, const uint64_t token[2], int *fd);
rcclx_status rcclx_segment_map(rcclx_segment *s, int fd, const uint64_t token[2]); /* fd stays the caller's */
void         rcclx_segment_unmap(rcclx_segment *s);                                /* takes zeroed ones */

/* Fault in what every small operation touches (headers, counters, slots of all
 * ranks), so that no early operation pays for it; scratch and pipes stay untouched. */
void         rcclx_segment_fault_in(const rcclx_segment *s);

static inline rcclx_area *rcclx_segment_area(const rcclx_segment *s, int index)
{
    return (rcclx_area *)((char *)s->head + 4096 + (size_t)index * s->area_bytes);
}

/* --- peers and the ways to them ------------------------------------------ */

typedef struct {
    int            rank, pid;
    bool           local;   /* same process: pointers are good */
    bool           cma;     /* the kernel copies between us */
    int            life;    /* pidfd; -1: same process, or none to be had */
    rcclx_mapping *arena;   /* NULL: same process or none */
} rcclx_peer;

/* One way to a buffer. map gives an address to load and store, or NULL; get and
 * put move bytes for us. A row leaves out what it cannot do. */
typedef struct {
    const char  *name, *about;
    void        *(*map)(const rcclx_peer *p, uint64_t where, bool in_arena, size_t nbytes);
    rcclx_status (*get)(const rcclx_peer *p, void *dst, uint64_t where, size_t nbytes);
    rcclx_status (*put)(const rcclx_peer *p, uint64_t where, const void *src, size_t nbytes);
} rcclx_transport;

extern const rcclx_transport *const rcclx_transports[]; /* best first; ends with NULL */

/* The first way that gives an address; NULL: only get and put, if cma. */
void        *rcclx_peer_map(const rcclx_peer *p, uint64_t where, bool in_arena, size_t nbytes);
rcclx_status rcclx_peer_get(const rcclx_peer *p, void *dst, uint64_t where, size_t nbytes);
rcclx_status rcclx_peer_put(const rcclx_peer *p, uint64_t where, const void *src, size_t nbytes);

/* Read 8 bytes of a process by its pid: may the kernel copy between us? */
bool rcclx_cma_probe(int pid, uint64_t where, uint64_t *value);

/* Open and close what watches a process; dead is true once it has ended. */
int  rcclx_life_open(int pid);
bool rcclx_life_dead(int life);
void rcclx_life_close(int life);

#endif
