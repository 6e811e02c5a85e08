"""The facts of a machine that defaults depend on: device, cores, sharding."""

import os
import sys
from dataclasses import dataclass
from typing import Self

import torch

_NARROWEST_IN_BFLOAT16 = 160
"""Smallest width of a model that trains faster in bfloat16 on a CPU."""
_SHARDED_BY = ("FSDP", "DEEPSPEED", "PARALLELISM_CONFIG")


@dataclass(frozen=True)
class Machine:
    """The facts of a machine that the options of a run depend on."""

    on_cpu: bool
    has_bfloat16: bool = False  # the device has instructions for it, and does not emulate it
    is_sharded: bool = False  # the launcher divides the model among processes (FSDP, DeepSpeed)
    spare_cores: int = 0  # beside the one that drives a GPU; 0 on a CPU

    @classmethod
    def here(cls, use_cpu: bool = False) -> Self:
        """Returns the facts of this machine."""
        on_cpu = use_cpu or not torch.accelerator.is_available()
        # Only Linux starts workers as copies of a process: elsewhere, no other core counts.
        cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
        shards = [os.environ.get(f"ACCELERATE_USE_{name}", "").lower() for name in _SHARDED_BY]
        return cls(
            on_cpu=on_cpu,
            has_bfloat16=_has_bfloat16(on_cpu),
            is_sharded="true" in shards or "1" in shards,
            spare_cores=0 if on_cpu else cores - 1,
        )

    def is_faster_in_bfloat16(self, d_model: int) -> bool:
        """Returns whether a model of this width trains faster in bfloat16.

        The conversions cost more than small products gain. On one thread of a Xeon with AMX, a step
        in bfloat16 was 0.67 times as fast as in float32 at width 96, 0.8 times at 128, 1.2 times at
        192, 1.5 times at 256 and 2 times at 512, with 1,024 and with 4,096 tokens.
        """
        return self.has_bfloat16 and (not self.on_cpu or d_model >= _NARROWEST_IN_BFLOAT16)


def _has_bfloat16(on_cpu: bool) -> bool:
    if on_cpu:
        return bool(torch.cpu._is_avx512_bf16_supported())
    return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
