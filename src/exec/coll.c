/* A collective, from call to result.
 *
 *   BEGIN    number it; is it small enough for one exchange?
 *      |  small                                   larger
 *      |    v                                       v
 *      |  RUN the slot plan: its first step     PUBLISH the header: where my buffers are
 *      |  publishes header and data together    OPEN: read every peer's header, check that all call
 *      |                                              the same, find a way to their buffers
 *      |                                        choose a plan by what the headers say; RUN it
 *      v
 *   FINISH   tell the peers (done), which frees slots
 *
 * What the headers say is known to all ranks alike, so all choose the same plan,
 * though no rank knew of the others' buffers before. Headers live in a ring of
 * RCCLX_NSLOTS; a rank writes entry e again only when all peers have finished
 * operation e - RCCLX_NSLOTS (credit). Nothing here blocks: a state that cannot
 * go on returns AGAIN. */
#include "exec/mirror.h"
#include "exec/runner.h"

#include "base/log.h"
#include "base/mem.h"
#include "device/reduce.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { NEW, CREDIT, MEET, PUBLISH, OPEN, RUN };
enum { CLAIM_BYTES = 1024 };

/* Bytes of the buffers a rank passes to a collective. */
size_t rcclx_op_in_bytes(const rcclx_op *op, int nranks, int rank)
{
    const size_t each = op->count * rcclx_type_size(op->type);

    switch (op->kind) {
    case RCCLX_REDUCE_SCATTER:
    case RCCLX_ALL_TO_ALL: return each * (size_t)nranks;
    case RCCLX_SCATTER:    return rank == op->root ? each * (size_t)nranks : 0;
    case RCCLX_BROADCAST:  return rank == op->root ? each : 0;
    default:               return each;
    }
}

size_t rcclx_op_out_bytes(const rcclx_op *op, int nranks, int rank)
{
    const size_t each = op->count * rcclx_type_size(op->type);

    switch (op->kind) {
    case RCCLX_ALL_GATHER:
    case RCCLX_ALL_TO_ALL: return each * (size_t)nranks;
    case RCCLX_GATHER:     return rank == op->root ? each * (size_t)nranks : 0;
    case RCCLX_REDUCE_TO:  return rank == op->root ? each : 0;
    default:               return each;
    }
}

/* Bytes from the first to the last element any peer takes or gives. */
static size_t table_span(const size_t *counts, const size_t *displs, int n, size_t size)
{
    size_t span = 0;

    for (int r = 0; r < n; r++)
        if (counts[r] && displs[r] + counts[r] > span)
            span = displs[r] + counts[r];
    return span * size;
}

/* --- the peers' headers ------------------------------------------------------ */

static int header_of(rcclx_view *v, int r)
{
    rcclx_runner *run = (rcclx_runner *)v;
    rcclx_header *h = rcclx_header_of(run->team, r, run->seq);

    if (__builtin_expect(run->strangers && run->strangers >> r & 1, 0))
        return 1;
    if (!gp_reached(&h->seq, run->seq))
        return 0;
    const bool sized = run->task->op.kind != RCCLX_ALL_TO_ALLV;
    if (__builtin_expect(h->sig != run->sig || (sized && h->count != run->task->op.count) ||
                         h->history != (uint16_t)run->history, 0)) {
        run->failure = rcclx_mismatch(run->team, r, run->seq);
        return -1;
    }
    run->scalar[r] = h->scalar;
    v->slot[r] = h->flags & RCCLX_HDR_DATA ? (char *)run->team->area[r]->slot[run->seq % RCCLX_NSLOTS] : (char *)h->data;
    return 1;
}

/* Where a buffer of mine can be found by the peers. */
static void describe(const rcclx_runner *run, const void *buf, size_t nbytes, bool needed, uint32_t flag, rcclx_header *h,
                     uint64_t *where)
{
    *where = (uint64_t)(uintptr_t)buf;
    if (!needed || !nbytes)
        h->flags |= flag;
    else if (!run->team->one_process && run->team->arenas && rcclx_arena_find(buf, nbytes, where) == RCCLX_MEM_ARENA)
        h->flags |= flag;
    else
        *where = (uint64_t)(uintptr_t)buf;
}

