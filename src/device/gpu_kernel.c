/* Kernels: which of the embedded code objects fits a device, and how they are launched.
 *
 *   device sm_90    sm_90 > sm_8x never   same major version, minor not above; the nearest
 *                   ptx_90, ptx_80, ...   else the newest that is not above
 *   device gfx942   gfx942                nothing else
 *
 * An architecture with a letter (sm_90a) fits that device alone. */
#include "device/gpu_entry.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "sm_90" with prefix "sm_": 90, and whether a letter follows; -1: not of that kind. */
static int number(const char *arch, const char *prefix, bool *letter)
{
    char *end;

    if (strncmp(arch, prefix, strlen(prefix)) != 0)
        return -1;
    const long n = strtol(arch + strlen(prefix), &end, 10);
    *letter = *end != 0;
    return (int)n;
}

/* How well it fits; 0: not at all. */
static int fit(const char *object, const char *arch)
{
    enum { EXACT = 1 << 20, BINARY = 1 << 10 };
    bool letter = false, unused;
    const int device = number(arch, "sm_", &unused);

    if (strcmp(object, arch) == 0)
        return EXACT;
    if (device < 0)
        return 0;
    int n = number(object, "sm_", &letter);
    if (n >= 0) {
        if (letter)
            return n == device ? EXACT + 1 : 0; /* uses what only this device has */
        return n / 10 == device / 10 && n <= device ? BINARY + n : 0;
    }
    n = number(object, "ptx_", &letter);
    return n > 0 && (letter ? n == device : n <= device) ? n : 0;
}

const rcclx_code_object *rcclx_code_choose(const rcclx_code_object *all, rcclx_gpu_kind kind, const char *arch)
{
    const rcclx_code_object *best = NULL;

    for (const rcclx_code_object *o = all; o->data; o++)
        if (o->kind == kind && fit(o->arch, arch) > (best ? fit(best->arch, arch) : 0))
            best = o;
    return best;
}

static rcclx_status nothing_fits(rcclx_gpu_kind kind, int device, const rcclx_gpu_info *info)
{
    char have[256] = "";

    for (const rcclx_code_object *o = rcclx_code_objects; o->data; o++) {
        const size_t at = strlen(have);
        if (o->kind == kind)
            snprintf(have + at, sizeof(have) - at, "%s%s", at ? ", " : "", o->arch);
    }
    return RCCLX_FAIL(RCCLX_UNSUPPORTED, "device %d (%s) is %s, and this library holds kernels for %s%s%s: build it for %s",
                      device, info->name, info->arch, *have ? have : "none of its maker",
                      *rcclx_code_missing ? "; at build time: " : "", rcclx_code_missing, info->arch);
}

/* PTX is text, and must end like one. */
static rcclx_status load_object(rcclx_driver *d, rcclx_gpu_module *m, const rcclx_code_object *o)
{
    if (strncmp(o->arch, "ptx_", 4) != 0 || o->data[o->nbytes - 1] == 0)
        return RCCLX_GPU_CALL(d, module_load, m, o->data);
    unsigned char *text = rcclx_mem_alloc(o->nbytes + 1);
    if (!text)
        return RCCLX_FAIL(RCCLX_NOMEM, "out of memory for the text of kernels (%zu bytes)", o->nbytes);
    memcpy(text, o->data, o->nbytes);
    const rcclx_status s = RCCLX_GPU_CALL(d, module_load, m, text);
    rcclx_mem_free(text);
    return s;
}

rcclx_status rcclx_driver_load(rcclx_driver *d, rcclx_gpu_module *m, int device)
{
    rcclx_gpu_info info;
    rcclx_gpu_scope scope;

    *m = NULL;
    RCCLX_TRY(rcclx_driver_info(d, device, &info));
    const rcclx_code_object *o = rcclx_code_choose(rcclx_code_objects, d->gpu.kind, info.arch);
    if (!o)
        return nothing_fits(d->gpu.kind, device, &info);
    RCCLX_TRY(rcclx_driver_enter(d, &scope, device));
    const rcclx_status s = load_object(d, m, o);
    rcclx_driver_leave(d, &scope);
    return s;
}

rcclx_status rcclx_driver_unload(rcclx_driver *d, rcclx_gpu_module m)
{
    return RCCLX_GPU_CALL(d, module_unload, m);
}

rcclx_status rcclx_driver_function(rcclx_driver *d, rcclx_gpu_fn *f, rcclx_gpu_module m, const char *name)
{
    RCCLX_TRY(RCCLX_GPU_CALL(d, module_fn, f, m, name));
    /* Now, and not at its first launch, which would wait for kernels that wait for it. */
    return d->f.fn_load ? RCCLX_GPU_CALL(d, fn_load, *f) : RCCLX_OK;
}

rcclx_status rcclx_driver_launch(rcclx_driver *d, rcclx_gpu_fn f, unsigned blocks, unsigned threads, rcclx_gpu_stream s,
                                 const void *args, size_t nargs)
{
    /* What follows is a buffer; its size; the end, which HIP numbers otherwise. */
    void *const buffer = (void *)1, *const size = (void *)2, *const end = d->hip ? (void *)3 : NULL;
    union { const void *in; void *out; } a = { args }; /* the driver only reads it */
    void *extra[] = { buffer, a.out, size, &nargs, end };

    return RCCLX_GPU_CALL(d, launch, f, blocks, 1, 1, threads, 1, 1, 0, rcclx_driver_stream(d, s), NULL, extra);
}

rcclx_status rcclx_driver_occupancy(rcclx_driver *d, rcclx_gpu_fn f, unsigned threads, int *blocks_per_sm)
{
    return RCCLX_GPU_CALL(d, occupancy, blocks_per_sm, f, (int)threads, 0);
}
