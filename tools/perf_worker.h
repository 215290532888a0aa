#ifndef RCCLX_PERF_WORKER_H
#define RCCLX_PERF_WORKER_H

#include "perf.h"

/* One rank a worker drives: its communicators (one a side) and its buffers. */
typedef struct {
    int             rank, device; /* device: -1 host */
    ncclComm_t      comm[PERF_SIDES];
    cudaStream_t    stream[PERF_SIDES]; /* of a GPU: one for all sides */
    ncclRedOp_t     premul[PERF_SIDES];
    char           *memory[PERF_SIDES][2]; /* send, receive, as allocated; on the host the sides share them */
    void           *handle[PERF_SIDES][2];
    ncclWindow_t    window[PERF_SIDES][2];
    rcclx_gpu_event from, to;
    rcclx_gpu_graph graph[PERF_SIDES]; /* of the row at hand */
} perf_rank;

typedef struct {
    const perf_config *config;
    const nccl_table  *libs;
    const rcclx_gpu   *gpu; /* NULL: host memory */
    int                nsides, index, thread, nranks;
    perf_team         *team;
    perf_rank         *ranks; /* config->per_thread */
    perf_rule          rule;
    perf_extent        extent;
    perf_call         *calls[PERF_SIDES][PERF_PLACES]; /* of the row at hand, one a rank */
    double            *samples[PERF_SIDES];
    double            *times; /* [workers][PERF_SIDES] */
    rcclx_gpu_scope    scope;
    int                codec;   /* low precision of side 0: PERF_EXACT ... */
    size_t             codec_min;
    int                current; /* the device of this thread; -1 before the first */
    void              *stage;   /* PERF_CHUNK bytes of pinned host memory */
} perf_worker;

enum {
    PERF_SLACK = 4096, PERF_GUARD = 64, /* bytes behind a buffer: the guard, and the offset of -u */
    PERF_CHUNK = 16 << 20,              /* bytes that are on their way to or from a GPU at a time */
};

/* Ends the process after a message if a call failed. */
void perf_must(const perf_worker *w, int side, const perf_rank *r, const char *call, ncclResult_t result);
void perf_must_gpu(const perf_rank *r, const char *what, rcclx_status status);
_Noreturn void perf_give_up(const char *text);

/* Make the rank's device the thread's, which libraries go by. */
void perf_use(perf_worker *w, const perf_rank *r);

/* Communicators, streams, buffers. open returns the time that init took. */
double perf_open(perf_worker *w);
void   perf_close(perf_worker *w);
void   perf_memory_open(perf_worker *w);
void   perf_memory_deregister(perf_worker *w, int side);
void   perf_memory_close(perf_worker *w);
void   perf_premul_open(perf_worker *w); /* for w->rule.type */
void   perf_premul_close(perf_worker *w);

/* What results of a side may be off by, in the row at hand. */
static inline int perf_codec_of(const perf_worker *w, int side)
{
    const int type = w->rule.type, redop = w->rule.redop;

    return side == 0 && w->config->op->low && w->nranks > 1 &&
           (type == ncclFloat32 || type == ncclFloat16 || type == ncclBfloat16) &&
           (redop == PERF_SUM || redop == PERF_AVG || redop == PERF_MOVE) ? w->codec : PERF_EXACT;
}

/* What one place of a row came to, a number a side. */
typedef struct {
    double us[PERF_SIDES], least[PERF_SIDES]; /* time of a call; 0: not known */
    long   wrong[PERF_SIDES]; /* elements, of all checks; -1: none was asked for */
} perf_outcome;

/* The times here, still to be combined with those of other workers; on GPUs they are already. */
void perf_host_place(perf_worker *w, int place, perf_outcome *o);
void perf_device_place(perf_worker *w, int place, perf_outcome *o);

/* Parts of both. */
double         perf_now_us(void);
double         perf_median(double *x, int n); /* sorts x */
double         perf_combine(const perf_worker *w, const double *first, size_t stride); /* us of all workers, by -a */
void           perf_issue(perf_worker *w, int side, int place, int calls);
void           perf_finish(perf_worker *w, int side);
void           perf_check_async(const perf_worker *w, int side);
unsigned char *perf_guard(const perf_worker *w, int place, const perf_call *c);

#endif
