/* Settings are read once, by the first caller of any getter:
 *
 *   environment --offer--+                        +-> value[] --> getters
 *   user's file --offer--+-> best candidate a row-+
 *   /etc file  ---offer--+   (settle: parse)      +-> notes --> the log
 *
 * A candidate beats another of the same row by its source (environment before
 * the user's file before /etc/nccl.conf), then by its prefix (RCCLX_ before
 * RCCL_ before NCCL_), then by coming first. An empty value is no candidate.
 *
 * The log's own settings are rows too, so nothing may be logged while reading.
 * What there is to say is kept as notes and flushed once the values can be
 * read. All texts live in a pool of fixed size: settings must be readable when
 * memory is short, and must not show up in a test that counts blocks. */
#include "base/option.h"

#include "base/conf.h"
#include "base/log.h"
#include "base/optvalue.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

#define OPTTYPE_INT         RCCLX_OPTTYPE_INT, 0, NULL
#define OPTTYPE_BOOL        RCCLX_OPTTYPE_BOOL, 1, NULL
#define OPTTYPE_SIZE        RCCLX_OPTTYPE_SIZE, 0, NULL
#define OPTTYPE_REAL        RCCLX_OPTTYPE_REAL, 0, NULL
#define OPTTYPE_SECONDS     RCCLX_OPTTYPE_SECONDS, 0, NULL
#define OPTTYPE_STR         RCCLX_OPTTYPE_STR, 0, NULL
#define OPTTYPE_LIST        RCCLX_OPTTYPE_LIST, 0, NULL
#define OPTTYPE_ENUM(words) RCCLX_OPTTYPE_ENUM, 0, words

#define ROW(...) ROW_OF(__VA_ARGS__)
#define ROW_OF(id, name_, type_, one, words_, preset_, min, max, flags_, help_)                                       \
    [RCCLX_OPT_##id] = { .name = name_, .preset = preset_, .help = help_, .type = type_,                              \
                         .flags = RCCLX_OPTFLAG_##flags_, .words = words_, .imin = (int64_t)(min),                    \
                         .imax = (one) ? 1 : (int64_t)(max), .rmin = (double)(min), .rmax = (double)(max) },
static const rcclx_optrow rows[RCCLX_OPT_COUNT] = {
#define X(id, name, type, preset, min, max, flags, help) ROW(id, name, OPTTYPE_##type, preset, min, max, flags, help)
    RCCLX_OPTION_LIST(X)
#undef X
};

static const char *const accepted[] = {
#define X(name) name,
    RCCLX_OPTION_ACCEPTED_LIST(X)
#undef X
};

enum { FROM_ENVIRONMENT, FROM_USER_FILE, FROM_ETC_FILE, FROM_NOWHERE };
enum { POOL_BYTES = 32768, NOTE_BYTES = 32768, SHOWN_BYTES = 96 };

typedef struct {
    rcclx_optvalue value;
    const char    *asked;  /* the candidate's text, in the pool */
    const char    *name;   /* as it was set, in the pool */
    int            source; /* of the candidate */
    int            prefix;
    bool           is_set; /* the candidate became the value */
} slot;

static struct {
    pthread_mutex_t lock;
    atomic_bool     ready;
    atomic_bool     noted; /* notes wait to be flushed */
    slot            slot[RCCLX_OPT_COUNT];
    char            user_file[RCCLX_CONF_LINE];
    char            pool[POOL_BYTES];
    size_t          npool;
    char            notes[NOTE_BYTES]; /* each: one letter, text, NUL */
    size_t          nnotes;
} state = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const char etc_file[] = "/etc/nccl.conf";

/* Names. */

static const char *const prefixes[] = { "RCCLX_", "RCCL_", "NCCL_" }; /* the first wins */

enum { NO_PREFIX = 3 };

