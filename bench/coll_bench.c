/* coll_bench BOARD ORDERS REPLIES NBYTES
 *
 * One rank of one back-end. bench/run keeps the ranks of all back-ends alive
 * together and gives them short orders in turn, so that whatever disturbs the
 * machine disturbs all of them alike:
 *
 *   bench/run --ORDERS (FIFO)--> rank 0 --board (shared page)--> ranks 1..n-1
 *             <-REPLIES (FIFO)--        <----------------------
 *
 * Between orders the ranks sleep, in the FIFO or in a futex on the board. The
 * board also holds the barrier of the harness itself, which no library can
 * make faster or slower.
 *
 * An order is a line "kind nbytes mode memory iters check", where nbytes is
 * the big buffer of the collective. mode: "hot" calls in a loop on buffers
 * that nobody writes; "dirty" lets every rank rewrite its whole send buffer
 * and meet the others in the barrier before each call, and times the call
 * alone. memory: "best" or "plain" (malloc). The reply is "nanoseconds wrong
 * crossing": the mean of one call on the slowest rank; how many elements were
 * wrong after the batch's last call, if it was to be checked; and how many
 * nanoseconds a flag took between the cores of ranks 0 and 1 just before. On a
 * virtual machine that number moves, by a factor of two, with whatever the
 * host does with its cores, and most small collectives move with it. */
#include "backend.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RANKS = 64, SPINS = 2000 };

struct order {
    int      kind; /* KINDS: the end */
    int      dirty, plain, check;
    size_t   nbytes;
    uint64_t iters;
};

struct board {
    _Alignas(128) _Atomic uint32_t arrived;
    _Alignas(128) _Atomic uint32_t round;
    _Alignas(128) _Atomic uint32_t orders; /* futex: how many were given */
    _Alignas(128) _Atomic uint32_t ping;
    _Alignas(128) _Atomic uint32_t pong;
    struct order order;
    struct {
        _Alignas(128) double ns;
        uint64_t             wrong;
    } rank[MAX_RANKS];
};

static const char *const kind_names[KINDS] = { "all_reduce", "reduce_scatter", "all_gather", "alltoall", "broadcast" };

static struct board *board;
static int           me, nranks, ncores;
static int           crowded;      /* more ranks than cores */
static float        *memory[2][2]; /* [plain][send, recv] */
static uint32_t      turn;         /* how often the send buffer was written */
static double        clock_ns;     /* what reading the clock costs */

static void die(const char *what)
{
    fprintf(stderr, "coll_bench: rank %d: %s: %s\n", me, what, strerror(errno));
    exit(1);
}

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Calls of 0.1 us are timed one by one: the clock's own part is taken off. */
static void weigh_clock(void)
{
    clock_ns = 1e9;
    for (int i = 0; i < 10000; i++) {
        const double start = now_ns(), gone = now_ns() - start;

        if (gone < clock_ns)
            clock_ns = gone;
    }
}

static void barrier(void)
{
    const uint32_t round = atomic_load(&board->round);

    if (atomic_fetch_add(&board->arrived, 1) + 1 == (uint32_t)nranks) {
        atomic_store(&board->arrived, 0);
        atomic_store(&board->round, round + 1);
        return;
    }
    for (int i = 0; atomic_load_explicit(&board->round, memory_order_acquire) == round; i++)
        if (crowded || i > SPINS)
            sched_yield();
}

/* One way between two cores, the quickest of a few tries. */
static double crossing(void)
{
    enum { TRIES = 16, TRIPS = 8 };
    static uint32_t turn_of_flag;
    double          best = 1e9;

    for (int t = 0; me < 2 && nranks > 1 && ncores > 1 && t < TRIES; t++) {
        const double start = now_ns();
        double       gone;

        for (int i = 0; i < TRIPS; i++) {
            turn_of_flag++;
            if (me == 0)
                atomic_store(&board->ping, turn_of_flag);
            while (atomic_load(me == 0 ? &board->pong : &board->ping) != turn_of_flag) {
            }
            if (me == 1)
                atomic_store(&board->pong, turn_of_flag);
        }
        gone = (now_ns() - start) / (2 * TRIPS);
        best = gone < best ? gone : best;
    }
    barrier();
    return best;
}

