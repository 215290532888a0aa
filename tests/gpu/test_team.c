/* Communicators on GPUs, as far as the host goes: the window's budget, plans as kernels
 * read them, the choice of plans. */
#include "check.h"

#include "exec/gpu_team.h"
#include "base/log.h"
#include "base/mem.h"
#include "plan/ranks.h"

TIME_LIMIT(300)

static uint64_t seed = 12345;

static uint64_t dice(uint64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

/* --- layout ------------------------------------------------------------------------ */

TEST(regions_of_a_window_lie_apart_and_within_the_budget)
{
    const gp_layout at = gp_layout_make(16);
    const struct { const char *name; uint64_t begin, nbytes; } r[] = {
        { "headers", at.headers, GP_RING * GP_RANKS * 64 }, { "counters", at.counters, GP_LANES * 128 },
        { "pairs", at.pairs, at.pair_bytes },               { "ll", at.ll, 2ull * at.ll_bytes },
        { "ll128", at.ll128, 2ull * at.ll128_bytes },       { "stage", at.stage, (uint64_t)GP_LANES * at.stage_bytes },
    };

    for (size_t i = 0; i < sizeof(r) / sizeof(r[0]); i++) {
        CHECK(r[i].begin % 4096 == 0, "%s begins at %llu", r[i].name, (unsigned long long)r[i].begin);
        CHECK(r[i].begin + r[i].nbytes <= at.total, "%s ends beyond the window", r[i].name);
        for (size_t k = 0; k < i; k++)
            CHECK(r[k].begin + r[k].nbytes <= r[i].begin || r[i].begin + r[i].nbytes <= r[k].begin, "%s and %s overlap", r[i].name,
                  r[k].name);
    }
    CHECK(at.total <= 60u << 20, "%u bytes", at.total);
}

TEST(a_new_window_looks_as_if_the_turn_before_had_been_finished)
{
    static const uint32_t starts[] = { 0, 1, 0x7fffffff, 0xfffffffe, 0xffffffff };

    for (size_t s = 0; s < sizeof(starts) / sizeof(starts[0]); s++) {
        const gp_layout at = gp_layout_make(2);
        uint32_t *head = rcclx_mem_alloc(rcclx_layout_head(&at));
        rcclx_layout_fill(&at, starts[s], head);
        for (int i = 0; i < GP_RING * GP_RANKS * 4; i++)
            CHECK(head[at.headers / 4 + 4 * i + 1] == GP_FLAG(starts[s]) && head[at.headers / 4 + 4 * i + 3] == GP_FLAG(starts[s]) &&
                  head[at.headers / 4 + 4 * i + 1] != GP_FLAG(starts[s] + 1), "unit %d", i);
        for (int i = 0; i < GP_LANES * GP_RANKS; i++) {
            const uint64_t counter = ((const uint64_t *)(const void *)head)[at.counters / 8 + (size_t)i];
            CHECK((int64_t)(counter - GP_MARK(starts[s], 0, 0)) >= 0 && (int64_t)(counter - GP_MARK(starts[s] + 1, 0, 1)) < 0,
                  "counter %d is %llx", i, (unsigned long long)counter);
        }
        rcclx_mem_free(head);
    }
}

/* --- lowering ------------------------------------------------------------------------ */

static bool same_step(const gp_step *a, const rcclx_step *b)
{
    return a->op == b->op && a->proto == b->proto && a->final == b->final && a->lag == b->lag && a->phase == b->phase &&
           (a->peer == GP_ALL ? RCCLX_ALL : a->peer) == b->peer && a->nsrc == b->nsrc && a->ndst == b->ndst && a->nblk == b->nblk &&
           a->first == b->first;
}

/* Who fills a slot of this plan's rank. */
static int pusher(const rcclx_plan *p, int slot)
{
    rcclx_plan plans[GP_RANKS];
    const rcclx_algo *a = rcclx_algo_find(p->algo);
    uint32_t step;

    for (int r = 0; r < p->shape.nranks; r++) {
        const rcclx_shape s = { p->shape.kind, p->shape.nranks, r, p->shape.root, 0, NULL };
        a->build(&plans[r], &s);
    }
    const int found = rcclx_ranks_pusher(plans, p->shape.rank, slot, &step);
    for (int r = 0; r < p->shape.nranks; r++)
        rcclx_plan_fini(&plans[r]);
    return found;
}

static void compare(const rcclx_ready *r, int k, const rcclx_plan *p)
{
    const gp_plan *lowered = &((const gp_work *)(const void *)r->work)->plan[k];
    const gp_step *steps = (const gp_step *)(const void *)(r->work + lowered->steps);
    const gp_ref *refs = (const gp_ref *)(const void *)(r->work + lowered->refs);
    bool same = lowered->nsteps == p->nsteps && lowered->pieced == p->pieced && lowered->parts == p->parts &&
                lowered->nslots == (p->nslots ? p->nslots : 1);

    for (uint32_t i = 0; same && i < p->nsteps; i++)
        same = same_step(&steps[i], &p->steps[i]);
    for (uint32_t i = 0; same && i < p->nrefs; i++) {
        const bool slot = p->pushes && refs[i].buf == GP_SCRATCH && p->refs[i].rank == p->shape.rank;
        same = refs[i].buf == p->refs[i].buf && !refs[i].raw == !p->refs[i].raw && refs[i].block == p->refs[i].block &&
               (slot ? refs[i].rank == pusher(p, refs[i].block) : refs[i].rank == p->refs[i].rank);
    }
    CHECK(same, "%s of %d ranks, rank %d, root %d, %s: not the plan", rcclx_kind_name(p->shape.kind), p->shape.nranks, p->shape.rank,
          p->shape.root, p->algo);
    CHECK(lowered->refs + p->nrefs * sizeof(gp_ref) <= r->nbytes && r->nbytes % 8 == 0, "%u bytes", r->nbytes);
}

static bool touches(const rcclx_algo *a, const rcclx_shape *s, rcclx_buf buf)
{
    bool found = false;

    for (int peer = 0; peer < s->nranks; peer++) {
        const rcclx_shape theirs = { s->kind, s->nranks, peer, s->root, 0, NULL };
        rcclx_plan p;
        a->build(&p, &theirs);
        for (uint32_t i = 0; peer != s->rank && i < p.nrefs; i++)
            found |= p.refs[i].buf == buf && p.refs[i].rank == s->rank;
        rcclx_plan_fini(&p);
    }
    return found;
}

static void lower_one(const rcclx_algo *a, const rcclx_algo *behind, const rcclx_shape *s)
{
    rcclx_ready *r;

    const rcclx_status made = rcclx_ready_make(&r, s, a, behind);
    if (made == RCCLX_UNSUPPORTED && a->flags & RCCLX_PUSHES && s->nranks > 8)
        return; /* too many operands for the arguments of these kernels */
    if (!CHECK(made == RCCLX_OK, "%s, %s of %d ranks: %s", a->name, rcclx_kind_name(s->kind), s->nranks,
               rcclx_last_error()))
        return;
    CHECK(r->nplans == (behind ? 2 : 1), "%d plans", r->nplans);
    for (int k = 0; k < r->nplans; k++) {
        rcclx_plan p;
        (k ? behind : a)->build(&p, s);
        compare(r, k, &p);
        rcclx_plan_fini(&p);
    }
    CHECK(r->reads == touches(a, s, RCCLX_IN) && r->writes == touches(a, s, RCCLX_OUT), "%s: who is read or written is wrong", a->name);
    rcclx_mem_free(r);
}

TEST(lowered_plans_say_what_the_plans_say)
{
    const rcclx_algo *staged = rcclx_algo_find("staged"), *direct = rcclx_algo_find("direct");
    static const int sizes[] = { 1, 2, 3, 5, 8, 16 };

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int kind = 0; kind < RCCLX_COLL_COUNT; kind++) {
            if (kind == RCCLX_ALL_TO_ALLV)
                continue;
            const int n = sizes[i];
            const rcclx_shape s = { (rcclx_kind)kind, n, (int)dice((uint64_t)n), (int)dice((uint64_t)n), 0, NULL };
            lower_one(direct, staged, &s);
            lower_one(staged, NULL, &s);
            lower_one(rcclx_algo_find("ll"), NULL, &s);
            if (kind != RCCLX_ALL_REDUCE)
                continue;
            lower_one(rcclx_algo_find("ll128_two"), NULL, &s);
            lower_one(rcclx_algo_find("relay"), rcclx_algo_find("relay_staged"), &s);
        }
}

