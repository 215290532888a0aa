#ifndef RCCLX_PLAN_RANKS_H
#define RCCLX_PLAN_RANKS_H

#include "plan/plan.h"

/* All ranks' plans of a shape, for those who look at a collective as a whole:
 * checker, pricer, drawing. shape.rank is ignored. */
rcclx_status rcclx_ranks_build(const rcclx_algo *a, const rcclx_shape *s, rcclx_plan **plans);
void         rcclx_ranks_free(rcclx_plan *plans, int nranks);

/* Blocks that IN or OUT of a rank has in this plan's collective; 0: the rank has
 * no such buffer (OUT of a Gather anywhere but at the root). */
int rcclx_ranks_blocks(const rcclx_plan *p, int rank, rcclx_buf buf);

/* Bytes of block b when the call says nbytes (see rcclx_plan_price). */
size_t rcclx_ranks_block_bytes(const rcclx_plan *p, size_t nbytes, int b);

/* Does this step read a SCRATCH slot of the operation (LL)? Such a step waits by itself. */
bool rcclx_ranks_is_slot(const rcclx_step *st, const rcclx_ref *ref);

#endif
