/* Torchcomms' interface to backends changes with its releases, and virtual functions are put in between: one built for
 * another release would be called at the wrong places. Which release runs is known to the running core alone, which
 * compares it with what a dynamically loaded backend says. So it is asked to load this very library under a name that
 * nobody uses, whose loader gives no communicator:
 *
 *     check_abi ─► create_backend("rcclx_abi_probe") ─► dlopen ─► create_dynamic_loader_rcclx_abi_probe
 *                                                     "ABI version mismatch: ..."         another release
 *                                                     "Failed to create backend instance" the same
 */
#include "abi.h"

#include "library.h"

#include <comms/torchcomms/TorchCommBackend.hpp>
#include <comms/torchcomms/TorchCommFactory.hpp>

#include <cstdlib>

namespace rcclx {

static const char variable[] = "TORCHCOMMS_BACKEND_LIB_PATH_RCCLX_ABI_PROBE";

/* What the core says. Its options are not read before the loader has refused; they are more room than any release needs,
 * since how large they are there is not known. */
static std::string ask(const std::string &self)
{
    alignas(std::max_align_t) static unsigned char nothing[4096];
    const auto &options = *reinterpret_cast<const torch::comms::CommOptions *>(nothing);
    std::string said;

    setenv(variable, self.c_str(), 1);
    try {
        torch::comms::TorchCommFactory::get().create_backend("rcclx_abi_probe", at::Device(at::kCPU), "", options);
    } catch (const std::exception &what) {
        said = what.what();
    }
    unsetenv(variable);
    return said;
}

void check_abi(const std::string &self)
{
    const std::string said = ask(self);

    if (said.find("Failed to create backend instance") != std::string::npos)
        return;
    throw Error("rcclx: this package was compiled for torchcomms' backend interface " +
                std::string(torch::comms::TORCHCOMM_BACKEND_ABI_VERSION) + ", which the installed torchcomms does not take (" + said +
                "). Install it again with TORCHCOMMS_SOURCE set to the sources of the installed release");
}

} // namespace rcclx

static torch::comms::TorchCommBackend *none()
{
    return nullptr;
}

static void destroy_none(torch::comms::TorchCommBackend *)
{
}

static const char *version()
{
    return torch::comms::TORCHCOMM_BACKEND_ABI_VERSION;
}

extern "C" __attribute__((visibility("default"))) torch::comms::DynamicLoaderInterface create_dynamic_loader_rcclx_abi_probe()
{
    return { none, destroy_none, version };
}
