#ifndef RCCLX_TESTS_CODED_H
#define RCCLX_TESTS_CODED_H

/* What calls in low precision must give, to the last bit. The codec is asked by its public
 * interface, piece by piece; who adds what is worked out here, from the plan's blocks:
 *
 *   sums         per block: the owner's part as it is, the others' through the codec; added in f32
 *                in rank order, divided; AllReduce: through the codec once more; rounded
 *   AllGather,   through the codec, the own part too
 *   Broadcast
 *   AlltoAll(v)  the own part as it is, the others' through the codec; a message is a block
 *   Send, Recv   one message; to oneself as it is
 *
 * A block begins a grid of 32 elements, whatever the pieces it goes in. Calls without a codec are
 * held against docs/numerics.md.
 *
 *   coded_call c = { .kind = RCCLX_ALL_REDUCE, .type = RCCLX_BF16, .op = RCCLX_SUM, .codec = RCCLX_CODEC_FP8,
 *                    .n = 4, .count = 1000, .seed = 7, .algo = "staged" };
 *   coded_values(&c, rank, 0, in_elements, in);       what rank's IN holds
 *   coded_expect(&c, rank, want);                     what its OUT must hold
 *   coded_holds(&c, rank, out, want, n, "out");        told where it does not
 *
 * Call reference_init first. */
#include "conform/conform.h"

#include "codec/codec.h"
#include "device/convert.h"

typedef struct {
    rcclx_kind     kind;
    rcclx_type     type;
    rcclx_redop    op;     /* COPY for what reduces nothing */
    rcclx_codec_id codec;
    int            n, root;
    size_t         count;
    uint64_t       seed;
    const char    *algo;   /* whose blocks they are */
    const char    *given;  /* what every rank's IN holds; NULL: values by seed and rank */
} coded_call;

enum { CODED_CHUNK = 512, CODED_GROUP = 32 };

static inline void coded_tell(const coded_call *c, char *text, size_t nbytes)
{
    snprintf(text, nbytes, "%s of %zu %s %s in %s, root %d, %d ranks, seed %#llx", rcclx_kind_name(c->kind), c->count,
             rcclx_type_name(c->type), rcclx_redop_name(c->op), c->codec ? rcclx_codecs[c->codec]->name : "full precision",
             c->root, c->n, (unsigned long long)c->seed);
}

/* ---- buffers */

/* Elements from rank `from` to rank `to` in an all-to-all-v: of a part of c->count. */
static inline size_t coded_part_of(const coded_call *c, int from, int to)
{
    return c->count * (size_t)((from + 2 * to + (int)(c->seed & 3)) % 4) / 3;
}

/* Elements of a rank's buffers; 0: it has none. */
static inline void coded_lengths(const coded_call *c, int rank, size_t *in, size_t *out)
{
    const size_t     all = c->count * (size_t)c->n;
    const rcclx_kind k = c->kind;

    *in = *out = c->count;
    if (k == RCCLX_ALL_GATHER || k == RCCLX_ALL_TO_ALL || k == RCCLX_ALL_TO_ALLV)
        *out = all;
    if (k == RCCLX_REDUCE_SCATTER || k == RCCLX_ALL_TO_ALL || k == RCCLX_ALL_TO_ALLV)
        *in = all;
    if (k == RCCLX_GATHER)
        *out = rank == c->root ? all : 0;
    if (k == RCCLX_SCATTER)
        *in = rank == c->root ? all : 0;
    if (k == RCCLX_REDUCE_TO && rank != c->root)
        *out = 0;
    if (k == RCCLX_BROADCAST && rank != c->root)
        *in = 0;
}

/* Is there low precision for it? */
static inline bool coded_may(const coded_call *c)
{
    const unsigned none = 1u << RCCLX_REDUCE_TO | 1u << RCCLX_GATHER | 1u << RCCLX_SCATTER;
    const bool     op = c->op == RCCLX_SUM || c->op == RCCLX_AVG || c->op == RCCLX_COPY;

    return !(none >> c->kind & 1) && rcclx_codec_takes(c->type) && op;
}

/* ---- data: groups of elements of one size each, of all sizes; zeros, values near the largest, Inf and NaN */