static bool others_read_mine(const rcclx_op *op, int rank)
{
    return (op->kind != RCCLX_BROADCAST && op->kind != RCCLX_SCATTER) || rank == op->root;
}

static bool others_write_mine(const rcclx_op *op, int rank)
{
    return op->kind == RCCLX_ALL_REDUCE || op->kind == RCCLX_BROADCAST ||
           ((op->kind == RCCLX_REDUCE_TO || op->kind == RCCLX_GATHER) && rank == op->root);
}

/* My rows of an all-to-all-v, for the peers: offset and bytes of what each gets. */
static void fill_table(rcclx_runner *run)
{
    const rcclx_op *op = &run->task->op;
    rcclx_area *a = run->team->area[run->team->rank];
    const size_t size = run->view.size;

    run->largest = 0;
    for (int r = 0; r < run->team->nranks; r++) {
        a->fifo[r].table[run->seq & 1][0] = op->sdispls[r];
        a->fifo[r].table[run->seq & 1][1] = op->scounts[r];
        if (op->scounts[r] * size > run->largest)
            run->largest = op->scounts[r] * size;
    }
}

static bool overlap(const rcclx_runner *run)
{
    const char *in = run->task->op.in, *out = run->task->op.out;

    return in && out && in < out + run->out_bytes && out < in + run->in_bytes;
}

static void put_data(rcclx_runner *run, rcclx_header *h)
{
    if (!run->in_bytes)
        return;
    if (run->in_bytes <= RCCLX_INLINE && !run->opened) {
        memcpy(h->data, run->task->op.in, run->in_bytes);
        return;
    }
    unsigned char *slot = run->team->area[run->team->rank]->slot[run->seq % RCCLX_NSLOTS];
    h->flags |= RCCLX_HDR_DATA;
    rcclx_copy(slot, run->task->op.in, run->in_bytes, 0);
    gp_demote(slot, run->in_bytes);
}

/* QUICK: the header's cache line may hold the data itself; FILLED: the slot holds them already. */
typedef enum { OPENLY, QUICK, FILLED } manner;

static void publish_header(rcclx_runner *run, manner how)
{
    const rcclx_op *op = &run->task->op;
    rcclx_team *t = run->team;
    rcclx_header *h = rcclx_header_of(t, t->rank, run->seq);

    h->sig = run->sig;
    h->flags = 0;
    h->history = (uint16_t)run->history;
    h->count = op->kind == RCCLX_ALL_TO_ALLV ? run->largest : op->count;
    h->scalar = op->scalar;
    if (how == FILLED) {
        h->flags |= RCCLX_HDR_DATA;
    } else if (how == QUICK) {
        if (others_read_mine(op, t->rank))
            put_data(run, h);
    } else {
        uint64_t in, out;
        describe(run, op->in, run->in_bytes, others_read_mine(op, t->rank), RCCLX_HDR_IN_ARENA, h, &in);
        describe(run, op->out, run->out_bytes, others_write_mine(op, t->rank), RCCLX_HDR_OUT_ARENA, h, &out);
        const uint32_t both = RCCLX_HDR_IN_ARENA | RCCLX_HDR_OUT_ARENA;
        h->in = in;
        h->out = out;
        h->in_bytes = run->in_bytes;
        h->out_bytes = run->out_bytes;
        if (overlap(run))
            h->flags |= RCCLX_HDR_OVERLAP;
        run->opened = true;
        if (run->with_data && !t->mirror && (t->algo[0] || (!t->one_process && (h->flags & both) != both)))
            put_data(run, h);
    }
    run->published = true;
    if (t->mirror)
        rcclx_far_header(run, h, how == FILLED ? run->out_bytes : run->in_bytes);
    run->my_flags = h->flags; /* reading them back later would fetch the line again */
    gp_publish(&h->seq, run->seq);
    gp_publish(&t->area[t->rank]->ident.path, (uint64_t)run->history << 32 | (uint32_t)run->seq);
    rcclx_team_ring(t);
    /* the next operation's lines were last read by the peers; have them back before it starts */
    gp_claim(rcclx_header_of(t, t->rank, run->seq + 1), sizeof(*h));
    if (run->my_flags & RCCLX_HDR_DATA)
        gp_claim(t->area[t->rank]->slot[(run->seq + 1) % RCCLX_NSLOTS], run->in_bytes < CLAIM_BYTES ? run->in_bytes : CLAIM_BYTES);
}

