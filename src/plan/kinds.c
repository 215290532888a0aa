/* The collectives' names, one row each. */
#include "plan/plan.h"

#include <string.h>
#include <strings.h>

static const struct {
    const char *name, *word;
    bool        rooted, reduces;
} kinds[RCCLX_KIND_COUNT] = {
    [RCCLX_ALL_REDUCE]     = { "AllReduce",     "all_reduce",     false, true },
    [RCCLX_REDUCE_TO]      = { "Reduce",        "reduce",         true,  true },
    [RCCLX_BROADCAST]      = { "Broadcast",     "broadcast",      true,  false },
    [RCCLX_ALL_GATHER]     = { "AllGather",     "all_gather",     false, false },
    [RCCLX_REDUCE_SCATTER] = { "ReduceScatter", "reduce_scatter", false, true },
    [RCCLX_ALL_TO_ALL]     = { "AlltoAll",      "alltoall",       false, false },
    [RCCLX_ALL_TO_ALLV]    = { "AlltoAllv",     "alltoallv",      false, false },
    [RCCLX_GATHER]         = { "Gather",        "gather",         true,  false },
    [RCCLX_SCATTER]        = { "Scatter",       "scatter",        true,  false },
    [RCCLX_SEND]           = { "Send",          "send",           false, false },
    [RCCLX_RECV]           = { "Recv",          "recv",           false, false },
};

const char *rcclx_kind_name(rcclx_kind k)
{
    return (unsigned)k < RCCLX_KIND_COUNT ? kinds[k].name : "unknown";
}

const char *rcclx_kind_word(rcclx_kind k)
{
    return (unsigned)k < RCCLX_KIND_COUNT ? kinds[k].word : "unknown";
}

int rcclx_kind_find(const char *word)
{
    for (int k = 0; k < RCCLX_KIND_COUNT; k++)
        if (!strcasecmp(word, kinds[k].name) || !strcasecmp(word, kinds[k].word))
            return k;
    return -1;
}

bool rcclx_kind_rooted(rcclx_kind k)
{
    return (unsigned)k < RCCLX_KIND_COUNT && kinds[k].rooted;
}

bool rcclx_kind_reduces(rcclx_kind k)
{
    return (unsigned)k < RCCLX_KIND_COUNT && kinds[k].reduces;
}
