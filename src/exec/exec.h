#ifndef RCCLX_EXEC_EXEC_H
#define RCCLX_EXEC_EXEC_H

#include "algo/algo.h"
#include "codec/codec.h"
#include "device/gpu.h"
#include "device/types.h"
#include "plan/plan.h"
#include "transport/transport.h"

#include <pthread.h>

/* Runs operations: takes them one by one or in groups, at once or on streams,
 * finds each one's plan and carries it out.
 *
 *   team    what the executor knows of a communicator: who the ranks are and how
 *           to reach them. Made and taken down by comm/; one rank's view.
 *   op      one call of the API, as data.
 *   group   calls of this thread between start and end; they run together at the end.
 *   stream  a FIFO with a worker thread; operations without a stream are done when
 *           the call (or the group's end) returns. */

typedef struct rcclx_runner rcclx_runner; /* coll.c: the collective in progress */
typedef struct rcclx_stream rcclx_stream;
typedef struct rcclx_task rcclx_task; /* task.h */
typedef struct rcclx_gpu_team rcclx_gpu_team; /* gpu_team.h */
typedef struct rcclx_mirror rcclx_mirror; /* mirror.h: ranks of other machines */
typedef struct rcclx_proxy rcclx_proxy; /* proxy_team.h: GPUs of several machines */

/* Low precision where a call says nothing; see precision.h. */
typedef struct {
    _Atomic uint8_t  codec, from;  /* rcclx_codec_id; who asked */
    _Atomic uint16_t kinds;        /* a bit a rcclx_kind */
    _Atomic uint32_t told;         /* causes that the log has named already */
    _Atomic uint64_t min_bytes;    /* 0: by kind, ranks and device */
} rcclx_precision;

typedef struct rcclx_team {
    int           nranks, rank;
    rcclx_segment segment;
    rcclx_area   *area[RCCLX_MAX_RANKS];
    rcclx_peer    peer[RCCLX_MAX_RANKS];
    int           nnodes;                   /* machines */
    uint8_t       node[RCCLX_MAX_RANKS];    /* which a rank is on */
    rcclx_mirror *mirror;                   /* NULL: all ranks are on one */
    bool          one_process, cma, arenas; /* agreed by all ranks at init; of those on my machine */
    bool          crowded;                  /* more ranks than cores here */
    rcclx_machine machine;
    char          algo[256];                /* the forced algorithms, agreed */
    bool          ordered;
    uint8_t       tuned[RCCLX_COLL_COUNT][RCCLX_TUNED]; /* a tuner plug-in's choices, agreed: row of rcclx_algos + 1 */
    size_t        slot_max, quick, chunk;   /* agreed bounds: message that fits a slot; that goes through it whatever
                                               the buffers are; bytes a round of staging */
    _Atomic double timeout;                 /* seconds; 0: never. Set by the user's thread, read by streams' */
    double        warn_after;               /* the same */
    int64_t       spin_ns;
    int           device;                   /* the GPU's number; else shown in the log */
    const rcclx_gpu *driver;                /* of this rank's GPU; NULL: host memory */
    rcclx_gpu_team  *gpu;                   /* NULL: host memory, or several machines: */
    rcclx_proxy     *proxy;                 /* the way of GPUs to those of other machines; NULL: host memory, or one machine */
    pthread_mutex_t  above_lock;            /* guards above */
    struct rcclx_team *above;               /* the team over all machines that this one is a part of; NULL: none */
    uint64_t      id;                       /* shown in the log: the communicator's hash */

    _Atomic int   holders;                  /* calls, groups and streams that have the team in hand */
    void        (*last)(struct rcclx_team *t); /* called by the one who lets go last */
    _Atomic uint64_t tickets, serving;      /* turns: one strong order of operations, over threads and streams */
    _Atomic uint32_t aborted;               /* set by abort, from any thread */
    _Atomic uint32_t broken;                /* first cause is set: a rcclx_status */
    char             cause[RCCLX_ERROR_TEXT];
    pthread_mutex_t  cause_lock;

    uint64_t      seq;                      /* collectives started; who has the turn writes, as all below */
    uint64_t      credit;                   /* all peers have finished this one */
    uint64_t      sent[RCCLX_MAX_RANKS], received[RCCLX_MAX_RANKS]; /* messages handed out numbers */
    uint64_t      sending[RCCLX_MAX_RANKS], receiving[RCCLX_MAX_RANKS]; /* whose turn it is */
    uint64_t      piped[RCCLX_MAX_RANKS], drained[RCCLX_MAX_RANKS];
    rcclx_runner *runner;
    _Atomic uint64_t ops[RCCLX_KIND_COUNT]; /* operations by kind, for the dump; who has the turn writes */
    rcclx_precision  precision;
    _Atomic uint64_t coded[RCCLX_KIND_COUNT]; /* of them in low precision; any thread counts */
} rcclx_team;

