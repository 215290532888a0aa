/* Forecasts against slow simulations of the same machine, message by message, where there
 * are few enough ranks for that; and what must be so for any number. */
#include "check.h"

#include "topo/fabric.h"
#include "topo/yard.h"

#include <math.h>

enum { RANKS = 256, STEPS = 1024 };

static const rcclx_forecaster *find(const char *name)
{
    for (int i = 0; rcclx_forecasts[i]; i++)
        if (!strcmp(rcclx_forecasts[i]->name, name))
            return rcclx_forecasts[i];
    check_say("# there is no %s\n", name);
    abort();
}

static double forecast(const char *name, rcclx_kind kind, const rcclx_cluster *c, double nbytes)
{
    rcclx_forecast f;

    return rcclx_simulate(find(name), kind, c, nbytes, &f) ? f.ns : HUGE_VAL;
}

/* --- a ring, message by message ------------------------------------------------------------- */

/* When rank i has sent its k-th message: after its own before, and after the neighbour's before has come. */
static double slow_ring(const rcclx_cluster *c, double nbytes, int steps)
{
    static double sent[RANKS], before[RANKS];
    const int n = c->nodes * c->ppn;
    double end = 0;

    memset(before, 0, sizeof(before));
    for (int k = 0; k < steps; k++) {
        for (int i = 0; i < n; i++) {
            const int prev = (i + n - 1) % n;
            const bool out = c->nodes > 1 && i % c->ppn == c->ppn - 1, in = c->nodes > 1 && prev % c->ppn == c->ppn - 1;
            const double came = k ? before[prev] + (in ? rcclx_fabric_latency(c, prev / c->ppn, i / c->ppn) : c->signal_ns) : 0;
            const double mine = k ? before[i] : 0;
            sent[i] = fmax(came, mine) + (out ? c->post_ns + nbytes / c->rails / c->port_rate : c->step_ns + nbytes / c->gpu_rate);
            end = fmax(end, sent[i]);
        }
        memcpy(before, sent, sizeof(before));
    }
    return end;
}

TEST(a_ring_takes_as_long_as_message_by_message)
{
    static const int shapes[][2] = { { 1, 2 }, { 1, 8 }, { 2, 1 }, { 2, 4 }, { 4, 8 }, { 32, 1 }, { 16, 8 } };

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (double nbytes = 64; nbytes < 5e9; nbytes *= 32) {
            rcclx_cluster c;
            rcclx_cluster_default(&c, shapes[i][0], shapes[i][1]);
            const int n = c.nodes * c.ppn;
            const double told = forecast("ring", RCCLX_ALL_REDUCE, &c, nbytes), slow = slow_ring(&c, nbytes / n, 2 * (n - 1));
            CHECK(told <= slow * 1.15 + 3000 && told >= slow * 0.95, "%d nodes of %d, %g bytes: %g ns, message by message %g", c.nodes, c.ppn, nbytes,
                  told, slow);
        }
}

/* --- double binary trees, piece by piece -------------------------------------------------------- */

/* A message: half a piece over one edge of one tree, up or down. */
typedef struct {
    bool   known, sent; /* its data are there; it is through */
    double ready;
} message;

enum { NODES = 32, PIECES = 32 };

