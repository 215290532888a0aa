#include "device/reduce_kernels.h"

/* The kernels for AVX2 with F16C. Empty on other architectures. */
#if defined(__x86_64__)
#define RCCLX_ISA_AVX2
#include "device/reduce_body.h"
#endif
