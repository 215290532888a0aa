#ifndef RCCLX_COMM_COMM_H
#define RCCLX_COMM_COMM_H

#include "comm/config.h"
#include "exec/exec.h"

/* Communicators: how ranks find each other, and a communicator's life.
 *
 *   unique id --> bootstrap (ranks meet, get the shared memory) --> init (map, test the
 *   ways, agree) --> team (exec/) --> operations ... --> destroy or abort
 *
 * A handle (ncclComm_t) is an index and a generation, not an address: a stale or
 * foreign one is recognised. A call uses a communicator from acquire to release;
 * what outlives the call (groups, streams, threads) holds its team. It is freed
 * when it was destroyed, no call uses it and nobody holds it. */

#define RCCLX_UNIQUE_ID_BYTES 128

typedef struct { unsigned char bytes[RCCLX_UNIQUE_ID_BYTES]; } rcclx_unique_id;

typedef enum { RCCLX_COMM_INIT, RCCLX_COMM_READY, RCCLX_COMM_FINALIZED, RCCLX_COMM_FAILED } rcclx_comm_state;

typedef struct rcclx_redop_slot {
    bool       used;
    rcclx_type type;
    uint64_t   scalar;
} rcclx_redop_slot;

enum { RCCLX_MAX_REDOPS = 256 };

/* A communicator that another is made of. */
typedef struct {
    void       *handle;
    rcclx_team *team;       /* held */
} rcclx_part;

typedef struct rcclx_comm {
    rcclx_team        team;     /* first: the team's last holder finds the communicator by it */
    rcclx_comm_config config;
    void             *handle;
    struct rcclx_handle_entry *entry; /* handle.c */
    int               nranks, rank, device;
    uint64_t          bus;      /* of the GPU, as log lines show it; 0: host */
    _Atomic uint32_t  state;    /* rcclx_comm_state; set-up may go on in a thread (non-blocking) */
    _Atomic int       pending;  /* splits that go on in a thread (non-blocking) */
    _Atomic uint32_t  closing;  /* destroy or abort has taken the handle back */
    rcclx_status      failure;  /* FAILED: why, and its text in team.cause */
    pthread_mutex_t   lock;     /* guards redops, registered */
    rcclx_redop_slot  redops[RCCLX_MAX_REDOPS];
    int               registered; /* buffers registered and not deregistered */
    rcclx_part        near, rail; /* on GPUs of several machines (machines.c) */
} rcclx_comm;

/* --- handles -------------------------------------------------------------- */

/* The communicator of a handle, held. NULL: *why is ARGUMENT (with a last-error text that names `call`). */
rcclx_comm *rcclx_comm_acquire(const void *handle, const char *call, rcclx_status *why);
/* The same, but only one whose set-up is over and good; USAGE/AGAIN/first cause otherwise. */
rcclx_comm *rcclx_comm_acquire_ready(const void *handle, const char *call, rcclx_status *why);
void        rcclx_comm_release(rcclx_comm *c);

/* --- life ------------------------------------------------------------------ */

/* at: "host:port" where the ranks are to meet (NCCL_COMM_ID); NULL or "": wherever rank 0 is. */
rcclx_status rcclx_unique_id_create(rcclx_unique_id *id, const char *at);
/* Write an id that meets at host:port, the same on every rank; `token_text` (any words all ranks share)
 * keeps strangers out. Rank 0 must call rcclx_unique_id_serve before the others can be answered. */
rcclx_status rcclx_unique_id_at(rcclx_unique_id *id, const char *host_port, const char *token_text);
rcclx_status rcclx_unique_id_serve(const rcclx_unique_id *id);

/* Where a rank lives. */
typedef struct {
    const rcclx_gpu *gpu;    /* NULL: host memory */
    int              device; /* its number; on the host only shown */
} rcclx_place;

/* Collective over all ranks. at: "host:port" where they meet instead of at the id (NCCL_COMM_ID); NULL or "": not. Non-blocking configurations return AGAIN and go on in a thread;
 * *handle is set at once. Inside a group the work happens at its end. */
rcclx_status rcclx_comm_init(void **handle, int nranks, const rcclx_unique_id *id, int rank, const rcclx_place *place,
                             const rcclx_comm_config *config, const char *at);
/* nranks ranks of this process, on devices[0..nranks), or, where that is NULL, on 0..nranks-1. */
rcclx_status rcclx_comm_init_all(void **handles, int nranks, const rcclx_gpu *gpu, const int *devices,
                                 const rcclx_comm_config *config);
/* color < 0: take part, get no communicator (*handle NULL). config NULL: the parent's. A non-blocking
 * parent returns AGAIN; *handle is written before its async error turns to OK. */
rcclx_status rcclx_comm_split(rcclx_comm *parent, int color, int key, void **handle, const rcclx_comm_config *config);

rcclx_status rcclx_comm_finalize(rcclx_comm *c);
/* Take the handle back; the memory goes when the last holder lets go. Destroy waits for calls in
 * progress and queued operations; abort ends them. Both are local and bounded. */
rcclx_status rcclx_comm_destroy(const void *handle);
rcclx_status rcclx_comm_abort(const void *handle);

/* OK, AGAIN (set-up goes on), or what broke the communicator; looks at the peers, never waits. */
rcclx_status rcclx_comm_async_error(rcclx_comm *c);

/* --- operators, memory ------------------------------------------------------ */

/* Pre-multiplied sum: the scalar's bits in the low bytes. *index counts from 0. FULL table: USAGE. */
rcclx_status rcclx_redop_create(rcclx_comm *c, rcclx_type type, uint64_t scalar, int *index);
rcclx_status rcclx_redop_destroy(rcclx_comm *c, int index);
/* false: no such operator. */
bool         rcclx_redop_get(rcclx_comm *c, int index, rcclx_type *type, uint64_t *scalar);

/* --- looking ----------------------------------------------------------------- */

void rcclx_comm_dump(FILE *out, rcclx_comm *c, bool json);
/* Bytes of shared memory this rank's communicator has touched, and of what it allocated, GPU memory too. */
size_t rcclx_comm_bytes(const rcclx_comm *c);
int  rcclx_comm_count(void); /* alive in this process */

#endif
