/* What the pricer is told of this machine: cores and caches asked of the system,
 * latencies and rates from a row measured on a machine of its kind. Prices only rank
 * algorithms, so that ratios matter and the absolute values hardly do. */
#include "exec/exec.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes of a cache that core 0 uses, "1024K" in the system's files. The C library's
 * own answer (sysconf) adds up what a virtual machine's cores do not share. */
static long cache(int level, long otherwise)
{
    char path[80], text[32] = "";
    long n = 0;

    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/size", level);
    FILE *f = fopen(path, "re");
    if (f && fgets(text, sizeof(text), f))
        n = strtol(text, NULL, 10) << (strchr(text, 'M') ? 20 : 10);
    if (f)
        fclose(f);
    return n > 0 ? n : otherwise;
}

static int cores(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* Bytes a rank reads and writes in one operation from which storing past the
 * caches pays. Where the last cache is the processor's own, that is when all
 * ranks' bytes no longer fit it; on Intel's servers, whose last cache is slow and
 * not inclusive, soon after the second is full (both measured). */
static size_t far_from(int nranks)
{
    const long second = cache(2, 1 << 20), third = cache(3, 16 * second);

#if defined(__x86_64__)
    if (__builtin_cpu_is("intel"))
        return 2 * (size_t)second;
#endif
    return (size_t)third / (size_t)nranks > (size_t)second ? (size_t)third / (size_t)nranks : (size_t)second;
}

/* One row a kind of processor, measured on one of each; the first row serves all
 * others. `far` is per core, beyond the caches. */
static const struct row {
    double call_ns, signal_ns, switch_ns, step_ns, local_rate, peer_rate, far_rate, cma_ns, cma_rate;
} rows[] = {
    { 60, 130, 800, 15, 30, 15, 10, 500, 12 },  /* Intel Xeon (Emerald Rapids) */
    { 40, 55, 400, 8, 60, 45, 20, 1000, 10 },   /* AMD EPYC (Zen 5) */
};

static const struct row *row_of_processor(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_is("amd"))
        return &rows[1];
#endif
    return &rows[0];
}

void rcclx_machine_default(rcclx_machine *m, int nranks)
{
    const struct row *r = row_of_processor();

    *m = (rcclx_machine){
        .nranks = nranks, .ncores = cores(),
        .call_ns = r->call_ns, .signal_ns = r->signal_ns, .switch_ns = r->switch_ns, .step_ns = r->step_ns,
        .local_rate = r->local_rate, .peer_rate = r->peer_rate, .far_rate = r->far_rate, .cache_bytes = far_from(nranks),
        .cma_ns = r->cma_ns, .cma_rate = r->cma_rate,
        .net_ns = 20000, .net_rate = 3, /* TCP over 25 Gbit/s */
        .slot_bytes = RCCLX_LANE_BYTES, .chunk_bytes = 256 << 10,
    };
}
