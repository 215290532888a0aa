/* A29: settings that are ignored, backfire or take away everything else.
 *
 * Users lost days to misspelt names and values that nobody noticed, and to
 * values that left them worse off than no setting at all. Hence, for every row
 * of the table: whatever is asked, what is used is allowed, and whoever did not
 * get what was asked is told so in one line with asked, used and allowed. */
#include "check.h"
#include "settings.h"

#include "base/log.h"
#include "base/optvalue.h"

TEST(a29_misspelt_names_are_told_with_the_name_that_was_meant)
{
    static const struct { const char *wrong, *meant; } samples[] = {
        { "NCCL_DEBGU", "NCCL_DEBUG" },         { "NCCL_SOCKET_IF_NAME", "NCCL_SOCKET_IFNAME" },
        { "NCCL_P2P_DISBLE", "NCCL_P2P_DISABLE" }, { "RCCLX_TIMOUT", "RCCLX_TIMEOUT" },
        { "NCCL_TIMEOUT", "RCCLX_TIMEOUT" },    { "RCCL_ALGOS", "NCCL_ALGO" },
        { "NCCL_IB_HAC", "NCCL_IB_HCA" },       { "NCCL_debug", "NCCL_DEBUG" },
        { "RCCLX_INITTIMEOUT", "RCCLX_INIT_TIMEOUT" }, { "NCCL_DEVICE", "RCCLX_DEVICE" },
    };
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        char meant[96];
        settings_clear();
        setenv(samples[i].wrong, "1", 1);
        const settings_output *got = settings_reload();
        snprintf(meant, sizeof(meant), "did you mean %s?", samples[i].meant);
        CHECK(settings_has(got->err, "NCCL WARN ") == 1 && settings_has(got->err, samples[i].wrong) && settings_has(got->err, meant),
              "%s: %s", samples[i].wrong, got->err);
        settings_capture();
        for (rcclx_option o = 0; o < RCCLX_OPT_COUNT; o++)
            (void)rcclx_option_int(o);
        got = settings_captured();
        CHECK(!*got->err, "told again: %s", got->err);
    }
    settings_clear();
    settings_write_home_file("NCLC_SHM_DISABLE=1\n");
    const settings_output *got = settings_reload();
    CHECK(settings_has(got->err, "NCLC_SHM_DISABLE (") && settings_has(got->err, "did you mean NCCL_SHM_DISABLE?"), "%s", got->err);
}

/* Images keep settings of other software in the same file. */
TEST(a29_settings_of_others_in_the_file_are_left_alone)
{
    settings_clear();
    settings_write_home_file("TORCH_SYMM_MEM_DISABLE_MULTICAST=1\nNVSHMEM_DISABLE_NVLS=1\nUCX_TLS=tcp\nP2P_DISABLE=1\n"
                             "NCCL_MIN_CTAS=3\n");
    const settings_output *got = settings_reload();
    CHECK(!*got->err && !*got->out, "%s%s", got->out, got->err);
    CHECK(rcclx_option_int(RCCLX_OPT_MIN_CTAS) == 3 && !rcclx_option_int(RCCLX_OPT_P2P_DISABLE), "what is in force");
    setenv("NCCL_DEBUG", "INFO", 1);
    got = settings_reload();
    CHECK(settings_has(got->out, "NVSHMEM_DISABLE_NVLS (") && settings_has(got->out, "is not for this library"), "%s", got->out);
    unsetenv("NCCL_DEBUG");
    settings_write_home_file("NCC_MIN_CTAS=4\nRCCLZ_TIMEOUT=4\n");
    got = settings_reload();
    CHECK(settings_has(got->err, "did you mean NCCL_MIN_CTAS?") && settings_has(got->err, "did you mean RCCLX_TIMEOUT?"), "%s",
          got->err);
}

static bool is_number(const rcclx_optrow *row)
{
    return row->type != RCCLX_OPTTYPE_STR && row->type != RCCLX_OPTTYPE_LIST;
}

