/* Making a communicator.
 *
 *   meet      all ranks at the root: who is who, memory handles
 *   map       the segment, the arenas of the other processes
 *   far       ranks of other machines: mirrors of their areas, the network
 *   try       can the kernel copy from every other process?
 *   device    on GPUs of one machine: all say which; the same kind? share memory, load kernels
 *   READY     said in my area; wait until all have said so (bounded; deaths are seen)
 *   agree     take rank 0's settings, combine what all can do
 *   parts     on GPUs of several machines: a communicator of each machine's, one of each rail
 *
 * From then on the team (exec/) runs operations. A failure at any point leaves
 * nothing behind: what was made is undone by the same function that destroys. */
#include "comm/comm.h"

#include "algo/tune.h"
#include "algo/tuner.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "base/process.h"
#include "comm/bootstrap.h"
#include "comm/handle.h"
#include "comm/machines.h"
#include "comm/socket.h"
#include "comm/twin.h"
#include "device/reduce.h"
#include "exec/mirror.h"
#include "exec/precision.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

static void undo(rcclx_team *t);

typedef struct {
    rcclx_comm     *comm;
    void          **handle;  /* the caller's, taken back when a blocking init fails */
    rcclx_unique_id id;
    bool            serve;   /* rank 0 with NCCL_COMM_ID: open the root */
    uint64_t        token;   /* what peers read to try the way to this process */
    uint64_t        began;
} job;

static double seconds_since(uint64_t ns)
{
    return (double)(rcclx_clock_ns() - ns) * 1e-9;
}

/* --- map and try -------------------------------------------------------------------- */

static uint32_t reach_peers(rcclx_comm *c, const rcclx_meeting *m)
{
    rcclx_team *t = &c->team;
    const uint64_t mine = rcclx_process()->key;
    uint32_t reach = RCCLX_REACH_CMA | RCCLX_REACH_ARENA;

    for (int r = 0; r < t->nranks; r++) {
        const rcclx_arrival *p = &m->peer[r];
        rcclx_peer *peer = &t->peer[r];
        *peer = (rcclx_peer){ .rank = r, .pid = p->pid, .local = p->key == mine, .life = -1 };
        if (peer->local || m->node[r] != m->node[t->rank])
            continue;
        int fd = m->arena_fd[r];
        for (int k = 0; fd < 0 && k < r; k++)
            if (m->peer[k].key == p->key)
                fd = m->arena_fd[k];
        if (fd < 0 || rcclx_mapping_acquire(&peer->arena, p->key, p->arena_bytes, fd) != RCCLX_OK)
            reach &= ~(uint32_t)RCCLX_REACH_ARENA;
        uint64_t seen = 0;
        peer->cma = true;
        if (rcclx_option_int(RCCLX_OPT_CMA) == 0 || !rcclx_cma_probe(p->pid, p->probe, &seen) || seen != p->token)
            reach &= ~(uint32_t)RCCLX_REACH_CMA;
        peer->life = rcclx_life_open(p->pid);
    }
    return reach;
}

static void take_cores(uint64_t cores[16])
{
    cpu_set_t set;

    memset(cores, 0, 16 * sizeof(*cores));
    if (sched_getaffinity(0, sizeof(set), &set))
        return;
    for (int i = 0; i < 1024; i++)
        if (CPU_ISSET(i, &set))
            cores[i / 64] |= (uint64_t)1 << (i % 64);
}

/* --- agree --------------------------------------------------------------------------- */

/* Does a list of protocols ("LL,Simple", "^LL128", "allreduce:LL") leave this one? */
static bool protocol_left(const char *list, const char *name)
{
    const bool inverted = *list == '^';
    bool named = !*list;

    for (const char *at = list + inverted; *at; at += strcspn(at, ",;:") + (at[strcspn(at, ",;:")] != 0)) {
        const size_t n = strcspn(at, ",;:");
        named |= n == strlen(name) && !strncasecmp(at, name, n);
    }
    return named != inverted;
}

