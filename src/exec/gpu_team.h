#ifndef RCCLX_EXEC_GPU_TEAM_H
#define RCCLX_EXEC_GPU_TEAM_H

/* Private to exec/: a team whose ranks are GPUs.
 *
 *   post --> pick (which plan, how many lanes) --> lower (the plan as a kernel reads it,
 *            remembered) --> launch (numbers and addresses filled in)      asynchronous
 *
 *   watch    a thread: registrations of peers, deaths, what kernels report
 *
 * Words (lane, turn, token, window) as in device/kernels/work.h. */
#include "codec/codec.h"
#include "device/gpu.h"
#include "device/kernels/work.h"
#include "exec/runner.h"
#include "transport/window.h"

/* The kernels, each for every protocol. */
typedef enum {
#define X(id) RCCLX_KERNEL_##id,
    GP_KERNEL_LIST(X)
#undef X
    RCCLX_KERNEL_COUNT
} rcclx_kernel;

/* Those for messages: few, many, some in low precision. */
enum { RCCLX_PAIRS_FEW, RCCLX_PAIRS_MANY, RCCLX_PAIRS_CODED, RCCLX_PAIRS_COUNT };

/* --- gpu_layout.c: the one budget table of a window ------------------------------- */

gp_layout gp_layout_make(int nranks);
gp_pair_layout gp_pair_layout_make(const gp_layout *at, int nranks);
/* What a window holds before the first turn: as if everybody had begun and finished turn `start`.
 * head: the first rcclx_layout_head(at) bytes. */
size_t    rcclx_layout_head(const gp_layout *at);
void      rcclx_layout_fill(const gp_layout *at, uint32_t start, void *head);
void      rcclx_layout_state(uint32_t start, gp_state *s); /* the same for what the rank has for itself */

/* --- gpu_lower.c: plans as kernels read them ----------------------------------------- */

typedef struct {
    const rcclx_algo *algo;
    rcclx_plan shape;        /* without steps and operands */
} rcclx_ready_plan;

/* One way to run a collective, ready but for numbers and addresses: one plan, or one for buffers
 * within everybody's reach and one for all others. */
typedef struct {
    rcclx_ready_plan plan[2];
    int      nplans;
    bool     reads, writes;  /* peers read my IN, write my OUT, in plan 0 */
    bool     rare;           /* it has sums that only the kernel `any` does */
    bool     apart;          /* plan 0 needs IN and OUT apart */
    uint16_t nbytes;         /* of the work as a kernel gets it */
    _Alignas(8) unsigned char work[]; /* gp_work, steps, operands */
} rcclx_ready;

/* behind: the plan for buffers out of reach, or NULL. To be freed with rcclx_mem_free. */
rcclx_status rcclx_ready_make(rcclx_ready **r, const rcclx_shape *s, const rcclx_algo *first, const rcclx_algo *behind);
/* Bytes of the longest block of plan k when the call says nbytes (count * size). */
size_t       rcclx_ready_longest(const rcclx_ready *r, int k, size_t nbytes);
/* Bytes of a slot of plan k: data it takes, flags left out; 0: the plan has none. */
size_t       rcclx_ready_slot(const rcclx_ready *r, int k, const gp_layout *at, unsigned line);
/* The lanes of a launch. In low precision each of a block's waves is one. */
typedef struct {
    int    nlanes;
    size_t stage;            /* bytes of staging of each */
} rcclx_gpu_lanes;
/* Fill plan k's numbers in; size: bytes of an element. false: too many pieces. */
bool         rcclx_ready_number(const rcclx_ready *r, int k, rcclx_gpu_lanes lanes, size_t nbytes, size_t size, gp_plan *p);

size_t       rcclx_slot_bytes(const rcclx_plan *p, const gp_layout *at);

/* --- gpu_aim.c: steps whose addresses are worked out at the launch --------------------------- */

bool         rcclx_plan_is_aimed(const rcclx_plan *p);
size_t       rcclx_aimed_bytes(const rcclx_plan *p); /* of its steps and operands */
/* Make the work of a flagged plan: its numbers, lengths and addresses. windows, at and rank are the frame's. apart: the
 * rank's IN and OUT are. */
