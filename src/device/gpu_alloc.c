/* Memory of devices and of the host that devices see.
 *
 * alloc prefers virtual memory: a handle, mapped, which peers get as a descriptor and
 * which outlives its maker while somebody has it mapped. Where the driver or the
 * device has none, plain memory. AMD's flags are always plain: only there can
 * memory be had that no cache holds. */
#include "device/gpu_entry.h"

#include <string.h>

enum {
    PINNED = 1, AT_DEVICE = 1, BY_FD = 1,                          /* virtual memory; alike in both */
    CUDA_RDMA = 110,                                               /* attribute: network cards may reach virtual memory */
    HIP_FINE = 1, HIP_UNCACHED = 3,                                /* hipExtMallocWithFlags */
    HOST_PORTABLE = 1, HOST_MAPPED = 2, HIP_COHERENT = 0x40000000, /* host memory */
    HIP_ANY_DIRECTION = 4,
};

/* All devices that reach this one's memory, as bits. */
static uint64_t neighbours(rcclx_driver *d, int device)
{
    uint64_t bits = 0;

    for (int i = 0; i < d->gpu.count; i++)
        if (rcclx_driver_reaches(d, i, device))
            bits |= UINT64_C(1) << i;
    return bits;
}

/* A driver's code, and the entry point that gave it. */
static int alloc_virtual(rcclx_driver *d, int device, bool fds, size_t *nbytes, void **ptr, rcclx_gpu_entry *entry)
{
    rcclx_gpu_vmm_kind kind = { .type = PINNED, .handles = fds ? BY_FD : 0, .at = { AT_DEVICE, d->handles[device] } };
    size_t granule = 0;
    uint64_t handle = 0;

    kind.rdma = rcclx_driver_ask(d, device, CUDA_RDMA, -1) > 0;
    *entry = RCCLX_ENTRY_vmm_granule;
    int e = d->f.vmm_granule(&granule, &kind, 0);
    if (e || !granule)
        return e ? e : RCCLX_GPU_E_INVALID;
    const size_t whole = (*nbytes + granule - 1) / granule * granule;
    *entry = RCCLX_ENTRY_vmm_create;
    e = d->f.vmm_create(&handle, whole, &kind, 0);
    if (e)
        return e;
    *nbytes = whole;
    return rcclx_region_map(d, handle, whole, device, neighbours(d, device), ptr, entry);
}

static rcclx_status alloc_plain(rcclx_driver *d, void **ptr, size_t nbytes, bool flags)
{
    if (!d->hip || !flags)
        return RCCLX_GPU_CALL(d, alloc, ptr, nbytes);
    const int e = d->f.alloc_as(ptr, nbytes, HIP_UNCACHED);
    if (e == 0 || e == RCCLX_GPU_E_MEMORY)
        return rcclx_driver_check(d, RCCLX_ENTRY_alloc_as, e);
    rcclx_driver_forget(d); /* not on every chip */
    return RCCLX_GPU_CALL(d, alloc_as, ptr, nbytes, HIP_FINE);
}

/* On a stream of its own, so that it neither waits for the user's work nor becomes part of a capture. */
static rcclx_status zero(rcclx_driver *d, void *ptr, size_t nbytes)
{
    rcclx_gpu_stream s = NULL;

    RCCLX_TRY(rcclx_driver_stream_create(d, &s));
    rcclx_status st = rcclx_driver_fill(d, ptr, 0, nbytes / sizeof(uint32_t), s);
    if (st == RCCLX_OK)
        st = rcclx_driver_stream_sync(d, s);
    const rcclx_status end = rcclx_driver_stream_destroy(d, s);
    return st == RCCLX_OK ? end : st;
}

static rcclx_status alloc_here(rcclx_driver *d, int device, void **ptr, size_t nbytes, bool flags)
{
    rcclx_gpu_entry entry = RCCLX_ENTRY_alloc;
    bool fds;
    int e = RCCLX_GPU_E_INVALID;

    if (rcclx_driver_vmm(d, device, &fds) && !(d->hip && flags))
        e = alloc_virtual(d, device, fds, &nbytes, ptr, &entry);
    if (e == RCCLX_GPU_E_MEMORY)
        return rcclx_driver_fail(d, entry, e);
    if (e) {
        rcclx_driver_forget(d);
        RCCLX_TRY(alloc_plain(d, ptr, nbytes, flags));
    }
    const rcclx_status s = zero(d, *ptr, nbytes);
    if (s != RCCLX_OK) {
        rcclx_driver_free(d, *ptr);
        *ptr = NULL;
    }
    return s;
}

