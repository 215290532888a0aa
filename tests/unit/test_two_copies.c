/* Two copies of the library in one process, as when libnccl.so.2 is preloaded and a
 * program is linked to librcclx.so: they work, they are told of, and ranks of different
 * versions do not meet. */
#include "check.h"
#include "settings.h"

#include "comm/root.h"
#include "nccl.h"

#include <dlfcn.h>

typedef ncclResult_t get_id(ncclUniqueId *id);
typedef ncclResult_t init_rank(ncclComm_t *c, int n, ncclUniqueId id, int rank);
typedef ncclResult_t all_reduce(const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                                cudaStream_t s);
typedef ncclResult_t destroy(ncclComm_t c);
typedef const char *last_error(ncclComm_t c);

typedef struct {
    void       *library;
    get_id     *id;
    init_rank  *init;
    all_reduce *reduce;
    destroy    *end;
    last_error *why;
} copy;

static void *symbol(const copy *c, const char *name, void *function)
{
    void *p = dlsym(c->library, name);

    CHECK(p, "%s is missing", name);
    memcpy(function, &p, sizeof p);
    return p;
}

static bool open_copy(copy *c, const char *file)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/lib/%s", check_build_dir(), file);
    c->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!c->library)
        return false;
    return symbol(c, "ncclGetUniqueId", &c->id) && symbol(c, "ncclCommInitRank", &c->init) &&
           symbol(c, "ncclAllReduce", &c->reduce) && symbol(c, "ncclCommDestroy", &c->end) &&
           symbol(c, "ncclGetLastError", &c->why);
}

static void alone(const copy *c, ncclComm_t *comm)
{
    ncclUniqueId id;

    CHECK(c->id(&id) == ncclSuccess && c->init(comm, 1, id, 0) == ncclSuccess, "%s", c->why(NULL));
}

typedef struct {
    copy        *copies;
    ncclUniqueId id;
} pair;

/* Rank r comes from copy r. */
static int meets(int rank, int n, void *arg)
{
    const pair *p = arg;
    const copy *c = &p->copies[rank];
    int x = rank + 1, sum = 0;
    ncclComm_t comm;

    if (!CHECK(c->init(&comm, n, p->id, rank) == ncclSuccess, "rank %d: %s", rank, c->why(NULL)))
        return 1;
    CHECK(c->reduce(&x, &sum, 1, ncclInt, ncclSum, comm, NULL) == ncclSuccess && sum == 3, "rank %d: %d", rank, sum);
    CHECK(c->end(comm) == ncclSuccess, "rank %d: %s", rank, c->why(NULL));
    return 0;
}

TEST(two_copies_are_told_of_when_both_are_used)
{
    copy copies[2];
    ncclComm_t a, b, again;

    settings_clear();
    setenv("RCCLX_DEVICE", "host", 1);
    if (!open_copy(&copies[0], "libnccl.so.2") || !open_copy(&copies[1], "librcclx.so"))
        SKIP("no shared libraries in %s/lib", check_build_dir());
    settings_capture();
    alone(&copies[0], &a);
    const settings_output *got = settings_captured();
    CHECK(!strstr(got->err, "two copies"), "the other one is not used: %s", got->err);
    settings_capture();
    alone(&copies[1], &b);
    alone(&copies[0], &again);
    got = settings_captured();
    const char *at = strstr(got->err, "two copies of this library");
    CHECK(at && strstr(at, "/lib/libnccl.so.2") && strstr(at, "/lib/librcclx.so"), "%s", got->err);
    settings_capture();
    alone(&copies[1], &again);
    got = settings_captured();
    CHECK(!strstr(got->err, "two copies"), "told again: %s", got->err);
    CHECK(copies[0].end(a) == ncclSuccess && copies[1].end(b) == ncclSuccess && copies[1].end(again) == ncclSuccess, "the end");
}

TEST(ranks_of_two_copies_meet)
{
    copy copies[2];
    pair p = { copies, { { 0 } } };

    settings_clear();
    setenv("RCCLX_DEVICE", "host", 1);
    setenv("NCCL_DEBUG", "NONE", 1);
    if (!open_copy(&copies[0], "libnccl.so.2") || !open_copy(&copies[1], "librcclx.so"))
        SKIP("no shared libraries in %s/lib", check_build_dir());
    CHECK(copies[0].id(&p.id) == ncclSuccess, "%s", copies[0].why(NULL));
    CHECK(run_ranks_as_threads(2, meets, &p) == 0, "ranks failed");
}

/* ---- a rank of another version: what it sends, and what all are told */

typedef struct {
    ncclUniqueId id;
    int          version;
} stranger;

static int comes(int rank, int n, void *arg)
{
    const stranger *s = arg;
    ncclComm_t comm;

    if (rank == 0) {
        const ncclResult_t r = ncclCommInitRank(&comm, n, s->id, 0);
        CHECK(r == ncclInvalidUsage && strstr(ncclGetLastError(NULL), "another version of this library (77, not"), "%d: %s", (int)r,
              ncclGetLastError(NULL));
        return 0;
    }
    static rcclx_welcome w;
    rcclx_id_fields f;
    char name[40];
    memcpy(&f, &s->id, sizeof f);
    rcclx_id_socket_name(f.token, name, sizeof name);
    const rcclx_hello h = { .magic = RCCLX_HELLO_MAGIC, .token = { f.token[0], f.token[1] }, .version = s->version, .nranks = n,
                            .me = { .rank = 1, .pid = 4711, .arena_fd = -1 } };
    usleep(100000); /* rank 0 has come */
    const int fd = rcclx_connect_unix(name);
    if (!CHECK(fd >= 0 && rcclx_send_all(fd, &h, sizeof h, NULL, 0, 5000) == 0, "the root is not there"))
        return 1;
    ssize_t have = 0, more = 0;
    CHECK(WAIT_FOR((more = recv(fd, (char *)&w + have, offsetof(rcclx_welcome, peer) - (size_t)have, MSG_DONTWAIT), have += more > 0 ? more : 0,
                    have == (ssize_t)offsetof(rcclx_welcome, peer)), 10), "%zd bytes of an answer", have);
    CHECK(w.status != 0 && strstr(w.text, "rank 1 (pid 4711) runs another version"), "%d: %s", w.status, w.text);
    close(fd);
    return 0;
}

TEST(ranks_of_two_versions_do_not_meet)
{
    stranger s = { .version = 77 };

    settings_clear();
    setenv("RCCLX_DEVICE", "host", 1);
    setenv("NCCL_DEBUG", "NONE", 1);
    setenv("RCCLX_INIT_TIMEOUT", "20", 1);
    rcclx_option_reload();
    CHECK(ncclGetUniqueId(&s.id) == ncclSuccess, "%s", ncclGetLastError(NULL));
    CHECK(run_ranks_as_threads(2, comes, &s) == 0, "ranks failed");
}
