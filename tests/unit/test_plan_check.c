/* The checker over everything there is, and over plans with a fault planted. */
#include "check.h"

#include "algo/algo.h"
#include "base/mem.h"

TIME_LIMIT(240)

static char why[400];

static uint64_t state = 0x2545f4914f6cdd1du;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static bool can(const rcclx_algo *a, const rcclx_shape *s)
{
    return a->kinds >> s->kind & 1 && (!a->can || a->can(s));
}

/* --- everything ------------------------------------------------------------ */

static bool is_pieced(const rcclx_algo *a, const rcclx_shape *s)
{
    rcclx_plan p;

    a->build(&p, s);
    const bool pieced = p.pieced;
    rcclx_plan_fini(&p);
    return pieced;
}

static void all_masks_and_pieces(const rcclx_algo *a, const rcclx_shape *s)
{
    static const int pieces[] = { 1, 2, 3, 5 };
    const uint64_t masks[] = { 0, ~0ull, draw() };
    const int npieces = is_pieced(a, s) ? 4 : 1;

    for (int m = 0; m < 3; m++)
        for (int i = 0; i < npieces; i++) {
            if (s->nranks > 24 && (m == 1 || i == 1 || i == 3))
                continue;
            CHECK(rcclx_plan_check(a, s, masks[m], pieces[i], why, sizeof(why)) == RCCLX_OK,
                  "n %d root %d pieces %d in place %llx: %s", s->nranks, s->root, pieces[i],
                  (unsigned long long)masks[m], why);
        }
}

static void all_ranks_and_roots(const rcclx_algo *a, rcclx_kind k, int most, bool coded)
{
    for (int n = 1; n <= most; n++) {
        rcclx_shape s = { .kind = k, .nranks = n, .coded = coded };
        const int step = !rcclx_kind_rooted(k) ? n : n <= 9 ? 1 : (n + 1) / 2;
        for (s.root = 0; s.root < n; s.root += step)
            if (can(a, &s))
                all_masks_and_pieces(a, &s);
    }
}

static const rcclx_algo *const on_machines[] = { &rcclx_algo_levels, &rcclx_algo_leaders };
enum { ON_MACHINES = sizeof(on_machines) / sizeof(on_machines[0]) };

static bool on_machines_alone(const rcclx_algo *a)
{
    for (int i = 0; i < ON_MACHINES; i++)
        if (on_machines[i] == a)
            return true;
    return false;
}

TEST(every_algorithm_is_proved_for_1_to_64_ranks)
{
    const int most = check_scale() > 1 ? 17 : 64; /* sanitizers: the code is the same for any n */

    for (const rcclx_algo *const *a = rcclx_algos; *a; a++)
        for (int k = 0; k < RCCLX_COLL_COUNT; k++)
            if ((*a)->kinds >> k & 1 && !on_machines_alone(*a))
                CASE("%s %s, 1 to %d ranks", (*a)->name, rcclx_kind_word((rcclx_kind)k), most)
                    all_ranks_and_roots(*a, (rcclx_kind)k, most, false);
}

TEST(low_precision_rounds_alike_on_all_ranks_and_seldom)
{
    const int most = check_scale() > 1 ? 9 : 32;

    for (const rcclx_algo *const *a = rcclx_algos; *a; a++)
        for (int k = 0; k < RCCLX_COLL_COUNT; k++)
            if ((*a)->kinds >> k & 1 && (*a)->flags & RCCLX_TAKES_CODED)
                CASE("%s %s, 1 to %d ranks", (*a)->name, rcclx_kind_word((rcclx_kind)k), most)
                    all_ranks_and_roots(*a, (rcclx_kind)k, most, true);
}

enum { SEQUENCE = 12 };

/* What the host runs, and what GPUs run: never the two on one communicator. */
static const rcclx_algo *const on_host[] = {
    &rcclx_algo_slot, &rcclx_algo_direct, &rcclx_algo_staged, &rcclx_algo_ring, &rcclx_algo_tree, &rcclx_algo_doubling,
};
static const rcclx_algo *const on_gpu[] = {
    &rcclx_algo_ll, &rcclx_algo_ll128, &rcclx_algo_ll_two, &rcclx_algo_ll128_two, &rcclx_algo_ll, &rcclx_algo_ll,
    &rcclx_algo_direct, &rcclx_algo_direct_push, &rcclx_algo_staged, &rcclx_algo_relay, &rcclx_algo_relay_staged,
};

