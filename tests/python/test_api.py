"""The package's operations on 1 to 4 processes, against NumPy."""
import ctypes
import gc
import os
import re
import subprocess
import sys
import time
import weakref

import numpy as np

import rcclx
import tap
from arrays import Cuda, DLPack, Tensor
from tap import test

HERE = os.path.dirname(os.path.abspath(__file__))
HOST = {"RCCLX_DEVICE": "host"}
INTEGERS = ("int8", "uint8", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "float32", "float64")
SMALL = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def ranks(work, n, *args, env=HOST):
    return rcclx.run(work, n, *args, env=env, timeout=60)


def small_types():
    try:
        import ml_dtypes
    except ImportError:
        return []
    return [np.dtype(getattr(ml_dtypes, name)) for name in SMALL]


def same(x, y):
    np.testing.assert_array_equal(np.asarray(x, np.float64), np.asarray(y, np.float64))


# ---- types and operators

def all_types(comm):
    r, n = comm.rank, comm.size
    for dtype in [np.dtype(t) for t in INTEGERS + FLOATS] + small_types():
        every = [(np.arange(37) % 3 + k % 2 + 1).astype(dtype) for k in range(n)]
        stack = np.stack(every).astype(np.float64)
        wanted = {"sum": stack.sum(0), "prod": stack.prod(0), "max": stack.max(0), "min": stack.min(0), "avg": stack.mean(0)}
        if dtype.name in INTEGERS:
            wanted["avg"] = np.trunc(wanted["avg"])
        for op, value in wanted.items():
            x = every[r].copy()
            assert comm.all_reduce(x, op) is x
            same(x, value.astype(dtype))
    flags = np.array([r == 0, True, False])
    same(comm.all_reduce(flags.copy(), "max"), [True, True, False])
    same(comm.all_reduce(flags.copy(), "min"), [n == 1, True, False])


@test
def every_type_and_operator_on_1_to_4_ranks():
    for n in range(1, 5):
        ranks(all_types, n)


@test
def bfloat16_and_fp8_are_found():
    if not small_types():
        raise tap.Skip("no package ml_dtypes")


# ---- operations

def all_operations(comm):
    r, n = comm.rank, comm.size
    mine = np.arange(6, dtype=np.float32).reshape(2, 3) + 100 * r
    every = [np.arange(6, dtype=np.float32).reshape(2, 3) + 100 * k for k in range(n)]

    out = np.empty(6, np.float32)
    assert comm.all_reduce(mine, out=out) is out
    same(out, sum(every).ravel())
    same(mine, every[r])

    for root in range(n):
        x = mine.copy()
        got = comm.reduce(x, "max", root=root)
        assert (got is x) == (r == root)
        same(x, every[n - 1] if r == root else mine)
        out = np.zeros((2, 3), np.float32)
        got = comm.reduce(mine, root=root, out=out if r == root else None)
        same(out, sum(every) if r == root else 0 * mine)
        same(mine, every[r])

        x = mine.copy()
        assert comm.broadcast(x, root) is x
        same(x, every[root])
        out = np.zeros((2, 3), np.float32)
        assert comm.broadcast(mine if r == root else None, root, out=out) is out
        same(out, every[root])

    same(comm.all_gather(mine), np.concatenate(every))
    assert comm.all_gather(mine).shape == (2 * n, 3)
    assert comm.all_gather(np.array(r)).shape == (n,)
    out = np.zeros((n, 2, 3), np.float32)
    out[r] = mine
    comm.all_gather(out[r], out=out)  # in place
    same(out, every)

    whole = np.concatenate([mine + 1000 * k for k in range(n)])
    part = sum(every) + 1000 * r * n
    got = comm.reduce_scatter(whole)
    assert got.shape == (2, 3)
    same(got, part)
    comm.reduce_scatter(whole, out=whole[2 * r:2 * r + 2])  # in place
    same(whole[2 * r:2 * r + 2], part)

    x = np.array([10 * r + k for k in range(n)], np.int64)
    same(comm.all_to_all(x), [10 * k + r for k in range(n)])
    assert comm.all_to_all(x, out=x) is x
    same(x, [10 * k + r for k in range(n)])

    with rcclx.group():
        comm.send(mine, (r + 1) % n)
        got = comm.recv(np.empty_like(mine), (r - 1) % n)
    same(got, every[(r - 1) % n])
    if r + 1 < n:
        comm.send(mine[0], r + 1)  # without a group, one after the other
    if r:
        same(comm.recv(np.empty(3, np.float32), r - 1), every[r - 1][0])

    x = np.empty((0, 3), np.float32)
    assert comm.all_reduce(x) is x and comm.all_gather(x).shape == (0, 3)
    return comm.dump()["calls"]


@test
def every_operation_on_1_to_4_ranks():
    for n in range(1, 5):
        for calls in ranks(all_operations, n):
            assert calls["AllReduce"] == 2 and calls["Reduce"] == 2 * n and calls["AlltoAll"] == 2, calls


