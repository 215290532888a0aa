#ifndef RCCLX_TOPO_RATES_H
#define RCCLX_TOPO_RATES_H

#include <stdbool.h>

/* What a link carries, by its generation, in GB/s each way. All return 0 if they cannot say. */
double rcclx_rate_pci(const char *speed, int width);            /* "16.0 GT/s PCIe", 16 */
double rcclx_rate_xgmi(const char *gcn);                        /* "gfx942", "942"; of one link */
double rcclx_rate_nvlink(int sm);                               /* 90; of one link */
double rcclx_rate_socket(const char *arch, const char *vendor, int family, int model); /* between CPUs */

/* For links about which nothing is known. */
enum { RCCLX_RATE_PCI_ASSUMED = 12, RCCLX_RATE_GPU_ASSUMED = 20, RCCLX_RATE_SOCKET_ASSUMED = 10, RCCLX_RATE_LOCAL = 5000 };

#endif
