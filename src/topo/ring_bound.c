/* A sharper bound of rings than the minimum cut: a ring goes into every GPU once and out
 * of it once, and through all of them in one piece. Say how much of all rings together
 * goes from GPU i to GPU k, x[i][k], over the way between them. Then, with B what all rings
 * carry:
 *
 *   out of i, into k      sum over k of x[i][k] = B,  sum over i of x[i][k] = B
 *   links                 sum of x over ways that use the link <= its rate
 *   small circles         within a set S of GPUs (not all): sum of x <= (|S| - 1) B
 *   ports                 what leaves by a port comes in by it: rings keep to their rails
 *
 * The largest B for which there is such an x is not below what rings carry, since theirs is
 * one. For example GPU 1 below: links to GPU 0 carry 4, to others 2, yet five rings are not
 * possible. Each would need one of the two other links on one side at least, and there are
 * two out and two in:
 *
 *   GPU 0 ====4==== GPU 1 ---1--- GPU 2
 *                     \------1--- GPU 3                                          */
#include "topo/yard.h"

#include "base/log.h"
#include "base/mem.h"
#include "topo/simplex.h"

enum { MOST_GPUS = 16, ALL_SETS = 8, MOST_SET = 4, MOST_CELLS = 300000 };

typedef struct {
    const rcclx_yard *y;
    rcclx_simplex p;
    int n, nports; /* ports: 0 for a node alone */
} problem;

/* Variable 0 is B; then GPU to GPU, GPU to port, port to GPU. */
static int var_gpu(const problem *q, int i, int k)
{
    return 1 + i * q->n + k;
}

static int var_port(const problem *q, int i, int port, bool out)
{
    return 1 + q->n * q->n + (out ? 0 : q->n * q->nports) + i * q->nports + port;
}

static bool joined(const problem *q, int from, int to)
{
    return rcclx_topo_path(q->y->t, from, to)->rate > 0;
}

/* What a row says of all traffic out of (or into) GPU i, or the network if i is n. */
static void add_traffic(problem *q, int row, int i, bool out, double times)
{
    for (int k = 0; k < q->n; k++) {
        if (i < q->n && k != i && joined(q, q->y->gpus[out ? i : k], q->y->gpus[out ? k : i]))
            *rcclx_simplex_at(&q->p, row, out ? var_gpu(q, i, k) : var_gpu(q, k, i)) += times;
        for (int p = 0; i == q->n && p < q->nports; p++)
            *rcclx_simplex_at(&q->p, row, var_port(q, k, p, !out)) += times;
    }
    for (int p = 0; i < q->n && p < q->nports; p++)
        *rcclx_simplex_at(&q->p, row, var_port(q, i, p, out)) += times;
}

/* Equal to B: at most, and at least. */
static void add_degrees(problem *q)
{
    for (int i = 0; i < q->n + (q->nports > 0); i++)
        for (int out = 0; out < 2; out++)
            for (int least = 0; least < 2; least++) {
                const int row = rcclx_simplex_row(&q->p, 0);
                add_traffic(q, row, i, out, least ? -1 : 1);
                *rcclx_simplex_at(&q->p, row, 0) = least ? 1 : -1;
            }
}

static void add_way(problem *q, const int *row_of, int from, int to, int var)
{
    const rcclx_path *p = rcclx_topo_path(q->y->t, from, to);

    for (int i = 0; i < p->nhops; i++)
        *rcclx_simplex_at(&q->p, row_of[q->y->t->hops[p->first + i]], var) += 1;
}

static void add_links(problem *q, int *row_of)
{
    const rcclx_yard *y = q->y;

    for (int l = 0; l < y->t->nlinks; l++)
        row_of[l] = y->used[l] ? rcclx_simplex_row(&q->p, y->t->links[l].rate) : -1;
    for (int i = 0; i < q->n; i++) {
        for (int k = 0; k < q->n; k++)
            if (k != i)
                add_way(q, row_of, y->gpus[i], y->gpus[k], var_gpu(q, i, k));
        for (int p = 0; p < q->nports; p++) {
            add_way(q, row_of, y->gpus[i], y->ports[p], var_port(q, i, p, true));
            add_way(q, row_of, y->ports[p], y->gpus[i], var_port(q, i, p, false));
        }
    }
}

