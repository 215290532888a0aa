/* A line is put together on the stack and handed over with one write(), so that
 * the lines of several threads and processes do not mix:
 *
 *   [time] host:pid:tid [dev] file:line NCCL WARN text\n
 *   \_____________ write_head ________________/ \_ vsnprintf
 *
 * The settings are read by whoever logs first. They are rows of options.h, and
 * reading those may in turn log; hence every way in asks for the options before
 * it takes the lock here. */
#include "base/log.h"

#include "base/clock.h"
#include "base/option.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 4096, ERROR_BYTES = 1024, HOST_BYTES = 65 };

static struct {
    pthread_mutex_t lock;
    atomic_bool     ready;
    atomic_int      level;      /* rcclx_log_level */
    atomic_uint     subsys;     /* bits of rcclx_subsys */
    atomic_int      fd;
    bool            fd_is_ours; /* this and below: written under the lock before ready */
    bool            silent;     /* NCCL_DEBUG=NONE was asked for */
    unsigned        timed;      /* bit l: lines of level l carry the time */
    uint64_t        start_ns;
    char            host[HOST_BYTES];
    char            time_format[256];
    char            error[ERROR_BYTES]; /* the newest; under the lock */
} state = { .lock = PTHREAD_MUTEX_INITIALIZER, .fd = STDOUT_FILENO };

static _Thread_local int  device = -1;
static _Thread_local char error_copy[ERROR_BYTES];

/* Settings. */

typedef struct { const char *name; unsigned bits; } word;

static const word subsystems[] = {
#define X(name, bit) { #name, bit },
    RCCLX_SUBSYS_LIST(X)
#undef X
    { "ALL", RCCLX_SUBSYS_ALL }, { NULL, 0 },
};

static const word levels[] = {
    { "VERSION", 1u << RCCLX_LOG_VERSION }, { "WARN", 1u << RCCLX_LOG_WARN },   { "INFO", 1u << RCCLX_LOG_INFO },
    { "ABORT", 1u << RCCLX_LOG_ABORT },     { "TRACE", 1u << RCCLX_LOG_TRACE }, { "ALL", ~0u },
    { NULL, 0 },
};

/* "A,B": those bits; "^A,B": all but those. The first word that is none comes
 * back in `stray`. */
static unsigned parse_words(const char *list, const word *words, unsigned all, const char **stray)
{
    bool invert = *list == '^';
    unsigned bits = 0;

    while (*list) {
        list += strspn(list, "^, \t");
        size_t n = strcspn(list, ", \t");
        const word *w = words;
        while (n && w->name && (strlen(w->name) != n || strncasecmp(w->name, list, n)))
            w++;
        if (n && w->name)
            bits |= w->bits;
        else if (n && !*stray)
            *stray = list;
        list += n;
    }
    return invert ? all & ~bits : bits;
}

/* %h is the host, %p the process; anything else stands as it is. */
static void expand_path(const char *form, char *path, size_t nbytes)
{
    size_t n = 0;

    for (; *form && n + 1 < nbytes; form++) {
        int wrote = -1;
        if (form[0] == '%' && form[1] == 'h')
            wrote = snprintf(path + n, nbytes - n, "%s", state.host);
        else if (form[0] == '%' && form[1] == 'p')
            wrote = snprintf(path + n, nbytes - n, "%d", (int)getpid());
        else if (form[0] == '%' && form[1] == '%')
            wrote = snprintf(path + n, nbytes - n, "%%");
        else
            path[n++] = *form;
        if (wrote >= 0) {
            n += (size_t)wrote;
            form++;
        }
    }
    path[n < nbytes ? n : nbytes - 1] = '\0';
}

/* The terminal's two names are the descriptors we have: opening them anew would
 * truncate a file that the shell sent them to. */
static int open_file(const char *form)
{
    char path[1024];

    expand_path(form, path, sizeof(path));
    if (!*path || !strcmp(path, "/dev/stdout"))
        return STDOUT_FILENO;
    if (!strcmp(path, "/dev/stderr"))
        return STDERR_FILENO;
    return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
}

static void find_host(void)
{
    if (gethostname(state.host, sizeof(state.host)))
        snprintf(state.host, sizeof(state.host), "unknown");
    state.host[sizeof(state.host) - 1] = '\0';
    state.host[strcspn(state.host, ".")] = '\0';
}

typedef struct {
    bool        file;
    const char *subsys, *timed; /* first stray word, or NULL */
} complaints;

