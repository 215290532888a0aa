"""Whole programs: the example of the page about PyTorch, under two launchers, and that
the benchmarks measure."""
import json
import os
import re
import subprocess
import sys
import tempfile

from tap import main, test

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.join(HERE, *[".."] * 3)
RCCLX = os.path.join(os.environ["RCCLX_BUILD"], "bin", "rcclx")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]


def run(*command):
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran
    return ran.stdout


@test
def the_example():
    for launcher in ([RCCLX, "run", "-n", "2", "--", sys.executable], [*TORCHRUN, "--nproc-per-node", "2"]):
        said = run(*launcher, os.path.join(HERE, "example.py"))
        for rank in range(2):
            assert f"rank {rank} of 2: tensor([1., 1., 1., 1.])" in said, said


@test
def the_benchmark_beside_gloo():
    with tempfile.TemporaryDirectory() as folder:
        said = run(sys.executable, os.path.join(TREE, "bench", "torch.py"), "--passes", "3", "--sizes", "4K,64K", "--out", folder)
        found = json.load(open(os.path.join(folder, "torch.json"), encoding="utf-8"))
        table = open(os.path.join(folder, "torch.md"), encoding="utf-8").read()
        assert sorted(os.listdir(folder)) == ["torch.json", "torch.md"], os.listdir(folder)
    assert {(c["op"], c["nbytes"]) for c in found["cells"]} >= {("all_reduce", 4096), ("send_recv", 65536)}
    assert all(len(c["us"][b]) == 3 and min(c["us"][b]) > 0 for c in found["cells"] for b in ("gloo", "rcclx"))
    assert len(found["overhead_us"]["torch"]) == 15 and "| all_reduce | 4 KiB |" in said and said.strip() in table


@test
def the_decode_benchmark_at_a_tiny_shape():
    """Its own check: the ranks' logits are those of one rank; in low precision, nearly."""
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, os.path.join(TREE, "bench", "decode.py"), "--device", "cpu", "--shape", "tiny", "--prompts", "16",
            "--batches", "1,3", "--steps", "3", "--times", "2", "--rounds", "1", "--low-bytes", "1K", "--out", folder)
        found = json.load(open(os.path.join(folder, "decode.json"), encoding="utf-8"))
        text = open(os.path.join(folder, "decode.md"), encoding="utf-8").read()
    errors = dict((f"{name}, {weights}", float(error)) for name, weights, error in
                  re.findall(r"^([\w ]+), (\w+): the ranks' logits are those of one rank within ([\d.e+-]+)$", text, re.M))
    assert len(errors) == 6, text
    assert all(error < 1e-5 for name, error in errors.items() if "int8" not in name), errors
    assert all(1e-5 < error < 0.05 for name, error in errors.items() if "int8" in name), errors
    kinds = {(c["kind"], c["weights"], c["batch"]) for c in found["cells"]}
    assert kinds == {(k, w, b) for w in ("bf16", "fp8") for k, b in (("decode", 1), ("decode", 3), ("prefill", 1))}, kinds


main()
