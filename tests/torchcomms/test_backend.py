"""What the Torchcomms backend computes, in what order, and how it ends, on 2 to 4 processes and host memory."""
import os
import sys
import threading
import time
from datetime import timedelta

import torch
import torchcomms
from torchcomms import ReduceOp

from tap import main, test
from team import be_a_rank, team

CPU = torch.device("cpu")


def comm(name="test", **options):
    return torchcomms.new_comm("rcclx", CPU, name=name, **options)


def refused(words, call, *args, **options):
    try:
        call(*args, **options)
    except Exception as why:  # torchcomms' own checks come as other classes
        assert words in str(why), f"{why!r} has no '{words}'"
        return str(why)
    raise AssertionError(f"no exception; expected one with '{words}'")


def same(x, y):
    assert torch.equal(torch.as_tensor(x).to(torch.float64), torch.as_tensor(y).to(torch.float64)), (x, y)


# ---- the announced program

@test
def the_announced_program():
    said = team(None, 2, command=[sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "example.py")])
    for r, text in enumerate(said):
        assert f"rank {r} of 2: [2.0, 2.0, 2.0, 2.0]" in text, text


# ---- types and operators

def types():
    c = comm()
    r, n = c.get_rank(), c.get_size()
    for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64):
        every = [torch.tensor([k + 1, 3 - k, 2]).to(dtype) for k in range(n)]
        stack = torch.stack(every).to(torch.float64)
        mean = stack.mean(0) if dtype.is_floating_point else stack.mean(0).trunc()
        for op, wanted in ((ReduceOp.SUM, stack.sum(0)), (ReduceOp.PRODUCT, stack.prod(0)), (ReduceOp.MIN, stack.min(0)[0]),
                           (ReduceOp.MAX, stack.max(0)[0]), (ReduceOp.AVG, mean)):
            x = every[r].clone()
            c.all_reduce(x, op, False)
            same(x, wanted.to(dtype))
    flags = torch.tensor([r == 0, True, False])
    for op, wanted in ((ReduceOp.SUM, [1, 1, 0]), (ReduceOp.PRODUCT, [0, 1, 0])):
        x = flags.clone()
        c.all_reduce(x, op, False)
        same(x, wanted)
    z = torch.tensor([complex(r, 1)])
    c.all_reduce(z, ReduceOp.SUM, False)
    assert z.item() == complex(n * (n - 1) / 2, n), z
    short = torch.tensor([r + 7], dtype=torch.int16)  # only moved, so as bytes
    c.broadcast(short, 1, False)
    same(short, [8])
    refused("SUM of Short", c.all_reduce, short, ReduceOp.SUM, True)
    refused("AVG of Bool", c.all_reduce, flags, ReduceOp.AVG, False)
    refused("PRODUCT of ComplexFloat", c.all_reduce, z, ReduceOp.PRODUCT, False)
    c.finalize()


def bits_and_factors():
    c = comm()
    r, n = c.get_rank(), c.get_size()
    mine = [0b0111, 0b1110, 0b1011][r % 3]
    every = [[0b0111, 0b1110, 0b1011][k % 3] for k in range(n)]
    for op, fold in ((ReduceOp.BAND, int.__and__), (ReduceOp.BOR, int.__or__), (ReduceOp.BXOR, int.__xor__)):
        wanted = every[0]
        for value in every[1:]:
            wanted = fold(wanted, value)
        for dtype in (torch.int32, torch.uint8, torch.int16):
            x = torch.tensor([mine, mine], dtype=dtype)
            c.all_reduce(x, op, async_op=True).wait()
            same(x, [wanted, wanted])
    x = torch.tensor([mine])
    c.reduce(x, 1, ReduceOp.BOR, False)
    same(x, [15] if r == 1 else [mine])
    refused("BAND of Float", c.all_reduce, torch.ones(1), ReduceOp.BAND, False)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for factor in (0.5, torch.tensor([0.5], dtype=dtype)):
            x = torch.tensor([r + 1.0], dtype=dtype)
            c.all_reduce(x, ReduceOp.PREMUL_SUM(factor), False)
            same(x, [0.5 * n * (n + 1) / 2])
    refused("one element of the data's type", c.all_reduce, torch.ones(1), ReduceOp.PREMUL_SUM(torch.ones(2)), False)
    c.finalize()


