import torch
import torch.distributed as dist

import rcclx.torch  # not needed where the package is installed

dist.init_process_group("rcclx")
x = torch.full((4,), float(dist.get_rank()))
dist.all_reduce(x)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {x}")

model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
model(torch.randn(16, 8)).sum().backward()
dist.destroy_process_group()
