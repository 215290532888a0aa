/* `rcclx info`: what this is, what it runs on, what it would do. */
#include "tool.h"
#include "tool_gpu.h"
#include "tool_network.h"
#include "tool_probe.h"
#include "tool_topology.h"

#include "algo/algo.h"
#include "base/json.h"
#include "base/option.h"
#include "base/optvalue.h"
#include "codec/codec.h"
#include "device/reduce.h"
#include "exec/exec.h"
#include "rcclx.h"
#include "topo/search.h"
#include "transport/transport.h"

#include <sched.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static const tool_option options[] = {
    {'o', 0, "options", NULL, "every setting: value, where it comes from, meaning"},
    {'m', 0, "markdown", NULL, "with --options: the page docs/environment.md"},
    {'j', 0, "json", NULL, "one JSON object"},
    {'t', 0, "topology", NULL, "the machine's devices and links; rings, trees, rails for it"},
    {'f', 0, "file", "FILE", "with --topology: the machine that FILE describes (NCCL's XML)"},
    {'n', 0, "nodes", "N", "with --topology: N copies of it (default 1)"},
    {'g', 0, "gpus", "LIST", "with --topology: these GPUs alone, such as 0,2,4-7"},
    {'s', 0, "svg", "OUT", "with --topology: a drawing, into the file OUT"},
    {'h', 'h', "help", NULL, "this text"},
    {0, 0, NULL, NULL, NULL},
};

typedef struct {
    struct utsname system;
    int            cores, usable;
    long long      memory;
    tool_probe     cma, memfd;
    rcclx_machine  machine;
} facts;

static const char build[] =
#if defined(__clang__)
    "clang " __clang_version__;
#else
    "gcc " __VERSION__;
#endif

static void gather(facts *f)
{
    cpu_set_t set;

    if (uname(&f->system))
        memset(&f->system, 0, sizeof(f->system));
    f->cores  = (int)sysconf(_SC_NPROCESSORS_ONLN);
    f->usable = sched_getaffinity(0, sizeof(set), &set) ? f->cores : CPU_COUNT(&set);
    f->memory = (long long)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    f->cma    = tool_probe_cma();
    f->memfd  = tool_probe_memfd();
    rcclx_machine_default(&f->machine, f->usable);
}

/* The machine model, one row a number. */
static const struct {
    const char *name, *unit, *about;
    size_t      at;
} model[] = {
    {"call", "ns", "enter and leave an operation", offsetof(rcclx_machine, call_ns)},
    {"signal", "ns", "a store seen by another core", offsetof(rcclx_machine, signal_ns)},
    {"switch", "ns", "hand the core to another rank", offsetof(rcclx_machine, switch_ns)},
    {"step", "ns", "interpret one step", offsetof(rcclx_machine, step_ns)},
    {"local_rate", "GB/s", "copy within a core's own cache", offsetof(rcclx_machine, local_rate)},
    {"peer_rate", "GB/s", "read or write what another core has dirty", offsetof(rcclx_machine, peer_rate)},
    {"far_rate", "GB/s", "the same beyond the caches", offsetof(rcclx_machine, far_rate)},
    {"cma", "ns", "a process_vm_readv call", offsetof(rcclx_machine, cma_ns)},
    {"cma_rate", "GB/s", "its rate", offsetof(rcclx_machine, cma_rate)},
};

static double model_value(const rcclx_machine *m, size_t row)
{
    return *(const double *)(const void *)((const char *)m + model[row].at);
}

/* "all_reduce broadcast ..." */
static void kinds_of(const rcclx_algo *a, char *text, size_t n)
{
    size_t used = 0;

    text[0] = 0;
    for (int k = 0; k < RCCLX_COLL_COUNT && used < n; k++)
        if (a->kinds >> k & 1)
            used += (size_t)snprintf(text + used, n - used, "%s%s", used ? " " : "", rcclx_kind_word((rcclx_kind)k));
}

/* --- text ------------------------------------------------------------------- */

static void put_devices(const facts *f)
{
    printf("devices\n");
    printf("  host   %d cores (%d usable here), %.1f GiB memory, instructions %s\n", f->cores, f->usable,
           (double)f->memory / (1 << 30), rcclx_isa_name());
    printf("         shared memory: %s\n", f->memfd.why);
    printf("         direct reads:  %s\n", f->cma.why);
    tool_gpu_print_drivers();
    tool_gpu_print_kernels();
}

