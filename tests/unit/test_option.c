#include "check.h"
#include "settings.h"

#include "base/optvalue.h"

#include <locale.h>

/* First, since values are read once a process: eight threads race for it. */
static atomic_int gate;

static int read_at_once(int rank, int n, void *arg)
{
    (void)rank, (void)arg;
    atomic_fetch_add(&gate, 1);
    while (atomic_load(&gate) < n)
        sched_yield();
    return !(rcclx_option_int(RCCLX_OPT_SPIN_US) == 77 && !strcmp(rcclx_option_str(RCCLX_OPT_HOSTID), "here"));
}

TEST(threads_that_read_first_see_whole_values_and_one_warning)
{
    settings_clear();
    setenv("RCCLX_SPIN_US", "77", 1);
    setenv("NCCL_HOSTID", "here", 1);
    setenv("NCCL_DEBGU", "INFO", 1);
    settings_capture();
    int nbad = run_ranks_as_threads(8, read_at_once, NULL);
    const settings_output *got = settings_captured();
    CHECK(nbad == 0, "%d threads", nbad);
    CHECK(settings_has(got->err, "NCCL_DEBGU") == 1, "%s", got->err);
}

/* The table. */

static const char *const accepted[] = {
#define X(name) name,
    RCCLX_OPTION_ACCEPTED_LIST(X)
#undef X
};
enum { NACCEPTED = sizeof(accepted) / sizeof(accepted[0]) };

TEST(every_default_is_a_value_of_its_row)
{
    for (rcclx_option o = 0; o < RCCLX_OPT_COUNT; o++) {
        const rcclx_optrow *row = rcclx_option_row(o);
        rcclx_optvalue v = { 0 };
        char text[256];
        CHECK(rcclx_optvalue_parse(row, row->preset, &v) == RCCLX_OPT_TAKEN, "%s: %s", row->name, row->preset);
        rcclx_optvalue_print(row, &v, text, sizeof(text));
        CHECK(!strcmp(text, row->preset), "%s: %s prints as %s", row->name, row->preset, text);
        CHECK(*row->help && row->imin <= row->imax && row->rmin <= row->rmax, "%s", row->name);
    }
}

TEST(every_name_is_known_once)
{
    for (int i = 0; i < NACCEPTED; i++) {
        CHECK(settings_is_ours(accepted[i]) || !strncmp(accepted[i], "RCCLX_", 6), "%s", accepted[i]);
        for (rcclx_option o = 0; o < RCCLX_OPT_COUNT; o++)
            CHECK(strcmp(rcclx_option_row(o)->name, accepted[i]), "%s is row and accepted", accepted[i]);
        for (int k = 0; k < i; k++)
            CHECK(strcmp(accepted[k], accepted[i]), "%s twice", accepted[i]);
    }
    for (rcclx_option o = 0; o < RCCLX_OPT_COUNT; o++)
        for (rcclx_option p = 0; p < o; p++)
            CHECK(strcmp(rcclx_option_row(o)->name, rcclx_option_row(p)->name), "%s twice", rcclx_option_row(o)->name);
}

/* Text to value. */

typedef struct {
    const char *text;
    int         verdict;
    double      value;
} sample;

static void check_samples(const rcclx_optrow *row, const sample *samples)
{
    for (const sample *s = samples; s->text; s++) {
        rcclx_optvalue v = { .i = -99, .r = -99 };
        int verdict = (int)rcclx_optvalue_parse(row, s->text, &v);
        double value = row->type == RCCLX_OPTTYPE_SECONDS || row->type == RCCLX_OPTTYPE_REAL ? v.r : (double)v.i;
        CHECK(verdict == s->verdict, "%s \"%s\": verdict %d", rcclx_opttype_name(row->type), s->text, verdict);
        CHECK(value == s->value, "%s \"%s\": %.17g", rcclx_opttype_name(row->type), s->text, value);
    }
}

enum { TAKEN = RCCLX_OPT_TAKEN, MOVED = RCCLX_OPT_MOVED, REFUSED = RCCLX_OPT_REFUSED };

