/* Proving a plan on paper: all ranks' plans are run, with symbols in place of data.
 *
 *   rank 0   lane 0   WAIT all 0   COPY IN 1 -> slot 1   SIGNAL 1 ...   piece 0, 2, ..
 *            lane 1   ...                                               piece 1, 3, ..
 *   rank 1   ...
 *
 *   check_time.c     what is known to have happened before what
 *   check_memory.c   what every piece of every block holds; who may touch it when
 *   check_step.c     the steps
 *   check_push.c     slots that others fill, twice used
 *   this file        operations one after the other; what must have come out of each
 *
 * One run is enough. What is known to be ordered does not depend on the order in
 * which lanes happen to run here, and any two accesses that are not ordered are a
 * fault; so every run that the checker accepts has the same outcome.
 *
 * A rank goes on to its next operation as soon as it has finished one, whatever the
 * others do: nothing closes an operation, in here as little as in a program. */
#include "plan/check_world.h"

#include "base/mem.h"

#include <stdarg.h>
#include <string.h>

enum { REPEATS = 3 }; /* one more than LL slots in the ring, and than sets of pushed slots */

bool rcclx_check_nomem(check_world *w)
{
    if (w->status == RCCLX_OK) {
        w->status = RCCLX_NOMEM;
        snprintf(w->why, w->nwhy, "out of memory");
    }
    return false;
}

bool rcclx_check_fail(const check_actor *a, const char *format, ...)
{
    static const char *const words[] = { "copy", "reduce", "signal", "wait" };
    check_world *w = a->w;
    va_list ap;

    if (w->status != RCCLX_OK)
        return false;
    w->status = RCCLX_INTERNAL;
    int n = snprintf(w->why, w->nwhy, "%s %s, operation %d, rank %d", a->op->algo->name,
                     rcclx_kind_word(a->op->shape.kind), a->index, a->rank);
    if (n >= 0 && (size_t)n < w->nwhy && a->lane->pc < a->plan->nsteps && a->lane->piece < a->op->npieces)
        n += snprintf(w->why + n, w->nwhy - (size_t)n, ", piece %d, step %u (%s)", a->lane->piece, a->lane->pc,
                      words[a->plan->steps[a->lane->pc].op & 3]);
    if (n >= 0 && (size_t)n < w->nwhy)
        n += snprintf(w->why + n, w->nwhy - (size_t)n, ": ");
    va_start(ap, format);
    if (n >= 0 && (size_t)n < w->nwhy)
        vsnprintf(w->why + n, w->nwhy - (size_t)n, format, ap);
    va_end(ap);
    return false;
}

static check_actor actor(check_world *w, int rank, int l)
{
    check_rank *r = &w->ranks[rank];
    check_op *op = &w->ops[r->op];

    return (check_actor){ w, op, &op->plans[rank], rank, l, r->op, &r->lane[l] };
}

/* --- what must come out ----------------------------------------------------- */

static bool right_sum(const check_actor *a, const check_value *v, int block)
{
    const uint64_t all = a->w->n == 64 ? ~0ull : (1ull << a->w->n) - 1;
    const int want = a->op->shape.kind == RCCLX_REDUCE_SCATTER ? a->rank * a->plan->parts + block : block;

    if (v->leaf || v->block != want)
        return rcclx_check_fail(a, "OUT block %d holds %s block %d", block, v->leaf ? "an untouched" : "the sum of",
                                v->block);
    if (v->ranks != all)
        return rcclx_check_fail(a, "OUT block %d lacks the contribution of rank %d", block,
                                __builtin_ctzll(all & ~v->ranks));
    if (!v->final)
        return rcclx_check_fail(a, "OUT block %d was never final", block);
    if (a->op->algo->flags & RCCLX_HAS_ORDER && !v->ordered)
        return rcclx_check_fail(a, "OUT block %d was not summed in rank order at once, as promised", block);
    return true;
}

