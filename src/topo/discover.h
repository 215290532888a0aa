#ifndef RCCLX_TOPO_DISCOVER_H
#define RCCLX_TOPO_DISCOVER_H

#include "topo/xml.h"

/* Behind topo.h: looking around, a file a source. All write into one description. */
typedef struct {
    rcclx_xml  *x;
    const char *root;      /* "" or where tests keep their tree */
    int         ngpus, nnets;
} rcclx_probe;

enum { RCCLX_PROBE_MOST = 512 /* devices of a kind that are looked at */ };

/* Room for RCCLX_PROBE_MOST names, to be freed; NULL: no memory, which the description's status then says. */
char (*rcclx_probe_names(rcclx_probe *p))[64];

/* The element of a PCI device, with those of the bridges above it and its CPU, made where missing; -1: no such device. */
int rcclx_probe_pci(rcclx_probe *p, const char *busid);
int rcclx_probe_cpu(rcclx_probe *p, int numa);

/* The <gpu> in the device's <pci>, made with the next number; -1 as above. */
int rcclx_probe_gpu(rcclx_probe *p, const char *busid);

void rcclx_probe_kfd(rcclx_probe *p);   /* AMD: GPUs and XGMI from the kernel's driver */
void rcclx_probe_nvidia(rcclx_probe *p, bool nvml);  /* GPUs from the bus; NVLink from the driver's library */
void rcclx_probe_nets(rcclx_probe *p);  /* InfiniBand and its like; without any, interfaces */

#endif
