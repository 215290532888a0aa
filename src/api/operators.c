/* Operators that multiply this rank's input first. A handle is the index in the
 * communicator's table, counted on from the built-in operators. */
#include "api/argcheck.h"
#include "comm/comm.h"

#include <string.h>

static rcclx_status create(rcclx_comm *c, ncclRedOp_t *op, const void *scalar, int type, int residence)
{
    static const char call[] = "ncclRedOpCreatePreMulSum";
    uint64_t          bits   = 0;
    int               index;

    RCCLX_TRY(rcclx_args_need(call, "op", op));
    if (!scalar)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: scalar is NULL; pass the address of one element", c->rank, call);
    if ((unsigned)type >= RCCLX_TYPE_COUNT)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: datatype %d is none of 0..%d; pass an ncclDataType_t", c->rank, call,
                          type, RCCLX_TYPE_COUNT - 1);
    if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: residence %d is neither ncclScalarDevice (0) nor "
                          "ncclScalarHostImmediate (1)", c->rank, call, residence);
    const size_t size = rcclx_type_size((rcclx_type)type);
    rcclx_team *gpu = rcclx_team_gpu(&c->team);
    if (gpu && residence == ncclScalarDevice) {
        RCCLX_TRY(rcclx_gpu_buffer_check(gpu, call, "scalar", scalar, size));
        RCCLX_TRY(rcclx_gpu_read(gpu, &bits, scalar, size)); /* as it is now: what is queued before may still write it */
    } else {
        memcpy(&bits, scalar, size);
    }
    RCCLX_TRY(rcclx_redop_create(c, (rcclx_type)type, bits, &index));
    *op = (ncclRedOp_t)(ncclNumOps + index);
    return RCCLX_OK;
}

RCCLX_API(ncclResult_t, ncclRedOpCreatePreMulSum, (ncclRedOp_t * op, void *scalar, ncclDataType_t datatype,
                                                   ncclScalarResidence_t residence, ncclComm_t comm))
{
    rcclx_status s;
    rcclx_comm  *c = rcclx_comm_acquire_ready(comm, "ncclRedOpCreatePreMulSum", &s);

    if (c) {
        s = create(c, op, scalar, (int)datatype, (int)residence);
        rcclx_comm_release(c);
    }
    return rcclx_result(s);
}

static rcclx_status destroy(rcclx_comm *c, int op)
{
    rcclx_type type;
    uint64_t   scalar;

    if (op < ncclNumOps || !rcclx_redop_get(c, op - ncclNumOps, &type, &scalar))
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: ncclRedOpDestroy: op %d is %s; pass what ncclRedOpCreatePreMulSum gave, "
                          "once", c->rank, op, op >= 0 && op < ncclNumOps ? "built in" : "no operator of this communicator");
    return rcclx_redop_destroy(c, op - ncclNumOps);
}

RCCLX_API(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm))
{
    rcclx_status s;
    rcclx_comm  *c = rcclx_comm_acquire(comm, "ncclRedOpDestroy", &s);

    if (c) {
        s = destroy(c, (int)op);
        rcclx_comm_release(c);
    }
    return rcclx_result(s);
}
