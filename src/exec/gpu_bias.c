/* The bias of an all-reduce, added when the sum is here: a launch of its own, in which
 * this rank is alone.
 *
 *   stream   all-reduce --> OUT = OUT + bias
 *
 * The sum is rounded to the type before, as on the host. The launch has a state of its
 * own, so that the communicator's turns do not see it. */
#include "exec/gpu_team.h"

#include "base/log.h"

enum { A_LANE = 32 << 10 }; /* bytes for which another lane joins */

/* One step: what is in OUT and what is in IN, into OUT. */
typedef struct {
    gp_work work;
    gp_step step;
    gp_ref  refs[3];
} sum;

static void fill(const rcclx_gpu_team *g, const rcclx_op *op, size_t nbytes, sum *s)
{
    *s = (sum){
        .work = { .nbytes = sizeof(*s), .kind = (uint8_t)op->kind, .type = (uint8_t)op->type, .op = RCCLX_SUM, .nplans = 1,
                  .in = (uint64_t)(uintptr_t)op->bias, .out = (uint64_t)(uintptr_t)op->out,
                  .in_token = GP_TOKEN_NONE, .out_token = GP_TOKEN_NONE,
                  .plan = { { .steps = offsetof(sum, step), .refs = offsetof(sum, refs), .nsteps = 1, .nslots = 1, .npieces = 1,
                              .block_bytes = nbytes, .whole_bytes = nbytes, .parts = 1, .units = (nbytes + 63) / 64 } } },
        .step = { .op = GP_REDUCE, .nsrc = 2, .ndst = 1, .nblk = 1 },
        .refs = { { GP_OUT, 1, (uint8_t)g->frame.rank, 0 }, { GP_IN, 1, (uint8_t)g->frame.rank, 0 },
                  { GP_OUT, 0, (uint8_t)g->frame.rank, 0 } },
    };
}

rcclx_status rcclx_gpu_add_bias(rcclx_team *t, const rcclx_op *op, void *stream)
{
    const rcclx_gpu_team *g = t->gpu;
    const size_t nbytes = op->count * rcclx_type_size(op->type), lanes = (nbytes + A_LANE - 1) / A_LANE;
    const size_t nlanes = lanes < (size_t)g->picker.lanes_most ? lanes : (size_t)g->picker.lanes_most;
    gp_large args;

    if (!op->bias || !nbytes)
        return RCCLX_OK;
    args.frame = g->frame;
    args.frame.state = (uint64_t)(uintptr_t)(g->state + 1);
    args.frame.nworks = 1;
    args.frame.nlanes = (uint16_t)nlanes;
    args.frame.part = (uint32_t)(GP_WHOLE / nlanes);
    args.frame.part0 = (uint32_t)(GP_WHOLE - args.frame.part * (nlanes - 1));
    args.frame.alone = 1;
    fill(g, op, nbytes, (sum *)(void *)args.blob);
    return g->gpu->launch(g->kernel[rcclx_gpu_kernel_of(op->type, RCCLX_SUM)][RCCLX_PROTO_SIMPLE], (unsigned)nlanes,
                          g->frame.nthreads, stream, &args, sizeof(args));
}
