/* A rank's side of the bootstrap: unique ids, and the way to the root.
 *
 *   same machine   an abstract Unix socket named after the token: no network, no file;
 *                  memory handles come along
 *   otherwise      TCP to the address in the id; on the same machine, handles are then
 *                  opened through /proc of the process that has them */
#include "comm/bootstrap.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/option.h"
#include "base/process.h"
#include "comm/root.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { AUTO, UNIX_ONLY, TCP_ONLY }; /* RCCLX_BOOTSTRAP */

void rcclx_id_socket_name(const uint64_t token[2], char *name, size_t n)
{
    /* the name shows half of the token; the other half must still be known */
    snprintf(name, n, "rcclx-%016llx", (unsigned long long)token[0]);
}

void rcclx_id_address(const rcclx_id_fields *f, rcclx_address *a)
{
    memset(a, 0, sizeof(*a));
    a->any.sa_family = f->family;
    if (f->family == AF_INET) {
        a->v4.sin_port = f->port;
        memcpy(&a->v4.sin_addr, f->addr, 4);
    } else {
        a->v6.sin6_port = f->port;
        a->v6.sin6_scope_id = f->scope;
        memcpy(&a->v6.sin6_addr, f->addr, 16);
    }
}

static void keep_address(rcclx_id_fields *f, const rcclx_address *a)
{
    f->has_tcp = 1;
    f->family = a->any.sa_family;
    f->port = f->family == AF_INET ? a->v4.sin_port : a->v6.sin6_port;
    f->scope = f->family == AF_INET ? 0 : a->v6.sin6_scope_id;
    if (f->family == AF_INET)
        memcpy(f->addr, &a->v4.sin_addr, 4);
    else
        memcpy(f->addr, &a->v6.sin6_addr, 16);
}

static void write_id(rcclx_unique_id *id, const rcclx_id_fields *f)
{
    memset(id, 0, sizeof(*id));
    memcpy(id->bytes, f, sizeof(*f));
}

/* --- ids ----------------------------------------------------------------------- */

static void nap(int ms)
{
    const struct timespec t = { ms / 1000, ms % 1000 * 1000000L };

    nanosleep(&t, NULL);
}

static rcclx_status open_root(rcclx_id_fields *f)
{
    const int way = (int)rcclx_option_int(RCCLX_OPT_BOOTSTRAP);
    int tcp = -1, local = -1;
    rcclx_address a;
    char name[40];
    rcclx_status s = RCCLX_OK;

    /* a place known by its words alone is on this machine */
    if (way != UNIX_ONLY && (f->has_tcp || !f->late)) {
        if (f->has_tcp)
            rcclx_id_address(f, &a);
        else
            s = rcclx_interface_pick(&a);
        if (s == RCCLX_OK)
            s = rcclx_listen_tcp(&a, &tcp);
        if (s == RCCLX_OK)
            keep_address(f, &a);
        if (s == RCCLX_AGAIN && way != TCP_ONLY)
            s = RCCLX_OK; /* no network: the ranks of this machine need none */
        if (s == RCCLX_AGAIN)
            s = RCCLX_FAIL(RCCLX_SYSTEM, "RCCLX_BOOTSTRAP is tcp, but no network interface is up");
    }
    if (s == RCCLX_OK && way != TCP_ONLY) {
        rcclx_id_socket_name(f->token, name, sizeof(name));
        s = rcclx_listen_unix(name, &local);
    }
    if (s != RCCLX_OK) {
        if (tcp >= 0)
            close(tcp);
        return s;
    }
    return rcclx_root_start(f->token, tcp, local, rcclx_option_real(RCCLX_OPT_INIT_TIMEOUT));
}

rcclx_status rcclx_unique_id_create(rcclx_unique_id *id)
{
    const char *at = rcclx_option_str(RCCLX_OPT_COMM_ID);
    rcclx_id_fields f = { .magic = RCCLX_ID_MAGIC, .host = rcclx_process()->host };

    if (*at)
        return rcclx_unique_id_at(id, at, at); /* rank 0 opens the root when it comes */
    rcclx_random(f.token, sizeof(f.token));
    RCCLX_TRY(open_root(&f));
    write_id(id, &f);
    return RCCLX_OK;
}

static void hash(uint64_t out[2], const char *text)
{
    out[0] = 0xcbf29ce484222325u;
    out[1] = 0x84222325cbf29ce4u;
    for (; *text; text++)
        for (int i = 0; i < 2; i++)
            out[i] = (out[i] ^ (unsigned char)*text) * (0x100000001b3u + 2u * (unsigned)i);
}

