/* Steps whose addresses the host works out, at every launch, since a kernel would lose
 * microseconds over it: those of flagged plans, and those in low precision.
 *
 *   step, operands  --where buffers, windows and slots are-->  gp_flagged | gp_flagged | ... | far operands
 *                                                              gp_coded   | gp_coded   | ... | far runs
 *
 * A step has room for the first few operands; the others follow behind all steps. */
#include "exec/gpu_team.h"

enum { LINE = 64, LINE_SHARE = 14 /* LL128: bytes of a thread, 16 less its part of the flag */ };

bool rcclx_plan_is_aimed(const rcclx_plan *p)
{
    return p->proto != RCCLX_PROTO_SIMPLE || p->shape.coded;
}

/* --- how long --------------------------------------------------------------------- */

static size_t flagged_far(int n)
{
    return n > GP_NEAR ? (size_t)(n - GP_NEAR) : 0;
}

static int runs_of(const rcclx_plan *p, uint32_t first, int n)
{
    int runs = 0;

    for (int k = 0; k < n; k++)
        runs += p->refs[first + (uint32_t)k].buf == RCCLX_SCRATCH;
    return runs;
}

static size_t coded_far(int sources, int fills)
{
    return (size_t)((sources ? sources - 1 : 0) + (fills ? fills - 1 : 0));
}

size_t rcclx_aimed_bytes(const rcclx_plan *p)
{
    size_t n = p->nsteps * (p->shape.coded ? sizeof(gp_coded) : sizeof(gp_flagged));

    for (uint32_t i = 0; i < p->nsteps; i++) {
        const rcclx_step *s = &p->steps[i];
        n += sizeof(uint64_t) * (p->shape.coded ? coded_far(runs_of(p, s->first, s->nsrc), runs_of(p, s->first + s->nsrc, s->ndst))
                                                : flagged_far(s->nsrc + s->ndst));
    }
    return n;
}

/* --- where ------------------------------------------------------------------------- */

typedef struct {
    const gp_frame *f;
    gp_work        *w;
    const gp_ref   *refs;
    size_t          slot;    /* bytes of one */
    uint64_t        region;  /* of the slots in a window */
} range;

static uint64_t block_begin(const gp_plan *p, uint32_t b)
{
    const uint32_t k = b % p->parts;
    const uint64_t at = LINE * (k * p->units + (k < p->rest ? k : p->rest));

    return b / p->parts * p->whole_bytes + (at < p->whole_bytes ? at : p->whole_bytes);
}

/* A slot lies in its owner's window; that of a source is this rank's. */
static uint64_t address(const range *a, const gp_ref *ref, bool source)
{
    if (ref->buf == GP_SCRATCH)
        return a->f->window[source ? a->f->rank : ref->rank] + a->region + ref->block * a->slot;
    return (ref->buf == GP_IN ? a->w->in : a->w->out) + block_begin(&a->w->plan[0], ref->block);
}

static uint64_t length(const range *a, const gp_ref *ref)
{
    return block_begin(&a->w->plan[0], ref->block + 1u) - block_begin(&a->w->plan[0], ref->block);
}

static uint16_t offset(const range *a, const uint64_t *far)
{
    return (uint16_t)((const unsigned char *)far - (const unsigned char *)a->w);
}

/* --- flagged plans ------------------------------------------------------------------- */

static uint64_t *aim_flagged(const range *a, const gp_step *s, gp_flagged *to, uint64_t *far)
{
    const gp_plan *p = &a->w->plan[0];

    *to = (gp_flagged){ .op = s->op, .nsrc = s->nsrc, .ndst = s->ndst, .final = s->final, .own = GP_ALL, .far = offset(a, far),
                        .nbytes = p->block_bytes };
    uint32_t n = 0;
    for (uint32_t k = 0; k < (uint32_t)s->nsrc + s->ndst; k++) {
        const gp_ref *ref = &a->refs[s->first + k];
        const bool slot = ref->buf == GP_SCRATCH;
        const uint64_t at = address(a, ref, k < s->nsrc);
        if (s->op == GP_COPY && k && !slot && !to->waits && at == GP_SPOT_AT(to->near[0])) {
            to->ndst--; /* in place: it is there; and others of a group may be reading it */
            continue;
        }
        /* a slot names who fills it */
        *(n < GP_NEAR ? &to->near[n] : &far[n - GP_NEAR]) = GP_SPOT(at, ref->rank, slot);
        n++;
        if (!slot && p->parts > 1)
            to->nbytes = length(a, ref);
        if (k >= s->nsrc)
            continue;
        if (slot)
            to->waits = 1;
        else
            to->own = (uint8_t)k;
    }
    return far + flagged_far(s->nsrc + s->ndst);
}

