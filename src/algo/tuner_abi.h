#ifndef RCCLX_ALGO_TUNER_ABI_H
#define RCCLX_ALGO_TUNER_ABI_H

#include <stddef.h>
#include <stdint.h>

/* The tables that tuner plug-ins export, ncclTunerPlugin_v2 to _v6, as they lie in memory.
 *
 *   2   answers with an algorithm, a protocol and a number of channels
 *   3   changes a table of costs, in microseconds: 7 algorithms x 3 protocols, -1 where there is none
 *   4   is also told whether buffers may be registered
 *   5   init knows the communicator, the machines and the constants of NCCL's own model
 *   6   may also set the size of a chunk, which we do not ask for */

enum { RCCLX_TUNER_ALGOS = 7, RCCLX_TUNER_PROTOS = 3, RCCLX_TUNER_IGNORE = -1 };

/* NCCL's numbers. */
enum { RCCLX_TUNER_TREE, RCCLX_TUNER_RING, RCCLX_TUNER_COLLNET_DIRECT, RCCLX_TUNER_COLLNET_CHAIN, RCCLX_TUNER_NVLS, RCCLX_TUNER_NVLS_TREE,
       RCCLX_TUNER_PAT };
enum { RCCLX_TUNER_LL, RCCLX_TUNER_LL128, RCCLX_TUNER_SIMPLE };
enum { RCCLX_TUNER_BROADCAST, RCCLX_TUNER_REDUCE, RCCLX_TUNER_ALL_GATHER, RCCLX_TUNER_REDUCE_SCATTER, RCCLX_TUNER_ALL_REDUCE };

typedef void (*rcclx_tuner_log)(int level, unsigned long subsys, const char *file, int line, const char *format, ...);

typedef struct { int ndomains, min_ranks, max_ranks; } rcclx_tuner_domains;

/* base, by link, then five tables by generation of GPU and number of nodes. */
typedef struct {
    double base[RCCLX_TUNER_ALGOS][RCCLX_TUNER_PROTOS], links[3][RCCLX_TUNER_ALGOS][RCCLX_TUNER_PROTOS], rates[5][4][3];
} rcclx_tuner_constants;

typedef struct {
    const char *name;
    int (*init)(size_t nranks, size_t nnodes, rcclx_tuner_log log, void **context);
    int (*ask)(void *context, int func, size_t nbytes, int collnet, int nvls, int nops, int *algo, int *proto, int *nchannels);
    int (*end)(void *context);
} rcclx_tuner_v2;

/* cost is in truth a float[nalgos][nprotos]. */
typedef struct {
    const char *name;
    int (*init)(size_t nranks, size_t nnodes, rcclx_tuner_log log, void **context);
    int (*ask)(void *context, int func, size_t nbytes, int nops, float **cost, int nalgos, int nprotos, int *nchannels);
    int (*end)(void *context);
} rcclx_tuner_v3;

typedef struct {
    const char *name;
    int (*init)(size_t nranks, size_t nnodes, rcclx_tuner_log log, void **context);
    int (*ask)(void *context, int func, size_t nbytes, int nops, float **cost, int nalgos, int nprotos, int registered, int *nchannels);
    int (*end)(void *context);
} rcclx_tuner_v4;

typedef struct {
    const char *name;
    int (*init)(void **context, uint64_t id, size_t nranks, size_t nnodes, rcclx_tuner_log log, rcclx_tuner_domains *domains,
                rcclx_tuner_constants *constants);
    int (*ask)(void *context, int func, size_t nbytes, int nops, float **cost, int nalgos, int nprotos, int registered, int *nchannels);
    int (*end)(void *context);
} rcclx_tuner_v5; /* and the beginning of 6 */

#endif
