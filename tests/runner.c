/* Runs test programs and counts what they say.
 *
 *   runner [-j N] [-k word] [--scale F] [--no-aslr] PROGRAM|FOLDER|SCRIPT|@LIST...
 *
 * A folder stands for the executables directly in it and for every *.sh below
 * it; names that begin with _ or . are helpers and left alone. @LIST is a file
 * of paths. -k keeps those whose path holds the word.
 *
 * Each program gets a process group of its own and a pipe for all it prints:
 *
 *      runner ---- fork, setpgid ----> program ----> its ranks, its shells
 *        ^                                |              |
 *        +------------ one pipe ----------+--------------+
 *
 * It is over when the program itself has ended; whoever is left in the group
 * then gets a second to go, is killed, and is counted as a failure. At the time
 * limit (120 s, or what the program asks for by a line "# timeout N") the whole
 * group is killed. The runner is a subreaper: orphans come back to it.
 *
 * Counted are TAP lines: "ok", "not ok", "ok ... # SKIP why". A program without
 * any counts as one test by its exit status (77: skipped). A signal, a time-out,
 * a non-zero status without a "not ok", and a plan "1..N" that does not match
 * count as one failure more. The last line printed is "N passed, N failed". */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TIME_LIMIT = 120, MAX_RUNNING = 64, LINES_KEPT = 30, LINE_BYTES = 400, EXIT_SKIP = 77 };

typedef struct {
    const char *path;
    pid_t       pid; /* also its process group */
    int         fd;  /* its output */
    double      started, ended, limit;
    int         passed, failed, skipped, planned;
    int         status; /* as waitpid gives it */
    bool        over, timed_out;
    char        line[LINE_BYTES]; /* the one being read */
    int         nline;
    char        tail[LINES_KEPT][LINE_BYTES]; /* the last lines, a ring */
    int         ntail;
    char       *complaints; /* the "not ok" lines */
} job;

static struct {
    char **paths;
    int    npaths;
} todo;

static const char *filter = "";
static double      scale = 1;
static bool        no_aslr;
static int         total_passed, total_failed, total_skipped;

static volatile sig_atomic_t stopped;

static void stop(int sig)
{
    stopped = sig;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *grow(void *p, size_t nbytes)
{
    p = realloc(p, nbytes);
    if (!p) {
        perror("runner");
        exit(2);
    }
    return p;
}

/* ---- what to run */

static void add(const char *path)
{
    if (!strstr(path, filter))
        return;
    todo.paths = grow(todo.paths, sizeof *todo.paths * (size_t)(todo.npaths + 1));
    todo.paths[todo.npaths] = strcpy(grow(NULL, strlen(path) + 1), path);
    todo.npaths++;
}

static bool is_script(const char *path)
{
    size_t n = strlen(path);
    return n > 3 && !strcmp(path + n - 3, ".sh");
}

static int visible(const struct dirent *e)
{
    return e->d_name[0] != '.' && e->d_name[0] != '_';
}

static void add_folder(const char *folder, bool top)
{
    struct dirent **entries;
    int             n = scandir(folder, &entries, visible, alphasort);
    for (int i = 0; i < n; i++) {
        char        path[4096];
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        free(entries[i]);
        if (stat(path, &st))
            continue;
        if (S_ISDIR(st.st_mode))
            add_folder(path, false);
        else if (is_script(path) || (top && (st.st_mode & S_IXUSR)))
            add(path);
    }
    if (n >= 0)
        free(entries);
}

static void add_list(const char *path)
{
    char  line[4096];
    FILE *f = fopen(path, "r");
    if (!f) {
        fprintf(stderr, "runner: %s: %s\n", path, strerror(errno));
        exit(2);
    }
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (*line)
            add(line);
    }
    fclose(f);
}

static void add_argument(const char *arg)
{
    struct stat st;
    if (*arg == '@')
        add_list(arg + 1);
    else if (stat(arg, &st) == 0 && S_ISDIR(st.st_mode))
        add_folder(arg, true);
    else
        add(arg); /* one that does not exist fails when it is run */
}

/* ---- what a program says */

static void complain(job *j, const char *text)
{
    size_t n = j->complaints ? strlen(j->complaints) : 0;
    if (n > 20000)
        return;
    j->complaints = grow(j->complaints, n + strlen(text) + 10);
    snprintf(j->complaints + n, strlen(text) + 10, "      %s\n", text);
}

