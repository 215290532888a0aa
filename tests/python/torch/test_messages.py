"""Send and receive, as programs written for gloo use them."""
import time

import torch
import torch.distributed as dist

import ranks
from ranks import case, ours
from rcclx.torch import InvalidArgument
from tap import raises


def me():
    return dist.get_rank()


def world():
    return dist.get_world_size()


def right():
    return (me() + 1) % world()


def left():
    return (me() - 1) % world()


def of(rank, count=1000, dtype=torch.float32):
    return (torch.arange(count) % 50 + rank).to(dtype)


@case
def a_ring_of_blocking_calls():
    got = torch.empty(1000)
    if me() % 2:
        dist.recv(got, left(), group=ours())
        dist.send(of(me()), right(), group=ours())
    else:
        dist.send(of(me()), right(), group=ours())
        dist.recv(got, left(), group=ours())
    assert torch.equal(got, of(left()))


@case
def a_ring_where_everybody_sends_first():
    for count in (1, 5000, 1 << 20):
        got = torch.empty(count)
        sent = dist.isend(of(me(), count), right(), group=ours())
        received = dist.irecv(got, left(), group=ours())
        received.wait()
        sent.wait()
        assert torch.equal(got, of(left(), count)) and received.is_completed() and sent.is_success()


@case
def batches():
    got = [torch.empty(300) for _ in range(world())]
    calls = [dist.P2POp(dist.isend, of(me(), 300), p, group=ours()) for p in range(world()) if p != me()]
    calls += [dist.P2POp(dist.irecv, got[p], p, group=ours()) for p in range(world()) if p != me()]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    for p in range(world()):
        assert p == me() or torch.equal(got[p], of(p, 300))


@case
def every_type():
    for dtype in (torch.float64, torch.bfloat16, torch.int16, torch.bool, torch.uint8, torch.int64, torch.complex64):
        got = torch.empty(77, dtype=dtype)
        sent = dist.isend(of(me(), 77, dtype), right(), group=ours())
        dist.recv(got, left(), group=ours())
        sent.wait()
        assert torch.equal(got, of(left(), 77, dtype)), dtype


@case
def messages_of_a_pair_keep_their_order():
    got = [torch.empty(9) for _ in range(50)]
    works = [dist.isend(torch.full((9,), float(i)), right(), group=ours()) for i in range(50)]
    works += [dist.irecv(x, left(), group=ours()) for x in got]
    for work in works:
        work.wait()
    assert [x[0].item() for x in got] == list(range(50))


@case
def tags_are_apart():
    """Sent in one order, received in another."""
    if me() == 0:
        works = [dist.isend(torch.full((4,), float(tag)), 1, group=ours(), tag=tag) for tag in (1, 2, 3)]
        for work in works:
            work.wait()
    elif me() == 1:
        for tag in (3, 1, 2):
            got = torch.empty(4)
            dist.recv(got, 0, group=ours(), tag=tag)
            assert got[0] == tag


@case
def a_message_does_not_wait_for_later_ones_nor_for_collectives():
    """Waiting for the first of two receives must not need the second's sender."""
    if me() == 0:
        a, b = torch.empty(10), torch.empty(10)
        first, second = dist.irecv(a, 1, group=ours()), dist.irecv(b, 1, group=ours())
        first.wait()
        dist.all_reduce(torch.ones(1), group=ours())
        second.wait()
        assert a[0] == 1 and b[0] == 2
    else:
        if me() == 1:
            dist.send(torch.full((10,), 1.0), 0, group=ours())
        dist.all_reduce(torch.ones(1), group=ours())
        if me() == 1:
            dist.send(torch.full((10,), 2.0), 0, group=ours())


@case
def what_is_sent_before_the_peer_comes_arrives():
    """A new group: its channels are not open when the messages are posted."""
    group = dist.new_group(backend="rcclx")
    if me() == 0:
        work = dist.isend(torch.full((3,), 7.0), 1, group=group)
        future = work.get_future()
        assert not work.is_completed() and work.exception() is None
    dist.all_reduce(torch.ones(1), group=group)  # while rank 1 has not asked for it
    if me() == 0:
        work.wait()
        assert future.wait()[0][0] == 7 and work.is_completed()
    elif me() == 1:
        time.sleep(0.05)
        got = torch.empty(3)
        dist.recv(got, 0, group=group)
        assert got[0] == 7
    dist.destroy_process_group(group)


@case
def tensors_of_messages_live_until_they_are_sent():
    if me() == 0:
        for i in range(30):
            dist.isend(torch.full((10000,), float(i)), 1, group=ours(), tag=9)  # nobody holds it
    elif me() == 1:
        time.sleep(0.1)
        for i in range(30):
            got = torch.empty(10000)
            dist.recv(got, 0, group=ours(), tag=9)
            assert got[0] == i and got[-1] == i


@case
def what_cannot_be():
    raises(InvalidArgument, "name the source", dist.recv, torch.empty(1), group=ours())
    raises(InvalidArgument, "not contiguous", ours().send, [torch.ones(4, 4)[:, 1]], right(), 0)
    raises(InvalidArgument, "another rank of the group is needed", ours().send, [torch.ones(1)], me(), 0)
    raises(InvalidArgument, "another rank of the group is needed", ours().recv, [torch.ones(1)], world(), 0)
    raises(InvalidArgument, "on meta", ours().send, [torch.ones(1, device="meta")], right(), 0)


@case
def too_many_tags():
    group = dist.new_group(backend="rcclx")
    for tag in range(64):
        sent = group.send([torch.ones(1)], right(), tag)
        group.recv([torch.ones(1)], left(), tag).wait()
        sent.wait()
    raises(InvalidArgument, "use fewer tags", group.send, [torch.ones(1)], right(), 64)
    dist.barrier(group=group)
    dist.destroy_process_group(group)


ranks.main(2, 4)
