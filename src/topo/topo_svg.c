/* The picture of a machine.
 *
 *      .--- CPU 0 ---.            matrix of ways
 *     /  port   port  \           [XGMI 48] [PHB 24] ...
 *    |   GPU --- GPU   |
 *    |     \  x  /     |          A band is a CPU, a thin one a bridge that joins what lies
 *    |   GPU --- GPU   |          below it; chords are links between GPUs, the wider the
 *     \  port   port  /           more they carry.
 *      '--- CPU 1 ---'
 *
 *   ring 0   ring 1   ring 2 ...  the same circle, small, once a channel
 *
 * Around the circle devices stand in the order of the tree, so that neighbours in the
 * machine are neighbours in the picture. */
#include "topo/draw.h"

#include "base/mem.h"
#include "topo/topo_text.h"

#include <math.h>
#include <string.h>

enum {
    CIRCLE = 210,
    PORTS = 272,
    BRIDGES = 304,
    CPUS = 334,
    SMALL = 56,
    SIDE = 168,
    ROW_LENGTH = 8,
    MOST_SMALL = 16,
    TOP = 84
};

#define PI 3.14159265358979323846

typedef struct {
    double angle;
    int    cpu; /* vertex */
} spot;

typedef struct {
    FILE *out;
    const rcclx_topo *t;
    const rcclx_share *node;
    int     ncpus, cpus[RCCLX_TOPO_GPUS];
    double  from[RCCLX_TOPO_GPUS], to[RCCLX_TOPO_GPUS]; /* [cpu]: its sector */
    spot    spots[RCCLX_TOPO_GPUS + RCCLX_TOPO_NETS];   /* [end] */
    bool    takes_part[RCCLX_TOPO_GPUS];
    double  widest;
    double  x, y;                                       /* middle of the circle now drawn */
} canvas;

static const struct { const char *fill, *ink;
} colours[RCCLX_PATH_COUNT] = {
    [RCCLX_PATH_LOC] = { "#f7fafc", "#a0aec0" }, [RCCLX_PATH_NVL] = { "#2b6cb0", "#ffffff" },
    [RCCLX_PATH_NVB] = { "#90cdf4", "#1a365d" }, [RCCLX_PATH_C2C] = { "#319795", "#ffffff" },
    [RCCLX_PATH_PIX] = { "#2f855a", "#ffffff" }, [RCCLX_PATH_PXB] = { "#9ae6b4", "#22543d" },
    [RCCLX_PATH_P2C] = { "#81e6d9", "#234e52" }, [RCCLX_PATH_PXN] = { "#d6bcfa", "#44337a" },
    [RCCLX_PATH_PHB] = { "#faf089", "#744210" }, [RCCLX_PATH_SYS] = { "#fbd38d", "#7b341e" },
    [RCCLX_PATH_NET] = { "#e2e8f0", "#4a5568" }, [RCCLX_PATH_DIS] = { "#ffffff", "#cbd5e0" },
};
static const char *const bands[] = {
    "#4c6ef5", "#f06595", "#20c997", "#fab005", "#845ef7", "#22b8cf", "#ff922b", "#94d82d"
};

/* --- where things stand ------------------------------------------------------------------ */

static int end_vertex(const rcclx_topo *t, int end)
{
    return end < t->ngpus ? t->gpus[end] : t->nets[end - t->ngpus];
}

static int cpu_of(const rcclx_topo *t, int vertex)
{
    int e = t->vertices[vertex].element;

    while (e > 0 && !rcclx_xml_is(&t->xml, e, "cpu"))
        e = t->xml.elements[e].parent;
    for (int v = 0; v < t->nvertices; v++)
        if (t->vertices[v].kind == RCCLX_TOPO_CPU && t->vertices[v].element == e)
            return v;
    return -1;
}

static int count_ends(const canvas *c, int cpu, bool ports)
{
    int n = 0;

    for (int e = ports ? c->t->ngpus : 0; e < (ports ? c->t->ngpus + c->t->nnets : c->t->ngpus); e++)
        n += c->spots[e].cpu == cpu;
    return n;
}