@test
def types_and_operators():
    team(types, 2)


@test
def bitwise_operators_and_factors():
    team(bits_and_factors, 3)


# ---- every operation

def everything():
    c = comm()
    r, n = c.get_rank(), c.get_size()
    for do in (lambda call, *a: call(*a, False), lambda call, *a: call(*a, True).wait()):
        mine = torch.arange(3.0) + 10 * r
        whole = torch.cat([torch.arange(3.0) + 10 * k for k in range(n)])
        # lists that lie in one piece on some ranks and not on others
        piece = torch.zeros(3 * n)
        out = list(piece.chunk(n)) if r % 2 else [torch.zeros(3) for _ in range(n)]
        do(c.all_gather, out, mine)
        same(torch.cat(out), whole)
        do(c.gather, out if r == 0 else [], mine, 0)
        flat = torch.zeros(3 * n)
        do(c.all_gather_single, flat, mine)
        same(flat, whole)
        flat.zero_()
        do(c.gather_single, flat, mine, 1)
        same(flat, whole if r == 1 else torch.zeros(3 * n))
        got = torch.zeros(3)
        do(c.scatter, got, [torch.full((3,), float(k)) for k in range(n)] if r == 1 else [], 1)
        same(got, [r] * 3)
        do(c.reduce_scatter, got, [torch.full((3,), float(k + r)) for k in range(n)], ReduceOp.SUM)
        same(got, [n * r + n * (n - 1) / 2] * 3)
        do(c.reduce_scatter_single, got, whole.clone(), ReduceOp.MAX)
        same(got, mine)
        do(c.reduce_scatter, got, list(whole.clone().chunk(n)), ReduceOp.AVG)
        same(got, mine)
        # unlike sizes
        got = torch.zeros(r + 1)
        do(c.reduce_scatter_v, got, [torch.full((k + 1,), 1.0) for k in range(n)], ReduceOp.SUM)
        same(got, [n] * (r + 1))
        out = [torch.zeros(k + 1) for k in range(n)]
        do(c.all_gather_v, out, torch.full((r + 1,), float(r)))
        same(torch.cat(out), torch.cat([torch.full((k + 1,), float(k)) for k in range(n)]))
        out = [torch.zeros(k + 1) for k in range(n)]
        do(c.all_to_all, out, [torch.full((r + 1,), 10.0 * r + k) for k in range(n)])
        same(torch.cat(out), torch.cat([torch.full((k + 1,), 10.0 * k + r) for k in range(n)]))
        out = torch.zeros(n, 2)
        do(c.all_to_all_single, out, torch.tensor([[10.0 * r + k] * 2 for k in range(n)]))
        same(out, [[10.0 * k + r] * 2 for k in range(n)])
        sent = torch.cat([torch.full((k, 2), 10.0 * r + k) for k in range(n)])
        out = torch.zeros(n * r, 2)
        do(c.all_to_all_v_single, out, sent, [r] * n, list(range(n)))
        same(out, torch.cat([torch.full((r, 2), 10.0 * k + r) for k in range(n)]) if r else out)
        # messages
        batch = c.batch_op_create()
        left = torch.zeros(5)
        batch.send(torch.full((5,), float(r)), (r + 1) % n)
        batch.recv(left, (r - 1) % n)
        do(batch.issue)
        same(left, [(r - 1) % n] * 5)
        if r < 2:
            x = torch.full((4,), float(r))
            do(c.send if r == 0 else c.recv, x, 1 - r)
            same(x, [0] * 4)
        x = torch.full((2,), float(r))
        do(c.broadcast, x, n - 1)
        same(x, [n - 1] * 2)
        x = torch.full((2,), float(r))
        do(c.reduce, x, 0, ReduceOp.SUM)
        same(x, [n * (n - 1) / 2 if r == 0 else r] * 2)
        empty = torch.zeros(0)
        do(c.all_reduce, empty, ReduceOp.SUM)
        do(c.barrier)
    handle = c.all_gather_p_init(flat)
    for round in range(3):
        c.all_gather_p_exec(handle, torch.full((3,), float(r + round)), False)
        same(flat, torch.cat([torch.full((3,), float(k + round)) for k in range(n)]))
    c.all_gather_p_free(handle)
    refused("none that all_gather_p_init gave", c.all_gather_p_exec, handle, got, False)
    c.finalize()


