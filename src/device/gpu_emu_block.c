/* A kernel on the host.
 *
 *   grid:   block 0            block 1          ...   a thread each (runner), all at once
 *           lane 0 1 2 ... n   lane 0 1 2 ...         a fiber each; one of a block runs
 *             |
 *             | runs until it waits: sync, ballot, wave_sync, shuffle, nap
 *             v
 *           the next lane that is ready
 *
 * A turn around all ready lanes is a round. If somebody napped in it, the block may be
 * waiting for another one, which wants the processor: the thread yields, and after many
 * such rounds without a barrier in between it sleeps, since the kernel's yield alone may
 * give the processor back at once.
 *
 * Runners and their fibers stay for the next kernel of the device. */
#include "device/gpu_emu_fiber.h"
#include "device/gpu_emu_inside.h"

#include "base/log.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum {
    WORDS = RCCLX_EMU_THREADS / 64, WAVES = RCCLX_EMU_THREADS / RCCLX_EMU_WAVE,
#if defined(RCCLX_FIBER_TSAN) || defined(RCCLX_FIBER_ASAN)
    STACK_BYTES = 256 << 10, THREAD_BYTES = 1 << 20,
#else
    STACK_BYTES = 64 << 10, THREAD_BYTES = 256 << 10,
#endif
    STRIDE = STACK_BYTES + 5 * 64, /* not a power of two: or all lanes' frames fall on the same lines of the cache */
    YIELDS = 64, NAP_NS = 20000,
};

typedef enum { RUNS, AT_SYNC, AT_BALLOT, AT_WAVE_SYNC, AT_SHUFFLE, RETURNED } place;

typedef struct {
    uint32_t all, here, gone, votes, result;
    place    kind;          /* what those that are here wait in */
    unsigned generation;
    char     order[2];
    uint32_t word[2][RCCLX_EMU_WAVE]; /* of a shuffle; in turn, as `order` */
} wave;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t  change;
    unsigned        left;
    emu_run        *run;
    const void     *args;
    unsigned        threads;
    emu_blocks     *blocks;
} grid;

struct emu_runner {
    emu_runner     *next;
    pthread_mutex_t lock;   /* guards job, bid */
    pthread_cond_t  change;
    grid           *job;
    unsigned        bid;

    /* the block; only its thread looks */
    emu_run    *run;
    const void *args;
    uint32_t    block, n, current, nmade;
    uint32_t    at_sync, returned, naps, idle;
    unsigned    generation;
    char        started, ended, order[2]; /* addresses that lanes meet at, for the thread sanitizer */
    uint64_t    ready[WORDS];
    uint8_t     where[RCCLX_EMU_THREADS];
    wave        waves[WAVES];
    size_t      nshared;
    rcclx_fiber home, lanes[RCCLX_EMU_THREADS];
    _Alignas(128) unsigned char shared[RCCLX_EMU_SHARED];
};

static _Thread_local emu_runner *mine;

/* ---- whose turn it is */

RCCLX_FIBER_QUIET static _Noreturn void stuck(const emu_runner *r)
{
    static const char *const names[] = { "running", "gp_sync", "gp_ballot", "gp_wave_sync", "gp_shuffle", "returned" };
    uint32_t lane = 0;

    while (lane + 1 < r->n && r->where[lane] == RETURNED)
        lane++;
    RCCLX_ALERT("emulated GPU: block %u: no lane can go on: lane %u waits in %s, lane %u in %s (at %u others); all lanes of a "
                "block, or wave, must meet in the same place", r->block, r->current, names[r->where[r->current]], lane,
                names[r->where[lane]], r->n - r->returned);
    abort();
}

RCCLX_FIBER_QUIET static uint32_t ready_from(const emu_runner *r, uint32_t lane)
{
    uint32_t w = lane / 64;
    uint64_t bits = lane < r->n ? r->ready[w] & ~UINT64_C(0) << lane % 64 : 0;

    while (!bits && ++w < (r->n + 63) / 64)
        bits = r->ready[w];
    return bits ? w * 64 + (uint32_t)__builtin_ctzll(bits) : r->n;
}

