/* The precision on the wire, of a communicator from now on. */
#include "api/low_precision.h"

#include "api/argcheck.h"
#include "comm/comm.h"
#include "exec/precision.h"
#include "rcclx.h"

_Static_assert(RCCLX_LOW_PRECISION_OFF == (int)RCCLX_CODEC_NONE && RCCLX_LOW_PRECISION_FP8 == (int)RCCLX_CODEC_FP8 &&
               RCCLX_LOW_PRECISION_INT8 == (int)RCCLX_CODEC_INT8, "the header's numbers are the codecs'");

rcclx_status rcclx_args_codec(const char *call, const char *what, const char *name, int *codec)
{
    char names[128] = "off";
    int  at = 3;

    *codec = name ? rcclx_codec_find(name) : -1;
    if (*codec >= 0)
        return RCCLX_OK;
    for (int c = 1; c < RCCLX_CODEC_COUNT; c++)
        at += snprintf(names + at, sizeof names - (size_t)at, ", %s", rcclx_precision_name(c));
    return RCCLX_FAIL(RCCLX_ARGUMENT, "%s: %s is %s%.40s%s; there are %s", call, what, name ? "'" : "", name ? name : "NULL",
                      name ? "'" : "", names);
}

RCCLX_EXPORT ncclResult_t rcclxCommSetLowPrecision(ncclComm_t comm, const char *codec, size_t minBytes)
{
    static const char call[] = "rcclxCommSetLowPrecision";
    rcclx_status      s;
    rcclx_comm       *c = rcclx_comm_acquire_ready(comm, call, &s);
    int               id;

    if (c) {
        s = rcclx_args_codec(call, "codec", codec, &id);
        if (s == RCCLX_OK)
            rcclx_precision_set(&c->team, (rcclx_codec_id)id, minBytes);
        rcclx_comm_release(c);
    }
    return rcclx_api_result(s);
}

RCCLX_EXPORT ncclResult_t rcclxCommGetLowPrecision(ncclComm_t comm, const char **codec, size_t *minBytes)
{
    rcclx_status s;
    rcclx_comm  *c = rcclx_comm_acquire_ready(comm, "rcclxCommGetLowPrecision", &s);

    if (c) {
        if (codec)
            *codec = rcclx_precision_name(c->team.precision.codec);
        if (minBytes)
            *minBytes = c->team.precision.min_bytes;
        rcclx_comm_release(c);
    }
    return rcclx_result(s);
}
