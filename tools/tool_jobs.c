/* How ranks are started, watched and ended.
 *
 *      launcher ---- guardian
 *       |  |  `- rank 2          a process group each; lines of output come
 *       |  `---- rank 1          through pipes where something is put before
 *       `------- rank 0          them or read in them
 *
 * A rank leads a process group, so that what it starts can be ended with it,
 * and asks the kernel to be killed when the launcher dies; the guardian does
 * the same for the rest of the group. Signals arrive through a signalfd: one
 * poll waits for ends, signals, output, the leash and deadlines alike. */
#include "tool_jobs.h"

#include "tool.h"
#include "tool_guard.h"
#include "tool_tag.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GRACE_S 3.0

typedef struct {
    const tool_job *job;
    pid_t          *pids; /* 0: ended */
    tool_tag       *tags; /* two a rank, where lines are passed on */
    int             alive;
    int             code;      /* what the job came to; the first cause stays */
    bool            stopping, killed, reminded, loose; /* loose: the leash is cut */
    double          kill_at, deadline, remind_at;
    tool_guard      guard;
    int             signal_fd;
    sigset_t        old_mask;
    struct pollfd  *polls;
} state;

static const char *noun(const tool_job *job)
{
    return job->noun ? job->noun : "rank";
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* --- starting ------------------------------------------------------------- */

static void bind_core(int rank)
{
    cpu_set_t mine, one;
    int       skip;

    if (sched_getaffinity(0, sizeof(mine), &mine) || !CPU_COUNT(&mine))
        return;
    skip = rank % CPU_COUNT(&mine);
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &mine) && !skip--) {
            CPU_ZERO(&one);
            CPU_SET(c, &one);
            sched_setaffinity(0, sizeof(one), &one);
            return;
        }
}

/* Standard input belongs to rank 0, and not even to it on a terminal (its group
 * is not in the foreground, so reading would stop it), nor where it is a leash. */
static void close_input(const tool_job *job, int rank)
{
    int fd;

    if ((rank == 0 && !job->leashed && !isatty(STDIN_FILENO)) || (fd = open("/dev/null", O_RDONLY)) < 0)
        return;
    dup2(fd, STDIN_FILENO);
    if (fd != STDIN_FILENO)
        close(fd);
}

static void become_rank(state *s, int rank, pid_t parent, int out, int err)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(TOOL_FAILED);
    if (s->tags) {
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        setvbuf(stdout, NULL, _IOLBF, 0);
    }
    tool_guard_leave(&s->guard);
    close(s->signal_fd);
    close_input(s->job, rank);
    if (s->job->bind)
        bind_core(rank);
    sigprocmask(SIG_SETMASK, &s->old_mask, NULL);
    exit(s->job->child(rank, s->job->arg));
}

static bool take_line(void *arg, int rank, const char *line);

static void open_tag(state *s, tool_tag *t, int rank, int from, int to)
{
    fcntl(from, F_SETFL, O_NONBLOCK);
    *t = (tool_tag){.fd = from, .to = to, .rank = rank, .raw = s->job->raw || (to == STDOUT_FILENO && !s->job->tag)};
    if (s->job->tag)
        snprintf(t->prefix, sizeof(t->prefix), "[%d] ", s->job->first + rank);
    if (to == STDERR_FILENO && s->job->hooks && s->job->hooks->line) {
        t->take = take_line;
        t->arg  = s;
    }
}

static int start_rank(state *s, int rank)
{
    const pid_t parent = getpid();
    int         out[2] = {-1, -1}, err[2] = {-1, -1};
    pid_t       pid;

    if (s->tags && (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)))
        return tool_fail(s->job->who, "%s %d: pipe: %s", noun(s->job), rank, strerror(errno));
    if (s->job->hooks && s->job->hooks->before) {
        const int code = s->job->hooks->before(s->job->arg, rank);

        if (code != TOOL_OK)
            return code;
    }
    fflush(NULL);
    pid = fork();
    if (pid < 0)
        return tool_fail(s->job->who, "%s %d: fork: %s", noun(s->job), rank, strerror(errno));
    if (!pid)
        become_rank(s, rank, parent, out[1], err[1]);
    setpgid(pid, pid);
    tool_guard_tell(&s->guard, pid);
    s->pids[rank] = pid;
    s->alive++;
    if (s->tags) {
        close(out[1]);
        close(err[1]);
        open_tag(s, &s->tags[2 * rank], rank, out[0], STDOUT_FILENO);
        open_tag(s, &s->tags[2 * rank + 1], rank, err[0], STDERR_FILENO);
    }
    return TOOL_OK;
}

