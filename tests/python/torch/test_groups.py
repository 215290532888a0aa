"""What PyTorch builds on process groups: parts of a group, object and functional
collectives, DTensor, FSDP2, DDP."""
import copy
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

import ranks
import rcclx.torch
from ranks import case, ours

_meshes = {}


def me():
    return dist.get_rank()


def world():
    return dist.get_world_size()


def mesh():
    """All ranks in a row, on the backend under test."""
    if "row" not in _meshes:
        _meshes["row"] = DeviceMesh.from_group(ours(), "cpu", mesh_dim_names=("row",))
    return _meshes["row"]


@case
def it_says_what_it_is():
    assert dist.get_backend(ours()) == "rcclx" and ours().name() == "rcclx"
    assert (dist.get_rank(ours()), dist.get_world_size(ours())) == (me(), world())
    assert isinstance(ours(), rcclx.torch.ProcessGroup) and ours().group_name
    assert dist.get_process_group_ranks(ours()) == list(range(world()))


@case
def groups_of_some_ranks():
    evens = list(range(0, world(), 2))
    group = dist.new_group(evens, backend="rcclx")
    last = dist.new_group([world() - 1], backend="rcclx")
    x = torch.ones(3)
    if me() in evens:
        dist.all_reduce(x, group=group)
        assert x[0] == len(evens)
        y = torch.full((2,), float(me()))
        dist.broadcast(y, evens[-1], group=group)  # a rank of the whole job
        assert y[0] == evens[-1]
    if me() == world() - 1:
        dist.all_reduce(x, group=last)
    dist.barrier(group=ours())
    if me() in evens:
        dist.destroy_process_group(group)


@case
def subgroups_of_two():
    mine, _ = dist.new_subgroups(group_size=2)
    rows = [dist.new_group([r, r + 1], backend="rcclx") for r in range(0, world(), 2)]
    x, y = torch.full((3,), float(me())), torch.full((3,), float(me()))
    dist.all_reduce(x, group=mine)
    dist.all_reduce(y, group=rows[me() // 2])
    assert torch.equal(x, y)


@case
def split_group_is_the_librarys_split():
    dist.all_reduce(torch.ones(1), group=ours())
    pair = [r for r in range(world()) if r % 2 == me() % 2]
    part = ours().split_group(pair)
    x = torch.full((4,), float(me()))
    part.allreduce([x]).wait()
    assert part.size() == len(pair) and x[0] == sum(pair)
    assert (ours().split_group([0, 1]) is None) == (me() > 1)


@case
def objects():
    everybody = [None] * world()
    dist.all_gather_object(everybody, {"rank": me(), "words": "x" * (me() * 100)}, group=ours())
    assert [e["rank"] for e in everybody] == list(range(world()))
    box = [{"from": me()}, me()]
    dist.broadcast_object_list(box, 1, group=ours())
    assert box == [{"from": 1}, 1]
    gathered = [None] * world() if me() == 0 else None
    dist.gather_object(("hello", me()), gathered, 0, group=ours())
    assert me() or gathered == [("hello", r) for r in range(world())]
    got = [None]
    dist.scatter_object_list(got, [f"for {r}" for r in range(world())] if me() == 0 else None, 0, group=ours())
    assert got == [f"for {me()}"]
    if me() == 0:
        dist.send_object_list(["a", 1], 1, group=ours())
    elif me() == 1:
        pair = [None, None]
        dist.recv_object_list(pair, 0, group=ours())
        assert pair == ["a", 1]


@case
def functional_collectives():
    import torch.distributed._functional_collectives as funcol

    x = torch.arange(4 * world(), dtype=torch.float32) + me()
    assert torch.equal(funcol.all_reduce(x, "sum", ours()).clone(), torch.arange(4.0 * world()) * world() + sum(range(world())))
    assert funcol.all_reduce(x, "avg", ours())[0] == sum(range(world())) / world()
    gathered = funcol.all_gather_tensor(x, 0, ours())
    assert gathered.shape[0] == 4 * world() ** 2 and gathered[-4 * world()] == world() - 1
    scattered = funcol.reduce_scatter_tensor(torch.ones(4 * world()), "sum", 0, ours())
    assert torch.equal(scattered.clone(), torch.full((4,), float(world())))
    swapped = funcol.all_to_all_single(torch.full((world(),), float(me())), None, None, ours())
    assert torch.equal(swapped.clone(), torch.arange(float(world())))
    assert funcol.broadcast(x.clone(), 1, ours())[0] == 1
    many = funcol.all_reduce_coalesced([torch.ones(2), torch.ones(3)], "sum", ours())
    assert [m[0].item() for m in many] == [world()] * 2
    parts = funcol.all_gather_into_tensor_coalesced([torch.ones(2) * me(), torch.ones(3)], ours())
    assert parts[0][-1] == world() - 1 and parts[1][-1] == 1
    parts = funcol.reduce_scatter_tensor_coalesced([torch.ones(world()), torch.ones(2 * world())], "sum", [0, 0], ours())
    assert parts[0][0] == world() and parts[1][0] == world()


@case
def functional_collectives_have_gradients():
    import torch.distributed.nn.functional as F

    x = torch.full((3,), float(me() + 1), requires_grad=True)
    F.all_reduce(x * 2, group=ours()).sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0 * world()))