void         rcclx_ready_aim(const rcclx_ready *r, const gp_frame *f, size_t nbytes, int nlanes, bool apart,
                             gp_work *w);
/* Of one in low precision; its numbers stand. */
void         rcclx_ready_aim_coded(const rcclx_ready *r, const gp_frame *f, gp_work *w);

/* --- gpu_pick.c: which plan, how many lanes ---------------------------------------------- */

enum { RCCLX_FORMS = 32 };

typedef struct {
    int      nranks, rank, threads, lanes_most, lanes_least, lanes_cap;
    int      wave, coded_most; /* threads of one; low precision: most blocks */
    size_t   limit[3];       /* of a message, by protocol; agreed */
    unsigned protos, safe;   /* those allowed, and those that work here, a bit each */
    unsigned line;           /* bytes of a line of LL128 */
    bool     ordered;
    bool     reach;          /* peers' buffers may be used in place */
    const char *forced;      /* the list of algorithms, agreed */
    gp_layout at;
    const rcclx_algo *algo[RCCLX_FORMS], *behind[RCCLX_FORMS];
    unsigned able[RCCLX_COLL_COUNT], allowed[RCCLX_COLL_COUNT];  /* a bit a form */
    rcclx_ready *ready[RCCLX_COLL_COUNT][RCCLX_FORMS][GP_RANKS]; /* made when first needed */
    uint8_t  told[RCCLX_COLL_COUNT][65];                         /* form + 1 that was logged, by size */
} rcclx_gpu_picker;

void         rcclx_gpu_picker_start(rcclx_gpu_picker *p); /* after nranks .. at */
typedef struct {
    rcclx_kind kind;
    int        root;
    size_t     nbytes;       /* count times size */
    bool       wide, coded;  /* an integer average; in low precision */
} rcclx_gpu_wish;

/* The choice depends on what all ranks know. */
rcclx_status rcclx_gpu_pick(rcclx_gpu_picker *p, const rcclx_gpu_wish *wish, const rcclx_ready **ready, int *nlanes);
/* Threads of a block, and the lanes of so many blocks. */
int          rcclx_gpu_threads(const rcclx_gpu_picker *p, const rcclx_ready *r);
rcclx_gpu_lanes rcclx_gpu_lanes_of(const rcclx_gpu_picker *p, const rcclx_ready *r, int nblocks);
void         rcclx_gpu_picker_fini(rcclx_gpu_picker *p);

/* --- the team -------------------------------------------------------------------------------- */

/* The last operation among the eager ones, or in a capture: what the next on another stream waits for. */
typedef struct {
    void           *stream;
    rcclx_gpu_event event;
    uint64_t        capture;  /* 0: eager */
    bool            here, recorded;
} rcclx_gpu_tail;

/* A message that a kernel waits for. */
typedef struct {
    uint64_t word;             /* GP_PAIR_WAIT */
    uint64_t since, heard;     /* first and last word of it; since 0: none */
    uint64_t closed;           /* when the peer was first seen to have closed; 0: it has not */
    bool     warned;
} rcclx_gpu_wait;

typedef struct {
    pthread_t       thread;
    bool            running, warned;
    int             bell;      /* eventfd */
    _Atomic uint32_t stop;
    uint32_t        turn;      /* the one that kernels were in at the last look */
    uint64_t        since;     /* when that was first seen; 0: in none */
    rcclx_gpu_wait  waits[2][GP_RANKS]; /* messages from and to each rank */
} rcclx_gpu_watch;

/* gpu_memory.c: memory of ncclMemAlloc that the team has seen. */
typedef struct {
    uintptr_t base;
    int       reg;             /* -1: it cannot be shared */
} rcclx_gpu_joined;

/* How many of the last operations owe credit, up to GP_RING; among the eager ones, and in the capture `chain`. A graph may
 * run before any eager operation, so that the worst a capture has left behind is owed there, too. */
typedef struct {
    int      eager, captured, graphs;
    uint64_t chain;
} rcclx_gpu_debt;

