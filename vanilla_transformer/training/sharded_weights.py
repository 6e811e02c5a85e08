"""Detects trainings whose weights are sharded over processes."""

from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType


def refuse_sharded_weights(feature: str, remedy: str) -> None:
    """Refuses a training whose weights are sharded over processes.

    Args:
        feature: Name of what needs whole weights, for the error.
        remedy: What to do instead, for the error.

    Raises:
        ValueError: Under FSDP, DeepSpeed or Megatron.
    """
    sharded = (DistributedType.FSDP, DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM)
    if AcceleratorState._shared_state and AcceleratorState().distributed_type in sharded:
        raise ValueError(
            f"{feature} needs whole weights in each process, which FSDP, DeepSpeed and Megatron do "
            f"not keep: {remedy}."
        )
