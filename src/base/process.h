#ifndef RCCLX_BASE_PROCESS_H
#define RCCLX_BASE_PROCESS_H

#include <pthread.h>
#include <stdint.h>

/* The one mutable global of the library: what belongs to the process and not
 * to a communicator. Each layer above keeps its own part behind a pointer that
 * only its own file uses. A child made by fork() starts with an empty one. */
typedef struct {
    pthread_mutex_t lock;      /* guards the pointers below while they are set up */
    pthread_mutex_t posting;   /* exec/group.c: several turns, or a turn and a queue, in one go */
    int             pid;
    uint64_t        host;      /* same number = same machine and same boot */
    uint64_t        key;       /* random; tells this process from every other */
    void           *arena;     /* transport/arena.c: memory that peers map */
    void           *mappings;  /* transport/arena.c: the peers' arenas mapped here */
    void           *segments;  /* transport/segment.c: those mapped here */
    void           *lives;     /* transport/life.c: the peer processes watched */
    void           *handles;   /* comm/handle.c */
    int             twin;      /* comm/twin.c: another copy of the library in this process was told of */
    void           *streams;   /* exec/stream.c */
    void           *gpus;      /* device/gpu.c: the drivers that were loaded */
    void           *emulated;  /* device/gpu_emu.c: the emulated GPUs */
    void           *gpu_memory; /* exec/gpu_memory.c: what ncclMemAlloc gave on GPUs, the teams that use it */
    void           *plugins;   /* transport/plugin/plugin_find.c: network plug-ins */
    void           *tuner;     /* algo/tuner.c: the tuner plug-in */
    void           *ucx;       /* transport/net_ucx.c: the library and its context */
} rcclx_process_state;

rcclx_process_state *rcclx_process(void);

/* Name the calling thread ("rcclx root"), if NCCL_SET_THREAD_NAME asks for it. */
void rcclx_thread_name(const char *name);

/* Bytes nobody can guess. */
void rcclx_random(void *buf, unsigned nbytes);

#endif