RCCLX_FIBER_QUIET static void end_round(emu_runner *r)
{
    const struct timespec t = { .tv_nsec = NAP_NS };

    if (!r->naps) {
        r->idle = 0;
        return;
    }
    r->naps = 0;
    if (++r->idle < YIELDS)
        sched_yield();
    else
        nanosleep(&t, NULL);
}

RCCLX_FIBER_QUIET static void go_on(emu_runner *r)
{
    const uint32_t was = r->current;
    uint32_t       next = ready_from(r, was + 1);

    if (next == r->n) {
        end_round(r);
        if ((next = ready_from(r, 0)) == r->n)
            stuck(r);
    }
    r->current = next;
    if (next != was)
        rcclx_fiber_switch(&r->lanes[was], &r->lanes[next]);
}

RCCLX_FIBER_QUIET static void wait_in(emu_runner *r, place p)
{
    r->where[r->current] = (uint8_t)p;
    r->ready[r->current / 64] &= ~(UINT64_C(1) << r->current % 64);
    go_on(r);
}

/* ---- where lanes meet; two addresses in turn, so that who runs ahead orders nothing for who lags */

RCCLX_FIBER_QUIET static void open_sync(emu_runner *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->where[i] != AT_SYNC)
            continue;
        r->where[i] = RUNS;
        r->ready[i / 64] |= UINT64_C(1) << i % 64;
    }
    r->at_sync = r->idle = 0;
    r->generation++;
}

RCCLX_FIBER_QUIET void gp_emu_sync(void)
{
    emu_runner *r = mine;
    char       *order = &r->order[r->generation & 1];

    RCCLX_ORDER_GIVE(order);
    r->at_sync++;
    if (r->at_sync + r->returned == r->n)
        open_sync(r);
    else
        wait_in(r, AT_SYNC);
    RCCLX_ORDER_TAKE(order);
}

RCCLX_FIBER_QUIET static void open_wave(emu_runner *r, wave *w)
{
    const uint32_t index = (uint32_t)(w - r->waves), here = w->here;

    for (uint32_t i = 0; i < RCCLX_EMU_WAVE; i++)
        if (here >> i & 1)
            r->where[index * RCCLX_EMU_WAVE + i] = RUNS;
    r->ready[index / 2] |= (uint64_t)here << index % 2 * 32;
    w->result = w->votes;
    w->votes = w->here = 0;
    w->generation++;
}

RCCLX_FIBER_QUIET static uint32_t meet(place p, bool vote)
{
    emu_runner    *r = mine;
    wave          *w = &r->waves[r->current / RCCLX_EMU_WAVE];
    const uint32_t bit = UINT32_C(1) << r->current % RCCLX_EMU_WAVE;
    char          *order = &w->order[w->generation & 1];

    RCCLX_ORDER_GIVE(order);
    if (w->here && w->kind != p) {
        r->where[r->current] = (uint8_t)p;
        stuck(r);
    }
    w->kind = p;
    w->here |= bit;
    w->votes |= vote ? bit : 0;
    if ((w->here | w->gone) == w->all)
        open_wave(r, w);
    else
        wait_in(r, p);
    RCCLX_ORDER_TAKE(order);
    return w->result;
}

RCCLX_FIBER_QUIET uint64_t gp_emu_ballot(int pred)
{
    return meet(AT_BALLOT, pred);
}

RCCLX_FIBER_QUIET uint32_t gp_emu_shuffle(uint32_t x, uint32_t lane)
{
    wave     *w = &mine->waves[mine->current / RCCLX_EMU_WAVE];
    uint32_t *word = w->word[w->generation & 1];

    word[mine->current % RCCLX_EMU_WAVE] = x;
    meet(AT_SHUFFLE, false);
    return word[lane % RCCLX_EMU_WAVE];
}