/* On GPUs a tuner has nothing to choose from. */
static void ask_tuner(rcclx_agreed *a, const rcclx_team *t)
{
    rcclx_tuner_job q = { .id = t->id, .nranks = t->nranks, .nnodes = t->nnodes, .node = rcclx_team_nodes(t), .machine = a->machine,
                            .slot_max = a->slot_max < RCCLX_SLOT_BYTES ? a->slot_max : RCCLX_SLOT_BYTES };

    q.machine.cache_bytes = a->cache_bytes;
    q.machine.chunk_bytes = a->chunk;
    memset(a->tuned, 0, sizeof(a->tuned));
    if (!t->driver)
        rcclx_tuner_ask(&q, a->tuned[0], RCCLX_TUNED);
}

static void decide(rcclx_agreed *a, const rcclx_team *t)
{
    rcclx_machine m;

    rcclx_machine_default(&m, t->nranks);
    const bool apart = rcclx_option_int(RCCLX_OPT_P2P_DISABLE) != 0;
    a->cma = !apart && rcclx_option_int(RCCLX_OPT_CMA) != 0;
    a->arenas = !apart;
    a->ordered = (int32_t)rcclx_option_int(RCCLX_OPT_ORDERED);
    a->slot_max = protocol_left(rcclx_option_str(RCCLX_OPT_PROTO), "LL") ? (uint64_t)rcclx_option_int(RCCLX_OPT_LL_BYTES) : 0;
    a->protos = protocol_left(rcclx_option_str(RCCLX_OPT_PROTO), "Simple") << RCCLX_PROTO_SIMPLE |
                protocol_left(rcclx_option_str(RCCLX_OPT_PROTO), "LL") << RCCLX_PROTO_LL |
                protocol_left(rcclx_option_str(RCCLX_OPT_PROTO), "LL128") << RCCLX_PROTO_LL128;
    a->line = (int32_t)rcclx_option_int(RCCLX_OPT_LL128);
    a->gpu_ll = (uint64_t)rcclx_option_int(RCCLX_OPT_GPU_LL_BYTES);
    a->gpu_ll128 = (uint64_t)rcclx_option_int(RCCLX_OPT_GPU_LL128_BYTES);
    a->gpu_lanes = (int32_t)rcclx_option_int(RCCLX_OPT_GPU_LANES);
    a->gpu_threads = rcclx_option_is_set(RCCLX_OPT_GPU_THREADS) ? (int32_t)rcclx_option_int(RCCLX_OPT_GPU_THREADS) : 0;
    a->chunk = (uint64_t)rcclx_option_int(RCCLX_OPT_CHUNK_BYTES);
    const int64_t stream = rcclx_option_int(RCCLX_OPT_STREAM_BYTES);
    a->cache_bytes = stream ? (uint64_t)stream : m.cache_bytes;
    a->machine = m;
    const char *own = rcclx_option_str(RCCLX_OPT_X_ALGO);
    snprintf(a->algo, sizeof(a->algo), "%s", *own ? own : rcclx_option_str(RCCLX_OPT_ALGO));
    ask_tuner(a, t);
    rcclx_precision_decide(a);
    rcclx_option_agree_text(a->options, sizeof(a->options));
}

/* Lines of rank 0's settings that are not mine. */
static void warn_of_difference(const rcclx_comm *c, const char *theirs)
{
    char mine[sizeof(((rcclx_agreed *)0)->options)] = "";

    rcclx_option_agree_text(mine, sizeof(mine));
    for (const char *line = theirs; *line;) {
        const size_t n = strcspn(line, "\n"), name = strcspn(line, "=");
        for (const char *my = mine; *my; my += strcspn(my, "\n") + (my[strcspn(my, "\n")] == '\n')) {
            const size_t k = strcspn(my, "\n");
            if (!strncmp(line, "RCCLX_TUNE_FILE=", name + 1))
                continue; /* its contents are compared */
            if (!strncmp(my, line, name + 1) && (k != n || strncmp(my, line, n)))
                RCCLX_ALERT("rank %d of %d: settings differ: here %.*s, on rank 0 %.*s; rank 0's is used on all ranks", c->rank,
                            c->nranks, (int)k, my, (int)n, line);
        }
        line += n + (line[n] == '\n');
    }
}

