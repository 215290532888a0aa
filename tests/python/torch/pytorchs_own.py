#!/usr/bin/env python3
"""PyTorch's own tests of a backend, as far as its wheel has them, on this one.

    PYTHONPATH=python build/python-torch/bin/python -m pytest tests/python/torch/pytorchs_own.py

They need pytest, expecttest and psutil beside PyTorch. The tests ask by name what a backend
can do and know only PyTorch's own names, so this one stands in as "gloo": groups that
they make on gloo are made on rcclx. WORLD_SIZE is 4 unless it is set. What passes, and why
the rest does not, stands in docs/howto/pytorch.md.
"""
import os
import tempfile

FOLDER = os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
for name in ("barrier", "test_dir", "init_dir"):
    os.makedirs(os.path.join(FOLDER, name), exist_ok=True)
os.environ.setdefault("WORLD_SIZE", "4")
os.environ.setdefault("RCCLX_DEVICE", "host")
os.environ.setdefault("INIT_METHOD", "file://" + os.path.join(FOLDER, "init_dir", "store"))
os.environ["BACKEND"] = "gloo"

import torch
import torch.distributed.distributed_c10d as c10d
from torch.testing._internal.common_distributed import DistTestCases

import rcclx.torch

DistTestCases.skip_collective["sendrecv anysource"].add("gloo")  # as for nccl: refused

from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend

_make = c10d._new_process_group_helper


def make(size, rank, ranks, backend, *rest, **named):
    return _make(size, rank, ranks, c10d.Backend("rcclx") if "gloo" in str(backend) else backend, *rest, **named)


class TestRcclx(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        c10d._new_process_group_helper = make
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


del TestDistBackend  # or pytest would run it, too
