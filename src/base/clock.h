#ifndef RCCLX_BASE_CLOCK_H
#define RCCLX_BASE_CLOCK_H

#include <stdint.h>

/* Monotonic nanoseconds. Tests may put a clock of their own in its place. */
uint64_t rcclx_clock_ns(void);
void     rcclx_clock_hook(uint64_t (*now)(void)); /* NULL: the real one again */

/* Tell the processor that this is a spin loop. */
static inline void rcclx_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
