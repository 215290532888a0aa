/* A network plug-in of NCCL's: TCP between the machine's interfaces. One source for every
 * version; VERSION (6 to 12) says which table it exports.
 *
 *   a device      an interface that is up, with an IPv4 address; the loopback if there is no other
 *   a connection  a socket, one direction:   | tag, size | bytes | tag, size | bytes | ...
 *   requests      in order; each test goes on with the whole connection
 *
 * It is strict, so that tests see mistakes of its user: memory must lie in the registration that
 * comes with it, a connection has so many requests and no more, contexts must be its own, and a request
 * that has been done or has failed is not tested again. And it
 * is shy: every so often it has no room and gives no request, as real ones do.
 *
 *   RCCLX_TEST_PLUGIN_RECVS=n      receives of one call
 *   RCCLX_TEST_PLUGIN_BOLD=1       never shy
 *   RCCLX_TEST_PLUGIN_LOOPBACK=1   the loopback is a device, too
 *   RCCLX_TEST_PLUGIN_FAIL=what    init, devices, none (no devices), lacks (a function), listen, offload (devices
 *                                  are for kernels), deaf (no connection ever comes about), send, recv (the 40th) */
#include "transport/plugin/net_abi.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SUCCESS, SYSTEM_ERROR = 2, INTERNAL_ERROR, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR };
enum { REQUESTS = VERSION == 6 ? 8 : 32, GROUP = 8, DEVICES = 8, MAGIC = 0x53414d50, SHY = 13 };

#if VERSION < 9
typedef int integer;
#else
typedef size_t integer;
#endif
#if VERSION < 8
typedef int memory_integer;
#else
typedef size_t memory_integer;
#endif

static rcclx_abi_log tell;
static struct { char name[IF_NAMESIZE]; struct in_addr address; } nics[DEVICES];
static int nnics, calls;

#define WARN(...) tell(2, ~0ul, __FILE__, __LINE__, __VA_ARGS__)

static bool fails(const char *what)
{
    const char *s = getenv("RCCLX_TEST_PLUGIN_FAIL");

    return s && !strcmp(s, what);
}

typedef struct { uint32_t tag; uint32_t unused; uint64_t nbytes; } head;

typedef struct { char *data; size_t nbytes; } registration;

typedef struct { char *data; size_t room, size, moved; uint32_t tag; bool begun, done; } message;

typedef struct connection connection;

typedef struct {
    connection *c;
    bool        used;
    int         n, ndone;
    message     m[GROUP];
} request;

struct connection {
    int      magic, fd;
    bool     sends;
    uint32_t first, next;           /* requests: oldest that is not done, next to be posted */
    request *order[REQUESTS];
    request  requests[REQUESTS];
    head     head;                  /* of the message that is read or written */
    size_t   nhead;
    int      at;                    /* which of the oldest request's; -1: not known yet */
};

/* --- devices ------------------------------------------------------------------------------- */

static void look_around(bool loopback)
{
    struct ifaddrs *all = NULL;

    if (getifaddrs(&all))
        return;
    for (const struct ifaddrs *i = all; i && nnics < DEVICES; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && i->ifa_flags & IFF_UP && !!(i->ifa_flags & IFF_LOOPBACK) == loopback) {
            snprintf(nics[nnics].name, sizeof(nics[0].name), "%s", i->ifa_name);
            nics[nnics++].address = ((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr;
        }
    freeifaddrs(all);
}

static int devices(int *n)
{
    if (fails("devices")) {
        WARN("sample: the devices cannot be counted");
        return SYSTEM_ERROR;
    }
    *n = fails("none") ? 0 : nnics;
    return SUCCESS;
}

static int receives(void)
{
    const char *s = getenv("RCCLX_TEST_PLUGIN_RECVS");
    const int n = s ? atoi(s) : 1;

    return n < 1 ? 1 : n > GROUP ? GROUP : n;
}

/* --- connections ----------------------------------------------------------------------------- */

static connection *make(int fd, bool sends)
{
    connection *c = calloc(1, sizeof(*c));
    const int yes = 1;

    if (!c)
        return NULL;
    *c = (connection){ .magic = MAGIC, .fd = fd, .sends = sends, .at = -1 };
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return c;
}

static int listen_at(int dev, void *handle, void **comm)
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    socklen_t n = sizeof(at);

    if (dev < 0 || dev >= nnics || fails("listen")) {
        WARN("sample: device %d cannot be listened on", dev);
        return SYSTEM_ERROR;
    }
    at.sin_addr = nics[dev].address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, n) || listen(fd, 1) || getsockname(fd, (struct sockaddr *)&at, &n))
        return SYSTEM_ERROR;
    memcpy(handle, &at, sizeof(at));
    return (*comm = make(fd, false)) ? SUCCESS : SYSTEM_ERROR;
}

