#ifndef RCCLX_TESTS_STANDIN_H
#define RCCLX_TESTS_STANDIN_H

/* What a stand-in for a GPU driver remembers, for the test that loaded it to look at:
 *
 *   standin *s = *(standin **)... dlsym(library, "standin_state")
 *
 * Set by environment before the driver is opened: STANDIN_DEVICES (2), STANDIN_MEMORY
 * (bytes a device; 1 GiB), STANDIN_ARCH (90; gfx942), STANDIN_VERSION (13000; 60300000),
 * STANDIN_NO_VMM (1: devices without virtual memory). */
#include <stddef.h>
#include <stdint.h>

typedef struct {
    int      pushes, pops, sets;          /* contexts; devices set */
    int      creates, releases;           /* handles of virtual memory that are alive: creates - releases */
    int      opens, closes;               /* IPC */
    int      mapped;                      /* mappings alive */
    int      accesses;                    /* (device, range) pairs that were given access */
    int      loaded_functions;
    unsigned ipc_flags, host_flags, alloc_flags;
    int      last_errors;                 /* HIP: the error that the next hipGetLastError returns */
    int      not_ready;                   /* queries say so while it is not 0 */
    int      mode;                        /* of capture; of the thread that asked last */
    const void *loaded;                   /* what a module was last made of */
    unsigned blocks, threads;             /* of the last launch */
    size_t   nargs;
    unsigned char args[64];
    void    *stream;                      /* as passed to the last launch, copy or fill */
} standin;

#endif
