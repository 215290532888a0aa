/* Each value writes what must stand before it: a comma after an earlier member,
 * the line break and indent of its depth, its key. One bit a depth remembers
 * whether there was an earlier member. */
#include "base/json.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 64 };

static void begin_line(rcclx_json *j)
{
    fputc('\n', j->out);
    for (int i = 0; i < j->depth; i++)
        fputs("  ", j->out);
}

/* Bytes of the UTF-8 character at s, or 0: overlong forms, surrogates and what
 * lies beyond U+10FFFF are refused too. */
static int utf8_length(const unsigned char *s)
{
    static const struct { unsigned char first, last, low, high; int n; } forms[] = {
        { 0x00, 0x7f, 0, 0, 1 },       { 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 },
        { 0xe1, 0xec, 0x80, 0xbf, 3 }, { 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 },
        { 0xf0, 0xf0, 0x90, 0xbf, 4 }, { 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
    };

    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (*s < forms[i].first || *s > forms[i].last)
            continue;
        if (forms[i].n > 1 && (s[1] < forms[i].low || s[1] > forms[i].high))
            return 0;
        for (int k = 2; k < forms[i].n; k++)
            if ((s[k] & 0xc0) != 0x80)
                return 0;
        return forms[i].n;
    }
    return 0;
}

static void write_text(FILE *out, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    fputc('"', out);
    while (*s) {
        int n = utf8_length(s);
        if (!n)
            fputs("\\ufffd", out);
        else if (*s == '"' || *s == '\\')
            fprintf(out, "\\%c", *s);
        else if (*s < 0x20 || *s == 0x7f)
            fprintf(out, "\\u%04x", *s);
        else
            fwrite(s, 1, (size_t)n, out);
        s += n ? n : 1;
    }
    fputc('"', out);
}

static void begin_value(rcclx_json *j, const char *key)
{
    uint64_t bit = UINT64_C(1) << j->depth;

    if (j->depth) {
        if (j->started & bit)
            fputc(',', j->out);
        begin_line(j);
    }
    j->started |= bit;
    if (key) {
        write_text(j->out, key);
        fputs(": ", j->out);
    }
}

static void end_value(rcclx_json *j)
{
    if (!j->depth)
        fputc('\n', j->out);
}

static void open_container(rcclx_json *j, const char *key, char bracket)
{
    begin_value(j, key);
    fputc(bracket, j->out);
    assert(j->depth + 1 < DEPTH_MAX);
    j->depth++;
    j->started &= ~(UINT64_C(1) << j->depth);
}

static void close_container(rcclx_json *j, char bracket)
{
    bool any = j->started >> j->depth & 1;

    assert(j->depth > 0);
    j->depth--;
    if (any)
        begin_line(j);
    fputc(bracket, j->out);
    end_value(j);
}

void rcclx_json_init(rcclx_json *j, FILE *out)
{
    *j = (rcclx_json){ .out = out };
}

void rcclx_json_object_open(rcclx_json *j, const char *key)
{
    open_container(j, key, '{');
}

void rcclx_json_object_close(rcclx_json *j)
{
    close_container(j, '}');
}

void rcclx_json_array_open(rcclx_json *j, const char *key)
{
    open_container(j, key, '[');
}

void rcclx_json_array_close(rcclx_json *j)
{
    close_container(j, ']');
}

void rcclx_json_string(rcclx_json *j, const char *key, const char *text)
{
    if (!text) {
        rcclx_json_null(j, key);
        return;
    }
    begin_value(j, key);
    write_text(j->out, text);
    end_value(j);
}

void rcclx_json_int(rcclx_json *j, const char *key, int64_t value)
{
    begin_value(j, key);
    fprintf(j->out, "%" PRId64, value);
    end_value(j);
}

void rcclx_json_real(rcclx_json *j, const char *key, double value)
{
    char digits[40];

    if (value - value != 0) { /* an infinity, or not a number */
        rcclx_json_null(j, key);
        return;
    }
    /* The shorter form if it is exact; and the decimal sign may be another
     * character in the program's locale. */
    snprintf(digits, sizeof(digits), "%.15g", value);
    double again = strtod(digits, NULL);
    if (again < value || again > value)
        snprintf(digits, sizeof(digits), "%.17g", value);
    for (char *c = digits; *c; c++)
        if (!strchr("0123456789+-e", *c))
            *c = '.';
    begin_value(j, key);
    fputs(digits, j->out);
    end_value(j);
}

void rcclx_json_bool(rcclx_json *j, const char *key, bool value)
{
    begin_value(j, key);
    fputs(value ? "true" : "false", j->out);
    end_value(j);
}

void rcclx_json_null(rcclx_json *j, const char *key)
{
    begin_value(j, key);
    fputs("null", j->out);
    end_value(j);
}
