/* More ranks than a machine has cores, by far: hundreds, which are threads. Every collective and messages, at a size
 * that goes at once and at one that goes in pieces; as many communicators as ranks are made and destroyed. */
#include "check.h"
#include "nccl.h"

TIME_LIMIT(300)

enum { EACH = 40, LONG = 3000 };

typedef struct {
    ncclUniqueId id;
    atomic_int   have_id;
    int          n, each;
} meeting;

static int value(int rank, int i)
{
    return (rank + 1) * 3 + i % 53;
}

static bool holds(int rank, const char *what, const int *out, int count, int (*want)(int n, int rank, int i), int n)
{
    for (int i = 0; i < count; i++)
        if (!CHECK(out[i] == want(n, rank, i), "rank %d of %d: %s: [%d] is %d, not %d", rank, n, what, i, out[i], want(n, rank, i)))
            return false;
    return true;
}

static int sum(int n, int rank, int i)
{
    (void)rank;
    return 3 * n * (n + 1) / 2 + n * (i % 53);
}

static int of_last(int n, int rank, int i)
{
    (void)rank;
    return value(n - 1, i);
}

static int of_left(int n, int rank, int i)
{
    return value((rank + n - 1) % n, i);
}

static int of_all(int n, int rank, int i)
{
    (void)n, (void)rank;
    return value(i, 0);
}

static int to_me(int n, int rank, int i)
{
    (void)n;
    return value(i, rank);
}

static int work(int rank, int n, void *arg)
{
    meeting   *m = arg;
    ncclComm_t c;
    int       *in = malloc((size_t)(LONG + n) * sizeof *in), *out = malloc((size_t)(LONG + n) * sizeof *out);

    for (int i = 0; i < LONG + n; i++)
        in[i] = value(rank, i);
    if (!CHECK(ncclCommInitRank(&c, n, m->id, rank) == ncclSuccess, "rank %d: %s", rank, ncclGetLastError(NULL)))
        return 1;
    for (int count = EACH; count <= LONG; count = count == EACH ? LONG : LONG + 1) {
        CHECK(ncclAllReduce(in, out, (size_t)count, ncclInt32, ncclSum, c, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
        holds(rank, "AllReduce", out, count, sum, n);
        CHECK(ncclBroadcast(in, out, (size_t)count, ncclInt32, n - 1, c, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
        holds(rank, "Broadcast", out, count, of_last, n);
        CHECK(ncclGroupStart() == ncclSuccess, "group");
        CHECK(ncclSend(in, (size_t)count, ncclInt32, (rank + 1) % n, c, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
        CHECK(ncclRecv(out, (size_t)count, ncclInt32, (rank + n - 1) % n, c, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
        CHECK(ncclGroupEnd() == ncclSuccess, "%s", ncclGetLastError(NULL));
        holds(rank, "Send and Recv", out, count, of_left, n);
    }
    CHECK(ncclAllGather(in, out, 1, ncclInt32, c, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
    holds(rank, "AllGather", out, n, of_all, n);
    CHECK(ncclAlltoAll(in, out, 1, ncclInt32, c, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
    holds(rank, "AlltoAll", out, n, to_me, n);
    CHECK(ncclReduceScatter(in, out, 1, ncclInt32, ncclSum, c, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
    CHECK(out[0] == sum(n, 0, rank), "rank %d: ReduceScatter: %d", rank, out[0]);
    CHECK(ncclCommDestroy(c) == ncclSuccess, "%s", ncclGetLastError(NULL));
    free(in);
    free(out);
    return 0;
}

static void ranks(int n)
{
    meeting m = { .n = n };

    CHECK(ncclGetUniqueId(&m.id) == ncclSuccess, "%s", ncclGetLastError(NULL));
    const double began = check_now();
    CHECK(run_ranks_as_threads(n, work, &m) == 0, "ranks failed");
    check_say("# %d ranks: %.1f s\n", n, check_now() - began);
}

TEST(hundreds_of_ranks)
{
    CASE("65") ranks(65);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    CASE("200") ranks(200);
#endif
}
