"""What is wrong is an exception that says so, and never a crash or a hang."""
import importlib.util
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

import rcclx
import tap
from arrays import Cuda, DLPack, Tensor
from rcclx import InvalidArgument, InvalidUsage
from tap import raises, test

HOST = {"RCCLX_DEVICE": "host"}


def ranks(work, n, *args, env=HOST, timeout=60):
    return rcclx.run(work, n, *args, env=env, timeout=timeout)


# ---- arguments

def read_only():
    x = np.ones(4, np.float32)
    x.flags.writeable = False
    return x


class Immutable(DLPack):
    __module__ = "jaxlib.xla"


def refused(comm):
    ones = np.ones(4, np.float32)
    x, many = ones.copy(), np.ones((4, 4), np.float32)
    for words, call, *args in (
        ("has none of data_ptr()", comm.all_reduce, [1.0]),
        ("has none of data_ptr()", comm.all_reduce, None),
        ("has no memory to share", comm.all_reduce, np.float32(1)),
        ("not contiguous", comm.all_reduce, many[:, 1]),
        ("not contiguous", comm.all_reduce, many.T[:2]),
        ("not contiguous", comm.all_reduce, ones[::-1]),
        ("not contiguous", comm.all_reduce, DLPack(many[:, 1])),
        ("not contiguous", comm.all_reduce, Tensor(many[:, 1])),
        ("not contiguous", comm.all_reduce, np.broadcast_to(np.float32(1), (4,))),
        ("elements of int16", comm.all_reduce, np.ones(2, np.int16)),
        ("elements of complex64", comm.all_reduce, np.ones(2, np.complex64)),
        ("elements of >f4", comm.all_reduce, np.ones(2, ">f4")),
        ("elements of object", comm.all_reduce, np.array([None])),
        ("elements of [", comm.all_reduce, np.zeros(2, "f4,f4")),
        ("elements of int16", comm.all_reduce, DLPack(np.ones(2, np.int16))),
        ("elements of float8_e4m3fnuz", comm.all_reduce, Tensor(np.ones(2, np.uint8), "float8_e4m3fnuz")),
        ("a tensor on meta", comm.all_reduce, Tensor(x, device="meta")),
        ("resolve_neg", comm.all_reduce, Tensor(x, negated=True)),
        ("in a GPU's memory", comm.all_reduce, Tensor(x, device="cuda")),
        ("in a GPU's memory", comm.send, Cuda(x.ctypes.data, (4,)), 0),
        ("read-only", comm.all_reduce, read_only()),
        ("read-only", comm.recv, read_only(), 0),
        ("only", comm.all_reduce, DLPack(read_only())),
        ("read-only", comm.all_reduce, Immutable(x)),
        ("there are sum", comm.all_reduce, x, "xor"),
        ("sum of bool", comm.all_reduce, np.ones(2, bool)),
        ("avg of bool", comm.reduce, np.ones(2, bool), "avg"),
        ("5 elements; 4 are needed", comm.all_reduce, x, "sum", np.ones(5, np.float32)),
        ("must be of one type", comm.all_reduce, x, "sum", np.ones(4)),
        ("overlap", comm.all_reduce, many[0, :3], "sum", many[0, 1:]),
        ("root: 7 is outside 0..1", comm.broadcast, x, 7),
        ("root: 4294967296 is outside", comm.reduce, x, "sum", 1 << 32),
        ("root: -1 is outside", comm.reduce, x, "sum", -1),
        ("root: 0.0 is no whole number", comm.broadcast, x, 0.0),
        ("peer: 2 is outside 0..1", comm.send, x, 2),
        ("peer: 'a' is no whole", comm.recv, x, "a"),
        ("cannot be divided among 2", comm.all_to_all, np.ones(3)),
        ("cannot be divided among 2", comm.reduce_scatter, np.ones((3, 2))),
        ("cannot be divided among 2", comm.reduce_scatter, np.ones(3), "sum", np.ones(1)),
        ("result's array has to be given", comm.all_gather, DLPack(x)),
        ("stream: 'x'", comm.all_reduce, x, "sum", None, "x"),
        ("stream: True", comm.all_reduce, x, "sum", None, True),
        ("stream 0x3039 is none", comm.all_reduce, x, "sum", None, 12345),
        ("color: -5 is outside", comm.split, -5),
        ("key: 2147483648 is outside", comm.split, 0, 1 << 31),
        ("min_bytes: -1 is outside", comm.low_precision, "int8", -1),
        ("int7", comm.low_precision, "int7"),
    ):
        raises(InvalidArgument, words, call, *args)
    np.testing.assert_array_equal(x, ones)
    return comm.all_reduce(x)[0]  # still of use


