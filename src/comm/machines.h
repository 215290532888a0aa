#ifndef RCCLX_COMM_MACHINES_H
#define RCCLX_COMM_MACHINES_H

/* Private to comm/: communicators whose ranks are on several machines. */
#include "comm/bootstrap.h"

/* While meeting: mirrors of the far ranks' areas, and the network to them. */
rcclx_status rcclx_machines_join(rcclx_comm *c, rcclx_meeting *m);

/* On GPUs, when all is agreed: the communicators that it is made of, and the proxy between them. */
rcclx_status rcclx_machines_parts(rcclx_comm *c);
void         rcclx_machines_leave(rcclx_comm *c); /* takes half-made ones, and those that have none */

#endif
