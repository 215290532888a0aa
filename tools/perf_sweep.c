/* The sweep: types x operators x roots x sizes, the same in every worker, so
 * that nobody has to be told what comes next. Times and errors of all workers
 * are gathered after each measurement; worker 0 prints. */
#include "perf_worker.h"

#include "tool.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    perf_worker   worker;
    perf_report   report; /* all workers keep the sums; worker 0 also prints */
    perf_outcome *all;
} sweep;

static void no_memory(void)
{
    tool_fail("perf", "out of memory");
    _exit(TOOL_FAILED);
}

/* --- combining ---------------------------------------------------------------- */

double perf_combine(const perf_worker *w, const double *first, size_t stride)
{
    const int n   = perf_team_workers(w->team);
    double    sum = 0, least = *first, most = *first;

    for (int i = 0; i < n; i++) {
        const double us = first[(size_t)i * stride];

        sum += us;
        least = us < least ? us : least;
        most  = us > most ? us : most;
    }
    switch (w->config->average) {
    case 0: return *first;
    case 2: return least;
    case 3: return most;
    default: return sum / n;
    }
}

static perf_cell make_cell(const sweep *s, int side, size_t nbytes)
{
    const perf_worker *w = &s->worker;
    perf_cell          c = {.done = true, .least_us = s->all[0].least[side], .wrong = w->config->check ? 0 : -1};

    c.time_us = perf_combine(w, &s->all[0].us[side], sizeof(*s->all) / sizeof(double));
    for (int i = 0; i < perf_team_workers(w->team) && w->config->check; i++)
        c.wrong += s->all[i].wrong[side];
    c.algbw = c.time_us > 0 ? (double)nbytes / c.time_us * 1e-3 : 0;
    c.busbw = c.algbw * w->config->op->factor(w->nranks);
    return c;
}

static void account(perf_report *r, const perf_row *row)
{
    for (int place = 0; place < PERF_PLACES; place++)
        for (int side = 0; side < r->nsides; side++) {
            const perf_cell *c = &row->cell[side][place];

            if (c->done && c->wrong > 0)
                r->wrong += c->wrong;
            if (c->done && side == 0) {
                r->busbw_sum += c->busbw;
                r->busbw_n++;
            }
        }
}

static void keep(perf_report *r, const perf_row *row)
{
    if (r->nrows == r->cap) {
        r->cap  = r->cap ? 2 * r->cap : 64;
        r->rows = realloc(r->rows, r->cap * sizeof(*r->rows));
        if (!r->rows)
            no_memory();
    }
    r->rows[r->nrows++] = *row;
}

/* --- one row --------------------------------------------------------------------- */

static void prepare_calls(perf_worker *w, int root)
{
    const perf_op *op     = w->config->op;
    const size_t   nbytes = w->rule.nbytes, offset = (size_t)w->config->unalign * nbytes;

    for (int side = 0; side < w->nsides; side++)
        for (int place = 0; place < PERF_PLACES; place++)
            for (int i = 0; i < w->config->per_thread; i++) {
                perf_rank *r    = &w->ranks[i];
                char      *out  = r->memory[side][0] + offset, *in = r->memory[side][1] + offset;
                perf_call *c    = &w->calls[side][place][i];

                if (place && op->in_place) {
                    out = in + op->send_at(w->extent.base, r->rank) * nbytes;
                    in  = in + op->recv_at(w->extent.base, r->rank) * nbytes;
                }
                *c = (perf_call){.lib = &w->libs[side], .comm = r->comm[side], .stream = r->stream[side],
                                 .rank = r->rank, .nranks = w->nranks, .root = root < 0 ? 0 : root,
                                 .type = (ncclDataType_t)w->rule.type, .nbytes = nbytes, .send = out, .recv = in,
                                 .base = w->extent.base};
                c->redop = w->rule.redop == PERF_PREMUL ? r->premul[side]
                           : w->rule.redop < PERF_PREMUL ? (ncclRedOp_t)w->rule.redop
                                                         : ncclSum;
            }
}

static void run_place(sweep *s, int place, perf_row *row)
{
    perf_worker *w    = &s->worker;
    perf_outcome mine = {.us = {0}};

    if (w->gpu)
        perf_device_place(w, place, &mine);
    else
        perf_host_place(w, place, &mine);
    perf_team_gather(w->team, w->index, &mine, sizeof(mine), s->all);
    for (int side = 0; side < w->nsides; side++)
        row->cell[side][place] = make_cell(s, side, row->size);
}

static void run_row(sweep *s, size_t size, int root)
{
    perf_worker *w = &s->worker;
    perf_row     row;

    w->extent = w->config->op->extent(size / w->rule.nbytes, w->nranks, w->rule.nbytes);
    row       = (perf_row){.size = w->extent.shown * w->rule.nbytes, .count = w->extent.base,
                           .type = perf_type_name(w->rule.type), .redop = perf_redop_name(w->rule.redop), .root = root};
    prepare_calls(w, root);
    if (w->index == 0)
        perf_progress(&s->report, row.size);
    for (int place = 0; place <= (int)w->config->op->in_place; place++)
        run_place(s, place, &row);
    row.when = time(NULL);
    account(&s->report, &row);
    if (w->index)
        return;
    perf_progress(&s->report, 0);
    perf_table_row(&s->report, &row);
    if (w->config->json)
        keep(&s->report, &row);
}

