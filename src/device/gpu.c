/* Finding a driver: the library is opened, its entry points looked up by the table
 * of gpu_entry.h, and a table of functions handed out.
 *
 *   user         g->alloc(...)                   knows no driver
 *   below here   cuda_alloc     hip_alloc        which driver
 *                rcclx_driver_alloc(d, ...)      what to do (gpu_alloc.c, ...)
 *                d->f.alloc     = cuMemAlloc_v2 or hipMalloc
 *
 * A driver is opened once a process and stays: closing one is not safe. A library that
 * is in the process already (a framework may bring its own) is preferred to others. */
#include "device/gpu_entry.h"

#include "base/mem.h"
#include "base/process.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { R = 1, O = 0, DRIVERS = 2 };

typedef struct { bool need; const char *symbol[DRIVERS]; } row; /* by kind: CUDA, HIP */

static const row entries[RCCLX_ENTRY_COUNT] = {
#define X(need, name, cuda, hip, args) [RCCLX_ENTRY_##name] = { need, { cuda, hip } },
    RCCLX_GPU_ENTRIES(X)
#undef X
};

static const char *const libraries[DRIVERS][4] = {
    [RCCLX_GPU_CUDA] = { "libcuda.so.1" },
    [RCCLX_GPU_HIP] = { "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5" },
};

/* The process's drivers. */
typedef struct {
    pthread_mutex_t lock; /* guards the opening */
    struct {
        bool          tried;
        rcclx_driver *driver; /* NULL: there is none, and why */
        char          why[256];
    } of[DRIVERS];
} gpus;

static gpus *get(void)
{
    rcclx_process_state *p = rcclx_process();

    pthread_mutex_lock(&p->lock);
    if (!p->gpus) {
        gpus *g = RCCLX_NEW(gpus);
        if (g)
            pthread_mutex_init(&g->lock, NULL);
        __atomic_store_n((gpus **)&p->gpus, g, __ATOMIC_RELEASE);
    }
    gpus *g = p->gpus;
    pthread_mutex_unlock(&p->lock);
    return g;
}

/* Asked by every call. NULL in a child made by fork(), which must not touch its parent's driver. */
static rcclx_driver *driver_of(rcclx_gpu_kind kind)
{
    const gpus *g = __atomic_load_n((gpus **)&rcclx_process()->gpus, __ATOMIC_ACQUIRE);

    return g ? g->of[kind].driver : NULL;
}

static rcclx_status forked(void)
{
    return RCCLX_FAIL(RCCLX_SYSTEM, "this process was made by fork() after its parent had begun to use GPUs, and cannot use "
                      "them: fork first, or start a new program (Python: multiprocessing's spawn)");
}

/* ---- the functions of both kinds */

#define PASS(...) d, __VA_ARGS__
#define X(name, passed, ...)                                                                                                 \
    static rcclx_status cuda_##name(__VA_ARGS__)                                                                             \
    {                                                                                                                        \
        rcclx_driver *d = driver_of(RCCLX_GPU_CUDA);                                                                         \
        return d ? rcclx_driver_##name(PASS passed) : forked();                                                              \
    }                                                                                                                        \
    static rcclx_status hip_##name(__VA_ARGS__)                                                                              \
    {                                                                                                                        \
        rcclx_driver *d = driver_of(RCCLX_GPU_HIP);                                                                          \
        return d ? rcclx_driver_##name(PASS passed) : forked();                                                              \
    }
RCCLX_DRIVER_FUNCTIONS(X)
#undef X

