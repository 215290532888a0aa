/* `rcclx plan`: how a collective would be carried out. First the decision, with
 * the price of every algorithm or the reason why it is out; then the steps of
 * the chosen one. Nothing is run. */
#include "tool.h"
#include "tool_simulate.h"

#include "algo/algo.h"
#include "base/option.h"
#include "device/types.h"
#include "exec/exec.h"

#include <stdlib.h>
#include <string.h>

static const tool_option options[] = {
    {'n', 'n', "ranks", "N", "ranks (default 4)"},
    {'s', 's', "size", "SIZE", "bytes as the call counts them (default 64K)"},
    {'t', 't', "type", "TYPE", "datatype (default float)"},
    {'r', 'r', "root", "R", "root of a rooted collective (default 0)"},
    {'R', 0, "rank", "R|all", "whose steps are shown (default 0)"},
    {'a', 'a', "algo", "LIST", "choose among these, as RCCLX_ALGO does"},
    {'f', 'f', "facts", "FACTS", "the buffers: mapped (from ncclMemAlloc; default), cma\n"
     "                                (peers may read them through the kernel), plain"},
    {'i', 0, "in-place", NULL, "input and output overlap"},
    {'j', 0, "json", NULL, "decision and steps as one JSON object"},
    {'v', 0, "svg", NULL, "a drawing of all ranks' steps"},
    {'N', 0, "nodes", "N", "on paper: a cluster of N nodes, up to 65536"},
    {'P', 0, "ppn", "P", "ranks of a node (default 8)"},
    {'S', 0, "simulate", NULL, "the best schedule for 1, 2, 4, ... nodes (up to --nodes, or 16384)"},
    {'F', 0, "file", "FILE", "rails and rates of the node that FILE describes (NCCL's XML)"},
    {'L', 0, "rails", "R", "network ports of a node (default: one a rank)"},
    {'W', 0, "port-rate", "GB/s", "what a port carries (default 48)"},
    {'X', 0, "port-ns", "NS", "from port to port without switches (default 2000)"},
    {'Y', 0, "post-ns", "NS", "to begin a message between nodes (default 500)"},
    {'Z', 0, "switch-ns", "NS", "each switch on the way (default 300)"},
    {'K', 0, "link-rate", "GB/s", "what one GPU sends to one other of its node (default 48)"},
    {'G', 0, "gpu-rate", "GB/s", "what one GPU sends to all of them (default: all links)"},
    {'T', 0, "tiers", "T", "of switches: 1, 2, 3 (default 2; 3 beyond 1024 nodes)"},
    {'E', 0, "leaf", "M", "nodes of a leaf (default 32)"},
    {'O', 0, "pod", "M", "leaves of a pod (default 32)"},
    {'V', 0, "oversubscription", "X", "ways up carry X times less than ways down (default 1)"},
    {'h', 'h', "help", NULL, "this text"},
    {0, 0, NULL, NULL, NULL},
};

typedef struct {
    rcclx_shape   shape;
    bool          chosen; /* the collective was given */
    size_t        nbytes;
    rcclx_type    type;
    int           rank; /* -1: all */
    const char   *forced;
    unsigned      facts;
    bool          small, ordered, json, svg, in_place;
    rcclx_machine machine;
    tool_cluster  cluster;
} question;

static int help(void)
{
    fputs("rcclx plan COLLECTIVE [options]: what would be done, and why\n\n  collectives:", stdout);
    for (int k = 0; k < RCCLX_COLL_COUNT; k++)
        printf(" %s", rcclx_kind_word((rcclx_kind)k));
    fputs("\n\n", stdout);
    tool_options_print(stdout, options);
    fputs("\nThe size is that of the buffer (all_reduce, reduce, broadcast), or what each rank sends\n"
          "(all_gather, gather), receives (reduce_scatter, scatter), or sends to each (alltoall).\n",
          stdout);
    return TOOL_OK;
}

static int set_collective(const tool_args *a, question *q)
{
    const char *words[RCCLX_COLL_COUNT], *near;
    const int   kind = rcclx_kind_find(a->value);

    if (q->chosen)
        return tool_usage("plan", "what is '%s' for? The collective is %s already", a->value,
                          rcclx_kind_word(q->shape.kind));
    for (int k = 0; k < RCCLX_COLL_COUNT; k++)
        words[k] = rcclx_kind_word((rcclx_kind)k);
    near = tool_nearest(a->value, words, RCCLX_COLL_COUNT);
    if (kind < 0)
        return tool_usage("plan", "unknown collective '%s'%s%s (see --help)", a->value, near ? "; the nearest is " : "",
                          near ? near : "");
    if (kind >= RCCLX_COLL_COUNT)
        return tool_usage("plan", "%s goes to one peer directly: there is no plan for it",
                          rcclx_kind_word((rcclx_kind)kind));
    q->shape.kind = (rcclx_kind)kind;
    q->chosen     = true;
    return TOOL_OK;
}

