#include "algo/tune.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS = 5, WORD = 32, FILE_MAX = 1 << 20 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static rcclx_tune table; /* written once, under `once` */

static bool parse_size(const char *word, size_t *out)
{
    static const char units[] = "KMG";
    char *end;

    if (*word < '0' || *word > '9')
        return false;
    errno = 0;
    unsigned long long v = strtoull(word, &end, 10);
    if (errno)
        return false;
    if (*end) {
        const char *unit = strchr(units, *end & ~0x20);
        const int shift = unit && *unit ? 10 * (int)(unit - units + 1) : 0;
        if (!shift || end[1] || v > SIZE_MAX >> shift)
            return false;
        v <<= shift;
    }
    *out = (size_t)v;
    return true;
}

static bool parse_ranks(const char *word, int *out)
{
    size_t v;

    *out = 0;
    if (!strcmp(word, "*"))
        return true;
    if (!parse_size(word, &v) || v < 1 || v > INT32_MAX)
        return false;
    *out = (int)v;
    return true;
}

/* Words of a line; more than FIELDS are counted but not kept, -1: one is too long. */
static int split_line(const char *line, size_t len, char words[FIELDS][WORD])
{
    int n = 0;

    for (size_t i = 0; i < len;) {
        size_t from = i += strspn(line + i, " \t\r");
        if (i >= len || line[i] == '#')
            break;
        while (i < len && !strchr(" \t\r#", line[i]))
            i++;
        if (i - from >= WORD)
            return -1;
        if (n < FIELDS) {
            memcpy(words[n], line + from, i - from);
            words[n][i - from] = 0;
        }
        n++;
    }
    return n;
}

static bool parse_row(char words[FIELDS][WORD], rcclx_tune_row *row)
{
    const int kind = rcclx_kind_find(words[0]);

    if (kind < 0 || kind >= RCCLX_COLL_COUNT)
        return false;
    row->kind = (rcclx_kind)kind;
    row->max_bytes = SIZE_MAX;
    if (!parse_ranks(words[1], &row->nranks) || !parse_size(words[2], &row->min_bytes))
        return false;
    if (strcmp(words[3], "-") && !parse_size(words[3], &row->max_bytes))
        return false;
    row->algo = rcclx_algo_find(words[4]);
    return row->algo && row->min_bytes <= row->max_bytes;
}

static rcclx_status append(rcclx_tune *t, const rcclx_tune_row *row)
{
    rcclx_tune_row *rows = rcclx_mem_realloc(t->rows, (t->nrows + 1) * sizeof(*rows));

    if (!rows)
        return RCCLX_NOMEM;
    t->rows = rows;
    rows[t->nrows++] = *row;
    return RCCLX_OK;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static uint64_t hash_rows(const rcclx_tune *t)
{
    uint64_t h = 0;

    for (size_t i = 0; i < t->nrows; i++) {
        const rcclx_tune_row *r = &t->rows[i];
        h = mix(mix(mix(mix(h + 1, (uint64_t)r->kind), (uint64_t)r->nranks), r->min_bytes), r->max_bytes);
        for (const char *c = r->algo->name; *c; c++)
            h = mix(h, (uint64_t)*c);
    }
    return h;
}

static rcclx_status parse_line(rcclx_tune *t, const char *line, size_t len)
{
    char words[FIELDS][WORD];
    rcclx_tune_row row;
    const int n = split_line(line, len, words);

    if (!n)
        return RCCLX_OK;
    if (n != FIELDS || !parse_row(words, &row))
        return RCCLX_ARGUMENT;
    return append(t, &row);
}

rcclx_status rcclx_tune_parse(rcclx_tune *t, const char *text, size_t nbytes, int *bad_line)
{
    memset(t, 0, sizeof(*t));
    *bad_line = 0;
    char *copy = rcclx_mem_alloc(nbytes + 1); /* a zero behind the last line */
    if (!copy)
        return RCCLX_NOMEM;
    memcpy(copy, text, nbytes);
    rcclx_status status = RCCLX_OK;
    for (char *line = copy, *end; status == RCCLX_OK && line < copy + nbytes; line = end + 1) {
        end = memchr(line, '\n', (size_t)(copy + nbytes - line));
        end = end ? end : copy + nbytes;
        ++*bad_line;
        status = memchr(line, 0, (size_t)(end - line)) ? RCCLX_ARGUMENT : parse_line(t, line, (size_t)(end - line));
    }
    rcclx_mem_free(copy);
    if (status != RCCLX_OK) {
        rcclx_tune_fini(t);
        return status;
    }
    *bad_line = 0;
    t->hash = hash_rows(t);
    return RCCLX_OK;
}

void rcclx_tune_fini(rcclx_tune *t)
{
    rcclx_mem_free(t->rows);
    memset(t, 0, sizeof(*t));
}

const rcclx_algo *rcclx_tune_find(const rcclx_tune *t, const rcclx_shape *s, size_t nbytes)
{
    for (size_t i = 0; i < t->nrows; i++) {
        const rcclx_tune_row *r = &t->rows[i];
        if (r->kind == s->kind && (!r->nranks || r->nranks == s->nranks) && nbytes >= r->min_bytes &&
            nbytes <= r->max_bytes)
            return r->algo;
    }
    return NULL;
}

static void load(void)
{
    const char *path = rcclx_option_str(RCCLX_OPT_TUNE_FILE);
    int bad_line = 0;

    if (!*path)
        return;
    FILE *f = fopen(path, "re");
    char *text = f ? rcclx_mem_alloc(FILE_MAX) : NULL;
    if (!text) {
        RCCLX_WARN_LOG("RCCLX_TUNE_FILE %s cannot be read: %s", path, strerror(errno));
    } else {
        const size_t n = fread(text, 1, FILE_MAX, f);
        if (rcclx_tune_parse(&table, text, n, &bad_line) != RCCLX_OK)
            RCCLX_WARN_LOG("RCCLX_TUNE_FILE %s line %d is not \"kind nranks min_bytes max_bytes algo\"; "
                           "the file is not used", path, bad_line);
    }
    rcclx_mem_free(text);
    if (f)
        fclose(f);
}

const rcclx_tune *rcclx_tune_table(void)
{
    pthread_once(&once, load);
    return &table;
}