static void publish(rcclx_view *v, bool filled)
{
    rcclx_runner *run = (rcclx_runner *)v;

    if (!run->published)
        publish_header(run, filled ? FILLED : QUICK);
}

static void signalled(rcclx_view *v, const rcclx_lane *l, uint64_t mark)
{
    rcclx_runner *run = (rcclx_runner *)v;
    rcclx_team *t = run->team;

    rcclx_team_ring(t);
    if (!t->mirror)
        return;
    const rcclx_mark m = rcclx_mark_of(t, &l->counter[t->rank]->value, mark);
    for (uint32_t i = run->routes->at[l->pc]; i < run->routes->at[l->pc + 1]; i++) {
        const rcclx_delivery *d = &run->routes->deliveries[i];
        const uint16_t *slot = &run->routes->slots[d->first];
        int n = d->nslots;
        while (n && !l->filled[slot[n - 1]])
            n--; /* the end of a block that is shorter than others */
        for (int k = 0; k < n - 1; k++)
            if (l->filled[slot[k]])
                rcclx_mirror_push(t, d->rank, l->scratch[t->rank] + slot[k] * v->slot_bytes, l->filled[slot[k]], NULL, 0);
        if (n)
            rcclx_mirror_push(t, d->rank, l->scratch[t->rank] + slot[n - 1] * v->slot_bytes, l->filled[slot[n - 1]], &m, 1);
        else
            rcclx_mirror_push(t, d->rank, NULL, 0, &m, 1);
    }
}

/* --- states ------------------------------------------------------------------- */

static void begin(rcclx_task *task)
{
    rcclx_team *t = task->op.team;
    rcclx_runner *run = t->runner;
    rcclx_view *v = &run->view;
    const rcclx_op *op = &task->op;
    const size_t size = rcclx_type_size(op->type);

    run->task = task;
    run->seq = ++t->seq;
    run->sig = rcclx_signature(op);
    run->history = rcclx_history(run->history, run->sig, op->kind == RCCLX_ALL_TO_ALLV ? 0 : op->count);
    run->published = run->opened = false;
    run->scalar[t->rank] = op->scalar;
    run->open_next = 0;
    run->failure = RCCLX_OK;
    run->streaming = run->meets = false;
    run->ahead = NULL;
    run->talk = NULL;
    run->strangers = 0;
    v->seq = run->seq;
    v->count = op->count;
    v->size = size;
    v->waiting = RCCLX_ALL;
    v->npieces = v->nlanes = 1;
    v->slot_count = v->slot_bytes = 0;
    v->slot[t->rank] = (char *)t->area[t->rank]->slot[run->seq % RCCLX_NSLOTS];
    if (op->kind == RCCLX_ALL_TO_ALLV) {
        run->in_bytes = table_span(op->scounts, op->sdispls, t->nranks, size);
        run->out_bytes = table_span(op->rcounts, op->rdispls, t->nranks, size);
        v->scounts = op->scounts;
        v->sdispls = op->sdispls;
        v->rcounts = op->rcounts;
        v->rdispls = op->rdispls;
    } else {
        run->in_bytes = rcclx_op_in_bytes(op, t->nranks, t->rank);
        run->out_bytes = rcclx_op_out_bytes(op, t->nranks, t->rank);
    }
    if (t->mirror && op->kind == RCCLX_ALL_TO_ALLV) /* two tables, so that all must know soon how far each is */
        rcclx_mirror_count(t, RCCLX_ALL, &t->area[t->rank]->done.value, run->seq - 1);
    rcclx_team_now(t, RCCLX_NOW(op->kind, op->root, task->grouped));
}

