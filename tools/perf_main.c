/* `rcclx perf` and the *_perf names: one table of options. The two differ in
 * what -n means (ranks here, iterations there) and in their defaults. */
#include "perf.h"

#include "tool.h"

#include "codec/codec.h"

#include <stdlib.h>
#include <string.h>

enum {
    OPT_RANKS = 1, OPT_ITERS, OPT_JSON, OPT_DEVICE, OPT_DIRTY, OPT_PLAIN, OPT_BIND, OPT_LIB, OPT_VS, OPT_VS_REG,
    OPT_REPEATS, OPT_CPUTIME, OPT_LOW, OPT_LOW_MIN, OPT_HELP
};

#define COMMON_OPTIONS                                                                            \
    {'b', 'b', "minbytes", "SIZE", "smallest size (K, M, G accepted)"},                           \
    {'e', 'e', "maxbytes", "SIZE", "largest size"},                                               \
    {'i', 'i', "stepbytes", "SIZE", "from one size to the next by adding"},                       \
    {'f', 'f', "stepfactor", "X", "... or by multiplying"},                                       \
    {'w', 'w', "warmup_iters", "N", "calls before the clock starts"},                             \
    {'m', 'm', "agg_iters", "N", "calls in one group"},                                           \
    {'N', 'N', "run_cycles", "N", "repeat the sweep; 0: for ever"},                               \
    {'t', 't', "nthreads", "N", "threads a process, each with ranks of its own"},                 \
    {'g', 'g', "ngpus", "N", "ranks a thread"},                                                   \
    {'p', 'p', "parallel_init", "0|1", "accepted; threads always initialise in parallel"},        \
    {'c', 'c', "check", "N", "calls whose results are checked (0: none)"},                        \
    {'o', 'o', "op", "OP", "sum prod min max avg mulsum all"},                                    \
    {'d', 'd', "datatype", "TYPE", "int8 uint8 int32 uint32 int64 uint64 half float double\n"     \
     "                                bfloat16 f8e4m3 f8e5m2 all"},                               \
    {'r', 'r', "root", "R", "root of rooted collectives, or all"},                                \
    {'z', 'z', "blocking", "0..3", "wait after every call (2, 3: and for all ranks)"},            \
    {'y', 'y', "stream_null", "0|1", "0: queue on a stream (GPUs' default); 1: call and wait"},   \
    {'T', 'T', "timeout", "S", "give up, with exit code 124, after S seconds"},                   \
    {'G', 'G', "cudagraph", "N", "GPU: capture the calls into a graph, time N launches of it"},   \
    {'G', 0, "graph", "N", "the same"},                                                           \
    {OPT_REPEATS, 0, "repeats", "N", "GPU: measurements of a row, whose median counts (7)"},      \
    {'C', 'C', "report_cputime", "0|1", "time until the call returns, not until it is done"},     \
    {OPT_CPUTIME, 0, "cputime", NULL, "the same as -C 1"},                                        \
    {'S', 'S', "report_timestamps", "0|1", "when each row was measured"},                         \
    {'J', 'J', "output_file", "FILE", "results as JSON to a file, beside the table"},             \
    {'a', 'a', "average", "0..3", "time of rank 0, average, least, most (GPU: default) of ranks"}, \
    {'R', 'R', "local_register", "0..2", "register buffers: no, locally (GPU: default), as windows"}, \
    {'R', 0, "registration", "0..2", "the same"},                                                 \
    {'x', 'x', "cta_policy", "N", "CTA policy of the communicator"},                              \
    {'u', 'u', "unalign", "N", "move the buffers by N elements"},                                 \
    {'M', 'M', "memory_report", "0|1", "memory of the processes"},                                \
    {OPT_JSON, 0, "json", "[FILE]", "results as JSON to standard output, or to FILE"},            \
    {OPT_DEVICE, 0, "device", "D", "host, cuda, hip, emu or auto"},                                    \
    {OPT_DIRTY, 0, "dirty", NULL, "rewrite inputs before every timed call; median"},              \
    {OPT_PLAIN, 0, "plain", NULL, "memory of malloc or the driver, not ncclMemAlloc"},                       \
    {OPT_BIND, 0, "bind", NULL, "pin process r to the (r mod cores)-th core"},                    \
    {OPT_LIB, 0, "lib", "FILE", "library to measure (default ../lib/libnccl.so.2)"},              \
    {OPT_VS, 0, "vs", "FILE[:HOW]", "another library, measured in turns; up to three of them; HOW\n" \
     "                                registers its buffers: default (not), register, window"},    \
    {OPT_VS_REG, 0, "vs-registration", "0..2", "HOW as a number, of the --vs before"},            \
    {OPT_LOW, 0, "low-precision", "X", "int8 or fp8 on the wire (our side only), or off; results are checked\n" \
     "                                within what the codec may lose"},                           \
    {OPT_LOW_MIN, 0, "low-precision-min", "SIZE", "from so many bytes on (1)"},                   \
    {'D', 'D', "device_implementation", "N", NULL}, {'V', 'V', "device_cta_count", "N", NULL},    \
    {'I', 'I', "iteration_stats", "N", NULL}, {'K', 'K', "stats_skip", "N", NULL},                \
    {OPT_HELP, 'h', "help", NULL, "this text"}, {0, 0, NULL, NULL, NULL}

