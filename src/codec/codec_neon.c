#include "codec/codec_kernels.h"

/* The codecs' kernels for NEON. Empty on other architectures. */
#if defined(__aarch64__)
#define RCCLX_ISA_NEON
#define TABLE rcclx_codec_kernels_neon
#include "codec/codec_body.h"
#endif
