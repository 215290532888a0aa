"""Every collective, on every type, synchronous and not, beside gloo and beside a
reference that knows all ranks' inputs."""
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

import ranks
from ranks import case, ours

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
WHOLE = [torch.int8, torch.uint8, torch.int32, torch.int64]
ODD = [torch.bool, torch.int16, torch.complex64, torch.float8_e4m3fn, torch.uint16]
SIZES = [1, 13, 4099]
GLOO = {torch.float32, torch.float64, torch.float16, torch.int8, torch.uint8, torch.int32, torch.int64}


def me():
    return dist.get_rank()


def world():
    return dist.get_world_size()


def data(rank, count, dtype, salt=0):
    """Small whole numbers, so that any order of adding gives the same."""
    numbers = (torch.arange(count) * 7 + rank * 3 + salt) % 5 + 1
    if dtype is torch.bool:
        return numbers > 3
    return numbers.to(torch.float32).to(dtype) if dtype.is_floating_point else numbers.to(dtype)


def everybodys(count, dtype, salt=0):
    return [data(r, count, dtype, salt) for r in range(world())]


def same(got, want, words):
    as_other = {torch.float8_e4m3fn: torch.uint8, torch.uint16: torch.int16}  # they cannot be compared themselves
    if got.dtype in as_other:
        got, want = got.view(as_other[got.dtype]), want.view(as_other[want.dtype])
    assert got.dtype is want.dtype and torch.equal(got, want), f"{words}: {got.flatten()[:8]} instead of {want.flatten()[:8]}"


def done(work):
    """What async_op gave is waited for, and says so."""
    if work is not None:
        work.wait()
        assert work.is_completed() and work.is_success() and work.exception() is None


def ways(types):
    for dtype in types:
        for count in SIZES:
            for later in (False, True):
                yield dtype, count, later


REDUCERS = {
    ReduceOp.SUM: torch.add, ReduceOp.PRODUCT: torch.mul, ReduceOp.MAX: torch.maximum, ReduceOp.MIN: torch.minimum,
    ReduceOp.BAND: torch.bitwise_and, ReduceOp.BOR: torch.bitwise_or, ReduceOp.BXOR: torch.bitwise_xor,
}


def combined(op, parts):
    if op == ReduceOp.AVG:
        return combined(ReduceOp.SUM, parts) / len(parts)
    whole = parts[0].clone()
    for part in parts[1:]:
        whole = REDUCERS[op](whole, part)
    return whole


def reductions():
    for op in (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PRODUCT):
        for dtype in FLOATS + WHOLE + [torch.int16, torch.bool]:
            yield op, dtype
    for op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR):
        for dtype in WHOLE + [torch.bool]:
            yield op, dtype
    yield ReduceOp.SUM, torch.complex64
    yield ReduceOp.AVG, torch.float32
    yield ReduceOp.AVG, torch.float64


def gloo_has(op, dtype):
    return dtype in GLOO and op != ReduceOp.AVG and not (op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR) and dtype.is_floating_point)


@case
def all_reduce():
    for op, dtype in reductions():
        for count in SIZES:
            for later in (False, True):
                words = f"{op} of {count} {dtype}, async {later}"
                got = data(me(), count, dtype)
                done(dist.all_reduce(got, op, group=ours(), async_op=later))
                same(got, combined(op, everybodys(count, dtype)), words)
                if gloo_has(op, dtype) and not later:
                    theirs = data(me(), count, dtype)
                    dist.all_reduce(theirs, op)
                    same(got, theirs, words + " beside gloo")


@case
def all_reduce_of_complex_products_and_of_a_factor():
    z = torch.complex(data(me(), 5, torch.float32), data(me(), 5, torch.float32, 1))
    parts = [torch.complex(data(r, 5, torch.float32), data(r, 5, torch.float32, 1)) for r in range(world())]
    ours().allreduce([z], op=ReduceOp.PRODUCT).wait()
    same(z, combined(ReduceOp.PRODUCT, parts), "product of complex numbers")
    x = data(me(), 9, torch.float32)
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.5), group=ours())
    same(x, combined(ReduceOp.SUM, [p * 0.5 for p in everybodys(9, torch.float32)]), "premul")
    out = torch.empty(3)
    dist.reduce_scatter_tensor(out, torch.ones(3 * world()), dist._make_nccl_premul_sum(0.25), group=ours())
    same(out, torch.full((3,), 0.25 * world()), "premul reduce_scatter")


