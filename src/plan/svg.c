/* All ranks' plans of a shape as one drawing.
 *
 *     rank 0        rank 1        rank 2       a column a rank
 *   - - - - - - - - - - - - - - - - - - - - -  all headers are in
 *   [ in 1 -> slot 1 ]                         a box a step that moves data
 *                 \                            data, from where it was put to who reads it
 *                    [ slot 1 of 0 + in 1 -> out 1 ]
 *
 * An arrow into a box stands for the signal that came with it too; dashed lines are
 * signals without data. What is pushed into a slot goes to the box that reads the slot. A box stands one row below the last thing it had to wait for.
 * One piece is drawn, so waits for the previous piece do not show. */
#include "plan/plan.h"

#include "base/mem.h"
#include "plan/ranks.h"

#include <limits.h>

enum { COLUMN = 230, BOX_W = 214, BOX_H = 26, ROW = 74, TOP = 84, LABEL = 160, MARGIN = 20 };

#define ARROW "\xe2\x86\x92"
#define SIGMA "\xce\xa3"
#define TIMES "\xc3\x97"

/* A box: step `step` of a rank at `row`; the last one of a rank (step == nsteps) is its return. */
typedef struct {
    int row;
    uint32_t step;
} box;

typedef struct {
    const rcclx_plan *plans;
    int   n, nphases;
    box **boxes;       /* [rank][..] */
    int  *nboxes;
    int  *signalled;   /* [rank][phase]: row of the box after which it comes; -1: not yet */
    uint32_t *pc;
    int  *below;       /* [rank]: row that the next box must stand below */
    FILE *out;
} drawing;

static int *signal_row(const drawing *d, int rank, int phase)
{
    return &d->signalled[rank * (d->nphases + 1) + phase];
}

static double column(int rank)
{
    return MARGIN + COLUMN * (rank + 0.5);
}

static double row_top(int row)
{
    return TOP + ROW * row;
}

/* --- rows ------------------------------------------------------------------- */

/* Row of the box that pushed into this slot of `rank`, and whose it is; -1: not placed yet. */
static int pushed_row(const drawing *d, int rank, int slot, int *by)
{
    uint32_t step;

    *by = rcclx_ranks_pusher(d->plans, rank, slot, &step);
    for (int b = 0; *by >= 0 && b < d->nboxes[*by]; b++)
        if (d->boxes[*by][b].step == step)
            return d->boxes[*by][b].row;
    return -1;
}

/* Row of the last box of `rank` above a row that filled this slot, or -1. */
static int filled_row(const drawing *d, int rank, const rcclx_ref *ref, int above)
{
    for (int b = d->nboxes[rank]; b-- > 0;) {
        const box *x = &d->boxes[rank][b];
        const rcclx_plan *p = &d->plans[rank];
        if (x->row >= above || x->step >= p->nsteps)
            continue;
        const rcclx_step *st = &p->steps[x->step];
        for (int k = 0; k < st->ndst; k++) {
            const rcclx_ref *to = &p->refs[st->first + st->nsrc + (uint32_t)k];
            if (to->buf == RCCLX_SCRATCH && to->rank == ref->rank && ref->block >= to->block &&
                ref->block < to->block + st->nblk)
                return x->row;
        }
    }
    return -1;
}

/* May this step go on? Then *after is the row it comes after. */
static bool can_go(const drawing *d, int rank, const rcclx_step *st, int *after)
{
    if (st->op == RCCLX_STEP_WAIT && (st->lag == RCCLX_LAG_PREVIOUS || !st->phase))
        return true;
    for (int r = 0; st->op == RCCLX_STEP_WAIT && r < d->n; r++) {
        if (r == rank || (st->peer != RCCLX_ALL && st->peer != r))
            continue;
        const int row = *signal_row(d, r, st->phase);
        if (row == -1)
            return false;
        *after = row > *after ? row : *after;
    }
    for (int k = 0; k < st->nsrc; k++) {
        const rcclx_plan *p = &d->plans[rank];
        const rcclx_ref *ref = &p->refs[st->first + (uint32_t)k];
        int by;
        if (!rcclx_ranks_is_slot(st, ref) || (ref->rank == rank && !p->pushes))
            continue;
        const int row = p->pushes ? pushed_row(d, rank, ref->block, &by) : filled_row(d, ref->rank, ref, INT_MAX);
        if (row < 0)
            return false;
        *after = row > *after ? row : *after;
    }
    return true;
}