@case
def compiled_programs():
    import torch.distributed._functional_collectives as funcol

    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(x):
        return funcol.all_reduce(x * 2, "sum", ours().group_name) + 1

    assert torch.equal(step(torch.ones(4)), torch.full((4,), 2.0 * world() + 1))


@case
def dtensors():
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    whole = torch.arange(6.0 * world()).reshape(2 * world(), 3)
    rows = distribute_tensor(whole.clone(), mesh(), [Shard(0)])
    assert rows.to_local().shape == (2, 3) and torch.equal(rows.full_tensor(), whole)
    columns = rows.redistribute(mesh(), [Shard(1)])
    assert torch.equal(columns.full_tensor(), whole)
    total = DTensor.from_local(torch.ones(4, 2), mesh(), [Partial()]).redistribute(mesh(), [Replicate()])
    assert torch.equal(total.to_local(), torch.full((4, 2), float(world())))
    part = DTensor.from_local(torch.ones(2 * world(), 2), mesh(), [Partial()]).redistribute(mesh(), [Shard(0)])
    assert torch.equal(part.to_local(), torch.full((2, 2), float(world())))
    product = rows @ distribute_tensor(torch.ones(3, 5), mesh(), [Replicate()])
    assert torch.equal(product.full_tensor(), whole @ torch.ones(3, 5))
    uneven = distribute_tensor(torch.arange(2.0 * world() + 1), mesh(), [Shard(0)])
    assert torch.equal(uneven.full_tensor(), torch.arange(2.0 * world() + 1))


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(7, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))


def batch(step):
    torch.manual_seed(100 * step + me())
    return torch.randn(8, 7), torch.randn(8, 3)


def train(model, parameters, steps=5):
    optimizer, losses = torch.optim.Adam(parameters, lr=0.01), []
    for step in range(steps):
        x, y = batch(step)
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def ddp(group, **how):
    model = torch.nn.parallel.DistributedDataParallel(network(), process_group=group, **how)
    losses = train(model, model.parameters())
    return losses, [p.detach().clone() for p in model.parameters()]


@case
def ddp_is_as_with_gloo():
    for how in ({}, {"bucket_cap_mb": 0.0005}, {"gradient_as_bucket_view": True}, {"static_graph": True},
                {"find_unused_parameters": True}):
        (a, p), (b, q) = ddp(ours(), **how), ddp(dist.group.WORLD, **how)
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(p, q)
    everybody = [torch.empty_like(p[0]) for _ in range(world())]
    dist.all_gather(everybody, p[0])
    assert all(torch.equal(e, everybody[0]) for e in everybody), "the ranks' weights differ"


@case
def ddp_with_hooks_and_without_synchronising():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook):
        results = []
        for group in (ours(), dist.group.WORLD):
            model = torch.nn.parallel.DistributedDataParallel(network(), process_group=group)
            model.register_comm_hook(group, hook)
            results.append(train(model, model.parameters(), 3))
        torch.testing.assert_close(*results, rtol=1e-2, atol=1e-2)
    model = torch.nn.parallel.DistributedDataParallel(network(), process_group=ours())
    with model.no_sync():
        model(torch.ones(1, 7) * me()).sum().backward()
    model(torch.ones(1, 7) * me()).sum().backward()
    grads = [torch.empty_like(model.module[4].bias.grad) for _ in range(world())]
    dist.all_gather(grads, model.module[4].bias.grad)
    assert all(torch.equal(g, grads[0]) for g in grads)


