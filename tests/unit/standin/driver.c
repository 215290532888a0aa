/* A stand-in for libcuda.so.1 (STANDIN_HIP 0) or libamdhip64.so (1), where there is no
 * GPU: the entry points that the library uses, declared here once more, over host memory.
 *
 *   virtual memory   a memfd; without access it cannot be touched, as on a device
 *   plain memory     a memfd, too; its IPC handle says process and descriptor
 *   streams          everything is done when the call returns
 *
 * It is strict where drivers are: a handle is opened once a process, flags must be the
 * version's, what was never allocated is an error. With STANDIN_LACKS it has no
 * event_query and no graphs. One thread at a time, except for the current device. */
#include "standin.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if STANDIN_HIP
#define FN(cuda, hip) __attribute__((visibility("default"))) int hip
#else
#define FN(cuda, hip) __attribute__((visibility("default"))) int cuda
#endif
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { OK, INVALID = 1, NOMEM = 2, NOT_INIT = 3, NO_DEVICE = 100, BAD_DEVICE = 101, BAD_CONTEXT = 201, MAPPED_ALREADY = 208,
       BAD_IMAGE = 200, BAD_HANDLE = 400, NOT_FOUND = 500, NOT_READY_YET = 600, PEER_ALREADY = 704, NOT_SUPPORTED = 801 };
enum { MAX = 64, GRANULE = 2 << 20 };

typedef struct handle { int fd, refs, types, device; size_t nbytes; } handle;
typedef struct { char *base; size_t nbytes; enum { PLAIN = 1, HOST, MAPPING, OPENED, RESERVED, MANAGED } kind;
                 int device, fd; handle *h; unsigned char ipc[64]; uint64_t id; } memory;
typedef struct { int device, capturing; unsigned long long id; } stream;

__attribute__((visibility("default"))) standin standin_state;
static memory all[MAX];
static uint64_t serial;
static size_t used[8];
static bool peers[8][8];
static _Thread_local int mode;
#if STANDIN_HIP
static _Thread_local int hip_device;
#else
static _Thread_local int stack[16], depth; /* contexts: device + 1 */
#endif

static long setting(const char *name, long otherwise)
{
    const char *s = getenv(name);

    return s ? strtol(s, NULL, 0) : otherwise;
}

static int version(void)
{
    return (int)setting("STANDIN_VERSION", STANDIN_HIP ? 60300000 : 13000);
}

static int devices(void)
{
    return (int)setting("STANDIN_DEVICES", 2);
}

/* HIP keeps errors. */
static int say(int e)
{
    if (STANDIN_HIP && e)
        standin_state.last_errors = e;
    return e;
}

static int current(void)
{
#if STANDIN_HIP
    return hip_device;
#else
    return depth ? stack[depth - 1] - 1 : -1;
#endif
}

static memory *find(const void *p)
{
    const char *at = p;

    for (int i = 0; i < MAX; i++)
        if (all[i].kind && all[i].kind != RESERVED && at >= all[i].base && at < all[i].base + all[i].nbytes)
            return &all[i];
    return NULL;
}

static memory *add(int kind, void *base, size_t nbytes)
{
    for (int i = 0; i < MAX; i++) {
        if (all[i].kind)
            continue;
        all[i] = (memory){ .base = base, .nbytes = nbytes, .kind = kind, .device = current(), .fd = -1, .id = ++serial };
        return &all[i];
    }
    abort();
}

/* ---- start, errors, devices */

FN(cuInit, hipInit)(unsigned flags)
{
    return flags ? INVALID : devices() ? OK : NO_DEVICE;
}

FN(cuDriverGetVersion, hipRuntimeGetVersion)(int *v)
{
    *v = version();
    return OK;
}

FN(cuDeviceGetCount, hipGetDeviceCount)(int *n)
{
    *n = devices();
    return OK;
}

FN(cuDeviceGet, hipDeviceGet)(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal < devices() ? OK : BAD_DEVICE;
}

FN(cuDeviceGetName, hipDeviceGetName)(char *name, int n, int device)
{
    snprintf(name, (size_t)n, "Stand-in %d", device);
    return OK;
}