/* The rest after one of our prefixes; the whole name when it has none. */
static const char *stem_of(const char *name, int *prefix)
{
    for (*prefix = 0; *prefix < NO_PREFIX; ++*prefix) {
        size_t n = strlen(prefixes[*prefix]);
        if (!strncmp(name, prefixes[*prefix], n))
            return name + n;
    }
    return name;
}

static bool is_ours(const char *name)
{
    int prefix;

    stem_of(name, &prefix);
    return prefix != NO_PREFIX;
}

/* May a setting called `name` stand for the known name `known`? Under NCCL_X
 * come all three prefixes, under RCCL_X and RCCLX_X only those two. */
static bool stands_for(const char *known, const char *name)
{
    int known_prefix, prefix;
    const char *known_stem = stem_of(known, &known_prefix), *stem = stem_of(name, &prefix);
    size_t n = strlen(known_stem);

    if (prefix == 2 && known_prefix != 2)
        return false;
    if (n && known_stem[n - 1] == '*')
        return !strncmp(known_stem, stem, n - 1);
    return !strcmp(known_stem, stem);
}

/* The row a name belongs to: the one called so; or an NCCL_ row it is an alias
 * of; or another. So RCCLX_ALGO is itself and RCCL_ALGO is NCCL_ALGO. */
static int row_of(const char *name)
{
    int found = RCCLX_OPT_COUNT;

    for (int o = 0; o < RCCLX_OPT_COUNT; o++) {
        if (!strcmp(rows[o].name, name))
            return o;
        if (stands_for(rows[o].name, name) && (found == RCCLX_OPT_COUNT || rows[o].name[0] == 'N'))
            found = o;
    }
    return found;
}

static bool is_accepted(const char *name)
{
    for (size_t i = 0; i < sizeof(accepted) / sizeof(accepted[0]); i++)
        if (stands_for(accepted[i], name))
            return true;
    return false;
}

/* Twice the edits between the stems, and one for another prefix, so that the
 * prefix only decides between equals. A key of a file may have lost part of its
 * prefix: then the whole names are compared. */
static void compare(const char *known, const char *name, const char **nearest, int *least)
{
    int known_prefix, prefix;
    const char *known_stem = stem_of(known, &known_prefix), *stem = stem_of(name, &prefix);
    const char *target = prefix == NO_PREFIX ? known : known_stem;
    int longer = abs((int)strlen(target) - (int)strlen(stem));

    if (2 * longer > *least) /* at least so many edits */
        return;
    int distance = 2 * rcclx_optname_distance(target, stem) + (prefix != known_prefix);
    if (distance < *least) {
        *least = distance;
        *nearest = known;
    }
}

/* May a key of a file that has none of our prefixes be meant for us? NCLC_X may; what other
 * software keeps in the same file (TORCH_X, NVSHMEM_X) is not looked at. */
static bool nearly_ours(const char *name)
{
    char word[16];
    int least = 16;

    snprintf(word, sizeof(word), "%.*s", (int)strcspn(name, "_") + 1, name);
    for (int p = 0; p < NO_PREFIX; p++) {
        const int distance = rcclx_optname_distance(prefixes[p], word);
        least = distance < least ? distance : least;
    }
    return least <= 2;
}

/* NULL when no known name is close enough to be meant. */
static const char *nearest_of(const char *name)
{
    int prefix, least = 1000;
    const char *nearest = NULL;

    for (int o = 0; o < RCCLX_OPT_COUNT; o++)
        compare(rows[o].name, name, &nearest, &least);
    for (size_t i = 0; i < sizeof(accepted) / sizeof(accepted[0]); i++)
        if (!strchr(accepted[i], '*'))
            compare(accepted[i], name, &nearest, &least);
    return least / 2 <= 1 + (int)strlen(stem_of(name, &prefix)) / 4 ? nearest : NULL;
}

/* Notes: 'A' an alert, 'I' an INFO line. */

static __attribute__((format(printf, 2, 3))) void note(char kind, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    size_t n = strlen(text) + 2;
    if (n > NOTE_BYTES - state.nnotes)
        return;
    state.notes[state.nnotes] = kind;
    memcpy(state.notes + state.nnotes + 1, text, n - 1);
    state.nnotes += n;
}

