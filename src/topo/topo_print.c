/* A machine in text: the tree of its devices, bridges that lead to one thing alone drawn
 * into its line, then the matrix of ways.
 *
 *   CPU 0            AuthenticAMD, to the other CPUs 24 GB/s
 *   +-- bridge 05    48 GB/s
 *   |   +-- GPU 0    gfx942       48 GB/s  0c:00.0 behind 08:00.0, 0a:00.0
 *   |   +-- mlx5_0   400 Gbit/s   48 GB/s  07:00.0
 *   ...                                                                     */
#include "topo/topo.h"

#include "topo/topo_text.h"

#include <string.h>

enum { DEEP = 64 };

static const char *attribute(const rcclx_topo *t, const rcclx_topo_vertex *v, const char *key)
{
    const char *value = v->element >= 0 ? rcclx_xml_get(&t->xml, v->element, key) : NULL;

    return value ? value : "";
}

/* The element <gpu> below its <pci>. */
static const char *gpu_attribute(const rcclx_topo *t, const rcclx_topo_vertex *v, const char *key)
{
    for (int e = t->xml.elements[v->element].first; e >= 0; e = t->xml.elements[e].next)
        if (rcclx_xml_is(&t->xml, e, "gpu")) {
            const char *value = rcclx_xml_get(&t->xml, e, key);
            return value ? value : "";
        }
    return "";
}

void rcclx_topo_label(const rcclx_topo *t, int vertex, char *text, size_t n)
{
    const rcclx_topo_vertex *v = &t->vertices[vertex];

    switch (v->kind) {
    case RCCLX_TOPO_GPU: snprintf(text, n, "GPU %d", v->dev); break;
    case RCCLX_TOPO_CPU: snprintf(text, n, "CPU %d", v->dev); break;
    case RCCLX_TOPO_PCI: snprintf(text, n, "bridge %s", rcclx_topo_short_busid(v->name)); break;
    case RCCLX_TOPO_SWITCH: snprintf(text, n, "switch of GPUs"); break;
    case RCCLX_TOPO_NIC: snprintf(text, n, "NIC"); break;
    default: snprintf(text, n, "%s", v->name); break;
    }
}

const char *rcclx_topo_short_busid(const char *busid)
{
    return !strncmp(busid, "0000:", 5) ? busid + 5 : busid;
}

void rcclx_topo_detail(const rcclx_topo *t, int vertex, char *text, size_t n)
{
    const rcclx_topo_vertex *v = &t->vertices[vertex];

    text[0] = 0;
    if (v->kind == RCCLX_TOPO_GPU) {
        const char *gcn = gpu_attribute(t, v, "gcn"), *sm = gpu_attribute(t, v, "sm");
        if (*gcn)
            snprintf(text, n, "%s%s", strncmp(gcn, "gfx", 3) ? "gfx" : "", gcn);
        else if (*sm)
            snprintf(text, n, "sm_%s", sm);
    } else if (v->kind == RCCLX_TOPO_CPU) {
        snprintf(text, n, "%s", attribute(t, v, "vendor"));
    } else if (v->kind == RCCLX_TOPO_NET) {
        snprintf(text, n, "%g Gbit/s", v->rate * 8);
    }
}

/* What hangs below a vertex: away from its CPU, by PCI and its like. */
static int children(const rcclx_topo *t, int vertex, int from, int *list, int most)
{
    const rcclx_topo_vertex *v = &t->vertices[vertex];
    int n = 0;

    for (int i = v->first; i < v->first + v->nlinks && n < most; i++) {
        const rcclx_topo_link *l = &t->links[i];
        const bool below = l->kind == RCCLX_LINK_PCI || l->kind == RCCLX_LINK_PORT || l->kind == RCCLX_LINK_LOCAL;
        if (below && l->to != from)
            list[n++] = i;
    }
    return n;
}

typedef struct {
    FILE *out;
    const rcclx_topo *t;
    bool more[DEEP]; /* at this depth something follows */
} drawing;

/* The CPU's line says how it reaches the others. */
static void put_cpu(const drawing *d, int vertex)
{
    const rcclx_topo_vertex *v = &d->t->vertices[vertex];
    char detail[128];
    double rate = 0;

    for (int i = v->first; i < v->first + v->nlinks; i++)
        rate = d->t->links[i].kind == RCCLX_LINK_SOCKET ? d->t->links[i].rate : rate;
    rcclx_topo_detail(d->t, vertex, detail, sizeof(detail));
    fprintf(d->out, "CPU %d", v->dev);
    if (d->t->nhosts > 1)
        fprintf(d->out, " of host %d", v->host);
    fprintf(d->out, "%s%s", *detail ? "  " : "", detail);
    if (rate > 0)
        fprintf(d->out, ", %g GB/s to each other CPU", rate);
    fputc('\n', d->out);
}

