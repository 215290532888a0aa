/* NVIDIA: GPUs are found on the bus; what links join them only the driver's library
 * tells, which is opened if it is there. It is asked about each link of each GPU: is it
 * up, and what is at its other end, a GPU or a switch?
 *
 *   GPU 0   link 0..17 -> switch      <nvlink target="0000:07:00.0" count="18" tclass="0x068000"/>      */
#include "topo/discover.h"

#include "base/log.h"
#include "base/mem.h"
#include "topo/model.h"
#include "topo/sysfs.h"

#include <dlfcn.h>
#include <string.h>

enum { LINKS = 36, TARGETS = LINKS, REMOTE_SWITCH = 2, DONE = 0 };

/* What the library's functions take: the beginning of its structures, as its interface fixes them. */
typedef struct {
    char     busid_legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char     busid[32];
} nvml_pci;

typedef struct {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_busid)(const char *, void **);
    int (*capability)(void *, int *, int *);
    int (*link_state)(void *, unsigned, int *);
    int (*link_remote)(void *, unsigned, nvml_pci *);
    int (*link_remote_type)(void *, unsigned, int *);
} nvml;

static bool load(nvml *n)
{
    const struct { const char *name; void **to; } entries[] = {
        { "nvmlInit_v2", (void **)(void *)&n->init }, { "nvmlShutdown", (void **)(void *)&n->shutdown },
        { "nvmlDeviceGetHandleByPciBusId_v2", (void **)(void *)&n->by_busid },
        { "nvmlDeviceGetCudaComputeCapability", (void **)(void *)&n->capability },
        { "nvmlDeviceGetNvLinkState", (void **)(void *)&n->link_state },
        { "nvmlDeviceGetNvLinkRemotePciInfo_v2", (void **)(void *)&n->link_remote },
        { "nvmlDeviceGetNvLinkRemoteDeviceType", (void **)(void *)&n->link_remote_type },
    };

    *n = (nvml){ .library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL) };
    for (size_t i = 0; n->library && i < sizeof(entries) / sizeof(entries[0]); i++) {
        void *entry = dlsym(n->library, entries[i].name);
        if (!entry) {
            RCCLX_INFO_LOG(GRAPH, "libnvidia-ml.so.1 has no %s: links between GPUs stay unknown", entries[i].name);
            dlclose(n->library);
            n->library = NULL;
            return false;
        }
        memcpy(entries[i].to, &entry, sizeof(entry));
    }
    if (n->library && n->init() != DONE) {
        dlclose(n->library);
        n->library = NULL;
    }
    return n->library != NULL;
}

static void unload(nvml *n)
{
    if (n->library) {
        n->shutdown();
        dlclose(n->library);
    }
}

/* Lanes to each target, as many as there are. */
static void describe_links(rcclx_probe *p, const nvml *n, int gpu, void *device)
{
    struct { char busid[32]; bool is_switch; int count; } targets[TARGETS] = { { .count = 0 } };
    int ntargets = 0;

    for (unsigned link = 0; link < LINKS; link++) {
        nvml_pci remote = { .domain = 0 };
        int up = 0, type = 0, i = 0;
        if (n->link_state(device, link, &up) != DONE || !up || n->link_remote(device, link, &remote) != DONE)
            continue;
        remote.busid[sizeof(remote.busid) - 1] = 0;
        if (n->link_remote_type(device, link, &type) != DONE)
            type = 0;
        while (i < ntargets && (type == REMOTE_SWITCH ? !targets[i].is_switch : strcmp(targets[i].busid, remote.busid) != 0))
            i++;
        if (i == ntargets) {
            memcpy(targets[i].busid, remote.busid, sizeof(remote.busid));
            targets[i].is_switch = type == REMOTE_SWITCH;
            targets[ntargets++].count = 0;
        }
        targets[i].count++;
    }
    for (int i = 0; i < ntargets; i++) {
        const int e = rcclx_xml_add(p->x, gpu, "nvlink");
        rcclx_xml_set(p->x, e, "target", targets[i].busid);
        rcclx_xml_setf(p->x, e, "count", "%d", targets[i].count);
        rcclx_xml_set(p->x, e, "tclass", targets[i].is_switch ? "0x068000" : "0x030200");
    }
}

static void describe(rcclx_probe *p, const nvml *n, int gpu, const char *busid)
{
    void *device;
    int major, minor;

    rcclx_xml_set(p->x, gpu, "gdr", "1");
    if (!n->library || n->by_busid(busid, &device) != DONE)
        return;
    if (n->capability(device, &major, &minor) == DONE)
        rcclx_xml_setf(p->x, gpu, "sm", "%d", major * 10 + minor);
    describe_links(p, n, gpu, device);
}

void rcclx_probe_nvidia(rcclx_probe *p, bool with_nvml)
{
    char (*names)[64] = rcclx_probe_names(p);
    const int ndevices = names ? rcclx_sysfs_list(names, RCCLX_PROBE_MOST, "%s/sys/bus/pci/devices", p->root) : 0;
    nvml n = { .library = NULL };
    bool loaded = false;

    for (int i = 0; i < ndevices; i++) {
        const long long vendor = rcclx_sysfs_number(0, "%s/sys/bus/pci/devices/%s/vendor", p->root, names[i]);
        const long long class = rcclx_sysfs_number(0, "%s/sys/bus/pci/devices/%s/class", p->root, names[i]) >> 8;
        if (vendor != 0x10de || (class != 0x300 && class != 0x302))
            continue;
        if (with_nvml && !loaded) {
            loaded = true;
            load(&n);
        }
        const int gpu = rcclx_probe_gpu(p, names[i]);
        if (gpu >= 0)
            describe(p, &n, gpu, names[i]);
    }
    unload(&n);
    rcclx_mem_free(names);
}
