/* Pre-multiplied sums a user made: a small table a communicator. */
#include "comm/comm.h"

#include "base/log.h"

rcclx_status rcclx_redop_create(rcclx_comm *c, rcclx_type type, uint64_t scalar, int *index)
{
    int i = 0;

    pthread_mutex_lock(&c->lock);
    while (i < RCCLX_MAX_REDOPS && c->redops[i].used)
        i++;
    if (i < RCCLX_MAX_REDOPS)
        c->redops[i] = (rcclx_redop_slot){ true, type, scalar };
    pthread_mutex_unlock(&c->lock);
    if (i == RCCLX_MAX_REDOPS)
        return RCCLX_FAIL(RCCLX_USAGE, "rank %d: ncclRedOpCreatePreMulSum: %d operators are alive in this communicator; destroy "
                          "some with ncclRedOpDestroy", c->rank, RCCLX_MAX_REDOPS);
    *index = i;
    return RCCLX_OK;
}

rcclx_status rcclx_redop_destroy(rcclx_comm *c, int index)
{
    bool was = false;

    pthread_mutex_lock(&c->lock);
    if (index >= 0 && index < RCCLX_MAX_REDOPS) {
        was = c->redops[index].used;
        c->redops[index].used = false;
    }
    pthread_mutex_unlock(&c->lock);
    return was ? RCCLX_OK : RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: ncclRedOpDestroy: operator %d was not made by "
                                       "ncclRedOpCreatePreMulSum on this communicator, or is destroyed already", c->rank, index + 5);
}

bool rcclx_redop_get(rcclx_comm *c, int index, rcclx_type *type, uint64_t *scalar)
{
    bool there = false;

    pthread_mutex_lock(&c->lock);
    if (index >= 0 && index < RCCLX_MAX_REDOPS && c->redops[index].used) {
        there = true;
        *type = c->redops[index].type;
        *scalar = c->redops[index].scalar;
    }
    pthread_mutex_unlock(&c->lock);
    return there;
}
