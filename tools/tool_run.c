/* `rcclx run`: N ranks of a program on this machine, with the variables that
 * torchrun sets, so that whatever starts under torchrun starts here. */
#include "nccl_table.h"
#include "tool.h"
#include "tool_jobs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

static const tool_option options[] = {
    {'n', 'n', "ranks", "N", "number of ranks (default 2)"},
    {'t', 't', "timeout", "S", "end the job, with exit code 124, after S seconds"},
    {'T', 0, "tag", NULL, "put \"[rank] \" before every line of output"},
    {'b', 0, "bind", NULL, "pin rank r to the (r mod cores)-th core"},
    {'P', 0, "preload", NULL, "our libnccl.so.2 instead of the one that the program was built with (LD_PRELOAD)"},
    {'h', 'h', "help", NULL, "this text"},
    {0, 0, NULL, NULL, NULL},
};

typedef struct {
    char **argv;
    int    nranks, port;
    bool   preload;
    char   id[33];
} program;

static int help(void)
{
    fputs("rcclx run -n N [options] [--] CMD ARGS...: start N ranks on this machine\n\n", stdout);
    tool_options_print(stdout, options);
    fputs("\nRanks find RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and\n"
          "RCCLX_RUN_ID in their environment. Rank 0 keeps standard input unless it is a terminal.\n"
          "A rank that fails ends the job: the others get SIGTERM, SIGKILL 3 s later, and the exit\n"
          "code is that rank's, or 128 + n if signal n killed it (124: time-out, 127: no such\n"
          "program). Ctrl-C ends all ranks; a second one at once.\n",
          stdout);
    return TOOL_OK;
}

/* Two ports next to each other, for what listens on MASTER_PORT + 1. */
static int port_free(int port)
{
    struct sockaddr_in a  = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t          n  = sizeof(a);
    const int          fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    a.sin_addr.s_addr = htonl(INADDR_ANY);
    if (fd < 0)
        return -1;
    port = bind(fd, (struct sockaddr *)&a, n) || getsockname(fd, (struct sockaddr *)&a, &n) ? -1 : ntohs(a.sin_port);
    close(fd);
    return port;
}

static int find_port(void)
{
    for (int i = 0; i < 64; i++) {
        const int port = port_free(0);

        if (port > 0 && port < 65535 && port_free(port + 1) > 0)
            return port;
    }
    return -1;
}

static void set_number(const char *name, int x)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", x);
    setenv(name, text, 1);
}

/* Before what is in LD_PRELOAD already: the loader takes a library of this name only once. */
static int preload(void)
{
    char        near[PATH_MAX], real[PATH_MAX], text[2 * PATH_MAX];
    const char *others = getenv("LD_PRELOAD");

    nccl_table_own(near, sizeof(near));
    if (!realpath(near, real))
        return tool_fail("run", "--preload: %s: %s; build or install the libraries, too", near, strerror(errno));
    if (strpbrk(real, ": "))
        return tool_fail("run", "--preload: %s: LD_PRELOAD takes no path with ':' or a blank in it", real);
    snprintf(text, sizeof(text), "%s%s%s", real, others && *others ? ":" : "", others ? others : "");
    setenv("LD_PRELOAD", text, 1);
    return TOOL_OK;
}

static int child(int rank, void *arg)
{
    const program *p = arg;
    int            code;

    set_number("RANK", rank);
    set_number("WORLD_SIZE", p->nranks);
    set_number("LOCAL_RANK", rank);
    set_number("LOCAL_WORLD_SIZE", p->nranks);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    set_number("MASTER_PORT", p->port);
    setenv("RCCLX_RUN_ID", p->id, 1);
    execvp(p->argv[0], p->argv);
    code = errno == ENOENT ? 127 : 126;
    if (rank == 0)
        tool_fail("run", "%s: %s", p->argv[0], strerror(errno));
    return code;
}

static int start(tool_job *job, program *p)
{
    unsigned char bytes[16];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return tool_fail("run", "getrandom: %s", strerror(errno));
    for (int i = 0; i < 16; i++)
        snprintf(p->id + 2 * i, 3, "%02x", bytes[i]);
    p->nranks = job->nranks;
    p->port   = find_port();
    if (p->port < 0)
        return tool_fail("run", "no free port for MASTER_PORT: %s", strerror(errno));
    job->who   = "run";
    job->what  = p->argv[0];
    job->child = child;
    job->arg   = p;
    return tool_job_run(job);
}

int tool_run(int argc, char **argv)
{
    tool_args a   = {.who = "run", .options = options, .argc = argc, .argv = argv, .at = 1};
    tool_job  job = {.nranks = 2};
    program   p   = {0};
    int       id, code = TOOL_OK;

    while (code == TOOL_OK && (id = tool_args_next(&a)) >= 0) {
        switch (id) {
        case 'P': p.preload = true; break;
        case 'n': code = tool_int(&a, 1, 4096, &job.nranks); break;
        case 't': code = tool_real(&a, 0, &job.timeout_s); break;
        case 'T': job.tag = true; break;
        case 'b': job.bind = true; break;
        default: return help();
        }
    }
    if (code != TOOL_OK || id == TOOL_ARGS_BAD)
        return TOOL_USAGE;
    if (id == TOOL_ARGS_END)
        return tool_usage("run", "which program? rcclx run -n 4 -- ./program");
    p.argv = argv + a.at - 1; /* the rest is the program's own */
    return p.preload && preload() ? TOOL_FAILED : start(&job, &p);
}
