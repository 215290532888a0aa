/* Running operations: one at once, or a group's together.
 *
 *   group start   op op op ... (kept in this thread)   outermost group end
 *     jobs (init, split)        each in a thread, all together
 *     operations, by stream     NULL: run here;  a stream: one batch in its queue
 *
 * A batch takes a turn of every team it touches when it is posted, all at once,
 * so that turns and queues have the same order everywhere in the process and
 * cannot wait for each other in a circle. Within a batch all tasks are polled in
 * turn: several ranks of one thread, sends that face receives, collectives of
 * different communicators all make progress. */
#include "exec/task.h"

#include "exec/batch.h"
#include "exec/gpu_team.h"
#include "exec/precision.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process.h"

#include <stdio.h>
#include <string.h>

typedef struct job {
    rcclx_status (*run)(void *);
    void        (*drop)(void *);
    void        *arg;
    pthread_t    thread;
    bool         threaded;
    rcclx_status status;
    char         text[RCCLX_ERROR_TEXT];
} job;

/* What this thread has open. A thread's own, so no lock. */
typedef struct {
    int          depth;
    rcclx_status failed;
    char         why[RCCLX_ERROR_TEXT];
    rcclx_task  *tasks;
    int          ntasks, cap_tasks;
    job         *jobs;
    int          njobs, cap_jobs;
} group;

static _Thread_local group here;

/* The array is kept from group to group, and goes when its thread ends. */
static pthread_key_t  kept_tasks;
static pthread_once_t kept_once = PTHREAD_ONCE_INIT;

static void make_key(void)
{
    pthread_key_create(&kept_tasks, rcclx_mem_free);
}

static void keep(rcclx_task *tasks)
{
    pthread_once(&kept_once, make_key);
    pthread_setspecific(kept_tasks, tasks);
}

/* --- running ------------------------------------------------------------------- */

static rcclx_status poll_one(rcclx_task *t)
{
    return t->op.kind < RCCLX_COLL_COUNT ? rcclx_coll_poll(t) : rcclx_pair_poll(t);
}

rcclx_status rcclx_task_run(rcclx_task *t)
{
    rcclx_patience p = { 0 };
    rcclx_status s = rcclx_team_broken(t->op.team);

    if (s != RCCLX_OK)
        return s;
    for (uint64_t moved = t->moved; (s = poll_one(t)) == RCCLX_AGAIN; moved = t->moved) {
        if (moved != t->moved)
            p = (rcclx_patience){ 0 };
        /* the look may be what finishes the task: then it must not be polled again */
        if (rcclx_patience_round(&p, t->op.team) && (s = rcclx_task_check(t, rcclx_clock_ns() - p.began)) != RCCLX_AGAIN)
            return s;
    }
    return s;
}

/* Look up from waiting: end the tasks that something has ended. */
static void check_all(rcclx_task *const *tasks, int n, uint64_t waited)
{
    for (int i = 0; i < n; i++) {
        const rcclx_status s = rcclx_task_check(tasks[i], waited);
        if (s != RCCLX_AGAIN)
            tasks[i]->status = s;
    }
}

/* Keep the unfinished ones, in order; the first failure is the batch's. */
static int sweep(rcclx_task **left, int n, rcclx_status *first)
{
    int kept = 0;

    for (int i = 0; i < n; i++) {
        if (left[i]->status == RCCLX_AGAIN)
            left[kept++] = left[i];
        else if (*first == RCCLX_OK)
            *first = left[i]->status;
    }
    return kept;
}

rcclx_status rcclx_batch_run(rcclx_task **left, int n)
{
    rcclx_patience p = { 0 };
    rcclx_status first = RCCLX_OK;

    for (int i = 0; i < n; i++) {
        left[i]->status = rcclx_team_broken(left[i]->op.team);
        if (left[i]->status == RCCLX_OK)
            left[i]->status = RCCLX_AGAIN;
    }
    n = sweep(left, n, &first);
    while (n) {
        bool moved = false;
        for (int i = 0; i < n; i++) {
            const uint64_t before = left[i]->moved;
            const uint8_t state = left[i]->state;
            left[i]->status = poll_one(left[i]);
            moved |= left[i]->status != RCCLX_AGAIN || before != left[i]->moved || state != left[i]->state;
        }
        if (moved)
            p = (rcclx_patience){ 0 };
        else if (rcclx_patience_round(&p, left[0]->op.team))
            check_all(left, n, rcclx_clock_ns() - p.began);
        n = sweep(left, n, &first);
    }
    return first;
}