/* Whoever is ready first goes first; a node begins one message at a time, a port sends one and hears one. */
static double slow_trees(const rcclx_cluster *c, double nbytes, int pieces)
{
    static message all[PIECES][2][2][NODES]; /* [piece][tree][down][node below the edge] */
    static int missing[PIECES][2][NODES];    /* children that have not come */
    double posted[NODES] = { 0 }, out[NODES] = { 0 }, in[NODES] = { 0 }, end = 0;
    const int n = c->nodes;
    const double wire = nbytes / pieces / 2 / c->port_rate;

    memset(all, 0, sizeof(all));
    memset(missing, 0, sizeof(missing));
    for (int k = 0; k < pieces; k++)
        for (int t = 0; t < 2; t++) {
            for (int i = 0; i < n; i++)
                if (rcclx_tree_parent(i, n, t) >= 0)
                    missing[k][t][rcclx_tree_parent(i, n, t)]++;
            for (int i = 0; i < n; i++)
                all[k][t][0][i].known = !missing[k][t][i];
        }
    for (;;) {
        message *first = NULL;
        int piece = 0, tree = 0, down = 0, node = 0;
        for (int k = 0; k < pieces; k++)
            for (int t = 0; t < 2; t++)
                for (int d = 0; d < 2; d++)
                    for (int i = 0; i < n; i++) {
                        message *m = &all[k][t][d][i];
                        if (m->known && !m->sent && rcclx_tree_parent(i, n, t) >= 0 && (!first || m->ready < first->ready))
                            first = m, piece = k, tree = t, down = d, node = i;
                    }
        if (!first)
            return end;
        const int up = rcclx_tree_parent(node, n, tree), from = down ? up : node, to = down ? node : up;
        posted[from] = fmax(first->ready, posted[from]) + c->post_ns;
        const double there = fmax(posted[from], fmax(out[from], in[to])) + wire;
        out[from] = in[to] = there;
        first->sent = true;
        const double seen = there + rcclx_fabric_latency(c, from, to);
        end = fmax(end, seen);
        /* up: the parent's own goes on when all children are there, or turns round at the root; down: the children's */
        bool turn = down;
        int at = to;
        if (!down) {
            message *next = &all[piece][tree][0][up];
            next->ready = fmax(next->ready, seen);
            next->known = !--missing[piece][tree][up];
            turn = next->known && rcclx_tree_parent(up, n, tree) < 0;
        }
        const double from_then = !down ? all[piece][tree][0][up].ready : seen;
        for (int i = 0; turn && i < n; i++)
            if (rcclx_tree_parent(i, n, tree) == at)
                all[piece][tree][1][i] = (message){ .known = true, .ready = from_then };
    }
}

TEST(trees_take_about_as_long_as_piece_by_piece)
{
    int compared = 0;

    for (int nodes = 2; nodes <= NODES; nodes *= 2)
        for (double nbytes = 1024; nbytes < 2e9; nbytes *= 8) {
            rcclx_cluster c;
            rcclx_forecast f;
            rcclx_cluster_default(&c, nodes, 1);
            REQUIRE(rcclx_simulate(find("direct+tree"), RCCLX_ALL_REDUCE, &c, nbytes, &f), "no forecast");
            if (f.pieces > PIECES)
                continue;
            const double slow = slow_trees(&c, nbytes, f.pieces);
            CHECK(f.ns < slow * 1.25 && f.ns > slow * 0.75, "%d nodes, %g bytes in %d pieces: %g ns, piece by piece %g", nodes, nbytes, f.pieces, f.ns, slow);
            compared++;
        }
    CHECK(compared > 10, "only %d were compared", compared);
}

/* --- the fabric, flow by flow ------------------------------------------------------------------------ */

typedef struct {
    double in[RANKS], out[RANKS], leaf_up[RANKS], leaf_down[RANKS], pod_up[RANKS], pod_down[RANKS];
} tally;

static void count(const rcclx_cluster *c, tally *t, int a, int b, double flows, bool leaves_rail)
{
    const int la = c->tiers > 1 ? a / c->leaf_nodes : 0, lb = c->tiers > 1 ? b / c->leaf_nodes : 0;
    const int pa = c->tiers > 2 ? la / c->pod_leaves : 0, pb = c->tiers > 2 ? lb / c->pod_leaves : 0;

    t->out[a] += flows;
    t->in[b] += flows;
    if (la != lb || leaves_rail) {
        t->leaf_up[la] += flows;
        t->leaf_down[lb] += flows;
    }
    if (pa != pb) {
        t->pod_up[pa] += flows;
        t->pod_down[pb] += flows;
    }
}

static double most(const double *a, const double *b)
{
    double m = 0;

    for (int i = 0; i < RANKS; i++)
        m = fmax(m, fmax(a[i], b[i]));
    return m;
}