static const tool_option perf_options[] = {
    {OPT_RANKS, 'n', "ranks", "N", "start N ranks on this machine"},
    {OPT_ITERS, 0, "iters", "N", "timed calls (default 20)"},
    COMMON_OPTIONS,
};

static const tool_option tests_options[] = {
    {OPT_ITERS, 'n', "iters", "N", "timed calls (default 20)"},
    {OPT_RANKS, 0, "ranks", "N", "start N ranks on this machine"},
    COMMON_OPTIONS,
};

/* Of `rcclx perf codec`. */
static const tool_option codec_options[] = {
    {OPT_DEVICE, 0, "device", "D", "cuda, hip, emu or auto"},
    {'d', 'd', "datatype", "TYPE", "float, bfloat16 or half"},
    {OPT_LOW, 0, "low-precision", "X", "int8, fp8 or both"},
    {'b', 'b', "minbytes", "SIZE", "smallest size, of elements (K, M, G accepted)"},
    {'e', 'e', "maxbytes", "SIZE", "largest size"},
    {'i', 'i', "stepbytes", "SIZE", "from one size to the next by adding"},
    {'f', 'f', "stepfactor", "X", "... or by multiplying"},
    {OPT_ITERS, 0, "iters", "N", "launches in a graph, whose mean counts (20; 0: check only)"},
    {OPT_REPEATS, 0, "repeats", "N", "graphs, whose median counts (7)"},
    {'J', 'J', "output_file", "FILE", "results as JSON to a file, beside the table"},
    {OPT_JSON, 0, "json", "[FILE]", "results as JSON to standard output, or to FILE"},
    {OPT_HELP, 'h', "help", NULL, "this text"}, {0, 0, NULL, NULL, NULL}
};

static int help_codecs(void)
{
    fputs("rcclx perf codec [options]: measure and check the codecs of low precision alone, on one GPU\n\n", stdout);
    tool_options_print(stdout, codec_options);
    fputs("\nDefaults: -b 1M -e 1G -f 4 -d float --low-precision both. Each size in four ways: encode and\n"
          "decode, by the kernel of a collective; the elements copied by the same kernel (copy), and by\n"
          "the driver (driver). GB/s are bytes read plus bytes written.\n"
          "\n"
          "Exit codes: 0 right; 1 wrong results; 2 bad command line; 3 the system refused.\n", stdout);
    return TOOL_OK;
}

