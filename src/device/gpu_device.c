/* Devices and contexts.
 *
 * CUDA keeps a stack of contexts in each thread; enter pushes the device's primary
 * context, the one that the runtime API uses, and leave pops it, so that a thread
 * without a context has none afterwards. HIP keeps a device in each thread. Either
 * way a thread that is there already pays one cheap call. */
#include "device/gpu_entry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of attributes: CUDA's, HIP's (the same in HIP 5, 6 and 7). */
enum {
    CUDA_WAVE = 10, CUDA_CLOCK = 13, CUDA_UNITS = 16, CUDA_MAJOR = 75, CUDA_MINOR = 76, CUDA_VMM = 102, CUDA_FDS = 103,
    HIP_CLOCK = 5, HIP_UNITS = 63, HIP_WAVE = 87, HIP_VMM = 89,
};

static rcclx_status check_device(const rcclx_driver *d, int device)
{
    if (device >= 0 && device < d->gpu.count)
        return RCCLX_OK;
    return RCCLX_FAIL(RCCLX_ARGUMENT, "device %d: %s has %d, counted from 0", device, d->gpu.about, d->gpu.count);
}

int rcclx_driver_ask(rcclx_driver *d, int device, int cuda, int hip)
{
    const int what = d->hip ? hip : cuda;
    int value = 0;

    if (what < 0)
        return 0;
    if (d->f.device_ask(&value, what, d->handles[device])) {
        rcclx_driver_forget(d);
        value = 0;
    }
    return value;
}

/* HIP's virtual memory came with descriptors that can be trusted in version 7; CUDA says so itself. */
bool rcclx_driver_vmm(rcclx_driver *d, int device, bool *fds)
{
    const rcclx_gpu_entries *f = &d->f;
    const bool all = f->vmm_granule && f->vmm_create && f->vmm_release && f->vmm_reserve && f->vmm_unreserve && f->vmm_map &&
                     f->vmm_unmap && f->vmm_access && f->vmm_export && f->vmm_import;
    const bool have = all && (!d->hip || d->major >= 7) && rcclx_driver_ask(d, device, CUDA_VMM, HIP_VMM) > 0;

    *fds = have && (d->hip || rcclx_driver_ask(d, device, CUDA_FDS, -1) > 0);
    return have;
}

/* "gfx942" of "gfx942:sramecc+:xnack-". The struct grew between versions and its fields moved; the text is
 * the one that begins with gfx and a digit, behind the name (256 bytes). */
static rcclx_status hip_arch(rcclx_driver *d, int device, char *arch, size_t n)
{
    char all[8192] = "";

    if (d->f.device_all)
        RCCLX_TRY(RCCLX_GPU_CALL(d, device_all, all, device));
    else
        RCCLX_TRY(RCCLX_GPU_CALL(d, device_all_old, all, device));
    for (const char *p = all + 256; p < all + sizeof(all) - 64; p++) {
        if (memcmp(p, "gfx", 3) != 0 || p[3] < '0' || p[3] > '9')
            continue;
        snprintf(arch, n, "%.*s", (int)strcspn(p, ":"), p);
        return RCCLX_OK;
    }
    return RCCLX_FAIL(RCCLX_UNSUPPORTED, "device %d: %s does not say its architecture", device, d->gpu.about);
}

rcclx_status rcclx_driver_info(rcclx_driver *d, int device, rcclx_gpu_info *info)
{
    RCCLX_TRY(check_device(d, device));
    memset(info, 0, sizeof(*info));
    RCCLX_TRY(RCCLX_GPU_CALL(d, device_name, info->name, (int)sizeof(info->name) - 1, d->handles[device]));
    RCCLX_TRY(RCCLX_GPU_CALL(d, device_pci, info->pci, (int)sizeof(info->pci) - 1, d->handles[device]));
    RCCLX_TRY(RCCLX_GPU_CALL(d, device_memory, &info->memory, d->handles[device]));
    for (char *c = info->pci; *c; c++) /* as sysfs spells it */
        if (*c >= 'A' && *c <= 'F')
            *c = (char)(*c - 'A' + 'a');
    info->sms = rcclx_driver_ask(d, device, CUDA_UNITS, HIP_UNITS);
    info->wave = rcclx_driver_ask(d, device, CUDA_WAVE, HIP_WAVE);
    info->clock_khz = rcclx_driver_ask(d, device, CUDA_CLOCK, HIP_CLOCK);
    rcclx_driver_vmm(d, device, &info->fd_handles);
    if (d->hip)
        return hip_arch(d, device, info->arch, sizeof(info->arch));
    snprintf(info->arch, sizeof(info->arch), "sm_%d%d", rcclx_driver_ask(d, device, CUDA_MAJOR, -1),
             rcclx_driver_ask(d, device, CUDA_MINOR, -1));
    return RCCLX_OK;
}

