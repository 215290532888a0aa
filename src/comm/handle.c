/* The table of handles.
 *
 *   handle = generation << 24 | index << 4 | tag      (a number dressed as a pointer)
 *
 * Every use of an entry counts its generation on, so that a destroyed
 * communicator's handle never fits again, and no handle is ever dereferenced.
 * Looking one up takes no lock and one atomic count, `users`, which is also the
 * hold: entries are never freed, whoever came too late sees it by the generation
 * and goes, and who closes a handle waits until the others have gone. */
#include "comm/handle.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/process.h"

#include <sched.h>
#include <time.h>

enum { TAG = 0xc, CHUNK = 256, MAX_CHUNKS = 4096 };

typedef struct rcclx_handle_entry {
    _Alignas(64)
    _Atomic int          users; /* calls that use it now */
    _Atomic uint64_t     generation;
    rcclx_comm *_Atomic  comm;  /* NULL: free */
} entry;

typedef struct {
    entry *_Atomic chunk[MAX_CHUNKS];
    int     used;      /* entries ever used; guarded by the process's lock */
    int     alive;
} table;

static table *get_table(bool make)
{
    rcclx_process_state *p = rcclx_process();
    table *t = __atomic_load_n((table **)&p->handles, __ATOMIC_ACQUIRE);

    if (t || !make)
        return t;
    pthread_mutex_lock(&p->lock);
    if (!p->handles)
        __atomic_store_n((table **)&p->handles, RCCLX_NEW(table), __ATOMIC_RELEASE);
    pthread_mutex_unlock(&p->lock);
    return p->handles;
}

static entry *entry_of(const void *handle, uint64_t *generation)
{
    const uint64_t h = (uint64_t)(uintptr_t)handle;
    const unsigned index = (h >> 4) & 0xfffff;
    table *t = get_table(false);

    *generation = h >> 24;
    if (!t || (h & 15) != TAG || index / CHUNK >= MAX_CHUNKS)
        return NULL;
    entry *chunk = atomic_load(&t->chunk[index / CHUNK]);
    return chunk ? &chunk[index % CHUNK] : NULL;
}

/* A free entry: an old one first, so that the table stays small. */
static int find_free(table *t)
{
    for (int i = 0; i < t->used; i++) {
        entry *e = &atomic_load(&t->chunk[i / CHUNK])[i % CHUNK];
        if (!atomic_load(&e->comm) && !atomic_load(&e->users))
            return i;
    }
    if (t->used / CHUNK >= MAX_CHUNKS)
        return -1;
    if (t->used % CHUNK == 0) {
        entry *chunk = rcclx_mem_alloc(CHUNK * sizeof(*chunk));
        if (!chunk)
            return -1;
        atomic_store(&t->chunk[t->used / CHUNK], chunk);
    }
    return t->used++;
}

rcclx_status rcclx_handle_open(rcclx_comm *c)
{
    table *t = get_table(true);
    rcclx_process_state *p = rcclx_process();

    if (!t)
        return RCCLX_FAIL(RCCLX_NOMEM, "no memory for the table of communicators");
    pthread_mutex_lock(&p->lock);
    const int i = find_free(t);
    if (i >= 0) {
        entry *e = &atomic_load(&t->chunk[i / CHUNK])[i % CHUNK];
        const uint64_t generation = atomic_fetch_add(&e->generation, 1) + 1;
        c->entry = e;
        c->handle = (void *)(uintptr_t)(generation << 24 | (uint64_t)i << 4 | TAG);
        atomic_store(&e->comm, c);
        t->alive++;
    }
    pthread_mutex_unlock(&p->lock);
    return i >= 0 ? RCCLX_OK : RCCLX_FAIL(RCCLX_USAGE, "too many communicators in one process; destroy some");
}

rcclx_comm *rcclx_handle_get(const void *handle)
{
    uint64_t generation;
    entry *e = entry_of(handle, &generation);

    if (!e)
        return NULL;
    atomic_fetch_add(&e->users, 1); /* before looking: a closer sees it, or this sees that it is closed */
    rcclx_comm *c = atomic_load(&e->comm);
    if (c && atomic_load_explicit(&e->generation, memory_order_relaxed) == generation)
        return c;
    atomic_fetch_sub(&e->users, 1);
    return NULL;
}

void rcclx_handle_put(rcclx_comm *c)
{
    atomic_fetch_sub_explicit(&c->entry->users, 1, memory_order_release);
}

bool rcclx_handle_close(rcclx_comm *c, int mine)
{
    rcclx_process_state *p = rcclx_process();

    pthread_mutex_lock(&p->lock);
    const bool first = atomic_load(&c->entry->comm) == c;
    if (first) {
        atomic_store(&c->entry->comm, NULL);
        ((table *)p->handles)->alive--;
    }
    pthread_mutex_unlock(&p->lock);
    for (int n = 0; first && atomic_load_explicit(&c->entry->users, memory_order_acquire) > mine; n++) {
        const struct timespec nap = { 0, 50000 };
        if (n < 100)
            sched_yield();
        else
            nanosleep(&nap, NULL);
    }
    return first;
}

int rcclx_comm_count(void)
{
    const table *t = get_table(false);

    return t ? t->alive : 0;
}
