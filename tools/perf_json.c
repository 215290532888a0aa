/* The same results for programs: one object, written when all is done, so that
 * what can be read is complete.
 *
 *   { "version", "library": {...}, "other": {...}, "machine": {...}, "command": [...],
 *     "collective", "nranks", "mode": "hot" | "dirty" | "eager" | "graph", "rows": [
 *       { "size", "count", "type", "op", "root", "algo",
 *         "out_of_place": { "time_us", "algbw", "busbw", "wrong" }, "in_place": {...} | null,
 *         "other": { "out_of_place", "in_place" }, "ratio": { "out_of_place", "in_place" } } ],
 *     "out_of_bounds", "avg_busbw" }
 *
 * "other" and "ratio" (our time over theirs) are there with --vs; with several,
 * "other" is the first, "others" has all, and the ratio is to the best of them.
 * "algo" is what the environment forced, else null. "wrong" is null where nothing
 * was checked. Of GPUs there is also "device": { "kind", "driver", "ranks" },
 * "sides": [{ "path", "about", "memory", "registration" }], and "min_us" beside
 * "time_us". */
#include "perf.h"

#include "tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static const char *const places[PERF_PLACES] = {"out_of_place", "in_place"};

static void put_library(rcclx_json *j, const char *key, const nccl_table *lib)
{
    rcclx_json_object_open(j, key);
    rcclx_json_string(j, "path", lib->path);
    rcclx_json_int(j, "nccl_version", lib->version);
    rcclx_json_string(j, "about", lib->about);
    rcclx_json_object_close(j);
}

