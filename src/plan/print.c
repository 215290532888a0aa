/* Plans as text and as JSON.
 *
 *   direct all_reduce, rank 1 of 3, 16.0 KiB in 3 blocks
 *     0 wait    all phase 0 (header)
 *     1 reduce  in@0[1]* in@1[1]* in@2[1]* -> out@1[1] out@2[1] out@0[1]    5.3 KiB
 *     2 signal  phase 1
 *
 * buffer@rank[block]; * is a rank's raw contribution; ll and ll128 are slots with flags. */
#include "plan/plan.h"

#include "base/json.h"
#include "plan/ranks.h"

#include <string.h>

static const char *const step_words[] = { "copy", "reduce", "signal", "wait" };
static const char *const cut_words[] = { "even", "split", "table" };
static const char *const proto_words[] = { "simple", "ll", "ll128" };
static const char *const buf_words[] = { "in", "out", "slot" };

static void print_bytes(char *text, size_t ntext, double nbytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    int u = 0;

    for (; nbytes >= 1024 && u < 4; u++)
        nbytes /= 1024;
    snprintf(text, ntext, u ? "%.1f %s" : "%.0f %s", nbytes, units[u]);
}

static size_t step_bytes(const rcclx_plan *p, const rcclx_step *st, size_t count, size_t size)
{
    size_t sum = 0, begin, length;

    for (int i = 0; i < st->nblk; i++) {
        rcclx_plan_block(p, count, size, rcclx_ranks_first_block(p, st) + i, &begin, &length);
        sum += length * size;
    }
    return sum;
}

static bool moves(const rcclx_step *st)
{
    return st->op == RCCLX_STEP_COPY || st->op == RCCLX_STEP_REDUCE;
}

/* --- text ------------------------------------------------------------------- */

static int print_ref(FILE *out, const rcclx_step *st, const rcclx_ref *ref)
{
    const char *buf = rcclx_ranks_is_slot(st, ref) ? proto_words[st->proto < 3 ? st->proto : 0] : buf_words[ref->buf];
    const char *raw = ref->raw ? "*" : "";

    if (st->nblk > 1)
        return fprintf(out, "%s@%d[%d..%d]%s ", buf, ref->rank, ref->block, ref->block + st->nblk - 1, raw);
    return fprintf(out, "%s@%d[%d]%s ", buf, ref->rank, ref->block, raw);
}

static void print_move(FILE *out, const rcclx_plan *p, const rcclx_step *st, size_t count, size_t size)
{
    char bytes[32];
    int width = 0;

    for (int k = 0; k < st->nsrc + st->ndst; k++) {
        if (k == st->nsrc)
            width += fprintf(out, "-> ");
        width += print_ref(out, st, &p->refs[st->first + (uint32_t)k]);
    }
    if (p->cut != RCCLX_CUT_TABLE) {
        print_bytes(bytes, sizeof(bytes), (double)step_bytes(p, st, count, size));
        fprintf(out, "%*s%s", width < 60 ? 60 - width : 2, "", bytes);
    }
}

static void print_wait(FILE *out, const rcclx_step *st)
{
    static const char *const lags[] = { "", ", of the lane's previous piece", ", after the lane's last piece" };

    if (st->peer == RCCLX_ALL)
        fprintf(out, "all ");
    else
        fprintf(out, "rank %d ", st->peer);
    fprintf(out, "phase %d%s%s", st->phase, st->phase ? "" : " (header)",
            lags[st->lag < 3 ? st->lag : 0]);
}

static void print_head(FILE *out, const rcclx_plan *p, size_t count, size_t size)
{
    char bytes[32];

    print_bytes(bytes, sizeof(bytes), (double)count * (double)size);
    fprintf(out, "%s %s, rank %d of %d", p->algo, rcclx_kind_word(p->shape.kind), p->shape.rank, p->shape.nranks);
    if (rcclx_kind_rooted(p->shape.kind))
        fprintf(out, ", root %d", p->shape.root);
    if (p->cut == RCCLX_CUT_TABLE)
        fprintf(out, ", blocks as the caller says");
    else if (p->cut == RCCLX_CUT_SPLIT)
        fprintf(out, ", %s in %d block%s", bytes, p->nblocks, p->nblocks == 1 ? "" : "s");
    else if (p->parts > 1)
        fprintf(out, ", %s a rank's block, in %d parts", bytes, p->parts);
    else
        fprintf(out, ", %s a block", bytes);
    if (p->shape.coded)
        fprintf(out, ", scratch in low precision");
    if (p->pieced)
        fprintf(out, ", piece by piece through %d slot%s a lane", p->nslots, p->nslots == 1 ? "" : "s");
    if (p->pushes)
        fprintf(out, ", pushed into %d slot%s a rank%s", p->nslots, p->nslots == 1 ? "" : "s",
                p->credit ? "; the next operation waits for its headers" : "");
    fprintf(out, "\n");
}

