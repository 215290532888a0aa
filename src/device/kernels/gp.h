#ifndef RCCLX_DEVICE_KERNELS_GP_H
#define RCCLX_DEVICE_KERNELS_GP_H

/* The portability layer of kernels: what they may use besides plain C. This file is
 * the only place that knows which compiler is at work:
 *
 *   nvcc -x cu            NVIDIA, sm_80 and newer        wave 32, line 128 bytes
 *   clang -x hip          AMD, gfx90a, gfx942, gfx950    wave 64, line  64 bytes
 *   gcc, clang (C17)      the host: GPUs made of threads wave 32, line 128 bytes
 *
 *   GP_KERNEL(gp_sum_small, gp_small)       an entry point; args: const gp_small *
 *   {
 *       GP_SHARED(my_state, s);             s: my_state *, shared by the block
 *       if (gp_tid() == 0)
 *           s->x = args->frame.rank;
 *       gp_sync();
 *       ...
 *   }
 *
 *   where       gp_tid gp_bid gp_lane, GP_WAVE lanes a wave, GP_LINE bytes a line
 *   meet        gp_sync, gp_sync_publish (then thread 0 may raise a flag for what all
 *               threads of the block stored); all lanes of a wave: gp_wave_sync,
 *               gp_wave_publish, gp_ballot, gp_shuffle (another lane's word)
 *   move        gp_ld16 gp_st16 gp_ld8 .. gp_st1: plain, global, naturally aligned;
 *               _nt: streaming
 *   16 bytes    gp_v4: gp_get(v, i), gp_set(&v, i, x), gp_v4_make(a, b, c, d)
 *   LL          gp_ll_store, gp_ll_load: a unit of two halves (data, flag), each stored
 *               and loaded whole
 *   LL128       gp_line_store, gp_line_load: 16 bytes of a line a lane, all lanes of the
 *               wave together; the flag is in the last 8 bytes of the lane with is_flag
 *   flags       gp_flag_* (64 bits), gp_word_* (32), gp_fence_system: system scope;
 *               gp_add_device, gp_add_relaxed: device scope
 *   block       gp_shared_peek, gp_shared_poke: a shared word that threads race for
 *   wait        gp_nap in every loop that spins; gp_ticks: nanoseconds
 *   code        GP_SLOW: a function that is called and not inlined, arguments by value
 *               GP_APART: the same where it then has registers of its own, which on AMD it has not
 *   numbers     gp_f32_bits .., gp_add_f32 .. (rounded once, never fused), small floats
 *               by the word: as docs/numerics.md has them
 *
 * Kernels are the subset of C that all compilers take: a source is C17 and CUDA and HIP.
 * Loops over the elements of a vector carry GP_UNROLL, so that indices are constant and
 * arrays end in registers. */

#include <stddef.h>
#include <stdint.h>

#if defined(__AMDGCN__)
#define GP_AMD 1
#elif defined(__CUDACC__)
#define GP_CUDA 1
#else
#define GP_HOST 1
#endif

/* Most threads of a block. */
#ifndef GP_THREADS
#define GP_THREADS 512
#endif

/* Rounds of waiting between looks whether there is a reason to stop; among fibers a round is long. */
#if defined(GP_HOST)
enum { GP_LOOK_EVERY = 32 };
#else
enum { GP_LOOK_EVERY = 1024 };
#endif

#if defined(GP_CUDA)
/* ================================ NVIDIA ================================ */

#define GP_DEV static __device__ __forceinline__
#define GP_SLOW static __device__ __noinline__
#define GP_APART static __device__ __noinline__
#define GP_UNROLL _Pragma("unroll")
#define GP_NO_UNROLL _Pragma("unroll 1")
#define GP_WAVE 32
#define GP_LINE 128

#define GP_KERNEL(name, argtype)                                              \
    GP_DEV void name##_body(const argtype *args);                             \
    extern "C" __global__ void __launch_bounds__(GP_THREADS, 1) name(const __grid_constant__ argtype gp_arg) \
    {                                                                         \
        name##_body(&gp_arg);                                                    \
    }                                                                         \
    GP_DEV void name##_body(const argtype *args)
#define GP_SHARED(type, name)                                                 \
    __shared__ type name##_shared;                                            \
    type *const name = &name##_shared

typedef struct { uint32_t x[4]; } gp_v4;

GP_DEV uint32_t gp_get(gp_v4 v, int i) { return v.x[i]; }
GP_DEV void gp_set(gp_v4 *v, int i, uint32_t x) { v->x[i] = x; }

GP_DEV uint32_t gp_tid(void) { return threadIdx.x; }
GP_DEV uint32_t gp_bid(void) { return blockIdx.x; }
GP_DEV void gp_sync(void) { __syncthreads(); }
GP_DEV void gp_sync_publish(void) { __syncthreads(); }
GP_DEV void gp_wave_sync(void) { __syncwarp(); }
GP_DEV void gp_wave_publish(void) { __syncwarp(); }
GP_DEV uint64_t gp_ballot(int pred) { return __ballot_sync(~0u, pred); }
GP_DEV uint32_t gp_shuffle(uint32_t x, uint32_t lane) { return __shfl_sync(~0u, x, (int)lane); }

/* All accesses to global memory are volatile assembly: it stays in order. */
#define GP_CUDA_LOAD16(name, op)                                              \
    GP_DEV gp_v4 name(const void *p)                                          \
    {                                                                         \
        gp_v4 v;                                                              \
        asm volatile(op " {%0, %1, %2, %3}, [%4];"                            \
                     : "=r"(v.x[0]), "=r"(v.x[1]), "=r"(v.x[2]), "=r"(v.x[3]) : "l"(p) : "memory"); \
        return v;                                                             \
    }
