#ifndef RCCLX_TOPO_DRAW_H
#define RCCLX_TOPO_DRAW_H

#include "topo/search.h"

/* Draws a machine as one SVG: its devices in a circle, the matrix of ways beside it, and
 * below them what was found for these nodes (schedules without channels are left out),
 * in the first of them. found[RCCLX_SCHEDULE_COUNT]. */
void rcclx_topo_svg(FILE *out, const rcclx_topo *t, const rcclx_schedule *found, const rcclx_share *nodes, int nnodes);

#endif
