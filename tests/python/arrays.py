"""Arrays that show one protocol each, over NumPy's memory."""
import numpy as np


class DLPack:
    """__dlpack__ alone; `versioned` False is a library of the time before versions."""

    def __init__(self, x, versioned=True):
        self.x, self.versioned = x, versioned

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()

    def __dlpack__(self, **options):
        if options and not self.versioned:
            raise TypeError("unexpected keyword max_version")
        return self.x.__dlpack__(**options)


class Device:
    def __init__(self, kind):
        self.type = kind


class Tensor:
    """What PyTorch's tensors answer. dtype: torch's name without the front."""

    layout = "torch.strided"

    def __init__(self, x, dtype=None, device="cpu", negated=False):
        self.x, self.device, self.negated = x, Device(device), negated
        self.dtype = "torch." + (dtype or str(x.dtype))
        self.shape = x.shape

    def data_ptr(self):
        return self.x.ctypes.data

    def stride(self):
        return tuple(s // self.x.itemsize for s in self.x.strides)

    def is_neg(self):
        return self.negated

    def new_empty(self, shape):
        return Tensor(np.empty(shape, self.x.dtype), self.dtype[6:])


class Cuda:
    """An array of `shape` float32 in a GPU's memory."""

    def __init__(self, pointer, shape):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "<f4", "data": (pointer, False), "version": 3}
