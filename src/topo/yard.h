#ifndef RCCLX_TOPO_YARD_H
#define RCCLX_TOPO_YARD_H

#include "topo/search.h"

/* Behind search.h: one node's links while a schedule is made, and what is left of each.
 *
 * Ends are those of topo.h; `gpus` and `ports` are the ends that take part. Nodes that
 * are alike (the same topology and GPUs) are of one class, and one yard stands for all. */
typedef struct {
    const rcclx_topo *t;
    int     ngpus, nports;
    int     gpus[RCCLX_TOPO_GPUS], ports[RCCLX_TOPO_NETS]; /* ends */
    bool   *used;         /* [link]: on the way between two GPUs, or to a port if there are several nodes */
    double *left;         /* [link] */
    bool    torn;         /* something was to go where no way leads */
    double *wish;         /* [end][end]: what goes from end to end where rings reach their bound; NULL: not known */
    int     nodes;        /* how many nodes are like this */
} rcclx_yard;

typedef struct {
    const rcclx_share *nodes;
    int         nnodes, nranks, nyards, ports; /* ports: of the node with the fewest */
    int        *first;    /* [node]: places before it, as if ranks stood in the order of nodes */
    int        *yard_of;  /* [node] */
    rcclx_yard *yards;
} rcclx_field;

rcclx_status rcclx_field_open(rcclx_field *f, const rcclx_share *nodes, int nnodes, bool network); /* are ports used? */
void         rcclx_field_close(rcclx_field *f);
int          rcclx_field_rank(const rcclx_field *f, int node, int i); /* of the node's i-th GPU */

double rcclx_field_rail_rate(const rcclx_field *f, int p); /* with what all GPUs together reach port p, in the worst node */

void rcclx_yard_reset(rcclx_yard *y);                                 /* all links are free again */
bool rcclx_yard_fits(const rcclx_yard *y, int from, int to, double rate);
unsigned rcclx_yard_times(const rcclx_yard *y, int from, int to, double rate); /* how often, at most 255 */
void rcclx_yard_take(rcclx_yard *y, int from, int to, double rate);   /* negative: give it back */
double rcclx_yard_scale(const rcclx_yard *y); /* what was taken may be multiplied by this, and fits; 0: torn */

/* What flows cannot exceed (flow.c).
 *
 * cut: the least capacity between any two ends, of any set of links that parts them: rings cross it each way.
 * between: what these GPUs can send to all other ends together, or (backward) hear from them.
 * spread: data begin at the ends in these shares (of 1; the network's is what is left of 1) and must come to all. */
rcclx_status rcclx_flow_cut(const rcclx_yard *y, bool network, double *bound);
rcclx_status rcclx_flow_between(const rcclx_yard *y, bool network, const bool *inside, bool backward, double *bound);
rcclx_status rcclx_flow_spread(const rcclx_yard *y, bool network, const double *shares, bool backward, double *bound);

rcclx_status rcclx_schedule_make(rcclx_schedule *s, rcclx_schedule_kind kind, int nranks, int nnodes, int nchannels);

/* The finders: a file each. */
rcclx_status rcclx_find_rings(rcclx_schedule *s, rcclx_field *f);
rcclx_status rcclx_find_trees(rcclx_schedule *s, rcclx_field *f);
rcclx_status rcclx_find_rails(rcclx_schedule *s, rcclx_field *f);
rcclx_status rcclx_find_swaps(rcclx_schedule *s, rcclx_field *f);

/* Lowers a bound of rings where going in and out of every GPU once makes it lower (ring_bound.c), and fills the yard's
 * wishes; up to 16 GPUs. */
rcclx_status rcclx_bound_degrees(rcclx_yard *y, bool network, double *bound);

/* Rings into a schedule that was made for RCCLX_CHANNELS; none is no failure. */
rcclx_status rcclx_fill_rings(rcclx_schedule *s, rcclx_field *f);

/* Bounds of what a schedule of these nodes may carry; that of trees depends on their roots. */
rcclx_status rcclx_bound_rings(rcclx_schedule *s, const rcclx_field *f);
rcclx_status rcclx_bound_trees(rcclx_schedule *s, const rcclx_field *f);
int          rcclx_tree_depth(const rcclx_schedule *s); /* 0 if these are no trees; cycles do not trap it */

/* Double binary tree over n nodes: parent of `node` in tree 0 or 1, -1 the root. In one of the two a node is a leaf. */
int rcclx_tree_parent(int node, int n, int tree);

#endif