/* Rank 0's decisions, once its ident says READY. */
const rcclx_agreed *rcclx_team_agreed(const rcclx_team *t);

/* After nranks, rank, segment, peers and agreed facts are filled in. */
rcclx_status rcclx_team_start(rcclx_team *t);

/* How long an operation may wait for a peer from now on; 0: for ever. */
void rcclx_team_set_timeout(rcclx_team *t, double seconds);
/* Wait for what is queued; a broken team drains at once, an aborted one within half a second. */
void         rcclx_team_drain(rcclx_team *t);
void         rcclx_team_stop(rcclx_team *t);  /* frees what start made; takes half-started ones */

/* Are the buffers on a GPU? */
static inline bool rcclx_team_on_gpu(const rcclx_team *t)
{
    return t->gpu || t->proxy;
}

/* The team whose GPU functions serve it: registration, checks, reports. NULL: host memory. */
rcclx_team *rcclx_team_gpu(rcclx_team *t);

/* As a plan's shape wants them. */
static inline const uint8_t *rcclx_team_nodes(const rcclx_team *t)
{
    return t->nnodes > 1 ? t->node : NULL;
}

static inline void rcclx_team_hold(rcclx_team *t)
{
    atomic_fetch_add_explicit(&t->holders, 1, memory_order_relaxed);
}

static inline void rcclx_team_let_go(rcclx_team *t)
{
    if (atomic_fetch_sub_explicit(&t->holders, 1, memory_order_acq_rel) == 1)
        t->last(t);
}

/* Everything agreed is filled in. */
void         rcclx_team_settled(rcclx_team *t);

/* The team's first cause. break: keep it, tell the peers (their waits end with PEER_LOST or
 * MISMATCH), and hand the status back. broken: OK, or the status with its text as last error. */
rcclx_status rcclx_team_break(rcclx_team *t, rcclx_status s, const char *text);
rcclx_status rcclx_team_broken(rcclx_team *t);
/* Broken by a team that it is a part of, or the other way round: told to the peers, not logged again. */
void         rcclx_team_join_break(rcclx_team *t, rcclx_status s, const char *text);
/* Peer r has failed: keep its cause as this team's. what: the words of the operation that meets it, or "". */
rcclx_status rcclx_team_follow(rcclx_team *t, int r, const char *what);
/* Is rank r gone, its process or the way to it? how: in words that follow its name. */
bool         rcclx_team_lost(const rcclx_team *t, int r, char *how, size_t nhow);
/* Ask without waiting: broken, aborted, or has a peer died or failed? Cheap enough for a watchdog. */
rcclx_status rcclx_team_poll(rcclx_team *t);
void         rcclx_team_abort(rcclx_team *t);

