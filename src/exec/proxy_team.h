#ifndef RCCLX_EXEC_PROXY_TEAM_H
#define RCCLX_EXEC_PROXY_TEAM_H

/* Private to exec/: a team of GPUs on several machines.
 *
 *   whole    all ranks, a team in host memory: the network, agreement, errors
 *   near     the ranks of this machine, a team on GPUs
 *   rail     the ranks of my place on every machine, a team in host memory; NULL: machines are not alike
 *
 *   op --post--> launches of `near`, and of gp_proxy        on the program's stream   (proxy_post.c, proxy_pairs.c)
 *                              |  ^
 *                     pinned slots and counts
 *                              v  |
 *   job --------> operations of `rail` or `whole`          by the proxy, a thread    (proxy.c, proxy_serve.c)
 *
 * A large sum is taken inside machines by their GPUs, over the rails by the proxies, and handed
 * round inside machines again. What is small, or of unlike machines, goes through `whole` at once. */
#include "exec/gpu_team.h"

enum {
    RCCLX_PROXY_POOL = 32 << 20, /* bytes of slots */
    RCCLX_PROXY_STRANDS = 8,     /* queues that share a collective or a message */
    RCCLX_PROXY_COLL_SLOT = RCCLX_PROXY_POOL / (4 * RCCLX_PROXY_STRANDS),
    RCCLX_PROXY_PAIR_SLOT = RCCLX_PROXY_POOL / (2 * GP_PROXY_QUEUES),
};

/* A collective in pieces: piece g is strand g % nstrands's, whose queues are `strand` out and STRANDS + `strand` in. */
typedef struct {
    rcclx_op op;                 /* of a piece, but for count and buffers */
    size_t   each, piece;        /* elements of each block: in all, and of a piece */
    int      nout, nin, nstrands; /* blocks of a piece, each way; 0: nothing goes that way */
} rcclx_proxy_coll;

/* A message, in pieces likewise; from its first queue on. */
typedef struct {
    rcclx_op   op;               /* whole, at no address; root: the peer, in `whole` */
    int        queue, nstrands, before; /* before: the message of its pair and direction that goes first; -1 none */
    /* the proxy's */
    size_t     piece, npieces;   /* elements; piece g of so many is next */
    size_t     g;
    bool       told, busy;       /* both sides have compared what they expect; a task is on its way */
    uint64_t   say[2];
    rcclx_task task;
} rcclx_proxy_message;

typedef struct {
    bool     used, kept;         /* kept: it is in a graph, and may come again at any time */
    int      nmessages;          /* 0: a collective */
    rcclx_proxy_coll coll;
    rcclx_proxy_message message[];
} rcclx_proxy_job;

struct rcclx_proxy {
    rcclx_team    *whole, *near, *rail;
    rcclx_gpu_fn   kernel;
    /* pinned */
    gp_control    *control;
    gp_proxy_door *door;
    char          *counts, *slots;

    pthread_mutex_t post_lock;   /* a post at a time; guards what the posters have */
    rcclx_op       *pairs;       /* messages of a group; grows */
    int             npairs, cap_pairs;
    rcclx_task     *chain;       /* what goes to `near`; grows */
    int             nchain, cap_chain;
    char           *scratch;     /* device memory for partial sums; grows */
    size_t          nscratch;
    char           *outgrown[64]; /* smaller ones, which may be in use still */
    int             noutgrown;
    rcclx_gpu_stream side;       /* messages inside the machine, beside those to others */
    rcclx_gpu_event  fork, join;
    bool            beside;      /* what is posted now does not follow what was posted last */

    pthread_t       thread;
    bool            running;
    pthread_mutex_t lock;        /* guards what follows */
    pthread_cond_t  change;
    rcclx_proxy_job **job;       /* by number; never smaller */
    int             njobs, cap_jobs;
    uint64_t        posted;      /* launches outside graphs */
    _Atomic bool    graphs;      /* something was captured */
    bool            stop;
    _Atomic uint64_t pieces;     /* moved so far, for reports */
};

/* proxy.c: a number for a job, which is the proxy's from now on. */
rcclx_status rcclx_proxy_add(rcclx_proxy *p, rcclx_proxy_job *j, uint32_t *number);

/* proxy_serve.c: until it is done. Not OK: a team is broken, or it is to stop. */
rcclx_status rcclx_proxy_serve(rcclx_proxy *p, rcclx_proxy_job *j);

/* proxy_post.c: launch gp_proxy for a job, behind what was posted before. */
rcclx_status rcclx_proxy_launch(rcclx_proxy *p, rcclx_proxy_job *j, gp_proxy_args *a, void *stream);
rcclx_status rcclx_proxy_near(rcclx_proxy *p, const rcclx_op *op); /* put an operation into the chain for `near` */
rcclx_status rcclx_proxy_near_post(rcclx_proxy *p, void *stream);  /* and post the chain */
/* Copy on the device, in order; at least so many bytes in p->scratch. */
rcclx_status rcclx_proxy_copy(rcclx_proxy *p, void *to, const void *from, size_t nbytes, void *stream);
rcclx_status rcclx_proxy_scratch(rcclx_proxy *p, size_t nbytes);

/* proxy_pairs.c: all messages of a chain. */
bool         rcclx_proxy_is_pairs(rcclx_kind k);
rcclx_status rcclx_proxy_pairs(rcclx_proxy *p, const rcclx_task *chain, void *stream);

static inline _Atomic uint64_t *rcclx_proxy_count(const rcclx_proxy *p, int queue, int host)
{
    return (_Atomic uint64_t *)(void *)(p->counts + ((size_t)queue * 2 + (size_t)host) * GP_PROXY_APART);
}

#endif
