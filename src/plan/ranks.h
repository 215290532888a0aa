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

/* Is this operand a SCRATCH slot of the operation (LL)? A step that reads one waits by itself. */
bool rcclx_ranks_is_slot(const rcclx_step *st, const rcclx_ref *ref);

/* Likewise, in a plan that pushes: then the slot is filled by another rank than its own. */
bool rcclx_ranks_is_pushed(const rcclx_plan *p, const rcclx_step *st, const rcclx_ref *ref);

/* The block of the message from which the step learns how long its operands are. */
int rcclx_ranks_first_block(const rcclx_plan *p, const rcclx_step *st);

/* Which rank pushes into this slot of a rank's, and in which step of its plan; -1: nobody. */
int rcclx_ranks_pusher(const rcclx_plan *plans, int rank, int slot, uint32_t *step);

#endif
