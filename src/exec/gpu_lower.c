/* Plans as kernels read them.
 *
 *   rcclx_plan  steps [..][..]  operands [..]        made once a way to run a collective
 *        |                                           (kind, root, algorithm)
 *        v
 *   gp_work | plan[0] | plan[1] | steps 0 | operands 0 | steps 1 | operands 1 |
 *             ^ counts, lengths and addresses are filled in at every launch
 *
 * Flagged plans, and those in low precision, are aimed at the launch: gpu_aim.c.
 *
 * What peers do with this rank's buffers decides what they must be told of them:
 * every rank's plan is looked at once. */
#include "exec/gpu_team.h"

#include "base/log.h"
#include "base/mem.h"
#include "codec/codec.h"

#include <string.h>

_Static_assert(GP_COPY == (int)RCCLX_STEP_COPY && GP_REDUCE == (int)RCCLX_STEP_REDUCE && GP_SIGNAL == (int)RCCLX_STEP_SIGNAL &&
               GP_WAIT == (int)RCCLX_STEP_WAIT, "steps are numbered alike");
_Static_assert(GP_IN == (int)RCCLX_IN && GP_OUT == (int)RCCLX_OUT && GP_SCRATCH == (int)RCCLX_SCRATCH, "and buffers");
_Static_assert(GP_SIMPLE == (int)RCCLX_PROTO_SIMPLE && GP_LL == (int)RCCLX_PROTO_LL && GP_LL128 == (int)RCCLX_PROTO_LL128, "and protocols");
_Static_assert(GP_LAG_PREVIOUS == (int)RCCLX_LAG_PREVIOUS && GP_LAG_END == (int)RCCLX_LAG_END, "and lags");
_Static_assert(GP_CODEC_FP8 == (int)RCCLX_CODEC_FP8 && GP_CODEC_INT8 == (int)RCCLX_CODEC_INT8, "and codecs");

enum { FLAGGED_MOST = 8 };                /* sources that the kernels of sums take at once */
enum { LINE = 64, CODED_UNIT = 512 /* elements */, WAVES_BYTES = 1024 }; /* LL128: what a wave writes at once, on any GPU */