#define GP_CUDA_STORE16(name, op)                                             \
    GP_DEV void name(void *p, gp_v4 v)                                        \
    {                                                                         \
        asm volatile(op " [%0], {%1, %2, %3, %4};"                            \
                     : : "l"(p), "r"(v.x[0]), "r"(v.x[1]), "r"(v.x[2]), "r"(v.x[3]) : "memory"); \
    }
#define GP_CUDA_LOAD(name, type, op, reg)                                     \
    GP_DEV type name(const void *p)                                           \
    {                                                                         \
        type v;                                                               \
        asm volatile(op " %0, [%1];" : "=" reg(v) : "l"(p) : "memory");       \
        return v;                                                             \
    }
#define GP_CUDA_STORE(name, type, op, reg)                                    \
    GP_DEV void name(void *p, type v)                                         \
    {                                                                         \
        asm volatile(op " [%0], %1;" : : "l"(p), reg(v) : "memory");          \
    }
GP_CUDA_LOAD16(gp_ld16, "ld.global.v4.u32")
GP_CUDA_LOAD16(gp_ld16_nt, "ld.global.cs.v4.u32")
GP_CUDA_LOAD16(gp_line_get, "ld.volatile.global.v4.u32")
GP_CUDA_STORE16(gp_st16, "st.global.v4.u32")
GP_CUDA_STORE16(gp_st16_nt, "st.global.cs.v4.u32")
GP_CUDA_STORE16(gp_line_put, "st.volatile.global.v4.u32")
GP_CUDA_LOAD(gp_ld8, uint64_t, "ld.global.u64", "l")
GP_CUDA_LOAD(gp_ld4, uint32_t, "ld.global.u32", "r")
GP_CUDA_LOAD(gp_ld2, uint32_t, "ld.global.u16", "r")
GP_CUDA_LOAD(gp_ld1, uint32_t, "ld.global.u8", "r")
GP_CUDA_STORE(gp_st8, uint64_t, "st.global.u64", "l")
GP_CUDA_STORE(gp_st4, uint32_t, "st.global.u32", "r")
GP_CUDA_STORE(gp_st2, uint32_t, "st.global.u16", "r")
GP_CUDA_STORE(gp_st1, uint32_t, "st.global.u8", "r")
GP_CUDA_LOAD(gp_flag_get_acquire, uint64_t, "ld.acquire.sys.global.u64", "l")
GP_CUDA_LOAD(gp_flag_get, uint64_t, "ld.relaxed.sys.global.u64", "l")
GP_CUDA_STORE(gp_flag_put_release, uint64_t, "st.release.sys.global.u64", "l")
GP_CUDA_STORE(gp_flag_put, uint64_t, "st.relaxed.sys.global.u64", "l")
GP_CUDA_LOAD(gp_word_get, uint32_t, "ld.relaxed.sys.global.u32", "r")
GP_CUDA_STORE(gp_word_put, uint32_t, "st.relaxed.sys.global.u32", "r")

GP_DEV void gp_line_store(void *p, gp_v4 v, int is_flag) { (void)is_flag, gp_line_put(p, v); }
GP_DEV gp_v4 gp_line_load(const void *p, int is_flag) { return (void)is_flag, gp_line_get(p); }

/* A vector of two 64-bit words: each is one access to the memory model. */
GP_DEV void gp_ll_store(void *unit, uint32_t d0, uint32_t d1, uint32_t f0, uint32_t f1)
{
    asm volatile("{ .reg .b64 a, b; mov.b64 a, {%1, %2}; mov.b64 b, {%3, %4}; st.relaxed.sys.global.v2.b64 [%0], {a, b}; }"
                 : : "l"(unit), "r"(d0), "r"(f0), "r"(d1), "r"(f1) : "memory");
}

GP_DEV void gp_ll_load(const void *unit, uint32_t v[4])
{
    asm volatile("{ .reg .b64 a, b; ld.relaxed.sys.global.v2.b64 {a, b}, [%4]; mov.b64 {%0, %1}, a; mov.b64 {%2, %3}, b; }"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "l"(unit) : "memory");
}

GP_DEV uint32_t gp_add_device(uint32_t *p, uint32_t v)
{
    uint32_t old;

    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    return old;
}

/* Nobody waits for what was there before. */
GP_DEV void gp_add_relaxed(uint64_t *p, uint64_t v)
{
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" : : "l"(p), "l"(v) : "memory");
}

GP_DEV void gp_fence_system(void) { asm volatile("fence.acq_rel.sys;" : : : "memory"); }
GP_DEV uint32_t gp_shared_peek(const uint32_t *p) { return *(const volatile uint32_t *)p; }
GP_DEV void gp_shared_poke(uint32_t *p, uint32_t v) { *(volatile uint32_t *)p = v; }

