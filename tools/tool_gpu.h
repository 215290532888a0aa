#ifndef RCCLX_TOOL_GPU_H
#define RCCLX_TOOL_GPU_H

#include "base/json.h"

/* The part of `rcclx info` about GPUs: which drivers answer, the devices they
 * have, and the kernels that were built into this library. */

void tool_gpu_print_drivers(void); /* text, to standard output */
void tool_gpu_print_kernels(void);

void tool_gpu_json_drivers(rcclx_json *j); /* "cuda", "hip", "emu": members of the open object */
void tool_gpu_json_kernels(rcclx_json *j); /* "kernels" */

#endif
