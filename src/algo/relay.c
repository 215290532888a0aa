/* All-reduce in which nobody reads a peer's memory: for large messages on GPUs, over links
 * on which stores are faster than loads.
 *
 *   one piece, rank 0 of 2: of every rank's four blocks a b c d, a and b are mine to sum
 *     IN c      --copy-->    slot A0 of rank 1                 signal 1
 *     IN d      --copy-->    slot B0 of rank 1                 signal 2
 *     wait 1    IN a + slot A1  --reduce-->  OUT a of all      signal 3
 *     wait 2    IN b + slot B1  --reduce-->  OUT b of all      signal 4
 *
 * Two blocks a rank, so that the link has one to carry while the signal of the other is on
 * its way. A slot is filled again when its owner has summed it, a piece later. A peer writes
 * into OUT until its last signal of the last piece, and only there that is waited for.
 *
 * relay_staged is for an OUT that peers cannot reach: sums are pushed into slots, too, and
 * copied into OUT from there. For a sum it waits for all in every piece, so slots are free
 * when the next begins, and nothing else guards them.
 *
 *     wait 3    slot A'1  --copy-->  OUT c
 *     wait 4    slot B'1  --copy-->  OUT d
 *
 * Its halves serve other collectives, too: reduce-scatter ends with the sums; all-gather,
 * all-to-all and broadcast are pushed once and taken. There a slot is filled again when its
 * owner has said that it has read it. In low precision slots hold codes, and this is the way
 * of every buffer; blocks are not halved, since there are lanes enough to fill the link.
 */
#include "algo/parts.h"

#include "algo/algo.h"

enum { HALVES = 2 };

typedef struct {
    rcclx_plan *p;
    int n, me, halves;
    bool tight;      /* no slot for the owner's own block */
} relay;

static int block_of(const relay *w, int rank, int half)
{
    return w->halves * rank + half;
}

static int filled(int half) { return 1 + half; }
static int summed(int half) { return 1 + HALVES + half; } /* or taken */

/* The slot of `owner` that rank fills. */
static int slot_of(const relay *w, int half, int rank, int owner)
{
    return w->tight ? half * (w->n - 1) + rank - (rank > owner) : half * w->n + rank;
}

/* My contribution to everybody's block, into the slot there that stands for me. */
static void push(const relay *w, int half)
{
    for (int i = 1; i < w->n; i++) {
        const int to = (w->me + i) % w->n;
        rcclx_copy_step(w->p, RCCLX_PROTO_SIMPLE, 1);
        rcclx_src(w->p, RCCLX_IN, w->me, block_of(w, to, half), true);
        rcclx_dst(w->p, RCCLX_SCRATCH, to, slot_of(w, half, w->me, to));
    }
    rcclx_signal(w->p, filled(half));
}

static void open_sum(const relay *w, int half)
{
    rcclx_wait(w->p, RCCLX_ALL, filled(half), RCCLX_LAG_NONE);
    rcclx_reduce_step(w->p, RCCLX_PROTO_SIMPLE, 1, true);
    for (int r = 0; r < w->n; r++)
        if (r == w->me)
            rcclx_src(w->p, RCCLX_IN, r, block_of(w, r, half), true);
        else
            rcclx_src(w->p, RCCLX_SCRATCH, w->me, slot_of(w, half, r, w->me), true);
}

static bool begin(relay *w, rcclx_plan *p, const rcclx_shape *s, const char *name, int phases)
{
    const bool split = s->kind == RCCLX_ALL_REDUCE || s->kind == RCCLX_BROADCAST;

    *w = (relay){ p, s->nranks, s->rank, s->coded ? 1 : HALVES, s->coded };
    rcclx_plan_init(p, s, name, split ? RCCLX_CUT_SPLIT : RCCLX_CUT_EVEN,
                    s->kind == RCCLX_BROADCAST ? w->halves : split ? w->halves * s->nranks : s->nranks);
    if (!split)
        rcclx_plan_parts(p, w->halves);
    if (s->nranks == 1) {
        rcclx_part_alone(p);
        return false;
    }
    const int slots = !s->coded ? s->nranks : s->kind == RCCLX_BROADCAST ? 1 : s->nranks - 1;
    rcclx_part_slots(p, phases * w->halves * slots); /* on every rank, whichever slots it names */
    rcclx_wait(p, RCCLX_ALL, 0, RCCLX_LAG_NONE);
    return true;
}

static void build(rcclx_plan *p, const rcclx_shape *s)
{
    relay w;

    if (!begin(&w, p, s, "relay", 1))
        return;
    for (int half = 0; half < w.halves; half++) {
        rcclx_wait(p, RCCLX_ALL, summed(half), RCCLX_LAG_PREVIOUS);
        push(&w, half);
    }
    for (int half = 0; half < w.halves; half++) {
        open_sum(&w, half);
        for (int i = 0; i < w.n; i++)
            rcclx_dst(p, RCCLX_OUT, (w.me + i) % w.n, block_of(&w, w.me, half));
        rcclx_signal_credit(p, summed(half));
    }
    rcclx_wait(p, RCCLX_ALL, summed(w.halves - 1), RCCLX_LAG_END);
}

/* --- through scratch ------------------------------------------------------------ */

/* What every other rank has put into its slot of this half, into OUT. */
static void take(const relay *w, int half, int phase)
{
    for (int i = 1; i < w->n; i++) {
        const int from = (w->me + i) % w->n;
        rcclx_part_copy(w->p, RCCLX_SCRATCH, w->me, slot_of(w, phase * w->halves + half, from, w->me), RCCLX_OUT, block_of(w, from, half), 1);
    }
}