static bool right_copy(const check_actor *a, const check_value *v, int block)
{
    const int parts = a->plan->parts, part = block % parts;
    int from = block / parts, want = part;

    switch (a->op->shape.kind) {
    case RCCLX_BROADCAST: from = a->op->shape.root; want = block; break;
    case RCCLX_SCATTER:   from = a->op->shape.root; want = a->rank * parts + part; break;
    case RCCLX_ALL_GATHER:
    case RCCLX_GATHER:    break;
    default:              want = a->rank * parts + part; /* all-to-all */
    }
    return (v->leaf && v->ranks == 1ull << from && v->block == want) ||
           rcclx_check_fail(a, "OUT block %d should be block %d of rank %d, and is block %d of rank %d", block, want,
                            from, v->block, __builtin_ctzll(v->ranks));
}

/* What all ranks get has the same bits on all: it was summed, and rounded, in the same way. */
static bool same_bits(const check_actor *a, const check_value *v, int block, int piece)
{
    const unsigned alike = 1u << RCCLX_ALL_REDUCE | 1u << RCCLX_ALL_GATHER | 1u << RCCLX_BROADCAST;
    uint64_t *tree = &a->op->trees[block * a->op->npieces + piece];
    const int most = a->op->shape.kind == RCCLX_ALL_REDUCE || a->op->shape.kind == RCCLX_REDUCE_TO ? 2 : 1;

    if (v->coded > most)
        return rcclx_check_fail(a, "OUT block %d went through the codec %d times, not %d", block, v->coded, most);
    if (!(alike >> a->op->shape.kind & 1))
        return true;
    if (!*tree)
        *tree = v->tree;
    return *tree == v->tree || rcclx_check_fail(a, "OUT block %d was summed or rounded in another way than on other ranks", block);
}

static bool right_output(const check_actor *a)
{
    const bool sums = rcclx_kind_reduces(a->op->shape.kind);

    for (int b = 0; b < rcclx_ranks_blocks(a->plan, a->rank, RCCLX_OUT); b++)
        for (int i = 0; i < a->op->npieces; i++) {
            const check_value *v = &a->w->values[rcclx_check_user_atom(a->op, a->rank, RCCLX_OUT, b, i)->value];
            if (v == a->w->values)
                return rcclx_check_fail(a, "OUT block %d, piece %d was not written", b, i);
            if (v->piece != i)
                return rcclx_check_fail(a, "OUT block %d, piece %d holds piece %d", b, i, v->piece);
            if (!(sums ? right_sum : right_copy)(a, v, b) || !same_bits(a, v, b, i))
                return false;
        }
    return true;
}

/* --- operations one after the other -------------------------------------------- */

/* Every rank publishes its header when it starts, unless its LL slot will be it. */
static bool begin(check_world *w, int rank)
{
    check_rank *r = &w->ranks[rank];
    const check_actor a = actor(w, rank, 0);

    rcclx_check_join(w, r->lane[0].clock, r->lane[1].clock);
    rcclx_check_join(w, r->lane[1].clock, r->lane[0].clock);
    r->begun = true;
    r->header = !rcclx_plan_fills(a.plan);
    for (int l = 0; l < CHECK_LANES; l++) {
        r->lane[l].piece = l;
        r->lane[l].pc = 0;
        r->lane[l].next = 0;
    }
    if (!rcclx_check_begin_memory(&a))
        return false;
    for (int l = 0; r->header && l < CHECK_LANES; l++)
        if (!rcclx_check_publish(&a, rcclx_check_mark(r->op, 0, 0), l))
            return false;
    return rcclx_check_tick_on(&a, 0) && rcclx_check_tick_on(&a, 1);
}

/* Where far ranks may still be in what this operation's own headers do not tell of, all finish the one before first. */
static bool all_met(check_world *w, int rank)
{
    check_rank *r = &w->ranks[rank];
    check_lane *lane = &r->lane[0];

    for (int q = 0; w->ops[r->op].meets && q < w->n; q++) {
        if (w->ops->shape.node[q] == w->ops->shape.node[rank])
            continue;
        if (w->ranks[q].op < r->op) {
            lane->waits_for = q;
            return false;
        }
        rcclx_check_join(w, lane->clock, &w->ops[r->op - 1].ends[q * w->nthreads]);
    }
    return true;
}

