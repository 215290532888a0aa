#include "check.h"

#include "plan/plan.h"

static uint64_t state = 88172645463325252u;

static size_t draw(size_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (size_t)(state % below);
}

static void tiles(size_t count, size_t size, int nblocks)
{
    size_t at = 0, longest = 0, shortest = SIZE_MAX, begin, length;

    for (int b = 0; b < nblocks; b++) {
        rcclx_split(count, size, nblocks, b, &begin, &length);
        CHECK(begin == at, "%zu x %zu in %d: block %d begins at %zu, not %zu", count, size, nblocks, b, begin, at);
        CHECK(begin == count || begin * size % 64 == 0, "%zu x %zu in %d: block %d begins inside a line", count, size,
              nblocks, b);
        at = begin + length;
        longest = length > longest ? length : longest;
        shortest = length < shortest ? length : shortest;
    }
    CHECK(at == count, "%zu x %zu in %d: ends at %zu", count, size, nblocks, at);
    CHECK(longest - shortest < 2 * 64 / size, "%zu x %zu in %d: %zu to %zu", count, size, nblocks, shortest, longest);
    rcclx_split(count, size, nblocks, 0, &begin, &length);
    CHECK(length == longest || count < 64 / size, "%zu x %zu in %d: block 0 is not the longest", count, size, nblocks);
}

TEST(blocks_tile_the_message)
{
    for (int i = 0; i < 20000; i++) {
        const size_t bits = 1 + draw(40), size = (size_t)1 << draw(4);
        tiles(draw((size_t)1 << bits), size, 1 + (int)draw(64));
    }
}

TEST(small_messages_fill_the_first_blocks)
{
    size_t begin, length;

    for (size_t count = 0; count <= 64; count++)
        for (int nblocks = 1; nblocks <= 64; nblocks++)
            tiles(count, 8, nblocks);
    rcclx_split(16, 4, 8, 0, &begin, &length);
    CHECK(begin == 0 && length == 16, "one line is one block: %zu, %zu", begin, length);
    rcclx_split(16, 4, 8, 7, &begin, &length);
    CHECK(begin == 16 && length == 0, "the last block is empty: %zu, %zu", begin, length);
}

TEST(counts_beyond_32_bits)
{
    size_t begin, length;

    rcclx_split((size_t)1 << 40, 8, 3, 2, &begin, &length);
    CHECK(begin + length == (size_t)1 << 40, "%zu + %zu", begin, length);
    tiles(((size_t)1 << 33) + 7, 2, 7);
}
