/* A collective over several machines: what a rank tells the others, and what it need not hear.
 *
 *   choose   the plan, which says who has to do with whom (plan/talk.h)
 *   meet     if far ranks may still be in what this one's headers do not tell of: all say that they
 *            have finished the operation before
 *   header   to those whom the plan makes talk
 *
 *   8 ranks, 2 machines, small all-reduce: leaders 0 and 4 talk, one frame each way
 *
 * The others hear of a rank every TELL_ALL operations, since credit for slots needs that; and whoever
 * calls something else is found by those that it would have talked to. */
#include "exec/mirror.h"
#include "exec/runner.h"

#include <stdio.h>

enum { TELL_ALL = RCCLX_NSLOTS / 2 };

/* Those far ranks that do not hear of me by a header, or only after all have met: that I have finished the operation before.
 * They have to know it now and then, too, or they would run out of slots. */
static void tell_others(const rcclx_runner *run)
{
    rcclx_team *t = run->team;
    rcclx_area *a = t->area[t->rank];
    const rcclx_mark marks[] = {
        rcclx_mark_of(t, &a->done.value, run->seq - 1),
        rcclx_mark_of(t, &a->ident.path, (uint64_t)run->history << 32 | (uint32_t)run->seq),
    };

    if (run->talk && (run->meets || run->seq % TELL_ALL == 0))
        rcclx_mirror_push_both(t, ~run->talk->tells[t->rank], NULL, 0, NULL, 0, marks, 2);
    if (run->meets && !run->ahead->pieced) /* what I call stands in the header, which comes later */
        rcclx_mirror_push_both(t, run->talk->tells[t->rank], NULL, 0, NULL, 0, marks, 1);
}

/* To far ranks: the rows of an all-to-all-v, data in the slot, then the header, its counter last. That I am in
 * this operation says that I have finished the one before. */
void rcclx_far_header(const rcclx_runner *run, const rcclx_header *h, size_t nbytes)
{
    rcclx_team *t = run->team;
    rcclx_area *a = t->area[t->rank];
    const uint64_t to = run->talk ? run->talk->tells[t->rank] : ~(uint64_t)0;
    const rcclx_mark marks[] = {
        rcclx_mark_of(t, &a->done.value, run->seq - 1), rcclx_mark_of(t, &h->seq, run->seq),
        rcclx_mark_of(t, &a->ident.path, (uint64_t)run->history << 32 | (uint32_t)run->seq),
    };

    for (int r = 0; run->task->op.kind == RCCLX_ALL_TO_ALLV && r < t->nranks; r++)
        if (rcclx_is_far(t, r))
            rcclx_mirror_push(t, r, a->fifo[r].table[run->seq & 1], sizeof(a->fifo[r].table[0]), NULL, 0);
    rcclx_mirror_push_both(t, to, a->slot[run->seq % RCCLX_NSLOTS], h->flags & RCCLX_HDR_DATA ? nbytes : 0, &h->sig,
                           sizeof(*h) - offsetof(rcclx_header, sig), marks, 3);
}

/* Ranks on several machines know what the headers could tell of buffers: they are reached by nobody. So the plan is
 * chosen at once, and headers go to those whom it concerns. */
rcclx_status rcclx_far_choose(rcclx_runner *run)
{
    rcclx_team *t = run->team;
    const rcclx_op *op = &run->task->op;
    const unsigned facts = rcclx_rounds_once(run) ? RCCLX_FACT_ONE_ROUND : 0;

    if (op->kind != RCCLX_ALL_TO_ALLV) {
        run->ahead = op->codec ? rcclx_pick_coded(run->pick, op->kind, op->root)
                               : rcclx_pick_plan(run->pick, op->kind, op->root, op->count * run->view.size, facts, run->with_data);
        if (!run->ahead)
            return rcclx_team_break(t, RCCLX_NOMEM, "out of memory for a plan");
        run->talk = t->nranks <= RCCLX_TALKERS ? rcclx_pick_talk(run->ahead) : NULL;
    }
    run->meets = t->nranks <= RCCLX_TALKERS && rcclx_talk_meets(run->talk, t->nranks, run->since);
    for (int r = 0; run->talk && r < t->nranks; r++)
        if (rcclx_is_far(t, r) && !(run->talk->tells[r] >> t->rank & 1))
            run->strangers |= (uint64_t)1 << r;
    tell_others(run);
    return RCCLX_OK;
}

/* All far ranks have finished the operation before this one. */
bool rcclx_far_met(rcclx_runner *run)
{
    rcclx_team *t = run->team;

    for (int r = 0; run->meets && r < t->nranks; r++)
        if (rcclx_is_far(t, r) && (int64_t)(gp_peek(&t->area[r]->done.value) - (run->seq - 1)) < 0) {
            run->view.waiting = r;
            return false;
        }
    return true;
}

/* Headers go to those whom a plan concerns, so that a wait may be for one that never comes: far ranks call something else,
 * in which they have nothing to tell this one. Either a third one's header says so, or the rank waited for is heard of
 * again, further on. */
rcclx_status rcclx_coll_passed(const rcclx_task *task)
{
    const rcclx_runner *run = task->op.team->runner;
    rcclx_team *t = run->team;
    const int r = run->view.waiting;
    char mine[160], text[RCCLX_ERROR_TEXT];

    if (run->task != task || r == RCCLX_ALL || !rcclx_is_far(t, r) || !run->ahead || (run->strangers && run->strangers >> r & 1))
        return RCCLX_AGAIN;
    for (int q = 0; q < t->nranks; q++) {
        const uint64_t called = atomic_load_explicit(&t->area[q]->ident.path, memory_order_acquire);
        if (rcclx_is_far(t, q) && called && (uint32_t)called == (uint32_t)run->seq && called >> 32 != run->history)
            return rcclx_mismatch(t, q, run->seq);
    }
    const uint64_t theirs = atomic_load_explicit(&t->area[r]->ident.path, memory_order_acquire);
    const uint32_t path = (uint32_t)theirs;
    if (!theirs || (int32_t)(path - (uint32_t)run->seq) < 0 || /* 0: it has called nothing yet */
        gp_reached(&rcclx_header_of(t, r, run->seq)->seq, run->seq))
        return RCCLX_AGAIN;
    rcclx_call_words(run->sig, task->op.count, mine, sizeof(mine));
    snprintf(text, sizeof(text), "collective number %llu: rank %d calls %s and waits for rank %d, which has come to number %llu and calls "
             "something else; all ranks must make the same calls in the same order with the same count, type, operator, root and "
             "precision", (unsigned long long)run->seq, t->rank, mine, r,
             (unsigned long long)(run->seq + (path - (uint32_t)run->seq)));
    return rcclx_team_break(t, RCCLX_MISMATCH, text);
}