@case
def batch_norms_are_synchronised():
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.BatchNorm1d(5), process_group=ours())
    model(torch.full((4, 5), float(me())))
    means = [torch.empty(5) for _ in range(world())]
    model(torch.full((4, 5), float(me())))  # buffers go out before every step
    dist.all_gather(means, model.module.running_mean)
    assert not torch.isnan(torch.stack(means)).any()


def sharded(group_mesh, **how):
    from torch.distributed.fsdp import fully_shard

    model = network()
    for layer in (model[0], model[2], model[4]):
        fully_shard(layer, mesh=group_mesh, **how)
    fully_shard(model, mesh=group_mesh, **how)
    losses = train(model, model.parameters())
    return losses, [p.full_tensor().detach() for p in model.parameters()]


@case
def fsdp2_is_as_with_gloo():
    gloo = DeviceMesh("cpu", list(range(world())))
    for how in ({}, {"reshard_after_forward": False}):
        (a, p), (b, q) = sharded(mesh(), **how), sharded(gloo, **how)
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(p, q)


@case
def fsdp2_in_mixed_precision():
    from torch.distributed.fsdp import MixedPrecisionPolicy

    losses, _ = sharded(mesh(), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    torch.testing.assert_close(losses, sharded(mesh())[0], rtol=0.1, atol=0.1)


@case
def tensor_parallel_layers():
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model, x = network(), torch.ones(2, 7)
    want = copy.deepcopy(model)(x)
    parallelize_module(model, mesh(), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    torch.testing.assert_close(model(x), want)


@case
def checkpoints():
    import tempfile

    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.tensor import Shard, distribute_tensor

    box = [tempfile.mkdtemp() if me() == 0 else None]
    dist.broadcast_object_list(box, 0)
    whole = torch.arange(4.0 * world())
    checkpoint.save({"x": distribute_tensor(whole, mesh(), [Shard(0)])}, checkpoint_id=box[0], process_group=ours())
    back = {"x": distribute_tensor(torch.zeros(4 * world()), mesh(), [Shard(0)])}
    checkpoint.load(back, checkpoint_id=box[0], process_group=ours())
    assert torch.equal(back["x"].full_tensor(), whole)


def digits():
    """The images and labels of examples/data/digits.txt; every fifth is for the test."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 3, "examples", "data", "digits.txt")
    lines = [line.split() for line in open(path, encoding="ascii")]
    images = torch.tensor([[int(c, 17) / 16 for c in pixels] for pixels, _ in lines])
    labels = torch.tensor([int(label) for _, label in lines])
    test = torch.arange(len(lines)) % 5 == 0
    return images[~test], labels[~test], images[test], labels[test]


def recognised(group):
    images, labels, unseen, answers = digits()
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model = torch.nn.parallel.DistributedDataParallel(net, process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(10):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        for at in range(0, len(order) - 64 + 1, 64):
            mine = order[at + me():at + 64:world()]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images[mine]), labels[mine]).backward()
            optimizer.step()
    return (net(unseen).argmax(1) == answers).float().mean().item()


@case
def ddp_on_digits_recognises_as_many_as_with_gloo():
    a, b = recognised(ours()), recognised(dist.group.WORLD)
    assert abs(a - b) <= 0.006 and a > 0.93, (a, b)  # two of 359 images, by rounding


@case
def a_mesh_of_two_dimensions():
    grid = init_device_mesh("cpu", (world() // 2, 2), mesh_dim_names=("a", "b"), backend_override={"a": "rcclx", "b": "rcclx"})
    x = torch.full((3,), float(me()))
    dist.all_reduce(x, group=grid.get_group("b"))
    assert dist.get_backend(grid.get_group("b")) == "rcclx" and x[0] == 2 * (me() // 2 * 2) + 1


ranks.main(2, 4)
