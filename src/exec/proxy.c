/* The proxy of a team of GPUs on several machines: its memory, its thread, its end.
 *
 *   posters   add job, launch ----+                       stream
 *   kernel                        +--> door: "job j has begun"    (not before the stream has come there)
 *   thread    sleeps until something was posted; waits at the door; serves the job; says finished
 *
 * Jobs run in the order of their launches, which is the order of the stream, one at a
 * time: the kernel stays until its job is finished. A graph's launches are not seen
 * here; once something was captured the thread looks at the door now and then.
 *
 * The three teams fail together: whichever meets a failure breaks the others, in words
 * that say among which ranks it was, and kernels leave. */
#include "exec/proxy_team.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process.h"
#include "exec/mirror.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { DOOR_AT = 512, COUNTS_AT = 4096, COUNTS_BYTES = GP_PROXY_QUEUES * 2 * GP_PROXY_APART, BUSY_NS = 2000000, NAP_NS = 50000, IDLE_NS = 200000 };

/* --- jobs ------------------------------------------------------------------------------ */

rcclx_status rcclx_proxy_add(rcclx_proxy *p, rcclx_proxy_job *j, uint32_t *number)
{
    rcclx_status s = RCCLX_OK;
    int k = 0;

    pthread_mutex_lock(&p->lock);
    while (k < p->njobs && p->job[k] && p->job[k]->used)
        k++;
    if (k == p->cap_jobs) {
        const int cap = k ? 2 * k : 64;
        rcclx_proxy_job **more = rcclx_mem_realloc(p->job, (size_t)cap * sizeof(*more));
        if (more) {
            memset(more + k, 0, (size_t)(cap - k) * sizeof(*more));
            p->job = more;
            p->cap_jobs = cap;
        } else {
            s = RCCLX_FAIL(RCCLX_NOMEM, "rank %d: no memory for operations over machines", p->whole->rank);
        }
    }
    if (s == RCCLX_OK) {
        rcclx_mem_free(p->job[k]);
        j->used = true;
        p->job[k] = j;
        p->njobs = k < p->njobs ? p->njobs : k + 1;
        *number = (uint32_t)k;
    }
    pthread_mutex_unlock(&p->lock);
    return s;
}

static rcclx_proxy_job *find(rcclx_proxy *p, uint32_t number)
{
    pthread_mutex_lock(&p->lock);
    rcclx_proxy_job *j = number < (uint32_t)p->njobs ? p->job[number] : NULL;
    pthread_mutex_unlock(&p->lock);
    return j;
}

static void finish(rcclx_proxy *p, rcclx_proxy_job *j)
{
    pthread_mutex_lock(&p->lock);
    j->used = j->kept; /* the next job that is added takes its place */
    pthread_mutex_unlock(&p->lock);
}

/* --- the thread -------------------------------------------------------------------------- */

static void nap(uint64_t ns)
{
    const struct timespec t = { 0, (long)ns };

    nanosleep(&t, NULL);
}

/* Nothing is on its way that the host knows of. False: it is time to end. */
static bool rest(rcclx_proxy *p, uint64_t handled)
{
    pthread_mutex_lock(&p->lock);
    while (!p->stop && !p->graphs && p->posted == handled)
        pthread_cond_wait(&p->change, &p->lock);
    const bool on = !p->stop;
    pthread_mutex_unlock(&p->lock);
    return on;
}

static bool begun(const rcclx_proxy *p, uint64_t handled)
{
    return __atomic_load_n(&p->door->begun, __ATOMIC_ACQUIRE) != handled;
}

/* Until a kernel is at the door. False: it is time to end. */
static bool await_launch(rcclx_proxy *p, uint64_t handled, uint64_t eager)
{
    uint64_t since = 0;

    while (!begun(p, handled)) {
        if (!rest(p, eager))
            return false;
        const uint64_t now = rcclx_clock_ns();
        since = since ? since : now;
        if (now - since < BUSY_NS)
            sched_yield();
        else
            nap(p->graphs && now - since > 100 * BUSY_NS ? IDLE_NS : NAP_NS);
    }
    return true;
}

