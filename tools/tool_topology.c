/* One machine, or several that are alike: copies of a description share it, and take
 * part with the same GPUs. */
#include "tool_topology.h"
#include "tool.h"

#include "base/log.h"
#include "base/mem.h"
#include "topo/draw.h"
#include "topo/search.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    rcclx_topo     topo;
    int            gpus[RCCLX_TOPO_GPUS], ngpus;
    rcclx_share   *nodes;
    int            nnodes;
    rcclx_schedule found[RCCLX_SCHEDULE_COUNT];
} picture;

/* "0,2,4-7", by dev. */
static int choose_gpus(picture *p, const char *list)
{
    const char *at = list;

    for (int dev = 0; !list && dev < p->topo.ngpus; dev++)
        p->gpus[p->ngpus++] = dev;
    while (at && *at) {
        char      *end;
        const long first = strtol(at, &end, 10);
        long       last  = first;

        if (end > at && *end == '-') {
            at   = end + 1;
            last = strtol(at, &end, 10);
        }
        if (end == at || (*end && *end != ',') || first < 0 || last < first || last >= p->topo.ngpus)
            return tool_usage("info", "--gpus %s: a list such as 0,2,4-7 is needed; there are GPUs 0 to %d", list,
                              p->topo.ngpus - 1);
        for (long g = first; g <= last && p->ngpus < RCCLX_TOPO_GPUS; g++)
            p->gpus[p->ngpus++] = (int)g;
        at = *end ? end + 1 : end;
    }
    return TOOL_OK;
}

static int place_nodes(picture *p, int nnodes)
{
    p->nodes = rcclx_mem_alloc((size_t)nnodes * sizeof(*p->nodes));
    if (!p->nodes)
        return tool_fail("info", "no memory for %d nodes", nnodes);
    p->nnodes = nnodes;
    for (int i = 0; i < nnodes; i++)
        p->nodes[i] = (rcclx_share){.topo = &p->topo, .ngpus = p->ngpus, .gpus = p->gpus};
    return TOOL_OK;
}

/* A kind that cannot be had (a node without ports) is left out, with the reason. */
static int search(picture *p, bool tell)
{
    for (int k = 0; k < RCCLX_SCHEDULE_COUNT; k++) {
        const rcclx_schedule_kind kind = (rcclx_schedule_kind)k;

        if (rcclx_schedule_find(&p->found[k], kind, p->nodes, p->nnodes) != RCCLX_OK)
            return tool_fail("info", "%s", rcclx_last_error());
        if (tell && p->found[k].nchannels) {
            fputc('\n', stdout);
            rcclx_schedule_print(stdout, &p->found[k], p->nodes, p->nnodes);
        }
    }
    return TOOL_OK;
}

static int draw(const picture *p, const char *path)
{
    FILE *out = fopen(path, "w");

    if (!out)
        return tool_fail("info", "cannot write %s: %s", path, strerror(errno));
    rcclx_topo_svg(out, &p->topo, p->found, p->nodes, p->nnodes);
    return fclose(out) ? tool_fail("info", "cannot write %s: %s", path, strerror(errno)) : TOOL_OK;
}

static int show(picture *p, const tool_topology *q)
{
    int code = choose_gpus(p, q->gpus);

    if (code == TOOL_OK && !q->svg)
        rcclx_topo_print(stdout, &p->topo);
    if (code != TOOL_OK || !p->ngpus)
        return code;
    code = place_nodes(p, q->nodes);
    if (code == TOOL_OK && !q->svg && q->nodes > 1)
        printf("\n%d nodes like this: %d ranks\n", q->nodes, q->nodes * p->ngpus);
    if (code == TOOL_OK)
        code = search(p, !q->svg);
    return code == TOOL_OK && q->svg ? draw(p, q->svg) : code;
}

int tool_topology_show(const tool_topology *q)
{
    picture           *p = RCCLX_NEW(picture);
    const rcclx_status s = !p ? RCCLX_NOMEM : q->file ? rcclx_topo_read(&p->topo, q->file) : rcclx_topo_open(&p->topo);
    const int          code = s == RCCLX_OK ? show(p, q) : tool_fail("info", "%s", p ? rcclx_last_error() : "no memory");

    for (int k = 0; p && k < RCCLX_SCHEDULE_COUNT; k++)
        rcclx_schedule_fini(&p->found[k]);
    if (p) {
        rcclx_mem_free(p->nodes);
        rcclx_topo_fini(&p->topo);
    }
    rcclx_mem_free(p);
    return code;
}
