#ifndef RCCLX_BENCH_BACKEND_H
#define RCCLX_BENCH_BACKEND_H

#include <stddef.h>

/* What coll_bench needs of a library. backend_mpi.c and backend_rcclx.c each
 * implement it; a program is linked with one of them. A failing call prints
 * why and ends the process. */
enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, ALLTOALL, BROADCAST, KINDS };

/* Join the job that this process was launched for. */
void backend_start(int *rank, int *nranks);
void backend_stop(void);

/* The library and its version, for the record. */
const char *backend_version(void);

/* The memory that the library likes best, kept until the process ends. */
void *backend_memory(size_t nbytes);

/* One float32 collective (sum), done on return. count is what one rank gives
 * to one peer: all of it in all_reduce and broadcast (in place, from rank 0),
 * the part that a rank keeps in reduce_scatter, its share in all_gather, the
 * block for each peer in alltoall. */
void backend_call(enum kind kind, const float *send, float *recv, size_t count);

#endif
