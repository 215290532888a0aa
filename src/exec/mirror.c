/* Areas of far ranks. See mirror.h.
 *
 *   sender          frame 7: bytes, counter a      frame 8: counter b
 *   receiver        landed 8 ------ kept           its counters wait in `landed`
 *                   landed 7 ------ a, then b      now both are stored, in order
 *
 * A network may overtake itself (long data are fetched while short ones are copied), and
 * a counter must not be seen before the bytes it speaks for. So frames are numbered a
 * pair, and a window of them is kept. How far a frame can be overtaken is bounded by the
 * credit of what it carries; more is the work of a stranger, and the peer counts as lost.
 *
 * Who waits polls the network himself, which is fastest. A thread stands in when nobody
 * does: it sleeps on the network's file handle, and naps while others poll. */
#include "exec/mirror.h"
#include "exec/task.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "base/process.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW = 1024, NAP_NS = 2000000, SLEEP_MS = 100, WORDS = 160 };
enum { OF_AREA, DECISIONS };

typedef struct { bool here; uint16_t nmarks; rcclx_mark mark[RCCLX_FRAME_MARKS]; } landed;

/* A far rank. */
typedef struct {
    rcclx_area  *area;
    uint64_t     sent, stored; /* frames */
    landed       window[WINDOW];
    _Atomic bool lost;
    char         why[WORDS];   /* before lost is set */
} far_rank;

struct rcclx_mirror {
    rcclx_team          *team;
    const rcclx_network *net;
    void                *end;
    far_rank            *far[RCCLX_MAX_RANKS];
    rcclx_agreed         agreed;     /* as rank 0 has sent it, when that is far */
    rcclx_ident          said[2];    /* mine as it was sent: READY, and the end; the network may be at it still */
    int                  nsaid;
    pthread_mutex_t      lock;       /* guards the end and the far ranks' counts */
    pthread_t            thread;
    bool                 threaded;
    int                  bell;       /* an eventfd: the thread is to look up */
    _Atomic bool         ends;
    _Atomic uint64_t     polls;      /* by others than the thread */
};

/* --- what arrives ------------------------------------------------------------------ */

static bool sane(const rcclx_team *t, const rcclx_frame *f, size_t nbytes)
{
    const size_t size = f->what == OF_AREA ? t->segment.area_bytes : sizeof(rcclx_agreed);

    if (f->from >= (uint32_t)t->nranks || !t->mirror->far[f->from] || f->nmarks > RCCLX_FRAME_MARKS || f->what > DECISIONS ||
        f->offset > size || nbytes > size - f->offset || f->ninside > RCCLX_FRAME_INSIDE ||
        f->inside_offset > t->segment.area_bytes - f->ninside)
        return false;
    for (int i = 0; i < f->nmarks; i++) {
        const rcclx_mark *m = &f->mark[i];
        if ((m->width != 4 && m->width != 8) || m->offset % m->width || m->offset > t->segment.area_bytes - m->width)
            return false;
    }
    return f->seq - t->mirror->far[f->from]->stored - 1 < WINDOW;
}

static void lost(void *owner, int rank, const char *why)
{
    const rcclx_team *t = owner;
    far_rank *f = t->mirror->far[rank];

    if (!f || atomic_load(&f->lost))
        return;
    snprintf(f->why, sizeof(f->why), "%s", why);
    atomic_store_explicit(&f->lost, true, memory_order_release);
    rcclx_team_ring(owner);
}

static void *memory(void *owner, int rank, size_t *nbytes)
{
    const rcclx_team *t = owner;

    *nbytes = t->segment.area_bytes;
    return t->area[rank];
}

static void *place(void *owner, const rcclx_frame *f, size_t nbytes)
{
    rcclx_team *t = owner;

    if (!sane(t, f, nbytes)) {
        if (f->from < (uint32_t)t->nranks)
            lost(t, (int)f->from, "what it sends makes no sense; do all ranks have the same version of the library?");
        return NULL;
    }
    return (char *)(f->what == DECISIONS ? (void *)&t->mirror->agreed : (void *)t->mirror->far[f->from]->area) + f->offset;
}

