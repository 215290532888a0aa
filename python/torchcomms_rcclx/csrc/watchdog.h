/* Nothing waits without a deadline: a thread a communicator that looks at what runs. */
#ifndef RCCLX_TORCHCOMMS_WATCHDOG_H
#define RCCLX_TORCHCOMMS_WATCHDOG_H

#include "core.h"

#include <condition_variable>
#include <thread>

namespace rcclx {

class Watchdog {
  public:
    void start(std::shared_ptr<Core> core);
    void stop_and_join(); /* from finalize: the thread has gone when this returns */
    void stop();          /* from a destructor: it goes by itself. A hook may need a lock that the caller holds */

    /* An operation in host memory begins and ends; one at a time. */
    void begin(const char *operation, Milliseconds timeout);
    void end()
    {
        deadline_.store(never, std::memory_order_release);
    }

  private:
    using Ticks = Clock::rep;
    static constexpr Ticks never = Clock::duration::max().count();

    void look(Core &core);
    void loop(const std::shared_ptr<Core> &core);

    std::atomic<Ticks>        deadline_{ never };
    std::atomic<const char *> operation_{ "" };
    std::atomic<Milliseconds> limit_{ Milliseconds{ 0 } };
    std::mutex                mutex_;
    std::condition_variable   bell_;
    bool                      rung_ = false, stop_ = false;
    std::thread               thread_;
};

/* begin and end around a scope. */
class Deadline {
  public:
    Deadline(Core &core, const char *operation, Milliseconds timeout) : dog_(*core.watchdog)
    {
        dog_.begin(operation, timeout);
    }
    ~Deadline()
    {
        dog_.end();
    }
    Deadline(const Deadline &) = delete;
    Deadline &operator=(const Deadline &) = delete;

  private:
    Watchdog &dog_;
};

} // namespace rcclx

#endif
