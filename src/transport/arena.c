/* The arena: memory that every peer process can load and store.
 *
 *   this process                      a peer process
 *   [ reservation, 256 GiB, sparse ]  [ the same memfd mapped whole ]
 *     | a | free | b |   free    |      | a | free | b |   free    |
 *       ^ offset                          ^ base + the same offset
 *
 * One memfd a process, reserved at once but paid for by the page. Since peers map
 * all of it when a communicator is made, a buffer allocated later is reached
 * without any further exchange: its offset is enough. Freed ranges give their
 * pages back (hole punching). Allocations are kept in a list sorted by offset; a map from
 * granule to allocation answers "whose is this address" without a lock, since
 * every operation asks it.
 *
 *   granule   0    1    2    3    4         a: offset 1, b: offset 3
 *   start     0    1    1    3    0
 *   nbytes    -   100K  -   60K   -
 *
 * Where address space is short the reservation shrinks; where there is none,
 * allocations are plain memory and peers reach them as such. */
#include "transport/transport.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { PAGE = 4096, ALIGN = 64 << 10, SIGHT = 64 << 10 /* bytes a byte of `seen` stands for */, LONG = 256 << 10 };
#define PREFAULT ((size_t)256 << 20)

typedef struct block {
    struct block *next; /* sorted by offset */
    size_t offset, nbytes, span;
    char  *at;          /* its address; offset 0: plain memory */
} block;

typedef struct {
    pthread_mutex_t lock;
    char  *base;
    size_t nbytes;
    int    fd;
    block *blocks;  /* guarded by lock */
    size_t held;    /* guarded by lock */
    _Atomic uint32_t *start;  /* a granule's allocation: the granule it begins at; 0: none */
    _Atomic uint64_t *nbytes_at; /* bytes of the allocation that begins at a granule */
} arena;

struct rcclx_mapping {
    rcclx_mapping *next;
    uint64_t       key;
    char          *base;
    size_t         nbytes;
    int            uses;
    _Atomic unsigned char *seen; /* a byte a SIGHT bytes: pages faulted in here */
};

