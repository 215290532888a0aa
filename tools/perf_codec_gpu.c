/* A codec's kernel with one step and no peer, its arguments made by hand.
 *
 *   in    | part 0       | part 1       | ...     elements; a wave is a lane and has a part
 *   runs  | run of 0     | run of 1     | ...     a lane's staging is so long that its whole part is one run: none is
 *   out   | part 0       | part 1       | ...     written twice, as slots are, which would stay in the cache
 *
 *   check     outputs poisoned | one launch | copied back and compared with what the host's codec gives, bit for bit
 *   measure   the ways in turns: run-in | event | a graph of launches | event */
#include "perf_codec.h"

#include "perf_worker.h"

#include "base/log.h"
#include "device/kernels/work.h"

#include <stdlib.h>
#include <string.h>

enum {
    A_BLOCK = 32 << 10,          /* bytes for which another block joins */
    UNIT = 512,                  /* elements; a part is whole ones */
    WHOLE = 64 << 20, SOME = 16, /* of what is longer so many parts are checked */
    THREADS = 512, EMULATED_THREADS = 64,
};

static const uint32_t poison_word = 0xffffffffu;

/* How a size is spread. */
typedef struct {
    size_t count, part, stage; /* elements; those of a lane; bytes of its staging */
    int    blocks, lanes;
} spread;

static spread spread_of(const perf_bench *b, size_t size)
{
    const size_t want = (size + A_BLOCK - 1) / A_BLOCK;
    spread       s    = {.count = size / b->rule.nbytes};

    s.blocks = want < (size_t)b->most ? (int)want : b->most;
    s.lanes  = s.blocks * (b->threads / b->info.wave);
    s.part   = ((s.count + (size_t)s.lanes - 1) / (size_t)s.lanes + UNIT - 1) / UNIT * UNIT;
    s.stage  = (rcclx_codec_bytes(s.part) + 127) & ~(size_t)127;
    return s;
}

static size_t run_bytes(size_t count)
{
    return count + 2 * ((count + RCCLX_CODEC_BLOCK - 1) / RCCLX_CODEC_BLOCK);
}

/* --- launches ------------------------------------------------------------------ */

typedef struct {
    gp_work  work;
    gp_coded step;
} one_step;

static void aim(const perf_bench *b, perf_way way, const spread *s, one_step *w)
{
    const uint64_t in = (uint64_t)(uintptr_t)b->in, out = (uint64_t)(uintptr_t)b->out, runs = (uint64_t)(uintptr_t)b->runs;
    const uint32_t part = (uint32_t)(s->part * b->rule.nbytes);

    *w = (one_step){
        .work = {.nbytes = sizeof(*w), .type = (uint8_t)b->config->type, .op = GP_OP_SUM, .nplans = 1,
                 .plan = {{.steps = offsetof(one_step, step), .nsteps = 1, .npieces = 1, .piece_bytes = part,
                           .block_bytes = part}}},
        .step = {.op = GP_COPY, .far = sizeof(*w), .quick = 1, .nbytes = s->count * b->rule.nbytes,
                 .own = way == PERF_DECODE ? 0 : in, .out = way == PERF_ENCODE ? 0 : out,
                 .runs = way == PERF_DECODE, .run = way == PERF_DECODE ? runs : 0,
                 .fills = way == PERF_ENCODE, .fill = way == PERF_ENCODE ? runs : 0},
    };
}

static rcclx_status launch(const perf_bench *b, int codec, perf_way way, const spread *s)
{
    gp_large args = {.frame = {.state = (uint64_t)(uintptr_t)b->state, .nranks = 1, .nworks = 1, .alone = 1,
                               .nlanes = (uint16_t)s->blocks, .nthreads = (uint16_t)b->threads}};

    if (way == PERF_DRIVER)
        return b->gpu->copy(b->out, b->in, s->count * b->rule.nbytes, b->stream);
    args.frame.at.stage_bytes = (uint32_t)((s->stage * (size_t)s->lanes + GP_LANES - 1) / GP_LANES);
    args.frame.part  = (uint32_t)(GP_WHOLE / (unsigned)s->blocks);
    args.frame.part0 = (uint32_t)(GP_WHOLE - args.frame.part * (unsigned)(s->blocks - 1));
    aim(b, way, s, (one_step *)(void *)args.blob);
    return b->gpu->launch(b->kernel[codec], (unsigned)s->blocks, (unsigned)b->threads, b->stream, &args, sizeof(args));
}

/* --- checking ------------------------------------------------------------------- */

/* For a lane's part, on the host. */
typedef struct {
    unsigned char *plain, *run, *got; /* what went in; what its run has to be; what is there */
} desk;

static size_t differ(const unsigned char *a, const unsigned char *b, size_t n)
{
    size_t wrong = 0;

    for (size_t i = 0; memcmp(a, b, n) && i < n; i++)
        wrong += a[i] != b[i];
    return wrong;
}

