/* Host streams: a queue of batches and one thread that runs them in order.
 *
 *   post --> [batch][batch][batch] --> worker: wait for the teams' turns, run, pass on
 *
 * Streams are known by handles of a table, so that a stale one, or a pointer that
 * was never a stream, is recognised. The worker sleeps when its queue is empty. */
#include "exec/batch.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/process.h"

#include <string.h>

struct rcclx_stream {
    rcclx_stream   *next;    /* in the process's list */
    pthread_t       worker;
    pthread_mutex_t lock;    /* guards what follows */
    pthread_cond_t  change;
    rcclx_batch    *first, **last;
    bool            busy, stop;
    int             users;   /* calls that hold the pointer */
    rcclx_status    failed;
    char            why[RCCLX_ERROR_TEXT];
    uint64_t        given, done;  /* batches so far */
    uint64_t        failed_at;    /* of the first that failed ever, counted from 1; 0: none has */
    rcclx_status    first_failed;
    char            first_why[RCCLX_ERROR_TEXT];
};

/* The lock is held, and the batch that fails is number done + 1. */
static void fail(rcclx_stream *s, rcclx_status st)
{
    if (s->failed == RCCLX_OK) {
        s->failed = st;
        strncpy(s->why, rcclx_last_error(), sizeof(s->why) - 1);
    }
    if (s->failed_at == 0) {
        s->failed_at = s->done + 1;
        s->first_failed = st;
        strncpy(s->first_why, rcclx_last_error(), sizeof(s->first_why) - 1);
    }
}

static rcclx_status run(rcclx_batch *b)
{
    rcclx_batch_wait_turns(b);
    const rcclx_status st = rcclx_batch_run(b->left, b->ntasks);
    rcclx_batch_pass_turns(b);
    rcclx_mem_free(b);
    return st;
}

static void *work(void *arg)
{
    rcclx_stream *s = arg;

    rcclx_thread_name("rcclx stream");
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first && !s->stop)
            pthread_cond_wait(&s->change, &s->lock);
        rcclx_batch *b = s->first;
        if (!b)
            break;
        if (!(s->first = b->next))
            s->last = &s->first;
        s->busy = true;
        pthread_mutex_unlock(&s->lock);
        const rcclx_status st = run(b);
        pthread_mutex_lock(&s->lock);
        if (st != RCCLX_OK)
            fail(s, st);
        s->done++;
        s->busy = false;
        pthread_cond_broadcast(&s->change);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* The stream of a handle, held until put; NULL: no such stream. */
static rcclx_stream *get(const void *handle)
{
    rcclx_process_state *p = rcclx_process();

    pthread_mutex_lock(&p->lock);
    rcclx_stream *s = p->streams;
    while (s && s != handle)
        s = s->next;
    if (s)
        __atomic_fetch_add(&s->users, 1, __ATOMIC_ACQ_REL);
    pthread_mutex_unlock(&p->lock);
    return s;
}

static void put(rcclx_stream *s)
{
    __atomic_fetch_sub(&s->users, 1, __ATOMIC_ACQ_REL);
}

static rcclx_status unknown(const void *handle)
{
    return RCCLX_FAIL(RCCLX_ARGUMENT, "stream %p is none of this library's host streams; pass NULL, or one made by "
                      "rcclxStreamCreate and not destroyed", handle);
}

bool rcclx_stream_known(const void *handle)
{
    rcclx_stream *s = get(handle);

    if (s)
        put(s);
    return s != NULL;
}

/* Deadlines are those of the clock that nobody sets. */
static void cond_init(pthread_cond_t *c)
{
    pthread_condattr_t how;

    pthread_condattr_init(&how);
    pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
    pthread_cond_init(c, &how);
    pthread_condattr_destroy(&how);
}

rcclx_status rcclx_stream_create(void **handle)
{
    rcclx_process_state *p = rcclx_process();
    rcclx_stream *s = RCCLX_NEW(rcclx_stream);

    *handle = NULL;
    if (!s)
        return RCCLX_FAIL(RCCLX_NOMEM, "no memory for a stream");
    s->last = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    cond_init(&s->change);
    const int e = pthread_create(&s->worker, NULL, work, s);
    if (e) {
        rcclx_mem_free(s);
        return RCCLX_FAIL(RCCLX_SYSTEM, "a stream's worker thread cannot be started: %s", strerror(e));
    }
    pthread_mutex_lock(&p->lock);
    s->next = p->streams;
    p->streams = s;
    pthread_mutex_unlock(&p->lock);
    *handle = s;
    return RCCLX_OK;
}

