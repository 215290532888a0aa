/* Descriptions, graphs, ways: what is read from files and what follows from it. */
#include "check.h"
#include "topo_machines.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "topo/rates.h"

#include <math.h>
#include <sys/stat.h>

static rcclx_topo topo;

static bool near_to(double a, double b)
{
    return fabs(a - b) <= 1e-9 * (1 + fabs(b));
}

/* --- XML ------------------------------------------------------------------------------- */

static rcclx_status read_text(rcclx_xml *x, const char *text)
{
    return rcclx_xml_parse(x, text, strlen(text), "text");
}

TEST(what_stands_in_xml_is_read)
{
    rcclx_xml x;

    REQUIRE(read_text(&x, "<?xml version='1.0'?>\n<!DOCTYPE a SYSTEM 'b'>\n<!-- <no> -->\n<a one=\"1&lt;&#65;&quot;\">\n <b two='\"'/><c></c></a>\n") == RCCLX_OK,
            "%s", rcclx_last_error());
    CHECK(x.nelements == 3, "%d elements", x.nelements);
    CHECK(!strcmp(rcclx_xml_get(&x, 0, "one"), "1<A\""), "%s", rcclx_xml_get(&x, 0, "one"));
    CHECK(!strcmp(rcclx_xml_get(&x, 1, "two"), "\""), "%s", rcclx_xml_get(&x, 1, "two"));
    CHECK(x.elements[1].line == 5 && x.elements[2].parent == 0, "line %d, parent %d", x.elements[1].line, x.elements[2].parent);
    rcclx_xml_fini(&x);
}

TEST(what_is_written_is_read_again)
{
    rcclx_xml x = { 0 }, y;
    char *text;
    size_t n;

    rcclx_xml_add(&x, -1, "a");
    rcclx_xml_set(&x, 0, "k", "<&>\"' \n\t");
    for (int i = 0; i < 40; i++)
        rcclx_xml_setf(&x, rcclx_xml_add(&x, i % 3 ? i : 0, "b"), "n", "%d", i);
    FILE *out = open_memstream(&text, &n);
    REQUIRE(rcclx_xml_write(&x, out) == RCCLX_OK, "%s", rcclx_last_error());
    fclose(out);
    REQUIRE(rcclx_xml_parse(&y, text, n, "text") == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(rcclx_xml_equal(&x, &y), "%s", text);
    rcclx_xml_set(&y, 7, "n", "other");
    CHECK(!rcclx_xml_equal(&x, &y), "a changed value is not seen");
    rcclx_xml_fini(&x);
    rcclx_xml_fini(&y);
    free(text);
}

/* What is broken, and what the message must hold. */
TEST(broken_xml_is_told_with_its_line)
{
    static const struct { const char *text, *says; } rows[] = {
        { "", "line 1: the file is empty" },
        { "<a>\n<b>\n</a>", "line 3: </a> where </b> is expected, opened in line 2" },
        { "<a>\n<b>\n", "line 3: the file ends, and <b> of line 2 is still open" },
        { "<a b=1/>", "must stand in quotes" },
        { "<a\nb=\"1\" b=\"2\"/>", "line 2: attribute 'b' stands twice in <a>" },
        { "<a b=\"&nbsp;\"/>", "unknown &entity;" },
        { "<a b=\"1/>\n<c/>", "is its closing quote missing" },
        { "<a/><b/>", "<b> behind the end of <a>" },
        { "<a>text</a>", "'t' is text" },
        { "\x7f" "ELF", "is this an XML file?" },
        { "<a><!-- ", "a comment is not closed" },
        { "</a>", "</a> closes nothing" },
        { "<a", "the file ends within <a" },
        { "<1a/>", "the name of an element is expected" },
    };
    rcclx_xml x;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        CHECK(read_text(&x, rows[i].text) == RCCLX_USAGE, "taken: %s", rows[i].text);
        CHECK(strstr(rcclx_last_error(), rows[i].says), "\"%s\" is not in: %s", rows[i].says, rcclx_last_error());
        CHECK(!x.nelements && !x.elements, "something is left of: %s", rows[i].text);
    }
}