static bool end(check_world *w, int rank)
{
    check_rank *r = &w->ranks[rank];
    const check_actor a = actor(w, rank, 0);
    const size_t nclock = (size_t)w->nthreads * sizeof(check_tick);

    rcclx_check_join(w, r->lane[0].clock, r->lane[1].clock);
    if (!rcclx_check_end_memory(&a, r->lane[0].clock) || !rcclx_check_all_taken(&a) || !right_output(&a))
        return false;
    memcpy(&a.op->ends[(size_t)rank * (size_t)w->nthreads], r->lane[0].clock, nclock);
    r->op++;
    r->begun = false;
    return rcclx_check_tick_on(&a, 0) && rcclx_check_tick_on(&a, 1);
}

/* Run one lane until it must wait; true when anything was done. */
static bool run_lane(check_world *w, int rank, int l)
{
    const check_actor a = actor(w, rank, l);
    check_lane *lane = a.lane;
    bool any = false;

    for (; lane->piece < a.op->npieces; lane->piece += CHECK_LANES, lane->pc = 0)
        for (; lane->pc < a.plan->nsteps; lane->pc++, any = true)
            if (rcclx_check_step(&a, &a.plan->steps[lane->pc]) != CHECK_MOVED)
                return any;
    return any;
}

static bool run_rank(check_world *w, int rank)
{
    check_rank *r = &w->ranks[rank];
    bool any = false;

    while (r->op < w->nops && w->status == RCCLX_OK) {
        const int npieces = w->ops[r->op].npieces;
        if (!r->begun && (!all_met(w, rank) || !begin(w, rank)))
            return any;
        for (int l = 0; l < CHECK_LANES && w->status == RCCLX_OK; l++)
            any |= run_lane(w, rank, l);
        if (r->lane[0].piece < npieces || r->lane[1].piece < npieces)
            return any;
        if (!end(w, rank))
            return any;
        any = true;
    }
    return any;
}

/* Nobody can go on: follow who waits for whom from the first that is stuck. */
static void tell_deadlock(check_world *w)
{
    int rank = 0, l = 0;

    while (w->ranks[rank].op == w->nops)
        rank++;
    if (w->ranks[rank].lane[0].piece >= w->ops[w->ranks[rank].op].npieces)
        l = 1;
    const check_actor a = actor(w, rank, l);
    const int other = a.lane->waits_for;
    const check_rank *o = &w->ranks[other];
    char more[80];
    if (o->op == w->nops)
        snprintf(more, sizeof(more), "which has finished all operations");
    else
        snprintf(more, sizeof(more), "which is in operation %d, step %u, and waits for rank %d", o->op, o->lane[a.l].pc,
                 o->lane[a.l].waits_for);
    rcclx_check_fail(&a, "waits for ever for rank %d, %s", other, more);
}

static void run(check_world *w)
{
    bool any = true;

    while (any && w->status == RCCLX_OK) {
        any = false;
        for (int r = 0; r < w->n && w->status == RCCLX_OK; r++)
            any |= run_rank(w, r);
    }
    for (int r = 0; r < w->n && w->status == RCCLX_OK; r++)
        if (w->ranks[r].op < w->nops)
            tell_deadlock(w);
}

/* --- setting up -------------------------------------------------------------------- */

/* Ranks must agree on how message and scratch are cut. */
static bool agree(check_world *w, int index)
{
    check_op *op = &w->ops[index];
    const rcclx_plan *first = &op->plans[0];

    for (int r = 0; r < w->n; r++) {
        const rcclx_plan *p = &op->plans[r];
        const bool pushes = (op->algo->flags & RCCLX_PUSHES) != 0;
        if (p->cut == first->cut && p->nblocks == first->nblocks && p->parts == first->parts && p->nslots == first->nslots &&
            p->pieced == first->pieced && p->pushes == pushes && p->credit == first->credit)
            continue;
        w->status = RCCLX_INTERNAL;
        if (p->pushes != pushes || p->credit != first->credit) {
            snprintf(w->why, w->nwhy, "%s %s: rank %d %s", op->algo->name, rcclx_kind_word(op->shape.kind), r,
                     p->pushes == pushes ? "owes credit, or not, other than rank 0"
                                         : "pushes, or not, other than the algorithm's row says");
            return false;
        }
        snprintf(w->why, w->nwhy, "%s %s: rank %d cuts in %d blocks, %d slots; rank 0 in %d, %d", op->algo->name,
                 rcclx_kind_word(op->shape.kind), r, p->nblocks, p->nslots, first->nblocks, first->nslots);
        return false;
    }
    return true;
}

