"""What devices without float64 need: Apple's GPUs (MPS) have no such type."""

import pytest
import torch
from test_properties import build, draw_config, make_batch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.training.muon import make_muon


class WithoutFloat64(TorchDispatchMode):
    """Fails where an operation makes a tensor of 64-bit floats."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float64:
                raise TypeError(f"{function} makes a tensor of float64")
        return made


def test_the_check_sees_float64():
    with WithoutFloat64():
        torch.ones(2) * 2.0
        with pytest.raises(TypeError, match="float64"):
            torch.ones(2).double()


def test_training_and_generation_make_no_float64(seeds_to_draw):
    for seed in seeds_to_draw[::3]:
        model = build(VanillaTransformerConfig(**draw_config(seed)), seed)
        batch = make_batch(model.config, "right", seed)
        sources = {name: batch[name] for name in ("input_ids", "attention_mask")}
        optimizer = make_muon(model)
        with WithoutFloat64():
            model.train()(**batch).loss.backward()
            optimizer.step()
            for options in ({"num_beams": 2}, {"do_sample": True}):
                model.eval().generate(**sources, **options, max_new_tokens=3)
