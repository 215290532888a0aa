/* Which codec runs on the wire: what call, communicator, kind, type, operator,
 * size, ranks and device make of each other. Nothing is sent here. */
#include "check.h"
#include "settings.h"

#include "base/log.h"
#include "exec/precision.h"
#include "exec/runner.h"

enum { NONE = RCCLX_CODEC_NONE, FP8 = RCCLX_CODEC_FP8, INT8 = RCCLX_CODEC_INT8, MIB = 1 << 20, ALL = (1 << RCCLX_KIND_COUNT) - 1 };
enum { PLAIN, OFF = 1 + NONE, ASK_FP8 = 1 + FP8, ASK_INT8 = 1 + INT8 }; /* what a call says */

static rcclx_team      team;
static const rcclx_gpu gpu = { .name = "gpu", .kind = RCCLX_GPU_CUDA }, emulated = { .name = "emu", .kind = RCCLX_GPU_EMU };

enum { ON_HOST, ON_GPU, ON_EMULATED };

static void make_team(int n, int where, rcclx_codec_id codec, size_t min)
{
    team = (rcclx_team){ .nranks = n, .rank = 1 % n, .driver = where == ON_GPU ? &gpu : where == ON_EMULATED ? &emulated : NULL };
    rcclx_precision_set(&team, codec, min);
}

static rcclx_op op_of(rcclx_kind kind, rcclx_type type, rcclx_redop op, size_t count)
{
    return (rcclx_op){ .kind = kind, .team = &team, .count = count, .type = type, .op = rcclx_kind_reduces(kind) ? op : RCCLX_COPY };
}

