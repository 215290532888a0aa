/* Operations of a communicator run in the order in which they are posted, whatever
 * streams they are on.
 *
 *   stream a   op 1  op 2 --event--+
 *   stream b                       +--> op 3  op 4
 *
 * Most programs use one stream, and pay nothing: an event is recorded when the stream
 * changes. From then on every operation leaves one behind, for its stream may be gone
 * when it is wanted. Captured operations are ordered among those of the same capture;
 * how a graph's launch and other work follow each other is the program's to say. */
#include "exec/gpu_team.h"

/* Nothing of it is left to wait for: then its stream, which may be gone, need not be touched. */
static bool is_over(rcclx_gpu_team *g)
{
    uint32_t started, finished;

    return !g->graphs && !g->paired && rcclx_gpu_turns(g, 0, &started, &finished) && finished == g->turn;
}

rcclx_status rcclx_gpu_follow(rcclx_gpu_team *g, void *stream)
{
    uint64_t id = 0, theirs = 0;

    RCCLX_TRY(g->gpu->capture_id(stream, &id));
    if (id)
        g->graphs = true;
    g->capture = id;
    rcclx_gpu_tail *tail = id ? &g->captured : &g->eager;
    if (!tail->here || tail->stream == stream || tail->capture != id)
        return RCCLX_OK;
    g->many = true;
    if (!tail->recorded) {
        if (is_over(g))
            return RCCLX_OK;
        RCCLX_TRY(g->gpu->capture_id(tail->stream, &theirs));
        if (theirs != id)
            return RCCLX_OK; /* it is being captured now: an event would belong to the capture */
        RCCLX_TRY(g->gpu->event_record(tail->event, tail->stream));
        tail->recorded = true;
    }
    return g->gpu->stream_wait(stream, tail->event);
}

rcclx_status rcclx_gpu_leave_behind(rcclx_gpu_team *g, void *stream)
{
    rcclx_gpu_tail *tail = g->capture ? &g->captured : &g->eager;

    tail->stream = stream;
    tail->capture = g->capture;
    tail->here = true;
    tail->recorded = false;
    if (!g->many)
        return RCCLX_OK;
    RCCLX_TRY(g->gpu->event_record(tail->event, stream));
    tail->recorded = true;
    return RCCLX_OK;
}
