/* Splitting: the parent's ranks tell each other color and key, the first of each
 * color makes a unique id and tells it through the parent, and each color meets
 * at its id like any other communicator.
 *
 *   parent     0     1     2     3
 *   color      a     b     a     -        all-gather (color, key)
 *   id         A     B                    all-gather ids
 *   children   a: 0 2      b: 1           init as usual
 */
#include "comm/comm.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

typedef struct { int32_t color, key; } vote;

typedef struct {
    rcclx_comm       *parent; /* held */
    int               color, key;
    void            **handle;
    rcclx_comm_config config;
} job;

/* This rank's place among those of its color, ordered by key, then parent rank. */
static int place(const vote *all, int n, int me, int *size)
{
    int before = 0;

    *size = 0;
    for (int r = 0; r < n; r++) {
        if (all[r].color != all[me].color)
            continue;
        ++*size;
        before += all[r].key < all[me].key || (r < me && all[r].key == all[me].key);
    }
    return before;
}

static rcclx_status split(job *j)
{
    rcclx_team *t = &j->parent->team;
    vote mine = { j->color, j->key }, all[RCCLX_MAX_RANKS];
    rcclx_unique_id id = { { 0 } }, ids[RCCLX_MAX_RANKS];
    int size, leader = -1;

    RCCLX_TRY(rcclx_team_exchange(t, &mine, all, sizeof(mine)));
    const int rank = place(all, t->nranks, t->rank, &size);
    rcclx_status made = RCCLX_OK;
    if (j->color >= 0 && rank == 0)
        made = rcclx_unique_id_create(&id, NULL); /* zero bytes on failure: the others then know */
    RCCLX_TRY(rcclx_team_exchange(t, &id, ids, sizeof(id)));
    if (j->color < 0 || made != RCCLX_OK)
        return made;
    for (int r = 0, n; r < t->nranks; r++)
        if (all[r].color == j->color && place(all, t->nranks, r, &n) == 0)
            leader = r;
    if (memcmp(&ids[leader], &(rcclx_unique_id){ { 0 } }, sizeof(id)) == 0)
        return RCCLX_FAIL(RCCLX_SYSTEM, "rank %d: split: rank %d could not make the id of color %d", t->rank, leader, j->color);
    const rcclx_place place = { t->driver, j->parent->device };
    return rcclx_comm_init(j->handle, size, &ids[leader], rank, &place, &j->config, NULL);
}

static rcclx_status run(void *arg)
{
    job *j = arg;
    const rcclx_status s = split(j);

    rcclx_team_let_go(&j->parent->team);
    rcclx_mem_free(j);
    return s;
}

static void drop(void *arg)
{
    rcclx_team_let_go(&((job *)arg)->parent->team);
    rcclx_mem_free(arg);
}

/* Beside the caller, who polls the parent. The child's own set-up may go on when
 * the parent is done with it. */
static void *run_in_thread(void *arg)
{
    rcclx_comm *parent = ((job *)arg)->parent;

    rcclx_team_hold(&parent->team);
    const rcclx_status s = run(arg);
    if (s != RCCLX_OK && s != RCCLX_AGAIN)
        rcclx_team_break(&parent->team, s, rcclx_last_error());
    atomic_fetch_sub(&parent->pending, 1);
    rcclx_team_let_go(&parent->team);
    return NULL;
}

static rcclx_status start_thread(job *j)
{
    rcclx_comm *parent = j->parent;
    pthread_t t;

    atomic_fetch_add(&parent->pending, 1);
    if (pthread_create(&t, NULL, run_in_thread, j)) {
        atomic_fetch_sub(&parent->pending, 1);
        return run(j);
    }
    pthread_detach(t);
    return RCCLX_AGAIN;
}

rcclx_status rcclx_comm_split(rcclx_comm *parent, int color, int key, void **handle, const rcclx_comm_config *config)
{
    job *j = RCCLX_NEW(job);

    *handle = NULL;
    if (!j)
        return RCCLX_FAIL(RCCLX_NOMEM, "rank %d: split: no memory", parent->rank);
    *j = (job){ .parent = parent, .color = color, .key = key, .handle = handle, .config = config ? *config : parent->config };
    rcclx_team_hold(&parent->team);
    return parent->config.blocking ? rcclx_group_job(run, drop, j) : start_thread(j);
}
