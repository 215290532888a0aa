/* A program outside the tree: two ranks of one thread add their numbers. */
#include <nccl.h>
#include <stdio.h>

#define TRY(call)                                                                  \
    do {                                                                           \
        ncclResult_t r = (call);                                                   \
        if (r != ncclSuccess) {                                                    \
            fprintf(stderr, "%s: %s (%s)\n", #call, ncclGetErrorString(r), ncclGetLastError(NULL)); \
            return 1;                                                              \
        }                                                                          \
    } while (0)

int main(void)
{
    ncclComm_t comms[2];
    float      in[2][3] = { { 1, 2, 3 }, { 10, 20, 30 } }, out[2][3] = { { 0 } };
    int        version;

    TRY(ncclGetVersion(&version));
    TRY(ncclCommInitAll(comms, 2, NULL));
    TRY(ncclGroupStart());
    for (int i = 0; i < 2; i++)
        TRY(ncclAllReduce(in[i], out[i], 3, ncclFloat, ncclSum, comms[i], NULL));
    TRY(ncclGroupEnd());
    for (int i = 0; i < 2; i++) {
        if (out[i][0] != 11 || out[i][1] != 22 || out[i][2] != 33) {
            fprintf(stderr, "rank %d has %g %g %g\n", i, (double)out[i][0], (double)out[i][1], (double)out[i][2]);
            return 1;
        }
        TRY(ncclCommDestroy(comms[i]));
    }
    printf("version %d: 11 22 33\n", version);
    return 0;
}