GP_DEV uint64_t gp_ticks(void)
{
    uint64_t t;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

/* A wait is most often over within a microsecond, and spinning disturbs nobody. */
GP_DEV void gp_nap(void) { }

GP_DEV uint32_t gp_f32_bits(float x) { return __float_as_uint(x); }
GP_DEV float gp_bits_f32(uint32_t u) { return __uint_as_float(u); }
GP_DEV uint64_t gp_f64_bits(double x) { return (uint64_t)__double_as_longlong(x); }
GP_DEV double gp_bits_f64(uint64_t u) { return __longlong_as_double((long long)u); }
GP_DEV float gp_add_f32(float a, float b) { return __fadd_rn(a, b); }
GP_DEV float gp_mul_f32(float a, float b) { return __fmul_rn(a, b); }
GP_DEV float gp_div_f32(float a, float b) { return __fdiv_rn(a, b); }
GP_DEV float gp_fma_f32(float a, float b, float c) { return __fmaf_rn(a, b, c); }
GP_DEV double gp_add_f64(double a, double b) { return __dadd_rn(a, b); }
GP_DEV double gp_mul_f64(double a, double b) { return __dmul_rn(a, b); }
GP_DEV double gp_div_f64(double a, double b) { return __ddiv_rn(a, b); }

#elif defined(GP_AMD)
/* ================================= AMD ================================== */

#define GP_DEV static inline __attribute__((always_inline, device))
#define GP_SLOW static __attribute__((noinline, device))
#define GP_APART static inline __attribute__((always_inline, device))
#define GP_UNROLL _Pragma("unroll")
#define GP_NO_UNROLL _Pragma("nounroll")
#define GP_WAVE 64
#define GP_LINE 64
/* Pointers taken from memory are generic until told otherwise, and flat accesses are slow. */
#define GP_GLOBAL __attribute__((address_space(1)))

#define GP_KERNEL(name, argtype)                                              \
    GP_DEV void name##_body(const argtype *args);                             \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, GP_THREADS))) void name(argtype gp_arg) \
    {                                                                         \
        (void)gp_arg;                                                         \
        name##_body((const argtype *)__builtin_amdgcn_kernarg_segment_ptr()); \
    }                                                                         \
    GP_DEV void name##_body(const argtype *args)
#define GP_SHARED(type, name)                                                 \
    __attribute__((shared)) type name##_shared;                               \
    type *const name = &name##_shared

typedef uint32_t gp_v4 __attribute__((ext_vector_type(4)));

GP_DEV uint32_t gp_get(gp_v4 v, int i) { return v[i]; }
GP_DEV void gp_set(gp_v4 *v, int i, uint32_t x) { (*v)[i] = x; }

GP_DEV uint32_t gp_tid(void) { return __builtin_amdgcn_workitem_id_x(); }
GP_DEV uint32_t gp_bid(void) { return __builtin_amdgcn_workgroup_id_x(); }
GP_DEV uint64_t gp_ballot(int pred) { return __builtin_amdgcn_ballot_w64(pred != 0); }

GP_DEV uint32_t gp_shuffle(uint32_t x, uint32_t lane)
{
    return (uint32_t)__builtin_amdgcn_ds_bpermute((int)(lane * 4), (int)x);
}

GP_DEV void gp_sync(void)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

/* A fence of the block does not wait for stores, and a release by thread 0 waits for those
 * of its own wave only: every wave has to see its stores done before it arrives. */
GP_DEV void gp_sync_publish(void)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_waitcnt(0);
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

/* A wave's lanes are in step; what they share has to have got there. */
GP_DEV void gp_wave_sync(void)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

GP_DEV void gp_wave_publish(void)
{
    __builtin_amdgcn_s_waitcnt(0);
    gp_wave_sync();
}

GP_DEV gp_v4 gp_ld16(const void *p) { return *(const GP_GLOBAL gp_v4 *)p; }
GP_DEV gp_v4 gp_ld16_nt(const void *p) { return __builtin_nontemporal_load((const GP_GLOBAL gp_v4 *)p); }
GP_DEV void gp_st16(void *p, gp_v4 v) { *(GP_GLOBAL gp_v4 *)p = v; }
GP_DEV void gp_st16_nt(void *p, gp_v4 v) { __builtin_nontemporal_store(v, (GP_GLOBAL gp_v4 *)p); }
GP_DEV uint64_t gp_ld8(const void *p) { return *(const GP_GLOBAL uint64_t *)p; }
GP_DEV uint32_t gp_ld4(const void *p) { return *(const GP_GLOBAL uint32_t *)p; }
GP_DEV uint32_t gp_ld2(const void *p) { return *(const GP_GLOBAL uint16_t *)p; }
GP_DEV uint32_t gp_ld1(const void *p) { return *(const GP_GLOBAL uint8_t *)p; }
GP_DEV void gp_st8(void *p, uint64_t v) { *(GP_GLOBAL uint64_t *)p = v; }
GP_DEV void gp_st4(void *p, uint32_t v) { *(GP_GLOBAL uint32_t *)p = v; }
GP_DEV void gp_st2(void *p, uint32_t v) { *(GP_GLOBAL uint16_t *)p = (uint16_t)v; }
GP_DEV void gp_st1(void *p, uint32_t v) { *(GP_GLOBAL uint8_t *)p = (uint8_t)v; }

#define GP_AMD_LOAD(p, type, order) \
    __scoped_atomic_load_n((const GP_GLOBAL type *)(p), order, __MEMORY_SCOPE_SYSTEM)
#define GP_AMD_STORE(p, type, v, order) \
    __scoped_atomic_store_n((GP_GLOBAL type *)(p), v, order, __MEMORY_SCOPE_SYSTEM)

/* The first half of a release: all stores done, the cache of the chip written back. The waits are
 * explicit, since the compiler drops its own where it thinks that nothing is under way: it counts
 * neither the stores of gp_line_store nor (clang 19) the write-back itself. */
#define GP_AMD_RELEASE(scope)                                                 \
    __builtin_amdgcn_s_waitcnt(0);                                            \
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, scope);                          \
    __builtin_amdgcn_s_waitcnt(0)

GP_DEV void gp_flag_put_release(void *p, uint64_t v)
{
    GP_AMD_RELEASE("");
    GP_AMD_STORE(p, uint64_t, v, __ATOMIC_RELAXED);
}

GP_DEV void gp_fence_system(void)
{
    GP_AMD_RELEASE("");
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
}

GP_DEV uint32_t gp_shared_peek(const uint32_t *p) { return *(const volatile uint32_t *)p; }
GP_DEV void gp_shared_poke(uint32_t *p, uint32_t v) { *(volatile uint32_t *)p = v; }

