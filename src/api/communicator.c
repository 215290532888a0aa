/* Communicators, from outside: arguments and configuration are checked here,
 * comm/ does the rest. */
#include "api/communicator.h"

#include "api/argcheck.h"
#include "api/config_parse.h"
#include "base/option.h"
#include "rcclx.h"

#include <string.h>

_Static_assert(sizeof(ncclUniqueId) == sizeof(rcclx_unique_id), "an id is handed down as it is");

/* --- making ----------------------------------------------------------------- */

static rcclx_status check_place(const char *call, const void *comm, int nranks, int rank)
{
    RCCLX_TRY(rcclx_args_need(call, "comm", comm));
    if (nranks < 1)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "%s: nranks is %d; a communicator has at least one rank", call, nranks);
    if (nranks > RCCLX_MAX_RANKS)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "%s: nranks is %d; a communicator has at most %d ranks in this version", call, nranks,
                          RCCLX_MAX_RANKS);
    if (rank < 0 || rank >= nranks)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "%s: rank %d is outside 0..%d; each of the %d ranks passes its own number", call,
                          rank, nranks - 1, nranks);
    return RCCLX_OK;
}

/* Found in the caller's thread: set-up may go on in another one, whose current device is none of the caller's. */
static rcclx_status find_place(const char *call, int rank, const char *device, int local, rcclx_place *place)
{
    *place = (rcclx_place){ .device = local };
    RCCLX_TRY(rcclx_gpu_choose(call, rank, device, &place->gpu));
    return place->gpu ? place->gpu->current(&place->device) : RCCLX_OK;
}

rcclx_status rcclx_api_init(const char *call, ncclComm_t *comm, int nranks, const ncclUniqueId *id, int rank, const char *device,
                            int local, const void *user)
{
    rcclx_comm_config config;
    rcclx_unique_id   down;
    rcclx_place       place;

    RCCLX_TRY(find_place(call, rank, device, local, &place));
    RCCLX_TRY(check_place(call, comm, nranks, rank));
    RCCLX_TRY(rcclx_config_parse(call, rank, user, NULL, &config));
    memcpy(&down, id, sizeof down);
    return rcclx_comm_init((void **)comm, nranks, &down, rank, &place, &config, rcclx_option_str(RCCLX_OPT_COMM_ID));
}

static ncclResult_t init(const char *call, ncclComm_t *comm, int nranks, const ncclUniqueId *id, int rank, const char *device,
                         const void *user)
{
    return rcclx_api_result(rcclx_api_init(call, comm, nranks, id, rank, device, 0, user));
}

RCCLX_API(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * uniqueId))
{
    rcclx_unique_id id;
    rcclx_status    s = rcclx_args_need("ncclGetUniqueId", "uniqueId", uniqueId);

    if (s == RCCLX_OK)
        s = rcclx_unique_id_create(&id, rcclx_option_str(RCCLX_OPT_COMM_ID));
    if (s == RCCLX_OK)
        memcpy(uniqueId, &id, sizeof id);
    return rcclx_result(s);
}

RCCLX_API(ncclResult_t, ncclCommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank))
{
    return init("ncclCommInitRank", comm, nranks, &commId, rank, NULL, NULL);
}

RCCLX_API(ncclResult_t, ncclCommInitRankConfig,
          (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config))
{
    return init("ncclCommInitRankConfig", comm, nranks, &commId, rank, NULL, config);
}

RCCLX_EXPORT ncclResult_t rcclxCommInitRankDevice(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
                                                  const char *device, ncclConfig_t *config)
{
    return init("rcclxCommInitRankDevice", comm, nranks, &commId, rank, device, config);
}

/* All meet at the first id: one place is enough for the ranks of one machine. */
RCCLX_API(ncclResult_t, ncclCommInitRankScalable,
          (ncclComm_t * newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds, ncclConfig_t *config))
{
    static const char call[] = "ncclCommInitRankScalable";
    rcclx_status      s      = check_place(call, newcomm, nranks, myrank);

    if (s == RCCLX_OK && (nId < 1 || nId > nranks))
        s = RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: nId is %d, allowed are 1..%d, at most one id a rank", myrank, call, nId,
                       nranks);
    if (s == RCCLX_OK && !commIds)
        s = RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: commIds is NULL; pass nId ids, the same on every rank", myrank, call);
    return s == RCCLX_OK ? init(call, newcomm, nranks, commIds, myrank, NULL, config) : rcclx_api_result(s);
}

RCCLX_API(ncclResult_t, ncclCommInitAll, (ncclComm_t * comm, int ndev, const int *devlist))
{
    static const char call[] = "ncclCommInitAll";
    const rcclx_gpu  *gpu    = NULL;
    rcclx_comm_config config;
    rcclx_status      s = rcclx_args_need(call, "comm", comm);

    if (s == RCCLX_OK && ndev < 1)
        s = RCCLX_FAIL(RCCLX_ARGUMENT, "%s: ndev is %d; pass how many ranks to make, at least 1", call, ndev);
    for (int i = 0; s == RCCLX_OK && devlist && i < ndev; i++)
        if (devlist[i] < 0)
            s = RCCLX_FAIL(RCCLX_ARGUMENT, "%s: devlist[%d] is %d; devices count from 0", call, i, devlist[i]);
    if (s == RCCLX_OK)
        s = rcclx_gpu_choose(call, 0, NULL, &gpu);
    for (int i = 0; s == RCCLX_OK && gpu && i < ndev; i++)
        if ((devlist ? devlist[i] : i) >= gpu->count)
            s = RCCLX_FAIL(RCCLX_ARGUMENT, "%s: rank %d would be on %s device %d, and there are %d; pass a list of devices (one may "
                           "stand in it more than once)", call, i, gpu->name, devlist ? devlist[i] : i, gpu->count);
    if (s == RCCLX_OK)
        s = rcclx_config_parse(call, 0, NULL, NULL, &config);
    if (s == RCCLX_OK)
        s = rcclx_comm_init_all((void **)comm, ndev, gpu, devlist, &config);
    return rcclx_api_result(s);
}

