import numpy

import rcclx

with rcclx.Communicator.from_env() as comm:
    x = numpy.full(4, comm.rank, numpy.float32)
    comm.all_reduce(x)
    print(f"rank {comm.rank} of {comm.size}: {x}")
