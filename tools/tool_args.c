/* Command lines: "-b 8", "-b8", "--minbytes 8", "--minbytes=8", "-ab", "--".
 *
 * Unlike getopt it keeps no state of its own, gives words in their place, and
 * names the nearest known option when one is mistyped. */
#include "tool.h"

#include <string.h>

static const tool_option *find_long(const tool_args *a, const char *word, size_t length)
{
    for (const tool_option *o = a->options; o->name; o++)
        if (strlen(o->name) == length && !strncmp(o->name, word, length))
            return o;
    return NULL;
}

static const tool_option *find_letter(const tool_args *a, char letter)
{
    for (const tool_option *o = a->options; o->name; o++)
        if (o->letter == letter)
            return o;
    return NULL;
}

static int unknown_long(const tool_args *a, const char *word, size_t length)
{
    const char *names[64], *near;
    char        name[64];
    size_t      n = 0;

    snprintf(name, sizeof(name), "%.*s", (int)length, word);
    for (const tool_option *o = a->options; o->name && n < 64; o++)
        names[n++] = o->name;
    near = tool_nearest(name, names, n);
    if (near)
        tool_usage(a->who, "unknown option --%s; the nearest is --%s (see --help)", name, near);
    else
        tool_usage(a->who, "unknown option --%s (see --help)", name);
    return TOOL_ARGS_BAD;
}

static int missing(const tool_args *a, const tool_option *o)
{
    tool_usage(a->who, "%s needs a value: %s", a->asked, o->arg);
    return TOOL_ARGS_BAD;
}

static int next_long(tool_args *a, const char *word)
{
    const size_t       length = strcspn(word, "=");
    const tool_option *o      = find_long(a, word, length);

    if (!o)
        return unknown_long(a, word, length);
    if (word[length] && !o->arg) {
        tool_usage(a->who, "--%s takes no value", o->name);
        return TOOL_ARGS_BAD;
    }
    a->value = word[length] ? word + length + 1 : NULL;
    if (o->arg && !a->value && o->arg[0] != '[') {
        if (a->at >= a->argc)
            return missing(a, o);
        a->value = a->argv[a->at++];
    }
    return o->id;
}

static int next_letter(tool_args *a, char *word)
{
    const tool_option *o = find_letter(a, word[a->rest]);

    if (!o) {
        tool_usage(a->who, "unknown option -%c (see --help)", word[a->rest]);
        return TOOL_ARGS_BAD;
    }
    a->value = NULL;
    if (!o->arg) {
        a->rest = word[a->rest + 1] ? a->rest + 1 : 0;
        return o->id;
    }
    if (word[a->rest + 1])
        a->value = word + a->rest + 1 + (word[a->rest + 1] == '=');
    else if (a->at + 1 < a->argc)
        a->value = a->argv[++a->at];
    a->rest = 0;
    return a->value ? o->id : missing(a, o);
}

int tool_args_next(tool_args *a)
{
    char *word;
    int   id;

    if (a->at >= a->argc)
        return TOOL_ARGS_END;
    word     = a->argv[a->at];
    a->asked = word;
    if (a->rest < 0 || word[0] != '-' || !word[1]) {
        a->value = word;
        a->at++;
        return TOOL_ARGS_WORD;
    }
    if (!strcmp(word, "--")) {
        a->rest = -1;
        a->at++;
        return tool_args_next(a);
    }
    if (word[1] == '-') {
        a->at++;
        return next_long(a, word + 2);
    }
    if (!a->rest)
        a->rest = 1;
    id = next_letter(a, word);
    if (!a->rest)
        a->at++;
    return id;
}

const char *tool_args_maybe(tool_args *a)
{
    if (a->value)
        return a->value;
    if (a->at >= a->argc || (a->argv[a->at][0] == '-' && a->argv[a->at][1]))
        return NULL;
    return a->argv[a->at++];
}

void tool_options_print(FILE *out, const tool_option *options)
{
    for (const tool_option *o = options; o->name; o++) {
        char left[64];

        if (!o->about)
            continue;
        snprintf(left, sizeof(left), "%s%c%s--%s%s%s", o->letter ? "-" : "  ", o->letter ? o->letter : ' ',
                 o->letter ? ", " : " ", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
        fprintf(out, "  %-30s%s%s\n", left, strlen(left) >= 30 ? " " : "", o->about);
    }
}