static bool open_plans(check_world *w, int index)
{
    check_op *op = &w->ops[index], *last = op - 1;

    if (index && op->algo == last->algo && !memcmp(&op->shape, &last->shape, sizeof(op->shape))) {
        op->plans = last->plans;
        return true;
    }
    const rcclx_status s = rcclx_ranks_build(op->algo, &op->shape, &op->plans);
    if (s != RCCLX_OK) {
        w->status = s;
        snprintf(w->why, w->nwhy, "%s %s: no plan for %d ranks: %s", op->algo->name, rcclx_kind_word(op->shape.kind),
                 w->n, rcclx_status_text(s));
        return false;
    }
    op->owns_plans = true;
    return agree(w, index);
}

static bool open_op(check_world *w, int index, uint64_t in_place, int npieces)
{
    check_op *op = &w->ops[index];
    const bool to_all = op->shape.kind == RCCLX_ALL_TO_ALL || op->shape.kind == RCCLX_ALL_TO_ALLV;

    if (!open_plans(w, index))
        return false;
    op->in_place = to_all && op->algo->flags & RCCLX_NEEDS_APART ? 0 : in_place;
    op->npieces = op->plans[0].pieced ? npieces : 1;
    op->nslots = op->plans[0].pushes ? 0 : op->plans[0].nslots;
    for (int r = 0; r < w->n; r++) {
        const int in = rcclx_ranks_blocks(&op->plans[r], r, RCCLX_IN);
        const int out = rcclx_ranks_blocks(&op->plans[r], r, RCCLX_OUT);
        op->nin = in > op->nin ? in : op->nin;
        op->nout = out > op->nout ? out : op->nout;
    }
    op->nll = op->plans[0].pushes ? op->plans[0].nslots : op->nin;
    const size_t n = (size_t)w->n, np = (size_t)op->npieces;
    op->user = rcclx_mem_alloc(n * (size_t)(op->nin + op->nout) * np * sizeof(check_atom));
    op->slots = rcclx_mem_alloc(n * CHECK_LANES * (size_t)op->nslots * sizeof(check_atom));
    op->ll = rcclx_mem_alloc(n * (size_t)op->nll * sizeof(check_atom));
    op->emptied = rcclx_mem_alloc(n * sizeof(*op->emptied));
    op->filled = rcclx_mem_alloc(n * sizeof(*op->filled));
    op->trees = rcclx_mem_alloc((size_t)op->nout * np * sizeof(uint64_t));
    op->ends = rcclx_mem_alloc(n * (size_t)w->nthreads * sizeof(check_tick));
    return (op->user && op->slots && op->ll && op->emptied && op->filled && op->trees && op->ends) || rcclx_check_nomem(w);
}

static bool open_ranks(check_world *w)
{
    const size_t n = (size_t)w->n, nops = (size_t)w->nops, nregions = n * (CHECK_LANES + CHECK_RING);

    w->ranks = rcclx_mem_alloc(n * sizeof(*w->ranks));
    w->values = rcclx_mem_alloc(sizeof(*w->values)); /* value 0: nothing */
    w->cap_values = w->values != NULL;
    w->touched = rcclx_mem_alloc(nregions * nops * n * sizeof(*w->touched));
    w->touches = rcclx_mem_alloc(nregions * nops * sizeof(*w->touches));
    w->cleared = rcclx_mem_alloc(nregions * n * sizeof(*w->cleared));
    if (!w->ranks || !w->values || !w->touched || !w->touches || !w->cleared)
        return rcclx_check_nomem(w);
    for (int t = 0; t < w->nthreads; t++) {
        check_lane *lane = &w->ranks[t / CHECK_LANES].lane[t % CHECK_LANES];
        lane->clock = rcclx_mem_alloc((size_t)w->nthreads * sizeof(check_tick));
        if (!lane->clock)
            return rcclx_check_nomem(w);
        lane->clock[t] = 1;
    }
    return true;
}