static void all_reduce(const relay *w)
{
    for (int half = 0; half < w->halves; half++)
        push(w, half);
    for (int half = 0; half < w->halves; half++) {
        open_sum(w, half);
        rcclx_dst(w->p, RCCLX_OUT, w->me, block_of(w, w->me, half));
        for (int i = 1; i < w->n; i++)
            rcclx_dst(w->p, RCCLX_SCRATCH, (w->me + i) % w->n, slot_of(w, w->halves + half, w->me, (w->me + i) % w->n));
        rcclx_signal(w->p, summed(half));
    }
    for (int half = 0; half < w->halves; half++) {
        rcclx_wait(w->p, RCCLX_ALL, summed(half), RCCLX_LAG_NONE);
        take(w, half, 1);
    }
}

static void reduce_scatter(const relay *w)
{
    for (int half = 0; half < w->halves; half++) {
        rcclx_wait(w->p, RCCLX_ALL, summed(half), RCCLX_LAG_PREVIOUS);
        push(w, half);
    }
    for (int half = 0; half < w->halves; half++) {
        open_sum(w, half);
        rcclx_dst(w->p, RCCLX_OUT, w->me, half);
        rcclx_signal_credit(w->p, summed(half));
    }
}

/* One block for everybody, me too. one: it is the only one of its half, in slot `half` of all. */
static void push_to_all(const relay *w, int half, int block, bool one)
{
    rcclx_wait(w->p, RCCLX_ALL, summed(half), RCCLX_LAG_PREVIOUS);
    rcclx_copy_step(w->p, RCCLX_PROTO_SIMPLE, 1);
    rcclx_src(w->p, RCCLX_IN, w->me, half, true);
    for (int i = 1; i < w->n; i++)
        rcclx_dst(w->p, RCCLX_SCRATCH, (w->me + i) % w->n, one ? half : slot_of(w, half, w->me, (w->me + i) % w->n));
    rcclx_dst(w->p, RCCLX_OUT, w->me, block);
    rcclx_signal(w->p, filled(half));
}

static void all_gather(const relay *w)
{
    for (int half = 0; half < w->halves; half++)
        push_to_all(w, half, block_of(w, w->me, half), false);
    for (int half = 0; half < w->halves; half++) {
        rcclx_wait(w->p, RCCLX_ALL, filled(half), RCCLX_LAG_NONE);
        take(w, half, 0);
        rcclx_signal_credit(w->p, summed(half));
    }
}

static void all_to_all(const relay *w)
{
    for (int half = 0; half < w->halves; half++) {
        rcclx_wait(w->p, RCCLX_ALL, summed(half), RCCLX_LAG_PREVIOUS);
        push(w, half);
    }
    for (int half = 0; half < w->halves; half++)
        rcclx_part_copy(w->p, RCCLX_IN, w->me, block_of(w, w->me, half), RCCLX_OUT, block_of(w, w->me, half), 1);
    for (int half = 0; half < w->halves; half++) {
        rcclx_wait(w->p, RCCLX_ALL, filled(half), RCCLX_LAG_NONE);
        take(w, half, 0);
        rcclx_signal_credit(w->p, summed(half));
    }
}

static void broadcast(const relay *w, int root)
{
    for (int half = 0; half < w->halves; half++) {
        if (w->me == root) {
            push_to_all(w, half, half, true);
            continue;
        }
        rcclx_wait(w->p, root, filled(half), RCCLX_LAG_NONE);
        rcclx_part_copy(w->p, RCCLX_SCRATCH, w->me, half, RCCLX_OUT, half, 1);
        rcclx_signal_credit(w->p, summed(half));
    }
}

static void build_staged(rcclx_plan *p, const rcclx_shape *s)
{
    relay w;

    if (!begin(&w, p, s, "relay_staged", s->kind == RCCLX_ALL_REDUCE ? 2 : 1))
        return;
    switch (s->kind) {
    case RCCLX_ALL_REDUCE:     all_reduce(&w); break;
    case RCCLX_REDUCE_SCATTER: reduce_scatter(&w); break;
    case RCCLX_ALL_GATHER:     all_gather(&w); break;
    case RCCLX_ALL_TO_ALL:     all_to_all(&w); break;
    case RCCLX_BROADCAST:      broadcast(&w, s->root); break;
    default:                   p->status = RCCLX_UNSUPPORTED;
    }
}

const rcclx_algo rcclx_algo_relay = {
    .name  = "relay",
    .about = "GPUs: push contributions into the peers' scratch and sums into their buffers; nothing is read over a link",
    .kinds = 1u << RCCLX_ALL_REDUCE,
    .flags = RCCLX_DEVICE_ONLY | RCCLX_NEEDS_WRITE | RCCLX_HAS_ORDER,
    .build = build,
};

const rcclx_algo rcclx_algo_relay_staged = {
    .name  = "relay_staged",
    .about = "GPUs: the same with everything through scratch; for any buffer, and for low precision",
    .kinds = 1u << RCCLX_ALL_REDUCE | 1u << RCCLX_REDUCE_SCATTER | 1u << RCCLX_ALL_GATHER | 1u << RCCLX_ALL_TO_ALL |
             1u << RCCLX_BROADCAST,
    .flags = RCCLX_DEVICE_ONLY | RCCLX_HAS_ORDER | RCCLX_TAKES_CODED,
    .build = build_staged,
};