/* --- all rows ----------------------------------------------------------------------- */

size_t perf_next_size(const perf_config *c, size_t size)
{
    double next;

    if (!c->factor)
        return size + c->step;
    next = (double)size * c->factor;
    if (next > (double)c->max)
        return c->max + 1;
    return (size_t)next > size ? (size_t)next : size ? size + 1 : 8;
}

static void run_sizes(sweep *s, int root)
{
    const perf_config *c = s->worker.config;

    for (size_t size = c->min; size <= c->max; size = perf_next_size(c, size)) {
        run_row(s, size, root);
        if (size == c->max)
            return;
    }
}

static void run_redop(sweep *s, int type, int redop)
{
    perf_worker       *w = &s->worker;
    const perf_config *c = w->config;
    const int          first = !c->op->rooted ? -1 : c->root < 0 ? 0 : c->root;
    const int          last  = !c->op->rooted ? -1 : c->root < 0 ? w->nranks - 1 : c->root;

    w->rule = (perf_rule){.type = type, .redop = redop};
    perf_rule_init(&w->rule, type, redop, w->nranks, perf_codec_of(w, 0));
    w->rule.seed = (uint32_t)type * 65537u + (uint32_t)redop;
    if (redop == PERF_PREMUL)
        perf_premul_open(w);
    for (int root = first; root <= last; root++)
        run_sizes(s, root);
    if (redop == PERF_PREMUL)
        perf_premul_close(w);
}

static void run_cycle(sweep *s)
{
    const perf_config *c  = s->worker.config;
    const int          t0 = c->type < 0 ? 0 : c->type, t1 = c->type < 0 ? ncclNumTypes - 1 : c->type;
    const int          o0 = !c->op->reduces ? PERF_MOVE : c->redop < 0 ? 0 : c->redop;
    const int          o1 = !c->op->reduces ? PERF_MOVE : c->redop < 0 ? PERF_REDOPS - 1 : c->redop;

    for (int type = t0; type <= t1; type++)
        for (int redop = o0; redop <= o1; redop++)
            run_redop(s, type, redop);
}

/* --- beginning and end ----------------------------------------------------------------- */

static void cpu_model(char *text, size_t n)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char  line[256], *colon;

    snprintf(text, n, "CPU");
    while (f && fgets(line, sizeof(line), f))
        if (!strncmp(line, "model name", 10) && (colon = strchr(line, ':'))) {
            snprintf(text, n, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
            break;
        }
    if (f)
        fclose(f);
}

static void about_rank(const perf_worker *w, const perf_rank *r, perf_rank_info *info)
{
    rcclx_gpu_info gpu;

    *info = (perf_rank_info){.rank = r->rank, .pid = (int)getpid(), .place = "host"};
    gethostname(info->host, sizeof(info->host) - 1);
    info->host[strcspn(info->host, ".")] = 0;
    if (!w->gpu) {
        cpu_model(info->model, sizeof(info->model));
        return;
    }
    perf_must_gpu(r, "asking the device's name", w->gpu->info(r->device, &gpu));
    info->device = r->device;
    snprintf(info->place, sizeof(info->place), "%s", gpu.pci);
    snprintf(info->model, sizeof(info->model), "%s", gpu.name);
}

static void list_ranks(sweep *s)
{
    perf_worker    *w     = &s->worker;
    const int       n     = perf_team_workers(w->team), each = w->config->per_thread;
    perf_rank_info *all   = calloc((size_t)n, sizeof(*all)), mine;
    perf_rank_info *ranks = calloc((size_t)(n * each), sizeof(*ranks));

    if (!all || !ranks)
        no_memory();
    for (int k = 0; k < each; k++) {
        about_rank(w, &w->ranks[k], &mine);
        perf_team_gather(w->team, w->index, &mine, sizeof(mine), all);
        for (int i = 0; i < n; i++)
            ranks[i * each + k] = all[i];
    }
    for (int i = 0; w->index == 0 && i < n * each; i++)
        perf_table_rank(&s->report, &ranks[i]);
    s->report.ranks = ranks;
    free(all);
}

/* Resident memory of this process, now and at most. */
static void memory_kib(long *now, long *most)
{
    FILE *f = fopen("/proc/self/status", "re");
    char  line[256];

    *now = *most = 0;
    while (f && fgets(line, sizeof(line), f)) {
        sscanf(line, "VmRSS: %ld", now);
        sscanf(line, "VmHWM: %ld", most);
    }
    if (f)
        fclose(f);
}

