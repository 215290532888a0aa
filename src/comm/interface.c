/* Which address to be found at. Interfaces are graded; NCCL_SOCKET_IFNAME picks
 * among them as NCCL's users know it: a list of prefixes, "=" before the list for
 * whole names, "^" for all but these.
 *
 *   grade  0 ordinary   1 link-local address   2 container or virtual bridge   3 loopback
 */
#include "comm/socket.h"

#include "base/log.h"
#include "base/option.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool usable(const struct ifaddrs *i, int family)
{
    const int f = i->ifa_addr ? i->ifa_addr->sa_family : 0;

    return (f == AF_INET || f == AF_INET6) && (!family || f == family) && (i->ifa_flags & IFF_UP) && (i->ifa_flags & IFF_RUNNING);
}

static bool link_local(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 16) == 0xa9fe;
    return IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

static int grade(const struct ifaddrs *i)
{
    static const char *const bridges[] = { "docker", "virbr", "br-", "veth", "cni", "cali", "cilium", "flannel", "kube", "lxc", "lxd",
                                           "podman", "vboxnet", "vmnet", "vnet", "weave" };

    if (i->ifa_flags & IFF_LOOPBACK)
        return 3;
    for (size_t k = 0; k < sizeof(bridges) / sizeof(*bridges); k++)
        if (!strncmp(i->ifa_name, bridges[k], strlen(bridges[k])))
            return 2;
    return link_local(i->ifa_addr) ? 1 : 0;
}

/* Does the name match the list? exact: whole names. */
static bool listed(const char *name, const char *list, bool exact)
{
    while (*list) {
        const size_t n = strcspn(list, ",");
        if (n && !strncmp(name, list, n) && (!exact || strlen(name) == n))
            return true;
        list += n + (list[n] == ',');
    }
    return false;
}

static bool wanted(const char *name, const char *rule)
{
    const bool inverted = *rule == '^';

    rule += inverted;
    const bool exact = *rule == '=';
    return !*rule || listed(name, rule + exact, exact) != inverted;
}

/* An IPv6 address that is new, and still being looked for elsewhere, cannot be used yet. */
static bool bindable(const struct sockaddr *a)
{
    const int fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_storage any_port = { 0 };
    const socklen_t size = a->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

    memcpy(&any_port, a, size);
    const bool good = fd >= 0 && bind(fd, (struct sockaddr *)&any_port, size) == 0;
    if (fd >= 0)
        close(fd);
    return good;
}

