/* TCP, without anything beneath: a connection for each pair of ranks.
 *
 *   on the wire   | nbytes, nframe | frame | data |  | nbytes, nframe | frame | data | ...
 *
 *   send    one sendmsg takes words, frame and data from where they lie; what does not go
 *           at once waits in a `flight`, the data still where they lie
 *   poll    recv: into a box, from which short frames are dealt out;
 *           recvmsg: what is left of long data straight into its place, and the next
 *           frame's beginning into the box
 *
 * Of few peers each socket is asked directly, which costs less than asking which ones have
 * something; of more, epoll is. It is also what a sleeper sleeps on.
 *
 * Of two ranks the higher one connects. Until the lower one has seen it come, what that
 * sends waits in flights. */
#include "transport/net.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "transport/tcp_meet.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* NEXT: bytes of the box that may take what follows long data, so that little of the next ones is copied. */
enum { BOX = 16 << 10, NEXT = 512, BLOCK = 64, ASKED = 2, EVENTS = 16, ROUNDS = 16 };

/* Before each frame. */
typedef struct { uint64_t nbytes : 48, nframe : 16; } words;

typedef struct { words words; rcclx_frame frame; } head;

typedef struct flight {
    struct flight *next;
    head           head;
    const char    *data;
    size_t         nhead, nbytes, gone;
} flight;

typedef struct block {
    struct block *next;
    flight        flights[BLOCK];
} block;

typedef struct end end;

/* A far rank. */
typedef struct {
    end         *e;
    int          rank, fd; /* -1: not there yet, or lost */
    bool         expected, lost;
    int          broken;   /* sending failed with this errno; what has arrived counts all the same */
    flight      *first, **last;
    rcclx_frame  frame;    /* whose data are coming: */
    char        *to;
    size_t       left;
    size_t       begin, end; /* of what is in the box */
    char         box[BOX];
} way;

struct end {
    rcclx_net_owner   owner;
    rcclx_tcp_address address;
    int               listener, poller;
    int               nways, missing, queued; /* ways; that have not come yet; with flights */
    way             **to;   /* by rank */
    way             **ways; /* the first nways */
    flight           *unused;
    block            *blocks;
};

/* --- flights ------------------------------------------------------------------------- */

static flight *take(end *e)
{
    if (!e->unused) {
        block *b = RCCLX_NEW(block);
        if (!b)
            return NULL;
        b->next = e->blocks;
        e->blocks = b;
        for (int i = 0; i < BLOCK; i++) {
            b->flights[i].next = e->unused;
            e->unused = &b->flights[i];
        }
    }
    flight *f = e->unused;
    e->unused = f->next;
    return f;
}

static void land_first(way *w)
{
    flight *f = w->first;

    if (!(w->first = f->next)) {
        w->last = &w->first;
        w->e->queued--;
    }
    f->next = w->e->unused;
    w->e->unused = f;
}

static void watch(way *w, int how, bool out)
{
    struct epoll_event v = { .events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = w };

    epoll_ctl(w->e->poller, how, w->fd, &v);
}

static void lose(way *w, const char *why)
{
    if (w->lost)
        return;
    w->lost = true;
    while (w->first)
        land_first(w);
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
    w->e->owner.lost(w->e->owner.owner, w->rank, why);
}

static void lose_errno(way *w, int e)
{
    char text[96];

    lose(w, strerror_r(e, text, sizeof(text)));
}

/* --- sending ---------------------------------------------------------------------------- */