TEST(integers)
{
    const rcclx_optrow row = { .type = RCCLX_OPTTYPE_INT, .imin = -1, .imax = 100 };
    check_samples(&row, (const sample[]){
        { "0", TAKEN, 0 }, { "100", TAKEN, 100 }, { "-1", TAKEN, -1 }, { "0x10", TAKEN, 16 }, { "010", TAKEN, 8 },
        { " 7 ", TAKEN, 7 }, { "+5", TAKEN, 5 }, { "101", MOVED, 100 }, { "-2", MOVED, -1 },
        { "99999999999999999999", MOVED, 100 }, { "-99999999999999999999", MOVED, -1 }, { "abc", REFUSED, -99 },
        { "1x", REFUSED, -99 }, { "1.5", REFUSED, -99 }, { "", REFUSED, -99 }, { " ", REFUSED, -99 },
        { "8 9", REFUSED, -99 }, { "0x", REFUSED, -99 }, { NULL, TAKEN, 0 } });
}

TEST(switches)
{
    const rcclx_optrow row = { .type = RCCLX_OPTTYPE_BOOL, .imin = 0, .imax = 1 };
    check_samples(&row, (const sample[]){
        { "0", TAKEN, 0 }, { "1", TAKEN, 1 }, { "True", TAKEN, 1 }, { "OFF", TAKEN, 0 }, { " yes ", TAKEN, 1 },
        { "no", TAKEN, 0 }, { "2", MOVED, 1 }, { "-1", MOVED, 0 }, { "only", REFUSED, -99 }, { "truely", REFUSED, -99 },
        { "nope", REFUSED, -99 }, { NULL, TAKEN, 0 } });
}

TEST(sizes)
{
    const rcclx_optrow row = { .type = RCCLX_OPTTYPE_SIZE, .imin = 16, .imax = INT64_C(1) << 41 };
    check_samples(&row, (const sample[]){
        { "4096", TAKEN, 4096 }, { "8K", TAKEN, 8192 }, { "8k", TAKEN, 8192 }, { "8KiB", TAKEN, 8192 },
        { "8KB", TAKEN, 8192 }, { "100B", TAKEN, 100 }, { "3M", TAKEN, 3145728 }, { "1G", TAKEN, 1073741824 },
        { "2T", TAKEN, 2199023255552.0 }, { "3T", MOVED, 2199023255552.0 }, { "0", MOVED, 16 }, { "-1K", MOVED, 16 },
        { "9999999999999T", MOVED, 2199023255552.0 }, { "-9999999999999T", MOVED, 16 }, { "99999999999999999999", MOVED, 2199023255552.0 },
        { "K", REFUSED, -99 }, { "1KK", REFUSED, -99 }, { "1P", REFUSED, -99 }, { "1.5M", REFUSED, -99 }, { NULL, TAKEN, 0 } });
}

TEST(seconds)
{
    const rcclx_optrow row = { .type = RCCLX_OPTTYPE_SECONDS, .rmin = 0.1, .rmax = 1e6 };
    check_samples(&row, (const sample[]){
        { "0.1", TAKEN, 0.1 }, { "300", TAKEN, 300 }, { "2.5", TAKEN, 2.5 }, { "5s", TAKEN, 5 }, { "250ms", TAKEN, 0.25 },
        { "2m", TAKEN, 120 }, { "1.5h", TAKEN, 5400 }, { "1e3", TAKEN, 1000 }, { "25e-1", TAKEN, 2.5 }, { ".5", TAKEN, 0.5 },
        { "3.", TAKEN, 3 }, { " 7 s ", REFUSED, -99 }, { "0", MOVED, 0.1 }, { "-5", MOVED, 0.1 }, { "1e400", MOVED, 1e6 },
        { "-1e999999999999", MOVED, 0.1 }, { "1e-400", MOVED, 0.1 }, { "1,5", REFUSED, -99 }, { "nan", REFUSED, -99 },
        { "inf", REFUSED, -99 }, { "soon", REFUSED, -99 }, { ".", REFUSED, -99 }, { "5d", REFUSED, -99 }, { "", REFUSED, -99 },
        { NULL, TAKEN, 0 } });
    char endless[1000];
    memset(endless, '9', sizeof(endless) - 1);
    endless[sizeof(endless) - 1] = '\0';
    check_samples(&row, (const sample[]){ { endless, MOVED, 1e6 }, { NULL, TAKEN, 0 } });
    const rcclx_optrow number = { .type = RCCLX_OPTTYPE_REAL, .rmin = -10, .rmax = 10 };
    check_samples(&number, (const sample[]){ { "-2.25", TAKEN, -2.25 }, { "5s", REFUSED, -99 }, { "11", MOVED, 10 }, { NULL, TAKEN, 0 } });
}

