#ifndef RCCLX_BASE_JSON_H
#define RCCLX_BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Writes JSON to a stream as it goes:
 *
 *   rcclx_json j;
 *   rcclx_json_init(&j, stdout);
 *   rcclx_json_object_open(&j, NULL);
 *   rcclx_json_int(&j, "ranks", 8);
 *   rcclx_json_array_open(&j, "peers");
 *   rcclx_json_string(&j, NULL, "node1");
 *   rcclx_json_array_close(&j);
 *   rcclx_json_object_close(&j);
 *
 * Inside an object every value has a key; in an array and at the top the key is
 * NULL. Containers nest up to 64 deep. A newline follows the outermost value. */
typedef struct {
    FILE    *out;
    int      depth;
    uint64_t started; /* bit d: the container at depth d has a member */
} rcclx_json;

void rcclx_json_init(rcclx_json *j, FILE *out);
void rcclx_json_object_open(rcclx_json *j, const char *key);
void rcclx_json_object_close(rcclx_json *j);
void rcclx_json_array_open(rcclx_json *j, const char *key);
void rcclx_json_array_close(rcclx_json *j);

void rcclx_json_string(rcclx_json *j, const char *key, const char *text); /* NULL: null; bad UTF-8: U+FFFD */
void rcclx_json_int(rcclx_json *j, const char *key, int64_t value);
void rcclx_json_real(rcclx_json *j, const char *key, double value); /* not finite: null */
void rcclx_json_bool(rcclx_json *j, const char *key, bool value);
void rcclx_json_null(rcclx_json *j, const char *key);

#endif
