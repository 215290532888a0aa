"""The torch.distributed backend "rcclx", for tensors on the CPU and on GPUs.

    import torch.distributed as dist
    import rcclx.torch                      # not needed where the package is installed

    dist.init_process_group("rcclx")
    dist.all_reduce(tensor)

Everything that torch.distributed builds on its process groups works on it: DDP,
FSDP2, DTensor, functional and object collectives, new_group. Exceptions are
rcclx's and torch.distributed.DistBackendError at once.
"""
from __future__ import annotations

try:
    import torch as _torch
    import torch.distributed as _dist
except ImportError as missing:
    raise ImportError(f"rcclx.torch: PyTorch cannot be imported ({missing}); install it (pip install torch), 2.5 or newer") from missing

OLDEST = (2, 5)

if not _dist.is_available():
    raise ImportError(f"rcclx.torch: this PyTorch ({_torch.__version__}) was built without torch.distributed; install one that has it")
_version = tuple(int(n) for n in _torch.__version__.split("+")[0].split(".")[:2])
if _version < OLDEST:
    raise ImportError(f"rcclx.torch: PyTorch {_torch.__version__} is too old, {'.'.join(map(str, OLDEST))} is needed; upgrade it")

from _rcclx_autoload import register

from ._backend import ProcessGroup, create
from ._errors import (DeviceError, InternalError, InvalidArgument, InvalidUsage, RemoteError, SystemFailure, Timeout)
from ._group import Options
from ._memory import empty

__all__ = ["DeviceError", "InternalError", "InvalidArgument", "InvalidUsage", "Options", "ProcessGroup", "RemoteError",
           "SystemFailure", "Timeout", "create", "empty", "register"]

register()
