#!/usr/bin/env python3
"""Decode and prefill of a tensor-parallel transformer: what the collectives of one model
cost under one backend and another.

    bench/decode.py                                    2 GPUs, Llama-3-8B's shape, nccl and rcclx
    bench/decode.py --backends nccl,preload,rcclx      preload: PyTorch's nccl on our libnccl.so.2
    bench/decode.py --device cpu --shape tiny          on the CPU, gloo and rcclx: tries the script itself
    bench/decode.py --batches 1,8 --prompts 512 --steps 16 --rounds 3 --out FOLDER

The weights are random, the shape is whole: embedding, layers, norm, logits. Each rank
has its heads and its part of the hidden units; a layer has two all-reduces, the logits
an all-gather. Every round starts fresh processes for one variant after the other, in an
order that turns, and the ratio is formed within a round.

    decode    a token for each sequence of a batch after `prompts` tokens, in a CUDA graph on
              GPUs: microseconds from token to token (TTIT), the median of the steps
    prefill   one prompt of so many tokens: microseconds, tokens a second
    alone     the same without the collectives (the results are wrong then): what is left is
              communication, and the waiting that comes with it

Variants of prefill end in "int8" where floats cross the wire in low precision. fp8 weights
have one scale a matrix; on GPUs both sides of a product are fp8 there, on the CPU they
are converted first.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(HERE)
sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != HERE]  # or torch.py beside this were "torch"

SHAPES = {
    "llama3-8b": dict(layers=32, width=4096, heads=32, kv_heads=8, hidden=14336, vocabulary=128256),
    "tiny": dict(layers=2, width=128, heads=4, kv_heads=2, hidden=256, vocabulary=512),
}
EPSILON, ROPE_BASE = 1e-5, 500000.0


# ---- the model, one rank of n

class Matrix:
    """A weight, stored as bf16 (f32 on the CPU) or as fp8 with one scale."""

    def __init__(self, rows, columns, seed, kind, device):
        import torch

        made = torch.randn(rows, columns, generator=torch.Generator(device).manual_seed(seed), device=device) * columns ** -0.5
        self.scale = None
        if kind == "fp8":
            self.scale = made.abs().max() / torch.finfo(torch.float8_e4m3fn).max
            self.kept = (made / self.scale).to(torch.float8_e4m3fn)
        else:
            self.kept = made.to(torch.bfloat16 if device.type == "cuda" else torch.float32)

    def plain(self):
        import torch

        return self.kept if self.scale is None else self.kept.to(torch.float32) * self.scale

    def __call__(self, x):
        import torch

        if self.scale is None:
            return x @ self.kept.t()
        if not x.is_cuda:
            return x @ self.plain().t()
        flat = x.reshape(-1, x.size(-1))
        scale = flat.abs().max().float().clamp(min=1e-12) / torch.finfo(torch.float8_e4m3fn).max
        out = torch._scaled_mm((flat / scale).to(torch.float8_e4m3fn), self.kept.t(), scale_a=scale, scale_b=self.scale,
                               out_dtype=x.dtype)
        return out.view(*x.shape[:-1], -1)


class Wire:
    """The collectives of the model; `on` False leaves them out."""

    def __init__(self, n):
        self.n, self.on = n, True

    def sum(self, x):
        import torch.distributed as dist

        if self.on and self.n > 1:
            dist.all_reduce(x)
        return x

    def gather(self, x):
        """Columns of all ranks, side by side."""
        import torch.distributed as dist

        if not self.on or self.n == 1:
            return x
        x = x.contiguous()
        whole = x.new_empty(self.n * x.size(0), x.size(1))
        dist.all_gather_into_tensor(whole, x)
        return whole.view(self.n, *x.shape).transpose(0, 1).reshape(x.size(0), -1)


class Model:
    """seed_of gives each part of each matrix a seed of its own, so that n ranks together have
    the weights of one rank that has all parts."""

    def __init__(self, shape, kind, device, rank, n, wire, parts=None):
        import torch

        self.s, self.n, self.wire, self.device = shape, n, wire, device
        self.parts = [rank] if parts is None else parts
        self.size = shape["width"] // shape["heads"]
        self.dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.kind = kind
        w, h, kv = shape["width"], shape["heads"] // n, shape["kv_heads"] // n
        self.heads, self.kv_heads = h * len(self.parts), kv * len(self.parts)
        self.embedding = torch.randn(shape["vocabulary"], w, generator=torch.Generator(device).manual_seed(1), device=device).to(self.dtype)
        self.layers = [{
            "qkv": self.matrices(layer, 0, (h + 2 * kv) * self.size, w), "out": self.matrices(layer, 1, w, h * self.size),
            "up": self.matrices(layer, 2, 2 * shape["hidden"] // n, w), "down": self.matrices(layer, 3, w, shape["hidden"] // n),
        } for layer in range(shape["layers"])]
        self.logits = self.matrices(shape["layers"], 4, shape["vocabulary"] // n, w)
        powers = torch.arange(0, self.size, 2, device=device) / self.size
        self.turns = 1.0 / ROPE_BASE ** powers

    def matrices(self, layer, number, rows, columns):
        return [Matrix(rows, columns, 1000 * (8 * layer + number) + part + 2, self.kind, self.device) for part in self.parts]

    def cache(self, batch, length):
        import torch

        shape = (batch, self.kv_heads, length, self.size)
        return [(torch.zeros(shape, dtype=self.dtype, device=self.device), torch.zeros(shape, dtype=self.dtype, device=self.device))
                for _ in self.layers]

    @staticmethod
    def norm(x):
        import torch

        return torch.nn.functional.rms_norm(x, x.shape[-1:], eps=EPSILON)

    def turned(self, x, positions):
        """Rotary positions; x is (batch, heads, tokens, size)."""
        import torch

        angles = positions[:, None].float() * self.turns
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)

    def attend(self, part, qkv, positions, keys, values, mask):
        """One part's heads; keys and values are its part of the cache."""
        import torch

        batch, tokens = qkv.shape[:2]
        h, kv = self.s["heads"] // self.n, self.s["kv_heads"] // self.n
        q, k, v = (t.view(batch, tokens, -1, self.size).transpose(1, 2)
                   for t in qkv.split((h * self.size, kv * self.size, kv * self.size), -1))
        mine = slice(part * kv, (part + 1) * kv)
        keys[:, mine].index_copy_(2, positions, self.turned(k, positions))
        values[:, mine].index_copy_(2, positions, v)
        if mask is None:  # a whole prompt: it sees itself alone
            seen, causal = (self.turned(k, positions), v), True
        else:
            seen, causal = (keys[:, mine], values[:, mine]), False
        out = torch.nn.functional.scaled_dot_product_attention(self.turned(q, positions), *seen, attn_mask=mask, is_causal=causal,
                                                               enable_gqa=True)
        return out.transpose(1, 2).reshape(batch, tokens, -1)

    def forward(self, tokens, positions, cache, mask):
        """Logits of the last token, of the whole vocabulary."""
        import torch

        x = self.embedding[tokens]
        for layer, (keys, values) in zip(self.layers, cache):
            seen = self.norm(x)
            parts = [out(self.attend(p, qkv(seen), positions, keys, values, mask))
                     for p, (qkv, out) in enumerate(zip(layer["qkv"], layer["out"]))]
            x = x + self.wire.sum(sum(parts[1:], parts[0]))
            seen = self.norm(x)
            parts = []
            for up, down in zip(layer["up"], layer["down"]):
                gate, value = up(seen).chunk(2, -1)
                parts.append(down(torch.nn.functional.silu(gate) * value))
            x = x + self.wire.sum(sum(parts[1:], parts[0]))
        last = self.norm(x[:, -1])
        return self.wire.gather(torch.cat([part(last) for part in self.logits], -1))


