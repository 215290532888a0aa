/* Memory in the checker: what every atom holds, and who touched it when.
 *
 *   user buffers   IN b   |p0|p1|p2|   OUT b  |p0|p1|p2|   an atom a piece
 *   in place       the OUT block that lies on an IN block is the same atom
 *   scratch        an atom a slot, fresh in every operation; the region it lies in is
 *                  shared by all operations (pushed slots: check_push.c)
 *
 * A read must come after the last write, a write after the last write and all reads
 * since. The user is a party too: it has written IN before the rank starts, and has
 * both buffers back when the rank returns. */
#include "plan/check_world.h"

#include "base/mem.h"

static const char *const buf_names[] = { "IN", "OUT", "SCRATCH" };

/* --- values ---------------------------------------------------------------- */

static bool grow(check_world *w, void **array, uint32_t n, uint32_t *cap, size_t size)
{
    if (n < *cap)
        return true;
    const uint32_t more = *cap ? 2 * *cap : 256;
    void *bigger = rcclx_mem_realloc(*array, more * size);
    if (!bigger)
        return rcclx_check_nomem(w);
    *array = bigger;
    *cap = more;
    return true;
}

bool rcclx_check_new_value(check_world *w, const check_value *v, uint32_t *id)
{
    void *values = w->values;

    if (!grow(w, &values, w->nvalues + 1, &w->cap_values, sizeof(*v)))
        return false;
    w->values = values;
    w->values[*id = ++w->nvalues] = *v;
    return true;
}

static bool add_reader(check_world *w, check_atom *atom, uint16_t thread, check_tick tick)
{
    void *reads = w->reads;

    if (atom->readers && w->reads[atom->readers].thread == thread) {
        w->reads[atom->readers].tick = tick;
        return true;
    }
    if (!grow(w, &reads, w->nreads + 1, &w->cap_reads, sizeof(check_read)))
        return false;
    w->reads = reads;
    w->reads[++w->nreads] = (check_read){ atom->readers, thread, tick };
    atom->readers = w->nreads;
    return true;
}

/* --- atoms ------------------------------------------------------------------ */

/* The IN block on which this OUT block lies when the rank works in place, or -1. */
static int alias(const check_op *op, int rank, int block)
{
    const rcclx_plan *p = &op->plans[rank];
    int in;

    switch (op->shape.kind) {
    case RCCLX_ALL_GATHER:
    case RCCLX_GATHER:         in = block / p->parts == rank ? block % p->parts : -1; break;
    case RCCLX_REDUCE_SCATTER:
    case RCCLX_SCATTER:        in = rank * p->parts + block; break;
    default:                   in = block;
    }
    return in < rcclx_ranks_blocks(p, rank, RCCLX_IN) ? in : -1;
}

check_atom *rcclx_check_user_atom(const check_op *op, int rank, rcclx_buf buf, int block, int piece)
{
    int at = block;

    if (buf == RCCLX_OUT) {
        const int in = op->in_place >> rank & 1 ? alias(op, rank, block) : -1;
        at = in >= 0 ? in : op->nin + block;
    }
    return &op->user[((size_t)rank * (size_t)(op->nin + op->nout) + (size_t)at) * (size_t)op->npieces + (size_t)piece];
}

static bool settle(const check_actor *a, check_atom *atom, int block, int piece)
{
    const uint64_t bit = 1ull << a->rank;
    const check_value leaf = {
        .ranks = bit, .tree = (bit + (uint64_t)block) * 0x9e3779b97f4a7c15u, .op = (uint16_t)a->index,
        .block = (uint16_t)block, .piece = (uint16_t)piece, .leaf = true,
    };
    const int thread = rcclx_check_thread(a->rank, 0);

    atom->writer = (uint16_t)thread;
    atom->written = a->lane->clock[thread];
    return block < 0 || rcclx_check_new_value(a->w, &leaf, &atom->value);
}

bool rcclx_check_begin_memory(const check_actor *a)
{
    for (int out = 0; out < 2; out++) {
        const rcclx_buf buf = out ? RCCLX_OUT : RCCLX_IN;
        for (int b = 0; b < rcclx_ranks_blocks(a->plan, a->rank, buf); b++)
            for (int i = 0; i < a->op->npieces; i++) {
                check_atom *atom = rcclx_check_user_atom(a->op, a->rank, buf, b, i);
                if (!atom->value && !settle(a, atom, out ? -1 : b, i))
                    return false;
            }
    }
    return true;
}