/* Those that return something else, or take nothing. */
#define OTHERS(prefix, kind)                                                                                                 \
    static void prefix##_leave(const rcclx_gpu_scope *s)                                                                     \
    {                                                                                                                        \
        if (driver_of(kind))                                                                                                 \
            rcclx_driver_leave(driver_of(kind), s);                                                                          \
    }                                                                                                                        \
    static bool prefix##_reaches(int device, int peer)                                                                       \
    {                                                                                                                        \
        return driver_of(kind) && rcclx_driver_reaches(driver_of(kind), device, peer);                                       \
    }                                                                                                                        \
    static int prefix##_relax(void)                                                                                          \
    {                                                                                                                        \
        return driver_of(kind) ? rcclx_driver_relax(driver_of(kind)) : 0;                                                    \
    }                                                                                                                        \
    static void prefix##_unrelax(int before)                                                                                 \
    {                                                                                                                        \
        if (driver_of(kind))                                                                                                 \
            rcclx_driver_unrelax(driver_of(kind), before);                                                                   \
    }                                                                                                                        \
    static rcclx_status prefix##_device_sync(void)                                                                           \
    {                                                                                                                        \
        rcclx_driver *d = driver_of(kind);                                                                                   \
        return d ? rcclx_driver_check(d, RCCLX_ENTRY_device_sync, d->f.device_sync()) : forked();                            \
    }
OTHERS(cuda, RCCLX_GPU_CUDA)
OTHERS(hip, RCCLX_GPU_HIP)

static void fill_table(rcclx_gpu *g, bool hip)
{
    g->kind = hip ? RCCLX_GPU_HIP : RCCLX_GPU_CUDA;
    g->name = hip ? "hip" : "cuda";
#define X(name, passed, ...) g->name = hip ? hip_##name : cuda_##name;
    RCCLX_DRIVER_FUNCTIONS(X)
#undef X
    g->leave = hip ? hip_leave : cuda_leave;
    g->reaches = hip ? hip_reaches : cuda_reaches;
    g->relax = hip ? hip_relax : cuda_relax;
    g->unrelax = hip ? hip_unrelax : cuda_unrelax;
    g->device_sync = hip ? hip_device_sync : cuda_device_sync;
}

/* ---- opening */

static void *symbol(void *library, const char *name, void *pointer)
{
    void *p = name ? dlsym(library, name) : NULL;

    memcpy(pointer, &p, sizeof(p)); /* ISO C has no cast between pointers to objects and to functions */
    return p;
}

/* All entry points; false: a required one is missing, and why. */
static bool resolve(rcclx_driver *d, void *library, char *why, size_t nwhy)
{
    for (int i = 0; i < RCCLX_ENTRY_COUNT; i++) {
        const char *name = entries[i].symbol[d->hip];
        void *p = symbol(library, name, (char *)&d->f + (size_t)i * sizeof(void (*)(void)));
        if (!p && name && entries[i].need) {
            snprintf(why, nwhy, "%s has no %s: the driver is too old, or this is another library of the same name", d->library,
                     name);
            return false;
        }
    }
    if (d->hip) {
        symbol(library, "hipGetErrorName", &d->hip_error_name);
        symbol(library, "hipGetErrorString", &d->hip_error_text);
    }
    return true;
}

/* An error while there is no device to name. */
static bool refuse(const rcclx_driver *d, rcclx_gpu_entry entry, int code, char *why, size_t nwhy)
{
    const rcclx_gpu_error e = rcclx_driver_error(d, code);

    snprintf(why, nwhy, "%s of %s failed: %s (%d): %s%s%s", rcclx_driver_symbol(d, entry), d->library, e.name, code, e.text,
             *e.advice ? "; " : "", e.advice);
    rcclx_driver_forget(d);
    return false;
}

static bool nobody(int code)
{
    return code == RCCLX_GPU_E_NONE || code == RCCLX_GPU_E_BAD_DEVICE;
}

