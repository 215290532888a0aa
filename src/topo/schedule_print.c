/* Schedules in text: a headline with the rate and the bound, then a line a channel. */
#include "topo/topo_text.h"

#include <string.h>

enum { SHOWN_RANKS = 32, SHOWN_ROWS = 16 };

void rcclx_schedule_headline(const rcclx_schedule *s, char *text, size_t n)
{
    const bool swaps = s->kind == RCCLX_SWAPS;
    int used = swaps ? snprintf(text, n, "all-to-all in %d rounds, %.4g GB/s a pair: %.4g GB/s a rank", s->nchannels,
                                s->rate, s->total)
                     : snprintf(text, n, "%d %.*s of %.4g GB/s: %.4g GB/s", s->nchannels,
                                (int)strlen(rcclx_schedule_name(s->kind)) - (s->nchannels == 1),
                                rcclx_schedule_name(s->kind), s->rate, s->total);

    if (used < 0 || (size_t)used >= n)
        return;
    if (rcclx_schedule_proved(s))
        used += snprintf(text + used, n - (size_t)used, ", the most there can be");
    else
        used += snprintf(text + used, n - (size_t)used, "; bound %.4g", s->bound);
    if (s->kind == RCCLX_RINGS && s->limit > s->total * (1 + 1e-6) && (size_t)used < n)
        snprintf(text + used, n - (size_t)used, "; other ways at most %.4g", s->limit);
    if (s->kind == RCCLX_TREES && (size_t)used < n)
        snprintf(text + used, n - (size_t)used, "; depth %d", s->depth);
}

static void put_ring(FILE *out, const rcclx_schedule *s, int c)
{
    for (int i = 0; i < s->nranks && i < SHOWN_RANKS; i++)
        fprintf(out, "%s%d", i ? " " : "", s->rows[c * s->nranks + i]);
    fputs(s->nranks > SHOWN_RANKS ? " ..." : "", out);
}

/* "4 (0 (1) 2)": a rank, its children in brackets. */
static void put_subtree(FILE *out, const rcclx_schedule *s, int c, int root, int *left)
{
    const int *row = &s->rows[c * s->nranks];
    bool any = false;

    fprintf(out, "%d", root);
    for (int r = 0; r < s->nranks; r++) {
        if (row[r] != root || --*left < 0)
            continue;
        fputs(any ? " " : " (", out);
        put_subtree(out, s, c, r, left);
        any = true;
    }
    fputs(any ? ")" : "", out);
}

static void put_tree(FILE *out, const rcclx_schedule *s, int c)
{
    int left = SHOWN_RANKS;

    for (int r = 0; r < s->nranks; r++)
        if (s->rows[c * s->nranks + r] < 0)
            put_subtree(out, s, c, r, &left);
    fputs(left < 0 ? " ..." : "", out);
}

static void put_relay(FILE *out, const rcclx_schedule *s, int c, int by)
{
    bool any = false;

    fprintf(out, "%d", by);
    for (int r = 0; r < s->nranks; r++)
        if (r != by && s->rows[c * s->nranks + r] == by) {
            fprintf(out, any ? " %d" : " for %d", r);
            any = true;
        }
}

/* Who talks to the port, and for whom. */
static void put_rail(FILE *out, const rcclx_schedule *s, int c)
{
    int shown = 0;

    for (int by = 0; by < s->nranks && shown < SHOWN_RANKS; by++)
        if (s->rows[c * s->nranks + by] == by) {
            fputs(shown++ ? ", " : "", out);
            put_relay(out, s, c, by);
        }
}

static void put_swap(FILE *out, const rcclx_schedule *s, int c)
{
    for (int r = 0; r < s->nranks && r < SHOWN_RANKS; r++)
        fprintf(out, "%s%d" RCCLX_TOPO_ARROW "%d", r ? " " : "", r, s->rows[(size_t)c * (size_t)s->nranks + (size_t)r]);
    fputs(s->nranks > SHOWN_RANKS ? " ..." : "", out);
}

static void put_port(FILE *out, const rcclx_schedule *s, int c, const rcclx_share *nodes)
{
    const int port = s->kind == RCCLX_SWAPS ? -1 : s->ports[c * s->nnodes];
    char label[64] = "";

    if (port >= 0)
        rcclx_topo_label(nodes[0].topo, nodes[0].topo->nets[port], label, sizeof(label));
    fprintf(out, "  %3d  %s%s", c, label, port >= 0 ? "  " : "");
}

void rcclx_schedule_print(FILE *out, const rcclx_schedule *s, const rcclx_share *nodes, int nnodes)
{
    static void (*const put[])(FILE *, const rcclx_schedule *, int) = { put_ring, put_tree, put_rail, put_swap };
    char headline[256];

    (void)nnodes;
    rcclx_schedule_headline(s, headline, sizeof(headline));
    fprintf(out, "%s\n", headline);
    for (int c = 0; c < s->nchannels && c < SHOWN_ROWS; c++) {
        put_port(out, s, c, nodes);
        put[s->kind](out, s, c);
        fputc('\n', out);
    }
    if (s->nchannels > SHOWN_ROWS)
        fprintf(out, "  ... %d more\n", s->nchannels - SHOWN_ROWS);
}
