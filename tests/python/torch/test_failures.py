"""What is wrong is an exception that names rank, operation and cause, in time; and
nothing that is missing breaks an import."""
import os
import shutil
import subprocess
import sys
import tempfile

import torch  # the ranks are forked from here, and have it already
import torch.distributed  # noqa: F401

import ranks
from tap import main, test

HEAD = """
import datetime, os, sys, time, torch, torch.distributed as dist, rcclx.torch
def begin(seconds=30, **how):
    dist.init_process_group("rcclx", timeout=datetime.timedelta(seconds=seconds), **how)
    return dist.get_rank()
def caught(kind, words, call, *args, **how):
    try:
        call(*args, **how)
    except kind as fault:
        for word in words.split("|"):
            assert word in str(fault), f"{fault!r} does not say {word!r}"
        assert isinstance(fault, RuntimeError) and isinstance(fault, rcclx.Error)
        return fault
    raise AssertionError(f"no {kind.__name__} with {words!r}")
"""


def program(text, size=2, codes=None, seconds=60, **more):
    """All ranks end with 0, or as codes say; the texts."""
    results = ranks.program(HEAD + text, size, seconds, **more)
    assert [code for code, _ in results] == (codes or [0] * size), results
    return [said for _, said in results]


@test
def the_backend_by_its_name_again_and_again():
    program("""
for round in range(3):
    rank = begin()
    x = torch.full((4,), float(rank + 1))
    dist.all_reduce(x)
    assert x[0] == 3 and dist.get_backend() == "rcclx"
    assert dist.get_default_backend_for_device("cpu") == "gloo"
    dist.destroy_process_group()
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
""")


@test
def one_rank_alone():
    program("""
begin()
x = torch.ones(3)
dist.all_reduce(x)
out = [torch.empty(3)]
dist.all_gather(out, x)
dist.barrier()
box = ["a"]
dist.broadcast_object_list(box, 0)
assert x[0] == 1 and out[0][0] == 1 and box == ["a"]
dist.destroy_process_group()
""", 1)


@test
def a_file_as_the_store():
    with tempfile.TemporaryDirectory() as folder:
        program(f"""
rank = int(os.environ["RANK"])
dist.init_process_group("rcclx", init_method="file://{folder}/store", rank=rank, world_size=2)
x = torch.ones(3)
dist.all_reduce(x)
sent = dist.isend(x, 1 - rank)
dist.recv(torch.empty(3), 1 - rank)
sent.wait()
assert x[0] == 2
dist.destroy_process_group()
""")


@test
def a_late_rank_is_named():
    program("""
from rcclx.torch import RemoteError
rank = begin(seconds=1)
x = torch.ones(4)
dist.all_reduce(x)
if rank == 0:
    began = time.monotonic()
    caught(RemoteError, "rank 0 of 2|AllReduce of 4 float|rank 1|waits since", dist.all_reduce, x)
    assert 0.9 < time.monotonic() - began < 4
    caught(RemoteError, "rank 1", dist.broadcast, x, 0)
else:
    time.sleep(3)
""")


@test
def an_operation_in_the_queue_has_the_groups_time_too():
    program("""
from rcclx.torch import RemoteError
rank = begin(seconds=1)
x = torch.ones(4)
dist.all_reduce(x)
if rank == 0:
    work = dist.all_reduce(x, async_op=True)
    future = work.get_future()
    caught(RemoteError, "rank 1|waits since", work.wait)
    assert work.is_completed() and not work.is_success() and isinstance(work.exception(), RemoteError)
    try:
        future.wait()
    except RuntimeError as fault:
        assert "waits since" in str(fault)
    else:
        raise AssertionError("the future says nothing")
else:
    time.sleep(3)
""")


