/* From the description to the graph, in one walk over the elements:
 *
 *   <cpu numaid="0">                    CPU 0 ----------- CPU 1       SOCKET, all pairs of a host
 *     <pci busid="0000:08:00.0">          |
 *       <pci busid="0000:0c:00.0">       PCI 08                       PCI: speed x width of the lower end
 *         <gpu> <xgmi target=.../>      /     \
 *       <pci busid="0000:0f:00.0">   GPU 0c   NIC 0f                  XGMI: GPU 0c --- its targets
 *         <nic> <net speed="400000">            |
 *                                             NET mlx5_0              PORT: the port's own rate
 *
 * A PCI device that holds a GPU or a NIC *is* that GPU or NIC. Devices that lead
 * to neither are left out. All switches between GPUs of a host are one vertex.
 * Links are collected as pairs, one a direction; parallel ones are bundled. */
#include "topo/topo.h"

#include "base/log.h"
#include "base/mem.h"
#include "topo/model.h"
#include "topo/rates.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { LINKS = 16384, HOSTS = 256 };

typedef struct {
    rcclx_topo *t;
    int        *vertex;        /* [element]: the vertex that it is, -1 none */
    int         nswitches, switch_of[HOSTS];
    int         hosts[HOSTS];  /* an element of each host */
    int         cap_links;
} builder;

__attribute__((format(printf, 3, 4))) static rcclx_status wrong(const builder *b, int element, const char *format, ...)
{
    const rcclx_xml *x = &b->t->xml;
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return RCCLX_FAIL(RCCLX_USAGE, "%s, line %d, <%s>: %s", *x->source ? x->source : "description of this machine",
                      x->elements[element].line, x->elements[element].name, text);
}

/* --- attributes ------------------------------------------------------------------- */

/* A number that may be left out. */
static rcclx_status number(const builder *b, int element, const char *key, long long least, long long most,
                           long long otherwise, long long *value)
{
    bool bad = false;

    *value = otherwise;
    rcclx_xml_int(&b->t->xml, element, key, least, most, value, &bad);
    if (bad)
        return wrong(b, element, "%s=\"%s\" must be a number from %lld to %lld", key,
                     rcclx_xml_get(&b->t->xml, element, key), least, most);
    return RCCLX_OK;
}

/* "0000:0c:00.0"; digits may be of either case and the domain longer. */
bool rcclx_busid_valid(const char *busid)
{
    size_t domain = 0;

    while (domain <= 8 && isxdigit((unsigned char)busid[domain]))
        domain++;
    const char *rest = busid + domain;
    return domain >= 4 && domain <= 8 && strlen(rest) == 8 && rest[0] == ':' && isxdigit((unsigned char)rest[1]) &&
           isxdigit((unsigned char)rest[2]) && rest[3] == ':' && isxdigit((unsigned char)rest[4]) &&
           isxdigit((unsigned char)rest[5]) && rest[6] == '.' && isxdigit((unsigned char)rest[7]);
}

bool rcclx_busid_same(const char *a, const char *b)
{
    for (; *a == '0' && isxdigit((unsigned char)a[1]); a++)
        ;
    for (; *b == '0' && isxdigit((unsigned char)b[1]); b++)
        ;
    for (; *a && tolower((unsigned char)*a) == tolower((unsigned char)*b); a++, b++)
        ;
    return !*a && !*b;
}

static int child(const rcclx_xml *x, int element, const char *name)
{
    for (int e = x->elements[element].first; e >= 0; e = x->elements[e].next)
        if (rcclx_xml_is(x, e, name))
            return e;
    return -1;
}

/* --- vertices and links -------------------------------------------------------------- */

static rcclx_status add_vertex(builder *b, rcclx_topo_kind kind, int element, int host, const char *name, int *vertex)
{
    rcclx_topo *t = b->t;

    if (t->nvertices == RCCLX_TOPO_VERTICES)
        return wrong(b, element < 0 ? 0 : element, "more than %d devices", RCCLX_TOPO_VERTICES);
    *vertex = t->nvertices++;
    t->vertices[*vertex] =
        (rcclx_topo_vertex){ .kind = (uint8_t)kind, .host = host, .element = element, .dev = -1, .rank = -1, .name = name };
    if (element >= 0)
        b->vertex[element] = *vertex;
    return RCCLX_OK;
}