static bool is_allowed(rcclx_option o)
{
    const rcclx_optrow *row = rcclx_option_row(o);

    if (row->type == RCCLX_OPTTYPE_REAL || row->type == RCCLX_OPTTYPE_SECONDS)
        return rcclx_option_real(o) >= row->rmin && rcclx_option_real(o) <= row->rmax;
    if (row->type != RCCLX_OPTTYPE_ENUM)
        return rcclx_option_int(o) >= row->imin && rcclx_option_int(o) <= row->imax;
    int nwords = 1;
    for (const char *c = row->words; *c; c++)
        nwords += *c == '|';
    return rcclx_option_int(o) >= 0 && rcclx_option_int(o) < nwords;
}

/* Was the line told that shows asked, used and allowed? */
static bool told(const char *log, rcclx_option o, const char *asked)
{
    const rcclx_optrow *row = rcclx_option_row(o);
    char line[512], used[128], allowed[128];

    rcclx_optvalue_print(row, rcclx_option_value(o), used, sizeof(used));
    rcclx_optvalue_allowed(row, allowed, sizeof(allowed));
    snprintf(line, sizeof(line), "NCCL WARN %s=%s (environment) is ", row->name, asked);
    const char *at = strstr(log, line);
    if (!at)
        return false;
    at += strlen(line);
    snprintf(line, sizeof(line), "%s; allowed: %s\n", used, allowed);
    const char *end = strchr(at, '\n');
    return end && (size_t)(end + 1 - at) >= strlen(line) && !strncmp(end + 1 - strlen(line), line, strlen(line));
}

TEST(a29_text_for_a_number_leaves_the_default_and_is_told)
{
    static const char *const texts[] = { "yesplease", "1O", "8 K B", "-", "0x", "1,5", "\xc3\xa9" };

    for (rcclx_option o = 0; o < RCCLX_OPT_COUNT; o++) {
        const rcclx_optrow *row = rcclx_option_row(o);
        rcclx_optvalue preset = { 0 };
        if (!is_number(row))
            continue;
        rcclx_optvalue_parse(row, row->preset, &preset);
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
            settings_clear();
            setenv(row->name, texts[i], 1);
            const settings_output *got = settings_reload();
            CHECK(told(got->err, o, texts[i]) && settings_has(got->err, "NCCL WARN") == 1, "%s=%s: %s", row->name, texts[i], got->err);
            CHECK(rcclx_option_int(o) == preset.i && rcclx_option_real(o) == preset.r, "%s=%s is in force", row->name, texts[i]);
            CHECK(!rcclx_option_is_set(o), "%s counts as set", row->name);
        }
    }
}

TEST(a29_negative_and_too_large_go_to_the_nearest_bound)
{
    static const char *const texts[] = { "-9223372036854775808", "-7", "9223372036854775808", "99999999999999999999999" };

    for (rcclx_option o = 0; o < RCCLX_OPT_COUNT; o++) {
        const rcclx_optrow *row = rcclx_option_row(o);
        if (!is_number(row) || row->type == RCCLX_OPTTYPE_ENUM)
            continue;
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
            settings_clear();
            setenv(row->name, texts[i], 1);
            const settings_output *got = settings_reload();
            bool low = *texts[i] == '-';
            bool real = row->type == RCCLX_OPTTYPE_REAL || row->type == RCCLX_OPTTYPE_SECONDS;
            CHECK(told(got->err, o, texts[i]), "%s=%s: %s", row->name, texts[i], got->err);
            CHECK(real ? rcclx_option_real(o) == (low ? row->rmin : row->rmax) : rcclx_option_int(o) == (low ? row->imin : row->imax),
                  "%s=%s is %lld", row->name, texts[i], (long long)rcclx_option_int(o));
            CHECK(is_allowed(o), "%s=%s: outside what it says is allowed", row->name, texts[i]);
        }
    }
}

