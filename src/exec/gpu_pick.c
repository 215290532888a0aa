/* Which plan runs on GPUs, and on how many lanes: a table, to be replaced row by row
 * by what was measured.
 *
 *   rows are tried from above: the kind, the number of ranks and the bytes fit, the
 *   protocol's bound (an option) is not passed, a block fits a slot  -->  taken
 *
 *   1. among what is allowed (NCCL_PROTO, NCCL_ALGO, RCCLX_ALGO)
 *   2. the same, above their bounds, where a slot still takes them
 *   3. among all, if what was asked for fits in no way
 *
 * Everything it looks at is agreed or equal on all ranks, so all choose alike. */
#include "exec/gpu_team.h"

#include "algo/list.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

#define ALL_KINDS ((1u << RCCLX_COLL_COUNT) - 1)
#define REDUCES   (1u << RCCLX_ALL_REDUCE)
#define BROADCAST (1u << RCCLX_BROADCAST)
#define PUSHED    (1u << RCCLX_ALL_GATHER | 1u << RCCLX_ALL_TO_ALL | 1u << RCCLX_GATHER | 1u << RCCLX_SCATTER)
#define CODED     (1u << RCCLX_ALL_REDUCE | 1u << RCCLX_REDUCE_SCATTER | 1u << RCCLX_ALL_GATHER | 1u << RCCLX_ALL_TO_ALL | 1u << RCCLX_BROADCAST)
#define NO_BOUND  (~(size_t)0)

enum { SIMPLE = RCCLX_PROTO_SIMPLE, LL = RCCLX_PROTO_LL, LL128 = RCCLX_PROTO_LL128 };
enum { K = 1024, SPLIT_FROM = 64 * K, RELAY_FROM = 16 << 20 };

static const struct row {
    unsigned    kinds;
    uint8_t     from, to;     /* ranks */
    uint8_t     proto;
    size_t      above, upto;  /* bytes, count times size */
    const char *algo, *behind;
    bool        coded;        /* low precision */
} rows[] = {
    { REDUCES,   3, GP_RANKS, LL,     0,          SPLIT_FROM, "ll",        NULL, false },
    { REDUCES,   3, GP_RANKS, LL,     SPLIT_FROM, NO_BOUND,   "ll_two",    NULL, false },
    { ~REDUCES,  3, GP_RANKS, LL,     0,          NO_BOUND,   "ll",        NULL, false },
    { ALL_KINDS, 2, 2,        LL,     0,          NO_BOUND,   "ll",        NULL, false },
    { REDUCES,   3, GP_RANKS, LL128,  0,          SPLIT_FROM, "ll128",     NULL, false },
    { REDUCES,   3, GP_RANKS, LL128,  SPLIT_FROM, NO_BOUND,   "ll128_two", NULL, false },
    { ~REDUCES,  3, GP_RANKS, LL128,  0,          NO_BOUND,   "ll128",     NULL, false },
    { ALL_KINDS, 2, 2,        LL128,  0,          NO_BOUND,   "ll128",     NULL, false },
    { REDUCES,   2, GP_RANKS, SIMPLE, 0,          RELAY_FROM, "direct",    "relay_staged", false },
    { REDUCES,   2, GP_RANKS, SIMPLE, RELAY_FROM, NO_BOUND,   "relay",     "relay_staged", false },
    { PUSHED,    2, GP_RANKS, SIMPLE, 0,          NO_BOUND,   "direct_push", "staged", false },
    { BROADCAST, 2, 2,        SIMPLE, 0,          NO_BOUND,   "direct_push", "staged", false },
    { ALL_KINDS, 1, GP_RANKS, SIMPLE, 0,          NO_BOUND,   "direct",    "staged", false },
    { REDUCES,   2, GP_RANKS, SIMPLE, 0,          NO_BOUND,   "relay_staged", NULL, false },
    { ALL_KINDS, 1, GP_RANKS, SIMPLE, 0,          NO_BOUND,   "staged",    NULL, false },
    { CODED,     2, GP_RANKS, SIMPLE, 0,          NO_BOUND,   "relay_staged", NULL, true },
    /* asked for by name only */
    { ALL_KINDS, 1, GP_RANKS, SIMPLE, 0,          0,          "direct_push", "staged", false },
    { REDUCES,   1, GP_RANKS, LL,     0,          0,          "ll_two",    NULL, false },
    { REDUCES,   1, GP_RANKS, LL128,  0,          0,          "ll128_two", NULL, false },
    { ALL_KINDS, 1, GP_RANKS, SIMPLE, 0,          0,          "ring",      NULL, false },
    { ALL_KINDS, 1, GP_RANKS, SIMPLE, 0,          0,          "tree",      NULL, false },
    { ALL_KINDS, 1, GP_RANKS, SIMPLE, 0,          0,          "doubling",  NULL, false },
};
enum { NROWS = sizeof(rows) / sizeof(rows[0]) };
_Static_assert((int)NROWS <= (int)RCCLX_FORMS, "a form a row");

