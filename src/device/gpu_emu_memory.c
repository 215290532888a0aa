/* Memory of emulated devices: a nameless file (memfd) each allocation, mapped shared.
 * Export hands out a copy of its descriptor, import maps such a file here. What is not
 * in the list is host memory that the driver does not know. */
#include "device/gpu_emu_inside.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum { OWN, PINNED, IMPORTED, REGISTERED } kind;

struct emu_allocation {
    emu_allocation *next;
    kind            kind;
    char           *base;
    size_t          nbytes, mapped;
    int             device, fd;
    uint64_t        serial;
};

static const char *const calls[] = { "free", "free_host", "unimport", "unregister_host" };
static const char *const kinds[] = { "memory of a device", "pinned host memory", "memory of a peer, mapped here", "registered host memory" };

/* The allocation that ptr lies in, with the list locked. */
static emu_allocation *lookup(emu_state *e, const void *ptr)
{
    emu_allocation *a = e->allocations;

    while (a && ((const char *)ptr < a->base || (const char *)ptr >= a->base + a->nbytes))
        a = a->next;
    return a;
}

static void dispose(emu_allocation *a)
{
    if (a->base && a->kind != REGISTERED)
        munmap(a->base, a->mapped);
    if (a->fd >= 0)
        close(a->fd);
    rcclx_mem_free(a);
}

static void enter_in_list(emu_allocation *a)
{
    emu_state *e = rcclx_emu_state();

    pthread_mutex_lock(&e->memory);
    a->serial = ++e->serial;
    a->next = e->allocations;
    e->allocations = a;
    pthread_mutex_unlock(&e->memory);
}

/* Map fd, or nobody's memory, and put it in the list. Takes the descriptor. */
static rcclx_status add(kind k, int fd, size_t nbytes, const char *call, void **ptr)
{
    const size_t    page = (size_t)sysconf(_SC_PAGESIZE), mapped = (nbytes + page - 1) / page * page;
    const int       flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    emu_allocation *a = RCCLX_NEW(emu_allocation);

    if (!a) {
        if (fd >= 0)
            close(fd);
        return RCCLX_FAIL(RCCLX_NOMEM, "emu: %s: no memory for a note of it", call);
    }
    *a = (emu_allocation){ .kind = k, .nbytes = nbytes, .mapped = mapped, .device = rcclx_emu_device(), .fd = fd };
    void *p = mmap(NULL, mapped, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (p == MAP_FAILED) {
        const int error = errno;
        dispose(a);
        errno = error;
        return RCCLX_FAIL_ERRNO("emu: %s: mapping %zu bytes", call, nbytes);
    }
    a->base = *ptr = p;
    enter_in_list(a);
    return RCCLX_OK;
}

static rcclx_status take_away(kind k, void *ptr)
{
    emu_state      *e = rcclx_emu_state();
    emu_allocation *a = NULL;

    RCCLX_TRY(rcclx_emu_unsafe(calls[k]));
    pthread_mutex_lock(&e->memory);
    for (emu_allocation **at = &e->allocations; *at; at = &(*at)->next) {
        if ((*at)->base != ptr || (*at)->kind != k)
            continue;
        a = *at;
        *at = a->next;
        if (k == OWN)
            e->devices[a->device].used -= a->nbytes;
        break;
    }
    pthread_mutex_unlock(&e->memory);
    if (!a)
        return RCCLX_FAIL(RCCLX_SYSTEM, "emu: %s: %p is not the beginning of %s; was it freed before?", calls[k], ptr, kinds[k]);
    dispose(a);
    return RCCLX_OK;
}

/* Of the current device's memory; false: there is not so much. */
static bool charge(emu_state *e, size_t nbytes)
{
    emu_device *d = &e->devices[rcclx_emu_device()];

    pthread_mutex_lock(&e->memory);
    const bool fits = nbytes <= e->capacity - d->used;
    if (fits)
        d->used += nbytes;
    pthread_mutex_unlock(&e->memory);
    return fits;
}

static void discharge(emu_state *e, size_t nbytes)
{
    pthread_mutex_lock(&e->memory);
    e->devices[rcclx_emu_device()].used -= nbytes;
    pthread_mutex_unlock(&e->memory);
}

static rcclx_status make(size_t nbytes, void **ptr)
{
    const int fd = memfd_create("rcclx emulated device", MFD_CLOEXEC);

    if (fd < 0)
        return RCCLX_FAIL_ERRNO("emu: alloc: memfd_create");
    if (ftruncate(fd, (off_t)nbytes)) {
        const int error = errno;
        close(fd);
        errno = error;
        return RCCLX_FAIL_ERRNO("emu: alloc: ftruncate to %zu bytes", nbytes);
    }
    return add(OWN, fd, nbytes, "alloc", ptr);
}

rcclx_status rcclx_emu_alloc(void **ptr, size_t nbytes, bool flags)
{
    emu_state *e = rcclx_emu_state();

    (void)flags; /* memory of the host is coherent */
    *ptr = NULL;
    RCCLX_TRY(rcclx_emu_unsafe("alloc"));
    if (!nbytes)
        return RCCLX_FAIL(RCCLX_SYSTEM, "emu: alloc: of no bytes");
    if (!charge(e, nbytes)) {
        return RCCLX_FAIL(RCCLX_NOMEM, "emu: alloc: device %d has no %zu bytes left of %zu; free some, or raise "
                          "RCCLX_EMU_MEMORY", rcclx_emu_device(), nbytes, e->capacity);
    }
    const rcclx_status s = make(nbytes, ptr);
    if (s != RCCLX_OK)
        discharge(e, nbytes);
    return s;
}

rcclx_status rcclx_emu_free(void *ptr)
{
    return ptr ? take_away(OWN, ptr) : RCCLX_OK;
}

rcclx_status rcclx_emu_alloc_host(void **ptr, size_t nbytes)
{
    *ptr = NULL;
    RCCLX_TRY(rcclx_emu_unsafe("alloc_host"));
    if (!nbytes)
        return RCCLX_FAIL(RCCLX_SYSTEM, "emu: alloc_host: of no bytes");
    return add(PINNED, -1, nbytes, "alloc_host", ptr);
}

rcclx_status rcclx_emu_free_host(void *ptr)
{
    return ptr ? take_away(PINNED, ptr) : RCCLX_OK;
}

rcclx_status rcclx_emu_register_host(void *ptr, size_t nbytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    RCCLX_TRY(rcclx_emu_unsafe("register_host"));
    if (!ptr || !nbytes || ((uintptr_t)ptr | nbytes) % page)
        return RCCLX_FAIL(RCCLX_SYSTEM, "emu: register_host: %zu bytes at %p are not whole pages", nbytes, ptr);
    emu_allocation *a = RCCLX_NEW(emu_allocation);
    if (!a)
        return RCCLX_FAIL(RCCLX_NOMEM, "emu: register_host: no memory for a note of it");
    *a = (emu_allocation){ .kind = REGISTERED, .base = ptr, .nbytes = nbytes, .mapped = nbytes, .device = -1, .fd = -1 };
    enter_in_list(a);
    return RCCLX_OK;
}

rcclx_status rcclx_emu_unregister_host(void *ptr)
{
    return take_away(REGISTERED, ptr);
}

rcclx_status rcclx_emu_memory(size_t *left, size_t *total)
{
    emu_state *e = rcclx_emu_state();

    pthread_mutex_lock(&e->memory);
    *total = e->capacity;
    *left = e->capacity - e->devices[rcclx_emu_device()].used;
    pthread_mutex_unlock(&e->memory);
    return RCCLX_OK;
}

rcclx_status rcclx_emu_pointer(const void *ptr, rcclx_gpu_pointer *p)
{
    emu_state *e = rcclx_emu_state();

    *p = (rcclx_gpu_pointer){ .place = RCCLX_AT_HOST, .device = -1 };
    pthread_mutex_lock(&e->memory);
    const emu_allocation *a = lookup(e, ptr);
    if (a) {
        *p = (rcclx_gpu_pointer){
            .place = a->kind == PINNED || a->kind == REGISTERED ? RCCLX_AT_PINNED : RCCLX_AT_DEVICE,
            .device = a->kind == PINNED ? -1 : a->device,
            .device_ptr = (uint64_t)(uintptr_t)ptr,
            .base = (uint64_t)(uintptr_t)a->base,
            .nbytes = a->nbytes,
            .serial = a->serial,
        };
    }
    pthread_mutex_unlock(&e->memory);
    return RCCLX_OK;
}

rcclx_status rcclx_emu_export(const void *ptr, rcclx_gpu_handle *h)
{
    emu_state *e = rcclx_emu_state();
    int        fd = -1, error = 0;
    kind       k = PINNED;

    *h = (rcclx_gpu_handle){ .fd = -1 };
    pthread_mutex_lock(&e->memory);
    const emu_allocation *a = lookup(e, ptr);
    if (a && (k = a->kind) == OWN) {
        fd = fcntl(a->fd, F_DUPFD_CLOEXEC, 0);
        error = errno;
        *h = (rcclx_gpu_handle){ .fd = fd, .nbytes = a->nbytes, .offset = (uint64_t)((const char *)ptr - a->base) };
    }
    pthread_mutex_unlock(&e->memory);
    if (!a || k != OWN)
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "emu: export: %p is %s; only memory made by alloc can be exported", ptr,
                          a ? kinds[k] : "host memory that the driver does not know");
    errno = error;
    return fd < 0 ? RCCLX_FAIL_ERRNO("emu: export: another descriptor of %p", ptr) : RCCLX_OK;
}