static inline void coded_round(rcclx_type t, float x, void *p)
{
    const float    y = isnan(x) ? rcclx_f32_from_bits(0x7fc00000) : x;
    const uint16_t h = t == RCCLX_F16 ? rcclx_f32_to_f16(y) : rcclx_f32_to_bf16(y);

    if (t == RCCLX_F32)
        memcpy(p, &y, 4);
    else
        memcpy(p, &h, 2);
}

/* A value below 2^top, of one of eight sizes. */
static inline uint64_t coded_below(rcclx_type t, int top, uint64_t h)
{
    const int   by = top - (int)(h >> 40 & 7);
    const float one = (float)((int32_t)h >> 6) * 0x1p-25f * rcclx_f32_from_bits((uint32_t)(127 + by / 2) << 23);
    uint64_t    bits = 0;

    coded_round(t, one * rcclx_f32_from_bits((uint32_t)(127 + by - by / 2) << 23), &bits);
    return bits;
}

static inline uint64_t coded_float(rcclx_type t, int kind, int scale, uint64_t h)
{
    const uint64_t inf = t == RCCLX_F32 ? 0x7f800000 : t == RCCLX_BF16 ? 0x7f80 : 0x7c00;
    const uint64_t sign = (h & 1) << (8 * rcclx_type_size(t) - 1);

    switch (kind) {
    case 0: return sign;
    case 1: return coded_below(t, t == RCCLX_F16 ? 16 : 128, h);
    case 2: return coded_below(t, t == RCCLX_F16 ? -14 : -118, h);
    case 3: return h; /* any bits */
    case 4:
        if ((h >> 48) % 24 == 0)
            return inf | sign | (h & 2 ? 0 : 1 | (h >> 3 & 15)); /* Inf, or NaN of any name */
    /* fallthrough */
    default: return coded_below(t, t == RCCLX_F16 ? scale % 13 : scale, h);
    }
}

/* Elements [from, from + count) of rank's IN. */
static inline void coded_values(const coded_call *c, int rank, size_t from, size_t count, void *dst)
{
    const size_t   size = rcclx_type_size(c->type), shift = c->seed % CODED_GROUP;
    const uint64_t mine = conform_mix(c->seed + (uint64_t)(rank + 1) * 0x9e3779b97f4a7c15u);
    const bool     calm = c->seed >> 5 & 1; /* sums of few huge values hide the others: every second call has none */
    uint64_t       group = 0, hash = 0;

    if (c->given) {
        memcpy(dst, c->given + from * size, count * size);
        return;
    }
    for (size_t i = from; i < from + count; i++) {
        const uint64_t h = conform_mix(mine + i * 0xd1342543de82ef95u);
        uint64_t       bits = h;
        if (i == from || (i + shift) / CODED_GROUP != group) {
            group = (i + shift) / CODED_GROUP;
            hash = conform_mix(c->seed ^ (group + 1) * 0xa0761d6478bd642fu);
            hash = hash & 1 ? hash : conform_mix(hash + (uint64_t)rank); /* alike on all ranks, or not */
        }
        if (c->type >= RCCLX_F16 && rcclx_type_size(c->type) < 8)
            bits = coded_float(c->type, !calm ? (int)(hash >> 8 & 7) : hash >> 8 & 7 ? 5 : 0, (int)(hash >> 16 & 31) - 12, h);
        else if (c->type == RCCLX_F64)
            bits = conform_encode(RCCLX_F64, ldexp((double)(int32_t)h, (int)(hash >> 16 & 31) - 43));
        memcpy((char *)dst + (i - from) * size, &bits, size);
    }
}

static inline float coded_widen(rcclx_type t, const void *p)
{
    uint16_t h;
    float    x;

    if (t == RCCLX_F32)
        return memcpy(&x, p, 4), x;
    memcpy(&h, p, 2);
    return t == RCCLX_F16 ? rcclx_f16_to_f32(h) : rcclx_bf16_to_f32(h);
}

/* ---- through the codec */

static inline float coded_most(rcclx_type t)
{
    return t == RCCLX_F16 ? 65504 : t == RCCLX_BF16 ? 0x1.fep127f : FLT_MAX;
}

