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

#include <time.h>

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
        rcclx_handle_put(c);
}

rcclx_status rcclx_comm_finalize(rcclx_comm *c)
{
    rcclx_team_drain(&c->team);
    const rcclx_status s = rcclx_team_broken(&c->team);
    if (s == RCCLX_OK)
        atomic_store(&c->state, RCCLX_COMM_FINALIZED);
    return s;
}

/* The caller's use of c ends here, and so does the table's hold. */
static rcclx_status close_handle(rcclx_comm *c, const char *call, const char *word)
{
    const void *handle = c->handle;

    if (!rcclx_handle_close(c, 1)) {
        rcclx_comm_release(c);
        return RCCLX_FAIL(RCCLX_ARGUMENT, "%s: communicator %p was destroyed by another thread at the same time", call, handle);
    }
    rcclx_team_drain(&c->team);
    RCCLX_INFO_LOG(INIT, "comm %p rank %d nranks %d cudaDev %d busId %llx - %s COMPLETE", handle, c->rank, c->nranks, c->device,
                   (unsigned long long)c->bus, word);
    rcclx_comm_release(c);
    rcclx_team_let_go(&c->team);
    return RCCLX_OK;
}

static void wait_for_set_up(rcclx_comm *c)
{
    while (atomic_load(&c->state) == RCCLX_COMM_INIT) {
        const struct timespec nap = { 0, 100000 };
        nanosleep(&nap, NULL);
    }
}

rcclx_status rcclx_comm_destroy(const void *handle)
{
    rcclx_status s;
    rcclx_comm *c = rcclx_comm_acquire(handle, "ncclCommDestroy", &s);

    if (!c)
        return s;
    wait_for_set_up(c); /* in a thread: its result decides */
    return close_handle(c, "ncclCommDestroy", "Destroy");
}

rcclx_status rcclx_comm_abort(const void *handle)
{
    rcclx_status s;
    rcclx_comm *c = rcclx_comm_acquire(handle, "ncclCommAbort", &s);

    if (!c)
        return s;
    atomic_store(&c->team.aborted, 1); /* ends set-up; the team can tell its peers only after it */
    wait_for_set_up(c);
    rcclx_team_abort(&c->team);
    return close_handle(c, "ncclCommAbort", "Abort");
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