@test
def every_operation_now_and_later():
    team(everything, 3)


# ---- asynchronous operations

def queue():
    from torchcomms.hooks import FlightRecorderHook

    c = comm()
    r, n = c.get_rank(), c.get_size()
    recorder = FlightRecorderHook(max_entries=64)
    recorder.register_with_comm(c)
    x = torch.full((1000,), float(r + 1))
    works = []
    for _ in range(8):  # each needs the one before
        works.append(c.all_reduce(x, ReduceOp.SUM, True))
        works.append(c.broadcast(x, 0, True))
    c.all_reduce(x, ReduceOp.MAX, False)  # and this one all of them
    same(x, torch.full((1000,), float(n ** 7 * n * (n + 1) / 2)))
    assert not any("ERROR" in str(w) for w in works)
    for _ in range(300):  # nobody keeps the work, nor the tensor
        c.all_reduce(torch.ones(17), ReduceOp.SUM, True)
    w = c.all_reduce(torch.ones(17), ReduceOp.SUM, True)
    latest = time.monotonic() + 20
    while not w.is_completed():  # nobody waits for it, either
        assert time.monotonic() < latest, "a work that is only looked at never completes"
        time.sleep(0.001)
    w.wait()
    w.wait()
    w.wait_blocking()
    assert c.all_reduce(torch.ones(1), ReduceOp.SUM, False).is_completed()
    c.finalize()


@test
def asynchronous_operations_are_done_in_order():
    team(queue, 2)


# ---- ends

def late():
    told = []
    c = comm(name="slow", abort_process_on_timeout_or_error=True)
    c.register_abort_hook(lambda: told.append("hook"))
    c.barrier(False)
    if c.get_rank() == 1:
        time.sleep(4)
        refused("", c.barrier, False)
        return os._exit(0)
    began = time.monotonic()
    why = refused("all_reduce: not finished after 700 ms", c.all_reduce, torch.ones(1), ReduceOp.SUM, False, timeout=timedelta(milliseconds=700))
    assert "rank 0 of 2, communicator 'slow'" in why and 0.6 < time.monotonic() - began < 3, (why, time.monotonic() - began)
    assert told == ["hook"], told
    assert c.is_aborted()
    refused("not finished after 700 ms", c.barrier, True)  # the first cause
    refused("not finished after 700 ms", c.finalize)
    refused("is finalized", c.barrier, False)
    os._exit(0)


def late_in_the_queue():
    c = comm()
    c.barrier(False)
    if c.get_rank() == 1:
        time.sleep(3)
        os._exit(0)
    c.set_timeout(timedelta(milliseconds=300))
    first = c.all_reduce(torch.ones(1), ReduceOp.SUM, True)
    second = c.all_reduce(torch.ones(1), ReduceOp.SUM, True)
    refused("all_reduce: not finished after 300 ms", first.wait)
    refused("all_reduce: not finished after 300 ms", second.wait)
    assert not first.is_completed() and not second.is_completed()
    refused("no time to wait", c.set_timeout, timedelta(0))
    refused("no time to wait", comm, name="x", timeout=timedelta(0))
    os._exit(0)


def dead_peer():
    c = comm()
    c.barrier(False)
    if c.get_rank() == 1:
        os._exit(3)
    began = time.monotonic()
    why = refused("rank 1", c.all_reduce, torch.ones(1), ReduceOp.SUM, False)
    assert time.monotonic() - began < 30, why
    refused("rank 1", c.all_reduce, torch.ones(1), ReduceOp.SUM, False)
    os._exit(0)