/* The protocols' bounds where no option says any. */
static const struct { uint8_t from, to; size_t ll, ll128; } bounds[] = {
    { 1, 2,        32 * K, 1024 * K },
    { 3, GP_RANKS, 32 * K, 256 * K },
};

/* Bytes of a rank's share that a lane takes on before another one joins; times the
 * threads of a block in LL and LL128. */
static const struct { size_t bytes; bool a_thread; int most; } lanes[3] = {
    [SIMPLE] = { 32 * K, false, 64 },
    [LL]     = { GP_LL_DATA, true, 32 },
    [LL128]  = { 14, true, 64 },     /* 16 bytes a thread, seven of eight with data */
};

static size_t bound(const rcclx_gpu_picker *p, int proto)
{
    if (proto == SIMPLE)
        return NO_BOUND;
    if (p->limit[proto])
        return p->limit[proto];
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
        if (p->nranks >= bounds[i].from && p->nranks <= bounds[i].to)
            return proto == LL ? bounds[i].ll : bounds[i].ll128;
    return 0;
}

static int index_of(const rcclx_algo *a)
{
    int i = 0;

    while (rcclx_algos[i] && rcclx_algos[i] != a)
        i++;
    return i;
}

/* Which rows may run a kind at all, and which of them are allowed. */
static void sort_out(rcclx_gpu_picker *p, rcclx_kind kind)
{
    const rcclx_algo_wish wish = rcclx_algo_list_wish(p->forced, kind);

    for (int i = 0; i < NROWS; i++) {
        const struct row *row = &rows[i];
        const rcclx_algo *a = p->algo[i];
        const bool by_name = !row->upto;
        if (!a || !(row->kinds >> kind & 1) || !(a->kinds >> kind & 1) || p->nranks < row->from || p->nranks > row->to)
            continue;
        if (!(p->safe >> row->proto & 1))
            continue;
        if (kind == RCCLX_ALL_TO_ALL && a->flags & RCCLX_NEEDS_APART && !row->behind)
            continue; /* whether IN and OUT overlap is known to one rank alone */
        if (rcclx_kind_reduces(kind) && p->ordered && !(a->flags & RCCLX_HAS_ORDER))
            continue;
        if (!by_name)
            p->able[kind] |= 1u << i;
        if ((!by_name || wish.forces) && p->protos >> row->proto & 1 && (!wish.forces || wish.allowed >> index_of(a) & 1))
            p->allowed[kind] |= 1u << i;
    }
}

void rcclx_gpu_picker_start(rcclx_gpu_picker *p)
{
    for (int i = 0; i < NROWS; i++)
        p->algo[i] = rcclx_algo_find(rows[i].algo), p->behind[i] = rows[i].behind ? rcclx_algo_find(rows[i].behind) : NULL;
    for (int k = 0; k < RCCLX_COLL_COUNT; k++)
        sort_out(p, (rcclx_kind)k);
}

static rcclx_status ready_of(rcclx_gpu_picker *p, int form, const rcclx_shape *s, rcclx_ready **r)
{
    rcclx_ready **at = &p->ready[s->kind][form][rcclx_kind_rooted(s->kind) ? s->root : 0];

    if (!*at)
        RCCLX_TRY(rcclx_ready_make(at, s, p->algo[form], p->behind[form]));
    *r = *at;
    return RCCLX_OK;
}

static bool in_slot(const rcclx_gpu_picker *p, const rcclx_ready *r, size_t nbytes)
{
    return r->plan[0].shape.proto == RCCLX_PROTO_SIMPLE ||
           rcclx_ready_longest(r, 0, nbytes) <= rcclx_ready_slot(r, 0, &p->at, p->line);
}

static bool in_bounds(const rcclx_gpu_picker *p, const struct row *row, size_t nbytes)
{
    return !row->upto || ((nbytes > row->above || !row->above) && nbytes <= row->upto && nbytes <= bound(p, row->proto));
}

/* The first row that may run; -1: none. pass as above. */
static rcclx_status find(rcclx_gpu_picker *p, const rcclx_shape *s, size_t nbytes, bool wide, int pass, int *form)
{
    const unsigned may = pass < 3 ? p->allowed[s->kind] : p->able[s->kind];

    *form = -1;
    for (int i = 0; i < NROWS; i++) {
        rcclx_ready *r;
        if (!(may >> i & 1) || rows[i].coded != s->coded || (pass != 2 && !in_bounds(p, &rows[i], nbytes)))
            continue;
        if ((wide && !(p->algo[i]->flags & RCCLX_HAS_ORDER)) || (p->algo[i]->can && !p->algo[i]->can(s)))
            continue;
        const rcclx_status made = ready_of(p, i, s, &r);
        if (made == RCCLX_NOMEM)
            return made; /* the others may find the memory: a choice among fewer would differ from theirs */
        if (made != RCCLX_OK)
            p->able[s->kind] &= ~(1u << i), p->allowed[s->kind] &= ~(1u << i); /* too long, on all ranks alike */
        if (made != RCCLX_OK || !in_slot(p, r, nbytes))
            continue;
        *form = i;
        break;
    }
    return RCCLX_OK;
}

