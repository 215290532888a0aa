/* Capture and graphs.
 *
 *   stream a (begun)   [copy][record 1']          [wait 2'][kernel]    chain a
 *   stream b (joined)              [wait 1'][kernel][record 2']        chain b
 *
 * Each stream of a capture has a chain of items. An event recorded in a capture is stood
 * for by an inner one, 1', that belongs to the graph; a stream that waits for the event
 * joins. Launching puts copies of the chains in queues: the first in the caller's stream,
 * each other in a stream that the graph keeps for it, so that kernels of several devices
 * may spin on each other in a graph as well. A graph's launches follow one another. */
#include "device/gpu_emu_inside.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

struct emu_capture {
    emu_capture *next;
    uint64_t     id;
    emu_stream  *origin;
    const void  *thread;        /* begun by: the address of its `captures` */
    emu_chain   *chains;        /* the origin's is the last */
    const char  *spoilt;        /* by this call */
};

typedef struct {
    pthread_mutex_t lock;
    emu_chain      *chains;     /* stream: where it is launched; NULL: the caller's */
    emu_event      *done;
} emu_graph;

static _Thread_local int captures, relaxed;

/* ---- what may not be called */

rcclx_status rcclx_emu_unsafe(const char *call)
{
    emu_state *e = rcclx_emu_state();

    if (!captures || relaxed)
        return RCCLX_OK;
    pthread_mutex_lock(&e->capturing);
    for (emu_capture *c = e->captures; c; c = c->next)
        if (c->thread == &captures)
            c->spoilt = call;
    pthread_mutex_unlock(&e->capturing);
    return RCCLX_FAIL(RCCLX_SYSTEM, "emu: %s: not permitted while this thread captures a stream, and the capture is lost; "
                      "call it between relax and unrelax, or before the capture", call);
}

rcclx_status rcclx_emu_spoil(emu_stream *s, const char *call)
{
    emu_state *e = rcclx_emu_state();

    pthread_mutex_lock(&e->capturing);
    emu_chain *c = s->chain;
    if (c)
        c->capture->spoilt = call;
    pthread_mutex_unlock(&e->capturing);
    if (!c)
        return RCCLX_OK;
    return RCCLX_FAIL(RCCLX_SYSTEM, "emu: %s: not permitted on a stream that is being captured, and the capture is lost", call);
}

int rcclx_emu_relax(void)
{
    const int before = relaxed;

    relaxed = 1;
    return before;
}

void rcclx_emu_unrelax(int before)
{
    relaxed = before;
}

/* ---- recording; all of it with `capturing` locked */

static void append(emu_chain *c, emu_item *i)
{
    *c->last = i;
    c->last = &i->next;
    c->nwork += i->what != EMU_RECORD;
}

static emu_chain *join(emu_capture *c, emu_stream *s)
{
    emu_chain *chain = RCCLX_NEW(emu_chain);

    if (!chain)
        return NULL;
    *chain = (emu_chain){ .next = c->chains, .capture = c, .stream = s, .device = s->device };
    chain->last = &chain->first;
    c->chains = s->chain = chain;
    return chain;
}

static emu_capture *capture_of(uint64_t id)
{
    emu_capture *c = rcclx_emu_state()->captures;

    while (c && c->id != id)
        c = c->next;
    return c;
}

bool rcclx_emu_capture_add(emu_stream *s, emu_item *i)
{
    emu_state *e = rcclx_emu_state();

    pthread_mutex_lock(&e->capturing);
    emu_chain *c = s->chain;
    if (c)
        append(c, i);
    pthread_mutex_unlock(&e->capturing);
    return c != NULL;
}

static void stand_in(emu_event *e, emu_event *inner, uint64_t id)
{
    pthread_mutex_lock(&e->lock);
    emu_event *before = e->inner;
    e->inner = inner;
    e->capture = id;
    pthread_mutex_unlock(&e->lock);
    if (before)
        rcclx_emu_event_put(before);
}

rcclx_status rcclx_emu_capture_record(emu_event *e, emu_stream *s, bool *captured)
{
    emu_state *state = rcclx_emu_state();

    pthread_mutex_lock(&state->capturing);
    emu_chain *c = s->chain;
    *captured = c != NULL;
    emu_event *inner = c ? rcclx_emu_event_new(false) : NULL;
    emu_item  *i = inner ? rcclx_emu_item(EMU_RECORD, 0) : NULL;
    if (i) {
        inner->chain = c;
        inner->nwork = c->nwork;
        i->at.event = rcclx_emu_event_get(inner);
        append(c, i);
    }
    if (!c || i)
        stand_in(e, inner, c ? c->capture->id : 0);
    pthread_mutex_unlock(&state->capturing);
    if (!c || i)
        return RCCLX_OK;
    if (inner)
        rcclx_emu_event_put(inner);
    return RCCLX_FAIL(RCCLX_NOMEM, "emu: event_record: no memory for an entry of a capture");
}