static rcclx_status random_sequence(const rcclx_algo *const *from, size_t nfrom, int n)
{
    const rcclx_algo *algos[SEQUENCE];
    rcclx_shape shapes[SEQUENCE];
    const int pieces = 1 + (int)(draw() % 5);

    for (int i = 0; i < SEQUENCE; i++)
        do {
            algos[i] = from[draw() % nfrom];
            shapes[i] = (rcclx_shape){ (rcclx_kind)(draw() % RCCLX_COLL_COUNT), n, 0, (int)(draw() % (unsigned)n),
                                       algos[i]->flags & RCCLX_TAKES_CODED && draw() % 2, NULL };
        } while (!can(algos[i], &shapes[i]));
    return rcclx_plan_check_sequence(algos, shapes, SEQUENCE, draw(), pieces, why, sizeof(why));
}

TEST(sequences_of_different_operations)
{
    for (int round = 0; round < 400; round++) {
        const int n = 1 + (int)(draw() % (round % 20 ? 9 : 32));
        CHECK(random_sequence(on_host, sizeof(on_host) / sizeof(on_host[0]), n) == RCCLX_OK, "round %d: %s", round, why);
    }
}

TEST(sequences_on_gpus)
{
    for (int round = 0; round < 600; round++) {
        const int n = 1 + (int)(draw() % (round % 20 ? 9 : 32));
        CHECK(random_sequence(on_gpu, sizeof(on_gpu) / sizeof(on_gpu[0]), n) == RCCLX_OK, "round %d: %s", round, why);
    }
}

/* Machines of unlike numbers of ranks, in any order. */
static const uint8_t *some_machines(int n)
{
    static uint8_t node[64];
    const int nodes = n < 2 ? 1 : 2 + (int)(draw() % 3), k = nodes > n ? n : nodes;

    for (int r = 0; r < n; r++)
        node[r] = (uint8_t)(r < k ? r : (int)(draw() % (unsigned)k));
    for (int r = n - 1; r > 0; r--) {
        const int other = (int)(draw() % (unsigned)(r + 1));
        const uint8_t keep = node[r];
        node[r] = node[other];
        node[other] = keep;
    }
    return node;
}

static void on_some_machines(const rcclx_algo *a, rcclx_kind k)
{
    for (int round = 0; round < 60; round++) {
        const int n = 2 + (int)(draw() % (round % 10 ? 12 : 30));
        const rcclx_shape s = { k, n, 0, (int)(draw() % (unsigned)n), 0, some_machines(n) };
        if (can(a, &s))
            all_masks_and_pieces(a, &s);
    }
}

TEST(those_for_machines_are_proved_on_machines_of_any_sizes)
{
    for (int i = 0; i < ON_MACHINES; i++)
        for (int k = 0; k < RCCLX_COLL_COUNT; k++)
            if (on_machines[i]->kinds >> k & 1)
                CASE("%s %s", on_machines[i]->name, rcclx_kind_word((rcclx_kind)k))
                    on_some_machines(on_machines[i], (rcclx_kind)k);
}

/* Where headers go only to those that a plan makes talk, the others' waits are fewer. */
TEST(all_others_are_proved_on_machines_too)
{
    for (size_t i = 0; i < sizeof(on_host) / sizeof(on_host[0]); i++)
        for (int k = 0; k < RCCLX_COLL_COUNT; k++)
            if (on_host[i]->kinds >> k & 1)
                CASE("%s %s", on_host[i]->name, rcclx_kind_word((rcclx_kind)k))
                    on_some_machines(on_host[i], (rcclx_kind)k);
}

TEST(sequences_on_machines)
{
    const rcclx_algo *algos[SEQUENCE];
    rcclx_shape       shapes[SEQUENCE];

    for (int round = 0; round < 300; round++) {
        const int      n = 2 + (int)(draw() % 11);
        const uint8_t *node = some_machines(n);
        for (int i = 0; i < SEQUENCE; i++)
            do {
                algos[i] = draw() % 3 ? on_machines[draw() % ON_MACHINES] : on_host[draw() % (sizeof(on_host) / sizeof(on_host[0]))];
                shapes[i] = (rcclx_shape){ (rcclx_kind)(draw() % RCCLX_COLL_COUNT), n, 0, (int)(draw() % (unsigned)n), 0, node };
            } while (!can(algos[i], &shapes[i]));
        CHECK(rcclx_plan_check_sequence(algos, shapes, SEQUENCE, draw(), 1 + (int)(draw() % 5), why, sizeof(why)) == RCCLX_OK,
              "round %d: %s", round, why);
    }
}

