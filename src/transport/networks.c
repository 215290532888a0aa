/* The rows, best first; before them, NCCL's plug-ins. UCX pays where there is more than Ethernet and sockets; TCP of our own
 * is the faster one else, and needs nothing installed. */
#include "transport/net.h"

#include "base/log.h"
#include "transport/plugin/plugin.h"

#include <dirent.h>
#include <stdio.h>
#include <strings.h>

extern const rcclx_network rcclx_network_ucx, rcclx_network_socket, rcclx_network_ib;

const rcclx_network *const rcclx_networks[] = {
    &rcclx_network_ucx,
    &rcclx_network_socket,
    &rcclx_network_ib,
    NULL,
};

/* Cards for which there are verbs: InfiniBand, RoCE and their like. */
static bool has_verbs(void)
{
    DIR *d = opendir("/sys/class/infiniband");
    bool found = false;

    for (const struct dirent *e; d && (e = readdir(d));)
        found |= e->d_name[0] != '.';
    if (d)
        closedir(d);
    return found;
}

rcclx_status rcclx_network_find(const char *name, uint64_t id, const rcclx_network **net)
{
    char known[160] = "", why[RCCLX_PLUGIN_WORDS];
    size_t at = 0;

    if ((*net = rcclx_plugin_network_find(name, id, why)))
        return RCCLX_OK;
    if (!*name) {
        *net = has_verbs() ? &rcclx_network_ucx : &rcclx_network_socket;
        return RCCLX_OK;
    }
    for (const rcclx_network *const *n = rcclx_networks; *n; n++) {
        if (!strcasecmp(name, (*n)->name)) {
            *net = *n;
            return RCCLX_OK;
        }
        if (at < sizeof(known))
            at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", at ? ", " : "", (*n)->name);
    }
    return RCCLX_FAIL(RCCLX_USAGE, "NCCL_NET is '%s', and there is no network of that name; there are: %s%s%.700s", name, known,
                      *why ? "; plug-ins: " : "", why);
}