/* With the lock held. */
static void read_settings(complaints *c)
{
    int level = (int)rcclx_option_int(RCCLX_OPT_DEBUG), fd = STDOUT_FILENO;

    find_host();
    if (state.fd_is_ours)
        close(atomic_load(&state.fd));
    if (level > RCCLX_LOG_VERSION)
        fd = open_file(rcclx_option_str(RCCLX_OPT_DEBUG_FILE));
    c->file = fd < 0;
    state.fd_is_ours = fd > STDERR_FILENO;
    state.silent = level == RCCLX_LOG_NONE && rcclx_option_is_set(RCCLX_OPT_DEBUG);
    state.timed = parse_words(rcclx_option_str(RCCLX_OPT_DEBUG_TIMESTAMP_LEVELS), levels, ~0u, &c->timed);
    snprintf(state.time_format, sizeof(state.time_format), "%s", rcclx_option_str(RCCLX_OPT_DEBUG_TIMESTAMP_FORMAT));
    state.start_ns = state.start_ns ? state.start_ns : rcclx_clock_ns();
    atomic_store(&state.fd, fd < 0 ? STDOUT_FILENO : fd);
    atomic_store(&state.subsys,
                 parse_words(rcclx_option_str(RCCLX_OPT_DEBUG_SUBSYS), subsystems, RCCLX_SUBSYS_ALL, &c->subsys));
    atomic_store(&state.level, level);
    atomic_store_explicit(&state.ready, true, memory_order_release);
}

static void complain(const complaints *c)
{
    if (c->file)
        RCCLX_ALERT("NCCL_DEBUG_FILE=%s cannot be opened; the log goes to standard output",
                    rcclx_option_str(RCCLX_OPT_DEBUG_FILE));
    if (c->subsys)
        RCCLX_ALERT("NCCL_DEBUG_SUBSYS: %.*s is no subsystem and is ignored; allowed: INIT COLL P2P SHM NET GRAPH TUNING "
                    "ENV ALLOC ALLOC_HOST CALL PROXY NVLS BOOTSTRAP REG PROFILE RAS DESTROY ALL",
                    (int)strcspn(c->subsys, ", \t"), c->subsys);
    if (c->timed)
        RCCLX_ALERT("NCCL_DEBUG_TIMESTAMP_LEVELS: %.*s is no level and is ignored; allowed: VERSION WARN INFO ABORT TRACE "
                    "ALL", (int)strcspn(c->timed, ", \t"), c->timed);
}

static void ensure(bool again)
{
    complaints c = { 0 };

    if (!again && atomic_load_explicit(&state.ready, memory_order_acquire))
        return;
    (void)rcclx_option_int(RCCLX_OPT_DEBUG); /* may log, so before the lock */
    pthread_mutex_lock(&state.lock);
    if (again || !atomic_load(&state.ready))
        read_settings(&c);
    pthread_mutex_unlock(&state.lock);
    complain(&c);
}

void rcclx_log_reload(void)
{
    ensure(true);
}

bool rcclx_log_on(rcclx_log_level level, unsigned subsys)
{
    ensure(false);
    if ((int)level > atomic_load_explicit(&state.level, memory_order_relaxed) || level == RCCLX_LOG_NONE)
        return false;
    return level <= RCCLX_LOG_WARN || (subsys & atomic_load_explicit(&state.subsys, memory_order_relaxed));
}

void rcclx_log_device(int dev)
{
    device = dev;
}

/* Lines. */

typedef struct {
    char   text[LINE_BYTES];
    size_t n;
} line;

static __attribute__((format(printf, 2, 0))) void append_list(line *l, const char *format, va_list args)
{
    int wrote = vsnprintf(l->text + l->n, LINE_BYTES - l->n, format, args);

    if (wrote > 0)
        l->n = l->n + (size_t)wrote < LINE_BYTES ? l->n + (size_t)wrote : LINE_BYTES - 1;
}

static __attribute__((format(printf, 2, 3))) void append(line *l, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    append_list(l, format, args);
    va_end(args);
}

/* strftime, after %1f to %9f have become digits of the second's fraction. */
static void append_time(line *l)
{
    char form[512], text[512];
    struct timespec now;
    struct tm parts;
    size_t n = 0;

    clock_gettime(CLOCK_REALTIME, &now);
    for (const char *f = state.time_format; *f && n + 10 < sizeof(form); f++) {
        if (f[0] == '%' && f[1] >= '1' && f[1] <= '9' && f[2] == 'f') {
            char digits[16];
            snprintf(digits, sizeof(digits), "%09ld", (long)now.tv_nsec);
            memcpy(form + n, digits, (size_t)(f[1] - '0'));
            n += (size_t)(f[1] - '0');
            f += 2;
        } else {
            form[n++] = *f;
            if (f[0] == '%' && f[1] == '%')
                form[n++] = *++f;
        }
    }
    form[n] = '\0';
    if (localtime_r(&now.tv_sec, &parts) && strftime(text, sizeof(text), form, &parts))
        append(l, "%s", text);
}

