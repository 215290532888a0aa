/* Which GPUs there are, and memory as an application has it.
 *
 * A driver that has been loaded is of no use in a forked child, and the ranks
 * are forked: so a child of its own looks, tells through a pipe, and is gone.
 *
 *   perf ----fork----> child: opens a driver, counts its devices
 *     ^                  |
 *     +----- pipe -------+
 */
#include "perf.h"

#include "tool.h"

#include "base/log.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    int  count; /* -1: no such driver */
    char why[200];
} answer;

static void look(int kind, int to)
{
    answer           a   = {.count = -1};
    const rcclx_gpu *gpu = rcclx_gpu_open((rcclx_gpu_kind)kind, a.why, sizeof(a.why));

    if (gpu)
        a.count = gpu->count;
    if (gpu && !gpu->count)
        snprintf(a.why, sizeof(a.why), "%s has no devices", gpu->about);
    _exit(write(to, &a, sizeof(a)) != sizeof(a));
}

static answer ask(int kind)
{
    answer a = {.count = -1, .why = "cannot start a process to look for them"};
    int    ends[2];
    pid_t  child;

    if (pipe(ends))
        return a;
    fflush(NULL);
    child = fork();
    if (child == 0)
        look(kind, ends[1]);
    close(ends[1]);
    if (child > 0 && read(ends[0], &a, sizeof(a)) != sizeof(a))
        a = (answer){.count = -1, .why = "the driver ended the process that looked for them"};
    close(ends[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    return a;
}

int perf_gpu_find(const char *word, int *kind, int *count)
{
    const int which = tool_word_index("cuda|hip|emu", word);
    answer    a;

    *kind  = PERF_HOST;
    *count = 0;
    if (tool_word_index("host", word) == 0)
        return TOOL_OK;
    for (int k = which < 0 ? RCCLX_GPU_CUDA : which; k <= (which < 0 ? RCCLX_GPU_HIP : which); k++) {
        a = ask(k);
        if (a.count > 0) {
            *kind  = k;
            *count = a.count;
            return TOOL_OK;
        }
    }
    if (which < 0) /* auto: then host memory */
        return TOOL_OK;
    return tool_fail("perf", "--device %s: no GPUs: %s; --device host measures host memory", word, a.why);
}

/* --- plain memory ------------------------------------------------------------ */

/* The driver's own functions: an address is 64 bits, success is 0. */
typedef int alloc_fn(uint64_t *address, size_t nbytes);
typedef int free_fn(uint64_t address);

static void *driver_function(const rcclx_gpu *gpu, const char *cuda, const char *hip)
{
    static const char *const names[][3] = {
        [RCCLX_GPU_CUDA] = {"libcuda.so.1"},
        [RCCLX_GPU_HIP]  = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"},
    };

    for (int i = 0; gpu->kind != RCCLX_GPU_EMU && i < 3 && names[gpu->kind][i]; i++) {
        void *library = dlopen(names[gpu->kind][i], RTLD_NOW | RTLD_NOLOAD); /* the one that is in use */

        if (library)
            return dlsym(library, gpu->kind == RCCLX_GPU_CUDA ? cuda : hip);
    }
    return NULL;
}

void *perf_gpu_alloc(const rcclx_gpu *gpu, size_t nbytes, const char **why)
{
    void     *symbol = driver_function(gpu, "cuMemAlloc_v2", "hipMalloc");
    alloc_fn *make;
    uint64_t  address = 0;
    void     *p       = NULL;

    *why = "the driver refuses";
    if (symbol) {
        memcpy(&make, &symbol, sizeof(make));
        return make(&address, nbytes) ? NULL : (void *)(uintptr_t)address;
    }
    if (gpu->alloc(&p, nbytes, false) == RCCLX_OK) /* the emulator has but one kind */
        return p;
    *why = rcclx_last_error();
    return NULL;
}

void perf_gpu_free(const rcclx_gpu *gpu, void *p)
{
    void    *symbol = driver_function(gpu, "cuMemFree_v2", "hipFree");
    free_fn *give_back;

    if (!symbol) {
        gpu->free(p);
        return;
    }
    memcpy(&give_back, &symbol, sizeof(give_back));
    give_back((uint64_t)(uintptr_t)p);
}
