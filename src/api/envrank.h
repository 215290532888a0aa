#ifndef RCCLX_API_ENVRANK_H
#define RCCLX_API_ENVRANK_H

#include "api/export.h"
#include "base/status.h"
#include "rcclx.h"

#include <stddef.h>

/* Rank and size from the launcher's variables (see rcclx.h). USAGE: they are
 * there but are no rank of a job. */
rcclx_status rcclx_envrank_get(rcclxEnv_t *env);

/* "host:port" at which the job's ranks meet, from MASTER_ADDR and MASTER_PORT,
 * written into buf. USAGE: the environment names no place. */
rcclx_status rcclx_envrank_address(const rcclxEnv_t *env, char *buf, size_t n);

#endif