TEST(every_row_is_in_the_sequences)
{
    for (const rcclx_algo *const *a = rcclx_algos; *a; a++) {
        bool found = false;
        for (size_t i = 0; i < sizeof(on_host) / sizeof(on_host[0]); i++)
            found |= on_host[i] == *a;
        for (size_t i = 0; i < sizeof(on_gpu) / sizeof(on_gpu[0]); i++)
            found |= on_gpu[i] == *a;
        found |= on_machines_alone(*a);
        CHECK(found, "%s", (*a)->name);
    }
}

/* --- credit ------------------------------------------------------------------- */

static void build_without_credit(rcclx_plan *p, const rcclx_shape *s)
{
    rcclx_algo_ll.build(p, s);
    p->credit = false;
}

/* Finishing these proves nothing about ranks one did not hear from. */
TEST(a_plan_that_hides_its_debt_is_reported)
{
    rcclx_algo a = rcclx_algo_ll;

    a.build = build_without_credit;
    for (int k = 0; k < RCCLX_COLL_COUNT; k++)
        for (int n = 2; n <= 5; n++)
            for (int root = 0; can(&rcclx_algo_ll, &(rcclx_shape){ (rcclx_kind)k, n, 0, root, 0, NULL }) && root < n; root++) {
                const rcclx_shape s = { (rcclx_kind)k, n, 0, root, 0, NULL };
                const rcclx_status status = rcclx_plan_check(&a, &s, 0, 1, why, sizeof(why));
                if (!rcclx_kind_rooted(s.kind)) {
                    CHECK(status == RCCLX_OK, "%s, %d ranks, owes nothing: %s", rcclx_kind_word(s.kind), n, why);
                    continue;
                }
                CHECK(status == RCCLX_INTERNAL, "%s, %d ranks, root %d: accepted", rcclx_kind_word(s.kind), n, root);
                CHECK(strstr(why, "may be filling in operation 2") || strstr(why, "may still read the slots of operation 0"),
                      "%s", why);
            }
}

/* The debt is paid in the operation after, which may be any: here an all-reduce that
 * pushes into slots of the all-reduce before the broadcast. */
TEST(debt_is_paid_by_the_next_operation)
{
    rcclx_algo silent = rcclx_algo_ll;
    const rcclx_shape sum = { RCCLX_ALL_REDUCE, 3, 0, 0, 0, NULL };

    silent.build = build_without_credit;
    for (int root = 0; root < 3; root++) {
        const rcclx_shape shapes[] = { sum, { RCCLX_BROADCAST, 3, 0, root, 0, NULL }, sum };
        const rcclx_algo *fine[] = { &rcclx_algo_ll, &rcclx_algo_ll, &rcclx_algo_ll };
        const rcclx_algo *bad[] = { &rcclx_algo_ll, &silent, &rcclx_algo_ll };
        const rcclx_algo *apart[] = { &rcclx_algo_ll, &silent, &rcclx_algo_ll128 };
        const rcclx_algo *heard[] = { &rcclx_algo_ll, &rcclx_algo_direct_push, &rcclx_algo_ll };
        CHECK(rcclx_plan_check_sequence(fine, shapes, 3, 0, 1, why, sizeof(why)) == RCCLX_OK, "root %d: %s", root, why);
        CHECK(rcclx_plan_check_sequence(bad, shapes, 3, 0, 1, why, sizeof(why)) == RCCLX_INTERNAL, "root %d: accepted", root);
        CHECK(rcclx_plan_check_sequence(apart, shapes, 3, 0, 1, why, sizeof(why)) == RCCLX_OK, "other slots: %s", why);
        CHECK(rcclx_plan_check_sequence(heard, shapes, 3, 0, 1, why, sizeof(why)) == RCCLX_OK, "all headers: %s", why);
    }
}

TEST(empty_blocks_carry_no_news)
{
    static const struct {
        const rcclx_algo *algo;
        rcclx_kind kind;
        size_t count; /* floats: 16 a line */
        bool   owes;
    } samples[] = {
        { &rcclx_algo_ll, RCCLX_ALL_REDUCE, 1, false },       { &rcclx_algo_ll, RCCLX_ALL_REDUCE, 0, true },
        { &rcclx_algo_ll, RCCLX_ALL_GATHER, 1, false },       { &rcclx_algo_ll, RCCLX_ALL_GATHER, 0, true },
        { &rcclx_algo_ll, RCCLX_BROADCAST, 100, true },       { &rcclx_algo_ll_two, RCCLX_ALL_REDUCE, 64, false },
        { &rcclx_algo_ll_two, RCCLX_ALL_REDUCE, 49, false },  { &rcclx_algo_ll_two, RCCLX_ALL_REDUCE, 48, true },
        { &rcclx_algo_direct, RCCLX_ALL_REDUCE, 1, false },   { &rcclx_algo_staged, RCCLX_BROADCAST, 1, false },
    };
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        rcclx_plan p;
        samples[i].algo->build(&p, &(rcclx_shape){ samples[i].kind, 4, 1, 0, 0, NULL });
        CHECK(rcclx_plan_owes_credit(&p, samples[i].count, 4) == samples[i].owes, "%s %s of %zu", samples[i].algo->name,
              rcclx_kind_word(samples[i].kind), samples[i].count);
        rcclx_plan_fini(&p);
    }
}

