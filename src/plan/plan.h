#ifndef RCCLX_PLAN_PLAN_H
#define RCCLX_PLAN_PLAN_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The step language. A plan is what one rank does for one collective: steps,
 * run in order, once for every piece of the message.
 *
 *   buffers   IN, OUT: the user's, of any rank.  SCRATCH: the library's, of any rank.
 *   blocks    a buffer is cut in blocks; a step names blocks, never bytes, so one plan
 *             serves every count, type and operator.
 *   pieces    a plan that goes through SCRATCH runs once a piece: piece i of every block
 *             is bytes [i*S, (i+1)*S) of it, where S is the size of a scratch slot.
 *             Pieces are dealt to lanes in turn; a lane has its own slots and counter.
 *   signals   every rank has one counter a lane that only grows. SIGNAL(phase) sets it to
 *             "operation, piece, phase" (release); WAIT(peer, phase) returns when the
 *             peer's counter has come that far (acquire). Phase 0 is the header, which
 *             every rank publishes when it starts: "I am in operation e, here is its
 *             signature; my IN may be read, my OUT may be written".
 *
 *   step                           meaning
 *   COPY   src       -> dst...     move blocks
 *   REDUCE src...    -> dst...     combine in the order written, round once, write all
 *   SIGNAL phase
 *   WAIT   peer|ALL  phase
 *
 * Protocol LL: SCRATCH of a step is the rank's slot for this operation, whose header and
 * data become visible together: a COPY into it is the rank's phase 0, and a step that reads
 * it waits for it by itself. One exchange, no signal.
 *
 * Pushed (LL and LL128 of a plan that says rcclx_pushes; for GPUs): flags travel with the data,
 * into the reader's memory. SCRATCH(r, s) is slot s of rank r.
 *   - A COPY or REDUCE may have slots of any rank as destinations. A slot is filled once an
 *     operation. An element becomes visible with its flag, and says nothing of other memory
 *     but what its writer's header says.
 *   - A rank reads its own slots only, and all that are filled for it. A step that does waits,
 *     element by element, for this operation's data; its IN or OUT operand says how much.
 *   - There are two sets of slots, by the operation's number. Whoever fills a slot of rank r
 *     must know that r has finished the last operation but one, that is, has begun the last
 *     one. Having heard from all ranks in the last operation is enough. A plan in which not
 *     every rank hears from every other owes `credit`: in the operation after it a rank waits,
 *     before its first push to r, until r has begun it (r's header, its phase 0). Empty blocks
 *     carry no news: rcclx_plan_owes_credit knows. */

typedef enum {
    RCCLX_ALL_REDUCE, RCCLX_REDUCE_TO, RCCLX_BROADCAST, RCCLX_ALL_GATHER, RCCLX_REDUCE_SCATTER,
    RCCLX_ALL_TO_ALL, RCCLX_ALL_TO_ALLV, RCCLX_GATHER, RCCLX_SCATTER,
    RCCLX_COLL_COUNT,                             /* those below are not run by plans */
    RCCLX_SEND = RCCLX_COLL_COUNT, RCCLX_RECV, RCCLX_KIND_COUNT
} rcclx_kind;

const char *rcclx_kind_name(rcclx_kind k);        /* "AllReduce", ... as users see it in logs */
const char *rcclx_kind_word(rcclx_kind k);        /* "all_reduce", ... as tools spell it */
int         rcclx_kind_find(const char *word);    /* either spelling, any case; -1: none */

static inline bool rcclx_kind_rooted(rcclx_kind k)
{
    return 1u << k & (1u << RCCLX_REDUCE_TO | 1u << RCCLX_BROADCAST | 1u << RCCLX_GATHER | 1u << RCCLX_SCATTER);
}

static inline bool rcclx_kind_reduces(rcclx_kind k)
{
    return 1u << k & (1u << RCCLX_ALL_REDUCE | 1u << RCCLX_REDUCE_TO | 1u << RCCLX_REDUCE_SCATTER);
}

typedef enum { RCCLX_IN, RCCLX_OUT, RCCLX_SCRATCH } rcclx_buf;
typedef enum { RCCLX_STEP_COPY, RCCLX_STEP_REDUCE, RCCLX_STEP_SIGNAL, RCCLX_STEP_WAIT } rcclx_step_op;
typedef enum { RCCLX_PROTO_SIMPLE, RCCLX_PROTO_LL, RCCLX_PROTO_LL128 } rcclx_proto;

#define RCCLX_ALL 0xffff   /* WAIT for every other rank */

/* One operand: a block of a buffer of a rank. In SCRATCH with protocol SIMPLE
 * `block` is a slot of the lane, pushed a slot of the rank; everywhere else a block
 * of the message. `raw` marks a rank's own untouched contribution (its premultiplier
 * still has to be applied), also in a slot; partial results are not raw. */
typedef struct {
    uint8_t  buf, raw;
    uint16_t rank, block;
} rcclx_ref;

typedef struct {
    uint8_t  op, proto;
    uint8_t  final;      /* REDUCE: the last one of these elements (AVG divides here) */
    uint8_t  lag;        /* WAIT: which piece, below */
    uint8_t  coded;      /* COPY, REDUCE: its SCRATCH operands are in the operation's codec */
    uint16_t peer;       /* WAIT */
    uint16_t phase;      /* SIGNAL, WAIT */
    uint16_t nsrc, ndst; /* COPY, REDUCE: operands refs[first .. first+nsrc+ndst), sources before destinations */
    uint16_t nblk;       /* this many consecutive blocks, starting at each operand's */
    uint32_t first;
} rcclx_step;

/* Which piece a WAIT is about, and when. */
enum {
    RCCLX_LAG_NONE,      /* this one */
    RCCLX_LAG_PREVIOUS,  /* the lane's previous one; in its first there is nothing to wait for */
    RCCLX_LAG_END,       /* this one, in the lane's last; in the others there is nothing to wait for */
};

/* How the message is cut. EVEN: every block is `count` elements (all-gather,
 * reduce-scatter, all-to-all, gather, scatter), or, in `parts` parts, part k of
 * rank r's is block r * parts + k. SPLIT: `count` elements in all. Parts are nearly
 * equal, on cache-line bounds. TABLE: all-to-all-v, displacements and counts given
 * by the caller. */
typedef enum { RCCLX_CUT_EVEN, RCCLX_CUT_SPLIT, RCCLX_CUT_TABLE } rcclx_cut;

/* What a plan is built for. Only facts that all ranks agree on (and the rank).
 *
 * coded: low precision (codec/codec.h). What SCRATCH holds is in the operation's codec: a
 * step encodes what it writes there, decodes what it reads there, and what it writes to OUT
 * beside SCRATCH is what a reader of that will get. A sum is taken in f32. So a plan whose
 * OUTs must be alike on all ranks takes the own block through the codec, too. */
typedef struct {
    rcclx_kind kind;
    int        nranks, rank, root;
    int        coded;
    const uint8_t *node; /* each rank's machine, from 0 on; NULL: all are on one */
} rcclx_shape;

typedef struct {
    rcclx_shape shape;
    const char *algo;
    uint8_t     cut, proto;
    bool        pieced;   /* goes through SCRATCH slots: runs piece by piece */
    bool        pushes;   /* slots are pushed into (LL, LL128) */
    bool        credit;   /* pushes: not all hear from all; the next operation waits for this one's headers */
    uint16_t    nblocks;
    uint16_t    parts;    /* of a rank's block (EVEN), of the message (SPLIT) */
    uint16_t    nslots;   /* scratch slots a lane (SIMPLE), or of a rank (pushed) */
    uint16_t    nphases;  /* highest phase signalled */
    rcclx_step *steps;
    rcclx_ref  *refs;
    uint32_t    nsteps, nrefs, cap_steps, cap_refs;
    rcclx_status status;  /* first failure while building; later steps are dropped */
} rcclx_plan;

void rcclx_plan_init(rcclx_plan *p, const rcclx_shape *s, const char *algo, rcclx_cut cut, int nblocks);
void rcclx_plan_fini(rcclx_plan *p); /* takes zeroed and half-made ones */
void rcclx_plan_parts(rcclx_plan *p, int parts); /* EVEN: cut blocks further; right behind init */

/* The words an algorithm is written in. A step is opened, given its operands,
 * sources first, and is complete when the next one is opened. */
void rcclx_copy_step(rcclx_plan *p, rcclx_proto proto, int nblk);
void rcclx_reduce_step(rcclx_plan *p, rcclx_proto proto, int nblk, bool final);
void rcclx_src(rcclx_plan *p, rcclx_buf buf, int rank, int block, bool raw);
void rcclx_dst(rcclx_plan *p, rcclx_buf buf, int rank, int block);
void rcclx_pushes(rcclx_plan *p, rcclx_proto proto, int nslots, bool credit); /* before the steps, alike on all ranks */
void rcclx_signal(rcclx_plan *p, int phase);
/* A signal that, but for the lane's last piece, only says that slots were read and may be filled again. Nobody may take it
 * for word of what was written, so it does not wait for that; it is waited for with LAG_PREVIOUS and LAG_END alone. */
void rcclx_signal_credit(rcclx_plan *p, int phase);
void rcclx_wait(rcclx_plan *p, int peer, int phase, int lag); /* peer may be RCCLX_ALL; RCCLX_LAG_* */

/* Does the rank fill its LL slot (not pushed), which then is its header? */
bool rcclx_plan_fills(const rcclx_plan *p);

/* Must the operation after this one, of `count` elements of `size` bytes, wait for its headers
 * before it pushes? Where the plan owes credit, and where blocks are empty, so that who waits
 * for them hears nothing. Plans that wait for all headers by themselves never ask for it. */
bool rcclx_plan_owes_credit(const rcclx_plan *p, size_t count, size_t size);

/* Elements [*begin, *begin + *length) of block b when `count` elements of
 * `size` bytes are cut in nblocks (SPLIT): tiles [0, count) exactly, every
 * bound a multiple of 64 bytes but the last; late blocks may be empty. */
void rcclx_split(size_t count, size_t size, int nblocks, int b, size_t *begin, size_t *length);

/* The same for block b of a plan's IN or OUT (not TABLE), when the call says `count`. */
void rcclx_plan_block(const rcclx_plan *p, size_t count, size_t size, int b, size_t *begin, size_t *length);

/* --- algorithms: who writes plans -------------------------------------- */

/* What a plan needs to be true; what it promises. */
enum {
    RCCLX_NEEDS_SMALL   = 1 << 0, /* IN of every rank fits a slot (LL) */
    RCCLX_NEEDS_READ    = 1 << 1, /* every rank can read every rank's IN (and OUT) in place */
    RCCLX_NEEDS_WRITE   = 1 << 2, /* every rank can write every rank's OUT in place */
    RCCLX_NEEDS_APART   = 1 << 3, /* IN and OUT apart on every rank */
    RCCLX_HAS_ORDER     = 1 << 4, /* sums in rank order, one rounding: same bits for any count and n */
    RCCLX_PUSHES        = 1 << 5, /* fills the peers' slots of LL or LL128 */
    RCCLX_DEVICE_ONLY   = 1 << 6, /* GPUs run it, the host does not */
    RCCLX_TAKES_CODED   = 1 << 7, /* may be built for low precision */
};

typedef struct {
    const char *name;      /* unique, lower case: RCCLX_ALGO=<name> */
    const char *nccl;      /* NCCL_ALGO's word for it ("Ring", "Tree"), or NULL */
    const char *about;     /* a line */
    unsigned    kinds;     /* bit a rcclx_kind */
    unsigned    flags;     /* NEEDS_*, HAS_* and so on */
    bool      (*can)(const rcclx_shape *s); /* NULL: any n and root */
    void      (*build)(rcclx_plan *p, const rcclx_shape *s);
} rcclx_algo;

/* --- what can be done with a plan (one file each) ----------------------- */

/* Prove on paper, all ranks together, that an algorithm computes its collective
 * for this shape (shape.rank is ignored): every output block holds every
 * contribution exactly once (in rank order where promised), nothing else of OUT
 * is written, no two unordered steps touch the same bytes, nothing waits for
 * ever, and operations repeat back to back (npieces pieces each) without a
 * closing barrier. in_place: bit r set = rank r has IN and OUT overlapping the
 * way its collective allows. On failure `why` says rank, step and cause. */
rcclx_status rcclx_plan_check(const rcclx_algo *a, const rcclx_shape *s, uint64_t in_place, int npieces,
                              char *why, size_t nwhy);

/* The same for a sequence of operations on one communicator: algos[i] with shapes[i]. */
rcclx_status rcclx_plan_check_sequence(const rcclx_algo *const *algos, const rcclx_shape *shapes, int nops,
                                       uint64_t in_place, int npieces, char *why, size_t nwhy);

void rcclx_plan_print(FILE *out, const rcclx_plan *p, size_t count, size_t size); /* text: a line a step */
void rcclx_plan_json(FILE *out, const rcclx_plan *p, size_t count, size_t size);

/* Draw all ranks' plans of a shape side by side (time downwards, arrows for
 * data and signals) as one SVG. */
rcclx_status rcclx_plan_svg(FILE *out, const rcclx_algo *a, const rcclx_shape *s);

/* The machine a plan is priced on; agreed at init. Times in ns, rates in bytes
 * a ns of one core. */
typedef struct {
    int    nranks, ncores;
    double call_ns;       /* enter and leave an operation */
    double signal_ns;     /* a store seen by another core */
    double switch_ns;     /* hand the core to another rank (when ranks > cores) */
    double step_ns;       /* interpret one step */
    double local_rate;    /* copy within the core's own cached memory */
    double peer_rate;     /* read or write lines another core has dirty */
    double far_rate;      /* the same beyond the caches (streaming) */
    size_t cache_bytes;   /* where far begins */
    double cma_ns;        /* a process_vm_readv call, and its rate; 0 rate: not allowed */
    double cma_rate;
    double net_ns;        /* a frame from one machine to another, and bytes a ns of a machine's links, each way */
    double net_rate;
    size_t slot_bytes;    /* bytes a scratch lane holds */
    size_t chunk_bytes;   /* bytes of the message in one round of staging; 0: as many as fit */
    bool   untuned;       /* the ranks' tuning tables differ: leave them out */
} rcclx_machine;

/* Facts the headers of an operation told every rank. */
enum {
    RCCLX_FACT_IN_MAPPED  = 1 << 0, /* every IN that is read lies in memory all ranks have mapped */
    RCCLX_FACT_OUT_MAPPED = 1 << 1, /* every OUT that is written likewise */
    RCCLX_FACT_CMA        = 1 << 2, /* the kernel lets every rank read and write every rank's memory */
    RCCLX_FACT_APART      = 1 << 3, /* IN and OUT are apart on every rank */
    RCCLX_FACT_ONE_ROUND  = 1 << 4, /* partial results in the type would lose too much: only algorithms with HAS_ORDER */
    RCCLX_FACT_GPU        = 1 << 5, /* GPUs run the plan: DEVICE_ONLY algorithms may, too */
};

/* Estimated time (ns) of the whole collective for `nbytes` = count * size as
 * the API counts them (all-reduce: the buffer; all-gather: what each sends;
 * reduce-scatter: what each receives; all-to-all: what each sends to each). */
double rcclx_plan_price(const rcclx_algo *a, const rcclx_shape *s, size_t nbytes, unsigned facts,
                        const rcclx_machine *m);

#endif