TEST(words)
{
    const rcclx_optrow row = { .type = RCCLX_OPTTYPE_ENUM, .words = "auto|host|hosted" };
    check_samples(&row, (const sample[]){
        { "auto", TAKEN, 0 }, { "HOST", TAKEN, 1 }, { "hosted ", TAKEN, 2 }, { "hos", REFUSED, -99 }, { "hoste", REFUSED, -99 },
        { "auto|host", REFUSED, -99 }, { "", REFUSED, -99 }, { NULL, TAKEN, 0 } });
}

TEST(numbers_do_not_follow_the_locale)
{
    const rcclx_optrow row = { .type = RCCLX_OPTTYPE_SECONDS, .rmax = 100 };
    rcclx_optvalue v = { 0 };
    char text[32];

    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8") && !setlocale(LC_NUMERIC, "fr_FR.UTF-8"))
        SKIP("no locale with a decimal comma");
    CHECK(rcclx_optvalue_parse(&row, "2.5", &v) == RCCLX_OPT_TAKEN && v.r == 2.5, "%g", v.r);
    rcclx_optvalue_print(&row, &v, text, sizeof(text));
    setlocale(LC_NUMERIC, "C");
    CHECK(!strcmp(text, "2.5"), "%s", text);
}

/* Who wins. */

TEST(an_unset_row_has_its_default)
{
    settings_clear();
    const settings_output *got = settings_reload();
    CHECK(!*got->out && !*got->err, "printed: %s%s", got->out, got->err);
    CHECK(rcclx_option_real(RCCLX_OPT_INIT_TIMEOUT) == 300, "%g", rcclx_option_real(RCCLX_OPT_INIT_TIMEOUT));
    CHECK(rcclx_option_int(RCCLX_OPT_LL_BYTES) == 8192, "%d", (int)rcclx_option_int(RCCLX_OPT_LL_BYTES));
    CHECK(!strcmp(rcclx_option_str(RCCLX_OPT_ALGO), ""), "%s", rcclx_option_str(RCCLX_OPT_ALGO));
    for (rcclx_option o = 0; o < RCCLX_OPT_COUNT; o++)
        CHECK(!rcclx_option_is_set(o) && !strcmp(rcclx_option_source(o), "default"), "%s", rcclx_option_row(o)->name);
}

TEST(all_three_prefixes_are_read_and_the_longest_wins)
{
    settings_clear();
    static const char *const names[] = { "NCCL_MIN_CTAS", "RCCL_MIN_CTAS", "RCCLX_MIN_CTAS" };
    for (int i = 0; i < 3; i++) {
        char value[16];
        snprintf(value, sizeof(value), "%d", 3 + i);
        setenv(names[i], value, 1);
        const settings_output *got = settings_reload();
        CHECK(!*got->err, "%s", got->err);
        CHECK(rcclx_option_int(RCCLX_OPT_MIN_CTAS) == 3 + i, "%s: %d", names[i], (int)rcclx_option_int(RCCLX_OPT_MIN_CTAS));
    }
    /* In the other order of arrival too. */
    setenv("NCCL_MIN_CTAS", "9", 1);
    settings_reload();
    CHECK(rcclx_option_int(RCCLX_OPT_MIN_CTAS) == 5, "%d", (int)rcclx_option_int(RCCLX_OPT_MIN_CTAS));
}

