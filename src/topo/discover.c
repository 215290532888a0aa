/* What the kernel knows of the machine, as a description. A device's place is the path
 * of its folder, in which the bridges above it stand in order:
 *
 *   /sys/bus/pci/devices/0000:0c:00.0 -> /sys/devices/pci0000:05/0000:05:00.0/0000:08:00.0/0000:0c:00.0
 *                                                                 <pci>         <pci>        <pci>
 *   .../numa_node  1                                  in <cpu numaid="1">
 *
 * Only what leads to a GPU or a network port is described. */
#include "topo/topo.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/process.h"
#include "topo/discover.h"
#include "topo/model.h"
#include "topo/sysfs.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

char (*rcclx_probe_names(rcclx_probe *p))[64]
{
    char (*names)[64] = rcclx_mem_alloc(RCCLX_PROBE_MOST * sizeof(*names));

    if (!names && p->x->status == RCCLX_OK)
        p->x->status = RCCLX_FAIL(RCCLX_NOMEM, "no memory to look at this machine");
    return names;
}

/* --- CPUs -------------------------------------------------------------------------------- */

static const char *arch_name(void)
{
    static const char *const names[][2] = { { "aarch64", "arm64" }, { "ppc64le", "ppc64" } };
    struct utsname u;

    for (size_t i = 0; uname(&u) == 0 && i < 2; i++)
        if (!strcmp(u.machine, names[i][0]))
            return names[i][1];
    return "x86_64";
}

/* "vendor_id : AuthenticAMD": the value of a line of cpuinfo, "" if there is none. */
static void cpuinfo(const rcclx_probe *p, const char *key, char *text, size_t n)
{
    char path[1024], line[512];

    text[0] = 0;
    snprintf(path, sizeof(path), "%s/proc/cpuinfo", p->root);
    FILE *in = fopen(path, "re");
    while (in && !*text && fgets(line, sizeof(line), in)) {
        char *colon = strchr(line, ':');
        const size_t length = strlen(key);
        if (colon && !strncmp(line, key, length) && (line[length] == '\t' || line[length] == ' ' || line[length] == ':'))
            snprintf(text, n, "%s", colon + 1 + strspn(colon + 1, " \t"));
    }
    if (in)
        fclose(in);
    text[strcspn(text, "\n")] = 0;
}

static void describe_cpu(rcclx_probe *p, int cpu, int numa)
{
    char text[2048];

    rcclx_xml_setf(p->x, cpu, "host_hash", "0x%llx", (unsigned long long)rcclx_process()->host);
    rcclx_xml_setf(p->x, cpu, "numaid", "%d", numa);
    if (rcclx_sysfs_text(text, sizeof(text), "%s/sys/devices/system/node/node%d/cpumap", p->root, numa))
        rcclx_xml_set(p->x, cpu, "affinity", text);
    rcclx_xml_set(p->x, cpu, "arch", arch_name());
    cpuinfo(p, "vendor_id", text, sizeof(text));
    if (!*text)
        return;
    rcclx_xml_set(p->x, cpu, "vendor", text);
    /* the number as processors give it: beyond 15 the rest counts 16 times */
    cpuinfo(p, "cpu family", text, sizeof(text));
    const long family = strtol(text, NULL, 10);
    rcclx_xml_setf(p->x, cpu, "familyid", "%ld", family > 15 ? 15 + ((family - 15) << 4) : family);
    cpuinfo(p, "model", text, sizeof(text));
    rcclx_xml_setf(p->x, cpu, "modelid", "%ld", strtol(text, NULL, 10));
}

int rcclx_probe_cpu(rcclx_probe *p, int numa)
{
    for (int e = p->x->elements[0].first; e >= 0; e = p->x->elements[e].next) {
        const char *id = rcclx_xml_get(p->x, e, "numaid");
        if (id && strtol(id, NULL, 10) == numa)
            return e;
    }
    const int cpu = rcclx_xml_add(p->x, 0, "cpu");
    describe_cpu(p, cpu, numa);
    return cpu;
}

