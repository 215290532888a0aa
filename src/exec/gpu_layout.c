/* What a window holds: the one table of how its memory is spent.
 *
 *   +---------+----------+---------+-----------+--------------+---------+
 *   | headers | counters |  pairs  |   2 x LL  |  2 x LL128   |  stage  |
 *   +---------+----------+---------+-----------+--------------+---------+
 *     4 KiB      8 KiB      8 MiB      8 MiB       16 MiB       24 MiB
 *
 * Regions never share bytes, so that a late store of one protocol cannot look like
 * data of another. LL and LL128 have two halves, used in turn: a slot is written again
 * two operations later. */
#include "exec/gpu_team.h"

#include <string.h>

enum {
    PAGE        = 4096,
    PAIR_BYTES  = 8 << 20,
    LL_BYTES    = 4 << 20,    /* of a half; a unit of 16 bytes carries 8 */
    LL128_BYTES = 8 << 20,    /* of a half; a line carries all but 16 bytes */
    STAGE_BYTES = 384 << 10,  /* of a lane */
    MOST_BYTES  = 60 << 20,
};

enum { HEADER_BYTES = 2 * sizeof(gp_header), COUNTER_BYTES = GP_RANKS * sizeof(uint64_t) };

static uint32_t take(uint32_t *end, uint32_t nbytes)
{
    const uint32_t at = *end;

    *end = (at + nbytes + PAGE - 1) & ~(uint32_t)(PAGE - 1);
    return at;
}

gp_layout gp_layout_make(int nranks)
{
    gp_layout at = { .ll_bytes = LL_BYTES, .ll128_bytes = LL128_BYTES, .stage_bytes = STAGE_BYTES, .pair_bytes = PAIR_BYTES };
    uint32_t end = 0;

    (void)nranks; /* the same for all: with few ranks slots are longer */
    at.headers = take(&end, GP_RING * GP_RANKS * HEADER_BYTES);
    at.counters = take(&end, GP_LANES * COUNTER_BYTES);
    at.pairs = take(&end, PAIR_BYTES);
    at.ll = take(&end, 2 * LL_BYTES);
    at.ll128 = take(&end, 2 * LL128_BYTES);
    at.stage = take(&end, GP_LANES * STAGE_BYTES);
    at.total = end;
    return at;
}

_Static_assert(PAIR_BYTES + 2 * LL_BYTES + 2 * LL128_BYTES + GP_LANES * STAGE_BYTES + 8 * PAGE <= MOST_BYTES, "the budget");

size_t rcclx_layout_head(const gp_layout *at)
{
    return at->pairs;
}

void rcclx_layout_fill(const gp_layout *at, uint32_t start, void *head)
{
    memset(head, 0, rcclx_layout_head(at));
    uint32_t *unit = (uint32_t *)(void *)((char *)head + at->headers);
    for (int i = 0; i < GP_RING * GP_RANKS * HEADER_BYTES / GP_LL_UNIT; i++, unit += 4)
        unit[1] = unit[3] = GP_FLAG(start);
    uint64_t *counter = (uint64_t *)(void *)((char *)head + at->counters);
    for (int i = 0; i < GP_LANES * GP_RANKS; i++)
        counter[i] = GP_MARK(start, 0, 0);
}
