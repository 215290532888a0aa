/* One table of the types that the library calculates with. What is not in it:
 *
 *     bool              uint8 of 0 and 1: sum and max are "or", product and min are "and"
 *     complex           pairs of floats, for sum and average
 *     others (int16..)  bytes, where nothing is calculated
 */
#include "types.h"

#include <ATen/ops/scalar_tensor.h>

namespace rcclx {

using torch::comms::ReduceOp;
using Kind = ReduceOp::RedOpType;

static bool native(at::ScalarType t, ncclDataType_t *type)
{
    switch (t) {
    case at::kChar:          *type = ncclInt8;       return true;
    case at::kByte:          *type = ncclUint8;      return true;
    case at::kBool:          *type = ncclUint8;      return true;
    case at::kInt:           *type = ncclInt32;      return true;
    case at::kUInt32:        *type = ncclUint32;     return true;
    case at::kLong:          *type = ncclInt64;      return true;
    case at::kUInt64:        *type = ncclUint64;     return true;
    case at::kHalf:          *type = ncclFloat16;    return true;
    case at::kFloat:         *type = ncclFloat32;    return true;
    case at::kDouble:        *type = ncclFloat64;    return true;
    case at::kBFloat16:      *type = ncclBfloat16;   return true;
    case at::kFloat8_e4m3fn: *type = ncclFloat8e4m3; return true;
    case at::kFloat8_e5m2:   *type = ncclFloat8e5m2; return true;
    default:                 return false;
    }
}

static bool complex(at::ScalarType t, ncclDataType_t *type)
{
    switch (t) {
    case at::kComplexHalf:   *type = ncclFloat16; return true;
    case at::kComplexFloat:  *type = ncclFloat32; return true;
    case at::kComplexDouble: *type = ncclFloat64; return true;
    default:                 return false;
    }
}

Wire wire_of(const at::Tensor &t)
{
    Wire w = { ncclUint8, static_cast<size_t>(t.element_size()) };

    if (native(t.scalar_type(), &w.type))
        w.per = 1;
    else if (complex(t.scalar_type(), &w.type))
        w.per = 2;
    return w;
}

static const char *name_of(Kind op)
{
    static const char *const names[] = { "SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM", "AVG" };

    return static_cast<size_t>(op) < sizeof(names) / sizeof(*names) ? names[static_cast<size_t>(op)] : "this operation";
}

[[noreturn]] static void refuse(const at::Tensor &t, const ReduceOp &op, const char *instead)
{
    throw Error(std::string("ReduceOp.") + name_of(op) + " of " + c10::toString(t.scalar_type()) +
                " tensors is not there; " + instead);
}

Wire wire_of(const at::Tensor &t, const ReduceOp &op)
{
    Wire w = wire_of(t);

    if (is_bitwise(op) && !at::isIntegralType(t.scalar_type(), true))
        refuse(t, op, "take a type of whole numbers");
    if (is_bitwise(op))
        return w;
    if (t.scalar_type() == at::kBool && (op == Kind::AVG || op == Kind::PREMUL_SUM))
        refuse(t, op, "convert to a type that has fractions");
    if (at::isComplexType(t.scalar_type()) && op != Kind::SUM && op != Kind::AVG)
        refuse(t, op, "take SUM or AVG, or all_gather and reduce locally");
    if (w.type == ncclUint8 && t.scalar_type() != at::kByte && t.scalar_type() != at::kBool)
        refuse(t, op, "convert to one of int8, uint8, int32, uint32, int64, uint64, float16, bfloat16, float32, float64");
    return w;
}

/* --- bitwise: after a gather, on the tensors ------------------------------------------------------------------------ */

bool is_bitwise(const ReduceOp &op)
{
    return op == Kind::BAND || op == Kind::BOR || op == Kind::BXOR;
}

at::Tensor bitwise(const at::Tensor &a, const at::Tensor &b, const ReduceOp &op)
{
    return op == Kind::BAND ? a.bitwise_and(b) : op == Kind::BOR ? a.bitwise_or(b) : a.bitwise_xor(b);
}

/* --- operators ------------------------------------------------------------------------------------------------------ */

static ncclRedOp_t plain(const ReduceOp &op, const at::Tensor &of)
{
    const bool truth = of.scalar_type() == at::kBool;

    switch (op.type()) {
    case Kind::SUM:     return truth ? ncclMax : ncclSum;
    case Kind::PRODUCT: return truth ? ncclMin : ncclProd;
    case Kind::MIN:     return ncclMin;
    case Kind::MAX:     return ncclMax;
    case Kind::AVG:     return ncclAvg;
    default:            refuse(of, op, "all_reduce and reduce have it");
    }
}

/* The factor as one element of the tensors' type. Read from host memory before the call returns; from the device's when
 * the operation runs. */
static at::Tensor factor_of(const ReduceOp &op, const at::Tensor &of)
{
    if (!op.factor())
        throw Error("ReduceOp.PREMUL_SUM needs a factor: ReduceOp.PREMUL_SUM(2.0)");
    if (const double *number = std::get_if<double>(&*op.factor()))
        return at::scalar_tensor(*number, at::TensorOptions().dtype(of.scalar_type()));
    const at::Tensor &t = std::get<at::Tensor>(*op.factor());
    if (t.numel() != 1 || t.scalar_type() != of.scalar_type())
        throw Error("the factor of ReduceOp.PREMUL_SUM is a number, or a tensor of one element of the data's type");
    if (!t.is_cpu() && t.device().type() != of.device().type())
        throw Error("the factor of ReduceOp.PREMUL_SUM lies on " + t.device().str() + ", the data on " + of.device().str() +
                    "; move it there, or pass a number");
    return t;
}

Op::Op(const ReduceOp &op, const at::Tensor &of, ncclComm_t comm)
{
    if (op != Kind::PREMUL_SUM) {
        op_ = plain(op, of);
        return;
    }
    const at::Tensor factor = factor_of(op, of);
    check(library().ncclRedOpCreatePreMulSum(&op_, factor.data_ptr(), wire_of(of, op).type,
                                             factor.is_cpu() ? ncclScalarHostImmediate : ncclScalarDevice, comm));
    made_for_ = comm;
}

Op::~Op()
{
    if (made_for_)
        library().ncclRedOpDestroy(op_, made_for_);
}

} // namespace rcclx