static bool taken_back(const check_actor *a, const check_tick *end, const check_atom *atom, rcclx_buf buf, int block)
{
    if (!rcclx_check_before(end, atom->writer, atom->written))
        return rcclx_check_fail(a, "returns while rank %d may still write its %s block %d", atom->writer / CHECK_LANES,
                                buf_names[buf], block);
    for (uint32_t r = atom->readers; r; r = a->w->reads[r].next)
        if (!rcclx_check_before(end, a->w->reads[r].thread, a->w->reads[r].tick))
            return rcclx_check_fail(a, "returns while rank %d may still read its %s block %d",
                                    a->w->reads[r].thread / CHECK_LANES, buf_names[buf], block);
    return true;
}

bool rcclx_check_end_memory(const check_actor *a, const check_tick *end)
{
    for (int out = 0; out < 2; out++) {
        const rcclx_buf buf = out ? RCCLX_OUT : RCCLX_IN;
        for (int b = 0; b < rcclx_ranks_blocks(a->plan, a->rank, buf); b++)
            for (int i = 0; i < a->op->npieces; i++)
                if (!taken_back(a, end, rcclx_check_user_atom(a->op, a->rank, buf, b, i), buf, b))
                    return false;
    }
    return true;
}

/* --- scratch regions ---------------------------------------------------------- */

/* Every access by other operations to this region must be over. */
static bool enter_region(const check_actor *a, size_t region, int owner)
{
    check_world *w = a->w;
    const size_t n = (size_t)w->n, nops = (size_t)w->nops, me = (size_t)a->rank;
    uint32_t others = 0;

    for (size_t o = 0; o < nops; o++)
        others += (int)o == a->index ? 0 : w->touches[region * nops + o];
    /* One number says both which operation looked and what it saw. */
    const uint32_t sight = others * (uint32_t)nops + (uint32_t)a->index + 1;
    if (w->cleared[region * n + me] != sight) {
        for (size_t o = 0; o < nops; o++)
            for (size_t r = 0; (int)o != a->index && w->touches[region * nops + o] && r < n; r++)
                if (!rcclx_check_before(a->lane->clock, rcclx_check_thread((int)r, a->l),
                                        w->touched[(region * nops + o) * n + r]))
                    return rcclx_check_fail(a,
                                            "uses scratch of rank %d while rank %zu may still use it in operation %zu",
                                            owner, r, o);
        w->cleared[region * n + me] = sight;
    }
    const check_tick now = a->lane->clock[rcclx_check_thread(a->rank, a->l)];
    check_tick *mine = &w->touched[(region * nops + (size_t)a->index) * n + me];
    if (*mine != now) {
        *mine = now;
        w->touches[region * nops + (size_t)a->index]++;
    }
    return true;
}

/* --- operands ------------------------------------------------------------------- */

static check_atom *scratch_atom(const check_actor *a, const rcclx_step *st, const rcclx_ref *ref, int block)
{
    const check_op *op = a->op;
    const bool ll = rcclx_ranks_is_slot(st, ref);
    const size_t rank = ref->rank, lane = (size_t)a->l;
    const size_t region = ll ? (size_t)(a->w->n * CHECK_LANES) + rank * CHECK_RING + (size_t)(a->index % CHECK_RING)
                             : rank * CHECK_LANES + lane;

    if (block >= (ll ? op->nll : op->nslots)) {
        rcclx_check_fail(a, "slot %d does not exist", block);
        return NULL;
    }
    if (!enter_region(a, region, ref->rank))
        return NULL;
    return ll ? &op->ll[rank * (size_t)op->nll + (size_t)block]
              : &op->slots[(rank * CHECK_LANES + lane) * (size_t)op->nslots + (size_t)block];
}

