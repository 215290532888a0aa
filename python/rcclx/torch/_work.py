"""What an operation returns: a handle to wait on, ask, or get a future of."""
from __future__ import annotations

import datetime
import threading
import time
from typing import Any, Callable, List, Optional

import torch
import torch.distributed as dist

from .._library import IN_PROGRESS, lib
from ._errors import Timeout, failure

Finish = Optional[Callable[[], None]]


def seconds_of(timeout: Optional[datetime.timedelta]) -> float:
    """-1: without limit, which is also what 0 means to PyTorch."""
    if timeout is None:
        return -1.0
    seconds = timeout.total_seconds()
    return seconds if seconds > 0 else -1.0


class Work(dist.Work):
    """One that is done: the base of the others, and what a synchronous operation on
    host memory returns."""

    def __init__(self, result: List[torch.Tensor]) -> None:
        super().__init__()
        self._result = result

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:
        """Until it is done, at most so long; raises what went wrong, Timeout when it is not
        done by then. On GPUs the current stream waits, not the caller, unless a timeout
        is given."""
        return True

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        """Without waiting. One that failed is completed, too."""
        return True

    def exception(self) -> Optional[BaseException]:
        """What went wrong, None when nothing did or it is not done yet."""
        return None

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def result(self) -> List[torch.Tensor]:
        """The output tensors."""
        return self._result

    def source_rank(self) -> int:
        raise Timeout("source_rank: only a receive from any rank has one, and this backend has none; name the source")

    _source_rank = source_rank

    def get_future(self) -> "torch.futures.Future[Any]":
        """Done when this is; its value are the output tensors."""
        future: "torch.futures.Future[Any]" = torch.futures.Future()
        future.set_result(self._result)
        return future


class HostWork(Work):
    """One on a host stream: what the stream was given up to `position` holds it.

    finish runs once, in the thread that first sees it done (copies into the
    caller's tensors).
    """

    def __init__(self, queue: Any, position: int, words: str, result: List[torch.Tensor], finish: Finish,
                 completer: "Completer") -> None:
        super().__init__(result)
        self._queue = queue
        self._position = position
        self._words = words
        self._finish = finish
        self._completer = completer
        self._future: Optional["torch.futures.Future[Any]"] = None

    def _look(self, seconds: float) -> int:
        """The library's answer after so long; what has to follow is done."""
        status: int = lib.rcclxStreamWait(self._queue, self._position, seconds)
        if status == 0 and self._finish is not None:
            with self._completer.lock:
                finish, self._finish = self._finish, None
                if finish is not None:
                    finish()
        return status

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:
        seconds = seconds_of(timeout)
        status = self._look(seconds)
        if status == IN_PROGRESS:
            raise Timeout(f"{self._words} is not done after {seconds:g} s; a rank that has not called it yet is late or gone. "
                          "It goes on: wait again, or abort the group")
        if status:
            raise failure(status)
        return True

    def is_completed(self) -> bool:
        return self._look(0.0) != IN_PROGRESS

    def exception(self) -> Optional[BaseException]:
        status = self._look(0.0)
        return None if status in (0, IN_PROGRESS) else failure(status)

    def get_future(self) -> "torch.futures.Future[Any]":
        with self._completer.lock:
            if self._future is None:
                self._future = torch.futures.Future()
                if self.is_completed():
                    complete(self, self._future)
                else:
                    self._completer.add(self, self._future)
        return self._future


def complete(work: Work, future: "torch.futures.Future[Any]") -> None:
    """The future is what the work turns out to be."""
    try:
        work.wait()
    except Exception as fault:
        future.set_exception(fault)
    else:
        future.set_result(work.result())


class Completer:
    """The thread that completes futures of a host stream: it waits for one work after
    the other, which is the order in which they are done. It begins with the first."""

    def __init__(self, name: str) -> None:
        self.lock = threading.RLock()
        self._name = name
        self._waiting: List[Any] = []
        self._more = threading.Condition(threading.Lock())
        self._thread: Optional[threading.Thread] = None
        self._closed = False

    def add(self, work: HostWork, future: "torch.futures.Future[Any]") -> None:
        with self._more:
            self._waiting.append((work, future))
            self._more.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def close(self) -> None:
        """After what is waiting has been completed."""
        with self._more:
            self._closed = True
            self._more.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._more:
                while not self._waiting and not self._closed:
                    self._more.wait()
                if not self._waiting:
                    return
                work, future = self._waiting.pop(0)
            complete(work, future)


class LaterWork(Work):
    """One whose channel is not open yet: it becomes another work when it is."""

    def __init__(self, words: str, result: List[torch.Tensor]) -> None:
        super().__init__(result)
        self._words = words
        self._begun = threading.Event()
        self._real: Optional[Work] = None
        self._fault: Optional[BaseException] = None
        self._future: Optional["torch.futures.Future[Any]"] = None
        self._lock = threading.Lock()

    def become(self, real: Optional[Work], fault: Optional[BaseException] = None) -> None:
        with self._lock:
            self._real, self._fault = real, fault
            self._begun.set()
            future = self._future
        if future is not None:
            self._complete(future)

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:
        seconds = seconds_of(timeout)
        began = time.monotonic()
        if not self._begun.wait(None if seconds < 0 else seconds):
            raise Timeout(f"{self._words} has not begun after {seconds:g} s: the peer has not made its first call to this rank. It "
                          "goes on: wait again, or abort the group")
        if self._fault is not None:
            raise self._fault
        assert self._real is not None
        if seconds < 0:
            return self._real.wait()
        left = max(seconds - (time.monotonic() - began), 1e-6)
        return self._real.wait(datetime.timedelta(seconds=left))

    def is_completed(self) -> bool:
        if not self._begun.is_set():
            return False
        return self._real is None or self._real.is_completed()

    def exception(self) -> Optional[BaseException]:
        return self._fault if self._real is None else self._real.exception()

    def get_future(self) -> "torch.futures.Future[Any]":
        with self._lock:
            if self._future is not None:
                return self._future
            self._future = torch.futures.Future()
            begun = self._begun.is_set()
        if begun:
            self._complete(self._future)
        return self._future

    def _complete(self, future: "torch.futures.Future[Any]") -> None:
        if self._real is None:
            future.set_exception(self._fault)
            return

        def pass_on(done: "torch.futures.Future[Any]") -> None:
            try:
                future.set_result(done.value())
            except Exception as fault:
                future.set_exception(fault)

        self._real.get_future().add_done_callback(pass_on)


class ManyWorks(Work):
    """Several as one: what a coalescing block returns."""

    def __init__(self, works: List[Work]) -> None:
        super().__init__([t for w in works for t in w.result()])
        self._works = works

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:
        for work in self._works:
            work.wait(timeout)
        return True

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def exception(self) -> Optional[BaseException]:
        return next((fault for fault in (work.exception() for work in self._works) if fault is not None), None)

    def get_future(self) -> "torch.futures.Future[Any]":
        futures = [work.get_future() for work in self._works]

        def all_of(done: "torch.futures.Future[Any]") -> List[torch.Tensor]:
            for future in done.value():
                future.value()  # raises what went wrong
            return self.result()

        return torch.futures.collect_all(futures).then(all_of)