/* What a run of a type's elements stands for in f32, before it is rounded to the type. */
static inline void coded_open(const coded_call *c, const void *wire, size_t count, float *x)
{
    const float most = coded_most(c->type);

    rcclx_codecs[c->codec]->decode(RCCLX_F32, wire, count, x);
    for (size_t i = 0; i < count; i++)
        if (isfinite(x[i]))
            x[i] = fminf(fmaxf(x[i], -most), most);
}

/* A sum in f32, as others get it: what the type cannot hold is Inf. */
static inline void coded_again(const coded_call *c, float *x, size_t count)
{
    _Alignas(16) unsigned char wire[2 * CODED_CHUNK];

    for (size_t i = 0; i < count; i++)
        if (c->type == RCCLX_F16 && fabsf(x[i]) >= 65520)
            x[i] = copysignf(INFINITY, x[i]);
    rcclx_codecs[c->codec]->encode(RCCLX_F32, x, count, wire);
    coded_open(c, wire, count, x);
}

/* What is promised of a block that is moved, without a look at codes and scales. */
static inline bool coded_sane(const coded_call *c, const char *in, const char *out, size_t count)
{
    const size_t size = rcclx_type_size(c->type);
    const double loss = (c->codec == RCCLX_CODEC_INT8 ? 0.0041 : 0.039) + (c->type == RCCLX_BF16 ? 0.004 : 0.0005);
    const double least = c->type == RCCLX_F16 ? 0x1p-24 : 0x1p-121;
    double       m = 0;

    for (size_t i = 0; i < count; i++)
        m = isfinite(coded_widen(c->type, in + i * size)) ? fmax(m, fabsf(coded_widen(c->type, in + i * size))) : m;
    for (size_t i = 0; i < count; i++) {
        const double x = coded_widen(c->type, in + i * size), y = coded_widen(c->type, out + i * size);
        const bool   held = isfinite(x) ? fabs(x - y) <= m * loss + least : isnan(x) ? isnan(y) : x == y;
        if (!CHECK(held, "%g came out as %g, largest of its block %g", x, y, m))
            return false;
    }
    return true;
}

/* Elements from `from` on of rank's IN, a message or block, as another rank gets them. */
static inline void coded_move(const coded_call *c, int rank, size_t from, size_t count, bool exact, void *out)
{
    const size_t size = rcclx_type_size(c->type);
    _Alignas(16) unsigned char wire[2 * CODED_CHUNK];
    char         in[CODED_CHUNK * 8];

    if (exact || !c->codec) {
        coded_values(c, rank, from, count, out);
        return;
    }
    for (size_t at = 0, part; at < count; at += part) {
        char *to = (char *)out + at * size;
        part = count - at < CODED_CHUNK ? count - at : CODED_CHUNK;
        coded_values(c, rank, from + at, part, in);
        rcclx_codecs[c->codec]->encode(c->type, in, part, wire);
        rcclx_codecs[c->codec]->decode(c->type, wire, part, to);
        for (size_t i = 0; i < part; i += CODED_GROUP)
            if (!coded_sane(c, in + i * size, to + i * size, part - i < CODED_GROUP ? part - i : CODED_GROUP))
                return;
    }
}

/* ---- sums */

static inline void coded_contribution(const coded_call *c, int rank, size_t from, size_t count, bool own, float *x)
{
    const size_t size = rcclx_type_size(c->type);
    _Alignas(16) unsigned char wire[2 * CODED_CHUNK];
    char         in[CODED_CHUNK * 4];

    coded_values(c, rank, from, count, in);
    if (own) {
        for (size_t i = 0; i < count; i++)
            x[i] = coded_widen(c->type, in + i * size);
        return;
    }
    rcclx_codecs[c->codec]->encode(c->type, in, count, wire);
    coded_open(c, wire, count, x);
}

/* A block that begins at `from` of every rank's IN, and is `owner`'s to add. */
static inline void coded_sum(const coded_call *c, int owner, size_t from, size_t count, char *out)
{
    float sum[CODED_CHUNK], x[CODED_CHUNK];

    for (size_t at = 0, part; at < count; at += part) {
        part = count - at < CODED_CHUNK ? count - at : CODED_CHUNK;
        for (int r = 0; r < c->n; r++) {
            coded_contribution(c, r, from + at, part, r == owner, r ? x : sum);
            for (size_t i = 0; r && i < part; i++)
                sum[i] = sum[i] + x[i];
        }
        for (size_t i = 0; c->op == RCCLX_AVG && i < part; i++)
            sum[i] = sum[i] / (float)c->n;
        if (c->kind == RCCLX_ALL_REDUCE)
            coded_again(c, sum, part);
        for (size_t i = 0; i < part; i++)
            coded_round(c->type, sum[i], out + (at + i) * rcclx_type_size(c->type));
    }
}

