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

#include "base/log.h"

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
    perf_job           job;
} process;

typedef struct {
    process  *p;
    int       thread;
    pthread_t id;
} worker_thread;

/* Our own library: a file like any other, but on emulated GPUs the one linked in. */
static int open_own(process *p, const char *asked)
{
    const bool emulated = p->config->kind == RCCLX_GPU_EMU;
    char       own[PATH_MAX];

    if (!asked && emulated) {
        nccl_table_linked(&p->libs[0]);
        return TOOL_OK;
    }
    nccl_table_own(own, sizeof(own));
    if (!asked && access(own, R_OK))
        return tool_fail("perf", "no library at %s; name one with --lib", own);
    return nccl_table_open(&p->libs[0], asked ? asked : own);
}

/* The driver comes first: then a library finds it loaded, and the same for all. */
static int open_libraries(process *p)
{
    const perf_config *c = p->config;
    char               why[200] = "";

    if (c->kind != PERF_HOST) {
        p->job.gpu = rcclx_gpu_open((rcclx_gpu_kind)c->kind, why, sizeof(why));
        if (!p->job.gpu || !p->job.gpu->count)
            return tool_fail("perf", "the GPUs are gone: %s", why);
    }
    if (open_own(p, c->lib) != TOOL_OK)
        return TOOL_FAILED;
    for (int i = 0; i < c->nvs; i++)
        if (nccl_table_open(&p->libs[i + 1], c->vs[i]))
            return TOOL_FAILED;
    for (int side = c->lib ? 0 : 1; c->kind == RCCLX_GPU_EMU && side <= c->nvs; side++)
        if (p->libs[side].rcclxVersion)
            return tool_fail("perf", "%s would emulate GPUs of its own; leave --lib and --vs out, and the library linked "
                                     "into this program is measured", p->libs[side].path);
    p->job.config = c;
    p->job.libs   = p->libs;
    p->job.nsides = 1 + c->nvs;
    return TOOL_OK;
}

static void *work(void *arg)
{
    const worker_thread *t = arg;

    perf_sweep(&t->p->job, t->thread);
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

    p->job.local = rank;
    perf_team_join(p->job.team, rank);
    return code != TOOL_OK ? code : run_workers(p);
}

