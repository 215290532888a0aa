#ifndef RCCLX_PERF_H
#define RCCLX_PERF_H

#include "nccl_table.h"
#include "perf_data.h"

#include <stdio.h>
#include <time.h>

/* `rcclx perf`, by file:
 *
 *   perf_main.c    options
 *   perf_launch.c  ranks as processes and threads
 *   perf_team.c    barrier and gather among them, beside the library measured
 *   perf_ops.c     the collectives: sizes, calls, what must come out
 *   perf_run.c     the sweep: buffers, loops, clocks
 *   perf_data.c    inputs and expected results;  perf_float.c  small floats
 *   perf_table.c   the table;  perf_json.c  the same for programs
 *
 * Words: a process has threads, each a worker; a worker drives one or more
 * ranks; a side is a library (0 ours, 1 the one after --vs); a place is out of
 * place (0) or in place (1). */

enum { PERF_SIDES = 2, PERF_PLACES = 2, PERF_MAX_RANKS = 1024 };

typedef struct perf_op perf_op;

typedef struct {
    const perf_op *op;
    char         **argv; /* the command as given, for the record */
    int            argc;
    bool           tests;  /* started as *_perf: nccl-tests' defaults */
    int            nprocs; /* 0: by launcher, else as many as cores */
    int            threads, per_thread;
    size_t         min, max, step;
    double         factor; /* 0: by step */
    int            iters, agg, warmup, cycles, check;
    int            redop; /* 0..5; -1: all */
    int            type;  /* ncclDataType_t; -1: all */
    int            root;  /* -1: all */
    int            blocking, null_stream, average, registration, cta, unalign;
    bool           cputime, timestamp, memory, dirty, plain, bind, json;
    double         timeout_s;
    const char    *json_file, *device, *lib, *vs;
} perf_config;

/* --- collectives (perf_ops.c) -------------------------------------------- */

typedef struct {
    size_t base;       /* elements: the count handed to the call */
    size_t send, recv; /* elements of the largest send and receive buffer of a rank */
    size_t shown;      /* elements the size column counts */
} perf_extent;

/* Everything a call needs. */
typedef struct {
    const nccl_table *lib;
    ncclComm_t        comm;
    cudaStream_t      stream;
    int               rank, nranks, root;
    ncclDataType_t    type;
    size_t            nbytes; /* an element */
    ncclRedOp_t       redop;
    const char       *send;
    char             *recv;
    size_t            base;
} perf_call;

struct perf_op {
    const char *word; /* all_reduce */
    const char *call; /* ncclAllReduce, for messages */
    bool        reduces, rooted, in_place;
    perf_extent (*extent)(size_t total, int n, size_t nbytes);
    double (*factor)(int n); /* bus bandwidth over algorithm bandwidth */
    ncclResult_t (*issue)(const perf_call *c);
    /* In place: where in the one buffer the two are, in elements. */
    size_t (*send_at)(size_t base, int rank);
    size_t (*recv_at)(size_t base, int rank);
    /* Wrong elements among those rank has received; got is its receive buffer. */
    size_t (*check)(const perf_rule *rule, const perf_call *c);
};

extern const perf_op perf_ops[]; /* ends with word NULL */
const perf_op       *perf_op_find(const char *word);
const char          *perf_op_nearest(const char *word);

/* --- the team (perf_team.c) ----------------------------------------------- */

typedef struct perf_team perf_team;
enum { PERF_SLOT = 256 }; /* bytes a worker may give in one gather */

/* For nprocs processes that this one is about to fork. NULL: no memory. */
perf_team *perf_team_shared(int nprocs, int threads);
/* For processes that a launcher started, over a communicator of one rank each. */
perf_team *perf_team_comm(const nccl_table *lib, ncclComm_t comm, int nprocs, int proc, int threads);
void       perf_team_join(perf_team *t, int proc); /* after the fork */
void       perf_team_destroy(perf_team *t);
int        perf_team_workers(const perf_team *t);
int        perf_team_proc(const perf_team *t);

/* All workers call these, in the same order. Gather ends with all[] filled for
 * everybody: nbytes from each worker, in order. */
void perf_team_barrier(perf_team *t, int worker);
void perf_team_gather(perf_team *t, int worker, const void *mine, size_t nbytes, void *all);

/* What the job came to, kept where a forking parent sees it. */
void perf_team_verdict_set(perf_team *t, int code);
int  perf_team_verdict(const perf_team *t);

/* --- results --------------------------------------------------------------- */

typedef struct {
    bool   done;    /* false: does not exist for this collective */
    double time_us, algbw, busbw;
    long   wrong;   /* -1: not checked */
} perf_cell;

typedef struct {
    size_t      size, count;
    const char *type, *redop;
    int         root;
    perf_cell   cell[PERF_SIDES][PERF_PLACES];
    time_t      when;
} perf_row;

typedef struct {
    const perf_config *config;
    const nccl_table  *libs;
    int                nsides, nranks;
    double             init_us;
    perf_row          *rows;
    size_t             nrows, cap;
    FILE              *out; /* the table; NULL: only JSON is wanted */
    double             busbw_sum;
    long               busbw_n, wrong;
} perf_report;

typedef struct {
    int  rank, pid;
    char host[48], model[96];
} perf_rank_info;

const char *perf_buffers(const perf_report *r); /* which allocator */

void perf_table_head(const perf_report *r);
void perf_table_rank(const perf_report *r, const perf_rank_info *info);
void perf_table_columns(const perf_report *r);
void perf_table_row(const perf_report *r, const perf_row *row);
void perf_table_tail(const perf_report *r, bool slow);
void perf_progress(const perf_report *r, size_t size); /* NULL-safe on no terminal; size 0 erases */
int  perf_json_write(const perf_report *r);            /* TOOL_FAILED if the file cannot be written */

/* --- running --------------------------------------------------------------- */

int perf_launch(const perf_config *c);

/* The whole sweep in one worker (perf_run.c); all workers return together. */
void perf_sweep(const perf_config *c, const nccl_table *libs, int nsides, perf_team *team, int worker, int thread);

#endif
