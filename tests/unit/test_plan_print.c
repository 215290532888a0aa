#include "check.h"

#include "algo/algo.h"
#include "base/mem.h"

#include <ctype.h>

static char text[1 << 21];

static const char *show(const rcclx_algo *a, rcclx_shape s, size_t count, bool json)
{
    rcclx_plan p;

    FILE *f = fmemopen(text, sizeof(text), "w");
    a->build(&p, &s);
    (json ? rcclx_plan_json : rcclx_plan_print)(f, &p, count, 4);
    rcclx_plan_fini(&p);
    fclose(f);
    return text;
}

TEST(the_text_of_a_plan)
{
    const char *want = "direct all_reduce, rank 1 of 3, 16.0 KiB in 3 blocks\n"
                       "  0 wait    all phase 0 (header)\n"
                       "  1 reduce  in@0[1]* in@1[1]* in@2[1]* -> out@1[1] out@2[1] out@0[1]    5.3 KiB\n"
                       "  2 signal  phase 1\n"
                       "  3 wait    all phase 1\n";
    const char *got = show(&rcclx_algo_direct, (rcclx_shape){ RCCLX_ALL_REDUCE, 3, 1, 0, 0, NULL }, 4096, false);
    CHECK(!strcmp(got, want), "\n%s", got);
}

static bool shown(const char *word)
{
    return strstr(text, word) != NULL;
}

TEST(roots_ranges_and_lag_are_shown)
{
    show(&rcclx_algo_ring, (rcclx_shape){ RCCLX_BROADCAST, 4, 3, 2, 0, NULL }, 1000, false);
    CHECK(shown("root 2"), "\n%s", text);
    CHECK(shown("rank 2 phase 1\n"), "the of the chain waits for data\n%s", text);
    CHECK(shown("piece by piece through 4 slots a lane"), "\n%s", text);
    show(&rcclx_algo_ring, (rcclx_shape){ RCCLX_BROADCAST, 4, 0, 2, 0, NULL }, 1000, false);
    CHECK(shown("rank 1 phase 1, of the lane's previous piece"), "\n%s", text);
    show(&rcclx_algo_relay, (rcclx_shape){ RCCLX_ALL_REDUCE, 4, 0, 0, 0, NULL }, 1000, false);
    CHECK(shown("all phase 4, of the lane's previous piece\n") && shown("all phase 4, after the lane's last piece\n"), "\n%s", text);
    show(&rcclx_algo_relay, (rcclx_shape){ RCCLX_ALL_REDUCE, 4, 0, 0, 0, NULL }, 1000, true);
    CHECK(shown("\"after_last\": true") || shown("\"after_last\":true"), "\n%s", text);
    show(&rcclx_algo_slot, (rcclx_shape){ RCCLX_ALL_TO_ALL, 4, 0, 0, 0, NULL }, 10, false);
    CHECK(shown("in@0[0..3]* -> ll@0[0..3]"), "\n%s", text);
    CHECK(shown("160 B"), "\n%s", text);
}

TEST(pushed_slots_are_shown)
{
    const char *want = "ll_two all_reduce, rank 1 of 3, 16.0 KiB in 3 blocks, pushed into 6 slots a rank\n"
                       "  0 copy    in@1[2]* -> ll@2[1]                                         5.3 KiB\n"
                       "  1 copy    in@1[0]* -> ll@0[1]                                         5.4 KiB\n"
                       "  2 reduce  ll@1[0]* in@1[1]* ll@1[2]* -> out@1[1] ll@2[4] ll@0[4]      5.3 KiB\n"
                       "  3 copy    ll@1[5] -> out@1[2]                                         5.3 KiB\n"
                       "  4 copy    ll@1[3] -> out@1[0]                                         5.4 KiB\n";
    const char *got = show(&rcclx_algo_ll_two, (rcclx_shape){ RCCLX_ALL_REDUCE, 3, 1, 0, 0, NULL }, 4096, false);
    CHECK(!strcmp(got, want), "\n%s", got);
    show(&rcclx_algo_ll128, (rcclx_shape){ RCCLX_REDUCE_TO, 3, 1, 0, 0, NULL }, 8, false);
    CHECK(shown("into 3 slots a rank; the next operation waits for its headers") && shown("-> ll128@0[1]"), "\n%s", text);
}

