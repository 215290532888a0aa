/* Streams, events, captures and graphs: hardly more than the driver's calls.
 *
 * A stream may be NULL, 1 or 2: the default stream of all, the same by its other
 * name, and each thread's default. They belong to whatever device is current. */
#include "device/gpu_entry.h"

enum { NON_BLOCKING = 1, NO_TIMING = 2 /* alike in both */, THREAD_LOCAL = 1, RELAXED = 2 };

/* OK, AGAIN, or an error. */
static rcclx_status asked(rcclx_driver *d, rcclx_gpu_entry entry, int code)
{
    if (code != RCCLX_GPU_E_NOT_READY)
        return rcclx_driver_check(d, entry, code);
    rcclx_driver_forget(d);
    return RCCLX_AGAIN;
}

rcclx_status rcclx_driver_stream_create(rcclx_driver *d, rcclx_gpu_stream *s)
{
    return RCCLX_GPU_CALL(d, stream_create, s, NON_BLOCKING);
}

rcclx_status rcclx_driver_stream_destroy(rcclx_driver *d, rcclx_gpu_stream s)
{
    return RCCLX_GPU_CALL(d, stream_destroy, s);
}

rcclx_status rcclx_driver_stream_sync(rcclx_driver *d, rcclx_gpu_stream s)
{
    return RCCLX_GPU_CALL(d, stream_sync, rcclx_driver_stream(d, s));
}

rcclx_status rcclx_driver_stream_query(rcclx_driver *d, rcclx_gpu_stream s)
{
    return asked(d, RCCLX_ENTRY_stream_query, d->f.stream_query(rcclx_driver_stream(d, s)));
}

rcclx_status rcclx_driver_stream_wait(rcclx_driver *d, rcclx_gpu_stream s, rcclx_gpu_event e)
{
    return RCCLX_GPU_CALL(d, stream_wait, rcclx_driver_stream(d, s), e, 0);
}

static int ordinal(const rcclx_driver *d, int handle)
{
    for (int i = 0; i < d->gpu.count; i++)
        if (d->handles[i] == handle)
            return i;
    return handle;
}

rcclx_status rcclx_driver_stream_device(rcclx_driver *d, rcclx_gpu_stream s, int *device)
{
    void *context = NULL, *popped;
    int handle = 0;

    if ((uintptr_t)s <= 2)
        return rcclx_driver_current(d, device);
    if (d->f.stream_context) { /* first: cuStreamGetDevice breaks the capture of the stream that it is asked about */
        RCCLX_TRY(RCCLX_GPU_CALL(d, stream_context, s, &context));
        RCCLX_TRY(RCCLX_GPU_CALL(d, context_push, context));
        const rcclx_status st = RCCLX_GPU_CALL(d, context_device, &handle);
        d->f.context_pop(&popped);
        RCCLX_TRY(st);
    } else {
        RCCLX_TRY(RCCLX_GPU_CALL(d, stream_device, s, &handle));
    }
    *device = ordinal(d, handle);
    return RCCLX_OK;
}

rcclx_status rcclx_driver_event_create(rcclx_driver *d, rcclx_gpu_event *e, bool timing)
{
    return RCCLX_GPU_CALL(d, event_create, e, timing ? 0 : NO_TIMING);
}

rcclx_status rcclx_driver_event_destroy(rcclx_driver *d, rcclx_gpu_event e)
{
    return RCCLX_GPU_CALL(d, event_destroy, e);
}

rcclx_status rcclx_driver_event_record(rcclx_driver *d, rcclx_gpu_event e, rcclx_gpu_stream s)
{
    return RCCLX_GPU_CALL(d, event_record, e, rcclx_driver_stream(d, s));
}

rcclx_status rcclx_driver_event_query(rcclx_driver *d, rcclx_gpu_event e)
{
    return asked(d, RCCLX_ENTRY_event_query, d->f.event_query(e));
}

rcclx_status rcclx_driver_event_sync(rcclx_driver *d, rcclx_gpu_event e)
{
    return RCCLX_GPU_CALL(d, event_sync, e);
}

rcclx_status rcclx_driver_event_elapsed(rcclx_driver *d, rcclx_gpu_event from, rcclx_gpu_event to, double *us)
{
    float ms = 0;

    RCCLX_TRY(RCCLX_GPU_CALL(d, event_elapsed, &ms, from, to));
    *us = (double)ms * 1e3;
    return RCCLX_OK;
}

/* ---- graphs */

rcclx_status rcclx_driver_capture_id(rcclx_driver *d, rcclx_gpu_stream s, uint64_t *id)
{
    enum { NONE, ACTIVE, INVALID };
    unsigned long long number = 0;
    int state = NONE;

    *id = 0;
    if (!d->f.capture_info)
        return RCCLX_OK; /* a driver that cannot say cannot capture */
    RCCLX_TRY(RCCLX_GPU_CALL(d, capture_info, rcclx_driver_stream(d, s), &state, &number));
    if (state == INVALID)
        return RCCLX_FAIL(RCCLX_USAGE, "the capture of this stream has failed already (a call that is not allowed was made in "
                          "it): end it, and capture anew");
    *id = state == ACTIVE ? number : 0;
    return RCCLX_OK;
}

int rcclx_driver_relax(rcclx_driver *d)
{
    int mode = RELAXED;

    if (d->f.capture_mode && d->f.capture_mode(&mode) == 0)
        return mode;
    return RELAXED; /* then unrelax has nothing to do, either */
}

void rcclx_driver_unrelax(rcclx_driver *d, int before)
{
    if (d->f.capture_mode && before != RELAXED)
        d->f.capture_mode(&before);
}

rcclx_status rcclx_driver_capture_begin(rcclx_driver *d, rcclx_gpu_stream s)
{
    return RCCLX_GPU_CALL(d, capture_begin, rcclx_driver_stream(d, s), THREAD_LOCAL);
}

rcclx_status rcclx_driver_capture_end(rcclx_driver *d, rcclx_gpu_stream s, rcclx_gpu_graph *exec)
{
    void *graph = NULL;

    *exec = NULL;
    RCCLX_TRY(RCCLX_GPU_CALL(d, capture_end, rcclx_driver_stream(d, s), &graph));
    const rcclx_status st = RCCLX_GPU_CALL(d, graph_make, exec, graph, 0);
    if (d->f.graph_drop)
        d->f.graph_drop(graph);
    return st;
}

rcclx_status rcclx_driver_graph_launch(rcclx_driver *d, rcclx_gpu_graph exec, rcclx_gpu_stream s)
{
    return RCCLX_GPU_CALL(d, graph_launch, exec, rcclx_driver_stream(d, s));
}

rcclx_status rcclx_driver_graph_destroy(rcclx_driver *d, rcclx_gpu_graph exec)
{
    return RCCLX_GPU_CALL(d, graph_destroy, exec);
}
