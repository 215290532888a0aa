/* A01: one of four local processes is killed, at a random moment, also from
 * within a call. The three others are told who, in what, and soon; what they had
 * before is right; abort returns; they can go on without the dead one. A rank
 * that is only stopped for a while is not dead. */
#include "check.h"

#include "world.h"

TIME_LIMIT(180)

enum { N = 4, VICTIM = 2, SEEDS = 20 };

/* The rule is a second; what is asserted leaves room for a busy machine. */
#define TOLD_WITHIN 3.0

typedef enum { LOOP, INSIDE, STREAM, GROUP, PAIR, POLL } kind; /* where the survivors are, and how the victim dies */

typedef struct {
    world   *w;
    kind     kind;
    unsigned seed;
    size_t   count;
    bool     arena;
} plan;

enum { DIED = 0, WORST = 1 }; /* notes: when the victim ended; + rank: how long until rank knew */

static void die(world *w)
{
    atomic_store(&w->note[DIED], check_now());
    raise(SIGKILL);
}

static void *die_later(void *arg)
{
    const plan *p = arg;

    usleep(1000 + p->seed * 7919 % 40000);
    die(p->w);
    return NULL;
}

static void *buffer(const plan *p)
{
    void *b = NULL;

    if (p->arena)
        ncclMemAlloc(&b, p->count * sizeof(float));
    else
        b = malloc(p->count * sizeof(float));
    return b;
}

static void give_back(const plan *p, void *b)
{
    if (p->arena)
        ncclMemFree(b);
    else
        free(b);
}

static ncclResult_t on_stream(ncclComm_t c, int rank, long call, float *in, float *out, size_t count)
{
    static cudaStream_t s;

    if (!s && rcclxStreamCreate(&s) != ncclSuccess)
        return ncclInternalError;
    for (size_t i = 0; i < count; i++)
        in[i] = world_value(rank, call);
    const ncclResult_t r = ncclAllReduce(in, out, count, ncclFloat, ncclSum, c, s);
    const ncclResult_t done = rcclxStreamSynchronize(s);
    return r != ncclSuccess ? r : done;
}

static ncclResult_t in_group(ncclComm_t c, int rank, int n, long call, float *in, float *out, size_t count)
{
    const int next = (rank + 1) % n, before = (rank + n - 1) % n;

    for (size_t i = 0; i < count; i++)
        in[i] = world_value(rank, call);
    ncclGroupStart();
    ncclAllReduce(in, out, count / 2, ncclFloat, ncclSum, c, NULL);
    ncclSend(in, count / 2, ncclFloat, next, c, NULL);
    ncclRecv(out + count / 2, count / 2, ncclFloat, before, c, NULL);
    return ncclGroupEnd();
}

/* Operations until one fails; on the victim until it dies. */
static ncclResult_t work(const plan *p, ncclComm_t c, int rank, float *in, float *out)
{
    const long   last = p->kind == INSIDE ? LONG_MAX : 1 + (long)(p->seed * 2654435761u >> 16) % 60;
    ncclResult_t r = ncclSuccess;

    for (long call = 0; r == ncclSuccess; call++) {
        if (rank == VICTIM && call == last)
            die(p->w);
        if (p->kind == STREAM)
            r = on_stream(c, rank, call, in, out, p->count);
        else if (p->kind == GROUP)
            r = in_group(c, rank, N, call, in, out, p->count);
        else if (p->kind == PAIR && call == last)
            r = ncclRecv(out, p->count, ncclFloat, VICTIM, c, NULL);
        else if (p->kind == POLL && call == last)
            r = world_async(c, 20);
        else
            r = world_reduce(c, rank, N, call, in, out, p->count);
    }
    return r;
}

