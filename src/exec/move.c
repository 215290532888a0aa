/* The data steps on the host.
 *
 *   all operands have an address:   one pass of rcclx_reduce or rcclx_copy
 *   some do not (CMA):              part by part through a bounce buffer that stays in
 *                                   the cache:
 *
 *      remote source --get--> bounce --+
 *      mapped sources -----------------+--reduce--> bounce --put--> remote destinations
 *                                                      +--copy--> mapped destinations
 *   in low precision:               scratch holds runs of codes; one call of rcclx_codec_move
 */
#include "exec/precision.h"
#include "exec/runner.h"

#include "device/reduce.h"

#include <string.h>

enum { PART = 128 << 10, ABORT_BYTES = 128 << 20 };

/* Where an operand's block begins in its buffer and how long it is, in elements. */
typedef struct { size_t begin, length; } range;

static range table_range(const rcclx_view *v, const rcclx_ref *ref, int block)
{
    if (ref->buf == RCCLX_OUT)
        return (range){ v->rdispls[block], v->rcounts[block] };
    if (ref->rank == v->rank)
        return (range){ v->sdispls[block], v->scounts[block] };
    return (range){ v->peer_displ[ref->rank], v->rcounts[ref->rank] };
}

static range block_range(const rcclx_view *v, const rcclx_ref *ref, int block)
{
    range r;

    if (v->plan->cut == RCCLX_CUT_TABLE)
        return table_range(v, ref, block);
    rcclx_plan_block(v->plan, v->count, v->size, block, &r.begin, &r.length);
    return r;
}

static range cut_piece(const rcclx_view *v, range r, uint32_t piece)
{
    if (!v->plan->pieced)
        return r;
    const size_t skip = (size_t)piece * v->slot_count;
    if (skip >= r.length)
        return (range){ r.begin + r.length, 0 };
    const size_t left = r.length - skip;
    return (range){ r.begin + skip, left < v->slot_count ? left : v->slot_count };
}

/* An operand: its address, or NULL and the place in the peer's memory. */
typedef struct { char *at; uint64_t place; int rank; } operand;

static operand locate(const rcclx_runner *run, const rcclx_lane *l, const rcclx_step *s, const rcclx_ref *ref, int block,
                      uint32_t piece, size_t *length)
{
    const rcclx_view *v = &run->view;
    const bool slots = ref->buf == RCCLX_SCRATCH && s->proto == RCCLX_PROTO_SIMPLE;
    const bool whole = v->plan->nblocks == 1 && v->plan->cut == RCCLX_CUT_SPLIT && !v->plan->pieced;
    const int r = ref->rank;

    if (slots)
        return (operand){ l->scratch[r] + (size_t)(ref->block + block) * v->slot_bytes, 0, r };
    const range part = whole ? (range){ 0, v->count } : cut_piece(v, block_range(v, ref, ref->block + block), piece);
    const size_t skip = part.begin * v->size;
    *length = part.length;
    if (ref->buf == RCCLX_SCRATCH)
        return (operand){ v->slot[r] + skip, 0, r };
    char *base = ref->buf == RCCLX_IN ? v->in[r] : v->out[r];
    const uint64_t place = ref->buf == RCCLX_IN ? run->place_in[r] : run->place_out[r];
    return (operand){ base ? base + skip : NULL, place + skip, r };
}

/* What is read again soon stays in the cache: scratch, and what a step writes beside it. */
static bool streams(const rcclx_runner *run, const rcclx_step *s)
{
    const rcclx_ref *dst = &run->view.plan->refs[s->first + s->nsrc];

    for (int i = 0; i < s->ndst; i++)
        if (dst[i].buf == RCCLX_SCRATCH)
            return false;
    return run->streaming;
}

static void combine(const rcclx_runner *run, const rcclx_step *s, const void *const *src, void *const *dst, int ndst,
                    const uint64_t *scalar, size_t count, bool streaming)
{
    const rcclx_op *op = &run->task->op;
    const bool copy = s->op == RCCLX_STEP_COPY;

    if (copy && ndst == 1) {
        if (dst[0] != src[0])
            rcclx_copy(dst[0], src[0], count * run->view.size, streaming);
        return;
    }
    const rcclx_reduce_args a = {
        .type = op->type, .op = copy ? RCCLX_COPY : op->op, .nsrc = s->nsrc, .ndst = ndst, .src = src, .dst = dst,
        .count = count, .divisor = op->op == RCCLX_AVG && s->final ? run->view.nranks : 0,
        .scalar = op->op == RCCLX_PREMUL && !copy ? scalar : NULL, .streaming = streaming,
    };
    rcclx_reduce(&a);
}