/* A call's codec in words, and that what runs is counted. */
static int resolved(rcclx_op *op)
{
    const uint64_t before = team.coded[op->kind];
    const rcclx_status s = rcclx_op_resolve(op);

    CHECK(s == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(team.coded[op->kind] == before + (op->codec != NONE), "%d calls are counted", (int)(team.coded[op->kind] - before));
    return op->codec;
}

static int message(const rcclx_op *op, size_t count)
{
    return (int)rcclx_message_codec(op, count);
}

typedef struct {
    const char *what;
    rcclx_kind  kind;
    rcclx_type  type;
    rcclx_redop op;
    size_t      count;
    int         ranks, gpu, codec;
    size_t      min;
    int         asked, want;
} row;

#define AR RCCLX_ALL_REDUCE
#define RS RCCLX_REDUCE_SCATTER
#define AG RCCLX_ALL_GATHER
#define AA RCCLX_ALL_TO_ALL
#define BC RCCLX_BROADCAST
#define F  RCCLX_F32
#define S  RCCLX_SUM

static const row rows[] = {
    { "nobody asks",                      AR, F, S, 64 * MIB, 4, 1, NONE, 0, PLAIN, NONE },
    { "a minimum alone asks nothing",     AR, F, S, 64 * MIB, 4, 1, NONE, 1, PLAIN, NONE },
    { "large on GPUs",                    AR, F, S, 2 * MIB, 4, 1, FP8, 0, PLAIN, FP8 },
    { "one byte less",                    AR, F, S, 2 * MIB - 1, 4, 1, FP8, 0, PLAIN, NONE },
    { "sixteen ranks",                    AR, F, S, 2 * MIB, 16, 1, INT8, 0, PLAIN, INT8 },
    { "two ranks",                        AR, F, S, MIB, 2, 1, INT8, 0, PLAIN, INT8 },
    { "two ranks, one less",              AR, F, S, MIB - 1, 2, 1, INT8, 0, PLAIN, NONE },
    { "never on the host by itself",      AR, F, S, 512 * MIB, 4, 0, FP8, 0, PLAIN, NONE },
    { "on the host by name",              AR, F, S, 1024, 4, 0, FP8, 4096, PLAIN, FP8 },
    { "below the minimum",                AR, F, S, 1023, 4, 0, FP8, 4096, PLAIN, NONE },
    { "on GPUs by name, below the table", AR, F, S, 1024, 4, 1, FP8, 4096, PLAIN, FP8 },
    { "above the table, below the name",  AR, F, S, 4 * MIB, 4, 1, FP8, 32 * MIB, PLAIN, NONE },
    { "two bytes an element",             AR, RCCLX_BF16, S, 8 * MIB, 4, 1, INT8, 0, PLAIN, INT8 },
    { "two bytes, too few",               AR, RCCLX_F16, S, 8 * MIB - 1, 4, 1, INT8, 0, PLAIN, NONE },
    { "the longest buffer counts: RS",    RS, F, S, MIB, 4, 1, INT8, 0, PLAIN, INT8 },
    { "RS, one less",                     RS, F, S, MIB - 1, 4, 1, INT8, 0, PLAIN, NONE },
    { "AG",                               AG, F, S, MIB, 4, 1, INT8, 0, PLAIN, INT8 },
    { "AG, one less",                     AG, F, S, MIB - 1, 4, 1, INT8, 0, PLAIN, NONE },
    { "AlltoAll",                         AA, F, S, MIB, 4, 1, INT8, 0, PLAIN, INT8 },
    { "AlltoAll, one less",               AA, F, S, MIB - 1, 4, 1, INT8, 0, PLAIN, NONE },
    { "Broadcast",                        BC, F, S, 4 * MIB, 4, 1, INT8, 0, PLAIN, INT8 },
    { "Broadcast, one less",              BC, F, S, 4 * MIB - 1, 4, 1, INT8, 0, PLAIN, NONE },
    { "messages need more",               RCCLX_SEND, F, S, 4 * MIB, 4, 2, FP8, 0, PLAIN, FP8 },
    { "not yet on hardware",              RCCLX_SEND, F, S, 4 * MIB, 4, 1, FP8, 1, PLAIN, NONE },
    { "a message, one less",              RCCLX_RECV, F, S, 4 * MIB - 1, 4, 2, FP8, 0, PLAIN, NONE },
    { "avg",                              AR, F, RCCLX_AVG, 2 * MIB, 4, 1, FP8, 0, PLAIN, FP8 },
    { "max",                              AR, F, RCCLX_MAX, MIB, 4, 1, FP8, 0, PLAIN, NONE },
    { "prod",                             RS, F, RCCLX_PROD, MIB, 4, 1, FP8, 0, PLAIN, NONE },
    { "premul",                           AR, F, RCCLX_PREMUL, MIB, 4, 1, FP8, 0, PLAIN, NONE },
    { "double",                           AR, RCCLX_F64, S, MIB, 4, 1, FP8, 0, PLAIN, NONE },
    { "int32",                            AG, RCCLX_I32, S, MIB, 4, 1, FP8, 0, PLAIN, NONE },
    { "Reduce",                           RCCLX_REDUCE_TO, F, S, MIB, 4, 1, FP8, 1, PLAIN, NONE },
    { "Gather",                           RCCLX_GATHER, F, S, MIB, 4, 1, FP8, 1, PLAIN, NONE },
    { "Scatter",                          RCCLX_SCATTER, F, S, MIB, 4, 1, FP8, 1, PLAIN, NONE },
    { "one rank",                         AR, F, S, MIB, 1, 1, FP8, 1, PLAIN, NONE },
    { "nothing to send",                  AR, F, S, 0, 4, 1, FP8, 1, PLAIN, NONE },
    { "the call wins: other codec",       AR, F, S, MIB, 4, 1, FP8, 0, ASK_INT8, INT8 },
    { "the call wins: off",               AR, F, S, MIB, 4, 1, FP8, 0, OFF, NONE },
    { "the call needs no size",           AR, F, S, 1, 2, 0, NONE, 0, ASK_FP8, FP8 },
    { "nor a minimum's",                  AG, RCCLX_F16, S, 1, 2, 0, INT8, MIB, ASK_FP8, FP8 },
    { "but something to send",            AR, F, S, 0, 2, 0, NONE, 0, ASK_FP8, NONE },
    { "and to somebody",                  AR, F, S, 8, 1, 0, NONE, 0, ASK_FP8, NONE },
    { "off is never wrong",               RCCLX_GATHER, RCCLX_U8, S, 8, 4, 0, FP8, 1, OFF, NONE },
};

TEST(the_codec_of_an_operation)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const row *r = &rows[i];
        make_team(r->ranks, r->gpu, (rcclx_codec_id)r->codec, r->min);
        rcclx_op op = op_of(r->kind, r->type, r->op, r->count);
        op.precision = (uint8_t)r->asked;
        const int got = resolved(&op);
        CHECK(got == r->want, "%s: %s, not %s", r->what, rcclx_precision_name(got), rcclx_precision_name(r->want));
    }
}

