/* A communicator in words, and in JSON from the same walk: who I am, who the
 * peers are and how they are reached, what was agreed, what has run, what broke. */
#include "comm/comm.h"

#include "base/json.h"
#include "exec/precision.h"

#include <string.h>
#include <sys/mman.h>

static const char *state_name(const rcclx_comm *c)
{
    static const char *const names[] = { "set-up", "ready", "finalized", "failed" };

    return atomic_load(&c->team.aborted) ? "aborted" : atomic_load(&c->team.broken) ? "broken" : names[atomic_load(&c->state)];
}

/* Collectives a rank has finished; its GPU's when it was last looked at. */
static uint64_t finished(const rcclx_team *t, int r)
{
    return t->gpu ? atomic_load(&t->area[r]->device.finished) : atomic_load(&t->area[r]->done.value);
}

static const char *way_to(const rcclx_team *t, int r)
{
    const rcclx_peer *p = &t->peer[r];

    if (t->nnodes > 1 && t->node[r] != t->node[t->rank])
        return t->proxy ? "network, proxy" : "network";
    if (rcclx_team_on_gpu(t))
        return r == t->rank ? "self" : p->local ? "pointer, GPU" : "window, GPU";
    return r == t->rank ? "self" : p->local ? "pointer" : p->arena && p->cma ? "arena, cma" : p->arena ? "arena" : p->cma ? "cma"
         : "scratch";
}

static const char *rank_state(uint32_t s)
{
    static const char *const names[] = { "absent", "unfit", "ready", "closed", "failed" };

    return s < 5 ? names[s] : "?";
}

size_t rcclx_comm_bytes(const rcclx_comm *c)
{
    enum { STEP = 4096 };
    static const size_t most = (size_t)RCCLX_MAX_RANKS * 32 << 20;
    const rcclx_segment *s = &c->team.segment;
    unsigned char seen[1024];
    size_t pages = 0, on_gpu = 0;
    const rcclx_team *rail = NULL;
    rcclx_gpu_report gpu;
    uint64_t pieces;

    if (c->team.proxy) {
        rcclx_proxy_describe(&c->team, &on_gpu, &pieces, &rail);
        on_gpu += rcclx_comm_bytes((const rcclx_comm *)c->near.team);
        on_gpu += rail ? rcclx_comm_bytes((const rcclx_comm *)rail) : 0;
    } else if (c->team.gpu) {
        rcclx_gpu_describe((rcclx_team *)(uintptr_t)&c->team, &gpu);
        on_gpu = gpu.nbytes;
    }

    if (!s->head || !s->area_bytes || s->area_bytes > most)
        return sizeof(*c) + on_gpu;
    /* pages of this rank's area that exist */
    char *area = (char *)c->team.area[c->rank];
    for (size_t at = 0; at < s->area_bytes; at += sizeof(seen) * STEP) {
        const size_t n = s->area_bytes - at < sizeof(seen) * STEP ? s->area_bytes - at : sizeof(seen) * STEP;
        if (mincore(area + at, n, seen))
            break;
        for (size_t i = 0; i < n / STEP; i++)
            pages += seen[i] & 1;
    }
    return sizeof(*c) + on_gpu + pages * STEP;
}

static void device_json(rcclx_json *j, rcclx_comm *c)
{
    rcclx_gpu_report r;

    rcclx_gpu_describe(rcclx_team_gpu(&c->team), &r);
    rcclx_json_object_open(j, "gpu");
    rcclx_json_int(j, "device", c->device);
    rcclx_json_string(j, "name", r.name);
    rcclx_json_string(j, "pci", r.pci);
    rcclx_json_int(j, "bytes", (int64_t)r.nbytes);
    rcclx_json_int(j, "window_bytes", (int64_t)r.window_bytes);
    rcclx_json_string(j, "window_memory", r.in_host ? "host" : "device");
    rcclx_json_bool(j, "ll128", r.lines);
    rcclx_json_int(j, "registered", r.registered);
    rcclx_json_int(j, "lanes", r.lanes);
    rcclx_json_int(j, "threads", r.threads);
    rcclx_json_int(j, "turn", r.turn);
    rcclx_json_object_close(j);
}

static void device_text(FILE *out, rcclx_comm *c)
{
    rcclx_gpu_report r;

    rcclx_gpu_describe(rcclx_team_gpu(&c->team), &r);
    fprintf(out, "  %s device %d: %s at %s, %zu bytes of its memory (window %zu), %d buffers registered\n", c->team.driver->name,
            c->device, r.name, r.pci, r.nbytes, r.window_bytes, r.registered);
    fprintf(out, "  ranks share %s memory; LL128 %s\n", r.in_host ? "host" : "device", r.lines ? "may be used" : "is not used");
    fprintf(out, "  at most %d blocks of %d threads an operation; the last collective handed to it was number %u\n", r.lanes,
            r.threads, r.turn);
}

static void machines_json(rcclx_json *j, const rcclx_team *t)
{
    const rcclx_team *rail = NULL;
    size_t nbytes = 0;
    uint64_t pieces = 0;

    if (t->proxy)
        rcclx_proxy_describe(t, &nbytes, &pieces, &rail);
    rcclx_json_object_open(j, "machines");
    rcclx_json_int(j, "number", t->nnodes);
    rcclx_json_int(j, "mine", t->node[t->rank]);
    rcclx_json_bool(j, "rails", rail != NULL);
    rcclx_json_int(j, "proxy_bytes", (int64_t)nbytes);
    rcclx_json_int(j, "proxy_pieces", (int64_t)pieces);
    rcclx_json_object_close(j);
}

