/* What a plan costs, by walking all ranks' steps with a clock a core.
 *
 *   core 0   rank 0 ==copy==|signal            |==reduce==
 *                            \ signal_ns        ^ the latest of all signals
 *   core 1   rank 1 ====copy====|signal ........|==reduce==
 *
 * A step takes the time of its bytes, each operand at the rate of where it lies. A
 * wait ends when the last signal it needs has been seen. Ranks that share a core run
 * one after the other, and every wait that had to wait hands the core on.
 *
 * What a rank reads of another machine's scratch has come over both machines' links, which carry one
 * thing at a time, and so did the signal.
 *
 * Pieces are not all walked. Up to three are, one lane for all of them; from then on
 * every piece adds the same: what the busiest core has to do for it, or, where
 * waiting is longer, half of what a piece took, since two lanes take turns. */
#include "plan/plan.h"

#include "base/mem.h"
#include "plan/ranks.h"

#include <math.h>
#include <string.h>

enum { WALKED = 3, LANES = 2, PRICED_RANKS = 512 };

typedef struct {
    const rcclx_machine *m;
    const rcclx_plan *plans;
    int      n, nphases, npieces, walked;
    size_t   nbytes;
    bool     far, in_mapped, out_mapped;
    double  *seen;    /* [rank][piece][phase]: when others see the signal */
    double  *slot;    /* [rank]: when others see the LL slot; pushed [rank][slot]: when it is full. Negative: not yet */
    uint32_t *pc;     /* [rank]: next step, counted over the walked pieces */
    uint32_t *passed; /* [rank]: positions of `seen` filled */
    double  *now, *core, *busy;
    const uint8_t *node;     /* NULL: one machine */
    int      ncores;         /* of all machines */
    bool     crowded;        /* some machine has more ranks than cores */
    uint16_t place[PRICED_RANKS]; /* of a rank on its machine */
    double   link[256], carried[256]; /* a machine's: when it is free, and how long it was not */
} walk;

static double *signal_at(const walk *w, int rank, int piece, int phase)
{
    return &w->seen[((size_t)rank * (size_t)w->walked + (size_t)piece) * (size_t)(w->nphases + 1) + (size_t)phase];
}

static size_t slots_of(const rcclx_plan *p)
{
    return p->pushes ? p->nslots : 1;
}

static double *slot_at(const walk *w, const rcclx_plan *p, const rcclx_ref *ref)
{
    return &w->slot[ref->rank * slots_of(p) + (p->pushes ? ref->block : 0)];
}

static bool far_apart(const walk *w, int a, int b)
{
    return w->node && w->node[a] != w->node[b];
}

/* --- one step ------------------------------------------------------------- */

/* Only the kernel can reach it. */
static bool by_kernel(const walk *w, int me, const rcclx_ref *ref)
{
    return ref->buf != RCCLX_SCRATCH && ref->rank != me && !(ref->buf == RCCLX_IN ? w->in_mapped : w->out_mapped);
}

static double operand_ns(const walk *w, int me, const rcclx_ref *ref, double nbytes)
{
    const rcclx_machine *m = w->m;
    const bool user = ref->buf != RCCLX_SCRATCH, peer = ref->rank != me;

    if (by_kernel(w, me, ref))
        return m->cma_rate > 0 ? m->cma_ns + nbytes / m->cma_rate : HUGE_VAL;
    double rate = peer ? m->peer_rate : 2 * m->local_rate; /* a copy's read and write share local_rate */
    if (user && w->far)
        rate = 2 * m->far_rate; /* beyond the caches it does not matter whose it is */
    return nbytes / rate;
}

/* Bytes of the operand's block in one piece. A scratch slot is as long as the
 * message block it stands for, which the step's IN or OUT operand names. */
static double piece_bytes(const walk *w, const rcclx_plan *p, const rcclx_step *st, int i)
{
    return (double)rcclx_ranks_block_bytes(p, w->nbytes, rcclx_ranks_first_block(p, st) + i) / w->npieces;
}

