/* Every kind of wrong call: the right code, a text that names call, argument,
 * value, rank and remedy, and no harm: afterwards the communicators add up the
 * same numbers as before. Four ranks live in this thread. */
#include "check.h"

#include "base/option.h"
#include "nccl.h"
#include "rcclx.h"

#include <limits.h>
#include <stdint.h>

enum { N = 4, COUNT = 8 };

static ncclComm_t comm[N];
static float      in[N][N * COUNT], out[N][N * COUNT];

/* The result, and every word in the text; words end with NULL. */
static void expect_(int line, const char *call, ncclResult_t got, ncclResult_t want, const char *const *words)
{
    const char *text = ncclGetLastError(NULL);

    if (!CHECK(got == want, "line %d: %s gave %d, not %d", line, call, (int)got, (int)want) || got == ncclSuccess)
        return;
    for (; *words; words++)
        CHECK(strstr(text, *words), "line %d: no '%s' in: %s", line, *words, text);
}
#define EXPECT(want, call, ...) expect_(__LINE__, #call, call, want, (const char *const[]){ __VA_ARGS__, NULL })

static bool start(void)
{
    const ncclResult_t r = comm[0] ? ncclSuccess : ncclCommInitAll(comm, N, NULL);
    return CHECK(r == ncclSuccess, "no communicators: %s", ncclGetLastError(NULL));
}

/* The four ranks still work together. */
static void still_works(void)
{
    bool good = true;

    for (int r = 0; r < N; r++)
        for (int i = 0; i < COUNT; i++)
            in[r][i] = (float)(r + 1), out[r][i] = -1;
    good &= ncclGroupStart() == ncclSuccess;
    for (int r = 0; r < N; r++)
        good &= ncclAllReduce(in[r], out[r], COUNT, ncclFloat, ncclSum, comm[r], NULL) == ncclSuccess;
    good &= ncclGroupEnd() == ncclSuccess;
    for (int r = 0; good && r < N; r++)
        for (int i = 0; i < COUNT; i++)
            good &= out[r][i] == 10;
    CHECK(good, "the communicators no longer work: %f, %s", (double)out[0][0], ncclGetLastError(NULL));
}

static int leave_open(int rank, int n, void *arg)
{
    ncclComm_t c;
    int        x = 1;

    (void)rank, (void)n, (void)arg;
    return ncclCommInitAll(&c, 1, NULL) || ncclGroupStart() || ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, c, NULL);
}

/* First of all, while this process has no communicators that a fork would copy. */
TEST(a_process_that_ends_in_an_open_group)
{
    CHECK(run_ranks_as_processes(1, leave_open, NULL) == 0, "it does not end well");
}

TEST(a_missing_buffer)
{
    float *f = in[2];
    REQUIRE(start(), "start");
    EXPECT(ncclInvalidArgument, ncclAllReduce(NULL, f, 3, ncclFloat, ncclSum, comm[2], NULL), "rank 2: ncclAllReduce: sendbuff is NULL", "3");
    EXPECT(ncclInvalidArgument, ncclAllReduce(f, NULL, 3, ncclFloat, ncclSum, comm[2], NULL), "rank 2: ncclAllReduce: recvbuff is NULL");
    EXPECT(ncclInvalidArgument, ncclReduce(f, NULL, 3, ncclFloat, ncclSum, 2, comm[2], NULL), "ncclReduce: recvbuff");
    EXPECT(ncclInvalidArgument, ncclBroadcast(NULL, f, 3, ncclFloat, 2, comm[2], NULL), "ncclBroadcast: sendbuff");
    EXPECT(ncclInvalidArgument, ncclBcast(NULL, 3, ncclFloat, 2, comm[2], NULL), "ncclBcast");
    EXPECT(ncclInvalidArgument, ncclAllGather(NULL, f, 3, ncclFloat, comm[2], NULL), "ncclAllGather: sendbuff");
    EXPECT(ncclInvalidArgument, ncclReduceScatter(f, NULL, 3, ncclFloat, ncclSum, comm[2], NULL), "ncclReduceScatter: recvbuff");
    EXPECT(ncclInvalidArgument, ncclAlltoAll(f, NULL, 3, ncclFloat, comm[2], NULL), "ncclAlltoAll: recvbuff");
    EXPECT(ncclInvalidArgument, ncclAllToAll(f, NULL, 3, ncclFloat, comm[2], NULL), "ncclAllToAll: recvbuff");
    EXPECT(ncclInvalidArgument, ncclGather(f, NULL, 3, ncclFloat, 2, comm[2], NULL), "ncclGather: recvbuff");
    EXPECT(ncclInvalidArgument, ncclScatter(NULL, f, 3, ncclFloat, 2, comm[2], NULL), "ncclScatter: sendbuff");
    EXPECT(ncclInvalidArgument, ncclSend(NULL, 3, ncclFloat, 1, comm[2], NULL), "ncclSend: sendbuff");
    EXPECT(ncclInvalidArgument, ncclRecv(NULL, 3, ncclFloat, 1, comm[2], NULL), "ncclRecv: recvbuff");
    EXPECT(ncclInvalidArgument, ncclAllReduceWithBias(f, f, 3, ncclFloat, ncclSum, comm[2], NULL, NULL), "ncclAllReduceWithBias: acc is NULL");
    still_works();
}

