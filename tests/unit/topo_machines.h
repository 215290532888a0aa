#ifndef RCCLX_TESTS_TOPO_MACHINES_H
#define RCCLX_TESTS_TOPO_MACHINES_H

/* Machines for tests of the topology, written as descriptions. */
#include "topo/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int ngpus, ncpus, nports;
    const char *gcn;          /* AMD: architecture; NULL: NVIDIA's sm_90 */
    bool (*joined)(int a, int b, int n); /* by a link between GPUs; NULL: none */
    bool gpu_switch;          /* NVIDIA: through switches, 18 lanes */
    bool near;                /* GPU i and port i below one bridge */
    int  mbit;
} machine;

static inline bool all_joined(int a, int b, int n)
{
    (void)n;
    return a != b;
}

static inline bool ring_joined(int a, int b, int n)
{
    return (a + 1) % n == b || (b + 1) % n == a;
}

static inline bool hives_joined(int a, int b, int n)
{
    return a != b && a / (n / 2) == b / (n / 2);
}

static inline void machine_gpu(FILE *out, const machine *m, int i)
{
    fprintf(out, "<pci busid=\"0000:%02x:00.0\" class=\"0x120000\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n", 0x20 + i);
    if (m->gcn)
        fprintf(out, "<gpu dev=\"%d\" sm=\"304\" gcn=\"%s\" rank=\"%d\" gdr=\"1\">\n", i, m->gcn, i);
    else
        fprintf(out, "<gpu dev=\"%d\" sm=\"90\" rank=\"%d\" gdr=\"1\">\n", i, i);
    for (int k = 0; m->joined && k < m->ngpus; k++)
        if (m->joined(i, k, m->ngpus))
            fprintf(out, "<%s target=\"0000:%02x:00.0\" count=\"1\" tclass=\"0x120000\"/>\n", m->gcn ? "xgmi" : "nvlink", 0x20 + k);
    if (m->gpu_switch)
        fprintf(out, "<nvlink target=\"0000:07:00.0\" count=\"18\" tclass=\"0x068000\"/>\n");
    fprintf(out, "</gpu></pci>\n");
}

static inline void machine_port(FILE *out, const machine *m, int i)
{
    fprintf(out, "<pci busid=\"0000:%02x:00.0\" class=\"0x020700\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><nic>\n"
                 "<net name=\"mlx5_%d\" dev=\"%d\" speed=\"%d\" port=\"1\" guid=\"0x%x\" maxconn=\"131072\" gdr=\"1\"/>\n</nic></pci>\n",
            0x60 + i, i, i, m->mbit, 0x1234 + i);
}

/* The text, to be freed. */
static inline char *machine_text(const machine *m, size_t *n)
{
    char *text;
    FILE *out = open_memstream(&text, n);

    fprintf(out, "<system version=\"2\">\n");
    for (int c = 0; c < m->ncpus; c++) {
        fprintf(out, "<cpu numaid=\"%d\" affinity=\"ff\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"175\" modelid=\"1\">\n", c);
        for (int i = 0; i < m->ngpus || i < m->nports; i++) {
            const bool gpu = i < m->ngpus && i * m->ncpus / m->ngpus == c;
            const bool port = i < m->nports && i * m->ncpus / m->nports == c;
            if (gpu || port)
                fprintf(out, "<pci busid=\"0000:%02x:00.0\" class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n", 0xa0 + i);
            if (gpu)
                machine_gpu(out, m, i);
            if (port && gpu && !m->near)
                fprintf(out, "</pci>\n<pci busid=\"0000:%02x:00.0\" class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n", 0xc0 + i);
            if (port)
                machine_port(out, m, i);
            if (gpu || port)
                fprintf(out, "</pci>\n");
        }
        fprintf(out, "</cpu>\n");
    }
    fprintf(out, "</system>\n");
    fclose(out);
    return text;
}

static inline rcclx_status machine_open(rcclx_topo *t, const machine *m)
{
    size_t n;
    char *text = machine_text(m, &n);
    const rcclx_status s = rcclx_topo_parse(t, text, n, "machine");

    free(text);
    return s;
}

static const machine machines[] = {
    { .ngpus = 1, .ncpus = 1, .nports = 1, .gcn = "gfx942", .mbit = 400000 },
    { .ngpus = 2, .ncpus = 1, .nports = 1, .gcn = "gfx90a", .joined = all_joined, .mbit = 200000 },
    { .ngpus = 4, .ncpus = 2, .nports = 2, .gcn = "gfx942", .joined = all_joined, .mbit = 200000 },
    { .ngpus = 8, .ncpus = 2, .nports = 8, .gcn = "gfx942", .joined = all_joined, .near = true, .mbit = 400000 },
    { .ngpus = 8, .ncpus = 2, .nports = 8, .gpu_switch = true, .near = true, .mbit = 400000 },
    { .ngpus = 8, .ncpus = 2, .nports = 2, .gcn = "908", .joined = hives_joined, .mbit = 200000 },
    { .ngpus = 8, .ncpus = 4, .nports = 1, .gcn = "906", .joined = ring_joined, .mbit = 100000 },
    { .ngpus = 8, .ncpus = 2, .nports = 2, .gcn = "906", .mbit = 100000 },
    { .ngpus = 16, .ncpus = 4, .nports = 4, .gcn = "gfx950", .joined = all_joined, .mbit = 400000 },
};
enum { NMACHINES = sizeof(machines) / sizeof(machines[0]), PAIR = 1, MESH4 = 2, MESH8 = 3, SWITCHED = 4, HIVES = 5, RING8 = 6, BUS8 = 7 };

/* n copies of the machine, all with these GPUs. */
typedef struct {
    rcclx_topo  topo;
    int         gpus[RCCLX_TOPO_GPUS];
    rcclx_share nodes[64];
    int         nnodes;
} cluster;

static inline void cluster_place(cluster *c, const int *gpus, int ngpus, int nnodes)
{
    for (int i = 0; i < ngpus; i++)
        c->gpus[i] = gpus ? gpus[i] : i;
    c->nnodes = nnodes;
    for (int i = 0; i < nnodes; i++)
        c->nodes[i] = (rcclx_share){ .topo = &c->topo, .ngpus = ngpus, .gpus = c->gpus };
}

#endif
