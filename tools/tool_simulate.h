#ifndef RCCLX_TOOL_SIMULATE_H
#define RCCLX_TOOL_SIMULATE_H

#include "tool.h"

#include "topo/simulate.h"

/* `rcclx plan COLLECTIVE --nodes N`: what schedules would take on a cluster, on paper. */
typedef struct {
    int         nodes, ppn; /* 0: not given */
    bool        sweep;      /* --simulate: from one node on, up to `nodes` */
    const char *file;       /* a node's description; NULL: figures of the table of options */
    int         rails, tiers, leaf, pod;                        /* 0: not given */
    double      oversubscription, port_rate, gpu_rate, link_rate; /* 0: not given */
    double      port_ns, post_ns, switch_ns;                      /* given if the bit of `times` is set, in this order */
    unsigned    times;
} tool_cluster;

/* One of its options; -1: that is none. */
int tool_simulate_set(const tool_args *a, tool_cluster *c, int id);

int tool_simulate(const tool_cluster *c, rcclx_kind kind, size_t nbytes, bool json);

#endif