static void report_memory(sweep *s, long before, long after)
{
    perf_worker *w = &s->worker;
    const int    n = perf_team_workers(w->team);
    long         mine[2] = {after - before, 0}, now, top[2] = {0, 0};
    long        *all = calloc((size_t)n * 2, sizeof(*all));

    if (!all)
        no_memory();
    memory_kib(&now, &mine[1]);
    perf_team_gather(w->team, w->index, mine, sizeof(mine), all);
    for (int i = 0; i < 2 * n; i++)
        top[i % 2] = all[i] > top[i % 2] ? all[i] : top[i % 2];
    if (w->index == 0 && s->report.out)
        fprintf(s->report.out, "# Memory               : init and buffers %.1f MiB, peak %.1f MiB (largest process)\n",
                (double)top[0] / 1024, (double)top[1] / 1024);
    free(all);
}

/* first: the worker's first rank among those of this machine. */
static int make_worker(perf_worker *w, int first)
{
    const size_t n     = (size_t)w->config->per_thread;
    const int    most  = w->config->iters > w->config->repeats ? w->config->iters : w->config->repeats;
    const size_t iters = (size_t)most + 1;

    w->ranks = calloc(n, sizeof(*w->ranks));
    w->times = calloc((size_t)perf_team_workers(w->team) * PERF_SIDES, sizeof(double));
    if (!w->ranks || !w->times)
        return -1;
    for (int side = 0; side < PERF_SIDES; side++) {
        w->samples[side] = calloc(iters, sizeof(double));
        if (!w->samples[side])
            return -1;
        for (int place = 0; place < PERF_PLACES; place++)
            if (!(w->calls[side][place] = calloc(n, sizeof(perf_call))))
                return -1;
    }
    for (size_t i = 0; i < n; i++) {
        w->ranks[i].rank   = w->index * (int)n + (int)i;
        w->ranks[i].device = w->gpu ? (first + (int)i) % w->gpu->count : PERF_HOST;
    }
    return 0;
}

static void free_worker(perf_worker *w)
{
    free(w->ranks);
    free(w->times);
    for (int side = 0; side < PERF_SIDES; side++) {
        free(w->samples[side]);
        for (int place = 0; place < PERF_PLACES; place++)
            free(w->calls[side][place]);
    }
}

/* NCCL_TESTS_MIN_BW: the least average that counts as a pass. */
static bool too_slow(const perf_report *r)
{
    const char  *text    = getenv("NCCL_TESTS_MIN_BW");
    const double least   = text ? strtod(text, NULL) : 0;
    const double average = r->busbw_n ? r->busbw_sum / (double)r->busbw_n : 0;

    return least > 0 && average < 0.9 * least;
}

static void finish(sweep *s)
{
    perf_worker *w    = &s->worker;
    const bool   slow = too_slow(&s->report);
    int          code = s->report.wrong || slow ? TOOL_WRONG : TOOL_OK;

    if (w->index == 0)
        perf_table_tail(&s->report, slow);
    if (w->index == 0 && w->config->json && perf_json_write(&s->report) != TOOL_OK)
        code = TOOL_FAILED;
    if (w->thread == 0 && (w->index == 0 || perf_team_verdict(w->team) == TOOL_OK))
        perf_team_verdict_set(w->team, code);
    fflush(NULL);
}

/* What a worker holds beyond its ranks. */
static void make_sweep(sweep *s, const perf_job *job, int thread)
{
    const perf_config *c = job->config;
    perf_worker       *w = &s->worker;

    *w = (perf_worker){.config = c, .libs = job->libs, .gpu = job->gpu, .nsides = job->nsides, .team = job->team,
                       .index = perf_team_proc(job->team) * c->threads + thread, .thread = thread, .current = -1};
    w->nranks = perf_team_workers(w->team) * c->per_thread;
    s->all    = calloc((size_t)perf_team_workers(w->team), sizeof(*s->all));
    s->report = (perf_report){.config = c, .libs = w->libs, .gpu = w->gpu, .nsides = w->nsides, .nranks = w->nranks};
    if (w->index == 0 && !(c->json && !c->json_file))
        s->report.out = stdout;
    if (!s->all || make_worker(w, (job->local * c->threads + thread) * c->per_thread))
        no_memory();
}

void perf_sweep(const perf_job *job, int thread)
{
    const perf_config *c = job->config;
    sweep              s;
    perf_worker       *w = &s.worker;
    long               before, after, most;

    make_sweep(&s, job, thread);
    if (w->index == 0)
        perf_table_head(&s.report);
    list_ranks(&s);
    memory_kib(&before, &most);
    s.report.init_us = perf_open(w);
    s.report.codec = w->codec;
    s.report.codec_min = w->codec_min;
    memory_kib(&after, &most);
    if (w->index == 0)
        perf_table_columns(&s.report);
    for (int cycle = 0; !c->cycles || cycle < c->cycles; cycle++)
        run_cycle(&s);
    if (c->memory)
        report_memory(&s, before, after);
    perf_close(w);
    finish(&s);
    free(s.report.ranks);
    free(s.report.rows);
    free(s.all);
    free_worker(w);
}
