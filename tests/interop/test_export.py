"""Graphs of the model by torch.export."""

import pytest
import torch
from test_onnx import FAST_AND_SLOW


@pytest.mark.parametrize("attention", ["sdpa", pytest.param("eager", marks=pytest.mark.slow)])
@pytest.mark.parametrize("architecture", FAST_AND_SLOW)
def test_torch_export_takes_other_sizes(tiny_model, tiny_batch, architecture, attention):
    model, auto = tiny_model(attention=attention, **architecture), torch.export.Dim.AUTO
    names = ("input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask")
    batch = {name: tiny_batch()[name] for name in names}
    shapes = {name: {0: auto, 1: auto} for name in names} | {"use_cache": None}
    program = torch.export.export(model, (), {**batch, "use_cache": False}, dynamic_shapes=shapes)
    for lengths in ((7, 4, 6), (5, 6, 3)), ((9, 3), (4, 8)), ((40, 3), (4, 50)):
        other = {name: tiny_batch(*lengths)[name] for name in names}
        found = program.module()(**other, use_cache=False).logits
        torch.testing.assert_close(found, model(**other).logits)
