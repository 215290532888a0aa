#ifndef RCCLX_TOPO_TOPO_TEXT_H
#define RCCLX_TOPO_TOPO_TEXT_H

#include "topo/search.h"

/* Behind topo.h and search.h: how the drawings, in text and SVG, call things. */
#define RCCLX_TOPO_ARROW "\xe2\x86\x92"

const char *rcclx_topo_short_busid(const char *busid);                              /* without the domain 0000 */
void rcclx_topo_label(const rcclx_topo *t, int vertex, char *text, size_t n);       /* "GPU 0", "mlx5_0" */
void rcclx_topo_detail(const rcclx_topo *t, int vertex, char *text, size_t n);      /* "gfx942", "400 Gbit/s" */

/* "7 rings of 48 GB/s: 336 GB/s, which no rings exceed" */
void rcclx_schedule_headline(const rcclx_schedule *s, char *text, size_t n);

#endif
