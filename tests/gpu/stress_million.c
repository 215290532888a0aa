/* A great many small all-reduces in place, hundreds in flight, across the wrap of the turn counter (near 2^32)
 * and of its flags (near 2^31).
 *
 *   x of all ranks  --all-reduce-->  S  -->  n S  -->  n n S  --> ...
 *
 * Each reads what the last has written, so that a single one that goes wrong spoils the rest. With an odd
 * number of ranks integers wrap and never lose a bit; with 2, 4, 8 floats double exactly, and begin anew
 * before they overflow. On emulated GPUs 20,000, on real ones a million; RCCLX_TEST_LONG=k: 50 k times as many. */
#include "gpu/gpu_ranks.h"

TIME_LIMIT(900)

enum { ELEMENTS = 5, DEEP = 400 };

typedef struct {
    long count;
    long done;
} run;

static bool is_odd(int n)
{
    return n & 1;
}

/* All-reduces until it is looked at: floats have 2^127 to grow. */
static int batch_of(int n)
{
    return is_odd(n) ? DEEP : n == 2 ? 100 : n == 4 ? 50 : 30;
}

/* Element k before the first and what it becomes, by rank. */
static uint64_t start_of(int n, int rank, int k)
{
    const float f = (float)(1 + rank * 3 + k);
    uint64_t    bits = 0x123456789abcdefu * (uint64_t)(rank + 1) + (uint64_t)k;

    if (!is_odd(n))
        bits = 0, memcpy(&bits, &f, 4);
    return bits;
}

static uint64_t grown(int n, int k, long times)
{
    uint64_t sum = 0;
    float    f = 0;

    for (int r = 0; r < n; r++) {
        sum += start_of(n, r, k);
        f += (float)(1 + r * 3 + k);
    }
    for (long i = 1; i < times; i++)
        sum *= (uint64_t)n, f *= (float)n;
    if (!is_odd(n))
        sum = 0, memcpy(&sum, &f, 4);
    return sum;
}

static bool put_start(const gpu_worker *w, char **x)
{
    bool ok = true;

    for (int i = 0; i < w->nmine; i++) {
        const size_t size = is_odd(w->n) ? 8 : 4;
        char         host[ELEMENTS * 8];
        for (int k = 0; k < ELEMENTS; k++) {
            const uint64_t bits = start_of(w->n, w->rank[i], k);
            memcpy(host + (size_t)k * size, &bits, size);
        }
        ok = gpu_put(w, i, x[i], host, ELEMENTS * size) && ok;
    }
    return ok;
}

static bool look(const gpu_worker *w, char **x, const uint64_t *want, long done)
{
    const size_t size = is_odd(w->n) ? 8 : 4;
    bool         ok = true;

    for (int i = 0; ok && i < w->nmine; i++) {
        char host[ELEMENTS * 8];
        ok = gpu_get(w, i, host, x[i], ELEMENTS * size);
        for (int k = 0; ok && k < ELEMENTS; k++) {
            uint64_t got = 0;
            memcpy(&got, host + (size_t)k * size, size);
            ok = CHECK(got == want[k], "rank %d, element %d after %ld all-reduces: %#llx, not %#llx", w->rank[i], k, done,
                       (unsigned long long)got, (unsigned long long)want[k]);
        }
    }
    return ok;
}

static bool reduce(const gpu_worker *w, char **x)
{
    const ncclDataType_t t = is_odd(w->n) ? ncclUint64 : ncclFloat;
    bool                 ok = true;

    gpu_open(w);
    for (int i = 0; i < w->nmine; i++)
        ok = OK_OR_TELL(ncclAllReduce(x[i], x[i], ELEMENTS, t, ncclSum, w->comm[i], (cudaStream_t)w->stream[i])) && ok;
    return gpu_close(w) && ok;
}

static void work(gpu_worker *w)
{
    run     *r = w->arg;
    char    *x[CONFORM_RANKS] = { 0 };
    uint64_t want[ELEMENTS];
    const int batch = batch_of(w->n);
    bool     ok = true;
    long     done = 0;

    for (int i = 0; i < w->nmine; i++)
        ok = ok && gpu_alloc(w, i, &x[i], ELEMENTS * 8);
    ok = ok && put_start(w, x);
    for (int k = 0; k < ELEMENTS; k++)
        want[k] = grown(w->n, k, is_odd(w->n) ? 1 : batch);
    while (ok && done < r->count) {
        for (int i = 0; ok && i < batch; i++)
            ok = reduce(w, x);
        if (is_odd(w->n)) /* it has become n^batch times as much, at first n^(batch-1) */
            for (int k = 0; k < ELEMENTS; k++)
                for (int i = done ? 0 : 1; i < batch; i++)
                    want[k] *= (uint64_t)w->n;
        done += batch;
        ok = ok && look(w, x, want, done) && (is_odd(w->n) || put_start(w, x));
    }
    for (int i = 0; i < w->nmine; i++) {
        gpu_sync(w, i, w->stream[i]);
        gpu_free(w, i, x[i]);
    }
}

static void go(gpu_team *t, const char *env, double share, uint64_t wrap)
{
    const bool real = gpu_here()->kind != RCCLX_GPU_EMU;
    run        r = { .count = (long)(share * (real ? 1000000 : 20000) * gpu_longer(50)) };

    if (!gpu_fits(t))
        return;
    t->work = work;
    t->arg = &r;
    snprintf(t->env[0], sizeof t->env[0], "%s", env);
    snprintf(t->env[1], sizeof t->env[1], "RCCLX_SEQ_START=%llu", (unsigned long long)(wrap - (uint64_t)r.count / 2));
    CASE("%ld all-reduces, %s, %s, %d ranks on %d devices, %s", r.count, env, t->env[1], t->n, t->ndevices ? t->ndevices : t->n,
         gpu_place_names[t->place]) {
        CHECK(gpu_run(t) == 0, "ranks failed");
        gpu_end(t);
    }
}

TEST(a_million)
{
    static const struct { int n, ndevices; gpu_place place; const char *env; double share; } teams[] = {
        { 2, 0, GPU_PROCESSES, "RCCLX_ALGO=", 0.2 },     { 2, 0, GPU_PROCESSES, "NCCL_PROTO=LL128", 0.1 },
        { 2, 0, GPU_PROCESSES, "NCCL_PROTO=Simple", 0.1 }, { 3, 1, GPU_THREADS, "RCCLX_ALGO=", 0.1 },
        { 3, 2, GPU_ONE_THREAD, "NCCL_PROTO=LL128", 0.05 }, { 4, 2, GPU_THREADS, "RCCLX_ALGO=ll_two", 0.1 },
        { 5, 0, GPU_PROCESSES, "RCCLX_ALGO=", 0.1 },     { 3, 0, GPU_PROCESSES, "RCCLX_ALGO=staged", 0.05 },
        { 3, 2, GPU_THREADS, "NCCL_PROTO=Simple", 0.05 }, { 8, 0, GPU_PROCESSES, "RCCLX_ALGO=", 0.05 },
        { 7, 2, GPU_ONE_THREAD, "RCCLX_ALGO=", 0.05 },   { 2, 0, GPU_THREADS, "RCCLX_GPU_LANES=4", 0.05 },
    };

    for (size_t i = 0; i < sizeof teams / sizeof *teams; i++)
        for (int high = 0; high < 2; high++) {
            gpu_team t = { .n = teams[i].n, .ndevices = teams[i].ndevices, .place = teams[i].place };
            go(&t, teams[i].env, teams[i].share / 2, UINT64_C(1) << (high ? 32 : 31));
        }
}
