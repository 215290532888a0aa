#ifndef RCCLX_PERF_CODEC_H
#define RCCLX_PERF_CODEC_H

#include "perf.h"

#include "codec/codec.h"

/* `rcclx perf codec`: how fast the codecs are alone, on one device, without a communicator.
 *
 *   perf_codec.c      table and JSON
 *   perf_codec_gpu.c  buffers, launches, clock, check
 *
 *   perf_bench b = {.config = c, .gpu = rcclx_gpu_open(...)};
 *   perf_bench_open(&b) == RCCLX_OK && perf_bench_row(&b, RCCLX_CODEC_INT8, 1 << 20, &row) == RCCLX_OK
 *   perf_bench_close(&b);
 *
 * A way is what takes the elements from one place to another: one step of a codec's kernel, or the driver. */
typedef enum { PERF_ENCODE, PERF_DECODE, PERF_COPY, PERF_DRIVER, PERF_WAYS } perf_way;

typedef struct {
    const perf_config *config;
    const rcclx_gpu   *gpu;
    rcclx_gpu_info     info;
    int                most, threads; /* blocks, as a collective would have at most; threads of one */
    rcclx_gpu_scope    scope;
    rcclx_gpu_module   module;
    rcclx_gpu_fn       kernel[RCCLX_CODEC_COUNT];
    rcclx_gpu_stream   stream;
    rcclx_gpu_event    from, to;
    rcclx_gpu_graph    graph[PERF_WAYS];
    void              *state;           /* of the kernels' turns */
    void              *in, *runs, *out; /* device memory: elements, their runs, elements again */
    double            *times;           /* [PERF_WAYS][config->repeats] */
    perf_rule          rule;
} perf_bench;

typedef struct {
    size_t size, count;
    int    codec, blocks;
    struct {
        double us, least;               /* the median, the least of the measurements; 0: none was asked for */
        size_t traffic;                 /* bytes read and written */
        size_t wrong;                   /* bytes */
    } way[PERF_WAYS];
} perf_codec_row;

/* Of device 0. close also ends what open has only begun. */
rcclx_status perf_bench_open(perf_bench *b);
rcclx_status perf_bench_row(perf_bench *b, int codec, size_t size, perf_codec_row *row);
void         perf_bench_close(perf_bench *b);

#endif