static void put_algorithms(void)
{
    char kinds[256];

    printf("\nalgorithms (RCCLX_ALGO=name)\n");
    for (int i = 0; rcclx_algos[i]; i++) {
        kinds_of(rcclx_algos[i], kinds, sizeof(kinds));
        printf("  %-10s %s%s%s%s\n             %s\n", rcclx_algos[i]->name, rcclx_algos[i]->about,
               rcclx_algos[i]->nccl ? " (NCCL_ALGO=" : "", rcclx_algos[i]->nccl ? rcclx_algos[i]->nccl : "",
               rcclx_algos[i]->nccl ? ")" : "", kinds);
    }
}

static void put_codecs(void)
{
    printf("\nlow precision (RCCLX_LOW_PRECISION=name)\n");
    for (int c = RCCLX_CODEC_NONE + 1; c < RCCLX_CODEC_COUNT; c++)
        printf("  %-10s %s\n", rcclx_codecs[c]->name, rcclx_codecs[c]->about);
}

static void put_machine(const rcclx_machine *m)
{
    printf("\nmachine model (prices of `rcclx plan`)\n");
    for (size_t i = 0; i < sizeof(model) / sizeof(model[0]); i++)
        printf("  %-10s %6g %-5s %s\n", model[i].name, model_value(m, i), model[i].unit, model[i].about);
    printf("  %-10s %6zu KiB   where far begins\n", "cache", m->cache_bytes >> 10);
    printf("  %-10s %6zu KiB   scratch a lane\n", "slot", m->slot_bytes >> 10);
}

static void put_settings(void)
{
    char value[1024];
    int  n = 0;

    printf("\nsettings (all: rcclx info --options)\n");
    for (rcclx_option o = 0; o < RCCLX_OPT_COUNT; o++) {
        if (!rcclx_option_is_set(o))
            continue;
        rcclx_optvalue_print(rcclx_option_row(o), rcclx_option_value(o), value, sizeof(value));
        printf("  %s=%s  (%s)\n", rcclx_option_row(o)->name, value, rcclx_option_source(o));
        n++;
    }
    if (!n)
        printf("  all at their defaults\n");
}

static int info_text(const facts *f)
{
    printf("rcclx %s, API of NCCL %d.%d.%d\nbuilt by %s, for %s\n%s %s, %s\n\n", RCCLX_VERSION, NCCL_MAJOR, NCCL_MINOR,
           NCCL_PATCH, build, f->system.machine, f->system.sysname, f->system.release, f->system.nodename);
    put_devices(f);
    printf("\ntransports, best first\n");
    for (int i = 0; rcclx_transports[i]; i++)
        printf("  %-10s %s\n", rcclx_transports[i]->name, rcclx_transports[i]->about);
    tool_network_print();
    put_algorithms();
    put_codecs();
    put_machine(&f->machine);
    put_settings();
    return TOOL_OK;
}

/* --- JSON ------------------------------------------------------------------- */

static void json_probe(rcclx_json *j, const char *key, const tool_probe *p)
{
    rcclx_json_object_open(j, key);
    rcclx_json_bool(j, "works", p->works);
    rcclx_json_string(j, "why", p->why);
    rcclx_json_object_close(j);
}

static void json_devices(rcclx_json *j, const facts *f)
{
    rcclx_json_object_open(j, "devices");
    rcclx_json_object_open(j, "host");
    rcclx_json_int(j, "cores", f->cores);
    rcclx_json_int(j, "usable_cores", f->usable);
    rcclx_json_int(j, "memory", f->memory);
    rcclx_json_string(j, "isa", rcclx_isa_name());
    json_probe(j, "memfd", &f->memfd);
    json_probe(j, "cma", &f->cma);
    rcclx_json_object_close(j);
    tool_gpu_json_drivers(j);
    rcclx_json_object_close(j);
    tool_gpu_json_kernels(j);
}

static void json_algorithms(rcclx_json *j)
{
    rcclx_json_array_open(j, "algorithms");
    for (int i = 0; rcclx_algos[i]; i++) {
        rcclx_json_object_open(j, NULL);
        rcclx_json_string(j, "name", rcclx_algos[i]->name);
        rcclx_json_string(j, "nccl", rcclx_algos[i]->nccl);
        rcclx_json_string(j, "about", rcclx_algos[i]->about);
        rcclx_json_bool(j, "rank_order", rcclx_algos[i]->flags & RCCLX_HAS_ORDER);
        rcclx_json_array_open(j, "collectives");
        for (int k = 0; k < RCCLX_COLL_COUNT; k++)
            if (rcclx_algos[i]->kinds >> k & 1)
                rcclx_json_string(j, NULL, rcclx_kind_word((rcclx_kind)k));
        rcclx_json_array_close(j);
        rcclx_json_object_close(j);
    }
    rcclx_json_array_close(j);
}

