#ifndef RCCLX_PERF_DATA_H
#define RCCLX_PERF_DATA_H

#include <stddef.h>
#include <stdint.h>

/* Inputs of every rank and the results that must come of them, known without
 * asking the library: element i of rank r is a function of (seed, r, i) alone.
 *
 * Floating-point inputs of a reduction are chosen so that every partial sum or
 * product, in any order, is a number of the type: results are compared bit for
 * bit (an average by a number of ranks that is no power of two may be one
 * rounding off, two in float and double). Integers take all values and wrap.
 *
 * In low precision results are compared with what a codec may lose (perf_near.c). */

enum { PERF_SUM, PERF_PROD, PERF_MAX, PERF_MIN, PERF_AVG, PERF_PREMUL, PERF_REDOPS, PERF_MOVE = PERF_REDOPS };

enum { PERF_EXACT, PERF_FP8, PERF_INT8 };

enum { PERF_LUT = 4098, PERF_BLOCK = 1024 };

typedef struct {
    int      type; /* ncclDataType_t */
    int      redop;
    int      nranks;
    size_t   nbytes; /* an element */
    uint32_t seed;   /* may be changed at any time */
    int      codec;  /* PERF_EXACT or what results may be off by; likewise */
    int32_t  limit;  /* floats: inputs are whole numbers in [-limit, limit] */
    int32_t  few;    /* floats: this many ranks contribute to an element, the others a neutral value */
    int32_t  budget; /* floats: largest whole number that may come out */
    uint16_t in[PERF_LUT], out[PERF_LUT]; /* small floats: bits of an input, of a result */
} perf_rule;

/* With a codec, for float, half and bfloat16, data that is only moved are numbers, too, not any bits. */
void perf_rule_init(perf_rule *r, int type, int redop, int nranks, int codec);

/* The multiplier of a rank (PERF_PREMUL), as the type's own bits. */
uint64_t perf_scalar(const perf_rule *r, int rank);

/* count elements of rank's input, from element `index` on. */
void perf_fill(const perf_rule *r, int rank, size_t index, void *to, size_t count);

/* Elements that differ from rank's input, or from the reduction of all ranks' inputs. */
size_t perf_check_moved(const perf_rule *r, int rank, size_t index, const void *got, size_t count);
size_t perf_check_reduced(const perf_rule *r, size_t index, const void *got, size_t count);

/* Elements that are further from that than the codec explains; rank -1: the reduction of all. */
size_t perf_check_near(const perf_rule *r, int rank, size_t index, const void *got, size_t count);

/* The same as numbers, n elements of one block of PERF_BLOCK; parts: sum of the contributions without their signs. */
void perf_exact(const perf_rule *r, int rank, size_t index, double *want, double *parts, int n);

size_t      perf_type_size(int type);
const char *perf_type_name(int type);  /* as nccl-tests: int8 ... float ... f8e5m2 */
const char *perf_redop_name(int redop);
int         perf_type_find(const char *name);  /* -1 */
int         perf_redop_find(const char *name); /* -1 */

/* perf_float.c: bits of the nearest number of a small float type (ties to even). */
uint16_t perf_float_bits(int type, double x);
double   perf_float_value(int type, uint16_t bits); /* half and bfloat16 */

#endif