TEST(slots_of_pushing_plans)
{
    for (int n = 1; n <= 64; n++)
        for (int k = 0; k < RCCLX_COLL_COUNT; k++) {
            const rcclx_shape s = { (rcclx_kind)k, n, n - 1, 0, 0, NULL };
            const rcclx_algo *const two = k == RCCLX_ALL_REDUCE ? &rcclx_algo_ll128_two : &rcclx_algo_ll128;
            const int want = k == RCCLX_ALL_REDUCE ? 2 * n : k == RCCLX_BROADCAST || k == RCCLX_SCATTER ? 1 : n;
            rcclx_plan p;
            if (!can(two, &s))
                continue;
            two->build(&p, &s);
            CHECK(p.nslots == want && p.pushes && !p.pieced && p.proto == RCCLX_PROTO_LL128, "%s of %d: %d slots",
                  rcclx_kind_word(s.kind), n, p.nslots);
            rcclx_plan_fini(&p);
        }
}

/* --- faults ------------------------------------------------------------------- */

/* A plan with one rank's steps spoilt. The table has no room for arguments, so what to
 * spoil stands here. */
static struct {
    const rcclx_algo *base;
    int  rank;
    void (*spoil)(rcclx_plan *p, uint32_t step, int operand);
    uint32_t step;
    int  operand;
} fault;

static void build_spoilt(rcclx_plan *p, const rcclx_shape *s)
{
    fault.base->build(p, s);
    if (s->rank == fault.rank)
        fault.spoil(p, fault.step, fault.operand);
}

static rcclx_status check_spoilt(const rcclx_shape *s, uint64_t in_place)
{
    rcclx_algo a = *fault.base;

    a.build = build_spoilt;
    *why = 0;
    return rcclx_plan_check(&a, s, in_place, 5, why, sizeof(why));
}

static void drop(rcclx_plan *p, uint32_t i, int operand)
{
    (void)operand;
    memmove(&p->steps[i], &p->steps[i + 1], (p->nsteps - i - 1) * sizeof(*p->steps));
    p->nsteps--;
}

static void twice(rcclx_plan *p, uint32_t i, int operand)
{
    p->refs[p->steps[i].first + (uint32_t)operand] = p->refs[p->steps[i].first + (uint32_t)(operand + 1) % p->steps[i].nsrc];
}

static void other_rank(rcclx_plan *p, uint32_t i, int operand)
{
    rcclx_ref *ref = &p->refs[p->steps[i].first + (uint32_t)operand];
    ref->rank = (uint16_t)((ref->rank + 1) % p->shape.nranks);
}

static void other_block(rcclx_plan *p, uint32_t i, int operand)
{
    p->refs[p->steps[i].first + (uint32_t)operand].block ^= 1;
}

static void other_raw(rcclx_plan *p, uint32_t i, int operand)
{
    p->refs[p->steps[i].first + (uint32_t)operand].raw ^= 1;
}

static void other_buffer(rcclx_plan *p, uint32_t i, int operand)
{
    rcclx_ref *ref = &p->refs[p->steps[i].first + (uint32_t)operand];
    ref->buf = ref->buf == RCCLX_OUT ? RCCLX_IN : RCCLX_OUT;
}

static void other_final(rcclx_plan *p, uint32_t i, int operand)
{
    (void)operand;
    p->steps[i].final ^= 1;
}

static void other_order(rcclx_plan *p, uint32_t i, int operand)
{
    rcclx_ref *refs = &p->refs[p->steps[i].first], ref = refs[operand];
    refs[operand] = refs[operand + 1];
    refs[operand + 1] = ref;
}

static void other_peer(rcclx_plan *p, uint32_t i, int operand)
{
    (void)operand;
    p->steps[i].peer = (uint16_t)((p->steps[i].peer + 1) % p->shape.nranks);
}