/* GPUs, or ports, of a CPU evenly over its sector, in the order of the description. */
static void spread(canvas *c, int k, bool ports)
{
    const rcclx_topo *t = c->t;
    const int first = ports ? t->ngpus : 0, last = ports ? t->ngpus + t->nnets : t->ngpus,
              n = count_ends(c, c->cpus[k], ports);

    for (int a = first; a < last; a++) {
        int before = 0;
        if (c->spots[a].cpu != c->cpus[k])
            continue;
        for (int b = first; b < last; b++)
            before += c->spots[b].cpu == c->cpus[k] &&
                      t->vertices[end_vertex(t, b)].element < t->vertices[end_vertex(t, a)].element;
        c->spots[a].angle = c->from[k] + (c->to[k] - c->from[k]) * (before + 0.5) / n;
    }
}

/* A port that shares bridges with GPUs stands over the middle of them. */
static void draw_near(canvas *c, int port)
{
    double sum = 0;
    int best = RCCLX_PATH_PHB, n = 0;

    for (int g = 0; g < c->t->ngpus; g++) {
        const int kind = rcclx_topo_path(c->t, g, port)->kind;
        if (kind >= RCCLX_PATH_PHB || kind > best)
            continue;
        sum = kind < best ? 0 : sum;
        n = kind < best ? 0 : n;
        best = kind;
        sum += c->spots[g].angle;
        n++;
    }
    c->spots[port].angle = n ? sum / n : c->spots[port].angle;
}

/* Then ports that are too close move apart. */
static void move_apart(canvas *c)
{
    const int first = c->t->ngpus, n = c->t->nnets;
    const double gap = fmin(0.19, 2 * PI / (n + 1));

    for (int pass = 0; pass < 200; pass++)
        for (int a = first; a < first + n; a++)
            for (int b = a + 1; b < first + n; b++) {
                const double apart = c->spots[b].angle - c->spots[a].angle;
                if (fabs(apart) < gap) {
                    const double push = (gap - fabs(apart)) / 2 * (apart < 0 ? -1 : 1);
                    c->spots[a].angle -= push;
                    c->spots[b].angle += push;
                }
            }
}

static void place(canvas *c)
{
    double slots = 0, at = 0;

    for (int e = 0; e < c->t->ngpus + c->t->nnets; e++)
        c->spots[e].cpu = cpu_of(c->t, end_vertex(c->t, e));
    for (int v = 0; v < c->t->nvertices && c->ncpus < RCCLX_TOPO_GPUS; v++)
        if (c->t->vertices[v].kind == RCCLX_TOPO_CPU && (count_ends(c, v, false) || count_ends(c, v, true)))
            c->cpus[c->ncpus++] = v;
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < c->ncpus; k++) {
            const int g = count_ends(c, c->cpus[k], false), p = count_ends(c, c->cpus[k], true), n = g > p ? g : p;
            const double gap = c->ncpus > 1 ? 0.3 : 0;
            if (!pass) {
                slots += n + gap;
                continue;
            }
            c->from[k] = -PI / 2 + 2 * PI * (at + gap / 2) / slots;
            c->to[k] = -PI / 2 + 2 * PI * (at + gap / 2 + n) / slots;
            at += n + gap;
        }
    for (int k = 0; k < c->ncpus; k++) {
        spread(c, k, false);
        spread(c, k, true);
    }
    for (int p = 0; p < c->t->nnets; p++)
        draw_near(c, rcclx_topo_net(c->t, p));
    move_apart(c);
}

static double px(const canvas *c, double angle, double radius)
{
    return c->x + radius * cos(angle);
}

static double py(const canvas *c, double angle, double radius)
{
    return c->y + radius * sin(angle);
}

/* --- the circle ----------------------------------------------------------------------------- */

static void put_band(const canvas *c, double from, double to, double radius, double width, const char *colour)
{
    if (to - from > 2 * PI - 1e-3)
        fprintf(c->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\"/>\n",
                c->x, c->y, radius, colour, width);
    else
        fprintf(c->out,
                "<path d=\"M%.1f %.1f A%.1f %.1f 0 %d 1 %.1f %.1f\" fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\" "
                "stroke-linecap=\"round\"/>\n",
                px(c, from, radius), py(c, from, radius), radius, radius, to - from > PI, px(c, to, radius),
                py(c, to, radius), colour, width);
}

