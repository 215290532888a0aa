/* Hints are text on both sides. One table says which fields of ncclConfig_t they fill and what values make sense. */
#include "hints.h"

#include <c10/util/Logging.h>

#include <cctype>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace rcclx {

static const struct Field {
    const char        *name;
    int ncclConfig_t::*field;
    long               least, most;
} fields[] = {
    { "blocking",            &ncclConfig_t::blocking,            1, 1 },
    { "cgaClusterSize",      &ncclConfig_t::cgaClusterSize,      0, 8 },
    { "minCTAs",             &ncclConfig_t::minCTAs,             1, 64 },
    { "maxCTAs",             &ncclConfig_t::maxCTAs,             1, 64 },
    { "splitShare",          &ncclConfig_t::splitShare,          0, 1 },
    { "trafficClass",        &ncclConfig_t::trafficClass,        INT_MIN + 1, INT_MAX },
    { "collnetEnable",       &ncclConfig_t::collnetEnable,       0, 1 },
    { "CTAPolicy",           &ncclConfig_t::CTAPolicy,           0, 3 },
    { "shrinkShare",         &ncclConfig_t::shrinkShare,         0, 1 },
    { "nvlsCTAs",            &ncclConfig_t::nvlsCTAs,            1, 64 },
    { "nChannelsPerNetPeer", &ncclConfig_t::nChannelsPerNetPeer, 1, 64 },
    { "nvlinkCentricSched",  &ncclConfig_t::nvlinkCentricSched,  0, 1 },
};

/* Read elsewhere, or another backend's that programs pass to whatever they run on. */
static const char *const others[] = { "netName", "commName", "is_high_priority_stream", "max_event_pool_size",
                                      "low_precision", "low_precision_min_bytes", "persistent_store" };

static long number(const std::string &name, const std::string &text, long least, long most)
{
    char *end;

    errno = 0;
    const long n = std::strtol(text.c_str(), &end, 10);
    if (end == text.c_str() || *end || errno || n < least || n > most)
        throw Error("hint " + name + "=" + text + ": it is a whole number from " + std::to_string(least) + " to " +
                    std::to_string(most));
    return n;
}

static const Field *field_named(const std::string &name)
{
    for (const Field &f : fields)
        if (name == f.name)
            return &f;
    return nullptr;
}

static bool known_elsewhere(const std::string &name)
{
    for (const char *other : others)
        if (name == other)
            return true;
    return false;
}

ncclConfig_t config_of(const Hints &hints, const std::string &name)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    config.commName = name.c_str();
    for (const auto &[hint, value] : hints) {
        if (const Field *f = field_named(hint))
            config.*f->field = static_cast<int>(number(hint, value, f->least, f->most));
        else if (hint == "netName")
            config.netName = value.c_str();
        else if (hint == "commName")
            config.commName = value.c_str();
        else if (hint == "algorithm")
            throw Error("hint algorithm=" + value + ": algorithms are chosen for a whole program; set RCCLX_ALGO=" + value +
                        " in the environment of all ranks");
        else if (!known_elsewhere(hint))
            LOG(WARNING) << "rcclx: communicator '" << name << "': hint " << hint << " is not known and has no effect";
    }
    return config;
}

/* Older torchcomms have another name for the field. */
template <class Options> static bool priority_field(const Options &options)
{
    if constexpr (requires { options.is_high_priority_stream; })
        return options.is_high_priority_stream;
    else
        return options.high_priority_stream;
}

bool high_priority(const torch::comms::CommOptions &options)
{
    const auto hint = options.hints.find("is_high_priority_stream");

    if (hint == options.hints.end())
        return priority_field(options);
    return hint->second == "1" || hint->second == "true" || hint->second == "True";
}

/* --- low precision -------------------------------------------------------------------------------------------------- */

static const char *codec_named(const std::string &word)
{
    for (const char *codec : { "off", "fp8", "int8" })
        if (word == codec)
            return codec;
    throw Error("hint low_precision=" + word + ": take fp8, int8 or off");
}

bool apply_low_precision(ncclComm_t comm, const Hints &hints)
{
    const auto codec = hints.find("low_precision"), least = hints.find("low_precision_min_bytes");

    if (codec == hints.end() && least == hints.end())
        return false;
    if (codec == hints.end())
        throw Error("hint low_precision_min_bytes goes with low_precision=fp8 or int8");
    const long bytes = least == hints.end() ? 0 : number("low_precision_min_bytes", least->second, 0, LONG_MAX);
    check(library().rcclxCommSetLowPrecision(comm, codec_named(codec->second), static_cast<size_t>(bytes)));
    return true;
}

const char *codec_of(const Hints &hints)
{
    if (hints.empty()) [[likely]]
        return nullptr;
    const auto codec = hints.find("low_precision");
    return codec == hints.end() ? nullptr : codec_named(codec->second);
}

} // namespace rcclx
