#ifndef RCCLX_TRANSPORT_WINDOW_H
#define RCCLX_TRANSPORT_WINDOW_H

#include "device/gpu.h"
#include "transport/transport.h"

/* Device memory that ranks share: a window a rank, mapped by all peers, and
 * registered user buffers. Where devices do not reach each other, windows are host
 * memory that all of them use, and no buffer is shared.
 *
 *   rcclx_windows *w;
 *   RCCLX_TRY(rcclx_windows_open(&w, &args));         all ranks, bounded
 *   rcclx_windows_at(w, r)                            an address for this device's kernels
 *
 *   int reg;
 *   RCCLX_TRY(rcclx_windows_register(w, buf, n, &reg));   one rank, does not wait
 *   rcclx_windows_serve(w);                               the peers, when their fd is readable
 *   rcclx_windows_token(w, buf + 64, 1024)                not 0 once all peers have it
 *
 * Needs nothing but the segment's area of each rank and one abstract Unix datagram
 * socket a rank, over which descriptors travel; nothing is left in the file system.
 *
 * serve is called from one thread; register, deregister and token from any. open
 * and close come before and after all other calls. */
typedef struct rcclx_windows rcclx_windows;

typedef struct {
    const rcclx_gpu     *gpu;
    int                  device, rank, nranks;
    const rcclx_segment *segment;      /* stays mapped until close */
    const rcclx_peer    *peer;         /* of each rank; read by open only */
    const uint64_t      *key;          /* process key of each rank: equal = same process, pointers are good */
    const int           *peer_device;  /* device number of each rank in ITS process; for same-process ranks */
    uint64_t             token[2];     /* of the communicator: nobody else knows it */
    size_t               nbytes;       /* of a window */
    bool                 host;         /* in host memory from the start; alike on all ranks */
    double               timeout;      /* seconds for open; 0: none */
    const _Atomic uint32_t *aborted;   /* open gives up when it is not 0; may be NULL */
} rcclx_windows_args;

/* Collective and bounded; the text names the rank that does not come. That a peer
 * cannot be mapped (no way between the devices, the import refused) is no failure:
 * reach says so on every rank, and why. */
rcclx_status rcclx_windows_open(rcclx_windows **w, const rcclx_windows_args *a);
void         rcclx_windows_close(rcclx_windows *w);  /* local; takes NULL */

/* Windows in host memory instead; of the arguments, peer, timeout and aborted count. Collective like open, and
 * after all ranks have opened and no longer use what there was. On failure w is still to be closed. */
rcclx_status rcclx_windows_to_host(rcclx_windows *w, const rcclx_windows_args *a);
bool         rcclx_windows_in_host(const rcclx_windows *w);

/* The rank's window as this device sees it, own included; NULL: out of reach. */
char *rcclx_windows_at(const rcclx_windows *w, int rank);
void *rcclx_windows_map(const rcclx_windows *w);             /* on the device: uint64_t [GP_RANKS][GP_REGS]; work.h, "token" */
bool  rcclx_windows_reach(const rcclx_windows *w, int rank); /* mapped here? */
bool  rcclx_windows_whole(const rcclx_windows *w);           /* all ranks have mapped all others: the same answer on every rank */
const char *rcclx_windows_why(const rcclx_windows *w);       /* "" or why not (some rank's reason, where this one has none) */

/* Registration: local; peers import in their serve. The same range again gives the
 * same reg and is counted. Refuses memory that is not this device's (ARGUMENT), that
 * cannot be exported or spans several allocations (UNSUPPORTED), and more than
 * GP_REGS at a time (UNSUPPORTED), and any while windows are in host memory (UNSUPPORTED).
 * The buffer stays allocated until deregister; let go of it before it is freed. */
rcclx_status rcclx_windows_register(rcclx_windows *w, const void *ptr, size_t nbytes, int *reg);
rcclx_status rcclx_windows_deregister(rcclx_windows *w, int reg);

/* Some 20 ns; 0 if [ptr, ptr+nbytes) is not in a registration that all peers have mapped. */
uint64_t rcclx_windows_token(rcclx_windows *w, const void *ptr, size_t nbytes);
bool     rcclx_windows_settled(rcclx_windows *w, int reg); /* all peers have answered: mapped it or refused */

/* fd becomes readable when serve has something to do; call it a few times a second
 * besides, since what did not fit in a peer's socket waits here. One thread; never blocks long. */
int          rcclx_windows_fd(const rcclx_windows *w);
rcclx_status rcclx_windows_serve(rcclx_windows *w);

#endif