static rcclx_topo_link *find_link(const rcclx_topo *t, int from, int to, rcclx_link_kind kind)
{
    for (int i = 0; i < t->nlinks; i++)
        if (t->links[i].from == from && t->links[i].to == to && t->links[i].kind == kind)
            return &t->links[i];
    return NULL;
}

/* Both directions. */
static rcclx_status add_link(builder *b, int from, int to, rcclx_link_kind kind, double rate, rcclx_rate_source source)
{
    rcclx_topo *t = b->t;

    if (t->nlinks + 2 > LINKS)
        return wrong(b, 0, "more than %d links", LINKS);
    if (t->nlinks + 2 > b->cap_links) {
        const int more = b->cap_links ? b->cap_links * 2 : 256;
        rcclx_topo_link *p = rcclx_mem_realloc(t->links, (size_t)more * sizeof(*p));
        if (!p)
            return RCCLX_FAIL(RCCLX_NOMEM, "no memory for the links of a machine");
        t->links = p;
        b->cap_links = more;
    }
    const rcclx_topo_link there = {
        .kind = (uint8_t)kind, .source = (uint8_t)source, .from = from, .to = to, .count = 1, .rate = rate
    };
    t->links[t->nlinks] = t->links[t->nlinks + 1] = there;
    t->links[t->nlinks + 1].from = to;
    t->links[t->nlinks + 1].to = from;
    t->nlinks += 2;
    return RCCLX_OK;
}

/* `count` lanes of `rate` more from here to there. Links between GPUs are told of by both ends, each for its own direction. */
static rcclx_status bundle(builder *b, int from, int to, rcclx_link_kind kind, int count, double rate,
                           rcclx_rate_source source)
{
    rcclx_topo_link *l = find_link(b->t, from, to, kind);

    if (!l) {
        RCCLX_TRY(add_link(b, from, to, kind, 0, source));
        l = &b->t->links[b->t->nlinks - 2];
        l->count = l[1].count = 0;
    }
    l->count += count;
    l->rate += count * rate;
    return RCCLX_OK;
}

/* --- elements ---------------------------------------------------------------------------- */

static rcclx_status add_cpu(builder *b, int element)
{
    const rcclx_xml *x = &b->t->xml;
    const char *hash = rcclx_xml_get(x, element, "host_hash");
    long long numa;
    int host = 0, vertex;

    RCCLX_TRY(number(b, element, "numaid", -1, 65535, 0, &numa));
    for (host = 0; host < b->t->nhosts; host++) {
        const char *other = rcclx_xml_get(x, b->hosts[host], "host_hash");
        if (!strcmp(hash ? hash : "", other ? other : ""))
            break;
    }
    if (host == HOSTS)
        return wrong(b, element, "more than %d hosts in one file", HOSTS);
    if (host == b->t->nhosts) {
        b->switch_of[host] = -1;
        b->hosts[b->t->nhosts++] = element;
    }
    for (int v = 0; v < b->t->nvertices; v++)
        if (b->t->vertices[v].kind == RCCLX_TOPO_CPU && b->t->vertices[v].host == host && b->t->vertices[v].dev == numa)
            return wrong(b, element, "numaid=\"%lld\" stands twice, first in line %d", numa,
                         x->elements[b->t->vertices[v].element].line);
    RCCLX_TRY(add_vertex(b, RCCLX_TOPO_CPU, element, host, rcclx_xml_get(x, element, "numaid"), &vertex));
    b->t->vertices[vertex].dev = (int)numa;
    b->t->ncpus++;
    return RCCLX_OK;
}

static bool leads_somewhere(const rcclx_xml *x, int element)
{
    for (int e = x->elements[element].first; e >= 0; e = x->elements[e].next)
        if (rcclx_xml_is(x, e, "gpu") || rcclx_xml_is(x, e, "nic") || (rcclx_xml_is(x, e, "pci") && leads_somewhere(x, e)))
            return true;
    return false;
}