/* Bytes that went, of head and data together from `gone` on. */
static size_t put_out(way *w, const void *first, size_t nhead, const void *data, size_t nbytes, size_t gone)
{
    const size_t skip = gone > nhead ? gone - nhead : 0;
    struct iovec v[2];
    int n = 0;

    if (gone < nhead)
        v[n++] = (struct iovec){ (char *)(uintptr_t)first + gone, nhead - gone };
    if (nbytes > skip)
        v[n++] = (struct iovec){ (char *)(uintptr_t)data + skip, nbytes - skip };
    const struct msghdr m = { .msg_iov = v, .msg_iovlen = (size_t)n };
    const ssize_t k = n == 1 ? send(w->fd, v[0].iov_base, v[0].iov_len, MSG_DONTWAIT | MSG_NOSIGNAL)
                             : sendmsg(w->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (k >= 0)
        return (size_t)k;
    if (errno != EAGAIN && errno != EINTR)
        w->broken = errno;
    return 0;
}

static void flush(way *w)
{
    while (w->first && w->fd >= 0 && !w->broken) {
        flight *f = w->first;
        f->gone += put_out(w, &f->head, f->nhead, f->data, f->nbytes, f->gone);
        if (f->gone < f->nhead + f->nbytes)
            return;
        land_first(w);
        if (!w->first)
            watch(w, EPOLL_CTL_MOD, false);
    }
}

static void queue(way *w, const head *h, size_t nhead, const void *data, size_t nbytes, size_t gone)
{
    flight *f = take(w->e);

    if (!f) {
        lose(w, "no memory to send");
        return;
    }
    memcpy(&f->head, h, nhead);
    f->nhead = nhead;
    f->data = data;
    f->nbytes = nbytes;
    f->gone = gone;
    f->next = NULL;
    if (!w->first) {
        w->e->queued++;
        if (w->fd >= 0)
            watch(w, EPOLL_CTL_MOD, true);
    }
    *w->last = f;
    w->last = &f->next;
}

static void send_frame(void *p, int rank, const rcclx_frame *frame, const void *data, size_t nbytes)
{
    end *e = p;
    way *w = e->to[rank];
    const size_t nframe = rcclx_frame_bytes(frame), nhead = sizeof(words) + nframe;
    head h = { .words = { nbytes, nframe & 0xffff } };

    if (w->lost || w->broken)
        return;
    memcpy(&h.frame, frame, nframe);
    const size_t gone = w->first || w->fd < 0 ? 0 : put_out(w, &h, nhead, data, nbytes, 0);
    if (gone < nhead + nbytes && !w->broken)
        queue(w, &h, nhead, data, nbytes, gone);
}

/* --- receiving ------------------------------------------------------------------------------ */

/* A whole frame, and as much of its data as is in the box. */
static bool unpack(way *w, words h)
{
    const rcclx_net_owner *o = &w->e->owner;

    memset(&w->frame, 0, offsetof(rcclx_frame, inside));
    memcpy(&w->frame, w->box + w->begin + sizeof(h), h.nframe);
    w->begin += sizeof(h) + h.nframe;
    if (h.nframe != rcclx_frame_bytes(&w->frame) || w->frame.from != (uint32_t)w->rank)
        return false;
    if (!(w->to = o->place(o->owner, &w->frame, h.nbytes)))
        return false;
    const size_t here = w->end - w->begin < h.nbytes ? w->end - w->begin : h.nbytes;
    memcpy(w->to, w->box + w->begin, here);
    w->begin += here;
    w->to += here;
    w->left = h.nbytes - here;
    if (!w->left)
        o->landed(o->owner, &w->frame);
    return true;
}

/* Deal out what is in the box. */
static void unpack_all(way *w)
{
    words h;

    while (!w->left && w->end - w->begin >= sizeof(h)) {
        memcpy(&h, w->box + w->begin, sizeof(h));
        if (h.nframe < offsetof(rcclx_frame, inside) || h.nframe > sizeof(rcclx_frame)) {
            lose(w, "what it sends makes no sense; do all ranks have the same version of the library?");
            return;
        }
        if (w->end - w->begin < sizeof(h) + h.nframe)
            break;
        if (!unpack(w, h)) {
            lose(w, "what it sends makes no sense; do all ranks have the same version of the library?");
            return;
        }
    }
    if (w->begin == w->end) {
        w->begin = w->end = 0;
    } else if (w->begin) {
        memmove(w->box, w->box + w->begin, w->end - w->begin);
        w->end -= w->begin;
        w->begin = 0;
    }
}

/* Bytes that came, 0: the end, -1: nothing or an error. *room: bytes that would have fitted. */
static ssize_t get(way *w, size_t *room)
{
    struct iovec v[2] = { { w->to, w->left }, { w->box, NEXT } };
    struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };

    if (!w->left) {
        *room = BOX - w->end;
        return recv(w->fd, w->box + w->end, *room, MSG_DONTWAIT);
    }
    *room = w->left + NEXT;
    return recvmsg(w->fd, &m, MSG_DONTWAIT);
}

