#ifndef RCCLX_TOPO_SIMPLEX_H
#define RCCLX_TOPO_SIMPLEX_H

#include "base/status.h"

#include <stdbool.h>

/* The largest value of one variable under linear constraints, all variables at least 0:
 *
 *   maximise x[0]   where   sum of a[r][v] x[v] <= limit[r]   for every row r, limits >= 0
 *
 *   rcclx_simplex p;
 *   RCCLX_TRY(rcclx_simplex_open(&p, nvars, nrows));
 *   const int r = rcclx_simplex_row(&p, 48);
 *   *rcclx_simplex_at(&p, r, 3) += 1;
 *   const bool known = rcclx_simplex_solve(&p, &most);
 *   rcclx_simplex_close(&p);
 *
 * What is found is never below the truth, and above it by a millionth at most. False: it took too many steps. */
typedef struct {
    int     nvars, nrows, cap_rows;
    double *a;         /* [row][variable], the last column the limits, the last row the objective */
    int    *in_row, *in_column; /* which variable stands there; rows' own ones count from nvars */
} rcclx_simplex;

rcclx_status rcclx_simplex_open(rcclx_simplex *p, int nvars, int most_rows);
void         rcclx_simplex_close(rcclx_simplex *p);
int          rcclx_simplex_row(rcclx_simplex *p, double limit);
double      *rcclx_simplex_at(rcclx_simplex *p, int row, int variable);
bool         rcclx_simplex_solve(rcclx_simplex *p, double *most);
double       rcclx_simplex_value(const rcclx_simplex *p, int variable); /* after solve */

#endif