static size_t padded(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

static size_t plan_bytes(const rcclx_plan *p)
{
    return padded(p->nsteps * sizeof(gp_step)) + padded(p->nrefs * sizeof(gp_ref));
}

/* The same as a kernel gets it. */
static size_t sent_bytes(const rcclx_plan *p)
{
    return rcclx_plan_is_aimed(p) ? rcclx_aimed_bytes(p) : plan_bytes(p);
}

/* Do all numbers fit their small fields? */
static bool fits(const rcclx_plan *p)
{
    bool ok = p->nsteps <= UINT8_MAX && p->nrefs <= UINT16_MAX && p->nslots <= UINT8_MAX && p->cut != RCCLX_CUT_TABLE;

    for (uint32_t i = 0; i < p->nsteps; i++)
        ok &= (p->proto == RCCLX_PROTO_SIMPLE || p->steps[i].nblk == 1) && p->steps[i].phase <= UINT8_MAX &&
              p->steps[i].nsrc <= GP_RANKS && p->steps[i].ndst <= 2 * GP_RANKS && p->steps[i].nblk <= UINT8_MAX;
    for (uint32_t i = 0; i < p->nrefs; i++)
        ok &= p->refs[i].block <= UINT8_MAX;
    return ok;
}

static uint16_t put_steps(const rcclx_plan *p, unsigned char *at)
{
    gp_step *to = (gp_step *)(void *)at;

    for (uint32_t i = 0; i < p->nsteps; i++) {
        const rcclx_step *s = &p->steps[i];
        to[i] = (gp_step){
            .op = s->op, .proto = s->proto, .final = s->final, .lag = s->lag, .phase = (uint8_t)s->phase,
            .peer = s->peer == RCCLX_ALL ? GP_ALL : (uint8_t)s->peer, .nsrc = (uint8_t)s->nsrc, .ndst = (uint8_t)s->ndst,
            .nblk = (uint8_t)s->nblk, .first = (uint16_t)s->first,
        };
    }
    return (uint16_t)padded(p->nsteps * sizeof(gp_step));
}

static uint16_t put_refs(const rcclx_plan *p, unsigned char *at)
{
    gp_ref *to = (gp_ref *)(void *)at;

    for (uint32_t i = 0; i < p->nrefs; i++)
        to[i] = (gp_ref){ p->refs[i].buf, p->refs[i].raw ? (uint8_t)(1 + p->refs[i].rank) : 0, (uint8_t)p->refs[i].rank,
                          (uint8_t)p->refs[i].block };
    return (uint16_t)padded(p->nrefs * sizeof(gp_ref));
}

/* Copies from IN to OUT, one behind the other: no two touch the same bytes, so that their order does not matter. */
static void find_free(const rcclx_plan *p, gp_plan *to)
{
    uint32_t i = 0, end;

    while (i < p->nsteps && p->steps[i].op != RCCLX_STEP_COPY)
        i++;
    for (end = i; end < p->nsteps && p->steps[end].op == RCCLX_STEP_COPY && p->steps[end].nblk == 1 && !p->pieced; end++)
        for (uint32_t k = p->steps[end].first; k < p->steps[end].first + p->steps[end].nsrc + p->steps[end].ndst; k++)
            if (p->refs[k].buf == RCCLX_SCRATCH)
                return;
    to->free = (uint8_t)i;
    to->nfree = (uint8_t)(end - i);
}

static void put(rcclx_ready *r, int k, const rcclx_algo *a, const rcclx_plan *p, uint16_t *end)
{
    gp_plan *to = &((gp_work *)(void *)r->work)->plan[k];

    r->plan[k] = (rcclx_ready_plan){ a, *p };
    r->plan[k].shape.steps = NULL;
    r->plan[k].shape.refs = NULL;
    to->nsteps = (uint8_t)p->nsteps;
    to->pieced = p->pieced;
    to->parts = p->parts;
    to->proto = p->proto;
    find_free(p, to);
    for (uint32_t i = 0; i < p->nsteps; i++)
        r->rare |= p->steps[i].op == RCCLX_STEP_REDUCE && p->steps[i].proto != RCCLX_PROTO_SIMPLE &&
                   (p->steps[i].nsrc < 2 || p->steps[i].nsrc > FLAGGED_MOST);
    to->nslots = (uint8_t)(p->nslots ? p->nslots : 1);
    to->steps = *end;
    *end = (uint16_t)(*end + put_steps(p, r->work + *end));
    to->refs = *end;
    *end = (uint16_t)(*end + put_refs(p, r->work + *end));
}

/* Does a plan put something into a rank's slot? */
static bool fills(const rcclx_plan *p, int rank, int slot)
{
    for (uint32_t i = 0; i < p->nsteps; i++) {
        const rcclx_step *s = &p->steps[i];
        for (uint32_t k = s->first + s->nsrc; k < s->first + s->nsrc + s->ndst; k++)
            if (p->refs[k].buf == RCCLX_SCRATCH && p->refs[k].rank == rank && slot >= p->refs[k].block &&
                slot < p->refs[k].block + s->nblk)
                return true;
    }
    return false;
}

/* What this rank's plan k finds raw in its own slots is of the peer who fills them. */
static void find_contributions(rcclx_ready *r, int k, const rcclx_plan *p, int me)
{
    const gp_plan *to = &((gp_work *)(void *)r->work)->plan[k];
    gp_ref *refs = (gp_ref *)(void *)(r->work + to->refs);
    const uint32_t nrefs = r->plan[k].shape.nrefs;

    for (uint32_t i = 0; i < nrefs; i++)
        if (refs[i].raw && refs[i].buf == GP_SCRATCH && r->plan[k].shape.proto == RCCLX_PROTO_SIMPLE && refs[i].rank == me &&
            fills(p, me, refs[i].block))
            refs[i].raw = (uint8_t)(1 + p->shape.rank);
}

/* What a peer's plan does with this rank's buffers, and which slots of this rank it fills: a kernel
 * that waits for one wants to know whom it waits for. */
static void look_at(rcclx_ready *r, const rcclx_plan *p, int me)
{
    gp_plan *to = &((gp_work *)(void *)r->work)->plan[0];
    const gp_step *steps = (const gp_step *)(const void *)(r->work + to->steps);
    gp_ref *refs = (gp_ref *)(void *)(r->work + to->refs);

    for (uint32_t i = 0; i < p->nrefs; i++) {
        r->reads |= p->refs[i].buf == RCCLX_IN && p->refs[i].rank == me;
        r->writes |= p->refs[i].buf == RCCLX_OUT && p->refs[i].rank == me;
    }
    for (uint32_t i = 0; r->plan[0].shape.pushes && i < to->nsteps; i++)
        for (uint32_t k = steps[i].first; k < steps[i].first + (uint32_t)steps[i].nsrc; k++)
            if (refs[k].buf == GP_SCRATCH && fills(p, me, refs[k].block))
                refs[k].rank = (uint8_t)p->shape.rank;
}

typedef struct { const rcclx_algo *algo[2]; rcclx_plan plan[2]; int n; } pair;

static rcclx_status build(pair *p, const rcclx_shape *s)
{
    size_t nbytes = sizeof(gp_work);

    for (p->n = 0; p->n < 2 && p->algo[p->n]; p->n++) {
        rcclx_plan *plan = &p->plan[p->n];
        p->algo[p->n]->build(plan, s);
        if (plan->status != RCCLX_OK) {
            p->n++;
            return plan->status;
        }
        if (!fits(plan)) {
            p->n++;
            return RCCLX_UNSUPPORTED;
        }
        nbytes += sent_bytes(plan);
    }
    const size_t room = p->plan[0].proto == RCCLX_PROTO_SIMPLE ? sizeof(((gp_large *)0)->blob) : sizeof(((gp_small *)0)->blob);
    return nbytes <= room ? RCCLX_OK : RCCLX_UNSUPPORTED;
}

static void fini(pair *p)
{
    for (int k = 0; k < p->n; k++)
        rcclx_plan_fini(&p->plan[k]);
}

/* All ranks look at the plans of all, so that they agree on whether all fit. */
static rcclx_status look_at_peers(rcclx_ready *r, const rcclx_shape *s, const rcclx_algo *first, const rcclx_algo *behind)
{
    rcclx_status st = RCCLX_OK;

    for (int peer = 0; st == RCCLX_OK && peer < s->nranks; peer++) {
        const rcclx_shape theirs = { s->kind, s->nranks, peer, s->root, s->coded, NULL };
        pair p = { .algo = { first, behind } };
        if (peer == s->rank)
            continue;
        st = build(&p, &theirs);
        if (st == RCCLX_OK)
            look_at(r, &p.plan[0], s->rank);
        for (int k = 0; st == RCCLX_OK && k < p.n; k++)
            find_contributions(r, k, &p.plan[k], s->rank);
        fini(&p);
    }
    return st;
}

static rcclx_status make(rcclx_ready **out, const rcclx_shape *s, const pair *p)
{
    size_t nbytes = sizeof(gp_work);

    for (int k = 0; k < p->n; k++)
        nbytes += plan_bytes(&p->plan[k]);
    rcclx_ready *r = *out = rcclx_mem_alloc(sizeof(*r) + nbytes);
    if (!r)
        return RCCLX_NOMEM;
    uint16_t end = sizeof(gp_work);
    for (int k = 0; k < p->n; k++)
        put(r, k, p->algo[k], &p->plan[k], &end);
    r->nplans = p->n;
    r->nbytes = rcclx_plan_is_aimed(&p->plan[0]) ? (uint16_t)(sizeof(gp_work) + sent_bytes(&p->plan[0])) : end;
    r->apart = p->algo[0]->flags & RCCLX_NEEDS_APART && s->kind == RCCLX_ALL_TO_ALL;
    gp_work *w = (gp_work *)(void *)r->work;
    w->nbytes = r->nbytes;
    w->kind = (uint8_t)s->kind;
    w->root = (uint8_t)s->root;
    w->nplans = (uint8_t)p->n;
    return look_at_peers(r, s, p->algo[0], p->algo[1]);
}

rcclx_status rcclx_ready_make(rcclx_ready **out, const rcclx_shape *s, const rcclx_algo *first, const rcclx_algo *behind)
{
    pair p = { .algo = { first, behind } };

    *out = NULL;
    rcclx_status st = build(&p, s);
    if (st == RCCLX_OK)
        st = make(out, s, &p);
    fini(&p);
    if (st == RCCLX_OK)
        return RCCLX_OK;
    rcclx_mem_free(*out);
    *out = NULL;
    if (st == RCCLX_NOMEM)
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: %s: no memory for a plan", s->rank, rcclx_kind_name(s->kind));
    return RCCLX_FAIL(RCCLX_UNSUPPORTED, "rank %d: %s: the plan of algorithm %s for %d ranks does not fit a kernel's arguments; "
                      "use another algorithm (RCCLX_ALGO)", s->rank, rcclx_kind_name(s->kind), first->name, s->nranks);
}

/* --- numbers -------------------------------------------------------------------- */

size_t rcclx_ready_longest(const rcclx_ready *r, int k, size_t nbytes)
{
    const rcclx_plan *p = &r->plan[k].shape;
    const size_t lines = (nbytes + LINE - 1) / LINE;

    const size_t most = LINE * ((lines + p->parts - 1) / p->parts);
    return most < nbytes ? most : nbytes;
}

size_t rcclx_slot_bytes(const rcclx_plan *p, const gp_layout *at)
{
    const size_t n = p->nslots ? p->nslots : 1;

    if (p->proto == RCCLX_PROTO_LL)
        return at->ll_bytes / n & ~(size_t)127;
    if (p->proto == RCCLX_PROTO_LL128)
        return at->ll128_bytes / n & ~(size_t)(WAVES_BYTES - 1);
    return at->stage_bytes / n & ~(size_t)127;
}

size_t rcclx_ready_slot(const rcclx_ready *r, int k, const gp_layout *at, unsigned line)
{
    const rcclx_plan *p = &r->plan[k].shape;
    const size_t n = rcclx_slot_bytes(p, at);

    if (!p->nslots)
        return 0;
    return p->proto == RCCLX_PROTO_LL ? n / GP_LL_UNIT * GP_LL_DATA : p->proto == RCCLX_PROTO_LL128 ? n / line * (line - 16) : n;
}

/* Staged: every lane something to do, all of them equally often, in pieces not too short to be worth
 * their signals. */
static size_t piece_bytes(size_t most, size_t longest, int nlanes)
{
    enum { LEAST = 4096 };
    const size_t round = most * (size_t)nlanes, rounds = longest ? (longest + round - 1) / round : 1;
    size_t n = (longest + rounds * (size_t)nlanes - 1) / (rounds * (size_t)nlanes);

    n = n < LEAST ? LEAST : (n + 127) & ~(size_t)127;
    return n < most ? n : most;
}

/* Low precision: what a lane does of a block, and of that at a time. */
static size_t coded_part(size_t longest, int nlanes, size_t size)
{
    const size_t unit = CODED_UNIT * size, n = (longest + (size_t)nlanes - 1) / (size_t)nlanes;

    return n ? (n + unit - 1) / unit * unit : unit;
}

static size_t coded_piece(size_t most, size_t part, size_t size)
{
    const size_t unit = CODED_UNIT * size, times = (part + most - 1) / most, n = (part + times - 1) / times;
    const size_t piece = (n + unit - 1) / unit * unit;

    return piece < most ? piece : most;
}

bool rcclx_ready_number(const rcclx_ready *r, int k, rcclx_gpu_lanes lanes, size_t nbytes, size_t size, gp_plan *to)
{
    const rcclx_plan *p = &r->plan[k].shape;
    const size_t longest = rcclx_ready_longest(r, k, nbytes), lines = (nbytes + LINE - 1) / LINE;
    size_t slot = lanes.stage / (p->nslots ? p->nslots : 1u) & ~(size_t)127, piece = slot, npieces = 1;

    size_t block = longest;
    if (p->shape.coded) {
        block = coded_part(longest, lanes.nlanes, size);
        piece = coded_piece(rcclx_codec_fits(slot) * size, block, size);
        npieces = (block + piece - 1) / piece + 1; /* the first may be shorter */
    } else if (p->pieced) {
        slot = piece = piece_bytes(slot, longest, lanes.nlanes);
        npieces = (longest + piece - 1) / piece;
    }
    to->slot_bytes = (uint32_t)slot;
    to->piece_bytes = (uint32_t)piece;
    to->npieces = npieces ? (uint32_t)npieces : 1; /* a message of nothing still has its signals */
    to->block_bytes = block;
    to->whole_bytes = nbytes;
    to->units = lines / p->parts;
    to->rest = (uint32_t)(lines % p->parts);
    return npieces < RCCLX_MARK_PIECES;
}