rcclx_status rcclx_stream_push(void *handle, rcclx_batch *b)
{
    rcclx_stream *s = get(handle);

    if (!s)
        return unknown(handle);
    pthread_mutex_lock(&s->lock);
    *s->last = b;
    s->last = &b->next;
    s->given++;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
    put(s);
    return RCCLX_OK;
}

static rcclx_status result(rcclx_stream *s)
{
    const rcclx_status st = s->failed;

    if (st != RCCLX_OK)
        rcclx_last_error_set(s->why);
    s->failed = RCCLX_OK;
    return st;
}

rcclx_status rcclx_stream_query(void *handle)
{
    rcclx_stream *s = get(handle);

    if (!s)
        return unknown(handle);
    pthread_mutex_lock(&s->lock);
    const rcclx_status st = s->first || s->busy ? RCCLX_AGAIN : result(s);
    pthread_mutex_unlock(&s->lock);
    put(s);
    return st;
}

rcclx_status rcclx_stream_synchronize(void *handle)
{
    rcclx_stream *s = handle ? get(handle) : NULL;

    if (!handle)
        return RCCLX_OK; /* without a stream everything is done already */
    if (!s)
        return unknown(handle);
    pthread_mutex_lock(&s->lock);
    while (s->first || s->busy)
        pthread_cond_wait(&s->change, &s->lock);
    const rcclx_status st = result(s);
    pthread_mutex_unlock(&s->lock);
    put(s);
    return st;
}

rcclx_status rcclx_stream_position(void *handle, uint64_t *position)
{
    rcclx_stream *s = get(handle);

    if (!s)
        return unknown(handle);
    pthread_mutex_lock(&s->lock);
    *position = s->given;
    pthread_mutex_unlock(&s->lock);
    put(s);
    return RCCLX_OK;
}

/* The lock is held. False when the deadline came first. */
static bool wait_for(rcclx_stream *s, uint64_t position, const struct timespec *deadline)
{
    int e = 0;

    while (s->done < position && e == 0)
        e = deadline ? pthread_cond_timedwait(&s->change, &s->lock, deadline) : pthread_cond_wait(&s->change, &s->lock);
    return s->done >= position;
}

rcclx_status rcclx_stream_wait(void *handle, uint64_t position, const struct timespec *deadline)
{
    rcclx_stream *s = get(handle);
    rcclx_status st = RCCLX_OK;

    if (!s)
        return unknown(handle);
    pthread_mutex_lock(&s->lock);
    if (position > s->given)
        st = RCCLX_FAIL(RCCLX_ARGUMENT, "position %llu of a stream that was given %llu operations; pass what rcclxStreamPosition "
                        "gave", (unsigned long long)position, (unsigned long long)s->given);
    else if (!wait_for(s, position, deadline))
        st = RCCLX_AGAIN;
    else if (s->failed_at && s->failed_at <= position) {
        st = s->first_failed;
        rcclx_last_error_set(s->first_why);
    }
    pthread_mutex_unlock(&s->lock);
    put(s);
    return st;
}

rcclx_status rcclx_stream_destroy(void *handle)
{
    rcclx_process_state *p = rcclx_process();

    pthread_mutex_lock(&p->lock);
    rcclx_stream **at = (rcclx_stream **)&p->streams;
    while (*at && *at != handle)
        at = &(*at)->next;
    rcclx_stream *s = *at;
    if (s)
        *at = s->next;
    pthread_mutex_unlock(&p->lock);
    if (!s)
        return unknown(handle);
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->worker, NULL);
    while (__atomic_load_n(&s->users, __ATOMIC_ACQUIRE))
        sched_yield();
    const rcclx_status st = result(s);
    pthread_cond_destroy(&s->change);
    pthread_mutex_destroy(&s->lock);
    rcclx_mem_free(s);
    return st;
}