static void json_lists(rcclx_json *j, const facts *f)
{
    rcclx_json_array_open(j, "transports");
    for (int i = 0; rcclx_transports[i]; i++) {
        rcclx_json_object_open(j, NULL);
        rcclx_json_string(j, "name", rcclx_transports[i]->name);
        rcclx_json_string(j, "about", rcclx_transports[i]->about);
        rcclx_json_object_close(j);
    }
    rcclx_json_array_close(j);
    tool_network_json(j);
    json_algorithms(j);
    rcclx_json_array_open(j, "codecs");
    for (int c = RCCLX_CODEC_NONE + 1; c < RCCLX_CODEC_COUNT; c++) {
        rcclx_json_object_open(j, NULL);
        rcclx_json_string(j, "name", rcclx_codecs[c]->name);
        rcclx_json_string(j, "about", rcclx_codecs[c]->about);
        rcclx_json_object_close(j);
    }
    rcclx_json_array_close(j);
    rcclx_json_object_open(j, "machine_model");
    for (size_t i = 0; i < sizeof(model) / sizeof(model[0]); i++)
        rcclx_json_real(j, model[i].name, model_value(&f->machine, i));
    rcclx_json_int(j, "cache_bytes", (int64_t)f->machine.cache_bytes);
    rcclx_json_int(j, "slot_bytes", (int64_t)f->machine.slot_bytes);
    rcclx_json_object_close(j);
}

/* Settings are an object of their own, as `info --options --json` gives it. */
static int info_json(const facts *f)
{
    rcclx_json j;

    fputs("{\"info\": ", stdout);
    rcclx_json_init(&j, stdout);
    rcclx_json_object_open(&j, NULL);
    rcclx_json_string(&j, "version", RCCLX_VERSION);
    rcclx_json_int(&j, "nccl_version", NCCL_VERSION_CODE);
    rcclx_json_string(&j, "build", build);
    rcclx_json_string(&j, "host", f->system.nodename);
    rcclx_json_string(&j, "kernel", f->system.release);
    rcclx_json_string(&j, "arch", f->system.machine);
    json_devices(&j, f);
    json_lists(&j, f);
    rcclx_json_object_close(&j);
    fputs(", \"settings\": ", stdout);
    rcclx_option_dump(stdout, true);
    fputs("}\n", stdout);
    return TOOL_OK;
}

static int show_options(bool json, bool markdown)
{
    if (json && markdown)
        return tool_usage("info", "--json and --markdown: one of them");
    if (markdown)
        rcclx_option_markdown(stdout);
    else
        rcclx_option_dump(stdout, json);
    return TOOL_OK;
}

int tool_info(int argc, char **argv)
{
    tool_args a      = {.who = "info", .options = options, .argc = argc, .argv = argv, .at = 1};
    bool      listed = false, markdown = false, json = false, machine = false;
    facts     f;
    int       id;

    tool_topology topology = {.nodes = 1};

    while ((id = tool_args_next(&a)) != TOOL_ARGS_END) {
        switch (id) {
        case 'o': listed = true; break;
        case 'm': markdown = true; break;
        case 'j': json = true; break;
        case 't': machine = true; break;
        case 'f': topology.file = a.value; break;
        case 'g': topology.gpus = a.value; break;
        case 's': topology.svg = a.value; break;
        case 'n':
            if (tool_int(&a, 1, RCCLX_NODES, &topology.nodes))
                return TOOL_USAGE;
            break;
        case 'h':
            fputs("rcclx info [options]: version, devices, transports, algorithms, settings\n\n", stdout);
            tool_options_print(stdout, options);
            return TOOL_OK;
        case TOOL_ARGS_WORD: return tool_usage("info", "what is '%s' for? (see --help)", a.value);
        default: return TOOL_USAGE;
        }
    }
    if (machine && (listed || markdown || json))
        return tool_usage("info", "--topology goes with --file, --nodes, --gpus and --svg alone");
    if (!machine && (topology.file || topology.gpus || topology.svg || topology.nodes > 1))
        return tool_usage("info", "--file, --nodes, --gpus and --svg go with --topology");
    if (machine)
        return tool_topology_show(&topology);
    if (listed)
        return show_options(json, markdown);
    if (markdown)
        return tool_usage("info", "--markdown goes with --options");
    gather(&f);
    return json ? info_json(&f) : info_text(&f);
}
