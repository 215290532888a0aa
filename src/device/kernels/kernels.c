/* The kernels: one interpreter (run.h), compiled for every row of GP_KERNEL_LIST and
 * both kinds of protocol. CUDA and HIP compile this file as C++, the host as C, for
 * the emulated GPUs. */
#include "device/kernels/run.h"

#define KERNEL(id, type, op)                                             \
    GP_KERNEL(gp_##id##_flagged, gp_small)                               \
    {                                                                    \
        GP_SHARED(gp_shared, sh);                                        \
        gp_run(&args->frame, args->blob, sh, 1, type, op);               \
    }                                                                    \
    GP_KERNEL(gp_##id##_simple, gp_large)                                \
    {                                                                    \
        GP_SHARED(gp_shared, sh);                                        \
        gp_run(&args->frame, args->blob, sh, 0, type, op);               \
    }

KERNEL(copy, GP_COPIES, GP_OP_COPY)
KERNEL(sum_f32, GP_F32, GP_OP_SUM)
KERNEL(sum_bf16, GP_BF16, GP_OP_SUM)
KERNEL(sum_f16, GP_F16, GP_OP_SUM)
KERNEL(any, GP_ANY, GP_OP_COPY)

#if defined(GP_HOST)
#include "device/gpu_emu.h"

/* The emulator calls them through a pointer to anything. */
#define ENTRIES(id)                                                                      \
    static void id##_flagged(const void *args) { gp_##id##_flagged((const gp_small *)args); } \
    static void id##_simple(const void *args) { gp_##id##_simple((const gp_large *)args); }
GP_KERNEL_LIST(ENTRIES)

#define ROWS(id) { "gp_" #id "_flagged", id##_flagged }, { "gp_" #id "_simple", id##_simple },
const rcclx_emu_kernel rcclx_emu_kernels[] = { GP_KERNEL_LIST(ROWS) { NULL, NULL } };
#endif
