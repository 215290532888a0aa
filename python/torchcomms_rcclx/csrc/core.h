/* What a communicator's operations, its queue, its watchdog and its work objects share. It lives as long as the last of
 * them, which may be longer than the backend that torchcomms holds. */
#ifndef RCCLX_TORCHCOMMS_CORE_H
#define RCCLX_TORCHCOMMS_CORE_H

#include "library.h"

#include <c10/core/Stream.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace rcclx {

class Gpu;
class HostQueue;
class Watchdog;

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

/* Torchcomms registers hooks on a work object just after it was returned, without a lock, and setting its status runs
 * them. So another thread than the caller's leaves a work alone until it is this old. */
constexpr Milliseconds settling_time{ 5 };

enum class State { normal, timed_out, failed, aborted };

struct Core : std::enable_shared_from_this<Core> {
    Core(std::string name, c10::Device device, Milliseconds timeout);
    ~Core();

    /* Constant once the communicator is there. */
    const std::string          name;
    const c10::Device          device; /* with its index; CUDA also where that means HIP */
    int                        rank = -1, size = -1;
    ncclComm_t                 comm = nullptr;
    bool                       kills_process = false; /* when a GPU's operation fails and nobody may be waiting */
    std::function<void()>      abort_hooks;
    std::unique_ptr<Gpu>       gpu; /* NULL: tensors are in host memory */
    std::unique_ptr<HostQueue> queue;
    std::unique_ptr<Watchdog>  watchdog;

    std::atomic<Milliseconds> timeout; /* of operations that bring none */

    State state() const
    {
        return state_.load(std::memory_order_acquire);
    }
    std::string cause() const; /* the first one's sentence; empty while all is well */

    /* The communicator is over: hooks run, then whatever waits on this rank is ended. Only the first cause counts. */
    void fail(State to, const std::string &why);

    /* "rcclx: rank 1 of 4, communicator 'dp', all_reduce: what" */
    std::string sentence(const char *operation, const std::string &what) const;

    /* The exception for a call that failed; fails the communicator if the library's does not survive it. */
    Error report(const char *operation, const std::exception &what);

    /* Throws the first cause. */
    void need_normal() const
    {
        if (state() != State::normal) [[unlikely]]
            throw Error(cause());
    }

  private:
    std::atomic<State> state_{ State::normal };
    mutable std::mutex mutex_;
    std::string        cause_;
};

/* What an operation is run with. */
struct Run {
    Core        &core;
    ncclComm_t   comm;
    cudaStream_t stream; /* NULL in host memory */

    const c10::Stream *torch_stream = nullptr; /* the same, PyTorch's word for it */
};

} // namespace rcclx

#endif
