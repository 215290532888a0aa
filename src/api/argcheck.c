/* What is wrong with a call, found before it does anything. A row a collective
 * says which buffers exist where and how long they are:
 *
 *   who holds it:   in everywhere or at the root, out likewise
 *   how long:       count elements, or n times as many
 *
 * From the row follow the needed pointers, the bytes, and the one layout in
 * which the two may overlap: with "out" n times as long, in is its part number
 * rank (or root); with "in" n times as long, out is; otherwise they are equal. */
#include "api/argcheck.h"

#include "base/option.h"
#include "comm/comm.h"

#include <stdint.h>
#include <sys/uio.h>
#include <unistd.h>

typedef enum { NOBODY, ROOT, ALL } holder;

static const struct rule {
    uint8_t in, out;     /* holder */
    uint8_t in_n, out_n; /* n * count elements */
} rules[RCCLX_KIND_COUNT] = {
    [RCCLX_ALL_REDUCE]     = { ALL, ALL, 0, 0 },
    [RCCLX_REDUCE_TO]      = { ALL, ROOT, 0, 0 },
    [RCCLX_BROADCAST]      = { ROOT, ALL, 0, 0 },
    [RCCLX_ALL_GATHER]     = { ALL, ALL, 0, 1 },
    [RCCLX_REDUCE_SCATTER] = { ALL, ALL, 1, 0 },
    [RCCLX_ALL_TO_ALL]     = { ALL, ALL, 1, 1 },
    [RCCLX_ALL_TO_ALLV]    = { NOBODY, NOBODY, 0, 0 }, /* has a check of its own */
    [RCCLX_GATHER]         = { ALL, ROOT, 0, 1 },
    [RCCLX_SCATTER]        = { ROOT, ALL, 1, 0 },
    [RCCLX_SEND]           = { ALL, NOBODY, 0, 0 },
    [RCCLX_RECV]           = { NOBODY, ALL, 0, 0 },
};

/* More bytes than any machine's addresses reach. */
#define BYTES_MOST ((size_t)1 << 56)

ncclResult_t rcclx_api_result(rcclx_status s)
{
    if (s != RCCLX_OK && s != RCCLX_AGAIN && rcclx_group_open())
        rcclx_group_fail(s);
    return rcclx_result(s);
}

rcclx_status rcclx_args_need(const char *call, const char *what, const void *p)
{
    if (p)
        return RCCLX_OK;
    return RCCLX_FAIL(RCCLX_ARGUMENT, "%s: %s is NULL; pass the address of what the function fills in", call, what);
}

static bool point_to_point(rcclx_kind k)
{
    return k == RCCLX_SEND || k == RCCLX_RECV;
}

static rcclx_status check_root(const char *call, const rcclx_op *op)
{
    const rcclx_team *t = op->team;

    if ((unsigned)op->root < (unsigned)t->nranks)
        return RCCLX_OK;
    return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: %s %d is outside 0..%d of this communicator; pass a rank of it",
                      t->rank, call, point_to_point(op->kind) ? "peer" : "root", op->root, t->nranks - 1);
}

static rcclx_status too_long(const char *call, const rcclx_op *op)
{
    return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: a count of %zu of %s on %d ranks is more than memory can hold; counts "
                      "are in elements, is this a negative number?", op->team->rank, call, op->count,
                      rcclx_type_name(op->type), op->team->nranks);
}

static rcclx_status is_null(const char *call, const rcclx_op *op, const char *what, size_t count)
{
    return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: %s is NULL with a count of %zu; only a count of 0 needs no buffer",
                      op->team->rank, call, what, count);
}

/* With NCCL_CHECK_POINTERS: let the kernel look at both ends, which faults in
 * the kernel and not here. */
static bool readable(const void *p, size_t nbytes)
{
    char         byte[2];
    struct iovec to   = { byte, 2 };
    struct iovec from[2] = { { (void *)(uintptr_t)p, 1 }, { (char *)(uintptr_t)p + nbytes - 1, 1 } };

    return process_vm_readv(getpid(), &to, 1, from, 2, 0) == 2;
}

static rcclx_status check_buffer(const char *call, const rcclx_op *op, const char *what, const void *p, size_t nbytes)
{
    const size_t size = rcclx_type_size(op->type);
    uint64_t     offset;

    if (!p)
        return is_null(call, op, what, op->count);
    if ((uintptr_t)p & (size - 1)) /* sizes are powers of two */
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: %s %p does not begin at an element of %s; align it to %zu bytes",
                          op->team->rank, call, what, p, rcclx_type_name(op->type), size);
    if (rcclx_team_on_gpu(op->team))
        return rcclx_gpu_buffer_check(rcclx_team_gpu(op->team), call, what, p, nbytes);
    if (rcclx_arena_find(p, nbytes, &offset) == RCCLX_MEM_FREED)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: the %zu bytes at %s %p are in no buffer of ncclMemAlloc's any more; "
                          "was it freed, or is the count too large?", op->team->rank, call, nbytes, what, p);
    if (rcclx_option_int(RCCLX_OPT_CHECK_POINTERS) && !readable(p, nbytes))
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: the %zu bytes at %s %p are not this process's memory; was it "
                          "freed, or is it on another device?", op->team->rank, call, nbytes, what, p);
    return RCCLX_OK;
}

