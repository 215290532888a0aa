#ifndef RCCLX_DEVICE_TYPES_H
#define RCCLX_DEVICE_TYPES_H

#include <stddef.h>

/* Data types and operators, numbered as in nccl.h. One row a type: name, bytes
 * an element, kind. What each operator means for each type stands in
 * docs/numerics.md. */
#define RCCLX_TYPE_LIST(X)                                                    \
    X(I8, 0, 1, "int8", INT) X(U8, 1, 1, "uint8", INT)                        \
    X(I32, 2, 4, "int32", INT) X(U32, 3, 4, "uint32", INT)                    \
    X(I64, 4, 8, "int64", INT) X(U64, 5, 8, "uint64", INT)                    \
    X(F16, 6, 2, "half", FLOAT) X(F32, 7, 4, "float", FLOAT)                  \
    X(F64, 8, 8, "double", FLOAT) X(BF16, 9, 2, "bfloat16", FLOAT)            \
    X(F8E4M3, 10, 1, "f8e4m3", FLOAT) X(F8E5M2, 11, 1, "f8e5m2", FLOAT)

typedef enum {
#define X(id, value, nbytes, name, kind) RCCLX_##id = value,
    RCCLX_TYPE_LIST(X)
#undef X
    RCCLX_TYPE_COUNT
} rcclx_type;

/* SUM, PROD, MAX, MIN, AVG as nccl.h; PREMUL: every source is multiplied by its
 * rank's scalar, then summed. COPY moves bytes (one source). */
typedef enum { RCCLX_SUM, RCCLX_PROD, RCCLX_MAX, RCCLX_MIN, RCCLX_AVG, RCCLX_PREMUL, RCCLX_COPY, RCCLX_REDOP_COUNT } rcclx_redop;

/* Bytes of an element; 0 for a type that is none. */
static inline size_t rcclx_type_size(rcclx_type t)
{
    static const unsigned char size[RCCLX_TYPE_COUNT] = {
#define X(id, value, nbytes, name, kind) [RCCLX_##id] = nbytes,
        RCCLX_TYPE_LIST(X)
#undef X
    };

    return (unsigned)t < RCCLX_TYPE_COUNT ? size[t] : 0;
}

const char *rcclx_type_name(rcclx_type t);
const char *rcclx_redop_name(rcclx_redop op);

#endif
