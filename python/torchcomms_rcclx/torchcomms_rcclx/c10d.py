"""torch.distributed by way of torchcomms: after

    torchcomms_rcclx.c10d.register()

init_process_group("rcclx") gives process groups whose operations are torchcomms' with this backend. It is also what makes
the name acceptable where torch.distributed itself goes through torchcomms (TORCH_DISTRIBUTED_USE_TORCHCOMMS=1).
"""
import os

import torch
import torch.distributed as dist
import torchcomms
from torchcomms._comms import _BackendWrapper

_RANK_AND_SIZE = ("TORCHCOMM_RANK", "TORCHCOMM_SIZE")


def _device():
    return torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")


def _create(store, rank, size, timeout):
    """A process group may hold some of the job's ranks only; torchcomms reads who they are from the environment."""
    before = [os.environ.get(name) for name in _RANK_AND_SIZE]
    os.environ.update(zip(_RANK_AND_SIZE, (str(rank), str(size))))
    try:
        return _BackendWrapper(torchcomms.new_comm("rcclx", _device(), name="c10d", store=store, timeout=timeout))
    finally:
        for name, value in zip(_RANK_AND_SIZE, before):
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def register():
    """Once is enough; where the name is taken already, nothing is done."""
    if "rcclx" not in dist.Backend.backend_list:
        dist.Backend.register_backend("rcclx", _create, devices=[_device().type])