rcclx_status rcclx_driver_alloc(rcclx_driver *d, void **ptr, size_t nbytes, bool flags)
{
    const size_t words = nbytes ? (nbytes + sizeof(uint32_t) - 1) / sizeof(uint32_t) : 1;
    rcclx_gpu_scope scope;
    int device;

    *ptr = NULL;
    RCCLX_TRY(rcclx_driver_here(d, &scope, &device));
    const rcclx_status s = alloc_here(d, device, ptr, words * sizeof(uint32_t), flags);
    rcclx_driver_leave(d, &scope);
    return s;
}

rcclx_status rcclx_driver_free(rcclx_driver *d, void *ptr)
{
    bool found;

    if (!ptr)
        return RCCLX_OK;
    RCCLX_TRY(rcclx_region_drop(d, ptr, &found));
    return found ? RCCLX_OK : RCCLX_GPU_CALL(d, free, ptr);
}

rcclx_status rcclx_driver_alloc_host(rcclx_driver *d, void **ptr, size_t nbytes)
{
    const unsigned how = HOST_PORTABLE | HOST_MAPPED | (d->hip ? (unsigned)HIP_COHERENT : 0);
    rcclx_gpu_scope scope;
    int device;

    *ptr = NULL;
    RCCLX_TRY(rcclx_driver_here(d, &scope, &device));
    const rcclx_status s = RCCLX_GPU_CALL(d, host_alloc, ptr, nbytes, how);
    rcclx_driver_leave(d, &scope);
    if (s == RCCLX_OK)
        memset(*ptr, 0, nbytes);
    return s;
}

rcclx_status rcclx_driver_free_host(rcclx_driver *d, void *ptr)
{
    return ptr ? RCCLX_GPU_CALL(d, host_free, ptr) : RCCLX_OK;
}

rcclx_status rcclx_driver_register_host(rcclx_driver *d, void *ptr, size_t nbytes)
{
    rcclx_gpu_scope scope;
    int device;

    RCCLX_TRY(rcclx_driver_here(d, &scope, &device));
    const rcclx_status s = RCCLX_GPU_CALL(d, host_register, ptr, nbytes, HOST_PORTABLE | HOST_MAPPED);
    rcclx_driver_leave(d, &scope);
    return s;
}

rcclx_status rcclx_driver_unregister_host(rcclx_driver *d, void *ptr)
{
    rcclx_gpu_scope scope;
    int device;

    RCCLX_TRY(rcclx_driver_here(d, &scope, &device));
    const rcclx_status s = RCCLX_GPU_CALL(d, host_unregister, ptr);
    rcclx_driver_leave(d, &scope);
    return s;
}

rcclx_status rcclx_driver_memory(rcclx_driver *d, size_t *left, size_t *total)
{
    return RCCLX_GPU_CALL(d, memory, left, total);
}

rcclx_status rcclx_driver_copy(rcclx_driver *d, void *dst, const void *src, size_t nbytes, rcclx_gpu_stream s)
{
    if (!d->hip)
        return RCCLX_GPU_CALL(d, copy, dst, src, nbytes, s);
    return RCCLX_GPU_CALL(d, hip_copy, dst, src, nbytes, HIP_ANY_DIRECTION, (uintptr_t)s == 1 ? NULL : s);
}

rcclx_status rcclx_driver_fill(rcclx_driver *d, void *dst, uint32_t word, size_t nwords, rcclx_gpu_stream s)
{
    return RCCLX_GPU_CALL(d, fill, dst, word, nwords, rcclx_driver_stream(d, s));
}

/* ---- whose is an address */

/* A mapping of virtual memory is a part of its reservation, which is the "range" of it; plain memory may share a mapping
 * with others, but has a range of its own: the allocation is where the two meet. */
static void meet(rcclx_gpu_pointer *p, uint64_t base, size_t nbytes)
{
    const uint64_t begin = base > p->base ? base : p->base;
    const uint64_t end = base + nbytes < p->base + p->nbytes ? base + nbytes : p->base + p->nbytes;

    if (nbytes && end > begin) {
        p->goes_on = end < p->base + p->nbytes;
        p->base = begin;
        p->nbytes = end - begin;
    }
}

