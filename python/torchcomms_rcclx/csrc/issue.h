/* How an operation gets to the library. Part of backend.h.
 *
 *     host memory, synchronous, nothing queued    in this thread, between two looks at the clock
 *     host memory, else                           through the queue; synchronous: and waited for
 *     GPU                                         enqueued between two events
 */
#ifndef RCCLX_TORCHCOMMS_ISSUE_H
#define RCCLX_TORCHCOMMS_ISSUE_H

#include <ATen/record_function.h>

namespace rcclx {

template <class F> Work run_here(Core &core, const char *operation, Milliseconds timeout, F &what)
{
    try {
        Deadline deadline(core, operation, timeout);
        Run      run = { core, core.comm, nullptr };
        what(run);
    } catch (const std::exception &error) {
        throw core.report(operation, error);
    }
    return c10::make_intrusive<HostWork>(true, timeout);
}

template <class F> Work run_queued(Core &core, const char *operation, bool async, Milliseconds timeout, F &&what)
{
    auto work = core.queue->push(operation, timeout, HostQueue::Job(std::forward<F>(what)));

    if (!async)
        work->wait();
    return work;
}

template <class F>
Work run_on_gpu(Core &core, const char *operation, bool async, Milliseconds timeout, at::TensorList inputs, F &what)
{
    try {
        c10::DeviceGuard guard(core.gpu->device());
        Gpu::Ticket      ticket = core.gpu->begin(core, operation, async, timeout, inputs);
        Run              run = { core, core.comm, ticket.handle(), &ticket.stream };
        what(run);
        core.gpu->end(ticket);
        return ticket.work;
    } catch (const std::exception &error) {
        throw core.report(operation, error);
    }
}

template <class F> Work run_anywhere(Core &core, const char *operation, bool async, Milliseconds timeout, at::TensorList inputs, F &&what)
{
    if (core.gpu)
        return run_on_gpu(core, operation, async, timeout, inputs, what);
    if (!async && core.queue->idle())
        return run_here(core, operation, timeout, what);
    return run_queued(core, operation, async, timeout, std::forward<F>(what));
}

template <class F>
Work Backend::issue(const char *operation, bool async, Milliseconds timeout, at::TensorList inputs, F what)
{
    if (timeout == torch::comms::kNoTimeout)
        timeout = core_->timeout.load(std::memory_order_relaxed);
    else if (timeout.count() < 0)
        refuse(operation, "timeout: " + std::to_string(timeout.count()) + " ms is no time to wait");
    if (at::hasCallbacks()) [[unlikely]] /* a profiler looks */
        return issue_profiled(operation, async, timeout, inputs, std::move(what));
    return run_anywhere(*core_, operation, async, timeout, inputs, std::move(what));
}

} // namespace rcclx

#endif
