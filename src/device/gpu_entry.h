#ifndef RCCLX_DEVICE_GPU_ENTRY_H
#define RCCLX_DEVICE_GPU_ENTRY_H

/* Between the files that make GPUs of CUDA's and HIP's driver, and their test: the
 * entry points of both, and a driver that has been loaded. Users want device/gpu.h.
 *
 *   RCCLX_TRY(RCCLX_GPU_CALL(d, stream_sync, s));     d->f.stream_sync(s), with its error told
 *
 * A new entry point is a row below, and is then found, named in errors, and missed
 * where a driver lacks it. */

#include "base/log.h"
#include "device/gpu.h"

#include <pthread.h>

typedef struct { unsigned char bytes[RCCLX_GPU_IPC_BYTES]; } rcclx_gpu_ipc;

/* The drivers' structs for virtual memory; both made them alike. */
typedef struct { int type, id; } rcclx_gpu_location;
typedef struct {
    int                type, handles;
    rcclx_gpu_location at;
    void              *unused;
    unsigned char      compressed, rdma;
    unsigned short     usage;
    unsigned char      more[4];
} rcclx_gpu_vmm_kind;
typedef struct { rcclx_gpu_location at; int flags; } rcclx_gpu_vmm_access;

/* HIP's answer about a pointer. What `type` means depends on the version. */
typedef struct {
    int      type, device;
    void    *device_ptr, *host_ptr;
    int      managed;
    unsigned flags;
} rcclx_hip_pointer;

/* The entry points. R: a driver without it is refused; O: what needs it is
 * UNSUPPORTED. NULL: that driver has none of the kind.
 *
 *   X(need, name, CUDA's, HIP's, arguments)      all return the driver's error code */