static void take_line(job *j)
{
    const char *s = j->line;
    int         value;
    j->line[j->nline] = 0;
    bool good = !strncmp(s, "ok", 2) && (s[2] == ' ' || !s[2]);
    j->nline = 0;
    if (!good) /* what went well does not help whoever looks for a fault */
        snprintf(j->tail[j->ntail++ % LINES_KEPT], LINE_BYTES, "%s", s);
    if (!strncmp(s, "not ok", 6) && (s[6] == ' ' || !s[6])) {
        j->failed++;
        complain(j, s);
    } else if (good) {
        if (strcasestr(s, "# skip"))
            j->skipped++;
        else
            j->passed++;
    } else if (sscanf(s, "# timeout %d", &value) == 1 && value > 0) {
        j->limit = value * scale;
    } else if (sscanf(s, "1..%d", &value) == 1) {
        j->planned = value;
    }
}

static void take(job *j, const char *bytes, ssize_t n)
{
    for (ssize_t i = 0; i < n; i++) {
        if (bytes[i] == '\n')
            take_line(j);
        else if (j->nline < LINE_BYTES - 1) /* what is beyond is cut off */
            j->line[j->nline++] = bytes[i] ? bytes[i] : '?';
    }
}

static void drain(job *j)
{
    char    buf[65536];
    ssize_t n;
    while ((n = read(j->fd, buf, sizeof buf)) > 0)
        take(j, buf, n);
}

/* ---- a program's life */

static void become(const char *path)
{
    int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    if (no_aslr) /* older thread sanitizers cannot place their shadow otherwise */
        personality(ADDR_NO_RANDOMIZE);
    if (is_script(path) && access(path, X_OK))
        execlp("bash", "bash", path, (char *)NULL);
    else
        execl(path, path, (char *)NULL);
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    _exit(127);
}

static void start(job *j, const char *path)
{
    int fds[2];
    memset(j, 0, sizeof *j);
    j->path = path;
    j->planned = -1;
    j->limit = TIME_LIMIT * scale;
    if (pipe2(fds, O_CLOEXEC)) {
        perror("runner: pipe");
        exit(2);
    }
    fflush(stdout);
    j->started = now();
    j->pid = fork();
    if (j->pid == 0) {
        setpgid(0, 0);
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        dup2(fds[1], STDOUT_FILENO);
        dup2(fds[1], STDERR_FILENO);
        become(path);
    }
    if (j->pid < 0) {
        perror("runner: fork");
        exit(2);
    }
    setpgid(j->pid, j->pid); /* in both, so that neither comes too late */
    close(fds[1]);
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    j->fd = fds[0];
}

/* Whoever is left of a group after its program has ended: a second to go, then
 * killed. False when somebody had to be killed. */
static bool clear_group(pid_t group)
{
    double until = now() + 1;
    for (;;) {
        while (waitpid(-group, NULL, WNOHANG) > 0)
            ;
        if (kill(-group, 0))
            return true;
        if (now() > until)
            break;
        usleep(5000);
    }
    kill(-group, SIGKILL);
    while (waitpid(-group, NULL, 0) > 0)
        ;
    return false;
}

static void judge(job *j, bool clean)
{
    char text[200];
    int  nlines = j->passed + j->failed + j->skipped;
    int  code = WIFEXITED(j->status) ? WEXITSTATUS(j->status) : -1;
    *text = 0;
    if (j->timed_out)
        snprintf(text, sizeof text, stopped ? "stopped by a signal after %.0f s" : "killed at its time limit, %.0f s",
                 j->ended - j->started);
    else if (WIFSIGNALED(j->status))
        snprintf(text, sizeof text, "died of SIG%s (%s)", sigabbrev_np(WTERMSIG(j->status)),
                 strsignal(WTERMSIG(j->status)));
    else if (code == EXIT_SKIP && !nlines)
        j->skipped = 1;
    else if (code && !j->failed)
        snprintf(text, sizeof text, "exit status %d", code);
    else if (j->planned >= 0 && j->planned != nlines)
        snprintf(text, sizeof text, "planned %d tests, told of %d", j->planned, nlines);
    else if (!clean)
        snprintf(text, sizeof text, "left processes behind");
    else if (!nlines)
        j->passed = 1;
    if (*text) {
        j->failed++;
        complain(j, text);
    }
}