FN(cuDeviceGetPCIBusId, hipDeviceGetPCIBusId)(char *name, int n, int device)
{
    snprintf(name, (size_t)n, "0000:%02X:00.0", 0x1a + device);
    return OK;
}

FN(cuDeviceTotalMem_v2, hipDeviceTotalMem)(size_t *n, int device)
{
    (void)device;
    *n = (size_t)setting("STANDIN_MEMORY", 1 << 30);
    return OK;
}

FN(cuDeviceGetAttribute, hipDeviceGetAttribute)(int *value, int what, int device)
{
    const bool vmm = !setting("STANDIN_NO_VMM", 0);

    (void)device;
#if STANDIN_HIP
    *value = what == 5 ? 2100000 : what == 63 ? 304 : what == 87 ? 64 : what == 89 ? vmm : -1;
#else
    const int arch = (int)setting("STANDIN_ARCH", 90);
    *value = what == 10 ? 32 : what == 13 ? 1980000 : what == 16 ? 132 : what == 75 ? arch / 10 : what == 76 ? arch % 10
           : what == 102 || what == 103 || what == 110 ? vmm : -1;
#endif
    return *value == -1 ? say(INVALID) : OK;
}

FN(cuDeviceCanAccessPeer, hipDeviceCanAccessPeer)(int *can, int device, int peer)
{
    *can = device != peer;
    return OK;
}

FN(cuCtxSynchronize, hipDeviceSynchronize)(void)
{
    return current() < 0 ? BAD_CONTEXT : OK;
}

#if STANDIN_HIP

static const char *arch_of_device(void)
{
    const char *s = getenv("STANDIN_ARCH");

    return s ? s : "gfx942:sramecc+:xnack-";
}

/* The struct of each version is as long as that version's, with the field where that version has it. */
FN(, hipGetDevicePropertiesR0600)(char *all_of_it, int device)
{
    (void)device;
    memset(all_of_it, 0, 1472);
    strcpy(all_of_it, "Stand-in gfx1"); /* not what was asked for */
    strcpy(all_of_it + 1160, arch_of_device());
    return OK;
}

FN(, hipGetDeviceProperties)(char *all_of_it, int device)
{
    (void)device;
    memset(all_of_it, 0, 792);
    strcpy(all_of_it + 396, arch_of_device());
    return OK;
}

FN(, hipSetDevice)(int device)
{
    standin_state.sets++;
    hip_device = device;
    return device < devices() ? OK : say(BAD_DEVICE);
}

FN(, hipGetDevice)(int *device)
{
    *device = hip_device;
    return OK;
}

FN(, hipDeviceEnablePeerAccess)(int peer, unsigned flags)
{
    if (flags || peer == hip_device || peers[hip_device][peer])
        return say(flags ? INVALID : peers[hip_device][peer] ? PEER_ALREADY : BAD_DEVICE);
    peers[hip_device][peer] = true;
    return OK;
}

FN(, hipGetLastError)(void)
{
    const int e = standin_state.last_errors;

    standin_state.last_errors = 0;
    return e;
}

__attribute__((visibility("default"))) const char *hipGetErrorName(int e)
{
    return e == NOMEM ? "hipErrorOutOfMemory" : e == NO_DEVICE ? "hipErrorNoDevice" : "hipErrorUnknown";
}

__attribute__((visibility("default"))) const char *hipGetErrorString(int e)
{
    return e == NOMEM ? "out of memory" : e == NO_DEVICE ? "no ROCm-capable device is detected" : "unknown error";
}

#else

FN(cuGetErrorName, )(int e, const char **text)
{
    *text = e == NOMEM     ? "CUDA_ERROR_OUT_OF_MEMORY"
          : e == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE"
          : e == INVALID   ? "CUDA_ERROR_INVALID_VALUE"
                           : NULL;
    return *text ? OK : INVALID;
}

FN(cuGetErrorString, )(int e, const char **text)
{
    *text = e == NOMEM ? "out of memory" : e == NO_DEVICE ? "no CUDA-capable device is detected" : "invalid argument";
    return OK;
}

FN(cuDevicePrimaryCtxRetain, )(void **context, int device)
{
    *context = (void *)(intptr_t)(device + 1);
    return OK;
}