static rcclx_status tie(emu_stream *s, emu_capture *c, emu_event *inner)
{
    emu_chain *chain = s->chain ? s->chain : c ? join(c, s) : NULL;
    emu_item  *i = chain ? rcclx_emu_item(EMU_WAIT, 0) : NULL;

    if (!c)
        return RCCLX_FAIL(RCCLX_SYSTEM, "emu: stream_wait: the event was recorded in a capture that has ended; record it again");
    if (!i)
        return RCCLX_FAIL(RCCLX_NOMEM, "emu: stream_wait: no memory for an entry of a capture");
    if (chain->capture != c) {
        rcclx_mem_free(i);
        return RCCLX_FAIL(RCCLX_SYSTEM, "emu: stream_wait: the event belongs to another capture than the stream");
    }
    i->at.event = rcclx_emu_event_get(inner);
    append(chain, i);
    if (inner->chain != chain && inner->nwork == inner->chain->nwork)
        inner->chain->joined = inner->nwork;
    return RCCLX_OK;
}

rcclx_status rcclx_emu_capture_wait(emu_stream *s, emu_event *e, bool *captured)
{
    emu_state   *state = rcclx_emu_state();
    rcclx_status status = RCCLX_OK;

    pthread_mutex_lock(&state->capturing);
    pthread_mutex_lock(&e->lock);
    emu_event     *inner = e->inner;
    const uint64_t id = e->capture, recorded = e->recorded;
    pthread_mutex_unlock(&e->lock);
    *captured = inner != NULL || s->chain != NULL;
    if (inner) {
        status = tie(s, capture_of(id), inner);
    } else if (s->chain && recorded) {
        s->chain->capture->spoilt = "stream_wait";
        status = RCCLX_FAIL(RCCLX_SYSTEM, "emu: stream_wait: a stream that is being captured cannot wait for an event recorded "
                            "outside of the capture, which is lost");
    }
    pthread_mutex_unlock(&state->capturing);
    return status;
}

rcclx_status rcclx_emu_capture_id(rcclx_gpu_stream handle, uint64_t *id)
{
    emu_state  *e = rcclx_emu_state();
    emu_stream *s;

    *id = 0;
    RCCLX_TRY(rcclx_emu_find("capture_id", handle, &s));
    pthread_mutex_lock(&e->capturing);
    if (s->chain)
        *id = s->chain->capture->id;
    pthread_mutex_unlock(&e->capturing);
    return RCCLX_OK;
}

/* ---- begin and end */

rcclx_status rcclx_emu_capture_begin(rcclx_gpu_stream handle)
{
    emu_state   *e = rcclx_emu_state();
    emu_stream  *s;
    emu_capture *c;

    if (!handle)
        return RCCLX_FAIL(RCCLX_SYSTEM, "emu: capture_begin: the default stream cannot be captured");
    RCCLX_TRY(rcclx_emu_find("capture_begin", handle, &s));
    RCCLX_TRY(rcclx_emu_spoil(s, "capture_begin"));
    if (!(c = RCCLX_NEW(emu_capture)))
        return RCCLX_FAIL(RCCLX_NOMEM, "emu: capture_begin: no memory");
    pthread_mutex_lock(&e->capturing);
    *c = (emu_capture){ .origin = s, .thread = &captures, .id = ++e->ncaptures };
    const bool made = join(c, s) != NULL;
    if (made) {
        c->next = e->captures;
        e->captures = c;
    }
    pthread_mutex_unlock(&e->capturing);
    if (!made) {
        rcclx_mem_free(c);
        return RCCLX_FAIL(RCCLX_NOMEM, "emu: capture_begin: no memory");
    }
    captures++;
    return RCCLX_OK;
}

static void chains_free(emu_chain *c)
{
    while (c) {
        emu_chain *next = c->next;
        if (c->stream)
            rcclx_emu_stream_drop(c->stream);
        rcclx_emu_items_free(c->first);
        rcclx_mem_free(c);
        c = next;
    }
}

/* Take the capture that began on s out of the list and its streams out of it. */
static emu_capture *take_out(emu_stream *s)
{
    emu_state   *e = rcclx_emu_state();
    emu_capture *c;

    pthread_mutex_lock(&e->capturing);
    emu_capture **at = &e->captures;
    while (*at && ((*at)->origin != s || (*at)->thread != &captures))
        at = &(*at)->next;
    if ((c = *at))
        *at = c->next;
    for (emu_chain *chain = c ? c->chains : NULL; chain; chain = chain->next) {
        if (chain->next && chain->joined != chain->nwork && !c->spoilt)
            c->spoilt = "capture_end: a stream that joined was not joined back by waiting for its last event";
        chain->stream->chain = NULL;
        chain->stream = NULL;
    }
    pthread_mutex_unlock(&e->capturing);
    return c;
}

