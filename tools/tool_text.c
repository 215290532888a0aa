/* Messages, numbers and nearest words for all subcommands. */
#include "tool.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* One write, so that lines of several ranks do not mix. */
static void say(const char *who, const char *format, va_list args)
{
    char text[2048];
    int  used = snprintf(text, sizeof(text), "rcclx%s%s: ", *who ? " " : "", who);

    vsnprintf(text + used, sizeof(text) - (size_t)used - 1, format, args);
    used         = (int)strlen(text);
    text[used++] = '\n';
    fflush(stdout);
    if (write(STDERR_FILENO, text, (size_t)used) < 0)
        return; /* nowhere left to say it */
}

int tool_usage(const char *who, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    say(who, format, args);
    va_end(args);
    return TOOL_USAGE;
}

int tool_fail(const char *who, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    say(who, format, args);
    va_end(args);
    return TOOL_FAILED;
}

int tool_size_parse(const char *text, size_t *result)
{
    static const char units[] = "KMGTP";
    char             *end;
    double            x;
    const char       *unit;

    if (!isdigit((unsigned char)*text) && *text != '.')
        return -1;
    errno = 0;
    x     = strtod(text, &end);
    if (end == text || errno || !isfinite(x))
        return -1;
    if (*end && (unit = strchr(units, toupper((unsigned char)*end)))) {
        x = ldexp(x, 10 * (int)(unit - units + 1));
        end++;
        if (*end == 'i' || *end == 'I')
            end++;
    }
    if (*end == 'b' || *end == 'B')
        end++;
    if (*end || x >= 9e18 || x != floor(x))
        return -1;
    *result = (size_t)x;
    return 0;
}

int tool_int(const tool_args *a, long min, long max, int *result)
{
    char *end;
    long  x;

    errno = 0;
    x     = strtol(a->value, &end, 10);
    if (end == a->value || *end || errno || x < min || x > max)
        return tool_usage(a->who, "%s %s: a whole number from %ld to %ld is needed", a->asked, a->value, min, max);
    *result = (int)x;
    return TOOL_OK;
}

int tool_real(const tool_args *a, double min, double *result)
{
    char  *end;
    double x;

    errno = 0;
    x     = strtod(a->value, &end);
    if (end == a->value || *end || errno || !(x >= min) || !isfinite(x))
        return tool_usage(a->who, "%s %s: a number of at least %g is needed", a->asked, a->value, min);
    *result = x;
    return TOOL_OK;
}

int tool_size(const tool_args *a, size_t *result)
{
    if (tool_size_parse(a->value, result))
        return tool_usage(a->who, "%s %s: a size in bytes is needed, such as 8, 64K, 1.5M or 2G", a->asked, a->value);
    return TOOL_OK;
}

/* Edit distance with a limit; words longer than the row are far from anything. */
static unsigned distance(const char *a, const char *b)
{
    unsigned     row[64];
    const size_t nb = strlen(b);

    if (nb >= sizeof(row) / sizeof(row[0]) || strlen(a) >= sizeof(row) / sizeof(row[0]))
        return 1000;
    for (size_t j = 0; j <= nb; j++)
        row[j] = (unsigned)j;
    for (; *a; a++) {
        unsigned diagonal = row[0]++;

        for (size_t j = 1; j <= nb; j++) {
            const unsigned change = diagonal + (tolower((unsigned char)*a) != tolower((unsigned char)b[j - 1]));
            const unsigned skip   = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;

            diagonal = row[j];
            row[j]   = change < skip ? change : skip;
        }
    }
    return row[nb];
}

const char *tool_nearest(const char *word, const char *const *words, size_t nwords)
{
    const char *best  = NULL;
    unsigned    least = 1000;

    for (size_t i = 0; i < nwords; i++) {
        const unsigned d = distance(word, words[i]);

        if (d < least) {
            least = d;
            best  = words[i];
        }
    }
    return least <= 2 + strlen(word) / 4 ? best : NULL;
}

int tool_word_index(const char *list, const char *word)
{
    const size_t length = strlen(word);

    for (int i = 0;; i++) {
        const size_t n = strcspn(list, "|");

        if (n == length && !strncasecmp(list, word, n))
            return i;
        if (!list[n])
            return -1;
        list += n + 1;
    }
}
