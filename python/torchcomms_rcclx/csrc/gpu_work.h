/* Operations on a GPU's memory: enqueued on a stream, watched by events. Streams, events and captures are PyTorch's own
 * device-neutral ones, so that one binary's source serves CUDA and HIP, and a PyTorch without either. */
#ifndef RCCLX_TORCHCOMMS_GPU_WORK_H
#define RCCLX_TORCHCOMMS_GPU_WORK_H

#include "core.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <comms/torchcomms/TorchWork.hpp>

#include <deque>
#include <optional>
#include <vector>

namespace rcclx {

class GpuWork : public torch::comms::TorchWork {
  public:
    GpuWork(std::shared_ptr<Core> core, const char *operation, Milliseconds timeout, bool captured);
    ~GpuWork() override;

    /* The current stream waits for the operation; the caller does not. */
    void wait() override;
    /* The caller waits, too. */
    void waitBlocking() override;
    void hostSynchronize() override;
    Milliseconds getTimeout() const override
    {
        return timeout_;
    }

  private:
    friend class Gpu;

    bool poll(); /* true: there is nothing more to see */
    void drop_inputs();

    const std::shared_ptr<Core>      core_;
    const char *const                operation_;
    const Milliseconds               timeout_;
    const bool                       captured_; /* its events belong to a graph: nobody may query them */
    const Clock::time_point          born_;
    std::optional<Clock::time_point> started_;
    c10::Event                       start_, end_;
    std::mutex                       mutex_;
    std::vector<at::Tensor>          inputs_; /* held until the current stream waits for the operation, or it is done */
};

class Gpu {
  public:
    Gpu(c10::Device device, bool high_priority);

    /* Where an operation goes, and what the caller gets for it. */
    struct Ticket {
        c10::Stream                 stream;
        c10::intrusive_ptr<GpuWork> work;
        cudaStream_t                handle() const
        {
            return static_cast<cudaStream_t>(stream.native_handle());
        }
    };
    Ticket begin(Core &core, const char *operation, bool async, Milliseconds timeout, at::TensorList inputs);
    void   end(Ticket &ticket); /* after the library has enqueued */

    void poll(Core &core);                        /* by the watchdog */
    bool drain(Core &core, Milliseconds timeout); /* false: not all done by then */
    void forget();                                /* what is not done: nobody watches it any more */

    c10::Stream current() const
    {
        return impl_.getStream(device_);
    }
    c10::Device device() const
    {
        return device_;
    }
    at::Tensor &byte()
    {
        return byte_;
    }

  private:
    friend class GpuWork;

    c10::Event take_event();
    void       give_event(c10::Event &&event);

    const c10::Device                        device_;
    const c10::impl::VirtualGuardImpl        impl_;
    const c10::Stream                        own_;  /* of asynchronous operations */
    at::Tensor                               byte_; /* what a barrier reduces */
    std::mutex                               mutex_;
    std::deque<c10::intrusive_ptr<GpuWork>>  pending_;
    std::atomic<size_t>                      unfinished_{ 0 };
    std::vector<c10::Event>                  events_;
    std::vector<c10::intrusive_ptr<GpuWork>> captured_;
};

/* What a device is to this process: with its index, and checked. Throws an Error that says what to write instead. */
c10::Device resolve(c10::Device asked, int rank);

/* Whether "the GPU" is HIP's here. */
bool gpu_is_hip();

/* Whether what is enqueued there becomes part of a graph. */
bool is_captured(const c10::Stream &stream);

/* This thread's queries of events do not spoil captures of others. */
void allow_queries_during_captures();

} // namespace rcclx

#endif
