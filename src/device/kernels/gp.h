#ifndef RCCLX_DEVICE_KERNELS_GP_H
#define RCCLX_DEVICE_KERNELS_GP_H

/* The portability layer of the step code: what a lane may use besides plain C.
 * The host runs a lane as one thread; a GPU runs it as one block. This file is
 * the only place that knows which compiler is at work.
 *
 *   gp_peek     value of a counter of a peer or of mine, acquire, whole-system scope
 *   gp_publish  store it, release, whole-system scope */

#include <stdatomic.h>
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

/* Has a counter that only grows come as far as v? Right across a wrap. */
GP_DEV int gp_reached(_Atomic uint64_t *p, uint64_t v)
{
    return (int64_t)(gp_peek(p) - v) >= 0;
}

#endif