static rcclx_status add_pci(builder *b, int element, int above)
{
    const rcclx_xml *x = &b->t->xml;
    const char *busid = rcclx_xml_get(x, element, "busid");
    const bool gpu = child(x, element, "gpu") >= 0, nic = child(x, element, "nic") >= 0;
    long long width;
    int vertex;

    if (!busid || !rcclx_busid_valid(busid))
        return wrong(b, element, busid ? "busid=\"%s\" is none, which looks like 0000:0c:00.0" : "it has no busid%s",
                     busid ? busid : "");
    RCCLX_TRY(number(b, element, "link_width", 0, 64, 0, &width));
    if (!leads_somewhere(x, element))
        return RCCLX_OK;
    for (int v = 0; gpu && v < b->t->nvertices; v++) {
        const rcclx_topo_vertex *o = &b->t->vertices[v];
        if (o->kind == RCCLX_TOPO_GPU && o->host == b->t->vertices[above].host && rcclx_busid_same(o->name, busid))
            return wrong(b, element, "a GPU with busid=\"%s\" stands in line %d already", busid,
                         x->elements[o->element].line);
    }
    const rcclx_topo_kind kind = gpu ? RCCLX_TOPO_GPU : nic ? RCCLX_TOPO_NIC : RCCLX_TOPO_PCI;
    RCCLX_TRY(add_vertex(b, kind, element, b->t->vertices[above].host, busid, &vertex));
    const double rate = rcclx_rate_pci(rcclx_xml_get(x, element, "link_speed"), (int)width);
    return add_link(b, above, vertex, RCCLX_LINK_PCI, rate > 0 ? rate : RCCLX_RATE_PCI_ASSUMED,
                    rate > 0 ? RCCLX_RATE_STATED : RCCLX_RATE_ASSUMED);
}

static rcclx_status add_gpu(builder *b, int element, int above)
{
    rcclx_topo *t = b->t;
    long long dev, rank, direct;

    if (t->vertices[above].kind != RCCLX_TOPO_GPU)
        return wrong(b, element, "a GPU must be in a <pci>");
    if (t->vertices[above].dev >= 0)
        return wrong(b, element, "two GPUs in one <pci>");
    RCCLX_TRY(number(b, element, "dev", 0, 65535, t->ngpus, &dev));
    RCCLX_TRY(number(b, element, "rank", -1, INT32_MAX, -1, &rank));
    RCCLX_TRY(number(b, element, "gdr", 0, 1, 0, &direct));
    if (t->ngpus == RCCLX_TOPO_GPUS)
        return wrong(b, element, "more than %d GPUs", RCCLX_TOPO_GPUS);
    t->vertices[above].dev = (int)dev;
    t->vertices[above].rank = (int)rank;
    t->vertices[above].direct = direct;
    t->gpus[t->ngpus++] = above;
    b->vertex[element] = above;
    return RCCLX_OK;
}

/* A NIC right below a CPU, without a PCI device: what a virtual machine may be told. */
static rcclx_status add_nic(builder *b, int element, int above)
{
    int vertex = above;

    if (b->t->vertices[above].kind != RCCLX_TOPO_NIC) {
        RCCLX_TRY(add_vertex(b, RCCLX_TOPO_NIC, element, b->t->vertices[above].host, NULL, &vertex));
        RCCLX_TRY(add_link(b, above, vertex, RCCLX_LINK_LOCAL, RCCLX_RATE_LOCAL, RCCLX_RATE_STATED));
    }
    b->vertex[element] = vertex;
    return RCCLX_OK;
}

static rcclx_status add_net(builder *b, int element, int above)
{
    rcclx_topo *t = b->t;
    const char *name = rcclx_xml_get(&t->xml, element, "name");
    long long dev, speed, direct;
    int vertex;

    if (!name)
        return wrong(b, element, "it has no name");
    RCCLX_TRY(number(b, element, "dev", 0, 65535, t->nnets, &dev));
    RCCLX_TRY(number(b, element, "speed", 0, 1000000000, 0, &speed));
    RCCLX_TRY(number(b, element, "gdr", 0, 1, 0, &direct));
    if (t->nnets == RCCLX_TOPO_NETS)
        return wrong(b, element, "more than %d network ports", RCCLX_TOPO_NETS);
    RCCLX_TRY(add_vertex(b, RCCLX_TOPO_NET, element, t->vertices[above].host, name, &vertex));
    t->vertices[vertex].dev = (int)dev;
    t->vertices[vertex].rate = speed ? (double)speed / 8000 : 1.25; /* Mbit/s; a port of 10 Gbit/s if it does not say */
    t->vertices[vertex].direct = direct;
    t->nets[t->nnets++] = vertex;
    return add_link(b, above, vertex, RCCLX_LINK_PORT, t->vertices[vertex].rate,
                    speed ? RCCLX_RATE_STATED : RCCLX_RATE_ASSUMED);
}