/* --- posting ------------------------------------------------------------------- */

/* Only who has the team's turn counts, so that plain stores do. */
static void enter(rcclx_task *t)
{
    _Atomic uint64_t *n = &t->op.team->ops[t->op.kind];

    if (atomic_load_explicit(&t->op.team->aborted, memory_order_relaxed))
        return; /* it may have left the queue before its turn, and will not run */
    atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + 1, memory_order_relaxed);
    if (t->op.kind >= RCCLX_COLL_COUNT)
        rcclx_pair_number(t);
}

void rcclx_batch_wait_turns(rcclx_batch *b)
{
    for (int i = 0; i < b->nturns; i++)
        rcclx_turn_wait(b->turns[i].team, b->turns[i].ticket);
    /* message numbers follow the turns, so that they are the team's own order */
    for (int i = 0; i < b->ntasks; i++) {
        b->tasks[i].grouped = b->ntasks > 1;
        enter(&b->tasks[i]);
    }
}

void rcclx_batch_pass_turns(rcclx_batch *b)
{
    for (int i = 0; i < b->nturns; i++) {
        rcclx_turn_pass(b->turns[i].team);
        rcclx_team_let_go(b->turns[i].team);
    }
}

static void take_turns(rcclx_batch *b)
{
    for (int i = 0; i < b->ntasks; i++) {
        rcclx_team *t = b->tasks[i].op.team;
        int k = 0;
        while (k < b->nturns && b->turns[k].team != t)
            k++;
        if (k < b->nturns)
            continue;
        rcclx_team_hold(t);
        b->turns[b->nturns++] = (rcclx_turn){ t, rcclx_turn_take(t) };
    }
}

static size_t table_bytes(const rcclx_op *op)
{
    return op->kind == RCCLX_ALL_TO_ALLV ? 4 * (size_t)op->team->nranks * sizeof(size_t) : 0;
}

/* Copy the four tables of an all-to-all-v to `room`; the op then points there. */
static size_t *copy_tables(rcclx_op *op, size_t *room)
{
    const size_t n = (size_t)op->team->nranks;
    const size_t **from[4] = { &op->scounts, &op->sdispls, &op->rcounts, &op->rdispls };

    for (int k = 0; k < 4; k++, room += n)
        *from[k] = memcpy(room, *from[k], n * sizeof(size_t));
    return room;
}

/* A task kept in a group outlives the call, and so must its tables. */
static rcclx_status own_tables(rcclx_task *t)
{
    t->tables = rcclx_mem_alloc(table_bytes(&t->op));
    if (!t->tables)
        return RCCLX_FAIL(RCCLX_NOMEM, "no memory for the tables of an AlltoAllv in a group");
    copy_tables(&t->op, t->tables);
    return RCCLX_OK;
}

/* A batch owns its tasks and copies of the tables that calls handed in; one block of memory. */
static rcclx_batch *batch_of(const rcclx_task *tasks, int n, const void *stream)
{
    size_t mine = 0, tables = 0;

    for (int i = 0; i < n; i++)
        if (tasks[i].op.stream == stream && !rcclx_team_on_gpu(tasks[i].op.team))
            mine++, tables += table_bytes(&tasks[i].op);
    rcclx_batch *b = rcclx_mem_alloc(sizeof(*b) + mine * (sizeof(rcclx_task) + sizeof(rcclx_task *) + sizeof(rcclx_turn)) + tables);
    if (!b)
        return NULL;
    b->tasks = (rcclx_task *)(b + 1);
    b->left = (rcclx_task **)(b->tasks + mine);
    b->turns = (rcclx_turn *)(b->left + mine);
    size_t *table = (size_t *)(b->turns + mine);
    for (int i = 0; i < n; i++) {
        if (tasks[i].op.stream != stream || rcclx_team_on_gpu(tasks[i].op.team))
            continue;
        rcclx_task *t = &b->tasks[b->ntasks];
        *t = tasks[i];
        b->left[b->ntasks++] = t;
        t->tables = NULL;
        if (t->op.kind == RCCLX_ALL_TO_ALLV)
            table = copy_tables(&t->op, table);
    }
    return b;
}

