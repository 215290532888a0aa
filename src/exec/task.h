#ifndef RCCLX_EXEC_TASK_H
#define RCCLX_EXEC_TASK_H

/* Private to exec/: an operation on its way. */
#include "exec/exec.h"

/* A task is polled until it is done; nothing in it blocks. */
struct rcclx_task {
    rcclx_op     op;
    rcclx_status status;
    uint64_t     index;    /* point-to-point: the how-manieth message of its pair */
    uint64_t     moved;    /* grows with every progress: bytes through the pipe, steps done */
    size_t      *tables;   /* of an all-to-all-v kept in a group; owned */
    struct rcclx_task *next; /* on a GPU: the next of its team in the group */
    uint8_t      state;    /* of the kind's own state machine; 0: not begun */
    bool         grouped;  /* other operations run beside it */
    bool         warned;   /* the long wait was logged */
    uint8_t      stuck;    /* times seen head to head with its peer */
};

/* AGAIN: come back. Anything else: finished, with this status. */
rcclx_status rcclx_coll_poll(rcclx_task *t); /* coll.c */
rcclx_status rcclx_pair_poll(rcclx_task *t); /* pair.c */
void         rcclx_pair_number(rcclx_task *t); /* its place in its pair's order, given when it is posted */

/* Whom the task waits for now: a rank, or -1. What it is, in words. */
int  rcclx_coll_waits_for(const rcclx_task *t);
rcclx_status rcclx_coll_passed(const rcclx_task *t); /* AGAIN: nothing is known of a far rank having gone on without us */
void rcclx_task_words(const rcclx_task *t, char *text, size_t nbytes);

/* Run tasks to their end (their teams' turns are taken already). */
rcclx_status rcclx_task_run(rcclx_task *t);

/* --- turns: one strong order of operations per team ----------------------- */

uint64_t rcclx_turn_take(rcclx_team *t);
void     rcclx_turn_wait(rcclx_team *t, uint64_t ticket);
void     rcclx_turn_pass(rcclx_team *t);

/* --- waiting: spin, then yield, then sleep -------------------------------- */

typedef struct {
    uint64_t began, checked;
    uint32_t rounds;
} rcclx_patience;

/* One round of waiting for a team's peers. True now and then: the caller should
 * ask rcclx_task_check of its tasks. */
bool rcclx_patience_round(rcclx_patience *p, rcclx_team *t);

/* Has something happened that ends the wait: abort, failed or dead peer, deadline?
 * AGAIN: nothing, go on waiting. Logs a long wait once. */
rcclx_status rcclx_task_check(rcclx_task *t, uint64_t waited_ns);

/* A step failed: break the team, which also tells the peers that wait for this rank. The last error says why. */
rcclx_status rcclx_task_fail(rcclx_task *t, rcclx_status s);

/* Wake the ranks of this team that sleep; to be called after a signal. */
void rcclx_team_ring(rcclx_team *t);

/* What this rank is in, for whoever asks: kind and peer, 0: nothing. */
static inline void rcclx_team_now(rcclx_team *t, uint64_t what)
{
    atomic_store_explicit(&t->area[t->rank]->ident.now, what, memory_order_relaxed);
}
#define RCCLX_NOW(kind, peer, grouped) (((uint64_t)(kind) + 1) << 32 | (uint64_t)(grouped) << 31 | (uint64_t)((peer) + 1))

#endif