/* Have all peers finished the operation whose slot (or table, of which there are two) this one takes? */
static bool has_credit(rcclx_runner *run)
{
    rcclx_team *t = run->team;
    const uint64_t need = run->seq - (run->task->op.kind == RCCLX_ALL_TO_ALLV ? 2 : RCCLX_NSLOTS);

    if ((int64_t)(t->credit - need) >= 0)
        return true;
    uint64_t least = run->seq;
    for (int r = 0; r < t->nranks; r++) {
        const uint64_t done = r == t->rank ? run->seq : gp_peek(&t->area[r]->done.value);
        if ((int64_t)(done - least) < 0) {
            least = done;
            run->view.waiting = r;
        }
    }
    t->credit = least;
    return (int64_t)(least - need) >= 0;
}

/* Bytes of the largest buffer of any rank that goes through a slot: the same on all ranks. */
static size_t slot_bytes(const rcclx_op *op, int nranks)
{
    const size_t each = op->count * rcclx_type_size(op->type);
    const bool times_n = op->kind == RCCLX_REDUCE_SCATTER || op->kind == RCCLX_ALL_TO_ALL || op->kind == RCCLX_SCATTER;

    return times_n ? each * (size_t)nranks : each;
}

static void start_lanes(rcclx_runner *run, const rcclx_plan *plan)
{
    rcclx_view *v = &run->view;
    rcclx_team *t = run->team;

    size_t *filled;

    v->plan = plan;
    run->routes = rcclx_pick_routes(plan, &filled);
    if (plan->pieced) {
        const size_t line = 64 / v->size, unit = 512; /* low precision: elements */
        size_t largest = run->largest / v->size;
        size_t begin;
        if (plan->cut != RCCLX_CUT_TABLE)
            rcclx_plan_block(plan, v->count, v->size, 0, &begin, &largest);
        const size_t most = RCCLX_LANE_BYTES / (plan->nslots ? plan->nslots : 1u);
        size_t slot = t->chunk / plan->nblocks;
        if (slot > most || largest / (slot / 64 * line) >= RCCLX_MARK_PIECES - 1)
            slot = most / 64 * 64;
        v->slot_count = slot / 64 * line;
        v->slot_bytes = v->slot_count * v->size;
        if (plan->shape.coded) {
            v->slot_count = v->slot_count < unit ? unit : v->slot_count / unit * unit;
            v->slot_count = v->slot_count < rcclx_codec_fits(most) ? v->slot_count : rcclx_codec_fits(most);
            v->slot_bytes = most;
        }
        v->npieces = (uint32_t)((largest + v->slot_count - 1) / v->slot_count);
        v->nlanes = v->npieces > 1 ? RCCLX_NLANES : 1;
    }
    if (!plan->pieced && plan->nslots)
        v->slot_bytes = RCCLX_LANE_BYTES / plan->nslots / 64 * 64;
    for (uint32_t l = 0; l < v->nlanes; l++) {
        v->lane[l].pc = v->lane[l].turn = 0;
        v->lane[l].finished = false;
        v->lane[l].filled = filled ? filled + l * (plan->nslots + 1u) : NULL;
    }
}

