#ifndef RCCLX_API_NODELIST_H
#define RCCLX_API_NODELIST_H

#include <stdbool.h>
#include <stddef.h>

/* Slurm's short forms.
 *
 *     node[01-03,7],login       node01 node02 node03 node7 login
 *     r[1-2]n[1-2]              r1n1 r1n2 r2n1 r2n2
 *     4(x2),3                   4 4 3                              */

/* How many names a list of nodes has: 1 to RCCLX_NODELIST_MAX; 0: it is none. */
enum { RCCLX_NODELIST_MAX = 65536 };
long rcclx_nodelist_count(const char *list);

/* The name at that place, from 0. False: there is none, or it is longer than n. */
bool rcclx_nodelist_name(const char *list, long at, char *name, size_t n);

/* The number at that place of "4(x2),3"; -1: there is none. */
int rcclx_counts_at(const char *counts, long at);

#endif