/* A vertex for each element, in their order: parents come before children. */
static rcclx_status add_vertices(builder *b)
{
    static const struct { const char *name, *in; rcclx_status (*add)(builder *, int, int); } rows[] = {
        { "pci", "cpu pci", add_pci }, { "gpu", "pci", add_gpu }, { "nic", "cpu pci", add_nic }, { "net", "nic", add_net },
    };
    const rcclx_xml *x = &b->t->xml;

    for (int e = 1; e < x->nelements; e++) {
        const int parent = x->elements[e].parent;

        b->vertex[e] = -1;
        if (rcclx_xml_is(x, e, "cpu")) {
            if (parent)
                return wrong(b, e, "a CPU must be right in <system>");
            RCCLX_TRY(add_cpu(b, e));
            continue;
        }
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            if (!rcclx_xml_is(x, e, rows[i].name))
                continue;
            if (!strstr(rows[i].in, x->elements[parent].name))
                return wrong(b, e, "it must not be in <%s>", x->elements[parent].name);
            if (b->vertex[parent] >= 0)
                RCCLX_TRY(rows[i].add(b, e, b->vertex[parent]));
        }
    }
    return RCCLX_OK;
}

/* --- links between GPUs, between CPUs -------------------------------------------------------- */

static int find_gpu(const rcclx_topo *t, int host, const char *busid)
{
    for (int i = 0; i < t->ngpus; i++)
        if (t->vertices[t->gpus[i]].host == host && rcclx_busid_same(t->vertices[t->gpus[i]].name, busid))
            return t->gpus[i];
    return -1;
}

static rcclx_status gpu_switch(builder *b, int host, int *vertex)
{
    if (b->switch_of[host] < 0)
        RCCLX_TRY(add_vertex(b, RCCLX_TOPO_SWITCH, -1, host, "switch of GPUs", &b->switch_of[host]));
    *vertex = b->switch_of[host];
    return RCCLX_OK;
}

/* xgmi, nvlink: target, count, and what kind of device is there, a PCI class: 0x0680.. is a switch. */
static rcclx_status add_gpu_link(builder *b, int element)
{
    const rcclx_xml *x = &b->t->xml;
    const bool xgmi = rcclx_xml_is(x, element, "xgmi");
    const int gpu = x->elements[element].parent, from = b->vertex[gpu];
    const char *target = rcclx_xml_get(x, element, "target"), *class = rcclx_xml_get(x, element, "tclass");
    const bool to_switch = class && !strncmp(class, "0x0680", 6);
    long long count, sm;
    int to;

    if (!rcclx_xml_is(x, gpu, "gpu"))
        return wrong(b, element, "it must be in a <gpu>");
    RCCLX_TRY(number(b, element, "count", 1, 1024, 1, &count));
    RCCLX_TRY(number(b, gpu, "sm", 0, 100000, 0, &sm));
    if (!to_switch && (!target || !rcclx_busid_valid(target)))
        return wrong(b, element, "target=\"%s\" is no bus id, which looks like 0000:0c:00.0", target ? target : "");
    if (to_switch)
        RCCLX_TRY(gpu_switch(b, b->t->vertices[from].host, &to));
    else
        to = find_gpu(b->t, b->t->vertices[from].host, target);
    if (to < 0) {
        RCCLX_INFO_LOG(GRAPH, "%s, line %d: the GPU %s at the other end is not in the description: the link is left out",
                       x->source, x->elements[element].line, target);
        return RCCLX_OK;
    }
    if (to == from)
        return wrong(b, element, "the link leads back to its own GPU %s", target);
    const double rate = xgmi ? rcclx_rate_xgmi(rcclx_xml_get(x, gpu, "gcn")) : rcclx_rate_nvlink((int)sm);
    return bundle(b, from, to, xgmi ? RCCLX_LINK_XGMI : RCCLX_LINK_NVLINK, (int)count,
                  rate > 0 ? rate : RCCLX_RATE_GPU_ASSUMED, rate > 0 ? RCCLX_RATE_GENERATION : RCCLX_RATE_ASSUMED);
}

/* c2c: bw in MB/s of one link. */
static rcclx_status add_c2c(builder *b, int element)
{
    const rcclx_xml *x = &b->t->xml;
    const int gpu = x->elements[element].parent;
    long long count, rate;
    int cpu = gpu;

    if (!rcclx_xml_is(x, gpu, "gpu"))
        return wrong(b, element, "it must be in a <gpu>");
    RCCLX_TRY(number(b, element, "count", 1, 1024, 1, &count));
    RCCLX_TRY(number(b, element, "bw", 1, 100000000, 20000, &rate));
    while (!rcclx_xml_is(x, cpu, "cpu"))
        cpu = x->elements[cpu].parent;
    return bundle(b, b->vertex[gpu], b->vertex[cpu], RCCLX_LINK_C2C, (int)count, (double)rate / 1000, RCCLX_RATE_STATED);
}