TEST(a_datatype_that_does_not_exist)
{
    REQUIRE(start(), "start");
    EXPECT(ncclInvalidArgument, ncclAllReduce(in[1], out[1], 3, (ncclDataType_t)12, ncclSum, comm[1], NULL), "rank 1: ncclAllReduce: datatype 12", "0..11");
    EXPECT(ncclInvalidArgument, ncclAllGather(in[1], out[1], 0, (ncclDataType_t)-1, comm[1], NULL), "datatype -1");
    EXPECT(ncclInvalidArgument, ncclSend(in[1], 3, (ncclDataType_t)99, 0, comm[1], NULL), "ncclSend: datatype 99");
    still_works();
}

TEST(an_operator_that_does_not_exist)
{
    REQUIRE(start(), "start");
    EXPECT(ncclInvalidArgument, ncclAllReduce(in[1], out[1], 3, ncclFloat, (ncclRedOp_t)5, comm[1], NULL), "rank 1: ncclAllReduce: op 5");
    EXPECT(ncclInvalidArgument, ncclReduce(in[1], out[1], 3, ncclFloat, (ncclRedOp_t)-1, 0, comm[1], NULL), "op -1");
    EXPECT(ncclInvalidArgument, ncclReduceScatter(in[1], out[1], 3, ncclFloat, (ncclRedOp_t)INT_MAX, comm[1], NULL), "op 2147483647");
    EXPECT(ncclInvalidArgument, ncclAllReduceWithBias(in[1], out[1], 3, ncclFloat, ncclMax, comm[1], NULL, in[0]), "op 2");
    still_works();
}

TEST(a_root_or_peer_outside)
{
    REQUIRE(start(), "start");
    EXPECT(ncclInvalidArgument, ncclReduce(in[2], out[2], 3, ncclFloat, ncclSum, 9, comm[2], NULL), "rank 2: ncclReduce: root 9 is outside 0..3 of this communicator; pass a rank of it");
    EXPECT(ncclInvalidArgument, ncclBroadcast(in[2], out[2], 3, ncclFloat, -1, comm[2], NULL), "root -1");
    EXPECT(ncclInvalidArgument, ncclBcast(in[2], 3, ncclFloat, N, comm[2], NULL), "ncclBcast: root 4");
    EXPECT(ncclInvalidArgument, ncclGather(in[2], out[2], 0, ncclFloat, N, comm[2], NULL), "ncclGather: root 4");
    EXPECT(ncclInvalidArgument, ncclScatter(in[2], out[2], 3, ncclFloat, INT_MIN, comm[2], NULL), "ncclScatter: root -2147483648");
    EXPECT(ncclInvalidArgument, ncclSend(in[2], 3, ncclFloat, N, comm[2], NULL), "rank 2: ncclSend: peer 4 is outside 0..3");
    EXPECT(ncclInvalidArgument, ncclRecv(out[2], 3, ncclFloat, -7, comm[2], NULL), "ncclRecv: peer -7");
    still_works();
}

