/* The emulated driver's table, its devices, and what a thread has set. The parts are
 * listed in gpu_emu_inside.h. */
#include "device/gpu_emu_inside.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "base/process.h"

#include <stdio.h>
#include <string.h>

static _Thread_local int here; /* the thread's device */

int rcclx_emu_device(void)
{
    return here;
}

/* ---- devices */

static rcclx_status known(const char *call, int device)
{
    const int count = rcclx_emu_state()->gpu.count;

    if (device >= 0 && device < count)
        return RCCLX_OK;
    return RCCLX_FAIL(RCCLX_SYSTEM, "emu: %s: there is no device %d; there are %d (RCCLX_EMU_DEVICES)", call, device, count);
}

static rcclx_status info(int device, rcclx_gpu_info *i)
{
    RCCLX_TRY(known("info", device));
    *i = (rcclx_gpu_info){ .arch = "host", .sms = 64, .wave = RCCLX_EMU_WAVE, .clock_khz = 1000000,
                           .memory = rcclx_emu_state()->capacity, .fd_handles = true };
    snprintf(i->name, sizeof(i->name), "Emulated GPU %d", device);
    snprintf(i->pci, sizeof(i->pci), "ffff:%02x:00.0", device); /* of no machine */
    return RCCLX_OK;
}

static rcclx_status current(int *device)
{
    *device = here;
    return RCCLX_OK;
}

static rcclx_status enter(rcclx_gpu_scope *s, int device)
{
    RCCLX_TRY(known("enter", device));
    *s = (rcclx_gpu_scope){ .device = here, .changed = here != device };
    here = device;
    return RCCLX_OK;
}

static void leave(const rcclx_gpu_scope *s)
{
    if (s->changed)
        here = s->device;
}

static bool reaches(int device, int peer)
{
    const emu_state *e = rcclx_emu_state();

    if (device < 0 || device >= e->gpu.count || peer < 0 || peer >= e->gpu.count)
        return false;
    return !(e->devices[device].unreachable >> peer & 1);
}

static rcclx_status enable_peer(int peer)
{
    RCCLX_TRY(known("enable_peer", peer));
    if (!reaches(here, peer))
        return RCCLX_FAIL(RCCLX_SYSTEM, "emu: enable_peer: device %d cannot reach device %d (RCCLX_EMU_UNREACHABLE)", here, peer);
    return RCCLX_OK;
}

/* ---- kernels: they are part of the library, so a module is only its device */

static rcclx_status load(rcclx_gpu_module *m, int device)
{
    RCCLX_TRY(known("load", device));
    *m = &rcclx_emu_state()->devices[device];
    return RCCLX_OK;
}

static rcclx_status unload(rcclx_gpu_module m)
{
    (void)m;
    return RCCLX_OK;
}

void rcclx_emu_function(void (*run)(const void *args), rcclx_gpu_fn *f)
{
    const union { rcclx_gpu_fn f; emu_run *run; } entry = { .run = run };

    *f = entry.f;
}

static rcclx_status function(rcclx_gpu_fn *f, rcclx_gpu_module m, const char *name)
{
    (void)m;
    for (const rcclx_emu_kernel *k = rcclx_emu_kernels; k->name; k++) {
        if (strcmp(k->name, name))
            continue;
        rcclx_emu_function(k->run, f);
        return RCCLX_OK;
    }
    *f = NULL;
    return RCCLX_FAIL(RCCLX_SYSTEM, "emu: function: no kernel %s was compiled for the host", name);
}

/* Blocks are threads, as many as are asked for; one a multiprocessor is what a caller may count on. */
static rcclx_status occupancy(rcclx_gpu_fn f, unsigned threads, int *blocks_per_sm)
{
    (void)f;
    *blocks_per_sm = threads <= RCCLX_EMU_THREADS;
    return RCCLX_OK;
}

/* ---- the driver */

