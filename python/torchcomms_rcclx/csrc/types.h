/* What a tensor's elements and torchcomms' reduction are to the library. */
#ifndef RCCLX_TORCHCOMMS_TYPES_H
#define RCCLX_TORCHCOMMS_TYPES_H

#include "library.h"

#include <ATen/core/Tensor.h>
#include <comms/torchcomms/TorchCommTypes.hpp>

namespace rcclx {

/* A tensor of n elements is n * per elements of type. */
struct Wire {
    ncclDataType_t type;
    size_t         per;
};

/* For operations that only move data: every type, as bytes where the library has none of its own. */
Wire wire_of(const at::Tensor &t);

/* For reductions: throws where the library cannot calculate with these. */
Wire wire_of(const at::Tensor &t, const torch::comms::ReduceOp &op);

/* BAND, BOR, BXOR: the library has none, so they are done after a gather. */
bool is_bitwise(const torch::comms::ReduceOp &op);
at::Tensor bitwise(const at::Tensor &a, const at::Tensor &b, const torch::comms::ReduceOp &op);

/* The library's operator, made for one call where it carries a factor; freed with this object, by which time the
 * operation must have been given to the library. */
class Op {
  public:
    Op(const torch::comms::ReduceOp &op, const at::Tensor &of, ncclComm_t comm);
    ~Op();
    Op(const Op &) = delete;
    Op &operator=(const Op &) = delete;
    operator ncclRedOp_t() const
    {
        return op_;
    }

  private:
    ncclRedOp_t op_;
    ncclComm_t  made_for_ = nullptr;
};

} // namespace rcclx

#endif
