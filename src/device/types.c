#include "device/types.h"

/* The names of the rows in types.h. Values outside the list answer
 * with "unknown", so that a message about a bad argument can be made. */

static const char *const types[RCCLX_TYPE_COUNT] = {
#define X(id, value, nbytes, name, kind) [RCCLX_##id] = name,
    RCCLX_TYPE_LIST(X)
#undef X
};

static const char *const redops[RCCLX_REDOP_COUNT] = {
    [RCCLX_SUM] = "sum", [RCCLX_PROD] = "prod",     [RCCLX_MAX] = "max",   [RCCLX_MIN] = "min",
    [RCCLX_AVG] = "avg", [RCCLX_PREMUL] = "premul", [RCCLX_COPY] = "copy",
};

const char *rcclx_type_name(rcclx_type t)
{
    return (unsigned)t < RCCLX_TYPE_COUNT ? types[t] : "unknown";
}

const char *rcclx_redop_name(rcclx_redop op)
{
    return (unsigned)op < RCCLX_REDOP_COUNT ? redops[op] : "unknown";
}
