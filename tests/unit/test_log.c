#include "check.h"
#include "settings.h"

#include "base/log.h"

#include <regex.h>

static void use(const char *debug, const char *subsys)
{
    settings_clear();
    if (debug)
        setenv("NCCL_DEBUG", debug, 1);
    if (subsys)
        setenv("NCCL_DEBUG_SUBSYS", subsys, 1);
    settings_reload();
}

/* The whole text is the pattern. "HEAD" stands for host:pid:tid. */
static bool matches(const char *text, const char *pattern)
{
    char whole[2048], host[65], head[128];
    regex_t r;

    gethostname(host, sizeof(host));
    host[sizeof(host) - 1] = '\0';
    host[strcspn(host, ".")] = '\0';
    snprintf(head, sizeof(head), "%s:%d:%d", host, (int)getpid(), (int)gettid());
    const char *at = strstr(pattern, "HEAD");
    if (at)
        snprintf(whole, sizeof(whole), "^%.*s%s%s$", (int)(at - pattern), pattern, head, at + 4);
    else
        snprintf(whole, sizeof(whole), "^%s$", pattern);
    if (regcomp(&r, whole, REG_EXTENDED | REG_NOSUB))
        return false;
    bool found = !regexec(&r, text, 0, NULL, 0);
    regfree(&r);
    return found;
}

#define PRINTED(...) (settings_capture(), __VA_ARGS__, settings_captured())
#define DAY          "\\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\\] "

static rcclx_status log_one_of_each(void)
{
    rcclx_log(RCCLX_LOG_VERSION, RCCLX_SUBSYS_ALL, __FILE__, __LINE__, "NCCL version 1.2.3");
    RCCLX_WARN_LOG("a warning");
    RCCLX_INFO_LOG(INIT, "an info");
    RCCLX_TRACE_LOG(COLL, "a trace");
    return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: bad", 3);
}

TEST(nothing_is_printed_unless_asked_for)
{
    for (int i = 0; i < 2; i++) {
        use(i ? "NONE" : NULL, NULL);
        const settings_output *got = PRINTED(log_one_of_each());
        CHECK(!*got->out && !*got->err, "%s%s", got->out, got->err);
        CHECK(!rcclx_log_on(RCCLX_LOG_VERSION, RCCLX_SUBSYS_ALL) && !rcclx_log_on(RCCLX_LOG_NONE, RCCLX_SUBSYS_ALL), "on");
    }
}

TEST(info_lines_have_nccls_form)
{
    use("info", NULL);
    rcclx_log_device(2);
    const settings_output *got = PRINTED(RCCLX_INFO_LOG(INIT, "comm %d", 7));
    CHECK(matches(got->out, "HEAD \\[2\\] NCCL INFO comm 7\n"), "%s", got->out);
    rcclx_log_device(-1);
    got = PRINTED(RCCLX_INFO_LOG(INIT, "comm"));
    CHECK(matches(got->out, "HEAD \\[-1\\] NCCL INFO comm\n"), "%s", got->out);
}

TEST(warn_lines_have_nccls_form)
{
    use("WARN", NULL);
    const settings_output *got = PRINTED(rcclx_log(RCCLX_LOG_WARN, RCCLX_SUBSYS_ALL, "/x/src/y/src/comm/init.c", 12, "oops"));
    CHECK(matches(got->out, "\n" DAY "HEAD \\[-1\\] comm/init.c:12 NCCL WARN oops\n"), "%s", got->out);
    got = PRINTED(rcclx_log(RCCLX_LOG_WARN, RCCLX_SUBSYS_ALL, "/x/mysrc/file.c", 1, "oops"));
    CHECK(matches(got->out, "\n" DAY "HEAD \\[-1\\] file.c:1 NCCL WARN oops\n"), "%s", got->out);
    got = PRINTED(RCCLX_INFO_LOG(INIT, "no"));
    CHECK(!*got->out, "%s", got->out);
}

TEST(the_version_stands_bare_until_info)
{
    static const char *const debug[] = { "VERSION", "WARN", "INFO" };
    static const char *const form[] = { "NCCL version 9\n", "NCCL version 9\n", "HEAD \\[-1\\] NCCL INFO NCCL version 9\n" };
    for (int i = 0; i < 3; i++) {
        use(debug[i], "NET");
        const settings_output *got =
            PRINTED(rcclx_log(RCCLX_LOG_VERSION, RCCLX_SUBSYS_ALL, __FILE__, __LINE__, "NCCL version %d", 9));
        CHECK(matches(got->out, form[i]), "%s: %s", debug[i], got->out);
    }
}

