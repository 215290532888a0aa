/* Each GPU here finds kernels in this build that it can run. */
#include "check.h"
#include "base/log.h"
#include "device/gpu.h"
#include "device/kernels/work.h"

#define NAMES(id) "gp_" #id "_ll", "gp_" #id "_ll128", "gp_" #id "_simple",
#define PAIR_NAME(id) "gp_pairs_" #id,
static const char *const kernels[] = {GP_KERNEL_LIST(NAMES) GP_PAIR_KERNEL_LIST(PAIR_NAME)};

enum { THREADS = 512 };

static void look_up(const rcclx_gpu *g, int device)
{
    rcclx_gpu_module m = NULL;
    rcclx_gpu_fn     f;
    int              blocks;

    REQUIRE(g->load(&m, device) == RCCLX_OK, "%s", rcclx_last_error());
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
        if (!CHECK(g->function(&f, m, kernels[i]) == RCCLX_OK, "%s: %s", kernels[i], rcclx_last_error()))
            continue;
        CHECK(g->occupancy(f, THREADS, &blocks) == RCCLX_OK && blocks >= 1, "%s: no room for a block of %d threads", kernels[i],
              THREADS);
    }
    CHECK(g->unload(m) == RCCLX_OK, "%s", rcclx_last_error());
}

static void all_devices(rcclx_gpu_kind kind)
{
    char             why[256];
    const rcclx_gpu *g = rcclx_gpu_open(kind, why, sizeof(why));
    rcclx_gpu_scope  scope;

    if (!g)
        SKIP("%s", why);
    if (!g->count)
        SKIP("%s: no device", g->about);
    for (int d = 0; d < g->count; d++) {
        REQUIRE(g->enter(&scope, d) == RCCLX_OK, "device %d: %s", d, rcclx_last_error());
        look_up(g, d);
        g->leave(&scope);
    }
}

TEST(nvidia) { all_devices(RCCLX_GPU_CUDA); }
TEST(amd) { all_devices(RCCLX_GPU_HIP); }
