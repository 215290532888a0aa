"""Exceptions that are this package's and PyTorch's at once: a program that catches
RuntimeError or torch.distributed.DistBackendError catches them, and so does one
that catches rcclx.RemoteError."""
from __future__ import annotations

import contextlib
from typing import Iterator, NoReturn

import torch.distributed as dist

from .. import _errors
from .._library import _text


class DeviceError(_errors.DeviceError, dist.DistBackendError):
    """A call of the GPU's driver failed."""


class SystemFailure(_errors.SystemFailure, dist.DistBackendError):
    """A system call failed, or memory ran out."""


class InternalError(_errors.InternalError, dist.DistBackendError):
    """A fault of the library."""


class InvalidArgument(_errors.InvalidArgument, dist.DistBackendError):
    """A tensor or a number makes no sense; the group stays usable."""


class InvalidUsage(_errors.InvalidUsage, dist.DistBackendError):
    """The ranks' calls differ, or the group is gone."""


class RemoteError(_errors.RemoteError, dist.DistBackendError):
    """A peer is gone or late; the group answers every later call the same."""


class Timeout(_errors.Timeout, dist.DistBackendError):
    """wait() took longer than it was given; the operation goes on."""


_BY_CODE = {c.code: c for c in (DeviceError, SystemFailure, InternalError, InvalidArgument, InvalidUsage, RemoteError, Timeout)}


def failure(status: int) -> _errors.Error:
    """What the library's result means, with its own sentence."""
    return _BY_CODE.get(status, InternalError)(_text(status))


def refuse(call: str, why: str) -> NoReturn:
    raise InvalidArgument(f"{call}: {why}")


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """The package's exceptions inside become the ones above."""
    try:
        yield
    except dist.DistBackendError:
        raise
    except _errors.Error as fault:
        raise _BY_CODE.get(fault.code, InternalError)(str(fault)) from fault
