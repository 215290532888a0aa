/* The parser of ncclConfig_t, against structures as the headers of 2.14 to 2.31
 * lay them out, with garbage wherever such a program has padding. */
#include "check.h"

#include "api/config_parse.h"
#include "base/log.h"
#include "base/option.h"

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

enum { GARBAGE = 0x5a5a5a5a };

/* One structure version: its bytes, and up to where its own fields reach. */
static const struct {
    const char *name;
    unsigned    version;
    size_t      nbytes, nused;
} headers[] = {
    { "2.14", 21403, 24, 20 },    { "2.17", 21701, 40, 40 },    { "2.18", 21801, 48, 44 },   { "2.25", 22501, 48, 44 },
    { "2.26", 22602, 48, 48 },    { "2.27", 22703, 72, 72 },    { "2.28.3", 22803, 80, 80 }, { "2.28.9", 22809, 80, 80 },
    { "2.29", 22902, 88, 88 },    { "2.30.3", 23003, 96, 92 },  { "2.30.7", 23007, 96, 96 }, { "2.31", 23102, 112, 112 },
};
enum { NHEADERS = sizeof headers / sizeof headers[0] };

/* Every number: where it lies, since when, a legal value, the default. */
static const struct {
    const char *name;
    size_t      at, into;
    unsigned    since;
    int         legal, illegal, otherwise;
} fields[] = {
#define F(field, at, since, legal, illegal, otherwise)                        \
    { #field, at, offsetof(rcclx_comm_config, field), since, legal, illegal, otherwise }
    F(blocking, 16, 21400, 0, 2, 1),
    F(cgaClusterSize, 20, 21700, 2, 9, 4),
    F(minCTAs, 24, 21700, 3, 0, 1),
    F(maxCTAs, 28, 21700, 17, -1, 64),
    F(splitShare, 40, 21800, 1, -1, 0),
    F(trafficClass, 44, 22600, 5, -2, INT_MIN),
    F(collnetEnable, 56, 22700, 1, 2, 0),
    F(CTAPolicy, 60, 22700, 2, 4, 0),
    F(shrinkShare, 64, 22700, 1, 3, 0),
    F(nvlsCTAs, 68, 22700, 6, 0, INT_MIN),
    F(nChannelsPerNetPeer, 72, 22800, 8, 65, INT_MIN),
    F(nvlinkCentricSched, 76, 22800, 1, 2, 0),
    F(graphUsageMode, 80, 22900, 1, 3, 2),
    F(numRmaCtx, 84, 22900, 4, -1, 1),
    F(maxP2pPeers, 88, 23000, 7, 0, INT_MIN),
    F(graphStreamOrdering, 92, 23005, 0, 2, 1),
    F(launchOrderImplicit, 96, 23100, 1, 2, 0),
    F(numRmaSig, 100, 23100, 9, 0, 1),
    F(rmaEagerInit, 104, 23100, 1, 2, 0),
    F(hostCftMode, 108, 23100, 3, 4, INT_MIN),
#undef F
};
enum { NFIELDS = sizeof fields / sizeof fields[0] };

typedef struct {
    _Alignas(8) unsigned char bytes[256];
} image;

static void put(image *m, size_t at, const void *v, size_t n)
{
    memcpy(m->bytes + at, v, n);
}

static void put_int(image *m, size_t at, int v)
{
    put(m, at, &v, sizeof v);
}

static int got(const rcclx_comm_config *c, int f)
{
    int v;
    memcpy(&v, (const char *)c + fields[f].into, sizeof v);
    return v;
}

static bool has(int h, int f)
{
    return headers[h].version >= fields[f].since && fields[f].at + 4 <= headers[h].nused;
}

/* What NCCL_CONFIG_INITIALIZER of that header makes, garbage in its padding. */
static image fresh(int h)
{
    image    m;
    size_t   size  = headers[h].nbytes;
    unsigned magic = 0xcafebeef;
    void    *none  = NULL;

    memset(m.bytes, GARBAGE & 0xff, sizeof m.bytes);
    put(&m, 0, &size, sizeof size);
    put(&m, 8, &magic, sizeof magic);
    put(&m, 12, &headers[h].version, 4);
    for (int f = 0; f < NFIELDS; f++)
        if (has(h, f))
            put_int(&m, fields[f].at, INT_MIN);
    if (headers[h].version >= 21700)
        put(&m, 32, &none, sizeof none);
    if (headers[h].version >= 22700)
        put(&m, 48, &none, sizeof none);
    return m;
}

static rcclx_status parse(const void *user, rcclx_comm_config *out)
{
    memset(out, GARBAGE & 0xff, sizeof *out);
    return rcclx_config_parse("ncclCommInitRankConfig", 3, user, NULL, out);
}

static void check_defaults(const char *what, const rcclx_comm_config *c)
{
    for (int f = 0; f < NFIELDS; f++)
        CHECK(got(c, f) == fields[f].otherwise, "%s: %s is %d, default is %d", what, fields[f].name, got(c, f),
              fields[f].otherwise);
    CHECK(c->netName[0] == 0 && c->commName[0] == 0, "%s: names '%s' '%s'", what, c->netName, c->commName);
}

TEST(no_structure_gives_the_defaults)
{
    rcclx_comm_config c;
    REQUIRE(parse(NULL, &c) == RCCLX_OK, "%s", rcclx_last_error());
    check_defaults("NULL", &c);
}

TEST(an_initializer_of_every_version_gives_the_defaults_whatever_is_in_its_padding)
{
    for (int h = 0; h < NHEADERS; h++) {
        CASE("initializer of %s", headers[h].name) {
            image             m = fresh(h);
            rcclx_comm_config c;
            if (CHECK(parse(&m, &c) == RCCLX_OK, "%s", rcclx_last_error()))
                check_defaults(headers[h].name, &c);
        }
    }
}

TEST(a_field_is_taken_from_every_version_that_has_it_and_from_no_other)
{
    for (int h = 0; h < NHEADERS; h++) {
        CASE("fields of %s", headers[h].name) {
            for (int f = 0; f < NFIELDS; f++) {
                image             m = fresh(h);
                rcclx_comm_config c;
                put_int(&m, fields[f].at, fields[f].legal); /* beyond its own fields this is padding, or not ours */
                if (!CHECK(parse(&m, &c) == RCCLX_OK, "%s: %s", fields[f].name, rcclx_last_error()))
                    continue;
                const int want = has(h, f) ? fields[f].legal : fields[f].otherwise;
                CHECK(got(&c, f) == want, "%s is %d, not %d", fields[f].name, got(&c, f), want);
            }
        }
    }
}

TEST(a_value_out_of_range_is_refused_by_name)
{
    for (int f = 0; f < NFIELDS; f++) {
        image             m = fresh(NHEADERS - 1);
        rcclx_comm_config c;
        char              number[16];

        put_int(&m, fields[f].at, fields[f].illegal);
        CHECK(parse(&m, &c) == RCCLX_ARGUMENT, "%s = %d passed", fields[f].name, fields[f].illegal);
        snprintf(number, sizeof number, "is %d,", fields[f].illegal);
        CHECK(strstr(rcclx_last_error(), fields[f].name) && strstr(rcclx_last_error(), number) &&
                  strstr(rcclx_last_error(), "rank 3: ncclCommInitRankConfig"),
              "text: %s", rcclx_last_error());
    }
}

TEST(a_wrong_magic_is_refused_before_the_rest_is_read)
{
    rcclx_comm_config c;
    image             m = fresh(NHEADERS - 1);

    put_int(&m, 8, 0x12345678);
    CHECK(parse(&m, &c) == RCCLX_ARGUMENT, "passed");
    CHECK(strstr(rcclx_last_error(), "0x12345678") && strstr(rcclx_last_error(), "NCCL_CONFIG_INITIALIZER"), "text: %s",
          rcclx_last_error());
    memset(&m, 0, sizeof m);
    CHECK(parse(&m, &c) == RCCLX_ARGUMENT, "all zero passed");
}

TEST(an_impossible_size_is_refused)
{
    const size_t sizes[] = { 0, 8, 16, 23, 4097, SIZE_MAX };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        rcclx_comm_config c;
        image             m = fresh(NHEADERS - 1);
        put(&m, 0, &sizes[i], sizeof sizes[i]);
        CHECK(parse(&m, &c) == RCCLX_ARGUMENT, "size %zu passed", sizes[i]);
        CHECK(strstr(rcclx_last_error(), "config->size"), "text: %s", rcclx_last_error());
    }
}

