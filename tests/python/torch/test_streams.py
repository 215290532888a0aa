"""Tensors on a GPU, without one: torch.cuda is replaced by streams of the library's
host device, so that the backend's own code for streams runs and what it does to
them can be seen. The tensors say that they are on cuda:0; their memory is the host's."""
import contextlib
import ctypes
import threading
import time

import torch
import torch.distributed as dist

import ranks
import rcclx
import rcclx.torch
import rcclx.torch._group as inside
import rcclx.torch._cuda as cuda
from rcclx._library import IN_PROGRESS, lib
from ranks import case
from tap import raises

GPU = torch.device("cuda", 0)
did = []          # what was asked of streams, in order


class OnGpu(torch.Tensor):
    device = property(lambda self: GPU)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)


torch.Tensor.record_stream = lambda self, stream: did.append(("kept by", stream.name))


def on_gpu(x):
    return x.as_subclass(OnGpu)


class Stream:
    count = 0

    def __init__(self, device=None, name=None):
        Stream.count += 1
        self.name = name or f"route {Stream.count}"
        self.queue = rcclx.Stream()
        self.cuda_stream = self.queue.ptr

    def wait_stream(self, other):
        did.append((self.name, "waits for", other.name))
        other.queue.synchronize()

    def wait_event(self, event):
        did.append((self.name, "waits for event of", event.stream.name))
        event.wait()


class Event:
    def record(self, stream):
        position = ctypes.c_uint64()
        lib.rcclxStreamPosition(stream.cuda_stream, ctypes.byref(position))
        self.stream, self.position = stream, position.value
        did.append(("event on", stream.name))

    def query(self):
        return lib.rcclxStreamWait(self.stream.cuda_stream, self.position, 0.0) != IN_PROGRESS

    def wait(self):
        lib.rcclxStreamWait(self.stream.cuda_stream, self.position, -1.0)


class Cuda:
    """What the backend uses of torch.cuda."""

    Stream, Event = Stream, Event
    capturing = False

    def __init__(self):
        self.here = threading.local()
        self.main = Stream(name="main")

    def current_stream(self, device=None):
        return getattr(self.here, "stream", self.main)

    def device(self, device):
        assert device == GPU
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def stream(self, stream):
        stream.queue.synchronize()  # what is done in the block comes behind what is queued
        before, self.here.stream = self.current_stream(), stream
        try:
            yield
        finally:
            self.here.stream = before

    def is_current_stream_capturing(self):
        return self.capturing

    def is_available(self):
        return True

    def current_device(self):
        return 0


class Torch:
    """The module torch, but for cuda and futures with devices."""

    class futures:
        @staticmethod
        def Future(devices=None):
            assert devices == [GPU]
            return torch.futures.Future()

    def __init__(self, fake):
        self.cuda = fake

    def __getattr__(self, name):
        return getattr(torch, name)


def me():
    return dist.get_rank()


def world():
    return dist.get_world_size()


_made = []


def group():
    """A group whose GPUs are replaced; made once."""
    if not _made:
        fake = Cuda()
        cuda.torch = inside.torch = Torch(fake)
        inside.GPU = "host"
        inside.here = lambda device: contextlib.nullcontext
        _made.extend([dist.new_group(backend="rcclx", timeout=ranks.LIMIT), fake])
        warm = on_gpu(torch.ones(1))
        dist.all_reduce(warm, group=_made[0])
        fake.main.queue.synchronize()
    did.clear()
    return _made[0]


def main_stream():
    return _made[1].main


def settle():
    main_stream().queue.synchronize()


@case
def a_synchronous_call_is_queued_on_the_current_stream():
    g, x = group(), on_gpu(torch.ones(5))
    dist.all_reduce(x, group=g)
    assert did == [("event on", "main"), ("main", "waits for event of", "main")], did
    settle()
    assert x[0] == world()


@case
def on_whatever_stream_is_current():
    g, x, side = group(), on_gpu(torch.ones(5)), Stream(name="side")
    with _made[1].stream(side):
        dist.all_reduce(x, group=g)
    assert ("event on", "side") in did and not any("main" in words for words in did), did
    side.queue.synchronize()
    assert x[0] == world()


