"""Messages from one rank to another: a channel for each pair, direction and tag.

A channel is a communicator of two, so that messages of one pair wait neither for
collectives nor for other pairs, as programs written for gloo expect. It opens with
the first call on either side, in a thread: neither side has to wait for the other
there, and what is sent before it is open is posted when it is.

    isend ----> [ waiting ] --- opened ---> its route's queue
"""
from __future__ import annotations

import threading
from typing import Any, Callable, List, Optional, Tuple

import torch

from .._library import lib
from ._tensors import wire
from ._work import LaterWork, Work

MOST_TAGS = 64  # of a pair and direction; each has a communicator of its own


class Channel:
    """This rank's end. open_route makes the route of the two; mark tells where the current
    stream is (nothing on the host)."""

    def __init__(self, words: str, sends: bool, open_route: Callable[[], Any], mark: Callable[[], Any]) -> None:
        self._words = words
        self._sends = sends
        self._open_route = open_route
        self._mark = mark
        self._lock = threading.Lock()
        self._route: Optional[Any] = None
        self._fault: Optional[BaseException] = None
        self._waiting: List[Tuple[LaterWork, torch.Tensor, Any]] = []
        self._thread = threading.Thread(target=self._open, name=f"rcclx {words}", daemon=True)
        self._thread.start()

    def post(self, tensor: torch.Tensor) -> Work:
        with self._lock:
            if self._fault is not None:
                raise self._fault
            if self._route is not None:
                return self._begin(self._route, tensor, None)
            later = LaterWork(self._words, [tensor])
            self._waiting.append((later, tensor, self._mark()))
            return later

    def _begin(self, route: Any, tensor: torch.Tensor, after: Any) -> Work:
        pointer, (kind, units), comm = tensor.data_ptr(), wire(tensor), route.handle
        count = tensor.numel() * units
        if self._sends:
            def issue(stream: Optional[int]) -> int:
                status: int = lib.ncclSend(pointer, count, kind, 1, comm, stream)
                return status
        else:
            def issue(stream: Optional[int]) -> int:
                status: int = lib.ncclRecv(pointer, count, kind, 0, comm, stream)
                return status
        where = {} if after is None else {"after": after}
        work: Work = route.run(self._words, issue, False, (tensor,), [tensor], **where)
        return work

    def _open(self) -> None:
        route = fault = None
        try:
            route = self._open_route()
        except BaseException as said:
            fault = said
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._route, self._fault = route, fault
            begun = [self._try(later, tensor, after) for later, tensor, after in waiting]
        for later, real, why in begun:
            later.become(real, why)

    def _try(self, later: LaterWork, tensor: torch.Tensor, after: Any) -> Tuple[LaterWork, Optional[Work], Optional[BaseException]]:
        if self._route is None:
            return later, None, self._fault
        try:
            return later, self._begin(self._route, tensor, after), None
        except Exception as fault:
            return later, None, fault

    def set_timeout(self, seconds: float) -> None:
        if self._route is not None:
            self._route.set_timeout(seconds)

    def end(self, verb: str) -> None:
        """verb: close or abort. One that is not open yet gives up by itself."""
        if self._route is not None:
            getattr(self._route, verb)()