static double step_ns(const walk *w, const rcclx_plan *p, const rcclx_step *st)
{
    const rcclx_ref *refs = &p->refs[st->first];
    double nbytes = 0, ns = w->m->step_ns;

    for (int i = 0; i < st->nblk; i++)
        nbytes += piece_bytes(w, p, st, i);
    /* the kernel's copy reads and writes: the other side of a plain copy costs nothing more */
    const bool one_copy = st->op == RCCLX_STEP_COPY && st->ndst == 1;
    const bool get = one_copy && by_kernel(w, p->shape.rank, &refs[0]), put = one_copy && by_kernel(w, p->shape.rank, &refs[1]);
    for (int k = 0; nbytes > 0 && k < st->nsrc + st->ndst; k++)
        if (!(get && k == 1) && !(put && k == 0))
            ns += operand_ns(w, p->shape.rank, &refs[k], nbytes);
    return ns;
}

/* When what the step reads from other machines has come over the links. */
static double carry(walk *w, const rcclx_plan *p, const rcclx_step *st, double from)
{
    const int me = p->shape.rank;
    double nbytes = 0;

    for (int i = 0; i < st->nblk; i++)
        nbytes += piece_bytes(w, p, st, i);
    for (int k = 0; w->node && k < st->nsrc; k++) {
        const rcclx_ref *ref = &p->refs[st->first + (uint32_t)k];
        if (ref->buf != RCCLX_SCRATCH || !far_apart(w, me, ref->rank))
            continue;
        double *here = &w->link[w->node[me]], *there = &w->link[w->node[ref->rank]];
        const double ns = nbytes / w->m->net_rate;
        from = fmax(from, fmax(*here, *there)) + ns;
        *here = *there = from;
        w->carried[w->node[me]] += ns;
    }
    return from;
}

/* --- waiting ---------------------------------------------------------------- */

/* When this step may begin, as far as others are concerned; negative: not known yet. */
static double ready_at(const walk *w, const rcclx_plan *p, const rcclx_step *st, int piece)
{
    const int me = p->shape.rank, phase = st->phase;
    double at = 0;

    if (st->op == RCCLX_STEP_WAIT) {
        piece = st->lag == RCCLX_LAG_END && piece < w->walked - 1 ? -1 : piece - (st->lag == RCCLX_LAG_PREVIOUS);
        for (int r = 0; piece >= 0 && r < w->n; r++) {
            if (r == me || (st->peer != RCCLX_ALL && st->peer != r))
                continue;
            const double travel = far_apart(w, me, r) ? w->m->net_ns : 0;
            if (!phase) {
                at = fmax(at, w->m->signal_ns + travel);
                continue;
            }
            if ((uint32_t)(piece * (w->nphases + 1) + phase) >= w->passed[r])
                return -1;
            at = fmax(at, *signal_at(w, r, piece, phase) + travel);
        }
        return at;
    }
    for (int k = 0; st->op != RCCLX_STEP_SIGNAL && k < st->nsrc; k++) {
        const rcclx_ref *ref = &p->refs[st->first + (uint32_t)k];
        if (!rcclx_ranks_is_slot(st, ref) || (ref->rank == me && !p->pushes))
            continue;
        const double full = *slot_at(w, p, ref);
        if (full < 0)
            return -1;
        at = fmax(at, full + (far_apart(w, me, ref->rank) ? w->m->net_ns : 0));
    }
    return at;
}

/* The step's slots are full, and seen to be. */
static void fill(const walk *w, const rcclx_plan *p, const rcclx_step *st, double seen)
{
    for (int k = 0; k < st->ndst; k++) {
        const rcclx_ref *ref = &p->refs[st->first + st->nsrc + (uint32_t)k];
        if (rcclx_ranks_is_slot(st, ref))
            *slot_at(w, p, ref) = seen;
    }
}

