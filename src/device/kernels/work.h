#ifndef RCCLX_DEVICE_KERNELS_WORK_H
#define RCCLX_DEVICE_KERNELS_WORK_H

/* What a kernel is told: the one struct between the host, which fills it, and
 * the kernels (run.h), which are its only readers. Plain C for every compiler.
 *
 *   window   device memory of a rank that all peers have mapped: headers, counters,
 *            LL and LL128 slots, staging, pair FIFOs. Same layout on all ranks.
 *   state    device memory of a rank that nobody else sees.
 *   control  pinned host memory: the abort word, and what a kernel reports.
 *   lane     a thread block: block l of every rank talks to block l of the others. In low
 *            precision a wave.
 *   turn     counts a communicator's collectives; lives in `state`, so that graphs replay.
 *   token    where a registered buffer is, as its owner says it to peers:
 *            (registration + 1) << 48 | offset; 0: not registered with all peers;
 *            GP_TOKEN_NONE: this rank has no such buffer in this operation.
 *            map[rank][registration] turns it into an address here.
 *
 * A work is one collective: up to two plans for it (all buffers within reach of
 * all, or not; which one runs is decided from the headers of all ranks, alike on
 * all), as steps and operands like plan/plan.h's, made small; or one plan in a
 * flagged protocol (LL, LL128). Works follow each other in `blob`: gp_work, its steps,
 * its operands, padded to 8 bytes. */

#include <stddef.h>
#include <stdint.h>

enum {
    GP_RANKS = 16,          /* ranks that reach each other */
    GP_LANES = 64,          /* most thread blocks of a collective */
    GP_CODED_BLOCKS = 128, GP_WAVES = 16, /* low precision: most blocks, and waves of one */
    GP_RING = 4,            /* headers a rank may be ahead */
    GP_REGS = 1024,         /* registrations of a rank at a time */
    GP_LL_DATA = 8, GP_LL_UNIT = 16,       /* bytes of data in a unit of LL, and the unit */
    GP_SMALL_BYTES = 1536, GP_LARGE_BYTES = 4096, /* arguments of kernels for flagged and for simple plans */
};

#define GP_TOKEN_NONE (~UINT64_C(0))
#define GP_TOKEN(reg, offset) ((uint64_t)((reg) + 1) << 48 | (uint64_t)(offset))

/* A flag word of LL, and of a header, for turn t: odd, so that fresh memory never matches. */
#define GP_FLAG(turn) ((uint32_t)(turn) << 1 | 1u)
/* A lane's counter: turn, piece, phase; only grows. */
#define GP_MARK(turn, piece, phase) (((uint64_t)(turn) << 32) + ((uint64_t)(piece) << 10) + (uint64_t)(phase))

/* Low precision: staging of one of so many lanes. */
#define GP_STAGE(stage_bytes, nlanes) ((uint32_t)(GP_LANES * (uint64_t)(stage_bytes) / (nlanes) / 128 * 128))

/* Offsets in a window, bytes. gp_layout_make is the one budget table. */
typedef struct {
    uint32_t headers;   /* [GP_RING][GP_RANKS] of 64 bytes: 4 LL units of gp_header */
    uint32_t counters;  /* [GP_CODED_BLOCKS * GP_WAVES] of 128 bytes: uint64_t of each rank */
    uint32_t pairs;     /* what send and receive use (pair.h) */
    uint32_t ll;        /* [2] of ll_bytes: by turn; cut in as many slots as the plan has */
    uint32_t ll128;     /* [2] of ll128_bytes */
    uint32_t stage;     /* [GP_LANES] of stage_bytes: cut likewise; in low precision all of it, by the lanes there are */
    uint32_t ll_bytes, ll128_bytes, stage_bytes, pair_bytes;
    uint32_t total;
} gp_layout;

/* What a rank says when it starts an operation, pushed to every peer. */
typedef struct {
    uint64_t sig;       /* hash of kind, count, type, operator, root, codec: equal on all ranks or the call is wrong */
    uint64_t in, out;   /* tokens */
    uint64_t scalar;    /* PREMUL */
} gp_header;

/* One operand: a block of a buffer of a rank. In SCRATCH a slot; as a source of a flagged step one of
 * this rank's own, and `rank` is who fills it. */
typedef struct { uint8_t buf, raw, rank, block; } gp_ref; /* raw: 0, or 1 + whose contribution it is */
enum { GP_IN, GP_OUT, GP_SCRATCH };                              /* as rcclx_buf */