static int help(const perf_config *c)
{
    if (c->codecs)
        return help_codecs();
    if (c->tests)
        printf("%s_perf [options]: measure and check %s\n\n", c->op->word, c->op->call);
    else
        fputs("rcclx perf COLLECTIVE [options]: measure and check a collective\n\n  collectives:", stdout);
    for (const perf_op *op = perf_ops; !c->tests && op->word; op++)
        printf(" %s", op->word);
    fputs(c->tests ? "" : "\n  or codec: the codecs of low precision alone (rcclx perf codec --help)\n\n", stdout);
    tool_options_print(stdout, c->tests ? tests_options : perf_options);
    fputs(c->tests ? "\nDefaults: -b 32M -e 32M, one rank" : "\nDefaults: -b 8 -e 16M -f 2, as many ranks as GPUs, else as cores,",
          stdout);
    fputs(" unless started by torchrun,\n"
          "mpirun, srun or rcclx run, whose rank this process then is. --device, else RCCLX_DEVICE,\n"
          "else what is there says where buffers lie. NCCL_TESTS_MIN_BW=x in the environment fails\n"
          "the run if the average bus bandwidth is below 0.9 x.\n"
          "\n"
          "Exit codes: 0 right; 1 wrong results or too slow; 2 bad command line; 3 a library or the\n"
          "system refused; 124 time-out; 128 + n a rank was killed by signal n.\n",
          stdout);
    return TOOL_OK;
}

static int set_type(const tool_args *a, perf_config *c)
{
    const char *names[ncclNumTypes], *near;

    c->type = strcmp(a->value, "all") ? perf_type_find(a->value) : -1;
    if (c->type >= 0 || !strcmp(a->value, "all"))
        return TOOL_OK;
    for (int t = 0; t < ncclNumTypes; t++)
        names[t] = perf_type_name(t);
    near = tool_nearest(a->value, names, ncclNumTypes);
    return tool_usage(a->who, "%s %s: no such type%s%s (see --help)", a->asked, a->value,
                      near ? "; the nearest is " : "", near ? near : "");
}

static int set_redop(const tool_args *a, perf_config *c)
{
    c->redop = strcmp(a->value, "all") ? perf_redop_find(a->value) : -1;
    if (c->redop >= 0 || !strcmp(a->value, "all"))
        return TOOL_OK;
    return tool_usage(a->who, "%s %s: no such operator; there are sum, prod, min, max, avg, mulsum and all", a->asked,
                      a->value);
}

static int set_device(const tool_args *a, perf_config *c)
{
    static const char *const words[] = {"host", "cuda", "hip", "emu", "auto"};
    const int                which   = tool_word_index("host|cuda|hip|emu|auto", a->value);

    if (which < 0)
        return tool_usage(a->who, "%s %s: the devices are host, cuda, hip, emu and auto", a->asked, a->value);
    c->device = words[which];
    return TOOL_OK;
}

static int refuse(const tool_args *a, const char *why)
{
    return tool_usage(a->who, "%s %s: %s", a->asked, a->value, why);
}

static int flag(const tool_args *a, bool *result)
{
    int       x    = 0;
    const int code = tool_int(a, 0, 1, &x);

    *result = x;
    return code;
}

/* --json may be followed by a file; the collective is not one. */
static int set_json(tool_args *a, perf_config *c)
{
    const int at = a->at;

    c->json = true;
    if (!a->value) {
        c->json_file = tool_args_maybe(a);
        if (c->json_file && !c->op && perf_op_find(c->json_file)) {
            c->json_file = NULL;
            a->at        = at;
        }
    } else {
        c->json_file = a->value;
    }
    return TOOL_OK;
}

static int set_file(tool_args *a, perf_config *c)
{
    c->json      = true;
    c->json_file = a->value;
    return TOOL_OK;
}

static int set_root(const tool_args *a, perf_config *c)
{
    if (!strcmp(a->value, "all")) {
        c->root = -1;
        return TOOL_OK;
    }
    return tool_int(a, -1, PERF_MAX_RANKS - 1, &c->root);
}

static int set_factor(const tool_args *a, perf_config *c)
{
    const int code = tool_real(a, 0, &c->factor);

    if (code == TOOL_OK && c->factor <= 1 && c->factor != 0)
        return refuse(a, "a factor must be greater than 1");
    return code;
}