static int lanes_for(const rcclx_gpu_picker *p, const rcclx_ready *r, size_t nbytes)
{
    const rcclx_plan *plan = &r->plan[0].shape;
    const size_t each = lanes[plan->proto].bytes * (lanes[plan->proto].a_thread ? (size_t)p->threads : 1);
    size_t share = rcclx_ready_longest(r, 0, nbytes);
    int most = p->lanes_cap ? p->lanes_cap : lanes[plan->proto].most;

    if (plan->cut == RCCLX_CUT_EVEN && plan->proto == SIMPLE && p->nranks > 2)
        share *= ((size_t)p->nranks - 1) * plan->parts;
    else if (plan->nblocks > p->nranks)
        share *= plan->nblocks / (size_t)p->nranks; /* a rank's blocks */
    if (plan->cut == RCCLX_CUT_EVEN && plan->proto != SIMPLE && p->nranks > 2)
        share *= (size_t)p->nranks; /* blocks of all ranks at the same time */
    const size_t want = (share + each - 1) / each;
    const int room = plan->shape.coded ? p->coded_most : p->lanes_most;
    if (plan->shape.coded && !p->lanes_cap)
        most = room;
    most = most < room ? most : room;
    const int n = want < (size_t)most ? (int)want : most;
    return n > p->lanes_least ? n : p->lanes_least;
}

static void tell(rcclx_gpu_picker *p, const rcclx_shape *s, size_t nbytes, int form, int nlanes, int pass)
{
    static const char *const protos[] = { "Simple", "LL", "LL128" };
    const int class = nbytes > 1 ? 64 - __builtin_clzll(nbytes - 1) : 0;
    uint8_t *told = &p->told[s->kind][class];

    if (*told == form + 1)
        return;
    *told = (uint8_t)(form + 1);
    if (pass == 3)
        RCCLX_INFO_LOG(TUNING, "rank %d: %s of %zu bytes: the algorithm or protocol asked for does not fit", p->rank,
                       rcclx_kind_name(s->kind), nbytes);
    RCCLX_INFO_LOG(TUNING, "%s: %zu Bytes -> Algo %s%s%s proto %s channel{Lo..Hi}={0..%d}", rcclx_kind_name(s->kind), nbytes,
                   rows[form].algo, rows[form].behind ? ", else " : "", rows[form].behind ? rows[form].behind : "",
                   protos[rows[form].proto], nlanes - 1);
}

rcclx_status rcclx_gpu_pick(rcclx_gpu_picker *p, const rcclx_gpu_wish *wish, const rcclx_ready **ready, int *nlanes)
{
    const rcclx_shape s = { wish->kind, p->nranks, p->rank, wish->root, wish->coded, NULL };
    rcclx_ready *r;
    int form = -1, pass = 1;

    for (; form < 0 && pass <= 3; pass++)
        RCCLX_TRY(find(p, &s, wish->nbytes, wish->wide, pass, &form));
    if (form < 0)
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "rank %d: %s of %zu bytes on %d ranks: no plan fits a kernel's arguments", p->rank,
                          rcclx_kind_name(wish->kind), wish->nbytes, p->nranks);
    RCCLX_TRY(ready_of(p, form, &s, &r));
    *ready = r;
    *nlanes = lanes_for(p, r, wish->nbytes);
    tell(p, &s, wish->nbytes, form, *nlanes, pass - 1);
    return RCCLX_OK;
}

/* In low precision a wave's slots have to take some elements at least: with many ranks blocks have fewer waves. */
int rcclx_gpu_threads(const rcclx_gpu_picker *p, const rcclx_ready *r)
{
    const rcclx_plan *plan = &r->plan[0].shape;
    int n = p->threads;

    while (plan->shape.coded && plan->nslots && n > p->wave &&
           (n / p->wave > GP_WAVES ||
            !rcclx_codec_fits(GP_STAGE(p->at.stage_bytes, (unsigned)(GP_CODED_BLOCKS * (n / p->wave))) / plan->nslots & ~(size_t)127)))
        n /= 2;
    return n;
}

rcclx_gpu_lanes rcclx_gpu_lanes_of(const rcclx_gpu_picker *p, const rcclx_ready *r, int nblocks)
{
    const int nlanes = r->plan[0].shape.shape.coded ? nblocks * (rcclx_gpu_threads(p, r) / p->wave) : nblocks;

    return (rcclx_gpu_lanes){ nlanes, r->plan[0].shape.shape.coded ? GP_STAGE(p->at.stage_bytes, (unsigned)nlanes) : p->at.stage_bytes };
}

void rcclx_gpu_picker_fini(rcclx_gpu_picker *p)
{
    for (int k = 0; k < RCCLX_COLL_COUNT; k++)
        for (int f = 0; f < RCCLX_FORMS; f++)
            for (int r = 0; r < GP_RANKS; r++)
                rcclx_mem_free(p->ready[k][f][r]);
}