static uint64_t one_of(rcclx_type t)
{
    static const uint64_t one[RCCLX_TYPE_COUNT] = {
        [RCCLX_I8] = 1, [RCCLX_U8] = 1, [RCCLX_I32] = 1, [RCCLX_U32] = 1, [RCCLX_I64] = 1, [RCCLX_U64] = 1,
        [RCCLX_F16] = 0x3c00, [RCCLX_F32] = 0x3f800000, [RCCLX_F64] = 0x3ff0000000000000, [RCCLX_BF16] = 0x3f80,
        [RCCLX_F8E4M3] = 0x38, [RCCLX_F8E5M2] = 0x3c,
    };
    return one[t];
}

/* Part by part, fetching and delivering what has no address here. A result that
 * has to be delivered is made in the bounce buffer, where the kernel finds it in
 * the cache. */
static rcclx_status through_bounce(const rcclx_runner *run, const rcclx_step *s, const operand *src, const operand *dst, int ndst,
                                   const uint64_t *scalar, size_t count)
{
    const size_t size = run->view.size;
    const bool copy = s->op == RCCLX_STEP_COPY;
    int nget = 0, nput = 0;
    const void *from[RCCLX_MAX_RANKS];
    void *to[RCCLX_MAX_RANKS];

    for (int i = 0; i < s->nsrc; i++)
        nget += !src[i].at;
    for (int i = 0; i < ndst; i++)
        nput += !dst[i].at;
    size_t part = RCCLX_BOUNCE_BYTES / (size_t)(nget + 1) / size;
    if (part * size > PART)
        part = PART / size;
    for (size_t done = 0; done < count; done += part) {
        const size_t n = count - done < part ? count - done : part, skip = done * size;
        char *next = run->bounce;
        int nnear = 0;
        for (int i = 0; i < ndst; i++)
            if (dst[i].at)
                to[nnear++] = dst[i].at + skip;
        for (int i = 0; i < s->nsrc; i++) {
            /* a plain copy to one place needs no bounce */
            char *here = copy && nnear == 1 && !nput ? to[0] : next;
            from[i] = src[i].at ? src[i].at + skip : here;
            if (src[i].at)
                continue;
            RCCLX_TRY(rcclx_peer_get(&run->team->peer[src[i].rank], here, src[i].place + skip, n * size));
            next += part * size;
        }
        const void *home = copy ? from[0] : next;
        if (!copy && nput) {
            void *const result[1] = { next };
            combine(run, s, from, result, 1, scalar, n, false);
            for (int i = 0; i < nnear; i++)
                rcclx_copy(to[i], next, n * size, run->streaming);
        } else if (nnear) {
            combine(run, s, from, to, nnear, scalar, n, run->streaming);
        }
        for (int i = 0; i < ndst; i++)
            if (!dst[i].at)
                RCCLX_TRY(rcclx_peer_put(&run->team->peer[dst[i].rank], dst[i].place + skip, home, n * size));
        RCCLX_TRY(rcclx_team_broken(run->team));
    }
    return RCCLX_OK;
}

/* Everything has an address. Long blocks go in parts, between which an abort is seen. */
static rcclx_status in_parts(const rcclx_runner *run, const rcclx_step *s, const void **src, void **dst, int ndst,
                             const uint64_t *scalar, size_t count)
{
    const size_t part = __builtin_expect(count > ABORT_BYTES / 8, 0) ? ABORT_BYTES / run->view.size : count;
    const bool streaming = run->streaming && streams(run, s);

    while (count > part) {
        combine(run, s, src, dst, ndst, scalar, part, streaming);
        count -= part;
        for (int i = 0; i < s->nsrc; i++)
            src[i] = (const char *)src[i] + part * run->view.size;
        for (int i = 0; i < ndst; i++)
            dst[i] = (char *)dst[i] + part * run->view.size;
        RCCLX_TRY(rcclx_team_broken(run->team));
    }
    combine(run, s, src, dst, ndst, scalar, count, streaming);
    return RCCLX_OK;
}

/* What the slots of a step hold: for all but an all-to-all-v what the operation says; there each message by its length. */
static rcclx_codec_id codec_of(const rcclx_runner *run, const rcclx_step *s, int block)
{
    const rcclx_view *v = &run->view;
    const rcclx_op *op = &run->task->op;
    const rcclx_ref *ref = &v->plan->refs[s->first];

    if (!s->coded)
        return RCCLX_CODEC_NONE;
    while (ref->buf == RCCLX_SCRATCH)
        ref++;
    return v->plan->cut == RCCLX_CUT_TABLE ? rcclx_message_codec(op, block_range(v, ref, ref->block + block).length)
                                           : (rcclx_codec_id)op->codec;
}

