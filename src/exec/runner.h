#ifndef RCCLX_EXEC_RUNNER_H
#define RCCLX_EXEC_RUNNER_H

/* Private to exec/: the collective a team is in, and what it remembers from
 * earlier ones. One a team; made at init, so that running allocates nothing but
 * the first time a plan is needed. */
#include "exec/lane.h"
#include "exec/task.h"
#include "plan/route.h"
#include "plan/talk.h"

typedef struct rcclx_pick rcclx_pick; /* pick.c: which plan, remembered */

enum { RCCLX_BOUNCE_BYTES = 1 << 20 };

struct rcclx_runner {
    rcclx_view   view;      /* first: the lanes hand back &view */
    rcclx_team  *team;
    rcclx_task  *task;      /* NULL: idle */
    uint32_t     sig, my_flags; /* of my header */
    uint32_t     history;       /* hash of all calls so far */
    uint64_t     seq;
    size_t       in_bytes, out_bytes;
    bool         with_data, published, opened;
    int          open_next; /* OPEN has seen the headers of ranks before this one */
    size_t       largest;   /* all-to-all-v: bytes of the largest block of any rank */
    uint64_t     scalar[RCCLX_MAX_RANKS];
    uint64_t     place_in[RCCLX_MAX_RANKS], place_out[RCCLX_MAX_RANKS]; /* for get and put */
    rcclx_status failure;   /* of a step */
    bool         streaming; /* beyond the caches: non-temporal stores */
    char        *bounce;    /* RCCLX_BOUNCE_BYTES, for get and put */
    rcclx_pick  *pick;
    const rcclx_routes *routes; /* of the plan that runs */

    /* over machines: a plan is chosen before it is known who calls, and says whom to tell */
    const rcclx_plan *ahead;    /* NULL: not yet, or as the headers say */
    const rcclx_talk *talk;     /* its; NULL: all with all */
    bool         meets;         /* all finish the operation before first */
    uint64_t     strangers;     /* far ranks whose header does not come */
    uint64_t     since[RCCLX_TALKERS]; /* rcclx_talk_meets */
};

/* agree.c: do all ranks call the same? */
uint32_t          rcclx_signature(const rcclx_op *op);
uint32_t          rcclx_history(uint32_t before, uint32_t sig, uint64_t count);
/* "AllReduce of 1024 float sum": a signature and a count in words. */
void              rcclx_call_words(uint32_t sig, uint64_t count, char *text, size_t nbytes);
/* Rank r's calls differ from this rank's, in collective number seq or before: say where and break the team. */
rcclx_status      rcclx_mismatch(rcclx_team *t, int r, uint64_t seq);

static inline rcclx_header *rcclx_header_of(const rcclx_team *t, int rank, uint64_t seq)
{
    return &t->area[rank]->header[seq % RCCLX_NSLOTS];
}

/* coll.c */
/* Bytes of the buffers a rank passes to a collective (not all-to-all-v). */
size_t            rcclx_op_in_bytes(const rcclx_op *op, int nranks, int rank);
size_t            rcclx_op_out_bytes(const rcclx_op *op, int nranks, int rank);
rcclx_status      rcclx_runner_create(rcclx_team *t);
void              rcclx_runner_destroy(rcclx_team *t);

/* Must the operation be rounded once, at the end? */
bool              rcclx_rounds_once(const rcclx_runner *run);

/* far.c: with ranks on several machines. choose: the plan, before headers are known (not all-to-all-v), and whom to tell;
 * met: have all finished the operation before, where that must be; header: send it, with nbytes of my slot. */
rcclx_status      rcclx_far_choose(rcclx_runner *run);
bool              rcclx_far_met(rcclx_runner *run);
void              rcclx_far_header(const rcclx_runner *run, const rcclx_header *h, size_t nbytes);

/* once.c: a slot plan whose put is done, straight through. 1: done; 0: a peer is late, nothing was
 * done; -1: failed (run->failure). */
int               rcclx_runner_once(rcclx_runner *run, const rcclx_plan *p);

/* pick.c; with far ranks a plan has routes, and room for what its slots hold (nslots a lane). */
const rcclx_routes *rcclx_pick_routes(const rcclx_plan *p, size_t **filled);
const rcclx_talk   *rcclx_pick_talk(const rcclx_plan *p);
rcclx_status      rcclx_pick_create(rcclx_pick **p, rcclx_team *t);
void              rcclx_pick_destroy(rcclx_pick *p);
/* The plan for this operation; facts as algo.h wants them. NULL: out of memory. */
const rcclx_plan *rcclx_pick_plan(rcclx_pick *p, rcclx_kind kind, int root, size_t nbytes, unsigned facts, bool small);
/* In low precision: through scratch. */
const rcclx_plan *rcclx_pick_coded(rcclx_pick *p, rcclx_kind kind, int root);
const rcclx_plan *rcclx_pick_slot(rcclx_pick *p, rcclx_kind kind, int root);

/* move.c */
int rcclx_runner_move(rcclx_view *v, const rcclx_lane *l, const rcclx_step *s, uint32_t piece, int block);

#endif
