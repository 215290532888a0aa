/* Memory that will be used often: the library may then reach it directly. Results do not depend on it.
 *
 * Windows for one-sided operations are not in the library yet; new_window says so.
 */
#include "backend.h"

namespace rcclx {

/* A persistent all-gather: the output is registered once, then filled as often as wanted. */
struct Backend::Persistent {
    at::Tensor out;
    void      *handle;
};

static void *register_memory(Core &core, const char *operation, const at::Tensor &t)
{
    void *handle = nullptr;

    try {
        if (t.nbytes())
            check(library().ncclCommRegister(core.comm, t.data_ptr(), t.nbytes(), &handle));
    } catch (const std::exception &what) {
        throw core.report(operation, what);
    }
    return handle;
}

static void deregister_memory(Core &core, const char *operation, void *handle)
{
    try {
        if (handle && core.state() == State::normal)
            check(library().ncclCommDeregister(core.comm, handle));
    } catch (const std::exception &what) {
        throw core.report(operation, what);
    }
}

void Backend::tensor_register(const at::Tensor &t)
{
    check_tensor("tensor_register", "the tensor", t);
    core_->queue->drain();
    if (registered_.count(t.data_ptr()))
        refuse("tensor_register", "memory at this address is registered already; deregister it first");
    registered_[t.data_ptr()] = register_memory(*core_, "tensor_register", t);
}

void Backend::tensor_deregister(const at::Tensor &t)
{
    Core      &core = need_open("tensor_deregister");
    const auto it = registered_.find(t.data_ptr());

    if (it == registered_.end())
        refuse("tensor_deregister", "this tensor's memory is not registered; pass the tensor that was");
    core.queue->drain();
    void *handle = it->second;
    registered_.erase(it);
    deregister_memory(core, "tensor_deregister", handle);
}

/* --- the persistent all-gather -------------------------------------------------------------------------------------- */

Backend::AllGatherPHandle Backend::all_gather_p_init(at::Tensor &out, const torch::comms::AllGatherPInitOptions &)
{
    check_tensor("all_gather_p_init", "output", out);
    core_->queue->drain();
    auto  made = std::make_shared<Persistent>(Persistent{ out, register_memory(*core_, "all_gather_p_init", out) });
    void *handle = made.get();
    persistent_[handle] = std::move(made);
    return handle;
}

Work Backend::all_gather_p_exec(AllGatherPHandle handle, const at::Tensor &in, bool async,
                                const torch::comms::AllGatherPExecOptions &o)
{
    const auto it = persistent_.find(handle);

    if (it == persistent_.end())
        refuse("all_gather_p_exec", "the handle is none that all_gather_p_init gave, or was freed");
    torch::comms::AllGatherSingleOptions options;
    options.hints = o.hints;
    options.timeout = o.timeout;
    return all_gather_single(it->second->out, in, async, options);
}

void Backend::all_gather_p_free(AllGatherPHandle handle)
{
    Core      &core = need_open("all_gather_p_free");
    const auto it = persistent_.find(handle);

    if (it == persistent_.end())
        refuse("all_gather_p_free", "the handle is none that all_gather_p_init gave, or was freed");
    core.queue->drain();
    void *registered = it->second->handle;
    persistent_.erase(it);
    deregister_memory(core, "all_gather_p_free", registered);
}

/* --- windows -------------------------------------------------------------------------------------------------------- */

bool Backend::supportsWindow() const
{
    return false;
}

std::shared_ptr<torch::comms::TorchCommWindow> Backend::new_window(const std::optional<at::Tensor> &)
{
    refuse("new_window", "one-sided operations (put, signal, wait_signal) are not built yet; use send and recv, or a batch of them");
}

} // namespace rcclx