/* Where block b begins, as kernels reckon it. */
static uint64_t begin_of(const gp_plan *p, uint64_t b)
{
    const uint64_t k = b % p->parts, at = 64 * (k * p->units + (k < p->rest ? k : p->rest));
    return b / p->parts * p->whole_bytes + (at < p->whole_bytes ? at : p->whole_bytes);
}

TEST(blocks_of_kernels_are_blocks_of_plans)
{
    static const size_t widths[] = { 1, 2, 4, 8 };
    const rcclx_algo *staged = rcclx_algo_find("staged");
    const gp_layout at = gp_layout_make(16);

    for (int round = 0; round < 60; round++) {
        const int n = 1 + (int)dice(16);
        const size_t size = widths[dice(4)];
        const rcclx_shape s = { dice(2) ? RCCLX_ALL_REDUCE : RCCLX_BROADCAST, n, (int)dice((uint64_t)n), 0, 0, NULL };
        rcclx_ready *r;
        gp_plan p;
        REQUIRE(rcclx_ready_make(&r, &s, staged, NULL) == RCCLX_OK, "%s", rcclx_last_error());
        for (int again = 0; again < 200; again++) {
            const size_t c = dice(1ull << dice(31)), nblocks = r->plan[0].shape.nblocks;
            p = ((const gp_work *)(const void *)r->work)->plan[0];
            REQUIRE(rcclx_ready_number(r, 0, (rcclx_gpu_lanes){ 1 + (int)dice(32), at.stage_bytes }, c * size, size, &p), "too many pieces");
            size_t longest = 0;
            for (size_t b = 0; b < nblocks; b++) {
                size_t begin, length;
                rcclx_split(c, size, (int)nblocks, (int)b, &begin, &length);
                longest = length > longest ? length : longest;
                REQUIRE(begin_of(&p, b) == begin * size && begin_of(&p, b + 1) == (begin + length) * size,
                        "%zu of %zu bytes in %zu blocks: block %zu", c, size, nblocks, b);
            }
            REQUIRE(p.block_bytes == longest * size && p.slot_bytes % 128 == 0 &&
                    (uint64_t)p.slot_bytes * p.npieces >= longest * size && (uint64_t)p.slot_bytes * p.nslots <= at.stage_bytes,
                    "%zu of %zu bytes: %u pieces of %u bytes", c, size, p.npieces, p.slot_bytes);
        }
        rcclx_mem_free(r);
    }
}

