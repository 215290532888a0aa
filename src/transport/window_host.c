/* Windows in host memory, for devices that do not reach each other's: a file without a
 * name a rank, mapped by every rank for itself and made known to its driver.
 *
 *   device 0 ---> [ window 0 ]  <--- device 1       over PCIe, both of them
 *            ---> [ window 1 ]  <---
 */
#include "transport/window_state.h"

#include "base/log.h"

#include <sys/mman.h>
#include <unistd.h>

rcclx_status rcclx_window_host_make(const rcclx_windows *w, int *fd)
{
    *fd = memfd_create("rcclx-window", MFD_CLOEXEC);
    if (*fd >= 0 && ftruncate(*fd, (off_t)w->nbytes) == 0)
        return RCCLX_OK;
    const rcclx_status s = RCCLX_FAIL_ERRNO("rank %d of %d: init: host memory of %zu bytes that devices share", w->rank, w->nranks,
                                            w->nbytes);
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return s;
}

rcclx_status rcclx_window_host_map(const rcclx_windows *w, int fd, void **base, char **at)
{
    rcclx_gpu_pointer p;

    void *m = mmap(NULL, w->nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (m == MAP_FAILED)
        return RCCLX_FAIL_ERRNO("rank %d of %d: init: mapping %zu bytes that devices share", w->rank, w->nranks, w->nbytes);
    rcclx_status s = w->gpu->register_host(m, w->nbytes);
    if (s != RCCLX_OK) {
        munmap(m, w->nbytes);
        return s;
    }
    s = w->gpu->pointer(m, &p);
    if (s == RCCLX_OK && p.place != RCCLX_AT_PINNED)
        s = RCCLX_FAIL(RCCLX_UNSUPPORTED, "device %d does not find registered host memory", w->device);
    if (s != RCCLX_OK) {
        rcclx_window_host_unmap(w, m);
        return s;
    }
    *base = m;
    *at = (char *)(uintptr_t)p.device_ptr;
    return RCCLX_OK;
}

void rcclx_window_host_unmap(const rcclx_windows *w, void *base)
{
    if (base && w->gpu->unregister_host(base) == RCCLX_OK) /* else the device may still use it */
        munmap(base, w->nbytes);
}
