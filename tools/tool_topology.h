#ifndef RCCLX_TOOL_TOPOLOGY_H
#define RCCLX_TOOL_TOPOLOGY_H

/* `rcclx info --topology`: the machine, or one that a file describes, drawn; with the
 * rings, trees and so on that are found for it. */
typedef struct {
    const char *file;  /* NULL: as NCCL_TOPO_FILE says, else this machine */
    const char *gpus;  /* "0,2,4-7"; NULL: all */
    const char *svg;   /* file to draw into; NULL: text */
    int         nodes; /* so many copies of it */
} tool_topology;

int tool_topology_show(const tool_topology *q);

#endif