GP_DEV uint64_t gp_flag_get_acquire(const void *p) { return GP_AMD_LOAD(p, uint64_t, __ATOMIC_ACQUIRE); }
GP_DEV uint64_t gp_flag_get(const void *p) { return GP_AMD_LOAD(p, uint64_t, __ATOMIC_RELAXED); }
GP_DEV void gp_flag_put(void *p, uint64_t v) { GP_AMD_STORE(p, uint64_t, v, __ATOMIC_RELAXED); }
GP_DEV uint32_t gp_word_get(const void *p) { return GP_AMD_LOAD(p, uint32_t, __ATOMIC_RELAXED); }
GP_DEV void gp_word_put(void *p, uint32_t v) { GP_AMD_STORE(p, uint32_t, v, __ATOMIC_RELAXED); }

GP_DEV uint32_t gp_add_device(uint32_t *p, uint32_t v)
{
    uint32_t old;

    GP_AMD_RELEASE("agent");
    old = __scoped_atomic_fetch_add((GP_GLOBAL uint32_t *)p, v, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
    return old;
}

GP_DEV void gp_add_relaxed(uint64_t *p, uint64_t v)
{
    (void)__scoped_atomic_fetch_add((GP_GLOBAL uint64_t *)p, v, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

/* Halves, since the compiler waits after every volatile access of 16 bytes: loads from
 * several peers would take turns. */
GP_DEV void gp_ll_store(void *unit, uint32_t d0, uint32_t d1, uint32_t f0, uint32_t f1)
{
    gp_flag_put(unit, (uint64_t)f0 << 32 | d0);
    gp_flag_put((char *)unit + 8, (uint64_t)f1 << 32 | d1);
}

GP_DEV void gp_ll_load(const void *unit, uint32_t v[4])
{
    const uint64_t a = gp_flag_get(unit), b = gp_flag_get((const char *)unit + 8);

    v[0] = (uint32_t)a, v[1] = (uint32_t)(a >> 32), v[2] = (uint32_t)b, v[3] = (uint32_t)(b >> 32);
}

/* A line has to go in one instruction. Stores in assembly, without the wait that a volatile
 * one has; s_nop, since the registers may not be overwritten in the next cycle. */
GP_DEV void gp_line_store(void *p, gp_v4 v, int is_flag)
{
    (void)is_flag;
#if defined(__gfx942__) || defined(__gfx950__)
    asm volatile("global_store_dwordx4 %0, %1, off sc0 sc1\n\ts_nop 0" : : "v"((GP_GLOBAL char *)p), "v"(v) : "memory");
#else
    asm volatile("global_store_dwordx4 %0, %1, off\n\ts_nop 0" : : "v"((GP_GLOBAL char *)p), "v"(v) : "memory");
#endif
}

GP_DEV gp_v4 gp_line_load(const void *p, int is_flag)
{
    (void)is_flag;
    return *(const volatile GP_GLOBAL gp_v4 *)p;
}

/* A counter of 100 MHz. */
GP_DEV uint64_t gp_ticks(void) { return 10 * __builtin_readsteadycounter(); }
/* 64 cycles for the other waves of the unit. */
GP_DEV void gp_nap(void) { __builtin_amdgcn_s_sleep(1); }

GP_DEV uint32_t gp_f32_bits(float x) { return __builtin_bit_cast(uint32_t, x); }
GP_DEV float gp_bits_f32(uint32_t u) { return __builtin_bit_cast(float, u); }
GP_DEV uint64_t gp_f64_bits(double x) { return __builtin_bit_cast(uint64_t, x); }
GP_DEV double gp_bits_f64(uint64_t u) { return __builtin_bit_cast(double, u); }

GP_DEV float gp_fma_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

#define GP_AMD_ARITHMETIC(name, type, op)                                     \
    GP_DEV type name(type a, type b)                                          \
    {                                                                         \
        _Pragma("clang fp contract(off)")                                     \
        return a op b;                                                        \
    }
GP_AMD_ARITHMETIC(gp_add_f32, float, +)
GP_AMD_ARITHMETIC(gp_mul_f32, float, *)
GP_AMD_ARITHMETIC(gp_div_f32, float, /)
GP_AMD_ARITHMETIC(gp_add_f64, double, +)
GP_AMD_ARITHMETIC(gp_mul_f64, double, *)
GP_AMD_ARITHMETIC(gp_div_f64, double, /)

#else
/* ================================= host ================================= */

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#define GP_DEV static inline
#define GP_SLOW static
#define GP_APART static
#define GP_UNROLL
#define GP_NO_UNROLL
#define GP_WAVE 32
#define GP_LINE 128

#define GP_KERNEL(name, argtype)                                              \
    void name(const argtype *args);                                           \
    void name(const argtype *args)
#define GP_SHARED(type, name) type *const name = (type *)gp_emu_shared(sizeof(type))

/* Threads that play a GPU (gpu_emu.c). */
extern uint32_t gp_emu_tid(void);
extern uint32_t gp_emu_bid(void);
extern void     gp_emu_sync(void);
extern uint64_t gp_emu_ballot(int pred);
extern uint32_t gp_emu_shuffle(uint32_t x, uint32_t lane);
extern void     gp_emu_wave_sync(void);
extern void     gp_emu_nap(void);
extern uint64_t gp_emu_ticks(void);
extern void    *gp_emu_shared(size_t nbytes);
extern void     gp_emu_misaligned(const void *p, size_t nbytes); /* does not return */

typedef struct { uint32_t x[4]; } gp_v4;

GP_DEV uint32_t gp_get(gp_v4 v, int i) { return v.x[i]; }
GP_DEV void gp_set(gp_v4 *v, int i, uint32_t x) { v->x[i] = x; }

GP_DEV uint32_t gp_tid(void) { return gp_emu_tid(); }
GP_DEV uint32_t gp_bid(void) { return gp_emu_bid(); }
GP_DEV void gp_sync(void) { gp_emu_sync(); }
GP_DEV void gp_sync_publish(void) { gp_emu_sync(); }
GP_DEV void gp_wave_sync(void) { gp_emu_wave_sync(); }
GP_DEV void gp_wave_publish(void) { gp_emu_wave_sync(); }
GP_DEV uint64_t gp_ballot(int pred) { return gp_emu_ballot(pred); }
GP_DEV uint32_t gp_shuffle(uint32_t x, uint32_t lane) { return gp_emu_shuffle(x, lane); }
GP_DEV uint64_t gp_ticks(void) { return gp_emu_ticks(); }
GP_DEV void gp_nap(void) { gp_emu_nap(); }

/* A GPU faults where a processor does not mind. */
GP_DEV void gp_host_aligned(const void *p, size_t nbytes)
{
    if ((uintptr_t)p & (nbytes - 1))
        gp_emu_misaligned(p, nbytes);
}

#define GP_HOST_LOAD(name, type, stored)                                      \
    GP_DEV type name(const void *p)                                           \
    {                                                                         \
        stored v;                                                             \
        gp_host_aligned(p, sizeof v);                                         \
        memcpy(&v, p, sizeof v);                                              \
        return v;                                                             \
    }
#define GP_HOST_STORE(name, type, stored)                                     \
    GP_DEV void name(void *p, type v)                                         \
    {                                                                         \
        const stored x = (stored)v;                                           \
        gp_host_aligned(p, sizeof x);                                         \
        memcpy(p, &x, sizeof x);                                              \
    }
GP_HOST_LOAD(gp_ld16, gp_v4, gp_v4)
GP_HOST_LOAD(gp_ld8, uint64_t, uint64_t)
GP_HOST_LOAD(gp_ld4, uint32_t, uint32_t)
GP_HOST_LOAD(gp_ld2, uint32_t, uint16_t)
GP_HOST_LOAD(gp_ld1, uint32_t, uint8_t)
GP_HOST_STORE(gp_st8, uint64_t, uint64_t)
GP_HOST_STORE(gp_st4, uint32_t, uint32_t)
GP_HOST_STORE(gp_st2, uint32_t, uint16_t)
GP_HOST_STORE(gp_st1, uint32_t, uint8_t)
GP_DEV void gp_st16(void *p, gp_v4 v) { gp_host_aligned(p, sizeof v), (void)memcpy(p, &v, sizeof v); }
GP_DEV gp_v4 gp_ld16_nt(const void *p) { return gp_ld16(p); }
GP_DEV void gp_st16_nt(void *p, gp_v4 v) { gp_st16(p, v); }

/* What is relaxed on a GPU, with a fence near, is acquire or release here: it costs nothing,
 * and ThreadSanitizer does not know fences. So there is nothing left for a fence to do. */
GP_DEV void gp_flag_put_release(void *p, uint64_t v)
{
    gp_host_aligned(p, sizeof v);
    __atomic_store_n((uint64_t *)p, v, __ATOMIC_RELEASE);
}

GP_DEV void gp_flag_put(void *p, uint64_t v) { gp_flag_put_release(p, v); }

GP_DEV uint64_t gp_flag_get_acquire(const void *p)
{
    gp_host_aligned(p, sizeof(uint64_t));
    return __atomic_load_n((const uint64_t *)p, __ATOMIC_ACQUIRE);
}

GP_DEV uint64_t gp_flag_get(const void *p) { return gp_flag_get_acquire(p); }
GP_DEV void gp_word_put(void *p, uint32_t v) { __atomic_store_n((uint32_t *)p, v, __ATOMIC_RELEASE); }
GP_DEV uint32_t gp_word_get(const void *p) { return __atomic_load_n((const uint32_t *)p, __ATOMIC_ACQUIRE); }
GP_DEV uint32_t gp_add_device(uint32_t *p, uint32_t v) { return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }
GP_DEV void gp_add_relaxed(uint64_t *p, uint64_t v) { __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }
GP_DEV void gp_fence_system(void) { __atomic_signal_fence(__ATOMIC_ACQ_REL); }
GP_DEV uint32_t gp_shared_peek(const uint32_t *p) { return gp_word_get(p); }
GP_DEV void gp_shared_poke(uint32_t *p, uint32_t v) { gp_word_put(p, v); }

GP_DEV void gp_ll_store(void *unit, uint32_t d0, uint32_t d1, uint32_t f0, uint32_t f1)
{
    gp_host_aligned(unit, 16);
    gp_flag_put(unit, (uint64_t)f0 << 32 | d0);
    gp_flag_put((char *)unit + 8, (uint64_t)f1 << 32 | d1);
}

GP_DEV void gp_ll_load(const void *unit, uint32_t v[4])
{
    gp_host_aligned(unit, 16);
    const uint64_t a = gp_flag_get(unit), b = gp_flag_get((const char *)unit + 8);

    v[0] = (uint32_t)a, v[1] = (uint32_t)(a >> 32), v[2] = (uint32_t)b, v[3] = (uint32_t)(b >> 32);
}

/* No store of the host covers a line: the flag goes last and is looked at first. */
GP_DEV void gp_line_store(void *p, gp_v4 v, int is_flag)
{
    gp_host_aligned(p, sizeof v);
    if (is_flag)
        gp_emu_wave_sync();
    __atomic_store_n((uint64_t *)p, (uint64_t)v.x[1] << 32 | v.x[0], __ATOMIC_RELAXED);
    gp_flag_put_release((char *)p + 8, (uint64_t)v.x[3] << 32 | v.x[2]);
    if (!is_flag)
        gp_emu_wave_sync();
}

GP_DEV gp_v4 gp_line_load(const void *p, int is_flag)
{
    uint64_t low, high;

    gp_host_aligned(p, sizeof(gp_v4));
    if (!is_flag)
        gp_emu_wave_sync();
    high = gp_flag_get_acquire((const char *)p + 8);
    low  = __atomic_load_n((const uint64_t *)p, __ATOMIC_RELAXED);
    if (is_flag)
        gp_emu_wave_sync();
    return (gp_v4){{(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)}};
}

GP_DEV float gp_fma_f32(float a, float b, float c) { return fmaf(a, b, c); }

#define GP_HOST_BITS(name, from, to)                                          \
    GP_DEV to name(from x)                                                    \
    {                                                                         \
        to y;                                                                 \
        memcpy(&y, &x, sizeof y);                                             \
        return y;                                                             \
    }
GP_HOST_BITS(gp_f32_bits, float, uint32_t)
GP_HOST_BITS(gp_bits_f32, uint32_t, float)
GP_HOST_BITS(gp_f64_bits, double, uint64_t)
GP_HOST_BITS(gp_bits_f64, uint64_t, double)

/* Through memory: nothing is fused, whatever the compiler is told. */
#define GP_HOST_ARITHMETIC(name, type, op)                                    \
    GP_DEV type name(type a, type b)                                          \
    {                                                                         \
        const volatile type r = a op b;                                       \
        return r;                                                             \
    }
GP_HOST_ARITHMETIC(gp_add_f32, float, +)
GP_HOST_ARITHMETIC(gp_mul_f32, float, *)
GP_HOST_ARITHMETIC(gp_div_f32, float, /)
GP_HOST_ARITHMETIC(gp_add_f64, double, +)
GP_HOST_ARITHMETIC(gp_mul_f64, double, *)
GP_HOST_ARITHMETIC(gp_div_f64, double, /)

/* ---- for the host's own executor (src/exec)
 *
 *   gp_peek     value of a counter of a peer or of mine, acquire, whole-system scope
 *   gp_publish  store it, release, whole-system scope
 *   gp_demote   these bytes are for another core: push them towards it (a hint)
 *   gp_claim    this line will be written soon: fetch it for writing (a hint) */

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
/* ============================== all of them ============================= */

#if !defined(GP_HOST)
#define RCCLX_DEVICE_FN GP_DEV
#endif
#if defined(GP_AMD) && !defined(memcpy)
/* The C library's is a function of the host to this compiler. */
#include <string.h>
#define memcpy __builtin_memcpy
#include "device/convert.h"
#undef memcpy
#else
#include "device/convert.h"
#endif

GP_DEV gp_v4 gp_v4_make(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    gp_v4 v;

    gp_set(&v, 0, a), gp_set(&v, 1, b), gp_set(&v, 2, c), gp_set(&v, 3, d);
    return v;
}

GP_DEV uint32_t gp_lane(void) { return gp_tid() % GP_WAVE; }

/* The same, to be kept in a register: reading it again costs as much as a load. */
GP_DEV uint32_t gp_lane_kept(void)
{
#if defined(GP_CUDA)
    uint32_t lane;

    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
#else
    return gp_lane();
#endif
}

GP_DEV void gp_flag_release(uint64_t *p, uint64_t v) { gp_flag_put_release(p, v); }
GP_DEV void gp_flag_relaxed(uint64_t *p, uint64_t v) { gp_flag_put(p, v); }
GP_DEV uint64_t gp_flag_acquire(const uint64_t *p) { return gp_flag_get_acquire(p); }
GP_DEV uint64_t gp_flag_peek(const uint64_t *p) { return gp_flag_get(p); }
GP_DEV uint32_t gp_word_peek(const uint32_t *p) { return gp_word_get(p); }
GP_DEV void gp_word_poke(uint32_t *p, uint32_t v) { gp_word_put(p, v); }

/* ---- NaN of f32 and f64 becomes the one NaN */

GP_DEV float gp_canon_f32(float x) { return x != x ? gp_bits_f32(0x7fc00000u) : x; }
GP_DEV double gp_canon_f64(double x) { return x != x ? gp_bits_f64(0x7ff8000000000000u) : x; }

/* The same for what an addition or multiplication gave. */
GP_DEV float gp_canon_sum_f32(float x)
{
#if defined(GP_CUDA)
    /* There, their only NaN is 0x7fffffff: as an integer above all numbers. */
    const int32_t i = (int32_t)gp_f32_bits(x);

    return gp_bits_f32((uint32_t)(i < 0x7fc00000 ? i : 0x7fc00000));
#else
    return gp_canon_f32(x);
#endif
}

/* ---- two values of 16 bits in a word, the first in the low half */

#if defined(GP_CUDA)
/* Conversions give NaN as 0x7fff: down to `nan`, which numbers stay below. */
GP_DEV uint32_t gp_cuda_cap(uint32_t pair, uint32_t nan)
{
    uint32_t r;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm("min.s16x2 %0, %1, %2;" : "=r"(r) : "r"(pair), "r"(nan * 0x10001u));
#else
    const uint32_t is_nan = (pair + 0x00010001u) & ~pair & 0x80008000u; /* no half is 0xffff */

    r = pair - (is_nan >> 15) * (0x7fffu - nan);
#endif
    return r;
}
#endif

GP_DEV uint32_t gp_pack_f16(float low, float high)
{
#if defined(GP_CUDA)
    uint32_t r;

    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return gp_cuda_cap(r, 0x7e00u);
#elif defined(GP_AMD)
    const _Float16 a = (_Float16)gp_canon_f32(low), b = (_Float16)gp_canon_f32(high);

    return (uint32_t)__builtin_bit_cast(uint16_t, a) | (uint32_t)__builtin_bit_cast(uint16_t, b) << 16;
#else
    return (uint32_t)rcclx_f32_to_f16(low) | (uint32_t)rcclx_f32_to_f16(high) << 16;
#endif
}

GP_DEV uint32_t gp_pack_bf16(float low, float high)
{
#if defined(GP_CUDA)
    uint32_t r;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return gp_cuda_cap(r, 0x7fc0u);
#else
    const uint32_t a = gp_f32_bits(gp_canon_f32(low)), b = gp_f32_bits(gp_canon_f32(high));

    return (a + 0x7fffu + (a >> 16 & 1)) >> 16 | ((b + 0x7fffu + (b >> 16 & 1)) & 0xffff0000u);
#endif
}

GP_DEV float gp_f16_f32(uint16_t h)
{
#if defined(GP_CUDA)
    float x;

    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
#elif defined(GP_AMD)
    return (float)__builtin_bit_cast(_Float16, h);
#else
    return rcclx_f16_to_f32(h);
#endif
}

GP_DEV float gp_bf16_f32(uint16_t h) { return gp_bits_f32((uint32_t)h << 16); }

GP_DEV void gp_open_f16(uint32_t pair, float f[2])
{
    f[0] = gp_f16_f32((uint16_t)pair);
    f[1] = gp_f16_f32((uint16_t)(pair >> 16));
}

GP_DEV void gp_open_bf16(uint32_t pair, float f[2])
{
    f[0] = gp_bits_f32(pair << 16);
    f[1] = gp_bits_f32(pair & 0xffff0000u);
}

/* ---- fp8 (OCP), four in a word. gfx942 has instructions, for other types (FNUZ). */

#if defined(GP_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define GP_CUDA_FP8 1
#endif

/* A byte at the top of 16 bits is an f16: e5m2 exactly; e4m3, moved by one, up to a factor of 256. */
GP_DEV float gp_e5m2_f32(uint8_t b) { return gp_f16_f32((uint16_t)(b << 8)); }

GP_DEV float gp_e4m3_f32(uint8_t b)
{
#if defined(GP_HOST)
    return rcclx_e4m3_to_f32(b);
#else
    const uint32_t code = b & 0x7fu;
    const float    x    = gp_mul_f32(gp_f16_f32((uint16_t)((b & 0x80u) << 8 | code << 7)), 256.0f);

    return code == 0x7f ? gp_bits_f32(0x7fc00000u) : x;
#endif
}

GP_DEV void gp_open_e4m3(uint32_t word, float f[4])
{
#if defined(GP_CUDA_FP8)
    uint32_t low, high;

    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(low) : "h"((uint16_t)word));
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(high) : "h"((uint16_t)(word >> 16)));
    gp_open_f16(low, f);
    gp_open_f16(high, f + 2);
#else
    GP_UNROLL
    for (int i = 0; i < 4; i++)
        f[i] = gp_e4m3_f32((uint8_t)(word >> 8 * i));
#endif
}

GP_DEV void gp_open_e5m2(uint32_t word, float f[4])
{
    gp_open_f16(word << 8 & 0xff00u, f);
    f[1] = gp_f16_f32((uint16_t)(word & 0xff00u));
    f[2] = gp_f16_f32((uint16_t)(word >> 8 & 0xff00u));
    f[3] = gp_f16_f32((uint16_t)(word >> 16 & 0xff00u));
}

GP_DEV uint32_t gp_pack_e4m3(const float f[4])
{
#if defined(GP_CUDA_FP8)
    uint16_t low, high;

    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(f[1]), "f"(f[0]));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(f[3]), "f"(f[2]));
    return (uint32_t)low | (uint32_t)high << 16;
