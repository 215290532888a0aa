#include "check.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"

/* One case asks for more memory than there is, which the sanitizers would take
 * for a fault of the program. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

/* The numbers are the public interface's and may never change. */
TEST(statuses_map_to_nccls_results)
{
    static const struct { rcclx_status s; const char *name; int nccl; rcclx_severity severity; } expected[] = {
        { RCCLX_OK, "OK", 0, RCCLX_SEVERITY_NONE },
        { RCCLX_AGAIN, "AGAIN", 7, RCCLX_SEVERITY_NONE },
        { RCCLX_ARGUMENT, "ARGUMENT", 4, RCCLX_SEVERITY_CALL },
        { RCCLX_USAGE, "USAGE", 5, RCCLX_SEVERITY_CALL },
        { RCCLX_UNSUPPORTED, "UNSUPPORTED", 5, RCCLX_SEVERITY_CALL },
        { RCCLX_NOMEM, "NOMEM", 2, RCCLX_SEVERITY_CALL },
        { RCCLX_SYSTEM, "SYSTEM", 2, RCCLX_SEVERITY_CALL },
        { RCCLX_MISMATCH, "MISMATCH", 5, RCCLX_SEVERITY_COMM },
        { RCCLX_PEER_LOST, "PEER_LOST", 6, RCCLX_SEVERITY_COMM },
        { RCCLX_TIMEOUT, "TIMEOUT", 6, RCCLX_SEVERITY_COMM },
        { RCCLX_ABORTED, "ABORTED", 5, RCCLX_SEVERITY_COMM },
        { RCCLX_INTERNAL, "INTERNAL", 3, RCCLX_SEVERITY_PROCESS },
    };
    CHECK(sizeof(expected) / sizeof(expected[0]) == RCCLX_STATUS_COUNT, "%d statuses", RCCLX_STATUS_COUNT);
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        CHECK(!strcmp(rcclx_status_name(expected[i].s), expected[i].name), "%s", rcclx_status_name(expected[i].s));
        CHECK(rcclx_status_nccl(expected[i].s) == expected[i].nccl, "%s: %d", expected[i].name, rcclx_status_nccl(expected[i].s));
        CHECK(rcclx_status_severity(expected[i].s) == expected[i].severity, "%s", expected[i].name);
        CHECK(*rcclx_status_text(expected[i].s), "%s has no text", expected[i].name);
    }
}

TEST(a_number_that_is_no_status_does_no_harm)
{
    static const int strange[] = { -1, RCCLX_STATUS_COUNT, 1000000 };
    for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++) {
        rcclx_status s = (rcclx_status)strange[i];
        CHECK(!strcmp(rcclx_status_name(s), "UNKNOWN"), "%s", rcclx_status_name(s));
        CHECK(*rcclx_status_text(s) && rcclx_status_nccl(s) == 3 && rcclx_status_severity(s) == RCCLX_SEVERITY_PROCESS, "%d", strange[i]);
    }
}

static rcclx_status try_once(rcclx_status below, int *reached)
{
    RCCLX_TRY(below);
    ++*reached;
    return RCCLX_OK;
}

TEST(try_hands_back_what_went_wrong_below)
{
    int reached = 0;
    CHECK(try_once(RCCLX_OK, &reached) == RCCLX_OK && reached == 1, "%d", reached);
    CHECK(try_once(RCCLX_TIMEOUT, &reached) == RCCLX_TIMEOUT && reached == 1, "%d", reached);
}

TEST(memory_comes_zeroed_and_is_counted)
{
    size_t before = rcclx_mem_held();
    unsigned char *blocks[64];
    for (int i = 0; i < 64; i++) {
        blocks[i] = rcclx_mem_alloc(1000);
        REQUIRE(blocks[i], "no memory");
        for (int k = 0; k < 1000; k++)
            REQUIRE(!blocks[i][k], "byte %d of block %d is %d", k, i, blocks[i][k]);
        memset(blocks[i], 0xff, 1000); /* dirt for whoever gets it next */
        if (i % 2)
            rcclx_mem_free(blocks[i]);
    }
    CHECK(rcclx_mem_held() == before + 32, "%zu", rcclx_mem_held() - before);
    for (int i = 0; i < 64; i += 2)
        rcclx_mem_free(blocks[i]);
    rcclx_mem_free(NULL);
    CHECK(rcclx_mem_held() == before, "%zu", rcclx_mem_held() - before);
}

