/* A23: wrong or missing network interface, IPv6, no network at all.
 *
 * Each case builds a network of its own (a namespace), in which interfaces are
 * ends of virtual cables, and lets ranks meet there:
 *
 *   namespace:  lo   docker0--x   eth0--x      ranks 0..n-1
 *
 * Ranks of one machine need no interface; a name that matches nothing is an error
 * that quotes variable, value and what there is; bridges, link-local addresses,
 * loopback and what is down come last; the chosen address is logged once. */
#include "check.h"
#include "together.h"

#include <sched.h>

TIME_LIMIT(300)

enum { MAX_ENV = 6 };

typedef struct {
    const char *network;      /* shell commands */
    int         nranks;
    const char *env[MAX_ENV]; /* NAME=VALUE */
    const char *chosen;       /* "interface:address" that the log names; NULL: it names none */
    const char *words[4];     /* of the error, instead of success */
    ncclResult_t error;
    int         ports[2];     /* the root listens within */
} scene;

static char folder[64];

static bool in_log(const char *path, const char *word, int *times)
{
    static char text[1 << 18];
    const int     fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;

    text[n > 0 ? n : 0] = 0;
    if (fd >= 0)
        close(fd);
    *times = 0;
    for (const char *p = text; (p = strstr(p, "Bootstrap: Using ")); p++)
        ++*times;
    return strstr(text, word) != NULL;
}

/* The TCP ports somebody listens on in this network. */
static int listening(int ports[16])
{
    static const char *const files[] = { "/proc/self/net/tcp", "/proc/self/net/tcp6" };
    int                      n = 0;

    for (int i = 0; i < 2; i++) {
        char  line[512];
        FILE *f = fopen(files[i], "r");
        while (f && fgets(line, sizeof line, f)) {
            unsigned    port, state;
            const char *at = strchr(line, ':'); /* after the row's number */
            if (at && sscanf(at + 1, " %*[0-9A-F]:%x %*[0-9A-F]:%*x %x", &port, &state) == 2 && state == 10 && n < 16)
                ports[n++] = (int)port;
        }
        if (f)
            fclose(f);
    }
    return n;
}

static void look_at_ports(const scene *s)
{
    int       ports[16];
    const int n = listening(ports);

    CHECK(n >= 1, "nobody listens");
    for (int i = 0; i < n; i++)
        CHECK(ports[i] >= s->ports[0] && ports[i] <= s->ports[1], "port %d is outside %d-%d", ports[i], s->ports[0], s->ports[1]);
}

/* The error is as it should be: code, and words in the text. */
static void look_at_error(const scene *s, ncclResult_t r)
{
    const char *text = ncclGetLastError(NULL);

    CHECK(r == s->error, "%d, not %d: %s", (int)r, (int)s->error, text);
    for (int i = 0; i < 4 && s->words[i]; i++)
        CHECK(strstr(text, s->words[i]), "no '%s' in: %s", s->words[i], text);
}

static int rank_main(int rank, int n, void *arg)
{
    const scene *s = arg;
    ncclUniqueId id;
    ncclComm_t   comm = NULL;
    char         log[128];
    int          sum = 0, times;

    for (int i = 0; i < MAX_ENV && s->env[i]; i++)
        putenv((char *)(uintptr_t)s->env[i]);
    snprintf(log, sizeof log, "%s/log.%d", folder, rank);
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_DEBUG_SUBSYS", "ALL", 1);
    setenv("NCCL_DEBUG_FILE", log, 1);
    if (s->words[0]) {
        const double began = check_now();
        ncclResult_t r = ncclGetUniqueId(&id);
        if (r == ncclSuccess)
            r = ncclCommInitRank(&comm, n, id, rank);
        look_at_error(s, r);
        CHECK(check_now() - began < 10 * check_scale(), "it took %.1f s", check_now() - began);
        unlink(log);
        return 0;
    }
    const bool made = together_id(0, rank, &id);
    if (rank == 0 && s->ports[0])
        look_at_ports(s);
    if (!made)
        return 1;
    OK(ncclCommInitRank(&comm, n, id, rank));
    OK(ncclAllReduce(&rank, &sum, 1, ncclInt32, ncclSum, comm, NULL));
    CHECK(sum == n * (n - 1) / 2, "the sum is %d", sum);
    OK(ncclCommDestroy(comm));
    char line[128];
    snprintf(line, sizeof line, "Bootstrap: Using %s", s->chosen ? s->chosen : "");
    const bool named = in_log(log, line, &times);
    if (rank == 0)
        CHECK(named == (s->chosen != NULL) && times == named, "'%s' stands in the log %d times, right: %d", line, times, named);
    unlink(log);
    return 0;
}

enum { NO_NETWORK = 77 };

