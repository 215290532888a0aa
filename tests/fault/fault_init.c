/* Ranks that meet in trouble: strangers at the bootstrap's sockets, a wrong token,
 * ranks that contradict each other, one that does not come, one that is killed. */
#include "check.h"
#include "nccl.h"

#include "comm/root.h"

#include <poll.h>
#include <sys/un.h>

TIME_LIMIT(300)

enum { MOST = 8 };

typedef struct {
    ncclUniqueId id;
    atomic_int   have_id;
    char         init_timeout[16], bootstrap[16];
    int          wrong_token, twice, other_nranks, missing; /* a rank, -1: none */
    atomic_int   result[MOST];                              /* ncclResult_t + 1 */
    _Atomic int64_t took_ms[MOST];
    char         text[MOST][1024];
} meeting;

static meeting *meeting_new(const char *timeout, const char *bootstrap)
{
    meeting *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    m->wrong_token = m->twice = m->other_nranks = m->missing = -1;
    snprintf(m->init_timeout, sizeof m->init_timeout, "%s", timeout);
    snprintf(m->bootstrap, sizeof m->bootstrap, "%s", bootstrap);
    return m;
}

static ncclUniqueId with_wrong_token(ncclUniqueId id)
{
    rcclx_id_fields f;

    memcpy(&f, &id, sizeof f);
    f.token[1] ^= 1; /* the half that no socket's name shows */
    memcpy(&id, &f, sizeof f);
    return id;
}

static int come(int rank, int n, void *arg)
{
    meeting   *m = arg;
    ncclComm_t c = NULL;
    int        x = 1;

    setenv("NCCL_DEBUG", "NONE", 1);
    setenv("RCCLX_INIT_TIMEOUT", m->init_timeout, 1);
    setenv("RCCLX_BOOTSTRAP", m->bootstrap, 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    if (rank == 0) {
        CHECK(ncclGetUniqueId(&m->id) == ncclSuccess, "%s", ncclGetLastError(NULL));
        atomic_store(&m->have_id, 1);
    }
    if (!WAIT_FOR(atomic_load(&m->have_id) > 0, 20))
        return 1;
    if (rank == 0 && m->have_id == 1 && m->missing == -2) /* strangers come first */
        WAIT_FOR(atomic_load(&m->have_id) == 2, 30);
    const double       began = check_now();
    const ncclUniqueId id = rank == m->wrong_token ? with_wrong_token(m->id) : m->id;
    ncclResult_t       r = ncclSuccess;
    if (rank == m->missing)
        usleep(100000);
    else
        r = ncclCommInitRank(&c, rank == m->other_nranks ? n + 1 : n, id, rank == m->twice ? rank - 1 : rank);
    snprintf(m->text[rank], sizeof m->text[rank], "%s", r ? ncclGetLastError(NULL) : "");
    atomic_store(&m->took_ms[rank], (int64_t)(1000 * (check_now() - began)));
    atomic_store(&m->result[rank], (int)r + 1);
    if (c && r == ncclSuccess) {
        r = ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, c, NULL);
        if (r == ncclSuccess)
            CHECK(x == n, "rank %d: %d", rank, x);
        if (r != ncclSuccess) {
            snprintf(m->text[rank], sizeof m->text[rank], "%s", ncclGetLastError(NULL));
            atomic_store(&m->result[rank], (int)r + 1);
        }
        (r ? ncclCommAbort : ncclCommDestroy)(c);
    }
    return 0;
}

static bool all_fail_within(const meeting *m, int n, double seconds)
{
    bool good = true;

    for (int r = 0; r < n; r++) {
        if (r == m->missing)
            continue;
        good &= CHECK(m->result[r] > 1 && m->result[r] != ncclInProgress + 1, "rank %d: result %d", r, m->result[r] - 1);
        good &= CHECK((double)m->took_ms[r] < seconds * 1000 * check_scale(), "rank %d took %lld ms", r, (long long)m->took_ms[r]);
        good &= CHECK(strlen(m->text[r]) > 20, "rank %d: \"%s\"", r, m->text[r]);
    }
    return good;
}

static int texts_with(const meeting *m, int n, const char *part)
{
    int count = 0;

    for (int r = 0; r < n; r++)
        count += strstr(m->text[r], part) != NULL;
    for (int r = 0; count < 2 && r < n; r++) /* whoever counts wants to read why */
        check_say("# rank %d: %s\n", r, m->text[r]);
    return count;
}

static const char *const ways[] = { "unix", "tcp" };

TEST(a_rank_that_does_not_come)
{
    for (size_t i = 0; i < 2; i++)
        CASE("%s", ways[i]) {
            meeting *m = meeting_new("1", ways[i]);
            m->missing = 2;
            CHECK(run_ranks_as_processes(4, come, m) == 0, "ranks failed");
            all_fail_within(m, 4, 5);
            CHECK(texts_with(m, 4, "3 of 4 ranks came before the deadline; missing: rank 2") == 3, "\"%s\"", m->text[0]);
            munmap(m, sizeof *m);
        }
}