#else
    uint32_t word = 0;

    GP_UNROLL
    for (int i = 0; i < 4; i++)
        word |= (uint32_t)rcclx_f32_to_e4m3(f[i]) << 8 * i;
    return word;
#endif
}

GP_DEV uint32_t gp_pack_e5m2(const float f[4])
{
    uint32_t word = 0;

#if defined(GP_CUDA_FP8)
    uint16_t low, high;

    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(low) : "f"(f[1]), "f"(f[0]));
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(high) : "f"(f[3]), "f"(f[2]));
    /* The instruction makes Inf finite, which is one less. */
    GP_UNROLL
    for (int i = 0; i < 4; i++)
        word += ((gp_f32_bits(f[i]) & 0x7fffffffu) == 0x7f800000u ? 1u : 0u) << 8 * i;
    word += (uint32_t)low | (uint32_t)high << 16;
#else
    GP_UNROLL
    for (int i = 0; i < 4; i++)
        word |= (uint32_t)rcclx_f32_to_e5m2(f[i]) << 8 * i;
#endif
    return word;
}

/* The greatest magnitude of four, as bits; NaN counts as one. */
GP_DEV uint32_t gp_magnitude(const float x[4])
{
#if defined(GP_CUDA)
    float m, n;

    asm("max.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(fabsf(x[0])), "f"(fabsf(x[1])));
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(n) : "f"(fabsf(x[2])), "f"(fabsf(x[3])));
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(m), "f"(n));
    return gp_f32_bits(m);
