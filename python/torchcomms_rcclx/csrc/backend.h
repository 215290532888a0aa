/* The backend class that torchcomms calls. Its methods are told in four files:
 *
 *     lifecycle.cpp      init, finalize, split, abort, settings
 *     collectives.cpp    one tensor each
 *     lists.cpp          lists of tensors, batches of messages
 *     registration.cpp   tensor_register, the persistent all-gather
 *
 * Not thread-safe, as torchcomms wants it, but for abort() and isAborted(). */
#ifndef RCCLX_TORCHCOMMS_BACKEND_H
#define RCCLX_TORCHCOMMS_BACKEND_H

#include "core.h"
#include "gpu_work.h"
#include "hints.h"
#include "host_work.h"
#include "types.h"
#include "watchdog.h"

#include <c10/core/DeviceGuard.h>
#include <comms/torchcomms/TorchCommBackend.hpp>

#include <map>

namespace rcclx {

using torch::comms::BatchSendRecv;
using torch::comms::CommOptions;
using torch::comms::ReduceOp;
using Work = c10::intrusive_ptr<torch::comms::TorchWork>;
using Tensors = std::vector<at::Tensor>;
using Splits = std::vector<uint64_t>;

class Backend : public torch::comms::TorchCommBackend, public std::enable_shared_from_this<Backend> {
  public:
    Backend();
    ~Backend() override;

    void init(at::Device device, const std::string &name, const CommOptions &options) override;
    void finalize() override;
    int  getRank() const override;
    int  getSize() const override;
    std::string_view   getBackendName() const override;
    std::string_view   getBackendVersion() const override;
    std::string_view   getCommName() const override;
    const CommOptions &getOptions() const override;
    const at::Device  &getDevice() const override;
    bool isInitialized() const override;
    std::shared_ptr<TorchCommBackend> split(const std::vector<int> &ranks, const std::string &name,
                                            const CommOptions &options) override;

    void abort() override;
    bool isAbortSupported() const override;
    bool isAborted() const override;
    Work reconfigure(const torch::comms::ReconfigureOptions &options) override;
    /* Virtual in newer torchcomms only, hence without `override`. */
    void setTimeout(Milliseconds timeout);
    void setHints(Hints hints);

    Work broadcast(at::Tensor &t, int root, bool async, const torch::comms::BroadcastOptions &o) override;
    Work all_reduce(at::Tensor &t, const ReduceOp &op, bool async, const torch::comms::AllReduceOptions &o) override;
    Work reduce(const at::Tensor &t, int root, const ReduceOp &op, bool async, const torch::comms::ReduceOptions &o) override;
    Work all_gather_single(at::Tensor &out, const at::Tensor &in, bool async,
                           const torch::comms::AllGatherSingleOptions &o) override;
    Work reduce_scatter_single(at::Tensor &out, const at::Tensor &in, const ReduceOp &op, bool async,
                               const torch::comms::ReduceScatterSingleOptions &o) override;
    Work all_to_all_single(at::Tensor &out, const at::Tensor &in, bool async,
                           const torch::comms::AllToAllSingleOptions &o) override;
    Work all_to_all_v_single(at::Tensor &out, const at::Tensor &in, const Splits &out_splits, const Splits &in_splits,
                             bool async, const torch::comms::AllToAllvSingleOptions &o) override;
    Work gather_single(at::Tensor &out, const at::Tensor &in, int root, bool async,
                       const torch::comms::GatherSingleOptions &o) override;
    Work barrier(bool async, const torch::comms::BarrierOptions &o) override;
    Work send(const at::Tensor &t, int dst, bool async, const torch::comms::SendOptions &o) override;
    Work recv(at::Tensor &t, int src, bool async, const torch::comms::RecvOptions &o) override;

    Work batch_op_issue(const std::vector<BatchSendRecv::P2POp> &ops, bool async,
                        const torch::comms::BatchP2POptions &o) override;
    Work all_gather(const Tensors &out, const at::Tensor &in, bool async, const torch::comms::AllGatherOptions &o) override;
    Work all_gather_v(const Tensors &out, const at::Tensor &in, bool async, const torch::comms::AllGatherOptions &o) override;
    Work reduce_scatter(at::Tensor &out, const Tensors &in, const ReduceOp &op, bool async,
                        const torch::comms::ReduceScatterOptions &o) override;
    Work reduce_scatter_v(at::Tensor &out, const Tensors &in, const ReduceOp &op, bool async,
                          const torch::comms::ReduceScatterOptions &o) override;
    Work all_to_all(const Tensors &out, const Tensors &in, bool async, const torch::comms::AllToAllOptions &o) override;
    Work scatter(at::Tensor &out, const Tensors &in, int root, bool async, const torch::comms::ScatterOptions &o) override;
    Work gather(const Tensors &out, const at::Tensor &in, int root, bool async,
                const torch::comms::GatherOptions &o) override;

    bool supportsWindow() const;
    std::shared_ptr<torch::comms::TorchCommWindow> new_window(const std::optional<at::Tensor> &tensor) override;
    void tensor_register(const at::Tensor &t) override;
    void tensor_deregister(const at::Tensor &t) override;
    AllGatherPHandle all_gather_p_init(at::Tensor &out, const torch::comms::AllGatherPInitOptions &o) override;
    Work all_gather_p_exec(AllGatherPHandle handle, const at::Tensor &in, bool async,
                           const torch::comms::AllGatherPExecOptions &o) override;
    void all_gather_p_free(AllGatherPHandle handle) override;

  private:
    struct Persistent;
    enum class Phase { fresh, open, finalized };

    void open(std::shared_ptr<Core> core, const CommOptions &options);
    void close(bool wait_for_watchdog);
    Core &need_open(const char *operation) const;

    [[noreturn]] void refuse(const char *operation, const std::string &why) const;
    void check_tensor(const char *operation, const char *which, const at::Tensor &t) const;
    void check_list(const char *operation, const char *which, const Tensors &list, const at::Tensor &like, bool same_size) const;
    void check_rank(const char *operation, const char *which, int rank) const;
    Wire need_reducible(const char *operation, const at::Tensor &t, const ReduceOp &op) const;

    /* Runs `what`, a function of Run & that gives the operation to the library: at once, by the worker, or on a stream. */
    template <class F>
    Work issue(const char *operation, bool async, Milliseconds timeout, at::TensorList inputs, F what);
    Work issue_profiled(const char *operation, bool async, Milliseconds timeout, at::TensorList inputs, HostQueue::Job what);
    Work gather_in(const char *operation, const Tensors &out, at::Tensor flat, const at::Tensor &in, int root, bool async,
                   Milliseconds timeout);

    Phase                        phase_ = Phase::fresh;
    std::shared_ptr<Core>        core_;
    CommOptions                  options_;
    at::Device                   device_{ at::kCPU };
    std::string                  name_;
    std::map<void *, void *>     registered_; /* the tensors' memory, the library's handles */
    std::map<void *, std::shared_ptr<Persistent>> persistent_;
};

} // namespace rcclx

#include "issue.h"

#endif
