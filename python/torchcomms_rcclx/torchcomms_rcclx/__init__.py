"""RCCLX as a backend of torchcomms: importing this makes the name "rcclx" known to it, which
torchcomms.new_comm("rcclx", ...) does by itself.

What cannot work is refused here, by an ImportError that says what to do: compiled code that meets another torch or
torchcomms than it was compiled for would crash later.
"""
import ctypes
import importlib.metadata
import os

import torch
import torchcomms  # its library is loaded by this, and ours needs it

from . import _build

backend_path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "librcclx_torchcomms.so")
AGAIN = ("Install it again: TORCHCOMMS_SOURCE=/path/to/torchcomms pip install --no-build-isolation --force-reinstall --no-deps "
         "./python/torchcomms_rcclx in RCCLX's tree.")


def _check(name, built, here):
    if built != here:
        raise ImportError(f"torchcomms_rcclx was compiled for {name} {built}, and this is {name} {here}. {AGAIN}")


def _load():
    try:
        lib = ctypes.CDLL(backend_path)
    except OSError as why:
        raise ImportError(f"torchcomms_rcclx does not fit the installed torch {torch.__version__} and torchcomms "
                          f"{importlib.metadata.version('torchcomms')}: {why}. {AGAIN}") from None
    for name in ("register", "library_path", "library_version"):
        getattr(lib, "rcclx_torchcomms_" + name).restype = ctypes.c_char_p
    fault = lib.rcclx_torchcomms_register(os.fsencode(backend_path))
    if fault:
        raise ImportError(fault.decode(errors="replace"))
    return lib


_check("torch", _build.TORCH, torch.__version__)
_check("torchcomms", _build.TORCHCOMMS, importlib.metadata.version("torchcomms"))
_lib = _load()

library_path = os.fsdecode(_lib.rcclx_torchcomms_library_path())
library_version = _lib.rcclx_torchcomms_library_version().decode()
interface_version = _build.INTERFACE


def empty(*sizes, dtype=None):
    """A tensor in host memory that all ranks of this machine can reach, which makes every operation on it faster. Not
    filled with anything."""
    if len(sizes) == 1 and not isinstance(sizes[0], int):
        sizes = tuple(sizes[0])
    return torch.ops.rcclx.empty(list(sizes), dtype or torch.get_default_dtype())
