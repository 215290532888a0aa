"""Operations on host memory.

    synchronous    the C call does it, and its work is done already
    asynchronous   the C call puts it into a queue of the library (a host stream, made
                   with the first), and the work knows its place there

A route is a communicator with its queue. Tensors are kept until the queue is past them.
"""
from __future__ import annotations

import contextlib
import ctypes
import weakref
from typing import Any, Callable, Deque, List, Optional, Tuple
from collections import deque

import torch

from .. import _stream
from .._communicator import Communicator
from .._library import IN_PROGRESS, lib
from ._errors import failure
from ._work import Completer, Finish, HostWork, Work

Issue = Callable[[Optional[int]], int]  # stream to status


def set_timeout(comm: Communicator, seconds: float) -> None:
    status = lib.rcclxCommSetTimeout(comm._handle, min(max(seconds, 0.0), 1e9))
    if status:
        raise failure(status)


def _leave(comm: Communicator, queue: _stream.Stream) -> None:
    """At the program's end: what still waits there for a peer is given up, not waited for."""
    if lib.rcclxStreamQuery(queue._made) == IN_PROGRESS:
        comm.abort()


class HostRoute:
    def __init__(self, comm: Communicator, name: str, timeout: float) -> None:
        self.comm = comm
        self.handle = comm._handle
        self.limit = timeout
        self._name = name
        self._queue: Optional[_stream.Stream] = None
        self._kept: Deque[Tuple[int, Any]] = deque()
        self._completer = Completer(f"rcclx futures of {name}")
        self._byte: Optional[torch.Tensor] = None
        self.set_timeout(timeout)

    def set_timeout(self, seconds: float) -> None:
        """How long an operation waits for a peer before it is an error."""
        set_timeout(self.comm, seconds)
        self.limit = seconds

    def guard(self) -> Any:
        """What has to hold around every call; nothing on the host."""
        return contextlib.nullcontext()

    def byte(self) -> torch.Tensor:
        """What barriers reduce."""
        if self._byte is None:
            self._byte = torch.zeros(1, dtype=torch.uint8)
        return self._byte

    def run(self, words: str, issue: Issue, sync: bool, things: Any, result: List[torch.Tensor], finish: Finish = None) -> Work:
        """Begin what issue does. things live until it is done; finish follows it."""
        if sync:
            status = issue(None)
            if status:
                raise failure(status)
            if finish is not None:
                finish()
            return Work(result)
        if self._queue is None:
            self._queue = _stream.Stream()
            self._end = weakref.finalize(self, _leave, self.comm, self._queue)
        queue = self._queue.ptr
        status = issue(queue)
        if status:
            raise failure(status)
        position = ctypes.c_uint64()
        lib.rcclxStreamPosition(queue, ctypes.byref(position))
        self._keep(queue, position.value, things)
        return HostWork(queue, position.value, words, result, finish, self._completer)

    def _keep(self, queue: int, position: int, things: Any) -> None:
        kept = self._kept
        while kept and lib.rcclxStreamWait(queue, kept[0][0], 0.0) != IN_PROGRESS:
            kept.popleft()
        kept.append((position, things))

    def wait_block(self, work: Work) -> None:
        """The caller itself, not a stream, is past the work."""
        work.wait()

    def close(self) -> None:
        """After all that was queued. Works that were not waited for before have no more to say."""
        self._completer.close()
        if self._queue is not None:
            self._end.detach()
            self._queue.close()
        self._kept.clear()
        self.comm.destroy()

    def abort(self) -> None:
        """At once; what is queued fails."""
        self.comm.abort()
        if self._queue is not None:
            lib.rcclxStreamSynchronize(self._queue._made)
