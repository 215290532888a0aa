"""What PyTorch calls to learn of the backend "rcclx": the entry point of
`torch.distributed.backends` (2.14 and later, when the name is first used) and of
`torch.backends` (before, at `import torch`).

It only leaves the name. The package and librcclx.so are loaded when a group is
made, so that a program that makes none pays nothing, and nothing that is missing
can break its `import torch`. That is why this file is beside the package.
"""
from __future__ import annotations

from typing import Any


def _create(*arguments: Any) -> Any:
    from rcclx.torch import create

    return create(*arguments)


def register() -> None:
    """init_process_group("rcclx") works from here on. More than once is fine."""
    import torch.distributed as dist

    if dist.is_available() and "RCCLX" not in getattr(dist.Backend, "_plugins", {}):
        dist.Backend.register_backend("rcclx", _create, extended_api=True, devices=["cpu", "cuda"])