TEST(a_count_that_no_memory_holds)
{
    const size_t one[N] = { 1, 1, 1, 1 }, far[N] = { 0, 0, SIZE_MAX, 0 };

    REQUIRE(start(), "start");
    EXPECT(ncclInvalidArgument, ncclAllReduce(in[0], out[0], SIZE_MAX, ncclInt8, ncclSum, comm[0], NULL), "rank 0: ncclAllReduce", "18446744073709551615");
    EXPECT(ncclInvalidArgument, ncclAllReduce(in[0], out[0], SIZE_MAX / 4 + 1, ncclFloat, ncclSum, comm[0], NULL), "count");
    EXPECT(ncclInvalidArgument, ncclReduceScatter(in[0], out[0], SIZE_MAX / 8, ncclFloat, ncclSum, comm[0], NULL), "on 4 ranks");
    EXPECT(ncclInvalidArgument, ncclAllGather(in[0], out[0], (size_t)-5, ncclFloat, comm[0], NULL), "negative");
    EXPECT(ncclInvalidArgument, ncclSend(in[0], SIZE_MAX, ncclFloat, 1, comm[0], NULL), "ncclSend");
    EXPECT(ncclInvalidArgument, ncclAlltoAllv(in[0], one, far, out[0], one, one, ncclFloat, comm[0], NULL), "sdispls[2]");
    EXPECT(ncclInvalidArgument, ncclAlltoAllv(in[0], one, one, out[0], far, one, ncclFloat, comm[0], NULL), "recvcounts[2]");
    EXPECT(ncclInvalidArgument, ncclAlltoAllv(in[0], NULL, one, out[0], one, one, ncclFloat, comm[0], NULL), "sendcounts is NULL");
    EXPECT(ncclInvalidArgument, ncclAllToAllv(in[0], one, one, out[0], one, NULL, ncclFloat, comm[0], NULL), "rdispls is NULL");
    EXPECT(ncclInvalidArgument, ncclAlltoAllv(in[0], one, one, NULL, one, one, ncclFloat, comm[0], NULL), "recvbuff is NULL");
    still_works();
}

TEST(buffers_that_overlap_in_no_legal_way)
{
    const size_t one[N] = { 1, 1, 1, 1 }, at[N] = { 0, 1, 2, 3 };
    float       *f = in[1];

    REQUIRE(start(), "start");
    EXPECT(ncclInvalidArgument, ncclAllReduce(f, f + 1, 4, ncclFloat, ncclSum, comm[1], NULL), "rank 1: ncclAllReduce", "overlap", "sendbuff == recvbuff");
    EXPECT(ncclInvalidArgument, ncclAllGather(f, f, 4, ncclFloat, comm[1], NULL), "recvbuff + rank * count");
    EXPECT(ncclInvalidArgument, ncclReduceScatter(f, f, 4, ncclFloat, ncclSum, comm[1], NULL), "sendbuff + rank * count");
    EXPECT(ncclInvalidArgument, ncclAlltoAll(f, f + 4, 4, ncclFloat, comm[1], NULL), "ncclAlltoAll", "overlap");
    EXPECT(ncclInvalidArgument, ncclAlltoAllv(f, one, at, f, one, at, ncclFloat, comm[1], NULL), "ncclAlltoAllv", "overlaps", "two buffers");
    EXPECT(ncclInvalidArgument, ncclAllReduceWithBias(out[1], f, 4, ncclFloat, ncclSum, comm[1], NULL, f + 2), "acc", "overlap");
    EXPECT(ncclInvalidArgument, ncclAllReduce((char *)f + 1, out[1], 4, ncclFloat, ncclSum, comm[1], NULL), "sendbuff", "align it to 4 bytes");
    still_works();
}

TEST(memory_that_is_not_there)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    float       *gone = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    REQUIRE(start() && gone != MAP_FAILED, "start");
    munmap(gone, page);
    setenv("NCCL_CHECK_POINTERS", "1", 1);
    rcclx_option_reload();
    EXPECT(ncclInvalidArgument, ncclAllReduce(gone, out[1], 4, ncclFloat, ncclSum, comm[1], NULL), "rank 1: ncclAllReduce", "sendbuff", "freed");
    EXPECT(ncclInvalidArgument, ncclRecv(gone, 4, ncclFloat, 0, comm[1], NULL), "ncclRecv", "recvbuff");
    still_works();
    unsetenv("NCCL_CHECK_POINTERS");
    rcclx_option_reload();

    EXPECT(ncclInvalidArgument, ncclMemFree(in), "ncclMemFree");
    EXPECT(ncclInvalidArgument, ncclMemAlloc(NULL, 8), "ncclMemAlloc: ptr is NULL");
    EXPECT(ncclSuccess, ncclMemFree(NULL), "");
    still_works();
}

