/* Ranks are siblings, and what the kernel grants a parent it may refuse a
 * sibling (Yama), so two children are made and one reads the other. */
#include "tool_probe.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MARK = 0x5ca1ab1e };

static volatile int mark;

static int read_sibling(pid_t pid)
{
    int          copy = 0;
    struct iovec here = {&copy, sizeof(copy)}, there = {(void *)(uintptr_t)&mark, sizeof(mark)};

    if (process_vm_readv(pid, &here, 1, &there, 1, 0) != (ssize_t)sizeof(copy))
        return errno ? errno : EIO;
    return copy == MARK ? 0 : EIO;
}

/* A child that has set its mark when the pipe says so, and waits to be killed. */
static pid_t start_sibling(void)
{
    int   fds[2];
    char  byte;
    pid_t pid;

    if (pipe(fds))
        return -1;
    pid = fork();
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        mark = MARK;
        if (write(fds[1], "", 1) == 1)
            pause();
        _exit(1);
    }
    close(fds[1]);
    if (pid > 0 && read(fds[0], &byte, 1) != 1) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        pid = -1;
    }
    close(fds[0]);
    return pid;
}

tool_probe tool_probe_cma(void)
{
    tool_probe  p       = {.works = false};
    const pid_t sibling = start_sibling(), reader = sibling > 0 ? fork() : -1;
    int         status  = 0;

    if (!reader)
        _exit(read_sibling(sibling));
    if (reader < 0 || waitpid(reader, &status, 0) != reader || !WIFEXITED(status)) {
        snprintf(p.why, sizeof(p.why), "could not be tried: %s", strerror(errno));
    } else {
        p.works = WEXITSTATUS(status) == 0;
        snprintf(p.why, sizeof(p.why), "process_vm_readv between siblings: %s",
                 p.works ? "works" : strerror(WEXITSTATUS(status)));
    }
    if (sibling > 0) {
        kill(sibling, SIGKILL);
        waitpid(sibling, NULL, 0);
    }
    return p;
}

tool_probe tool_probe_memfd(void)
{
    tool_probe p  = {.works = false};
    const int  fd = memfd_create("rcclx info", MFD_CLOEXEC);
    void      *m;

    if (fd < 0 || ftruncate(fd, 4096)) {
        snprintf(p.why, sizeof(p.why), "memfd_create: %s", strerror(errno));
    } else {
        m       = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        p.works = m != MAP_FAILED;
        snprintf(p.why, sizeof(p.why), "memfd_create and mmap: %s", p.works ? "works" : strerror(errno));
        if (p.works)
            munmap(m, 4096);
    }
    if (fd >= 0)
        close(fd);
    return p;
}