RCCLX_FIBER_QUIET void gp_emu_wave_sync(void)
{
    meet(AT_WAVE_SYNC, false);
}

void gp_emu_misaligned(const void *p, size_t nbytes)
{
    RCCLX_ALERT("emulated GPU: block %u, lane %u: an access of %zu bytes to %p, which is not aligned to that", mine->block,
                mine->current, nbytes, p);
    abort();
}

RCCLX_FIBER_QUIET void gp_emu_nap(void)
{
    mine->naps++;
    go_on(mine);
}

RCCLX_FIBER_QUIET uint32_t gp_emu_tid(void)
{
    return mine->current;
}

RCCLX_FIBER_QUIET uint32_t gp_emu_bid(void)
{
    return mine->block;
}

uint64_t gp_emu_ticks(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

RCCLX_FIBER_QUIET void *gp_emu_shared(size_t nbytes)
{
    emu_runner *r = mine;

    if (nbytes > RCCLX_EMU_SHARED || (r->nshared && r->nshared != nbytes)) {
        RCCLX_ALERT("emulated GPU: a kernel asks for %zu shared bytes after %zu; it may have one struct, of at most %d bytes",
                    nbytes, r->nshared, RCCLX_EMU_SHARED);
        abort();
    }
    r->nshared = nbytes;
    return r->shared;
}

/* ---- lanes */

RCCLX_FIBER_QUIET static void lane_returned(emu_runner *r)
{
    wave *w = &r->waves[r->current / RCCLX_EMU_WAVE];

    if (!rcclx_fiber_intact(&r->lanes[r->current])) {
        RCCLX_ALERT("emulated GPU: lane %u of block %u needs more than %d bytes of stack", r->current, r->block, STACK_BYTES);
        abort();
    }
    r->where[r->current] = RETURNED;
    r->ready[r->current / 64] &= ~(UINT64_C(1) << r->current % 64);
    r->returned++;
    r->idle = 0;
    w->gone |= UINT32_C(1) << r->current % RCCLX_EMU_WAVE;
    if (w->here && (w->here | w->gone) == w->all)
        open_wave(r, w);
    if (r->at_sync && r->at_sync + r->returned == r->n)
        open_sync(r);
    if (r->returned == r->n)
        rcclx_fiber_switch(&r->lanes[r->current], &r->home);
    else
        go_on(r);
}

RCCLX_FIBER_QUIET static void lane(void *arg)
{
    emu_runner *r = arg;

    for (;;) {
        RCCLX_ORDER_TAKE(&r->started);
        r->run(r->args);
        RCCLX_ORDER_GIVE(&r->ended);
        lane_returned(r);
    }
}

static bool make_lanes(emu_runner *r, unsigned n)
{
    const unsigned more = (n - r->nmade + RCCLX_EMU_WAVE - 1) / RCCLX_EMU_WAVE * RCCLX_EMU_WAVE;
    char *p;

    if (n <= r->nmade)
        return true;
    p = mmap(NULL, (size_t)more * STRIDE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return false;
    for (unsigned i = 0; i < more; i++, r->nmade++)
        if (!rcclx_fiber_make(&r->lanes[r->nmade], p + (size_t)i * STRIDE, STRIDE, lane, r))
            return false;
    return true;
}

/* ---- blocks */

RCCLX_FIBER_QUIET static void run_block(emu_runner *r, unsigned n)
{
    r->n = n;
    r->current = r->at_sync = r->returned = r->naps = r->idle = 0;
    for (unsigned i = 0; i < n; i++)
        r->where[i] = RUNS;
    for (unsigned w = 0; w < (n + 31) / 32; w++) {
        const uint32_t all = n - w * 32 >= 32 ? UINT32_MAX : (UINT32_C(1) << (n - w * 32)) - 1;
        r->waves[w].all = all;
        r->waves[w].here = r->waves[w].gone = r->waves[w].votes = 0;
        r->ready[w / 2] = w % 2 ? r->ready[w / 2] | (uint64_t)all << 32 : all;
    }
    RCCLX_ORDER_GIVE(&r->started);
    rcclx_fiber_switch(&r->home, &r->lanes[0]);
    RCCLX_ORDER_TAKE(&r->ended);
    memset(r->shared, 0xa5, r->nshared); /* as undefined as on a GPU */
    r->nshared = 0;
}

static void *work(void *arg)
{
    emu_runner *r = arg;

    mine = r;
    rcclx_fiber_adopt(&r->home);
    memset(r->shared, 0xa5, sizeof(r->shared));
    for (;;) {
        pthread_mutex_lock(&r->lock);
        while (!r->job)
            pthread_cond_wait(&r->change, &r->lock);
        grid *g = r->job;
        r->job = NULL;
        r->block = r->bid;
        pthread_mutex_unlock(&r->lock);

        r->run = g->run;
        r->args = g->args;
        run_block(r, g->threads);

        pthread_mutex_lock(&g->blocks->lock);
        r->next = g->blocks->idle;
        g->blocks->idle = r;
        pthread_mutex_unlock(&g->blocks->lock);
        pthread_mutex_lock(&g->lock);
        if (--g->left == 0)
            pthread_cond_signal(&g->change);
        pthread_mutex_unlock(&g->lock);
    }
    return NULL;
}

static emu_runner *runner_new(void)
{
    emu_runner    *r = mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attr;
    pthread_t      thread;

    if (r == MAP_FAILED)
        return NULL;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->change, NULL);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, THREAD_BYTES);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    const int e = pthread_create(&thread, &attr, work, r);
    pthread_attr_destroy(&attr);
    if (!e)
        return r;
    munmap(r, sizeof(*r));
    errno = e;
    return NULL;
}