static void *map_of(size_t granules, size_t each)
{
    void *p = mmap(NULL, granules * each, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

static void unmap(void *p, size_t nbytes)
{
    if (p)
        munmap(p, nbytes);
}

/* The range and its granules' maps; all or nothing. */
static bool map_all(arena *a)
{
    const size_t n = a->nbytes / ALIGN;
    void *p = mmap(NULL, a->nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, a->fd, 0);

    a->base = p == MAP_FAILED ? NULL : p;
    a->start = a->base ? map_of(n, sizeof(*a->start)) : NULL;
    a->nbytes_at = a->start ? map_of(n, sizeof(*a->nbytes_at)) : NULL;
    if (a->nbytes_at)
        return true;
    unmap(a->start, n * sizeof(*a->start));
    unmap(a->base, a->nbytes);
    a->start = NULL;
    a->base = NULL;
    return false;
}

static void mark(arena *a, const block *b, bool live)
{
    const size_t first = b->offset / ALIGN;

    if (live)
        atomic_store_explicit(&a->nbytes_at[first], b->nbytes, memory_order_relaxed);
    for (size_t i = 0; i < b->span / ALIGN; i++)
        atomic_store_explicit(&a->start[first + i], live ? (uint32_t)first : 0, memory_order_release);
}

static arena *reserve(void)
{
    arena *a = RCCLX_NEW(arena);

    if (!a)
        return NULL;
    pthread_mutex_init(&a->lock, NULL);
    a->fd = memfd_create("rcclx-arena", MFD_CLOEXEC);
    a->nbytes = (size_t)rcclx_option_int(RCCLX_OPT_ARENA_BYTES) & ~(size_t)(SIGHT - 1);
    for (; a->fd >= 0 && a->nbytes >= (size_t)64 << 20; a->nbytes /= 4) {
        if (ftruncate(a->fd, (off_t)a->nbytes))
            continue;
        if (map_all(a))
            return a;
    }
    RCCLX_INFO_LOG(ALLOC, "no shared arena (%s): buffers will be plain memory", strerror(errno));
    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
    a->nbytes = 0;
    return a;
}

static arena *get(void)
{
    rcclx_process_state *p = rcclx_process();
    arena *a = __atomic_load_n((arena **)&p->arena, __ATOMIC_ACQUIRE);

    if (a)
        return a;
    pthread_mutex_lock(&p->lock);
    if (!p->arena)
        __atomic_store_n((arena **)&p->arena, reserve(), __ATOMIC_RELEASE);
    pthread_mutex_unlock(&p->lock);
    return p->arena;
}

rcclx_status rcclx_arena_get(rcclx_arena_info *info)
{
    const arena *a = get();

    if (!a)
        return RCCLX_FAIL(RCCLX_NOMEM, "no memory for the arena's description");
    *info = (rcclx_arena_info){ .key = rcclx_process()->key, .nbytes = a->nbytes, .fd = a->fd };
    return RCCLX_OK;
}

/* First gap that holds span bytes; the place in the list comes back as *at. */
static size_t find_gap(arena *a, size_t span, block ***at)
{
    size_t end = ALIGN; /* offset 0 stays free */

    for (*at = &a->blocks; **at; *at = &(**at)->next) {
        if (!(**at)->offset)
            continue; /* plain */
        if ((**at)->offset - end >= span)
            return end;
        end = (**at)->offset + (**at)->span;
    }
    return a->nbytes > end && a->nbytes - end >= span ? end : 0;
}

/* Where the arena has no room: memory that peers reach as any other. */
static char *plain_block(size_t span)
{
    void *p = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

rcclx_status rcclx_arena_alloc(void **ptr, size_t nbytes)
{
    arena *a = get();

    *ptr = NULL;
    if (!nbytes)
        return RCCLX_OK;
    if (nbytes > SIZE_MAX / 2)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "ncclMemAlloc: %zu bytes is more than any machine has", nbytes);
    block *b = RCCLX_NEW(block);
    if (!a || !b) {
        rcclx_mem_free(b);
        return RCCLX_FAIL(RCCLX_NOMEM, "ncclMemAlloc: no memory for the block's description");
    }
    *b = (block){ .nbytes = nbytes, .span = (nbytes + ALIGN - 1) / ALIGN * ALIGN };
    pthread_mutex_lock(&a->lock);
    block **place = &a->blocks;
    b->offset = a->base ? find_gap(a, b->span, &place) : 0;
    b->at = b->offset ? a->base + b->offset : plain_block(b->span);
    if (b->at) {
        b->next = *place;
        *place = b;
        a->held += nbytes;
        if (b->offset)
            mark(a, b, true);
    }
    pthread_mutex_unlock(&a->lock);
    if (!b->at) {
        rcclx_mem_free(b);
        return RCCLX_FAIL(RCCLX_NOMEM, "ncclMemAlloc: no %zu bytes to be had: the arena of %zu bytes holds %zu already "
                          "(RCCLX_ARENA_BYTES), and the system refuses them", nbytes, a->nbytes, a->held);
    }
    if (nbytes <= PREFAULT)
        madvise(b->at, (nbytes + PAGE - 1) / PAGE * PAGE, MADV_POPULATE_WRITE);
    *ptr = b->at;
    return RCCLX_OK;
}

static void give_back(arena *a, const block *b)
{
    if (!b->offset) {
        munmap(b->at, b->span);
        return;
    }
    fallocate(a->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)b->offset, (off_t)b->span);
    mark(a, b, false);
}

rcclx_status rcclx_arena_free(void *ptr)
{
    arena *a = get();
    block *b = NULL;

    if (!ptr)
        return RCCLX_OK;
    if (a) {
        pthread_mutex_lock(&a->lock);
        block **at = &a->blocks;
        while (*at && (*at)->at != ptr)
            at = &(*at)->next;
        if ((b = *at)) {
            give_back(a, b); /* before the range can be handed out again */
            *at = b->next;
            a->held -= b->nbytes;
        }
        pthread_mutex_unlock(&a->lock);
    }
    if (!b)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "ncclMemFree: %p was not returned by ncclMemAlloc, or is free already", ptr);
    rcclx_mem_free(b);
    return RCCLX_OK;
}

