/* UCX (libucp.so.0, loaded when a communicator first leaves its machine): InfiniBand, RoCE,
 * sockets, whatever it finds.
 *
 *   send    ucp_am_send_nbx(header: the frame, data)          short: copied; long: taken
 *                                                             from where it lies (rendezvous)
 *   poll    ucp_worker_progress
 *             `-> arrived: short: copied to its place; long: fetched straight into it
 *
 * One context a process, shared by its communicators; a worker each, and an endpoint to
 * every peer. Endpoints are of the kind that tells when the peer is gone. A frame that
 * is on its way is kept in a `flight`; flights are made in blocks and used again.
 *
 * UCX's own settings (UCX_...) stay as the user has them. Where he has none, shared
 * memory is left out, since ranks that could use it do not come here. */
#include "transport/net.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process.h"
#include "transport/ucx_abi.h"

#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AM_ID = 7, BLOCK = 64 };

typedef struct {
    void *library, *context;
    char **environment; /* see load */
    int   uses; /* guarded, as all of it is, by the process's lock */
#define X(result, name, arguments) result (*name) arguments;
    UCX_ENTRIES(X)
#undef X
} ucx;

typedef struct end end;

typedef struct flight {
    struct flight *next;
    end           *e;
    rcclx_frame    frame;
} flight;

typedef struct block {
    struct block *next;
    flight        flights[BLOCK];
} block;

typedef struct {
    end  *e;
    void *ep;
    int   rank;
    bool  lost;
} way;

struct end {
    ucx            *u;
    rcclx_net_owner owner;
    void           *worker;
    int             fd;
    uint32_t        flying; /* sends that have not left */
    flight         *unused;
    block          *blocks;
    way            *links;  /* one a rank */
};

static bool is_error(const void *p)
{
    return (uintptr_t)p >= (uintptr_t)UCX_ERR_LAST;
}

/* --- the library ----------------------------------------------------------------- */

/* UCX reads settings and takes over the process when it is loaded:
 *   - signals: the program keeps its own;
 *   - mmap, munmap, madvise and others of the C library, rewritten in place to hear of memory that is given back, while
 *     other threads may be in them, which can end the process. What is sent from here stays mapped as long as its
 *     communicator, so it need not hear;
 *   - its words on peers that are gone: we say them ourselves, once and with the peer's name. */
static char *const settings[] = { (char[]){ "UCX_MEM_EVENTS=n" }, (char[]){ "UCX_LOG_LEVEL=fatal" } };
enum { NSETTINGS = sizeof(settings) / sizeof(*settings) };

/* The environment with the settings that it lacks. It is put in the place of the other for a moment only: setenv would
 * change that under the eyes of other threads. */
static char **with_settings(char **from)
{
    size_t n = 0;

    while (from && from[n])
        n++;
    char **list = rcclx_mem_alloc((n + NSETTINGS + 1) * sizeof(*list));
    if (!list)
        return from;
    memcpy(list, from, n * sizeof(*list));
    for (int i = 0; i < NSETTINGS; i++) {
        const size_t name = strcspn(settings[i], "=") + 1;
        bool set = false;
        for (size_t k = 0; !set && k < n; k++)
            set = !strncmp(list[k], settings[i], name);
        if (!set)
            list[n++] = settings[i];
    }
    return list;
}

static void *load(char ***kept)
{
    static const int taken[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT };
    struct sigaction before[sizeof(taken) / sizeof(*taken)];
    char **const own = environ, **const ours = with_settings(own);

    if (ours != own)
        *kept = ours; /* another thread may still be reading it */
    for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++)
        sigaction(taken[i], NULL, &before[i]);
    environ = ours;
    void *library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
    if (environ == ours) /* else somebody has set a variable meanwhile, and it is his */
        environ = own;
    for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++)
        sigaction(taken[i], &before[i], NULL);
    return library;
}

static rcclx_status find_entries(ucx *u)
{
    const char *missing = NULL;

#define X(result, name, arguments)                                                                                \
    {                                                                                                             \
        void *p = dlsym(u->library, #name);                                                                       \
        memcpy(&u->name, &p, sizeof(p));                                                                          \
        missing = p ? missing : #name;                                                                            \
    }
    UCX_ENTRIES(X)
#undef X
    if (missing)
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "libucp.so.0 of this machine lacks %s; UCX 1.10 or newer is needed", missing);
    return RCCLX_OK;
}

static rcclx_status told(const ucx *u, const char *what, signed char status)
{
    if (status == UCX_OK)
        return RCCLX_OK;
    return RCCLX_FAIL(RCCLX_SYSTEM, "UCX: %s: %s; UCX_LOG_LEVEL=info says more", what, u->ucs_status_string(status));
}