/* All headers are in: find the peers' buffers, choose, and set the lanes up. */
static void reach_peers(rcclx_runner *run)
{
    rcclx_team *t = run->team;
    rcclx_view *v = &run->view;
    const rcclx_op *op = &run->task->op;

    for (int r = 0; r < t->nranks; r++) {
        const rcclx_header *h = rcclx_header_of(run->team, r, run->seq);
        run->place_in[r] = h->in;
        run->place_out[r] = h->out;
        v->in[r] = v->out[r] = NULL;
        if (r == t->rank) {
            v->in[r] = (char *)(uintptr_t)op->in;
            v->out[r] = op->out;
            continue;
        }
        if (rcclx_is_far(t, r))
            continue;
        if (h->in_bytes && others_read_mine(op, r))
            v->in[r] = rcclx_peer_map(&t->peer[r], h->in, h->flags & RCCLX_HDR_IN_ARENA, h->in_bytes);
        if (h->out_bytes && others_write_mine(op, r))
            v->out[r] = rcclx_peer_map(&t->peer[r], h->out, h->flags & RCCLX_HDR_OUT_ARENA, h->out_bytes);
    }
}

/* An all-to-all-v takes the peers' rows for this rank, and checks them. */
static rcclx_status read_tables(rcclx_runner *run)
{
    rcclx_team *t = run->team;
    rcclx_view *v = &run->view;
    char text[RCCLX_ERROR_TEXT];

    for (int r = 0; r < t->nranks; r++) {
        const uint64_t *row = t->area[r]->fifo[t->rank].table[run->seq & 1];
        const uint64_t span = r == t->rank ? run->in_bytes / v->size : rcclx_header_of(t, r, run->seq)->in_bytes / v->size;
        v->peer_displ[r] = row[0];
        if (rcclx_header_of(t, r, run->seq)->count > run->largest)
            run->largest = rcclx_header_of(t, r, run->seq)->count;
        if (row[1] == v->rcounts[r] && (!row[1] || (row[0] <= span && row[1] <= span - row[0])))
            continue;
        snprintf(text, sizeof(text), "rank %d: AlltoAllv (collective number %llu): expects %zu elements from rank %d, which "
                 "sends %llu; recvcounts here must equal sendcounts there", t->rank, (unsigned long long)run->seq,
                 v->rcounts[r], r, (unsigned long long)row[1]);
        return rcclx_team_break(t, RCCLX_MISMATCH, text);
    }
    return RCCLX_OK;
}

/* An integer average is exact only if it is rounded at the end. Short floats would be rounded once a machine, and overflow
 * on the way to a sum or average that does not; who asks for an algorithm by name may have that. */
bool rcclx_rounds_once(const rcclx_runner *run)
{
    const rcclx_op *op = &run->task->op;
    const bool narrow = op->type == RCCLX_F16 || op->type == RCCLX_BF16 || op->type == RCCLX_F8E4M3 || op->type == RCCLX_F8E5M2;

    if (op->op == RCCLX_AVG && op->type <= RCCLX_U64)
        return true;
    return narrow && run->team->mirror && !run->team->algo[0] && op->op != RCCLX_MIN && op->op != RCCLX_MAX;
}