void perf_json_head(rcclx_json *j, const perf_config *c)
{
    struct utsname u;

    if (uname(&u))
        memset(&u, 0, sizeof(u));
    rcclx_json_object_open(j, "machine");
    rcclx_json_string(j, "host", u.nodename);
    rcclx_json_string(j, "kernel", u.release);
    rcclx_json_string(j, "arch", u.machine);
    rcclx_json_int(j, "cores", sysconf(_SC_NPROCESSORS_ONLN));
    rcclx_json_int(j, "memory", (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
    rcclx_json_object_close(j);
    rcclx_json_array_open(j, "command");
    for (int i = 0; i < c->argc; i++)
        rcclx_json_string(j, NULL, c->argv[i]);
    rcclx_json_array_close(j);
}

static void put_cell(rcclx_json *j, const char *key, const perf_cell *c)
{
    if (!c->done) {
        rcclx_json_null(j, key);
        return;
    }
    rcclx_json_object_open(j, key);
    rcclx_json_real(j, "time_us", c->time_us);
    if (c->least_us > 0)
        rcclx_json_real(j, "min_us", c->least_us);
    rcclx_json_real(j, "algbw", c->algbw);
    rcclx_json_real(j, "busbw", c->busbw);
    if (c->wrong < 0)
        rcclx_json_null(j, "wrong");
    else
        rcclx_json_int(j, "wrong", c->wrong);
    rcclx_json_object_close(j);
}

static void put_places(rcclx_json *j, const char *key, const perf_row *row, int side)
{
    rcclx_json_object_open(j, key);
    for (int p = 0; p < PERF_PLACES; p++)
        put_cell(j, places[p], &row->cell[side][p]);
    rcclx_json_object_close(j);
}

static void put_other(rcclx_json *j, const perf_report *r, const perf_row *row)
{
    put_places(j, "other", row, 1);
    if (r->nsides > 2) {
        rcclx_json_array_open(j, "others");
        for (int side = 1; side < r->nsides; side++)
            put_places(j, NULL, row, side);
        rcclx_json_array_close(j);
    }
    rcclx_json_object_open(j, "ratio");
    for (int p = 0; p < PERF_PLACES; p++) {
        const perf_cell *a    = &row->cell[0][p];
        const double     best = perf_best_other(r, row, p);

        if (a->done && best > 0)
            rcclx_json_real(j, places[p], a->time_us / best);
        else
            rcclx_json_null(j, places[p]);
    }
    rcclx_json_object_close(j);
}

static void put_row(rcclx_json *j, const perf_report *r, const perf_row *row)
{
    const char *algo = getenv("RCCLX_ALGO");

    rcclx_json_object_open(j, NULL);
    rcclx_json_int(j, "size", (int64_t)row->size);
    rcclx_json_int(j, "count", (int64_t)row->count);
    rcclx_json_string(j, "type", row->type);
    rcclx_json_string(j, "op", row->redop);
    rcclx_json_int(j, "root", row->root);
    rcclx_json_string(j, "algo", algo ? algo : getenv("NCCL_ALGO"));
    for (int p = 0; p < PERF_PLACES; p++)
        put_cell(j, places[p], &row->cell[0][p]);
    if (r->nsides > 1)
        put_other(j, r, row);
    rcclx_json_object_close(j);
}

static void put_setup(rcclx_json *j, const perf_report *r)
{
    const perf_config *c = r->config;

    rcclx_json_string(j, "collective", c->op->word);
    rcclx_json_int(j, "nranks", r->nranks);
    rcclx_json_int(j, "threads", c->threads);
    rcclx_json_int(j, "ranks_per_thread", c->per_thread);
    rcclx_json_string(j, "mode", r->gpu ? c->graph ? "graph" : "eager" : c->dirty ? "dirty" : "hot");
    rcclx_json_string(j, "buffers", perf_buffers(r, 0));
    rcclx_json_string(j, "low_precision", perf_codec_name(r->codec));
    if (r->codec)
        rcclx_json_int(j, "low_precision_min", (int64_t)r->codec_min);
    rcclx_json_int(j, "iters", c->iters);
    rcclx_json_int(j, "warmup", c->warmup);
    rcclx_json_int(j, "agg", c->agg);
    rcclx_json_real(j, "init_us", r->init_us);
}

static void put_device(rcclx_json *j, const perf_report *r)
{
    rcclx_json_object_open(j, "device");
    rcclx_json_string(j, "kind", r->gpu->name);
    rcclx_json_string(j, "driver", r->gpu->about);
    rcclx_json_array_open(j, "ranks");
    for (int i = 0; i < r->nranks; i++) {
        const perf_rank_info *info = &r->ranks[i];

        rcclx_json_object_open(j, NULL);
        rcclx_json_int(j, "rank", info->rank);
        rcclx_json_string(j, "host", info->host);
        rcclx_json_int(j, "device", info->device);
        rcclx_json_string(j, "pci", info->place);
        rcclx_json_string(j, "name", info->model);
        rcclx_json_object_close(j);
    }
    rcclx_json_array_close(j);
    rcclx_json_object_close(j);
    rcclx_json_int(j, "graph", r->config->graph);
    rcclx_json_int(j, "repeats", r->config->repeats);
    rcclx_json_bool(j, "cputime", r->config->cputime);
}

static void put_sides(rcclx_json *j, const perf_report *r)
{
    rcclx_json_array_open(j, "sides");
    for (int side = 0; side < r->nsides; side++) {
        rcclx_json_object_open(j, NULL);
        rcclx_json_string(j, "path", r->libs[side].path);
        rcclx_json_string(j, "about", r->libs[side].about);
        rcclx_json_string(j, "memory", perf_buffers(r, side));
        rcclx_json_string(j, "registration",
                          perf_registration_name(perf_registration(r->config, &r->libs[side], side)));
        rcclx_json_object_close(j);
    }
    rcclx_json_array_close(j);
}

static void put_report(rcclx_json *j, const void *what)
{
    const perf_report *r = what;

    put_library(j, "library", &r->libs[0]);
    if (r->nsides > 1)
        put_library(j, "other", &r->libs[1]);
    perf_json_head(j, r->config);
    put_setup(j, r);
    if (r->gpu) {
        put_device(j, r);
        put_sides(j, r);
    }
    rcclx_json_array_open(j, "rows");
    for (size_t i = 0; i < r->nrows; i++)
        put_row(j, r, &r->rows[i]);
    rcclx_json_array_close(j);
    rcclx_json_int(j, "out_of_bounds", r->wrong);
    rcclx_json_real(j, "avg_busbw", r->busbw_n ? r->busbw_sum / (double)r->busbw_n : 0);
}

int perf_json_put(const perf_config *c, void (*put)(rcclx_json *j, const void *what), const void *what)
{
    const char *path = c->json_file;
    FILE       *f    = path ? fopen(path, "we") : stdout;
    rcclx_json  j;
    bool        bad;

    if (!f)
        return tool_fail("perf", "%s: %s", path, strerror(errno));
    rcclx_json_init(&j, f);
    rcclx_json_object_open(&j, NULL);
    rcclx_json_string(&j, "version", RCCLX_VERSION);
    put(&j, what);
    rcclx_json_object_close(&j);
    bad = fflush(f) || ferror(f);
    if (path && fclose(f))
        bad = true;
    return bad ? tool_fail("perf", "%s: %s", path ? path : "standard output", strerror(errno)) : TOOL_OK;
}

int perf_json_write(const perf_report *r)
{
    return perf_json_put(r->config, put_report, r);
}
