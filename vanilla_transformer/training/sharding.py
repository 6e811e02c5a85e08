"""Weights that FSDP divides among processes: modules that share a matrix."""

from collections import defaultdict
from typing import Any

import torch


def group_tied_modules(model: torch.nn.Module, plugin: Any) -> None:
    """Shards the modules that share a matrix together, before Accelerate shards the others.

    A shared matrix may be in one group of FSDP only (torch 2.13 refuses it in two). Accelerate
    knows of two modules that may share one, the embedding of the inputs and the output projection,
    but an encoder and a decoder have two embeddings. It leaves modules alone that are sharded.
    """
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    owners: dict[torch.nn.Parameter, dict[torch.nn.Module, None]] = defaultdict(dict)
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners[parameter][module] = None
    for modules in owners.values():
        if len(modules) == 1 or any(isinstance(module, FSDPModule) for module in modules):
            continue
        if plugin.cpu_ram_efficient_loading:
            raise ValueError(
                "`fsdp_cpu_ram_efficient_loading` is true, which does not work with a model that "
                "shares matrices: set it to false in the launch file, as "
                "scripts/accelerate/fsdp.yaml does."
            )
        fully_shard(
            list(modules),
            reshard_after_forward=False,
            mp_policy=plugin.mixed_precision_policy or MixedPrecisionPolicy(),
            offload_policy=plugin.cpu_offload,
        )