TEST(trace_and_call_lines)
{
    use("TRACE", "ALL");
    const settings_output *got = PRINTED(rcclx_log(RCCLX_LOG_TRACE, RCCLX_COLL, "src/a/b.c", 5, "step"));
    CHECK(matches(got->out, "HEAD \\[-1\\] [0-9]+\\.[0-9]{6} a/b.c:5 NCCL TRACE step\n"), "%s", got->out);
    settings_capture();
    RCCLX_TRACE_LOG(CALL, "ncclAllReduce(%d)", 1);
    got = settings_captured();
    CHECK(matches(got->out, "HEAD NCCL CALL ncclAllReduce\\(1\\)\n"), "%s", got->out);
}

TEST(subsystems_choose_info_and_never_hide_warnings)
{
    static const struct { const char *list; unsigned on; } samples[] = {
        { NULL, RCCLX_INIT | RCCLX_BOOTSTRAP | RCCLX_ENV }, { "COLL", RCCLX_COLL }, { "coll,Net", RCCLX_COLL | RCCLX_NET },
        { "ALL", RCCLX_SUBSYS_ALL }, { "^ALL", 0 }, { "^INIT,ENV", RCCLX_SUBSYS_ALL & ~(unsigned)(RCCLX_INIT | RCCLX_ENV) },
        { "^INIT,^ENV", RCCLX_SUBSYS_ALL & ~(unsigned)(RCCLX_INIT | RCCLX_ENV) }, { "ALLOC", RCCLX_ALLOC },
        { "ALLOC_HOST", RCCLX_ALLOC_HOST }, { "COLL, P2P ,", RCCLX_COLL | RCCLX_P2P },
    };
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        use("INFO", samples[i].list);
        for (unsigned bit = 1; bit < RCCLX_SUBSYS_ALL; bit <<= 1)
            CHECK(rcclx_log_on(RCCLX_LOG_INFO, bit) == !!(samples[i].on & bit), "%s: 0x%x", samples[i].list, bit);
        CHECK(rcclx_log_on(RCCLX_LOG_WARN, RCCLX_SUBSYS_ALL), "%s", samples[i].list);
        CHECK(!rcclx_log_on(RCCLX_LOG_TRACE, RCCLX_SUBSYS_ALL), "%s", samples[i].list);
    }
    settings_clear();
    setenv("NCCL_DEBUG_SUBSYS", "INIT,COL", 1);
    const settings_output *got = settings_reload();
    CHECK(settings_has(got->err, "NCCL_DEBUG_SUBSYS: COL is no subsystem"), "%s", got->err);
}

TEST(the_time_has_the_form_and_the_levels_asked_for)
{
    use("INFO", NULL);
    setenv("NCCL_DEBUG_TIMESTAMP_LEVELS", "INFO", 1);
    setenv("NCCL_DEBUG_TIMESTAMP_FORMAT", "<%H:%M:%S.%3f %% %6f> ", 1);
    settings_reload();
    const settings_output *got = PRINTED(RCCLX_INFO_LOG(INIT, "x"));
    CHECK(matches(got->out, "<[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3} % [0-9]{6}> HEAD \\[-1\\] NCCL INFO x\n"), "%s", got->out);
    got = PRINTED(rcclx_log(RCCLX_LOG_WARN, RCCLX_SUBSYS_ALL, "a.c", 1, "x"));
    CHECK(matches(got->out, "\nHEAD \\[-1\\] a.c:1 NCCL WARN x\n"), "%s", got->out);
    setenv("NCCL_DEBUG_TIMESTAMP_LEVELS", "^INFO", 1);
    settings_reload();
    got = PRINTED(RCCLX_INFO_LOG(INIT, "x"));
    CHECK(matches(got->out, "HEAD \\[-1\\] NCCL INFO x\n"), "%s", got->out);
    setenv("NCCL_DEBUG_TIMESTAMP_LEVELS", "INFOO", 1);
    got = settings_reload();
    CHECK(settings_has(got->out, "NCCL_DEBUG_TIMESTAMP_LEVELS: INFOO is no level"), "%s", got->out);
}