/* Wrong bytes of a lane. What lies between codes and scales may be anything. */
static rcclx_status check_lane(const perf_bench *b, int codec, perf_way way, const spread *s, size_t lane, const desk *d,
                               size_t *wrong)
{
    const rcclx_type type = (rcclx_type)b->config->type;
    const size_t     from = lane * s->part, n = s->count - from < s->part ? s->count - from : s->part;
    const char      *at   = way == PERF_ENCODE ? (char *)b->runs + lane * s->stage : (char *)b->out + from * b->rule.nbytes;

    RCCLX_TRY(b->gpu->copy(d->got, at, way == PERF_ENCODE ? rcclx_codec_bytes(n) : n * b->rule.nbytes, b->stream));
    RCCLX_TRY(b->gpu->stream_sync(b->stream));
    perf_fill(&b->rule, 0, from, d->plain, n);
    if (way == PERF_ENCODE || way == PERF_DECODE)
        rcclx_codecs[codec]->encode(type, d->plain, n, d->run);
    if (way == PERF_DECODE)
        rcclx_codecs[codec]->decode(type, d->run, n, d->plain);
    if (way == PERF_ENCODE)
        *wrong += differ(d->got, d->run, n) +
                  differ(d->got + rcclx_codec_scales_at(n), d->run + rcclx_codec_scales_at(n), run_bytes(n) - n);
    else
        *wrong += differ(d->got, d->plain, n * b->rule.nbytes);
    return RCCLX_OK;
}

static rcclx_status check_way(const perf_bench *b, int codec, perf_way way, const spread *s, const desk *d, size_t *wrong)
{
    const size_t nbytes = s->count * b->rule.nbytes, busy = (s->count + s->part - 1) / s->part;
    const size_t n      = nbytes <= WHOLE || busy < SOME ? busy : SOME;

    *wrong = 0;
    RCCLX_TRY(b->gpu->fill(way == PERF_ENCODE ? b->runs : b->out, poison_word,
                           way == PERF_ENCODE ? s->stage * (size_t)s->lanes / 4 : (nbytes + 3) / 4, b->stream));
    RCCLX_TRY(launch(b, codec, way, s));
    for (size_t k = 0; k < n; k++)
        RCCLX_TRY(check_lane(b, codec, way, s, n > 1 ? k * (busy - 1) / (n - 1) : 0, d, wrong));
    return RCCLX_OK;
}

static rcclx_status check(const perf_bench *b, int codec, const spread *s, perf_codec_row *row)
{
    const size_t   plain = (s->part * b->rule.nbytes + 127) & ~(size_t)127, most = plain > s->stage ? plain : s->stage;
    unsigned char *all   = aligned_alloc(128, plain + s->stage + most);
    const desk     d     = {all, all + plain, all + plain + s->stage};
    rcclx_status   st    = all ? RCCLX_OK : RCCLX_FAIL(RCCLX_NOMEM, "no memory to check %zu bytes", row->size);

    for (perf_way way = 0; st == RCCLX_OK && way < PERF_WAYS; way++)
        st = check_way(b, codec, way, s, &d, &row->way[way].wrong);
    free(all);
    return st;
}

/* --- timing ---------------------------------------------------------------------- */

static rcclx_status capture(perf_bench *b, int codec, perf_way way, const spread *s)
{
    rcclx_status st = RCCLX_OK;

    RCCLX_TRY(b->gpu->capture_begin(b->stream));
    for (int n = 0; st == RCCLX_OK && n < b->config->iters; n++)
        st = launch(b, codec, way, s);
    const rcclx_status end = b->gpu->capture_end(b->stream, &b->graph[way]);
    return st != RCCLX_OK ? st : end;
}

static void drop_graphs(perf_bench *b)
{
    for (perf_way way = 0; way < PERF_WAYS; way++) {
        if (b->graph[way])
            b->gpu->graph_destroy(b->graph[way]);
        b->graph[way] = NULL;
    }
}

static rcclx_status sample(const perf_bench *b, perf_way way, double *us)
{
    RCCLX_TRY(b->gpu->graph_launch(b->graph[way], b->stream));
    RCCLX_TRY(b->gpu->event_record(b->from, b->stream));
    RCCLX_TRY(b->gpu->graph_launch(b->graph[way], b->stream));
    RCCLX_TRY(b->gpu->event_record(b->to, b->stream));
    RCCLX_TRY(b->gpu->event_sync(b->to));
    RCCLX_TRY(b->gpu->event_elapsed(b->from, b->to, us));
    *us /= b->config->iters;
    return RCCLX_OK;
}

static rcclx_status measure(perf_bench *b, int codec, const spread *s, perf_codec_row *row)
{
    const int repeats = b->config->repeats;

    for (perf_way way = 0; way < PERF_WAYS; way++)
        RCCLX_TRY(capture(b, codec, way, s));
    for (int n = 0; n < repeats; n++)
        for (int k = 0; k < PERF_WAYS; k++) {
            const int way = (n + k) % PERF_WAYS;
            RCCLX_TRY(sample(b, (perf_way)way, &b->times[way * repeats + n]));
        }
    for (int way = 0; way < PERF_WAYS; way++) {
        row->way[way].us    = perf_median(&b->times[way * repeats], repeats);
        row->way[way].least = b->times[way * repeats]; /* sorted now */
    }
    return RCCLX_OK;
}

