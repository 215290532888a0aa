#ifndef RCCLX_DEVICE_GPU_EMU_H
#define RCCLX_DEVICE_GPU_EMU_H

#include "device/gpu.h"

/* GPUs made of host threads: the third driver of gpu.h.
 *
 *   RCCLX_EMU_DEVICES=8            how many
 *   RCCLX_EMU_MEMORY=8G            bytes of each; an allocation beyond fails
 *   RCCLX_EMU_UNREACHABLE=0-1,2-3  pairs that cannot load and store each other's memory
 *
 * It is strict where a driver is, so that what works here works there: a launch wants
 * the stream's device current, a call that is unsafe during capture spoils the capture.
 * Memory of a device is a file without a name, mapped shared; a peer process maps it
 * by its descriptor. */
const rcclx_gpu *rcclx_gpu_emu(char *why, size_t nwhy);

/* The kernels of the library as compiled for the host (kernels/kernels.c); the last
 * has no name. Every lane calls run; args is one copy for all, 16-byte aligned. */
typedef struct {
    const char *name;
    void (*run)(const void *args);
} rcclx_emu_kernel;

extern const rcclx_emu_kernel rcclx_emu_kernels[];

/* The handle of any other kernel; for tests. */
void rcclx_emu_function(void (*run)(const void *args), rcclx_gpu_fn *f);

/* What a kernel may call (kernels/gp.h). A lane runs until it waits in one of these;
 * so a loop that waits for memory must nap. Lanes that have returned count as arrived.
 * A kernel has one shared struct: gp_emu_shared wants the same size of every lane. */
enum { RCCLX_EMU_WAVE = 32, RCCLX_EMU_THREADS = 1024, RCCLX_EMU_BLOCKS = 256, RCCLX_EMU_SHARED = 65536 };

uint32_t gp_emu_tid(void);
uint32_t gp_emu_bid(void);
void     gp_emu_sync(void);
uint64_t gp_emu_ballot(int pred);
uint32_t gp_emu_shuffle(uint32_t x, uint32_t lane);
void     gp_emu_wave_sync(void);
void     gp_emu_nap(void);
void     gp_emu_misaligned(const void *p, size_t nbytes);
uint64_t gp_emu_ticks(void);
void    *gp_emu_shared(size_t nbytes);

#endif