#else
    uint32_t most = 0;

    GP_UNROLL
    for (int i = 0; i < 4; i++) {
        const uint32_t bits = gp_f32_bits(x[i]) & 0x7fffffffu;
        most = most > bits ? most : bits;
    }
    return most;
#endif
}

/* 1 / x, rounded once, of a bf16 that is a normal number and whose inverse is one. */
GP_DEV float gp_inverse(float x)
{
#if defined(GP_CUDA)
    float r;

    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return __fmaf_rn(r, __fmaf_rn(-x, r, 1.0f), r);
#else
    return gp_div_f32(1.0f, x);
#endif
}

/* ---- codes of low precision, four in a word; numbers only. int8: of and to integers */

/* The low bytes of four words. */
GP_DEV uint32_t gp_join_low(const uint32_t x[4])
{
#if defined(GP_CUDA)
    return __byte_perm(__byte_perm(x[0], x[1], 0x0040u), __byte_perm(x[2], x[3], 0x0040u), 0x5410u);
#else
    return (x[0] & 0xff) | (x[1] & 0xff) << 8 | (x[2] & 0xff) << 16 | x[3] << 24;
#endif
}

/* e4m3 of finite numbers that stay below 448, and back, by the instructions of a gfx942, too. They know FNUZ, whose codes
 * stand for half as much, but that its 0x80 is NaN and -0 is +0; so these go around them:
 *
 *   numbers --halved--> instruction --their signs put back--> codes
 *   codes --no sign--> instruction --doubled, signs put back--> numbers */