@test
def wrong_arguments_are_refused_and_the_communicator_stays():
    assert ranks(refused, 2) == [2, 2]


@test
def wrong_ways_to_make_a_communicator():
    name = rcclx.unique_id()
    raises(InvalidArgument, "nranks: 0 is outside", rcclx.Communicator, 0, 0, name)
    raises(InvalidArgument, "rank: 1 is outside 0..0", rcclx.Communicator, 1, 1, name)
    raises(InvalidArgument, "128 bytes", rcclx.Communicator, 1, 0, b"short")
    raises(InvalidArgument, "128 bytes", rcclx.Communicator, 1, 0, "x" * 128)
    raises(InvalidArgument, "vulkan", rcclx.Communicator, 1, 0, name, "vulkan")
    assert issubclass(InvalidArgument, ValueError) and issubclass(rcclx.Timeout, TimeoutError)
    assert issubclass(rcclx.RankFailed, rcclx.Error) and InvalidUsage.code == 5


@test
def nothing_works_with_one_that_is_gone():
    for end in ("destroy", "abort"):
        comm = rcclx.Communicator(1, 0, rcclx.unique_id(), "host")
        getattr(comm, end)()
        x = np.ones(2)
        for call, *args in ((comm.all_reduce, x), (comm.reduce, x), (comm.broadcast, x), (comm.all_gather, x),
                            (comm.reduce_scatter, x), (comm.all_to_all, x), (comm.send, x, 0), (comm.recv, x, 0),
                            (comm.barrier,), (comm.split, 0), (comm.dump,), (comm.finalize,), (comm.low_precision, "off"),
                            (lambda: comm.rank,), (lambda: comm.size,)):
            raises(InvalidUsage, "destroyed or aborted", call, *args)
        comm.destroy()
        comm.abort()


class OldLibrary:
    pass


@test
def a_library_without_low_precision_is_told():
    inside = sys.modules["rcclx._communicator"]
    with rcclx.Communicator(1, 0, rcclx.unique_id(), "host") as comm:
        lib, inside.lib = inside.lib, OldLibrary()
        try:
            raises(InvalidUsage, "has no rcclxCommSetLowPrecision; build a newer library", comm.low_precision, "int8")
        finally:
            inside.lib = lib


# ---- other ranks

def differ(comm):
    try:
        comm.all_reduce(np.ones(4 + comm.rank, np.float32))
    except rcclx.Error as error:
        return type(error).__name__, str(error)


@test
def ranks_that_differ_are_told():
    told = [t for t in ranks(differ, 2) if t]
    assert told and all(kind == "InvalidUsage" and "count" in text for kind, text in told), told


def dies(comm, folder):
    comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        comm.all_reduce(np.ones(1 << 16, np.float32))
        said = "nothing"
    except rcclx.Error as error:
        said = f"{type(error).__name__}: {error}"
    with open(os.path.join(folder, "said"), "w") as file:
        file.write(said)
    os.rename(os.path.join(folder, "said"), os.path.join(folder, f"rank{comm.rank}"))


class KeepOthers:
    """run() ends the others when one dies; here they are given time to say what they saw."""

    def __enter__(self):
        self.inside = sys.modules["rcclx._run"]
        self.stop = self.inside._stop

        def patient(processes):
            time.sleep(2)
            self.stop(processes)

        self.inside._stop = patient

    def __exit__(self, *_):
        self.inside._stop = self.stop


