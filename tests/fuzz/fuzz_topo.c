/* Fuzzes what reads descriptions of machines and files of rings: XML that is broken, and
 * XML that is well-formed and means nothing. What is taken must be whole: it is written
 * and read again, ways are followed, rings are searched for and checked.
 *
 * Built with -fsanitize=fuzzer and -DRCCLX_LIBFUZZER it is libFuzzer's target. Without,
 * main replays a small corpus and 8,000 mutations of it, the same ones every time, and
 * prints TAP. Whatever is broken aborts. */
#include "topo/search.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(cond)                                                                   \
    do {                                                                             \
        if (!(cond)) {                                                               \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #cond);       \
            abort();                                                                 \
        }                                                                            \
    } while (0)

static void check_round_trip(const rcclx_xml *x)
{
    char *text = NULL;
    size_t n;
    rcclx_xml again;
    FILE *out = open_memstream(&text, &n);

    MUST(out && rcclx_xml_write(x, out) == RCCLX_OK && !fclose(out));
    MUST(rcclx_xml_parse(&again, text, n, "again") == RCCLX_OK);
    MUST(rcclx_xml_equal(x, &again));
    rcclx_xml_fini(&again);
    free(text);
}

static void check_paths(const rcclx_topo *t)
{
    for (int a = 0; a < t->ngpus + t->nnets; a++)
        for (int b = 0; b < t->ngpus + t->nnets; b++) {
            const rcclx_path *p = rcclx_topo_path(t, a, b);
            const rcclx_reach r = rcclx_topo_reach(t, a, b);
            MUST(p->first >= 0 && p->first + p->nhops <= t->nhops);
            MUST(r.kind < RCCLX_PATH_COUNT && r.via < t->ngpus);
            MUST((p->rate > 0) == (p->kind != RCCLX_PATH_DIS));
        }
}

static void check_search(const rcclx_topo *t)
{
    int gpus[RCCLX_TOPO_GPUS];
    char why[256];

    for (int i = 0; i < t->ngpus; i++)
        gpus[i] = i;
    for (int nnodes = 1; nnodes <= 2; nnodes++) {
        const rcclx_share nodes[2] = { { .topo = t, .ngpus = t->ngpus, .gpus = gpus }, { .topo = t, .ngpus = t->ngpus, .gpus = gpus } };
        for (int k = 0; k < RCCLX_SCHEDULE_COUNT; k++) {
            rcclx_schedule s;
            if (rcclx_schedule_find(&s, (rcclx_schedule_kind)k, nodes, nnodes) != RCCLX_OK)
                continue;
            if (rcclx_schedule_check(&s, nodes, nnodes, why, sizeof(why)) != RCCLX_OK) {
                fprintf(stderr, "%s: %s\n", rcclx_schedule_name(s.kind), why);
                abort();
            }
            rcclx_schedule_fini(&s);
        }
    }
}

