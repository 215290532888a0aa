"""From anybody's array to pointer, count and datatype, importing nobody.

Asked in this order; the first that the array has decides:

    data_ptr()                  PyTorch, which has bfloat16 and fp8 and is on any device
    __cuda_array_interface__    CuPy, Numba: memory of a GPU
    __array_interface__         NumPy, and ml_dtypes' types in it: memory of the host
    __dlpack__                  JAX and others
"""
from __future__ import annotations

import ctypes
import sys
from typing import Any, NamedTuple, NoReturn, Optional, Sequence, Tuple

from ._errors import InvalidArgument

# Name: ncclDataType_t, bytes. A bool is a byte of 0 or 1.
TYPES = {
    "int8": (0, 1), "uint8": (1, 1), "int32": (2, 4), "uint32": (3, 4), "int64": (4, 8), "uint64": (5, 8),
    "float16": (6, 2), "float32": (7, 4), "float64": (8, 8), "bfloat16": (9, 2),
    "float8_e4m3fn": (10, 1), "float8_e5m2": (11, 1), "bool": (1, 1),
}
TYPESTRS = {
    "|i1": "int8", "|u1": "uint8", "<i4": "int32", "<u4": "uint32", "<i8": "int64", "<u8": "uint64",
    "<f2": "float16", "<f4": "float32", "<f8": "float64", "|b1": "bool",
}
PROTOCOLS = "data_ptr(), __cuda_array_interface__, __array_interface__ or __dlpack__"


class View(NamedTuple):
    pointer: Optional[int]
    elements: int
    dtype: str                 # a key of TYPES
    shape: Tuple[int, ...]
    on_gpu: bool
    writable: bool
    keep: Any                  # what must live while the memory is used

    @property
    def nccl(self) -> int:
        return TYPES[self.dtype][0]


def _refuse(name: str, why: str) -> NoReturn:
    raise InvalidArgument(f"{name}: {why}")


def _contiguous(shape: Sequence[int], strides: Optional[Sequence[int]], step: int) -> bool:
    """C order, strides in units of which an element has `step`."""
    if strides is None or 0 in shape:
        return True
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length != 1 and stride != step:
            return False
        step *= length
    return True


def _view(name: str, pointer: int, dtype: str, shape: Sequence[int], strides: Optional[Sequence[int]], step: int,
          on_gpu: bool, writable: bool, keep: Any) -> View:
    if dtype not in TYPES:
        _refuse(name, f"elements of {dtype} cannot be sent; convert to one of {', '.join(TYPES)}")
    if not _contiguous(shape, strides, step):
        _refuse(name, f"an array of shape {tuple(shape)} with strides {tuple(strides or ())} is not contiguous in C order; "
                      "pass a contiguous copy")
    count = 1
    for length in shape:
        count *= length
    return View(pointer or None, count, dtype, tuple(shape), on_gpu, writable, keep)


def _of_torch(x: Any, name: str) -> View:
    kind = x.device.type
    if kind not in ("cpu", "cuda"):
        _refuse(name, f"a tensor on {kind}; only tensors on cpu and cuda can be used")
    if str(getattr(x, "layout", "torch.strided")) != "torch.strided":
        _refuse(name, f"a tensor of layout {x.layout}; make it dense")
    if hasattr(x, "is_neg") and x.is_neg():
        _refuse(name, "a view that is negated only when it is read; call resolve_neg() on it")
    return _view(name, x.data_ptr(), str(x.dtype).rpartition(".")[2], tuple(x.shape), tuple(x.stride()), 1,
                 kind == "cuda", True, x)


def _of_interface(x: Any, name: str, about: Any, on_gpu: bool) -> View:
    if any(c.__module__ == "numpy" and c.__name__ == "generic" for c in type(x).__mro__):
        _refuse(name, f"a scalar ({type(x).__name__}) has no memory to share; pass an array of one element")
    data, typestr = about.get("data"), about["typestr"]
    if not isinstance(data, tuple):
        _refuse(name, f"a {type(x).__name__} does not say where its elements are; pass numpy.ascontiguousarray() of it")
    dtype = TYPESTRS.get(typestr) or str(getattr(x, "dtype", typestr))
    if dtype in TYPES and TYPES[dtype][1] != int(typestr[2:]) or typestr[0] == ">":
        dtype = typestr
    return _view(name, data[0], dtype, about["shape"], about.get("strides"), int(typestr[2:] or 0), on_gpu, not data[1],
                 (x, about))


