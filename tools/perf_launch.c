/* From a command line to workers.
 *
 *   by itself     the team's mapping is made, N processes are forked, then each
 *                 opens the libraries: nothing of them exists before the fork
 *   launched      (torchrun, mpirun, srun, rcclx run) this process is one rank
 *                 of the job; a communicator of one rank a process, made from
 *                 the environment, carries the team
 *
 * In both, each process runs config->threads workers. */
#include "perf.h"

#include "tool.h"
#include "tool_jobs.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

typedef struct {
    const perf_config *config;
    nccl_table         libs[PERF_SIDES];
    int                nsides;
    perf_team         *team;
} process;

typedef struct {
    process  *p;
    int       thread;
    pthread_t id;
} worker_thread;

static int open_libraries(process *p)
{
    const perf_config *c = p->config;
    char               own[PATH_MAX];

    nccl_table_own(own, sizeof(own));
    if (!c->lib && access(own, R_OK))
        return tool_fail("perf", "no library at %s; name one with --lib", own);
    p->nsides = c->vs ? 2 : 1;
    if (nccl_table_open(&p->libs[0], c->lib ? c->lib : own))
        return TOOL_FAILED;
    return c->vs ? nccl_table_open(&p->libs[1], c->vs) : TOOL_OK;
}

static void *work(void *arg)
{
    const worker_thread *t = arg;
    process             *p = t->p;

    perf_sweep(p->config, p->libs, p->nsides, p->team, perf_team_proc(p->team) * p->config->threads + t->thread,
               t->thread);
    return NULL;
}

/* The process' first thread is its first worker. */
static int run_workers(process *p)
{
    const int      n = p->config->threads;
    worker_thread *t = calloc((size_t)n, sizeof(*t));

    if (!t)
        return tool_fail("perf", "out of memory for %d threads", n);
    for (int i = 0; i < n; i++) {
        t[i] = (worker_thread){.p = p, .thread = i};
        if (i && pthread_create(&t[i].id, NULL, work, &t[i])) {
            tool_fail("perf", "cannot start thread %d of %d", i, n);
            _exit(TOOL_FAILED); /* the others already wait for it */
        }
    }
    work(&t[0]);
    for (int i = 1; i < n; i++)
        pthread_join(t[i].id, NULL);
    free(t);
    return TOOL_OK;
}

static int child(int rank, void *arg)
{
    process *p    = arg;
    int      code = open_libraries(p);

    perf_team_join(p->team, rank);
    return code != TOOL_OK ? code : run_workers(p);
}

static int run_forked(process *p, int nprocs)
{
    const perf_config *c   = p->config;
    const tool_job     job = {.who = "perf", .what = c->op->word, .nranks = nprocs, .timeout_s = c->timeout_s,
                              .bind = c->bind, .child = child, .arg = p};
    int                code;

    p->team = perf_team_shared(nprocs, c->threads);
    if (!p->team)
        return tool_fail("perf", "no memory for %d processes", nprocs);
    code = tool_job_run(&job);
    if (code == TOOL_OK)
        code = perf_team_verdict(p->team);
    perf_team_destroy(p->team);
    return code;
}

static void time_out(int number)
{
    static const char text[] = "rcclx perf: the time of -T is over\n";

    (void)number;
    if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
        _exit(TOOL_TIMEOUT); /* said or not */
    _exit(TOOL_TIMEOUT);
}

/* Started by a launcher, a rank watches its own clock. */
static void start_timeout(double seconds)
{
    const struct itimerval when = {.it_value = {.tv_sec = (time_t)seconds,
                                                .tv_usec = (suseconds_t)((seconds - floor(seconds)) * 1e6)}};

    signal(SIGALRM, time_out);
    setitimer(ITIMER_REAL, &when, NULL); /* zero: never */
}

static int run_launched(process *p, const rcclxEnv_t *env)
{
    nccl_table  *lib  = &p->libs[0];
    ncclComm_t   comm = NULL;
    ncclResult_t r;
    int          code = open_libraries(p);

    if (code != TOOL_OK)
        return code;
    if (!lib->rcclxCommInitEnv)
        return tool_fail("perf", "rank %d of %s's job: %s cannot join a job by itself; start local ranks with --ranks",
                         env->rank, env->launcher, lib->path);
    start_timeout(p->config->timeout_s);
    r = lib->rcclxCommInitEnv(&comm, NULL);
    if (r != ncclSuccess)
        return tool_fail("perf", "rank %d of %s's job: %s: %s", env->rank, env->launcher, lib->ncclGetErrorString(r),
                         lib->ncclGetLastError ? lib->ncclGetLastError(NULL) : "");
    p->team = perf_team_comm(lib, comm, env->size, env->rank, p->config->threads);
    if (!p->team)
        return tool_fail("perf", "out of memory");
    code = run_workers(p);
    if (code == TOOL_OK)
        code = perf_team_verdict(p->team);
    perf_team_destroy(p->team);
    lib->ncclCommDestroy(comm);
    return code;
}

int perf_launch(const perf_config *c)
{
    process    p      = {.config = c};
    rcclxEnv_t env    = {.size = 1, .launcher = "none"};
    int        nprocs = c->nprocs;

    if (c->device)
        setenv("RCCLX_DEVICE", c->device, 1);
    if (!nprocs && rcclxEnvRank(&env) != ncclSuccess)
        return tool_fail("perf", "the launcher's variables make no sense; start local ranks with --ranks");
    if (!nprocs && strcmp(env.launcher, "none"))
        nprocs = env.size;
    else if (!nprocs)
        nprocs = c->tests || c->threads * c->per_thread > 1 ? 1 : (int)sysconf(_SC_NPROCESSORS_ONLN);
    if ((long)nprocs * c->threads * c->per_thread > PERF_MAX_RANKS)
        return tool_usage("perf", "%d processes x %d threads x %d: at most %d ranks", nprocs, c->threads, c->per_thread,
                          PERF_MAX_RANKS);
    if (c->root >= nprocs * c->threads * c->per_thread)
        return tool_usage("perf", "-r %d: the job has %d ranks", c->root, nprocs * c->threads * c->per_thread);
    return !c->nprocs && strcmp(env.launcher, "none") ? run_launched(&p, &env) : run_forked(&p, nprocs);
}
