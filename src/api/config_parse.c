/* Settings from structures of every age.
 *
 * NCCL's configuration grew at its end, version after version:
 *
 *   bytes   0        16   20      32      40    48     56     72    80   88    96     112
 *           +--------+----+-------+-------+-----+------+------+-----+----+-----+------+
 *           | header |2.14| 2.17  |netName|2.18 | name | 2.27 |2.28 |2.29|2.30 | 2.31 |
 *           +--------+----+-------+-------+-----+------+------+-----+----+-----+------+
 *            size magic version           ^ trafficClass (2.26) and graphStreamOrdering
 *                                           (2.30.5) were put into old padding
 *
 * A field is believed only if the structure is long enough AND its version knew
 * the field: what an older program has there is padding, or, in one fork of
 * RCCL, a pointer called commDesc where 2.29 has two integers. Everything is
 * one row below: where, since when, which values, which default, and the
 * environment variable that wins over it. */
#include "api/config_parse.h"

#include "base/log.h"
#include "base/option.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

enum { MAGIC = (int)0xcafebeef, SIZE_LEAST = 24, SIZE_MOST = 4096, CTAS_MOST = 64, POLICY_EFFICIENCY = 1, POLICY_ZERO = 2 };

/* The newest layout known here (2.31). */
typedef struct {
    size_t      size;
    unsigned    magic, version;
    int         blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
    int         splitShare, trafficClass;
    const char *commName;
    int         collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched;
    int         graphUsageMode, numRmaCtx, maxP2pPeers, graphStreamOrdering;
    int         launchOrderImplicit, numRmaSig, rmaEagerInit, hostCftMode;
} wire;
_Static_assert(sizeof(wire) == 112, "the 2.31 layout");

#define UNSET RCCLX_CONFIG_UNSET
#define NONE  RCCLX_OPT_COUNT

/*    field                since  least  most       default  environment */
#define FIELDS(X)                                                             \
    X(blocking,            21400, 0,     1,         1,       RCCLX_OPT_COMM_BLOCKING) \
    X(cgaClusterSize,      21700, 0,     8,         4,       RCCLX_OPT_CGA_CLUSTER_SIZE) \
    X(minCTAs,             21700, 1,     INT_MAX,   UNSET,   RCCLX_OPT_MIN_CTAS) \
    X(maxCTAs,             21700, 1,     INT_MAX,   UNSET,   RCCLX_OPT_MAX_CTAS) \
    X(splitShare,          21800, 0,     1,         0,       NONE)            \
    X(trafficClass,        22600, 0,     INT_MAX,   UNSET,   NONE)            \
    X(collnetEnable,       22700, 0,     1,         0,       NONE)            \
    X(CTAPolicy,           22700, 0,     3,         0,       NONE)            \
    X(shrinkShare,         22700, 0,     1,         0,       NONE)            \
    X(nvlsCTAs,            22700, 1,     INT_MAX,   UNSET,   NONE)            \
    X(nChannelsPerNetPeer, 22800, 1,     CTAS_MOST, UNSET,   NONE)            \
    X(nvlinkCentricSched,  22800, 0,     1,         0,       NONE)            \
    X(graphUsageMode,      22900, 0,     2,         2,       NONE)            \
    X(numRmaCtx,           22900, 0,     INT_MAX,   1,       NONE)            \
    X(maxP2pPeers,         23000, 1,     INT_MAX,   UNSET,   NONE)            \
    X(graphStreamOrdering, 23005, 0,     1,         1,       NONE)            \
    X(launchOrderImplicit, 23100, 0,     1,         0,       NONE)            \
    X(numRmaSig,           23100, 1,     INT_MAX,   1,       NONE)            \
    X(rmaEagerInit,        23100, 0,     1,         0,       NONE)            \
    X(hostCftMode,         23100, 1,     3,         UNSET,   NONE)

static const struct row {
    const char *name;
    size_t      from, into; /* offsets in wire and in the result */
    unsigned    since;
    int         least, most, otherwise;
    int         env;
} rows[] = {
#define X(field, since, least, most, otherwise, env)                          \
    { #field, offsetof(wire, field), offsetof(rcclx_comm_config, field), since, least, most, otherwise, env },
    FIELDS(X)
#undef X
};
enum { NROWS = sizeof rows / sizeof rows[0] };

static int *field(rcclx_comm_config *c, const struct row *r)
{
    return (int *)(void *)((char *)c + r->into);
}

/* The structure begins with its size; nothing beyond size and magic is touched
 * before both are right. */
static rcclx_status read_header(const char *call, int rank, const void *user, wire *in)
{
    memcpy(in, user, offsetof(wire, version));
    if (in->magic != (unsigned)MAGIC)
        return RCCLX_FAIL(RCCLX_ARGUMENT,
                          "rank %d: %s: config has magic 0x%x instead of 0x%x; start it from NCCL_CONFIG_INITIALIZER",
                          rank, call, in->magic, (unsigned)MAGIC);
    if (in->size < SIZE_LEAST || in->size > SIZE_MOST)
        return RCCLX_FAIL(RCCLX_ARGUMENT,
                          "rank %d: %s: config->size is %zu, no version of the structure has fewer than %d or more "
                          "than %d bytes; start it from NCCL_CONFIG_INITIALIZER",
                          rank, call, in->size, SIZE_LEAST, SIZE_MOST);
    const size_t size = in->size;
    memcpy(in, user, size < sizeof *in ? size : sizeof *in);
    in->size = size;
    return RCCLX_OK;
}

static bool known(const wire *in, size_t end, unsigned since)
{
    return in->size >= end && in->version >= since;
}

static rcclx_status read_numbers(const char *call, int rank, const wire *in, rcclx_comm_config *out)
{
    for (int i = 0; i < NROWS; i++) {
        const struct row *r = &rows[i];
        int               v = UNSET;

        if (known(in, r->from + sizeof v, r->since))
            memcpy(&v, (const char *)in + r->from, sizeof v);
        if (v == UNSET)
            continue;
        if (v < r->least || v > r->most)
            return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: config->%s is %d, allowed are %d..%d; leave it at "
                              "NCCL_CONFIG_UNDEF_INT for the default", rank, call, r->name, v, r->least, r->most);
        *field(out, r) = v;
    }
    if (out->minCTAs != UNSET && out->maxCTAs != UNSET && out->minCTAs > out->maxCTAs)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: config->minCTAs is %d, above config->maxCTAs, which is %d; "
                          "swap them or set only one", rank, call, out->minCTAs, out->maxCTAs);
    return RCCLX_OK;
}

