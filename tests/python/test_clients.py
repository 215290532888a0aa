"""The calling sequences of programs that open libnccl.so.2 themselves, on host memory:
vLLM's wrapper (ctypes, ids by value, raw streams) and CuPy's cupy.cuda.nccl."""
import ctypes
import multiprocessing
import os

import numpy as np

import rcclx
from tap import main, test

LIBRARY = os.path.join(os.path.dirname(os.path.realpath(rcclx.library_path)), "libnccl.so.2")
FLOAT, SUM, MAX = 7, 0, 2


def ranks(work, n):
    """work(rank, n, pipe ends of all) in n processes; the results."""
    context = multiprocessing.get_context("spawn")
    queue, ids = context.Queue(), [context.Queue() for _ in range(n)]
    processes = [context.Process(target=_child, args=(work, r, n, queue, ids)) for r in range(n)]
    for p in processes:
        p.start()
    results = dict(queue.get(timeout=60) for _ in range(n))
    for p in processes:
        p.join(10)
        assert p.exitcode == 0, p.exitcode
    return [results[r] for r in range(n)]


def _child(work, rank, n, queue, ids):
    queue.put((rank, work(rank, n, ids)))


# ---- as a wrapper of ctypes does it

class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def wrapper():
    """Functions with the types that such wrappers give them: handles and streams are void pointers, enums int."""
    lib, p, n, i = ctypes.CDLL(LIBRARY), ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    types = {
        "ncclGetVersion": [ctypes.POINTER(i)], "ncclGetUniqueId": [ctypes.POINTER(UniqueId)],
        "ncclCommInitRank": [ctypes.POINTER(p), i, UniqueId, i],
        "ncclAllReduce": [p, p, n, i, i, p, p], "ncclReduce": [p, p, n, i, i, i, p, p], "ncclAllGather": [p, p, n, i, p, p],
        "ncclReduceScatter": [p, p, n, i, i, p, p], "ncclBroadcast": [p, p, n, i, i, p, p], "ncclSend": [p, n, i, i, p, p],
        "ncclRecv": [p, n, i, i, p, p], "ncclGroupStart": [], "ncclGroupEnd": [], "ncclCommDestroy": [p],
        "ncclCommWindowRegister": [p, p, n, ctypes.POINTER(p), i], "ncclCommWindowDeregister": [p, p],
        "rcclxStreamCreate": [ctypes.POINTER(p)], "rcclxStreamSynchronize": [p], "rcclxStreamDestroy": [p],
    }
    for name, arguments in types.items():
        function = getattr(lib, name)
        function.argtypes, function.restype = arguments, i
    lib.ncclGetErrorString.argtypes, lib.ncclGetErrorString.restype = [i], ctypes.c_char_p

    def must(status):
        assert status == 0, lib.ncclGetErrorString(status)
    return lib, must


def share(rank, n, ids, made):
    """Rank 0's bytes, on all."""
    if rank == 0:
        for q in ids[1:]:
            q.put(made)
        return made
    return ids[rank].get(timeout=60)


def vllm(rank, n, ids):
    lib, must = wrapper()
    version, unique, comm, stream = ctypes.c_int(), UniqueId(), ctypes.c_void_p(), ctypes.c_void_p()
    must(lib.ncclGetVersion(ctypes.byref(version)))
    if rank == 0:
        must(lib.ncclGetUniqueId(ctypes.byref(unique)))
    blob = share(rank, n, ids, bytes(unique.internal))
    ctypes.memmove(ctypes.byref(unique.internal), blob, 128)
    must(lib.ncclCommInitRank(ctypes.byref(comm), n, unique, rank))
    must(lib.rcclxStreamCreate(ctypes.byref(stream)))  # stands for torch.cuda.current_stream().cuda_stream
    raw = ctypes.c_void_p(stream.value)

    def at(x):
        return ctypes.c_void_p(x.ctypes.data)
    x, out = np.full(1000, rank + 1, np.float32), np.empty(1000, np.float32)
    must(lib.ncclAllReduce(at(x), at(out), x.size, FLOAT, SUM, comm, raw))
    must(lib.rcclxStreamSynchronize(raw))
    assert (out == n * (n + 1) / 2).all()
    whole, part = np.empty(1000 * n, np.float32), np.empty(1000, np.float32)
    must(lib.ncclAllGather(at(x), at(whole), x.size, FLOAT, comm, raw))
    must(lib.ncclReduceScatter(at(whole), at(part), part.size, FLOAT, SUM, comm, raw))
    must(lib.ncclGroupStart())
    must(lib.ncclSend(at(x), x.size, FLOAT, (rank + 1) % n, comm, raw))
    must(lib.ncclRecv(at(out), x.size, FLOAT, (rank - 1) % n, comm, raw))
    must(lib.ncclGroupEnd())
    must(lib.ncclBroadcast(at(x), at(x), x.size, FLOAT, n - 1, comm, raw))
    must(lib.rcclxStreamSynchronize(raw))
    assert (whole.reshape(n, -1)[:, 0] == np.arange(1, n + 1)).all() and (part == n * (rank + 1)).all()
    assert (out == (rank - 1) % n + 1).all() and (x == n).all()
    window = ctypes.c_void_p()
    must(lib.ncclCommWindowRegister(comm, at(x), x.nbytes, ctypes.byref(window), 1))
    if window.value:
        must(lib.ncclCommWindowDeregister(comm, window))
    must(lib.rcclxStreamDestroy(raw))
    must(lib.ncclCommDestroy(comm))
    return version.value


