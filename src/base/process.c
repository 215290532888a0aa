/* The process's one state, made on first use and made anew in a forked child:
 * memory mapped by the parent stays mapped there, but is not ours to hand out. */
#include "base/process.h"

#include "base/option.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static rcclx_process_state state;
static pthread_once_t      once = PTHREAD_ONCE_INIT;
static atomic_bool         made;

void rcclx_random(void *buf, unsigned nbytes)
{
    unsigned have = 0;
    while (have < nbytes) {
        ssize_t n = getrandom((char *)buf + have, nbytes - have, 0);
        if (n > 0)
            have += (unsigned)n;
    }
}

void rcclx_thread_name(const char *name)
{
    if (rcclx_option_int(RCCLX_OPT_SET_THREAD_NAME))
        pthread_setname_np(pthread_self(), name);
}

static uint64_t hash(uint64_t h, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)s[i]) * 0x100000001b3u;
    return h;
}

/* The boot id is new at every boot and the same in every container of a
 * machine; the host name stands in where it cannot be read. Processes of unlike network
 * namespaces do not find each other's sockets, and count as on two machines. */
static uint64_t host_hash(void)
{
    char text[128] = "";
    const char *name = rcclx_option_str(RCCLX_OPT_HOSTID);
    struct stat net = { 0 };
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text)) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0) {
        gethostname(text, sizeof(text) - 1);
        n = (ssize_t)strlen(text);
    }
    const uint64_t machine = hash(0xcbf29ce484222325u, text, (size_t)n);
    if (stat("/proc/self/ns/net", &net) == 0)
        n = snprintf(text, sizeof(text), "%llx", (unsigned long long)net.st_ino);
    const uint64_t here = hash(machine, text, (size_t)n);
    return *name ? hash(0xcbf29ce484222325u, name, strlen(name)) : here;
}

static void fill(void)
{
    pthread_mutex_init(&state.lock, NULL);
    pthread_mutex_init(&state.posting, NULL);
    state.pid = (int)getpid();
    state.host = host_hash();
    rcclx_random(&state.key, sizeof(state.key));
    state.arena = state.mappings = state.segments = state.handles = state.streams = state.gpus = NULL;
    state.gpu_memory = state.emulated = state.ucx = state.plugins = state.tuner = NULL;
    state.twin = 0;
}

static void first(void)
{
    fill();
    pthread_atfork(NULL, NULL, fill);
    atomic_store_explicit(&made, true, memory_order_release);
}

rcclx_process_state *rcclx_process(void)
{
    /* asked by every operation */
    if (__builtin_expect(!atomic_load_explicit(&made, memory_order_acquire), 0))
        pthread_once(&once, first);
    return &state;
}
