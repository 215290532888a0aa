#ifndef RCCLX_TOOL_FAR_H
#define RCCLX_TOOL_FAR_H

#include <stdbool.h>

/* Ranks of several machines. */
typedef struct {
    const char  *hosts;   /* a file's name, or a list (tool_hosts.h) */
    const char  *ssh;     /* words between blanks; NULL: ssh, and none for this machine */
    const char  *rcclx;   /* this program over there; NULL: the path it has here */
    const char  *address; /* MASTER_ADDR; NULL: the first host's name */
    const char **vars;    /* NAME, NAME=VALUE: to be passed on, too */
    char       **argv;
    int          nvars, nranks, port; /* nranks 0: all slots; port 0: any that is free */
    double       timeout_s;
    bool         tag, bind, preload;
    char         id[33];
} tool_far;

/* Starts them and watches until all have ended. An exit code. */
int tool_far_run(const tool_far *f);

/* The other side, started over there: standard input says what to do (tool_note.h). An exit code. */
int tool_agent(void);

#endif
