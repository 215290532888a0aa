/* Every rank contributes its number, all get the sum:
 *
 *     rcclx run -n 4 build/bin/examples/hello */
#include <rcclx.h>
#include <stdio.h>

int main(void)
{
    ncclComm_t comm;
    int        rank, size;
    float      sum;

    if (rcclxCommInitEnv(&comm, NULL) != ncclSuccess)
        return fprintf(stderr, "%s\n", ncclGetLastError(NULL)), 1;
    ncclCommUserRank(comm, &rank);
    ncclCommCount(comm, &size);
    ncclAllReduce(&(float){ (float)rank }, &sum, 1, ncclFloat32, ncclSum, comm, NULL);
    printf("rank %d of %d: all numbers together are %g\n", rank, size, sum);
    return ncclCommDestroy(comm);
}
