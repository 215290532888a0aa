#include "device/reduce_kernels.h"

/* The kernels for every machine of an architecture: SSE2 on x86-64, plain
 * vectors of the compiler elsewhere. */
#define RCCLX_ISA_BASELINE
#include "device/reduce_body.h"
