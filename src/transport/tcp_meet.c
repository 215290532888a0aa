/* Meeting of TCP ends. See tcp_meet.h.
 *
 *   rank 0   listens      places: 10.77.0.1, 10.78.0.1, port, nonce -> (by the bootstrap) -> all
 *   rank 3   places in a network of mine first: connect, "nonce, I am 3"
 *   rank 0   accepts once the words are there; a wrong nonce is hung up on
 *
 * Connecting does not need the other to accept, for the kernel answers. So nobody waits for anybody who is slow.
 * An address that holds on a link only (fe80::) is tried on each of the links that are here. */
#include "transport/tcp_meet.h"

#include "base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECT_MS = 5000, BACKLOG = 1024, DEFER_S = 20 };

/* The first words of a connection. */
typedef struct {
    uint64_t nonce[2], rank;
} hello;

/* --- places ------------------------------------------------------------------------- */

static bool named(const char *devices, const char *name)
{
    const size_t n = strlen(name);

    for (const char *at = devices; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == n && !strncmp(at, name, n))
            return true;
    return !*devices;
}

static int bits_of(const void *mask, size_t n)
{
    int bits = 0;

    for (size_t i = 0; i < n; i++)
        bits += __builtin_popcount(((const unsigned char *)mask)[i]);
    return bits;
}

/* Of a network, of a link, of this machine alone. */
typedef enum { NETWORK, LINK, HERE } reach;

static reach reach_of(const struct ifaddrs *i)
{
    const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)(const void *)i->ifa_addr;

    if (i->ifa_flags & IFF_LOOPBACK)
        return HERE;
    return i->ifa_addr->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&a->sin6_addr) ? LINK : NETWORK;
}

static bool usable(const struct ifaddrs *i, const char *devices)
{
    return i->ifa_addr && i->ifa_netmask && i->ifa_flags & IFF_UP && named(devices, i->ifa_name) &&
           (i->ifa_addr->sa_family == AF_INET6 || i->ifa_addr->sa_family == AF_INET);
}

static void add_places(rcclx_tcp_address *a, const struct ifaddrs *list, const char *devices, reach of)
{
    for (const struct ifaddrs *i = list; i && a->nplaces < RCCLX_TCP_PLACES; i = i->ifa_next) {
        if (!usable(i, devices) || reach_of(i) != of)
            continue;
        rcclx_tcp_place *p = &a->places[a->nplaces++];
        p->v6 = i->ifa_addr->sa_family == AF_INET6;
        const size_t n = p->v6 ? 16 : 4;
        const size_t at = p->v6 ? offsetof(struct sockaddr_in6, sin6_addr) : offsetof(struct sockaddr_in, sin_addr);
        memcpy(p->bytes, (const char *)i->ifa_addr + at, n);
        p->prefix = (uint16_t)bits_of((const char *)i->ifa_netmask + at, n);
    }
}

static rcclx_status find_places(rcclx_tcp_address *a, const char *devices)
{
    struct ifaddrs *list;

    if (getifaddrs(&list))
        return RCCLX_FAIL_ERRNO("listing the network interfaces");
    add_places(a, list, devices, NETWORK);
    add_places(a, list, devices, LINK);
    if (!a->nplaces || *devices) /* ranks of one machine that play several; or it was asked for */
        add_places(a, list, devices, HERE);
    freeifaddrs(list);
    return a->nplaces ? RCCLX_OK : RCCLX_FAIL(RCCLX_SYSTEM, "no network interface with an address is up%s%s; see NCCL_SOCKET_IFNAME",
                                              *devices ? " of " : "", devices);
}

static bool one_network(const rcclx_tcp_place *a, const rcclx_tcp_place *b)
{
    const int whole = a->prefix / 8, rest = a->prefix % 8;

    return a->v6 == b->v6 && a->prefix == b->prefix && !memcmp(a->bytes, b->bytes, (size_t)whole) &&
           (!rest || (a->bytes[whole] ^ b->bytes[whole]) >> (8 - rest) == 0);
}

static bool close_by(const rcclx_tcp_place *p, const rcclx_tcp_address *mine)
{
    for (int i = 0; i < mine->nplaces; i++)
        if (one_network(p, &mine->places[i]))
            return true;
    return false;
}

static socklen_t socket_address(const rcclx_tcp_place *p, uint16_t port, uint32_t scope, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof(*out));
    if (p->v6) {
        struct sockaddr_in6 *a = (struct sockaddr_in6 *)out;
        a->sin6_family = AF_INET6;
        a->sin6_port = htons(port);
        a->sin6_scope_id = scope;
        memcpy(&a->sin6_addr, p->bytes, 16);
        return sizeof(*a);
    }
    struct sockaddr_in *a = (struct sockaddr_in *)out;
    a->sin_family = AF_INET;
    a->sin_port = htons(port);
    memcpy(&a->sin_addr, p->bytes, 4);
    return sizeof(*a);
}

