/* Text to value and back, one small function a type.
 *
 *   "64K" --parse--> number --clamp to the row's bounds--> TAKEN or MOVED
 *                 \-> REFUSED, when the text is not of the type at all
 *
 * Reals are read by hand: strtod follows the program's locale, and a setting
 * must mean the same in all of them. */
#include "base/optvalue.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NAME_MAX_DISTANCE = 63 };

static const char *skip_blanks(const char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    return s;
}

static bool ended(const char *s)
{
    return !*skip_blanks(s);
}

static rcclx_optverdict clamp_int(const rcclx_optrow *row, int64_t asked, bool too_large, rcclx_optvalue *value)
{
    value->i = asked < row->imin ? row->imin : asked > row->imax ? row->imax : asked;
    value->r = (double)value->i;
    return too_large || value->i != asked ? RCCLX_OPT_MOVED : RCCLX_OPT_TAKEN;
}

/* A whole number in C's notation; saturates. NULL when there is none. */
static const char *read_int(const char *text, int64_t *out, bool *saturated)
{
    char *end;

    errno = 0;
    *out = strtoll(text, &end, 0);
    *saturated = errno == ERANGE;
    return end == text ? NULL : end;
}

static rcclx_optverdict parse_int(const rcclx_optrow *row, const char *text, rcclx_optvalue *value)
{
    int64_t n;
    bool saturated;
    const char *end = read_int(text, &n, &saturated);

    if (!end || !ended(end))
        return RCCLX_OPT_REFUSED;
    return clamp_int(row, n, saturated, value);
}

static rcclx_optverdict parse_bool(const rcclx_optrow *row, const char *text, rcclx_optvalue *value)
{
    static const struct { const char *word; int64_t value; } words[] = {
        { "true", 1 }, { "yes", 1 }, { "on", 1 }, { "false", 0 }, { "no", 0 }, { "off", 0 },
    };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t n = strlen(words[i].word);
        if (!strncasecmp(text, words[i].word, n) && ended(text + n))
            return clamp_int(row, words[i].value, false, value);
    }
    return parse_int(row, text, value);
}

static rcclx_optverdict parse_size(const rcclx_optrow *row, const char *text, rcclx_optvalue *value)
{
    static const char suffixes[] = "KMGT";
    int64_t n;
    bool saturated;
    const char *end = read_int(text, &n, &saturated);

    if (!end)
        return RCCLX_OPT_REFUSED;
    const char *suffix = *end ? strchr(suffixes, toupper((unsigned char)*end)) : NULL;
    if (suffix) {
        int shift = 10 * (int)(suffix - suffixes + 1);
        bool fits = n >= INT64_MIN >> shift && n <= INT64_MAX >> shift;
        saturated = saturated || !fits;
        n = fits ? n * (INT64_C(1) << shift) : n < 0 ? INT64_MIN : INT64_MAX;
        end++;
        if (*end == 'i' && (end[1] == 'B' || end[1] == 'b'))
            end++;
    }
    if (*end == 'B' || *end == 'b')
        end++;
    if (!ended(end))
        return RCCLX_OPT_REFUSED;
    return clamp_int(row, n, saturated, value);
}

/* Saturates, as endless digits make an infinity, which is out of range.
 * [sign] digits [. digits] [e [sign] digits]; NULL when there is none. */
static const char *read_real(const char *text, double *out)
{
    const char *s = skip_blanks(text);
    double sign = *s == '-' ? -1 : 1, sum = 0;
    int digits = 0, scale = 0, exponent = 0;

    s += *s == '-' || *s == '+';
    for (; isdigit((unsigned char)*s); s++, digits++)
        sum = sum * 10 + (*s - '0');
    if (*s == '.')
        for (s++; isdigit((unsigned char)*s); s++, digits++, scale--)
            sum = sum * 10 + (*s - '0');
    if (!digits)
        return NULL;
    if (*s == 'e' || *s == 'E') {
        const char *e = s + 1 + (s[1] == '-' || s[1] == '+');
        if (isdigit((unsigned char)*e)) {
            int negative = s[1] == '-';
            for (; isdigit((unsigned char)*e); e++)
                exponent = exponent < 1000 ? exponent * 10 + (*e - '0') : exponent;
            scale += negative ? -exponent : exponent;
            s = e;
        }
    }
    /* Powers up to 1e22 are exact, so one division rounds once and 0.1 is C's 0.1.
     * Nothing sensible is as near to zero as where precision runs out. */
    while (scale) {
        int step = scale < -22 ? -22 : scale > 22 ? 22 : scale;
        double power = 1;
        for (int i = step < 0 ? -step : step; i; i--)
            power *= 10;
        sum = step < 0 ? sum / power : sum * power;
        scale -= step;
    }
    *out = sum < 1e-200 ? 0 : sign * sum;
    return s;
}