static void *work(void *arg)
{
    rcclx_proxy *p = arg;
    uint64_t handled = 0, eager = 0;

    rcclx_thread_name("rcclx proxy");
    while (await_launch(p, handled, eager)) {
        rcclx_proxy_job *j = find(p, __atomic_load_n(&p->door->job, __ATOMIC_RELAXED));
        if (!j || rcclx_proxy_serve(p, j) != RCCLX_OK)
            break; /* the team is broken, and kernels leave by themselves */
        handled++;
        eager += !j->kept;
        finish(p, j);
        __atomic_store_n(&p->door->finished, handled, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* --- failing together ---------------------------------------------------------------------- */

void rcclx_proxy_abort(rcclx_team *t)
{
    if (t->proxy->control)
        __atomic_store_n(&t->proxy->control->abort, 1, __ATOMIC_RELEASE);
}

/* What breaks one breaks all three. */
void rcclx_proxy_spread(rcclx_team *t, rcclx_status s, const char *text)
{
    rcclx_proxy_abort(t);
    rcclx_team_join_break(t->proxy->near, s, text);
    if (t->proxy->rail)
        rcclx_team_join_break(t->proxy->rail, s, text);
}

/* "among ranks 4, 5, 6: ...": ranks are numbered anew in there. */
static void raise_to(rcclx_team *whole, const rcclx_team *part, rcclx_status s, const char *text)
{
    char words[RCCLX_ERROR_TEXT];
    int at = snprintf(words, sizeof(words), "rank %d of %d: among the ranks", whole->rank, whole->nranks);
    const bool rail = part == whole->proxy->rail;
    const int place = whole->rank % whole->proxy->near->nranks;

    for (int r = 0; r < whole->nranks; r++)
        if (rail ? r % whole->proxy->near->nranks == place : whole->node[r] == whole->node[whole->rank])
            at += snprintf(words + at, sizeof(words) - (size_t)at, " %d", r);
    snprintf(words + at, sizeof(words) - (size_t)at, ", numbered from 0: %.600s", text);
    rcclx_team_join_break(whole, s, words);
}

/* A part's threads may come here while the whole is taken down; that waits for them (link_to). */
void rcclx_proxy_raise(rcclx_team *part, rcclx_status s, const char *text)
{
    pthread_mutex_lock(&part->above_lock);
    if (part->above)
        raise_to(part->above, part, s, text);
    pthread_mutex_unlock(&part->above_lock);
}

static void link_to(rcclx_team *part, rcclx_team *whole)
{
    pthread_mutex_lock(&part->above_lock);
    part->above = whole;
    pthread_mutex_unlock(&part->above_lock);
}

/* --- set-up and end -------------------------------------------------------------------------- */

static rcclx_status make_memory(rcclx_proxy *p)
{
    const rcclx_gpu *gpu = p->near->gpu->gpu;
    void *m;

    RCCLX_TRY(gpu->alloc_host(&m, COUNTS_AT + COUNTS_BYTES));
    p->control = m;
    p->door = (gp_proxy_door *)(void *)((char *)m + DOOR_AT);
    p->counts = (char *)m + COUNTS_AT;
    RCCLX_TRY(gpu->alloc_host(&m, RCCLX_PROXY_POOL));
    p->slots = m;
    RCCLX_TRY(gpu->stream_create(&p->side));
    RCCLX_TRY(gpu->event_create(&p->fork, false));
    RCCLX_TRY(gpu->event_create(&p->join, false));
    return gpu->function(&p->kernel, p->near->gpu->module, "gp_proxy");
}

rcclx_status rcclx_proxy_create(rcclx_team *whole, rcclx_team *near, rcclx_team *rail)
{
    rcclx_proxy *p = RCCLX_NEW(rcclx_proxy);
    rcclx_gpu_scope scope;

    if (!p)
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: init: no memory for the proxy", whole->rank);
    p->whole = whole;
    p->near = near;
    p->rail = rail;
    pthread_mutex_init(&p->post_lock, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->change, NULL);
    whole->proxy = p;
    link_to(near, whole);
    if (rail)
        link_to(rail, whole);
    RCCLX_TRY(whole->driver->enter(&scope, whole->device));
    const rcclx_status s = make_memory(p);
    whole->driver->leave(&scope);
    if (s != RCCLX_OK)
        return s;
    const int e = pthread_create(&p->thread, NULL, work, p);
    if (e)
        return RCCLX_FAIL(RCCLX_SYSTEM, "rank %d: init: the proxy's thread cannot be started: %s", whole->rank, strerror(e));
    p->running = true;
    RCCLX_INFO_LOG(INIT, "rank %d of %d: %d machines, %d ranks on this one: %s", whole->rank, whole->nranks, whole->nnodes, near->nranks,
                   rail ? "sums inside machines, then over rails" : "machines are not alike, all through host memory");
    return RCCLX_OK;
}

rcclx_status rcclx_proxy_poll(rcclx_team *t)
{
    rcclx_team *const parts[] = { t->proxy->near, t->proxy->rail };

    for (int i = 0; i < 2; i++) {
        const rcclx_status s = parts[i] ? rcclx_team_poll(parts[i]) : RCCLX_OK;
        if (s == RCCLX_OK)
            continue;
        rcclx_proxy_raise(parts[i], s, parts[i]->cause); /* who has broken it may not have come so far */
        return rcclx_team_broken(t);
    }
    return RCCLX_OK;
}

void rcclx_proxy_drain(rcclx_team *t)
{
    rcclx_team_drain(t->proxy->near);
}

static void free_all(rcclx_proxy *p)
{
    const rcclx_gpu *gpu = p->near->gpu->gpu;

    for (int i = 0; i < p->noutgrown; i++)
        gpu->free(p->outgrown[i]);
    if (p->scratch)
        gpu->free(p->scratch);
    if (p->slots)
        gpu->free_host(p->slots);
    if (p->control)
        gpu->free_host(p->control);
    if (p->fork)
        gpu->event_destroy(p->fork);
    if (p->join)
        gpu->event_destroy(p->join);
    if (p->side)
        gpu->stream_destroy(p->side);
}

rcclx_team *rcclx_proxy_near_team(const rcclx_team *t)
{
    return t->proxy->near;
}

void rcclx_proxy_set_timeout(rcclx_team *t, double seconds)
{
    rcclx_team_set_timeout(t->proxy->near, seconds);
    if (t->proxy->rail)
        rcclx_team_set_timeout(t->proxy->rail, seconds);
}

void rcclx_proxy_describe(const rcclx_team *t, size_t *nbytes, uint64_t *pieces, const rcclx_team **rail)
{
    *nbytes = COUNTS_AT + COUNTS_BYTES + RCCLX_PROXY_POOL + t->proxy->nscratch;
    *pieces = atomic_load(&t->proxy->pieces);
    *rail = t->proxy->rail;
}

/* Before the near team is: kernels have ended, or its memory, and so this one, is given up. */
void rcclx_proxy_destroy(rcclx_team *t)
{
    rcclx_proxy *p = t->proxy;
    rcclx_gpu_scope scope;

    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->change);
    pthread_mutex_unlock(&p->lock);
    if (p->running)
        pthread_join(p->thread, NULL);
    link_to(p->near, NULL);
    if (p->rail)
        link_to(p->rail, NULL);
    if (p->near->gpu && !p->near->gpu->stuck && t->driver->enter(&scope, t->device) == RCCLX_OK) {
        free_all(p);
        t->driver->leave(&scope);
    }
    for (int k = 0; k < p->njobs; k++)
        rcclx_mem_free(p->job[k]);
    rcclx_mem_free(p->job);
    rcclx_mem_free(p->pairs);
    rcclx_mem_free(p->chain);
    pthread_cond_destroy(&p->change);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->post_lock);
    rcclx_mem_free(p);
    t->proxy = NULL;
}