/* --- listening ------------------------------------------------------------------------ */

static int listen_on(int family, uint16_t *port)
{
    const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), off = 0, defer = DEFER_S;
    struct sockaddr_storage a = { .ss_family = (sa_family_t)family };
    socklen_t n = family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

    if (fd < 0)
        return -1;
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &defer, sizeof(defer)); /* who is accepted has said his words */
    if (bind(fd, (struct sockaddr *)&a, n) || listen(fd, BACKLOG) || getsockname(fd, (struct sockaddr *)&a, &n)) {
        close(fd);
        return -1;
    }
    *port = ntohs(family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port : ((struct sockaddr_in *)&a)->sin_port);
    return fd;
}

rcclx_status rcclx_tcp_listen(const char *devices, rcclx_tcp_address *a, int *fd)
{
    memset(a, 0, sizeof(*a));
    if (getrandom(a->nonce, sizeof(a->nonce), 0) != (ssize_t)sizeof(a->nonce))
        return RCCLX_FAIL_ERRNO("random numbers");
    RCCLX_TRY(find_places(a, devices));
    if ((*fd = listen_on(AF_INET6, &a->port)) < 0)
        *fd = listen_on(AF_INET, &a->port);
    return *fd >= 0 ? RCCLX_OK : RCCLX_FAIL_ERRNO("a socket that listens for other machines");
}

int rcclx_tcp_accept(int listener, const rcclx_tcp_address *mine, int nranks, int *rank)
{
    hello h;

    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0; close(fd)) {
        if (recv(fd, &h, sizeof(h), MSG_DONTWAIT) != (ssize_t)sizeof(h) || memcmp(h.nonce, mine->nonce, sizeof(h.nonce)) ||
            h.rank >= (uint64_t)nranks)
            continue;
        *rank = (int)h.rank;
        return fd;
    }
    return -1;
}

/* --- connecting ------------------------------------------------------------------------ */

/* 0, or an errno. scope: which link, for an address of one. */
static int connect_on(const rcclx_tcp_place *p, uint16_t port, uint32_t scope, int *out)
{
    struct sockaddr_storage a;
    const socklen_t n = socket_address(p, port, scope, &a);
    const int fd = socket(a.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int e = 0;
    socklen_t ne = sizeof(e);

    if (fd < 0)
        return errno;
    if (connect(fd, (struct sockaddr *)&a, n)) {
        struct pollfd w = { .fd = fd, .events = POLLOUT };
        if (errno != EINPROGRESS)
            e = errno;
        else if (poll(&w, 1, CONNECT_MS) != 1)
            e = ETIMEDOUT;
        else
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &ne);
    }
    if (e)
        close(fd);
    else
        *out = fd;
    return e;
}

static bool is_of_link(const rcclx_tcp_place *p)
{
    return p->v6 && p->bytes[0] == 0xfe && (p->bytes[1] & 0xc0) == 0x80;
}

static int connect_to(const rcclx_tcp_place *p, uint16_t port, int *out)
{
    struct ifaddrs *list;
    int e = ENETUNREACH;

    if (!is_of_link(p))
        return connect_on(p, port, 0, out);
    if (getifaddrs(&list))
        return errno;
    for (const struct ifaddrs *i = list; i && e; i = i->ifa_next)
        if (usable(i, "") && reach_of(i) == LINK)
            e = connect_on(p, port, ((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_scope_id, out);
    freeifaddrs(list);
    return e;
}

static size_t add_reason(const rcclx_tcp_place *p, uint16_t port, int e, char *why, size_t n, size_t at)
{
    char text[INET6_ADDRSTRLEN] = "?", words[96] = "";

    inet_ntop(p->v6 ? AF_INET6 : AF_INET, p->bytes, text, sizeof(text));
    const char *said = strerror_r(e, words, sizeof(words));
    return at < n ? at + (size_t)snprintf(why + at, n - at, "%s%s port %u: %s", at ? "; " : "", text, port, said) : at;
}

rcclx_status rcclx_tcp_connect(const rcclx_tcp_address *to, const rcclx_tcp_address *mine, int me, int *fd)
{
    const hello h = { { to->nonce[0], to->nonce[1] }, (uint64_t)me };
    char why[400] = "it has no address";
    size_t at = 0;

    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < to->nplaces && i < RCCLX_TCP_PLACES; i++) {
            if (close_by(&to->places[i], mine) != (pass == 0))
                continue;
            int e = connect_to(&to->places[i], to->port, fd);
            if (!e && send(*fd, &h, sizeof(h), MSG_NOSIGNAL) == (ssize_t)sizeof(h))
                return RCCLX_OK;
            if (!e) {
                e = errno;
                close(*fd);
            }
            *fd = -1;
            at = add_reason(&to->places[i], to->port, e, why, sizeof(why), at);
        }
    return RCCLX_FAIL(RCCLX_SYSTEM, "%s", why);
}
