#ifndef RCCLX_COMM_INIT_H
#define RCCLX_COMM_INIT_H

/* Private to comm/. */
#include "comm/comm.h"

/* Give back everything of a communicator nobody holds any more. */
void rcclx_comm_undo(rcclx_comm *c);

#endif
