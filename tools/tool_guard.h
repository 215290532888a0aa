#ifndef RCCLX_TOOL_GUARD_H
#define RCCLX_TOOL_GUARD_H

#include <sys/types.h>

/* A process that outlives its maker for a moment, to kill the process groups that
 * were not taken off its list. */
typedef struct {
    pid_t pid;
    int   fd; /* -1: none */
} tool_guard;

/* Room for n groups. 0, or -1 with errno. */
int tool_guard_start(tool_guard *g, int n);

/* A group begins (its number), or has ended (minus its number). */
void tool_guard_tell(const tool_guard *g, pid_t word);

/* In a child: it is not this one's. */
void tool_guard_leave(const tool_guard *g);

/* It ends, and has been waited for. */
void tool_guard_stop(tool_guard *g);

#endif
