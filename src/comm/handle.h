#ifndef RCCLX_COMM_HANDLE_H
#define RCCLX_COMM_HANDLE_H

/* Private to comm/: from handles to communicators. */
#include "comm/comm.h"

rcclx_status rcclx_handle_open(rcclx_comm *c);     /* sets c->handle and c->entry */
rcclx_comm  *rcclx_handle_get(const void *handle); /* in use until put; NULL: none */
void         rcclx_handle_put(rcclx_comm *c);

/* The handle is no more; returns when no call but the `mine` uses of the caller is
 * in it. false: somebody else has closed it. */
bool         rcclx_handle_close(rcclx_comm *c, int mine);

#endif