/* The device's primary context: retained once and kept, since tearing it down would take the user's along. */
static rcclx_status context_of(rcclx_driver *d, int device, void **context)
{
    rcclx_status s = RCCLX_OK;

    RCCLX_TRY(check_device(d, device));
    *context = __atomic_load_n(&d->contexts[device], __ATOMIC_ACQUIRE);
    if (*context)
        return RCCLX_OK;
    pthread_mutex_lock(&d->making);
    if (!d->contexts[device]) {
        void *made = NULL;
        s = RCCLX_GPU_CALL(d, context_retain, &made, d->handles[device]);
        if (s == RCCLX_OK)
            __atomic_store_n(&d->contexts[device], made, __ATOMIC_RELEASE);
    }
    *context = d->contexts[device];
    pthread_mutex_unlock(&d->making);
    return s;
}

rcclx_status rcclx_driver_current(rcclx_driver *d, int *device)
{
    void *context = NULL;
    int handle = 0;

    if (d->hip)
        return RCCLX_GPU_CALL(d, device_current, device);
    *device = 0;
    RCCLX_TRY(RCCLX_GPU_CALL(d, context_get, &context));
    if (!context)
        return RCCLX_OK;
    RCCLX_TRY(RCCLX_GPU_CALL(d, context_device, &handle));
    for (int i = 0; i < d->gpu.count; i++)
        if (d->handles[i] == handle)
            *device = i;
    return RCCLX_OK;
}

rcclx_status rcclx_driver_enter(rcclx_driver *d, rcclx_gpu_scope *s, int device)
{
    void *wanted;

    *s = (rcclx_gpu_scope){ .device = -1 };
    if (d->hip) {
        RCCLX_TRY(check_device(d, device));
        RCCLX_TRY(RCCLX_GPU_CALL(d, device_current, &s->device));
        if (s->device == device)
            return RCCLX_OK;
        RCCLX_TRY(RCCLX_GPU_CALL(d, device_set, device));
    } else {
        RCCLX_TRY(context_of(d, device, &wanted));
        RCCLX_TRY(RCCLX_GPU_CALL(d, context_get, &s->context));
        if (s->context == wanted)
            return RCCLX_OK;
        RCCLX_TRY(RCCLX_GPU_CALL(d, context_push, wanted));
    }
    s->changed = true;
    return RCCLX_OK;
}

void rcclx_driver_leave(rcclx_driver *d, const rcclx_gpu_scope *s)
{
    void *popped;

    if (!s->changed)
        return;
    if (d->hip)
        d->f.device_set(s->device);
    else
        d->f.context_pop(&popped);
}

rcclx_status rcclx_driver_here(rcclx_driver *d, rcclx_gpu_scope *s, int *device)
{
    RCCLX_TRY(rcclx_driver_current(d, device));
    return rcclx_driver_enter(d, s, *device);
}

bool rcclx_driver_reaches(rcclx_driver *d, int device, int peer)
{
    int can = 0;

    if (device < 0 || peer < 0 || device >= d->gpu.count || peer >= d->gpu.count)
        return false;
    if (device == peer)
        return true;
    if (d->f.device_reaches(&can, d->handles[device], d->handles[peer])) {
        rcclx_driver_forget(d);
        return false;
    }
    return can != 0;
}

rcclx_status rcclx_driver_enable_peer(rcclx_driver *d, int peer)
{
    void *context = NULL;
    int device = 0, e;

    RCCLX_TRY(check_device(d, peer));
    RCCLX_TRY(rcclx_driver_current(d, &device));
    if (device == peer)
        return RCCLX_OK;
    if (!d->hip)
        RCCLX_TRY(context_of(d, peer, &context));
    e = d->hip ? d->f.device_peer(peer, 0) : d->f.context_peer(context, 0);
    if (e == RCCLX_GPU_E_PEER_ALREADY) {
        rcclx_driver_forget(d);
        return RCCLX_OK;
    }
    return rcclx_driver_check(d, d->hip ? RCCLX_ENTRY_device_peer : RCCLX_ENTRY_context_peer, e);
}