/* Brackets close, strings end; enough to know that no value was left out. */
static bool balanced(const char *s)
{
    char open[64];
    int depth = 0;

    for (; *s; s++) {
        if (*s == '"') {
            for (s++; *s && *s != '"'; s++)
                s += *s == '\\';
        } else if (strchr("{[", *s)) {
            if (depth == (int)sizeof(open))
                return false;
            open[depth++] = *s;
        } else if (strchr("}]", *s)) {
            if (!depth || open[--depth] != (*s == '}' ? '{' : '['))
                return false;
        } else if (strchr(",:", *s)) {
            const char *next = s + 1;
            while (isspace((unsigned char)*next))
                next++;
            if (strchr(",:]}", *next))
                return false;
        }
    }
    return depth == 0;
}

static const uint8_t machines[8] = { 0, 0, 1, 1, 0, 1, 0, 1 };

TEST(every_plan_prints)
{
    for (const rcclx_algo *const *a = rcclx_algos; *a; a++)
        for (int k = 0; k < RCCLX_COLL_COUNT; k++) {
            const rcclx_shape s = { (rcclx_kind)k, 4, 1, 2, 0, (*a == &rcclx_algo_levels || *a == &rcclx_algo_leaders) ? machines : NULL };
            if (!((*a)->kinds >> k & 1))
                continue;
            const char *json = show(*a, s, 12345, true);
            CHECK(balanced(json), "%s %s:\n%s", (*a)->name, rcclx_kind_word((rcclx_kind)k), json);
            CHECK(shown(rcclx_kind_word((rcclx_kind)k)), "%s", json);
            rcclx_plan p;
            (*a)->build(&p, &s);
            const char *lines = show(*a, s, 12345, false);
            uint32_t n = 0;
            for (const char *c = lines; *c; c++)
                n += *c == '\n';
            CHECK(n == p.nsteps + 1, "%s: %u lines for %u steps", (*a)->name, n, p.nsteps);
            rcclx_plan_fini(&p);
        }
}

static int count_word(const char *word)
{
    int n = 0;

    for (const char *at = text; (at = strstr(at, word)); at++)
        n++;
    return n;
}

TEST(every_plan_is_drawn)
{
    for (const rcclx_algo *const *a = rcclx_algos; *a; a++)
        for (int k = 0; k < RCCLX_COLL_COUNT; k++)
            for (int n = 1; n <= 8; n++) {
                rcclx_shape s = { (rcclx_kind)k, n, 0, n - 1, 0, (*a == &rcclx_algo_levels || *a == &rcclx_algo_leaders) ? machines : NULL };
                if (!((*a)->kinds >> k & 1) || ((*a)->can && !(*a)->can(&s)))
                    continue;
                FILE *f = fmemopen(text, sizeof(text), "w");
                const rcclx_status status = rcclx_plan_svg(f, *a, &s);
                fclose(f);
                int boxes = 0;
                for (int r = 0; r < n; r++) {
                    rcclx_plan p;
                    s.rank = r;
                    (*a)->build(&p, &s);
                    for (uint32_t i = 0; i < p.nsteps; i++)
                        boxes += p.steps[i].op == RCCLX_STEP_COPY || p.steps[i].op == RCCLX_STEP_REDUCE;
                    rcclx_plan_fini(&p);
                }
                CHECK(status == RCCLX_OK, "%s %s, %d ranks", (*a)->name, rcclx_kind_word((rcclx_kind)k), n);
                CHECK(count_word("<rect class") == boxes, "%s %s, %d ranks: %d boxes of %d", (*a)->name,
                      rcclx_kind_word((rcclx_kind)k), n, count_word("<rect class"), boxes);
                CHECK(!((*a)->flags & RCCLX_PUSHES) || n < 2 || shown("class=\"put\""), "%s: nothing is pushed", (*a)->name);
                CHECK(count_word("<circle") == n && shown("</svg>"), "%s: not whole", (*a)->name);
            }
}

TEST(failed_allocations_are_reported)
{
    const rcclx_shape s = { RCCLX_ALL_REDUCE, 5, 0, 0, 0, NULL };
    FILE *f = fopen("/dev/null", "w");
    const size_t held = rcclx_mem_held();
    int n = 0;

    REQUIRE(f, "/dev/null");
    for (rcclx_status status = RCCLX_NOMEM; status != RCCLX_OK; n++) {
        rcclx_mem_fail_after(n);
        status = rcclx_plan_svg(f, &rcclx_algo_tree, &s);
        rcclx_mem_fail_after(-1);
        REQUIRE(status == RCCLX_OK || status == RCCLX_NOMEM, "call %d: %d", n, status);
        CHECK(rcclx_mem_held() == held, "call %d leaks", n);
    }
    CHECK(n > 10, "only %d allocations", n);
    fclose(f);
}
