"""Communicator: a rank's way to the others."""
from __future__ import annotations

import ctypes
import functools
import operator
import weakref
from typing import Any, ContextManager, Dict, Optional, Tuple

from . import _arrays, _stream
from ._arrays import View
from ._errors import InvalidArgument, InvalidUsage
from ._library import UniqueId, check, dump, lib, path
from ._stream import settle

OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
BOOL_OPS = ("prod", "max", "min")
NO_COLOR = -1


def _whole(name: str, value: Any, low: int, high: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{name}: {value!r} is no whole number") from None
    if not low <= number <= high:
        raise InvalidArgument(f"{name}: {number} is outside {low}..{high}")
    return number


def unique_id() -> bytes:
    """128 bytes, made by one process and handed to all ranks of one new communicator."""
    made = UniqueId()
    check(lib.ncclGetUniqueId(ctypes.byref(made)))
    return bytes(made)


def _destroy(handle: ctypes.c_void_p) -> None:
    lib.ncclCommDestroy(handle)
    handle.value = None


class Communicator:
    """One rank of a team of `size` ranks that call the same operations in the same order.

        with rcclx.Communicator.from_env() as comm:      # under torchrun, mpirun, srun, rcclx run
            comm.all_reduce(x)                           # x is the sum now, on every rank

    Arrays are those of NumPy, PyTorch, CuPy, or anything with __array_interface__,
    __cuda_array_interface__ or __dlpack__; contiguous in C order; of int8, uint8,
    int32, uint32, int64, uint64, float16, bfloat16, float32, float64, float8_e4m3fn,
    float8_e5m2, or bool (not for sum and avg). `out` has the type of the input.

    On the host a call without stream returns when the result is there. stream= is a
    Stream; on GPUs a handle (int) or what has .cuda_stream or .ptr, without it the
    default stream, and the call returns when the operation is queued.

    Errors of all operations: InvalidArgument for an array or a number that makes no
    sense (the communicator stays usable), InvalidUsage when the ranks' calls differ
    or the communicator is gone, RemoteError when a peer is.

    One thread at a time may use a communicator; abort() may come from any.
    """

    def __init__(self, nranks: int, rank: int, unique_id: bytes, device: Optional[str] = None) -> None:
        """Rank `rank` (0 to nranks - 1) of `nranks`; all call it together, with the same
        128 bytes of unique_id(). It returns when all arrived.

        device: "host", "cuda", "hip", "emu", "auto"; None is "auto": what RCCLX_DEVICE
        says, else the best there is. Several ranks of one thread are made inside one
        group().
        """
        if not isinstance(unique_id, bytes) or len(unique_id) != ctypes.sizeof(UniqueId):
            raise InvalidArgument("unique_id: pass the 128 bytes that rcclx.unique_id() gave on one rank")
        nranks = _whole("nranks", nranks, 1, 2**31 - 1)
        rank = _whole("rank", rank, 0, nranks - 1)
        name = None if device is None else str(device).encode()
        handle = ctypes.c_void_p()
        self._adopt(handle)
        settle(lib.rcclxCommInitRankDevice(ctypes.byref(handle), nranks, UniqueId.from_buffer_copy(unique_id), rank, name, None),
               handle)

    @classmethod
    def from_env(cls) -> Communicator:
        """All processes of the job, as torchrun, `rcclx run`, Slurm, Open MPI, MPICH or PMIx
        describe it in the environment; rank 0 of 1 without any of them. On GPUs choose the
        device first, as with torch.cuda.set_device(local_rank)."""
        self = cls.__new__(cls)
        handle = ctypes.c_void_p()
        self._adopt(handle)
        settle(lib.rcclxCommInitEnv(ctypes.byref(handle), None), handle)
        return self

    def _adopt(self, handle: ctypes.c_void_p) -> None:
        self._handle = handle
        self._facts: Optional[Tuple[int, int, bool]] = None
        self._end = weakref.finalize(self, _destroy, handle)
        _stream.keep(None, self, handle)  # inside a group the library writes the handle at its end

    @property
    def _comm(self) -> ctypes.c_void_p:
        if not self._handle.value:
            raise InvalidUsage("this communicator was destroyed or aborted; make a new one")
        return self._handle

    def _known(self) -> Tuple[int, int, bool]:
        """Rank, size, and whether its data are in GPUs' memory: asked once."""
        comm = self._comm
        if not self._facts:
            told: Dict[str, Any] = dump("comm", comm, False)
            self._facts = (told["rank"], told["ranks"], told["device"] != "host")
        return self._facts

    @property
    def rank(self) -> int:
        """0 to size - 1."""
        return self._known()[0]

    @property
    def size(self) -> int:
        return self._known()[1]

    # ---- its life

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        """destroy(); after an exception abort(), so that the peers learn of it."""
        if self._handle.value and kind is not None:
            self.abort()
        else:
            self.destroy()

    def finalize(self) -> None:
        """Wait until everything queued is done on this rank and tell the peers. Only
        destroy() and abort() may follow."""
        comm = self._comm
        settle(lib.ncclCommFinalize(comm), comm)

    def destroy(self) -> None:
        """Free it, finalizing first. Once is enough; more is fine."""
        if self._end.detach() and self._handle.value:
            status = lib.ncclCommDestroy(self._handle)
            self._handle.value = None
            check(status)

    def abort(self) -> None:
        """Stop whatever runs, on this rank only, and free it; within a second, from any
        thread. Peers that wait for this rank get RemoteError."""
        if self._end.detach() and self._handle.value:
            status = lib.ncclCommAbort(self._handle)
            self._handle.value = None
            check(status)

    def split(self, color: Optional[int], key: int = 0) -> Optional[Communicator]:
        """Ranks of one color (0 or more) form a communicator, ordered by key, then by rank.
        All ranks call it; one with color None gets None."""
        comm = self._comm
        number = NO_COLOR if color is None else _whole("color", color, 0, 2**31 - 1)
        key = _whole("key", key, -2**31, 2**31 - 1)
        part = Communicator.__new__(Communicator)
        handle = ctypes.c_void_p()
        part._adopt(handle)
        settle(lib.ncclCommSplit(comm, number, key, ctypes.byref(handle), None), comm)
        return None if color is None else part

    def dump(self, text: bool = False) -> Any:
        """What is inside: rank, device, state, calls so far, peers and the ways to them. A
        dict, or words for people."""
        return dump("comm", self._comm, text)

    def low_precision(self, name: str, min_bytes: int = 0) -> None:
        """From here on operations on float32, bfloat16 and float16 of min_bytes bytes or more
        send a byte an element, and a scale every 32: "int8" or "fp8"; "off" ends it. 0 leaves
        the size to the library (on the host: never). Sums are taken in float32. Every rank
        calls it, with the same arguments, between the same operations. InvalidUsage where
        the library is too old to have it."""
        comm = self._comm
        if not hasattr(lib, "rcclxCommSetLowPrecision"):
            raise InvalidUsage(f"low_precision: {path} has no rcclxCommSetLowPrecision; build a newer library")
        size = _whole("min_bytes", min_bytes, 0, 2**63 - 1)
        settle(lib.rcclxCommSetLowPrecision(comm, str(name).encode(), size), comm)

    # ---- what all operations share

    @staticmethod
    def group() -> ContextManager[None]:
        """The same as rcclx.group()."""
        return _stream.group()

    def _view(self, x: Any, name: str, queue: Optional[int], write: bool = False) -> View:
        v = _arrays.view(x, name, queue)
        if v.on_gpu and not self._known()[2]:
            raise InvalidArgument(f"{name}: it is in a GPU's memory, and this communicator is on the host; make one on the GPU "
                                  "(device=, RCCLX_DEVICE), or pass a copy in host memory")
        if write and not v.writable:
            raise InvalidArgument(f"{name}: it is read-only and would receive the result; pass one that can be written")
        return v

    def _pair(self, x: Any, out: Any, queue: Optional[int], times_in: int, times_out: int) -> Tuple[View, View, int]:
        """Views of input and output, and the count of the smaller parts: `times_in` of them
        are in x, `times_out` in out."""
        a, b = self._view(x, "x", queue), self._view(out, "out", queue, write=True)
        count = a.elements // times_in
        if b.dtype != a.dtype:
            raise InvalidArgument(f"out: its elements are {b.dtype}, those of x {a.dtype}; they must be of one type")
        if count * times_in != a.elements:
            raise InvalidArgument(f"x: {a.elements} elements cannot be divided among {times_in} ranks")
        if b.elements != count * times_out:
            raise InvalidArgument(f"out: it has {b.elements} elements; {count * times_out} are needed for x of {a.elements}")
        return a, b, count

    def _out(self, x: Any, out: Any, queue: Optional[int], times: int, parts: int) -> Any:
        """out, or a new array: x's first axis `times` as long, or 1/parts."""
        if out is not None:
            return out
        shape = self._view(x, "x", queue).shape
        first, rest = (shape[0], shape[1:]) if shape else (1, ())
        if first % parts:
            raise InvalidArgument(f"x: its first axis has {first} elements, which cannot be divided among {parts} ranks")
        return _arrays.new_like(x, (first * times // parts,) + rest)

    @staticmethod
    def _op(op: str, v: View) -> int:
        if op not in OPS:
            raise InvalidArgument(f"op: {op!r}; there are {', '.join(OPS)}")
        if v.dtype == "bool" and op not in BOOL_OPS:
            raise InvalidArgument(f"op: {op} of bool would not be a bool; max is 'or', min is 'and'")
        return OPS[op]

    def _root(self, root: Any, name: str = "root") -> int:
        return _whole(name, root, 0, self.size - 1)

    def _done(self, status: int, stream: Any, things: Any) -> None:
        _stream.keep(stream, things, self._handle)
        settle(status, self._handle)

    # ---- operations

    def all_reduce(self, x: Any, op: str = "sum", out: Any = None, stream: Any = None) -> Any:
        """out[i] = op over ranks of x[i], on all ranks, the same bits everywhere.

        op: "sum", "prod", "max", "min", "avg". Without out the result is in x. out has as
        many elements as x. Returns out, or x.
        """
        queue = _stream.handle_of(stream)
        out = x if out is None else out
        a, b, count = self._pair(x, out, queue, 1, 1)
        self._done(lib.ncclAllReduce(a.pointer, b.pointer, count, a.nccl, self._op(op, a), self._comm, queue), stream, (a, b))
        return out

    def reduce(self, x: Any, op: str = "sum", root: int = 0, out: Any = None, stream: Any = None) -> Any:
        """As all_reduce, but the root alone receives: in out, or without it in x. The others'
        x is left as it is and their out unused. Returns the result on the root, else None."""
        queue = _stream.handle_of(stream)
        root = self._root(root)
        out = x if out is None else out
        a = self._view(x, "x", queue)
        b = self._pair(x, out, queue, 1, 1)[1] if self.rank == root else None
        there = b.pointer if b else None
        self._done(lib.ncclReduce(a.pointer, there, a.elements, a.nccl, self._op(op, a), root, self._comm, queue), stream, (a, b))
        return out if b else None

    def broadcast(self, x: Any, root: int = 0, out: Any = None, stream: Any = None) -> Any:
        """out = the root's x, on all ranks. Without out it comes into x; with out the x of the
        others is not looked at and may be None. Returns out, or x."""
        queue = _stream.handle_of(stream)
        root = self._root(root)
        out = x if out is None else out
        if self.rank == root:
            a, b, count = self._pair(x, out, queue, 1, 1)
        else:
            a = b = self._view(out, "x" if out is x else "out", queue, write=True)
        self._done(lib.ncclBroadcast(a.pointer, b.pointer, b.elements, b.nccl, root, self._comm, queue), stream, (a, b))
        return out

    def all_gather(self, x: Any, out: Any = None, stream: Any = None) -> Any:
        """out = the x of all ranks in rank order, on all ranks: size times as many elements.

        Without out a new array, x's first axis size times as long ((k, m) gives
        (size * k, m)). In place: x is the rank's own part of out. Returns out.
        """
        queue = _stream.handle_of(stream)
        out = self._out(x, out, queue, self.size, 1)
        a, b, count = self._pair(x, out, queue, 1, self.size)
        self._done(lib.ncclAllGather(a.pointer, b.pointer, count, a.nccl, self._comm, queue), stream, (a, b))
        return out

    def reduce_scatter(self, x: Any, op: str = "sum", out: Any = None, stream: Any = None) -> Any:
        """Reduce x over ranks; rank r keeps the r-th of size equal parts.

        Without out a new array, x's first axis divided by size ((size * k, m) gives
        (k, m)). In place: out is the rank's own part of x. Returns out.
        """
        queue = _stream.handle_of(stream)
        out = self._out(x, out, queue, 1, self.size)
        a, b, count = self._pair(x, out, queue, self.size, 1)
        self._done(lib.ncclReduceScatter(a.pointer, b.pointer, count, a.nccl, self._op(op, a), self._comm, queue), stream, (a, b))
        return out

    def all_to_all(self, x: Any, out: Any = None, stream: Any = None) -> Any:
        """Part j of my x becomes part rank of rank j's out; size equal parts each.

        Without out a new array of x's shape; out may be x itself. Returns out.
        """
        queue = _stream.handle_of(stream)
        out = self._out(x, out, queue, self.size, self.size)
        a, b, count = self._pair(x, out, queue, self.size, self.size)
        self._done(lib.ncclAlltoAll(a.pointer, b.pointer, count, a.nccl, self._comm, queue), stream, (a, b))
        return out

    def send(self, x: Any, peer: int, stream: Any = None) -> None:
        """x to rank peer, which calls recv with as many elements of the same type. Sends and
        receives that need one another go into one group()."""
        queue = _stream.handle_of(stream)
        a = self._view(x, "x", queue)
        self._done(lib.ncclSend(a.pointer, a.elements, a.nccl, self._root(peer, "peer"), self._comm, queue), stream, a)

    def recv(self, out: Any, peer: int, stream: Any = None) -> Any:
        """What rank peer sends, into out. Returns out."""
        queue = _stream.handle_of(stream)
        b = self._view(out, "out", queue, write=True)
        self._done(lib.ncclRecv(b.pointer, b.elements, b.nccl, self._root(peer, "peer"), self._comm, queue), stream, b)
        return out

    def barrier(self, stream: Any = None) -> None:
        """No rank is past it before all are at it. On a stream it is the stream that waits."""
        queue = _stream.handle_of(stream)
        byte = ctypes.c_uint8()
        there = _byte_of_gpu() if self._known()[2] else ctypes.addressof(byte)
        self._done(lib.ncclAllReduce(there, there, 1, 1, OPS["max"], self._comm, queue), stream, byte)


@functools.lru_cache(maxsize=None)
def _byte_of_gpu() -> Optional[int]:
    """One does for all barriers: nobody looks at it."""
    pointer = ctypes.c_void_p()
    check(lib.ncclMemAlloc(ctypes.byref(pointer), 1))
    return pointer.value
