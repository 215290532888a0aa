#include "device/reduce.h"

#include "device/convert.h"
#include "device/float_mode.h"
#include "device/reduce_kernels.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

/* Types and operators to kernels.
 *
 *   (type, op) --table--> kernel + the numbers it needs --isa--> function
 *
 * An instruction set is a table of kernels (reduce_kernels.h). The best one this
 * CPU has is taken at first use; rcclx_isa_use puts another in its place. That
 * pointer is the only state here. The results do not depend on it, nor on the
 * caller's floating point mode: rounding and flush-to-zero are set to what IEEE
 * 754 starts with for the length of a call.
 *
 * AVG of 64-bit integers needs 128 bits, for which there are no vectors: it is
 * the one operator done element by element here. */

#define SOURCES_MOST 512 /* scalars of PREMUL are widened on the stack */

/* ---- instruction sets ---- */

#if defined(__x86_64__)
#include <cpuid.h>

/* __builtin_cpu_supports also asks whether the system saves the registers; not
 * every compiler knows f16c by name. */
static bool has_avx2(void)
{
    unsigned a, b, c, d;

    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __get_cpuid(1, &a, &b, &c, &d) &&
           (c & bit_F16C) != 0;
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#endif

static bool has_always(void)
{
    return true;
}

/* Best first. */
static const struct {
    const rcclx_kernels *kernels;
    bool (*usable)(void);
} isas[] = {
#if defined(__x86_64__)
    {&rcclx_kernels_avx512, has_avx512},
    {&rcclx_kernels_avx2, has_avx2},
#elif defined(__aarch64__)
    {&rcclx_kernels_neon, has_always},
#endif
    {&rcclx_kernels_baseline, has_always},
};

static _Atomic(const rcclx_kernels *) isa_used;

static const rcclx_kernels *isa(void)
{
    const rcclx_kernels *k = atomic_load_explicit(&isa_used, memory_order_relaxed);

    for (size_t i = 0; k == NULL; i++)
        if (isas[i].usable()) {
            k = isas[i].kernels;
            atomic_store_explicit(&isa_used, k, memory_order_relaxed);
        }
    return k;
}

const char *rcclx_isa_name(void)
{
    return isa()->name;
}

int rcclx_isa_use(const char *name)
{
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++)
        if (strcmp(isas[i].kernels->name, name) == 0 && isas[i].usable()) {
            atomic_store_explicit(&isa_used, isas[i].kernels, memory_order_relaxed);
            return 0;
        }
    return -1;
}

/* ---- types and operators ---- */

#define INT_ROW(bits, avg)                                                    \
    {                                                                         \
        [RCCLX_SUM] = RCCLX_KERNEL_add##bits, [RCCLX_PROD] = RCCLX_KERNEL_mul##bits,  \
        [RCCLX_MAX] = RCCLX_KERNEL_top##bits, [RCCLX_MIN] = RCCLX_KERNEL_top##bits,   \
        [RCCLX_AVG] = RCCLX_KERNEL_##avg, [RCCLX_PREMUL] = RCCLX_KERNEL_pre##bits     \
    }
#define FLOAT_ROW(type, order)                                                \
    {                                                                         \
        [RCCLX_SUM] = RCCLX_KERNEL_sum_##type, [RCCLX_PROD] = RCCLX_KERNEL_prod_##type, \
        [RCCLX_MAX] = RCCLX_KERNEL_##order, [RCCLX_MIN] = RCCLX_KERNEL_##order,         \
        [RCCLX_AVG] = RCCLX_KERNEL_avg_##type, [RCCLX_PREMUL] = RCCLX_KERNEL_pre_##type \
    }

/* `copy` in a row's AVG means the 128-bit loop below. */
static const unsigned char kernels[RCCLX_TYPE_COUNT][RCCLX_REDOP_COUNT] = {
    [RCCLX_I8]     = INT_ROW(8, avg8),
    [RCCLX_U8]     = INT_ROW(8, avg8),
    [RCCLX_I32]    = INT_ROW(32, avg32),
    [RCCLX_U32]    = INT_ROW(32, avg32),
    [RCCLX_I64]    = INT_ROW(64, copy),
    [RCCLX_U64]    = INT_ROW(64, copy),
    [RCCLX_F16]    = FLOAT_ROW(f16, key16),
    [RCCLX_BF16]   = FLOAT_ROW(bf16, key16),
    [RCCLX_F32]    = FLOAT_ROW(f32, least32),
    [RCCLX_F64]    = FLOAT_ROW(f64, least64),
    [RCCLX_F8E4M3] = FLOAT_ROW(e4m3, key8),
    [RCCLX_F8E5M2] = FLOAT_ROW(e5m2, key8),
};

static bool is_float(rcclx_type t)
{
    return t >= RCCLX_F16;
}

/* MAX and MIN share a kernel: what to XOR with, so that it does both. */
static uint64_t flip_for(rcclx_type t, rcclx_redop op)
{
    const uint64_t sign = UINT64_C(1) << (8 * rcclx_type_size(t) - 1);
    const bool     low  = op == RCCLX_MIN;

    switch (t) {
    case RCCLX_U8:
    case RCCLX_U32:
    case RCCLX_U64:
        return low ? sign - 1 : sign;
    case RCCLX_F32:
    case RCCLX_F64:
        return low ? 0 : sign;
    default:
        return low ? ~UINT64_C(0) : 0;
    }
}

