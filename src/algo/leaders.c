/* Small messages over machines: one rank of each, its leader, speaks for all of it.
 *
 *   all-reduce, 2 machines of 2 ranks, leaders 0 and 2
 *     1  IN ------> slot of 1                                 WAIT 0 1   scratch of 0 ---> OUT
 *     0  IN + slot of 1 --> slot of 0 =====.   + slot of 2 --> OUT --> scratch   SIGNAL 1
 *                                           x  network
 *     2  IN + slot of 3 --> slot of 2 =====`   + slot of 0 --> OUT --> scratch   SIGNAL 1
 *     3  IN ------> slot of 3                                 WAIT 2 1   scratch of 2 ---> OUT
 *
 * Partial sums travel with the leader's header, so that one frame a pair of machines is all that crosses
 * the network. The scratch of a leader comes back when its ranks have come to the next operation, which
 * it has to hear before it writes there. */
#include "algo/algo.h"
#include "algo/parts.h"
#include "plan/talk.h"

enum { HERE = 1 };

static int leader_of(const rcclx_shape *s, int machine)
{
    int r = 0;

    while (r < s->nranks && s->node[r] != machine)
        r++;
    return r;
}

static int machines(const rcclx_shape *s)
{
    int n = 0;

    for (int r = 0; r < s->nranks; r++)
        n = s->node[r] >= n ? s->node[r] + 1 : n;
    return n;
}

static int count_on(const rcclx_shape *s, int machine)
{
    int n = 0;

    for (int r = 0; r < s->nranks; r++)
        n += s->node[r] == machine;
    return n;
}

static void put(rcclx_plan *p)
{
    rcclx_copy_step(p, RCCLX_PROTO_LL, 1);
    rcclx_src(p, RCCLX_IN, p->shape.rank, 0, true);
    rcclx_dst(p, RCCLX_SCRATCH, p->shape.rank, 0);
}

/* What my machine's leader has come to. */
static void follow(rcclx_plan *p, int leader)
{
    rcclx_wait(p, leader, 0, RCCLX_LAG_NONE); /* that it calls the same */
    rcclx_wait(p, leader, HERE, RCCLX_LAG_NONE);
    rcclx_part_copy(p, RCCLX_SCRATCH, leader, 0, RCCLX_OUT, 0, 1);
}

/* For those who follow. */
static void hand_on(rcclx_plan *p)
{
    rcclx_part_copy(p, RCCLX_OUT, p->shape.rank, 0, RCCLX_SCRATCH, 0, 1);
    rcclx_signal(p, HERE);
}

/* --- all-reduce ------------------------------------------------------------------------ */

static void sum_inside(rcclx_plan *p, const rcclx_shape *s, int mine)
{
    rcclx_reduce_step(p, RCCLX_PROTO_LL, 1, false);
    for (int r = 0; r < s->nranks; r++)
        if (s->node[r] == mine)
            rcclx_src(p, r == s->rank ? RCCLX_IN : RCCLX_SCRATCH, r, 0, true);
    rcclx_dst(p, RCCLX_SCRATCH, s->rank, 0);
}

/* In the order of machines, so that all hold the same bits. */
static void sum_between(rcclx_plan *p, const rcclx_shape *s, int mine)
{
    rcclx_reduce_step(p, RCCLX_PROTO_LL, 1, true);
    for (int g = 0; g < machines(s); g++) {
        const bool alone = count_on(s, g) == 1;
        rcclx_src(p, g == mine && alone ? RCCLX_IN : RCCLX_SCRATCH, leader_of(s, g), 0, alone);
    }
    rcclx_dst(p, RCCLX_OUT, s->rank, 0);
}

static void all_reduce(rcclx_plan *p, const rcclx_shape *s, int mine)
{
    const int leader = leader_of(s, mine);
    const bool alone = count_on(s, mine) == 1;

    if (s->rank != leader) {
        put(p);
        follow(p, leader);
        return;
    }
    if (alone)
        put(p);
    else
        sum_inside(p, s, mine);
    sum_between(p, s, mine);
    if (!alone)
        hand_on(p);
}

/* --- broadcast --------------------------------------------------------------------------- */

static void broadcast(rcclx_plan *p, const rcclx_shape *s, int mine)
{
    const int leader = leader_of(s, mine), home = s->node[s->root];

    if (s->rank == s->root) {
        put(p);
        rcclx_part_copy(p, RCCLX_IN, s->rank, 0, RCCLX_OUT, 0, 1);
        return;
    }
    if (mine != home && s->rank != leader) {
        follow(p, leader);
        return;
    }
    for (int r = 0; mine != home && r < s->nranks; r++) /* they are done with my scratch */
        if (s->node[r] == mine && r != s->rank)
            rcclx_wait(p, r, 0, RCCLX_LAG_NONE);
    rcclx_copy_step(p, RCCLX_PROTO_LL, 1);
    rcclx_src(p, RCCLX_SCRATCH, s->root, 0, true);
    rcclx_dst(p, RCCLX_OUT, s->rank, 0);
    if (mine != home && count_on(s, mine) > 1)
        hand_on(p);
}

static bool can(const rcclx_shape *s)
{
    return s->node && !s->coded && s->nranks <= RCCLX_TALKERS /* else far ranks do not meet before it */ && machines(s) > 1 && machines(s) < s->nranks;
}

static void build(rcclx_plan *p, const rcclx_shape *s)
{
    if (!s->node) {
        p->status = RCCLX_UNSUPPORTED;
        return;
    }
    rcclx_plan_init(p, s, "leaders", RCCLX_CUT_SPLIT, 1);
    rcclx_part_slots(p, 1);
    if (s->kind == RCCLX_ALL_REDUCE)
        all_reduce(p, s, s->node[s->rank]);
    else
        broadcast(p, s, s->node[s->rank]);
    p->pieced = false; /* it fits a slot, and so one piece */
}

const rcclx_algo rcclx_algo_leaders = {
    .name  = "leaders",
    .about = "small messages: one rank a machine exchanges what its machine has",
    .kinds = 1u << RCCLX_ALL_REDUCE | 1u << RCCLX_BROADCAST,
    .flags = RCCLX_NEEDS_SMALL,
    .can   = can,
    .build = build,
};
