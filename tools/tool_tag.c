/* Lines of several ranks on one terminal: a line goes out in one write, so that
 * lines never mix, whatever the ranks do. */
#include "tool_tag.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static void write_all(int fd, const char *p, size_t n)
{
    while (n) {
        const ssize_t k = write(fd, p, n);

        if (k < 0 && errno != EINTR && errno != EAGAIN)
            return;
        if (k > 0) {
            p += k;
            n -= (size_t)k;
        }
    }
}

static void put_line(tool_tag *t, size_t length)
{
    const bool   whole = length && t->line[length - 1] == '\n';
    const size_t n     = strlen(t->prefix);
    char         out[sizeof(t->prefix) + sizeof(t->line) + 1];

    memcpy(out, t->prefix, n);
    memcpy(out + n, t->line, length);
    if (whole && t->take) {
        out[n + length - 1] = 0;
        if (t->take(t->arg, t->rank, out + n))
            return;
        out[n + length - 1] = '\n';
    }
    if (!whole && !t->raw)
        out[n + length++] = '\n';
    write_all(t->to, out, n + length);
}

static void put_lines(tool_tag *t)
{
    char *end;

    while ((end = memchr(t->line, '\n', t->used))) {
        const size_t length = (size_t)(end - t->line) + 1;

        put_line(t, length);
        t->used -= length;
        memmove(t->line, end + 1, t->used);
    }
    if (t->used == sizeof(t->line)) {
        put_line(t, t->used);
        t->used = 0;
    }
}

void tool_tag_pump(tool_tag *t)
{
    while (t->fd >= 0) {
        const ssize_t k = read(t->fd, t->line + t->used, sizeof(t->line) - t->used);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno == EAGAIN)
            return;
        if (k <= 0) {
            if (t->used)
                put_line(t, t->used);
            t->used = 0;
            close(t->fd);
            t->fd = -1;
            return;
        }
        t->used += (size_t)k;
        put_lines(t);
    }
}

void tool_tag_close(tool_tag *t)
{
    tool_tag_pump(t);
    if (t->fd < 0)
        return;
    if (t->used)
        put_line(t, t->used);
    close(t->fd);
    t->fd = -1;
}