static void keep(way *w, size_t n)
{
    if (!w->left) {
        w->end += n;
        return;
    }
    const size_t direct = n < w->left ? n : w->left;
    w->to += direct;
    w->left -= direct;
    w->end = n - direct; /* the box was empty */
    if (!w->left)
        w->e->owner.landed(w->e->owner.owner, &w->frame);
}

static bool take_in(way *w)
{
    size_t room;
    bool moved = false;

    for (int i = 0; i < ROUNDS && w->fd >= 0; i++) {
        const ssize_t n = get(w, &room);
        if (n <= 0) {
            if (n == 0)
                lose(w, "it has closed the connection");
            else if (w->broken || (errno != EAGAIN && errno != EINTR))
                lose_errno(w, w->broken ? w->broken : errno);
            break;
        }
        moved = true;
        keep(w, (size_t)n);
        unpack_all(w);
        if ((size_t)n < room)
            break;
    }
    return moved;
}

/* --- going on --------------------------------------------------------------------------------- */

static void settle(way *w, int fd)
{
    const int on = 1;

    w->fd = fd;
    w->expected = false;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    watch(w, EPOLL_CTL_ADD, w->first != NULL);
}

static void let_in(end *e)
{
    int rank;

    for (int fd; e->missing && (fd = rcclx_tcp_accept(e->listener, &e->address, e->owner.nranks, &rank)) >= 0;) {
        way *w = e->to[rank];
        if (!w || !w->expected) {
            close(fd);
            continue;
        }
        settle(w, fd);
        e->missing--;
    }
    if (!e->missing) {
        close(e->listener); /* all are here */
        e->listener = -1;
    }
}

