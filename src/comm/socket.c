/* Sockets for the bootstrap: a few hundred bytes a rank, once. */
#include "comm/socket.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/option.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FDS = 128 };

socklen_t rcclx_address_size(const rcclx_address *a)
{
    return a->any.sa_family == AF_INET ? sizeof(a->v4) : sizeof(a->v6);
}

bool rcclx_address_is_loopback(const rcclx_address *a)
{
    return a->any.sa_family == AF_INET ? ntohl(a->v4.sin_addr.s_addr) >> 24 == 127 : IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
}

void rcclx_address_text(const rcclx_address *a, char *text, size_t n)
{
    char host[INET6_ADDRSTRLEN] = "?";
    const bool v4 = a->any.sa_family == AF_INET;

    inet_ntop(a->any.sa_family, v4 ? (const void *)&a->v4.sin_addr : (const void *)&a->v6.sin6_addr, host, sizeof(host));
    snprintf(text, n, v4 ? "%s:%u" : "[%s]:%u", host, ntohs(v4 ? a->v4.sin_port : a->v6.sin6_port));
}

rcclx_status rcclx_address_parse(rcclx_address *a, const char *host_port)
{
    char host[256];
    const char *colon = strrchr(host_port, ':');
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;

    memset(a, 0, sizeof(*a));
    if (!colon || colon == host_port || (size_t)(colon - host_port) >= sizeof(host))
        return RCCLX_FAIL(RCCLX_ARGUMENT, "'%s' is no address; write host:port or [address]:port", host_port);
    const bool bracket = host_port[0] == '[' && colon[-1] == ']';
    const size_t n = (size_t)(colon - host_port) - (bracket ? 2 : 0);
    memcpy(host, host_port + bracket, n);
    host[n] = 0;
    const int e = getaddrinfo(host, colon + 1, &hints, &found);
    if (e || !found)
        return RCCLX_FAIL(RCCLX_SYSTEM, "host '%s' of '%s' cannot be resolved: %s; give an address of the machine rank 0 runs on",
                          host, host_port, gai_strerror(e));
    memcpy(&a->room, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return RCCLX_OK;
}

static int make(int family)
{
    return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static rcclx_status port_range(int *first, int *last)
{
    const char *text = rcclx_option_str(RCCLX_OPT_PORT_RANGE);
    char *end;

    *first = *last = 0;
    if (!*text)
        return RCCLX_OK;
    *first = *last = (int)strtol(text, &end, 10);
    if (*end == '-')
        *last = (int)strtol(end + 1, &end, 10);
    if (*end || *first < 1 || *last < *first || *last > 65535)
        return RCCLX_FAIL(RCCLX_ARGUMENT, "RCCLX_PORT_RANGE is '%s'; write first-last within 1-65535", text);
    return RCCLX_OK;
}

/* Taken, but not for long: the root of an earlier communicator at the same place may just be leaving. */
static bool try_again(int e, uint64_t deadline)
{
    const struct timespec nap = { 0, 5000000 };

    if (e != EADDRINUSE || rcclx_clock_ns() >= deadline)
        return false;
    nanosleep(&nap, NULL);
    return true;
}

static uint64_t after(double seconds)
{
    return rcclx_clock_ns() + (uint64_t)(seconds * 1e9);
}

static const char *advice(int e)
{
    return e == EADDRINUSE      ? "; another program listens there (ss -ltnp names it): take another MASTER_PORT, NCCL_COMM_ID or "
                                  "RCCLX_PORT_RANGE"
           : e == EADDRNOTAVAIL ? "; this machine has no such address: MASTER_ADDR or NCCL_COMM_ID must name the one that rank 0 runs on"
           : e == EACCES        ? "; take a port from 1024 on"
                                : "";
}

rcclx_status rcclx_listen_tcp(rcclx_address *a, double patience, int *out)
{
    in_port_t *port = a->any.sa_family == AF_INET ? &a->v4.sin_port : &a->v6.sin6_port;
    int first, last, e = 0;
    const uint64_t deadline = after(patience);
    const int one = 1;
    char text[80];

    RCCLX_TRY(port_range(&first, &last));
    if (*port)
        first = last = ntohs(*port);
    for (int p = first; p <= last; p = p == last && try_again(e, deadline) ? first : p + 1) {
        const int fd = make(a->any.sa_family);
        socklen_t size = sizeof(a->room);
        *port = htons((uint16_t)p);
        if (fd < 0)
            return RCCLX_FAIL_ERRNO("a TCP socket for the bootstrap");
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        if (bind(fd, &a->any, rcclx_address_size(a)) == 0 && listen(fd, 512) == 0 && getsockname(fd, &a->any, &size) == 0) {
            *out = fd;
            return RCCLX_OK;
        }
        e = errno;
        close(fd);
    }
    rcclx_address_text(a, text, sizeof(text));
    return RCCLX_FAIL(RCCLX_SYSTEM, "the bootstrap cannot listen at %s (ports %d-%d): %s%s", text, first, last, strerror(e), advice(e));
}

static socklen_t unix_name(struct sockaddr_un *u, const char *name)
{
    memset(u, 0, sizeof(*u));
    u->sun_family = AF_UNIX;
    /* a leading zero: a name of the network namespace, not of the file system */
    snprintf(u->sun_path + 1, sizeof(u->sun_path) - 1, "%s", name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

rcclx_status rcclx_listen_unix(const char *name, double patience, int *out)
{
    const uint64_t deadline = after(patience);
    struct sockaddr_un u;
    const socklen_t size = unix_name(&u, name);
    const int fd = make(AF_UNIX);

    if (fd < 0)
        return RCCLX_FAIL_ERRNO("a Unix socket for the bootstrap");
    int bad;
    while ((bad = bind(fd, (struct sockaddr *)&u, size)) && try_again(errno, deadline))
        ;
    if (bad || listen(fd, 512)) {
        const int e = errno;
        close(fd);
        return RCCLX_FAIL(RCCLX_SYSTEM, "the bootstrap cannot listen at the Unix socket @%s: %s", name, strerror(e));
    }
    *out = fd;
    return RCCLX_OK;
}

int rcclx_connect_unix(const char *name)
{
    struct sockaddr_un u;
    const socklen_t size = unix_name(&u, name);
    const int fd = make(AF_UNIX);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&u, size)) {
        const int e = errno;
        close(fd);
        errno = e;
        return -1;
    }
    return fd;
}

int rcclx_connect_tcp(const rcclx_address *a, int timeout_ms)
{
    const int fd = make(a->any.sa_family), one = 1;
    int e = 0;
    socklen_t size = sizeof(e);

    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(fd, &a->any, rcclx_address_size(a)))
        e = errno;
    if (e == EINPROGRESS) {
        struct pollfd p = { .fd = fd, .events = POLLOUT };
        if (poll(&p, 1, timeout_ms) != 1)
            e = ETIMEDOUT;
        else
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &size);
    }
    if (!e)
        return fd;
    close(fd);
    errno = e;
    return -1;
}

