#ifndef RCCLX_DEVICE_GPU_EMU_INSIDE_H
#define RCCLX_DEVICE_GPU_EMU_INSIDE_H

/* What the files of the emulated driver share.
 *
 *   gpu_emu.c          the table of functions, devices, what a thread has set
 *   gpu_emu_memory.c   allocations, and those of peers mapped here
 *   gpu_emu_stream.c   streams: queues of work, a thread each
 *   gpu_emu_event.c    events
 *   gpu_emu_graph.c    capture, graphs
 *   gpu_emu_block.c    kernels: blocks as threads, lanes as fibers (gpu_emu_fiber.h)
 *
 * Locks, in the order they may be taken: graph, capturing, streams, a stream's, an event's, blocks. */
#include "device/gpu_emu.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct emu_stream emu_stream;
typedef struct emu_event emu_event;
typedef struct emu_chain emu_chain;
typedef struct emu_capture emu_capture;
typedef struct emu_allocation emu_allocation;
typedef struct emu_runner emu_runner;
typedef void emu_run(const void *args);

/* Threads of a device that wait for a block to run. */
typedef struct {
    pthread_mutex_t lock;
    emu_runner     *idle;
} emu_blocks;

typedef struct {
    emu_stream *streams;     /* the default stream is one of them */
    emu_stream *standard;
    emu_blocks  blocks;
    size_t      used;        /* bytes allocated */
    uint64_t    unreachable; /* bit per peer */
} emu_device;

typedef struct {
    rcclx_gpu       gpu;
    size_t          capacity;        /* bytes of a device */
    pthread_mutex_t memory;          /* guards allocations, serial, used */
    emu_allocation *allocations;
    uint64_t        serial;
    pthread_mutex_t streams;         /* guards the lists of streams */
    pthread_mutex_t capturing;       /* guards captures, ncaptures, and what they hold */
    emu_capture    *captures;
    uint64_t        ncaptures;
    emu_device      devices[RCCLX_GPU_MAX];
} emu_state;

emu_state *rcclx_emu_state(void);
int        rcclx_emu_device(void);              /* current in this thread */

/* ---- work of a stream */
typedef enum { EMU_KERNEL, EMU_COPY, EMU_FILL, EMU_RECORD, EMU_WAIT } emu_what;

typedef struct emu_item emu_item;
struct emu_item {
    emu_item *next;
    emu_what  what;
    union {
        struct { emu_run *run; unsigned blocks, threads; } kernel;
        struct { void *dst; const void *src; size_t nbytes; } copy;
        struct { uint32_t *dst; uint32_t word; size_t nwords; } fill;
        struct { emu_event *event; uint64_t ticket; } at;
    };
    size_t nargs;
    _Alignas(16) unsigned char args[];
};

struct emu_event {
    pthread_mutex_t lock;     /* guards what follows */
    pthread_cond_t  change;
    atomic_int      refs;     /* its handle, items in queues */
    int             device;
    bool            timing;
    uint64_t        recorded; /* tickets given out */
    uint64_t        done;     /* the newest one reached */
    uint64_t        ns;       /* and when */
    emu_event      *inner;    /* last recorded in a capture: what stands for it there */
    uint64_t        capture;  /* and which */
    emu_chain      *chain;    /* of an inner one: who records it, after how much work */
    unsigned        nwork;
};

struct emu_stream {
    emu_stream     *next;
    int             device;
    atomic_int      refs;      /* its handle, its worker, a call that waits; falls with the list locked */
    bool            orphan;    /* destroyed, but has work; guarded by the list's lock */
    pthread_mutex_t lock;      /* guards what follows */
    pthread_cond_t  more, less;
    emu_item       *first, **last;
    uint64_t        submitted, finished;
    bool            working, stop;
    pthread_t       worker;    /* if working */
    rcclx_status    failed;
    emu_chain      *chain;     /* being captured; guarded by `capturing` */
};

/* What is captured of one stream. */
struct emu_chain {
    emu_chain   *next;
    emu_capture *capture;
    emu_stream  *stream;
    int          device;
    emu_item    *first, **last;
    unsigned     nwork, joined; /* items but records; of these, another chain waits for */
};

