/* Recursive doubling and halving: log2(n) exchanges with ranks twice as far each
 * time. Everything a rank hands on stands in a slot of its own level, so within a
 * piece no slot is written twice; between pieces the reader's next signal gives it
 * back.
 *
 *   all-reduce, 6 ranks: 4 take part, two more are folded in and out
 *     1 -> 0, 3 -> 2           level 0   0 <-> 2   4 <-> 5
 *                              level 1   0 <-> 4   2 <-> 5
 *     0 -> 1, 2 -> 3
 *   OUT holds a rank's own sum, its slots what the others read. The lower ranks' sum
 *   always stands first, so all ranks compute the same bits.
 *
 *   reduce-scatter (n a power of two): halves. Slots of rank r, n = 8
 *     [ 4 blocks for the far half | 4 sums | 2 sums ] -> OUT
 *   all-gather (any n): rank r has blocks r, r+1, .. r+2^j-1 in slots 0..2^j-1 and
 *   reads as many again from rank r + 2^j. */
#include "algo/parts.h"

#include "algo/algo.h"

static int floor_log2(int n)
{
    int l = 0;

    while (n >> (l + 1))
        l++;
    return l;
}

/* --- all-reduce --------------------------------------------------------- */

/* Ranks below 2 * extra are pairs: the even one takes part, the odd one is folded. */
static int seat_to_rank(int seat, int extra)
{
    return seat < extra ? 2 * seat : seat + extra;
}

static void folded(rcclx_plan *p, int me, int levels)
{
    rcclx_part_copy(p, RCCLX_IN, me, 0, RCCLX_SCRATCH, 0, 1);
    rcclx_signal(p, 1);
    rcclx_wait(p, me - 1, levels + 1, 0);
    rcclx_part_copy(p, RCCLX_SCRATCH, me - 1, levels, RCCLX_OUT, 0, 1);
    rcclx_signal(p, levels + 2);
}

/* What this seat starts with: its own block in slot 0, or the pair's sum there and in OUT. */
static void start(rcclx_plan *p, int me, bool pair)
{
    if (!pair) {
        rcclx_part_copy(p, RCCLX_IN, me, 0, RCCLX_SCRATCH, 0, 1);
        return;
    }
    rcclx_wait(p, me + 1, 1, 0);
    rcclx_reduce_step(p, RCCLX_PROTO_SIMPLE, 1, false);
    rcclx_src(p, RCCLX_IN, me, 0, true);
    rcclx_src(p, RCCLX_SCRATCH, me + 1, 0, true);
    rcclx_dst(p, RCCLX_OUT, me, 0);
    rcclx_dst(p, RCCLX_SCRATCH, me, 0);
}

static void half_sum(rcclx_plan *p, int me, int rank, int level, int extra)
{
    const bool raw = !level && rank >= 2 * extra;

    if (rank == me)
        rcclx_src(p, raw ? RCCLX_IN : RCCLX_OUT, me, 0, raw);
    else
        rcclx_src(p, RCCLX_SCRATCH, rank, level, raw);
}

static void exchange(rcclx_plan *p, int me, int other, int level, int extra, bool final)
{
    rcclx_wait(p, other, level + 1, 0);
    rcclx_reduce_step(p, RCCLX_PROTO_SIMPLE, 1, final);
    half_sum(p, me, me < other ? me : other, level, extra);
    half_sum(p, me, me < other ? other : me, level, extra);
    rcclx_dst(p, RCCLX_OUT, me, 0);
}

static void all_reduce(rcclx_plan *p, int n, int me)
{
    const int levels = floor_log2(n), extra = n - (1 << levels);
    const bool pair = me < 2 * extra;
    const int seat = pair ? me / 2 : me - extra;

    rcclx_part_slots(p, levels + 1);
    if (pair && me % 2) {
        folded(p, me, levels);
        return;
    }
    rcclx_wait(p, seat_to_rank(seat ^ 1, extra), 2, 1);
    start(p, me, pair);
    rcclx_signal(p, 1);
    for (int j = 0; j < levels; j++) {
        const bool last = j == levels - 1;
        if (!last)
            rcclx_wait(p, seat_to_rank(seat ^ 2 << j, extra), j + 3, 1);
        else if (pair)
            rcclx_wait(p, me + 1, levels + 2, 1);
        exchange(p, me, seat_to_rank(seat ^ 1 << j, extra), j, extra, last);
        if (!last || pair)
            rcclx_dst(p, RCCLX_SCRATCH, me, j + 1);
        rcclx_signal(p, j + 2);
    }
}

/* --- reduce-scatter ------------------------------------------------------ */

/* Level j works on n >> j blocks around mine, which begin here. */
static int range_begin(int me, int n, int j)
{
    return me / (n >> j) * (n >> j);
}

