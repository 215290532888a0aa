/* Collectives of communicators on emulated GPUs: every kind in every way to run it, in
 * groups, on several streams, in graphs, near the wrap of turns. Inputs are small whole
 * numbers, so that sums are exact whatever their order. */
#include "check.h"

#include "gpu/emu_ranks.h"

#include "base/mem.h"

TIME_LIMIT(600)

static float value(int rank, size_t i)
{
    return (float)((rank + 1) * 3 + (int)(i % 53));
}

static float sum(int n, size_t i)
{
    return (float)(3 * n * (n + 1) / 2 + n * (int)(i % 53));
}

typedef enum { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, GATHER, SCATTER, NKINDS } kind;

static const char *const names[] = { "AllReduce", "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AlltoAll", "Gather", "Scatter" };

static ncclResult_t call(const emu_ranks *e, kind k, int r, size_t count, int root, void *in, void *out, cudaStream_t s)
{
    const ncclComm_t c = e->comm[r];

    switch (k) {
    case ALL_REDUCE:     return ncclAllReduce(in, out, count, ncclFloat, ncclSum, c, s);
    case BROADCAST:      return ncclBroadcast(in, out, count, ncclFloat, root, c, s);
    case REDUCE:         return ncclReduce(in, out, count, ncclFloat, ncclSum, root, c, s);
    case ALL_GATHER:     return ncclAllGather(in, out, count, ncclFloat, c, s);
    case REDUCE_SCATTER: return ncclReduceScatter(in, out, count, ncclFloat, ncclSum, c, s);
    case ALL_TO_ALL:     return ncclAlltoAll(in, out, count, ncclFloat, c, s);
    case GATHER:         return ncclGather(in, out, count, ncclFloat, root, c, s);
    default:             return ncclScatter(in, out, count, ncclFloat, root, c, s);
    }
}

/* Element i of rank r's result; *none: there is no result on this rank. */
static float want(kind k, int n, int r, size_t count, int root, size_t i, bool *none)
{
    *none = (k == REDUCE || k == GATHER) && r != root;
    switch (k) {
    case ALL_REDUCE:
    case REDUCE:         return sum(n, i);
    case BROADCAST:      return value(root, i);
    case ALL_GATHER:
    case GATHER:         return value((int)(i / count), i % count);
    case REDUCE_SCATTER: return sum(n, (size_t)r * count + i);
    case ALL_TO_ALL:     return value((int)(i / count), (size_t)r * count + i % count);
    default:             return value(root, (size_t)r * count + i);
    }
}

static size_t out_count(kind k, int n, size_t count)
{
    return k == ALL_GATHER || k == ALL_TO_ALL || k == GATHER ? (size_t)n * count : count;
}

static void fill(const emu_ranks *e, float *host, size_t total)
{
    for (int r = 0; r < e->n; r++) {
        for (size_t i = 0; i < total; i++)
            host[i] = value(r, i);
        emu_copy(e, r, e->in[r], host, total * sizeof *host);
    }
}

static bool right(const emu_ranks *e, kind k, int r, size_t count, int root, const void *out, float *host)
{
    const size_t total = out_count(k, e->n, count);
    bool none;

    emu_copy(e, r, host, out, total * sizeof *host);
    for (size_t i = 0; i < total; i++) {
        const float w = want(k, e->n, r, count, root, i, &none);
        if (!none && !CHECK(host[i] == w, "%s of %zu, %d ranks, root %d: rank %d, element %zu is %g, not %g", names[k], count, e->n, root,
                            r, i, (double)host[i], (double)w))
            return false;
    }
    return true;
}

static void run_all(const emu_ranks *e, const size_t *counts, int ncounts)
{
    float *host = rcclx_mem_alloc(e->nbytes);

    fill(e, host, e->nbytes / sizeof(float));
    for (int k = 0; k < NKINDS; k++)
        for (int i = 0; i < ncounts; i++) {
            const int root = (k + i) % e->n;
            EMU_OK(ncclGroupStart());
            for (int r = 0; r < e->n; r++)
                EMU_OK(call(e, (kind)k, r, counts[i], root, e->in[r], e->out[r], (cudaStream_t)e->stream[r]));
            EMU_OK(ncclGroupEnd());
            for (int r = 0; r < e->n; r++)
                if (!right(e, (kind)k, r, counts[i], root, e->out[r], host))
                    i = ncounts;
        }
    rcclx_mem_free(host);
}

