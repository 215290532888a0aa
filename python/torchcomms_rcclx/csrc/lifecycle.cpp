/* A communicator comes, is split, and goes.
 *
 *     new_comm ──► init:  device ─► meeting (rendezvous.cpp) ─► the library's communicator ─► watchdog
 *                  split: the parent's ranks divide; a child is open when it is returned
 *     finalize ──► what is queued is done ─► the library's communicator is destroyed ─► threads have gone
 *     dropped without finalize ──► a warning, and the communicator is aborted, so that the peers are told
 */
#include "backend.h"
#include "rendezvous.h"

#include <c10/core/StreamGuard.h>
#include <c10/util/Logging.h>
#include <comms/torchcomms/utils/TracingGuard.hpp>
#include <comms/torchcomms/utils/Utils.hpp>

#include <algorithm>
#include <set>

namespace rcclx {

Backend::Backend() = default;

Backend::~Backend()
{
    if (phase_ != Phase::open)
        return;
    LOG(WARNING) << core_->sentence("destructor", "dropped without finalize(), so it is aborted; call finalize() on all ranks");
    core_->fail(State::aborted, core_->sentence("destructor", "the communicator was dropped without finalize()"));
    close(false);
}

/* --- coming --------------------------------------------------------------------------------------------------------- */

void Backend::open(std::shared_ptr<Core> core, const CommOptions &options)
{
    const c10::Device device = core->device;

    core_ = std::move(core);
    check(library().ncclCommUserRank(core_->comm, &core_->rank));
    check(library().ncclCommCount(core_->comm, &core_->size));
    if (!device.is_cpu()) {
        core_->kills_process = options.abort_process_on_timeout_or_error;
        core_->gpu = std::make_unique<Gpu>(device, high_priority(options));
    }
    core_->queue = std::make_unique<HostQueue>(*core_);
    core_->watchdog = std::make_unique<Watchdog>();
    core_->watchdog->start(core_);
    core_->abort_hooks = [self = weak_from_this()] {
        if (auto backend = self.lock())
            backend->runAbortHooks();
    };
    name_ = core_->name;
    device_ = device;
    options_ = options;
    options_.store = nullptr; /* its port may be wanted again */
    phase_ = Phase::open;
    apply_low_precision(core_->comm, options.hints);
}

static ncclComm_t create(const Core &core, Meeting *m, const CommOptions &options)
{
    const char  *device = core.device.is_cpu() ? "host" : gpu_is_hip() ? "hip" : "cuda";
    ncclConfig_t config = config_of(options.hints, core.name);
    ncclComm_t   comm;

    *m = meet(core.name, options);
    check(library().rcclxCommInitRankDevice(&comm, m->size, m->id, m->rank, device, &config));
    return comm;
}

void Backend::init(at::Device device, const std::string &name, const CommOptions &options)
{
    Meeting m = {};

    if (phase_ != Phase::fresh)
        throw Error("rcclx: communicator '" + name_ + "' is initialized already; make another one");
    try {
        const c10::Device here = resolve(device, std::get<0>(torch::comms::query_ranksize()));
        auto core = std::make_shared<Core>(name, here, options.timeout);
        if (!here.is_cpu())
            c10::impl::VirtualGuardImpl(here.type()).setDevice(here);
        core->comm = create(*core, &m, options);
        open(std::move(core), options);
        if (m.own_store) { /* rank 0 lets it go before the others go on, who may ask for one at the same port next */
            m.own_store = nullptr;
            barrier(false, {})->hostSynchronize();
        }
    } catch (const std::exception &error) {
        const std::string what = error.what();
        throw Error(what.rfind("rcclx: ", 0) == 0 ? what : "rcclx: new_comm '" + name + "': " + what);
    }
}

/* --- going ---------------------------------------------------------------------------------------------------------- */

void Backend::close(bool wait_for_watchdog)
{
    core_->queue->stop();
    if (wait_for_watchdog)
        core_->watchdog->stop_and_join();
    else
        core_->watchdog->stop();
    if (core_->gpu)
        core_->gpu->forget();
    phase_ = Phase::finalized;
}

static void finish(Core &core)
{
    core.queue->drain();
    if (core.gpu && !core.gpu->drain(core, core.timeout.load()))
        core.fail(State::timed_out, core.sentence("finalize", "what was enqueued did not end in time; see what holds up the GPU"));
    if (core.state() != State::normal)
        return;
    Deadline   deadline(core, "finalize", core.timeout.load());
    const auto result = library().ncclCommDestroy(core.comm);
    if (result != ncclSuccess && core.state() == State::normal)
        core.fail(State::failed, core.sentence("finalize", explain(result)));
}

void Backend::finalize()
{
    if (phase_ == Phase::fresh)
        throw Error("rcclx: finalize: this communicator is not initialized");
    if (phase_ == Phase::finalized)
        throw Error("rcclx: finalize: communicator '" + name_ + "' is finalized already");
    for (auto &[memory, handle] : registered_)
        library().ncclCommDeregister(core_->comm, handle);
    registered_.clear();
    finish(*core_);
    close(true);
    if (core_->state() == State::timed_out || core_->state() == State::failed)
        throw Error(core_->cause());
}

/* --- children ------------------------------------------------------------------------------------------------------- */

/* This rank's number in the child, or -1 when it gets none. */
static int place_in(const std::vector<int> &ranks, const Core &core)
{
    std::set<int> seen;
    int           place = -1;

    for (size_t i = 0; i < ranks.size(); i++) {
        if (ranks[i] < 0 || ranks[i] >= core.size)
            throw Error(core.sentence("split", "rank " + std::to_string(ranks[i]) + " is none of 0 to " +
                                                   std::to_string(core.size - 1)));
        if (!seen.insert(ranks[i]).second)
            throw Error(core.sentence("split", "rank " + std::to_string(ranks[i]) + " stands in the list twice"));
        if (ranks[i] == core.rank)
            place = static_cast<int>(i);
    }
    if (place < 0 && !ranks.empty())
        throw Error(core.sentence("split", "the list does not hold this rank; a rank that is to get no communicator passes an "
                                           "empty list"));
    return place;
}

std::shared_ptr<torch::comms::TorchCommBackend> Backend::split(const std::vector<int> &ranks, const std::string &name,
                                                               const CommOptions &options)
{
    Core        &core = need_open("split");
    const int    place = place_in(ranks, core);
    const int    color = place < 0 ? NCCL_SPLIT_NOCOLOR : *std::min_element(ranks.begin(), ranks.end());
    ncclConfig_t config = config_of(options.hints, name);
    auto         of_child = std::make_shared<Core>(name, core.device, options.timeout);

    core.need_normal();
    core.queue->drain();
    try {
        Deadline deadline(core, "split", core.timeout.load());
        check(library().ncclCommSplit(core.comm, color, place, &of_child->comm, &config));
    } catch (const std::exception &what) {
        throw core.report("split", what);
    }
    if (!of_child->comm)
        return nullptr;
    auto child = std::make_shared<Backend>();
    child->open(std::move(of_child), options);
    return child;
}

/* --- abort and settings --------------------------------------------------------------------------------------------- */

void Backend::abort()
{
    Core &core = need_open("abort");

    core.fail(State::aborted, core.sentence("abort", "the program aborted this communicator; make a new one"));
}

bool Backend::isAbortSupported() const
{
    return true;
}

bool Backend::isAborted() const
{
    return core_ && core_->state() != State::normal;
}

Work Backend::reconfigure(const torch::comms::ReconfigureOptions &)
{
    refuse("reconfigure", "is not built yet; abort or finalize this communicator, and make a new one of the ranks that are left");
}

void Backend::setTimeout(Milliseconds timeout)
{
    if (timeout.count() <= 0)
        refuse("set_timeout", std::to_string(timeout.count()) + " ms is no time to wait; take more than zero");
    need_open("set_timeout").timeout.store(timeout);
    options_.timeout = timeout;
}

/* All ranks say it between the same operations. */
void Backend::setHints(Hints hints)
{
    Core &core = need_open("set_hints");

    for (const auto &[hint, value] : hints)
        if (hint != "low_precision" && hint != "low_precision_min_bytes")
            refuse("set_hints", "hint " + hint + " is read when a communicator is made; pass hints= to new_comm or split");
    core.need_normal();
    core.queue->drain();
    try {
        apply_low_precision(core.comm, hints);
    } catch (const std::exception &what) {
        throw core.report("set_hints", what);
    }
    for (const auto &[hint, value] : hints)
        options_.hints[hint] = value;
}

/* --- questions ------------------------------------------------------------------------------------------------------ */

Core &Backend::need_open(const char *operation) const
{
    if (phase_ == Phase::open) [[likely]]
        return *core_;
    throw Error(std::string("rcclx: ") + operation + ": " +
                (phase_ == Phase::fresh ? "this communicator is not initialized" : "communicator '" + name_ + "' is finalized; make a new one"));
}

void Backend::refuse(const char *operation, const std::string &why) const
{
    throw Error(core_ ? core_->sentence(operation, why) : std::string("rcclx: ") + operation + ": " + why);
}

int Backend::getRank() const
{
    return need_open("get_rank").rank;
}

int Backend::getSize() const
{
    return need_open("get_size").size;
}

std::string_view Backend::getBackendName() const
{
    return "rcclx";
}

std::string_view Backend::getBackendVersion() const
{
    return library().rcclxVersion();
}

std::string_view Backend::getCommName() const
{
    return name_;
}

const CommOptions &Backend::getOptions() const
{
    return options_;
}

const at::Device &Backend::getDevice() const
{
    return device_;
}

bool Backend::isInitialized() const
{
    return phase_ == Phase::open;
}

/* --- profilers ------------------------------------------------------------------------------------------------------ */

Work Backend::issue_profiled(const char *operation, bool async, Milliseconds timeout, at::TensorList inputs, HostQueue::Job what)
{
    torch::comms::TracingGuard guard(core_->name, core_->size, operation, core_->rank, inputs.vec(), inputs.vec());

    return run_anywhere(*core_, operation, async, timeout, inputs, std::move(what));
}

} // namespace rcclx