static void store(rcclx_team *t, far_rank *f, const rcclx_mark *m)
{
    char *at = (char *)f->area + m->offset;

    if (m->width == 8) {
        atomic_store_explicit((_Atomic uint64_t *)(void *)at, m->value, memory_order_release);
        return;
    }
    atomic_store_explicit((_Atomic uint32_t *)(void *)at, (uint32_t)m->value, memory_order_release);
    if (m->offset == offsetof(rcclx_area, ident.state) && m->value > RCCLX_RANK_READY)
        atomic_fetch_add(&t->segment.head->failed, 1);
}

static void came(void *owner, const rcclx_frame *f)
{
    rcclx_team *t = owner;
    far_rank *from = t->mirror->far[f->from];
    landed *l = &from->window[f->seq % WINDOW];

    memcpy((char *)from->area + f->inside_offset, f->inside, f->ninside);
    l->here = true;
    l->nmarks = f->nmarks;
    memcpy(l->mark, f->mark, sizeof(l->mark));
    for (; (l = &from->window[(from->stored + 1) % WINDOW])->here; from->stored++) {
        for (int i = 0; i < l->nmarks; i++)
            store(t, from, &l->mark[i]);
        l->here = false;
    }
    rcclx_team_ring(t);
}

/* --- what is sent -------------------------------------------------------------------- */

rcclx_mark rcclx_mark_of(const rcclx_team *t, const _Atomic uint64_t *counter, uint64_t value)
{
    const size_t offset = (size_t)((const char *)counter - (const char *)t->area[t->rank]);

    return (rcclx_mark){ .value = value, .offset = (uint32_t)offset, .width = 8 };
}

static void push(rcclx_team *t, int to, uint64_t among, rcclx_frame *f, const void *data, size_t nbytes)
{
    rcclx_mirror *m = t->mirror;

    f->from = (uint32_t)t->rank;
    pthread_mutex_lock(&m->lock);
    const int end = to == RCCLX_ALL ? t->nranks : to + 1;
    for (int r = to == RCCLX_ALL ? 0 : to; r < end; r++) {
        far_rank *dst = r < 64 && !(among >> r & 1) ? NULL : m->far[r];
        if (!dst || atomic_load_explicit(&dst->lost, memory_order_relaxed))
            continue;
        f->seq = ++dst->sent;
        m->net->send(m->end, r, f, data, nbytes);
    }
    pthread_mutex_unlock(&m->lock);
}

static void describe(const rcclx_team *t, rcclx_frame *f, const void *data, size_t nbytes, const rcclx_mark *marks, int nmarks)
{
    f->what = OF_AREA;
    f->ninside = f->inside_offset = 0;
    f->offset = nbytes ? (uint64_t)((const char *)data - (const char *)t->area[t->rank]) : 0;
    f->nmarks = (uint16_t)nmarks;
    for (int i = 0; i < nmarks; i++)
        f->mark[i] = marks[i];
}

void rcclx_mirror_push(rcclx_team *t, int to, const void *data, size_t nbytes, const rcclx_mark *marks, int nmarks)
{
    rcclx_frame f;

    describe(t, &f, data, nbytes, marks, nmarks);
    push(t, to, ~(uint64_t)0, &f, data, nbytes);
}

void rcclx_mirror_push_both(rcclx_team *t, uint64_t among, const void *data, size_t nbytes, const void *inside, size_t ninside,
                            const rcclx_mark *marks, int nmarks)
{
    rcclx_frame f;

    describe(t, &f, data, nbytes, marks, nmarks);
    if (ninside) {
        f.inside_offset = (uint32_t)((const char *)inside - (const char *)t->area[t->rank]);
        f.ninside = (uint32_t)ninside;
        memcpy(f.inside, inside, ninside);
    }
    push(t, RCCLX_ALL, among, &f, data, nbytes);
}

