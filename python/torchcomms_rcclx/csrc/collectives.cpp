/* Operations on one tensor a side. Each looks at its arguments, then hands issue() a function that calls the library:
 *
 *     all_reduce(t) ─► checks ─► issue ─► ncclAllReduce(t, t, n, ...)    here, in the worker, or on a stream
 *
 * The function holds its tensors by value: in the queue nobody else may.
 */
#include "backend.h"
#include "types.h"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>

namespace rcclx {

/* --- checks --------------------------------------------------------------------------------------------------------- */

void Backend::check_tensor(const char *operation, const char *which, const at::Tensor &t) const
{
    need_open(operation).need_normal();
    if (!t.defined())
        refuse(operation, std::string(which) + " is no tensor");
    if (t.device() != device_)
        refuse(operation, std::string(which) + " lies on " + t.device().str() + ", the communicator on " + device_.str() +
                              "; move it there with .to(\"" + device_.str() + "\"), or make a communicator for its device");
    if (t.layout() != at::kStrided || !t.is_contiguous())
        refuse(operation, std::string(which) + " is not contiguous; pass .contiguous(), and copy a result back from it");
}

void Backend::check_rank(const char *operation, const char *which, int rank) const
{
    const Core &core = need_open(operation);

    if (rank < 0 || rank >= core.size)
        refuse(operation, std::string(which) + "=" + std::to_string(rank) + " is none of 0 to " + std::to_string(core.size - 1));
}

static std::string elements(const at::Tensor &t)
{
    return std::to_string(t.numel()) + " elements of " + c10::toString(t.scalar_type());
}

static bool same(const at::Tensor &large, const at::Tensor &small, int64_t times)
{
    return large.numel() == small.numel() * times && large.scalar_type() == small.scalar_type();
}

/* --- reductions ----------------------------------------------------------------------------------------------------- */

/* The library has no bitwise operators: gather all, then combine in rank order. root < 0: all have the result. */
static void bitwise_all(Run &run, const at::Tensor &t, const ReduceOp &op, int root)
{
    at::NoGradGuard          no_grad;
    c10::OptionalStreamGuard guard;
    if (run.torch_stream)
        guard.reset_stream(*run.torch_stream);
    const Wire w = wire_of(t);
    at::Tensor all = at::empty({ run.core.size, t.numel() }, t.options());

    check(library().ncclAllGather(t.data_ptr(), all.data_ptr(), t.numel() * w.per, w.type, run.comm, run.stream));
    at::Tensor sum = all[0];
    for (int r = 1; r < run.core.size; r++)
        sum = bitwise(sum, all[r], op);
    if (root < 0 || root == run.core.rank)
        at::Tensor(t).copy_(sum.view(t.sizes()));
}

/* Said at the call, also when the operation is asynchronous. */
Wire Backend::need_reducible(const char *operation, const at::Tensor &t, const ReduceOp &op) const
{
    try {
        return wire_of(t, op);
    } catch (const Error &why) {
        refuse(operation, why.what());
    }
}

Work Backend::all_reduce(at::Tensor &t, const ReduceOp &op, bool async, const torch::comms::AllReduceOptions &o)
{
    check_tensor("all_reduce", "the tensor", t);
    const Wire w = need_reducible("all_reduce", t, op);
    return issue("all_reduce", async, o.timeout, t, [t = t, op, w, codec = codec_of(o.hints)](Run &run) {
        if (is_bitwise(op))
            return bitwise_all(run, t, op, -1);
        const Op   what(op, t, run.comm);
        void      *data = t.data_ptr();
        check(codec ? library().ncclAllReduceConfig(data, data, t.numel() * w.per, w.type, what, run.comm, run.stream,
                                                    CallConfig(codec).get())
                    : library().ncclAllReduce(data, data, t.numel() * w.per, w.type, what, run.comm, run.stream));
    });
}

Work Backend::reduce(const at::Tensor &t, int root, const ReduceOp &op, bool async, const torch::comms::ReduceOptions &o)
{
    check_tensor("reduce", "the tensor", t);
    check_rank("reduce", "root", root);
    const Wire w = need_reducible("reduce", t, op);
    return issue("reduce", async, o.timeout, t, [t, root, op, w](Run &run) {
        if (is_bitwise(op))
            return bitwise_all(run, t, op, root);
        const Op   what(op, t, run.comm);
        check(library().ncclReduce(t.data_ptr(), t.data_ptr(), t.numel() * w.per, w.type, what, root, run.comm, run.stream));
    });
}

Work Backend::reduce_scatter_single(at::Tensor &out, const at::Tensor &in, const ReduceOp &op, bool async,
                                    const torch::comms::ReduceScatterSingleOptions &o)
{
    check_tensor("reduce_scatter_single", "output", out);
    check_tensor("reduce_scatter_single", "input", in);
    if (!same(in, out, core_->size))
        refuse("reduce_scatter_single", "input has " + elements(in) + ", output " + elements(out) + "; input has size times as many");
    const Wire w = need_reducible("reduce_scatter_single", in, op);
    return issue("reduce_scatter_single", async, o.timeout, in, [out = out, in, op, w, codec = codec_of(o.hints)](Run &run) {
        const Op     what(op, in, run.comm);
        const size_t n = out.numel() * w.per;
        check(codec ? library().ncclReduceScatterConfig(in.data_ptr(), out.data_ptr(), n, w.type, what, run.comm, run.stream,
                                                        CallConfig(codec).get())
                    : library().ncclReduceScatter(in.data_ptr(), out.data_ptr(), n, w.type, what, run.comm, run.stream));
    });
}

/* --- copies --------------------------------------------------------------------------------------------------------- */

Work Backend::broadcast(at::Tensor &t, int root, bool async, const torch::comms::BroadcastOptions &o)
{
    check_tensor("broadcast", "the tensor", t);
    check_rank("broadcast", "root", root);
    return issue("broadcast", async, o.timeout, t, [t = t, root, codec = codec_of(o.hints)](Run &run) {
        const Wire w = wire_of(t);
        void      *data = t.data_ptr();
        check(codec ? library().ncclBroadcastConfig(data, data, t.numel() * w.per, w.type, root, run.comm, run.stream,
                                                    CallConfig(codec).get())
                    : library().ncclBroadcast(data, data, t.numel() * w.per, w.type, root, run.comm, run.stream));
    });
}

Work Backend::all_gather_single(at::Tensor &out, const at::Tensor &in, bool async,
                                const torch::comms::AllGatherSingleOptions &o)
{
    check_tensor("all_gather_single", "output", out);
    check_tensor("all_gather_single", "input", in);
    if (!same(out, in, core_->size))
        refuse("all_gather_single", "output has " + elements(out) + ", input " + elements(in) + "; output has size times as many");
    return issue("all_gather_single", async, o.timeout, in, [out = out, in, codec = codec_of(o.hints)](Run &run) {
        const Wire   w = wire_of(in);
        const size_t n = in.numel() * w.per;
        check(codec ? library().ncclAllGatherConfig(in.data_ptr(), out.data_ptr(), n, w.type, run.comm, run.stream,
                                                    CallConfig(codec).get())
                    : library().ncclAllGather(in.data_ptr(), out.data_ptr(), n, w.type, run.comm, run.stream));
    });
}

Work Backend::all_to_all_single(at::Tensor &out, const at::Tensor &in, bool async,
                                const torch::comms::AllToAllSingleOptions &o)
{
    check_tensor("all_to_all_single", "output", out);
    check_tensor("all_to_all_single", "input", in);
    if (!same(out, in, 1) || in.numel() % core_->size)
        refuse("all_to_all_single", "output has " + elements(out) + ", input " + elements(in) + "; both have as many, a multiple of " +
                                        std::to_string(core_->size));
    return issue("all_to_all_single", async, o.timeout, in, [out = out, in, codec = codec_of(o.hints)](Run &run) {
        const Wire   w = wire_of(in);
        const size_t n = in.numel() / run.core.size * w.per;
        check(codec ? library().ncclAlltoAllConfig(in.data_ptr(), out.data_ptr(), n, w.type, run.comm, run.stream,
                                                   CallConfig(codec).get())
                    : library().ncclAlltoAll(in.data_ptr(), out.data_ptr(), n, w.type, run.comm, run.stream));
    });
}

/* Rows of dimension 0 as the library's counts and displacements. Returns how many rows there are in all. */
static uint64_t lay_out(const Splits &splits, const at::Tensor &t, size_t per, std::vector<size_t> *counts, std::vector<size_t> *at)
{
    const size_t row = t.dim() && t.size(0) ? t.numel() / t.size(0) * per : 0;
    uint64_t     rows = 0;

    for (const uint64_t n : splits) {
        counts->push_back(n * row);
        at->push_back(rows * row);
        rows += n;
    }
    return rows;
}

Work Backend::all_to_all_v_single(at::Tensor &out, const at::Tensor &in, const Splits &out_splits, const Splits &in_splits,
                                  bool async, const torch::comms::AllToAllvSingleOptions &o)
{
    static const char   name[] = "all_to_all_v_single";
    std::vector<size_t> sendcounts, senddispls, recvcounts, recvdispls;

    check_tensor(name, "output", out);
    check_tensor(name, "input", in);
    if (out.scalar_type() != in.scalar_type())
        refuse(name, "output has " + elements(out) + ", input " + elements(in) + "; both are of one type");
    const size_t size = core_->size;
    if (out_splits.size() != size || in_splits.size() != size)
        refuse(name, "there are " + std::to_string(out_splits.size()) + " output and " + std::to_string(in_splits.size()) +
                         " input splits; there is one for each of the " + std::to_string(size) + " ranks");
    const Wire w = wire_of(in);
    if (lay_out(in_splits, in, w.per, &sendcounts, &senddispls) > static_cast<uint64_t>(in.dim() ? in.size(0) : 0))
        refuse(name, "the input splits are more than the rows of input");
    if (lay_out(out_splits, out, w.per, &recvcounts, &recvdispls) > static_cast<uint64_t>(out.dim() ? out.size(0) : 0))
        refuse(name, "the output splits are more than the rows of output");
    return issue(name, async, o.timeout, in, [=, out = out](Run &run) {
        check(library().ncclAlltoAllv(in.data_ptr(), sendcounts.data(), senddispls.data(), out.data_ptr(), recvcounts.data(),
                                      recvdispls.data(), w.type, run.comm, run.stream));
    });
}

Work Backend::gather_single(at::Tensor &out, const at::Tensor &in, int root, bool async,
                            const torch::comms::GatherSingleOptions &o)
{
    check_tensor("gather_single", "input", in);
    check_rank("gather_single", "root", root);
    if (core_->rank == root) {
        check_tensor("gather_single", "output", out);
        if (!same(out, in, core_->size))
            refuse("gather_single", "output has " + elements(out) + ", input " + elements(in) + "; output has size times as many");
    }
    return gather_in("gather_single", {}, core_->rank == root ? out : at::Tensor(), in, root, async, o.timeout);
}

Work Backend::barrier(bool async, const torch::comms::BarrierOptions &o)
{
    static uint8_t byte;

    need_open("barrier").need_normal();
    return issue("barrier", async, o.timeout, {}, [](Run &run) {
        void *data = run.core.gpu ? run.core.gpu->byte().data_ptr() : &byte;
        check(library().ncclAllReduce(data, data, 1, ncclUint8, ncclMax, run.comm, run.stream));
    });
}

/* --- messages ------------------------------------------------------------------------------------------------------- */

Work Backend::send(const at::Tensor &t, int dst, bool async, const torch::comms::SendOptions &o)
{
    check_tensor("send", "the tensor", t);
    check_rank("send", "dst", dst);
    return issue("send", async, o.timeout, t, [t, dst](Run &run) {
        const Wire w = wire_of(t);
        check(library().ncclSend(t.data_ptr(), t.numel() * w.per, w.type, dst, run.comm, run.stream));
    });
}

Work Backend::recv(at::Tensor &t, int src, bool async, const torch::comms::RecvOptions &o)
{
    check_tensor("recv", "the tensor", t);
    check_rank("recv", "src", src);
    return issue("recv", async, o.timeout, t, [t = t, src](Run &run) {
        const Wire w = wire_of(t);
        check(library().ncclRecv(t.data_ptr(), t.numel() * w.per, w.type, src, run.comm, run.stream));
    });
}

} // namespace rcclx
