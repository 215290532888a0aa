#include "check.h"

#include "algo/algo.h"
#include "algo/list.h"
#include "algo/tune.h"
#include "base/option.h"

#include <math.h>

enum { MAPPED = RCCLX_FACT_IN_MAPPED | RCCLX_FACT_OUT_MAPPED | RCCLX_FACT_APART };

static rcclx_machine machine(int nranks, int ncores)
{
    return (rcclx_machine){
        .nranks = nranks, .ncores = ncores, .call_ns = 200, .signal_ns = 100, .switch_ns = 1500, .step_ns = 15, .net_ns = 20000, .net_rate = 3,
        .local_rate = 10, .peer_rate = 6, .far_rate = 4, .cache_bytes = 4 << 20, .cma_ns = 800, .cma_rate = 5,
        .slot_bytes = 256 << 10,
    };
}

static const uint8_t two_machines[] = { 0, 0, 1, 1 };

static rcclx_shape shape(rcclx_kind k, int n)
{
    return (rcclx_shape){ .kind = k, .nranks = n };
}

static const rcclx_algo *choose(rcclx_kind k, int n, size_t nbytes, unsigned facts, const char *forced, bool *failed)
{
    const rcclx_machine m = machine(n, n);
    const rcclx_shape s = shape(k, n);

    return rcclx_algo_choose(&s, nbytes, facts, nbytes <= 4096, false, forced, &m, failed);
}

/* The process' table is read once: this case comes first, in a process of its own. */
static int measured(int rank, int n, void *arg)
{
    static const char rows[] = "all_reduce 4 0 - tree\ngather * 0 - slot\n";
    char path[] = "/tmp/rcclx_tune_XXXXXX";
    const int fd = mkstemp(path);
    bool failed = false;

    (void)rank, (void)n, (void)arg;
    if (fd < 0 || write(fd, rows, strlen(rows)) != (ssize_t)strlen(rows))
        return 1;
    close(fd);
    setenv("RCCLX_TUNE_FILE", path, 1);
    rcclx_option_reload();
    const rcclx_algo *a = choose(RCCLX_ALL_REDUCE, 4, 100000, MAPPED, "", &failed);
    unlink(path);
    CHECK(a == &rcclx_algo_tree, "%s in place of the measured tree", a->name);
    a = choose(RCCLX_ALL_REDUCE, 4, 100000, MAPPED, "ring", &failed);
    CHECK(a == &rcclx_algo_ring && !failed, "a forced list wins over the table: %s", a->name);
    a = choose(RCCLX_ALL_REDUCE, 5, 100000, MAPPED, "", &failed);
    CHECK(a != &rcclx_algo_tree, "no row for 5 ranks");
    a = choose(RCCLX_GATHER, 4, 100000, MAPPED, "", &failed);
    CHECK(a != &rcclx_algo_slot, "a row for what cannot run is passed over");
    return 0;
}

TEST(measured_points_replace_the_model)
{
    CHECK(run_ranks_as_processes(1, measured, NULL) == 0, "the process failed");
}

/* --- the table ---------------------------------------------------------------- */

TEST(algorithms_are_found_by_both_names)
{
    CHECK(rcclx_algo_find("ring") == &rcclx_algo_ring, "ring");
    CHECK(rcclx_algo_find("RING") == &rcclx_algo_ring, "any case");
    CHECK(rcclx_algo_find("Tree") == &rcclx_algo_tree, "NCCL's word");
    CHECK(!rcclx_algo_find("NVLS") && !rcclx_algo_find("") && !rcclx_algo_find("rin"), "unknown words");
    for (const rcclx_algo *const *a = rcclx_algos; *a; a++)
        CHECK(rcclx_algo_find((*a)->name) == *a && (*a)->about && (*a)->kinds, "%s", (*a)->name);
}

/* --- what fits ------------------------------------------------------------------ */