TEST(a_structure_is_never_read_beyond_its_size)
{
    /* The structure ends where a page that cannot be read begins. */
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char        *two  = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    REQUIRE(two != MAP_FAILED && mprotect(two + page, page, PROT_NONE) == 0, "no memory");
    for (int h = 0; h < NHEADERS; h++) {
        image             m    = fresh(h);
        char             *user = two + page - headers[h].nbytes;
        rcclx_comm_config c;
        memcpy(user, m.bytes, headers[h].nbytes);
        CHECK(parse(user, &c) == RCCLX_OK, "%s: %s", headers[h].name, rcclx_last_error());
    }
    munmap(two, 2 * page);
}

TEST(a_structure_of_the_future_is_read_as_far_as_it_is_known)
{
    image             m    = fresh(NHEADERS - 1);
    const size_t      size = 200;
    rcclx_comm_config c;

    put(&m, 0, &size, sizeof size);
    put_int(&m, 12, 24001);
    put_int(&m, 108, 2);
    REQUIRE(parse(&m, &c) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(c.hostCftMode == 2, "%d", c.hostCftMode);
}

TEST(a_description_pointer_at_80_is_not_taken_for_two_numbers)
{
    /* One RCCL fork ends its 2.28 structure with a pointer. */
    for (int filled = 0; filled < 2; filled++) {
        image             m    = fresh(7);
        const size_t      size = 88;
        const char       *desc = filled ? "group 7" : NULL;
        rcclx_comm_config c;

        put(&m, 0, &size, sizeof size);
        put(&m, 80, &desc, sizeof desc);
        REQUIRE(parse(&m, &c) == RCCLX_OK, "%s", rcclx_last_error());
        CHECK(c.graphUsageMode == 2 && c.numRmaCtx == 1, "%d %d", c.graphUsageMode, c.numRmaCtx);
    }
}

TEST(names_are_copied_and_cut)
{
    char              net[200], comm[] = "tensor parallel";
    const char       *pnet = net, *pcomm = comm;
    image             m = fresh(7);
    rcclx_comm_config c;

    memset(net, 'n', sizeof net - 1);
    net[sizeof net - 1] = 0;
    put(&m, 32, &pnet, sizeof pnet);
    put(&m, 48, &pcomm, sizeof pcomm);
    REQUIRE(parse(&m, &c) == RCCLX_OK, "%s", rcclx_last_error());
    memset(comm, 0, sizeof comm);
    CHECK(strcmp(c.commName, "tensor parallel") == 0, "'%s'", c.commName);
    CHECK(strlen(c.netName) == sizeof c.netName - 1, "%zu", strlen(c.netName));
}

TEST(blocks_are_bounded_together)
{
    static const struct {
        int min, max, want_min, want_max; /* want_min 0: refused */
    } pairs[] = { { 8, 4, 0, 0 }, { 100, 200, 64, 64 }, { 5, INT_MIN, 5, 64 }, { INT_MIN, 5, 1, 5 }, { 4, 4, 4, 4 } };

    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        image             m = fresh(7);
        rcclx_comm_config c;
        put_int(&m, 24, pairs[i].min);
        put_int(&m, 28, pairs[i].max);
        const rcclx_status s = parse(&m, &c);
        if (!pairs[i].want_min)
            CHECK(s == RCCLX_ARGUMENT, "%d..%d passed", pairs[i].min, pairs[i].max);
        else
            CHECK(s == RCCLX_OK && c.minCTAs == pairs[i].want_min && c.maxCTAs == pairs[i].want_max,
                  "%d..%d became %d..%d", pairs[i].min, pairs[i].max, c.minCTAs, c.maxCTAs);
    }
}