/* In a process of its own, which is then in a network of its own. */
static int enter_and_run(const scene *s)
{
    if (unshare(CLONE_NEWNET | CLONE_NEWUTS) && unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWUTS))
        return NO_NETWORK;
    if (sethostname("no-such-host-anywhere", 21))
        return NO_NETWORK;
    if (system(s->network)) /* no `ip`, or no virtual cables in this kernel */
        return NO_NETWORK;
    together_prepare();
    return run_ranks_as_processes(s->nranks, rank_main, (void *)(uintptr_t)s) != 0;
}

static void run(const scene *s)
{
    int status;

    snprintf(folder, sizeof folder, "/tmp/rcclx-test-a23-XXXXXX");
    REQUIRE(mkdtemp(folder), "%s", strerror(errno));
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        exit(enter_and_run(s));
    }
    REQUIRE(waitpid(pid, &status, 0) == pid, "%s", strerror(errno));
    rmdir(folder);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_NETWORK)
        SKIP("no network namespace, or no virtual interfaces in one");
    CHECK(status == 0, "%#x", (unsigned)status);
}

#define LO "ip link set lo up && "
/* Both ends up, so that it runs; no addresses but the one given. */
#define CABLE(name, address)                                                                                              \
    "ip link add " name " type veth peer name x" name " && ip link set " name " addrgenmode none && "                      \
    "ip link set x" name " addrgenmode none && ip link set " name " up && ip link set x" name " up && "                    \
    "ip addr add " address " dev " name " && "
#define TCP "RCCLX_BOOTSTRAP=tcp"
#define BOTH LO CABLE("docker0", "172.17.0.1/16") CABLE("eth0", "10.1.2.3/24")

TEST(a23_no_interface_up)
{
    run(&(scene){ .network = "true", .nranks = 2 });
}

TEST(a23_no_interface_up_eight_ranks)
{
    run(&(scene){ .network = "true", .nranks = 8 });
}

TEST(a23_no_interface_up_but_tcp_wanted)
{
    run(&(scene){ .network = "true", .nranks = 1, .env = { TCP }, .error = ncclSystemError, .words = { "RCCLX_BOOTSTRAP is tcp", "no network interface" } });
}

TEST(a23_loopback_only)
{
    run(&(scene){ .network = LO "true", .nranks = 2, .chosen = "lo:127.0.0.1" });
    run(&(scene){ .network = LO "true", .nranks = 2, .env = { TCP }, .chosen = "lo:127.0.0.1" });
}

TEST(a23_ipv6_only)
{
    run(&(scene){ .network = LO "ip addr del 127.0.0.1/8 dev lo && " CABLE("eth0", "fd00:1::5/64 nodad") "true", .nranks = 2,
                  .env = { TCP }, .chosen = "eth0:[fd00:1::5]" });
}

TEST(a23_both_families)
{
    static const char network[] = LO CABLE("eth0", "10.1.2.3/24") "ip addr add fd00:1::5/64 dev eth0 nodad";

    run(&(scene){ .network = network, .nranks = 2, .env = { TCP, "NCCL_SOCKET_FAMILY=AF_INET6" }, .chosen = "eth0:[fd00:1::5]" });
    run(&(scene){ .network = network, .nranks = 2, .env = { TCP, "NCCL_SOCKET_FAMILY=AF_INET" }, .chosen = "eth0:10.1.2.3" });
}

TEST(a23_a_bridge_called_docker0_comes_last)
{
    run(&(scene){ .network = BOTH "true", .nranks = 2, .env = { TCP }, .chosen = "eth0:10.1.2.3" });
    /* but if there is nothing else, it is better than loopback */
    run(&(scene){ .network = LO CABLE("docker0", "172.17.0.1/16") "true", .nranks = 2, .env = { TCP }, .chosen = "docker0:172.17.0.1" });
}

TEST(a23_a_link_local_address_comes_last)
{
    run(&(scene){ .network = LO CABLE("eth0", "169.254.7.7/16") CABLE("eth1", "10.1.2.3/24") "true", .nranks = 2, .env = { TCP },
                  .chosen = "eth1:10.1.2.3" });
}

/* Interfaces that have just come up have IPv6 addresses that are still being checked. */
TEST(a23_an_address_that_cannot_be_used_yet)
{
    static const char network[] = LO CABLE("docker0", "172.17.0.1/16") "ip link add eth0 type veth peer name xeth0 && "
                                  "ip link set eth0 up && ip link set xeth0 up";

    run(&(scene){ .network = network, .nranks = 2, .env = { TCP }, .chosen = "docker0:172.17.0.1" });
}

TEST(a23_what_is_down_is_not_chosen)
{
    run(&(scene){ .network = LO CABLE("eth0", "10.9.9.9/24") CABLE("eth1", "10.1.2.3/24") "ip link set eth0 down", .nranks = 2, .env = { TCP },
                  .chosen = "eth1:10.1.2.3" });
}

