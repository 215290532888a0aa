#ifndef RCCLX_DEVICE_GPU_EMU_FIBER_H
#define RCCLX_DEVICE_GPU_EMU_FIBER_H

#include <stdbool.h>
#include <stddef.h>

/* Fibers: stacks that one thread runs in turn. A fiber stays with its thread and
 * never ends; it is idle when nobody switches to it.
 *
 *   rcclx_fiber_adopt(&home);                        // the thread as it runs now
 *   rcclx_fiber_make(&f, stack, nbytes, run, arg);
 *   rcclx_fiber_switch(&home, &f);                   // run(arg) begins, which must not return;
 *                                                    // back here when it switches to home
 *
 * The thread sanitizer sees fibers as threads, and a switch orders nothing: what one
 * lane of a kernel does is ordered before another's only by ORDER_GIVE and ORDER_TAKE.
 * Functions that switch, and those that look after fibers, are QUIET: not watched. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RCCLX_FIBER_TSAN 1
#endif
#if __has_feature(address_sanitizer)
#define RCCLX_FIBER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__) && !defined(RCCLX_FIBER_TSAN)
#define RCCLX_FIBER_TSAN 1
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(RCCLX_FIBER_ASAN)
#define RCCLX_FIBER_ASAN 1
#endif

#if defined(RCCLX_FIBER_TSAN)
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
#define RCCLX_FIBER_QUIET __attribute__((no_sanitize("thread"), noinline))
#define RCCLX_ORDER_GIVE(p) __tsan_release(p)
#define RCCLX_ORDER_TAKE(p) __tsan_acquire(p)
#else
#define RCCLX_FIBER_QUIET __attribute__((noinline))
#define RCCLX_ORDER_GIVE(p) ((void)(p))
#define RCCLX_ORDER_TAKE(p) ((void)(p))
#endif

typedef struct rcclx_fiber rcclx_fiber;
struct rcclx_fiber {
    void       *sp;      /* where it stopped; first, the switch knows it there */
    const void *stack;   /* its lowest byte */
    size_t      nbytes;
    void      (*run)(void *arg);
    void       *arg;
    void       *watched; /* the thread sanitizer's name for it */
    void       *fake;    /* the address sanitizer's second stack of it */
    void       *context; /* where there is no switch of ours */
};

bool rcclx_fiber_make(rcclx_fiber *f, void *stack, size_t nbytes, void (*run)(void *), void *arg);
bool rcclx_fiber_adopt(rcclx_fiber *f);
void rcclx_fiber_switch(rcclx_fiber *from, rcclx_fiber *to);
bool rcclx_fiber_intact(const rcclx_fiber *f); /* false: it wrote below its stack */

#endif