/* The text names the dead rank and what waited for it (or that nothing did). */
static void look_at(const plan *p, int rank, ncclResult_t r, ncclComm_t c)
{
    const char  *what = p->kind == PAIR ? "Recv" : "AllReduce";
    ncclResult_t async = ncclSuccess;
    char         text[1024], victim[16];

    snprintf(victim, sizeof victim, "rank %d", VICTIM);
    snprintf(text, sizeof text, "%s", ncclGetLastError(c));
    CHECK(r == ncclRemoteError, "rank %d: result %d: %s", rank, (int)r, text);
    CHECK(strstr(text, victim), "rank %d: no '%s' in: %s", rank, victim, text);
    CHECK(p->kind == POLL || p->kind == GROUP || strstr(text, what), "rank %d: no '%s' in: %s", rank, what, text);
    CHECK(ncclCommGetAsyncError(c, &async) == ncclSuccess && async == ncclRemoteError, "rank %d: async error %d", rank, (int)async);
    float x = 1, y;
    CHECK(ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, c, NULL) == ncclRemoteError, "rank %d: the next call is not told", rank);
}

static int rank_main(int rank, int n, void *arg)
{
    const plan *p = arg;
    world      *w = p->w;
    ncclComm_t  c = world_comm(w, 0, rank, n);
    float      *in = buffer(p), *out = buffer(p);
    pthread_t   t;

    if (!c || !in || !out)
        return 1;
    if (p->kind == INSIDE && rank == VICTIM)
        pthread_create(&t, NULL, die_later, arg);
    const ncclResult_t r = work(p, c, rank, in, out);
    const double       took = check_now() - atomic_load(&w->note[DIED]);
    atomic_store(&w->note[WORST + rank], took);
    CHECK(took < TOLD_WITHIN * check_scale(), "rank %d was told %.2f s after the death", rank, took);
    look_at(p, rank, r, c);
    CHECK(IN_TIME(1.5, ncclCommAbort(c)) == ncclSuccess, "rank %d: abort: %s", rank, ncclGetLastError(NULL));

    /* the survivors go on */
    const int now = rank > VICTIM ? rank - 1 : rank;
    c = world_comm(w, 1, now, n - 1);
    world_works(c, now, n - 1);
    CHECK(ncclCommDestroy(c) == ncclSuccess, "destroy: %s", ncclGetLastError(NULL));
    give_back(p, in);
    give_back(p, out);
    return 0;
}

static int ours_in_dev_shm(void)
{
    DIR *d = opendir("/dev/shm");
    int  n = 0;

    for (struct dirent *e; d && (e = readdir(d));)
        n += strstr(e->d_name, "rcclx") || strstr(e->d_name, "nccl");
    if (d)
        closedir(d);
    return n;
}

/* Death by death; the longest time until a survivor knew is printed. */
static void deaths(kind k, const char *name, int nseeds)
{
    static const size_t counts[] = { 4, 3000, 70000, 400000 };
    const int           before = ours_in_dev_shm();
    double              worst = 0;

    for (int seed = 0; seed < nseeds; seed++) {
        check_ranks r;
        plan        p = { world_open(), k, (unsigned)seed + 1, counts[seed % 4], seed / 4 % 2 };
        check_ranks_start(&r, N, rank_main, &p);
        check_ranks_wait(&r, 30);
        for (int i = 0; i < N; i++) {
            CHECK(r.status[i] == (i == VICTIM ? -SIGKILL : 0), "seed %d: rank %d ended with %d", seed, i, r.status[i]);
            if (i != VICTIM && atomic_load(&p.w->note[WORST + i]) > worst)
                worst = atomic_load(&p.w->note[WORST + i]);
        }
        world_close(p.w);
    }
    CHECK(ours_in_dev_shm() <= before, "%d entries left in /dev/shm", ours_in_dev_shm() - before);
    check_say("# %s: told at the latest after %.0f ms\n", name, worst * 1e3);
}

TEST(killed_between_collectives)
{
    deaths(LOOP, "between collectives", world_long() ? 10 * SEEDS : SEEDS);
}

TEST(killed_inside_a_collective)
{
    deaths(INSIDE, "inside a collective", world_long() ? 10 * SEEDS : SEEDS);
}

TEST(killed_while_others_wait_on_streams)
{
    deaths(STREAM, "on streams", 4);
}

TEST(killed_while_others_wait_in_groups)
{
    deaths(GROUP, "in groups", 4);
}

TEST(killed_before_a_message)
{
    deaths(PAIR, "in Recv", 4);
}

TEST(killed_while_others_only_ask)
{
    deaths(POLL, "asking", 4);
}

/* ---- not dead, only stopped */

