#ifndef RCCLX_TOOL_RANK_H
#define RCCLX_TOOL_RANK_H

#include <stdbool.h>

/* What makes a process a rank of a program: torchrun's variables, so that whatever
 * starts under torchrun starts here. */
typedef struct {
    char      **argv;
    const char *host;         /* for messages; NULL: this machine */
    const char *address;      /* MASTER_ADDR */
    const char *id;           /* RCCLX_RUN_ID */
    int         port;         /* MASTER_PORT */
    int         first, local; /* this machine's ranks: from first on, so many */
    int         world;
} tool_ranks;

/* In the process of the local-th rank: becomes the program. Returns an exit code if it cannot. */
int tool_rank_become(const tool_ranks *r, int local);

/* Two free ports next to each other, for what listens on MASTER_PORT + 1; -1: none, errno. */
int tool_rank_port(void);

/* Our libnccl.so.2 into LD_PRELOAD. An exit code. */
int tool_rank_preload(void);

#endif