static int set_type(const tool_args *a, question *q)
{
    const char *words[RCCLX_TYPE_COUNT], *near;

    for (int t = 0; t < RCCLX_TYPE_COUNT; t++) {
        words[t] = rcclx_type_name((rcclx_type)t);
        if (!strcmp(words[t], a->value)) {
            q->type = (rcclx_type)t;
            return TOOL_OK;
        }
    }
    near = tool_nearest(a->value, words, RCCLX_TYPE_COUNT);
    return tool_usage("plan", "--type %s: no such type%s%s", a->value, near ? "; the nearest is " : "",
                      near ? near : "");
}

static int set_facts(const tool_args *a, question *q)
{
    static const unsigned facts[] = {RCCLX_FACT_IN_MAPPED | RCCLX_FACT_OUT_MAPPED | RCCLX_FACT_CMA, RCCLX_FACT_CMA, 0};
    const int             which   = tool_word_index("mapped|cma|plain", a->value);

    if (which < 0)
        return tool_usage("plan", "--facts %s: there are mapped, cma and plain", a->value);
    q->facts = facts[which];
    return TOOL_OK;
}

static int set_algo(const tool_args *a, question *q)
{
    const char *words[32], *near;
    size_t      n = 0;
    char        bad[64];

    if (!rcclx_algo_list_check(a->value, bad, sizeof(bad))) {
        q->forced = a->value;
        return TOOL_OK;
    }
    while (n < 32 && rcclx_algos[n]) {
        words[n] = rcclx_algos[n]->name;
        n++;
    }
    near = tool_nearest(bad, words, n);
    return tool_usage("plan", "--algo %s: '%s' is no algorithm%s%s (rcclx info lists them)", a->value, bad,
                      near ? "; the nearest is " : "", near ? near : "");
}

static int set_rank(const tool_args *a, question *q)
{
    if (!strcmp(a->value, "all")) {
        q->rank = -1;
        return TOOL_OK;
    }
    return tool_int(a, 0, RCCLX_MAX_RANKS - 1, &q->rank);
}

static int set(const tool_args *a, question *q, int id)
{
    switch (id) {
    case TOOL_ARGS_WORD: return set_collective(a, q);
    case 'n': return tool_int(a, 1, RCCLX_MAX_RANKS, &q->shape.nranks);
    case 's': return tool_size(a, &q->nbytes);
    case 't': return set_type(a, q);
    case 'r': return tool_int(a, 0, RCCLX_MAX_RANKS - 1, &q->shape.root);
    case 'R': return set_rank(a, q);
    case 'a': return set_algo(a, q);
    case 'f': return set_facts(a, q);
    case 'i': q->in_place = true; return TOOL_OK;
    case 'j': q->json = true; return TOOL_OK;
    case 'v': q->svg = true; return TOOL_OK;
    default: return tool_simulate_set(a, &q->cluster, id);
    }
}

/* Options of clusters are for clusters. */
static bool on_paper(const question *q)
{
    return q->cluster.nodes || q->cluster.sweep;
}

static int check_cluster(const question *q)
{
    if (!q->chosen)
        return tool_usage("plan", "which collective? For example: rcclx plan all_reduce --nodes 16 --ppn 8 --size 256M");
    if (q->svg || q->forced)
        return tool_usage("plan", "--svg and --algo are for ranks of one machine, without --nodes");
    return tool_simulate(&q->cluster, q->shape.kind, q->nbytes, q->json);
}

/* The largest buffer of a rank goes through a slot or it does not. */
static bool fits_slot(const question *q)
{
    const rcclx_kind k     = q->shape.kind;
    const size_t     times = k == RCCLX_REDUCE_SCATTER || k == RCCLX_ALL_TO_ALL || k == RCCLX_SCATTER
                                 ? (size_t)q->shape.nranks
                                 : 1;

    return k != RCCLX_ALL_TO_ALLV && q->nbytes <= (size_t)rcclx_option_int(RCCLX_OPT_LL_BYTES) / times;
}