static bool place(drawing *d, int rank)
{
    const rcclx_plan *p = &d->plans[rank];
    bool any = false;

    for (; d->pc[rank] < p->nsteps; d->pc[rank]++, any = true) {
        const rcclx_step *st = &p->steps[d->pc[rank]];
        int after = d->below[rank];
        if (!can_go(d, rank, st, &after))
            return any;
        d->below[rank] = after;
        if (st->op == RCCLX_STEP_SIGNAL) {
            for (int f = st->phase; f >= 0 && *signal_row(d, rank, f) == -1; f--)
                *signal_row(d, rank, f) = d->nboxes[rank] ? d->boxes[rank][d->nboxes[rank] - 1].row : -2;
        } else if (st->op != RCCLX_STEP_WAIT) {
            d->boxes[rank][d->nboxes[rank]++] = (box){ ++d->below[rank], d->pc[rank] };
        }
    }
    return any;
}

static bool place_all(drawing *d)
{
    bool any = true;

    while (any) {
        any = false;
        for (int r = 0; r < d->n; r++)
            any |= place(d, r);
    }
    for (int r = 0; r < d->n; r++) {
        if (d->pc[r] < d->plans[r].nsteps)
            return false;
        d->boxes[r][d->nboxes[r]++] = (box){ d->below[r] + 1, d->plans[r].nsteps };
    }
    return true;
}

/* --- lines --------------------------------------------------------------------- */

static void line(const drawing *d, const char *class, double x1, double y1, double x2, double y2)
{
    fprintf(d->out, "<path class=\"%s\" d=\"M%.0f %.0f L%.0f %.0f\"/>\n", class, x1, y1, x2, y2);
}

/* From below a box of one rank to the top of a box of another. */
static void between(const drawing *d, const char *class, int from, int from_row, int to, int to_row)
{
    const double lean = (from - to) * 6.0;
    const double y = from_row >= 0 ? row_top(from_row) + BOX_H : TOP - 24;

    line(d, class, column(from) - lean, y, column(to) + lean, row_top(to_row) - 2);
}

/* What others pushed into the slots that a box reads. */
static void draw_pushes(const drawing *d, int rank, const box *x)
{
    const rcclx_plan *p = &d->plans[rank];
    const rcclx_step *st = &p->steps[x->step];

    for (int k = 0; k < st->nsrc; k++) {
        const rcclx_ref *ref = &p->refs[st->first + (uint32_t)k];
        int by;
        if (!rcclx_ranks_is_slot(st, ref))
            continue;
        const int row = pushed_row(d, rank, ref->block, &by);
        between(d, "put", by, row, rank, x->row);
    }
}

/* Operands of a box that lie at other ranks. */
static void draw_data(const drawing *d, int rank, const box *x)
{
    const rcclx_plan *p = &d->plans[rank];
    const rcclx_step *st = &p->steps[x->step];

    for (int k = 0; k < st->nsrc + st->ndst; k++) {
        const rcclx_ref *ref = &p->refs[st->first + (uint32_t)k];
        if (ref->rank == rank || rcclx_ranks_is_pushed(p, st, ref))
            continue;
        const double lean = (ref->rank - rank) * 6.0, bottom = row_top(x->row) + BOX_H;
        if (k >= st->nsrc)
            line(d, "put", column(rank) + lean, bottom, column(ref->rank) - lean, bottom + 26);
        else if (ref->buf == RCCLX_SCRATCH)
            between(d, "get", ref->rank, filled_row(d, ref->rank, ref, x->row), rank, x->row);
        else
            line(d, "get", column(ref->rank), row_top(x->row) - 30, column(rank) + lean, row_top(x->row) - 2);
    }
}

/* Does the box read a slot of that rank? Then the data's arrow stands for its signal. */
static bool reads_slot(const rcclx_plan *p, const box *x, int rank)
{
    if (x->step >= p->nsteps)
        return false;
    const rcclx_step *st = &p->steps[x->step];
    for (int k = 0; k < st->nsrc; k++) {
        const rcclx_ref *ref = &p->refs[st->first + (uint32_t)k];
        if (ref->buf == RCCLX_SCRATCH && ref->rank == rank)
            return true;
    }
    return false;
}

/* Waits before a box, back to the box before it. */
static void draw_waits(const drawing *d, int rank, const box *x, uint32_t from)
{
    const rcclx_plan *p = &d->plans[rank];

    for (uint32_t i = from; i < x->step; i++) {
        const rcclx_step *st = &p->steps[i];
        if (st->op != RCCLX_STEP_WAIT || st->lag == RCCLX_LAG_PREVIOUS || !st->phase)
            continue;
        for (int r = 0; r < d->n; r++)
            if (r != rank && (st->peer == RCCLX_ALL || st->peer == r) && !reads_slot(p, x, r))
                between(d, "signal", r, *signal_row(d, r, st->phase), rank, x->row);
    }
}

/* --- boxes ---------------------------------------------------------------------- */