static bool poll_events(end *e)
{
    struct epoll_event v[EVENTS];
    const int n = epoll_wait(e->poller, v, EVENTS, 0);
    bool moved = false;

    for (int i = 0; i < n; i++)
        if (v[i].data.ptr && v[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            moved |= take_in(v[i].data.ptr);
    return moved;
}

static bool go_on(void *p)
{
    end *e = p;
    bool moved = false;

    if (e->listener >= 0)
        let_in(e);
    if (e->nways > ASKED)
        moved = poll_events(e);
    for (int i = 0; i < e->nways && e->nways <= ASKED; i++)
        moved |= e->ways[i]->fd >= 0 && take_in(e->ways[i]);
    for (int i = 0; i < e->nways && e->queued; i++)
        if (e->ways[i]->first)
            flush(e->ways[i]);
    for (int i = 0; i < e->nways; i++)
        if (e->ways[i]->broken && !e->ways[i]->lost)
            take_in(e->ways[i]);
    return moved;
}

static bool idle(void *p)
{
    return ((end *)p)->queued == 0;
}

static int arm(void *p)
{
    return ((end *)p)->poller;
}

/* --- made and taken down ------------------------------------------------------------------------ */

static rcclx_status open_end(const rcclx_net_owner *o, void **out)
{
    end *e = RCCLX_NEW(end);

    *out = e;
    if (!e)
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: no memory for the network's end", o->rank);
    e->owner = *o;
    e->listener = e->poller = -1;
    e->to = rcclx_mem_alloc(2 * (size_t)o->nranks * sizeof(*e->to));
    if (!e->to)
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: no memory for the network's end", o->rank);
    e->ways = e->to + o->nranks;
    RCCLX_TRY(rcclx_tcp_listen(o->devices, &e->address, &e->listener));
    e->poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event v = { .events = EPOLLIN };
    if (e->poller < 0 || epoll_ctl(e->poller, EPOLL_CTL_ADD, e->listener, &v))
        return RCCLX_FAIL_ERRNO("rank %d: epoll for the network", o->rank);
    RCCLX_INFO_LOG(NET, "NET/Socket : Using %d addresses, port %d", e->address.nplaces, e->address.port);
    return RCCLX_OK;
}

static rcclx_status address(void *p, void *bytes, size_t *nbytes)
{
    const end *e = p;

    _Static_assert(sizeof(e->address) <= RCCLX_NET_ADDRESS, "it fits a card");
    memcpy(bytes, &e->address, *nbytes = sizeof(e->address));
    return RCCLX_OK;
}

static rcclx_status connect_rank(void *p, int rank, const void *bytes, size_t nbytes)
{
    end *e = p;
    way *w = e->to[rank] = RCCLX_NEW(way);
    rcclx_tcp_address theirs;
    int fd = -1;

    if (!w)
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: no memory for a connection to rank %d", e->owner.rank, rank);
    *w = (way){ .e = e, .rank = rank, .fd = -1 };
    w->last = &w->first;
    e->ways[e->nways++] = w;
    if (rank > e->owner.rank) {
        w->expected = true;
        e->missing++;
        return RCCLX_OK;
    }
    if (nbytes != sizeof(theirs))
        return RCCLX_FAIL(RCCLX_SYSTEM, "rank %d: rank %d's address is not one of this library's version", e->owner.rank, rank);
    memcpy(&theirs, bytes, sizeof(theirs));
    if (rcclx_tcp_connect(&theirs, &e->address, e->owner.rank, &fd) != RCCLX_OK) {
        char why[512];
        snprintf(why, sizeof(why), "%s", rcclx_last_error());
        return RCCLX_FAIL(RCCLX_SYSTEM, "rank %d: no way to rank %d: %s; do both machines have an interface in one network "
                          "(NCCL_SOCKET_IFNAME), and does a firewall let them through?", e->owner.rank, rank, why);
    }
    settle(w, fd);
    return RCCLX_OK;
}

/* Has what was sent come to the other machine, or has that hung up, so that it never will? */
static bool delivered(const way *w)
{
    struct pollfd p = { .fd = w->fd };
    int left = 0;

    return w->fd < 0 || w->broken || (poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR)) || ioctl(w->fd, TIOCOUTQ, &left) || !left;
}

/* A connection that is closed with anything unread takes back what the other machine does not have yet. */
static void linger(const end *e, uint64_t deadline)
{
    const struct timespec nap = { 0, 100000 };

    for (int i = 0; i < e->nways; i++)
        while (!delivered(e->ways[i]) && rcclx_clock_ns() < deadline)
            nanosleep(&nap, NULL);
}

static void close_end(void *p, double seconds)
{
    end *e = p;

    if (!e)
        return;
    linger(e, rcclx_clock_ns() + (uint64_t)(seconds * 1e9));
    for (int i = 0; i < e->nways; i++) {
        if (e->ways[i]->fd >= 0)
            close(e->ways[i]->fd);
        rcclx_mem_free(e->ways[i]);
    }
    if (e->listener >= 0)
        close(e->listener);
    if (e->poller >= 0)
        close(e->poller);
    for (block *b; (b = e->blocks);) {
        e->blocks = b->next;
        rcclx_mem_free(b);
    }
    rcclx_mem_free(e->to);
    rcclx_mem_free(e);
}

extern const rcclx_network rcclx_network_socket;
const rcclx_network rcclx_network_socket = {
    .name = "Socket", .about = "TCP", .open = open_end, .address = address, .connect = connect_rank, .send = send_frame,
    .poll = go_on, .idle = idle, .arm = arm, .close = close_end,
};
