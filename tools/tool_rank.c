/* Variables of a rank, and what must be settled before there are ranks. */
#include "tool_rank.h"

#include "nccl_table.h"
#include "tool.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int port_free(int port)
{
    struct sockaddr_in a  = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t          n  = sizeof(a);
    const int          fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    a.sin_addr.s_addr = htonl(INADDR_ANY);
    if (fd < 0)
        return -1;
    port = bind(fd, (struct sockaddr *)&a, n) || getsockname(fd, (struct sockaddr *)&a, &n) ? -1 : ntohs(a.sin_port);
    close(fd);
    return port;
}

int tool_rank_port(void)
{
    for (int i = 0; i < 64; i++) {
        const int port = port_free(0);

        if (port > 0 && port < 65535 && port_free(port + 1) > 0)
            return port;
    }
    return -1;
}

/* Before what is in LD_PRELOAD already: the loader takes a library of this name only once. */
int tool_rank_preload(void)
{
    char        near[PATH_MAX], real[PATH_MAX], text[2 * PATH_MAX];
    const char *others = getenv("LD_PRELOAD");

    nccl_table_own(near, sizeof(near));
    if (!realpath(near, real))
        return tool_fail("run", "--preload: %s: %s; build or install the libraries, too", near, strerror(errno));
    if (strpbrk(real, ": "))
        return tool_fail("run", "--preload: %s: LD_PRELOAD takes no path with ':' or a blank in it", real);
    snprintf(text, sizeof(text), "%s%s%s", real, others && *others ? ":" : "", others ? others : "");
    setenv("LD_PRELOAD", text, 1);
    return TOOL_OK;
}

static void set_number(const char *name, int x)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", x);
    setenv(name, text, 1);
}

int tool_rank_become(const tool_ranks *r, int local)
{
    set_number("RANK", r->first + local);
    set_number("WORLD_SIZE", r->world);
    set_number("LOCAL_RANK", local);
    set_number("LOCAL_WORLD_SIZE", r->local);
    setenv("MASTER_ADDR", r->address, 1);
    set_number("MASTER_PORT", r->port);
    setenv("RCCLX_RUN_ID", r->id, 1);
    execvp(r->argv[0], r->argv);
    const int e = errno, code = e == ENOENT ? 127 : 126;
    if (local)
        sleep(1); /* the first says it for all, who are ended meanwhile */
    if (r->host)
        tool_fail("run", "host %s: %s: %s; every host needs the program, under the same name", r->host, r->argv[0], strerror(e));
    else
        tool_fail("run", "%s: %s", r->argv[0], strerror(e));
    return code;
}
