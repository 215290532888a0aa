#ifndef RCCLX_TESTS_CHECK_H
#define RCCLX_TESTS_CHECK_H

/* A test program is one .c file that includes this header and holds cases:
 *
 *   #include "check.h"
 *   #include "plan/plan.h"
 *
 *   TEST(an_empty_plan_is_valid)
 *   {
 *       CHECK(plan.nsteps == 0, "%d steps", plan.nsteps);
 *       REQUIRE(plan.steps != NULL, "no steps");       // leaves the case when false
 *   }
 *
 * The header brings main(): the cases run in the order they stand in, each
 * prints a TAP line, and the exit status is 0 when all went well. Arguments
 * choose cases by a part of their name. CHECK may be used in any thread and in
 * any process forked by the case.
 *
 * A program that may take longer than the runner's 120 seconds says so with
 * TIME_LIMIT(seconds) once, outside any function. A case with many rounds may
 * give each its own line:   CASE("ring, %d ranks", n) { ... }            */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TEST(name)                                                                 \
    static void test_##name(void);                                                 \
    __attribute__((constructor)) static void test_add_##name(void)                 \
    {                                                                              \
        check_add(#name, test_##name);                                             \
    }                                                                              \
    static void test_##name(void)

#define CHECK(cond, ...) check_held((cond) || check_failed(__FILE__, __LINE__, #cond, __VA_ARGS__))
#define REQUIRE(cond, ...)                                                         \
    do {                                                                           \
        if (!CHECK(cond, __VA_ARGS__))                                             \
            return;                                                                \
    } while (0)

/* Leave the case: this machine cannot run it. */
#define SKIP(...)                                                                  \
    do {                                                                           \
        check_skip(__VA_ARGS__);                                                   \
        return;                                                                    \
    } while (0)

#define CASE(...) for (int check_once_ = check_begin(__VA_ARGS__); check_once_; check_once_ = check_end())

#define TIME_LIMIT(seconds)                                                        \
    __attribute__((constructor)) static void check_time_limit(void)                \
    {                                                                              \
        printf("# timeout %d\n", (int)(seconds));                                  \
        fflush(stdout);                                                            \
    }

/* Poll until cond holds, at most so many seconds; false when it never did. */
#define WAIT_FOR(cond, seconds)                                                    \
    __extension__({                                                                \
        double check_until_ = check_now() + (seconds) * check_scale();             \
        bool   check_holds_;                                                       \
        while (!(check_holds_ = (cond)) && check_now() < check_until_)             \
            usleep(2000);                                                          \
        check_holds_;                                                              \
    })

enum { CHECK_MAX_CASES = 256, CHECK_MAX_RANKS = 256, CHECK_RANK_SECONDS = 60 };

/* What the case's own threads and forked processes share. */
typedef struct {
    atomic_int failures;
} check_shared;

static struct {
    struct {
        const char *name;
        void (*run)(void);
    } cases[CHECK_MAX_CASES];
    int           ncases, ncalled, nprinted, nfailed;
    int           depth;
    struct {
        char title[256], skip[256];
        int  failures_before;
    } open[4]; /* the TEST, and a CASE within */
    check_shared *shared;
    pid_t         pid;
} check_state;

static inline double check_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* How much slower than usual programs run here (the runner's --scale). */
static inline double check_scale(void)
{
    const char *s = getenv("RCCLX_TEST_SCALE");
    double      f = s ? strtod(s, NULL) : 1;
    return f >= 1 ? f : 1;
}

/* Where `make` has put bin and lib. */
static inline const char *check_build_dir(void)
{
    const char *s = getenv("RCCLX_BUILD");
    return s && *s ? s : "build";
}

static inline void check_add(const char *name, void (*run)(void))
{
    if (check_state.ncases == CHECK_MAX_CASES) {
        fprintf(stderr, "check.h: more than %d cases\n", CHECK_MAX_CASES);
        abort();
    }
    check_state.cases[check_state.ncases].name = name;
    check_state.cases[check_state.ncases++].run = run;
}

/* One write a message, so that ranks do not mix their lines. */
__attribute__((format(printf, 1, 2))) static inline void check_say(const char *format, ...)
{
    char    line[2048];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    if (n >= (int)sizeof line) {
        n = sizeof line - 1;
        line[n - 1] = '\n';
    }
    if (n > 0 && write(STDOUT_FILENO, line, (size_t)n) < 0)
        return; /* nowhere left to say it */
}

__attribute__((format(printf, 4, 5))) static inline bool check_failed(const char *file, int line, const char *cond,
                                                                      const char *format, ...)
{
    char    text[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    /* A thousand wrong elements are told by the first twenty. */
    int before = atomic_fetch_add(&check_state.shared->failures, 1);
    if (check_state.depth && before - check_state.open[check_state.depth - 1].failures_before < 20)
        check_say("# %s:%d: not so: %s: %s\n", file, line, cond, text);
    return false;
}

/* A value that need not be looked at. */
static inline bool check_held(bool held)
{
    return held;
}

__attribute__((format(printf, 1, 2))) static inline void check_skip(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(check_state.open[check_state.depth - 1].skip, sizeof check_state.open[0].skip, format, ap);
    va_end(ap);
}

__attribute__((format(printf, 1, 2))) static inline int check_begin(const char *format, ...)
{
    if (check_state.depth == (int)(sizeof check_state.open / sizeof check_state.open[0])) {
        fprintf(stderr, "check.h: cases nested too deep\n");
        abort();
    }
    va_list ap;
    va_start(ap, format);
    vsnprintf(check_state.open[check_state.depth].title, sizeof check_state.open[0].title, format, ap);
    va_end(ap);
    check_state.open[check_state.depth].skip[0] = 0;
    check_state.open[check_state.depth].failures_before = atomic_load(&check_state.shared->failures);
    check_state.depth++;
    return 1;
}

static inline int check_end(void)
{
    check_state.depth--;
    int  failures = atomic_load(&check_state.shared->failures) - check_state.open[check_state.depth].failures_before;
    const char *skip = check_state.open[check_state.depth].skip;
    check_say("%sok %d - %s%s%s\n", failures ? "not " : "", ++check_state.nprinted,
              check_state.open[check_state.depth].title, !failures && *skip ? " # SKIP " : "",
              !failures && *skip ? skip : "");
    check_state.nfailed += failures != 0;
    return 0;
}

/* Open cases become failed, and the program ends at once. */
static inline _Noreturn void check_give_up(void)
{
    atomic_fetch_add(&check_state.shared->failures, 1);
    while (check_state.depth)
        check_end();
    _exit(1);
}

/* ---- a watchdog over the whole program, for what must not take longer */

static inline void check_deadline_passed(int sig)
{
    (void)sig;
    static const char text[] = "\n# the deadline passed\n";
    if (getpid() == check_state.pid && write(STDOUT_FILENO, text, sizeof text - 1) > 0)
        check_give_up();
    _exit(1);
}

static inline void deadline(int seconds) /* 0 takes it back */
{
    signal(SIGALRM, check_deadline_passed);
    alarm((unsigned)(seconds * check_scale()));
}

/* ---- ranks
 *
 *   static int rank_main(int rank, int n, void *arg) { ...; return 0; }
 *
 *   CHECK(run_ranks_as_processes(4, rank_main, &args) == 0, "ranks failed");
 *
 * Both return how many ranks failed, each of them told in a line. A rank fails
 * by returning non-zero, by a signal, or by the deadline (60 seconds, scaled),
 * at which processes are killed; threads cannot be, so the program ends. */
typedef int (*check_rank_fn)(int rank, int n, void *arg);

enum { CHECK_RUNNING = 1000, CHECK_LATE = 1001 };

/* For tests that kill ranks: start, do harm by pid[], wait, and look at
 * status[]: an exit code, minus a signal, or CHECK_LATE. */
typedef struct {
    int   n;
    pid_t pid[CHECK_MAX_RANKS];
    int   status[CHECK_MAX_RANKS];
} check_ranks;

/* RCCLX_TEST_MACHINES=k: ranks that are processes are dealt to so many machines, which are this one under other
 * names, so that they reach each other by the network. */
static inline void check_machine(int rank, int n)
{
    const char *s = getenv("RCCLX_TEST_MACHINES");
    const int   k = s ? atoi(s) : 0;
    char        name[32];

    if (k < 2 || n < 2)
        return;
    snprintf(name, sizeof name, "machine %d", n > k ? rank * k / n : rank);
    setenv("NCCL_HOSTID", name, 0);
}

static inline void check_ranks_start(check_ranks *r, int n, check_rank_fn fn, void *arg)
{
    r->n = n;
    fflush(NULL);
    for (int i = 0; i < n; i++) {
        r->status[i] = CHECK_RUNNING;
        r->pid[i] = fork();
        if (r->pid[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            check_machine(i, n);
            exit(fn(i, n, arg) & 0xff); /* exit, not _exit: leak checkers and atexit belong to a rank's life */
        }
        if (r->pid[i] < 0) {
            CHECK(r->pid[i] >= 0, "fork: %s", strerror(errno));
            r->status[i] = CHECK_LATE;
        }
    }
}

/* True when rank i has ended (its status is then known). */
static inline bool check_rank_ended(check_ranks *r, int i)
{
    int s;
    if (r->status[i] == CHECK_RUNNING && waitpid(r->pid[i], &s, WNOHANG) == r->pid[i])
        r->status[i] = WIFSIGNALED(s) ? -WTERMSIG(s) : WEXITSTATUS(s);
    return r->status[i] != CHECK_RUNNING;
}

/* Wait for all at most so long, kill the rest. Returns how many were late. */
static inline int check_ranks_wait(check_ranks *r, double seconds)
{
    double until = check_now() + seconds * check_scale();
    int    left, nlate = 0;
    for (;;) {
        left = 0;
        for (int i = 0; i < r->n; i++)
            left += !check_rank_ended(r, i);
        if (!left || check_now() >= until)
            break;
        usleep(500);
    }
    for (int i = 0; left && i < r->n; i++) {
        if (r->status[i] != CHECK_RUNNING)
            continue;
        kill(r->pid[i], SIGKILL);
        waitpid(r->pid[i], NULL, 0);
        r->status[i] = CHECK_LATE;
        nlate++;
    }
    return nlate;
}

static inline int run_ranks_as_processes(int n, check_rank_fn fn, void *arg)
{
    check_ranks r;
    int         nbad = 0;
    check_ranks_start(&r, n, fn, arg);
    check_ranks_wait(&r, CHECK_RANK_SECONDS);
    for (int i = 0; i < n; i++) {
        nbad += r.status[i] != 0;
        if (r.status[i] == CHECK_LATE)
            check_say("# rank %d of %d was still running after %.0f s, killed\n", i, n,
                      CHECK_RANK_SECONDS * check_scale());
        else if (r.status[i] < 0)
            check_say("# rank %d of %d died of signal %d (%s)\n", i, n, -r.status[i], strsignal(-r.status[i]));
        else if (r.status[i])
            check_say("# rank %d of %d ended with %d\n", i, n, r.status[i]);
    }
    return nbad;
}

typedef struct {
    pthread_t     thread;
    int           rank, n, result;
    check_rank_fn fn;
    void         *arg;
} check_thread;

static inline void *check_thread_main(void *p)
{
    check_thread *t = p;
    t->result = t->fn(t->rank, t->n, t->arg);
    return NULL;
}

static inline int run_ranks_as_threads(int n, check_rank_fn fn, void *arg)
{
    static check_thread threads[CHECK_MAX_RANKS];
    struct timespec     until;
    int                 nbad = 0, nlate = 0;
    for (int i = 0; i < n; i++) {
        threads[i] = (check_thread){ .rank = i, .n = n, .fn = fn, .arg = arg };
        int e = pthread_create(&threads[i].thread, NULL, check_thread_main, &threads[i]);
        if (!CHECK(e == 0, "thread of rank %d: %s", i, strerror(e)))
            check_give_up(); /* the ranks that do run would wait for ever */
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(CHECK_RANK_SECONDS * check_scale());
    for (int i = 0; i < n; i++) {
        if (pthread_timedjoin_np(threads[i].thread, NULL, &until)) {
            check_say("# rank %d of %d was still running after %.0f s\n", i, n, CHECK_RANK_SECONDS * check_scale());
            nlate++;
        } else if (threads[i].result) {
            check_say("# rank %d of %d returned %d\n", i, n, threads[i].result);
            nbad++;
        }
    }
    if (nlate)
        check_give_up();
    return nbad;
}

/* ---- what this process holds; before and after must agree */

static inline int check_count_entries(const char *path)
{
    DIR *d = opendir(path);
    int  n = 0;
    if (!d)
        return -1;
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static inline int check_count_fds(void)
{
    return check_count_entries("/proc/self/fd") - 1; /* without the one that looks */
}

static inline int check_count_threads(void) /* a joined thread may still show for a moment: WAIT_FOR */
{
    return check_count_entries("/proc/self/task");
}

static inline int check_count_maps(void)
{
    int  fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), n = 0;
    char buf[4096];
    if (fd < 0)
        return -1;
    for (ssize_t got; (got = read(fd, buf, sizeof buf)) > 0;)
        for (ssize_t i = 0; i < got; i++)
            n += buf[i] == '\n';
    close(fd);
    return n;
}

int main(int argc, char **argv)
{
    check_state.pid = getpid();
    check_state.shared = mmap(NULL, sizeof *check_state.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (check_state.shared == MAP_FAILED)
        return 99;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < check_state.ncases; i++) {
        bool chosen = argc == 1;
        for (int a = 1; a < argc; a++)
            chosen |= strstr(check_state.cases[i].name, argv[a]) != NULL;
        if (!chosen)
            continue;
        check_begin("%s", check_state.cases[i].name);
        check_state.cases[i].run();
        while (check_state.depth) /* a case left from within a CASE leaves both open */
            check_end();
    }
    printf("1..%d\n", check_state.nprinted);
    return check_state.nfailed != 0;
}

#endif
