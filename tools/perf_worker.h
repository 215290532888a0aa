#ifndef RCCLX_PERF_WORKER_H
#define RCCLX_PERF_WORKER_H

#include "perf.h"

/* One rank a worker drives: its communicators (one a side) and its buffers. */
typedef struct {
    int          rank;
    ncclComm_t   comm[PERF_SIDES];
    cudaStream_t stream[PERF_SIDES];
    ncclRedOp_t  premul[PERF_SIDES];
    char        *memory[2]; /* send, receive, as allocated */
    void        *handle[PERF_SIDES][2];
    ncclWindow_t window[PERF_SIDES][2];
} perf_rank;

typedef struct {
    const perf_config *config;
    const nccl_table  *libs;
    int                nsides, index, thread, nranks;
    perf_team         *team;
    perf_rank         *ranks; /* config->per_thread */
    perf_rule          rule;
    perf_extent        extent;
    perf_call         *calls[PERF_SIDES][PERF_PLACES]; /* of the row at hand, one a rank */
    double            *samples[PERF_SIDES];
} perf_worker;

/* Ends the process after a message if a call failed. */
void perf_must(const perf_worker *w, int side, const perf_rank *r, const char *call, ncclResult_t result);

/* Communicators, streams, buffers. open returns the time that init took. */
double perf_open(perf_worker *w);
void   perf_close(perf_worker *w);
void   perf_premul_open(perf_worker *w); /* for w->rule.type */
void   perf_premul_close(perf_worker *w);

/* Time a call took here (us), for every side, at one place; then the wrong
 * elements of all checks (-1: none was asked for). */
void perf_measure(perf_worker *w, int place, double us[PERF_SIDES]);
void perf_check(perf_worker *w, int place, long wrong[PERF_SIDES]);

#endif