/* Ranks that count from different numbers would wait for each other for ever. */
static rcclx_status same_start(const rcclx_team *t)
{
    const uint64_t mine = t->area[t->rank]->ident.start;

    for (int r = 0; r < t->nranks; r++)
        if (t->area[r]->ident.start != mine)
            return RCCLX_FAIL(RCCLX_USAGE, "rank %d of %d: RCCLX_SEQ_START is %llu here and %llu on rank %d; set it on all ranks "
                              "alike", t->rank, t->nranks, (unsigned long long)mine,
                              (unsigned long long)t->area[r]->ident.start, r);
    return RCCLX_OK;
}

/* Cores that the ranks of a machine may run on, and how many ranks these are. */
static int cores_of(const rcclx_team *t, int node, int *nranks)
{
    uint64_t cores[16] = { 0 };
    int ncores = 0;

    *nranks = 0;
    for (int r = 0; r < t->nranks; r++)
        for (int i = 0; t->node[r] == node && i < 16; i++) {
            cores[i] |= t->area[r]->ident.cores[i];
            *nranks += i == 0;
        }
    for (int i = 0; i < 16; i++)
        ncores += __builtin_popcountll(cores[i]);
    return ncores;
}

static void agree(rcclx_comm *c)
{
    rcclx_team *t = &c->team;
    const rcclx_agreed *a = rcclx_team_agreed(t);
    uint32_t reach = RCCLX_REACH_CMA | RCCLX_REACH_ARENA;
    int nhere, nthere;

    t->machine = a->machine;
    t->one_process = true;
    for (int r = 0; r < t->nranks; r++) {
        reach &= atomic_load(&t->area[r]->ident.reach);
        t->machine.untuned |= t->area[r]->ident.tuning != t->area[0]->ident.tuning;
        t->one_process &= t->area[r]->ident.key == t->area[0]->ident.key && a->arenas;
    }
    const int here = cores_of(t, t->node[t->rank], &nhere), ncores = cores_of(t, 0, &nthere);
    bool crowded = false; /* any machine: agreed by all */
    for (int k = 0; k < t->nnodes; k++) {
        const int cores = cores_of(t, k, &nthere);
        crowded |= cores && nthere > cores;
    }
    t->cma = a->cma && (reach & RCCLX_REACH_CMA);
    t->arenas = a->arenas && (reach & RCCLX_REACH_ARENA);
    t->crowded = here && nhere > here;
    const int64_t spin = rcclx_option_int(RCCLX_OPT_SPIN_US);
    t->spin_ns = spin >= 0 ? spin * 1000 : t->crowded ? 0 : 200000;
    t->ordered = a->ordered;
    t->slot_max = a->slot_max < RCCLX_SLOT_BYTES ? a->slot_max : RCCLX_SLOT_BYTES;
    /* one exchange wins up to here wherever the buffers are; where ranks share cores, an exchange costs most */
    t->quick = crowded || t->slot_max < 512 ? t->slot_max : 512;
    t->chunk = a->chunk >= 64u * RCCLX_MAX_RANKS ? a->chunk : 64u * RCCLX_MAX_RANKS;
    memcpy(t->algo, a->algo, sizeof(t->algo));
    memcpy(t->tuned, a->tuned, sizeof(t->tuned));
    rcclx_precision_agree(t, a);
    t->machine.ncores = ncores ? ncores : t->machine.ncores;
    t->machine.cache_bytes = a->cache_bytes;
    t->machine.chunk_bytes = t->chunk;
    if (!t->cma)
        t->machine.cma_rate = 0;
    for (int r = 0; r < t->nranks; r++)
        t->peer[r].cma = t->cma && !t->peer[r].local;
    if (t->machine.untuned && t->rank == 0)
        RCCLX_ALERT("the ranks' tuning tables (RCCLX_TUNE_FILE) differ; none is used");
    if (t->area[0]->ident.options != t->area[t->rank]->ident.options)
        warn_of_difference(c, a->options);
    rcclx_team_settled(t);
}