TEST(a29_one_bad_setting_takes_nothing_else_away)
{
    settings_clear();
    setenv("RCCLX_CHUNK_BYTES", "a lot", 1);
    setenv("RCCLX_LL_BYTES", "4K", 1);
    setenv("NCCL_ALGO", "ring", 1);
    settings_reload();
    CHECK(rcclx_option_int(RCCLX_OPT_CHUNK_BYTES) == 262144, "%d", (int)rcclx_option_int(RCCLX_OPT_CHUNK_BYTES));
    CHECK(rcclx_option_int(RCCLX_OPT_LL_BYTES) == 4096, "%d", (int)rcclx_option_int(RCCLX_OPT_LL_BYTES));
    CHECK(!strcmp(rcclx_option_str(RCCLX_OPT_ALGO), "ring"), "%s", rcclx_option_str(RCCLX_OPT_ALGO));
}

TEST(a29_an_empty_setting_is_no_setting)
{
    settings_clear();
    for (rcclx_option o = 0; o < RCCLX_OPT_COUNT; o++)
        setenv(rcclx_option_row(o)->name, "", 1);
    setenv("NCCL_NO_SUCH_NAME", "", 1);
    const settings_output *got = settings_reload();
    CHECK(!*got->err && !*got->out, "%s%s", got->out, got->err);
    for (rcclx_option o = 0; o < RCCLX_OPT_COUNT; o++)
        CHECK(!rcclx_option_is_set(o) && !strcmp(rcclx_option_source(o), "default"), "%s", rcclx_option_row(o)->name);
}

TEST(a29_the_environment_wins_over_the_file_and_the_dump_says_so)
{
    settings_clear();
    settings_write_home_file("NCCL_SHM_DISABLE=1\nRCCLX_TIMEOUT=5\n");
    setenv("NCCL_SHM_DISABLE", "0", 1);
    setenv("NCCL_DEBUG", "INFO", 1);
    const settings_output *got = settings_reload();
    CHECK(rcclx_option_int(RCCLX_OPT_SHM_DISABLE) == 0 && rcclx_option_is_set(RCCLX_OPT_SHM_DISABLE), "the file won");
    CHECK(rcclx_option_real(RCCLX_OPT_TIMEOUT) == 5, "%g", rcclx_option_real(RCCLX_OPT_TIMEOUT));
    CHECK(settings_has(got->out, "NCCL INFO NCCL_SHM_DISABLE set by environment to 0.\n") == 1, "%s", got->out);
    CHECK(settings_has(got->out, "NCCL INFO RCCLX_TIMEOUT set by ") == 1 && settings_has(got->out, "/.nccl.conf to 5.\n") == 1, "%s", got->out);
    settings_capture();
    rcclx_option_dump(stdout, false);
    got = settings_captured();
    CHECK(settings_has(got->out, "\nNCCL_SHM_DISABLE=0  (environment)  "), "%s", got->out);
    CHECK(settings_has(got->out, "\nRCCLX_TIMEOUT=5  (/") && settings_has(got->out, "/.nccl.conf)  "), "%s", got->out);
}

/* What two ranks would compare at init. */
TEST(a29_every_setting_that_must_agree_shows_when_it_differs)
{
    settings_clear();
    settings_reload();
    uint64_t plain = rcclx_option_agree_hash();

    for (rcclx_option o = 0; o < RCCLX_OPT_COUNT; o++) {
        const rcclx_optrow *row = rcclx_option_row(o);
        char other[64], text[8192], line[160];
        rcclx_optvalue v = { .i = row->imax, .r = row->rmax, .text = "another" };
        if (row->type == RCCLX_OPTTYPE_ENUM)
            v.i = 1;
        else if (row->type == RCCLX_OPTTYPE_BOOL)
            v.i = *row->preset == '0';
        else if (is_number(row) && v.i == rcclx_option_int(o))
            v.i = row->imin;
        rcclx_optvalue_print(row, &v, other, sizeof(other));
        settings_clear();
        setenv(row->name, other, 1);
        setenv("HOME", settings_state_home, 1);
        settings_reload();
        bool agree = row->flags & RCCLX_OPTFLAG_AGREE;
        CHECK((rcclx_option_agree_hash() != plain) == agree, "%s=%s", row->name, other);
        rcclx_option_agree_text(text, sizeof(text));
        snprintf(line, sizeof(line), "%s=%s\n", row->name, other);
        CHECK(!strstr(text, line) == !agree, "%s: %s", line, text);
    }
}
