/* The kernels: one interpreter (run.h), compiled for every row of GP_KERNEL_LIST and
 * both kinds of protocol; messages (pair.h), and the way to other machines (proxy.h). CUDA and HIP compile this file as C++,
 * the host as C, for the emulated GPUs. */
#include "device/kernels/pair.h"
#include "device/kernels/litmus.h"
#include "device/kernels/proxy.h"
#include "device/kernels/run.h"

#define ENTRY(id, word, proto, args_type, type, op)                      \
    GP_KERNEL(gp_##id##_##word, args_type)                               \
    {                                                                    \
        GP_SHARED(gp_shared, sh);                                        \
        gp_run(&args->frame, args->blob, sh, proto, GP_CODEC_NONE, type, op);           \
    }
#define KERNEL(id, type, op)                                             \
    ENTRY(id, ll, GP_LL, gp_small, type, op)                             \
    ENTRY(id, ll128, GP_LL128, gp_small, type, op)                       \
    ENTRY(id, simple, GP_SIMPLE, gp_large, type, op)

KERNEL(copy, GP_COPIES, GP_OP_COPY)
KERNEL(sum_f32, GP_F32, GP_OP_SUM)
KERNEL(sum_bf16, GP_BF16, GP_OP_SUM)
KERNEL(sum_f16, GP_F16, GP_OP_SUM)
KERNEL(any, GP_ANY, GP_OP_COPY)

#define CODED(codec, type)                                               \
    GP_KERNEL(gp_##codec##_##type, gp_large)                             \
    {                                                                    \
        GP_SHARED(gp_waves, sh);                                         \
        gp_run(&args->frame, args->blob, sh->wave, GP_SIMPLE, GP_CODEC_##codec, GP_TYPE_##type, GP_OP_SUM); \
    }
GP_CODED_KERNEL_LIST(CODED)

#define PAIRS(id)                                                        \
    GP_KERNEL(gp_pairs_##id, gp_pair_##id)                               \
    {                                                                    \
        GP_SHARED(gp_pair_shared, sh);                                   \
        gp_pairs_run(&args->head, args->msg, sh, IN_CODES_##id);          \
    }
enum { IN_CODES_few = 0, IN_CODES_many = 0, IN_CODES_coded = 1 };
GP_PAIR_KERNEL_LIST(PAIRS)

GP_KERNEL(gp_litmus, gp_litmus_args)
{
    GP_SHARED(gp_litmus_shared, sh);
    gp_litmus_run(args, sh);
}

GP_KERNEL(gp_proxy, gp_proxy_args)
{
    GP_SHARED(gp_proxy_shared, sh);
    gp_proxy_run(args, sh);
}

#if defined(GP_HOST)
#include "device/gpu_emu.h"

/* The emulator calls them through a pointer to anything. */
#define ENTRIES(id)                                                                      \
    static void id##_ll(const void *args) { gp_##id##_ll((const gp_small *)args); }      \
    static void id##_ll128(const void *args) { gp_##id##_ll128((const gp_small *)args); } \
    static void id##_simple(const void *args) { gp_##id##_simple((const gp_large *)args); }
GP_KERNEL_LIST(ENTRIES)
#define CODED_ENTRY(codec, type) static void codec##_##type(const void *args) { gp_##codec##_##type((const gp_large *)args); }
GP_CODED_KERNEL_LIST(CODED_ENTRY)
#define PAIR_ENTRY(id) static void pairs_##id(const void *args) { gp_pairs_##id((const gp_pair_##id *)args); }
GP_PAIR_KERNEL_LIST(PAIR_ENTRY)
static void litmus(const void *args) { gp_litmus((const gp_litmus_args *)args); }
static void proxy(const void *args) { gp_proxy((const gp_proxy_args *)args); }

#define ROWS(id) { "gp_" #id "_ll", id##_ll }, { "gp_" #id "_ll128", id##_ll128 }, { "gp_" #id "_simple", id##_simple },
#define CODED_ROW(codec, type) { "gp_" #codec "_" #type, codec##_##type },
#define PAIR_ROW(id) { "gp_pairs_" #id, pairs_##id },
const rcclx_emu_kernel rcclx_emu_kernels[] = {
    GP_KERNEL_LIST(ROWS) GP_CODED_KERNEL_LIST(CODED_ROW) GP_PAIR_KERNEL_LIST(PAIR_ROW) { "gp_litmus", litmus }, { "gp_proxy", proxy }, { NULL, NULL }
};
#endif
