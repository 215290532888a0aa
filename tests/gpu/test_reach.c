/* What the links between emulated GPUs do, and what is done about it: the kernel that
 * tries them, alone with a peer that this test plays; devices that do not reach each other,
 * whose ranks share host memory; LL128 as asked for. */
#include "check.h"

#include "gpu/emu_ranks.h"

#include "base/mem.h"
#include "comm/handle.h"
#include "device/gpu_emu.h"
#include "device/kernels/litmus.h"
#include "exec/gpu_team.h"

TIME_LIMIT(300)

/* ---- the kernel: rank 0 of 2 */

enum { ROUNDS = 5, BASE = 0x777000, LINES = GP_LITMUS_GROUPS * RCCLX_EMU_WAVE / 8, WORDS = 32 /* of a line */ };

typedef enum { GOOD, TORN_DATA, TORN_AHEAD, SILENT, UNREADABLE, FORGETFUL, ABORTED } peer_kind;

typedef struct {
    const rcclx_gpu *gpu;
    rcclx_gpu_stream stream;
    gp_litmus_args   a;
    gp_control      *control;
    gp_verdict      *verdict;
} stage;

static uint32_t *slot(const stage *s, int owner, int writer)
{
    char *window = (char *)(uintptr_t)s->a.window[owner];

    return (uint32_t *)(void *)(window + s->a.at + (size_t)writer * GP_LITMUS_WAVES * GP_LITMUS_SLOT);
}

static void stage_open(stage *s, double limit)
{
    rcclx_gpu_module m;
    rcclx_gpu_fn f;
    void *p;

    *s = (stage){ .gpu = emu_gpu() };
    for (int r = 0; r < 2; r++) {
        EMU_DO(s->gpu->alloc(&p, 4096 + GP_LITMUS_BYTES, true));
        s->a.window[r] = (uint64_t)(uintptr_t)p;
    }
    EMU_DO(s->gpu->alloc_host(&p, 4096));
    s->control = p;
    s->verdict = (gp_verdict *)(void *)((char *)p + 2048);
    EMU_DO(s->gpu->stream_create(&s->stream));
    s->a.at = 4096;
    s->a.control = (uint64_t)(uintptr_t)s->control;
    s->a.verdict = (uint64_t)(uintptr_t)s->verdict;
    s->a.limit_ns = (uint64_t)(limit * check_scale() * 1e9);
    s->a.base = BASE;
    s->a.rounds = ROUNDS;
    s->a.nranks = 2;
    s->a.nthreads = RCCLX_EMU_WAVE;
    EMU_DO(s->gpu->load(&m, 0));
    EMU_DO(s->gpu->function(&f, m, "gp_litmus"));
    EMU_DO(s->gpu->launch(f, 1, s->a.nthreads, s->stream, &s->a, sizeof s->a));
}

static void stage_close(stage *s)
{
    EMU_DO(s->gpu->stream_sync(s->stream));
    EMU_DO(s->gpu->stream_destroy(s->stream));
    EMU_DO(s->gpu->free_host(s->control));
    for (int r = 0; r < 2; r++)
        EMU_DO(s->gpu->free((void *)(uintptr_t)s->a.window[r]));
}

static void put(uint32_t *word, int n, uint32_t v)
{
    for (int i = 0; i < n; i++)
        __atomic_store_n(&word[i], v, __ATOMIC_RELEASE);
}

/* Rank 1's side of round v, its lines in rank 0's window. */
static void answer(const stage *s, uint32_t v, peer_kind kind)
{
    uint32_t *lines = slot(s, 0, 1);

    for (int l = 0; l < LINES; l++) {
        uint32_t *line = lines + l * WORDS;
        if (kind == TORN_DATA && l == 2 && v == BASE + 3) {
            put(line + 28, 4, v); /* the flag has come, the data never will */
            continue;
        }
        if (kind == TORN_AHEAD && l == 2 && v == BASE + ROUNDS) { /* in the last round, so that no other finds it */
            put(line, 28, v);
            put(line + 28, 4, v + 1);
            continue;
        }
        put(line, 28, v);
        put(line + 28, 4, v);
    }
}

