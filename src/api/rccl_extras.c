/* What RCCL has beyond NCCL. */
#include "api/argcheck.h"
#include "comm/comm.h"
#include "rccl/rccl.h"

#include <string.h>

enum { NO_OP = -1 };

RCCLX_API(ncclResult_t, ncclAllToAll, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                       ncclComm_t comm, cudaStream_t stream))
{
    return rcclx_api_post("ncclAllToAll", comm, NO_OP,
                          &(rcclx_op){ .kind = RCCLX_ALL_TO_ALL, .in = sendbuff, .out = recvbuff, .count = count,
                                       .type = (rcclx_type)datatype, .stream = (void *)stream });
}

RCCLX_API(ncclResult_t, ncclAlltoAllv, (const void *sendbuff, const size_t sendcounts[], const size_t sdispls[],
                                        void *recvbuff, const size_t recvcounts[], const size_t rdispls[],
                                        ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream))
{
    return rcclx_api_post("ncclAlltoAllv", comm, NO_OP,
                          &(rcclx_op){ .kind = RCCLX_ALL_TO_ALLV, .in = sendbuff, .out = recvbuff, .scounts = sendcounts,
                                       .sdispls = sdispls, .rcounts = recvcounts, .rdispls = rdispls,
                                       .type = (rcclx_type)datatype, .stream = (void *)stream });
}

RCCLX_API(ncclResult_t, ncclAllToAllv, (const void *sendbuff, const size_t sendcounts[], const size_t sdispls[],
                                        void *recvbuff, const size_t recvcounts[], const size_t rdispls[],
                                        ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream))
{
    return pncclAlltoAllv(sendbuff, sendcounts, sdispls, recvbuff, recvcounts, rdispls, datatype, comm, stream);
}

RCCLX_API(ncclResult_t, ncclAllReduceWithBias, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                                ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const void *acc))
{
    if (count && !acc)
        return rcclx_api_result(RCCLX_FAIL(RCCLX_ARGUMENT, "ncclAllReduceWithBias: acc is NULL with a count of %zu; use "
                                           "ncclAllReduce when there is nothing to add", count));
    if (op != ncclSum)
        return rcclx_api_result(RCCLX_FAIL(RCCLX_ARGUMENT, "ncclAllReduceWithBias: op %d is not ncclSum, the only one that "
                                           "has a bias", (int)op));
    return rcclx_api_post("ncclAllReduceWithBias", comm, (int)op,
                          &(rcclx_op){ .kind = RCCLX_ALL_REDUCE, .in = sendbuff, .out = recvbuff, .count = count,
                                       .type = (rcclx_type)datatype, .bias = acc, .stream = (void *)stream });
}

/* --- custom algorithms: gone from RCCL, the symbols stayed ------------------ */

static ncclResult_t without_effect(const char *call)
{
    RCCLX_WARN_LOG("%s has no effect, in RCCL neither; the library chooses algorithms by itself", call);
    return ncclSuccess;
}

RCCLX_EXPORT ncclResult_t mscclLoadAlgo(const char *path, mscclAlgoHandle_t *handle, int rank)
{
    (void)path, (void)rank;
    if (handle)
        *handle = 0;
    return without_effect("mscclLoadAlgo");
}

RCCLX_EXPORT ncclResult_t mscclRunAlgo(const void *sendBuff, const size_t sendCounts[], const size_t sDisPls[],
                                       void *recvBuff, const size_t recvCounts[], const size_t rDisPls[], size_t count,
                                       ncclDataType_t dataType, int root, int peer, ncclRedOp_t op, mscclAlgoHandle_t handle,
                                       ncclComm_t comm, cudaStream_t stream)
{
    (void)sendBuff, (void)sendCounts, (void)sDisPls, (void)recvBuff, (void)recvCounts, (void)rDisPls, (void)count;
    (void)dataType, (void)root, (void)peer, (void)op, (void)handle, (void)comm, (void)stream;
    return without_effect("mscclRunAlgo");
}

RCCLX_EXPORT ncclResult_t mscclUnloadAlgo(mscclAlgoHandle_t handle)
{
    (void)handle;
    return without_effect("mscclUnloadAlgo");
}

/* --- which algorithm, for reports ------------------------------------------ */

static const rcclx_kind reported[] = { RCCLX_BROADCAST, RCCLX_REDUCE_TO, RCCLX_ALL_GATHER, RCCLX_REDUCE_SCATTER,
                                       RCCLX_ALL_REDUCE };
enum { NREPORTED = sizeof reported / sizeof reported[0] };

/* The numbers of NCCL's protocols. */
static const char *const protocols[] = { "LL", "LL128", "Simple" };

