/* A way's beginning and end: four connections, made without waiting, and the memory they use.
 *
 *   connect x 2, accept x 2   again and again, until all four are there or the deadline passes
 *   a note's slots            registered at once; every one of in[NOTES] is then received into
 *   areas                     registered where data come from or go to, when they first do:
 *
 *     area    |         |         |         |      each piece from a multiple of RCCLX_PART_BYTES
 *     mrs[0]  [---------+---------)                on, twice as long, so that any part lies in
 *     mrs[1]            [---------+---------)      the one in which it begins */
#include "base/log.h"
#include "base/mem.h"
#include "transport/plugin/plugin_way.h"

#include <stdio.h>
#include <string.h>

static bool reach(rcclx_plugin_way *w, int k)
{
    const rcclx_plugin_end *e = w->e;
    int r;

    if (!w->out[k].comm) {
        r = e->v->connect(e->table, e->context, rcclx_plugin_device_of(e, w->rank), w->handle[k], &w->out[k].comm);
        if (r) {
            rcclx_way_fail(w, false, "connecting failed", r);
            return false;
        }
    }
    if (!w->in[k].comm) {
        r = e->v->accept(e->table, w->in[k].listen, &w->in[k].comm);
        if (r) {
            rcclx_way_fail(w, true, "accepting failed", r);
            return false;
        }
    }
    return w->out[k].comm && w->in[k].comm;
}

static bool give_notes(rcclx_plugin_way *w, rcclx_plugin_lane *l, bool receiving)
{
    const rcclx_plugin_end *e = w->e;
    const size_t nbytes = RCCLX_LANE_DEPTH * sizeof(*l->notes);

    l->notes = rcclx_mem_alloc(nbytes);
    const int r = l->notes ? e->v->reg(e->table, l->comm, l->notes, nbytes, &l->notes_mr) : 2;
    if (r)
        rcclx_way_fail(w, receiving, "registering memory for notes failed", r);
    return r == 0;
}

static bool give_area(rcclx_plugin_way *w, rcclx_plugin_lane *l, int rank)
{
    l->base = w->e->owner.memory(w->e->owner.owner, rank, &l->nbytes);
    l->mrs = rcclx_mem_alloc((l->nbytes / RCCLX_PART_BYTES + 1) * sizeof(*l->mrs));
    if (!l->mrs)
        rcclx_way_fail(w, true, "no memory for registrations", 2);
    return l->mrs != NULL;
}

bool rcclx_way_meet(rcclx_plugin_way *w)
{
    rcclx_plugin_end *e = w->e;
    const bool notes = reach(w, RCCLX_LANE_NOTES), both = !w->died && reach(w, RCCLX_LANE_DATA) && notes;

    if (both && give_notes(w, &w->out[RCCLX_LANE_NOTES], false) && give_notes(w, &w->in[RCCLX_LANE_NOTES], true) &&
        give_area(w, &w->out[RCCLX_LANE_DATA], e->owner.rank) && give_area(w, &w->in[RCCLX_LANE_DATA], w->rank)) {
        w->open = true;
        w->told = e->now;
        RCCLX_TRACE_LOG(NET, "rank %d: connected with rank %d by plug-in %s", e->owner.rank, w->rank, e->p->name);
    } else if (w->died) {
        rcclx_way_lose(w, w->why);
    } else if (e->now > e->deadline) {
        snprintf(w->why, sizeof(w->why), "plug-in %s: no connection after %.1f s; can the machines reach each other by %s?", e->p->name,
                 e->timeout, e->p->device[rcclx_plugin_device_of(e, w->rank)].name);
        rcclx_way_lose(w, w->why);
    }
    return w->open;
}

bool rcclx_lane_memory(rcclx_plugin_way *w, rcclx_plugin_lane *l, rcclx_plugin_flight *f, size_t nbytes, void **mr)
{
    const rcclx_plugin_end *e = w->e;
    const size_t at = (uintptr_t)f->data >= (uintptr_t)l->base ? (size_t)(f->data - l->base) : SIZE_MAX;
    char *from = f->data;
    size_t most = f->nbytes;
    void **place = &f->mr;

    if (l->base && at < l->nbytes && f->nbytes <= l->nbytes - at) {
        const size_t i = (at + f->posted) / RCCLX_PART_BYTES, begin = i * RCCLX_PART_BYTES;
        place = &l->mrs[i];
        from = l->base + begin;
        most = l->nbytes - begin < 2u * RCCLX_PART_BYTES ? l->nbytes - begin : 2u * RCCLX_PART_BYTES;
    }
    (void)nbytes; /* at most RCCLX_PART_BYTES */
    const int r = *place ? 0 : e->v->reg(e->table, l->comm, from, most, place);
    if (r)
        rcclx_way_fail(w, l == &w->in[RCCLX_LANE_DATA], "registering memory failed", r);
    *mr = *place;
    return r == 0;
}

void rcclx_lane_forget(rcclx_plugin_way *w, rcclx_plugin_lane *l, rcclx_plugin_flight *f)
{
    if (f->mr)
        w->e->v->dereg(w->e->table, l->comm, f->mr);
    f->mr = NULL;
}

static void close_lane(rcclx_plugin_way *w, rcclx_plugin_lane *l, int (*close_comm)(const void *table, void *comm))
{
    const rcclx_plugin_end *e = w->e;

    if (l->notes_mr)
        e->v->dereg(e->table, l->comm, l->notes_mr);
    for (size_t i = 0; l->mrs && i <= l->nbytes / RCCLX_PART_BYTES; i++)
        if (l->mrs[i])
            e->v->dereg(e->table, l->comm, l->mrs[i]);
    if (l->comm)
        close_comm(e->table, l->comm);
    if (l->listen)
        e->v->close_listen(e->table, l->listen);
    rcclx_mem_free(l->mrs);
    rcclx_mem_free(l->notes);
}

void rcclx_way_close(rcclx_plugin_way *w)
{
    for (int k = 0; k < 2; k++) {
        close_lane(w, &w->out[k], w->e->v->close_send);
        close_lane(w, &w->in[k], w->e->v->close_recv);
    }
}
