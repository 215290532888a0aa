/* Full precision or low: settled when an operation is posted.
 *
 *   the call's wish ----------------------------------> codec, or an error
 *   the team's codec --> kind? --> can it be coded? --> large enough? --> codec
 *                          |no         |no (log)            |no
 *                          +-----------+--------------------+------> none
 *
 * Coding costs time at both ends and saves it on the wire, so below some size it does not pay. The
 * table says where; who names a minimum himself is believed on every device. */
#include "exec/precision.h"

#include "exec/runner.h"

#include "base/log.h"
#include "base/option.h"

#include <stdio.h>

#define BIT(k) (1u << RCCLX_##k)

enum { ALL_KINDS = (1 << RCCLX_KIND_COUNT) - 1 };

const char *rcclx_precision_name(int codec)
{
    return codec == RCCLX_CODEC_NONE ? "off" : (unsigned)codec < RCCLX_CODEC_COUNT ? rcclx_codecs[codec]->name : "?";
}

/* --- what the team says ------------------------------------------------------------ */

enum { BY_NOBODY, BY_OPTION, BY_RCCL, BY_CALL };

const char *rcclx_precision_from(const rcclx_team *t)
{
    static const char *const names[] = { [BY_NOBODY] = "nobody asked", [BY_OPTION] = "RCCLX_LOW_PRECISION",
                                         [BY_RCCL] = "RCCL_LOW_PRECISION_ENABLE", [BY_CALL] = "rcclxCommSetLowPrecision" };

    return names[t->precision.from];
}

/* RCCL's switches know one codec; ours names it, and wins. */
void rcclx_precision_decide(rcclx_agreed *a)
{
    static const struct { rcclx_option option; uint16_t kinds; } switches[] = {
        { RCCLX_OPT_LP_ALL, ALL_KINDS },
        { RCCLX_OPT_LP_ALLREDUCE, BIT(ALL_REDUCE) },
        { RCCLX_OPT_LP_ALLGATHER, BIT(ALL_GATHER) },
        { RCCLX_OPT_LP_REDUCESCATTER, BIT(REDUCE_SCATTER) },
        { RCCLX_OPT_LP_ALLTOALL, BIT(ALL_TO_ALL) },
    };

    a->codec = RCCLX_CODEC_NONE;
    a->codec_from = BY_NOBODY;
    a->codec_kinds = 0;
    a->codec_min = (uint64_t)rcclx_option_int(RCCLX_OPT_LOW_PRECISION_MIN_BYTES);
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
        if (rcclx_option_int(switches[i].option))
            a->codec_kinds |= switches[i].kinds;
    if (rcclx_option_is_set(RCCLX_OPT_LOW_PRECISION)) {
        a->codec = (int32_t)rcclx_option_int(RCCLX_OPT_LOW_PRECISION);
        a->codec_from = BY_OPTION;
        a->codec_kinds = ALL_KINDS;
    } else if (a->codec_kinds) {
        a->codec = RCCLX_CODEC_FP8;
        a->codec_from = BY_RCCL;
    }
}

static void put(rcclx_team *t, int codec, int from, uint32_t kinds, uint64_t min_bytes)
{
    rcclx_precision *p = &t->precision;

    atomic_store_explicit(&p->min_bytes, min_bytes, memory_order_relaxed);
    atomic_store_explicit(&p->kinds, (uint16_t)kinds, memory_order_relaxed);
    atomic_store_explicit(&p->from, (uint8_t)from, memory_order_relaxed);
    atomic_store_explicit(&p->codec, (uint8_t)codec, memory_order_relaxed);
}

void rcclx_precision_agree(rcclx_team *t, const rcclx_agreed *a)
{
    put(t, a->codec, a->codec_from, a->codec_kinds, a->codec_min);
}

void rcclx_precision_set(rcclx_team *t, rcclx_codec_id codec, size_t min_bytes)
{
    put(t, (int)codec, BY_CALL, ALL_KINDS, min_bytes);
}

