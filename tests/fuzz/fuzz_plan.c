/* Fuzzes plans: what the checker accepts must run.
 *
 * An input chooses an algorithm, a collective, the ranks, and up to three changes
 * of one rank's plan: a step dropped or moved, a wait for another peer or phase, an
 * operand's block, rank or buffer. If the checker accepts the result, the lanes of
 * all ranks run it here, three operations back to back, in an order drawn from the
 * input in which every wait may be made to wait longer; it must end, every OUT must
 * be right, and the bytes around OUT and scratch untouched. What the checker
 * refuses is not run.
 *
 * The step interpreter and the data steps are the executor's own; headers and
 * memory are stood in for, and counters are looked at through a hesitant gp_reached.
 * Built with -fsanitize=fuzzer and -DRCCLX_LIBFUZZER it is libFuzzer's target;
 * without, main draws inputs, the same ones every time, and prints TAP. */
#include "device/kernels/gp.h"

static int hesitant_reached(_Atomic uint64_t *p, uint64_t v);
#define gp_reached hesitant_reached
#include "exec/runner.h"
#undef gp_reached

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(cond)                                                                   \
    do {                                                                             \
        if (!(cond)) {                                                               \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #cond);       \
            tell();                                                                  \
            abort();                                                                 \
        }                                                                            \
    } while (0)

enum { MOST = 5, OPS = 3, PIECES = 3, LINE = 16, EACH = PIECES * LINE, ROOM = 1 << 16, GUARD = 64, CHANGES = 3 };

typedef struct {
    rcclx_runner run; /* first: the lanes hand back &run.view */
    rcclx_task   task;
    rcclx_plan   plan;
    uint64_t     published;
    int          finished; /* operations */
    uint32_t     in[ROOM], out[ROOM];
    uint32_t     slot[OPS + 1][ROOM], scratch[RCCLX_NLANES][ROOM];
    rcclx_counter lane[RCCLX_NLANES];
} rank;

static struct {
    const rcclx_algo *base;
    rcclx_algo   spoilt;
    rcclx_shape  shape;
    struct { uint8_t rank, what; uint16_t step, value; } change[CHANGES];
    int          nchanges, npieces;
    uint64_t     dice;
    rank         ranks[MOST];
    long         accepted, changed;
} world;

static uint64_t roll(void)
{
    world.dice ^= world.dice << 13;
    world.dice ^= world.dice >> 7;
    return world.dice ^= world.dice << 17;
}

static void tell(void)
{
    fprintf(stderr, "%s, %s of %d ranks, root %d, %d pieces\n", world.base->name, rcclx_kind_name(world.shape.kind), world.shape.nranks,
            world.shape.root, world.npieces);
    for (int i = 0; i < world.nchanges; i++)
        fprintf(stderr, "  rank %d: change %d of step %d, %d\n", world.change[i].rank, world.change[i].what, world.change[i].step,
                world.change[i].value);
    for (int r = 0; r < world.shape.nranks; r++)
        if (world.ranks[r].plan.nsteps)
            rcclx_plan_print(stderr, &world.ranks[r].plan, EACH, 4);
}

static int hesitant_reached(_Atomic uint64_t *p, uint64_t v)
{
    return roll() % 3 && (int64_t)(gp_peek(p) - v) >= 0;
}

/* ---- plans, changed */

static void change_operand(rcclx_plan *p, const rcclx_step *s, int what, unsigned value)
{
    if (!s->nsrc && !s->ndst)
        return;
    rcclx_ref *ref = &p->refs[s->first + value / 8 % (uint32_t)(s->nsrc + s->ndst)];

    if (what == 4)
        ref->block = (uint16_t)(value % (p->nblocks + p->nslots + 1u));
    else if (what == 5)
        ref->rank = (uint16_t)(value % (unsigned)p->shape.nranks);
    else
        ref->buf = (uint8_t)(value % 3);
}

