/* Sends and receives on GPUs, and all-to-all-v, which is one of each a peer: the
 * messages of a group are put together and go to one kernel.
 *
 *   group   Send 1   AlltoAllv        Recv 1
 *   pairs   send 1 | send 0..n-1  recv 0..n-1 | recv 1
 *
 * What a rank sends to itself is a copy; the k-th send meets the k-th receive. How the
 * others get there: device/kernels/pair.h. In low precision a message goes through staging:
 * of a lane's half each wave has a slot, as long as the run of the tiles that it does.
 *
 *   message  lane 0 | lane 1 | ..       elements, whole tiles of a wave
 *   lane     chunk 0 | chunk 1 | ..     of one length, each a part of every wave */
#include "exec/gpu_team.h"

#include "exec/precision.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

_Static_assert(sizeof(gp_pair_many) <= GP_LARGE_BYTES, "as long as any arguments");

static rcclx_status keep(rcclx_gpu_team *g, const rcclx_op *op)
{
    if (g->npairs == g->cap_pairs) {
        const int cap = g->cap_pairs ? 2 * g->cap_pairs : 64;
        rcclx_op *more = rcclx_mem_realloc(g->pairs, (size_t)cap * sizeof(*more));
        if (!more)
            return RCCLX_FAIL(RCCLX_NOMEM, "device %d: no memory for %d messages in a group", g->device, cap);
        g->pairs = more;
        g->cap_pairs = cap;
    }
    g->pairs[g->npairs++] = *op;
    return RCCLX_OK;
}

/* An all-to-all-v in its parts. */
static rcclx_status take_apart(rcclx_team *t, const rcclx_op *op)
{
    const size_t size = rcclx_type_size(op->type);

    for (int i = 0; i < t->nranks; i++) {
        const int peer = (t->rank + i) % t->nranks;
        const rcclx_op send = { .kind = RCCLX_SEND, .team = t, .in = (const char *)op->in + op->sdispls[peer] * size,
                                .count = op->scounts[peer], .type = op->type, .op = RCCLX_COPY, .root = peer,
                                .codec = (uint8_t)rcclx_message_codec(op, op->scounts[peer]) };
        RCCLX_TRY(keep(t->gpu, &send));
    }
    for (int i = 0; i < t->nranks; i++) {
        const int peer = (t->rank - i + t->nranks) % t->nranks;
        const rcclx_op recv = { .kind = RCCLX_RECV, .team = t, .out = (char *)op->out + op->rdispls[peer] * size,
                                .count = op->rcounts[peer], .type = op->type, .op = RCCLX_COPY, .root = peer,
                                .codec = (uint8_t)rcclx_message_codec(op, op->rcounts[peer]) };
        RCCLX_TRY(keep(t->gpu, &recv));
    }
    return RCCLX_OK;
}

rcclx_status rcclx_gpu_pairs_collect(rcclx_team *t, const rcclx_task *chain)
{
    t->gpu->npairs = 0;
    for (const rcclx_task *k = chain; k; k = k->next) {
        if (k->op.kind == RCCLX_ALL_TO_ALLV)
            RCCLX_TRY(take_apart(t, &k->op));
        else if (k->op.kind >= RCCLX_COLL_COUNT)
            RCCLX_TRY(keep(t->gpu, &k->op));
        else
            continue;
        atomic_fetch_add_explicit(&t->ops[k->op.kind], 1, memory_order_relaxed);
    }
    return RCCLX_OK;
}

/* The receive that a message to oneself belongs to: as many of its kind stand before it. */
static const rcclx_op *other_half(const rcclx_op *ops, int n, int index)
{
    int before = 0;

    for (int i = 0; i < index; i++)
        before += ops[i].kind == RCCLX_SEND && ops[i].root == ops[index].root;
    for (int i = 0; i < n; i++)
        if (ops[i].kind == RCCLX_RECV && ops[i].root == ops[index].root && before-- == 0)
            return &ops[i];
    return NULL;
}

static rcclx_status to_oneself(rcclx_team *t, const rcclx_op *ops, int n, int index, void *stream)
{
    const rcclx_op *send = &ops[index], *recv = other_half(ops, n, index);

    if (!recv || recv->count != send->count || recv->type != send->type)
        return RCCLX_FAIL(RCCLX_MISMATCH, "rank %d: %zu %s are sent to this rank itself, and %zu %s expected; count and type "
                          "must be equal on both sides", t->rank, send->count, rcclx_type_name(send->type),
                          recv ? recv->count : 0, recv ? rcclx_type_name(recv->type) : "messages");
    const size_t nbytes = send->count * rcclx_type_size(send->type);
    return nbytes && send->in != recv->out ? t->gpu->gpu->copy(recv->out, send->in, nbytes, stream) : RCCLX_OK;
}

/* --- launches ---------------------------------------------------------------------------- */

enum {
    LANE_BYTES  = 64,  /* times threads: a lane's share of a large message */
    SMALL_BYTES = 16,  /* of a small one */
    SMALL_LANES = 8,
    ALONE_BYTES = 32,  /* up to here one lane does: more have to agree on who is last */
    CHUNK_BYTES = 64 << 10, /* most that is staged at a time: the receiver takes one while the next is written */
    FEW_RANKS   = 4,   /* with more there are more peers at a time, and half the lanes do */
};