/* LIB or LIB:HOW; a colon before anything else belongs to the name. */
static int set_vs(const tool_args *a, perf_config *c)
{
    const char *colon = strrchr(a->value, ':');
    const int   how   = colon ? tool_word_index("default|register|window", colon + 1) : -1;

    if (c->nvs == PERF_SIDES - 1)
        return refuse(a, "three other libraries are the most");
    c->vs[c->nvs++] = strndup(a->value, how < 0 ? strlen(a->value) : (size_t)(colon - a->value));
    if (!c->vs[c->nvs - 1])
        return tool_fail(a->who, "out of memory");
    if (how >= 0)
        c->registration[c->nvs] = how;
    return TOOL_OK;
}

static int set_vs_registration(const tool_args *a, perf_config *c)
{
    if (!c->nvs)
        return refuse(a, "which library? Give --vs before it");
    return tool_int(a, 0, 2, &c->registration[c->nvs]);
}

static int set_low(const tool_args *a, perf_config *c)
{
    c->low = tool_word_index(c->codecs ? "|fp8|int8|both" : "off|fp8|int8", a->value);
    if (c->low < c->codecs)
        return refuse(a, c->codecs ? "there are fp8, int8 and both" : "there are off, fp8 and int8");
    return TOOL_OK;
}

/* Options of nccl-tests about calls from inside kernels: harmless at 0. */
static int set_other(const tool_args *a)
{
    return strcmp(a->value, "0") ? refuse(a, "only for calls from inside kernels, which are not measured here") : TOOL_OK;
}

static int set(tool_args *a, perf_config *c, int id)
{
    int ignored;

    switch (id) {
    case OPT_RANKS: return tool_int(a, 1, PERF_MAX_RANKS, &c->nprocs);
    case OPT_ITERS: return tool_int(a, 0, 1 << 30, &c->iters);
    case OPT_JSON: return set_json(a, c);
    case OPT_DEVICE: return set_device(a, c);
    case OPT_DIRTY: c->dirty = true; return TOOL_OK;
    case OPT_PLAIN: c->plain = true; return TOOL_OK;
    case OPT_BIND: c->bind = true; return TOOL_OK;
    case OPT_LIB: c->lib = a->value; return TOOL_OK;
    case OPT_VS: return set_vs(a, c);
    case OPT_VS_REG: return set_vs_registration(a, c);
    case OPT_REPEATS: return tool_int(a, 1, 1 << 16, &c->repeats);
    case OPT_CPUTIME: c->cputime = true; return TOOL_OK;
    case OPT_LOW: return set_low(a, c);
    case OPT_LOW_MIN: return tool_size(a, &c->low_min);
    case 'b': return tool_size(a, &c->min);
    case 'e': return tool_size(a, &c->max);
    case 'i': c->factor = 0; return tool_size(a, &c->step);
    case 'f': return set_factor(a, c);
    case 'w': return tool_int(a, 0, 1 << 30, &c->warmup);
    case 'm': return tool_int(a, 1, 1 << 16, &c->agg);
    case 'N': return tool_int(a, 0, 1 << 30, &c->cycles);
    case 't': return tool_int(a, 1, PERF_MAX_RANKS, &c->threads);
    case 'g': return tool_int(a, 1, PERF_MAX_RANKS, &c->per_thread);
    case 'p': return tool_int(a, 0, 1, &ignored);
    case 'c': return tool_int(a, 0, 1 << 30, &c->check);
    case 'o': return set_redop(a, c);
    case 'd': return set_type(a, c);
    case 'r': return set_root(a, c);
    case 'z': return tool_int(a, 0, 3, &c->blocking);
    case 'y': return tool_int(a, 0, 1, &c->null_stream);
    case 'T': return tool_real(a, 0, &c->timeout_s);
    case 'G': return tool_int(a, 0, 1 << 20, &c->graph);
    case 'C': return flag(a, &c->cputime);
    case 'S': return flag(a, &c->timestamp);
    case 'J': return set_file(a, c);
    case 'a': return tool_int(a, 0, 3, &c->average);
    case 'R': return tool_int(a, 0, 2, &c->registration[0]);
    case 'x': return tool_int(a, 0, 2, &c->cta);
    case 'u': return tool_int(a, 0, 256, &c->unalign);
    case 'M': return flag(a, &c->memory);
    default: return set_other(a);
    }
}