static void compare(const rcclx_cluster *c, const tally *t, const rcclx_loads *l, const char *what)
{
    CHECK(fabs(l->port - most(t->in, t->out)) < 1e-6, "%s, %d nodes: ports %g, counted %g", what, c->nodes, l->port, most(t->in, t->out));
    CHECK(c->tiers < 2 || fabs(l->leaf - most(t->leaf_up, t->leaf_down)) < 1e-6, "%s, %d nodes: leaves %g, counted %g", what, c->nodes, l->leaf,
          most(t->leaf_up, t->leaf_down));
    CHECK(c->tiers < 3 || fabs(l->pod - most(t->pod_up, t->pod_down)) < 1e-6, "%s, %d nodes: pods %g, counted %g", what, c->nodes, l->pod,
          most(t->pod_up, t->pod_down));
}

TEST(loads_are_those_of_the_flows)
{
    for (int tiers = 1; tiers <= 3; tiers++)
        for (int nodes = 2; nodes <= 256; nodes *= 2) {
            static tally ring, trees, pairs, across;
            rcclx_cluster c;
            rcclx_cluster_default(&c, nodes, 8);
            c.tiers = tiers;
            c.leaf_nodes = 4;
            c.pod_leaves = 8;
            memset(&ring, 0, sizeof(tally));
            trees = pairs = across = ring;
            for (int a = 0; a < nodes; a++) {
                count(&c, &ring, a, (a + 1) % nodes, 1, false);
                for (int t = 0; t < 2; t++)
                    if (rcclx_tree_parent(a, nodes, t) >= 0)
                        count(&c, &trees, a, rcclx_tree_parent(a, nodes, t), 1, false);
                for (int b = 0; b < nodes; b++) {
                    if (a == b)
                        continue;
                    count(&c, &pairs, a, b, 1, false);
                    count(&c, &across, a, b, 1.0 / c.rails, false);
                    count(&c, &across, a, b, 1 - 1.0 / c.rails, tiers > 1);
                }
            }
            rcclx_loads l = rcclx_fabric_ring(&c);
            compare(&c, &ring, &l, "ring");
            l = rcclx_fabric_trees(&c);
            compare(&c, &trees, &l, "trees");
            l = rcclx_fabric_pairs(&c, false);
            compare(&c, &pairs, &l, "pairs");
            l = rcclx_fabric_pairs(&c, true);
            compare(&c, &across, &l, "pairs across rails");
        }
}

/* --- what must be so -------------------------------------------------------------------------------------- */

/* No forecast beats what ports and links must carry at least. */
TEST(nothing_is_faster_than_the_wires)
{
    static const rcclx_kind kinds[] = { RCCLX_ALL_REDUCE, RCCLX_ALL_GATHER, RCCLX_REDUCE_SCATTER, RCCLX_ALL_TO_ALL };

    for (int nodes = 1; nodes <= 4096; nodes *= 4)
        for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
            for (int i = 0; rcclx_forecasts[i]; i++) {
                const double nbytes = 1 << 24;
                rcclx_cluster c;
                rcclx_forecast f;
                rcclx_cluster_default(&c, nodes, 8);
                if (!rcclx_simulate(rcclx_forecasts[i], kinds[k], &c, nbytes, &f))
                    continue;
                const double n = nodes * 8.0, each = kinds[k] == RCCLX_ALL_REDUCE ? 2 * nbytes * (n - 1) / n : nbytes * (n - 1);
                const double through = kinds[k] == RCCLX_ALL_TO_ALL ? nbytes * 8 * (n - 8) : kinds[k] == RCCLX_ALL_REDUCE ? 2 * nbytes * (nodes - 1) / nodes
                                                                                                                      : nbytes * (n - 8);
                const double wires = nodes > 1 ? through / (c.rails * c.port_rate) : each / c.gpu_rate;
                CHECK(f.ns >= wires * (1 - 1e-9), "%s, %s, %d nodes: %g ns, the wires take %g", rcclx_forecasts[i]->name, rcclx_kind_word(kinds[k]), nodes,
                      f.ns, wires);
            }
}

static void no_faster(const rcclx_cluster *a, const rcclx_cluster *b, const char *what)
{
    for (int i = 0; rcclx_forecasts[i]; i++)
        for (int kind = 0; kind < RCCLX_COLL_COUNT; kind++) {
            rcclx_forecast f, g;
            if (rcclx_simulate(rcclx_forecasts[i], (rcclx_kind)kind, a, 1 << 22, &f) && rcclx_simulate(rcclx_forecasts[i], (rcclx_kind)kind, b, 1 << 22, &g))
                CHECK(g.ns >= f.ns * (1 - 1e-9), "%s is faster with %s: %g, %g", rcclx_forecasts[i]->name, what, f.ns, g.ns);
        }
}