#define RCCLX_GPU_ENTRIES(X)                                                                                                 \
    X(R, init,           "cuInit",                       "hipInit",                    (unsigned))                           \
    X(R, version,        "cuDriverGetVersion",           "hipRuntimeGetVersion",       (int *))                              \
    X(O, error_name,     "cuGetErrorName",               NULL,                         (int, const char **))                 \
    X(O, error_text,     "cuGetErrorString",             NULL,                         (int, const char **))                 \
    X(R, last_error,     NULL,                           "hipGetLastError",            (void))                               \
    /* devices and contexts */                                                                                               \
    X(R, device_count,   "cuDeviceGetCount",             "hipGetDeviceCount",          (int *))                              \
    X(R, device_get,     "cuDeviceGet",                  "hipDeviceGet",               (int *, int))                         \
    X(R, device_name,    "cuDeviceGetName",              "hipDeviceGetName",           (char *, int, int))                   \
    X(R, device_pci,     "cuDeviceGetPCIBusId",          "hipDeviceGetPCIBusId",       (char *, int, int))                   \
    X(R, device_memory,  "cuDeviceTotalMem_v2",          "hipDeviceTotalMem",          (size_t *, int))                      \
    X(R, device_ask,     "cuDeviceGetAttribute",         "hipDeviceGetAttribute",      (int *, int, int))                    \
    X(R, device_reaches, "cuDeviceCanAccessPeer",        "hipDeviceCanAccessPeer",     (int *, int, int))                    \
    X(O, device_all,     NULL,                           "hipGetDevicePropertiesR0600", (void *, int))                       \
    X(O, device_all_old, NULL,                           "hipGetDeviceProperties",     (void *, int))                        \
    X(R, device_set,     NULL,                           "hipSetDevice",               (int))                                \
    X(R, device_current, NULL,                           "hipGetDevice",               (int *))                              \
    X(R, device_sync,    "cuCtxSynchronize",             "hipDeviceSynchronize",       (void))                               \
    X(R, device_peer,    NULL,                           "hipDeviceEnablePeerAccess",  (int, unsigned))                      \
    X(R, context_retain, "cuDevicePrimaryCtxRetain",     NULL,                         (void **, int))                       \
    X(R, context_get,    "cuCtxGetCurrent",              NULL,                         (void **))                            \
    X(R, context_push,   "cuCtxPushCurrent_v2",          NULL,                         (void *))                             \
    X(R, context_pop,    "cuCtxPopCurrent_v2",           NULL,                         (void **))                            \
    X(R, context_device, "cuCtxGetDevice",               NULL,                         (int *))                              \
    X(R, context_peer,   "cuCtxEnablePeerAccess",        NULL,                         (void *, unsigned))                   \
    /* memory */                                                                                                             \
    X(R, alloc,          "cuMemAlloc_v2",                "hipMalloc",                  (void **, size_t))                    \
    X(R, alloc_as,       NULL,                           "hipExtMallocWithFlags",      (void **, size_t, unsigned))          \
    X(R, free,           "cuMemFree_v2",                 "hipFree",                    (void *))                             \
    X(R, host_alloc,     "cuMemHostAlloc",               "hipHostMalloc",              (void **, size_t, unsigned))          \
    X(R, host_free,      "cuMemFreeHost",                "hipHostFree",                (void *))                             \
    X(O, host_register,  "cuMemHostRegister_v2",         "hipHostRegister",            (void *, size_t, unsigned))           \
    X(O, host_unregister, "cuMemHostUnregister",         "hipHostUnregister",          (void *))                             \
    X(R, memory,         "cuMemGetInfo_v2",              "hipMemGetInfo",              (size_t *, size_t *))                 \
    X(R, range,          "cuMemGetAddressRange_v2",      "hipMemGetAddressRange",      (void **, size_t *, const void *))    \
    X(R, ask_pointer,    "cuPointerGetAttributes",       NULL,                         (unsigned, int *, void **, const void *)) \
    X(R, hip_pointer,    NULL,                           "hipPointerGetAttributes",    (rcclx_hip_pointer *, const void *))  \
    X(O, hip_ask_pointer, NULL,                          "hipPointerGetAttribute",     (void *, int, const void *))          \
    X(R, copy,           "cuMemcpyAsync",                NULL,                         (void *, const void *, size_t, void *)) \
    X(R, hip_copy,       NULL,                           "hipMemcpyAsync",                                                   \
      (void *, const void *, size_t, int, void *))                                                                           \
    X(R, fill,           "cuMemsetD32Async",             "hipMemsetD32Async",          (void *, unsigned, size_t, void *))    \
    /* memory of other processes */                                                                                          \
    X(R, ipc_get,        "cuIpcGetMemHandle",            "hipIpcGetMemHandle",         (rcclx_gpu_ipc *, void *))            \
    X(R, ipc_open,       "cuIpcOpenMemHandle_v2",        "hipIpcOpenMemHandle",        (void **, rcclx_gpu_ipc, unsigned))   \
    X(R, ipc_close,      "cuIpcCloseMemHandle",          "hipIpcCloseMemHandle",       (void *))                             \
    X(O, vmm_granule,    "cuMemGetAllocationGranularity", "hipMemGetAllocationGranularity",                                  \
      (size_t *, const rcclx_gpu_vmm_kind *, int))                                                                           \
    X(O, vmm_create,     "cuMemCreate",                  "hipMemCreate",                                                     \
      (uint64_t *, size_t, const rcclx_gpu_vmm_kind *, unsigned long long))                                                  \
    X(O, vmm_release,    "cuMemRelease",                 "hipMemRelease",              (uint64_t))                           \
    X(O, vmm_reserve,    "cuMemAddressReserve",          "hipMemAddressReserve",                                             \
      (void **, size_t, size_t, void *, unsigned long long))                                                                 \
    X(O, vmm_unreserve,  "cuMemAddressFree",             "hipMemAddressFree",          (void *, size_t))                     \
    X(O, vmm_map,        "cuMemMap",                     "hipMemMap",                                                        \
      (void *, size_t, size_t, uint64_t, unsigned long long))                                                                \
    X(O, vmm_unmap,      "cuMemUnmap",                   "hipMemUnmap",                (void *, size_t))                     \
    X(O, vmm_access,     "cuMemSetAccess",               "hipMemSetAccess",                                                  \
      (void *, size_t, const rcclx_gpu_vmm_access *, size_t))                                                                \
    X(O, vmm_retain,     "cuMemRetainAllocationHandle",  NULL,                         (uint64_t *, void *))                 \
    X(O, vmm_export,     "cuMemExportToShareableHandle", "hipMemExportToShareableHandle",                                    \
      (void *, uint64_t, int, unsigned long long))                                                                           \
    X(O, vmm_import,     "cuMemImportFromShareableHandle", "hipMemImportFromShareableHandle", (uint64_t *, void *, int))      \
    /* streams and events */                                                                                                 \
    X(R, stream_create,  "cuStreamCreate",               "hipStreamCreateWithFlags",   (void **, unsigned))                  \
    X(R, stream_destroy, "cuStreamDestroy_v2",           "hipStreamDestroy",           (void *))                             \
    X(R, stream_sync,    "cuStreamSynchronize",          "hipStreamSynchronize",       (void *))                             \
    X(R, stream_query,   "cuStreamQuery",                "hipStreamQuery",             (void *))                             \
    X(R, stream_wait,    "cuStreamWaitEvent",            "hipStreamWaitEvent",         (void *, void *, unsigned))           \
    X(O, stream_device,  "cuStreamGetDevice",            "hipStreamGetDevice",         (void *, int *))                      \
    X(O, stream_context, "cuStreamGetCtx",               NULL,                         (void *, void **))                    \
    X(R, event_create,   "cuEventCreate",                "hipEventCreateWithFlags",    (void **, unsigned))                  \
    X(R, event_destroy,  "cuEventDestroy_v2",            "hipEventDestroy",            (void *))                             \
    X(R, event_record,   "cuEventRecord",                "hipEventRecord",             (void *, void *))                     \
    X(R, event_query,    "cuEventQuery",                 "hipEventQuery",              (void *))                             \
    X(R, event_sync,     "cuEventSynchronize",           "hipEventSynchronize",        (void *))                             \
    X(R, event_elapsed,  "cuEventElapsedTime",           "hipEventElapsedTime",        (float *, void *, void *))            \
    /* kernels */                                                                                                            \
    X(R, module_load,    "cuModuleLoadData",             "hipModuleLoadData",          (void **, const void *))              \
    X(R, module_unload,  "cuModuleUnload",               "hipModuleUnload",            (void *))                             \
    X(R, module_fn,      "cuModuleGetFunction",          "hipModuleGetFunction",       (void **, void *, const char *))      \
    X(O, fn_load,        "cuFuncLoad",                   NULL,                         (void *))                             \
    X(R, launch,         "cuLaunchKernel",               "hipModuleLaunchKernel",                                            \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))              \
    X(O, occupancy,      "cuOccupancyMaxActiveBlocksPerMultiprocessor", "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", \
      (int *, void *, int, size_t))                                                                                          \
    /* graphs */                                                                                                             \
    X(O, capture_info,   "cuStreamGetCaptureInfo",       "hipStreamGetCaptureInfo",    (void *, int *, unsigned long long *)) \
    X(O, capture_mode,   "cuThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode", (int *))                 \
    X(O, capture_begin,  "cuStreamBeginCapture_v2",      "hipStreamBeginCapture",      (void *, int))                        \
    X(O, capture_end,    "cuStreamEndCapture",           "hipStreamEndCapture",        (void *, void **))                    \
    X(O, graph_make,     "cuGraphInstantiateWithFlags",  "hipGraphInstantiateWithFlags", (void **, void *, unsigned long long)) \
    X(O, graph_launch,   "cuGraphLaunch",                "hipGraphLaunch",             (void *, void *))                     \
    X(O, graph_destroy,  "cuGraphExecDestroy",           "hipGraphExecDestroy",        (void *))                             \
    X(O, graph_drop,     "cuGraphDestroy",               "hipGraphDestroy",            (void *))

