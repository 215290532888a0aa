/* Streams and events.
 *
 *   submit --> [copy][wait e 3][kernel][record e 4] --> worker, one thread a stream
 *
 * An event counts: record takes the next ticket, wait remembers the newest ticket given
 * out, and the workers raise `done` and wait for it. A worker starts with the first work;
 * when the stream is destroyed it finishes what is queued and frees the stream. What goes
 * wrong in a worker (no threads left) is the answer of every later call. */
#include "device/gpu_emu_inside.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

/* ---- items */

emu_item *rcclx_emu_item(emu_what what, size_t nargs)
{
    emu_item *i = rcclx_mem_alloc(sizeof(*i) + nargs);

    if (i) {
        i->what = what;
        i->nargs = nargs;
    }
    return i;
}

static void item_free(emu_item *i)
{
    if (i->what == EMU_RECORD || i->what == EMU_WAIT)
        rcclx_emu_event_put(i->at.event);
    rcclx_mem_free(i);
}

void rcclx_emu_items_free(emu_item *i)
{
    while (i) {
        emu_item *next = i->next;
        item_free(i);
        i = next;
    }
}

/* Words that kernels may be writing are copied whole, as a GPU does it. */
static void copy(void *dst, const void *src, size_t nbytes)
{
    if (nbytes > 64 || (nbytes | (uintptr_t)dst | (uintptr_t)src) & 7) {
        memmove(dst, src, nbytes);
        return;
    }
    for (size_t i = 0; i < nbytes / sizeof(uint64_t); i++)
        __atomic_store_n((uint64_t *)dst + i, __atomic_load_n((const uint64_t *)src + i, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
}

static rcclx_status carry_out(emu_stream *s, emu_item *i)
{
    switch (i->what) {
    case EMU_KERNEL:
        return rcclx_emu_grid(&rcclx_emu_state()->devices[s->device].blocks, i->kernel.run, i->kernel.blocks,
                              i->kernel.threads, i->args);
    case EMU_COPY:
        copy(i->copy.dst, i->copy.src, i->copy.nbytes);
        break;
    case EMU_FILL:
        for (size_t w = 0; w < i->fill.nwords; w++)
            i->fill.dst[w] = i->fill.word;
        break;
    case EMU_RECORD:
        rcclx_emu_event_reach(i->at.event, i->at.ticket);
        break;
    case EMU_WAIT:
        rcclx_emu_event_await(i->at.event, i->at.ticket);
        break;
    }
    return RCCLX_OK;
}

/* ---- streams */

/* One user less; the last takes the stream out of the list. */
static void put(emu_stream *s)
{
    emu_state   *e = rcclx_emu_state();
    emu_stream **at = &e->devices[s->device].streams;

    pthread_mutex_lock(&e->streams);
    const bool last = atomic_fetch_sub(&s->refs, 1) == 1;
    while (last && *at != s)
        at = &(*at)->next;
    if (last)
        *at = s->next;
    pthread_mutex_unlock(&e->streams);
    if (!last)
        return;
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->more);
    pthread_cond_destroy(&s->less);
    rcclx_mem_free(s);
}

static void *work(void *arg)
{
    emu_stream *s = arg;

    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first && !s->stop)
            pthread_cond_wait(&s->more, &s->lock);
        emu_item *i = s->first;
        if (!i)
            break;
        if (!(s->first = i->next))
            s->last = &s->first;
        pthread_mutex_unlock(&s->lock);
        const rcclx_status status = carry_out(s, i);
        item_free(i);
        pthread_mutex_lock(&s->lock);
        if (s->failed == RCCLX_OK)
            s->failed = status;
        s->finished++;
        pthread_cond_broadcast(&s->less);
    }
    pthread_mutex_unlock(&s->lock);
    put(s);
    return NULL;
}

/* Start the worker, with s locked. */
static rcclx_status start(emu_stream *s)
{
    if (s->working)
        return RCCLX_OK;
    atomic_fetch_add(&s->refs, 1);
    errno = pthread_create(&s->worker, NULL, work, s);
    if (errno) {
        atomic_fetch_sub(&s->refs, 1);
        return RCCLX_FAIL_ERRNO("emu: stream of device %d: its thread", s->device);
    }
    s->working = true;
    return RCCLX_OK;
}

static emu_stream *stream_new(int device)
{
    emu_state  *e = rcclx_emu_state();
    emu_stream *s = RCCLX_NEW(emu_stream);

    if (!s)
        return NULL;
    s->device = device;
    s->last = &s->first;
    atomic_init(&s->refs, 1);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->more, NULL);
    pthread_cond_init(&s->less, NULL);
    s->next = e->devices[device].streams;
    e->devices[device].streams = s;
    return s;
}

emu_stream *rcclx_emu_stream_new(int device)
{
    emu_state *e = rcclx_emu_state();

    pthread_mutex_lock(&e->streams);
    emu_stream *s = stream_new(device);
    pthread_mutex_unlock(&e->streams);
    return s;
}

