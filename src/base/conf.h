#ifndef RCCLX_BASE_CONF_H
#define RCCLX_BASE_CONF_H

#include <stdio.h>

/* Reads a file of NAME=VALUE lines. Blanks around both are dropped; so is a
 * line that starts with #, and the rest of a line after a blank and a #. Each
 * pair is handed to `each` (the strings last until it returns); a line that is
 * no pair, or is longer than RCCLX_CONF_LINE, comes with name NULL and the
 * reason as value. */
enum { RCCLX_CONF_LINE = 4096 };

typedef void rcclx_conf_each(void *context, int line, const char *name, const char *value);

void rcclx_conf_read(FILE *in, rcclx_conf_each *each, void *context);

#endif
