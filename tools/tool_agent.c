/* Ranks of several machines, the far side: `rcclx run --far-side`, started by ssh.
 *
 *     standard input    the note, "go PORT", then nothing until it closes: the leash
 *     standard error    up PORT ... dead RANK PID e|s CODE ... end CODE, behind a mark,
 *                       among the ranks' lines
 *
 * Lines of ranks are passed on whole, so that a marked line always stands by itself. */
#include "tool.h"
#include "tool_far.h"
#include "tool_jobs.h"
#include "tool_note.h"
#include "tool_rank.h"

#include "rcclx.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    char       *body;
    size_t      size;
    const char *version, *folder, *flags;
    tool_ranks  ranks;
} agent;

static void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void tell(const char *format, ...)
{
    char    text[128];
    va_list args;
    int     n = snprintf(text, sizeof(text), "%s", TOOL_NOTE_MARK);

    va_start(args, format);
    n += vsnprintf(text + n, sizeof(text) - (size_t)n, format, args);
    va_end(args);
    for (const char *p = text; n > 0;) {
        const ssize_t k = write(STDERR_FILENO, p, (size_t)n);

        if (k < 0 && errno != EINTR)
            return; /* nobody listens */
        p += k > 0 ? k : 0;
        n -= k > 0 ? (int)k : 0;
    }
}

/* --- reading ------------------------------------------------------------------ */

static bool read_all(char *to, size_t n)
{
    while (n) {
        const ssize_t k = read(STDIN_FILENO, to, n);

        if (k == 0 || (k < 0 && errno != EINTR))
            return false;
        to += k > 0 ? k : 0;
        n -= k > 0 ? (size_t)k : 0;
    }
    return true;
}

static int read_note(agent *a)
{
    char header[TOOL_NOTE_HEADER];
    long n;

    if (isatty(STDIN_FILENO) || !read_all(header, sizeof(header)) || (n = tool_note_header(header)) < 0)
        return tool_usage("run", "--far-side is what rcclx run --hosts starts on other machines");
    a->size = (size_t)n;
    a->body = malloc(a->size + 1);
    if (!a->body)
        return tool_fail("run", "out of memory for a note of %ld bytes", n);
    return read_all(a->body, a->size) ? TOOL_OK : tool_fail("run", "the note ended early");
}

static void take_string(agent *a, const char *s, int *nargs)
{
    tool_ranks *r = &a->ranks;

    switch (*s) {
    case 'v': a->version = s + 1; break;
    case 'h': r->host = s + 1; break;
    case 'i': r->id = s + 1; break;
    case 'm': r->address = s + 1; break;
    case 'f': a->flags = s + 1; break;
    case 'w': a->folder = s + 1; break;
    case 'n':
        if (sscanf(s + 1, "%d %d %d", &r->first, &r->local, &r->world) != 3)
            r->local = 0;
        break;
    case 'a': r->argv[(*nargs)++] = (char *)(uintptr_t)(s + 1); break;
    default: break; /* variables come later */
    }
}

/* Pointers into the note. */
static int take_note(agent *a)
{
    tool_ranks *r     = &a->ranks;
    int         nargs = 0;

    r->argv = calloc(a->size + 1, sizeof(*r->argv));
    if (!r->argv)
        return tool_fail("run", "out of memory for a note of %zu bytes", a->size);
    for (const char *s = NULL; (s = tool_note_next(a->body, a->size, s));)
        take_string(a, s, &nargs);
    if (!a->version || strcmp(a->version, RCCLX_VERSION))
        return tool_fail("run", "host %s has rcclx %s, and the job was started by %s; install the same", r->host ? r->host : "?",
                         RCCLX_VERSION, a->version ? a->version : "another");
    if (!nargs || !r->host || !r->id || !r->address || !a->flags || !a->folder || r->local < 1 || r->local > 4096 || r->first < 0 ||
        r->world < r->local || r->first > r->world - r->local)
        return tool_fail("run", "the note makes no sense");
    return TOOL_OK;
}

static void take_variables(const agent *a)
{
    for (const char *s = NULL; (s = tool_note_next(a->body, a->size, s));) {
        const char *is = strchr(s, '=');
        char       *name;

        if (*s != 'e' || !is || !(name = strndup(s + 1, (size_t)(is - s - 1))))
            continue;
        setenv(name, is + 1, 1);
        free(name);
    }
}

/* --- the job -------------------------------------------------------------------- */

/* "go PORT" comes when all machines are there; the end of input: it never will. */
static bool await_go(int *port)
{
    char   text[32];
    size_t n = 0;

    while (n < sizeof(text) - 1 && read_all(text + n, 1) && text[n] != '\n')
        n++;
    text[n] = 0;
    return sscanf(text, "go %d", port) == 1;
}

static int ended(void *arg, int local, pid_t pid, bool exited, int number, bool stopping)
{
    const agent *a    = arg;
    const int    code = exited ? number : 128 + number;

    if (code && !stopping)
        tell("dead %d %d %c %d\n", a->ranks.first + local, (int)pid, exited ? 'e' : 's', number);
    return code;
}

static int child(int local, void *arg)
{
    const agent *a = arg;

    signal(SIGPIPE, SIG_DFL);
    return tool_rank_become(&a->ranks, local);
}

static int start(agent *a)
{
    static const tool_job_hooks hooks = {.ended = ended};
    tool_ranks                 *r     = &a->ranks;
    const tool_job job = {.who = "run", .what = r->argv[0], .nranks = r->local, .first = r->first, .lines = true, .leashed = true,
                          .tag = strchr(a->flags, 'T'), .bind = strchr(a->flags, 'b'), .child = child, .arg = a, .hooks = &hooks};
    const int      free_port = tool_rank_port();

    if (free_port < 0)
        return tool_fail("run", "host %s: no free port for MASTER_PORT: %s", r->host, strerror(errno));
    take_variables(a);
    if (strchr(a->flags, 'P') && tool_rank_preload() != TOOL_OK)
        return TOOL_FAILED;
    if (*a->folder && chdir(a->folder))
        tool_fail("run", "host %s: %s: %s; the ranks begin in %s", r->host, a->folder, strerror(errno),
                  getenv("HOME") ? getenv("HOME") : "/");
    tell("up %d\n", free_port);
    return await_go(&r->port) ? tool_job_run(&job) : 128 + SIGHUP;
}

int tool_agent(void)
{
    agent a    = {0};
    int   code = read_note(&a);

    signal(SIGPIPE, SIG_IGN);
    if (code == TOOL_OK)
        code = take_note(&a);
    if (code == TOOL_OK)
        code = start(&a);
    tell("end %d\n", code);
    free(a.ranks.argv);
    free(a.body);
    return code;
}
