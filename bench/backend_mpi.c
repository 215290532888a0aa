#include "backend.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Compiled twice, by mpicc.openmpi and by mpicc.mpich. MPI's default error
 * handler ends the job, so results need no checks. */

void backend_start(int *rank, int *nranks)
{
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, nranks);
}

void backend_stop(void)
{
    MPI_Finalize();
}

const char *backend_version(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int         length = 0;

    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = 0;
    for (char *c = text; *c; c++)
        if (*c == '\t')
            *c = ' ';
    return text;
}

void *backend_memory(size_t nbytes)
{
    void *p = NULL;

    if (MPI_Alloc_mem((MPI_Aint)nbytes, MPI_INFO_NULL, &p) != MPI_SUCCESS) {
        fprintf(stderr, "coll_bench: no memory for %zu bytes\n", nbytes);
        exit(1);
    }
    return p;
}

void backend_call(enum kind kind, const float *send, float *recv, size_t count)
{
    const int n = (int)count;

    switch (kind) {
    case ALL_REDUCE:
        MPI_Allreduce(send, recv, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case REDUCE_SCATTER:
        MPI_Reduce_scatter_block(send, recv, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case ALL_GATHER:
        MPI_Allgather(send, n, MPI_FLOAT, recv, n, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case ALLTOALL:
        MPI_Alltoall(send, n, MPI_FLOAT, recv, n, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case BROADCAST:
        MPI_Bcast(recv, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
    case KINDS:
        break;
    }
}