static rcclx_optverdict clamp_real(const rcclx_optrow *row, double asked, rcclx_optvalue *value)
{
    value->r = asked < row->rmin ? row->rmin : asked > row->rmax ? row->rmax : asked;
    value->i = value->r >= 9e18 ? INT64_MAX : value->r <= -9e18 ? INT64_MIN : (int64_t)value->r;
    return value->r < asked || value->r > asked ? RCCLX_OPT_MOVED : RCCLX_OPT_TAKEN;
}

static rcclx_optverdict parse_real(const rcclx_optrow *row, const char *text, rcclx_optvalue *value)
{
    static const struct { const char *unit; double times, by; } units[] = {
        { "ms", 1, 1000 }, { "s", 1, 1 }, { "m", 60, 1 }, { "h", 3600, 1 },
    };
    double n;
    const char *end = read_real(text, &n);

    if (!end)
        return RCCLX_OPT_REFUSED;
    for (size_t i = 0; row->type == RCCLX_OPTTYPE_SECONDS && i < sizeof(units) / sizeof(units[0]); i++) {
        size_t len = strlen(units[i].unit);
        if (!strncasecmp(end, units[i].unit, len) && ended(end + len))
            return clamp_real(row, n * units[i].times / units[i].by, value);
    }
    return ended(end) ? clamp_real(row, n, value) : RCCLX_OPT_REFUSED;
}

static rcclx_optverdict parse_enum(const rcclx_optrow *row, const char *text, rcclx_optvalue *value)
{
    const char *word = row->words;

    text = skip_blanks(text);
    for (int64_t i = 0; *word; i++) {
        size_t n = strcspn(word, "|");
        if (!strncasecmp(text, word, n) && ended(text + n)) {
            value->i = i;
            return RCCLX_OPT_TAKEN;
        }
        word += n + (word[n] == '|');
    }
    return RCCLX_OPT_REFUSED;
}

rcclx_optverdict rcclx_optvalue_parse(const rcclx_optrow *row, const char *text, rcclx_optvalue *value)
{
    switch (row->type) {
    case RCCLX_OPTTYPE_INT:     return parse_int(row, text, value);
    case RCCLX_OPTTYPE_BOOL:    return parse_bool(row, skip_blanks(text), value);
    case RCCLX_OPTTYPE_SIZE:    return parse_size(row, text, value);
    case RCCLX_OPTTYPE_REAL:
    case RCCLX_OPTTYPE_SECONDS: return parse_real(row, text, value);
    case RCCLX_OPTTYPE_ENUM:    return parse_enum(row, text, value);
    case RCCLX_OPTTYPE_STR:
    case RCCLX_OPTTYPE_LIST:    break;
    }
    value->text = text;
    return RCCLX_OPT_TAKEN;
}

static int print_size(int64_t n, char *buf, size_t nbytes)
{
    static const char suffixes[] = " KMGT";
    int i = 0;

    while (i < 4 && n && n % 1024 == 0) {
        n /= 1024;
        i++;
    }
    return i ? snprintf(buf, nbytes, "%" PRId64 "%c", n, suffixes[i]) : snprintf(buf, nbytes, "%" PRId64, n);
}

/* As %g would in the C locale: the decimal sign may be a comma otherwise. */
static int print_real(double r, char *buf, size_t nbytes)
{
    char digits[40];

    snprintf(digits, sizeof(digits), "%.12g", r);
    for (char *c = digits; *c; c++)
        if (!strchr("0123456789+-e", *c))
            *c = '.';
    return snprintf(buf, nbytes, "%s", digits);
}

static int print_word(const char *words, int64_t index, char *buf, size_t nbytes)
{
    for (; index > 0; index--)
        words += strcspn(words, "|") + 1;
    return snprintf(buf, nbytes, "%.*s", (int)strcspn(words, "|"), words);
}

