/* The steps of a slot plan, carried out in one go.
 *
 * A slot plan has one piece and no signals: put my data in my slot, then read the
 * peers'. Once their headers are here nothing can make a step wait, so that the
 * bookkeeping of lanes, pieces and half-done plans, which costs as much as the
 * rest of a small message, can be left out:
 *
 *   put (done with the header)  |  all headers here?  no: leave it to the lanes
 *                                  yes: COPY, REDUCE ... straight through
 *
 * The plan is the same one, step for step; lanes may start it from the beginning
 * when this gave up, for nothing but the put has happened then. */
#include "exec/runner.h"

#include "base/clock.h"
#include "device/reduce.h"

enum { POLLS = 1024 };

static bool is_put(const rcclx_plan *p, const rcclx_step *s)
{
    return p->refs[s->first + s->nsrc].buf == RCCLX_SCRATCH;
}

/* Header of a peer, soon or not: 1, 0, or -1 as rcclx_view.header_of. */
static int await(rcclx_view *v, int peer, int polls)
{
    int here = v->header_of(v, peer);

    while (here == 0 && polls-- > 0) {
        rcclx_cpu_relax();
        here = v->header_of(v, peer);
    }
    return here;
}

static int await_all(rcclx_view *v, const rcclx_plan *p, int polls)
{
    for (uint32_t i = 0; i < p->nsteps; i++) {
        const rcclx_step *s = &p->steps[i];
        if (is_put(p, s))
            continue;
        for (int k = 0; k < s->nsrc; k++) {
            const rcclx_ref *ref = &p->refs[s->first + (uint32_t)k];
            const int here = ref->buf == RCCLX_SCRATCH ? await(v, ref->rank, polls) : 1;
            if (here != 1)
                return here;
        }
    }
    return 1;
}

static void do_step(rcclx_runner *run, const rcclx_plan *p, const rcclx_step *s, size_t block)
{
    const rcclx_op *op = &run->task->op;
    const rcclx_view *v = &run->view;
    const rcclx_ref *ref = &p->refs[s->first];
    const void *src[RCCLX_MAX_RANKS];
    void *dst = v->out[v->rank] + ref[s->nsrc].block * block;
    uint64_t scalar[RCCLX_MAX_RANKS];

    for (int k = 0; k < s->nsrc; k++) {
        src[k] = (ref[k].buf == RCCLX_IN ? v->in[v->rank] : v->slot[ref[k].rank]) + ref[k].block * block;
        scalar[k] = run->scalar[ref[k].rank];
    }
    if (s->op == RCCLX_STEP_COPY) {
        rcclx_copy(dst, src[0], v->count * v->size, 0);
        return;
    }
    const rcclx_reduce_args a = {
        .type = op->type, .op = op->op, .nsrc = s->nsrc, .ndst = 1, .src = src, .dst = &dst, .count = v->count,
        .divisor = op->op == RCCLX_AVG ? v->nranks : 0, .scalar = op->op == RCCLX_PREMUL ? scalar : NULL,
    };
    rcclx_reduce(&a);
}

int rcclx_runner_once(rcclx_runner *run, const rcclx_plan *p)
{
    /* where this thread has more to do, or ranks share cores, others must get their turn; a network must be polled */
    const bool alone = !run->task->grouped && !run->team->crowded && !run->team->mirror;
    const int here = await_all(&run->view, p, alone ? POLLS : 0);

    if (here != 1)
        return here;
    const size_t block = p->cut == RCCLX_CUT_EVEN ? run->view.count * run->view.size : 0; /* SPLIT: one block */
    for (uint32_t i = 0; i < p->nsteps && run->view.count; i++)
        if (!is_put(p, &p->steps[i]))
            do_step(run, p, &p->steps[i], block);
    return 1;
}