static int check(question *q)
{
    const size_t size = rcclx_type_size(q->type);

    if (!q->chosen)
        return tool_usage("plan", "which collective? For example: rcclx plan all_reduce -n 8 --size 64K");
    if (q->shape.root >= q->shape.nranks)
        return tool_usage("plan", "--root %d: the ranks are 0 to %d", q->shape.root, q->shape.nranks - 1);
    if (q->shape.root && !rcclx_kind_rooted(q->shape.kind))
        return tool_usage("plan", "--root %d: %s has no root", q->shape.root, rcclx_kind_word(q->shape.kind));
    if (q->rank >= q->shape.nranks)
        return tool_usage("plan", "--rank %d: the ranks are 0 to %d", q->rank, q->shape.nranks - 1);
    if (q->nbytes % size)
        return tool_usage("plan", "--size %zu: %s elements have %zu bytes, so the nearest sizes are %zu and %zu",
                          q->nbytes, rcclx_type_name(q->type), size, q->nbytes - q->nbytes % size,
                          q->nbytes - q->nbytes % size + size);
    if (q->json && q->svg)
        return tool_usage("plan", "--json and --svg: one of them");
    if (!q->in_place)
        q->facts |= RCCLX_FACT_APART;
    if (!q->forced)
        q->forced = *rcclx_option_str(RCCLX_OPT_X_ALGO) ? rcclx_option_str(RCCLX_OPT_X_ALGO)
                                                        : rcclx_option_str(RCCLX_OPT_ALGO);
    q->ordered = rcclx_option_int(RCCLX_OPT_ORDERED) || !*q->forced; /* as the executor does */
    q->small   = fits_slot(q);
    rcclx_machine_default(&q->machine, q->shape.nranks);
    return TOOL_OK;
}

/* The steps of one rank. */
static int show_rank(const question *q, const rcclx_algo *algo, int rank)
{
    rcclx_shape  s = q->shape;
    rcclx_plan   p = {.steps = NULL};
    const size_t size = rcclx_type_size(q->type);
    int          code = TOOL_OK;

    s.rank = rank;
    algo->build(&p, &s);
    if (p.status != RCCLX_OK)
        code = tool_fail("plan", "%s for rank %d: %s", algo->name, rank, rcclx_status_text(p.status));
    else if (q->json)
        rcclx_plan_json(stdout, &p, q->nbytes / size, size);
    else
        rcclx_plan_print(stdout, &p, q->nbytes / size, size);
    rcclx_plan_fini(&p);
    return code;
}

static int show_ranks(const question *q, const rcclx_algo *algo)
{
    const int first = q->rank < 0 ? 0 : q->rank, last = q->rank < 0 ? q->shape.nranks - 1 : q->rank;
    int       code  = TOOL_OK;

    for (int r = first; r <= last && code == TOOL_OK; r++) {
        fputs(r == first ? "" : q->json ? ", " : "\n", stdout);
        code = show_rank(q, algo, r);
    }
    return code;
}

/* What the host would run; if the list names nothing for it, what GPUs would. */
static const rcclx_algo *decide(question *q)
{
    bool              unfit = false, unfit_too = true;
    const rcclx_algo *host = rcclx_algo_choose(&q->shape, q->nbytes, q->facts, q->small, q->ordered, q->forced,
                                               &q->machine, &unfit), *gpu = NULL;

    if (unfit)
        gpu = rcclx_algo_choose(&q->shape, q->nbytes, q->facts | RCCLX_FACT_GPU, q->small, q->ordered, q->forced,
                                &q->machine, &unfit_too);
    if (unfit_too)
        return host;
    q->facts |= RCCLX_FACT_GPU;
    return gpu;
}

static int answer(question *q)
{
    int               code;
    const rcclx_algo *algo = decide(q);

    if (q->svg) {
        const rcclx_status s = rcclx_plan_svg(stdout, algo, &q->shape);

        return s == RCCLX_OK ? TOOL_OK : tool_fail("plan", "%s: %s", algo->name, rcclx_status_text(s));
    }
    fputs(q->json ? "{\"decision\": " : "", stdout);
    rcclx_algo_explain(stdout, &q->shape, q->nbytes, q->facts, q->small, q->ordered, q->forced, &q->machine, q->json);
    fputs(q->json ? ", \"plans\": [" : "\n", stdout);
    code = show_ranks(q, algo);
    fputs(q->json ? "]}\n" : "", stdout);
    return code;
}

int tool_plan(int argc, char **argv)
{
    question  q = {.shape = {.nranks = 4}, .nbytes = 64 << 10, .type = RCCLX_F32,
                   .facts = RCCLX_FACT_IN_MAPPED | RCCLX_FACT_OUT_MAPPED | RCCLX_FACT_CMA};
    tool_args a = {.who = "plan", .options = options, .argc = argc, .argv = argv, .at = 1};
    int       id, code = TOOL_OK;

    while (code == TOOL_OK && (id = tool_args_next(&a)) != TOOL_ARGS_END) {
        if (id == TOOL_ARGS_BAD)
            return TOOL_USAGE;
        if (id == 'h')
            return help();
        code = set(&a, &q, id);
    }
    if (code == TOOL_OK && on_paper(&q))
        return check_cluster(&q);
    if (code == TOOL_OK)
        code = check(&q);
    return code == TOOL_OK ? answer(&q) : code;
}