static void too_late(rcclx_plan *p, uint32_t i, int operand)
{
    (void)operand;
    p->steps[i].phase = 1000;
}

static void no_lag(rcclx_plan *p, uint32_t i, int operand)
{
    (void)operand;
    p->steps[i].lag = 0;
}

static void only_at_end(rcclx_plan *p, uint32_t i, int operand)
{
    (void)operand;
    p->steps[i].lag = RCCLX_LAG_END;
}

static void unknown_lag(rcclx_plan *p, uint32_t i, int operand)
{
    (void)operand;
    p->steps[i].lag = RCCLX_LAG_END + 1;
}

static void beyond(rcclx_plan *p, uint32_t i, int operand)
{
    p->refs[p->steps[i].first + (uint32_t)operand].block = 4000;
}

static void nowhere(rcclx_plan *p, uint32_t i, int operand)
{
    p->refs[p->steps[i].first + (uint32_t)operand].rank = 4000;
}

static void other_protocol(rcclx_plan *p, uint32_t i, int operand)
{
    (void)operand;
    p->steps[i].proto = RCCLX_PROTO_LL128;
}

static void other_debt(rcclx_plan *p, uint32_t i, int operand)
{
    (void)i;
    (void)operand;
    p->credit ^= 1;
}

static void no_length(rcclx_plan *p, uint32_t i, int operand)
{
    p->refs[p->steps[i].first + (uint32_t)operand].buf = RCCLX_SCRATCH;
}

/* Two destinations are the same. */
static void twice_to(rcclx_plan *p, uint32_t i, int operand)
{
    rcclx_ref *refs = &p->refs[p->steps[i].first];
    refs[operand] = refs[operand + 1];
}

/* The last step comes before step i. */
static void last_first(rcclx_plan *p, uint32_t i, int operand)
{
    const rcclx_step st = p->steps[p->nsteps - 1];
    (void)operand;
    memmove(&p->steps[i + 1], &p->steps[i], (p->nsteps - 1 - i) * sizeof(st));
    p->steps[i] = st;
}

static void more_slots(rcclx_plan *p, uint32_t i, int operand)
{
    (void)i;
    (void)operand;
    p->nslots++;
}