static void copy_name(const char *call, const char *what, const char *from, char *into, size_t n)
{
    const size_t len = strnlen(from, n);

    if (len == n)
        RCCLX_WARN_LOG("%s: config->%s is longer than %zu characters and was cut", call, what, n - 1);
    memcpy(into, from, len < n ? len : n - 1);
    into[len < n ? len : n - 1] = 0;
}

static void read_names(const char *call, const wire *in, rcclx_comm_config *out)
{
    if (known(in, offsetof(wire, splitShare), 21700) && in->netName)
        copy_name(call, "netName", in->netName, out->netName, sizeof out->netName);
    if (known(in, offsetof(wire, collnetEnable), 22700) && in->commName)
        copy_name(call, "commName", in->commName, out->commName, sizeof out->commName);
}

/* NCCL_CTA_POLICY: names between '|', or the number. -1: neither. */
static int read_policy(const char *text)
{
    static const char *const names[] = { "DEFAULT", "EFFICIENCY", "ZERO" };
    int                      policy  = 0;

    if (*text >= '0' && *text <= '3' && text[1] == 0)
        return *text - '0';
    for (;;) {
        const size_t len  = strcspn(text, "|");
        int          word = -1;

        for (int i = 0; i < 3; i++)
            if (strlen(names[i]) == len && strncasecmp(text, names[i], len) == 0)
                word = i;
        if (word < 0)
            return -1;
        policy |= word;
        if (text[len] == 0)
            return policy;
        text += len + 1;
    }
}

/* A variable wins over the structure. */
static void apply_environment(const char *call, rcclx_comm_config *out)
{
    for (int i = 0; i < NROWS; i++) {
        const struct row *r = &rows[i];

        if (r->env == NONE || !rcclx_option_is_set((rcclx_option)r->env))
            continue;
        const int64_t v = rcclx_option_int((rcclx_option)r->env);
        if (v >= r->least && v <= r->most)
            *field(out, r) = (int)v;
    }
    if (rcclx_option_is_set(RCCLX_OPT_CTA_POLICY)) {
        const int policy = read_policy(rcclx_option_str(RCCLX_OPT_CTA_POLICY));

        if (policy >= 0)
            out->CTAPolicy = policy;
        else
            RCCLX_WARN_LOG("NCCL_CTA_POLICY is '%s', allowed are DEFAULT, EFFICIENCY and ZERO, joined by |; ignored",
                           rcclx_option_str(RCCLX_OPT_CTA_POLICY));
    }
    const char *net = rcclx_option_str(RCCLX_OPT_NET);
    if (*net)
        copy_name(call, "netName (from NCCL_NET)", net, out->netName, sizeof out->netName);
}

static void settle(rcclx_comm_config *out)
{
    for (int i = 0; i < NROWS; i++)
        if (*field(out, &rows[i]) == UNSET)
            *field(out, &rows[i]) = rows[i].otherwise;
    if (out->maxCTAs == UNSET || out->maxCTAs > CTAS_MOST)
        out->maxCTAs = CTAS_MOST;
    if (out->minCTAs == UNSET)
        out->minCTAs = 1;
    if (out->minCTAs > out->maxCTAs)
        out->minCTAs = out->maxCTAs;
    if (out->CTAPolicy & POLICY_ZERO)
        out->CTAPolicy &= ~POLICY_EFFICIENCY;
}

rcclx_status rcclx_config_parse(const char *call, int rank, const void *user, const rcclx_comm_config *parent,
                                rcclx_comm_config *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < NROWS; i++)
        *field(out, &rows[i]) = UNSET;
    if (user) {
        wire in = { 0 };
        RCCLX_TRY(read_header(call, rank, user, &in));
        RCCLX_TRY(read_numbers(call, rank, &in, out));
        read_names(call, &in, out);
    } else if (parent) {
        *out = *parent;
    }
    apply_environment(call, out);
    settle(out);
    return RCCLX_OK;
}
