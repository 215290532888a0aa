/* Rings, trees, rails, rounds: every one that is found is looked at by the checker, and
 * the checker by faults. */
#include "check.h"
#include "topo_machines.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "topo/simplex.h"
#include "topo/yard.h"

#include <dirent.h>
#include <math.h>

TIME_LIMIT(300)

static cluster c;

static bool near_to(double a, double b)
{
    return fabs(a - b) <= 1e-6 * (1 + fabs(b));
}

/* Find, check, compare with a second search. False: told. */
static bool find(rcclx_schedule *s, rcclx_schedule_kind kind, const char *of)
{
    char why[256] = "";
    const clock_t before = clock(); /* of the processor, which others use, too */
    const rcclx_status status = rcclx_schedule_find(s, kind, c.nodes, c.nnodes);
    const double took = (double)(clock() - before) / CLOCKS_PER_SEC;

    if (!CHECK(status == RCCLX_OK, "%s, %s: %s", of, rcclx_schedule_name(kind), rcclx_last_error()))
        return false;
    CHECK(took < 1 * check_scale(), "%s, %s of %d nodes took %.2f s", of, rcclx_schedule_name(kind), c.nnodes, took);
    return CHECK(rcclx_schedule_check(s, c.nodes, c.nnodes, why, sizeof(why)) == RCCLX_OK, "%s, %s of %d nodes: %s", of, rcclx_schedule_name(kind),
                 c.nnodes, why);
}

static void find_all(const char *of)
{
    rcclx_schedule s;

    for (int k = 0; k < RCCLX_SCHEDULE_COUNT; k++) {
        find(&s, (rcclx_schedule_kind)k, of);
        rcclx_schedule_fini(&s);
    }
}

TEST(every_machine_alone_and_in_copies)
{
    static const int counts[] = { 1, 2, 3, 4, 7, 8, 16, 33, 64 };
    char of[32];

    for (int m = 0; m < NMACHINES; m++) {
        REQUIRE(machine_open(&c.topo, &machines[m]) == RCCLX_OK, "%s", rcclx_last_error());
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            cluster_place(&c, NULL, machines[m].ngpus, counts[i]);
            snprintf(of, sizeof(of), "machine %d", m);
            find_all(of);
        }
        rcclx_topo_fini(&c.topo);
    }
}

TEST(sets_of_gpus)
{
    static const int which[] = { MESH8, HIVES, RING8, BUS8 };
    char of[64];

    for (size_t m = 0; m < sizeof(which) / sizeof(which[0]); m++) {
        REQUIRE(machine_open(&c.topo, &machines[which[m]]) == RCCLX_OK, "%s", rcclx_last_error());
        for (int set = 1; set < 256; set += m < 2 ? 1 : 3) {
            int gpus[8], n = 0;
            for (int g = 0; g < 8; g++)
                if (set >> g & 1)
                    gpus[n++] = g;
            cluster_place(&c, gpus, n, 1 + set % 2);
            snprintf(of, sizeof(of), "machine %d, GPUs %#x", which[m], (unsigned)set);
            find_all(of);
        }
        rcclx_topo_fini(&c.topo);
    }
}

TEST(uneven_nodes_and_ranks_in_any_order)
{
    static const int first[] = { 0, 2, 5 }, second[] = { 1, 3, 4, 6, 7 }, ranks[2][5] = { { 7, 0, 3 }, { 1, 2, 6, 4, 5 } };

    REQUIRE(machine_open(&c.topo, &machines[MESH8]) == RCCLX_OK, "%s", rcclx_last_error());
    c.nodes[0] = (rcclx_share){ .topo = &c.topo, .ngpus = 3, .gpus = first, .ranks = ranks[0] };
    c.nodes[1] = (rcclx_share){ .topo = &c.topo, .ngpus = 5, .gpus = second, .ranks = ranks[1] };
    c.nnodes = 2;
    find_all("3 and 5");
    c.nnodes = 1;
    rcclx_schedule s;
    CHECK(rcclx_schedule_find(&s, RCCLX_RINGS, c.nodes, 1) == RCCLX_USAGE && strstr(rcclx_last_error(), "rank 7"), "%s", rcclx_last_error());
    rcclx_topo_fini(&c.topo);
}

