"""Collective communication for GPUs and host memory, from Python.

    import numpy, rcclx

    with rcclx.Communicator.from_env() as comm:
        x = numpy.full(4, comm.rank, numpy.float32)
        comm.all_reduce(x)

Started by `rcclx run -n 4 -- python3 program.py`, torchrun, mpirun or srun; or as
rcclx.run(function, 4). Communicator has the operations, group() collects them,
Stream queues them on the host, Error is what every exception is.
"""
from typing import Any as _Any

from ._communicator import Communicator, unique_id
from ._errors import (DeviceError, Error, InternalError, InvalidArgument, InvalidUsage, RankFailed, RemoteError,
                      SystemFailure, Timeout)
from ._library import dump as _dump
from ._library import lib as _lib
from ._library import path as library_path
from ._run import run
from ._stream import Stream, group
from ._version import VERSION as __version__

__all__ = [
    "Communicator", "DeviceError", "Error", "InternalError", "InvalidArgument", "InvalidUsage", "RankFailed", "RemoteError",
    "Stream", "SystemFailure", "Timeout", "__version__", "dump", "group", "library_path", "library_version", "run", "unique_id",
]


def library_version() -> str:
    """The version of librcclx.so, the file at library_path."""
    version: bytes = _lib.rcclxVersion()
    return version.decode()


def dump(what: str = "options", text: bool = False) -> _Any:
    """The settings in force ("options") or what this process holds ("process"): a dict, or words for people."""
    return _dump(what, None, text)
