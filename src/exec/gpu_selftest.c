/* What the ways between the devices do, tried at init before anything depends on it:
 *
 *   rank r                                   each other rank
 *   step 1: here, windows are mapped         the same
 *   gp_litmus  <------- lines ------->       gp_litmus            (kernels/litmus.h)
 *   deaf, torn: a bit a peer; step 2         the same
 *   all read all words, and come to the same result
 *
 *   windows not mapped by all, or a peer twice deaf  -->  windows in host memory, from step 1 again
 *   a line was torn, or host memory                  -->  no LL128
 *
 * The lines are wiped out before READY is said, so that none is taken for data. */
#include "exec/gpu_team.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "device/kernels/litmus.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

enum {
    VERDICT_AT = 3072,              /* in the page of control */
    ATTEMPTS = 2,                   /* somebody was slow, perhaps */
    ROUNDS = 256, EMULATED_ROUNDS = 16,
    LEAVE_NS = 2000000000,          /* beyond its limit, for a kernel to end */
    BASE = 0x52000000, BASE_STEP = 0x10000,
};

typedef struct {
    rcclx_team  *t;
    rcclx_gpu_fn kernel;
    uint64_t     began;
    double       timeout;
    uint32_t     step;              /* the last one said */
    int          deaf[2], torn[2];  /* the first pair: who noticed, of whom; -1: none */
} test;

/* --- the ranks meet ------------------------------------------------------------------ */

static rcclx_status look_up(const test *x, int r)
{
    const rcclx_team *t = x->t;
    const rcclx_ident *id = &t->area[r]->ident;

    if (atomic_load_explicit(&id->state, memory_order_acquire) == RCCLX_RANK_UNFIT)
        return RCCLX_FAIL(RCCLX_PEER_LOST, "rank %d of %d: init: rank %d failed: %.700s", t->rank, t->nranks, r, id->text);
    if (atomic_load(&t->aborted))
        return RCCLX_ABORTED;
    if (rcclx_life_dead(t->peer[r].life))
        return RCCLX_FAIL(RCCLX_PEER_LOST, "rank %d of %d: init: rank %d (pid %d) has ended while the links between devices were "
                          "tried", t->rank, t->nranks, r, t->peer[r].pid);
    if (x->timeout > 0 && (double)(rcclx_clock_ns() - x->began) * 1e-9 > x->timeout)
        return RCCLX_FAIL(RCCLX_TIMEOUT, "rank %d of %d: init: rank %d (pid %d) has not tried its links after %.0f s; is it "
                          "stopped?", t->rank, t->nranks, r, t->peer[r].pid, x->timeout);
    return RCCLX_OK;
}

/* Say that I have come to the next step, and wait until all have. */
static rcclx_status meet(test *x)
{
    const rcclx_team *t = x->t;

    atomic_store_explicit(&t->area[t->rank]->device.step, ++x->step, memory_order_release);
    for (int r = 0, n = 0; r < t->nranks;) {
        if (atomic_load_explicit(&t->area[r]->device.step, memory_order_acquire) >= x->step) {
            r++;
            continue;
        }
        RCCLX_TRY(look_up(x, r));
        if (n++ < 200) {
            sched_yield();
        } else {
            const struct timespec nap = { 0, 100000 };
            nanosleep(&nap, NULL);
        }
    }
    return RCCLX_OK;
}

/* --- the kernel ------------------------------------------------------------------------ */

static gp_litmus_args args_of(const rcclx_gpu_team *g, const rcclx_team *t, uint32_t base)
{
    const bool emulated = g->gpu->kind == RCCLX_GPU_EMU;
    gp_litmus_args a = {
        .control = (uint64_t)(uintptr_t)g->control, .verdict = (uint64_t)(uintptr_t)g->control + VERDICT_AT,
        .limit_ns = emulated ? UINT64_C(10000000000) : UINT64_C(2000000000), .at = g->picker.at.ll128, .base = base,
        .rounds = emulated ? EMULATED_ROUNDS : ROUNDS, .rank = (uint32_t)t->rank, .nranks = (uint32_t)t->nranks,
        .nthreads = (uint32_t)g->info.wave * (emulated ? 1 : GP_LITMUS_WAVES),
    };

    for (int r = 0; r < t->nranks; r++)
        a.window[r] = (uint64_t)(uintptr_t)rcclx_windows_at(g->windows, r);
    return a;
}

