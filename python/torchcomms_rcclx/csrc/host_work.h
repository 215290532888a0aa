/* Operations on host memory: done in the caller's thread, or, when asked for asynchronously, by one worker in order. */
#ifndef RCCLX_TORCHCOMMS_HOST_WORK_H
#define RCCLX_TORCHCOMMS_HOST_WORK_H

#include "core.h"

#include <comms/torchcomms/TorchWork.hpp>

#include <condition_variable>
#include <deque>
#include <thread>

namespace rcclx {

class HostWork : public torch::comms::TorchWork {
  public:
    HostWork(bool done, Milliseconds timeout);

    /* Returns when the results are there, throws what went wrong. */
    void wait() override;
    void waitBlocking() override
    {
        wait();
    }
    Milliseconds getTimeout() const override
    {
        return timeout_;
    }

    /* For the worker. */
    void finish(const std::string &error, bool timed_out);
    void settle();
    Clock::time_point born() const
    {
        return born_;
    }

  private:
    const Milliseconds      timeout_;
    const Clock::time_point born_;
    std::atomic<bool>       done_, settled_;
    bool                    timed_out_ = false;
    std::string             error_; /* written before done_ */
};

class HostQueue {
  public:
    using Job = std::function<void(Run &)>;

    explicit HostQueue(Core &core) : core_(core)
    {
    }

    c10::intrusive_ptr<HostWork> push(const char *operation, Milliseconds timeout, Job job);

    bool idle() const
    {
        return waiting_.load(std::memory_order_acquire) == 0;
    }
    void drain(); /* until all that was pushed is done */
    void stop();  /* the worker goes when its job is done; what was not begun ends with an error */

  private:
    struct Entry {
        const char                  *operation;
        c10::intrusive_ptr<HostWork> work;
        Job                          job;
    };
    using Settling = std::deque<c10::intrusive_ptr<HostWork>>;

    void start();
    void loop(const std::shared_ptr<Core> &core);
    void carry_out(Entry &entry);
    void sleep(std::unique_lock<std::mutex> &lock, Settling *settling);

    Core                   &core_;
    std::atomic<size_t>     waiting_{ 0 }; /* pushed and not done */
    std::mutex              mutex_;
    std::condition_variable pushed_, emptied_;
    std::deque<Entry>       entries_;
    bool                    started_ = false, stop_ = false;
};

} // namespace rcclx

#endif
