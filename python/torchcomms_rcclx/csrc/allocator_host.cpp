/* A PyTorch without GPUs: the allocator is that of host memory. */
#include "allocator.h"

namespace rcclx {

std::shared_ptr<c10::Allocator> host_allocator();

std::shared_ptr<c10::Allocator> allocator()
{
    return host_allocator();
}

} // namespace rcclx