typedef enum {
#define X(need, name, cuda, hip, args) RCCLX_ENTRY_##name,
    RCCLX_GPU_ENTRIES(X)
#undef X
    RCCLX_ENTRY_COUNT
} rcclx_gpu_entry;

typedef struct {
#define X(need, name, cuda, hip, args) int (*name) args;
    RCCLX_GPU_ENTRIES(X)
#undef X
} rcclx_gpu_entries;

/* Error codes: the two drivers agree on these. */
enum {
    RCCLX_GPU_E_INVALID = 1, RCCLX_GPU_E_MEMORY = 2, RCCLX_GPU_E_NONE = 100, RCCLX_GPU_E_BAD_DEVICE = 101,
    RCCLX_GPU_E_NOT_READY = 600, RCCLX_GPU_E_PEER_ALREADY = 704,
    RCCLX_GPU_E_MISSING = -1, /* ours: the entry point is not there */
};

typedef struct rcclx_gpu_region rcclx_gpu_region;

typedef struct rcclx_driver rcclx_driver;
struct rcclx_driver {
    rcclx_gpu         gpu;        /* what the user gets; first, so that one is the other */
    rcclx_gpu_entries f;
    const char *(*hip_error_name)(int), *(*hip_error_text)(int);
    char              library[64];
    int               version;    /* CUDA: 1000 * major + 10 * minor; HIP: 10000000 * major + 100000 * minor + patch */
    int               major;
    bool              hip;
    int               handles[RCCLX_GPU_MAX];  /* the driver's number of a device */
    void             *contexts[RCCLX_GPU_MAX]; /* CUDA's primary ones, retained on first use and kept; atomic */
    pthread_mutex_t   making;     /* held while a context is made; taken inside `lock` */
    pthread_mutex_t   lock;       /* guards regions */
    rcclx_gpu_region *regions;    /* gpu_share.c */
};