/* What follows the last src/ of a path, or its last part. */
static const char *short_file(const char *file)
{
    const char *found = NULL;

    for (const char *s = file; (s = strstr(s, "src/")); s += 4)
        if (s == file || s[-1] == '/')
            found = s + 4;
    if (found)
        return found;
    const char *slash = strrchr(file, '/');
    return slash ? slash + 1 : file;
}

static void append_head(line *l, rcclx_log_level level, unsigned subsys, const char *file, int number)
{
    if (level == RCCLX_LOG_WARN)
        append(l, "\n");
    if (state.timed >> level & 1)
        append_time(l);
    append(l, "%s:%d:%d ", state.host, (int)getpid(), (int)syscall(SYS_gettid));
    if (level == RCCLX_LOG_TRACE && subsys == RCCLX_CALL) {
        append(l, "NCCL CALL ");
        return;
    }
    append(l, "[%d] ", device);
    if (level == RCCLX_LOG_WARN)
        append(l, "%s:%d NCCL WARN ", short_file(file), number);
    else if (level == RCCLX_LOG_ABORT)
        append(l, "%s:%d NCCL ABORT ", short_file(file), number);
    else if (level == RCCLX_LOG_TRACE)
        append(l, "%f %s:%d NCCL TRACE ", (double)(rcclx_clock_ns() - state.start_ns) * 1e-6, short_file(file), number);
    else
        append(l, "NCCL INFO ");
}

static void write_line(line *l, int fd)
{
    int saved = errno;
    size_t done = 0;

    if (l->n > LINE_BYTES - 2) {
        l->n = LINE_BYTES - 2;
        memcpy(l->text + l->n - 3, "...", 3);
    }
    l->text[l->n++] = '\n';
    while (done < l->n) {
        ssize_t wrote = write(fd, l->text + done, l->n - done);
        if (wrote < 0 && errno != EINTR)
            break;
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    errno = saved;
}

static __attribute__((format(printf, 6, 0))) void print_line(int fd, rcclx_log_level level, unsigned subsys,
                                                             const char *file, int number, const char *format,
                                                             va_list args)
{
    int saved = errno;
    line l;

    l.n = 0;
    /* As users know it, the version stands bare at VERSION and WARN and is an
     * INFO line from there on. */
    if (level != RCCLX_LOG_VERSION)
        append_head(&l, level, subsys, file, number);
    else if (atomic_load(&state.level) > RCCLX_LOG_WARN)
        append_head(&l, RCCLX_LOG_INFO, subsys, file, number);
    errno = saved; /* for %m */
    append_list(&l, format, args);
    write_line(&l, fd);
}

void rcclx_log(rcclx_log_level level, unsigned subsys, const char *file, int number, const char *format, ...)
{
    va_list args;

    if (!rcclx_log_on(level, subsys))
        return;
    va_start(args, format);
    print_line(atomic_load(&state.fd), level, subsys, file, number, format, args);
    va_end(args);
}

void rcclx_alert(const char *file, int number, const char *format, ...)
{
    bool on = rcclx_log_on(RCCLX_LOG_WARN, RCCLX_SUBSYS_ALL);
    va_list args;

    if (state.silent)
        return;
    va_start(args, format);
    print_line(on ? atomic_load(&state.fd) : STDERR_FILENO, RCCLX_LOG_WARN, RCCLX_SUBSYS_ALL, file, number, format, args);
    va_end(args);
}

/* Failures. */

rcclx_status rcclx_fail(rcclx_status s, const char *file, int number, const char *format, ...)
{
    char text[ERROR_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    rcclx_last_error_set(text);
    rcclx_log(RCCLX_LOG_WARN, RCCLX_SUBSYS_ALL, file, number, "%s", text);
    return s;
}

rcclx_status rcclx_fail_errno(const char *file, int number, const char *format, ...)
{
    int error = errno;
    char text[ERROR_BYTES - 128], reason[96];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return rcclx_fail(error == ENOMEM ? RCCLX_NOMEM : RCCLX_SYSTEM, file, number, "%s: %s (errno %d)", text,
                      strerror_r(error, reason, sizeof(reason)), error);
}

const char *rcclx_last_error(void)
{
    pthread_mutex_lock(&state.lock);
    memcpy(error_copy, state.error, sizeof(error_copy));
    pthread_mutex_unlock(&state.lock);
    return error_copy;
}

void rcclx_last_error_set(const char *text)
{
    pthread_mutex_lock(&state.lock);
    snprintf(state.error, sizeof(state.error), "%s", text);
    pthread_mutex_unlock(&state.lock);
}
