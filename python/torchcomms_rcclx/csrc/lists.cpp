/* Operations on lists of tensors. The library takes one buffer a side, so a list that does not lie in one piece is copied
 * through one. Only this rank knows how its list lies, and the operation between the ranks is the same either way:
 *
 *     list in one piece    [t0][t1][t2]             ─────────────────► ncclAllGather
 *     scattered            [t1]   [t0]   [t2] ─► [t0 t1 t2] in a copy ─► ncclAllGather
 *
 * Lists of unlike sizes are groups of one operation a tensor, where nothing is copied.
 */
#include "backend.h"
#include "types.h"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>

namespace rcclx {

void Backend::check_list(const char *operation, const char *which, const Tensors &list, const at::Tensor &like, bool same_size) const
{
    if (list.size() != static_cast<size_t>(core_->size))
        refuse(operation, std::string(which) + " has " + std::to_string(list.size()) + " tensors; there is one for each of the " +
                              std::to_string(core_->size) + " ranks");
    for (size_t i = 0; i < list.size(); i++) {
        const std::string name = std::string(which) + "[" + std::to_string(i) + "]";
        check_tensor(operation, name.c_str(), list[i]);
        if (list[i].scalar_type() != like.scalar_type() || (same_size && list[i].numel() != like.numel()))
            refuse(operation, name + " has " + std::to_string(list[i].numel()) + " elements of " + c10::toString(list[i].scalar_type()) +
                                  ", the other side " + std::to_string(like.numel()) + " of " + c10::toString(like.scalar_type()) +
                                  "; they are alike");
    }
}

/* --- one piece ------------------------------------------------------------------------------------------------------ */

/* What is done on a GPU's tensors here happens on the operation's stream; in the worker's thread no gradients are kept. */
class Here {
  public:
    explicit Here(Run &run)
    {
        if (run.torch_stream)
            guard_.reset_stream(*run.torch_stream);
    }

  private:
    at::NoGradGuard          no_grad_;
    c10::OptionalStreamGuard guard_;
};

static bool in_one_piece(const Tensors &list)
{
    for (size_t i = 1; i < list.size(); i++)
        if (static_cast<char *>(list[i - 1].data_ptr()) + list[i - 1].nbytes() != list[i].data_ptr())
            return false;
    return true;
}

/* A list of tensors of one size as one buffer. */
class Piece {
  public:
    explicit Piece(const Tensors &list) : list_(list)
    {
        if (!in_one_piece(list))
            copy_ = at::empty({ static_cast<int64_t>(list.size()), list[0].numel() }, list[0].options());
    }
    void *data() const
    {
        return copy_.defined() ? copy_.data_ptr() : list_[0].data_ptr();
    }
    void fill() /* from the list */
    {
        for (size_t i = 0; copy_.defined() && i < list_.size(); i++)
            copy_[i].copy_(list_[i].view(-1), true);
    }
    void give() /* to the list */
    {
        for (size_t i = 0; copy_.defined() && i < list_.size(); i++)
            at::Tensor(list_[i]).view(-1).copy_(copy_[i], true);
    }