static rcclx_status open_and_choose(rcclx_runner *run)
{
    rcclx_team *t = run->team;
    rcclx_view *v = &run->view;
    const rcclx_op *op = &run->task->op;
    uint32_t all = ~0u, any = 0;
    bool one = t->one_process;

    for (int r = 0; r < t->nranks; r++) {
        const uint32_t flags = r == t->rank ? run->my_flags : rcclx_header_of(t, r, run->seq)->flags;
        any |= flags;
        all &= flags | (others_read_mine(op, r) ? 0 : RCCLX_HDR_DATA);
    }
    if (op->kind == RCCLX_ALL_TO_ALLV)
        RCCLX_TRY(read_tables(run));
    const bool together = !t->mirror; /* far buffers are reached by nobody */
    const unsigned facts = (one || (together && all & RCCLX_HDR_IN_ARENA) ? RCCLX_FACT_IN_MAPPED : 0) |
                           (one || (together && all & RCCLX_HDR_OUT_ARENA) ? RCCLX_FACT_OUT_MAPPED : 0) |
                           ((together && t->cma) || one ? RCCLX_FACT_CMA : 0) | (any & RCCLX_HDR_OVERLAP ? 0 : RCCLX_FACT_APART) |
                           (rcclx_rounds_once(run) ? RCCLX_FACT_ONE_ROUND : 0);
    const size_t nbytes = op->kind == RCCLX_ALL_TO_ALLV ? run->largest : op->count * v->size;
    const rcclx_plan *plan = run->ahead ? run->ahead
                           : op->codec  ? rcclx_pick_coded(run->pick, op->kind, op->root)
                                        : rcclx_pick_plan(run->pick, op->kind, op->root, nbytes, facts,
                                                          run->with_data && (all & RCCLX_HDR_DATA));
    if (!plan)
        return rcclx_team_break(t, RCCLX_NOMEM, "out of memory for a plan");
    reach_peers(run);
    run->streaming = run->in_bytes + run->out_bytes >= t->machine.cache_bytes;
    start_lanes(run, plan);
    if (v->npieces >= RCCLX_MARK_PIECES)
        return rcclx_team_break(t, RCCLX_USAGE, "the message has too many pieces to be staged; split it, or let the kernel "
                                "copy between the processes (RCCLX_CMA)");
    return RCCLX_OK;
}

static rcclx_status run_lanes(rcclx_runner *run)
{
    rcclx_view *v = &run->view;
    bool finished = true;
    uint64_t steps = 1;

    for (uint32_t l = 0; l < v->nlanes; l++) {
        const rcclx_lane_state s = v->lane[l].finished ? RCCLX_LANE_DONE : rcclx_lane_run(v, (int)l);
        if (s == RCCLX_LANE_FAILED)
            return run->failure;
        finished &= s == RCCLX_LANE_DONE;
        steps += (uint64_t)v->lane[l].turn * v->plan->nsteps + v->lane[l].pc;
    }
    run->task->moved = steps;
    return finished ? RCCLX_OK : RCCLX_AGAIN;
}

static rcclx_status finish(rcclx_runner *run, rcclx_status s)
{
    rcclx_team *t = run->team;
    const rcclx_op *op = &run->task->op;

    if (s == RCCLX_OK && op->bias && op->count) {
        const void *src[2] = { op->out, op->bias };
        void *dst[1] = { op->out };
        const rcclx_reduce_args a = { .type = op->type, .op = op->op == RCCLX_AVG || op->op == RCCLX_PREMUL ? RCCLX_SUM : op->op,
                                      .nsrc = 2, .ndst = 1, .src = src, .dst = dst, .count = op->count };
        rcclx_reduce(&a);
    }
    if (s != RCCLX_OK)
        s = rcclx_task_fail(run->task, s);
    if (s == RCCLX_OK) {
        gp_publish(&t->area[t->rank]->done.value, run->seq);
        rcclx_team_ring(t);
    }
    rcclx_team_now(t, 0);
    run->task = NULL;
    return s;
}

/* One exchange through slots, or what begins with it. */
static rcclx_status run_small(rcclx_runner *run, const rcclx_plan *plan)
{
    const rcclx_op *op = &run->task->op;
    rcclx_view *v = &run->view;

    v->in[v->rank] = (char *)(uintptr_t)op->in;
    v->out[v->rank] = op->out;
    if (!plan->nslots || !rcclx_plan_fills(plan))
        publish_header(run, QUICK); /* with the data, if this rank has any to put */
    const int done = plan->nslots ? 0 : rcclx_runner_once(run, plan);
    if (done)
        return done > 0 ? RCCLX_OK : run->failure;
    start_lanes(run, plan);
    run->task->state = RUN;
    return run_lanes(run);
}