/* --- ending --------------------------------------------------------------- */

static void signal_all(const state *s, int number)
{
    for (int r = 0; r < s->job->nranks; r++)
        if (s->pids[r])
            kill(-s->pids[r], number);
}

static void stop(state *s, int code)
{
    if (s->stopping)
        return;
    s->stopping = true;
    s->code     = code;
    s->kill_at  = now_s() + GRACE_S;
    if (s->job->hooks && s->job->hooks->stop) {
        s->kill_at += s->job->hooks->stop_s;
        s->job->hooks->stop(s->job->arg);
    } else {
        signal_all(s, SIGTERM);
    }
}

/* A line of a child's standard error, for those who listen. */
static bool take_line(void *arg, int rank, const char *line)
{
    state    *s    = arg;
    const int code = s->job->hooks->line(s->job->arg, rank, line, s->stopping);

    if (code > 0)
        stop(s, code);
    return code >= 0;
}

static void report(const state *s, int rank, pid_t pid, const siginfo_t *info)
{
    char rest[64] = "";

    if (s->alive)
        snprintf(rest, sizeof(rest), "; stopping the other %d rank%s", s->alive, s->alive == 1 ? "" : "s");
    if (info->si_code == CLD_EXITED)
        tool_fail(s->job->who, "rank %d (pid %d, %s) exited with code %d%s", rank, (int)pid, s->job->what,
                  info->si_status, rest);
    else
        tool_fail(s->job->who, "rank %d (pid %d, %s) ended by signal %d (%s)%s", rank, (int)pid, s->job->what,
                  info->si_status, strsignal(info->si_status), rest);
}

/* Hooks may judge the end of a child otherwise. What it said last is read before. */
static int judge(state *s, int rank, pid_t pid, const siginfo_t *info)
{
    const bool exited = info->si_code == CLD_EXITED;
    const int  code   = exited ? info->si_status : 128 + info->si_status;

    if (s->job->hooks && s->job->hooks->ended) {
        for (int i = 0; s->tags && i < 2; i++)
            tool_tag_pump(&s->tags[2 * rank + i]);
        return s->job->hooks->ended(s->job->arg, rank, pid, exited, info->si_status, s->stopping);
    }
    if (code && !s->stopping)
        report(s, rank, pid, info);
    return code;
}

/* The group is killed while its leader is still a zombie: until then nobody
 * else can have its number. */
static void reap(state *s)
{
    for (int r = 0; r < s->job->nranks; r++) {
        const pid_t pid  = s->pids[r];
        siginfo_t   info = {0};

        if (!pid || waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid)
            continue;
        kill(-pid, SIGKILL);
        tool_guard_tell(&s->guard, -pid);
        waitpid(pid, NULL, 0);
        s->pids[r] = 0;
        s->alive--;
        const int code = judge(s, r, pid, &info);
        if (code)
            stop(s, code);
    }
}