/* Start it and count devices. A driver that works but has no device is one with count 0. */
static bool start(rcclx_driver *d, char *why, size_t nwhy)
{
    int e = d->f.init(0);
    if (e) {
        refuse(d, RCCLX_ENTRY_init, e, why, nwhy);
        if (!nobody(e))
            return false;
    }
    if (d->f.version(&d->version))
        d->version = 0;
    d->major = d->version / (d->hip ? 10000000 : 1000);
    const int minor = d->hip ? d->version / 100000 % 100 : d->version % 1000 / 10;
    snprintf(d->gpu.about, sizeof(d->gpu.about), "%s %d.%d (%s)", d->hip ? "HIP" : "CUDA driver", d->major, minor, d->library);
    int n = 0;
    if (!e && (e = d->f.device_count(&n)) != 0) {
        refuse(d, RCCLX_ENTRY_device_count, e, why, nwhy);
        if (!nobody(e))
            return false;
        n = 0;
    }
    for (d->gpu.count = 0; d->gpu.count < n && d->gpu.count < RCCLX_GPU_MAX; d->gpu.count++) {
        e = d->f.device_get(&d->handles[d->gpu.count], d->gpu.count);
        if (e)
            return refuse(d, RCCLX_ENTRY_device_get, e, why, nwhy);
    }
    if (!n && !*why)
        snprintf(why, nwhy, "%s found no device", d->library);
    return true;
}

static void *open_any(rcclx_driver *d, const char *const *names, char *why, size_t nwhy)
{
    static const int modes[] = { RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD, RTLD_NOW | RTLD_LOCAL };

    for (int m = 0; m < 2; m++) {
        for (const char *const *name = names; *name; name++) {
            void *library = dlopen(*name, modes[m]);
            if (library) {
                const char *file = strrchr(*name, '/');
                snprintf(d->library, sizeof(d->library), "%s", file ? file + 1 : *name);
                return library;
            }
            const char *text = dlerror();
            if (m == 1 && name == names)
                snprintf(why, nwhy, "%s", text ? text : *name);
        }
    }
    for (const char *const *name = names + 1; *names && *name; name++)
        snprintf(why + strlen(why), nwhy - strlen(why), "%s%s", name == names + 1 ? "; nor is there " : ", ", *name);
    return NULL;
}

static rcclx_driver *load(rcclx_gpu_kind kind, const char *const *names, char *why, size_t nwhy)
{
    rcclx_driver *d = RCCLX_NEW(rcclx_driver);
    void *library = NULL;

    if (!d) {
        snprintf(why, nwhy, "out of memory");
        return NULL;
    }
    d->hip = kind == RCCLX_GPU_HIP;
    pthread_mutex_init(&d->making, NULL);
    pthread_mutex_init(&d->lock, NULL);
    fill_table(&d->gpu, d->hip);
    library = open_any(d, names, why, nwhy);
    if (library && resolve(d, library, why, nwhy) && start(d, why, nwhy))
        return d;
    rcclx_mem_free(d);
    return NULL;
}

static const rcclx_gpu *open_kind(rcclx_gpu_kind kind, const char *const *names, char *why, size_t nwhy)
{
    gpus *g = get();

    if (!g) {
        snprintf(why, nwhy, "out of memory");
        return NULL;
    }
    pthread_mutex_lock(&g->lock);
    if (!g->of[kind].tried)
        g->of[kind].driver = load(kind, names, g->of[kind].why, sizeof(g->of[kind].why));
    g->of[kind].tried = true;
    snprintf(why, nwhy, "%s", g->of[kind].why);
    const rcclx_driver *d = g->of[kind].driver;
    pthread_mutex_unlock(&g->lock);
    return d ? &d->gpu : NULL;
}

const rcclx_gpu *rcclx_gpu_open(rcclx_gpu_kind kind, char *why, size_t nwhy)
{
    return kind == RCCLX_GPU_EMU ? rcclx_gpu_emu(why, nwhy) : open_kind(kind, libraries[kind], why, nwhy);
}

const rcclx_gpu *rcclx_gpu_open_at(rcclx_gpu_kind kind, const char *library, char *why, size_t nwhy)
{
    const char *const names[] = { library, NULL };

    return open_kind(kind, names, why, nwhy);
}

/* ---- errors */