def late(comm):
    if comm.rank == 1:
        time.sleep(0.4)
    start = time.monotonic()
    comm.barrier()
    return time.monotonic() - start


@test
def nobody_passes_the_barrier_early():
    waited = ranks(late, 3)
    assert waited[0] > 0.2 and waited[2] > 0.2 and waited[1] < 0.2, waited


# ---- whose arrays

def all_protocols(comm):
    r, n = comm.rank, comm.size
    total = n * (n + 1) / 2

    def fresh(dtype="float32"):
        return np.full((3, 4), r + 1, dtype)

    for versioned in (True, False):
        for dtype in INTEGERS + FLOATS:
            x = fresh(dtype)
            comm.all_reduce(DLPack(x, versioned))
            same(x, np.full((3, 4), total))
    x = fresh()
    comm.all_reduce(DLPack(x[1:2]))  # a view: its offset counts
    same(x, [[r + 1] * 4, [total] * 4, [r + 1] * 4])

    x = fresh()
    t = Tensor(x)
    assert comm.all_reduce(t) is t
    same(x, np.full((3, 4), total))
    made = comm.all_gather(Tensor(fresh()))
    assert isinstance(made, Tensor) and made.shape == (3 * n, 4)
    same(made.x, np.repeat(np.arange(1, n + 1), 3)[:, None].repeat(4, 1))
    x = np.array([0x3f80, 0x4000, 0xbf80], np.uint16)  # 1, 2, -1
    comm.all_reduce(Tensor(x, "bfloat16"), "max")
    same(x, [0x3f80, 0x4000, 0xbf80])
    comm.all_reduce(Tensor(x, "bfloat16"), "prod")
    same(x, [0x3f80, 0x3f80 + 0x80 * n, 0xbf80 if n % 2 else 0x3f80])

    class Mine(np.ndarray):
        pass

    made = comm.all_gather(fresh().view(Mine))
    assert made.shape == (3 * n, 4)
    x = fresh()
    x.flags.writeable = False
    same(comm.all_reduce(x, out=np.empty((3, 4), np.float32)), np.full((3, 4), total))
    x = np.ones((4, 1, 3), np.float32)[:, :, :]
    comm.all_reduce(np.lib.stride_tricks.as_strided(x, (4, 1, 3), (12, 7777, 4)))  # the stride of one element is nobody's
    same(x, np.full((4, 1, 3), n))


@test
def arrays_of_other_libraries():
    for n in (1, 3):
        ranks(all_protocols, n)


# ---- streams and groups

def queued(comm):
    n = comm.size
    if comm.rank == 1:
        time.sleep(0.5)
    with rcclx.Stream() as queue:
        x = np.ones(1 << 16, np.float32)
        there = weakref.ref(x)
        comm.all_reduce(x, stream=queue)
        del x
        gc.collect()
        if comm.rank == 0:  # it waits for rank 1
            assert there() is not None and queue.query() is False
        queue.synchronize()
        gc.collect()
        assert there() is None
    with rcclx.Stream() as queue:
        for i in range(300):  # nobody but the queue holds these
            comm.all_reduce(np.full(1000, i, np.float32), stream=queue)
            made = comm.all_gather(np.full(100, comm.rank), stream=queue)
        x = np.ones(5, np.int32)
        comm.all_reduce(x, stream=queue)
        comm.all_reduce(x, stream=queue.ptr)
        gc.collect()
        queue.synchronize()
        same(x, [n * n] * 5)
        same(made, np.repeat(np.arange(n), 100))
        assert queue.query() is True
        kept = len(queue._kept)
    tap.raises(rcclx.InvalidUsage, "closed", lambda: queue.ptr)
    tap.raises(rcclx.InvalidUsage, "closed", comm.all_reduce, x, stream=queue)
    return kept


@test
def streams_keep_arrays_and_let_them_go():
    assert ranks(queued, 2) == [0, 0]


def grouped(comm):
    r, n = comm.rank, comm.size
    x, y = np.ones(3, np.float32), np.full(3, r, np.float32)
    with comm.group():
        comm.all_reduce(x)
        with comm.group():
            comm.all_reduce(y, "max")
        same(y, [r] * 3)  # not yet
    same(x, [n] * 3)
    same(y, [n - 1] * 3)

    def fails(inner):
        with comm.group():
            comm.all_reduce(x)
            with comm.group():
                comm.recv(y, (r + 1) % n)  # nobody sends
                if inner:
                    raise KeyError("inner")
            raise KeyError("outer")

    tap.raises(KeyError, "inner", fails, True)
    tap.raises(KeyError, "outer", fails, False)

    def caught():
        with comm.group():
            comm.all_reduce(x)
            try:
                with comm.group():
                    raise KeyError
            except KeyError:
                pass

    tap.raises(rcclx.InvalidUsage, "nothing of this group", caught)
    same(x, [n] * 3)  # nothing was started
    same(comm.all_reduce(x), [n * n] * 3)