/* It ends by itself; if not, its memory is given up. */
static rcclx_status await_kernel(const test *x, uint64_t limit_ns)
{
    rcclx_gpu_team *g = x->t->gpu;
    const uint64_t began = rcclx_clock_ns();
    const struct timespec nap = { 0, 20000 };
    rcclx_status s;

    while ((s = g->gpu->stream_query(g->stream)) == RCCLX_AGAIN) {
        if (atomic_load(&x->t->aborted))
            rcclx_gpu_team_abort(x->t);
        if (rcclx_clock_ns() - began > limit_ns + LEAVE_NS) {
            g->stuck = true;
            return RCCLX_FAIL(RCCLX_TIMEOUT, "rank %d of %d: init: a kernel that tries the links of %s device %d does not end; "
                              "is the device busy with another program's kernels?", x->t->rank, x->t->nranks, g->gpu->name,
                              g->device);
        }
        nanosleep(&nap, NULL);
    }
    return s;
}

static rcclx_status run_kernel(test *x, uint32_t base)
{
    rcclx_gpu_team *g = x->t->gpu;
    rcclx_gpu_ident *me = &x->t->area[x->t->rank]->device;
    gp_verdict *v = (gp_verdict *)(void *)((char *)g->control + VERDICT_AT);
    const gp_litmus_args a = args_of(g, x->t, base);

    *v = (gp_verdict){ .done = 0 };
    RCCLX_TRY(g->gpu->launch(x->kernel, 1, a.nthreads, g->stream, &a, sizeof(a)));
    RCCLX_TRY(await_kernel(x, a.limit_ns));
    if (!__atomic_load_n(&v->done, __ATOMIC_ACQUIRE))
        return RCCLX_FAIL(RCCLX_SYSTEM, "rank %d of %d: init: the kernel that tries the links of %s device %d ended without a "
                          "word", x->t->rank, x->t->nranks, g->gpu->name, g->device);
    atomic_store(&me->deaf, v->deaf);
    atomic_store(&me->torn, v->torn);
    return RCCLX_OK;
}

/* No flag of a later operation may match what the test has left. */
static rcclx_status wipe(test *x)
{
    const rcclx_gpu_team *g = x->t->gpu;
    void *zeros = rcclx_mem_alloc(GP_LITMUS_BYTES);

    if (!zeros)
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d of %d: init: no memory to clear the windows", x->t->rank, x->t->nranks);
    char *mine = rcclx_windows_at(g->windows, x->t->rank);
    const rcclx_status s = g->gpu->copy(mine + g->picker.at.ll128, zeros, GP_LITMUS_BYTES, g->stream);
    const rcclx_status done = g->gpu->stream_sync(g->stream);
    rcclx_mem_free(zeros);
    return s != RCCLX_OK ? s : done;
}

/* The first pair of a kind, in words that nobody writes any more. */
static void first_pair(const test *x, bool torn, int pair[2])
{
    pair[0] = pair[1] = -1;
    for (int r = x->t->nranks - 1; r >= 0; r--) {
        rcclx_gpu_ident *d = &x->t->area[r]->device;
        const uint32_t bits = torn ? atomic_load(&d->torn) : atomic_load(&d->deaf);
        if (!bits)
            continue;
        pair[0] = r;
        pair[1] = __builtin_ctz(bits);
    }
}