/* Planted by hand: each must be reported, and for the right reason. */
static const struct {
    const char *about;
    const rcclx_algo *base;
    rcclx_kind kind;
    int      rank;
    void   (*spoil)(rcclx_plan *p, uint32_t step, int operand);
    uint32_t step;
    int      operand;
    uint64_t in_place;
    const char *says; /* part of the report */
} planted[] = {
    { "headers not waited for", &rcclx_algo_direct, RCCLX_ALL_REDUCE, 1, drop, 0, 0, 0, "while rank 0 may be writing it" },
    { "return before the others have read", &rcclx_algo_direct, RCCLX_ALL_REDUCE, 1, drop, 3, 0, 0, "returns while rank" },
    { "signal forgotten", &rcclx_algo_direct, RCCLX_ALL_REDUCE, 1, drop, 2, 0, 0, "waits for" },
    { "wrong block read", &rcclx_algo_direct, RCCLX_ALL_REDUCE, 1, other_block, 1, 0, 0, "adds block 1 to block 0" },
    { "wrong rank read", &rcclx_algo_direct, RCCLX_ALL_REDUCE, 1, other_rank, 1, 0, 0, "contribution twice" },
    { "contribution twice", &rcclx_algo_direct, RCCLX_ALL_REDUCE, 1, twice, 1, 0, 0, "contribution twice" },
    { "wrong order", &rcclx_algo_direct, RCCLX_ALL_REDUCE, 1, other_order, 1, 1, 0, "in rank order" },
    { "foreign block written", &rcclx_algo_direct, RCCLX_ALL_REDUCE, 1, other_block, 1, 4, 0, "rank 0 may be" },
    { "never final", &rcclx_algo_direct, RCCLX_ALL_REDUCE, 1, other_final, 1, 0, 0, "never final" },
    { "final too soon", &rcclx_algo_ring, RCCLX_ALL_REDUCE, 1, other_final, 5, 0, 0, "already final" },
    { "raw taken for a sum", &rcclx_algo_direct, RCCLX_ALL_REDUCE, 1, other_raw, 1, 2, 0, "as if it were a sum" },
    { "sum taken for raw", &rcclx_algo_ring, RCCLX_ALL_REDUCE, 1, other_raw, 8, 0, 0, "as if it were raw" },
    { "IN written", &rcclx_algo_direct, RCCLX_ALL_REDUCE, 1, other_buffer, 1, 4, 0, "writes IN" },
    { "step forgotten", &rcclx_algo_staged, RCCLX_ALL_GATHER, 1, drop, 4, 0, 0, "was not written" },
    { "slots not given back", &rcclx_algo_staged, RCCLX_REDUCE_SCATTER, 1, drop, 1, 0, 0, "may be reading it" },
    { "chain without credit", &rcclx_algo_ring, RCCLX_BROADCAST, 1, drop, 1, 0, 0, "may be reading it" },
    { "data not waited for", &rcclx_algo_ring, RCCLX_BROADCAST, 1, drop, 2, 0, 0, "SCRATCH block 0 of rank 0" },
    { "wrong peer waited for", &rcclx_algo_ring, RCCLX_BROADCAST, 1, other_peer, 2, 0, 0, "waits for rank 1" },
    { "phase that never comes", &rcclx_algo_direct, RCCLX_GATHER, 0, too_late, 3, 0, 0, "never signals" },
    { "circle of waits", &rcclx_algo_ring, RCCLX_BROADCAST, 1, too_late, 2, 0, 0, "waits for ever for rank 1, which" },
    { "lag forgotten: deadlock", &rcclx_algo_ring, RCCLX_ALL_REDUCE, 1, no_lag, 1, 0, 0, "waits for ever" },
    { "scratch of the operation before", &rcclx_algo_staged, RCCLX_ALL_TO_ALL, 1, drop, 0, 0, 0, "may still use it" },
    { "block beyond the buffer", &rcclx_algo_direct, RCCLX_GATHER, 1, beyond, 1, 0, 0, "has no block" },
    { "output that is not there", &rcclx_algo_direct, RCCLX_GATHER, 1, other_rank, 1, 1, 0, "has no block" },
    { "rank that is not there", &rcclx_algo_direct, RCCLX_GATHER, 1, nowhere, 1, 1, 0, "no rank 4000" },
    { "slots cut differently", &rcclx_algo_staged, RCCLX_GATHER, 1, more_slots, 0, 0, 0, "cuts in" },
    { "own slot not filled", &rcclx_algo_slot, RCCLX_ALL_GATHER, 1, drop, 0, 0, 0, "holds nothing" },
    { "slot of another block", &rcclx_algo_slot, RCCLX_ALL_TO_ALL, 1, other_block, 2, 0, 0, "should be block" },
    { "pushed slot filled twice", &rcclx_algo_ll, RCCLX_ALL_REDUCE, 1, twice_to, 0, 1, 0, "which rank 1 has filled" },
    { "slot that nobody fills", &rcclx_algo_ll, RCCLX_ALL_GATHER, 1, drop, 0, 0, 0, "which nobody fills" },
    { "slot that nobody reads", &rcclx_algo_ll, RCCLX_ALL_TO_ALL, 1, drop, 6, 0, 0, "without having read slot 0" },
    { "slot of another rank read", &rcclx_algo_ll, RCCLX_REDUCE_TO, 0, other_rank, 0, 1, 0, "there for that rank" },
    { "pushed slot beyond", &rcclx_algo_ll_two, RCCLX_ALL_REDUCE, 1, beyond, 3, 5, 0, "does not exist" },
    { "sum read before it was sent", &rcclx_algo_ll_two, RCCLX_ALL_REDUCE, 1, last_first, 0, 0, 0, "waits for ever" },
    { "two protocols in a plan", &rcclx_algo_ll, RCCLX_ALL_REDUCE, 1, other_protocol, 1, 0, 0, "another protocol" },
    { "debts that differ", &rcclx_algo_ll, RCCLX_BROADCAST, 1, other_debt, 0, 0, 0, "owes credit" },
    { "a slot of no length", &rcclx_algo_ll_two, RCCLX_ALL_REDUCE, 1, no_length, 5, 1, 0, "nobody knows how long" },
    { "pushed without waiting", &rcclx_algo_direct_push, RCCLX_ALL_GATHER, 1, drop, 0, 0, 0, "may not have come yet" },
    { "return before all is pushed", &rcclx_algo_direct_push, RCCLX_SCATTER, 1, drop, 2, 0, 0, "returns while rank" },
    { "relay: slots of A filled too soon", &rcclx_algo_relay, RCCLX_ALL_REDUCE, 1, drop, 1, 0, 0, "may be reading it" },
    { "relay: slots of B likewise", &rcclx_algo_relay, RCCLX_ALL_REDUCE, 1, drop, 6, 0, 0, "may be reading it" },
    { "relay: summed before they are filled", &rcclx_algo_relay, RCCLX_ALL_REDUCE, 1, drop, 11, 0, 0, "SCRATCH block" },
    { "relay: waited for at the end only", &rcclx_algo_relay, RCCLX_ALL_REDUCE, 1, only_at_end, 14, 0, 0, "SCRATCH block" },
    { "relay: return while OUT is written", &rcclx_algo_relay, RCCLX_ALL_REDUCE, 1, drop, 17, 0, 0, "returns while rank" },
    { "relay_staged: sums taken too soon", &rcclx_algo_relay_staged, RCCLX_ALL_REDUCE, 1, drop, 19, 0, 0, "SCRATCH block" },
    { "relay_staged: likewise", &rcclx_algo_relay_staged, RCCLX_ALL_REDUCE, 1, only_at_end, 15, 0, 0, "SCRATCH block" },
    { "a piece without a word", &rcclx_algo_relay, RCCLX_ALL_REDUCE, 1, unknown_lag, 17, 0, 0, "no word for" },
    { "peers' buffers used unasked", &rcclx_algo_staged, RCCLX_ALL_GATHER, 1, other_buffer, 6, 0, 0, "does not ask for that" },
};

