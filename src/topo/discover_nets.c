/* Network ports. Those of RDMA devices whose link is up; where there are none, the
 * interfaces that are up and that lead out of the machine.
 *
 *   /sys/class/infiniband/mlx5_0/device           -> the PCI device
 *                               /ports/1/state       "4: ACTIVE"
 *                               /ports/1/rate        "400 Gb/sec (4X NDR)"
 *   /sys/class/net/eth0/device, operstate, speed    (Mbit/s)                    */
#include "topo/discover.h"

#include "base/mem.h"
#include "topo/model.h"
#include "topo/sysfs.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MBIT_UNKNOWN = 10000, CONNECTIONS = 131072 };

/* The nearest PCI device above a folder such as /sys/class/net/eth0/device; "": none. */
static void pci_above(const char *folder, char *busid, size_t n)
{
    char real[PATH_MAX], *save = NULL;

    busid[0] = 0;
    if (!realpath(folder, real))
        return;
    for (char *at = strtok_r(real, "/", &save); at; at = strtok_r(NULL, "/", &save))
        if (rcclx_busid_valid(at))
            snprintf(busid, n, "%s", at);
}

static int find_nic(rcclx_xml *x, int element)
{
    for (int e = x->elements[element].first; e >= 0; e = x->elements[e].next)
        if (rcclx_xml_is(x, e, "nic"))
            return e;
    return rcclx_xml_add(x, element, "nic");
}

static void add_port(rcclx_probe *p, const char *folder, const char *name, int port, long long mbit, const char *guid,
                     bool direct)
{
    char device[1100], busid[32];

    snprintf(device, sizeof(device), "%s/device", folder);
    pci_above(device, busid, sizeof(busid));
    const int above = *busid ? rcclx_probe_pci(p, busid) : -1;
    if (p->x->status != RCCLX_OK)
        return;
    const int net = rcclx_xml_add(p->x, find_nic(p->x, above >= 0 ? above : rcclx_probe_cpu(p, 0)), "net");
    rcclx_xml_set(p->x, net, "name", name);
    rcclx_xml_setf(p->x, net, "dev", "%d", p->nnets++);
    rcclx_xml_setf(p->x, net, "speed", "%lld", mbit);
    rcclx_xml_setf(p->x, net, "port", "%d", port);
    rcclx_xml_set(p->x, net, "latency", "0.000000");
    rcclx_xml_set(p->x, net, "guid", guid);
    rcclx_xml_setf(p->x, net, "maxconn", "%d", CONNECTIONS);
    rcclx_xml_set(p->x, net, "gdr", direct ? "1" : "0");
}

/* "506f:4b03:00cd:6838" as one number. */
static void read_guid(const char *folder, char *text, size_t n)
{
    char line[64];
    size_t used = (size_t)snprintf(text, n, "0x");

    rcclx_sysfs_text(line, sizeof(line), "%s/node_guid", folder);
    for (const char *c = line; *c && used + 1 < n; c++)
        if (*c != ':')
            text[used++] = *c;
    text[used] = 0;
    if (used == 2)
        snprintf(text, n, "0x0");
}

static void add_device(rcclx_probe *p, const char *name, char (*ports)[64])
{
    char folder[1024], line[128], guid[64];

    snprintf(folder, sizeof(folder), "%s/sys/class/infiniband/%s", p->root, name);
    read_guid(folder, guid, sizeof(guid));
    const int n = rcclx_sysfs_list(ports, 16, "%s/ports", folder);
    for (int i = 0; i < n; i++) {
        if (!rcclx_sysfs_text(line, sizeof(line), "%s/ports/%s/state", folder, ports[i]) || !strstr(line, "ACTIVE"))
            continue;
        rcclx_sysfs_text(line, sizeof(line), "%s/ports/%s/rate", folder, ports[i]);
        const long gbit = strtol(line, NULL, 10);
        add_port(p, folder, name, (int)strtol(ports[i], NULL, 10), gbit > 0 ? gbit * 1000 : MBIT_UNKNOWN, guid, true);
    }
}

static bool leads_out(const char *name)
{
    static const char *const inside[] = { "lo",    "docker",          "virbr", "br-", "veth",
                                          "dummy", "bonding_masters", "tunl",  "sit", "ip6tnl" };

    for (size_t i = 0; i < sizeof(inside) / sizeof(inside[0]); i++)
        if (!strncmp(name, inside[i], strlen(inside[i])))
            return false;
    return true;
}

static void add_interface(rcclx_probe *p, const char *name)
{
    char folder[1024], state[32];

    snprintf(folder, sizeof(folder), "%s/sys/class/net/%s", p->root, name);
    rcclx_sysfs_text(state, sizeof(state), "%s/operstate", folder);
    if (!leads_out(name) || (strcmp(state, "up") && strcmp(state, "unknown")))
        return;
    const long long mbit = rcclx_sysfs_number(-1, "%s/speed", folder);
    add_port(p, folder, name, 0, mbit > 0 ? mbit : MBIT_UNKNOWN, "0x0", false);
}

void rcclx_probe_nets(rcclx_probe *p)
{
    char (*names)[64] = rcclx_probe_names(p), (*ports)[64] = rcclx_probe_names(p);
    int n = names && ports ? rcclx_sysfs_list(names, RCCLX_PROBE_MOST, "%s/sys/class/infiniband", p->root) : 0;

    for (int i = 0; i < n; i++)
        add_device(p, names[i], ports);
    n = names && ports && !p->nnets ? rcclx_sysfs_list(names, RCCLX_PROBE_MOST, "%s/sys/class/net", p->root) : 0;
    for (int i = 0; i < n; i++)
        add_interface(p, names[i]);
    rcclx_mem_free(names);
    rcclx_mem_free(ports);
}
