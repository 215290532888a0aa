/* Memory of one process in another.
 *
 *   virtual memory   handle --export--> fd ~~socket~~> fd --import--> handle, mapped
 *   plain memory     64 bytes that say where it is ~~~~~~~~~~~~~~~~> opened
 *
 * What is mapped or opened here is a region. The driver opens plain memory once a process
 * and device; whoever asks again gets the same address and is counted. Virtual
 * memory that others have made (PyTorch's expandable segments) is asked for its handle;
 * such a segment is several handles side by side, and each is an allocation by itself. */
#include "device/gpu_entry.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum { AT_DEVICE = 1, READ_WRITE = 3, BY_FD = 1, LAZY_PEER = 1 };

/* The region an address lies in; locked. */
static rcclx_gpu_region *region_at(const rcclx_driver *d, const void *ptr)
{
    const char *p = ptr;
    rcclx_gpu_region *r = d->regions;

    while (r && !(p >= r->base && p < r->base + r->nbytes))
        r = r->next;
    return r;
}

/* ---- regions of virtual memory */

static int give(rcclx_driver *d, void *base, size_t nbytes, uint64_t devices)
{
    rcclx_gpu_vmm_access who[RCCLX_GPU_MAX];
    size_t n = 0;

    for (int i = 0; i < d->gpu.count; i++)
        if (devices >> i & 1)
            who[n++] = (rcclx_gpu_vmm_access){ { AT_DEVICE, d->handles[i] }, READ_WRITE };
    return d->f.vmm_access(base, nbytes, who, n);
}

static int map_handle(rcclx_driver *d, rcclx_gpu_region *r, uint64_t devices, rcclx_gpu_entry *entry)
{
    void *base = NULL;

    *entry = RCCLX_ENTRY_vmm_reserve;
    int e = d->f.vmm_reserve(&base, r->nbytes, 0, NULL, 0);
    if (e)
        return e;
    *entry = RCCLX_ENTRY_vmm_map;
    e = d->f.vmm_map(base, r->nbytes, 0, r->handle, 0);
    if (!e) {
        *entry = RCCLX_ENTRY_vmm_access;
        const uint64_t self = UINT64_C(1) << r->device;
        e = give(d, base, r->nbytes, devices | self);
        if (e && devices & ~self) { /* another device may be closed to this process */
            rcclx_driver_forget(d);
            e = give(d, base, r->nbytes, self);
        }
        if (e)
            d->f.vmm_unmap(base, r->nbytes);
    }
    if (e)
        d->f.vmm_unreserve(base, r->nbytes);
    r->base = base;
    return e;
}

int rcclx_region_map(rcclx_driver *d, uint64_t handle, size_t nbytes, int device, uint64_t devices, void **base,
                     rcclx_gpu_entry *entry)
{
    rcclx_gpu_region *r = RCCLX_NEW(rcclx_gpu_region);
    int e = RCCLX_GPU_E_MEMORY;

    *entry = RCCLX_ENTRY_vmm_map;
    if (r) {
        *r = (rcclx_gpu_region){ .kind = RCCLX_REGION_MAPPED, .handle = handle, .nbytes = nbytes, .device = device, .users = 1 };
        e = map_handle(d, r, devices, entry);
    }
    if (e) {
        d->f.vmm_release(handle);
        rcclx_mem_free(r);
        return e;
    }
    *base = r->base;
    pthread_mutex_lock(&d->lock);
    r->next = d->regions;
    d->regions = r;
    pthread_mutex_unlock(&d->lock);
    return 0;
}

static rcclx_status close_region(rcclx_driver *d, const rcclx_gpu_region *r)
{
    rcclx_gpu_scope scope;

    RCCLX_TRY(rcclx_driver_enter(d, &scope, r->device));
    rcclx_status s;
    if (r->kind == RCCLX_REGION_OPENED) {
        s = RCCLX_GPU_CALL(d, ipc_close, r->base);
    } else {
        s = RCCLX_GPU_CALL(d, vmm_unmap, r->base, r->nbytes);
        if (s == RCCLX_OK)
            s = RCCLX_GPU_CALL(d, vmm_release, r->handle);
        if (s == RCCLX_OK)
            s = RCCLX_GPU_CALL(d, vmm_unreserve, r->base, r->nbytes);
    }
    rcclx_driver_leave(d, &scope);
    return s;
}

