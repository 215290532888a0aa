/* Where the description comes from, and where it goes: the settings. */
#include "topo/topo.h"

#include "base/log.h"
#include "base/option.h"
#include "topo/search.h"

rcclx_status rcclx_topo_open(rcclx_topo *t)
{
    const char *from = rcclx_option_str(RCCLX_OPT_TOPO_FILE), *to = rcclx_option_str(RCCLX_OPT_TOPO_DUMP_FILE);

    RCCLX_TRY(*from ? rcclx_topo_read(t, from) : rcclx_topo_discover(t, NULL, true));
    RCCLX_INFO_LOG(GRAPH, "topology %s: %d GPUs, %d CPUs, %d network ports", *from ? from : "found", t->ngpus, t->ncpus,
                   t->nnets);
    if (!*to)
        return RCCLX_OK;
    const rcclx_status s = rcclx_xml_save(&t->xml, to);
    if (s != RCCLX_OK)
        rcclx_topo_fini(t);
    return s;
}

rcclx_status rcclx_schedule_open(rcclx_schedule *s, const rcclx_share *nodes, int nnodes)
{
    const char *from = rcclx_option_str(RCCLX_OPT_GRAPH_FILE), *to = rcclx_option_str(RCCLX_OPT_GRAPH_DUMP_FILE);
    const rcclx_schedule *all[RCCLX_SCHEDULE_COUNT];
    rcclx_status status = RCCLX_OK;
    int k = 0;

    for (; status == RCCLX_OK && k < RCCLX_SCHEDULE_COUNT; k++) {
        const bool read = *from && (k == RCCLX_RINGS || k == RCCLX_TREES);
        status = read ? rcclx_schedule_read(&s[k], (rcclx_schedule_kind)k, nodes, nnodes, from)
                      : rcclx_schedule_find(&s[k], (rcclx_schedule_kind)k, nodes, nnodes);
        all[k] = &s[k];
    }
    if (status == RCCLX_OK && *to)
        status = rcclx_schedule_write(all, 2, nodes, to);
    while (status != RCCLX_OK && k-- > 0)
        rcclx_schedule_fini(&s[k]);
    return status;
}