static bool is_ready(const rcclx_area *a)
{
    return atomic_load_explicit(&a->ident.state, memory_order_acquire) >= RCCLX_RANK_READY;
}

static bool has_device(const rcclx_area *a)
{
    return atomic_load_explicit(&a->device.here, memory_order_acquire);
}

/* Wait until every rank has come so far, or was: it may have met a failure already, which
 * the first operation tells. Name those that have not. */
static rcclx_status await_all(rcclx_comm *c, uint64_t began, double timeout, bool (*come)(const rcclx_area *a))
{
    rcclx_team *t = &c->team;
    char how[240];
    int ms = 0;

    for (int r = 0; r < t->nranks;) {
        const rcclx_ident *id = &t->area[r]->ident;
        if (come(t->area[r])) {
            r++;
            ms = 0;
            continue;
        }
        if (atomic_load_explicit(&id->state, memory_order_acquire) == RCCLX_RANK_UNFIT)
            return RCCLX_FAIL(RCCLX_PEER_LOST, "rank %d of %d: init: rank %d failed: %.700s", c->rank, c->nranks, r, id->text);
        if (atomic_load(&t->aborted))
            return RCCLX_ABORTED;
        if (rcclx_team_lost(t, r, how, sizeof(how)) && !come(t->area[r]))
            return RCCLX_FAIL(RCCLX_PEER_LOST, "rank %d of %d: init: rank %d (pid %d) %s", c->rank, c->nranks, r,
                              t->peer[r].pid, how);
        if (t->mirror)
            rcclx_mirror_poll(t);
        if (seconds_since(began) > timeout)
            return RCCLX_FAIL(RCCLX_TIMEOUT, "rank %d of %d: init: rank %d (pid %d) is not ready after %.0f s; is it stopped?",
                              c->rank, c->nranks, r, t->peer[r].pid, timeout);
        if (ms++ < 200) {
            sched_yield();
        } else {
            const struct timespec nap = { 0, 200000 };
            nanosleep(&nap, NULL);
        }
    }
    return RCCLX_OK;
}

/* --- devices ---------------------------------------------------------------------------- */

static rcclx_status say_device(rcclx_comm *c)
{
    rcclx_team *t = &c->team;
    rcclx_gpu_ident *me = &t->area[t->rank]->device;
    rcclx_gpu_info info = { .sms = 0 };

    if (t->driver)
        RCCLX_TRY(t->driver->info(t->device, &info));
    me->kind = t->driver ? (int32_t)t->driver->kind + 1 : 0;
    me->device = t->device;
    me->sms = info.sms;
    me->most = c->config.maxCTAs;
    me->least = c->config.minCTAs;
    snprintf(me->pci, sizeof(me->pci), "%s", info.pci);
    c->bus = rcclx_gpu_bus(info.pci);
    atomic_store_explicit(&me->here, 1, memory_order_release);
    return RCCLX_OK;
}

/* All ranks come to the same result. */
static rcclx_status check_devices(const rcclx_team *t)
{
    static const char *const kinds[] = { "host memory", "cuda", "hip", "emu" };
    static const char *const brands[] = { "host", "CUDA", "HIP", "emulated" };
    const rcclx_gpu_ident *first = &t->area[0]->device;

    for (int r = 1; r < t->nranks; r++)
        if (t->area[r]->device.kind != first->kind)
            return RCCLX_FAIL(RCCLX_USAGE, "rank %d of %d: init: rank 0 is on %s and rank %d on %s; all ranks of a communicator live "
                              "in one kind of memory: set RCCLX_DEVICE alike", t->rank, t->nranks, kinds[first->kind & 3], r,
                              kinds[t->area[r]->device.kind & 3]);
    if (t->nranks > RCCLX_GPU_RANKS)
        return RCCLX_FAIL(RCCLX_UNSUPPORTED, "rank %d of %d: init: a communicator has at most %d ranks on GPUs in this version; "
                          "use fewer, or RCCLX_DEVICE=host", t->rank, t->nranks, RCCLX_GPU_RANKS);
    for (int r = 1; r < t->nranks; r++)
        for (int k = 0; k < r; k++)
            if (t->area[r]->ident.key != t->area[k]->ident.key && !strcmp(t->area[r]->device.pci, t->area[k]->device.pci))
                return RCCLX_FAIL(RCCLX_USAGE, "Duplicate GPU detected : rank %d and rank %d both on %s device %llx; give every "
                                  "process a device of its own", k, r, brands[first->kind & 3],
                                  (unsigned long long)rcclx_gpu_bus(t->area[r]->device.pci));
    return RCCLX_OK;
}

