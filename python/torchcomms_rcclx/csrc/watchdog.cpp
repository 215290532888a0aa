/* In host memory at most one operation of a communicator runs at a time, so its deadline is one number. The operation
 * writes it and goes on, the watchdog looks now and then:
 *
 *     caller      begin ─────────── all_reduce ─────────── end
 *                 deadline = t1                            deadline = never
 *     watchdog         look           look           look
 *                                     now > t1: the communicator is ended, all_reduce returns an error
 *
 * It is woken early only for limits shorter than its pause, so that beginning costs a look at the clock. On GPUs it asks
 * the events of what was enqueued instead (gpu_work.cpp).
 */
#include "watchdog.h"

#include "gpu_work.h"

#include <c10/util/Logging.h>

#include <cstdlib>

namespace rcclx {

static constexpr Milliseconds pause_host{ 500 }, pause_gpu{ 100 }, longest = std::chrono::hours(24 * 365);

void Watchdog::start(std::shared_ptr<Core> core)
{
    thread_ = std::thread([this, core] { loop(core); });
}

/* The thread holds the core, and with it this object, until it is through. */
void Watchdog::stop()
{
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stop_ = true;
    }
    bell_.notify_one();
    if (thread_.joinable())
        thread_.detach();
}

void Watchdog::stop_and_join()
{
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stop_ = true;
    }
    bell_.notify_one();
    if (!thread_.joinable())
        return;
    if (std::this_thread::get_id() == thread_.get_id())
        thread_.detach(); /* a hook, which this thread runs, has said finalize */
    else
        thread_.join();
}

void Watchdog::begin(const char *operation, Milliseconds timeout)
{
    timeout = std::min(timeout, longest); /* the clock counts in nanoseconds */
    operation_.store(operation, std::memory_order_relaxed);
    limit_.store(timeout, std::memory_order_relaxed);
    deadline_.store((Clock::now() + timeout).time_since_epoch().count(), std::memory_order_release);
    if (timeout < pause_host) {
        std::lock_guard<std::mutex> lock(mutex_);
        rung_ = true;
        bell_.notify_one();
    }
}

void Watchdog::look(Core &core)
{
    const Ticks deadline = deadline_.load(std::memory_order_acquire);

    if (core.gpu)
        core.gpu->poll(core);
    if (core.state() != State::normal || Clock::now().time_since_epoch().count() < deadline)
        return;
    const std::string limit = std::to_string(limit_.load(std::memory_order_relaxed).count());
    const std::string told = core.sentence(operation_.load(std::memory_order_relaxed),
                                           "not finished after " + limit + " ms, so the communicator was ended; a peer did not "
                                           "come, or came too late. See which rank's program is elsewhere, or give more "
                                           "time: timeout= of the call, of new_comm, or set_timeout");
    if (deadline_.load(std::memory_order_acquire) == deadline) /* still the same operation */
        core.fail(State::timed_out, told);
}

void Watchdog::loop(const std::shared_ptr<Core> &core)
{
    if (core->gpu)
        allow_queries_during_captures();
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stop_) {
        const Clock::duration left = Clock::duration(deadline_.load()) - Clock::now().time_since_epoch();
        const Clock::duration most = core->gpu ? pause_gpu : pause_host;
        bell_.wait_for(lock, std::min(std::max(left, Clock::duration(Milliseconds{ 1 })), most), [this] { return rung_ || stop_; });
        rung_ = false;
        lock.unlock();
        look(*core);
        lock.lock();
    }
}

} // namespace rcclx