@case
def an_asynchronous_call_waits_for_the_current_stream_and_is_waited_for_by_it():
    g, x = group(), on_gpu(torch.ones(5))
    work = dist.all_reduce(x, group=g, async_op=True)
    route = g._routes["cuda"].stream.name
    assert did == [(route, "waits for", "main"), ("kept by", route), ("event on", route)], did
    did.clear()
    work.wait()
    assert did == [("main", "waits for event of", route)], did
    assert x[0] == world() and work.is_completed() and work.is_success() and work.exception() is None


@case
def copies_at_the_end_are_queued_behind_the_operation():
    g = group()
    outputs = [on_gpu(torch.zeros(7)) for _ in range(world())]
    work = dist.all_gather(outputs, on_gpu(torch.full((7,), float(me()))), group=g, async_op=True)
    work.wait()
    assert [o[3].item() for o in outputs] == list(range(world()))
    assert ("event on", g._routes["cuda"].stream.name) == did[-2], did


@case
def a_future_comes_behind_the_operation():
    g, x = group(), on_gpu(torch.ones(5))
    work = dist.all_reduce(x, group=g, async_op=True)
    assert work.get_future().wait()[0][0] == world()


@case
def a_captured_call_is_not_told_to_the_allocator():
    g, x = group(), on_gpu(torch.ones(5))
    _made[1].capturing = True
    dist.all_reduce(x, group=g, async_op=True).wait()
    _made[1].capturing = False
    assert not any(words[0] == "kept by" for words in did), did


@case
def a_barrier_holds_the_caller():
    g = group()
    opts = dist.BarrierOptions()
    opts.device = GPU
    original, torch.zeros = torch.zeros, lambda *a, device=None, **k: original(*a, **k)
    empty = torch.empty

    def anywhere(*shape, device=None, **how):
        return on_gpu(empty(*shape, **how)) if device == GPU else empty(*shape, device=device, **how)
    torch.empty = anywhere
    try:
        if me() == 1:
            time.sleep(0.3)
        began = time.monotonic()
        waits, Stream.wait_event = Stream.wait_event, lambda self, event: None  # as a GPU's streams: at once
        g.barrier(opts).wait()
    finally:
        torch.zeros, torch.empty, Stream.wait_event = original, empty, waits
    assert me() == 1 or time.monotonic() - began > 0.2, "the caller did not wait"


@case
def wait_with_a_timeout_waits_here():
    import datetime

    g, x = group(), on_gpu(torch.ones(5))
    if me() == 1:
        time.sleep(0.4)
    work = dist.all_reduce(x, group=g, async_op=True)
    if me() == 0:
        raises(rcclx.torch.Timeout, "all_reduce", work.wait, datetime.timedelta(seconds=0.1))
    work.wait(datetime.timedelta(seconds=20))
    assert x[0] == world()


@case
def messages_wait_for_the_stream_that_made_them():
    g = group()
    got = on_gpu(torch.zeros(5))
    sent = dist.isend(on_gpu(torch.full((5,), float(me()))), (me() + 1) % world(), group=g)
    dist.recv(got, (me() - 1) % world(), group=g)
    sent.wait()
    settle()
    assert got[0] == (me() - 1) % world()
    assert ("event on", "main") in did, did  # taken when it was posted, for the channel opens later


@case
def reductions_that_are_folded():
    g, x = group(), on_gpu(torch.full((4,), 3 + me(), dtype=torch.int16))
    dist.all_reduce(x, group=g)
    settle()
    assert x[0] == sum(3 + r for r in range(world()))


@case
def both_kinds_of_memory_in_one_group():
    g, x, y = group(), on_gpu(torch.ones(2)), torch.ones(2)
    dist.all_reduce(y, group=g)
    dist.all_reduce(x, group=g)
    settle()
    assert x[0] == y[0] == world() and set(g._routes) == {"cpu", "cuda"}


@case
def another_gpu_is_refused():
    class Elsewhere(OnGpu):
        device = property(lambda self: torch.device("cuda", 1))

    raises(rcclx.torch.InvalidArgument, "cuda:0 is its device in this group", group().allreduce, [torch.ones(1).as_subclass(Elsewhere)])


ranks.main(2)
