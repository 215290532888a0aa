/* Ranks of several machines, this side.
 *
 *     rcclx run ---- ssh a ---- rcclx run --far-side ---- rank 0, rank 1
 *         |  note ->       <- lines
 *         `--------- ssh b ---- rcclx run --far-side ---- rank 2, rank 3
 *
 * A child a machine: ssh, whose standard input is a pipe. Through it goes a note with
 * all there is to know (so nothing has to be quoted for a shell, or is seen by ps), then,
 * when all machines have answered, "go" with the port that is free on the first. The
 * pipe is also the leash: when it closes, whatever the reason, the far side stops its
 * ranks. What ranks say comes back through ssh; among it are marked lines, the far
 * side's own. */
#include "tool_far.h"

#include "tool.h"
#include "tool_hosts.h"
#include "tool_jobs.h"
#include "tool_note.h"

#include "rcclx.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_S = 30, STOP_S = 4, MAX_WORDS = 64 };

typedef struct {
    int  pipe[2];
    int  first, count; /* its ranks */
    bool up, over;     /* it has answered; it has said its last word */
} host_state;

typedef struct {
    const tool_far *f;
    tool_hosts      hosts;
    host_state     *at; /* by host */
    int             n, nranks, nup, port;
    char            path[PATH_MAX];          /* rcclx over there */
    char            command[2 * PATH_MAX];   /* for a shell over there */
    char            here[TOOL_HOST_NAME], cwd[PATH_MAX];
} far_state;

/* --- who and where ------------------------------------------------------------ */

/* Slots are filled host by host. */
static int deal(far_state *s)
{
    int left = s->nranks = s->f->nranks ? s->f->nranks : s->hosts.slots;

    if (left > s->hosts.slots)
        return tool_usage("run", "-n %d: --hosts has %d slots, on %d host%s; write host:slots, or slots=N in a file, for more",
                          left, s->hosts.slots, s->hosts.n, s->hosts.n == 1 ? "" : "s");
    s->at = calloc((size_t)s->hosts.n, sizeof(*s->at));
    if (!s->at)
        return tool_fail("run", "out of memory for %d hosts", s->hosts.n);
    for (; left; s->n++) {
        const int slots = s->hosts.host[s->n].slots;

        s->at[s->n] = (host_state){.pipe = {-1, -1}, .first = s->nranks - left, .count = left < slots ? left : slots};
        left -= s->at[s->n].count;
    }
    return TOOL_OK;
}

static const char *host_name(const far_state *s, int i)
{
    const char *name = s->hosts.host[i].name, *at = strchr(name, '@');

    return at ? at + 1 : name;
}

static bool is_loopback(const char *name)
{
    return !strcmp(name, "localhost") || !strncmp(name, "127.", 4) || !strcmp(name, "::1");
}

/* With an ssh of the user's own, every host is gone to by it. */
static bool is_here(const far_state *s, int i)
{
    const char *name = s->hosts.host[i].name;

    return !s->f->ssh && (is_loopback(name) || !strcmp(name, s->here));
}

static int find_address(const far_state *s, const char **address)
{
    *address = s->f->address ? s->f->address : host_name(s, 0);
    if (is_loopback(*address) && s->n > 1)
        return tool_usage("run", "ranks on %d hosts cannot find rank 0 at %s; name the first host as the others know it, or give "
                          "--master-addr", s->n, *address);
    if (!s->f->address && is_here(s, 0) && s->n == 1)
        *address = "127.0.0.1";
    return TOOL_OK;
}

/* A command of one word for any shell: 'it'\''s'. */
static int find_program(far_state *s)
{
    const char *path = s->f->rcclx;
    size_t      n;

    if (!path) {
        const ssize_t k = readlink("/proc/self/exe", s->path, sizeof(s->path) - 1);

        if (k < 0)
            return tool_fail("run", "/proc/self/exe: %s", strerror(errno));
        s->path[k] = 0;
    } else if ((size_t)snprintf(s->path, sizeof(s->path), "%s", path) >= sizeof(s->path)) {
        return tool_usage("run", "--rcclx: a path of at most %d characters", PATH_MAX - 1);
    }
    n = (size_t)snprintf(s->command, sizeof(s->command), "exec '");
    for (const char *c = s->path; *c && n < sizeof(s->command) - 32; c++)
        n += (size_t)snprintf(s->command + n, sizeof(s->command) - n, *c == '\'' ? "'\\''" : "%c", *c);
    snprintf(s->command + n, sizeof(s->command) - n, "' run --far-side");
    return TOOL_OK;
}

/* --- the note ------------------------------------------------------------------- */

/* NCCL_HOSTID names one machine. */
static bool is_passed(const char *variable)
{
    static const char *const families[] = {"NCCL_", "RCCL_", "RCCLX_", "UCX_", "PATH=", "LD_LIBRARY_PATH=", "PYTHONPATH="};

    for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++)
        if (!strncmp(variable, families[i], strlen(families[i])))
            return strncmp(variable, "NCCL_HOSTID=", 12) != 0;
    return false;
}

