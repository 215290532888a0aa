/* A synchronous operation is enqueued on the current stream, an asynchronous one on a stream of the communicator's own,
 * which waits for what was enqueued before:
 *
 *     current     a = b * 2 ──┐event                   work.wait()┐
 *     own                     └► start  all_reduce  end ──────────┴► c = a + 1 on the current stream
 *     watchdog                     seen?            seen?   status; late: the communicator is ended
 *
 * The work holds its inputs until then: PyTorch's allocator would else give their memory to the current stream.
 *
 * Under capture the events become edges of the graph; nobody asks them, and the works are kept until the capture is over.
 */
#include "gpu_work.h"

#include <ATen/Context.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Logging.h>

#include <dlfcn.h>

#include <cstdlib>
#include <thread>

namespace rcclx {

/* --- works ---------------------------------------------------------------------------------------------------------- */

GpuWork::GpuWork(std::shared_ptr<Core> core, const char *operation, Milliseconds timeout, bool captured)
    : core_(std::move(core)), operation_(operation), timeout_(timeout), captured_(captured), born_(Clock::now()),
      start_(core_->gpu->take_event()), end_(core_->gpu->take_event())
{
}

GpuWork::~GpuWork()
{
    if (captured_)
        return; /* a graph may still refer to them */
    core_->gpu->give_event(std::move(start_));
    core_->gpu->give_event(std::move(end_));
}

void GpuWork::drop_inputs()
{
    std::vector<at::Tensor> dropped;
    std::lock_guard<std::mutex> lock(mutex_);

    dropped.swap(inputs_);
}

void GpuWork::wait()
{
    runWaitPreHooks();
    end_.block(core_->gpu->current());
    drop_inputs();
    runWaitPostHooks();
    core_->need_normal();
}

void GpuWork::waitBlocking()
{
    wait();
    hostSynchronize();
}

void GpuWork::hostSynchronize()
{
    if (captured_)
        return;
    while (!end_.query()) /* the watchdog bounds it: ending the communicator ends its kernels */
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    core_->need_normal();
}

bool GpuWork::poll()
{
    const Clock::time_point now = Clock::now();

    if (now - born_ < settling_time)
        return false;
    if (!started_) {
        if (!start_.query())
            return core_->state() != State::normal;
        started_ = now;
        setStatus(WorkStatus::INPROGRESS);
    }
    if (end_.query()) {
        const State state = core_->state();
        setStatus(state == State::normal ? WorkStatus::COMPLETED : state == State::timed_out ? WorkStatus::TIMEDOUT : WorkStatus::ERROR);
        drop_inputs();
        return true;
    }
    if (std::chrono::duration_cast<Milliseconds>(now - *started_) > timeout_)
        core_->fail(State::timed_out, core_->sentence(operation_, "not finished " + std::to_string(timeout_.count()) +
                    " ms after it began, so the communicator was ended; a peer did not come, or came too late. See which rank's "
                    "program is elsewhere, or give more time: timeout= of the call, of new_comm, or set_timeout"));
    return false;
}

/* --- the device ----------------------------------------------------------------------------------------------------- */

Gpu::Gpu(c10::Device device, bool high_priority)
    : device_(device), impl_(device.type()), own_(impl_.getNewStream(device, high_priority ? -1 : 0)),
      byte_(at::zeros({ 1 }, at::TensorOptions().dtype(at::kByte).device(device)))
{
}

c10::Event Gpu::take_event()
{
    std::lock_guard<std::mutex> lock(mutex_);

    if (events_.empty())
        return c10::Event(device_.type());
    c10::Event event = std::move(events_.back());
    events_.pop_back();
    return event;
}

void Gpu::give_event(c10::Event &&event)
{
    std::lock_guard<std::mutex> lock(mutex_);

    if (events_.size() < 1000)
        events_.push_back(std::move(event));
}

Gpu::Ticket Gpu::begin(Core &core, const char *operation, bool async, Milliseconds timeout, at::TensorList inputs)
{
    const c10::Stream current = impl_.getStream(device_);
    const bool        captured = is_captured(current);
    Ticket            t = { async ? own_ : current, nullptr };

    if (!captured && !captured_.empty())
        captured_.clear(); /* that capture is over */
    t.work = c10::make_intrusive<GpuWork>(core.shared_from_this(), operation, timeout, captured);
    if (async) {
        c10::Event before = captured ? c10::Event(device_.type()) : take_event();
        before.record(current);
        before.block(own_);
        if (!captured)
            give_event(std::move(before));
        t.work->inputs_ = inputs.vec();
    }
    t.work->start_.record(t.stream);
    return t;
}

void Gpu::end(Ticket &t)
{
    t.work->end_.record(t.stream);
    if (t.work->captured_) {
        captured_.push_back(t.work);
        return;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    pending_.push_back(t.work);
    ++unfinished_;
}

static void see_async_error(Core &core)
{
    ncclResult_t kept = ncclSuccess;

    if (core.state() == State::normal && library().ncclCommGetAsyncError(core.comm, &kept) == ncclSuccess &&
        kept != ncclSuccess && kept != ncclInProgress)
        core.fail(State::failed, core.sentence("an earlier operation", explain(kept)));
}

/* Nobody may be waiting for a GPU's operation, and the program would stand still without a word. */
static void kill_if_asked(Core &core)
{
    if (!core.kills_process || (core.state() != State::timed_out && core.state() != State::failed))
        return;
    LOG(ERROR) << "rcclx: the process is ended, as abort_process_on_timeout_or_error asks: " << core.cause();
    std::abort();
}

void Gpu::poll(Core &core)
{
    std::deque<c10::intrusive_ptr<GpuWork>> looked_at, rest;

    {
        std::lock_guard<std::mutex> lock(mutex_);
        looked_at.swap(pending_);
    }
    try {
        for (auto &work : looked_at)
            if (!work->poll())
                rest.push_back(work);
    } catch (const std::exception &what) {
        core.fail(State::failed, core.sentence("an earlier operation", what.what()));
        rest.clear();
    }
    unfinished_ -= looked_at.size() - rest.size();
    {
        std::lock_guard<std::mutex> lock(mutex_);
        pending_.insert(pending_.begin(), rest.begin(), rest.end());
    }
    see_async_error(core);
    kill_if_asked(core);
}

bool Gpu::drain(Core &core, Milliseconds timeout)
{
    const Clock::time_point begin = Clock::now();

    while (unfinished_ && core.state() == State::normal) {
        if (std::chrono::duration_cast<Milliseconds>(Clock::now() - begin) > timeout)
            return false;
        std::this_thread::sleep_for(Milliseconds(1));
    }
    return true;
}

void Gpu::forget()
{
    std::deque<c10::intrusive_ptr<GpuWork>> pending; /* goes after the lock: works give their events back */

    captured_.clear();
    std::lock_guard<std::mutex> lock(mutex_);
    pending.swap(pending_);
}

/* --- which device --------------------------------------------------------------------------------------------------- */

bool gpu_is_hip()
{
    return at::globalContext().hasROCM();
}

c10::Device resolve(c10::Device asked, int rank)
{
    if (asked.is_cpu())
        return c10::Device(c10::kCPU);
    if (!asked.is_cuda() && asked.type() != c10::kHIP)
        throw Error("rcclx: device " + asked.str() + " is none that this backend knows; take cuda, hip or cpu");
    if (!at::globalContext().hasCUDA())
        throw Error("rcclx: device " + asked.str() + ": this PyTorch sees no GPU: it is a build without CUDA and ROCm, or the machine "
                    "has no driver. Install a PyTorch for your GPU (torch.cuda.is_available() is then True), or create the "
                    "communicator on torch.device(\"cpu\")");
    if (asked.type() == c10::kHIP && !gpu_is_hip())
        throw Error("rcclx: device " + asked.str() + ": this PyTorch is built for CUDA; write torch.device(\"cuda\")");
    const c10::impl::VirtualGuardImpl impl(c10::kCUDA);
    const int                         count = impl.deviceCount(), index = asked.has_index() ? asked.index() : count ? rank % count : 0;
    if (index >= count)
        throw Error("rcclx: device " + asked.str() + ": this process sees " + std::to_string(count) + " GPUs; take an index "
                    "below that, or look at CUDA_VISIBLE_DEVICES (ROCm: HIP_VISIBLE_DEVICES)");
    return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

/* --- the driver, for what PyTorch has no device-neutral word for ---------------------------------------------------- */

/* From the driver that PyTorch has loaded; NULL if it has not. */
static void *driver_function(const char *cuda_name, const char *hip_name)
{
    static const char *const hip[] = { "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", nullptr };
    static const char *const cuda[] = { "libcuda.so.1", nullptr };

    for (const char *const *file = gpu_is_hip() ? hip : cuda; *file; file++)
        if (void *handle = dlopen(*file, RTLD_NOW | RTLD_NOLOAD))
            return dlsym(handle, gpu_is_hip() ? hip_name : cuda_name);
    return nullptr;
}

/* A thread that asks an event while another captures in the default mode ruins the capture, unless it says before that
 * its calls have nothing to do with others'. */
void allow_queries_during_captures()
{
    using Exchange = int (*)(int *mode);
    int relaxed = 2;

    if (auto exchange = reinterpret_cast<Exchange>(driver_function("cuThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode")))
        exchange(&relaxed);
}

static bool driver_says_captured(const c10::Stream &stream)
{
    using Ask = int (*)(void *stream, int *status);
    static const auto ask = reinterpret_cast<Ask>(driver_function("cuStreamIsCapturing", "hipStreamIsCapturing"));
    int status = 0;

    return ask && ask(stream.native_handle(), &status) == 0 && status != 0;
}

/* Before 2.13 PyTorch's streams do not say. */
template <class Stream> static bool captured(const Stream &stream)
{
    if constexpr (requires { stream.is_capturing(); })
        return stream.is_capturing();
    else
        return driver_says_captured(stream);
}

bool is_captured(const c10::Stream &stream)
{
    return captured(stream);
}

} // namespace rcclx
