/* Steps in the checker: the same four as everywhere, done with values in place of
 * bytes. Whatever a plan must not do is a fault here. */
#include "plan/check_world.h"

static check_result moved(bool ok)
{
    return ok ? CHECK_MOVED : CHECK_FAULT;
}

/* --- waiting ----------------------------------------------------------------- */

/* The counter of `rank` must reach mark; blocked until it does. */
static check_result await(const check_actor *a, int rank, uint64_t mark, int phase, int lane)
{
    uint64_t at = 0;
    const check_tick *clock = rcclx_check_reached(a->w, rank, lane, mark, &at);

    if (!clock) {
        a->lane->waits_for = rank;
        return CHECK_BLOCKED;
    }
    if (at >> 32 != (uint64_t)a->index) {
        rcclx_check_fail(a, "waits for phase %d of rank %d, which never signals it", phase, rank);
        return CHECK_FAULT;
    }
    rcclx_check_join(a->w, a->lane->clock, clock);
    return CHECK_MOVED;
}

/* Is a phase signalled for the sake of slots alone? Ranks' plans signal it in the same way. */
static bool is_credit(const rcclx_plan *p, int phase)
{
    for (uint32_t i = 0; i < p->nsteps; i++)
        if (p->steps[i].op == RCCLX_STEP_SIGNAL && p->steps[i].phase == phase && p->steps[i].lag)
            return true;
    return false;
}

/* Ranks of unlike machines that exchange nothing do not wait for each other's headers. */
static bool strangers(const check_op *op, int a, int b)
{
    return op->shape.node && op->shape.node[a] != op->shape.node[b] && !(op->talk.heard[a] >> b & 1);
}

static check_result wait_step(const check_actor *a, const rcclx_step *st)
{
    const int piece = a->lane->piece - (st->lag == RCCLX_LAG_PREVIOUS ? CHECK_LANES : 0);
    const uint64_t mark = st->phase ? rcclx_check_mark(a->index, piece, st->phase) : rcclx_check_mark(a->index, 0, 0);

    if (st->peer != RCCLX_ALL && (st->peer >= a->w->n || st->peer == a->rank))
        return moved(rcclx_check_fail(a, "waits for rank %d", st->peer));
    if (st->lag == RCCLX_LAG_NONE && is_credit(a->plan, st->phase))
        return moved(rcclx_check_fail(a, "takes a credit, phase %d, for word of what was written", st->phase));
    if (st->lag > RCCLX_LAG_END)
        return moved(rcclx_check_fail(a, "waits for a piece, lag %d, that there is no word for", st->lag));
    if (piece < 0 || (st->lag == RCCLX_LAG_END && piece + CHECK_LANES < a->op->npieces))
        return CHECK_MOVED;
    if (st->peer != RCCLX_ALL)
        return await(a, st->peer, mark, st->phase, a->l);
    for (; a->lane->next < a->w->n; a->lane->next++) {
        if (a->lane->next == a->rank || (!st->phase && strangers(a->op, a->rank, a->lane->next)))
            continue;
        const check_result r = await(a, a->lane->next, mark, st->phase, a->l);
        if (r != CHECK_MOVED)
            return r;
    }
    a->lane->next = 0;
    return CHECK_MOVED;
}

static check_result signal_step(const check_actor *a, const rcclx_step *st)
{
    if (!st->phase || st->phase > a->plan->nphases)
        return moved(rcclx_check_fail(a, "signals phase %d of %d", st->phase, a->plan->nphases));
    if (!rcclx_check_publish(a, rcclx_check_mark(a->index, a->lane->piece, st->phase), a->l))
        return CHECK_FAULT;
    return moved(rcclx_check_tick_on(a, a->l));
}

/* --- moving -------------------------------------------------------------------- */

/* A step in protocol LL waits for the slots it reads. */
static check_result await_slots(const check_actor *a, const rcclx_step *st)
{
    for (; a->lane->next < st->nsrc; a->lane->next++) {
        const rcclx_ref *ref = &a->plan->refs[st->first + (uint32_t)a->lane->next];
        if (!rcclx_ranks_is_slot(st, ref) || ref->rank == a->rank || ref->rank >= a->w->n)
            continue;
        const check_result r = await(a, ref->rank, rcclx_check_mark(a->index, 0, 0), 0, 0);
        if (r != CHECK_MOVED)
            return r;
    }
    a->lane->next = 0;
    return CHECK_MOVED;
}