static void play(stage *s, peer_kind kind)
{
    put(slot(s, 1, 1), LINES * WORDS, BASE + ROUNDS - (kind == UNREADABLE));
    for (uint32_t v = BASE + 1; v <= BASE + ROUNDS; v++) {
        const uint32_t *last = slot(s, 1, 0) + LINES * WORDS - 1;
        if (kind == SILENT || kind == ABORTED)
            break;
        if (!WAIT_FOR(__atomic_load_n(last, __ATOMIC_ACQUIRE) == v || __atomic_load_n(&s->verdict->done, __ATOMIC_ACQUIRE), 20))
            break;
        if (kind == FORGETFUL && v == BASE + ROUNDS)
            put(slot(s, 1, 0) + 40, 1, v - 1); /* what rank 0 has stored is gone again */
        answer(s, v, kind);
    }
    if (kind == ABORTED)
        __atomic_store_n(&s->control->abort, 1, __ATOMIC_RELEASE);
}

static void try_kind(peer_kind kind, uint32_t deaf, uint32_t torn)
{
    stage s;

    stage_open(&s, kind == ABORTED ? 1000 : kind == SILENT ? 0.3 : kind == TORN_DATA ? 2 : 20);
    play(&s, kind);
    CHECK(WAIT_FOR(__atomic_load_n(&s.verdict->done, __ATOMIC_ACQUIRE), 20), "kind %d: no end", kind);
    CHECK(s.verdict->deaf == deaf, "kind %d: deaf to %#x", kind, s.verdict->deaf);
    CHECK(s.verdict->torn == torn, "kind %d: torn by %#x", kind, s.verdict->torn);
    stage_close(&s);
}

TEST(the_kernel_sees_what_its_peer_does)
{
    emu_settings(NULL);
    CASE("a good one")
        try_kind(GOOD, 0, 0);
    CASE("a line in parts")
        try_kind(TORN_DATA, 2, 2);
    CASE("a flag before its data")
        try_kind(TORN_AHEAD, 0, 2);
    CASE("silence")
        try_kind(SILENT, 2, 0);
    CASE("another's window")
        try_kind(UNREADABLE, 2, 0);
    CASE("lost stores")
        try_kind(FORGETFUL, 2, 0);
    CASE("abort")
        try_kind(ABORTED, 2, 0);
}

/* ---- communicators */

enum { MOST = 4, COUNT = 9001 };

typedef struct {
    atomic_int   made;
    ncclUniqueId id;
    int          threads;      /* ranks of a process */
    bool         host;         /* expected: windows in host memory */
    const char  *log;          /* of rank 0's process; NULL: not looked at */
} shared;

static float value(int rank, size_t i)
{
    return (float)((rank + 1) * 3 + (int)(i % 53));
}

static float sum(int n, size_t i)
{
    return (float)(3 * n * (n + 1) / 2 + n * (int)(i % 53));
}

typedef struct {
    const rcclx_gpu *gpu;
    rcclx_gpu_stream stream;
    ncclComm_t comm;
    int        rank, n;
    float     *in, *out, host[MOST * COUNT];
} member;

