/* Lists of hosts. Both forms come down to one item, "name" or "name:slots", whose
 * name may be Slurm's short form for several:
 *
 *     a:4,node[01-02]:8   -->   a 4   node01 8   node02 8
 *
 * A name becomes a word of ssh's command line, so it may not look like an option. */
#include "tool_hosts.h"

#include "tool.h"

#include "api/nodelist.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char  *text;
    size_t n;
} reason;

static int bad(const reason *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int bad(const reason *why, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why->text, why->n, format, args);
    va_end(args);
    return -1;
}

static int read_slots(const char *text, int *slots, const reason *why)
{
    char *end;

    errno = 0;
    const long x = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : 0;
    if (x < 1 || *end || errno || x > TOOL_SLOTS_MAX)
        return bad(why, "'%.80s' is no number of slots; write 1 to %d", text, TOOL_SLOTS_MAX);
    *slots = (int)x;
    return 0;
}

static int add(tool_hosts *h, const char *name, int slots, const reason *why)
{
    if (slots > TOOL_SLOTS_MAX - h->slots)
        return bad(why, "more than %d slots in all", TOOL_SLOTS_MAX);
    h->slots += slots;
    for (int i = 0; i < h->n; i++)
        if (!strcmp(h->host[i].name, name)) {
            h->host[i].slots += slots;
            return 0;
        }
    if (h->n == TOOL_HOSTS_MAX)
        return bad(why, "more than %d hosts", TOOL_HOSTS_MAX);
    if (!(h->n & (h->n - 1))) { /* room for twice as many at every power of two */
        tool_host *more = realloc(h->host, (size_t)(h->n ? 2 * h->n : 1) * sizeof(*more));

        if (!more)
            return bad(why, "out of memory");
        h->host = more;
    }
    h->host[h->n].slots = slots;
    snprintf(h->host[h->n++].name, TOOL_HOST_NAME, "%s", name);
    return 0;
}

/* Only what names and addresses are made of: the name is given to a command. */
static int check_name(const char *name, const reason *why)
{
    if (!*name)
        return bad(why, "a host without a name");
    if (*name == '-' || strstr(name, "@-"))
        return bad(why, "host '%.80s' begins with '-', as options do", name);
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-@:%[],", *c))
            return bad(why, "host '%.80s' has a character that no name or address has", name);
    return 0;
}

static int add_names(tool_hosts *h, const char *names, int slots, const reason *why)
{
    const long n = rcclx_nodelist_count(names);
    char       name[TOOL_HOST_NAME];

    if (!n)
        return bad(why, "'%.80s' is no host", names);
    for (long i = 0; i < n; i++) {
        if (!rcclx_nodelist_name(names, i, name, sizeof(name)))
            return bad(why, "the name of a host has more than %d characters", TOOL_HOST_NAME - 1);
        if (check_name(name, why) || add(h, name, slots, why))
            return -1;
    }
    return 0;
}

/* "name", "name:slots", "[address]", "[address]:slots", an address with colons. */
static int add_item(tool_hosts *h, char *item, int slots, const reason *why)
{
    char *colon = strrchr(item, ':'), *close = *item == '[' ? strchr(item, ']') : NULL;

    if (check_name(item, why))
        return -1;
    if (close) {
        if (close[1] && close[1] != ':')
            return bad(why, "'%.80s': write [address]:slots", item);
        if (close[1] && read_slots(close + 2, &slots, why))
            return -1;
        *close = 0;
        return strchr(item + 1, '[') || strchr(item + 1, ',') || check_name(item + 1, why)
                   ? bad(why, "'%.80s]' is no address", item) : add(h, item + 1, slots, why);
    }
    if (colon && strchr(item, ':') == colon) {
        if (read_slots(colon + 1, &slots, why))
            return -1;
        *colon = 0;
        if (!*item)
            return bad(why, "a host without a name");
    } else if (colon) {
        return strpbrk(item, "[],") ? bad(why, "'%.80s' is no address", item) : add(h, item, slots, why);
    }
    return add_names(h, item, slots, why);
}