@case
def all_reduce_of_every_shape():
    for x in (torch.ones(()), torch.ones(0), torch.ones(2, 0, 3), torch.ones(2, 3, 4), torch.ones(1 << 18),
              torch.ones(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)):
        form = x.stride()
        dist.all_reduce(x, group=ours())
        assert x.stride() == form
        same(x, torch.full_like(x, float(world())), str(x.shape))


@case
def tensors_in_the_librarys_memory():
    import gc

    import rcclx

    x = rcclx.torch.empty(3, 1 << 16)
    assert x.dtype is torch.float32 and x.shape == (3, 1 << 16) and x.is_contiguous()
    x.fill_(me() + 1)
    dist.all_reduce(x, group=ours())
    same(x, torch.full_like(x, float(sum(range(1, world() + 1)))), "in it")
    half = rcclx.torch.empty((5,), dtype=torch.bfloat16)
    half.fill_(1)
    dist.all_reduce(half, group=ours())
    same(half, torch.full_like(half, float(world())), "another type")
    held = rcclx.dump("process")["arena_bytes"]
    view = x[1]
    del x, half
    gc.collect()
    assert rcclx.dump("process")["arena_bytes"] > 0 and view[0] > 0, "a view keeps it"
    del view
    gc.collect()
    assert rcclx.dump("process")["arena_bytes"] < held
    assert rcclx.torch.empty(0).numel() == 0


@case
def reduce():
    for op, dtype in reductions():
        for root in range(world()):
            got = data(me(), 13, dtype)
            done(dist.reduce(got, root, op, group=ours(), async_op=bool(root % 2)))
            if me() == root:
                same(got, combined(op, everybodys(13, dtype)), f"{op} of {dtype} to {root}")
            else:
                same(got, data(me(), 13, dtype), "who is not the root keeps its own")


@case
def broadcast():
    for dtype, count, later in ways(FLOATS + WHOLE + ODD):
        for root in range(world()):
            got = data(me(), count, dtype)
            done(dist.broadcast(got, root, group=ours(), async_op=later))
            same(got, data(root, count, dtype), f"{dtype} from {root}")


@case
def all_gather():
    for dtype, count, later in ways(FLOATS + WHOLE + ODD):
        mine, want = data(me(), count, dtype), everybodys(count, dtype)
        apart = [torch.empty_like(mine) for _ in range(world())]
        done(dist.all_gather(apart, mine, group=ours(), async_op=later))
        whole = torch.empty(world() * count, dtype=dtype)
        done(dist.all_gather(list(whole.chunk(world())), mine, group=ours(), async_op=later))
        single = torch.empty(world(), count, dtype=dtype)
        done(dist.all_gather_into_tensor(single, mine, group=ours(), async_op=later))
        for r in range(world()):
            same(apart[r], want[r], f"list, {dtype}, {count}")
            same(whole[r * count:(r + 1) * count], want[r], f"chunks, {dtype}, {count}")
            same(single[r], want[r], f"single, {dtype}, {count}")


@case
def all_gather_like_gloo():
    for dtype in sorted(GLOO, key=str):
        mine = data(me(), 77, dtype)
        a, b = ([torch.empty_like(mine) for _ in range(world())] for _ in range(2))
        dist.all_gather(a, mine, group=ours())
        dist.all_gather(b, mine)
        for x, y in zip(a, b):
            same(x, y, str(dtype))


@case
def all_gather_of_different_sizes():
    for later in (False, True):
        outputs = [torch.empty(r + 1) for r in range(world())]
        done(dist.all_gather(outputs, data(me(), me() + 1, torch.float32), group=ours(), async_op=later))
        for r in range(world()):
            same(outputs[r], data(r, r + 1, torch.float32), f"of rank {r}")


@case
def gather_and_scatter():
    for dtype, count, later in ways(FLOATS + WHOLE + ODD):
        for root in range(world()):
            mine = data(me(), count, dtype)
            outputs = [torch.empty_like(mine) for _ in range(world())] if me() == root else None
            done(dist.gather(mine, outputs, root, group=ours(), async_op=later))
            if me() == root:
                for r in range(world()):
                    same(outputs[r], data(r, count, dtype), f"gather to {root}, {dtype}")
            out = torch.empty_like(mine)
            inputs = [data(root, count, dtype, salt=r) for r in range(world())] if me() == root else None
            done(dist.scatter(out, inputs, root, group=ours(), async_op=later))
            same(out, data(root, count, dtype, salt=me()), f"scatter from {root}, {dtype}")


