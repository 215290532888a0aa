#ifndef RCCLX_EXEC_LANE_H
#define RCCLX_EXEC_LANE_H

/* The step interpreter of the host: carries out a plan's steps for one lane of one rank.
 * What moves data is behind rcclx_view.move. GPUs have one of their own, which spins
 * where this one returns (device/kernels/run.h).
 *
 *   lane 0   piece 0, 2, 4 ...   each piece: step 0, 1, 2 ... of the plan
 *   lane 1   piece 1, 3, 5 ...
 *
 * Nothing blocks: a step that is not ready returns, and the caller comes back. */

#include "device/kernels/gp.h"
#include "exec/exec.h"

/* Counter values: operation, piece and phase in one number that only grows. */
#define RCCLX_MARK(seq, piece, phase) (((uint64_t)(seq) << 32) + ((uint64_t)(piece) << 10) + (uint64_t)(phase))
enum { RCCLX_MARK_PIECES = 1 << 22 }; /* an operation has fewer; one more would count as the next operation */

typedef struct {
    uint32_t pc;       /* next step */
    uint32_t turn;     /* the lane's how-manieth piece */
    bool     finished;
    size_t  *filled;   /* bytes that a step has put last in each slot of mine; NULL: nobody asks */
    rcclx_counter *counter[RCCLX_MAX_RANKS]; /* every rank's, of this lane */
    char    *scratch[RCCLX_MAX_RANKS];
} rcclx_lane;

typedef enum { RCCLX_LANE_DONE, RCCLX_LANE_WAITS, RCCLX_LANE_FAILED } rcclx_lane_state;

/* An operation as its lanes see it, addresses resolved. NULL in in/out: the
 * buffer has no address here, only a place that get and put understand. */
typedef struct rcclx_view rcclx_view;
struct rcclx_view {
    const rcclx_plan *plan;
    uint64_t seq;
    size_t   count, size;           /* elements, bytes an element */
    size_t   slot_count;            /* elements that a scratch slot takes: the length of a piece */
    size_t   slot_bytes;            /* from one slot to the next */
    uint32_t npieces, nlanes;
    int      rank, nranks;
    int      waiting;               /* the peer a lane waits for, RCCLX_ALL none */
    char    *in[RCCLX_MAX_RANKS], *out[RCCLX_MAX_RANKS];
    char    *slot[RCCLX_MAX_RANKS]; /* LL: data of this operation */
    const size_t *scounts, *sdispls, *rcounts, *rdispls; /* TABLE: mine; and the peers' rows for me: */
    size_t   peer_displ[RCCLX_MAX_RANKS];
    rcclx_lane lane[RCCLX_NLANES];

    /* The rank's header, with its data: its input, or what its slot has been filled with. */
    void (*publish)(rcclx_view *v, bool filled);
    /* Header of a peer: 1 here and right, 0 not yet, -1 wrong. */
    int  (*header_of)(rcclx_view *v, int peer);
    /* COPY or REDUCE of one block: 0, or -1 (failed). */
    int  (*move)(rcclx_view *v, const rcclx_lane *l, const rcclx_step *s, uint32_t piece, int block);
    /* Wake who sleeps, after a signal; and send what it speaks for to far ranks. */
    void (*signalled)(rcclx_view *v, const rcclx_lane *l, uint64_t mark);
};

GP_DEV uint32_t lane_piece(const rcclx_view *v, int l)
{
    return v->lane[l].turn * v->nlanes + (uint32_t)l;
}

GP_DEV int lane_wait_one(rcclx_view *v, const rcclx_lane *l, int peer, uint64_t mark, int phase)
{
    const int here = phase == 0 ? v->header_of(v, peer) : gp_reached(&l->counter[peer]->value, mark);

    if (here != 1)
        v->waiting = peer;
    return here;
}

GP_DEV int lane_wait(rcclx_view *v, const rcclx_lane *l, const rcclx_step *s, uint32_t piece)
{
    const bool previous = s->lag == RCCLX_LAG_PREVIOUS;

    if (previous ? piece < v->nlanes : s->lag == RCCLX_LAG_END && piece + v->nlanes < v->npieces)
        return 1;
    const uint64_t mark = RCCLX_MARK(v->seq, previous ? piece - v->nlanes : piece, s->phase);

    if (s->peer != RCCLX_ALL)
        return lane_wait_one(v, l, s->peer, mark, s->phase);
    for (int r = 0; r < v->nranks; r++) {
        const int here = r == v->rank ? 1 : lane_wait_one(v, l, r, mark, s->phase);
        if (here != 1)
            return here;
    }
    return 1;
}

/* Sources of an LL step are ready when their headers are. */
GP_DEV int lane_sources(rcclx_view *v, const rcclx_step *s)
{
    for (int i = 0; i < s->nsrc; i++) {
        const rcclx_ref *ref = &v->plan->refs[s->first + (uint32_t)i];
        const int here = ref->buf != RCCLX_SCRATCH || ref->rank == v->rank ? 1 : v->header_of(v, ref->rank);
        if (here != 1) {
            v->waiting = ref->rank;
            return here;
        }
    }
    return 1;
}

GP_DEV int lane_move(rcclx_view *v, const rcclx_lane *l, const rcclx_step *s, uint32_t piece)
{
    const bool fills = s->proto == RCCLX_PROTO_LL && v->plan->refs[s->first + s->nsrc].buf == RCCLX_SCRATCH;

    if (fills && s->op == RCCLX_STEP_COPY) {
        v->publish(v, false);
        return 1;
    }
    if (s->proto == RCCLX_PROTO_LL) {
        const int here = lane_sources(v, s);
        if (here != 1)
            return here;
    }
    for (int b = 0; b < s->nblk; b++)
        if (v->move(v, l, s, piece, b))
            return -1;
    if (fills)
        v->publish(v, true);
    return 1;
}

GP_DEV rcclx_lane_state rcclx_lane_run(rcclx_view *v, int index)
{
    rcclx_lane *l = &v->lane[index];

    for (uint32_t piece; (piece = lane_piece(v, index)) < v->npieces; l->turn++, l->pc = 0) {
        for (; l->pc < v->plan->nsteps; l->pc++) {
            const rcclx_step *s = &v->plan->steps[l->pc];
            int ready = 1;
            if (s->op == RCCLX_STEP_WAIT) {
                ready = lane_wait(v, l, s, piece);
            } else if (s->op == RCCLX_STEP_SIGNAL) {
                const uint64_t mark = RCCLX_MARK(v->seq, piece, s->phase);
                gp_publish(&l->counter[v->rank]->value, mark);
                v->signalled(v, l, mark);
            } else {
                ready = lane_move(v, l, s, piece);
            }
            if (ready != 1)
                return ready ? RCCLX_LANE_FAILED : RCCLX_LANE_WAITS;
        }
    }
    l->finished = true;
    return RCCLX_LANE_DONE;
}

#endif