TEST(a_row_of_ours_has_no_nccl_name)
{
    settings_clear();
    setenv("RCCL_TIMEOUT", "7", 1);
    setenv("NCCL_TIMEOUT", "8", 1);
    const settings_output *got = settings_reload();
    CHECK(rcclx_option_real(RCCLX_OPT_TIMEOUT) == 7, "%g", rcclx_option_real(RCCLX_OPT_TIMEOUT));
    CHECK(settings_has(got->err, "NCCL_TIMEOUT (environment)") && settings_has(got->err, "did you mean RCCLX_TIMEOUT?"),
          "%s", got->err);
}

TEST(names_that_two_rows_share_go_to_the_row_called_so)
{
    settings_clear();
    setenv("RCCLX_ALGO", "flat", 1);
    setenv("RCCL_ALGO", "ring", 1);
    settings_reload();
    CHECK(!strcmp(rcclx_option_str(RCCLX_OPT_X_ALGO), "flat"), "%s", rcclx_option_str(RCCLX_OPT_X_ALGO));
    CHECK(!strcmp(rcclx_option_str(RCCLX_OPT_ALGO), "ring"), "%s", rcclx_option_str(RCCLX_OPT_ALGO));
}

TEST(environment_wins_over_the_file_and_empty_lets_it_through)
{
    settings_clear();
    settings_write_home_file("# a comment\r\n"
                             "  NCCL_MIN_CTAS = 4   # fewest\r\n"
                             "NCCL_MIN_CTAS=5\n"
                             "RCCLX_MAX_CTAS=6\n"
                             "NCCL_MAX_CTAS=7\n"
                             "NCCL_HOSTID=a#b=c\n"
                             "\n"
                             "RCCLX_TIMEOUT=9"); /* no newline */
    setenv("NCCL_MAX_CTAS", "8", 1);
    setenv("RCCLX_TIMEOUT", "", 1);
    const settings_output *got = settings_reload();
    CHECK(!*got->err, "%s", got->err);
    CHECK(rcclx_option_int(RCCLX_OPT_MIN_CTAS) == 4, "%d", (int)rcclx_option_int(RCCLX_OPT_MIN_CTAS));
    CHECK(strstr(rcclx_option_source(RCCLX_OPT_MIN_CTAS), "/.nccl.conf"), "%s", rcclx_option_source(RCCLX_OPT_MIN_CTAS));
    CHECK(rcclx_option_int(RCCLX_OPT_MAX_CTAS) == 8, "%d", (int)rcclx_option_int(RCCLX_OPT_MAX_CTAS));
    CHECK(!strcmp(rcclx_option_source(RCCLX_OPT_MAX_CTAS), "environment"), "%s", rcclx_option_source(RCCLX_OPT_MAX_CTAS));
    CHECK(!strcmp(rcclx_option_str(RCCLX_OPT_HOSTID), "a#b=c"), "%s", rcclx_option_str(RCCLX_OPT_HOSTID));
    CHECK(rcclx_option_real(RCCLX_OPT_TIMEOUT) == 9, "%g", rcclx_option_real(RCCLX_OPT_TIMEOUT));
}

TEST(nccl_conf_file_takes_the_place_of_the_home_file)
{
    char path[128];

    settings_clear();
    settings_write_home_file("NCCL_MIN_CTAS=4\n");
    snprintf(path, sizeof(path), "%s/other", settings_state_home);
    FILE *f = fopen(path, "w");
    REQUIRE(f, "%s", path);
    fputs("NCCL_MAX_CTAS=5\nNCCL_MIN_CATS=1\nnonsense\nSHELL=x\n", f);
    fclose(f);
    setenv("NCCL_CONF_FILE", path, 1);
    const settings_output *got = settings_reload();
    CHECK(rcclx_option_int(RCCLX_OPT_MIN_CTAS) == 1, "%d", (int)rcclx_option_int(RCCLX_OPT_MIN_CTAS));
    CHECK(rcclx_option_int(RCCLX_OPT_MAX_CTAS) == 5, "%d", (int)rcclx_option_int(RCCLX_OPT_MAX_CTAS));
    CHECK(settings_has(got->err, "/other:2) is not a setting") && settings_has(got->err, "did you mean NCCL_MIN_CTAS?"), "%s", got->err);
    CHECK(settings_has(got->err, "/other:3: the line is not NAME=VALUE"), "%s", got->err);
    CHECK(!settings_has(got->err, "SHELL ("), "%s", got->err);
    unlink(path);
    got = settings_reload();
    CHECK(settings_has(got->err, "/other cannot be read (No such file"), "%s", got->err);
}

