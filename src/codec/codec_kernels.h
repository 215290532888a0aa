#ifndef RCCLX_CODEC_CODEC_KERNELS_H
#define RCCLX_CODEC_CODEC_KERNELS_H

#include "codec/codec.h"

/* Between codecs.c and codec_move.c, which know runs and types, and the instruction sets, which
 * know blocks. A kernel takes n elements from the beginning of a block on; only the last block
 * of a run may be short. Only src/codec includes this.
 *
 *   encode[codec][from]   elements to codes and scales
 *   decode[codec][to]     and back
 *   move[from][to]        elements to elements, NaN made canonical
 *
 * SUM stands for f32 that are added to. `move` has what a sum needs: all to F32 and to SUM, and
 * F32 to all. */
enum { RCCLX_ELEMENT_F32, RCCLX_ELEMENT_BF16, RCCLX_ELEMENT_F16, RCCLX_ELEMENT_SUM, RCCLX_ELEMENT_COUNT };

typedef struct {
    unsigned char *codes, *scales; /* of a block */
} rcclx_wire;

/* What a type's range means for its blocks: bits of f32 without sign. */
typedef struct {
    uint32_t inf;  /* from here on Inf */
    uint32_t near; /* from here on the block wants care */
    uint32_t most; /* the largest finite value */
} rcclx_limits;

typedef struct {
    const char *name;
    void (*encode[RCCLX_CODEC_COUNT][RCCLX_ELEMENT_SUM])(const void *src, size_t n, rcclx_wire to, const rcclx_limits *l);
    void (*decode[RCCLX_CODEC_COUNT][RCCLX_ELEMENT_COUNT])(rcclx_wire from, size_t n, void *dst, const rcclx_limits *l);
    void (*move[RCCLX_ELEMENT_SUM][RCCLX_ELEMENT_COUNT])(const void *src, size_t n, void *dst);
} rcclx_codec_kernels;

extern const rcclx_codec_kernels rcclx_codec_kernels_baseline;
#if defined(__x86_64__)
extern const rcclx_codec_kernels rcclx_codec_kernels_avx2, rcclx_codec_kernels_avx512;
#elif defined(__aarch64__)
extern const rcclx_codec_kernels rcclx_codec_kernels_neon;
#endif

const rcclx_codec_kernels *rcclx_codec_isa(void); /* those of the set that rcclx_isa_name tells */
const rcclx_limits        *rcclx_codec_limits(rcclx_type t);

/* The kernels' number for elements of a type. */
static inline int rcclx_codec_element(rcclx_type t)
{
    return t == RCCLX_F32 ? RCCLX_ELEMENT_F32 : t == RCCLX_BF16 ? RCCLX_ELEMENT_BF16 : RCCLX_ELEMENT_F16;
}

/* Where a run of `count` has the block that element `at` begins. */
static inline rcclx_wire rcclx_codec_part(const void *run, size_t count, size_t at)
{
    unsigned char *const p = (unsigned char *)(uintptr_t)run;

    return (rcclx_wire){p + at, p + rcclx_codec_scales_at(count) + at / RCCLX_CODEC_BLOCK * 2};
}

#endif