/* --- what is known to be best ------------------------------------------------------------- */

static void expect(rcclx_schedule_kind kind, int nnodes, double total, bool proved)
{
    rcclx_schedule s;

    cluster_place(&c, NULL, c.topo.ngpus, nnodes);
    if (find(&s, kind, "machine"))
        CHECK(near_to(s.total, total) && rcclx_schedule_proved(&s) == proved, "%s of %d nodes: %g GB/s of %g, not %g", rcclx_schedule_name(kind),
              nnodes, s.total, s.bound, total);
    rcclx_schedule_fini(&s);
}

TEST(bounds_are_reached_where_that_is_known)
{
    static const struct { int machine, nnodes; rcclx_schedule_kind kind; double total; bool proved; } rows[] = {
        { MESH8, 1, RCCLX_RINGS, 7 * 48, true },       /* every link in both directions */
        { MESH8, 1, RCCLX_TREES, 8 * 48, true },       /* a star around each GPU */
        { MESH8, 1, RCCLX_SWAPS, 7 * 48, true },
        { MESH8, 4, RCCLX_RINGS, 8 * 48, true },       /* ports of 50, behind PCI of 48 */
        { MESH8, 4, RCCLX_RAILS, 8 * 48, true },
        { MESH4, 1, RCCLX_RINGS, 3 * 48, true },       /* six of half a link: three whole ones do not exist */
        { SWITCHED, 1, RCCLX_RINGS, 18 * 20.6, true },
        { SWITCHED, 1, RCCLX_SWAPS, 18 * 20.6, true },
        { PAIR, 1, RCCLX_RINGS, 36, true },
        { PAIR, 1, RCCLX_TREES, 2 * 36, true },        /* each root gives its half */
        { BUS8, 1, RCCLX_RINGS, 24, true },            /* what joins the CPUs */
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        REQUIRE(machine_open(&c.topo, &machines[rows[i].machine]) == RCCLX_OK, "%s", rcclx_last_error());
        expect(rows[i].kind, rows[i].nnodes, rows[i].total, rows[i].proved);
        rcclx_topo_fini(&c.topo);
    }
}

TEST(linear_programs)
{
    /* x0 <= x1 + x2, x1 <= 3, x2 <= 4 - x1 / 2: x1 = 3, x2 = 2.5 */
    rcclx_simplex p;
    double most = 0;

    REQUIRE(rcclx_simplex_open(&p, 3, 3) == RCCLX_OK, "%s", rcclx_last_error());
    int r = rcclx_simplex_row(&p, 0);
    *rcclx_simplex_at(&p, r, 0) = 1;
    *rcclx_simplex_at(&p, r, 1) = *rcclx_simplex_at(&p, r, 2) = -1;
    r = rcclx_simplex_row(&p, 3);
    *rcclx_simplex_at(&p, r, 1) = 1;
    r = rcclx_simplex_row(&p, 4);
    *rcclx_simplex_at(&p, r, 1) = 0.5;
    *rcclx_simplex_at(&p, r, 2) = 1;
    CHECK(rcclx_simplex_solve(&p, &most) && most >= 5.5 && near_to(most, 5.5), "%.9g", most);
    CHECK(near_to(rcclx_simplex_value(&p, 1), 3) && near_to(rcclx_simplex_value(&p, 2), 2.5), "%g %g", rcclx_simplex_value(&p, 1), rcclx_simplex_value(&p, 2));
    rcclx_simplex_close(&p);
    REQUIRE(rcclx_simplex_open(&p, 2, 1) == RCCLX_OK, "%s", rcclx_last_error());
    r = rcclx_simplex_row(&p, 1);
    *rcclx_simplex_at(&p, r, 1) = 1;
    CHECK(!rcclx_simplex_solve(&p, &most), "x0 has no limit, and %g was found", most);
    rcclx_simplex_close(&p);
}

