/* Hints: words a program gives to a communicator or to a call. */
#ifndef RCCLX_TORCHCOMMS_HINTS_H
#define RCCLX_TORCHCOMMS_HINTS_H

#include "library.h"

#include <comms/torchcomms/TorchCommOptions.hpp>

#include <optional>
#include <string>
#include <unordered_map>

namespace rcclx {

using Hints = std::unordered_map<std::string, std::string>;

/* The library's configuration from a communicator's hints. It points into them and into name. Throws for a value that makes
 * no sense, warns of a name that nobody knows. */
ncclConfig_t config_of(const Hints &hints, const std::string &name);

/* The hint is_high_priority_stream, or else the option of that name. */
bool high_priority(const torch::comms::CommOptions &options);

/* low_precision and low_precision_min_bytes, for all later operations. True if there was such a hint. */
bool apply_low_precision(ncclComm_t comm, const Hints &hints);

/* The codec a call asks for: a constant, or NULL. Everything else that a call may hint is left to whom it concerns. */
const char *codec_of(const Hints &hints);

/* A call's settings for the library; get() is NULL when there are none. */
class CallConfig {
  public:
    explicit CallConfig(const char *codec)
    {
        if (codec) {
            ext_ = { nullptr, { RCCLX_VENDOR_ID, RCCLX_OPTION_LOW_PRECISION }, { .s = codec } };
            config_ = NCCL_COLLCONFIG_INITIALIZER;
            config_->ext = &ext_;
        }
    }
    const ncclCollConfig_t *get() const
    {
        return config_ ? &*config_ : nullptr;
    }

  private:
    ncclConfigExt_t                 ext_;
    std::optional<ncclCollConfig_t> config_;
};

} // namespace rcclx

#endif
