/* `rcclx perf codec`: sizes and codecs, the table, and the same for programs:
 *
 *   { "version", "machine": {...}, "command": [...], "device": {...}, "threads", "iters", "repeats", "rows": [
 *       { "size", "count", "type", "codec", "blocks",
 *         "encode": { "time_us", "min_us", "gbps", "to_copy", "to_driver", "wrong" },
 *         "decode": {...}, "copy": {...}, "driver": {...} } ],
 *     "out_of_bounds" }
 *
 * Times are null with --iters 0. */
#include "perf_codec.h"

#include "tool.h"

#include "base/log.h"

#include <math.h>
#include <stdlib.h>

static const char *const words[PERF_WAYS] = {"encode", "decode", "copy", "driver"};

typedef struct {
    const perf_bench *b;
    perf_codec_row   *rows;
    size_t            n, cap, wrong;
    FILE             *out; /* the table; NULL: only JSON is wanted */
} report;

static double rate(const perf_codec_row *row, int way)
{
    return row->way[way].us > 0 ? (double)row->way[way].traffic / row->way[way].us / 1e3 : (double)NAN;
}

/* --- text ------------------------------------------------------------------------ */

static void put_head(const report *r)
{
    const perf_bench  *b = r->b;
    const perf_config *c = b->config;

    if (!r->out)
        return;
    fprintf(r->out, "# Codecs alone on device 0 [%s] %s, %s\n", b->info.pci, b->info.name, b->gpu->about);
    fprintf(r->out, "# time: %d launches in a graph, between events; median of %d. GB/s: bytes read and written\n", c->iters,
            c->repeats);
    fprintf(r->out, "# blocks of %d threads. copy: of the elements, by the codec's kernel; driver: by the driver's copy\n#\n",
            b->threads);
    fputs("#       size         count      type   codec  blocks      what      time       GB/s   to copy  to driver   #wrong\n"
          "#        (B)    (elements)                                          (us)                                       (B)\n",
          r->out);
}

static void put_way(const report *r, const perf_codec_row *row, int way)
{
    const double x = rate(row, way);

    fprintf(r->out, "%12zu  %12zu  %8s  %6s  %6d  %8s", row->size, row->count, perf_type_name(r->b->config->type),
            rcclx_codecs[row->codec]->name, row->blocks, words[way]);
    if (isnan(x))
        fprintf(r->out, "       N/A        N/A       N/A        N/A");
    else
        fprintf(r->out, "  %8.2f  %9.2f  %8.3f  %9.3f", row->way[way].us, x, x / rate(row, PERF_COPY),
                x / rate(row, PERF_DRIVER));
    fprintf(r->out, "  %7zu\n", row->way[way].wrong);
}

static void put_row(const report *r, const perf_codec_row *row)
{
    for (int way = 0; r->out && way < PERF_WAYS; way++)
        put_way(r, row, way);
    if (r->out)
        fflush(r->out);
}

/* --- JSON ------------------------------------------------------------------------- */

static void json_way(rcclx_json *j, const perf_codec_row *row, int way)
{
    const double us = row->way[way].us, least = row->way[way].least;

    rcclx_json_object_open(j, words[way]);
    rcclx_json_real(j, "time_us", us > 0 ? us : (double)NAN);
    rcclx_json_real(j, "min_us", least > 0 ? least : (double)NAN);
    rcclx_json_real(j, "gbps", rate(row, way));
    rcclx_json_real(j, "to_copy", rate(row, way) / rate(row, PERF_COPY));
    rcclx_json_real(j, "to_driver", rate(row, way) / rate(row, PERF_DRIVER));
    rcclx_json_int(j, "wrong", (int64_t)row->way[way].wrong);
    rcclx_json_object_close(j);
}

static void json_device(rcclx_json *j, const perf_bench *b)
{
    rcclx_json_object_open(j, "device");
    rcclx_json_string(j, "kind", b->gpu->name);
    rcclx_json_string(j, "driver", b->gpu->about);
    rcclx_json_string(j, "name", b->info.name);
    rcclx_json_string(j, "arch", b->info.arch);
    rcclx_json_string(j, "pci", b->info.pci);
    rcclx_json_int(j, "multiprocessors", b->info.sms);
    rcclx_json_object_close(j);
}