static int put_ref(char *text, size_t n, int me, const rcclx_step *st, const rcclx_ref *ref)
{
    static const char *const words[] = { "in", "out", "slot" };
    int used = snprintf(text, n, st->nblk > 1 ? "%s %d..%d" : "%s %d", words[ref->buf], ref->block,
                        ref->block + st->nblk - 1);

    if (ref->rank != me && used >= 0 && (size_t)used < n)
        used += snprintf(text + used, n - (size_t)used, " of %d", ref->rank);
    return used;
}

/* Up to two operands by name, more by number. */
static void put_refs(char *text, size_t n, int me, const rcclx_step *st, const rcclx_ref *refs, int count, bool from)
{
    static const char *const words[] = { "in", "out", "slot" };

    if (count > 2) {
        snprintf(text, n, "%s%s %d (" TIMES "%d)", from ? SIGMA " " : "", words[refs[from && refs[0].rank == me].buf],
                 refs[0].block, count);
        return;
    }
    int used = put_ref(text, n, me, st, &refs[0]);
    if (count == 2 && used >= 0 && (size_t)used < n) {
        used += snprintf(text + used, n - (size_t)used, from ? " + " : ", ");
        if ((size_t)used < n)
            put_ref(text + used, n - (size_t)used, me, st, &refs[1]);
    }
}

/* How many of the operands are slots of the rank itself? */
static int own_slots(const rcclx_plan *p, const rcclx_step *st)
{
    int n = 0;

    for (int k = 0; k < st->nsrc; k++) {
        const rcclx_ref *ref = &p->refs[st->first + (uint32_t)k];
        n += ref->buf == RCCLX_SCRATCH && ref->rank == p->shape.rank;
    }
    return n;
}

/* Likewise where many operands are slots and one is not: sums of what was pushed. */
static bool put_sum(char *from, char *to, size_t n, const rcclx_plan *p, const rcclx_step *st)
{
    const rcclx_ref *dst = &p->refs[st->first + st->nsrc];

    if (st->op != RCCLX_STEP_REDUCE || st->nsrc < 3 || own_slots(p, st) != st->nsrc - 1)
        return false;
    snprintf(from, n, SIGMA " in %d, slots", rcclx_ranks_first_block(p, st));
    if (st->ndst > 1 && dst[1].buf == RCCLX_SCRATCH)
        snprintf(to, n, "out %d, slot %d (" TIMES "%d)", dst[0].block, dst[1].block, st->ndst - 1);
    else
        put_refs(to, n, p->shape.rank, st, dst, st->ndst, false);
    return true;
}

static void draw_box(const drawing *d, int rank, const box *x)
{
    const rcclx_plan *p = &d->plans[rank];
    const double left = column(rank) - BOX_W / 2.0, top = row_top(x->row);
    char from[LABEL], to[LABEL];

    if (x->step >= p->nsteps) {
        fprintf(d->out, "<circle class=\"end\" cx=\"%.0f\" cy=\"%.0f\" r=\"7\"/>\n", column(rank), top + 5);
        return;
    }
    const rcclx_step *st = &p->steps[x->step];
    if (!put_sum(from, to, LABEL, p, st)) {
        put_refs(from, sizeof(from), rank, st, &p->refs[st->first], st->nsrc, true);
        put_refs(to, sizeof(to), rank, st, &p->refs[st->first + st->nsrc], st->ndst, false);
    }
    fprintf(d->out, "<rect class=\"%s\" x=\"%.0f\" y=\"%.0f\" width=\"%d\" height=\"%d\" rx=\"5\"/>\n",
            st->op == RCCLX_STEP_COPY ? "copy" : "reduce", left, top, BOX_W, BOX_H);
    fprintf(d->out, "<text x=\"%.0f\" y=\"%.0f\">%s " ARROW " %s</text>\n", column(rank), top + 17, from, to);
}

static void draw_head(const drawing *d, const rcclx_algo *a, const rcclx_shape *s, int rows)
{
    const double width = 2 * MARGIN + COLUMN * d->n, height = row_top(rows - 1) + BOX_H + MARGIN;

    fprintf(d->out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
            "width=\"%.0f\" height=\"%.0f\">\n", width, height, width, height);
    fprintf(d->out,
            "<style>text{font:12px sans-serif;text-anchor:middle;fill:#222}.h{font-weight:bold;font-size:14px}"
            "path{fill:none;stroke-width:1.3}"
            ".get{stroke:#2b6cb0;marker-end:url(#g)}.put{stroke:#c05621;marker-end:url(#p)}"
            ".signal{stroke:#888;stroke-dasharray:4 3;marker-end:url(#s)}.life{stroke:#ddd}"
            ".header{stroke:#888;stroke-dasharray:4 3}.copy{fill:#e6f0fa;stroke:#2b6cb0}"
            ".reduce{fill:#e7f6e7;stroke:#2f855a}.end{fill:#fff;stroke:#444}</style>\n<defs>");
    const char *const heads[][2] = { { "g", "#2b6cb0" }, { "p", "#c05621" }, { "s", "#888" } };
    for (int i = 0; i < 3; i++)
        fprintf(d->out, "<marker id=\"%s\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" "
                "markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">"
                "<path d=\"M0 0 L8 4 L0 8 z\" style=\"fill:%s\"/></marker>",
                heads[i][0], heads[i][1]);
    fprintf(d->out, "</defs>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
            "<text class=\"h\" x=\"%.0f\" y=\"20\">%s %s, %d ranks</text>\n", width / 2, a->name,
            rcclx_kind_word(s->kind), d->n);
    for (int r = 0; r < d->n; r++) {
        fprintf(d->out, "<text class=\"h\" x=\"%.0f\" y=\"44\">rank %d%s</text>\n", column(r), r,
                rcclx_kind_rooted(s->kind) && r == s->root ? " (root)" : "");
        line(d, "life", column(r), 50, column(r), row_top(d->boxes[r][d->nboxes[r] - 1].row));
    }
}