static check_atom *operand(const check_actor *a, const rcclx_step *st, const rcclx_ref *ref, int block)
{
    const int there = ref->rank < a->w->n ? a->w->ranks[ref->rank].op : -1;

    if (there < 0 || ref->buf > RCCLX_SCRATCH) {
        rcclx_check_fail(a, "there is no rank %d", ref->rank);
        return NULL;
    }
    if (ref->buf == RCCLX_SCRATCH)
        return scratch_atom(a, st, ref, block);
    if (block >= rcclx_ranks_blocks(a->plan, ref->rank, (rcclx_buf)ref->buf)) {
        rcclx_check_fail(a, "%s of rank %d has no block %d", buf_names[ref->buf], ref->rank, block);
        return NULL;
    }
    if (there < a->index || (there == a->index && !a->w->ranks[ref->rank].begun)) {
        rcclx_check_fail(a, "touches %s of rank %d, which may not have come yet", buf_names[ref->buf], ref->rank);
        return NULL;
    }
    if (there > a->index) {
        rcclx_check_fail(a, "touches %s of rank %d, which may have returned", buf_names[ref->buf], ref->rank);
        return NULL;
    }
    return rcclx_check_user_atom(a->op, ref->rank, (rcclx_buf)ref->buf, block, a->lane->piece);
}

static bool after_write(const check_actor *a, const check_atom *atom, const rcclx_ref *ref, int block, const char *verb)
{
    return rcclx_check_before(a->lane->clock, atom->writer, atom->written) ||
           rcclx_check_fail(a, "%s %s block %d of rank %d while rank %d may be writing it", verb, buf_names[ref->buf],
                            block, ref->rank, atom->writer / CHECK_LANES);
}

/* What the step may do to this buffer at all. */
static bool may_read(const check_actor *a, const rcclx_ref *ref)
{
    return ref->buf == RCCLX_SCRATCH || ref->rank == a->rank || a->op->algo->flags & RCCLX_NEEDS_READ ||
           rcclx_check_fail(a, "reads %s of rank %d, but the algorithm does not ask for that", buf_names[ref->buf],
                            ref->rank);
}

static bool may_write(const check_actor *a, const rcclx_ref *ref)
{
    if (ref->buf == RCCLX_IN)
        return rcclx_check_fail(a, "writes IN of rank %d", ref->rank);
    return ref->buf == RCCLX_SCRATCH || ref->rank == a->rank || a->op->algo->flags & RCCLX_NEEDS_WRITE ||
           rcclx_check_fail(a, "writes %s of rank %d, but the algorithm does not ask for that", buf_names[ref->buf],
                            ref->rank);
}

bool rcclx_check_load(const check_actor *a, const rcclx_step *st, const rcclx_ref *ref, int block, uint32_t *value)
{
    if (rcclx_ranks_is_pushed(a->plan, st, ref))
        return rcclx_check_take(a, ref, block, value);
    check_atom *atom = operand(a, st, ref, block);
    if (!atom || !may_read(a, ref) || !after_write(a, atom, ref, block, "reads"))
        return false;
    if (!atom->value)
        return rcclx_check_fail(a, "reads %s block %d of rank %d, which holds nothing of this operation",
                                buf_names[ref->buf], block, ref->rank);
    *value = atom->value;
    const int thread = rcclx_check_thread(a->rank, a->l);
    return add_reader(a->w, atom, (uint16_t)thread, a->lane->clock[thread]);
}

bool rcclx_check_store(const check_actor *a, const rcclx_step *st, const rcclx_ref *ref, int block, uint32_t value)
{
    if (rcclx_ranks_is_pushed(a->plan, st, ref))
        return rcclx_check_push(a, ref, block, value);
    check_atom *atom = operand(a, st, ref, block);
    if (!atom || !may_write(a, ref) || !after_write(a, atom, ref, block, "writes"))
        return false;
    for (uint32_t r = atom->readers; r; r = a->w->reads[r].next)
        if (!rcclx_check_before(a->lane->clock, a->w->reads[r].thread, a->w->reads[r].tick))
            return rcclx_check_fail(a, "writes %s block %d of rank %d while rank %d may be reading it",
                                    buf_names[ref->buf], block, ref->rank, a->w->reads[r].thread / CHECK_LANES);
    const int thread = rcclx_check_thread(a->rank, a->l);
    *atom = (check_atom){ .value = value, .writer = (uint16_t)thread, .written = a->lane->clock[thread] };
    return true;
}
