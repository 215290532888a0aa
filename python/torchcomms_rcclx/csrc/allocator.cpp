/* ncclMemAlloc and ncclMemFree as one of PyTorch's allocators. In host memory each storage is an allocation of its own; on
 * GPUs PyTorch's pools cut up what they get here (allocator_gpu.cpp, compiled in where PyTorch has GPUs).
 */
#include "allocator.h"

#include "library.h"

#include <ATen/ops/empty.h>

namespace rcclx {

static void release(void *memory)
{
    library().ncclMemFree(memory);
}

namespace {

class HostAllocator : public c10::Allocator {
  public:
    c10::DataPtr allocate(size_t n) override
    {
        void *memory = nullptr;

        check(library().ncclMemAlloc(&memory, n));
        return { memory, memory, release, c10::Device(c10::kCPU) };
    }
    c10::DeleterFnPtr raw_deleter() const override
    {
        return release;
    }
    void copy_data(void *to, const void *from, size_t n) const override
    {
        default_copy_data(to, from, n);
    }
};

} // namespace

std::shared_ptr<c10::Allocator> host_allocator()
{
    static const auto one = std::make_shared<HostAllocator>();
    return one;
}

at::Tensor empty(const std::vector<int64_t> &sizes, at::ScalarType dtype)
{
    size_t n = c10::elementSize(dtype);

    for (const int64_t size : sizes) {
        if (size < 0)
            throw Error("rcclx: empty: a size is negative");
        n *= static_cast<size_t>(size);
    }
    c10::DataPtr data = host_allocator()->allocate(n);
    auto         storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), n, std::move(data), nullptr, false);
    return at::empty({ 0 }, at::TensorOptions().dtype(dtype)).set_(c10::Storage(storage), 0, sizes);
}

} // namespace rcclx
