/* Lists of hosts, as people, Open MPI's files and Slurm write them; and the note that
 * `rcclx run` sends to other machines. */
#include "check.h"

#include "../../tools/tool_hosts.c"
#include "../../tools/tool_note.c"

/* All names of a list, with blanks between; "" if it is none. */
static const char *names_of(const char *list)
{
    static char all[512];
    char        name[64];

    *all = 0;
    for (long i = 0; rcclx_nodelist_name(list, i, name, sizeof name); i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? " " : "", name);
    return all;
}

TEST(short_lists_of_names)
{
    static const struct { const char *list, *names; } cases[] = {
        { "node", "node" },
        { "a,b", "a b" },
        { "node[01-04,7]", "node01 node02 node03 node04 node7" },
        { "node[8-11]", "node8 node9 node10 node11" },
        { "node[008-011],login-1.x.org", "node008 node009 node010 node011 login-1.x.org" },
        { "r[1-2]n[1,3]", "r1n1 r1n3 r2n1 r2n3" },
        { "r[1-2]n[1-2]s[0-1]x", "r1n1s0x r1n1s1x r1n2s0x r1n2s1x r2n1s0x r2n1s1x r2n2s0x r2n2s1x" },
        { "[1-2]", "1 2" },
        { "a[0-65535],b", NULL }, { "a[0-999],b[0-999][0-99]", NULL }, { "a[99999-1000000000000]", NULL },
        { "", NULL }, { ",", NULL }, { "a,", NULL }, { ",a", NULL }, { "a,,b", NULL }, { "a[", NULL }, { "a[]", NULL }, { "a[1", NULL },
        { "a[1-]", NULL }, { "a[-1]", NULL }, { "a[2-1]", NULL }, { "a[1,]", NULL }, { "a]", NULL }, { "a b", NULL }, { "a[x]", NULL },
        { "a[1-2-3]", NULL }, { "(null)", NULL },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *names = cases[i].names ? cases[i].names : "";
        CHECK((rcclx_nodelist_count(cases[i].list) > 0) == (*names != 0), "'%s'", cases[i].list);
        CHECK(!strcmp(names_of(cases[i].list), names), "'%s' gives '%s'", cases[i].list, names_of(cases[i].list));
    }
    CHECK(rcclx_nodelist_count("a[0-65535]") == 65536, "%ld", rcclx_nodelist_count("a[0-65535]"));
    char name[4];
    CHECK(rcclx_nodelist_name("n[1-12]", 8, name, 3) && !strcmp(name, "n9"), "%s", name);
    CHECK(!rcclx_nodelist_name("n[1-12]", 9, name, 3), "a name longer than its room");
    CHECK(!rcclx_nodelist_name("n[1-12]", 12, name, 4) && !rcclx_nodelist_name("n[1-12]", -1, name, 4), "a name that is not there");
}

TEST(counts_with_repetitions)
{
    static const struct { const char *counts; int of[6]; } cases[] = {
        { "4(x2),3", { 4, 4, 3, -1, -1, -1 } }, { "2", { 2, -1, -1, -1, -1, -1 } }, { "1,2(x3)", { 1, 2, 2, 2, -1, -1 } },
        { "", { -1, -1, -1, -1, -1, -1 } },     { "4(x0)", { -1, -1, -1, -1, -1, -1 } }, { "4(x2", { -1, -1, -1, -1, -1, -1 } },
        { "4(2)", { 4, -1, -1, -1, -1, -1 } },  { "x", { -1, -1, -1, -1, -1, -1 } },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < 6; k++)
            CHECK(rcclx_counts_at(cases[i].counts, k) == cases[i].of[k], "'%s' at %d: %d", cases[i].counts, k,
                  rcclx_counts_at(cases[i].counts, k));
}

