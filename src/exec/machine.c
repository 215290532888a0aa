/* What the pricer is told of this machine: cores and caches asked of the system,
 * latencies and rates measured on one machine of this class. Prices only rank
 * algorithms, so that ratios matter and the absolute values hardly do. */
#include "exec/exec.h"

#include <sched.h>
#include <unistd.h>

static long cache(int name, long otherwise)
{
    const long n = sysconf(name);

    return n > 0 ? n : otherwise;
}

static int cores(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

void rcclx_machine_default(rcclx_machine *m, int nranks)
{
    *m = (rcclx_machine){
        .nranks = nranks, .ncores = cores(),
        .call_ns = 60, .signal_ns = 130, .switch_ns = 800, .step_ns = 15,
        .local_rate = 30, .peer_rate = 15, .far_rate = 10,
        .cache_bytes = (size_t)cache(_SC_LEVEL2_CACHE_SIZE, 1 << 20) * 2,
        .cma_ns = 500, .cma_rate = 12,
        .slot_bytes = RCCLX_LANE_BYTES, .chunk_bytes = 256 << 10,
    };
}