/* Both buffers are here and overlap, which is right in one layout only. */
static rcclx_status check_overlap(const char *call, const rcclx_op *op, const struct rule *r, size_t bytes)
{
    const size_t    n  = (size_t)op->team->nranks;
    const uintptr_t in = (uintptr_t)op->in, out = (uintptr_t)op->out;
    const size_t    part = bytes * (size_t)(rcclx_kind_rooted(op->kind) ? op->root : op->team->rank);
    const uintptr_t in_end = in + bytes * (r->in_n ? n : 1), out_end = out + bytes * (r->out_n ? n : 1);

    if (in_end <= out || out_end <= in)
        return RCCLX_OK;
    const bool right = r->out_n && !r->in_n ? in == out + part : r->in_n && !r->out_n ? out == in + part : in == out;
    if (right)
        return RCCLX_OK;
    return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: sendbuff %p..%p and recvbuff %p..%p overlap; in place means %s",
                      op->team->rank, call, op->in, (void *)in_end, op->out, (void *)out_end,
                      r->out_n && !r->in_n   ? "sendbuff == recvbuff + rank * count"
                      : r->in_n && !r->out_n ? "recvbuff == sendbuff + rank * count"
                                             : "sendbuff == recvbuff");
}

/* The bias is added to what has arrived in recvbuff, so it must not lie there. */
static rcclx_status check_bias(const char *call, const rcclx_op *op, size_t bytes)
{
    const uintptr_t bias = (uintptr_t)op->bias, out = (uintptr_t)op->out;

    RCCLX_TRY(check_buffer(call, op, "acc", op->bias, bytes));
    if (bias + bytes <= out || out + bytes <= bias)
        return RCCLX_OK;
    return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: acc %p and recvbuff %p overlap; use a buffer of its own for acc",
                      op->team->rank, call, op->bias, op->out);
}

static rcclx_status check_buffers(const char *call, const rcclx_op *op)
{
    const struct rule *r     = &rules[op->kind];
    const bool         root  = op->team->rank == op->root;
    const bool         reads = r->in == ALL || (r->in == ROOT && root), writes = r->out == ALL || (r->out == ROOT && root);
    size_t             bytes, all;

    if (__builtin_mul_overflow(op->count, rcclx_type_size(op->type), &bytes) ||
        __builtin_mul_overflow(bytes, (size_t)op->team->nranks, &all) || all > BYTES_MOST)
        return too_long(call, op);
    if (reads)
        RCCLX_TRY(check_buffer(call, op, "sendbuff", op->in, r->in_n ? all : bytes));
    if (writes)
        RCCLX_TRY(check_buffer(call, op, "recvbuff", op->out, r->out_n ? all : bytes));
    if (op->bias)
        RCCLX_TRY(check_bias(call, op, bytes));
    return reads && writes ? check_overlap(call, op, r, bytes) : RCCLX_OK;
}

/* --- all-to-all-v: a count and a displacement a peer ---------------------- */

typedef struct {
    const char   *buffer, *counts_name, *displs_name;
    const void   *p;
    const size_t *counts, *displs;
    uintptr_t     begin, end; /* all its parts lie within; equal when there are none */
} side;

static rcclx_status check_side(const char *call, const rcclx_op *op, side *s)
{
    const size_t    size = rcclx_type_size(op->type);
    const uintptr_t at   = (uintptr_t)s->p;

    if (!s->counts || !s->displs)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: %s is NULL; pass one number a rank", op->team->rank, call,
                          s->counts ? s->displs_name : s->counts_name);
    for (int i = 0; i < op->team->nranks; i++) {
        size_t end;
        if (__builtin_add_overflow(s->counts[i], s->displs[i], &end) || end > BYTES_MOST / size)
            return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: %s[%d] %zu at %s[%d] %zu is more than memory can hold; both "
                              "are in elements", op->team->rank, call, s->counts_name, i, s->counts[i], s->displs_name, i,
                              s->displs[i]);
        if (!s->counts[i])
            continue;
        if (!s->p)
            return is_null(call, op, s->buffer, s->counts[i]);
        const uintptr_t first = at + s->displs[i] * size, last = at + end * size;
        s->begin = s->begin == s->end || first < s->begin ? first : s->begin;
        s->end   = last > s->end ? last : s->end;
    }
    return s->begin < s->end ? check_buffer(call, op, s->buffer, (const void *)s->begin, s->end - s->begin) : RCCLX_OK;
}