/* Rank r lives on the r-th core that this process may use, modulo their number. */
static void pin(void)
{
    cpu_set_t all, one;
    int       skip;

    if (sched_getaffinity(0, sizeof all, &all))
        die("sched_getaffinity");
    ncores  = CPU_COUNT(&all);
    skip    = me % ncores;
    crowded = nranks > ncores;
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &all) && skip-- == 0)
            CPU_SET(core, &one);
    if (sched_setaffinity(0, sizeof one, &one))
        die("sched_setaffinity");
}

/* ---- data: small whole numbers, so that every sum is exact in float32 and
 * every element, rank and turn has a value of its own ---------------------- */

static uint32_t base_of(int rank, uint32_t t)
{
    return 512 * (uint32_t)rank + t % 509;
}

static uint32_t place_of(size_t i)
{
    return (uint32_t)(i & 0xffff) + (uint32_t)(i >> 16);
}

static void write_all(float *p, size_t count)
{
    const uint32_t base = base_of(me, ++turn);

    for (size_t i = 0; i < count; i += 0x10000) {
        const size_t   end   = count - i < 0x10000 ? count - i : 0x10000;
        const uint32_t first = base + (uint32_t)(i >> 16);

        for (uint32_t k = 0; k < (uint32_t)end; k++)
            p[i + k] = (float)(int32_t)(first + k);
    }
}

static uint32_t value(int rank, size_t i)
{
    return base_of(rank, turn) + place_of(i);
}

static uint64_t check_sum(const float *recv, size_t first, size_t count)
{
    uint64_t wrong = 0;
    uint32_t base  = 0;

    for (int r = 0; r < nranks; r++)
        base += base_of(r, turn);
    for (size_t i = 0; i < count; i++)
        wrong += recv[i] != (float)(base + (uint32_t)nranks * place_of(first + i));
    return wrong;
}

static uint64_t check_block(const float *recv, int from, size_t first, size_t count)
{
    uint64_t wrong = 0;

    for (size_t i = 0; i < count; i++)
        wrong += recv[i] != (float)value(from, first + i);
    return wrong;
}

static uint64_t check(enum kind kind, const float *recv, size_t count)
{
    uint64_t wrong = 0;

    switch (kind) {
    case ALL_REDUCE:
        return check_sum(recv, 0, count);
    case REDUCE_SCATTER:
        return check_sum(recv, (size_t)me * count, count);
    case BROADCAST:
        return check_block(recv, 0, 0, count);
    case ALL_GATHER:
        for (int r = 0; r < nranks; r++)
            wrong += check_block(recv + (size_t)r * count, r, 0, count);
        return wrong;
    case ALLTOALL:
        for (int r = 0; r < nranks; r++)
            wrong += check_block(recv + (size_t)r * count, r, (size_t)me * count, count);
        return wrong;
    case KINDS:
        break;
    }
    return 0;
}

/* ---- one batch ---------------------------------------------------------- */

struct batch {
    enum kind kind;
    int       dirty;
    size_t    count;   /* as backend_call takes it */
    size_t    written; /* elements of the buffer that a rank fills */
    float    *send, *recv;
};

static struct batch lay_out(const struct order *o)
{
    const size_t all    = o->nbytes / sizeof(float);
    const int    whole  = o->kind == ALL_REDUCE || o->kind == BROADCAST;
    const size_t count  = whole ? all : all / (size_t)nranks;
    float *const send   = memory[o->plain][0];
    float *const recv   = memory[o->plain][1];

    return (struct batch){
        .kind    = (enum kind)o->kind,
        .dirty   = o->dirty,
        .count   = count,
        .written = o->kind == ALL_GATHER ? count : all,
        .send    = o->kind == BROADCAST ? recv : send, /* in place */
        .recv    = recv,
    };
}

