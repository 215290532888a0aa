/* The device interface's questions about ranks. No kernel reaches a peer's
 * memory here, so the reachable team is the rank alone, and "one of each" is
 * everybody. */
#include "api/argcheck.h"
#include "comm/comm.h"
#include "rcclx_teams.h"

#include <string.h>

static bool place(const char *call, ncclComm_t comm, int *nranks, int *rank)
{
    rcclx_status s;
    rcclx_comm  *c = rcclx_comm_acquire(comm, call, &s);

    if (!c)
        return false;
    *nranks = c->nranks;
    *rank   = c->rank;
    rcclx_comm_release(c);
    return true;
}

static ncclTeam_t everybody(const char *call, ncclComm_t comm)
{
    ncclTeam_t t = { 0, 0, 0 };

    if (place(call, comm, &t.nRanks, &t.rank))
        t.stride = 1;
    return t;
}

static ncclTeam_t alone(const char *call, ncclComm_t comm)
{
    int n, rank;

    return place(call, comm, &n, &rank) ? (ncclTeam_t){ 1, 0, 1 } : (ncclTeam_t){ 0, 0, 0 };
}

RCCLX_API(ncclTeam_t, ncclTeamWorld, (ncclComm_t comm))
{
    return everybody("ncclTeamWorld", comm);
}

RCCLX_API(ncclTeam_t, ncclTeamRail, (ncclComm_t comm))
{
    return everybody("ncclTeamRail", comm);
}

RCCLX_API(ncclTeam_t, ncclTeamLsa, (ncclComm_t comm))
{
    return alone("ncclTeamLsa", comm);
}

RCCLX_API(ncclTeam_t, ncclTeamCft, (ncclComm_t comm, int mode))
{
    (void)mode;
    return alone("ncclTeamCft", comm);
}

RCCLX_API(ncclTeam_t, ncclTeamCftMultimem, (ncclComm_t comm))
{
    return alone("ncclTeamCftMultimem", comm);
}

RCCLX_API(int, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank))
{
    int n, mine;

    return place("ncclTeamRankToWorld", comm, &n, &mine) ? mine + (rank - team.rank) * team.stride : -1;
}

RCCLX_API(int, ncclTeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank))
{
    int n, mine;

    return place("ncclTeamRankToLsa", comm, &n, &mine) ? (rank - team.rank) * team.stride : -1;
}

/* A slot carries 8 bytes of data beside its flags. */
RCCLX_API(int, ncclLLA2ACalcSlots, (int maxElts, int maxEltSize))
{
    return maxElts * ((maxEltSize + 7) / 8);
}

RCCLX_API(ncclResult_t, ncclCommQueryProperties, (ncclComm_t comm, ncclCommProperties_t *props))
{
    static const char    call[] = "ncclCommQueryProperties";
    const size_t         least  = offsetof(ncclCommProperties_t, rank);
    ncclCommProperties_t all    = { .nvmlDev = -1 };
    rcclx_status         s      = rcclx_args_need(call, "props", props);
    rcclx_comm          *c      = s == RCCLX_OK ? rcclx_comm_acquire(comm, call, &s) : NULL;

    if (!c)
        return rcclx_result(s);
    all.rank      = c->rank;
    all.nRanks    = c->nranks;
    all.cudaDev   = c->device;
    all.nLsaTeams = c->nranks;
    all.commHash  = c->team.id;
    rcclx_comm_release(c);
    if (props->magic != NCCL_API_MAGIC || props->size < least)
        return rcclx_result(RCCLX_FAIL(RCCLX_ARGUMENT, "%s: props has magic 0x%x and size %zu; set size, magic and version first",
                                       call, props->magic, props->size));
    const size_t most = props->size < sizeof all ? props->size : sizeof all;
    memcpy((char *)props + least, (const char *)&all + least, most - least);
    return ncclSuccess;
}
