/* The name under which RCCL's programs look for the same interface: see
 * nccl.h. */
#ifndef RCCL_RCCL_H_
#define RCCL_RCCL_H_

#include "../nccl.h"

/* The names RCCL used for fp8 before NCCL had them. */
#define ncclFp8E4M3 ncclFloat8e4m3
#define ncclFp8E5M2 ncclFloat8e5m2

#endif
