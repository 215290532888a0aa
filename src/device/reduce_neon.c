#include "device/reduce_kernels.h"

/* The kernels for NEON, which every AArch64 has. Empty elsewhere. */
#if defined(__aarch64__)
#define RCCLX_ISA_NEON
#include "device/reduce_body.h"
#endif