TEST(xml_has_bounds)
{
    static char text[400000];
    rcclx_xml x;
    int n = 0;

    for (int i = 0; i < RCCLX_XML_DEPTH + 1; i++)
        n += sprintf(text + n, "<a>");
    CHECK(read_text(&x, text) == RCCLX_USAGE && strstr(rcclx_last_error(), "deeper than"), "%s", rcclx_last_error());
    n = sprintf(text, "<a ");
    for (int i = 0; i <= RCCLX_XML_ATTRS; i++)
        n += sprintf(text + n, "a%d='' ", i);
    sprintf(text + n, "/>");
    CHECK(read_text(&x, text) == RCCLX_USAGE && strstr(rcclx_last_error(), "more than 64 attributes"), "%s", rcclx_last_error());
    n = sprintf(text, "<a b='");
    memset(text + n, 'x', 5000);
    CHECK(read_text(&x, text) == RCCLX_USAGE && strstr(rcclx_last_error(), "longer than 4095"), "%s", rcclx_last_error());
}

/* --- machines ----------------------------------------------------------------------------- */

static int find_kind(int from, int to)
{
    return rcclx_topo_reach(&topo, from, to).kind;
}

TEST(ways_have_nccls_kinds)
{
    static const char text[] =
        "<system version='1'>"
        "<cpu numaid='0' arch='x86_64' vendor='GenuineIntel' familyid='6' modelid='85'>"
        " <pci busid='0000:01:00.0' class='0x060400' link_speed='16 GT/s' link_width='16'>"
        "  <pci busid='0000:02:00.0' class='0x030200' link_speed='8 GT/s' link_width='16'><gpu dev='0' sm='80' rank='0'>"
        "   <nvlink target='0000:42:00.0' count='4' tclass='0x030200'/></gpu></pci>"
        "  <pci busid='0000:03:00.0' class='0x030200' link_speed='16 GT/s' link_width='16'><gpu dev='1' sm='80' rank='1'/></pci>"
        "  <pci busid='0000:04:00.0' class='0x060400' link_speed='16 GT/s' link_width='16'>"
        "   <pci busid='0000:05:00.0' class='0x030200' link_speed='16 GT/s' link_width='8'><gpu dev='2' sm='80' rank='2'/></pci></pci>"
        "  <pci busid='0000:06:00.0' class='0x020700' link_speed='16 GT/s' link_width='16'><nic><net name='n0' dev='0' speed='100000'/></nic></pci>"
        " </pci>"
        " <pci busid='0000:21:00.0' class='0x030200' link_speed='16 GT/s' link_width='16'><gpu dev='3' sm='80' rank='3'/></pci>"
        "</cpu>"
        "<cpu numaid='1' arch='x86_64' vendor='GenuineIntel' familyid='6' modelid='85'>"
        " <pci busid='0000:42:00.0' class='0x030200' link_speed='16 GT/s' link_width='16'><gpu dev='4' sm='80' rank='4'>"
        "   <nvlink target='0000:02:00.0' count='4' tclass='0x030200'/><nvlink target='0000:43:00.0' count='2' tclass='0x030200'/></gpu></pci>"
        " <pci busid='0000:43:00.0' class='0x030200' link_speed='16 GT/s' link_width='16'><gpu dev='5' sm='80' rank='5'>"
        "   <c2c count='2' bw='50000'/></gpu></pci>"
        "</cpu></system>";
    const struct { int from, to, kind; double rate; } rows[] = {
        { 0, 0, RCCLX_PATH_LOC, RCCLX_TOPO_HERE },
        { 0, 1, RCCLX_PATH_PIX, 12 },   /* one bridge; 8 GT/s x 16 at its end */
        { 1, 2, RCCLX_PATH_PXB, 12 },   /* two; 16 GT/s x 8 */
        { 1, 3, RCCLX_PATH_PHB, 24 },
        { 0, 4, RCCLX_PATH_NVL, 80 },   /* four lanes of 20 */
        { 4, 0, RCCLX_PATH_NVL, 80 },
        { 5, 4, RCCLX_PATH_NVL, 40 },   /* its other end alone tells of it */
        { 1, 4, RCCLX_PATH_SYS, 10 },
        { 0, 5, RCCLX_PATH_NVB, 40 },   /* by way of 4, two lanes of 20 there, told of by one end */
        { 0, 6, RCCLX_PATH_PIX, 12 },
        { 2, 6, RCCLX_PATH_PXB, 12 },   /* 100 Gbit/s is 12.5 */
        { 3, 6, RCCLX_PATH_PHB, 12.5 },
        { 4, 6, RCCLX_PATH_PXN, 12 },   /* by way of 0 */
    };

    REQUIRE(rcclx_topo_parse(&topo, text, strlen(text), "text") == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(topo.ngpus == 6 && topo.nnets == 1 && topo.ncpus == 2 && topo.nhosts == 1, "%d %d %d", topo.ngpus, topo.nnets, topo.ncpus);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const rcclx_reach r = rcclx_topo_reach(&topo, rows[i].from, rows[i].to);
        CHECK(r.kind == rows[i].kind && near_to(r.rate, rows[i].rate), "from %d to %d: %s %g, not %s %g", rows[i].from, rows[i].to,
              rcclx_path_name(r.kind), r.rate, rcclx_path_name((rcclx_path_kind)rows[i].kind), rows[i].rate);
    }
    CHECK(rcclx_topo_reach(&topo, 0, 5).via == 4 && rcclx_topo_reach(&topo, 4, 6).via == 0, "by way of %d, %d", rcclx_topo_reach(&topo, 0, 5).via,
          rcclx_topo_reach(&topo, 4, 6).via);
    CHECK(rcclx_topo_path(&topo, 0, 5)->kind == RCCLX_PATH_SYS, "the direct way is %s", rcclx_path_name(rcclx_topo_path(&topo, 0, 5)->kind));
    CHECK(!strcmp(rcclx_topo_kind_name(&topo, 0, 4), "NVL"), "%s", rcclx_topo_kind_name(&topo, 0, 4));
    rcclx_topo_fini(&topo);
}