static rcclx_status check_parts(const char *call, const rcclx_op *op)
{
    const size_t size = rcclx_type_size(op->type);

    for (int i = 0; i < op->team->nranks; i++)
        for (int j = 0; op->scounts[i] && j < op->team->nranks; j++) {
            const uintptr_t in = (uintptr_t)op->in + op->sdispls[i] * size, out = (uintptr_t)op->out + op->rdispls[j] * size;
            if (op->rcounts[j] && in < out + op->rcounts[j] * size && out < in + op->scounts[i] * size)
                return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: what goes to rank %d overlaps what comes from rank %d; "
                                  "this call does not work in place, use two buffers", op->team->rank, call, i, j);
        }
    return RCCLX_OK;
}

static rcclx_status check_table(const char *call, const rcclx_op *op)
{
    side in  = { "sendbuff", "sendcounts", "sdispls", op->in, op->scounts, op->sdispls, 0, 0 };
    side out = { "recvbuff", "recvcounts", "rdispls", op->out, op->rcounts, op->rdispls, 0, 0 };

    RCCLX_TRY(check_side(call, op, &in));
    RCCLX_TRY(check_side(call, op, &out));
    return in.begin < out.end && out.begin < in.end ? check_parts(call, op) : RCCLX_OK;
}

rcclx_status rcclx_args_check(const char *call, const rcclx_op *op)
{
    if ((unsigned)op->type >= RCCLX_TYPE_COUNT)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: datatype %d is none of 0..%d; pass an ncclDataType_t", op->team->rank,
                          call, (int)op->type, RCCLX_TYPE_COUNT - 1);
    if (rcclx_kind_rooted(op->kind) || point_to_point(op->kind))
        RCCLX_TRY(check_root(call, op));
    if (op->kind == RCCLX_ALL_TO_ALLV)
        RCCLX_TRY(check_table(call, op));
    else if (op->count)
        RCCLX_TRY(check_buffers(call, op));
    if (op->stream && !rcclx_team_on_gpu(op->team) && !rcclx_stream_known(op->stream))
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: stream %p is none of rcclxStreamCreate's, or was destroyed; NULL "
                          "waits for the result", op->team->rank, call, op->stream);
    return RCCLX_OK;
}

/* --- one operation, from the public function to the executor --------------- */

static rcclx_status check_operator(const char *call, rcclx_comm *c, int redop, rcclx_op *op)
{
    rcclx_type type;

    if ((unsigned)redop < ncclNumOps) {
        op->op = (rcclx_redop)redop;
        return RCCLX_OK;
    }
    if (redop < 0 || !rcclx_redop_get(c, redop - ncclNumOps, &type, &op->scalar))
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: op %d is none of 0..%d and no operator of this communicator; was it "
                          "destroyed, or made for another one?", c->rank, call, redop, ncclNumOps - 1);
    if (type != op->type)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: op %d was made for %s and is used with datatype %d; make one for each "
                          "type", c->rank, call, redop, rcclx_type_name(type), (int)op->type);
    op->op = RCCLX_PREMUL;
    return RCCLX_OK;
}

static void tell(const rcclx_comm *c, int redop, const rcclx_op *op)
{
    const uint64_t count = c->team.gpu ? atomic_load(&c->team.area[c->rank]->device.posted) : c->team.seq;

    RCCLX_INFO_LOG(COLL, "%s: opCount %lx sendbuff %p recvbuff %p count %zu datatype %d op %d root %d comm %p [nranks=%d] "
                   "stream %p", rcclx_kind_name(op->kind), (unsigned long)count, op->in, op->out, op->count,
                   (int)op->type, redop < 0 ? 0 : redop, op->root, c->handle, c->nranks, op->stream);
}

static rcclx_status post(const char *call, rcclx_comm *c, int redop, rcclx_op *op)
{
    op->team = &c->team;
    op->op   = RCCLX_COPY;
    if (rcclx_kind_reduces(op->kind))
        RCCLX_TRY(check_operator(call, c, redop, op));
    RCCLX_TRY(rcclx_args_check(call, op));
    if (__builtin_expect(rcclx_log_on(RCCLX_LOG_INFO, RCCLX_COLL), false))
        tell(c, redop, op);
    return rcclx_op_post(op);
}

ncclResult_t rcclx_api_post(const char *call, ncclComm_t comm, int redop, rcclx_op *op)
{
    rcclx_status s;
    rcclx_comm  *c = rcclx_comm_acquire_ready(comm, call, &s);

    if (c) {
        s = post(call, c, redop, op);
        rcclx_comm_release(c);
    }
    return s == RCCLX_OK ? ncclSuccess : rcclx_api_result(s);
}