static rcclx_status post_batch(const rcclx_task *tasks, int n, void *stream)
{
    rcclx_batch *b = batch_of(tasks, n, stream);

    if (!b)
        return RCCLX_FAIL(RCCLX_NOMEM, "no memory for a batch of %d operations", n);
    pthread_mutex_lock(&rcclx_process()->posting);
    take_turns(b);
    rcclx_status s = stream ? rcclx_stream_push(stream, b) : RCCLX_OK;
    pthread_mutex_unlock(&rcclx_process()->posting);
    if (stream && s == RCCLX_OK)
        return s; /* the stream's worker runs and frees it */
    rcclx_batch_wait_turns(b);
    if (!stream)
        s = rcclx_batch_run(b->left, b->ntasks);
    rcclx_batch_pass_turns(b);
    rcclx_mem_free(b);
    return s;
}

/* A team's operations in one group all go to the stream of its first one. */
static void one_stream_a_team(rcclx_task *tasks, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = 0; k < i; k++)
            if (tasks[k].op.team == tasks[i].op.team) {
                tasks[i].op.stream = tasks[k].op.stream;
                break;
            }
}

static rcclx_status post_on_gpu(rcclx_team *team, const rcclx_task *chain, void *stream)
{
    return team->proxy ? rcclx_proxy_post(team, chain, stream) : rcclx_gpu_post(team, chain, stream);
}

/* The operations of each team on a GPU, in order, to its stream. */
static int post_to_gpus(rcclx_task *tasks, int n, rcclx_status *first)
{
    int nposted = 0;

    for (int i = 0; i < n; i++) {
        rcclx_team *team = tasks[i].op.team;
        rcclx_task *last = &tasks[i];
        if (!rcclx_team_on_gpu(team) || tasks[i].state)
            continue;
        for (int k = i + 1; k < n; k++)
            if (tasks[k].op.team == team) {
                tasks[k].state = 1; /* linked */
                last = last->next = &tasks[k];
                nposted++;
            }
        nposted++;
        const rcclx_status s = post_on_gpu(team, &tasks[i], tasks[i].op.stream);
        if (s != RCCLX_OK && *first == RCCLX_OK)
            *first = s;
    }
    return nposted;
}

static rcclx_status post_all(rcclx_task *tasks, int n)
{
    rcclx_status first = RCCLX_OK;

    if (post_to_gpus(tasks, n, &first) == n)
        return first;
    if (n <= 4096)
        one_stream_a_team(tasks, n);
    /* streams first: their workers run while this thread does what has none */
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < n; i++) {
            void *stream = tasks[i].op.stream;
            bool seen = (stream == NULL) != (pass == 1) || rcclx_team_on_gpu(tasks[i].op.team);
            for (int k = 0; !seen && k < i; k++)
                seen = tasks[k].op.stream == stream && !rcclx_team_on_gpu(tasks[k].op.team);
            const rcclx_status s = seen ? RCCLX_OK : post_batch(tasks, n, stream);
            if (s != RCCLX_OK && first == RCCLX_OK)
                first = s;
            if (!stream && !seen)
                break;
        }
    return first;
}

