/* The table of algorithms, in the order in which they are explained. */
#include "algo/algo.h"

#include <strings.h>

const rcclx_algo *const rcclx_algos[] = {
#define X(name) &rcclx_algo_##name,
    RCCLX_ALGO_LIST(X)
#undef X
    NULL
};

const rcclx_algo *rcclx_algo_find(const char *name)
{
    for (const rcclx_algo *const *a = rcclx_algos; *a; a++)
        if (!strcasecmp(name, (*a)->name) || ((*a)->nccl && !strcasecmp(name, (*a)->nccl)))
            return *a;
    return NULL;
}
