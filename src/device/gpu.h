#ifndef RCCLX_DEVICE_GPU_H
#define RCCLX_DEVICE_GPU_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* GPUs through one table of functions, whoever made them.
 *
 *   cuda   libcuda.so.1, dlopen'ed          (gpu.c)
 *   hip    libamdhip64.so.7, .6 or .5       (gpu.c, the same table of entry points)
 *   emu    GPUs made of host threads, for machines without one: the same kernels,
 *          compiled for the host, streams, graphs, memory shared by descriptor (gpu_emu.c)
 *
 *   const rcclx_gpu *g = rcclx_gpu_open(RCCLX_GPU_CUDA, why, sizeof(why));
 *   if (g && g->count > 0) ...
 *
 * Every function but `pointer` works on the current device; enter makes one current,
 * leave restores what the thread had. Functions that fail return SYSTEM (NOMEM when the
 * device's memory is out) with a last error that names the driver's function, its error
 * code and text. Streams and events are the driver's own (cudaStream_t, hipStream_t). */

typedef enum { RCCLX_GPU_CUDA, RCCLX_GPU_HIP, RCCLX_GPU_EMU, RCCLX_GPU_KINDS } rcclx_gpu_kind;

enum { RCCLX_GPU_IPC_BYTES = 64, RCCLX_GPU_MAX = 64 };

typedef struct {
    char   name[96];
    char   arch[24];    /* "sm_90", "gfx942", "host": which code object it takes */
    char   pci[24];     /* "0000:1b:00.0" */
    int    sms;         /* multiprocessors, compute units */
    int    wave;        /* 32 or 64 */
    int    clock_khz;
    size_t memory;      /* bytes */
    bool   fd_handles;  /* memory can be exported by file descriptor */
} rcclx_gpu_info;

typedef enum {
    RCCLX_AT_HOST,      /* memory the driver does not know */
    RCCLX_AT_PINNED,    /* host memory that kernels may use at `device_ptr` */
    RCCLX_AT_DEVICE,
    RCCLX_AT_MANAGED,
} rcclx_gpu_place;

typedef struct {
    rcclx_gpu_place place;
    int       device;       /* where it lies; -1: host */
    uint64_t  device_ptr;   /* where kernels find it */
    uint64_t  base;         /* the allocation it lies in */
    size_t    nbytes;
    bool      goes_on;      /* it is a piece of a larger range: what follows may be mapped, too */
    uint64_t  serial;       /* of the allocation: never used again for another; 0: the driver does not say */
} rcclx_gpu_pointer;

/* What a thread had before enter. */
typedef struct {
    void *context;
    int   device;
    bool  changed;
} rcclx_gpu_scope;

/* How a peer process gets at memory: by descriptor (fd >= 0, to be sent over a Unix
 * socket and closed), or by the driver's own handle. offset: of the pointer in it. */
typedef struct {
    int           fd;
    unsigned char ipc[RCCLX_GPU_IPC_BYTES];
    uint64_t      nbytes, offset;
} rcclx_gpu_handle;

typedef void *rcclx_gpu_stream, *rcclx_gpu_event, *rcclx_gpu_module, *rcclx_gpu_fn, *rcclx_gpu_graph;

typedef struct rcclx_gpu rcclx_gpu;
struct rcclx_gpu {
    rcclx_gpu_kind kind;
    const char    *name;      /* "cuda", "hip", "emu" */
    char           about[96]; /* "CUDA driver 13.0 (libcuda.so.1)" */
    int            count;     /* devices */

    rcclx_status (*info)(int device, rcclx_gpu_info *info);
    rcclx_status (*current)(int *device);                     /* the thread's; 0 if it has none yet */
    rcclx_status (*enter)(rcclx_gpu_scope *s, int device);
    void         (*leave)(const rcclx_gpu_scope *s);
    bool         (*reaches)(int device, int peer);            /* can load and store the peer's memory, over own links or PCIe */
    rcclx_status (*enable_peer)(int peer);                    /* of the current device; twice is fine */

    /* Memory. alloc: exportable where the device can (fd_handles), zeroed, visible to all devices that reach it; flags:
     * kernels of other devices may spin on it (AMD: uncached, fine-grained). */
    rcclx_status (*alloc)(void **ptr, size_t nbytes, bool flags);
    rcclx_status (*free)(void *ptr);
    rcclx_status (*alloc_host)(void **ptr, size_t nbytes);    /* pinned, coherent, zeroed; the same address on devices and host */
    rcclx_status (*free_host)(void *ptr);
    rcclx_status (*register_host)(void *ptr, size_t nbytes);  /* whole pages of the caller's: kernels find them where `pointer` says */
    rcclx_status (*unregister_host)(void *ptr);
    rcclx_status (*memory)(size_t *left, size_t *total);
    rcclx_status (*pointer)(const void *ptr, rcclx_gpu_pointer *p); /* OK with HOST for what the driver does not know */

    /* Sharing between processes. export: of the whole allocation ptr lies in; UNSUPPORTED when that kind of memory has no
     * handle (the text says which kind). import: maps it for the current device; the fd stays the caller's. */
    rcclx_status (*export)(const void *ptr, rcclx_gpu_handle *h);
    rcclx_status (*import)(const rcclx_gpu_handle *h, void **base);
    rcclx_status (*unimport)(void *base);
    /* Let the current device use an allocation made by alloc on another device of this process. */
    rcclx_status (*share)(void *ptr);

    rcclx_status (*copy)(void *dst, const void *src, size_t nbytes, rcclx_gpu_stream s); /* any direction, asynchronous */
    rcclx_status (*fill)(void *dst, uint32_t word, size_t nwords, rcclx_gpu_stream s);

    rcclx_status (*stream_create)(rcclx_gpu_stream *s);       /* does not wait for the default stream */
    rcclx_status (*stream_destroy)(rcclx_gpu_stream s);
    rcclx_status (*stream_sync)(rcclx_gpu_stream s);
    rcclx_status (*stream_query)(rcclx_gpu_stream s);         /* OK or AGAIN */
    rcclx_status (*stream_wait)(rcclx_gpu_stream s, rcclx_gpu_event e);
    rcclx_status (*stream_device)(rcclx_gpu_stream s, int *device);
    rcclx_status (*event_create)(rcclx_gpu_event *e, bool timing);
    rcclx_status (*event_destroy)(rcclx_gpu_event e);
    rcclx_status (*event_record)(rcclx_gpu_event e, rcclx_gpu_stream s);
    rcclx_status (*event_query)(rcclx_gpu_event e);           /* OK or AGAIN */
    rcclx_status (*event_sync)(rcclx_gpu_event e);
    rcclx_status (*event_elapsed)(rcclx_gpu_event from, rcclx_gpu_event to, double *us);

    /* Kernels. load: the code object for this device among the embedded ones; UNSUPPORTED names what is there. */
    rcclx_status (*load)(rcclx_gpu_module *m, int device);
    rcclx_status (*unload)(rcclx_gpu_module m);
    rcclx_status (*function)(rcclx_gpu_fn *f, rcclx_gpu_module m, const char *name);
    rcclx_status (*launch)(rcclx_gpu_fn f, unsigned blocks, unsigned threads, rcclx_gpu_stream s, const void *args, size_t nargs);
    rcclx_status (*occupancy)(rcclx_gpu_fn f, unsigned threads, int *blocks_per_sm);

    /* Capture. capture_id: 0 when the stream is not being captured. relax: driver calls that are unsafe during anybody's
     * capture are allowed in this thread until unrelax. */
    rcclx_status (*capture_id)(rcclx_gpu_stream s, uint64_t *id);
    int          (*relax)(void);
    void         (*unrelax)(int before);
    rcclx_status (*capture_begin)(rcclx_gpu_stream s);        /* thread-local mode; tools and tests */
    rcclx_status (*capture_end)(rcclx_gpu_stream s, rcclx_gpu_graph *exec);
    rcclx_status (*graph_launch)(rcclx_gpu_graph exec, rcclx_gpu_stream s);
    rcclx_status (*graph_destroy)(rcclx_gpu_graph exec);
    rcclx_status (*device_sync)(void);
};

/* The driver of a kind, loaded once a process; NULL: `why` says what is missing. A driver without devices has count 0. */
const rcclx_gpu *rcclx_gpu_open(rcclx_gpu_kind kind, char *why, size_t nwhy);

/* The kernels that were built into the library (code_objects.c, written by the build). */
typedef struct {
    rcclx_gpu_kind kind;
    const char    *arch;     /* "sm_90", "ptx_90" (PTX, for this architecture and newer), "gfx942", ... */
    const char    *built_by; /* compiler and version */
    const unsigned char *data;
    size_t         nbytes;
} rcclx_code_object;

extern const rcclx_code_object rcclx_code_objects[]; /* ends with data NULL */
extern const char rcclx_code_missing[];              /* what could not be built and why, a line each; "" */

#endif
