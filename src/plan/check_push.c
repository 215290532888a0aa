/* Pushed slots in the checker: two sets of them a rank, by the operation's number.
 *
 *   rank p   operation e    push ------> |slot 0|slot 1|..   set e % 2 of rank r
 *   rank r   operation e                  read: waits for the data of e, element by element
 *   rank q   operation e+2  push ------> |slot 0|slot 1|..   the same set: r must be done with e
 *
 * Data and flag are one store, which is no release: whoever sees it learns nothing of what
 * its writer did since the operation began, and everything that the writer's header tells.
 * So the clock that comes with data is the header's.
 *
 * That q comes after p, too, needs no proof of its own: r reads everything that is pushed
 * for it, so p's store was there when r was done. */
#include "plan/check_world.h"

/* Operations whose slots are the same memory. */
static bool share_slots(const check_op *a, const check_op *b)
{
    return a->plans->pushes && b->plans->pushes && a->plans->proto == b->plans->proto;
}

static check_atom *slot_atom(const check_actor *a, const rcclx_ref *ref, int slot)
{
    if (ref->rank < a->w->n && slot < a->op->nll)
        return &a->op->ll[ref->rank * (size_t)a->op->nll + (size_t)slot];
    if (ref->rank >= a->w->n)
        rcclx_check_fail(a, "there is no rank %d", ref->rank);
    else
        rcclx_check_fail(a, "slot %d does not exist", slot);
    return NULL;
}

/* --- waiting ------------------------------------------------------------------ */

/* What the header of `rank` for this operation tells; blocked until it is there. */
static check_result hear(const check_actor *a, int rank, int op)
{
    uint64_t at;
    const check_tick *clock = rcclx_check_reached(a->w, rank, a->l, rcclx_check_mark(op, 0, 0), &at);

    a->lane->waits_for = rank;
    if (!clock)
        return CHECK_BLOCKED;
    rcclx_check_join(a->w, a->lane->clock, clock);
    return CHECK_MOVED;
}

static check_result await_data(const check_actor *a, const rcclx_ref *ref, int slot)
{
    const check_atom *atom = slot_atom(a, ref, slot);
    uint32_t step;

    if (!atom)
        return CHECK_FAULT;
    if (ref->rank != a->rank) {
        rcclx_check_fail(a, "reads slot %d of rank %d, which is there for that rank to read", slot, ref->rank);
        return CHECK_FAULT;
    }
    if (atom->value)
        return hear(a, atom->writer / CHECK_LANES, a->index);
    a->lane->waits_for = rcclx_ranks_pusher(a->op->plans, ref->rank, slot, &step);
    if (a->lane->waits_for >= 0)
        return CHECK_BLOCKED;
    rcclx_check_fail(a, "waits for slot %d, which nobody fills", slot);
    return CHECK_FAULT;
}

/* Where finishing the operation before did not prove that the rank had begun it. */
static check_result await_credit(const check_actor *a, int rank)
{
    const int last = a->index - 1;

    if (last < 0 || rank == a->rank || rank >= a->w->n || !a->w->ops[last].plans[a->rank].credit)
        return CHECK_MOVED;
    return hear(a, rank, last);
}

check_result rcclx_check_await_pushed(const check_actor *a, const rcclx_step *st)
{
    for (; a->lane->next < st->nsrc + st->ndst; a->lane->next++) {
        const rcclx_ref *ref = &a->plan->refs[st->first + (uint32_t)a->lane->next];
        const bool read = a->lane->next < st->nsrc;
        check_result r = CHECK_MOVED;
        if (!rcclx_ranks_is_pushed(a->plan, st, ref))
            continue;
        for (int i = 0; read && i < st->nblk && r == CHECK_MOVED; i++)
            r = await_data(a, ref, ref->block + i);
        if (!read)
            r = await_credit(a, ref->rank);
        if (r != CHECK_MOVED)
            return r;
    }
    a->lane->next = 0;
    return CHECK_MOVED;
}

/* --- memory -------------------------------------------------------------------- */

bool rcclx_check_push(const check_actor *a, const rcclx_ref *ref, int slot, uint32_t value)
{
    check_atom *atom = slot_atom(a, ref, slot);
    const int owner = ref->rank, thread = rcclx_check_thread(a->rank, a->l);

    if (!atom)
        return false;
    if (atom->value)
        return rcclx_check_fail(a, "fills slot %d of rank %d, which rank %d has filled", slot, owner,
                                atom->writer / CHECK_LANES);
    if (a->w->ranks[owner].op > a->index)
        return rcclx_check_fail(a, "fills slot %d of rank %d, which may have returned", slot, owner);
    for (int o = a->index % 2; o < a->w->nops; o += 2) {
        const check_op *other = &a->w->ops[o];
        if (o != a->index && share_slots(a->op, other) &&
            !rcclx_check_before(a->lane->clock, rcclx_check_thread(owner, a->l), other->emptied[owner]))
            return rcclx_check_fail(a, "fills a slot of rank %d, which may still read the slots of operation %d", owner, o);
    }
    *atom = (check_atom){ .value = value, .writer = (uint16_t)thread, .written = a->lane->clock[thread] };
    a->op->filled[owner] = (uint16_t)(a->rank + 1);
    return true;
}

bool rcclx_check_take(const check_actor *a, const rcclx_ref *ref, int slot, uint32_t *value)
{
    check_atom *atom = slot_atom(a, ref, slot);

    if (!atom)
        return false;
    for (int o = a->index + 2; o < a->w->nops; o += 2)
        if (share_slots(a->op, &a->w->ops[o]) && a->w->ops[o].filled[a->rank])
            return rcclx_check_fail(a, "reads slot %d, which rank %d may be filling in operation %d", slot,
                                    a->w->ops[o].filled[a->rank] - 1, o);
    a->op->emptied[a->rank] = a->lane->clock[rcclx_check_thread(a->rank, a->l)];
    atom->readers = 1;
    *value = atom->value;
    return true;
}

bool rcclx_check_all_taken(const check_actor *a)
{
    const check_atom *mine = &a->op->ll[a->rank * (size_t)a->op->nll];

    for (int s = 0; a->plan->pushes && s < a->op->nll; s++)
        if (mine[s].value && !mine[s].readers)
            return rcclx_check_fail(a, "returns without having read slot %d, which rank %d fills", s,
                                    mine[s].writer / CHECK_LANES);
    return true;
}