/* Along the band, upright in its lower half, too. */
static void put_band_text(const canvas *c, double angle, double radius, const char *text)
{
    const double turn = angle * 180 / PI + (sin(angle) > 0.02 ? -90 : 90);

    fprintf(c->out, "<text class=\"band\" transform=\"translate(%.1f %.1f) rotate(%.1f)\" dy=\"0.36em\">%s</text>\n",
            px(c, angle, radius), py(c, angle, radius), turn, text);
}

static void put_cpus(const canvas *c)
{
    char text[64];

    for (int k = 0; k < c->ncpus; k++) {
        put_band(c, c->from[k], c->to[k], CPUS, 22, bands[k % 8]);
        rcclx_topo_label(c->t, c->cpus[k], text, sizeof(text));
        put_band_text(c, (c->from[k] + c->to[k]) / 2, CPUS, text);
    }
}

static bool lies_below(const rcclx_topo *t, int vertex, int element)
{
    int e = t->vertices[vertex].element;

    while (e > 0 && e != element)
        e = t->xml.elements[e].parent;
    return e == element;
}

/* A thin band over what hangs below one bridge of a CPU, if that is more than one thing. */
static void put_bridges(const canvas *c)
{
    for (int v = 0; v < c->t->nvertices; v++) {
        const rcclx_topo_vertex *b = &c->t->vertices[v];
        double from = 1e9, to = -1e9;
        int n = 0;
        if (b->kind != RCCLX_TOPO_PCI || !rcclx_xml_is(&c->t->xml, c->t->xml.elements[b->element].parent, "cpu"))
            continue;
        for (int e = 0; e < c->t->ngpus + c->t->nnets; e++)
            if (lies_below(c->t, end_vertex(c->t, e), b->element)) {
                from = fmin(from, c->spots[e].angle);
                to = fmax(to, c->spots[e].angle);
                n++;
            }
        if (n > 1)
            put_band(c, from - 0.05, to + 0.05, BRIDGES, 7, "#a0aec0");
    }
}

static void put_chord(const canvas *c, double a, double b, double radius, const char *style)
{
    const double bend = 0.18, mx = (cos(a) + cos(b)) / 2 * radius * bend, my = (sin(a) + sin(b)) / 2 * radius * bend;

    fprintf(c->out, "<path d=\"M%.1f %.1f Q%.1f %.1f %.1f %.1f\" fill=\"none\" %s/>\n", px(c, a, radius), py(c, a, radius),
            c->x + mx, c->y + my, px(c, b, radius), py(c, b, radius), style);
}

static void put_links(const canvas *c)
{
    char style[160];

    for (int a = 0; a < c->t->ngpus; a++)
        for (int b = a + 1; b < c->t->ngpus; b++) {
            const rcclx_path *p = rcclx_topo_path(c->t, a, b);
            if (p->kind != RCCLX_PATH_NVL)
                continue;
            snprintf(style, sizeof(style),
                     "stroke=\"%s\" stroke-width=\"%.2f\" stroke-opacity=\"%s\" stroke-linecap=\"round\"",
                     colours[RCCLX_PATH_NVL].fill, 1 + 5 * p->rate / c->widest,
                     c->takes_part[a] && c->takes_part[b] ? "0.55" : "0.12");
            put_chord(c, c->spots[a].angle, c->spots[b].angle, CIRCLE - 20, style);
        }
}