rcclx_status rcclx_op_post(const rcclx_op *op)
{
    rcclx_team *team = op->team;

    if (here.depth) {
        if (here.ntasks == here.cap_tasks) {
            const int cap = here.cap_tasks ? 2 * here.cap_tasks : 16;
            rcclx_task *more = rcclx_mem_realloc(here.tasks, (size_t)cap * sizeof(*more));
            if (!more)
                return RCCLX_FAIL(RCCLX_NOMEM, "no memory for a group of %d operations", cap);
            here.tasks = more;
            keep(more);
            here.cap_tasks = cap;
        }
        rcclx_task *kept = &here.tasks[here.ntasks];
        *kept = (rcclx_task){ .op = *op };
        RCCLX_TRY(rcclx_op_resolve(&kept->op));
        if (op->kind == RCCLX_ALL_TO_ALLV)
            RCCLX_TRY(own_tables(kept));
        here.ntasks++;
        rcclx_team_hold(team);
        return RCCLX_OK;
    }
    if (op->kind >= RCCLX_COLL_COUNT && op->root == team->rank)
        return RCCLX_FAIL(RCCLX_USAGE, "rank %d: %s to itself outside a group can never meet its other half; put ncclSend and "
                          "ncclRecv in one group", team->rank, rcclx_kind_name(op->kind));
    rcclx_task task = { .op = *op };
    RCCLX_TRY(rcclx_op_resolve(&task.op));
    if (rcclx_team_on_gpu(team))
        return post_on_gpu(team, &task, op->stream);
    if (op->stream)
        return post_batch(&task, 1, op->stream);
    rcclx_turn_wait(team, rcclx_turn_take(team));
    enter(&task);
    const rcclx_status s = rcclx_task_run(&task);
    rcclx_turn_pass(team);
    return s;
}

rcclx_status rcclx_team_exchange(rcclx_team *t, const void *mine, void *all, size_t nbytes)
{
    const rcclx_op op = { .kind = RCCLX_ALL_GATHER, .team = t, .in = mine, .out = all, .count = nbytes, .type = RCCLX_U8,
                          .op = RCCLX_COPY };
    rcclx_task task = { .op = op };

    rcclx_turn_wait(t, rcclx_turn_take(t));
    const rcclx_status s = rcclx_task_run(&task);
    rcclx_turn_pass(t);
    return s;
}

/* --- groups --------------------------------------------------------------------- */

bool rcclx_group_open(void)
{
    return here.depth > 0;
}

rcclx_status rcclx_group_start(void)
{
    here.depth++;
    return RCCLX_OK;
}

void rcclx_group_fail(rcclx_status s)
{
    if (!here.depth || here.failed != RCCLX_OK)
        return;
    here.failed = s;
    strncpy(here.why, rcclx_last_error(), sizeof(here.why) - 1);
}

/* A message to oneself needs its other half in the same group. */
static rcclx_status check_selves(void)
{
    for (int i = 0; i < here.ntasks; i++) {
        const rcclx_op *op = &here.tasks[i].op;
        if (op->kind < RCCLX_COLL_COUNT || op->root != op->team->rank)
            continue;
        int sends = 0, recvs = 0;
        for (int k = 0; k < here.ntasks; k++) {
            const rcclx_op *o = &here.tasks[k].op;
            if (o->team == op->team && o->root == op->team->rank && o->kind >= RCCLX_COLL_COUNT)
                *(o->kind == RCCLX_SEND ? &sends : &recvs) += 1;
        }
        if (sends != recvs)
            return RCCLX_FAIL(RCCLX_USAGE, "rank %d: %d sends to itself but %d receives from itself in one group; each needs "
                              "its other half in the same group", op->team->rank, sends, recvs);
        return RCCLX_OK;
    }
    return RCCLX_OK;
}

static void *job_thread(void *arg)
{
    job *j = arg;

    j->status = j->run(j->arg);
    if (j->status != RCCLX_OK)
        strncpy(j->text, rcclx_last_error(), sizeof(j->text) - 1);
    return NULL;
}

static rcclx_status run_jobs(job *jobs, int n)
{
    rcclx_status first = RCCLX_OK;

    for (int i = 0; i < n; i++)
        jobs[i].threaded = n > 1 && pthread_create(&jobs[i].thread, NULL, job_thread, &jobs[i]) == 0;
    for (int i = 0; i < n; i++) {
        if (jobs[i].threaded)
            pthread_join(jobs[i].thread, NULL);
        else
            job_thread(&jobs[i]);
        if (jobs[i].status != RCCLX_OK && first == RCCLX_OK) {
            first = jobs[i].status;
            rcclx_last_error_set(jobs[i].text);
        }
    }
    return first;
}