TEST(every_collective_in_every_way)
{
    static const char *const ways[] = { "NCCL_PROTO=", "NCCL_PROTO=LL", "NCCL_PROTO=LL128", "NCCL_PROTO=Simple", "RCCLX_ALGO=staged",
                                        "RCCLX_ALGO=direct_push", "RCCLX_ALGO=relay", "RCCLX_ALGO=relay_staged", "RCCLX_ALGO=ring",
                                        "NCCL_MAX_CTAS=1", "NCCL_P2P_DISABLE=1" };
    static const int sizes[] = { 1, 2, 3, 5, 8 };
    static const size_t counts[] = { 0, 1, 7, 1000, 9001 };

    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            CASE("%s, %d ranks", ways[w], sizes[i]) {
                emu_settings(ways[w], NULL);
                emu_ranks *e = emu_open(sizes[i], 9001 * sizeof(float) * (size_t)sizes[i]);
                run_all(e, counts, 5);
                emu_close(e);
            }
}

TEST(sixteen_ranks_two_a_device)
{
    static const char *const ways[] = { NULL, "RCCLX_ALGO=relay", "RCCLX_ALGO=relay_staged" };
    static const size_t counts[] = { 3, 2000 };

    for (int way = 0; way < 3; way++) {
        emu_settings(ways[way], NULL);
        emu_ranks *e = emu_open(16, 2000 * sizeof(float) * 16);
        run_all(e, counts, 2);
        emu_close(e);
    }
}

TEST(turns_wrap)
{
    static const char *const starts[] = { "RCCLX_SEQ_START=2147483640", "RCCLX_SEQ_START=4294967290" };
    static const size_t counts[] = { 5, 300 };

    for (int i = 0; i < 2; i++)
        for (int way = 0; way < 2; way++) {
            emu_settings(starts[i], way ? "RCCLX_ALGO=staged" : NULL, NULL);
            emu_ranks *e = emu_open(3, 300 * sizeof(float) * 3);
            run_all(e, counts, 2);
            emu_close(e);
        }
}

/* In place, as each collective allows it. */
TEST(in_place)
{
    enum { N = 3, COUNT = 700 };
    float host[N * COUNT];

    emu_settings(NULL);
    emu_ranks *e = emu_open(N, sizeof host);
    for (int k = 0; k < NKINDS; k++) {
        fill(e, host, N * COUNT);
        if (k == ALL_GATHER || k == GATHER) /* a rank's part lies in its place already */
            for (int r = 0; r < N; r++) {
                for (size_t i = 0; i < COUNT; i++)
                    host[i] = value(r, i);
                emu_copy(e, r, e->in[r] + (size_t)r * COUNT * sizeof(float), host, COUNT * sizeof(float));
            }
        EMU_OK(ncclGroupStart());
        for (int r = 0; r < N; r++) {
            const size_t part = (size_t)r * COUNT * sizeof(float);
            char *in = e->in[r] + (k == ALL_GATHER || (k == GATHER && r == 1) ? part : 0);
            char *out = k == REDUCE_SCATTER || (k == SCATTER && r == 1) ? in + part : e->in[r];
            EMU_OK(call(e, (kind)k, r, COUNT, 1, k == GATHER && r != 1 ? e->in[r] + part : in, out, (cudaStream_t)e->stream[r]));
        }
        EMU_OK(ncclGroupEnd());
        for (int r = 0; r < N; r++) {
            const size_t part = (size_t)r * COUNT * sizeof(float);
            right(e, (kind)k, r, COUNT, 1, e->in[r] + (k == REDUCE_SCATTER || (k == SCATTER && r == 1) ? part : 0), host);
        }
    }
    emu_close(e);
}