/* Where level j's slots begin: n/2 staged, then n/2, n/4, ... sums. */
static int level_slots(int n, int j)
{
    int at = 0;

    for (int i = 0; i < j; i++)
        at += i ? n >> i : n / 2;
    return at;
}

/* Sums of level j: the partner's slots plus my own, both of level j - 1. */
static void halve(rcclx_plan *p, int n, int me, int j, bool final)
{
    const int width = n >> j, begin = range_begin(me, n, j), other = me ^ width;
    const int before = begin - range_begin(me, n, j - 1), at = level_slots(n, j - 1);

    rcclx_wait(p, other, j, 0);
    rcclx_reduce_step(p, RCCLX_PROTO_SIMPLE, width, final);
    rcclx_src(p, RCCLX_SCRATCH, other, j == 1 ? at : at + before, j == 1);
    if (j == 1)
        rcclx_src(p, RCCLX_IN, me, begin, true);
    else
        rcclx_src(p, RCCLX_SCRATCH, me, at + before, false);
    if (final)
        rcclx_dst(p, RCCLX_OUT, me, 0);
    else
        rcclx_dst(p, RCCLX_SCRATCH, me, level_slots(n, j));
}

static void reduce_scatter(rcclx_plan *p, int n, int me)
{
    const int levels = floor_log2(n), half = n / 2;

    rcclx_wait(p, me ^ half, 2, 1);
    rcclx_part_copy(p, RCCLX_IN, me, range_begin(me ^ half, n, 1), RCCLX_SCRATCH, 0, half);
    rcclx_signal(p, 1);
    for (int j = 1; j <= levels; j++) {
        if (j < levels)
            rcclx_wait(p, me ^ n >> (j + 1), j + 2, 1);
        halve(p, n, me, j, j == levels);
        rcclx_signal(p, j + 1);
    }
}

/* --- all-gather ----------------------------------------------------------- */

/* Blocks from..from+n in a circle of all blocks, to OUT and perhaps my slots. */
static void take(rcclx_plan *p, int peer, int slot, int nblk, int block, int to_slot)
{
    rcclx_part_copy(p, RCCLX_SCRATCH, peer, slot, RCCLX_OUT, block, nblk);
    if (to_slot >= 0)
        rcclx_dst(p, RCCLX_SCRATCH, p->shape.rank, to_slot);
}

static void all_gather(rcclx_plan *p, int n, int me)
{
    for (int j = 0; 1 << j < n; j++)
        rcclx_wait(p, (me - (1 << j) + n) % n, j + 2, 1);
    rcclx_part_copy(p, RCCLX_IN, me, 0, RCCLX_SCRATCH, 0, 1);
    rcclx_dst(p, RCCLX_OUT, me, me);
    rcclx_signal(p, 1);
    for (int j = 0; 1 << j < n; j++) {
        const int have = 1 << j, peer = (me + have) % n;
        const int want = have < n - have ? have : n - have;
        const int head = want < n - peer ? want : n - peer;
        const bool last = 2 * have >= n;
        rcclx_wait(p, peer, j + 1, 0);
        take(p, peer, 0, head, peer, last ? -1 : have);
        if (head < want)
            take(p, peer, head, want - head, 0, last ? -1 : have + head);
        rcclx_signal(p, j + 2);
    }
}

static bool can(const rcclx_shape *s)
{
    return s->kind != RCCLX_REDUCE_SCATTER || (s->nranks & (s->nranks - 1)) == 0;
}

static void build(rcclx_plan *p, const rcclx_shape *s)
{
    const bool split = s->kind == RCCLX_ALL_REDUCE;

    rcclx_plan_init(p, s, "doubling", split ? RCCLX_CUT_SPLIT : RCCLX_CUT_EVEN, split ? 1 : s->nranks);
    p->pieced = true;
    rcclx_part_slots(p, 1);
    rcclx_wait(p, RCCLX_ALL, 0, 0);
    if (s->nranks == 1) {
        rcclx_part_alone(p);
        return;
    }
    switch (s->kind) {
    case RCCLX_ALL_REDUCE:     all_reduce(p, s->nranks, s->rank); break;
    case RCCLX_REDUCE_SCATTER: reduce_scatter(p, s->nranks, s->rank); break;
    case RCCLX_ALL_GATHER:     all_gather(p, s->nranks, s->rank); break;
    default: p->status = RCCLX_UNSUPPORTED;
    }
}

const rcclx_algo rcclx_algo_doubling = {
    .name  = "doubling",
    .about = "recursive doubling and halving: log2(n) exchanges",
    .kinds = 1u << RCCLX_ALL_REDUCE | 1u << RCCLX_REDUCE_SCATTER | 1u << RCCLX_ALL_GATHER,
    .can   = can,
    .build = build,
};
