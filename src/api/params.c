/* NCCL 2.30's interface to settings, over our option table: every option is a
 * parameter under its name, and a handle is its row. */
#include "api/export.h"
#include "base/option.h"
#include "base/optvalue.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef enum { WHOLE, FRACTION, TEXT } form;

#define FORM_INT     WHOLE
#define FORM_BOOL    WHOLE
#define FORM_SIZE    WHOLE
#define FORM_ENUM(w) WHOLE
#define FORM_REAL    FRACTION
#define FORM_SECONDS FRACTION
#define FORM_STR     TEXT
#define FORM_LIST    TEXT

struct ncclParamHandle {
    const char *name;
    form        form;
};

static const struct ncclParamHandle params[RCCLX_OPT_COUNT] = {
#define X(id, option_name, type, ...) { option_name, FORM_##type },
    RCCLX_OPTION_LIST(X)
#undef X
};

static const char *const keys[RCCLX_OPT_COUNT] = {
#define X(id, option_name, ...) option_name,
    RCCLX_OPTION_LIST(X)
#undef X
};

static rcclx_option option_of(ncclParamHandle_t h)
{
    return (rcclx_option)(h - params);
}

static rcclx_status find(const char *call, const char *key, ncclParamHandle_t *out)
{
    if (!key || !out)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "%s: %s is NULL; pass a name and where to put the answer", call,
                          key ? "the result" : "key");
    for (int i = 0; i < RCCLX_OPT_COUNT; i++)
        if (strcasecmp(key, params[i].name) == 0) {
            *out = (ncclParamHandle_t)&params[i];
            return RCCLX_OK;
        }
    return RCCLX_FAIL(RCCLX_ARGUMENT, "%s: there is no setting '%s'; ncclParamGetAllParameterKeys lists them", call, key);
}

static rcclx_status check_handle(const char *call, ncclParamHandle_t h, const void *out)
{
    const uintptr_t at = (uintptr_t)h, first = (uintptr_t)params;

    if (at < first || at >= first + sizeof params || (at - first) % sizeof params[0])
        return RCCLX_FAIL(RCCLX_ARGUMENT, "%s: the handle %p is none of ncclParamBind's", call, (const void *)h);
    if (!out)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "%s: the result is NULL; pass where to put the value of %s", call, h->name);
    return RCCLX_OK;
}

/* A value as text: the option's own, or spelt into this thread's buffer, valid
 * until the thread asks again. */
static const char *text_of(ncclParamHandle_t h)
{
    static _Thread_local char buf[64];
    const rcclx_option        o = option_of(h);

    if (h->form == TEXT)
        return rcclx_option_str(o);
    rcclx_optvalue_print(rcclx_option_row(o), rcclx_option_value(o), buf, sizeof buf);
    return buf;
}

static rcclx_status read_whole(const char *call, ncclParamHandle_t h, const void *out, int64_t least, uint64_t most,
                               int64_t *v)
{
    RCCLX_TRY(check_handle(call, h, out));
    if (h->form != WHOLE)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "%s: %s is not a whole number; use ncclParamGetStr", call, h->name);
    *v = rcclx_option_int(option_of(h));
    if (*v < least || (*v > 0 && (uint64_t)*v > most))
        return RCCLX_FAIL(RCCLX_ARGUMENT, "%s: %s is %lld, which this type does not hold; use a wider one", call,
                          h->name, (long long)*v);
    return RCCLX_OK;
}

#define GETTER(suffix, type, least, most)                                     \
    RCCLX_API(ncclResult_t, ncclParamGet##suffix, (ncclParamHandle_t h, type * out)) \
    {                                                                         \
        int64_t            v;                                                 \
        const rcclx_status s = read_whole("ncclParamGet" #suffix, h, out, least, most, &v); \
        if (s == RCCLX_OK)                                                    \
            *out = (type)v;                                                   \
        return rcclx_result(s);                                               \
    }
GETTER(I8, int8_t, INT8_MIN, INT8_MAX)
GETTER(I16, int16_t, INT16_MIN, INT16_MAX)
GETTER(I32, int32_t, INT32_MIN, INT32_MAX)
GETTER(I64, int64_t, INT64_MIN, INT64_MAX)
GETTER(U8, uint8_t, 0, UINT8_MAX)
GETTER(U16, uint16_t, 0, UINT16_MAX)
GETTER(U32, uint32_t, 0, UINT32_MAX)
GETTER(U64, uint64_t, 0, UINT64_MAX)

RCCLX_API(ncclResult_t, ncclParamBind, (ncclParamHandle_t * out, const char *key))
{
    return rcclx_result(find("ncclParamBind", key, out));
}

RCCLX_API(ncclResult_t, ncclParamGetStr, (ncclParamHandle_t h, const char **out))
{
    const rcclx_status s = check_handle("ncclParamGetStr", h, out);

    if (s == RCCLX_OK)
        *out = text_of(h);
    return rcclx_result(s);
}

RCCLX_API(ncclResult_t, ncclParamGet, (ncclParamHandle_t h, void *out, int maxLen, int *len))
{
    rcclx_status s = check_handle("ncclParamGet", h, out);

    if (s != RCCLX_OK)
        return rcclx_result(s);
    const char *text = text_of(h);
    const int   need = (int)strlen(text) + 1;
    if (len)
        *len = need;
    if (maxLen < need)
        return rcclx_result(RCCLX_FAIL(RCCLX_ARGUMENT, "ncclParamGet: maxLen is %d, %s takes %d bytes", maxLen, h->name, need));
    memcpy(out, text, (size_t)need);
    return ncclSuccess;
}

RCCLX_API(ncclResult_t, ncclParamGetParameter, (const char *key, const char **value, int *valueLen))
{
    ncclParamHandle_t h;
    rcclx_status      s = find("ncclParamGetParameter", key, &h);

    if (s == RCCLX_OK)
        s = check_handle("ncclParamGetParameter", h, value);
    if (s != RCCLX_OK)
        return rcclx_result(s);
    *value = text_of(h);
    if (valueLen)
        *valueLen = (int)strlen(*value);
    return ncclSuccess;
}

RCCLX_API(ncclResult_t, ncclParamGetAllParameterKeys, (const char ***table, int *tableLen))
{
    if (!table || !tableLen)
        return rcclx_result(RCCLX_FAIL(RCCLX_ARGUMENT, "ncclParamGetAllParameterKeys: %s is NULL; pass where to put the answer",
                                       table ? "tableLen" : "table"));
    *table    = (const char **)(uintptr_t)keys; /* the interface lacks a const */
    *tableLen = RCCLX_OPT_COUNT;
    return ncclSuccess;
}

RCCLX_API(void, ncclParamDumpAll, (void))
{
    rcclx_option_dump(stdout, false);
    fflush(stdout);
}