static emu_graph *graph_new(emu_chain *chains)
{
    emu_graph *g = RCCLX_NEW(emu_graph);

    if (!g)
        return NULL;
    pthread_mutex_init(&g->lock, NULL);
    g->done = rcclx_emu_event_new(false);
    g->chains = chains;
    for (emu_chain *c = chains; g->done && c && c->next; c = c->next)
        if (!(c->stream = rcclx_emu_stream_new(c->device)))
            break;
    for (emu_chain *c = chains; c; c = c->next) {
        if (g->done && (c->stream || !c->next))
            continue;
        g->chains = NULL;
        rcclx_emu_graph_destroy(g);
        return NULL;
    }
    return g;
}

rcclx_status rcclx_emu_capture_end(rcclx_gpu_stream handle, rcclx_gpu_graph *exec)
{
    emu_stream  *s;
    rcclx_status status = RCCLX_OK;

    *exec = NULL;
    RCCLX_TRY(rcclx_emu_find("capture_end", handle, &s));
    emu_capture *c = take_out(s);
    if (!c)
        return RCCLX_FAIL(RCCLX_SYSTEM, "emu: capture_end: no capture of this thread began on the stream");
    captures--;
    if (c->spoilt)
        status = RCCLX_FAIL(RCCLX_SYSTEM, "emu: capture_end: the capture was lost in %s", c->spoilt);
    else if (!(*exec = graph_new(c->chains)))
        status = RCCLX_FAIL(RCCLX_NOMEM, "emu: capture_end: no memory for the graph");
    if (!*exec)
        chains_free(c->chains);
    rcclx_mem_free(c);
    return status;
}

/* ---- launch */

static emu_item *copy_of(const emu_item *i)
{
    emu_item *copy = rcclx_emu_item(i->what, i->nargs);

    if (!copy)
        return NULL;
    memcpy(copy, i, sizeof(*i) + i->nargs);
    copy->next = NULL;
    if (i->what == EMU_RECORD || i->what == EMU_WAIT) {
        rcclx_emu_event_get(i->at.event);
        copy->at.ticket = i->at.event->recorded;
    }
    return copy;
}

static emu_item *event_item(emu_what what, emu_event *e)
{
    emu_item *i = rcclx_emu_item(what, 0);

    if (i) {
        i->at.event = rcclx_emu_event_get(e);
        i->at.ticket = what == EMU_RECORD ? rcclx_emu_event_ticket(e) : e->recorded;
    }
    return i;
}

/* The items of a chain for one launch; false: no memory for them. */
static bool copies(const emu_graph *g, const emu_chain *c, emu_item **list)
{
    emu_item **last = list;

    *list = NULL;
    if (!c->next) {
        if (!(*last = event_item(EMU_WAIT, g->done)))
            return false;
        last = &(*last)->next;
    }
    for (const emu_item *i = c->first; i; i = i->next, last = &(*last)->next)
        if (!(*last = copy_of(i)))
            return false;
    if (!c->next)
        *last = event_item(EMU_RECORD, g->done);
    return c->next || *last;
}

enum { MOST_CHAINS = 128 };

/* All copies before the first is queued: half a graph would wait for ever. */
static rcclx_status launch(emu_graph *g, emu_stream *s)
{
    emu_item    *lists[MOST_CHAINS] = { NULL };
    int          n = 0;
    bool         made = true;
    rcclx_status status = RCCLX_OK;

    for (emu_chain *c = g->chains; c; c = c->next)
        for (emu_item *i = c->first; i; i = i->next)
            if (i->what == EMU_RECORD)
                rcclx_emu_event_ticket(i->at.event);
    for (emu_chain *c = g->chains; c && made; c = c->next) {
        made = n < MOST_CHAINS && copies(g, c, &lists[n]);
        n += n < MOST_CHAINS;
    }
    if (!made) {
        for (int i = 0; i < n; i++)
            rcclx_emu_items_free(lists[i]);
        return RCCLX_FAIL(RCCLX_NOMEM, "emu: graph_launch: no memory, or more than %d streams in it", MOST_CHAINS);
    }
    n = 0;
    for (emu_chain *c = g->chains; c; c = c->next, n++) {
        const rcclx_status one = rcclx_emu_splice(c->stream ? c->stream : s, lists[n]);
        if (status == RCCLX_OK)
            status = one;
    }
    return status;
}

rcclx_status rcclx_emu_graph_launch(rcclx_gpu_graph exec, rcclx_gpu_stream handle)
{
    emu_graph  *g = exec;
    emu_stream *s;

    RCCLX_TRY(rcclx_emu_find("graph_launch", handle, &s));
    RCCLX_TRY(rcclx_emu_spoil(s, "graph_launch (graphs in graphs are not emulated)"));
    pthread_mutex_lock(&g->lock);
    const rcclx_status status = launch(g, s);
    pthread_mutex_unlock(&g->lock);
    return status;
}

rcclx_status rcclx_emu_graph_destroy(rcclx_gpu_graph exec)
{
    emu_graph *g = exec;

    if (!g)
        return RCCLX_OK;
    chains_free(g->chains);
    if (g->done)
        rcclx_emu_event_put(g->done);
    pthread_mutex_destroy(&g->lock);
    rcclx_mem_free(g);
    return RCCLX_OK;
}