void rcclx_mirror_count(rcclx_team *t, int to, const _Atomic uint64_t *counter, uint64_t value)
{
    const rcclx_mark m = rcclx_mark_of(t, counter, value);

    rcclx_mirror_push(t, to, NULL, 0, &m, 1);
}

void rcclx_mirror_tell(rcclx_team *t)
{
    enum { FROM = offsetof(rcclx_ident, pid), TO = offsetof(rcclx_ident, path) }; /* what follows changes all the time */
    const rcclx_ident *me = &t->area[t->rank]->ident;
    rcclx_mirror *m = t->mirror;

    if (!m || !m->threaded)
        return;
    pthread_mutex_lock(&m->lock);
    char *copy = (char *)&m->said[m->nsaid] + FROM;
    m->nsaid = 1;
    pthread_mutex_unlock(&m->lock);
    memcpy(copy, (const char *)me + FROM, TO - FROM);
    rcclx_frame f = { .what = OF_AREA, .offset = offsetof(rcclx_area, ident) + FROM, .nmarks = 1,
                      .mark[0] = { .value = atomic_load(&me->state), .offset = (uint32_t)offsetof(rcclx_area, ident.state), .width = 4 } };
    push(t, RCCLX_ALL, ~(uint64_t)0, &f, copy, TO - FROM);
}

void rcclx_mirror_decide(rcclx_team *t, const rcclx_agreed *a)
{
    rcclx_frame f = { .what = DECISIONS };

    push(t, RCCLX_ALL, ~(uint64_t)0, &f, a, sizeof(*a));
}

const rcclx_agreed *rcclx_team_agreed(const rcclx_team *t)
{
    return rcclx_is_far(t, 0) ? &t->mirror->agreed : &t->segment.head->agreed;
}

/* --- going on -------------------------------------------------------------------------- */

void rcclx_mirror_poll(rcclx_team *t)
{
    rcclx_mirror *m = t->mirror;

    atomic_store_explicit(&m->polls, atomic_load_explicit(&m->polls, memory_order_relaxed) + 1, memory_order_relaxed);
    if (pthread_mutex_trylock(&m->lock))
        return;
    m->net->poll(m->end);
    pthread_mutex_unlock(&m->lock);
}

bool rcclx_mirror_lost(const rcclx_team *t, int rank, const char **why)
{
    const far_rank *f = t->mirror ? t->mirror->far[rank] : NULL;

    if (!f || !atomic_load_explicit(&f->lost, memory_order_acquire))
        return false;
    *why = f->why;
    return true;
}

/* Poll until there is nothing to do, and say what to sleep on. */
static int settle(rcclx_mirror *m)
{
    int fd = -1;

    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < 256 && fd < 0; i++)
        if (!m->net->poll(m->end))
            fd = m->net->arm(m->end);
    pthread_mutex_unlock(&m->lock);
    return fd;
}

static void *look_after(void *arg)
{
    rcclx_mirror *m = arg;
    uint64_t seen = 0;

    rcclx_thread_name("rcclx net");
    while (!atomic_load(&m->ends)) {
        const uint64_t polls = atomic_load_explicit(&m->polls, memory_order_relaxed);
        const struct timespec nap = { 0, NAP_NS };
        if (polls != seen) {
            seen = polls;
            nanosleep(&nap, NULL);
            continue;
        }
        struct pollfd p[2] = { { .fd = settle(m), .events = POLLIN }, { .fd = m->bell, .events = POLLIN } };
        if (p[0].fd >= 0)
            poll(p, 2, SLEEP_MS);
    }
    return NULL;
}

/* --- made and taken down ------------------------------------------------------------------ */