static rcclx_status open_device(rcclx_comm *c, const uint64_t token[2], uint64_t began)
{
    const double timeout = rcclx_option_real(RCCLX_OPT_INIT_TIMEOUT);

    RCCLX_TRY(say_device(c));
    if (!c->team.driver || c->team.nnodes > 1) /* of several machines: each for itself (machines.c) */
        return RCCLX_OK;
    RCCLX_TRY(await_all(c, began, timeout, has_device));
    RCCLX_TRY(check_devices(&c->team));
    return rcclx_gpu_team_create(&c->team, token, timeout);
}

/* --- the whole ------------------------------------------------------------------------ */

static rcclx_status attach(rcclx_comm *c, rcclx_meeting *m, uint64_t began)
{
    rcclx_team *t = &c->team;

    RCCLX_TRY(rcclx_segment_map(&t->segment, m->segment_fd, m->token));
    t->nranks = c->nranks;
    t->rank = c->rank;
    t->device = c->device;
    t->id = m->id;
    t->nnodes = m->nnodes;
    for (int r = 0; r < t->nranks; r++)
        t->node[r] = (uint8_t)m->node[r];
    for (int r = 0, k = 0; r < t->nranks; r++)
        if (t->node[r] == t->node[t->rank])
            t->area[r] = rcclx_segment_area(&t->segment, k++);
    if (t->nnodes > 1)
        RCCLX_TRY(rcclx_machines_join(c, m));
    rcclx_ident *me = &t->area[t->rank]->ident;
    me->pid = rcclx_process()->pid;
    me->key = rcclx_process()->key;
    me->options = rcclx_option_agree_hash();
    me->tuning = rcclx_tune_table()->hash;
    me->start = (uint64_t)rcclx_option_int(RCCLX_OPT_SEQ_START);
    take_cores(me->cores);
    atomic_store(&me->reach, reach_peers(c, m));
    if (t->rank == 0)
        decide(&t->segment.head->agreed, t);
    if (t->rank == 0 && t->mirror)
        rcclx_mirror_decide(t, &t->segment.head->agreed);
    RCCLX_TRY(rcclx_team_start(t));
    return open_device(c, m->token, began);
}