/* Nanoseconds of one call on the slowest rank. */
static double run(const struct batch *b, uint64_t iters)
{
    double spent = 0, slowest = 0, start;

    write_all(b->send, b->written);
    barrier();
    backend_call(b->kind, b->send, b->recv, b->count); /* warms caches and connections */
    barrier();
    if (b->dirty) {
        for (uint64_t i = 0; i < iters; i++) {
            write_all(b->send, b->written);
            barrier();
            start = now_ns();
            backend_call(b->kind, b->send, b->recv, b->count);
            spent += now_ns() - start - clock_ns;
        }
    } else {
        start = now_ns();
        for (uint64_t i = 0; i < iters; i++)
            backend_call(b->kind, b->send, b->recv, b->count);
        spent = now_ns() - start;
    }
    board->rank[me].ns = spent / (double)iters;
    barrier();
    for (int r = 0; r < nranks; r++)
        if (board->rank[r].ns > slowest)
            slowest = board->rank[r].ns;
    barrier();
    return slowest;
}

static double obey(const struct order *o, uint64_t *wrong)
{
    const struct batch b  = lay_out(o);
    const double       ns = run(&b, o->iters);

    board->rank[me].wrong = o->check ? check(b.kind, b.recv, b.count) : 0;
    barrier();
    *wrong = 0;
    for (int r = 0; r < nranks; r++)
        *wrong += board->rank[r].wrong;
    barrier();
    return ns;
}

/* ---- orders ------------------------------------------------------------- */

static struct order read_order(FILE *orders)
{
    char         line[256], kind[32], mode[16], kept[16];
    struct order o = { .kind = KINDS };

    if (!fgets(line, sizeof line, orders))
        return o;
    if (sscanf(line, "%31s %zu %15s %15s %lu %d", kind, &o.nbytes, mode, kept, &o.iters, &o.check) != 6)
        return o;
    for (o.kind = 0; o.kind < KINDS && strcmp(kind, kind_names[o.kind]); o.kind++) {
    }
    o.dirty = !strcmp(mode, "dirty");
    o.plain = !strcmp(kept, "plain");
    return o;
}

static void serve(FILE *orders, FILE *replies)
{
    uint32_t given = 0;

    for (;;) {
        struct order o;
        double       ns, flag_ns;
        uint64_t     wrong;

        if (me == 0) {
            board->order = read_order(orders);
            atomic_store(&board->orders, given + 1);
            syscall(SYS_futex, &board->orders, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        }
        while (atomic_load(&board->orders) == given)
            syscall(SYS_futex, &board->orders, FUTEX_WAIT, given, NULL, NULL, 0);
        given++;
        o = board->order;
        barrier(); /* all are awake */
        if (o.kind == KINDS)
            return;
        flag_ns = crossing();
        ns      = obey(&o, &wrong);
        if (me == 0) {
            fprintf(replies, "%.3f %lu %.1f\n", ns, wrong, flag_ns);
            fflush(replies);
        }
    }
}

static FILE *open_fifo(const char *path, const char *mode)
{
    FILE *f = fopen(path, mode);

    if (!f)
        die(path);
    return f;
}

int main(int argc, char **argv)
{
    FILE  *orders = NULL, *replies = NULL;
    size_t nbytes;
    int    fd;

    if (argc != 5) {
        fprintf(stderr, "usage: %s BOARD ORDERS REPLIES NBYTES\n", argv[0]);
        return 2;
    }
    backend_start(&me, &nranks);
    if (nranks > MAX_RANKS) {
        fprintf(stderr, "coll_bench: at most %d ranks\n", MAX_RANKS);
        return 2;
    }
    pin();
    weigh_clock();
    fd = open(argv[1], O_RDWR | O_CLOEXEC);
    if (fd < 0)
        die(argv[1]);
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (board == MAP_FAILED)
        die("mmap");
    close(fd);
    nbytes = (strtoull(argv[4], NULL, 10) + 4095) & ~(size_t)4095;
    for (int i = 0; i < 2; i++) {
        memory[0][i] = backend_memory(nbytes);
        memory[1][i] = aligned_alloc(4096, nbytes);
        if (!memory[1][i])
            die("aligned_alloc");
    }
    if (me == 0) {
        orders  = open_fifo(argv[2], "r");
        replies = open_fifo(argv[3], "w");
        fprintf(replies, "ready %s\n", backend_version());
        fflush(replies);
    }
    serve(orders, replies);
    backend_stop();
    return 0;
}
