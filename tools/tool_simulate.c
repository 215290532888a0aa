/* A table of schedules, or, with --simulate, of the best one for every number of nodes. */
#include "tool_simulate.h"

#include "base/json.h"
#include "base/log.h"

#include <math.h>

enum { SMALLEST = 1, LARGEST = 16384 };

int tool_simulate_set(const tool_args *a, tool_cluster *c, int id)
{
    switch (id) {
    case 'N': return tool_int(a, 1, RCCLX_CLUSTER_NODES, &c->nodes);
    case 'P': return tool_int(a, 1, RCCLX_CLUSTER_PPN, &c->ppn);
    case 'S': c->sweep = true; return TOOL_OK;
    case 'F': c->file = a->value; return TOOL_OK;
    case 'L': return tool_int(a, 1, 1024, &c->rails);
    case 'T': return tool_int(a, 1, 3, &c->tiers);
    case 'E': return tool_int(a, 1, 65536, &c->leaf);
    case 'O': return tool_int(a, 1, 65536, &c->pod);
    case 'V': return tool_real(a, 0.01, &c->oversubscription);
    case 'W': return tool_real(a, 1e-6, &c->port_rate);
    case 'G': return tool_real(a, 1e-6, &c->gpu_rate);
    case 'K': return tool_real(a, 1e-6, &c->link_rate);
    case 'X': c->times |= 1; return tool_real(a, 0, &c->port_ns);
    case 'Y': c->times |= 2; return tool_real(a, 0, &c->post_ns);
    case 'Z': c->times |= 4; return tool_real(a, 0, &c->switch_ns);
    default: return -1;
    }
}

/* Rates of the machine that a file describes. */
static int take_file(const tool_cluster *q, rcclx_cluster *c)
{
    rcclx_topo     t;
    rcclx_schedule rails;
    int            gpus[RCCLX_TOPO_GPUS], code = TOOL_OK;

    if (rcclx_topo_read(&t, q->file) != RCCLX_OK)
        return tool_fail("plan", "%s", rcclx_last_error());
    for (int i = 0; i < t.ngpus; i++)
        gpus[i] = i;
    const rcclx_share node = {.topo = &t, .ngpus = t.ngpus, .gpus = gpus};
    if (!t.ngpus)
        code = tool_fail("plan", "%s describes no GPUs", q->file);
    else if (rcclx_schedule_find(&rails, RCCLX_RAILS, &node, 1) != RCCLX_OK)
        code = tool_fail("plan", "%s", rcclx_last_error());
    else {
        rcclx_cluster_default(c, c->nodes, q->ppn ? q->ppn : t.ngpus);
        rcclx_cluster_from_topo(c, &node, &rails);
        rcclx_schedule_fini(&rails);
    }
    rcclx_topo_fini(&t);
    return code;
}

static int make_cluster(const tool_cluster *q, int nodes, rcclx_cluster *c)
{
    char why[128];

    rcclx_cluster_default(c, nodes, q->ppn ? q->ppn : 8);
    if (q->file && take_file(q, c))
        return TOOL_FAILED;
    c->rails            = q->rails ? q->rails : c->rails;
    c->tiers            = q->tiers ? q->tiers : c->tiers;
    c->leaf_nodes       = q->leaf ? q->leaf : c->leaf_nodes;
    c->pod_leaves       = q->pod ? q->pod : c->pod_leaves;
    c->oversubscription = q->oversubscription > 0 ? q->oversubscription : c->oversubscription;
    c->port_ns          = q->times & 1 ? q->port_ns : c->port_ns;
    c->post_ns          = q->times & 2 ? q->post_ns : c->post_ns;
    c->switch_ns        = q->times & 4 ? q->switch_ns : c->switch_ns;
    c->port_rate        = q->port_rate > 0 ? q->port_rate : c->port_rate;
    c->link_rate        = q->link_rate > 0 ? q->link_rate : c->link_rate;
    c->gpu_rate = q->gpu_rate > 0    ? q->gpu_rate
                  : q->link_rate > 0 ? q->link_rate * (c->ppn > 1 ? c->ppn - 1 : 1)
                                     : c->gpu_rate;
    return rcclx_cluster_check(c, why, sizeof(why)) ? TOOL_OK : tool_usage("plan", "%s", why);
}

/* Bytes that a rank sends or receives at least, by which nccl-tests measures: busbw. */
static double bus_bytes(const rcclx_cluster *c, rcclx_kind kind, double nbytes)
{
    const double n = (double)c->nodes * c->ppn;

    return kind == RCCLX_ALL_REDUCE ? 2 * nbytes * (n - 1) / n : nbytes * (n - 1);
}

static const rcclx_forecaster *find_best(rcclx_kind kind, const rcclx_cluster *c, double nbytes, rcclx_forecast *best)
{
    const rcclx_forecaster *which = NULL;

    for (int i = 0; rcclx_forecasts[i]; i++) {
        rcclx_forecast f;
        if (rcclx_simulate(rcclx_forecasts[i], kind, c, nbytes, &f) && (!which || f.ns < best->ns)) {
            *best = f;
            which = rcclx_forecasts[i];
        }
    }
    return which;
}