TEST(a_bias_goes_in_full_precision)
{
    make_team(2, false, RCCLX_CODEC_INT8, 1);
    rcclx_op op = op_of(RCCLX_ALL_REDUCE, RCCLX_F32, RCCLX_SUM, 100);
    op.bias = &op;
    CHECK(resolved(&op) == NONE, "coded");
}

TEST(a_message_to_oneself_is_not_coded)
{
    make_team(4, false, RCCLX_CODEC_INT8, 1);
    for (int peer = 0; peer < 4; peer++) {
        rcclx_op op = op_of(RCCLX_SEND, RCCLX_F32, RCCLX_COPY, 100);
        op.root = peer;
        CHECK(resolved(&op) == (peer == team.rank ? NONE : INT8), "to %d", peer);
    }
}

/* All ranks need the same answer for the call, and both sides of a message for that. */
TEST(messages_of_an_all_to_all_v_decide_one_by_one)
{
    make_team(4, false, RCCLX_CODEC_FP8, 4096);
    rcclx_op op = op_of(RCCLX_ALL_TO_ALLV, RCCLX_BF16, RCCLX_COPY, 0);
    CHECK(resolved(&op) == FP8, "off");
    rcclx_precision_set(&team, RCCLX_CODEC_NONE, 0); /* the op keeps what it was posted with */
    CHECK(message(&op, 0) == NONE && message(&op, 2047) == NONE && message(&op, 2048) == FP8, "%zu",
          op.coded_from);
    op = op_of(RCCLX_ALL_TO_ALLV, RCCLX_BF16, RCCLX_COPY, 0);
    op.precision = ASK_INT8;
    CHECK(resolved(&op) == INT8 && message(&op, 0) == NONE && message(&op, 1) == INT8, "asked for");
    make_team(4, false, RCCLX_CODEC_FP8, 0); /* the host, and no minimum: never */
    op = op_of(RCCLX_ALL_TO_ALLV, RCCLX_BF16, RCCLX_COPY, 0);
    CHECK(resolved(&op) == NONE && message(&op, (size_t)1 << 40) == NONE, "on");
}

TEST(what_a_call_asks_for_in_vain_is_an_error)
{
    static const struct { rcclx_kind kind; rcclx_type type; rcclx_redop op; const char *call, *why; } bad[] = {
        { RCCLX_REDUCE_TO, RCCLX_F32, RCCLX_SUM, "Reduce of 0 float sum root 0 in int8", "no low precision for this collective" },
        { RCCLX_GATHER, RCCLX_F32, RCCLX_COPY, "Gather of 0 float root 0 in int8", "no low precision for this collective" },
        { RCCLX_SCATTER, RCCLX_F32, RCCLX_COPY, "Scatter of 0 float root 0 in int8", "no low precision for this collective" },
        { RCCLX_ALL_REDUCE, RCCLX_F64, RCCLX_SUM, "AllReduce of 0 double sum in int8", "only float, bfloat16 and half" },
        { RCCLX_ALL_REDUCE, RCCLX_F32, RCCLX_MAX, "AllReduce of 0 float max in int8", "only sum and avg" },
        { RCCLX_ALL_REDUCE, RCCLX_F32, RCCLX_PREMUL, "AllReduce of 0 float premul in int8", "only sum and avg" },
    };

    make_team(2, false, RCCLX_CODEC_NONE, 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rcclx_op op = op_of(bad[i].kind, bad[i].type, bad[i].op, 0);
        op.precision = ASK_INT8;
        const rcclx_status s = rcclx_op_resolve(&op);
        const char *text = rcclx_last_error();
        CHECK(s == RCCLX_ARGUMENT && strstr(text, "rank 1: ") && strstr(text, bad[i].call) && strstr(text, bad[i].why) &&
              strstr(text, "RCCLX_OPTION_LOW_PRECISION"), "%d: %s", (int)s, text);
    }
}