/* The same in full precision. */
static inline uint64_t coded_scalar(const coded_call *c, int rank)
{
    return c->type < RCCLX_F16 ? (uint64_t)(rank % 3) : conform_encode(c->type, (double)(rank % 3) - 1.5);
}

static inline void coded_full(const coded_call *c, size_t from, size_t count, char *out)
{
    const size_t size = rcclx_type_size(c->type);
    uint64_t     s[CONFORM_RANKS], scalar[CONFORM_RANKS];
    char        *in = malloc((size_t)c->n * count * size + 1);

    if (!CHECK(in, "no memory"))
        exit(99);
    for (int r = 0; r < c->n; r++) {
        scalar[r] = coded_scalar(c, r);
        coded_values(c, r, from, count, in + (size_t)r * count * size);
    }
    for (size_t i = 0; i < count; i++) {
        for (int r = 0; r < c->n; r++)
            s[r] = bits_get(in + ((size_t)r * count + i) * size, size);
        const uint64_t bits = reference(c->type, c->op, c->n, s, c->n, c->op == RCCLX_PREMUL ? scalar : NULL);
        memcpy(out + i * size, &bits, size);
    }
    free(in);
}

/* ---- a whole call */

static inline void coded_block(const coded_call *c, const rcclx_plan *p, int rank, int b, char *out)
{
    const size_t size = rcclx_type_size(c->type);
    const int    owner = b * c->n / p->nblocks;
    size_t       begin, length;

    rcclx_plan_block(p, c->count, size, b, &begin, &length);
    const size_t inside = begin - (p->cut == RCCLX_CUT_EVEN ? (size_t)owner * c->count : 0);
    switch (c->kind) {
    case RCCLX_ALL_REDUCE:     coded_sum(c, owner, begin, length, out + begin * size); break;
    case RCCLX_BROADCAST:      coded_move(c, c->root, begin, length, false, out + begin * size); break;
    case RCCLX_ALL_GATHER:     coded_move(c, owner, inside, length, false, out + begin * size); break;
    case RCCLX_ALL_TO_ALL:
        coded_move(c, owner, (size_t)rank * c->count + inside, length, owner == rank, out + begin * size);
        break;
    default:
        if (owner == rank)
            coded_sum(c, owner, begin, length, out + inside * size);
    }
}

static inline void coded_expect_blocks(const coded_call *c, int rank, char *out)
{
    const rcclx_algo *a = rcclx_algo_find(c->algo);
    const rcclx_shape s = { .kind = c->kind, .nranks = c->n, .rank = 0, .root = c->root, .coded = 1 };
    rcclx_plan        p = { 0 };

    a->build(&p, &s);
    CHECK(p.status == RCCLX_OK && p.nblocks, "no plan of %s", c->algo);
    for (int b = 0; b < p.nblocks; b++)
        coded_block(c, &p, rank, b, out);
    rcclx_plan_fini(&p);
}

/* Of kinds that move: the part of `out` that comes from rank r, in full precision or message by message. */
static inline void coded_expect_parts(const coded_call *c, int rank, char *out)
{
    const size_t part = c->count * rcclx_type_size(c->type);

    for (int r = 0; r < c->n; r++) {
        char *to = out + (size_t)r * part;
        if (c->kind == RCCLX_ALL_TO_ALLV)
            coded_move(c, r, c->count * (size_t)rank, coded_part_of(c, r, rank), r == rank, to);
        else
            coded_values(c, r, c->kind == RCCLX_ALL_TO_ALL ? c->count * (size_t)rank : 0, c->count, to);
    }
}

/* What rank's OUT must be. What is not written holds CONFORM_FENCE. A call of kind SEND is one message from
 * c->root; OUT is the receiver's. */