TEST(a23_a_name_that_matches_nothing)
{
    run(&(scene){ .network = BOTH "true", .nranks = 1, .env = { "NCCL_SOCKET_IFNAME=ib7" }, .error = ncclInvalidArgument,
                  .words = { "NCCL_SOCKET_IFNAME", "ib7", "eth0 (10.1.2.3)", "docker0 (172.17.0.1)" } });
    run(&(scene){ .network = BOTH "true", .nranks = 1, .env = { "NCCL_SOCKET_IFNAME==eth" }, .error = ncclInvalidArgument,
                  .words = { "NCCL_SOCKET_IFNAME", "=eth", "eth0 (10.1.2.3)" } });
    run(&(scene){ .network = BOTH "true", .nranks = 1, .env = { "NCCL_SOCKET_IFNAME=eth0", "NCCL_SOCKET_FAMILY=AF_INET6" },
                  .error = ncclInvalidArgument, .words = { "NCCL_SOCKET_IFNAME", "family", "eth0" } });
}

TEST(a23_a_prefix_an_exclusion_an_exact_name)
{
    static const char three[] = BOTH CABLE("eth01", "10.1.3.3/24") "true";

    run(&(scene){ .network = BOTH "true", .nranks = 2, .env = { TCP, "NCCL_SOCKET_IFNAME=dock" }, .chosen = "docker0:172.17.0.1" });
    run(&(scene){ .network = BOTH "true", .nranks = 2, .env = { TCP, "NCCL_SOCKET_IFNAME=ib,eth" }, .chosen = "eth0:10.1.2.3" });
    run(&(scene){ .network = BOTH "true", .nranks = 2, .env = { TCP, "NCCL_SOCKET_IFNAME=^docker0" }, .chosen = "eth0:10.1.2.3" });
    run(&(scene){ .network = BOTH "true", .nranks = 2, .env = { TCP, "NCCL_SOCKET_IFNAME=^eth,lo" }, .chosen = "docker0:172.17.0.1" });
    run(&(scene){ .network = three, .nranks = 2, .env = { TCP, "NCCL_SOCKET_IFNAME==eth01" }, .chosen = "eth01:10.1.3.3" });
    run(&(scene){ .network = three, .nranks = 2, .env = { TCP, "NCCL_SOCKET_IFNAME==eth0" }, .chosen = "eth0:10.1.2.3" });
}

TEST(a23_four_ports_are_enough_for_two_and_for_eight_ranks)
{
    for (int n = 2; n <= 8; n += 6)
        run(&(scene){ .network = BOTH "true", .nranks = n, .env = { TCP, "RCCLX_PORT_RANGE=45000-45003" }, .chosen = "eth0:10.1.2.3",
                      .ports = { 45000, 45003 } });
}

/* Five roots at a time do not fit four ports: an error with the range, and the four still serve. */
static int five_roots(int rank, int n, void *arg)
{
    const scene *s = arg;
    ncclUniqueId id[5];
    ncclComm_t   comm;

    for (int i = 0; i < MAX_ENV && s->env[i]; i++)
        putenv((char *)(uintptr_t)s->env[i]);
    for (int i = 0; i < 4; i++)
        OK(ncclGetUniqueId(&id[i]));
    const ncclResult_t r = ncclGetUniqueId(&id[4]);
    CHECK(r == ncclSystemError && strstr(ncclGetLastError(NULL), "45000-45003"), "%d: %s", (int)r, ncclGetLastError(NULL));
    for (int i = 0; i < 4; i++) {
        OK(ncclCommInitRank(&comm, 1, id[i], 0));
        OK(ncclCommDestroy(comm));
    }
    return 0;
}

static void run_five_roots(const scene *s)
{
    int status = 0;

    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
            exit(NO_NETWORK);
        exit(system(s->network) ? NO_NETWORK : run_ranks_as_processes(1, five_roots, (void *)(uintptr_t)s));
    }
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_NETWORK)
        SKIP("no network namespace, or no virtual interfaces in one");
    CHECK(status == 0, "%#x", (unsigned)status);
}

TEST(a23_more_roots_than_ports)
{
    run_five_roots(&(scene){ .network = BOTH "true", .env = { TCP, "RCCLX_PORT_RANGE=45000-45003" } });
}

TEST(a23_a_port_range_that_is_none)
{
    run(&(scene){ .network = BOTH "true", .nranks = 1, .env = { TCP, "RCCLX_PORT_RANGE=99-7" }, .error = ncclInvalidArgument,
                  .words = { "RCCLX_PORT_RANGE", "99-7" } });
}

TEST(a23_a_host_name_that_does_not_resolve)
{
    run(&(scene){ .network = BOTH "true", .nranks = 1, .env = { "NCCL_COMM_ID=no-such-host-anywhere:4711" }, .error = ncclSystemError,
                  .words = { "no-such-host-anywhere", "cannot be resolved" } });
}

TEST(a23_a_fixed_address)
{
    run(&(scene){ .network = BOTH "true", .nranks = 2, .env = { TCP, "NCCL_COMM_ID=10.1.2.3:45007" }, .chosen = NULL });
    run(&(scene){ .network = LO "true", .nranks = 2, .env = { TCP, "NCCL_COMM_ID=[::1]:45007" }, .chosen = NULL });
}
