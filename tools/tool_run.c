/* `rcclx run`: the command line. Ranks are started here, or, with --hosts, by
 * this program's other selves on those machines (tool_far.c, tool_agent.c). */
#include "tool.h"
#include "tool_far.h"
#include "tool_jobs.h"
#include "tool_rank.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const tool_option options[] = {
    {'n', 'n', "ranks", "N", "number of ranks (default 2; with --hosts: all slots)"},
    {'H', 'H', "hosts", "H", "FILE, or host:slots,host:slots,...: the machines they run on"},
    {'S', 0, "ssh", "CMD", "what is called with a host and a command, to run it there (default: ssh)"},
    {'x', 'x', "env", "NAME[=V]", "a variable for the ranks on other machines, besides those below"},
    {'A', 0, "master-addr", "ADDR", "MASTER_ADDR, by which the first host is found (default: its name in --hosts)"},
    {'p', 0, "master-port", "PORT", "MASTER_PORT (default: one that is free on the first host)"},
    {'R', 0, "rcclx", "PATH", "this program on the other machines (default: its path here)"},
    {'t', 't', "timeout", "S", "end the job, with exit code 124, after S seconds"},
    {'T', 0, "tag", NULL, "put \"[rank] \" before every line of output"},
    {'b', 0, "bind", NULL, "pin rank r to the (r mod cores)-th core of its machine"},
    {'P', 0, "preload", NULL, "our libnccl.so.2 instead of the one that the program was built with (LD_PRELOAD)"},
    {'F', 0, "far-side", NULL, NULL},
    {'h', 'h', "help", NULL, "this text"},
    {0, 0, NULL, NULL, NULL},
};

static int help(void)
{
    fputs("rcclx run [-n N] [--hosts HOSTS] [options] [--] CMD ARGS...: start N ranks of a program\n\n", stdout);
    tool_options_print(stdout, options);
    fputs("\nRanks find RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and\n"
          "RCCLX_RUN_ID in their environment. Rank 0 keeps standard input unless it is a terminal.\n"
          "A rank that fails ends the job: the others get SIGTERM, SIGKILL 3 s later, and the exit\n"
          "code is that rank's, or 128 + n if signal n killed it (124: time-out, 127: no such\n"
          "program). Ctrl-C ends all ranks; a second one at once.\n\n"
          "With --hosts, slots are filled host by host. A file has a host a line, \"name slots=4\" as\n"
          "for Open MPI; name[01-04]:8 stands for four hosts. Needed there are ssh without a password,\n"
          "this program and CMD under the same paths. The ranks get NCCL_*, RCCL_*, RCCLX_*, UCX_*\n"
          "(but not NCCL_HOSTID), PATH, LD_LIBRARY_PATH, PYTHONPATH and this folder, where it exists;\n"
          "no standard input. A host called localhost is this machine and needs no ssh.\n",
          stdout);
    return TOOL_OK;
}

static int child(int rank, void *arg)
{
    return tool_rank_become(arg, rank);
}

static int make_id(char id[33])
{
    unsigned char bytes[16];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return tool_fail("run", "getrandom: %s", strerror(errno));
    for (int i = 0; i < 16; i++)
        snprintf(id + 2 * i, 3, "%02x", bytes[i]);
    return TOOL_OK;
}

static int run_here(const tool_far *f)
{
    tool_ranks ranks = {.argv = f->argv, .address = f->address ? f->address : "127.0.0.1", .id = f->id, .port = f->port,
                        .local = f->nranks, .world = f->nranks};
    tool_job   job   = {.who = "run", .what = f->argv[0], .nranks = f->nranks, .timeout_s = f->timeout_s, .tag = f->tag,
                        .bind = f->bind, .child = child, .arg = &ranks};

    if (f->preload && tool_rank_preload() != TOOL_OK)
        return TOOL_FAILED;
    if (!ranks.port && (ranks.port = tool_rank_port()) < 0)
        return tool_fail("run", "no free port for MASTER_PORT: %s", strerror(errno));
    return tool_job_run(&job);
}

/* Options that say nothing about this machine's ranks. */
static const char *needs_hosts(const tool_far *f)
{
    return f->ssh ? "--ssh" : f->nvars ? "--env" : f->rcclx ? "--rcclx" : NULL;
}

static int start(tool_far *f)
{
    const char *stray = f->hosts ? NULL : needs_hosts(f);

    if (stray)
        return tool_usage("run", "%s is for ranks on other machines; say which with --hosts", stray);
    if (make_id(f->id) != TOOL_OK)
        return TOOL_FAILED;
    if (f->hosts)
        return tool_far_run(f);
    f->nranks = f->nranks ? f->nranks : 2;
    return run_here(f);
}

int tool_run(int argc, char **argv)
{
    tool_args a    = {.who = "run", .options = options, .argc = argc, .argv = argv, .at = 1};
    tool_far  f    = {.vars = calloc((size_t)argc, sizeof(*f.vars))};
    int       id   = TOOL_ARGS_END, code = f.vars ? TOOL_OK : tool_fail("run", "out of memory");
    bool      far  = false, asked = false;

    while (code == TOOL_OK && !asked && (id = tool_args_next(&a)) >= 0) {
        switch (id) {
        case 'n': code = tool_int(&a, 1, 4096, &f.nranks); break;
        case 'H': f.hosts = a.value; break;
        case 'S': f.ssh = a.value; break;
        case 'x': f.vars[f.nvars++] = a.value; break;
        case 'A': f.address = a.value; break;
        case 'p': code = tool_int(&a, 1, 65534, &f.port); break;
        case 'R': f.rcclx = a.value; break;
        case 't': code = tool_real(&a, 0, &f.timeout_s); break;
        case 'T': f.tag = true; break;
        case 'b': f.bind = true; break;
        case 'P': f.preload = true; break;
        case 'F': far = true; break;
        default: asked = true; break;
        }
    }
    f.argv = argv + a.at - 1; /* the rest is the program's own */
    if (code == TOOL_OK)
        code = id == TOOL_ARGS_BAD   ? TOOL_USAGE
               : asked               ? help()
               : far                 ? tool_agent()
               : id == TOOL_ARGS_END ? tool_usage("run", "which program? rcclx run -n 4 -- ./program")
                                     : start(&f);
    free(f.vars);
    return code;
}
