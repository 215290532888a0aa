"""From tensors and ReduceOps to what the library takes, or a refusal that says why.

    copies        any type: the library's own where it has it, else as bytes
    reductions    the library's, with these translations:
                    bool        or is max, and is min, on bytes of 0 and 1
                    complex     sum and avg as twice as many reals
                    PREMUL_SUM  the input is multiplied first
                  and what it has not (int16, bitwise operations, products of complex
                  numbers) is FOLDED: everybody's data are gathered and combined here
"""
from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch.distributed import ReduceOp

from .._arrays import TYPES
from ._errors import refuse

NCCL: Dict[torch.dtype, int] = {
    getattr(torch, name): number for name, (number, _) in TYPES.items() if hasattr(torch, name) and name != "bool"
}
_BYTE = TYPES["uint8"][0]

SUM, PROD, MAX, MIN, AVG = 0, 1, 2, 3, 4
_OPS = {
    ReduceOp.SUM: SUM, ReduceOp.PRODUCT: PROD, ReduceOp.MAX: MAX, ReduceOp.MIN: MIN, ReduceOp.AVG: AVG,
    ReduceOp.PREMUL_SUM: SUM,
}
_OF_BOOL = {ReduceOp.SUM: MAX, ReduceOp.MAX: MAX, ReduceOp.BOR: MAX, ReduceOp.PRODUCT: MIN, ReduceOp.MIN: MIN, ReduceOp.BAND: MIN}
_REALS = {torch.complex64: TYPES["float32"][0], torch.complex128: TYPES["float64"][0]}

Folder = Callable[..., Any]
_FOLDS: Dict[Any, Folder] = {
    ReduceOp.SUM: torch.add, ReduceOp.PREMUL_SUM: torch.add, ReduceOp.PRODUCT: torch.mul, ReduceOp.MAX: torch.maximum,
    ReduceOp.MIN: torch.minimum, ReduceOp.BAND: torch.bitwise_and, ReduceOp.BOR: torch.bitwise_or, ReduceOp.BXOR: torch.bitwise_xor,
}


class Reduction(NamedTuple):
    """How to reduce: by the library (kind, units an element, op), or with fold."""

    kind: int
    units: int
    op: int
    fold: Optional[Folder] = None
    scaled: bool = False    # PREMUL_SUM
    scale: Any = None       # its factor: a number or a tensor


_known: Dict[torch.dtype, Dict[Any, Reduction]] = {}


def _reduction(call: str, op: Any, dtype: torch.dtype) -> Reduction:
    if dtype in NCCL and op in _OPS:
        return Reduction(NCCL[dtype], 1, _OPS[op])
    if dtype is torch.bool and op in _OF_BOOL:
        return Reduction(_BYTE, 1, _OF_BOOL[op])
    if dtype in _REALS and op in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PREMUL_SUM):
        return Reduction(_REALS[dtype], 2, _OPS[op])
    orders = op in (ReduceOp.MAX, ReduceOp.MIN)
    bits = op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
    if op not in _FOLDS or dtype.is_complex and orders or bits and (dtype.is_floating_point or dtype.is_complex):
        refuse(call, f"{_name(op)} of {dtype} has no meaning here; convert the tensor, or use another operation")
    return Reduction(_BYTE, dtype.itemsize, SUM, _FOLDS[op])


def _name(op: Any) -> str:
    return str(op).rpartition(".")[2]


def _scale_of(op: ReduceOp) -> Any:
    """The factor of a PREMUL_SUM: told only to who pickles it."""
    state: Any = op.__getstate__()
    return state[1]


def reduction(call: str, op: Any, dtype: torch.dtype) -> Reduction:
    kind = op.op
    try:
        known = _known[dtype][kind]
    except KeyError:
        known = _reduction(call, kind, dtype)._replace(scaled=kind == ReduceOp.PREMUL_SUM)
        _known.setdefault(dtype, {})[kind] = known
    return known._replace(scale=_scale_of(op)) if known.scaled else known