static int add_variables(const far_state *s, tool_note *n)
{
    /* Named outright, the linker would give this program an environ of its own, and a library that is opened later (deep
     * binding) the C library's, which is then empty. */
    char ***environment = dlsym(RTLD_DEFAULT, "environ");

    for (char **e = environment ? *environment : NULL; e && *e; e++)
        if (is_passed(*e))
            tool_note_add(n, 'e', "%s", *e);
    for (int i = 0; i < s->f->nvars; i++) {
        const char *v = s->f->vars[i], *value;

        if (*v == '=' || !*v)
            return tool_usage("run", "-x %s: a variable has a name", v);
        if (strchr(v, '='))
            tool_note_add(n, 'e', "%s", v);
        else if ((value = getenv(v)))
            tool_note_add(n, 'e', "%s=%s", v, value);
        else
            return tool_usage("run", "-x %s: it is not set here; write -x %s=VALUE", v, v);
    }
    return TOOL_OK;
}

static int write_note(const far_state *s, int i, const char *address, tool_note *n)
{
    const tool_far *f = s->f;

    tool_note_add(n, 'v', "%s", RCCLX_VERSION);
    tool_note_add(n, 'h', "%s", s->hosts.host[i].name);
    tool_note_add(n, 'n', "%d %d %d", s->at[i].first, s->at[i].count, s->nranks);
    tool_note_add(n, 'i', "%s", f->id);
    tool_note_add(n, 'm', "%s", address);
    tool_note_add(n, 'f', "%s%s%s", f->tag ? "T" : "", f->bind ? "b" : "", f->preload ? "P" : "");
    tool_note_add(n, 'w', "%s", s->cwd);
    for (char **a = f->argv; *a; a++)
        tool_note_add(n, 'a', "%s", *a);
    return add_variables(s, n);
}

/* It lies in the pipe before anybody reads there, so nobody here waits for a slow ssh. */
static int post_note(const far_state *s, int i, const tool_note *n)
{
    const int to = s->at[i].pipe[1];

    if (n->size > 65536 && fcntl(to, F_SETPIPE_SZ, TOOL_NOTE_MAX) < 0)
        return tool_fail("run", "host %s: variables and arguments of %zu bytes are too many here: %s", s->hosts.host[i].name, n->size,
                         strerror(errno));
    fcntl(to, F_SETFL, O_NONBLOCK);
    if (write(to, n->bytes, n->size) != (ssize_t)n->size)
        return tool_fail("run", "host %s: variables and arguments of %zu bytes do not fit a pipe", s->hosts.host[i].name, n->size);
    return TOOL_OK;
}

static int before(void *arg, int i)
{
    far_state  *s = arg;
    tool_note   n = {0};
    const char *address;
    int         code = find_address(s, &address);

    if (code == TOOL_OK)
        code = write_note(s, i, address, &n);
    if (code == TOOL_OK && !tool_note_close(&n))
        code = tool_fail("run", "variables and arguments have more than %d bytes", TOOL_NOTE_MAX);
    if (code == TOOL_OK && pipe2(s->at[i].pipe, O_CLOEXEC))
        code = tool_fail("run", "host %s: pipe: %s", s->hosts.host[i].name, strerror(errno));
    if (code == TOOL_OK)
        code = post_note(s, i, &n);
    tool_note_fini(&n);
    return code;
}

/* --- going there ------------------------------------------------------------------ */

/* ssh asks nothing: nobody could answer for all hosts at once. */
static void go_by_ssh(const far_state *s, int i)
{
    char *words[MAX_WORDS + 3], *rest;
    char  text[1024];
    int   n = 0;

    snprintf(text, sizeof(text), "%s", s->f->ssh ? s->f->ssh : "ssh -o BatchMode=yes -o ConnectTimeout=10");
    for (char *w = strtok_r(text, " ", &rest); w && n < MAX_WORDS; w = strtok_r(NULL, " ", &rest))
        words[n++] = w;
    words[n]     = (char *)(uintptr_t)s->hosts.host[i].name;
    words[n + 1] = (char *)(uintptr_t)s->command;
    words[n + 2] = NULL;
    execvp(words[0], words);
    tool_fail("run", "%s: %s; is it installed? --ssh names another", words[0], strerror(errno));
}

static int child(int i, void *arg)
{
    const far_state *s = arg;

    dup2(s->at[i].pipe[0], STDIN_FILENO);
    signal(SIGPIPE, SIG_DFL);
    if (is_here(s, i)) {
        execl(s->path, "rcclx", "run", "--far-side", (char *)NULL);
        tool_fail("run", "%s: %s", s->path, strerror(errno));
    } else {
        go_by_ssh(s, i);
    }
    return 127;
}

/* --- what comes back ---------------------------------------------------------------- */

/* All have answered: the ranks may begin. */
static void let_go(far_state *s)
{
    char text[32];
    const int n = snprintf(text, sizeof(text), "go %d\n", s->port);

    for (int i = 0; i < s->n; i++)
        if (write(s->at[i].pipe[1], text, (size_t)n) != n)
            continue; /* ssh has ended, which is noticed by itself */
}

