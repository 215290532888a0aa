/* A rank's side of the bootstrap: unique ids, and the way to the root.
 *
 *   one machine    meet: who is who, the shared memory
 *   several        meet: who is who; then those of each machine meet once more, at a root
 *                  of their own, for their shared memory; then all swap cards with the
 *                  addresses of their networks
 *
 *   same machine   an abstract Unix socket named after the token: no network, no file;
 *                  memory handles come along
 *   otherwise      TCP to the address in the id; on the same machine, handles are then
 *                  opened through /proc of the process that has them */
#include "comm/bootstrap.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
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

/* All addresses of this machine, of both families where there are two. */
static rcclx_status listen_wide(in_port_t port, double patience, int *tcp)
{
    rcclx_address a = { .v6 = { .sin6_family = AF_INET6, .sin6_port = port } };

    if (rcclx_listen_tcp(&a, patience, tcp) == RCCLX_OK)
        return RCCLX_OK;
    a = (rcclx_address){ .v4 = { .sin_family = AF_INET, .sin_port = port } };
    return rcclx_listen_tcp(&a, 0, tcp);
}

static rcclx_status open_root(rcclx_id_fields *f, double patience)
{
    const int way = f->late == RCCLX_ID_HERE ? UNIX_ONLY : (int)rcclx_option_int(RCCLX_OPT_BOOTSTRAP);
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
            s = f->late == RCCLX_ID_WIDE ? listen_wide(f->port, patience, &tcp) : rcclx_listen_tcp(&a, patience, &tcp);
        if (s == RCCLX_OK)
            keep_address(f, &a);
        if (s == RCCLX_AGAIN && way != TCP_ONLY)
            s = RCCLX_OK; /* no network: the ranks of this machine need none */
        if (s == RCCLX_AGAIN)
            s = RCCLX_FAIL(RCCLX_SYSTEM, "RCCLX_BOOTSTRAP is tcp, but no network interface is up");
    }
    if (s == RCCLX_OK && way != TCP_ONLY) {
        rcclx_id_socket_name(f->token, name, sizeof(name));
        s = rcclx_listen_unix(name, patience, &local);
    }
    if (s != RCCLX_OK) {
        if (tcp >= 0)
            close(tcp);
        return s;
    }
    return rcclx_root_start(f->token, tcp, local, rcclx_option_real(RCCLX_OPT_INIT_TIMEOUT));
}

rcclx_status rcclx_unique_id_create(rcclx_unique_id *id, const char *at)
{
    rcclx_id_fields f = { .magic = RCCLX_ID_MAGIC, .host = rcclx_process()->host };

    if (at && *at)
        return rcclx_unique_id_at(id, at, at); /* rank 0 opens the root when it comes */
    rcclx_random(f.token, sizeof(f.token));
    RCCLX_TRY(open_root(&f, 0));
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

/* Debian gives a machine's name the address 127.0.1.1 on that machine, and its real one elsewhere. */
static bool only_looks_local(const rcclx_address *a, const char *host_port)
{
    return rcclx_address_is_loopback(a) && strncmp(host_port, "127.", 4) && strncmp(host_port, "localhost:", 10) && *host_port != '[';
}

rcclx_status rcclx_unique_id_at(rcclx_unique_id *id, const char *host_port, const char *token_text)
{
    rcclx_id_fields f = { .magic = RCCLX_ID_MAGIC, .late = 1 };
    rcclx_address a;

    hash(f.token, token_text);
    if (*host_port) {
        RCCLX_TRY(rcclx_address_parse(&a, host_port));
        keep_address(&f, &a);
        if (only_looks_local(&a, host_port))
            f.late = RCCLX_ID_WIDE;
    }
    write_id(id, &f);
    return RCCLX_OK;
}

rcclx_status rcclx_unique_id_serve(const rcclx_unique_id *id)
{
    rcclx_id_fields f;

    memcpy(&f, id->bytes, sizeof(f));
    if (f.magic != RCCLX_ID_MAGIC)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "the unique id was not made by ncclGetUniqueId of this library");
    return open_root(&f, 3);
}

/* --- going there ------------------------------------------------------------------ */