rcclx_status rcclx_group_job(rcclx_status (*run)(void *job), void (*drop)(void *job), void *arg)
{
    if (!here.depth)
        return run(arg);
    if (here.njobs == here.cap_jobs) {
        const int cap = here.cap_jobs ? 2 * here.cap_jobs : 8;
        job *more = rcclx_mem_realloc(here.jobs, (size_t)cap * sizeof(*more));
        if (!more) {
            drop(arg);
            return RCCLX_FAIL(RCCLX_NOMEM, "no memory for a group of %d communicators", cap);
        }
        here.jobs = more;
        here.cap_jobs = cap;
    }
    here.jobs[here.njobs++] = (job){ .run = run, .drop = drop, .arg = arg };
    return RCCLX_OK;
}

/* Take the thread's group away, so that what runs now may open another. */
static group close_group(void)
{
    group g = here;

    here = (group){ 0 };
    if (g.tasks)
        keep(NULL);
    return g;
}

static void drop_jobs(group *g)
{
    for (int i = 0; i < g->njobs; i++)
        g->jobs[i].drop(g->jobs[i].arg);
}

static void let_go_all(group *g)
{
    for (int i = 0; i < g->ntasks; i++) {
        rcclx_mem_free(g->tasks[i].tables);
        rcclx_team_let_go(g->tasks[i].op.team);
    }
}

static void free_group(group *g)
{
    rcclx_mem_free(g->tasks);
    rcclx_mem_free(g->jobs);
}

rcclx_status rcclx_group_end(void)
{
    if (!here.depth)
        return RCCLX_FAIL(RCCLX_USAGE, "ncclGroupEnd without ncclGroupStart in this thread");
    if (--here.depth)
        return RCCLX_OK;
    rcclx_status s = here.failed;
    if (s != RCCLX_OK)
        rcclx_last_error_set(here.why);
    else if (here.njobs && here.ntasks)
        s = RCCLX_FAIL(RCCLX_USAGE, "a group holds communicator set-up and operations; end the set-up's group first");
    else
        s = check_selves();
    group g = close_group();
    if (s == RCCLX_OK && g.njobs)
        s = run_jobs(g.jobs, g.njobs);
    else
        drop_jobs(&g);
    if (s == RCCLX_OK && g.ntasks)
        s = post_all(g.tasks, g.ntasks);
    let_go_all(&g);
    if (!here.tasks && g.cap_tasks <= 256) {
        /* keep the array for the next group: posting allocates nothing then */
        here.tasks = g.tasks;
        here.cap_tasks = g.cap_tasks;
        keep(here.tasks);
        g.tasks = NULL;
    }
    free_group(&g);
    return s;
}

rcclx_status rcclx_group_simulate(double *us)
{
    if (!here.depth)
        return RCCLX_FAIL(RCCLX_USAGE, "ncclGroupSimulateEnd without ncclGroupStart in this thread");
    double ns = 0;
    for (int i = 0; i < here.ntasks; i++) {
        const rcclx_op *op = &here.tasks[i].op;
        const rcclx_team *t = op->team;
        if (op->kind >= RCCLX_COLL_COUNT)
            continue;
        const rcclx_shape shape = { op->kind, t->nranks, t->rank, op->root, 0, rcclx_team_nodes(t) };
        const unsigned facts = RCCLX_FACT_IN_MAPPED | RCCLX_FACT_OUT_MAPPED | RCCLX_FACT_APART;
        const size_t nbytes = op->count * rcclx_type_size(op->type);
        bool unfit;
        const rcclx_algo *a = rcclx_algo_choose(&shape, nbytes, facts, nbytes <= t->slot_max, true, t->algo,
                                                &t->machine, &unfit);
        ns += a ? rcclx_plan_price(a, &shape, nbytes, facts, &t->machine) : 0;
    }
    if (us)
        *us = ns * 1e-3;
    if (--here.depth == 0) {
        group g = close_group();
        drop_jobs(&g);
        let_go_all(&g);
        free_group(&g);
    }
    return RCCLX_OK;
}
