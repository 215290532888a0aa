"""The process group: what torch.distributed calls for the backend "rcclx".

    dist.all_reduce --> ProcessGroup.allreduce --> lane of the tensor's device --> C call
                                                   host: _host.py   GPU: _cuda.py
    dist.send, recv --> ProcessGroup.send      --> channel to that rank (_channel.py)

It is a torch.distributed.ProcessGroup itself, in Python; PyTorch's C++ (DDP,
functional collectives) reaches its methods by their names. A method's arguments
are either lists of tensors with an options object, or a tensor with root, op and
timeout, as PyTorch's own groups take both.

Lanes are made with the first collective on their kind of device, so all ranks
have to come to it; a rank has one device of a kind.
"""
from __future__ import annotations

import ctypes
import datetime
from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch.distributed import (AllreduceOptions, BarrierOptions, BroadcastOptions, GatherOptions, ReduceOp, ReduceOptions,
                               ReduceScatterOptions, ScatterOptions)

from .._communicator import Communicator
from .._library import lib
from . import _tensors
from ._channel import MOST_TAGS, Channel
from ._cuda import NAME as GPU
from ._cuda import CudaLane, here, now
from ._errors import InvalidUsage, failure, refuse, translated
from ._host import HostLane
from ._meet import meet
from ._tensors import alike, dense, flat, fold, neighbours, one, pack, reduction, sizes, splits, unpack, why_not, wire
from ._work import ManyWorks, Work

_UNSET = BarrierOptions().timeout
_DEVICES = ("cpu", "cuda")
_Call = Callable[[Optional[int]], int]


def _options(kind: Any, **given: Any) -> Any:
    """An options object of what was passed one by one."""
    options = kind()
    for name, value in given.items():
        if value is not None:
            setattr(options, name, value)
    return options


def _grouped(calls: Sequence[_Call]) -> _Call:
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


def _sync(options: Any) -> bool:
    """PyTorch before 2.8 does not say; then it is not."""
    return getattr(options, "asyncOp", True) is False


class Options:
    """pg_options of init_process_group and new_group.

    low_precision: "int8" or "fp8": float32, bfloat16 and float16 tensors of at least
    low_precision_bytes bytes cross the wire as 8 bits an element. All ranks pass the same.
    """

    def __init__(self, low_precision: Optional[str] = None, low_precision_bytes: int = 0) -> None:
        self.low_precision = low_precision
        self.low_precision_bytes = low_precision_bytes