TEST(facts_decide_what_fits)
{
    const rcclx_shape s = shape(RCCLX_ALL_REDUCE, 4), g = shape(RCCLX_ALL_GATHER, 4), t = shape(RCCLX_ALL_TO_ALL, 4);

    CHECK(rcclx_algo_fits(&rcclx_algo_slot, &s, 0, true) && !rcclx_algo_fits(&rcclx_algo_slot, &s, 0, false), "small");
    CHECK(!rcclx_algo_fits(&rcclx_algo_direct, &s, RCCLX_FACT_IN_MAPPED, false), "OUT is written, and not mapped");
    CHECK(rcclx_algo_fits(&rcclx_algo_direct, &s, RCCLX_FACT_CMA, false), "by the kernel");
    CHECK(rcclx_algo_fits(&rcclx_algo_direct, &g, RCCLX_FACT_IN_MAPPED, false), "all-gather only reads");
    CHECK(!rcclx_algo_fits(&rcclx_algo_direct, &t, RCCLX_FACT_CMA, false), "all-to-all in place");
    CHECK(rcclx_algo_fits(&rcclx_algo_direct, &t, RCCLX_FACT_CMA | RCCLX_FACT_APART, false), "all-to-all apart");
    CHECK(!rcclx_algo_fits(&rcclx_algo_ring, &s, RCCLX_FACT_ONE_ROUND, false), "rounds more than once");
    CHECK(rcclx_algo_fits(&rcclx_algo_ring, &g, RCCLX_FACT_ONE_ROUND, false), "rounds nothing");
    CHECK(!rcclx_algo_fits(&rcclx_algo_ring, &t, MAPPED, true), "no ring all-to-all");
    const rcclx_shape rs6 = shape(RCCLX_REDUCE_SCATTER, 6), rs8 = shape(RCCLX_REDUCE_SCATTER, 8);
    CHECK(!rcclx_algo_fits(&rcclx_algo_doubling, &rs6, 0, false), "halves of 6");
    CHECK(rcclx_algo_fits(&rcclx_algo_doubling, &rs8, 0, false), "halves of 8");
}

/* What fits() lets by must be what the plan touches: if a plan reads (writes) a peer's
 * user buffer, it must not fit without that fact. */
TEST(a_plan_touches_only_what_fits_asks_for)
{
    for (const rcclx_algo *const *a = rcclx_algos; *a; a++)
        for (int k = 0; k < RCCLX_COLL_COUNT; k++) {
            bool reads = false, writes = false;
            rcclx_shape s = { (rcclx_kind)k, 4, 0, 1, 0, (*a == &rcclx_algo_levels || *a == &rcclx_algo_leaders) ? two_machines : NULL };
            if (!((*a)->kinds >> k & 1))
                continue;
            for (s.rank = 0; s.rank < 4; s.rank++) {
                rcclx_plan p;
                (*a)->build(&p, &s);
                for (uint32_t i = 0; i < p.nsteps; i++)
                    for (int o = 0; o < p.steps[i].nsrc + p.steps[i].ndst; o++) {
                        const rcclx_ref *ref = &p.refs[p.steps[i].first + (uint32_t)o];
                        const bool peer = ref->buf != RCCLX_SCRATCH && ref->rank != s.rank;
                        reads |= peer && o < p.steps[i].nsrc;
                        writes |= peer && o >= p.steps[i].nsrc;
                    }
                rcclx_plan_fini(&p);
            }
            const unsigned apart = RCCLX_FACT_APART | RCCLX_FACT_GPU;
            CHECK(rcclx_algo_fits(*a, &s, apart | RCCLX_FACT_OUT_MAPPED, true) == !reads, "%s %s: reads %d", (*a)->name,
                  rcclx_kind_word((rcclx_kind)k), reads);
            CHECK(rcclx_algo_fits(*a, &s, apart | RCCLX_FACT_IN_MAPPED, true) == !writes, "%s %s: writes %d", (*a)->name,
                  rcclx_kind_word((rcclx_kind)k), writes);
        }
}

