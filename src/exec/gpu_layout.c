/* What a window holds: the one table of how its memory is spent.
 *
 *   +---------+----------+---------+-----------+--------------+---------+
 *   | headers | counters |  pairs  |   2 x LL  |  2 x LL128   |  stage  |
 *   +---------+----------+---------+-----------+--------------+---------+
 *     8 KiB    256 KiB     11 MiB      8 MiB        6 MiB       32 MiB
 *
 *   pairs   | state about rank 0 | 1 | ..  | slots of the first other rank | of the second | ..
 *   slot    | LL units | a lane's two halves | the next lane's | ..
 *
 * Regions never share bytes, so that a late store of one protocol cannot look like
 * data of another. LL and LL128 have two halves, used in turn: a slot is written again
 * two operations later. */
#include "exec/gpu_team.h"

#include <string.h>

enum {
    PAGE        = 4096,
    PAIR_BYTES  = 11 << 20,
    PAIR_LL     = 128 << 10,  /* most for the LL units of a message */
    LL_BYTES    = 4 << 20,    /* of a half; a unit of 16 bytes carries 8 */
    LL128_BYTES = 3 << 20,    /* of a half; a line carries all but 16 bytes */
    STAGE_BYTES = 512 << 10,  /* of a lane */
    MOST_BYTES  = 60 << 20,
};

enum { STATE_BYTES = GP_RANKS * sizeof(gp_pair_state) };
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
    at.counters = take(&end, GP_CODED_BLOCKS * GP_WAVES * COUNTER_BYTES);
    at.pairs = take(&end, PAIR_BYTES);
    at.ll = take(&end, 2 * LL_BYTES);
    at.ll128 = take(&end, 2 * LL128_BYTES);
    at.stage = take(&end, GP_LANES * STAGE_BYTES);
    at.total = end;
    return at;
}

_Static_assert(PAIR_BYTES + 2 * LL_BYTES + 2 * LL128_BYTES + GP_LANES * STAGE_BYTES + GP_CODED_BLOCKS * GP_WAVES * COUNTER_BYTES + 8 * PAGE <= MOST_BYTES, "the budget");

_Static_assert(sizeof(gp_pair_state) % 128 == 0, "ranks write to lines of their own");

gp_pair_layout gp_pair_layout_make(const gp_layout *at, int nranks)
{
    const uint32_t others = nranks > 2 ? (uint32_t)nranks - 1 : 1;
    gp_pair_layout p = { .states = at->pairs, .slots = at->pairs + STATE_BYTES };

    p.set_bytes = (at->pair_bytes - STATE_BYTES) / others / PAGE * PAGE;
    p.slot_bytes = p.set_bytes / GP_PAIR_SLOTS;
    p.ll_bytes = p.slot_bytes / 3 / 128 * 128;
    p.ll_bytes = p.ll_bytes < PAIR_LL ? p.ll_bytes : PAIR_LL;
    return p;
}

size_t rcclx_layout_head(const gp_layout *at)
{
    return at->pairs + STATE_BYTES;
}

static void fill_units(uint32_t *unit, int n, uint32_t start)
{
    for (; n > 0; n--, unit += 4)
        unit[1] = unit[3] = GP_FLAG(start);
}

static void fill_pair(gp_pair_state *s, uint32_t start)
{
    fill_units(s->sends[0][0], 2 * GP_PAIR_SLOTS, start);
    fill_units(s->receives[0][0], 2 * GP_PAIR_SLOTS, start);
    for (int i = 0; i < GP_PAIR_SLOTS; i++) {
        s->done[i] = GP_PAIR_MARK(start, 0);
        for (int l = 0; l < GP_PAIR_LANES; l++)
            s->full[i][l] = s->empty[i][l] = GP_PAIR_MARK(start, 0);
    }
}

void rcclx_layout_fill(const gp_layout *at, uint32_t start, void *head)
{
    memset(head, 0, rcclx_layout_head(at));
    fill_units((uint32_t *)(void *)((char *)head + at->headers), GP_RING * GP_RANKS * HEADER_BYTES / GP_LL_UNIT, start);
    uint64_t *counter = (uint64_t *)(void *)((char *)head + at->counters);
    for (int i = 0; i < GP_CODED_BLOCKS * GP_WAVES * GP_RANKS; i++)
        counter[i] = GP_MARK(start, 0, 0);
    gp_pair_state *pair = (gp_pair_state *)(void *)((char *)head + at->pairs);
    for (int i = 0; i < GP_RANKS; i++)
        fill_pair(&pair[i], start);
}

void rcclx_layout_state(uint32_t start, gp_state *s)
{
    *s = (gp_state){ .progress = GP_PROGRESS(start), .started = start };
    for (int r = 0; r < GP_RANKS; r++)
        s->pair[r].sent = s->pair[r].received = GP_PROGRESS(start);
}