/* The slot comes back when every other rank has finished the operation that used it last. */
static check_result await_credit(const check_actor *a)
{
    const int old = a->index - CHECK_RING;

    for (int r = 0; old >= 0 && r < a->w->n; r++) {
        if (r == a->rank)
            continue;
        if (a->w->ranks[r].op <= old) {
            a->lane->waits_for = r;
            return CHECK_BLOCKED;
        }
        rcclx_check_join(a->w, a->lane->clock, &a->w->ops[old].ends[r * a->w->nthreads]);
    }
    return CHECK_MOVED;
}

static bool raw_ok(const check_actor *a, const rcclx_ref *ref, const check_value *v)
{
    if (ref->raw == v->leaf)
        return true;
    return rcclx_check_fail(a, "adds rank %d's operand, %s", ref->rank,
                            v->leaf ? "a raw contribution, as if it were a sum" : "a sum, as if it were raw");
}

static bool add(const check_actor *a, check_value *sum, const check_value *v, bool first)
{
    if (v->piece != a->lane->piece)
        return rcclx_check_fail(a, "adds piece %d to piece %d", v->piece, a->lane->piece);
    if (v->final)
        return rcclx_check_fail(a, "adds what was already final");
    if (!first && v->block != sum->block)
        return rcclx_check_fail(a, "adds block %d to block %d", v->block, sum->block);
    if (sum->ranks & v->ranks)
        return rcclx_check_fail(a, "adds rank %d's contribution twice", __builtin_ctzll(sum->ranks & v->ranks));
    sum->ordered = v->leaf && (first || (sum->ordered && v->ranks > sum->ranks));
    sum->block = v->block;
    sum->ranks |= v->ranks;
    sum->coded = v->coded > sum->coded ? v->coded : sum->coded;
    sum->tree = (sum->tree ^ v->tree) * 0xff51afd7ed558ccdu + (sum->tree >> 31);
    return true;
}

static bool reduce_block(const check_actor *a, const rcclx_step *st, int i, uint32_t *result)
{
    const rcclx_ref *refs = &a->plan->refs[st->first];
    check_value sum = { .op = (uint16_t)a->index, .piece = (uint16_t)a->lane->piece, .final = st->final };
    uint32_t id;

    if (!rcclx_kind_reduces(a->op->shape.kind))
        return rcclx_check_fail(a, "reduces in a collective that does not");
    for (int k = 0; k < st->nsrc; k++) {
        if (!rcclx_check_load(a, st, &refs[k], refs[k].block + i, &id))
            return false;
        const check_value v = a->w->values[id];
        if (!raw_ok(a, &refs[k], &v) || !add(a, &sum, &v, k == 0))
            return false;
    }
    return rcclx_check_new_value(a->w, &sum, result);
}

static bool copy_block(const check_actor *a, const rcclx_step *st, int i, uint32_t *result)
{
    const rcclx_ref *src = &a->plan->refs[st->first];

    if (st->nsrc != 1)
        return rcclx_check_fail(a, "copies from %d operands", st->nsrc);
    if (!rcclx_check_load(a, st, src, src->block + i, result))
        return false;
    return a->w->values[*result].piece == a->lane->piece ||
           rcclx_check_fail(a, "copies piece %d as piece %d", a->w->values[*result].piece, a->lane->piece);
}

/* In place, a block may already lie where it is copied to: the executor leaves it alone. */
static bool stays(const check_actor *a, const rcclx_step *st, int i)
{
    const rcclx_ref *src = &a->plan->refs[st->first], *dst = src + 1;

    return st->op == RCCLX_STEP_COPY && st->ndst == 1 && src->buf == RCCLX_IN && dst->buf == RCCLX_OUT &&
           dst->rank == src->rank && dst->block + i < rcclx_ranks_blocks(a->plan, dst->rank, RCCLX_OUT) &&
           rcclx_check_user_atom(a->op, src->rank, RCCLX_IN, src->block + i, a->lane->piece) ==
               rcclx_check_user_atom(a->op, dst->rank, RCCLX_OUT, dst->block + i, a->lane->piece);
}

/* Slots are as long as what is put into them: a step learns its length from a block
 * of the message, unless all blocks are alike. */