static void signal(walk *w, int me, int piece, int phase, double seen)
{
    const uint32_t to = (uint32_t)(piece * (w->nphases + 1) + phase);

    for (; w->passed[me] <= to; w->passed[me]++)
        w->seen[(size_t)me * (size_t)w->walked * (size_t)(w->nphases + 1) + w->passed[me]] = seen;
}

/* Machines have equally many cores; ranks of one are dealt to them in turn. */
static int core_of(const walk *w, int rank)
{
    return (w->node ? w->node[rank] * w->m->ncores : 0) + w->place[rank] % w->m->ncores;
}

static void deal_cores(walk *w)
{
    int count[256] = { 0 }, nodes = 1;

    for (int r = 0; r < w->n && r < PRICED_RANKS; r++) {
        const int g = w->node ? w->node[r] : 0;
        w->place[r] = (uint16_t)count[g]++;
        nodes = g >= nodes ? g + 1 : nodes;
        w->crowded |= count[g] > w->m->ncores;
    }
    w->ncores = w->m->ncores * nodes;
}

/* Run a rank until it has to wait for somebody who is not there yet. */
static bool run(walk *w, int me)
{
    const rcclx_plan *p = &w->plans[me];
    const rcclx_machine *m = w->m;
    const int at = core_of(w, me);
    double *core = &w->core[at];
    bool moved = false;

    for (; w->pc[me] < p->nsteps * (uint32_t)w->walked; w->pc[me]++, moved = true) {
        const rcclx_step *st = &p->steps[w->pc[me] % p->nsteps];
        const int piece = (int)(w->pc[me] / p->nsteps);
        const double ready = ready_at(w, p, st, piece);
        if (ready < 0)
            return moved;
        if (ready > w->now[me]) {
            w->now[me] = ready;
            if (w->crowded)
                w->now[me] = fmax(ready, *core + m->switch_ns);
        }
        if (st->op == RCCLX_STEP_SIGNAL) {
            signal(w, me, piece, st->phase, w->now[me] + m->signal_ns);
        } else if (st->op != RCCLX_STEP_WAIT) {
            const double ns = step_ns(w, p, st);
            w->now[me] = fmax(carry(w, p, st, w->now[me]), *core) + ns;
            *core = w->now[me];
            w->busy[at] += ns;
            fill(w, p, st, w->now[me] + m->signal_ns);
        }
    }
    return moved;
}

/* --- all of it --------------------------------------------------------------- */

static void rewind_to_start(walk *w, int walked)
{
    const size_t n = (size_t)w->n;

    w->walked = walked;
    memset(w->pc, 0, n * sizeof(*w->pc));
    memset(w->passed, 0, n * sizeof(*w->passed));
    for (size_t r = 0; r < n; r++) {
        w->now[r] = 0;
        for (size_t s = 0; s < slots_of(w->plans); s++)
            w->slot[r * slots_of(w->plans) + s] = -1;
    }
    for (int c = 0; c < w->ncores; c++)
        w->core[c] = w->busy[c] = 0;
    memset(w->link, 0, sizeof(w->link));
    memset(w->carried, 0, sizeof(w->carried));
}

static double walk_pieces(walk *w, int walked, double *busy)
{
    double end = 0;
    bool moved = true;

    rewind_to_start(w, walked);
    while (moved) {
        moved = false;
        for (int r = 0; r < w->n; r++)
            moved |= run(w, r);
    }
    *busy = 0;
    for (int r = 0; r < w->n; r++) {
        if (w->pc[r] < w->plans[r].nsteps * (uint32_t)walked)
            return HUGE_VAL;
        end = fmax(end, w->now[r]);
    }
    for (int c = 0; c < w->ncores; c++)
        *busy = fmax(*busy, w->busy[c] / walked);
    for (int g = 0; g < 256; g++)
        *busy = fmax(*busy, w->carried[g] / walked);
    return end;
}