/* One call of the API. Pointers may be NULL when nothing is read or written there. */
typedef struct {
    rcclx_kind    kind;
    rcclx_team   *team;
    const void   *in;
    void         *out;
    size_t        count;     /* as the API counts it: all-reduce the buffer, all-gather what each sends, ... */
    rcclx_type    type;
    rcclx_redop   op;        /* COPY for those that do not reduce */
    uint64_t      scalar;    /* PREMUL: the type's bits */
    int           root;      /* or peer */
    const size_t *scounts, *sdispls, *rcounts, *rdispls; /* all-to-all-v, elements; copied where the op outlives the call */
    const void   *bias;      /* AllReduceWithBias: added at the end */
    void         *stream;    /* NULL: done on return (or at the group's end) */
    uint8_t       precision; /* what the call asks for: 0 what the team says, else 1 + a rcclx_codec_id */
    uint8_t       codec;     /* what runs on the wire, a rcclx_codec_id; filled in when posted (precision.h) */
    size_t        coded_from; /* AlltoAllv: bytes of a message from which the codec is used */
} rcclx_op;

/* Run, or queue on its stream, or keep for the group's end. The arguments are checked already. */
rcclx_status rcclx_op_post(const rcclx_op *op);

/* Blocking all-gather of nbytes (at most RCCLX_SLOT_BYTES) for the library's own exchanges. */
rcclx_status rcclx_team_exchange(rcclx_team *t, const void *mine, void *all, size_t nbytes);

/* --- groups -------------------------------------------------------------- */

bool         rcclx_group_open(void);
rcclx_status rcclx_group_start(void);
/* ARGUMENT/USAGE errors met inside the group are kept by rcclx_group_fail and come back here;
 * then nothing of the group runs. */
rcclx_status rcclx_group_end(void);
void         rcclx_group_fail(rcclx_status s);
/* A job that needs other ranks of this thread (init, split): run at the group's end, all jobs
 * together, each in a thread of its own; outside a group at once. A group that failed before its
 * end drops its jobs instead. Both take the job. */
rcclx_status rcclx_group_job(rcclx_status (*run)(void *job), void (*drop)(void *job), void *job);
/* End the group without running its operations (ncclGroupSimulateEnd); estimated time in us. */
rcclx_status rcclx_group_simulate(double *us);

/* --- streams ------------------------------------------------------------- */

rcclx_status rcclx_stream_create(void **handle);
rcclx_status rcclx_stream_query(void *handle);       /* AGAIN: work left */
rcclx_status rcclx_stream_synchronize(void *handle); /* first failure of its operations since the last call */
rcclx_status rcclx_stream_destroy(void *handle);     /* after its work */
rcclx_status rcclx_stream_position(void *handle, uint64_t *position); /* batches given to it so far */

/* Until the first `position` batches are done: the first failure there ever was among them. AGAIN: the deadline (of
 * CLOCK_MONOTONIC; NULL: none) came first. */
rcclx_status rcclx_stream_wait(void *handle, uint64_t position, const struct timespec *deadline);
bool         rcclx_stream_known(const void *handle);

/* --- GPUs (gpu_*.c) -------------------------------------------------------- */

/* The GPUs that a word ("cuda"; NULL or "auto": RCCLX_DEVICE) stands for; *gpu NULL: host memory.
 * ARGUMENT: no such word; USAGE: there are none, and the text says why. `call` and `rank` are for texts. */
rcclx_status rcclx_gpu_choose(const char *call, int rank, const char *word, const rcclx_gpu **gpu);

/* Set-up: create after rcclx_team_start, when every rank has said what its device is; agree when all
 * settings are known. destroy is local and takes half-made ones. */
rcclx_status rcclx_gpu_team_create(rcclx_team *t, const uint64_t token[2], double timeout);
void         rcclx_gpu_team_set_timeout(rcclx_team *t, double seconds); /* of launches from now on */
rcclx_status rcclx_gpu_team_agree(rcclx_team *t, const rcclx_agreed *a);
void         rcclx_gpu_team_destroy(rcclx_team *t);
void         rcclx_gpu_team_abort(rcclx_team *t);  /* kernels leave */
void         rcclx_gpu_team_drain(rcclx_team *t);  /* what was handed to the GPU has run, or will not */
rcclx_status rcclx_gpu_team_poll(rcclx_team *t);   /* what kernels have reported */

