#!/usr/bin/env python3
"""The PyTorch backend beside gloo, in the same processes, in turns.

    bench/torch.py                                    2 processes, a table
    bench/torch.py -n 4 --ops all_reduce --sizes 4K,1M --passes 21
    bench/torch.py --out bench/results/<machine>      torch.json and torch.md there

Each pass measures one batch of both backends for every cell, now one first, now the
other. Before every call all ranks rewrite the tensor and agree on a moment to begin
at; the time from then to the slowest rank's return is the call's, and the shortest of
a batch counts: in the others some other program had a core. A ratio is the median over the passes of ours / gloo's in the same
pass: other programs on the machine slow both. Less than 1 is faster. Rank r is pinned to the
r-th core.

The last line is what a call costs the processor before and after the C function does
its work: all_reduce of 4 KiB through torch.distributed against the C call through
ctypes, on a group of one rank, which has nobody to wait for; in turns, too.

    all_reduce_own    on tensors of rcclx.torch.empty, for both
    async             all_reduce with async_op, and wait()
    send_recv         there and back, between two ranks
"""
import argparse
import datetime
import json
import os
import socket
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(HERE)
sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != HERE]  # or this file were "torch"
OPS = ("all_reduce", "all_reduce_own", "async", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv")
SIZES = ("4K", "64K", "1M", "16M")
BARS = {("all_reduce", 4096): 0.25, ("all_reduce", 16 << 20): 0.3}
OVERHEAD_BAR = 12.0
AHEAD = 0.0003  # seconds from asking to starting


def nbytes(text):
    unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:].upper())
    return int(text[:-1]) * unit if unit else int(text)


def size_text(n):
    return f"{n >> 20} MiB" if n >= 1 << 20 else f"{n >> 10} KiB" if n >= 1 << 10 else f"{n} B"


# ---- in a rank