/* GPU 1 has four lanes to GPU 0, one to each other: six rings could leave it, and only four can go in and out. */
TEST(rings_go_in_and_out_of_every_gpu)
{
    static const int lanes[4][4] = { { 0, 4, 4, 4 }, { 4, 0, 1, 1 }, { 4, 1, 0, 4 }, { 4, 1, 4, 0 } };
    char text[4096];
    rcclx_schedule s;
    int n = sprintf(text, "<system version='2'><cpu numaid='0'>");

    for (int i = 0; i < 4; i++) {
        n += sprintf(text + n, "<pci busid='0000:0%d:00.0'><gpu dev='%d' gcn='gfx90a'>", i + 1, i);
        for (int k = 0; k < 4; k++)
            if (k != i)
                n += sprintf(text + n, "<xgmi target='0000:0%d:00.0' count='%d'/>", k + 1, lanes[i][k]);
        n += sprintf(text + n, "</gpu></pci>");
    }
    sprintf(text + n, "</cpu></system>");
    REQUIRE(rcclx_topo_parse(&c.topo, text, strlen(text), "lanes") == RCCLX_OK, "%s", rcclx_last_error());
    cluster_place(&c, NULL, 4, 1);
    if (find(&s, RCCLX_RINGS, "lanes"))
        CHECK(near_to(s.bound, 4 * 36) && rcclx_schedule_proved(&s) && s.limit > 5 * 36, "%g of %g, limit %g", s.total, s.bound, s.limit);
    rcclx_schedule_fini(&s);
    rcclx_topo_fini(&c.topo);
}

/* Too many GPUs for the linear program: the minimum cut alone. */
TEST(bounds_of_many_gpus)
{
    const machine m = { .ngpus = 20, .ncpus = 2, .nports = 2, .gcn = "gfx942", .joined = all_joined, .mbit = 400000 };
    rcclx_schedule s;

    REQUIRE(machine_open(&c.topo, &m) == RCCLX_OK, "%s", rcclx_last_error());
    cluster_place(&c, NULL, 20, 1);
    if (find(&s, RCCLX_RINGS, "twenty"))
        CHECK(near_to(s.bound, 19 * 48) && s.total >= 8 * 48, "%g of %g", s.total, s.bound);
    rcclx_schedule_fini(&s);
    rcclx_topo_fini(&c.topo);
}

/* GPU 0 is joined to 1, 1 to 2, which is next to the port: 1 helps 0 nothing, since it needs help itself. And the link
 * to whoever helps is narrower than the port. */
TEST(relays_are_the_last_ones)
{
    static const char text[] =
        "<system version='2'><cpu numaid='0'><pci busid='0000:01:00.0'><gpu dev='0' gcn='906'><xgmi target='0000:02:00.0'/></gpu></pci></cpu>"
        "<cpu numaid='1'><pci busid='0000:02:00.0'><gpu dev='1' gcn='906'><xgmi target='0000:01:00.0'/><xgmi target='0000:03:00.0'/></gpu></pci>"
        "<pci busid='0000:10:00.0' link_speed='64 GT/s' link_width='16'><pci busid='0000:03:00.0' link_speed='64 GT/s' link_width='16'>"
        "<gpu dev='2' gcn='906'><xgmi target='0000:02:00.0'/></gpu></pci>"
        "<pci busid='0000:04:00.0' link_speed='64 GT/s' link_width='16'><nic><net name='n' dev='0' speed='800000'/></nic></pci></pci></cpu></system>";
    rcclx_schedule s;

    REQUIRE(rcclx_topo_parse(&c.topo, text, strlen(text), "text") == RCCLX_OK, "%s", rcclx_last_error());
    cluster_place(&c, NULL, 3, 2);
    if (find(&s, RCCLX_RAILS, "three"))
        CHECK(s.rows[0] == 0 && s.rows[1] == 2 && s.rows[2] == 2, "relays %d %d %d", s.rows[0], s.rows[1], s.rows[2]);
    rcclx_schedule_fini(&s);
    static const int last[] = { 1, 2 };
    cluster_place(&c, last, 2, 2);
    if (find(&s, RCCLX_RAILS, "two"))
        CHECK(near_to(s.total, 2 * 24), "%g: GPU 1 has 24, and GPU 2 gets no more", s.total);
    rcclx_schedule_fini(&s);
    rcclx_topo_fini(&c.topo);
}