static void put_cluster(const rcclx_cluster *c)
{
    printf("%d nodes of %d ranks, %d rails of %.4g GB/s; %.4g GB/s between two GPUs, %.4g of one GPU to all\n", c->nodes,
           c->ppn, c->rails, c->port_rate, c->link_rate, c->gpu_rate);
    if (c->tiers == 1)
        printf("one switch for all\n\n");
    else if (c->tiers == 2)
        printf("leaves of %d nodes for each rail, spines; oversubscription %g\n\n", c->leaf_nodes, c->oversubscription);
    else
        printf("leaves of %d nodes for each rail, pods of %d leaves, cores; oversubscription %g\n\n", c->leaf_nodes,
               c->pod_leaves, c->oversubscription);
}

static int show_table(const rcclx_cluster *c, rcclx_kind kind, double nbytes)
{
    rcclx_forecast          best, f;
    const rcclx_forecaster *which = find_best(kind, c, nbytes, &best);

    if (!which)
        return tool_usage("plan", "%s is not simulated; all_reduce, all_gather, reduce_scatter and alltoall are",
                          rcclx_kind_word(kind));
    printf("%s of %d ranks, %.0f bytes, on paper: %s, %.1f us\n", rcclx_kind_name(kind), c->nodes * c->ppn, nbytes,
           which->name, best.ns / 1e3);
    put_cluster(c);
    printf("  %-14s %12s %10s %7s  %-24s %s\n", "schedule", "us", "busbw GB/s", "pieces", "held by", "");
    for (int i = 0; rcclx_forecasts[i]; i++)
        if (rcclx_simulate(rcclx_forecasts[i], kind, c, nbytes, &f))
            printf("%c %-14s %12.1f %10.2f %7d  %-24s %s\n", rcclx_forecasts[i] == which ? '*' : ' ',
                   rcclx_forecasts[i]->name, f.ns / 1e3, bus_bytes(c, kind, nbytes) / f.ns, f.pieces,
                   rcclx_held_text(f.held), rcclx_forecasts[i]->about);
    return TOOL_OK;
}

static int show_json(const rcclx_cluster *c, rcclx_kind kind, double nbytes)
{
    rcclx_json     j;
    rcclx_forecast f;

    rcclx_json_init(&j, stdout);
    rcclx_json_object_open(&j, NULL);
    rcclx_json_string(&j, "collective", rcclx_kind_word(kind));
    rcclx_json_int(&j, "nodes", c->nodes);
    rcclx_json_int(&j, "ranks_per_node", c->ppn);
    rcclx_json_real(&j, "bytes", nbytes);
    rcclx_json_array_open(&j, "schedules");
    for (int i = 0; rcclx_forecasts[i]; i++) {
        if (!rcclx_simulate(rcclx_forecasts[i], kind, c, nbytes, &f))
            continue;
        rcclx_json_object_open(&j, NULL);
        rcclx_json_string(&j, "name", rcclx_forecasts[i]->name);
        rcclx_json_real(&j, "ns", f.ns);
        rcclx_json_int(&j, "pieces", f.pieces);
        rcclx_json_string(&j, "held_by", rcclx_held_text(f.held));
        rcclx_json_object_close(&j);
    }
    rcclx_json_array_close(&j);
    rcclx_json_object_close(&j);
    return TOOL_OK;
}

static int show_sweep(const tool_cluster *q, rcclx_kind kind, double nbytes)
{
    const int last = q->nodes ? q->nodes : LARGEST;

    printf("%s of %.0f bytes, the best schedule on paper\n\n%8s %8s  %-14s %12s %10s  %s\n", rcclx_kind_name(kind), nbytes,
           "nodes", "ranks", "schedule", "us", "busbw GB/s", "held by");
    for (int nodes = SMALLEST; nodes <= last; nodes *= 2) {
        rcclx_cluster           c;
        rcclx_forecast          f;
        const rcclx_forecaster *which;

        if (make_cluster(q, nodes, &c))
            return TOOL_FAILED;
        which = find_best(kind, &c, nbytes, &f);
        if (which)
            printf("%8d %8d  %-14s %12.1f %10.2f  %s\n", nodes, nodes * c.ppn, which->name, f.ns / 1e3,
                   bus_bytes(&c, kind, nbytes) / f.ns, rcclx_held_text(f.held));
    }
    return TOOL_OK;
}

int tool_simulate(const tool_cluster *q, rcclx_kind kind, size_t nbytes, bool json)
{
    rcclx_cluster c;
    int           code;

    if (q->sweep && json)
        return tool_usage("plan", "--json goes with --nodes, not with --simulate");
    code = make_cluster(q, q->nodes ? q->nodes : 1, &c);
    if (code)
        return code;
    if (q->sweep)
        return show_sweep(q, kind, (double)nbytes);
    return json ? show_json(&c, kind, (double)nbytes) : show_table(&c, kind, (double)nbytes);
}
