/* Memory that peers reach directly, the fastest for every operation. */
#ifndef RCCLX_TORCHCOMMS_ALLOCATOR_H
#define RCCLX_TORCHCOMMS_ALLOCATOR_H

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <memory>
#include <vector>

namespace rcclx {

/* What torchcomms.get_mem_allocator("rcclx") gives: for torch.cuda.MemPool where PyTorch has GPUs, else for host memory. */
std::shared_ptr<c10::Allocator> allocator();

/* A tensor of host memory. */
at::Tensor empty(const std::vector<int64_t> &sizes, at::ScalarType dtype);

} // namespace rcclx

#endif