static void change_plan(rcclx_plan *p, int what, unsigned at, unsigned value)
{
    rcclx_step *s = &p->steps[at % p->nsteps];

    switch (what) {
    case 0:
        memmove(s, s + 1, (size_t)(p->steps + --p->nsteps - s) * sizeof(*s));
        break;
    case 1: {
        rcclx_step *other = &p->steps[value % p->nsteps], kept = *s;
        *s = *other;
        *other = kept;
        break;
    }
    case 2:
        if (s->op == RCCLX_STEP_WAIT)
            s->peer = value % 8 ? (uint16_t)(value % (unsigned)p->shape.nranks) : RCCLX_ALL;
        break;
    case 3:
        if (s->op == RCCLX_STEP_WAIT || s->op == RCCLX_STEP_SIGNAL)
            s->phase = (uint16_t)(value % (p->nphases + 1u)), s->lag = (uint8_t)(s->lag ^ (value / 64 & 1));
        break;
    default:
        change_operand(p, s, what, value);
    }
}

static void build(rcclx_plan *p, const rcclx_shape *s)
{
    world.base->build(p, s);
    for (int i = 0; i < world.nchanges; i++)
        if (world.change[i].rank % s->nranks == s->rank && p->status == RCCLX_OK && p->nsteps > 1)
            change_plan(p, world.change[i].what % 7, world.change[i].step, world.change[i].value);
}

/* ---- what the executor gives the lanes */

static rank *rank_of(rcclx_view *v)
{
    return (rank *)(void *)v;
}

static void publish(rcclx_view *v, bool filled)
{
    rank *x = rank_of(v);

    (void)filled;
    if (x->published == v->seq)
        return;
    memcpy(x->slot[v->seq], x->in + GUARD, sizeof(x->in) - GUARD * 4);
    x->published = v->seq;
}

static int header_of(rcclx_view *v, int peer)
{
    if (world.ranks[peer].published < v->seq || roll() % 3 == 0)
        return 0;
    v->slot[peer] = (char *)world.ranks[peer].slot[v->seq];
    return 1;
}

static void signalled(rcclx_view *v, const rcclx_lane *l, uint64_t mark)
{
    (void)v;
    (void)l;
    (void)mark;
}

/* ---- data: element i of the message from s (to r, where it matters) */

static uint32_t element(uint64_t op, int s, int r, size_t i)
{
    uint64_t h = op * 1000003u + (uint64_t)(s * 8191 + r * 131) + i * 2654435761u;

    return (uint32_t)((h ^ h >> 29) * 0x9e3779b97f4a7c15u >> 32);
}

static bool parts_for_all(rcclx_kind k) /* IN holds a part for every rank */
{
    return k == RCCLX_REDUCE_SCATTER || k == RCCLX_ALL_TO_ALL || k == RCCLX_ALL_TO_ALLV || k == RCCLX_SCATTER;
}

static size_t message_count(const rcclx_plan *p)
{
    return p->cut == RCCLX_CUT_SPLIT ? (size_t)EACH * p->nblocks : EACH;
}

/* What OUT must hold at i: of one block of `count`; block b of OUT. */
static uint32_t wanted(uint64_t op, int me, int b, size_t i)
{
    const rcclx_shape *s = &world.shape;
    uint32_t sum = 0;

    switch (s->kind) {
    case RCCLX_ALL_REDUCE:
    case RCCLX_REDUCE_TO:
    case RCCLX_REDUCE_SCATTER:
        for (int r = 0; r < s->nranks; r++)
            sum += element(op, r, s->kind == RCCLX_REDUCE_SCATTER ? me : 0, i);
        return sum;
    case RCCLX_BROADCAST: return element(op, s->root, 0, i);
    case RCCLX_SCATTER:   return element(op, s->root, me, i);
    case RCCLX_ALL_TO_ALL:
    case RCCLX_ALL_TO_ALLV: return element(op, b, me, i);
    default: return element(op, b, 0, i);
    }
}