rcclx_status rcclx_region_drop(rcclx_driver *d, void *base, bool *found)
{
    rcclx_status s = RCCLX_OK;

    pthread_mutex_lock(&d->lock);
    rcclx_gpu_region **at = &d->regions;
    while (*at && (*at)->base != (char *)base)
        at = &(*at)->next;
    rcclx_gpu_region *r = *at;
    *found = r != NULL;
    if (r && --r->users == 0) {
        *at = r->next;
        s = close_region(d, r); /* locked: who opens the same meanwhile would get what is being closed */
        rcclx_mem_free(r);
    }
    pthread_mutex_unlock(&d->lock);
    return s;
}

/* ---- export */

static rcclx_status export_handle(rcclx_driver *d, uint64_t handle, rcclx_gpu_handle *h)
{
    int fd = -1;
    const int e = d->f.vmm_export(&fd, handle, BY_FD, 0);

    if (e) {
        const rcclx_gpu_error why = rcclx_driver_error(d, e);
        rcclx_driver_forget(d);
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "this virtual memory cannot be shared with other processes, since it was made "
                          "without a descriptor (%s: %s): allocate with ncclMemAlloc, or for PyTorch without expandable_segments",
                          rcclx_driver_symbol(d, RCCLX_ENTRY_vmm_export), why.name);
    }
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    h->fd = fd;
    return RCCLX_OK;
}

/* An allocation of ours? OK with fd < 0: it is not. */
static rcclx_status export_region(rcclx_driver *d, const void *ptr, rcclx_gpu_handle *h)
{
    pthread_mutex_lock(&d->lock);
    const rcclx_gpu_region *r = region_at(d, ptr);
    rcclx_status s = RCCLX_OK;
    if (r && r->kind == RCCLX_REGION_MAPPED) {
        h->nbytes = r->nbytes;
        h->offset = (uint64_t)((const char *)ptr - r->base);
        s = export_handle(d, r->handle, h);
    }
    pthread_mutex_unlock(&d->lock);
    return s;
}

/* Virtual memory of somebody else? Only CUDA is asked: HIP crashes when it is other memory. */
static rcclx_status export_foreign(rcclx_driver *d, const rcclx_gpu_pointer *p, rcclx_gpu_handle *h)
{
    uint64_t handle = 0;

    if (!d->f.vmm_retain || !d->f.vmm_release || !d->f.vmm_export)
        return RCCLX_OK;
    if (d->f.vmm_retain(&handle, (void *)(uintptr_t)p->base) || !handle)
        return RCCLX_OK;
    const rcclx_status s = export_handle(d, handle, h);
    d->f.vmm_release(handle);
    return s;
}

static rcclx_status export_plain(rcclx_driver *d, const rcclx_gpu_pointer *p, rcclx_gpu_handle *h)
{
    rcclx_gpu_ipc ipc;
    const int e = d->f.ipc_get(&ipc, (void *)(uintptr_t)p->base);

    if (e) {
        const rcclx_gpu_error why = rcclx_driver_error(d, e);
        rcclx_driver_forget(d);
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "this memory of device %d cannot be shared with other processes, as memory of a "
                          "pool (cudaMallocAsync) or of another process cannot (%s: %s): use ncclMemAlloc or cudaMalloc",
                          p->device, rcclx_driver_symbol(d, RCCLX_ENTRY_ipc_get), why.name);
    }
    memcpy(h->ipc, ipc.bytes, sizeof(h->ipc));
    return RCCLX_OK;
}

static rcclx_status export_here(rcclx_driver *d, const void *ptr, rcclx_gpu_handle *h)
{
    static const char *const places[] = {
        [RCCLX_AT_HOST] = "not memory of a GPU", [RCCLX_AT_PINNED] = "pinned host memory", [RCCLX_AT_MANAGED] = "managed memory",
    };
    rcclx_gpu_pointer p;

    RCCLX_TRY(rcclx_driver_pointer(d, ptr, &p));
    if (p.place != RCCLX_AT_DEVICE)
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "%p is %s, which has no handle for other processes: allocate with ncclMemAlloc", ptr,
                          places[p.place]);
    if (!p.nbytes)
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "%p: %s does not say which allocation it lies in", ptr, d->gpu.about);
    h->nbytes = p.nbytes;
    h->offset = p.device_ptr - p.base;
    RCCLX_TRY(export_foreign(d, &p, h));
    return h->fd >= 0 ? RCCLX_OK : export_plain(d, &p, h);
}

rcclx_status rcclx_driver_export(rcclx_driver *d, const void *ptr, rcclx_gpu_handle *h)
{
    rcclx_gpu_scope scope;
    int device;

    *h = (rcclx_gpu_handle){ .fd = -1 };
    RCCLX_TRY(export_region(d, ptr, h));
    if (h->fd >= 0)
        return RCCLX_OK;
    RCCLX_TRY(rcclx_driver_here(d, &scope, &device));
    const rcclx_status s = export_here(d, ptr, h);
    rcclx_driver_leave(d, &scope);
    return s;
}