@test
def wait_with_a_timeout_gives_up_waiting_alone():
    program("""
from rcclx.torch import Timeout
rank = begin()
x = torch.ones(4)
dist.all_reduce(x)
if rank == 1:
    time.sleep(0.6)
work = dist.all_reduce(x, async_op=True)
if rank == 0:
    fault = caught(Timeout, "rank 0 of 2: all_reduce|not done after 0.1 s|wait again", work.wait, datetime.timedelta(seconds=0.1))
    assert isinstance(fault, TimeoutError) and not work.is_completed()
work.wait(datetime.timedelta(seconds=20))
assert x[0] == 4
dist.destroy_process_group()
""")


@test
def a_timeout_of_one_operation():
    program("""
from rcclx.torch import RemoteError
rank = begin()
x, opts = torch.ones(4), dist.AllreduceOptions()
dist.all_reduce(x)
group = dist.group.WORLD
opts.timeout = datetime.timedelta(seconds=0.5)
if rank == 0:
    began = time.monotonic()
    caught(RemoteError, "0.5 s", group.allreduce([x], opts).wait)
    assert time.monotonic() - began < 5
else:
    time.sleep(2)
""")


@test
def the_groups_timeout_can_be_changed():
    program("""
from rcclx.torch import RemoteError
rank = begin()
dist.all_reduce(torch.ones(1))
dist.group.WORLD.set_timeout(datetime.timedelta(seconds=0.5))
if rank == 0:
    caught(RemoteError, "0.5 s", dist.all_reduce, torch.ones(1))
else:
    time.sleep(2)
""")


@test
def who_never_comes_to_the_first_call_is_told_of():
    program("""
from rcclx.torch import Timeout
rank = begin(seconds=1)
if rank == 1:
    caught(Timeout, "rank 1 of 2: all_reduce|rank 0 did not come before the timeout of 1 s|same calls", dist.all_reduce, torch.ones(1))
else:
    time.sleep(3)
""")


@test
def nor_does_the_first_rank_wait_longer_for_the_others():
    program("""
from rcclx.torch import Timeout
rank = begin(seconds=1)
if rank == 1:
    time.sleep(3)
elif rank == 0:
    began = time.monotonic()
    caught(Timeout, "rank 0 of 3: barrier|rank 1, rank 2 did not come before the timeout of 1 s", dist.barrier)
    assert time.monotonic() - began < 10
else:
    time.sleep(3)
""", 3)


@test
def a_message_whose_receiver_never_comes():
    program("""
rank = begin(seconds=1)
from rcclx.torch import Timeout, InvalidUsage
if rank == 0:
    work = dist.irecv(torch.ones(1), 1)
    caught(Timeout, "has not begun after 0.1 s|rank 1", work.wait, datetime.timedelta(seconds=0.1))
    caught(Timeout, "recv|from rank 1", work.wait)
    assert work.is_completed() and isinstance(work.exception(), Timeout)
    caught(Timeout, "from rank 1", dist.recv, torch.ones(1), 1)
else:
    time.sleep(3)
""")


@test
def a_rank_that_dies_ends_the_others_waits():
    program("""
from rcclx.torch import RemoteError
rank = begin(seconds=60)
x = torch.ones(4)
dist.all_reduce(x)
sent = dist.isend(x, (rank + 1) % 3)
dist.recv(torch.empty(4), (rank - 1) % 3)
sent.wait()
if rank == 2:
    os._exit(5)
began = time.monotonic()
if rank == 0:
    caught(RemoteError, "rank 2", dist.all_reduce, x)
    caught(RemoteError, "", dist.recv, torch.empty(4), 2)
else:
    work = dist.all_reduce(x, async_op=True)
    caught(RemoteError, "rank 2", work.wait)
assert time.monotonic() - began < 20
""", 3, [0, 0, 5])


@test
def calls_that_differ_are_told():
    program("""
from rcclx import InvalidUsage, RemoteError, Error
rank = begin(seconds=10)
dist.all_reduce(torch.ones(1))
fault = caught(Error, "rank", dist.all_reduce, torch.ones(4 + rank))
assert isinstance(fault, (InvalidUsage, RemoteError)) and "AllReduce" in str(fault), fault
""")