static rcclx_status split(rcclx_comm *parent, int color, int key, ncclComm_t *newcomm, const void *user)
{
    static const char call[] = "ncclCommSplit";
    rcclx_comm_config config;

    if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: color %d is negative; colors count from 0, NCCL_SPLIT_NOCOLOR (-1) "
                          "asks for no communicator", parent->rank, call, color);
    if (!newcomm)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: newcomm is NULL; pass where to put the new communicator",
                          parent->rank, call);
    RCCLX_TRY(rcclx_config_parse(call, parent->rank, user, &parent->config, &config));
    return rcclx_comm_split(parent, color, key, (void **)newcomm, &config);
}

RCCLX_API(ncclResult_t, ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config))
{
    rcclx_status s;
    rcclx_comm  *c = rcclx_comm_acquire_ready(comm, "ncclCommSplit", &s);

    if (c) {
        s = split(c, color, key, newcomm, config);
        rcclx_comm_release(c);
    }
    return rcclx_api_result(s);
}

/* --- ending ------------------------------------------------------------------ */

RCCLX_API(ncclResult_t, ncclCommFinalize, (ncclComm_t comm))
{
    rcclx_status s;
    rcclx_comm  *c = rcclx_comm_acquire_ready(comm, "ncclCommFinalize", &s);

    if (c) {
        s = rcclx_comm_finalize(c);
        rcclx_comm_release(c);
    }
    return rcclx_api_result(s);
}

/* The text names the call; comm/ knows only the handle. */
static rcclx_status check_handle(const char *call, ncclComm_t comm)
{
    rcclx_status s;
    rcclx_comm  *c = rcclx_comm_acquire(comm, call, &s);

    if (c)
        rcclx_comm_release(c);
    return c ? RCCLX_OK : s;
}

RCCLX_API(ncclResult_t, ncclCommDestroy, (ncclComm_t comm))
{
    rcclx_status s;

    if (!comm)
        return ncclSuccess;
    s = check_handle("ncclCommDestroy", comm);
    return rcclx_api_result(s == RCCLX_OK ? rcclx_comm_destroy(comm) : s);
}

RCCLX_API(ncclResult_t, ncclCommAbort, (ncclComm_t comm))
{
    rcclx_status s;

    if (!comm)
        return ncclSuccess;
    s = check_handle("ncclCommAbort", comm);
    return rcclx_api_result(s == RCCLX_OK ? rcclx_comm_abort(comm) : s);
}

/* --- asking ------------------------------------------------------------------- */

RCCLX_API(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *asyncError))
{
    static const char call[] = "ncclCommGetAsyncError";
    rcclx_status      s      = rcclx_args_need(call, "asyncError", asyncError);
    rcclx_comm       *c      = s == RCCLX_OK ? rcclx_comm_acquire(comm, call, &s) : NULL;

    if (c) {
        *asyncError = rcclx_result(rcclx_comm_async_error(c));
        rcclx_comm_release(c);
        return ncclSuccess;
    }
    return rcclx_result(s);
}

static ncclResult_t ask(const char *call, ncclComm_t comm, const char *what, size_t field, int *out)
{
    rcclx_status s = rcclx_args_need(call, what, out);
    rcclx_comm  *c = s == RCCLX_OK ? rcclx_comm_acquire(comm, call, &s) : NULL;

    if (c) {
        memcpy(out, (const char *)c + field, sizeof *out);
        rcclx_comm_release(c);
        return ncclSuccess;
    }
    return rcclx_result(s);
}

RCCLX_API(ncclResult_t, ncclCommCount, (const ncclComm_t comm, int *count))
{
    return ask("ncclCommCount", comm, "count", offsetof(rcclx_comm, nranks), count);
}

RCCLX_API(ncclResult_t, ncclCommUserRank, (const ncclComm_t comm, int *rank))
{
    return ask("ncclCommUserRank", comm, "rank", offsetof(rcclx_comm, rank), rank);
}

RCCLX_API(ncclResult_t, ncclCommCuDevice, (const ncclComm_t comm, int *device))
{
    return ask("ncclCommCuDevice", comm, "device", offsetof(rcclx_comm, device), device);
}

RCCLX_API(ncclResult_t, ncclCommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value))
{
    static const char call[] = "ncclCommMemStats";
    rcclx_status      s      = rcclx_args_need(call, "value", value);
    rcclx_comm       *c      = s == RCCLX_OK ? rcclx_comm_acquire(comm, call, &s) : NULL;

    if (!c)
        return rcclx_result(s);
    switch (stat) {
    case ncclStatGpuMemSuspend:
    case ncclStatGpuMemSuspended: *value = 0; break; /* nothing here can be suspended */
    case ncclStatGpuMemPersist:
    case ncclStatGpuMemTotal: *value = rcclx_comm_bytes(c); break;
    default:
        s = RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: stat %d is none of 0..%d; pass an ncclCommMemStat_t", c->rank, call,
                       (int)stat, ncclStatGpuMemTotal);
    }
    rcclx_comm_release(c);
    return rcclx_result(s);
}
