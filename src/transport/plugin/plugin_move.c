/* A way at work: flights to notes and parts, and back. See plugin_way.h.
 *
 *   send      notes  ->  slot of out[NOTES]  ->  data (LARGE)  ->  parts of out[DATA]
 *   receive   slot of in[NOTES]  ->  EAGER: copied to its place
 *                                    LARGE: coming  ->  parts of in[DATA], straight into it
 *
 * Requests are tested in the order in which they were posted. A plug-in that has no room
 * answers with no request; the next round asks again. A tag says which part it is, for
 * plug-ins that receive several by one call. */
#include "transport/plugin/plugin_way.h"

#include <string.h>

enum { TAGS = 64 };

static uint32_t under_way(const rcclx_plugin_lane *l)
{
    return l->tail - l->head;
}

static rcclx_plugin_request *oldest(rcclx_plugin_lane *l)
{
    return &l->under[l->head % RCCLX_LANE_DEPTH];
}

/* Has the oldest request come to its end? Its sizes, if so. */
static bool finished(rcclx_plugin_way *w, rcclx_plugin_lane *l, int *sizes)
{
    int done = 0;

    if (l->broken || !under_way(l))
        return false;
    const int r = w->e->v->test(w->e->table, oldest(l)->request, &done, sizes);
    if (r)
        rcclx_lane_fail(w, l, r);
    return !r && done;
}

/* A flight's data are all there or all gone. */
static bool counted(rcclx_plugin_way *w, rcclx_plugin_lane *l, rcclx_plugin_flight *f, size_t nbytes)
{
    f->done += nbytes;
    if (f->done < f->nbytes)
        return false;
    rcclx_lane_forget(w, l, f);
    return true;
}

/* --- sending ------------------------------------------------------------------------------- */

static size_t fill(rcclx_note *n, const rcclx_plugin_flight *f)
{
    const size_t nframe = f->kind <= RCCLX_NOTE_LARGE ? rcclx_frame_bytes(&f->frame) : 0;
    const size_t inside = f->kind == RCCLX_NOTE_EAGER ? f->nbytes : 0;

    n->kind = (uint32_t)f->kind;
    n->nframe = (uint32_t)nframe;
    n->nbytes = f->nbytes;
    n->part = f->part;
    memcpy(n->bytes, &f->frame, nframe);
    if (inside)
        memcpy(n->bytes + nframe, f->data, inside);
    return offsetof(rcclx_note, bytes) + nframe + inside;
}

static size_t note_bytes(const rcclx_note *n)
{
    return offsetof(rcclx_note, bytes) + n->nframe + (n->kind == RCCLX_NOTE_EAGER ? n->nbytes : 0);
}

static bool notes_left(rcclx_plugin_way *w)
{
    rcclx_plugin_lane *l = &w->out[RCCLX_LANE_NOTES];
    bool moved = false;

    for (int size; !w->mute && finished(w, l, &size); moved = true)
        l->head++;
    return moved;
}

static bool send_notes(rcclx_plugin_way *w)
{
    rcclx_plugin_lane *l = &w->out[RCCLX_LANE_NOTES];
    const rcclx_plugin_end *e = w->e;
    bool moved = false;

    while (!w->mute && w->notes.first && under_way(l) < RCCLX_LANE_DEPTH) {
        rcclx_plugin_flight *f = w->notes.first;
        rcclx_note *n = &l->notes[l->tail % RCCLX_LANE_DEPTH];
        if (!f->staged)
            fill(n, f);
        f->staged = true;
        void *request = NULL;
        const int r = e->v->send(e->table, l->comm, n, note_bytes(n), 0, l->notes_mr, &request);
        if (r)
            rcclx_lane_fail(w, l, r);
        if (r || !request)
            break;
        l->under[l->tail++ % RCCLX_LANE_DEPTH].request = request;
        rcclx_plugin_pop(&w->notes);
        if (f->kind == RCCLX_NOTE_LARGE)
            rcclx_plugin_push(&w->data, f);
        else
            rcclx_plugin_give(w->e, f);
        moved = true;
    }
    return moved;
}

static size_t next_part(const rcclx_plugin_flight *f)
{
    return f->nbytes - f->posted < f->part ? f->nbytes - f->posted : f->part;
}

static bool data_left(rcclx_plugin_way *w)
{
    rcclx_plugin_lane *l = &w->out[RCCLX_LANE_DATA];
    bool moved = false;

    for (int size; !w->mute && finished(w, l, &size); moved = true) {
        const rcclx_plugin_request *q = oldest(l);
        if (counted(w, l, q->flight[0], q->nbytes[0]))
            rcclx_plugin_give(w->e, q->flight[0]);
        l->head++;
    }
    return moved;
}

