/* `rcclx`: one binary, one subcommand each for running, measuring and looking.
 *
 * Called by a name that ends in _perf (all_reduce_perf and so on are links to
 * it) it is that test, with the options of nccl-tests. */
#include "tool.h"

#include "rcclx.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "rcclx - collective communication on this machine\n"
    "\n"
    "  rcclx run -n N [--] CMD ...    start N ranks of a program and watch over them\n"
    "  rcclx perf COLLECTIVE          measure and check a collective\n"
    "  rcclx info                     version, devices, options, algorithms\n"
    "  rcclx plan COLLECTIVE          what would be done, step by step, and why\n"
    "  rcclx version\n"
    "  rcclx help [COMMAND]\n"
    "\n"
    "Each takes --help. all_reduce_perf, all_gather_perf, ... are links to this program and\n"
    "take the options of nccl-tests.\n"
    "\n"
    "Exit codes: 0 success; 1 wrong results; 2 bad command line; 3 a library or the system\n"
    "refused; 124 time-out; 128 + n a rank was killed by signal n; otherwise the code of the\n"
    "rank that failed first.\n";

static int show_version(void)
{
    printf("rcclx %s (API of NCCL %d.%d.%d)\n", RCCLX_VERSION, NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
    return TOOL_OK;
}

static int show_help(void)
{
    fputs(help, stdout);
    return TOOL_OK;
}

static int dispatch(int argc, char **argv)
{
    static const char *const commands[] = {"run", "perf", "info", "plan", "version", "help"};
    const char              *word       = argv[0], *near;

    if (!strcmp(word, "run"))
        return tool_run(argc, argv);
    if (!strcmp(word, "perf"))
        return tool_perf(argc, argv, NULL);
    if (!strcmp(word, "info"))
        return tool_info(argc, argv);
    if (!strcmp(word, "plan"))
        return tool_plan(argc, argv);
    if (!strcmp(word, "version") || !strcmp(word, "--version") || !strcmp(word, "-V"))
        return show_version();
    if (!strcmp(word, "help") || !strcmp(word, "--help") || !strcmp(word, "-h")) {
        char *sub[] = {argc > 1 ? argv[1] : NULL, (char[]){"--help"}, NULL};

        return argc > 1 && strcmp(argv[1], "help") ? dispatch(2, sub) : show_help();
    }
    near = tool_nearest(word, commands, sizeof(commands) / sizeof(commands[0]));
    return near ? tool_usage("", "unknown command '%s'; the nearest is '%s' (see rcclx help)", word, near)
                : tool_usage("", "unknown command '%s' (see rcclx help)", word);
}

int main(int argc, char **argv)
{
    const char *name   = argc ? strrchr(argv[0], '/') : NULL;
    const char *suffix = NULL;
    char        collective[32];

    name   = name ? name + 1 : argc ? argv[0] : "rcclx";
    suffix = strstr(name, "_perf");
    if (suffix && !suffix[5]) {
        snprintf(collective, sizeof(collective), "%.*s", (int)(suffix - name), name);
        return tool_perf(argc, argv, collective);
    }
    if (argc < 2) {
        fputs(help, stderr);
        return TOOL_USAGE;
    }
    return dispatch(argc - 1, argv + 1);
}