static void begin(int me)
{
    static const size_t counts[MOST] = { EACH, EACH, EACH, EACH, EACH }, displs[MOST] = { 0, EACH, 2 * EACH, 3 * EACH, 4 * EACH };
    rank *x = &world.ranks[me];
    rcclx_view *v = &x->run.view;
    const size_t count = message_count(&x->plan);
    const int n = world.shape.nranks, nparts = parts_for_all(world.shape.kind) ? n : 1;

    v->seq = (uint64_t)x->finished + 1;
    v->slot[me] = (char *)x->slot[v->seq];
    for (int b = 0; b < nparts; b++)
        for (size_t i = 0; i < count; i++)
            x->in[GUARD + (size_t)b * count + i] = element(v->seq, me, b, i);
    memset(x->out, 0xa5, sizeof(x->out));
    v->scounts = v->rcounts = counts;
    v->sdispls = v->rdispls = displs;
    for (int r = 0; r < n; r++) {
        v->in[r] = (char *)(world.ranks[r].in + GUARD);
        v->out[r] = (char *)(world.ranks[r].out + GUARD);
        v->peer_displ[r] = displs[me];
    }
    for (int l = 0; l < RCCLX_NLANES; l++) {
        v->lane[l].pc = v->lane[l].turn = 0;
        v->lane[l].finished = false;
    }
    if (x->plan.proto != RCCLX_PROTO_LL || x->plan.steps[0].op != RCCLX_STEP_COPY || x->plan.steps[0].proto != RCCLX_PROTO_LL)
        publish(v, true);
}

static void open_rank(int me)
{
    rank *x = &world.ranks[me];
    rcclx_view *v = &x->run.view;
    const rcclx_shape s = { world.shape.kind, world.shape.nranks, me, world.shape.root, 0, NULL };

    memset(&x->run, 0, sizeof(x->run));
    x->task = (rcclx_task){ .op = { .kind = s.kind, .type = RCCLX_U32, .root = s.root,
                                    .op = rcclx_kind_reduces(s.kind) ? RCCLX_SUM : RCCLX_COPY } };
    build(&x->plan, &s);
    x->run.task = &x->task;
    x->published = 0;
    x->finished = 0;
    memset(x->scratch, 0xa5, sizeof(x->scratch));
    v->plan = &x->plan;
    v->count = message_count(&x->plan);
    v->size = 4;
    v->rank = me;
    v->nranks = s.nranks;
    v->npieces = x->plan.pieced ? (uint32_t)world.npieces : 1;
    v->slot_count = x->plan.pieced ? EACH / (size_t)world.npieces : 0;
    v->slot_bytes = v->slot_count * v->size;
    v->nlanes = v->npieces > 1 ? RCCLX_NLANES : 1;
    v->publish = publish;
    v->header_of = header_of;
    v->move = rcclx_runner_move;
    v->signalled = signalled;
    for (int l = 0; l < RCCLX_NLANES; l++) {
        atomic_store(&x->lane[l].value, 0);
        for (int r = 0; r < s.nranks; r++) {
            v->lane[l].counter[r] = &world.ranks[r].lane[l];
            v->lane[l].scratch[r] = (char *)world.ranks[r].scratch[l];
        }
    }
    begin(me);
}

static void verify(int me)
{
    rank *x = &world.ranks[me];
    const rcclx_kind k = world.shape.kind;
    const size_t count = message_count(&x->plan);
    const bool at_root = k == RCCLX_REDUCE_TO || k == RCCLX_GATHER;
    const bool all = k == RCCLX_ALL_GATHER || k == RCCLX_ALL_TO_ALL || k == RCCLX_ALL_TO_ALLV || k == RCCLX_GATHER;
    const int nparts = at_root && me != world.shape.root ? 0 : all ? world.shape.nranks : 1;
    const uint64_t op = (uint64_t)x->finished + 1;

    for (int b = 0; b < nparts; b++)
        for (size_t i = 0; i < count; i++)
            MUST(x->out[GUARD + (size_t)b * count + i] == wanted(op, me, b, i));
    for (size_t i = 0; i < ROOM; i++)
        if (i < GUARD || i >= GUARD + (size_t)nparts * count)
            MUST(x->out[i] == 0xa5a5a5a5);
    for (int l = 0; l < RCCLX_NLANES; l++)
        for (size_t i = x->run.view.slot_count * x->plan.nslots; i < ROOM; i++)
            MUST(x->scratch[l][i] == 0xa5a5a5a5);
}

