/* Which GPUs: what RCCLX_DEVICE, or the caller, asks for, and what is here. */
#include "exec/exec.h"

#include "base/log.h"
#include "base/option.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* In the option's order. */
static const char *const words[] = { "auto", "host", "cuda", "hip", "emu" };
enum { AUTO, HOST, FIRST_GPU, NWORDS = sizeof(words) / sizeof(words[0]) };

static const rcclx_gpu_kind kinds[NWORDS] = { [2] = RCCLX_GPU_CUDA, [3] = RCCLX_GPU_HIP, [4] = RCCLX_GPU_EMU };

static int word_of(const char *text)
{
    for (int i = 0; i < NWORDS; i++)
        if (!strcasecmp(text, words[i]))
            return i;
    return -1;
}

/* What is there: a GPU whose driver has devices. Emulated ones only by name. */
static const rcclx_gpu *any(void)
{
    static const rcclx_gpu_kind order[] = { RCCLX_GPU_CUDA, RCCLX_GPU_HIP };
    char why[160];

    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        const rcclx_gpu *g = rcclx_gpu_open(order[i], why, sizeof(why));
        if (g && g->count > 0)
            return g;
    }
    return NULL;
}

rcclx_status rcclx_gpu_choose(const char *call, int rank, const char *text, const rcclx_gpu **gpu)
{
    char why[160] = "";
    int word = text ? word_of(text) : AUTO;

    *gpu = NULL;
    if (word < 0)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: %s: device '%s' is none of auto, host, cuda, hip, emu", rank, call, text);
    if (word == AUTO)
        word = (int)rcclx_option_int(RCCLX_OPT_DEVICE);
    if (word == HOST)
        return RCCLX_OK;
    if (word == AUTO) {
        *gpu = any();
        return RCCLX_OK;
    }
    const rcclx_gpu *g = rcclx_gpu_open(kinds[word], why, sizeof(why));
    if (g && g->count > 0) {
        *gpu = g;
        return RCCLX_OK;
    }
    return RCCLX_FAIL(RCCLX_USAGE, "rank %d: %s: there is no device for %s here: %s; use RCCLX_DEVICE=host", rank, call,
                      words[word], g ? "the driver has none" : why);
}

uint64_t rcclx_gpu_bus(const char *pci)
{
    char digits[24];
    size_t n = 0;

    for (; *pci && n + 1 < sizeof(digits); pci++)
        if (*pci != ':' && *pci != '.')
            digits[n++] = *pci;
    digits[n] = 0;
    return strtoull(digits, NULL, 16);
}
