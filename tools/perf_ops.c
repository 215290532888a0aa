/* The collectives as rows: how many elements, which call, what must come out.
 *
 * The size of a row is that of the largest buffer. With n ranks and b = base:
 *
 *                   send   recv   in place
 *   all_reduce       b      b     send = recv
 *   broadcast        b      b     send = recv
 *   reduce           b      b     send = recv
 *   all_gather       b      n b   send = recv + rank b
 *   gather           b      n b   send = recv + rank b
 *   reduce_scatter   n b    b     recv = send + rank b
 *   scatter          n b    b     recv = send + rank b
 *   alltoall         n b    n b   none
 *   alltoallv        n b    n b   none; rank i gives rank j about 2b ((i + j) mod n) / (n - 1)
 *   sendrecv         b      b     none; to the next rank, from the one before
 *
 * A library without one of the younger calls gets sends and receives in a group. */
#include "perf.h"

#include "tool.h"

#include <string.h>

/* --- sizes ------------------------------------------------------------------ */

/* An nth of the elements, in whole 16 bytes where it is that long. */
static size_t nth(size_t total, int n, size_t nbytes)
{
    const size_t base = total / (size_t)n;

    return base * nbytes >= 16 ? base - base % (16 / nbytes) : base;
}

static perf_extent whole(size_t total, int n, size_t nbytes)
{
    (void)n;
    (void)nbytes;
    return (perf_extent){.base = total, .send = total, .recv = total, .shown = total};
}

static perf_extent spread(size_t total, int n, size_t nbytes)
{
    const size_t base = nth(total, n, nbytes), all = base * (size_t)n;

    return (perf_extent){.base = base, .send = base, .recv = all, .shown = all};
}

static perf_extent gathered(size_t total, int n, size_t nbytes)
{
    const size_t base = nth(total, n, nbytes), all = base * (size_t)n;

    return (perf_extent){.base = base, .send = all, .recv = base, .shown = all};
}

static perf_extent crossed(size_t total, int n, size_t nbytes)
{
    const size_t base = nth(total, n, nbytes), all = base * (size_t)n;

    return (perf_extent){.base = base, .send = all, .recv = all, .shown = all};
}

static double factor_one(int n)
{
    (void)n;
    return 1;
}

static double factor_part(int n)
{
    return (double)(n - 1) / n;
}

static double factor_twice(int n)
{
    return 2.0 * (n - 1) / n;
}

static size_t at_start(size_t base, int rank)
{
    (void)base;
    (void)rank;
    return 0;
}

static size_t at_own(size_t base, int rank)
{
    return base * (size_t)rank;
}

/* --- calls ------------------------------------------------------------------ */

/* Block i of a buffer cut in blocks of base elements. */
static const char *out_block(const perf_call *c, int i)
{
    return c->send + (size_t)i * c->base * c->nbytes;
}

static char *in_block(const perf_call *c, int i)
{
    return c->recv + (size_t)i * c->base * c->nbytes;
}

static ncclResult_t send_block(const perf_call *c, const char *from, size_t count, int peer)
{
    return c->lib->ncclSend(from, count, c->type, peer, c->comm, c->stream);
}

static ncclResult_t recv_block(const perf_call *c, char *to, size_t count, int peer)
{
    return c->lib->ncclRecv(to, count, c->type, peer, c->comm, c->stream);
}

static ncclResult_t all_reduce(const perf_call *c)
{
    return c->lib->ncclAllReduce(c->send, c->recv, c->base, c->type, c->redop, c->comm, c->stream);
}

static ncclResult_t reduce(const perf_call *c)
{
    return c->lib->ncclReduce(c->send, c->recv, c->base, c->type, c->redop, c->root, c->comm, c->stream);
}

static ncclResult_t broadcast(const perf_call *c)
{
    return c->lib->ncclBroadcast(c->send, c->recv, c->base, c->type, c->root, c->comm, c->stream);
}

static ncclResult_t all_gather(const perf_call *c)
{
    return c->lib->ncclAllGather(c->send, c->recv, c->base, c->type, c->comm, c->stream);
}

static ncclResult_t reduce_scatter(const perf_call *c)
{
    return c->lib->ncclReduceScatter(c->send, c->recv, c->base, c->type, c->redop, c->comm, c->stream);
}

