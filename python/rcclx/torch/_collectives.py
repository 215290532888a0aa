"""The collective operations.

    check the tensors --> the route of their device --> what to call, in C --> run it there

A method's arguments are either lists of tensors with an options object, or a tensor
with root, op and timeout, as PyTorch's own groups take both.
"""
from __future__ import annotations

import ctypes
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
from torch._C._distributed_c10d import (AllreduceOptions, BarrierOptions, BroadcastOptions, GatherOptions, ReduceOptions,
                                        ReduceScatterOptions, ScatterOptions)

from .._library import lib
from ._errors import failure, refuse
from ._group import Call, Group, grouped, is_sync, options_of
from ._host import HostRoute
from ._tensors import alike, dense, flat, fold, neighbours, one, pack, reduction, sizes, splits, unpack, why_not, wire
from ._work import ManyWorks, Work


class Collectives(Group):
    # ---- all-reduce, reduce, broadcast

    def allreduce(self, tensors: Any, opts: Any = None, op: Any = None, timeout: Any = None) -> Work:
        if not isinstance(opts, AllreduceOptions):
            opts = options_of(AllreduceOptions, reduceOp=opts if op is None else op, timeout=timeout)
        tensor = one("all_reduce", tensors)
        if not dense(tensor):
            refuse("all_reduce", why_not(tensor))
        how = reduction("all_reduce", opts.reduceOp, tensor.dtype)
        route = self._route("all_reduce", tensor)
        if how.scaled:
            tensor.mul_(how.scale)
        if how.fold is not None:
            return self._folded("all_reduce", route, opts, how.fold, tensor, tensor)
        pointer, count, handle = tensor.data_ptr(), tensor.numel() * how.units, route.handle
        if tensor.is_cpu and self._block is None and is_sync(opts):  # what _run does, shorter: the commonest call
            self._limit(route, opts)
            status = lib.ncclAllReduce(pointer, pointer, count, how.kind, how.op, handle, None)
            if status:
                raise failure(status)
            return Work([tensor])

        def issue(stream: Optional[int]) -> int:
            status: int = lib.ncclAllReduce(pointer, pointer, count, how.kind, how.op, handle, stream)
            return status
        return self._run("all_reduce", route, opts, issue, (tensor,), [tensor])

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
            single = options_of(AllreduceOptions, reduceOp=opts.reduceOp, timeout=opts.timeout, asyncOp=not is_sync(opts))
            return ManyWorks([self.allreduce([tensor], single) for tensor in tensors])
        route = self._route(call, tensors[0])
        if how.scaled:
            for tensor in tensors:
                tensor.mul_(how.scale)

        def member(tensor: torch.Tensor) -> Call:
            pointer, count = tensor.data_ptr(), tensor.numel() * how.units
            return lambda stream: lib.ncclAllReduce(pointer, pointer, count, how.kind, how.op, route.handle, stream)
        return self._run(call, route, opts, grouped([member(t) for t in tensors]), tensors, list(tensors))

    def reduce(self, tensors: Any, opts: Any = None, root: int = 0, op: Any = None, timeout: Any = None) -> Work:
        if not isinstance(opts, ReduceOptions):
            opts = options_of(ReduceOptions, rootRank=root if opts is None else opts, reduceOp=op, timeout=timeout)
        tensor = one("reduce", tensors)
        if not dense(tensor):
            refuse("reduce", why_not(tensor))
        how = reduction("reduce", opts.reduceOp, tensor.dtype)
        route, root = self._route("reduce", tensor), opts.rootRank
        mine = tensor if not how.scaled else tensor * how.scale
        if how.fold is not None:
            return self._folded("reduce", route, opts, how.fold, mine, tensor if root == self._rank else None)
        there = tensor.data_ptr() if root == self._rank else None
        pointer, count = mine.data_ptr(), mine.numel() * how.units
        return self._run("reduce", route, opts,
                         lambda stream: lib.ncclReduce(pointer, there, count, how.kind, how.op, root, route.handle, stream),
                         (mine, tensor), [tensor])

    def broadcast(self, tensors: Any, opts: Any = None, root: int = 0, timeout: Any = None) -> Work:
        if not isinstance(opts, BroadcastOptions):
            opts = options_of(BroadcastOptions, rootRank=root if opts is None else opts, timeout=timeout)
        tensor = one("broadcast", tensors)
        if not dense(tensor):
            refuse("broadcast", why_not(tensor))
        route, root, (kind, units) = self._route("broadcast", tensor), opts.rootRank, wire(tensor)
        pointer, count = tensor.data_ptr(), tensor.numel() * units
        return self._run("broadcast", route, opts,
                         lambda stream: lib.ncclBroadcast(pointer, pointer, count, kind, root, route.handle, stream),
                         (tensor,), [tensor])

    def _folded(self, call: str, route: Any, opts: Any, how: Any, tensor: torch.Tensor, out: Optional[torch.Tensor]) -> Work:
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
        return self._run(call, route, opts,
                         lambda stream: lib.ncclAllGather(source.data_ptr(), parts.data_ptr(), count, 1, route.handle, stream),
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
        route, (kind, units) = self._route(call, tensor), wire(tensor)
        if any(out.numel() != tensor.numel() for out in outputs):
            return self._gather_uneven(call, route, opts, outputs, tensor)
        count = tensor.numel() * units
        direct = neighbours(outputs)
        whole = outputs[0] if direct else tensor.new_empty(self._size * tensor.numel())
        return self._run(call, route, opts,
                         lambda stream: lib.ncclAllGather(tensor.data_ptr(), whole.data_ptr(), count, kind, route.handle, stream),
                         (tensor, whole, *outputs), list(outputs), None if direct else lambda: unpack(whole, outputs))

    def _gather_uneven(self, call: str, route: Any, opts: Any, outputs: Sequence[torch.Tensor], tensor: torch.Tensor) -> Work:
        """A broadcast from each rank, all at once."""
        kind, units = wire(tensor)

        def member(root: int) -> Call:
            out = outputs[root]
            source = tensor if root == self._rank else out
            return lambda stream: lib.ncclBroadcast(source.data_ptr(), out.data_ptr(), out.numel() * units, kind, root, route.handle,
                                                    stream)
        return self._run(call, route, opts, grouped([member(r) for r in range(self._size)]), (tensor, *outputs), list(outputs))

    def _gather_flat(self, call: str, route: Any, out: torch.Tensor, tensor: torch.Tensor) -> Call:
        alike(call, tensor, (tensor, out))
        sizes(call, "output", out.numel(), self._size * tensor.numel())
        kind, units = wire(tensor)
        source, target, count = tensor.data_ptr(), out.data_ptr(), tensor.numel() * units
        return lambda stream: lib.ncclAllGather(source, target, count, kind, route.handle, stream)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        call = "all_gather_into_tensor"
        route = self._route(call, input)
        return self._run(call, route, opts, self._gather_flat(call, route, output, input), (input, output), [output])

    def all_gather_single_coalesced(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None) -> Work:
        call = "all_gather_into_tensor_coalesced"
        if not inputs:
            return Work([])
        sizes(call, "the list of outputs", len(outputs), len(inputs))
        route = self._route(call, inputs[0])
        calls = [self._gather_flat(call, route, out, tensor) for out, tensor in zip(outputs, inputs)]
        return self._run(call, route, opts, grouped(calls), (*inputs, *outputs), list(outputs))

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
            opts, lists = options_of(GatherOptions, rootRank=root if opts is None else opts, timeout=timeout), [output_tensors]
        root = opts.rootRank
        outputs: Sequence[torch.Tensor] = []
        if root == self._rank:
            outputs = self._list("gather", lists)
            self._members("gather", "output", outputs)
        alike("gather", tensor, (tensor, *outputs))
        route, calls = self._route("gather", tensor), [self._send(tensor, root)]
        for rank, out in enumerate(outputs):
            sizes("gather", f"output {rank}", out.numel(), tensor.numel())
            calls.append(self._receive(out, rank))
        return self._run("gather", route, opts, grouped([c(route) for c in calls]), (tensor, *outputs), list(outputs))

    def scatter(self, output_tensors: Any, input_tensors: Any = None, opts: Any = None, root: int = 0, timeout: Any = None,
                output_tensor: Any = None) -> Work:
        tensor, lists = one("scatter", output_tensors if output_tensor is None else output_tensor), input_tensors
        if not isinstance(opts, ScatterOptions):
            opts, lists = options_of(ScatterOptions, rootRank=root if opts is None else opts, timeout=timeout), [input_tensors]
        root = opts.rootRank
        inputs: Sequence[torch.Tensor] = []
        if root == self._rank:
            inputs = self._list("scatter", lists)
            self._members("scatter", "input", inputs)
        alike("scatter", tensor, (tensor, *inputs))
        route, calls = self._route("scatter", tensor), [self._receive(tensor, root)]
        for rank, part in enumerate(inputs):
            sizes("scatter", f"input {rank}", part.numel(), tensor.numel())
            calls.append(self._send(part, rank))
        return self._run("scatter", route, opts, grouped([c(route) for c in calls]), (tensor, *inputs), [tensor])

    # halves of messages between ranks of the whole group, for groups of calls

    @staticmethod
    def _send(tensor: torch.Tensor, peer: int) -> Callable[[Any], Call]:
        (kind, units), pointer = wire(tensor), tensor.data_ptr()
        return lambda route: lambda stream: lib.ncclSend(pointer, tensor.numel() * units, kind, peer, route.handle, stream)

    @staticmethod
    def _receive(tensor: torch.Tensor, peer: int) -> Callable[[Any], Call]:
        (kind, units), pointer = wire(tensor), tensor.data_ptr()
        return lambda route: lambda stream: lib.ncclRecv(pointer, tensor.numel() * units, kind, peer, route.handle, stream)

    # ---- reduce-scatters

    def reduce_scatter(self, output_tensors: Any, input_tensors: Any = None, opts: Any = None, op: Any = None, timeout: Any = None,
                       input_tensor: Any = None) -> Work:
        call = "reduce_scatter"
        inputs = input_tensors if input_tensor is None else input_tensor
        out = one(call, output_tensors)
        if not isinstance(opts, ReduceScatterOptions):
            opts = options_of(ReduceScatterOptions, reduceOp=opts if op is None else op, timeout=timeout)
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
        route = self._route(call, out)
        return self._run(call, route, opts, *self._scatter_flat(call, route, opts, out, whole))

    def _scatter_flat(self, call: str, route: Any, opts: Any, out: torch.Tensor, whole: torch.Tensor) -> Tuple[Any, ...]:
        """What _run wants for one."""
        alike(call, out, (out, whole))
        sizes(call, "input", whole.numel(), self._size * out.numel())
        how = reduction(call, opts.reduceOp, out.dtype)
        if how.scaled:
            whole = whole * how.scale
        source, target = whole.data_ptr(), out.data_ptr()
        if how.fold is None:
            count = out.numel() * how.units
            return (lambda stream: lib.ncclReduceScatter(source, target, count, how.kind, how.op, route.handle, stream),
                    (whole, out), [out])
        parts = whole.new_empty((self._size, out.numel()))
        nbytes, folder = out.numel() * out.element_size(), how.fold
        return (lambda stream: lib.ncclAlltoAll(source, parts.data_ptr(), nbytes, 1, route.handle, stream),
                (whole, parts, out), [out], lambda: fold(folder, parts, out))

    def _scatter_uneven(self, call: str, opts: Any, out: torch.Tensor, inputs: Sequence[torch.Tensor]) -> Work:
        """A reduce to each rank, all at once."""
        how = reduction(call, opts.reduceOp, out.dtype)
        if how.fold is not None:
            refuse(call, f"parts of different sizes of {out.dtype}; make them of one size, or convert them")
        parts = inputs if not how.scaled else [part * how.scale for part in inputs]
        route = self._route(call, out)

        def member(root: int) -> Call:
            source, count = parts[root].data_ptr(), parts[root].numel() * how.units
            target = out.data_ptr() if root == self._rank else None
            return lambda stream: lib.ncclReduce(source, target, count, how.kind, how.op, root, route.handle, stream)
        return self._run(call, route, opts, grouped([member(r) for r in range(self._size)]), (out, *parts), [out])

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
        route = self._route(call, outputs[0])
        parts = [self._scatter_flat(call, route, opts, out, whole) for out, whole in zip(outputs, inputs)]
        return self._run(call, route, opts, grouped([p[0] for p in parts]), [t for p in parts for t in p[1]], list(outputs))

    # ---- all-to-all

    def all_to_all_single(self, output: torch.Tensor, input: torch.Tensor, output_split_sizes: Optional[Sequence[int]] = None,
                          input_split_sizes: Optional[Sequence[int]] = None, opts: Any = None, timeout: Any = None) -> Work:
        call = "all_to_all_single"
        alike(call, input, (input, output))
        route, (kind, units) = self._route(call, input), wire(input)
        source, target = input.data_ptr(), output.data_ptr()
        if not output_split_sizes and not input_split_sizes:
            sizes(call, "output", output.numel(), input.numel())
            rows, row = splits(call, "input", input, [], self._size)
            count = rows[0] * row * units
            return self._run(call, route, opts, lambda stream: lib.ncclAlltoAll(source, target, count, kind, route.handle, stream),
                             (input, output), [output])
        sends = self._table(*splits(call, "input", input, input_split_sizes or [], self._size), units)
        takes = self._table(*splits(call, "output", output, output_split_sizes or [], self._size), units)
        return self._run(call, route, opts,
                         lambda stream: lib.ncclAlltoAllv(source, *sends, target, *takes, kind, route.handle, stream),
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
        route = self._route(call, input_tensor[0])
        calls = [self._send(t, peer)(route) for peer, t in enumerate(input_tensor)]
        calls += [self._receive(t, peer)(route) for peer, t in enumerate(output_tensor)]
        return self._run(call, route, opts, grouped(calls), (*input_tensor, *output_tensor), list(output_tensor))

    # ---- barrier

    def barrier(self, opts: Any = None, timeout: Any = None) -> Work:
        """On a GPU, too, it is the caller that is past it after wait()."""
        if not isinstance(opts, BarrierOptions):
            opts = options_of(BarrierOptions, timeout=timeout if opts is None else opts)
        device = getattr(opts, "device", None) or torch.device("cpu")
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        route = self._route("barrier", torch.empty(0, device=device))
        byte = route.byte()
        pointer = byte.data_ptr()
        work = self._run("barrier", route, opts, lambda stream: lib.ncclAllReduce(pointer, pointer, 1, 1, 2, route.handle, stream),
                         (byte,), [])
        if not isinstance(route, HostRoute):
            route.wait_block(work)
        return work

    # ---- names of PyTorch before 2.13, which some programs still use

    _allgather_base = all_gather_into_tensor = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single
