"""Exceptions: one class for each result of the C library.

The text is the library's own sentence: rank, call, argument, value, and what to
do. What Python sees before the library does is told in the same words.
"""
from __future__ import annotations

from typing import Dict, Type


class Error(Exception):
    """Whatever goes wrong in this package. `code` is the library's ncclResult_t."""

    code = 3


class DeviceError(Error):
    """A call of the GPU's driver failed."""

    code = 1


class SystemFailure(Error):
    """A system call failed, or memory ran out."""

    code = 2


class InternalError(Error):
    """A fault of the library."""

    code = 3


class InvalidArgument(Error, ValueError):
    """A value makes no sense. It concerns this call alone: the communicator stays usable."""

    code = 4


class InvalidUsage(Error):
    """The call is wrong here and now: after destroy(), say, or unlike the other ranks' call."""

    code = 5


class RemoteError(Error):
    """A peer is gone. The communicator answers every later call the same; abort() ends it."""

    code = 6


class Timeout(Error, TimeoutError):
    """Something took longer than it was given."""

    code = 8


class RankFailed(Error):
    """A process started by run() raised an exception or died.

    `rank` is the one that failed first; the text holds its traceback.
    """

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(text)
        self.rank = rank


BY_CODE: Dict[int, Type[Error]] = {
    c.code: c
    for c in (DeviceError, SystemFailure, InternalError, InvalidArgument, InvalidUsage, RemoteError, Timeout)
}