@case
def reduce_scatter():
    for op, dtype in reductions():
        for later in (False, True):
            count = 11
            inputs = [data(me(), count, dtype, salt=r) for r in range(world())]
            want = combined(op, [data(r, count, dtype, salt=me()) for r in range(world())])
            out = torch.empty(count, dtype=dtype)
            done(dist.reduce_scatter(out, inputs, op, group=ours(), async_op=later))
            same(out, want, f"list, {op}, {dtype}")
            out = torch.empty(count, dtype=dtype)
            done(dist.reduce_scatter_tensor(out, torch.cat(inputs), op, group=ours(), async_op=later))
            same(out, want, f"tensor, {op}, {dtype}")


@case
def reduce_scatter_of_different_sizes():
    inputs = [data(me(), r + 1, torch.float32, salt=r) for r in range(world())]
    out = torch.empty(me() + 1)
    dist.reduce_scatter(out, inputs, group=ours())
    same(out, combined(ReduceOp.SUM, [data(r, me() + 1, torch.float32, salt=me()) for r in range(world())]), "uneven")


@case
def all_to_all():
    for dtype, count, later in ways(FLOATS + WHOLE + ODD):
        sent = torch.cat([data(me(), count, dtype, salt=r) for r in range(world())])
        want = torch.cat([data(r, count, dtype, salt=me()) for r in range(world())])
        got = torch.empty_like(sent)
        done(dist.all_to_all_single(got, sent, group=ours(), async_op=later))
        same(got, want, f"single, {dtype}, {count}")
        outputs = [torch.empty(count, dtype=dtype) for _ in range(world())]
        done(dist.all_to_all(outputs, list(sent.chunk(world())), group=ours(), async_op=later))
        same(torch.cat(outputs), want, f"list, {dtype}, {count}")


@case
def all_to_all_with_splits():
    """Rank r sends r + p rows to rank p."""
    for later in (False, True):
        gives, takes = [me() + p for p in range(world())], [p + me() for p in range(world())]
        sent = torch.cat([torch.full((n, 3), float(10 * me() + p)) for p, n in enumerate(gives)])
        want = torch.cat([torch.full((n, 3), float(10 * p + me())) for p, n in enumerate(takes)])
        got, theirs = torch.empty_like(want), torch.empty_like(want)
        done(dist.all_to_all_single(got, sent, takes, gives, group=ours(), async_op=later))
        same(got, want, "splits")
        dist.all_to_all_single(theirs, sent, takes, gives)
        same(got, theirs, "splits, beside gloo")
        lists = [torch.empty(n, 3) for n in takes]
        done(dist.all_to_all(lists, list(sent.split(gives)), group=ours(), async_op=later))
        same(torch.cat(lists), want, "lists of different sizes")
        short = torch.empty_like(want, dtype=torch.int16)
        done(dist.all_to_all_single(short, sent.to(torch.int16), takes, gives, group=ours(), async_op=later))
        same(short, want.to(torch.int16), "splits of a type that goes as bytes")


@case
def coalesced():
    shapes = [3, 1000, 1]
    tensors = [data(me(), n, torch.float32) for n in shapes]
    dist.all_reduce_coalesced(tensors, group=ours())
    for x, n in zip(tensors, shapes):
        same(x, combined(ReduceOp.SUM, everybodys(n, torch.float32)), "all_reduce_coalesced")
    tensors = [data(me(), n, torch.int32) for n in shapes]
    ours().allreduce_coalesced(tensors, options(dist.AllreduceCoalescedOptions(), reduceOp=ReduceOp.BOR)).wait()
    for x, n in zip(tensors, shapes):
        same(x, combined(ReduceOp.BOR, everybodys(n, torch.int32)), "all_reduce_coalesced of BOR")
    outputs = [torch.empty(world() * n) for n in shapes]
    ours().all_gather_single_coalesced(outputs, [data(me(), n, torch.float32) for n in shapes]).wait()
    for x, n in zip(outputs, shapes):
        same(x, torch.cat(everybodys(n, torch.float32)), "all_gather_into_tensor_coalesced")
    outputs = [torch.empty(n) for n in shapes]
    ours().reduce_scatter_single_coalesced(outputs, [torch.ones(world() * n) for n in shapes]).wait()
    for x, n in zip(outputs, shapes):
        same(x, torch.full((n,), float(world())), "reduce_scatter_tensor_coalesced")
    lists = [[torch.empty(n) for n in shapes] for _ in range(world())]
    ours().allgather_coalesced(lists, [data(me(), n, torch.float32) for n in shapes]).wait()
    for r in range(world()):
        for x, n in zip(lists[r], shapes):
            same(x, data(r, n, torch.float32), "all_gather_coalesced")