GP_DEV void gp_fnuz_halve(const float f[4], float half[4])
{
    GP_UNROLL
    for (int i = 0; i < 4; i++)
        half[i] = f[i] * 0.5f;
}

GP_DEV uint32_t gp_fnuz_codes(uint32_t word, const float f[4])
{
    GP_UNROLL
    for (int i = 0; i < 4; i++)
        word |= (gp_f32_bits(f[i]) >> 31) << (8 * i + 7);
    return word;
}

GP_DEV uint32_t gp_fnuz_sizes(uint32_t word) { return word & 0x7f7f7f7fu; }

GP_DEV void gp_fnuz_numbers(uint32_t word, float f[4])
{
    GP_UNROLL
    for (int i = 0; i < 4; i++)
        f[i] = gp_bits_f32(gp_f32_bits(f[i] * 2) | (word >> (8 * i + 7) & 1) << 31);
}

GP_DEV uint32_t gp_pack_small_e4m3(const float f[4])
{
#if defined(__gfx942__)
    float half[4];
    int   word = 0;

    gp_fnuz_halve(f, half);
    word = __builtin_amdgcn_cvt_pk_fp8_f32(half[0], half[1], word, 0);
    word = __builtin_amdgcn_cvt_pk_fp8_f32(half[2], half[3], word, 1);
    return gp_fnuz_codes((uint32_t)word, f);
#elif defined(__gfx950__)
    int word = 0;

    word = __builtin_amdgcn_cvt_pk_fp8_f32(f[0], f[1], word, 0);
    return (uint32_t)__builtin_amdgcn_cvt_pk_fp8_f32(f[2], f[3], word, 1);
#else
    return gp_pack_e4m3(f);
#endif
}

