/* A team on GPUs: its memory and kernels, from set-up to end.
 *
 *   windows   every rank's, mapped by all                      collective
 *   state, control, module, kernels, own stream, events        nothing is loaded or allocated later
 *   test      of the links (gpu_selftest.c)                    collective; windows may move to host memory
 *   head      headers and counters of turn `start`             copied before READY is said
 *   agree     lanes, bounds, the watch thread                  after all are READY
 *
 * The end is local: kernels are waited for, or, of a broken team, told to leave. If they
 * do not, the memory they may still write is given up rather than freed under them. */
#include "exec/gpu_team.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { CONTROL_BYTES = 4096, SEEN_AT = 1024, LEAVE_NS = 900000000, NVIDIA_LINE = 128, AMD_LINE = 64 };

/* What a driver wants of a thread that works on its own account. */
typedef struct {
    rcclx_gpu_scope scope;
    int             relaxed;
} visit;

static rcclx_status enter(const rcclx_gpu_team *g, visit *v)
{
    RCCLX_TRY(g->gpu->enter(&v->scope, g->device));
    v->relaxed = g->gpu->relax();
    return RCCLX_OK;
}

static void leave(const rcclx_gpu_team *g, const visit *v)
{
    g->gpu->unrelax(v->relaxed);
    g->gpu->leave(&v->scope);
}

/* --- set-up ----------------------------------------------------------------------- */

static rcclx_status open_windows(rcclx_team *t, const uint64_t token[2], double timeout)
{
    rcclx_gpu_team *g = t->gpu;
    uint64_t key[GP_RANKS];
    int device[GP_RANKS];

    for (int r = 0; r < t->nranks; r++) {
        key[r] = t->area[r]->ident.key;
        device[r] = t->area[r]->device.device;
    }
    const rcclx_windows_args a = {
        .gpu = g->gpu, .device = g->device, .rank = t->rank, .nranks = t->nranks, .segment = &t->segment, .peer = t->peer,
        .key = key, .peer_device = device, .token = { token[0], token[1] }, .nbytes = g->picker.at.total, .timeout = timeout,
        .aborted = &t->aborted, .host = !t->segment.head->agreed.arenas && t->nranks > 1,
    };
    return rcclx_windows_open(&g->windows, &a);
}

/* Headers and counters, and my turn. */
static rcclx_status write_start(rcclx_team *t)
{
    rcclx_gpu_team *g = t->gpu;
    const gp_layout *at = &g->picker.at;
    gp_state state;
    void *head = rcclx_mem_alloc(rcclx_layout_head(at));

    if (!head)
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: init: no memory for the first headers", t->rank);
    rcclx_layout_fill(at, g->start, head);
    rcclx_layout_state(g->start, &state);
    rcclx_status s = g->gpu->copy(rcclx_windows_at(g->windows, t->rank), head, rcclx_layout_head(at), g->stream);
    if (s == RCCLX_OK)
        s = g->gpu->copy(g->state, &state, sizeof(state), g->stream);
    const rcclx_status done = g->gpu->stream_sync(g->stream);
    rcclx_mem_free(head);
    return s != RCCLX_OK ? s : done;
}

static rcclx_status make_memory(rcclx_team *t)
{
    rcclx_gpu_team *g = t->gpu;
    void *p;

    RCCLX_TRY(g->gpu->stream_create(&g->stream));
    RCCLX_TRY(g->gpu->event_create(&g->eager.event, false));
    RCCLX_TRY(g->gpu->event_create(&g->captured.event, false));
    RCCLX_TRY(g->gpu->alloc(&p, 2 * sizeof(gp_state), false)); /* and one of gpu_bias.c's */
    g->state = p;
    RCCLX_TRY(g->gpu->alloc_host(&p, CONTROL_BYTES));
    g->control = p;
    g->seen = (gp_state *)(void *)((char *)p + SEEN_AT);
    return RCCLX_OK;
}

static rcclx_status load_kernel(const rcclx_team *t, const char *name, rcclx_gpu_fn *fn)
{
    const rcclx_gpu_team *g = t->gpu;
    int blocks = 0;

    RCCLX_TRY(g->gpu->function(fn, g->module, name));
    RCCLX_TRY(g->gpu->occupancy(*fn, (unsigned)g->picker.threads, &blocks));
    if (blocks >= 1)
        return RCCLX_OK;
    return RCCLX_FAIL(RCCLX_UNSUPPORTED, "rank %d: init: %s does not run with %d threads a block on %s device %d; set "
                      "RCCLX_GPU_THREADS lower", t->rank, name, g->picker.threads, g->gpu->name, g->device);
}

enum { CODEC_fp8 = RCCLX_CODEC_FP8, CODEC_int8 = RCCLX_CODEC_INT8, TYPE_f32 = RCCLX_F32, TYPE_bf16 = RCCLX_BF16, TYPE_f16 = RCCLX_F16 };