static ncclResult_t gather(const perf_call *c)
{
    ncclResult_t r;

    if (c->lib->ncclGather)
        return c->lib->ncclGather(c->send, c->recv, c->base, c->type, c->root, c->comm, c->stream);
    if ((r = c->lib->ncclGroupStart()) != ncclSuccess)
        return r;
    r = send_block(c, c->send, c->base, c->root);
    for (int i = 0; c->rank == c->root && i < c->nranks && r == ncclSuccess; i++)
        r = recv_block(c, in_block(c, i), c->base, i);
    return r == ncclSuccess ? c->lib->ncclGroupEnd() : r;
}

static ncclResult_t scatter(const perf_call *c)
{
    ncclResult_t r;

    if (c->lib->ncclScatter)
        return c->lib->ncclScatter(c->send, c->recv, c->base, c->type, c->root, c->comm, c->stream);
    if ((r = c->lib->ncclGroupStart()) != ncclSuccess)
        return r;
    r = recv_block(c, c->recv, c->base, c->root);
    for (int i = 0; c->rank == c->root && i < c->nranks && r == ncclSuccess; i++)
        r = send_block(c, out_block(c, i), c->base, i);
    return r == ncclSuccess ? c->lib->ncclGroupEnd() : r;
}

static ncclResult_t alltoall(const perf_call *c)
{
    ncclResult_t r;

    if (c->lib->ncclAlltoAll)
        return c->lib->ncclAlltoAll(c->send, c->recv, c->base, c->type, c->comm, c->stream);
    if ((r = c->lib->ncclGroupStart()) != ncclSuccess)
        return r;
    for (int i = 0; i < c->nranks && r == ncclSuccess; i++) {
        r = send_block(c, out_block(c, i), c->base, i);
        if (r == ncclSuccess)
            r = recv_block(c, in_block(c, i), c->base, i);
    }
    return r == ncclSuccess ? c->lib->ncclGroupEnd() : r;
}

static ncclResult_t sendrecv(const perf_call *c)
{
    const int    n = c->nranks;
    ncclResult_t r = c->lib->ncclGroupStart();

    if (r == ncclSuccess)
        r = send_block(c, c->send, c->base, (c->rank + 1) % n);
    if (r == ncclSuccess)
        r = recv_block(c, c->recv, c->base, (c->rank + n - 1) % n);
    return r == ncclSuccess ? c->lib->ncclGroupEnd() : r;
}

/* Uneven on purpose, one pair of each rank empty. The matrix is symmetric, and
 * every row adds up to at most n b. */
static size_t pair_count(size_t base, int n, int i, int j)
{
    return n == 1 ? base : 2 * base * (size_t)((i + j) % n) / (size_t)(n - 1);
}

static size_t pair_at(size_t base, int n, int i, int j)
{
    size_t at = 0;

    for (int k = 0; k < j; k++)
        at += pair_count(base, n, i, k);
    return at;
}

static ncclResult_t alltoallv(const perf_call *c)
{
    const int    n = c->nranks;
    size_t       counts[PERF_MAX_RANKS], at[PERF_MAX_RANKS];
    ncclResult_t r;

    for (int j = 0; j < n; j++) {
        counts[j] = pair_count(c->base, n, c->rank, j);
        at[j]     = j ? at[j - 1] + counts[j - 1] : 0;
    }
    if (c->lib->ncclAlltoAllv)
        return c->lib->ncclAlltoAllv(c->send, counts, at, c->recv, counts, at, c->type, c->comm, c->stream);
    if ((r = c->lib->ncclGroupStart()) != ncclSuccess)
        return r;
    for (int j = 0; j < n && r == ncclSuccess; j++) {
        r = send_block(c, c->send + at[j] * c->nbytes, counts[j], j);
        if (r == ncclSuccess)
            r = recv_block(c, c->recv + at[j] * c->nbytes, counts[j], j);
    }
    return r == ncclSuccess ? c->lib->ncclGroupEnd() : r;
}

/* --- what must come out ------------------------------------------------------ */

/* Elements [at, at + count) received are those of rank's input from index on:
 * how many of them that lie in the piece are wrong? */
static size_t moved(const perf_rule *rule, const perf_piece *p, int rank, size_t index, size_t at, size_t count)
{
    const size_t from = at > p->from ? at : p->from, to = at + count < p->to ? at + count : p->to;

    if (from >= to)
        return 0;
    return (rule->codec ? perf_check_near : perf_check_moved)(rule, rank, index + (from - at), p->got + (from - p->from) * rule->nbytes, to - from);
}

static size_t check_reduced(const perf_rule *rule, const perf_call *c, const perf_piece *p)
{
    (void)c;
    return perf_check_reduced(rule, p->from, p->got, p->to - p->from);
}