rcclx_status rcclx_unique_id_at(rcclx_unique_id *id, const char *host_port, const char *token_text)
{
    rcclx_id_fields f = { .magic = RCCLX_ID_MAGIC, .late = 1 };
    rcclx_address a;

    hash(f.token, token_text);
    if (*host_port) {
        RCCLX_TRY(rcclx_address_parse(&a, host_port));
        keep_address(&f, &a);
    }
    write_id(id, &f);
    return RCCLX_OK;
}


rcclx_status rcclx_unique_id_serve(const rcclx_unique_id *id)
{
    const uint64_t begin = rcclx_clock_ns();
    rcclx_id_fields f;

    memcpy(&f, id->bytes, sizeof(f));
    if (f.magic != RCCLX_ID_MAGIC)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "the unique id was not made by ncclGetUniqueId of this library");
    /* the root of an earlier communicator at the same place may just be leaving */
    rcclx_status s = open_root(&f);
    while (s == RCCLX_SYSTEM && rcclx_clock_ns() - begin < 3000000000u) {
        nap(5);
        s = open_root(&f);
    }
    return s;
}

/* --- going there ------------------------------------------------------------------ */

static rcclx_status no_handles(int rank)
{
    struct rlimit l = { 0 };

    getrlimit(RLIMIT_NOFILE, &l);
    return RCCLX_FAIL(RCCLX_SYSTEM, "rank %d: the limit of %llu open files (ulimit -n) leaves no room for a socket and the "
                      "peers' memory handles; raise it", rank, (unsigned long long)l.rlim_cur);
}

/* A socket to the root, trying until it answers or there is no hope. */
static rcclx_status find_root(const rcclx_id_fields *f, int rank, double timeout, const _Atomic uint32_t *aborted, int *fd)
{
    const int way = (int)rcclx_option_int(RCCLX_OPT_BOOTSTRAP);
    const uint64_t begin = rcclx_clock_ns();
    const double patience = f->late || timeout < 3 ? timeout : 3;
    const bool here = !f->host || f->host == rcclx_process()->host;
    rcclx_address a;
    char name[40], text[80] = "a Unix socket";

    rcclx_id_socket_name(f->token, name, sizeof(name));
    if (f->has_tcp) {
        rcclx_id_address(f, &a);
        rcclx_address_text(&a, text, sizeof(text));
    }
    for (int ms = 1; !atomic_load(aborted); ms = ms < 50 ? 2 * ms : 50) {
        *fd = here && way != TCP_ONLY ? rcclx_connect_unix(name) : -1;
        if (*fd < 0 && f->has_tcp && (way == TCP_ONLY || !here || ms >= 8))
            *fd = rcclx_connect_tcp(&a, 2000);
        if (*fd >= 0)
            return RCCLX_OK;
        const int e = errno;
        if (e == EMFILE)
            return no_handles(rank);
        if ((double)(rcclx_clock_ns() - begin) * 1e-9 > patience)
            return RCCLX_FAIL(f->late ? RCCLX_TIMEOUT : RCCLX_SYSTEM, "rank %d: nobody answers for this unique id at %s (%s): "
                              "%s", rank, text, strerror(e), f->late ? "rank 0 has not come, or listens elsewhere"
                              : "the process that made it has ended, or the id was used already");
        nap(ms);
    }
    return RCCLX_ABORTED;
}

static rcclx_status hear_root(int fd, int rank, int nranks, uint64_t deadline, const _Atomic uint32_t *aborted, rcclx_welcome *w,
                              int *handles, int *nhandles)
{
    size_t have = 0;

    *nhandles = 0;
    while (have < sizeof(*w)) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int n = 1 + RCCLX_MAX_RANKS - *nhandles;
        poll(&p, 1, 50);
        if (atomic_load(aborted))
            return RCCLX_ABORTED;
        if (rcclx_clock_ns() > deadline)
            return RCCLX_FAIL(RCCLX_TIMEOUT, "rank %d: the root of the bootstrap did not answer before the deadline", rank);
        if (!p.revents)
            continue;
        const ssize_t k = rcclx_recv_some(fd, (char *)w + have, sizeof(*w) - have, handles + *nhandles, &n);
        if (k < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (k < 0 && errno == EMFILE)
            return no_handles(rank);
        *nhandles += n;
        if (k <= 0)
            return RCCLX_FAIL(RCCLX_PEER_LOST, "rank %d: the root of the bootstrap closed the connection; its process has "
                              "ended, or speaks another version", rank);
        have += (size_t)k;
    }
    if (w->magic != RCCLX_HELLO_MAGIC)
        return RCCLX_FAIL(RCCLX_SYSTEM, "rank %d: the root of the bootstrap speaks another language", rank);
    const bool good = w->status == RCCLX_OK && w->nranks == nranks, bad = w->status > RCCLX_AGAIN && w->status < RCCLX_STATUS_COUNT;
    if (!good)
        return RCCLX_FAIL(bad ? (rcclx_status)w->status : RCCLX_SYSTEM, "rank %d: %.*s", rank, (int)sizeof(w->text) - 1,
                          bad ? w->text : "the root of the bootstrap answers what makes no sense");
    return RCCLX_OK;
}

