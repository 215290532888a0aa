#ifndef RCCLX_DEVICE_FLOAT_MODE_H
#define RCCLX_DEVICE_FLOAT_MODE_H

#include <stdint.h>

/* The thread's rounding and flush-to-zero, put aside for a while:
 *
 *   const rcclx_float_mode mode = rcclx_float_mode_enter();    nearest, subnormals kept
 *   rcclx_float_mode_leave(mode);                              as it was
 *
 * fegetenv and fesetenv do this and save the x87, too, which takes longer than a small message. */
#if defined(__x86_64__)
#include <xmmintrin.h>

typedef unsigned rcclx_float_mode;

enum { RCCLX_FLOAT_MODE = 0x1f80, RCCLX_FLOAT_FLAGS = 0x3f }; /* exceptions masked; what happened */

static inline rcclx_float_mode rcclx_float_mode_enter(void)
{
    const rcclx_float_mode old = _mm_getcsr();

    if ((old & ~(unsigned)RCCLX_FLOAT_FLAGS) != RCCLX_FLOAT_MODE)
        _mm_setcsr(RCCLX_FLOAT_MODE);
    return old;
}

static inline void rcclx_float_mode_leave(rcclx_float_mode old)
{
    if ((old & ~(unsigned)RCCLX_FLOAT_FLAGS) != RCCLX_FLOAT_MODE)
        _mm_setcsr(old);
}

#elif defined(__aarch64__)
typedef uint64_t rcclx_float_mode;

static inline rcclx_float_mode rcclx_float_mode_enter(void)
{
    rcclx_float_mode old;

    __asm__ volatile("mrs %0, fpcr" : "=r"(old));
    if (old != 0)
        __asm__ volatile("msr fpcr, %0" : : "r"(UINT64_C(0)) : "memory");
    return old;
}

static inline void rcclx_float_mode_leave(rcclx_float_mode old)
{
    if (old != 0)
        __asm__ volatile("msr fpcr, %0" : : "r"(old) : "memory");
}

#else
typedef int rcclx_float_mode;

static inline rcclx_float_mode rcclx_float_mode_enter(void)
{
    return 0;
}

static inline void rcclx_float_mode_leave(rcclx_float_mode old)
{
    (void)old;
}
#endif
#endif