/* A handle's stream; NULL is the current device's default stream. */
rcclx_status rcclx_emu_find(const char *call, rcclx_gpu_stream handle, emu_stream **s)
{
    emu_state  *e = rcclx_emu_state();
    emu_device *d = &e->devices[rcclx_emu_device()];
    emu_stream *found = NULL;

    pthread_mutex_lock(&e->streams);
    if (!handle) {
        if (!d->standard)
            d->standard = stream_new(rcclx_emu_device());
        found = d->standard;
    }
    for (int i = 0; handle && !found && i < e->gpu.count; i++)
        for (found = e->devices[i].streams; found && (found != handle || found->orphan);)
            found = found->next;
    pthread_mutex_unlock(&e->streams);
    *s = found;
    if (!handle && !found)
        return RCCLX_FAIL(RCCLX_NOMEM, "emu: %s: no memory for the default stream", call);
    if (!found)
        return RCCLX_FAIL(RCCLX_SYSTEM, "emu: %s: %p is no stream; was it destroyed?", call, handle);
    return RCCLX_OK;
}

rcclx_status rcclx_emu_splice(emu_stream *s, emu_item *i)
{
    pthread_mutex_lock(&s->lock);
    const rcclx_status status = s->failed != RCCLX_OK ? s->failed : start(s);
    if (status != RCCLX_OK) {
        pthread_mutex_unlock(&s->lock);
        rcclx_emu_items_free(i);
        return status;
    }
    *s->last = i;
    for (; i; i = i->next) {
        s->last = &i->next;
        s->submitted++;
    }
    pthread_cond_signal(&s->more);
    pthread_mutex_unlock(&s->lock);
    return RCCLX_OK;
}

rcclx_status rcclx_emu_submit(emu_stream *s, emu_item *i)
{
    if (!i)
        return RCCLX_FAIL(RCCLX_NOMEM, "emu: no memory for an entry of a stream of device %d", s->device);
    return rcclx_emu_capture_add(s, i) ? RCCLX_OK : rcclx_emu_splice(s, i);
}

rcclx_status rcclx_emu_stream_create(rcclx_gpu_stream *s)
{
    *s = rcclx_emu_stream_new(rcclx_emu_device());
    return *s ? RCCLX_OK : RCCLX_FAIL(RCCLX_NOMEM, "emu: stream_create: no memory");
}

void rcclx_emu_stream_drop(emu_stream *s)
{
    emu_state *e = rcclx_emu_state();

    pthread_mutex_lock(&e->streams);
    s->orphan = true;
    pthread_mutex_unlock(&e->streams);
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    const bool idle = s->finished == s->submitted;
    pthread_cond_signal(&s->more);
    pthread_mutex_unlock(&s->lock);
    if (s->working && idle)
        pthread_join(s->worker, NULL); /* nothing of it is left when the call returns */
    else if (s->working)
        pthread_detach(s->worker);
    put(s);
}

rcclx_status rcclx_emu_stream_destroy(rcclx_gpu_stream handle)
{
    emu_stream *s;

    if (!handle)
        return RCCLX_FAIL(RCCLX_SYSTEM, "emu: stream_destroy: the default stream stays");
    RCCLX_TRY(rcclx_emu_find("stream_destroy", handle, &s));
    RCCLX_TRY(rcclx_emu_spoil(s, "stream_destroy"));
    rcclx_emu_stream_drop(s);
    return RCCLX_OK;
}

static rcclx_status wait_empty(emu_stream *s)
{
    pthread_mutex_lock(&s->lock);
    const uint64_t until = s->submitted;
    while (s->finished < until)
        pthread_cond_wait(&s->less, &s->lock);
    const rcclx_status status = s->failed;
    pthread_mutex_unlock(&s->lock);
    return status;
}

rcclx_status rcclx_emu_stream_sync(rcclx_gpu_stream handle)
{
    emu_stream *s;

    RCCLX_TRY(rcclx_emu_find("stream_sync", handle, &s));
    RCCLX_TRY(rcclx_emu_spoil(s, "stream_sync"));
    RCCLX_TRY(rcclx_emu_unsafe("stream_sync"));
    return wait_empty(s);
}

rcclx_status rcclx_emu_stream_query(rcclx_gpu_stream handle)
{
    emu_stream *s;

    RCCLX_TRY(rcclx_emu_find("stream_query", handle, &s));
    RCCLX_TRY(rcclx_emu_spoil(s, "stream_query"));
    RCCLX_TRY(rcclx_emu_unsafe("stream_query"));
    pthread_mutex_lock(&s->lock);
    const rcclx_status status = s->failed != RCCLX_OK ? s->failed : s->finished == s->submitted ? RCCLX_OK : RCCLX_AGAIN;
    pthread_mutex_unlock(&s->lock);
    return status;
}

rcclx_status rcclx_emu_stream_device(rcclx_gpu_stream handle, int *device)
{
    emu_stream *s;

    RCCLX_TRY(rcclx_emu_find("stream_device", handle, &s));
    *device = s->device;
    return RCCLX_OK;
}