static rcclx_status load_kernels(rcclx_team *t)
{
    static const char *const names[RCCLX_KERNEL_COUNT][3] = {
#define X(id) { "gp_" #id "_simple", "gp_" #id "_ll", "gp_" #id "_ll128" },
        GP_KERNEL_LIST(X)
#undef X
    };
    static const struct { uint8_t codec, type; const char *name; } coded[] = {
#define X(codec, type) { CODEC_##codec, TYPE_##type, "gp_" #codec "_" #type },
        GP_CODED_KERNEL_LIST(X)
#undef X
    };
    rcclx_gpu_team *g = t->gpu;

    RCCLX_TRY(g->gpu->load(&g->module, g->device));
    for (int k = 0; k < RCCLX_KERNEL_COUNT; k++)
        for (int i = 0; i < 3; i++)
            RCCLX_TRY(load_kernel(t, names[k][i], &g->kernel[k][i]));
    for (size_t i = 0; i < sizeof(coded) / sizeof(coded[0]); i++)
        RCCLX_TRY(load_kernel(t, coded[i].name, &g->coded_kernel[coded[i].codec][coded[i].type]));
    return rcclx_gpu_pairs_load(g);
}

static void fill_frame(rcclx_team *t)
{
    rcclx_gpu_team *g = t->gpu;

    g->frame = (gp_frame){
        .state = (uint64_t)(uintptr_t)g->state, .control = (uint64_t)(uintptr_t)g->control,
        .map = (uint64_t)(uintptr_t)rcclx_windows_map(g->windows), .timeout_ns = (uint64_t)(t->timeout * 1e9),
        .at = g->picker.at, .rank = (uint8_t)t->rank, .nranks = (uint8_t)t->nranks, .nthreads = (uint16_t)g->picker.threads,
    };
    for (int r = 0; r < t->nranks; r++)
        g->frame.window[r] = (uint64_t)(uintptr_t)rcclx_windows_at(g->windows, r);
}

void rcclx_gpu_team_set_timeout(rcclx_team *t, double seconds)
{
    t->gpu->frame.timeout_ns = (uint64_t)(seconds * 1e9);
}

/* Rank 0's wish, or what suits the device. */
static int threads_of(const rcclx_gpu_team *g, const rcclx_agreed *a)
{
    const int n = a->gpu_threads ? a->gpu_threads / 64 * 64 : g->gpu->kind == RCCLX_GPU_EMU ? 64 : 512;

    return n < 64 ? 64 : n;
}

rcclx_status rcclx_gpu_team_create(rcclx_team *t, const uint64_t token[2], double timeout)
{
    rcclx_gpu_team *g = RCCLX_NEW(rcclx_gpu_team);
    visit v;

    if (!g)
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: init: no memory for a communicator on a GPU", t->rank);
    g->gpu = t->driver;
    g->device = t->device;
    g->start = g->turn = (uint32_t)t->seq;
    g->watch.bell = -1;
    pthread_mutex_init(&g->lock, NULL);
    pthread_mutex_init(&g->regs_lock, NULL);
    g->picker.at = gp_layout_make(t->nranks);
    g->picker.threads = threads_of(g, &t->segment.head->agreed);
    t->gpu = g;
    rcclx_gpu_ident *me = &t->area[t->rank]->device;
    atomic_store(&me->posted, g->start);
    atomic_store(&me->started, g->start);
    atomic_store(&me->finished, g->start);
    RCCLX_TRY(g->gpu->info(g->device, &g->info));
    g->picker.wave = g->info.wave;
    RCCLX_TRY(open_windows(t, token, timeout));
    RCCLX_TRY(enter(g, &v));
    rcclx_status s = make_memory(t);
    if (s == RCCLX_OK)
        s = load_kernels(t);
    if (s == RCCLX_OK)
        s = rcclx_gpu_selftest(t, timeout);
    if (s == RCCLX_OK)
        s = write_start(t);
    leave(g, &v);
    if (s == RCCLX_OK)
        fill_frame(t);
    return s;
}

/* --- agreement ---------------------------------------------------------------------- */

/* Blocks of an operation: all of them must be on the device at once, those of other ranks
 * on the same device beside them. */
