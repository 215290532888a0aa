/* Fuzzes codecs: whatever bytes a run is made of, they are decoded to something, the same on every
 * instruction set; nothing around source and destination is read or written; and what was decoded
 * can be encoded again.
 *
 * An input chooses codec, type and count; the rest is the run's bytes, over and over. Buffers are
 * of malloc and end where they end, so that AddressSanitizer sees a step too far.
 *
 * Built with -fsanitize=fuzzer and -DRCCLX_LIBFUZZER it is libFuzzer's target. Without, main draws
 * inputs, the same ones every time, and prints TAP. Whatever is broken aborts. */
#include "codec/codec.h"
#include "device/reduce.h"

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

static const char *const sets[] = { "avx512", "avx2", "neon", "baseline" };

static void *want(size_t nbytes)
{
    void *p = malloc(nbytes ? nbytes : 1);

    MUST(p);
    return p;
}

/* Decoded and encoded again, by the set in use, between bytes that must stay. */
static void there_and_back(int c, rcclx_type t, const void *wire, size_t count, unsigned char *plain, unsigned char *again)
{
    const size_t nbytes = count * rcclx_type_size(t);

    memset(plain, 0x5a, nbytes + 8);
    memset(again, 0, rcclx_codec_bytes(count));
    rcclx_codecs[c]->decode(t, wire, count, plain + 4);
    rcclx_codecs[c]->encode(t, plain + 4, count, again);
    MUST(memcmp(plain, "ZZZZ", 4) == 0 && memcmp(plain + 4 + nbytes, "ZZZZ", 4) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 5)
        return 0;
    const int        c      = 1 + data[0] % (RCCLX_CODEC_COUNT - 1);
    const rcclx_type t      = (rcclx_type[]){ RCCLX_F32, RCCLX_BF16, RCCLX_F16 }[data[1] % 3];
    const size_t     count  = (data[2] | (size_t)data[3] << 8) % 1200;
    const size_t     nbytes = rcclx_codec_bytes(count), room = count * rcclx_type_size(t) + 8;
    uint8_t *wire = want(nbytes), *plain[2] = { want(room), want(room) }, *again[2] = { want(nbytes), want(nbytes) };
    int      n    = 0;

    for (size_t i = 0; i < nbytes; i++)
        wire[i] = data[4 + i % (size - 4)];
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        if (rcclx_isa_use(sets[i]) != 0)
            continue;
        there_and_back(c, t, wire, count, plain[n > 0], again[n > 0]);
        if (n++)
            MUST(memcmp(plain[0], plain[1], room) == 0 && memcmp(again[0], again[1], nbytes) == 0);
    }
    free(wire);
    for (int k = 0; k < 2; k++) {
        free(plain[k]);
        free(again[k]);
    }
    return 0;
}

#ifndef RCCLX_LIBFUZZER
enum { ROUNDS = 20000, MOST = 1500 };

int main(void)
{
    static uint8_t bytes[MOST];
    uint64_t       x = 20250601;

    for (int k = 0; k < ROUNDS; k++) {
        const size_t size = 5 + (size_t)k * 7 % (MOST - 5);

        for (size_t i = 0; i < size; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            bytes[i] = (uint8_t)(x >> 20);
        }
        LLVMFuzzerTestOneInput(bytes, size);
    }
    printf("ok 1 - %d runs of any bytes are decoded alike, and encoded again\n1..1\n", ROUNDS);
    return 0;
}
#endif