static void flush_notes(void)
{
    if (!atomic_exchange(&state.noted, false))
        return;
    for (size_t i = 0; i < state.nnotes; i += strlen(state.notes + i) + 1) {
        if (state.notes[i] == 'A')
            RCCLX_ALERT("%s", state.notes + i + 1);
        else
            RCCLX_INFO_LOG(ENV, "%s", state.notes + i + 1);
    }
}

/* Reading. */

static const char *source_text(int source)
{
    return source == FROM_ENVIRONMENT ? "environment" : source == FROM_USER_FILE ? state.user_file
         : source == FROM_ETC_FILE    ? etc_file      : "default";
}

/* NULL when the pool is full. */
static const char *keep(const char *text)
{
    size_t n = strlen(text) + 1;

    if (n > POOL_BYTES - state.npool)
        return NULL;
    char *kept = memcpy(state.pool + state.npool, text, n);
    state.npool += n;
    return kept;
}

static void note_unknown(const char *name, const char *where)
{
    const char *nearest = nearest_of(name);

    if (nearest)
        note('A', "%.*s (%s) is not a setting of this library and is ignored; did you mean %s?", SHOWN_BYTES, name,
             where, nearest);
    else
        note('A', "%.*s (%s) is not a setting of this library and is ignored; rcclx info --options lists all",
             SHOWN_BYTES, name, where);
}

static void offer(const char *name, const char *value, int source, const char *where)
{
    int o = is_ours(name) ? row_of(name) : RCCLX_OPT_COUNT, prefix;

    if (!*value)
        return;
    if (o == RCCLX_OPT_COUNT) {
        if (!is_ours(name) && !nearly_ours(name))
            note('I', "%.*s (%s) is not for this library.", SHOWN_BYTES, name, where);
        else if (is_ours(name) && is_accepted(name))
            note('I', "%.*s set by %s to %.*s. It has no effect in this library.", SHOWN_BYTES, name,
                 source_text(source), SHOWN_BYTES, value);
        else
            note_unknown(name, where);
        return;
    }
    slot *s = &state.slot[o];
    stem_of(name, &prefix);
    if (source > s->source || (source == s->source && prefix >= s->prefix))
        return;
    const char *kept_name = keep(name), *kept_value = strlen(value) < RCCLX_CONF_LINE ? keep(value) : NULL;
    if (!kept_name || !kept_value) {
        note('A', "%.*s (%s) is too long and is ignored; allowed: %d bytes, all settings together %d", SHOWN_BYTES, name,
             where, RCCLX_CONF_LINE - 1, POOL_BYTES);
        return;
    }
    *s = (slot){ .asked = kept_value, .name = kept_name, .source = source, .prefix = prefix };
}

static void read_environment(void)
{
    for (char **e = environ; e && *e; e++) {
        char name[256];
        const char *equals = strchr(*e, '=');
        if (!equals || !is_ours(*e))
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)(equals - *e < 256 ? equals - *e : 255), *e);
        offer(name, equals + 1, FROM_ENVIRONMENT, "environment");
    }
}

static void take_pair(void *context, int line, const char *name, const char *value)
{
    int source = *(const int *)context;
    char where[RCCLX_CONF_LINE + 16];

    snprintf(where, sizeof(where), "%.200s:%d", source_text(source), line);
    if (name)
        offer(name, value, source, where);
    else
        note('A', "%s: %s; it is ignored", where, value);
}

/* A file that is not there is only worth a word when it was asked for. */
static void read_file(const char *path, int source, bool asked_for)
{
    FILE *in = fopen(path, "re");
    char reason[96];

    if (in) {
        rcclx_conf_read(in, take_pair, &source);
        fclose(in);
    } else if (asked_for) {
        note('A', "NCCL_CONF_FILE: %.200s cannot be read (%s); the settings in it are ignored", path,
             strerror_r(errno, reason, sizeof(reason)));
    }
}