static void find_cpus(rcclx_probe *p)
{
    char (*names)[64] = rcclx_probe_names(p), text[64];
    const int n = names ? rcclx_sysfs_list(names, RCCLX_PROBE_MOST, "%s/sys/devices/system/node", p->root) : 0;

    for (int i = 0; i < n; i++)
        if (!strncmp(names[i], "node", 4) &&
            rcclx_sysfs_text(text, sizeof(text), "%s/sys/devices/system/node/%s/cpulist", p->root, names[i]) && *text)
            rcclx_probe_cpu(p, (int)strtol(names[i] + 4, NULL, 10));
    rcclx_mem_free(names);
    if (p->x->nelements == 1)
        rcclx_probe_cpu(p, 0);
}

/* --- PCI ----------------------------------------------------------------------------------- */

static void describe_pci(rcclx_probe *p, int pci, const char *busid)
{
    static const char *const files[][2] = {
        { "class", "class" }, { "vendor", "vendor" }, { "device", "device" }, { "subsystem_vendor", "subsystem_vendor" },
        { "subsystem_device", "subsystem_device" }, { "link_speed", "max_link_speed" }, { "link_width", "max_link_width" },
    };
    char text[128];

    rcclx_xml_set(p->x, pci, "busid", busid);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (rcclx_sysfs_text(text, sizeof(text), "%s/sys/bus/pci/devices/%s/%s", p->root, busid, files[i][1]))
            rcclx_xml_set(p->x, pci, files[i][0], text);
}

static int find_pci(const rcclx_xml *x, int parent, const char *busid)
{
    for (int e = x->elements[parent].first; e >= 0; e = x->elements[e].next)
        if (rcclx_xml_is(x, e, "pci") && rcclx_busid_same(rcclx_xml_get(x, e, "busid"), busid))
            return e;
    return -1;
}

int rcclx_probe_pci(rcclx_probe *p, const char *busid)
{
    char path[1024], real[PATH_MAX], *at, *save = NULL;
    const long long numa = rcclx_sysfs_number(-1, "%s/sys/bus/pci/devices/%s/numa_node", p->root, busid);

    snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s", p->root, busid);
    if (p->x->status != RCCLX_OK || !realpath(path, real))
        return -1;
    int element = rcclx_probe_cpu(p, numa < 0 || numa > 65535 ? 0 : (int)numa);
    for (at = strtok_r(real, "/", &save); at; at = strtok_r(NULL, "/", &save)) {
        if (!rcclx_busid_valid(at) || element < 0)
            continue;
        int pci = find_pci(p->x, element, at);
        if (pci < 0) {
            pci = rcclx_xml_add(p->x, element, "pci");
            describe_pci(p, pci, at);
        }
        element = pci;
    }
    return element;
}

int rcclx_probe_gpu(rcclx_probe *p, const char *busid)
{
    const int pci = rcclx_probe_pci(p, busid);

    if (pci < 0 || p->x->status != RCCLX_OK)
        return -1;
    const int gpu = rcclx_xml_add(p->x, pci, "gpu");
    rcclx_xml_setf(p->x, gpu, "dev", "%d", p->ngpus);
    rcclx_xml_setf(p->x, gpu, "rank", "%d", p->ngpus++);
    return gpu;
}

/* --- all of it ------------------------------------------------------------------------------- */

rcclx_status rcclx_topo_discover(rcclx_topo *t, const char *root, bool nvml)
{
    rcclx_xml x = { .elements = NULL };
    rcclx_probe p = { .x = &x, .root = root ? root : "" };

    *t = (rcclx_topo){ .vertices = NULL };
    rcclx_xml_add(&x, -1, "system");
    rcclx_xml_set(&x, 0, "version", "2");
    if (x.status == RCCLX_OK) {
        find_cpus(&p);
        rcclx_probe_kfd(&p);
        rcclx_probe_nvidia(&p, nvml);
        rcclx_probe_nets(&p);
    }
    const rcclx_status s = x.status;
    if (s != RCCLX_OK) {
        rcclx_xml_fini(&x);
        return s;
    }
    return rcclx_topo_build(t, &x);
}