/* What to do about them. The drivers' numbers are the same here. */
static const struct { int code; const char *advice; } advice[] = {
    { 2, "free memory on the device, or use fewer and smaller buffers" },
    { 3, "a process made by fork() cannot use the GPUs of its parent: start a new program" },
    { 46, "the device is used by another process alone (nvidia-smi -c 0 lets others in)" },
    { 100, "is a GPU visible here (CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, a container's settings, /dev/nvidia*, /dev/kfd)?" },
    { 101, "is a GPU visible here (CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, a container's settings, /dev/nvidia*, /dev/kfd)?" },
    { 209, "the library holds no kernels for this device: build it with its architecture" },
    { 214, "an uncorrectable memory error: look into dmesg, and reset the device" },
    { 217, "the devices cannot reach each other's memory: see nvidia-smi topo -p2p rw, or rocm-smi --showtopo" },
    { 222, "the driver is older than the compiler that built the kernels: update the driver" },
    { 700, "a kernel before this used an address that is not its own: find it with compute-sanitizer, or AMD_LOG_LEVEL=3" },
    { 701, "the kernel needs more registers or shared memory than a block may have, or takes other arguments" },
    { 702, "a kernel ran longer than the system lets it" },
    { 705, "peer access cannot be enabled here" },
    { 719, "a kernel before this ended badly: find it with compute-sanitizer, or AMD_LOG_LEVEL=3" },
    { 802, "the switches of this machine are not ready: is nvidia-fabricmanager running?" },
    { 803, "the driver's library and its kernel module differ in version: restart, or give the container the host's" },
    { 900, "not allowed while a stream is captured into a graph: do it before the capture" },
    { 901, "the capture is lost: find the call that broke it with compute-sanitizer or by eager mode" },
    { 906, "the default stream cannot be used while another thread captures: use a stream of your own" },
};

rcclx_gpu_error rcclx_driver_error(const rcclx_driver *d, int code)
{
    rcclx_gpu_error e = { "unknown error", "the driver has no text for it", "" };
    const char *name = NULL, *text = NULL;

    if (d->hip) {
        name = d->hip_error_name ? d->hip_error_name(code) : NULL;
        text = d->hip_error_text ? d->hip_error_text(code) : NULL;
    } else if (d->f.error_name && d->f.error_text) {
        if (d->f.error_name(code, &name))
            name = NULL;
        if (d->f.error_text(code, &text))
            text = NULL;
    }
    if (name)
        e.name = name;
    if (text)
        e.text = text;
    for (size_t i = 0; i < sizeof(advice) / sizeof(*advice); i++)
        if (advice[i].code == code)
            e.advice = advice[i].advice;
    return e;
}

const char *rcclx_driver_symbol(const rcclx_driver *d, rcclx_gpu_entry e)
{
    const char *name = entries[e].symbol[d->hip];

    return name ? name : entries[e].symbol[!d->hip];
}

void rcclx_driver_forget(const rcclx_driver *d)
{
    if (d->f.last_error)
        d->f.last_error();
}

rcclx_status rcclx_driver_fail(rcclx_driver *d, rcclx_gpu_entry entry, int code)
{
    const char *name = rcclx_driver_symbol(d, entry);
    int device = 0;

    if (code == RCCLX_GPU_E_MISSING)
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "%s has no %s: a newer driver may", d->gpu.about, name);
    const rcclx_gpu_error e = rcclx_driver_error(d, code);
    char where[32] = "";
    if ((d->hip ? d->f.device_current(&device) : d->f.context_device(&device)) == 0)
        snprintf(where, sizeof(where), " on device %d", device);
    rcclx_driver_forget(d);
    return RCCLX_FAIL(code == RCCLX_GPU_E_MEMORY ? RCCLX_NOMEM : RCCLX_SYSTEM, "%s%s failed: %s (%d): %s%s%s", name, where,
                      e.name, code, e.text, *e.advice ? "; " : "", e.advice);
}