typedef struct {
    uint8_t  op, proto, final, lag;
    uint8_t  peer, phase;      /* peer: GP_ALL for every other rank */
    uint8_t  nsrc, ndst, nblk, pad;
    uint16_t first;            /* operand, of this plan */
} gp_step;
enum { GP_COPY, GP_REDUCE, GP_SIGNAL, GP_WAIT };                 /* as rcclx_step_op */
enum { GP_SIMPLE, GP_LL, GP_LL128 };                             /* as rcclx_proto */
enum { GP_LAG_NONE, GP_LAG_PREVIOUS, GP_LAG_END };                /* of a WAIT: as RCCLX_LAG_* */
enum { GP_OP_SUM, GP_OP_PROD, GP_OP_MAX, GP_OP_MIN, GP_OP_AVG, GP_OP_PREMUL, GP_OP_COPY }; /* as rcclx_redop */
enum { GP_CODEC_NONE, GP_CODEC_FP8, GP_CODEC_INT8 };              /* as rcclx_codec_id */
enum { GP_ALL = 0xff };
/* SLOTS: before pushing, the peers written to have begun the turn before. HEADERS: before announcing, all peers
 * have left the turn whose header will be overwritten. */
enum { GP_CREDIT_SLOTS = 1, GP_CREDIT_HEADERS = 2 };

/* A step of a flagged plan. What its operands are is worked out by the host, as far as it
 * knows it: an address, the rank it is at, whether it is a slot (of the set for even turns).
 * Sources, then destinations; the first few lie in the step, where one look finds them. */
enum { GP_NEAR = 3 };
typedef struct {
    uint8_t  op, nsrc, ndst;
    uint8_t  final;            /* and, times 2, how many steps from this one on may go at the same time; 0: one */
    uint8_t  own, waits;       /* which source is this rank's own buffer, GP_ALL none; it reads slots */
    uint16_t far;              /* operands beyond, bytes from the work */
    uint64_t nbytes;
    uint64_t near[GP_NEAR];
} gp_flagged;
/* A step in low precision, likewise worked out: what a lane does of it begins at an address and a lane's staging, or
 * piece, further. A run is a slot with codes (coded.h). 0: none. */
typedef struct {
    uint8_t  op, phase, lag, peer; /* as gp_step */
    uint8_t  runs, before;         /* sources that are runs; those before the own one */
    uint8_t  fills, quick;         /* destinations that are runs; operands are aligned, and the sum needs no division */
    uint16_t far;                  /* runs after the first of either, bytes from the work: sources, then destinations */
    uint16_t divisor;              /* 0: none */
    uint64_t nbytes;               /* of the block */
    uint64_t own, out;             /* the block in IN and in OUT */
    uint64_t run, fill;            /* lane 0's slot */
} gp_coded;
#define GP_SPOT(at, rank, slot) ((uint64_t)(at) | (uint64_t)(rank) << 56 | (uint64_t)(slot) << 63)
#define GP_SPOT_AT(spot)   ((spot) & ((UINT64_C(1) << 56) - 1))
#define GP_SPOT_RANK(spot) ((uint32_t)((spot) >> 56) & (GP_RANKS - 1))
#define GP_SPOT_SLOT(spot) ((uint32_t)((spot) >> 63))

typedef struct {
    uint16_t steps, refs;      /* where they begin, bytes from the work; flagged: gp_flagged, right behind it */
    uint8_t  nsteps, pieced;
    uint8_t  nslots, proto;    /* scratch slots; of its data steps */
    uint32_t slot_bytes;       /* of one slot (a multiple of 128); flagged: of a set of slots */
    uint32_t npieces;          /* pieced: in all; else 1 */
    uint32_t piece_bytes;      /* of the message: what goes through a slot at a time */
    /* block b of IN and OUT is bytes [begin(b), begin(b+1)) of it, cut on lines of 64 bytes: begin(b) =
     * b / parts * whole_bytes + min(64 * (k * units + min(k, rest)), whole_bytes) where k = b % parts */
    uint64_t block_bytes;      /* of the longest block; low precision: of a lane's part of it */
    uint64_t whole_bytes, units;
    uint32_t rest;
    uint16_t parts;
    uint8_t  free, nfree;      /* steps free .. free + nfree - 1 may go in any order: lanes begin with different ones */
} gp_plan;

