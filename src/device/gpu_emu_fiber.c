/* A switch pushes two registers and an address, and takes the stack of the other:
 *
 *      high  |  frames of run      |
 *            |  rbp  rbx           |   the compiler keeps all else, being told that
 *   sp --->  |  where to go on     |   the switch destroys it
 *            |  ...                |
 *      low   |  canary             |   looked at when a kernel's lane returns
 *
 * A new stack holds the address of `begin` alone. On processors without a switch of
 * ours the C library's ucontext does it, which makes a system call each time. */
#include "device/gpu_emu_fiber.h"

#include <stdint.h>
#include <string.h>

enum { CANARY = 64 };

#if defined(RCCLX_FIBER_TSAN)
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void  __tsan_switch_to_fiber(void *fiber, unsigned flags);
#define WATCH_SELF() __tsan_get_current_fiber()
#define WATCH_NEW() __tsan_create_fiber(0)
#define WATCH_SWITCH(f) __tsan_switch_to_fiber((f)->watched, 1) /* 1: orders nothing */
#else
#define WATCH_SELF() NULL
#define WATCH_NEW() NULL
#define WATCH_SWITCH(f) ((void)(f))
#endif

#if defined(RCCLX_FIBER_ASAN)
void __sanitizer_start_switch_fiber(void **fake, const void *stack, size_t nbytes);
void __sanitizer_finish_switch_fiber(void *fake, const void **stack, size_t *nbytes);
#define LEAVE(from, to) __sanitizer_start_switch_fiber(&(from)->fake, (to)->stack, (to)->nbytes)
#define ENTER(from, to) __sanitizer_finish_switch_fiber((to)->fake, &(from)->stack, &(from)->nbytes)
#else
#define LEAVE(from, to) ((void)0)
#define ENTER(from, to) ((void)0)
#endif

static inline void begin(rcclx_fiber *from, rcclx_fiber *self)
{
    (void)from;
    ENTER(from, self);
    self->run(self->arg);
    __builtin_trap();
}

#if defined(__x86_64__)

RCCLX_FIBER_QUIET static void first(rcclx_fiber *from, rcclx_fiber *self)
{
    begin(from, self);
}

static bool prepare(rcclx_fiber *f, char *top)
{
    void **sp = (void **)(void *)(top - 32);

    sp[0] = (void *)(uintptr_t)first;
    sp[1] = NULL; /* what called it: nobody */
    f->sp = sp;
    return true;
}

/* Leaves from in rdi and to in rsi, where `first` and whoever goes on find them. */
#define SWAP(from, to)                                                                                              \
    __asm__ volatile("leaq -128(%%rsp), %%rsp\n\t" /* the red zone */                                              \
                     "pushq %%rbp\n\t"                                                                              \
                     "pushq %%rbx\n\t"                                                                              \
                     "leaq 1f(%%rip), %%rax\n\t"                                                                    \
                     "pushq %%rax\n\t"                                                                              \
                     "movq %%rsp, (%%rdi)\n\t"                                                                      \
                     "movq (%%rsi), %%rsp\n\t"                                                                      \
                     "popq %%rax\n\t"                                                                               \
                     "jmpq *%%rax\n"                                                                                \
                     "1:\n\t"                                                                                       \
                     "popq %%rbx\n\t"                                                                               \
                     "popq %%rbp\n\t"                                                                               \
                     "leaq 128(%%rsp), %%rsp"                                                                       \
                     : "+D"(from), "+S"(to)                                                                         \
                     :                                                                                              \
                     : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "cc", "memory",   \
                       "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",     \
                       "xmm11", "xmm12", "xmm13", "xmm14", "xmm15")

#elif defined(__aarch64__)

RCCLX_FIBER_QUIET static void first(rcclx_fiber *from, rcclx_fiber *self)
{
    begin(from, self);
}

static bool prepare(rcclx_fiber *f, char *top)
{
    void **sp = (void **)(void *)(top - 32);

    sp[0] = sp[1] = NULL;
    sp[2] = (void *)(uintptr_t)first;
    f->sp = sp;
    return true;
}

