#ifndef RCCLX_DEVICE_KERNELS_LITMUS_H
#define RCCLX_DEVICE_KERNELS_LITMUS_H

/* A kernel that every rank runs at init, at the same time, to see what the way between
 * two devices does: do stores arrive in the peer's window, can it be read, and does a line
 * that a wave stores with one instruction arrive whole, as LL128 takes for granted?
 *
 *   round v    my waves   -- lines, every word base + v -->  each peer's window
 *              my waves   poll my window for each peer's lines of round v: where the flag
 *                         lane's part is new and another part is not, a line is torn
 *   at last    each peer's window is read: my lines there, and its own
 *
 * A peer is at most a round ahead, since it waits for mine. Every wave does this for itself,
 * in slots of its own, where LL128's lines will be; the host clears them afterwards. */
#include "device/kernels/gp.h"
#include "device/kernels/work.h"

enum { GP_LITMUS_WAVES = 8, GP_LITMUS_GROUPS = 4, GP_LITMUS_SLOT = GP_LITMUS_GROUPS * 64 * 16, GP_LITMUS_LOOK = 64 };
enum { GP_LITMUS_BYTES = GP_RANKS * GP_LITMUS_WAVES * GP_LITMUS_SLOT }; /* of a window, from `at` on */

/* Its argument: one block, whole waves. */
typedef struct {
    uint64_t window[GP_RANKS]; /* as mapped on this device */
    uint64_t control, verdict; /* pinned: gp_control (only `abort` counts), gp_verdict */
    uint64_t limit_ns;         /* who does not answer for so long is deaf */
    uint32_t at, base, rounds; /* base: no word in the windows is base .. base + rounds + 1 */
    uint32_t rank, nranks, nthreads;
} gp_litmus_args;

/* What a rank has seen: a bit a peer. */
typedef struct {
    uint32_t deaf, torn;       /* its lines do not come, or its window does not hold them; they came in parts */
    uint32_t done;             /* stored last */
} gp_verdict;

typedef struct { uint32_t deaf[GP_RANKS], torn[GP_RANKS]; } gp_litmus_shared;

GP_DEV int gp_litmus_is_flag(void)
{
    return gp_lane() % (GP_LINE / 16) == GP_LINE / 16 - 1;
}

/* The lane's part of group g of the lines that `writer` has in the window of `owner`. */
GP_DEV char *gp_litmus_part(const gp_litmus_args *a, uint32_t owner, uint32_t writer, uint32_t g)
{
    const uint32_t wave = gp_tid() / GP_WAVE;

    return (char *)(uintptr_t)a->window[owner] + a->at + (writer * GP_LITMUS_WAVES + wave) * GP_LITMUS_SLOT +
           (g * GP_WAVE + gp_lane()) * 16;
}

GP_DEV void gp_litmus_put(const gp_litmus_args *a, uint32_t owner, uint32_t v)
{
    GP_NO_UNROLL
    for (uint32_t g = 0; g < GP_LITMUS_GROUPS; g++)
        gp_line_store(gp_litmus_part(a, owner, a->rank, g), gp_v4_make(v, v, v, v), gp_litmus_is_flag());
}

/* 2: all of round v + 1; 1: of v, or of both; 0: something older. */
GP_DEV int gp_litmus_age(gp_v4 x, uint32_t v)
{
    int now = 1, next = 1;

    GP_UNROLL
    for (int i = 0; i < 4; i++) {
        now &= gp_get(x, i) - v <= 1;
        next &= gp_get(x, i) - v == 1;
    }
    return now + (now & next);
}

/* All lanes alike: there is no more use in waiting. */
GP_DEV int gp_litmus_over(const gp_litmus_args *a, uint64_t since)
{
    const gp_control *c = (const gp_control *)(uintptr_t)a->control;

    return gp_ballot(gp_ticks() - since > a->limit_ns || gp_word_peek(&c->abort)) != 0;
}