TEST(what_is_too_long_is_refused_loudly)
{
    static char text[40000];

    settings_clear();
    memset(text, 'x', 5000);
    setenv("NCCL_HOSTID", text, 1);
    const settings_output *got = settings_reload();
    CHECK(settings_has(got->err, "NCCL_HOSTID (environment) is too long"), "%s", got->err);
    CHECK(!rcclx_option_is_set(RCCLX_OPT_HOSTID), "taken all the same");
    unsetenv("NCCL_HOSTID");
    memcpy(text, "NCCL_HOSTID=", 12);
    memcpy(text + 4990, "\nNCCL_NET=y\n", 13);
    settings_write_home_file(text);
    got = settings_reload();
    CHECK(settings_has(got->err, ".nccl.conf:1: the line is too long"), "%s", got->err);
    CHECK(!strcmp(rcclx_option_str(RCCLX_OPT_NET), "y"), "%s", rcclx_option_str(RCCLX_OPT_NET));
    /* Each fits, all together do not: none is cut. */
    settings_clear();
    memset(text, 'x', 4000);
    text[4000] = '\0';
    for (rcclx_option o = 0; o < RCCLX_OPT_COUNT; o++)
        if (rcclx_option_row(o)->type == RCCLX_OPTTYPE_STR && o != RCCLX_OPT_CONF_FILE && o != RCCLX_OPT_DEBUG_FILE)
            setenv(rcclx_option_row(o)->name, text, 1);
    got = settings_reload();
    int nset = 0;
    for (rcclx_option o = 0; o < RCCLX_OPT_COUNT; o++) {
        nset += rcclx_option_is_set(o);
        CHECK(!rcclx_option_is_set(o) || strlen(rcclx_option_str(o)) == 4000, "%s", rcclx_option_row(o)->name);
    }
    CHECK(nset >= 7 && settings_has(got->err, "is too long"), "%d set: %s", nset, got->err);
}

/* Warnings. */

TEST(names_that_nccl_knows_are_accepted)
{
    settings_clear();
    for (int i = 0; i < NACCEPTED; i++)
        if (!strchr(accepted[i], '*'))
            setenv(accepted[i], "1", 1);
    setenv("RCCL_IB_HCA", "mlx5", 1);
    setenv("NCCL_TESTS_DEVICE", "1", 1);
    const settings_output *got = settings_reload();
    CHECK(!*got->err && !*got->out, "%s%s", got->out, got->err);
    setenv("NCCL_DEBUG", "INFO", 1);
    got = settings_reload();
    CHECK(settings_has(got->out, "NCCL INFO RCCL_IB_HCA set by environment to mlx5. It has no effect in this library."), "%s", got->out);
    CHECK(!settings_has(got->out, "NCCL WARN"), "%s", got->out);
    settings_clear();
}

TEST(distance_counts_edits)
{
    static const struct { const char *a, *b; int n; } samples[] = {
        { "", "", 0 }, { "A", "", 1 }, { "DEBUG", "DEBGU", 1 }, { "DEBUG", "debug", 0 }, { "ALGO", "ALG", 1 },
        { "PROTO", "PORTO", 1 }, { "KITTEN", "SITTING", 3 }, { "AB", "BCA", 3 }, { "NET", "CMA", 3 },
    };
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        CHECK(rcclx_optname_distance(samples[i].a, samples[i].b) == samples[i].n, "%s %s", samples[i].a, samples[i].b);
        CHECK(rcclx_optname_distance(samples[i].b, samples[i].a) == samples[i].n, "%s %s", samples[i].b, samples[i].a);
    }
}

TEST(a_name_far_from_all_gets_no_guess)
{
    settings_clear();
    setenv("NCCL_QWXYZJK", "1", 1);
    const settings_output *got = settings_reload();
    CHECK(settings_has(got->err, "NCCL_QWXYZJK (environment) is not a setting of this library"), "%s", got->err);
    CHECK(!settings_has(got->err, "did you mean"), "%s", got->err);
}

