#ifndef RCCLX_EXEC_BATCH_H
#define RCCLX_EXEC_BATCH_H

/* Private to exec/: operations posted together, waiting for their teams' turns. */
#include "exec/task.h"

typedef struct {
    rcclx_team *team;
    uint64_t    ticket;
} rcclx_turn;

typedef struct rcclx_batch {
    struct rcclx_batch *next; /* in its stream's queue */
    rcclx_task  *tasks;
    rcclx_task **left;        /* those not finished */
    rcclx_turn  *turns;
    int          ntasks, nturns;
} rcclx_batch;

void         rcclx_batch_wait_turns(rcclx_batch *b);
rcclx_status rcclx_batch_run(rcclx_task **left, int n);
void         rcclx_batch_pass_turns(rcclx_batch *b);

/* The stream takes the batch; ARGUMENT if there is no such stream (the batch is still the caller's). */
rcclx_status rcclx_stream_push(void *handle, rcclx_batch *b);

#endif