static rcclx_status no_handles(int rank)
{
    struct rlimit l = { 0 };

    getrlimit(RLIMIT_NOFILE, &l);
    return RCCLX_FAIL(RCCLX_SYSTEM, "rank %d: the limit of %llu open files (ulimit -n) leaves no room for a socket and the "
                      "peers' memory handles; raise it", rank, (unsigned long long)l.rlim_cur);
}

/* What may be the matter, and one thing to try. */
static void why_nobody(const rcclx_id_fields *f, int e, char *text, size_t n)
{
    if (f->has_tcp && e == ETIMEDOUT)
        snprintf(text, n, "packets to there are not answered; the machine is down, or a firewall drops them: let TCP port %u in, have "
                 "ports chosen that it lets in (RCCLX_PORT_RANGE), or take another network (NCCL_SOCKET_IFNAME)", ntohs(f->port));
    else if (f->has_tcp && (e == EHOSTUNREACH || e == ENETUNREACH))
        snprintf(text, n, "from this machine no way leads there; let rank 0 be found on a network that both are on "
                 "(NCCL_SOCKET_IFNAME, MASTER_ADDR)");
    else if (f->late)
        snprintf(text, n, "rank 0 has not come, or listens elsewhere");
    else
        snprintf(text, n, "the process that made it has ended, or the id was used already");
}

/* An address of one link says nothing of the interface that has the link here: all are tried in turn. */
static int connect_to(const rcclx_id_fields *f, rcclx_address *a, bool here, int turn)
{
    if (!here && f->family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&a->v6.sin6_addr))
        a->v6.sin6_scope_id = rcclx_interface_scope(turn);
    return rcclx_connect_tcp(a, 2000);
}

/* A socket to the root, trying until it answers or there is no hope. */
static rcclx_status find_root(const rcclx_id_fields *f, int rank, double timeout, const _Atomic uint32_t *aborted, int *fd)
{
    const int way = f->late == RCCLX_ID_HERE ? UNIX_ONLY : (int)rcclx_option_int(RCCLX_OPT_BOOTSTRAP);
    const uint64_t begin = rcclx_clock_ns();
    const double patience = f->late || timeout < 3 ? timeout : 3;
    const bool here = !f->host || f->host == rcclx_process()->host;
    rcclx_address a;
    char name[40], text[80] = "a Unix socket", why[256];
    int turn = 0;

    if (!here && !f->has_tcp)
        return RCCLX_FAIL(RCCLX_SYSTEM, "rank %d: this unique id was made on another machine, where no network interface was up (or "
                          "NCCL_SOCKET_IFNAME, RCCLX_BOOTSTRAP left none), so that no rank of this one can go there", rank);
    rcclx_id_socket_name(f->token, name, sizeof(name));
    if (f->has_tcp) {
        rcclx_id_address(f, &a);
        rcclx_address_text(&a, text, sizeof(text));
    }
    for (int ms = 1; !atomic_load(aborted); ms = ms < 50 ? 2 * ms : 50) {
        *fd = here && way != TCP_ONLY ? rcclx_connect_unix(name) : -1;
        if (*fd < 0 && f->has_tcp && (way == TCP_ONLY || !here || ms >= 8))
            *fd = connect_to(f, &a, here, turn++);
        if (*fd >= 0)
            return RCCLX_OK;
        const int e = errno;
        if (e == EMFILE)
            return no_handles(rank);
        if ((double)(rcclx_clock_ns() - begin) * 1e-9 > patience) {
            why_nobody(f, e, why, sizeof(why));
            return RCCLX_FAIL(f->late ? RCCLX_TIMEOUT : RCCLX_SYSTEM, "rank %d: nobody answers for this unique id at %s (%s): %s", rank,
                              text, strerror(e), why);
        }
        nap(ms);
    }
    return RCCLX_ABORTED;
}

