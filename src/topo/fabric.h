#ifndef RCCLX_TOPO_FABRIC_H
#define RCCLX_TOPO_FABRIC_H

#include "topo/simulate.h"

/* Behind simulate.h: the switches of a cluster. Flows are between nodes, on one rail,
 * which stands for all of them.
 *
 *   loads: how many flows of the pattern the fullest way up (or down) of a tier has. */
typedef struct {
    double port;   /* of one port, out or in, whichever is more */
    double leaf;   /* of one leaf's ways up, together */
    double pod;    /* of one pod's ways up, together */
} rcclx_loads;

int    rcclx_fabric_switches(const rcclx_cluster *c, int a, int b); /* on the way from node a to node b, on one rail */
double rcclx_fabric_latency(const rcclx_cluster *c, int a, int b);  /* ns, without what the bytes take */

/* The time of one byte a flow, when all flows go at once, and what is full then. */
double rcclx_fabric_gap(const rcclx_cluster *c, const rcclx_loads *l, rcclx_held *held);

/* Patterns on one rail. */
rcclx_loads rcclx_fabric_ring(const rcclx_cluster *c);   /* node i to i + 1 */
rcclx_loads rcclx_fabric_trees(const rcclx_cluster *c);  /* both double binary trees, to the parent: flows of half a message */

/* Every node to every other; to GPUs of other rails, too, or each rail to itself. */
rcclx_loads rcclx_fabric_pairs(const rcclx_cluster *c, bool across_rails);

#endif