static char *file_text(const char *path)
{
    static char text[1 << 20];
    FILE *f = fopen(path, "r");

    text[f ? fread(text, 1, sizeof(text) - 1, f) : 0] = '\0';
    if (f)
        fclose(f);
    return text;
}

TEST(the_file_is_named_by_host_and_process_and_starts_empty)
{
    char form[160], path[256], host[65];

    use("INFO", NULL);
    gethostname(host, sizeof(host));
    host[sizeof(host) - 1] = '\0';
    host[strcspn(host, ".")] = '\0';
    snprintf(form, sizeof(form), "%s/%%h-%%p-%%%%-%%q", settings_state_home);
    snprintf(path, sizeof(path), "%s/%s-%d-%%-%%q", settings_state_home, host, (int)getpid());
    FILE *f = fopen(path, "w");
    REQUIRE(f, "%s", path);
    fputs("old", f);
    fclose(f);
    setenv("NCCL_DEBUG_FILE", form, 1);
    const settings_output *got = settings_reload();
    CHECK(!*got->out && !*got->err, "%s%s", got->out, got->err);
    RCCLX_INFO_LOG(INIT, "into the file");
    RCCLX_ALERT("an alert too");
    char *text = file_text(path);
    CHECK(!strstr(text, "old") && strstr(text, "NCCL INFO into the file\n") && strstr(text, "NCCL WARN an alert too\n"), "%s", text);
    int nfds = check_count_fds();
    settings_reload();
    CHECK(check_count_fds() == nfds, "%d files open, then %d", nfds, check_count_fds());
    unlink(path);
    /* No file is made unless something will be written. */
    setenv("NCCL_DEBUG", "VERSION", 1);
    settings_reload();
    CHECK(access(path, F_OK), "made at VERSION");
}

TEST(a_file_that_cannot_be_opened_is_told)
{
    use("INFO", NULL);
    setenv("NCCL_DEBUG_FILE", "/nowhere/at/all", 1);
    const settings_output *got = settings_reload();
    CHECK(settings_has(got->out, "NCCL WARN NCCL_DEBUG_FILE=/nowhere/at/all cannot be opened"), "%s", got->out);
    setenv("NCCL_DEBUG_FILE", "/dev/stderr", 1);
    settings_reload();
    settings_capture();
    if (write(STDERR_FILENO, "before\n", 7) == 7)
        RCCLX_INFO_LOG(INIT, "x");
    got = settings_captured();
    CHECK(!*got->out && settings_has(got->err, "before\n") && settings_has(got->err, "NCCL INFO x\n"), "%s|%s", got->out, got->err);
}

/* Failures. */

TEST(a_failure_is_said_once_and_kept)
{
    use("WARN", NULL);
    rcclx_status s = RCCLX_OK;
    const settings_output *got = PRINTED(s = RCCLX_FAIL(RCCLX_PEER_LOST, "rank %d is gone", 3));
    CHECK(s == RCCLX_PEER_LOST, "%s", rcclx_status_name(s));
    CHECK(matches(got->out, "\n" DAY "HEAD \\[-1\\] test_log.c:[0-9]+ NCCL WARN rank 3 is gone\n"), "%s", got->out);
    CHECK(!strcmp(rcclx_last_error(), "rank 3 is gone"), "%s", rcclx_last_error());
    got = PRINTED(rcclx_last_error_set("set"));
    CHECK(!*got->out && !strcmp(rcclx_last_error(), "set"), "%s", got->out);
    rcclx_last_error_set("");
    CHECK(!*rcclx_last_error(), "%s", rcclx_last_error());
}

TEST(errno_becomes_a_status_and_a_text)
{
    use(NULL, NULL);
    errno = ENOENT;
    CHECK(RCCLX_FAIL_ERRNO("open %s", "x") == RCCLX_SYSTEM, "another status");
    CHECK(!strcmp(rcclx_last_error(), "open x: No such file or directory (errno 2)"), "%s", rcclx_last_error());
    errno = ENOMEM;
    CHECK(RCCLX_FAIL_ERRNO("mmap") == RCCLX_NOMEM, "another status");
}

static int set_and_look(int rank, int n, void *arg)
{
    (void)n;
    const char *mine = arg; /* what the main thread holds */
    char text[32];

    snprintf(text, sizeof(text), "from %d", rank);
    for (int i = 0; i < 1000; i++) {
        rcclx_last_error_set(text);
        if (strncmp(rcclx_last_error(), "from ", 5) || strcmp(mine, "mine"))
            return 1;
    }
    return 0;
}