FN(cuCtxGetCurrent, )(void **context)
{
    *context = (void *)(intptr_t)(current() + 1);
    return OK;
}

FN(cuCtxPushCurrent_v2, )(void *context)
{
    standin_state.pushes++;
    stack[depth++] = (int)(intptr_t)context;
    return OK;
}

FN(cuCtxPopCurrent_v2, )(void **context)
{
    standin_state.pops++;
    if (!depth)
        return BAD_CONTEXT;
    *context = (void *)(intptr_t)stack[--depth];
    return OK;
}

FN(cuCtxGetDevice, )(int *device)
{
    *device = current();
    return *device < 0 ? BAD_CONTEXT : OK;
}

FN(cuCtxEnablePeerAccess, )(void *context, unsigned flags)
{
    const int peer = (int)(intptr_t)context - 1, device = current();

    if (flags || device < 0 || peer == device)
        return INVALID;
    if (peers[device][peer])
        return PEER_ALREADY;
    peers[device][peer] = true;
    return OK;
}

#endif

/* ---- memory */

static void *fd_memory(int *fd, size_t nbytes)
{
    *fd = memfd_create("standin", MFD_CLOEXEC);
    if (*fd < 0 || ftruncate(*fd, (off_t)nbytes))
        abort();
    return mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
}

/* Take from a device's memory. */
static bool take(int device, size_t nbytes)
{
    if (used[device] + nbytes > (size_t)setting("STANDIN_MEMORY", 1 << 30))
        return false;
    used[device] += nbytes;
    return true;
}

FN(cuMemAlloc_v2, hipMalloc)(void **ptr, size_t nbytes)
{
    int fd;

    if (current() < 0 || !nbytes)
        return say(current() < 0 ? BAD_CONTEXT : INVALID);
    if (!take(current(), nbytes))
        return say(NOMEM);
    char *p = fd_memory(&fd, nbytes);
    memset(p, 0xa5, nbytes); /* as dirty as a device's */
    *ptr = p;
    add(PLAIN, p, nbytes)->fd = fd;
    return OK;
}

FN(cuMemFree_v2, hipFree)(void *ptr)
{
    memory *m = find(ptr);

    if (!m || m->base != ptr || m->kind != PLAIN)
        return say(INVALID);
    used[m->device] -= m->nbytes;
    munmap(m->base, m->nbytes);
    close(m->fd);
    m->kind = 0;
    return OK;
}

FN(cuMemHostAlloc, hipHostMalloc)(void **ptr, size_t nbytes, unsigned flags)
{
    if (current() < 0)
        return BAD_CONTEXT;
    standin_state.host_flags = flags;
    *ptr = malloc(nbytes);
    memset(*ptr, 0xa5, nbytes);
    add(HOST, *ptr, nbytes);
    return OK;
}

FN(cuMemHostRegister_v2, hipHostRegister)(void *ptr, size_t nbytes, unsigned flags)
{
    if (current() < 0)
        return BAD_CONTEXT;
    if (!ptr || !nbytes || find(ptr))
        return say(INVALID);
    standin_state.host_flags = flags;
    add(HOST, ptr, nbytes);
    return OK;
}

FN(cuMemHostUnregister, hipHostUnregister)(void *ptr)
{
    memory *m = find(ptr);

    if (current() < 0)
        return BAD_CONTEXT;
    if (!m || m->kind != HOST || m->base != ptr)
        return say(INVALID);
    m->kind = 0;
    return OK;
}

FN(cuMemFreeHost, hipHostFree)(void *ptr)
{
    memory *m = find(ptr);

    if (!m || m->kind != HOST)
        return say(INVALID);
    free(m->base);
    m->kind = 0;
    return OK;
}

FN(cuMemGetInfo_v2, hipMemGetInfo)(size_t *left, size_t *total)
{
    *total = (size_t)setting("STANDIN_MEMORY", 1 << 30);
    *left = *total - used[current() < 0 ? 0 : current()];
    return OK;
}

