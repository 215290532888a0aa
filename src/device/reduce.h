#ifndef RCCLX_DEVICE_REDUCE_H
#define RCCLX_DEVICE_REDUCE_H

#include "device/types.h"

#include <stdint.h>

/* The one arithmetic step: read nsrc buffers, combine them element by element
 * in the order given, write ndst buffers.
 *
 *   dst[0..ndst)[i] = round( src[0][i] op src[1][i] op ... op src[nsrc-1][i] )
 *
 * f16, bf16, fp8 and f32 accumulate in f32, f64 in f64, and round once; integer
 * AVG accumulates in a type wide enough not to wrap. Pointers need no more than
 * element alignment. A destination may be one of the sources (same address);
 * other overlap is undefined. Results do not depend on alignment, on an
 * element's index, on the instruction set, or on `streaming`. */
typedef struct {
    rcclx_type         type;
    rcclx_redop        op;        /* COPY takes exactly one source */
    int                nsrc, ndst; /* at least 1 each */
    const void *const *src;
    void *const       *dst;
    size_t             count;     /* elements */
    int                divisor;   /* AVG: ranks to divide by in this step; 0: leave the sum */
    const uint64_t    *scalar;    /* PREMUL: nsrc values, each the type's own bits in its low bytes; NULL: the
                                     sources are multiplied already, only sum */
    int                streaming; /* 1: non-temporal stores, for buffers beyond the cache */
} rcclx_reduce_args;

void rcclx_reduce(const rcclx_reduce_args *a);

/* Plain copy of nbytes, same choice of stores. */
void rcclx_copy(void *dst, const void *src, size_t nbytes, int streaming);

/* The instruction set in use ("avx512", "avx2", "neon", "baseline"), and a way
 * to force one by name (tests; RCCLX_ISA): 0, or -1 if this CPU lacks it. */
const char *rcclx_isa_name(void);
int         rcclx_isa_use(const char *name);

#endif
