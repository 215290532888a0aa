#ifndef RCCLX_TOPO_MODEL_H
#define RCCLX_TOPO_MODEL_H

#include "topo/topo.h"

/* Behind topo.h: what the files that make a topology share. */
rcclx_status rcclx_topo_find_paths(rcclx_topo *t); /* made anew if there were some */

bool rcclx_busid_valid(const char *busid);
bool rcclx_busid_same(const char *a, const char *b); /* leading zeros and case apart */

#endif
