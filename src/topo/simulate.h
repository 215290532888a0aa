#ifndef RCCLX_TOPO_SIMULATE_H
#define RCCLX_TOPO_SIMULATE_H

#include "plan/plan.h"
#include "topo/search.h"

/* What a collective would take on a cluster that is not there: nodes of GPUs, rails, a
 * fat tree of switches, from one node to 16,384 of them.
 *
 *   rcclx_cluster  c;
 *   rcclx_forecast f;
 *   rcclx_cluster_default(&c, 16, 8);
 *   for (int i = 0; rcclx_forecasts[i]; i++)
 *       if (rcclx_simulate(rcclx_forecasts[i], RCCLX_ALL_REDUCE, &c, nbytes, &f))
 *           printf("%s: %g us\n", rcclx_forecasts[i]->name, f.ns / 1e3);
 *
 * Times are in ns, rates in GB/s (bytes a ns), each direction by itself. What is modelled,
 * and what is not, stands in docs/scale.md. */
enum { RCCLX_CLUSTER_NODES = 65536, RCCLX_CLUSTER_PPN = 256 };

typedef struct {
    int    nodes, ppn;
    int    rails;           /* ports of a node; GPU i has port i % rails, unless it hands on to another */
    double step_ns;         /* begin a step: as in rcclx_machine */
    double signal_ns;       /* until a peer of the node sees what was stored */
    double link_rate;       /* from one GPU to one other of the node */
    double gpu_rate;        /* from one GPU to all others together */
    double post_ns;         /* begin a message of the network */
    double port_ns;         /* from port to port, without switches */
    double port_rate;
    double switch_ns;       /* each switch on the way */
    int    tiers;           /* 1: one switch for all; 2: leaves and spines; 3: pods of these, and cores */
    int    leaf_nodes;      /* nodes of a leaf; of each rail, if `rail_leaves` */
    int    pod_leaves;      /* leaves of a pod */
    double oversubscription; /* each tier's ways up carry this many times less than its ways down */
    bool   rail_leaves;     /* every rail has leaves of its own */
} rcclx_cluster;

void rcclx_cluster_default(rcclx_cluster *c, int nodes, int ppn);

/* Rates and rails of a described node. */
void rcclx_cluster_from_topo(rcclx_cluster *c, const rcclx_share *node, const rcclx_schedule *rails);
bool rcclx_cluster_check(const rcclx_cluster *c, char *why, size_t nwhy);

/* What keeps it from being faster. */
typedef enum {
    RCCLX_HELD_BY_LATENCY, RCCLX_HELD_BY_GPUS, RCCLX_HELD_BY_PORTS, RCCLX_HELD_BY_LEAVES, RCCLX_HELD_BY_PODS,
    RCCLX_HELD_BY_MESSAGES, RCCLX_HELD_COUNT
} rcclx_held;

const char *rcclx_held_text(rcclx_held h);

typedef struct {
    double     ns;
    int        pieces;      /* that the message was cut in, so that stages overlap */
    rcclx_held held;
} rcclx_forecast;

/* One schedule: a row of simulate.c. */
typedef struct rcclx_forecaster rcclx_forecaster;
struct rcclx_forecaster {
    const char *name, *about;
    unsigned    kinds;      /* bit a rcclx_kind */
    int         (*stages)(const rcclx_cluster *c, rcclx_kind kind, double nbytes, void *stages);
};
extern const rcclx_forecaster *const rcclx_forecasts[]; /* ends with NULL */

/* nbytes as the API counts them: all-reduce the buffer, all-gather what each sends, reduce-scatter what each receives,
 * all-to-all what each sends to each. False: this schedule is none for this collective, or for this cluster. */
bool rcclx_simulate(const rcclx_forecaster *s, rcclx_kind kind, const rcclx_cluster *c, double nbytes, rcclx_forecast *f);

#endif
