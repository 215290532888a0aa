/* The table, as nccl-tests' users and scripts know it; with --vs, times of all
 * sides and the ratio of ours to the best other one instead of bandwidths. */
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

/* What a side is called: "ours" and "theirs", or a number where there are more. */
static const char *side_name(const perf_report *r, int side)
{
    static const char *const numbered[PERF_SIDES] = {"ours", "#1", "#2", "#3"};

    return r->nsides > 2 ? numbered[side] : side ? "theirs" : "ours";
}

double perf_best_other(const perf_report *r, const perf_row *row, int place)
{
    double best = 0;

    for (int side = 1; side < r->nsides; side++) {
        const double us = row->cell[side][place].time_us;

        best = us > 0 && (best <= 0 || us < best) ? us : best;
    }
    return best;
}

static void put_libraries(const perf_report *r)
{
    const bool same = r->nsides == 2 && !strcmp(r->libs[0].path, r->libs[1].path) &&
                      r->config->registration[0] == r->config->registration[1];

    for (int side = 0; side < r->nsides; side++)
        fprintf(r->out, "# Library%s%s: %s (version %s)\n", r->nsides == 1 ? "" : " ",
                r->nsides == 1 ? "" : side_name(r, side), r->libs[side].path, r->libs[side].about);
    if (same)
        fprintf(r->out, "# Both are the same file, loaded once: the ratio shows nothing but noise\n");
}

static void put_host_way(const perf_report *r)
{
    fprintf(r->out, "# buffers: %s, %s\n", perf_buffers(r, 0),
            r->config->dirty ? "rewritten before every timed call (median)"
            : r->nsides > 1  ? "a barrier before every timed call (median)"
                             : "written once, then a loop of calls (mean)");
}

static void put_device_way(const perf_report *r)
{
    static const char *const of[] = {"rank 0", "the average of ranks", "the fastest rank", "the slowest rank"};
    const perf_config *c = r->config;

    fprintf(r->out, "# driver: %s\n", r->gpu->about);
    for (int side = 0; side < r->nsides; side++) {
        const int how = perf_registration(c, &r->libs[side], side);

        fprintf(r->out, "# buffers%s%s: %s, %s%s\n", r->nsides == 1 ? "" : " ",
                r->nsides == 1 ? "" : side_name(r, side), perf_buffers(r, side), perf_registration_name(how),
                how != c->registration[side] ? " (not windows: NCCL 2.28 hangs in large broadcasts on them)" : "");
    }
    if (c->graph)
        fprintf(r->out, "# time: %d launches of a graph of %d calls", c->graph, c->iters);
    else
        fprintf(r->out, "# time: %d calls", c->iters);
    fprintf(r->out, " (4 above 16 MiB), %s, %s; median of %d%s\n",
            c->cputime ? "on the host until they return" : "between events on the GPU", of[c->average], c->repeats,
            r->nsides > 1 ? ", the sides in turns" : "");
    if (c->check)
        fprintf(r->out, "# checked: all up to 64 MiB; above, head, tail and 14 other pieces of 1 MiB\n");
    if (c->dirty)
        fprintf(r->out, "# --dirty means nothing on GPUs and is ignored\n");
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
    put_libraries(r);
    fprintf(r->out, "# Collective test starting: %s_perf\n", c->op->word);
    fprintf(r->out, "# nThread %d nGpus %d minBytes %zu maxBytes %zu step: %s warmup iters: %d iters: %d agg iters: %d "
                    "validation: %d graph: %d unalign: %d\n",
            c->threads, c->per_thread, c->min, c->max, step, c->warmup, c->iters, c->agg, c->check, c->graph,
            c->unalign);
    if (r->gpu)
        put_device_way(r);
    else
        put_host_way(r);
    fprintf(r->out, "#\n# Using devices\n");
}

void perf_table_rank(const perf_report *r, const perf_rank_info *info)
{
    if (r->out)
        fprintf(r->out, "#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s\n", info->rank, 0, info->pid,
                info->host, info->device, info->place, info->model);
}

/* One place's columns, and the units below them. */
static void put_columns(const perf_report *r, bool units)
{
    if (r->nsides == 1)
        fprintf(r->out, "  %7s  %6s  %6s  %6s", units ? "(us)" : "time", units ? "(GB/s)" : "algbw",
                units ? "(GB/s)" : "busbw", units ? "" : "#wrong");
    for (int side = 0; r->nsides > 1 && side < r->nsides; side++)
        fprintf(r->out, side ? "  %6s" : "  %7s", units ? "(us)" : side_name(r, side));
    if (r->nsides > 1)
        fprintf(r->out, "  %6s  %6s", units ? "" : "ratio", units ? "" : "#wrong");
}

const char *perf_codec_name(int codec)
{
    static const char *const names[] = {[PERF_EXACT] = "off", [PERF_FP8] = "fp8", [PERF_INT8] = "int8"};

    return names[codec];
}

static void put_precision(const perf_report *r)
{
    if (r->codec_min)
        fprintf(r->out, "#\n# low precision: %s from %zu bytes on; ", perf_codec_name(r->codec), r->codec_min);
    else
        fprintf(r->out, "#\n# low precision: %s where it pays; ", perf_codec_name(r->codec));
    fprintf(r->out, "results are checked within what the codec may lose, not bit for bit\n");
}

void perf_table_columns(const perf_report *r)
{
    if (!r->out)
        return;
    if (r->codec)
        put_precision(r);
    fprintf(r->out, "#\n# %10s  %12s  %8s  %6s  %6s           %s          %*s             %s          \n", "", "", "",
            "", "", placements[0], 8 * (r->nsides > 2 ? r->nsides - 2 : 0), "", placements[1]);
    for (int units = 0; units < 2; units++) {
        fprintf(r->out, "# %10s  %12s  %8s  %6s  %6s", units ? "(B)" : "size", units ? "(elements)" : "count",
                units ? "" : "type", units ? "" : "redop", units ? "" : "root");
        put_columns(r, units);
        put_columns(r, units);
        fprintf(r->out, "%s%s\n", units ? "" : " ", !units && r->config->timestamp ? "timestamp" : "");
    }
    fflush(r->out);
}

static void put_cell(const perf_report *r, const perf_row *row, int place)
{
    const perf_cell *ours = &row->cell[0][place];
    const double     best = perf_best_other(r, row, place);
    char             text[32], wrong[32] = "N/A";
    long             sum  = 0;

    for (int side = 0; side < r->nsides; side++) {
        const double us = row->cell[side][place].time_us;

        sum += row->cell[side][place].wrong;
        fprintf(r->out, side ? "  %6s" : "  %7s", ours->done ? fit(text, us, side ? 6 : 7) : "N/A");
    }
    if (ours->wrong >= 0)
        snprintf(wrong, sizeof(wrong), "%6g", (double)sum);
    if (r->nsides == 1)
        fprintf(r->out, "  %6s", ours->done ? fit(text, ours->algbw, 6) : "N/A");
    fprintf(r->out, "  %6s", !ours->done      ? "N/A"
                             : r->nsides == 1 ? fit(text, ours->busbw, 6)
                                              : fit(text, best > 0 ? ours->time_us / best : 0, 6));
    fprintf(r->out, "  %6s", ours->done ? wrong : "N/A");
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