TEST(a_rank_that_comes_twice)
{
    for (size_t i = 0; i < 2; i++)
        CASE("%s", ways[i]) {
            meeting *m = meeting_new("3", ways[i]);
            m->twice = 3;
            CHECK(run_ranks_as_processes(4, come, m) == 0, "ranks failed");
            all_fail_within(m, 4, 8);
            CHECK(texts_with(m, 4, "two processes are rank 2") >= 2, "\"%s\"", m->text[3]);
            munmap(m, sizeof *m);
        }
}

TEST(ranks_that_expect_different_numbers)
{
    for (size_t i = 0; i < 2; i++)
        CASE("%s", ways[i]) {
            meeting *m = meeting_new("3", ways[i]);
            m->other_nranks = 1;
            CHECK(run_ranks_as_processes(4, come, m) == 0, "ranks failed");
            all_fail_within(m, 4, 8);
            CHECK(texts_with(m, 4, "pass the same nranks everywhere") >= 2, "\"%s\"", m->text[1]);
            munmap(m, sizeof *m);
        }
}

TEST(a_wrong_token)
{
    for (size_t i = 0; i < 2; i++)
        CASE("%s", ways[i]) {
            meeting *m = meeting_new("1", ways[i]);
            m->wrong_token = 1;
            CHECK(run_ranks_as_processes(3, come, m) == 0, "ranks failed");
            all_fail_within(m, 3, 5);
            CHECK(texts_with(m, 3, "missing: rank 1") == 2, "\"%s\"", m->text[0]);
            CHECK(strstr(m->text[1], "closed the connection"), "\"%s\"", m->text[1]);
            munmap(m, sizeof *m);
        }
}

/* ---- strangers */

static int go_to(const rcclx_id_fields *f, bool tcp)
{
    rcclx_address      a;
    struct sockaddr_un u = { .sun_family = AF_UNIX };
    char               name[40];
    const int          fd = socket(tcp ? f->family : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    rcclx_id_socket_name(f->token, name, sizeof name);
    memcpy(u.sun_path + 1, name, strlen(name));
    if (tcp)
        rcclx_id_address(f, &a);
    const int e = tcp ? connect(fd, &a.any, rcclx_address_size(&a))
                      : connect(fd, (struct sockaddr *)&u, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name)));
    if (e == 0)
        return fd;
    close(fd);
    return -1;
}

static void say(int fd, const void *bytes, size_t n)
{
    if (fd >= 0 && send(fd, bytes, n, MSG_NOSIGNAL) < 0)
        return; /* it was closed already: as it should */
}

enum { STRANGERS = 300 };

/* Noise, half a hello, a whole one with half a token, nothing at all, a file handle. */
static int annoy(const rcclx_id_fields *f, bool tcp, int *fds)
{
    rcclx_hello h = { .magic = RCCLX_HELLO_MAGIC, .token = { f->token[0], 12345 }, .version = 1, .nranks = 3 };
    char        noise[5000];
    int         there = 0;

    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (char)(i * 2654435761u >> 13);
    for (int i = 0; i < STRANGERS; i++) {
        const int fd = fds[i] = go_to(f, tcp);
        there += fd >= 0;
        switch (i % 6) {
        case 0: say(fd, noise, sizeof noise); break;
        case 1: say(fd, &h, sizeof h / 2); break;
        case 2: say(fd, &h, sizeof h); break;
        case 3: say(fd, "GET / HTTP/1.0\r\n\r\n", 18); break;
        case 4: say(fd, &h, 1); break;
        default: break;
        }
        if (i % 7 == 0 && fd >= 0)
            close(fd), fds[i] = -1;
    }
    return there;
}

TEST(strangers_do_no_harm)
{
    static int fds[STRANGERS];

    for (size_t i = 0; i < 2; i++)
        CASE("%s", ways[i]) {
            meeting        *m = meeting_new("30", ways[i]);
            check_ranks     ranks;
            rcclx_id_fields f;
            m->missing = -2;
            check_ranks_start(&ranks, 3, come, m);
            if (CHECK(WAIT_FOR(atomic_load(&m->have_id), 20), "no id")) {
                memcpy(&f, &m->id, sizeof f);
                CHECK(annoy(&f, i == 1, fds) > STRANGERS / 2, "the root took too few connections");
                atomic_store(&m->have_id, 2);
            }
            CHECK(check_ranks_wait(&ranks, 40) == 0, "ranks hang");
            for (int r = 0; r < 3; r++)
                CHECK(ranks.status[r] == 0 && m->result[r] == 1, "rank %d: %d, %d: %s", r, ranks.status[r], m->result[r] - 1, m->text[r]);
            for (int k = 0; k < STRANGERS; k++)
                if (fds[k] >= 0)
                    close(fds[k]);
            munmap(m, sizeof *m);
        }
}