def fold(how: Folder, parts: torch.Tensor, out: torch.Tensor) -> None:
    """out = the rows of parts, combined in rank order."""
    whole = parts[0]
    for part in parts[1:]:
        how(whole, part, out=whole)
    out.view(-1).copy_(whole)


def wire(tensor: torch.Tensor) -> Tuple[int, int]:
    """For copies: the library's type, and how many of it an element is."""
    kind = NCCL.get(tensor.dtype)
    return (_BYTE, tensor.element_size()) if kind is None else (kind, 1)


# ---- refusals

_LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}


def flat(tensor: torch.Tensor) -> bool:
    """Its elements lie one after the other, in the order of its indices."""
    return tensor.layout is torch.strided and tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()


def dense(tensor: torch.Tensor) -> bool:
    """Flat, or in channels-last order, which every rank has alike."""
    if flat(tensor):
        return True
    form = _LAYOUTS.get(tensor.dim())
    return (tensor.layout is torch.strided and form is not None and tensor.is_contiguous(memory_format=form)
            and not tensor.is_neg() and not tensor.is_conj())


def why_not(tensor: Any) -> str:
    """Of what is neither flat nor dense."""
    if not isinstance(tensor, torch.Tensor):
        return f"a {type(tensor).__name__} is no tensor; pass a tensor"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout} cannot be sent; pass tensor.to_dense()"
    if tensor.is_neg() or tensor.is_conj():
        return "a view that is negated or conjugated only when it is read; pass tensor.resolve_neg().resolve_conj()"
    return (f"a tensor of shape {tuple(tensor.shape)} with strides {tuple(tensor.stride())} is not contiguous; pass "
            "tensor.contiguous(), and copy the result back where it is an output")


def one(call: str, tensors: Any) -> torch.Tensor:
    """The single tensor of a list of one."""
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        refuse(call, f"{len(tensors)} tensors; a rank has one device here, so pass a list of one tensor")
    tensor: torch.Tensor = tensors[0]
    return tensor


def alike(call: str, first: torch.Tensor, others: Sequence[torch.Tensor], contiguous: bool = True) -> None:
    """All of one type, on one device, and flat."""
    for tensor in others:
        if not isinstance(tensor, torch.Tensor) or contiguous and not flat(tensor):
            refuse(call, why_not(tensor))
        if tensor.dtype is not first.dtype:
            refuse(call, f"tensors of {first.dtype} and {tensor.dtype} in one call; convert them to one type")
        if tensor.device != first.device:
            refuse(call, f"tensors on {first.device} and {tensor.device} in one call; move them to one device")


def sizes(call: str, what: str, have: int, need: int) -> None:
    if have != need:
        refuse(call, f"{what} has {have} elements, {need} are needed")


def neighbours(tensors: Sequence[torch.Tensor]) -> bool:
    """One behind the other in memory, as torch.chunk leaves them: no copy is needed."""
    at = tensors[0].data_ptr()
    for tensor in tensors:
        if tensor.data_ptr() != at or not flat(tensor):
            return False
        at += tensor.numel() * tensor.element_size()
    return True


def pack(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """All elements in one new flat tensor."""
    return torch.cat([t.reshape(-1) for t in tensors])


def unpack(parts: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    at = 0
    for tensor in tensors:
        tensor.copy_(parts[at:at + tensor.numel()].view(tensor.shape))
        at += tensor.numel()


def splits(call: str, name: str, tensor: torch.Tensor, given: Sequence[int], nranks: int) -> Tuple[List[int], int]:
    """Rows for each rank, and elements a row."""
    rows = tensor.size(0) if tensor.dim() else 0
    row = tensor.numel() // rows if rows else 1
    if not given:
        if rows % nranks:
            refuse(call, f"{name} has {rows} rows, which cannot be divided among {nranks} ranks; pass {name}_split_sizes")
        return [rows // nranks] * nranks, row
    if len(given) != nranks or sum(given) != rows or min(given) < 0:
        refuse(call, f"{name}_split_sizes are {list(given)}; {nranks} numbers are needed, and {rows} together, the rows of {name}")
    return list(given), row
