#include "codec/codec_kernels.h"

/* The codecs' kernels for every machine. */
#define RCCLX_ISA_BASELINE
#define TABLE rcclx_codec_kernels_baseline
#include "codec/codec_body.h"
