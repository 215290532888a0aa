/* What ranks have to tell each other apart, carried by the bootstrap's root after the cards.
 *
 *   rank 0   | to 0 | to 1 | to 2 |  ->          -> | of 0 | of 1 | of 2 |  to rank 0
 *   rank 1   | to 0 | to 1 | to 2 |  ->   root   -> | of 0 | of 1 | of 2 |  to rank 1
 *   rank 2   | to 0 | to 1 | to 2 |  ->          -> ...
 *
 * Only some networks need it (nletter of transport/net.h): plug-ins, whose listeners serve
 * one peer each. */
#include "comm/root.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

enum { SEND_MS = 5000 };

/* Before letters of all: who did not write. */
typedef struct {
    uint64_t magic;
    int32_t  missing, unused; /* a rank; -1: none */
} cover;

typedef enum { HEARD, CLOSED, LATE, STOPPED } heard;

static heard hear(int fd, void *buf, size_t n, uint64_t deadline, const _Atomic uint32_t *aborted)
{
    for (size_t have = 0; have < n;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int none = 0;
        poll(&p, 1, 50);
        if (aborted && atomic_load(aborted))
            return STOPPED;
        if (rcclx_clock_ns() > deadline)
            return LATE;
        const ssize_t k = p.revents ? rcclx_recv_some(fd, (char *)buf + have, n - have, NULL, &none) : -2;
        if (k == 0 || (k == -1 && errno != EAGAIN && errno != EINTR))
            return CLOSED;
        have += k > 0 ? (size_t)k : 0;
    }
    return HEARD;
}

void rcclx_letters_carry(const int *fds, const int *order, int nranks, size_t nletter, uint64_t deadline)
{
    const size_t row = (size_t)nranks * nletter;
    char *all = rcclx_mem_alloc((size_t)nranks * row), *column = rcclx_mem_alloc(row);
    cover c = { .magic = RCCLX_HELLO_MAGIC, .missing = -1 };

    for (int r = 0; all && column && r < nranks; r++)
        if (hear(fds[r], all + (size_t)r * row, row, deadline, NULL) != HEARD && c.missing < 0)
            c.missing = r;
    for (int i = 0; all && column && i < nranks; i++) {
        for (int r = 0; r < nranks; r++)
            memcpy(column + (size_t)r * nletter, all + (size_t)r * row + (size_t)order[i] * nletter, nletter);
        if (rcclx_send_all(fds[order[i]], &c, sizeof(c), NULL, 0, SEND_MS) == 0)
            rcclx_send_all(fds[order[i]], column, row, NULL, 0, SEND_MS);
    }
    rcclx_mem_free(all); /* without memory the connections close, which says enough */
    rcclx_mem_free(column);
}

rcclx_status rcclx_meeting_letters(rcclx_meeting *m, int rank, size_t nletter, const void *mine, void *theirs, double timeout,
                                   const _Atomic uint32_t *aborted)
{
    const uint64_t deadline = rcclx_clock_ns() + (uint64_t)(timeout * 1e9) + 2000000000u;
    const size_t nbytes = (size_t)m->nranks * nletter;
    cover c;

    if (rcclx_send_all(m->root, mine, nbytes, NULL, 0, SEND_MS))
        return RCCLX_FAIL_ERRNO("rank %d: handing letters to the root of the bootstrap", rank);
    heard h = hear(m->root, &c, sizeof(c), deadline, aborted);
    if (h == HEARD)
        h = hear(m->root, theirs, nbytes, deadline, aborted);
    if (h == STOPPED)
        return RCCLX_ABORTED;
    if (h == LATE)
        return RCCLX_FAIL(RCCLX_TIMEOUT, "rank %d: the root of the bootstrap did not hand out the ranks' letters before the deadline",
                          rank);
    if (h == CLOSED || c.magic != RCCLX_HELLO_MAGIC)
        return RCCLX_FAIL(RCCLX_PEER_LOST, "rank %d: the root of the bootstrap closed the connection while letters were swapped; its "
                          "process has ended", rank);
    if (c.missing >= 0)
        return RCCLX_FAIL(RCCLX_PEER_LOST, "rank %d: rank %d did not say how its network finds it: it has ended", rank, c.missing);
    return RCCLX_OK;
}