typedef struct {
    uint16_t nbytes;           /* of this work with steps and operands: where the next begins */
    uint8_t  kind, type, op, root;
    uint8_t  credit;           /* what is waited for, bits: */
    uint8_t  nplans;           /* 1: only plan[0]; 2: plan[0] if all tokens are there, else plan[1] */
    uint64_t sig, in, out;     /* in, out: addresses on this device */
    uint64_t in_token, out_token, scalar;
    gp_plan  plan[2];
} gp_work;

enum { GP_PAIR_SLOTS = 4, GP_PAIR_LANES = 32, GP_PAIR_FEW = 6, GP_PAIR_MANY = 64 /* messages of a launch */ };

/* Collectives finished, in fractions that lanes add when they leave: all of a turn make a whole,
 * so that no lane has to know whether it is the last. */
#define GP_WHOLE UINT64_C(65536)
#define GP_PROGRESS(turn) ((uint64_t)(turn) * GP_WHOLE)
#define GP_TURN(progress) ((uint32_t)((progress) / GP_WHOLE))

/* Device memory of the rank alone; zeroed, then progress and started set by the host at init. */
typedef struct {
    uint64_t progress;
    uint32_t started;          /* the turn begun; the watch copies these two now and then */
    uint32_t failed;           /* a lane has given up: the others follow */
    uint32_t pad[12];
    /* messages with each rank: progress, and blocks that are done with one I receive */
    struct { uint64_t sent, received; uint32_t left[GP_PAIR_SLOTS]; } pair[GP_RANKS];
    uint32_t pairs_arrived;    /* blocks that have finished a launch of messages */
    uint32_t pad2[31];
} gp_state;

typedef enum { GP_FINE, GP_ABORTED, GP_TIMED_OUT, GP_DIFFERS } gp_trouble;

/* Pinned host memory. */
typedef struct {
    uint32_t abort;            /* the host: give up */
    uint32_t trouble;          /* a kernel: gp_trouble; stored last */
    uint32_t peer, turn, kind, lane;
    uint64_t sig, peer_sig;
    uint64_t waited_ns;
    uint64_t waits;            /* a kernel with messages: which it waits for, again and again: GP_PAIR_WAIT; 0: the host has seen it */
} gp_control;

typedef struct {
    uint64_t  window[GP_RANKS]; /* as mapped on this device */
    uint64_t  state, control, map; /* map: uint64_t [GP_RANKS][GP_REGS] in device memory */
    uint64_t  timeout_ns;       /* 0: none */
    gp_layout at;
    uint8_t   rank, nranks, nworks;
    uint8_t   alone;            /* no peer takes part: nothing is said to any */
    uint16_t  nlanes, nthreads;
    uint32_t  part, part0;      /* of GP_WHOLE: what a lane adds, and what lane 0 adds */
} gp_frame;

/* The argument of a kernel whose plans are in LL or LL128, and of one for simple plans. */
typedef struct { gp_frame frame; unsigned char blob[GP_SMALL_BYTES - sizeof(gp_frame)]; } gp_small;
typedef struct { gp_frame frame; unsigned char blob[GP_LARGE_BYTES - sizeof(gp_frame)]; } gp_large;

/* --- messages (pair.h) ---------------------------------------------------------------- */

/* A mark: how far message `number` is; only grows. */
#define GP_PAIR_MARK(number, count) ((uint64_t)(uint32_t)(number) << 32 | (uint32_t)(count))

/* Message number (32 bits), what this side does, the peer. */
#define GP_PAIR_WAIT(number, kind, peer) ((uint64_t)(number) << 32 | 1u << 16 | (uint32_t)(kind) << 8 | (uint32_t)(peer))

/* What must be equal on both sides. */
#define GP_PAIR_SIG(type, codec, count) ((uint64_t)((type) + 1) << 56 | (uint64_t)(codec) << 52 | (uint64_t)(count))
#define GP_PAIR_SIG_TYPE(sig)  ((int)((sig) >> 56) - 1)
#define GP_PAIR_SIG_CODEC(sig) ((int)((sig) >> 52) & 15)
#define GP_PAIR_SIG_COUNT(sig) ((sig) & ((UINT64_C(1) << 52) - 1))

