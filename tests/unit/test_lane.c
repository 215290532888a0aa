/* The step interpreter on memory, without ranks that run: all ranks' lanes take turns in one
 * thread. Here plans run that the library leaves to GPUs, which read the steps in the same way. */
#include "check.h"

#include "algo/algo.h"
#include "exec/lane.h"

enum { RANKS = 4, SLOT = 8 /* elements */, MOST = 4096 };

static rcclx_view view[RANKS];
static rcclx_plan plan[RANKS];
static rcclx_counter counter[RANKS][RCCLX_NLANES];
static int in[RANKS][MOST], out[RANKS][MOST], scratch[RANKS][RCCLX_NLANES][64 * SLOT];
static bool begun[RANKS];

static void publish(rcclx_view *v, bool filled) { (void)v; (void)filled; }
static void signalled(rcclx_view *v, const rcclx_lane *l, uint64_t mark) { (void)v; (void)l; (void)mark; }

static int header_of(rcclx_view *v, int peer)
{
    (void)v;
    return begun[peer];
}

/* Where the piece of a step's operand is, the block-th of those it names. */
static int *at(const rcclx_view *v, const rcclx_lane *l, const rcclx_ref *ref, int block, uint32_t piece)
{
    size_t begin, length;

    if (ref->buf == RCCLX_SCRATCH)
        return &scratch[ref->rank][l - v->lane][(ref->block + block) * SLOT];
    rcclx_split(v->count, v->size, v->plan->nblocks, ref->block + block, &begin, &length);
    return (ref->buf == RCCLX_IN ? in : out)[ref->rank] + begin + piece * SLOT;
}

static size_t length_of(const rcclx_view *v, const rcclx_step *s, int block, uint32_t piece)
{
    size_t begin, length = 0, before = piece * SLOT;

    for (uint32_t k = s->first; k < s->first + s->nsrc + s->ndst; k++)
        if (v->plan->refs[k].buf != RCCLX_SCRATCH)
            rcclx_split(v->count, v->size, v->plan->nblocks, v->plan->refs[k].block + block, &begin, &length);
    if (!v->plan->pieced)
        return length;
    length = length > before ? length - before : 0;
    return length < SLOT ? length : SLOT;
}

static int move(rcclx_view *v, const rcclx_lane *l, const rcclx_step *s, uint32_t piece, int block)
{
    const rcclx_ref *refs = &v->plan->refs[s->first];
    const size_t n = length_of(v, s, block, piece);

    for (size_t i = 0; i < n; i++) {
        int sum = 0;
        for (int k = 0; k < s->nsrc; k++)
            sum += at(v, l, &refs[k], block, piece)[i];
        for (int k = s->nsrc; k < s->nsrc + s->ndst; k++)
            at(v, l, &refs[k], block, piece)[i] = sum;
    }
    return 0;
}

static void begin(const rcclx_algo *a, int n, int rank, size_t count)
{
    rcclx_view *v = &view[rank];
    size_t first, longest;

    a->build(&plan[rank], &(rcclx_shape){ RCCLX_ALL_REDUCE, n, rank, 0, 0, NULL });
    rcclx_split(count, 4, plan[rank].nblocks, 0, &first, &longest);
    *v = (rcclx_view){
        .plan = &plan[rank], .seq = 1, .count = count, .size = 4, .slot_count = SLOT, .slot_bytes = SLOT * 4, .rank = rank, .nranks = n,
        .npieces = plan[rank].pieced && longest ? (uint32_t)((longest + SLOT - 1) / SLOT) : 1, .nlanes = RCCLX_NLANES,
        .publish = publish, .header_of = header_of, .move = move, .signalled = signalled,
    };
    for (int l = 0; l < RCCLX_NLANES; l++)
        for (int r = 0; r < n; r++)
            v->lane[l].counter[r] = &counter[r][l];
    for (size_t i = 0; i < count; i++)
        in[rank][i] = (int)(i * 7 + 1) << (8 * rank & 15), out[rank][i] = -1;
    for (int l = 0; l < RCCLX_NLANES; l++)
        atomic_store(&counter[rank][l].value, 0);
    begun[rank] = true;
}

/* What a rank holds at the moment in which it returns. */
static bool right(const rcclx_algo *a, int n, int rank, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int want = 0;
        for (int r = 0; r < n; r++)
            want += in[r][i];
        if (!CHECK(out[rank][i] == want, "%s, %zu elements, rank %d of %d returns with %d for element %zu, not %d", a->name,
                   count, rank, n, out[rank][i], i, want))
            return false;
    }
    return true;
}

/* Lanes step in turn; `late` ranks only when nobody else can go on. */
static bool run(const rcclx_algo *a, int n, size_t count, unsigned late)
{
    int returned = 0;
    bool done[RANKS] = { false }, ok = true;

    for (int r = 0; r < n; r++)
        begin(a, n, r, count);
    for (int round = 0; ok && returned < n && round < 10000; round++)
        for (int r = 0; ok && r < n; r++) {
            int finished = 0;
            if (done[r] || (late >> r & 1 && round % 8))
                continue;
            for (int l = 0; l < RCCLX_NLANES; l++)
                finished += rcclx_lane_run(&view[r], l) == RCCLX_LANE_DONE;
            if (finished < RCCLX_NLANES)
                continue;
            done[r] = true;
            returned++;
            ok = right(a, n, r, count);
        }
    for (int r = 0; r < n; r++)
        rcclx_plan_fini(&plan[r]);
    return ok && CHECK(returned == n, "%s, %zu elements: %d of %d ranks return", a->name, count, returned, n);
}

TEST(plans_run_on_memory)
{
    static const rcclx_algo *const algos[] = { &rcclx_algo_staged, &rcclx_algo_ring, &rcclx_algo_direct, &rcclx_algo_relay,
                                               &rcclx_algo_relay_staged };
    static const size_t counts[] = { 0, 1, 17, 64, 100, 129, 1000, MOST };

    for (size_t i = 0; i < sizeof(algos) / sizeof(algos[0]); i++)
        CASE("%s", algos[i]->name)
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
                for (int n = 1; n <= RANKS; n++)
                    for (unsigned late = 0; late < 1u << n; late++)
                        if (!run(algos[i], n, counts[c], late))
                            break;
}