  private:
    const Tensors &list_;
    at::Tensor     copy_;
};

Work Backend::all_gather(const Tensors &out, const at::Tensor &in, bool async, const torch::comms::AllGatherOptions &o)
{
    check_tensor("all_gather", "the tensor", in);
    check_list("all_gather", "tensor_list", out, in, true);
    return issue("all_gather", async, o.timeout, in, [out, in](Run &run) {
        Here       here(run);
        Piece      piece(out);
        const Wire w = wire_of(in);
        check(library().ncclAllGather(in.data_ptr(), piece.data(), in.numel() * w.per, w.type, run.comm, run.stream));
        piece.give();
    });
}

Work Backend::reduce_scatter(at::Tensor &out, const Tensors &in, const ReduceOp &op, bool async,
                             const torch::comms::ReduceScatterOptions &o)
{
    check_tensor("reduce_scatter", "output", out);
    check_list("reduce_scatter", "input_list", in, out, true);
    const Wire w = need_reducible("reduce_scatter", out, op);
    return issue("reduce_scatter", async, o.timeout, in, [out = out, in, op, w](Run &run) {
        Here       here(run);
        Piece      piece(in);
        const Op   what(op, out, run.comm);
        piece.fill();
        check(library().ncclReduceScatter(piece.data(), out.data_ptr(), out.numel() * w.per, w.type, what, run.comm, run.stream));
    });
}

/* To the root's list, or to its `flat`; the others have neither. */
Work Backend::gather_in(const char *operation, const Tensors &out, at::Tensor flat, const at::Tensor &in, int root, bool async,
                        Milliseconds timeout)
{
    return issue(operation, async, timeout, in, [=](Run &run) {
        Here                 here(run);
        std::optional<Piece> piece;
        const Wire           w = wire_of(in);
        if (!out.empty())
            piece.emplace(out);
        void *to = piece ? piece->data() : flat.defined() ? flat.data_ptr() : nullptr;
        check(library().ncclGather(in.data_ptr(), to, in.numel() * w.per, w.type, root, run.comm, run.stream));
        if (piece)
            piece->give();
    });
}

Work Backend::gather(const Tensors &out, const at::Tensor &in, int root, bool async, const torch::comms::GatherOptions &o)
{
    check_tensor("gather", "input_tensor", in);
    check_rank("gather", "root", root);
    if (core_->rank == root)
        check_list("gather", "output_tensor_list", out, in, true);
    return gather_in("gather", core_->rank == root ? out : Tensors(), {}, in, root, async, o.timeout);
}

Work Backend::scatter(at::Tensor &out, const Tensors &in, int root, bool async, const torch::comms::ScatterOptions &o)
{
    const bool mine = need_open("scatter").rank == root;

    check_tensor("scatter", "output_tensor", out);
    check_rank("scatter", "root", root);
    if (mine)
        check_list("scatter", "input_tensor_list", in, out, true);
    return issue("scatter", async, o.timeout, mine ? in : Tensors(), [out = out, in = mine ? in : Tensors(), root](Run &run) {
        Here                 here(run);
        std::optional<Piece> piece;
        const Wire           w = wire_of(out);
        if (!in.empty()) {
            piece.emplace(in);
            piece->fill();
        }
        check(library().ncclScatter(piece ? piece->data() : nullptr, out.data_ptr(), out.numel() * w.per, w.type, root, run.comm,
                                    run.stream));
    });
}

/* --- groups --------------------------------------------------------------------------------------------------------- */

/* Ends the group also when a call inside failed, so that this thread is not left in the middle of one. */
template <class F> static void grouped(F calls)
{
    check(library().ncclGroupStart());
    try {
        calls();
    } catch (...) {
        library().ncclGroupEnd();
        throw;
    }
    check(library().ncclGroupEnd());
}

Work Backend::all_gather_v(const Tensors &out, const at::Tensor &in, bool async, const torch::comms::AllGatherOptions &o)
{
    check_tensor("all_gather_v", "the tensor", in);
    check_list("all_gather_v", "tensor_list", out, in, false);
    if (out[core_->rank].numel() != in.numel())
        refuse("all_gather_v", "tensor_list[" + std::to_string(core_->rank) + "] is this rank's own, and has not as many elements as "
                               "the tensor");
    return issue("all_gather_v", async, o.timeout, in, [out, in](Run &run) {
        const Wire w = wire_of(in);
        grouped([&] {
            for (int r = 0; r < run.core.size; r++) {
                const at::Tensor &from = r == run.core.rank ? in : out[r];
                check(library().ncclBroadcast(from.data_ptr(), out[r].data_ptr(), out[r].numel() * w.per, w.type, r, run.comm,
                                              run.stream));
            }
        });
    });
}

Work Backend::reduce_scatter_v(at::Tensor &out, const Tensors &in, const ReduceOp &op, bool async,
                               const torch::comms::ReduceScatterOptions &o)
{
    check_tensor("reduce_scatter_v", "output", out);
    check_list("reduce_scatter_v", "input_list", in, out, false);
    if (in[core_->rank].numel() != out.numel())
        refuse("reduce_scatter_v", "input_list[" + std::to_string(core_->rank) + "] is for this rank, and has not as many elements as "
                                   "output");
    const Wire w = need_reducible("reduce_scatter_v", out, op);
    return issue("reduce_scatter_v", async, o.timeout, in, [out = out, in, op, w](Run &run) {
        const Op what(op, out, run.comm);
        grouped([&] {
            for (int r = 0; r < run.core.size; r++)
                check(library().ncclReduce(in[r].data_ptr(), r == run.core.rank ? out.data_ptr() : nullptr, in[r].numel() * w.per,
                                           w.type, what, r, run.comm, run.stream));
        });
    });
}

Work Backend::all_to_all(const Tensors &out, const Tensors &in, bool async, const torch::comms::AllToAllOptions &o)
{
    need_open("all_to_all");
    if (in.empty() || out.empty())
        refuse("all_to_all", "a list is empty");
    check_list("all_to_all", "output_tensor_list", out, in[0], false);
    check_list("all_to_all", "input_tensor_list", in, out[0], false);
    return issue("all_to_all", async, o.timeout, in, [out, in](Run &run) {
        grouped([&] {
            for (int r = 0; r < run.core.size; r++) {
                const Wire w = wire_of(in[r]);
                check(library().ncclSend(in[r].data_ptr(), in[r].numel() * w.per, w.type, r, run.comm, run.stream));
                check(library().ncclRecv(out[r].data_ptr(), out[r].numel() * w.per, w.type, r, run.comm, run.stream));
            }
        });
    });
}

Work Backend::batch_op_issue(const std::vector<BatchSendRecv::P2POp> &ops, bool async, const torch::comms::BatchP2POptions &o)
{
    Tensors sent;

    need_open("batch_op_issue");
    if (ops.empty())
        refuse("batch_op_issue", "the batch is empty; add send or recv before issue");
    for (const auto &op : ops) {
        check_tensor("batch_op_issue", "a tensor", op.tensor);
        check_rank("batch_op_issue", "peer", op.peer);
        if (op.type == BatchSendRecv::P2POp::OpType::SEND)
            sent.push_back(op.tensor);
    }
    return issue("batch_op_issue", async, o.timeout, sent, [ops](Run &run) {
        grouped([&] {
            for (const auto &op : ops) {
                const Wire w = wire_of(op.tensor);
                check(op.type == BatchSendRecv::P2POp::OpType::SEND
                          ? library().ncclSend(op.tensor.data_ptr(), op.tensor.numel() * w.per, w.type, op.peer, run.comm, run.stream)
                          : library().ncclRecv(op.tensor.data_ptr(), op.tensor.numel() * w.per, w.type, op.peer, run.comm, run.stream));
            }
        });
    });
}

} // namespace rcclx
