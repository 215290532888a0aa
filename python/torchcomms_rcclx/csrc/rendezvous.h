/* How the ranks of a new communicator find each other. */
#ifndef RCCLX_TORCHCOMMS_RENDEZVOUS_H
#define RCCLX_TORCHCOMMS_RENDEZVOUS_H

#include "library.h"

#include <comms/torchcomms/TorchCommOptions.hpp>

#include <string>

namespace rcclx {

struct Meeting {
    int                             rank, size;
    ncclUniqueId                    id;
    c10::intrusive_ptr<c10d::Store> own_store; /* where the program gave none: to be dropped by all together */
};

/* Waits at most options.timeout for rank 0's word. */
Meeting meet(const std::string &name, const torch::comms::CommOptions &options);

} // namespace rcclx

#endif
