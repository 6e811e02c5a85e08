"""Exported graphs of the model: torch.export, ONNX, and decoding with them."""

import logging

import pytest
import torch
from test_onnx import FAST_AND_SLOW, SLOW
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

exporters = pytest.importorskip("transformers.exporters", reason="needs a newer transformers")


@pytest.fixture(autouse=True)
def without_a_malformed_message(caplog):
    """Hides a message that torch logs without its argument, which fails when it is formatted."""
    caplog.set_level(logging.ERROR, logger="torch._export.serde.serialize")


def exporter(kind):
    if kind == "onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            pytest.importorskip(package, reason="needs the extra `onnx`")
        return exporters.OnnxExporter(), exporters.OnnxConfig(dynamic=True)
    return exporters.DynamoExporter(), exporters.DynamoConfig(dynamic=True)


def batch_of(tiny_batch, *lengths, keep=("input_ids", "attention_mask")):
    batch = tiny_batch(*lengths)
    return {k: batch[k] for k in keep}


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("architecture", FAST_AND_SLOW)
def test_torch_export_takes_other_sizes(tiny_model, tiny_batch, architecture, attention):
    model, auto = tiny_model(attention=attention, **architecture), torch.export.Dim.AUTO
    names = ("input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask")
    batch = batch_of(tiny_batch, keep=names)
    shapes = {name: {0: auto, 1: auto} for name in names} | {"use_cache": None}
    program = torch.export.export(model, (), {**batch, "use_cache": False}, dynamic_shapes=shapes)
    for lengths in ((7, 4, 6), (5, 6, 3)), ((9, 3), (4, 8)), ((40, 3), (4, 50)):
        other = batch_of(tiny_batch, *lengths, keep=names)
        found = program.module()(**other, use_cache=False).logits
        torch.testing.assert_close(found, model(**other).logits)


@SLOW  # the fast tests of test_onnx.py generate with a cache too
@pytest.mark.parametrize("architecture", FAST_AND_SLOW)
@pytest.mark.parametrize("kind", ["dynamo", "onnx"])
def test_an_exported_decoder_with_its_cache_generates_the_same(
    tiny_model, tiny_batch, tmp_path, kind, architecture
):
    """Exports with three sources of seven tokens, then runs six steps with two sources of nine."""
    tool, config = exporter(kind)
    model = tiny_model(**architecture)
    exported = tool.export_for_generation(
        model, batch_of(tiny_batch), config, multi_token_decode=True
    )
    exported.save_pretrained(tmp_path)
    runners = exporters.ExportedModel.from_pretrained(tmp_path, trust_remote_code=True).runners
    source = batch_of(tiny_batch, (9, 3), (1, 1))
    expected = model.generate(
        **source,
        max_new_tokens=6,
        eos_token_id=None,
        output_logits=True,
        return_dict_in_generate=True,
    )
    encoded, tokens = model.get_encoder()(**source), torch.zeros(2, 1, dtype=torch.long)
    cache = EncoderDecoderCache(
        DynamicCache(config=model.config), DynamicCache(config=model.config)
    )
    for step, logits in enumerate(expected.logits):
        output = runners["prefill" if step == 0 else "decode"](
            attention_mask=source["attention_mask"],
            decoder_input_ids=tokens,
            encoder_outputs=encoded,
            cache=cache,
        )
        close(output.logits[:, -1], logits)
        cache, tokens = output.cache, output.logits[:, -1:].argmax(-1)
