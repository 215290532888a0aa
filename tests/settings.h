#ifndef RCCLX_TESTS_SETTINGS_H
#define RCCLX_TESTS_SETTINGS_H

/* For tests of settings and of the log, after check.h:
 *
 *   settings_clear();                      // no setting of ours, an empty HOME
 *   setenv("NCCL_DEBUG", "INFO", 1);
 *   const settings_output *got = settings_reload();
 *   CHECK(settings_has(got->err, "..."), "%s", got->err);
 *
 * or, around anything that prints, settings_capture and settings_captured.
 * What is captured stays valid until the next capture. No CHECK in between: its
 * lines would be captured too. */
#include "base/option.h"

extern char **environ;

typedef struct {
    char out[65536], err[65536];
} settings_output;

static settings_output settings_state_output;
static int             settings_state_saved[2];
static char            settings_state_home[64];

static inline void settings_remove_home(void)
{
    char path[96];

    snprintf(path, sizeof(path), "%s/.nccl.conf", settings_state_home);
    unlink(path);
    rmdir(settings_state_home);
}

static inline bool settings_is_ours(const char *name)
{
    return (!strncmp(name, "NCCL_", 5) || !strncmp(name, "RCCL_", 5) || !strncmp(name, "RCCLX_", 6))
        && strncmp(name, "RCCLX_TEST_", 11) && strncmp(name, "RCCLX_BUILD=", 12);
}

static inline void settings_write_home_file(const char *text)
{
    char path[96];

    snprintf(path, sizeof(path), "%s/.nccl.conf", settings_state_home);
    FILE *f = fopen(path, "w");
    if (f) {
        fputs(text, f);
        fclose(f);
    }
}

static inline void settings_clear(void)
{
    char name[256];

    for (char **e = environ; *e;) {
        if (!settings_is_ours(*e)) {
            e++;
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(*e, "="), *e);
        unsetenv(name);
        e = environ;
    }
    if (!*settings_state_home) {
        snprintf(settings_state_home, sizeof(settings_state_home), "/tmp/rcclx-settings-XXXXXX");
        if (!mkdtemp(settings_state_home))
            abort();
        atexit(settings_remove_home);
    }
    setenv("HOME", settings_state_home, 1);
    settings_write_home_file("");
}

static inline void settings_capture(void)
{
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        int fd = memfd_create("captured", MFD_CLOEXEC);
        settings_state_saved[i] = fcntl(STDOUT_FILENO + i, F_DUPFD_CLOEXEC, 10);
        if (fd < 0 || dup2(fd, STDOUT_FILENO + i) < 0)
            abort();
        close(fd);
    }
}

static inline void settings_take(int i, char *text, size_t nbytes)
{
    fflush(NULL);
    ssize_t n = pread(STDOUT_FILENO + i, text, nbytes - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    dup2(settings_state_saved[i], STDOUT_FILENO + i);
    close(settings_state_saved[i]);
}

static inline const settings_output *settings_captured(void)
{
    settings_take(0, settings_state_output.out, sizeof(settings_state_output.out));
    settings_take(1, settings_state_output.err, sizeof(settings_state_output.err));
    return &settings_state_output;
}

static inline const settings_output *settings_reload(void)
{
    settings_capture();
    rcclx_option_reload();
    return settings_captured();
}

/* How often `part` stands in `text`. */
static inline int settings_has(const char *text, const char *part)
{
    int n = 0;

    for (const char *s = text; (s = strstr(s, part)); s += strlen(part))
        n++;
    return n;
}

#endif
