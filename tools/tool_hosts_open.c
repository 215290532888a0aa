/* --hosts: is it a file or a list? And what is wrong with it, in words. */
#include "tool.h"
#include "tool_hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int read_file(tool_hosts *h, const char *name)
{
    static char  text[1 << 20];
    char         why[512];
    int          line = 0;
    const int    fd   = open(name, O_RDONLY | O_CLOEXEC);
    size_t       size = 0;
    ssize_t      k    = -1;

    while (fd >= 0 && size < sizeof(text) && (k = read(fd, text + size, sizeof(text) - size)) > 0)
        size += (size_t)k;
    const int e = errno;
    if (fd >= 0)
        close(fd);
    if (k < 0)
        return tool_usage("run", "host file %s: %s", name, strerror(e));
    if (size == sizeof(text))
        return tool_usage("run", "host file %s: it is longer than 1 MiB", name);
    if (tool_hosts_file(h, text, size, &line, why, sizeof(why)))
        return tool_usage("run", "host file %s, line %d: %s", name, line, why);
    return TOOL_OK;
}

int tool_hosts_open(tool_hosts *h, const char *text)
{
    char why[512];

    if (!*text)
        return tool_usage("run", "--hosts needs a file, or host:slots,host:slots");
    if (strchr(text, '/') || !access(text, F_OK))
        return read_file(h, text);
    if (tool_hosts_list(h, text, why, sizeof(why)))
        return tool_usage("run", "--hosts %.200s: %s; and there is no file of that name", text, why);
    return TOOL_OK;
}
