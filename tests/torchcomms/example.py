import torch
import torchcomms

comm = torchcomms.new_comm("rcclx", torch.device("cuda" if torch.cuda.is_available() else "cpu"), name="my_comm")
t = torch.full((4,), float(comm.get_rank()), device=comm.get_device())

comm.all_reduce(t, torchcomms.ReduceOp.SUM, async_op=False)

work = comm.all_reduce(t, torchcomms.ReduceOp.SUM, async_op=True)
# ... something that does not need t
work.wait()
print(f"rank {comm.get_rank()} of {comm.get_size()}: {t.tolist()}")
comm.finalize()
