#include "codec/codec_block.h"

#include <strings.h>

/* The rows. Another codec is a file like int8.c, a number in codec.h and a row here. */

const rcclx_codec_format *const rcclx_codec_formats[RCCLX_CODEC_COUNT] = {
    [RCCLX_CODEC_FP8]  = &rcclx_fp8,
    [RCCLX_CODEC_INT8] = &rcclx_int8,
};

const rcclx_codec *const rcclx_codecs[RCCLX_CODEC_COUNT] = {
    [RCCLX_CODEC_FP8]  = &rcclx_fp8.row,
    [RCCLX_CODEC_INT8] = &rcclx_int8.row,
};

int rcclx_codec_find(const char *name)
{
    static const char *const none[] = {"off", "none", "0", ""};

    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        if (strcasecmp(name, none[i]) == 0)
            return RCCLX_CODEC_NONE;
    for (int c = 0; c < RCCLX_CODEC_COUNT; c++)
        if (rcclx_codecs[c] && strcasecmp(name, rcclx_codecs[c]->name) == 0)
            return c;
    return -1;
}