/* Call an entry point; an error becomes the last error, with a text. */
#define RCCLX_GPU_CALL(d, name, ...) rcclx_driver_check(d, RCCLX_ENTRY_##name, RCCLX_GPU_TRY(d, name, __VA_ARGS__))
/* The same, where an error is an answer: the driver's code. */
#define RCCLX_GPU_TRY(d, name, ...) ((d)->f.name ? (d)->f.name(__VA_ARGS__) : (int)RCCLX_GPU_E_MISSING)

/* How an error code reads. */
typedef struct { const char *name, *text, *advice; } rcclx_gpu_error;
rcclx_gpu_error rcclx_driver_error(const rcclx_driver *d, int code);
rcclx_status rcclx_driver_fail(rcclx_driver *d, rcclx_gpu_entry entry, int code);
const char  *rcclx_driver_symbol(const rcclx_driver *d, rcclx_gpu_entry entry);
/* HIP keeps an error for whoever asks next: take back one that was only an answer. */
void         rcclx_driver_forget(const rcclx_driver *d);

static inline rcclx_status rcclx_driver_check(rcclx_driver *d, rcclx_gpu_entry entry, int code)
{
    return __builtin_expect(code == 0, 1) ? RCCLX_OK : rcclx_driver_fail(d, entry, code);
}

/* A stream as the driver knows it: HIP took the number 1, all threads' default stream, only from 6.2 on. */
static inline void *rcclx_driver_stream(const rcclx_driver *d, rcclx_gpu_stream s)
{
    return d->hip && (uintptr_t)s == 1 ? NULL : s;
}

/* What gpu.h's functions do, for either driver. X(name, (arguments as passed), arguments...) */
#define RCCLX_DRIVER_FUNCTIONS(X)                                                                                            \
    X(info, (device, info), int device, rcclx_gpu_info *info)                                                                \
    X(current, (device), int *device)                                                                                        \
    X(enter, (s, device), rcclx_gpu_scope *s, int device)                                                                    \
    X(enable_peer, (peer), int peer)                                                                                         \
    X(alloc, (ptr, nbytes, flags), void **ptr, size_t nbytes, bool flags)                                                    \
    X(free, (ptr), void *ptr)                                                                                                \
    X(alloc_host, (ptr, nbytes), void **ptr, size_t nbytes)                                                                  \
    X(free_host, (ptr), void *ptr)                                                                                           \
    X(register_host, (ptr, nbytes), void *ptr, size_t nbytes)                                                                \
    X(unregister_host, (ptr), void *ptr)                                                                                     \
    X(memory, (left, total), size_t *left, size_t *total)                                                                    \
    X(pointer, (ptr, p), const void *ptr, rcclx_gpu_pointer *p)                                                              \
    X(export, (ptr, h), const void *ptr, rcclx_gpu_handle *h)                                                                \
    X(import, (h, base), const rcclx_gpu_handle *h, void **base)                                                             \
    X(unimport, (base), void *base)                                                                                          \
    X(share, (ptr), void *ptr)                                                                                               \
    X(copy, (dst, src, nbytes, s), void *dst, const void *src, size_t nbytes, rcclx_gpu_stream s)                            \
    X(fill, (dst, word, nwords, s), void *dst, uint32_t word, size_t nwords, rcclx_gpu_stream s)                             \
    X(stream_create, (s), rcclx_gpu_stream *s)                                                                               \
    X(stream_destroy, (s), rcclx_gpu_stream s)                                                                               \
    X(stream_sync, (s), rcclx_gpu_stream s)                                                                                  \
    X(stream_query, (s), rcclx_gpu_stream s)                                                                                 \
    X(stream_wait, (s, e), rcclx_gpu_stream s, rcclx_gpu_event e)                                                            \
    X(stream_device, (s, device), rcclx_gpu_stream s, int *device)                                                           \
    X(event_create, (e, timing), rcclx_gpu_event *e, bool timing)                                                            \
    X(event_destroy, (e), rcclx_gpu_event e)                                                                                 \
    X(event_record, (e, s), rcclx_gpu_event e, rcclx_gpu_stream s)                                                           \
    X(event_query, (e), rcclx_gpu_event e)                                                                                   \
    X(event_sync, (e), rcclx_gpu_event e)                                                                                    \
    X(event_elapsed, (from, to, us), rcclx_gpu_event from, rcclx_gpu_event to, double *us)                                   \
    X(load, (m, device), rcclx_gpu_module *m, int device)                                                                    \
    X(unload, (m), rcclx_gpu_module m)                                                                                       \
    X(function, (f, m, name), rcclx_gpu_fn *f, rcclx_gpu_module m, const char *name)                                         \
    X(launch, (f, blocks, threads, s, args, nargs), rcclx_gpu_fn f, unsigned blocks, unsigned threads, rcclx_gpu_stream s,   \
      const void *args, size_t nargs)                                                                                        \
    X(occupancy, (f, threads, blocks_per_sm), rcclx_gpu_fn f, unsigned threads, int *blocks_per_sm)                          \
    X(capture_id, (s, id), rcclx_gpu_stream s, uint64_t *id)                                                                 \
    X(capture_begin, (s), rcclx_gpu_stream s)                                                                                \
    X(capture_end, (s, exec), rcclx_gpu_stream s, rcclx_gpu_graph *exec)                                                     \
    X(graph_launch, (exec, s), rcclx_gpu_graph exec, rcclx_gpu_stream s)                                                     \
    X(graph_destroy, (exec), rcclx_gpu_graph exec)

