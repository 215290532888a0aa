/* One communicator goes through these states, and never back:
 *
 *     normal ──► timed_out   the watchdog saw a deadline pass
 *            ──► failed      the library says that the communicator is lost (a peer died, ranks disagree)
 *            ──► aborted     the program said abort()
 *
 * Leaving normal ends the library's communicator at once: a thread that waits in one of its calls returns, and the peers
 * are told instead of waiting for this rank. Whoever comes later gets the first cause.
 */
#include "core.h"

#include "gpu_work.h"
#include "host_work.h"
#include "watchdog.h"

#include <c10/util/Logging.h>

#include <cstdlib>

namespace rcclx {

Core::Core(std::string the_name, c10::Device the_device, Milliseconds the_timeout)
    : name(std::move(the_name)), device(the_device), timeout(the_timeout)
{
    if (the_timeout.count() <= 0)
        throw Error("timeout: " + std::to_string(the_timeout.count()) + " ms is no time to wait; take more than zero");
}

Core::~Core() = default; /* here, where the classes of its members are known */

std::string Core::cause() const
{
    std::lock_guard<std::mutex> lock(mutex_);

    return cause_;
}

void Core::fail(State to, const std::string &why)
{
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (state() != State::normal)
            return;
        cause_ = why;
        state_.store(to, std::memory_order_release);
    }
    if (to != State::aborted) /* nobody asked for it */
        LOG(ERROR) << why;
    if (abort_hooks)
        abort_hooks();
    library().ncclCommAbort(comm);
}

std::string Core::sentence(const char *operation, const std::string &what) const
{
    return "rcclx: rank " + std::to_string(rank) + " of " + std::to_string(size) + ", communicator '" + name + "', " +
           operation + ": " + what;
}

/* A wrong argument concerns the call alone. Anything else, and whatever the library remembers as the communicator's error,
 * is for good. */
static bool lasting(const Core &core, ncclResult_t result)
{
    ncclResult_t kept = ncclSuccess;

    if (result != ncclInvalidArgument && result != ncclInvalidUsage)
        return true;
    return library().ncclCommGetAsyncError(core.comm, &kept) != ncclSuccess || kept != ncclSuccess;
}

Error Core::report(const char *operation, const std::exception &what)
{
    const auto       *failed = dynamic_cast<const Failed *>(&what);
    const std::string told = sentence(operation, what.what());

    if (state() != State::normal)
        return Error(cause());
    if (failed && lasting(*this, failed->result))
        fail(State::failed, told);
    return Error(told);
}

} // namespace rcclx