static const rcclx_gpu functions = {
    .kind = RCCLX_GPU_EMU, .name = "emu", .about = "GPUs of host threads (emulated)",
    .info = info, .current = current, .enter = enter, .leave = leave, .reaches = reaches, .enable_peer = enable_peer,
    .alloc = rcclx_emu_alloc, .free = rcclx_emu_free, .alloc_host = rcclx_emu_alloc_host, .free_host = rcclx_emu_free_host,
    .register_host = rcclx_emu_register_host, .unregister_host = rcclx_emu_unregister_host,
    .memory = rcclx_emu_memory, .pointer = rcclx_emu_pointer, .export = rcclx_emu_export, .import = rcclx_emu_import,
    .unimport = rcclx_emu_unimport, .share = rcclx_emu_share, .copy = rcclx_emu_copy, .fill = rcclx_emu_fill,
    .stream_create = rcclx_emu_stream_create, .stream_destroy = rcclx_emu_stream_destroy, .stream_sync = rcclx_emu_stream_sync,
    .stream_query = rcclx_emu_stream_query, .stream_wait = rcclx_emu_stream_wait, .stream_device = rcclx_emu_stream_device,
    .event_create = rcclx_emu_event_create, .event_destroy = rcclx_emu_event_destroy, .event_record = rcclx_emu_event_record,
    .event_query = rcclx_emu_event_query, .event_sync = rcclx_emu_event_sync, .event_elapsed = rcclx_emu_event_elapsed,
    .load = load, .unload = unload, .function = function, .launch = rcclx_emu_launch, .occupancy = occupancy,
    .capture_id = rcclx_emu_capture_id, .relax = rcclx_emu_relax, .unrelax = rcclx_emu_unrelax,
    .capture_begin = rcclx_emu_capture_begin, .capture_end = rcclx_emu_capture_end, .graph_launch = rcclx_emu_graph_launch,
    .graph_destroy = rcclx_emu_graph_destroy, .device_sync = rcclx_emu_device_sync,
};

/* "0-1,2-3": neither reaches the other. */
static void separate(emu_state *e, const char *text)
{
    const char *at = text;

    while (*at) {
        int a, b, n = 0;
        if (sscanf(at, "%d-%d%n", &a, &b, &n) != 2 || a < 0 || b < 0 || a >= RCCLX_GPU_MAX || b >= RCCLX_GPU_MAX ||
            (at[n] && at[n] != ',')) {
            RCCLX_ALERT("RCCLX_EMU_UNREACHABLE=%s is ignored from \"%s\" on: pairs of devices are wanted, as in 0-1,2-3", text,
                        at);
            return;
        }
        e->devices[a].unreachable |= UINT64_C(1) << b;
        e->devices[b].unreachable |= UINT64_C(1) << a;
        at += at[n] ? n + 1 : n;
    }
}

static emu_state *state_new(void)
{
    emu_state *e = RCCLX_NEW(emu_state);

    if (!e)
        return NULL;
    e->gpu = functions;
    e->gpu.count = (int)rcclx_option_int(RCCLX_OPT_EMU_DEVICES);
    e->capacity = (size_t)rcclx_option_int(RCCLX_OPT_EMU_MEMORY);
    separate(e, rcclx_option_str(RCCLX_OPT_EMU_UNREACHABLE));
    pthread_mutex_init(&e->memory, NULL);
    pthread_mutex_init(&e->streams, NULL);
    pthread_mutex_init(&e->capturing, NULL);
    for (int i = 0; i < RCCLX_GPU_MAX; i++)
        pthread_mutex_init(&e->devices[i].blocks.lock, NULL);
    return e;
}

/* Made at the first question; a forked child has none of its parent's threads and begins anew. */
emu_state *rcclx_emu_state(void)
{
    rcclx_process_state *p = rcclx_process();
    emu_state           *e = __atomic_load_n((emu_state **)&p->emulated, __ATOMIC_ACQUIRE);

    if (e)
        return e;
    pthread_mutex_lock(&p->lock);
    e = p->emulated;
    if (!e && (e = state_new()))
        __atomic_store_n((emu_state **)&p->emulated, e, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&p->lock);
    return e;
}

const rcclx_gpu *rcclx_gpu_emu(char *why, size_t nwhy)
{
    const emu_state *e = rcclx_emu_state();

    if (e)
        return &e->gpu;
    snprintf(why, nwhy, "no memory for the emulated devices");
    return NULL;
}