/* From each port to the GPU of its CPU that is nearest, in the colour of the way. */
static void put_port_lines(const canvas *c)
{
    for (int p = 0; p < c->t->nnets; p++) {
        const int port = rcclx_topo_net(c->t, p);
        int kind = RCCLX_PATH_DIS;
        for (int g = 0; g < c->t->ngpus; g++) {
            const int k = rcclx_topo_path(c->t, g, port)->kind;
            kind = k < kind ? k : kind;
        }
        for (int g = 0; g < c->t->ngpus; g++)
            if (rcclx_topo_path(c->t, g, port)->kind == kind && kind < RCCLX_PATH_PHB)
                fprintf(c->out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"3\"/>\n",
                        px(c, c->spots[g].angle, CIRCLE), py(c, c->spots[g].angle, CIRCLE),
                        px(c, c->spots[port].angle, PORTS), py(c, c->spots[port].angle, PORTS), colours[kind].fill);
    }
}

static const char *band_of(const canvas *c, int cpu)
{
    for (int k = 0; k < c->ncpus; k++)
        if (c->cpus[k] == cpu)
            return bands[k % 8];
    return "#a0aec0";
}

static void put_ends(const canvas *c)
{
    for (int e = 0; e < c->t->ngpus + c->t->nnets; e++) {
        const bool gpu = e < c->t->ngpus, fits = c->t->ngpus <= 24 && c->t->nnets <= 24;
        const double radius = gpu ? CIRCLE : PORTS, x = px(c, c->spots[e].angle, radius),
                     y = py(c, c->spots[e].angle, radius);
        char label[64];
        rcclx_topo_label(c->t, end_vertex(c->t, e), label, sizeof(label));
        if (gpu)
            fprintf(c->out,
                    "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" fill=\"#fff\" stroke=\"%s\" stroke-width=\"3\"%s/>\n"
                    "<text class=\"gpu\" x=\"%.1f\" y=\"%.1f\" dy=\"0.36em\">%s</text>\n",
                    x, y, fits ? 20 : 10, band_of(c, c->spots[e].cpu), c->takes_part[e] ? "" : " opacity=\"0.35\"", x, y,
                    label + 4);
        else
            fprintf(
                c->out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.0f\" height=\"18\" rx=\"9\" fill=\"#edf2f7\" stroke=\"#718096\"/>\n"
                "<text class=\"port\" x=\"%.1f\" y=\"%.1f\" dy=\"0.36em\">%.12s</text>\n",
                x - 6 - 3.1 * (double)strlen(label), y - 9, 12 + 6.2 * (double)strlen(label), x, y, label);
    }
}

static void put_circle(canvas *c)
{
    put_cpus(c);
    put_bridges(c);
    put_port_lines(c);
    put_links(c);
    put_ends(c);
}

/* --- the matrix --------------------------------------------------------------------------------- */

static double cell(const canvas *c)
{
    return c->t->ngpus + c->t->nnets > 20 ? 34 : 44;
}

static void put_cell(const canvas *c, double x, double y, int a, int b)
{
    const rcclx_reach r = rcclx_topo_reach(c->t, a, b);
    const double w = cell(c);
    const int kind = a == b ? RCCLX_PATH_LOC : r.kind;

    fprintf(c->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"4\" fill=\"%s\"/>\n", x, y, w - 2,
            w - 2, colours[kind].fill);
    if (a != b)
        fprintf(c->out,
                "<text class=\"kind\" x=\"%.1f\" y=\"%.1f\" style=\"fill:%s\">%s</text><text class=\"rate\" x=\"%.1f\" "
                "y=\"%.1f\" style=\"fill:%s\">%.3g</text>\n",
                x + w / 2 - 1, y + w * 0.38, colours[kind].ink, rcclx_topo_kind_name(c->t, a, b), x + w / 2 - 1,
                y + w * 0.74, colours[kind].ink, r.rate);
}

static void put_matrix(const canvas *c, double x, double y)
{
    const double w = cell(c);
    const int nends = c->t->ngpus + c->t->nnets;
    char label[64];

    for (int b = 0; b < nends; b++) {
        rcclx_topo_label(c->t, end_vertex(c->t, b), label, sizeof(label));
        const double at = x + 52 + b * w + (b >= c->t->ngpus ? 8 : 0) + w / 2 - 1;
        fprintf(c->out, "<text class=\"head\" transform=\"translate(%.1f %.1f) rotate(-40)\">%.14s</text>\n", at, y - 6,
                label);
    }
    for (int a = 0; a < c->t->ngpus; a++) {
        rcclx_topo_label(c->t, end_vertex(c->t, a), label, sizeof(label));
        fprintf(c->out, "<text class=\"side\" x=\"%.1f\" y=\"%.1f\" dy=\"0.36em\">%s</text>\n", x + 44, y + a * w + w / 2,
                label);
        for (int b = 0; b < nends; b++)
            put_cell(c, x + 52 + b * w + (b >= c->t->ngpus ? 8 : 0), y + a * w, a, b);
    }
}