TEST(the_policy_zero_drops_efficiency)
{
    image             m = fresh(7);
    rcclx_comm_config c;
    put_int(&m, 60, 3);
    REQUIRE(parse(&m, &c) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(c.CTAPolicy == 2, "%d", c.CTAPolicy);
}

TEST(the_environment_wins)
{
    image             m = fresh(7);
    rcclx_comm_config c;

    put_int(&m, 16, 1);
    put_int(&m, 20, 2);
    put_int(&m, 28, 9);
    setenv("NCCL_COMM_BLOCKING", "0", 1);
    setenv("NCCL_CGA_CLUSTER_SIZE", "8", 1);
    setenv("NCCL_MAX_CTAS", "3", 1);
    setenv("NCCL_CTA_POLICY", "EFFICIENCY", 1);
    setenv("NCCL_NET", "Socket", 1);
    rcclx_option_reload();
    CHECK(parse(&m, &c) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(c.blocking == 0 && c.cgaClusterSize == 8 && c.maxCTAs == 3 && c.CTAPolicy == 1, "%d %d %d %d", c.blocking,
          c.cgaClusterSize, c.maxCTAs, c.CTAPolicy);
    CHECK(strcmp(c.netName, "Socket") == 0, "'%s'", c.netName);
    CHECK(parse(NULL, &c) == RCCLX_OK && c.blocking == 0, "without a structure: %d", c.blocking);

    setenv("NCCL_CTA_POLICY", "ZERO|EFFICIENCY", 1);
    rcclx_option_reload();
    CHECK(parse(&m, &c) == RCCLX_OK && c.CTAPolicy == 2, "%d", c.CTAPolicy);
    setenv("NCCL_CTA_POLICY", "FASTEST", 1);
    rcclx_option_reload();
    CHECK(parse(&m, &c) == RCCLX_OK && c.CTAPolicy == 0, "%d", c.CTAPolicy);

    unsetenv("NCCL_COMM_BLOCKING");
    unsetenv("NCCL_CGA_CLUSTER_SIZE");
    unsetenv("NCCL_MAX_CTAS");
    unsetenv("NCCL_CTA_POLICY");
    unsetenv("NCCL_NET");
    rcclx_option_reload();
    CHECK(parse(&m, &c) == RCCLX_OK && c.blocking == 1 && c.maxCTAs == 9, "afterwards: %d %d", c.blocking, c.maxCTAs);
}

TEST(without_a_structure_a_child_inherits)
{
    image             m = fresh(7);
    rcclx_comm_config parent, child;

    put_int(&m, 16, 0);
    put_int(&m, 28, 9);
    REQUIRE(parse(&m, &parent) == RCCLX_OK, "%s", rcclx_last_error());
    REQUIRE(rcclx_config_parse("ncclCommSplit", 0, NULL, &parent, &child) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(memcmp(&parent, &child, sizeof child) == 0, "%d %d", child.blocking, child.maxCTAs);

    m = fresh(7);
    REQUIRE(rcclx_config_parse("ncclCommSplit", 0, &m, &parent, &child) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(child.blocking == 1 && child.maxCTAs == 64, "a structure of its own: %d %d", child.blocking, child.maxCTAs);
}