/* Agreement. */

TEST(agreement_compares_values_and_not_their_spelling)
{
    char text[8192], small[8];

    settings_clear();
    settings_reload();
    uint64_t plain = rcclx_option_agree_hash();
    int n = rcclx_option_agree_text(text, sizeof(text));
    CHECK(n == (int)strlen(text), "%d, %zu", n, strlen(text));
    CHECK(rcclx_option_agree_text(small, sizeof(small)) == n && strlen(small) == 7, "\"%s\"", small);
    CHECK(rcclx_option_agree_text(NULL, 0) == n, "length alone");
    CHECK(strstr(text, "RCCLX_CHUNK_BYTES=256K\n") && !strstr(text, "NCCL_DEBUG"), "%s", text);
    setenv("RCCLX_CHUNK_BYTES", "0x40000", 1);
    setenv("NCCL_DEBUG_FILE", "/dev/null", 1); /* need not agree */
    settings_reload();
    CHECK(rcclx_option_agree_hash() == plain, "another spelling, another hash");
    setenv("RCCLX_CHUNK_BYTES", "128K", 1);
    settings_reload();
    CHECK(rcclx_option_agree_hash() != plain, "another value, the same hash");
    settings_clear();
    setenv("NCCL_ALGO", "ring", 1);
    settings_reload();
    uint64_t algo = rcclx_option_agree_hash();
    settings_clear();
    setenv("RCCLX_ALGO", "ring", 1);
    settings_reload();
    CHECK(rcclx_option_agree_hash() != algo && algo != plain, "the name is not part of the hash");
}

/* What users read. */

static char *printed(void (*print)(FILE *))
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);

    print(f);
    fclose(f);
    return text;
}

static void dump_text(FILE *f)
{
    rcclx_option_dump(f, false);
}

static void dump_json(FILE *f)
{
    rcclx_option_dump(f, true);
}

TEST(the_dump_shows_value_source_and_help)
{
    settings_clear();
    setenv("NCCL_HOSTID", "say \"hi\"", 1);
    setenv("RCCLX_TIMEOUT", "1500ms", 1);
    settings_reload();
    char *text = printed(dump_text), *json = printed(dump_json);
    CHECK(strstr(text, "\nRCCLX_TIMEOUT=1.5  (environment)  an operation that"), "%s", text);
    CHECK(strstr(text, "NCCL_HOSTID=say \"hi\"  (environment)  "), "%s", text);
    CHECK(settings_has(text, "\n") == RCCLX_OPT_COUNT, "%d lines", settings_has(text, "\n"));
    CHECK(strstr(json, "\"name\": \"NCCL_HOSTID\",\n      \"value\": \"say \\\"hi\\\"\",\n      \"source\": \"environment\""), "%s", json);
    CHECK(strstr(json, "\"value\": 1.5,") && strstr(json, "\"value\": false,") && strstr(json, "\"value\": 262144,"), "%s", json);
    CHECK(settings_has(json, "\"help\"") == RCCLX_OPT_COUNT, "%d", settings_has(json, "\"help\""));
    free(text);
    free(json);
}

TEST(the_page_is_the_table)
{
    char path[1024];

    /* The path of this file, less tests/unit/test_option.c. */
    snprintf(path, sizeof(path), "%.*sdocs/environment.md", (int)(strlen(__FILE__) - strlen("tests/unit/test_option.c")), __FILE__);
    FILE *f = fopen(path, "r");
    REQUIRE(f, "%s: %s", path, strerror(errno));
    static char page[131072];
    page[fread(page, 1, sizeof(page) - 1, f)] = '\0';
    fclose(f);
    setenv("RCCLX_TIMEOUT", "5", 1); /* the page tells defaults, not what is set */
    settings_reload();
    char *text = printed(rcclx_option_markdown);
    CHECK(!strcmp(page, text), "docs/environment.md is old: rcclx info --options --markdown > docs/environment.md");
    free(text);
}