static double price(walk *w)
{
    double busy, ignored;
    const double one = walk_pieces(w, 1, &busy);

    if (w->npieces == 1 || isinf(one))
        return one;
    const int most = w->npieces < WALKED ? w->npieces : WALKED;
    const double many = walk_pieces(w, most, &ignored);
    const double each = fmax(busy, (many - one) / (most - 1) / LANES);
    return one + each * (w->npieces - 1);
}

static size_t footprint(const rcclx_plan *p, size_t nbytes)
{
    size_t most = 0;

    for (int r = 0; r < p->shape.nranks; r++) {
        const int nblk = rcclx_ranks_blocks(p, r, RCCLX_IN) + rcclx_ranks_blocks(p, r, RCCLX_OUT);
        const size_t mine = nbytes * (size_t)nblk / p->parts;
        most = mine > most ? mine : most;
    }
    return most;
}

static int count_pieces(const rcclx_plan *p, size_t nbytes, const rcclx_machine *m)
{
    const size_t lane = p->nslots ? m->slot_bytes / p->nslots : m->slot_bytes;
    const size_t round = m->chunk_bytes && p->nblocks ? m->chunk_bytes / p->nblocks : lane;
    const size_t slot = round < lane ? round : lane;
    const size_t block = rcclx_ranks_block_bytes(p, nbytes, 0);
    const size_t n = p->pieced && slot ? (block + slot - 1) / slot : 1;

    return n < 1 ? 1 : n > INT32_MAX ? INT32_MAX : (int)n;
}

static bool open_walk(walk *w)
{
    const size_t n = (size_t)w->n;

    for (int r = 0; r < w->n; r++)
        w->nphases = w->plans[r].nphases > w->nphases ? w->plans[r].nphases : w->nphases;
    w->seen = rcclx_mem_alloc(n * WALKED * (size_t)(w->nphases + 1) * sizeof(double));
    w->slot = rcclx_mem_alloc(n * slots_of(w->plans) * sizeof(double));
    w->now = rcclx_mem_alloc(n * sizeof(double));
    w->core = rcclx_mem_alloc((size_t)w->ncores * sizeof(double));
    w->busy = rcclx_mem_alloc((size_t)w->ncores * sizeof(double));
    w->pc = rcclx_mem_alloc(n * sizeof(uint32_t));
    w->passed = rcclx_mem_alloc(n * sizeof(uint32_t));
    return w->seen && w->slot && w->now && w->core && w->busy && w->pc && w->passed;
}

static void close_walk(walk *w)
{
    rcclx_mem_free(w->seen);
    rcclx_mem_free(w->slot);
    rcclx_mem_free(w->now);
    rcclx_mem_free(w->core);
    rcclx_mem_free(w->busy);
    rcclx_mem_free(w->pc);
    rcclx_mem_free(w->passed);
}

double rcclx_plan_price(const rcclx_algo *a, const rcclx_shape *s, size_t nbytes, unsigned facts,
                        const rcclx_machine *m)
{
    rcclx_plan *plans;

    if (m->ncores < 1)
        return HUGE_VAL;
    if (rcclx_ranks_build(a, s, &plans) != RCCLX_OK)
        return NAN; /* no memory: not a price, or ranks would choose differently */
    walk w = {
        .m = m, .plans = plans, .n = s->nranks, .nbytes = nbytes, .node = s->node,
        .npieces = count_pieces(&plans[0], nbytes, m),
        .far = footprint(&plans[0], nbytes) > m->cache_bytes,
        .in_mapped = (facts & RCCLX_FACT_IN_MAPPED) != 0,
        .out_mapped = (facts & RCCLX_FACT_OUT_MAPPED) != 0,
    };
    deal_cores(&w);
    const double ns = open_walk(&w) ? m->call_ns + price(&w) : NAN;
    close_walk(&w);
    rcclx_ranks_free(plans, s->nranks);
    return ns;
}