TEST(ports_are_dealt_evenly)
{
    const machine m = { .ngpus = 4, .ncpus = 1, .nports = 2, .gcn = "gfx942", .joined = all_joined, .mbit = 100000 };
    rcclx_schedule s;
    int users[2] = { 0 };

    REQUIRE(machine_open(&c.topo, &m) == RCCLX_OK, "%s", rcclx_last_error());
    cluster_place(&c, NULL, 4, 2);
    REQUIRE(find(&s, RCCLX_SWAPS, "four"), "none");
    for (int r = 0; r < 4; r++)
        users[s.ports[r]]++;
    CHECK(users[0] == 2 && users[1] == 2, "%d and %d GPUs", users[0], users[1]);
    rcclx_schedule_fini(&s);
    rcclx_topo_fini(&c.topo);
}

/* Rail c stays on port c: between nodes as well as in trees. */
TEST(channels_stay_on_their_rails)
{
    rcclx_schedule s;

    REQUIRE(machine_open(&c.topo, &machines[MESH8]) == RCCLX_OK, "%s", rcclx_last_error());
    cluster_place(&c, NULL, 8, 5);
    for (int k = RCCLX_RINGS; k <= RCCLX_RAILS; k++) {
        bool used[8] = { false };
        REQUIRE(find(&s, (rcclx_schedule_kind)k, "mesh"), "none");
        for (int ch = 0; ch < s.nchannels; ch++) {
            for (int node = 1; node < 5; node++)
                CHECK(s.ports[ch * 5 + node] == s.ports[ch * 5], "%s %d: port %d in node %d, %d in node 0", rcclx_schedule_name(s.kind), ch,
                      s.ports[ch * 5 + node], node, s.ports[ch * 5]);
            used[s.ports[ch * 5]] = true;
        }
        for (int p = 0; p < 8; p++)
            CHECK(used[p], "%s: port %d is used by none", rcclx_schedule_name(s.kind), p);
        rcclx_schedule_fini(&s);
    }
    rcclx_topo_fini(&c.topo);
}

TEST(a_search_finds_the_same_again)
{
    rcclx_schedule a, b;

    REQUIRE(machine_open(&c.topo, &machines[HIVES]) == RCCLX_OK, "%s", rcclx_last_error());
    cluster_place(&c, NULL, 8, 3);
    for (int k = 0; k < RCCLX_SCHEDULE_COUNT; k++) {
        REQUIRE(find(&a, (rcclx_schedule_kind)k, "once") && find(&b, (rcclx_schedule_kind)k, "again"), "none");
        CHECK(a.nchannels == b.nchannels && !memcmp(a.rows, b.rows, (size_t)a.nchannels * 24 * sizeof(int)), "%s differ", rcclx_schedule_name(a.kind));
        rcclx_schedule_fini(&a);
        rcclx_schedule_fini(&b);
    }
    rcclx_topo_fini(&c.topo);
}

/* Who has children in one tree has none in the other; both are as flat as they can be, but for the root. */
TEST(double_binary_trees)
{
    for (int n = 1; n <= 300; n++) {
        int inner[2] = { 0 }, both = 0, depth = 0, levels = 0;
        for (int k = 1; k < n; k *= 2)
            levels++;
        for (int i = 0; i < n; i++) {
            int children[2] = { 0 };
            for (int t = 0; t < 2; t++) {
                int up = 0;
                for (int k = 0; k < n; k++)
                    children[t] += rcclx_tree_parent(k, n, t) == i;
                for (int at = i; (at = rcclx_tree_parent(at, n, t)) >= 0 && up <= n;)
                    up++;
                depth = up > depth ? up : depth;
                inner[t] += children[t] > 0;
                CHECK(children[t] <= 2, "%d nodes, tree %d: node %d has %d children", n, t, i, children[t]);
            }
            both += children[0] && children[1];
        }
        CHECK(both <= 1 + (n % 2) && depth <= levels + 1, "%d nodes: %d are inner in both, depth %d", n, both, depth);
    }
}

/* --- faults that the checker must see ---------------------------------------------------------- */

static void fault(rcclx_schedule *s, const char *what)
{
    char why[256] = "";

    CHECK(rcclx_schedule_check(s, c.nodes, c.nnodes, why, sizeof(why)) == RCCLX_USAGE && *why, "%s, not seen: %s", rcclx_schedule_name(s->kind), what);
}

static void spoil(rcclx_schedule *s, int *at, int value, const char *what)
{
    const int before = *at;

    *at = value;
    fault(s, what);
    *at = before;
}