# ---- measuring, in a rank

class Clock:
    """Microseconds of a call that is done when it returns (CPU) or when the GPU is past it."""

    def __init__(self, device):
        self.gpu = device.type == "cuda"

    def __call__(self, call):
        import torch

        if not self.gpu:
            began = time.perf_counter()
            call()
            return (time.perf_counter() - began) * 1e6
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        call()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) * 1e3


class Decoder:
    """A batch whose next tokens are made one after the other, from `prompt` tokens on."""

    def __init__(self, model, batch, prompt, steps):
        import torch

        self.model, device = model, model.device
        self.length = prompt + steps
        self.cache = model.cache(batch, self.length)
        self.tokens = torch.ones(batch, 1, dtype=torch.long, device=device)
        self.position = torch.full((1,), prompt, dtype=torch.long, device=device)
        self.slots = torch.arange(self.length, device=device)
        self.graph = None

    def once(self):
        mask = (self.slots <= self.position)[None, None, None, :]
        logits = self.model.forward(self.tokens, self.position, self.cache, mask)
        self.tokens.copy_(logits.argmax(-1, keepdim=True))
        self.position.add_(1)

    def capture(self):
        import torch

        start = self.position.clone()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            self.once()
        side.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.once()
        self.position.copy_(start)

    def step(self):
        if self.graph:
            self.graph.replay()
        else:
            self.once()