def options(made, **given):
    for name, value in given.items():
        setattr(made, name, value)
    return made


@case
def a_coalescing_block():
    x, y = data(me(), 5, torch.float32), data(me(), 7, torch.float32)
    with dist._coalescing_manager(ours(), async_ops=True) as block:
        dist.all_reduce(x, group=ours())
        dist.all_reduce(y, group=ours())
    block.wait()
    same(x, combined(ReduceOp.SUM, everybodys(5, torch.float32)), "first")
    same(y, combined(ReduceOp.SUM, everybodys(7, torch.float32)), "second")
    a, b = torch.empty(world() * 5), torch.empty(world() * 7)
    with dist._coalescing_manager(ours(), device=torch.device("cpu"), async_ops=True) as block:
        ours().all_gather_single(a, data(me(), 5, torch.float32))
        ours().all_gather_single(b, data(me(), 7, torch.float32))
    block.wait()
    assert block.works[0].is_completed() and len(block.works[0].get_future().wait()) == 2
    same(a, torch.cat(everybodys(5, torch.float32)), "third")
    same(b, torch.cat(everybodys(7, torch.float32)), "fourth")


@case
def barriers_hold():
    import time

    for later in (False, True):
        dist.barrier(group=ours())
        began = time.monotonic()
        if me() == 1:
            time.sleep(0.2)
        done(dist.barrier(group=ours(), async_op=later))
        assert me() == 1 or time.monotonic() - began > 0.15, "it did not wait"


@case
def without_options_as_pytorchs_own_groups_take_it():
    x = data(me(), 5, torch.float32)
    ours().allreduce(x, op=ReduceOp.MAX).wait()
    same(x, combined(ReduceOp.MAX, everybodys(5, torch.float32)), "allreduce")
    ours().broadcast(x, root=0).wait()
    out = [torch.empty(5) for _ in range(world())]
    ours().allgather(out, data(me(), 5, torch.float32)).wait()
    same(out[-1], data(world() - 1, 5, torch.float32), "allgather")
    y = data(me(), 5, torch.float32)
    ours().reduce(y, root=1).wait()
    got = torch.empty(5)
    ours().reduce_scatter(got, [torch.ones(5)] * world()).wait()
    same(got, torch.full((5,), float(world())), "reduce_scatter")
    ours().scatter(got, [torch.full((5,), float(r)) for r in range(world())] if me() == 1 else [], root=1).wait()
    same(got, torch.full((5,), float(me())), "scatter")
    ours().gather(out if me() == 1 else [], got, root=1).wait()
    if me() == 1:
        same(out[0], torch.zeros(5), "gather")
    ours().barrier().wait()


@case
def many_at_once_in_order():
    tensors = [torch.full((i % 50 + 1,), float(i)) for i in range(300)]
    works = [dist.all_reduce(x, group=ours(), async_op=True) for x in tensors]
    futures = [work.get_future() for work in works[::7]]
    for i in (299, 0, 150):
        works[i].wait()
    for future in futures:
        future.wait()
    for i, (x, work) in enumerate(zip(tensors, works)):
        work.wait()
        same(x, torch.full((i % 50 + 1,), float(i * world())), str(i))


@case
def tensors_live_until_their_operation_is_done():
    import gc

    dist.barrier(group=ours())
    if me() == 1:
        import time
        time.sleep(0.1)
    for i in range(20):
        dist.all_reduce(torch.ones(100000), group=ours(), async_op=True)  # nobody holds tensor or work
        gc.collect(0)
    last = torch.ones(3)
    dist.all_reduce(last, group=ours())
    same(last, torch.full((3,), float(world())), "after them")


@case
def futures_have_the_tensors_and_run_callbacks():
    x = torch.ones(4)
    future = dist.all_reduce(x, group=ours(), async_op=True).get_future()
    twice = future.then(lambda f: f.value()[0] * 2)
    same(twice.wait(), torch.full((4,), 2.0 * world()), "then")
    outputs = [torch.empty(4) for _ in range(world())]
    future = dist.all_gather(outputs, data(me(), 4, torch.float32), group=ours(), async_op=True).get_future()
    same(future.wait()[0], data(0, 4, torch.float32), "what is copied at the end is there")


@case
def the_sequence_number_counts():
    before = ours()._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1), group=ours())
    assert ours()._get_sequence_number_for_group() == before + 1


ranks.main(2, 4)
