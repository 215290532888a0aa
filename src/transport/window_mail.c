/* Letters between the ranks: datagrams on an abstract Unix socket a rank, since a
 * file descriptor has no other way into a process.
 *
 *   "\0rcclx-<hash of the token>-<rank>"
 *
 * Everybody sees the name and may write to it; only ranks know the token, which
 * the name does not give away. What lacks it is dropped without a word. */
#include "transport/window_state.h"

#include "base/log.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PATIENCE = 64 /* strangers' letters read in a row */ };

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static socklen_t name(const rcclx_windows *w, int rank, struct sockaddr_un *a)
{
    const uint64_t hash = mix(mix(w->token[0]) + w->token[1]);

    *a = (struct sockaddr_un){ .sun_family = AF_UNIX };
    const int n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "rcclx-%016llx-%d", (unsigned long long)hash, rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

rcclx_status rcclx_window_listen(rcclx_windows *w)
{
    struct sockaddr_un a;
    const socklen_t n = name(w, w->rank, &a);

    w->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (w->fd < 0)
        return RCCLX_FAIL_ERRNO("rank %d of %d: init: a socket to share device memory", w->rank, w->nranks);
    if (bind(w->fd, (struct sockaddr *)&a, n))
        return RCCLX_FAIL_ERRNO("rank %d of %d: init: naming the socket to share device memory (%s)", w->rank, w->nranks,
                                a.sun_path + 1);
    return RCCLX_OK;
}

typedef union {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
} control;

static rcclx_status failed(const rcclx_windows *w, int peer)
{
    switch (errno) {
    case EAGAIN: case ENOBUFS: case ENOMEM: case EINTR: case ETOOMANYREFS:
        return RCCLX_AGAIN;
    case ECONNREFUSED: case ENOENT: case ECONNRESET:
        return RCCLX_PEER_LOST;
    default:
        return RCCLX_FAIL_ERRNO("rank %d of %d: telling rank %d of device memory; is sending file descriptors over Unix "
                                "sockets forbidden here?", w->rank, w->nranks, peer);
    }
}

rcclx_status rcclx_window_post(const rcclx_windows *w, int peer, rcclx_letter *l, int fd)
{
    struct sockaddr_un a;
    struct iovec part = { l, sizeof(*l) };
    control c = { 0 };
    struct msghdr m = { .msg_name = &a, .msg_namelen = name(w, peer, &a), .msg_iov = &part, .msg_iovlen = 1 };

    l->magic = RCCLX_LETTER_MAGIC;
    memcpy(l->token, w->token, sizeof(l->token));
    l->from = (uint32_t)w->rank;
    if (fd >= 0) {
        m.msg_control = &c;
        m.msg_controllen = sizeof(c);
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        *h = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int)) };
        memcpy(CMSG_DATA(h), &fd, sizeof(fd));
    }
    return sendmsg(w->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(*l) ? RCCLX_OK : failed(w, peer);
}

/* The room is for one, but its padding may hold a second. */
static int first_fd(struct msghdr *m)
{
    int first = -1;

    for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
        const bool files = h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS;
        const size_t n = files ? (h->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(h) + i * sizeof(fd), sizeof(fd));
            if (first < 0)
                first = fd;
            else
                close(fd);
        }
    }
    return first;
}

static bool ours(const rcclx_windows *w, const rcclx_letter *l, ssize_t n, int flags)
{
    return n == (ssize_t)sizeof(*l) && !(flags & MSG_TRUNC) && l->magic == RCCLX_LETTER_MAGIC && l->token[0] == w->token[0] &&
           l->token[1] == w->token[1] && l->from < (uint32_t)w->nranks && l->index < GP_REGS;
}

rcclx_status rcclx_window_receive(const rcclx_windows *w, rcclx_letter *l, int *fd)
{
    for (int strangers = 0; strangers < PATIENCE; strangers++) {
        struct iovec part = { l, sizeof(*l) };
        control c;
        struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c) };
        const ssize_t n = recvmsg(w->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n < 0)
            return RCCLX_AGAIN;
        *fd = first_fd(&m);
        if (ours(w, l, n, m.msg_flags))
            return RCCLX_OK;
        if (*fd >= 0)
            close(*fd);
    }
    return RCCLX_AGAIN;
}
