#ifndef RCCLX_API_ENVRANK_H
#define RCCLX_API_ENVRANK_H

#include "api/export.h"
#include "base/status.h"
#include "rcclx.h"

#include <stddef.h>

/* Rank and size from the launcher's variables (see rcclx.h). USAGE: they are
 * there but are no rank of a job. */
rcclx_status rcclx_envrank_get(rcclxEnv_t *env);

/* Where the job's ranks meet. address: host:port of rank 0 (NCCL_COMM_ID, or
 * MASTER_ADDR and the port after MASTER_PORT; by srun on several nodes the step's first
 * node and a port of its number), "" if the environment names none:
 * then they meet on this machine alone. words: the same on all ranks of the job
 * and on no others (RCCLX_RUN_ID, the address, or the launcher's name of the job).
 * USAGE: the environment contradicts itself. */
rcclx_status rcclx_envrank_place(const rcclxEnv_t *env, char *address, size_t naddress, char *words, size_t nwords);

#endif