void rcclx_plan_print(FILE *out, const rcclx_plan *p, size_t count, size_t size)
{
    print_head(out, p, count, size);
    for (uint32_t i = 0; i < p->nsteps; i++) {
        const rcclx_step *st = &p->steps[i];
        fprintf(out, "%3u %-7s ", i, step_words[st->op & 3]);
        if (moves(st))
            print_move(out, p, st, count, size);
        else if (st->op == RCCLX_STEP_WAIT)
            print_wait(out, st);
        else
            fprintf(out, "phase %d", st->phase);
        fprintf(out, "\n");
    }
}

/* --- JSON --------------------------------------------------------------------- */

static void json_refs(rcclx_json *j, const char *key, const rcclx_plan *p, const rcclx_step *st, int from, int to)
{
    rcclx_json_array_open(j, key);
    for (int k = from; k < to; k++) {
        const rcclx_ref *ref = &p->refs[st->first + (uint32_t)k];
        rcclx_json_object_open(j, NULL);
        rcclx_json_string(j, "buffer", buf_words[ref->buf]);
        rcclx_json_int(j, "rank", ref->rank);
        rcclx_json_int(j, "block", ref->block);
        rcclx_json_bool(j, "raw", ref->raw);
        rcclx_json_object_close(j);
    }
    rcclx_json_array_close(j);
}

static void json_move(rcclx_json *j, const rcclx_plan *p, const rcclx_step *st, size_t count, size_t size)
{
    rcclx_json_string(j, "protocol", proto_words[st->proto < 3 ? st->proto : 0]);
    rcclx_json_int(j, "blocks", st->nblk);
    if (p->cut != RCCLX_CUT_TABLE)
        rcclx_json_int(j, "bytes", (int64_t)step_bytes(p, st, count, size));
    rcclx_json_bool(j, "final", st->final);
    json_refs(j, "from", p, st, 0, st->nsrc);
    json_refs(j, "to", p, st, st->nsrc, st->nsrc + st->ndst);
}

static void json_step(rcclx_json *j, const rcclx_plan *p, const rcclx_step *st, size_t count, size_t size)
{
    rcclx_json_object_open(j, NULL);
    rcclx_json_string(j, "do", step_words[st->op & 3]);
    if (moves(st)) {
        json_move(j, p, st, count, size);
    } else {
        if (st->op == RCCLX_STEP_WAIT) {
            if (st->peer == RCCLX_ALL)
                rcclx_json_string(j, "peer", "all");
            else
                rcclx_json_int(j, "peer", st->peer);
            rcclx_json_int(j, "lag", st->lag == RCCLX_LAG_PREVIOUS);
            rcclx_json_bool(j, "after_last", st->lag == RCCLX_LAG_END);
        }
        rcclx_json_int(j, "phase", st->phase);
    }
    rcclx_json_object_close(j);
}

void rcclx_plan_json(FILE *out, const rcclx_plan *p, size_t count, size_t size)
{
    rcclx_json j;

    rcclx_json_init(&j, out);
    rcclx_json_object_open(&j, NULL);
    rcclx_json_string(&j, "algorithm", p->algo);
    rcclx_json_string(&j, "collective", rcclx_kind_word(p->shape.kind));
    rcclx_json_int(&j, "ranks", p->shape.nranks);
    rcclx_json_int(&j, "rank", p->shape.rank);
    if (rcclx_kind_rooted(p->shape.kind))
        rcclx_json_int(&j, "root", p->shape.root);
    rcclx_json_int(&j, "bytes", (int64_t)(count * size));
    rcclx_json_string(&j, "cut", cut_words[p->cut < 3 ? p->cut : 0]);
    rcclx_json_int(&j, "blocks", p->nblocks);
    rcclx_json_int(&j, "parts", p->parts);
    rcclx_json_bool(&j, "coded", p->shape.coded);
    rcclx_json_bool(&j, "pieced", p->pieced);
    rcclx_json_bool(&j, "pushes", p->pushes);
    rcclx_json_bool(&j, "credit", p->credit);
    rcclx_json_int(&j, "slots", p->nslots);
    rcclx_json_array_open(&j, "steps");
    for (uint32_t i = 0; i < p->nsteps; i++)
        json_step(&j, p, &p->steps[i], count, size);
    rcclx_json_array_close(&j);
    rcclx_json_object_close(&j);
}
