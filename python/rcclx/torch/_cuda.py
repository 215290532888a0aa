"""Operations on a GPU's memory, on streams.

    synchronous    queued on the caller's current stream
    asynchronous   queued on the route's own, which first waits for what the current
                   stream holds by now; wait() has the current stream wait for it

    current    --[makes the tensor]--+------------[ ... ]---------+--[uses it]-->
                                     | event                      | event, by wait()
    the route's ----------------------+--[all_reduce]--[copies]----+------------->

Within torch.cuda.graph() the same calls are captured.
"""
from __future__ import annotations

import ctypes
import datetime
import time
from typing import Any, Callable, List, Optional

import torch

from .._communicator import Communicator
from .._library import lib
from ._errors import Timeout, failure
from ._host import Issue, set_timeout
from ._work import Finish, Work, seconds_of

NAME = "hip" if torch.version.hip else "cuda"


class CudaWork(Work):
    def __init__(self, route: "CudaRoute", event: Any, stream: Any, words: str, result: List[torch.Tensor]) -> None:
        super().__init__(result)
        self._route = route
        self._event = event
        self._stream = stream
        self._words = words
        self.blocking = False  # wait() is for the caller itself: barriers

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:
        seconds = seconds_of(timeout)
        if seconds >= 0 or self.blocking:
            self._wait_here(seconds)
        fault = self.exception()
        if fault is not None:
            raise fault
        torch.cuda.current_stream(self._route.device).wait_event(self._event)
        return True

    def _wait_here(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._event.query() and self.exception() is None:
            if 0 <= seconds and time.monotonic() > until:
                raise Timeout(f"{self._words} is not done after {seconds:g} s; a rank that has not called it yet is late or gone. "
                              "It goes on: wait again, or abort the group")
            time.sleep(5e-5)

    def is_completed(self) -> bool:
        return self._event.query() or self.exception() is not None

    def exception(self) -> Optional[BaseException]:
        state = ctypes.c_int()
        status = lib.ncclCommGetAsyncError(self._route.handle, ctypes.byref(state))
        return failure(status or state.value) if status or state.value else None

    def get_future(self) -> "torch.futures.Future[Any]":
        future: "torch.futures.Future[Any]" = torch.futures.Future(devices=[self._route.device])
        with torch.cuda.stream(self._stream):  # the future's own event comes behind the operation
            future.set_result(self._result)
        return future


class CudaRoute:
    def __init__(self, comm: Communicator, device: torch.device, words: str, timeout: float) -> None:
        self.comm = comm
        self.handle = comm._handle
        self.device = device
        self.stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._byte: Optional[torch.Tensor] = None
        self.set_timeout(timeout)

    def set_timeout(self, seconds: float) -> None:
        """How long an operation waits for a peer before it is an error."""
        set_timeout(self.comm, seconds)
        self.limit = seconds

    def guard(self) -> Any:
        """The library works with the thread's current device."""
        return torch.cuda.device(self.device)

    def byte(self) -> torch.Tensor:
        """What barriers reduce."""
        if self._byte is None:
            self._byte = torch.zeros(1, dtype=torch.uint8, device=self.device)
        return self._byte

    def _begin(self, things: Any, after: Any) -> Any:
        """The route's stream, behind what the tensors wait for; their memory is not given to
        others before it is past them."""
        if after is None:
            self.stream.wait_stream(torch.cuda.current_stream(self.device))
        else:
            self.stream.wait_event(after)
        if not torch.cuda.is_current_stream_capturing():
            for tensor in things:
                tensor.record_stream(self.stream)
        return self.stream

    def run(self, words: str, issue: Issue, sync: bool, things: Any, result: List[torch.Tensor], finish: Finish = None,
            after: Any = None) -> Work:
        """Queue what issue does; finish queues what follows it. after: an event instead of
        the current stream."""
        with torch.cuda.device(self.device):
            stream = torch.cuda.current_stream(self.device) if sync else self._begin(things, after)
            status = issue(stream.cuda_stream or None)
            if status:
                raise failure(status)
            if finish is not None:
                with torch.cuda.stream(stream):
                    finish()
            event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(stream)
        return CudaWork(self, event, stream, words, result)

    def wait_block(self, work: Work) -> None:
        """The caller itself, not a stream, is past the work."""
        if isinstance(work, CudaWork):
            work.blocking = True

    def close(self) -> None:
        with torch.cuda.device(self.device):
            self.comm.destroy()

    def abort(self) -> None:
        self.comm.abort()


def now(device: torch.device) -> Any:
    """An event behind all that the current stream holds."""
    event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event


def here(device: torch.device) -> Callable[[], Any]:
    """Something for `with` that has the device's context current in this thread."""
    torch.zeros(1, device=device)
    return lambda: torch.cuda.device(device)