static int run_forked(process *p, int nprocs)
{
    const perf_config *c   = p->config;
    const tool_job     job = {.who = "perf", .what = c->op->word, .nranks = nprocs, .timeout_s = c->timeout_s,
                              .bind = c->bind, .child = child, .arg = p};
    int                code;

    p->job.team = perf_team_shared(nprocs, c->threads);
    if (!p->job.team)
        return tool_fail("perf", "no memory for %d processes", nprocs);
    code = tool_job_run(&job);
    if (code == TOOL_OK)
        code = perf_team_verdict(p->job.team);
    perf_team_destroy(p->job.team);
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

/* A communicator of one rank a process, from the launcher's variables, and the team on it. */
static int join_team(process *p, const rcclxEnv_t *env, ncclComm_t *comm)
{
    nccl_table      *lib    = &p->libs[0];
    const rcclx_gpu *gpu    = p->job.gpu;
    const int        device = gpu ? p->job.local * p->config->threads * p->config->per_thread % gpu->count : PERF_HOST;
    rcclx_gpu_scope  scope;
    ncclResult_t     r;

    if (gpu && gpu->enter(&scope, device) != RCCLX_OK)
        return tool_fail("perf", "rank %d of %s's job: device %d: %s", env->rank, env->launcher, device,
                         rcclx_last_error());
    r = lib->rcclxCommInitEnv(comm, NULL);
    if (gpu)
        gpu->leave(&scope);
    if (r != ncclSuccess)
        return tool_fail("perf", "rank %d of %s's job: %s: %s", env->rank, env->launcher, lib->ncclGetErrorString(r),
                         lib->ncclGetLastError ? lib->ncclGetLastError(NULL) : "");
    p->job.team = perf_team_comm(lib, *comm, env->size, env->rank, p->config->threads, gpu, device);
    return p->job.team ? TOOL_OK : tool_fail("perf", "out of memory");
}

static int run_launched(process *p, const rcclxEnv_t *env)
{
    ncclComm_t comm = NULL;
    int        code = open_libraries(p);

    if (code != TOOL_OK)
        return code;
    if (!p->libs[0].rcclxCommInitEnv)
        return tool_fail("perf", "rank %d of %s's job: %s cannot join a job by itself; start local ranks with --ranks",
                         env->rank, env->launcher, p->libs[0].path);
    start_timeout(p->config->timeout_s);
    p->job.local = env->localRank >= 0 ? env->localRank : env->rank;
    code         = join_team(p, env, &comm);
    if (code == TOOL_OK)
        code = run_workers(p);
    if (code == TOOL_OK)
        code = perf_team_verdict(p->job.team);
    perf_team_destroy(p->job.team);
    if (comm)
        p->libs[0].ncclCommDestroy(comm);
    return code;
}

/* What was left to the device, and what it forbids. */
static int resolve(perf_config *c, int *devices)
{
    static const char *const words[] = {"cuda", "hip", "emu"};
    const char *wanted = c->device ? c->device : getenv("RCCLX_DEVICE");
    const bool  known  = wanted && tool_word_index("auto|host|cuda|hip|emu", wanted) >= 0;
    const int   code   = perf_gpu_find(known ? wanted : "auto", &c->kind, devices);
    bool        gpu    = c->kind != PERF_HOST;

    if (code != TOOL_OK)
        return code;
    if (gpu || c->device)
        setenv("RCCLX_DEVICE", gpu ? words[c->kind] : "host", 1);
    if (c->graph && !gpu)
        return tool_usage("perf", "-G %d: graphs need a GPU, and this is host memory", c->graph);
    if (c->graph && c->null_stream == 1)
        return tool_usage("perf", "-G %d: the default stream (-y 1) cannot be captured; leave -y out", c->graph);
    c->null_stream     = c->null_stream >= 0 ? c->null_stream : !gpu;
    c->average         = c->average >= 0 ? c->average : gpu ? 3 : 1;
    c->registration[0] = c->registration[0] >= 0 ? c->registration[0] : gpu && !c->plain;
    for (int side = 1; side < PERF_SIDES; side++)
        if (c->registration[side] < 0)
            c->registration[side] = c->registration[0];
    return TOOL_OK;
}

int perf_launch(const perf_config *given)
{
    perf_config  mine    = *given;
    perf_config *c       = &mine;
    process      p       = {.config = c};
    rcclxEnv_t   env     = {.size = 1, .launcher = "none"};
    int          nprocs  = c->nprocs, devices, code = resolve(c, &devices);

    if (code != TOOL_OK)
        return code;
    if (!nprocs && rcclxEnvRank(&env) != ncclSuccess)
        return tool_fail("perf", "the launcher's variables make no sense; start local ranks with --ranks");
    if (!nprocs && strcmp(env.launcher, "none"))
        nprocs = env.size;
    else if (!nprocs)
        nprocs = c->tests || c->threads * c->per_thread > 1 ? 1
                 : devices                                  ? devices
                                                            : (int)sysconf(_SC_NPROCESSORS_ONLN);
    if ((long)nprocs * c->threads * c->per_thread > PERF_MAX_RANKS)
        return tool_usage("perf", "%d processes x %d threads x %d: at most %d ranks", nprocs, c->threads, c->per_thread,
                          PERF_MAX_RANKS);
    if (c->root >= nprocs * c->threads * c->per_thread)
        return tool_usage("perf", "-r %d: the job has %d ranks", c->root, nprocs * c->threads * c->per_thread);
    return !c->nprocs && strcmp(env.launcher, "none") ? run_launched(&p, &env) : run_forked(&p, nprocs);
}