@test
def groups_nest_and_drop_what_failed():
    ranks(grouped, 2)
    ranks(grouped, 3, env={**HOST, "NCCL_COMM_BLOCKING": "0"})


# ---- communicators

def divided(comm):
    r, n = comm.rank, comm.size
    part = comm.split(r % 2, key=-r)
    members = list(part.all_gather(np.array(r)))
    rest = comm.split(0 if r else None)
    assert rest is None if r == 0 else rest.size == n - 1 and rest.rank == r - 1
    part.finalize()
    part.destroy()
    return members


@test
def split_by_color_and_key():
    assert ranks(divided, 4) == [[2, 0], [3, 1], [2, 0], [3, 1]]


@test
def several_ranks_of_one_thread():
    n, name = 3, rcclx.unique_id()
    with rcclx.group():
        comms = [rcclx.Communicator(n, r, name, "host") for r in range(n)]
    assert [(c.rank, c.size) for c in comms] == [(0, n), (1, n), (2, n)]
    xs = [np.full(4, r, np.float32) for r in range(n)]
    with rcclx.group():
        for c, x in zip(comms, xs):
            c.all_reduce(x)
    for x in xs:
        same(x, [3] * 4)
    with rcclx.group():
        for c in comms:
            c.finalize()
    for c in comms:
        c.destroy()
        c.destroy()


@test
def alone_without_a_launcher():
    with rcclx.Communicator.from_env() as comm:
        assert (comm.rank, comm.size) == (0, 1)
        assert comm.dump()["state"] == "ready" and "rank 0 of 1" in comm.dump(text=True)
    assert rcclx.library_version().count(".") == 2 and rcclx.library_path
    assert rcclx.dump("process")["communicators"] == 0 and "RCCLX_DEVICE" in rcclx.dump(text=True)


def forgotten(comm):
    for _ in range(20):
        comm.split(0).all_reduce(np.ones(1))
    gc.collect()
    comm.barrier()
    return rcclx.dump("process")["communicators"]


@test
def a_communicator_that_is_forgotten_is_freed():
    assert ranks(forgotten, 2) == [1, 1]


# ---- the examples of docs/howto/python.md

def example(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@test
def the_first_example_under_the_launcher():
    tool = os.path.join(os.path.dirname(rcclx.library_path), "..", "bin", "rcclx")
    if not os.path.exists(tool):
        raise tap.Skip("no command rcclx beside the library")
    ran = example(tool, "run", "-n", "3", "--", sys.executable, os.path.join(HERE, "example.py"))
    lines = re.findall(r"rank \d of 3: \[3. 3. 3. 3.\]", ran.stdout)  # their ends may come in another order
    assert sorted(lines) == [f"rank {r} of 3: [3. 3. 3. 3.]" for r in range(3)], ran


@test
def the_example_without_a_launcher():
    ran = example(sys.executable, os.path.join(HERE, "example_run.py"))
    assert ran.stdout == "[60.0, 60.0, 60.0, 60.0]\n", ran


# ---- low precision

def coarse(comm):
    r, n = comm.rank, comm.size
    every = [np.random.default_rng(k).standard_normal(5000).astype(np.float32) for k in range(n)]
    exact = np.sum(every, 0, dtype=np.float64)
    results = {}
    for name in ("int8", "fp8", "off"):
        comm.low_precision(name, min_bytes=1)
        x = comm.all_reduce(every[r].copy())
        results[name] = float(np.abs(x - exact).max() / np.abs(exact).max()), x.tobytes()
    return results


@test
def low_precision_is_coarse_and_the_same_on_all_ranks():
    for n in (2, 4):
        told = ranks(coarse, n)
        for name, least, most in (("int8", 1e-4, 0.03), ("fp8", 1e-4, 0.2), ("off", 0, 1e-6)):
            assert len({bits for _, bits in (t[name] for t in told)}) == 1, f"{name}: ranks differ"
            assert least <= told[0][name][0] <= most, (n, name, told[0][name][0])


# ---- GPUs, emulated

def on_gpu(comm):
    r, n = comm.rank, comm.size
    lib, pointer = rcclx._library.lib, ctypes.c_void_p()
    rcclx._library.check(lib.ncclMemAlloc(ctypes.byref(pointer), 4096))
    memory = np.ctypeslib.as_array((ctypes.c_float * 8).from_address(pointer.value))  # emulated: it is the host's, too
    memory[:] = r + 1  # rank 0 of 1: processes share no emulated GPUs
    tap.raises(rcclx.InvalidArgument, "", comm.all_reduce, np.ones(8, np.float32))  # not a GPU's
    comm.all_reduce(Cuda(pointer.value, (2, 4)))
    comm.barrier()
    device = comm.dump()["device"]
    comm.finalize()  # waits for what is queued
    same(memory, [n * (n + 1) / 2] * 8)
    return device


@test
def arrays_of_gpus():
    assert ranks(on_gpu, 1, env={"RCCLX_DEVICE": "emu"}) == ["emu"]


if __name__ == "__main__":
    tap.main()