/* Ranks and lanes in an order of the dice, until all have done all operations. */
static void run_all(void)
{
    const int n = world.shape.nranks;

    for (int r = 0; r < n; r++)
        open_rank(r);
    for (int left = n * OPS, idle = 0; left; idle++) {
        rank *x = &world.ranks[roll() % (unsigned)n];
        rcclx_view *v = &x->run.view;
        bool done = true;
        MUST(idle < 200000); /* it waits for ever */
        if (x->finished == OPS)
            continue;
        const uint32_t l = (uint32_t)(roll() % v->nlanes);
        if (!v->lane[l].finished)
            MUST(rcclx_lane_run(v, (int)l) != RCCLX_LANE_FAILED);
        for (uint32_t k = 0; k < v->nlanes; k++)
            done &= v->lane[k].finished;
        if (!done)
            continue;
        verify((int)(x - world.ranks));
        left--;
        idle = 0;
        if (++x->finished < OPS)
            begin((int)(x - world.ranks));
    }
    for (int r = 0; r < n; r++)
        rcclx_plan_fini(&world.ranks[r].plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[512];
    int nalgos = 0;

    if (size < 8 + 6 * CHANGES)
        return 0;
    while (rcclx_algos[nalgos])
        nalgos++;
    world.base = rcclx_algos[data[0] % nalgos];
    world.shape = (rcclx_shape){ .kind = (rcclx_kind)(data[1] % RCCLX_COLL_COUNT), .nranks = 2 + data[2] % (MOST - 1) };
    world.shape.root = rcclx_kind_rooted(world.shape.kind) ? data[3] % world.shape.nranks : 0;
    world.npieces = data[4] % 4 ? PIECES : 1;
    world.nchanges = data[5] % (CHANGES + 1);
    world.dice = (uint64_t)data[6] << 8 | data[7] | 1u << 20;
    memcpy(world.change, data + 8, sizeof(world.change[0]) * (size_t)CHANGES);
    if (world.base->flags & RCCLX_PUSHES) /* the host's steps bring no flags; the emulator's tests run these */
        return 0;
    if (!(world.base->kinds >> world.shape.kind & 1) || (world.base->can && !world.base->can(&world.shape)))
        return 0;
    world.spoilt = *world.base;
    world.spoilt.build = build;
    const rcclx_status s = rcclx_plan_check(&world.spoilt, &world.shape, 0, world.npieces, why, sizeof(why));
    if (s != RCCLX_OK && world.nchanges == 0)
        fprintf(stderr, "%s\n", why);
    MUST(s == RCCLX_OK || world.nchanges);
    world.changed += world.nchanges > 0;
    if (s != RCCLX_OK)
        return 0;
    world.accepted += world.nchanges > 0;
    for (int schedule = 0; schedule < 3; schedule++)
        run_all();
    return 0;
}

#ifndef RCCLX_LIBFUZZER
enum { ROUNDS = 4000 };

int main(void)
{
    uint64_t x = 20250601;
    uint8_t bytes[8 + 6 * CHANGES];

    for (int k = 0; k < ROUNDS; k++) {
        for (size_t i = 0; i < sizeof(bytes); i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            bytes[i] = (uint8_t)(x >> 20);
        }
        LLVMFuzzerTestOneInput(bytes, sizeof(bytes));
    }
    printf("# %ld changed plans, %ld of them accepted and run\n", world.changed, world.accepted);
    printf("%sok 1 - %d plans: what the checker accepts runs\n1..1\n", world.accepted > 50 ? "" : "not ", ROUNDS);
    return world.accepted <= 50;
}
#endif