TEST(the_host_leaves_what_is_for_gpus)
{
    static const char *const lists[] = { "", "ll", "LL128,ring", "ll_two,ll128_two,direct_push", "^ring", "^ll", "allreduce:ll" };
    static const unsigned facts[] = { 0, RCCLX_FACT_CMA, MAPPED };
    bool failed;

    for (size_t l = 0; l < sizeof(lists) / sizeof(lists[0]); l++) {
        char bad[32];
        CHECK(!rcclx_algo_list_check(lists[l], bad, sizeof(bad)), "\"%s\": %s", lists[l], bad);
        for (int k = 0; k < RCCLX_COLL_COUNT; k++)
            for (int n = 1; n <= 8; n++)
                for (size_t nbytes = 8; nbytes <= 16u << 20; nbytes *= 32) {
                    const rcclx_algo *a = choose((rcclx_kind)k, n, nbytes, facts[n % 3], lists[l], &failed);
                    CHECK(!(a->flags & (RCCLX_DEVICE_ONLY | RCCLX_PUSHES)), "\"%s\" gives %s", lists[l], a->name);
                }
    }
    CHECK(choose(RCCLX_ALL_REDUCE, 4, 64, MAPPED, "ll", &failed) && failed, "a list of what the host cannot run is set aside");
    for (const rcclx_algo *const *a = rcclx_algos; *a; a++) {
        const unsigned flags = (*a)->flags;
        CHECK(!(flags & RCCLX_PUSHES) || flags & RCCLX_DEVICE_ONLY, "%s pushes on the host", (*a)->name);
        for (int k = 0; k < RCCLX_COLL_COUNT; k++)
            if (flags & RCCLX_DEVICE_ONLY && (*a)->kinds >> k & 1)
                CHECK(choose((rcclx_kind)k, 4, 64, MAPPED | RCCLX_FACT_GPU, (*a)->name, &failed) == *a && !failed,
                      "%s %s is not to be had for GPUs", (*a)->name, rcclx_kind_word((rcclx_kind)k));
    }
}

TEST(staged_fits_everything)
{
    for (int k = 0; k < RCCLX_COLL_COUNT; k++)
        for (int n = 1; n <= 64; n++) {
            const rcclx_shape s = shape((rcclx_kind)k, n);
            CHECK(rcclx_algo_fits(&rcclx_algo_staged, &s, RCCLX_FACT_ONE_ROUND, false), "%d of %d", k, n);
        }
}

/* --- forced lists ------------------------------------------------------------------ */

TEST(forced_lists)
{
    static const struct {
        const char *list;
        rcclx_kind  kind;
        const rcclx_algo *among[3]; /* NULL: any */
        bool failed;
    } samples[] = {
        { "ring", RCCLX_ALL_REDUCE, { &rcclx_algo_ring }, false },
        { "Ring", RCCLX_BROADCAST, { &rcclx_algo_ring }, false },
        { "ring,tree", RCCLX_ALL_REDUCE, { &rcclx_algo_ring, &rcclx_algo_tree }, false },
        { "^slot,direct,staged,doubling,ring", RCCLX_ALL_REDUCE, { &rcclx_algo_tree }, false },
        { "allreduce:ring;broadcast:tree", RCCLX_ALL_REDUCE, { &rcclx_algo_ring }, false },
        { "allreduce:ring;broadcast:tree", RCCLX_BROADCAST, { &rcclx_algo_tree }, false },
        { "allreduce:ring;broadcast:tree", RCCLX_ALL_GATHER, { NULL }, false },
        { "ring;AllReduce:tree", RCCLX_ALL_REDUCE, { &rcclx_algo_tree }, false },
        { "ring;AllReduce:tree", RCCLX_REDUCE_SCATTER, { &rcclx_algo_ring }, false },
        { " reduce_scatter : doubling ", RCCLX_REDUCE_SCATTER, { &rcclx_algo_doubling }, false },
        { "ring", RCCLX_GATHER, { NULL }, true },
        { "NVLS", RCCLX_ALL_REDUCE, { NULL }, true },
        { "NVLS,Tree", RCCLX_ALL_REDUCE, { &rcclx_algo_tree }, false },
        { "^NVLS", RCCLX_ALL_REDUCE, { NULL }, false },
        { "", RCCLX_ALL_REDUCE, { NULL }, false },
        { "slot", RCCLX_ALL_REDUCE, { NULL }, true }, /* too large for it */
    };
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        bool failed = !samples[i].failed, among = !samples[i].among[0];
        char bad[32];
        const rcclx_algo *a = choose(samples[i].kind, 4, 100000, MAPPED, samples[i].list, &failed);
        for (int j = 0; j < 3; j++)
            among |= samples[i].among[j] == a;
        CHECK(among, "\"%s\" gives %s", samples[i].list, a->name);
        CHECK(failed == samples[i].failed, "\"%s\": failed %d", samples[i].list, failed);
        CHECK(!rcclx_algo_list_check(samples[i].list, bad, sizeof(bad)), "\"%s\": %s", samples[i].list, bad);
    }
}

