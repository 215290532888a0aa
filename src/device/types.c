#include "device/types.h"

/* The names and sizes of the rows in types.h. Values outside the list answer
 * with 0 and "unknown", so that a message about a bad argument can be made. */

static const struct {
    size_t      nbytes;
    const char *name;
} types[RCCLX_TYPE_COUNT] = {
#define X(id, value, nbytes, name, kind) [RCCLX_##id] = {nbytes, name},
    RCCLX_TYPE_LIST(X)
#undef X
};

static const char *const redops[RCCLX_REDOP_COUNT] = {
    [RCCLX_SUM] = "sum", [RCCLX_PROD] = "prod",     [RCCLX_MAX] = "max",   [RCCLX_MIN] = "min",
    [RCCLX_AVG] = "avg", [RCCLX_PREMUL] = "premul", [RCCLX_COPY] = "copy",
};

size_t rcclx_type_size(rcclx_type t)
{
    return (unsigned)t < RCCLX_TYPE_COUNT ? types[t].nbytes : 0;
}

const char *rcclx_type_name(rcclx_type t)
{
    return (unsigned)t < RCCLX_TYPE_COUNT ? types[t].name : "unknown";
}

const char *rcclx_redop_name(rcclx_redop op)
{
    return (unsigned)op < RCCLX_REDOP_COUNT ? redops[op] : "unknown";
}