static void through_codec(const rcclx_runner *run, const rcclx_step *s, rcclx_codec_id codec, const void *const *src,
                          void *const *dst, size_t count)
{
    const rcclx_op *op = &run->task->op;
    const rcclx_ref *refs = &run->view.plan->refs[s->first];
    bool coded[2 * RCCLX_MAX_RANKS];

    for (int i = 0; i < s->nsrc + s->ndst; i++)
        coded[i] = refs[i].buf == RCCLX_SCRATCH;
    const rcclx_codec_args a = {
        .codec = codec, .type = op->type, .nsrc = s->nsrc, .ndst = s->ndst, .src = src, .dst = dst, .src_coded = coded,
        .dst_coded = coded + s->nsrc, .count = count, .divisor = op->op == RCCLX_AVG && s->final ? run->view.nranks : 0,
    };
    rcclx_codec_move(&a);
}

/* The length of a step whose operands are all slots: what the first, longest, block has in this piece. */
static size_t slot_length(const rcclx_view *v, uint32_t piece)
{
    const rcclx_ref first = { .buf = RCCLX_IN, .rank = (uint16_t)v->rank };

    return v->plan->cut == RCCLX_CUT_TABLE || !v->plan->pieced ? v->slot_count : cut_piece(v, block_range(v, &first, 0), piece).length;
}

/* A copy onto itself (in place, at the root of a broadcast) is none: leave those
 * destinations out. Returns how many stay. */
static int others_than(const operand *src, operand *dst, void **to, int ndst)
{
    int n = 0;

    for (int i = 0; i < ndst; i++) {
        if (dst[i].at ? dst[i].at == src->at : !src->at && dst[i].rank == src->rank && dst[i].place == src->place)
            continue;
        dst[n] = dst[i];
        to[n++] = dst[i].at;
    }
    return n;
}

/* How much of my slots far ranks have to be sent. */
static void note_filled(const rcclx_lane *l, const rcclx_step *s, const rcclx_ref *dst, int block, size_t nbytes)
{
    for (int i = 0; i < s->ndst; i++)
        if (dst[i].buf == RCCLX_SCRATCH)
            l->filled[dst[i].block + block] = nbytes;
}

int rcclx_runner_move(rcclx_view *v, const rcclx_lane *l, const rcclx_step *s, uint32_t piece, int block)
{
    rcclx_runner *run = (rcclx_runner *)v;
    operand o[2 * RCCLX_MAX_RANKS];
    const void *src[RCCLX_MAX_RANKS];
    void *dst[RCCLX_MAX_RANKS];
    uint64_t scalar[RCCLX_MAX_RANKS];
    size_t count = 0;
    bool slots_only = true;
    bool far = false;
    const rcclx_ref *ref = &v->plan->refs[s->first];
    const bool premul = run->task->op.op == RCCLX_PREMUL;

    for (int i = 0; i < s->nsrc + s->ndst; i++) {
        o[i] = locate(run, l, s, &ref[i], block, piece, &count);
        slots_only &= ref[i].buf == RCCLX_SCRATCH && s->proto == RCCLX_PROTO_SIMPLE;
        far |= !o[i].at;
        if (i >= s->nsrc) {
            dst[i - s->nsrc] = o[i].at;
            continue;
        }
        src[i] = o[i].at;
        if (premul)
            scalar[i] = ref[i].raw ? run->scalar[ref[i].rank] : one_of(run->task->op.type);
    }
    if (slots_only)
        count = slot_length(v, piece);
    const rcclx_codec_id codec = codec_of(run, s, block);
    if (l->filled && s->proto == RCCLX_PROTO_SIMPLE)
        note_filled(l, s, ref + s->nsrc, block, codec ? rcclx_codec_bytes(count) : count * v->size);
    if (codec) {
        if (count)
            through_codec(run, s, codec, src, dst, count);
        return 0;
    }
    const int ndst = s->op == RCCLX_STEP_COPY ? others_than(&o[0], o + s->nsrc, dst, s->ndst) : s->ndst;
    if (!count || !ndst)
        return 0;
    if (!far) {
        run->failure = in_parts(run, s, src, dst, ndst, scalar, count);
        return run->failure != RCCLX_OK;
    }
    run->failure = through_bounce(run, s, o, o + s->nsrc, ndst, scalar, count);
    return run->failure != RCCLX_OK;
}
