/* Copies are found among the loaded objects by rcclxDump, which all of them export and
 * which also says whether there are communicators:
 *
 *   objects named *ccl*  --dlsym-->  rcclxDump  --dladdr-->  whose file?  not mine: a twin
 *                                    rcclxDump("process")  -->  "communicators":n
 *
 * So whoever of two copies is used last is the one that warns. Nothing is shared between
 * them: ranks of both may meet in one communicator, as those of two processes, if both have
 * the same version (root.c). */
#include "comm/twin.h"

#include "base/log.h"
#include "base/process.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8, PATH = 512 };

typedef int dump(const char *what, void *comm, int json, char *buf, size_t n, size_t *needed);

typedef struct {
    int  n;
    char path[MOST][PATH];
} objects;

/* Only names are taken: in here the loader holds a lock. */
static int note(struct dl_phdr_info *o, size_t size, void *context)
{
    objects *all = context;
    const char *file = o->dlpi_name ? strrchr(o->dlpi_name, '/') : NULL;

    (void)size;
    if (file && strstr(file, "ccl") && strlen(o->dlpi_name) < PATH && all->n < MOST)
        snprintf(all->path[all->n++], PATH, "%s", o->dlpi_name);
    return 0;
}

static bool has_communicators(void *function)
{
    char text[512] = "";
    dump *d;

    memcpy(&d, &function, sizeof(d)); /* ISO C has no cast between pointers to objects and to functions */
    if (d("process", NULL, 1, text, sizeof(text), NULL))
        return false;
    const char *at = strstr(text, "\"communicators\"");
    return at && strtol(at + strcspn(at, "0123456789"), NULL, 10) > 0;
}

/* Is it, or what it is linked to, another copy that is in use? */
static bool is_twin(const char *path, const Dl_info *mine, char *file, size_t n)
{
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    void *function = object ? dlsym(object, "rcclxDump") : NULL;
    Dl_info its;

    const bool twin = function && dladdr(function, &its) && its.dli_fbase != mine->dli_fbase && has_communicators(function);
    if (twin)
        snprintf(file, n, "%s", its.dli_fname);
    if (object)
        dlclose(object);
    return twin;
}

void rcclx_twin_look(void)
{
    static const char here = 0;
    int *told = &rcclx_process()->twin;
    objects all = { .n = 0 };
    Dl_info mine;
    char file[PATH];

    if (__atomic_load_n(told, __ATOMIC_RELAXED) || !dladdr(&here, &mine))
        return;
    dl_iterate_phdr(note, &all);
    for (int i = 0; i < all.n; i++) {
        if (!is_twin(all.path[i], &mine, file, sizeof(file)) || __atomic_exchange_n(told, 1, __ATOMIC_RELAXED))
            continue;
        RCCLX_ALERT("two copies of this library are in use in this process, %s and %s: neither knows of the other's "
                    "communicators on a GPU, nor of memory that the other has registered or allocated; load one of them (see LD_PRELOAD, "
                    "LD_LIBRARY_PATH, ldd)", file, mine.dli_fname);
        return;
    }
}
