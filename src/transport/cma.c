/* Cross-memory attach: the kernel copies between two processes' memory without
 * their help (process_vm_readv, process_vm_writev). About 0.5 us a call and
 * 55 to 80 % of memcpy's rate; needs the permission that ptrace needs, which is
 * tried when a communicator is made. */
#include "transport/transport.h"

#include "base/log.h"

#include <errno.h>
#include <sys/uio.h>

static rcclx_status move(const rcclx_peer *p, void *mine, uint64_t theirs, size_t nbytes, bool put)
{
    size_t moved = 0;

    while (moved < nbytes) {
        /* one call moves at most 2 GiB */
        const size_t part = nbytes - moved < (size_t)1 << 30 ? nbytes - moved : (size_t)1 << 30;
        struct iovec local = { (char *)mine + moved, part };
        struct iovec remote = { (void *)(uintptr_t)(theirs + moved), part };
        ssize_t n = put ? process_vm_writev(p->pid, &local, 1, &remote, 1, 0)
                        : process_vm_readv(p->pid, &local, 1, &remote, 1, 0);
        if (n <= 0 && errno == ESRCH)
            return RCCLX_FAIL(RCCLX_PEER_LOST, "rank %d (pid %d) ended while its memory was %s", p->rank, p->pid,
                              put ? "written" : "read");
        if (n <= 0 && errno == EFAULT)
            return RCCLX_FAIL(RCCLX_ARGUMENT, "the buffer of rank %d at %#llx (%zu bytes) is not mapped in its process; "
                              "check that pointer and count match the allocation", p->rank, (unsigned long long)theirs, nbytes);
        if (n <= 0)
            return RCCLX_FAIL_ERRNO("process_vm_%sv of %zu bytes, rank %d; RCCLX_CMA=0 avoids it",
                                    put ? "write" : "read", nbytes, p->rank);
        moved += (size_t)n;
    }
    return RCCLX_OK;
}

bool rcclx_cma_probe(int pid, uint64_t where, uint64_t *value)
{
    struct iovec local = { value, sizeof(*value) }, remote = { (void *)(uintptr_t)where, sizeof(*value) };

    return process_vm_readv(pid, &local, 1, &remote, 1, 0) == (ssize_t)sizeof(*value);
}

static rcclx_status get(const rcclx_peer *p, void *dst, uint64_t where, size_t nbytes)
{
    return move(p, dst, where, nbytes, false);
}

static rcclx_status put(const rcclx_peer *p, uint64_t where, const void *src, size_t nbytes)
{
    return move(p, (void *)(uintptr_t)src, where, nbytes, true);
}

extern const rcclx_transport rcclx_transport_cma;
const rcclx_transport rcclx_transport_cma = {
    .name  = "cma",
    .about = "the kernel copies between processes (process_vm_readv)",
    .get   = get,
    .put   = put,
};
