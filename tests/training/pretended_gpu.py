"""A device that is no CPU to torch, but whose tensors are computed by the CPU.

What a GPU refuses is refused here too: an operation on tensors of two devices.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _setup_privateuseone_for_python_backend,
)

NAME = "pretended"
CPU = torch.device("cpu")
aten = torch.ops.aten


class Backend(_DummyBackendModule):
    """What torch asks of a kind of devices."""

    def get_amp_supported_dtype(self):
        return [torch.bfloat16]


def register():
    """Makes the device known to torch, for the rest of the process."""
    _setup_privateuseone_for_python_backend(NAME, Backend())


class Pretended(torch.Tensor):
    """A tensor of the device; `values` is one of the CPU, or a view of that of another."""

    @staticmethod
    def __new__(cls, values):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            values.size(),
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=f"{NAME}:0",
        )

    def __init__(self, values):
        self.values = values

    def tolist(self):
        return self.cpu().tolist()

    def numpy(self):
        raise TypeError("can't convert a tensor of a device to numpy: call cpu() first")

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise RuntimeError(f"{function} is called outside of `PretendedGpu`")


def to_cpu(value):
    return CPU if isinstance(value, torch.device) and value.type == NAME else value


class PretendedGpu(TorchDispatchMode):
    """A block in which the device works."""

    def __enter__(self):
        self._lifts = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)
        return super().__enter__()

    def __exit__(self, *error):
        torch._C._set_only_lift_cpu_tensors(self._lifts)
        return super().__exit__(*error)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given, shape = tree_flatten((args, kwargs))
        tensors = [x for x in given if isinstance(x, torch.Tensor)]
        here = [x for x in tensors if isinstance(x, Pretended)]
        packet, goes_here = function.overloadpacket, bool(here)
        if "device" in kwargs:
            goes_here = torch.device(kwargs["device"] or CPU).type == NAME
        if packet in (aten.copy_, aten._to_copy):
            goes_here = isinstance(args[0], Pretended) if packet is aten.copy_ else goes_here
        elif here and any(x.dim() and not isinstance(x, Pretended) for x in tensors):
            raise RuntimeError(f"{function} is given tensors of two devices")
        values = [x.values if isinstance(x, Pretended) else to_cpu(x) for x in given]
        args, kwargs = tree_unflatten(values, shape)
        result = function(*args, **kwargs)
        known = {id(value): x for x, value in zip(given, values, strict=True)}

        def wrap(value):
            if not isinstance(value, torch.Tensor):
                return value
            return known[id(value)] if id(value) in known else Pretended(value)

        return tree_map(wrap, result) if goes_here else result
