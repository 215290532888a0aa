/* How ranks are started, watched and ended.
 *
 *      launcher ----------- pipe ----------- guardian
 *       |  |  |                                 |  knows the ranks' groups; when the
 *       |  |  `- rank 2  (a process group each) |  pipe closes with ranks left, the
 *       |  `---- rank 1                         |  launcher was killed: it kills them
 *       `------- rank 0
 *
 * A rank leads a process group, so that what it starts can be ended with it,
 * and asks the kernel to be killed when the launcher dies; the guardian does
 * the same for the rest of the group. Signals arrive through a signalfd: one
 * poll waits for ends, signals, output and deadlines alike. */
#include "tool_jobs.h"

#include "tool.h"
#include "tool_tag.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
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
    tool_tag       *tags; /* two a rank, with job->tag */
    int             alive, started;
    int             code;      /* what the job came to; the first cause stays */
    bool            stopping, killed;
    double          kill_at, deadline;
    pid_t           guardian;
    int             guard_fd, signal_fd;
    sigset_t        old_mask;
    struct pollfd  *polls;
} state;

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* --- the guardian --------------------------------------------------------- */

/* Numbers arrive: a group that lives, or minus one that has ended. */
static void guard(int fd, int nranks)
{
    pid_t *groups = calloc((size_t)nranks, sizeof(*groups));
    int    n      = 0;
    pid_t  word;

    while (groups && read(fd, &word, sizeof(word)) == (ssize_t)sizeof(word)) {
        if (word > 0 && n < nranks)
            groups[n++] = word;
        for (int i = 0; word < 0 && i < n; i++)
            if (groups[i] == -word)
                groups[i--] = groups[--n];
    }
    for (int i = 0; i < n; i++)
        kill(-groups[i], SIGKILL);
    _exit(0);
}

static void guard_tell(const state *s, pid_t word)
{
    while (s->guard_fd >= 0 && write(s->guard_fd, &word, sizeof(word)) < 0 && errno == EINTR)
        continue;
}

static int guard_start(state *s)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC))
        return tool_fail(s->job->who, "pipe: %s", strerror(errno));
    s->guardian = fork();
    if (s->guardian < 0)
        return tool_fail(s->job->who, "fork: %s", strerror(errno));
    if (!s->guardian) {
        setpgid(0, 0); /* signals stay blocked here, so a Ctrl-C passes by */
        prctl(PR_SET_NAME, "rcclx guardian");
        close(fds[1]);
        guard(fds[0], s->job->nranks);
    }
    close(fds[0]);
    s->guard_fd = fds[1];
    return TOOL_OK;
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

/* Standard input belongs to rank 0, and not even to it on a terminal: its group
 * is not in the foreground, so reading would stop it. */
static void close_input(int rank)
{
    int fd;

    if ((rank == 0 && !isatty(STDIN_FILENO)) || (fd = open("/dev/null", O_RDONLY)) < 0)
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
    if (s->job->tag) {
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        setvbuf(stdout, NULL, _IOLBF, 0);
    }
    close(s->guard_fd);
    close(s->signal_fd);
    close_input(rank);
    if (s->job->bind)
        bind_core(rank);
    sigprocmask(SIG_SETMASK, &s->old_mask, NULL);
    exit(s->job->child(rank, s->job->arg));
}

