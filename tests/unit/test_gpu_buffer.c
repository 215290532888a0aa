/* Which buffers a communicator on GPUs takes, with a driver that knows a few allocations. */
#include "check.h"

#include "exec/exec.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* 0x1000..0x3000 and 0x3000..0x4000 are pieces of one range, 0x4000..0x5000 follows and is another's;
 * 0x8000..0x9000 is a device's of its own, and 0x9000 is one on device 1. */
static const struct { uint64_t base; size_t nbytes; int device; bool goes_on; } all[] = {
    { 0x1000, 0x2000, 0, true }, { 0x3000, 0x1000, 0, false }, { 0x4000, 0x1000, 0, false },
    { 0x8000, 0x1000, 0, true }, { 0x9000, 0x1000, 1, false },
};

static rcclx_status pointer(const void *ptr, rcclx_gpu_pointer *p)
{
    *p = (rcclx_gpu_pointer){ .place = RCCLX_AT_HOST, .device = -1 };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if ((uintptr_t)ptr >= all[i].base && (uintptr_t)ptr < all[i].base + all[i].nbytes)
            *p = (rcclx_gpu_pointer){ RCCLX_AT_DEVICE, all[i].device, (uintptr_t)ptr, all[i].base, all[i].nbytes, all[i].goes_on, 0 };
    return RCCLX_OK;
}

static rcclx_status check(uintptr_t at, size_t nbytes)
{
    static const rcclx_gpu gpu = { .name = "test", .count = 2, .pointer = pointer };
    static rcclx_team team;

    team.driver = &gpu;
    team.device = 0;
    return rcclx_gpu_buffer_check(&team, "ncclTest", "sendbuff", (const void *)at, nbytes);
}

TEST(a_buffer_may_lie_in_several_pieces_of_one_range)
{
    CHECK(check(0x1000, 0x2000) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(check(0x1800, 0x2800) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(check(0x3fff, 1) == RCCLX_OK, "%s", rcclx_last_error());
}

TEST(and_not_beyond)
{
    static const struct { uintptr_t at; size_t nbytes; const char *says; } wrong[] = {
        { 0x1800, 0x2801, "reach beyond its allocation" }, /* the next allocation is not its own */
        { 0x4800, 0x801, "reach beyond its allocation" },
        { 0x8800, 0x801, "reach beyond its allocation" },  /* what follows is on another device */
        { 0x9000, 1, "device 1" }, { 0x7000, 1, "host memory" },
    };

    setenv("NCCL_DEBUG", "NONE", 1);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK(check(wrong[i].at, wrong[i].nbytes) == RCCLX_ARGUMENT, "%zu: taken", i);
        CHECK(strstr(rcclx_last_error(), wrong[i].says), "%zu: %s", i, rcclx_last_error());
    }
}