static bool run(member *m, int kind, size_t count)
{
    const cudaStream_t s = (cudaStream_t)m->stream;
    const size_t total = kind == 1 || kind == 2 ? count * (size_t)m->n : count;
    const int next = (m->rank + 1) % m->n, before = (m->rank + m->n - 1) % m->n;

    switch (kind) {
    case 0: EMU_OK(ncclAllReduce(m->in, m->out, count, ncclFloat, ncclSum, m->comm, s)); break;
    case 1: EMU_OK(ncclAllGather(m->in, m->out, count, ncclFloat, m->comm, s)); break;
    case 2: EMU_OK(ncclAlltoAll(m->in, m->out, count, ncclFloat, m->comm, s)); break;
    case 3: EMU_OK(ncclBroadcast(m->in, m->out, count, ncclFloat, 1, m->comm, s)); break;
    case 4: EMU_OK(ncclReduceScatter(m->in, m->out, count, ncclFloat, ncclSum, m->comm, s)); break;
    default:
        EMU_OK(ncclGroupStart());
        EMU_OK(ncclSend(m->in, count, ncclFloat, next, m->comm, s));
        EMU_OK(ncclRecv(m->out, count, ncclFloat, before, m->comm, s));
        EMU_OK(ncclGroupEnd());
    }
    EMU_DO(m->gpu->copy(m->host, m->out, total * sizeof(float), m->stream));
    EMU_DO(m->gpu->stream_sync(m->stream));
    for (size_t i = 0; i < total; i++) {
        const float w = kind == 0 ? sum(m->n, i) : kind == 1 ? value((int)(i / count), i % count)
                      : kind == 2 ? value((int)(i / count), (size_t)m->rank * count + i % count) : kind == 3 ? value(1, i)
                      : kind == 4 ? sum(m->n, (size_t)m->rank * count + i) : value(before, i);
        if (!CHECK(m->host[i] == w, "kind %d of %zu: rank %d, element %zu is %g, not %g", kind, count, m->rank, i,
                   (double)m->host[i], (double)w))
            return false;
    }
    return true;
}

static void look_at_windows(const member *m, bool host)
{
    char text[8192];

    EMU_OK(rcclxDump("comm", m->comm, 1, text, sizeof text, NULL));
    CHECK(strstr(text, host ? "\"window_memory\":\"host\"" : "\"window_memory\":\"device\"") ||
          strstr(text, host ? "\"window_memory\": \"host\"" : "\"window_memory\": \"device\""), "%s", text);
    rcclx_comm *c = rcclx_handle_get(m->comm); /* before the first call nothing is in the slots of LL128 */
    const char *lines = rcclx_windows_at(c->team.gpu->windows, m->rank) + c->team.gpu->picker.at.ll128;
    size_t i = 0;
    while (i < GP_LITMUS_BYTES && !lines[i])
        i++;
    CHECK(i == GP_LITMUS_BYTES, "rank %d: byte %zu of the test is left", m->rank, i);
    rcclx_handle_put(c);
}

static int member_main(int rank, int n, shared *s)
{
    member *m = rcclx_mem_alloc(sizeof *m);
    rcclx_gpu_scope scope;
    void *reg, *p, *q;

    *m = (member){ .gpu = emu_gpu(), .rank = rank, .n = n };
    EMU_DO(m->gpu->enter(&scope, rank));
    if (rank == 0) {
        EMU_OK(ncclGetUniqueId(&s->id));
        atomic_store(&s->made, 1);
    }
    CHECK(WAIT_FOR(atomic_load(&s->made), 10), "no id");
    if (!EMU_OK(ncclCommInitRank(&m->comm, n, s->id, rank)))
        return 1;
    look_at_windows(m, s->host);
    EMU_DO(m->gpu->stream_create(&m->stream));
    EMU_OK(ncclMemAlloc(&p, sizeof m->host));
    EMU_OK(ncclMemAlloc(&q, sizeof m->host));
    m->in = p, m->out = q;
    EMU_OK(ncclCommRegister(m->comm, p, sizeof m->host, &reg));
    for (size_t i = 0; i < MOST * COUNT; i++)
        m->host[i] = value(rank, i);
    EMU_DO(m->gpu->copy(m->in, m->host, sizeof m->host, m->stream));
    for (int kind = 0; kind < 6; kind++)
        for (int i = 0; i < 3; i++)
            if (!run(m, kind, (size_t[]){ 3, 700, COUNT }[i]))
                i = kind = 9;
    EMU_OK(ncclCommDeregister(m->comm, reg));
    EMU_OK(ncclCommDestroy(m->comm));
    EMU_OK(ncclMemFree(p));
    EMU_OK(ncclMemFree(q));
    EMU_DO(m->gpu->stream_destroy(m->stream));
    m->gpu->leave(&scope);
    rcclx_mem_free(m);
    return 0;
}

