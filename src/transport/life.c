/* Is a process still alive? A pidfd becomes readable when it ends, cannot be
 * mistaken for a later process of the same number, and costs one file handle. */
#include "transport/transport.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

int rcclx_life_open(int pid)
{
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, pid, 0);
#else
    (void)pid;
    return -1;
#endif
}

bool rcclx_life_dead(int life)
{
    struct pollfd p = { .fd = life, .events = POLLIN };

    return life >= 0 && poll(&p, 1, 0) == 1;
}

void rcclx_life_close(int life)
{
    if (life >= 0)
        close(life);
}