static rcclx_status add_gpu_links(builder *b)
{
    const rcclx_xml *x = &b->t->xml;

    for (int e = 1; e < x->nelements; e++) {
        if (rcclx_xml_is(x, e, "xgmi") || rcclx_xml_is(x, e, "nvlink"))
            RCCLX_TRY(add_gpu_link(b, e));
        else if (rcclx_xml_is(x, e, "c2c"))
            RCCLX_TRY(add_c2c(b, e));
    }
    /* one end alone may tell of a link; a switch or a CPU tells of none */
    for (int i = 0; i < b->t->nlinks; i++) {
        rcclx_topo_link *l = &b->t->links[i];
        if (l->kind != RCCLX_LINK_XGMI && l->kind != RCCLX_LINK_NVLINK && l->kind != RCCLX_LINK_C2C)
            continue;
        const rcclx_topo_link *back = find_link(b->t, l->to, l->from, (rcclx_link_kind)l->kind);
        if (back->count > l->count) {
            l->count = back->count;
            l->rate = back->rate;
        }
    }
    return RCCLX_OK;
}

static rcclx_status add_sockets(builder *b)
{
    const rcclx_topo *t = b->t;

    for (int i = 0; i < t->nvertices; i++)
        for (int k = i + 1; k < t->nvertices; k++) {
            const rcclx_topo_vertex *a = &t->vertices[i], *o = &t->vertices[k];
            long long family, model;
            if (a->kind != RCCLX_TOPO_CPU || o->kind != RCCLX_TOPO_CPU || a->host != o->host)
                continue;
            RCCLX_TRY(number(b, a->element, "familyid", -1, 100000, -1, &family));
            RCCLX_TRY(number(b, a->element, "modelid", -1, 100000, -1, &model));
            const double rate = rcclx_rate_socket(rcclx_xml_get(&t->xml, a->element, "arch"),
                                                  rcclx_xml_get(&t->xml, a->element, "vendor"), (int)family, (int)model);
            RCCLX_TRY(add_link(b, i, k, RCCLX_LINK_SOCKET, rate > 0 ? rate : RCCLX_RATE_SOCKET_ASSUMED,
                               rate > 0 ? RCCLX_RATE_GENERATION : RCCLX_RATE_ASSUMED));
        }
    return RCCLX_OK;
}

/* --- in order ------------------------------------------------------------------------------------ */

static int by_from(const void *a, const void *b)
{
    const rcclx_topo_link *x = a, *y = b;

    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    if (x->to != y->to)
        return x->to < y->to ? -1 : 1;
    return x->kind - y->kind;
}

/* Links stand with the vertex that they leave. */
static void order_links(rcclx_topo *t)
{
    if (t->nlinks)
        qsort(t->links, (size_t)t->nlinks, sizeof(*t->links), by_from);
    for (int v = 0, i = 0; v < t->nvertices; v++) {
        t->vertices[v].first = i;
        while (i < t->nlinks && t->links[i].from == v)
            i++;
        t->vertices[v].nlinks = i - t->vertices[v].first;
    }
    for (int i = 0; i < t->nlinks; i++) {
        const rcclx_topo_link back = { .kind = t->links[i].kind, .from = t->links[i].to, .to = t->links[i].from };
        const rcclx_topo_link *l = bsearch(&back, t->links, (size_t)t->nlinks, sizeof(back), by_from);
        t->links[i].back = (int)(l - t->links);
    }
}

/* GPUs and ports by host and dev. A description may name a dev twice only if it holds several hosts. */
static rcclx_status order_devices(builder *b, int *devices, int n)
{
    const rcclx_topo *t = b->t;

    for (int i = 1; i < n; i++)
        for (int k = i; k > 0; k--) {
            const rcclx_topo_vertex *lower = &t->vertices[devices[k - 1]], *upper = &t->vertices[devices[k]];
            if (lower->host < upper->host || (lower->host == upper->host && lower->dev < upper->dev))
                break;
            if (lower->host == upper->host && lower->dev == upper->dev && lower->kind == RCCLX_TOPO_GPU)
                return wrong(b, upper->element, "the GPU has dev=\"%d\", as that of line %d", upper->dev,
                             t->xml.elements[lower->element].line);
            if (lower->host == upper->host && lower->dev == upper->dev)
                break; /* ports of one device */
            const int swap = devices[k];
            devices[k] = devices[k - 1];
            devices[k - 1] = swap;
        }
    return RCCLX_OK;
}