typedef struct {
    gp_pair_many   args;
    rcclx_team    *t;
    void          *stream;
    gp_pair_layout at;
    size_t         small;                  /* bytes that go by LL */
    bool           coded;                  /* some of the launch are in low precision */
    unsigned       parts[2];               /* of receives, of sends */
    uint16_t       npair[2][GP_RANKS];     /* messages of a pair in this launch */
    uint8_t        last[2][GP_RANKS];      /* which of the launch is its last one */
} batch;

static int between(size_t n, int most)
{
    return n < 1 ? 1 : n > (size_t)most ? most : (int)n;
}

/* The most blocks of a launch; a send and a receive need one each, whatever was asked for. */
static unsigned blocks_most(const rcclx_gpu_picker *p)
{
    const int most = p->lanes_cap && p->lanes_cap < p->lanes_most ? p->lanes_cap : p->lanes_most;

    return most < 2 ? 2 : (unsigned)most;
}

/* Both sides come to the same, from what is equal on both. */
static int lanes_for(const rcclx_gpu_picker *p, size_t nbytes, bool small)
{
    const size_t each = (size_t)p->threads * (small ? SMALL_BYTES : LANE_BYTES);
    int most = small ? SMALL_LANES : p->nranks <= FEW_RANKS ? GP_PAIR_LANES : GP_PAIR_LANES / 2;

    if (p->lanes_cap && p->lanes_cap < most)
        most = p->lanes_cap;
    if (small && nbytes <= (size_t)p->threads * ALONE_BYTES)
        return 1;
    return between((nbytes + each - 1) / each, most);
}

static size_t small_most(const rcclx_gpu_picker *p, const gp_pair_layout *at)
{
    const size_t slot = at->ll_bytes / GP_LL_UNIT * GP_LL_DATA, wish = p->limit[RCCLX_PROTO_LL];

    if (!(p->protos >> RCCLX_PROTO_LL & 1))
        return 0;
    return wish && wish < slot ? wish : slot;
}

static void begin(batch *b)
{
    const rcclx_gpu_team *g = b->t->gpu;

    b->args.head.frame = g->frame;
    b->args.head.at = b->at;
    b->args.head.nmsgs = 0;
    b->coded = false;
    memset(b->parts, 0, sizeof(b->parts));
    memset(b->npair, 0, sizeof(b->npair));
}

static rcclx_status flush(batch *b)
{
    gp_pair_head *h = &b->args.head;
    rcclx_gpu_team *g = b->t->gpu;
    const unsigned all = b->parts[0] + b->parts[1], most = blocks_most(&g->picker);
    const int kernel = b->coded ? RCCLX_PAIRS_CODED : h->nmsgs > GP_PAIR_FEW ? RCCLX_PAIRS_MANY : RCCLX_PAIRS_FEW;

    if (!h->nmsgs)
        return RCCLX_OK;
    h->single = 1;
    for (int sends = 0; sends < 2; sends++)
        for (int r = 0; r < b->t->nranks; r++) {
            h->single &= b->npair[sends][r] < 2;
            if (b->npair[sends][r])
                b->args.msg[b->last[sends][r]].final = 1;
        }
    h->send_blocks = b->parts[1];
    h->recv_blocks = b->parts[0];
    if (all > most) {
        const unsigned share = most * b->parts[1] / all;
        h->send_blocks = !b->parts[1] ? 0 : !share ? 1 : share == most && b->parts[0] ? most - 1 : share;
        h->recv_blocks = most - h->send_blocks < b->parts[0] ? most - h->send_blocks : b->parts[0];
    }
    RCCLX_TRY(g->gpu->launch(g->pair_kernel[kernel], h->send_blocks + h->recv_blocks, g->frame.nthreads, b->stream, &b->args,
                             kernel == RCCLX_PAIRS_FEW ? sizeof(gp_pair_few) : sizeof(gp_pair_many)));
    begin(b);
    return RCCLX_OK;
}

static size_t up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Bytes of a wave's slot for the run of so many elements. */
static size_t slot_of(size_t count)
{
    return up(rcclx_codec_bytes(count), 128);
}

/* A lane's bytes, and what goes through half of its staging at a time; likewise. */
static void cut_plain(const batch *b, gp_pair *m)
{
    const uint32_t lanes = m->lanes;

    m->slice = ((m->nbytes + lanes - 1) / lanes + 127) / 128 * 128;
    m->chunk = (b->at.slot_bytes - b->at.ll_bytes) / lanes / 2 / 128 * 128;
    m->chunk = m->chunk < CHUNK_BYTES ? m->chunk : CHUNK_BYTES;
}