TEST(unknown_words_are_named)
{
    static const struct { const char *list, *bad; } samples[] = {
        { "rign", "rign" }, { "ring,,tree", "" }, { "ring, bush ,tree", "bush" }, { "^ring,^tree", "^tree" },
        { "allreduce:ring;broadcats:tree", "broadcats" }, { "send:ring", "send" }, { "allreduce:", "" },
        { "a_word_that_is_much_longer_than_any_algorithm", "a_word_that_is_much_longer_than" }, { ":ring", "" },
    };
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        char bad[32] = "untouched";
        CHECK(rcclx_algo_list_check(samples[i].list, bad, sizeof(bad)) == -1, "\"%s\" passes", samples[i].list);
        CHECK(!strcmp(bad, samples[i].bad), "\"%s\": \"%s\"", samples[i].list, bad);
    }
}

/* --- price ---------------------------------------------------------------------------- */

TEST(prices_make_sense)
{
    const rcclx_machine m = machine(4, 4), narrow = machine(4, 1);

    for (const rcclx_algo *const *a = rcclx_algos; *a; a++)
        for (int k = 0; k < RCCLX_COLL_COUNT; k++) {
            rcclx_shape s = { (rcclx_kind)k, 4, 0, 1, 0, (*a == &rcclx_algo_levels || *a == &rcclx_algo_leaders) ? two_machines : NULL };
            double before = 0;
            if (!((*a)->kinds >> k & 1))
                continue;
            for (size_t nbytes = 256; nbytes <= 256u << 20; nbytes *= 4) {
                const double ns = rcclx_plan_price(*a, &s, nbytes, MAPPED, &m);
                CHECK(ns > m.call_ns && isfinite(ns), "%s %s %zu: %g", (*a)->name, rcclx_kind_word(s.kind), nbytes, ns);
                CHECK(ns > before, "%s %s: %zu bytes cost %g, a quarter of them %g", (*a)->name, rcclx_kind_word(s.kind),
                      nbytes, ns, before);
                CHECK(ns > (double)nbytes / 4 / (2 * m.local_rate), "%s %s: %zu bytes in %g ns", (*a)->name,
                      rcclx_kind_word(s.kind), nbytes, ns);
                CHECK(rcclx_plan_price(*a, &s, nbytes, MAPPED, &narrow) > ns, "%s %s %zu: one core is no slower",
                      (*a)->name, rcclx_kind_word(s.kind), nbytes);
                before = ns;
            }
        }
}

TEST(many_pieces_cost_what_they_move)
{
    const rcclx_machine m = machine(4, 4);
    const rcclx_shape s = shape(RCCLX_ALL_REDUCE, 4);
    const double much = rcclx_plan_price(&rcclx_algo_ring, &s, 64 << 20, 0, &m);
    const double twice = rcclx_plan_price(&rcclx_algo_ring, &s, 128 << 20, 0, &m);

    CHECK(twice / much > 1.9 && twice / much < 2.1, "%g, %g", much, twice);
}

TEST(memory_that_is_not_mapped_costs_more)
{
    rcclx_machine m = machine(4, 4);
    const rcclx_shape s = shape(RCCLX_ALL_REDUCE, 4);
    const double mapped = rcclx_plan_price(&rcclx_algo_direct, &s, 65536, MAPPED, &m);

    CHECK(rcclx_plan_price(&rcclx_algo_direct, &s, 65536, RCCLX_FACT_CMA, &m) > mapped, "calls are free");
    m.cma_rate = 0;
    CHECK(isinf(rcclx_plan_price(&rcclx_algo_direct, &s, 65536, RCCLX_FACT_CMA, &m)), "what cannot be done has a price");
}