static emu_runner *take(emu_blocks *b)
{
    pthread_mutex_lock(&b->lock);
    emu_runner *r = b->idle;
    if (r)
        b->idle = r->next;
    pthread_mutex_unlock(&b->lock);
    return r ? r : runner_new();
}

static void put_all(emu_blocks *b, emu_runner *r)
{
    pthread_mutex_lock(&b->lock);
    while (r) {
        emu_runner *next = r->next;
        r->next = b->idle;
        b->idle = r;
        r = next;
    }
    pthread_mutex_unlock(&b->lock);
}

rcclx_status rcclx_emu_grid(emu_blocks *b, emu_run *run, unsigned blocks, unsigned threads, const void *args)
{
    grid        g = { .left = blocks, .run = run, .args = args, .threads = threads, .blocks = b };
    emu_runner *taken = NULL;

    for (unsigned i = 0; i < blocks; i++) {
        emu_runner *r = take(b);
        if (r) {
            r->next = taken;
            taken = r;
        }
        if (!r || !make_lanes(r, threads)) {
            put_all(b, taken);
            return RCCLX_FAIL_ERRNO("emulated GPU: block %u of %u of %u threads; raise the limit on threads or memory", i, blocks,
                                    threads);
        }
    }
    pthread_mutex_init(&g.lock, NULL);
    pthread_cond_init(&g.change, NULL);
    for (unsigned i = blocks; taken; i--) {
        emu_runner *r = taken;
        taken = r->next;
        pthread_mutex_lock(&r->lock);
        r->bid = i - 1;
        r->job = &g;
        pthread_cond_signal(&r->change);
        pthread_mutex_unlock(&r->lock);
    }
    pthread_mutex_lock(&g.lock);
    while (g.left)
        pthread_cond_wait(&g.change, &g.lock);
    pthread_mutex_unlock(&g.lock);
    pthread_mutex_destroy(&g.lock);
    pthread_cond_destroy(&g.change);
    return RCCLX_OK;
}