GP_DEV void gp_open_small_e4m3(uint32_t word, float f[4])
{
#if defined(__gfx942__)
    typedef float gp_f2 __attribute__((ext_vector_type(2)));
    const gp_f2 low = __builtin_amdgcn_cvt_pk_f32_fp8((int)gp_fnuz_sizes(word), 0);
    const gp_f2 high = __builtin_amdgcn_cvt_pk_f32_fp8((int)gp_fnuz_sizes(word), 1);

    f[0] = low[0], f[1] = low[1], f[2] = high[0], f[3] = high[1];
    gp_fnuz_numbers(word, f);
#else
    gp_open_e4m3(word, f);
#endif
}

/* What four codes stand for: numbers times a bf16. */
GP_DEV void gp_open_codes(const int int8, uint32_t word, float scale, float f[4])
{
#if defined(GP_CUDA)
    if (int8) { /* byte b of 2^15: 2^15 + b, times scale, less what is too much: exact, without a conversion */
        const uint32_t biased = word ^ 0x80808080u;
        const float    less   = gp_mul_f32(scale, -32896.0f);

        GP_UNROLL
        for (int i = 0; i < 4; i++)
            f[i] = gp_fma_f32(gp_bits_f32(__byte_perm(biased, 0x47000000u, 0x7404u | (uint32_t)i << 4)), scale, less);
        return;
    }
#else
    if (int8) {
        GP_UNROLL
        for (int i = 0; i < 4; i++)
            f[i] = gp_mul_f32((float)(int8_t)(word >> 8 * i), scale);
        return;
    }
#endif
    gp_open_small_e4m3(word, f);
    GP_UNROLL
    for (int i = 0; i < 4; i++)
        f[i] = gp_mul_f32(f[i], scale);
}

/* The codes of four numbers, times `inverse`; values: and in f what they stand for. int8: the sum with 1.5 * 2^23 rounds to
 * an integer, in its low byte. */
GP_DEV uint32_t gp_make_codes(const int int8, const int values, float f[4], float inverse, float scale)
{
    float    t[4];
    uint32_t q[4], word;

    GP_UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = int8 ? gp_fma_f32(f[i], inverse, 12582912.0f) : gp_mul_f32(f[i], inverse);
        q[i] = gp_f32_bits(t[i]);
    }
    word = int8 ? gp_join_low(q) : gp_pack_small_e4m3(t);
    if (values && int8) {
        const float less = gp_mul_f32(scale, -12582912.0f);

        GP_UNROLL
        for (int i = 0; i < 4; i++)
            f[i] = gp_fma_f32(t[i], scale, less);
    } else if (values) {
        gp_open_codes(0, word, scale, f);
    }
    return word;
}

#endif