static const char *text_of(const tool_hosts *h)
{
    static char all[1024];

    *all = 0;
    for (int i = 0; i < h->n; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s %d", i ? ", " : "", h->host[i].name, h->host[i].slots);
    return all;
}

TEST(lists_on_the_command_line)
{
    static const struct { const char *list, *hosts, *why; } cases[] = {
        { "a", "a 1", NULL },
        { "a:4,b:2", "a 4, b 2", NULL },
        { "a,b,a:3", "a 4, b 1", NULL },
        { "me@a:4,node[01-02,7]:8", "me@a 4, node01 8, node02 8, node7 8", NULL },
        { "[fd00::1]:4,fd00::2,[::1]", "fd00::1 4, fd00::2 1, ::1 1", NULL },
        { "10.0.0.1:2,fe80::1%eth0", "10.0.0.1 2, fe80::1%eth0 1", NULL },
        { "", NULL, "without a name" },
        { "a,,b", NULL, "without a name" },
        { ":4", NULL, "without a name" },
        { "a:0", NULL, "'0' is no number of slots" },
        { "a:", NULL, "'' is no number of slots" },
        { "a:4x", NULL, "'4x' is no number of slots" },
        { "a:-1", NULL, "'-1' is no number of slots" },
        { "a:4097", NULL, "1 to 4096" },
        { "a:4096,b", NULL, "more than 4096 slots in all" },
        { "-oProxyCommand=x", NULL, "begins with '-'" },
        { "me@-a", NULL, "begins with '-'" },
        { "a b", NULL, "a character that no name" },
        { "a;reboot", NULL, "a character that no name" },
        { "$(x)", NULL, "a character that no name" },
        { "a[1-2", NULL, "'a[1-2' is no host" },
        { "[fd00::1", NULL, "is no address" },
        { "[fd00::1]x", NULL, "[address]:slots" },
        { "[-x]", NULL, "is no address" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char       why[256] = "";
        tool_hosts h;
        const bool good = !tool_hosts_list(&h, cases[i].list, why, sizeof why);
        if (CHECK(good == !cases[i].why, "'%s': %s", cases[i].list, why) && good)
            CHECK(!strcmp(text_of(&h), cases[i].hosts), "'%s' gives '%s'", cases[i].list, text_of(&h));
        CHECK(good || strstr(why, cases[i].why), "'%s': %s", cases[i].list, why);
        tool_hosts_fini(&h);
    }
}

TEST(host_files)
{
    static const struct { const char *text, *hosts; int line; const char *why; } cases[] = {
        { "a slots=4\nb slots=2\n", "a 4, b 2", 0, NULL },
        { "# all\n\n  a\tslots=4 max_slots=8 # big\r\nb:2\nc", "a 4, b 2, c 1", 0, NULL },
        { "a\na\na slots=2", "a 4", 0, NULL },
        { "node[1-2] slots=8\n[fd00::1]:2\nfd00::2 slots=3", "node1 8, node2 8, fd00::1 2, fd00::2 3", 0, NULL },
        { "", NULL, 0, "no host" },
        { "# none\n", NULL, 1, "no host" },
        { "a\nb slot=2\n", NULL, 2, "'slot=2' is unknown; a line is: host slots=N" },
        { "a\n\nb slots=two", NULL, 3, "'two' is no number of slots" },
        { "a slots=4 max_slots=2", NULL, 1, "has 4 slots and max_slots=2" },
        { "slots=4", NULL, 1, "'slots=4' where a host's name" },
        { "a slots = 4", NULL, 1, "'slots' is unknown" },
        { "a b", NULL, 1, "'b' is unknown" },
        { "a,-b", NULL, 1, "begins with '-'" },
        { "a\n-b", NULL, 2, "begins with '-'" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char       why[256] = "";
        tool_hosts h;
        int        line;
        const bool good = !tool_hosts_file(&h, cases[i].text, strlen(cases[i].text), &line, why, sizeof why);
        if (CHECK(good == !cases[i].why, "'%s': %s", cases[i].text, why) && good)
            CHECK(!strcmp(text_of(&h), cases[i].hosts), "'%s' gives '%s'", cases[i].text, text_of(&h));
        CHECK(good || (strstr(why, cases[i].why) && line == cases[i].line), "'%s': line %d: %s", cases[i].text, line, why);
        tool_hosts_fini(&h);
    }
}

TEST(many_hosts)
{
    char       why[256];
    tool_hosts h;

    REQUIRE(!tool_hosts_list(&h, "n[1-4096]", why, sizeof why), "%s", why);
    CHECK(h.n == 4096 && h.slots == 4096 && !strcmp(h.host[4095].name, "n4096"), "%d", h.n);
    tool_hosts_fini(&h);
    CHECK(tool_hosts_list(&h, "n[1-4097]", why, sizeof why), "4097 hosts");
    CHECK(!h.host && !h.n, "something is left");
}

TEST(notes)
{
    tool_note   n  = { 0 };
    const char *at = NULL;

    tool_note_add(&n, 'v', "%s", "1.0");
    tool_note_add(&n, 'a', "%s", "");
    tool_note_add(&n, 'n', "%d %d", 3, -4);
    REQUIRE(tool_note_close(&n), "it failed");
    const long size = tool_note_header(n.bytes);
    REQUIRE(size == (long)n.size - TOOL_NOTE_HEADER && size == 5 + 2 + 6, "%ld of %zu", size, n.size);
    const char *body = n.bytes + TOOL_NOTE_HEADER;
    CHECK((at = tool_note_next(body, (size_t)size, NULL)) && !strcmp(at, "v1.0"), "%s", at ? at : "none");
    CHECK((at = tool_note_next(body, (size_t)size, at)) && !strcmp(at, "a"), "%s", at ? at : "none");
    CHECK((at = tool_note_next(body, (size_t)size, at)) && !strcmp(at, "n3 -4"), "%s", at ? at : "none");
    CHECK(!tool_note_next(body, (size_t)size, at), "a fourth");
    CHECK(!tool_note_next(body, (size_t)size - 1, NULL), "a body without its last zero");
    tool_note_fini(&n);
    CHECK(tool_note_header("rcclx job 0000001x\n") < 0 && tool_note_header("rcclx job 99999999\n") < 0 &&
          tool_note_header("RCCLX job 00000010\n") < 0, "a wrong header");
    for (int i = 0; i < 2000; i++)
        tool_note_add(&n, 'e', "%01000d", i);
    CHECK(n.failed && !tool_note_close(&n), "more than a note may hold");
    tool_note_fini(&n);
}
