/* Ranks must meet in the same order, so a communicator has one worker and one queue, made at the first asynchronous call:
 *
 *     caller    all_reduce(async) ─┐ returns a work   broadcast(async) ─┐     ...     work.wait()
 *     worker                       └─► all_reduce ─────────────────────►└─► broadcast ─────►│
 *
 * A synchronous call finds the queue empty and is done where it is called; otherwise it goes through the queue, too, and
 * the caller waits.
 *
 * Who waits sets the work's status itself. What nobody waits for is settled by the worker, once it is old enough
 * (core.h says why).
 */
#include "host_work.h"

#include "watchdog.h"

namespace rcclx {

HostWork::HostWork(bool done, Milliseconds timeout)
    : timeout_(timeout), born_(done ? Clock::time_point() : Clock::now()), done_(done), settled_(done)
{
    setStatus(done ? WorkStatus::COMPLETED : WorkStatus::INPROGRESS);
}

void HostWork::finish(const std::string &error, bool timed_out)
{
    error_ = error;
    timed_out_ = timed_out;
    done_.store(true, std::memory_order_release);
    done_.notify_all();
}

void HostWork::settle()
{
    if (!settled_.exchange(true))
        setStatus(error_.empty() ? WorkStatus::COMPLETED : timed_out_ ? WorkStatus::TIMEDOUT : WorkStatus::ERROR);
}

void HostWork::wait()
{
    runWaitPreHooks();
    done_.wait(false, std::memory_order_acquire); /* the watchdog bounds it: a job that is late ends with an error */
    settle();
    runWaitPostHooks();
    if (!error_.empty())
        throw Error(error_);
}

/* --- the queue ------------------------------------------------------------------------------------------------------ */

c10::intrusive_ptr<HostWork> HostQueue::push(const char *operation, Milliseconds timeout, Job job)
{
    auto work = c10::make_intrusive<HostWork>(false, timeout);

    waiting_.fetch_add(1, std::memory_order_acq_rel);
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!started_)
            start();
        entries_.push_back({ operation, work, std::move(job) });
    }
    pushed_.notify_one();
    return work;
}

/* It holds the core, and never the other way round: whoever drops the communicator does not wait for a thread. */
void HostQueue::start()
{
    started_ = true;
    std::thread([this, core = core_.shared_from_this()] { loop(core); }).detach();
}

void HostQueue::stop()
{
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stop_ = true;
    }
    pushed_.notify_one();
}

void HostQueue::drain()
{
    std::unique_lock<std::mutex> lock(mutex_);

    emptied_.wait(lock, [this] { return idle(); }); /* each job has its deadline */
}

void HostQueue::carry_out(Entry &entry)
{
    std::string error;

    try {
        Deadline deadline(core_, entry.operation, entry.work->getTimeout());
        Run      run = { core_, core_.comm, nullptr };
        core_.need_normal();
        entry.job(run);
    } catch (const std::exception &what) {
        error = core_.report(entry.operation, what).what();
    }
    entry.job = nullptr; /* the tensors go before anybody is told */
    entry.work->finish(error, core_.state() == State::timed_out);
}

static void settle_the_old(std::deque<c10::intrusive_ptr<HostWork>> *settling)
{
    while (!settling->empty() && settling->front()->born() + settling_time <= Clock::now()) {
        settling->front()->settle();
        settling->pop_front();
    }
}

/* Until there is something to do, or a finished work has become old enough. */
void HostQueue::sleep(std::unique_lock<std::mutex> &lock, Settling *settling)
{
    if (settling->empty()) {
        pushed_.wait(lock, [this] { return stop_ || !entries_.empty(); });
        return;
    }
    pushed_.wait_until(lock, settling->front()->born() + settling_time, [this] { return !entries_.empty(); });
    lock.unlock();
    settle_the_old(settling);
    lock.lock();
}

void HostQueue::loop(const std::shared_ptr<Core> &core)
{
    Settling                     settling;
    std::unique_lock<std::mutex> lock(mutex_);

    for (;;) {
        while (entries_.empty() && !(stop_ && settling.empty()))
            sleep(lock, &settling);
        if (entries_.empty())
            break;
        Entry entry = std::move(entries_.front());
        entries_.pop_front();
        lock.unlock();
        carry_out(entry);
        settling.push_back(std::move(entry.work));
        settle_the_old(&settling);
        lock.lock();
        if (waiting_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            emptied_.notify_all();
    }
    lock.unlock();
    (void)core; /* held until here: this object is part of it */
}

} // namespace rcclx