static bool send_data(rcclx_plugin_way *w)
{
    rcclx_plugin_lane *l = &w->out[RCCLX_LANE_DATA];
    const rcclx_plugin_end *e = w->e;
    bool moved = false;

    while (!w->mute && w->data.first && under_way(l) < RCCLX_LANE_DEPTH) {
        rcclx_plugin_flight *f = w->data.first;
        const size_t nbytes = next_part(f);
        void *request = NULL, *mr;
        if (!rcclx_lane_memory(w, l, f, nbytes, &mr))
            break;
        const int r = e->v->send(e->table, l->comm, f->data + f->posted, nbytes, (int)(l->nparts % TAGS), mr, &request);
        if (r)
            rcclx_lane_fail(w, l, r);
        if (r || !request)
            break;
        l->nparts++;
        l->under[l->tail++ % RCCLX_LANE_DEPTH] = (rcclx_plugin_request){ request, 1, { f }, { nbytes } };
        if ((f->posted += nbytes) == f->nbytes)
            rcclx_plugin_pop(&w->data);
        moved = true;
    }
    return moved;
}

bool rcclx_way_send(rcclx_plugin_way *w)
{
    bool moved = notes_left(w);

    moved |= data_left(w);
    if (send_notes(w)) /* plug-ins may move bytes only when they are asked */
        moved |= notes_left(w) || true;
    if (send_data(w))
        moved |= data_left(w) || true;
    return moved;
}

bool rcclx_way_idle(const rcclx_plugin_way *w)
{
    return w->lost || w->mute ||
           (!w->notes.first && !w->data.first && !under_way(&w->out[RCCLX_LANE_NOTES]) && !under_way(&w->out[RCCLX_LANE_DATA]));
}

bool rcclx_way_due(const rcclx_plugin_way *w)
{
    const rcclx_plugin_lane *l = &w->in[RCCLX_LANE_DATA];

    return !l->broken && (w->coming.first || under_way(l));
}

void rcclx_way_leave(rcclx_plugin_way *w, bool drop)
{
    if (!w->open || w->leaving || w->lost || w->mute)
        return;
    while (drop && w->notes.first)
        rcclx_plugin_give(w->e, rcclx_plugin_pop(&w->notes));
    for (int i = 0; i < RCCLX_LANE_DEPTH; i++) {
        rcclx_plugin_flight *f = rcclx_plugin_take(w->e);
        if (!f)
            break;
        f->kind = RCCLX_NOTE_BYE;
        rcclx_plugin_push(&w->notes, f);
    }
    w->leaving = true;
}

bool rcclx_way_left(const rcclx_plugin_way *w)
{
    return !w->open || w->lost || w->deaf || w->mute ||
           (w->leaving && rcclx_way_idle(w) && w->byes == RCCLX_LANE_DEPTH && !rcclx_way_due(w));
}

/* --- receiving ------------------------------------------------------------------------------ */

static bool sane(const rcclx_plugin_way *w, const rcclx_note *n, size_t nbytes)
{
    const size_t least = offsetof(rcclx_frame, inside), head = offsetof(rcclx_note, bytes);

    if (nbytes < head || w->byes >= RCCLX_LANE_DEPTH || n->kind < RCCLX_NOTE_EAGER || n->kind > RCCLX_NOTE_PING)
        return false;
    if (n->kind > RCCLX_NOTE_LARGE)
        return nbytes == head;
    rcclx_frame f;
    if (n->nframe < least || n->nframe > sizeof(f) || (n->kind == RCCLX_NOTE_EAGER && n->nbytes > RCCLX_NOTE_DATA) ||
        nbytes != note_bytes(n))
        return false;
    memcpy(&f, n->bytes, least);
    return f.ninside == n->nframe - least && f.from == (uint32_t)w->rank &&
           (n->kind == RCCLX_NOTE_EAGER || (n->nbytes && n->part && n->part <= RCCLX_PART_BYTES));
}

static void take_note(rcclx_plugin_way *w, const rcclx_note *n, size_t nbytes)
{
    rcclx_plugin_end *e = w->e;
    rcclx_plugin_flight *f = sane(w, n, nbytes) ? rcclx_plugin_take(e) : NULL;

    if (!f) {
        rcclx_way_lose(w, "what it sends makes no sense, or there is no memory for it");
        return;
    }
    memcpy(&f->frame, n->bytes, n->nframe);
    w->byes += n->kind == RCCLX_NOTE_BYE;
    f->data = n->kind <= RCCLX_NOTE_LARGE ? e->owner.place(e->owner.owner, &f->frame, n->nbytes) : NULL;
    if (f->data && n->kind == RCCLX_NOTE_LARGE) {
        f->nbytes = n->nbytes;
        f->part = n->part;
        rcclx_plugin_push(&w->coming, f);
        return;
    }
    if (f->data) {
        memcpy(f->data, n->bytes + n->nframe, n->nbytes);
        e->owner.landed(e->owner.owner, &f->frame);
    } else if (n->kind <= RCCLX_NOTE_LARGE) {
        w->lost = true; /* the owner knows more than we do */
    }
    rcclx_plugin_give(e, f);
}