emu_item    *rcclx_emu_item(emu_what what, size_t nargs);
void         rcclx_emu_items_free(emu_item *i);
emu_stream  *rcclx_emu_stream_new(int device);
void         rcclx_emu_stream_drop(emu_stream *s);                   /* its owner does not want it any more */
rcclx_status rcclx_emu_submit(emu_stream *s, emu_item *i);           /* now, or to its capture; takes the item, NULL: NOMEM */
rcclx_status rcclx_emu_splice(emu_stream *s, emu_item *i);           /* a list, now */
rcclx_status rcclx_emu_find(const char *call, rcclx_gpu_stream handle, emu_stream **s);
emu_event   *rcclx_emu_event_new(bool timing);
void         rcclx_emu_event_put(emu_event *e);
emu_event   *rcclx_emu_event_get(emu_event *e);
uint64_t     rcclx_emu_event_ticket(emu_event *e);
void         rcclx_emu_event_reach(emu_event *e, uint64_t ticket);
void         rcclx_emu_event_await(emu_event *e, uint64_t ticket);

/* ---- capture */
rcclx_status rcclx_emu_unsafe(const char *call);                     /* fails in a thread that captures */
rcclx_status rcclx_emu_spoil(emu_stream *s, const char *call);       /* fails if the stream is being captured */
bool         rcclx_emu_capture_add(emu_stream *s, emu_item *i);      /* true: it is part of a capture now */
rcclx_status rcclx_emu_capture_record(emu_event *e, emu_stream *s, bool *captured);
rcclx_status rcclx_emu_capture_wait(emu_stream *s, emu_event *e, bool *captured);

/* ---- kernels: all blocks at once, until all have returned */
rcclx_status rcclx_emu_grid(emu_blocks *b, emu_run *run, unsigned blocks, unsigned threads, const void *args);

/* ---- the table's functions, by file */
rcclx_status rcclx_emu_alloc(void **ptr, size_t nbytes, bool flags);
rcclx_status rcclx_emu_free(void *ptr);
rcclx_status rcclx_emu_alloc_host(void **ptr, size_t nbytes);
rcclx_status rcclx_emu_free_host(void *ptr);
rcclx_status rcclx_emu_register_host(void *ptr, size_t nbytes);
rcclx_status rcclx_emu_unregister_host(void *ptr);
rcclx_status rcclx_emu_memory(size_t *left, size_t *total);
rcclx_status rcclx_emu_pointer(const void *ptr, rcclx_gpu_pointer *p);
rcclx_status rcclx_emu_export(const void *ptr, rcclx_gpu_handle *h);
rcclx_status rcclx_emu_import(const rcclx_gpu_handle *h, void **base);
rcclx_status rcclx_emu_unimport(void *base);
rcclx_status rcclx_emu_share(void *ptr);

rcclx_status rcclx_emu_stream_create(rcclx_gpu_stream *s);
rcclx_status rcclx_emu_stream_destroy(rcclx_gpu_stream s);
rcclx_status rcclx_emu_stream_sync(rcclx_gpu_stream s);
rcclx_status rcclx_emu_stream_query(rcclx_gpu_stream s);
rcclx_status rcclx_emu_stream_wait(rcclx_gpu_stream s, rcclx_gpu_event e);
rcclx_status rcclx_emu_stream_device(rcclx_gpu_stream s, int *device);
rcclx_status rcclx_emu_event_create(rcclx_gpu_event *e, bool timing);
rcclx_status rcclx_emu_event_destroy(rcclx_gpu_event e);
rcclx_status rcclx_emu_event_record(rcclx_gpu_event e, rcclx_gpu_stream s);
rcclx_status rcclx_emu_event_query(rcclx_gpu_event e);
rcclx_status rcclx_emu_event_sync(rcclx_gpu_event e);
rcclx_status rcclx_emu_event_elapsed(rcclx_gpu_event from, rcclx_gpu_event to, double *us);
rcclx_status rcclx_emu_device_sync(void);
rcclx_status rcclx_emu_copy(void *dst, const void *src, size_t nbytes, rcclx_gpu_stream s);
rcclx_status rcclx_emu_fill(void *dst, uint32_t word, size_t nwords, rcclx_gpu_stream s);
rcclx_status rcclx_emu_launch(rcclx_gpu_fn f, unsigned blocks, unsigned threads, rcclx_gpu_stream s, const void *args,
                              size_t nargs);

rcclx_status rcclx_emu_capture_id(rcclx_gpu_stream s, uint64_t *id);
int          rcclx_emu_relax(void);
void         rcclx_emu_unrelax(int before);
rcclx_status rcclx_emu_capture_begin(rcclx_gpu_stream s);
rcclx_status rcclx_emu_capture_end(rcclx_gpu_stream s, rcclx_gpu_graph *exec);
rcclx_status rcclx_emu_graph_launch(rcclx_gpu_graph exec, rcclx_gpu_stream s);
rcclx_status rcclx_emu_graph_destroy(rcclx_gpu_graph exec);

#endif