TEST(a_stream_that_does_not_exist)
{
    cudaStream_t s = NULL;
    int          not_one;

    REQUIRE(start(), "start");
    EXPECT(ncclInvalidArgument, ncclAllReduce(in[0], out[0], 4, ncclFloat, ncclSum, comm[0], (cudaStream_t)(void *)&not_one), "rank 0: ncclAllReduce: stream");
    EXPECT(ncclInvalidArgument, rcclxStreamSynchronize((cudaStream_t)(void *)&not_one), "rcclxStreamSynchronize");
    EXPECT(ncclInvalidArgument, rcclxStreamCreate(NULL), "rcclxStreamCreate: stream is NULL");
    REQUIRE(rcclxStreamCreate(&s) == ncclSuccess && rcclxStreamDestroy(s) == ncclSuccess, "%s", ncclGetLastError(NULL));
    EXPECT(ncclInvalidArgument, ncclSend(in[0], 4, ncclFloat, 1, comm[0], s), "ncclSend: stream");
    EXPECT(ncclInvalidArgument, rcclxStreamDestroy(s), "rcclxStreamDestroy");
    still_works();
}

TEST(no_communicator_a_foreign_one_a_destroyed_one)
{
    ncclComm_t   dead, foreign = (ncclComm_t)(void *)in, wild = (ncclComm_t)(uintptr_t)0xdeadbeefcafef00d;
    ncclResult_t async;
    int          n;

    REQUIRE(start(), "start");
    REQUIRE(ncclCommInitAll(&dead, 1, NULL) == ncclSuccess && ncclCommDestroy(dead) == ncclSuccess, "%s", ncclGetLastError(NULL));
    const ncclComm_t bad[] = { NULL, foreign, wild, dead };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        EXPECT(ncclInvalidArgument, ncclAllReduce(in[0], out[0], 4, ncclFloat, ncclSum, bad[i], NULL), "ncclAllReduce", "comm");
        EXPECT(ncclInvalidArgument, ncclSend(in[0], 4, ncclFloat, 0, bad[i], NULL), "ncclSend", "comm");
        EXPECT(ncclInvalidArgument, ncclCommCount(bad[i], &n), "ncclCommCount", "comm");
        EXPECT(ncclInvalidArgument, ncclCommUserRank(bad[i], &n), "ncclCommUserRank");
        EXPECT(ncclInvalidArgument, ncclCommCuDevice(bad[i], &n), "ncclCommCuDevice");
        EXPECT(ncclInvalidArgument, ncclCommGetAsyncError(bad[i], &async), "ncclCommGetAsyncError");
        EXPECT(ncclInvalidArgument, ncclCommFinalize(bad[i]), "ncclCommFinalize");
    }
    EXPECT(ncclSuccess, ncclCommDestroy(NULL), "");
    EXPECT(ncclSuccess, ncclCommAbort(NULL), "");
    for (size_t i = 1; i < sizeof bad / sizeof bad[0]; i++) {
        EXPECT(ncclInvalidArgument, ncclCommDestroy(bad[i]), "ncclCommDestroy", "comm");
        EXPECT(ncclInvalidArgument, ncclCommAbort(bad[i]), "ncclCommAbort", "comm");
    }
    EXPECT(ncclInvalidArgument, ncclCommCount(comm[0], NULL), "ncclCommCount: count is NULL");
    EXPECT(ncclInvalidArgument, ncclCommUserRank(comm[0], NULL), "ncclCommUserRank: rank is NULL");
    EXPECT(ncclInvalidArgument, ncclCommGetAsyncError(comm[0], NULL), "asyncError is NULL");
    still_works();
}

