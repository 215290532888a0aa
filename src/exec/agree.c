/* Do all ranks call the same?
 *
 * A header carries the call's signature (kind, type, operator, root, codec) and count,
 * and a hash of all calls before. Whoever reads a peer's header compares. That
 * finds a difference in this call at once, and one that nobody met then (two
 * ranks that both think they are the root read no header) in the next. A rank's
 * `path` says the same to whoever asks between calls.
 *
 *   rank 0   broadcast root 0   all-reduce <- history differs: number 1 was not the same
 *   rank 1   broadcast root 1   all-reduce
 *
 * The headers of the last RCCLX_NSLOTS calls are still there, so that the text can
 * say which call it was and what either rank called. */
#include "exec/precision.h"
#include "exec/runner.h"

#include <stdio.h>
#include <string.h>

uint32_t rcclx_signature(const rcclx_op *op)
{
    const uint32_t root = rcclx_kind_rooted(op->kind) ? (uint32_t)op->root : 0;

    return (uint32_t)op->kind | (uint32_t)op->type << 4 | (uint32_t)op->op << 8 | root << 12 | (uint32_t)op->codec << 20;
}

uint32_t rcclx_history(uint32_t before, uint32_t sig, uint64_t count)
{
    uint64_t h = (before ^ sig) * 0x9e3779b97f4a7c15u;

    h = (h ^ h >> 29 ^ count) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(h >> 32);
}

/* What ranks choose plans by must be the same on all, or they would run different ones and wait for each other for ever.
 * It is settled at init by rules that make it so; the hash of all calls begins with it, so that a difference is an error. */
void rcclx_team_settled(rcclx_team *t)
{
    const rcclx_machine *m = &t->machine;
    const double real[] = { m->call_ns, m->signal_ns, m->switch_ns, m->step_ns, m->local_rate, m->peer_rate, m->far_rate, m->cma_ns,
                            m->cma_rate, m->net_ns, m->net_rate };
    const uint64_t whole[] = { (uint64_t)m->nranks, (uint64_t)m->ncores, m->cache_bytes, m->slot_bytes, m->chunk_bytes, m->untuned,
                               (uint64_t)t->nnodes, t->cma, t->arenas, t->ordered, t->slot_max, t->quick, t->chunk };
    uint32_t h = 0;

    for (size_t i = 0; i < sizeof(real) / sizeof(*real); i++) {
        uint64_t bits;
        memcpy(&bits, &real[i], sizeof(bits));
        h = rcclx_history(h, 0, bits);
    }
    for (size_t i = 0; i < sizeof(whole) / sizeof(*whole); i++)
        h = rcclx_history(h, 1, whole[i]);
    for (int r = 0; r < t->nranks; r++)
        h = rcclx_history(h, 2, (uint64_t)t->node[r]);
    for (const char *c = t->algo; *c; c++)
        h = rcclx_history(h, 3, (unsigned char)*c);
    for (int k = 0; k < RCCLX_COLL_COUNT; k++)
        for (int c = 0; c < RCCLX_TUNED; c++)
            h = rcclx_history(h, 4, t->tuned[k][c]);
    t->runner->history = h;
}

void rcclx_call_words(uint32_t sig, uint64_t count, char *text, size_t n)
{
    const rcclx_kind kind = (rcclx_kind)(sig & 15);
    int at = snprintf(text, n, "%s of ", rcclx_kind_name(kind));

    if (kind != RCCLX_ALL_TO_ALLV)
        at += snprintf(text + at, n - (size_t)at, "%llu ", (unsigned long long)count);
    at += snprintf(text + at, n - (size_t)at, "%s", rcclx_type_name((rcclx_type)(sig >> 4 & 15)));
    if (rcclx_kind_reduces(kind))
        at += snprintf(text + at, n - (size_t)at, " %s", rcclx_redop_name((rcclx_redop)(sig >> 8 & 15)));
    if (rcclx_kind_rooted(kind))
        at += snprintf(text + at, n - (size_t)at, " root %u", sig >> 12 & 255);
    if (sig >> 20)
        snprintf(text + at, n - (size_t)at, " in %s", rcclx_precision_name((int)(sig >> 20)));
}

void rcclx_task_words(const rcclx_task *t, char *text, size_t nbytes)
{
    if (t->op.kind < RCCLX_COLL_COUNT) {
        rcclx_call_words(rcclx_signature(&t->op), t->op.count, text, nbytes);
        const size_t at = strlen(text);
        snprintf(text + at, nbytes - at, " (collective number %llu)", (unsigned long long)t->op.team->seq);
    } else {
        snprintf(text, nbytes, "%s of %zu %s %s rank %d", rcclx_kind_name(t->op.kind), t->op.count,
                 rcclx_type_name(t->op.type), t->op.kind == RCCLX_SEND ? "to" : "from", t->op.root);
    }
}

/* My call of this number, as my header says, or will: a leader's is written late. */
static bool my_call(const rcclx_team *t, uint64_t seq, uint32_t *sig, uint64_t *count)
{
    const rcclx_header *h = rcclx_header_of(t, t->rank, seq);
    const rcclx_runner *run = t->runner;

    if (atomic_load_explicit(&h->seq, memory_order_acquire) == seq) {
        *sig = h->sig;
        *count = h->count;
        return true;
    }
    *sig = run->sig;
    *count = run->task ? run->task->op.count : 0;
    return run->task && run->seq == seq;
}

/* The first call, of those still on record, that differs. 0: none is. */
static uint64_t first_difference(const rcclx_team *t, int r, uint64_t seq)
{
    for (uint64_t back = RCCLX_NSLOTS - 1; back + 1; back--) {
        const rcclx_header *theirs = rcclx_header_of(t, r, seq - back);
        uint32_t sig;
        uint64_t count;
        if (!my_call(t, seq - back, &sig, &count) || atomic_load_explicit(&theirs->seq, memory_order_acquire) != seq - back)
            continue;
        const bool sized = (sig & 15) != RCCLX_ALL_TO_ALLV;
        if (sig != theirs->sig || (sized && count != theirs->count))
            return seq - back;
    }
    return 0;
}

rcclx_status rcclx_mismatch(rcclx_team *t, int r, uint64_t seq)
{
    char mine[160] = "one thing", theirs[160] = "another", text[RCCLX_ERROR_TEXT];
    const uint64_t at = first_difference(t, r, seq);

    if (at) {
        const rcclx_header *h = rcclx_header_of(t, r, at);
        uint32_t sig;
        uint64_t count;
        my_call(t, at, &sig, &count);
        rcclx_call_words(sig, count, mine, sizeof(mine));
        rcclx_call_words(h->sig, h->count, theirs, sizeof(theirs));
    }
    if (!at && seq - t->area[t->rank]->ident.start < RCCLX_NSLOTS) {
        snprintf(text, sizeof(text), "rank %d and rank %d have come to different settings at init, which is a fault of this library; "
                 "please report it with the logs of NCCL_DEBUG=INFO of both", t->rank, r);
        return rcclx_team_break(t, RCCLX_INTERNAL, text);
    }
    snprintf(text, sizeof(text), "collective number %llu%s: rank %d calls %s, but rank %d calls %s; all ranks must make the same "
             "calls in the same order with the same count, type, operator, root and precision", (unsigned long long)(at ? at : seq),
             at ? "" : " or long before", t->rank, mine, r, theirs);
    return rcclx_team_break(t, RCCLX_MISMATCH, text);
}