TEST(operators_and_types)
{
    enum { N = 3, COUNT = 501 };
    double host[COUNT];
    int64_t whole[COUNT];

    emu_settings(NULL);
    emu_ranks *e = emu_open(N, sizeof host);
    for (int way = 0; way < 4; way++) {
        ncclRedOp_t ops[N];
        for (int r = 0; r < N; r++) {
            double scalar = r + 0.5;
            for (size_t i = 0; i < COUNT; i++)
                host[i] = value(r, i), whole[i] = (int64_t)value(r, i);
            emu_copy(e, r, e->in[r], way == 3 ? (void *)whole : (void *)host, sizeof host);
            ops[r] = way == 0 ? ncclMax : way == 1 ? ncclAvg : ncclProd;
            if (way == 2)
                EMU_OK(ncclRedOpCreatePreMulSum(&ops[r], &scalar, ncclDouble, ncclScalarHostImmediate, e->comm[r]));
        }
        EMU_OK(ncclGroupStart());
        for (int r = 0; r < N; r++)
            EMU_OK(ncclAllReduce(e->in[r], e->out[r], COUNT, way == 3 ? ncclInt64 : ncclDouble, ops[r], e->comm[r],
                                 (cudaStream_t)e->stream[r]));
        EMU_OK(ncclGroupEnd());
        for (int r = 0; r < N; r++) {
            emu_copy(e, r, way == 3 ? (void *)whole : (void *)host, e->out[r], sizeof host);
            for (size_t i = 0; i < COUNT; i++) {
                const double v[3] = { (double)value(0, i), (double)value(1, i), (double)value(2, i) };
                const double w = way == 0 ? v[2] : way == 1 ? (v[0] + v[1] + v[2]) / 3 : way == 2 ? 0.5 * v[0] + 1.5 * v[1] + 2.5 * v[2]
                                 : v[0] * v[1] * v[2];
                if (!CHECK((way == 3 ? (double)whole[i] : host[i]) == w, "way %d, rank %d, element %zu: %g, not %g", way, r, i,
                           way == 3 ? (double)whole[i] : host[i], w))
                    break;
            }
        }
    }
    emu_close(e);
}

/* With one rank, with flags, and with more than a lane takes. */
TEST(a_bias_is_added_once_the_sum_is_here)
{
    static const struct { int n; size_t count; } runs[] = { { 1, 100 }, { 2, 333 }, { 3, 40001 } };
    enum { MOST = 40001 };
    static float host[MOST];

    emu_settings(NULL);
    for (size_t k = 0; k < sizeof runs / sizeof runs[0]; k++) {
        const int n = runs[k].n;
        const size_t count = runs[k].count, nbytes = count * sizeof(float);
        emu_ranks *e = emu_open(n, 2 * nbytes);
        for (int r = 0; r < n; r++)
            for (int bias = 0; bias < 2; bias++) {
                for (size_t i = 0; i < count; i++)
                    host[i] = bias ? (float)(1000 * (r + 1) + (int)(i % 7)) : (float)value(r, i);
                emu_copy(e, r, e->in[r] + (bias ? nbytes : 0), host, nbytes);
            }
        EMU_OK(ncclGroupStart());
        for (int twice = 0; twice < 2; twice++) /* turns go on as if the bias were not */
            for (int r = 0; r < n; r++)
                EMU_OK(ncclAllReduceWithBias(e->in[r], e->out[r], count, ncclFloat, ncclSum, e->comm[r], (cudaStream_t)e->stream[r],
                                             e->in[r] + nbytes));
        EMU_OK(ncclGroupEnd());
        for (int r = 0; r < n; r++) {
            emu_copy(e, r, host, e->out[r], nbytes);
            for (size_t i = 0; i < count; i++) {
                float w = (float)(1000 * (r + 1) + (int)(i % 7));
                for (int q = 0; q < n; q++)
                    w += (float)value(q, i);
                if (!CHECK(host[i] == w, "%d ranks, rank %d, element %zu: %g, not %g", n, r, i, (double)host[i], (double)w))
                    break;
            }
        }
        emu_close(e);
    }
}