TEST(a_communicator_that_cannot_be_made)
{
    ncclUniqueId id;
    ncclComm_t   c      = (ncclComm_t)(void *)in;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    EXPECT(ncclInvalidArgument, ncclGetUniqueId(NULL), "ncclGetUniqueId: uniqueId is NULL");
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess, "%s", ncclGetLastError(NULL));
    EXPECT(ncclInvalidArgument, ncclCommInitRank(NULL, 1, id, 0), "ncclCommInitRank: comm is NULL");
    EXPECT(ncclInvalidArgument, ncclCommInitRank(&c, 0, id, 0), "ncclCommInitRank", "nranks", "0");
    EXPECT(ncclInvalidArgument, ncclCommInitRank(&c, -3, id, 0), "nranks", "-3");
    EXPECT(ncclInvalidArgument, ncclCommInitRank(&c, 2, id, 2), "ncclCommInitRank", "rank 2", "0..1");
    EXPECT(ncclInvalidArgument, ncclCommInitRank(&c, 2, id, -1), "rank -1");
    config.magic = 7;
    EXPECT(ncclInvalidArgument, ncclCommInitRankConfig(&c, 1, id, 0, &config), "rank 0: ncclCommInitRankConfig", "magic 0x7", "NCCL_CONFIG_INITIALIZER");
    config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
    config.size = 3;
    EXPECT(ncclInvalidArgument, ncclCommInitRankConfig(&c, 1, id, 0, &config), "config->size is 3");
    config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
    config.blocking = 2;
    EXPECT(ncclInvalidArgument, ncclCommInitRankConfig(&c, 1, id, 0, &config), "config->blocking is 2", "0..1");
    EXPECT(ncclInvalidArgument, ncclCommInitRankScalable(&c, 2, 0, 0, &id, NULL), "nId", "0");
    EXPECT(ncclInvalidArgument, ncclCommInitRankScalable(&c, 1, 0, 1, NULL, NULL), "commIds is NULL");
    EXPECT(ncclInvalidArgument, ncclCommInitAll(NULL, 2, NULL), "ncclCommInitAll: comm is NULL");
    EXPECT(ncclInvalidArgument, ncclCommInitAll(&c, 0, NULL), "ndev", "0");
    EXPECT(ncclInvalidArgument, rcclxCommInitRankDevice(&c, 1, id, 0, "abacus", NULL), "device 'abacus'", "host");
    REQUIRE(ncclCommInitRank(&c, 1, id, 0) == ncclSuccess, "the id no longer serves: %s", ncclGetLastError(NULL));
    EXPECT(ncclInvalidArgument, ncclCommSplit(c, -5, 0, &c, NULL), "rank 0: ncclCommSplit: color -5", "NCCL_SPLIT_NOCOLOR");
    EXPECT(ncclInvalidArgument, ncclCommSplit(c, 0, 0, NULL, NULL), "ncclCommSplit: newcomm is NULL");
    CHECK(ncclCommDestroy(c) == ncclSuccess, "%s", ncclGetLastError(NULL));
}

TEST(operators_and_handles_of_nobody)
{
    ncclRedOp_t op = ncclSum;
    float       x  = 2;
    void       *handle;

    REQUIRE(start(), "start");
    EXPECT(ncclInvalidArgument, ncclRedOpCreatePreMulSum(NULL, &x, ncclFloat, ncclScalarHostImmediate, comm[0]), "op is NULL");
    EXPECT(ncclInvalidArgument, ncclRedOpCreatePreMulSum(&op, NULL, ncclFloat, ncclScalarHostImmediate, comm[0]), "scalar is NULL");
    EXPECT(ncclInvalidArgument, ncclRedOpCreatePreMulSum(&op, &x, (ncclDataType_t)40, ncclScalarHostImmediate, comm[0]), "datatype 40");
    EXPECT(ncclInvalidArgument, ncclRedOpCreatePreMulSum(&op, &x, ncclFloat, (ncclScalarResidence_t)2, comm[0]), "residence 2");
    EXPECT(ncclInvalidArgument, ncclRedOpDestroy(ncclSum, comm[0]), "ncclRedOpDestroy", "op 0");
    EXPECT(ncclInvalidArgument, ncclRedOpDestroy((ncclRedOp_t)1000, comm[0]), "op 1000");
    REQUIRE(ncclRedOpCreatePreMulSum(&op, &x, ncclFloat, ncclScalarHostImmediate, comm[0]) == ncclSuccess, "%s", ncclGetLastError(NULL));
    EXPECT(ncclInvalidArgument, ncclAllReduce(in[0], out[0], 4, ncclInt32, op, comm[0], NULL), "ncclAllReduce: op", "float");
    EXPECT(ncclInvalidArgument, ncclAllReduce(in[1], out[1], 4, ncclFloat, op, comm[1], NULL), "rank 1: ncclAllReduce: op");
    CHECK(ncclRedOpDestroy(op, comm[0]) == ncclSuccess, "%s", ncclGetLastError(NULL));
    EXPECT(ncclInvalidArgument, ncclRedOpDestroy(op, comm[0]), "op");
    EXPECT(ncclInvalidArgument, ncclAllReduce(in[0], out[0], 4, ncclFloat, op, comm[0], NULL), "op");

    EXPECT(ncclInvalidArgument, ncclCommRegister(comm[0], NULL, 4, &handle), "ncclCommRegister: buff is NULL");
    EXPECT(ncclInvalidArgument, ncclCommRegister(comm[0], in, 4, NULL), "handle is NULL");
    EXPECT(ncclInvalidArgument, ncclCommDeregister(comm[0], in), "ncclCommDeregister", "handle");
    still_works();
}