static int as_thread(int rank, int n, void *arg)
{
    return member_main(rank, n, arg);
}

static int as_process(int rank, int n, void *arg)
{
    shared *s = arg;

    if (s->threads > 1)
        return run_ranks_as_threads(s->threads, as_thread, s);
    return member_main(rank, n, s);
}

/* n ranks in processes of `threads`; either one process or one rank each. */
static void together(int n, int threads, bool host)
{
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    s->threads = threads;
    s->host = host;
    CHECK(run_ranks_as_processes(n / threads, as_process, s) == 0, "ranks failed");
    munmap(s, sizeof *s);
}

TEST(devices_that_do_not_reach_each_other_share_host_memory)
{
    static const char *const ways[] = { "NCCL_PROTO=", "NCCL_PROTO=LL", "NCCL_PROTO=LL128", "NCCL_PROTO=Simple" };

    for (int w = 0; w < 4; w++)
        for (int threads = 1; threads <= 3; threads += 2)
            CASE("%s, %d ranks a process", ways[w], threads) {
                emu_settings(ways[w], "RCCLX_EMU_UNREACHABLE=0-1", NULL);
                together(3, threads, true);
            }
    CASE("a way that is not to be used") {
        emu_settings("NCCL_P2P_DISABLE=1", NULL);
        together(3, 1, true);
    }
    CASE("nobody out of reach") {
        emu_settings("RCCLX_EMU_UNREACHABLE=0-5", NULL);
        together(3, 1, false);
    }
    emu_settings(NULL);
}

/* ---- what is told */

static int tells(int rank, int n, void *arg)
{
    char *const log = arg, *at, *again;
    char text[16384] = "";

    (void)rank, (void)n;
    emu_ranks *e = emu_open(3, 4096);
    emu_close(e);
    FILE *f = fopen(log, "r");
    if (!CHECK(f, "%s", log))
        return 1;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    CHECK((at = strstr(text, "goes through host memory, which is slow")), "%s", text);
    CHECK(at && strstr(at, "rank 0 of 3: device 0 cannot map the memory of rank 2"), "%s", text);
    CHECK(!(again = at ? strstr(at + 1, "goes through host memory, which") : NULL), "told twice: %s", again);
    return 0;
}

TEST(the_pair_without_a_way_is_named_once)
{
    char log[] = "/tmp/rcclx-reach-XXXXXX", line[64];

    close(mkstemp(log));
    snprintf(line, sizeof line, "NCCL_DEBUG_FILE=%s", log);
    setenv("NCCL_DEBUG", "WARN", 1);
    emu_settings(line, "RCCLX_EMU_UNREACHABLE=0-2", NULL);
    CHECK(run_ranks_as_processes(1, tells, log) == 0, "failed");
    unsetenv("NCCL_DEBUG_FILE");
    unsetenv("NCCL_DEBUG");
    unlink(log);
    emu_settings(NULL);
}

/* ---- LL128 as asked for */

static bool uses_ll128(const char *setting)
{
    rcclx_gpu_choice choice = { .nlanes = 0 };

    emu_settings(setting, "NCCL_PROTO=LL128", NULL);
    emu_ranks *e = emu_open(2, 4096);
    rcclx_comm *c = rcclx_handle_get(e->comm[1]);
    EMU_DO(rcclx_gpu_explain(&c->team, RCCLX_ALL_REDUCE, 4096, &choice));
    CHECK((choice.protocol == RCCLX_PROTO_LL128) == c->team.gpu->lines, "protocol %d", choice.protocol);
    rcclx_handle_put(c);
    emu_close(e);
    return choice.protocol == RCCLX_PROTO_LL128;
}

