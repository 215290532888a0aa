/* The guardian.
 *
 *      launcher ------ pipe ------ guardian
 *       |  |  |  numbers of groups    |  when the pipe closes with groups left,
 *       ranks, a group each <---------'  the launcher was killed: it kills them */
#include "tool_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void guard(int fd, int n)
{
    pid_t *groups = calloc((size_t)n, sizeof(*groups));
    int    known  = 0;
    pid_t  word;

    while (groups && read(fd, &word, sizeof(word)) == (ssize_t)sizeof(word)) {
        if (word > 0 && known < n)
            groups[known++] = word;
        for (int i = 0; word < 0 && i < known; i++)
            if (groups[i] == -word)
                groups[i--] = groups[--known];
    }
    for (int i = 0; i < known; i++)
        kill(-groups[i], SIGKILL);
    _exit(0);
}

int tool_guard_start(tool_guard *g, int n)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC))
        return -1;
    g->pid = fork();
    if (g->pid < 0) {
        close(fds[0]);
        close(fds[1]);
        return -1;
    }
    if (!g->pid) {
        setpgid(0, 0); /* signals stay blocked here, so a Ctrl-C passes by */
        prctl(PR_SET_NAME, "rcclx guardian");
        close(fds[1]);
        guard(fds[0], n);
    }
    close(fds[0]);
    g->fd = fds[1];
    return 0;
}

void tool_guard_tell(const tool_guard *g, pid_t word)
{
    while (g->fd >= 0 && write(g->fd, &word, sizeof(word)) < 0 && errno == EINTR)
        continue;
}

void tool_guard_leave(const tool_guard *g)
{
    if (g->fd >= 0)
        close(g->fd);
}

void tool_guard_stop(tool_guard *g)
{
    if (g->fd >= 0)
        close(g->fd);
    g->fd = -1;
    if (g->pid > 0)
        waitpid(g->pid, NULL, 0);
}
