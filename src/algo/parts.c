#include "algo/parts.h"

void rcclx_part_copy(rcclx_plan *p, rcclx_buf from, int from_rank, int from_block, rcclx_buf to, int to_block, int nblk)
{
    rcclx_copy_step(p, RCCLX_PROTO_SIMPLE, nblk);
    rcclx_src(p, from, from_rank, from_block, from == RCCLX_IN);
    rcclx_dst(p, to, p->shape.rank, to_block);
}

void rcclx_part_alone(rcclx_plan *p)
{
    if (!rcclx_kind_reduces(p->shape.kind)) {
        rcclx_part_copy(p, RCCLX_IN, 0, 0, RCCLX_OUT, 0, p->nblocks);
        return;
    }
    rcclx_reduce_step(p, RCCLX_PROTO_SIMPLE, p->nblocks, true);
    rcclx_src(p, RCCLX_IN, 0, 0, true);
    rcclx_dst(p, RCCLX_OUT, 0, 0);
}

void rcclx_part_slots(rcclx_plan *p, int n)
{
    if (p->nslots < n)
        p->nslots = (uint16_t)n;
}
