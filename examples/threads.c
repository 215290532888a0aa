/* Ranks need not be processes. First four threads are a rank each; then one
 * thread is four ranks, whose calls stand in a group, since each alone would
 * wait for the others. */
#include <pthread.h>
#include <rcclx.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 4, COUNT = 1000 };

struct rank {
    int          number;
    ncclUniqueId id;
    float        sum; /* the last element of the result */
};

static void must(ncclResult_t result)
{
    if (result == ncclSuccess)
        return;
    fprintf(stderr, "threads: %s: %s\n", ncclGetErrorString(result), ncclGetLastError(NULL));
    exit(1);
}

static void *live(void *argument)
{
    struct rank *rank = argument;
    ncclComm_t   comm;
    float        data[COUNT];

    for (int i = 0; i < COUNT; i++)
        data[i] = (float)(rank->number + i);
    must(ncclCommInitRank(&comm, RANKS, rank->id, rank->number));
    must(ncclAllReduce(data, data, COUNT, ncclFloat32, ncclSum, comm, NULL)); /* in place */
    must(ncclCommDestroy(comm));
    rank->sum = data[COUNT - 1];
    return NULL;
}

static int a_thread_each(void)
{
    struct rank  rank[RANKS];
    pthread_t    thread[RANKS];
    ncclUniqueId id;
    int          right = 0;

    must(ncclGetUniqueId(&id));
    for (int r = 0; r < RANKS; r++) {
        rank[r] = (struct rank){ .number = r, .id = id };
        if (pthread_create(&thread[r], NULL, live, &rank[r])) {
            perror("threads: pthread_create");
            exit(1);
        }
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(thread[r], NULL);
        printf("thread %d: %g\n", r, rank[r].sum);
        right += rank[r].sum == 0 + 1 + 2 + 3 + RANKS * (COUNT - 1);
    }
    return right == RANKS;
}

static int one_thread_for_all(void)
{
    ncclComm_t comm[RANKS];
    int        mine[RANKS], all[RANKS][RANKS], right = 0;

    must(ncclCommInitAll(comm, RANKS, NULL));
    for (int r = 0; r < RANKS; r++)
        mine[r] = r * r;
    must(ncclGroupStart());
    for (int r = 0; r < RANKS; r++)
        must(ncclAllGather(&mine[r], all[r], 1, ncclInt32, comm[r], NULL));
    must(ncclGroupEnd());
    for (int r = 0; r < RANKS; r++) {
        printf("rank %d of one thread: %d %d %d %d\n", r, all[r][0], all[r][1], all[r][2], all[r][3]);
        right += all[r][0] == 0 && all[r][1] == 1 && all[r][2] == 4 && all[r][3] == 9;
        must(ncclCommDestroy(comm[r]));
    }
    return right == RANKS;
}

int main(void)
{
    if (a_thread_each() && one_thread_for_all())
        return 0;
    fprintf(stderr, "threads: wrong results\n");
    return 1;
}