static double price_ms(int n, int *slow)
{
    const rcclx_machine m = machine(n, n);
    double worst = 0;

    for (const rcclx_algo *const *a = rcclx_algos; *a; a++)
        for (int k = 0; k < RCCLX_COLL_COUNT; k++) {
            const rcclx_shape s = shape((rcclx_kind)k, n);
            if (!((*a)->kinds >> k & 1) || ((*a)->can && !(*a)->can(&s)))
                continue;
            double best = 1e9;
            for (int i = 0; i < 5; i++) { /* others run on this machine too */
                const double t = check_now();
                rcclx_plan_price(*a, &s, 64 << 20, MAPPED, &m);
                best = fmin(best, (check_now() - t) * 1e3);
            }
            if (best > worst) {
                worst = best;
                *slow = k;
            }
        }
    return worst;
}

TEST(pricing_takes_little_time)
{
    int slow = 0;
    double ms = price_ms(8, &slow);
    CHECK(ms < 1 * check_scale(), "8 ranks: %s takes %.3f ms", rcclx_kind_word((rcclx_kind)slow), ms);
    ms = price_ms(64, &slow);
    CHECK(ms < 20 * check_scale(), "64 ranks: %s takes %.3f ms", rcclx_kind_word((rcclx_kind)slow), ms);
}

/* --- choice ------------------------------------------------------------------------------- */

TEST(the_cheapest_is_chosen)
{
    for (int n = 1; n <= 9; n += 2)
        for (int k = 0; k < RCCLX_COLL_COUNT; k++)
            for (size_t nbytes = 1; nbytes < 64u << 20; nbytes *= 37) {
                const rcclx_shape s = { (rcclx_kind)k, n, 0, n / 2, 0, NULL };
                const rcclx_machine m = machine(n, 4);
                bool failed = true;
                const bool small = nbytes <= 4096;
                const rcclx_algo *best = rcclx_algo_choose(&s, nbytes, MAPPED, small, false, "", &m, &failed);
                REQUIRE(best && rcclx_algo_fits(best, &s, MAPPED, small) && !failed, "%d of %d", k, n);
                for (const rcclx_algo *const *a = rcclx_algos; *a; a++)
                    CHECK(!rcclx_algo_fits(*a, &s, MAPPED, small) ||
                          rcclx_plan_price(*a, &s, nbytes, MAPPED, &m) >= rcclx_plan_price(best, &s, nbytes, MAPPED, &m),
                          "%s beats %s", (*a)->name, best->name);
            }
}

TEST(order_is_kept_when_asked_for)
{
    const rcclx_machine m = machine(8, 8);

    for (int k = 0; k < RCCLX_COLL_COUNT; k++)
        for (size_t nbytes = 8; nbytes <= 16u << 20; nbytes *= 8) {
            const rcclx_shape s = shape((rcclx_kind)k, 8);
            bool failed;
            const rcclx_algo *a = rcclx_algo_choose(&s, nbytes, 0, nbytes <= 4096, true, "", &m, &failed);
            CHECK(a->flags & RCCLX_HAS_ORDER || !rcclx_kind_reduces(s.kind), "%s for %zu", a->name, nbytes);
            a = rcclx_algo_choose(&s, nbytes, 0, nbytes <= 4096, true, "ring,tree,doubling", &m, &failed);
            CHECK(failed || !rcclx_kind_reduces(s.kind), "a list wins over order: %s", a->name);
        }
}

/* --- measured points ------------------------------------------------------------------------ */

static rcclx_status parse(rcclx_tune *t, const char *text, int *line)
{
    return rcclx_tune_parse(t, text, strlen(text), line);
}