TEST(a_rank_alone)
{
    enum { COUNT = 100 };
    float host[COUNT], scalar = 3;
    ncclRedOp_t op;

    emu_settings(NULL);
    emu_ranks *e = emu_open(1, sizeof host);
    fill(e, host, COUNT);
    EMU_OK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, e->comm[0]));
    EMU_OK(ncclAllReduce(e->in[0], e->out[0], COUNT, ncclFloat, op, e->comm[0], (cudaStream_t)e->stream[0]));
    emu_copy(e, 0, host, e->out[0], sizeof host);
    for (size_t i = 0; i < COUNT; i++)
        CHECK(host[i] == 3 * value(0, i), "element %zu is %g", i, (double)host[i]);
    const size_t counts[1] = { COUNT }, zero[1] = { 0 };
    EMU_OK(ncclAlltoAllv(e->in[0], counts, zero, e->out[0], counts, zero, ncclFloat, e->comm[0], (cudaStream_t)e->stream[0]));
    emu_copy(e, 0, host, e->out[0], sizeof host);
    for (size_t i = 0; i < COUNT; i++)
        CHECK(host[i] == value(0, i), "element %zu is %g", i, (double)host[i]);
    emu_close(e);
}

/* More works than fit one launch, of different lanes and kernels. */
TEST(many_operations_in_a_group)
{
    enum { N = 3, OPS = 24, MOST = 600 };
    float *host = rcclx_mem_alloc(OPS * MOST * N * sizeof *host);

    emu_settings(NULL);
    emu_ranks *e = emu_open(N, OPS * MOST * N * sizeof *host);
    fill(e, host, OPS * MOST * N);
    EMU_OK(ncclGroupStart());
    for (int i = 0; i < OPS; i++)
        for (int r = 0; r < N; r++)
            EMU_OK(call(e, (kind)(i % NKINDS), r, (size_t)(i % 5 ? i * 20 : 3), i % N, e->in[r],
                        e->out[r] + (size_t)i * MOST * N * sizeof(float), (cudaStream_t)e->stream[r]));
    EMU_OK(ncclGroupEnd());
    for (int i = 0; i < OPS; i++)
        for (int r = 0; r < N; r++)
            right(e, (kind)(i % NKINDS), r, (size_t)(i % 5 ? i * 20 : 3), i % N, e->out[r] + (size_t)i * MOST * N * sizeof(float), host);
    emu_close(e);
    rcclx_mem_free(host);
}

/* Keep a rank's stream busy, so that what is posted to it next starts late. */
static void delay(const emu_ranks *e, int r, char *scratch, size_t nbytes)
{
    rcclx_gpu_scope s;

    EMU_DO(e->gpu->enter(&s, e->device[r]));
    for (int i = 0; i < 8; i++)
        EMU_DO(e->gpu->copy(scratch, scratch + nbytes / 2, nbytes / 2, e->stream[r]));
    e->gpu->leave(&s);
}

/* The second operation reads what the first writes, on another stream, which has nothing else to do. */
TEST(streams_change_and_the_order_stays)
{
    enum { N = 2, COUNT = 5000, ROUNDS = 5, BUSY = 32 << 20 };
    static float host[COUNT];
    rcclx_gpu_stream other[N];
    char *scratch[N];
    rcclx_gpu_scope s;

    emu_settings(NULL);
    emu_ranks *e = emu_open(N, sizeof host);
    for (int r = 0; r < N; r++) {
        emu_alloc(e, r, &scratch[r], BUSY);
        EMU_DO(e->gpu->enter(&s, e->device[r]));
        EMU_DO(e->gpu->stream_create(&other[r]));
        e->gpu->leave(&s);
    }
    for (int round = 0; round < ROUNDS; round++) {
        fill(e, host, COUNT);
        for (int r = 0; r < N; r++)
            delay(e, r, scratch[r], BUSY);
        for (int step = 0; step < 2; step++) {
            EMU_OK(ncclGroupStart());
            for (int r = 0; r < N; r++)
                EMU_OK(ncclAllReduce(step ? e->out[r] : e->in[r], step ? e->in[r] : e->out[r], COUNT, ncclFloat, ncclSum, e->comm[r],
                                     (cudaStream_t)(step ? other[r] : e->stream[r])));
            EMU_OK(ncclGroupEnd());
        }
        for (int r = 0; r < N; r++) {
            EMU_DO(e->gpu->enter(&s, e->device[r]));
            EMU_DO(e->gpu->stream_sync(other[r]));
            e->gpu->leave(&s);
            emu_copy(e, r, host, e->in[r], sizeof host);
            for (size_t i = 0; i < COUNT; i++)
                if (!CHECK(host[i] == N * sum(N, i), "round %d, rank %d, element %zu: %g", round, r, i, (double)host[i]))
                    break;
        }
    }
    for (int r = 0; r < N; r++) {
        EMU_DO(e->gpu->enter(&s, e->device[r]));
        EMU_DO(e->gpu->stream_destroy(other[r]));
        e->gpu->leave(&s);
        emu_free(e, r, scratch[r]);
    }
    emu_close(e);
}

