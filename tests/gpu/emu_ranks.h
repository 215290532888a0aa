#ifndef RCCLX_TESTS_EMU_RANKS_H
#define RCCLX_TESTS_EMU_RANKS_H

/* For tests of communicators on emulated GPUs, after check.h: n ranks of this process.
 *
 *   emu_settings("NCCL_PROTO=LL", NULL);         the environment, and nothing else of ours
 *   emu_ranks *e = emu_open(n, nbytes);          a device, a stream and two buffers a rank
 *   emu_put(e, r, e->in[r], host, nbytes);  ...  emu_get(e, r, host, e->out[r], nbytes);
 *   emu_close(e);                                                                    */
#include "base/log.h"
#include "base/option.h"
#include "device/gpu.h"
#include "nccl.h"
#include "rcclx.h"

enum { EMU_MOST = 16 };

typedef struct {
    const rcclx_gpu *gpu;
    int              n;
    size_t           nbytes;
    ncclComm_t       comm[EMU_MOST];
    int              device[EMU_MOST];
    char            *in[EMU_MOST], *out[EMU_MOST];
    rcclx_gpu_stream stream[EMU_MOST];
} emu_ranks;

static inline const rcclx_gpu *emu_gpu(void)
{
    char why[200];
    const rcclx_gpu *g = rcclx_gpu_open(RCCLX_GPU_EMU, why, sizeof why);

    CHECK(g && g->count >= 8, "emulated GPUs: %s", g ? "too few" : why);
    return g;
}

/* NAME=value ..., NULL. */
static inline void emu_settings(const char *first, ...)
{
    static const char *const all[] = { "NCCL_PROTO", "NCCL_ALGO", "RCCLX_ALGO", "RCCLX_TIMEOUT", "RCCLX_WARN_AFTER", "RCCLX_SEQ_START",
                                       "NCCL_P2P_DISABLE", "RCCLX_GPU_LANES", "NCCL_MAX_CTAS", "RCCLX_LL128",
                                       "RCCLX_EMU_UNREACHABLE" };
    va_list ap;

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        unsetenv(all[i]);
    setenv("RCCLX_DEVICE", "emu", 1);
    setenv("RCCLX_INIT_TIMEOUT", "30", 1);
    if (!getenv("NCCL_DEBUG"))
        setenv("NCCL_DEBUG", "NONE", 1);
    va_start(ap, first);
    for (const char *s = first; s; s = va_arg(ap, const char *)) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(s, "="), s);
        setenv(name, s + strcspn(s, "=") + 1, 1);
    }
    va_end(ap);
    rcclx_option_reload();
}

#define EMU_OK(call) CHECK((call) == ncclSuccess, "%s", ncclGetLastError(NULL))
#define EMU_DO(call) CHECK((call) == RCCLX_OK, "%s", rcclx_last_error())

static inline bool emu_alloc(emu_ranks *e, int r, char **p, size_t nbytes)
{
    rcclx_gpu_scope s;
    void *made = NULL;

    EMU_DO(e->gpu->enter(&s, e->device[r]));
    const bool ok = EMU_DO(e->gpu->alloc(&made, nbytes, false));
    e->gpu->leave(&s);
    *p = made;
    return ok;
}

static inline void emu_free(const emu_ranks *e, int r, void *p)
{
    rcclx_gpu_scope s;

    EMU_DO(e->gpu->enter(&s, e->device[r]));
    if (p)
        EMU_DO(e->gpu->free(p));
    e->gpu->leave(&s);
}

static inline void emu_copy(const emu_ranks *e, int r, void *to, const void *from, size_t nbytes)
{
    rcclx_gpu_scope s;

    EMU_DO(e->gpu->enter(&s, e->device[r]));
    if (nbytes)
        EMU_DO(e->gpu->copy(to, from, nbytes, e->stream[r]));
    EMU_DO(e->gpu->stream_sync(e->stream[r]));
    e->gpu->leave(&s);
}

static inline void emu_wait(const emu_ranks *e, int r)
{
    emu_copy(e, r, NULL, NULL, 0);
}

static inline emu_ranks *emu_open(int n, size_t nbytes)
{
    static emu_ranks e;
    rcclx_gpu_scope s;

    e = (emu_ranks){ .gpu = emu_gpu(), .n = n, .nbytes = nbytes };
    for (int r = 0; r < n; r++) {
        e.device[r] = r % e.gpu->count;
        EMU_DO(e.gpu->enter(&s, e.device[r]));
        EMU_DO(e.gpu->stream_create(&e.stream[r]));
        e.gpu->leave(&s);
        emu_alloc(&e, r, &e.in[r], nbytes);
        emu_alloc(&e, r, &e.out[r], nbytes);
    }
    EMU_OK(ncclCommInitAll(e.comm, n, e.device));
    return &e;
}

static inline void emu_close(emu_ranks *e)
{
    rcclx_gpu_scope s;

    for (int r = 0; r < e->n; r++) {
        if (e->comm[r])
            EMU_OK(ncclCommDestroy(e->comm[r]));
        emu_free(e, r, e->in[r]);
        emu_free(e, r, e->out[r]);
        EMU_DO(e->gpu->enter(&s, e->device[r]));
        EMU_DO(e->gpu->stream_destroy(e->stream[r]));
        e->gpu->leave(&s);
    }
}

#endif