/* A stream of the current device that has work, held; orphans too. */
static emu_stream *busy(void)
{
    emu_state  *e = rcclx_emu_state();
    emu_stream *found = NULL;

    pthread_mutex_lock(&e->streams);
    for (emu_stream *s = e->devices[rcclx_emu_device()].streams; s && !found; s = s->next) {
        pthread_mutex_lock(&s->lock);
        if (s->finished < s->submitted) {
            atomic_fetch_add(&s->refs, 1);
            found = s;
        }
        pthread_mutex_unlock(&s->lock);
    }
    pthread_mutex_unlock(&e->streams);
    return found;
}

rcclx_status rcclx_emu_device_sync(void)
{
    rcclx_status status = RCCLX_OK;

    RCCLX_TRY(rcclx_emu_unsafe("device_sync"));
    for (emu_stream *s; (s = busy());) {
        const rcclx_status one = wait_empty(s);
        if (status == RCCLX_OK)
            status = one;
        put(s);
    }
    return status;
}

/* ---- work */

rcclx_status rcclx_emu_copy(void *dst, const void *src, size_t nbytes, rcclx_gpu_stream handle)
{
    emu_stream *s;

    RCCLX_TRY(rcclx_emu_find("copy", handle, &s));
    emu_item *i = rcclx_emu_item(EMU_COPY, 0);
    if (i) {
        i->copy.dst = dst;
        i->copy.src = src;
        i->copy.nbytes = nbytes;
    }
    return rcclx_emu_submit(s, i);
}

rcclx_status rcclx_emu_fill(void *dst, uint32_t word, size_t nwords, rcclx_gpu_stream handle)
{
    emu_stream *s;

    RCCLX_TRY(rcclx_emu_find("fill", handle, &s));
    emu_item *i = rcclx_emu_item(EMU_FILL, 0);
    if (i) {
        i->fill.dst = dst;
        i->fill.word = word;
        i->fill.nwords = nwords;
    }
    return rcclx_emu_submit(s, i);
}

static rcclx_status same_device(const char *call, int device, const emu_stream *s)
{
    if (device == s->device)
        return RCCLX_OK;
    return RCCLX_FAIL(RCCLX_SYSTEM, "emu: %s: of device %d in a stream of device %d; enter the stream's device first", call,
                      device, s->device);
}

rcclx_status rcclx_emu_launch(rcclx_gpu_fn f, unsigned blocks, unsigned threads, rcclx_gpu_stream handle, const void *args,
                              size_t nargs)
{
    const union { rcclx_gpu_fn f; emu_run *run; } entry = { .f = f };
    emu_stream *s;

    RCCLX_TRY(rcclx_emu_find("launch", handle, &s));
    RCCLX_TRY(same_device("launch", rcclx_emu_device(), s));
    if (!f || !blocks || blocks > RCCLX_EMU_BLOCKS || !threads || threads > RCCLX_EMU_THREADS || nargs > 4096)
        return RCCLX_FAIL(RCCLX_SYSTEM, "emu: launch: of %p: %u blocks of %u threads, %zu bytes of arguments; at most %d, %d and "
                          "4096", f, blocks, threads, nargs, RCCLX_EMU_BLOCKS, RCCLX_EMU_THREADS);
    emu_item *i = rcclx_emu_item(EMU_KERNEL, nargs);
    if (i) {
        i->kernel.run = entry.run;
        i->kernel.blocks = blocks;
        i->kernel.threads = threads;
        if (nargs)
            memcpy(i->args, args, nargs);
    }
    return rcclx_emu_submit(s, i);
}

rcclx_status rcclx_emu_event_record(rcclx_gpu_event handle, rcclx_gpu_stream to)
{
    emu_event  *e = handle;
    emu_stream *s;
    bool        captured;

    RCCLX_TRY(rcclx_emu_find("event_record", to, &s));
    RCCLX_TRY(same_device("event_record", e->device, s));
    RCCLX_TRY(rcclx_emu_capture_record(e, s, &captured));
    if (captured)
        return RCCLX_OK;
    emu_item *i = rcclx_emu_item(EMU_RECORD, 0);
    if (i) {
        i->at.event = rcclx_emu_event_get(e);
        i->at.ticket = rcclx_emu_event_ticket(e);
    }
    return rcclx_emu_submit(s, i);
}

rcclx_status rcclx_emu_stream_wait(rcclx_gpu_stream to, rcclx_gpu_event handle)
{
    emu_event  *e = handle;
    emu_stream *s;
    bool        captured;

    RCCLX_TRY(rcclx_emu_find("stream_wait", to, &s));
    RCCLX_TRY(rcclx_emu_capture_wait(s, e, &captured));
    if (captured)
        return RCCLX_OK;
    pthread_mutex_lock(&e->lock);
    const uint64_t ticket = e->recorded;
    pthread_mutex_unlock(&e->lock);
    if (!ticket)
        return RCCLX_OK;
    emu_item *i = rcclx_emu_item(EMU_WAIT, 0);
    if (i) {
        i->at.event = rcclx_emu_event_get(e);
        i->at.ticket = ticket;
    }
    return rcclx_emu_submit(s, i);
}
