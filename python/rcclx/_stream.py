"""Streams and groups, and who keeps arrays alive while the library uses them.

    no stream, host      the call uses the array itself: nothing to keep
    inside a group       until the outermost group is over
    on a Stream          until it has been seen to be done
    on a foreign stream  the caller does, as with every library on GPUs
"""
from __future__ import annotations

import contextlib
import ctypes
import threading
import time
import weakref
from typing import Any, Iterator, List, Optional

from ._errors import InvalidArgument, InvalidUsage
from ._library import IN_PROGRESS, check, lib


class Stream:
    """A queue of the host device: operations given to it are carried out in order
    by a worker, while the caller goes on.

        with rcclx.Stream() as queue:
            comm.all_reduce(x, stream=queue)
            ...                             # x is not to be touched here
            queue.synchronize()             # now it is there

    Arrays are kept until the queue has been seen to be done.
    """

    def __init__(self) -> None:
        self._made = ctypes.c_void_p()
        check(lib.rcclxStreamCreate(ctypes.byref(self._made)))
        self._kept: List[Any] = []
        self._end = weakref.finalize(self, _destroy, self._made, self._kept)

    @property
    def ptr(self) -> int:
        """The library's handle. InvalidUsage after close()."""
        if not self._made.value:
            raise InvalidUsage("this stream was closed; make a new one with rcclx.Stream()")
        return self._made.value

    def synchronize(self) -> None:
        """Wait until all that was queued is done. Raises the first error of it."""
        status = lib.rcclxStreamSynchronize(self.ptr)
        self._kept.clear()
        check(status)

    def query(self) -> bool:
        """True when all is done, False when not. Raises the first error."""
        status = lib.rcclxStreamQuery(self.ptr)
        if status == IN_PROGRESS:
            return False
        self._kept.clear()
        check(status)
        return True

    def close(self) -> None:
        """Wait for what is queued, then free. Once is enough; more is fine."""
        self._end()

    def keep(self, things: Any) -> None:
        if len(self._kept) >= 64 and lib.rcclxStreamQuery(self.ptr) == 0:
            self._kept.clear()
        self._kept.append(things)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _destroy(made: ctypes.c_void_p, kept: List[Any]) -> None:
    lib.rcclxStreamDestroy(made)
    made.value = None
    kept.clear()


def handle_of(stream: Any) -> Optional[int]:
    """None, a Stream, a handle, or what has one: PyTorch's .cuda_stream, CuPy's .ptr."""
    if stream is None:
        return None
    for attribute in ("cuda_stream", "ptr"):
        if hasattr(stream, attribute):
            stream = getattr(stream, attribute)
            break
    if not isinstance(stream, int) or isinstance(stream, bool) or not 0 <= stream < 1 << 64:
        raise InvalidArgument(f"stream: {stream!r}; pass None, a Stream, a handle (int), or what has .cuda_stream or .ptr")
    return stream


class _Here(threading.local):
    def __init__(self) -> None:
        self.depth = 0
        self.broken = False
        self.kept: List[Any] = []
        self.comms: List[ctypes.c_void_p] = []


_here = _Here()


def keep(stream: Any, things: Any, comm: ctypes.c_void_p) -> None:
    if isinstance(stream, Stream):
        stream.keep(things)
    if _here.depth:
        _here.kept.append(things)
        _here.comms.append(comm)


def settle(status: int, comm: ctypes.c_void_p) -> None:
    """A result to an exception. NCCL_COMM_BLOCKING=0 lets calls return before they are done:
    that is waited for, here or at the end of the group."""
    pause = 1e-5
    while status == IN_PROGRESS and not _here.depth:
        state = ctypes.c_int()
        check(lib.ncclCommGetAsyncError(comm, ctypes.byref(state)))
        status = state.value
        time.sleep(pause)
        pause = min(2 * pause, 1e-3)
    if status != IN_PROGRESS:
        check(status)


def _leave(run: bool) -> None:
    """Out of one group; the outermost one runs what was collected, or drops it."""
    _here.depth -= 1
    if _here.depth:
        check(lib.ncclGroupEnd() if run else lib.ncclGroupSimulateEnd(None))
        return
    broken, kept, comms = _here.broken, _here.kept, _here.comms
    _here.broken, _here.kept, _here.comms = False, [], []
    if broken:
        lib.ncclGroupSimulateEnd(None)
    else:
        status = lib.ncclGroupEnd()
        if status != IN_PROGRESS:
            check(status)
        for comm in comms if status == IN_PROGRESS else []:
            settle(status, comm)
    if broken and run:
        raise InvalidUsage("nothing of this group was started: there was an exception in a group inside it")
    kept.clear()


@contextlib.contextmanager
def group() -> Iterator[None]:
    """Calls in its body are collected by this thread and begin together at its end.

        with rcclx.group():
            comm.send(x, right)
            comm.recv(y, left)

    Sends and receives that need one another belong into one group, and so do the
    calls for several communicators of one thread. Groups nest; the outermost one
    counts. Results are there after it (on a stream: when that is done). After an
    exception in the body nothing of the group is started.
    """
    check(lib.ncclGroupStart())
    _here.depth += 1
    try:
        yield
    except BaseException:
        _here.broken = True
        _leave(run=False)
        raise
    _leave(run=True)
