#ifndef RCCLX_ALGO_PARTS_H
#define RCCLX_ALGO_PARTS_H

#include "plan/plan.h"

/* What the algorithms that go through scratch are made of. All of them read the
 * peers' SCRATCH only, and all begin by waiting for every header, which proves
 * that nobody still uses the slots for the previous operation. */

/* A copy step in protocol SIMPLE with its first source and destination. */
void rcclx_part_copy(rcclx_plan *p, rcclx_buf from, int from_rank, int from_block, rcclx_buf to, int to_block,
                     int nblk);

/* The whole plan of a communicator of one rank: IN to OUT. */
void rcclx_part_alone(rcclx_plan *p);

/* Cut the lane's memory in at least n slots. A plan whose pieces travel through
 * many ranks in a row asks for more than it uses: pieces get shorter and the
 * row fills sooner. */
void rcclx_part_slots(rcclx_plan *p, int n);

#endif
