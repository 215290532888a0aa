/* The same results for programs: one object, written when all is done, so that
 * what can be read is complete.
 *
 *   { "version", "library": {...}, "other": {...}, "machine": {...}, "command": [...],
 *     "collective", "nranks", "mode": "hot" | "dirty", "rows": [
 *       { "size", "count", "type", "op", "root", "algo",
 *         "out_of_place": { "time_us", "algbw", "busbw", "wrong" }, "in_place": {...} | null,
 *         "other": { "out_of_place", "in_place" }, "ratio": { "out_of_place", "in_place" } } ],
 *     "out_of_bounds", "avg_busbw" }
 *
 * "other" and "ratio" (our time over theirs) are there with --vs. "algo" is what
 * the environment forced, else null. "wrong" is null where nothing was checked. */
#include "perf.h"

#include "tool.h"

#include "base/json.h"

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

static void put_machine(rcclx_json *j)
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
}

static void put_cell(rcclx_json *j, const char *key, const perf_cell *c)
{
    if (!c->done) {
        rcclx_json_null(j, key);
        return;
    }
    rcclx_json_object_open(j, key);
    rcclx_json_real(j, "time_us", c->time_us);
    rcclx_json_real(j, "algbw", c->algbw);
    rcclx_json_real(j, "busbw", c->busbw);
    if (c->wrong < 0)
        rcclx_json_null(j, "wrong");
    else
        rcclx_json_int(j, "wrong", c->wrong);
    rcclx_json_object_close(j);
}

static void put_other(rcclx_json *j, const perf_row *row)
{
    rcclx_json_object_open(j, "other");
    for (int p = 0; p < PERF_PLACES; p++)
        put_cell(j, places[p], &row->cell[1][p]);
    rcclx_json_object_close(j);
    rcclx_json_object_open(j, "ratio");
    for (int p = 0; p < PERF_PLACES; p++) {
        const perf_cell *a = &row->cell[0][p], *b = &row->cell[1][p];

        if (a->done && b->time_us > 0)
            rcclx_json_real(j, places[p], a->time_us / b->time_us);
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
        put_other(j, row);
    rcclx_json_object_close(j);
}

static void put_setup(rcclx_json *j, const perf_report *r)
{
    const perf_config *c = r->config;

    rcclx_json_array_open(j, "command");
    for (int i = 0; i < c->argc; i++)
        rcclx_json_string(j, NULL, c->argv[i]);
    rcclx_json_array_close(j);
    rcclx_json_string(j, "collective", c->op->word);
    rcclx_json_int(j, "nranks", r->nranks);
    rcclx_json_int(j, "threads", c->threads);
    rcclx_json_int(j, "ranks_per_thread", c->per_thread);
    rcclx_json_string(j, "mode", c->dirty ? "dirty" : "hot");
    rcclx_json_string(j, "buffers", perf_buffers(r));
    rcclx_json_int(j, "iters", c->iters);
    rcclx_json_int(j, "warmup", c->warmup);
    rcclx_json_int(j, "agg", c->agg);
    rcclx_json_real(j, "init_us", r->init_us);
}

static void put_report(FILE *f, const perf_report *r)
{
    rcclx_json j;

    rcclx_json_init(&j, f);
    rcclx_json_object_open(&j, NULL);
    rcclx_json_string(&j, "version", RCCLX_VERSION);
    put_library(&j, "library", &r->libs[0]);
    if (r->nsides > 1)
        put_library(&j, "other", &r->libs[1]);
    put_machine(&j);
    put_setup(&j, r);
    rcclx_json_array_open(&j, "rows");
    for (size_t i = 0; i < r->nrows; i++)
        put_row(&j, r, &r->rows[i]);
    rcclx_json_array_close(&j);
    rcclx_json_int(&j, "out_of_bounds", r->wrong);
    rcclx_json_real(&j, "avg_busbw", r->busbw_n ? r->busbw_sum / (double)r->busbw_n : 0);
    rcclx_json_object_close(&j);
}

int perf_json_write(const perf_report *r)
{
    const char *path = r->config->json_file;
    FILE       *f    = path ? fopen(path, "we") : stdout;
    bool        bad;

    if (!f)
        return tool_fail("perf", "%s: %s", path, strerror(errno));
    put_report(f, r);
    bad = fflush(f) || ferror(f);
    if (path && fclose(f))
        bad = true;
    return bad ? tool_fail("perf", "%s: %s", path ? path : "standard output", strerror(errno)) : TOOL_OK;
}
