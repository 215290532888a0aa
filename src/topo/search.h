#ifndef RCCLX_TOPO_SEARCH_H
#define RCCLX_TOPO_SEARCH_H

#include "topo/topo.h"

/* In which order ranks talk, so that links are used well: rings, trees, rails, rounds
 * of an all-to-all. What is found is data, beside the bound that nothing can beat.
 *
 *   rcclx_share  here = { .topo = &t, .ngpus = 8, .gpus = gpus, .ranks = ranks };
 *   rcclx_schedule s;
 *   RCCLX_TRY(rcclx_schedule_find(&s, RCCLX_RINGS, &here, 1));
 *   printf("%d rings of %g GB/s, at most %g\n", s.nchannels, s.rate, s.bound);
 *   rcclx_schedule_fini(&s);
 *
 * The same shares give the same schedule everywhere: nothing depends on time or chance. */

enum { RCCLX_CHANNELS = 64, RCCLX_NODES = 4096, RCCLX_SEARCH_RANKS = 65536 };

/* What one machine (node) gives to a communicator. Several nodes may be copies of one topology. */
typedef struct {
    const rcclx_topo *topo;       /* borrowed while the search lasts */
    int               ngpus;
    const int        *gpus;       /* numbers among topo's GPUs, each at most once */
    const int        *ranks;      /* rank of each; NULL: in order, behind those of the nodes before */
} rcclx_share;

/* Kinds: a row each in schedule.c.
 *
 *   RINGS    row[c][i]: the rank at place i of ring c; node after node, each entered and left by its port
 *   TREES    row[c][r]: the parent of rank r in tree c, -1 the root. Between nodes a double binary tree
 *   RAILS    row[c][r]: the rank of r's node through which r reaches rail c (itself, if it is near the port)
 *   SWAPS    row[k][r]: to whom rank r sends in round k of an all-to-all; every pair once, every round a permutation */
typedef enum { RCCLX_RINGS, RCCLX_TREES, RCCLX_RAILS, RCCLX_SWAPS, RCCLX_SCHEDULE_COUNT } rcclx_schedule_kind;

typedef struct {
    rcclx_schedule_kind kind;
    int     nranks, nnodes;
    int     nchannels;            /* SWAPS: rounds */
    int    *rows;                 /* [channel][nranks] */
    int    *ports;                /* [channel][nnodes]: port among topo's; -1: none. SWAPS: [rank], what it sends through */
    int     depth;                /* TREES: links from the farthest leaf to its root */
    double  rate;                 /* GB/s of a channel; SWAPS: of each pair, all pairs at once */
    double  total;                /* of all channels together */
    double  bound;                /* no schedule of this kind has a higher total */
    double  limit;                /* RINGS: nor has any other all-gather, in the same measure */
} rcclx_schedule;

const char  *rcclx_schedule_name(rcclx_schedule_kind k); /* "rings", ... */
rcclx_status rcclx_schedule_find(rcclx_schedule *s, rcclx_schedule_kind kind, const rcclx_share *nodes, int nnodes);
void         rcclx_schedule_fini(rcclx_schedule *s);

static inline bool rcclx_schedule_proved(const rcclx_schedule *s) /* nothing of its kind is better */
{
    return s->total >= s->bound * (1 - 1e-6);
}

/* Is it what it says? Permutations, trees, ports of the right node, loads of links within what they carry, no total above
 * its bound. `why` says what is not so. A second look, with nothing of what the search used but the paths. */
rcclx_status rcclx_schedule_check(const rcclx_schedule *s, const rcclx_share *nodes, int nnodes, char *why, size_t nwhy);

/* Files of NCCL's form (NCCL_GRAPH_FILE): rings and trees of one node, by rank. What is read is checked against the nodes. */
rcclx_status rcclx_schedule_write(const rcclx_schedule *const *schedules, int n, const rcclx_share *node, const char *path);
rcclx_status rcclx_schedule_read(rcclx_schedule *s, rcclx_schedule_kind kind, const rcclx_share *nodes, int nnodes,
                                 const char *path);

/* All kinds, into s[RCCLX_SCHEDULE_COUNT]: rings and trees as NCCL_GRAPH_FILE says, else by searching; these two are
 * written to NCCL_GRAPH_DUMP_FILE if that is set. */
rcclx_status rcclx_schedule_open(rcclx_schedule *s, const rcclx_share *nodes, int nnodes);

void rcclx_schedule_print(FILE *out, const rcclx_schedule *s, const rcclx_share *nodes, int nnodes);

#endif
