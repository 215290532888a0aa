/* Fuzzes what reads settings: the file's lines, the text of every type, the
 * names, and all of them together as a file in force.
 *
 * Built with -fsanitize=fuzzer and -DRCCLX_LIBFUZZER it is libFuzzer's target.
 * Without, main replays a small corpus and 20,000 mutations of it, the same
 * ones every time, and prints TAP. Whatever is broken aborts. */
#include "base/conf.h"
#include "base/json.h"
#include "base/optvalue.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
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

static void check_value(const rcclx_optrow *row, const char *text)
{
    rcclx_optvalue v = { .i = -99, .r = -99, .text = NULL }, again = { 0 };
    char printed[RCCLX_CONF_LINE], reprinted[RCCLX_CONF_LINE];
    rcclx_optverdict verdict = rcclx_optvalue_parse(row, text, &v);

    if (verdict == RCCLX_OPT_REFUSED) {
        MUST(v.i == -99 && v.r == -99 && !v.text);
        return;
    }
    if (row->type == RCCLX_OPTTYPE_INT || row->type == RCCLX_OPTTYPE_SIZE || row->type == RCCLX_OPTTYPE_BOOL)
        MUST(v.i >= row->imin && v.i <= row->imax);
    if (row->type == RCCLX_OPTTYPE_SECONDS || row->type == RCCLX_OPTTYPE_REAL)
        MUST(v.r >= row->rmin && v.r <= row->rmax);
    /* What is in force can be handed to another rank and means the same there. */
    MUST(rcclx_optvalue_print(row, &v, printed, sizeof(printed)) < (int)sizeof(printed));
    MUST(rcclx_optvalue_parse(row, printed, &again) == RCCLX_OPT_TAKEN);
    rcclx_optvalue_print(row, &again, reprinted, sizeof(reprinted));
    MUST(!strcmp(printed, reprinted));
    if (row->type != RCCLX_OPTTYPE_SECONDS && row->type != RCCLX_OPTTYPE_REAL)
        MUST(v.i == again.i || v.text);
}

static void check_text(const char *s)
{
    MUST(!isspace((unsigned char)*s) && (!*s || !isspace((unsigned char)s[strlen(s) - 1])));
    MUST(strlen(s) < RCCLX_CONF_LINE && !strchr(s, '\n'));
}

static void each(void *context, int line, const char *name, const char *value)
{
    int *last = context;

    MUST(line > *last && value);
    *last = line;
    if (!name || line > 64) /* more lines are more of the same, and slow */
        return;
    check_text(name);
    check_text(value);
    MUST(*name && !strchr(name, '='));
    for (rcclx_option o = 0; o < RCCLX_OPT_COUNT; o++)
        check_value(rcclx_option_row(o), value);
    for (rcclx_option o = (rcclx_option)(line % 16); o < RCCLX_OPT_COUNT; o += 16) {
        const rcclx_optrow *row = rcclx_option_row(o);
        int there = rcclx_optname_distance(name, row->name), back = rcclx_optname_distance(row->name, name);
        MUST(there == back && there >= 0 && (strcmp(name, row->name) || !there));
    }
}

/* The whole way: a file named by NCCL_CONF_FILE, read, in force, printed. */
static void check_in_force(const uint8_t *data, size_t size)
{
    char path[64];
    static FILE *null;
    int fd = memfd_create("conf", MFD_CLOEXEC);

    MUST(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    setenv("NCCL_CONF_FILE", path, 1);
    setenv("NCCL_DEBUG", "NONE", 1);
    rcclx_option_reload();
    close(fd);
    for (rcclx_option o = 0; o < RCCLX_OPT_COUNT; o++)
        check_value(rcclx_option_row(o), rcclx_option_str(o));
    (void)rcclx_option_agree_hash();
    null = null ? null : fopen("/dev/null", "w");
    rcclx_option_dump(null, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int last = 0;
    FILE *in = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;

    if (in) {
        rcclx_conf_read(in, each, &last);
        fclose(in);
    }
    if (size % 32 == 0) /* costs most of the time */
        check_in_force(data, size);
    return 0;
}

#ifndef RCCLX_LIBFUZZER

static const char *const corpus[] = {
    "NCCL_DEBUG=NONE\n# comment\nRCCLX_TIMEOUT=1.5 # seconds\n",
    "RCCLX_CHUNK_BYTES=64K\nRCCLX_LL_BYTES=0x2000\nNCCL_MIN_CTAS=-99999999999999999999\n",
    "RCCLX_INIT_TIMEOUT=1e-3h\nRCCLX_WARN_AFTER=99999999999999999999999e300\nRCCLX_TIMEOUT=250ms\n",
    "NCCL_ALGO=allreduce:ring,tree;broadcast:^ring\nNCCL_PROTO=^LL128\nRCCL_NET=\xc3\xa9\xff\n",
    "  RCCLX_DEVICE =host\r\nNCCL_SHM_DISABLE= TRUE\r\n=x\n==\nNCCL_HOSTID=\n",
    "RCCLX_SEQ_START=9223372036854775807\nRCCLX_ARENA_BYTES=9999999999999T\nRCCLX_ISA=avx2|avx512\n",
    "NCCL_DEBGU=INFO\nNCCL_CONF_FILE=/dev/zero\nRCCLX_CMA=auto\nNCLC_X=1",
};
enum { CORPUS = sizeof(corpus) / sizeof(corpus[0]), MUTATIONS = 20000, INPUT_MAX = 6000 };

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Flip, overwrite, delete, repeat a piece, or splice with another input. */
static size_t mutate(uint8_t *data, size_t n, uint64_t *seed)
{
    static const char odd[] = "=#\n\r\0 -+.eExKMGT9|,^_\xff";
    size_t at = n ? draw(seed) % n : 0, len = n - at ? draw(seed) % (n - at) : 0;

    switch (draw(seed) % 5) {
    case 0:
        if (n)
            data[at] ^= (uint8_t)(1u << draw(seed) % 8);
        break;
    case 1:
        if (n)
            data[at] = (uint8_t)odd[draw(seed) % sizeof(odd)];
        break;
    case 2:
        memmove(data + at, data + at + len, n - at - len);
        n -= len;
        break;
    case 3:
        for (int times = (int)(draw(seed) % 16); times && len && n + len <= INPUT_MAX; times--) {
            memmove(data + at + len, data + at, n - at);
            n += len;
        }
        break;
    default: {
        const char *other = corpus[draw(seed) % CORPUS];
        len = strlen(other);
        if (at + len <= INPUT_MAX) {
            memcpy(data + at, other, len);
            n = at + len > n ? at + len : n;
        }
    }
    }
    return n;
}

int main(void)
{
    static uint8_t data[INPUT_MAX];
    uint64_t seed = UINT64_C(0x9e3779b97f4a7c15);

    for (int i = 0; i < CORPUS; i++) {
        LLVMFuzzerTestOneInput((const uint8_t *)corpus[i], strlen(corpus[i]));
        check_in_force((const uint8_t *)corpus[i], strlen(corpus[i]));
    }
    LLVMFuzzerTestOneInput(data, 0);
    printf("ok 1 - the corpus\n");
    for (int i = 0; i < MUTATIONS; i++) {
        size_t n = strlen(corpus[i % CORPUS]);
        memcpy(data, corpus[i % CORPUS], n);
        for (uint64_t k = draw(&seed) % 8 + 1; k; k--)
            n = mutate(data, n, &seed);
        LLVMFuzzerTestOneInput(data, n);
    }
    printf("ok 2 - %d mutations\n1..2\n", MUTATIONS);
    return 0;
}

#endif
