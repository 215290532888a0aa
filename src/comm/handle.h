#ifndef RCCLX_COMM_HANDLE_H
#define RCCLX_COMM_HANDLE_H

/* Private to comm/: from handles to communicators. */
#include "comm/comm.h"

rcclx_status rcclx_handle_open(rcclx_comm *c);           /* sets c->handle; the table keeps one hold */
rcclx_comm  *rcclx_handle_get(const void *handle);       /* held; NULL: none */
rcclx_comm  *rcclx_handle_close(const void *handle);     /* the handle is no more; the table's hold is the caller's */

#endif
