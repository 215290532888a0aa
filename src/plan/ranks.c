#include "plan/ranks.h"

#include "base/mem.h"

rcclx_status rcclx_ranks_build(const rcclx_algo *a, const rcclx_shape *s, rcclx_plan **plans)
{
    rcclx_status status = RCCLX_OK;
    rcclx_plan *all = rcclx_mem_alloc((size_t)s->nranks * sizeof(*all));

    *plans = NULL;
    if (!all)
        return RCCLX_NOMEM;
    for (int r = 0; r < s->nranks && status == RCCLX_OK; r++) {
        rcclx_shape mine = *s;
        mine.rank = r;
        a->build(&all[r], &mine);
        status = all[r].status;
    }
    if (status != RCCLX_OK) {
        rcclx_ranks_free(all, s->nranks);
        return status;
    }
    *plans = all;
    return RCCLX_OK;
}

void rcclx_ranks_free(rcclx_plan *plans, int nranks)
{
    for (int r = 0; plans && r < nranks; r++)
        rcclx_plan_fini(&plans[r]);
    rcclx_mem_free(plans);
}

int rcclx_ranks_blocks(const rcclx_plan *p, int rank, rcclx_buf buf)
{
    const int n = p->shape.nranks;
    const bool root = rank == p->shape.root, in = buf == RCCLX_IN;

    switch (p->shape.kind) {
    case RCCLX_ALL_REDUCE:     return p->nblocks;
    case RCCLX_REDUCE_TO:      return in || root ? p->nblocks : 0;
    case RCCLX_BROADCAST:      return in && !root ? 0 : p->nblocks;
    case RCCLX_ALL_GATHER:     return in ? p->parts : n * p->parts;
    case RCCLX_REDUCE_SCATTER: return in ? n * p->parts : p->parts;
    case RCCLX_ALL_TO_ALL:
    case RCCLX_ALL_TO_ALLV:    return n * p->parts;
    case RCCLX_GATHER:         return in ? p->parts : root ? n * p->parts : 0;
    case RCCLX_SCATTER:        return !in ? p->parts : root ? n * p->parts : 0;
    default:                   return 0;
    }
}

size_t rcclx_ranks_block_bytes(const rcclx_plan *p, size_t nbytes, int b)
{
    size_t begin, length;

    rcclx_split(nbytes, 1, p->parts, b % p->parts, &begin, &length);
    return length;
}

bool rcclx_ranks_is_slot(const rcclx_step *st, const rcclx_ref *ref)
{
    return ref->buf == RCCLX_SCRATCH && st->proto != RCCLX_PROTO_SIMPLE;
}

bool rcclx_ranks_is_pushed(const rcclx_plan *p, const rcclx_step *st, const rcclx_ref *ref)
{
    return p->pushes && rcclx_ranks_is_slot(st, ref);
}

int rcclx_ranks_first_block(const rcclx_plan *p, const rcclx_step *st)
{
    for (int k = 0; k < st->nsrc + st->ndst; k++) {
        const rcclx_ref *ref = &p->refs[st->first + (uint32_t)k];
        if (ref->buf != RCCLX_SCRATCH || (rcclx_ranks_is_slot(st, ref) && !p->pushes))
            return ref->block;
    }
    return 0;
}

static bool fills(const rcclx_plan *p, const rcclx_step *st, int rank, int slot)
{
    for (int k = 0; k < st->ndst; k++) {
        const rcclx_ref *ref = &p->refs[st->first + st->nsrc + (uint32_t)k];
        if (rcclx_ranks_is_pushed(p, st, ref) && ref->rank == rank && slot >= ref->block && slot < ref->block + st->nblk)
            return true;
    }
    return false;
}

int rcclx_ranks_pusher(const rcclx_plan *plans, int rank, int slot, uint32_t *step)
{
    for (int r = 0; r < plans->shape.nranks; r++)
        for (*step = 0; *step < plans[r].nsteps; ++*step)
            if (fills(&plans[r], &plans[r].steps[*step], rank, slot))
                return r;
    return -1;
}