/* A setting that the user has not made himself. */
static signed char set(const ucx *u, void *config, const char *name, const char *value)
{
    char full[64];

    snprintf(full, sizeof(full), "UCX_%s", name);
    return getenv(full) || !*value ? UCX_OK : u->ucp_config_modify(config, name, value);
}

static rcclx_status open_context(ucx *u, const char *transports, const char *devices)
{
    const ucx_params p = { .mask = UCX_PARAM_FEATURES | UCX_PARAM_MT_SHARED, .features = UCX_FEATURE_AM | UCX_FEATURE_WAKEUP,
                           .mt_workers_shared = 1 };
    unsigned major, minor, release;
    void *config;

    RCCLX_TRY(told(u, "reading its settings", u->ucp_config_read(NULL, NULL, &config)));
    signed char s = set(u, config, "TLS", transports);
    if (s == UCX_OK)
        s = set(u, config, "NET_DEVICES", devices);
    /* less work for long frames than with UCX's 8 KiB; older versions do not let it be set here */
    set(u, config, "TCP_TX_SEG_SIZE", "64k");
    set(u, config, "TCP_RX_SEG_SIZE", "64k");
    if (s == UCX_OK)
        s = u->ucp_init_version(1, 10, &p, config, &u->context);
    u->ucp_config_release(config);
    RCCLX_TRY(told(u, "starting", s));
    u->ucp_get_version(&major, &minor, &release);
    RCCLX_INFO_LOG(NET, "NET/UCX : Using UCX %u.%u.%u", major, minor, release);
    return RCCLX_OK;
}

static rcclx_status find_library(ucx *u)
{
    if (!(u->library = load(&u->environment)))
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "ranks are on several machines, and UCX, which carries bytes between them, is not to be "
                          "had: %s; install it (Debian, Ubuntu: libucx0)", dlerror());
    const rcclx_status s = find_entries(u);
    if (s != RCCLX_OK)
        u->library = NULL;
    return s;
}

/* The process's one; its context goes with the last communicator that uses it, the library stays. */
static rcclx_status acquire(ucx **out, const char *transports, const char *devices)
{
    rcclx_process_state *p = rcclx_process();
    rcclx_status s = RCCLX_OK;

    pthread_mutex_lock(&p->lock);
    ucx *u = p->ucx;
    if (!u && !(u = p->ucx = RCCLX_NEW(ucx)))
        s = RCCLX_FAIL(RCCLX_NOMEM, "no memory for UCX's table");
    if (s == RCCLX_OK && !u->library)
        s = find_library(u);
    if (s == RCCLX_OK && !u->context)
        s = open_context(u, transports, devices);
    if (s == RCCLX_OK)
        u->uses++;
    pthread_mutex_unlock(&p->lock);
    *out = s == RCCLX_OK ? u : NULL;
    return s;
}

static void release(ucx *u)
{
    rcclx_process_state *p = rcclx_process();

    pthread_mutex_lock(&p->lock);
    if (u == p->ucx && --u->uses == 0) {
        u->ucp_cleanup(u->context);
        u->context = NULL;
    }
    pthread_mutex_unlock(&p->lock);
}

/* --- flights ------------------------------------------------------------------------ */

static flight *take(end *e)
{
    if (!e->unused) {
        block *b = RCCLX_NEW(block);
        if (!b)
            return NULL;
        b->next = e->blocks;
        e->blocks = b;
        for (int i = 0; i < BLOCK; i++) {
            b->flights[i] = (flight){ .next = e->unused, .e = e };
            e->unused = &b->flights[i];
        }
    }
    flight *f = e->unused;
    e->unused = f->next;
    return f;
}

static void give(flight *f)
{
    f->next = f->e->unused;
    f->e->unused = f;
}

/* --- events ------------------------------------------------------------------------- */

static void lose(way *l, signed char status)
{
    if (l->lost)
        return;
    l->lost = true;
    l->e->owner.lost(l->e->owner.owner, l->rank, l->e->u->ucs_status_string(status));
}

static void on_error(void *arg, void *ep, signed char status)
{
    (void)ep;
    lose(arg, status);
}

static void on_sent(void *request, signed char status, void *arg)
{
    flight *f = arg;

    (void)status; /* of a lost peer, whose error handler says so */
    f->e->flying--;
    f->e->u->ucp_request_free(request);
    give(f);
}

