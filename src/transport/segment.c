/* The communicator's shared memory on one machine, one sparse memfd:
 *
 *   | head | area 0 | area 1 | ... | area k-1 |      of the k ranks that are here
 *
 *   area r: written by rank r, read by all; pages come into being when touched, so
 *   that scratch and pipes that nobody uses cost nothing. */
#include "transport/transport.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/process.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define MAGIC   0x52434c5853454731u

/* A segment mapped here: once, however many of its ranks live in this process, so
 * that all of them see it at the same address. Known by its file. */
typedef struct mapped {
    struct mapped *next;
    dev_t          device;
    ino_t          inode;
    int            uses; /* guarded, as the list is, by the process's lock */
    rcclx_segment  segment;
} mapped;

static size_t area_size(int nranks)
{
    const size_t n = sizeof(rcclx_area) + (size_t)nranks * sizeof(rcclx_fifo);

    return (n + 4095) & ~(size_t)4095;
}

static size_t segment_size(int nareas, int nranks)
{
    return 4096 + (size_t)nareas * area_size(nranks);
}

_Static_assert(sizeof(rcclx_segment_head) <= 4096, "the head is one page");
_Static_assert(sizeof(rcclx_header) == 64, "a header is one cache line");

rcclx_status rcclx_segment_create(int nareas, int nranks, const uint64_t token[2], int *fd)
{
    const int f = memfd_create("rcclx-segment", MFD_CLOEXEC);

    if (f < 0)
        return RCCLX_FAIL_ERRNO("memfd_create for the communicator's shared memory");
    rcclx_segment_head *h = MAP_FAILED;
    if (ftruncate(f, (off_t)segment_size(nareas, nranks)) == 0)
        h = mmap(NULL, sizeof(*h), PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    if (h == MAP_FAILED) {
        rcclx_status s = RCCLX_FAIL_ERRNO("shared memory of %zu bytes for %d ranks", segment_size(nareas, nranks), nareas);
        close(f);
        return s;
    }
    h->magic = MAGIC;
    h->version = RCCLX_SEGMENT_VERSION;
    h->nareas = (uint32_t)nareas;
    h->nranks = (uint32_t)nranks;
    h->area_bytes = area_size(nranks);
    memcpy(h->token, token, sizeof(h->token));
    munmap(h, sizeof(*h));
    *fd = f;
    return RCCLX_OK;
}

static rcclx_status map_new(rcclx_segment *s, int fd, const uint64_t token[2])
{
    rcclx_segment_head *h = mmap(NULL, sizeof(*h), PROT_READ, MAP_SHARED, fd, 0);

    if (h == MAP_FAILED)
        return RCCLX_FAIL_ERRNO("mapping the communicator's shared memory");
    const rcclx_segment_head seen = { .magic = h->magic, .version = h->version, .nareas = h->nareas, .nranks = h->nranks,
                                      .area_bytes = h->area_bytes, .token = { h->token[0], h->token[1] } };
    munmap(h, sizeof(*h));
    const int n = (int)seen.nranks, k = (int)seen.nareas;
    if (seen.magic != MAGIC || seen.version != RCCLX_SEGMENT_VERSION || n < 1 || n > RCCLX_MAX_RANKS || k < 1 || k > n || seen.area_bytes != area_size(n) ||
        seen.token[0] != token[0] || seen.token[1] != token[1])
        return RCCLX_FAIL(RCCLX_SYSTEM, "the shared memory handed over is not this communicator's; are all ranks of the "
                          "same version of the library?");
    h = mmap(NULL, segment_size(k, n), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (h == MAP_FAILED)
        return RCCLX_FAIL_ERRNO("mapping %zu bytes of shared memory", segment_size(k, n));
    *s = (rcclx_segment){ .head = h, .nbytes = segment_size(k, n), .area_bytes = seen.area_bytes, .nareas = k };
    return RCCLX_OK;
}

void rcclx_segment_fault_in(const rcclx_segment *s)
{
    for (int r = 0; r < s->nareas; r++)
        madvise(rcclx_segment_area(s, r), offsetof(rcclx_area, scratch), MADV_POPULATE_WRITE);
}

static rcclx_status map_shared(rcclx_segment *s, int fd, const uint64_t token[2])
{
    mapped **list = (mapped **)&rcclx_process()->segments, *m = *list;
    struct stat file;

    if (fstat(fd, &file))
        return RCCLX_FAIL_ERRNO("looking at the communicator's shared memory");
    while (m && (m->device != file.st_dev || m->inode != file.st_ino))
        m = m->next;
    if (!m) {
        if (!(m = RCCLX_NEW(mapped)))
            return RCCLX_FAIL(RCCLX_NOMEM, "no memory to describe the communicator's shared memory");
        const rcclx_status made = map_new(&m->segment, fd, token);
        if (made != RCCLX_OK) {
            rcclx_mem_free(m);
            return made;
        }
        m->device = file.st_dev;
        m->inode = file.st_ino;
        m->next = *list;
        *list = m;
    }
    m->uses++;
    *s = m->segment;
    return RCCLX_OK;
}

rcclx_status rcclx_segment_map(rcclx_segment *s, int fd, const uint64_t token[2])
{
    pthread_mutex_lock(&rcclx_process()->lock);
    const rcclx_status made = map_shared(s, fd, token);
    pthread_mutex_unlock(&rcclx_process()->lock);
    return made;
}

void rcclx_segment_unmap(rcclx_segment *s)
{
    mapped **at = (mapped **)&rcclx_process()->segments;

    pthread_mutex_lock(&rcclx_process()->lock);
    while (*at && (*at)->segment.head != s->head)
        at = &(*at)->next;
    mapped *m = *at;
    if (m && --m->uses == 0) {
        *at = m->next;
        munmap(m->segment.head, m->segment.nbytes);
        rcclx_mem_free(m);
    }
    pthread_mutex_unlock(&rcclx_process()->lock);
    *s = (rcclx_segment){ 0 };
}
