/* See library.h. What a plug-in warns of is kept a moment, so that the error that follows
 * can quote it:
 *
 *   isend() -- log(WARN, "link down") --> words        returns 2
 *   "plug-in x: isend failed: link down"  <-- words */
#include "base/library.h"

#include "base/clock.h"
#include "base/log.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { WORDS = 160, FRESH_NS = 1000000000 };

static _Thread_local char     words[WORDS];
static _Thread_local uint64_t said_at;

static void *try_open(const char *file, char *why, size_t nwhy)
{
    void *library = dlopen(strcasecmp(file, "STATIC_PLUGIN") ? file : NULL, RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        const size_t at = strlen(why);
        const char *text = dlerror();
        snprintf(why + at, nwhy - at, "%s%s", at ? "; " : "", text ? text : file);
    }
    return library;
}

void *rcclx_library_open(const char *prefix, const char *name, char *why, size_t nwhy)
{
    const size_t n = strlen(name);
    const bool is_file = strchr(name, '/') || (!strncmp(name, "lib", 3) && n > 3 && !strcmp(name + n - 3, ".so"));
    char file[512];

    why[0] = 0;
    snprintf(file, sizeof(file), *name ? "%s" : "%s.so", *name ? name : prefix);
    void *library = try_open(file, why, nwhy);
    if (!library && *name && !is_file) {
        snprintf(file, sizeof(file), "%s-%s.so", prefix, name);
        library = try_open(file, why, nwhy);
    }
    return library;
}

void rcclx_library_log(int level, unsigned long subsys, const char *file, int line, const char *format, ...)
{
    char text[1024];
    va_list ap;

    if (level < RCCLX_LOG_NONE || level > RCCLX_LOG_TRACE)
        return;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    if (level == RCCLX_LOG_WARN) {
        snprintf(words, sizeof(words), "%.*s", WORDS - 1, text);
        said_at = rcclx_clock_ns();
    }
    rcclx_log((rcclx_log_level)level, (unsigned)subsys, file ? file : "plugin", line, "%s", text);
}

void rcclx_library_words(char *text, size_t n)
{
    const bool fresh = words[0] && rcclx_clock_ns() - said_at < FRESH_NS;

    snprintf(text, n, "%s", fresh ? words : "");
    words[0] = 0;
}

const char *rcclx_library_result(int result)
{
    static const char *const texts[] = { "success", "unhandled CUDA error", "system error", "internal error", "invalid argument",
                                         "invalid usage", "remote error", "in progress" };

    return result >= 0 && result < (int)(sizeof(texts) / sizeof(*texts)) ? texts[result] : "unknown result";
}