TEST(planted_faults_are_reported)
{
    for (size_t i = 0; i < sizeof(planted) / sizeof(planted[0]); i++)
        CASE("reported: %s", planted[i].about) {
            const rcclx_shape s = { planted[i].kind, 4, 0, 0, 0, NULL };
            fault.base = planted[i].base;
            fault.rank = planted[i].rank;
            fault.spoil = planted[i].spoil;
            fault.step = planted[i].step;
            fault.operand = planted[i].operand;
            CHECK(check_spoilt(&s, planted[i].in_place) == RCCLX_INTERNAL, "accepted");
            CHECK(strstr(why, planted[i].says) != NULL, "says: %s", why);
        }
}

/* An all-gather whose ranks read each other's IN while it may be written as OUT. */
static void shifted(rcclx_plan *p, const rcclx_shape *s)
{
    rcclx_plan_init(p, s, "shifted", RCCLX_CUT_EVEN, s->nranks);
    rcclx_wait(p, RCCLX_ALL, 0, 0);
    for (int i = 0; i < s->nranks; i++) {
        rcclx_copy_step(p, RCCLX_PROTO_SIMPLE, 1);
        rcclx_src(p, RCCLX_IN, i, s->rank, true);
        rcclx_dst(p, RCCLX_OUT, s->rank, i);
    }
    rcclx_signal(p, 1);
    rcclx_wait(p, RCCLX_ALL, 1, 0);
}

TEST(faults_that_show_in_place_only)
{
    rcclx_algo a = rcclx_algo_direct;
    const rcclx_shape s = { RCCLX_ALL_TO_ALL, 3, 0, 0, 0, NULL };

    a.build = shifted;
    a.flags &= ~(unsigned)RCCLX_NEEDS_APART;
    CHECK(rcclx_plan_check(&a, &s, 0, 1, why, sizeof(why)) == RCCLX_OK, "%s", why);
    CHECK(rcclx_plan_check(&a, &s, 1, 1, why, sizeof(why)) == RCCLX_INTERNAL, "accepted in place");
    CHECK(strstr(why, "may be reading it") != NULL, "%s", why);
}

/* --- every step of every plan, spoilt ------------------------------------------ */

static int nspoilt, naccepted;

static void must_fail(const rcclx_shape *s, const char *what)
{
    nspoilt++;
    if (check_spoilt(s, 0) != RCCLX_OK)
        return;
    naccepted++;
    CHECK(false, "%s %s, %d ranks: rank %d step %u operand %d: %s is accepted", fault.base->name,
          rcclx_kind_word(s->kind), s->nranks, fault.rank, fault.step, fault.operand, what);
}

/* Is what this copy reads at other ranks, too? In a tree sums are, and so is what was pushed to all. */
static bool same_elsewhere(const rcclx_step *st, const rcclx_ref *src)
{
    return st->op == RCCLX_STEP_COPY && (fault.base == &rcclx_algo_tree ||
           (fault.base == &rcclx_algo_relay_staged && fault.operand == 0 && src->buf == RCCLX_SCRATCH));
}