struct rcclx_gpu_team {
    const rcclx_gpu *gpu;
    int              device;
    rcclx_gpu_info   info;
    rcclx_windows   *windows;
    gp_state        *state;    /* device memory */
    gp_control      *control;  /* pinned; by atomic accesses */
    gp_state        *seen;     /* pinned, behind control: [2] copies of state; the poster's, the watch's */
    rcclx_gpu_module module;
    rcclx_gpu_fn     kernel[RCCLX_KERNEL_COUNT][3]; /* by protocol */
    rcclx_gpu_fn     coded_kernel[RCCLX_CODEC_COUNT][RCCLX_TYPE_COUNT]; /* sums in low precision; f32, bf16, f16 */
    rcclx_gpu_fn     pair_kernel[RCCLX_PAIRS_COUNT];
    rcclx_gpu_stream stream;   /* own */
    gp_frame         frame;    /* all but nworks and nlanes */
    uint32_t         start;

    pthread_mutex_t  lock;     /* posting; guards what follows */
    rcclx_gpu_picker picker;
    rcclx_gpu_tail   eager, captured;
    uint64_t         capture;  /* that the operation being posted belongs to; 0: none */
    bool             many;     /* operations came on more than one stream: each leaves an event behind */
    _Atomic bool     graphs;   /* something was captured: turns no longer say what has run */
    bool             paired;   /* messages have been handed out: they have no turns */
    bool             in_host;  /* windows are in host memory: devices do not reach each other, or are not to */
    bool             lines;    /* LL128 may be used */
    bool             stuck;    /* kernels did not leave in time: their memory is given up */
    rcclx_gpu_debt   debt;
    uint32_t         turn;     /* of the last collective handed out */
    rcclx_op        *pairs;    /* sends and receives of a group; grows */
    int              npairs, cap_pairs;

    pthread_mutex_t  regs_lock; /* guards joined */
    rcclx_gpu_joined *joined;
    int              njoined, cap_joined;
    _Atomic int      registered;     /* by the program */

    rcclx_gpu_watch  watch;
};

/* gpu_selftest.c: try the links between the devices, all ranks together; decides about in_host and lines. After
 * kernels are loaded and before the first headers are written. Device current. */
rcclx_status rcclx_gpu_selftest(rcclx_team *t, double timeout);

/* gpu_launch.c. The chain's operations are this team's; their stream is `stream`. */
rcclx_status rcclx_gpu_post(rcclx_team *t, const rcclx_task *chain, void *stream);
uint64_t     rcclx_gpu_hash(const rcclx_op *op);
rcclx_kernel rcclx_gpu_kernel_of(rcclx_type type, rcclx_redop op);

/* gpu_bias.c: what is posted behind the all-reduce; nothing without a bias. */
rcclx_status rcclx_gpu_add_bias(rcclx_team *t, const rcclx_op *op, void *stream);

/* Ask the device, by a copy on the team's own stream, which turns it has begun and finished. who: 0 with
 * the lock held, 1 the watch. false: it does not answer. */
bool         rcclx_gpu_turns(rcclx_gpu_team *g, int who, uint32_t *started, uint32_t *finished);

/* gpu_order.c: one strong order over streams; around every launch. */
rcclx_status rcclx_gpu_follow(rcclx_gpu_team *g, void *stream);
rcclx_status rcclx_gpu_leave_behind(rcclx_gpu_team *g, void *stream);

/* gpu_pairs.c: its kernels, when all are loaded; put a chain's messages, those of this team in a group, into g->pairs; hand them to the GPU. */
rcclx_status rcclx_gpu_pairs_load(rcclx_gpu_team *g);
rcclx_status rcclx_gpu_pairs_collect(rcclx_team *t, const rcclx_task *chain);
rcclx_status rcclx_gpu_pairs(rcclx_team *t, const rcclx_op *ops, int n, void *stream);

/* gpu_memory.c: what peers may know of a buffer; 0: nothing. Memory of ncclMemAlloc is registered on first sight. */
uint64_t     rcclx_gpu_token(rcclx_team *t, const void *ptr, size_t nbytes);
rcclx_status rcclx_gpu_memory_join(rcclx_team *t);
void         rcclx_gpu_memory_leave(rcclx_team *t);

/* gpu_watch.c */
rcclx_status rcclx_gpu_watch_start(rcclx_team *t);
void         rcclx_gpu_watch_stop(rcclx_team *t);

#endif