static int set_collective(const tool_args *a, perf_config *c)
{
    const char *near = perf_op_nearest(a->value);

    if (c->codecs)
        return tool_usage(a->who, "what is '%s' for? It is the codecs that are measured", a->value);
    if (c->op)
        return tool_usage(a->who, "what is '%s' for? The collective is %s already", a->value, c->op->word);
    c->op = perf_op_find(a->value);
    if (c->op)
        return TOOL_OK;
    return near ? tool_usage(a->who, "unknown collective '%s'; the nearest is %s (see --help)", a->value, near)
                : tool_usage(a->who, "unknown collective '%s' (see --help)", a->value);
}

/* One end of the sizes given alone moves the other, if it must. */
static int check(const char *who, perf_config *c, bool min_given, bool max_given)
{
    if (c->min > c->max && min_given && !max_given)
        c->max = c->min;
    if (c->min > c->max && max_given && !min_given)
        c->min = c->max;
    if (!c->op && !c->codecs)
        return tool_usage(who, "which collective? For example: rcclx perf all_reduce -n 4");
    if (c->min > c->max)
        return tool_usage(who, "the smallest size (%zu bytes, -b) is larger than the largest (%zu bytes, -e)", c->min,
                          c->max);
    if (!c->factor && !c->step && c->min != c->max)
        return tool_usage(who, "-i 0 never gets from -b to -e; give -i or -f");
    if (c->codecs && (c->type < 0 || !rcclx_codec_takes((rcclx_type)c->type)))
        return tool_usage(who, "codecs take float, bfloat16 and half (-d)");
    if (c->codecs && c->min < perf_type_size(c->type))
        return tool_usage(who, "-b %zu: an element has %zu bytes", c->min, perf_type_size(c->type));
    return TOOL_OK;
}

static int choose_test(perf_config *c, tool_args *a, const char *collective)
{
    c->tests   = true;
    c->min     = c->max = 32 << 20;
    c->factor  = 0;
    c->warmup  = 1;
    c->op      = perf_op_find(collective);
    a->options = tests_options;
    return c->op ? TOOL_OK
                 : tool_usage("perf", "called as %s_perf, which is no known collective (see rcclx perf --help)", collective);
}

/* In place of a collective. */
static void choose_codecs(perf_config *c, tool_args *a)
{
    c->codecs  = true;
    c->min     = 1 << 20;
    c->max     = 1 << 30;
    c->factor  = 4;
    c->low     = 3; /* both */
    a->options = codec_options;
    a->at++;
}

int tool_perf(int argc, char **argv, const char *collective)
{
    perf_config c = {.argc = argc, .argv = argv, .threads = 1, .per_thread = 1, .min = 8, .max = 16 << 20, .factor = 2,
                     .step = 1 << 20, .iters = 20, .agg = 1, .warmup = 5, .cycles = 1, .check = 1, .type = ncclFloat32,
                     .null_stream = -1, .average = -1, .registration = {-1, -1, -1, -1}, .repeats = 7, .low = -1, .low_min = 1,
                     .kind = PERF_HOST};
    tool_args   a = {.who = "perf", .options = perf_options, .argc = argc, .argv = argv, .at = 1};
    bool        min_given = false, max_given = false;
    int         id = TOOL_ARGS_END, code = TOOL_OK;

    if (collective)
        code = choose_test(&c, &a, collective);
    else if (argc > 1 && !strcmp(argv[1], "codec"))
        choose_codecs(&c, &a);
    while (code == TOOL_OK && (id = tool_args_next(&a)) != TOOL_ARGS_END && id != OPT_HELP) {
        min_given |= id == 'b';
        max_given |= id == 'e';
        code = id == TOOL_ARGS_BAD ? TOOL_USAGE : id == TOOL_ARGS_WORD ? set_collective(&a, &c) : set(&a, &c, id);
    }
    if (code == TOOL_OK && id == OPT_HELP)
        code = help(&c);
    else if (code == TOOL_OK && (code = check("perf", &c, min_given, max_given)) == TOOL_OK)
        code = c.codecs ? perf_codecs(&c) : perf_launch(&c);
    for (int i = 0; i < c.nvs; i++)
        free(c.vs[i]);
    return code;
}