int rcclx_optvalue_print(const rcclx_optrow *row, const rcclx_optvalue *value, char *buf, size_t nbytes)
{
    switch (row->type) {
    case RCCLX_OPTTYPE_INT:
    case RCCLX_OPTTYPE_BOOL:    return snprintf(buf, nbytes, "%" PRId64, value->i);
    case RCCLX_OPTTYPE_SIZE:    return print_size(value->i, buf, nbytes);
    case RCCLX_OPTTYPE_REAL:
    case RCCLX_OPTTYPE_SECONDS: return print_real(value->r, buf, nbytes);
    case RCCLX_OPTTYPE_ENUM:    return print_word(row->words, value->i, buf, nbytes);
    case RCCLX_OPTTYPE_STR:
    case RCCLX_OPTTYPE_LIST:    break;
    }
    return snprintf(buf, nbytes, "%s", value->text);
}

static int print_words(const char *words, char *buf, size_t nbytes)
{
    size_t n = 0;

    for (; *words && n + 3 < nbytes; words++) {
        buf[n++] = *words == '|' ? ',' : *words;
        if (*words == '|')
            buf[n++] = ' ';
    }
    buf[n] = '\0';
    return (int)n;
}

int rcclx_optvalue_allowed(const rcclx_optrow *row, char *buf, size_t nbytes)
{
    char low[40], high[40];
    rcclx_optvalue least = { .i = row->imin, .r = row->rmin }, most = { .i = row->imax, .r = row->rmax };

    switch (row->type) {
    case RCCLX_OPTTYPE_BOOL: return snprintf(buf, nbytes, "0 or 1");
    case RCCLX_OPTTYPE_ENUM: return print_words(row->words, buf, nbytes);
    case RCCLX_OPTTYPE_STR:  return snprintf(buf, nbytes, "any text");
    case RCCLX_OPTTYPE_LIST: return snprintf(buf, nbytes, "words between commas");
    case RCCLX_OPTTYPE_INT:
    case RCCLX_OPTTYPE_SIZE:
    case RCCLX_OPTTYPE_REAL:
    case RCCLX_OPTTYPE_SECONDS: break;
    }
    rcclx_optvalue_print(row, &least, low, sizeof(low));
    rcclx_optvalue_print(row, &most, high, sizeof(high));
    return snprintf(buf, nbytes, "%s to %s", low, high);
}

const char *rcclx_opttype_name(rcclx_opttype type)
{
    static const char *const names[] = {
        [RCCLX_OPTTYPE_INT] = "integer", [RCCLX_OPTTYPE_BOOL] = "switch",      [RCCLX_OPTTYPE_SIZE] = "bytes",
        [RCCLX_OPTTYPE_REAL] = "number", [RCCLX_OPTTYPE_SECONDS] = "seconds",  [RCCLX_OPTTYPE_STR] = "text",
        [RCCLX_OPTTYPE_ENUM] = "word",   [RCCLX_OPTTYPE_LIST] = "list",
    };
    return names[type];
}

int rcclx_optname_distance(const char *a, const char *b)
{
    /* Three rows of the table suffice: a swap looks two rows back. */
    int rows[3][NAME_MAX_DISTANCE + 1];
    int na = (int)strlen(a), nb = (int)strlen(b);

    if (na > NAME_MAX_DISTANCE || nb > NAME_MAX_DISTANCE)
        return NAME_MAX_DISTANCE;
    for (int j = 0; j <= nb; j++)
        rows[0][j] = j;
    for (int i = 1; i <= na; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            int ca = toupper((unsigned char)a[i - 1]), cb = toupper((unsigned char)b[j - 1]);
            int best = above[j - 1] + (ca != cb);
            best = above[j] + 1 < best ? above[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            if (i > 1 && j > 1 && ca == toupper((unsigned char)b[j - 2]) && cb == toupper((unsigned char)a[i - 2])
                && two_above[j - 2] + 1 < best)
                best = two_above[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[na % 3][nb];
}

void rcclx_optvalue_nearest(const rcclx_optrow *row, const char *text, char *buf, size_t nbytes)
{
    int least = NAME_MAX_DISTANCE;

    buf[0] = '\0';
    for (const char *word = row->type == RCCLX_OPTTYPE_ENUM ? row->words : ""; *word; word += *word == '|') {
        char one[32];
        snprintf(one, sizeof(one), "%.*s", (int)strcspn(word, "|"), word);
        const int distance = rcclx_optname_distance(one, text);
        if (distance < least && 2 * distance < (int)strlen(one)) { /* fewer than half of its letters are wrong */
            least = distance;
            snprintf(buf, nbytes, "%s", one);
        }
        word += strcspn(word, "|");
    }
}