static void on_fetched(void *request, signed char status, size_t nbytes, void *arg)
{
    flight *f = arg;
    end *e = f->e;

    (void)nbytes;
    if (status == UCX_OK)
        e->owner.landed(e->owner.owner, &f->frame);
    e->u->ucp_request_free(request);
    give(f);
}

/* Long data: fetched into their place, however long that takes. */
static signed char fetch(end *e, const rcclx_frame *frame, void *data, size_t nbytes, void *to)
{
    flight *f = take(e);

    if (!f)
        return UCX_OK; /* dropped: the peers' deadlines will say so */
    memcpy(&f->frame, frame, rcclx_frame_bytes(frame));
    const ucx_request p = { .mask = UCX_OP_CALLBACK | UCX_OP_USER_DATA, .cb.recv_am = on_fetched, .user_data = f };
    void *r = e->u->ucp_am_recv_data_nbx(e->worker, data, to, nbytes, &p);
    if (!r)
        e->owner.landed(e->owner.owner, &f->frame);
    if (!r || is_error(r))
        give(f);
    return UCX_INPROGRESS;
}

static signed char arrived(void *arg, const void *header, size_t nheader, void *data, size_t nbytes, const ucx_am_recv_param *p)
{
    end *e = arg;
    rcclx_frame frame;

    if (nheader < offsetof(rcclx_frame, inside) || nheader > sizeof(frame))
        return UCX_OK;
    memcpy(&frame, header, nheader);
    if (frame.ninside != nheader - offsetof(rcclx_frame, inside))
        return UCX_OK;
    void *to = e->owner.place(e->owner.owner, &frame, nbytes);
    if (!to)
        return UCX_OK;
    if (p->mask & UCX_AM_RECV_RNDV)
        return fetch(e, &frame, data, nbytes, to);
    if (nbytes)
        memcpy(to, data, nbytes);
    e->owner.landed(e->owner.owner, &frame);
    return UCX_OK;
}

/* --- an end -------------------------------------------------------------------------- */

static void close_end(void *p, double seconds);

static rcclx_status open_worker(end *e)
{
    const ucx_worker_params p = { .mask = UCX_WORKER_PARAM_THREAD_MODE, .thread_mode = UCX_THREAD_SERIALIZED };
    const ucx_am_handler h = { .mask = UCX_AM_HANDLER_ID | UCX_AM_HANDLER_CB | UCX_AM_HANDLER_ARG, .id = AM_ID, .cb = arrived,
                               .arg = e };

    RCCLX_TRY(told(e->u, "making a worker", e->u->ucp_worker_create(e->u->context, &p, &e->worker)));
    RCCLX_TRY(told(e->u, "setting its handler", e->u->ucp_worker_set_am_recv_handler(e->worker, &h)));
    return told(e->u, "its file handle", e->u->ucp_worker_get_efd(e->worker, &e->fd));
}

static rcclx_status open_end(const rcclx_net_owner *o, void **out, const char *transports)
{
    end *e = RCCLX_NEW(end);

    *out = e;
    if (!e || !(e->links = rcclx_mem_alloc((size_t)o->nranks * sizeof(*e->links))))
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: no memory for the network's end", o->rank);
    e->owner = *o;
    for (int r = 0; r < o->nranks; r++)
        e->links[r] = (way){ .e = e, .rank = r };
    RCCLX_TRY(acquire(&e->u, transports, o->devices));
    return open_worker(e);
}

static rcclx_status open_any(const rcclx_net_owner *o, void **out) { return open_end(o, out, "^shm,self"); }
static rcclx_status open_ib(const rcclx_net_owner *o, void **out) { return open_end(o, out, "ib,cuda_copy,rocm_copy"); }

static rcclx_status address(void *p, void *bytes, size_t *nbytes)
{
    end *e = p;
    ucx_worker_attr a = { .mask = UCX_WORKER_ATTR_ADDRESS | UCX_WORKER_ATTR_ADDRESS_FLAGS, .address_flags = UCX_ADDRESS_NET_ONLY };

    RCCLX_TRY(told(e->u, "its address", e->u->ucp_worker_query(e->worker, &a)));
    const bool fits = a.address_length <= RCCLX_NET_ADDRESS;
    if (fits)
        memcpy(bytes, a.address, *nbytes = a.address_length);
    e->u->ucp_worker_release_address(e->worker, a.address);
    return fits ? RCCLX_OK : RCCLX_FAIL(RCCLX_SYSTEM, "UCX's address takes %zu bytes, too many; name fewer interfaces "
                                        "(NCCL_SOCKET_IFNAME, UCX_NET_DEVICES)", a.address_length);
}