/* May the GPU use this buffer? ARGUMENT with a text. */
rcclx_status rcclx_gpu_buffer_check(const rcclx_team *t, const char *call, const char *what, const void *p, size_t nbytes);

/* A buffer that peers may reach in place from soon on; waits a moment for them. *reg -1: it cannot be
 * shared, and operations on it are staged (the log says why). */
rcclx_status rcclx_gpu_register(rcclx_team *t, const void *p, size_t nbytes, int *reg);
rcclx_status rcclx_gpu_deregister(rcclx_team *t, int reg);

/* Bytes that lie where the GPU finds them, now. */
rcclx_status rcclx_gpu_read(rcclx_team *t, void *to, const void *from, size_t nbytes);

/* ncclMemAlloc on the current device. free: *mine is false for memory that is none of these. */
rcclx_status rcclx_gpu_memory_alloc(const rcclx_gpu *gpu, void **p, size_t nbytes);
rcclx_status rcclx_gpu_memory_free(void *p, bool *mine);

/* For reports: bytes of memory it holds, the last collective, which plan would run. */
typedef struct {
    const char *algo;
    int         protocol, nlanes;      /* rcclx_proto */
} rcclx_gpu_choice;
typedef struct {
    char     name[96], pci[24];
    size_t   nbytes, window_bytes;
    int      lanes, threads, registered;
    bool     in_host, lines;           /* windows are host memory; LL128 may be used */
    uint32_t turn;                     /* of the last collective handed to the GPU */
} rcclx_gpu_report;
rcclx_status rcclx_gpu_explain(rcclx_team *t, rcclx_kind kind, size_t nbytes, rcclx_gpu_choice *c);
void         rcclx_gpu_describe(rcclx_team *t, rcclx_gpu_report *r);
/* The number in NCCL's log lines of "0000:1b:00.0": 0x1b000. */
uint64_t     rcclx_gpu_bus(const char *pci);

/* --- GPUs of several machines (proxy*.c) ------------------------------------ */

/* whole: all ranks, a team in host memory whose driver is set; near: this machine's, on GPUs; rail: those of my place on
 * all machines, in host memory, NULL if machines are not alike. All outlive the proxy. destroy takes half-made ones. */
rcclx_status rcclx_proxy_create(rcclx_team *whole, rcclx_team *near, rcclx_team *rail);
void         rcclx_proxy_destroy(rcclx_team *whole);
rcclx_status rcclx_proxy_post(rcclx_team *whole, const rcclx_task *chain, void *stream); /* as rcclx_gpu_post */
void         rcclx_proxy_abort(rcclx_team *whole);  /* kernels leave */
void         rcclx_proxy_drain(rcclx_team *whole);
rcclx_status rcclx_proxy_poll(rcclx_team *whole);
void         rcclx_proxy_spread(rcclx_team *whole, rcclx_status s, const char *text); /* whole is broken: so are its parts */
void         rcclx_proxy_raise(rcclx_team *part, rcclx_status s, const char *text);   /* a part is: so is the whole */
void         rcclx_proxy_set_timeout(rcclx_team *whole, double seconds);
rcclx_team  *rcclx_proxy_near_team(const rcclx_team *whole);
/* Bytes of pinned and of device memory; pieces moved. */
void         rcclx_proxy_describe(const rcclx_team *whole, size_t *nbytes, uint64_t *pieces, const rcclx_team **rail);

/* --- the machine --------------------------------------------------------- */

/* Defaults for pricing on this machine with n ranks (cores from the affinity mask, caches from the
 * system, rates measured on one machine of this class). */
void rcclx_machine_default(rcclx_machine *m, int nranks);

#endif
