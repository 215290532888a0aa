/* RCCLX's C library as a table of its functions, and its results as exceptions.
 *
 * The library is opened at run time. Linked, its names would be looked up in what is already loaded first: a PyTorch for CUDA
 * has NVIDIA's libnccl.so.2 in the process, and half of the calls would go there. */
#ifndef RCCLX_TORCHCOMMS_LIBRARY_H
#define RCCLX_TORCHCOMMS_LIBRARY_H

#define RCCLX_NO_CUDA_HEADERS
#include <rcclx.h>

#include <stdexcept>
#include <string>

namespace rcclx {

/* What a user sees: the rank, the call, what is wrong, what to try. */
struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

#define RCCLX_TORCHCOMMS_FUNCTIONS(X)                                                                                      \
    X(rcclxVersion) X(rcclxCommInitRankDevice) X(rcclxCommSetLowPrecision)                                                 \
    X(ncclGetLastError) X(ncclGetErrorString) X(ncclMemAlloc) X(ncclMemFree)                                               \
    X(ncclGetUniqueId) X(ncclCommDestroy) X(ncclCommAbort) X(ncclCommSplit) X(ncclCommGetAsyncError)                       \
    X(ncclCommCount) X(ncclCommUserRank) X(ncclCommRegister) X(ncclCommDeregister)                                         \
    X(ncclRedOpCreatePreMulSum) X(ncclRedOpDestroy) X(ncclGroupStart) X(ncclGroupEnd)                                      \
    X(ncclAllReduce) X(ncclReduce) X(ncclBroadcast) X(ncclAllGather) X(ncclReduceScatter) X(ncclAlltoAll)                  \
    X(ncclAlltoAllv) X(ncclGather) X(ncclScatter) X(ncclSend) X(ncclRecv)                                                  \
    X(ncclAllReduceConfig) X(ncclBroadcastConfig) X(ncclAllGatherConfig) X(ncclReduceScatterConfig) X(ncclAlltoAllConfig)

struct Library {
#define RCCLX_FIELD(name) decltype(&::name) name;
    RCCLX_TORCHCOMMS_FUNCTIONS(RCCLX_FIELD)
#undef RCCLX_FIELD
    std::string path;
};

/* Opened by the first call; throws Error while it cannot be. */
const Library &library();

/* The sentence behind the newest error, or the result's fixed text. */
std::string explain(ncclResult_t result);

/* A result that is no success becomes an exception with the library's sentence. */
struct Failed : Error {
    ncclResult_t result;
    explicit Failed(ncclResult_t why) : Error(explain(why)), result(why)
    {
    }
};

inline void check(ncclResult_t result)
{
    if (result != ncclSuccess) [[unlikely]]
        throw Failed(result);
}

} // namespace rcclx

#endif