TEST(the_checker_sees_faults)
{
    rcclx_schedule s;

    REQUIRE(machine_open(&c.topo, &machines[MESH8]) == RCCLX_OK, "%s", rcclx_last_error());
    cluster_place(&c, NULL, 8, 2);
    for (int k = 0; k < RCCLX_SCHEDULE_COUNT; k++) {
        REQUIRE(find(&s, (rcclx_schedule_kind)k, "mesh"), "none");
        const double rate = s.rate, total = s.total;
        spoil(&s, &s.rows[5], k == RCCLX_TREES ? 5 : s.rows[6] == s.rows[5] ? 99 : s.rows[6], "a rank twice, or below itself");
        spoil(&s, &s.rows[3], 16, "a rank that is none");
        spoil(&s, &s.ports[0], 8, "a port that is none");
        s.rate *= 1.01;
        s.total *= 1.01;
        fault(&s, "more than links carry");
        s.rate = rate;
        fault(&s, "a total that is not that of the channels");
        s.total = total;
        spoil(&s, &s.nranks, 15, "a rank less");
        spoil(&s, &s.nnodes, 3, "a node more");
        s.bound = total / 2;
        fault(&s, "a bound below the total");
        rcclx_schedule_fini(&s);
    }
    rcclx_topo_fini(&c.topo);
}

TEST(the_checker_sees_wrong_shapes)
{
    rcclx_schedule s;

    REQUIRE(machine_open(&c.topo, &machines[MESH8]) == RCCLX_OK, "%s", rcclx_last_error());
    cluster_place(&c, NULL, 8, 2);
    REQUIRE(find(&s, RCCLX_RINGS, "mesh"), "none");
    const int a = s.rows[3], b = s.rows[12];
    s.rows[3] = b;
    s.rows[12] = a;
    fault(&s, "a node that is entered twice");
    s.rows[3] = a;
    s.rows[12] = b;
    s.rate /= 10;
    s.total /= 10;
    spoil(&s, &s.rows[2], s.rows[4], "a rank twice, though links carry it");
    rcclx_schedule_fini(&s);
    REQUIRE(find(&s, RCCLX_TREES, "mesh"), "none");
    spoil(&s, &s.depth, s.depth + 1, "another depth");
    int leaf = 0;
    while (s.rows[leaf] < 0)
        leaf++;
    spoil(&s, &s.rows[leaf], -1, "two roots");
    rcclx_schedule_fini(&s);
    REQUIRE(find(&s, RCCLX_RAILS, "mesh"), "none");
    spoil(&s, &s.rows[3], 9, "a relay in another node");
    rcclx_schedule_fini(&s);
    rcclx_topo_fini(&c.topo);
}

/* --- what cannot be had ---------------------------------------------------------------------------- */

TEST(impossible_questions_are_answered)
{
    static const char apart[] = "<system version='2'><cpu host_hash='1' numaid='0'><pci busid='0000:01:00.0'><gpu dev='0'/></pci></cpu>"
                                "<cpu host_hash='2' numaid='0'><pci busid='0000:01:00.0'><gpu dev='0'/></pci></cpu></system>";
    const int twice[] = { 0, 0 }, beyond[] = { 0, 8 };
    rcclx_schedule s;

    REQUIRE(rcclx_topo_parse(&c.topo, apart, strlen(apart), "apart") == RCCLX_OK, "%s", rcclx_last_error());
    cluster_place(&c, NULL, 2, 1);
    CHECK(rcclx_schedule_find(&s, RCCLX_RINGS, c.nodes, 1) == RCCLX_USAGE && strstr(rcclx_last_error(), "no ring"), "%s", rcclx_last_error());
    CHECK(rcclx_schedule_find(&s, RCCLX_TREES, c.nodes, 1) == RCCLX_USAGE && strstr(rcclx_last_error(), "no tree"), "%s", rcclx_last_error());
    cluster_place(&c, NULL, 1, 2);
    CHECK(rcclx_schedule_find(&s, RCCLX_RINGS, c.nodes, 2) == RCCLX_USAGE && strstr(rcclx_last_error(), "no network port"), "%s", rcclx_last_error());
    rcclx_topo_fini(&c.topo);
    REQUIRE(machine_open(&c.topo, &machines[MESH8]) == RCCLX_OK, "%s", rcclx_last_error());
    cluster_place(&c, twice, 2, 1);
    CHECK(rcclx_schedule_find(&s, RCCLX_RINGS, c.nodes, 1) == RCCLX_USAGE && strstr(rcclx_last_error(), "named twice"), "%s", rcclx_last_error());
    cluster_place(&c, beyond, 2, 1);
    CHECK(rcclx_schedule_find(&s, RCCLX_RINGS, c.nodes, 1) == RCCLX_USAGE && strstr(rcclx_last_error(), "there is no GPU 8"), "%s", rcclx_last_error());
    CHECK(rcclx_schedule_find(&s, RCCLX_RINGS, c.nodes, 0) == RCCLX_USAGE, "%s", rcclx_last_error());
    rcclx_topo_fini(&c.topo);
}

