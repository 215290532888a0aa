#include "base/clock.h"

#include <stddef.h>
#include <time.h>

static uint64_t (*hook)(void);

uint64_t rcclx_clock_ns(void)
{
    if (hook)
        return hook();
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void rcclx_clock_hook(uint64_t (*now)(void))
{
    hook = now;
}