static rcclx_status cuda_pointer(rcclx_driver *d, const void *ptr, rcclx_gpu_pointer *p)
{
    enum { TYPE = 2, POINTER = 3, SERIAL = 7, MANAGED = 8, ORDINAL = 9, RANGE = 11, RANGE_BYTES = 12 };
    enum { MAPPING_BYTES = 18, MAPPING = 19 }; /* from CUDA 12 on */
    enum { HOST = 1, DEVICE = 2 };
    int what[] = { TYPE, POINTER, SERIAL, MANAGED, ORDINAL, RANGE, RANGE_BYTES, MAPPING_BYTES, MAPPING };
    unsigned type = 0, managed = 0;
    int ordinal = -1;
    uint64_t mapping = 0;
    size_t mapping_bytes = 0;
    void *to[] = { &type, &p->device_ptr, &p->serial, &managed, &ordinal, &p->base, &p->nbytes, &mapping_bytes, &mapping };
    const bool mappings = d->version >= 12000;

    RCCLX_TRY(RCCLX_GPU_CALL(d, ask_pointer, mappings ? 9 : 7, what, to, ptr));
    if (managed)
        p->place = RCCLX_AT_MANAGED;
    else if (type == HOST)
        p->place = RCCLX_AT_PINNED;
    else if (type == DEVICE)
        p->place = RCCLX_AT_DEVICE;
    else
        return RCCLX_OK;
    p->device = type == HOST ? -1 : ordinal;
    void *base = NULL;
    if (!mappings && d->f.range(&base, &mapping_bytes, ptr) == 0)
        mapping = (uint64_t)(uintptr_t)base;
    meet(p, mapping, mapping_bytes);
    return RCCLX_OK;
}

/* HIP 6 renumbered the types and made unknown memory a type; before it was an error. */
static rcclx_gpu_place hip_place(const rcclx_driver *d, const rcclx_hip_pointer *h)
{
    static const rcclx_gpu_place old[] = { RCCLX_AT_PINNED, RCCLX_AT_DEVICE };
    static const rcclx_gpu_place now[] = { RCCLX_AT_HOST, RCCLX_AT_PINNED, RCCLX_AT_DEVICE };
    enum { OLD_UNIFIED = 3, NOW_MANAGED = 3, NOW_UNIFIED = 11 };

    if (h->managed || (d->major < 6 ? h->type == OLD_UNIFIED : h->type == NOW_MANAGED || h->type == NOW_UNIFIED))
        return RCCLX_AT_MANAGED;
    if (d->major < 6)
        return h->type >= 0 && h->type < 2 ? old[h->type] : RCCLX_AT_HOST;
    return h->type >= 0 && h->type < 3 ? now[h->type] : RCCLX_AT_HOST;
}

static rcclx_status hip_pointer(rcclx_driver *d, const void *ptr, rcclx_gpu_pointer *p)
{
    enum { SERIAL = 7 };
    rcclx_hip_pointer h = { .device = -1 };
    void *base = NULL;

    if (d->f.hip_pointer(&h, ptr)) {
        rcclx_driver_forget(d);
        return RCCLX_OK;
    }
    p->place = hip_place(d, &h);
    if (p->place == RCCLX_AT_HOST)
        return RCCLX_OK;
    p->device = p->place == RCCLX_AT_PINNED ? -1 : h.device;
    p->device_ptr = (uint64_t)(uintptr_t)h.device_ptr;
    if (d->f.range(&base, &p->nbytes, h.device_ptr)) {
        rcclx_driver_forget(d);
        p->nbytes = 0;
    }
    p->base = (uint64_t)(uintptr_t)base;
    if (d->f.hip_ask_pointer && d->f.hip_ask_pointer(&p->serial, SERIAL, ptr)) {
        rcclx_driver_forget(d);
        p->serial = 0;
    }
    return RCCLX_OK;
}

rcclx_status rcclx_driver_pointer(rcclx_driver *d, const void *ptr, rcclx_gpu_pointer *p)
{
    *p = (rcclx_gpu_pointer){ .place = RCCLX_AT_HOST, .device = -1 };
    const rcclx_status s = d->hip ? hip_pointer(d, ptr, p) : cuda_pointer(d, ptr, p);
    if (p->place == RCCLX_AT_HOST)
        *p = (rcclx_gpu_pointer){ .place = RCCLX_AT_HOST, .device = -1 }; /* whatever else it said */
    return s;
}
