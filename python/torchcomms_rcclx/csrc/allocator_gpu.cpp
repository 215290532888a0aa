/* A PyTorch with GPUs: ncclMemAlloc behind torch.cuda.MemPool. The only file that is compiled against CUDA's or HIP's
 * headers, and only where PyTorch was built with them.
 */
#include "allocator.h"

#include "library.h"

#include <c10/core/DeviceGuard.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

namespace rcclx {

static void *take(size_t n, int device)
{
    c10::DeviceGuard guard(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
    void            *memory = nullptr;

    check(library().ncclMemAlloc(&memory, n));
    return memory;
}

static void give(void *memory, int device)
{
    c10::DeviceGuard guard(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));

    library().ncclMemFree(memory);
}

std::shared_ptr<c10::Allocator> allocator()
{
    /* auto: the stream's type is CUDA's or HIP's */
    static const std::shared_ptr<c10::Allocator> one = torch::cuda::CUDAPluggableAllocator::createCustomAllocator(
        [](size_t n, int device, auto) { return take(n, device); },
        [](void *memory, size_t, int device, auto) { give(memory, device); });
    return one;
}

} // namespace rcclx
