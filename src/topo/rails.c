/* Rails: port c of every node leads to the same switch, so what stays on rail c takes
 * the short way through the network. Whose GPU is not near port c hands its data to one
 * that is, over the links between GPUs:
 *
 *   node A   GPU 0 ==XGMI==> GPU 2 --PCI--> port 2 ===rail 2===> port 2 --PCI--> GPU 2 ...   node B
 *
 * Rail c's relay for a rank is the rank itself if no GPU that is joined to its own is
 * nearer to the port, else the nearest such, of several as near the one it reaches widest. The rate is that of
 * all rails at once, every GPU giving the same to every rail, going out and coming in;
 * ports so slow that the others would wait for them are left out. */
#include "topo/yard.h"

#include "base/log.h"
#include "base/mem.h"

/* Is GPU k nearer to the port than GPU i, and joined to it by a link between GPUs? */
static bool helps(const rcclx_yard *y, int i, int k, int port)
{
    const rcclx_path *there = rcclx_topo_path(y->t, y->gpus[k], port), *here = rcclx_topo_path(y->t, y->gpus[i], port);

    return k != i && there->rate > 0 && there->kind < here->kind &&
           rcclx_topo_path(y->t, y->gpus[i], y->gpus[k])->kind <= RCCLX_PATH_NVL;
}

/* A GPU that no other one helps: it talks to the port by itself. */
static bool is_last(const rcclx_yard *y, int i, int port)
{
    for (int k = 0; k < y->ngpus; k++)
        if (helps(y, i, k, port))
            return false;
    return true;
}

/* Index of the GPU through which GPU i reaches the port. */
static int relay(const rcclx_yard *y, int i, int port)
{
    int best = i;

    for (int k = 0; k < y->ngpus; k++) {
        if (!helps(y, i, k, port) || !is_last(y, k, port))
            continue;
        const rcclx_path *there = rcclx_topo_path(y->t, y->gpus[k], port), *now = rcclx_topo_path(y->t, y->gpus[best], port);
        if (there->kind < now->kind ||
            (there->kind == now->kind &&
             rcclx_topo_path(y->t, y->gpus[i], y->gpus[k])->rate > rcclx_topo_path(y->t, y->gpus[i], y->gpus[best])->rate))
            best = k;
    }
    return best;
}

/* GB/s of each GPU to each of these rails, all at once, out of the node or into it. */
static double carried(rcclx_yard *y, const int *rails, int nrails, bool out)
{
    rcclx_yard_reset(y);
    for (int c = 0; c < nrails; c++)
        for (int i = 0; i < y->ngpus; i++) {
            const int port = y->ports[rails[c]], gpu = y->gpus[i], by = y->gpus[relay(y, i, port)];
            rcclx_yard_take(y, out ? gpu : by, out ? by : gpu, gpu == by ? 0 : 1);
            rcclx_yard_take(y, out ? by : port, out ? port : by, 1);
        }
    return rcclx_yard_scale(y);
}

/* The same for all GPUs of a node together, in the worst node. */
static double rate_of(const rcclx_field *f, const int *rails, int nrails)
{
    double worst = 1e300;

    for (int y = 0; y < f->nyards; y++)
        for (int out = 0; out < 2; out++) {
            const double rate = carried(&f->yards[y], rails, nrails, out) * f->yards[y].ngpus;
            worst = rate < worst ? rate : worst;
        }
    return worst;
}

/* Ports, the fastest first. */
static int order_rails(const rcclx_field *f, int *rails)
{
    const int n = f->ports < RCCLX_CHANNELS ? f->ports : RCCLX_CHANNELS;

    for (int c = 0; c < n; c++) {
        int at = c;
        for (; at > 0 && rcclx_field_rail_rate(f, rails[at - 1]) < rcclx_field_rail_rate(f, c) * (1 - 1e-9); at--)
            rails[at] = rails[at - 1];
        rails[at] = c;
    }
    return n;
}

/* What the ports and the ways to them carry at most: as if the node were one end, the network the other. */
static rcclx_status bound(const rcclx_field *f, double *all)
{
    *all = 1e300;
    for (int y = 0; y < f->nyards; y++) {
        bool inside[RCCLX_TOPO_GPUS];
        for (int i = 0; i < f->yards[y].ngpus; i++)
            inside[i] = true;
        for (int in = 0; in < 2; in++) {
            double most;
            RCCLX_TRY(rcclx_flow_between(&f->yards[y], true, inside, in, &most));
            *all = most < *all ? most : *all;
        }
    }
    return RCCLX_OK;
}

static void store(rcclx_schedule *s, const rcclx_field *f, const int *rails)
{
    for (int c = 0; c < s->nchannels; c++)
        for (int node = 0; node < f->nnodes; node++) {
            const rcclx_yard *y = &f->yards[f->yard_of[node]];
            const int port = y->ports[rails[c]];
            s->ports[c * f->nnodes + node] = port - y->t->ngpus;
            for (int i = 0; i < y->ngpus; i++)
                s->rows[c * f->nranks + rcclx_field_rank(f, node, i)] = rcclx_field_rank(f, node, relay(y, i, port));
        }
}

rcclx_status rcclx_find_rails(rcclx_schedule *s, rcclx_field *f)
{
    int rails[RCCLX_CHANNELS];
    const int most = order_rails(f, rails);

    RCCLX_TRY(rcclx_schedule_make(s, RCCLX_RAILS, f->nranks, f->nnodes, most));
    for (int n = 1; n <= most; n++) {
        const double rate = rate_of(f, rails, n);
        if (rate * n <= s->total * 1.001)
            continue; /* one more slow port would hold up all others */
        s->nchannels = n;
        s->rate = rate;
        s->total = rate * n;
    }
    if (most)
        RCCLX_TRY(bound(f, &s->bound));
    s->limit = s->bound;
    store(s, f, rails);
    return RCCLX_OK;
}