/* --- the choice ------------------------------------------------------------------------ */

static void start_picker(rcclx_gpu_picker *p, int nranks, int rank, const char *forced)
{
    *p = (rcclx_gpu_picker){
        .nranks = nranks, .rank = rank, .threads = 512, .wave = 32, .lanes_most = 64, .lanes_least = 1, .protos = 7, .safe = 7, .line = 128,
        .reach = true, .forced = forced, .at = gp_layout_make(nranks),
    };
    rcclx_gpu_picker_start(p);
}

TEST(all_ranks_choose_alike_and_what_fits)
{
    static const char *const lists[] = { "", "direct", "staged", "ring", "^direct", "all_reduce:tree", "relay" };
    enum { ROUNDS = 60 };

    for (size_t l = 0; l < sizeof(lists) / sizeof(lists[0]); l++)
        for (int n = 2; n <= 16; n += n < 4 ? 1 : 4) {
            static rcclx_gpu_picker p[16];
            for (int r = 0; r < n; r++)
                start_picker(&p[r], n, r, lists[l]);
            for (int round = 0; round < ROUNDS; round++) {
                const rcclx_kind kind = (rcclx_kind)dice(RCCLX_COLL_COUNT);
                const size_t nbytes = dice(1ull << dice(31));
                const int root = (int)dice((uint64_t)n);
                const rcclx_ready *first = NULL;
                int lanes = 0;
                if (kind == RCCLX_ALL_TO_ALLV)
                    continue;
                for (int r = 0; r < n; r++) {
                    const rcclx_ready *ready;
                    int nlanes;
                    REQUIRE(rcclx_gpu_pick(&p[r], &(rcclx_gpu_wish){ .kind = kind, .root = root, .nbytes = nbytes }, &ready, &nlanes) == RCCLX_OK, "%s", rcclx_last_error());
                    first = r ? first : ready;
                    lanes = r ? lanes : nlanes;
                    CHECK(ready->plan[0].algo == first->plan[0].algo && nlanes == lanes, "%s of %zu bytes, %d ranks, '%s': %s, %d lanes and "
                          "%s, %d lanes", rcclx_kind_name(kind), nbytes, n, lists[l], first->plan[0].algo->name, lanes,
                          ready->plan[0].algo->name, nlanes);
                    CHECK(nlanes >= 1 && nlanes <= 64, "%d lanes", nlanes);
                    const size_t slot = rcclx_ready_slot(ready, 0, &p[r].at, 128);
                    if (ready->plan[0].shape.proto != RCCLX_PROTO_SIMPLE)
                        CHECK(rcclx_ready_longest(ready, 0, nbytes) <= slot, "%zu bytes in slots of %zu", nbytes, slot);
                }
            }
            for (int r = 0; r < n; r++)
                rcclx_gpu_picker_fini(&p[r]);
        }
}

static const char *choice(int n, const char *forced, unsigned protos, rcclx_kind kind, size_t nbytes)
{
    static rcclx_gpu_picker p;
    const rcclx_ready *r;
    int nlanes;

    start_picker(&p, n, 0, forced);
    p = (rcclx_gpu_picker){ .nranks = n, .threads = 512, .wave = 32, .lanes_most = 64, .lanes_least = 1, .protos = protos, .safe = 7,
                            .line = 128, .forced = forced, .at = p.at };
    rcclx_gpu_picker_start(&p);
    const char *name = rcclx_gpu_pick(&p, &(rcclx_gpu_wish){ .kind = kind, .nbytes = nbytes }, &r, &nlanes) == RCCLX_OK ? r->plan[0].algo->name : "none";
    rcclx_gpu_picker_fini(&p);
    return name;
}