class ProcessGroup(dist.ProcessGroup):
    """A group of the backend "rcclx". Made by init_process_group and new_group."""

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
        self._lanes: Dict[str, Any] = {}
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
    def group_name(self) -> str:  # type: ignore[override]
        return self._name

    @property
    def group_desc(self) -> str:  # type: ignore[override]
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
    def _device_types(self) -> List[torch.device]:  # type: ignore[override]
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
        for lane in [*self._lanes.values(), *self._channels.values()]:
            lane.set_timeout(self._seconds)

    _set_default_timeout = set_timeout

    # ---- lanes

    def _words(self, call: str) -> str:
        return f"rank {self._rank} of {self._size}: {call} (call {self._calls} of group {self._name})"

    def _kind(self, call: str, device: torch.device) -> str:
        if device.type not in _DEVICES:
            refuse(call, f"a tensor on {device}; this backend has cpu and cuda, so move it there")
        return device.type

    def _gone_with(self, call: str) -> NoReturn:
        raise InvalidUsage(f"{self._words(call)}: this group was destroyed or aborted; make a new one")

    def _lane(self, call: str, tensor: torch.Tensor) -> Any:
        """The lane of the tensor's device."""
        self._calls += 1
        lane = self._lanes.get("cpu" if tensor.is_cpu else tensor.device.type)
        if lane is None or self._gone:
            return self._open(call, tensor.device)
        if tensor.is_cuda and tensor.device != lane.device:
            refuse(call, f"rank {self._rank} has a tensor on {tensor.device}, but {lane.device} is its device in this group; a rank "
                         "has one GPU in a group: move the tensor, or make another group")
        return lane

    def _open(self, call: str, device: torch.device) -> Any:
        kind = self._kind(call, device)
        if self._gone:
            self._gone_with(call)
        lane = self._lanes[kind] = self._meet(f"{kind}", self._rank, self._size, device, self._words(call))
        if self.options.low_precision is not None:
            with translated():
                lane.comm.low_precision(self.options.low_precision, self.options.low_precision_bytes)
        return lane

    def _meet(self, key: str, rank: int, size: int, device: torch.device, words: str) -> Any:
        seconds = self._seconds
        if device.type == "cpu":
            return HostLane(meet(self._store, f"rcclx/{key}", rank, size, "host", words, seconds), words, seconds)
        with here(device)():
            return CudaLane(meet(self._store, f"rcclx/{key}", rank, size, GPU, words, seconds), device, words, seconds)

    def _limit(self, lane: Any, options: Any) -> None:
        """The time that this operation may take: its own, or the group's."""
        seconds = self._seconds
        if options is not None and options.timeout != _UNSET:
            seconds = options.timeout.total_seconds()
        if seconds != lane.limit:
            lane.set_timeout(seconds)

    def _run(self, call: str, lane: Any, options: Any, issue: _Call, things: Sequence[torch.Tensor], result: List[torch.Tensor],
             finish: Optional[Callable[[], None]] = None) -> Work:
        """One operation on its way, within the time it is given."""
        sync = _sync(options)
        self._limit(lane, options)
        work: Work = lane.run(call if sync else self._words(call), issue, sync, things, result, finish)
        if self._block is not None:
            self._block.append(work)
        return work

    # ---- all-reduce, reduce, broadcast

    def allreduce(self, tensors: Any, opts: Any = None, op: Any = None, timeout: Any = None) -> Work:
        if not isinstance(opts, AllreduceOptions):
            opts = _options(AllreduceOptions, reduceOp=opts if op is None else op, timeout=timeout)
        tensor = one("all_reduce", tensors)
        if not dense(tensor):
            refuse("all_reduce", why_not(tensor))
        how = reduction("all_reduce", opts.reduceOp, tensor.dtype)
        lane = self._lane("all_reduce", tensor)
        if how.scaled:
            tensor.mul_(how.scale)
        if how.fold is not None:
            return self._folded("all_reduce", lane, opts, how.fold, tensor, tensor)
        pointer, count, handle = tensor.data_ptr(), tensor.numel() * how.units, lane.handle
        if tensor.is_cpu and self._block is None and _sync(opts):  # what _run does, shorter: the commonest call
            self._limit(lane, opts)
            status = lib.ncclAllReduce(pointer, pointer, count, how.kind, how.op, handle, None)
            if status:
                raise failure(status)
            return Work([tensor])

        def issue(stream: Optional[int]) -> int:
            status: int = lib.ncclAllReduce(pointer, pointer, count, how.kind, how.op, handle, stream)
            return status
        return self._run("all_reduce", lane, opts, issue, (tensor,), [tensor])

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Work:
        opts = opts or AllreduceOptions()
        call = "all_reduce_coalesced"
        if not tensors:
            return Work([])
        alike(call, tensors[0], tensors, contiguous=False)
        for tensor in tensors:
            if not dense(tensor):
                refuse(call, why_not(tensor))
        how = reduction(call, opts.reduceOp, tensors[0].dtype)
        if how.fold is not None:
            single = _options(AllreduceOptions, reduceOp=opts.reduceOp, timeout=opts.timeout, asyncOp=not _sync(opts))
            return ManyWorks([self.allreduce([tensor], single) for tensor in tensors])
        lane = self._lane(call, tensors[0])
        if how.scaled:
            for tensor in tensors:
                tensor.mul_(how.scale)

        def member(tensor: torch.Tensor) -> _Call:
            pointer, count = tensor.data_ptr(), tensor.numel() * how.units
            return lambda stream: lib.ncclAllReduce(pointer, pointer, count, how.kind, how.op, lane.handle, stream)
        return self._run(call, lane, opts, _grouped([member(t) for t in tensors]), tensors, list(tensors))

    def reduce(self, tensors: Any, opts: Any = None, root: int = 0, op: Any = None, timeout: Any = None) -> Work:
        if not isinstance(opts, ReduceOptions):
            opts = _options(ReduceOptions, rootRank=root if opts is None else opts, reduceOp=op, timeout=timeout)
        tensor = one("reduce", tensors)
        if not dense(tensor):
            refuse("reduce", why_not(tensor))
        how = reduction("reduce", opts.reduceOp, tensor.dtype)
        lane, root = self._lane("reduce", tensor), opts.rootRank
        mine = tensor if not how.scaled else tensor * how.scale
        if how.fold is not None:
            return self._folded("reduce", lane, opts, how.fold, mine, tensor if root == self._rank else None)
        there = tensor.data_ptr() if root == self._rank else None
        pointer, count = mine.data_ptr(), mine.numel() * how.units
        return self._run("reduce", lane, opts,
                         lambda stream: lib.ncclReduce(pointer, there, count, how.kind, how.op, root, lane.handle, stream),
                         (mine, tensor), [tensor])

    def broadcast(self, tensors: Any, opts: Any = None, root: int = 0, timeout: Any = None) -> Work:
        if not isinstance(opts, BroadcastOptions):
            opts = _options(BroadcastOptions, rootRank=root if opts is None else opts, timeout=timeout)
        tensor = one("broadcast", tensors)
        if not dense(tensor):
            refuse("broadcast", why_not(tensor))
        lane, root, (kind, units) = self._lane("broadcast", tensor), opts.rootRank, wire(tensor)
        pointer, count = tensor.data_ptr(), tensor.numel() * units
        return self._run("broadcast", lane, opts,
                         lambda stream: lib.ncclBroadcast(pointer, pointer, count, kind, root, lane.handle, stream),
                         (tensor,), [tensor])

    def _folded(self, call: str, lane: Any, opts: Any, how: Any, tensor: torch.Tensor, out: Optional[torch.Tensor]) -> Work:
        """out = all tensors combined here, where the library cannot: gathered first."""
        parts = tensor.new_empty((self._size, tensor.numel()))
        source = tensor if flat(tensor) else tensor.contiguous()
        count = tensor.numel() * tensor.element_size()

        def finish() -> None:
            if out is not None:
                whole = out if flat(out) else torch.empty(out.shape, dtype=out.dtype, device=out.device)
                fold(how, parts, whole)
                if whole is not out:
                    out.copy_(whole)
        return self._run(call, lane, opts,
                         lambda stream: lib.ncclAllGather(source.data_ptr(), parts.data_ptr(), count, 1, lane.handle, stream),
                         (source, parts, tensor), [] if out is None else [out], finish)

    # ---- gathers

    def allgather(self, output_tensors: Any, input_tensors: Any = None, opts: Any = None, timeout: Any = None,
                  input_tensor: Any = None) -> Work:
        given = input_tensors if input_tensor is None else input_tensor
        tensor = one("all_gather", given)
        outputs = output_tensors if isinstance(given, torch.Tensor) else self._list("all_gather", output_tensors)
        return self._gather_all("all_gather", outputs, tensor, opts)

    def _list(self, call: str, lists: Any) -> Any:
        if len(lists) != 1:
            refuse(call, f"{len(lists)} lists of tensors; a rank has one device here, so pass one list")
        return lists[0]

    def _members(self, call: str, what: str, tensors: Sequence[torch.Tensor]) -> None:
        if len(tensors) != self._size:
            refuse(call, f"{len(tensors)} {what} tensors for {self._size} ranks; pass one for each")

    def _gather_all(self, call: str, outputs: Sequence[torch.Tensor], tensor: torch.Tensor, opts: Any) -> Work:
        self._members(call, "output", outputs)
        alike(call, tensor, (tensor, *outputs))
        sizes(call, f"output {self._rank}", outputs[self._rank].numel(), tensor.numel())
        lane, (kind, units) = self._lane(call, tensor), wire(tensor)
        if any(out.numel() != tensor.numel() for out in outputs):
            return self._gather_uneven(call, lane, opts, outputs, tensor)
        count = tensor.numel() * units
        direct = neighbours(outputs)
        whole = outputs[0] if direct else tensor.new_empty(self._size * tensor.numel())
        return self._run(call, lane, opts,
                         lambda stream: lib.ncclAllGather(tensor.data_ptr(), whole.data_ptr(), count, kind, lane.handle, stream),
                         (tensor, whole, *outputs), list(outputs), None if direct else lambda: unpack(whole, outputs))

    def _gather_uneven(self, call: str, lane: Any, opts: Any, outputs: Sequence[torch.Tensor], tensor: torch.Tensor) -> Work:
        """A broadcast from each rank, all at once."""
        kind, units = wire(tensor)

        def member(root: int) -> _Call:
            out = outputs[root]
            source = tensor if root == self._rank else out
            return lambda stream: lib.ncclBroadcast(source.data_ptr(), out.data_ptr(), out.numel() * units, kind, root, lane.handle,
                                                    stream)
        return self._run(call, lane, opts, _grouped([member(r) for r in range(self._size)]), (tensor, *outputs), list(outputs))

    def _gather_flat(self, call: str, lane: Any, out: torch.Tensor, tensor: torch.Tensor) -> _Call:
        alike(call, tensor, (tensor, out))
        sizes(call, "output", out.numel(), self._size * tensor.numel())
        kind, units = wire(tensor)
        source, target, count = tensor.data_ptr(), out.data_ptr(), tensor.numel() * units
        return lambda stream: lib.ncclAllGather(source, target, count, kind, lane.handle, stream)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        call = "all_gather_into_tensor"
        lane = self._lane(call, input)
        return self._run(call, lane, opts, self._gather_flat(call, lane, output, input), (input, output), [output])

    def all_gather_single_coalesced(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None) -> Work:
        call = "all_gather_into_tensor_coalesced"
        if not inputs:
            return Work([])
        sizes(call, "the list of outputs", len(outputs), len(inputs))
        lane = self._lane(call, inputs[0])
        calls = [self._gather_flat(call, lane, out, tensor) for out, tensor in zip(outputs, inputs)]
        return self._run(call, lane, opts, _grouped(calls), (*inputs, *outputs), list(outputs))

    def allgather_coalesced(self, output_lists: Sequence[Sequence[torch.Tensor]], input_list: Sequence[torch.Tensor],
                            opts: Any = None) -> Work:
        """output_lists[r][i] = rank r's i-th input."""
        call = "all_gather_coalesced"
        self._members(call, "lists of output", output_lists)  # type: ignore[arg-type]
        return ManyWorks([self._gather_all(call, [outputs[i] for outputs in output_lists], tensor, opts)
                          for i, tensor in enumerate(input_list)])

    def gather(self, output_tensors: Any, input_tensors: Any = None, opts: Any = None, root: int = 0, timeout: Any = None,
               input_tensor: Any = None) -> Work:
        given = input_tensors if input_tensor is None else input_tensor
        tensor, lists = one("gather", given), output_tensors
        if not isinstance(opts, GatherOptions):
            opts, lists = _options(GatherOptions, rootRank=root if opts is None else opts, timeout=timeout), [output_tensors]
        root = opts.rootRank
        outputs: Sequence[torch.Tensor] = []
        if root == self._rank:
            outputs = self._list("gather", lists)
            self._members("gather", "output", outputs)
        alike("gather", tensor, (tensor, *outputs))
        lane, calls = self._lane("gather", tensor), [self._send(tensor, root)]
        for rank, out in enumerate(outputs):
            sizes("gather", f"output {rank}", out.numel(), tensor.numel())
            calls.append(self._receive(out, rank))
        return self._run("gather", lane, opts, _grouped([c(lane) for c in calls]), (tensor, *outputs), list(outputs))

    def scatter(self, output_tensors: Any, input_tensors: Any = None, opts: Any = None, root: int = 0, timeout: Any = None,
                output_tensor: Any = None) -> Work:
        tensor, lists = one("scatter", output_tensors if output_tensor is None else output_tensor), input_tensors
        if not isinstance(opts, ScatterOptions):
            opts, lists = _options(ScatterOptions, rootRank=root if opts is None else opts, timeout=timeout), [input_tensors]
        root = opts.rootRank
        inputs: Sequence[torch.Tensor] = []
        if root == self._rank:
            inputs = self._list("scatter", lists)
            self._members("scatter", "input", inputs)
        alike("scatter", tensor, (tensor, *inputs))
        lane, calls = self._lane("scatter", tensor), [self._receive(tensor, root)]
        for rank, part in enumerate(inputs):
            sizes("scatter", f"input {rank}", part.numel(), tensor.numel())
            calls.append(self._send(part, rank))
        return self._run("scatter", lane, opts, _grouped([c(lane) for c in calls]), (tensor, *inputs), [tensor])

    # halves of messages between ranks of the whole group, for groups of calls

    @staticmethod
    def _send(tensor: torch.Tensor, peer: int) -> Callable[[Any], _Call]:
        (kind, units), pointer = wire(tensor), tensor.data_ptr()
        return lambda lane: lambda stream: lib.ncclSend(pointer, tensor.numel() * units, kind, peer, lane.handle, stream)

    @staticmethod
    def _receive(tensor: torch.Tensor, peer: int) -> Callable[[Any], _Call]:
        (kind, units), pointer = wire(tensor), tensor.data_ptr()
        return lambda lane: lambda stream: lib.ncclRecv(pointer, tensor.numel() * units, kind, peer, lane.handle, stream)

    # ---- reduce-scatters

    def reduce_scatter(self, output_tensors: Any, input_tensors: Any = None, opts: Any = None, op: Any = None, timeout: Any = None,
                       input_tensor: Any = None) -> Work:
        call = "reduce_scatter"
        inputs = input_tensors if input_tensor is None else input_tensor
        out = one(call, output_tensors)
        if not isinstance(opts, ReduceScatterOptions):
            opts = _options(ReduceScatterOptions, reduceOp=opts if op is None else op, timeout=timeout)
        if not inputs or not isinstance(inputs[0], torch.Tensor):
            inputs = self._list(call, inputs)
        self._members(call, "input", inputs)
        alike(call, out, (out, *inputs))
        sizes(call, "output", out.numel(), inputs[self._rank].numel())
        if any(part.numel() != out.numel() for part in inputs):
            return self._scatter_uneven(call, opts, out, inputs)
        whole = inputs[0].new_empty(0) if not out.numel() else pack(inputs)
        return self._scatter_sum(call, opts, out, whole)

    def _scatter_sum(self, call: str, opts: Any, out: torch.Tensor, whole: torch.Tensor) -> Work:
        lane = self._lane(call, out)
        return self._run(call, lane, opts, *self._scatter_flat(call, lane, opts, out, whole))

    def _scatter_flat(self, call: str, lane: Any, opts: Any, out: torch.Tensor, whole: torch.Tensor) -> Tuple[Any, ...]:
        """What _run wants for one."""
        alike(call, out, (out, whole))
        sizes(call, "input", whole.numel(), self._size * out.numel())
        how = reduction(call, opts.reduceOp, out.dtype)
        if how.scaled:
            whole = whole * how.scale
        source, target = whole.data_ptr(), out.data_ptr()
        if how.fold is None:
            count = out.numel() * how.units
            return (lambda stream: lib.ncclReduceScatter(source, target, count, how.kind, how.op, lane.handle, stream),
                    (whole, out), [out])
        parts = whole.new_empty((self._size, out.numel()))
        nbytes, folder = out.numel() * out.element_size(), how.fold
        return (lambda stream: lib.ncclAlltoAll(source, parts.data_ptr(), nbytes, 1, lane.handle, stream),
                (whole, parts, out), [out], lambda: fold(folder, parts, out))

    def _scatter_uneven(self, call: str, opts: Any, out: torch.Tensor, inputs: Sequence[torch.Tensor]) -> Work:
        """A reduce to each rank, all at once."""
        how = reduction(call, opts.reduceOp, out.dtype)
        if how.fold is not None:
            refuse(call, f"parts of different sizes of {out.dtype}; make them of one size, or convert them")
        parts = inputs if not how.scaled else [part * how.scale for part in inputs]
        lane = self._lane(call, out)

        def member(root: int) -> _Call:
            source, count = parts[root].data_ptr(), parts[root].numel() * how.units
            target = out.data_ptr() if root == self._rank else None
            return lambda stream: lib.ncclReduce(source, target, count, how.kind, how.op, root, lane.handle, stream)
        return self._run(call, lane, opts, _grouped([member(r) for r in range(self._size)]), (out, *parts), [out])

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        return self._scatter_sum("reduce_scatter_tensor", opts or ReduceScatterOptions(), output, input)

    def reduce_scatter_single_coalesced(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor],
                                        opts: Any = None) -> Work:
        call, opts = "reduce_scatter_tensor_coalesced", opts or ReduceScatterOptions()
        if not outputs:
            return Work([])
        sizes(call, "the list of inputs", len(inputs), len(outputs))
        if reduction(call, opts.reduceOp, outputs[0].dtype).fold is not None:
            return ManyWorks([self.reduce_scatter_single(out, whole, opts) for out, whole in zip(outputs, inputs)])
        lane = self._lane(call, outputs[0])
        parts = [self._scatter_flat(call, lane, opts, out, whole) for out, whole in zip(outputs, inputs)]
        return self._run(call, lane, opts, _grouped([p[0] for p in parts]), [t for p in parts for t in p[1]], list(outputs))

    # ---- all-to-all

    def all_to_all_single(self, output: torch.Tensor, input: torch.Tensor, output_split_sizes: Optional[Sequence[int]] = None,
                          input_split_sizes: Optional[Sequence[int]] = None, opts: Any = None, timeout: Any = None) -> Work:
        call = "all_to_all_single"
        alike(call, input, (input, output))
        lane, (kind, units) = self._lane(call, input), wire(input)
        source, target = input.data_ptr(), output.data_ptr()
        if not output_split_sizes and not input_split_sizes:
            sizes(call, "output", output.numel(), input.numel())
            rows, row = splits(call, "input", input, [], self._size)
            count = rows[0] * row * units
            return self._run(call, lane, opts, lambda stream: lib.ncclAlltoAll(source, target, count, kind, lane.handle, stream),
                             (input, output), [output])
        sends = self._table(*splits(call, "input", input, input_split_sizes or [], self._size), units)
        takes = self._table(*splits(call, "output", output, output_split_sizes or [], self._size), units)
        return self._run(call, lane, opts,
                         lambda stream: lib.ncclAlltoAllv(source, *sends, target, *takes, kind, lane.handle, stream),
                         (input, output), [output])

    def _table(self, rows: List[int], row: int, units: int) -> Tuple[Any, Any]:
        """Counts and displacements as C takes them."""
        kind = ctypes.c_size_t * self._size
        counts = [n * row * units for n in rows]
        return kind(*counts), kind(*(sum(counts[:i]) for i in range(self._size)))

    def alltoall(self, output_tensor: Sequence[torch.Tensor], input_tensor: Sequence[torch.Tensor], opts: Any = None,
                 timeout: Any = None) -> Work:
        """Tensors of any sizes, as a group of messages."""
        call = "all_to_all"
        self._members(call, "output", output_tensor)
        self._members(call, "input", input_tensor)
        alike(call, input_tensor[0], (*input_tensor, *output_tensor))
        sizes(call, f"output {self._rank}", output_tensor[self._rank].numel(), input_tensor[self._rank].numel())
        lane = self._lane(call, input_tensor[0])
        calls = [self._send(t, peer)(lane) for peer, t in enumerate(input_tensor)]
        calls += [self._receive(t, peer)(lane) for peer, t in enumerate(output_tensor)]
        return self._run(call, lane, opts, _grouped(calls), (*input_tensor, *output_tensor), list(output_tensor))

    # ---- barrier

    def barrier(self, opts: Any = None, timeout: Any = None) -> Work:
        """On a GPU, too, it is the caller that is past it after wait()."""
        if not isinstance(opts, BarrierOptions):
            opts = _options(BarrierOptions, timeout=timeout if opts is None else opts)
        device = getattr(opts, "device", None) or torch.device("cpu")
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        lane = self._lane("barrier", torch.empty(0, device=device))
        byte = lane.byte()
        pointer = byte.data_ptr()
        work = self._run("barrier", lane, opts, lambda stream: lib.ncclAllReduce(pointer, pointer, 1, 1, 2, lane.handle, stream),
                         (byte,), [])
        if not isinstance(lane, HostLane):
            lane.wait_block(work)
        return work

    # ---- messages

    def send(self, tensors: Any, dstRank: int, tag: int = 0) -> Work:
        return self._message("send", tensors, dstRank, tag, sends=True)

    def recv(self, tensors: Any, srcRank: int, tag: int = 0) -> Work:
        return self._message("recv", tensors, srcRank, tag, sends=False)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> NoReturn:
        refuse("recv", "this backend cannot receive from whoever comes first; name the source: dist.recv(tensor, src=...)")

    recvAnysource = recv_anysource

    def _message(self, call: str, tensors: Any, peer: int, tag: int, sends: bool) -> Work:
        tensor = one(call, tensors)
        if not dense(tensor):
            refuse(call, why_not(tensor))
        if peer == self._rank or not 0 <= peer < self._size:
            refuse(call, f"rank {peer} from rank {self._rank} of {self._size}; another rank of the group is needed")
        self._calls += 1
        if self._gone:
            self._gone_with(call)
        key = (self._kind(call, tensor.device), sends, peer, tag)
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = self._channel(call, tensor.device, *key)
        work = channel.post(tensor)
        if self._block is not None:
            self._block.append(work)
        return work

    def _channel(self, call: str, device: torch.device, kind: str, sends: bool, peer: int, tag: int) -> Channel:
        if sum(1 for k in self._channels if k[:3] == (kind, sends, peer)) >= MOST_TAGS:
            refuse(call, f"tag {tag} with rank {peer}: {MOST_TAGS} different tags are in use with it already, and each has a connection "
                         "of its own; use fewer tags")
        pair = (self._rank, peer) if sends else (peer, self._rank)
        words = f"{self._words(call)} {'to' if sends else 'from'} rank {peer}" + (f" with tag {tag}" if tag else "")
        key = f"{kind}/{pair[0]}>{pair[1]}/{tag}"
        return Channel(words, sends, lambda: self._meet(key, 0 if sends else 1, 2, device, words),
                       (lambda: None) if kind == "cpu" else lambda: now(device))

    # ---- several calls as one

    def _start_coalescing(self, device: Any = None) -> None:
        self._block = []

    def _end_coalescing(self, device: Any = None) -> Work:
        works, self._block = self._block or [], None
        return ManyWorks(works)

    # ---- parts of it

    def split_group(self, ranks: Sequence[int], timeout: Optional[datetime.timedelta] = None, opts: Any = None,
                    group_name: Optional[str] = None, group_desc: Optional[str] = None, device_types: Any = None) -> Any:
        """A group of these ranks of mine, by the library's own split: every rank calls it, each
        with the ranks of its part. A rank that is not among them gets None."""
        ranks = sorted(ranks)
        mine = self._rank in ranks
        name = group_name or f"{self._name}:split:{self._calls}:{ranks}"
        part = ProcessGroup(dist.PrefixStore(f"{name}/", self._store), ranks.index(self._rank) if mine else 0, len(ranks),
                            timeout or self._timeout, name, opts or self.options)
        part._set_group_desc(group_desc or "undefined")
        for kind, lane in self._lanes.items():
            with lane.guard(), translated():
                comm = lane.comm.split(ranks[0] if mine else None)
            if comm is not None:
                part._lanes[kind] = part._adopt(comm, lane)
        return part if mine else None

    splitGroup = split_group

    def _adopt(self, comm: Communicator, lane: Any) -> Any:
        words, seconds = f"group {self._name}", self._seconds
        return HostLane(comm, words, seconds) if isinstance(lane, HostLane) else CudaLane(comm, lane.device, words, seconds)

    def perform_nocolor_split(self, device: Any) -> None:
        """New groups are not made by splits unless split_group is called."""

    def eager_connect_single_device(self, device: torch.device) -> None:
        """The communicator of that device, now rather than with the first call."""
        if device.type not in self._lanes:
            self._open("eager_connect_single_device", device)

    # ---- its end

    def shutdown(self) -> None:
        """After all that was begun. destroy_process_group calls it."""
        self._end("close")

    def abort(self) -> None:
        """At once: what runs fails, and peers that wait for this rank are told."""
        self._end("abort")

    def _end(self, verb: str) -> None:
        self._gone = True
        for channel in self._channels.values():
            channel.end(verb)
        for lane in self._lanes.values():
            if lane.comm._handle.value is not None:
                getattr(lane, verb)()
        self._channels.clear()

    # ---- names of PyTorch before 2.13

    _allgather_base = all_gather_into_tensor = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single


def create(dist_opts: Any, backend_options: Any = None) -> ProcessGroup:
    """What torch.distributed calls to make a group."""
    if not hasattr(lib, "rcclxStreamWait"):
        from .._library import path
        raise InvalidUsage(f"rcclx: {path} is too old for rcclx.torch: it has no rcclxStreamWait; build a newer one, or point "
                           "RCCLX_LIBRARY at it")
    return ProcessGroup(dist_opts.store, dist_opts.group_rank, dist_opts.group_size, dist_opts.timeout, dist_opts.group_id,
                        backend_options)