int rcclx_send_all(int fd, const void *buf, size_t n, const int *fds, int nfds, int timeout_ms)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * MAX_FDS)] = { 0 };

    for (size_t sent = 0; sent < n;) {
        struct iovec part = { (char *)(uintptr_t)buf + sent, n - sent };
        struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1 };
        if (nfds && !sent) {
            m.msg_control = control;
            m.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)nfds);
            struct cmsghdr *c = CMSG_FIRSTHDR(&m);
            c->cmsg_level = SOL_SOCKET;
            c->cmsg_type = SCM_RIGHTS;
            c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)nfds);
            memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)nfds);
        }
        const ssize_t k = sendmsg(fd, &m, MSG_NOSIGNAL);
        if (k > 0) {
            sent += (size_t)k;
            continue;
        }
        struct pollfd p = { .fd = fd, .events = POLLOUT };
        if (k < 0 && errno != EAGAIN && errno != EINTR)
            return -1;
        if (poll(&p, 1, timeout_ms) == 0) {
            errno = ETIMEDOUT;
            return -1;
        }
    }
    return 0;
}

static void take_handles(struct msghdr *m, int *fds, int room, int *nfds)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        const int k = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (int i = 0; i < k; i++) {
            int got;
            memcpy(&got, CMSG_DATA(c) + sizeof(int) * (size_t)i, sizeof(got));
            if (*nfds < room)
                fds[(*nfds)++] = got;
            else
                close(got); /* nobody asked for these */
        }
    }
}

ssize_t rcclx_recv_some(int fd, void *buf, size_t n, int *fds, int *nfds)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * MAX_FDS)];
    struct iovec part = { buf, n };
    struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
    const int room = *nfds;

    *nfds = 0;
    const ssize_t k = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
    if (k < 0)
        return -1;
    take_handles(&m, fds, room, nfds);
    if (m.msg_flags & MSG_CTRUNC) {
        for (int i = 0; i < *nfds; i++)
            close(fds[i]);
        *nfds = 0;
        errno = EMFILE;
        return -1;
    }
    return k;
}