@test
def what_is_refused_leaves_the_group_usable():
    program("""
from rcclx.torch import InvalidArgument
rank = begin()
group = dist.group.WORLD
x = torch.ones(4)
for words, call, *args in (
    ("all_reduce: |shape (3,)|strides (4,)|not contiguous|tensor.contiguous()", dist.all_reduce, torch.ones(3, 4)[:, 1]),
    ("broadcast: |not contiguous", dist.broadcast, torch.ones(3, 4).t(), 0),
    ("reduce: |not contiguous", dist.reduce, torch.ones(3, 4).t(), 0),
    ("not contiguous", dist.all_gather_into_tensor, torch.ones(8), torch.ones(8)[::2]),
    ("not contiguous", dist.reduce_scatter_tensor, torch.ones(8)[::4], x),
    ("layout torch.sparse_coo|to_dense()", dist.all_reduce, torch.ones(3).to_sparse()),
    ("on meta|cpu and cuda", dist.all_reduce, torch.ones(3, device="meta")),
    ("output has 7 elements, 8 are needed", group.all_gather_single, torch.ones(7), x),
    ("torch.float32 and torch.float64|one type", group.all_gather_single, torch.ones(8).double(), x),
    ("cpu and meta|one device", group.all_gather_single, torch.ones(8, device="meta"), x),
    ("1 output tensors for 2 ranks", group.allgather, [[x]], [x]),
    ("input has 3 elements, 4 are needed", group.reduce_scatter_single, torch.ones(2), torch.ones(3)),
    ("2 tensors; a rank has one device", group.allreduce, [x, x]),
    ("2 lists of tensors", group.allgather, [[x, x], [x, x]], [x]),
    ("has 5 rows, which cannot be divided among 2", dist.all_to_all_single, torch.ones(5), torch.ones(5)),
    ("input_split_sizes are [1, 1]|4 together", dist.all_to_all_single, torch.ones(4), x, [2, 2], [1, 1]),
    ("output_split_sizes are [4]|2 numbers", dist.all_to_all_single, torch.ones(4), x, [4], [2, 2]),
    ("BAND of torch.float32", dist.all_reduce, x, dist.ReduceOp.BAND),
    ("AVG of torch.bool", dist.all_reduce, torch.ones(2, dtype=torch.bool), dist.ReduceOp.AVG),
    ("MAX of torch.complex64", group.allreduce, [torch.ones(2, dtype=torch.complex64)], dist.AllreduceOptions(), dist.ReduceOp.MAX),
    ("resolve_conj", group.allreduce, [torch.ones(2, dtype=torch.complex64).conj()]),
):
    if "MAX of" in words:
        opts = dist.AllreduceOptions()
        opts.reduceOp = dist.ReduceOp.MAX
        args = [args[0], opts]
    caught(InvalidArgument, words, call, *args)
dist.all_reduce(x)
assert x[0] == 2
dist.destroy_process_group()
""")


@test
def a_group_that_is_gone_says_so():
    program("""
from rcclx.torch import InvalidUsage
rank = begin()
group, x = dist.group.WORLD, torch.ones(1)
dist.all_reduce(x)
dist.destroy_process_group()
caught(InvalidUsage, "destroyed or aborted", group.allreduce, [x])
caught(InvalidUsage, "destroyed or aborted", group.send, [x], 1 - rank, 0)
""")


@test
def abort_ends_what_waits_here_and_at_the_peer():
    program("""
import threading
from rcclx.torch import RemoteError, InvalidUsage
rank = begin(seconds=60)
group, x = dist.group.WORLD, torch.ones(1)
dist.all_reduce(x)
began = time.monotonic()
if rank == 0:
    work = group.allreduce([x])
    threading.Timer(0.3, group.abort).start()
    caught(rcclx.Error, "", work.wait)
    caught(InvalidUsage, "destroyed or aborted", group.allreduce, [x])
else:
    time.sleep(0.8)
    dist.all_reduce(x)  # rank 0 had given its part of this one
    caught(RemoteError, "rank 0", dist.all_reduce, x)
assert time.monotonic() - began < 10
""")