FN(cuMemGetAddressRange_v2, hipMemGetAddressRange)(void **base, size_t *nbytes, const void *ptr)
{
    const memory *m = find(ptr);

    if (!m)
        return say(NOT_FOUND);
    *base = m->base;
    *nbytes = m->nbytes;
    return OK;
}

#if STANDIN_HIP

typedef struct { int type, device; void *on_device, *on_host; int managed; unsigned flags; } attributes;

FN(, hipExtMallocWithFlags)(void **ptr, size_t nbytes, unsigned flags)
{
    standin_state.alloc_flags = flags;
    return hipMalloc(ptr, nbytes);
}

FN(, hipPointerGetAttributes)(attributes *a, const void *ptr)
{
    const memory *m = find(ptr);
    const int v = version();

    memset(a, 0, sizeof(*a));
    if (!m)
        return v < 60000000 ? say(INVALID) : OK;
    a->type = m->kind == HOST ? 1 : 2;
    a->type -= v < 60000000; /* host 0, device 1 */
    a->device = m->device;
    a->on_device = (void *)(uintptr_t)ptr;
    return OK;
}

FN(, hipPointerGetAttribute)(void *to, int what, const void *ptr)
{
    const memory *m = find(ptr);

    if (!m || what != 7)
        return say(INVALID);
    *(uint64_t *)to = m->id;
    return OK;
}

FN(, hipMemcpyAsync)(void *to, const void *from, size_t nbytes, int kind, void *s)
{
    standin_state.stream = s;
    if (kind != 4 || s == (void *)1)
        return say(INVALID);
    memcpy(to, from, nbytes);
    return OK;
}

#else

/* Virtual memory's range is its reservation, as with the real one; plain memory's mapping is larger than it. */
static int attribute(int what, void *to, const void *ptr)
{
    const memory *m = find(ptr), *range = m;

    for (int i = 0; m && m->kind == MAPPING && i < MAX; i++)
        if (all[i].kind == RESERVED && m->base >= all[i].base && m->base < all[i].base + all[i].nbytes)
            range = &all[i];
    switch (what) {
    case 2: *(unsigned *)to = !m ? 0 : m->kind == HOST ? 1 : 2; return OK;
    case 3: *(uint64_t *)to = m ? (uintptr_t)ptr : 0; return OK;
    case 7: *(uint64_t *)to = m ? m->id : 0; return OK;
    case 8: *(unsigned *)to = m && m->kind == MANAGED; return OK;
    case 9: *(int *)to = m ? m->device : -2; return OK;
    case 11: *(void **)to = m ? range->base : NULL; return OK;
    case 12: *(size_t *)to = m ? range->nbytes : 0; return OK;
    case 18: *(size_t *)to = !m ? 0 : m->kind == MAPPING ? m->nbytes : m->nbytes + GRANULE; return OK;
    case 19: *(void **)to = m ? m->base : NULL; return OK;
    default: return INVALID;
    }
}

FN(cuPointerGetAttributes, )(unsigned n, int *what, void **to, const void *ptr)
{
    int e = OK;

    for (unsigned i = 0; i < n && !e; i++)
        e = what[i] > 17 && version() < 12000 ? INVALID : attribute(what[i], to[i], ptr);
    return e;
}

FN(cuMemcpyAsync, )(void *to, const void *from, size_t nbytes, void *s)
{
    standin_state.stream = s;
    memcpy(to, from, nbytes);
    return OK;
}

#endif

FN(cuMemsetD32Async, hipMemsetD32Async)(uint32_t *to, unsigned word, size_t n, void *s)
{
    standin_state.stream = s;
    for (size_t i = 0; i < n; i++)
        to[i] = word;
    return OK;
}

/* ---- other processes */

typedef struct { unsigned char bytes[64]; } ipc;
typedef struct { int pid, fd; size_t nbytes; uint64_t id; } ipc_inside;

FN(cuIpcGetMemHandle, hipIpcGetMemHandle)(ipc *out, void *ptr)
{
    const memory *m = find(ptr);
    ipc_inside in = { .pid = getpid() };

    if (!m || m->kind != PLAIN)
        return say(INVALID);
    in.fd = m->fd;
    in.nbytes = m->nbytes;
    in.id = m->id;
    memset(out, 0, sizeof(*out));
    memcpy(out, &in, sizeof(in));
    return OK;
}