static size_t check_reduced_root(const perf_rule *rule, const perf_call *c, const perf_piece *p)
{
    return c->rank == c->root ? check_reduced(rule, c, p) : 0;
}

static size_t check_reduced_part(const perf_rule *rule, const perf_call *c, const perf_piece *p)
{
    return perf_check_reduced(rule, c->base * (size_t)c->rank + p->from, p->got, p->to - p->from);
}

static size_t check_root(const perf_rule *rule, const perf_call *c, const perf_piece *p)
{
    return moved(rule, p, c->root, 0, 0, c->base);
}

static size_t check_root_part(const perf_rule *rule, const perf_call *c, const perf_piece *p)
{
    return moved(rule, p, c->root, c->base * (size_t)c->rank, 0, c->base);
}

static size_t check_all(const perf_rule *rule, const perf_call *c, const perf_piece *p)
{
    size_t wrong = 0;

    for (int i = 0; i < c->nranks; i++)
        wrong += moved(rule, p, i, 0, (size_t)i * c->base, c->base);
    return wrong;
}

static size_t check_all_root(const perf_rule *rule, const perf_call *c, const perf_piece *p)
{
    return c->rank == c->root ? check_all(rule, c, p) : 0;
}

static size_t check_crossed(const perf_rule *rule, const perf_call *c, const perf_piece *p)
{
    size_t wrong = 0;

    for (int i = 0; i < c->nranks; i++)
        wrong += moved(rule, p, i, c->base * (size_t)c->rank, (size_t)i * c->base, c->base);
    return wrong;
}

static size_t check_pairs(const perf_rule *rule, const perf_call *c, const perf_piece *p)
{
    const int n     = c->nranks;
    size_t    wrong = 0;

    for (int i = 0; i < n; i++)
        wrong += moved(rule, p, i, pair_at(c->base, n, i, c->rank), pair_at(c->base, n, c->rank, i),
                       pair_count(c->base, n, i, c->rank));
    return wrong;
}

static size_t check_previous(const perf_rule *rule, const perf_call *c, const perf_piece *p)
{
    return moved(rule, p, (c->rank + c->nranks - 1) % c->nranks, 0, 0, c->base);
}

#define ROW(w, f) .word = #w, .call = #f, .issue = w
const perf_op perf_ops[] = {
    {ROW(all_reduce, ncclAllReduce), .low = true, .reduces = true, .in_place = true, .extent = whole, .factor = factor_twice,
     .send_at = at_start, .recv_at = at_start, .check = check_reduced},
    {ROW(all_gather, ncclAllGather), .low = true, .in_place = true, .extent = spread, .factor = factor_part,
     .send_at = at_own, .recv_at = at_start, .check = check_all},
    {ROW(reduce_scatter, ncclReduceScatter), .low = true, .reduces = true, .in_place = true, .extent = gathered,
     .factor = factor_part, .send_at = at_start, .recv_at = at_own, .check = check_reduced_part},
    {ROW(alltoall, ncclAlltoAll), .low = true, .extent = crossed, .factor = factor_part, .check = check_crossed},
    {ROW(alltoallv, ncclAlltoAllv), .low = true, .extent = crossed, .factor = factor_part, .check = check_pairs},
    {ROW(broadcast, ncclBroadcast), .low = true, .rooted = true, .in_place = true, .extent = whole, .factor = factor_one,
     .send_at = at_start, .recv_at = at_start, .check = check_root},
    {ROW(reduce, ncclReduce), .reduces = true, .rooted = true, .in_place = true, .extent = whole,
     .factor = factor_one, .send_at = at_start, .recv_at = at_start, .check = check_reduced_root},
    {ROW(gather, ncclGather), .rooted = true, .in_place = true, .extent = spread, .factor = factor_part,
     .send_at = at_own, .recv_at = at_start, .check = check_all_root},
    {ROW(scatter, ncclScatter), .rooted = true, .in_place = true, .extent = gathered, .factor = factor_part,
     .send_at = at_start, .recv_at = at_own, .check = check_root_part},
    {ROW(sendrecv, ncclSend), .low = true, .extent = whole, .factor = factor_one, .check = check_previous},
    {.word = NULL},
};
#undef ROW

const perf_op *perf_op_find(const char *word)
{
    for (const perf_op *op = perf_ops; op->word; op++)
        if (!strcmp(op->word, word))
            return op;
    return NULL;
}

const char *perf_op_nearest(const char *word)
{
    const char *words[32];
    size_t      n = 0;

    for (const perf_op *op = perf_ops; op->word; op++)
        words[n++] = op->word;
    return tool_nearest(word, words, n);
}