TEST(a_link_to_the_cpu_that_is_not_pci)
{
    static const char text[] =
        "<system version='1'><cpu numaid='0' arch='arm64'>"
        " <pci busid='0000:01:00.0' link_speed='16 GT/s' link_width='16'><gpu dev='0' sm='90' rank='0'><c2c count='10' bw='20000'/></gpu></pci>"
        " <pci busid='0000:02:00.0' link_speed='32 GT/s' link_width='16'><nic><net name='n0' dev='0' speed='200000'/></nic></pci>"
        "</cpu></system>";

    REQUIRE(rcclx_topo_parse(&topo, text, strlen(text), "text") == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(find_kind(0, 1) == RCCLX_PATH_P2C && near_to(rcclx_topo_path(&topo, 0, 1)->rate, 25), "%s %g", rcclx_path_name((rcclx_path_kind)find_kind(0, 1)),
          rcclx_topo_path(&topo, 0, 1)->rate);
    rcclx_topo_fini(&topo);
}

/* Two links lead from the GPU to its CPU, and one is narrow. */
TEST(of_ways_as_short_the_widest)
{
    static const char text[] =
        "<system version='1'><cpu numaid='0' arch='arm64'>"
        " <pci busid='0000:01:00.0' link_speed='16 GT/s' link_width='16'><gpu dev='0' sm='90' rank='0'><c2c count='1' bw='1000'/></gpu></pci>"
        " <pci busid='0000:02:00.0' link_speed='32 GT/s' link_width='16'><nic><net name='n0' dev='0' speed='200000'/></nic></pci>"
        "</cpu></system>";

    REQUIRE(rcclx_topo_parse(&topo, text, strlen(text), "text") == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(find_kind(0, 1) == RCCLX_PATH_PHB && near_to(rcclx_topo_path(&topo, 0, 1)->rate, 24), "%s %g", rcclx_path_name((rcclx_path_kind)find_kind(0, 1)),
          rcclx_topo_path(&topo, 0, 1)->rate);
    CHECK(near_to(rcclx_topo_path(&topo, 1, 0)->rate, 24), "%g", rcclx_topo_path(&topo, 1, 0)->rate);
    rcclx_topo_fini(&topo);
}

/* Every hop of every way leaves where the one before arrived, and the narrowest is the rate. */
TEST(ways_are_made_of_links)
{
    for (int m = 0; m < NMACHINES; m++) {
        REQUIRE(machine_open(&topo, &machines[m]) == RCCLX_OK, "%s", rcclx_last_error());
        CHECK(topo.ngpus == machines[m].ngpus && topo.nnets == machines[m].nports, "%d GPUs, %d ports", topo.ngpus, topo.nnets);
        for (int a = 0; a < topo.ngpus + topo.nnets; a++)
            for (int b = 0; b < topo.ngpus + topo.nnets; b++) {
                const rcclx_path *p = rcclx_topo_path(&topo, a, b);
                int at = a < topo.ngpus ? topo.gpus[a] : topo.nets[a - topo.ngpus];
                double rate = RCCLX_TOPO_HERE;
                for (int i = 0; i < p->nhops; i++) {
                    const rcclx_topo_link *l = &topo.links[topo.hops[p->first + i]];
                    CHECK(l->from == at, "machine %d, from %d to %d: hop %d leaves elsewhere", m, a, b, i);
                    CHECK(topo.links[l->back].back == (int)(l - topo.links), "a link's way back does not lead back");
                    rate = l->rate < rate ? l->rate : rate;
                    at = l->to;
                }
                CHECK(at == (b < topo.ngpus ? topo.gpus[b] : topo.nets[b - topo.ngpus]) && near_to(p->rate, rate), "machine %d, from %d to %d", m, a, b);
            }
        rcclx_topo_fini(&topo);
    }
}

TEST(files_of_several_hosts)
{
    static const char text[] = "<system version='2'>"
        "<cpu host_hash='0x1' numaid='0'><pci busid='0000:01:00.0'><gpu dev='0' rank='0'/></pci></cpu>"
        "<cpu host_hash='0x2' numaid='0'><pci busid='0000:01:00.0'><gpu dev='0' rank='1'/></pci></cpu></system>";

    REQUIRE(rcclx_topo_parse(&topo, text, strlen(text), "text") == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(topo.nhosts == 2 && topo.ngpus == 2, "%d hosts, %d GPUs", topo.nhosts, topo.ngpus);
    CHECK(find_kind(0, 1) == RCCLX_PATH_DIS, "%s", rcclx_path_name((rcclx_path_kind)find_kind(0, 1)));
    rcclx_topo_fini(&topo);
}

TEST(broken_machines_are_told_with_their_line)
{
    static const struct { const char *text, *says; } rows[] = {
        { "<system version='3'/>", "version=\"3\" is not known" },
        { "<graphs version='1'/>", "this is a file of rings and trees" },
        { "<html/>", "begins with <system>" },
        { "<system version='1'/>", "it holds no <cpu>" },
        { "<system>\n<cpu numaid='0'/>\n<cpu numaid='0'/></system>", "line 3, <cpu>: numaid=\"0\" stands twice, first in line 2" },
        { "<system><cpu numaid='x'/></system>", "numaid=\"x\" must be a number" },
        { "<system><cpu>\n<pci/></cpu></system>", "line 2, <pci>: it has no busid" },
        { "<system><cpu><pci busid='12'/></cpu></system>", "busid=\"12\" is none" },
        { "<system><cpu><gpu/></cpu></system>", "it must not be in <cpu>" },
        { "<system><cpu><pci busid='0000:01:00.0'><gpu dev='-1'/></pci></cpu></system>", "dev=\"-1\" must be a number" },
        { "<system><cpu><pci busid='0000:01:00.0'><gpu/>\n<gpu/></pci></cpu></system>", "line 2, <gpu>: two GPUs in one <pci>" },
        { "<system><cpu><pci busid='0000:01:00.0'><gpu/></pci>\n<pci busid='0:1:0.0'><gpu/></pci></cpu></system>", "line 2, <pci>: busid" },
        { "<system><cpu><pci busid='0000:01:00.0'><gpu/></pci>\n<pci busid='00000:01:00.0'><gpu/></pci></cpu></system>", "stands in line 1 already" },
        { "<system><cpu><pci busid='0000:01:00.0'><gpu dev='2'/></pci>\n<pci busid='0000:02:00.0'><gpu dev='2'/></pci></cpu></system>",
          "line 2, <pci>: the GPU has dev=\"2\", as that of line 1" },
        { "<system><cpu><pci busid='0000:01:00.0'><gpu>\n<xgmi target='0000:01:00.0'/></gpu></pci></cpu></system>", "leads back to its own GPU" },
        { "<system><cpu><pci busid='0000:01:00.0'><gpu><xgmi target='7'/></gpu></pci></cpu></system>", "target=\"7\" is no bus id" },
        { "<system><cpu><nic><net dev='0'/></nic></cpu></system>", "<net>: it has no name" },
        { "<system><cpu><nic><net name='a' speed='fast'/></nic></cpu></system>", "speed=\"fast\" must be a number" },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        CHECK(rcclx_topo_parse(&topo, rows[i].text, strlen(rows[i].text), "text") == RCCLX_USAGE, "taken: %s", rows[i].text);
        CHECK(strstr(rcclx_last_error(), rows[i].says), "\"%s\" is not in: %s", rows[i].says, rcclx_last_error());
    }
}

TEST(a_file_that_is_not_there)
{
    CHECK(rcclx_topo_read(&topo, "/no/such/file.xml") == RCCLX_SYSTEM && strstr(rcclx_last_error(), "/no/such/file.xml"), "%s", rcclx_last_error());
    CHECK(rcclx_topo_read(&topo, "/tmp") == RCCLX_USAGE && strstr(rcclx_last_error(), "is a directory"), "%s", rcclx_last_error());
}

TEST(a_file_of_another_machine)
{
    const char *const here[] = { "0000:21:00.0", "0000:27:00.0" }, *const other[] = { "0000:21:00.0", "0000:99:00.0" };

    REQUIRE(machine_open(&topo, &machines[MESH8]) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(rcclx_topo_match(&topo, here, 2) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(rcclx_topo_match(&topo, other, 2) == RCCLX_USAGE && strstr(rcclx_last_error(), "not 0000:99:00.0"), "%s", rcclx_last_error());
    CHECK(rcclx_topo_find_gpu(&topo, "00000000:22:00.0") == 2, "%d", rcclx_topo_find_gpu(&topo, "00000000:22:00.0"));
    rcclx_topo_fini(&topo);
}

/* --- rates ---------------------------------------------------------------------------------- */

TEST(rates_of_generations)
{
    CHECK(near_to(rcclx_rate_pci("8.0 GT/s PCIe", 16), 12) && near_to(rcclx_rate_pci("2.5 GT/s", 1), 0.1875), "%g", rcclx_rate_pci("2.5 GT/s", 1));
    CHECK(near_to(rcclx_rate_pci("Unknown", 16), 0) && near_to(rcclx_rate_pci("", 16), 0) && near_to(rcclx_rate_pci("8 GT/s", 0), 0), "something is known");
    CHECK(near_to(rcclx_rate_xgmi("gfx90a:sramecc+"), 36) && near_to(rcclx_rate_xgmi("942"), 48) && near_to(rcclx_rate_xgmi("gfx1"), 0), "XGMI");
    CHECK(near_to(rcclx_rate_nvlink(90), 20.6) && near_to(rcclx_rate_nvlink(20), 0), "NVLink");
    CHECK(near_to(rcclx_rate_socket("x86_64", "GenuineIntel", 6, 143), 22) && near_to(rcclx_rate_socket("riscv", NULL, 0, 0), 0), "sockets");
}

static double measured(void *context, const rcclx_topo *t, int from, int to)
{
    (void)t;
    ++*(int *)context;
    return from == 0 && to == 1 ? 0 : 100 + from;
}

TEST(what_is_not_known_is_measured)
{
    const machine m = { .ngpus = 4, .ncpus = 1, .gcn = "gfx9999", .joined = all_joined };
    int asked = 0;

    REQUIRE(machine_open(&topo, &m) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(near_to(rcclx_topo_path(&topo, 2, 1)->rate, RCCLX_RATE_GPU_ASSUMED), "%g", rcclx_topo_path(&topo, 2, 1)->rate);
    REQUIRE(rcclx_topo_measure_links(&topo, measured, &asked) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(asked == 12, "asked %d times", asked);
    CHECK(near_to(rcclx_topo_path(&topo, 2, 1)->rate, 102) && near_to(rcclx_topo_path(&topo, 0, 1)->rate, RCCLX_RATE_GPU_ASSUMED), "%g, %g",
          rcclx_topo_path(&topo, 2, 1)->rate, rcclx_topo_path(&topo, 0, 1)->rate);
    rcclx_topo_fini(&topo);
    asked = 0;
    REQUIRE(machine_open(&topo, &machines[MESH8]) == RCCLX_OK, "%s", rcclx_last_error());
    REQUIRE(rcclx_topo_measure_links(&topo, measured, &asked) == RCCLX_OK && !asked, "asked %d times for what is known", asked);
    rcclx_topo_fini(&topo);
}

/* --- settings --------------------------------------------------------------------------------- */

TEST(the_settings_name_files)
{
    char in[] = "/tmp/rcclx_topo_in_XXXXXX", out[] = "/tmp/rcclx_topo_out_XXXXXX";
    const int a = mkstemp(in), b = mkstemp(out);
    rcclx_topo again;
    size_t n;

    char *text = machine_text(&machines[MESH8], &n);
    REQUIRE(a >= 0 && b >= 0 && write(a, text, n) == (ssize_t)n, "%s", strerror(errno));
    free(text);
    setenv("NCCL_TOPO_FILE", in, 1);
    setenv("RCCL_TOPO_DUMP_FILE", out, 1);
    rcclx_option_reload();
    REQUIRE(rcclx_topo_open(&topo) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(topo.ngpus == 8, "%d GPUs", topo.ngpus);
    REQUIRE(rcclx_topo_read(&again, out) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(rcclx_xml_equal(&topo.xml, &again.xml), "what was written is not what was read");
    rcclx_topo_fini(&again);
    rcclx_topo_fini(&topo);
    setenv("RCCL_TOPO_DUMP_FILE", "/no/such/folder/x.xml", 1);
    rcclx_option_reload();
    CHECK(rcclx_topo_open(&topo) == RCCLX_SYSTEM && strstr(rcclx_last_error(), "/no/such/folder"), "%s", rcclx_last_error());
    unsetenv("NCCL_TOPO_FILE");
    unsetenv("RCCL_TOPO_DUMP_FILE");
    rcclx_option_reload();
    close(a);
    close(b);
    unlink(in);
    unlink(out);
}

/* --- memory -------------------------------------------------------------------------------------- */

TEST(memory_may_fail_anywhere)
{
    size_t n;
    char *text = machine_text(&machines[MESH4], &n);
    const size_t held = rcclx_mem_held();
    bool done = false;

    for (int k = 0; !done && k < 100000; k++) {
        rcclx_mem_fail_after(k);
        const rcclx_status s = rcclx_topo_parse(&topo, text, n, "text");
        rcclx_mem_fail_after(-1);
        done = s == RCCLX_OK;
        CHECK(done || s == RCCLX_NOMEM, "%s", rcclx_status_name(s));
        if (done)
            rcclx_topo_fini(&topo);
        CHECK(rcclx_mem_held() == held, "the %dth allocation failed, and %zu blocks are left", k, rcclx_mem_held() - held);
    }
    CHECK(done, "it never went well");
    free(text);
}