TEST(odd_requests)
{
    size_t before = rcclx_mem_held();
    void *none = rcclx_mem_alloc(0);
    CHECK(none, "0 bytes gave NULL");
    CHECK(!rcclx_mem_alloc(SIZE_MAX / 2), "more than there is");
    char *grown = rcclx_mem_realloc(NULL, 4);
    REQUIRE(grown, "no memory");
    memcpy(grown, "abc", 4);
    grown = rcclx_mem_realloc(grown, 100000);
    REQUIRE(grown && !strcmp(grown, "abc"), "contents lost");
    char *copy = rcclx_mem_strdup(grown);
    CHECK(copy && copy != grown && !strcmp(copy, "abc"), "%s", copy);
    CHECK(rcclx_mem_held() == before + 3, "%zu", rcclx_mem_held() - before);
    rcclx_mem_free(none);
    rcclx_mem_free(grown);
    rcclx_mem_free(copy);
    CHECK(rcclx_mem_held() == before, "%zu", rcclx_mem_held() - before);
}

TEST(the_nth_request_fails_and_only_that)
{
    for (int n = 0; n < 5; n++) {
        size_t before = rcclx_mem_held();
        void *p[6];
        rcclx_mem_fail_after(n);
        for (int i = 0; i < 6; i++)
            p[i] = i % 2 ? rcclx_mem_alloc(8) : rcclx_mem_realloc(NULL, 8);
        for (int i = 0; i < 6; i++) {
            CHECK(!p[i] == (i == n), "fail after %d: request %d gave %p", n, i, p[i]);
            rcclx_mem_free(p[i]);
        }
        CHECK(rcclx_mem_held() == before, "%zu", rcclx_mem_held() - before);
    }
    char *kept = rcclx_mem_strdup("kept");
    REQUIRE(kept, "no memory");
    rcclx_mem_fail_after(0);
    CHECK(!rcclx_mem_realloc(kept, 1000) && !strcmp(kept, "kept"), "a failed realloc must leave the block");
    rcclx_mem_fail_after(0);
    CHECK(!rcclx_mem_strdup("x"), "strdup is a request too");
    rcclx_mem_fail_after(0);
    rcclx_mem_fail_after(-1);
    void *p = rcclx_mem_alloc(1);
    CHECK(p, "-1 must take it back");
    rcclx_mem_free(p);
    rcclx_mem_free(kept);
}

static int churn(int rank, int n, void *arg)
{
    (void)rank, (void)n, (void)arg;
    for (int i = 0; i < 10000; i++)
        rcclx_mem_free(rcclx_mem_alloc(16));
    return 0;
}

TEST(threads_count_right)
{
    size_t before = rcclx_mem_held();
    CHECK(run_ranks_as_threads(4, churn, NULL) == 0, "failed");
    CHECK(rcclx_mem_held() == before, "%zu", rcclx_mem_held() - before);
}

static uint64_t fake_now(void)
{
    return 42;
}

TEST(the_clock_goes_on_and_can_be_replaced)
{
    uint64_t first = rcclx_clock_ns();
    usleep(2000);
    uint64_t second = rcclx_clock_ns();
    CHECK(second - first >= 2000000 && second - first < 60000000000u, "%g s", (double)(second - first) * 1e-9);
    rcclx_clock_hook(fake_now);
    CHECK(rcclx_clock_ns() == 42, "%llu", (unsigned long long)rcclx_clock_ns());
    rcclx_clock_hook(NULL);
    CHECK(rcclx_clock_ns() >= second, "back in time");
    for (int i = 0; i < 3; i++)
        rcclx_cpu_relax();
}
