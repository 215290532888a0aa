#include "codec/codec_kernels.h"

#include "device/float_mode.h"
#include "device/reduce.h"

#include <string.h>
#include <strings.h>

/* Codecs by number and name, and whole runs.
 *
 *   (codec, type) --rcclx_isa_name--> kernels of the set --> kernel for the type's elements, with its limits
 *
 * The caller's rounding and flush-to-zero are put aside for the length of a call. */

const rcclx_limits *rcclx_codec_limits(rcclx_type t)
{
    static const rcclx_limits f32  = {0x7f800000, 0x77000000, 0x7f7fffff};
    static const rcclx_limits bf16 = {0x7f800000, 0x77000000, 0x7f7f0000};
    static const rcclx_limits f16  = {0x477ff000, 0x47000000, 0x477fe000}; /* 65520, 32768, 65504 */

    return t == RCCLX_F32 ? &f32 : t == RCCLX_BF16 ? &bf16 : &f16;
}

const rcclx_codec_kernels *rcclx_codec_isa(void)
{
    static const rcclx_codec_kernels *const sets[] = {
#if defined(__x86_64__)
        &rcclx_codec_kernels_avx512,
        &rcclx_codec_kernels_avx2,
#elif defined(__aarch64__)
        &rcclx_codec_kernels_neon,
#endif
        &rcclx_codec_kernels_baseline,
    };
    const char *const name = rcclx_isa_name();
    size_t            i    = 0;

    while (strcmp(sets[i]->name, name) != 0)
        i++;
    return sets[i];
}

static void run_encode(rcclx_codec_id c, rcclx_type t, const void *src, size_t count, void *wire)
{
    const rcclx_float_mode mode = rcclx_float_mode_enter();

    rcclx_codec_isa()->encode[c][rcclx_codec_element(t)](src, count, rcclx_codec_part(wire, count, 0), rcclx_codec_limits(t));
    rcclx_float_mode_leave(mode);
}

static void run_decode(rcclx_codec_id c, rcclx_type t, const void *wire, size_t count, void *dst)
{
    const rcclx_float_mode mode = rcclx_float_mode_enter();

    rcclx_codec_isa()->decode[c][rcclx_codec_element(t)](rcclx_codec_part(wire, count, 0), count, dst, rcclx_codec_limits(t));
    rcclx_float_mode_leave(mode);
}

#define X(id, name, about)                                                    \
    static void name##_encode(rcclx_type t, const void *src, size_t count, void *wire) \
    {                                                                         \
        run_encode(RCCLX_CODEC_##id, t, src, count, wire);                    \
    }                                                                         \
    static void name##_decode(rcclx_type t, const void *wire, size_t count, void *dst) \
    {                                                                         \
        run_decode(RCCLX_CODEC_##id, t, wire, count, dst);                    \
    }                                                                         \
    static const rcclx_codec name##_row = {#name, about, name##_encode, name##_decode};
RCCLX_CODEC_LIST(X)
#undef X

const rcclx_codec *const rcclx_codecs[RCCLX_CODEC_COUNT] = {
#define X(id, name, about) [RCCLX_CODEC_##id] = &name##_row,
    RCCLX_CODEC_LIST(X)
#undef X
};

int rcclx_codec_find(const char *name)
{
    static const char *const none[] = {"off", "none", "0", ""};

    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        if (strcasecmp(name, none[i]) == 0)
            return RCCLX_CODEC_NONE;
    for (int c = RCCLX_CODEC_NONE + 1; c < RCCLX_CODEC_COUNT; c++)
        if (strcasecmp(name, rcclx_codecs[c]->name) == 0)
            return c;
    return -1;
}
