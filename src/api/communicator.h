#ifndef RCCLX_API_COMMUNICATOR_H
#define RCCLX_API_COMMUNICATOR_H

#include "api/export.h"
#include "comm/comm.h"

/* Check the arguments of a new rank, parse its configuration (an ncclConfig_t
 * of any age, or NULL), and make it. `call` is the public name, for texts. device:
 * NULL or "auto" stand for what RCCLX_DEVICE says; on GPUs the thread's current one. local: the number
 * that a rank in host memory shows. */
rcclx_status rcclx_api_init(const char *call, ncclComm_t *comm, int nranks, const ncclUniqueId *id, int rank, const char *device,
                            int local, const void *user);

#endif
