/* Memory: the arena's or a GPU's, and buffers announced to a communicator. On the
 * host registration changes nothing, since the arena is known to all peers anyway;
 * its handle is the buffer's address, on GPUs the registration's number, with a mark
 * of the communicator in the 16 bits that no address uses, so that a foreign handle is
 * recognised without a table:
 *
 *   63        48 47                                      0
 *   +-----------+----------------------------------------+
 *   |   mark    |  address of the buffer, or number + 2  |
 *   +-----------+----------------------------------------+ */
#include "api/argcheck.h"
#include "comm/comm.h"

#include <stdint.h>

RCCLX_API(ncclResult_t, ncclMemAlloc, (void **ptr, size_t size))
{
    const rcclx_gpu *gpu = NULL;
    rcclx_status     s   = rcclx_args_need("ncclMemAlloc", "ptr", ptr);

    if (s == RCCLX_OK) {
        *ptr = NULL;
        s    = rcclx_gpu_choose("ncclMemAlloc", 0, NULL, &gpu);
    }
    if (s == RCCLX_OK)
        s = gpu ? rcclx_gpu_memory_alloc(gpu, ptr, size) : rcclx_arena_alloc(ptr, size);
    return rcclx_result(s);
}

RCCLX_API(ncclResult_t, ncclMemFree, (void *ptr))
{
    bool               on_gpu;
    const rcclx_status s = rcclx_gpu_memory_free(ptr, &on_gpu);

    return rcclx_result(on_gpu ? s : rcclx_arena_free(ptr));
}

/* --- registration -------------------------------------------------------------- */

static uint64_t mark_of(const rcclx_comm *c)
{
    const uint64_t spread = (uint64_t)(uintptr_t)c->handle * UINT64_C(0x9e3779b97f4a7c15);

    return (spread | UINT64_C(1) << 63) & UINT64_C(0xffff000000000000);
}

enum { NOT_SHARED = -1, FIRST = 2 }; /* a handle's number is never 0 */

static rcclx_status add(rcclx_comm *c, void *buff, size_t size, void **handle)
{
    static const char call[] = "ncclCommRegister";

    RCCLX_TRY(rcclx_args_need(call, "handle", handle));
    if (!buff || !size)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: %s; pass the memory to register", c->rank, call,
                          buff ? "size is 0" : "buff is NULL");
    if ((uintptr_t)buff + size < (uintptr_t)buff || (uintptr_t)buff + size >= UINT64_C(1) << 48)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: size %zu from %p on is more than memory can hold", c->rank, call, size,
                          buff);
    int reg = NOT_SHARED;
    rcclx_team *gpu = rcclx_team_gpu(&c->team);
    if (gpu)
        RCCLX_TRY(rcclx_gpu_register(gpu, buff, size, &reg));
    *handle = (void *)(uintptr_t)((gpu ? (uintptr_t)(reg + FIRST) : (uintptr_t)buff) | mark_of(c));
    pthread_mutex_lock(&c->lock);
    c->registered++;
    pthread_mutex_unlock(&c->lock);
    return RCCLX_OK;
}

static rcclx_status take_away(rcclx_comm *c, const char *call, void *handle)
{
    bool known = ((uintptr_t)handle & UINT64_C(0xffff000000000000)) == mark_of(c);

    rcclx_team *gpu = rcclx_team_gpu(&c->team);
    pthread_mutex_lock(&c->lock);
    known = known && c->registered > 0;
    c->registered -= known;
    pthread_mutex_unlock(&c->lock);
    if (known)
        return gpu ? rcclx_gpu_deregister(gpu, (int)((uintptr_t)handle & UINT64_C(0xffffffff)) - FIRST) : RCCLX_OK;
    return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: handle %p is no registered buffer or window of this communicator; pass what "
                      "its registration gave, once", c->rank, call, handle);
}

RCCLX_API(ncclResult_t, ncclCommRegister, (const ncclComm_t comm, void *buff, size_t size, void **handle))
{
    rcclx_status s;
    rcclx_comm  *c = rcclx_comm_acquire(comm, "ncclCommRegister", &s);

    if (c) {
        s = add(c, buff, size, handle);
        rcclx_comm_release(c);
    }
    return rcclx_result(s);
}

RCCLX_API(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void *handle))
{
    rcclx_status s;
    rcclx_comm  *c = rcclx_comm_acquire(comm, "ncclCommDeregister", &s);

    if (c) {
        s = take_away(c, "ncclCommDeregister", handle);
        rcclx_comm_release(c);
    }
    return rcclx_result(s);
}

/* --- windows: on GPUs registered buffers; elsewhere NULL is the answer "not here" ---- */

static rcclx_status open_window(rcclx_comm *c, void *buff, size_t size, ncclWindow_t *win, int flags)
{
    static const char call[] = "ncclCommWindowRegister";

    RCCLX_TRY(rcclx_args_need(call, "win", win));
    *win = NULL;
    if (!buff)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: buff is NULL; pass the memory to register", c->rank, call);
    if (flags & ~(NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING))
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: winFlags 0x%x has unknown bits; pass NCCL_WIN_*", c->rank, call,
                          (unsigned)flags);
    return rcclx_team_on_gpu(&c->team) && size ? add(c, buff, size, (void **)win) : RCCLX_OK;
}

RCCLX_API(ncclResult_t, ncclCommWindowRegister,
          (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags))
{
    rcclx_status s;
    rcclx_comm  *c = rcclx_comm_acquire(comm, "ncclCommWindowRegister", &s);

    if (c) {
        s = open_window(c, buff, size, win, winFlags);
        rcclx_comm_release(c);
    }
    return rcclx_api_result(s);
}

RCCLX_API(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win))
{
    rcclx_status s;
    rcclx_comm  *c = rcclx_comm_acquire(comm, "ncclCommWindowDeregister", &s);

    if (c) {
        if (win && rcclx_team_on_gpu(&c->team))
            s = take_away(c, "ncclCommWindowDeregister", win);
        else if (win)
            s = RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: ncclCommWindowDeregister: win %p is no window of this library, which "
                           "has given out none", c->rank, (void *)win);
        else
            s = RCCLX_OK;
        rcclx_comm_release(c);
    }
    return rcclx_result(s);
}
