/* Holding a communicator, and the ways it ends.
 *
 *   acquire   handle -> communicator, held      release   the last one undoes it
 *   finalize  wait for queued operations; the handle stays
 *   destroy   take the handle back, wait for queued operations, let go
 *   abort     take the handle back, end them, let go
 *
 * All are local: nothing waits for another rank that a dead or stuck rank could
 * hold up, for broken and aborted teams end their operations at once. */
#include "comm/handle.h"

#include "base/log.h"

#include <sched.h>

static rcclx_comm *unknown(const void *handle, const char *call, rcclx_status *why)
{
    if (handle)
        *why = RCCLX_FAIL(RCCLX_ARGUMENT, "%s: communicator %p is not alive: it was destroyed or aborted, or is none of this "
                          "library's", call, handle);
    else
        *why = RCCLX_FAIL(RCCLX_ARGUMENT, "%s: the communicator is NULL; pass one made by ncclCommInitRank", call);
    return NULL;
}

rcclx_comm *rcclx_comm_acquire(const void *handle, const char *call, rcclx_status *why)
{
    rcclx_comm *c = rcclx_handle_get(handle);

    *why = RCCLX_OK;
    return c ? c : unknown(handle, call, why);
}

rcclx_comm *rcclx_comm_acquire_ready(const void *handle, const char *call, rcclx_status *why)
{
    rcclx_comm *c = rcclx_comm_acquire(handle, call, why);

    if (!c)
        return NULL;
    const uint32_t state = atomic_load_explicit(&c->state, memory_order_acquire);
    if (__builtin_expect(state == RCCLX_COMM_READY, 1))
        *why = rcclx_team_broken(&c->team);
    else if (state == RCCLX_COMM_INIT)
        *why = RCCLX_FAIL(RCCLX_USAGE, "%s: rank %d: the communicator is still being set up; ask ncclCommGetAsyncError until "
                          "it answers ncclSuccess", call, c->rank);
    else if (state == RCCLX_COMM_FINALIZED)
        *why = RCCLX_FAIL(RCCLX_USAGE, "%s: rank %d: the communicator was finalized; destroy it and make a new one", call, c->rank);
    else {
        *why = c->failure;
        rcclx_last_error_set(c->team.cause);
    }
    if (*why == RCCLX_OK)
        return c;
    rcclx_comm_release(c);
    return NULL;
}

void rcclx_comm_release(rcclx_comm *c)
{
    if (c)
        rcclx_team_let_go(&c->team);
}

rcclx_status rcclx_comm_finalize(rcclx_comm *c)
{
    rcclx_team_drain(&c->team);
    const rcclx_status s = rcclx_team_broken(&c->team);
    if (s == RCCLX_OK)
        atomic_store(&c->state, RCCLX_COMM_FINALIZED);
    return s;
}

rcclx_status rcclx_comm_destroy(const void *handle)
{
    rcclx_status s;
    rcclx_comm *c = rcclx_comm_acquire(handle, "ncclCommDestroy", &s);

    if (!c)
        return s;
    /* set-up in a thread: its result decides */
    while (atomic_load(&c->state) == RCCLX_COMM_INIT)
        sched_yield();
    rcclx_comm *mine = rcclx_handle_close(handle);
    rcclx_team_drain(&c->team);
    RCCLX_INFO_LOG(INIT, "comm %p rank %d nranks %d cudaDev %d busId 0 - Destroy COMPLETE", handle, c->rank, c->nranks, c->device);
    rcclx_comm_release(mine);
    rcclx_comm_release(c);
    return mine ? RCCLX_OK : RCCLX_FAIL(RCCLX_ARGUMENT, "ncclCommDestroy: communicator %p was destroyed by another thread at "
                                        "the same time", handle);
}

rcclx_status rcclx_comm_abort(const void *handle)
{
    rcclx_status s;
    rcclx_comm *c = rcclx_comm_acquire(handle, "ncclCommAbort", &s);

    if (!c)
        return s;
    rcclx_team_abort(&c->team);
    while (atomic_load(&c->state) == RCCLX_COMM_INIT)
        sched_yield();
    rcclx_comm *mine = rcclx_handle_close(handle);
    rcclx_team_drain(&c->team);
    RCCLX_INFO_LOG(INIT, "comm %p rank %d nranks %d cudaDev %d busId 0 - Abort COMPLETE", handle, c->rank, c->nranks, c->device);
    rcclx_comm_release(mine);
    rcclx_comm_release(c);
    return RCCLX_OK;
}

rcclx_status rcclx_comm_async_error(rcclx_comm *c)
{
    switch (atomic_load_explicit(&c->state, memory_order_acquire)) {
    case RCCLX_COMM_INIT:
        return RCCLX_AGAIN;
    case RCCLX_COMM_FAILED:
        rcclx_last_error_set(c->team.cause);
        return c->failure;
    case RCCLX_COMM_FINALIZED:
        return RCCLX_OK;
    default:
        return atomic_load(&c->pending) && rcclx_team_broken(&c->team) == RCCLX_OK ? RCCLX_AGAIN : rcclx_team_poll(&c->team);
    }
}
