/* Fuzzes the reader of ncclConfig_t: any size, magic and version, any numbers.
 *
 * The structure lies at the end of a block of its own, so that a sanitizer sees
 * every byte read beyond what `size` promises. The first byte of the input says
 * which names it carries. Built with -fsanitize=fuzzer and -DRCCLX_LIBFUZZER it is
 * libFuzzer's target; without, main replays every version's layout and mutations
 * of them and prints TAP. Whatever is broken aborts. */
#include "api/config_parse.h"

#include "base/log.h"
#include "base/option.h"
#include "nccl.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(cond)                                                                   \
    do {                                                                             \
        if (!(cond)) {                                                               \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #cond);       \
            abort();                                                                 \
        }                                                                            \
    } while (0)

enum { LEAST = 24, MOST = 4096, NET_NAME = 32, COMM_NAME = 48, MAGIC_AT = 8, VERSION_AT = 12 };

static void check_result(const rcclx_comm_config *c)
{
    MUST(c->blocking == 0 || c->blocking == 1);
    MUST(c->cgaClusterSize >= 0 && c->cgaClusterSize <= 8);
    MUST(c->minCTAs >= 1 && c->minCTAs <= c->maxCTAs && c->maxCTAs <= 64);
    MUST(c->splitShare >> 1 == 0 && c->collnetEnable >> 1 == 0 && c->shrinkShare >> 1 == 0);
    MUST(c->CTAPolicy >= 0 && c->CTAPolicy <= 3);
    MUST(c->trafficClass == RCCLX_CONFIG_UNSET || c->trafficClass >= 0);
    MUST(c->nvlsCTAs == RCCLX_CONFIG_UNSET || c->nvlsCTAs >= 1);
    MUST(c->graphUsageMode >= 0 && c->graphUsageMode <= 2 && c->numRmaCtx >= 0 && c->numRmaSig >= 1);
    MUST(memchr(c->netName, 0, sizeof(c->netName)) && memchr(c->commName, 0, sizeof(c->commName)));
}

/* A pointer of the structure is a real one or NULL: anything else is the caller's fault, not a parser's. */
static void put_name(uint8_t *config, size_t n, size_t at, const char *name)
{
    if (at + sizeof(name) <= n)
        memcpy(config + at, &name, sizeof(name));
    else if (at < n)
        memset(config + at, 0, n - at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char long_name[300];
    static const char *const names[] = { NULL, "", "tcp", long_name };
    rcclx_comm_config out, again;

    if (size < 1 + LEAST || size > 1 + MOST)
        return 0;
    memset(long_name, 'n', sizeof(long_name) - 1);
    const size_t n = size - 1;
    uint8_t *config = malloc(n);
    size_t says;
    MUST(config);
    memcpy(config, data + 1, n);
    memcpy(&says, config, sizeof(says));
    if (says > n && says <= MOST)
        memcpy(config, &n, sizeof(n)); /* a size that lies within bounds would be the caller's fault */
    put_name(config, n, NET_NAME, names[data[0] & 3]);
    put_name(config, n, COMM_NAME, names[data[0] >> 2 & 3]);
    const rcclx_status s = rcclx_config_parse("fuzz", 0, config, NULL, &out);
    MUST(s == RCCLX_OK || (s == RCCLX_ARGUMENT && *rcclx_last_error()));
    if (s == RCCLX_OK) {
        check_result(&out);
        /* a copy of a parent's settings changes nothing */
        MUST(rcclx_config_parse("fuzz", 0, NULL, &out, &again) == RCCLX_OK && !memcmp(&out, &again, sizeof(out)));
    }
    free(config);
    return 0;
}

#ifndef RCCLX_LIBFUZZER
enum { ROUNDS = 40000 };

/* Sizes and versions as they were released. */
static const struct { uint32_t size, version; } layouts[] = {
    { 24, 21400 }, { 40, 21700 }, { 48, 21800 }, { 48, 22600 }, { 72, 22700 }, { 80, 22809 }, { 88, 22900 }, { 96, 23000 }, { 112, 23100 },
};
enum { LAYOUTS = sizeof(layouts) / sizeof(*layouts) };

static uint64_t dice = 4242;

static uint64_t roll(void)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    return dice ^= dice << 17;
}

static size_t make(uint8_t *out, int i)
{
    const uint32_t magic = NCCL_API_MAGIC;
    const int unset = NCCL_CONFIG_UNDEF_INT;
    const size_t n = layouts[i].size;

    out[0] = (uint8_t)roll();
    memset(out + 1, 0, MOST);
    memcpy(out + 1, &n, sizeof(n));
    memcpy(out + 1 + MAGIC_AT, &magic, 4);
    memcpy(out + 1 + VERSION_AT, &layouts[i].version, 4);
    for (size_t at = 16; at + 4 <= n; at += 4)
        memcpy(out + 1 + at, &unset, 4);
    return n + 1;
}

static size_t mutate(uint8_t *out, size_t n)
{
    for (uint64_t k = 1 + roll() % 3; k; k--) {
        const size_t at = 1 + roll() % ((n - 1) / 4) * 4;
        const int v[] = { 0, 1, 2, 3, 8, 64, 65, -1, INT_MAX, INT_MIN, (int)roll() };
        switch (roll() % 4) {
        case 0: memcpy(out + at, &v[roll() % (sizeof(v) / sizeof(*v))], 4); break;
        case 1: out[at + roll() % 4] ^= (uint8_t)(1u << roll() % 8); break;
        case 2: n = n > 40 && roll() % 8 == 0 ? n - roll() % 16 : n; break;
        default: n = n + 64 < MOST && roll() % 8 == 0 ? n + roll() % 64 : n;
        }
    }
    return n;
}

int main(void)
{
    static uint8_t bytes[2 * MOST];

    setenv("NCCL_DEBUG", "NONE", 1);
    rcclx_option_reload();
    for (int i = 0; i < LAYOUTS; i++) {
        rcclx_comm_config c;
        const size_t n = make(bytes, i) - 1;
        put_name(bytes + 1, n, NET_NAME, "tcp");
        put_name(bytes + 1, n, COMM_NAME, "mine");
        MUST(rcclx_config_parse("layout", 0, bytes + 1, NULL, &c) == RCCLX_OK);
        check_result(&c);
        MUST(strcmp(c.netName, layouts[i].version >= 21700 ? "tcp" : "") == 0);
        MUST(strcmp(c.commName, layouts[i].version >= 22700 ? "mine" : "") == 0);
    }
    printf("ok 1 - the layouts of %d versions\n", LAYOUTS);
    for (int k = 0; k < ROUNDS; k++)
        LLVMFuzzerTestOneInput(bytes, mutate(bytes, make(bytes, k % LAYOUTS)));
    printf("ok 2 - %d mutations of them\n1..2\n", ROUNDS);
    return 0;
}
#endif