static rcclx_status make_far(rcclx_team *t, int r)
{
    far_rank *f = t->mirror->far[r] = RCCLX_NEW(far_rank);

    if (!f)
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: no memory for the mirror of rank %d", t->rank, r);
    void *p = mmap(NULL, t->segment.area_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return RCCLX_FAIL_ERRNO("rank %d: %zu bytes of address space for the mirror of rank %d", t->rank, t->segment.area_bytes, r);
    t->area[r] = f->area = p;
    rcclx_area_start(p, t->nranks, (uint64_t)rcclx_option_int(RCCLX_OPT_SEQ_START));
    return RCCLX_OK;
}

rcclx_status rcclx_mirror_open(rcclx_team *t, const rcclx_network *net, const char *devices, const uint8_t *node)
{
    rcclx_mirror *m = t->mirror = RCCLX_NEW(rcclx_mirror);

    if (!m)
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: no memory for the mirror", t->rank);
    m->team = t;
    m->net = net;
    m->bell = -1;
    pthread_mutex_init(&m->lock, NULL);
    for (int r = 0; r < t->nranks; r++)
        if (node[r] != node[t->rank])
            RCCLX_TRY(make_far(t, r));
    rcclx_net_owner o = { .owner = t, .net = net, .id = t->id, .rank = t->rank, .nranks = t->nranks, .memory = memory, .place = place,
                          .landed = came, .lost = lost };
    snprintf(o.devices, sizeof(o.devices), "%s", devices);
    return net->open(&o, &m->end);
}

rcclx_status rcclx_mirror_address(rcclx_team *t, void *bytes, size_t *nbytes)
{
    return t->mirror->net->address(t->mirror->end, bytes, nbytes);
}

rcclx_status rcclx_mirror_letter(rcclx_team *t, int rank, void *bytes)
{
    return t->mirror->net->letter(t->mirror->end, rank, bytes);
}

rcclx_status rcclx_mirror_connect(rcclx_team *t, int rank, const void *bytes, size_t nbytes)
{
    return t->mirror->net->connect(t->mirror->end, rank, bytes, nbytes);
}

rcclx_status rcclx_mirror_start(rcclx_team *t)
{
    rcclx_mirror *m = t->mirror;
    m->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const int e = m->bell < 0 ? errno : pthread_create(&m->thread, NULL, look_after, m);

    m->threaded = e == 0;
    return e ? RCCLX_FAIL(RCCLX_SYSTEM, "rank %d: the network's thread cannot be started: %s", t->rank, strerror(e)) : RCCLX_OK;
}

/* What was sent leaves, unless nobody takes it. */
static void drain(rcclx_mirror *m, double seconds)
{
    const uint64_t deadline = rcclx_clock_ns() + (uint64_t)(seconds * 1e9);

    while (!m->net->idle(m->end) && rcclx_clock_ns() < deadline)
        m->net->poll(m->end);
}

void rcclx_mirror_close(rcclx_team *t)
{
    rcclx_mirror *m = t->mirror;

    if (!m)
        return;
    if (m->threaded) {
        const uint64_t one = 1;
        atomic_store(&m->ends, true);
        if (write(m->bell, &one, sizeof(one)) < 0)
            RCCLX_INFO_LOG(NET, "the network's thread wakes by itself");
        pthread_join(m->thread, NULL);
    }
    if (m->bell >= 0)
        close(m->bell);
    const double seconds = atomic_load(&t->aborted) || atomic_load(&t->broken) ? 0.5 : 5;
    if (m->end) {
        drain(m, seconds);
        m->net->close(m->end, seconds);
    }
    for (int r = 0; r < t->nranks; r++) {
        if (m->far[r] && m->far[r]->area)
            munmap(m->far[r]->area, t->segment.area_bytes);
        rcclx_mem_free(m->far[r]);
    }
    pthread_mutex_destroy(&m->lock);
    rcclx_mem_free(m);
    t->mirror = NULL;
}