/* The end of an item: a comma, but none between brackets. */
static size_t item_length(const char *text)
{
    size_t n      = 0;
    bool   inside = false;

    for (; text[n] && (inside || text[n] != ','); n++)
        inside = text[n] == '[' || (inside && text[n] != ']');
    return n;
}

/* A copy of an item or word, which is cut up. */
static int take_item(tool_hosts *h, const char *text, size_t n, int slots, const reason *why)
{
    char item[4 * TOOL_HOST_NAME];

    if (n >= sizeof(item) || memchr(text, 0, n))
        return bad(why, "a host of %zu characters", n);
    memcpy(item, text, n);
    item[n] = 0;
    const size_t used = strlen(item);
    if (used >= TOOL_HOST_NAME && !strchr(item, '['))
        return bad(why, "the name of a host has more than %d characters", TOOL_HOST_NAME - 1);
    return add_item(h, item, slots, why);
}

int tool_hosts_list(tool_hosts *h, const char *text, char *why, size_t nwhy)
{
    const reason r = {why, nwhy};

    *h = (tool_hosts){0};
    for (;;) {
        const size_t n = item_length(text);

        if (take_item(h, text, n, 1, &r)) {
            tool_hosts_fini(h);
            return -1;
        }
        if (!text[n])
            return 0;
        text += n + 1;
    }
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* What follows a host's name: slots=N, max_slots=M. */
static int read_setting(const char *word, int *slots, int *most, const reason *why)
{
    const char *is = strchr(word, '=');

    if (is && (is - word == 5) && !strncmp(word, "slots", 5))
        return read_slots(is + 1, slots, why);
    if (is && (is - word == 9) && (!strncmp(word, "max_slots", 9) || !strncmp(word, "max-slots", 9)))
        return read_slots(is + 1, most, why);
    return bad(why, "'%.80s' is unknown; a line is: host slots=N", word);
}

/* Next word of a line, cut out of it; NULL at its end. */
static char *next_word(char **at)
{
    while (is_blank(**at))
        ++*at;
    if (!**at)
        return NULL;
    char *word = *at;
    while (**at && !is_blank(**at))
        ++*at;
    if (**at)
        *(*at)++ = 0;
    return word;
}

static int take_line(tool_hosts *h, char *line, const reason *why)
{
    char *comment = strchr(line, '#'), *name, *word;
    int   slots = 1, most = TOOL_SLOTS_MAX;

    if (comment)
        *comment = 0;
    name = next_word(&line);
    if (!name)
        return 0;
    if (strchr(name, '=')) /* "slots=4" alone */
        return bad(why, "'%.80s' where a host's name is expected", name);
    while ((word = next_word(&line)))
        if (read_setting(word, &slots, &most, why))
            return -1;
    if (slots > most)
        return bad(why, "host '%.80s' has %d slots and max_slots=%d", name, slots, most);
    return take_item(h, name, strlen(name), slots, why);
}

int tool_hosts_file(tool_hosts *h, const char *text, size_t size, int *line, char *why, size_t nwhy)
{
    const reason r = {why, nwhy};
    char         copy[8 * TOOL_HOST_NAME];

    *h    = (tool_hosts){0};
    *line = 0;
    while (size) {
        const char  *end = memchr(text, '\n', size);
        const size_t n   = end ? (size_t)(end - text) : size;
        int          code;

        ++*line;
        if (n >= sizeof(copy) || memchr(text, 0, n)) {
            code = bad(&r, "this is no line of a host file");
        } else {
            memcpy(copy, text, n);
            copy[n] = 0;
            code    = take_line(h, copy, &r);
        }
        if (code) {
            tool_hosts_fini(h);
            return -1;
        }
        text += n + (end != NULL);
        size -= n + (end != NULL);
    }
    if (h->n)
        return 0;
    tool_hosts_fini(h);
    return bad(&r, "there is no host in it");
}

void tool_hosts_fini(tool_hosts *h)
{
    free(h->host);
    *h = (tool_hosts){0};
}
