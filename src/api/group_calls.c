/* Groups: the executor collects, this only counts in and out. */
#include "api/argcheck.h"

enum { SIM_MAGIC = 0x74685283 };

RCCLX_API(ncclResult_t, ncclGroupStart, (void))
{
    return rcclx_result(rcclx_group_start());
}

RCCLX_API(ncclResult_t, ncclGroupEnd, (void))
{
    return rcclx_result(rcclx_group_end());
}

static rcclx_status check_info(const ncclSimInfo_t *info)
{
    if (!info || (info->magic == SIM_MAGIC && info->size >= sizeof *info))
        return RCCLX_OK;
    return RCCLX_FAIL(RCCLX_ARGUMENT, "ncclGroupSimulateEnd: simInfo has magic 0x%x and size %zu; start it from "
                      "NCCL_SIM_INFO_INITIALIZER", info->magic, info->size);
}

/* The group is over in any case, or a wrong structure would leave it open. */
RCCLX_API(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * simInfo))
{
    double             us  = 0;
    const rcclx_status bad = check_info(simInfo), s = rcclx_group_simulate(&us);

    if (s == RCCLX_OK && bad == RCCLX_OK && simInfo)
        simInfo->estimatedTime = (float)us;
    return rcclx_result(s != RCCLX_OK ? s : bad);
}