static int hear_dead(const far_state *s, int i, const char *words, bool stopping)
{
    int  rank, pid, number;
    char how;

    if (sscanf(words, "%d %d %c %d", &rank, &pid, &how, &number) != 4 || number <= 0)
        return TOOL_FAILED;
    const char *host = s->hosts.host[i].name, *rest = s->nranks > 1 ? "; stopping the others" : "";
    if (!stopping && how == 'e')
        tool_fail("run", "rank %d on host %s (pid %d, %s) exited with code %d%s", rank, host, pid, s->f->argv[0], number, rest);
    else if (!stopping)
        tool_fail("run", "rank %d on host %s (pid %d, %s) ended by signal %d (%s)%s", rank, host, pid, s->f->argv[0], number,
                  strsignal(number), rest);
    return how == 'e' ? number : 128 + number;
}

static int line(void *arg, int i, const char *text, bool stopping)
{
    far_state   *s = arg;
    const size_t n = strlen(TOOL_NOTE_MARK);
    int          port;

    if (strncmp(text, TOOL_NOTE_MARK, n))
        return -1;
    text += n;
    if (!strncmp(text, "dead ", 5))
        return hear_dead(s, i, text + 5, stopping);
    if (!strncmp(text, "end ", 4))
        s->at[i].over = true;
    if (sscanf(text, "up %d", &port) == 1 && !s->at[i].up) {
        s->at[i].up = true;
        if (i == 0 && !s->port)
            s->port = port;
        if (++s->nup == s->n && !stopping)
            let_go(s);
    }
    return 0;
}

/* An ssh has ended without the far side's last word. */
static void say_lost(const far_state *s, int i, bool exited, int number)
{
    const char *host = s->hosts.host[i].name;
    char        how[64];

    snprintf(how, sizeof(how), exited ? "exit code %d" : "signal %d", number);
    if (s->at[i].up)
        tool_fail("run", "host %s: the connection to its ranks was lost (%s); stopping the others", host, how);
    else if (is_here(s, i))
        tool_fail("run", "host %s: %s did not start (%s)", host, s->path, how);
    else if (exited && (number == 126 || number == 127))
        tool_fail("run", "host %s: %s cannot be started there (%s); install it there, or say with --rcclx where it is", host, s->path,
                  how);
    else
        tool_fail("run", "host %s cannot be reached (%s of %.80s); this must work without a question: %.80s %s true", host, how,
                  s->f->ssh ? s->f->ssh : "ssh", s->f->ssh ? s->f->ssh : "ssh", host);
}

static int ended(void *arg, int i, pid_t pid, bool exited, int number, bool stopping)
{
    const far_state *s = arg;

    (void)pid;
    if (s->at[i].over)
        return exited ? number : 128 + number; /* it has said why */
    if (!stopping)
        say_lost(s, i, exited, number);
    return TOOL_FAILED;
}

static void stop(void *arg)
{
    far_state *s = arg;

    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < 2; k++)
            if (s->at[i].pipe[k] >= 0) {
                close(s->at[i].pipe[k]);
                s->at[i].pipe[k] = -1;
            }
}

static int remind(void *arg)
{
    const far_state *s = arg;
    char             list[512] = "";
    size_t           at        = 0;

    if (s->nup == s->n)
        return TOOL_OK;
    for (int i = 0; i < s->n && at < sizeof(list); i++)
        if (!s->at[i].up)
            at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", at ? ", " : "", s->hosts.host[i].name);
    return tool_fail("run", "%d of %d hosts did not answer within %d s: %s; this must work without a question: %.80s %s true",
                     s->n - s->nup, s->n, ANSWER_S, list, s->f->ssh ? s->f->ssh : "ssh", list[strcspn(list, ",")] ? "HOST" : list);
}

static int run(far_state *s)
{
    static const tool_job_hooks hooks = {.before = before, .line = line, .ended = ended, .stop = stop, .stop_s = STOP_S,
                                         .remind = remind, .remind_s = ANSWER_S};
    const tool_job job = {.who = "run", .what = s->f->argv[0], .noun = "host", .nranks = s->n, .timeout_s = s->f->timeout_s,
                          .lines = true, .raw = true, .child = child, .arg = s, .hooks = &hooks};

    signal(SIGPIPE, SIG_IGN);
    return tool_job_run(&job);
}

int tool_far_run(const tool_far *f)
{
    far_state  *s    = calloc(1, sizeof(*s));
    const char *address;
    int         code = s ? tool_hosts_open(&s->hosts, f->hosts) : tool_fail("run", "out of memory");

    if (!s)
        return code;
    s->f    = f;
    s->port = f->port;
    gethostname(s->here, sizeof(s->here) - 1);
    if (!getcwd(s->cwd, sizeof(s->cwd)))
        s->cwd[0] = 0;
    if (code == TOOL_OK)
        code = deal(s);
    if (code == TOOL_OK)
        code = find_address(s, &address);
    if (code == TOOL_OK)
        code = find_program(s);
    if (code == TOOL_OK)
        code = run(s);
    if (s->at)
        stop(s);
    free(s->at);
    tool_hosts_fini(&s->hosts);
    free(s);
    return code;
}
