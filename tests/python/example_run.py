import numpy

import rcclx


def work(comm, scale):
    return float(comm.all_reduce(numpy.array([scale * comm.rank]))[0])


if __name__ == "__main__":
    print(rcclx.run(work, 4, 10))