@test
def vllms_wrapper():
    assert ranks(vllm, 2) == [22809] * 2


# ---- as CuPy does it: an id is a tuple of 128 numbers, a communicator an object with methods

class Nccl:
    """Calls of cupy.cuda.nccl.NcclCommunicator; enums and pointers are plain numbers there."""

    def __init__(self):
        self.lib = ctypes.CDLL(LIBRARY)
        self.comm = ctypes.c_void_p()

    def must(self, status):
        assert status == 0, status

    def get_unique_id(self):
        unique = UniqueId()
        self.must(self.lib.ncclGetUniqueId(ctypes.byref(unique)))
        return tuple(unique.internal[i] for i in range(128))

    def init(self, n, ident, rank):
        unique = UniqueId()
        for i in range(128):
            unique.internal[i] = ident[i]
        self.lib.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
        self.must(self.lib.ncclCommInitRank(ctypes.byref(self.comm), n, unique, rank))

    def number(self, function):
        out = ctypes.c_int(-1)
        self.must(getattr(self.lib, function)(self.comm, ctypes.byref(out)))
        return out.value


def cupy(rank, n, ids):
    c = Nccl()
    c.init(n, share(rank, n, ids, c.get_unique_id() if rank == 0 else None), rank)
    facts = c.number("ncclCommUserRank"), c.number("ncclCommCount"), c.number("ncclCommGetAsyncError")
    x, y = np.full(77, rank + 1.0, np.float32), np.zeros(77, np.float32)
    px, py, size = ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_size_t(77)
    null = ctypes.c_void_p(0)
    c.must(c.lib.ncclAllReduce(px, py, size, FLOAT, SUM, c.comm, null))
    assert (y == n * (n + 1) / 2).all()
    c.must(c.lib.ncclReduce(px, py, size, FLOAT, MAX, 0, c.comm, null))
    assert rank or (y == n).all()
    c.must(c.lib.ncclBcast(px, size, FLOAT, 0, c.comm, null))
    assert (x == 1).all()
    c.must(c.lib.ncclBroadcast(px, py, size, FLOAT, 0, c.comm, null))
    c.must(c.lib.ncclGroupStart())
    c.must(c.lib.ncclSend(px, size, FLOAT, (rank + 1) % n, c.comm, null))
    c.must(c.lib.ncclRecv(py, size, FLOAT, (rank - 1) % n, c.comm, null))
    c.must(c.lib.ncclGroupEnd())
    c.must(c.lib.ncclCommFinalize(c.comm))
    c.must(c.lib.ncclCommDestroy(c.comm))
    return facts


@test
def cupys_module():
    assert ranks(cupy, 2) == [(0, 2, 0), (1, 2, 0)]


@test
def all_devices_of_one_process():
    """NcclCommunicator.initAll, and groups of calls, one for each."""
    c = Nccl()
    comms = (ctypes.c_void_p * 2)()
    c.must(c.lib.ncclCommInitAll(comms, 2, (ctypes.c_int * 2)(0, 0)))
    data = [np.full(9, r + 1.0, np.float32) for r in range(2)]
    c.must(c.lib.ncclGroupStart())
    for comm, x in zip(comms, data):
        p = ctypes.c_void_p(x.ctypes.data)
        c.must(c.lib.ncclAllReduce(p, p, ctypes.c_size_t(9), FLOAT, SUM, ctypes.c_void_p(comm), ctypes.c_void_p(0)))
    c.must(c.lib.ncclGroupEnd())
    assert all((x == 3).all() for x in data)
    for comm in comms:
        c.must(c.lib.ncclCommAbort(ctypes.c_void_p(comm)))


if __name__ == "__main__":
    main()