static void close_op(check_op *op, int n)
{
    if (op->owns_plans)
        rcclx_ranks_free(op->plans, n);
    rcclx_mem_free(op->user);
    rcclx_mem_free(op->slots);
    rcclx_mem_free(op->ll);
    rcclx_mem_free(op->emptied);
    rcclx_mem_free(op->filled);
    rcclx_mem_free(op->trees);
    rcclx_mem_free(op->ends);
}

static void close_world(check_world *w)
{
    for (int i = 0; w->ops && i < w->nops; i++)
        close_op(&w->ops[i], w->n);
    for (int t = 0; w->ranks && t < w->nthreads; t++) {
        check_lane *lane = &w->ranks[t / CHECK_LANES].lane[t % CHECK_LANES];
        rcclx_mem_free(lane->clock);
        rcclx_mem_free(lane->counter.at);
        rcclx_mem_free(lane->counter.clocks);
    }
    rcclx_mem_free(w->ops);
    rcclx_mem_free(w->ranks);
    rcclx_mem_free(w->values);
    rcclx_mem_free(w->reads);
    rcclx_mem_free(w->touched);
    rcclx_mem_free(w->touches);
    rcclx_mem_free(w->cleared);
}

static rcclx_status prove(check_world *w, const rcclx_algo *const *algos, const rcclx_shape *shapes, bool repeat,
                          uint64_t in_place, int npieces)
{
    bool ok = open_ranks(w);
    uint64_t since[CHECK_RANKS] = { 0 };

    w->ops = rcclx_mem_alloc((size_t)w->nops * sizeof(*w->ops));
    ok = ok && (w->ops || rcclx_check_nomem(w));
    for (int i = 0; ok && i < w->nops; i++) {
        w->ops[i].algo = algos[repeat ? 0 : i];
        w->ops[i].shape = shapes[repeat ? 0 : i];
        w->ops[i].shape.rank = 0;
        ok = open_op(w, i, in_place, npieces);
        if (!ok || !w->ops[i].shape.node)
            continue;
        rcclx_talk_find(&w->ops[i].talk, w->ops[i].plans, w->n, w->ops[i].shape.node);
        w->ops[i].meets = rcclx_talk_meets(&w->ops[i].talk, w->n, since);
    }
    if (ok)
        run(w);
    close_world(w);
    return w->status;
}

static bool in_reach(const rcclx_shape *s, int nops, int npieces, char *why, size_t nwhy)
{
    for (int i = 0; i < nops; i++)
        if (s[i].nranks != s[0].nranks || s[i].nranks < 1 || s[i].nranks > CHECK_RANKS) {
            snprintf(why, nwhy, "the checker takes 1 to %d ranks, the same in all operations", CHECK_RANKS);
            return false;
        }
    if (npieces < 1) {
        snprintf(why, nwhy, "at least one piece is needed");
        return false;
    }
    return nops > 0;
}

rcclx_status rcclx_plan_check_sequence(const rcclx_algo *const *algos, const rcclx_shape *shapes, int nops,
                                       uint64_t in_place, int npieces, char *why, size_t nwhy)
{
    if (!in_reach(shapes, nops, npieces, why, nwhy))
        return RCCLX_ARGUMENT;
    const int n = shapes->nranks;
    check_world w = { .n = n, .nthreads = n * CHECK_LANES, .nops = nops, .why = why, .nwhy = nwhy };
    return prove(&w, algos, shapes, false, in_place, npieces);
}

rcclx_status rcclx_plan_check(const rcclx_algo *a, const rcclx_shape *s, uint64_t in_place, int npieces,
                              char *why, size_t nwhy)
{
    if (!in_reach(s, 1, npieces, why, nwhy))
        return RCCLX_ARGUMENT;
    const int n = s->nranks;
    check_world w = { .n = n, .nthreads = n * CHECK_LANES, .nops = REPEATS, .why = why, .nwhy = nwhy };
    return prove(&w, &a, s, true, in_place, npieces);
}