void rcclx_precision_words(const rcclx_team *t, char *text, size_t nbytes)
{
    const rcclx_precision *p = &t->precision;
    int at = snprintf(text, nbytes, "%s", rcclx_precision_name(p->codec));

    for (int k = 0; p->codec && p->kinds != ALL_KINDS && k < RCCLX_KIND_COUNT; k++)
        if (p->kinds >> k & 1)
            at += snprintf(text + at, nbytes - (size_t)at, " %s", rcclx_kind_name((rcclx_kind)k));
    if (p->codec && p->min_bytes)
        at += snprintf(text + at, nbytes - (size_t)at, " from %llu bytes on", (unsigned long long)p->min_bytes);
    else if (p->codec)
        at += snprintf(text + at, nbytes - (size_t)at, " %s",
                       t->driver ? "where it pays" : "but not on the host without a minimum");
    snprintf(text + at, nbytes - (size_t)at, " (%s)", rcclx_precision_from(t));
}

/* --- from which size on --------------------------------------------------------------- */

enum { ANY = 2 | 4 }; /* sizes of types: a sum */

/* The first row that fits. Host memory has none: there, coding is slower than copying. */
static const struct {
    uint16_t kinds;
    uint8_t  from, to; /* ranks */
    uint8_t  sizes;    /* of the type, a sum */
    size_t   bytes;    /* never below 1 MiB */
} crossover[] = {
    { BIT(ALL_REDUCE),                                           2, 2,               4, (size_t)4 << 20 },
    { BIT(ALL_REDUCE),                                           2, 2,               2, (size_t)8 << 20 },
    { BIT(ALL_REDUCE),                                           3, RCCLX_GPU_RANKS, 4, (size_t)8 << 20 },
    { BIT(REDUCE_SCATTER) | BIT(ALL_GATHER) | BIT(BROADCAST),    2, 2,               4, (size_t)8 << 20 },
    { BIT(ALL_REDUCE) | BIT(REDUCE_SCATTER) | BIT(ALL_GATHER) | BIT(ALL_TO_ALL) | BIT(BROADCAST),
                                                                 2, RCCLX_GPU_RANKS, 4, (size_t)16 << 20 },
    { BIT(ALL_REDUCE) | BIT(REDUCE_SCATTER) | BIT(ALL_GATHER) | BIT(BROADCAST),
                                                                 2, RCCLX_GPU_RANKS, 2, (size_t)16 << 20 },
    { BIT(ALL_TO_ALL),                                           2, RCCLX_GPU_RANKS, 2, (size_t)32 << 20 },
    { BIT(ALL_TO_ALLV) | BIT(SEND) | BIT(RECV),                  2, RCCLX_GPU_RANKS, ANY, (size_t)16 << 20 },
};

size_t rcclx_precision_minimum(const rcclx_team *t, rcclx_kind kind, rcclx_type type)
{
    const uint64_t named = atomic_load_explicit(&t->precision.min_bytes, memory_order_relaxed);

    if (named)
        return named;
    for (size_t i = 0; t->driver && i < sizeof crossover / sizeof *crossover; i++)
        if (crossover[i].kinds >> kind & 1 && t->nranks >= crossover[i].from && t->nranks <= crossover[i].to &&
            crossover[i].sizes & rcclx_type_size(type))
            return crossover[i].bytes;
    return SIZE_MAX;
}

/* --- one operation -------------------------------------------------------------------- */

enum { FIT, KIND, TYPE, OPERATOR, BIAS, ALONE, MESSAGE };

static const char *const why[] = {
    [KIND] = "there is no low precision for this collective; AllReduce, ReduceScatter, AllGather, Broadcast, AlltoAll, "
             "AlltoAllv, Send and Recv have it",
    [TYPE] = "only float, bfloat16 and half have a low precision",
    [OPERATOR] = "only sum and avg have a low precision",
    [BIAS] = "with a bias there is no low precision",
    [ALONE] = "one rank sends nothing",
    [MESSAGE] = "messages between GPUs have no low precision yet: on hardware it has not passed its tests",
};

