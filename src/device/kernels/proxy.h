#ifndef RCCLX_DEVICE_KERNELS_PROXY_H
#define RCCLX_DEVICE_KERNELS_PROXY_H

/* What goes to ranks of other machines and comes from them: a kernel moves it between
 * device memory and pinned host memory, where a thread of the host, the proxy, takes it
 * from and puts it (exec/proxy_team.h).
 *
 *   out   IN  --piece k--> slot k % 2 --> device count k + 1   ..the proxy..  host count k + 1
 *   in    OUT <--piece k-- slot k % 2 <-- host count k + 1     ..the proxy..  device count k + 1
 *
 * A queue is pieces in one direction. A piece takes as many bytes of each of the queue's
 * blocks, which lie one behind the other in its slot. A block of threads looks after
 * queues b, b + nblocks, ... in turn and never waits for one of them alone, so that
 * messages of a group do not wait for each other.
 *
 * Counts only grow, over all launches; nobody but the device writes the one, nobody but
 * the host the other. The first thread says which job it is, which the host may not know
 * before (a graph), and stays until the host has finished it. */
#include "device/kernels/gp.h"
#include "device/kernels/work.h"

enum { GP_PROXY_EACH = GP_PROXY_QUEUES, GP_PROXY_LOOK = 256 };

typedef struct {
    uint64_t base[GP_PROXY_EACH];  /* the queue's device count when we began */
    uint32_t moved[GP_PROXY_EACH]; /* pieces since */
    uint32_t go, over;             /* what thread 0 has found */
} gp_proxy_shared;

GP_DEV uint64_t *gp_proxy_count(const gp_proxy_args *a, uint32_t queue, uint32_t host)
{
    return (uint64_t *)(uintptr_t)(a->counts + ((uint64_t)queue * 2 + host) * GP_PROXY_APART);
}

GP_DEV uint32_t gp_proxy_pieces(const gp_proxy_queue *q)
{
    return q->first < q->end ? (uint32_t)((q->end - q->first + q->step - 1) / q->step) : 0;
}

/* May piece k be moved now? By thread 0. */
GP_DEV int gp_proxy_ready(const gp_proxy_args *a, const gp_proxy_queue *q, uint64_t base, uint32_t k)
{
    const uint64_t need = q->out ? base + k - 1 : base + k + 1; /* the slot is empty; it is full */

    return (int64_t)(gp_flag_acquire(gp_proxy_count(a, q->index, 1)) - need) >= 0;
}

GP_DEV void gp_proxy_bytes(char *to, const char *from, uint64_t nbytes, uint32_t tid, uint32_t nthreads)
{
    const uint64_t row = (uint64_t)nthreads * 16;
    const uint64_t whole = (((uint64_t)(uintptr_t)to | (uint64_t)(uintptr_t)from) & 15) ? 0 : nbytes & ~(uint64_t)15;

    GP_NO_UNROLL
    for (uint64_t at = tid * 16; at < whole; at += 4 * row) {
        gp_v4 v[4];
        GP_UNROLL
        for (int u = 0; u < 4; u++)
            if (at + u * row < whole)
                v[u] = gp_ld16_nt(from + at + u * row);
        GP_UNROLL
        for (int u = 0; u < 4; u++)
            if (at + u * row < whole)
                gp_st16(to + at + u * row, v[u]);
    }
    GP_NO_UNROLL
    for (uint64_t at = whole + tid; at < nbytes; at += nthreads)
        gp_st1(to + at, gp_ld1(from + at));
}

/* Piece k of a queue, by all threads. */
GP_DEV void gp_proxy_move(const gp_proxy_args *a, const gp_proxy_queue *q, uint64_t base, uint32_t k)
{
    const uint64_t offset = q->first + k * q->step, left = q->end - offset;
    const uint64_t nbytes = left < q->piece ? left : q->piece;
    char *slot = (char *)(uintptr_t)(a->slots + ((uint64_t)q->index * 2 + ((base + k) & 1)) * a->slot_bytes);

    GP_NO_UNROLL
    for (uint32_t b = 0; b < q->nblocks; b++) {
        char *mine = (char *)(uintptr_t)(q->at + b * q->stride + offset);
        if (q->out)
            gp_proxy_bytes(slot + b * nbytes, mine, nbytes, gp_tid(), a->nthreads);
        else
            gp_proxy_bytes(mine, slot + b * nbytes, nbytes, gp_tid(), a->nthreads);
    }
}

