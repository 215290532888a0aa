/* The collectives' names, one row each. */
#include "plan/plan.h"

#include <string.h>
#include <strings.h>

static const struct {
    const char *name, *word;
} kinds[RCCLX_KIND_COUNT] = {
    [RCCLX_ALL_REDUCE]     = { "AllReduce", "all_reduce" },
    [RCCLX_REDUCE_TO]      = { "Reduce", "reduce" },
    [RCCLX_BROADCAST]      = { "Broadcast", "broadcast" },
    [RCCLX_ALL_GATHER]     = { "AllGather", "all_gather" },
    [RCCLX_REDUCE_SCATTER] = { "ReduceScatter", "reduce_scatter" },
    [RCCLX_ALL_TO_ALL]     = { "AlltoAll", "alltoall" },
    [RCCLX_ALL_TO_ALLV]    = { "AlltoAllv", "alltoallv" },
    [RCCLX_GATHER]         = { "Gather", "gather" },
    [RCCLX_SCATTER]        = { "Scatter", "scatter" },
    [RCCLX_SEND]           = { "Send", "send" },
    [RCCLX_RECV]           = { "Recv", "recv" },
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