/* Paths below the current folder are shown from there. */
static const char *shown(const char *path)
{
    char   here[4096];
    size_t n = getcwd(here, sizeof here) ? strlen(here) : 0;
    return n && !strncmp(path, here, n) && path[n] == '/' ? path + n + 1 : path;
}

static void report(const job *j)
{
    printf("%-5s %7.1f s  %-40s %d passed", j->failed ? "FAIL" : j->passed ? "ok" : "skip", j->ended - j->started,
           shown(j->path), j->passed);
    if (j->failed)
        printf(", %d failed", j->failed);
    if (j->skipped)
        printf(", %d skipped", j->skipped);
    printf("\n");
    if (j->failed) {
        printf("%s", j->complaints ? j->complaints : "");
        for (int i = j->ntail > LINES_KEPT ? j->ntail - LINES_KEPT : 0; i < j->ntail; i++)
            printf("      | %s\n", j->tail[i % LINES_KEPT]);
    }
    fflush(stdout);
}

static void finish(job *j)
{
    j->ended = now();
    bool clean = clear_group(j->pid);
    drain(j);
    if (j->nline)
        take_line(j);
    close(j->fd);
    judge(j, clean);
    report(j);
    total_passed += j->passed;
    total_failed += j->failed;
    total_skipped += j->skipped;
    free(j->complaints);
    j->over = true;
}

/* Look after one running program. */
static void watch(job *j)
{
    drain(j);
    if (stopped || now() - j->started > j->limit) {
        j->timed_out = true;
        kill(-j->pid, SIGKILL);
        waitpid(j->pid, &j->status, 0);
        finish(j);
    } else if (waitpid(j->pid, &j->status, WNOHANG) == j->pid) {
        finish(j);
    }
}

static void run_all(int at_once)
{
    static job jobs[MAX_RUNNING];
    int        next = 0, running = 0;
    for (int i = 0; i < MAX_RUNNING; i++)
        jobs[i].over = true;
    while (running || (next < todo.npaths && !stopped)) {
        struct pollfd fds[MAX_RUNNING];
        nfds_t        nfds = 0;
        for (int i = 0; i < at_once; i++) {
            if (jobs[i].over && next < todo.npaths && !stopped) {
                start(&jobs[i], todo.paths[next++]);
                running++;
            }
            if (!jobs[i].over)
                fds[nfds++] = (struct pollfd){ .fd = jobs[i].fd, .events = POLLIN };
        }
        /* A closed pipe is always "ready"; the small sleep keeps that from spinning. */
        if (poll(fds, nfds, 20) > 0)
            usleep(2000);
        for (int i = 0; i < at_once; i++) {
            if (jobs[i].over)
                continue;
            watch(&jobs[i]);
            running -= jobs[i].over;
        }
    }
    for (; next < todo.npaths; next++, total_failed++)
        printf("FAIL  never run: %s\n", shown(todo.paths[next]));
}

static void catch_signals(void)
{
    struct sigaction a = { .sa_handler = stop };
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

static int usage(void)
{
    fprintf(stderr, "usage: runner [-j N] [-k word] [--scale F] [--no-aslr] PROGRAM|FOLDER|SCRIPT|@LIST...\n");
    return 2;
}

int main(int argc, char **argv)
{
    int at_once = 1, i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (!strcmp(argv[i], "--no-aslr"))
            no_aslr = true;
        else if (i + 1 == argc)
            return usage();
        else if (!strcmp(argv[i], "-j"))
            at_once = (int)strtol(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "-k"))
            filter = argv[++i];
        else if (!strcmp(argv[i], "--scale"))
            scale = strtod(argv[++i], NULL);
        else
            return usage();
    }
    if (i == argc || at_once < 1 || at_once > MAX_RUNNING || scale <= 0)
        return usage();
    for (; i < argc; i++)
        add_argument(argv[i]);

    char text[32];
    snprintf(text, sizeof text, "%g", scale);
    setenv("RCCLX_TEST_SCALE", text, 1);
    catch_signals();
    run_all(at_once);

    for (int k = 0; k < todo.npaths; k++)
        free(todo.paths[k]);
    free(todo.paths);
    if (total_skipped)
        printf("%d skipped\n", total_skipped);
    if (!total_passed && !total_failed)
        printf("nothing was run\n");
    printf("%d passed, %d failed\n", total_passed, total_failed);
    return total_failed || !total_passed;
}