TEST(memory_may_fail_anywhere)
{
    REQUIRE(machine_open(&c.topo, &machines[MESH4]) == RCCLX_OK, "%s", rcclx_last_error());
    cluster_place(&c, NULL, 4, 2);
    const size_t held = rcclx_mem_held();
    for (int k = 0; k < RCCLX_SCHEDULE_COUNT; k++) {
        bool done = false;
        for (int n = 0; !done && n < 10000; n++) {
            rcclx_schedule s;
            rcclx_mem_fail_after(n);
            const rcclx_status status = rcclx_schedule_find(&s, (rcclx_schedule_kind)k, c.nodes, 2);
            rcclx_mem_fail_after(-1);
            done = status == RCCLX_OK;
            CHECK(done || status == RCCLX_NOMEM, "%s: %s", rcclx_status_name(status), rcclx_last_error());
            rcclx_schedule_fini(&s);
            CHECK(rcclx_mem_held() == held, "%s: %zu blocks are left", rcclx_schedule_name((rcclx_schedule_kind)k), rcclx_mem_held() - held);
        }
        CHECK(done, "it never went well");
    }
    rcclx_topo_fini(&c.topo);
}

/* --- files ------------------------------------------------------------------------------------------- */

static char path[] = "/tmp/rcclx_graph_XXXXXX";

static void write_and_read(int nnodes)
{
    rcclx_schedule all[RCCLX_SCHEDULE_COUNT], again[RCCLX_SCHEDULE_COUNT];

    cluster_place(&c, NULL, c.topo.ngpus, nnodes);
    setenv("NCCL_GRAPH_DUMP_FILE", path, 1);
    rcclx_option_reload();
    REQUIRE(rcclx_schedule_open(all, c.nodes, nnodes) == RCCLX_OK, "%s", rcclx_last_error());
    unsetenv("NCCL_GRAPH_DUMP_FILE");
    setenv("NCCL_GRAPH_FILE", path, 1);
    rcclx_option_reload();
    REQUIRE(rcclx_schedule_open(again, c.nodes, nnodes) == RCCLX_OK, "%s", rcclx_last_error());
    for (int k = RCCLX_RINGS; k <= RCCLX_TREES; k++) {
        const size_t n = (size_t)all[k].nchannels;
        CHECK(again[k].nchannels == all[k].nchannels && near_to(again[k].rate, all[k].rate) && again[k].depth == all[k].depth &&
                  !memcmp(again[k].rows, all[k].rows, n * (size_t)all[k].nranks * sizeof(int)) &&
                  !memcmp(again[k].ports, all[k].ports, n * (size_t)nnodes * sizeof(int)),
              "%s of %d nodes are others when read again", rcclx_schedule_name(all[k].kind), nnodes);
    }
    for (int k = 0; k < RCCLX_SCHEDULE_COUNT; k++) {
        rcclx_schedule_fini(&all[k]);
        rcclx_schedule_fini(&again[k]);
    }
    unsetenv("NCCL_GRAPH_FILE");
    rcclx_option_reload();
}

TEST(rings_and_trees_go_to_files_and_back)
{
    const int fd = mkstemp(path);

    REQUIRE(fd >= 0, "%s", strerror(errno));
    for (int m = 1; m < NMACHINES; m++) {
        REQUIRE(machine_open(&c.topo, &machines[m]) == RCCLX_OK, "%s", rcclx_last_error());
        write_and_read(1);
        write_and_read(3);
        rcclx_topo_fini(&c.topo);
    }
    close(fd);
    unlink(path);
}

