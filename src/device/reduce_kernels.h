#ifndef RCCLX_DEVICE_REDUCE_KERNELS_H
#define RCCLX_DEVICE_REDUCE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Between reduce.c, which knows types and operators, and the instruction sets,
 * which know kernels. A kernel reads and writes bytes; what differs between
 * types that share one is a number in the job. Only these files include it.
 *
 *   ADD MUL PRE   wrapping integers of 8, 32, 64 bit; PRE multiplies by scalar
 *   TOP           the greatest integer, after each is XORed with `flip`:
 *                   signed max 0, signed min -1 (all ones),
 *                   unsigned max 0x80.., unsigned min 0x7f..
 *   AVG8 AVG32    exact integer sum, divided; `flip` makes the input unsigned
 *                 and `bias`, what that added to the sum, is taken off again
 *   SUM PROD PRE_ floats in f32 or f64
 *   AVG_          as SUM, then divided by `divisor`
 *   KEY8 KEY16    greatest f8, f16, bf16 by integer order; `flip` -1: least
 *   LEAST32 64    the least f32, f64 after the signs are XORed with `flip` */
#define RCCLX_KERNEL_LIST(X)                                                  \
    X(copy)                                                                   \
    X(add8) X(add32) X(add64) X(mul8) X(mul32) X(mul64) X(pre8) X(pre32) X(pre64) \
    X(top8) X(top32) X(top64) X(avg8) X(avg32)                                \
    X(sum_f32) X(sum_f64) X(sum_f16) X(sum_bf16) X(sum_e4m3) X(sum_e5m2)      \
    X(avg_f32) X(avg_f64) X(avg_f16) X(avg_bf16) X(avg_e4m3) X(avg_e5m2)      \
    X(prod_f32) X(prod_f64) X(prod_f16) X(prod_bf16) X(prod_e4m3) X(prod_e5m2) \
    X(pre_f32) X(pre_f64) X(pre_f16) X(pre_bf16) X(pre_e4m3) X(pre_e5m2)      \
    X(key8) X(key16) X(least32) X(least64)

typedef enum {
#define X(name) RCCLX_KERNEL_##name,
    RCCLX_KERNEL_LIST(X)
#undef X
    RCCLX_KERNEL_COUNT
} rcclx_kernel;

typedef struct {
    const unsigned char *const *src;
    unsigned char *const       *dst;
    size_t                      nbytes;
    int                         nsrc, ndst;
    bool                        streaming;
    bool                        inverse; /* multiply by `divisor` instead (a power of two) */
    double                      divisor; /* AVG */
    double                      bias;
    uint64_t                    flip;    /* in every element of the type's size */
    uint64_t                    inf, nan; /* KEY: the type's Inf (or largest finite) and its NaN */
    const uint64_t             *scalar;  /* PRE: bits of an f32 (f64, integer) a source */
} rcclx_job;

typedef struct {
    const char *name;
    void (*run[RCCLX_KERNEL_COUNT])(const rcclx_job *j);
} rcclx_kernels;

extern const rcclx_kernels rcclx_kernels_baseline;
#if defined(__x86_64__)
extern const rcclx_kernels rcclx_kernels_avx2, rcclx_kernels_avx512;
#elif defined(__aarch64__)
extern const rcclx_kernels rcclx_kernels_neon;
#endif

#endif
