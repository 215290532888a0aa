/* Fuzzes what a far rank may send over TCP: frames cut, doubled, with lengths that are none, in pieces of any size.
 *
 * Built with -fsanitize=fuzzer and -DRCCLX_LIBFUZZER it is libFuzzer's target.
 * Without, main replays frames and 5,000 mutations of them, the same ones every time,
 * and prints TAP. Whatever is broken aborts. */
#include "../../src/transport/tcp.c"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(cond)                                                                   \
    do {                                                                             \
        if (!(cond)) {                                                               \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #cond);       \
            abort();                                                                 \
        }                                                                            \
    } while (0)

enum { AREA = 4096, MOST = 60000 };

/* What an owner is told: places are within the area, lands follow places, nothing follows a loss. */
static struct {
    char  *area;
    int    placed, landed, lost;
    size_t bytes;
} seen;

static void *place(void *owner, const rcclx_frame *f, size_t nbytes)
{
    (void)owner;
    MUST(!seen.lost && seen.placed == seen.landed);
    if (f->ninside > RCCLX_FRAME_INSIDE || f->offset > AREA || nbytes > AREA - f->offset)
        return NULL;
    seen.placed++;
    seen.bytes += nbytes;
    return seen.area + f->offset;
}

static void landed(void *owner, const rcclx_frame *f)
{
    (void)owner;
    seen.landed++;
    MUST(!seen.lost && seen.landed == seen.placed && f->from == 1 && f->ninside <= RCCLX_FRAME_INSIDE);
}

static void lost_rank(void *owner, int rank, const char *why)
{
    (void)owner;
    MUST(rank == 1 && *why && !seen.lost);
    seen.lost = 1;
}

/* The first byte says how many of the others come at a time. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t step = size && data[0] ? (size_t)data[0] * (data[0] > 200 ? 100 : 1) : MOST;
    way         *ways[1], *to[2];
    end          e = { .owner = { .place = place, .landed = landed, .lost = lost_rank }, .nways = 1, .to = to, .ways = ways, .listener = -1 };
    way         *w = calloc(1, sizeof(*w));
    int          pair[2];

    if (!size || size > MOST || !w)
        return free(w), 0;
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    e.poller = epoll_create1(EPOLL_CLOEXEC);
    e.owner.nranks = 2;
    *w = (way){ .e = &e, .rank = 1, .fd = pair[0] };
    w->last = &w->first;
    to[0] = NULL;
    to[1] = ways[0] = w;
    seen.area = malloc(AREA); /* its end is where writing must end */
    seen.placed = seen.landed = seen.lost = 0;
    seen.bytes = 0;
    for (size_t at = 1; at < size && !seen.lost; at += step) {
        const size_t n = size - at < step ? size - at : step;
        if (send(pair[1], data + at, n, MSG_NOSIGNAL) != (ssize_t)n)
            break;
        while (go_on(&e))
            ;
        MUST(w->begin <= w->end && w->end <= BOX && (w->left == 0 || w->end == 0));
    }
    close(pair[1]);
    while (go_on(&e))
        ;
    MUST(seen.lost && w->fd < 0 && seen.landed <= seen.placed && seen.placed - seen.landed <= 1 && seen.bytes <= size + AREA);
    close(e.poller);
    free(seen.area);
    free(w);
    return 0;
}

#ifndef RCCLX_LIBFUZZER

static uint8_t corpus[6][MOST];
static size_t  length[6];

static void put(int i, const void *bytes, size_t n)
{
    memcpy(corpus[i] + length[i], bytes, n);
    length[i] += n;
}

static void put_frame(int i, size_t ninside, size_t offset, size_t nbytes)
{
    static const char zeros[AREA];
    rcclx_frame       f = { .seq = 1, .offset = offset, .from = 1, .nmarks = 1, .ninside = (uint32_t)ninside };
    const words       h = { nbytes, rcclx_frame_bytes(&f) & 0xffff };

    put(i, &h, sizeof(h));
    put(i, &f, rcclx_frame_bytes(&f));
    put(i, zeros, nbytes);
}

static void make_corpus(void)
{
    static const uint8_t steps[] = { 0, 1, 7, 100, 210, 255 };

    for (int i = 0; i < 6; i++)
        put(i, &steps[i], 1);
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 5; k++)
            put_frame(i, (size_t)(k * i) % 65, (size_t)(k * 100), (size_t)(k * k * 200) % AREA / 2);
}

static uint64_t dice = 77;

static uint64_t roll(void)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    return dice ^= dice << 17;
}

int main(void)
{
    static uint8_t data[MOST];
    int            whole = 0;

    make_corpus();
    for (int i = 0; i < 6; i++) {
        LLVMFuzzerTestOneInput(corpus[i], length[i]);
        whole += seen.landed == 5;
    }
    printf("%sok 1 - all frames land, however they are cut\n", whole == 6 ? "" : "not ");
    for (int i = 0; i < 5000; i++) {
        const int k = (int)(roll() % 6);
        size_t    n = length[k];
        memcpy(data, corpus[k], n);
        for (uint64_t m = 1 + roll() % 4; m; m--) {
            const size_t at = roll() % n;
            switch (roll() % 3) {
            case 0: data[at] = (uint8_t)roll(); break;
            case 1: n = at ? at : 1; break;
            default: memmove(data + at, data + at + 1, n - at - 1), n -= n > 1; break;
            }
        }
        LLVMFuzzerTestOneInput(data, n);
    }
    printf("ok 2 - 5000 mutations\n1..2\n");
    return whole != 6;
}

#endif