static void read_files(void)
{
    const char *asked = state.slot[RCCLX_OPT_CONF_FILE].asked, *home = getenv("HOME");

    state.user_file[0] = '\0';
    if (asked)
        snprintf(state.user_file, sizeof(state.user_file), "%s", asked);
    else if (home && *home)
        snprintf(state.user_file, sizeof(state.user_file), "%s/.nccl.conf", home);
    if (state.user_file[0])
        read_file(state.user_file, FROM_USER_FILE, asked);
    read_file(etc_file, FROM_ETC_FILE, false);
}

static void settle(int o)
{
    const rcclx_optrow *row = &rows[o];
    slot *s = &state.slot[o];
    char allowed[128], used[SHOWN_BYTES], nearest[32];

    rcclx_optvalue_parse(row, row->preset, &s->value);
    if (!s->asked)
        return;
    rcclx_optverdict verdict = rcclx_optvalue_parse(row, s->asked, &s->value);
    s->is_set = verdict != RCCLX_OPT_REFUSED;
    if (s->is_set)
        note('I', "%s set by %s to %.*s.", s->name, source_text(s->source), SHOWN_BYTES * 4, s->asked);
    if (verdict == RCCLX_OPT_TAKEN)
        return;
    rcclx_optvalue_allowed(row, allowed, sizeof(allowed));
    rcclx_optvalue_print(row, &s->value, used, sizeof(used));
    rcclx_optvalue_nearest(row, s->asked, nearest, sizeof(nearest));
    note('A', "%s=%.*s (%s) is %s: using %s%s; allowed: %s%s%s%s", s->name, SHOWN_BYTES, s->asked, source_text(s->source),
         s->is_set ? "out of range" : "not understood", s->is_set ? "" : "the default ", used, allowed,
         *nearest ? "; did you mean " : "", nearest, *nearest ? "?" : "");
}

/* With the lock held. */
static void read_all(void)
{
    memset(state.slot, 0, sizeof(state.slot));
    state.npool = state.nnotes = 0;
    for (int o = 0; o < RCCLX_OPT_COUNT; o++)
        state.slot[o].source = FROM_NOWHERE;
    read_environment();
    read_files();
    for (int o = 0; o < RCCLX_OPT_COUNT; o++)
        settle(o);
    atomic_store(&state.noted, true);
    atomic_store_explicit(&state.ready, true, memory_order_release);
}

static __attribute__((noinline)) void read_once(void)
{
    pthread_mutex_lock(&state.lock);
    if (!atomic_load(&state.ready))
        read_all();
    pthread_mutex_unlock(&state.lock);
    flush_notes();
}

static const slot *look(rcclx_option o)
{
    if (__builtin_expect(!atomic_load_explicit(&state.ready, memory_order_acquire), 0))
        read_once();
    return &state.slot[o];
}

/* Getters. */

int64_t rcclx_option_int(rcclx_option o)
{
    return look(o)->value.i;
}

double rcclx_option_real(rcclx_option o)
{
    return look(o)->value.r;
}

const char *rcclx_option_str(rcclx_option o)
{
    const slot *s = look(o);

    return s->value.text ? s->value.text : s->is_set ? s->asked : rows[o].preset;
}

bool rcclx_option_is_set(rcclx_option o)
{
    return look(o)->is_set;
}

void rcclx_option_reload(void)
{
    pthread_mutex_lock(&state.lock);
    read_all();
    pthread_mutex_unlock(&state.lock);
    rcclx_log_reload();
    flush_notes();
}

const rcclx_optrow *rcclx_option_row(rcclx_option o)
{
    return &rows[o];
}

const rcclx_optvalue *rcclx_option_value(rcclx_option o)
{
    return &look(o)->value;
}

const char *rcclx_option_source(rcclx_option o)
{
    const slot *s = look(o);

    return source_text(s->is_set ? s->source : FROM_NOWHERE);
}