static void order_fill(rcclx_job *j, rcclx_type t, rcclx_redop op)
{
    j->flip = flip_for(t, op);
    switch (t) {
    case RCCLX_F16:
        j->inf = 0x7c00, j->nan = 0x7e00;
        break;
    case RCCLX_BF16:
        j->inf = 0x7f80, j->nan = 0x7fc0;
        break;
    case RCCLX_F8E4M3:
        j->inf = 0x7e, j->nan = 0x7f;
        break;
    case RCCLX_F8E5M2:
        j->inf = 0x7c, j->nan = 0x7f;
        break;
    default:
        break;
    }
}

/* Signed integers are averaged as unsigned ones, 2^(bits-1) higher, except that
 * each source's share is taken off the sum again. */
static void average_fill(rcclx_job *j, rcclx_type t, int divisor)
{
    j->divisor = divisor;
    if (is_float(t)) {
        if (divisor > 0 && (divisor & (divisor - 1)) == 0) {
            j->divisor = 1.0 / divisor;
            j->inverse = true;
        }
    } else if (t == RCCLX_I8) {
        j->flip = 0x80;
        j->bias = 128.0 * j->nsrc;
    } else if (t == RCCLX_I32) {
        j->flip = 0x80000000;
        j->bias = 0x1p31 * j->nsrc;
    }
}

/* A source's scalar in the type the kernel computes in. */
static uint64_t scalar_widen(rcclx_type t, uint64_t bits)
{
    switch (t) {
    case RCCLX_F16:
        return rcclx_f32_bits(rcclx_f16_to_f32((uint16_t)bits));
    case RCCLX_BF16:
        return rcclx_f32_bits(rcclx_bf16_to_f32((uint16_t)bits));
    case RCCLX_F8E4M3:
        return rcclx_f32_bits(rcclx_e4m3_to_f32((uint8_t)bits));
    case RCCLX_F8E5M2:
        return rcclx_f32_bits(rcclx_e5m2_to_f32((uint8_t)bits));
    default:
        return bits;
    }
}

__extension__ typedef __int128 int128;

/* Exact in 128 bits; in 64 where the sum fits, since division there is many
 * times faster. */
static void average_wide(const rcclx_job *j, bool is_signed)
{
    const int64_t d = (int64_t)j->divisor;

    for (size_t at = 0; at < j->nbytes; at += 8) {
        int128  sum = 0;
        int64_t x, q;

        for (int s = 0; s < j->nsrc; s++) {
            memcpy(&x, j->src[s] + at, 8);
            sum += is_signed ? (int128)x : (int128)(uint64_t)x;
        }
        q = sum == (int64_t)sum ? (int64_t)sum / d : (int64_t)(sum / d);
        for (int k = 0; k < j->ndst; k++)
            memcpy(j->dst[k] + at, &q, 8);
    }
}

/* With one source most operators have nothing to do. */
static rcclx_redop op_simplify(const rcclx_reduce_args *a)
{
    rcclx_redop op = a->op;

    if (op == RCCLX_AVG && a->divisor <= 0)
        op = RCCLX_SUM;
    if (op == RCCLX_PREMUL && a->scalar == NULL)
        op = RCCLX_SUM;
    if (a->nsrc == 1 && op != RCCLX_PREMUL && (op != RCCLX_AVG || a->divisor == 1))
        op = RCCLX_COPY;
    return op;
}

/* A copy to itself is no work; a long one to one place is the C library's. */
static void copy_run(const rcclx_job *j)
{
    if (j->ndst == 1)
        rcclx_copy(j->dst[0], j->src[0], j->nbytes, j->streaming);
    else
        isa()->run[RCCLX_KERNEL_copy](j);
}

void rcclx_reduce(const rcclx_reduce_args *a)
{
    const rcclx_redop op = op_simplify(a);
    uint64_t          scalar[SOURCES_MOST];
    rcclx_job         j = {
                .src       = (const unsigned char *const *)a->src,
                .dst       = (unsigned char *const *)a->dst,
                .nbytes    = a->count * rcclx_type_size(a->type),
                .nsrc      = a->nsrc,
                .ndst      = a->ndst,
                .streaming = a->streaming != 0,
    };

    assert(a->nsrc >= 1 && a->ndst >= 1);
    if (j.nbytes == 0)
        return;
    if (op == RCCLX_COPY) {
        copy_run(&j);
        return;
    }
    if (op == RCCLX_MAX || op == RCCLX_MIN)
        order_fill(&j, a->type, op);
    if (op == RCCLX_AVG)
        average_fill(&j, a->type, a->divisor);
    if (op == RCCLX_PREMUL) {
        assert(a->nsrc <= SOURCES_MOST);
        for (int s = 0; s < a->nsrc; s++)
            scalar[s] = scalar_widen(a->type, a->scalar[s]);
        j.scalar = scalar;
    }
    if (op == RCCLX_AVG && kernels[a->type][op] == RCCLX_KERNEL_copy) {
        average_wide(&j, a->type == RCCLX_I64);
    } else {
        const rcclx_float_mode mode = rcclx_float_mode_enter();

        isa()->run[kernels[a->type][op]](&j);
        rcclx_float_mode_leave(mode);
    }
}

void rcclx_copy(void *dst, const void *src, size_t nbytes, int streaming)
{
    const unsigned char *const from[1] = {src};
    unsigned char *const       to[1]   = {dst};
    const rcclx_job j = {.src = from, .dst = to, .nbytes = nbytes, .nsrc = 1, .ndst = 1, .streaming = true};

    if (dst == src || nbytes == 0)
        return;
    if (streaming)
        isa()->run[RCCLX_KERNEL_copy](&j);
    else
        memcpy(dst, src, nbytes);
}
