/* One line at a time through one buffer; nothing is allocated. A line that does
 * not fit is reported and its rest skipped, so that its tail is not taken for a
 * line of its own. */
#include "base/conf.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* Reads up to the newline, which is dropped. False at the end of the file.
 * NUL bytes become blanks: no line may hide its tail. */
static bool next_line(FILE *in, char *line, bool *whole)
{
    size_t n = 0;
    int c = getc(in);

    if (c == EOF)
        return false;
    for (*whole = true; c != EOF && c != '\n'; c = getc(in)) {
        if (n + 1 < RCCLX_CONF_LINE)
            line[n++] = (char)(c ? c : ' ');
        else
            *whole = false;
    }
    line[n] = '\0';
    return true;
}

static char *trim(char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    char *end = s + strlen(s);
    while (end > s && isspace((unsigned char)end[-1]))
        end--;
    *end = '\0';
    return s;
}

static void cut_comment(char *line)
{
    for (char *c = line; *c; c++)
        if (*c == '#' && (c == line || isspace((unsigned char)c[-1]))) {
            *c = '\0';
            return;
        }
}

void rcclx_conf_read(FILE *in, rcclx_conf_each *each, void *context)
{
    char line[RCCLX_CONF_LINE];
    bool whole;

    for (int number = 1; next_line(in, line, &whole); number++) {
        cut_comment(line);
        char *name = trim(line), *equals = strchr(name, '=');
        if (!whole) {
            each(context, number, NULL, "the line is too long");
        } else if (!*name) {
            continue;
        } else if (!equals || equals == name) {
            each(context, number, NULL, "the line is not NAME=VALUE");
        } else {
            *equals = '\0';
            each(context, number, trim(name), trim(equals + 1));
        }
    }
}