static void spoil_operands(const rcclx_shape *s, const rcclx_step *st, const rcclx_ref *refs)
{
    static const struct {
        void (*spoil)(rcclx_plan *p, uint32_t step, int operand);
        const char *what;
    } ways[] = { { other_rank, "another rank" }, { beyond, "a block beyond" }, { other_raw, "another raw flag" } };

    for (int w = 0; w < 3; w++)
        for (fault.operand = 0; fault.operand < st->nsrc + st->ndst; fault.operand++) {
            const bool raw_matters = st->op == RCCLX_STEP_REDUCE && fault.operand < st->nsrc;
            if ((ways[w].spoil == other_raw && !raw_matters) || (ways[w].spoil == other_rank && same_elsewhere(st, refs)))
                continue;
            fault.spoil = ways[w].spoil;
            must_fail(s, ways[w].what);
        }
    fault.operand = 0;
}

static void spoil_plan(const rcclx_algo *a, const rcclx_shape *s)
{
    rcclx_plan p;
    rcclx_shape mine = *s;

    fault.base = a;
    mine.rank = fault.rank;
    a->build(&p, &mine);
    for (fault.step = 0; fault.step < p.nsteps; fault.step++) {
        const rcclx_step *st = &p.steps[fault.step];
        if (st->op == RCCLX_STEP_REDUCE) {
            fault.spoil = other_final;
            must_fail(s, "another final flag");
        }
        if (st->op == RCCLX_STEP_COPY || st->op == RCCLX_STEP_REDUCE) {
            fault.spoil = drop;
            must_fail(s, "a step less");
            spoil_operands(s, st, &p.refs[st->first]);
        }
    }
    rcclx_plan_fini(&p);
}

/* Signals and waits are not all needed (a later signal may do, or headers alone
 * are exchanged), so this is about steps that move data. */
TEST(every_spoilt_step_is_reported)
{
    for (const rcclx_algo *const *a = rcclx_algos; *a; a++)
        for (int k = 0; k < RCCLX_COLL_COUNT; k++)
            for (int n = 3; n <= 5; n++) {
                const rcclx_shape s = { (rcclx_kind)k, n, 0, 1, 0, NULL };
                for (fault.rank = 0; can(*a, &s) && fault.rank < n; fault.rank++)
                    spoil_plan(*a, &s);
            }
    printf("# %d plans spoilt, %d of them accepted\n", nspoilt, naccepted);
}

/* --- the door --------------------------------------------------------------------- */

TEST(arguments_are_refused)
{
    rcclx_shape shapes[] = { { RCCLX_ALL_REDUCE, 65, 0, 0, 0, NULL }, { RCCLX_ALL_REDUCE, 3, 0, 0, 0, NULL } };
    const rcclx_algo *algos[] = { &rcclx_algo_ring, &rcclx_algo_ring };

    CHECK(rcclx_plan_check(algos[0], shapes, 0, 1, why, sizeof(why)) == RCCLX_ARGUMENT, "65 ranks");
    shapes[0].nranks = 0;
    CHECK(rcclx_plan_check(algos[0], shapes, 0, 1, why, sizeof(why)) == RCCLX_ARGUMENT, "no ranks");
    shapes[0].nranks = 4;
    CHECK(rcclx_plan_check(algos[0], shapes, 0, 0, why, sizeof(why)) == RCCLX_ARGUMENT, "no pieces");
    CHECK(rcclx_plan_check_sequence(algos, shapes, 2, 0, 1, why, sizeof(why)) == RCCLX_ARGUMENT, "4 ranks, then 3");
    shapes[0].kind = RCCLX_GATHER;
    CHECK(rcclx_plan_check(algos[0], shapes, 0, 1, why, sizeof(why)) == RCCLX_UNSUPPORTED, "ring has no gather");
    CHECK(strstr(why, "no plan") != NULL, "%s", why);
    char tiny[4];
    CHECK(rcclx_plan_check(algos[0], shapes, 0, 1, tiny, sizeof(tiny)) == RCCLX_UNSUPPORTED, "a short text");
    CHECK(strlen(tiny) == 3, "%s", tiny);
}

TEST(failed_allocations_are_reported)
{
    const rcclx_shape s = { RCCLX_ALL_REDUCE, 3, 0, 0, 0, NULL };
    const size_t held = rcclx_mem_held();
    int n = 0;

    for (rcclx_status status = RCCLX_NOMEM; status != RCCLX_OK; n++) {
        rcclx_mem_fail_after(n);
        status = rcclx_plan_check(&rcclx_algo_staged, &s, 0, 3, why, sizeof(why));
        rcclx_mem_fail_after(-1);
        REQUIRE(status == RCCLX_OK || status == RCCLX_NOMEM, "call %d: %d %s", n, status, why);
        CHECK(rcclx_mem_held() == held, "call %d leaks", n);
    }
    CHECK(n > 30, "only %d allocations", n);
}