static bool has_length(const rcclx_plan *p, const rcclx_step *st)
{
    if ((p->cut == RCCLX_CUT_EVEN && p->parts == 1) || (st->proto != RCCLX_PROTO_SIMPLE && !p->pushes))
        return true;
    for (int k = 0; k < st->nsrc + st->ndst; k++)
        if (p->refs[st->first + (uint32_t)k].buf != RCCLX_SCRATCH)
            return true;
    return false;
}

/* In low precision a step that fills a slot rounds what it writes, there and beside; a run that is handed on stays as it is. */
static bool encode(const check_actor *a, const rcclx_step *st, uint32_t *value)
{
    const rcclx_ref *refs = &a->plan->refs[st->first];
    check_value v = a->w->values[*value];
    bool fills = false;

    for (int k = st->nsrc; k < st->nsrc + st->ndst; k++)
        fills |= refs[k].buf == RCCLX_SCRATCH;
    if (!st->coded || !fills || (st->op == RCCLX_STEP_COPY && refs[0].buf == RCCLX_SCRATCH))
        return true;
    v.coded++;
    v.tree = (v.tree + 1) * 0xd6e8feb86659fd93u;
    return rcclx_check_new_value(a->w, &v, value);
}

static bool move_blocks(const check_actor *a, const rcclx_step *st)
{
    const rcclx_ref *dst = &a->plan->refs[st->first + st->nsrc];
    uint32_t value = 0;

    if (!st->nsrc || !st->ndst || !st->nblk || st->first + st->nsrc + st->ndst > a->plan->nrefs)
        return rcclx_check_fail(a, "has no operands");
    if (!has_length(a->plan, st))
        return rcclx_check_fail(a, "names no block of IN or OUT, so nobody knows how long it is");
    for (int i = 0; i < st->nblk; i++) {
        if (!(st->op == RCCLX_STEP_COPY ? copy_block : reduce_block)(a, st, i, &value) || !encode(a, st, &value))
            return false;
        for (int k = 0; k < st->ndst && !stays(a, st, i); k++)
            if (!rcclx_check_store(a, st, &dst[k], dst[k].block + i, value))
                return false;
    }
    return true;
}

/* Filling the rank's LL slot publishes header and data together. */
static check_result fill_slot(const check_actor *a, const rcclx_step *st)
{
    const rcclx_ref *dst = &a->plan->refs[st->first + st->nsrc];
    const check_result credit = await_credit(a);

    if (credit != CHECK_MOVED)
        return credit;
    if (dst->rank != a->rank || st->ndst != 1 || a->l != 0 || a->w->ranks[a->rank].header)
        return moved(rcclx_check_fail(a, "may fill its own slot once"));
    if (!move_blocks(a, st))
        return CHECK_FAULT;
    a->w->ranks[a->rank].header = true;
    for (int l = 0; l < CHECK_LANES; l++)
        if (!rcclx_check_publish(a, rcclx_check_mark(a->index, 0, 0), l))
            return CHECK_FAULT;
    return moved(rcclx_check_tick_on(a, 0));
}

check_result rcclx_check_step(const check_actor *a, const rcclx_step *st)
{
    switch (st->op) {
    case RCCLX_STEP_WAIT:   return wait_step(a, st);
    case RCCLX_STEP_SIGNAL: return signal_step(a, st);
    case RCCLX_STEP_COPY:
    case RCCLX_STEP_REDUCE: break;
    default:                return moved(rcclx_check_fail(a, "is no step"));
    }
    if (st->proto != RCCLX_PROTO_SIMPLE && a->plan->pieced)
        return moved(rcclx_check_fail(a, "uses the operation's slot in a plan that runs piece by piece"));
    if (st->proto != RCCLX_PROTO_SIMPLE && a->plan->pushes && st->proto != a->plan->proto)
        return moved(rcclx_check_fail(a, "uses another protocol than its plan"));
    const check_result r = a->plan->pushes ? rcclx_check_await_pushed(a, st) : await_slots(a, st);
    if (r != CHECK_MOVED)
        return r;
    if (st->ndst && !a->plan->pushes && rcclx_ranks_is_slot(st, &a->plan->refs[st->first + st->nsrc]))
        return fill_slot(a, st);
    return moved(move_blocks(a, st));
}
