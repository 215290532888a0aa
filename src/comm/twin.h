#ifndef RCCLX_COMM_TWIN_H
#define RCCLX_COMM_TWIN_H

/* Private to comm/: another copy of this library in the same process (libnccl.so.2
 * preloaded, say, and librcclx.so linked). Each has a state of its own, and takes the
 * other for another process. Look at every init: warns, once, when both are in use. */
void rcclx_twin_look(void);

#endif