/* Copies in a row go at the same time if none writes what another reads: not where a rank works in place, unless it then
 * writes others' blocks alone. Only those that are still one round of all threads: others wait for the bytes. */
static void group_copies(gp_flagged *steps, uint32_t n, size_t round)
{
    for (uint32_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && steps[end].op == GP_COPY; end++)
            ;
        if (end - i > 1 && steps[i].nbytes * (end - i) <= round)
            steps[i].final |= (uint8_t)((end - i) << 1);
        end += end == i;
    }
}

void rcclx_ready_aim(const rcclx_ready *r, const gp_frame *f, size_t nbytes, int nlanes, bool apart, gp_work *w)
{
    const gp_work *as = (const gp_work *)(const void *)r->work;
    const gp_step *steps = (const gp_step *)(const void *)(r->work + as->plan[0].steps);
    const bool ll = as->plan[0].proto == GP_LL;
    gp_plan *p = &w->plan[0];
    const range a = { f, w, (const gp_ref *)(const void *)(r->work + as->plan[0].refs), rcclx_slot_bytes(&r->plan[0].shape, &f->at),
                      ll ? f->at.ll : f->at.ll128 };

    rcclx_ready_number(r, 0, (rcclx_gpu_lanes){ 1, f->at.stage_bytes }, nbytes, 1, p);
    p->slot_bytes = ll ? f->at.ll_bytes : f->at.ll128_bytes;
    p->steps = sizeof(gp_work);
    gp_flagged *to = (gp_flagged *)(void *)(w + 1);
    uint64_t *far = (uint64_t *)(void *)(to + p->nsteps);
    for (uint32_t i = 0; i < p->nsteps; i++)
        far = aim_flagged(&a, &steps[i], &to[i], far);
    if (apart || w->kind == RCCLX_ALL_GATHER || w->kind == RCCLX_GATHER)
        group_copies(to, p->nsteps, (size_t)nlanes * f->nthreads * (ll ? GP_LL_DATA : LINE_SHARE));
}

/* --- low precision -------------------------------------------------------------------- */

/* Operands [from, to) of a step. */
static uint64_t *aim_operands(const range *a, const gp_step *s, uint32_t from, uint32_t to, gp_coded *c, uint64_t *far)
{
    const bool source = from < s->nsrc;
    uint8_t *n = source ? &c->runs : &c->fills;

    for (uint32_t k = from; k < to; k++) {
        const gp_ref *ref = &a->refs[s->first + k];
        const uint64_t at = address(a, ref, source);
        if (ref->buf != GP_SCRATCH) {
            c->nbytes = length(a, ref);
            c->before = source ? c->runs : c->before;
            *(source ? &c->own : &c->out) = at;
        } else if ((*n)++) {
            *far++ = at;
        } else {
            *(source ? &c->run : &c->fill) = at;
        }
    }
    return far;
}

/* By a power of two a product is the same as a quotient. */
static bool is_quick(const gp_coded *c)
{
    return !((c->own | c->out) & 15) && !(c->divisor & (c->divisor - 1));
}

void rcclx_ready_aim_coded(const rcclx_ready *r, const gp_frame *f, gp_work *w)
{
    const gp_work *as = (const gp_work *)(const void *)r->work;
    const gp_step *steps = (const gp_step *)(const void *)(r->work + as->plan[0].steps);
    gp_plan *p = &w->plan[0];
    const range a = { f, w, (const gp_ref *)(const void *)(r->work + as->plan[0].refs), p->slot_bytes, f->at.stage };
    gp_coded *to = (gp_coded *)(void *)(w + 1);
    uint64_t *far = (uint64_t *)(void *)(to + p->nsteps);

    p->steps = sizeof(gp_work);
    for (uint32_t i = 0; i < p->nsteps; i++) {
        const gp_step *s = &steps[i];
        to[i] = (gp_coded){ .op = s->op, .phase = s->phase, .lag = s->lag, .peer = s->peer, .far = offset(&a, far),
                            .divisor = s->final && w->op == GP_OP_AVG ? f->nranks : 0 };
        far = aim_operands(&a, s, 0, s->nsrc, &to[i], far);
        far = aim_operands(&a, s, s->nsrc, (uint32_t)s->nsrc + s->ndst, &to[i], far);
        to[i].quick = is_quick(&to[i]);
    }
}