static rcclx_status connect_to(void *p, int rank, const void *bytes, size_t nbytes)
{
    end *e = p;
    const ucx_ep_params ep = {
        .mask = UCX_EP_REMOTE_ADDRESS | UCX_EP_ERR_MODE | UCX_EP_ERR_HANDLER, .address = bytes, .err_mode = UCX_ERR_MODE_PEER,
        .err_handler = { on_error, &e->links[rank] },
    };

    (void)nbytes; /* the address knows its length */
    const signed char s = e->u->ucp_ep_create(e->worker, &ep, &e->links[rank].ep);
    return s == UCX_OK ? RCCLX_OK
                       : RCCLX_FAIL(RCCLX_SYSTEM, "rank %d: UCX finds no way to rank %d: %s; do both machines have an interface in one "
                                    "network (NCCL_SOCKET_IFNAME, UCX_TLS, UCX_NET_DEVICES), with an address that holds beyond its "
                                    "link (not fe80::)?", e->owner.rank, rank,
                                    e->u->ucs_status_string(s));
}

static void send_frame(void *p, int rank, const rcclx_frame *frame, const void *data, size_t nbytes)
{
    end *e = p;
    way *l = &e->links[rank];
    flight *f = l->lost ? NULL : take(e);

    if (!f) {
        if (!l->lost)
            lose(l, -4 /* no memory */);
        return;
    }
    memcpy(&f->frame, frame, rcclx_frame_bytes(frame));
    const ucx_request q = { .mask = UCX_OP_CALLBACK | UCX_OP_USER_DATA, .cb.send = on_sent, .user_data = f };
    void *r = e->u->ucp_am_send_nbx(l->ep, AM_ID, &f->frame, rcclx_frame_bytes(frame), data, nbytes, &q);
    if (r && !is_error(r)) {
        e->flying++;
        return;
    }
    give(f);
    if (r)
        lose(l, (signed char)(intptr_t)r);
}

static bool go_on(void *p)
{
    end *e = p;

    return e->u->ucp_worker_progress(e->worker) != 0;
}

static bool idle(void *p)
{
    return ((end *)p)->flying == 0;
}

static int arm(void *p)
{
    end *e = p;

    return e->u->ucp_worker_arm(e->worker) == UCX_OK ? e->fd : -1;
}

/* Let a request come to its end. */
static bool finish(const end *e, void *r, uint64_t deadline)
{
    if (!r || is_error(r))
        return true;
    while (e->u->ucp_request_check_status(r) == UCX_INPROGRESS && rcclx_clock_ns() < deadline)
        if (!e->u->ucp_worker_progress(e->worker))
            rcclx_cpu_relax();
    const bool done = e->u->ucp_request_check_status(r) != UCX_INPROGRESS;
    e->u->ucp_request_free(r);
    return done;
}

static void close_links(end *e, uint64_t deadline)
{
    void **closing = rcclx_mem_alloc((size_t)e->owner.nranks * sizeof(*closing));

    for (int r = 0; r < e->owner.nranks; r++) {
        const bool force = e->links[r].lost || rcclx_clock_ns() >= deadline;
        const ucx_request p = { .mask = UCX_OP_FLAGS, .flags = force ? UCX_EP_CLOSE_FORCE : 0 };
        void *q = e->links[r].ep ? e->u->ucp_ep_close_nbx(e->links[r].ep, &p) : NULL;
        if (closing)
            closing[r] = q;
        else
            finish(e, q, deadline);
    }
    for (int r = 0; closing && r < e->owner.nranks; r++)
        finish(e, closing[r], deadline);
    rcclx_mem_free(closing);
}

static void close_end(void *p, double seconds)
{
    end *e = p;
    const uint64_t deadline = rcclx_clock_ns() + (uint64_t)(seconds * 1e9);

    if (!e)
        return;
    if (e->worker) {
        close_links(e, deadline);
        e->u->ucp_worker_destroy(e->worker);
    }
    if (e->u)
        release(e->u);
    for (block *b; (b = e->blocks);) {
        e->blocks = b->next;
        rcclx_mem_free(b);
    }
    rcclx_mem_free(e->links);
    rcclx_mem_free(e);
}

#define ROW(id, word, words, opener)                                                                              \
    extern const rcclx_network rcclx_network_##id;                                                                \
    const rcclx_network rcclx_network_##id = {                                                                    \
        .name = word, .about = words, .open = opener, .address = address, .connect = connect_to, .send = send_frame, \
        .poll = go_on, .idle = idle, .arm = arm, .close = close_end,                                              \
    };

ROW(ucx, "UCX", "the best that UCX finds between two machines", open_any)
ROW(ib, "IB", "InfiniBand and RoCE, by UCX", open_ib)
