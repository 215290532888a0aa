#ifndef RCCLX_API_COMMUNICATOR_H
#define RCCLX_API_COMMUNICATOR_H

#include "api/export.h"
#include "comm/comm.h"

/* Is this the name of a device, and is it here? NULL and "auto" stand for what
 * RCCLX_DEVICE says. ARGUMENT: no such name; USAGE: not in this version. */
rcclx_status rcclx_device_check(const char *call, int rank, const char *device);

/* Check the arguments of a new rank, parse its configuration (an ncclConfig_t
 * of any age, or NULL), and make it. `call` is the public name, for texts. */
rcclx_status rcclx_api_init(const char *call, ncclComm_t *comm, int nranks, const ncclUniqueId *id, int rank, int device,
                            const void *user);

#endif
