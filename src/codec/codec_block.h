#ifndef RCCLX_CODEC_CODEC_BLOCK_H
#define RCCLX_CODEC_CODEC_BLOCK_H

#include "codec/codec.h"

/* Between the codecs and what walks over runs: blocks of f32 to codes and back, a block
 * being at most 32 elements of an operation of some type. Only src/codec includes this. */
typedef struct {
    rcclx_codec row;
    float per_most;  /* 1 / the largest code: what a block's maximum is multiplied by */
    float scale_max; /* times the largest code it is still finite in f32 */
    uint8_t (*code)(float x, float inverse, bool care);
    float (*value)(uint8_t code, bool care); /* Inf and NaN as such where care says so */
} rcclx_codec_format;

extern const rcclx_codec_format rcclx_fp8, rcclx_int8, *const rcclx_codec_formats[RCCLX_CODEC_COUNT];

void rcclx_run_encode(const rcclx_codec_format *f, rcclx_type t, const void *src, size_t count, void *wire);
void rcclx_run_decode(const rcclx_codec_format *f, rcclx_type t, const void *wire, size_t count, void *dst);

/* `first` is a multiple of 32 from where `wire`, a run of `count`, is written or read. */
void rcclx_blocks_encode(const rcclx_codec_format *f, rcclx_type t, const float *x, size_t n, void *wire, size_t count, size_t first);
void rcclx_blocks_decode(const rcclx_codec_format *f, rcclx_type t, const void *wire, size_t count, size_t first, size_t n, float *x);

/* Elements of a type to f32 and back, rounded once. */
void rcclx_elements_widen(rcclx_type t, const void *src, size_t n, float *x);
void rcclx_elements_narrow(rcclx_type t, const float *x, size_t n, void *dst);

#endif