/* x19 may be the compiler's base pointer, which it does not let us destroy. */
#define SWAP(from, to)                                                                                              \
    do {                                                                                                            \
        register rcclx_fiber *x0_ __asm__("x0") = from;                                                             \
        register rcclx_fiber *x1_ __asm__("x1") = to;                                                               \
        __asm__ volatile("sub sp, sp, #32\n\t"                                                                      \
                         "stp x29, x19, [sp]\n\t"                                                                   \
                         "adr x17, 1f\n\t"                                                                          \
                         "str x17, [sp, #16]\n\t"                                                                   \
                         "mov x17, sp\n\t"                                                                          \
                         "str x17, [x0]\n\t"                                                                        \
                         "ldr x17, [x1]\n\t"                                                                        \
                         "mov sp, x17\n\t"                                                                          \
                         "ldr x17, [sp, #16]\n\t"                                                                   \
                         "br x17\n"                                                                                 \
                         "1:\n\t"                                                                                   \
                         "hint #36\n\t" /* a place to jump to (BTI) */                                              \
                         "ldp x29, x19, [sp]\n\t"                                                                   \
                         "add sp, sp, #32"                                                                          \
                         : "+r"(x0_), "+r"(x1_)                                                                     \
                         :                                                                                          \
                         : "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14",       \
                           "x15", "x16", "x17", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28",      \
                           "x30", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12",  \
                           "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24",      \
                           "v25", "v26", "v27", "v28", "v29", "v30", "v31", "cc", "memory");                        \
        (from) = x0_;                                                                                               \
        (to) = x1_;                                                                                                 \
    } while (0)

#else

#include "base/mem.h"

#include <ucontext.h>

/* Who switches to a fiber says so in its `sp`. */
RCCLX_FIBER_QUIET static void first(unsigned high, unsigned low)
{
    rcclx_fiber *self = (rcclx_fiber *)((uintptr_t)high << 16 << 16 | low);

    begin(self->sp, self);
}

static bool prepare(rcclx_fiber *f, char *top)
{
    ucontext_t *c = f->context = RCCLX_NEW(ucontext_t);
    const uintptr_t self = (uintptr_t)f;

    if (!c || getcontext(c))
        return false;
    if (!top)
        return true;
    c->uc_stack.ss_sp = (void *)(uintptr_t)f->stack;
    c->uc_stack.ss_size = f->nbytes;
    makecontext(c, (void (*)(void))(uintptr_t)first, 2, (unsigned)(self >> 16 >> 16), (unsigned)self);
    return true;
}

#define SWAP(from, to)                                                                                              \
    do {                                                                                                            \
        rcclx_fiber *self_ = (from);                                                                                \
        (to)->sp = self_;                                                                                           \
        swapcontext(self_->context, (to)->context);                                                                 \
        (from) = self_->sp;                                                                                         \
        (to) = self_;                                                                                               \
    } while (0)
#define NEEDS_CONTEXT 1

#endif

bool rcclx_fiber_make(rcclx_fiber *f, void *stack, size_t nbytes, void (*run)(void *), void *arg)
{
    memset(stack, 0x5a, CANARY);
    *f = (rcclx_fiber){ .stack = (char *)stack + CANARY, .nbytes = nbytes - CANARY, .run = run, .arg = arg };
    f->watched = WATCH_NEW();
    return prepare(f, (char *)((uintptr_t)((char *)stack + nbytes) & ~(uintptr_t)15));
}

bool rcclx_fiber_adopt(rcclx_fiber *f)
{
    *f = (rcclx_fiber){ .watched = WATCH_SELF() };
#if defined(NEEDS_CONTEXT)
    return prepare(f, NULL);
#else
    return true;
#endif
}

RCCLX_FIBER_QUIET void rcclx_fiber_switch(rcclx_fiber *from, rcclx_fiber *to)
{
    LEAVE(from, to);
    WATCH_SWITCH(to);
    SWAP(from, to);
    ENTER(from, to);
}

RCCLX_FIBER_QUIET bool rcclx_fiber_intact(const rcclx_fiber *f)
{
    const unsigned char *low = (const unsigned char *)f->stack - CANARY;

    for (int i = 0; i < CANARY; i++)
        if (low[i] != 0x5a)
            return false;
    return true;
}