/* What has been begun is kept in the handle, behind the address. */
static int connect_to(int dev, void *handle, void **comm)
{
    struct sockaddr_in at;
    int *const fd = (int *)(void *)((char *)handle + 64);

    (void)dev;
    *comm = NULL;
    if (fails("deaf"))
        return SUCCESS;
    memcpy(&at, handle, sizeof(at));
    if (!*fd && (*fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) < 0)
        return SYSTEM_ERROR;
    if (connect(*fd, (struct sockaddr *)&at, sizeof(at)) && errno != EISCONN) {
        if (errno == EINPROGRESS || errno == EALREADY || errno == EINTR)
            return SUCCESS;
        WARN("sample: no connection: %s", strerror(errno));
        close(*fd);
        return REMOTE_ERROR;
    }
    return (*comm = make(*fd, true)) ? SUCCESS : SYSTEM_ERROR;
}

static int accept_one(void *listen, void **comm)
{
    const connection *l = listen;
    const int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);

    *comm = NULL;
    if (fd < 0)
        return errno == EAGAIN || errno == EINTR ? SUCCESS : SYSTEM_ERROR;
    return (*comm = make(fd, false)) ? SUCCESS : SYSTEM_ERROR;
}

static int close_any(void *comm)
{
    connection *c = comm;

    if (c->magic != MAGIC)
        return INTERNAL_ERROR;
    c->magic = 0;
    close(c->fd);
    free(c);
    return SUCCESS;
}

/* --- memory ------------------------------------------------------------------------------------ */

static int reg(void *comm, void *data, memory_integer nbytes, int type, void **mr)
{
    registration *m = malloc(sizeof(*m));

    if (!m || ((connection *)comm)->magic != MAGIC || type != RCCLX_ABI_HOST)
        return INVALID_ARGUMENT;
    *m = (registration){ data, (size_t)nbytes };
    *mr = m;
    return SUCCESS;
}

static int dereg(void *comm, void *mr)
{
    if (((connection *)comm)->magic != MAGIC)
        return INVALID_ARGUMENT;
    free(mr);
    return SUCCESS;
}

static bool covers(const registration *m, const char *data, size_t nbytes)
{
    return m && data >= m->data && nbytes <= m->nbytes && (size_t)(data - m->data) <= m->nbytes - nbytes;
}

/* --- messages ------------------------------------------------------------------------------------ */

static int lost_peer(const char *what, ssize_t k)
{
    WARN("sample: %s: %s", what, k == 0 ? "the peer has closed the connection" : strerror(errno));
    return REMOTE_ERROR;
}

/* SUCCESS and *moved 0: not now. */
static int move(connection *c, char *data, size_t nbytes, size_t *moved)
{
    const ssize_t k = c->sends ? send(c->fd, data, nbytes, MSG_NOSIGNAL) : recv(c->fd, data, nbytes, 0);

    *moved = k > 0 ? (size_t)k : 0;
    if (k > 0 || (k < 0 && (errno == EAGAIN || errno == EINTR)))
        return SUCCESS;
    return lost_peer(c->sends ? "send" : "receive", k);
}

static int find_message(connection *c, request *r)
{
    for (int i = 0; i < r->n; i++)
        if (!r->m[i].begun && (c->sends || r->n == 1 || r->m[i].tag == c->head.tag)) {
            if (c->head.nbytes > r->m[i].room) {
                WARN("sample: %llu bytes come, and there is room for %zu", (unsigned long long)c->head.nbytes, r->m[i].room);
                return INVALID_USAGE;
            }
            r->m[i].begun = true;
            r->m[i].size = (size_t)c->head.nbytes;
            c->at = i;
            return SUCCESS;
        }
    WARN("sample: no receive has tag %u", c->head.tag);
    return INVALID_USAGE;
}