static void list_all(const struct ifaddrs *all, char *text, size_t n)
{
    size_t at = 0;

    *text = 0;
    for (const struct ifaddrs *i = all; i && at < n; i = i->ifa_next) {
        char host[INET6_ADDRSTRLEN] = "";
        const int f = i->ifa_addr ? i->ifa_addr->sa_family : 0;
        if (f != AF_INET && f != AF_INET6)
            continue;
        inet_ntop(f, f == AF_INET ? (const void *)&((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr
                                  : (const void *)&((struct sockaddr_in6 *)(void *)i->ifa_addr)->sin6_addr, host, sizeof(host));
        at += (size_t)snprintf(text + at, n - at, "%s%s (%s%s)", at ? ", " : "", i->ifa_name, host,
                               i->ifa_flags & IFF_UP ? "" : ", down");
    }
    if (!at)
        snprintf(text, n, "none");
}

static rcclx_status no_match(const char *rule, int family, const char *list)
{
    return RCCLX_FAIL(RCCLX_ARGUMENT, "NCCL_SOCKET_IFNAME is '%s' and no interface that is up%s matches; there are: %s", rule,
                      family ? " and of the family asked for" : "", list);
}

rcclx_status rcclx_interface_pick(rcclx_address *a)
{
    const char *rule = rcclx_option_str(RCCLX_OPT_SOCKET_IFNAME);
    const int64_t word = rcclx_option_int(RCCLX_OPT_SOCKET_FAMILY);
    const int family = word == 1 ? AF_INET : word == 2 ? AF_INET6 : 0;
    struct ifaddrs *all = NULL;
    const struct ifaddrs *best = NULL;
    char list[512], text[80];

    memset(a, 0, sizeof(*a));
    if (getifaddrs(&all))
        return RCCLX_AGAIN;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next)
        if (usable(i, family) && wanted(i->ifa_name, rule) && (!best || grade(i) < grade(best)) && bindable(i->ifa_addr))
            best = i;
    rcclx_status s = RCCLX_OK;
    if (best) {
        memcpy(&a->room, best->ifa_addr, best->ifa_addr->sa_family == AF_INET ? sizeof(a->v4) : sizeof(a->v6));
        rcclx_address_text(a, text, sizeof(text));
        RCCLX_INFO_LOG(BOOTSTRAP, "Bootstrap: Using %s:%s", best->ifa_name, text);
    } else if (*rule) {
        list_all(all, list, sizeof(list));
        s = no_match(rule, family, list);
    } else {
        s = RCCLX_AGAIN;
    }
    freeifaddrs(all);
    return s;
}

uint32_t rcclx_interface_scope(int turn)
{
    const char *rule = rcclx_option_str(RCCLX_OPT_SOCKET_IFNAME);
    struct ifaddrs *all = NULL;
    uint32_t scopes[64] = { 0 };
    int n = 0;

    if (getifaddrs(&all))
        return 0;
    for (const struct ifaddrs *i = all; i && n < 64; i = i->ifa_next)
        if (usable(i, AF_INET6) && wanted(i->ifa_name, rule) && link_local(i->ifa_addr) && grade(i) < 2)
            scopes[n++] = ((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_scope_id;
    freeifaddrs(all);
    return n ? scopes[turn % n] : 0;
}

/* InfiniBand and RoCE devices are not sockets: the variable says nothing of them. */
static size_t add_ib(char *names, size_t at, size_t n)
{
    DIR *d = opendir("/sys/class/infiniband");

    for (const struct dirent *e; d && at < n && (e = readdir(d));)
        if (e->d_name[0] != '.')
            at += (size_t)snprintf(names + at, n - at, "%s%s:1", at ? "," : "", e->d_name);
    if (d)
        closedir(d);
    return at;
}

/* Without a rule all ordinary interfaces, so that nobody looks for a peer on a bridge of containers, whose address every
 * machine may have; "", if there are no such bridges, or nothing else. */
static void names_by_grade(const struct ifaddrs *all, char *names, size_t n)
{
    bool bridges = false;
    size_t at = 0;

    for (const struct ifaddrs *i = all; i && at < n; i = i->ifa_next) {
        if (!usable(i, 0))
            continue;
        bridges |= grade(i) == 2;
        if (grade(i) < 2 && !listed(i->ifa_name, names, true))
            at += (size_t)snprintf(names + at, n - at, "%s%s", at ? "," : "", i->ifa_name);
    }
    if (!at || !bridges || add_ib(names, at, n) >= n)
        *names = 0;
}

static rcclx_status names_by_rule(const struct ifaddrs *all, const char *rule, char *names, size_t n)
{
    const int64_t word = rcclx_option_int(RCCLX_OPT_SOCKET_FAMILY);
    const int family = word == 1 ? AF_INET : word == 2 ? AF_INET6 : 0;
    char list[512];
    size_t at = 0;

    for (const struct ifaddrs *i = all; i && at < n; i = i->ifa_next)
        if (usable(i, family) && wanted(i->ifa_name, rule) && !listed(i->ifa_name, names, true))
            at += (size_t)snprintf(names + at, n - at, "%s%s", at ? "," : "", i->ifa_name);
    if (!at) {
        list_all(all, list, sizeof(list));
        return no_match(rule, family, list);
    }
    return add_ib(names, at, n) < n ? RCCLX_OK
                                    : RCCLX_FAIL(RCCLX_ARGUMENT, "NCCL_SOCKET_IFNAME allows more interfaces than %zu characters can "
                                                 "name; name fewer", n);
}

rcclx_status rcclx_interface_names(char *names, size_t n)
{
    const char *rule = rcclx_option_str(RCCLX_OPT_SOCKET_IFNAME);
    struct ifaddrs *all = NULL;
    rcclx_status s = RCCLX_OK;

    *names = 0;
    if (getifaddrs(&all))
        return RCCLX_OK;
    if (*rule)
        s = names_by_rule(all, rule, names, n);
    else
        names_by_grade(all, names, n);
    freeifaddrs(all);
    return s;
}