TEST(the_last_error_is_the_process_s_and_the_copy_the_thread_s)
{
    rcclx_last_error_set("mine");
    const char *mine = rcclx_last_error();
    int nbad = run_ranks_as_threads(4, set_and_look, (void *)(uintptr_t)mine);
    CHECK(nbad == 0, "%d threads", nbad);
    CHECK(!strcmp(mine, "mine"), "%s", mine);
    CHECK(!strncmp(rcclx_last_error(), "from ", 5), "%s", rcclx_last_error());
}

TEST(an_alert_is_seen_unless_debug_is_none)
{
    static const struct { const char *debug; bool out, err; } samples[] = {
        { NULL, false, true }, { "VERSION", false, true }, { "WARN", true, false }, { "NONE", false, false }, { "NON", false, true },
    };
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        use(samples[i].debug, NULL);
        const settings_output *got = PRINTED(RCCLX_ALERT("rank %d died", 2));
        CHECK(matches(got->out, "\n" DAY "HEAD \\[-1\\] test_log.c:[0-9]+ NCCL WARN rank 2 died\n") == samples[i].out, "%s: %s", samples[i].debug, got->out);
        CHECK(matches(got->err, "\n" DAY "HEAD \\[-1\\] test_log.c:[0-9]+ NCCL WARN rank 2 died\n") == samples[i].err, "%s: %s", samples[i].debug, got->err);
    }
}

/* Lines stay whole. */

TEST(a_long_line_is_cut_and_ends)
{
    static char text[10000];

    memset(text, 'x', sizeof(text) - 1);
    use("INFO", NULL);
    const settings_output *got = PRINTED(RCCLX_INFO_LOG(INIT, "%s", text));
    size_t n = strlen(got->out);
    CHECK(n > 4000 && n < 5000 && !strcmp(got->out + n - 5, "x...\n"), "%zu bytes", n);
    rcclx_status s = RCCLX_OK;
    PRINTED(s = RCCLX_FAIL(RCCLX_INTERNAL, "%s", text));
    CHECK(s == RCCLX_INTERNAL && strlen(rcclx_last_error()) > 1000, "%zu", strlen(rcclx_last_error()));
}

TEST(errno_is_left_alone)
{
    use("INFO", NULL);
    errno = EAGAIN;
    settings_capture();
    RCCLX_INFO_LOG(INIT, "x");
    int after = errno;
    settings_captured();
    CHECK(after == EAGAIN, "%d", after);
}

enum { LINES = 200 };

static int log_lines(int rank, int n, void *arg)
{
    (void)n, (void)arg;
    rcclx_log_device(rank);
    for (int i = 0; i < LINES; i++)
        RCCLX_INFO_LOG(INIT, "rank %d says %d and some more to make the line longer than a few words", rank, i);
    return 0;
}

static void check_whole(char *text, int nranks)
{
    int seen[16] = { 0 }, nlines = 0;

    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), nlines++) {
        int dev = -1, rank = -2, i = -1, end = 0;
        const char *at = strstr(line, " [");
        REQUIRE(at && sscanf(at, " [%d] NCCL INFO rank %d says %d and some more to make the line longer than a few words%n",
                             &dev, &rank, &i, &end) == 3 && !at[end] && end, "mixed: %s", line);
        REQUIRE(dev == rank && rank >= 0 && rank < nranks && i == seen[rank]++, "%s", line);
    }
    CHECK(nlines == nranks * LINES, "%d lines", nlines);
}

TEST(lines_of_threads_and_processes_do_not_mix)
{
    char path[128];

    for (int processes = 0; processes < 2; processes++)
        CASE("%s", processes ? "processes" : "threads") {
            use("INFO", "INIT");
            snprintf(path, sizeof(path), "%s/log", settings_state_home);
            setenv("NCCL_DEBUG_FILE", path, 1);
            settings_reload();
            int nbad = processes ? run_ranks_as_processes(4, log_lines, NULL) : run_ranks_as_threads(8, log_lines, NULL);
            CHECK(nbad == 0, "%d ranks", nbad);
            check_whole(file_text(path), processes ? 4 : 8);
            unlink(path);
        }
}