/* A memory handle of another process, where none came along (TCP). */
static int borrow(int pid, int fd)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

static rcclx_status take_handles(rcclx_meeting *m, const rcclx_welcome *w, const int *handles, int nhandles, int rank)
{
    const uint64_t mine = rcclx_process()->key;
    uint32_t used = 1;

    m->segment_fd = nhandles ? handles[0] : borrow(w->root_pid, w->segment_fd);
    for (int r = 0; r < m->nranks; r++) {
        const int h = w->handle[r];
        bool seen = m->peer[r].key == mine;
        for (int k = 0; k < r; k++)
            seen |= m->peer[k].key == m->peer[r].key;
        m->arena_fd[r] = -1;
        if (seen || m->peer[r].arena_fd < 0)
            continue;
        m->arena_fd[r] = nhandles ? (h > 0 && h < nhandles ? handles[h] : -1) : borrow(m->peer[r].pid, m->peer[r].arena_fd);
        used++;
    }
    for (int i = 1; i < nhandles; i++) {
        bool kept = false;
        for (int r = 0; r < m->nranks; r++)
            kept |= m->arena_fd[r] == handles[i];
        if (!kept)
            close(handles[i]);
    }
    return m->segment_fd >= 0 ? RCCLX_OK : RCCLX_FAIL_ERRNO("rank %d: the shared memory cannot be fetched from process %d; let "
                                                            "the ranks meet by a Unix socket (RCCLX_BOOTSTRAP=auto)", rank,
                                                            w->root_pid);
}

rcclx_status rcclx_meet(const rcclx_unique_id *id, int nranks, const rcclx_arrival *me, double timeout,
                        const _Atomic uint32_t *aborted, rcclx_meeting *m)
{
    rcclx_id_fields f;
    rcclx_welcome w;
    int fd, handles[1 + RCCLX_MAX_RANKS], nhandles;

    memset(m, 0, sizeof(*m));
    m->segment_fd = -1;
    memcpy(&f, id->bytes, sizeof(f));
    if (f.magic != RCCLX_ID_MAGIC)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: the unique id was not made by ncclGetUniqueId of this library", me->rank);
    RCCLX_TRY(find_root(&f, me->rank, timeout, aborted, &fd));
    rcclx_hello h = { .magic = RCCLX_HELLO_MAGIC, .token = { f.token[0], f.token[1] },
                      .version = RCCLX_SEGMENT_VERSION, .nranks = nranks, .me = *me };
    struct sockaddr_storage where;
    socklen_t size = sizeof(where);
    const bool local = getsockname(fd, (struct sockaddr *)&where, &size) == 0 && where.ss_family == AF_UNIX;
    rcclx_status s = RCCLX_OK;
    if (rcclx_send_all(fd, &h, sizeof(h), &me->arena_fd, local && me->arena_fd >= 0, 5000))
        s = RCCLX_FAIL_ERRNO("rank %d: telling the root of the bootstrap", me->rank);
    /* the root's own deadline comes first, so that its text says who is missing */
    if (s == RCCLX_OK)
        s = hear_root(fd, me->rank, nranks, rcclx_clock_ns() + (uint64_t)(timeout * 1e9) + 2000000000u, aborted, &w, handles,
                      &nhandles);
    else
        nhandles = 0;
    if (s == RCCLX_OK) {
        m->nranks = w.nranks;
        memcpy(m->token, f.token, sizeof(m->token));
        memcpy(m->peer, w.peer, sizeof(m->peer));
        s = take_handles(m, &w, handles, nhandles, me->rank);
        if (s == RCCLX_OK)
            rcclx_send_all(fd, "", 1, NULL, 0, 5000); /* I have them */
        else
            rcclx_meeting_fini(m);
    } else {
        for (int i = 0; i < nhandles; i++)
            close(handles[i]);
    }
    close(fd);
    return s;
}

void rcclx_meeting_fini(rcclx_meeting *m)
{
    if (m->segment_fd >= 0)
        close(m->segment_fd);
    for (int r = 0; r < m->nranks; r++)
        if (m->arena_fd[r] >= 0)
            close(m->arena_fd[r]);
    m->segment_fd = -1;
    m->nranks = 0;
}