rcclx_status perf_bench_row(perf_bench *b, int codec, size_t size, perf_codec_row *row)
{
    const spread s     = spread_of(b, size);
    const size_t plain = s.count * b->rule.nbytes;
    rcclx_status st    = RCCLX_OK;

    *row = (perf_codec_row){.size = plain, .count = s.count, .codec = codec, .blocks = s.blocks};
    for (int way = 0; way < PERF_WAYS; way++)
        row->way[way].traffic = plain + (way == PERF_COPY || way == PERF_DRIVER ? plain : run_bytes(s.count));
    RCCLX_TRY(check(b, codec, &s, row));
    if (b->config->iters)
        st = measure(b, codec, &s, row);
    drop_graphs(b);
    return st;
}

/* --- beginning and end -------------------------------------------------------------- */

static rcclx_status load(perf_bench *b)
{
    static const char *const types[RCCLX_TYPE_COUNT] = {[RCCLX_F32] = "f32", [RCCLX_BF16] = "bf16", [RCCLX_F16] = "f16"};
    char                     name[32];

    RCCLX_TRY(b->gpu->load(&b->module, 0));
    for (int c = RCCLX_CODEC_NONE + 1; c < RCCLX_CODEC_COUNT; c++) {
        snprintf(name, sizeof(name), "gp_%s_%s", rcclx_codecs[c]->name, types[b->config->type]);
        RCCLX_TRY(b->gpu->function(&b->kernel[c], b->module, name));
    }
    return RCCLX_OK;
}

static rcclx_status fill(const perf_bench *b)
{
    const size_t count = b->config->max / b->rule.nbytes, most = PERF_CHUNK / b->rule.nbytes;
    void        *stage = malloc(PERF_CHUNK);
    rcclx_status st    = stage ? RCCLX_OK : RCCLX_FAIL(RCCLX_NOMEM, "no memory for inputs");

    for (size_t at = 0; st == RCCLX_OK && at < count; at += most) {
        const size_t n = count - at < most ? count - at : most;

        perf_fill(&b->rule, 0, at, stage, n);
        st = b->gpu->copy((char *)b->in + at * b->rule.nbytes, stage, n * b->rule.nbytes, b->stream);
        st = st == RCCLX_OK ? b->gpu->stream_sync(b->stream) : st;
    }
    free(stage);
    return st;
}

/* Of all sizes the largest has the most lanes; another may have a unit more for each. */
static rcclx_status make_memory(perf_bench *b)
{
    const spread s = spread_of(b, b->config->max);

    b->times = calloc((size_t)b->config->repeats, PERF_WAYS * sizeof(double));
    if (!b->times)
        return RCCLX_FAIL(RCCLX_NOMEM, "no memory for %d measurements", b->config->repeats);
    RCCLX_TRY(b->gpu->alloc(&b->state, sizeof(gp_state), false));
    RCCLX_TRY(b->gpu->alloc(&b->in, b->config->max, false));
    RCCLX_TRY(b->gpu->alloc(&b->out, b->config->max + 4, false));
    return b->gpu->alloc(&b->runs, (size_t)s.lanes * (s.stage + 2 * UNIT), false);
}

rcclx_status perf_bench_open(perf_bench *b)
{
    RCCLX_TRY(b->gpu->info(0, &b->info));
    b->most    = b->info.sms < GP_CODED_BLOCKS ? b->info.sms : GP_CODED_BLOCKS;
    b->threads = b->gpu->kind == RCCLX_GPU_EMU ? EMULATED_THREADS : THREADS;
    perf_rule_init(&b->rule, b->config->type, PERF_MOVE, 1, PERF_INT8);
    RCCLX_TRY(b->gpu->enter(&b->scope, 0));
    RCCLX_TRY(b->gpu->stream_create(&b->stream));
    RCCLX_TRY(b->gpu->event_create(&b->from, true));
    RCCLX_TRY(b->gpu->event_create(&b->to, true));
    RCCLX_TRY(load(b));
    RCCLX_TRY(make_memory(b));
    return fill(b);
}

void perf_bench_close(perf_bench *b)
{
    void *const memory[] = {b->runs, b->out, b->in, b->state};

    if (!b->stream)
        return;
    for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++)
        if (memory[i])
            b->gpu->free(memory[i]);
    if (b->module)
        b->gpu->unload(b->module);
    if (b->from)
        b->gpu->event_destroy(b->from);
    if (b->to)
        b->gpu->event_destroy(b->to);
    b->gpu->stream_destroy(b->stream);
    b->gpu->leave(&b->scope);
    free(b->times);
}