static rcclx_status meet_and_attach(job *j)
{
    rcclx_comm *c = j->comm;
    const double timeout = rcclx_option_real(RCCLX_OPT_INIT_TIMEOUT);
    rcclx_arena_info arena;
    rcclx_meeting m;

    RCCLX_TRY(rcclx_arena_get(&arena));
    const rcclx_arrival me = {
        .rank = c->rank, .pid = rcclx_process()->pid, .host = rcclx_process()->host, .key = arena.key,
        .arena_bytes = arena.nbytes, .arena_fd = arena.fd, .probe = (uint64_t)(uintptr_t)&j->token, .token = j->token,
    };
    if (j->serve)
        RCCLX_TRY(rcclx_unique_id_serve(&j->id));
    RCCLX_TRY(rcclx_meet(&j->id, c->nranks, &me, timeout, &c->team.aborted, &m));
    rcclx_status s = attach(c, &m, j->began);
    if (c->team.segment.head) {
        rcclx_ident *id = &c->team.area[c->rank]->ident;
        if (s != RCCLX_OK) {
            id->status = (int32_t)s;
            snprintf(id->text, sizeof(id->text), "%s", rcclx_last_error());
        }
        uint32_t absent = RCCLX_RANK_ABSENT; /* or FAILED: aborted meanwhile */
        atomic_compare_exchange_strong(&id->state, &absent, s == RCCLX_OK ? RCCLX_RANK_READY : RCCLX_RANK_UNFIT);
        rcclx_mirror_tell(&c->team);
    }
    rcclx_meeting_fini(&m);
    if (s == RCCLX_OK)
        s = await_all(c, j->began, timeout, is_ready);
    if (s == RCCLX_OK)
        s = same_start(&c->team);
    if (s != RCCLX_OK)
        return s;
    agree(c);
    rcclx_segment_fault_in(&c->team.segment);
    if (c->team.driver && c->team.nnodes > 1)
        return rcclx_machines_parts(c);
    return c->team.gpu ? rcclx_gpu_team_agree(&c->team, rcclx_team_agreed(&c->team)) : RCCLX_OK;
}

/* The handle and the table's hold, unless somebody has destroyed it meanwhile. The
 * caller's copy goes too: he may be about to abort what he has. */
static void take_back(job *j)
{
    *j->handle = NULL;
    if (rcclx_handle_close(j->comm, 0))
        rcclx_team_let_go(&j->comm->team);
}

static void tell(const rcclx_comm *c, uint64_t id, const char *word)
{
    RCCLX_INFO_LOG(INIT, "comm %p rank %d nranks %d cudaDev %d nvmlDev %d busId %llx commId 0x%llx - Init %s", c->handle, c->rank,
                   c->nranks, c->device, c->device, (unsigned long long)c->bus, (unsigned long long)id, word);
}

static void tell_precision(const rcclx_team *t)
{
    char words[300];

    if (!t->precision.codec || t->rank)
        return;
    rcclx_precision_words(t, words, sizeof(words));
    RCCLX_INFO_LOG(INIT, "low precision on the wire: %s", words);
}

static rcclx_status run(void *arg)
{
    job *j = arg;
    rcclx_comm *c = j->comm;

    rcclx_log_device(c->device);
    rcclx_twin_look();
    tell(c, 0, "START");
    const rcclx_status s = meet_and_attach(j);
    if (s == RCCLX_OK) {
        tell(c, c->team.id, "COMPLETE");
        tell_precision(&c->team);
        RCCLX_INFO_LOG(INIT, "Init timings - rank %d nranks %d total %.4f", c->rank, c->nranks, seconds_since(j->began));
        atomic_store_explicit(&c->state, RCCLX_COMM_READY, memory_order_release);
    } else {
        snprintf(c->team.cause, sizeof(c->team.cause), "%s", s == RCCLX_ABORTED ? "aborted during init" : rcclx_last_error());
        c->failure = s;
        atomic_store_explicit(&c->state, RCCLX_COMM_FAILED, memory_order_release);
    }
    /* a blocking init that failed leaves no communicator; a non-blocking one's handle is the user's to abort */
    if (s != RCCLX_OK && c->config.blocking)
        take_back(j);
    rcclx_mem_free(j);
    rcclx_team_let_go(&c->team);
    return s;
}

/* A group that failed before its end. */
static void drop(void *arg)
{
    job *j = arg;

    atomic_store(&j->comm->state, RCCLX_COMM_FAILED);
    take_back(j);
    rcclx_team_let_go(&j->comm->team);
    rcclx_mem_free(j);
}

static void *run_in_thread(void *arg)
{
    rcclx_thread_name("rcclx init");
    run(arg);
    return NULL;
}

/* Runs beside the caller, who polls. */
static rcclx_status start_thread(job *j)
{
    pthread_t t;
    pthread_attr_t attr;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    const int e = pthread_create(&t, &attr, run_in_thread, j);
    pthread_attr_destroy(&attr);
    return e ? run(j) : RCCLX_AGAIN;
}