/* Until this request is done: what comes then may be the end of the connection. */
static int go_on(connection *c, const request *until)
{
    while (c->first != c->next && until->ndone < until->n) {
        request *r = c->order[c->first % REQUESTS];
        size_t moved;
        if (c->sends && !c->nhead)
            c->head = (head){ .tag = r->m[0].tag, .nbytes = r->m[0].room };
        if (c->nhead < sizeof(c->head)) {
            const int e = move(c, (char *)&c->head + c->nhead, sizeof(c->head) - c->nhead, &moved);
            c->nhead += moved;
            if (e || c->nhead < sizeof(c->head))
                return e;
        }
        if (c->at < 0) {
            const int e = find_message(c, r);
            if (e)
                return e;
        }
        message *m = &r->m[c->at];
        while (m->moved < m->size) {
            const int e = move(c, m->data + m->moved, m->size - m->moved, &moved);
            m->moved += moved;
            if (e || !moved)
                return e;
        }
        c->at = -1;
        c->nhead = 0;
        c->first += ++r->ndone == r->n;
    }
    return SUCCESS;
}

static int post(connection *c, int n, void **data, integer *sizes, int *tags, void **mrs, void **out)
{
    request *r = NULL;

    *out = NULL;
    if (fails(c->sends ? "send" : "recv") && ++calls > 40) {
        WARN("sample: the 40th call of this kind fails, as asked");
        return SYSTEM_ERROR;
    }
    if (n < 1 || n > receives())
        return INVALID_ARGUMENT;
    if (!getenv("RCCLX_TEST_PLUGIN_BOLD") && ++calls % SHY == 0)
        return SUCCESS;
    for (int i = 0; i < REQUESTS && !r; i++)
        r = c->requests[i].used ? NULL : &c->requests[i];
    if (!r) {
        WARN("sample: more than %d requests of a connection", REQUESTS);
        return INTERNAL_ERROR;
    }
    *r = (request){ .c = c, .used = true, .n = n };
    for (int i = 0; i < n; i++) {
        if (!covers(mrs[i], data[i], (size_t)sizes[i])) {
            WARN("sample: %p, %zu bytes, do not lie in their registration", data[i], (size_t)sizes[i]);
            return INVALID_ARGUMENT;
        }
        r->m[i] = (message){ .data = data[i], .room = (size_t)sizes[i], .tag = (uint32_t)tags[i] };
    }
    c->order[c->next++ % REQUESTS] = r;
    *out = r;
    return SUCCESS; /* what is wrong with the connection, test says */
}

static int test(void *req, int *done, int *sizes)
{
    request *r = req;

    if (!r->used) {
        WARN("sample: a test of a request that has ended");
        abort(); /* real ones do worse */
    }
    const int e = go_on(r->c, r);

    *done = r->used && r->ndone == r->n;
    for (int i = 0; *done && sizes && i < r->n; i++)
        sizes[i] = (int)r->m[i].size;
    r->used = !*done && !e;
    return *done ? SUCCESS : e;
}

/* --- the tables ------------------------------------------------------------------------------------ */

#if VERSION >= 11
typedef struct { int magic; } context;

static bool is_ours(const context *x)
{
    if (x && x->magic == MAGIC + 1)
        return true;
    WARN("sample: this is no context of mine");
    return false;
}
#endif

#define JOIN(a, b) a##b
#define NAMED(a, b) JOIN(a, b)
#define TABLE NAMED(ncclNetPlugin_v, VERSION)
typedef NAMED(rcclx_net_v, VERSION) table;
typedef NAMED(rcclx_device_v, VERSION) device;

static int start(rcclx_abi_log log);

static int properties(int dev, device *d)
{
    if (dev < 0 || dev >= nnics)
        return INVALID_ARGUMENT;
    d->name = nics[dev].name;
    d->pci = NULL;
    d->guid = (uint64_t)dev;
    d->pointers = RCCLX_ABI_HOST;
    d->speed = 10000;
    d->port = 0;
    d->latency = 0;
    d->max_comms = 65536;
    d->max_recvs = receives();
#if VERSION >= 7
    d->offload = fails("offload");
    d->offload_version = 0;
#endif
#if VERSION >= 8
    d->reg_is_global = 0;
#endif
#if VERSION >= 9
    d->force_flush = 0;
    d->parts.ndevs = 1;
    d->parts.devs[0] = dev;
    d->max_p2p = d->max_coll = 64 << 10; /* small, so that large data go in parts */
#endif
#if VERSION >= 11
    d->max_requests = 1;
#endif
#if VERSION >= 12
    d->rail = d->plane = -1;
#endif
    return SUCCESS;
}

