"""What a process group is made of: who it is, its routes, and how one operation runs.

A route is a communicator on one kind of device (_host.py, _cuda.py). It is made with
the first collective on that kind, so all ranks have to come to it; a rank has one
device of a kind.
"""
from __future__ import annotations

import datetime
from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import BarrierOptions

from .._library import lib
from ._channel import Channel
from ._cuda import NAME as GPU
from ._cuda import CudaRoute, here
from ._errors import InvalidUsage, refuse, translated
from ._host import HostRoute
from ._meet import meet
from ._work import Work

_UNSET = BarrierOptions().timeout
_DEVICES = ("cpu", "cuda")
Call = Callable[[Optional[int]], int]


def options_of(kind: Any, **given: Any) -> Any:
    """An options object of what was passed one by one."""
    options = kind()
    for name, value in given.items():
        if value is not None:
            setattr(options, name, value)
    return options


def grouped(calls: Sequence[Call]) -> Call:
    """One call of several: they begin together, or none does."""
    def issue(stream: Optional[int]) -> int:
        status: int = lib.ncclGroupStart()
        for call in calls:
            status = status or call(stream)
        if status:
            lib.ncclGroupSimulateEnd(None)  # drops what was collected
            return status
        status = lib.ncclGroupEnd()
        return status
    return issue


def is_sync(options: Any) -> bool:
    """Older PyTorch does not say; then it is not."""
    return getattr(options, "asyncOp", True) is False


class Options:
    """pg_options of init_process_group and new_group.

    low_precision: "int8" or "fp8": float32, bfloat16 and float16 tensors of at least
    low_precision_bytes bytes cross the wire as 8 bits an element. All ranks pass the same.
    """

    def __init__(self, low_precision: Optional[str] = None, low_precision_bytes: int = 0) -> None:
        self.low_precision = low_precision
        self.low_precision_bytes = low_precision_bytes


_Base: Any = dist.ProcessGroup  # its stubs know neither older names nor what C++ calls


class Group(_Base):  # type: ignore[misc]
    """Everything but its operations."""

    supports_splitting = True
    supports_coalescing = False
    supports_time_estimate = False

    def __init__(self, store: Any, rank: int, size: int, timeout: datetime.timedelta, name: str,
                 options: Optional[Options] = None) -> None:
        super().__init__(rank, size)
        if options is not None and not isinstance(options, Options):
            refuse("init_process_group", f"pg_options is a {type(options).__name__}; pass rcclx.torch.Options")
        self.options = options or Options()
        self._store = store
        self._rank = rank
        self._size = size
        self._timeout = timeout
        self._seconds = timeout.total_seconds()
        self._name = name
        self._desc = "undefined"
        self._calls = 0
        self._routes: Dict[str, Any] = {}
        self._channels: Dict[Tuple[str, bool, int, int], Channel] = {}
        self._block: Optional[List[Work]] = None
        self._gone = False

    # ---- who it is

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def name(self) -> str:
        return "rcclx"

    _get_backend_name = getBackendName = name

    def getRank(self) -> int:
        return self._rank

    def getSize(self) -> int:
        return self._size

    def get_group_store(self) -> Any:
        return self._store

    @property
    def group_name(self) -> str:
        return self._name

    @property
    def group_desc(self) -> str:
        return self._desc

    def getGroupName(self) -> str:
        return self._name

    def getGroupDesc(self) -> str:
        return self._desc

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, desc: str) -> None:
        self._desc = desc

    setGroupName, setGroupDesc = _set_group_name, _set_group_desc

    @property
    def _device_types(self) -> List[torch.device]:
        kinds = _DEVICES if torch.cuda.is_available() else _DEVICES[:1]
        return [torch.device(kind) for kind in kinds]

    def _get_backend(self, device: torch.device) -> Any:
        """It is its own backend, of all devices."""
        self._kind("_get_backend", torch.device(device))
        return self

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        return False

    def _set_sequence_number_for_group(self) -> None:
        self._calls = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._calls

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """How long an operation may wait for other ranks, from now on."""
        self._timeout = timeout
        self._seconds = timeout.total_seconds()
        for route in [*self._routes.values(), *self._channels.values()]:
            route.set_timeout(self._seconds)

    _set_default_timeout = set_timeout

    # ---- routes

    def _words(self, call: str) -> str:
        return f"rank {self._rank} of {self._size}: {call} (call {self._calls} of group {self._name})"

    def _kind(self, call: str, device: torch.device) -> str:
        if device.type not in _DEVICES:
            refuse(call, f"a tensor on {device}; this backend has cpu and cuda, so move it there")
        return device.type

    def _gone_with(self, call: str) -> NoReturn:
        raise InvalidUsage(f"{self._words(call)}: this group was destroyed or aborted; make a new one")

    def _route(self, call: str, tensor: torch.Tensor) -> Any:
        """The route of the tensor's device."""
        self._calls += 1
        route = self._routes.get("cpu" if tensor.is_cpu else tensor.device.type)
        if route is None or self._gone:
            return self._open(call, tensor.device)
        if tensor.is_cuda and tensor.device != route.device:
            refuse(call, f"rank {self._rank} has a tensor on {tensor.device}, but {route.device} is its device in this group; a rank "
                         "has one GPU in a group: move the tensor, or make another group")
        return route

    def _open(self, call: str, device: torch.device) -> Any:
        kind = self._kind(call, device)
        if self._gone:
            self._gone_with(call)
        route = self._routes[kind] = self._meet(kind, range(self._size), device, self._words(call))
        self._tune(route)
        return route

    def _tune(self, route: Any) -> None:
        """What the options ask for, of a new communicator."""
        if self.options.low_precision is not None:
            with translated():
                route.comm.low_precision(self.options.low_precision, self.options.low_precision_bytes)

    def _meet(self, key: str, who: Sequence[int], device: torch.device, words: str) -> Any:
        """The route of these ranks of the group, this one among them."""
        store, me, seconds = self._store, self._rank, self._seconds
        if device.type == "cpu":
            return HostRoute(meet(store, f"rcclx/{key}", me, who, "host", words, seconds), words, seconds)
        with here(device)():
            return CudaRoute(meet(store, f"rcclx/{key}", me, who, GPU, words, seconds), device, words, seconds)

    def _limit(self, route: Any, options: Any) -> None:
        """The time that this operation may take: its own, or the group's."""
        seconds = self._seconds
        if options is not None and options.timeout != _UNSET:
            seconds = options.timeout.total_seconds()
        if seconds != route.limit:
            route.set_timeout(seconds)

    def _run(self, call: str, route: Any, options: Any, issue: Call, things: Sequence[torch.Tensor], result: List[torch.Tensor],
             finish: Optional[Callable[[], None]] = None) -> Work:
        """One operation on its way, within the time it is given."""
        sync = is_sync(options)
        self._limit(route, options)
        work: Work = route.run(call if sync else self._words(call), issue, sync, things, result, finish)
        if self._block is not None:
            self._block.append(work)
        return work