TEST(groups_that_go_wrong)
{
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;

    REQUIRE(start(), "start");
    EXPECT(ncclInvalidUsage, ncclGroupEnd(), "ncclGroupEnd", "ncclGroupStart");
    still_works();

    CHECK(ncclGroupStart() == ncclSuccess && ncclGroupStart() == ncclSuccess, "%s", ncclGetLastError(NULL));
    CHECK(ncclAllReduce(in[0], out[0], 4, ncclFloat, ncclSum, comm[0], NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
    EXPECT(ncclInvalidArgument, ncclAllReduce(in[1], out[1], 4, ncclFloat, (ncclRedOp_t)9, comm[1], NULL), "op 9");
    ncclGroupEnd();
    EXPECT(ncclInvalidArgument, ncclGroupEnd(), "op 9");
    still_works();

    CHECK(ncclGroupStart() == ncclSuccess, "%s", ncclGetLastError(NULL));
    EXPECT(ncclInvalidArgument, ncclAllReduce(in[1], out[1], 4, ncclFloat, ncclSum, NULL, NULL), "comm");
    EXPECT(ncclInvalidArgument, ncclGroupEnd(), "comm");
    still_works();

    CHECK(ncclGroupStart() == ncclSuccess, "%s", ncclGetLastError(NULL));
    CHECK(ncclAllReduce(in[0], out[0], 4, ncclFloat, ncclSum, comm[0], NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
    CHECK(ncclGroupSimulateEnd(&info) == ncclSuccess && info.estimatedTime > 0, "%f", (double)info.estimatedTime);
    still_works();

    info.magic = 1;
    CHECK(ncclGroupStart() == ncclSuccess, "%s", ncclGetLastError(NULL));
    EXPECT(ncclInvalidArgument, ncclGroupSimulateEnd(&info), "ncclGroupSimulateEnd", "magic 0x1", "NCCL_SIM_INFO_INITIALIZER");
    still_works();
}

TEST(a_group_left_open)
{
    ncclComm_t c = NULL;
    int        x = 1;

    REQUIRE(ncclCommInitAll(&c, 1, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
    CHECK(ncclGroupStart() == ncclSuccess, "%s", ncclGetLastError(NULL));
    CHECK(ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, c, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
    ncclCommDestroy(c); /* the group still holds an operation on it: any answer, no harm */
    ncclGroupEnd();
    EXPECT(ncclInvalidUsage, ncclGroupEnd(), "ncclGroupStart");
    EXPECT(ncclInvalidArgument, ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, c, NULL), "comm");
    REQUIRE(start(), "start");
    still_works();
}

TEST(hints_that_are_none)
{
    ncclCollConfig_t hints = NCCL_COLLCONFIG_INITIALIZER;

    REQUIRE(start(), "start");
    hints.magic = 0;
    EXPECT(ncclInvalidArgument, ncclAllReduceConfig(in[0], out[0], 4, ncclFloat, ncclSum, comm[0], NULL, &hints), "ncclAllReduceConfig", "magic 0x0");
    still_works();
}

TEST(a_look_at_nothing)
{
    char   buf[64];
    size_t need = 0;

    REQUIRE(start(), "start");
    EXPECT(ncclInvalidArgument, rcclxDump("weather", comm[0], 0, buf, sizeof buf, &need), "weather", "options");
    EXPECT(ncclInvalidArgument, rcclxDump(NULL, comm[0], 0, buf, sizeof buf, &need), "what is NULL");
    EXPECT(ncclInvalidArgument, rcclxDump("comm", NULL, 0, buf, sizeof buf, &need), "comm");
    CHECK(rcclxDump("options", NULL, 0, NULL, 0, &need) == ncclSuccess && need > 100, "%zu", need);
    CHECK(rcclxDump("options", NULL, 0, buf, sizeof buf, &need) == ncclSuccess && strlen(buf) == sizeof buf - 1, "%zu", strlen(buf));
}

TEST(the_end_is_orderly)
{
    REQUIRE(start(), "start");
    still_works();
    CHECK(ncclGroupStart() == ncclSuccess, "%s", ncclGetLastError(NULL));
    for (int r = 0; r < N; r++)
        CHECK(ncclCommDestroy(comm[r]) == ncclSuccess, "%s", ncclGetLastError(NULL));
    CHECK(ncclGroupEnd() == ncclSuccess, "%s", ncclGetLastError(NULL));
}