static void put_legend(const canvas *c, double x, double y)
{
    const int nends = c->t->ngpus + c->t->nnets;
    bool there[RCCLX_PATH_COUNT] = { false };
    int n = 0;

    for (int a = 0; a < c->t->ngpus; a++)
        for (int b = 0; b < nends; b++)
            there[a == b ? RCCLX_PATH_LOC : rcclx_topo_reach(c->t, a, b).kind] = true;
    for (int k = RCCLX_PATH_NVL; k < RCCLX_PATH_COUNT; k++) {
        if (!there[k])
            continue;
        fprintf(c->out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"14\" rx=\"3\" fill=\"%s\"/>"
                "<text class=\"legend\" x=\"%.1f\" y=\"%.1f\">%s: %s</text>\n",
                x + 52, y + 20 * n, colours[k].fill, x + 72, y + 20 * n + 11, rcclx_path_name((rcclx_path_kind)k),
                rcclx_path_about((rcclx_path_kind)k));
        n++;
    }
}

/* --- schedules ------------------------------------------------------------------------------------- */

static int gpu_of_rank(const canvas *c, int rank)
{
    for (int i = 0; i < c->node->ngpus; i++)
        if ((c->node->ranks ? c->node->ranks[i] : i) == rank)
            return c->node->gpus[i];
    return -1;
}

static void put_arrow(const canvas *c, int from, int to, int colour)
{
    char style[160];

    snprintf(style, sizeof(style), "stroke=\"%s\" stroke-width=\"2\" marker-end=\"url(#arrow%d)\"", bands[colour], colour);
    if (from >= 0 && to >= 0 && from != to) {
        const double a = c->spots[from].angle, b = c->spots[to].angle, bend = 0.35;
        const double ax = px(c, a, SMALL), ay = py(c, a, SMALL), bx = px(c, b, SMALL), by = py(c, b, SMALL);
        const double qx = c->x + (cos(a) + cos(b)) / 2 * SMALL * bend, qy = c->y + (sin(a) + sin(b)) / 2 * SMALL * bend;
        const double back = 9 / (hypot(bx - qx, by - qy) + 1e-9), out = 9 / (hypot(ax - qx, ay - qy) + 1e-9);
        fprintf(c->out, "<path d=\"M%.1f %.1f Q%.1f %.1f %.1f %.1f\" fill=\"none\" %s/>\n", ax + (qx - ax) * out,
                ay + (qy - ay) * out, qx, qy, bx + (qx - bx) * back, by + (qy - by) * back, style);
    }
}

/* In and out of the node: a stub outward at a GPU. */
static void put_stub(const canvas *c, int gpu, bool out, int colour)
{
    const double turn = c->spots[gpu].angle + (out ? 0.09 : -0.09);
    const double near = SMALL + 9, far = SMALL + 22;

    fprintf(
        c->out,
        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"2\" stroke-dasharray=\"3 2\" "
        "marker-end=\"url(#arrow%d)\"/>\n",
        px(c, turn, out ? near : far), py(c, turn, out ? near : far), px(c, turn, out ? far : near),
        py(c, turn, out ? far : near), bands[colour], colour);
}