rcclx_status rcclx_comm_init(void **handle, int nranks, const rcclx_unique_id *id, int rank, const rcclx_place *place,
                             const rcclx_comm_config *config, const char *at)
{
    rcclx_comm *c = RCCLX_NEW(rcclx_comm);
    job *j = RCCLX_NEW(job);
    char bad[64];

    *handle = NULL;
    if (!c || !j) {
        rcclx_mem_free(c);
        rcclx_mem_free(j);
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: no memory for a communicator", rank);
    }
    *c = (rcclx_comm){ .nranks = nranks, .rank = rank, .device = place->device, .config = *config, .state = RCCLX_COMM_INIT };
    c->team.last = undo;
    c->team.driver = place->gpu;
    c->team.holders = 2; /* the table's and the set-up's */
    pthread_mutex_init(&c->lock, NULL);
    *j = (job){ .comm = c, .handle = handle, .id = *id, .began = rcclx_clock_ns() };
    rcclx_random(&j->token, sizeof(j->token));
    rcclx_status s = RCCLX_OK;
    if (rcclx_algo_list_check(rcclx_option_str(RCCLX_OPT_ALGO), bad, sizeof(bad)) ||
        rcclx_algo_list_check(rcclx_option_str(RCCLX_OPT_X_ALGO), bad, sizeof(bad)))
        s = RCCLX_FAIL(RCCLX_USAGE, "rank %d: NCCL_ALGO or RCCLX_ALGO names '%s', which is no algorithm; `rcclx info` lists them",
                       rank, bad);
    if (s == RCCLX_OK && rcclx_option_int(RCCLX_OPT_ISA) && rcclx_isa_use(rcclx_option_str(RCCLX_OPT_ISA)))
        RCCLX_ALERT("RCCLX_ISA is %s, which this processor lacks; %s is used", rcclx_option_str(RCCLX_OPT_ISA), rcclx_isa_name());
    if (s == RCCLX_OK && at && *at) {
        s = rcclx_unique_id_at(&j->id, at, at);
        j->serve = rank == 0;
    }
    if (s == RCCLX_OK)
        s = rcclx_handle_open(c);
    if (s != RCCLX_OK) {
        rcclx_mem_free(j);
        rcclx_mem_free(c);
        return s;
    }
    void *const h = c->handle;
    *handle = h;
    s = config->blocking ? rcclx_group_job(run, drop, j) : start_thread(j);
    if (s != RCCLX_OK && s != RCCLX_AGAIN && config->blocking)
        *handle = NULL;
    return s;
}

rcclx_status rcclx_comm_init_all(void **handles, int nranks, const rcclx_gpu *gpu, const int *devices,
                                 const rcclx_comm_config *config)
{
    rcclx_unique_id id;
    rcclx_comm_config blocking = *config;

    blocking.blocking = 1;
    RCCLX_TRY(rcclx_unique_id_create(&id, NULL));
    RCCLX_TRY(rcclx_group_start());
    rcclx_status s = RCCLX_OK;
    for (int r = 0; r < nranks; r++) {
        const rcclx_place place = { gpu, devices ? devices[r] : r };
        handles[r] = NULL;
        if (s == RCCLX_OK)
            s = rcclx_comm_init(&handles[r], nranks, &id, r, &place, &blocking, NULL);
    }
    if (s != RCCLX_OK)
        rcclx_group_fail(s);
    return rcclx_group_end();
}

/* --- undoing --------------------------------------------------------------------------- */

static void undo(rcclx_team *t)
{
    rcclx_comm *c = (rcclx_comm *)t;

    rcclx_team_stop(t);
    rcclx_machines_leave(c);
    rcclx_mirror_close(t);
    for (int r = 0; r < t->nranks; r++) {
        rcclx_life_close(t->peer[r].life);
        rcclx_mapping_release(t->peer[r].arena);
    }
    rcclx_segment_unmap(&t->segment);
    pthread_mutex_destroy(&c->lock);
    rcclx_mem_free(c);
}
