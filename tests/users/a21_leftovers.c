/* A21: killing all ranks at any moment leaves nothing behind, and whatever others
 * have left behind does not keep a job from starting.
 *
 * The ranks live in namespaces of their own where the system allows it: /dev/shm
 * and /tmp are empty file systems there, so that every entry is the library's,
 * and every name in /proc/net/unix too. /dev/shm is as small as in a container. */
#include "check.h"

#include "world.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

TIME_LIMIT(300)

enum { N = 4 };

/* Runs `body` in a child; 77 from it: namespaces are not to be had here. */
static int in_private_space(int (*body)(void *), void *arg)
{
    int s;

    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (unshare(CLONE_NEWNS | CLONE_NEWNET) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
            mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64k") || mount("tmpfs", "/tmp", "tmpfs", 0, "size=1m"))
            _exit(77);
        _exit(body(arg));
    }
    while (waitpid(pid, &s, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(s) ? WEXITSTATUS(s) : 1;
}

static int names_in_unix(void)
{
    FILE *f = fopen("/proc/net/unix", "r");
    char  line[512];
    int   n = -1; /* the heading */

    while (f && fgets(line, sizeof line, f))
        n += strchr(line, '@') || strchr(line, '/') || n < 0;
    if (f)
        fclose(f);
    return n;
}

static int left(const char *when)
{
    const int shm = check_count_entries("/dev/shm"), tmp = check_count_entries("/tmp");

    CHECK(shm == 0, "%s: %d entries in /dev/shm", when, shm);
    CHECK(tmp == 0, "%s: %d entries in /tmp", when, tmp);
    return shm + tmp;
}

/* ---- killed at random moments */

typedef struct {
    world *w;
    int    nruns, most_us;
} plan;

static int busy_main(int rank, int n, void *arg)
{
    world     *w = arg;
    ncclComm_t c = world_comm(w, 0, rank, n);
    static float in[30000], out[30000];

    if (!c)
        return 1;
    if (atomic_fetch_add(&w->arrived, 1) == n - 1)
        atomic_store(&w->note[0], 1); /* all have attached */
    for (long call = 0;; call++) {
        float *mine = NULL;
        if (call % 50 == 0)
            ncclMemAlloc((void **)&mine, 1 << 16);
        world_reduce(c, rank, n, call, in, out, call % 3 ? 30000 : 4);
        if (call % 100 == 0)
            ncclMemFree(mine);
    }
}

static int kill_all(void *arg)
{
    const plan *p = arg;
    int         nattached = 0;

    srand(21);
    for (int run = 0; run < p->nruns; run++) {
        check_ranks r;
        world      *w = world_open();
        check_ranks_start(&r, N, busy_main, w);
        usleep((unsigned)(rand() % (run % 2 ? p->most_us : 12000))); /* every other one while they meet */
        const bool attached = atomic_load(&w->note[0]) == 1;
        nattached += attached;
        if (attached)
            left("while the ranks run");
        for (int i = 0; i < N; i++)
            kill(r.pid[(run + i) % N], SIGKILL);
        check_ranks_wait(&r, 10);
        for (int i = 0; i < N; i++)
            CHECK(r.status[i] == -SIGKILL, "rank %d ended with %d", i, r.status[i]);
        world_close(w);
        if (!CHECK(left("after SIGKILL") == 0, "run %d", run))
            break;
    }
    CHECK(WAIT_FOR(names_in_unix() == 0, 2), "%d names of sockets are left", names_in_unix());
    CHECK(nattached > 0 && nattached < p->nruns, "kills only on one side of attaching (%d of %d after)", nattached, p->nruns);
    check_say("# %d of %d runs were killed after all had attached\n", nattached, p->nruns);
    return 0;
}

TEST(killed_at_any_moment)
{
    plan      p = { NULL, world_long() ? 200 : 60, world_long() ? 2000000 : 200000 };
    const int s = in_private_space(kill_all, &p);

    if (s == 77)
        SKIP("no namespaces here: %s", strerror(errno));
    CHECK(s == 0, "ended with %d", s);
}

/* ---- nothing to see of a normal run either, from beginning to end */

static int normal_main(int rank, int n, void *arg)
{
    ncclComm_t c = world_comm(arg, 0, rank, n);
    void      *p = NULL;

    if (!c)
        return 1;
    left("after init");
    world_works(c, rank, n);
    CHECK(ncclMemAlloc(&p, 4 << 20) == ncclSuccess && p, "%s", ncclGetLastError(NULL)); /* more than /dev/shm holds */
    memset(p, rank, 4 << 20);
    left("with memory");
    CHECK(ncclAllReduce(p, p, 1 << 20, ncclFloat, ncclSum, c, NULL) == ncclSuccess, "%s", ncclGetLastError(c));
    ncclMemFree(p);
    CHECK(ncclCommDestroy(c) == ncclSuccess, "%s", ncclGetLastError(NULL));
    left("after destroy");
    return 0;
}

static int run_normally(void *arg)
{
    (void)arg;
    world    *w = world_open();
    const int nbad = run_ranks_as_processes(N, normal_main, w);
    world_close(w);
    CHECK(WAIT_FOR(names_in_unix() == 0, 2), "%d names of sockets are left", names_in_unix());
    return nbad;
}

TEST(a_normal_run_makes_no_names)
{
    const int s = in_private_space(run_normally, NULL);

    if (s == 77)
        SKIP("no namespaces here: %s", strerror(errno));
    CHECK(s == 0, "ended with %d", s);
}

/* ---- others' leftovers */

static void plant(const char *folder, const char *name, int kind)
{
    char path[128];
    int  fd;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    switch (kind) {
    case 0: /* garbage of another size, forbidden */
        fd = open(path, O_CREAT | O_WRONLY, 0000);
        CHECK(fd >= 0 && write(fd, "garbage", 7) == 7, "%s: %s", path, strerror(errno));
        close(fd);
        break;
    case 1:
        CHECK(mkdir(path, 0700) == 0, "%s: %s", path, strerror(errno));
        break;
    case 2:
        CHECK(symlink("/nowhere/at/all", path) == 0, "%s: %s", path, strerror(errno));
        break;
    default: /* empty, another user's */
        fd = open(path, O_CREAT | O_WRONLY, 0600);
        CHECK(fd >= 0 && fchown(fd, 12345, 12345) == 0, "%s: %s", path, strerror(errno));
        close(fd);
    }
}

static int normal_among(int rank, int n, void *arg)
{
    ncclComm_t c = world_comm(arg, 0, rank, n);
    void      *p = NULL;

    if (!c)
        return 1;
    CHECK(ncclMemAlloc(&p, 4 << 20) == ncclSuccess && p, "%s", ncclGetLastError(NULL));
    memset(p, 0, 4 << 20);
    CHECK(ncclAllReduce(p, p, 1 << 20, ncclFloat, ncclSum, c, NULL) == ncclSuccess, "%s", ncclGetLastError(c));
    world_works(c, rank, n);
    ncclMemFree(p);
    CHECK(ncclCommDestroy(c) == ncclSuccess, "%s", ncclGetLastError(NULL));
    return 0;
}

static int run_among_leftovers(void *arg)
{
    static const char *const names[] = { "rcclx-segment", "rcclx-arena", "rcclx-0123456789abcdef", "nccl-aB3dEf", "rcclx", "librcclx",
                                         "rcclx-1", "rcclx-2", "rcclx-3", "nccl-shm-send-0-1", "rcclx.conf" };
    (void)arg;
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        plant("/tmp", names[i], (int)(i % 4));
        plant("/dev/shm", names[i], (int)((i + 1) % 4));
    }
    const int before = check_count_entries("/tmp") + check_count_entries("/dev/shm");
    /* /dev/shm is full, too */
    int fd = open("/dev/shm/full", O_CREAT | O_WRONLY, 0600);
    char page[4096] = { 1 };
    while (write(fd, page, sizeof page) > 0)
        ;
    close(fd);
    world *w = world_open();
    int    nbad = 0;
    for (int i = 0; i < 3; i++) {
        nbad += run_ranks_as_processes(N, normal_among, w);
        world_close(w);
        w = world_open();
    }
    world_close(w);
    CHECK(check_count_entries("/tmp") + check_count_entries("/dev/shm") == before + 1, "entries came or went");
    return nbad;
}

TEST(others_leftovers_and_a_full_dev_shm)
{
    const int s = in_private_space(run_among_leftovers, NULL);

    if (s == 77)
        SKIP("no namespaces here: %s", strerror(errno));
    CHECK(s == 0, "ended with %d", s);
}