TEST(ll128_as_asked_for)
{
    CHECK(uses_ll128("RCCLX_LL128=auto"), "auto: no, though lines arrive whole");
    CHECK(uses_ll128("RCCLX_LL128=1"), "1: no");
    CHECK(!uses_ll128("RCCLX_LL128=0"), "0: yes");
    CHECK(!uses_ll128("NCCL_P2P_DISABLE=1"), "yes, in host memory");
    emu_settings(NULL);
}

/* ---- verdicts: the driver's launch is taken over, and what the kernel would say is said in its place */

static struct {
    rcclx_status (*launch)(rcclx_gpu_fn f, unsigned blocks, unsigned threads, rcclx_gpu_stream s, const void *args, size_t nargs);
    int        deaf, torn;       /* how many times rank 2 is deaf to rank 0, rank 1 sees a torn line of rank 2 */
    atomic_int asked[3];
} said;

static rcclx_status say(rcclx_gpu_fn f, unsigned blocks, unsigned threads, rcclx_gpu_stream s, const void *args, size_t nargs)
{
    const gp_litmus_args *a = args;

    if (nargs != sizeof *a)
        return said.launch(f, blocks, threads, s, args, nargs);
    const int time = atomic_fetch_add(&said.asked[a->rank], 1);
    gp_verdict *v = (gp_verdict *)(uintptr_t)a->verdict;
    v->deaf = a->rank == 2 && time < said.deaf ? 1u << 0 : 0;
    v->torn = a->rank == 1 && time < said.torn ? 1u << 2 : 0;
    __atomic_store_n(&v->done, 1, __ATOMIC_RELEASE);
    return RCCLX_OK;
}

static ncclResult_t init_with(const char *setting, int deaf, int torn, bool *host, bool *lines)
{
    rcclx_gpu *g = (rcclx_gpu *)(uintptr_t)emu_gpu();
    ncclComm_t comm[3] = { NULL };

    emu_settings(setting, NULL);
    said.launch = g->launch;
    said.deaf = deaf;
    said.torn = torn;
    for (int r = 0; r < 3; r++)
        atomic_store(&said.asked[r], 0);
    g->launch = say;
    const ncclResult_t result = ncclCommInitAll(comm, 3, NULL);
    g->launch = said.launch;
    if (result == ncclSuccess) {
        rcclx_comm *c = rcclx_handle_get(comm[1]);
        *host = c->team.gpu->in_host;
        *lines = c->team.gpu->lines;
        rcclx_handle_put(c);
    }
    for (int r = 0; r < 3; r++)
        if (comm[r])
            EMU_OK(ncclCommDestroy(comm[r]));
    return result;
}

TEST(all_ranks_follow_the_verdicts)
{
    enum { ALWAYS = 99 };
    bool host, lines;

    EMU_OK(init_with("RCCLX_LL128=auto", 0, 0, &host, &lines));
    CHECK(!host && lines, "nothing wrong: host %d, lines %d", host, lines);
    EMU_OK(init_with("RCCLX_LL128=auto", 0, 1, &host, &lines));
    CHECK(!host && !lines, "torn: host %d, lines %d", host, lines);
    EMU_OK(init_with("RCCLX_LL128=1", 0, 1, &host, &lines));
    CHECK(!host && lines, "torn, but asked for: host %d, lines %d", host, lines);
    EMU_OK(init_with("RCCLX_LL128=auto", 1, 0, &host, &lines));
    CHECK(!host && lines, "slow once: host %d, lines %d", host, lines);
    EMU_OK(init_with("RCCLX_LL128=auto", 2, 0, &host, &lines));
    CHECK(host && !lines, "deaf: host %d, lines %d", host, lines);
    CHECK(init_with("RCCLX_LL128=auto", ALWAYS, 0, &host, &lines) != ncclSuccess &&
          strstr(ncclGetLastError(NULL), "rank 2 does not see what rank 0 stores in host memory"), "%s", ncclGetLastError(NULL));
    emu_settings(NULL);
}