static rcclx_status try_links(test *x)
{
    x->deaf[0] = 0;
    for (int i = 0; i < ATTEMPTS && x->deaf[0] >= 0; i++) {
        RCCLX_TRY(meet(x));
        RCCLX_TRY(run_kernel(x, BASE + x->step * BASE_STEP));
        RCCLX_TRY(meet(x));
        first_pair(x, false, x->deaf);
        first_pair(x, true, x->torn);
    }
    return wipe(x);
}

/* --- what follows ------------------------------------------------------------------------ */

static void tell_move(const test *x)
{
    const rcclx_team *t = x->t;

    if (t->rank)
        return;
    if (x->deaf[0] < 0)
        RCCLX_ALERT("the GPUs do not all reach each other's memory, so all data of this communicator goes through host memory, "
                    "which is slow: %.500s", rcclx_windows_why(t->gpu->windows));
    else
        RCCLX_ALERT("rank %d does not see what rank %d stores in its memory, though the driver has mapped it, so all data of "
                    "this communicator goes through host memory, which is slow; is an IOMMU (ACS) between the devices?",
                    x->deaf[0], x->deaf[1]);
}

static rcclx_status move_to_host(test *x)
{
    rcclx_team *t = x->t;
    const rcclx_windows_args a = { .peer = t->peer, .timeout = x->timeout, .aborted = &t->aborted };

    tell_move(x);
    RCCLX_TRY(meet(x));
    RCCLX_TRY(rcclx_windows_to_host(t->gpu->windows, &a));
    return RCCLX_OK;
}

/* Do lines arrive whole, so that LL128 may be used? */
static bool lines_are_whole(const test *x)
{
    const rcclx_team *t = x->t;
    const int line = t->segment.head->agreed.line;
    const char *no = NULL;
    char torn[96];

    snprintf(torn, sizeof(torn), "rank %d has seen a line of rank %d arrive in parts", x->torn[0], x->torn[1]);
    if (line == 0)
        no = "RCCLX_LL128 is 0";
    else if (rcclx_windows_in_host(t->gpu->windows))
        no = "data goes through host memory";
    else if (x->torn[0] >= 0 && line == 2)
        no = torn;
    if (t->rank)
        return !no;
    if (no)
        RCCLX_INFO_LOG(INIT, "LL128 is not used: %s", no);
    else
        RCCLX_INFO_LOG(INIT, "LL128 is used: %s", x->torn[0] < 0 ? "lines arrive whole between all ranks" : "RCCLX_LL128 is 1");
    return !no;
}

rcclx_status rcclx_gpu_selftest(rcclx_team *t, double timeout)
{
    rcclx_gpu_team *g = t->gpu;
    test x = { .t = t, .began = rcclx_clock_ns(), .timeout = timeout, .deaf = { -1, -1 }, .torn = { -1, -1 } };

    RCCLX_TRY(g->gpu->function(&x.kernel, g->module, "gp_litmus"));
    if (t->nranks > 1 && rcclx_windows_whole(g->windows))
        RCCLX_TRY(try_links(&x));
    if (!rcclx_windows_in_host(g->windows) && (!rcclx_windows_whole(g->windows) || x.deaf[0] >= 0)) {
        RCCLX_TRY(move_to_host(&x));
        if (rcclx_windows_whole(g->windows))
            RCCLX_TRY(try_links(&x));
    }
    if (!rcclx_windows_whole(g->windows))
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "rank %d of %d: init: the GPUs share neither their own memory nor the host's: "
                          "%.500s; may more memory be locked (ulimit -l)? Else use RCCLX_DEVICE=host", t->rank, t->nranks,
                          rcclx_windows_why(g->windows));
    if (x.deaf[0] >= 0)
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "rank %d of %d: init: rank %d does not see what rank %d stores in host memory that "
                          "both have mapped; use RCCLX_DEVICE=host", t->rank, t->nranks, x.deaf[0], x.deaf[1]);
    g->in_host = rcclx_windows_in_host(g->windows);
    g->lines = lines_are_whole(&x);
    return RCCLX_OK;
}