static bool waits_for_headers(const drawing *d)
{
    for (int r = 0; r < d->n; r++)
        for (uint32_t i = 0; i < d->plans[r].nsteps; i++)
            if (d->plans[r].steps[i].op == RCCLX_STEP_WAIT && !d->plans[r].steps[i].phase)
                return true;
    return false;
}

static void draw(const drawing *d, const rcclx_algo *a, const rcclx_shape *s)
{
    int rows = 0;

    for (int r = 0; r < d->n; r++)
        rows = d->boxes[r][d->nboxes[r] - 1].row + 1 > rows ? d->boxes[r][d->nboxes[r] - 1].row + 1 : rows;
    draw_head(d, a, s, rows);
    if (waits_for_headers(d))
        line(d, "header", MARGIN, TOP - 26, MARGIN + COLUMN * d->n, TOP - 26);
    for (int r = 0; r < d->n; r++)
        for (int b = 0; b < d->nboxes[r]; b++) {
            draw_waits(d, r, &d->boxes[r][b], b ? d->boxes[r][b - 1].step : 0);
            if (d->boxes[r][b].step >= d->plans[r].nsteps)
                continue;
            draw_data(d, r, &d->boxes[r][b]);
            if (d->plans[r].pushes)
                draw_pushes(d, r, &d->boxes[r][b]);
        }
    for (int r = 0; r < d->n; r++)
        for (int b = 0; b < d->nboxes[r]; b++)
            draw_box(d, r, &d->boxes[r][b]);
    fprintf(d->out, "</svg>\n");
}

/* --- all of it --------------------------------------------------------------------- */

static bool open_drawing(drawing *d)
{
    const size_t n = (size_t)d->n;
    bool ok = true;

    for (int r = 0; r < d->n; r++)
        d->nphases = d->plans[r].nphases > d->nphases ? d->plans[r].nphases : d->nphases;
    d->boxes = rcclx_mem_alloc(n * sizeof(*d->boxes));
    d->nboxes = rcclx_mem_alloc(n * sizeof(int));
    d->below = rcclx_mem_alloc(n * sizeof(int));
    d->pc = rcclx_mem_alloc(n * sizeof(uint32_t));
    d->signalled = rcclx_mem_alloc(n * (size_t)(d->nphases + 1) * sizeof(int));
    if (!d->boxes || !d->nboxes || !d->below || !d->pc || !d->signalled)
        return false;
    for (size_t i = 0; i < n * (size_t)(d->nphases + 1); i++)
        d->signalled[i] = -1;
    for (size_t r = 0; r < n; r++) {
        d->below[r] = -1;
        d->boxes[r] = rcclx_mem_alloc((d->plans[r].nsteps + 1) * sizeof(box));
        ok &= d->boxes[r] != NULL;
    }
    return ok;
}

static void close_drawing(drawing *d)
{
    for (int r = 0; d->boxes && r < d->n; r++)
        rcclx_mem_free(d->boxes[r]);
    rcclx_mem_free(d->boxes);
    rcclx_mem_free(d->nboxes);
    rcclx_mem_free(d->below);
    rcclx_mem_free(d->pc);
    rcclx_mem_free(d->signalled);
}

rcclx_status rcclx_plan_svg(FILE *out, const rcclx_algo *a, const rcclx_shape *s)
{
    rcclx_plan *plans;
    rcclx_status status = RCCLX_NOMEM;

    RCCLX_TRY(rcclx_ranks_build(a, s, &plans));
    drawing d = { .plans = plans, .n = s->nranks, .out = out };
    if (open_drawing(&d))
        status = place_all(&d) ? RCCLX_OK : RCCLX_INTERNAL;
    if (status == RCCLX_OK)
        draw(&d, a, s);
    close_drawing(&d);
    rcclx_ranks_free(plans, s->nranks);
    return status;
}
