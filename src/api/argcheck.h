#ifndef RCCLX_API_ARGCHECK_H
#define RCCLX_API_ARGCHECK_H

#include "api/export.h"
#include "exec/exec.h"

/* The way of every operation from the public function to the executor: find the
 * communicator, check the arguments, log, post. `call` is the public name, for
 * texts. *op comes with everything but team, op and scalar, which this fills in
 * from comm and redop (an ncclRedOp_t; -1 for kinds that do not reduce). An
 * error inside a group is remembered there as well. */
ncclResult_t rcclx_api_post(const char *call, ncclComm_t comm, int redop, rcclx_op *op);

/* The arguments alone. ARGUMENT with a text that names call, argument, value,
 * rank and remedy; nothing was changed. */
rcclx_status rcclx_args_check(const char *call, const rcclx_op *op);

/* Hand a status to the caller; inside a group, the group's end returns it too. */
ncclResult_t rcclx_api_result(rcclx_status s);

/* "p is NULL" as ARGUMENT, for the results that functions write. */
rcclx_status rcclx_args_need(const char *call, const char *what, const void *p);

#endif