static rcclx_status agree_on_lanes(rcclx_team *t)
{
    rcclx_gpu_picker *p = &t->gpu->picker;

    p->lanes_most = GP_LANES;
    p->coded_most = GP_CODED_BLOCKS;
    p->lanes_least = 1;
    for (int r = 0; r < t->nranks; r++) {
        const rcclx_gpu_ident *d = &t->area[r]->device;
        int beside = 0; /* itself, too */
        for (int k = 0; k < t->nranks; k++)
            beside += !strcmp(d->pci, t->area[k]->device.pci);
        const int room = d->sms / (beside ? beside : 1);
        if (room < 1 && t->driver->kind != RCCLX_GPU_EMU)
            return RCCLX_FAIL(RCCLX_USAGE, "rank %d of %d: init: %d ranks share device %s, which has %d multiprocessors; use fewer "
                              "ranks a device", t->rank, t->nranks, beside, d->pci, d->sms);
        p->lanes_most = room < p->lanes_most ? room : p->lanes_most;
        p->coded_most = room < p->coded_most ? room : p->coded_most;
        p->lanes_most = d->most < p->lanes_most ? d->most : p->lanes_most;
        p->lanes_least = d->least > p->lanes_least ? d->least : p->lanes_least;
    }
    p->lanes_most = p->lanes_most < 1 ? 1 : p->lanes_most;
    if (p->coded_most < 1 || p->lanes_most < GP_LANES) /* fewer were asked for, or fit */
        p->coded_most = p->lanes_most;
    p->lanes_least = p->lanes_least < p->lanes_most ? p->lanes_least : p->lanes_most;
    return RCCLX_OK;
}

rcclx_status rcclx_gpu_team_agree(rcclx_team *t, const rcclx_agreed *a)
{
    rcclx_gpu_team *g = t->gpu;
    rcclx_gpu_picker *p = &g->picker;

    RCCLX_TRY(agree_on_lanes(t));
    p->nranks = t->nranks;
    p->rank = t->rank;
    p->lanes_cap = a->gpu_lanes;
    p->limit[RCCLX_PROTO_LL] = a->gpu_ll;
    p->limit[RCCLX_PROTO_LL128] = a->gpu_ll128;
    p->protos = (unsigned)a->protos;
    p->safe = ~(g->lines ? 0 : 1u << RCCLX_PROTO_LL128);
    p->line = g->gpu->kind == RCCLX_GPU_HIP ? AMD_LINE : NVIDIA_LINE;
    p->ordered = t->ordered;
    p->reach = a->arenas && !g->in_host;
    p->forced = t->algo;
    rcclx_gpu_picker_start(p);
    RCCLX_INFO_LOG(INIT, "rank %d of %d: %s device %d %s (%s, %s), %d blocks of %d threads, %u bytes of window", t->rank, t->nranks,
                   g->gpu->name, g->device, g->info.pci, g->info.name, g->info.arch, p->lanes_most, p->threads, p->at.total);
    RCCLX_TRY(rcclx_gpu_memory_join(t));
    return rcclx_gpu_watch_start(t);
}

/* --- the end -------------------------------------------------------------------------- */

void rcclx_gpu_team_abort(rcclx_team *t)
{
    gp_control *c = t->gpu->control;

    if (c)
        __atomic_store_n(&c->abort, 1, __ATOMIC_RELEASE);
}

bool rcclx_gpu_turns(rcclx_gpu_team *g, int who, uint32_t *started, uint32_t *finished)
{
    gp_state *seen = &g->seen[who];
    visit v;

    if (enter(g, &v) != RCCLX_OK)
        return false;
    const bool ok = g->gpu->copy(seen, g->state, offsetof(gp_state, pad), g->stream) == RCCLX_OK &&
                    g->gpu->stream_sync(g->stream) == RCCLX_OK;
    leave(g, &v);
    *started = __atomic_load_n(&seen->started, __ATOMIC_RELAXED);
    *finished = GP_TURN(__atomic_load_n(&seen->progress, __ATOMIC_RELAXED));
    return ok;
}

/* Turns say that all is over, without a touch on the program's streams, which may be gone. */
static bool turns_are_over(rcclx_gpu_team *g)
{
    uint32_t started, finished;

    return !g->graphs && !g->paired && rcclx_gpu_turns(g, 0, &started, &finished) && finished == g->turn;
}

/* An event behind the last operation. false: there is nothing to be had. */
static bool mark_end(rcclx_gpu_team *g)
{
    rcclx_gpu_tail *tail = &g->eager;
    uint64_t id = 0;

    if (!tail->here)
        return false;
    if (tail->recorded)
        return true;
    if (g->gpu->capture_id(tail->stream, &id) != RCCLX_OK || id || g->gpu->event_record(tail->event, tail->stream) != RCCLX_OK)
        return false;
    tail->recorded = true;
    return true;
}