static void put_channel(const canvas *c, const rcclx_schedule *s, int channel, int colour)
{
    const int n = s->nranks, *row = &s->rows[(size_t)channel * (size_t)n];

    for (int i = 0; i < n; i++) {
        const int from = s->kind == RCCLX_RINGS ? row[i] : i, to = s->kind == RCCLX_RINGS ? row[(i + 1) % n] : row[i];
        const int a = gpu_of_rank(c, from), b = to < 0 ? -1 : gpu_of_rank(c, to);
        put_arrow(c, a, b, colour);
        if (a >= 0 && b < 0 && to >= 0)
            put_stub(c, a, true, colour);
        if (a < 0 && b >= 0)
            put_stub(c, b, false, colour);
        if (s->kind == RCCLX_RAILS && a >= 0 && a == b)
            put_stub(c, a, true, colour);
    }
}

static void put_dots(const canvas *c, const rcclx_schedule *s, int channel)
{
    for (int i = 0; i < c->node->ngpus; i++) {
        const int gpu = c->node->gpus[i], rank = c->node->ranks ? c->node->ranks[i] : i;
        const bool root = s->kind == RCCLX_TREES && s->rows[(size_t)channel * (size_t)s->nranks + (size_t)rank] < 0;
        fprintf(c->out,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"8\" fill=\"%s\" stroke=\"%s\" stroke-width=\"1.5\"/>"
                "<text class=\"dot\" x=\"%.1f\" y=\"%.1f\" dy=\"0.36em\" style=\"fill:%s\">%d</text>\n",
                px(c, c->spots[gpu].angle, SMALL), py(c, c->spots[gpu].angle, SMALL), root ? "#2d3748" : "#fff",
                band_of(c, c->spots[gpu].cpu), px(c, c->spots[gpu].angle, SMALL), py(c, c->spots[gpu].angle, SMALL),
                root ? "#fff" : "#2d3748", rank);
    }
}

static void put_caption(const canvas *c, const rcclx_schedule *s, int channel)
{
    const int port = s->kind == RCCLX_SWAPS ? -1 : s->ports[channel * s->nnodes];
    char label[64] = "";

    if (port >= 0)
        rcclx_topo_label(c->t, c->t->nets[port], label, sizeof(label));
    fprintf(c->out, "<text class=\"caption\" x=\"%.1f\" y=\"%.1f\">%d%s%s</text>\n", c->x - SIDE / 2.0 + 8,
            c->y - SIDE / 2.0 + 10, channel, *label ? " \xc2\xb7 " : "", label);
}

static int rows_of(const rcclx_schedule *s)
{
    const int shown = s->nchannels < MOST_SMALL ? s->nchannels : MOST_SMALL;

    return (shown + ROW_LENGTH - 1) / ROW_LENGTH;
}

static double put_schedule(canvas *c, const rcclx_schedule *s, double y)
{
    char headline[256];

    rcclx_schedule_headline(s, headline, sizeof(headline));
    fprintf(c->out, "<text class=\"title2\" x=\"40\" y=\"%.1f\">%s</text>\n", y + 16, headline);
    for (int k = 0; k < s->nchannels && k < MOST_SMALL; k++) {
        c->x = 40 + SIDE / 2.0 + k % ROW_LENGTH * (SIDE + 6);
        c->y = y + 40 + SIDE / 2.0 + (SIDE + 14) * (k / ROW_LENGTH);
        fprintf(c->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"10\" fill=\"#f7fafc\"/>\n",
                c->x - SIDE / 2.0, c->y - SIDE / 2.0 - 6, SIDE, SIDE + 10);
        put_channel(c, s, k, k % 8);
        put_dots(c, s, k);
        put_caption(c, s, k);
    }
    if (s->nchannels > MOST_SMALL)
        fprintf(c->out, "<text class=\"legend\" x=\"40\" y=\"%.1f\">and %d more</text>\n",
                y + 46 + (SIDE + 14.0) * rows_of(s), s->nchannels - MOST_SMALL);
    return y + 62 + (SIDE + 14) * rows_of(s);
}

/* --- all of it -------------------------------------------------------------------------------------- */