def aborted():
    c = comm()
    c.barrier(False)
    assert not c.is_aborted() and c.is_abort_supported()
    if c.get_rank() == 0:
        threading.Timer(0.5, c.abort).start()
        began = time.monotonic()
        refused("the program aborted this communicator", c.all_reduce, torch.ones(1), ReduceOp.SUM, False)
        assert 0.3 < time.monotonic() - began < 5
        assert c.is_aborted()
        c.finalize()
    else:
        time.sleep(1.5)
        c.all_reduce(torch.ones(1), ReduceOp.SUM, False)  # rank 0's part had come before
        refused("rank 0", c.all_reduce, torch.ones(1), ReduceOp.SUM, False)
    os._exit(0)


@test
def a_late_operation_ends_with_a_sentence():
    team(late, 2, fails=(1,))


@test
def a_late_operation_in_the_queue_ends_those_behind_it():
    team(late_in_the_queue, 2)


@test
def a_dead_peer_is_named():
    team(dead_peer, 2, fails=(1,))


@test
def abort_ends_a_call_of_another_thread():
    team(aborted, 2)


# ---- communicators

def families():
    c = comm()
    r, n = c.get_rank(), c.get_size()
    half = c.split([k for k in range(n) if k % 2 == r % 2][::-1], "half")
    assert half.get_size() == n // 2 and half.get_rank() == n // 2 - 1 - r // 2, (half.get_rank(), r)
    x = torch.tensor([float(r)])
    half.all_reduce(x, ReduceOp.SUM, False)
    same(x, [sum(k for k in range(n) if k % 2 == r % 2)])
    one = c.split([2] if r == 2 else [], "one")
    assert (one is None) == (r != 2)
    if one:
        one.all_reduce(x, ReduceOp.SUM, False)
        one.finalize()
    refused("does not hold this rank", c.split, [(r + 1) % n], "x")
    refused("twice", c.split, [r, r], "x")
    refused("rank 9 is none of 0 to 3", c.split, [r, 9], "x")
    c.finalize()
    half.all_reduce(x, ReduceOp.SUM, False)  # a child outlives its parent
    half.finalize()
    for _ in range(3):  # one name, again and again
        again = comm(name="again")
        again.barrier(False)
        again.finalize()
    store = torch.distributed.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=r == 0, wait_for_workers=False)
    several = []
    for _ in range(3):
        if r == 0:
            time.sleep(0.3)  # the others must not take the word of the one before
        several.append(comm(name="several", store=store))
    for k, each in enumerate(several):
        y = torch.tensor([k])
        each.all_reduce(y, ReduceOp.SUM, async_op=True).wait()
        same(y, [k * n])
    for each in several:
        each.finalize()


@test
def communicators_split_and_follow_each_other():
    team(families, 4)


# ---- hints

def hinted():
    c = comm(hints={"minCTAs": "1", "maxCTAs": "8", "splitShare": "1", "commName": "dp", "unheard_of": "1"})
    r, n = c.get_rank(), c.get_size()
    exact = torch.linspace(-1, 1, 4096).mul(1 + 0.37 * r)
    wanted = sum(torch.linspace(-1, 1, 4096).mul(1 + 0.37 * k) for k in range(n))

    def error(call, **hints):
        x = exact.clone()
        call(x, **({"hints": hints} if hints else {}))
        return (x - wanted).abs().max().item()

    def now(x, **options):
        c.all_reduce(x, ReduceOp.SUM, False, **options)

    def later(x, **options):
        c.all_reduce(x, ReduceOp.SUM, True, **options).wait()

    for call in (now, later):
        assert error(call) < 1e-6
        assert 1e-6 < error(call, low_precision="int8") < 0.1
        assert error(call) < 1e-6  # that was for one call
    c.set_hints({"low_precision": "fp8", "low_precision_min_bytes": "1024"})
    assert 1e-6 < error(now) < 0.3
    c.set_hints({"low_precision": "off"})
    assert error(now) < 1e-6
    refused("take fp8, int8 or off", c.all_reduce, exact, ReduceOp.SUM, False, hints={"low_precision": "fp4"})
    refused("read when a communicator is made", c.set_hints, {"maxCTAs": "4"})
    refused("RCCLX_ALGO=ring", comm, name="x", hints={"algorithm": "ring"})
    refused("hint maxCTAs=many", comm, name="x", hints={"maxCTAs": "many"})
    refused("hint cgaClusterSize=9: it is a whole number from 0 to 8", comm, name="x", hints={"cgaClusterSize": "9"})
    c.finalize()