static void machines_text(FILE *out, const rcclx_team *t)
{
    const rcclx_team *rail;
    size_t nbytes;
    uint64_t pieces;

    fprintf(out, "  %d machines, this is number %d", t->nnodes, t->node[t->rank]);
    if (t->proxy) {
        rcclx_proxy_describe(t, &nbytes, &pieces, &rail);
        fprintf(out, "; %s; the proxy has %zu bytes of pinned and device memory and has moved %llu pieces",
                rail ? "sums inside machines, then over rails" : "not alike, sums through host memory", nbytes, (unsigned long long)pieces);
    }
    fprintf(out, "\n");
}

static void precision_json(rcclx_json *j, const rcclx_team *t)
{
    rcclx_json_object_open(j, "low_precision");
    rcclx_json_string(j, "codec", rcclx_precision_name(t->precision.codec));
    rcclx_json_int(j, "min_bytes", (int64_t)t->precision.min_bytes);
    rcclx_json_string(j, "from", rcclx_precision_from(t));
    rcclx_json_object_open(j, "calls");
    for (int k = 0; k < RCCLX_KIND_COUNT; k++)
        if (t->coded[k])
            rcclx_json_int(j, rcclx_kind_name((rcclx_kind)k), (int64_t)t->coded[k]);
    rcclx_json_object_close(j);
    rcclx_json_object_close(j);
}

static void precision_text(FILE *out, const rcclx_team *t)
{
    char words[300];

    rcclx_precision_words(t, words, sizeof(words));
    fprintf(out, "  low precision: %s; calls in it:", words);
    for (int k = 0; k < RCCLX_KIND_COUNT; k++)
        if (t->coded[k])
            fprintf(out, " %s %llu", rcclx_kind_name((rcclx_kind)k), (unsigned long long)t->coded[k]);
    fprintf(out, "\n");
}

static void dump_json(FILE *out, rcclx_comm *c)
{
    const rcclx_team *t = &c->team;
    rcclx_json j;

    rcclx_json_init(&j, out);
    rcclx_json_object_open(&j, NULL);
    rcclx_json_int(&j, "rank", c->rank);
    rcclx_json_int(&j, "ranks", c->nranks);
    rcclx_json_string(&j, "name", c->config.commName);
    rcclx_json_string(&j, "device", t->driver ? t->driver->name : "host");
    rcclx_json_string(&j, "state", state_name(c));
    if (atomic_load(&t->broken))
        rcclx_json_string(&j, "cause", t->cause);
    rcclx_json_int(&j, "bytes", (int64_t)rcclx_comm_bytes(c));
    if (atomic_load(&c->state) == RCCLX_COMM_READY) {
        rcclx_json_int(&j, "cores", t->machine.ncores);
        rcclx_json_bool(&j, "crowded", t->crowded);
        rcclx_json_bool(&j, "cma", t->cma);
        rcclx_json_string(&j, "forced", t->algo);
        rcclx_json_int(&j, "collectives", (int64_t)t->seq);
        if (rcclx_team_on_gpu(t))
            device_json(&j, c);
        if (t->nnodes > 1)
            machines_json(&j, t);
        rcclx_json_object_open(&j, "calls");
        for (int k = 0; k < RCCLX_KIND_COUNT; k++)
            rcclx_json_int(&j, rcclx_kind_name((rcclx_kind)k), (int64_t)t->ops[k]);
        rcclx_json_object_close(&j);
        precision_json(&j, t);
        rcclx_json_array_open(&j, "peers");
        for (int r = 0; r < t->nranks; r++) {
            rcclx_json_object_open(&j, NULL);
            rcclx_json_int(&j, "rank", r);
            rcclx_json_int(&j, "pid", t->area[r]->ident.pid);
            rcclx_json_int(&j, "machine", t->node[r]);
            rcclx_json_string(&j, "way", way_to(t, r));
            rcclx_json_string(&j, "state", rank_state(atomic_load(&t->area[r]->ident.state)));
            rcclx_json_int(&j, "collectives_finished", (int64_t)finished(t, r));
            rcclx_json_object_close(&j);
        }
        rcclx_json_array_close(&j);
    }
    rcclx_json_object_close(&j);
}

void rcclx_comm_dump(FILE *out, rcclx_comm *c, bool json)
{
    const rcclx_team *t = &c->team;

    if (json) {
        dump_json(out, c);
        return;
    }
    fprintf(out, "communicator %p %s: rank %d of %d, %s, %s\n", c->handle, c->config.commName, c->rank, c->nranks,
            t->driver ? t->driver->name : "host", state_name(c));
    if (atomic_load(&t->broken))
        fprintf(out, "  first cause: %s\n", t->cause);
    fprintf(out, "  memory touched: %zu bytes\n", rcclx_comm_bytes(c));
    if (atomic_load(&c->state) != RCCLX_COMM_READY)
        return;
    if (rcclx_team_on_gpu(t))
        device_text(out, c);
    if (t->nnodes > 1)
        machines_text(out, t);
    fprintf(out, "  %d cores for its ranks%s; cross-memory attach %s; algorithms forced: %s\n", t->machine.ncores,
            t->crowded ? " (crowded)" : "", t->cma ? "yes" : "no", *t->algo ? t->algo : "none");
    fprintf(out, "  calls:");
    for (int k = 0; k < RCCLX_KIND_COUNT; k++)
        if (t->ops[k])
            fprintf(out, " %s %llu", rcclx_kind_name((rcclx_kind)k), (unsigned long long)t->ops[k]);
    fprintf(out, "\n");
    precision_text(out, t);
    for (int r = 0; r < t->nranks; r++)
        fprintf(out, "  rank %-3d pid %-8d %-10s by %-10s finished %llu collectives\n", r, t->area[r]->ident.pid,
                rank_state(atomic_load(&t->area[r]->ident.state)), way_to(t, r),
                (unsigned long long)finished(t, r));
}