class Cell:
    """One operation on tensors of one size; n is the size of the big one, in bytes."""

    def __init__(self, name, n, groups):
        import torch
        import torch.distributed as dist

        self.name, self.n, self.groups = name, n, groups
        size, self.rank = dist.get_world_size(), dist.get_rank()
        self.peer = self.rank ^ 1
        if name == "all_reduce_own":
            import rcclx.torch

            self.big = rcclx.torch.empty(n // 4)
        else:
            self.big = torch.ones(n // 4)
        self.other = torch.empty(n // 4)
        self.part = torch.empty(n // 4 // size)
        self.start = torch.zeros(1, dtype=torch.float64)

    def call(self, group):
        import torch.distributed as dist

        if self.name in ("all_reduce", "all_reduce_own"):
            dist.all_reduce(self.big, group=group)
        elif self.name == "async":
            dist.all_reduce(self.big, group=group, async_op=True).wait()
        elif self.name == "all_gather":
            dist.all_gather_into_tensor(self.big, self.part, group=group)
        elif self.name == "reduce_scatter":
            dist.reduce_scatter_tensor(self.part, self.big, group=group)
        elif self.name == "all_to_all":
            dist.all_to_all_single(self.other, self.big, group=group)
        elif self.name == "broadcast":
            dist.broadcast(self.big, 0, group=group)
        elif self.peer < dist.get_world_size():
            self.exchange(group)

    def exchange(self, group):
        """There and back, between neighbours."""
        import torch.distributed as dist

        for sender in (0, 1):
            if self.rank % 2 == sender:
                dist.send(self.big, self.peer, group=group)
            else:
                dist.recv(self.other, self.peer, group=group)

    def together(self):
        """All ranks leave at one moment of the clock that they share: who is woken late from a
        barrier would be waited for in the call."""
        import torch.distributed as dist

        self.start[0] = time.perf_counter() + AHEAD
        dist.all_reduce(self.start, dist.ReduceOp.MAX, group=self.groups["rcclx"])
        until = self.start[0].item()
        while time.perf_counter() < until:
            pass
        return until

    def batch(self, group, calls):
        """Seconds of the slowest rank, the shortest of the calls."""
        import torch
        import torch.distributed as dist

        times = torch.zeros(calls, dtype=torch.float64)
        for i in range(calls):
            self.big.fill_(1.0)
            self.part.fill_(1.0)
            began = self.together()
            self.call(group)
            times[i] = time.perf_counter() - began
        dist.all_reduce(times, dist.ReduceOp.MAX, group=self.groups["rcclx"])
        return times.min().item()


def measure(wish):
    """{(op, bytes): {backend: [seconds of each pass]}}"""
    import torch
    import torch.distributed as dist

    import rcclx.torch

    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(os.environ["RANK"]) % len(cores)]})
    dist.init_process_group("gloo")
    groups = {"gloo": dist.group.WORLD, "rcclx": dist.new_group(backend="rcclx")}
    found = {}
    for name in wish.ops.split(","):
        for n in map(nbytes, wish.sizes.split(",")):
            cell, calls = Cell(name, n, groups), max(6, min(50, (8 << 20) // n))
            times = found[name, n] = {"gloo": [], "rcclx": []}
            for group in groups.values():
                cell.batch(group, 2)
            for turn in range(wish.passes):
                for backend in sorted(groups, reverse=turn % 2 == 1):
                    times[backend].append(cell.batch(groups[backend], calls))
    return found, dist.get_rank()


def overhead(passes=15, calls=4000):
    """Microseconds of a call of torch.distributed, and of the C function, of each pass."""
    import torch
    import torch.distributed as dist

    from rcclx._library import lib

    alone = dist.new_group([dist.get_rank()], backend="rcclx", use_local_synchronization=True)
    x = torch.ones(1024)
    dist.all_reduce(x, group=alone)
    pointer, comm = x.data_ptr(), alone._routes["cpu"].handle

    def through_torch():
        dist.all_reduce(x, group=alone)

    def through_c():
        lib.ncclAllReduce(pointer, pointer, 1024, 7, 0, comm, None)

    found = {"torch": [], "c": []}
    for _ in range(passes):
        for name, call in (("torch", through_torch), ("c", through_c)):
            began = time.thread_time()
            for _ in range(calls):
                call()
            found[name].append((time.thread_time() - began) / calls * 1e6)
    return found


def rank(wish):
    found, me = measure(wish)
    if me == 0:
        import torch

        import rcclx

        cost = overhead()
        cells = [{"op": op, "nbytes": n, "us": {b: [round(s * 1e6, 2) for s in t] for b, t in times.items()}}
                 for (op, n), times in found.items()]
        with open(wish.result, "w", encoding="utf-8") as file:
            json.dump({"versions": {"torch": torch.__version__, "rcclx": rcclx.library_version()}, "ranks": wish.n, "cells": cells,
                       "overhead_us": {k: [round(t, 2) for t in v] for k, v in cost.items()}}, file)


# ---- the parent

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(wish, result):
    port = free_port()
    ranks = []
    for r in range(wish.n):
        env = {**os.environ, "RANK": str(r), "WORLD_SIZE": str(wish.n), "LOCAL_RANK": str(r), "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": str(port), "RCCLX_DEVICE": "host", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
               "PYTHONPATH": os.path.join(TREE, "python") + os.pathsep + os.environ.get("PYTHONPATH", ""), "BENCH_TORCH_RANK": result}
        ranks.append(subprocess.Popen([sys.executable, os.path.abspath(__file__), *sys.argv[1:]], env=env))
    codes = [p.wait() for p in ranks]
    if any(codes):
        sys.exit(f"torch.py: ranks ended with {codes}")
    with open(result, encoding="utf-8") as file:
        return json.load(file)


def ratios(cell):
    return [a / b for a, b in zip(cell["us"]["rcclx"], cell["us"]["gloo"])]


def table(found):
    """Lines of Markdown, and whether all bars are kept."""
    lines = ["| operation | size | rcclx us | gloo us | ratio | lowest, highest quarter | bar |", "|---|---:|---:|---:|---:|---|---:|"]
    kept = True
    for cell in found["cells"]:
        r = sorted(ratios(cell))
        middle, bar = statistics.median(r), BARS.get((cell["op"], cell["nbytes"]))
        ours, theirs = (statistics.median(cell["us"][b]) for b in ("rcclx", "gloo"))
        kept &= bar is None or middle <= bar
        lines.append(f"| {cell['op']} | {size_text(cell['nbytes'])} | {ours:.1f} | {theirs:.1f} | {middle:.2f} | "
                     f"{r[len(r) // 4]:.2f}, {r[-1 - len(r) // 4]:.2f} | {bar or ''} |")
    extra = [a - b for a, b in zip(found["overhead_us"]["torch"], found["overhead_us"]["c"])]
    cost = statistics.median(extra)
    kept &= cost <= OVERHEAD_BAR
    lines += ["", f"all_reduce of 4 KiB through torch.distributed: {cost:.1f} us of processor time over the C call "
                  f"(lowest {min(extra):.1f}; bar {OVERHEAD_BAR:g})"]
    return lines, kept


def machine():
    found = {"cores": os.cpu_count(), "kernel": os.uname().release}
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        rows = dict(line.split(":", 1) for line in file.read().split("\n\n")[0].splitlines() if ":" in line)
    for name, value in rows.items():
        if name.strip() in ("model name", "cpu family", "model"):
            found[name.strip()] = value.strip()
    return found


def main():
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("-n", type=int, default=2, help="processes (2)")
    ask.add_argument("--ops", default=",".join(OPS))
    ask.add_argument("--sizes", default=",".join(SIZES))
    ask.add_argument("--passes", type=int, default=15)
    ask.add_argument("--out", help="folder for torch.json and torch.md")
    ask.add_argument("--strict", action="store_true", help="exit code 1 when a bar is not kept")
    wish = ask.parse_args()
    if os.environ.get("BENCH_TORCH_RANK"):
        wish.result = os.environ["BENCH_TORCH_RANK"]
        return rank(wish)
    result = os.path.join(wish.out or "/tmp", f"torch.{os.getpid()}.tmp")
    try:
        found = start(wish, result)
    finally:
        if os.path.exists(result):
            os.remove(result)
    found["machine"], found["date"] = machine(), datetime.date.today().isoformat()
    found["load"] = os.getloadavg()[0]
    lines, kept = table(found)
    print("\n".join(lines))
    if wish.out:
        write(wish, found, lines)
    return 1 if wish.strict and not kept else 0


def write(wish, found, lines):
    m, v = found["machine"], found["versions"]
    with open(os.path.join(wish.out, "torch.json"), "w", encoding="utf-8") as file:
        json.dump(found, file)
        file.write("\n")
    head = [f"# torch.distributed: rcclx beside gloo, {found['ranks']} processes", "",
            f"{m.get('model name', '')} (family {m.get('cpu family')}, model {m.get('model')}), {m['cores']} cores, Linux {m['kernel']}, "
            f"PyTorch {v['torch']}, rcclx {v['rcclx']}, {found['date']}; load of the machine at the end {found['load']:.1f}.",
            f"`bench/torch.py {' '.join(sys.argv[1:])}`: medians of {wish.passes} passes, both in the same processes, in turns; the ratio "
            "is formed within a pass. f32, sum; buffers rewritten before every call.", ""]
    with open(os.path.join(wish.out, "torch.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(head + lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
