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

#include "base/log.h"

enum { FIT, KIND, TYPE, OPERATOR, BIAS, ALONE };

static const char *const why[] = {
    [KIND] = "there is no low precision for this collective; AllReduce, ReduceScatter, AllGather, Broadcast, AlltoAll, AlltoAllv, "
             "Send and Recv have it",
    [TYPE] = "only float, bfloat16 and half have a low precision",
    [OPERATOR] = "only sum and avg have a low precision",
    [BIAS] = "with a bias there is no low precision",
    [ALONE] = "one rank sends nothing",
};

#define BIT(k) (1u << RCCLX_##k)
enum { ANY = 2 | 4 }; /* sizes of types: a sum */

/* The first row that fits. Host memory has none: there, coding is slower than copying. */
static const struct {
    uint16_t kinds;
    uint8_t  from, to; /* ranks */
    uint8_t  sizes;    /* of the type, a sum */
    size_t   bytes;    /* never below 1 MiB */
} crossover[] = {
    { BIT(ALL_REDUCE) | BIT(REDUCE_SCATTER) | BIT(ALL_GATHER) | BIT(ALL_TO_ALL) | BIT(BROADCAST), 2, RCCLX_GPU_RANKS, ANY,
      (size_t)4 << 20 },
    { BIT(ALL_TO_ALLV) | BIT(SEND) | BIT(RECV), 2, RCCLX_GPU_RANKS, ANY, (size_t)8 << 20 },
};

const char *rcclx_precision_name(int codec)
{
    static const char *const names[] = { "off", "fp8", "int8" };

    return (unsigned)codec < RCCLX_CODEC_COUNT ? names[codec] : "?";
}

const char *rcclx_precision_from(int from)
{
    static const char *const names[] = { "nobody asked", "RCCLX_LOW_PRECISION", "RCCL_LOW_PRECISION_ENABLE",
                                         "rcclxCommSetLowPrecision" };

    return (unsigned)from < sizeof names / sizeof *names ? names[from] : "?";
}

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

static int fitness(const rcclx_op *op)
{
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
    if (atomic_fetch_or_explicit(&t->precision.told, 1u << unfit, memory_order_relaxed) & 1u << unfit)
        return;
    RCCLX_INFO_LOG(TUNING, "rank %d: %s of %s %s goes in full precision: %s", t->rank, rcclx_kind_name(op->kind),
                   rcclx_type_name(op->type), rcclx_kind_reduces(op->kind) ? rcclx_redop_name(op->op) : "", why[unfit]);
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

    if (codec == RCCLX_CODEC_NONE || unfit == ALONE)
        return RCCLX_OK;
    if (unfit)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s of %s%s%s in %s: %s; leave RCCLX_OPTION_LOW_PRECISION away or set it to "
                          "\"off\"", op->team->rank, rcclx_kind_name(op->kind), rcclx_type_name(op->type),
                          rcclx_kind_reduces(op->kind) ? " " : "",
                          rcclx_kind_reduces(op->kind) ? rcclx_redop_name(op->op) : "", rcclx_precision_name(codec), why[unfit]);
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

rcclx_status rcclx_op_resolve_asked(rcclx_op *op)
{
    const bool message = op->kind >= RCCLX_COLL_COUNT;

    if (op->precision)
        RCCLX_TRY(resolve_wish(op));
    else
        resolve_policy(op);
    /* an all-to-all-v has as many lengths as messages, and decides one by one */
    if (op->codec && op->kind != RCCLX_ALL_TO_ALLV &&
        (!op->count || longest(op) < op->coded_from || (message && op->root == op->team->rank)))
        op->codec = RCCLX_CODEC_NONE;
    if (op->codec)
        atomic_fetch_add_explicit(&op->team->coded[op->kind], 1, memory_order_relaxed);
    return RCCLX_OK;
}