static rcclx_status advance(rcclx_runner *run)
{
    rcclx_team *t = run->team;
    rcclx_task *task = run->task;
    const rcclx_op *op = &task->op;

    switch (task->state) {
    case CREDIT:
        if (!has_credit(run))
            return RCCLX_AGAIN;
        run->with_data = op->kind != RCCLX_ALL_TO_ALLV && !op->codec && slot_bytes(op, t->nranks) <= t->slot_max;
        if (t->mirror)
            RCCLX_TRY(rcclx_far_choose(run));
        else if (run->with_data && !t->algo[0] && slot_bytes(op, t->nranks) <= t->quick) {
            const rcclx_plan *plan = rcclx_pick_slot(run->pick, op->kind, op->root);
            return plan ? run_small(run, plan) : rcclx_team_break(t, RCCLX_NOMEM, "out of memory for a plan");
        }
        task->state = MEET; /* fall through */
    case MEET:
        if (run->ahead && !run->ahead->pieced)
            return rcclx_far_met(run) ? run_small(run, run->ahead) : RCCLX_AGAIN;
        if (op->kind == RCCLX_ALL_TO_ALLV)
            fill_table(run);
        task->state = PUBLISH; /* fall through */
    case PUBLISH:
        publish_header(run, OPENLY);
        task->state = OPEN; /* fall through */
    case OPEN:
        for (int r; (r = run->open_next) < t->nranks; run->open_next++) {
            const int here = r == t->rank ? 1 : header_of(&run->view, r);
            if (here == 1)
                continue;
            run->view.waiting = r;
            return here ? run->failure : RCCLX_AGAIN;
        }
        if (!rcclx_far_met(run))
            return RCCLX_AGAIN;
        RCCLX_TRY(open_and_choose(run));
        task->state = RUN; /* fall through */
    default:
        return run_lanes(run);
    }
}

rcclx_status rcclx_coll_poll(rcclx_task *task)
{
    rcclx_runner *run = task->op.team->runner;

    if (task->state == NEW) {
        if (run->task)
            return RCCLX_AGAIN; /* the team's collectives run one after the other */
        begin(task);
        task->state = CREDIT;
    }
    const rcclx_status s = advance(run);
    return s == RCCLX_AGAIN ? s : finish(run, s);
}

int rcclx_coll_waits_for(const rcclx_task *t)
{
    const rcclx_runner *run = t->op.team->runner;

    return run->task == t && run->view.waiting != RCCLX_ALL ? run->view.waiting : -1;
}

/* --- made once a team ----------------------------------------------------------- */

rcclx_status rcclx_runner_create(rcclx_team *t)
{
    rcclx_runner *run = t->runner = RCCLX_NEW(rcclx_runner);

    if (!run)
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: no memory for the executor", t->rank);
    run->team = t;
    run->view.rank = t->rank;
    run->view.nranks = t->nranks;
    run->view.publish = publish;
    run->view.header_of = header_of;
    run->view.move = rcclx_runner_move;
    run->view.signalled = signalled;
    for (int l = 0; l < RCCLX_NLANES; l++)
        for (int r = 0; r < t->nranks; r++) {
            run->view.lane[l].counter[r] = &t->area[r]->lane[l];
            run->view.lane[l].scratch[r] = (char *)t->area[r]->scratch[l];
        }
    void *p = mmap(NULL, RCCLX_BOUNCE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    run->bounce = p == MAP_FAILED ? NULL : p;
    if (!run->bounce)
        return RCCLX_FAIL_ERRNO("rank %d: %d bytes for the bounce buffer", t->rank, RCCLX_BOUNCE_BYTES);
    return rcclx_pick_create(&run->pick, t);
}

void rcclx_runner_destroy(rcclx_team *t)
{
    rcclx_runner *run = t->runner;

    if (!run)
        return;
    if (run->bounce)
        munmap(run->bounce, RCCLX_BOUNCE_BYTES);
    rcclx_pick_destroy(run->pick);
    rcclx_mem_free(run);
    t->runner = NULL;
}
