/* Fuzzes the two texts users write about algorithms: forced lists and the tuning table.
 *
 * Built with -fsanitize=fuzzer and -DRCCLX_LIBFUZZER it is libFuzzer's target.
 * Without, main replays a small corpus and 20,000 mutations of it, the same ones
 * every time, and prints TAP. Whatever is broken aborts. */
#include "algo/algo.h"
#include "algo/list.h"
#include "algo/tune.h"

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

static void check_list(const char *text)
{
    char bad[16];

    memset(bad, 'x', sizeof(bad));
    if (rcclx_algo_list_check(text, bad, sizeof(bad)) == 0)
        MUST(bad[0] == 'x' && bad[15] == 'x');
    else
        MUST(memchr(bad, 0, sizeof(bad)) != NULL);
    for (int k = 0; k < RCCLX_COLL_COUNT; k++) {
        const rcclx_algo_wish wish = rcclx_algo_list_wish(text, (rcclx_kind)k);
        MUST(wish.forces || wish.allowed == ~0u);
    }
}

static void check_table(const char *text, size_t size)
{
    rcclx_tune t, again;
    int line = -1;
    rcclx_status status = rcclx_tune_parse(&t, text, size, &line);

    if (status != RCCLX_OK) {
        MUST(status == RCCLX_ARGUMENT && line >= 1 && !t.rows && !t.nrows && !t.hash);
        return;
    }
    MUST(line == 0);
    for (size_t i = 0; i < t.nrows; i++) {
        const rcclx_tune_row *r = &t.rows[i];
        const rcclx_shape s = { r->kind, r->nranks ? r->nranks : 3, 0, 0, 0, NULL };
        MUST(r->algo && r->min_bytes <= r->max_bytes && r->kind < RCCLX_COLL_COUNT);
        MUST(rcclx_tune_find(&t, &s, r->min_bytes) && rcclx_tune_find(&t, &s, r->max_bytes));
    }
    MUST(rcclx_tune_parse(&again, text, size, &line) == RCCLX_OK && again.hash == t.hash);
    rcclx_tune_fini(&again);
    rcclx_tune_fini(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    check_list(text);
    check_table((const char *)data, size);
    free(text);
    return 0;
}

#ifndef RCCLX_LIBFUZZER

static const char *const corpus[] = {
    "", "ring", "^tree", "ring,tree", "allreduce:ring;broadcast:tree", "Ring ; all_gather : ^ Tree , PAT",
    "AllReduce:NVLS,NVLSTree;:;;^,", "ring;allreduce:^ring,tree,,slot", ":::^^^,,,;;;",
    "all_reduce 2 0 4K slot\n", "# measured\nbroadcast * 1M - ring # far\n\n  reduce\t8 0 1G tree\r\n",
    "alltoallv 3 18446744073709551615 - staged\nall_gather 64 1 2 doubling", "all_reduce 2 5 4 slot\n",
    "gather 1 0 99999999999999999999 direct\n", "send 1 0 - ring\n", "all_reduce 2 0 17179869184G slot\n",
};

static uint32_t state = 2463534242u;

static uint32_t draw(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state % below;
}

/* Change, drop, double a byte, or splice the tail of another text. */
static size_t mutate(uint8_t *data, size_t size, size_t room)
{
    static const char bytes[] = ";:^, \n\t#*-KMG0a\0\xff";
    const size_t at = draw((uint32_t)size + 1);

    switch (draw(4)) {
    case 0:
        if (at < size)
            data[at] = (uint8_t)bytes[draw(sizeof(bytes) - 1)];
        return size;
    case 1:
        if (at < size)
            memmove(data + at, data + at + 1, size - at - 1);
        return size ? size - (at < size) : 0;
    case 2:
        if (at >= size || size >= room)
            return size;
        memmove(data + at + 1, data + at, size - at);
        return size + 1;
    default: {
        const char *other = corpus[draw(sizeof(corpus) / sizeof(corpus[0]))];
        const size_t n = strlen(other) < room - at ? strlen(other) : room - at;
        memcpy(data + at, other, n);
        return at + n;
    }
    }
}

int main(void)
{
    const size_t ncorpus = sizeof(corpus) / sizeof(corpus[0]);
    uint8_t data[200];

    for (size_t i = 0; i < ncorpus; i++)
        LLVMFuzzerTestOneInput((const uint8_t *)corpus[i], strlen(corpus[i]));
    printf("ok 1 - the corpus\n");
    for (int i = 0; i < 20000; i++) {
        const char *from = corpus[draw((uint32_t)ncorpus)];
        size_t size = strlen(from);
        memcpy(data, from, size);
        for (uint32_t k = 1 + draw(6); k; k--)
            size = mutate(data, size, sizeof(data));
        LLVMFuzzerTestOneInput(data, size);
    }
    printf("ok 2 - 20000 mutations\n1..2\n");
    return 0;
}

#endif