TEST(less_is_not_faster)
{
    rcclx_cluster c, d;

    rcclx_cluster_default(&c, 2048, 8);
    d = c, d.oversubscription = 4, no_faster(&c, &d, "oversubscription");
    d = c, d.port_rate /= 2, no_faster(&c, &d, "slow ports");
    d = c, d.gpu_rate /= 3, no_faster(&c, &d, "slow links");
    d = c, d.switch_ns *= 10, no_faster(&c, &d, "slow switches");
    d = c, d.rail_leaves = false, no_faster(&d, &c, "leaves of each rail"); /* all-to-all across rails has farther to go */
    d = c, d.oversubscription = 4;
    CHECK(forecast("pairs", RCCLX_ALL_TO_ALL, &d, 65536) > 2 * forecast("pairs", RCCLX_ALL_TO_ALL, &c, 65536), "oversubscription costs an all-to-all nothing");
}

/* In two tiers an all-to-all of large messages is as much slower as the leaves' ways up are. */
TEST(leaves_hold_back_an_all_to_all)
{
    rcclx_cluster c, d;

    rcclx_cluster_default(&c, 256, 8);
    d = c;
    d.oversubscription = 4;
    const double ratio = forecast("pairs", RCCLX_ALL_TO_ALL, &d, 1 << 20) / forecast("pairs", RCCLX_ALL_TO_ALL, &c, 1 << 20);
    CHECK(ratio > 3.5 && ratio < 4.5, "%g times slower", ratio);
}

TEST(a_message_a_node_helps_where_messages_are_many)
{
    rcclx_cluster c;

    rcclx_cluster_default(&c, 512, 8);
    CHECK(forecast("pairs by node", RCCLX_ALL_TO_ALL, &c, 64) < 0.25 * forecast("pairs", RCCLX_ALL_TO_ALL, &c, 64), "%g and %g",
          forecast("pairs by node", RCCLX_ALL_TO_ALL, &c, 64), forecast("pairs", RCCLX_ALL_TO_ALL, &c, 64));
    CHECK(forecast("ring", RCCLX_ALL_REDUCE, &c, 1024) > 50 * forecast("direct+tree", RCCLX_ALL_REDUCE, &c, 1024), "a small message is fast in a long ring");
}

TEST(a_hundred_thousand_ranks_in_seconds)
{
    const double before = check_now();
    int n = 0;

    for (int nodes = 1; nodes <= 16384; nodes *= 2)
        for (double nbytes = 1024; nbytes < 2e9; nbytes *= 16)
            for (int i = 0; rcclx_forecasts[i]; i++)
                for (int kind = 0; kind < RCCLX_COLL_COUNT; kind++) {
                    rcclx_cluster c;
                    rcclx_forecast f;
                    rcclx_cluster_default(&c, nodes, 8);
                    n += rcclx_simulate(rcclx_forecasts[i], (rcclx_kind)kind, &c, nbytes, &f) && f.ns > 0 && !isinf(f.ns);
                }
    CHECK(check_now() - before < 30 * check_scale(), "%.1f s", check_now() - before);
    CHECK(n > 500, "%d forecasts", n);
}

TEST(clusters_that_cannot_be)
{
    rcclx_cluster c;
    char why[128];

    rcclx_cluster_default(&c, 16, 8);
    CHECK(rcclx_cluster_check(&c, why, sizeof(why)), "%s", why);
    c.nodes = 0;
    CHECK(!rcclx_cluster_check(&c, why, sizeof(why)) && strstr(why, "nodes"), "%s", why);
    rcclx_cluster_default(&c, 16, 8);
    c.port_rate = 0;
    CHECK(!rcclx_cluster_check(&c, why, sizeof(why)) && strstr(why, "more than 0"), "%s", why);
    rcclx_cluster_default(&c, 16, 8);
    c.tiers = 4;
    CHECK(!rcclx_cluster_check(&c, why, sizeof(why)) && strstr(why, "tiers"), "%s", why);
}
