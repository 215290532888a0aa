#ifndef RCCLX_TOOL_JOBS_H
#define RCCLX_TOOL_JOBS_H

#include <stdbool.h>
#include <sys/types.h>

/* N ranks as processes of this machine, watched until all have ended.
 *
 * The first rank that fails ends the job: the others get SIGTERM, and SIGKILL
 * three seconds later. SIGINT, SIGTERM and SIGHUP end it the same way, a second
 * one at once. Whatever a rank has started goes with it, and if this process is
 * killed itself, all ranks are. */
typedef struct tool_job_hooks tool_job_hooks;

typedef struct {
    const char *who;       /* subcommand, for messages */
    const char *what;      /* program, for messages */
    const char *noun;      /* what a child is called in messages; NULL: "rank" */
    int         nranks, first; /* first: what the first one's number is in tags */
    double      timeout_s; /* 0: none */
    bool        tag;       /* put "[rank] " before every line of the ranks */
    bool        lines;     /* pass output on line by line without that, too */
    bool        raw;       /* of these, pass on long lines as they are */
    bool        bind;      /* rank r on the (r mod cores)-th core this process may use */
    bool        leashed;   /* standard input is no rank's; its end stops the job */
    int (*child)(int rank, void *arg); /* runs in the rank's process; its result is the exit code */
    void                 *arg;         /* of child and hooks */
    const tool_job_hooks *hooks;       /* NULL: none */
} tool_job;

/* For children that are not the ranks themselves. Each may be NULL. */
struct tool_job_hooks {
    int (*before)(void *arg, int rank); /* about to be started; not TOOL_OK ends the job */

    /* A line of its standard error (with tag or lines), without its end: -1: pass it on; 0: it was meant for here;
     * otherwise the code with which the job is to stop. */
    int (*line)(void *arg, int rank, const char *line, bool stopping);

    /* It has ended: with that exit code or by that signal. The code with which the job is to stop; 0: it goes on. Messages are
     * the hook's. */
    int (*ended)(void *arg, int rank, pid_t pid, bool exited, int number, bool stopping);

    void (*stop)(void *arg); /* the job stops: in place of SIGTERM, ... */
    double stop_s;           /* ... and so much longer than three seconds it may take */

    int (*remind)(void *arg); /* called once, remind_s after the start: 0, or the code with which the job is to stop */
    double remind_s;
};

/* 0, or the code of the first rank that failed, 128 + signal, TOOL_TIMEOUT,
 * TOOL_FAILED if the ranks could not be started. */
int tool_job_run(const tool_job *job);

#endif
