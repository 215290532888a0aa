/* Communicators of several machines: the network, and on GPUs the parts.
 *
 *   join    every rank opens the network's end, all swap their cards, mirrors are connected
 *   parts   whole   0 1 2 3 | 4 5 6 7      a team in host memory, of which these are split off:
 *           near    0 1 2 3   0 1 2 3      each machine's ranks, on their GPUs
 *           rail    a b c d | a b c d      those of one place on all machines, in host memory; only where
 *                                          machines are alike and ranks numbered through them
 *
 * The first rank of a part makes its id and tells it through the whole; parts meet like any
 * communicator. They have handles that nobody is given, and go with the whole. */
#include "comm/machines.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "comm/handle.h"
#include "comm/socket.h"
#include "exec/mirror.h"

#include <stdio.h>
#include <string.h>

/* --- the network ---------------------------------------------------------------------- */

/* The network's end of this rank, and its card; a failure goes onto the card, so that all ranks hear of it. */
static rcclx_status open_network(rcclx_comm *c, rcclx_card *card, char *letters)
{
    rcclx_team *t = &c->team;
    const rcclx_network *net;
    char devices[512];
    size_t nbytes = 0;

    RCCLX_TRY(rcclx_network_find(rcclx_option_str(RCCLX_OPT_NET), t->id, &net));
    snprintf(card->network, sizeof(card->network), "%s", net->name);
    RCCLX_TRY(rcclx_interface_names(devices, sizeof(devices)));
    RCCLX_TRY(rcclx_mirror_open(t, net, devices, t->node));
    RCCLX_TRY(rcclx_mirror_address(t, card->address, &nbytes));
    card->naddress = (uint32_t)nbytes;
    card->nletter = (uint32_t)net->nletter;
    for (int r = 0; net->nletter && r < t->nranks; r++)
        if (rcclx_is_far(t, r))
            RCCLX_TRY(rcclx_mirror_letter(t, r, letters + (size_t)r * net->nletter));
    return RCCLX_OK;
}

/* All are found by their cards, or by the letters that they have written to each other. */
static rcclx_status connect_ranks(rcclx_comm *c, rcclx_meeting *m, const rcclx_card *all, const char *mine, char *theirs)
{
    rcclx_team *t = &c->team;
    const size_t n = all[c->rank].nletter;

    if (n)
        RCCLX_TRY(rcclx_meeting_letters(m, c->rank, n, mine, theirs, rcclx_option_real(RCCLX_OPT_INIT_TIMEOUT), &t->aborted));
    for (int r = 0; r < t->nranks; r++)
        if (rcclx_is_far(t, r))
            RCCLX_TRY(rcclx_mirror_connect(t, r, n ? (const void *)(theirs + (size_t)r * n) : all[r].address,
                                           n ? n : all[r].naddress));
    return RCCLX_OK;
}

/* All ranks come to the same result. */
static rcclx_status check_kinds(const rcclx_comm *c, const rcclx_card *all)
{
    static const char *const kinds[] = { "host memory", "cuda", "hip", "emu" };

    for (int r = 1; r < c->nranks; r++)
        if (all[r].device != all[0].device)
            return RCCLX_FAIL(RCCLX_USAGE, "rank %d of %d: init: rank 0 is on %s and rank %d on %s; all ranks of a communicator live "
                              "in one kind of memory: set RCCLX_DEVICE alike", c->rank, c->nranks, kinds[all[0].device & 3], r,
                              kinds[all[r].device & 3]);
    return RCCLX_OK;
}

rcclx_status rcclx_machines_join(rcclx_comm *c, rcclx_meeting *m)
{
    rcclx_team *t = &c->team;
    rcclx_card mine = { .rank = c->rank, .device = t->driver ? (int32_t)t->driver->kind + 1 : 0 }, *all = rcclx_mem_alloc((size_t)t->nranks * sizeof(*all));
    char *letters = rcclx_mem_alloc(2u * (size_t)t->nranks * RCCLX_NET_LETTER); /* mine, then theirs */
    rcclx_status s = all && letters ? open_network(c, &mine, letters)
                                    : RCCLX_FAIL(RCCLX_NOMEM, "rank %d: no memory for addresses", c->rank);

    mine.status = (int32_t)s;
    if (s != RCCLX_OK)
        snprintf(mine.text, sizeof(mine.text), "%s", rcclx_last_error());
    const rcclx_status swapped = all ? rcclx_meeting_swap(m, c->rank, &mine, all, rcclx_option_real(RCCLX_OPT_INIT_TIMEOUT),
                                                          &t->aborted) : s;
    s = s == RCCLX_OK ? swapped : s;
    if (s == RCCLX_OK)
        s = connect_ranks(c, m, all, letters, letters + (size_t)t->nranks * RCCLX_NET_LETTER);
    if (s == RCCLX_OK)
        s = check_kinds(c, all);
    rcclx_mem_free(letters);
    rcclx_mem_free(all);
    return s == RCCLX_OK ? rcclx_mirror_start(t) : s;
}

