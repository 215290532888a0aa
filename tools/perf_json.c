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

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static const char *const places[PERF_PLACES] = {"out_of_place", "in_place"};

static void put_string(FILE *f, const char *name, const char *value)
{
    fprintf(f, "\"%s\": ", name);
    if (value)
        tool_json_string(f, value);
    else
        fputs("null", f);
}

static void put_real(FILE *f, const char *name, double x)
{
    fprintf(f, "\"%s\": ", name);
    tool_json_real(f, x);
}

static void put_library(FILE *f, const char *name, const nccl_table *lib)
{
    fprintf(f, "  \"%s\": {", name);
    put_string(f, "path", lib->path);
    fprintf(f, ", \"nccl_version\": %d, ", lib->version);
    put_string(f, "about", lib->about);
    fputs("},\n", f);
}

static void put_machine(FILE *f)
{
    struct utsname u;

    if (uname(&u))
        memset(&u, 0, sizeof(u));
    fputs("  \"machine\": {", f);
    put_string(f, "host", u.nodename);
    fputs(", ", f);
    put_string(f, "kernel", u.release);
    fputs(", ", f);
    put_string(f, "arch", u.machine);
    fprintf(f, ", \"cores\": %ld, \"memory\": %lld},\n", sysconf(_SC_NPROCESSORS_ONLN),
            (long long)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
}

static void put_command(FILE *f, const perf_config *c)
{
    fputs("  \"command\": [", f);
    for (int i = 0; i < c->argc; i++) {
        fputs(i ? ", " : "", f);
        tool_json_string(f, c->argv[i]);
    }
    fputs("],\n", f);
}

static void put_cell(FILE *f, const char *name, const perf_cell *c)
{
    fprintf(f, "\"%s\": ", name);
    if (!c->done) {
        fputs("null", f);
        return;
    }
    putc('{', f);
    put_real(f, "time_us", c->time_us);
    fputs(", ", f);
    put_real(f, "algbw", c->algbw);
    fputs(", ", f);
    put_real(f, "busbw", c->busbw);
    if (c->wrong < 0)
        fputs(", \"wrong\": null}", f);
    else
        fprintf(f, ", \"wrong\": %ld}", c->wrong);
}

static void put_other(FILE *f, const perf_row *row)
{
    fputs(", \"other\": {", f);
    for (int p = 0; p < PERF_PLACES; p++) {
        fputs(p ? ", " : "", f);
        put_cell(f, places[p], &row->cell[1][p]);
    }
    fputs("}, \"ratio\": {", f);
    for (int p = 0; p < PERF_PLACES; p++) {
        const perf_cell *a = &row->cell[0][p], *b = &row->cell[1][p];

        fprintf(f, "%s\"%s\": ", p ? ", " : "", places[p]);
        if (a->done && b->time_us > 0)
            tool_json_real(f, a->time_us / b->time_us);
        else
            fputs("null", f);
    }
    putc('}', f);
}

static void put_row(FILE *f, const perf_report *r, const perf_row *row)
{
    const char *algo = getenv("RCCLX_ALGO");

    fprintf(f, "    {\"size\": %zu, \"count\": %zu, \"type\": \"%s\", \"op\": \"%s\", \"root\": %d, ", row->size, row->count,
            row->type, row->redop, row->root);
    put_string(f, "algo", algo ? algo : getenv("NCCL_ALGO"));
    for (int p = 0; p < PERF_PLACES; p++) {
        fputs(", ", f);
        put_cell(f, places[p], &row->cell[0][p]);
    }
    if (r->nsides > 1)
        put_other(f, row);
    putc('}', f);
}

static void put_report(FILE *f, const perf_report *r)
{
    const perf_config *c = r->config;

    fputs("{\n  ", f);
    put_string(f, "version", RCCLX_VERSION);
    fputs(",\n", f);
    put_library(f, "library", &r->libs[0]);
    if (r->nsides > 1)
        put_library(f, "other", &r->libs[1]);
    put_machine(f);
    put_command(f, c);
    fprintf(f, "  \"collective\": \"%s\", \"nranks\": %d, \"threads\": %d, \"ranks_per_thread\": %d,\n", c->op->word,
            r->nranks, c->threads, c->per_thread);
    fprintf(f, "  \"mode\": \"%s\", \"buffers\": \"%s\", \"iters\": %d, \"warmup\": %d, \"agg\": %d, ",
            c->dirty ? "dirty" : "hot", c->plain ? "malloc" : "ncclMemAlloc", c->iters, c->warmup, c->agg);
    put_real(f, "init_us", r->init_us);
    fputs(",\n  \"rows\": [\n", f);
    for (size_t i = 0; i < r->nrows; i++) {
        put_row(f, r, &r->rows[i]);
        fputs(i + 1 < r->nrows ? ",\n" : "\n", f);
    }
    fprintf(f, "  ],\n  \"out_of_bounds\": %ld, ", r->wrong);
    put_real(f, "avg_busbw", r->busbw_n ? r->busbw_sum / (double)r->busbw_n : 0);
    fputs("\n}\n", f);
}

int perf_json_write(const perf_report *r)
{
    const char *path = r->config->json_file;
    FILE       *f    = path ? fopen(path, "we") : stdout;
    int         bad;

    if (!f)
        return tool_fail("perf", "%s: %s", path, strerror(errno));
    put_report(f, r);
    bad = ferror(f);
    if (path ? fclose(f) : fflush(f))
        bad = 1;
    return bad ? tool_fail("perf", "%s: %s", path ? path : "standard output", strerror(errno)) : TOOL_OK;
}
