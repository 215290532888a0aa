/* Time in the checker: happens-before, and nothing else.
 *
 *   thread a   write x   SIGNAL 1 ---- clock of a -----.
 *                                                       \
 *   thread b                              WAIT a 1  join: knows of the write; reads x
 *
 * A wait learns what the first sufficient value of the counter published, even if in
 * this run the counter had come further: in another run it might not have. So what is
 * found to be ordered is ordered in every run. */
#include "plan/check_world.h"

#include "base/mem.h"

#include <string.h>

void rcclx_check_join(check_world *w, check_tick *into, const check_tick *from)
{
    for (int t = 0; t < w->nthreads; t++)
        into[t] = into[t] > from[t] ? into[t] : from[t];
}

/* What follows is later than what was just published. */
bool rcclx_check_tick_on(const check_actor *a, int lane)
{
    check_tick *own = &a->w->ranks[a->rank].lane[lane].clock[rcclx_check_thread(a->rank, lane)];

    if (*own == UINT16_MAX)
        return rcclx_check_fail(a, "the sequence is too long to be checked");
    ++*own;
    return true;
}

static bool grow(check_world *w, check_counter *c)
{
    if (c->n < c->cap)
        return true;
    const uint32_t cap = c->cap ? 2 * c->cap : 16;
    uint64_t *at = rcclx_mem_realloc(c->at, cap * sizeof(*at));
    if (!at)
        return rcclx_check_nomem(w);
    c->at = at;
    check_tick *clocks = rcclx_mem_realloc(c->clocks, (size_t)cap * (size_t)w->nthreads * sizeof(*clocks));
    if (!clocks)
        return rcclx_check_nomem(w);
    c->clocks = clocks;
    c->cap = cap;
    return true;
}

/* The counter of the rank's given lane is set to mark, with what the actor's lane knows. */
bool rcclx_check_publish(const check_actor *a, uint64_t mark, int lane)
{
    check_counter *c = &a->w->ranks[a->rank].lane[lane].counter;
    const size_t n = (size_t)a->w->nthreads;

    if (c->n && c->at[c->n - 1] >= mark)
        return rcclx_check_fail(a, "its counter would not grow");
    if (!grow(a->w, c))
        return false;
    c->at[c->n] = mark;
    memcpy(&c->clocks[c->n * n], a->lane->clock, n * sizeof(check_tick));
    c->n++;
    return true;
}

const check_tick *rcclx_check_reached(const check_world *w, int rank, int lane, uint64_t mark, uint64_t *at)
{
    const check_counter *c = &w->ranks[rank].lane[lane].counter;
    uint32_t low = 0, high = c->n;

    while (low < high) {
        const uint32_t mid = (low + high) / 2;
        if (c->at[mid] < mark)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == c->n)
        return NULL;
    *at = c->at[low];
    return &c->clocks[(size_t)low * (size_t)w->nthreads];
}
