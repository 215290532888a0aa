#ifndef RCCLX_CODEC_CODEC_H
#define RCCLX_CODEC_CODEC_H

#include "device/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Low precision: what is on the wire in place of elements. docs/wire-format.md has it byte
 * by byte; GPUs write and read the same bytes (device/kernels/coded.h).
 *
 *   run of N elements   | N codes, a byte each | up to a multiple of 128 | ceil(N/32) scales | up to one of 16
 *   block               32 elements in a row (the last may be shorter) and their scale, a bf16:
 *                       value = code * scale, exactly, in f32
 *
 * A scale's sign says that its block wants care: it holds Inf or NaN, or comes near the largest
 * value of the type. All other blocks are decoded without a look at single codes. */

/* One row a codec: number, name (RCCLX_LOW_PRECISION=<name>), a line about it. */
#define RCCLX_CODEC_LIST(X)                                                   \
    X(FP8, fp8, "8-bit floats (OCP e4m3) with a scale for 32 values")         \
    X(INT8, int8, "8-bit integers with a scale for 32 values")

typedef enum {
    RCCLX_CODEC_NONE,
#define X(id, name, about) RCCLX_CODEC_##id,
    RCCLX_CODEC_LIST(X)
#undef X
    RCCLX_CODEC_COUNT
} rcclx_codec_id;

enum { RCCLX_CODEC_BLOCK = 32, RCCLX_CODEC_ALIGN = 128 };

typedef struct {
    const char *name, *about;
    /* f32, bf16 and f16 only. `wire` is aligned to 16 bytes; `src` and `dst` as their elements. */
    void (*encode)(rcclx_type type, const void *src, size_t count, void *wire);
    void (*decode)(rcclx_type type, const void *wire, size_t count, void *dst);
} rcclx_codec;

extern const rcclx_codec *const rcclx_codecs[RCCLX_CODEC_COUNT]; /* NONE: NULL */

int rcclx_codec_find(const char *name); /* any case; "off", "none", "0", "": NONE; -1: unknown */

static inline bool rcclx_codec_takes(rcclx_type t)
{
    return t == RCCLX_F32 || t == RCCLX_BF16 || t == RCCLX_F16;
}

/* Where the scales of a run begin, and its length. */
static inline size_t rcclx_codec_scales_at(size_t count)
{
    return (count + RCCLX_CODEC_ALIGN - 1) / RCCLX_CODEC_ALIGN * RCCLX_CODEC_ALIGN;
}

static inline size_t rcclx_codec_bytes(size_t count)
{
    return (rcclx_codec_scales_at(count) + (count + RCCLX_CODEC_BLOCK - 1) / RCCLX_CODEC_BLOCK * 2 + 15) & ~(size_t)15;
}

/* Most elements, a multiple of 512, whose run fits nbytes. */
static inline size_t rcclx_codec_fits(size_t nbytes)
{
    return nbytes / 17 * 16 / 512 * 512;
}

/* One step of a plan with encoded operands: read nsrc, add them in f32 in the order given,
 * divide, write ndst. An encoded operand is a whole run of `count` elements. If a destination is
 * encoded, the plain ones get what a reader of the encoded one will get, so that all ranks hold
 * the same bits; else they get the sum, rounded to the type once. One source is moved, not added. */
typedef struct {
    rcclx_codec_id     codec;
    rcclx_type         type;
    int                nsrc, ndst;
    const void *const *src;
    void *const       *dst;
    const bool        *src_coded, *dst_coded;
    size_t             count;
    int                divisor;  /* AVG: ranks; 0: none */
} rcclx_codec_args;

void rcclx_codec_move(const rcclx_codec_args *a);

#endif
