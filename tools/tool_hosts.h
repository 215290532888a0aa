#ifndef RCCLX_TOOL_HOSTS_H
#define RCCLX_TOOL_HOSTS_H

#include <stddef.h>

/* The machines of a job, and how many ranks each may have: from a list on the
 * command line, or from a file as Open MPI reads it. */
enum { TOOL_HOST_NAME = 256, TOOL_HOSTS_MAX = 4096, TOOL_SLOTS_MAX = 4096 };

typedef struct {
    char name[TOOL_HOST_NAME]; /* as ssh takes it: [user@]name, or an address without brackets */
    int  slots;                /* 1 or more */
} tool_host;

typedef struct {
    tool_host *host;
    int        n;
    int        slots; /* of all */
} tool_hosts;

/* "a:4,b:4", "node[01-04]:8", "user@a", "[fd00::1]:4". A host without a number
 * has one slot; who is named twice has the slots of both. 0, or -1 and why not. */
int tool_hosts_list(tool_hosts *h, const char *text, char *why, size_t nwhy);

/* The text of a file, a host a line: "a slots=4", "a:4", "a"; # begins a comment.
 * 0, or -1, the line and why not. */
int tool_hosts_file(tool_hosts *h, const char *text, size_t size, int *line, char *why, size_t nwhy);

/* What --hosts says: a file if it has a slash or there is one of that name, else a
 * list. An exit code, after a message. */
int tool_hosts_open(tool_hosts *h, const char *text);

void tool_hosts_fini(tool_hosts *h);

#endif
