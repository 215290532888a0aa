"""librcclx.so: where it is, what its functions take, and results as exceptions.

Looked for, in this order:

    RCCLX_LIBRARY            a path; nothing else is tried when it is set
    rcclx/lib/               beside this file: a wheel that brought it along
    build/lib/               of the tree that this package lies in
    the system's loader      /usr/local/lib, LD_LIBRARY_PATH, ...
"""
from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char, c_char_p, c_double, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Iterator, Optional

from . import _errors

NAME = "librcclx.so"
IN_PROGRESS = 7  # what is not done yet


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", c_char * 128)]


# Arguments of each function; all return an ncclResult_t but those that return text.
_BUFFERS = [c_void_p, c_void_p, c_size_t, c_int]
PROTOTYPES = {
    "ncclGetVersion": [POINTER(c_int)],
    "ncclGetUniqueId": [POINTER(UniqueId)],
    "ncclCommFinalize": [c_void_p],
    "ncclCommDestroy": [c_void_p],
    "ncclCommAbort": [c_void_p],
    "ncclCommSplit": [c_void_p, c_int, c_int, POINTER(c_void_p), c_void_p],
    "ncclCommGetAsyncError": [c_void_p, POINTER(c_int)],
    "ncclCommCount": [c_void_p, POINTER(c_int)],
    "ncclCommUserRank": [c_void_p, POINTER(c_int)],
    "ncclAllReduce": _BUFFERS + [c_int, c_void_p, c_void_p],
    "ncclReduce": _BUFFERS + [c_int, c_int, c_void_p, c_void_p],
    "ncclBroadcast": _BUFFERS + [c_int, c_void_p, c_void_p],
    "ncclAllGather": _BUFFERS + [c_void_p, c_void_p],
    "ncclReduceScatter": _BUFFERS + [c_int, c_void_p, c_void_p],
    "ncclAlltoAll": _BUFFERS + [c_void_p, c_void_p],
    "ncclSend": [c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "ncclRecv": [c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "ncclMemAlloc": [POINTER(c_void_p), c_size_t],
    "ncclMemFree": [c_void_p],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
    "ncclGroupSimulateEnd": [c_void_p],
    "rcclxCommInitRankDevice": [POINTER(c_void_p), c_int, UniqueId, c_int, c_char_p, c_void_p],
    "rcclxCommInitEnv": [POINTER(c_void_p), c_void_p],
    "rcclxStreamCreate": [POINTER(c_void_p)],
    "rcclxStreamSynchronize": [c_void_p],
    "rcclxStreamQuery": [c_void_p],
    "rcclxStreamDestroy": [c_void_p],
    "rcclxDump": [c_char_p, c_void_p, c_int, c_char_p, c_size_t, POINTER(c_size_t)],
}
LATER = {
    "rcclxCommSetLowPrecision": [c_void_p, c_char_p, c_size_t],
    "rcclxCommSetTimeout": [c_void_p, c_double],
    "rcclxStreamPosition": [c_void_p, POINTER(c_uint64)],
    "rcclxStreamWait": [c_void_p, c_uint64, c_double],
    "ncclAlltoAllv": [c_void_p, POINTER(c_size_t), POINTER(c_size_t), c_void_p, POINTER(c_size_t), POINTER(c_size_t), c_int,
                      c_void_p, c_void_p],
}
TEXTS = {"ncclGetLastError": [c_void_p], "ncclGetErrorString": [c_int], "rcclxVersion": []}

HINT = (
    "Build it with `make` in RCCLX's tree, then set RCCLX_LIBRARY=/path/to/build/lib/" + NAME + ", or run "
    "`pip install ./python` there, which takes it along, or `make install` and ldconfig."
)


def _candidates() -> Iterator[str]:
    here = Path(__file__).resolve().parent
    tree = here.parent.parent
    for path in (here / "lib" / NAME, tree / "build" / "lib" / NAME):
        if path.exists() and (path.parent.parent == here or (tree / "include" / "rcclx.h").exists()):
            yield str(path)
    yield NAME


def _declare(lib: ctypes.CDLL) -> None:
    for name, arguments in {**PROTOTYPES, **TEXTS}.items():
        function = getattr(lib, name)
        function.argtypes = arguments
        function.restype = c_char_p if name in TEXTS else c_int
    for name, arguments in LATER.items():
        if hasattr(lib, name):
            getattr(lib, name).argtypes = arguments


def _open(path: str) -> ctypes.CDLL:
    lib = ctypes.CDLL(path)
    try:
        _declare(lib)
    except AttributeError as missing:
        raise OSError(f"{path}: {missing}: this is another library, or an older one") from None
    return lib


def _find() -> ctypes.CDLL:
    asked = os.environ.get("RCCLX_LIBRARY")
    faults = []
    for path in [asked] if asked else _candidates():
        try:
            return _open(path)
        except OSError as fault:
            faults.append(str(fault))
    told = f"RCCLX_LIBRARY={asked}" if asked else NAME
    raise ImportError(f"rcclx: {told} cannot be loaded: {'; '.join(faults)}. {HINT}")


lib = _find()
path: str = lib._name


def _text(status: int) -> str:
    said: bytes = lib.ncclGetLastError(None) or lib.ncclGetErrorString(status)
    return said.decode(errors="replace")


def check(status: int) -> None:
    """A result that is not success becomes an exception."""
    if status:
        raise _errors.BY_CODE.get(status, _errors.InternalError)(_text(status))


def dump(what: str, comm: Optional[c_void_p], text: bool) -> Any:
    import json

    needed, size = c_size_t(), 4096
    while True:  # it may grow between two looks
        room = ctypes.create_string_buffer(size)
        check(lib.rcclxDump(what.encode(), comm, 0 if text else 1, room, size, ctypes.byref(needed)))
        if needed.value <= size:
            said = room.value.decode(errors="replace")
            return said if text else json.loads(said)
        size = needed.value + 256
