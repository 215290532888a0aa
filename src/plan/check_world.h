#ifndef RCCLX_PLAN_CHECK_WORLD_H
#define RCCLX_PLAN_CHECK_WORLD_H

/* Private to the checker: the world in which plans are run on paper. check.c
 * tells the story. */
#include "plan/plan.h"
#include "plan/ranks.h"
#include "plan/talk.h"

enum {
    CHECK_LANES = 2,  /* piece i runs on lane i % 2 */
    CHECK_RING  = 2,  /* LL slots a rank; few, so that reuse is exercised */
    CHECK_RANKS = 64, /* sets of ranks are 64 bits */
};

/* Time is a vector clock over threads; a thread is a lane of a rank. */
typedef uint16_t check_tick;

/* What some bytes hold: nothing, a rank's own block (leaf), or a sum. */
typedef struct {
    uint64_t ranks;  /* whose contributions are in it */
    uint64_t tree;   /* hash of how it was summed: equal trees round equally */
    uint16_t op, block, piece;
    bool     leaf;
    bool     ordered; /* one reduction of leaves in rank order */
    bool     final;
    uint8_t  coded;  /* how often its bits went through a codec, at most */
} check_value;

/* The smallest memory that is told apart: a piece of a block, or a slot. */
typedef struct {
    uint32_t   value;   /* index of world.values; 0: nothing */
    uint32_t   readers; /* since the last write: list in world.reads; 0: none. Pushed slots: 1 once read */
    uint16_t   writer;  /* thread */
    check_tick written;
} check_atom;

typedef struct {
    uint32_t   next;
    uint16_t   thread;
    check_tick tick;
} check_read;

/* One operation of the sequence. Every operation has atoms of its own: users may
 * pass other buffers, and what a slot held before means nothing to it. */
typedef struct {
    const rcclx_algo *algo;
    rcclx_shape  shape;
    rcclx_plan  *plans;
    bool         owns_plans;
    uint64_t     in_place;
    int          npieces, nin, nout, nslots; /* most blocks of IN, OUT of any rank */
    int          nll;    /* LL slots of a rank */
    bool         meets;  /* all have finished the operation before */
    rcclx_talk   talk;   /* over machines */
    check_atom  *user;   /* [rank][IN blocks, then OUT blocks][piece] */
    check_atom  *slots;  /* [rank][lane][slot] */
    check_atom  *ll;     /* [rank][block], pushed [rank][slot] */
    check_tick  *emptied; /* [rank]: when it last read one of its pushed slots; 0: not yet */
    uint16_t    *filled; /* [rank]: who last pushed into its slots, + 1 */
    uint64_t    *trees;  /* [block][piece]: of the first rank to finish, where all get the same */
    check_tick  *ends;   /* [rank][thread]: clock at the rank's return */
} check_op;

/* A lane's counter: values it has had, with the clock at each. */
typedef struct {
    uint64_t   *at;
    check_tick *clocks;
    uint32_t    n, cap;
} check_counter;

typedef struct {
    int      piece;
    uint32_t pc;
    int      next;        /* WAIT: ranks, or operands, before this one have been waited for */
    int      waits_for;   /* rank; only while blocked */
    check_counter counter;
    check_tick   *clock;  /* [thread] */
} check_lane;

typedef struct {
    int        op;
    bool       begun;
    bool       header;    /* published */
    check_lane lane[CHECK_LANES];
} check_rank;

typedef struct {
    int          n, nthreads, nops;
    check_op    *ops;
    check_rank  *ranks;
    check_value *values;
    check_read  *reads;
    uint32_t     nvalues, cap_values, nreads, cap_reads;

    /* Scratch regions (SIMPLE: one a rank and lane; LL: one a rank and ring slot):
     * the last access by every rank in every operation. Operations cut a region
     * differently, so any two accesses of different operations are a conflict. */
    check_tick  *touched;  /* [region][op][rank] */
    uint32_t    *touches;  /* [region][op]: changes of touched */
    uint32_t    *cleared;  /* [region][rank]: changes by other operations known to be before */

    rcclx_status status;   /* first failure; why says it */
    char        *why;
    size_t       nwhy;
} check_world;

/* Who does what: for texts, and to know whose clock counts. */
typedef struct {
    check_world      *w;
    check_op         *op;
    const rcclx_plan *plan;
    int               rank, l, index; /* index of the operation */
    check_lane       *lane;
} check_actor;

static inline int rcclx_check_thread(int rank, int lane)
{
    return rank * CHECK_LANES + lane;
}

static inline bool rcclx_check_before(const check_tick *clock, int thread, check_tick tick)
{
    return tick <= clock[thread];
}

static inline uint64_t rcclx_check_mark(int op, int piece, int phase)
{
    return (uint64_t)op << 32 | (uint64_t)piece << 16 | (uint64_t)phase;
}

/* Note the first failure, with who and where. Returns false. */
bool rcclx_check_fail(const check_actor *a, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool rcclx_check_nomem(check_world *w);

/* check_time.c: clocks and counters */
void rcclx_check_join(check_world *w, check_tick *into, const check_tick *from);
bool rcclx_check_publish(const check_actor *a, uint64_t mark, int lane);
bool rcclx_check_tick_on(const check_actor *a, int lane);
const check_tick *rcclx_check_reached(const check_world *w, int rank, int lane, uint64_t mark, uint64_t *at);

/* check_memory.c: false when it found a fault (or no memory) */
check_atom *rcclx_check_user_atom(const check_op *op, int rank, rcclx_buf buf, int block, int piece);
bool rcclx_check_begin_memory(const check_actor *a);                 /* the user has written IN */
bool rcclx_check_end_memory(const check_actor *a, const check_tick *end); /* and takes both back */
bool rcclx_check_load(const check_actor *a, const rcclx_step *st, const rcclx_ref *ref, int block, uint32_t *value);
bool rcclx_check_store(const check_actor *a, const rcclx_step *st, const rcclx_ref *ref, int block, uint32_t value);
bool rcclx_check_new_value(check_world *w, const check_value *v, uint32_t *id);

/* check_step.c */
typedef enum { CHECK_MOVED, CHECK_BLOCKED, CHECK_FAULT } check_result;
check_result rcclx_check_step(const check_actor *a, const rcclx_step *st);

/* check_push.c: pushed slots */
check_result rcclx_check_await_pushed(const check_actor *a, const rcclx_step *st);
bool rcclx_check_push(const check_actor *a, const rcclx_ref *ref, int slot, uint32_t value);
bool rcclx_check_take(const check_actor *a, const rcclx_ref *ref, int slot, uint32_t *value);
bool rcclx_check_all_taken(const check_actor *a); /* at the rank's return */

#endif
