#ifndef RCCLX_ALGO_ALGO_H
#define RCCLX_ALGO_ALGO_H

#include "plan/plan.h"

/* The algorithms. To add one: write algo/<name>.c and add its row here; it is
 * then checked for 1..64 ranks, conformance-tested, priced, chosen, and can be
 * forced and printed by name. */
#define RCCLX_ALGO_LIST(X)                                                    \
    X(slot)     /* one exchange through the operation's slot (LL) */          \
    X(direct)   /* read and write the peers' buffers in place */              \
    X(staged)   /* the same through scratch, piece by piece */                \
    X(ring)                                                                   \
    X(tree)     /* double binary tree */                                      \
    X(doubling) /* recursive doubling / halving */                            \
    X(levels)   /* inside machines, and between them */                       \
    X(leaders)  /* the same for small messages, one rank a machine */         \
    X(ll) X(ll128)           /* GPUs: one exchange, pushed with flags */      \
    X(ll_two) X(ll128_two)   /* two of them */                                \
    X(direct_push)           /* GPUs: write the peers' buffers in place */ \
    X(relay) X(relay_staged) /* GPUs: push contributions, then sums, piece by piece */

#define X(name) extern const rcclx_algo rcclx_algo_##name;
RCCLX_ALGO_LIST(X)
#undef X

extern const rcclx_algo *const rcclx_algos[]; /* ends with NULL */

const rcclx_algo *rcclx_algo_find(const char *name); /* our name or NCCL's, any case; NULL: none */

/* May this algorithm run this operation with these facts? small: IN of every
 * rank fits a slot. */
bool rcclx_algo_fits(const rcclx_algo *a, const rcclx_shape *s, unsigned facts, bool small);

/* Which algorithm for this operation (those for GPUs only with RCCLX_FACT_GPU): the forced one if it fits (otherwise
 * *forced_failed is set, for the log), else the cheapest that fits by price;
 * points of the tuning table replace the model where they apply. `staged` fits
 * everything; NULL: no memory to compare. `forced` is a list as NCCL_ALGO and
 * RCCLX_ALGO take it: "ring", "ring,tree", "^tree", "allreduce:ring;broadcast:tree";
 * "" forces nothing. */
const rcclx_algo *rcclx_algo_choose(const rcclx_shape *s, size_t nbytes, unsigned facts, bool small, bool ordered,
                                    const char *forced, const rcclx_machine *m, bool *forced_failed);

/* The same decision, told: a line an algorithm with its price or the reason why not. */
void rcclx_algo_explain(FILE *out, const rcclx_shape *s, size_t nbytes, unsigned facts, bool small, bool ordered,
                        const char *forced, const rcclx_machine *m, bool json);

/* Syntax check of such a list: 0, or -1 with the offending word copied to bad. */
int rcclx_algo_list_check(const char *forced, char *bad, size_t nbad);

#endif