#define X(name, passed, ...) rcclx_status rcclx_driver_##name(rcclx_driver *d, __VA_ARGS__);
RCCLX_DRIVER_FUNCTIONS(X)
#undef X
void rcclx_driver_leave(rcclx_driver *d, const rcclx_gpu_scope *s);
bool rcclx_driver_reaches(rcclx_driver *d, int device, int peer);
int  rcclx_driver_relax(rcclx_driver *d);
void rcclx_driver_unrelax(rcclx_driver *d, int before);

/* Enter the device that is current, or 0 where the thread has none. */
rcclx_status rcclx_driver_here(rcclx_driver *d, rcclx_gpu_scope *s, int *device);
/* The driver's attribute of a device; 0 if it does not know it. cuda, hip: its number; negative: there is none. */
int rcclx_driver_ask(rcclx_driver *d, int device, int cuda, int hip);
/* May memory of the device be virtual and have descriptors? */
bool rcclx_driver_vmm(rcclx_driver *d, int device, bool *fds);

/* Memory that is more than an address to the driver (gpu_share.c). */
typedef enum { RCCLX_REGION_MAPPED, RCCLX_REGION_OPENED } rcclx_region_kind; /* from a handle of virtual memory; by IPC */
struct rcclx_gpu_region {
    rcclx_gpu_region *next;
    rcclx_region_kind kind;
    char             *base;
    size_t            nbytes;
    uint64_t          handle;  /* MAPPED; held as long as the region */
    rcclx_gpu_ipc     ipc;     /* OPENED */
    int               device;  /* that was current */
    int               users;   /* OPENED: imports of the same */
};
/* Map memory of a handle for devices (bits, but for `device` if the driver will not have the others). The region has the
 * handle from then on; on failure it is released, and the driver's code returned with the entry point that gave it. */
int rcclx_region_map(rcclx_driver *d, uint64_t handle, size_t nbytes, int device, uint64_t devices, void **base,
                     rcclx_gpu_entry *entry);
/* Give back the region that begins at base, once its last user has. found: there was one. */
rcclx_status rcclx_region_drop(rcclx_driver *d, void *base, bool *found);

/* The code object that runs best on a device of this architecture; NULL: none does. */
const rcclx_code_object *rcclx_code_choose(const rcclx_code_object *all, rcclx_gpu_kind kind, const char *arch);

/* For tests: the driver of a kind from this library and not from where it usually is. Before the first
 * rcclx_gpu_open, which then returns the same. */
const rcclx_gpu *rcclx_gpu_open_at(rcclx_gpu_kind kind, const char *library, char *why, size_t nwhy);

/* gpu_emu.c */
const rcclx_gpu *rcclx_gpu_emu(char *why, size_t nwhy);

#endif