/* A root runs ahead of a reader that is late, but not into the slots that it has not read. */
TEST(a_late_reader_is_not_overrun)
{
    enum { N = 3, COUNT = 200, OPS = 9, BUSY = 64 << 20 };
    float host[COUNT];
    char *scratch;
    bool over = true;

    emu_settings("NCCL_PROTO=LL", "RCCLX_TIMEOUT=20", NULL);
    emu_ranks *e = emu_open(N, OPS * sizeof host);
    fill(e, host, COUNT);
    emu_alloc(e, 0, &scratch, BUSY);
    delay(e, 0, scratch, BUSY);
    for (int i = 0; i < OPS; i++)
        for (int r = N - 1; r >= 0; r--)
            EMU_OK(ncclBroadcast(e->in[r], e->out[r] + (size_t)i * sizeof host, COUNT, ncclFloat, 1, e->comm[r],
                                 (cudaStream_t)e->stream[r]));
    for (int r = 0; r < N; r++)
        for (int i = 0; over && i < OPS; i++)
            over = right(e, BROADCAST, r, COUNT, 1, e->out[r] + (size_t)i * sizeof host, host);
    emu_free(e, 0, scratch);
    emu_close(e);
}

/* Captured once, replayed between eager calls; the graph has a credit to give and one to take. */
TEST(graphs_replay_among_eager_calls)
{
    enum { N = 3, COUNT = 300, ROUNDS = 12 };
    float host[N * COUNT];
    rcclx_gpu_graph graph[N];
    rcclx_gpu_scope s;

    emu_settings(NULL);
    emu_ranks *e = emu_open(N, sizeof host);
    fill(e, host, N * COUNT);
    for (int r = 0; r < N; r++) {
        EMU_DO(e->gpu->enter(&s, e->device[r]));
        EMU_DO(e->gpu->capture_begin(e->stream[r]));
        EMU_OK(ncclBroadcast(e->in[r], e->out[r], COUNT, ncclFloat, 1, e->comm[r], (cudaStream_t)e->stream[r]));
        EMU_OK(ncclAllReduce(e->in[r], e->out[r], COUNT, ncclFloat, ncclSum, e->comm[r], (cudaStream_t)e->stream[r]));
        EMU_OK(ncclBroadcast(e->in[r], e->out[r] + COUNT * sizeof(float), COUNT, ncclFloat, 2, e->comm[r], (cudaStream_t)e->stream[r]));
        EMU_DO(e->gpu->capture_end(e->stream[r], &graph[r]));
        e->gpu->leave(&s);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int r = 0; r < N; r++) {
            EMU_DO(e->gpu->enter(&s, e->device[r]));
            EMU_DO(e->gpu->graph_launch(graph[r], e->stream[r]));
            if (round % 3 == 1)
                EMU_OK(ncclReduceScatter(e->in[r], e->out[r] + 2 * COUNT * sizeof(float), COUNT, ncclFloat, ncclSum, e->comm[r],
                                         (cudaStream_t)e->stream[r]));
            e->gpu->leave(&s);
        }
    for (int r = 0; r < N; r++) {
        right(e, ALL_REDUCE, r, COUNT, 0, e->out[r], host);
        right(e, BROADCAST, r, COUNT, 2, e->out[r] + COUNT * sizeof(float), host);
        right(e, REDUCE_SCATTER, r, COUNT, 0, e->out[r] + 2 * COUNT * sizeof(float), host);
        EMU_DO(e->gpu->graph_destroy(graph[r]));
    }
    emu_close(e);
}