static void refused(const char *text, const char *says)
{
    rcclx_schedule s;
    FILE *out = fopen(path, "w");

    REQUIRE(out && fputs(text, out) >= 0 && !fclose(out), "%s", strerror(errno));
    CHECK(rcclx_schedule_read(&s, RCCLX_RINGS, c.nodes, c.nnodes, path) == RCCLX_USAGE, "taken: %s", text);
    CHECK(strstr(rcclx_last_error(), says), "\"%s\" is not in: %s", says, rcclx_last_error());
    unlink(path);
}

#define RING(body) "<graphs version='1'>\n<graph id='0' pattern='4' speedintra='10' speedinter='10'>\n" body "</graph></graphs>"

TEST(files_of_rings_may_be_wrong)
{
    REQUIRE(machine_open(&c.topo, &machines[MESH4]) == RCCLX_OK, "%s", rcclx_last_error());
    cluster_place(&c, NULL, 4, 1);
    refused("<graphs/>", "no <graph> of rings");
    refused("<system/>", "the description of a machine");
    refused(RING(""), "no <channel>");
    refused(RING("<channel><gpu dev='0'/></channel>"), "line 3, <channel>: channel 0 goes through 1 GPUs, and 4");
    refused(RING("<channel><gpu dev='0'/>\n<gpu dev='9'/></channel>"), "line 4, <gpu>: no GPU of node 0 that takes part has dev 9");
    refused(RING("<channel><gpu dev='0'/><gpu dev='0'/></channel>"), "in channel 0 twice");
    refused("<graphs><graph pattern='4' speedintra='fast'/></graphs>", "must be GB/s");
    refused("<graphs version='1'>\n<graph pattern='4' speedintra='60'><channel><gpu dev='0'/><gpu dev='1'/><gpu dev='2'/><gpu dev='3'/></channel></graph></graphs>",
            "carries 48 GB/s, and 60 are put on it");
    cluster_place(&c, NULL, 4, 2);
    refused(RING("<channel><gpu dev='0'/><gpu dev='1'/><gpu dev='2'/><gpu dev='3'/></channel>"), "names no <net>");
    rcclx_topo_fini(&c.topo);
}

/* --- descriptions of real machines, if there are some -------------------------------------------------- */

static void look_at(const char *folder, const char *name)
{
    char file[1024], *text = NULL;
    rcclx_topo again;
    size_t n;

    snprintf(file, sizeof(file), "%s/%s", folder, name);
    REQUIRE(rcclx_topo_read(&c.topo, file) == RCCLX_OK, "%s", rcclx_last_error());
    FILE *out = open_memstream(&text, &n);
    CHECK(rcclx_xml_write(&c.topo.xml, out) == RCCLX_OK, "%s", rcclx_last_error());
    fclose(out);
    if (CHECK(rcclx_topo_parse(&again, text, n, name) == RCCLX_OK, "%s", rcclx_last_error()))
        CHECK(rcclx_xml_equal(&c.topo.xml, &again.xml) && again.nlinks == c.topo.nlinks, "%s is another one when written and read", name);
    rcclx_topo_fini(&again);
    free(text);
    for (int nnodes = 1; nnodes <= 64; nnodes *= nnodes < 4 ? 2 : 4) {
        cluster_place(&c, NULL, c.topo.ngpus, nnodes);
        find_all(name);
    }
    rcclx_topo_fini(&c.topo);
}

TEST(files_of_a_folder)
{
    const char *folder = getenv("RCCLX_TEST_TOPO");
    struct dirent **names;

    if (!folder)
        SKIP("RCCLX_TEST_TOPO names no folder of descriptions");
    const int n = scandir(folder, &names, NULL, alphasort);
    REQUIRE(n > 0, "%s: %s", folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        const size_t length = strlen(names[i]->d_name);
        if (length > 4 && !strcmp(names[i]->d_name + length - 4, ".xml"))
            CASE("%s", names[i]->d_name)
                look_at(folder, names[i]->d_name);
        free(names[i]);
    }
    free(names);
}
