#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_size_t       held;
static _Atomic int64_t     countdown = -1;

static int refused(void)
{
    if (atomic_load_explicit(&countdown, memory_order_relaxed) < 0)
        return 0;
    return atomic_fetch_sub(&countdown, 1) == 0;
}

void *rcclx_mem_alloc(size_t nbytes)
{
    void *p = refused() ? NULL : calloc(1, nbytes ? nbytes : 1);
    if (p)
        atomic_fetch_add_explicit(&held, 1, memory_order_relaxed);
    return p;
}

void *rcclx_mem_realloc(void *p, size_t nbytes)
{
    if (!p)
        return rcclx_mem_alloc(nbytes);
    return refused() ? NULL : realloc(p, nbytes ? nbytes : 1);
}

void rcclx_mem_free(void *p)
{
    if (!p)
        return;
    atomic_fetch_sub_explicit(&held, 1, memory_order_relaxed);
    free(p);
}

char *rcclx_mem_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *p = rcclx_mem_alloc(n);
    if (p)
        memcpy(p, s, n);
    return p;
}

size_t rcclx_mem_held(void)
{
    return atomic_load(&held);
}

void rcclx_mem_fail_after(int64_t n)
{
    atomic_store(&countdown, n);
}