static inline void coded_expect(const coded_call *c, int rank, char *out)
{
    size_t in, n;

    coded_lengths(c, rank, &in, &n);
    memset(out, CONFORM_FENCE, n * rcclx_type_size(c->type));
    if (!n)
        return;
    if (c->codec && c->kind != RCCLX_ALL_TO_ALLV && c->kind != RCCLX_SEND)
        coded_expect_blocks(c, rank, out);
    else if (c->kind == RCCLX_ALL_REDUCE || c->kind == RCCLX_REDUCE_TO)
        coded_full(c, 0, c->count, out);
    else if (c->kind == RCCLX_REDUCE_SCATTER)
        coded_full(c, c->count * (size_t)rank, c->count, out);
    else if (c->kind == RCCLX_SEND)
        coded_move(c, c->root, 0, c->count, c->root == rank, out);
    else if (c->kind == RCCLX_BROADCAST || c->kind == RCCLX_SCATTER)
        coded_values(c, c->root, c->kind == RCCLX_SCATTER ? c->count * (size_t)rank : 0, c->count, out);
    else
        coded_expect_parts(c, rank, out);
}

/* Is OUT another one on every rank? */
static inline bool coded_differs(const coded_call *c)
{
    return c->kind != RCCLX_ALL_REDUCE && c->kind != RCCLX_ALL_GATHER && c->kind != RCCLX_BROADCAST;
}

static inline bool coded_holds(const coded_call *c, int rank, const char *got, const char *want, size_t count, const char *name)
{
    const size_t size = rcclx_type_size(c->type);
    char         text[300];
    size_t       at = 0;

    if (!memcmp(got, want, count * size))
        return true;
    while (!memcmp(got + at * size, want + at * size, size))
        at++;
    coded_tell(c, text, sizeof text);
    return CHECK(false, "%s: rank %d: %s[%zu] is %#llx instead of %#llx", text, rank, name, at,
                 (unsigned long long)bits_get(got + at * size, size), (unsigned long long)bits_get(want + at * size, size));
}

/* ---- a rank's buffers: IN, OUT and the bytes around them */

typedef struct {
    char       *in, *out;
    size_t      in_bytes, out_bytes;
    ncclRedOp_t op;
} coded_buffers;

/* Where the smaller buffer lies in the larger one when both are one: elements. */
static inline size_t coded_inside(const coded_call *c, int rank)
{
    const rcclx_kind k = c->kind;
    const bool       parts = k == RCCLX_ALL_GATHER || k == RCCLX_REDUCE_SCATTER || k == RCCLX_GATHER || k == RCCLX_SCATTER;

    return parts ? c->count * (size_t)rank : 0;
}

static inline void coded_lay_out(coded_buffers *b, const coded_call *c, int rank, bool in_place, char *in_at, char *out_at)
{
    const size_t size = rcclx_type_size(c->type), inside = coded_inside(c, rank) * size;
    size_t       in, out;

    coded_lengths(c, rank, &in, &out);
    *b = (coded_buffers){ .in = in_at, .out = out_at, .in_bytes = in * size, .out_bytes = out * size };
    if (in_place && in && out && in <= out)
        b->in = b->out + inside;
    else if (in_place && in && out)
        b->out = b->in + inside;
}

static inline bool coded_overlap(const coded_buffers *b)
{
    return b->in < b->out + b->out_bytes && b->out < b->in + b->in_bytes;
}

static inline void coded_prepare(const coded_buffers *b, const coded_call *c, int rank)
{
    memset(b->out, CONFORM_FENCE, b->out_bytes);
    conform_fence(b->out, b->out_bytes);
    if (!coded_overlap(b) || b->in_bytes > b->out_bytes)
        conform_fence(b->in, b->in_bytes);
    coded_values(c, rank, 0, b->in_bytes / rcclx_type_size(c->type), b->in);
}