static void put_head(const canvas *c, double width, double height, int nnodes)
{
    const char *slash = strrchr(c->t->xml.source, '/'),
               *name = *c->t->xml.source ? slash ? slash + 1 : c->t->xml.source : "this machine";

    fprintf(c->out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\">\n",
            width, height, width, height);
    fputs(
        "<style>text{font-family:'DejaVu Sans',Helvetica,Arial,sans-serif;fill:#2d3748;text-anchor:middle}"
        ".title{font-size:24px;font-weight:bold;text-anchor:start}.title2{font-size:16px;font-weight:bold;text-anchor:start}"
        ".about{font-size:14px;text-anchor:start;fill:#718096}.band{font-size:13px;font-weight:bold;fill:#fff}"
        ".gpu{font-size:15px;font-weight:bold}.port{font-size:10px}.kind{font-size:10px;font-weight:bold}"
        ".rate{font-size:11px}.head{font-size:11px;text-anchor:start}.side{font-size:12px;text-anchor:end}"
        ".legend{font-size:12px;text-anchor:start}.dot{font-size:9px}.caption{font-size:11px;fill:#718096;text-anchor:start}"
        "</style>\n",
        c->out);
    fputs("<defs>\n", c->out);
    for (int k = 0; k < 8; k++)
        fprintf(c->out,
                "<marker id=\"arrow%d\" viewBox=\"0 0 8 8\" refX=\"6\" refY=\"4\" markerWidth=\"5\" markerHeight=\"5\" "
                "orient=\"auto\">"
                "<path d=\"M0 0.5 L8 4 L0 7.5 z\" fill=\"%s\"/></marker>\n",
                k, bands[k]);
    fputs("</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n", c->out);
    fprintf(c->out, "<text class=\"title\" x=\"40\" y=\"44\">%s</text>\n<text class=\"about\" x=\"40\" y=\"68\">", name);
    fprintf(c->out, "%d GPUs, %d CPUs, %d network ports", c->t->ngpus, c->t->ncpus, c->t->nnets);
    if (nnodes > 1)
        fprintf(c->out, "; schedules for %d nodes like this one, seen in the first", nnodes);
    fputs("</text>\n", c->out);
}

/* Where the schedules begin: below the circle and the legend, which has a line a kind of way. */
static double begin_schedules(const rcclx_topo *t, double cell_size)
{
    return fmax(TOP + 2 * CPUS + 60, TOP + 110 + t->ngpus * cell_size + 20 * (RCCLX_PATH_COUNT - 3));
}

static double height_of(const rcclx_schedule *found, double y)
{
    for (int k = 0; k < RCCLX_SWAPS; k++)
        y += found[k].nchannels ? 62 + (SIDE + 14) * rows_of(&found[k]) : 0;
    return y + 10;
}

void rcclx_topo_svg(FILE *out, const rcclx_topo *t, const rcclx_schedule *found, const rcclx_share *nodes, int nnodes)
{
    canvas *c = RCCLX_NEW(canvas);

    if (!c)
        return;
    *c = (canvas){ .out = out, .t = t, .node = &nodes[0], .widest = 1 };
    for (int i = 0; i < nodes[0].ngpus; i++)
        c->takes_part[nodes[0].gpus[i]] = true;
    for (int a = 0; a < t->ngpus; a++)
        for (int b = 0; b < t->ngpus; b++)
            c->widest = a != b && rcclx_topo_path(t, a, b)->kind == RCCLX_PATH_NVL
                            ? fmax(c->widest, rcclx_topo_path(t, a, b)->rate)
                            : c->widest;
    place(c);
    const double matrix = 2 * CPUS + 110, across = matrix + 52 + (t->ngpus + t->nnets) * cell(c) + 60,
                 rings = 80 + ROW_LENGTH * (SIDE + 6);
    const double begin = begin_schedules(t, cell(c));
    put_head(c, across > rings ? across : rings, height_of(found, begin), nnodes);
    c->x = 40 + CPUS + 12;
    c->y = TOP + CPUS + 24;
    put_circle(c);
    put_matrix(c, matrix, TOP + 76);
    put_legend(c, matrix, TOP + 96 + t->ngpus * cell(c));
    double y = begin;
    for (int k = 0; k < RCCLX_SWAPS; k++)
        y = found[k].nchannels ? put_schedule(c, &found[k], y) : y;
    fputs("</svg>\n", out);
    rcclx_mem_free(c);
}
