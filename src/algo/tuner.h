#ifndef RCCLX_ALGO_TUNER_H
#define RCCLX_ALGO_TUNER_H

#include "algo/algo.h"

/* NCCL's tuner plug-ins, versions 2 to 6 (docs/howto/plugin.md): a library that says which
 * algorithm is best for a collective and a size.
 *
 *   NCCL_TUNER_PLUGIN=x    as NCCL_NET_PLUGIN, with libnccl-tuner in place of libnccl-net; none: no tuner;
 *                          not set: libnccl-tuner.so, else what NCCL_NET_PLUGIN names, if that has a tuner, too
 *
 * It is asked when a communicator is made, by rank 0 for all: for every collective that NCCL
 * asks tuners about and every power of two. So ranks cannot differ, nor does it cost anything later. */

/* Of the communicator. */
typedef struct {
    uint64_t       id;
    int            nranks, nnodes;
    const uint8_t *node;       /* machine of each rank; NULL: one */
    rcclx_machine  machine;
    size_t         slot_max;
} rcclx_tuner_job;

/* choice[kind * nclasses + c]: the row of rcclx_algos, plus one, for messages of up to 2^c bytes (as the API counts them);
 * 0: the tuner does not say. Nothing is said where there is none. What makes no sense is left out, with one warning. */
void rcclx_tuner_ask(const rcclx_tuner_job *job, uint8_t *choice, int nclasses);

/* The tuner in force, for `rcclx info`; false: none, and the text says why, or is empty. */
bool rcclx_tuner_tell(char *text, size_t n);

#endif