/* IN, wherever OUT does not lie over it, and the bytes around both. */
static inline bool coded_rest(const coded_buffers *b, const coded_call *c, int rank)
{
    const size_t size = rcclx_type_size(c->type);
    const size_t before = b->out > b->in ? (size_t)(b->out - b->in) : 0, after = before + b->out_bytes;
    const bool   over = coded_overlap(b), larger = b->in_bytes > b->out_bytes;
    char        *in = malloc(b->in_bytes + 1);
    bool         ok = CHECK(in, "no memory");

    if (ok && (!over || larger))
        coded_values(c, rank, 0, b->in_bytes / size, in);
    if (ok && !over)
        ok = coded_holds(c, rank, b->in, in, b->in_bytes / size, "in, which must not change,");
    else if (ok && larger)
        ok = coded_holds(c, rank, b->in, in, before / size, "in before out") &&
             coded_holds(c, rank, b->in + after, in + after, (b->in_bytes - after) / size, "in after out");
    free(in);
    return CHECK((over && larger) || conform_fenced(b->out, b->out_bytes), "rank %d: bytes beside out were written", rank) &&
           CHECK((over && !larger) || conform_fenced(b->in, b->in_bytes), "rank %d: bytes beside in were written", rank) && ok;
}

static inline bool coded_verify(const coded_buffers *b, const coded_call *c, int rank, const char *want)
{
    return coded_holds(c, rank, b->out, want, b->out_bytes / rcclx_type_size(c->type), "out") && coded_rest(b, c, rank);
}

/* ---- calls */

/* The call itself, of any kind but SEND. ask: 0, or 1 + a codec that the call names. */
static inline ncclResult_t coded_post(const coded_call *c, int rank, const void *in, void *out, ncclRedOp_t op, int ask,
                                      ncclComm_t m, void *stream)
{
    const ncclDataType_t t = (ncclDataType_t)c->type;
    const cudaStream_t   s = (cudaStream_t)stream;
    ncclConfigExt_t      low = { .key = { RCCLX_VENDOR_ID, RCCLX_OPTION_LOW_PRECISION_CODEC }, .val = { .i = ask - 1 } };
    ncclCollConfig_t     config = NCCL_COLLCONFIG_INITIALIZER;
    size_t               send[CONFORM_RANKS], recv[CONFORM_RANKS], at[CONFORM_RANKS];

    config.ext = ask ? &low : NULL;
    switch (c->kind) {
    case RCCLX_ALL_REDUCE:     return ncclAllReduceConfig(in, out, c->count, t, op, m, s, &config);
    case RCCLX_REDUCE_TO:      return ncclReduceConfig(in, out, c->count, t, op, c->root, m, s, &config);
    case RCCLX_BROADCAST:      return ncclBroadcastConfig(in, out, c->count, t, c->root, m, s, &config);
    case RCCLX_ALL_GATHER:     return ncclAllGatherConfig(in, out, c->count, t, m, s, &config);
    case RCCLX_REDUCE_SCATTER: return ncclReduceScatterConfig(in, out, c->count, t, op, m, s, &config);
    case RCCLX_ALL_TO_ALL:     return ncclAlltoAllConfig(in, out, c->count, t, m, s, &config);
    case RCCLX_GATHER:         return ncclGatherConfig(in, out, c->count, t, c->root, m, s, &config);
    case RCCLX_SCATTER:        return ncclScatterConfig(in, out, c->count, t, c->root, m, s, &config);
    default: break;
    }
    for (int r = 0; r < c->n; r++) {
        at[r] = c->count * (size_t)r;
        send[r] = coded_part_of(c, rank, r);
        recv[r] = coded_part_of(c, r, rank);
    }
    return ncclAlltoAllv(in, send, at, out, recv, at, t, m, s);
}

/* asks: 1 + a codec. */
static inline bool coded_set(ncclComm_t m, int asks)
{
    return OK_OR_TELL(rcclxCommSetLowPrecision(m, asks > 1 ? rcclx_codecs[asks - 1]->name : "off", 1));
}

/* The operator as the call wants it; a premultiplier is to be destroyed. */
static inline ncclRedOp_t coded_op(const coded_call *c, int rank, ncclComm_t m)
{
    uint64_t    scalar = coded_scalar(c, rank);
    ncclRedOp_t op = c->op < RCCLX_PREMUL ? (ncclRedOp_t)c->op : ncclSum;

    if (c->op == RCCLX_PREMUL)
        OK_OR_TELL(ncclRedOpCreatePreMulSum(&op, &scalar, (ncclDataType_t)c->type, ncclScalarHostImmediate, m));
    return op;
}

static inline void coded_op_end(ncclRedOp_t op, ncclComm_t m)
{
    if (op >= ncclNumOps)
        OK_OR_TELL(ncclRedOpDestroy(op, m));
}

#endif