/* Until the peer's lines of round v are here. 0: they do not come. */
GP_DEV int gp_litmus_wait(const gp_litmus_args *a, uint32_t peer, uint32_t v, uint64_t since, uint32_t *torn)
{
    const uint32_t flag = gp_lane() | (GP_LINE / 16 - 1); /* the lane that has my line's flag */

    GP_NO_UNROLL
    for (uint32_t g = 0; g < GP_LITMUS_GROUPS; g++)
        GP_NO_UNROLL
        for (uint32_t spins = 1;; spins++) {
            const gp_v4 x = gp_line_load(gp_litmus_part(a, a->rank, peer, g), gp_litmus_is_flag());
            const int age = gp_litmus_age(x, v);
            const uint64_t here = gp_ballot(gp_litmus_is_flag() && age >= 1), ahead = gp_ballot(gp_litmus_is_flag() && age == 2);
            if (((here >> flag & 1) && age < 1) || ((ahead >> flag & 1) && age < 2))
                *torn |= 1u << peer;
            if (!gp_ballot(age < 1))
                break;
            gp_nap();
            if (spins % GP_LITMUS_LOOK == 0 && gp_litmus_over(a, since))
                return 0;
        }
    return 1;
}

/* Does the peer's window, read from here, hold what I have put there, and what it has? */
GP_DEV int gp_litmus_reads(const gp_litmus_args *a, uint32_t peer, uint32_t v)
{
    int right = 1;

    GP_NO_UNROLL
    for (uint32_t g = 0; g < GP_LITMUS_GROUPS; g++) {
        const gp_v4 mine = gp_line_load(gp_litmus_part(a, peer, a->rank, g), gp_litmus_is_flag());
        const gp_v4 own = gp_line_load(gp_litmus_part(a, peer, peer, g), gp_litmus_is_flag());
        GP_UNROLL
        for (int i = 0; i < 4; i++)
            right &= gp_get(mine, i) == v && gp_get(own, i) == v;
    }
    return !gp_ballot(!right);
}

/* A wave's whole test. lost: peers, alike in all lanes. */
GP_DEV uint32_t gp_litmus_try(const gp_litmus_args *a, uint32_t *torn)
{
    const uint64_t since = gp_ticks();
    uint32_t lost = 1u << a->rank;

    gp_litmus_put(a, a->rank, a->base + a->rounds); /* for the peers to read */
    gp_fence_system();
    GP_NO_UNROLL
    for (uint32_t v = a->base + 1; v <= a->base + a->rounds; v++) {
        GP_NO_UNROLL
        for (uint32_t p = 0; p < a->nranks; p++)
            if (!(lost >> p & 1))
                gp_litmus_put(a, p, v);
        GP_NO_UNROLL
        for (uint32_t p = 0; p < a->nranks; p++)
            if (!(lost >> p & 1) && !gp_litmus_wait(a, p, v, since, torn))
                lost |= 1u << p;
    }
    gp_fence_system();
    GP_NO_UNROLL
    for (uint32_t p = 0; p < a->nranks; p++)
        if (!(lost >> p & 1) && !gp_litmus_reads(a, p, a->base + a->rounds))
            lost |= 1u << p;
    return lost & ~(1u << a->rank);
}

GP_DEV void gp_litmus_run(const gp_litmus_args *a, gp_litmus_shared *sh)
{
    gp_verdict *out = (gp_verdict *)(uintptr_t)a->verdict;
    uint32_t torn = 0, deaf = 0;

    if (gp_tid() < GP_RANKS)
        sh->deaf[gp_tid()] = sh->torn[gp_tid()] = 0;
    gp_sync();
    const uint32_t lost = gp_litmus_try(a, &torn);
    GP_NO_UNROLL
    for (uint32_t p = 0; p < a->nranks; p++) {
        if (lost >> p & 1)
            gp_shared_poke(&sh->deaf[p], 1);
        if (torn >> p & 1)
            gp_shared_poke(&sh->torn[p], 1);
    }
    gp_sync();
    if (gp_tid())
        return;
    torn = 0;
    GP_NO_UNROLL
    for (uint32_t p = 0; p < a->nranks; p++) {
        deaf |= gp_shared_peek(&sh->deaf[p]) << p;
        torn |= gp_shared_peek(&sh->torn[p]) << p;
    }
    out->deaf = deaf;
    out->torn = torn;
    gp_fence_system();
    gp_word_poke(&out->done, 1);
}

#endif