@test
def a_dead_peer_is_an_error_that_names_it():
    with tempfile.TemporaryDirectory() as folder, KeepOthers():
        error = raises(rcclx.RankFailed, "rank 1 of 2: was killed by SIGKILL", ranks, dies, 2, folder)
        assert error.rank == 1
        with open(os.path.join(folder, "rank0")) as file:
            said = file.read()
        assert said.startswith("RemoteError: ") and "rank 1" in said, said


def leaves(comm, folder):
    if comm.rank == 1:
        raise KeyError("rank 1 has had enough")
    try:
        comm.barrier()
        said = "nothing"
    except rcclx.RemoteError as error:
        said = str(error)
    with open(os.path.join(folder, "said"), "w") as file:
        file.write(said)


@test
def an_exception_on_one_rank_ends_the_waiting_of_the_others():
    with tempfile.TemporaryDirectory() as folder, KeepOthers():
        error = raises(rcclx.RankFailed, "rank 1 has had enough", ranks, leaves, 2, folder)
        assert error.rank == 1 and "Traceback" in str(error)
        with open(os.path.join(folder, "said")) as file:
            assert "rank 1 aborted" in file.read()


def stuck(comm):
    if comm.rank == 0:
        timer = threading.Timer(0.3, comm.abort)
        timer.start()
        start = time.monotonic()
        try:
            comm.recv(np.empty(1 << 20), 1)
        except rcclx.Error as error:
            return time.monotonic() - start, str(error)
        return None
    time.sleep(1)


@test
def abort_from_another_thread_ends_a_wait():
    seconds, text = ranks(stuck, 2)[0]
    assert 0.2 < seconds < 1.5 and "abort" in text, (seconds, text)


# ---- run

def fine(comm):
    return comm.rank


def sleeps(comm):
    time.sleep(60)


def quits(comm):
    os._exit(3)


def unpicklable(comm):
    return lambda: 0


@test
def run_tells_what_happened_to_a_rank():
    assert ranks(fine, 2) == [0, 1]
    raises(rcclx.RankFailed, "ended with exit code 3 and no result", ranks, quits, 1)
    raises(rcclx.RankFailed, "pickle", ranks, unpicklable, 1)
    raises(InvalidArgument, "fn: 5 cannot be called", ranks, 5, 1)
    raises(InvalidArgument, "nranks: 0 is outside", ranks, fine, 0)
    raises(InvalidArgument, "nranks: 2.0 is outside", ranks, fine, 2.0)


@test
def run_ends_at_its_time_and_leaves_nobody():
    before = time.monotonic()
    raises(rcclx.Timeout, "ranks 0, 1 of 2 were not done", ranks, sleeps, 2, timeout=1.5)
    assert time.monotonic() - before < 6
    assert not multiprocessing.active_children()
    assert "RANK" not in os.environ and "RCCLX_RUN_ID" not in os.environ


def python(code, **env):
    return subprocess.run([sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True)


@test
def what_was_typed_in_cannot_be_imported():
    ran = python("import rcclx; rcclx.run(lambda comm: 0, 1)")
    if importlib.util.find_spec("cloudpickle"):
        assert ran.returncode == 0, ran.stderr
    else:
        assert "InvalidUsage: fn: new processes cannot import what was typed" in ran.stderr, ran.stderr


# ---- the library

@test
def a_missing_library_is_an_import_error_with_a_remedy():
    said = python("import rcclx", RCCLX_LIBRARY="/nowhere/librcclx.so").stderr
    assert "ImportError: rcclx: RCCLX_LIBRARY=/nowhere/librcclx.so cannot be loaded" in said, said
    assert "Build it with `make`" in said, said
    said = python("import rcclx", RCCLX_LIBRARY="libc.so.6").stderr
    assert "this is another library, or an older one" in said, said


if __name__ == "__main__":
    tap.main()