/* In low precision no more lanes than have a tile each wave at a time. */
static void cut_coded(const batch *b, gp_pair *m, size_t size)
{
    const rcclx_gpu_picker *p = &b->t->gpu->picker;
    const size_t waves = (size_t)(p->threads / p->wave), tile = (size_t)p->wave * GP_PAIR_EACH;
    const size_t room = (b->at.slot_bytes - b->at.ll_bytes) / 2 / waves, least = slot_of(tile), count = m->nbytes / size;
    const size_t lanes = room / least < m->lanes ? room / least : m->lanes;
    const size_t most = GP_PAIR_FITS(room / lanes / 128 * 128, tile), slice = up(count, lanes * tile) / lanes;
    const size_t times = (slice + most * waves - 1) / (most * waves);

    m->lanes = m->parts = (uint8_t)lanes;
    m->slice = slice * size;
    m->chunk = (uint32_t)slot_of(up(slice, times * waves * tile) / (times * waves));
}

static void add(batch *b, const rcclx_op *op)
{
    rcclx_gpu_team *g = b->t->gpu;
    const bool sends = op->kind == RCCLX_SEND;
    const void *at = sends ? op->in : op->out;
    const size_t nbytes = op->count * rcclx_type_size(op->type);
    const bool small = nbytes <= b->small && !op->codec;
    const int lanes = lanes_for(&g->picker, nbytes, small);
    const uint32_t k = b->args.head.nmsgs++;
    gp_pair *m = &b->args.msg[k];

    *m = (gp_pair){
        .at = (uint64_t)(uintptr_t)at, .nbytes = nbytes, .sig = GP_PAIR_SIG(op->type, op->codec, op->count),
        .peer = (uint8_t)op->root,
        .sends = sends, .small = small, .kind = (uint8_t)op->kind, .lanes = (uint8_t)lanes, .parts = (uint8_t)lanes,
        .first = (uint16_t)b->parts[sends], .index = b->npair[sends][op->root]++, .codec = op->codec,
    };
    if (op->codec) {
        cut_coded(b, m, rcclx_type_size(op->type));
        b->coded = true;
    } else if (!small) {
        cut_plain(b, m);
        m->token = g->picker.reach ? rcclx_gpu_token(b->t, at, nbytes) : 0;
        if (m->token && !sends)
            m->parts = 1; /* the sender writes, this side only waits */
    }
    b->last[sends][op->root] = (uint8_t)k;
    b->parts[sends] += m->parts;
}

/* The next message of a kind and peer from *at on; NULL: there is none. */
static const rcclx_op *next(const rcclx_op *ops, int n, int *at, rcclx_kind kind, int peer)
{
    for (; *at < n; ++*at)
        if (ops[*at].kind == kind && ops[*at].root == peer)
            return &ops[(*at)++];
    return NULL;
}

/* In the order that all ranks have in common: the first message of every pair, then the second, ..; among
 * those by how far the receiver is behind the sender. Where launches are cut, both halves of a step stay together. */
static rcclx_status launch_all(batch *b, const rcclx_op *ops, int n)
{
    const int nranks = b->t->nranks, rank = b->t->rank;
    int at[2][GP_RANKS] = { 0 };
    bool more = true;

    while (more) {
        more = false;
        for (int step = 1; step < nranks; step++) {
            const int to = (rank + step) % nranks, from = (rank - step + nranks) % nranks;
            const rcclx_op *send = next(ops, n, &at[1][to], RCCLX_SEND, to), *recv = next(ops, n, &at[0][from], RCCLX_RECV, from);
            if (b->args.head.nmsgs > GP_PAIR_MANY - 2)
                RCCLX_TRY(flush(b));
            if (send)
                add(b, send);
            if (recv)
                add(b, recv);
            more |= send || recv;
        }
    }
    return flush(b);
}

rcclx_status rcclx_gpu_pairs_load(rcclx_gpu_team *g)
{
    static const char *const names[RCCLX_PAIRS_COUNT] = {
        [RCCLX_PAIRS_FEW] = "gp_pairs_few", [RCCLX_PAIRS_MANY] = "gp_pairs_many", [RCCLX_PAIRS_CODED] = "gp_pairs_coded",
    };

    for (int i = 0; i < RCCLX_PAIRS_COUNT; i++) {
        int blocks = 0;
        RCCLX_TRY(g->gpu->function(&g->pair_kernel[i], g->module, names[i]));
        RCCLX_TRY(g->gpu->occupancy(g->pair_kernel[i], (unsigned)g->picker.threads, &blocks));
        if (blocks < 1)
            return RCCLX_FAIL(RCCLX_UNSUPPORTED, "%s does not run with %d threads a block on %s device %d; set RCCLX_GPU_THREADS "
                              "lower", names[i], g->picker.threads, g->gpu->name, g->device);
    }
    return RCCLX_OK;
}

rcclx_status rcclx_gpu_pairs(rcclx_team *t, const rcclx_op *ops, int n, void *stream)
{
    batch b;

    for (int i = 0; i < n; i++)
        if (ops[i].root == t->rank && ops[i].kind == RCCLX_SEND)
            RCCLX_TRY(to_oneself(t, ops, n, i, stream));
    b.t = t;
    b.stream = stream;
    b.at = gp_pair_layout_make(&t->gpu->picker.at, t->nranks);
    b.small = small_most(&t->gpu->picker, &b.at);
    begin(&b);
    return launch_all(&b, ops, n);
}
