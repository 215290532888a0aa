/* Kinds of schedules, a row each, and what they share. */
#include "topo/yard.h"

#include "base/log.h"
#include "base/mem.h"

static const struct {
    const char *name;
    rcclx_status (*find)(rcclx_schedule *s, rcclx_field *f);
} kinds[RCCLX_SCHEDULE_COUNT] = {
    [RCCLX_RINGS] = { "rings", rcclx_find_rings },
    [RCCLX_TREES] = { "trees", rcclx_find_trees },
    [RCCLX_RAILS] = { "rails", rcclx_find_rails },
    [RCCLX_SWAPS] = { "swaps", rcclx_find_swaps },
};

const char *rcclx_schedule_name(rcclx_schedule_kind k)
{
    return kinds[k].name;
}

rcclx_status rcclx_schedule_find(rcclx_schedule *s, rcclx_schedule_kind kind, const rcclx_share *nodes, int nnodes)
{
    rcclx_field f;

    *s = (rcclx_schedule){ .kind = kind };
    RCCLX_TRY(rcclx_field_open(&f, nodes, nnodes, nnodes > 1 || kind == RCCLX_RAILS));
    const rcclx_status status = kinds[kind].find(s, &f);
    rcclx_field_close(&f);
    if (status != RCCLX_OK)
        rcclx_schedule_fini(s);
    return status;
}

rcclx_status rcclx_schedule_make(rcclx_schedule *s, rcclx_schedule_kind kind, int nranks, int nnodes, int nchannels)
{
    const int nports = kind == RCCLX_SWAPS ? nranks : nchannels * nnodes;

    *s = (rcclx_schedule){ .kind = kind, .nranks = nranks, .nnodes = nnodes };
    s->rows = rcclx_mem_alloc(((size_t)nchannels * (size_t)nranks + 1) * sizeof(int));
    s->ports = rcclx_mem_alloc(((size_t)nports + 1) * sizeof(int));
    if (s->rows && s->ports)
        return RCCLX_OK;
    rcclx_schedule_fini(s);
    return RCCLX_FAIL(RCCLX_NOMEM, "no memory for a schedule");
}

void rcclx_schedule_fini(rcclx_schedule *s)
{
    rcclx_mem_free(s->rows);
    rcclx_mem_free(s->ports);
    *s = (rcclx_schedule){ .rows = NULL };
}
