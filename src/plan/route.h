#ifndef RCCLX_PLAN_ROUTE_H
#define RCCLX_PLAN_ROUTE_H

#include "plan/plan.h"

/* What a signal must bring along to ranks that do not see my scratch.
 *
 *   my plan        COPY IN -> slot 2      SIGNAL 1 ----> counter, slot 2 --> far rank 5
 *   rank 5's plan                         WAIT me 1      REDUCE ... slot 2 of me ...
 *
 * Read off their plans: between my phase F, which rank q waits for, and my next one, q reads
 * these slots; so my signal F takes them to q. A rank that waits for a phase and reads
 * nothing gets the counter alone. */
typedef struct {
    uint16_t rank, nslots;
    uint32_t first;  /* slots[first .. first + nslots) */
} rcclx_delivery;

typedef struct {
    uint32_t       *at;         /* of step i: deliveries[at[i] .. at[i + 1]) */
    rcclx_delivery *deliveries;
    uint16_t       *slots;
    uint32_t        ndeliveries, nslots;
} rcclx_routes;

/* far: whether rank r does not see my scratch. UNSUPPORTED: the plan writes to a far rank's memory, or reads it in place. */
rcclx_status rcclx_routes_build(rcclx_routes *r, const rcclx_algo *a, const rcclx_plan *mine, const bool *far);
void         rcclx_routes_fini(rcclx_routes *r); /* takes zeroed and half-made ones */

#endif