/* In a window, about one peer, who writes it. Messages of a direction are numbered; number % GP_PAIR_SLOTS is where. */
typedef struct {
    uint64_t done[GP_PAIR_SLOTS], apart[12];      /* mark: it has received what I sent */
    uint32_t sends[GP_PAIR_SLOTS][2][4];          /* LL units: its signature and token as a sender to me */
    uint32_t receives[GP_PAIR_SLOTS][2][4];       /* the same as a receiver */
    uint64_t full[GP_PAIR_SLOTS][GP_PAIR_LANES];  /* marks: chunks it has written for me */
    uint64_t empty[GP_PAIR_SLOTS][GP_PAIR_LANES]; /* chunks of mine that it has taken */
} gp_pair_state;

/* Where a window's pairs are: states of all ranks, then a set of slots for each other rank, which
 * it sends into. A slot: LL units, then staging. */
typedef struct { uint32_t states, slots, set_bytes, slot_bytes, ll_bytes, pad; } gp_pair_layout;

typedef struct {
    uint64_t at, nbytes, sig;
    uint64_t token;            /* of at; 0: not within the peer's reach */
    uint64_t slice;            /* large: bytes of a lane */
    uint32_t chunk;            /* bytes of half of a lane's staging; in low precision of a wave's slot in it */
    uint16_t first, index;     /* among the parts of its direction; before it in this launch, of its pair */
    uint8_t  peer, sends, small, final; /* final: the last of its pair and direction in this launch */
    uint8_t  lanes, parts, kind, codec; /* parts: blocks' works on this side; lanes are the same on both */
} gp_pair;

typedef struct {
    gp_frame       frame;
    gp_pair_layout at;
    uint32_t       nmsgs, send_blocks, recv_blocks;
    uint32_t       single;     /* no pair has two messages in a direction */
} gp_pair_head;

/* The arguments of gp_pairs_few, which get there sooner, and of gp_pairs_many; and of gp_pairs_coded, where some messages
 * are in low precision. */
typedef struct { gp_pair_head head; gp_pair msg[GP_PAIR_FEW]; } gp_pair_few;
typedef struct { gp_pair_head head; gp_pair msg[GP_PAIR_MANY]; } gp_pair_many;
typedef gp_pair_many gp_pair_coded;

/* Low precision: elements of a thread in a wave's tile; elements, whole tiles, whose run fits a slot of so many bytes. */
enum { GP_PAIR_EACH = 16 };
#define GP_PAIR_FITS(nbytes, tile) ((uint32_t)(nbytes) / 17 * 16 / (uint32_t)(tile) * (uint32_t)(tile))

/* --- ranks of other machines (proxy.h) ------------------------------------------------------- */

enum { GP_PROXY_QUEUES = 64, GP_PROXY_BLOCKS = 16, GP_PROXY_APART = 128 /* bytes from a count to the next */ };

/* Pieces in one direction: piece k is bytes [first + k * step, + piece), below end, of each of nblocks blocks, which lie
 * `stride` bytes apart from `at` on. index: which slots and counts. */
typedef struct {
    uint64_t at, stride, first, step, end;
    uint32_t nblocks, piece;
    uint16_t index, out;       /* out: to the host */
    uint32_t pad;
} gp_proxy_queue;

/* Pinned host memory: the launch that has begun, which job that is; and how many the host has finished. */
typedef struct {
    uint64_t begun;
    uint32_t job, pad[13];
    uint64_t pad2[8];
    uint64_t finished;
} gp_proxy_door;

typedef struct {
    uint64_t control, door, counts; /* pinned; counts: of each queue the device's, then the host's */
    uint64_t slots;            /* pinned: two of slot_bytes for each queue */
    uint32_t slot_bytes, job;
    uint32_t nqueues, nblocks, nthreads, pad;
    gp_proxy_queue queue[GP_PROXY_QUEUES];
} gp_proxy_args;

/* Kernels: for plans that only copy, for each sum that matters, for all the rest (type and
 * operator switched inside; sums of more than 8 in a flagged protocol). One for each
 * protocol, since a small message has no time to wait for code that it does not need:
 * gp_<id>_ll and gp_<id>_ll128 take gp_small, gp_<id>_simple takes gp_large. */
#define GP_KERNEL_LIST(X) X(copy) X(sum_f32) X(sum_bf16) X(sum_f16) X(any)
/* Low precision, simple plans only, sums: gp_<codec>_<type> takes gp_large. */
#define GP_CODED_KERNEL_LIST(X) X(fp8, f32) X(fp8, bf16) X(fp8, f16) X(int8, f32) X(int8, bf16) X(int8, f16)
/* gp_pairs_<id> takes gp_pair_<id>. */
#define GP_PAIR_KERNEL_LIST(X) X(few) X(many) X(coded)

#endif