TEST(a_signature_says_the_codec)
{
    char text[160];

    make_team(64, true, RCCLX_CODEC_INT8, 1);
    rcclx_op op = op_of(RCCLX_ALL_REDUCE, RCCLX_F32, RCCLX_SUM, 1024);
    const uint32_t plain = rcclx_signature(&op);
    CHECK(resolved(&op) == INT8 && rcclx_signature(&op) != plain, "the same");
    rcclx_call_words(rcclx_signature(&op), op.count, text, sizeof text);
    CHECK(!strcmp(text, "AllReduce of 1024 float sum in int8"), "%s", text);
    op = op_of(RCCLX_BROADCAST, RCCLX_F16, RCCLX_COPY, 7);
    op.root = 63;
    rcclx_call_words(rcclx_signature(&op), op.count, text, sizeof text);
    CHECK(!strcmp(text, "Broadcast of 7 half root 63"), "%s", text);
    CHECK(resolved(&op) == INT8, "off");
    rcclx_call_words(rcclx_signature(&op), op.count, text, sizeof text);
    CHECK(!strcmp(text, "Broadcast of 7 half root 63 in int8"), "%s", text);
}

/* --- the log ---------------------------------------------------------------- */

TEST(a_cause_is_logged_once)
{
    settings_clear();
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_DEBUG_SUBSYS", "TUNING", 1);
    settings_reload();
    make_team(2, false, RCCLX_CODEC_FP8, 1);
    settings_capture();
    for (int i = 0; i < 3; i++) {
        rcclx_op a = op_of(RCCLX_ALL_REDUCE, RCCLX_F32, RCCLX_MAX, 10), b = op_of(RCCLX_ALL_GATHER, RCCLX_U8, RCCLX_COPY, 10);
        rcclx_op_resolve(&a);
        rcclx_op_resolve(&b);
    }
    const settings_output *got = settings_captured();
    CHECK(settings_has(got->out, "AllReduce of 10 float max goes in full precision: only sum and avg") == 1, "%s", got->out);
    CHECK(settings_has(got->out, "AllGather of 10 uint8 goes in full precision: only float") == 1, "%s", got->out);
    settings_clear();
    settings_reload();
}

/* --- settings ----------------------------------------------------------------- */

typedef struct {
    const char *set[3];
    const char *words; /* of rcclx_precision_words, on the host */
    uint16_t    kinds;
} wish;

#define ONLY(k) (uint16_t)(1u << RCCLX_##k)

static const wish wishes[] = {
    { { NULL }, "off (nobody asked)", 0 },
    { { "RCCLX_LOW_PRECISION=off" }, "off (RCCLX_LOW_PRECISION)", ALL },
    { { "RCCLX_LOW_PRECISION=INT8" }, "int8 but not on the host without a minimum (RCCLX_LOW_PRECISION)", ALL },
    { { "RCCL_LOW_PRECISION=fp8", "RCCL_LOW_PRECISION_MIN_BYTES=64K" }, "fp8 from 65536 bytes on (RCCLX_LOW_PRECISION)", ALL },
    { { "RCCL_LOW_PRECISION_ENABLE=1", "RCCL_LOW_PRECISION_ENABLE_INIT=1" },
      "fp8 but not on the host without a minimum (RCCL_LOW_PRECISION_ENABLE)", ALL },
    { { "RCCL_LOW_PRECISION_ENABLE=0" }, "off (nobody asked)", 0 },
    { { "RCCL_LOW_PRECISION_ENABLE_ALLREDUCE=1", "RCCL_LOW_PRECISION_ENABLE_ALLGATHER=1", "RCCLX_LOW_PRECISION_MIN_BYTES=1" },
      "fp8 AllReduce AllGather from 1 bytes on (RCCL_LOW_PRECISION_ENABLE)", ONLY(ALL_REDUCE) | ONLY(ALL_GATHER) },
    { { "RCCL_LOW_PRECISION_ENABLE_REDUCESCATTER=1" },
      "fp8 ReduceScatter but not on the host without a minimum (RCCL_LOW_PRECISION_ENABLE)", ONLY(REDUCE_SCATTER) },
    { { "RCCL_LOW_PRECISION_ENABLE_ALLTOALL=1" },
      "fp8 AlltoAll but not on the host without a minimum (RCCL_LOW_PRECISION_ENABLE)", ONLY(ALL_TO_ALL) },
    { { "RCCL_LOW_PRECISION_ENABLE=1", "RCCLX_LOW_PRECISION=int8", "RCCLX_LOW_PRECISION_MIN_BYTES=2M" },
      "int8 from 2097152 bytes on (RCCLX_LOW_PRECISION)", ALL },
    { { "RCCL_LOW_PRECISION_ENABLE=1", "RCCLX_LOW_PRECISION=off" }, "off (RCCLX_LOW_PRECISION)", ALL },
};