rcclx_status rcclx_emu_import(const rcclx_gpu_handle *h, void **base)
{
    struct stat st;

    *base = NULL;
    RCCLX_TRY(rcclx_emu_unsafe("import"));
    if (h->fd < 0 || !h->nbytes)
        return RCCLX_FAIL(RCCLX_SYSTEM, "emu: import: a handle without a descriptor");
    if (fstat(h->fd, &st))
        return RCCLX_FAIL_ERRNO("emu: import: descriptor %d", h->fd);
    if ((uint64_t)st.st_size < h->nbytes)
        return RCCLX_FAIL(RCCLX_SYSTEM, "emu: import: descriptor %d has %llu bytes, its handle says %llu", h->fd,
                          (unsigned long long)st.st_size, (unsigned long long)h->nbytes);
    const int fd = fcntl(h->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return RCCLX_FAIL_ERRNO("emu: import: another descriptor of %d", h->fd);
    return add(IMPORTED, fd, h->nbytes, "import", base);
}

rcclx_status rcclx_emu_unimport(void *base)
{
    return take_away(IMPORTED, base);
}

rcclx_status rcclx_emu_share(void *ptr)
{
    emu_state        *e = rcclx_emu_state();
    const int         here = rcclx_emu_device();
    rcclx_gpu_pointer p;

    RCCLX_TRY(rcclx_emu_pointer(ptr, &p));
    if (p.place != RCCLX_AT_DEVICE)
        return RCCLX_FAIL(RCCLX_SYSTEM, "emu: share: %p is not memory of a device", ptr);
    if (!e->gpu.reaches(here, p.device))
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "emu: share: device %d cannot reach memory of device %d (RCCLX_EMU_UNREACHABLE)",
                          here, p.device);
    return RCCLX_OK;
}
