/* Events of emulated devices. Handle and queued work each hold one; the last frees it. */
#include "device/gpu_emu_inside.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

emu_event *rcclx_emu_event_new(bool timing)
{
    emu_event *e = RCCLX_NEW(emu_event);

    if (!e)
        return NULL;
    e->device = rcclx_emu_device();
    e->timing = timing;
    atomic_init(&e->refs, 1);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->change, NULL);
    return e;
}

emu_event *rcclx_emu_event_get(emu_event *e)
{
    atomic_fetch_add(&e->refs, 1);
    return e;
}

void rcclx_emu_event_put(emu_event *e)
{
    if (atomic_fetch_sub(&e->refs, 1) != 1)
        return;
    if (e->inner)
        rcclx_emu_event_put(e->inner);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->change);
    rcclx_mem_free(e);
}

uint64_t rcclx_emu_event_ticket(emu_event *e)
{
    pthread_mutex_lock(&e->lock);
    const uint64_t ticket = ++e->recorded;
    pthread_mutex_unlock(&e->lock);
    return ticket;
}

void rcclx_emu_event_reach(emu_event *e, uint64_t ticket)
{
    pthread_mutex_lock(&e->lock);
    if (e->done < ticket) {
        e->done = ticket;
        e->ns = rcclx_clock_ns();
        pthread_cond_broadcast(&e->change);
    }
    pthread_mutex_unlock(&e->lock);
}

void rcclx_emu_event_await(emu_event *e, uint64_t ticket)
{
    pthread_mutex_lock(&e->lock);
    while (e->done < ticket)
        pthread_cond_wait(&e->change, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

rcclx_status rcclx_emu_event_create(rcclx_gpu_event *handle, bool timing)
{
    *handle = rcclx_emu_event_new(timing);
    return *handle ? RCCLX_OK : RCCLX_FAIL(RCCLX_NOMEM, "emu: event_create: no memory");
}

rcclx_status rcclx_emu_event_destroy(rcclx_gpu_event handle)
{
    if (handle)
        rcclx_emu_event_put(handle);
    return RCCLX_OK;
}

/* An event of a capture stands for nothing that has happened. */
static rcclx_status look(const char *call, emu_event *e, uint64_t *recorded, uint64_t *done)
{
    RCCLX_TRY(rcclx_emu_unsafe(call));
    pthread_mutex_lock(&e->lock);
    const bool captured = e->inner != NULL;
    *recorded = e->recorded;
    *done = e->done;
    pthread_mutex_unlock(&e->lock);
    if (captured)
        return RCCLX_FAIL(RCCLX_SYSTEM, "emu: %s: the event was last recorded in a capture; record it in a stream first", call);
    return RCCLX_OK;
}

rcclx_status rcclx_emu_event_query(rcclx_gpu_event handle)
{
    uint64_t recorded, done;

    RCCLX_TRY(look("event_query", handle, &recorded, &done));
    return done >= recorded ? RCCLX_OK : RCCLX_AGAIN;
}

rcclx_status rcclx_emu_event_sync(rcclx_gpu_event handle)
{
    uint64_t recorded, done;

    RCCLX_TRY(look("event_sync", handle, &recorded, &done));
    rcclx_emu_event_await(handle, recorded);
    return RCCLX_OK;
}

rcclx_status rcclx_emu_event_elapsed(rcclx_gpu_event from, rcclx_gpu_event to, double *us)
{
    emu_event *both[2] = { from, to };
    uint64_t   ns[2];

    for (int i = 0; i < 2; i++) {
        emu_event *e = both[i];
        pthread_mutex_lock(&e->lock);
        const bool ready = e->timing && !e->inner && e->recorded && e->done >= e->recorded;
        ns[i] = e->ns;
        pthread_mutex_unlock(&e->lock);
        if (!ready)
            return RCCLX_FAIL(RCCLX_SYSTEM, "emu: event_elapsed: the %s event %s", i ? "second" : "first",
                              e->timing ? "has not been reached" : "was made without timing");
    }
    *us = ((double)ns[1] - (double)ns[0]) * 1e-3;
    return RCCLX_OK;
}