static int count_bits(int set)
{
    int n = 0;

    for (; set; set &= set - 1)
        n++;
    return n;
}

/* Which sets of GPUs get a row: pairs, and of few GPUs those of three and four. */
static bool is_small_circle(const problem *q, int set)
{
    const int size = count_bits(set), all = q->n + (q->nports > 0);

    return size >= 2 && size < all && size <= (q->n <= ALL_SETS ? MOST_SET : 2);
}

static void add_small_circles(problem *q)
{
    for (int set = 3; set < 1 << q->n; set++) {
        if (!is_small_circle(q, set))
            continue;
        const int row = rcclx_simplex_row(&q->p, 0);
        *rcclx_simplex_at(&q->p, row, 0) = 1 - count_bits(set);
        for (int i = 0; i < q->n; i++)
            for (int k = 0; k < q->n; k++)
                if (i != k && set >> i & 1 && set >> k & 1)
                    *rcclx_simplex_at(&q->p, row, var_gpu(q, i, k)) = 1;
    }
}

static void add_rails(problem *q)
{
    for (int p = 0; p < q->nports; p++)
        for (int out = 0; out < 2; out++) {
            const int row = rcclx_simplex_row(&q->p, 0);
            for (int i = 0; i < q->n; i++) {
                *rcclx_simplex_at(&q->p, row, var_port(q, i, p, true)) = out ? 1 : -1;
                *rcclx_simplex_at(&q->p, row, var_port(q, i, p, false)) = out ? -1 : 1;
            }
        }
}

static int count_rows(const problem *q)
{
    int n = 4 * (q->n + 1) + q->y->t->nlinks + 2 * q->nports;

    for (int set = 3; set < 1 << q->n; set++)
        n += is_small_circle(q, set);
    return n;
}

/* The x of the largest B: where rings reach it, this goes from end to end. */
static rcclx_status keep_wishes(const problem *q, rcclx_yard *y)
{
    const int nends = y->t->ngpus + y->t->nnets;

    if (!y->wish && !(y->wish = rcclx_mem_alloc((size_t)nends * (size_t)nends * sizeof(double))))
        return RCCLX_FAIL(RCCLX_NOMEM, "no memory for a bound");
    for (int i = 0; i < q->n; i++) {
        for (int k = 0; k < q->n; k++)
            y->wish[y->gpus[i] * nends + y->gpus[k]] = i == k ? 0 : rcclx_simplex_value(&q->p, var_gpu(q, i, k));
        for (int p = 0; p < q->nports; p++) {
            y->wish[y->gpus[i] * nends + y->ports[p]] = rcclx_simplex_value(&q->p, var_port(q, i, p, true));
            y->wish[y->ports[p] * nends + y->gpus[i]] = rcclx_simplex_value(&q->p, var_port(q, i, p, false));
        }
    }
    return RCCLX_OK;
}

rcclx_status rcclx_bound_degrees(rcclx_yard *y, bool network, double *bound)
{
    rcclx_status status = RCCLX_OK;
    problem q = { .y = y, .n = y->ngpus, .nports = network ? y->nports : 0 };
    const int nvars = 1 + q.n * q.n + 2 * q.n * q.nports;
    double most;

    if (q.n < 2 || q.n > MOST_GPUS || (long long)count_rows(&q) * nvars > MOST_CELLS)
        return RCCLX_OK;
    RCCLX_TRY(rcclx_simplex_open(&q.p, nvars, count_rows(&q)));
    int *row_of = rcclx_mem_alloc(((size_t)y->t->nlinks + 1) * sizeof(int));
    if (row_of) {
        add_degrees(&q);
        add_links(&q, row_of);
        add_small_circles(&q);
        add_rails(&q);
        if (rcclx_simplex_solve(&q.p, &most)) {
            *bound = most < *bound ? most : *bound;
            status = keep_wishes(&q, y);
        }
    }
    rcclx_simplex_close(&q.p);
    rcclx_mem_free(row_of);
    return row_of ? status : RCCLX_FAIL(RCCLX_NOMEM, "no memory for a bound");
}