/* --- parts ---------------------------------------------------------------------------- */

/* What a first rank tells: its machine's id, its rail's. Zeros: it is none, or has failed. */
typedef struct { rcclx_unique_id near, rail; } ids;

static int ranks_near(const rcclx_team *t, int *mine, int *first)
{
    int n = 0;

    *first = -1;
    for (int r = 0; r < t->nranks; r++) {
        if (t->node[r] != t->node[t->rank])
            continue;
        if (*first < 0)
            *first = r;
        if (r == t->rank)
            *mine = n;
        n++;
    }
    return n;
}

/* Machines with as many ranks each, numbered through them: ranks of one; else 0. */
static int ranks_a_rail(const rcclx_team *t)
{
    const int n = t->nranks / t->nnodes;

    if (n * t->nnodes != t->nranks)
        return 0;
    for (int r = 0; r < t->nranks; r++)
        if (t->node[r] != r / n)
            return 0;
    return n;
}

static rcclx_status need_id(const rcclx_comm *c, const rcclx_unique_id *id, int from)
{
    static const rcclx_unique_id none;

    if (memcmp(id, &none, sizeof(none)))
        return RCCLX_OK;
    return RCCLX_FAIL(RCCLX_SYSTEM, "rank %d of %d: init: rank %d could not make an id for its machine's ranks", c->rank, c->nranks, from);
}

/* Meet as a part; its team is held until we leave. */
static rcclx_status open_part(rcclx_comm *c, rcclx_part *part, int n, const rcclx_unique_id *id, int rank, const rcclx_gpu *gpu)
{
    const rcclx_place place = { gpu, c->device };
    rcclx_comm_config config = c->config;
    rcclx_status s;

    config.blocking = 1;
    RCCLX_TRY(rcclx_comm_init(&part->handle, n, id, rank, &place, &config, NULL));
    rcclx_comm *own = rcclx_comm_acquire_ready(part->handle, "init", &s);
    if (!own)
        return s;
    rcclx_team_hold(&own->team);
    part->team = &own->team;
    rcclx_comm_release(own);
    return RCCLX_OK;
}

static rcclx_status open_parts(rcclx_comm *c, const ids *all)
{
    rcclx_team *t = &c->team;
    int mine = 0, first;
    const int n = ranks_near(t, &mine, &first), l = ranks_a_rail(t);

    RCCLX_TRY(need_id(c, &all[first].near, first));
    RCCLX_TRY(open_part(c, &c->near, n, &all[first].near, mine, t->driver));
    c->bus = ((const rcclx_comm *)c->near.team)->bus;
    if (l) {
        const int head = t->rank % l;
        RCCLX_TRY(need_id(c, &all[head].rail, head));
        RCCLX_TRY(open_part(c, &c->rail, t->nnodes, &all[head].rail, t->rank / l, NULL));
    }
    return rcclx_proxy_create(t, c->near.team, c->rail.team);
}

rcclx_status rcclx_machines_parts(rcclx_comm *c)
{
    rcclx_team *t = &c->team;
    ids mine = { 0 }, *all = rcclx_mem_alloc((size_t)t->nranks * sizeof(*all));
    int place = 0, first;

    if (!all)
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d of %d: init: no memory for ids", c->rank, c->nranks);
    ranks_near(t, &place, &first);
    rcclx_status s = first == c->rank ? rcclx_unique_id_create(&mine.near, NULL) : RCCLX_OK;
    if (s == RCCLX_OK && c->rank < ranks_a_rail(t))
        s = rcclx_unique_id_create(&mine.rail, NULL);
    const rcclx_status told = rcclx_team_exchange(t, &mine, all, sizeof(mine));
    s = s == RCCLX_OK ? told : s;
    if (s == RCCLX_OK)
        s = open_parts(c, all);
    rcclx_mem_free(all);
    if (s == RCCLX_OK) /* nobody goes on before all have come */
        s = rcclx_team_exchange(t, &place, (int[RCCLX_MAX_RANKS]){ 0 }, sizeof(place));
    else if (s != RCCLX_ABORTED)
        rcclx_team_break(t, s, rcclx_last_error());
    return s;
}

static void leave(rcclx_part *part, bool broken)
{
    if (part->team)
        rcclx_team_let_go(part->team);
    if (part->handle)
        (broken ? rcclx_comm_abort : rcclx_comm_destroy)(part->handle);
    *part = (rcclx_part){ 0 };
}

void rcclx_machines_leave(rcclx_comm *c)
{
    const bool broken = atomic_load(&c->team.broken) || atomic_load(&c->team.aborted);

    leave(&c->rail, broken);
    leave(&c->near, broken);
}