static bool receive_notes(rcclx_plugin_way *w)
{
    rcclx_plugin_lane *l = &w->in[RCCLX_LANE_NOTES];
    const rcclx_plugin_end *e = w->e;
    bool moved = false;

    for (int size = 0; !w->lost && finished(w, l, &size); moved = true) {
        take_note(w, &l->notes[l->head % RCCLX_LANE_DEPTH], (size_t)size);
        l->head++;
    }
    while (!w->lost && !w->deaf && (int)under_way(l) < RCCLX_LANE_DEPTH - w->byes) {
        void *data = &l->notes[l->tail % RCCLX_LANE_DEPTH], *request = NULL;
        int tag = 0;
        const size_t nbytes = sizeof(rcclx_note);
        const int r = e->v->recv(e->table, l->comm, 1, &data, &nbytes, &tag, &l->notes_mr, &request);
        if (r)
            rcclx_lane_fail(w, l, r);
        if (r || !request)
            break;
        l->under[l->tail++ % RCCLX_LANE_DEPTH].request = request;
    }
    return moved;
}

static void take_parts(rcclx_plugin_way *w, rcclx_plugin_lane *l, const int *sizes)
{
    const rcclx_plugin_request *q = oldest(l);

    for (int i = 0; i < q->n && !w->lost; i++) {
        rcclx_plugin_flight *f = q->flight[i];
        if ((size_t)sizes[i] != q->nbytes[i]) {
            rcclx_way_lose(w, "a part of its data has another size than was said");
        } else if (counted(w, l, f, q->nbytes[i])) {
            w->e->owner.landed(w->e->owner.owner, &f->frame);
            rcclx_plugin_give(w->e, f);
        }
    }
    l->head++;
}

/* Parts that are known to come, as many as one call receives. Flights are advanced only if it does. */
static bool post_parts(rcclx_plugin_way *w, rcclx_plugin_lane *l)
{
    const rcclx_plugin_end *e = w->e;
    rcclx_plugin_request q = { .n = 0 };
    void *data[RCCLX_PLUGIN_GROUP], *mrs[RCCLX_PLUGIN_GROUP];
    size_t ahead = 0;
    int tags[RCCLX_PLUGIN_GROUP];

    for (rcclx_plugin_flight *f = w->coming.first; f && q.n < e->group; q.n++) {
        const size_t before = f->posted;
        f->posted += ahead;
        q.flight[q.n] = f;
        q.nbytes[q.n] = next_part(f);
        data[q.n] = f->data + f->posted;
        tags[q.n] = (int)((l->nparts + (uint32_t)q.n) % TAGS);
        const bool registered = rcclx_lane_memory(w, l, f, q.nbytes[q.n], &mrs[q.n]);
        const bool last = f->posted + q.nbytes[q.n] == f->nbytes;
        f->posted = before;
        if (!registered)
            return false;
        ahead = last ? 0 : ahead + q.nbytes[q.n];
        f = last ? f->next : f;
    }
    const int r = e->v->recv(e->table, l->comm, q.n, data, q.nbytes, tags, mrs, &q.request);
    if (r)
        rcclx_lane_fail(w, l, r);
    if (r || !q.request)
        return false;
    for (int i = 0; i < q.n; i++)
        if ((q.flight[i]->posted += q.nbytes[i]) == q.flight[i]->nbytes)
            rcclx_plugin_pop(&w->coming);
    l->nparts += (uint32_t)q.n;
    l->under[l->tail++ % RCCLX_LANE_DEPTH] = q;
    return true;
}

static bool receive_data(rcclx_plugin_way *w)
{
    rcclx_plugin_lane *l = &w->in[RCCLX_LANE_DATA];
    int sizes[RCCLX_PLUGIN_GROUP] = { 0 };
    bool moved = false;

    for (; !w->lost && finished(w, l, sizes); moved = true)
        take_parts(w, l, sizes);
    while (!w->lost && !l->broken && w->coming.first && under_way(l) < RCCLX_LANE_DEPTH && post_parts(w, l))
        moved = true;
    return moved;
}

bool rcclx_way_receive(rcclx_plugin_way *w)
{
    const bool notes = !w->deaf && receive_notes(w);

    return (!w->lost && receive_data(w)) || notes;
}