TEST(tuning_tables_are_read)
{
    rcclx_tune t;
    int line;
    const char *text = "# kind nranks from to algo\n\nall_reduce 2 0 4K slot\nAllReduce 2 4097 - Ring # late\n"
                       "broadcast * 1M 2G tree";

    REQUIRE(parse(&t, text, &line) == RCCLX_OK, "line %d", line);
    CHECK(t.nrows == 3 && t.hash, "%zu rows", t.nrows);
    const rcclx_shape two = shape(RCCLX_ALL_REDUCE, 2), three = shape(RCCLX_ALL_REDUCE, 3), b = shape(RCCLX_BROADCAST, 7);
    CHECK(rcclx_tune_find(&t, &two, 4096) == &rcclx_algo_slot, "the bound belongs to the row");
    CHECK(rcclx_tune_find(&t, &two, 4097) == &rcclx_algo_ring, "the next row");
    CHECK(rcclx_tune_find(&t, &two, SIZE_MAX) == &rcclx_algo_ring, "no upper bound");
    CHECK(!rcclx_tune_find(&t, &three, 8), "another number of ranks");
    CHECK(rcclx_tune_find(&t, &b, 1 << 20) == &rcclx_algo_tree && !rcclx_tune_find(&t, &b, 1000), "any number of ranks");
    rcclx_tune_fini(&t);
    REQUIRE(parse(&t, "", &line) == RCCLX_OK, "empty");
    CHECK(!t.nrows && !t.hash, "nothing");
}

TEST(bad_tables_are_refused_with_the_line)
{
    static const struct { const char *text; int line; } samples[] = {
        { "all_reduce 2 0 4K\n", 1 }, { "\nall_reduce 2 0 4K slot more\n", 2 }, { "all_reduce 0 0 - slot", 1 },
        { "all_reduce 2 9 8 slot", 1 }, { "all_reduce 2 -1 8 slot", 1 }, { "all_reduce 2 0 8 bush", 1 },
        { "send 2 0 8 ring", 1 }, { "all_reduce 2 0 8KK slot", 1 }, { "all_reduce 2 0 99999999999999999999 slot", 1 },
        { "# x\n\n\nall_reduce x 0 8 slot", 4 }, { "all_reduce 2 0 0x8 slot", 1 },
        { "all_reduce 2 0 8 a_word_that_is_much_longer_than_any_algorithm", 1 },
    };
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        rcclx_tune t;
        int line = 0;
        CHECK(parse(&t, samples[i].text, &line) == RCCLX_ARGUMENT, "\"%s\" passes", samples[i].text);
        CHECK(line == samples[i].line && !t.rows, "\"%s\": line %d", samples[i].text, line);
    }
}

TEST(equal_tables_have_equal_hashes)
{
    rcclx_tune a, b, c;
    int line;

    parse(&a, "all_reduce 2 0 4K slot\n", &line);
    parse(&b, "# the same\n  AllReduce  2 0 4096 SLOT", &line);
    parse(&c, "all_reduce 2 0 4K staged\n", &line);
    CHECK(a.hash == b.hash && a.hash != c.hash && a.hash, "%llx %llx %llx", (unsigned long long)a.hash,
          (unsigned long long)b.hash, (unsigned long long)c.hash);
    rcclx_tune_fini(&a);
    rcclx_tune_fini(&b);
    rcclx_tune_fini(&c);
}

/* --- the telling -------------------------------------------------------------------------------- */

static char text[1 << 16];

static const char *explain(const rcclx_shape *s, size_t nbytes, unsigned facts, const char *forced, bool json)
{
    const rcclx_machine m = machine(s->nranks, 4);
    FILE *f = fmemopen(text, sizeof(text), "w");

    rcclx_algo_explain(f, s, nbytes, facts, false, false, forced, &m, json);
    fclose(f);
    return text;
}

static bool told(const char *word)
{
    return strstr(text, word) != NULL;
}

TEST(the_decision_is_explained)
{
    const rcclx_shape s = shape(RCCLX_ALL_REDUCE, 4);

    explain(&s, 100000, 0, "", false);
    for (const rcclx_algo *const *a = rcclx_algos; *a; a++)
        CHECK(told((*a)->name), "%s is not told of:\n%s", (*a)->name, text);
    CHECK(told("(cheapest)") && told("cannot be read in place") && told("does not fit a slot") && told("for GPUs"), "\n%s", text);
    explain(&s, 100000, 0, "ring", false);
    CHECK(told("ring (forced)") && told("left out by the forced list"), "\n%s", text);
    explain(&s, 100000, 0, "slot", false);
    CHECK(told("set aside"), "\n%s", text);
    explain(&s, 100000, 0, "ring", true);
    CHECK(told("\"chosen\": \"ring\"") && told("\"reason\": \"forced\"") && told("\"price_ns\": null"), "\n%s", text);
}