/* ---- import */

static rcclx_status import_fd(rcclx_driver *d, int device, const rcclx_gpu_handle *h, void **base)
{
    uint64_t handle = 0;
    int fd = h->fd;
    rcclx_gpu_entry entry;
    /* HIP wanted a pointer to the descriptor until 7.1 */
    void *os = d->hip && d->version < 70100000 ? (void *)&fd : (void *)(uintptr_t)fd;

    if (!d->f.vmm_map || !d->f.vmm_reserve || !d->f.vmm_access || !d->f.vmm_release || !d->f.vmm_unmap || !d->f.vmm_unreserve)
        return rcclx_driver_fail(d, RCCLX_ENTRY_vmm_map, RCCLX_GPU_E_MISSING);
    RCCLX_TRY(RCCLX_GPU_CALL(d, vmm_import, &handle, os, BY_FD));
    const int e = rcclx_region_map(d, handle, h->nbytes, device, UINT64_C(1) << device, base, &entry);
    return rcclx_driver_check(d, entry, e);
}

static rcclx_status open_ipc(rcclx_driver *d, int device, const rcclx_gpu_handle *h, void **base)
{
    const unsigned how = d->hip && d->major < 6 ? 0 : LAZY_PEER;
    rcclx_gpu_region *r = d->regions;

    while (r && !(r->kind == RCCLX_REGION_OPENED && r->device == device && memcmp(r->ipc.bytes, h->ipc, sizeof(h->ipc)) == 0))
        r = r->next;
    if (!r) {
        r = RCCLX_NEW(rcclx_gpu_region);
        if (!r)
            return RCCLX_FAIL(RCCLX_NOMEM, "out of memory for a mapping of a peer's buffer");
        *r = (rcclx_gpu_region){ .kind = RCCLX_REGION_OPENED, .nbytes = h->nbytes, .device = device };
        memcpy(r->ipc.bytes, h->ipc, sizeof(h->ipc));
        void *at = NULL;
        const rcclx_status s = RCCLX_GPU_CALL(d, ipc_open, &at, r->ipc, how);
        if (s != RCCLX_OK) {
            rcclx_mem_free(r);
            return s;
        }
        r->base = at;
        r->next = d->regions;
        d->regions = r;
    }
    r->users++;
    *base = r->base;
    return RCCLX_OK;
}

rcclx_status rcclx_driver_import(rcclx_driver *d, const rcclx_gpu_handle *h, void **base)
{
    rcclx_gpu_scope scope;
    rcclx_status s;
    int device;

    *base = NULL;
    RCCLX_TRY(rcclx_driver_here(d, &scope, &device));
    if (h->fd >= 0) {
        s = import_fd(d, device, h, base);
    } else {
        pthread_mutex_lock(&d->lock);
        s = open_ipc(d, device, h, base);
        pthread_mutex_unlock(&d->lock);
    }
    rcclx_driver_leave(d, &scope);
    return s;
}

rcclx_status rcclx_driver_unimport(rcclx_driver *d, void *base)
{
    bool found;

    RCCLX_TRY(rcclx_region_drop(d, base, &found));
    return found ? RCCLX_OK : RCCLX_FAIL(RCCLX_ARGUMENT, "%p was not mapped by import", base);
}

/* ---- devices of this process */

rcclx_status rcclx_driver_share(rcclx_driver *d, void *ptr)
{
    rcclx_gpu_pointer p;
    bool mapped = false;
    int device, e = 0;

    RCCLX_TRY(rcclx_driver_current(d, &device));
    pthread_mutex_lock(&d->lock);
    const rcclx_gpu_region *r = region_at(d, ptr);
    if (r && r->kind == RCCLX_REGION_MAPPED) {
        mapped = true;
        e = give(d, r->base, r->nbytes, UINT64_C(1) << device);
    }
    pthread_mutex_unlock(&d->lock);
    if (mapped)
        return rcclx_driver_check(d, RCCLX_ENTRY_vmm_access, e);
    RCCLX_TRY(rcclx_driver_pointer(d, ptr, &p));
    if (p.place != RCCLX_AT_DEVICE)
        return p.place == RCCLX_AT_HOST ? RCCLX_FAIL(RCCLX_ARGUMENT, "%p is not memory of a GPU", ptr) : RCCLX_OK;
    return rcclx_driver_enable_peer(d, p.device);
}