static rcclx_status check_root(const builder *b)
{
    const rcclx_xml *x = &b->t->xml;
    long long version;

    if (!x->nelements || !rcclx_xml_is(x, 0, "system"))
        return wrong(b, 0,
                     rcclx_xml_is(x, 0, "graphs") ? "this is a file of rings and trees (NCCL_GRAPH_FILE), not of a machine"
                                                  : "the description of a machine begins with <system>");
    RCCLX_TRY(number(b, 0, "version", 1, 1000, 1, &version));
    if (version > 2)
        return wrong(b, 0, "version=\"%lld\" is not known: there are 1 and 2", version);
    return RCCLX_OK;
}

static rcclx_status build(builder *b)
{
    RCCLX_TRY(check_root(b));
    RCCLX_TRY(add_vertices(b));
    if (!b->t->ncpus)
        return wrong(b, 0, "it holds no <cpu>");
    RCCLX_TRY(order_devices(b, b->t->gpus, b->t->ngpus));
    RCCLX_TRY(order_devices(b, b->t->nets, b->t->nnets));
    RCCLX_TRY(add_gpu_links(b));
    RCCLX_TRY(add_sockets(b));
    order_links(b->t);
    return rcclx_topo_find_paths(b->t);
}

rcclx_status rcclx_topo_build(rcclx_topo *t, rcclx_xml *x)
{
    rcclx_status s = RCCLX_NOMEM;

    *t = (rcclx_topo){ .xml = *x };
    *x = (rcclx_xml){ .elements = NULL };
    builder *b = RCCLX_NEW(builder);
    if (b && t->xml.nelements) {
        b->t = t;
        b->vertex = rcclx_mem_alloc((size_t)t->xml.nelements * sizeof(int));
        t->vertices = rcclx_mem_alloc(RCCLX_TOPO_VERTICES * sizeof(*t->vertices));
        s = b->vertex && t->vertices ? build(b) : RCCLX_FAIL(RCCLX_NOMEM, "no memory for the graph of a machine");
        rcclx_mem_free(b->vertex);
    }
    rcclx_mem_free(b);
    if (s != RCCLX_OK)
        rcclx_topo_fini(t);
    return s;
}

void rcclx_topo_fini(rcclx_topo *t)
{
    rcclx_xml_fini(&t->xml);
    rcclx_mem_free(t->vertices);
    rcclx_mem_free(t->links);
    rcclx_mem_free(t->paths);
    rcclx_mem_free(t->hops);
    *t = (rcclx_topo){ .vertices = NULL };
}

rcclx_status rcclx_topo_parse(rcclx_topo *t, const char *text, size_t nbytes, const char *source)
{
    rcclx_xml x;

    *t = (rcclx_topo){ .vertices = NULL };
    RCCLX_TRY(rcclx_xml_parse(&x, text, nbytes, source));
    return rcclx_topo_build(t, &x);
}

rcclx_status rcclx_topo_read(rcclx_topo *t, const char *path)
{
    rcclx_xml x;

    *t = (rcclx_topo){ .vertices = NULL };
    RCCLX_TRY(rcclx_xml_read(&x, path));
    return rcclx_topo_build(t, &x);
}

int rcclx_topo_find_gpu(const rcclx_topo *t, const char *busid)
{
    for (int i = 0; i < t->ngpus; i++)
        if (rcclx_busid_same(t->vertices[t->gpus[i]].name, busid))
            return i;
    return -1;
}

rcclx_status rcclx_topo_match(const rcclx_topo *t, const char *const *busids, int n)
{
    for (int i = 0; i < n; i++)
        if (rcclx_topo_find_gpu(t, busids[i]) < 0)
            return RCCLX_FAIL(RCCLX_USAGE,
                              "%s holds %d GPUs (the first is %s), and not %s, which is in use here: is it of another "
                              "machine? Unset NCCL_TOPO_FILE to have the machine looked at",
                              *t->xml.source ? t->xml.source : "the description", t->ngpus,
                              t->ngpus ? t->vertices[t->gpus[0]].name : "none", busids[i]);
    return RCCLX_OK;
}