def decode(model, batch, prompt, steps):
    import torch

    clock, decoder = Clock(model.device), Decoder(model, batch, prompt, steps + 4)
    if clock.gpu:
        decoder.capture()
    for _ in range(3):
        decoder.step()
    us = statistics.median(clock(decoder.step) for _ in range(steps))
    return us, torch.isfinite(model.embedding[decoder.tokens]).all().item()


def prefill(model, prompt, times):
    import torch

    clock = Clock(model.device)
    tokens = torch.arange(prompt, device=model.device)[None] % model.s["vocabulary"]
    positions, cache = torch.arange(prompt, device=model.device), model.cache(1, prompt)

    def call():
        model.forward(tokens, positions, cache, None)
    call()
    return statistics.median(clock(call) for _ in range(times))


def check(shape, kind, device, rank, n):
    """The ranks' logits are those of one rank with all parts. The largest relative difference."""
    import torch

    ours, whole = Model(shape, kind, device, rank, n, Wire(n)), Model(shape, kind, device, 0, n, Wire(1), parts=list(range(n)))
    tokens, positions = torch.arange(12, device=device)[None] % shape["vocabulary"], torch.arange(12, device=device)
    got, want = (m.forward(tokens, positions, m.cache(1, 16), None).float() for m in (ours, whole))
    return ((got - want).abs().max() / want.abs().max()).item()