@test
def a_program_that_ends_early_does_not_hang():
    """An operation whose peer never comes is queued, and the program ends, or raises."""
    for last in ("pass", "raise SystemExit(0)"):
        program(f"""
rank = begin(seconds=600)
first = torch.tensor([os.getpid()])
dist.broadcast(first, 0)
if rank == 0:
    work = dist.all_reduce(torch.ones(1), async_op=True)
    message = dist.irecv(torch.ones(1), 1)
    time.sleep(0.2)
    {last}
else:
    until = time.monotonic() + 15
    while os.path.exists(f"/proc/{{first.item()}}") and time.monotonic() < until:
        time.sleep(0.05)
    assert time.monotonic() < until, "it waits"
""", seconds=40)


@test
def low_precision_by_the_groups_options():
    program("""
from rcclx.torch import InvalidArgument, Options
import rcclx
caught(InvalidArgument, "pass rcclx.torch.Options", begin, pg_options=object())
dist.destroy_process_group() if dist.is_initialized() else None
os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
rank = begin(pg_options=Options(low_precision="int8", low_precision_bytes=1024))
torch.manual_seed(rank)
x = torch.randn(4096)
exact = x.clone()
dist.all_reduce(x)
group = dist.new_group(backend="rcclx")
dist.all_reduce(exact, group=group)
error = ((x - exact).norm() / exact.norm()).item()
assert 1e-4 < error < 0.05, error
""")


# ---- imports

def alone(text, **more):
    return subprocess.run([sys.executable, "-c", text], env={**os.environ, **more}, capture_output=True, text=True, timeout=60)


@test
def without_pytorch_it_says_what_to_install():
    ran = alone("import sys; sys.modules['torch'] = None; import rcclx; import rcclx.torch")
    assert ran.returncode and "PyTorch cannot be imported" in ran.stderr and "pip install torch" in ran.stderr, ran.stderr


@test
def an_old_pytorch_is_refused():
    ran = alone("import torch; torch.__version__ = '2.1.0+cpu'; import rcclx.torch")
    assert ran.returncode and "PyTorch 2.1.0+cpu is too old, 2.5 is needed" in ran.stderr, ran.stderr


@test
def an_old_library_is_refused():
    ran = alone("""
import torch.distributed as dist, rcclx.torch, rcclx.torch._backend as b
class Old: pass
b.lib = Old()
dist.init_process_group("rcclx", store=dist.HashStore(), rank=0, world_size=1)
""")
    assert ran.returncode and "is too old for rcclx.torch" in ran.stderr and "build a newer one" in ran.stderr, ran.stderr


def installed(folder):
    """The package as pip leaves it, whose entry points PyTorch finds."""
    source, where = os.path.join(folder, "source"), os.path.join(folder, "installed")
    shutil.copytree(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 3, "python"), source,
                    ignore=shutil.ignore_patterns("build", "dist", "*.egg-info", "__pycache__"))
    said = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", where, source],
                          capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    return where


@test
def installed_it_needs_no_import():
    with tempfile.TemporaryDirectory() as folder:
        where = installed(folder)
        text = """
import torch, torch.distributed as dist, sys
assert "rcclx" not in sys.modules
dist.init_process_group("rcclx", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(2)
dist.all_reduce(x)
print(x.sum().item(), sys.modules["rcclx.torch"].__file__)
"""
        ran = alone(text, PYTHONPATH=where)
        assert ran.returncode == 0 and ran.stdout.startswith("2.0 " + where), ran
        ran = alone(text, PYTHONPATH=where, RCCLX_LIBRARY="/nowhere/librcclx.so")
        assert "RCCLX_LIBRARY=/nowhere/librcclx.so cannot be loaded" in ran.stderr, ran.stderr
        ran = alone("import torch; print(torch.ones(2).sum())", PYTHONPATH=where, RCCLX_LIBRARY="/nowhere/librcclx.so")
        assert ran.returncode == 0, ran.stderr


main()
