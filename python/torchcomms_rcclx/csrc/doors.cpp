/* The two doors by which torchcomms finds the backend, and what Python asks of this library. It links no Python, so that
 * C++ programs can load it.
 *
 *     Python   new_comm("rcclx") ─► entry point ─► import torchcomms_rcclx ─► rcclx_torchcomms_register ─► register_backend
 *     C++      TORCHCOMMS_BACKEND_LIB_PATH_RCCLX=/path/to/this file ─► dlopen ─► create_dynamic_loader_rcclx
 */
#include "abi.h"
#include "allocator.h"
#include "backend.h"

#include <comms/torchcomms/TorchCommFactory.hpp>
#include <torch/library.h>

#include <mutex>

#define DOOR extern "C" __attribute__((visibility("default")))

using torch::comms::DynamicLoaderInterface;
using torch::comms::TorchCommBackend;
using torch::comms::TorchCommFactory;

/* --- C++ ------------------------------------------------------------------------------------------------------------ */

/* The backend wants to be held by shared pointers; the loader deals in bare ones. */
static std::mutex                                                    mutex;
static std::map<TorchCommBackend *, std::shared_ptr<rcclx::Backend>> made;

static TorchCommBackend *make()
{
    auto                        backend = std::make_shared<rcclx::Backend>();
    std::lock_guard<std::mutex> lock(mutex);

    return (made[backend.get()] = backend).get();
}

static void destroy(TorchCommBackend *backend)
{
    std::shared_ptr<rcclx::Backend> goes; /* outside the lock */
    std::lock_guard<std::mutex>     lock(mutex);
    const auto                      it = made.find(backend);

    if (it != made.end()) {
        goes = it->second;
        made.erase(it);
    }
}

static const char *interface_version()
{
    return torch::comms::TORCHCOMM_BACKEND_ABI_VERSION;
}

DOOR DynamicLoaderInterface create_dynamic_loader_rcclx()
{
    return { make, destroy, interface_version };
}

/* --- Python --------------------------------------------------------------------------------------------------------- */

/* NULL, or what is wrong. `self` is the path of this library. */
DOOR const char *rcclx_torchcomms_register(const char *self)
{
    static std::string fault;

    try {
        rcclx::check_abi(self);
        rcclx::library();
        TorchCommFactory::get().register_backend("rcclx", [] { return std::make_shared<rcclx::Backend>(); });
        TorchCommFactory::get().register_allocator_factory("rcclx", rcclx::allocator);
    } catch (const std::exception &what) {
        fault = what.what();
        return fault.c_str();
    }
    return nullptr;
}

DOOR const char *rcclx_torchcomms_library_path()
{
    return rcclx::library().path.c_str();
}

DOOR const char *rcclx_torchcomms_library_version()
{
    return rcclx::library().rcclxVersion();
}

TORCH_LIBRARY(rcclx, m)
{
    m.def("empty(int[] sizes, ScalarType dtype) -> Tensor",
          [](std::vector<int64_t> sizes, at::ScalarType dtype) { return rcclx::empty(sizes, dtype); });
}