static int patient_rank(int rank, int n, void *arg)
{
    world     *w = arg;
    ncclComm_t c = world_comm(w, 0, rank, n);
    static float in[5000], out[5000];
    const double end = check_now() + 2;

    if (!c)
        return 1;
    /* all leave at the same call: rank 0 says after which */
    for (long call = 0;; call++) {
        const ncclResult_t r = world_reduce(c, rank, n, call, in, out, call % 2 ? 5000 : 3);
        if (!CHECK(r == ncclSuccess, "rank %d, call %ld: %d, %s", rank, call, (int)r, ncclGetLastError(c)))
            return 1;
        atomic_store(&w->note[rank], (double)call);
        float stop = check_now() > end, all = 0;
        if (ncclAllReduce(&stop, &all, 1, ncclFloat, ncclMax, c, NULL) != ncclSuccess || all > 0)
            break;
    }
    ncclResult_t async = ncclInternalError;
    CHECK(ncclCommGetAsyncError(c, &async) == ncclSuccess && async == ncclSuccess, "rank %d: async error %d", rank, (int)async);
    CHECK(ncclCommDestroy(c) == ncclSuccess, "destroy: %s", ncclGetLastError(NULL));
    return 0;
}

TEST(a_stopped_rank_is_not_dead)
{
    check_ranks r;
    world      *w = world_open();

    setenv("RCCLX_TIMEOUT", "20", 1);
    check_ranks_start(&r, N, patient_rank, w);
    CHECK(WAIT_FOR(atomic_load(&w->note[VICTIM]) > 10, 20), "no progress");
    kill(r.pid[VICTIM], SIGSTOP);
    usleep(1200000);
    const double held = atomic_load(&w->note[VICTIM]);
    kill(r.pid[VICTIM], SIGCONT);
    CHECK(WAIT_FOR(atomic_load(&w->note[0]) > held + 10, 20), "no progress after SIGCONT");
    check_ranks_wait(&r, 30);
    for (int i = 0; i < N; i++)
        CHECK(r.status[i] == 0, "rank %d ended with %d", i, r.status[i]);
    unsetenv("RCCLX_TIMEOUT");
    world_close(w);
}

/* ---- stopped for longer than the limit that was asked for */

static int impatient_rank(int rank, int n, void *arg)
{
    world       *w = arg;
    ncclComm_t   c = world_comm(w, 0, rank, n);
    float        in[3], out[3];
    ncclResult_t r = ncclSuccess;

    for (long call = 0; c && r == ncclSuccess; call++) {
        r = world_reduce(c, rank, n, call, in, out, 3);
        atomic_store(&w->note[rank], (double)call);
    }
    CHECK(r == ncclRemoteError, "rank %d: %d", rank, (int)r);
    if (rank != VICTIM)
        CHECK(strstr(ncclGetLastError(c), "rank 2") && strstr(ncclGetLastError(c), "RCCLX_TIMEOUT"), "rank %d: %s", rank,
              ncclGetLastError(c));
    CHECK(IN_TIME(1.5, ncclCommAbort(c)) == ncclSuccess, "abort: %s", ncclGetLastError(NULL));
    return 0;
}

TEST(stopped_for_longer_than_the_timeout)
{
    check_ranks r;
    world      *w = world_open();

    setenv("RCCLX_TIMEOUT", "1", 1);
    check_ranks_start(&r, N, impatient_rank, w);
    CHECK(WAIT_FOR(atomic_load(&w->note[VICTIM]) > 10, 20), "no progress");
    kill(r.pid[VICTIM], SIGSTOP);
    const double began = check_now();
    for (int i = 0; i < N; i++)
        if (i != VICTIM)
            CHECK(WAIT_FOR(check_rank_ended(&r, i), 10) && r.status[i] == 0, "rank %d: %d", i, r.status[i]);
    CHECK(check_now() - began > 0.9, "given up after %.2f s", check_now() - began);
    kill(r.pid[VICTIM], SIGCONT);
    check_ranks_wait(&r, 10);
    CHECK(r.status[VICTIM] == 0, "the stopped rank ended with %d", r.status[VICTIM]);
    unsetenv("RCCLX_TIMEOUT");
    world_close(w);
}