TEST(small_goes_by_flags_and_large_in_place)
{
    const struct { int n; const char *forced; unsigned protos; size_t nbytes; const char *want; } rows[] = {
        { 2, "", 7, 8, "ll" },           { 2, "", 7, 32768, "ll" },          { 2, "", 7, 32769, "ll128" },
        { 2, "", 7, 1 << 20, "ll128" },  { 2, "", 7, (1 << 20) + 1, "direct" }, { 2, "", 1, 8, "direct" },
        { 2, "", 5, 8, "ll128" },        { 8, "", 7, 100000, "ll128_two" },  { 8, "", 7, 1 << 20, "direct" },
        { 2, "staged", 7, 8, "staged" }, { 8, "ring", 7, 8, "ring" },        { 2, "ll", 7, 1 << 20, "ll" },
        { 2, "ll", 7, 1 << 26, "relay" },  { 8, "", 7, 16 << 20, "direct" },  { 8, "", 7, (16 << 20) + 1, "relay" },
        { 2, "relay", 7, 8, "relay" },   { 2, "direct", 7, 1 << 26, "direct" }, { 16, "^relay", 7, 1 << 26, "direct" },
        { 2, "^relay,direct", 7, 1 << 26, "relay_staged" }, { 2, "staged", 7, 1 << 26, "staged" },
        { 1, "", 1, 1 << 26, "direct" },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *got = choice(rows[i].n, rows[i].forced, rows[i].protos, RCCLX_ALL_REDUCE, rows[i].nbytes);
        CHECK(!strcmp(got, rows[i].want), "%zu bytes, %d ranks, '%s', protocols %u: %s, not %s", rows[i].nbytes, rows[i].n,
              rows[i].forced, rows[i].protos, got, rows[i].want);
    }
}

TEST(who_has_the_data_writes_them)
{
    const struct { rcclx_kind kind; int n; const char *want; } rows[] = {
        { RCCLX_ALL_GATHER, 2, "direct_push" }, { RCCLX_ALL_TO_ALL, 8, "direct_push" }, { RCCLX_GATHER, 3, "direct_push" },
        { RCCLX_SCATTER, 16, "direct_push" },   { RCCLX_BROADCAST, 2, "direct_push" },  { RCCLX_BROADCAST, 3, "direct" },
        { RCCLX_REDUCE_SCATTER, 2, "direct" },  { RCCLX_REDUCE_TO, 8, "direct" },       { RCCLX_ALL_GATHER, 1, "direct" },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *got = choice(rows[i].n, "", 1, rows[i].kind, 1 << 26);
        CHECK(!strcmp(got, rows[i].want), "%s, %d ranks: %s, not %s", rcclx_kind_name(rows[i].kind), rows[i].n, got, rows[i].want);
    }
}

/* As many pieces as lanes, or that many times as many: none has a turn more than another. */
TEST(pieces_are_dealt_evenly)
{
    const gp_layout at = gp_layout_make(16);
    const rcclx_algo *relay = rcclx_algo_find("relay"), *behind = rcclx_algo_find("relay_staged");

    for (int round = 0; round < 300; round++) {
        const rcclx_shape s = { RCCLX_ALL_REDUCE, 2 + (int)dice(15), 0, 0, 0, NULL };
        const int nlanes = 1 + (int)dice(GP_LANES);
        const size_t nbytes = 1 + dice(1ull << (20 + dice(10)));
        rcclx_ready *r;
        REQUIRE(rcclx_ready_make(&r, &s, relay, behind) == RCCLX_OK, "%s", rcclx_last_error());
        for (int k = 0; k < 2; k++) {
            gp_plan p = ((const gp_work *)(const void *)r->work)->plan[k];
            REQUIRE(rcclx_ready_number(r, k, (rcclx_gpu_lanes){ nlanes, at.stage_bytes }, nbytes, 1, &p), "too many pieces");
            const size_t most = at.stage_bytes / p.nslots & ~(size_t)127, each = p.block_bytes / (size_t)nlanes + 1;
            const size_t turns = (p.npieces + (size_t)nlanes - 1) / (size_t)nlanes;
            CHECK(p.slot_bytes <= most, "%u of %zu bytes", p.slot_bytes, most);
            CHECK((uint64_t)p.slot_bytes * turns <= each + 128 * turns + 4096, "%zu bytes, %d ranks, %d lanes: %zu turns of %u "
                  "bytes", nbytes, s.nranks, nlanes, turns, p.slot_bytes);
        }
        rcclx_mem_free(r);
    }
}