/* Which of this block's queues, from `from` on, can go on? Its place + 1; 0: none. By thread 0. *left: some are not done. */
GP_DEV uint32_t gp_proxy_find(const gp_proxy_args *a, gp_proxy_shared *sh, uint32_t from, uint32_t *left)
{
    const uint32_t mine = a->nqueues > gp_bid() ? (a->nqueues - gp_bid() + a->nblocks - 1) / a->nblocks : 0;

    *left = 0;
    GP_NO_UNROLL
    for (uint32_t j = 0; j < mine; j++) {
        const uint32_t i = (from + j) % mine;
        const gp_proxy_queue *q = &a->queue[gp_bid() + i * a->nblocks];
        if (sh->moved[i] == gp_proxy_pieces(q))
            continue;
        *left = 1;
        if (gp_proxy_ready(a, q, sh->base[i], sh->moved[i]))
            return i + 1;
    }
    return 0;
}

/* Until something can go on, or nothing is left (0) or wanted any more (over). By thread 0. */
GP_DEV uint32_t gp_proxy_next(const gp_proxy_args *a, gp_proxy_shared *sh, uint32_t from)
{
    const gp_control *c = (const gp_control *)(uintptr_t)a->control;
    uint32_t left = 1;

    GP_NO_UNROLL
    for (uint32_t spins = 1;; spins++) {
        const uint32_t i = gp_proxy_find(a, sh, from, &left);
        if (i || !left)
            return i;
        gp_nap();
        if (spins % GP_PROXY_LOOK == 0 && gp_word_peek(&c->abort)) {
            sh->over = 1;
            return 0;
        }
    }
}

/* By the first thread of all: the job begins; and it has been finished. */
GP_DEV void gp_proxy_begin(const gp_proxy_args *a)
{
    gp_proxy_door *door = (gp_proxy_door *)(uintptr_t)a->door;

    gp_word_poke(&door->job, a->job);
    gp_flag_release(&door->begun, gp_flag_peek(&door->begun) + 1);
}

GP_DEV void gp_proxy_end(const gp_proxy_args *a)
{
    const gp_control *c = (const gp_control *)(uintptr_t)a->control;
    gp_proxy_door *door = (gp_proxy_door *)(uintptr_t)a->door;
    const uint64_t mine = gp_flag_peek(&door->begun);

    GP_NO_UNROLL
    for (uint32_t spins = 1; (int64_t)(gp_flag_acquire(&door->finished) - mine) < 0; spins++) {
        gp_nap();
        if (spins % GP_PROXY_LOOK == 0 && gp_word_peek(&c->abort))
            return;
    }
}

GP_DEV void gp_proxy_run(const gp_proxy_args *a, gp_proxy_shared *sh)
{
    uint32_t from = 0;

    if (gp_tid() == 0) {
        if (gp_bid() == 0)
            gp_proxy_begin(a);
        sh->over = 0;
        GP_NO_UNROLL
        for (uint32_t q = gp_bid(), i = 0; q < a->nqueues; q += a->nblocks, i++) {
            sh->base[i] = gp_flag_peek(gp_proxy_count(a, a->queue[q].index, 0));
            sh->moved[i] = 0;
        }
    }
    gp_sync();
    for (;;) {
        if (gp_tid() == 0)
            sh->go = gp_proxy_next(a, sh, from);
        gp_sync();
        const uint32_t go = sh->go;
        if (!go)
            break;
        const gp_proxy_queue *q = &a->queue[gp_bid() + (go - 1) * a->nblocks];
        gp_proxy_move(a, q, sh->base[go - 1], sh->moved[go - 1]);
        gp_sync_publish();
        if (gp_tid() == 0) {
            sh->moved[go - 1]++;
            gp_flag_release(gp_proxy_count(a, q->index, 0), sh->base[go - 1] + sh->moved[go - 1]);
        }
        from = go;
    }
    if (gp_tid() == 0 && gp_bid() == 0 && !sh->over)
        gp_proxy_end(a);
}

#endif
