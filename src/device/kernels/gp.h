#ifndef RCCLX_DEVICE_KERNELS_GP_H
#define RCCLX_DEVICE_KERNELS_GP_H

/* The portability layer of the step code: what a lane may use besides plain C.
 * The host runs a lane as one thread; a GPU runs it as one block. This file is
 * the only place that knows which compiler is at work.
 *
 *   gp_peek     value of a counter of a peer or of mine, acquire, whole-system scope
 *   gp_publish  store it, release, whole-system scope
 *   gp_demote   these bytes are for another core: push them towards it (a hint)
 *   gp_claim    this line will be written soon: fetch it for writing (a hint) */

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define GP_DEV static inline

GP_DEV uint64_t gp_peek(_Atomic uint64_t *p)
{
    return atomic_load_explicit(p, memory_order_acquire);
}

GP_DEV void gp_publish(_Atomic uint64_t *p, uint64_t v)
{
    atomic_store_explicit(p, v, memory_order_release);
}

GP_DEV void gp_demote(const void *p, size_t nbytes)
{
#if defined(__x86_64__)
    /* CLDEMOTE moves a line from this core's caches to the shared one, where a reader
     * finds it sooner; a no-op on processors that do not know it. */
    for (size_t i = 0; i < nbytes; i += 64)
        __asm__ volatile("cldemote (%0)" : : "r"((const char *)p + i) : "memory");
#else
    (void)p, (void)nbytes;
#endif
}

GP_DEV void gp_claim(const void *p, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i += 64)
        __builtin_prefetch((const char *)p + i, 1, 3);
}

/* Has a counter that only grows come as far as v? Right across a wrap. */
GP_DEV int gp_reached(_Atomic uint64_t *p, uint64_t v)
{
    return (int64_t)(gp_peek(p) - v) >= 0;
}

#endif