static void take_signals(state *s)
{
    struct signalfd_siginfo info;

    while (read(s->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        const int number = (int)info.ssi_signo;

        if (number == SIGCHLD)
            continue;
        if (s->stopping)
            s->kill_at = 0;
        else
            tool_fail(s->job->who, "got signal %d (%s); stopping the %d %ss", number, strsignal(number), s->alive, noun(s->job));
        stop(s, 128 + number);
    }
    reap(s);
}

/* --- the loop ------------------------------------------------------------- */

static int wait_ms(const state *s)
{
    double until = s->stopping ? (s->killed ? 0 : s->kill_at) : s->deadline;

    if (!s->stopping && s->remind_at > 0 && (until <= 0 || s->remind_at < until))
        until = s->remind_at;
    if (until <= 0 && !(s->stopping && !s->killed))
        return -1;
    until -= now_s();
    return until <= 0 ? 0 : until > 1e6 ? 1000000000 : (int)(until * 1000) + 1;
}

static void check_clock(state *s)
{
    const double t = now_s();

    if (!s->stopping && s->deadline > 0 && t >= s->deadline) {
        tool_fail(s->job->who, "the ranks did not end within %g s; stopping %d %s%s", s->job->timeout_s, s->alive,
                  noun(s->job), s->alive == 1 ? "" : "s");
        stop(s, TOOL_TIMEOUT);
    }
    if (!s->stopping && s->remind_at > 0 && t >= s->remind_at) {
        const int code = s->job->hooks->remind(s->job->arg);

        s->remind_at = 0;
        if (code)
            stop(s, code);
    }
    if (s->stopping && !s->killed && t >= s->kill_at) {
        signal_all(s, SIGKILL);
        s->killed = true;
    }
}

/* Whoever holds the other end of standard input has gone, or has let go. */
static void look_at_leash(state *s)
{
    char          word[64];
    const ssize_t k = read(STDIN_FILENO, word, sizeof(word));

    if (k > 0 || (k < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    s->loose = true;
    stop(s, 128 + SIGHUP);
}

static void watch(state *s)
{
    const int ntags = s->tags ? 2 * s->job->nranks : 0;

    while (s->alive) {
        s->polls[0] = (struct pollfd){.fd = s->signal_fd, .events = POLLIN};
        s->polls[1] = (struct pollfd){.fd = s->job->leashed && !s->loose ? STDIN_FILENO : -1, .events = POLLIN};
        for (int i = 0; i < ntags; i++)
            s->polls[i + 2] = (struct pollfd){.fd = s->tags[i].fd, .events = POLLIN};
        if (poll(s->polls, (nfds_t)ntags + 2, wait_ms(s)) > 0) {
            for (int i = 0; i < ntags; i++)
                if (s->polls[i + 2].revents)
                    tool_tag_pump(&s->tags[i]);
            if (s->polls[1].revents)
                look_at_leash(s);
        }
        take_signals(s);
        check_clock(s);
    }
    for (int i = 0; i < ntags; i++)
        tool_tag_close(&s->tags[i]);
}

static int open_signals(state *s)
{
    sigset_t mask;

    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGHUP);
    sigaddset(&mask, SIGQUIT);
    sigprocmask(SIG_BLOCK, &mask, &s->old_mask);
    s->signal_fd = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
    return s->signal_fd < 0 ? tool_fail(s->job->who, "signalfd: %s", strerror(errno)) : TOOL_OK;
}

static int run(state *s)
{
    int code = open_signals(s);

    if (code == TOOL_OK && tool_guard_start(&s->guard, s->job->nranks))
        code = tool_fail(s->job->who, "no process to watch over the %ss: %s", noun(s->job), strerror(errno));
    for (int r = 0; code == TOOL_OK && r < s->job->nranks; r++)
        code = start_rank(s, r);
    if (code != TOOL_OK)
        stop(s, code);
    s->deadline = s->job->timeout_s > 0 ? now_s() + s->job->timeout_s : 0;
    if (s->job->hooks && s->job->hooks->remind)
        s->remind_at = now_s() + s->job->hooks->remind_s;
    watch(s);
    return s->code;
}

/* Many ranks with two pipes each need more descriptors than usual. */
static void raise_limit(void)
{
    struct rlimit limit;

    if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max < 65536 ? limit.rlim_max : 65536;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int tool_job_run(const tool_job *job)
{
    const size_t n    = (size_t)job->nranks;
    const bool   tags = job->tag || job->lines;
    state        s    = {.job = job, .guard = {.fd = -1}, .signal_fd = -1};
    int          code;

    if (tags)
        raise_limit();
    s.pids  = calloc(n, sizeof(*s.pids));
    s.polls = calloc(2 * n + 2, sizeof(*s.polls));
    s.tags  = tags ? calloc(2 * n, sizeof(*s.tags)) : NULL;
    for (size_t i = 0; s.tags && i < 2 * n; i++)
        s.tags[i].fd = -1;
    if (!s.pids || !s.polls || (tags && !s.tags))
        code = tool_fail(job->who, "out of memory for %d %ss", job->nranks, noun(job));
    else
        code = run(&s);
    if (s.signal_fd >= 0)
        close(s.signal_fd);
    tool_guard_stop(&s.guard);
    sigprocmask(SIG_SETMASK, &s.old_mask, NULL);
    free(s.pids);
    free(s.polls);
    free(s.tags);
    return code;
}