static const settings_output *apply(const wish *w)
{
    settings_clear();
    for (int i = 0; i < 3 && w->set[i]; i++) {
        char name[128];
        const char *eq = strchr(w->set[i], '=');
        snprintf(name, sizeof name, "%.*s", (int)(eq - w->set[i]), w->set[i]);
        setenv(name, eq + 1, 1);
    }
    return settings_reload();
}

TEST(settings_say_codec_kinds_and_minimum)
{
    rcclx_agreed a;
    char words[300];

    for (size_t i = 0; i < sizeof wishes / sizeof wishes[0]; i++) {
        const settings_output *got = apply(&wishes[i]);
        CHECK(!*got->err, "%s", got->err);
        make_team(2, false, RCCLX_CODEC_NONE, 0);
        rcclx_precision_decide(&a);
        rcclx_precision_agree(&team, &a);
        rcclx_precision_words(&team, words, sizeof words);
        CHECK(!strcmp(words, wishes[i].words) && team.precision.kinds == wishes[i].kinds, "%s, %x", words, team.precision.kinds);
    }
    settings_clear();
    settings_reload();
}

/* Kinds that were not switched on stay as they are, without a word. */
TEST(other_kinds_stay_exact)
{
    rcclx_agreed a;

    apply(&(wish){ .set = { "RCCL_LOW_PRECISION_ENABLE_ALLREDUCE=1", "RCCLX_LOW_PRECISION_MIN_BYTES=1" } });
    make_team(2, false, RCCLX_CODEC_NONE, 0);
    rcclx_precision_decide(&a);
    rcclx_precision_agree(&team, &a);
    for (int k = 0; k < RCCLX_KIND_COUNT; k++) {
        rcclx_op op = op_of((rcclx_kind)k, RCCLX_F32, RCCLX_SUM, 1000);
        CHECK(resolved(&op) == (k == RCCLX_ALL_REDUCE ? FP8 : NONE), "%s", rcclx_kind_name((rcclx_kind)k));
    }
    settings_clear();
    settings_reload();
}

TEST(bad_settings_leave_it_off_and_say_what_there_is)
{
    const settings_output *got = apply(&(wish){ .set = { "RCCLX_LOW_PRECISION=itn8" } });

    CHECK(settings_has(got->err, "RCCLX_LOW_PRECISION=itn8 (environment) is not understood: using the default off; "
                       "allowed: off, fp8, int8; did you mean int8?") == 1, "%s", got->err);
    CHECK(rcclx_option_int(RCCLX_OPT_LOW_PRECISION) == NONE, "on");
    got = apply(&(wish){ .set = { "RCCLX_LOW_PRECISION=bfloat16" } });
    CHECK(settings_has(got->err, "allowed: off, fp8, int8") == 1 && !settings_has(got->err, "did you mean"), "%s", got->err);
    got = apply(&(wish){ .set = { "RCCLX_LOW_PRECISION_MIN_BYTES=-4" } });
    CHECK(settings_has(got->err, "RCCLX_LOW_PRECISION_MIN_BYTES=-4 (environment) is out of range: using 0") == 1, "%s", got->err);
    settings_clear();
    settings_reload();
}
