#ifndef RCCLX_TOPO_TOPO_H
#define RCCLX_TOPO_TOPO_H

#include "topo/xml.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What a machine is made of, and how far its parts are from each other.
 *
 *   description          graph                          paths
 *   <system>             vertices and links, each way   between GPUs and network ports:
 *     <cpu> <pci> ...    with a rate                    kind, links, bottleneck
 *
 * A description is a tree of elements in the format of NCCL and RCCL (versions 1
 * and 2), read from a file or made by looking around; it is kept as it is, so that
 * what is read can be written again. The graph is derived from it.
 *
 *   rcclx_topo t;
 *   RCCLX_TRY(rcclx_topo_open(&t));                 // as NCCL_TOPO_FILE says, else this machine
 *   const rcclx_path *p = rcclx_topo_path(&t, gpu, net);
 *   rcclx_topo_fini(&t);
 *
 * Rates are in GB/s (10^9), each direction of a link by itself: what programs get,
 * not what the signalling says. */

enum {
    RCCLX_TOPO_GPUS     = 256,
    RCCLX_TOPO_NETS     = 256,
    RCCLX_TOPO_VERTICES = 4096,
    RCCLX_TOPO_HERE     = 5000, /* GB/s within a device */
};

typedef enum {
    RCCLX_TOPO_GPU, RCCLX_TOPO_PCI, RCCLX_TOPO_CPU, RCCLX_TOPO_SWITCH, RCCLX_TOPO_NIC, RCCLX_TOPO_NET
} rcclx_topo_kind;

typedef enum {
    RCCLX_LINK_LOCAL, RCCLX_LINK_PCI, RCCLX_LINK_SOCKET, RCCLX_LINK_XGMI, RCCLX_LINK_NVLINK, RCCLX_LINK_C2C, RCCLX_LINK_PORT
} rcclx_link_kind;

/* Where a link's rate comes from. ASSUMED ones should be measured. */
typedef enum { RCCLX_RATE_STATED, RCCLX_RATE_GENERATION, RCCLX_RATE_MEASURED, RCCLX_RATE_ASSUMED } rcclx_rate_source;

typedef struct {
    uint8_t     kind;         /* rcclx_topo_kind */
    int         host;         /* of a file that holds several, 0 up */
    int         element;      /* in the description; -1: a switch between GPUs, which has none */
    int         dev, rank;    /* GPU: both; NET: dev; CPU: dev is the NUMA node; -1: none */
    int         first, nlinks; /* its outgoing links */
    double      rate;         /* NET: its port's */
    bool        direct;       /* GPU, NET: the network reaches GPU memory by itself */
    const char *name;         /* bus id, or the port's name; owned by the description */
} rcclx_topo_vertex;

typedef struct {
    uint8_t kind, source;     /* rcclx_link_kind, rcclx_rate_source */
    int     from, to;         /* vertices */
    int     back;             /* the same link the other way */
    int     count;            /* lanes of XGMI or NVLink that are bundled; else 1 */
    double  rate;
} rcclx_topo_link;

/* How far two things are apart; nearer ones come first. Users name them in the _LEVEL settings. */
#define RCCLX_PATH_LIST(X)                                                    \
    X(LOC, "the same device")                                                 \
    X(NVL, "links between GPUs: XGMI, NVLink, also through their switch")     \
    X(NVB, "such links, by way of another GPU")                               \
    X(C2C, "a link between GPU and CPU that is not PCI")                      \
    X(PIX, "at most one PCI bridge")                                          \
    X(PXB, "several PCI bridges, no CPU")                                     \
    X(P2C, "such a link, then PCI")                                           \
    X(PXN, "links between GPUs to one that is near the network port")         \
    X(PHB, "through a CPU")                                                   \
    X(SYS, "between CPUs")                                                    \
    X(NET, "through the network")                                             \
    X(DIS, "not at all")
typedef enum {
#define X(name, about) RCCLX_PATH_##name,
    RCCLX_PATH_LIST(X)
#undef X
    RCCLX_PATH_COUNT
} rcclx_path_kind;

const char *rcclx_path_name(rcclx_path_kind k);
const char *rcclx_path_about(rcclx_path_kind k);

/* Ways are between ends: the GPUs, numbered 0 to ngpus - 1, and behind them the network ports. */
typedef struct {
    uint8_t kind, nhops;
    int     first;            /* its links: topo->hops[first .. first + nhops) */
    double  rate;             /* of the narrowest one */
} rcclx_path;

typedef struct {
    uint8_t kind, nhops;
    int     via;              /* NVB, PXN: the GPU in between; else -1 */
    double  rate;
} rcclx_reach;

typedef struct {
    rcclx_xml          xml;
    rcclx_topo_vertex *vertices;
    rcclx_topo_link   *links;
    int                nvertices, nlinks, nhosts;
    int                ngpus, nnets, ncpus;
    int                gpus[RCCLX_TOPO_GPUS], nets[RCCLX_TOPO_NETS]; /* vertices, by dev */
    rcclx_path        *paths; /* [end][end] */
    int               *hops, nhops;
} rcclx_topo;

/* The machine: from NCCL_TOPO_FILE if that is set, else by looking around; written to NCCL_TOPO_DUMP_FILE if set. */
rcclx_status rcclx_topo_open(rcclx_topo *t);
rcclx_status rcclx_topo_read(rcclx_topo *t, const char *path);
rcclx_status rcclx_topo_parse(rcclx_topo *t, const char *text, size_t nbytes, const char *source);
rcclx_status rcclx_topo_build(rcclx_topo *t, rcclx_xml *x); /* takes the description, also when it fails */
void         rcclx_topo_fini(rcclx_topo *t);                /* takes zeroed and half-made ones */

/* Look around. `root` is where /sys is mounted, NULL: "/sys"; tests have trees of their own. `nvml`: ask NVIDIA's library,
 * too, whose answers are about this machine whatever the root. Nothing found is no error: a machine has a CPU at least. */
rcclx_status rcclx_topo_discover(rcclx_topo *t, const char *root, bool nvml);

/* Is this description that of the machine whose GPUs have these bus ids? The error says which one is not in it. */
rcclx_status rcclx_topo_match(const rcclx_topo *t, const char *const *busids, int n);

/* What was only assumed is measured: `measure` is asked for each such link between two GPUs, once each way, and answers
 * in GB/s (0: it cannot say, and the link stays as it is). The ways are then looked for anew. */
typedef double rcclx_topo_measure(void *context, const rcclx_topo *t, int from_gpu, int to_gpu);
rcclx_status rcclx_topo_measure_links(rcclx_topo *t, rcclx_topo_measure *measure, void *context);

int rcclx_topo_find_gpu(const rcclx_topo *t, const char *busid); /* its number among the GPUs; -1: none */
static inline int rcclx_topo_net(const rcclx_topo *t, int net)   /* a port's number among the ends */
{
    return t->ngpus + net;
}

/* The way between two ends without help from a third GPU; DIS with rate 0 if there is none. */
const rcclx_path *rcclx_topo_path(const rcclx_topo *t, int from, int to);

/* How near they are as users understand it: by way of a third GPU where that is nearer. */
rcclx_reach rcclx_topo_reach(const rcclx_topo *t, int from, int to);

/* Links between the GPUs of AMD are called XGMI where NCCL says NVL. */
const char *rcclx_topo_kind_name(const rcclx_topo *t, int from, int to);

/* A drawing in text: the tree, the matrix of ways. */
void rcclx_topo_print(FILE *out, const rcclx_topo *t);

#endif