FN(cuIpcOpenMemHandle_v2, hipIpcOpenMemHandle)(void **ptr, ipc from, unsigned flags)
{
    ipc_inside in;
    char path[64];

    standin_state.ipc_flags = flags;
    if (flags != (STANDIN_HIP && version() < 60000000 ? 0u : 1u))
        return say(INVALID);
    memcpy(&in, &from, sizeof(in));
    if (in.pid == getpid() || current() < 0)
        return say(BAD_CONTEXT);
    for (int i = 0; i < MAX; i++)
        if (all[i].kind == OPENED && all[i].device == current() && memcmp(all[i].ipc, &from, sizeof(from)) == 0)
            return say(MAPPED_ALREADY);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", in.pid, in.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return say(BAD_HANDLE);
    *ptr = mmap(NULL, in.nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    standin_state.opens++;
    memcpy(add(OPENED, *ptr, in.nbytes)->ipc, &from, sizeof(from));
    return OK;
}

FN(cuIpcCloseMemHandle, hipIpcCloseMemHandle)(void *ptr)
{
    memory *m = find(ptr);

    if (!m || m->kind != OPENED || m->device != current())
        return say(INVALID);
    munmap(m->base, m->nbytes);
    m->kind = 0;
    standin_state.closes++;
    return OK;
}

typedef struct { int type, types, at_type, at_id; void *unused; unsigned char flags[8]; } prop;
typedef struct { int at_type, at_id, flags; } access_to;

FN(cuMemGetAllocationGranularity, hipMemGetAllocationGranularity)(size_t *n, const prop *p, int how)
{
    (void)how;
    *n = GRANULE;
    return p->type == 1 && p->at_type == 1 ? OK : say(INVALID);
}

FN(cuMemCreate, hipMemCreate)(handle **out, size_t nbytes, const prop *p, unsigned long long flags)
{
    if (p->type != 1 || p->at_type != 1 || p->at_id >= devices() || flags || nbytes % GRANULE)
        return say(INVALID);
    if (!take(p->at_id, nbytes))
        return say(NOMEM);
    handle *h = calloc(1, sizeof(*h));
    h->refs = 1;
    h->types = p->types;
    h->nbytes = nbytes;
    h->device = p->at_id;
    char *dirty = fd_memory(&h->fd, nbytes);
    memset(dirty, 0xa5, nbytes);
    munmap(dirty, nbytes);
    standin_state.creates++;
    *out = h;
    return OK;
}

static void let_go(handle *h)
{
    if (--h->refs)
        return;
    if (h->device >= 0)
        used[h->device] -= h->nbytes;
    close(h->fd);
    free(h);
}

FN(cuMemRelease, hipMemRelease)(handle *h)
{
    standin_state.releases++;
    let_go(h);
    return OK;
}

FN(cuMemAddressReserve, hipMemAddressReserve)(void **ptr, size_t nbytes, size_t align, void *wish, unsigned long long flags)
{
    (void)align;
    if (wish || flags || nbytes % GRANULE)
        return say(INVALID);
    *ptr = mmap(NULL, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    add(RESERVED, *ptr, nbytes);
    return OK;
}

FN(cuMemAddressFree, hipMemAddressFree)(void *ptr, size_t nbytes)
{
    for (int i = 0; i < MAX; i++) {
        if (all[i].kind != RESERVED || all[i].base != ptr || all[i].nbytes != nbytes || find(ptr))
            continue;
        munmap(ptr, nbytes);
        all[i].kind = 0;
        return OK;
    }
    return say(INVALID);
}

FN(cuMemMap, hipMemMap)(void *ptr, size_t nbytes, size_t offset, handle *h, unsigned long long flags)
{
    if (offset || flags || nbytes > h->nbytes)
        return say(INVALID);
    mmap(ptr, nbytes, PROT_NONE, MAP_SHARED | MAP_FIXED, h->fd, 0);
    memory *m = add(MAPPING, ptr, nbytes);
    m->h = h;
    m->device = h->device < 0 ? 0 : h->device;
    h->refs++;
    standin_state.mapped++;
    return OK;
}

FN(cuMemUnmap, hipMemUnmap)(void *ptr, size_t nbytes)
{
    memory *m = find(ptr);

    if (!m || m->kind != MAPPING || m->base != ptr || m->nbytes != nbytes)
        return say(INVALID);
    mmap(ptr, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    let_go(m->h);
    m->kind = 0;
    standin_state.mapped--;
    return OK;
}

FN(cuMemSetAccess, hipMemSetAccess)(void *ptr, size_t nbytes, const access_to *who, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (who[i].at_type != 1 || who[i].at_id >= devices() || who[i].flags != 3)
            return say(INVALID);
        standin_state.accesses++;
    }
    return mprotect(ptr, nbytes, PROT_READ | PROT_WRITE) ? say(INVALID) : OK;
}

FN(cuMemRetainAllocationHandle, hipMemRetainAllocationHandle)(handle **out, void *ptr)
{
    memory *m = find(ptr);

    if (STANDIN_HIP && (!m || m->kind != MAPPING))
        abort(); /* as HIP 6 does */
    if (!m || m->kind != MAPPING)
        return INVALID;
    m->h->refs++;
    standin_state.creates++;
    *out = m->h;
    return OK;
}

FN(cuMemExportToShareableHandle, hipMemExportToShareableHandle)(void *out, handle *h, int type, unsigned long long flags)
{
    if (flags || !(h->types & type))
        return say(INVALID);
    *(int *)out = dup(h->fd);
    return OK;
}

FN(cuMemImportFromShareableHandle, hipMemImportFromShareableHandle)(handle **out, void *os, int type)
{
    const int fd = STANDIN_HIP && version() < 70100000 ? *(int *)os : (int)(intptr_t)os;

    if (type != 1 || fcntl(fd, F_GETFD) < 0)
        return say(INVALID);
    handle *h = calloc(1, sizeof(*h));
    h->refs = 1;
    h->types = 1;
    h->device = -1;
    h->fd = dup(fd);
    h->nbytes = (size_t)lseek(fd, 0, SEEK_END);
    standin_state.creates++;
    *out = h;
    return OK;
}

/* ---- streams and events */

FN(cuStreamCreate, hipStreamCreateWithFlags)(void **out, unsigned flags)
{
    if (flags != 1 || current() < 0)
        return say(INVALID);
    stream *s = calloc(1, sizeof(*s));
    s->device = current();
    *out = s;
    return OK;
}

FN(cuStreamDestroy_v2, hipStreamDestroy)(void *s)
{
    free(s);
    return OK;
}

FN(cuStreamSynchronize, hipStreamSynchronize)(void *s)
{
    (void)s;
    return OK;
}

FN(cuStreamQuery, hipStreamQuery)(void *s)
{
    (void)s;
    return standin_state.not_ready ? say(NOT_READY_YET) : OK;
}

FN(cuStreamWaitEvent, hipStreamWaitEvent)(void *s, void *e, unsigned flags)
{
    (void)s;
    return e && !flags ? OK : say(INVALID);
}

#if STANDIN_HIP || !defined(STANDIN_OLD)
FN(cuStreamGetDevice, hipStreamGetDevice)(void *p, int *device)
{
    stream *s = p;

    if (!STANDIN_HIP && s->capturing) { /* CUDA 13 does this */
        s->capturing = 2;
        return 900;
    }
    *device = s->device;
    return OK;
}
#endif

#if !STANDIN_HIP
FN(cuStreamGetCtx, )(void *s, void **context)
{
    *context = (void *)(intptr_t)(((stream *)s)->device + 1);
    return OK;
}
#endif

FN(cuEventCreate, hipEventCreateWithFlags)(void **e, unsigned flags)
{
    *e = calloc(1, sizeof(int));
    *(unsigned *)*e = flags;
    return OK;
}

FN(cuEventDestroy_v2, hipEventDestroy)(void *e)
{
    free(e);
    return OK;
}

FN(cuEventRecord, hipEventRecord)(void *e, void *s)
{
    (void)e;
    (void)s;
    return OK;
}

#ifndef STANDIN_LACKS
FN(cuEventQuery, hipEventQuery)(void *e)
{
    (void)e;
    return standin_state.not_ready ? say(NOT_READY_YET) : OK;
}
#endif

FN(cuEventSynchronize, hipEventSynchronize)(void *e)
{
    (void)e;
    return OK;
}

FN(cuEventElapsedTime, hipEventElapsedTime)(float *ms, void *from, void *to)
{
    *ms = 2.5f;
    return (*(unsigned *)from | *(unsigned *)to) & 2 ? say(BAD_HANDLE) : OK;
}

/* ---- kernels */

FN(cuModuleLoadData, hipModuleLoadData)(void **m, const void *data)
{
    standin_state.loaded = data;
    *m = calloc(1, 1);
    return current() < 0 ? BAD_CONTEXT : OK;
}

FN(cuModuleUnload, hipModuleUnload)(void *m)
{
    free(m);
    return OK;
}

FN(cuModuleGetFunction, hipModuleGetFunction)(void **f, void *m, const char *name)
{
    static int kernel;

    (void)m;
    *f = &kernel;
    return strncmp(name, "gp_", 3) == 0 ? OK : say(NOT_FOUND);
}

#if !STANDIN_HIP
FN(cuFuncLoad, )(void *f)
{
    standin_state.loaded_functions++;
    return f ? OK : INVALID;
}
#endif

FN(cuLaunchKernel, hipModuleLaunchKernel)(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                          unsigned shared, void *s, void **params, void **extra)
{
    void *const end = (void *)(intptr_t)(STANDIN_HIP ? 3 : 0);

    if (!f || gy != 1 || gz != 1 || by != 1 || bz != 1 || shared || params || extra[0] != (void *)1 || extra[2] != (void *)2 ||
        extra[4] != end)
        return say(INVALID);
    standin_state.stream = s;
    standin_state.blocks = gx;
    standin_state.threads = bx;
    standin_state.nargs = *(size_t *)extra[3];
    memcpy(standin_state.args, extra[1], standin_state.nargs < 64 ? standin_state.nargs : 64);
    return OK;
}

FN(cuOccupancyMaxActiveBlocksPerMultiprocessor, hipModuleOccupancyMaxActiveBlocksPerMultiprocessor)(int *n, void *f, int threads,
                                                                                                   size_t shared)
{
    *n = f && !shared ? 2048 / threads : 0;
    return OK;
}

/* ---- graphs */

FN(cuThreadExchangeStreamCaptureMode, hipThreadExchangeStreamCaptureMode)(int *m)
{
    const int before = mode;

    standin_state.mode = mode = *m;
    *m = before;
    return OK;
}

#ifndef STANDIN_LACKS
FN(cuStreamGetCaptureInfo, hipStreamGetCaptureInfo)(void *p, int *state, unsigned long long *id)
{
    const stream *s = (uintptr_t)p > 2 ? p : NULL;

    *state = s ? s->capturing : 0;
    if (*state)
        *id = s->id;
    return OK;
}

FN(cuStreamBeginCapture_v2, hipStreamBeginCapture)(void *p, int how)
{
    stream *s = p;

    if (how != 1 || s->capturing)
        return say(INVALID);
    s->capturing = 1;
    s->id = ++serial;
    return OK;
}

FN(cuStreamEndCapture, hipStreamEndCapture)(void *p, void **graph)
{
    stream *s = p;

    if (s->capturing != 1)
        return say(s->capturing ? 901 : INVALID);
    s->capturing = 0;
    *graph = malloc(1);
    return OK;
}

FN(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags)(void **exec, void *graph, unsigned long long flags)
{
    *exec = malloc(1);
    return graph && !flags ? OK : say(INVALID);
}

FN(cuGraphLaunch, hipGraphLaunch)(void *exec, void *s)
{
    standin_state.stream = s;
    return exec ? OK : say(INVALID);
}

FN(cuGraphExecDestroy, hipGraphExecDestroy)(void *exec)
{
    free(exec);
    return OK;
}

FN(cuGraphDestroy, hipGraphDestroy)(void *graph)
{
    free(graph);
    return OK;
}
#endif
