#include "device/reduce_kernels.h"

/* The kernels for AVX-512 with BW, VL and DQ. Empty on other architectures. */
#if defined(__x86_64__)
#define RCCLX_ISA_AVX512
#include "device/reduce_body.h"
#endif
