#ifndef RCCLX_TOOL_PROBE_H
#define RCCLX_TOOL_PROBE_H

#include <stdbool.h>

/* What this machine allows, found out by trying. `why` says what was met,
 * also when it works. */
typedef struct {
    bool works;
    char why[160];
} tool_probe;

tool_probe tool_probe_cma(void);   /* one rank reading another's memory through the kernel */
tool_probe tool_probe_memfd(void); /* memory without a name, to be shared by descriptor */

#endif
