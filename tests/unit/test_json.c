#include "check.h"

#include "base/json.h"

#include <math.h>

static char *text;
static size_t ntext;

static rcclx_json start(void)
{
    rcclx_json j;

    free(text);
    rcclx_json_init(&j, open_memstream(&text, &ntext));
    return j;
}

static const char *finish(rcclx_json *j)
{
    fclose(j->out);
    return text;
}

TEST(a_document)
{
    rcclx_json j = start();
    rcclx_json_object_open(&j, NULL);
    rcclx_json_int(&j, "ranks", 8);
    rcclx_json_array_open(&j, "peers");
    rcclx_json_string(&j, NULL, "a");
    rcclx_json_null(&j, NULL);
    rcclx_json_object_open(&j, NULL);
    rcclx_json_object_close(&j);
    rcclx_json_array_close(&j);
    rcclx_json_bool(&j, "ok", true);
    rcclx_json_array_open(&j, "none");
    rcclx_json_array_close(&j);
    rcclx_json_object_close(&j);
    const char *expected = "{\n  \"ranks\": 8,\n  \"peers\": [\n    \"a\",\n    null,\n    {}\n  ],\n"
                           "  \"ok\": true,\n  \"none\": []\n}\n";
    finish(&j);
    CHECK(!strcmp(text, expected), "%s", text);
}

TEST(texts_are_escaped_and_always_valid)
{
    static const struct { const char *in, *out; } samples[] = {
        { "", "\"\"" }, { "a\"b\\c/", "\"a\\\"b\\\\c/\"" }, { "\n\t\x01\x1f\x7f", "\"\\u000a\\u0009\\u0001\\u001f\\u007f\"" },
        { "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"" }, /* whole characters stay */
        { "\xff", "\"\\ufffd\"" }, { "\xc3", "\"\\ufffd\"" }, { "\xe2\x82", "\"\\ufffd\\ufffd\"" },
        { "\xc0\xaf", "\"\\ufffd\\ufffd\"" },         /* overlong */
        { "\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"" }, /* surrogate */
        { "\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"" }, { "\xf0\x9f\x98", "\"\\ufffd\\ufffd\\ufffd\"" },
        { "\xc3x", "\"\\ufffdx\"" }, { NULL, "null" },
    };
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        rcclx_json j = start();
        rcclx_json_string(&j, NULL, samples[i].in);
        finish(&j);
        CHECK(ntext == strlen(samples[i].out) + 1 && !strncmp(text, samples[i].out, ntext - 1), "sample %zu: %s", i, text);
    }
}

TEST(keys_are_escaped)
{
    rcclx_json j = start();
    rcclx_json_object_open(&j, NULL);
    rcclx_json_int(&j, "a\"", INT64_MIN);
    rcclx_json_int(&j, "", INT64_MAX);
    rcclx_json_object_close(&j);
    finish(&j);
    CHECK(!strcmp(text, "{\n  \"a\\\"\": -9223372036854775808,\n  \"\": 9223372036854775807\n}\n"), "%s", text);
}

TEST(reals_come_back_bit_for_bit)
{
    static const double samples[] = { 0.1, 1.0 / 3, 1e300, 5e-324, -2.5, 3, 0, 1.7976931348623157e308, 123456789.125, 0.30000000000000004 };
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        rcclx_json j = start();
        rcclx_json_real(&j, NULL, samples[i]);
        finish(&j);
        double again = strtod(text, NULL);
        CHECK(!memcmp(&again, &samples[i], sizeof(again)), "%.17g became %s", samples[i], text);
    }
    rcclx_json j = start();
    rcclx_json_real(&j, NULL, 0.1);
    finish(&j);
    CHECK(!strcmp(text, "0.1\n"), "%s", text);
}

TEST(what_json_has_no_number_for_is_null)
{
    const double samples[] = { INFINITY, -INFINITY, NAN };
    for (int i = 0; i < 3; i++) {
        rcclx_json j = start();
        rcclx_json_real(&j, NULL, samples[i]);
        finish(&j);
        CHECK(!strcmp(text, "null\n"), "%s", text);
    }
}

TEST(deep_nesting)
{
    rcclx_json j = start();
    for (int i = 0; i < 60; i++) {
        rcclx_json_array_open(&j, NULL);
        rcclx_json_int(&j, NULL, i);
    }
    for (int i = 0; i < 60; i++)
        rcclx_json_array_close(&j);
    finish(&j);
    int commas = 0, closed = 0;
    for (const char *c = text; *c; c++) {
        commas += *c == ',';
        closed += *c == ']';
    }
    CHECK(commas == 59 && closed == 60 && text[ntext - 1] == '\n' && text[ntext - 2] == ']', "%d commas, %d closed", commas, closed);
    free(text);
    text = NULL;
}
