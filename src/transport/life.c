/* Is a process still alive? A pidfd becomes readable when it ends, cannot be
 * mistaken for a later process of the same number, and costs one file handle; so
 * all communicators of this process that watch the same peer share one. */
#include "transport/transport.h"

#include "base/mem.h"
#include "base/process.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct life {
    struct life *next;
    int pid, fd, uses; /* guarded by the process's lock */
} life;

static int open_pidfd(int pid)
{
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, pid, 0);
#else
    (void)pid;
    return -1;
#endif
}

bool rcclx_life_dead(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    return fd >= 0 && poll(&p, 1, 0) == 1;
}

static life *start_watching(rcclx_process_state *p, int pid)
{
    life *l = RCCLX_NEW(life);

    if (!l)
        return NULL;
    *l = (life){ .next = p->lives, .pid = pid, .fd = open_pidfd(pid) };
    if (l->fd < 0) {
        rcclx_mem_free(l);
        return NULL;
    }
    p->lives = l;
    return l;
}

int rcclx_life_open(int pid)
{
    rcclx_process_state *p = rcclx_process();

    pthread_mutex_lock(&p->lock);
    life *l = p->lives;
    while (l && (l->pid != pid || rcclx_life_dead(l->fd))) /* a dead one's number may belong to another by now */
        l = l->next;
    if (!l)
        l = start_watching(p, pid);
    if (l)
        l->uses++;
    const int fd = l ? l->fd : -1;
    pthread_mutex_unlock(&p->lock);
    return fd;
}

void rcclx_life_close(int fd)
{
    rcclx_process_state *p = rcclx_process();

    if (fd < 0)
        return;
    pthread_mutex_lock(&p->lock);
    life **at = (life **)&p->lives;
    while (*at && (*at)->fd != fd)
        at = &(*at)->next;
    life *l = *at;
    if (l && --l->uses == 0) {
        *at = l->next;
        close(l->fd);
        rcclx_mem_free(l);
    }
    pthread_mutex_unlock(&p->lock);
}