static int registered(const emu_ranks *e, int r)
{
    char text[8192] = "";

    EMU_OK(rcclxDump("comm", e->comm[r], 1, text, sizeof text, NULL));
    const char *at = strstr(text, "\"registered\":");
    return at ? atoi(at + strlen("\"registered\":")) : -1;
}

TEST(memory_of_the_library_and_registered_buffers_are_used_in_place)
{
    enum { N = 2, COUNT = 400000 };
    static float host[COUNT];
    rcclx_gpu_scope s;
    float *in[N], *out[N];
    void *handle[N];

    emu_settings("NCCL_PROTO=Simple", NULL);
    emu_ranks *e = emu_open(N, sizeof host);
    fill(e, host, COUNT);
    for (int r = 0; r < N; r++) {
        EMU_DO(e->gpu->enter(&s, e->device[r]));
        EMU_OK(ncclMemAlloc((void **)&in[r], sizeof host));
        EMU_OK(ncclMemAlloc((void **)&out[r], sizeof host));
        e->gpu->leave(&s);
        emu_copy(e, r, in[r], e->in[r], sizeof host);
    }
    EMU_OK(ncclGroupStart());
    for (int r = 0; r < N; r++)
        EMU_OK(ncclAllReduce(in[r], out[r], COUNT, ncclFloat, ncclSum, e->comm[r], (cudaStream_t)e->stream[r]));
    EMU_OK(ncclGroupEnd());
    for (int r = 0; r < N; r++) {
        right(e, ALL_REDUCE, r, COUNT, 0, out[r], host);
        CHECK(registered(e, r) == 2, "%d registered", registered(e, r));
    }
    for (int r = 0; r < N; r++) {
        EMU_OK(ncclMemFree(in[r]));
        EMU_OK(ncclMemFree(out[r]));
        CHECK(registered(e, r) == 0, "%d registered after they were freed", registered(e, r));
    }
    for (int r = 0; r < N; r++) {
        EMU_OK(ncclCommRegister(e->comm[r], e->in[r], e->nbytes, &handle[r]));
        CHECK(registered(e, r) == 1, "%d registered", registered(e, r));
    }
    static const size_t counts[] = { COUNT / 2 };
    run_all(e, counts, 1);
    for (int r = 0; r < N; r++) {
        EMU_OK(ncclCommDeregister(e->comm[r], handle[r]));
        CHECK(ncclCommDeregister(e->comm[r], handle[r]) == ncclInvalidArgument, "deregistered twice");
    }
    ncclWindow_t window[N];
    for (int r = 0; r < N; r++) {
        EMU_OK(ncclCommWindowRegister(e->comm[r], e->in[r], e->nbytes, &window[r], NCCL_WIN_COLL_SYMMETRIC));
        CHECK(window[r] && registered(e, r) == 1, "%d registered", registered(e, r));
    }
    run_all(e, counts, 1);
    for (int r = 0; r < N; r++) {
        EMU_OK(ncclCommWindowDeregister(e->comm[r], window[r]));
        CHECK(ncclCommWindowDeregister(e->comm[r], window[r]) == ncclInvalidArgument, "deregistered twice");
        CHECK(registered(e, r) == 0, "%d registered", registered(e, r));
    }
    emu_close(e);
}

TEST(nothing_is_left_behind)
{
    static const size_t counts[] = { 100 };

    for (int round = 0; round < 4; round++) {
        static size_t held;
        static int fds;
        emu_settings(NULL);
        emu_ranks *e = emu_open(3, 100 * sizeof(float) * 3);
        run_all(e, counts, 1);
        emu_close(e);
        if (round == 1)
            held = rcclx_mem_held(), fds = check_count_fds();
        if (round > 1)
            CHECK(rcclx_mem_held() == held && check_count_fds() == fds, "%zu blocks after %zu, %d handles after %d", rcclx_mem_held(), held,
                  check_count_fds(), fds);
    }
}