def rank_main(wish):
    import torch
    import torch.distributed as dist

    rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", rank) if wish.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    backend = os.environ["BENCH_DECODE_BACKEND"]
    if backend == "rcclx":
        import rcclx.torch  # noqa: F401
    dist.init_process_group(backend)
    dist.barrier()
    shape, rows = SHAPES[wish.shape], []
    with torch.inference_mode():
        for kind in wish.weights.split(","):
            if wish.shape == "tiny":
                rows.append({"kind": "check", "weights": kind, "error": check(shape, kind, device, rank, n)})
            rows += measure(wish, Model(shape, kind, device, rank, n, Wire(n)), kind)
    if rank == 0:
        with open(os.environ["BENCH_DECODE_RESULT"], "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "rows": rows}, file)
    dist.destroy_process_group()


def numbers(text):
    return [int(word) for word in text.split(",") if word]


def measure(wish, model, kind):
    rows, low = [], bool(os.environ.get("RCCLX_LOW_PRECISION"))
    for prompt in numbers(wish.prompts):
        for batch in [] if low else numbers(wish.batches):
            row = {"kind": "decode", "weights": kind, "batch": batch, "prompt": prompt}
            for name, on in (("us", True), ("alone_us", False)):
                model.wire.on = on
                row[name], finite = decode(model, batch, prompt, wish.steps)
            rows.append({**row, "finite": finite})
        model.wire.on = True
        row = {"kind": "prefill", "weights": kind, "batch": 1, "prompt": prompt, "us": prefill(model, prompt, wish.times)}
        model.wire.on = False
        rows.append({**row, "alone_us": prefill(model, prompt, wish.times)})
        model.wire.on = True
    return rows


# ---- the parent: variants in turns

def variants(wish):
    """[(name, backend, variables)]; the first one is what the others are compared with."""
    found = []
    for name in wish.backends.split(","):
        if name == "preload":
            library = os.path.join(TREE, "build", "lib", "libnccl.so.2")
            found.append((name, "nccl", {"LD_PRELOAD": os.environ.get("RCCLX_NCCL_LIBRARY", library)}))
        else:
            found.append((name, name, {}))
    for name, backend, more in list(found):
        if wish.low_precision != "off" and name in ("rcclx", "preload"):
            found.append((f"{name} {wish.low_precision}", backend,
                          {**more, "RCCLX_LOW_PRECISION": wish.low_precision, "RCCLX_LOW_PRECISION_MIN_BYTES": wish.low_bytes}))
    return found


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(wish, backend, more, result):
    port, ranks = free_port(), []
    for r in range(wish.n):
        env = {**os.environ, "RANK": str(r), "WORLD_SIZE": str(wish.n), "LOCAL_RANK": str(r), "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "BENCH_DECODE_BACKEND": backend,
               "BENCH_DECODE_RESULT": result,
               "PYTHONPATH": os.path.join(TREE, "python") + os.pathsep + os.environ.get("PYTHONPATH", ""), **more}
        if wish.device == "cpu":
            env["RCCLX_DEVICE"] = "host"
        ranks.append(subprocess.Popen([sys.executable, os.path.abspath(__file__), *sys.argv[1:]], env=env))
    codes = [p.wait() for p in ranks]
    if any(codes):
        sys.exit(f"decode.py: ranks on {backend} ended with {codes}")
    with open(result, encoding="utf-8") as file:
        return json.load(file)


def rounds(wish):
    """{(kind, weights, batch, prompt): {variant: {"us": [of each round], "alone_us": [...]}}}, and the checks."""
    found, errors, version = {}, [], ""
    for turn in range(wish.rounds):
        order = variants(wish)
        order = order[turn % len(order):] + order[:turn % len(order)]
        for name, backend, more in order:
            said = run(wish, backend, more, wish.result)
            version = said["torch"]
            for row in said["rows"]:
                if row["kind"] == "check":
                    errors.append((name, row["weights"], row["error"]))
                    continue
                cell = found.setdefault((row["kind"], row["weights"], row["batch"], row["prompt"]), {})
                times = cell.setdefault(name, {"us": [], "alone_us": []})
                times["us"].append(row["us"])
                times["alone_us"].append(row["alone_us"])
    return found, errors, version


def ratio(ours, base):
    """The median of the rounds' ratios."""
    return statistics.median(a / b for a, b in zip(ours, base))


def communication(times):
    return [max(a - b, 0.0) for a, b in zip(times["us"], times["alone_us"])]


def table(found):
    lines = ["| | weights | batch | prompt | variant | us | tokens/s | ratio | without collectives us | communication us | its ratio |",
             "|---|---|---:|---:|---|---:|---:|---:|---:|---:|---:|"]
    for (kind, weights, batch, prompt), cell in found.items():
        base = next(iter(cell.values()))
        for name, times in cell.items():
            us, alone, wire = (statistics.median(t) for t in (times["us"], times["alone_us"], communication(times)))
            tokens = (prompt if kind == "prefill" else batch) / us * 1e6
            pairs = [(a, b) for a, b in zip(communication(times), communication(base)) if b > 0]
            its = f"{statistics.median(a / b for a, b in pairs):.2f}" if pairs else ""
            lines.append(f"| {kind} | {weights} | {batch} | {prompt} | {name} | {us:.1f} | {tokens:.0f} | "
                         f"{ratio(times['us'], base['us']):.3f} | {alone:.1f} | {wire:.1f} | {its} |")
    return lines


def wishes():
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    ask.add_argument("--shape", choices=sorted(SHAPES), default="llama3-8b")
    ask.add_argument("--backends", help="the first is what the others are compared with (nccl,rcclx; on the CPU gloo,rcclx)")
    ask.add_argument("--weights", default="bf16,fp8")
    ask.add_argument("--batches", default="1,2,4,8,16,32")
    ask.add_argument("--prompts", default="512,1024,2048,4096,8192")
    ask.add_argument("--steps", type=int, default=64, help="tokens that are timed")
    ask.add_argument("--times", type=int, default=10, help="prompts that are timed")
    ask.add_argument("--rounds", type=int, default=3)
    ask.add_argument("--low-precision", choices=("off", "int8", "fp8"), default="int8", help="of the extra variants, for prefill")
    ask.add_argument("--low-bytes", default="0", help="from which size on it is used (0: where it pays)")
    ask.add_argument("-n", type=int, default=2, help="ranks (2)")
    ask.add_argument("--out", help="folder for decode.json and decode.md")
    wish = ask.parse_args()
    wish.backends = wish.backends or ("nccl,rcclx" if wish.device == "cuda" else "gloo,rcclx")
    shape = SHAPES[wish.shape]
    if any(shape[what] % wish.n for what in ("heads", "kv_heads", "hidden", "vocabulary")):
        ask.error(f"-n {wish.n}: heads, hidden units and vocabulary of {wish.shape} cannot be divided among so many ranks")
    return wish


def main():
    wish = wishes()
    if os.environ.get("BENCH_DECODE_BACKEND"):
        return rank_main(wish)
    wish.result = os.path.join(wish.out or "/tmp", f"decode.{os.getpid()}.tmp")
    try:
        found, errors, version = rounds(wish)
    finally:
        if os.path.exists(wish.result):
            os.remove(wish.result)
    lines = table(found)
    lines += [f"\n{name}, {weights}: the ranks' logits are those of one rank within {error:.1e}" for name, weights, error in errors]
    print("\n".join(lines))
    if wish.out:
        with open(os.path.join(wish.out, "decode.json"), "w", encoding="utf-8") as file:
            json.dump({"torch": version, "command": sys.argv[1:], "cells": [
                {"kind": k, "weights": w, "batch": b, "prompt": p, "times": cell} for (k, w, b, p), cell in found.items()]}, file)
            file.write("\n")
        with open(os.path.join(wish.out, "decode.md"), "w", encoding="utf-8") as file:
            file.write("\n".join([f"PyTorch {version}, `bench/decode.py {' '.join(sys.argv[1:])}`", "", *lines]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
