/* The status list of status.h, read as a table. */
#include "base/status.h"

static const struct {
    const char    *name, *text;
    rcclx_severity severity;
    int            nccl;
} table[RCCLX_STATUS_COUNT] = {
#define X(name, severity, nccl, text) [RCCLX_##name] = { #name, text, RCCLX_SEVERITY_##severity, nccl },
    RCCLX_STATUS_LIST(X)
#undef X
};

const char *rcclx_status_name(rcclx_status s)
{
    return (unsigned)s < RCCLX_STATUS_COUNT ? table[s].name : "UNKNOWN";
}

const char *rcclx_status_text(rcclx_status s)
{
    return (unsigned)s < RCCLX_STATUS_COUNT ? table[s].text : "unknown status";
}

rcclx_severity rcclx_status_severity(rcclx_status s)
{
    return (unsigned)s < RCCLX_STATUS_COUNT ? table[s].severity : RCCLX_SEVERITY_PROCESS;
}

int rcclx_status_nccl(rcclx_status s)
{
    return (unsigned)s < RCCLX_STATUS_COUNT ? table[s].nccl : 3;
}