rcclx_mem_place rcclx_arena_find(const void *ptr, size_t nbytes, uint64_t *offset)
{
    arena *a = __atomic_load_n((arena **)&rcclx_process()->arena, __ATOMIC_ACQUIRE);
    const size_t at = a ? (size_t)((const char *)ptr - a->base) : 0;

    if (!a || !a->base || at >= a->nbytes)
        return RCCLX_MEM_PLAIN;
    *offset = at;
    const uint32_t first = atomic_load_explicit(&a->start[at / ALIGN], memory_order_acquire);
    const size_t inside = at - (size_t)first * ALIGN;
    const size_t whole = first ? atomic_load_explicit(&a->nbytes_at[first], memory_order_relaxed) : 0;
    return inside <= whole && nbytes <= whole - inside && first ? RCCLX_MEM_ARENA : RCCLX_MEM_FREED;
}

size_t rcclx_arena_held(void)
{
    const arena *a = rcclx_process()->arena;

    return a ? a->held : 0;
}

/* --- the peers' arenas ----------------------------------------------------- */

static rcclx_mapping *map_new(uint64_t key, size_t nbytes, int fd)
{
    rcclx_mapping *m = RCCLX_NEW(rcclx_mapping);

    if (!m)
        return NULL;
    *m = (rcclx_mapping){ .key = key, .nbytes = nbytes, .uses = 1 };
    m->seen = rcclx_mem_alloc(nbytes / SIGHT + 1);
    void *p = m->seen ? mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0) : MAP_FAILED;
    if (p == MAP_FAILED) {
        rcclx_mem_free((void *)m->seen);
        rcclx_mem_free(m);
        return NULL;
    }
    m->base = p;
    return m;
}

rcclx_status rcclx_mapping_acquire(rcclx_mapping **out, uint64_t key, size_t nbytes, int fd)
{
    rcclx_process_state *p = rcclx_process();

    pthread_mutex_lock(&p->lock);
    rcclx_mapping *m = p->mappings;
    while (m && m->key != key)
        m = m->next;
    if (m) {
        m->uses++;
    } else if ((m = map_new(key, nbytes, fd))) {
        m->next = p->mappings;
        p->mappings = m;
    }
    pthread_mutex_unlock(&p->lock);
    *out = m;
    return m ? RCCLX_OK : RCCLX_SYSTEM;
}

void rcclx_mapping_release(rcclx_mapping *m)
{
    rcclx_process_state *p = rcclx_process();

    if (!m)
        return;
    pthread_mutex_lock(&p->lock);
    const bool last = --m->uses == 0;
    if (last) {
        rcclx_mapping **at = (rcclx_mapping **)&p->mappings;
        while (*at && *at != m)
            at = &(*at)->next;
        if (*at)
            *at = m->next;
    }
    pthread_mutex_unlock(&p->lock);
    if (!last)
        return;
    munmap(m->base, m->nbytes);
    rcclx_mem_free((void *)m->seen);
    rcclx_mem_free(m);
}

/* Faults taken one by one cost a microsecond a page; a long range is faulted in at
 * once when some of it has not been seen before, and never asked about again. */
static void fault_in(rcclx_mapping *m, uint64_t offset, size_t nbytes)
{
    const size_t first = offset / SIGHT, last = (offset + nbytes - 1) / SIGHT;
    const size_t from = offset & ~(uint64_t)(PAGE - 1);
    bool seen = true;

    for (size_t i = first; i <= last && seen; i++)
        seen = atomic_load_explicit(&m->seen[i], memory_order_relaxed);
    if (seen)
        return;
    madvise(m->base + from, (offset + nbytes - from + PAGE - 1) / PAGE * PAGE, MADV_POPULATE_WRITE);
    for (size_t i = first; i <= last; i++)
        atomic_store_explicit(&m->seen[i], 1, memory_order_relaxed);
}

void *rcclx_mapping_at(rcclx_mapping *m, uint64_t offset, size_t nbytes)
{
    if (!m || offset > m->nbytes || nbytes > m->nbytes - offset)
        return NULL;
    if (nbytes >= LONG)
        fault_in(m, offset, nbytes);
    return m->base + offset;
}

static void *map(const rcclx_peer *p, uint64_t where, bool in_arena, size_t nbytes)
{
    if (!in_arena)
        return NULL;
    return p->local ? get()->base + where : rcclx_mapping_at(p->arena, where, nbytes);
}

extern const rcclx_transport rcclx_transport_arena;
const rcclx_transport rcclx_transport_arena = {
    .name  = "arena",
    .about = "memory from ncclMemAlloc, mapped by every peer process",
    .map   = map,
};
