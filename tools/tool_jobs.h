#ifndef RCCLX_TOOL_JOBS_H
#define RCCLX_TOOL_JOBS_H

#include <stdbool.h>

/* N ranks as processes of this machine, watched until all have ended.
 *
 * The first rank that fails ends the job: the others get SIGTERM, and SIGKILL
 * three seconds later. SIGINT, SIGTERM and SIGHUP end it the same way, a second
 * one at once. Whatever a rank has started goes with it, and if this process is
 * killed itself, all ranks are. */
typedef struct {
    const char *who;       /* subcommand, for messages */
    const char *what;      /* program, for messages */
    int         nranks;
    double      timeout_s; /* 0: none */
    bool        tag;       /* put "[rank] " before every line of the ranks */
    bool        bind;      /* rank r on the (r mod cores)-th core this process may use */
    int (*child)(int rank, void *arg); /* runs in the rank's process; its result is the exit code */
    void *arg;
} tool_job;

/* 0, or the code of the first rank that failed, 128 + signal, TOOL_TIMEOUT,
 * TOOL_FAILED if the ranks could not be started. */
int tool_job_run(const tool_job *job);

#endif
