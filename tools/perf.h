#ifndef RCCLX_PERF_H
#define RCCLX_PERF_H

#include "nccl_table.h"
#include "perf_data.h"

#include "base/json.h"
#include "device/gpu.h"

#include <stdio.h>
#include <time.h>

/* `rcclx perf`, by file:
 *
 *   perf_main.c    options
 *   perf_launch.c  ranks as processes and threads
 *   perf_team.c    barrier and gather among them, beside the library measured
 *   perf_ops.c     the collectives: sizes, calls, what must come out
 *   perf_sweep.c   types x operators x roots x sizes, alike in every worker
 *   perf_open.c    communicators, streams;  perf_memory.c  buffers, registrations
 *   perf_run.c     host memory: loops, clocks, checks
 *   perf_device.c  GPUs: graphs, events, checks;  perf_gpu.c  which GPUs there are
 *   perf_data.c    inputs and expected results;  perf_float.c  small floats
 *   perf_near.c    how far from it low precision may be
 *   perf_table.c   the table;  perf_json.c  the same for programs
 *   perf_codec.c   codecs alone, on one GPU (perf_codec.h)
 *
 * Words: a process has threads, each a worker; a worker drives one or more
 * ranks; a side is a library with a kind of memory (0 ours, 1 and on those after
 * --vs); a place is out of place (0) or in place (1). */

enum { PERF_SIDES = 4, PERF_PLACES = 2, PERF_MAX_RANKS = 1024 };

typedef struct perf_op perf_op;

/* What a library is told of its buffers beforehand (-R). */
enum { PERF_UNREGISTERED, PERF_REGISTERED, PERF_WINDOW };

typedef struct {
    const perf_op *op;
    bool           codecs; /* the codecs alone, in place of a collective */
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
    int            blocking, cta, unalign;
    int            null_stream, average; /* -1: by device */
    int            registration[PERF_SIDES]; /* -1: as side 0's; there, by device */
    int            graph, repeats; /* graph launches in a measurement (0: no graph); measurements of a side */
    bool           cputime, timestamp, memory, dirty, plain, bind, json;
    double         timeout_s;
    const char    *json_file, *device, *lib;
    int            low;       /* low precision of side 0: -1 as the environment says, else PERF_EXACT ...; codecs: a bit each */
    size_t         low_min;   /* from so many bytes on */
    char          *vs[PERF_SIDES - 1]; /* owned */
    int            nvs;
    int            kind; /* PERF_HOST or rcclx_gpu_kind, once found out */
} perf_config;

/* --- devices (perf_gpu.c) -------------------------------------------------- */

enum { PERF_HOST = -1 };

/* Find out what "auto", "host", "cuda", "hip" or "emu" means here, in a process
 * of its own: drivers do not live on through a fork. 0, or TOOL_FAILED after a
 * message. count: devices, 0 for host memory. */
int perf_gpu_find(const char *word, int *kind, int *count);

/* The driver's ordinary memory, as cudaMalloc would give it. NULL: `why`. */
void *perf_gpu_alloc(const rcclx_gpu *gpu, size_t nbytes, const char **why);
void  perf_gpu_free(const rcclx_gpu *gpu, void *p);

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

/* Elements [from, to) of a buffer, to be read at got. */
typedef struct {
    const char *got;
    size_t      from, to;
} perf_piece;

struct perf_op {
    const char *word; /* all_reduce */
    const char *call; /* ncclAllReduce, for messages */
    bool        reduces, rooted, in_place, low; /* low: may run in low precision */
    perf_extent (*extent)(size_t total, int n, size_t nbytes);
    double (*factor)(int n); /* bus bandwidth over algorithm bandwidth */
    ncclResult_t (*issue)(const perf_call *c);
    /* In place: where in the one buffer the two are, in elements. */
    size_t (*send_at)(size_t base, int rank);
    size_t (*recv_at)(size_t base, int rank);
    /* Wrong elements among those of the piece, of what this rank has received. */
    size_t (*check)(const perf_rule *rule, const perf_call *c, const perf_piece *p);
};

extern const perf_op perf_ops[]; /* ends with word NULL */
const perf_op       *perf_op_find(const char *word);
const char          *perf_op_nearest(const char *word);

/* --- the team (perf_team.c) ----------------------------------------------- */

typedef struct perf_team perf_team;
enum { PERF_SLOT = 256 }; /* bytes a worker may give in one gather */

/* For nprocs processes that this one is about to fork. NULL: no memory. */
perf_team *perf_team_shared(int nprocs, int threads);
/* For processes that a launcher started, over a communicator of one rank each.
 * gpu: the communicator is one of device memory, of this device; or NULL. */
perf_team *perf_team_comm(const nccl_table *lib, ncclComm_t comm, int nprocs, int proc, int threads,
                          const rcclx_gpu *gpu, int device);
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
    double least_us; /* of the measurements whose median time_us is; 0: there was one */
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
    int  rank, pid, device;
    char host[48], place[24], model[96]; /* place: "host", or where the GPU sits */
} perf_rank_info;

typedef struct {
    const perf_config *config;
    const nccl_table  *libs;
    const rcclx_gpu   *gpu; /* NULL: host memory */
    int                nsides, nranks;
    double             init_us;
    int                codec; /* low precision of side 0, PERF_EXACT ..., and from how many bytes on; 0: where it pays */
    size_t             codec_min;
    perf_rank_info    *ranks;
    perf_row          *rows;
    size_t             nrows, cap;
    FILE              *out; /* the table; NULL: only JSON is wanted */
    double             busbw_sum;
    long               busbw_n, wrong;
} perf_report;

int         perf_registration(const perf_config *c, const nccl_table *lib, int side); /* PERF_WINDOW ... */
const char *perf_registration_name(int registration);
const char *perf_codec_name(int codec);
const char *perf_buffers(const perf_report *r, int side); /* which allocator */
double      perf_best_other(const perf_report *r, const perf_row *row, int place); /* us; 0: there is none */

void perf_table_head(const perf_report *r);
void perf_table_rank(const perf_report *r, const perf_rank_info *info);
void perf_table_columns(const perf_report *r);
void perf_table_row(const perf_report *r, const perf_row *row);
void perf_table_tail(const perf_report *r, bool slow);
void perf_progress(const perf_report *r, size_t size); /* NULL-safe on no terminal; size 0 erases */
int  perf_json_write(const perf_report *r);            /* TOOL_FAILED if the file cannot be written */

/* An object with all that `put` puts into it, to where c says; the machine and the command, which belong into each. */
int  perf_json_put(const perf_config *c, void (*put)(rcclx_json *j, const void *what), const void *what);
void perf_json_head(rcclx_json *j, const perf_config *c);

/* --- running --------------------------------------------------------------- */

int    perf_launch(const perf_config *c);
int    perf_codecs(const perf_config *c);                 /* perf_codec.c */
size_t perf_next_size(const perf_config *c, size_t size); /* above c->max: it was the last */

/* A process' part of it. */
typedef struct {
    const perf_config *config;
    const nccl_table  *libs;
    int                nsides;
    const rcclx_gpu   *gpu;
    int                local; /* which process of this machine: its ranks' devices follow from it */
    perf_team         *team;
} perf_job;

/* The whole sweep in one worker (perf_sweep.c); all workers return together. */
void perf_sweep(const perf_job *job, int thread);

#endif
