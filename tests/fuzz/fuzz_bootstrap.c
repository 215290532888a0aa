/* Fuzzes what comes over the bootstrap's sockets, and the bytes of a unique id.
 *
 * The first byte of the input chooses who reads the rest:
 *   0   the root: bytes of up to 4 guests, in pieces [guest, how many, bytes...]
 *   1   a rank: the root's welcome, with a file handle or without
 *   2   a rank: a unique id (Unix sockets only, so that nothing is called up)
 *
 * Both ends are compiled in here, so that their insides can be called. Built with
 * -fsanitize=fuzzer and -DRCCLX_LIBFUZZER it is libFuzzer's target; without, main
 * replays a small corpus and mutations of it, the same ones every time, and prints
 * TAP. Whatever is broken aborts. */
#include "comm/root.c"

#include "comm/bootstrap.c"

#include "base/process.h"

#include <signal.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(cond)                                                                   \
    do {                                                                             \
        if (!(cond)) {                                                               \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #cond);       \
            abort();                                                                 \
        }                                                                            \
    } while (0)

enum { GUESTS = 4, MOST = 16384 };

static const uint64_t token[2] = { 0x1122334455667788u, 0x99aabbccddeeff00u };

static int held_fds(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) != -1;
    return n;
}

/* ---- the root */

/* The tables of guests and ranks tell the same story. */
static void check_root(const root *r)
{
    int known = 0, placed = 0;

    for (int i = 0; i < RCCLX_MAX_RANKS; i++)
        placed += r->of_rank[i] != 0;
    MUST(r->nguests >= 0 && r->nguests <= MAX_GUESTS);
    for (int g = 0; g < r->nguests; g++) {
        const guest *x = &r->guests[g];
        MUST(x->nbytes >= 0 && (size_t)x->nbytes <= sizeof(x->hello));
        if (!x->known)
            continue;
        known++;
        MUST((size_t)x->nbytes == sizeof(x->hello) && x->hello.token[0] == token[0] && x->hello.token[1] == token[1]);
        MUST(x->hello.nranks == r->nranks && x->hello.me.rank >= 0 && x->hello.me.rank < r->nranks);
        MUST(r->of_rank[x->hello.me.rank] == g + 1);
    }
    MUST(known == placed && known == r->narrived && r->nranks >= 0 && r->nranks <= RCCLX_MAX_RANKS && r->narrived <= (r->nranks ? r->nranks : 0));
}

static int guest_at(const root *r, int fd)
{
    for (int g = 0; g < r->nguests; g++)
        if (r->guests[g].fd == fd)
            return g;
    return -1;
}

static void feed_root(const uint8_t *data, size_t size)
{
    static root r;
    int pair[GUESTS][2];
    bool on = true;

    memset(&r, 0, sizeof(r));
    memcpy(r.token, token, sizeof(token));
    r.tcp = r.local = -1;
    r.welcome.magic = RCCLX_HELLO_MAGIC;
    for (int i = 0; i < GUESTS; i++) {
        MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair[i]) == 0);
        r.guests[r.nguests++] = (guest){ .fd = pair[i][0], .handle = -1 };
    }
    while (size >= 2) {
        const int i = data[0] % GUESTS, fd = pair[i][0];
        size_t n = data[1];
        data += 2, size -= 2;
        n = n < size ? n : size;
        const int file = n % 5 == 3 ? STDOUT_FILENO : -1; /* now and then a handle comes along */
        if (pair[i][1] >= 0 && n)
            rcclx_send_all(pair[i][1], data, n, &file, file >= 0, 1);
        else if (pair[i][1] >= 0) /* nothing to say: it leaves */
            close(pair[i][1]), pair[i][1] = -1;
        data += n, size -= n;
        for (int round = 0, g; round < 4 && (g = guest_at(&r, fd)) >= 0; round++) {
            const int what = listen_to(&r, g);
            if (what < 0)
                r.off = true;
            else if (what)
                drop(&r, g);
            check_root(&r);
        }
        on &= !r.off;
    }
    for (int i = 0; i < GUESTS; i++)
        if (pair[i][1] >= 0)
            close(pair[i][1]);
    if (on && r.nranks && r.narrived == r.nranks)
        serve(&r);
    while (r.nguests)
        drop(&r, r.nguests - 1);
    check_root(&r);
}

/* ---- a rank */

static void feed_rank(const uint8_t *data, size_t size)
{
    static rcclx_welcome w;
    const _Atomic uint32_t aborted = 0;
    int pair[2], handles[1 + RCCLX_MAX_PROCESSES], nhandles = 0;
    rcclx_meeting m = { .segment_fd = -1, .root = -1 };
    const int nranks = size ? 1 + data[0] % RCCLX_MAX_RANKS : 1, files[2] = { STDOUT_FILENO, STDERR_FILENO };

    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    if (size > 1)
        rcclx_send_all(pair[1], data + 1, size - 1, files, size % 3, 1);
    close(pair[1]);
    memset(&w, 0x5a, sizeof(w));
    const rcclx_status s = hear_root(pair[0], 0, nranks, rcclx_clock_ns() + 1000000000u, &aborted, &w, handles, &nhandles);
    MUST(nhandles >= 0 && nhandles <= 2);
    if (s == RCCLX_OK) {
        m.nranks = w.nranks;
        MUST(m.nranks == nranks);
        for (int r = 0; r < m.nranks; r++)
            m.peer[r] = w.peer[r].who;
        if (nhandles) /* without, they would be borrowed from the process named */
            (void)take_handles(&m, &w, handles, nhandles, 0);
        for (int r = 0; r < m.nranks; r++) /* no handle is in it twice */
            for (int k = 0; k < r && nhandles; k++)
                MUST(m.arena_fd[r] < 0 || m.arena_fd[r] != m.arena_fd[k]);
        if (nhandles)
            rcclx_meeting_fini(&m);
    } else {
        MUST(s > RCCLX_AGAIN && s < RCCLX_STATUS_COUNT && *rcclx_last_error());
        for (int i = 0; i < nhandles; i++)
            close(handles[i]);
    }
    close(pair[0]);
}