static int fitness(const rcclx_op *op)
{
    const bool message = op->kind == RCCLX_ALL_TO_ALLV || op->kind >= RCCLX_COLL_COUNT;

    if (message && op->team->driver && op->team->driver->kind != RCCLX_GPU_EMU)
        return MESSAGE;
    if (1u << op->kind & (BIT(REDUCE_TO) | BIT(GATHER) | BIT(SCATTER)))
        return KIND;
    if (!rcclx_codec_takes(op->type))
        return TYPE;
    if (rcclx_kind_reduces(op->kind) && op->op != RCCLX_SUM && op->op != RCCLX_AVG)
        return OPERATOR;
    return op->bias ? BIAS : op->team->nranks == 1 ? ALONE : FIT;
}

/* Once a communicator and cause: a program makes the same call a million times. */
static void tell(rcclx_team *t, const rcclx_op *op, int unfit)
{
    char words[160];

    if (atomic_fetch_or_explicit(&t->precision.told, 1u << unfit, memory_order_relaxed) & 1u << unfit)
        return;
    rcclx_call_words(rcclx_signature(op), op->count, words, sizeof words);
    RCCLX_INFO_LOG(TUNING, "rank %d: %s goes in full precision: %s", t->rank, words, why[unfit]);
}

/* Bytes of the longest buffer of any rank; of a message. */
static size_t longest(const rcclx_op *op)
{
    const bool all = 1u << op->kind & (BIT(ALL_GATHER) | BIT(REDUCE_SCATTER) | BIT(ALL_TO_ALL));

    return op->count * rcclx_type_size(op->type) * (all ? (size_t)op->team->nranks : 1);
}

static rcclx_status resolve_wish(rcclx_op *op)
{
    const int codec = op->precision - 1, unfit = fitness(op);
    char words[160];

    if (codec == RCCLX_CODEC_NONE || unfit == ALONE)
        return RCCLX_OK;
    if (unfit) {
        rcclx_call_words(rcclx_signature(op), op->count, words, sizeof words);
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s in %s: %s; leave RCCLX_OPTION_LOW_PRECISION away or set it to \"off\"",
                          op->team->rank, words, rcclx_precision_name(codec), why[unfit]);
    }
    op->codec = (uint8_t)codec;
    op->coded_from = 1;
    return RCCLX_OK;
}

static void resolve_policy(rcclx_op *op)
{
    rcclx_team *t = op->team;
    const int codec = atomic_load_explicit(&t->precision.codec, memory_order_relaxed);

    if (!(atomic_load_explicit(&t->precision.kinds, memory_order_relaxed) >> op->kind & 1))
        return;
    const int unfit = fitness(op);
    if (unfit) {
        tell(t, op, unfit);
        return;
    }
    op->codec = (uint8_t)codec;
    op->coded_from = rcclx_precision_minimum(t, op->kind, op->type);
}

/* Anything to encode? An all-to-all-v has as many lengths as messages, and is asked one by one. */
static bool any_coded(const rcclx_op *op)
{
    if (op->kind == RCCLX_ALL_TO_ALLV)
        return op->coded_from != SIZE_MAX;
    return op->count && longest(op) >= op->coded_from && !(op->kind >= RCCLX_COLL_COUNT && op->root == op->team->rank);
}

rcclx_status rcclx_op_resolve_asked(rcclx_op *op)
{
    if (op->precision)
        RCCLX_TRY(resolve_wish(op));
    else
        resolve_policy(op);
    if (op->codec && !any_coded(op))
        op->codec = RCCLX_CODEC_NONE;
    if (op->codec)
        atomic_fetch_add_explicit(&op->team->coded[op->kind], 1, memory_order_relaxed);
    return RCCLX_OK;
}