# ---- DLPack

class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    ]


_READ_ONLY = 1
_ON_HOST = (1, 3, 11)       # CPU; memory pinned for CUDA, for ROCm
_ON_GPU = (2, 10, 13)       # CUDA, ROCm, managed by CUDA
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool", 10: "float8_e4m3fn", 12: "float8_e5m2"}

_pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_in.restype = ctypes.c_void_p
_pointer_in.argtypes = [ctypes.py_object, ctypes.c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype = ctypes.c_int
_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _capsule(x: Any, stream: Optional[int]) -> Any:
    options = {} if x.__dlpack_device__()[0] in _ON_HOST else {"stream": stream or 1}  # 1: the default stream
    try:
        return x.__dlpack__(max_version=(1, 0), **options)
    except TypeError:  # of the time before versions
        return x.__dlpack__(**options)


def _of_dlpack(x: Any, name: str, stream: Optional[int]) -> View:
    capsule = _capsule(x, stream)  # it frees what it holds when it is forgotten unused
    writable = type(x).__module__.partition(".")[0] not in ("jax", "jaxlib")  # they never change, and cannot all say so
    if _is_valid(capsule, b"dltensor_versioned"):
        outer = _Versioned.from_address(_pointer_in(capsule, b"dltensor_versioned"))
        if outer.major != 1:
            _refuse(name, f"its __dlpack__ speaks version {outer.major}, known is 1")
        writable, t = writable and not outer.flags & _READ_ONLY, outer.tensor
    else:
        t = _Tensor.from_address(_pointer_in(capsule, b"dltensor"))
    if t.device_type not in _ON_HOST + _ON_GPU:
        _refuse(name, f"it is on a device of DLPack's kind {t.device_type}; only host memory and CUDA's or ROCm's can be used")
    dtype = _CODES.get(t.code, f"DLPack's kind {t.code}, {t.bits} bits")
    if dtype in ("int", "uint", "float", "bfloat"):
        dtype += str(t.bits)
    if t.lanes != 1:
        dtype += f"x{t.lanes}"
    shape = t.shape[:t.ndim]
    strides = t.strides[:t.ndim] if t.strides else None
    return _view(name, (t.data or 0) + t.offset, dtype, shape, strides, 1, t.device_type in _ON_GPU, writable, (x, capsule))


# ---- for the communicator

def _look(x: Any, name: str, stream: Optional[int]) -> View:
    if callable(getattr(x, "data_ptr", None)) and hasattr(x, "device"):
        return _of_torch(x, name)
    for attribute, on_gpu in (("__cuda_array_interface__", True), ("__array_interface__", False)):
        about = getattr(x, attribute, None)
        if about is not None:
            return _of_interface(x, name, about, on_gpu)
    if hasattr(x, "__dlpack__"):
        return _of_dlpack(x, name, stream)
    _refuse(name, f"a {type(x).__name__} has none of {PROTOCOLS}; pass an array")


def view(x: Any, name: str, stream: Optional[int] = None) -> View:
    """InvalidArgument for whatever is no contiguous array of a type in TYPES."""
    try:
        return _look(x, name, stream)
    except InvalidArgument:
        raise
    except Exception as fault:  # the array's own: a tensor without storage, an array that was given away
        raise InvalidArgument(f"{name}: the {type(x).__name__} does not give its memory: {fault}") from fault


def new_like(x: Any, shape: Tuple[int, ...]) -> Any:
    """An array of x's library, type and device."""
    if hasattr(x, "new_empty"):
        return x.new_empty(shape)
    for c in type(x).__mro__:
        library = c.__module__.partition(".")[0]
        if library in ("numpy", "cupy"):
            return sys.modules[library].empty(shape, dtype=x.dtype)
    raise InvalidArgument(f"out: for a {type(x).__name__} the result's array has to be given: out=")
