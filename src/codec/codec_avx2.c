#include "codec/codec_kernels.h"

/* The codecs' kernels for AVX2. Empty on other architectures. */
#if defined(__x86_64__)
#define RCCLX_ISA_AVX2
#define TABLE rcclx_codec_kernels_avx2
#include "codec/codec_body.h"
#endif