static void json_report(rcclx_json *j, const void *what)
{
    const report      *r = what;
    const perf_config *c = r->b->config;

    perf_json_head(j, c);
    json_device(j, r->b);
    rcclx_json_int(j, "threads", r->b->threads);
    rcclx_json_int(j, "iters", c->iters);
    rcclx_json_int(j, "repeats", c->repeats);
    rcclx_json_array_open(j, "rows");
    for (size_t i = 0; i < r->n; i++) {
        const perf_codec_row *row = &r->rows[i];

        rcclx_json_object_open(j, NULL);
        rcclx_json_int(j, "size", (int64_t)row->size);
        rcclx_json_int(j, "count", (int64_t)row->count);
        rcclx_json_string(j, "type", perf_type_name(c->type));
        rcclx_json_string(j, "codec", rcclx_codecs[row->codec]->name);
        rcclx_json_int(j, "blocks", row->blocks);
        for (int way = 0; way < PERF_WAYS; way++)
            json_way(j, row, way);
        rcclx_json_object_close(j);
    }
    rcclx_json_array_close(j);
    rcclx_json_int(j, "out_of_bounds", (int64_t)r->wrong);
}

/* --- running ------------------------------------------------------------------------ */

static rcclx_status add_row(report *r, perf_bench *b, int codec, size_t size)
{
    if (r->n == r->cap) {
        perf_codec_row *more = realloc(r->rows, (r->cap = 2 * r->cap + 16) * sizeof(*more));
        if (!more)
            return RCCLX_FAIL(RCCLX_NOMEM, "no memory for results");
        r->rows = more;
    }
    perf_codec_row *row = &r->rows[r->n];
    RCCLX_TRY(perf_bench_row(b, codec, size, row));
    for (int way = 0; way < PERF_WAYS; way++)
        r->wrong += row->way[way].wrong;
    r->n++;
    put_row(r, row);
    return RCCLX_OK;
}

static rcclx_status sweep(report *r, perf_bench *b)
{
    const perf_config *c = b->config;

    RCCLX_TRY(perf_bench_open(b));
    put_head(r);
    for (size_t size = c->min; size <= c->max; size = perf_next_size(c, size))
        for (int codec = RCCLX_CODEC_NONE + 1; codec < RCCLX_CODEC_COUNT; codec++)
            if (c->low >> (codec - 1) & 1)
                RCCLX_TRY(add_row(r, b, codec, size));
    if (r->out)
        fprintf(r->out, "# Wrong bytes : %zu %s\n", r->wrong, r->wrong ? "FAILED" : "OK");
    return RCCLX_OK;
}

int perf_codecs(const perf_config *c)
{
    const char *device = c->device ? c->device : getenv("RCCLX_DEVICE");
    perf_bench  b      = {.config = c};
    report      r      = {.b = &b, .out = c->json && !c->json_file ? NULL : stdout};
    char        why[256];
    int         kind, count, code = perf_gpu_find(device ? device : "auto", &kind, &count);

    if (code != TOOL_OK)
        return code;
    if (kind == PERF_HOST)
        return tool_usage("perf", "codecs are measured on a GPU (--device cuda, hip or emu), and this is host memory");
    b.gpu = rcclx_gpu_open((rcclx_gpu_kind)kind, why, sizeof(why));
    if (!b.gpu || !b.gpu->count)
        return tool_fail("perf", "the GPUs are gone: %s", why);
    if (sweep(&r, &b) != RCCLX_OK)
        code = tool_fail("perf", "codec on %s device 0: %s", b.gpu->name, rcclx_last_error());
    else if (c->json)
        code = perf_json_put(c, json_report, &r);
    perf_bench_close(&b);
    free(r.rows);
    return code == TOOL_OK && r.wrong ? TOOL_WRONG : code;
}
