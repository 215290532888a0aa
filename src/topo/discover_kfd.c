/* AMD: the kernel's compute driver lists its GPUs as nodes, each with its links.
 *
 *   /sys/class/kfd/kfd/topology/nodes/2/properties              gfx_target_version 90402, location_id 3072, domain 0
 *                                     2/io_links/0/properties   type 11 (XGMI), node_to 3, weight 15 (one hop),
 *                                                               min_bandwidth, max_bandwidth
 * CPUs are nodes, too, without a gfx_target_version. */
#include "topo/discover.h"

#include "base/log.h"
#include "base/mem.h"
#include "topo/sysfs.h"

#include <stdlib.h>

enum { TYPE_XGMI = 11, ONE_HOP = 15 };

typedef struct {
    int       node, element; /* KFD's number, the <gpu> */
    long long location, domain;
} kfd_gpu;

static void busid_of(const kfd_gpu *g, char *text, size_t n)
{
    snprintf(text, n, "%04llx:%02llx:%02llx.%llx", g->domain & 0xffffffff, g->location >> 8 & 0xff, g->location >> 3 & 0x1f,
             g->location & 7);
}

/* 90402 is gfx942, 90010 is gfx90a. */
static void describe(rcclx_probe *p, const kfd_gpu *g, const char *properties, long long target)
{
    const long long simds = rcclx_sysfs_property(properties, "simd_count", 0),
                    per_cu = rcclx_sysfs_property(properties, "simd_per_cu", 0);

    rcclx_xml_setf(p->x, g->element, "sm", "%lld", per_cu > 0 ? simds / per_cu : 0);
    rcclx_xml_setf(p->x, g->element, "gcn", "gfx%lld%llx%llx", target / 10000, target / 100 % 100, target % 100);
    rcclx_xml_set(p->x, g->element, "gdr", "1");
}

static int list_gpus(rcclx_probe *p, char (*names)[64], kfd_gpu *gpus)
{
    const int nnodes = rcclx_sysfs_list(names, RCCLX_PROBE_MOST, "%s/sys/class/kfd/kfd/topology/nodes", p->root);
    int n = 0;

    for (int i = 0; i < nnodes; i++) {
        char path[1024], busid[32];
        snprintf(path, sizeof(path), "%s/sys/class/kfd/kfd/topology/nodes/%s/properties", p->root, names[i]);
        const long long target = rcclx_sysfs_property(path, "gfx_target_version", 0);
        if (target <= 0 || target > 999999)
            continue;
        gpus[n] = (kfd_gpu){ .node = (int)strtol(names[i], NULL, 10),
                             .location = rcclx_sysfs_property(path, "location_id", 0),
                             .domain = rcclx_sysfs_property(path, "domain", 0) };
        busid_of(&gpus[n], busid, sizeof(busid));
        gpus[n].element = rcclx_probe_gpu(p, busid);
        if (gpus[n].element >= 0)
            describe(p, &gpus[n++], path, target);
    }
    return n;
}

static void describe_link(rcclx_probe *p, const kfd_gpu *from, const kfd_gpu *to, const char *properties)
{
    const long long least = rcclx_sysfs_property(properties, "min_bandwidth", 0),
                    most = rcclx_sysfs_property(properties, "max_bandwidth", 0);
    const int link = rcclx_xml_add(p->x, from->element, "xgmi");
    char busid[32];

    busid_of(to, busid, sizeof(busid));
    rcclx_xml_set(p->x, link, "target", busid);
    rcclx_xml_setf(p->x, link, "count", "%lld", least > 0 && most > least ? most / least : 1);
    rcclx_xml_set(p->x, link, "tclass", "0x120000");
}

static void list_links(rcclx_probe *p, char (*names)[64], const kfd_gpu *gpus, int n, int i)
{
    const int nlinks =
        rcclx_sysfs_list(names, RCCLX_PROBE_MOST, "%s/sys/class/kfd/kfd/topology/nodes/%d/io_links", p->root, gpus[i].node);

    for (int k = 0; k < nlinks; k++) {
        char path[1024];
        snprintf(path, sizeof(path), "%s/sys/class/kfd/kfd/topology/nodes/%d/io_links/%s/properties", p->root, gpus[i].node,
                 names[k]);
        const long long to = rcclx_sysfs_property(path, "node_to", -1);
        if (rcclx_sysfs_property(path, "type", 0) != TYPE_XGMI || rcclx_sysfs_property(path, "weight", ONE_HOP) > ONE_HOP)
            continue;
        for (int g = 0; g < n; g++)
            if (gpus[g].node == to && g != i)
                describe_link(p, &gpus[i], &gpus[g], path);
    }
}

void rcclx_probe_kfd(rcclx_probe *p)
{
    char (*names)[64] = rcclx_probe_names(p);
    kfd_gpu *gpus = rcclx_mem_alloc(RCCLX_PROBE_MOST * sizeof(*gpus));
    const int n = names && gpus ? list_gpus(p, names, gpus) : 0;

    if (!gpus && p->x->status == RCCLX_OK)
        p->x->status = RCCLX_FAIL(RCCLX_NOMEM, "no memory to look at this machine");
    for (int i = 0; i < n; i++)
        list_links(p, names, gpus, n, i);
    rcclx_mem_free(names);
    rcclx_mem_free(gpus);
}