static void feed_id(const uint8_t *data, size_t size)
{
    const _Atomic uint32_t aborted = 0;
    rcclx_unique_id id = { { 0 } };
    const rcclx_arrival me = { .arena_fd = -1 };
    rcclx_meeting m;

    memcpy(id.bytes, data, size < sizeof(id.bytes) ? size : sizeof(id.bytes));
    const rcclx_status s = rcclx_meet(&id, 2, &me, 0.0001, &aborted, &m);
    MUST(s != RCCLX_OK && s != RCCLX_AGAIN && *rcclx_last_error());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;

    if (!ready) {
        setenv("RCCLX_BOOTSTRAP", "unix", 1);
        setenv("NCCL_DEBUG", "NONE", 1);
        rcclx_option_reload();
        (void)rcclx_process();
        ready = true;
    }
    const int before = held_fds();
    if (size && size <= MOST) {
        switch (data[0] % 3) {
        case 0: feed_root(data + 1, size - 1); break;
        case 1: feed_rank(data + 1, size - 1); break;
        default: feed_id(data + 1, size - 1); break;
        }
    }
    MUST(held_fds() == before);
    return 0;
}

#ifndef RCCLX_LIBFUZZER
enum { SEEDS = 8, ROUNDS = 6000 };

static struct {
    uint8_t bytes[MOST];
    size_t  n;
} seed[SEEDS];

static void put(int i, const void *bytes, size_t n)
{
    memcpy(seed[i].bytes + seed[i].n, bytes, n);
    seed[i].n += n;
}

static void put_hello(int i, uint8_t guest_index, int rank, int nranks)
{
    const rcclx_hello h = { .magic = RCCLX_HELLO_MAGIC, .token = { token[0], token[1] }, .version = RCCLX_SEGMENT_VERSION,
                            .nranks = nranks, .team = nranks,
                            .me = { .rank = rank, .pid = 100 + rank, .host = 1, .key = (uint64_t)rank + 1, .arena_fd = -1 } };

    for (size_t at = 0; at < sizeof(h);) {
        const size_t left = sizeof(h) - at, part = left < 60 ? left : 60;
        const uint8_t head[2] = { guest_index, (uint8_t)part };
        put(i, head, 2);
        put(i, (const char *)&h + at, part);
        at += part;
    }
}

static void make_seeds(void)
{
    static rcclx_welcome w;
    const uint8_t who[3] = { 0, 1, 2 }, three = 2;
    const rcclx_id_fields f = { .magic = RCCLX_ID_MAGIC, .token = { 1, 2 }, .has_tcp = 1, .family = AF_INET };

    for (int i = 0; i < 4; i++)
        put(i, &who[0], 1);
    for (int r = 0; r < 3; r++)
        put_hello(0, (uint8_t)r, r, 3);
    put_hello(1, 0, 0, 2), put_hello(1, 1, 0, 2);
    put_hello(2, 2, 1, 2), put_hello(2, 3, 0, 3);
    put_hello(3, 1, 600, RCCLX_MAX_RANKS + 1);
    w = (rcclx_welcome){ .magic = RCCLX_HELLO_MAGIC, .nranks = 3, .root_pid = 1 };
    for (int r = 0; r < 3; r++)
        w.peer[r].who = (rcclx_arrival){ .rank = r, .key = (uint64_t)r + 5, .arena_fd = r }, w.peer[r].handle = r;
    for (int i = 4; i < 6; i++) {
        put(i, &who[1], 1), put(i, &three, 1);
        w.status = i == 4 ? RCCLX_OK : RCCLX_TIMEOUT;
        memset(w.text, i == 5 ? 'x' : 0, sizeof(w.text));
        put(i, &w, rcclx_welcome_bytes(&w));
    }
    put(6, &who[2], 1), put(6, &f, sizeof(f));
    put(7, &who[2], 1);
}

static uint64_t dice = 99;

static uint64_t roll(void)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    return dice ^= dice << 17;
}

static size_t mutate(uint8_t *out, int i)
{
    size_t n = seed[i].n;

    memcpy(out, seed[i].bytes, n);
    for (uint64_t k = 1 + roll() % 4; k && n > 1; k--) {
        const size_t front = n < 64 ? n : 64; /* numbers stand in front, tables and texts behind */
        const size_t at = 1 + roll() % ((roll() % 2 ? front : n) - 1);
        switch (roll() % 5) {
        case 0: out[at] ^= (uint8_t)(1u << roll() % 8); break;
        case 1: out[at] = (uint8_t)roll(); break;
        case 2: memset(out + at, roll() % 2 ? 0xff : 0, at + 4 <= n ? 4 : n - at); break;
        case 3: n = at + 1; break;
        default: memmove(out + at, out + 1, n - at); break;
        }
    }
    return n;
}

int main(void)
{
    static uint8_t bytes[MOST];

    signal(SIGPIPE, SIG_IGN);
    make_seeds();
    for (int i = 0; i < SEEDS; i++)
        LLVMFuzzerTestOneInput(seed[i].bytes, seed[i].n);
    printf("ok 1 - %d inputs of the corpus\n", SEEDS);
    fflush(stdout);
    for (int k = 0; k < ROUNDS; k++)
        LLVMFuzzerTestOneInput(bytes, mutate(bytes, k % SEEDS));
    printf("ok 2 - %d mutations of them\n1..2\n", ROUNDS);
    return 0;
}
#endif