#if VERSION < 10
static int init(rcclx_abi_log log) { return start(log); }
static int send_one(void *comm, void *data, integer nbytes, int tag, void *mr, void **req)
{
    return post(comm, 1, &data, &nbytes, &tag, &mr, req);
}
static int recv_some(void *comm, int n, void **data, integer *sizes, int *tags, void **mrs, void **req)
{
    return post(comm, n, data, sizes, tags, mrs, req);
}
#else
static int send_one(void *comm, void *data, integer nbytes, int tag, void *mr, void *parent, void **req)
{
    return parent ? INVALID_ARGUMENT : post(comm, 1, &data, &nbytes, &tag, &mr, req);
}
static int recv_some(void *comm, int n, void **data, integer *sizes, int *tags, void **mrs, void **parents, void **req)
{
    return parents[0] ? INVALID_ARGUMENT : post(comm, n, data, sizes, tags, mrs, req);
}
#endif

#if VERSION == 6
#define listen_6 listen_at
#define connect_6 connect_to
#define accept_6 accept_one
#else
static int accept_6(void *listen, void **comm, rcclx_abi_offload **offload)
{
    return offload && *offload ? INVALID_USAGE : accept_one(listen, comm);
}
#endif
#if VERSION >= 7 && VERSION <= 10
#define listen_6 listen_at
#endif
#if VERSION >= 7 && VERSION <= 9
static int connect_6(int dev, void *handle, void **comm, rcclx_abi_offload **offload)
{
    return offload && *offload ? INVALID_USAGE : connect_to(dev, handle, comm);
}
#endif
#if VERSION == 10
static int connect_6(int dev, rcclx_abi_config *config, void *handle, void **comm, rcclx_abi_offload **offload)
{
    return config->traffic_class != -1 || (offload && *offload) ? INVALID_USAGE : connect_to(dev, handle, comm);
}
static int init(rcclx_abi_log log, rcclx_abi_profile profile) { return profile ? start(log) : INVALID_ARGUMENT; }
#endif
#if VERSION >= 11
static int init(void **ctx, uint64_t id, rcclx_abi_config *config, rcclx_abi_log log, rcclx_abi_profile profile)
{
    context *x = calloc(1, sizeof(*x));

    (void)id;
    if (!x || !profile || config->traffic_class != -1)
        return INVALID_ARGUMENT;
    x->magic = MAGIC + 1;
    *ctx = x;
    return start(log);
}
static int listen_6(void *ctx, int dev, void *handle, void **comm)
{
    return is_ours(ctx) ? listen_at(dev, handle, comm) : INVALID_ARGUMENT;
}
static int connect_6(void *ctx, int dev, void *handle, void **comm, rcclx_abi_offload **offload)
{
    return offload && *offload ? INVALID_USAGE : is_ours(ctx) ? connect_to(dev, handle, comm) : INVALID_ARGUMENT;
}
static int finalize(void *ctx)
{
    if (!is_ours(ctx))
        return INVALID_ARGUMENT;
    ((context *)ctx)->magic = 0;
    free(ctx);
    return SUCCESS;
}
#endif

__attribute__((visibility("default"))) extern table TABLE;
table TABLE = {
    .name = "Sample", .init = init, .devices = devices, .device = properties, .listen = listen_6, .connect = connect_6,
    .accept = accept_6, .reg = reg, .dereg = dereg, .recv = recv_some, .test = test, .close_send = close_any,
    .close_recv = close_any, .close_listen = close_any,
#if VERSION >= 11
    .finalize = finalize,
#endif
};

/* The table is complete only now, as with some real ones. */
static int start(rcclx_abi_log log)
{
    tell = log;
    if (fails("init")) {
        WARN("sample: there is no luck today");
        return SYSTEM_ERROR;
    }
    TABLE.send = fails("lacks") ? NULL : send_one;
    if (!nnics) {
        look_around(false);
        if (!nnics || getenv("RCCLX_TEST_PLUGIN_LOOPBACK"))
            look_around(true);
    }
    log(3, 0x10, __FILE__, __LINE__, "sample: started, version %d", VERSION);
    return SUCCESS;
}