static rcclx_status hear_root(int fd, int rank, int nranks, uint64_t deadline, const _Atomic uint32_t *aborted, rcclx_welcome *w,
                              int *handles, int *nhandles)
{
    size_t have = 0, size = offsetof(rcclx_welcome, peer);

    *nhandles = 0;
    while (have < size) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int n = 1 + RCCLX_MAX_PROCESSES - *nhandles;
        poll(&p, 1, 50);
        if (atomic_load(aborted))
            return RCCLX_ABORTED;
        if (rcclx_clock_ns() > deadline)
            return RCCLX_FAIL(RCCLX_TIMEOUT, "rank %d: the root of the bootstrap did not answer before the deadline", rank);
        if (!p.revents)
            continue;
        const ssize_t k = rcclx_recv_some(fd, (char *)w + have, size - have, handles + *nhandles, &n);
        if (k < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (k < 0 && errno == EMFILE)
            return no_handles(rank);
        *nhandles += n;
        if (k <= 0)
            return RCCLX_FAIL(RCCLX_PEER_LOST, "rank %d: the root of the bootstrap closed the connection; its process has "
                              "ended, or speaks another version", rank);
        have += (size_t)k;
        if (have == offsetof(rcclx_welcome, peer))
            size = w->magic == RCCLX_HELLO_MAGIC ? rcclx_welcome_bytes(w) : size;
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
        const int h = w->peer[r].handle;
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

/* One meeting. team: ranks of the communicator; the socket stays open in m->root when the root has no shared memory to give. */
static rcclx_status meet_once(const rcclx_id_fields *f, int nranks, int team, const rcclx_arrival *me, double timeout,
                              const _Atomic uint32_t *aborted, rcclx_meeting *m)
{
    int fd = -1, handles[1 + RCCLX_MAX_PROCESSES], nhandles = 0;
    rcclx_welcome w;

    RCCLX_TRY(find_root(f, me->rank, timeout, aborted, &fd));
    rcclx_hello h = { .magic = RCCLX_HELLO_MAGIC, .token = { f->token[0], f->token[1] },
                      .version = RCCLX_SEGMENT_VERSION, .nranks = nranks, .team = team, .me = *me };
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
    if (s == RCCLX_OK) {
        m->nranks = w.nranks;
        memcpy(m->token, f->token, sizeof(m->token));
        for (int r = 0; r < w.nranks; r++)
            m->peer[r] = w.peer[r].who;
        if (w.segment_fd < 0) {
            m->root = fd;
            return RCCLX_OK;
        }
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

static void empty(rcclx_meeting *m)
{
    memset(m, 0, sizeof(*m));
    m->segment_fd = m->root = -1;
    for (int r = 0; r < RCCLX_MAX_RANKS; r++)
        m->arena_fd[r] = -1;
}

/* Machines are numbered in the order of their first ranks. */
static void number_nodes(rcclx_meeting *m)
{
    m->nnodes = 0;
    for (int r = 0; r < m->nranks; r++) {
        int first = 0;
        while (m->peer[first].host != m->peer[r].host)
            first++;
        m->node[r] = first < r ? m->node[first] : m->nnodes++;
    }
}

/* The ranks of my machine meet at its first, under a token made of the communicator's and the machine's. */
static rcclx_status meet_here(rcclx_meeting *m, const rcclx_arrival *me, double timeout, const _Atomic uint32_t *aborted)
{
    rcclx_id_fields f = { .magic = RCCLX_ID_MAGIC, .host = me->host, .late = RCCLX_ID_HERE };
    int here[RCCLX_MAX_RANKS], n = 0;
    rcclx_arrival mine = *me;
    rcclx_meeting local;
    rcclx_unique_id id;

    for (int r = 0; r < m->nranks; r++)
        if (m->node[r] == m->node[me->rank])
            here[n++] = r;
    for (int i = 0; i < n; i++)
        if (here[i] == me->rank)
            mine.rank = i;
    for (int i = 0; i < 2; i++)
        f.token[i] = (m->token[i] ^ me->host) * (0x9e3779b97f4a7c15u + 2u * (unsigned)i);
    write_id(&id, &f);
    if (mine.rank == 0)
        RCCLX_TRY(rcclx_unique_id_serve(&id));
    empty(&local);
    RCCLX_TRY(meet_once(&f, n, m->nranks, &mine, timeout, aborted, &local));
    m->segment_fd = local.segment_fd;
    memcpy(m->token, f.token, sizeof(m->token));
    for (int i = 0; i < n; i++)
        m->arena_fd[here[i]] = local.arena_fd[i];
    return RCCLX_OK;
}

rcclx_status rcclx_meet(const rcclx_unique_id *id, int nranks, const rcclx_arrival *me, double timeout,
                        const _Atomic uint32_t *aborted, rcclx_meeting *m)
{
    rcclx_id_fields f;

    empty(m);
    memcpy(&f, id->bytes, sizeof(f));
    if (f.magic != RCCLX_ID_MAGIC)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: the unique id was not made by ncclGetUniqueId of this library", me->rank);
    RCCLX_TRY(meet_once(&f, nranks, nranks, me, timeout, aborted, m));
    m->id = f.token[0] ^ f.token[1];
    number_nodes(m);
    const rcclx_status s = m->nnodes > 1 ? meet_here(m, me, timeout, aborted) : RCCLX_OK;
    if (s != RCCLX_OK)
        rcclx_meeting_fini(m);
    return s;
}

/* --- cards ------------------------------------------------------------------------- */

static rcclx_status hear_deck(int fd, int rank, size_t nbytes, uint64_t deadline, const _Atomic uint32_t *aborted, rcclx_deck *d)
{
    for (size_t have = 0; have < nbytes;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int none = 0;
        poll(&p, 1, 50);
        if (atomic_load(aborted))
            return RCCLX_ABORTED;
        if (rcclx_clock_ns() > deadline)
            return RCCLX_FAIL(RCCLX_TIMEOUT, "rank %d: the root of the bootstrap did not send the ranks' addresses before the "
                              "deadline", rank);
        const ssize_t k = p.revents ? rcclx_recv_some(fd, (char *)d + have, nbytes - have, NULL, &none) : -2;
        if (k == -2 || (k < 0 && (errno == EAGAIN || errno == EINTR)))
            continue;
        if (k <= 0)
            return RCCLX_FAIL(RCCLX_PEER_LOST, "rank %d: the root of the bootstrap closed the connection while addresses were "
                              "swapped; its process has ended", rank);
        have += (size_t)k;
    }
    if (d->magic != RCCLX_HELLO_MAGIC || d->status < RCCLX_OK || d->status >= RCCLX_STATUS_COUNT)
        return RCCLX_FAIL(RCCLX_SYSTEM, "rank %d: the root of the bootstrap answers what makes no sense", rank);
    return RCCLX_OK;
}

rcclx_status rcclx_meeting_swap(rcclx_meeting *m, int rank, const rcclx_card *mine, rcclx_card *all, double timeout,
                                const _Atomic uint32_t *aborted)
{
    rcclx_deck *d = RCCLX_NEW(rcclx_deck);
    rcclx_status s = RCCLX_OK;

    if (!d)
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: no memory for the ranks' addresses", rank);
    if (rcclx_send_all(m->root, mine, sizeof(*mine), NULL, 0, 5000))
        s = RCCLX_FAIL_ERRNO("rank %d: telling the root of the bootstrap an address", rank);
    if (s == RCCLX_OK)
        s = hear_deck(m->root, rank, rcclx_deck_bytes(m->nranks), rcclx_clock_ns() + (uint64_t)(timeout * 1e9) + 2000000000u, aborted, d);
    if (s == RCCLX_OK && d->status != RCCLX_OK)
        s = RCCLX_FAIL((rcclx_status)d->status, "rank %d: %.*s", rank, (int)sizeof(d->text) - 1, d->text);
    if (s == RCCLX_OK)
        memcpy(all, d->card, (size_t)m->nranks * sizeof(*all));
    rcclx_mem_free(d);
    return s;
}

void rcclx_meeting_fini(rcclx_meeting *m)
{
    if (m->segment_fd >= 0)
        close(m->segment_fd);
    if (m->root >= 0)
        close(m->root);
    for (int r = 0; r < m->nranks; r++)
        if (m->arena_fd[r] >= 0)
            close(m->arena_fd[r]);
    m->segment_fd = m->root = -1;
    m->nranks = 0;
}