/* A rank may be stopped between its coming and its hello, while hundreds come behind it. */
static int come_before_many(int rank, int n, void *arg)
{
    enum { MANY = 400 };
    const char  *way = arg;
    int          fds[MANY];
    ncclUniqueId id;
    rcclx_id_fields f;

    (void)rank, (void)n;
    setenv("NCCL_DEBUG", "NONE", 1);
    setenv("RCCLX_INIT_TIMEOUT", "5", 1);
    setenv("RCCLX_BOOTSTRAP", way, 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    CHECK(ncclGetUniqueId(&id) == ncclSuccess, "%s", ncclGetLastError(NULL));
    memcpy(&f, &id, sizeof f);
    const bool   tcp = strcmp(way, "tcp") == 0;
    const double began = check_now();
    const int    first = go_to(&f, tcp);
    CHECK(first >= 0, "the root does not listen");
    for (int k = 0; k < MANY; k++)
        fds[k] = go_to(&f, tcp);
    struct pollfd p = { .fd = first, .events = POLLIN };
    const int     gone = poll(&p, 1, 200);
    const double  took = check_now() - began;
    CHECK(gone == 0 || took > 0.9, "the root closed the connection after %.3f s", took);
    close(first);
    for (int k = 0; k < MANY; k++)
        if (fds[k] >= 0)
            close(fds[k]);
    return 0;
}

TEST(who_has_just_come_makes_no_room)
{
    for (size_t i = 0; i < 2; i++)
        CASE("%s", ways[i])
            CHECK(run_ranks_as_processes(1, come_before_many, (void *)(uintptr_t)ways[i]) == 0, "the process failed");
}

/* NCCL_COMM_ID says where ranks meet that have no id; parts of a communicator have one. */
static int split_at_fixed_address(int rank, int n, void *arg)
{
    const char  *where = arg;
    ncclUniqueId id = { { 0 } };
    ncclComm_t   c = NULL, part = NULL;
    int          size = 0, x = rank, y = 0;

    setenv("NCCL_DEBUG", "NONE", 1);
    setenv("RCCLX_INIT_TIMEOUT", "20", 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("NCCL_COMM_ID", where, 1);
    if (!CHECK(ncclCommInitRank(&c, n, id, rank) == ncclSuccess, "rank %d: %s", rank, ncclGetLastError(NULL)))
        return 1;
    if (CHECK(ncclCommSplit(c, rank % 2, rank, &part, NULL) == ncclSuccess, "rank %d: %s", rank, ncclGetLastError(NULL))) {
        CHECK(ncclCommCount(part, &size) == ncclSuccess && size == n / 2, "%d ranks", size);
        CHECK(ncclAllReduce(&x, &y, 1, ncclInt32, ncclSum, part, NULL) == ncclSuccess, "%s", ncclGetLastError(NULL));
        CHECK(y == (rank % 2 ? 4 : 2), "rank %d: %d", rank, y);
        CHECK(ncclCommDestroy(part) == ncclSuccess, "%s", ncclGetLastError(NULL));
    }
    CHECK(ncclCommDestroy(c) == ncclSuccess, "%s", ncclGetLastError(NULL));
    return 0;
}

TEST(parts_do_not_meet_at_the_fixed_address)
{
    char where[32];

    snprintf(where, sizeof where, "127.0.0.1:%d", 20000 + (int)(getpid() % 20000));
    CHECK(run_ranks_as_processes(4, split_at_fixed_address, where) == 0, "ranks failed");
}

/* ---- killed at any time */

TEST(a_rank_is_killed_during_init)
{
    enum { ROUNDS = 24, N = 4 };
    unsigned dice = 4711;
    int      nfailed = 0;

    for (int round = 0; round < ROUNDS; round++) {
        meeting    *m = meeting_new("1.5", ways[round % 2]);
        check_ranks ranks;
        const int   victim = round % N;
        check_ranks_start(&ranks, N, come, m);
        dice = dice * 1103515245u + 12345u;
        WAIT_FOR(atomic_load(&m->have_id), 20);
        usleep((dice >> 8) % 6000);
        kill(ranks.pid[victim], SIGKILL);
        CHECK(check_ranks_wait(&ranks, 30) == 0, "round %d: a rank hangs after rank %d was killed", round, victim);
        for (int r = 0; r < N; r++) {
            if (r == victim)
                continue;
            CHECK(ranks.status[r] == 0, "round %d, victim %d: rank %d: status %d", round, victim, r, ranks.status[r]);
            if (m->result[r] > 1)
                CHECK(strlen(m->text[r]) > 20, "round %d: rank %d: \"%s\"", round, r, m->text[r]);
            nfailed += m->result[r] > 1;
        }
        munmap(m, sizeof *m);
    }
    CHECK(nfailed > 0, "every kill came too late to disturb");
}