/* The same bytes as a file of rings, for a machine that is well. */
static void check_graph(const uint8_t *data, size_t size)
{
    static const char machine[] = "<system version='1'><cpu numaid='0'><pci busid='0000:01:00.0'><gpu dev='0'/></pci>"
                                  "<pci busid='0000:02:00.0'><gpu dev='1'/></pci><nic><net name='n' dev='0' speed='100000'/></nic></cpu></system>";
    const int gpus[] = { 0, 1 };
    char path[64];
    rcclx_topo t;
    rcclx_schedule s;

    MUST(rcclx_topo_parse(&t, machine, strlen(machine), "machine") == RCCLX_OK);
    const rcclx_share nodes[2] = { { .topo = &t, .ngpus = 2, .gpus = gpus }, { .topo = &t, .ngpus = 2, .gpus = gpus } };
    const int fd = memfd_create("graph", MFD_CLOEXEC);
    MUST(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    for (int nnodes = 1; nnodes <= 2; nnodes++)
        for (int k = RCCLX_RINGS; k <= RCCLX_TREES; k++)
            if (rcclx_schedule_read(&s, (rcclx_schedule_kind)k, nodes, nnodes, path) == RCCLX_OK)
                rcclx_schedule_fini(&s);
    close(fd);
    rcclx_topo_fini(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rcclx_xml x;
    rcclx_topo t;

    if (rcclx_xml_parse(&x, (const char *)data, size, "input") == RCCLX_OK) {
        check_round_trip(&x);
        rcclx_xml_fini(&x);
        check_graph(data, size);
    }
    if (rcclx_topo_parse(&t, (const char *)data, size, "input") == RCCLX_OK) {
        check_paths(&t);
        if (t.ngpus && t.ngpus <= 8)
            check_search(&t);
        rcclx_topo_fini(&t);
    }
    return 0;
}

#ifndef RCCLX_LIBFUZZER

static const char *const corpus[] = {
    "<system version=\"2\">\n<cpu host_hash=\"0x1\" numaid=\"0\" affinity=\"ff\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"175\" modelid=\"1\">\n"
    "<pci busid=\"0000:01:00.0\" class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
    "<pci busid=\"0000:02:00.0\" class=\"0x120000\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"0\" sm=\"304\" gcn=\"gfx942\" rank=\"0\" gdr=\"1\">"
    "<xgmi target=\"0000:03:00.0\" count=\"1\" tclass=\"0x120000\"/></gpu></pci>\n"
    "<pci busid=\"0000:03:00.0\" class=\"0x120000\" link_speed=\"16 GT/s\" link_width=\"8\"><gpu dev=\"1\" gcn=\"942\" rank=\"1\">"
    "<xgmi target=\"0000:02:00.0\" count=\"2\" tclass=\"0x120000\"/></gpu></pci>\n"
    "<pci busid=\"0000:04:00.0\"><nic><net name=\"mlx5_0\" dev=\"0\" speed=\"400000\" port=\"1\" guid=\"0x0\" maxconn=\"1\" gdr=\"1\"/></nic></pci>\n"
    "</pci></cpu>\n<cpu host_hash=\"0x1\" numaid=\"1\"><nic><net name=\"eth0\" dev=\"1\" speed=\"1000\"/></nic></cpu></system>\n",
    "<system version='1'><cpu numaid='0'><pci busid='0000:01:00.0'><gpu dev='0' sm='90'><nvlink target='0000:07:00.0' count='18' tclass='0x068000'/>"
    "<c2c bw='20000' count='10'/></gpu></pci><pci busid='0000:02:00.0'><gpu dev='1' sm='90'><nvlink target='0000:07:00.0' count='18' tclass='0x068000'/>"
    "</gpu></pci><pci busid='0000:05:00.0'><gpu dev='2' sm='86'/></pci></cpu></system>",
    "<graphs version=\"1\"><graph id=\"0\" pattern=\"4\" crossnic=\"0\" nchannels=\"1\" speedintra=\"10\" speedinter=\"5.5\">"
    "<channel><net dev=\"0\"/><gpu dev=\"0\"/><gpu dev=\"1\"/><net dev=\"0\"/></channel></graph>"
    "<graph id=\"1\" pattern=\"3\" speedintra=\"1\" speedinter=\"1\"><channel><net dev=\"0\"/><gpu rank=\"1\"/><gpu dev=\"0\" below=\"1\"/></channel></graph></graphs>",
    "<?xml version='1.0'?><!DOCTYPE a SYSTEM 'b'><!-- c --><a b=\"&lt;&#65;&amp;\"><c/><d></d></a>",
};

enum { CORPUS = sizeof(corpus) / sizeof(corpus[0]), MUTATIONS = 8000, INPUT_MAX = 8192 };

static uint64_t draw(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    return *seed ^= *seed << 17;
}

/* One change: a byte, a cut, a repetition, a piece of another text, a digit. */
static size_t mutate(uint8_t *data, size_t n, uint64_t *seed)
{
    const size_t at = n ? draw(seed) % n : 0, len = n ? 1 + draw(seed) % (n - at < 80 ? n - at : 80) : 0;

    switch (n ? draw(seed) % 6 : 5) {
    case 0: data[at] = (uint8_t)draw(seed); break;
    case 1: data[at] ^= (uint8_t)(1u << draw(seed) % 8); break;
    case 2:
        memmove(data + at, data + at + len, n - at - len);
        return n - len;
    case 3:
        if (n + len <= INPUT_MAX) {
            memmove(data + at + len, data + at, n - at);
            return n + len;
        }
        break;
    case 4:
        for (size_t i = at; i < n; i++)
            if (data[i] >= '0' && data[i] <= '9') {
                data[i] = (uint8_t)('0' + draw(seed) % 10);
                break;
            }
        break;
    default: {
        const char *other = corpus[draw(seed) % CORPUS];
        const size_t from = draw(seed) % strlen(other), some = strlen(other + from) < 60 ? strlen(other + from) : 60;
        if (at + some <= INPUT_MAX) {
            memcpy(data + at, other + from, some);
            return at + some > n ? at + some : n;
        }
    }
    }
    return n;
}

int main(void)
{
    static uint8_t data[INPUT_MAX];
    uint64_t seed = UINT64_C(0x9e3779b97f4a7c15);

    for (int i = 0; i < CORPUS; i++)
        LLVMFuzzerTestOneInput((const uint8_t *)corpus[i], strlen(corpus[i]));
    LLVMFuzzerTestOneInput(data, 0);
    printf("ok 1 - the corpus\n");
    fflush(stdout);
    for (int i = 0; i < MUTATIONS; i++) {
        size_t n = strlen(corpus[i % CORPUS]);
        memcpy(data, corpus[i % CORPUS], n);
        for (uint64_t k = draw(&seed) % 4 + 1; k; k--)
            n = mutate(data, n, &seed);
        LLVMFuzzerTestOneInput(data, n);
    }
    printf("ok 2 - %d mutations\n1..2\n", MUTATIONS);
    return 0;
}

#endif