static int index_of(const char *name)
{
    int i = 0;

    while (rcclx_algos[i] && strcmp(rcclx_algos[i]->name, name))
        i++;
    return i;
}

static rcclx_status report_gpu(rcclx_team *gpu, rcclx_kind kind, size_t nbytes, int *algo, int *protocol, int *channels)
{
    static const int number[] = { [RCCLX_PROTO_SIMPLE] = 2, [RCCLX_PROTO_LL] = 0, [RCCLX_PROTO_LL128] = 1 };
    rcclx_gpu_choice choice;

    RCCLX_TRY(rcclx_gpu_explain(gpu, kind, nbytes, &choice));
    *algo = index_of(choice.algo);
    *protocol = number[choice.protocol];
    *channels = choice.nlanes;
    return RCCLX_OK;
}

static rcclx_status report(rcclx_comm *c, int coll, uint64_t count, int type, int *algo, int *protocol, int *channels)
{
    static const char call[] = "rcclGetAlgoInfo";

    if (coll < 0 || coll >= NREPORTED)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: coll %d is none of 0..%d", c->rank, call, coll, NREPORTED - 1);
    if ((unsigned)type >= RCCLX_TYPE_COUNT)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: dataType %d is none of 0..%d; pass an ncclDataType_t", c->rank, call,
                          type, RCCLX_TYPE_COUNT - 1);
    const size_t      nbytes = (size_t)count * rcclx_type_size((rcclx_type)type);
    const bool        small  = nbytes <= c->team.slot_max;
    const unsigned    facts  = RCCLX_FACT_APART | (c->team.cma ? RCCLX_FACT_CMA : 0);
    const rcclx_shape shape  = { .kind = reported[coll], .nranks = c->nranks, .rank = c->rank, .node = rcclx_team_nodes(&c->team) };
    bool              unfit  = false;
    rcclx_team       *gpu = rcclx_team_gpu(&c->team);
    if (gpu) /* over machines: of the part inside */
        return report_gpu(gpu, reported[coll], nbytes, algo, protocol, channels);
    const rcclx_algo *a = rcclx_algo_choose(&shape, nbytes, facts, small, c->team.ordered, c->team.algo, &c->team.machine, &unfit);

    if (!a)
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: %s: no memory to compare the algorithms", c->rank, call);
    *algo = 0;
    while (rcclx_algos[*algo] && rcclx_algos[*algo] != a)
        ++*algo;
    *protocol = a->flags & RCCLX_NEEDS_SMALL ? 0 : 2;
    *channels = RCCLX_NLANES;
    return RCCLX_OK;
}

RCCLX_EXPORT ncclResult_t rcclGetAlgoInfo(ncclComm_t comm, int coll, uint64_t count, ncclDataType_t dataType,
                                          int collNetSupport, int nvlsSupport, int numPipeOps, int *algo, int *protocol,
                                          int *maxChannels)
{
    rcclx_status s = rcclx_args_need("rcclGetAlgoInfo", "algo, protocol or maxChannels", algo && protocol ? maxChannels : NULL);
    rcclx_comm  *c = s == RCCLX_OK ? rcclx_comm_acquire_ready(comm, "rcclGetAlgoInfo", &s) : NULL;

    (void)collNetSupport, (void)nvlsSupport, (void)numPipeOps;
    if (c) {
        s = report(c, coll, count, (int)dataType, algo, protocol, maxChannels);
        rcclx_comm_release(c);
    }
    return rcclx_result(s);
}

RCCLX_EXPORT ncclResult_t rcclGetAlgoName(int algo, const char **algoName)
{
    const rcclx_status s = rcclx_args_need("rcclGetAlgoName", "algoName", algoName);

    for (int i = 0; s == RCCLX_OK && rcclx_algos[i]; i++)
        if (i == algo) {
            *algoName = rcclx_algos[i]->name;
            return ncclSuccess;
        }
    return rcclx_result(s != RCCLX_OK ? s : RCCLX_FAIL(RCCLX_ARGUMENT, "rcclGetAlgoName: there is no algorithm %d", algo));
}

RCCLX_EXPORT ncclResult_t rcclGetProtocolName(int protocol, const char **protocolName)
{
    const rcclx_status s = rcclx_args_need("rcclGetProtocolName", "protocolName", protocolName);

    if (s == RCCLX_OK && (unsigned)protocol < sizeof protocols / sizeof protocols[0]) {
        *protocolName = protocols[protocol];
        return ncclSuccess;
    }
    return rcclx_result(s != RCCLX_OK ? s : RCCLX_FAIL(RCCLX_ARGUMENT, "rcclGetProtocolName: there is no protocol %d", protocol));
}
