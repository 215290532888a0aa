/* Two libraries with the same symbols in one process: RTLD_LOCAL keeps each
 * one's symbols from the other, RTLD_DEEPBIND makes each prefer its own (and
 * not those linked into this program), and the path is asked of the loader
 * afterwards, not believed. */
#include "nccl_table.h"

#include "tool.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Sanitizers refuse RTLD_DEEPBIND, since it would also bypass them. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OPEN_FLAGS (RTLD_NOW | RTLD_LOCAL)
#else
#define OPEN_FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)
#endif

static int find(nccl_table *t, const char *path, const char *name, int required, void *slot)
{
    void *symbol = dlsym(t->handle, name);

    if (!symbol && required)
        return tool_fail("perf", "%s has no %s: it is not a library with NCCL's interface", path, name);
    memcpy(slot, &symbol, sizeof(symbol)); /* a data pointer may not be cast to a function's */
    return TOOL_OK;
}

static void find_path(nccl_table *t, const char *asked)
{
    Dl_info info;
    void   *symbol = dlsym(t->handle, "ncclGetVersion");
    char   *real   = symbol && dladdr(symbol, &info) ? realpath(info.dli_fname, NULL) : NULL;

    snprintf(t->path, sizeof(t->path), "%s", real ? real : asked);
    free(real);
}

static int find_version(nccl_table *t)
{
    const ncclResult_t r = t->ncclGetVersion(&t->version);
    const int          v = t->version;
    int                used;

    if (r != ncclSuccess)
        return tool_fail("perf", "%s: ncclGetVersion: %s", t->path, t->ncclGetErrorString(r));
    used = v >= 10000 ? snprintf(t->about, sizeof(t->about), "%d.%d.%d", v / 10000, v / 100 % 100, v % 100)
                      : snprintf(t->about, sizeof(t->about), "%d.%d.%d", v / 1000, v / 100 % 10, v % 100);
    if (t->rcclxVersion)
        snprintf(t->about + used, sizeof(t->about) - (size_t)used, ", rcclx %s", t->rcclxVersion());
    return TOOL_OK;
}

int nccl_table_open(nccl_table *t, const char *path)
{
    memset(t, 0, sizeof(*t));
    t->handle = dlopen(path, OPEN_FLAGS);
    if (!t->handle)
        return tool_fail("perf", "cannot open the library: %s", dlerror());
#define X(name, required)                                                     \
    if (find(t, path, #name, required, &t->name))                             \
        return TOOL_FAILED;
    NCCL_TABLE_LIST(X)
#undef X
    find_path(t, path);
    return find_version(t);
}

void nccl_table_linked(nccl_table *t)
{
    char *real = realpath("/proc/self/exe", NULL);

    memset(t, 0, sizeof(*t));
#define X(name, required) t->name = name;
    NCCL_TABLE_LIST(X)
#undef X
    snprintf(t->path, sizeof(t->path), "%s", real ? real : "this program");
    free(real);
    find_version(t);
}

void nccl_table_own(char *path, size_t nbytes)
{
    char          self[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char         *slash;

    self[n > 0 ? n : 0] = 0;
    slash               = strrchr(self, '/');
    if (slash)
        *slash = 0;
    snprintf(path, nbytes, "%s/../lib/libnccl.so.2", slash ? self : ".");
}
