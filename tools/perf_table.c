/* The table, as nccl-tests' users and scripts know it; with --vs, times of both
 * libraries and their ratio instead of bandwidths. */
#include "perf.h"

#include "tool.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static const char *const placements[PERF_PLACES] = {"out-of-place", "in-place"};

/* A number in at most `width` characters, with as many places as fit, two at most. */
static const char *fit(char *text, double x, int width)
{
    int digits = x < 10 ? 1 : (int)floor(log10(x)) + 1;
    int places = width - digits - 1;

    snprintf(text, 32, "%.*f", places < 0 ? 0 : places > 2 ? 2 : places, x);
    return text;
}

const char *perf_buffers(const perf_report *r)
{
    return r->config->plain || !r->libs[0].ncclMemAlloc || !r->libs[0].ncclMemFree ? "malloc" : "ncclMemAlloc";
}

void perf_table_head(const perf_report *r)
{
    const perf_config *c = r->config;
    char               step[40];

    if (!r->out)
        return;
    if (c->factor)
        snprintf(step, sizeof(step), "%g(factor)", c->factor);
    else
        snprintf(step, sizeof(step), "%zu(bytes)", c->step);
    fprintf(r->out, "# rcclx perf version %s nccl-headers=%d nccl-library=%d\n", RCCLX_VERSION, NCCL_VERSION_CODE,
            r->libs[0].version);
    for (int side = 0; side < r->nsides; side++)
        fprintf(r->out, "# Library%s: %s (version %s)\n", r->nsides == 1 ? "" : side ? " theirs" : " ours",
                r->libs[side].path, r->libs[side].about);
    if (r->nsides > 1 && !strcmp(r->libs[0].path, r->libs[1].path))
        fprintf(r->out, "# Both are the same file, loaded once: the ratio shows nothing but noise\n");
    fprintf(r->out, "# Collective test starting: %s_perf\n", c->op->word);
    fprintf(r->out, "# nThread %d nGpus %d minBytes %zu maxBytes %zu step: %s warmup iters: %d iters: %d agg iters: %d "
                    "validation: %d graph: 0 unalign: %d\n",
            c->threads, c->per_thread, c->min, c->max, step, c->warmup, c->iters, c->agg, c->check, c->unalign);
    fprintf(r->out, "# buffers: %s, %s\n#\n# Using devices\n", perf_buffers(r),
            c->dirty          ? "rewritten before every timed call (median)"
            : r->nsides > 1   ? "a barrier before every timed call (median)"
                              : "written once, then a loop of calls (mean)");
}

void perf_table_rank(const perf_report *r, const perf_rank_info *info)
{
    if (r->out)
        fprintf(r->out, "#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s\n", info->rank, 0, info->pid,
                info->host, 0, "host", info->model);
}

static const char *columns_of(const perf_report *r)
{
    return r->nsides > 1 ? "     ours  theirs   ratio  #wrong" : "     time   algbw   busbw  #wrong";
}

void perf_table_columns(const perf_report *r)
{
    if (!r->out)
        return;
    fprintf(r->out, "#\n# %10s  %12s  %8s  %6s  %6s           %s                       %s          \n", "", "", "",
            "", "", placements[0], placements[1]);
    fprintf(r->out, "# %10s  %12s  %8s  %6s  %6s  %s  %s %s\n", "size", "count", "type", "redop", "root",
            columns_of(r) + 2, columns_of(r) + 2, r->config->timestamp ? "timestamp" : "");
    fprintf(r->out, "# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n", "(B)", "(elements)",
            "", "", "", "(us)", r->nsides > 1 ? "(us)" : "(GB/s)", r->nsides > 1 ? "" : "(GB/s)", "", "(us)",
            r->nsides > 1 ? "(us)" : "(GB/s)", r->nsides > 1 ? "" : "(GB/s)", "");
    fflush(r->out);
}

static void put_cell(const perf_report *r, const perf_row *row, int place)
{
    const perf_cell *ours = &row->cell[0][place], *theirs = &row->cell[1][place];
    char             a[32], b[32], c[32], wrong[32] = "N/A";

    if (!ours->done) {
        fprintf(r->out, "  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
        return;
    }
    if (ours->wrong >= 0)
        snprintf(wrong, sizeof(wrong), "%6g", (double)(ours->wrong + (r->nsides > 1 ? theirs->wrong : 0)));
    if (r->nsides > 1)
        fprintf(r->out, "  %7s  %6s  %6s  %6s", fit(a, ours->time_us, 7), fit(b, theirs->time_us, 6),
                fit(c, theirs->time_us > 0 ? ours->time_us / theirs->time_us : 0, 6), wrong);
    else
        fprintf(r->out, "  %7s  %6s  %6s  %6s", fit(a, ours->time_us, 7), fit(b, ours->algbw, 6),
                fit(c, ours->busbw, 6), wrong);
}

void perf_table_row(const perf_report *r, const perf_row *row)
{
    char      when[32] = "";
    struct tm tm;

    if (!r->out)
        return;
    fprintf(r->out, "%12zu  %12zu  %8s  %6s  %6d", row->size, row->count, row->type, row->redop, row->root);
    for (int place = 0; place < PERF_PLACES; place++)
        put_cell(r, row, place);
    if (r->config->timestamp && localtime_r(&row->when, &tm))
        strftime(when, sizeof(when), "  %Y-%m-%d %H:%M:%S", &tm);
    fprintf(r->out, "%s\n", when);
    fflush(r->out);
}

void perf_table_tail(const perf_report *r, bool slow)
{
    if (!r->out)
        return;
    fprintf(r->out, "# Out of bounds values : %ld %s\n", r->wrong, r->wrong ? "FAILED" : "OK");
    fprintf(r->out, "# Avg bus bandwidth    : %g %s\n#\n", r->busbw_n ? r->busbw_sum / (double)r->busbw_n : 0,
            slow ? "FAILED" : "");
    fprintf(r->out, "# Collective test concluded: %s_perf\n", r->config->op->word);
}

/* Only on a terminal, and out of the way before anything else is printed. */
void perf_progress(const perf_report *r, size_t size)
{
    if (!isatty(STDERR_FILENO))
        return;
    if (size)
        fprintf(stderr, "\r%s: measuring %zu bytes ...", r->config->op->word, size);
    else
        fputs("\r\033[K", stderr);
    fflush(stderr);
}
