/* Writing a plan: steps and their operands are appended to two arrays.
 *
 *   steps   [COPY first 0, 1+1] [WAIT] [REDUCE first 2, 3+2] ...
 *   refs     s d                        s s s d d            ...
 */
#include "plan/plan.h"

#include "base/mem.h"

#include <string.h>

void rcclx_plan_init(rcclx_plan *p, const rcclx_shape *s, const char *algo, rcclx_cut cut, int nblocks)
{
    memset(p, 0, sizeof(*p));
    p->shape = *s;
    p->algo = algo;
    p->cut = (uint8_t)cut;
    p->nblocks = (uint16_t)nblocks;
    p->parts = (uint16_t)(cut == RCCLX_CUT_SPLIT ? nblocks : 1);
}

void rcclx_plan_parts(rcclx_plan *p, int parts)
{
    p->nblocks = (uint16_t)(p->nblocks * parts);
    p->parts = (uint16_t)parts;
}

void rcclx_plan_fini(rcclx_plan *p)
{
    rcclx_mem_free(p->steps);
    rcclx_mem_free(p->refs);
    memset(p, 0, sizeof(*p));
}

/* Room for one more element of an array; NULL marks the plan as failed. */
static void *grow(rcclx_plan *p, void *array, uint32_t n, uint32_t *cap, size_t size)
{
    if (p->status != RCCLX_OK)
        return NULL;
    if (n < *cap)
        return array;
    uint32_t more = *cap ? 2 * *cap : 32;
    void *bigger = rcclx_mem_realloc(array, more * size);
    if (!bigger) {
        p->status = RCCLX_NOMEM;
        return NULL;
    }
    *cap = more;
    return bigger;
}

static rcclx_step *emit(rcclx_plan *p, rcclx_step step)
{
    rcclx_step *steps = grow(p, p->steps, p->nsteps, &p->cap_steps, sizeof(*steps));
    if (!steps)
        return NULL;
    p->steps = steps;
    step.first = p->nrefs;
    steps[p->nsteps] = step;
    return &steps[p->nsteps++];
}

static rcclx_step *operand(rcclx_plan *p, rcclx_ref ref)
{
    rcclx_ref *refs = grow(p, p->refs, p->nrefs, &p->cap_refs, sizeof(*refs));
    if (!refs || !p->nsteps)
        return NULL;
    p->refs = refs;
    refs[p->nrefs++] = ref;
    return &p->steps[p->nsteps - 1];
}

void rcclx_copy_step(rcclx_plan *p, rcclx_proto proto, int nblk)
{
    if (proto != RCCLX_PROTO_SIMPLE)
        p->proto = (uint8_t)proto;
    emit(p, (rcclx_step){ .op = RCCLX_STEP_COPY, .proto = (uint8_t)proto, .nblk = (uint16_t)nblk });
}

void rcclx_reduce_step(rcclx_plan *p, rcclx_proto proto, int nblk, bool final)
{
    if (proto != RCCLX_PROTO_SIMPLE)
        p->proto = (uint8_t)proto;
    emit(p, (rcclx_step){ .op = RCCLX_STEP_REDUCE, .proto = (uint8_t)proto, .final = final, .nblk = (uint16_t)nblk });
}

static void use_slot(rcclx_plan *p, rcclx_buf buf, int block)
{
    rcclx_step *s = p->nsteps ? &p->steps[p->nsteps - 1] : NULL;
    if (buf != RCCLX_SCRATCH || !s || (s->proto != RCCLX_PROTO_SIMPLE && !p->pushes))
        return;
    p->pieced |= s->proto == RCCLX_PROTO_SIMPLE;
    s->coded = p->shape.coded && s->proto == RCCLX_PROTO_SIMPLE;
    if (p->nslots < block + s->nblk)
        p->nslots = (uint16_t)(block + s->nblk);
}

void rcclx_src(rcclx_plan *p, rcclx_buf buf, int rank, int block, bool raw)
{
    rcclx_step *s = operand(p, (rcclx_ref){ (uint8_t)buf, raw, (uint16_t)rank, (uint16_t)block });
    if (s)
        s->nsrc++;
    use_slot(p, buf, block);
}

void rcclx_dst(rcclx_plan *p, rcclx_buf buf, int rank, int block)
{
    rcclx_step *s = operand(p, (rcclx_ref){ (uint8_t)buf, 0, (uint16_t)rank, (uint16_t)block });
    if (s)
        s->ndst++;
    use_slot(p, buf, block);
}

void rcclx_pushes(rcclx_plan *p, rcclx_proto proto, int nslots, bool credit)
{
    p->pushes = true;
    p->credit = credit;
    p->proto = (uint8_t)proto;
    p->nslots = (uint16_t)nslots;
}

void rcclx_signal(rcclx_plan *p, int phase)
{
    if (p->nphases < phase)
        p->nphases = (uint16_t)phase;
    emit(p, (rcclx_step){ .op = RCCLX_STEP_SIGNAL, .phase = (uint16_t)phase });
}

void rcclx_signal_credit(rcclx_plan *p, int phase)
{
    rcclx_signal(p, phase);
    if (p->nsteps)
        p->steps[p->nsteps - 1].lag = RCCLX_LAG_PREVIOUS;
}

void rcclx_wait(rcclx_plan *p, int peer, int phase, int lag)
{
    emit(p, (rcclx_step){ .op = RCCLX_STEP_WAIT, .peer = (uint16_t)peer, .phase = (uint16_t)phase, .lag = (uint8_t)lag });
}

bool rcclx_plan_fills(const rcclx_plan *p)
{
    for (uint32_t i = 0; i < p->nsteps && !p->pushes; i++) {
        const rcclx_step *s = &p->steps[i];
        for (int k = s->nsrc; k < s->nsrc + s->ndst; k++)
            if (p->refs[s->first + (uint32_t)k].buf == RCCLX_SCRATCH && s->proto != RCCLX_PROTO_SIMPLE)
                return true;
    }
    return false;
}

bool rcclx_plan_owes_credit(const rcclx_plan *p, size_t count, size_t size)
{
    size_t begin, last;

    rcclx_plan_block(p, count, size, p->nblocks - 1, &begin, &last);
    return p->pushes && (p->credit || !last);
}

void rcclx_split(size_t count, size_t size, int nblocks, int b, size_t *begin, size_t *length)
{
    size_t line = 64 / size, lines = (count + line - 1) / line;
    size_t each = lines / (size_t)nblocks, extra = lines % (size_t)nblocks, i = (size_t)b;
    size_t from = (each * i + (i < extra ? i : extra)) * line;
    size_t to = from + (each + (i < extra)) * line;
    *begin = from < count ? from : count;
    *length = (to < count ? to : count) - *begin;
}

void rcclx_plan_block(const rcclx_plan *p, size_t count, size_t size, int b, size_t *begin, size_t *length)
{
    rcclx_split(count, size, p->parts, b % p->parts, begin, length);
    *begin += (size_t)(b / p->parts) * count;
}