static void put_branch(drawing *d, int link, int depth, bool last)
{
    char bridges[256] = "", label[128], detail[128];
    int list[256], vertex = d->t->links[link].to, from = d->t->links[link].from, n;
    double rate = d->t->links[link].rate;

    /* bridges, or a NIC, with one thing below are drawn in its line */
    while ((n = children(d->t, vertex, from, list, 256)) == 1 && d->t->vertices[vertex].kind != RCCLX_TOPO_GPU) {
        const char *name = d->t->vertices[vertex].name;
        const size_t used = strlen(bridges);
        if (name)
            snprintf(bridges + used, sizeof(bridges) - used, "%s%s", used ? ", " : "", rcclx_topo_short_busid(name));
        from = vertex;
        vertex = d->t->links[list[0]].to;
        rate = d->t->links[list[0]].rate < rate ? d->t->links[list[0]].rate : rate;
    }
    for (int i = 0; i < depth; i++)
        fputs(d->more[i] ? "\xe2\x94\x82  " : "   ", d->out);
    rcclx_topo_label(d->t, vertex, label, sizeof(label));
    rcclx_topo_detail(d->t, vertex, detail, sizeof(detail));
    const bool gpu = d->t->vertices[vertex].kind == RCCLX_TOPO_GPU;
    fprintf(d->out, "%s %-10s %-12s %5.4g GB/s%s%s%s%s\n", last ? "\xe2\x94\x94\xe2\x94\x80" : "\xe2\x94\x9c\xe2\x94\x80",
            label, detail, rate, gpu ? "  " : "", gpu ? rcclx_topo_short_busid(d->t->vertices[vertex].name) : "",
            *bridges ? (gpu ? " behind " : "  ") : "", bridges);
    d->more[depth] = !last;
    for (int i = 0; i < n && depth + 1 < DEEP && d->t->vertices[vertex].kind != RCCLX_TOPO_GPU; i++)
        put_branch(d, list[i], depth + 1, i == n - 1);
}

static void put_tree(drawing *d)
{
    for (int v = 0; v < d->t->nvertices; v++) {
        int list[256];
        if (d->t->vertices[v].kind != RCCLX_TOPO_CPU)
            continue;
        put_cpu(d, v);
        const int n = children(d->t, v, -1, list, 256);
        for (int i = 0; i < n; i++)
            put_branch(d, list[i], 0, i == n - 1);
    }
}

static void end_label(const rcclx_topo *t, int end, char *text, size_t n)
{
    rcclx_topo_label(t, end < t->ngpus ? t->gpus[end] : t->nets[end - t->ngpus], text, n);
}

/* Rows are GPUs, columns GPUs and ports: kind of way, GB/s. */
static void put_matrix(const drawing *d)
{
    const rcclx_topo *t = d->t;
    const int nends = t->ngpus + t->nnets;
    char text[64];

    fprintf(d->out, "\nways: kind and GB/s of the narrowest link\n%8s", "");
    for (int b = 0; b < nends; b++) {
        end_label(t, b, text, sizeof(text));
        fprintf(d->out, " %9.9s", text);
    }
    for (int a = 0; a < t->ngpus; a++) {
        end_label(t, a, text, sizeof(text));
        fprintf(d->out, "\n%-8s", text);
        for (int b = 0; b < nends; b++) {
            const rcclx_reach r = rcclx_topo_reach(t, a, b);
            snprintf(text, sizeof(text),
                     a == b                     ? "-"
                     : r.kind == RCCLX_PATH_DIS ? "DIS"
                                                : "%s %.4g",
                     rcclx_topo_kind_name(t, a, b), r.rate);
            fprintf(d->out, " %9s", text);
        }
    }
    fputc('\n', d->out);
}

/* Only the kinds that occur. */
static void put_legend(const drawing *d)
{
    const int nends = d->t->ngpus + d->t->nnets;
    bool there[RCCLX_PATH_COUNT] = { false };

    for (int a = 0; a < d->t->ngpus; a++)
        for (int b = 0; b < nends; b++)
            there[a == b ? RCCLX_PATH_LOC : rcclx_topo_reach(d->t, a, b).kind] = true;
    for (int k = RCCLX_PATH_NVL; k < RCCLX_PATH_COUNT; k++)
        if (there[k])
            fprintf(d->out, "  %-4s %s\n", rcclx_path_name((rcclx_path_kind)k), rcclx_path_about((rcclx_path_kind)k));
}

static int count_assumed(const rcclx_topo *t)
{
    int n = 0;

    for (int i = 0; i < t->nlinks; i++)
        n += t->links[i].source == RCCLX_RATE_ASSUMED && t->links[i].from < t->links[i].to;
    return n;
}

void rcclx_topo_print(FILE *out, const rcclx_topo *t)
{
    drawing d = { .out = out, .t = t };
    const char *slash = strrchr(t->xml.source, '/');

    fprintf(out, "%s: %d GPU%s, %d CPU%s, %d network port%s\n\n",
            *t->xml.source ? slash ? slash + 1 : t->xml.source : "this machine", t->ngpus, t->ngpus == 1 ? "" : "s",
            t->ncpus, t->ncpus == 1 ? "" : "s", t->nnets, t->nnets == 1 ? "" : "s");
    put_tree(&d);
    if (t->ngpus) {
        put_matrix(&d);
        put_legend(&d);
    }
    if (count_assumed(t))
        fprintf(out, "\nrates of %d link%s are not known, and assumed\n", count_assumed(t),
                count_assumed(t) == 1 ? "" : "s");
}