static void wait_for_kernels(rcclx_team *t)
{
    rcclx_gpu_team *g = t->gpu;
    const struct timespec nap = { 0, 100000 };
    uint64_t ended = 0;

    if (turns_are_over(g) || !mark_end(g))
        return;
    while (g->gpu->event_query(g->eager.event) == RCCLX_AGAIN) {
        if (!ended && (atomic_load(&t->broken) || atomic_load(&t->aborted))) {
            rcclx_gpu_team_abort(t);
            ended = rcclx_clock_ns();
        }
        if (ended && rcclx_clock_ns() - ended > LEAVE_NS) {
            g->stuck = true;
            RCCLX_ALERT("rank %d of %d: kernels on %s device %d have not ended; what they use of its memory is given up", t->rank,
                        t->nranks, g->gpu->name, g->device);
            return;
        }
        nanosleep(&nap, NULL);
    }
}

/* Launches of graphs leave nothing behind to wait for but the device. An abort cannot wait for that: launches that are
 * still queued look at the memory to learn that they are to leave, so they keep it. */
static void wait_for_graphs(rcclx_team *t)
{
    rcclx_gpu_team *g = t->gpu;

    if (!g->graphs || g->stuck)
        return;
    if (atomic_load(&t->broken) || atomic_load(&t->aborted)) {
        g->stuck = true;
        RCCLX_INFO_LOG(INIT, "rank %d of %d: graphs may still be queued on %s device %d; what they use of its memory is given up",
                       t->rank, t->nranks, g->gpu->name, g->device);
        return;
    }
    const int before = g->gpu->relax();
    g->gpu->device_sync();
    g->gpu->unrelax(before);
}

void rcclx_gpu_team_drain(rcclx_team *t)
{
    rcclx_gpu_team *g = t->gpu;
    visit v;

    if (!g->control || (g->turn == g->start && !g->paired && !g->graphs) || enter(g, &v) != RCCLX_OK)
        return;
    pthread_mutex_lock(&g->lock);
    wait_for_kernels(t);
    wait_for_graphs(t);
    pthread_mutex_unlock(&g->lock);
    leave(g, &v);
}

static void free_all(rcclx_gpu_team *g)
{
    const rcclx_gpu *gpu = g->gpu;

    if (g->module)
        gpu->unload(g->module);
    if (g->control)
        gpu->free_host(g->control);
    if (g->state)
        gpu->free(g->state);
    if (g->eager.event)
        gpu->event_destroy(g->eager.event);
    if (g->captured.event)
        gpu->event_destroy(g->captured.event);
    if (g->stream)
        gpu->stream_destroy(g->stream);
}

void rcclx_gpu_team_destroy(rcclx_team *t)
{
    rcclx_gpu_team *g = t->gpu;
    visit v;

    if (!g)
        return;
    rcclx_gpu_watch_stop(t);
    rcclx_gpu_memory_leave(t);
    if (!g->stuck) {
        rcclx_windows_close(g->windows);
        if (enter(g, &v) == RCCLX_OK) {
            free_all(g);
            leave(g, &v);
        }
    }
    rcclx_gpu_picker_fini(&g->picker);
    pthread_mutex_destroy(&g->lock);
    pthread_mutex_destroy(&g->regs_lock);
    rcclx_mem_free(g->joined);
    rcclx_mem_free(g->pairs);
    rcclx_mem_free(g);
    t->gpu = NULL;
}

/* --- reports --------------------------------------------------------------------------- */

void rcclx_gpu_describe(rcclx_team *t, rcclx_gpu_report *r)
{
    rcclx_gpu_team *g = t->gpu;

    *r = (rcclx_gpu_report){
        .window_bytes = g->picker.at.total, .lanes = g->picker.lanes_most, .threads = g->picker.threads,
        .nbytes = g->picker.at.total + sizeof(gp_state) + CONTROL_BYTES + sizeof(uint64_t) * GP_RANKS * GP_REGS,
        .registered = atomic_load(&g->registered), .in_host = g->in_host, .lines = g->lines,
        .turn = atomic_load_explicit(&t->area[t->rank]->device.posted, memory_order_relaxed),
    };
    memcpy(r->name, g->info.name, sizeof(r->name));
    memcpy(r->pci, g->info.pci, sizeof(r->pci));
    pthread_mutex_lock(&g->regs_lock);
    for (int i = 0; i < g->njoined; i++)
        r->registered += g->joined[i].reg >= 0;
    pthread_mutex_unlock(&g->regs_lock);
}

rcclx_status rcclx_gpu_explain(rcclx_team *t, rcclx_kind kind, size_t nbytes, rcclx_gpu_choice *c)
{
    rcclx_gpu_team *g = t->gpu;
    const rcclx_ready *r;

    pthread_mutex_lock(&g->lock);
    const rcclx_status s = rcclx_gpu_pick(&g->picker, &(rcclx_gpu_wish){ .kind = kind, .nbytes = nbytes }, &r, &c->nlanes);
    if (s == RCCLX_OK) {
        c->algo = r->plan[0].algo->name;
        c->protocol = r->plan[0].shape.proto;
    }
    pthread_mutex_unlock(&g->lock);
    return s;
}
