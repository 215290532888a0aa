/* The simplex method on a dense table. Every row is an equation with a variable of its
 * own, how much of its limit is left; at first all others are 0, and all rows hold.
 *
 *            x0   x1   x2 | limit
 *   row 0     1   -1    0 |   0        a step: the column that gains most goes up until a
 *   row 1     0    1    1 |  48        row has nothing left, and the two change places
 *   gain     -1    0    0 |   0
 *
 * Most limits are 0 here, so that many steps would gain nothing and could go in circles.
 * Therefore limits are raised a little, each by another bit: what comes out is a bound of
 * the true problem all the same. */
#include "topo/simplex.h"

#include "base/log.h"
#include "base/mem.h"

#include <math.h>

enum { MOST_STEPS = 3000 };

static const double tiny = 1e-9;

rcclx_status rcclx_simplex_open(rcclx_simplex *p, int nvars, int most_rows)
{
    *p = (rcclx_simplex){ .nvars = nvars, .cap_rows = most_rows };
    p->a = rcclx_mem_alloc(((size_t)most_rows + 1) * ((size_t)nvars + 1) * sizeof(double));
    p->in_row = rcclx_mem_alloc(((size_t)most_rows + 1) * sizeof(int));
    p->in_column = rcclx_mem_alloc(((size_t)nvars + 1) * sizeof(int));
    if (p->a && p->in_row && p->in_column)
        return RCCLX_OK;
    rcclx_simplex_close(p);
    return RCCLX_FAIL(RCCLX_NOMEM, "no memory for a bound");
}

void rcclx_simplex_close(rcclx_simplex *p)
{
    rcclx_mem_free(p->a);
    rcclx_mem_free(p->in_row);
    rcclx_mem_free(p->in_column);
    *p = (rcclx_simplex){ .a = NULL };
}

double *rcclx_simplex_at(rcclx_simplex *p, int row, int variable)
{
    return &p->a[(size_t)row * ((size_t)p->nvars + 1) + (size_t)variable];
}

int rcclx_simplex_row(rcclx_simplex *p, double limit)
{
    const int r = p->nrows++;

    *rcclx_simplex_at(p, r, p->nvars) = limit + 1e-7 * (1 + (double)(r * 7919 % 1009) / 1009);
    return r;
}

static int enters(const rcclx_simplex *p, const double *gain)
{
    int best = -1;

    for (int v = 0; v < p->nvars; v++)
        if (gain[v] < -tiny && (best < 0 || gain[v] < gain[best]))
            best = v;
    return best;
}

static int leaves(rcclx_simplex *p, int column)
{
    double least = HUGE_VAL;
    int best = -1;

    for (int r = 0; r < p->nrows; r++) {
        const double by = *rcclx_simplex_at(p, r, column),
                     ratio = by > tiny ? *rcclx_simplex_at(p, r, p->nvars) / by : HUGE_VAL;
        if (ratio < least) {
            least = ratio;
            best = r;
        }
    }
    return best;
}

/* The row's variable and the column's change places. */
static void pivot(rcclx_simplex *p, int row, int column)
{
    double *chosen = rcclx_simplex_at(p, row, 0);
    const double by = chosen[column];

    const int leaving = p->in_row[row];
    p->in_row[row] = p->in_column[column];
    p->in_column[column] = leaving;
    for (int v = 0; v <= p->nvars; v++)
        chosen[v] = v == column ? 1 / by : chosen[v] / by;
    for (int r = 0; r <= p->nrows; r++) {
        double *other = rcclx_simplex_at(p, r, 0);
        const double times = other[column];
        if (r == row || (times < 1e-13 && times > -1e-13))
            continue;
        other[column] = 0;
        for (int v = 0; v <= p->nvars; v++)
            other[v] -= times * chosen[v];
    }
}

bool rcclx_simplex_solve(rcclx_simplex *p, double *most)
{
    double *gain = rcclx_simplex_at(p, p->nrows, 0);

    for (int v = 0; v <= p->nvars; v++) {
        gain[v] = v ? 0 : -1;
        p->in_column[v] = v;
    }
    for (int r = 0; r < p->nrows; r++)
        p->in_row[r] = p->nvars + r;
    for (int step = 0; step < MOST_STEPS; step++) {
        const int column = enters(p, gain);
        if (column < 0) {
            *most = gain[p->nvars];
            return true;
        }
        const int row = leaves(p, column);
        if (row < 0)
            return false;
        pivot(p, row, column);
    }
    return false;
}

double rcclx_simplex_value(const rcclx_simplex *p, int variable)
{
    for (int r = 0; r < p->nrows; r++)
        if (p->in_row[r] == variable)
            return p->a[(size_t)r * ((size_t)p->nvars + 1) + (size_t)p->nvars];
    return 0;
}
