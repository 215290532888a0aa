/* A list is items with commas between, an item is text with groups in it, a
 * group is ranges in brackets:
 *
 *     r[1-2]n[01-03,7],login
 *      ----- groups --         item r[..]n[..] has 2 x 4 names; the last group turns fastest
 *
 * Nothing is kept: who wants the k-th name walks to it, and counting is the same
 * walk without writing. */
#include "api/nodelist.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DIGITS = 9 };

typedef struct {
    char  *name; /* NULL: only counting */
    size_t n, used;
} writer;

static void put(writer *w, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++, w->used++)
        if (w->used < w->n)
            w->name[w->used] = text[i];
}

/* With the zeros in front that the range's first number has. */
static void put_number(writer *w, long number, size_t width)
{
    char   digits[MAX_DIGITS + 1];
    size_t n = 0;

    do
        digits[MAX_DIGITS - n++] = (char)('0' + number % 10);
    while ((number /= 10) || n < width);
    put(w, digits + MAX_DIGITS + 1 - n, n);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits: their number, how many; -1 if there are none or too many. */
static long read_digits(const char **at, size_t *width)
{
    long x = 0;

    for (*width = 0; is_digit(**at) && *width <= MAX_DIGITS; ++*width)
        x = 10 * x + (*(*at)++ - '0');
    return *width && *width <= MAX_DIGITS ? x : -1;
}

/* A group, *at behind its '[': how many names it gives, *at behind its ']'; 0:
 * it is none. The pick-th of them is written if w has room for names. */
static long read_group(const char **at, writer *w, long pick)
{
    long total = 0;

    for (;;) {
        size_t     width, other;
        const long low  = read_digits(at, &width);
        long       high = low;

        if (**at == '-') {
            ++*at;
            high = read_digits(at, &other);
        }
        if (low < 0 || high < low || high - low >= RCCLX_NODELIST_MAX - total)
            return 0;
        if (w->name && pick >= total && pick - total <= high - low)
            put_number(w, low + pick - total, width);
        total += high - low + 1;
        const char c = *(*at)++;
        if (c == ']')
            return total;
        if (c != ',')
            return 0;
    }
}

static bool is_text(char c)
{
    return c > ' ' && c != 127 && !strchr(",[]()", c);
}

/* An item: how many names it gives, *at at the comma or the end; 0: it is none. */
static long count_item(const char **at)
{
    const char *begin = *at;
    writer      none  = { 0 };
    long        total = 1;

    while (**at && **at != ',') {
        if (**at == '[') {
            ++*at;
            const long k = read_group(at, &none, 0);
            if (!k || total > RCCLX_NODELIST_MAX / k)
                return 0;
            total *= k;
        } else if (!is_text(*(*at)++)) {
            return 0;
        }
    }
    return *at > begin ? total : 0;
}

/* A correct item of `total` names: its pick-th. */
static void write_item(const char *at, long total, long pick, writer *w)
{
    while (*at && *at != ',') {
        if (*at != '[') {
            put(w, at++, 1);
            continue;
        }
        const char *group = ++at;
        writer      none  = { 0 };
        const long  k     = read_group(&at, &none, 0);
        total /= k;
        read_group(&group, w, pick / total);
        pick %= total;
    }
}

long rcclx_nodelist_count(const char *list)
{
    long total = 0;

    for (;;) {
        const long k = count_item(&list);

        if (!k || k > RCCLX_NODELIST_MAX - total)
            return 0;
        total += k;
        if (!*list++)
            return total;
    }
}

bool rcclx_nodelist_name(const char *list, long at, char *name, size_t n)
{
    writer w = { .name = name, .n = n };

    if (at < 0 || !n || !rcclx_nodelist_count(list))
        return false;
    for (;;) {
        const char *item = list;
        const long  k    = count_item(&list);

        if (at < k) {
            write_item(item, k, at, &w);
            name[w.used < n ? w.used : n - 1] = 0;
            return w.used < n;
        }
        at -= k;
        if (!*list++)
            return false;
    }
}

int rcclx_counts_at(const char *counts, long at)
{
    size_t width;

    while (at >= 0) {
        const long count = read_digits(&counts, &width);
        long       times = 1;

        if (count < 0)
            return -1;
        if (counts[0] == '(' && counts[1] == 'x') {
            counts += 2;
            times = read_digits(&counts, &width);
            if (times < 1 || *counts++ != ')')
                return -1;
        }
        if (at < times)
            return (int)count;
        at -= times;
        if (*counts++ != ',')
            return -1;
    }
    return -1;
}