@test
def hints_are_followed_or_refused():
    team(hinted, 2)


# ---- bad input

def refusals():
    c = comm(name="strict")
    r, n = c.get_rank(), c.get_size()
    x, wide = torch.ones(4), torch.ones(4 * n)
    where = f"rcclx: rank {r} of {n}, communicator 'strict', all_reduce: "
    assert where in refused("not contiguous", c.all_reduce, torch.ones(4, 4).t(), ReduceOp.SUM, False)
    assert where in refused("lies on meta", c.all_reduce, torch.ones(4, device="meta"), ReduceOp.SUM, False)
    refused("must be in range", c.broadcast, x, n, False)
    refused("output has size times as many", c.all_gather_single, x, x, False)
    refused("input has size times as many", c.reduce_scatter_single, x, x, ReduceOp.SUM, False)
    refused("a multiple of", c.all_to_all_single, torch.ones(2 * n + 1), torch.ones(2 * n + 1), False)
    refused("one for each of the", c.all_to_all_v_single, wide, wide, [1], [1], False)
    refused("more than the rows of input", c.all_to_all_v_single, wide, wide, [0] * n, [4 * n] * n, False)
    refused("tensor_list has 1 tensors", c.all_gather, [x], x, False)
    refused("tensor_list[0] has 5 elements of Float", c.all_gather, [torch.ones(5)] * n, x, False)
    refused("is this rank's own", c.all_gather_v, [torch.ones(5)] * n, x, False)
    refused("the batch is empty", c.batch_op_create().issue, False)
    refused("are not built yet", c.new_window)
    refused("-5 ms is no time to wait", c.barrier, False, timeout=timedelta(milliseconds=-5))
    c.barrier(False, timeout=timedelta(days=900000))
    refused("registered already", lambda: [c.tensor_register(x), c.tensor_register(x)])
    c.tensor_deregister(x)
    refused("is not registered", c.tensor_deregister, x)
    for device, words in (("cuda", "this PyTorch sees no GPU"), ("hip", "this PyTorch sees no GPU"), ("meta", "take cuda, hip or cpu")):
        if device == "meta" or not torch.cuda.is_available():
            refused(words, torchcomms.new_comm, "rcclx", torch.device(device), name="x")
    c.all_reduce(x, ReduceOp.SUM, False)  # nothing of that has hurt
    same(x, [n] * 4)
    c.finalize()
    refused("is finalized", c.all_reduce, x, ReduceOp.SUM, False)
    refused("is finalized already", c.finalize)


@test
def bad_input_is_refused_with_a_sentence():
    team(refusals, 2)


def memory():
    import torchcomms_rcclx

    c = comm()
    x = torchcomms_rcclx.empty(3, 1000, dtype=torch.float64)
    y = torchcomms_rcclx.empty([5])
    assert x.shape == (3, 1000) and x.dtype == torch.float64 and y.dtype == torch.float32
    x.fill_(c.get_rank() + 1)
    c.all_reduce(x, ReduceOp.SUM, False)
    same(x, torch.full((3, 1000), 3.0))
    del x
    refused("a size is negative", torchcomms_rcclx.empty, -1)
    c.finalize()


@test
def tensors_in_memory_that_all_can_reach():
    team(memory, 2)


if not be_a_rank(globals()):
    main()
