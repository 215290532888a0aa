"""Tensors in memory that the ranks of a machine reach directly, without a copy between."""
from __future__ import annotations

import ctypes
import weakref
from typing import Any, Optional

import torch

from .._library import lib
from ._errors import failure


def empty(*size: Any, dtype: Optional[torch.dtype] = None) -> torch.Tensor:
    """As torch.empty, on the CPU, in the library's own memory (ncclMemAlloc): collectives of
    64 KiB and more on such tensors, on all ranks, copy less. Given back when the last
    tensor on it is gone."""
    shape = torch.Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
    kind = dtype or torch.get_default_dtype()
    nbytes = shape.numel() * kind.itemsize
    if not nbytes:
        return torch.empty(shape, dtype=kind)
    pointer = ctypes.c_void_p()
    status = lib.ncclMemAlloc(ctypes.byref(pointer), nbytes)
    if status:
        raise failure(status)
    memory = (ctypes.c_uint8 * nbytes).from_address(pointer.value or 0)
    weakref.finalize(memory, lib.ncclMemFree, pointer.value).atexit = False  # the process's end frees it
    return torch.frombuffer(memory, dtype=torch.uint8).view(kind).view(shape)
