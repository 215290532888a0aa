/* Lists of algorithms as NCCL_ALGO takes them.
 *
 *   list    = section { ";" section }            later sections win
 *   section = [ kind ":" ] [ "^" ] word { "," word }
 *
 * Without a kind a section speaks for every collective; "^" takes the words away
 * from all there are. NCCL's words for what this library does not have are known,
 * and choose nothing. Spaces around words do not matter. */
#include "algo/list.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char *const foreign[] = { "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT" };

typedef struct {
    const char *at;
    size_t      len;
} span;

static span trim(span s)
{
    while (s.len && (*s.at == ' ' || *s.at == '\t'))
        s.at++, s.len--;
    while (s.len && (s.at[s.len - 1] == ' ' || s.at[s.len - 1] == '\t'))
        s.len--;
    return s;
}

/* Cut the part before `mark` off *rest; false when nothing is left. */
static bool next(span *rest, char mark, span *part)
{
    if (!rest->at)
        return false;
    const char *end = memchr(rest->at, mark, rest->len);
    const size_t len = end ? (size_t)(end - rest->at) : rest->len;
    *part = trim((span){ rest->at, len });
    *rest = end ? (span){ end + 1, rest->len - len - 1 } : (span){ NULL, 0 };
    return true;
}

static void copy_word(span s, char *word, size_t nword)
{
    snprintf(word, nword, "%.*s", (int)(s.len < 1000 ? s.len : 1000), s.at);
}

static bool known(span s, unsigned *bit)
{
    char word[32];

    *bit = 0;
    copy_word(s, word, sizeof(word));
    if (s.len >= sizeof(word))
        return false;
    const rcclx_algo *a = rcclx_algo_find(word);
    for (unsigned i = 0; a && rcclx_algos[i]; i++)
        if (rcclx_algos[i] == a)
            *bit = 1u << i;
    for (size_t i = 0; !a && i < sizeof(foreign) / sizeof(*foreign); i++)
        if (!strcasecmp(word, foreign[i]))
            return true;
    return a != NULL;
}

static int kind_of(span s)
{
    char word[32];

    copy_word(s, word, sizeof(word));
    const int k = s.len < sizeof(word) ? rcclx_kind_find(word) : -1;
    return k < RCCLX_COLL_COUNT ? k : -1;
}

/* One section: the kind it is for (-1: all), whether it excludes, and its words. */
static bool section(span s, span *kind_word, int *kind, bool *excludes, span *words)
{
    const char *colon = memchr(s.at, ':', s.len);

    *kind = -1;
    *kind_word = (span){ NULL, 0 };
    if (colon) {
        *kind_word = trim((span){ s.at, (size_t)(colon - s.at) });
        *kind = kind_of(*kind_word);
        s = trim((span){ colon + 1, s.len - (size_t)(colon + 1 - s.at) });
    }
    *excludes = s.len && *s.at == '^';
    *words = *excludes ? trim((span){ s.at + 1, s.len - 1 }) : s;
    return !colon || *kind >= 0;
}

rcclx_algo_wish rcclx_algo_list_wish(const char *forced, rcclx_kind k)
{
    rcclx_algo_wish wish = { .allowed = ~0u };
    span rest = { forced, strlen(forced) }, part, word, kind_word, words;
    int kind;
    bool excludes;

    while (next(&rest, ';', &part)) {
        if (!part.len || !section(part, &kind_word, &kind, &excludes, &words) || (kind >= 0 && kind != (int)k))
            continue;
        unsigned bits = 0, bit;
        while (next(&words, ',', &word))
            bits |= known(word, &bit) ? bit : 0;
        wish = (rcclx_algo_wish){ .forces = true, .allowed = excludes ? ~bits : bits };
    }
    return wish;
}

int rcclx_algo_list_check(const char *forced, char *bad, size_t nbad)
{
    span rest = { forced, strlen(forced) }, part, word, kind_word, words;
    int kind;
    bool excludes;
    unsigned bit;

    while (next(&rest, ';', &part)) {
        if (!part.len)
            continue;
        if (!section(part, &kind_word, &kind, &excludes, &words)) {
            copy_word(kind_word, bad, nbad);
            return -1;
        }
        while (next(&words, ',', &word))
            if (!known(word, &bit)) {
                copy_word(word, bad, nbad);
                return -1;
            }
    }
    return 0;
}