static int start_rank(state *s, int rank)
{
    const pid_t parent = getpid();
    int         out[2] = {-1, -1}, err[2] = {-1, -1};
    pid_t       pid;

    if (s->job->tag && (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)))
        return tool_fail(s->job->who, "rank %d: pipe: %s", rank, strerror(errno));
    fflush(NULL);
    pid = fork();
    if (pid < 0)
        return tool_fail(s->job->who, "rank %d: fork: %s", rank, strerror(errno));
    if (!pid)
        become_rank(s, rank, parent, out[1], err[1]);
    setpgid(pid, pid);
    guard_tell(s, pid);
    s->pids[rank] = pid;
    s->alive++;
    s->started++;
    if (s->job->tag) {
        close(out[1]);
        close(err[1]);
        fcntl(out[0], F_SETFL, O_NONBLOCK);
        fcntl(err[0], F_SETFL, O_NONBLOCK);
        s->tags[2 * rank]     = (tool_tag){.fd = out[0], .to = STDOUT_FILENO, .rank = rank};
        s->tags[2 * rank + 1] = (tool_tag){.fd = err[0], .to = STDERR_FILENO, .rank = rank};
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
    signal_all(s, SIGTERM);
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
        guard_tell(s, -pid);
        waitpid(pid, NULL, 0);
        s->pids[r] = 0;
        s->alive--;
        if (info.si_code == CLD_EXITED && !info.si_status)
            continue;
        if (!s->stopping)
            report(s, r, pid, &info);
        stop(s, info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status);
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
            tool_fail(s->job->who, "got signal %d (%s); stopping the %d ranks", number, strsignal(number), s->alive);
        stop(s, 128 + number);
    }
    reap(s);
}

/* --- the loop ------------------------------------------------------------- */

static int wait_ms(const state *s)
{
    double until = s->stopping ? (s->killed ? 0 : s->kill_at) : s->deadline;

    if (until <= 0 && !(s->stopping && !s->killed))
        return -1;
    until -= now_s();
    return until <= 0 ? 0 : until > 1e6 ? 1000000000 : (int)(until * 1000) + 1;
}

static void check_clock(state *s)
{
    const double t = now_s();

    if (!s->stopping && s->deadline > 0 && t >= s->deadline) {
        tool_fail(s->job->who, "the ranks did not end within %g s; stopping %d of them", s->job->timeout_s, s->alive);
        stop(s, TOOL_TIMEOUT);
    }
    if (s->stopping && !s->killed && t >= s->kill_at) {
        signal_all(s, SIGKILL);
        s->killed = true;
    }
}

static void watch(state *s)
{
    const int ntags = s->job->tag ? 2 * s->job->nranks : 0;

    while (s->alive) {
        s->polls[0] = (struct pollfd){.fd = s->signal_fd, .events = POLLIN};
        for (int i = 0; i < ntags; i++)
            s->polls[i + 1] = (struct pollfd){.fd = s->tags[i].fd, .events = POLLIN};
        if (poll(s->polls, (nfds_t)ntags + 1, wait_ms(s)) > 0)
            for (int i = 0; i < ntags; i++)
                if (s->polls[i + 1].revents)
                    tool_tag_pump(&s->tags[i]);
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

    if (code == TOOL_OK)
        code = guard_start(s);
    for (int r = 0; code == TOOL_OK && r < s->job->nranks; r++)
        code = start_rank(s, r);
    if (code != TOOL_OK)
        stop(s, code);
    s->deadline = s->job->timeout_s > 0 ? now_s() + s->job->timeout_s : 0;
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
    const size_t n = (size_t)job->nranks;
    state        s = {.job = job, .guard_fd = -1, .signal_fd = -1};
    int          code;

    if (job->tag)
        raise_limit();
    s.pids  = calloc(n, sizeof(*s.pids));
    s.polls = calloc(2 * n + 1, sizeof(*s.polls));
    s.tags  = job->tag ? calloc(2 * n, sizeof(*s.tags)) : NULL;
    for (size_t i = 0; s.tags && i < 2 * n; i++)
        s.tags[i].fd = -1;
    if (!s.pids || !s.polls || (job->tag && !s.tags))
        code = tool_fail(job->who, "out of memory for %d ranks", job->nranks);
    else
        code = run(&s);
    if (s.guard_fd >= 0)
        close(s.guard_fd);
    if (s.signal_fd >= 0)
        close(s.signal_fd);
    if (s.guardian > 0)
        waitpid(s.guardian, NULL, 0);
    sigprocmask(SIG_SETMASK, &s.old_mask, NULL);
    free(s.pids);
    free(s.polls);
    free(s.tags);
    return code;
}
